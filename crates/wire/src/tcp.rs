//! TCP headers (RFC 9293).
//!
//! ```text
//! +-------------------------------+-------------------------------+
//! |          source port          |       destination port        |
//! +-------------------------------+-------------------------------+
//! |                        sequence number                        |
//! +---------------------------------------------------------------+
//! |                     acknowledgement number                    |
//! +-------+-------+---------------+-------------------------------+
//! | offset| rsrvd |     flags     |             window            |
//! +-------+-------+---------------+-------------------------------+
//! |            checksum           |         urgent pointer        |
//! +-------------------------------+-------------------------------+
//! |                    options (0 to 40 bytes)                    |
//! ```

use core::ops::BitOr;

use crate::ParseError;

/// Length of a header without options, bytes.
pub const MIN_HEADER_LEN: usize = 20;
/// Offset of the checksum in the header, bytes.
pub const CHECKSUM_AT: usize = 16;

/// The eight control bits (RFC 9293 3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset the connection.
    pub const RST: Self = Self(0x04);
    /// Push function.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgement number counts.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer counts.
    pub const URG: Self = Self(0x20);
    /// ECN echo (RFC 3168).
    pub const ECE: Self = Self(0x40);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: Self = Self(0x80);

    /// True if all bits of `other` are set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// True if any bit of `other` is set.
    #[inline]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// These bits without those of `other`.
    #[inline]
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for TcpFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A checked view of a TCP segment.
#[derive(Clone, Copy, Debug)]
pub struct TcpView<'a> {
    header: &'a [u8; MIN_HEADER_LEN],
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> TcpView<'a> {
    /// Checks the data offset against the bytes.
    ///
    /// # Errors
    /// `Truncated` or `BadHeaderLength`.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (header, rest) = bytes.split_first_chunk().ok_or(ParseError::Truncated)?;
        let header: &[u8; MIN_HEADER_LEN] = header;
        let (options, payload) = (usize::from(header[12] >> 4) << 2)
            .checked_sub(MIN_HEADER_LEN)
            .and_then(|options_len| rest.split_at_checked(options_len))
            .ok_or(ParseError::BadHeaderLength)?;
        Ok(Self { header, options, payload })
    }

    #[inline]
    const fn word(&self, high: u8, low: u8) -> u16 {
        u16::from_be_bytes([high, low])
    }

    /// The source port.
    #[inline]
    pub const fn src_port(&self) -> u16 {
        self.word(self.header[0], self.header[1])
    }

    /// The destination port.
    #[inline]
    pub const fn dst_port(&self) -> u16 {
        self.word(self.header[2], self.header[3])
    }

    /// The sequence number of the first payload byte.
    #[inline]
    pub const fn seq(&self) -> u32 {
        let h = self.header;
        u32::from_be_bytes([h[4], h[5], h[6], h[7]])
    }

    /// The acknowledgement number.
    #[inline]
    pub const fn ack(&self) -> u32 {
        let h = self.header;
        u32::from_be_bytes([h[8], h[9], h[10], h[11]])
    }

    /// Header and options, bytes: 20 to 60.
    #[inline]
    pub const fn header_len(&self) -> usize {
        ((self.header[12] >> 4) as usize) << 2
    }

    /// The four reserved bits, the former nonce-sum bit included; zero in ordinary segments.
    #[inline]
    pub const fn reserved(&self) -> u8 {
        self.header[12] & 0xf
    }

    /// The control bits.
    #[inline]
    pub const fn flags(&self) -> TcpFlags {
        TcpFlags(self.header[13])
    }

    /// The window, unscaled.
    #[inline]
    pub const fn window(&self) -> u16 {
        self.word(self.header[14], self.header[15])
    }

    /// The checksum as received.
    #[inline]
    pub const fn checksum(&self) -> u16 {
        self.word(self.header[16], self.header[17])
    }

    /// The urgent pointer.
    #[inline]
    pub const fn urgent(&self) -> u16 {
        self.word(self.header[18], self.header[19])
    }

    /// The options, padding included: 0 to 40 bytes, as received and unchecked.
    #[inline]
    pub const fn options(&self) -> &'a [u8] {
        self.options
    }

    /// Bytes behind the options.
    #[inline]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// Changes a TCP header in place. The checksum is left to [`crate::checksum::fill_tcp`].
