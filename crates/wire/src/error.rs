//! Errors of parsing and of writing packets.

use thiserror::Error;

/// Error of bytes that are not the packet they were taken for.
///
/// One variant per cause, so that a data path can count each under its own name. The variants are
/// plain: an error is one byte in a register.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ParseError {
    /// Fewer bytes than the fixed header of the protocol.
    #[error("fewer bytes than the fixed header")]
    Truncated,
    /// The version field of an IP packet is not the one asked for, or neither 4 nor 6.
    #[error("ip version is not the expected one")]
    BadVersion,
    /// IPv4 IHL below 5, or a header length that does not fit into the packet (RFC 791 3.1).
    #[error("header length is below the minimum or beyond the packet")]
    BadHeaderLength,
    /// The total (or UDP) length field is below the header it counts.
    #[error("length field is smaller than the header it counts")]
    BadTotalLength,
    /// The length field promises more bytes than there are.
    #[error("length field is larger than the bytes there are")]
    LengthBeyondData,
    /// The IPv4 header checksum is wrong (RFC 791 3.1).
    #[error("ipv4 header checksum is wrong")]
    BadChecksum,
    /// More IPv6 extension headers than the limit allows.
    #[error("too many ipv6 extension headers")]
    TooManyExtensions,
    /// More bytes of IPv6 extension headers than the limit allows.
    #[error("ipv6 extension headers are too long")]
    ExtensionsTooLong,
    /// The IPv6 extension header chain runs past the packet (RFC 7112 for first fragments).
    #[error("ipv6 extension header chain runs past the packet")]
    ExtensionTruncated,
    /// A hop-by-hop header that does not follow the IPv6 header, or a second fragment header
    /// (RFC 8200 4.1).
    #[error("ipv6 extension header in a place where it may not be")]
    ExtensionOrder,
    /// A fragment that would end past 65535 bytes, or whose length is no multiple of 8 though more
    /// follow (RFC 791 3.2, RFC 8200 4.5).
    #[error("fragment with an impossible offset or length")]
    BadFragment,
    /// A whole packet too short for the ports or the ICMP type of its upper layer, or a first
    /// fragment that hides them (RFC 1858 3).
    #[error("upper-layer header is cut off")]
    UpperTruncated,
    /// A security parameters index of 0 (RFC 4303 2.1).
    #[error("spi is zero")]
    ZeroSpi,
    /// ESP padding that is not 1, 2, 3 … (RFC 4303 2.4), or longer than the payload.
    #[error("esp padding is wrong")]
    BadPadding,
    /// An ICMP message that reports no error, so it quotes no packet.
    #[error("icmp message is no error report")]
    NotAnIcmpError,
}

/// Error of bytes that could not be written.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EmitError {
    /// The buffer is smaller than what is to be written into it.
    #[error("buffer is too small: {needed} bytes are needed")]
    BufferTooSmall {
        /// Bytes that would have sufficed.
        needed: usize,
    },
    /// A length that the header's length field cannot carry.
    #[error("length {0} does not fit into the header's length field")]
    TooLong(usize),
    /// The packet must not be answered with an ICMP error (RFC 1122 3.2.2, RFC 4443 2.4 (e)).
    #[error("packet may not be answered with an icmp error")]
    NotAnswerable,
    /// Source and destination, or address and packet, are of different IP versions.
    #[error("address is of the wrong ip version")]
    VersionMismatch,
    /// The MTU leaves no room for at least 8 bytes of payload in each fragment.
    #[error("mtu {0} is too small to fragment to")]
    MtuTooSmall(usize),
    /// The packet is one byte or more larger than the MTU, and its DF bit forbids fragmenting.
    #[error("packet may not be fragmented")]
    DontFragment,
}
