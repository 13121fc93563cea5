//! AES-GCM and AES-GMAC over a message that comes in parts.

mod saved;

use std::{fmt, ops::Deref, sync::Arc};

pub use saved::GcmSaved;

use super::{error::StreamError, gcm_steps::Gcm};
use crate::{
    AeadKey, GcmParams, OpenOp, SealOp, Suite, Tier,
    icv::icv_matches,
    isa::part::{GcmState, Lengths, PartOperation},
    key::Key,
    memory::{OutOfMemory, try_box},
    op::HashedAad,
    portable::add_to_counter,
    secret::{wipe, wipe_message},
};

/// Most bytes of additional data and of an IV: their bits are counted in 64 (NIST SP 800-38D section
/// 5.2.1.1).
const MOST: u64 = (1 << 61) - 1;

/// One message on its way through AES-GCM or AES-GMAC, in parts of any lengths: first additional data, then text, then
/// the tag. With a key of AES-GMAC (RFC 4543) all of the message is additional data.
///
/// A message whose text comes in one part costs what it costs in a burst of its own: only if more follows
/// is its tag taken apart again. Parts of whole blocks are quickest. After some short parts in a row, two
/// kilobytes of memory are taken for key stream ahead of them.
///
/// When opening, plaintext comes out before the tag can be verified: nothing may be done with it until
/// [`verify`](Self::verify) has said yes.
///
/// # Secrets
///
/// Whoever seals vouches for the IV: used twice with one key, it gives both texts and the key of the hash
/// away. So do the tags of a message and of what it began with, which is what a clone is good for that
/// both go on: clones are for libraries that copy the state of a message which only one copy ends.
///
/// What is secret of the state is wiped on drop, where it lies then. To move the state after its first
/// part leaves a copy behind: box it before.
///
/// ```
/// use std::sync::Arc;
///
/// use convoy_crypto::{AeadKey, Cpu, GcmParams, IcvLen, KeyBits, SecretBytes, manager::GcmStream};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let params = GcmParams::new(KeyBits::Aes128, IcvLen::Icv16);
/// let secret = SecretBytes::copy_from(b"an example key!!");
/// let key = Arc::new(AeadKey::new(&Cpu::detect()?, params, secret)?);
///
/// let mut text = *b"attack at dawn";
/// let mut stream = GcmStream::seal(Arc::clone(&key), b"never twice!")?;
/// stream.aad(b"header")?;
/// stream.update(&mut text[..5])?;
/// stream.update(&mut text[5..])?;
/// let tag = stream.tag()?;
///
/// let mut stream = GcmStream::open(key, b"never twice!")?;
/// stream.aad(b"hea")?;
/// stream.aad(b"der")?;
/// stream.update(&mut text)?;
/// assert!(stream.verify(&tag)?);
/// assert_eq!(&text, b"attack at dawn");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct GcmStream<K = Arc<AeadKey>> {
    key: K,
    seal: bool,
    phase: Phase,
    /// The block in front of the mask's counter block, which is the one in front of the text's (NIST SP
    /// 800-38D section 7.1): of an IV of 12 bytes, that and zeros.
    origin: [u8; 16],
    /// True if the IV has 12 bytes, so that kernels for whole messages know all counters.
    short_iv: bool,
    aad_len: u64,
    data_len: u64,
    /// While parts come: [`counter`](Self::counter), told when the last part ended. Kernels load it at once,
    /// and would wait for the words that it is put together of.
    next: [u8; 16],
    state: GcmState,
    /// Short parts so far, without a long one among them.
    short_parts: u8,
    /// Apart, for few messages have it: moved within a context, its room would take along what is on the stack.
    window: Option<Box<Window>>,
}

/// Bytes of key stream that are computed ahead of short parts.
const WINDOW: usize = 1024;

/// Parts of so many bytes or more are not short: to copy them costs more than to call the kernel for each.
const LONG_PART: usize = 320;

/// Short parts in a row that come before key stream is computed ahead: what that costs is spared in about as many.
const SHORT_PARTS: u8 = 6;

/// Key stream ahead of short parts, and the ciphertext of those, which is hashed when it is used up.
#[derive(Clone)]
struct Window {
    /// The key stream, and what was encrypted or is to be decrypted by it: where text was, the next key stream
    /// is made.
    sides: [[u8; WINDOW]; 2],
    /// True if the key stream is the second.
    is_turned: bool,
    /// Bytes that were used.
    used: usize,
}

