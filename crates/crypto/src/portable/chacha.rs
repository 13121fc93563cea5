//! ChaCha20-Poly1305 (RFC 8439) from RustCrypto's `chacha20` and `poly1305`.

use chacha20::{
    ChaCha20,
    cipher::{KeyIvInit, StreamCipher, StreamCipherSeek},
};
use poly1305::{
    Poly1305,
    universal_hash::{KeyInit, UniversalHash},
};
use zeroize::Zeroize;

use crate::{
    block::ChaChaKey,
    isa::{
        job::ChaChaJob,
        part::{ChaChaState, Pads},
    },
    poly::Poly,
};

/// Runs one packet from start to end: transforms the data and leaves the tag in the job.
pub(crate) fn run(seal: bool, job: &mut ChaChaJob<'_>) {
    let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *job.nonce;
    let nonce = [a, b, c, d, e, f, g, h, i, j, k, l];
    let mut cipher = ChaCha20::new(&job.key.0.into(), &nonce.into());
    let mut mac_key = poly1305::Key::default();
    cipher.apply_keystream(&mut mac_key);
    let mut mac = Poly1305::new(&mac_key);
    mac_key.zeroize();
    // Block 0 keys the MAC; the data starts with block 1 (RFC 8439 section 2.8).
    cipher.seek(64u64);
    mac.update_padded(job.aad);
    if !seal {
        mac.update_padded(job.data);
    }
    apply(&mut cipher, job.data);
    if seal {
        mac.update_padded(job.data);
    }
    let mut lengths = poly1305::Block::default();
    let (aad, data) = lengths.split_at_mut(8);
    aad.copy_from_slice(&(job.aad.len() as u64).to_le_bytes());
    data.copy_from_slice(&(job.data.len() as u64).to_le_bytes());
    mac.update(&[lengths]);
    job.tag = mac.finalize().into();
}

/// The MAC of a message, with its key (RFC 8439 section 2.6) and nothing else.
pub(crate) fn mac(key: &ChaChaKey, nonce: &[u8; 16]) -> Poly {
    let mut block = [0; 64];
    apply(&mut cipher(key, nonce, 0), &mut block);
    let mac = Poly::new(&block);
    block.zeroize();
    mac
}

/// Runs a part of a message from a block of keystream on; its MAC has all before.
pub(crate) fn part(
    seal: bool,
    key: &ChaChaKey,
    nonce: &[u8; 16],
    block: u32,
    data: &mut [u8],
    state: &mut ChaChaState,
) {
    if !seal {
        state.take(0, data);
    }
    apply(&mut cipher(key, nonce, block), data);
    if seal {
        state.take(0, data);
    }
}

/// Keystream from a block on.
pub(crate) fn keystream(key: &ChaChaKey, nonce: &[u8; 16], block: u32, pads: &mut Pads) {
    let pads = pads.as_flattened_mut();
    pads.fill(0);
    // Behind the last block there is no text.
    let len = pads.len().min(usize::try_from(u32::MAX - block).unwrap_or(0).saturating_mul(64));
    apply(&mut cipher(key, nonce, block), &mut pads[..len]);
}

fn cipher(key: &ChaChaKey, nonce: &[u8; 16], block: u32) -> ChaCha20 {
    let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *nonce;
    let mut cipher = ChaCha20::new(&key.0.into(), &[a, b, c, d, e, f, g, h, i, j, k, l].into());
    cipher.seek(u64::from(block) * 64);
    cipher
}

/// Adds keystream to data. Data is never longer than the keystream; if it were, nothing of it would
/// be left, neither in the clear nor under a keystream that has been used.
fn apply(cipher: &mut ChaCha20, data: &mut [u8]) {
    if cipher.try_apply_keystream(data).is_err() {
        data.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_behind_the_end_of_the_keystream_is_wiped() {
        let mut cipher = ChaCha20::new(&[1; 32].into(), &[2; 12].into());
        cipher.seek(((1u64 << 32) - 2) * 64);
        let mut data = [3; 64];
        apply(&mut cipher, &mut data);
        assert!(data != [0; 64] && data != [3; 64]);
        let mut data = [3; 200];
        apply(&mut cipher, &mut data);
        assert_eq!(data, [0; 200]);
    }
}
