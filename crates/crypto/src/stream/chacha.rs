//! ChaCha20-Poly1305 over a message that comes in parts.

mod saved;

use std::{fmt, ops::Deref, sync::Arc};

pub use saved::ChaChaSaved;

use super::{chacha_steps::ChaCha, error::StreamError};
use crate::{
    AeadKey, Tier,
    icv::icv_matches,
    isa::part::{BLOCK, ChaChaState, MIN_PART, Pads},
    memory::{OutOfMemory, try_box},
    secret::{wipe, wipe_message},
};

/// Most bytes of additional data.
const MAX_AAD: u64 = (1 << 61) - 1;

/// Bytes of keystream in a window. A part as long is no short one.
const WINDOW: usize = size_of::<Pads>();

/// One message on its way through ChaCha20-Poly1305 (RFC 8439), in parts of any lengths: first additional
/// data, then text, then the tag.
///
/// A message whose text comes in one part costs what it costs in a burst of its own. For short parts, a
/// kilobyte of memory is taken for keystream ahead of them.
///
/// When opening, plaintext comes out before the tag can be verified: nothing may be done with it until
/// [`verify`](Self::verify) has said yes.
///
/// # Secrets
///
/// Whoever seals vouches for the nonce: used twice with one key, it gives both texts and the key of the MAC
/// away. That goes for a clone and its original if both go on: clones are for libraries that copy the state
/// of a message which only one copy ends.
///
/// What is secret of the state is wiped on drop, where it lies then. To move the state after its first
/// part leaves a copy behind: box it before.
///
/// ```
/// use std::sync::Arc;
///
/// use convoy_crypto::{AeadKey, Cpu, SecretBytes, Suite, manager::ChaChaStream};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let secret = SecretBytes::copy_from(b"thirty-two bytes of example key!");
/// let key = Arc::new(AeadKey::new(&Cpu::detect()?, Suite::ChaCha20Poly1305, secret)?);
///
/// let mut text = *b"attack at dawn";
/// let mut stream = ChaChaStream::seal(Arc::clone(&key), b"never twice!")?;
/// stream.aad(b"header")?;
/// stream.update(&mut text[..5])?;
/// stream.update(&mut text[5..])?;
/// let tag = stream.tag()?;
///
/// let mut stream = ChaChaStream::open(key, b"never twice!")?;
/// stream.aad(b"hea")?;
/// stream.aad(b"der")?;
/// stream.update(&mut text)?;
/// assert!(stream.verify(&tag)?);
/// assert_eq!(&text, b"attack at dawn");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ChaChaStream<K = Arc<AeadKey>> {
    key: K,
    seal: bool,
    phase: Phase,
    /// The nonce, and zeros.
    nonce: [u8; 16],
    aad_len: u64,
    data_len: u64,
    /// The tag, once the message was ended.
    state: ChaChaState,
    /// Apart, for few messages have it.
    window: Option<Box<Window>>,
}

/// Keystream ahead of short parts.
#[derive(Clone)]
struct Window {
    keystream: Pads,
    /// Bytes that were used.
    used: usize,
}

impl Drop for Window {
    #[inline]
    fn drop(&mut self) {
        wipe(self.keystream.as_flattened_mut(), 0);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Additional data of a block at most, which no MAC has yet.
    Begun,
    /// More additional data, in the MAC.
    Aad,
    Text,
    /// The tag is made.
    Ended,
    /// The tag was verified.
    Verified,
}

impl ChaChaStream {
    /// Most bytes of text of a message (RFC 8439 section 2.8, less a block).
    pub const MAX_DATA: u64 = ((1 << 32) - 2) * BLOCK as u64;
}

impl<K: Deref<Target = AeadKey>> ChaChaStream<K> {
    /// Begins a message that is sealed. The nonce must never have been used with this key.
    ///
    /// # Errors
    ///
    /// [`StreamError::NotChaCha20Poly1305`].
    #[inline]
    pub fn seal(key: K, nonce: &[u8; 12]) -> Result<Self, StreamError> {
        Self::new(key, true, nonce)
    }

