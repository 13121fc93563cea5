//! A message of an AEAD on its way, and its key: what contexts of AES-GCM and of ChaCha20-Poly1305 have in common.

use convoy_crypto::{
    AeadKey, Cpu, Shared, Suite,
    manager::{ChaChaStream, GcmStream, StreamError},
};

use crate::{
    Reason,
    stats::{Counter, Tally},
};

/// Bytes of a tag.
pub const TAG: usize = 16;

/// Bytes of the additional data of a TLS record: its number, type, version and length (RFC 5246 section
/// 6.2.3.3).
pub const TLS_AAD: usize = 13;

/// A message in parts, as crypto has one for each AEAD.
pub(crate) trait Stream: Sized {
    fn seal(key: Shared<AeadKey>, iv: &[u8]) -> Result<Self, StreamError>;
    fn open(key: Shared<AeadKey>, iv: &[u8]) -> Result<Self, StreamError>;
    fn restart(&mut self, iv: &[u8]) -> Result<(), StreamError>;
    fn try_clone(&self) -> Result<Self, StreamError>;
    fn update(&mut self, data: &mut [u8]) -> Result<(), StreamError>;
    fn tag(&mut self) -> Result<[u8; TAG], StreamError>;
    fn verify(&mut self, tag: &[u8]) -> Result<bool, StreamError>;
}

/// Functions that are the same for both.
macro_rules! common {
    () => {
        fn try_clone(&self) -> Result<Self, StreamError> {
            self.try_clone()
        }

        #[inline]
        fn update(&mut self, data: &mut [u8]) -> Result<(), StreamError> {
            self.update(data)
        }

        #[inline]
        fn tag(&mut self) -> Result<[u8; TAG], StreamError> {
            self.tag()
        }

        #[inline]
        fn verify(&mut self, tag: &[u8]) -> Result<bool, StreamError> {
            self.verify(tag)
        }
    };
}

impl Stream for GcmStream<Shared<AeadKey>> {
    common!();

    #[inline]
    fn seal(key: Shared<AeadKey>, iv: &[u8]) -> Result<Self, StreamError> {
        Self::seal(key, iv)
    }

    #[inline]
    fn open(key: Shared<AeadKey>, iv: &[u8]) -> Result<Self, StreamError> {
        Self::open(key, iv)
    }

    #[inline]
    fn restart(&mut self, iv: &[u8]) -> Result<(), StreamError> {
        self.restart(iv)
    }
}

impl Stream for ChaChaStream<Shared<AeadKey>> {
    common!();

    #[inline]
    fn seal(key: Shared<AeadKey>, iv: &[u8]) -> Result<Self, StreamError> {
        Self::seal(key, nonce(iv)?)
    }

    #[inline]
    fn open(key: Shared<AeadKey>, iv: &[u8]) -> Result<Self, StreamError> {
        Self::open(key, nonce(iv)?)
    }

    #[inline]
    fn restart(&mut self, iv: &[u8]) -> Result<(), StreamError> {
        self.restart(nonce(iv)?);
        Ok(())
    }
}

#[inline]
fn nonce(iv: &[u8]) -> Result<&[u8; 12], StreamError> {
    iv.try_into().map_err(|_| StreamError::IvLength { given: iv.len() })
}

/// A message under way, or the last one, with its key and direction.
pub(crate) struct Message<S> {
    seals: bool,
    key: Option<Shared<AeadKey>>,
    /// With the key and in the direction of now.
    stream: Option<S>,
    /// Parts of text it has had so far.
    parts: u64,
    tag: [u8; TAG],
    tally: Tally,
}

impl<S: Stream> Message<S> {
    /// None, and no key.
    pub(crate) fn new() -> Self {
        let tally = Tally::here();
        Self { seals: false, key: None, stream: None, parts: 0, tag: [0; TAG], tally }
    }

    /// A copy, which goes on by itself.
    ///
    /// # Errors
    ///
    /// [`Reason::MallocFailure`].
    pub(crate) fn try_clone(&self) -> Result<Self, Reason> {
        let stream = self.stream.as_ref().map(S::try_clone).transpose()?;
        let (key, tally) = (self.key.clone(), self.tally.clone());
        let Self { seals, parts, tag, .. } = *self;
        Ok(Self { seals, key, stream, parts, tag, tally })
    }

