//! Cutting an IPv4 packet into fragments (RFC 791 2.3, 3.2).

use super::{HEADER_LEN, Ipv4View, MAX_HEADER_LEN, MORE_FRAGMENTS, OFFSET_MASK};
use crate::EmitError;
use crate::checksum::sum;

/// One fragment of a packet: a header to be emitted and a range of the packet's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Start of the fragment's data in the payload of the packet that is cut, bytes.
    pub start: usize,
    /// Length of the fragment's data, bytes.
    pub len: usize,
    /// The fragment offset for its header, bytes, a multiple of 8. Differs from `start` when the
    /// packet that is cut is itself a fragment.
    pub offset: u16,
    /// The MF bit.
    pub more: bool,
    /// Length of the fragment's header, bytes. The first one keeps all options.
    pub header_len: usize,
}

/// The fragments of a packet, in order. Yields one for a packet that fits.
#[derive(Clone, Debug)]
pub struct Fragments {
    payload_len: usize,
    next: usize,
    done: bool,
    mtu: usize,
    base_offset: u16,
    more_after: bool,
    first_header_len: usize,
    later_header_len: usize,
}

impl Fragments {
    /// Plans how to send `packet` over a path of `mtu` bytes. The DF bit must be honoured by the
    /// caller's choice: with it set this refuses.
    ///
    /// # Errors
    /// [`EmitError::DontFragment`] when the packet is larger than `mtu` and DF is set;
    /// [`EmitError::MtuTooSmall`] when a fragment could not carry 8 bytes.
    pub fn new(packet: &Ipv4View<'_>, mtu: usize) -> Result<Self, EmitError> {
        let plan = Self {
            payload_len: packet.payload().len(),
            next: 0,
            done: false,
            mtu,
            base_offset: packet.fragment_offset(),
            more_after: packet.more_fragments(),
            first_header_len: packet.header_len(),
            later_header_len: HEADER_LEN.saturating_add(copied_options(packet.options()).1),
        };
        let fits = usize::from(packet.total_len()) <= mtu;
        if !fits && packet.dont_fragment() {
            return Err(EmitError::DontFragment);
        }
        if !fits && plan.room(plan.first_header_len.max(plan.later_header_len)) < 8 {
            return Err(EmitError::MtuTooSmall(mtu));
        }
        Ok(plan)
    }

    /// Data bytes beside a header, before rounding.
    const fn room(&self, header_len: usize) -> usize {
        self.mtu.saturating_sub(header_len)
    }
}

impl Iterator for Fragments {
    type Item = Fragment;

    fn next(&mut self) -> Option<Fragment> {
        if self.done {
            return None;
        }
        let header_len = if self.next == 0 { self.first_header_len } else { self.later_header_len };
        let left = self.payload_len.saturating_sub(self.next);
        let room = self.room(header_len);
        let last = left <= room;
        let len = if last { left } else { room & !7 };
        let offset = u16::try_from(self.next).ok().and_then(|n| self.base_offset.checked_add(n));
        let (Some(offset), true) = (offset, last || len > 0) else {
            self.done = true; // only an impossible fragment of a fragment comes here
            return None;
        };
        let fragment =
            Fragment { start: self.next, len, offset, more: !last || self.more_after, header_len };
        self.next = self.next.saturating_add(len);
        self.done = last;
        Some(fragment)
    }
}

impl Fragment {
    /// Writes the fragment's header, made from that of the packet being cut; returns its length.
    /// Options are copied to later fragments only when their type says so (RFC 791 3.1).
    ///
    /// # Errors
    /// [`EmitError::BufferTooSmall`], or [`EmitError::TooLong`] for a fragment of another packet.
    pub fn emit_header(&self, packet: &Ipv4View<'_>, into: &mut [u8]) -> Result<usize, EmitError> {
        let (copied, copied_len) = copied_options(packet.options());
        let options = if self.start == 0 {
            packet.options()
        } else {
            copied.get(..copied_len).unwrap_or_default()
        };
        let header_len = HEADER_LEN.saturating_add(options.len()).min(MAX_HEADER_LEN);
        let total = header_len.saturating_add(self.len);
        let total = u16::try_from(total).map_err(|_| EmitError::TooLong(total))?;
        let too_small = EmitError::BufferTooSmall { needed: header_len };
        let into = into.get_mut(..header_len).ok_or(too_small)?;
        let (fixed, rest) = into.split_first_chunk_mut::<HEADER_LEN>().ok_or(too_small)?;
        *fixed = *packet.header;
        // A header is at most 60 bytes, 15 words: the shift result fits a nibble.
        let words = u8::try_from(header_len >> 2).map_err(|_| too_small)?;
        fixed[0] = 0x40 | words;
        [fixed[2], fixed[3]] = total.to_be_bytes();
        let more = if self.more { MORE_FRAGMENTS } else { 0 };
        let keep = packet.flags_and_offset() & !(MORE_FRAGMENTS | OFFSET_MASK);
        [fixed[6], fixed[7]] = (keep | more | self.offset >> 3).to_be_bytes();
        [fixed[10], fixed[11]] = [0, 0];
        rest.copy_from_slice(options);
        let check = sum(fixed).combine(sum(rest), false).finish();
        [fixed[10], fixed[11]] = check.to_be_bytes();
        Ok(header_len)
    }
}

/// The options that later fragments carry, padded to a multiple of 4, and their length.
/// A malformed option ends the list.
fn copied_options(mut options: &[u8]) -> ([u8; 40], usize) {
    const END: u8 = 0;
    const NO_OPERATION: u8 = 1;
    const COPIED: u8 = 0x80;
    let mut out = [0; 40];
    let mut len = 0usize;
    while let Some((&kind, after)) = options.split_first() {
        if kind == END {
            break;
        }
        if kind == NO_OPERATION {
            options = after;
            continue;
        }
        let option_len = usize::from(after.first().copied().unwrap_or(0));
        let Some((option, rest)) = options.split_at_checked(option_len) else { break };
        if option_len < 2 {
            break;
        }
        options = rest;
        if kind & COPIED == 0 {
            continue;
        }
        let end = len.saturating_add(option_len);
        let Some(room) = out.get_mut(len..end) else { break };
        room.copy_from_slice(option);
        len = end;
    }
    (out, len.next_multiple_of(4).min(40))
}
