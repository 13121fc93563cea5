//! Jobs of AEADs that have a key type of their own: they go through bursts.

use arrayvec::ArrayVec;

use super::{
    check::cipher,
    job::{Job, JobCipher},
    run::{CHUNK, part_mut},
};
use crate::{
    Nonce, OpenOp, SealOp,
    op::{HashedAad, write_icv},
    open_burst, seal_burst,
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
        write_icv(tag, job.tag);
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
    let mut ops = ArrayVec::<OpenOp<'_>, CHUNK>::new();
    for (job, tag) in of_class(jobs, cipher::AEAD_OPEN).zip(tags) {
        let JobCipher::Aead(key, _) = job.cipher else { continue };
        let Some(data) = part_mut(job.buffer.work_mut(), job.cipher_span) else { continue };
        let (key, aad) = (key.inner(), HashedAad::whole(job.aad));
        ops.push(OpenOp::without_verdict(key, &job.iv.bytes, aad, data, tag));
    }
    open_burst(&mut ops);
}