    /// True if messages are encrypted.
    pub(crate) fn seals(&self) -> bool {
        self.seals
    }

    /// Sets the direction. Returns true if it changes, which ends the message.
    pub(crate) fn turn(&mut self, seals: bool) -> bool {
        let turns = self.seals != seals;
        if turns {
            self.stream = None;
        }
        self.seals = seals;
        turns
    }

    /// The key, if one is set.
    pub(crate) fn key(&self) -> Option<&AeadKey> {
        self.key.as_deref()
    }

    /// Sets a key of the suite's length: in place of the one held, unless a copy of the context holds it, too. That ends
    /// the message.
    ///
    /// # Errors
    ///
    /// [`Reason::MallocFailure`].
    pub(crate) fn set_key(&mut self, suite: impl Into<Suite>, key: &[u8]) -> Result<(), Reason> {
        self.stream = None;
        if let Some(held) = self.key.as_mut().and_then(Shared::get_mut) {
            held.replace(key)?;
        } else {
            self.key = None;
            let cpu = Cpu::detect().map_err(|_| Reason::Internal)?;
            let key = AeadKey::from_slice(&cpu, cpu.best(), suite, key)?;
            self.key = Some(Shared::try_new(key)?);
        }
        self.tally.add(Counter::Keys, 1);
        Ok(())
    }

    /// Begins a message with this IV in place of whatever was before; none without a key.
    #[inline]
    pub(crate) fn begin(&mut self, iv: &[u8]) -> Option<&mut S> {
        self.parts = 0;
        match &mut self.stream {
            Some(stream) => stream.restart(iv).ok()?,
            place => {
                let begin = if self.seals { S::seal } else { S::open };
                *place = Some(begin(self.key.clone()?, iv).ok()?);
            }
        }
        self.stream.as_mut()
    }

    /// The message under way, or the last one.
    #[inline]
    pub(crate) fn stream(&mut self) -> Result<&mut S, Reason> {
        self.stream.as_mut().ok_or(Reason::CipherOperationFailed)
    }

    /// True if text came.
    pub(crate) fn has_text(&self) -> bool {
        self.parts > 0
    }

    /// Encrypts or decrypts the next part in place.
    #[inline]
    pub(crate) fn update(&mut self, data: &mut [u8]) -> Result<(), Reason> {
        self.stream()?.update(data)?;
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

    /// Ends the message: makes its tag, or compares the first bytes of the one that was set, and returns whether that is its.
    #[inline]
    pub(crate) fn finish(&mut self, tag_len: usize) -> bool {
        let Some(stream) = &mut self.stream else { return false };
        if self.seals {
            let Ok(tag) = stream.tag() else { return false };
            self.tag = tag;
            self.tally.add(Counter::MessagesSealed, 1);
            return true;
        }
        let is_authentic = stream.verify(&self.tag[..tag_len.min(TAG)]) == Ok(true);
        self.tally.add(if is_authentic { Counter::MessagesOpened } else { Counter::Forged }, 1);
        is_authentic
    }

    /// The tag that was made, or is to be found.
    pub(crate) fn tag(&self) -> &[u8; TAG] {
        &self.tag
    }

    /// Sets the first bytes of the tag that is to be found.
    pub(crate) fn set_tag(&mut self, tag: &[u8]) {
        self.tag.iter_mut().zip(tag).for_each(|(to, byte)| *to = *byte);
    }

    /// Notes a record that was sealed, with so many bytes of text.
    pub(crate) fn sealed_record(&self, text: usize) {
        self.tally.add(Counter::RecordsSealed, 1);
        self.tally.add(Counter::RecordBytesSealed, text as u64);
    }

    /// Notes a record that was opened, with so many bytes of text, or was forged.
    pub(crate) fn opened_record(&self, text: Option<usize>) {
        let Some(text) = text else { return self.tally.add(Counter::Forged, 1) };
        self.tally.add(Counter::RecordsOpened, 1);
        self.tally.add(Counter::RecordBytesOpened, text as u64);
    }
}
