//! The ciphers of old peers in a build without the feature `legacy`: there are no keys of them.

use crate::{KeyBits, KeyError};

/// A key that cannot be made.
pub(crate) enum LegacyKey {}

impl LegacyKey {
    /// # Errors
    /// [`KeyError::LegacyLeftOut`], always.
    pub(crate) fn triple_des(_: &[u8]) -> Result<Self, KeyError> {
        Err(KeyError::LegacyLeftOut)
    }

    /// # Errors
    /// [`KeyError::LegacyLeftOut`], always.
    pub(crate) fn camellia(_: KeyBits, _: &[u8]) -> Result<Self, KeyError> {
        Err(KeyError::LegacyLeftOut)
    }

    pub(crate) fn cbc_encrypt(&self, _: &[u8; 16], _: &mut [u8]) {
        match *self {}
    }

    pub(crate) fn cbc_decrypt(&self, _: &[u8; 16], _: &mut [u8]) {
        match *self {}
    }
}
