//! The portable tier: RustCrypto's constant-time software code, one packet at a time.

pub(crate) mod aes;
pub(crate) mod chacha;
mod gcm;
pub(crate) mod hash;

pub(crate) use gcm::SoftKey;
