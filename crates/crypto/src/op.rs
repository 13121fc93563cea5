//! Operations: one packet's worth of work each, gathered into bursts.

use std::{fmt, hint::black_box};

use crate::{
    OpError,
    key::{AeadKey, Key, OpenKey, SealKey},
    nonce::{Nonce, NonceBlock, OpenNonce},
    pairs::PairedWith,
    pass::TRAILER_MAX,
};

/// A packet to be encrypted in place and given an ICV.
///
/// Its parts are checked when it is built, so sealing cannot fail. It is sealed by the first
/// [`seal_burst`](crate::seal_burst) it takes part in; further bursts leave it alone, because its
/// nonce is spent.
pub struct SealOp<'a> {
    key: &'a Key,
    nonce: NonceBlock,
    sealed: bool,
    /// Bytes of a frame's header. An AEAD has none: there it is [`HashedAad::beyond`].
    header: u32,
    beside: &'a [u8],
    data: &'a mut [u8],
    icv: &'a mut [u8],
}

impl<'a> SealOp<'a> {
    /// Puts an operation of an AEAD together. `data` is replaced by its ciphertext, `icv` is
    /// overwritten. (GMAC authenticates `data` and leaves it as it is.)
    ///
    /// # Errors
    ///
    /// [`OpError`] if a part does not have a length that the key's suite calls for, or the suite is
    /// no AEAD. The nonce is gone then.
    #[inline(always)]
    pub fn new(
        key: &'a SealKey,
        nonce: Nonce,
        aad: &'a [u8],
        data: &'a mut [u8],
        icv: &'a mut [u8],
    ) -> Result<Self, OpError> {
        Self::apart(key.inner(), nonce, aad, data, icv)
    }

    /// The same with a key for both ways.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new).
    #[inline(always)]
    pub fn with_aead_key(
        key: &'a AeadKey,
        nonce: Nonce,
        aad: &'a [u8],
        data: &'a mut [u8],
        icv: &'a mut [u8],
    ) -> Result<Self, OpError> {
        Self::apart(key.inner(), nonce, aad, data, icv)
    }

    #[inline(always)]
    fn apart(
        key: &'a Key,
        Nonce(nonce): Nonce,
        aad: &'a [u8],
        data: &'a mut [u8],
        icv: &'a mut [u8],
    ) -> Result<Self, OpError> {
        check_apart(key, nonce.len(), aad.len(), data.len(), icv.len())?;
        Ok(Self { key, nonce, sealed: false, header: 0, beside: aad, data, icv })
    }

    /// An operation of AES-GCM whose additional data was hashed but for the last block. The caller answers
    /// for the lengths, and that the nonce is used once.
    #[inline(always)]
    pub(crate) fn hashed(
        key: &'a Key,
        nonce: &[u8; 16],
        aad: HashedAad<'a>,
        data: &'a mut [u8],
        tag: &'a mut [u8; 16],
    ) -> Self {
        let (nonce, HashedAad { beyond, last }) = (NonceBlock::of_gcm(nonce), aad);
        let header = beyond.cast_unsigned();
        Self { key, nonce, sealed: false, header, beside: last, data, icv: tag }
    }

    /// Puts an operation of a pair of cipher and MAC together: what ESP's encrypt-then-MAC needs.
    ///
    /// The text, `frame` from `header` on, is replaced by its ciphertext. The ICV covers the whole
    /// frame and then `trailer`, which is not sent: ESN's high bits, or nothing. The IV is
    /// authenticated only if it is part of the header, as it is in ESP (RFC 4303 section 2.8).
    ///
    /// # Errors
    ///
    /// [`OpError`] if a part does not have a length that the key's suite calls for, or the suite is
    /// an AEAD. The IV is gone then.
    #[inline(always)]
    pub fn framed(
        key: &'a SealKey,
        iv: Nonce,
        frame: &'a mut [u8],
        header: usize,
        trailer: &'a [u8],
        icv: &'a mut [u8],
    ) -> Result<Self, OpError> {
        let (key, Nonce(nonce)) = (key.inner(), iv);
        check_framed(key, nonce.len(), frame.len(), header, trailer.len(), icv.len())?;
        let nonce = nonce.with_counter(key.limits().counter);
        // Checked to fit.
        let header = header as u32;
        Ok(Self { key, nonce, sealed: false, header, beside: trailer, data: frame, icv })
    }

    /// Puts an operation of any suite together, of a packet that lies in one piece as ESP's does:
    /// `header` bytes, `text` bytes, the ICV, and whatever follows, which is left alone. An AEAD has no
    /// header here; its additional data is `beside`. For a pair that is the trailer, see
    /// [`framed`](Self::framed).
    ///
    /// # Errors
    ///
    /// [`OpError`] if a part does not have a length that the key's suite calls for, or the packet is too
    /// short for its parts. The nonce is gone then.
    #[inline(always)]
    pub fn in_place(
        key: &'a SealKey,
        Nonce(nonce): Nonce,
        packet: &'a mut [u8],
        (header, text): (usize, usize),
        beside: &'a [u8],
    ) -> Result<Self, OpError> {
        let key = key.inner();
        let lengths = (header, text);
        let (at, icv) = check_in_place(key, nonce.len(), packet.len(), lengths, beside.len())?;
        let nonce = nonce.with_counter(key.limits().counter);
        let (data, rest) = packet.split_at_mut(at);
        let icv = &mut rest[..icv];
        Ok(Self { key, nonce, sealed: false, header: header as u32, beside, data, icv })
    }

