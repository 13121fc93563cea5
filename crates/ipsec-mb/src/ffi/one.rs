//! Packets that come alone.

use std::slice;

use convoy_crypto::{AeadKey, Nonce, OpError, OpenOp, SealOp, open_burst, seal_burst};

/// Seals a packet alone. Whoever asks for it vouches for its nonce.
pub(super) fn seal(
    key: &AeadKey,
    nonce: [u8; 12],
    aad: &[u8],
    text: &mut [u8],
    tag: &mut [u8; 16],
) -> Result<(), OpError> {
    let mut op = SealOp::with_aead_key(key, Nonce::new(nonce), aad, text, tag)?;
    seal_burst(slice::from_mut(&mut op));
    Ok(())
}

/// Opens a packet alone, and gives the tag that it should have.
pub(super) fn open(
    key: &AeadKey,
    nonce: [u8; 12],
    aad: &[u8],
    text: &mut [u8],
    tag: &mut [u8; 16],
) -> Result<(), OpError> {
    let mut op = OpenOp::unverified(key, nonce, aad, text, tag)?;
    open_burst(slice::from_mut(&mut op));
    Ok(())
}
