//! ICMP for IPv4 (RFC 792, RFC 1191) and IPv6 (RFC 4443): error reports, read and written.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::checksum::{Sum, fill_icmp};
use crate::ipv6::ExtensionLimits;
use crate::{
    Dscp, Ecn, EmitError, IpVersion, Ipv4Repr, Ipv4View, Ipv6Repr, Ipv6View, ParseError, Protocol,
    Tos, ipv4, ipv6,
};

/// Length of an error report before the packet it quotes, bytes.
pub const HEADER_LEN: usize = 8;
/// An ICMPv4 error is at most this long, IP header included, bytes (RFC 1812 4.3.2.3).
pub const MAX_ERROR_LEN_V4: usize = 576;
/// An ICMPv6 error is at most this long, IP header included, bytes (RFC 4443 2.4 (c)).
pub const MAX_ERROR_LEN_V6: usize = ipv6::MIN_MTU;

const HOP_LIMIT: u8 = 64;

/// Condition reported by an ICMP error message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    /// The packet is larger than the next hop's MTU, bytes. An IPv4 router older than RFC 1191
    /// gives 0.
    TooBig {
        /// MTU of the link that refused the packet, IP header included, bytes.
        mtu: u32,
    },
    /// The TTL or hop limit reached zero on the way.
    TimeExceeded,
    /// A policy forbids the packet (RFC 1812 5.2.7.1 code 13, RFC 4443 3.1 code 1).
    AdminProhibited,
    /// Any other error.
    Other {
        /// The ICMP type.
        ty: u8,
        /// The ICMP code.
        code: u8,
    },
}

/// An error report that was received.
#[derive(Clone, Copy, Debug)]
pub struct IcmpErrorView<'a> {
    /// Error that it reports.
    pub error: IcmpError,
    /// The packet it is about, as much of it as was quoted.
    pub quoted: Quoted<'a>,
}

/// The start of a packet quoted in an error report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quoted<'a> {
    /// Source of the packet.
    pub src: IpAddr,
    /// Destination of the packet.
    pub dst: IpAddr,
    /// The upper layer's protocol.
    pub protocol: Protocol,
    /// The upper layer, as much of it as was quoted: at least its first 8 bytes, usually.
    pub upper: &'a [u8],
}

impl<'a> IcmpErrorView<'a> {
    /// Parses the ICMP message in the payload of an IP packet. The checksum is not looked at.
    ///
    /// # Errors
    /// `Truncated`, `NotAnIcmpError`, or what is wrong with the quoted header.
    pub fn parse(version: IpVersion, message: &'a [u8]) -> Result<Self, ParseError> {
        let (&[ty, code, _, _, m0, m1, m2, m3], quoted) =
            message.split_first_chunk::<HEADER_LEN>().ok_or(ParseError::Truncated)?;
        if !is_error(version, ty) {
            return Err(ParseError::NotAnIcmpError);
        }
        let error = match (version, ty, code) {
            (IpVersion::V4, 3, 4) => {
                IcmpError::TooBig { mtu: u32::from(u16::from_be_bytes([m2, m3])) }
            }
            (IpVersion::V6, 2, _) => {
                IcmpError::TooBig { mtu: u32::from_be_bytes([m0, m1, m2, m3]) }
            }
            (IpVersion::V4, 11, 0) | (IpVersion::V6, 3, 0) => IcmpError::TimeExceeded,
            (IpVersion::V4, 3, 13) | (IpVersion::V6, 1, 1) => IcmpError::AdminProhibited,
            _ => IcmpError::Other { ty, code },
        };
        Ok(Self { error, quoted: Quoted::parse(version, quoted)? })
    }
}

impl<'a> Quoted<'a> {
    /// Parses the start of a quoted packet, which may be cut off anywhere after its IP header.
    ///
    /// # Errors
    /// Fails if the header is wrong; for IPv6 also if a quoted extension header chain is.
    pub fn parse(version: IpVersion, bytes: &'a [u8]) -> Result<Self, ParseError> {
        match version {
            IpVersion::V4 => {
                let view = Ipv4View::parse_quoted(bytes)?;
                Ok(Self {
                    src: view.src().into(),
                    dst: view.dst().into(),
                    protocol: view.protocol(),
                    upper: if view.fragment_offset() == 0 { view.payload() } else { &[] },
                })
            }
            IpVersion::V6 => {
                let view = Ipv6View::parse_quoted(bytes)?;
                let upper = view.upper_layer(ExtensionLimits::default())?;
                let later = upper.fragment.is_some_and(|f| f.offset != 0);
                let bytes = view.payload().get(upper.offset..).unwrap_or_default();
                Ok(Self {
                    src: view.src().into(),
                    dst: view.dst().into(),
                    protocol: upper.protocol,
                    upper: if later { &[] } else { bytes },
                })
            }
        }
    }
}

