//! A cipher context of AES-GCM, as OpenSSL's `EVP_CIPHER_CTX` holds one for each direction.

use std::fmt;

use convoy_crypto::{
    AeadKey, KeyBits, Nonce, OpenOp, SealOp, Shared, Suite, Verdict, manager::GcmStream,
    open_burst, seal_burst,
};
use zeroize::Zeroize;

pub use crate::message::{TAG, TLS_AAD};
use crate::{Reason, message::Message, random};

/// Bytes of a TLS 1.2 record's nonce that stand in front of its text (RFC 5288 section 3).
pub const EXPLICIT: usize = 8;

/// Most bytes of an IV.
pub const IV_MAX: usize = 128;

/// One direction of a user of AES-GCM: a key, an IV, and a message or record on its way.
///
/// Calls may come in every order that `EVP_CIPHER_CTX` allows: the IV before or after the key, tags
/// before or after the text, copies in the middle of a message. [Where it differs](crate::differences) from
/// OpenSSL's default provider is one list for all ciphers.
pub struct Gcm {
    bits: KeyBits,
    message: Message<GcmStream<Shared<AeadKey>>>,
    iv: Iv,
    tag_len: Option<usize>,
    /// Of the next record, with the length of its text alone.
    tls_aad: [u8; TLS_AAD],
    /// True if the next text is a record, whose additional data is `tls_aad`.
    expects_record: bool,
    tls_pad: usize,
}

#[derive(Clone)]
struct Iv {
    bytes: [u8; IV_MAX],
    len: usize,
    state: IvState,
    /// True if the last bytes may be counted: its fixed part was set (`tlsivfixed`).
    counts: bool,
    is_random: bool,
    /// The last number that the counted part had in a nonce.
    last: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IvState {
    Missing,
    /// There, and not used yet.
    Ready,
    /// A message is under way with it.
    InUse,
    /// Used: it must not be used again.
    Spent,
}

impl Gcm {
    /// A context without a key.
    #[must_use]
    pub fn new(bits: KeyBits) -> Self {
        let iv = Iv {
            bytes: [0; IV_MAX],
            len: 12,
            state: IvState::Missing,
            counts: false,
            is_random: false,
            last: None,
        };
        Self {
            bits,
            message: Message::new(),
            iv,
            tag_len: None,
            tls_aad: [0; TLS_AAD],
            expects_record: false,
            tls_pad: 0,
        }
    }

    /// A copy, which goes on by itself.
    ///
    /// # Errors
    ///
    /// [`Reason::MallocFailure`].
    pub fn try_clone(&self) -> Result<Self, Reason> {
        let (message, iv) = (self.message.try_clone()?, self.iv.clone());
        let Self { bits, tag_len, tls_aad, expects_record, tls_pad, .. } = *self;
        Ok(Self { bits, message, iv, tag_len, tls_aad, expects_record, tls_pad })
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
            if iv.is_empty() || iv.len() > IV_MAX {
                return Err(Reason::InvalidIvLength);
            }
            self.iv.len = iv.len();
            match iv.first_chunk::<12>() {
                // A copy of a length that is known beforehand is two moves.
                Some(nonce) if iv.len() == 12 => self.iv.bytes[..12].copy_from_slice(nonce),
                _ => self.iv.bytes[..iv.len()].copy_from_slice(iv),
            }
            self.iv.is_random = false;
            self.iv.is_ready();
        }
        if let Some(key) = key {
            if key.len() != self.bits.bytes() {
                return Err(Reason::InvalidKeyLength);
            }
            self.end_message();
            self.message.set_key(Suite::gcm(self.bits), key)?;
            self.iv.last = None;
        }
        Ok(())
    }

    /// Ends the message under way, which cannot be continued and whose IV cannot be used again.
    fn end_message(&mut self) {
        if self.iv.state == IvState::InUse {
            self.iv.state = IvState::Spent;
        }
    }

    /// Bytes of the key.
    #[must_use]
    pub fn key_len(&self) -> usize {
        self.bits.bytes()
    }

    /// True if it encrypts.
    #[must_use]
    pub fn seals(&self) -> bool {
        self.message.seals()
    }

