//! AH (RFC 4302): the header, its length, and what of an IP header it does not protect.
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |  next header  |  payload len  |           reserved            |
//! +---------------+---------------+-------------------------------+
//! |                SPI (security parameters index)                |
//! +---------------------------------------------------------------+
//! |                  sequence number (low 32 bits)                |
//! +---------------------------------------------------------------+
//! |      ICV field: ICV, for AES-GMAC an IV in front of it        |
//! +                               +-------------------------------+
//! |                               |        padding to 4 or 8      |
//! +-------------------------------+-------------------------------+
//! ```
//!
//! `payload len` counts the header in words of 4 bytes, less 2. The ICV covers the whole packet with
//! its ICV field and the mutable fields of the IP header taken as zero.

use crate::{EmitError, IpVersion, ParseError, Protocol, SeqNum, Spi};

/// Bytes before the ICV field.
pub const FIXED_LEN: usize = 12;

/// The header in front of the ICV field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AhHeader {
    /// Protocol of the bytes behind the header.
    pub next_header: Protocol,
    /// The header with ICV field and padding: 12 to 1028 bytes, a multiple of 4.
    pub len: usize,
    /// The security parameters index.
    pub spi: Spi,
    /// The half of the sequence number that is sent.
    pub seq_low: u32,
}

impl AhHeader {
    /// Reads the header from the start of an AH packet.
    ///
    /// # Errors
    /// `Truncated` below 12 bytes, `BadHeaderLength` for a length below 12, `LengthBeyondData` for
    /// one beyond the bytes there are, `ZeroSpi`.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let [next, words, _, _, s0, s1, s2, s3, n0, n1, n2, n3] =
            *bytes.first_chunk::<FIXED_LEN>().ok_or(ParseError::Truncated)?;
        let len = usize::from(words).saturating_add(2).saturating_mul(4);
        if len < FIXED_LEN {
            return Err(ParseError::BadHeaderLength);
        }
        if len > bytes.len() {
            return Err(ParseError::LengthBeyondData);
        }
        let spi = Spi::new(u32::from_be_bytes([s0, s1, s2, s3])).ok_or(ParseError::ZeroSpi)?;
        let seq_low = u32::from_be_bytes([n0, n1, n2, n3]);
        Ok(Self { next_header: Protocol(next), len, spi, seq_low })
    }

    /// Writes the header to the start of `into`, zeros as ICV field and padding; returns its
    /// length.
    ///
    /// # Errors
    /// [`EmitError::BufferTooSmall`]; [`EmitError::TooLong`] when [`len`](Self::len) is no multiple
    /// of 4 from 12 to 1028.
    #[inline]
    pub fn emit(self, into: &mut [u8]) -> Result<usize, EmitError> {
        let words = (self.len / 4).checked_sub(2).and_then(|words| u8::try_from(words).ok());
        let words = words.filter(|_| self.len.is_multiple_of(4) && self.len >= FIXED_LEN);
        let Some(words) = words else { return Err(EmitError::TooLong(self.len)) };
        let too_small = EmitError::BufferTooSmall { needed: self.len };
        let (fixed, field) = into
            .get_mut(..self.len)
            .and_then(|header| header.split_first_chunk_mut::<FIXED_LEN>())
            .ok_or(too_small)?;
        let [s0, s1, s2, s3] = self.spi.to_be_bytes();
        let [n0, n1, n2, n3] = self.seq_low.to_be_bytes();
        *fixed = [self.next_header.0, words, 0, 0, s0, s1, s2, s3, n0, n1, n2, n3];
        field.fill(0);
        Ok(self.len)
    }

    /// The header of a packet with this SPI and number.
    #[inline]
    pub const fn new(next_header: Protocol, len: usize, spi: Spi, seq: SeqNum) -> Self {
        Self { next_header, len, spi, seq_low: seq.low() }
    }
}

