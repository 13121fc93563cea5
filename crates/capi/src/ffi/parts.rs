//! What goes through an AEAD in parts.

use std::ops::Deref;

use convoy_crypto::{
    AeadKey, Suite,
    manager::{ChaChaStream, GcmStream, StreamError},
};

use super::raw::Error;

/// A message on its way through the AEAD of its key.
#[derive(Debug)]
pub(super) enum Parts<K> {
    Gcm(GcmStream<K>),
    /// All of the message is additional data.
    Gmac(GcmStream<K>),
    ChaCha(ChaChaStream<K>),
}

impl<K: Deref<Target = AeadKey>> Parts<K> {
    pub(super) fn new(key: K, seals: bool, iv: &[u8]) -> Result<Self, Error> {
        let suite = key.suite();
        if suite == Suite::ChaCha20Poly1305 {
            let begin = if seals { ChaChaStream::seal } else { ChaChaStream::open };
            return Ok(Self::ChaCha(begin(key, iv.try_into().map_err(|_| Error::Length)?)?));
        }
        let begin = if seals { GcmStream::seal } else { GcmStream::open };
        let parts = begin(key, iv)?;
        Ok(if matches!(suite, Suite::Gmac(_)) { Self::Gmac(parts) } else { Self::Gcm(parts) })
    }

    pub(super) fn aad(&mut self, aad: &[u8]) -> Result<(), StreamError> {
        match self {
            Self::Gcm(parts) | Self::Gmac(parts) => parts.aad(aad),
            Self::ChaCha(parts) => parts.aad(aad),
        }
    }

    /// Makes sure that an update of so many bytes succeeds.
    pub(super) fn prepare(&mut self, len: usize) -> Result<(), StreamError> {
        match self {
            Self::Gcm(parts) => parts.prepare(len),
            Self::Gmac(_) => Ok(()),
            Self::ChaCha(parts) => parts.prepare(len),
        }
    }

    /// Takes the memory that further parts may need.
    pub(super) fn reserve(&mut self) -> Result<(), StreamError> {
        match self {
            // They do without where there is none.
            Self::Gcm(_) | Self::Gmac(_) => Ok(()),
            Self::ChaCha(parts) => parts.reserve(),
        }
    }

    pub(super) fn update(&mut self, data: &mut [u8]) -> Result<(), StreamError> {
        match self {
            Self::Gcm(parts) => parts.update(data),
            Self::Gmac(parts) => parts.aad(data),
            Self::ChaCha(parts) => parts.update(data),
        }
    }

    pub(super) fn is_seal(&self) -> bool {
        match self {
            Self::Gcm(parts) | Self::Gmac(parts) => parts.is_seal(),
            Self::ChaCha(parts) => parts.is_seal(),
        }
    }

    pub(super) fn tag(&mut self) -> Result<[u8; 16], StreamError> {
        match self {
            Self::Gcm(parts) | Self::Gmac(parts) => parts.tag(),
            Self::ChaCha(parts) => parts.tag(),
        }
    }

    pub(super) fn verify(&mut self, tag: &[u8]) -> Result<bool, StreamError> {
        match self {
            Self::Gcm(parts) | Self::Gmac(parts) => parts.verify(tag),
            Self::ChaCha(parts) => parts.verify(tag),
        }
    }

    /// The tag of a message whose caller compares it, whichever way the message goes.
    pub(super) fn any_tag(&mut self) -> Result<[u8; 16], StreamError> {
        match self {
            _ if self.is_seal() => self.tag(),
            Self::Gcm(parts) | Self::Gmac(parts) => parts.expected_tag(),
            Self::ChaCha(parts) => parts.expected_tag(),
        }
    }
}

impl From<StreamError> for Error {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::OutOfMemory => Self::Memory,
            StreamError::NotGcm(_)
            | StreamError::NotChaCha20Poly1305(_)
            | StreamError::TextOfGmac => Self::Args,
            StreamError::AadBehindText | StreamError::Ended | StreamError::TagOfOpened => {
                Self::State
            }
            StreamError::IvLength { .. }
            | StreamError::AadTooLong
            | StreamError::DataTooLong { .. }
            | StreamError::OutputLength { .. } => Self::Length,
        }
    }
}
