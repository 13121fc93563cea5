//! Expansion of keys into memory of the caller's.
//!
//! A key that could not be set up holds zeros, whatever it held before, and a job with it is invalid.

use std::ffi::c_int;

use convoy_crypto::{
    HashAlg,
    manager::{self, AesDecryptKey, AesEncryptKey, HmacKeys, chaining_bytes},
};
use zeroize::Zeroizing;

use super::{
    raw::{self, Error, Region, clear, fresh, guard, input, object_mut, output},
    view::hash_alg,
};
use crate::types::{AesDecKey, AesEncKey, CmacKey, HmacKey, XcbcKey};

/// A secret, and zeros in the place where the key made of it goes, which lies apart.
///
/// # Safety
///
/// `key` is null or points to `len` bytes, `out` is null or points to room for a `T`, which zeros are
/// a value of.
unsafe fn apart<'a, T>(
    key: *const u8,
    len: usize,
    out: *mut T,
) -> Result<(&'a [u8], &'a mut T), Error> {
    // SAFETY: the caller's promise.
    unsafe { clear(out) }?;
    Region::of(out)?.apart(&[Region::new(key, len)?])?;
    // SAFETY: the caller's promise.
    let key = unsafe { input(key, len) }?;
    // SAFETY: as above; the two lie apart.
    Ok((key, unsafe { object_mut(out) }?))
}

/// # Safety
///
/// `key` is null or points to `bytes` bytes, `enc` is null or points to room for a key; `dec` is
/// none, or the same.
unsafe fn aes(
    key: *const u8,
    bytes: usize,
    enc: *mut AesEncKey,
    dec: Option<*mut AesDecKey>,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise; zeros are a value of both types.
        let emptied = [unsafe { clear(enc) }, dec.map_or(Ok(()), |dec| unsafe { clear(dec) })];
        emptied.into_iter().collect::<Result<(), Error>>()?;
        let (cpu, from, to) = (raw::cpu()?, Region::new(key, bytes)?, Region::of(enc)?);
        to.apart(&[from])?;
        if let Some(dec) = dec {
            Region::of(dec)?.apart(&[from, to])?;
        }
        // SAFETY: the caller's promise.
        let key = unsafe { input(key, bytes) }?;
        // SAFETY: the caller's promise; both types have one layout.
        let enc: &mut AesEncryptKey = unsafe { object_mut(enc.cast()) }?;
        enc.set(&cpu, key)?;
        if let Some(dec) = dec {
            // SAFETY: as above.
            let dec: &mut AesDecryptKey = unsafe { object_mut(dec.cast()) }?;
            dec.set(&cpu, enc);
        }
        Ok(())
    })
}

/// Expands a key of AES-128 (16 bytes) for encryption and for decryption.
///
/// # Safety
///
/// `key` points to 16 bytes, `enc` and `dec` to room for a key each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_aes_keyexp_128(
    key: *const u8,
    enc: *mut AesEncKey,
    dec: *mut AesDecKey,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { aes(key, 16, enc, Some(dec)) }
}

/// Expands a key of AES-128 (16 bytes) for encryption only, which CTR, CCM and CBC encryption
/// need.
///
/// # Safety
///
/// `key` points to 16 bytes, `enc` to room for a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_aes_keyexp_enc_128(key: *const u8, enc: *mut AesEncKey) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { aes(key, 16, enc, None) }
}

/// Expands a key of AES-192 (24 bytes) for encryption and for decryption.
///
/// # Safety
///
/// `key` points to 24 bytes, `enc` and `dec` to room for a key each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_aes_keyexp_192(
    key: *const u8,
    enc: *mut AesEncKey,
    dec: *mut AesDecKey,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { aes(key, 24, enc, Some(dec)) }
}

/// Expands a key of AES-192 (24 bytes) for encryption only, which CTR, CCM and CBC encryption
/// need.
///
/// # Safety
///
/// `key` points to 24 bytes, `enc` to room for a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_aes_keyexp_enc_192(key: *const u8, enc: *mut AesEncKey) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { aes(key, 24, enc, None) }
}

