//! The jobs of a pass that makes tags.

use arrayvec::ArrayVec;
use zeroize::optimization_barrier;

use crate::isa::job::{CbcMacJob, CcmJob, ChaChaJob, GmacJob, HmacJob};

/// A job that the pass leaves a tag in.
pub(crate) trait Tagged {
    /// The tag, with what else there is room for.
    fn tag(&mut self) -> &mut [u8];
}

macro_rules! tagged {
    ($($name:ident)*) => {$(
        impl Tagged for $name<'_> {
            #[inline(always)]
            fn tag(&mut self) -> &mut [u8] {
                &mut self.tag
            }
        }
    )*};
}

tagged!(CbcMacJob ChaChaJob GmacJob HmacJob);

impl Tagged for CcmJob<'_> {
    #[inline(always)]
    fn tag(&mut self) -> &mut [u8] {
        self.tag.get_mut()
    }
}

/// Jobs that go through a pass together, and where the tag of each goes.
///
/// The jobs' own tags are wiped on drop, all at once: what the tag of a forged packet should have
/// been is as good as a forgery.
pub(crate) struct Batch<J: Tagged, P, const N: usize> {
    jobs: ArrayVec<J, N>,
    places: ArrayVec<P, N>,
}

impl<J: Tagged, P, const N: usize> Batch<J, P, N> {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self { jobs: ArrayVec::new(), places: ArrayVec::new() }
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, job: J, place: P) {
        self.jobs.push(job);
        self.places.push(place);
    }

    /// Jobs for the pass.
    #[inline(always)]
    pub(crate) fn jobs(&mut self) -> &mut [J] {
        &mut self.jobs
    }

    /// Hands each place its tag.
    #[inline(always)]
    pub(crate) fn deliver(&mut self, mut to: impl FnMut(P, &[u8])) {
        for (job, place) in self.jobs.iter_mut().zip(self.places.drain(..)) {
            to(place, job.tag());
        }
    }
}

impl<J: Tagged, P, const N: usize> Drop for Batch<J, P, N> {
    #[inline(always)]
    fn drop(&mut self) {
        self.jobs.iter_mut().for_each(|job| job.tag().fill(0));
        optimization_barrier(&self.jobs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_go_to_their_places_in_order() {
        let (key, nonce) = (crate::block::ChaChaKey([0; 32]), [0; 16]);
        let mut batch = Batch::<_, usize, 4>::new();
        for number in 0..3 {
            let job = ChaChaJob { key: &key, nonce: &nonce, aad: &[], data: &mut [], tag: [0; 16] };
            batch.push(job, number);
        }
        for (number, job) in (0..).zip(batch.jobs()) {
            job.tag = [number; 16];
        }
        let mut seen = Vec::new();
        batch.deliver(|place, tag| seen.push((place, tag.to_vec())));
        assert_eq!(seen, [(0, vec![0; 16]), (1, vec![1; 16]), (2, vec![2; 16])]);
    }
}
