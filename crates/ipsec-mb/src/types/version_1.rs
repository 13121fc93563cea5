//! Differences of version 1.3 from version 2.

use std::ffi::{CStr, c_int};

use super::{ERR_JOB_NULL_SGL_CTX, numbers::errors};

/// The version as text.
pub const VERSION_TEXT: &CStr = c"1.3.0";
/// `IMB_VERSION_NUM`: a byte for each of its numbers.
pub const VERSION_NUM: u32 = 0x1_0300;

/// `IMB_ARCH_SSE`.
pub const ARCH_SSE: u32 = 2;
/// `IMB_ARCH_AVX`.
pub const ARCH_AVX: u32 = 3;
/// `IMB_ARCH_AVX2`.
pub const ARCH_AVX2: u32 = 4;
/// `IMB_ARCH_AVX512`.
pub const ARCH_AVX512: u32 = 5;

/// `IMB_FLAG_AESNI_OFF`.
pub const FLAG_AESNI_OFF: u64 = 1 << 1;
/// `IMB_FLAG_GFNI_OFF`.
pub const FLAG_GFNI_OFF: u64 = 1 << 2;

/// `IMB_CIPHER_NUM`.
pub const CIPHER_NUM: u32 = 24;
/// `IMB_AUTH_NUM`.
pub const AUTH_NUM: u32 = 47;

/// Bytes of `struct gcm_key_data`; 16 more in programs that define `LINUX`, in which it has an alignment of 64.
pub const GCM_KEY_BYTES: usize = 1008;

/// The number in front of `IMB_ERR_JOB_NULL_HMAC_OPAD`.
pub(super) const LATE_ERRORS: c_int = ERR_NO_AESNI_EMU;

errors! { own_error_text, else |_| None;
    ERR_NO_AESNI_EMU = 2038, "there is no emulation of AES instructions";
}

/// Stands for `IMB_ERR_JOB_SGL_STATE`, which is of version 2.
pub const ERR_JOB_SGL_STATE: c_int = ERR_JOB_NULL_SGL_CTX;

/// Fields that version 2 has at the end of a job: none here.
#[derive(Clone, Copy, Debug)]
pub struct Session;

impl Session {
    /// None.
    pub const NONE: Self = Self;

    /// Bursts want no session.
    pub(crate) fn check(&self, _: [u32; 2]) -> Result<(), c_int> {
        Ok(())
    }
}

/// Fields that version 2 has behind [`Functions`](super::Functions): none here.
#[derive(Clone, Copy, Debug)]
pub struct Later;

/// Pointers to out-of-order managers.
pub const OOO: usize = 37;