    /// True if the packet has been sealed.
    #[inline]
    #[must_use]
    pub const fn is_sealed(&self) -> bool {
        self.sealed
    }
}

/// Result of opening a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not opened yet: `data` is still ciphertext.
    Pending,
    /// Authentic: `data` is the plaintext.
    Authentic,
    /// Not authentic: `data` has been wiped.
    Forged,
}

/// Progress of opening a packet. What is not over counts as [`Verdict::Pending`], so that a packet
/// passes for nothing else should the work on it be cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nothing has been done.
    Due,
    /// The ICV matches; the text may have to be decrypted yet.
    Matches,
    /// The ICV does not match; the text has not been wiped yet.
    Refused,
    /// Over.
    Authentic,
    /// Over.
    Forged,
    /// Over; nothing was compared.
    Decrypted,
}

/// Additional data that was hashed but for the last block.
#[derive(Clone, Copy)]
pub(crate) struct HashedAad<'a> {
    /// Number of its bytes less that of `last`; negative if `last` has more.
    beyond: i32,
    /// The last block with the hash of all before added, or all of it, or nothing.
    last: &'a [u8],
}

impl<'a> HashedAad<'a> {
    /// The most bytes that it tells.
    pub(crate) const MOST: u64 = i32::MAX as u64;

    /// Additional data that is there as a whole.
    #[inline(always)]
    pub(crate) fn whole(aad: &'a [u8]) -> Self {
        Self { beyond: 0, last: aad }
    }

    /// So many bytes, of which `last` has the last ones, with zeros behind them.
    #[inline(always)]
    pub(crate) fn ending(bytes: u64, last: &'a [u8; 16]) -> Self {
        match bytes {
            0 => Self::whole(&[]),
            _ => Self { beyond: bytes.min(Self::MOST) as i32 - 16, last },
        }
    }
}

/// Use of the ICV that the packet should have, by an operation that opens.
enum Icv<'a> {
    /// Compares it with the one that came.
    Compare(&'a [u8]),
    /// Gives it to somebody who compares.
    Give(&'a mut [u8; 16]),
}

/// A packet to be verified and decrypted in place.
///
/// Its parts are checked when it is built. It is opened by the first
/// [`open_burst`](crate::open_burst) it takes part in; further bursts leave it alone.
pub struct OpenOp<'a> {
    key: &'a Key,
    nonce: NonceBlock,
    stage: Stage,
    /// As [`SealOp`] has it.
    header: u32,
    beside: &'a [u8],
    data: &'a mut [u8],
    icv: Icv<'a>,
}

impl<'a> OpenOp<'a> {
    /// Puts an operation of an AEAD together. `data` is replaced by its plaintext, or by zeros if it
    /// is not authentic.
    ///
    /// # Errors
    ///
    /// [`OpError`] if a part does not have a length that the key's suite calls for, or the suite is
    /// no AEAD.
    #[inline(always)]
    pub fn new(
        key: &'a OpenKey,
        nonce: impl Into<OpenNonce>,
        aad: &'a [u8],
        data: &'a mut [u8],
        icv: &'a [u8],
    ) -> Result<Self, OpError> {
        Self::apart(key.inner(), nonce.into().0, aad, data, icv)
    }

    /// The same with a key for both ways.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new).
    #[inline(always)]
    pub fn with_aead_key(
        key: &'a AeadKey,
        nonce: impl Into<OpenNonce>,
        aad: &'a [u8],
        data: &'a mut [u8],
        icv: &'a [u8],
    ) -> Result<Self, OpError> {
        Self::apart(key.inner(), nonce.into().0, aad, data, icv)
    }

    #[inline(always)]
    fn apart(
        key: &'a Key,
        nonce: NonceBlock,
        aad: &'a [u8],
        data: &'a mut [u8],
        icv: &'a [u8],
    ) -> Result<Self, OpError> {
        check_apart(key, nonce.len(), aad.len(), data.len(), icv.len())?;
        let icv = Icv::Compare(icv);
        Ok(Self { key, nonce, stage: Stage::Due, header: 0, beside: aad, data, icv })
    }

    /// Puts an operation of an AEAD together that verifies nothing: `data` is decrypted and `tag` becomes the ICV
    /// that the packet should have. Whoever calls this compares it with the one that came, in constant time
    /// (as [`tags_match`](crate::manager::tags_match) does), and uses nothing of `data` if the two differ. The
    /// verdict stays [`Verdict::Pending`].
    ///
    /// # Errors
    ///
    /// [`OpError`] if a part does not have a length that the key's suite calls for, or the suite is no AEAD or
    /// one whose tags are cut.
    #[inline(always)]
    pub fn unverified(
        key: &'a AeadKey,
        nonce: impl Into<OpenNonce>,
        aad: &'a [u8],
        data: &'a mut [u8],
        tag: &'a mut [u8; 16],
    ) -> Result<Self, OpError> {
        let (key, nonce) = (key.inner(), nonce.into().0);
        check_apart(key, nonce.len(), aad.len(), data.len(), tag.len())?;
        let icv = Icv::Give(tag);
        Ok(Self { key, nonce, stage: Stage::Due, header: 0, beside: aad, data, icv })
    }

