//! Expansion of keys into memory of the caller's.

use std::ffi::{c_int, c_void};

use convoy_crypto::{
    KeyBits,
    manager::{
        self, AesDecryptKey, AesEncryptKey, Buffer, Iv, Job as Inner, JobCipher, Runner, Span,
        XcbcKey, chaining_bytes, round_key_bytes,
    },
};
use zeroize::Zeroizing;

use super::raw::{copied, cpu, input, noting_of_secrets, output};
use crate::{
    check::hmac_hash,
    types::{
        ERR_HASH_ALGO, ERR_KEY_LEN, ERR_MISSING_CPUFLAGS_INIT_MGR, ERR_NULL_AUTH, ERR_NULL_EXP_KEY,
        ERR_NULL_KEY, ERR_NULL_SRC,
    },
};

/// The key size of so many bits, which callers of this know.
const fn bits(bits: usize) -> KeyBits {
    match KeyBits::from_bits(bits) {
        Some(bits) => bits,
        None => panic!("AES has keys of 128, 192 and 256 bits"),
    }
}

/// Expands a key of AES for encryption and for decryption.
///
/// # Safety
///
/// Each pointer is null, or `key` points to the key, and the others to room for its round keys.
pub(super) unsafe extern "C" fn keyexp<const BITS: usize>(
    key: *const c_void,
    enc: *mut c_void,
    dec: *mut c_void,
) {
    noting_of_secrets(|| {
        let bits = const { bits(BITS) };
        let (cpu, room) = (cpu().ok_or(ERR_MISSING_CPUFLAGS_INIT_MGR)?, round_key_bytes(bits));
        // SAFETY: the caller's promise.
        let key = unsafe { input(key.cast(), bits.bytes() as u64, ERR_NULL_KEY) }?;
        let (mut forward, mut inverse) = (AesEncryptKey::empty(), AesDecryptKey::empty());
        forward.set(cpu, key).map_err(|_| ERR_KEY_LEN)?;
        inverse.set(cpu, &forward);
        if enc.is_null() || dec.is_null() {
            return Err(ERR_NULL_EXP_KEY);
        }
        // The key may lie where round keys go: it was read before.
        // SAFETY: as above.
        let enc = unsafe { output(enc.cast(), room as u64, ERR_NULL_EXP_KEY) }?;
        forward.expose_round_keys(enc).map_err(|_| ERR_KEY_LEN)?;
        // SAFETY: as above.
        let dec = unsafe { output(dec.cast(), room as u64, ERR_NULL_EXP_KEY) }?;
        inverse.expose_round_keys(dec).map_err(|_| ERR_KEY_LEN)
    });
}

/// Derives the subkeys of AES-CMAC (NIST SP 800-38B section 6.1) from round keys.
///
/// # Safety
///
/// Each pointer is null, or `keys` points to the round keys, and the others to room for 16 bytes.
pub(super) unsafe extern "C" fn cmac_subkeys<const BITS: usize>(
    keys: *const c_void,
    k1: *mut c_void,
    k2: *mut c_void,
) {
    noting_of_secrets(|| {
        let bits = const { bits(BITS) };
        // SAFETY: the caller's promise.
        let keys = unsafe { input(keys.cast(), round_key_bytes(bits) as u64, ERR_NULL_EXP_KEY) }?;
        let mut key = AesEncryptKey::empty();
        key.set_round_keys(bits, keys).map_err(|_| ERR_KEY_LEN)?;
        let double = |block: u128| {
            let carry = 0u128.wrapping_sub(block >> 127);
            (block << 1) ^ (carry & 0x87)
        };
        let first = double(u128::from_be_bytes(*encrypted_zeros(&key)?));
        if k1.is_null() || k2.is_null() {
            return Err(ERR_NULL_KEY);
        }
        // SAFETY: the caller's promise.
        let k1 = unsafe { output(k1.cast(), 16, ERR_NULL_KEY) }?;
        k1.copy_from_slice(&first.to_be_bytes());
        // SAFETY: as above.
        let k2 = unsafe { output(k2.cast(), 16, ERR_NULL_KEY) }?;
        k2.copy_from_slice(&double(first).to_be_bytes());
        Ok(())
    });
}

