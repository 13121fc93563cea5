//! AEADs over a text in pieces: direct calls, and jobs.

use std::{
    ffi::c_int,
    panic::{AssertUnwindSafe, catch_unwind},
    slice,
};

use zeroize::{Zeroize, Zeroizing};

use super::{
    parts::Parts,
    raw::{Error, Region, aead_key, guard, input, output},
};
use crate::types::{
    AeadKey, CONVOY_CIPHER_AEAD_SEGMENTS, CONVOY_DIRECTION_DECRYPT, CONVOY_DIRECTION_ENCRYPT,
    CONVOY_ERR_CHAIN_ORDER, CONVOY_ERR_CIPHER_DIRECTION, CONVOY_ERR_CIPHER_KEY,
    CONVOY_ERR_CIPHER_LEN, CONVOY_ERR_DST, CONVOY_ERR_HASH_ALG, CONVOY_ERR_INTERNAL,
    CONVOY_ERR_SRC, CONVOY_ERR_TAG, CONVOY_ERR_TAG_LEN, CONVOY_ERR_TRAILER_LEN, CONVOY_HASH_NULL,
    CONVOY_MAX_BYTES, CONVOY_ORDER_HASH_CIPHER, Job, Segment,
};

/// The pointers and lengths of a message.
struct Message {
    key: *const AeadKey,
    seals: bool,
    iv: (*const u8, usize),
    aad: (*const u8, usize),
    segments: (*const Segment, usize),
    tag: (*mut u8, usize),
}

impl Message {
    /// The segments, of which every one was checked: what is written lies apart from all that is read before it or
    /// belongs to the message, and from `beside`.
    ///
    /// # Safety
    ///
    /// Every pointer is null or points to as much as its length says.
    unsafe fn segments<'a>(&self, beside: Region) -> Result<&'a [Segment], Error> {
        let (at, count) = self.segments;
        let bytes = count.checked_mul(size_of::<Segment>()).ok_or(Error::Length)?;
        let place = Region::new(at, bytes)?;
        if !(4..=16).contains(&self.tag.1) {
            return Err(Error::Length);
        }
        let tag = Region::new(self.tag.0, self.tag.1)?;
        let aad = Region::new(self.aad.0, self.aad.1)?;
        let iv = Region::new(self.iv.0, self.iv.1)?;
        let key = Region::of(self.key)?;
        tag.apart(&[aad, iv, key, place, beside])?;
        if count == 0 {
            return Ok(&[]);
        }
        if !at.is_aligned() {
            return Err(Error::Args);
        }
        // SAFETY: the pointer is aligned and not null, the length is small, and the caller promises the rest.
        let segments = unsafe { slice::from_raw_parts(at, count) };
        let mut total = 0usize;
        for segment in segments {
            total = total.saturating_add(segment.len);
            let from = Region::new(segment.input, segment.len)?;
            let to = Region::new(segment.output, segment.len)?;
            to.apart(&[tag, aad, iv, key, place, beside])?;
            tag.apart(&[from])?;
            if segment.input != segment.output.cast_const() {
                to.apart(&[from])?;
            }
        }
        if total > CONVOY_MAX_BYTES { Err(Error::Length) } else { Ok(segments) }
    }

    /// Encrypts or decrypts with the message's key; returns the tag that the message has, or should have.
    ///
    /// # Safety
    ///
    /// As for [`segments`](Self::segments), which gave these. Nobody else reads or writes what is written.
    unsafe fn run(
        &self,
        key: &convoy_crypto::AeadKey,
        segments: &[Segment],
    ) -> Result<Zeroizing<[u8; 16]>, Error> {
        // SAFETY: the caller's promise, here and below.
        let iv = unsafe { input(self.iv.0, self.iv.1) }?;
        // SAFETY: see above.
        let aad = unsafe { input(self.aad.0, self.aad.1) }?;
        let mut parts = Parts::new(key, self.seals, iv)?;
        parts.aad(aad)?;
        // Before anything is copied to where it could be taken for ciphertext.
        parts.prepare(segments.iter().map(|segment| segment.len).sum())?;
        if segments.len() > 1 {
            parts.reserve()?;
        }
        for segment in segments {
            if segment.input != segment.output.cast_const() {
                // SAFETY: see above; the two do not overlap.
                let from = unsafe { input(segment.input, segment.len) }?;
                // SAFETY: see above.
                unsafe { output(segment.output, segment.len) }?.copy_from_slice(from);
            }
            // SAFETY: see above; what was made before of the same memory is not used any more.
            parts.update(unsafe { output(segment.output, segment.len) }?)?;
        }
        Ok(Zeroizing::new(parts.any_tag()?))
    }

    /// A direct call.
    ///
    /// # Safety
    ///
    /// As for [`run`](Self::run), and the tag points to as many bytes as its length says.
    unsafe fn direct(&self) -> Result<(), Error> {
        // SAFETY: the caller's promise, here and below.
        let key = &unsafe { aead_key(self.key) }?.key;
        // SAFETY: see above.
        let segments = unsafe { self.segments(Region::NONE) }?;
        // SAFETY: see above.
        let made = unsafe { self.run(key, segments) }?;
        let made = made.get(..self.tag.1).ok_or(Error::Length)?;
        if self.seals {
            // SAFETY: see above.
            unsafe { output(self.tag.0, self.tag.1) }?.copy_from_slice(made);
            return Ok(());
        }
        // SAFETY: see above.
        let received = unsafe { input(self.tag.0.cast_const(), self.tag.1) }?;
        if convoy_crypto::manager::tags_match(made, received) {
            return Ok(());
        }
        for segment in segments {
            // SAFETY: see above.
            unsafe { output(segment.output, segment.len) }?.zeroize();
        }
        Err(Error::Forged)
    }
}

