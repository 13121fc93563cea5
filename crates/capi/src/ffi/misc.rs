//! Versions, tiers, errors, and two things that are easily done wrong.

use std::ffi::{c_char, c_int};

use convoy_crypto::{Cpu, Tier, manager};
use zeroize::Zeroize;

use super::raw;
use crate::types::{
    CONVOY_ERR_AAD, CONVOY_ERR_AAD_LEN, CONVOY_ERR_ARGS, CONVOY_ERR_CHAIN_ORDER,
    CONVOY_ERR_CIPHER_DIRECTION, CONVOY_ERR_CIPHER_KEY, CONVOY_ERR_CIPHER_LEN,
    CONVOY_ERR_CIPHER_MODE, CONVOY_ERR_DST, CONVOY_ERR_ENVIRONMENT, CONVOY_ERR_FORGED,
    CONVOY_ERR_HASH_ALG, CONVOY_ERR_HASH_KEY, CONVOY_ERR_HASH_LEN, CONVOY_ERR_INTERNAL,
    CONVOY_ERR_IV, CONVOY_ERR_IV_LEN, CONVOY_ERR_LENGTH, CONVOY_ERR_MEMORY, CONVOY_ERR_NULL,
    CONVOY_ERR_OVERLAP, CONVOY_ERR_SRC, CONVOY_ERR_STATE, CONVOY_ERR_TAG, CONVOY_ERR_TAG_LEN,
    CONVOY_ERR_TIER, CONVOY_ERR_TRAILER, CONVOY_ERR_TRAILER_LEN, CONVOY_OK, CONVOY_VERSION,
};

/// The number of a tier.
pub(super) fn number_of(tier: Tier) -> c_int {
    // There are seven.
    tier as c_int + 1
}

/// The version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn convoy_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The version of the library as CONVOY_VERSION is that of the header: a program that was built for another finds out.
#[unsafe(no_mangle)]
pub extern "C" fn convoy_version_number() -> u32 {
    CONVOY_VERSION
}

/// What an error of a call or a job means, in English; never null.
#[unsafe(no_mangle)]
pub extern "C" fn convoy_strerror(error: c_int) -> *const c_char {
    let text = match error {
        CONVOY_OK => c"success",
        CONVOY_ERR_NULL => c"a pointer is null that must not be",
        CONVOY_ERR_LENGTH => c"a length or an offset is out of range",
        CONVOY_ERR_ARGS => {
            c"a number names nothing, a pointer is not aligned, or a key is not set up"
        }
        CONVOY_ERR_OVERLAP => c"buffers overlap that must not",
        CONVOY_ERR_TIER => c"this machine lacks the tier, or it is denied",
        CONVOY_ERR_ENVIRONMENT => c"CONVOY_DENY_CPU cannot be understood",
        CONVOY_ERR_FORGED => c"the tag does not belong to the message",
        CONVOY_ERR_STATE => c"the stream is asked for what does not come now",
        CONVOY_ERR_INTERNAL => c"a defect of the library",
        CONVOY_ERR_MEMORY => c"out of memory",
        CONVOY_ERR_CIPHER_MODE => c"the job's cipher_mode names no cipher",
        CONVOY_ERR_CIPHER_DIRECTION => c"the job's cipher_direction is neither encrypt nor decrypt",
        CONVOY_ERR_HASH_ALG => c"the job's hash_alg names no MAC, or one beside an AEAD",
        CONVOY_ERR_CHAIN_ORDER => c"the job's chain_order names no order",
        CONVOY_ERR_CIPHER_KEY => {
            c"the job's cipher_key is null, misaligned, not set up, or of another kind"
        }
        CONVOY_ERR_HASH_KEY => {
            c"the job's hash_key is null, misaligned, not set up, or of another MAC"
        }
        CONVOY_ERR_IV_LEN => c"the job's iv_len is not one that its cipher takes",
        CONVOY_ERR_CIPHER_LEN => c"the job's cipher_len is no whole blocks, or too large",
        CONVOY_ERR_HASH_LEN => c"the job's hash_len is too large",
        CONVOY_ERR_AAD_LEN => c"the job's aad_len is not 0, and its cipher is no AEAD",
        CONVOY_ERR_TRAILER_LEN => c"the job's trailer_len is above 16, or not 0 without a MAC",
        CONVOY_ERR_TAG_LEN => c"the job's tag_len is not one that its algorithm has",
        CONVOY_ERR_SRC => c"the job's src is null",
        CONVOY_ERR_DST => c"the job's dst is null",
        CONVOY_ERR_IV => c"the job's iv is null",
        CONVOY_ERR_AAD => c"the job's aad is null",
        CONVOY_ERR_TRAILER => c"the job's trailer is null",
        CONVOY_ERR_TAG => c"the job's tag is null",
        _ => c"no error of this library",
    };
    text.as_ptr()
}