    /// Begins a message that is opened.
    ///
    /// # Errors
    ///
    /// [`StreamError::NotChaCha20Poly1305`].
    #[inline]
    pub fn open(key: K, nonce: &[u8; 12]) -> Result<Self, StreamError> {
        Self::new(key, false, nonce)
    }

    #[inline]
    fn new(key: K, seal: bool, nonce: &[u8; 12]) -> Result<Self, StreamError> {
        if ChaCha::of(key.inner()).is_none() {
            return Err(StreamError::NotChaCha20Poly1305(key.suite()));
        }
        let mut stream = Self {
            key,
            seal,
            phase: Phase::Begun,
            nonce: [0; 16],
            aad_len: 0,
            data_len: 0,
            state: ChaChaState::new(),
            window: None,
        };
        stream.restart(nonce);
        Ok(stream)
    }

    /// Begins another message with the same key, the same way, wherever the one before stands.
    #[inline]
    pub fn restart(&mut self, nonce: &[u8; 12]) {
        self.nonce[..12].copy_from_slice(nonce);
        (self.phase, self.aad_len, self.data_len) = (Phase::Begun, 0, 0);
        self.state.tail = [0; 16];
        self.window = None;
    }

    /// True if the message is sealed, not opened.
    #[must_use]
    pub const fn is_seal(&self) -> bool {
        self.seal
    }

    /// Adds additional data.
    ///
    /// # Errors
    ///
    /// [`StreamError::AadBehindText`], [`StreamError::AadTooLong`], [`StreamError::Ended`] and
    /// [`StreamError::OutOfMemory`].
    #[inline]
    pub fn aad(&mut self, aad: &[u8]) -> Result<(), StreamError> {
        match self.phase {
            Phase::Begun | Phase::Aad => {}
            Phase::Text => return Err(StreamError::AadBehindText),
            Phase::Ended | Phase::Verified => return Err(StreamError::Ended),
        }
        let length = self.aad_len.checked_add(aad.len() as u64).filter(|&len| len <= MAX_AAD);
        let length = length.ok_or(StreamError::AadTooLong)?;
        if self.phase == Phase::Begun && length <= 16 {
            let tail = self.state.tail.iter_mut().skip(self.aad_len as usize);
            tail.zip(aad).for_each(|(to, byte)| *to = *byte);
        } else {
            self.begin_mac()?;
            self.state.take((self.aad_len % 16) as usize, aad);
        }
        self.aad_len = length;
        Ok(())
    }

    /// Makes sure that an [`update`](Self::update) of so many bytes succeeds, for callers that copy the text
    /// before.
    ///
    /// # Errors
    ///
    /// As for [`update`](Self::update).
    #[inline]
    pub fn prepare(&mut self, more: usize) -> Result<(), StreamError> {
        self.check(more)?;
        let goes_without =
            more == 0 || self.phase == Phase::Begun || self.window.is_some() || self.is_long(more);
        if !goes_without {
            self.window = Some(Window::at_end()?);
        }
        Ok(())
    }

    /// Takes the memory that parts may need, so that no update fails for want of it.
    ///
    /// # Errors
    ///
    /// [`StreamError::OutOfMemory`].
    pub fn reserve(&mut self) -> Result<(), StreamError> {
        if self.window.is_none() {
            self.window = Some(Window::at_end()?);
        }
        Ok(())
    }

    /// True if a part of so many bytes, coming now, goes to the kernel without keystream ahead of it.
    #[inline]
    fn is_long(&self, part: usize) -> bool {
        self.data_len.is_multiple_of(BLOCK as u64) && part >= WINDOW
    }

    /// A copy of the state, as of [`clone`](Clone::clone), for processes that go on without memory.
    ///
    /// # Errors
    ///
    /// [`StreamError::OutOfMemory`].
    pub fn try_clone(&self) -> Result<Self, StreamError>
    where
        K: Clone,
    {
        let window = self.window.as_ref().map(|window| window.try_clone()).transpose()?;
        Ok(Self { key: self.key.clone(), window, state: self.state.clone(), ..*self })
    }

