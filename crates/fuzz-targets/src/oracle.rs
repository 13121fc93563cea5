//! Results of ciphers and hashes by a program that nobody here wrote.

use std::fmt;

use convoy_crypto::{KeyBits, MacAlg, Suite};

/// An independent implementation. Calling one is unsafe code, which this library must not hold, so
/// callers bring it along.
pub trait Oracle {
    /// Encrypts the text and returns an ICV of `icv_len` bytes.
    fn seal(&self, parts: &mut Parts<'_>, icv_len: usize) -> Vec<u8>;
    /// Computes the whole MAC of a message.
    fn mac(&self, alg: MacAlg, key: &[u8], message: &[u8]) -> Vec<u8>;
    /// Runs AES-CBC in either direction.
    fn cbc(&self, bits: KeyBits, encrypt: bool, key: &[u8], iv: &[u8], text: &mut [u8]);
    /// Runs AES in counter mode from the counter block given.
    fn ctr(&self, bits: KeyBits, key: &[u8], block: &[u8], text: &mut [u8]);
}

/// A packet's secrets and bytes.
pub struct Parts<'p> {
    /// The suite that seals it.
    pub suite: Suite,
    /// Keys of the cipher or AEAD, and of the MAC.
    pub keys: (&'p [u8], &'p [u8]),
    /// The nonce or IV as the suite wants it.
    pub nonce: &'p [u8],
    /// Header of a pair, additional data of an AEAD.
    pub header: &'p [u8],
    /// Text that is encrypted in place.
    pub text: &'p mut [u8],
    /// Bytes that a pair authenticates behind the text.
    pub trailer: &'p [u8],
}

impl fmt::Debug for Parts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("suite", &self.suite).finish_non_exhaustive()
    }
}
