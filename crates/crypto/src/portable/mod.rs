//! The portable tier: RustCrypto's constant-time software code, one packet at a time.

mod gcm;

pub(crate) use gcm::SoftKey;
