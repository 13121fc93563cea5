//! From jobs of C to the work of the kernels.
//!
//! A job's cipher reads at `src` plus its offset and writes at `dst`, without one; its hash reads at `src` plus an offset that may lead to another
//! buffer. So what each of them covers is told apart by addresses. Where they share bytes, they become one job of the manager in Rust, over
//! what both cover together; where they do not, two; and where text must be hashed before it is overwritten from elsewhere, or the hash is
//! GMAC, one follows the other at once.

use std::ffi::c_int;

use arrayvec::ArrayVec;
use convoy_crypto::{
    KeyBits, KeyLender,
    manager::{Buffer, ChainOrder, Engine, Iv, Job as Inner, Runner, Status},
};

use super::{
    apart, packets,
    raw::{input, text},
    region::Region,
    state::{CHUNK, Slot, State},
    task::{Task, cipher_input, finish, hash_input},
    views::{Keys, Parts, cipher_alone, gmac, hash_alone, take_keys, wipe},
};
use crate::{
    check::{CCM_AAD_MAX, Suite, gmac_bits},
    types::*,
};

/// Works on at most [`CHUNK`] jobs that were checked, and sets the status of each; gives an error that was found only now.
///
/// # Safety
///
/// The jobs are there, and what they point to is as large as their lengths and types say. Nobody else uses it, and no job writes what
/// another reads or writes.
pub(super) unsafe fn run(state: &mut State, tasks: &[Task]) -> Option<c_int> {
    let State { runner, lender, slots, .. } = state;
    if let ([task], [slot, ..]) = (tasks, &mut *slots)
        && matches!(task.suite.cipher, CIPHER_GCM | CIPHER_CHACHA20_POLY1305)
    {
        // SAFETY: the caller's promise.
        return unsafe { packets::single(lender, slot, task) }.err();
    }
    let mut others = ArrayVec::new();
    // SAFETY: the caller's promise.
    let mut error = unsafe { packets::run(lender, slots, tasks, &mut others) };
    if others.is_empty() {
        return error;
    }
    others.retain(|task| {
        let is_apart = task.suite.has_cipher_apart() || task.suite.has_hash_apart();
        if let (true, [slot, ..]) = (is_apart, &mut *slots) {
            // SAFETY: the caller's promise.
            error = unsafe { apart::run(runner, lender, slot, task) }.err().or(error);
        }
        !is_apart
    });
    if others.is_empty() {
        return error;
    }
    for (task, slot) in others.iter().zip(&mut *slots) {
        // SAFETY: the caller's promise.
        let job = unsafe { &*task.job };
        // SAFETY: as above.
        if let Err(code) = unsafe { take_keys(slot, job, task.suite) } {
            error = Some(code);
        }
    }
    // SAFETY: as above.
    unsafe { run_views(runner, lender, slots, &others) };
    slots.iter_mut().take(others.len()).for_each(wipe);
    error
}

/// Works on jobs whose keys were taken.
///
/// # Safety
///
/// As for [`run`].
unsafe fn run_views(
    runner: &mut Runner,
    lender: &KeyLender,
    slots: &mut [Slot; CHUNK],
    tasks: &[Task],
) {
    let mut statuses = [STATUS_COMPLETED; CHUNK];
    let mut views = ArrayVec::<Inner<'_>, { 2 * CHUNK }>::new();
    for (at, (task, slot)) in tasks.iter().zip(&mut *slots).enumerate() {
        let Slot { encrypt, decrypt, hmac, cmac, xcbc, tag, .. } = slot;
        let keys = Keys { encrypt, decrypt, hmac, cmac, xcbc };
        // SAFETY: the caller's promise.
        let job = unsafe { &*task.job };
        let parts = Parts::of(keys, job, task.suite);
        // SAFETY: as above.
        let done = unsafe { add(runner, lender, &mut views, at, job, task.suite, parts, tag) };
        if done.is_err() {
            statuses[at] = STATUS_INVALID_ARGS;
        }
    }
    runner.run(&mut views);
    for view in &views {
        if view.status() != Status::Completed
            && let Some(status) = statuses.get_mut(view.user_data)
        {
            *status = STATUS_INVALID_ARGS;
        }
    }
    drop(views);
    for ((task, slot), status) in tasks.iter().zip(slots).zip(statuses) {
        // SAFETY: the caller's promise.
        unsafe { finish(task, &slot.tag, status) };
    }
}