/// The best tier of this machine (CONVOY_TIER_*), or an error.
#[unsafe(no_mangle)]
pub extern "C" fn convoy_tier_best() -> c_int {
    Cpu::detect().map_or(CONVOY_ERR_ENVIRONMENT, |cpu| number_of(cpu.best()))
}

/// Whether managers and keys can be made for a tier: CONVOY_OK, or an error.
#[unsafe(no_mangle)]
pub extern "C" fn convoy_tier_available(tier: c_int) -> c_int {
    raw::guard(|| raw::tier(&raw::cpu()?, tier).map(|_| ()))
}

/// The name of a tier, such as "avx512"; "?" for a number that names none.
#[unsafe(no_mangle)]
pub extern "C" fn convoy_tier_name(tier: c_int) -> *const c_char {
    const NAMES: [&std::ffi::CStr; Tier::COUNT] =
        [c"portable", c"aesni", c"avx", c"avx2", c"avx512", c"vaes256", c"vaes512"];
    let place = usize::try_from(tier.wrapping_sub(1)).ok();
    place.and_then(|place| NAMES.get(place)).unwrap_or(&c"?").as_ptr()
}

/// Whether two tags of `len` bytes are equal: 1 if so, 0 if not or if an argument is wrong. The time
/// taken depends on the length alone.
///
/// # Safety
///
/// Both pointers are null or point to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_tags_match(a: *const u8, b: *const u8, len: usize) -> c_int {
    // SAFETY: the caller's promise.
    let (a, b) = (unsafe { raw::input(a, len) }, unsafe { raw::input(b, len) });
    match (a, b) {
        (Ok(a), Ok(b)) => c_int::from(manager::tags_match(a, b)),
        _ => 0,
    }
}

/// Overwrites memory with zeros in a way that no compiler leaves out: for keys that are not needed
/// any more.
///
/// # Safety
///
/// `memory` is null or points to `len` bytes that nobody else uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_wipe(memory: *mut std::ffi::c_void, len: usize) -> c_int {
    raw::guard(|| {
        // SAFETY: the caller's promise.
        unsafe { raw::output(memory.cast(), len) }?.zeroize();
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[test]
    fn the_header_has_the_version_of_the_library() {
        use crate::types::{CONVOY_VERSION_MAJOR, CONVOY_VERSION_MINOR, CONVOY_VERSION_PATCH};
        let [major, minor, patch] =
            [CONVOY_VERSION_MAJOR, CONVOY_VERSION_MINOR, CONVOY_VERSION_PATCH];
        assert_eq!(format!("{major}.{minor}.{patch}"), env!("CARGO_PKG_VERSION"));
        assert_eq!(convoy_version_number(), major << 16 | minor << 8 | patch);
    }

    #[test]
    fn tiers_have_their_names_and_numbers() {
        for tier in Tier::ALL {
            // SAFETY: names are static strings with a zero at the end.
            let name = unsafe { CStr::from_ptr(convoy_tier_name(number_of(tier))) };
            assert_eq!(name.to_str(), Ok(tier.name()));
        }
        for none in [-1, 0, 8, c_int::MIN, c_int::MAX] {
            // SAFETY: as above.
            let name = unsafe { CStr::from_ptr(convoy_tier_name(none)) };
            assert_eq!(name.to_str(), Ok("?"));
        }
    }
}