    /// A packet of an AEAD that is decrypted and given the tag that it should have; comparing is left to
    /// the caller, who answers for the lengths. For the additional data see [`SealOp::hashed`].
    #[inline(always)]
    pub(crate) fn without_verdict(
        key: &'a Key,
        nonce: &[u8; 16],
        aad: HashedAad<'a>,
        data: &'a mut [u8],
        tag: &'a mut [u8; 16],
    ) -> Self {
        let (nonce, icv) = (NonceBlock::of_gcm(nonce), Icv::Give(tag));
        let HashedAad { beyond, last } = aad;
        let header = beyond.cast_unsigned();
        Self { key, nonce, stage: Stage::Due, header, beside: last, data, icv }
    }

    /// Puts an operation of a pair of cipher and MAC together; see [`SealOp::framed`]. The text,
    /// `frame` from `header` on, is replaced by its plaintext, or by zeros if the frame is not
    /// authentic.
    ///
    /// # Errors
    ///
    /// [`OpError`] if a part does not have a length that the key's suite calls for, or the suite is
    /// an AEAD.
    #[inline(always)]
    pub fn framed(
        key: &'a OpenKey,
        iv: impl Into<OpenNonce>,
        frame: &'a mut [u8],
        header: usize,
        trailer: &'a [u8],
        icv: &'a [u8],
    ) -> Result<Self, OpError> {
        let (key, nonce) = (key.inner(), iv.into().0);
        check_framed(key, nonce.len(), frame.len(), header, trailer.len(), icv.len())?;
        let nonce = nonce.with_counter(key.limits().counter);
        // Checked to fit.
        let (header, stage, icv) = (header as u32, Stage::Due, Icv::Compare(icv));
        Ok(Self { key, nonce, stage, header, beside: trailer, data: frame, icv })
    }

    /// Puts an operation of any suite together; see [`SealOp::in_place`].
    ///
    /// # Errors
    ///
    /// [`OpError`] if a part does not have a length that the key's suite calls for, or the packet is too
    /// short for its parts.
    #[inline(always)]
    pub fn in_place(
        key: &'a OpenKey,
        nonce: impl Into<OpenNonce>,
        packet: &'a mut [u8],
        (header, text): (usize, usize),
        beside: &'a [u8],
    ) -> Result<Self, OpError> {
        let (key, nonce) = (key.inner(), nonce.into().0);
        let lengths = (header, text);
        let (at, icv) = check_in_place(key, nonce.len(), packet.len(), lengths, beside.len())?;
        let nonce = nonce.with_counter(key.limits().counter);
        let (data, rest) = packet.split_at_mut(at);
        let icv = Icv::Compare(&rest[..icv]);
        Ok(Self { key, nonce, stage: Stage::Due, header: header as u32, beside, data, icv })
    }

    /// Result of the operation.
    #[inline]
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        match self.stage {
            Stage::Authentic => Verdict::Authentic,
            Stage::Forged => Verdict::Forged,
            Stage::Due | Stage::Matches | Stage::Refused | Stage::Decrypted => Verdict::Pending,
        }
    }

    /// The plaintext, if the packet was opened and is authentic; of a frame, what is behind the
    /// header.
    #[inline]
    #[must_use]
    pub fn into_plaintext(self) -> Option<&'a mut [u8]> {
        let text = self.data.get_mut(self.header as usize..);
        text.filter(|_| self.stage == Stage::Authentic)
    }
}

/// Bytes of header and text together, and of the ICV behind them, for an operation of either form.
#[inline(always)]
fn check_in_place(
    key: &Key,
    nonce: u8,
    packet: usize,
    (header, text): (usize, usize),
    beside: usize,
) -> Result<(usize, usize), OpError> {
    let icv = usize::from(key.limits().icv);
    let before = header.wrapping_add(text);
    let room = before >= header && before <= packet && packet - before >= icv;
    let fits = match key.limits().aead {
        true => header == 0 && fits_apart(key, nonce, beside, text, icv),
        false => fits_framed(key, nonce, before, header, beside, icv),
    };
    if room && fits {
        return Ok((before, icv));
    }
    Err(in_place_error(key, nonce, packet, (header, text), beside))
}

#[cold]
#[inline(never)]
fn in_place_error(
    key: &Key,
    nonce: u8,
    packet: usize,
    (header, text): (usize, usize),
    beside: usize,
) -> OpError {
    let icv = usize::from(key.limits().icv);
    let needed = header.saturating_add(text).saturating_add(icv);
    match key.limits().aead {
        _ if needed > packet => OpError::PacketTooShort { needed, given: packet },
        true if header > 0 => OpError::WrongForm {
            suite: key.suite(),
            hint: "leave the header to the additional data",
        },
        true => apart_error(key, nonce, beside, text, icv),
        false => framed_error(key, nonce, header + text, header, beside, icv),
    }
}

#[inline(always)]
fn check_apart(key: &Key, nonce: u8, aad: usize, data: usize, icv: usize) -> Result<(), OpError> {
    if fits_apart(key, nonce, aad, data, icv) {
        return Ok(());
    }
    Err(apart_error(key, nonce, aad, data, icv))
}