/// Expands a key of AES-256 (32 bytes) for encryption and for decryption.
///
/// # Safety
///
/// `key` points to 32 bytes, `enc` and `dec` to room for a key each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_aes_keyexp_256(
    key: *const u8,
    enc: *mut AesEncKey,
    dec: *mut AesDecKey,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { aes(key, 32, enc, Some(dec)) }
}

/// Expands a key of AES-256 (32 bytes) for encryption only, which CTR, CCM and CBC encryption
/// need.
///
/// # Safety
///
/// `key` points to 32 bytes, `enc` to room for a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_aes_keyexp_enc_256(key: *const u8, enc: *mut AesEncKey) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { aes(key, 32, enc, None) }
}

/// # Safety
///
/// `block` is null or points to a block of the hash, `digest` to room for its chaining value.
unsafe fn one_block(alg: HashAlg, block: *const u8, digest: *mut u8) -> c_int {
    guard(|| {
        let bytes = chaining_bytes(alg);
        Region::new(digest, bytes)?.apart(&[Region::new(block, alg.block_bytes())?])?;
        // SAFETY: the caller's promise.
        let (block, digest) = (unsafe { input(block, alg.block_bytes()) }?, digest);
        // SAFETY: as above.
        let digest = unsafe { output(digest, bytes) }?;
        Ok(manager::one_block(&raw::cpu()?, alg, block, digest)?)
    })
}

/// The chaining value of MD5 after one block of 64 bytes: 16 bytes,
/// words in the machine's byte order. Of a key combined with 0x36 or 0x5c it is half of an HMAC's key.
///
/// # Safety
///
/// `block` points to 64 bytes, `digest` to room for 16.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_hmac_md5_one_block(block: *const u8, digest: *mut u8) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { one_block(HashAlg::Md5, block, digest) }
}

/// The chaining value of SHA-1 after one block of 64 bytes: 20 bytes,
/// words in the machine's byte order. Of a key combined with 0x36 or 0x5c it is half of an HMAC's key.
///
/// # Safety
///
/// `block` points to 64 bytes, `digest` to room for 20.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_hmac_sha1_one_block(block: *const u8, digest: *mut u8) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { one_block(HashAlg::Sha1, block, digest) }
}

/// The chaining value of SHA-224 after one block of 64 bytes: 32 bytes (which is longer than a digest),
/// words in the machine's byte order. Of a key combined with 0x36 or 0x5c it is half of an HMAC's key.
///
/// # Safety
///
/// `block` points to 64 bytes, `digest` to room for 32.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_hmac_sha224_one_block(block: *const u8, digest: *mut u8) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { one_block(HashAlg::Sha224, block, digest) }
}

/// The chaining value of SHA-256 after one block of 64 bytes: 32 bytes,
/// words in the machine's byte order. Of a key combined with 0x36 or 0x5c it is half of an HMAC's key.
///
/// # Safety
///
/// `block` points to 64 bytes, `digest` to room for 32.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_hmac_sha256_one_block(block: *const u8, digest: *mut u8) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { one_block(HashAlg::Sha256, block, digest) }
}

/// The chaining value of SHA-384 after one block of 128 bytes: 64 bytes (which is longer than a digest),
/// words in the machine's byte order. Of a key combined with 0x36 or 0x5c it is half of an HMAC's key.
///
/// # Safety
///
/// `block` points to 128 bytes, `digest` to room for 64.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_hmac_sha384_one_block(block: *const u8, digest: *mut u8) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { one_block(HashAlg::Sha384, block, digest) }
}

/// The chaining value of SHA-512 after one block of 128 bytes: 64 bytes,
/// words in the machine's byte order. Of a key combined with 0x36 or 0x5c it is half of an HMAC's key.
///
/// # Safety
///
/// `block` points to 128 bytes, `digest` to room for 64.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_hmac_sha512_one_block(block: *const u8, digest: *mut u8) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { one_block(HashAlg::Sha512, block, digest) }
}

