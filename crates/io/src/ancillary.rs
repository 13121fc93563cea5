//! Ancillary data and socket addresses as bytes.
//!
//! A `cmsghdr` is a length (of header and data), a level and a type, all in host order, followed by
//! the data and padding up to a multiple of eight.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::sys;

const HEADER: usize = 16;
const ALIGN: usize = 8;

/// Ancillary data of a message to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Control {
    pub(crate) bytes: [u8; sys::CONTROL_OUT],
    pub(crate) len: u8,
}

impl Control {
    pub(crate) const EMPTY: Self = Self { bytes: [0; sys::CONTROL_OUT], len: 0 };

    /// Adds one item; the buffer has room for all items that a port ever sends together.
    pub(crate) fn push<const N: usize>(&mut self, level: i32, kind: i32, data: [u8; N]) {
        let at = usize::from(self.len);
        let end = at + (HEADER + N).next_multiple_of(ALIGN);
        let Some(item) = self.bytes.get_mut(at..end) else { return };
        let parts: [&[u8]; 4] =
            [&(HEADER + N).to_ne_bytes(), &level.to_ne_bytes(), &kind.to_ne_bytes(), &data];
        for (to, from) in item.iter_mut().zip(parts.into_iter().flatten()) {
            *to = *from;
        }
        self.len = end as u8;
    }
}

/// Adds the address to send from: `struct in_pktinfo` (index, source, unused) or
/// `struct in6_pktinfo` (source, index).
pub(crate) fn push_source(control: &mut Control, src: IpAddr) {
    match src {
        IpAddr::V4(src) => {
            let [a, b, c, d] = src.octets();
            let info = [0, 0, 0, 0, a, b, c, d, 0, 0, 0, 0];
            control.push(libc::IPPROTO_IP, libc::IP_PKTINFO, info);
        }
        IpAddr::V6(src) => {
            let mut info = [0; 20];
            for (to, from) in info.iter_mut().zip(src.octets()) {
                *to = from;
            }
            control.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
        }
    }
}

/// The items of received ancillary data: level, type, data.
pub(crate) fn items(mut control: &[u8]) -> impl Iterator<Item = (i32, i32, &[u8])> {
    core::iter::from_fn(move || {
        let (header, _) = control.split_first_chunk::<HEADER>()?;
        let (len, rest) = header.split_first_chunk::<8>()?;
        let (level, kind) = rest.split_first_chunk::<4>()?;
        let len = usize::from_ne_bytes(*len);
        let data = control.get(HEADER..len)?;
        let kind = i32::from_ne_bytes(*kind.first_chunk()?);
        control = control.get(len.next_multiple_of(ALIGN)..).unwrap_or_default();
        Some((i32::from_ne_bytes(*level), kind, data))
    })
}

/// The int at the start of an item.
pub(crate) fn int(data: &[u8]) -> Option<i32> {
    data.first_chunk().map(|b| i32::from_ne_bytes(*b))
}

/// The int, or the single byte, that an item consists of: the kernel gives the IPv4 TOS as a byte
/// and the IPv6 traffic class as an int.
pub(crate) fn small(data: &[u8]) -> Option<u8> {
    match data {
        [byte] => Some(*byte),
        _ => int(data).map(|n| n as u8),
    }
}

/// `sockaddr_in` or `sockaddr_in6`, and its length.
pub(crate) fn encode_address(address: SocketAddr) -> ([u8; sys::ADDRESS], u8) {
    let mut bytes = [0; sys::ADDRESS];
    let port = address.port().to_be_bytes();
    let fill = |bytes: &mut [u8], parts: &[&[u8]]| {
        for (to, from) in bytes.iter_mut().zip(parts.iter().copied().flatten()) {
            *to = *from;
        }
    };
    match address {
        SocketAddr::V4(v4) => {
            let family = (libc::AF_INET as u16).to_ne_bytes();
            fill(&mut bytes, &[&family, &port, &v4.ip().octets()]);
            (bytes, 16)
        }
        SocketAddr::V6(v6) => {
            let family = (libc::AF_INET6 as u16).to_ne_bytes();
            let scope = v6.scope_id().to_ne_bytes();
            fill(&mut bytes, &[&family, &port, &[0; 4], &v6.ip().octets(), &scope]);
            (bytes, 28)
        }
    }
}

/// The reverse of [`encode_address`]; `None` for other families or too few bytes.
pub(crate) fn decode_address(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(*bytes.first_chunk()?);
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    match i32::from(family) {
        libc::AF_INET => {
            let ip = Ipv4Addr::from(*bytes.get(4..)?.first_chunk::<4>()?);
            Some(SocketAddr::new(IpAddr::V4(ip), port))
        }
        libc::AF_INET6 => {
            let ip = Ipv6Addr::from(*bytes.get(8..)?.first_chunk::<16>()?);
            let scope = u32::from_ne_bytes(*bytes.get(24..)?.first_chunk()?);
            Some(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, scope)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pushed_is_found_again() {
        let mut control = Control::EMPTY;
        control.push(1, 2, [7; 3]);
        control.push(3, 4, 99_i32.to_ne_bytes());
        let bytes = &control.bytes[..usize::from(control.len)];
        let found: Vec<_> = items(bytes).collect();
        assert_eq!(found, [(1, 2, &[7, 7, 7][..]), (3, 4, &99_i32.to_ne_bytes())]);
        assert_eq!(
            (int(found[1].2), small(found[1].2), small(&[9])),
            (Some(99), Some(99), Some(9))
        );
    }

    #[test]
    fn damaged_ancillary_data_ends_the_list() {
        let mut control = Control::EMPTY;
        control.push(1, 2, [7; 8]);
        for len in 0..24 {
            assert_eq!(items(&control.bytes[..len]).count(), 0);
        }
        control.bytes[0] = 3;
        assert_eq!(items(&control.bytes[..24]).count(), 0);
        control.bytes[..8].fill(0xff);
        assert_eq!(items(&control.bytes[..24]).count(), 0);
    }

    #[test]
    fn addresses_survive_the_way_there_and_back() {
        for text in ["192.0.2.1:4500", "[2001:db8::1]:4500", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let (bytes, len) = encode_address(address);
            assert_eq!(decode_address(&bytes[..usize::from(len)]), Some(address));
            assert!((0..8).all(|n| decode_address(&bytes[..n]).is_none()));
        }
    }
}
