//! Versions, errors, features.

use std::{
    arch::is_x86_feature_detected,
    ffi::{CStr, c_char, c_int, c_uint, c_void},
};

use super::raw::{global_errno, set_global_errno};
use crate::types::*;

/// The version whose interface this is, as text.
#[unsafe(no_mangle)]
pub extern "C" fn imb_get_version_str() -> *const c_char {
    VERSION_TEXT.as_ptr()
}

/// The version whose interface this is, a byte for each of its numbers.
#[unsafe(no_mangle)]
pub extern "C" fn imb_get_version() -> c_uint {
    VERSION_NUM
}

/// Last error: of this manager, or else of the library.
///
/// # Safety
///
/// `mgr` is null or points to a manager.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imb_get_errno(mgr: *mut Mgr) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { super::raw::object(mgr, 0) } {
        Ok(mgr) if mgr.errno != 0 => mgr.errno,
        _ => global_errno(),
    }
}

/// Text of an error number. Numbers of the system are not told apart.
#[unsafe(no_mangle)]
pub extern "C" fn imb_get_strerror(number: c_int) -> *const c_char {
    let text: &CStr = match number {
        0 => c"no error",
        _ => error_text(number).unwrap_or(c"unknown error number"),
    };
    text.as_ptr()
}

/// Features of the processor that this library uses or promises (`IMB_FEATURE_*`).
#[unsafe(no_mangle)]
pub extern "C" fn imb_get_feature_flags() -> u64 {
    macro_rules! features {
        ($($name:tt $flag:expr),*) => {
            0 $(| if is_x86_feature_detected!($name) { $flag } else { 0 })*
        };
    }
    let found: u64 = features! {
        "sha" FEATURE_SHANI, "aes" FEATURE_AESNI, "pclmulqdq" FEATURE_PCLMULQDQ,
        "sse4.2" FEATURE_SSE4_2, "avx" FEATURE_AVX | FEATURE_XSAVE | FEATURE_OSXSAVE,
        "avx2" FEATURE_AVX2, "avx512f" FEATURE_AVX512F, "avx512dq" FEATURE_AVX512DQ,
        "avx512cd" FEATURE_AVX512CD, "avx512bw" FEATURE_AVX512BW, "avx512vl" FEATURE_AVX512VL,
        "vaes" FEATURE_VAES, "vpclmulqdq" FEATURE_VPCLMULQDQ, "gfni" FEATURE_GFNI,
        "avx512ifma" FEATURE_AVX512_IFMA, "bmi2" FEATURE_BMI2
    };
    // Every processor of 64 bits has conditional moves.
    found | FEATURE_CMOV | FEATURE_SAFE_DATA | FEATURE_SAFE_PARAM
}

/// Fills memory with zeros, also where nobody reads it any more.
///
/// # Safety
///
/// `memory` is null, or points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imb_clear_mem(memory: *mut c_void, size: usize) {
    if memory.is_null() || size == 0 {
        return;
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts_mut(memory.cast::<u8>(), size) };
    zeroize::Zeroize::zeroize(bytes);
}

/// Functions outside the set that programs may call by name. Each notes an error and does nothing; what a program is told otherwise is what
/// they return. In the calling convention of x86-64 they need not know their arguments.
macro_rules! refused {
    ($($name:ident = $error:ident),*) => {$(
        #[doc = concat!("Refused, as what `", stringify!($name), "` serves is not in the set.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> c_int {
            set_global_errno($error);
            -1
        }
    )*};
}
#[cfg(not(abi_1))]
pub(super) use refused;

refused! {
    des_key_schedule = ERR_CIPH_MODE,
    zuc_eea3_iv_gen = ERR_CIPH_MODE, zuc_eia3_iv_gen = ERR_HASH_ALGO,
    kasumi_f8_iv_gen = ERR_CIPH_MODE, kasumi_f9_iv_gen = ERR_HASH_ALGO,
    snow3g_f8_iv_gen = ERR_CIPH_MODE, snow3g_f9_iv_gen = ERR_HASH_ALGO
}

/// Stands for every function of a cipher that is not in the set.
pub(super) extern "C" fn refused_cipher() -> usize {
    set_global_errno(ERR_CIPH_MODE);
    0
}

/// Stands for those that set a key up, which say whether they did.
pub(super) extern "C" fn refused_key() -> usize {
    set_global_errno(ERR_CIPH_MODE);
    // What they return is -1, in fewer bits.
    usize::MAX
}

/// Stands for every function of a hash that is not in the set.
pub(super) extern "C" fn refused_hash() -> usize {
    set_global_errno(ERR_HASH_ALGO);
    0
}