#[inline(always)]
fn fits_apart(key: &Key, nonce: u8, aad: usize, data: usize, icv: usize) -> bool {
    let limits = key.limits();
    let (fewest, most) = limits.nonce;
    let limit = if fewest == most { limits.data } else { ccm_limit(nonce) };
    limits.aead
        && icv == usize::from(limits.icv)
        && (fewest..=most).contains(&nonce)
        && data as u64 <= limit
        && aad as u64 <= AAD_MAX
}

/// Most bytes of additional data.
const AAD_MAX: u64 = 1 << 60;

/// Most bytes that CCM's length field can tell with a nonce of this length (NIST SP 800-38C
/// appendix A.1).
const fn ccm_limit(nonce: u8) -> u64 {
    let field = 15u32.saturating_sub(nonce as u32);
    if field >= 8 { u64::MAX } else { (1 << (8 * field)) - 1 }
}

#[cold]
fn apart_error(key: &Key, nonce: u8, aad: usize, data: usize, icv: usize) -> OpError {
    let (suite, limits) = (key.suite(), key.limits());
    let (fewest, most) = limits.nonce;
    let limit = if fewest == most { limits.data } else { ccm_limit(nonce) };
    if !limits.aead {
        return OpError::WrongForm { suite, hint: "use framed, with the header in the frame" };
    }
    if !(fewest..=most).contains(&nonce) {
        let (expected, given) = (suite.nonce_bytes(), usize::from(nonce));
        return OpError::NonceLength { expected, given };
    }
    if icv != usize::from(limits.icv) {
        return OpError::IcvLength { expected: suite.icv_bytes(), given: icv };
    }
    if data as u64 > limit {
        return OpError::DataTooLong { limit, given: data };
    }
    OpError::AadTooLong { given: aad }
}

#[inline(always)]
fn check_framed(
    key: &Key,
    nonce: u8,
    frame: usize,
    header: usize,
    trailer: usize,
    icv: usize,
) -> Result<(), OpError> {
    if fits_framed(key, nonce, frame, header, trailer, icv) {
        return Ok(());
    }
    Err(framed_error(key, nonce, frame, header, trailer, icv))
}

#[inline(always)]
fn fits_framed(
    key: &Key,
    nonce: u8,
    frame: usize,
    header: usize,
    trailer: usize,
    icv: usize,
) -> bool {
    let limits = key.limits();
    let text = frame.wrapping_sub(header);
    !limits.aead
        && icv == usize::from(limits.icv)
        && nonce == limits.nonce.0
        && header <= frame
        && header <= HEADER_MAX
        && text as u64 <= limits.data
        && text & usize::from(limits.partial) == 0
        && trailer <= TRAILER_MAX
}

#[cold]
fn framed_error(
    key: &Key,
    nonce: u8,
    frame: usize,
    header: usize,
    trailer: usize,
    icv: usize,
) -> OpError {
    let (suite, limits) = (key.suite(), key.limits());
    if limits.aead {
        return OpError::WrongForm { suite, hint: "use new, with the additional data apart" };
    }
    if nonce != limits.nonce.0 {
        let (expected, given) = (suite.nonce_bytes(), usize::from(nonce));
        return OpError::NonceLength { expected, given };
    }
    if icv != usize::from(limits.icv) {
        return OpError::IcvLength { expected: suite.icv_bytes(), given: icv };
    }
    if trailer > TRAILER_MAX {
        return OpError::TrailerTooLong { given: trailer };
    }
    let Some(text) = frame.checked_sub(header) else {
        return OpError::HeaderBeyondFrame { header, frame };
    };
    if header > HEADER_MAX {
        return OpError::HeaderTooLong { given: header };
    }
    if text as u64 > limits.data {
        return OpError::DataTooLong { limit: limits.data, given: text };
    }
    OpError::NotWholeBlocks { block: suite.block_bytes(), given: text }
}

/// Most bytes of a header: what fits the operation's field for it.
const HEADER_MAX: usize = u32::MAX as usize;

/// Parts of an operation that a kernel of GCM works on.
pub(crate) struct Parts<'p> {
    /// The nonce, then four zero bytes where counters go.
    pub(crate) counter: &'p [u8; 16],
    /// All additional data, or the one block that is left of it: the last one, with the hash of all
    /// before it added.
    pub(crate) aad: &'p [u8],
    /// Bytes of all additional data.
    pub(crate) aad_len: usize,
    pub(crate) data: &'p mut [u8],
}

/// Parts of an operation that a pass of any suite works on.
pub(crate) struct Whole<'p> {
    /// The nonce or IV, then zeros; for CTR, the first counter block.
    pub(crate) nonce: &'p [u8; 16],
    pub(crate) nonce_len: usize,
    /// Bytes of `data` in front of the text.
    pub(crate) header: usize,
    /// Additional data of an AEAD, trailer of a pair.
    pub(crate) beside: &'p [u8],
    pub(crate) data: &'p mut [u8],
}

/// Receiver of the outcome of an operation: of one that seals, or of one that opens.
pub(crate) enum Sink<'p> {
    Seal { icv: &'p mut [u8], sealed: &'p mut bool },
    Open { icv: &'p [u8], stage: &'p mut Stage },
    Give { tag: &'p mut [u8; 16], stage: &'p mut Stage },
}

