//! AEADs: keys, and direct calls for one message.

use std::{ffi::c_int, slice, sync::OnceLock};

use convoy_crypto::{
    GcmParams, IcvLen, KeyBits, Nonce, OpenOp, SealOp, Shared, Suite, Verdict,
    manager::{self, Buffer, Direction, Iv, Job, JobCipher, Runner, Span, Status},
    open_burst, seal_burst, try_box,
};
use zeroize::{Zeroize, Zeroizing};

use super::raw::{
    self, Error, IN_REACH, Region, TAG_BYTES, aead_key, bytes, bytes_mut, guard, input, object,
    output, reach,
};
use crate::types::{AeadKey, AesEncKey, CONVOY_MAX_BYTES};

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
        *out = Box::into_raw(try_box(AeadKey::new(Shared::try_new(key)?))?);
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

impl Message {
    /// Checks lengths, and that what is written lies apart from all else. `key` is where the key lies.
    #[inline(always)]
    fn check(&self, key: Region) -> Result<(), Error> {
        if self.is_usual(key) { Ok(()) } else { self.check_carefully(key) }
    }

    /// Whether the message is good and as most are: where a few branches tell.
    #[inline(always)]
    fn is_usual(&self, key: Region) -> bool {
        let lengths = self.len | self.aad.1 | self.iv.1;
        let addresses = reach(self.input, self.len)
            | reach(self.output, self.len)
            | reach(self.iv.0, self.iv.1)
            | reach(self.aad.0, self.aad.1)
            | reach(self.tag, 1);
        if (lengths >= CONVOY_MAX_BYTES)
            | (addresses >= IN_REACH)
            | !(4..=TAG_BYTES).contains(&self.tag_len)
        {
            return false;
        }
        let from = Region::within_reach(self.input, self.len);
        let to = Region::within_reach(self.output, self.len);
        let tag = Region::within_reach(self.tag, self.tag_len);
        let aad = Region::within_reach(self.aad.0, self.aad.1);
        let iv = Region::within_reach(self.iv.0, self.iv.1);
        if !self.is_in_place() && to.overlaps(from) | tag.overlaps(from) {
            return false;
        }
        // Mostly the tag is behind the text, and all else is elsewhere.
        let written = if self.len == 0 { tag } else { to.hull(tag) };
        !(tag.overlaps(to) | written.overlaps(aad) | written.overlaps(iv) | written.overlaps(key))
    }

    #[cold]
    #[inline(never)]
    fn check_carefully(&self, key: Region) -> Result<(), Error> {
        if !(4..=TAG_BYTES).contains(&self.tag_len) {
            return Err(Error::Length);
        }
        let (from, to) = (Region::new(self.input, self.len)?, Region::new(self.output, self.len)?);
        let aad = Region::new(self.aad.0, self.aad.1)?;
        let (tag, iv) = (Region::new(self.tag, self.tag_len)?, Region::new(self.iv.0, self.iv.1)?);
        to.apart(&[aad, iv, key])?;
        tag.apart(&[from, to, aad, iv, key])?;
        if self.is_in_place() { Ok(()) } else { to.apart(&[from]) }
    }

    fn is_in_place(&self) -> bool {
        self.input == self.output.cast_const()
    }

    /// The text where it is to be worked on, copied there if it is elsewhere.
    ///
    /// # Safety
    ///
    /// Every pointer is null or points to as many bytes as its length says; [`check`](Self::check) said that it
    /// is good.
    #[inline(always)]
    unsafe fn text<'a>(&self) -> &'a mut [u8] {
        // SAFETY: the caller's promise.
        let text = unsafe { bytes_mut(self.output, self.len) };
        if !self.is_in_place() {
            // SAFETY: the caller's promise; the two do not overlap.
            text.copy_from_slice(unsafe { bytes(self.input, self.len) });
        }
        text
    }
}

