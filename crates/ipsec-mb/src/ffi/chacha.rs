//! ChaCha20-Poly1305 in parts, called directly.

use std::ffi::{c_int, c_void};

use convoy_crypto::{AeadKey, ChaChaSecret, manager::ChaChaStream};

use super::{
    gcm::{Part, number_of},
    raw::{copied, input, lender, noting, output, text, with_object},
};
use crate::types::{
    ChaChaContext, ERR_AUTH_TAG_LEN, ERR_CIPH_LEN, ERR_NULL_AAD, ERR_NULL_AUTH, ERR_NULL_CTX,
    ERR_NULL_DST, ERR_NULL_IV, ERR_NULL_KEY, ERR_NULL_SRC,
};

/// Does something with a key of 32 bytes.
///
/// # Safety
///
/// `key` is null or points to 32 bytes.
unsafe fn with_key(
    key: *const c_void,
    work: impl FnOnce(&AeadKey) -> Result<(), c_int>,
) -> Result<(), c_int> {
    let mut secret = ChaChaSecret::EMPTY;
    // SAFETY: the caller's promise. The copy in between lies on the stack, as the caller's own may.
    secret.set(&unsafe { copied(key.cast(), ERR_NULL_KEY) }?);
    work(&lender()?.chacha20_poly1305(&secret))
}

/// Begins a message: its nonce and additional data.
///
/// # Safety
///
/// Each pointer is null, or points to as much as its length or type says.
pub(super) unsafe extern "C" fn init(
    key: *const c_void,
    ctx: *mut ChaChaContext,
    iv: *const c_void,
    aad: *const c_void,
    aad_len: u64,
) {
    noting(|| {
        if key.is_null() {
            return Err(ERR_NULL_KEY);
        }
        if ctx.is_null() {
            return Err(ERR_NULL_CTX);
        }
        // SAFETY: the caller's promise.
        let nonce = unsafe { copied(iv.cast(), ERR_NULL_IV) }?;
        // SAFETY: as above.
        let aad = unsafe { input(aad.cast(), aad_len, ERR_NULL_AAD) }?;
        let begin = |ctx: &mut ChaChaContext| {
            let work = |key: &AeadKey| {
                let mut stream = ChaChaStream::seal(key, &nonce).map_err(number_of)?;
                stream.aad(aad).map_err(number_of)?;
                stream.save(&mut ctx.saved).map_err(number_of)
            };
            // SAFETY: as above.
            unsafe { with_key(key, work) }
        };
        // SAFETY: as above.
        unsafe { with_object(ctx, ERR_NULL_CTX, begin) }
    });
}

/// # Safety
///
/// Each pointer is null, or points to as much as its length or type says.
unsafe fn update(key: *const c_void, ctx: *mut ChaChaContext, part: Part, seal: bool) {
    let Part { dst, src, len } = part;
    noting(|| {
        if key.is_null() {
            return Err(ERR_NULL_KEY);
        }
        if ctx.is_null() {
            return Err(ERR_NULL_CTX);
        }
        if len != 0 && src.is_null() {
            return Err(ERR_NULL_SRC);
        }
        if len != 0 && dst.is_null() {
            return Err(ERR_NULL_DST);
        }
        if len > ChaChaStream::MAX_DATA {
            return Err(ERR_CIPH_LEN);
        }
        let go_on = |ctx: &mut ChaChaContext| {
            let work = |key: &AeadKey| {
                let mut stream = ChaChaStream::resume(key, seal, &ctx.saved).map_err(number_of)?;
                stream.prepare(len as usize).map_err(number_of)?;
                // SAFETY: the caller's promise.
                stream.update(unsafe { text(src, dst, len as usize) }).map_err(number_of)?;
                stream.save(&mut ctx.saved).map_err(number_of)
            };
            // SAFETY: as above.
            unsafe { with_key(key, work) }
        };
        // SAFETY: as above.
        unsafe { with_object(ctx, ERR_NULL_CTX, go_on) }
    });
}

/// Encrypts the next part of a message.
///
/// # Safety
///
/// Each pointer is null, or points to as much as its length or type says.
pub(super) unsafe extern "C" fn enc_update(
    key: *const c_void,
    ctx: *mut ChaChaContext,
    dst: *mut c_void,
    src: *const c_void,
    len: u64,
) {
    // SAFETY: the caller's promise.
    unsafe { update(key, ctx, Part { dst: dst.cast(), src: src.cast(), len }, true) };
}

/// Decrypts the next part of a message.
///
/// # Safety
///
/// As for [`enc_update`].
pub(super) unsafe extern "C" fn dec_update(
    key: *const c_void,
    ctx: *mut ChaChaContext,
    dst: *mut c_void,
    src: *const c_void,
    len: u64,
) {
    // SAFETY: the caller's promise.
    unsafe { update(key, ctx, Part { dst: dst.cast(), src: src.cast(), len }, false) };
}

/// Ends a message: its tag. The context is wiped.
///
/// # Safety
///
/// As for [`enc_update`].
pub(super) unsafe extern "C" fn finalize(ctx: *mut ChaChaContext, tag: *mut c_void, tag_len: u64) {
    noting(|| {
        if ctx.is_null() {
            return Err(ERR_NULL_CTX);
        }
        if tag.is_null() {
            return Err(ERR_NULL_AUTH);
        }
        if !(1..=16).contains(&tag_len) {
            return Err(ERR_AUTH_TAG_LEN);
        }
        let end = |ctx: &mut ChaChaContext| {
            let made = ctx.saved.tag().map_err(number_of)?;
            ctx.saved.wipe();
            Ok(made)
        };
        // SAFETY: the caller's promise.
        let made = unsafe { with_object(ctx, ERR_NULL_CTX, end) }?;
        // SAFETY: as above.
        let place = unsafe { output(tag.cast(), tag_len, ERR_NULL_AUTH) }?;
        place.iter_mut().zip(made).for_each(|(to, byte)| *to = byte);
        Ok(())
    });
}
