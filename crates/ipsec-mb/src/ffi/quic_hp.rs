//! Header protection of QUIC (RFC 9001 section 5.4): masks for packets of one key, in arrays.

use std::ffi::{c_int, c_void};

use convoy_crypto::{
    KeyBits,
    manager::{AesEncryptKey, Runner},
};
use zeroize::Zeroizing;

use super::{
    quic::element,
    raw::{copied, output, set_errno, set_global_errno},
    state::{self, CHUNK},
    views::round_keys,
};
use crate::types::{
    ERR_CIPH_LEN, ERR_KEY_LEN, ERR_NULL_DST, ERR_NULL_EXP_KEY, ERR_NULL_MBMGR, ERR_NULL_SRC, Mgr,
};

/// Bytes of a mask.
const MASK: u64 = 5;

/// Samples, each of which becomes a block that begins with its mask.
type Samples<'s> = &'s mut [[u8; 16]];

/// Makes masks of samples, by what `key` makes with the manager's kernels.
///
/// # Safety
///
/// As for [`imb_quic_hp_aes_ecb`].
unsafe fn masks<W: FnMut(&Runner, Samples<'_>) -> Result<(), c_int>>(
    mgr: *mut Mgr,
    key: impl FnOnce() -> Result<W, c_int>,
    dst: *const *mut c_void,
    src: *const *const c_void,
    count: u64,
) {
    // SAFETY: the caller's promise.
    let Some((mgr, state)) = (unsafe { state::enter(mgr) }) else {
        return set_global_errno(ERR_NULL_MBMGR);
    };
    let work = || {
        let mut key = key()?;
        if dst.is_null() || src.is_null() {
            return Err(if dst.is_null() { ERR_NULL_DST } else { ERR_NULL_SRC });
        }
        let count = count as usize;
        for at in 0..count {
            // SAFETY: as above.
            if unsafe { element(dst, at) }.is_null() {
                return Err(ERR_NULL_DST);
            }
            // SAFETY: as above.
            if unsafe { element(src, at) }.is_null() {
                return Err(ERR_NULL_SRC);
            }
        }
        let mut samples = Zeroizing::new([[0; 16]; CHUNK]);
        for first in (0..count).step_by(CHUNK) {
            let Some(chunk) = samples.get_mut(..CHUNK.min(count - first)) else { break };
            for (at, sample) in chunk.iter_mut().enumerate() {
                // SAFETY: as above.
                let from = unsafe { element(src, first + at) };
                // SAFETY: as above.
                *sample = unsafe { copied(from.cast(), ERR_NULL_SRC) }?;
            }
            key(&state.runner, chunk)?;
            for (at, mask) in chunk.iter().enumerate() {
                // SAFETY: as above.
                let to = unsafe { element(dst, first + at) };
                // SAFETY: as above.
                let to = unsafe { output(to.cast(), MASK, ERR_NULL_DST) }?;
                to.iter_mut().zip(mask).for_each(|(to, byte)| *to = *byte);
            }
        }
        Ok(())
    };
    let error = work().err().unwrap_or(0);
    state.runner.wipe_registers();
    set_errno(mgr, error);
}

/// Makes masks with AES, of samples of 16 bytes.
///
/// # Safety
///
/// Each pointer is null, or `mgr` is a manager, `key` points to round keys for encryption, and the arrays have an element for
/// each packet: null, or a place for 5 bytes, and 16 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imb_quic_hp_aes_ecb(
    mgr: *mut Mgr,
    key: *const c_void,
    dst: *const *mut c_void,
    src: *const *const c_void,
    count: u64,
    key_len: u32,
) {
    let expanded = || {
        if key.is_null() {
            return Err(ERR_NULL_EXP_KEY);
        }
        // There is no QUIC with keys of 192 bits.
        let bits = match key_len {
            16 => KeyBits::Aes128,
            32 => KeyBits::Aes256,
            _ => return Err(ERR_KEY_LEN),
        };
        let mut aes = AesEncryptKey::empty();
        // SAFETY: the caller's promise.
        let keys = unsafe { round_keys(key.cast(), bits) }?;
        aes.set_round_keys(bits, keys).map_err(|_| ERR_KEY_LEN)?;
        Ok(move |runner: &Runner, samples: Samples<'_>| {
            runner.encrypt_blocks(&aes, samples).map_err(|_| ERR_KEY_LEN)
        })
    };
    // SAFETY: as above.
    unsafe { masks(mgr, expanded, dst, src, count) };
}

/// Makes masks with ChaCha20: of samples that are the number of a block and a nonce.
///
/// # Safety
///
/// As for [`imb_quic_hp_aes_ecb`]; `key` points to 32 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imb_quic_hp_chacha20(
    mgr: *mut Mgr,
    key: *const c_void,
    dst: *const *mut c_void,
    src: *const *const c_void,
    count: u64,
) {
    let secret = || {
        // SAFETY: the caller's promise.
        let key = Zeroizing::new(unsafe { copied::<32>(key.cast(), ERR_NULL_EXP_KEY) }?);
        Ok(move |runner: &Runner, samples: Samples<'_>| {
            samples.iter_mut().try_for_each(|sample| {
                let [a, b, c, d, nonce @ ..] = *sample;
                *sample = [0; 16];
                let block = u32::from_le_bytes([a, b, c, d]);
                runner.chacha20(&key, &nonce, block, sample).map_err(|_| ERR_CIPH_LEN)
            })
        })
    };
    // SAFETY: as above.
    unsafe { masks(mgr, secret, dst, src, count) };
}
