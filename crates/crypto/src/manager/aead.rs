//! Jobs of AEADs that have a key type of their own: they go through bursts.

use arrayvec::ArrayVec;

use super::{
    check::cipher,
    job::{Job, JobCipher},
    run::{CHUNK, cut, part_mut},
};
use crate::{
    Nonce, SealOp, burst,
    key::Key,
    op::{Op, Parts, Sink, Whole},
    seal_burst,
    secret::Scratch,
};

/// Runs the jobs of one direction, at most [`CHUNK`].
pub(super) fn run(jobs: &mut [Job<'_>], class: u8) {
    let mut tags = Scratch([[0; 16]; CHUNK]);
    if class == cipher::AEAD_SEAL {
        seal(jobs, &mut tags.0);
    } else {
        open(jobs, &mut tags.0);
    }
    for (job, tag) in of_class(jobs, class).zip(&tags.0) {
        cut(tag, job.tag);
    }
}

fn of_class<'j, 'a>(
    jobs: &'j mut [Job<'a>],
    class: u8,
) -> impl Iterator<Item = &'j mut Job<'a>> + use<'j, 'a> {
    jobs.iter_mut().filter(move |job| job.plan.cipher == class)
}

fn seal(jobs: &mut [Job<'_>], tags: &mut [[u8; 16]; CHUNK]) {
    let mut ops = ArrayVec::<SealOp<'_>, CHUNK>::new();
    for (job, tag) in of_class(jobs, cipher::AEAD_SEAL).zip(tags) {
        let JobCipher::Aead(key, _) = job.cipher else { continue };
        let Some(data) = part_mut(job.buffer.work_mut(), job.cipher_span) else { continue };
        let Some(&nonce) = job.iv.bytes.first_chunk::<12>() else { continue };
        let Some(icv) = tag.get_mut(..key.suite().icv_bytes()) else { continue };
        // Whoever submits a job vouches for its nonce.
        ops.extend(SealOp::with_aead_key(key, Nonce::new(nonce), job.aad, data, icv));
    }
    seal_burst(&mut ops);
}

fn open(jobs: &mut [Job<'_>], tags: &mut [[u8; 16]; CHUNK]) {
    let mut ops = ArrayVec::<Decrypt<'_>, CHUNK>::new();
    for (job, tag) in of_class(jobs, cipher::AEAD_OPEN).zip(tags) {
        let JobCipher::Aead(key, _) = job.cipher else { continue };
        let Some(data) = part_mut(job.buffer.work_mut(), job.cipher_span) else { continue };
        let (key, nonce, aad) = (key.inner(), &job.iv.bytes, job.aad);
        ops.push(Decrypt { key, nonce, aad, data, tag, done: false });
    }
    burst::run(&mut ops);
}

/// A packet to be decrypted and given the tag that it should have; comparing is left to others.
struct Decrypt<'a> {
    key: &'a Key,
    nonce: &'a [u8; 16],
    aad: &'a [u8],
    data: &'a mut [u8],
    tag: &'a mut [u8; 16],
    done: bool,
}

impl<'a> Op<'a> for Decrypt<'a> {
    const SEAL: bool = false;

    #[inline(always)]
    fn key(&self) -> &'a Key {
        self.key
    }

    #[inline(always)]
    fn is_due(&self) -> bool {
        !self.done
    }

    #[inline(always)]
    fn data_len(&self) -> usize {
        self.data.len()
    }

    #[inline(always)]
    fn parts(&mut self) -> Parts<'_> {
        Parts { counter: self.nonce, aad: self.aad, aad_len: self.aad.len(), data: self.data }
    }

    #[inline(always)]
    fn split(&mut self) -> (Whole<'_>, Sink<'_>) {
        let whole = Whole {
            nonce: self.nonce,
            nonce_len: 12,
            header: 0,
            beside: self.aad,
            data: self.data,
        };
        (whole, Sink::Seal { icv: self.tag, sealed: &mut self.done })
    }

    #[inline(always)]
    fn finish(&mut self, tag: [u8; 16]) {
        (*self.tag, self.done) = (tag, true);
    }

    #[inline(always)]
    fn settle(&mut self, _: bool) {
        self.done = true;
    }
}