/// Returns true if messages of this type report errors, so that none may be sent in answer.
/// Redirects count as errors (RFC 1122 3.2.2, RFC 4443 2.4 (e)).
#[inline]
pub const fn is_error(version: IpVersion, ty: u8) -> bool {
    match version {
        IpVersion::V4 => matches!(ty, 3 | 4 | 5 | 11 | 12),
        IpVersion::V6 => ty < 128 || ty == 137,
    }
}

/// Writes an error report about `original`, a whole IP packet with its header, from `source` to
/// the original's sender: IP header, ICMP header and as much of the original as is allowed
/// (576 bytes in all for IPv4, 1280 for IPv6) and as fits. Returns the report's length.
///
/// An MTU is raised to the smallest one the IP version knows, and for IPv4 lowered to 65535.
///
/// # Errors
/// [`EmitError::NotAnswerable`] for packets that must not be answered: ICMP errors, fragments but
/// the first, multicast and broadcast, senders that are no single host; and for what is no valid
/// IP packet. [`EmitError::VersionMismatch`] when `source` is of the other IP version.
/// [`EmitError::BufferTooSmall`] when not even the original's header and 8 bytes more fit.
pub fn emit_error(
    into: &mut [u8],
    original: &[u8],
    error: IcmpError,
    source: IpAddr,
) -> Result<usize, EmitError> {
    let first = original.first().copied().unwrap_or(0);
    match (IpVersion::of(first), source) {
        (Some(IpVersion::V4), IpAddr::V4(source)) => emit_v4(into, original, error, source),
        (Some(IpVersion::V6), IpAddr::V6(source)) => emit_v6(into, original, error, source),
        (None, _) => Err(EmitError::NotAnswerable),
        _ => Err(EmitError::VersionMismatch),
    }
}

/// Tells the sender of `original` the largest packet that gets through, `mtu` bytes: IPv4
/// fragmentation needed (RFC 1191) or IPv6 packet too big (RFC 4443 3.2). See [`emit_error`].
///
/// # Errors
/// As [`emit_error`].
pub fn emit_too_big(
    into: &mut [u8],
    original: &[u8],
    mtu: u32,
    source: IpAddr,
) -> Result<usize, EmitError> {
    emit_error(into, original, IcmpError::TooBig { mtu }, source)
}

fn emit_v4(
    into: &mut [u8],
    original: &[u8],
    error: IcmpError,
    source: Ipv4Addr,
) -> Result<usize, EmitError> {
    let view = Ipv4View::parse(original).map_err(|_| EmitError::NotAnswerable)?;
    if !answerable_v4(&view) {
        return Err(EmitError::NotAnswerable);
    }
    let header_len = ipv4::HEADER_LEN.saturating_add(HEADER_LEN);
    let original = original.get(..usize::from(view.total_len())).unwrap_or(original);
    let least = view.header_len().saturating_add(8);
    let quote = quote(into, original, header_len, MAX_ERROR_LEN_V4, least)?;
    let message_len = HEADER_LEN.saturating_add(quote.len());
    let ip = Ipv4Repr {
        tos: Tos::new(Dscp::CS6, Ecn::NotEct), // RFC 1812 4.3.2.5
        ident: 0,
        dont_fragment: true,
        ttl: HOP_LIMIT,
        protocol: Protocol::ICMP,
        src: source,
        dst: view.src(),
        payload_len: message_len,
    };
    let ip_len = ip.emit(into)?;
    let (ty, code, rest) = match error {
        IcmpError::TooBig { mtu } => {
            let least = u16::try_from(ipv4::MIN_MTU).unwrap_or(u16::MAX);
            (3, 4, u32::from(u16::try_from(mtu).unwrap_or(u16::MAX).max(least)))
        }
        IcmpError::TimeExceeded => (11, 0, 0),
        IcmpError::AdminProhibited => (3, 13, 0),
        IcmpError::Other { ty, code } => (ty, code, 0),
    };
    emit_message(into, ip_len, message_len, (ty, code, rest), quote, Sum::ZERO)
}

