//! One pass over an IP packet: what classification needs to know of it.
//!
//! [`parse_packet`] is the hot parse of the data path. It refuses what cannot be a packet, each
//! defect under its own [`ParseError`], and yields a [`PacketInfo`] of one cache line.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::bytes::{be16, left_aligned};
use crate::ipv6::ExtensionLimits;
use crate::{IpVersion, Ipv4View, Ipv6View, ParseError, Protocol, Tos, ipv6};

mod plain;
pub use plain::parse_plain_v6;

/// Values that identify a packet's flow and that selectors match (RFC 4301 4.4.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// Source address; an IPv4 address fills the first four bytes, the rest is zero.
    pub src: [u8; 16],
    /// Destination address, laid out as the source's.
    pub dst: [u8; 16],
    /// IPv4 or IPv6.
    pub version: IpVersion,
    /// The upper layer, behind any extension headers.
    pub protocol: Protocol,
    /// Ports, ICMP type and code, or nothing.
    pub ports: Ports,
}

/// The upper layer's part of a [`FlowKey`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ports {
    /// A protocol with ports: TCP, UDP, SCTP, DCCP, UDP-Lite.
    Known {
        /// The source port.
        src: u16,
        /// The destination port.
        dst: u16,
    },
    /// ICMP or ICMPv6.
    Icmp {
        /// The ICMP type.
        ty: u8,
        /// The ICMP code.
        code: u8,
    },
    /// A protocol without ports, or a fragment that does not carry them: OPAQUE in the words of
    /// RFC 4301 4.4.1.1.
    Opaque,
}

impl FlowKey {
    /// The source address.
    #[inline]
    pub fn src_addr(&self) -> IpAddr {
        addr(self.version, self.src)
    }

    /// The destination address.
    #[inline]
    pub fn dst_addr(&self) -> IpAddr {
        addr(self.version, self.dst)
    }

    /// The key of the flow in the other direction; ICMP type and code stay.
    #[inline]
    #[must_use]
    pub const fn reversed(self) -> Self {
        let ports = match self.ports {
            Ports::Known { src, dst } => Ports::Known { src: dst, dst: src },
            other => other,
        };
        Self { src: self.dst, dst: self.src, ports, ..self }
    }

    /// A key made from values, for tests and tools; addresses must be of one version.
    pub fn new(src: IpAddr, dst: IpAddr, protocol: Protocol, ports: Ports) -> Option<Self> {
        let version = IpVersion::of_addr(src);
        let same = version == IpVersion::of_addr(dst);
        same.then(|| Self { src: addr_bytes(src), dst: addr_bytes(dst), version, protocol, ports })
    }
}

impl AsRef<Self> for FlowKey {
    #[inline]
    fn as_ref(&self) -> &Self {
        self
    }
}

/// An address in the layout of [`FlowKey`]: IPv4 in the first four bytes, zeros behind.
#[inline]
pub fn addr_bytes(addr: IpAddr) -> [u8; 16] {
    match addr {
        IpAddr::V4(v4) => left_aligned(v4.octets()),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The address that [`addr_bytes`] wrote.
#[inline]
pub fn addr(version: IpVersion, bytes: [u8; 16]) -> IpAddr {
    match version {
        IpVersion::V4 => {
            let [a, b, c, d, ..] = bytes;
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        }
        IpVersion::V6 => IpAddr::V6(Ipv6Addr::from(bytes)),
    }
}

/// Fragmentation state of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FragmentState {
    /// Not a fragment. IPv6 atomic fragments count as whole (RFC 6946).
    Whole,
    /// The first fragment: it carries the upper layer's header.
    First,
    /// A later fragment: it carries no ports.
    Later,
}

/// Results of one pass over a packet.
///
/// Aligned to the 16 bytes in which structs are copied: inside another struct it would otherwise be
/// copied in other pieces than that struct, and a load that spans two stores under way waits for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(16))]
pub struct PacketInfo {
    /// Values that selectors match.
    pub flow: FlowKey,
    /// IP header and payload, bytes. Bytes beyond are link padding and not part of the packet.
    pub total_len: u32,
    /// The IP header with options (IPv4) or the fixed header (IPv6), bytes.
    pub header_len: u16,
    /// Start of the upper layer, behind any extension headers, bytes from the packet's start.
    pub upper_offset: u16,
    /// The TTL or hop limit.
    pub ttl: u8,
    /// The TOS byte or traffic class.
    pub tos: Tos,
    /// The DF bit; always set for IPv6, which routers never fragment.
    pub dont_fragment: bool,
    /// Whole packet or fragment.
    pub fragment: FragmentState,
}

const _: () = assert!(size_of::<PacketInfo>() <= 64, "a packet's info fits one cache line");

impl PacketInfo {
    /// Of no packet: what is there before [`parse_packet_into`].
    pub const NONE: Self = Self {
        flow: FlowKey {
            src: [0; 16],
            dst: [0; 16],
            version: IpVersion::V4,
            protocol: Protocol(0),
            ports: Ports::Opaque,
        },
        total_len: 0,
        header_len: 0,
        upper_offset: 0,
        ttl: 0,
        tos: Tos(0),
        dont_fragment: false,
        fragment: FragmentState::Whole,
    };
}

/// Options of [`parse_packet_with`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ParseOptions {
    /// Requires a right IPv4 header checksum. Off where the kernel has seen the packet.
    pub verify_checksum: bool,
    /// Limits on the IPv6 extension header chain that is followed.
    pub limits: ExtensionLimits,
}

