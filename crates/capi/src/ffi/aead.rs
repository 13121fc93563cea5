//! AEADs: keys, and direct calls for one message.

use std::ffi::c_int;

use convoy_crypto::{
    GcmParams, IcvLen, KeyBits, Shared, Suite,
    manager::{self, Buffer, Direction, Iv, Job, JobCipher, Runner, Span, Status},
    try_box,
};
use zeroize::{Zeroize, Zeroizing};

use super::raw::{self, Error, Region, guard, input, object, output};
use crate::types::{AeadKey, AesEncKey};

/// # Safety
///
/// `key` is null or points to `key_len` bytes, `out` is null or points to a pointer.
unsafe fn new_key(
    tier: c_int,
    suite: impl FnOnce() -> Result<Suite, Error>,
    key: *const u8,
    key_len: usize,
    out: *mut *mut AeadKey,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { raw::place(out, &[Region::near(key, key_len)]) }?;
        // SAFETY: the caller's promise.
        let secret = unsafe { input(key, key_len) }?;
        let (cpu, suite) = (raw::cpu()?, suite()?);
        let tier = raw::tier(&cpu, tier)?;
        let key = convoy_crypto::AeadKey::from_slice(&cpu, tier, suite, secret)?;
        *out = Box::into_raw(try_box(AeadKey { key: Shared::try_new(key)? })?);
        Ok(())
    })
}

fn bits(key_len: usize) -> Result<KeyBits, Error> {
    KeyBits::from_bits(key_len.saturating_mul(8)).ok_or(Error::Length)
}

/// Sets up a key of AES-GCM (16, 24 or 32 bytes) with all that GHASH needs, for one tier
/// (CONVOY_TIER_*) or the best. Whoever made it frees it with convoy_aead_key_free.
///
/// # Safety
///
/// `key` points to `key_len` bytes; `out` points to a pointer apart from them, which is set to null if
/// the call fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_gcm_key_new(
    tier: c_int,
    key: *const u8,
    key_len: usize,
    out: *mut *mut AeadKey,
) -> c_int {
    let suite = || Ok(GcmParams::new(bits(key_len)?, IcvLen::Icv16).into());
    // SAFETY: the caller's promise.
    unsafe { new_key(tier, suite, key, key_len, out) }
}

/// Sets up a key of AES-GMAC (16, 24 or 32 bytes).
///
/// # Safety
///
/// As for convoy_gcm_key_new.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_gmac_key_new(
    tier: c_int,
    key: *const u8,
    key_len: usize,
    out: *mut *mut AeadKey,
) -> c_int {
    let suite = || Ok(Suite::Gmac(bits(key_len)?));
    // SAFETY: the caller's promise.
    unsafe { new_key(tier, suite, key, key_len, out) }
}

/// Sets up a key of ChaCha20-Poly1305 (32 bytes).
///
/// # Safety
///
/// `key` points to 32 bytes; `out` points to a pointer apart from them, which is set to null if the
/// call fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_chacha20_poly1305_key_new(
    tier: c_int,
    key: *const u8,
    out: *mut *mut AeadKey,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { new_key(tier, || Ok(Suite::ChaCha20Poly1305), key, 32, out) }
}

/// Wipes and frees a key; null is nothing to free.
///
/// # Safety
///
/// `key` is null, or came from this library and was not freed. Nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_aead_key_free(key: *mut AeadKey) {
    if !key.is_null() && key.is_aligned() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(key) });
    }
}

/// The pointers and lengths of a direct call.
struct Message {
    iv: (*const u8, usize),
    aad: (*const u8, usize),
    input: *const u8,
    output: *mut u8,
    len: usize,
    tag: *mut u8,
    tag_len: usize,
}

/// Encrypts, or verifies and decrypts, one message.
///
/// # Safety
///
/// Every pointer is null or points to as many bytes as its length says.
unsafe fn direct(cipher: JobCipher<'_>, key: Region, message: &Message) -> Result<(), Error> {
    let Message { iv, aad, input: from, output: to, len, tag, tag_len } = *message;
    let decrypt = matches!(
        cipher,
        JobCipher::Aead(_, Direction::Decrypt) | JobCipher::Ccm(_, Direction::Decrypt)
    );
    if !(4..=16).contains(&tag_len) {
        return Err(Error::Length);
    }
    let (from_region, to_region) = (Region::new(from, len)?, Region::new(to, len)?);
    let (aad_region, tag_region) = (Region::new(aad.0, aad.1)?, Region::new(tag, tag_len)?);
    let iv_region = Region::new(iv.0, iv.1)?;
    to_region.apart(&[aad_region, iv_region, key])?;
    tag_region.apart(&[from_region, to_region, aad_region, iv_region, key])?;
    let mut scratch = Zeroizing::new([0; 16]);
    let mut job = Job::default();
    // SAFETY: the caller's promise.
    job.iv = Iv::new(unsafe { input(iv.0, iv.1) }?);
    job.buffer = if from == to.cast_const() {
        // SAFETY: the caller's promise.
        Buffer::InPlace(unsafe { output(to, len) }?)
    } else {
        to_region.apart(&[from_region])?;
        // SAFETY: the caller's promise; the two do not overlap.
        let (src, dst) = (unsafe { input(from, len) }?, unsafe { output(to, len) }?);
        Buffer::Copy { src, dst }
    };
    (job.cipher, job.cipher_span) = (cipher, Span::new(0, len));
    // SAFETY: the caller's promise.
    job.aad = unsafe { input(aad.0, aad.1) }?;
    job.tag = &mut scratch[..tag_len];
    let mut runner = Runner::best(&raw::cpu()?);
    if !decrypt {
        runner.run_one(&mut job);
        if job.status() != Status::Completed {
            return Err(Error::Length);
        }
        // SAFETY: the caller's promise; the tag overlaps nothing else.
        unsafe { output(tag, tag_len) }?.copy_from_slice(&scratch[..tag_len]);
        return Ok(());
    }
    // SAFETY: the caller's promise.
    if runner.verify_one(&mut job, unsafe { input(tag, tag_len) }?) {
        return Ok(());
    }
    if job.status() != Status::Completed {
        return Err(Error::Length);
    }
    // SAFETY: the caller's promise; the job, which borrowed this, is not used any more.
    unsafe { output(to, len) }?.zeroize();
    Err(Error::Forged)
}

