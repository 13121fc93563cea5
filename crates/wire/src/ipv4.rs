//! IPv4 (RFC 791).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-------+-------+---------------+-------------------------------+
//! |version|  IHL  |  TOS          |          total length         |
//! +-------+-------+---------------+-----+-------------------------+
//! |         identification        |0|D|M|     fragment offset     |
//! +---------------+---------------+-----+-------------------------+
//! |      TTL      |   protocol    |        header checksum        |
//! +---------------+---------------+-------------------------------+
//! |                        source address                         |
//! +---------------------------------------------------------------+
//! |                     destination address                       |
//! +---------------------------------------------------------------+
//! |                    options (0 to 40 bytes)                    |
//! ```

use core::net::Ipv4Addr;

use crate::checksum::{Sum, sum, update16, update32};
use crate::{Ecn, EmitError, ParseError, Protocol, Tos};

mod fragment;
pub use fragment::{Fragment, Fragments};

/// Length of a header without options, bytes.
pub const HEADER_LEN: usize = 20;
/// Length of a header with all options it can have, bytes.
pub const MAX_HEADER_LEN: usize = 60;
/// Every link carries this many bytes unfragmented (RFC 791 3.2).
pub const MIN_MTU: usize = 68;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;

/// A checked view of an IPv4 packet.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4View<'a> {
    header: &'a [u8; HEADER_LEN],
    options: &'a [u8],
    payload: &'a [u8],
    trailing: usize,
}

impl<'a> Ipv4View<'a> {
    /// Checks version, header length and total length. Bytes past the total length (Ethernet
    /// padding) are tolerated and reported by [`Ipv4View::trailing`]. The header checksum is not
    /// looked at: see [`Ipv4View::checksum_ok`].
    ///
    /// # Errors
    /// `Truncated`, `BadVersion`, `BadHeaderLength`, `BadTotalLength` or `LengthBeyondData`.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (header, options_len, rest) = Self::split(bytes)?;
        let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let after_header = total_len.checked_sub(HEADER_LEN).ok_or(ParseError::BadTotalLength)?;
        let (inside, outside) =
            rest.split_at_checked(after_header).ok_or(ParseError::LengthBeyondData)?;
        let (options, payload) =
            inside.split_at_checked(options_len).ok_or(ParseError::BadHeaderLength)?;
        Ok(Self { header, options, payload, trailing: outside.len() })
    }

    /// Parses the packet quoted in an ICMP error: as [`Ipv4View::parse`], but the packet may end
    /// before its total length says. The payload is what there is of it.
    ///
    /// # Errors
    /// `Truncated`, `BadVersion` or `BadHeaderLength`.
    pub fn parse_quoted(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (header, options_len, rest) = Self::split(bytes)?;
        let (options, payload) =
            rest.split_at_checked(options_len).ok_or(ParseError::BadHeaderLength)?;
        Ok(Self { header, options, payload, trailing: 0 })
    }

    /// The fixed header, the length of the options behind it, and what follows the fixed header.
    #[inline]
    fn split(bytes: &'a [u8]) -> Result<(&'a [u8; HEADER_LEN], usize, &'a [u8]), ParseError> {
        let (header, rest) = bytes.split_first_chunk().ok_or(ParseError::Truncated)?;
        let header: &[u8; HEADER_LEN] = header;
        if header[0] >> 4 != 4 {
            return Err(ParseError::BadVersion);
        }
        let options_len = (usize::from(header[0] & 0xf) << 2)
            .checked_sub(HEADER_LEN)
            .ok_or(ParseError::BadHeaderLength)?;
        Ok((header, options_len, rest))
    }

    /// The TOS byte.
    #[inline]
    pub const fn tos(&self) -> Tos {
        Tos(self.header[1])
    }

    /// Header, options and payload, bytes: 20 to 65535. Bytes beyond are not part of the packet.
    #[inline]
    pub const fn total_len(&self) -> u16 {
        u16::from_be_bytes([self.header[2], self.header[3]])
    }

    /// Header and options, bytes: 20 to 60.
    #[inline]
    pub const fn header_len(&self) -> usize {
        ((self.header[0] & 0xf) as usize) << 2
    }

    /// The identification that fragments of one packet share.
    #[inline]
    pub const fn ident(&self) -> u16 {
        u16::from_be_bytes([self.header[4], self.header[5]])
    }

    #[inline]
    const fn flags_and_offset(&self) -> u16 {
        u16::from_be_bytes([self.header[6], self.header[7]])
    }

    /// The DF bit.
    #[inline]
    pub const fn dont_fragment(&self) -> bool {
        self.flags_and_offset() & DONT_FRAGMENT != 0
    }

    /// The MF bit.
    #[inline]
    pub const fn more_fragments(&self) -> bool {
        self.flags_and_offset() & MORE_FRAGMENTS != 0
    }

    /// Position of the payload in the unfragmented one, bytes: 0 to 65528.
    #[inline]
    pub const fn fragment_offset(&self) -> u16 {
        (self.flags_and_offset() & OFFSET_MASK) << 3
    }

    /// True if this is a part of a larger packet, the first one included.
    #[inline]
    pub const fn is_fragment(&self) -> bool {
        self.flags_and_offset() & (MORE_FRAGMENTS | OFFSET_MASK) != 0
    }

    /// The time to live.
    #[inline]
    pub const fn ttl(&self) -> u8 {
        self.header[8]
    }

    /// The protocol of the payload.
    #[inline]
    pub const fn protocol(&self) -> Protocol {
        Protocol(self.header[9])
    }

    /// The header checksum as received.
    #[inline]
    pub const fn checksum(&self) -> u16 {
        u16::from_be_bytes([self.header[10], self.header[11]])
    }

    /// True if the header checksum is right.
    #[inline]
    pub fn checksum_ok(&self) -> bool {
        sum(self.header).combine(sum(self.options), false).is_valid()
    }

    /// The source address.
    #[inline]
    pub const fn src(&self) -> Ipv4Addr {
        let h = self.header;
        Ipv4Addr::new(h[12], h[13], h[14], h[15])
    }

    /// The destination address.
    #[inline]
    pub const fn dst(&self) -> Ipv4Addr {
        let h = self.header;
        Ipv4Addr::new(h[16], h[17], h[18], h[19])
    }

    /// The options, padding included: 0 to 40 bytes, as received and unchecked.
    #[inline]
    pub const fn options(&self) -> &'a [u8] {
        self.options
    }

    /// Bytes behind the options, up to the total length.
    #[inline]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Number of bytes after the packet's end.
    #[inline]
    pub const fn trailing(&self) -> usize {
        self.trailing
    }

    /// The pseudo header sum of the payload, for an upper layer whose header is at its start.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // the payload is shorter than the u16 total length
    pub fn pseudo_sum(&self) -> Sum {
        Sum::pseudo_v4(self.src(), self.dst(), self.protocol(), self.payload.len() as u16)
    }
}

