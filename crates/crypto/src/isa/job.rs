//! Jobs: a packet's share of a pass, as kernels take it.

use std::cell::Cell;

use super::Tables;
use crate::{
    KeyBits,
    block::{CbcMacKey, ChaChaKey, HmacKey, RoundKeys},
};

/// A packet's share of a cipher pass (AES-CBC or AES-CTR), in place.
pub(crate) struct CipherJob<'j> {
    /// Round keys of the pass's key size and direction.
    pub(crate) keys: &'j RoundKeys,
    /// CBC: the IV. CTR: the first counter block; its last 32 bits count (RFC 3686 section 4).
    pub(crate) iv: &'j [u8; 16],
    /// CBC: whole blocks of 16 bytes. CTR: any length.
    pub(crate) data: &'j mut [u8],
}

/// A packet's share of an AES-XCBC or AES-CMAC pass.
pub(crate) struct CbcMacJob<'j> {
    pub(crate) key: &'j CbcMacKey,
    /// Authenticated bytes, any length.
    pub(crate) message: &'j [u8],
    /// Authenticated bytes behind the message: at most [`TRAILER_MAX`].
    pub(crate) trailer: &'j [u8],
    /// Room for the full MAC.
    pub(crate) tag: [u8; 16],
}

/// A packet's share of an HMAC pass.
pub(crate) struct HmacJob<'j> {
    pub(crate) key: &'j HmacKey,
    /// Authenticated bytes, any length.
    pub(crate) message: &'j [u8],
    /// Authenticated bytes behind the message: at most [`TRAILER_MAX`].
    pub(crate) trailer: &'j [u8],
    /// Room for the full MAC: as many bytes as the hash has, in its byte order.
    pub(crate) tag: [u8; 64],
}

/// Most bytes of a trailer; ESP needs 4 (RFC 4303 section 2.2.1).
pub(crate) const TRAILER_MAX: usize = 16;

/// A packet's share of an AES-CCM pass (NIST SP 800-38C), in place.
pub(crate) struct CcmJob<'j> {
    pub(crate) keys: &'j RoundKeys,
    /// The nonce in the front; behind it, zeros.
    pub(crate) nonce: &'j [u8; 16],
    /// Bytes of the nonce, 7 to 13; the data is shorter than its length field allows.
    pub(crate) nonce_len: usize,
    /// Length of the ICV, 4 to 16, even: it is part of what is authenticated.
    pub(crate) icv_len: usize,
    pub(crate) aad: &'j [u8],
    pub(crate) data: &'j mut [u8],
    /// Room for the tag, all 16 bytes. MACs come out of the lanes while jobs are still looked at.
    pub(crate) tag: Cell<[u8; 16]>,
    /// For the pass alone: the MAC of all that comes before the data. Zero before and behind.
    pub(crate) state: Cell<[u8; 16]>,
}

/// A packet's share of a ChaCha20-Poly1305 pass (RFC 8439), in place.
pub(crate) struct ChaChaJob<'j> {
    pub(crate) key: &'j ChaChaKey,
    /// The nonce, 12 bytes; behind it, zeros.
    pub(crate) nonce: &'j [u8; 16],
    pub(crate) aad: &'j [u8],
    pub(crate) data: &'j mut [u8],
    /// Room for the tag.
    pub(crate) tag: [u8; 16],
}

/// A packet's share of an AES-GMAC pass (RFC 4543): additional data and data are authenticated as
/// one string.
pub(crate) struct GmacJob<'j> {
    pub(crate) tables: &'j Tables,
    /// The nonce, 12 bytes; behind it, zeros.
    pub(crate) nonce: &'j [u8; 16],
    pub(crate) aad: &'j [u8],
    pub(crate) data: &'j [u8],
    /// Room for the tag.
    pub(crate) tag: [u8; 16],
}

/// Round keys of AES and the size of their key.
#[derive(Clone, Copy)]
pub(crate) struct SizedKeys<'k> {
    pub(crate) bits: KeyBits,
    pub(crate) keys: &'k RoundKeys,
}