    /// Bytes of the IV.
    #[must_use]
    pub fn iv_len(&self) -> usize {
        self.iv.len
    }

    /// Bytes of the tag, as far as that was said: 16 else.
    #[must_use]
    pub fn tag_len(&self) -> usize {
        self.tag_len.unwrap_or(TAG)
    }

    /// Bytes that a TLS record becomes longer by.
    #[must_use]
    pub fn tls_pad(&self) -> usize {
        self.tls_pad
    }

    /// True if the IV, or a part of it, was drawn at random here.
    #[must_use]
    pub fn iv_is_random(&self) -> bool {
        self.iv.is_random
    }

    /// True if the next text is a record of TLS 1.2.
    #[must_use]
    pub fn expects_record(&self) -> bool {
        self.expects_record
    }

    /// Changes the length of the IV. One that was there is lost if the length changes.
    ///
    /// # Errors
    ///
    /// [`Reason::InvalidIvLength`] unless it is 1 to [`IV_MAX`].
    pub fn set_iv_len(&mut self, len: usize) -> Result<(), Reason> {
        if len == 0 || len > IV_MAX {
            return Err(Reason::InvalidIvLength);
        }
        if self.iv.len != len {
            if self.iv.state != IvState::Missing {
                self.iv.state = IvState::Spent;
            }
            self.iv.len = len;
        }
        Ok(())
    }

    /// The tag that is to be found when decrypting.
    ///
    /// # Errors
    ///
    /// [`Reason::InvalidTag`] when encrypting, or unless it has 1 to 16 bytes.
    pub fn set_tag(&mut self, tag: &[u8]) -> Result<(), Reason> {
        if self.seals() || tag.is_empty() || tag.len() > TAG {
            return Err(Reason::InvalidTag);
        }
        self.message.set_tag(tag);
        self.tag_len = Some(tag.len());
        Ok(())
    }

    /// The first `len` bytes of the tag of the message that was encrypted last.
    ///
    /// # Errors
    ///
    /// [`Reason::InvalidTag`] if there is none, or unless 1 to 16 bytes are asked for.
    pub fn made_tag(&self, len: usize) -> Result<&[u8], Reason> {
        let is_there = self.seals() && self.tag_len.is_some() && len > 0;
        self.message.tag().get(..len).filter(|_| is_there).ok_or(Reason::InvalidTag)
    }

    /// The IV as it stands; of what is encrypted without one, it is drawn now.
    ///
    /// # Errors
    ///
    /// `None`: there is no IV, and none can be drawn.
    pub fn iv(&mut self) -> Option<&[u8]> {
        if self.iv.state == IvState::Missing && (self.expects_record || !self.draw_iv()) {
            return None;
        }
        self.iv.bytes.get(..self.iv.len)
    }

    /// Memory of [`Self::iv`], which stays in place while the context lives.
    #[must_use]
    pub fn iv_place(&self) -> &[u8; IV_MAX] {
        &self.iv.bytes
    }

    /// The additional data of the next TLS 1.2 record; its length counts the explicit nonce and, when
    /// decrypting, the tag.
    ///
    /// # Errors
    ///
    /// [`Reason::InvalidAad`] unless it has 13 bytes, and the record room for what it must hold.
    pub fn set_tls_aad(&mut self, aad: &[u8]) -> Result<(), Reason> {
        let mut aad = <[u8; TLS_AAD]>::try_from(aad).map_err(|_| Reason::InvalidAad)?;
        let given = usize::from(u16::from_be_bytes([aad[11], aad[12]]));
        let around = if self.seals() { EXPLICIT } else { EXPLICIT + TAG };
        let text = given.checked_sub(around).ok_or(Reason::InvalidAad)?;
        aad[11..].copy_from_slice(&(text as u16).to_be_bytes());
        (self.tls_aad, self.expects_record) = (aad, true);
        self.tls_pad = TAG;
        Ok(())
    }

