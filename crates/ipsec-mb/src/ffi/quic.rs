//! Helpers for QUIC: packets of one key, in arrays.

use std::{
    ffi::{c_int, c_void},
    ptr,
};

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

/// The arrays of a call, with an element for each packet.
struct Arrays {
    dst: *const *mut c_void,
    src: *const *const c_void,
    len: *const u64,
    iv: *const *const c_void,
    aad: *const *const c_void,
    aad_len: u64,
    tag: *const *mut c_void,
    tag_len: u64,
}

impl Arrays {
    /// Checks that no array is null.
    fn check(&self) -> Result<(), c_int> {
        let nulls = [
            (self.dst.is_null(), ERR_NULL_DST),
            (self.src.is_null(), ERR_NULL_SRC),
            (self.len.is_null(), ERR_CIPH_LEN),
            (self.iv.is_null(), ERR_NULL_IV),
            (self.aad.is_null(), ERR_NULL_AAD),
            (self.tag.is_null(), ERR_NULL_AUTH),
        ];
        nulls.iter().find(|(is_null, _)| *is_null).map_or(Ok(()), |(_, error)| Err(*error))
    }

    /// A packet as a job.
    ///
    /// # Safety
    ///
    /// The arrays were [checked](Self::check), and have the element.
    unsafe fn job(&self, at: usize, key: *const c_void, suite: Suite) -> Job {
        // SAFETY: the caller's promise.
        let src = unsafe { element(self.src, at) };
        // SAFETY: as above.
        let dst = unsafe { element(self.dst, at) };
        // SAFETY: as above.
        let len = unsafe { element(self.len, at) };
        // SAFETY: as above.
        let iv = unsafe { element(self.iv, at) };
        // SAFETY: as above.
        let aad = unsafe { element(self.aad, at) };
        // SAFETY: as above.
        let tag = unsafe { element(self.tag, at) };
        Job {
            enc_keys: key,
            dec_keys: key,
            key_len: suite.key_len,
            src: src.cast(),
            dst: dst.cast(),
            cipher_len: len,
            hash_len: len,
            iv: iv.cast(),
            iv_len: 12,
            tag: tag.cast(),
            tag_len: self.tag_len,
            u: [aad.expose_provenance(), self.aad_len as usize, 0],
            ..Job::EMPTY
        }
    }
}

/// An element of an array.
///
/// # Safety
///
/// The array has it.
pub(super) unsafe fn element<T: Copy>(array: *const T, at: usize) -> T {
    // SAFETY: the caller's promise.
    unsafe { array.wrapping_add(at).read_unaligned() }
}

/// Seals or opens packets.
///
/// # Safety
///
/// As for [`imb_quic_aes_gcm`].
unsafe fn packets(mgr: *mut Mgr, key: *const c_void, suite: Suite, arrays: &Arrays, count: u64) {
    // SAFETY: the caller's promise.
    let Some((mgr, state)) = (unsafe { state::enter(mgr) }) else {
        return set_global_errno(ERR_NULL_MBMGR);
    };
    let mut work = || {
        if key.is_null() {
            let is_expanded = suite.cipher == CIPHER_GCM;
            return Err(if is_expanded { ERR_NULL_EXP_KEY } else { ERR_NULL_KEY });
        }
        if count > 0 {
            arrays.check()?;
        }
        for first in (0..count as usize).step_by(CHUNK) {
            let mut jobs = ArrayVec::<Job, CHUNK>::new();
            for at in first..(first + CHUNK).min(count as usize) {
                // SAFETY: the caller's promise.
                let job = unsafe { arrays.job(at, key, suite) };
                check(&job, suite).map_err(direct)?;
                jobs.push(job);
            }
            let tasks: ArrayVec<Task, CHUNK> =
                jobs.iter_mut().map(|job| Task { suite, job: ptr::from_mut(job) }).collect();
            // SAFETY: as above.
            unsafe { work::run(state, &tasks) }.map_or(Ok(()), |error| Err(direct(error)))?;
        }
        Ok(())
    };
    let error = work().err().unwrap_or(0);
    set_errno(mgr, error);
}

/// The number that direct calls have for what is wrong with a job.
fn direct(error: c_int) -> c_int {
    match error {
        ERR_JOB_NULL_SRC..=ERR_JOB_NULL_KEY => error - ERR_JOB_NULL_SRC + ERR_NULL_SRC,
        ERR_JOB_NULL_IV..=ERR_JOB_NULL_AAD => error - ERR_JOB_NULL_IV + ERR_NULL_IV,
        ERR_JOB_CIPH_LEN..=ERR_JOB_SRC_OFFSET => error - ERR_JOB_CIPH_LEN + ERR_CIPH_LEN,
        _ => error,
    }
}

/// Seals or opens packets of AES-GCM with IVs of 12 bytes.
///
/// # Safety
///
/// Each pointer is null, or points to as much as its length or type says; arrays have an element for each packet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imb_quic_aes_gcm(
    mgr: *mut Mgr,
    key: *const GcmKey,
    key_len: u32,
    direction: u32,
    dst: *const *mut c_void,
    src: *const *const c_void,
    len: *const u64,
    iv: *const *const c_void,
    aad: *const *const c_void,
    aad_len: u64,
    tag: *const *mut c_void,
    tag_len: u64,
    count: u64,
) {
    let key_len = key_len.into();
    let suite = Suite { cipher: CIPHER_GCM, direction, hash: AUTH_AES_GMAC, key_len };
    let arrays = Arrays { dst, src, len, iv, aad, aad_len, tag, tag_len };
    // SAFETY: the caller's promise.
    unsafe { packets(mgr, key, suite, &arrays, count) };
}

/// Seals or opens packets of ChaCha20-Poly1305.
///
/// # Safety
///
/// As for [`imb_quic_aes_gcm`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imb_quic_chacha20_poly1305(
    mgr: *mut Mgr,
    key: *const c_void,
    direction: u32,
    dst: *const *mut c_void,
    src: *const *const c_void,
    len: *const u64,
    iv: *const *const c_void,
    aad: *const *const c_void,
    aad_len: u64,
    tag: *const *mut c_void,
    count: u64,
) {
    let (cipher, hash) = (CIPHER_CHACHA20_POLY1305, AUTH_CHACHA20_POLY1305);
    let suite = Suite { cipher, direction, hash, key_len: 32 };
    let arrays = Arrays { dst, src, len, iv, aad, aad_len, tag, tag_len: 16 };
    // SAFETY: the caller's promise.
    unsafe { packets(mgr, key, suite, &arrays, count) };
}