/// The values of an IPv4 header without options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Repr {
    /// The TOS byte.
    pub tos: Tos,
    /// The identification; free to be 0 when DF is set (RFC 6864).
    pub ident: u16,
    /// The DF bit.
    pub dont_fragment: bool,
    /// The time to live.
    pub ttl: u8,
    /// The protocol of the payload.
    pub protocol: Protocol,
    /// The source address.
    pub src: Ipv4Addr,
    /// The destination address.
    pub dst: Ipv4Addr,
    /// Bytes that follow the header: 0 to 65515.
    pub payload_len: usize,
}

impl Ipv4Repr {
    /// The header's bytes, checksum included.
    ///
    /// # Errors
    /// [`EmitError::TooLong`] when the payload is above 65515 bytes.
    #[inline]
    pub fn to_bytes(&self) -> Result<[u8; HEADER_LEN], EmitError> {
        let total = self.payload_len.saturating_add(HEADER_LEN);
        let total = u16::try_from(total).map_err(|_| EmitError::TooLong(total))?;
        let [l0, l1] = total.to_be_bytes();
        let [i0, i1] = self.ident.to_be_bytes();
        let [f0, f1] = if self.dont_fragment { DONT_FRAGMENT } else { 0 }.to_be_bytes();
        let [s0, s1, s2, s3] = self.src.octets();
        let [d0, d1, d2, d3] = self.dst.octets();
        let mut header = [
            0x45,
            self.tos.0,
            l0,
            l1,
            i0,
            i1,
            f0,
            f1,
            self.ttl,
            self.protocol.0,
            0,
            0,
            s0,
            s1,
            s2,
            s3,
            d0,
            d1,
            d2,
            d3,
        ];
        [header[10], header[11]] = sum(&header).finish().to_be_bytes();
        Ok(header)
    }

    /// Writes the header to the start of `into`; returns its length, [`HEADER_LEN`].
    ///
    /// # Errors
    /// [`EmitError::TooLong`], or [`EmitError::BufferTooSmall`] below 20 bytes.
    #[inline]
    pub fn emit(&self, into: &mut [u8]) -> Result<usize, EmitError> {
        let room =
            into.first_chunk_mut().ok_or(EmitError::BufferTooSmall { needed: HEADER_LEN })?;
        *room = self.to_bytes()?;
        Ok(HEADER_LEN)
    }
}

/// Changes an IPv4 header in place; every setter keeps the checksum right incrementally, so a wrong
/// checksum stays wrong.
#[derive(Debug)]
pub struct Ipv4Mut<'a> {
    header: &'a mut [u8; HEADER_LEN],
}

impl<'a> Ipv4Mut<'a> {
    /// The header at the start of `bytes`. Only version and the fixed length are checked.
    ///
    /// # Errors
    /// `Truncated` or `BadVersion`.
    #[inline]
    pub fn new(bytes: &'a mut [u8]) -> Result<Self, ParseError> {
        let header: &mut [u8; HEADER_LEN] = bytes.first_chunk_mut().ok_or(ParseError::Truncated)?;
        if header[0] >> 4 != 4 {
            return Err(ParseError::BadVersion);
        }
        Ok(Self { header })
    }

    #[inline]
    const fn word(&self, high: u8, low: u8) -> u16 {
        u16::from_be_bytes([high, low])
    }

