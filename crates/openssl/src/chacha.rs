//! A cipher context of ChaCha20-Poly1305, as OpenSSL's `EVP_CIPHER_CTX` holds one for each direction.

use std::fmt;

use convoy_crypto::{AeadKey, Shared, Suite, manager::ChaChaStream};
use zeroize::Zeroize;

use crate::{
    Reason,
    message::{Message, TAG, TLS_AAD},
};

/// Bytes of a key.
pub const KEY: usize = 32;

/// Bytes of an IV.
pub const IV: usize = 12;

/// One direction of a user of ChaCha20-Poly1305: a key, an IV, and a message or record on its way.
///
/// Calls may come in every order that `EVP_CIPHER_CTX` allows: the IV before or after the key, tags
/// before or after the text, copies in the middle of a message. [Where it differs](crate::differences) from
/// OpenSSL's default provider is one list for all ciphers.
pub struct ChaCha {
    message: Message<ChaChaStream<Shared<AeadKey>>>,
    iv: [u8; IV],
    state: IvState,
    /// Base of the nonces of TLS 1.2 records (RFC 7905 section 2): the IV that was set last.
    fixed: Option<[u8; IV]>,
    /// 0 until it is set.
    tag_len: usize,
    /// Of the next record, with the length of its text alone.
    tls_aad: Option<[u8; TLS_AAD]>,
    tls_pad: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IvState {
    /// Missing, or used.
    Spent,
    /// There, and not used yet.
    Ready,
    /// A message is under way with it.
    InUse,
}

impl ChaCha {
    /// A context without a key.
    #[must_use]
    pub fn new() -> Self {
        Self {
            message: Message::new(),
            iv: [0; IV],
            state: IvState::Spent,
            fixed: None,
            tag_len: 0,
            tls_aad: None,
            tls_pad: 0,
        }
    }

    /// A copy, which goes on by itself.
    ///
    /// # Errors
    ///
    /// [`Reason::MallocFailure`].
    pub fn try_clone(&self) -> Result<Self, Reason> {
        let message = self.message.try_clone()?;
        let Self { iv, state, fixed, tag_len, tls_aad, tls_pad, .. } = *self;
        Ok(Self { message, iv, state, fixed, tag_len, tls_aad, tls_pad })
    }

    /// Sets the direction and, if given, key and IV. Either may come alone, and later.
    ///
    /// # Errors
    ///
    /// [`Reason::InvalidIvLength`], [`Reason::InvalidKeyLength`].
    pub fn init(
        &mut self,
        seals: bool,
        key: Option<&[u8]>,
        iv: Option<&[u8]>,
    ) -> Result<(), Reason> {
        if self.message.turn(seals) {
            self.end_message();
        }
        if let Some(iv) = iv {
            let iv = iv.try_into().map_err(|_| Reason::InvalidIvLength)?;
            self.set_iv(iv);
            self.tls_aad = None;
        }
        if let Some(key) = key {
            if key.len() != KEY {
                return Err(Reason::InvalidKeyLength);
            }
            self.end_message();
            self.tls_aad = None;
            self.message.set_key(Suite::ChaCha20Poly1305, key)?;
        }
        Ok(())
    }

    /// Ends the message under way, which cannot be continued and whose IV cannot be used again.
    fn end_message(&mut self) {
        if self.state == IvState::InUse {
            self.state = IvState::Spent;
        }
    }

    fn set_iv(&mut self, iv: [u8; IV]) {
        (self.iv, self.fixed, self.state) = (iv, Some(iv), IvState::Ready);
    }

    /// True if it encrypts.
    #[must_use]
    pub fn seals(&self) -> bool {
        self.message.seals()
    }

    /// Bytes of the tag, as far as that was said: 0 else.
    #[must_use]
    pub fn tag_len(&self) -> usize {
        self.tag_len
    }

    /// Bytes that a TLS record becomes longer by.
    #[must_use]
    pub fn tls_pad(&self) -> usize {
        self.tls_pad
    }

    /// Bytes of text of the record of TLS 1.2 that is expected next.
    #[must_use]
    pub fn record_len(&self) -> Option<usize> {
        self.tls_aad.map(|aad| usize::from(u16::from_be_bytes([aad[11], aad[12]])))
    }

    /// The tag that is to be found when decrypting; of one that is none, only the length.
    ///
    /// # Errors
    ///
    /// [`Reason::InvalidTagLength`] unless it has 1 to 16 bytes, [`Reason::TagNotNeeded`] when encrypting.
    pub fn set_tag(&mut self, tag: Option<&[u8]>, len: usize) -> Result<(), Reason> {
        if len == 0 || len > TAG {
            return Err(Reason::InvalidTagLength);
        }
        if let Some(tag) = tag {
            if self.seals() {
                return Err(Reason::TagNotNeeded);
            }
            self.message.set_tag(tag);
        }
        self.tag_len = len;
        Ok(())
    }

    /// The first `len` bytes of the tag of the message that was encrypted last; zeros if there was none.
    ///
    /// # Errors
    ///
    /// [`Reason::TagNotSet`] when decrypting, [`Reason::InvalidTagLength`] unless 1 to 16 bytes are asked for.
    pub fn made_tag(&self, len: usize) -> Result<&[u8], Reason> {
        if !self.seals() {
            return Err(Reason::TagNotSet);
        }
        self.message.tag().get(..len).filter(|tag| !tag.is_empty()).ok_or(Reason::InvalidTagLength)
    }