/// Encrypts, or verifies and decrypts, one message, whose tag is whole: by what the key has of kernels.
///
/// # Safety
///
/// As for [`direct`]; [`Message::check`] said that the message is good.
#[inline(always)]
unsafe fn direct_whole(
    key: &convoy_crypto::AeadKey,
    direction: Direction,
    message: &Message,
) -> Result<(), Error> {
    // SAFETY: the caller's promise, here and below.
    let iv = unsafe { bytes(message.iv.0, message.iv.1) };
    let &iv = iv.first_chunk::<12>().ok_or(Error::Length)?;
    // SAFETY: see above.
    let aad = unsafe { bytes(message.aad.0, message.aad.1) };
    // SAFETY: see above.
    let text = unsafe { message.text() };
    let done = match direction {
        Direction::Encrypt => {
            // SAFETY: the caller's promise; the tag overlaps nothing else.
            let tag = unsafe { bytes_mut(message.tag, message.tag_len) };
            // Whoever calls vouches for the nonce.
            SealOp::with_aead_key(key, Nonce::new(iv), aad, text, tag).map(|mut op| {
                seal_burst(slice::from_mut(&mut op));
                Verdict::Authentic
            })
        }
        Direction::Decrypt => {
            // SAFETY: the caller's promise.
            let tag = unsafe { bytes(message.tag, message.tag_len) };
            OpenOp::with_aead_key(key, iv, aad, text, tag).map(|mut op| {
                open_burst(slice::from_mut(&mut op));
                op.verdict()
            })
        }
    };
    match done {
        Ok(Verdict::Authentic) => Ok(()),
        Ok(Verdict::Forged | Verdict::Pending) => Err(Error::Forged),
        Err(_) => {
            if !message.is_in_place() {
                // SAFETY: the caller's promise; the operation is gone. No plaintext is left that looks encrypted.
                unsafe { bytes_mut(message.output, message.len) }.zeroize();
            }
            Err(Error::Length)
        }
    }
}

/// Encrypts, or verifies and decrypts, one message.
///
/// # Safety
///
/// Every pointer is null or points to as many bytes as its length says; [`Message::check`] said that the message is
/// good.
#[inline(never)]
unsafe fn direct(cipher: JobCipher<'_>, message: &Message) -> Result<(), Error> {
    let Message { iv, aad, input: from, output: to, len, tag, tag_len } = *message;
    let decrypt = matches!(
        cipher,
        JobCipher::Aead(_, Direction::Decrypt) | JobCipher::Ccm(_, Direction::Decrypt)
    );
    let mut scratch = Zeroizing::new([0; TAG_BYTES]);
    let mut job = Job::default();
    // SAFETY: the caller's promise.
    job.iv = Iv::new(unsafe { input(iv.0, iv.1) }?);
    job.buffer = if message.is_in_place() {
        // SAFETY: the caller's promise.
        Buffer::InPlace(unsafe { output(to, len) }?)
    } else {
        // SAFETY: the caller's promise; the two do not overlap.
        let (src, dst) = (unsafe { input(from, len) }?, unsafe { output(to, len) }?);
        Buffer::Copy { src, dst }
    };
    (job.cipher, job.cipher_span) = (cipher, Span::new(0, len));
    // SAFETY: the caller's promise.
    job.aad = unsafe { input(aad.0, aad.1) }?;
    job.tag = &mut scratch[..tag_len];
    let mut runner = best_runner()?;
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

/// The kernels of the best tier, looked for once.
fn best_runner() -> Result<Runner, Error> {
    static BEST: OnceLock<Runner> = OnceLock::new();
    match BEST.get() {
        Some(runner) => Ok(*runner),
        None => {
            let runner = Runner::best(&raw::cpu()?);
            Ok(*BEST.get_or_init(|| runner))
        }
    }
}

/// # Safety
///
/// Every pointer of the message is null or points to as many bytes as its length says; `key` is null or points to a
/// key.
unsafe fn direct_aead(key: *const AeadKey, direction: Direction, message: &Message) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let inner = &unsafe { aead_key(key) }?.key;
        message.check(Region::of(key)?)?;
        if message.tag_len == TAG_BYTES {
            // SAFETY: the caller's promise.
            return unsafe { direct_whole(inner, direction, message) };
        }
        // SAFETY: the caller's promise.
        unsafe { direct(JobCipher::Aead(inner, direction), message) }
    })
}

