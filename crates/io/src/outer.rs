//! Outer IP headers that sockets take off and put on.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use convoy_wire::checksum::sum;

use crate::bytes::{be16, byte, part, put};

/// Hop limit that sockets send with unless told otherwise.
pub(crate) const TTL: u8 = 64;

/// Fields of an outer IP header, as far as a socket can express them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outer {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    /// TOS or traffic class.
    pub(crate) tos: u8,
    /// TTL or hop limit.
    pub(crate) ttl: u8,
    /// "Don't fragment"; always so in IPv6.
    pub(crate) df: bool,
    pub(crate) protocol: u8,
}

impl Outer {
    /// Bytes of the header.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        if self.src.is_ipv4() { 20 } else { 40 }
    }

    /// The header of a whole packet. `None` for fragments, options or extension headers, and when
    /// the length in the header is not that of the packet.
    #[inline]
    pub(crate) fn parse(packet: &[u8]) -> Option<Self> {
        if byte(packet, 0) >> 4 == 6 {
            return Self::parse_v6(packet);
        }
        let flags = be16(packet, 6);
        let whole = usize::from(be16(packet, 2)) == packet.len() && flags & 0xbfff == 0;
        if byte(packet, 0) != 0x45 || !whole {
            return None;
        }
        Some(Self {
            src: Ipv4Addr::from(*packet.get(12..)?.first_chunk::<4>()?).into(),
            dst: Ipv4Addr::from(*packet.get(16..)?.first_chunk::<4>()?).into(),
            tos: byte(packet, 1),
            ttl: byte(packet, 8),
            df: flags & 0x4000 != 0,
            protocol: byte(packet, 9),
        })
    }

    fn parse_v6(packet: &[u8]) -> Option<Self> {
        if packet.len() != 40 + usize::from(be16(packet, 4)) {
            return None;
        }
        Some(Self {
            src: Ipv6Addr::from(*packet.get(8..)?.first_chunk::<16>()?).into(),
            dst: Ipv6Addr::from(*packet.get(24..)?.first_chunk::<16>()?).into(),
            tos: (be16(packet, 0) >> 4) as u8,
            ttl: byte(packet, 7),
            df: true,
            protocol: byte(packet, 6),
        })
    }

    /// Writes the header of a packet with `payload` bytes behind it to the start of `out`.
    #[inline]
    pub(crate) fn emit(&self, out: &mut [u8], payload: usize) {
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let flags = if self.df { 0x40 } else { 0 };
                put(out, 0, [0x45, self.tos]);
                put(out, 2, ((20 + payload) as u16).to_be_bytes());
                put(out, 4, [0, 0, flags, 0, self.ttl, self.protocol, 0, 0]);
                put(out, 12, src.octets());
                put(out, 16, dst.octets());
                let check = sum(part(out, 0, 20)).finish();
                put(out, 10, check.to_be_bytes());
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                put(out, 0, [0x60 | self.tos >> 4, self.tos << 4, 0, 0]);
                put(out, 4, (payload as u16).to_be_bytes());
                put(out, 6, [self.protocol, self.ttl]);
                put(out, 8, src.octets());
                put(out, 24, dst.octets());
            }
            // A socket has one family.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outer(src: &str, dst: &str) -> Outer {
        let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
        Outer { src, dst, tos: 0xb9, ttl: 61, df: true, protocol: 50 }
    }

    #[test]
    fn what_is_emitted_parses_and_has_a_right_checksum() {
        for outer in [outer("192.0.2.1", "192.0.2.2"), outer("2001:db8::1", "2001:db8::2")] {
            let mut packet = vec![0xff; outer.len() + 11];
            outer.emit(&mut packet, 11);
            assert_eq!(Outer::parse(&packet), Some(outer));
            assert!(outer.len() == 40 || sum(&packet[..20]).is_valid());
            packet.push(0);
            assert_eq!(Outer::parse(&packet), None);
        }
    }

    #[test]
    fn fragments_options_and_cut_headers_are_refused() {
        let outer = outer("192.0.2.1", "192.0.2.2");
        let mut packet = vec![0; 30];
        outer.emit(&mut packet, 10);
        for (at, value) in [(0, 0x46), (6, 0x20), (7, 1), (0, 0x75)] {
            let mut bad = packet.clone();
            bad[at] = value;
            assert_eq!(Outer::parse(&bad), None);
        }
        assert!((0..30).all(|len| Outer::parse(&packet[..len]).is_none()));
    }
}
