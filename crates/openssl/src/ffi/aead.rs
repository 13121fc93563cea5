//! Functions that AES-GCM and ChaCha20-Poly1305 share: how text, additional data and records come.

use std::ffi::c_int;

use super::{
    context::{Cipher, Context, in_place, input, tell, with},
    core::Failure,
};
use crate::Reason;

/// An AEAD of one direction, as the functions here call it.
pub(super) trait Aead: Cipher {
    /// True if the next text is a record of TLS 1.2.
    fn expects_record(&self) -> bool;

    /// Works on the record that is expected. Returns the length of the result.
    ///
    /// # Safety
    ///
    /// `from` points to `len` bytes; `to` is null or points to as many.
    unsafe fn record(&mut self, to: *mut u8, from: *const u8, len: usize) -> Result<usize, Reason>;

    /// Takes additional data.
    fn take_aad(&mut self, more: &[u8]) -> Result<(), Reason>;

    /// Makes sure that the next part can have so many bytes.
    fn make_ready(&mut self, more: usize) -> Result<(), Reason>;

    /// Works on the next part in place.
    fn take_text(&mut self, data: &mut [u8]) -> Result<(), Reason>;

    /// The failure that a caller of an update is told of.
    fn failure_of_update(failure: Failure) -> Failure;
}

/// Additional data if there is no output, text else; a whole record if its additional data was set. Returns
/// the length of the result.
///
/// # Safety
///
/// `from` points to `len` bytes; `to` is null or points to `room` bytes.
pub(super) unsafe fn part<C: Aead>(
    aead: &mut C,
    to: *mut u8,
    room: usize,
    from: *const u8,
    len: usize,
) -> Result<usize, Failure> {
    if room < len {
        return Err(Reason::OutputBufferTooSmall.into());
    }
    if aead.expects_record() {
        // SAFETY: the caller's promise.
        return Ok(unsafe { aead.record(to, from, len) }?);
    }
    if to.is_null() {
        // SAFETY: the caller's promise.
        let aad = unsafe { input(from, len) }.ok_or(Reason::CipherOperationFailed)?;
        aead.take_aad(aad)?;
    } else {
        // In place nothing is written that was not there, should it be refused.
        if from != to.cast_const() {
            aead.make_ready(len)?;
        }
        // SAFETY: the caller's promise.
        unsafe { in_place(from, to, len, |data| aead.take_text(data)) }?;
    }
    Ok(len)
}

/// # Safety
///
/// `context` as for [`with`]; buffers as for [`part`]; `out_len` as for [`tell`].
pub(super) unsafe extern "C" fn update<C: Aead>(
    context: *mut Context<C>,
    out: *mut u8,
    out_len: *mut usize,
    room: usize,
    from: *const u8,
    len: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { tell(out_len, 0) };
    let work = |aead: &mut C| {
        if len > 0 {
            // SAFETY: the caller's promise.
            let made = unsafe { part(aead, out, room, from, len) };
            let made = made.map_err(C::failure_of_update)?;
            // SAFETY: the caller's promise.
            unsafe { tell(out_len, made) };
        }
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { with(context, work) }
}