    /// The part of the IV that stays, at its front; the rest is counted, from a random number when
    /// encrypting.
    ///
    /// # Errors
    ///
    /// [`Reason::FailedToGetParameter`] unless it has 4 bytes or more and leaves 8 or more; or if the
    /// system has no random numbers.
    pub fn set_fixed(&mut self, fixed: &[u8]) -> Result<(), Reason> {
        let (len, rest) = (fixed.len(), self.iv.len.checked_sub(fixed.len()));
        if len < 4 || rest.is_none_or(|rest| rest < EXPLICIT) {
            return Err(Reason::FailedToGetParameter);
        }
        self.iv.bytes[..len].copy_from_slice(fixed);
        if self.seals() {
            random::fill(&mut self.iv.bytes[len..self.iv.len])
                .ok_or(Reason::FailedToGetParameter)?;
            self.iv.is_random = true;
        }
        self.counted_iv_is_set();
        Ok(())
    }

    /// A whole IV whose last 8 bytes are counted; from one that is shorter none can be generated.
    ///
    /// # Errors
    ///
    /// [`Reason::FailedToGetParameter`] unless it is as long as the IV is.
    pub fn restore_iv(&mut self, iv: &[u8]) -> Result<(), Reason> {
        if iv.len() != self.iv.len {
            return Err(Reason::FailedToGetParameter);
        }
        self.iv.bytes[..iv.len()].copy_from_slice(iv);
        self.counted_iv_is_set();
        Ok(())
    }

    fn counted_iv_is_set(&mut self) {
        self.end_message();
        self.iv.counts = true;
        self.iv.last = None;
        self.iv.is_ready();
    }

    /// The IV for the next message, counted: its last `len` bytes, all of it if that is 0 or too much.
    /// The message begins.
    pub fn generate_iv(&mut self, len: usize, mut take: impl FnMut(&[u8])) -> bool {
        if !self.iv.counts || self.message.key().is_none() || self.iv.len < EXPLICIT {
            return false;
        }
        self.iv.is_ready();
        if !self.begin() {
            return false;
        }
        let len = if len == 0 || len > self.iv.len { self.iv.len } else { len };
        take(&self.iv.bytes[self.iv.len - len..self.iv.len]);
        let number = self.iv.counter();
        self.iv.used(number);
        true
    }

    /// The counted part of the IV of the next message to be decrypted. The message begins.
    pub fn set_counted(&mut self, part: &[u8]) -> bool {
        let at = self.iv.len.checked_sub(part.len());
        let Some(at) =
            at.filter(|_| self.iv.counts && self.message.key().is_some() && !self.seals())
        else {
            return false;
        };
        self.iv.bytes[at..self.iv.len].copy_from_slice(part);
        self.iv.is_ready();
        self.begin()
    }

    fn draw_iv(&mut self) -> bool {
        if !self.seals() || self.iv.len < 12 {
            return false;
        }
        let drawn = random::fill(&mut self.iv.bytes[..self.iv.len]).is_some();
        if drawn {
            self.iv.is_random = true;
            self.iv.is_ready();
        }
        drawn
    }

    /// Begins a message if none is under way.
    #[inline]
    fn begin(&mut self) -> bool {
        // No message outlives its key.
        self.iv.state == IvState::InUse || self.begin_another()
    }

    fn begin_another(&mut self) -> bool {
        match self.iv.state {
            _ if self.message.key().is_none() => return false,
            IvState::InUse => return true,
            IvState::Spent => return false,
            IvState::Missing => {
                if !self.draw_iv() {
                    return false;
                }
            }
            IvState::Ready => {}
        }
        let iv = &self.iv.bytes[..self.iv.len];
        let begun = self.message.begin(iv).is_some();
        self.iv.state = IvState::InUse;
        begun
    }

    /// The message under way, which begins now if none is.
    #[inline]
    fn message(&mut self) -> Result<&mut GcmStream<Shared<AeadKey>>, Reason> {
        if !self.begin() {
            return Err(Reason::CipherOperationFailed);
        }
        self.message.stream()
    }

