//! The Internet checksum (RFC 1071), at memory speed.
//!
//! A [`Sum`] is a ones'-complement sum that is not finished yet: parts of a packet are summed
//! apart, added, and folded once. [`update16`] changes a finished checksum when one 16-bit word of
//! what it covers changes (RFC 1624).
#![allow(clippy::arithmetic_side_effects)] // sums are bounded by construction, stated at each type

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ops::Add;

use crate::{EmitError, Protocol, tcp, udp};

/// An unfinished ones'-complement sum of 16-bit big-endian words.
///
/// Each part adds less than 2¹⁶, so more than 2⁴⁸ parts fit before the 64 bits overflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// The sum of nothing.
    pub const ZERO: Self = Self(0);

    /// The sum of one 16-bit word.
    #[inline]
    pub const fn word(word: u16) -> Self {
        Self(word as u64)
    }

    /// The IPv4 pseudo header of an upper-layer packet of `len` bytes (RFC 9293 3.1).
    #[inline]
    pub fn pseudo_v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: Protocol, len: u16) -> Self {
        let (src, dst) = (u64::from(src.to_bits()), u64::from(dst.to_bits()));
        let halves = (src >> 16) + (src & 0xffff) + (dst >> 16) + (dst & 0xffff);
        Self(halves + u64::from(protocol.0) + u64::from(len))
    }

    /// The IPv6 pseudo header of an upper-layer packet of `len` bytes (RFC 8200 8.1).
    #[inline]
    pub fn pseudo_v6(src: Ipv6Addr, dst: Ipv6Addr, protocol: Protocol, len: u32) -> Self {
        let words = |a: Ipv6Addr| a.segments().iter().map(|&s| u64::from(s)).sum::<u64>();
        let len = u64::from(len >> 16) + u64::from(len & 0xffff);
        Self(words(src) + words(dst) + u64::from(protocol.0) + len)
    }

    /// The pseudo header of either version; `None` when the addresses are of different versions or
    /// `len` does not fit into the version's length field.
    #[inline]
    pub fn pseudo(src: IpAddr, dst: IpAddr, protocol: Protocol, len: usize) -> Option<Self> {
        Some(match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                Self::pseudo_v4(src, dst, protocol, u16::try_from(len).ok()?)
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                Self::pseudo_v6(src, dst, protocol, u32::try_from(len).ok()?)
            }
            _ => return None,
        })
    }

    /// This sum as a part that begins at an odd offset: its bytes change places (RFC 1071 2 (B)).
    #[inline]
    #[must_use]
    pub const fn at_odd_offset(self) -> Self {
        Self(self.fold().swap_bytes() as u64)
    }

    /// Adds `other`, which covers the bytes after those of `self`; `odd` tells whether `self`
    /// covers an odd number of bytes.
    #[inline]
    #[must_use]
    pub const fn combine(self, other: Self, odd: bool) -> Self {
        let other = if odd { other.at_odd_offset() } else { other };
        Self(self.0 + other.0)
    }

    /// The 16-bit ones'-complement sum. A packet whose checksum is right folds to `0xffff`.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // the last line's carry is at most 1, see the steps
    pub const fn fold(self) -> u16 {
        let s = (self.0 >> 32) + (self.0 & 0xffff_ffff); // < 2³³
        let s = (s >> 16) + (s & 0xffff); // < 2¹⁸
        let s = (s >> 16) + (s & 0xffff); // < 2¹⁶ + 4
        ((s >> 16) + (s & 0xffff)) as u16
    }

    /// The checksum: the complement of the folded sum.
    #[inline]
    pub const fn finish(self) -> u16 {
        !self.fold()
    }

    /// The checksum of UDP, where 0 means "none" and is sent as `0xffff` (RFC 768).
    #[inline]
    pub const fn finish_udp(self) -> u16 {
        match self.finish() {
            0 => 0xffff,
            check => check,
        }
    }

    /// True if the bytes summed, their checksum field included, are intact.
    #[inline]
    pub const fn is_valid(self) -> bool {
        self.fold() == 0xffff
    }
}