impl Sink<'_> {
    /// Writes the ICV from the front of the whole MAC, or compares it. To end an operation that opens
    /// is left to the caller ([`Op::conclude`]).
    #[inline(always)]
    pub(crate) fn finish(self, tag: &[u8]) {
        match self {
            Self::Seal { icv, sealed } => {
                *sealed = true;
                write_icv(tag, icv);
            }
            Self::Open { icv, stage } => {
                *stage = if icv_matches(tag, icv) { Stage::Matches } else { Stage::Refused };
            }
            Self::Give { tag: to, stage } => {
                *stage = Stage::Decrypted;
                write_icv(tag, to);
            }
        }
    }
}

/// View of an operation for the scheduler and the kernels: seal and open differ in direction and in what becomes of
/// the tag.
pub(crate) trait Op<'a> {
    /// True if the data goes from plaintext to ciphertext.
    const SEAL: bool;

    /// The key.
    fn key(&self) -> &'a Key;

    /// True if the operation still has to run.
    fn is_due(&self) -> bool;

    /// True if its ICV was compared and does not match, but it has not been wiped yet. False where
    /// nothing is compared.
    #[inline(always)]
    fn is_refused(&self) -> bool {
        false
    }

    /// True if it was opened and is not authentic. False where nothing is compared.
    #[inline(always)]
    fn is_forged(&self) -> bool {
        false
    }

    /// True if it was opened and its tag given away, so that nobody here knows whether it is authentic. False
    /// where tags are compared.
    #[inline(always)]
    fn is_unjudged(&self) -> bool {
        false
    }

    /// Ends what was opened, once nothing is left to be decrypted: wipes what does not match, and
    /// gives the verdict.
    #[inline(always)]
    fn conclude(&mut self) {}

    /// Payload bytes.
    fn data_len(&self) -> usize;

    /// Nonce, additional data and payload.
    fn parts(&mut self) -> Parts<'_>;

    /// All of it, and where the outcome goes.
    fn split(&mut self) -> (Whole<'_>, Sink<'_>);

    /// Ends the operation: the payload has been transformed and `tag` is the full tag of an AEAD.
    fn finish(&mut self, tag: [u8; 16]);

    /// The ICV that the tag is to be compared with, if that is all of the tag.
    #[inline(always)]
    fn expected(&self) -> Option<&[u8; 16]> {
        None
    }

    /// Room for the tag, if all of it is to be written.
    #[inline(always)]
    fn place(&mut self) -> Option<&mut [u8; 16]> {
        None
    }

    /// Ends the operation like [`finish`](Self::finish), the ICV being written or compared already. What has
    /// nothing to compare is over all the same.
    fn settle(&mut self, matches: bool);
}

/// Makes the parts that passes need of an operation, its outcome apart; a macro, because it borrows single fields.
macro_rules! whole {
    ($op:ident) => {
        Whole {
            nonce: &$op.nonce.bytes,
            nonce_len: usize::from($op.nonce.len()),
            header: $op.header as usize,
            beside: $op.beside,
            data: $op.data,
        }
    };
}

macro_rules! common {
    () => {
        #[inline(always)]
        fn key(&self) -> &'a Key {
            self.key
        }

        #[inline(always)]
        fn data_len(&self) -> usize {
            self.data.len()
        }

        #[inline(always)]
        fn parts(&mut self) -> Parts<'_> {
            let beyond = self.header.cast_signed() as isize;
            let aad_len = self.beside.len().wrapping_add_signed(beyond);
            Parts { counter: &self.nonce.bytes, aad: self.beside, aad_len, data: self.data }
        }
    };
}

impl<'a> Op<'a> for SealOp<'a> {
    const SEAL: bool = true;

    common!();

    #[inline(always)]
    fn is_due(&self) -> bool {
        !self.sealed
    }

    #[inline(always)]
    fn split(&mut self) -> (Whole<'_>, Sink<'_>) {
        (whole!(self), Sink::Seal { icv: self.icv, sealed: &mut self.sealed })
    }

    #[inline(always)]
    fn finish(&mut self, tag: [u8; 16]) {
        self.sealed = true;
        write_icv(&tag, self.icv);
    }

    #[inline(always)]
    fn place(&mut self) -> Option<&mut [u8; 16]> {
        self.icv.try_into().ok()
    }

    #[inline(always)]
    fn settle(&mut self, _: bool) {
        self.sealed = true;
    }
}

