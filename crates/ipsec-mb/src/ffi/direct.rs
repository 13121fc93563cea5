//! Hashes and single blocks, called directly.

use std::ffi::c_void;

use convoy_crypto::{KeyBits, manager::AesEncryptKey};

use super::{
    apart::cfb,
    raw::{copied, input, noting, output, runner, text},
    views::round_keys,
};
use crate::{
    check::plain_hash,
    types::{
        ERR_CIPH_LEN, ERR_HASH_ALGO, ERR_KEY_LEN, ERR_NULL_AUTH, ERR_NULL_DST, ERR_NULL_EXP_KEY,
        ERR_NULL_IV, ERR_NULL_SRC,
    },
};

/// Hashes a message.
///
/// # Safety
///
/// Each pointer is null, or `src` points to `len` bytes and `out` to room for a digest.
pub(super) unsafe extern "C" fn digest<const HASH: u32>(
    src: *const c_void,
    len: u64,
    out: *mut c_void,
) {
    noting(|| {
        let alg = plain_hash(HASH).ok_or(ERR_HASH_ALGO)?;
        // SAFETY: the caller's promise.
        let message = unsafe { input(src.cast(), len, ERR_NULL_SRC) }?;
        if out.is_null() {
            return Err(ERR_NULL_AUTH);
        }
        let made = runner()?.digest(alg, message);
        // SAFETY: as above. It may lie in the message, which is not read any more.
        let out = unsafe { output(out.cast(), alg.digest_bytes() as u64, ERR_NULL_AUTH) }?;
        out.iter_mut().zip(made).for_each(|(to, byte)| *to = byte);
        Ok(())
    });
}

/// Encrypts or decrypts a block of AES-CFB, or the front of one.
///
/// # Safety
///
/// Each pointer is null, or `dst` and `src` point to `len` bytes, `iv` to 16, and `keys` to round keys for encryption.
pub(super) unsafe extern "C" fn cfb_one<const BITS: usize>(
    dst: *mut c_void,
    src: *const c_void,
    iv: *const c_void,
    keys: *const c_void,
    len: u64,
) {
    noting(|| {
        let bits = KeyBits::from_bits(BITS).ok_or(ERR_KEY_LEN)?;
        let wrong = [
            (iv.is_null(), ERR_NULL_IV),
            (keys.is_null(), ERR_NULL_EXP_KEY),
            (len != 0 && dst.is_null(), ERR_NULL_DST),
            (len != 0 && src.is_null(), ERR_NULL_SRC),
            (len > 16, ERR_CIPH_LEN),
        ];
        if let Some((_, error)) = wrong.iter().find(|(is_there, _)| *is_there) {
            return Err(*error);
        }
        let mut key = AesEncryptKey::empty();
        // SAFETY: the caller's promise.
        let keys = unsafe { round_keys(keys.cast(), bits) }?;
        key.set_round_keys(bits, keys).map_err(|_| ERR_KEY_LEN)?;
        // SAFETY: as above. It may lie in the text, so it is copied before there is a reference to that.
        let iv = unsafe { copied(iv.cast(), ERR_NULL_IV) }?;
        // SAFETY: as above.
        let text = unsafe { text(src.cast(), dst.cast(), len as usize) };
        cfb(*runner()?, &key, true, iv, text)
    });
}
