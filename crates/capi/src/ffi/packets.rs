//! Jobs of AEADs with whole tags: from C's memory to operations of a burst, without a job of Rust between.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrayvec::ArrayVec;
use convoy_crypto::{Nonce, OpenOp, SealOp, open_burst, seal_burst};

use super::{
    chunk::{CHUNK, Places},
    raw::{IN_REACH, Region, TAG_BYTES, aead_key, bytes, bytes_mut, reach},
};
use crate::types::{
    AeadKey, CONVOY_CIPHER_AEAD, CONVOY_DIRECTION_DECRYPT, CONVOY_DIRECTION_ENCRYPT,
    CONVOY_HASH_NULL, CONVOY_MAX_BYTES, CONVOY_OK, CONVOY_ORDER_HASH_CIPHER,
    CONVOY_STATUS_COMPLETED, CONVOY_STATUS_INTERNAL, Job,
};

/// Works on those of at most [`CHUNK`] jobs that are good ones of an AEAD with whole tags; says how many were
/// completed, and which others there are, good and bad. `all` is where the jobs lie, and those that are worked on together with them.
///
/// # Safety
///
/// As for [`view::push`](super::view::push), for each of the jobs. Where `is_checked` is false of one, it meets all that
/// `convoy_submit_job_nocheck` says.
#[inline]
pub(super) unsafe fn run(
    jobs: &mut [Job],
    all: Region,
    is_checked: impl Fn(&Job) -> bool,
) -> (usize, Places) {
    let mut seal = ArrayVec::<SealOp<'_>, CHUNK>::new();
    let mut open = ArrayVec::<OpenOp<'_>, CHUNK>::new();
    let mut others = Places::default();
    for (place, job) in jobs.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        if unsafe { push(job, is_checked(job), all, &mut seal, &mut open) } {
            (job.status, job.error) = (CONVOY_STATUS_COMPLETED, CONVOY_OK);
        } else {
            others.add(place);
        }
    }
    let packets = seal.len() + open.len();
    if packets == 0 {
        return (0, others);
    }
    let work = || {
        if !seal.is_empty() {
            seal_burst(&mut seal);
        }
        if !open.is_empty() {
            open_burst(&mut open);
        }
    };
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        let worked_on = jobs.iter_mut().enumerate().filter(|(place, _)| !others.has(*place));
        worked_on.for_each(|(_, job)| job.status = CONVOY_STATUS_INTERNAL);
        return (0, others);
    }
    (packets, others)
}

/// Makes an operation of the job, if it is a good one of an AEAD with a whole tag.
///
/// # Safety
///
/// As for [`run`].
#[inline(always)]
unsafe fn push<'a>(
    job: &Job,
    is_checked: bool,
    all: Region,
    seal: &mut ArrayVec<SealOp<'a>, CHUNK>,
    open: &mut ArrayVec<OpenOp<'a>, CHUNK>,
) -> bool {
    if job.cipher_mode != CONVOY_CIPHER_AEAD || !has_form(job) {
        return false;
    }
    // SAFETY: all variants are pointers of one size, so reading any of them yields a pointer.
    let key = unsafe { job.cipher_key.aead };
    if is_checked && !(is_in_reach(job) & is_apart(job, key, all)) {
        return false;
    }
    // SAFETY: the caller promises that the mode says which key is meant.
    let Ok(key) = (unsafe { aead_key(key) }) else { return false };
    let (from, to) =
        (job.src.wrapping_add(job.cipher_offset), job.dst.wrapping_add(job.cipher_offset));
    // SAFETY: the caller's promise. The nonce may lie in the text, so it is copied before there is a reference to that.
    let nonce: [u8; 12] = unsafe { job.iv.cast::<[u8; 12]>().read() };
    // SAFETY: the caller's promise: nobody else uses the text.
    let text = unsafe { bytes_mut(to, job.cipher_len) };
    if from != to.cast_const() {
        // SAFETY: the caller's promise; the two do not overlap.
        text.copy_from_slice(unsafe { bytes(from, job.cipher_len) });
    }
    // SAFETY: the caller's promise: additional data overlaps nothing that is written.
    let aad = unsafe { bytes(job.aad, job.aad_len) };
    // SAFETY: the caller's promise; the tag overlaps nothing else.
    let tag = unsafe { &mut *job.tag.cast::<[u8; TAG_BYTES]>() };
    if job.cipher_direction == CONVOY_DIRECTION_ENCRYPT {
        // Whoever submits a job vouches for its nonce.
        SealOp::with_aead_key(&key.key, Nonce::new(nonce), aad, text, tag)
            .map(|op| seal.push(op))
            .is_ok()
    } else {
        OpenOp::unverified(&key.key, nonce, aad, text, tag).map(|op| open.push(op)).is_ok()
    }
}

/// Whether all but the key and what is pointed to is as an AEAD with a whole tag has it. Without branches, as
/// most jobs are good.
#[inline(always)]
fn has_form(job: &Job) -> bool {
    let direction = job.cipher_direction;
    ((direction == CONVOY_DIRECTION_ENCRYPT) | (direction == CONVOY_DIRECTION_DECRYPT))
        & (job.hash_alg == CONVOY_HASH_NULL)
        & (job.chain_order <= CONVOY_ORDER_HASH_CIPHER)
        & (job.trailer_len == 0)
        & (job.iv_len == 12)
        & (job.tag_len == TAG_BYTES)
}

/// Whether lengths and addresses are so far from the ends of what there may be that sums of them are right, and
/// no pointer is null. Jobs that come near the ends are good or bad for other reasons.
#[inline(always)]
fn is_in_reach(job: &Job) -> bool {
    let lengths = job.cipher_offset | job.cipher_len | job.aad_len;
    let addresses = reach(job.src, 1)
        | reach(job.dst, 1)
        | reach(job.iv, 1)
        | reach(job.tag, 1)
        | reach(job.aad, job.aad_len);
    (lengths < CONVOY_MAX_BYTES / 2) & (addresses < IN_REACH)
}

/// Whether what the job writes is apart from all that it reads, and from the jobs. All of it is
/// [in reach](is_in_reach).
#[inline(always)]
fn is_apart(job: &Job, key: *const AeadKey, all: Region) -> bool {
    let from = Region::within_reach(job.src.wrapping_add(job.cipher_offset), job.cipher_len);
    let to = Region::within_reach(job.dst.wrapping_add(job.cipher_offset), job.cipher_len);
    let tag = Region::within_reach(job.tag, TAG_BYTES);
    let aad = Region::within_reach(job.aad, job.aad_len);
    let key = Region::within_reach(key, size_of::<AeadKey>());
    if job.src != job.dst.cast_const() && to.overlaps(from) | tag.overlaps(from) {
        return false;
    }
    let iv = Region::within_reach(job.iv, job.iv_len);
    let near = !(to.overlaps(aad) | tag.overlaps(to) | tag.overlaps(aad) | tag.overlaps(iv));
    // Mostly the tag is behind the text, and key and jobs are elsewhere.
    let written = to.hull(tag);
    if written.overlaps(key) | written.overlaps(all) {
        let far = to.overlaps(key) | to.overlaps(all) | tag.overlaps(key) | tag.overlaps(all);
        return near & !far;
    }
    near
}
