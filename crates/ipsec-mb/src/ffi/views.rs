//! Jobs of the manager in Rust, made of a job of C: its keys, its cipher by itself, its hash by itself.

use std::{ffi::c_int, ptr};

use convoy_crypto::{
    HashAlg, KeyBits, KeyLender, LentKey,
    manager::{
        AesDecryptKey, AesEncryptKey, Buffer, ChainOrder, CmacKey, Direction, HmacKeys, Iv,
        Job as Inner, JobCipher, JobHash, Span, XcbcKey, chaining_bytes, round_key_bytes,
    },
};
use zeroize::Zeroize;

use super::{
    gcm::{self, Part},
    keys::subkey,
    raw::{input, text},
    region::Region,
    state::Slot,
    task::{cipher_input, hash_input},
};
use crate::{
    check::{Suite, hmac_hash},
    types::*,
};

/// Copies the keys of a job to where kernels can read them. Those that cannot be taken leave none, and the job is invalid.
///
/// # Safety
///
/// As for `work::run`.
pub(super) unsafe fn take_keys(slot: &mut Slot, job: &Job, suite: Suite) -> Result<(), c_int> {
    let bits = suite.bits();
    match (suite.cipher, bits) {
        (CIPHER_CBC | CIPHER_ECB, Some(bits)) if !suite.is_encrypt() => {
            // SAFETY: the caller's promise.
            let keys = unsafe { round_keys(job.dec_keys.cast(), bits) }?;
            slot.decrypt.set_round_keys(bits, keys).map_err(|_| ERR_JOB_KEY_LEN)?;
        }
        (CIPHER_CFB, Some(bits)) if !suite.is_encrypt() => {
            // What decrypts is the cipher's encryption, by the round keys in the place of those for decryption.
            // SAFETY: the caller's promise.
            let keys = unsafe { round_keys(job.dec_keys.cast(), bits) }?;
            slot.encrypt.set_round_keys(bits, keys).map_err(|_| ERR_JOB_KEY_LEN)?;
        }
        (
            CIPHER_CBC | CIPHER_CNTR | CIPHER_CNTR_BITLEN | CIPHER_ECB | CIPHER_CFB | CIPHER_CCM,
            Some(bits),
        ) => {
            // SAFETY: the caller's promise.
            let keys = unsafe { round_keys(job.enc_keys.cast(), bits) }?;
            slot.encrypt.set_round_keys(bits, keys).map_err(|_| ERR_JOB_KEY_LEN)?;
        }
        _ => {}
    }
    if let Some(alg) = hmac_hash(suite.hash) {
        let bytes = chaining_bytes(alg) as u64;
        // SAFETY: the caller's promise.
        let inner = unsafe { input(job.pointer(0), bytes, ERR_JOB_NULL_HMAC_IPAD) }?;
        // SAFETY: as above.
        let outer = unsafe { input(job.pointer(1), bytes, ERR_JOB_NULL_HMAC_OPAD) }?;
        slot.hmac.set_chaining(alg, inner, outer).map_err(|_| ERR_JOB_KEY_LEN)?;
    }
    match suite.hash {
        AUTH_AES_XCBC => {
            // SAFETY: as above.
            let k1 = unsafe { round_keys(job.pointer(0), KeyBits::Aes128) }?;
            let (k2, k3) = (subkey(job.pointer(1))?, subkey(job.pointer(2))?);
            slot.xcbc.set_parts(k1, &k2, &k3).map_err(|_| ERR_JOB_KEY_LEN)
        }
        AUTH_AES_CMAC | AUTH_AES_CMAC_BITLEN | AUTH_AES_CMAC_256 => {
            let bits = match suite.hash {
                AUTH_AES_CMAC_256 => KeyBits::Aes256,
                _ => KeyBits::Aes128,
            };
            // SAFETY: as above.
            let keys = unsafe { round_keys(job.pointer(0), bits) }?;
            let (k1, k2) = (subkey(job.pointer(1))?, subkey(job.pointer(2))?);
            slot.cmac.set_parts(bits, keys, &k1, &k2).map_err(|_| ERR_JOB_KEY_LEN)
        }
        _ => Ok(()),
    }
}

/// Round keys where the caller holds them.
///
/// # Safety
///
/// If not null, `keys` points to the round keys of a key of that size.
pub(super) unsafe fn round_keys<'a>(keys: *const u8, bits: KeyBits) -> Result<&'a [u8], c_int> {
    // SAFETY: the caller's promise.
    unsafe { input(keys, round_key_bytes(bits) as u64, ERR_JOB_NULL_KEY) }
}

/// Wipes what was copied for a job.
pub(super) fn wipe(slot: &mut Slot) {
    // In place of each an empty one, which drops what was there: that wipes itself.
    if slot.encrypt.bits().is_some() {
        slot.encrypt = Default::default();
    }
    if slot.decrypt.bits().is_some() {
        slot.decrypt = Default::default();
    }
    if slot.hmac.alg().is_some() {
        slot.hmac = Default::default();
    }
    if slot.cmac.bits().is_some() {
        slot.cmac = Default::default();
    }
    if slot.xcbc.is_set() {
        slot.xcbc = Default::default();
    }
    slot.tag.zeroize();
}

