//! Passes: what kernels do to a run of packets of one algorithm.
//!
//! A pass takes a slice of jobs, one per packet, each with a key, a length and a place of its own,
//! and runs them in lanes: it sorts by length once and keeps every lane full to the end. Everything
//! it is given was checked before; what it cannot make sense of it leaves alone.

pub(crate) mod aes;
mod batch;
pub(crate) mod chacha;
mod digest;
pub(crate) mod gmac;
pub(crate) mod hmac;
pub(crate) mod record;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use aes::{
    cbc_decrypt, cbc_encrypt, cbc_mac, ccm, ctr, expand_cbc_mac, expand_decrypt, expand_encrypt,
};
pub(crate) use batch::{Batch, Tagged};
pub(crate) use chacha::chacha20_poly1305;
pub(crate) use digest::digest;
pub(crate) use gmac::gmac;
pub(crate) use hmac::{Hasher, hmac};