impl Add for Sum {
    type Output = Self;

    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

/// Sums `bytes` as 16-bit big-endian words; an odd last byte is the high half of a word.
///
/// The words are added in the machine's byte order, 32 bits at a time into 64-bit lanes, and the
/// result is turned once at the end: the sum does not care in which order bytes are swapped
/// (RFC 1071 2 (B)).
#[inline]
pub fn sum(bytes: &[u8]) -> Sum {
    let native = if bytes.len() < 64 { sum_short(bytes) } else { sum_long(bytes) };
    Sum(u64::from(u16::from_be_bytes(Sum(native).fold().to_ne_bytes())))
}

/// Adds 32-bit words one after the other. Enough for headers.
#[inline]
fn sum_short(bytes: &[u8]) -> u64 {
    let (words, tail) = bytes.as_chunks::<4>();
    let total: u64 = words.iter().map(|w| u64::from(u32::from_ne_bytes(*w))).sum();
    let mut last = [0; 4];
    for (to, from) in last.iter_mut().zip(tail) {
        *to = *from;
    }
    total + u64::from(u32::from_ne_bytes(last))
}

/// Adds 64 bytes a turn in two chains of additions with carry, one of each other 8 bytes. They are faster than vectors
/// where wider ones than SSE2 may not be taken for granted.
#[allow(clippy::cast_possible_truncation)] // the halves of a pair
fn sum_long(bytes: &[u8]) -> u64 {
    let (blocks, tail) = bytes.as_chunks::<64>();
    let (mut first, mut second, mut carries) = (0_u64, 0_u64, 0_u64);
    for block in blocks {
        let (pairs, _) = block.as_chunks::<16>();
        let (mut first_carry, mut second_carry) = (false, false);
        for pair in pairs {
            let pair = u128::from_ne_bytes(*pair);
            (first, first_carry) = first.carrying_add(pair as u64, first_carry);
            (second, second_carry) = second.carrying_add((pair >> 64) as u64, second_carry);
        }
        // A carry out of 64 bits is worth 1, for 2¹⁶ is 1 in this arithmetic.
        carries += u64::from(first_carry) + u64::from(second_carry);
    }
    let halves = |sum: u64| (sum >> 32) + (sum & 0xffff_ffff);
    halves(first) + halves(second) + carries + sum_short(tail)
}

/// The checksum after one covered 16-bit word changed from `old` to `new` (RFC 1624, eqn. 3).
#[inline]
#[allow(clippy::cast_possible_truncation)] // the first fold's carry is at most 2, the second leaves none
pub const fn update16(check: u16, old: u16, new: u16) -> u16 {
    let sum = !check as u32 + !old as u32 + new as u32; // < 3 * 2¹⁶
    let sum = (sum >> 16) + (sum & 0xffff); // < 2¹⁶ + 2
    !((sum >> 16) + sum) as u16
}

/// The checksum after a covered 32-bit value changed, as two words of [`update16`].
#[inline]
pub const fn update32(check: u16, old: u32, new: u32) -> u16 {
    let [o0, o1, o2, o3] = old.to_be_bytes();
    let [n0, n1, n2, n3] = new.to_be_bytes();
    let check = update16(check, u16::from_be_bytes([o0, o1]), u16::from_be_bytes([n0, n1]));
    update16(check, u16::from_be_bytes([o2, o3]), u16::from_be_bytes([n2, n3]))
}

/// Returns true if an upper-layer packet with checksum is intact, given its pseudo header.
///
/// For UDP, a checksum of 0 over IPv4 means "none": ask [`crate::UdpView::checksum`] first.
#[inline]
pub fn verify(pseudo: Sum, packet: &[u8]) -> bool {
    (pseudo + sum(packet)).is_valid()
}

/// Computes and writes the checksum of a TCP segment.
///
/// # Errors
/// [`EmitError::BufferTooSmall`] when the segment is shorter than a TCP header.
pub fn fill_tcp(pseudo: Sum, segment: &mut [u8]) -> Result<(), EmitError> {
    fill(pseudo, segment, tcp::CHECKSUM_AT, tcp::MIN_HEADER_LEN, Sum::finish)
}

/// Computes and writes the checksum of a UDP datagram.
///
/// # Errors
/// [`EmitError::BufferTooSmall`] when the datagram is shorter than a UDP header.
pub fn fill_udp(pseudo: Sum, datagram: &mut [u8]) -> Result<(), EmitError> {
    fill(pseudo, datagram, udp::CHECKSUM_AT, udp::HEADER_LEN, Sum::finish_udp)
}

/// Computes and writes the checksum of an ICMP message; for ICMPv4 the pseudo header is
/// [`Sum::ZERO`] (RFC 792), for ICMPv6 a real one (RFC 4443 2.3).
///
/// # Errors
/// [`EmitError::BufferTooSmall`] when the message is shorter than 8 bytes.
pub fn fill_icmp(pseudo: Sum, message: &mut [u8]) -> Result<(), EmitError> {
    fill(pseudo, message, 2, 8, Sum::finish)
}

#[inline]
fn fill(
    pseudo: Sum,
    packet: &mut [u8],
    at: usize,
    min_len: usize,
    finish: fn(Sum) -> u16,
) -> Result<(), EmitError> {
    let too_small = EmitError::BufferTooSmall { needed: min_len };
    if packet.len() < min_len {
        return Err(too_small);
    }
    let field = packet.get_mut(at..).and_then(<[u8]>::first_chunk_mut).ok_or(too_small)?;
    *field = [0; 2];
    let check = finish(pseudo + sum(packet));
    let field = packet.get_mut(at..).and_then(<[u8]>::first_chunk_mut).ok_or(too_small)?;
    *field = check.to_be_bytes();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// RFC 1071 as its section 1 says it, one word at a time.
    fn model(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
            if sum > 0xffff {
                sum -= 0xffff;
            }
        }
        sum as u16
    }

