//! Bursts of one algorithm, in arrays of the caller's, which are done when the call returns.

use std::{ffi::c_int, ptr};

use arrayvec::ArrayVec;

use super::{
    raw::{set_errno, set_global_errno},
    state::{self, CHUNK},
    task::Task,
    work,
};
use crate::{
    check::{Suite, check},
    types::*,
};

/// Works on an array of jobs that all ask for the same; returns how many were completed. If one is invalid, none is worked on.
///
/// # Safety
///
/// `mgr` is null, or a manager that no other thread uses; `jobs` is null, or points to `count` jobs. What they point to is as large as
/// their lengths and types say.
unsafe fn burst(
    mgr: *mut Mgr,
    jobs: *mut Job,
    count: u32,
    no_jobs: c_int,
    suite_of: impl Fn(&Job) -> Result<Suite, c_int>,
) -> u32 {
    // SAFETY: the caller's promise.
    let Some((mgr, state)) = (unsafe { state::enter(mgr) }) else {
        set_global_errno(ERR_NULL_MBMGR);
        return 0;
    };
    set_errno(mgr, 0);
    if jobs.is_null() || !jobs.is_aligned() {
        set_errno(mgr, no_jobs);
        return 0;
    }
    // SAFETY: the caller's promise.
    let jobs = unsafe { std::slice::from_raw_parts_mut(jobs, count as usize) };
    for job in &mut *jobs {
        let checked = suite_of(job).and_then(|suite| check(job, suite));
        if let Err(error) = checked {
            job.status = STATUS_INVALID_ARGS;
            set_errno(mgr, error);
            return 0;
        }
    }
    for chunk in jobs.chunks_mut(CHUNK) {
        let mut tasks = ArrayVec::<Task, CHUNK>::new();
        for job in chunk {
            job.status = STATUS_BEING_PROCESSED;
            if let Ok(suite) = suite_of(job) {
                tasks.push(Task { suite, job: ptr::from_mut(job) });
            }
        }
        // SAFETY: the caller's promise.
        if let Some(error) = unsafe { work::run(state, &tasks) } {
            set_errno(mgr, error);
        }
    }
    jobs.iter().filter(|job| job.status == STATUS_COMPLETED).count() as u32
}

/// True if a cipher comes in such bursts.
pub(super) fn has_cipher(cipher: u32) -> bool {
    let known = [CIPHER_CBC, CIPHER_CNTR, CIPHER_ECB, CIPHER_CFB];
    // Version 1 has no jobs of CFB.
    known.contains(&cipher) && cipher < CIPHER_NUM
}

/// True if a hash comes in such bursts.
pub(super) fn has_hash(hash: u32) -> bool {
    let hmac = AUTH_HMAC_SHA_1..=AUTH_HMAC_SHA_512;
    let cmac = [AUTH_AES_CMAC, AUTH_AES_CMAC_BITLEN, AUTH_AES_CMAC_256];
    hmac.contains(&hash) || (AUTH_SHA_1..=AUTH_SHA_512).contains(&hash) || cmac.contains(&hash)
}

/// Encrypts or decrypts: AES-CBC, AES-CTR, AES-ECB and AES-CFB.
///
/// # Safety
///
/// As for [`burst`].
pub(super) unsafe extern "C" fn submit_cipher_burst(
    mgr: *mut Mgr,
    jobs: *mut Job,
    count: u32,
    cipher: u32,
    direction: u32,
    key_len: u32,
) -> u32 {
    let suite = Suite { cipher, direction, hash: AUTH_NULL, key_len: key_len.into() };
    let suite = if has_cipher(cipher) { Ok(suite) } else { Err(ERR_CIPH_MODE) };
    // SAFETY: the caller's promise.
    unsafe { burst(mgr, jobs, count, ERR_NULL_BURST, |_| suite) }
}

/// Seals or opens: AES-CCM.
///
/// # Safety
///
/// As for [`burst`].
#[cfg(not(abi_1))]
pub(super) unsafe extern "C" fn submit_aead_burst(
    mgr: *mut Mgr,
    jobs: *mut Job,
    count: u32,
    cipher: u32,
    direction: u32,
    key_len: u32,
) -> u32 {
    let suite = Suite { cipher, direction, hash: AUTH_AES_CCM, key_len: key_len.into() };
    let suite = if cipher == CIPHER_CCM { Ok(suite) } else { Err(ERR_CIPH_MODE) };
    // SAFETY: the caller's promise.
    unsafe { burst(mgr, jobs, count, ERR_NULL_BURST, |_| suite) }
}

/// Authenticates or hashes: HMAC with SHA-1 and SHA-2, these hashes by themselves, and AES-CMAC.
///
/// # Safety
///
/// As for [`burst`].
pub(super) unsafe extern "C" fn submit_hash_burst(
    mgr: *mut Mgr,
    jobs: *mut Job,
    count: u32,
    hash: u32,
) -> u32 {
    let known = has_hash(hash);
    let suite = |job: &Job| {
        let key_len = job.key_len;
        let suite = Suite { cipher: CIPHER_NULL, direction: DIR_ENCRYPT, hash, key_len };
        if known { Ok(suite) } else { Err(ERR_HASH_ALGO) }
    };
    // SAFETY: the caller's promise.
    unsafe { burst(mgr, jobs, count, ERR_NULL_JOB, suite) }
}
