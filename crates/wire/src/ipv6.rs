//! IPv6 (RFC 8200) and the walk over its extension headers.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-------+---------------+---------------------------------------+
//! |version| traffic class |              flow label               |
//! +-------+---------------+-------+---------------+---------------+
//! |         payload length        |  next header  |   hop limit   |
//! +-------------------------------+---------------+---------------+
//! |                   source address (16 bytes)                   |
//! +---------------------------------------------------------------+
//! |                destination address (16 bytes)                 |
//! +---------------------------------------------------------------+
//! ```

use core::net::Ipv6Addr;

use crate::checksum::Sum;
use crate::{Ecn, EmitError, ParseError, Protocol, Tos};

mod extension;
pub use extension::{
    ExtensionLimits, FRAGMENT_HEADER_LEN, FragmentHeader, FragmentPoint, TransportPoint,
    UpperLayer, fragment_point, transport_point, walk_extensions,
};

/// Length of the fixed header, bytes.
pub const HEADER_LEN: usize = 40;
/// Every link carries this many bytes (RFC 8200 5).
pub const MIN_MTU: usize = 1280;

/// A checked view of an IPv6 packet.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6View<'a> {
    header: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
    trailing: usize,
}

impl<'a> Ipv6View<'a> {
    /// Checks version and payload length. Bytes past the payload length (Ethernet padding) are
    /// tolerated and reported by [`Ipv6View::trailing`]. Jumbograms (RFC 2675) look like packets
    /// without payload.
    ///
    /// # Errors
    /// `Truncated`, `BadVersion` or `LengthBeyondData`.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (header, rest) = Self::split(bytes)?;
        let payload_len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let (payload, outside) =
            rest.split_at_checked(payload_len).ok_or(ParseError::LengthBeyondData)?;
        Ok(Self { header, payload, trailing: outside.len() })
    }

    /// Parses the packet quoted in an ICMP error: as [`Ipv6View::parse`], but the packet may end
    /// before its payload length says. The payload is what there is of it.
    ///
    /// # Errors
    /// `Truncated` or `BadVersion`.
    pub fn parse_quoted(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (header, payload) = Self::split(bytes)?;
        Ok(Self { header, payload, trailing: 0 })
    }

    #[inline]
    fn split(bytes: &'a [u8]) -> Result<(&'a [u8; HEADER_LEN], &'a [u8]), ParseError> {
        let (header, rest) = bytes.split_first_chunk().ok_or(ParseError::Truncated)?;
        let header: &[u8; HEADER_LEN] = header;
        if header[0] >> 4 != 6 {
            return Err(ParseError::BadVersion);
        }
        Ok((header, rest))
    }

    /// The traffic class.
    #[inline]
    pub const fn tos(&self) -> Tos {
        Tos(self.header[0] << 4 | self.header[1] >> 4)
    }

    /// The flow label, 0 to 2²⁰−1.
    #[inline]
    pub const fn flow_label(&self) -> u32 {
        u32::from_be_bytes([0, self.header[1] & 0xf, self.header[2], self.header[3]])
    }

    /// Bytes after the fixed header: 0 to 65535.
    #[inline]
    pub const fn payload_len(&self) -> u16 {
        u16::from_be_bytes([self.header[4], self.header[5]])
    }

    /// Type of the payload's first header: an extension header or the upper layer.
    #[inline]
    pub const fn next_header(&self) -> Protocol {
        Protocol(self.header[6])
    }

    /// The hop limit.
    #[inline]
    pub const fn hop_limit(&self) -> u8 {
        self.header[7]
    }

    /// The source address.
    #[inline]
    pub fn src(&self) -> Ipv6Addr {
        Ipv6Addr::from(self.src_octets())
    }

    /// The destination address.
    #[inline]
    pub fn dst(&self) -> Ipv6Addr {
        Ipv6Addr::from(self.dst_octets())
    }

    #[inline]
    pub(crate) fn src_octets(&self) -> [u8; 16] {
        let [_, _, _, _, _, _, _, _, rest @ ..] = self.header;
        let [src @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = rest;
        *src
    }

    #[inline]
    pub(crate) fn dst_octets(&self) -> [u8; 16] {
        let [_, _, _, _, _, _, _, _, rest @ ..] = self.header;
        let [_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, dst @ ..] = rest;
        *dst
    }

    /// Bytes behind the fixed header: extension headers and upper layer.
    #[inline]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Number of bytes after the packet's end.
    #[inline]
    pub const fn trailing(&self) -> usize {
        self.trailing
    }

    /// Finds the upper layer behind the extension headers.
    ///
    /// # Errors
    /// See [`walk_extensions`].
    #[inline]
    pub fn upper_layer(&self, limits: ExtensionLimits) -> Result<UpperLayer, ParseError> {
        walk_extensions(self.next_header(), self.payload, limits)
    }

    /// The pseudo header sum of an upper layer of `len` bytes. The destination is that of the
    /// fixed header: right unless a routing header has segments left.
    #[inline]
    pub fn pseudo_sum(&self, protocol: Protocol, len: u32) -> Sum {
        Sum::pseudo_v6(self.src(), self.dst(), protocol, len)
    }
}

