//! AES-GCM over a message that comes in parts.

use std::{ffi::c_int, sync::Arc};

use convoy_crypto::manager::{Direction, GcmStream, tags_match};
use zeroize::Zeroize;

use super::raw::{self, Error, Region, guard, input, object, object_mut, output};
use crate::types::{AeadKey, CONVOY_DIRECTION_DECRYPT, CONVOY_DIRECTION_ENCRYPT};

/// One message on its way through AES-GCM, in parts. One thread at a time may use it.
#[derive(Debug)]
pub struct Stream {
    /// None once it was finished.
    stream: Option<GcmStream>,
    direction: Direction,
}

/// Begins a message of AES-GCM that comes in parts (CONVOY_DIRECTION_*). An IV of 12 bytes must never
/// be used twice with one key. Whoever began it frees it with convoy_gcm_stream_free; the key may be
/// freed before.
///
/// For messages that do not fit into memory: for packets, jobs and convoy_aead_encrypt are several
/// times faster.
///
/// # Safety
///
/// `key` is a key of AES-GCM; `iv` points to 12 bytes, `aad` to `aad_len`; `out` points to a pointer
/// apart from these, which is set to null if the call fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_gcm_init(
    key: *const AeadKey,
    direction: u32,
    iv: *const u8,
    aad: *const u8,
    aad_len: usize,
    out: *mut *mut Stream,
) -> c_int {
    guard(|| {
        let inputs = [(key.cast(), size_of::<AeadKey>()), (iv, 12), (aad, aad_len)];
        // SAFETY: the caller's promise.
        let out = unsafe { raw::place(out, &inputs.map(|(from, len)| Region::near(from, len))) }?;
        // SAFETY: the caller's promise.
        let key = unsafe { object(key) }?;
        let key = key.stream.as_ref().ok_or(Error::Args)?;
        // SAFETY: the caller's promise.
        let iv = *unsafe { input(iv, 12) }?.first_chunk().ok_or(Error::Length)?;
        // SAFETY: the caller's promise.
        let aad = unsafe { input(aad, aad_len) }?;
        let direction = match direction {
            CONVOY_DIRECTION_ENCRYPT => Direction::Encrypt,
            CONVOY_DIRECTION_DECRYPT => Direction::Decrypt,
            _ => return Err(Error::Args),
        };
        let stream = Some(GcmStream::new(Arc::clone(key), direction, iv, aad));
        *out = Box::into_raw(Box::new(Stream { stream, direction }));
        Ok(())
    })
}

/// Encrypts or decrypts the next part, of any length. Decrypted text must not be used until
/// convoy_gcm_finalize has returned CONVOY_OK. After a failure the message can still be gone on with,
/// but for CONVOY_ERR_STATE: it was finished.
///
/// # Safety
///
/// `stream` came from convoy_gcm_init and was not freed; `input` and `output` point to `len` bytes.
/// `output` is `input`, or does not overlap it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_gcm_update(
    stream: *mut Stream,
    input: *const u8,
    output: *mut u8,
    len: usize,
) -> c_int {
    guard(|| {
        let (from, to) = (Region::new(input, len)?, Region::new(output, len)?);
        Region::of(stream)?.apart(&[from, to])?;
        // SAFETY: the caller's promise.
        let stream = unsafe { object_mut(stream) }?.stream.as_mut().ok_or(Error::State)?;
        // Before anything is copied to where it could be taken for ciphertext.
        if !stream.fits(len) {
            return Err(Error::Length);
        }
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
        if stream.update(copied) { Ok(()) } else { Err(Error::Length) }
    })
}

/// Ends the message. When encrypting, its tag is written (4 to 16 bytes); when decrypting, the tag is
/// what came with the message, and CONVOY_ERR_FORGED is returned if it does not belong to it: all that
/// was decrypted must then be thrown away. The stream is finished in both cases.
///
/// # Safety
///
/// `stream` came from convoy_gcm_init and was not freed; `tag` points to `tag_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_gcm_finalize(
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
        let mut computed = stream.stream.as_mut().ok_or(Error::State)?.finish();
        // Dropped in its place, which wipes it there; taken out, it would leave its bytes behind.
        stream.stream = None;
        let front = &mut computed[..tag_len];
        if stream.direction == Direction::Encrypt {
            // SAFETY: the caller's promise.
            unsafe { output(tag, tag_len) }?.copy_from_slice(front);
            return Ok(());
        }
        // SAFETY: the caller's promise.
        let authentic = tags_match(front, unsafe { input(tag, tag_len) }?);
        // What the tag of a forged message should have been is nobody's business.
        computed.zeroize();
        if authentic { Ok(()) } else { Err(Error::Forged) }
    })
}

/// Wipes and frees a stream; null is nothing to free.
///
/// # Safety
///
/// `stream` is null, or came from convoy_gcm_init and was not freed. Nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_gcm_stream_free(stream: *mut Stream) {
    if !stream.is_null() && stream.is_aligned() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(stream) });
    }
}