fn answerable_v4(view: &Ipv4View<'_>) -> bool {
    let (src, dst) = (view.src(), view.dst());
    let one_host = !(src.is_unspecified()
        || src.is_multicast()
        || src.is_broadcast()
        || src.is_loopback()
        || src.octets()[0] >= 240);
    let to_one = !(dst.is_multicast() || dst.is_broadcast());
    let reports_error = view.protocol() == Protocol::ICMP
        && view.payload().first().is_none_or(|&ty| is_error(IpVersion::V4, ty));
    one_host && to_one && view.fragment_offset() == 0 && !reports_error
}

fn emit_v6(
    into: &mut [u8],
    original: &[u8],
    error: IcmpError,
    source: Ipv6Addr,
) -> Result<usize, EmitError> {
    let view = Ipv6View::parse(original).map_err(|_| EmitError::NotAnswerable)?;
    if !answerable_v6(&view, error) {
        return Err(EmitError::NotAnswerable);
    }
    let header_len = ipv6::HEADER_LEN.saturating_add(HEADER_LEN);
    let total_len = ipv6::HEADER_LEN.saturating_add(view.payload().len());
    let original = original.get(..total_len).unwrap_or(original);
    let least = ipv6::HEADER_LEN.saturating_add(8);
    let quote = quote(into, original, header_len, MAX_ERROR_LEN_V6, least)?;
    let message_len = HEADER_LEN.saturating_add(quote.len());
    let ip = Ipv6Repr {
        tos: Tos::new(Dscp::CS6, Ecn::NotEct),
        flow_label: 0,
        next_header: Protocol::ICMPV6,
        hop_limit: HOP_LIMIT,
        src: source,
        dst: view.src(),
        payload_len: message_len,
    };
    let ip_len = ip.emit(into)?;
    let (ty, code, rest) = match error {
        IcmpError::TooBig { mtu } => {
            (2, 0, mtu.max(u32::try_from(ipv6::MIN_MTU).unwrap_or(u32::MAX)))
        }
        IcmpError::TimeExceeded => (3, 0, 0),
        IcmpError::AdminProhibited => (1, 1, 0),
        IcmpError::Other { ty, code } => (ty, code, 0),
    };
    let pseudo_len = u32::try_from(message_len).map_err(|_| EmitError::TooLong(message_len))?;
    let pseudo = Sum::pseudo_v6(source, view.src(), Protocol::ICMPV6, pseudo_len);
    emit_message(into, ip_len, message_len, (ty, code, rest), quote, pseudo)
}

fn answerable_v6(view: &Ipv6View<'_>, error: IcmpError) -> bool {
    let Ok(upper) = view.upper_layer(ExtensionLimits::default()) else { return false };
    let src = view.src();
    let one_host = !(src.is_unspecified() || src.is_multicast() || src.is_loopback());
    // Path MTU discovery must work for multicast too (RFC 4443 2.4 (e.3)).
    let to_one = !view.dst().is_multicast() || matches!(error, IcmpError::TooBig { .. });
    let first_or_whole = upper.fragment.is_none_or(|f| f.offset == 0);
    let ty = view.payload().get(upper.offset);
    let reports_error =
        upper.protocol == Protocol::ICMPV6 && ty.is_none_or(|&ty| is_error(IpVersion::V6, ty));
    one_host && to_one && first_or_whole && !reports_error
}

/// As much of `original` as may and can be quoted behind `header_len` bytes of `into`.
fn quote<'a>(
    into: &[u8],
    original: &'a [u8],
    header_len: usize,
    max_len: usize,
    least: usize,
) -> Result<&'a [u8], EmitError> {
    let least = least.min(original.len());
    let room = into.len().min(max_len).saturating_sub(header_len);
    if room < least {
        return Err(EmitError::BufferTooSmall { needed: header_len.saturating_add(least) });
    }
    Ok(original.get(..room).unwrap_or(original))
}

/// Writes ICMP header, quotation and checksum behind the IP header.
fn emit_message(
    into: &mut [u8],
    ip_len: usize,
    message_len: usize,
    (ty, code, rest): (u8, u8, u32),
    quote: &[u8],
    pseudo: Sum,
) -> Result<usize, EmitError> {
    let total = ip_len.saturating_add(message_len);
    let too_small = EmitError::BufferTooSmall { needed: total };
    let message = into.get_mut(ip_len..total).ok_or(too_small)?;
    let (header, room) = message.split_first_chunk_mut::<HEADER_LEN>().ok_or(too_small)?;
    let [r0, r1, r2, r3] = rest.to_be_bytes();
    *header = [ty, code, 0, 0, r0, r1, r2, r3];
    room.copy_from_slice(quote);
    fill_icmp(pseudo, message)?;
    Ok(total)
}

#[cfg(test)]
mod tests;
