//! The portable tier: RustCrypto's constant-time software code, one packet at a time; and the ciphers of
//! old peers, whose code is not constant in time.

pub(crate) mod aes;
pub(crate) mod chacha;
mod gcm;
mod gcm_parts;
pub(crate) mod hash;
#[cfg_attr(not(feature = "legacy"), path = "no_legacy.rs")]
mod legacy;

pub(crate) use gcm::SoftKey;
pub(crate) use gcm_parts::add_to_counter;
pub(crate) use legacy::LegacyKey;
