//! UDP (RFC 768).
//!
//! ```text
//! +-------------------------------+-------------------------------+
//! |          source port          |       destination port        |
//! +-------------------------------+-------------------------------+
//! |             length            |            checksum           |
//! +-------------------------------+-------------------------------+
//! ```

use crate::{EmitError, ParseError};

/// Length of the header, bytes.
pub const HEADER_LEN: usize = 8;
/// Offset of the checksum in the header, bytes.
pub const CHECKSUM_AT: usize = 6;

/// A checked view of a UDP datagram.
#[derive(Clone, Copy, Debug)]
pub struct UdpView<'a> {
    header: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> UdpView<'a> {
    /// Checks the length field against the bytes; bytes beyond it are not part of the datagram.
    /// The checksum needs the pseudo header: see [`crate::checksum::verify`].
    ///
    /// # Errors
    /// `Truncated`, `BadTotalLength` or `LengthBeyondData`.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (header, rest) = bytes.split_first_chunk().ok_or(ParseError::Truncated)?;
        let header: &[u8; HEADER_LEN] = header;
        let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let payload_len = len.checked_sub(HEADER_LEN).ok_or(ParseError::BadTotalLength)?;
        let payload = rest.get(..payload_len).ok_or(ParseError::LengthBeyondData)?;
        Ok(Self { header, payload })
    }

    /// The source port.
    #[inline]
    pub const fn src_port(&self) -> u16 {
        u16::from_be_bytes([self.header[0], self.header[1]])
    }

    /// The destination port.
    #[inline]
    pub const fn dst_port(&self) -> u16 {
        u16::from_be_bytes([self.header[2], self.header[3]])
    }

    /// Header and payload, bytes.
    #[inline]
    pub const fn total_len(&self) -> u16 {
        u16::from_be_bytes([self.header[4], self.header[5]])
    }

    /// The checksum as received; 0 means that the sender computed none.
    #[inline]
    pub const fn checksum(&self) -> u16 {
        u16::from_be_bytes([self.header[6], self.header[7]])
    }

    /// Bytes behind the header, up to the length field.
    #[inline]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The values of a UDP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpRepr {
    /// The source port.
    pub src_port: u16,
    /// The destination port.
    pub dst_port: u16,
    /// Bytes that follow the header: 0 to 65527.
    pub payload_len: usize,
}

impl UdpRepr {
    /// The header's bytes with checksum 0, which is what ESP in UDP sends (RFC 3948 2.1); otherwise
    /// [`crate::checksum::fill_udp`] completes it.
    ///
    /// # Errors
    /// [`EmitError::TooLong`] when the payload is above 65527 bytes.
    #[inline]
    pub fn to_bytes(&self) -> Result<[u8; HEADER_LEN], EmitError> {
        let len = self.payload_len.saturating_add(HEADER_LEN);
        let [l0, l1] = u16::try_from(len).map_err(|_| EmitError::TooLong(len))?.to_be_bytes();
        let [s0, s1] = self.src_port.to_be_bytes();
        let [d0, d1] = self.dst_port.to_be_bytes();
        Ok([s0, s1, d0, d1, l0, l1, 0, 0])
    }

    /// Writes the header, checksum 0, to the start of `into`; returns its length.
    ///
    /// # Errors
    /// [`EmitError::TooLong`], or [`EmitError::BufferTooSmall`] below 8 bytes.
    #[inline]
    pub fn emit(&self, into: &mut [u8]) -> Result<usize, EmitError> {
        let room =
            into.first_chunk_mut().ok_or(EmitError::BufferTooSmall { needed: HEADER_LEN })?;
        *room = self.to_bytes()?;
        Ok(HEADER_LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Protocol;
    use crate::checksum::{Sum, fill_udp, verify};
    use proptest::prelude::*;

    #[test]
    fn each_length_defect_has_its_own_error() {
        let err = |bytes: &[u8]| UdpView::parse(bytes).unwrap_err();
        assert_eq!(err(&[0; 7]), ParseError::Truncated);
        assert_eq!(err(&[0, 0, 0, 0, 0, 7, 0, 0]), ParseError::BadTotalLength);
        assert_eq!(err(&[0, 0, 0, 0, 0, 9, 0, 0]), ParseError::LengthBeyondData);
        let too_long = UdpRepr { src_port: 0, dst_port: 0, payload_len: 65_528 };
        assert_eq!(too_long.to_bytes(), Err(EmitError::TooLong(65_536)));
    }

    proptest! {
        #[test]
        fn datagrams_round_trip_and_agree_with_etherparse(
            src_port in any::<u16>(), dst_port in any::<u16>(),
            payload in prop::collection::vec(any::<u8>(), 0..100), src in any::<u32>(), dst in any::<u32>(),
        ) {
            let repr = UdpRepr { src_port, dst_port, payload_len: payload.len() };
            let mut bytes = repr.to_bytes().unwrap().to_vec();
            bytes.extend(&payload);
            let pseudo = Sum::pseudo_v4(src.into(), dst.into(), Protocol::UDP, bytes.len() as u16);
            fill_udp(pseudo, &mut bytes).unwrap();
            prop_assert!(verify(pseudo, &bytes));

            let view = UdpView::parse(&bytes).unwrap();
            prop_assert_eq!((view.src_port(), view.dst_port()), (src_port, dst_port));
            prop_assert_eq!(view.payload(), &payload[..]);
            let theirs = etherparse::UdpHeader::with_ipv4_checksum(
                src_port, dst_port,
                &etherparse::Ipv4Header {
                    source: src.to_be_bytes(), destination: dst.to_be_bytes(),
                    protocol: etherparse::IpNumber::UDP, ..Default::default()
                },
                &payload,
            ).unwrap();
            prop_assert_eq!(&theirs.to_bytes()[..], &bytes[..8]);
        }
    }
}
