//! The portable tier: RustCrypto's constant-time software code, one packet at a time.

pub(crate) mod aes;
pub(crate) mod chacha;
mod gcm;
mod gcm_parts;
pub(crate) mod hash;

pub(crate) use gcm::SoftKey;
pub(crate) use gcm_parts::add_to_counter;