/// Encrypts a message with AES-GCM, ChaCha20-Poly1305 or AES-GMAC, as the key says, whose text comes in `count`
/// segments of any lengths, 1 GiB in all, and writes its tag, 4 to 16 bytes. An IV, best of 12 bytes, must never be used
/// twice with one key.
///
/// # Safety
///
/// `key` is a key; `iv` points to `iv_len` bytes, `aad` to `aad_len`, `segments` to `count` segments and `tag` to
/// `tag_len` bytes. Every output is its input or does not overlap it; no output overlaps another segment's bytes, the
/// segments themselves, or anything else of the message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_aead_encrypt_segments(
    key: *const AeadKey,
    iv: *const u8,
    iv_len: usize,
    aad: *const u8,
    aad_len: usize,
    segments: *const Segment,
    count: usize,
    tag: *mut u8,
    tag_len: usize,
) -> c_int {
    let (iv, aad, segments) = ((iv, iv_len), (aad, aad_len), (segments, count));
    let message = Message { key, seals: true, iv, aad, segments, tag: (tag, tag_len) };
    // SAFETY: the caller's promise.
    guard(|| unsafe { message.direct() })
}

/// Decrypts such a message. If the tag is wrong, CONVOY_ERR_FORGED is returned and all outputs are wiped.
///
/// # Safety
///
/// As for convoy_aead_encrypt_segments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_aead_decrypt_segments(
    key: *const AeadKey,
    iv: *const u8,
    iv_len: usize,
    aad: *const u8,
    aad_len: usize,
    segments: *const Segment,
    count: usize,
    tag: *const u8,
    tag_len: usize,
) -> c_int {
    let (iv, aad, segments) = ((iv, iv_len), (aad, aad_len), (segments, count));
    let message = Message { key, seals: false, iv, aad, segments, tag: (tag.cast_mut(), tag_len) };
    // SAFETY: the caller's promise; the tag is only read.
    guard(|| unsafe { message.direct() })
}

/// Whether the job's text is in segments.
#[inline(always)]
pub(super) fn has_some(job: &Job) -> bool {
    job.cipher_mode == CONVOY_CIPHER_AEAD_SEGMENTS
}

/// Works on such a job. What it writes lies apart from `jobs`.
///
/// # Safety
///
/// As for [`view::push`](super::view::push).
#[inline(never)]
pub(super) unsafe fn run(job: &Job, jobs: Region) -> Result<(), Error> {
    let seals = match job.cipher_direction {
        CONVOY_DIRECTION_ENCRYPT => true,
        CONVOY_DIRECTION_DECRYPT => false,
        _ => return Err(Error::Job(CONVOY_ERR_CIPHER_DIRECTION)),
    };
    let fits = [
        (job.hash_alg == CONVOY_HASH_NULL, CONVOY_ERR_HASH_ALG),
        (job.chain_order <= CONVOY_ORDER_HASH_CIPHER, CONVOY_ERR_CHAIN_ORDER),
        (job.cipher_offset == 0, CONVOY_ERR_CIPHER_LEN),
        (job.dst.is_null(), CONVOY_ERR_DST),
        (!job.src.is_null() || job.cipher_len == 0, CONVOY_ERR_SRC),
        (job.trailer_len == 0, CONVOY_ERR_TRAILER_LEN),
        ((4..=16).contains(&job.tag_len), CONVOY_ERR_TAG_LEN),
        (!job.tag.is_null(), CONVOY_ERR_TAG),
    ];
    if let Some((_, error)) = fits.into_iter().find(|(fits, _)| !fits) {
        return Err(Error::Job(error));
    }
    // SAFETY: all variants are pointers of one size, so reading any of them yields a pointer.
    let at = unsafe { job.cipher_key.aead };
    // SAFETY: the caller promises that the mode says which key is meant.
    let key = &unsafe { aead_key(at) }.map_err(|_| Error::Job(CONVOY_ERR_CIPHER_KEY))?.key;
    let message = Message {
        key: at,
        seals,
        iv: (job.iv, job.iv_len),
        aad: (job.aad, job.aad_len),
        segments: (job.src.cast(), job.cipher_len),
        tag: (job.tag, job.tag_len),
    };
    // SAFETY: the caller's promise.
    let segments = unsafe { message.segments(jobs) }?;
    // SAFETY: as above.
    let work = || unsafe { message.run(key, segments) };
    let Ok(tag) = catch_unwind(AssertUnwindSafe(work)) else {
        return Err(Error::Job(CONVOY_ERR_INTERNAL));
    };
    // SAFETY: the caller's promise.
    let place = unsafe { output(job.tag, job.tag_len) }?;
    place.copy_from_slice(tag?.get(..job.tag_len).unwrap_or_default());
    Ok(())
}
