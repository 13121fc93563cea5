//! AEADs over a message that comes in parts.

use std::ffi::c_int;

use convoy_crypto::{Shared, try_box};

use super::{
    parts::Parts,
    raw::{self, Error, Region, aead_key, guard, input, object_mut, output},
};
use crate::types::{AeadKey, CONVOY_DIRECTION_DECRYPT, CONVOY_DIRECTION_ENCRYPT};

type SharedKey = Shared<convoy_crypto::AeadKey>;

/// One message on its way through an AEAD, in parts. One thread at a time may use it.
#[derive(Debug)]
pub struct Stream {
    /// None once it was finished.
    parts: Option<Parts<SharedKey>>,
}

/// Begins a message of AES-GCM or ChaCha20-Poly1305, as the key says, that comes in parts
/// (CONVOY_DIRECTION_*). The IV has 12 bytes and must never be used twice with one key; AES-GCM takes other lengths
/// but 0 as well, and hashes those first (NIST SP 800-38D section 7.1), which costs time and some of the certainty that
/// no two give the same counter. Whoever began the message frees it with convoy_aead_stream_free; the key may be
/// freed before.
///
/// A message that comes in one part after all costs little more than convoy_aead_encrypt; many packets at
/// once are faster through jobs.
///
/// # Safety
///
/// `key` is a key; `iv` points to `iv_len` bytes, `aad` to `aad_len`; `out` points to a pointer
/// apart from these, which is set to null if the call fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_aead_init(
    key: *const AeadKey,
    direction: u32,
    iv: *const u8,
    iv_len: usize,
    aad: *const u8,
    aad_len: usize,
    out: *mut *mut Stream,
) -> c_int {
    guard(|| {
        let inputs = [(key.cast(), size_of::<AeadKey>()), (iv, iv_len), (aad, aad_len)];
        // SAFETY: the caller's promise.
        let out = unsafe { raw::place(out, &inputs.map(|(from, len)| Region::near(from, len))) }?;
        // SAFETY: the caller's promise.
        let key = unsafe { aead_key(key) }?;
        // SAFETY: the caller's promise.
        let iv = unsafe { input(iv, iv_len) }?;
        // SAFETY: the caller's promise.
        let aad = unsafe { input(aad, aad_len) }?;
        let parts = match direction {
            CONVOY_DIRECTION_ENCRYPT => Parts::new(key.key.clone(), true, iv)?,
            CONVOY_DIRECTION_DECRYPT => Parts::new(key.key.clone(), false, iv)?,
            _ => return Err(Error::Args),
        };
        // In its place before there is anything secret in it, which a move would leave behind.
        let mut stream = try_box(Stream { parts: Some(parts) })?;
        stream.parts.as_mut().map_or(Ok(()), |parts| parts.aad(aad))?;
        *out = Box::into_raw(stream);
        Ok(())
    })
}

/// Encrypts or decrypts the next part, of any length. Decrypted text must not be used until
/// convoy_aead_finalize has returned CONVOY_OK. After a failure the message can still be gone on with,
/// but for CONVOY_ERR_STATE: it was finished.
///
/// # Safety
///
/// `stream` came from convoy_aead_init and was not freed; `input` and `output` point to `len` bytes.
/// `output` is `input`, or does not overlap it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_aead_update(
    stream: *mut Stream,
    input: *const u8,
    output: *mut u8,
    len: usize,
) -> c_int {
    guard(|| {
        let (from, to) = (Region::new(input, len)?, Region::new(output, len)?);
        Region::of(stream)?.apart(&[from, to])?;
        // SAFETY: the caller's promise.
        let parts = unsafe { object_mut(stream) }?.parts.as_mut().ok_or(Error::State)?;
        // Before anything is copied to where it could be taken for ciphertext.
        parts.prepare(len)?;
        let copied = if input == output.cast_const() {
            // SAFETY: the caller's promise.
            unsafe { raw::output(output, len) }?
        } else {
            to.apart(&[from])?;
            // SAFETY: the caller's promise; the two do not overlap.
            let (src, dst) = (unsafe { raw::input(input, len) }?, output);
            // SAFETY: as above.
            let dst = unsafe { raw::output(dst, len) }?;
            dst.copy_from_slice(src);
            dst
        };
        Ok(parts.update(copied)?)
    })
}

/// Ends the message. When encrypting, its tag is written (4 to 16 bytes); when decrypting, the tag is
/// what came with the message, and CONVOY_ERR_FORGED is returned if it does not belong to it: all that
/// was decrypted must then be thrown away. The stream is finished in both cases.
///
/// # Safety
///
/// `stream` came from convoy_aead_init and was not freed; `tag` points to `tag_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_aead_finalize(
    stream: *mut Stream,
    tag: *mut u8,
    tag_len: usize,
) -> c_int {
    guard(|| {
        if !(4..=16).contains(&tag_len) {
            return Err(Error::Length);
        }
        Region::new(tag, tag_len)?.apart(&[Region::of(stream)?])?;
        // SAFETY: the caller's promise.
        let stream = unsafe { object_mut(stream) }?;
        let parts = stream.parts.as_mut().ok_or(Error::State)?;
        let outcome = if parts.is_seal() {
            // SAFETY: the caller's promise.
            let out = unsafe { output(tag, tag_len) }?;
            out.copy_from_slice(&parts.tag()?[..tag_len]);
            Ok(())
        } else {
            // SAFETY: the caller's promise.
            let tag = unsafe { input(tag, tag_len) }?;
            if parts.verify(tag)? { Ok(()) } else { Err(Error::Forged) }
        };
        // Dropped in its place, which wipes it there; taken out, it would leave its bytes behind.
        stream.parts = None;
        outcome
    })
}

/// Wipes and frees a stream; null is nothing to free.
///
/// # Safety
///
/// `stream` is null, or came from convoy_aead_init and was not freed. Nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_aead_stream_free(stream: *mut Stream) {
    if !stream.is_null() && stream.is_aligned() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(stream) });
    }
}