/// Length of a header whose ICV field has `field` bytes: a multiple of 4 over IPv4, of 8 over IPv6
/// (RFC 4302 2.6).
#[inline]
pub const fn header_len(field: usize, version: IpVersion) -> usize {
    let mask: usize = match version {
        IpVersion::V4 => 3,
        IpVersion::V6 => 7,
    };
    FIXED_LEN.saturating_add(field).saturating_add(mask) & !mask
}

/// The mutable fields of an IP header, which routers may change (RFC 4302 3.3.3.1): for IPv4 TOS,
/// flags, fragment offset, TTL and checksum; for IPv6 traffic class, flow label and hop limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MutableFields([u8; Self::LEN]);

impl MutableFields {
    /// Bytes that they are kept in.
    pub const LEN: usize = 8;

    /// Takes the fields out of the IP header at the start of `packet`, which has zeros there then.
    ///
    /// # Errors
    /// `Truncated`; `BadVersion`; `BadHeaderLength` for an IPv4 header with options, some of which
    /// are mutable as well.
    #[inline]
    pub fn take(packet: &mut [u8]) -> Result<Self, ParseError> {
        let first = *packet.first().ok_or(ParseError::Truncated)?;
        match IpVersion::of(first) {
            Some(IpVersion::V4) => {
                let header = packet.first_chunk_mut::<20>().ok_or(ParseError::Truncated)?;
                if first & 0xf != 5 {
                    return Err(ParseError::BadHeaderLength);
                }
                let [_, tos, _, _, _, _, flags, offset, ttl, _, c0, c1, ..] = header;
                let taken = [*tos, *flags, *offset, *ttl, *c0, *c1, 0, 0];
                for field in [tos, flags, offset, ttl, c0, c1] {
                    *field = 0;
                }
                Ok(Self(taken))
            }
            Some(IpVersion::V6) => {
                let header = packet.first_chunk_mut::<40>().ok_or(ParseError::Truncated)?;
                let [b0, b1, b2, b3, _, _, _, hop_limit, ..] = header;
                let taken = [*b0, *b1, *b2, *b3, *hop_limit, 0, 0, 0];
                (*b0, *b1, *b2, *b3, *hop_limit) = (0x60, 0, 0, 0, 0);
                Ok(Self(taken))
            }
            None => Err(ParseError::BadVersion),
        }
    }

    /// Puts the fields back into the header they were taken from.
    #[inline]
    pub fn put(self, packet: &mut [u8]) {
        match packet.first().copied().and_then(IpVersion::of) {
            Some(IpVersion::V4) => {
                let Some(header) = packet.first_chunk_mut::<20>() else { return };
                let [_, tos, _, _, _, _, flags, offset, ttl, _, c0, c1, ..] = header;
                [*tos, *flags, *offset, *ttl, *c0, *c1, _, _] = self.0;
            }
            Some(IpVersion::V6) => {
                let Some(header) = packet.first_chunk_mut::<40>() else { return };
                let [b0, b1, b2, b3, _, _, _, hop_limit, ..] = header;
                [*b0, *b1, *b2, *b3, *hop_limit, _, _, _] = self.0;
            }
            None => {}
        }
    }

    /// The bytes to keep.
    #[inline]
    pub const fn to_bytes(self) -> [u8; Self::LEN] {
        self.0
    }

    /// Inverse of [`Self::to_bytes`].
    #[inline]
    pub const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn header(len: usize) -> AhHeader {
        let spi = Spi::new(0x0102_0304).unwrap();
        AhHeader::new(Protocol::TCP, len, spi, SeqNum::from_parts(9, 0x0506_0708))
    }

