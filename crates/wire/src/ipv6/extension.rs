//! Extension headers: where the upper layer is, and where ESP goes in transport mode.

use crate::bytes::chunk;
use crate::{EmitError, ParseError, Protocol};

/// Length of a fragment header, bytes (RFC 8200 4.5).
pub const FRAGMENT_HEADER_LEN: usize = 8;

/// Limits on an extension header chain; a packet beyond them counts as hostile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtensionLimits {
    /// Most headers.
    pub headers: u8,
    /// Most bytes of all headers together.
    pub bytes: u16,
}

impl Default for ExtensionLimits {
    /// 8 headers (RFC 8200 4.1 knows 7 in a full chain) and 1024 bytes.
    fn default() -> Self {
        Self { headers: 8, bytes: 1024 }
    }
}

/// A fragment header.
///
/// ```text
/// +---------------+---------------+-------------------------+---+-+
/// |  next header  |   reserved    |     fragment offset     |res|M|
/// +---------------+---------------+-------------------------+---+-+
/// |                         identification                        |
/// +---------------------------------------------------------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentHeader {
    /// Type of the fragmentable part's first header.
    pub next_header: Protocol,
    /// Position of the data in the fragmentable part, bytes, a multiple of 8.
    pub offset: u16,
    /// True if more fragments follow.
    pub more: bool,
    /// The identification that fragments of one packet share.
    pub ident: u32,
}

impl FragmentHeader {
    /// Reads the header's eight bytes; every value is possible.
    #[inline]
    pub const fn parse(bytes: &[u8; FRAGMENT_HEADER_LEN]) -> Self {
        Self {
            next_header: Protocol(bytes[0]),
            offset: u16::from_be_bytes([bytes[2], bytes[3]]) & !7,
            more: bytes[3] & 1 != 0,
            ident: u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        }
    }

    /// The header's eight bytes. The lowest three bits of the offset are ignored.
    #[inline]
    pub const fn to_bytes(self) -> [u8; FRAGMENT_HEADER_LEN] {
        let [o0, o1] = (self.offset & !7 | self.more as u16).to_be_bytes();
        let [i0, i1, i2, i3] = self.ident.to_be_bytes();
        [self.next_header.0, 0, o0, o1, i0, i1, i2, i3]
    }

    /// Writes the header to the start of `into`; returns its length.
    ///
    /// # Errors
    /// [`EmitError::BufferTooSmall`] below 8 bytes.
    pub fn emit(self, into: &mut [u8]) -> Result<usize, EmitError> {
        let needed = FRAGMENT_HEADER_LEN;
        *into.first_chunk_mut().ok_or(EmitError::BufferTooSmall { needed })? = self.to_bytes();
        Ok(needed)
    }

    /// True if the packet is in fact whole (RFC 6946: an atomic fragment).
    #[inline]
    pub const fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }
}

/// End of the extension header chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpperLayer {
    /// The protocol there. Behind a fragment header with an offset it is that header's next-header
    /// value, whatever it is: the data is not looked at.
    pub protocol: Protocol,
    /// Start of the upper layer, bytes from the start of the IPv6 payload.
    pub offset: usize,
    /// The fragment header met on the way.
    pub fragment: Option<FragmentHeader>,
    /// Start of the data behind the fragment header, bytes from the start of the IPv6 payload;
    /// 0 without one.
    pub fragment_data: usize,
}

/// Walks the extension headers of a payload that begins with `first`.
///
/// Hop-by-hop, routing, destination options and fragment headers are walked over; everything else
/// is an upper layer, ESP and AH included. A fragment with an offset ends the walk.
///
/// # Errors
/// `ExtensionOrder` for a hop-by-hop header that is not first or a second fragment header,
/// `ExtensionTruncated` when the chain leaves the payload, `TooManyExtensions` and
/// `ExtensionsTooLong` beyond the limits.
#[inline]
pub fn walk_extensions(
    first: Protocol,
    payload: &[u8],
    limits: ExtensionLimits,
) -> Result<UpperLayer, ParseError> {
    let upper = UpperLayer { protocol: first, offset: 0, fragment: None, fragment_data: 0 };
    if is_extension(first) { walk(upper, payload, limits) } else { Ok(upper) }
}

#[inline]
const fn is_extension(protocol: Protocol) -> bool {
    matches!(
        protocol,
        Protocol::HOP_BY_HOP | Protocol::ROUTING | Protocol::FRAGMENT | Protocol::DEST_OPTIONS
    )
}

