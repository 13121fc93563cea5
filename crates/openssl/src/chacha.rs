//! A cipher context of ChaCha20-Poly1305, as OpenSSL's `EVP_CIPHER_CTX` holds one for each direction.

use std::fmt;

use convoy_crypto::{AeadKey, Cpu, Shared, Suite, manager::ChaChaStream};
use zeroize::Zeroize;

use crate::{
    Reason,
    gcm::{TAG, TLS_AAD},
    stats::{Counter, Tally},
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
    seals: bool,
    key: Option<Shared<AeadKey>>,
    iv: [u8; IV],
    state: IvState,
    /// Base of the nonces of TLS 1.2 records (RFC 7905 section 2): the IV that was set last.
    fixed: Option<[u8; IV]>,
    tag: [u8; TAG],
    /// 0 until it is set.
    tag_len: usize,
    /// Of the next record, with the length of its text alone.
    tls_aad: Option<[u8; TLS_AAD]>,
    tls_pad: usize,
    /// The message under way, or the last one, with the key and in the direction of now.
    stream: Option<ChaChaStream<Shared<AeadKey>>>,
    /// Parts of text it has had so far.
    parts: u64,
    tally: Tally,
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
            seals: false,
            key: None,
            iv: [0; IV],
            state: IvState::Spent,
            fixed: None,
            tag: [0; TAG],
            tag_len: 0,
            tls_aad: None,
            tls_pad: 0,
            stream: None,
            parts: 0,
            tally: Tally::here(),
        }
    }

    /// A copy, which goes on by itself.
    ///
    /// # Errors
    ///
    /// [`Reason::MallocFailure`].
    pub fn try_clone(&self) -> Result<Self, Reason> {
        let stream = self.stream.as_ref().map(ChaChaStream::try_clone).transpose()?;
        let (key, tally) = (self.key.clone(), self.tally.clone());
        let Self { seals, iv, state, fixed, tag, tag_len, tls_aad, tls_pad, parts, .. } = *self;
        Ok(Self {
            seals,
            key,
            iv,
            state,
            fixed,
            tag,
            tag_len,
            tls_aad,
            tls_pad,
            stream,
            parts,
            tally,
        })
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
        if self.seals != seals {
            self.end_message();
        }
        self.seals = seals;
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
            self.set_key(key)?;
            self.tally.add(Counter::Keys, 1);
        }
        Ok(())
    }

    /// Sets a key of the right length: in place of the one held, unless a copy of the context holds it, too.
    fn set_key(&mut self, key: &[u8]) -> Result<(), Reason> {
        if let Some(held) = self.key.as_mut().and_then(Shared::get_mut) {
            return Ok(held.replace(key)?);
        }
        self.key = None;
        let cpu = Cpu::detect().map_err(|_| Reason::Internal)?;
        let key = AeadKey::from_slice(&cpu, cpu.best(), Suite::ChaCha20Poly1305, key)?;
        self.key = Some(Shared::try_new(key)?);
        Ok(())
    }

    /// Ends the message under way, which cannot be continued and whose IV cannot be used again.
    fn end_message(&mut self) {
        if self.state == IvState::InUse {
            self.state = IvState::Spent;
        }
        self.stream = None;
    }

    fn set_iv(&mut self, iv: [u8; IV]) {
        (self.iv, self.fixed, self.state) = (iv, Some(iv), IvState::Ready);
    }

    /// True if it encrypts.
    #[must_use]
    pub fn seals(&self) -> bool {
        self.seals
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
            if self.seals {
                return Err(Reason::TagNotNeeded);
            }
            self.tag.iter_mut().zip(tag).for_each(|(to, byte)| *to = *byte);
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
        if !self.seals {
            return Err(Reason::TagNotSet);
        }
        self.tag.get(..len).filter(|tag| !tag.is_empty()).ok_or(Reason::InvalidTagLength)
    }

    /// The additional data of the next TLS 1.2 record; its length counts, when decrypting, the tag.
    ///
    /// # Errors
    ///
    /// [`Reason::InvalidData`] unless it has 13 bytes, and the record room for the tag.
    pub fn set_tls_aad(&mut self, aad: &[u8]) -> Result<(), Reason> {
        let mut aad = <[u8; TLS_AAD]>::try_from(aad).map_err(|_| Reason::InvalidData)?;
        let given = usize::from(u16::from_be_bytes([aad[11], aad[12]]));
        let around = if self.seals { 0 } else { TAG };
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
        if self.state != IvState::Ready || self.restart(self.iv).is_none() {
            return false;
        }
        (self.state, self.parts) = (IvState::InUse, 0);
        true
    }

    /// A message with this nonce in place of whatever was before.
    #[inline]
    fn restart(&mut self, nonce: [u8; IV]) -> Option<&mut ChaChaStream<Shared<AeadKey>>> {
        match &mut self.stream {
            Some(stream) => stream.restart(&nonce),
            place => {
                let begin = if self.seals { ChaChaStream::seal } else { ChaChaStream::open };
                *place = Some(begin(self.key.clone()?, &nonce).ok()?);
            }
        }
        self.stream.as_mut()
    }

    /// The message under way, which begins now if none is.
    #[inline]
    fn message(&mut self) -> Result<&mut ChaChaStream<Shared<AeadKey>>, Reason> {
        let begun = self.begin();
        self.stream.as_mut().filter(|_| begun).ok_or(Reason::CipherOperationFailed)
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
        self.message()?.update(data)?;
        self.parts += 1;
        if self.parts == 2 {
            self.tally.add(Counter::InParts, 1);
        }
        let bytes = match self.seals {
            true => Counter::MessageBytesSealed,
            false => Counter::MessageBytesOpened,
        };
        self.tally.add(bytes, data.len() as u64);
        Ok(())
    }

    /// Ends the message: makes its tag, or says whether it is the one that was set. The IV is spent.
    #[must_use]
    pub fn finish(&mut self) -> bool {
        if !self.begin() {
            return false;
        }
        self.state = IvState::Spent;
        let Some(stream) = &mut self.stream else { return false };
        if self.seals {
            let Ok(tag) = stream.tag() else { return false };
            self.tag = tag;
            self.tally.add(Counter::MessagesSealed, 1);
            return true;
        }
        let is_authentic = stream.verify(&self.tag[..self.tag_len.min(TAG)]) == Ok(true);
        self.tally.add(if is_authentic { Counter::MessagesOpened } else { Counter::Forged }, 1);
        is_authentic
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
        let made = stream.tag()?;
        (*tag, self.tag) = (made, made);
        self.tally.add(Counter::RecordsSealed, 1);
        self.tally.add(Counter::RecordBytesSealed, text.len() as u64);
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
            self.tally.add(Counter::Forged, 1);
            return Err(Reason::CipherOperationFailed);
        }
        self.tally.add(Counter::RecordsOpened, 1);
        self.tally.add(Counter::RecordBytesOpened, text.len() as u64);
        Ok(())
    }

    /// The message of the record that is expected, which has its additional data.
    #[inline]
    fn next_record(&mut self) -> Option<&mut ChaChaStream<Shared<AeadKey>>> {
        let aad = self.tls_aad.take()?;
        self.state = IvState::Spent;
        let mut nonce = self.fixed?;
        nonce[4..].iter_mut().zip(aad).for_each(|(byte, number)| *byte ^= number);
        let stream = self.restart(nonce)?;
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
        write!(f, "ChaCha(seals: {})", self.seals)
    }
}