impl Window {
    /// An empty one.
    // Never inlined, as it passes over the stack, which callers have little of.
    #[inline(never)]
    fn boxed() -> Result<Box<Self>, OutOfMemory> {
        try_box(Self { sides: [[0; WINDOW]; 2], is_turned: false, used: 0 })
    }

    fn try_clone(&self) -> Result<Box<Self>, OutOfMemory> {
        let mut copy = Self::boxed()?;
        // In its place, as what is secret leaves a copy wherever it passes.
        copy.sides.copy_from_slice(&self.sides);
        (copy.is_turned, copy.used) = (self.is_turned, self.used);
        Ok(copy)
    }

    /// True if a part of so many bytes is short, and leaves key stream over.
    #[inline]
    const fn has(&self, bytes: usize) -> bool {
        bytes < LONG_PART && bytes < WINDOW - self.used
    }

    /// The key stream, and what was encrypted or is to be decrypted by it.
    #[inline]
    const fn sides(&mut self) -> (&mut [u8; WINDOW], &mut [u8; WINDOW]) {
        let [first, second] = &mut self.sides;
        if self.is_turned { (second, first) } else { (first, second) }
    }

    /// Encrypts or decrypts what there is key stream for.
    #[inline]
    fn take(&mut self, seal: bool, data: &mut [u8]) {
        let (used, end) = (self.used, self.used + data.len());
        let (keys, text) = self.sides();
        let (Some(keys), Some(text)) = (keys.get(used..end), text.get_mut(used..end)) else {
            return;
        };
        let (blocks, rest) = data.as_chunks_mut::<16>();
        let ((keys, keys_rest), (text, text_rest)) =
            (keys.as_chunks::<16>(), text.as_chunks_mut::<16>());
        for ((block, key), text) in blocks.iter_mut().zip(keys).zip(text) {
            let input = u128::from_ne_bytes(*block);
            let output = input ^ u128::from_ne_bytes(*key);
            *block = output.to_ne_bytes();
            *text = if seal { output } else { input }.to_ne_bytes();
        }
        for ((byte, key), text) in rest.iter_mut().zip(keys_rest).zip(text_rest) {
            let input = *byte;
            *byte ^= key;
            *text = if seal { *byte } else { input };
        }
        self.used = end;
    }
}

impl Drop for Window {
    #[inline]
    fn drop(&mut self) {
        // Where text is, key stream was.
        self.sides.iter_mut().for_each(|side| wipe(side, 0));
    }
}

/// The first part of a message with an IV of 12 bytes, and the tag that the message has if it is the only one: where the mask goes if
/// other parts follow. Nothing with a key of another suite.
#[inline]
fn whole(
    key: &Key,
    seal: bool,
    nonce: &[u8; 16],
    aad: HashedAad<'_>,
    data: &mut [u8],
    tag: &mut [u8; 16],
) -> bool {
    let Some(gcm) = Gcm::of(key) else { return false };
    // The kernel reads the last block of additional data where it is: for a copy made now it would have to wait.
    if seal {
        gcm.seal(SealOp::hashed(key, nonce, aad, data, tag));
    } else {
        gcm.open(OpenOp::without_verdict(key, nonce, aad, data, tag));
    }
    true
}

/// Meaning of the hash of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The last block of additional data, the hash of all before added: no text yet.
    Aad,
    /// The tag of a message of which one part is known.
    Whole,
    /// The hash once more times H: more parts came.
    Parts,
    /// The tag.
    Ended,
    /// Nothing: the tag was verified.
    Verified,
}

impl<K: Deref<Target = AeadKey>> GcmStream<K> {
    /// Begins a message that is sealed. The IV, best of 12 bytes, must never have been used with this key.
    ///
    /// # Errors
    ///
    /// [`StreamError::NotGcm`] and [`StreamError::IvLength`].
    #[inline]
    pub fn seal(key: K, iv: &[u8]) -> Result<Self, StreamError> {
        Self::new(key, true, iv)
    }

    /// Begins a message that is opened.
    ///
    /// # Errors
    ///
    /// [`StreamError::NotGcm`] and [`StreamError::IvLength`].
    #[inline]
    pub fn open(key: K, iv: &[u8]) -> Result<Self, StreamError> {
        Self::new(key, false, iv)
    }