/// A block of zeros, encrypted.
fn encrypted_zeros(key: &AesEncryptKey) -> Result<Zeroizing<[u8; 16]>, c_int> {
    let mut block = Zeroizing::new([0; 16]);
    let mut job = Inner::default();
    job.buffer = Buffer::InPlace(&mut *block);
    (job.cipher, job.cipher_span) = (JobCipher::CbcEncrypt(key), Span::new(0, 16));
    job.iv = Iv::new(&[0; 16]);
    let cpu = cpu().ok_or(ERR_MISSING_CPUFLAGS_INIT_MGR)?;
    Runner::best(cpu).run_one(&mut job);
    Ok(block)
}

/// Derives K1, K2 and K3 of AES-XCBC-MAC (RFC 3566 section 4), and expands K1.
///
/// # Safety
///
/// Each pointer is null, or `key` points to 16 bytes, `k1` to room for 176 and the others for 16.
pub(super) unsafe extern "C" fn xcbc_keyexp(
    key: *const c_void,
    k1: *mut c_void,
    k2: *mut c_void,
    k3: *mut c_void,
) {
    noting_of_secrets(|| {
        // SAFETY: the caller's promise.
        let key = unsafe { input(key.cast(), 16, ERR_NULL_KEY) }?;
        let mut keys = XcbcKey::empty();
        let cpu = cpu().ok_or(ERR_MISSING_CPUFLAGS_INIT_MGR)?;
        keys.set(cpu, key).map_err(|_| ERR_KEY_LEN)?;
        if k1.is_null() || k2.is_null() || k3.is_null() {
            return Err(ERR_NULL_EXP_KEY);
        }
        // SAFETY: the caller's promise.
        let k1 = unsafe { output(k1.cast(), 176, ERR_NULL_EXP_KEY) }?;
        let [second, third] = keys.expose_parts(k1).map_err(|_| ERR_KEY_LEN)?;
        // SAFETY: as above.
        unsafe { output(k2.cast(), 16, ERR_NULL_EXP_KEY) }?.copy_from_slice(second);
        // SAFETY: as above.
        unsafe { output(k3.cast(), 16, ERR_NULL_EXP_KEY) }?.copy_from_slice(third);
        Ok(())
    });
}

/// The chaining value of a hash after one block.
///
/// # Safety
///
/// Each pointer is null, or `block` points to a block of the hash, and `out` to room for its chaining value.
pub(super) unsafe extern "C" fn one_block<const HASH: u32>(block: *const c_void, out: *mut c_void) {
    noting_of_secrets(|| {
        let alg = hmac_hash(HASH).ok_or(ERR_HASH_ALGO)?;
        // SAFETY: the caller's promise.
        let block = unsafe { input(block.cast(), alg.block_bytes() as u64, ERR_NULL_SRC) }?;
        let mut value = Zeroizing::new([0; 64]);
        let value = &mut value[..chaining_bytes(alg)];
        let cpu = cpu().ok_or(ERR_MISSING_CPUFLAGS_INIT_MGR)?;
        manager::one_block(cpu, alg, block, value).map_err(|_| ERR_KEY_LEN)?;
        // SAFETY: as above.
        let out = unsafe { output(out.cast(), value.len() as u64, ERR_NULL_AUTH) }?;
        out.copy_from_slice(value);
        Ok(())
    });
}

/// The round keys, chaining values and subkeys of a job, in the types that kernels read.
pub(super) fn subkey(pointer: *const u8) -> Result<Zeroizing<[u8; 16]>, c_int> {
    // SAFETY: whoever submits a job promises what it points to.
    unsafe { copied(pointer, ERR_NULL_KEY) }.map(Zeroizing::new)
}