    #[test]
    fn sums_the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(sum(&bytes).fold(), 0xddf2);
        assert_eq!(sum(&bytes).finish(), 0x220d);
    }

    #[test]
    fn updates_the_example_of_rfc_1624() {
        // Section 4: checksum DD2F, word 5555 becomes 3285; the right answer is 0000.
        assert_eq!(update16(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn sums_the_largest_packet_of_ones_without_overflow() {
        for len in [0, 1, 2, 63, 64, 65, 65_535, 1 << 20] {
            let ones = std::vec![0xff; len];
            assert_eq!(sum(&ones).fold(), model(&ones), "{len} bytes");
        }
    }

    #[test]
    fn udp_never_sends_a_zero_checksum() {
        assert_eq!(Sum::word(0xffff).finish(), 0);
        assert_eq!(Sum::word(0xffff).finish_udp(), 0xffff);
    }

    #[test]
    fn fill_refuses_packets_shorter_than_their_header() {
        let err = Err(EmitError::BufferTooSmall { needed: 20 });
        assert_eq!(fill_tcp(Sum::ZERO, &mut [0; 19]), err);
        assert_eq!(fill_udp(Sum::ZERO, &mut [0; 7]), Err(EmitError::BufferTooSmall { needed: 8 }));
    }

    proptest! {
        #[test]
        fn agrees_with_the_word_by_word_model(bytes in prop::collection::vec(any::<u8>(), 0..700)) {
            prop_assert_eq!(sum(&bytes).fold(), model(&bytes));
        }

        #[test]
        fn parts_combine_to_the_whole_at_every_split(
            bytes in prop::collection::vec(any::<u8>(), 1..300), at in any::<prop::sample::Index>(),
        ) {
            let (head, tail) = bytes.split_at(at.index(bytes.len()));
            let combined = sum(head).combine(sum(tail), head.len() % 2 == 1);
            prop_assert_eq!(combined.fold(), model(&bytes));
        }

        #[test]
        fn incremental_update_agrees_with_a_full_sum(
            mut words in prop::collection::vec(any::<u16>(), 2..40), new in any::<u32>(),
        ) {
            let bytes = |w: &[u16]| w.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<_>>();
            // The first word makes the sum nonzero, as every IP header's is.
            words[0] |= 0x4000;
            let at = words.len() - 2;
            prop_assume!(at > 0);
            let before = sum(&bytes(&words)).finish();
            let old = u32::from(words[at]) << 16 | u32::from(words[at + 1]);
            words[at] = (new >> 16) as u16;
            words[at + 1] = new as u16;
            prop_assert_eq!(update32(before, old, new), sum(&bytes(&words)).finish());
        }

        #[test]
        fn pseudo_headers_agree_with_their_bytes(
            src in any::<u128>(), dst in any::<u128>(), proto in any::<u8>(), len in any::<u16>(),
        ) {
            let mut v6 = [src.to_be_bytes(), dst.to_be_bytes()].concat();
            v6.extend(u32::from(len).to_be_bytes());
            v6.extend([0, 0, 0, proto]);
            let got = Sum::pseudo_v6(src.into(), dst.into(), Protocol(proto), u32::from(len));
            prop_assert_eq!(got.fold(), model(&v6));

            let (src, dst) = (src as u32, dst as u32);
            let mut v4 = [src.to_be_bytes(), dst.to_be_bytes()].concat();
            v4.extend([0, proto]);
            v4.extend(len.to_be_bytes());
            let got = Sum::pseudo_v4(src.into(), dst.into(), Protocol(proto), len);
            prop_assert_eq!(got.fold(), model(&v4));
        }

        #[test]
        fn filled_packets_verify_and_damaged_ones_do_not(
            mut packet in prop::collection::vec(any::<u8>(), 20..200),
            at in any::<prop::sample::Index>(), flip in 1u8..=255,
        ) {
            let pseudo = Sum::pseudo_v4(1.into(), 2.into(), Protocol::TCP, packet.len() as u16);
            fill_tcp(pseudo, &mut packet).unwrap();
            prop_assert!(verify(pseudo, &packet));
            let at = at.index(packet.len());
            packet[at] ^= flip;
            prop_assert!(!verify(pseudo, &packet));
        }
    }
}
