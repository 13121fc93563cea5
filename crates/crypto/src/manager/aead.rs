//! Jobs of AEADs that have a key type of their own: they go through bursts.

use arrayvec::ArrayVec;

use super::{
    job::{Direction, Job, JobCipher},
    plan::{CipherPass, Planned},
    run::{CHUNK, part_mut},
};
use crate::{
    Nonce, OpenOp, SealOp, icv::write_icv, op::HashedAad, open_burst, seal_burst, secret::Scratch,
};

/// Runs the jobs of one direction, at most [`CHUNK`].
pub(super) fn run(jobs: &mut [Job<'_>], direction: Direction) {
    let mut tags = Scratch([[0; 16]; CHUNK]);
    match direction {
        Direction::Encrypt => seal(jobs, &mut tags.0),
        Direction::Decrypt => open(jobs, &mut tags.0),
    }
    for (job, tag) in of_direction(jobs, direction).zip(&tags.0) {
        write_icv(tag, job.tag);
    }
}

fn of_direction<'j, 'a>(
    jobs: &'j mut [Job<'a>],
    direction: Direction,
) -> impl Iterator<Item = &'j mut Job<'a>> + use<'j, 'a> {
    let pass = Planned::new(CipherPass::Aead(direction));
    jobs.iter_mut().filter(move |job| job.plan.cipher == pass)
}

fn seal(jobs: &mut [Job<'_>], tags: &mut [[u8; 16]; CHUNK]) {
    let mut ops = ArrayVec::<SealOp<'_>, CHUNK>::new();
    for (job, tag) in of_direction(jobs, Direction::Encrypt).zip(tags) {
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
    for (job, tag) in of_direction(jobs, Direction::Decrypt).zip(tags) {
        let JobCipher::Aead(key, _) = job.cipher else { continue };
        let Some(data) = part_mut(job.buffer.work_mut(), job.cipher_span) else { continue };
        let (key, aad) = (key.inner(), HashedAad::whole(job.aad));
        ops.push(OpenOp::without_verdict(key, &job.iv.bytes, aad, data, tag));
    }
    open_burst(&mut ops);
}