    #[test]
    fn headers_are_read_back() {
        for len in (12..=1028).step_by(4) {
            let mut bytes = vec![0xee; len + 3];
            assert_eq!(header(len).emit(&mut bytes), Ok(len));
            assert_eq!(bytes[..12], [6, (len / 4 - 2) as u8, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
            assert!(bytes[12..len].iter().all(|&b| b == 0) && bytes[len..] == [0xee; 3]);
            assert_eq!(AhHeader::parse(&bytes), Ok(header(len)));
            let cut = AhHeader::parse(&bytes[..len - 1]).unwrap_err();
            let expected =
                if len == 12 { ParseError::Truncated } else { ParseError::LengthBeyondData };
            assert_eq!(cut, expected);
        }
        for len in [0, 8, 13, 14, 15, 1029, 1032] {
            assert_eq!(header(len).emit(&mut [0; 2000]), Err(EmitError::TooLong(len)));
        }
        assert!(matches!(header(24).emit(&mut [0; 23]), Err(EmitError::BufferTooSmall { .. })));
    }

    #[test]
    fn lengths_below_the_fixed_header_and_an_spi_of_zero_are_refused() {
        let mut bytes = [1; 40];
        bytes[1] = 0;
        assert_eq!(AhHeader::parse(&bytes), Err(ParseError::BadHeaderLength));
        bytes[1] = 1;
        assert_eq!(AhHeader::parse(&bytes).unwrap().len, 12);
        bytes[4..8].fill(0);
        assert_eq!(AhHeader::parse(&bytes), Err(ParseError::ZeroSpi));
    }

    #[test]
    fn headers_are_whole_words_of_their_ip_version() {
        for (field, v4, v6) in [(12, 24, 24), (16, 28, 32), (24, 36, 40), (32, 44, 48)] {
            assert_eq!(header_len(field, IpVersion::V4), v4);
            assert_eq!(header_len(field, IpVersion::V6), v6);
        }
    }

    /// RFC 4302 3.3.3.1.1.1 and 3.3.3.1.2.1, field by field.
    #[test]
    fn mutable_fields_and_no_others_become_zero_and_come_back() {
        let mut v4: Vec<u8> = (0x30..0x30 + 30).collect();
        v4[0] = 0x45;
        let before = v4.clone();
        let fields = MutableFields::take(&mut v4).unwrap();
        for (at, (now, was)) in v4.iter().zip(&before).enumerate() {
            let mutable = [1, 6, 7, 8, 10, 11].contains(&at);
            assert_eq!(*now, if mutable { 0 } else { *was }, "byte {at}");
        }
        MutableFields::from_bytes(fields.to_bytes()).put(&mut v4);
        assert_eq!(v4, before);

        let mut v6: Vec<u8> = (0x30..0x30 + 50).collect();
        v6[0] = 0x6a;
        let before = v6.clone();
        let fields = MutableFields::take(&mut v6).unwrap();
        for (at, (now, was)) in v6.iter().zip(&before).enumerate() {
            let expected = match at {
                0 => 0x60,
                1 | 2 | 3 | 7 => 0,
                _ => *was,
            };
            assert_eq!(*now, expected, "byte {at}");
        }
        fields.put(&mut v6);
        assert_eq!(v6, before);
    }

    #[test]
    fn options_and_strange_versions_are_refused_untouched() {
        for (first, error) in [
            (0x46, ParseError::BadHeaderLength),
            (0x44, ParseError::BadHeaderLength),
            (0x55, ParseError::BadVersion),
        ] {
            let mut packet = [0xee; 60];
            packet[0] = first;
            assert_eq!(MutableFields::take(&mut packet), Err(error));
            assert!(packet[1..].iter().all(|&b| b == 0xee));
        }
        assert_eq!(MutableFields::take(&mut [0x45; 19]), Err(ParseError::Truncated));
        assert_eq!(MutableFields::take(&mut [0x60; 39]), Err(ParseError::Truncated));
        assert_eq!(MutableFields::take(&mut []), Err(ParseError::Truncated));
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(header) = AhHeader::parse(&bytes) {
                prop_assert!(header.len <= bytes.len() && header.len % 4 == 0);
            }
            let mut changed = bytes.clone();
            if let Ok(fields) = MutableFields::take(&mut changed) {
                fields.put(&mut changed);
            }
            prop_assert_eq!(changed, bytes);
        }
    }
}
