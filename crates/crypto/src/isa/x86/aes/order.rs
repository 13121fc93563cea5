//! The order in which lanes take packets: the longest first, so that they end together.

use std::{mem, ptr};

/// Most packets ordered at once.
pub(super) const MOST: usize = 256;

/// Classes of length. Lengths below 64 blocks have a class each, longer ones sixteen per power of
/// two, and the last class holds everything of a megabyte and more.
const CLASSES: usize = 64 + 16 * 10;

/// Numbers of packets in the order in which they come.
static AS_THEY_COME: [u8; MOST] = {
    let mut order = [0; MOST];
    let mut i = 0;
    while i < MOST {
        order[i] = i as u8;
        i += 1;
    }
    order
};

/// An order of up to [`MOST`] packets.
pub(super) struct Order {
    sorted: [u8; MOST],
    len: usize,
    as_they_come: bool,
    shared: bool,
}

impl Order {
    /// Orders packets by their number of blocks, which comes with their key. More than [`MOST`] are
    /// not looked at.
    // Never inlined, to be compiled without a tier's features: with AVX-512 the compiler gathers
    // from eight jobs at once, which is slow on many processors.
    #[inline(never)]
    pub(super) fn longest_first<'k, J, K: 'k>(
        jobs: &[J],
        look: impl Fn(&J) -> (usize, &'k K),
    ) -> Self {
        let jobs = jobs.get(..MOST).unwrap_or(jobs);
        let (mut rising, mut strange) = (false, false);
        if let Some((mut last, first)) = jobs.first().map(&look) {
            for job in jobs {
                let (blocks, key) = look(job);
                rising |= blocks > last;
                strange |= !ptr::eq(key, first);
                last = blocks;
            }
        }
        let mut order =
            Self { sorted: [0; MOST], len: jobs.len(), as_they_come: !rising, shared: !strange };
        if rising {
            let mut classes = [0u8; MOST];
            for (class, job) in classes.iter_mut().zip(jobs) {
                // Classes count down, so that the longest come first.
                *class = (CLASSES - 1 - class_of(look(job).0)) as u8;
            }
            order.sort(&classes);
        }
        order
    }

    #[inline(never)]
    fn sort(&mut self, classes: &[u8; MOST]) {
        let classes = &classes[..self.len.min(MOST)];
        let mut places = [0u16; 256];
        for &class in classes {
            places[usize::from(class)] += 1;
        }
        let mut next = 0;
        for place in &mut places[..CLASSES] {
            next += mem::replace(place, next);
        }
        for (i, &class) in classes.iter().enumerate() {
            let place = &mut places[usize::from(class)];
            self.sorted[usize::from(*place) % MOST] = i as u8;
            *place += 1;
        }
    }

    /// Offers packets to `take`, `N` at a time, and keeps those that it does not take.
    #[inline(always)]
    pub(super) fn offer<const N: usize>(&mut self, mut take: impl FnMut(&[u8; N]) -> bool) {
        let (mut kept, mut len) = ([0; MOST], 0);
        let (groups, rest) = self.packets().as_chunks();
        let mut keep = |packets: &[u8]| {
            if let Some(places) = kept.get_mut(len..).and_then(|all| all.get_mut(..packets.len())) {
                places.copy_from_slice(packets);
                len += packets.len();
            }
        };
        for group in groups {
            if !take(group) {
                keep(group);
            }
        }
        keep(rest);
        (self.sorted, self.len, self.as_they_come) = (kept, len, false);
    }

    /// The packets' numbers.
    #[inline(always)]
    pub(super) fn packets(&self) -> &[u8] {
        let all = if self.as_they_come { &AS_THEY_COME } else { &self.sorted };
        all.get(..self.len).unwrap_or(all)
    }

    /// True if all packets have one key.
    #[inline(always)]
    pub(super) fn shared(&self) -> bool {
        self.shared
    }
}

#[inline(always)]
fn class_of(blocks: usize) -> usize {
    if blocks < 64 {
        return blocks;
    }
    let power = blocks.ilog2() as usize;
    // The four bits below the highest.
    let part = (blocks >> (power - 4)) & 15;
    (64 + 16 * (power - 6) + part).min(CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_has_its_place_and_lengths_fall() {
        for step in [0, 1, 7, 64, 1001, 123_457] {
            for len in [0, 1, 2, 100, 255, 256, 300] {
                let blocks: Vec<usize> = (0..len).map(|i| i * step % 70_001).collect();
                let order = Order::longest_first(&blocks, |&blocks| (blocks, &()));
                let packets = order.packets();
                let mut seen = packets.to_vec();
                seen.sort_unstable();
                let all: Vec<u8> = (0..len.min(MOST)).map(|i| i as u8).collect();
                assert_eq!(seen, all);
                let sorted: Vec<_> = packets.iter().map(|&i| blocks[usize::from(i)]).collect();
                for pair in sorted.windows(2) {
                    assert!(class_of(pair[0]) >= class_of(pair[1]), "{pair:?}");
                }
            }
        }
    }

    #[test]
    fn classes_rise_with_length() {
        let classes: Vec<_> = (0..100_000).map(class_of).collect();
        assert!(classes.is_sorted());
        assert!((0..64).all(|i| classes[i] == i));
        assert_eq!(class_of(usize::MAX), CLASSES - 1);
    }
}
