//! The header in front of each packet of a TUN device opened with `IFF_VNET_HDR`, or of a packet
//! socket with `PACKET_VNET_HDR`.
//!
//! ```text
//!  0       1          2..4      4..6       6..8         8..10
//!  flags   gso_type   hdr_len   gso_size   csum_start   csum_offset     (host byte order)
//! ```
//! Source: virtio 1.2 section 5.1.6, without the fields that only `TUNSETVNETHDRSZ` adds.

/// Bytes of the header.
pub(crate) const VNET_LEN: usize = 10;

const NEEDS_CSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// Content of a super-segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gso {
    /// An ordinary packet.
    None,
    /// TCP segments over IPv4.
    TcpV4,
    /// TCP segments over IPv6.
    TcpV6,
    /// UDP datagrams over either.
    Udp,
}

/// The header's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vnet {
    /// The checksum field holds the pseudo-header's sum only; see [`Self::csum_start`].
    pub(crate) needs_csum: bool,
    pub(crate) gso: Gso,
    /// The first segment carries CWR.
    pub(crate) ecn: bool,
    /// Bytes of headers; a hint only.
    pub(crate) hdr_len: u16,
    /// Payload bytes of each segment but the last.
    pub(crate) gso_size: u16,
    /// Offset of the first checksummed byte, counted from the IP header (in the kernel's header on a
    /// packet socket: from the Ethernet header).
    pub(crate) csum_start: u16,
    /// Offset of the checksum, counted from `csum_start`.
    pub(crate) csum_offset: u16,
}

impl Vnet {
    /// The header of an ordinary, finished packet.
    pub(crate) const PLAIN: Self = Self {
        needs_csum: false,
        gso: Gso::None,
        ecn: false,
        hdr_len: 0,
        gso_size: 0,
        csum_start: 0,
        csum_offset: 0,
    };

    /// `None` for a kind of super-segment that was not agreed on with the kernel.
    pub(crate) fn parse(bytes: &[u8; VNET_LEN]) -> Option<Self> {
        let [flags, kind, h0, h1, g0, g1, s0, s1, o0, o1] = *bytes;
        Some(Self {
            needs_csum: flags & NEEDS_CSUM != 0,
            gso: match kind & !GSO_ECN {
                GSO_NONE => Gso::None,
                GSO_TCPV4 => Gso::TcpV4,
                GSO_TCPV6 => Gso::TcpV6,
                GSO_UDP_L4 => Gso::Udp,
                _ => return None,
            },
            ecn: kind & GSO_ECN != 0,
            hdr_len: u16::from_ne_bytes([h0, h1]),
            gso_size: u16::from_ne_bytes([g0, g1]),
            csum_start: u16::from_ne_bytes([s0, s1]),
            csum_offset: u16::from_ne_bytes([o0, o1]),
        })
    }

    pub(crate) fn emit(&self) -> [u8; VNET_LEN] {
        let kind = match self.gso {
            Gso::None => GSO_NONE,
            Gso::TcpV4 => GSO_TCPV4,
            Gso::TcpV6 => GSO_TCPV6,
            Gso::Udp => GSO_UDP_L4,
        };
        let [h0, h1] = self.hdr_len.to_ne_bytes();
        let [g0, g1] = self.gso_size.to_ne_bytes();
        let [s0, s1] = self.csum_start.to_ne_bytes();
        let [o0, o1] = self.csum_offset.to_ne_bytes();
        let flags = if self.needs_csum { NEEDS_CSUM } else { 0 };
        let ecn = if self.ecn { GSO_ECN } else { 0 };
        [flags, kind | ecn, h0, h1, g0, g1, s0, s1, o0, o1]
    }
}