/// # Safety
///
/// As for [`direct_aead`].
unsafe fn direct_ccm(key: *const AesEncKey, direction: Direction, message: &Message) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise; key types of both sides have one layout.
        let inner: &manager::AesEncryptKey = unsafe { object(key.cast()) }?;
        inner.bits().ok_or(Error::Args)?;
        message.check(Region::of(key)?)?;
        // SAFETY: the caller's promise.
        unsafe { direct(JobCipher::Ccm(inner, direction), message) }
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

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    /// Calls one of the two, out of place if `out` is given.
    fn call(
        key: *const AeadKey,
        seal: bool,
        (text, out): (&mut [u8], Option<&mut [u8]>),
        tag: &mut [u8],
    ) -> c_int {
        let (iv, aad) = ([7u8; 12], [9u8; 20]);
        let (len, from) = (text.len(), text.as_mut_ptr());
        let to = out.map_or(from, <[u8]>::as_mut_ptr);
        let (iv, aad) = (iv.as_ptr(), aad.as_ptr());
        if seal {
            let tag_to = tag.as_mut_ptr();
            // SAFETY: all pointers are to memory of their lengths.
            unsafe { convoy_aead_encrypt(key, iv, aad, 20, from, to, len, tag_to, tag.len()) }
        } else {
            // SAFETY: as above.
            unsafe { convoy_aead_decrypt(key, iv, aad, 20, from, to, len, tag.as_ptr(), tag.len()) }
        }
    }

    #[test]
    fn whole_tags_agree_with_short_ones_wherever_the_text_goes() {
        let secret = [3u8; 32];
        let secret = secret.as_ptr();
        let mut keys = [ptr::null_mut(); 3];
        let [gcm, gmac, chacha] = &mut keys;
        // SAFETY: the secret has as many bytes as are told, the place is there.
        assert_eq!(unsafe { convoy_gcm_key_new(0, secret, 16, gcm) }, 0);
        // SAFETY: as above.
        assert_eq!(unsafe { convoy_gmac_key_new(0, secret, 32, gmac) }, 0);
        // SAFETY: as above.
        assert_eq!(unsafe { convoy_chacha20_poly1305_key_new(0, secret, chacha) }, 0);
        for (key, len) in keys.into_iter().flat_map(|key| [0, 1, 16, 100, 700].map(|n| (key, n))) {
            let plain: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let (mut short, mut short_tag) = (plain.clone(), [0; 12]);
            assert_eq!(call(key, true, (&mut short, None), &mut short_tag), 0);
            let (mut whole, mut tag) = (plain.clone(), [0; 16]);
            assert_eq!(call(key, true, (&mut whole, None), &mut tag), 0);
            assert_eq!((&whole, &tag[..12]), (&short, &short_tag[..]), "{len} bytes");
            let (mut from, mut to, mut tag_apart) = (plain.clone(), vec![1; len], [0; 16]);
            assert_eq!(call(key, true, (&mut from, Some(&mut to)), &mut tag_apart), 0);
            assert_eq!((&from, &to, tag_apart), (&plain, &whole, tag), "{len} bytes, apart");
            assert_eq!(call(key, false, (&mut to, Some(&mut from)), &mut tag), 0);
            assert_eq!((&from, &to), (&plain, &whole));
            tag[15] ^= 1;
            let forged = call(key, false, (&mut to, Some(&mut from)), &mut tag);
            assert_eq!((forged, &to), (Error::Forged.code(), &whole));
            assert!(from.iter().all(|&byte| byte == 0), "nothing of a forged message is left");
            assert_eq!(call(key, false, (&mut whole, None), &mut tag), Error::Forged.code());
            assert!(whole.iter().all(|&byte| byte == 0));
        }
        // SAFETY: each came from this library, and is used no more.
        keys.into_iter().for_each(|key| unsafe { convoy_aead_key_free(key) });
    }
}