    /// The additional data of the next TLS 1.2 record; its length counts, when decrypting, the tag.
    ///
    /// # Errors
    ///
    /// [`Reason::InvalidData`] unless it has 13 bytes, and the record room for the tag.
    pub fn set_tls_aad(&mut self, aad: &[u8]) -> Result<(), Reason> {
        let mut aad = <[u8; TLS_AAD]>::try_from(aad).map_err(|_| Reason::InvalidData)?;
        let given = usize::from(u16::from_be_bytes([aad[11], aad[12]]));
        let around = if self.seals() { 0 } else { TAG };
        let text = given.checked_sub(around).ok_or(Reason::InvalidData)?;
        aad[11..].copy_from_slice(&(text as u16).to_be_bytes());
        // What is under way cannot be gone on with.
        self.state = IvState::Spent;
        self.tls_aad = Some(aad);
        self.tls_pad = TAG;
        Ok(())
    }

    /// The IV of a TLS 1.2 connection, to which the number of each record is added.
    ///
    /// # Errors
    ///
    /// [`Reason::InvalidIvLength`] unless it has 12 bytes.
    pub fn set_fixed(&mut self, fixed: &[u8]) -> Result<(), Reason> {
        let fixed = fixed.try_into().map_err(|_| Reason::InvalidIvLength)?;
        self.set_iv(fixed);
        Ok(())
    }

    /// Begins a message if none is under way.
    #[inline]
    fn begin(&mut self) -> bool {
        if self.state == IvState::InUse {
            return true;
        }
        if self.state != IvState::Ready || self.message.begin(&self.iv).is_none() {
            return false;
        }
        self.state = IvState::InUse;
        true
    }

    /// The message under way, which begins now if none is.
    #[inline]
    fn message(&mut self) -> Result<&mut ChaChaStream<Shared<AeadKey>>, Reason> {
        if !self.begin() {
            return Err(Reason::CipherOperationFailed);
        }
        self.message.stream()
    }

    /// Additional data of a message, in front of its text.
    ///
    /// # Errors
    ///
    /// [`Reason::CipherOperationFailed`], [`Reason::MallocFailure`].
    pub fn aad(&mut self, more: &[u8]) -> Result<(), Reason> {
        Ok(self.message()?.aad(more)?)
    }

    /// Makes sure that the next part of a message can have so many bytes, before anything is written.
    ///
    /// # Errors
    ///
    /// As for [`update`](Self::update).
    #[inline]
    pub fn prepare(&mut self, more: usize) -> Result<(), Reason> {
        Ok(self.message()?.prepare(more)?)
    }

    /// Encrypts or decrypts the next part of a message in place.
    ///
    /// # Errors
    ///
    /// [`Reason::CipherOperationFailed`] without a key or an IV that was not used, or if the message becomes
    /// too long; [`Reason::MallocFailure`].
    pub fn update(&mut self, data: &mut [u8]) -> Result<(), Reason> {
        self.message()?;
        self.message.update(data)
    }

    /// Ends the message: makes its tag, or says whether it is the one that was set. The IV is spent.
    #[must_use]
    pub fn finish(&mut self) -> bool {
        if !self.begin() {
            return false;
        }
        self.state = IvState::Spent;
        self.message.finish(self.tag_len)
    }

    /// Encrypts a TLS 1.2 record in place: text, and room for the tag. The IV is spent.
    ///
    /// # Errors
    ///
    /// [`Reason::CipherOperationFailed`].
    pub fn seal_record(&mut self, record: &mut [u8]) -> Result<(), Reason> {
        let refused = Reason::CipherOperationFailed;
        let (text, tag) = record.split_last_chunk_mut::<TAG>().ok_or(refused)?;
        let stream = self.next_record().ok_or(refused)?;
        stream.update(text)?;
        *tag = stream.tag()?;
        self.message.set_tag(tag);
        self.message.sealed_record(text.len());
        Ok(())
    }

    /// Decrypts the text of a TLS 1.2 record in place, or wipes it if the record is forged. The IV is spent.
    ///
    /// # Errors
    ///
    /// [`Reason::CipherOperationFailed`].
    pub fn open_record(&mut self, text: &mut [u8], tag: &[u8; TAG]) -> Result<(), Reason> {
        let stream = self.next_record().ok_or(Reason::CipherOperationFailed)?;
        let is_open = stream.update(text).is_ok();
        if !is_open || stream.verify(tag) != Ok(true) {
            text.fill(0);
            self.message.opened_record(None);
            return Err(Reason::CipherOperationFailed);
        }
        self.message.opened_record(Some(text.len()));
        Ok(())
    }

    /// The message of the record that is expected, which has its additional data.
    #[inline]
    fn next_record(&mut self) -> Option<&mut ChaChaStream<Shared<AeadKey>>> {
        let aad = self.tls_aad.take()?;
        self.state = IvState::Spent;
        let mut nonce = self.fixed?;
        nonce[4..].iter_mut().zip(aad).for_each(|(byte, number)| *byte ^= number);
        let stream = self.message.begin(&nonce)?;
        stream.aad(&aad).ok()?;
        Some(stream)
    }
}

impl Default for ChaCha {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for ChaCha {
    fn drop(&mut self) {
        self.iv.zeroize();
        self.fixed.zeroize();
    }
}

impl fmt::Debug for ChaCha {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChaCha(seals: {})", self.seals())
    }
}