/// Parses one IP packet with default [`ParseOptions`].
///
/// # Errors
/// Every [`ParseError`] of IPv4, IPv6 and their upper layers; see the variants.
#[inline]
pub fn parse_packet(bytes: &[u8]) -> Result<PacketInfo, ParseError> {
    parse_packet_with(bytes, &ParseOptions::default())
}

/// Parses one IP packet into a place that exists: copying a result that was just put together from
/// many small fields costs more than the parse.
///
/// # Errors
/// As for [`parse_packet`]; `info` may have changed all the same.
#[inline(always)]
pub fn parse_packet_into(bytes: &[u8], info: &mut PacketInfo) -> Result<(), ParseError> {
    parse_into(bytes, &ParseOptions::default(), info)
}

/// Parses one IP packet.
///
/// # Errors
/// Every [`ParseError`] of IPv4, IPv6 and their upper layers; see the variants.
#[inline]
pub fn parse_packet_with(bytes: &[u8], options: &ParseOptions) -> Result<PacketInfo, ParseError> {
    let mut info = PacketInfo::NONE;
    parse_into(bytes, options, &mut info).map(|()| info)
}

#[inline(always)]
fn parse_into(
    bytes: &[u8],
    options: &ParseOptions,
    info: &mut PacketInfo,
) -> Result<(), ParseError> {
    if !options.verify_checksum
        && let Some(plain) = parse_plain(bytes)
    {
        *info = plain;
        return Ok(());
    }
    match bytes.first().map(|first| first >> 4) {
        Some(4) => parse_v4(bytes, options, info),
        Some(6) => parse_v6(bytes, options, info),
        Some(_) => Err(ParseError::BadVersion),
        None => Err(ParseError::Truncated),
    }
}

/// Parses a packet that is as most are: IPv4 without options, whole, with ports. All others, wrong ones
/// included, are left to [`parse_packet`].
#[inline(always)]
pub fn parse_plain(bytes: &[u8]) -> Option<PacketInfo> {
    const HEADER_LEN: u16 = 20;
    let head = bytes.first_chunk::<24>()?;
    let total = u16::from_be_bytes([head[2], head[3]]);
    let protocol = Protocol(head[9]);
    // Neither more fragments nor an offset.
    let whole = head[6] & 0x3f == 0 && head[7] == 0;
    let long_enough = (head.len()..=bytes.len()).contains(&usize::from(total));
    if head[0] != 0x45 || !whole || !long_enough || !protocol.has_ports() {
        return None;
    }
    Some(PacketInfo {
        flow: FlowKey {
            src: left_aligned([head[12], head[13], head[14], head[15]]),
            dst: left_aligned([head[16], head[17], head[18], head[19]]),
            version: IpVersion::V4,
            protocol,
            ports: Ports::Known {
                src: u16::from_be_bytes([head[20], head[21]]),
                dst: u16::from_be_bytes([head[22], head[23]]),
            },
        },
        total_len: u32::from(total),
        header_len: HEADER_LEN,
        upper_offset: HEADER_LEN,
        ttl: head[8],
        tos: Tos(head[1]),
        dont_fragment: head[6] & 0x40 != 0,
        fragment: FragmentState::Whole,
    })
}

