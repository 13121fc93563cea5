//! The short way through IPv6 packets that are as most are.

use super::{FlowKey, FragmentState, PacketInfo, Ports};
use crate::{IpVersion, Protocol, Tos};

/// The header and the ports behind it, bytes.
const LEN: usize = 44;

/// As [`parse_plain`](super::parse_plain) over IPv6: TCP or UDP directly behind the fixed header. All
/// others, wrong ones included, are left to [`parse_packet`](super::parse_packet).
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // fields of a word
pub fn parse_plain_v6(bytes: &[u8]) -> Option<PacketInfo> {
    let head: &[u8; LEN] = bytes.first_chunk()?;
    let (first, rest) = head.split_first_chunk()?;
    let (src, rest) = rest.split_first_chunk()?;
    let (dst, rest) = rest.split_first_chunk()?;
    let ports = u32::from_be_bytes(*rest.first_chunk()?);
    let first = u64::from_be_bytes(*first);
    let protocol = Protocol((first >> 8) as u8);
    let total_len = u32::from((first >> 16) as u16).wrapping_add(40);
    let fits = (LEN..=bytes.len()).contains(&(total_len as usize));
    if first >> 60 != 6 || !fits || !(protocol == Protocol::TCP || protocol == Protocol::UDP) {
        return None;
    }
    Some(PacketInfo {
        flow: FlowKey {
            src: *src,
            dst: *dst,
            version: IpVersion::V6,
            protocol,
            ports: Ports::Known { src: (ports >> 16) as u16, dst: ports as u16 },
        },
        total_len,
        header_len: 40,
        upper_offset: 40,
        ttl: first as u8,
        tos: Tos((first >> 52) as u8),
        dont_fragment: true,
        fragment: FragmentState::Whole,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::vec::Vec;

    use super::super::{ParseOptions, parse_v6};
    use super::*;
    use crate::Ipv6Repr;

    const PAYLOAD: usize = 12;

    fn header(next_header: Protocol) -> Vec<u8> {
        let repr = Ipv6Repr {
            tos: Tos(0xb9),
            flow_label: 3,
            next_header,
            hop_limit: 60,
            src: "2001:db8::1".parse().unwrap(),
            dst: "2001:db8::2".parse().unwrap(),
            payload_len: PAYLOAD,
        };
        repr.to_bytes().unwrap().to_vec()
    }

    #[test]
    fn packets_as_most_are_need_no_other_way() {
        for protocol in [Protocol::TCP, Protocol::UDP] {
            let packet = [&header(protocol)[..], &[1; PAYLOAD]].concat();
            assert!(parse_plain_v6(&packet).is_some());
        }
        assert_eq!(parse_plain_v6(&[&header(Protocol::SCTP)[..], &[1; PAYLOAD]].concat()), None);
    }

    proptest! {
        #[test]
        fn the_short_way_says_nothing_else_than_the_long_one(
            payload in prop::collection::vec(any::<u8>(), PAYLOAD), tcp in any::<bool>(),
            damage in prop::collection::vec((0..LEN, any::<u8>()), 0..3), cut in 0..PAYLOAD * 2,
        ) {
            let mut packet = header(if tcp { Protocol::TCP } else { Protocol::UDP });
            packet.extend(&payload);
            for (at, byte) in damage {
                packet[at] = byte;
            }
            // Cut off, or with something behind.
            packet.resize(packet.len() + PAYLOAD - cut, 0);
            if let Some(short) = parse_plain_v6(&packet) {
                let mut long = PacketInfo::NONE;
                let parsed = parse_v6(&packet, &ParseOptions::default(), &mut long);
                prop_assert_eq!(parsed.map(|()| long), Ok(short));
            }
        }
    }
}
