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

use crate::pass::ChaChaJob;

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
    // Shorter than 2^32 blocks, so the counter does not wrap; if it did, the data would stay as it
    // is.
    let _ = cipher.try_apply_keystream(job.data);
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