#[inline(never)]
fn parse_v4(bytes: &[u8], options: &ParseOptions, info: &mut PacketInfo) -> Result<(), ParseError> {
    let view = Ipv4View::parse(bytes)?;
    if options.verify_checksum && !view.checksum_ok() {
        return Err(ParseError::BadChecksum);
    }
    let fragment = if view.is_fragment() {
        let (offset, more) = (view.fragment_offset(), view.more_fragments());
        // The packet put together has this one's header and must not exceed its length field.
        fragment_state(offset, more, view.payload().len(), usize::from(view.total_len()))?
    } else {
        FragmentState::Whole
    };
    let ports = ports(IpVersion::V4, view.protocol(), view.payload(), fragment)?;
    // At most 60.
    let header_len = u16::try_from(view.header_len()).map_err(|_| ParseError::BadHeaderLength)?;
    *info = PacketInfo {
        flow: FlowKey {
            src: left_aligned(view.src().octets()),
            dst: left_aligned(view.dst().octets()),
            version: IpVersion::V4,
            protocol: view.protocol(),
            ports,
        },
        total_len: u32::from(view.total_len()),
        header_len,
        upper_offset: header_len,
        ttl: view.ttl(),
        tos: view.tos(),
        dont_fragment: view.dont_fragment(),
        fragment,
    };
    Ok(())
}

#[inline]
fn parse_v6(bytes: &[u8], options: &ParseOptions, info: &mut PacketInfo) -> Result<(), ParseError> {
    const HEADER_LEN: u16 = 40;
    const _: () = assert!(HEADER_LEN as usize == ipv6::HEADER_LEN);
    let view = Ipv6View::parse(bytes)?;
    let upper = view.upper_layer(options.limits)?;
    let data = view.payload().get(upper.offset..).unwrap_or_default();
    let fragment = match upper.fragment {
        Some(header) if !header.is_atomic() => {
            // The packet put together has no fragment header (RFC 8200 4.5).
            let len = view.payload().len();
            let data_len = len.saturating_sub(upper.fragment_data);
            let whole_len = len.saturating_sub(ipv6::FRAGMENT_HEADER_LEN);
            fragment_state(header.offset, header.more, data_len, whole_len)?
        }
        _ => FragmentState::Whole,
    };
    let ports = ports(IpVersion::V6, upper.protocol, data, fragment)?;
    let upper_offset = upper.offset.saturating_add(ipv6::HEADER_LEN);
    *info = PacketInfo {
        flow: FlowKey {
            src: view.src_octets(),
            dst: view.dst_octets(),
            version: IpVersion::V6,
            protocol: upper.protocol,
            ports,
        },
        total_len: u32::from(view.payload_len()).saturating_add(u32::from(HEADER_LEN)),
        header_len: HEADER_LEN,
        upper_offset: u16::try_from(upper_offset).map_err(|_| ParseError::ExtensionsTooLong)?,
        ttl: view.hop_limit(),
        tos: view.tos(),
        dont_fragment: true,
        fragment,
    };
    Ok(())
}

/// Checks a fragment's place. `data_len` are the bytes it carries, `len` those plus the headers
/// that the whole packet will have in its length field.
#[cold]
fn fragment_state(
    offset: u16,
    more: bool,
    data_len: usize,
    len: usize,
) -> Result<FragmentState, ParseError> {
    let past_the_end = usize::from(offset).saturating_add(len) > usize::from(u16::MAX);
    let uneven = more && (data_len == 0 || data_len & 7 != 0);
    if past_the_end || uneven {
        return Err(ParseError::BadFragment);
    }
    Ok(if offset == 0 { FragmentState::First } else { FragmentState::Later })
}

#[inline]
fn ports(
    version: IpVersion,
    protocol: Protocol,
    upper: &[u8],
    fragment: FragmentState,
) -> Result<Ports, ParseError> {
    if fragment == FragmentState::Later {
        return Ok(Ports::Opaque);
    }
    if protocol.has_ports() {
        let src = be16(upper, 0).ok_or(ParseError::UpperTruncated)?;
        let dst = be16(upper, 2).ok_or(ParseError::UpperTruncated)?;
        return Ok(Ports::Known { src, dst });
    }
    match (version, protocol) {
        (IpVersion::V4, Protocol::ICMP) | (IpVersion::V6, Protocol::ICMPV6) => {
            let &[ty, code] = upper.first_chunk().ok_or(ParseError::UpperTruncated)?;
            Ok(Ports::Icmp { ty, code })
        }
        _ => Ok(Ports::Opaque),
    }
}

#[cfg(test)]
mod tests;