/// A job's cipher and hash with their keys, and its order.
pub(super) struct Parts<'s> {
    pub(super) cipher: JobCipher<'s>,
    pub(super) hash: JobHash<'s>,
    /// Bytes of the whole tag.
    pub(super) whole_tag: usize,
    pub(super) order: ChainOrder,
}

impl<'s> Parts<'s> {
    pub(super) fn of(keys: Keys<'s>, job: &Job, suite: Suite) -> Self {
        let direction = if suite.is_encrypt() { Direction::Encrypt } else { Direction::Decrypt };
        let cipher = match suite.cipher {
            CIPHER_CBC if !suite.is_encrypt() => JobCipher::CbcDecrypt(keys.decrypt),
            CIPHER_CBC => JobCipher::CbcEncrypt(keys.encrypt),
            CIPHER_CNTR => JobCipher::Ctr(keys.encrypt),
            CIPHER_CCM => JobCipher::Ccm(keys.encrypt, direction),
            _ => JobCipher::Null,
        };
        let (hash, whole_tag) = match suite.hash {
            AUTH_AES_XCBC => (JobHash::Xcbc(keys.xcbc), 16),
            AUTH_AES_CMAC | AUTH_AES_CMAC_BITLEN | AUTH_AES_CMAC_256 => {
                (JobHash::Cmac(keys.cmac), 16)
            }
            hash => match hmac_hash(hash) {
                Some(alg) => (JobHash::Hmac(keys.hmac), HashAlg::digest_bytes(alg)),
                None => (JobHash::Null, 0),
            },
        };
        let order = match job.chain_order {
            ORDER_HASH_CIPHER => ChainOrder::HashThenCipher,
            _ => ChainOrder::CipherThenHash,
        };
        Self { cipher, hash, whole_tag, order }
    }

    pub(super) fn has_cipher(&self) -> bool {
        !matches!(self.cipher, JobCipher::Null)
    }

    pub(super) fn has_hash(&self) -> bool {
        !matches!(self.hash, JobHash::Null)
    }
}

/// The keys of a slot, apart from the tag.
#[derive(Clone, Copy)]
pub(super) struct Keys<'s> {
    pub(super) encrypt: &'s AesEncryptKey,
    pub(super) decrypt: &'s AesDecryptKey,
    pub(super) hmac: &'s HmacKeys,
    pub(super) cmac: &'s CmacKey,
    pub(super) xcbc: &'s XcbcKey,
}

/// The cipher of a job by itself.
///
/// # Safety
///
/// As for `work::run`.
pub(super) unsafe fn cipher_alone<'s>(job: &Job, parts: &Parts<'s>, at: usize) -> Inner<'s> {
    let len = job.cipher_len as usize;
    // SAFETY: the caller's promise. The IV may lie in the text, so it is copied before there is a reference to that.
    let iv = Iv::new(unsafe { input(job.iv, job.iv_len, ERR_JOB_NULL_IV) }.unwrap_or_default());
    let mut view = Inner::default();
    // SAFETY: as above.
    view.buffer = Buffer::InPlace(unsafe { text(cipher_input(job), job.dst, len) });
    (view.cipher, view.cipher_span) = (parts.cipher, Span::new(0, len));
    (view.iv, view.user_data) = (iv, at);
    view
}

/// The hash of a job by itself.
///
/// # Safety
///
/// As for `work::run`.
pub(super) unsafe fn hash_alone<'s>(
    hashed: Region,
    parts: &Parts<'s>,
    at: usize,
    tag: &'s mut [u8; 64],
) -> Inner<'s> {
    // SAFETY: the caller's promise.
    let message = unsafe { input(hashed.start, hashed.len as u64, ERR_JOB_NULL_SRC) };
    let mut view = Inner::default();
    view.buffer = Buffer::ReadOnly(message.unwrap_or_default());
    view.cipher = JobCipher::Null;
    (view.hash, view.hash_span) = (parts.hash, Span::new(0, hashed.len));
    (view.tag, view.user_data) = (&mut tag[..parts.whole_tag], at);
    view
}

/// The tag of a job's GMAC.
///
/// # Safety
///
/// As for `work::run`.
pub(super) unsafe fn gmac(lender: &KeyLender, bits: KeyBits, job: &Job) -> Result<[u8; 16], c_int> {
    let Region { start, len } = hash_input(job);
    // SAFETY: the caller's promise.
    let message = unsafe { input(start, len as u64, ERR_JOB_NULL_SRC) }?;
    // SAFETY: as above.
    let iv = unsafe { input(job.pointer(1), job.u[2] as u64, ERR_JOB_NULL_IV) }?;
    let key = job.pointer::<GcmKey>(0);
    let none = Part { dst: ptr::null_mut(), src: ptr::null(), len: 0 };
    // SAFETY: as above; there is no text.
    let work = |key: LentKey<'_>| unsafe { gcm::message(&key, true, &none, iv, message) };
    // SAFETY: as above.
    unsafe { gcm::with_key(lender, bits, key, work) }
}
