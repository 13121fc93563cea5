//! Functions of version 2 alone: sessions, keys of HMAC, sizes of bursts, self-tests, and refused ones that came with it.

use std::{
    ffi::{c_char, c_int, c_uint, c_void},
    sync::atomic::{AtomicU32, Ordering},
};

use convoy_crypto::{HashAlg, manager::HmacKeys};

use super::{
    burst, direct,
    misc::{refused, refused_cipher},
    raw::{self, cpu, input, output, set_errno, set_global_errno},
};
use crate::{
    check::{Suite, hmac_hash},
    types::*,
};

/// The system's number for an argument that is wrong.
const EINVAL: c_int = 22;

/// Sets what the manager points to. Whom it tells of self-tests was set before.
pub(super) fn set_functions(later: &mut Later) {
    const CIPHER: Option<RefusedFn> = Some(refused_cipher);
    *later = Later {
        cfb_one_256: Some(direct::cfb_one::<256>),
        ecb_quic: [CIPHER; 2],
        set_suite_id: Some(set_suite_id),
        chacha_quic: [CIPHER; 2],
        sm4_keyexp: CIPHER,
        submit_aead_burst: Some(burst::submit_aead_burst),
        submit_aead_burst_nocheck: Some(burst::submit_aead_burst),
        ..*later
    };
}

/// Stamps a job with the numbers that bursts want, by what it asks for.
///
/// # Safety
///
/// Each is null, or points to a manager and a job.
unsafe extern "C" fn set_suite_id(_: *mut Mgr, job: *mut Job) {
    // SAFETY: the caller's promise.
    if let Ok(job) = unsafe { raw::object(job, 0) } {
        job.session.suite_id = Suite::of(job).id(job.chain_order);
    }
}

/// Stamps a job for bursts, and numbers its session; 0 if what it asks for is not in the set.
///
/// # Safety
///
/// Each is null, or points to a manager and a job.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imb_set_session(mgr: *mut Mgr, job: *mut Job) -> u32 {
    static SESSIONS: AtomicU32 = AtomicU32::new(1);
    // SAFETY: the caller's promise.
    let Ok(mgr) = (unsafe { raw::object(mgr, 0) }) else {
        set_global_errno(ERR_NULL_MBMGR);
        return 0;
    };
    // SAFETY: as above.
    let Ok(job) = (unsafe { raw::object(job, 0) }) else {
        set_errno(mgr, ERR_NULL_JOB);
        return 0;
    };
    let suite = Suite::of(job);
    let checked: Result<(), c_int> = suite.check();
    set_errno(mgr, checked.err().unwrap_or(0));
    if checked.is_err() {
        return 0;
    }
    job.session.suite_id = suite.id(job.chain_order);
    // Zero is none.
    job.session.session_id = SESSIONS.fetch_add(1, Ordering::Relaxed).max(1);
    job.session.session_id
}

/// Both chaining values of an HMAC's key; either may be left out.
///
/// # Safety
///
/// Each pointer is null, or `mgr` points to a manager, `key` to `key_len` bytes, and the others to room for a chaining value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imb_hmac_ipad_opad(
    mgr: *mut Mgr,
    hash: u32,
    key: *const c_void,
    key_len: usize,
    ipad: *mut c_void,
    opad: *mut c_void,
) {
    // SAFETY: the caller's promise.
    let Ok(mgr) = (unsafe { raw::object(mgr, 0) }) else {
        return set_global_errno(ERR_NULL_MBMGR);
    };
    let work = || {
        if key.is_null() {
            return Err(ERR_NULL_KEY);
        }
        let alg = hmac_hash(hash).ok_or(ERR_HASH_ALGO)?;
        // As intel-ipsec-mb has it.
        if alg == HashAlg::Md5 && key_len > alg.block_bytes() {
            return Err(ERR_KEY_LEN);
        }
        // SAFETY: the caller's promise.
        let key = unsafe { input(key.cast(), key_len as u64, ERR_NULL_KEY) }?;
        let mut keys = HmacKeys::empty();
        keys.set(cpu().ok_or(ERR_MISSING_CPUFLAGS_INIT_MGR)?, alg, key);
        let (inner, outer) = keys.expose().ok_or(ERR_HASH_ALGO)?;
        for (value, place) in [(inner, ipad), (outer, opad)] {
            if !place.is_null() {
                // SAFETY: as above.
                let place = unsafe { output(place.cast(), value.len() as u64, ERR_NULL_AUTH) }?;
                place.copy_from_slice(value);
            }
        }
        Ok(())
    };
    set_errno(mgr, work().err().unwrap_or(0));
    if let Ok(lender) = raw::lender() {
        lender.wipe_registers();
    }
}

