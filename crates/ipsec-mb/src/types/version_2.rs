//! Differences of version 2.0 from version 1.3.

use std::ffi::{CStr, c_int, c_void};

use super::{
    CfbFn, CipherBurstFn, RefusedFn, SelfTestFn, SetSuiteFn,
    numbers::{ERR_NULL_CTX, errors},
};

/// The version as text.
pub const VERSION_TEXT: &CStr = c"2.0.2";
/// `IMB_VERSION_NUM`: a byte for each of its numbers.
pub const VERSION_NUM: u32 = 0x2_0002;

/// `IMB_ARCH_SSE`.
pub const ARCH_SSE: u32 = 1;
/// Registers of 128 bits with AVX are no architecture of their own.
pub const ARCH_AVX: u32 = ARCH_SSE;
/// `IMB_ARCH_AVX2`.
pub const ARCH_AVX2: u32 = 2;
/// `IMB_ARCH_AVX512`.
pub const ARCH_AVX512: u32 = 3;

/// `IMB_FLAG_GFNI_OFF`.
pub const FLAG_GFNI_OFF: u64 = 1 << 1;

/// `IMB_CIPHER_NUM`.
pub const CIPHER_NUM: u32 = 29;
/// `IMB_AUTH_NUM`.
pub const AUTH_NUM: u32 = 50;

/// Bytes of `struct gcm_key_data`, which has an alignment of 64 only in programs that define `LINUX`.
pub const GCM_KEY_BYTES: usize = 1264;

/// The number in front of `IMB_ERR_JOB_NULL_HMAC_OPAD`.
pub(super) const LATE_ERRORS: c_int = ERR_NULL_CTX;

errors! { own_error_text, else |_| None;
    ERR_BURST_SUITE_ID = 2052, "the burst's jobs were not set up by imb_set_session";
    ERR_JOB_SGL_STATE = 2053, "the job's state of a message in parts is none";
}

/// Fields that `imb_set_session` sets at the end of a job.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Session {
    /// Numbers that it made of modes, direction, order and key size.
    pub suite_id: [u32; 2],
    /// The number that it gave.
    pub session_id: u32,
}

impl Session {
    /// None was set.
    pub const NONE: Self = Self { suite_id: [0; 2], session_id: 0 };

    /// Checks that it was set for what a burst is to do.
    pub(crate) fn check(&self, suite_id: [u32; 2]) -> Result<(), c_int> {
        if self.suite_id == suite_id { Ok(()) } else { Err(ERR_BURST_SUITE_ID) }
    }
}

/// Fields of `IMB_MGR` behind [`Functions`](super::Functions).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Later {
    /// `aes256_cfb_one`.
    pub cfb_one_256: Option<CfbFn>,
    /// `aes_ecb_128_quic` and `aes_ecb_256_quic`.
    pub ecb_quic: [Option<RefusedFn>; 2],
    /// `set_suite_id`.
    pub set_suite_id: Option<SetSuiteFn>,
    /// `chacha20_poly1305_quic` and `chacha20_hp_quic`.
    pub chacha_quic: [Option<RefusedFn>; 2],
    /// `sm4_keyexp`.
    pub sm4_keyexp: Option<RefusedFn>,
    /// Called by nobody.
    pub self_test: Option<SelfTestFn>,
    /// Its argument.
    pub self_test_arg: *mut c_void,
    /// `submit_aead_burst`.
    pub submit_aead_burst: Option<CipherBurstFn>,
    /// `submit_aead_burst_nocheck`.
    pub submit_aead_burst_nocheck: Option<CipherBurstFn>,
}

/// Pointers to out-of-order managers.
pub const OOO: usize = 42;
