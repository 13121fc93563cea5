//! Types of the functions that the manager points to.

use std::ffi::{c_int, c_void};

use crate::types::{ChaChaContext, GcmContext, GcmKey, Job, Mgr};

/// `get_next_job_t`, `submit_job_t`, `get_completed_job_t` and `flush_job_t`.
pub type JobFn = unsafe extern "C" fn(*mut Mgr) -> *mut Job;
/// `queue_size_t`.
pub type QueueSizeFn = unsafe extern "C" fn(*mut Mgr) -> u32;
/// `burst_fn_t`.
pub type BurstFn = unsafe extern "C" fn(*mut Mgr, u32, *mut *mut Job) -> u32;
/// `submit_cipher_burst_t`.
pub type CipherBurstFn = unsafe extern "C" fn(*mut Mgr, *mut Job, u32, u32, u32, u32) -> u32;
/// `submit_hash_burst_t`.
pub type HashBurstFn = unsafe extern "C" fn(*mut Mgr, *mut Job, u32, u32) -> u32;
/// `keyexp_t` and `cmac_subkey_gen_t`.
pub type KeyFn = unsafe extern "C" fn(*const c_void, *mut c_void, *mut c_void);
/// `xcbc_keyexp_t`.
pub type XcbcKeyFn = unsafe extern "C" fn(*const c_void, *mut c_void, *mut c_void, *mut c_void);
/// `hash_one_block_t`.
pub type OneBlockFn = unsafe extern "C" fn(*const c_void, *mut c_void);
/// `hash_fn_t`.
pub type HashFn = unsafe extern "C" fn(*const c_void, u64, *mut c_void);
/// `aes_cfb_t`.
pub type CfbFn =
    unsafe extern "C" fn(*mut c_void, *const c_void, *const c_void, *const c_void, u64);
/// `ghash_t`.
pub type GhashFn = unsafe extern "C" fn(*const GcmKey, *const c_void, u64, *mut c_void, u64);
/// `aes_gcm_enc_dec_t`.
pub type GcmFn = unsafe extern "C" fn(
    *const GcmKey,
    *mut GcmContext,
    *mut u8,
    *const u8,
    u64,
    *const u8,
    *const u8,
    u64,
    *mut u8,
    u64,
);
/// `aes_gcm_init_t`.
pub type GcmInitFn =
    unsafe extern "C" fn(*const GcmKey, *mut GcmContext, *const u8, *const u8, u64);
/// `aes_gcm_init_var_iv_t`.
pub type GcmInitVarIvFn =
    unsafe extern "C" fn(*const GcmKey, *mut GcmContext, *const u8, u64, *const u8, u64);
/// `aes_gcm_enc_dec_update_t`.
pub type GcmUpdateFn =
    unsafe extern "C" fn(*const GcmKey, *mut GcmContext, *mut u8, *const u8, u64);
/// `aes_gcm_enc_dec_finalize_t` and `aes_gmac_finalize_t`.
pub type GcmFinalizeFn = unsafe extern "C" fn(*const GcmKey, *mut GcmContext, *mut u8, u64);
/// `aes_gcm_precomp_t`.
pub type GcmPrecompFn = unsafe extern "C" fn(*mut GcmKey);
/// `aes_gcm_pre_t` and `ghash_pre_t`.
pub type GcmPreFn = unsafe extern "C" fn(*const c_void, *mut GcmKey);
/// `aes_gmac_init_t` and `aes_gmac_update_t`.
pub type GmacFn = unsafe extern "C" fn(*const GcmKey, *mut GcmContext, *const u8, u64);
/// `chacha_poly_init_t`.
pub type ChaChaInitFn =
    unsafe extern "C" fn(*const c_void, *mut ChaChaContext, *const c_void, *const c_void, u64);
/// `chacha_poly_enc_dec_update_t`.
pub type ChaChaUpdateFn =
    unsafe extern "C" fn(*const c_void, *mut ChaChaContext, *mut c_void, *const c_void, u64);
/// `chacha_poly_finalize_t`.
pub type ChaChaFinalizeFn = unsafe extern "C" fn(*mut ChaChaContext, *mut c_void, u64);
/// `set_suite_id`.
pub type SetSuiteFn = unsafe extern "C" fn(*mut Mgr, *mut Job);
/// Stands for a function outside the set, whatever its type: it notes an error and does nothing. In the calling
/// convention of x86-64 the caller clears arguments away, so it need not know them; what it returns is zero, or -1 of one that sets a key up.
pub type RefusedFn = extern "C" fn() -> usize;
/// A cipher or hash of the caller's; what it returns is zero if it worked.
pub type CustomFn = unsafe extern "C" fn(*mut Job) -> c_int;
/// `imb_self_test_cb_t`; none is called.
pub type SelfTestFn = unsafe extern "C" fn(*mut c_void, *const c_void) -> c_int;