    #[inline]
    fn new(key: K, seal: bool, iv: &[u8]) -> Result<Self, StreamError> {
        let mut stream = Self {
            key,
            seal,
            phase: Phase::Aad,
            origin: [0; 16],
            short_iv: true,
            aad_len: 0,
            data_len: 0,
            next: [0; 16],
            state: GcmState::new(),
            short_parts: 0,
            window: None,
        };
        stream.restart(iv)?;
        Ok(stream)
    }

    /// Begins another message with the same key, the same way, wherever the one before stands.
    ///
    /// # Errors
    ///
    /// [`StreamError::IvLength`].
    #[inline]
    pub fn restart(&mut self, iv: &[u8]) -> Result<(), StreamError> {
        let (gcm, given) = (self.gcm()?, iv.len());
        if given == 0 || given as u64 > MOST {
            return Err(StreamError::IvLength { given });
        }
        let origin = match iv.first_chunk::<12>() {
            Some(nonce) if given == 12 => nonce_block(nonce),
            _ => add_to_counter(&long_iv(gcm, iv), u32::MAX),
        };
        (self.origin, self.short_iv) = (origin, given == 12);
        (self.phase, self.aad_len, self.data_len) = (Phase::Aad, 0, 0);
        self.state.hash = [0; 16];
        (self.short_parts, self.window) = (0, None);
        Ok(())
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
    /// [`StreamError::AadBehindText`], [`StreamError::AadTooLong`] and [`StreamError::Ended`].
    #[inline]
    pub fn aad(&mut self, aad: &[u8]) -> Result<(), StreamError> {
        match self.phase {
            Phase::Aad => {}
            Phase::Whole | Phase::Parts => return Err(StreamError::AadBehindText),
            Phase::Ended | Phase::Verified => return Err(StreamError::Ended),
        }
        if aad.is_empty() {
            return Ok(());
        }
        let length = self.aad_len.checked_add(aad.len() as u64).filter(|&len| len <= MOST);
        let length = length.ok_or(StreamError::AadTooLong)?;
        // The last block stays what it is until another follows, though it be full.
        let used = match (self.aad_len, (self.aad_len % 16) as usize) {
            (0, _) => 0,
            (_, 0) => 16,
            (_, used) => used,
        };
        let hash = &mut self.state.hash;
        if used == 0 && aad.len() <= 16 {
            *hash = short_block(aad);
            self.aad_len = length;
            return Ok(());
        }
        let (front, rest) = aad.split_at(aad.len().min(16 - used));
        hash.iter_mut().skip(used).zip(front).for_each(|(hash, byte)| *hash ^= byte);
        if !rest.is_empty() {
            let (blocks, last) = rest.split_at((rest.len() - 1) / 16 * 16);
            let gcm = Gcm::of(self.key.inner());
            gcm.into_iter().for_each(|gcm| gcm.hash_on(hash, blocks.as_chunks().0));
            hash.iter_mut().zip(last).for_each(|(hash, byte)| *hash ^= byte);
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
        self.check(more)
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
    /// [`StreamError::DataTooLong`], [`StreamError::TextOfGmac`] and [`StreamError::Ended`].
    #[inline]
    pub fn update(&mut self, data: &mut [u8]) -> Result<(), StreamError> {
        self.check(data.len())?;
        if data.is_empty() {
            return Ok(());
        }
        if self.begins_whole() {
            self.whole(data);
        } else if let Some(window) = self.window.as_mut().filter(|window| window.has(data.len())) {
            window.take(self.seal, data);
            self.data_len += data.len() as u64;
        } else {
            self.go_on(data);
        }
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

    /// Ends a message that is sealed: all 16 bytes of its tag, of which the first may be enough. Asked once
    /// more, it tells the same.
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
        Ok(self.state.hash)
    }

    /// Ends a message that is opened: whether the tag, of 4 to 16 bytes, belongs to it. If not, everything
    /// that came out must be thrown away. The time taken does not depend on where tags differ.
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
        let matches = (4..=16).contains(&tag.len()) && icv_matches(&self.state.hash, tag);
        (self.state.hash, self.state.mask) = ([0; 16], [0; 16]);
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
        let tag = self.state.hash;
        (self.state.hash, self.state.mask) = ([0; 16], [0; 16]);
        self.phase = Phase::Verified;
        wipe_message(self.key.tier() == Tier::Portable);
        Ok(tag)
    }

    fn gcm(&self) -> Result<Gcm<'_>, StreamError> {
        let key = self.key.inner();
        Gcm::of(key).ok_or_else(|| StreamError::NotGcm(key.suite()))
    }

    #[inline]
    fn check(&self, more: usize) -> Result<(), StreamError> {
        match self.phase {
            Phase::Ended | Phase::Verified => Err(StreamError::Ended),
            _ if more > 0 && self.is_gmac() => Err(StreamError::TextOfGmac),
            _ if self.data_len.saturating_add(more as u64) > GcmParams::MAX_DATA => {
                Err(StreamError::DataTooLong { limit: GcmParams::MAX_DATA })
            }
            _ => Ok(()),
        }
    }

    #[inline]
    fn is_gmac(&self) -> bool {
        matches!(self.key.suite(), Suite::Gmac(_))
    }

    /// True if the first part can be done as if it were the only one.
    #[inline]
    fn begins_whole(&self) -> bool {
        self.phase == Phase::Aad && self.short_iv && self.aad_len <= HashedAad::MOST
    }

    /// The first part, with the tag that the message has if it is the only one.
    #[inline]
    fn whole(&mut self, data: &mut [u8]) {
        let (key, len) = (self.key.inner(), data.len() as u64);
        let GcmState { hash, mask: tag, .. } = &mut self.state;
        let aad = HashedAad::ending(self.aad_len, hash);
        if whole(key, self.seal, &self.origin, aad, data, tag) {
            (self.data_len, self.phase) = (len, Phase::Whole);
        }
    }

    /// A part that is not the first, or whose counters begin anywhere.
    fn go_on(&mut self, mut data: &mut [u8]) {
        if self.phase != Phase::Parts {
            self.take_apart();
            self.next = self.counter();
        }
        let is_short = data.len() < LONG_PART;
        self.short_parts = if is_short { self.short_parts.saturating_add(1) } else { 0 };
        while let Some(window) = &mut self.window {
            let end = if is_short { WINDOW } else { window.used.next_multiple_of(16) };
            let (front, rest) = data.split_at_mut(data.len().min(end - window.used));
            window.take(self.seal, front);
            self.data_len += front.len() as u64;
            data = rest;
            if !is_short {
                self.close();
            } else if window.used == WINDOW {
                self.turn();
            }
            if data.is_empty() {
                return;
            }
        }
        self.go_on_without_window(data);
        let is_whole = self.data_len.is_multiple_of(16);
        if is_whole && self.short_parts > SHORT_PARTS {
            self.open_window();
        }
    }

    fn go_on_without_window(&mut self, data: &mut [u8]) {
        let Some(gcm) = Gcm::of(self.key.inner()) else { return };
        let used = (self.data_len % 16) as usize;
        let (front, rest) = data.split_at_mut(match used {
            0 => 0,
            used => data.len().min(16 - used),
        });
        if !front.is_empty() {
            gcm.bytes(used, self.seal, front, &mut self.state);
            self.data_len += front.len() as u64;
            self.next = self.counter();
        }
        if !rest.is_empty() {
            gcm.part(&self.next, PartOperation::of(self.seal), rest, &mut self.state);
            self.data_len += rest.len() as u64;
            self.next = self.counter();
        }
    }

    /// Computes key stream ahead, from the beginning of a block on.
    fn open_window(&mut self) {
        let Some(gcm) = Gcm::of(self.key.inner()) else { return };
        // It only saves time, so it can be done without.
        let Ok(window) = Window::boxed() else { return };
        let window = self.window.insert(window);
        // The hash of the zeros is of no use.
        gcm.part(&self.next, PartOperation::Ahead, window.sides().0, &mut GcmState::new());
    }

    /// Hashes a window that was used up, and computes key stream of the next one.
    fn turn(&mut self) {
        self.next = self.counter();
        let Some(gcm) = Gcm::of(self.key.inner()) else { return };
        let Some(window) = &mut self.window else { return };
        gcm.part(&self.next, PartOperation::Ahead, window.sides().1, &mut self.state);
        (window.is_turned, window.used) = (!window.is_turned, 0);
    }

    /// Hashes what was used of a window, and gives it up.
    fn close(&mut self) {
        let Some(mut window) = self.window.take() else { return };
        self.next = self.counter();
        let Some(gcm) = Gcm::of(self.key.inner()) else { return };
        let used = window.used;
        if used > 0
            && let Some(text) = window.sides().1.get_mut(..used)
        {
            // What comes out is of no use.
            gcm.part(&self.next, PartOperation::Ahead, text, &mut self.state);
        }
    }

    /// Brings the hash into the form in which parts can follow.
    fn take_apart(&mut self) {
        let mask = || add_to_counter(&self.origin, 1);
        let Some(gcm) = Gcm::of(self.key.inner()) else { return };
        let lengths = self.lengths();
        match self.phase {
            Phase::Aad => gcm.begin(&mask(), &mut self.state),
            Phase::Whole => {
                self.state.hash = self.state.mask;
                let (mask, counter) = (mask(), self.counter());
                gcm.resume(&mask, &counter, lengths, &mut self.state);
            }
            Phase::Parts | Phase::Ended | Phase::Verified => return,
        }
        self.phase = Phase::Parts;
    }

    #[inline]
    fn lengths(&self) -> Lengths {
        Lengths { aad: self.aad_len, text: self.data_len }
    }

    /// Brings the hash into the form of the tag.
    #[inline]
    fn finish(&mut self) {
        // Kernels for whole messages take keys of AES-GCM alone.
        if self.begins_whole() && !self.is_gmac() {
            self.whole(&mut []);
        }
        if self.phase == Phase::Whole {
            self.state.hash = self.state.mask;
        }
        if matches!(self.phase, Phase::Aad | Phase::Parts) {
            self.take_apart();
            self.close();
            let lengths = self.lengths();
            let Some(gcm) = Gcm::of(self.key.inner()) else { return };
            gcm.finish(lengths, &mut self.state);
        }
        self.phase = Phase::Ended;
    }

    /// The counter block of the block that comes next, or is not whole yet.
    fn counter(&self) -> [u8; 16] {
        // Counters wrap at 32 bits, as an IV of another length may have them do.
        add_to_counter(&self.origin, ((self.data_len / 16) as u32).wrapping_add(2))
    }
}

/// A nonce with zeros behind it.
#[inline]
fn nonce_block(nonce: &[u8; 12]) -> [u8; 16] {
    let mut block = [0; 16];
    block[..12].copy_from_slice(nonce);
    block
}

/// Up to 16 bytes with zeros behind them. Taken from both ends, in words: kernels load it at once, and
/// would wait for single bytes. Inlined, as a copy of the result would wait for its words.
#[inline(always)]
fn short_block(bytes: &[u8]) -> [u8; 16] {
    let len = bytes.len();
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
    let (low, high) = match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        (Some(front), Some(back)) => {
            // What was read twice is shifted out.
            let twice = 8 * (16 - len.clamp(8, 16)) as u32;
            (u64::from_le_bytes(*front), u64::from_le_bytes(*back).checked_shr(twice).unwrap_or(0))
        }
        _ => (word(bytes), 0),
    };
    (u128::from(low) | u128::from(high) << 64).to_le_bytes()
}

/// Hash of an IV of another length than 12 bytes (NIST SP 800-38D section 7.1).
#[cold]
fn long_iv(gcm: Gcm<'_>, iv: &[u8]) -> [u8; 16] {
    let mut hash = [0; 16];
    let (blocks, last) = iv.as_chunks::<16>();
    if let Some((first, blocks)) = blocks.split_first() {
        hash = *first;
        gcm.hash_on(&mut hash, blocks);
    }
    if !last.is_empty() {
        hash.iter_mut().zip(last).for_each(|(hash, byte)| *hash ^= byte);
        gcm.hash_on(&mut hash, &[]);
    }
    let bits = (iv.len() as u128) << 3;
    hash.iter_mut().zip(bits.to_be_bytes()).for_each(|(hash, byte)| *hash ^= byte);
    gcm.hash_on(&mut hash, &[]);
    hash
}

impl<K> fmt::Debug for GcmStream<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = if self.seal { "seal" } else { "open" };
        write!(f, "GcmStream({way}, {} bytes of text)", self.data_len)
    }
}

#[cfg(test)]
mod tests;