    /// Encrypts or decrypts the next part in place.
    ///
    /// # Errors
    ///
    /// [`StreamError::DataTooLong`], [`StreamError::Ended`] and [`StreamError::OutOfMemory`].
    #[inline]
    pub fn update(&mut self, data: &mut [u8]) -> Result<(), StreamError> {
        self.prepare(data.len())?;
        if data.is_empty() {
            return Ok(());
        }
        match self.phase {
            Phase::Begun => self.first(data),
            _ => self.go_on(data),
        }
        self.phase = Phase::Text;
        Ok(())
    }

    /// Encrypts or decrypts the next part from one place to another.
    ///
    /// # Errors
    ///
    /// As for [`update`](Self::update); [`StreamError::OutputLength`].
    pub fn update_into(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), StreamError> {
        if input.len() != output.len() {
            let (input, output) = (input.len(), output.len());
            return Err(StreamError::OutputLength { input, output });
        }
        // Before anything is copied to where it could be taken for ciphertext.
        self.prepare(input.len())?;
        output.copy_from_slice(input);
        self.update(output)
    }

    /// Ends a message that is sealed: its tag. Asked once more, it tells the same.
    ///
    /// # Errors
    ///
    /// [`StreamError::TagOfOpened`].
    #[inline]
    pub fn tag(&mut self) -> Result<[u8; 16], StreamError> {
        if !self.seal {
            return Err(StreamError::TagOfOpened);
        }
        self.finish();
        Ok(self.state.tail)
    }

    /// Ends a message that is opened: whether the tag, of 4 to 16 bytes, belongs to it; RFC 8439 knows 16
    /// alone. If not, everything that came out must be thrown away. The time taken does not depend on where
    /// tags differ.
    ///
    /// # Errors
    ///
    /// [`StreamError::Ended`] if the tag was verified before; for a message that is sealed, too.
    #[inline]
    pub fn verify(&mut self, tag: &[u8]) -> Result<bool, StreamError> {
        if self.seal || self.phase == Phase::Verified {
            return Err(StreamError::Ended);
        }
        self.finish();
        let matches = (4..=16).contains(&tag.len()) && icv_matches(&self.state.tail, tag);
        self.state.tail = [0; 16];
        self.phase = Phase::Verified;
        if !matches {
            // What the tag of a forged message should have been is nobody's business.
            wipe_message(self.key.tier() == Tier::Portable);
        }
        Ok(matches)
    }

    /// Ends a message that is opened without verifying it: the tag that it should have. Whoever calls this compares it
    /// with the one that came, in constant time (as [`tags_match`](crate::manager::tags_match) does), and throws everything
    /// that came out away if the two differ; it is secret then.
    ///
    /// # Errors
    ///
    /// [`StreamError::Ended`] if the message was ended before; for one that is sealed, too.
    pub fn expected_tag(&mut self) -> Result<[u8; 16], StreamError> {
        if self.seal || self.phase == Phase::Verified {
            return Err(StreamError::Ended);
        }
        self.finish();
        let tag = self.state.tail;
        self.state.tail = [0; 16];
        self.phase = Phase::Verified;
        wipe_message(self.key.tier() == Tier::Portable);
        Ok(tag)
    }

    #[inline]
    fn check(&self, more: usize) -> Result<(), StreamError> {
        let length = self.data_len.checked_add(more as u64);
        match self.phase {
            Phase::Ended | Phase::Verified => Err(StreamError::Ended),
            _ if length.is_none_or(|length| length > ChaChaStream::MAX_DATA) => {
                Err(StreamError::DataTooLong { limit: ChaChaStream::MAX_DATA })
            }
            _ => Ok(()),
        }
    }

    /// The first part of a message with little additional data.
    #[inline]
    fn first(&mut self, data: &mut [u8]) {
        let Some(chacha) = ChaCha::of(self.key.inner()) else { return };
        let aad = self.state.tail;
        let aad = aad.get(..self.aad_len as usize).unwrap_or(&[]);
        chacha.first(self.seal, &self.nonce, aad, data, &mut self.state);
        self.data_len = data.len() as u64;
    }