impl<'a> Op<'a> for OpenOp<'a> {
    const SEAL: bool = false;

    common!();

    #[inline(always)]
    fn is_due(&self) -> bool {
        self.stage == Stage::Due
    }

    #[inline(always)]
    fn is_refused(&self) -> bool {
        self.stage == Stage::Refused
    }

    #[inline(always)]
    fn is_forged(&self) -> bool {
        self.stage == Stage::Forged
    }

    #[inline(always)]
    fn is_unjudged(&self) -> bool {
        self.stage == Stage::Decrypted
    }

    #[inline(always)]
    fn conclude(&mut self) {
        match self.stage {
            Stage::Matches => self.stage = Stage::Authentic,
            Stage::Refused => {
                if let Some(text) = self.data.get_mut(self.header as usize..) {
                    text.fill(0);
                }
                self.stage = Stage::Forged;
            }
            Stage::Due | Stage::Authentic | Stage::Forged | Stage::Decrypted => {}
        }
    }

    #[inline(always)]
    fn split(&mut self) -> (Whole<'_>, Sink<'_>) {
        let stage = &mut self.stage;
        let sink = match &mut self.icv {
            Icv::Compare(icv) => Sink::Open { icv, stage },
            Icv::Give(tag) => Sink::Give { tag, stage },
        };
        (whole!(self), sink)
    }

    #[inline(always)]
    fn finish(&mut self, tag: [u8; 16]) {
        match &mut self.icv {
            Icv::Compare(icv) => {
                let matches = icv_matches(&tag, icv);
                self.settle(matches);
            }
            Icv::Give(to) => {
                **to = tag;
                self.stage = Stage::Decrypted;
            }
        }
    }

    #[inline(always)]
    fn expected(&self) -> Option<&[u8; 16]> {
        match &self.icv {
            Icv::Compare(icv) => (*icv).try_into().ok(),
            Icv::Give(_) => None,
        }
    }

    #[inline(always)]
    fn place(&mut self) -> Option<&mut [u8; 16]> {
        match &mut self.icv {
            Icv::Compare(_) => None,
            Icv::Give(to) => Some(to),
        }
    }

    #[inline(always)]
    fn settle(&mut self, matches: bool) {
        self.stage = match self.icv {
            Icv::Give(_) => Stage::Decrypted,
            Icv::Compare(_) if matches => Stage::Authentic,
            Icv::Compare(_) => {
                self.data.fill(0);
                Stage::Forged
            }
        };
    }
}

/// Writes the front of `tag`, as much as there is room for.
#[inline(always)]
pub(crate) fn write_icv(tag: &[u8], icv: &mut [u8]) {
    // The usual lengths apart, so that each is one or two plain stores.
    let fixed = match icv.len() {
        16 => copy_front::<16>(tag, icv),
        12 => copy_front::<12>(tag, icv),
        8 => copy_front::<8>(tag, icv),
        _ => false,
    };
    if !fixed {
        for (icv, tag) in icv.iter_mut().paired_with(tag) {
            *icv = *tag;
        }
    }
}

#[inline(always)]
fn copy_front<const N: usize>(from: &[u8], to: &mut [u8]) -> bool {
    match (from.first_chunk::<N>(), to.first_chunk_mut::<N>()) {
        (Some(from), Some(to)) => {
            *to = *from;
            true
        }
        _ => false,
    }
}

/// Makes public whether two tags are equal, all that everybody may know of secrets. With the feature
/// `secret-marks`, Valgrind is told.
#[inline(always)]
pub(crate) fn made_public(equal: bool) -> bool {
    #[cfg(all(feature = "secret-marks", target_arch = "x86_64"))]
    let equal = {
        let mut byte = u8::from(equal);
        crate::marks::mark_public(&mut byte);
        black_box(byte) != 0
    };
    equal
}

/// Compares the front of `tag` with `icv`, which is not longer. The time taken depends on the
/// lengths alone: every byte is gathered into one difference, and only that is tested.
#[inline(always)]
pub(crate) fn icv_matches(tag: &[u8], icv: &[u8]) -> bool {
    let (mut tag, mut icv) = (tag, icv);
    if icv.len() > tag.len() {
        return false;
    }
    let mut difference = 0;
    while let (Some((&a, tag_rest)), Some((&b, icv_rest))) =
        (tag.split_first_chunk::<8>(), icv.split_first_chunk::<8>())
    {
        difference |= u64::from_le_bytes(a) ^ u64::from_le_bytes(b);
        (tag, icv) = (tag_rest, icv_rest);
    }
    if let (Some((&a, tag_rest)), Some((&b, icv_rest))) =
        (tag.split_first_chunk::<4>(), icv.split_first_chunk::<4>())
    {
        difference |= u64::from(u32::from_le_bytes(a) ^ u32::from_le_bytes(b));
        (tag, icv) = (tag_rest, icv_rest);
    }
    for (a, b) in tag.iter().paired_with(icv) {
        difference |= u64::from(a ^ b);
    }
    // The black box keeps the compiler from testing the words one after the other.
    made_public(black_box(difference) == 0)
}

