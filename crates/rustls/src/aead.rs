//! AEADs that seal and open records of both versions of TLS.

use convoy_crypto::{
    AeadKey, Cpu, GcmParams, IcvLen, KeyBits, Nonce, OpenOp, SealOp, SecretBytes, Suite, Verdict,
    open_burst, seal_burst,
};
use rustls::{
    ConnectionTrafficSecrets, Error,
    crypto::cipher::{self, Iv},
};

/// Bytes of a tag.
pub(crate) const TAG: usize = 16;

/// Most bytes of a record's text (RFC 8446 section 5.1).
pub(crate) const MAX_TEXT: usize = 1 << 14;

/// An AEAD of TLS that is faster here, one record at a time, than elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aead {
    Aes128Gcm,
    Aes256Gcm,
    ChaCha20Poly1305,
}

impl Aead {
    /// Bytes of a key.
    pub(crate) const fn key_len(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes256Gcm | Self::ChaCha20Poly1305 => 32,
        }
    }

    /// Keys as the kernel's TLS takes them.
    pub(crate) fn secrets(self, key: cipher::AeadKey, iv: Iv) -> ConnectionTrafficSecrets {
        match self {
            Self::Aes128Gcm => ConnectionTrafficSecrets::Aes128Gcm { key, iv },
            Self::Aes256Gcm => ConnectionTrafficSecrets::Aes256Gcm { key, iv },
            Self::ChaCha20Poly1305 => ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv },
        }
    }

    /// Bytes of a nonce that stand in front of the text of a TLS 1.2 record.
    pub(crate) const fn explicit(self) -> usize {
        match self {
            Self::Aes128Gcm | Self::Aes256Gcm => 8,
            Self::ChaCha20Poly1305 => 0,
        }
    }

    fn suite(self) -> Suite {
        let gcm = |bits| Suite::Gcm(GcmParams::new(bits, IcvLen::Icv16));
        match self {
            Self::Aes128Gcm => gcm(KeyBits::Aes128),
            Self::Aes256Gcm => gcm(KeyBits::Aes256),
            Self::ChaCha20Poly1305 => Suite::ChaCha20Poly1305,
        }
    }

    /// None where `key` has not the length that rustls was told, or tiers are denied that there are not;
    /// rustls takes no error here, so the records are refused then.
    fn set_up(self, key: &cipher::AeadKey) -> Option<AeadKey> {
        AeadKey::new(&Cpu::detect().ok()?, self.suite(), SecretBytes::copy_from(key.as_ref())).ok()
    }
}

/// Key of the records that one side sends.
pub(crate) struct Sealer {
    key: Option<AeadKey>,
    /// The lowest number that the next record may have.
    next: u64,
}

impl Sealer {
    pub(crate) fn new(aead: Aead, key: &cipher::AeadKey) -> Self {
        Self { key: aead.set_up(key), next: 0 }
    }

    /// Seals `record`, a text and room for its tag.
    ///
    /// # Errors
    ///
    /// [`Error::EncryptError`] if a record of this number or a higher one was sealed before: the nonce would
    /// come again.
    pub(crate) fn seal(
        &mut self,
        seq: u64,
        cipher::Nonce(nonce): cipher::Nonce,
        aad: &[u8],
        record: &mut [u8],
    ) -> Result<(), Error> {
        let key = self.key.as_ref().ok_or(Error::EncryptError)?;
        if seq < self.next {
            return Err(Error::EncryptError);
        }
        self.next = seq.checked_add(1).ok_or(Error::EncryptError)?;
        let text = record.len().checked_sub(TAG).ok_or(Error::EncryptError)?;
        let (text, tag) = record.split_at_mut(text);
        let seal = SealOp::with_aead_key(key, Nonce::new(nonce), aad, text, tag);
        seal_burst(&mut [seal.map_err(|_| Error::EncryptError)?]);
        Ok(())
    }
}

/// Key of the records that one side receives.
pub(crate) struct Opener(Option<AeadKey>);

impl Opener {
    pub(crate) fn new(aead: Aead, key: &cipher::AeadKey) -> Self {
        Self(aead.set_up(key))
    }

    /// Opens `record`, a text and its tag, and gives the length of the text. A text that is not authentic is
    /// wiped.
    ///
    /// # Errors
    ///
    /// [`Error::DecryptError`] if it is not authentic.
    pub(crate) fn open(
        &self,
        cipher::Nonce(nonce): cipher::Nonce,
        aad: &[u8],
        record: &mut [u8],
    ) -> Result<usize, Error> {
        let key = self.0.as_ref().ok_or(Error::DecryptError)?;
        let len = record.len().checked_sub(TAG).ok_or(Error::DecryptError)?;
        let (text, tag) = record.split_at_mut(len);
        let open = OpenOp::with_aead_key(key, nonce, aad, text, tag);
        let mut burst = [open.map_err(|_| Error::DecryptError)?];
        open_burst(&mut burst);
        match burst[0].verdict() {
            Verdict::Authentic => Ok(len),
            Verdict::Pending | Verdict::Forged => Err(Error::DecryptError),
        }
    }
}