    /// Keys the MAC, unless it is, and has it take what there is of additional data. Keystream behind the
    /// key's block is kept.
    fn begin_mac(&mut self) -> Result<(), StreamError> {
        let (false, Some(chacha)) = (self.phase != Phase::Begun, ChaCha::of(self.key.inner()))
        else {
            return Ok(());
        };
        let window = self.window.insert(Window::at_end()?);
        chacha.keystream(&self.nonce, 0, &mut window.keystream);
        window.used = BLOCK;
        self.state.mac = crate::poly::Poly::new(&window.keystream[0]);
        if self.aad_len == 16 {
            self.state.pad(16);
        }
        self.phase = Phase::Aad;
        Ok(())
    }

    /// A part that is not the first, or has much additional data before it.
    fn go_on(&mut self, mut data: &mut [u8]) {
        if self.phase == Phase::Aad {
            self.state.pad((self.aad_len % 16) as usize);
        }
        while !data.is_empty() {
            if self.is_long(data.len()) {
                // Nothing is left of it, but it stays: memory once taken is not asked for again.
                self.window.iter_mut().for_each(|window| window.used = WINDOW);
                let Some(chacha) = ChaCha::of(self.key.inner()) else { return };
                chacha.next(self.seal, &self.nonce, self.block(), data, &mut self.state);
                self.data_len += data.len() as u64;
                return;
            }
            if self.window.as_ref().is_none_or(|window| window.used == WINDOW) {
                self.turn();
            }
            let Some(window) = &mut self.window else { return };
            // A long part goes without the window as soon as it can.
            let end =
                if data.len() >= WINDOW { window.used.next_multiple_of(BLOCK) } else { WINDOW };
            let (now, rest) = data.split_at_mut(data.len().min(end - window.used));
            let keystream = window.keystream.as_flattened();
            let keys = keystream.get(window.used..).unwrap_or_default();
            let used = (self.data_len % 16) as usize;
            if !self.seal {
                self.state.take(used, now);
            }
            now.iter_mut().zip(keys).for_each(|(byte, key)| *byte ^= key);
            if self.seal {
                self.state.take(used, now);
            }
            window.used += now.len();
            self.data_len += now.len() as u64;
            data = rest;
        }
    }

    /// Computes the keystream that comes next.
    fn turn(&mut self) {
        let (block, used) = (self.block(), (self.data_len % BLOCK as u64) as usize);
        let Some(chacha) = ChaCha::of(self.key.inner()) else { return };
        let Some(window) = &mut self.window else { return };
        chacha.keystream(&self.nonce, block, &mut window.keystream);
        window.used = used;
    }

    /// The number of the block of keystream that comes next, or was not used up.
    fn block(&self) -> u32 {
        (self.data_len / BLOCK as u64) as u32 + 1
    }

    /// Makes the tag.
    #[inline]
    fn finish(&mut self) {
        match self.phase {
            Phase::Begun => self.first(&mut []),
            Phase::Aad => self.state.pad((self.aad_len % 16) as usize),
            Phase::Text => {}
            Phase::Ended | Phase::Verified => return,
        }
        let Self { state, aad_len, data_len, .. } = self;
        state.pad((*data_len % 16) as usize);
        state.mac.lengths(*aad_len, *data_len);
        state.tail = state.mac.finish().to_le_bytes();
        self.phase = Phase::Ended;
    }
}

impl Window {
    /// One of which nothing is left.
    // Never inlined, as it passes over the stack, which callers have little of.
    #[inline(never)]
    fn at_end() -> Result<Box<Self>, OutOfMemory> {
        const { assert!(WINDOW >= MIN_PART) };
        try_box(Self { keystream: [[0; BLOCK]; 16], used: WINDOW })
    }

    fn try_clone(&self) -> Result<Box<Self>, OutOfMemory> {
        let mut copy = Self::at_end()?;
        // In its place, as what is secret leaves a copy wherever it passes.
        copy.keystream.copy_from_slice(&self.keystream);
        copy.used = self.used;
        Ok(copy)
    }
}

impl<K> fmt::Debug for ChaChaStream<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = if self.seal { "seal" } else { "open" };
        write!(f, "ChaChaStream({way}, {} bytes of text)", self.data_len)
    }
}

#[cfg(test)]
mod tests;