impl fmt::Debug for SealOp<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealOp")
            .field("suite", &self.key.suite())
            .field("data_len", &self.data.len())
            .field("sealed", &self.sealed)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for OpenOp<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOp")
            .field("suite", &self.key.suite())
            .field("data_len", &self.data.len())
            .field("verdict", &self.verdict())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cpu, KeyMaterial, SecretBytes, Suite};

    #[test]
    fn one_flipped_bit_anywhere_in_the_icv_is_noticed() {
        let tag: [u8; 64] = std::array::from_fn(|i| (i as u8).wrapping_mul(13));
        for len in 1..=64 {
            assert!(icv_matches(&tag, &tag[..len]));
            for bit in 0..len * 8 {
                let mut icv = tag;
                icv[bit / 8] ^= 1 << (bit % 8);
                assert!(!icv_matches(&tag, &icv[..len]), "bit {bit} of {len} bytes");
            }
        }
        assert!(!icv_matches(&tag[..16], &tag[..17]));
    }

    #[test]
    fn icvs_of_every_length_are_the_front_of_the_tag() {
        let tag: [u8; 64] = std::array::from_fn(|i| i as u8 + 1);
        for len in 0..=64 {
            let mut icv = vec![0; len];
            write_icv(&tag, &mut icv);
            assert_eq!(icv, tag[..len]);
        }
    }

    fn key(suite: &str) -> SealKey {
        let suite: Suite = suite.parse().unwrap();
        let secret = |bytes| SecretBytes::copy_from(&vec![1; bytes]);
        let material = KeyMaterial {
            cipher: secret(suite.key_bytes()),
            integrity: secret(suite.integrity_key_bytes()),
        };
        SealKey::new(&Cpu::without("").unwrap(), suite, material).unwrap()
    }

    #[test]
    fn a_packet_that_work_stops_on_is_neither_authentic_nor_decrypted_again() {
        let suite: Suite = "null+hmac-sha1-96".parse().unwrap();
        let material = KeyMaterial {
            cipher: SecretBytes::copy_from(&[]),
            integrity: SecretBytes::copy_from(&[1; 20]),
        };
        let key = OpenKey::new(&Cpu::without("").unwrap(), suite, material).unwrap();
        for (tag, verdict, text) in
            [([5; 20], Verdict::Authentic, [7; 10]), ([6; 20], Verdict::Forged, [0; 10])]
        {
            let mut frame = [7; 10];
            let mut op = OpenOp::framed(&key, [], &mut frame, 0, b"", &[5; 12]).unwrap();
            op.split().1.finish(&tag);
            assert_eq!((op.verdict(), op.is_due()), (Verdict::Pending, false));
            op.conclude();
            assert_eq!(op.verdict(), verdict);
            assert_eq!(frame, text);
        }
    }

    #[test]
    fn an_operation_that_verifies_nothing_gives_the_tag_that_should_have_come() {
        for cpu in [Cpu::detect().unwrap(), Cpu::without("").unwrap()] {
            for name in ["aes-256-gcm-16", "aes-128-gmac-16", "chacha20-poly1305", "aes-128-ccm-16"]
            {
                let suite: Suite = name.parse().unwrap();
                let secret = vec![1; suite.key_bytes()];
                let material = KeyMaterial {
                    cipher: SecretBytes::copy_from(&secret),
                    integrity: Vec::new().into(),
                };
                let key = AeadKey::new(&cpu, suite, material).unwrap();
                let len = suite.nonce_bytes() as u8;
                for text in [0, 16, 100] {
                    let (mut data, mut icv) = (vec![5; text], [0; 16]);
                    let nonce = Nonce::front([9; 16], len);
                    let op = SealOp::with_aead_key(&key, nonce, b"aad", &mut data, &mut icv);
                    crate::seal_burst(&mut [op.unwrap()]);
                    let mut tag = [0; 16];
                    let nonce = OpenNonce::front([9; 16], len);
                    let op = OpenOp::unverified(&key, nonce, b"aad", &mut data, &mut tag);
                    let mut ops = [op.unwrap()];
                    crate::open_burst(&mut ops);
                    assert_eq!(ops[0].verdict(), Verdict::Pending);
                    assert_eq!((data, tag), (vec![5; text], icv), "{name}");
                }
                let cut: OpError = OpenOp::unverified(&key, [0; 3], b"", &mut [], &mut [0; 16])
                    .map(drop)
                    .unwrap_err();
                assert!(matches!(cut, OpError::NonceLength { .. }), "{name}");
            }
        }
    }

    #[test]
    fn lengths_beyond_an_aead_are_refused() {
        let gcm = key("aes-128-gcm-16");
        let check = |nonce, aad, data, icv| check_apart(gcm.inner(), nonce, aad, data, icv);
        let limit = crate::GcmParams::MAX_DATA;
        let most = limit as usize;
        assert_eq!(check(12, 0, most, 16), Ok(()));
        assert_eq!(
            check(12, 0, most + 1, 16),
            Err(OpError::DataTooLong { limit, given: most + 1 })
        );
        let aad = (1usize << 60) + 1;
        assert_eq!(check(12, aad, 0, 16), Err(OpError::AadTooLong { given: aad }));
        for given in [0, 8, 12, 15, 17] {
            let error = OpError::IcvLength { expected: 16, given };
            assert_eq!(check(12, 0, 0, given), Err(error));
        }
        for given in [0, 11, 13, 16] {
            let error = OpError::NonceLength { expected: 12, given };
            assert_eq!(check(given as u8, 0, 0, 16), Err(error));
        }
        let framed = check_framed(gcm.inner(), 12, 10, 0, 0, 16);
        assert!(matches!(framed, Err(OpError::WrongForm { .. })), "{framed:?}");
    }

    #[test]
    fn chacha20_ends_before_its_counter() {
        let chacha = key("chacha20-poly1305");
        let limit = ((1u64 << 32) - 2) * 64;
        let most = limit as usize;
        assert_eq!(check_apart(chacha.inner(), 12, 0, most, 16), Ok(()));
        let error = OpError::DataTooLong { limit, given: most + 1 };
        assert_eq!(check_apart(chacha.inner(), 12, 0, most + 1, 16), Err(error));
    }

    #[test]
    fn the_longer_ccm_s_nonce_the_shorter_its_data() {
        let ccm = key("aes-128-ccm-8");
        let check = |nonce, data| check_apart(ccm.inner(), nonce, 0, data, 8);
        for (nonce, limit) in
            [(13, 0xffff), (12, 0xff_ffff), (11, u64::from(u32::MAX)), (8, (1 << 56) - 1)]
        {
            let most = limit as usize;
            assert_eq!(check(nonce, most), Ok(()));
            let error = OpError::DataTooLong { limit, given: most + 1 };
            assert_eq!(check(nonce, most + 1), Err(error));
        }
        assert_eq!(check(7, usize::MAX), Ok(()));
        for given in [6, 14] {
            let error = OpError::NonceLength { expected: 11, given };
            assert_eq!(check(given as u8, 0), Err(error));
        }
    }

    #[test]
    fn frames_that_do_not_fit_a_pair_are_refused() {
        let cbc = key("aes-128-cbc+hmac-sha1-96");
        let check = |nonce, frame, header, trailer, icv| {
            check_framed(cbc.inner(), nonce, frame, header, trailer, icv)
        };
        assert_eq!(check(16, 24 + 64, 24, 4, 12), Ok(()));
        assert_eq!(check(16, 24, 24, 0, 12), Ok(()));
        let cases = [
            (check(12, 88, 24, 0, 12), OpError::NonceLength { expected: 16, given: 12 }),
            (check(16, 88, 24, 0, 16), OpError::IcvLength { expected: 12, given: 16 }),
            (check(16, 88, 25, 0, 12), OpError::NotWholeBlocks { block: 16, given: 63 }),
            (check(16, 88, 89, 0, 12), OpError::HeaderBeyondFrame { header: 89, frame: 88 }),
            (
                check(16, 88, usize::MAX, 0, 12),
                OpError::HeaderBeyondFrame { header: usize::MAX, frame: 88 },
            ),
            (check(16, 88, 24, 17, 12), OpError::TrailerTooLong { given: 17 }),
            (
                check(16, 1 << 33, 0, 0, 12),
                OpError::DataTooLong { limit: (1 << 32) - 1, given: 1 << 33 },
            ),
        ];
        for (outcome, error) in cases {
            assert_eq!(outcome, Err(error));
        }
        let apart = check_apart(cbc.inner(), 16, 0, 64, 12);
        assert!(matches!(apart, Err(OpError::WrongForm { .. })), "{apart:?}");
    }
    #[test]
    fn packets_too_short_for_their_parts_are_refused() {
        let refused = |suite: &str, nonce, len, lengths| {
            let (key, mut packet) = (key(suite), vec![0; len]);
            let op = SealOp::in_place(&key, nonce, &mut packet, lengths, b"");
            op.map(drop).unwrap_err()
        };
        let (gcm, cbc) = ("aes-128-gcm-16", "aes-128-cbc+hmac-sha1-96");
        let short = |needed, given| OpError::PacketTooShort { needed, given };
        let nonce = || Nonce::new([0; 12]);
        assert_eq!(refused(gcm, nonce(), 20, (0, 21)), short(37, 20));
        assert_eq!(refused(gcm, nonce(), 20, (0, 5)), short(21, 20));
        assert_eq!(refused(gcm, nonce(), 20, (1, usize::MAX)), short(usize::MAX, 20));
        let error = refused(gcm, nonce(), 40, (8, 16));
        assert!(matches!(error, OpError::WrongForm { .. }), "{error:?}");
        let error = refused(gcm, Nonce::new([0; 11]), 40, (0, 16));
        assert_eq!(error, OpError::NonceLength { expected: 12, given: 11 });
        assert_eq!(refused(cbc, Nonce::new([0; 16]), 51, (24, 16)), short(52, 51));
        let error = refused(cbc, Nonce::new([0; 16]), 60, (24, 17));
        assert_eq!(error, OpError::NotWholeBlocks { block: 16, given: 17 });
    }

    #[test]
    fn an_operation_in_place_does_what_one_of_parts_does() {
        for (suite, header) in [("aes-128-gcm-8", 0), ("aes-128-cbc+hmac-sha1-96", 24)] {
            let key = key(suite);
            let (nonce, icv) = (key.suite().nonce_bytes() as u8, key.icv_bytes());
            let nonce = || Nonce::front([9; 16], nonce);
            let text = header + 32;
            let (mut whole, mut frame) = ([6; 100], [6; 100]);
            let lengths = (header, text - header);
            let op = SealOp::in_place(&key, nonce(), &mut whole, lengths, b"beside").unwrap();
            crate::seal_burst(&mut [op]);
            let (data, rest) = frame.split_at_mut(text);
            let tag = &mut rest[..icv];
            let op = match header {
                0 => SealOp::new(&key, nonce(), b"beside", data, tag),
                _ => SealOp::framed(&key, nonce(), data, header, b"beside", tag),
            };
            crate::seal_burst(&mut [op.unwrap()]);
            assert_eq!(whole, frame, "{suite}");
            assert_ne!(whole[header..text + icv], [6; 100][header..text + icv]);
            assert_eq!(whole[text + icv..], [6; 100][text + icv..]);
        }
    }
}