/// Both chaining values of an HMAC's key of any length: as many bytes each as
/// convoy_hmac_*_one_block yields. A key longer than a block is hashed first (RFC 2104).
///
/// # Safety
///
/// `key` points to `key_len` bytes, `ipad` and `opad` to room for a chaining value each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_hmac_ipad_opad(
    alg: u32,
    key: *const u8,
    key_len: usize,
    ipad: *mut u8,
    opad: *mut u8,
) -> c_int {
    guard(|| {
        let alg = hash_alg(alg).ok_or(Error::Args)?;
        let bytes = chaining_bytes(alg);
        let (from, inner) = (Region::new(key, key_len)?, Region::new(ipad, bytes)?);
        inner.apart(&[from])?;
        Region::new(opad, bytes)?.apart(&[from, inner])?;
        // SAFETY: the caller's promise.
        let key = unsafe { input(key, key_len) }?;
        // SAFETY: as above.
        let (ipad, opad) = (unsafe { output(ipad, bytes) }?, opad);
        // SAFETY: as above.
        let opad = unsafe { output(opad, bytes) }?;
        let mut keys = HmacKeys::empty();
        keys.set(&raw::cpu()?, alg, key);
        let (inner, outer) = keys.expose().ok_or(Error::Args)?;
        ipad.copy_from_slice(inner);
        opad.copy_from_slice(outer);
        Ok(())
    })
}

/// Sets up an HMAC's key from one of any length (CONVOY_HASH_HMAC_*).
///
/// # Safety
///
/// `key` points to `key_len` bytes, `out` to room for a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_hmac_keyexp(
    alg: u32,
    key: *const u8,
    key_len: usize,
    out: *mut HmacKey,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise; both types have one layout, of which zeros are a value.
        let (key, out): (_, &mut HmacKeys) = unsafe { apart(key, key_len, out.cast()) }?;
        out.set(&raw::cpu()?, hash_alg(alg).ok_or(Error::Args)?, key);
        Ok(())
    })
}

/// Sets up an HMAC's key from its chaining values. They may be the fields of the key itself.
///
/// # Safety
///
/// `ipad` and `opad` point to a chaining value each, `out` to room for a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_hmac_key_set(
    alg: u32,
    ipad: *const u8,
    opad: *const u8,
    out: *mut HmacKey,
) -> c_int {
    guard(|| {
        Region::of(out)?;
        let alg = hash_alg(alg).ok_or(Error::Args);
        let bytes = alg.map_or(0, chaining_bytes);
        // Wiped also where the second pointer is refused.
        let mut copy = Zeroizing::new([[0; 64]; 2]);
        let copied: Result<(), Error> =
            [ipad, opad].into_iter().zip(copy.iter_mut()).try_for_each(|(from, to)| {
                // SAFETY: the caller's promise.
                to[..bytes].copy_from_slice(unsafe { input(from, bytes) }?);
                Ok(())
            });
        // SAFETY: the caller's promise; both types have one layout, of which zeros are a value.
        let out: &mut HmacKeys = unsafe { fresh(out.cast()) }?;
        let [inner, outer] = &*copy;
        copied?;
        Ok(out.set_chaining(alg?, &inner[..bytes], &outer[..bytes])?)
    })
}

/// Derives K1, K2 and K3 of AES-XCBC-MAC from a key of 16 bytes (RFC 3566 section 4).
///
/// # Safety
///
/// `key` points to 16 bytes, `out` to room for the keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_xcbc_keyexp(key: *const u8, out: *mut XcbcKey) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise; both types have one layout, of which zeros are a value.
        let (key, out): (_, &mut manager::XcbcKey) = unsafe { apart(key, 16, out.cast()) }?;
        Ok(out.set(&raw::cpu()?, key)?)
    })
}

/// Expands a key of AES-CMAC (16, 24 or 32 bytes) and derives its subkeys (NIST SP 800-38B section
/// 6.1).
///
/// # Safety
///
/// `key` points to `key_len` bytes, `out` to room for the keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_cmac_keyexp(
    key: *const u8,
    key_len: usize,
    out: *mut CmacKey,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise; both types have one layout, of which zeros are a value.
        let (key, out): (_, &mut manager::CmacKey) = unsafe { apart(key, key_len, out.cast()) }?;
        Ok(out.set(&raw::cpu()?, key)?)
    })
}