/// The values of an IPv6 fixed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Repr {
    /// The traffic class.
    pub tos: Tos,
    /// The flow label; bits above 2²⁰ are ignored.
    pub flow_label: u32,
    /// Type of the payload's first header.
    pub next_header: Protocol,
    /// The hop limit.
    pub hop_limit: u8,
    /// The source address.
    pub src: Ipv6Addr,
    /// The destination address.
    pub dst: Ipv6Addr,
    /// Bytes that follow the header: 0 to 65535.
    pub payload_len: usize,
}

impl Ipv6Repr {
    /// The header's bytes.
    ///
    /// # Errors
    /// [`EmitError::TooLong`] when the payload is above 65535 bytes.
    #[inline]
    pub fn to_bytes(&self) -> Result<[u8; HEADER_LEN], EmitError> {
        let payload_len =
            u16::try_from(self.payload_len).map_err(|_| EmitError::TooLong(self.payload_len))?;
        let mut header = [0; HEADER_LEN];
        let first = 6 << 28 | u32::from(self.tos.0) << 20 | self.flow_label & 0xf_ffff;
        let (words, addrs) = header.split_at_mut(8);
        words.copy_from_slice(
            &(u64::from(first) << 32
                | u64::from(payload_len) << 16
                | u64::from(self.next_header.0) << 8
                | u64::from(self.hop_limit))
            .to_be_bytes(),
        );
        let (src, dst) = addrs.split_at_mut(16);
        src.copy_from_slice(&self.src.octets());
        dst.copy_from_slice(&self.dst.octets());
        Ok(header)
    }

    /// Writes the header to the start of `into`; returns its length, [`HEADER_LEN`].
    ///
    /// # Errors
    /// [`EmitError::TooLong`], or [`EmitError::BufferTooSmall`] below 40 bytes.
    #[inline]
    pub fn emit(&self, into: &mut [u8]) -> Result<usize, EmitError> {
        let room =
            into.first_chunk_mut().ok_or(EmitError::BufferTooSmall { needed: HEADER_LEN })?;
        *room = self.to_bytes()?;
        Ok(HEADER_LEN)
    }
}

/// Changes an IPv6 header in place.
#[derive(Debug)]
pub struct Ipv6Mut<'a> {
    header: &'a mut [u8; HEADER_LEN],
}

impl<'a> Ipv6Mut<'a> {
    /// The header at the start of `bytes`. Only version and the fixed length are checked.
    ///
    /// # Errors
    /// `Truncated` or `BadVersion`.
    #[inline]
    pub fn new(bytes: &'a mut [u8]) -> Result<Self, ParseError> {
        let header: &mut [u8; HEADER_LEN] = bytes.first_chunk_mut().ok_or(ParseError::Truncated)?;
        if header[0] >> 4 != 6 {
            return Err(ParseError::BadVersion);
        }
        Ok(Self { header })
    }

    /// Takes one from the hop limit and returns what is left; at 0 it stays 0.
    #[inline(always)]
    pub fn decrement_hop_limit(&mut self) -> u8 {
        self.header[7] = self.header[7].saturating_sub(1);
        self.header[7]
    }

    /// Sets the hop limit.
    #[inline]
    pub fn set_hop_limit(&mut self, hop_limit: u8) {
        self.header[7] = hop_limit;
    }

    /// Sets the traffic class.
    #[inline]
    pub fn set_tos(&mut self, tos: Tos) {
        self.header[0] = 0x60 | tos.0 >> 4;
        self.header[1] = tos.0 << 4 | self.header[1] & 0xf;
    }

    /// Sets the ECN bits of the traffic class.
    #[inline]
    pub fn set_ecn(&mut self, ecn: Ecn) {
        let tos = Tos(self.header[0] << 4 | self.header[1] >> 4);
        self.set_tos(tos.with_ecn(ecn));
    }

    /// Sets the payload length.
    #[inline]
    pub fn set_payload_len(&mut self, payload_len: u16) {
        [self.header[4], self.header[5]] = payload_len.to_be_bytes();
    }

    /// Sets what the payload begins with.
    #[inline]
    pub fn set_next_header(&mut self, next_header: Protocol) {
        self.header[6] = next_header.0;
    }
}

#[cfg(test)]
mod tests;