/// Adds what a job asks for to what is worked on together, or does it at once where that cannot be.
///
/// # Safety
///
/// As for [`run`].
#[allow(clippy::too_many_arguments)]
unsafe fn add<'s>(
    runner: &mut Runner,
    lender: &KeyLender,
    views: &mut ArrayVec<Inner<'s>, { 2 * CHUNK }>,
    at: usize,
    job: &Job,
    suite: Suite,
    parts: Parts<'s>,
    tag: &'s mut [u8; 64],
) -> Result<(), c_int> {
    if suite.cipher == CIPHER_CCM {
        let mut copy = [0; CCM_AAD_MAX];
        // SAFETY: the caller's promise.
        return match unsafe { ccm_aad(job, &mut copy) }? {
            Some(aad) => {
                // SAFETY: as above.
                views.push(unsafe { ccm(job, &parts, at, tag, aad) }?);
                Ok(())
            }
            None => {
                let aad = copy.get(..job.u[1]).ok_or(ERR_JOB_AAD_LEN)?;
                // SAFETY: as above.
                let mut view = unsafe { ccm(job, &parts, at, tag, aad) }?;
                runner.run_one(&mut view);
                let is_done = view.status() == Status::Completed;
                if is_done { Ok(()) } else { Err(ERR_JOB_CIPH_LEN) }
            }
        };
    }
    if let Some(bits) = gmac_bits(suite.hash) {
        // SAFETY: as above.
        return unsafe { with_gmac(runner, lender, bits, job, &parts, tag) };
    }
    let (from, hashed) = (cipher_input(job), hash_input(job));
    let (to, len) = (job.dst, job.cipher_len as usize);
    let ciphered = Region { start: to.cast_const(), len };
    let early = parts.order == ChainOrder::HashThenCipher;
    match (parts.has_cipher(), parts.has_hash()) {
        (false, false) => {}
        (true, false) => {
            // SAFETY: the caller's promise.
            views.push(unsafe { cipher_alone(job, &parts, at) });
        }
        (false, true) => {
            // SAFETY: as above.
            views.push(unsafe { hash_alone(hashed, &parts, at, tag) });
        }
        (true, true) if !ciphered.overlaps(hashed) => {
            // SAFETY: as above. Neither writes what the other reads.
            views.push(unsafe { hash_alone(hashed, &parts, at, tag) });
            // SAFETY: as above.
            views.push(unsafe { cipher_alone(job, &parts, at) });
        }
        (true, true) if early && from != to.cast_const() => {
            // What is hashed is overwritten by text from elsewhere.
            // SAFETY: as above.
            let mut first = unsafe { hash_alone(hashed, &parts, at, tag) };
            runner.run_one(&mut first);
            // SAFETY: as above.
            views.push(unsafe { cipher_alone(job, &parts, at) });
        }
        (true, true) => {
            let Some(both) = ciphered.united(hashed) else { return Ok(()) };
            // SAFETY: the caller's promise. The IV may lie in the text, so it is copied before there is a reference to that.
            let iv = Iv::new(unsafe { input(job.iv, job.iv_len, ERR_JOB_NULL_IV) }?);
            // SAFETY: as above.
            unsafe { text(from, to, len) };
            let start = to.wrapping_sub(ciphered.start.addr() - both.start.addr());
            // SAFETY: as above: each byte of it is of the cipher's or of the hash's.
            let buffer = unsafe { text(start, start, both.len) };
            let mut view = Inner::default();
            view.buffer = Buffer::InPlace(buffer);
            (view.cipher, view.cipher_span) = (parts.cipher, both.span_of(ciphered));
            (view.hash, view.hash_span) = (parts.hash, both.span_of(hashed));
            (view.order, view.iv, view.user_data) = (parts.order, iv, at);
            view.tag = &mut tag[..parts.whole_tag];
            views.push(view);
        }
    }
    Ok(())
}

/// Additional data of a job of CCM; none if that lies where it writes: then it was copied.
///
/// # Safety
///
/// As for [`run`].
unsafe fn ccm_aad<'a>(job: &Job, copy: &mut [u8; CCM_AAD_MAX]) -> Result<Option<&'a [u8]>, c_int> {
    let len = job.u[1];
    // SAFETY: the caller's promise.
    let aad = unsafe { input(job.pointer(0), len as u64, ERR_JOB_NULL_AAD) }?;
    let text = Region { start: job.dst.cast_const(), len: job.cipher_len as usize };
    if !text.overlaps(Region { start: aad.as_ptr(), len }) {
        return Ok(Some(aad));
    }
    copy.iter_mut().zip(aad).for_each(|(to, byte)| *to = *byte);
    Ok(None)
}

/// A job of CCM.
///
/// # Safety
///
/// As for [`run`].
unsafe fn ccm<'s>(
    job: &Job,
    parts: &Parts<'s>,
    at: usize,
    tag: &'s mut [u8; 64],
    aad: &'s [u8],
) -> Result<Inner<'s>, c_int> {
    // SAFETY: the caller's promise.
    let mut view = unsafe { cipher_alone(job, parts, at) };
    view.aad = aad;
    view.tag = tag.get_mut(..job.tag_len as usize).ok_or(ERR_JOB_AUTH_TAG_LEN)?;
    Ok(view)
}

/// A job with GMAC beside its cipher, done at once.
///
/// # Safety
///
/// As for [`run`].
unsafe fn with_gmac(
    runner: &mut Runner,
    lender: &KeyLender,
    bits: KeyBits,
    job: &Job,
    parts: &Parts<'_>,
    tag: &mut [u8; 64],
) -> Result<(), c_int> {
    let mut is_valid = true;
    let mut cipher = || {
        if parts.has_cipher() {
            // SAFETY: the caller's promise.
            let mut view = unsafe { cipher_alone(job, parts, 0) };
            runner.run_one(&mut view);
            is_valid = view.status() == Status::Completed;
        }
    };
    let early = parts.order == ChainOrder::HashThenCipher;
    if !early {
        cipher();
    }
    // SAFETY: as above.
    let made = unsafe { gmac(lender, bits, job) }?;
    tag.iter_mut().zip(made).for_each(|(to, byte)| *to = byte);
    if early {
        cipher();
    }
    if is_valid { Ok(()) } else { Err(ERR_JOB_CIPH_LEN) }
}