#[derive(Debug)]
pub struct TcpMut<'a> {
    header: &'a mut [u8; MIN_HEADER_LEN],
}

impl<'a> TcpMut<'a> {
    /// The header at the start of `bytes`.
    ///
    /// # Errors
    /// `Truncated` below 20 bytes.
    #[inline]
    pub fn new(bytes: &'a mut [u8]) -> Result<Self, ParseError> {
        Ok(Self { header: bytes.first_chunk_mut().ok_or(ParseError::Truncated)? })
    }

    /// Sets the sequence number.
    #[inline]
    pub fn set_seq(&mut self, seq: u32) {
        [self.header[4], self.header[5], self.header[6], self.header[7]] = seq.to_be_bytes();
    }

    /// Sets the control bits.
    #[inline]
    pub fn set_flags(&mut self, flags: TcpFlags) {
        self.header[13] = flags.0;
    }

    /// Sets the checksum.
    #[inline]
    pub fn set_checksum(&mut self, checksum: u16) {
        [self.header[16], self.header[17]] = checksum.to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn data_offset_outside_the_segment_is_refused() {
        let mut bytes = [0; 24];
        assert_eq!(TcpView::parse(&bytes[..19]).unwrap_err(), ParseError::Truncated);
        for (words, ok) in [(0, false), (4, false), (5, true), (6, true), (7, false), (15, false)] {
            bytes[12] = words << 4;
            assert_eq!(TcpView::parse(&bytes).is_ok(), ok, "{words} words");
        }
    }

    proptest! {
        #[test]
        fn agrees_with_etherparse(mut bytes in prop::collection::vec(any::<u8>(), 20..120)) {
            bytes[12] |= 0x50;
            let ours = TcpView::parse(&bytes);
            let theirs = etherparse::TcpSlice::from_slice(&bytes);
            prop_assert_eq!(ours.is_ok(), theirs.is_ok());
            if let (Ok(ours), Ok(theirs)) = (ours, theirs) {
                prop_assert_eq!(ours.src_port(), theirs.source_port());
                prop_assert_eq!(ours.dst_port(), theirs.destination_port());
                prop_assert_eq!(ours.seq(), theirs.sequence_number());
                prop_assert_eq!(ours.ack(), theirs.acknowledgment_number());
                prop_assert_eq!(ours.window(), theirs.window_size());
                prop_assert_eq!(ours.checksum(), theirs.checksum());
                prop_assert_eq!(ours.urgent(), theirs.urgent_pointer());
                prop_assert_eq!(ours.options(), theirs.options());
                prop_assert_eq!(ours.payload(), theirs.payload());
                for (flag, set) in [
                    (TcpFlags::FIN, theirs.fin()), (TcpFlags::SYN, theirs.syn()),
                    (TcpFlags::RST, theirs.rst()), (TcpFlags::PSH, theirs.psh()),
                    (TcpFlags::ACK, theirs.ack()), (TcpFlags::URG, theirs.urg()),
                    (TcpFlags::ECE, theirs.ece()), (TcpFlags::CWR, theirs.cwr()),
                ] {
                    prop_assert_eq!(ours.flags().contains(flag), set);
                }
            }
        }

        #[test]
        fn setters_write_what_getters_read(seq in any::<u32>(), flags in any::<u8>(), check in any::<u16>()) {
            let mut bytes = [0; 20];
            bytes[12] = 0x50;
            let mut header = TcpMut::new(&mut bytes).unwrap();
            header.set_seq(seq);
            header.set_flags(TcpFlags(flags));
            header.set_checksum(check);
            let view = TcpView::parse(&bytes).unwrap();
            prop_assert_eq!((view.seq(), view.flags().0, view.checksum()), (seq, flags, check));
        }
    }
}
