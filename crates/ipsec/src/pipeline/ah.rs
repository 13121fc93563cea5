//! AH (RFC 4302): its header goes between IP header and payload, and into it an ICV over all three.
//!
//! An engine writes ICVs behind what they cover, and AH has its own in the middle. So the packet is
//! laid out for the engine with zeros where the ICV does not look, and behind it in the frame stands
//! what is not sent:
//!
//! ```text
//!  IP header | AH, ICV field | payload | high half | ICV | tail
//!  mutable 0 |   12    zeros |         |  0 or 4   |     |  16
//!  |<--------------- authenticated --------------->|
//! ```
//!
//! The tail says how to put everything in its place again once the engine is done.

use convoy_crypto::Suite;
use convoy_engine::{Job, Span};
use convoy_packet::Frame;
use convoy_wire::ah::{self, AhHeader, FIXED_LEN, MutableFields};
use convoy_wire::{IpVersion, Protocol, SeqNum};

use crate::drop_reason::DropReason;
use crate::suite::AhSuite;

/// Bytes of the tail.
const TAIL: usize = 16;

/// Set in the note of an outbound job whose packet is laid out this way.
pub(super) const MARK: u32 = 1 << 31;

/// All that the AH packets of one SA have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct AhLayout {
    header_len: u16,
    iv: u8,
    icv: u8,
    /// Bytes of the sequence number's high half: it is authenticated behind the packet (RFC 4302
    /// section 3.3.3.2.2).
    high: u8,
    /// True if the engine takes all as data, false if as the header of an empty text.
    is_aead: bool,
}

/// Notes that a frame carries behind the packet while the engine works on it.
struct Tail {
    mutable: MutableFields,
    /// Offset of the AH header, and its length.
    at: u16,
    len: u16,
    iv: u8,
    icv: u8,
    high: u8,
    next: Protocol,
}

/// Text and header that an engine is to work on.
pub(super) struct Covered {
    pub(super) text: Span,
    pub(super) header: u32,
}

/// An AH packet that is authentic, put together again.
pub(super) struct Taken {
    /// Offset of the payload, and its length.
    pub(super) start: usize,
    pub(super) len: usize,
    pub(super) next: Protocol,
}

impl AhLayout {
    pub(super) fn new(suite: AhSuite, esn: bool, outer: IpVersion) -> Self {
        let (iv, icv) = (suite.iv_bytes(), suite.icv_bytes());
        Self {
            // At most 52.
            header_len: ah::header_len(iv + icv, outer) as u16,
            iv: iv as u8,
            icv: icv as u8,
            high: if esn { 4 } else { 0 },
            is_aead: matches!(suite.suite(), Suite::Gmac(_)),
        }
    }

    /// Bytes of the header that is sent.
    #[inline]
    pub(super) fn header_len(&self) -> usize {
        usize::from(self.header_len)
    }

    /// Bytes that a frame must have room for behind a packet.
    #[inline]
    pub(super) fn behind(&self) -> usize {
        usize::from(self.high) + usize::from(self.icv) + TAIL
    }

    /// Bytes of IV and ICV.
    #[inline]
    fn field(&self) -> usize {
        usize::from(self.iv) + usize::from(self.icv)
    }

    /// True if a received header of `len` bytes can be of this SA: some senders align to eight bytes
    /// over IPv4 as well.
    #[inline]
    pub(super) fn fits(&self, len: usize, outer: IpVersion) -> bool {
        let least = FIXED_LEN + self.field();
        let words = match outer {
            IpVersion::V4 => 4,
            IpVersion::V6 => 8,
        };
        (least..least + 8).contains(&len) && len.is_multiple_of(words)
    }