    #[inline]
    fn update(&mut self, old: u16, new: u16) {
        let check = self.word(self.header[10], self.header[11]);
        [self.header[10], self.header[11]] = update16(check, old, new).to_be_bytes();
    }

    /// Takes one from the time to live and returns what is left; at 0 it stays 0.
    #[inline(always)]
    pub fn decrement_ttl(&mut self) -> u8 {
        let [_, _, word, _, _] = self.header.as_chunks_mut::<4>().0 else { return 0 };
        let old = u32::from_be_bytes(*word);
        let Some(ttl) = ((old >> 24) as u8).checked_sub(1) else { return 0 };
        // RFC 1624, eqn. 3, of a word that became less by 0x0100.
        let sum = (!old & 0xffff).wrapping_add(0xfeff); // below 2 * 2¹⁶
        let check = !sum.wrapping_add(sum >> 16) & 0xffff;
        *word = (u32::from(ttl) << 24 | old & 0xff_0000 | check).to_be_bytes();
        ttl
    }

    /// Sets the time to live.
    #[inline]
    pub fn set_ttl(&mut self, ttl: u8) {
        let protocol = self.header[9];
        self.update(self.word(self.header[8], protocol), self.word(ttl, protocol));
        self.header[8] = ttl;
    }

    /// Sets the protocol of the payload.
    #[inline]
    pub fn set_protocol(&mut self, protocol: Protocol) {
        let ttl = self.header[8];
        self.update(self.word(ttl, self.header[9]), self.word(ttl, protocol.0));
        self.header[9] = protocol.0;
    }

    /// Sets the TOS byte.
    #[inline]
    pub fn set_tos(&mut self, tos: Tos) {
        let first = self.header[0];
        self.update(self.word(first, self.header[1]), self.word(first, tos.0));
        self.header[1] = tos.0;
    }

    /// Sets the ECN bits of the TOS byte.
    #[inline]
    pub fn set_ecn(&mut self, ecn: Ecn) {
        self.set_tos(Tos(self.header[1]).with_ecn(ecn));
    }

    /// Sets the total length.
    #[inline]
    pub fn set_total_len(&mut self, total_len: u16) {
        self.update(self.word(self.header[2], self.header[3]), total_len);
        [self.header[2], self.header[3]] = total_len.to_be_bytes();
    }

    /// Sets the identification.
    #[inline]
    pub fn set_ident(&mut self, ident: u16) {
        self.update(self.word(self.header[4], self.header[5]), ident);
        [self.header[4], self.header[5]] = ident.to_be_bytes();
    }

    /// Sets or clears the DF bit.
    #[inline]
    pub fn set_dont_fragment(&mut self, dont_fragment: bool) {
        let old = self.word(self.header[6], self.header[7]);
        let new = if dont_fragment { old | DONT_FRAGMENT } else { old & !DONT_FRAGMENT };
        self.update(old, new);
        [self.header[6], self.header[7]] = new.to_be_bytes();
    }

    /// Makes the header that of a whole packet: fragment offset 0 and MF clear; DF stays.
    pub fn set_whole(&mut self) {
        let old = self.word(self.header[6], self.header[7]);
        let new = old & !(MORE_FRAGMENTS | OFFSET_MASK);
        self.update(old, new);
        [self.header[6], self.header[7]] = new.to_be_bytes();
    }

    /// Sets source and destination address.
    pub fn set_addrs(&mut self, src: Ipv4Addr, dst: Ipv4Addr) {
        let [.., c0, c1, s0, s1, s2, s3, d0, d1, d2, d3] = self.header;
        let check = u16::from_be_bytes([*c0, *c1]);
        let check = update32(check, u32::from_be_bytes([*s0, *s1, *s2, *s3]), src.to_bits());
        let check = update32(check, u32::from_be_bytes([*d0, *d1, *d2, *d3]), dst.to_bits());
        [*c0, *c1] = check.to_be_bytes();
        [*s0, *s1, *s2, *s3] = src.octets();
        [*d0, *d1, *d2, *d3] = dst.octets();
    }
}

/// Computes and writes the header checksum of the packet at the start of `bytes` from scratch.
///
/// # Errors
/// `Truncated`, `BadVersion` or `BadHeaderLength`.
pub fn fill_checksum(bytes: &mut [u8]) -> Result<(), ParseError> {
    let first = bytes.first().copied().ok_or(ParseError::Truncated)?;
    if first >> 4 != 4 {
        return Err(ParseError::BadVersion);
    }
    let len = usize::from(first & 0xf) << 2;
    let header = bytes.get_mut(..len).ok_or(ParseError::Truncated)?;
    let clear: &mut [u8; HEADER_LEN] =
        header.first_chunk_mut().ok_or(ParseError::BadHeaderLength)?;
    [clear[10], clear[11]] = [0, 0];
    let check = sum(header).finish().to_be_bytes();
    let fixed: &mut [u8; HEADER_LEN] =
        header.first_chunk_mut().ok_or(ParseError::BadHeaderLength)?;
    [fixed[10], fixed[11]] = check;
    Ok(())
}

#[cfg(test)]
mod tests;