/// The best size of a burst of one cipher: as many as are worked on together.
///
/// # Safety
///
/// `out` is null or points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imb_cipher_burst_get_size(
    mgr: *const Mgr,
    cipher: u32,
    out: *mut c_uint,
) -> c_int {
    let known = burst::has_cipher(cipher);
    // SAFETY: the caller's promise.
    unsafe { burst_size(mgr, out, if known { 0 } else { ERR_CIPH_MODE }) }
}

/// The same of one hash.
///
/// # Safety
///
/// As for [`imb_cipher_burst_get_size`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imb_hash_burst_get_size(
    mgr: *const Mgr,
    hash: u32,
    out: *mut c_uint,
) -> c_int {
    let known = burst::has_hash(hash);
    // SAFETY: the caller's promise.
    unsafe { burst_size(mgr, out, if known { 0 } else { ERR_HASH_ALGO }) }
}

/// The same of one AEAD.
///
/// # Safety
///
/// As for [`imb_cipher_burst_get_size`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imb_aead_burst_get_size(
    mgr: *const Mgr,
    aead: u32,
    out: *mut c_uint,
) -> c_int {
    let error = if aead == CIPHER_CCM { 0 } else { ERR_CIPH_MODE };
    // SAFETY: the caller's promise.
    unsafe { burst_size(mgr, out, error) }
}

/// # Safety
///
/// As for [`imb_cipher_burst_get_size`].
unsafe fn burst_size(mgr: *const Mgr, out: *mut c_uint, error: c_int) -> c_int {
    if mgr.is_null() {
        return ERR_NULL_MBMGR;
    }
    if out.is_null() || !out.is_aligned() {
        return ERR_NULL_BURST;
    }
    let size = if error == 0 { super::state::CHUNK as c_uint } else { 0 };
    // SAFETY: the caller's promise.
    unsafe { out.write(size) };
    error
}

/// Refused: SM4 is not in the set. It is there so that programs which name it can be linked.
#[unsafe(no_mangle)]
pub extern "C" fn imb_sm4_gcm_pre(_: *mut Mgr, _: *const c_void, _: *mut GcmKey) {
    set_global_errno(ERR_CIPH_MODE);
}

refused! { des_cfb_one = ERR_CIPH_MODE }

/// Remembers a function to be told of self-tests. There are none, so it is not called.
///
/// # Safety
///
/// `mgr` is null or points to a manager.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imb_self_test_set_cb(
    mgr: *mut Mgr,
    function: Option<SelfTestFn>,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let Ok(mgr) = (unsafe { raw::object(mgr, 0) }) else { return ERR_NULL_MBMGR };
    (mgr.later.self_test, mgr.later.self_test_arg) = (function, argument);
    0
}

/// Tells what [`imb_self_test_set_cb`] was given.
///
/// # Safety
///
/// `mgr` is null or points to a manager; the others are null, or point to room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imb_self_test_get_cb(
    mgr: *mut Mgr,
    function: *mut Option<SelfTestFn>,
    argument: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let Ok(mgr) = (unsafe { raw::object(mgr, 0) }) else { return ERR_NULL_MBMGR };
    // SAFETY: as above.
    let Ok(function) = (unsafe { raw::object(function, 0) }) else { return EINVAL };
    // SAFETY: as above.
    let Ok(argument) = (unsafe { raw::object(argument, 0) }) else { return EINVAL };
    (*function, *argument) = (mgr.later.self_test, mgr.later.self_test_arg);
    0
}

/// Names the kernels of a manager, and says what they need of the processor; the second may be left out.
///
/// # Safety
///
/// `mgr` is null or points to a manager; the others are null, or point to room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imb_get_arch_type_string(
    mgr: *mut Mgr,
    name: *mut *const c_char,
    needs: *mut *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    let Ok(mgr) = (unsafe { raw::object(mgr, 0) }) else { return ERR_NULL_MBMGR };
    // SAFETY: as above.
    let Ok(name) = (unsafe { raw::object(name, 0) }) else { return EINVAL };
    let (text, what) = match (mgr.used_arch, mgr.used_arch_type) {
        (ARCH_SSE, 1) => (c"SSE Type 1", Some(c"AES, PCLMULQDQ")),
        (ARCH_AVX2, 1) => (c"AVX2 Type 1", Some(c"AES, PCLMULQDQ, AVX2")),
        (ARCH_AVX2, 2) => (c"AVX2 Type 2", Some(c"VAES, VPCLMULQDQ, AVX2")),
        (ARCH_AVX512, 1) => (c"AVX512 Type 1", Some(c"AES, PCLMULQDQ, AVX-512")),
        (ARCH_AVX512, 2) => (c"AVX512 Type 2", Some(c"VAES, VPCLMULQDQ, AVX-512")),
        _ => (c"Invalid arch type", None),
    };
    *name = text.as_ptr();
    // SAFETY: as above.
    if let (Some(what), Ok(needs)) = (what, unsafe { raw::object(needs, 0) }) {
        *needs = what.as_ptr();
    }
    0
}