/// The uncommon part of the walk, kept out of the fast path.
#[cold]
fn walk(
    mut at: UpperLayer,
    payload: &[u8],
    limits: ExtensionLimits,
) -> Result<UpperLayer, ParseError> {
    let mut headers = 0u8;
    while is_extension(at.protocol) {
        if headers == limits.headers {
            return Err(ParseError::TooManyExtensions);
        }
        if at.protocol == Protocol::HOP_BY_HOP && headers > 0 {
            return Err(ParseError::ExtensionOrder);
        }
        headers = headers.saturating_add(1);
        let bytes: &[u8; 8] = chunk(payload, at.offset).ok_or(ParseError::ExtensionTruncated)?;
        let (next, len) = if at.protocol == Protocol::FRAGMENT {
            if at.fragment.is_some() {
                return Err(ParseError::ExtensionOrder);
            }
            at.fragment = Some(FragmentHeader::parse(bytes));
            at.fragment_data = at.offset.saturating_add(FRAGMENT_HEADER_LEN);
            (bytes[0], FRAGMENT_HEADER_LEN)
        } else {
            (bytes[0], extension_len(bytes[1]))
        };
        at.offset = at.offset.saturating_add(len);
        at.protocol = Protocol(next);
        if at.offset > payload.len() {
            return Err(ParseError::ExtensionTruncated);
        }
        if at.offset > usize::from(limits.bytes) {
            return Err(ParseError::ExtensionsTooLong);
        }
        if at.fragment.is_some_and(|f| f.offset != 0) {
            break;
        }
    }
    Ok(at)
}

/// Bytes of an extension header whose length field is `units` (RFC 8200 4.3: 8-byte units, not
/// counting the first).
#[inline]
fn extension_len(units: u8) -> usize {
    usize::from(units).saturating_add(1) << 3
}

/// Place of a packet's fragment header, and of the next-header byte that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentPoint {
    /// The fragment header.
    pub header: FragmentHeader,
    /// Start of the fragment header, bytes from the start of the IPv6 payload.
    pub offset: usize,
    /// Place of the next-header byte that names it, bytes from the start of the packet, fixed
    /// header included.
    pub next_header_at: usize,
}

/// Finds the fragment header of a payload that begins with `first`; `None` when there is none.
///
/// # Errors
/// As [`walk_extensions`].
pub fn fragment_point(
    first: Protocol,
    payload: &[u8],
    limits: ExtensionLimits,
) -> Result<Option<FragmentPoint>, ParseError> {
    let upper = walk_extensions(first, payload, limits)?;
    let Some(header) = upper.fragment else { return Ok(None) };
    let (mut protocol, mut offset, mut next_header_at) = (first, 0, FIRST_NEXT_HEADER_AT);
    while protocol != Protocol::FRAGMENT {
        let [next, units]: [u8; 2] =
            *chunk(payload, offset).ok_or(ParseError::ExtensionTruncated)?;
        next_header_at = offset.saturating_add(super::HEADER_LEN);
        offset = offset.saturating_add(extension_len(units));
        protocol = Protocol(next);
    }
    Ok(Some(FragmentPoint { header, offset, next_header_at }))
}

/// Place of the fixed header's next-header byte, bytes from the start of the packet.
const FIRST_NEXT_HEADER_AT: usize = 6;

/// Place of ESP in a packet in transport mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportPoint {
    /// Start of ESP, bytes from the start of the IPv6 payload.
    pub offset: usize,
    /// Next header for ESP's trailer: the protocol that lies at `offset` now.
    pub protocol: Protocol,
    /// Place of the next-header byte that must become ESP's 50, bytes from the start of the
    /// packet, fixed header included.
    pub next_header_at: usize,
}

/// Finds where ESP goes in transport mode: after hop-by-hop and routing headers, and after the
/// destination options that precede a routing header; later destination options are protected
/// (RFC 4303 3.1.1, RFC 8200 4.1).
///
/// # Errors
/// As [`walk_extensions`]; `BadFragment` when there is a fragment header, because ESP in transport
/// mode takes whole packets only (RFC 4303 3.3.4).
pub fn transport_point(
    first: Protocol,
    payload: &[u8],
    limits: ExtensionLimits,
) -> Result<TransportPoint, ParseError> {
    if walk_extensions(first, payload, limits)?.fragment.is_some() {
        return Err(ParseError::BadFragment);
    }
    let mut here =
        TransportPoint { offset: 0, protocol: first, next_header_at: FIRST_NEXT_HEADER_AT };
    let mut found = here;
    while is_extension(here.protocol) {
        let [next, units]: [u8; 2] =
            *chunk(payload, here.offset).ok_or(ParseError::ExtensionTruncated)?;
        let stays_outside = here.protocol != Protocol::DEST_OPTIONS;
        here = TransportPoint {
            offset: here.offset.saturating_add(extension_len(units)),
            protocol: Protocol(next),
            next_header_at: here.offset.saturating_add(super::HEADER_LEN),
        };
        if stays_outside {
            found = here;
        }
    }
    Ok(found)
}
