//! Packet that a fragment is a part of, and its place there.

use convoy_wire::ipv6::{ExtensionLimits, FRAGMENT_HEADER_LEN, HEADER_LEN, fragment_point};
use convoy_wire::{IpVersion, Ipv4View, Ipv6View, PacketInfo, Protocol};

/// Fields that fragments of one packet have in common (RFC 791 section 3.2, RFC 8200 section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct PacketName {
    pub(super) src: [u8; 16],
    pub(super) dst: [u8; 16],
    pub(super) version: IpVersion,
    /// Always "none" for IPv6, where it is not part of the name.
    pub(super) protocol: Protocol,
    pub(super) ident: u32,
    /// Origin of the packet: peers must not complete each other's packets. The interface, and in the low half
    /// the SA's group; 0 for a packet of no peer's.
    pub(super) scope: u64,
}

/// Holder of a share of the places for fragments: a peer, whatever addresses it gives its packets, and outside
/// of tunnels whoever sends from an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Owner {
    scope: u64,
    src: [u8; 16],
}

impl PacketName {
    /// Whose share a packet of this name takes.
    pub(super) fn owner(&self) -> Owner {
        let has_peer = self.scope as u32 != 0;
        Owner { scope: self.scope, src: if has_peer { [0; 16] } else { self.src } }
    }
}

/// A fragment's place in its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) name: PacketName,
    /// Position of its data in the packet's fragmentable part, in bytes.
    pub(super) offset: usize,
    /// True if others follow.
    pub(super) more: bool,
    /// Bytes of header that the whole packet begins with; only the first fragment's counts.
    pub(super) head: usize,
    /// Position of its data, in bytes from the packet's start.
    pub(super) data_at: usize,
    /// Bytes of data.
    pub(super) len: usize,
    /// Protocol that the data of a first fragment begins with, and offset at which the whole packet names it.
    pub(super) next_header: Protocol,
    pub(super) next_header_at: usize,
}

impl Piece {
    /// `info` is what parsing the packet gave, and says that it is a fragment.
    pub(super) fn of(packet: &[u8], info: &PacketInfo, scope: u64) -> Option<Self> {
        let (src, dst) = (info.flow.src, info.flow.dst);
        let version = info.flow.version;
        match version {
            IpVersion::V4 => {
                let view = Ipv4View::parse(packet).ok()?;
                let (protocol, ident) = (view.protocol(), view.ident().into());
                Some(Self {
                    name: PacketName { src, dst, version, protocol, ident, scope },
                    offset: view.fragment_offset().into(),
                    more: view.more_fragments(),
                    head: view.header_len(),
                    data_at: view.header_len(),
                    len: view.payload().len(),
                    next_header: protocol,
                    next_header_at: 9,
                })
            }
            IpVersion::V6 => {
                let view = Ipv6View::parse(packet).ok()?;
                let limits = ExtensionLimits::default();
                let point = fragment_point(view.next_header(), view.payload(), limits).ok()??;
                let before = point.offset + FRAGMENT_HEADER_LEN;
                let (protocol, ident) = (Protocol::NONE, point.header.ident);
                Some(Self {
                    name: PacketName { src, dst, version, protocol, ident, scope },
                    offset: point.header.offset.into(),
                    more: point.header.more,
                    head: HEADER_LEN + point.offset,
                    data_at: HEADER_LEN + before,
                    len: view.payload().len().checked_sub(before)?,
                    next_header: point.header.next_header,
                    next_header_at: point.next_header_at,
                })
            }
        }
    }

    /// Position behind its data in the fragmentable part, in bytes.
    pub(super) const fn end(&self) -> usize {
        self.offset + self.len
    }
}