/// # Safety
///
/// As for [`direct`]; `key` is null or came from this library and was not freed.
unsafe fn direct_aead(key: *const AeadKey, direction: Direction, message: &Message) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let inner = &unsafe { object(key) }?.key;
        // SAFETY: the caller's promise.
        unsafe { direct(JobCipher::Aead(inner, direction), Region::of(key)?, message) }
    })
}

/// # Safety
///
/// As for [`direct`]; `key` is null or points to a key.
unsafe fn direct_ccm(key: *const AesEncKey, direction: Direction, message: &Message) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise; key types of both sides have one layout.
        let inner: &manager::AesEncryptKey = unsafe { object(key.cast()) }?;
        inner.bits().ok_or(Error::Args)?;
        // SAFETY: the caller's promise.
        unsafe { direct(JobCipher::Ccm(inner, direction), Region::of(key)?, message) }
    })
}

/// Encrypts a message with AES-GCM or ChaCha20-Poly1305, as the key says, and writes its tag, 4 to 16
/// bytes. With AES-GMAC the message is copied. An IV of 12 bytes must never be used twice with one key.
///
/// # Safety
///
/// `key` is a key; `iv` points to 12 bytes, `aad` to `aad_len`, `input` and `output` to `len`
/// and `tag` to `tag_len` bytes. `output` is `input`, or does not overlap it, and neither overlaps
/// the tag.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_aead_encrypt(
    key: *const AeadKey,
    iv: *const u8,
    aad: *const u8,
    aad_len: usize,
    input: *const u8,
    output: *mut u8,
    len: usize,
    tag: *mut u8,
    tag_len: usize,
) -> c_int {
    let (iv, aad) = ((iv, 12), (aad, aad_len));
    let message = Message { iv, aad, input, output, len, tag, tag_len };
    // SAFETY: the caller's promise.
    unsafe { direct_aead(key, Direction::Encrypt, &message) }
}

/// Verifies a message of AES-GCM, ChaCha20-Poly1305 or AES-GMAC and decrypts it. If the tag is wrong,
/// CONVOY_ERR_FORGED is returned and the output wiped.
///
/// # Safety
///
/// `key` is a key; `iv` points to 12 bytes, `aad` to `aad_len`, `input` and `output` to `len`
/// and `tag` to `tag_len` bytes. `output` is `input`, or does not overlap it, and neither overlaps
/// the tag.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_aead_decrypt(
    key: *const AeadKey,
    iv: *const u8,
    aad: *const u8,
    aad_len: usize,
    input: *const u8,
    output: *mut u8,
    len: usize,
    tag: *const u8,
    tag_len: usize,
) -> c_int {
    let (iv, aad) = ((iv, 12), (aad, aad_len));
    let message = Message { iv, aad, input, output, len, tag: tag.cast_mut(), tag_len };
    // SAFETY: the caller's promise; the tag is only read.
    unsafe { direct_aead(key, Direction::Decrypt, &message) }
}

/// Encrypts a message with AES-CCM and writes its tag, an even number of 4 to 16 bytes.
/// An IV of 7 to 13 bytes must never be used twice with one key.
///
/// # Safety
///
/// `key` is a key; `iv` points to `iv_len`, `aad` to `aad_len`, `input` and `output` to `len`
/// and `tag` to `tag_len` bytes. `output` is `input`, or does not overlap it, and neither overlaps
/// the tag.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_ccm_encrypt(
    key: *const AesEncKey,
    iv: *const u8,
    iv_len: usize,
    aad: *const u8,
    aad_len: usize,
    input: *const u8,
    output: *mut u8,
    len: usize,
    tag: *mut u8,
    tag_len: usize,
) -> c_int {
    let (iv, aad) = ((iv, iv_len), (aad, aad_len));
    let message = Message { iv, aad, input, output, len, tag, tag_len };
    // SAFETY: the caller's promise.
    unsafe { direct_ccm(key, Direction::Encrypt, &message) }
}

/// Verifies a message of AES-CCM and decrypts it. If the tag is wrong, CONVOY_ERR_FORGED is returned and
/// the output wiped.
///
/// # Safety
///
/// `key` is a key; `iv` points to `iv_len`, `aad` to `aad_len`, `input` and `output` to `len`
/// and `tag` to `tag_len` bytes. `output` is `input`, or does not overlap it, and neither overlaps
/// the tag.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_ccm_decrypt(
    key: *const AesEncKey,
    iv: *const u8,
    iv_len: usize,
    aad: *const u8,
    aad_len: usize,
    input: *const u8,
    output: *mut u8,
    len: usize,
    tag: *const u8,
    tag_len: usize,
) -> c_int {
    let (iv, aad) = ((iv, iv_len), (aad, aad_len));
    let message = Message { iv, aad, input, output, len, tag: tag.cast_mut(), tag_len };
    // SAFETY: the caller's promise; the tag is only read.
    unsafe { direct_ccm(key, Direction::Decrypt, &message) }
}