    /// Additional data of a message, in front of its text.
    ///
    /// # Errors
    ///
    /// [`Reason::CipherOperationFailed`].
    pub fn aad(&mut self, more: &[u8]) -> Result<(), Reason> {
        // Behind text there is none, not even an empty one.
        if !self.begin() || self.message.has_text() {
            return Err(Reason::CipherOperationFailed);
        }
        Ok(self.message.stream()?.aad(more)?)
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
        if data.is_empty() {
            return Ok(());
        }
        self.message.update(data)
    }

    /// Ends the message: makes its tag, or says whether it is the one that was set. The IV is spent.
    #[must_use]
    pub fn finish(&mut self) -> bool {
        if !self.begin() || (!self.seals() && self.tag_len.is_none()) {
            return false;
        }
        self.iv.state = IvState::Spent;
        let done = self.message.finish(self.tag_len());
        if done && self.seals() {
            self.tag_len = Some(TAG);
        }
        done
    }

    /// A TLS 1.2 record in place: explicit nonce, text, tag. Gives the bytes of the whole record, when
    /// decrypting of its text. The record is wiped if it is forged.
    ///
    /// # Errors
    ///
    /// [`Reason::TooManyRecords`], or [`Reason::CipherOperationFailed`] for whatever else.
    pub fn record(&mut self, record: &mut [u8]) -> Result<usize, Reason> {
        if !std::mem::take(&mut self.expects_record) {
            return Err(Reason::CipherOperationFailed);
        }
        let done = self.record_of(record);
        self.iv.state = IvState::Spent;
        done
    }

    fn record_of(&mut self, record: &mut [u8]) -> Result<usize, Reason> {
        let refused = Reason::CipherOperationFailed;
        let aad = &self.tls_aad;
        let key = self.message.key().filter(|_| self.iv.counts && self.iv.len == 12);
        let key = key.ok_or(refused)?;
        let whole = record.len();
        let (explicit, rest) = record.split_first_chunk_mut::<EXPLICIT>().ok_or(refused)?;
        let (text, tag) = rest.split_last_chunk_mut::<TAG>().ok_or(refused)?;
        let len = text.len();
        let [a, b, c, d, ..] = self.iv.bytes;
        let nonce = |explicit: [u8; EXPLICIT]| {
            let [e, f, g, h, i, j, k, l] = explicit;
            [a, b, c, d, e, f, g, h, i, j, k, l]
        };
        if self.message.seals() {
            let number = aad.first_chunk().map_or(0, |number| u64::from_be_bytes(*number));
            let number = match self.iv.last {
                Some(last) => number.max(last.checked_add(1).ok_or(Reason::TooManyRecords)?),
                None => number,
            };
            self.iv.used(number);
            *explicit = number.to_be_bytes();
            let nonce = Nonce::new(nonce(*explicit));
            let op = SealOp::with_aead_key(key, nonce, aad, text, tag).map_err(|_| refused)?;
            seal_burst(&mut [op]);
            self.message.sealed_record(len);
            return Ok(whole);
        }
        self.iv.bytes[4..12].copy_from_slice(explicit);
        let op = OpenOp::with_aead_key(key, nonce(*explicit), aad, text, tag);
        let mut burst = [op.map_err(|_| refused)?];
        open_burst(&mut burst);
        if burst[0].verdict() != Verdict::Authentic {
            self.message.opened_record(None);
            return Err(refused);
        }
        self.message.opened_record(Some(len));
        Ok(len)
    }
}

impl Iv {
    fn is_ready(&mut self) {
        self.state = IvState::Ready;
    }

    /// The number in its last 8 bytes.
    fn counter(&self) -> u64 {
        let tail = self.bytes[..self.len].last_chunk();
        tail.map_or(0, |tail| u64::from_be_bytes(*tail))
    }

    /// The counted part had this number in a nonce.
    fn used(&mut self, number: u64) {
        self.last = Some(number);
        if let Some(tail) = self.bytes[..self.len].last_chunk_mut() {
            *tail = number.wrapping_add(1).to_be_bytes();
        }
    }
}

impl Drop for Gcm {
    fn drop(&mut self) {
        self.iv.bytes.zeroize();
    }
}

impl fmt::Debug for Gcm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gcm(aes-{}-gcm, seals: {})", self.bits.bits(), self.seals())
    }
}