    /// Lays a whole packet out, whose AH header is at `at`. The ICV that it has goes to where the
    /// engine looks for it.
    #[inline]
    pub(super) fn arrange(
        &self,
        frame: &mut Frame,
        at: usize,
        header: AhHeader,
        seq: SeqNum,
    ) -> Result<Covered, DropReason> {
        let total = frame.len();
        let (iv, icv, high) = (usize::from(self.iv), usize::from(self.icv), usize::from(self.high));
        let covered = total + high;
        frame.set_len(total + self.behind()).map_err(|_| DropReason::NoFrame)?;
        let packet = frame.data_mut();
        let mutable = MutableFields::take(packet).map_err(|_| DropReason::AhOptions)?;
        let field = at + FIXED_LEN;
        let tail = Tail {
            mutable,
            at: at as u16,
            len: header.len as u16,
            iv: self.iv,
            icv: self.icv,
            high: self.high,
            next: header.next_header,
        };
        let written = (|| {
            packet.get(field..field + iv + icv)?;
            packet.get(covered..covered + icv)?;
            packet.copy_within(field + iv..field + iv + icv, covered);
            packet.get_mut(field..field + iv + icv)?.fill(0);
            packet.get_mut(total..covered)?.copy_from_slice(seq.high().to_be_bytes().get(..high)?);
            *packet.get_mut(covered + icv..)?.first_chunk_mut()? = tail.to_bytes();
            Some(())
        })();
        written.ok_or(DropReason::AhLength)?;
        let covered = covered as u32;
        Ok(match self.is_aead {
            true => Covered { text: Span { start: 0, len: covered }, header: 0 },
            false => Covered { text: Span { start: covered, len: 0 }, header: covered },
        })
    }
}

/// Bytes of a job that count against its SA's lifetime: of ESP those that are encrypted, of AH those
/// that are authenticated, which most suites take for the header of an empty text.
#[inline]
pub(super) fn metered(is_ah: bool, job: &Job) -> u64 {
    let header = if is_ah { job.header } else { 0 };
    u64::from(job.text.len) + u64::from(header)
}

/// The identification of an IPv4 packet that AH covers: never 0, which a raw socket takes for a wish
/// that the kernel chose one, and the ICV covers what was chosen here.
#[inline]
pub(super) fn ident(seq: SeqNum) -> u16 {
    // 1 to 65,535 in turn.
    (seq.get() % 0xffff) as u16 + 1
}

/// Takes what the engine did to a packet that was sealed: puts the ICV, and the IV that the sequence
/// number makes, into the header.
#[inline]
pub(super) fn finish(frame: &mut Frame, seq: u64) -> Option<()> {
    let tail = Tail::cut_off(frame)?;
    let (iv, icv, high) = (usize::from(tail.iv), usize::from(tail.icv), usize::from(tail.high));
    let end = frame.len();
    let covered = end.checked_sub(icv)?;
    let packet = frame.data_mut();
    let field = usize::from(tail.at) + FIXED_LEN;
    packet.get(covered..end)?;
    packet.get(field..field + iv + icv)?;
    packet.copy_within(covered..end, field + iv);
    if iv > 0 {
        *packet.get_mut(field..)?.first_chunk_mut()? = seq.to_be_bytes();
    }
    frame.truncate(covered.checked_sub(high)?);
    tail.mutable.put(frame.data_mut());
    Some(())
}

/// Puts a packet together again that the engine found authentic.
#[inline]
pub(super) fn take_back(frame: &mut Frame) -> Option<Taken> {
    let tail = Tail::cut_off(frame)?;
    let covered = frame.len().checked_sub(usize::from(tail.icv))?;
    let total = covered.checked_sub(usize::from(tail.high))?;
    frame.truncate(total);
    tail.mutable.put(frame.data_mut());
    let start = usize::from(tail.at) + usize::from(tail.len);
    Some(Taken { start, len: total.checked_sub(start)?, next: tail.next })
}

impl Tail {
    fn to_bytes(&self) -> [u8; TAIL] {
        let [a, b, c, d, e, f, g, h] = self.mutable.to_bytes();
        let [at0, at1] = self.at.to_be_bytes();
        let [len0, len1] = self.len.to_be_bytes();
        [a, b, c, d, e, f, g, h, at0, at1, len0, len1, self.iv, self.icv, self.high, self.next.0]
    }

    /// Takes the tail off the end of a frame.
    fn cut_off(frame: &mut Frame) -> Option<Self> {
        let (before, tail) = frame.data().split_last_chunk::<TAIL>()?;
        let [a, b, c, d, e, f, g, h, at0, at1, len0, len1, iv, icv, high, next] = *tail;
        let tail = Self {
            mutable: MutableFields::from_bytes([a, b, c, d, e, f, g, h]),
            at: u16::from_be_bytes([at0, at1]),
            len: u16::from_be_bytes([len0, len1]),
            iv,
            icv,
            high,
            next: Protocol(next),
        };
        let len = before.len();
        frame.truncate(len);
        Some(tail)
    }
}
