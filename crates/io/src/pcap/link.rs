//! From captured frames to IP packets.

use pcap_parser::Linktype;

/// Shortest header of IPv4; that of IPv6 is longer.
const IPV4_HEADER: usize = 20;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
/// VLAN tags of IEEE 802.1Q and 802.1ad.
const VLAN_TAGS: [[u8; 2]; 2] = [[0x81, 0x00], [0x88, 0xa8]];

/// True if IP packets can be taken from captures of this type.
pub(super) fn is_known(link: Linktype) -> bool {
    matches!(
        link,
        Linktype::RAW
            | Linktype::IPV4
            | Linktype::IPV6
            | Linktype::ETHERNET
            | Linktype::NULL
            | Linktype::LOOP
            // What OpenBSD and some tools write for raw IP.
            | Linktype(12 | 14)
    )
}

/// The IP packet in a captured frame; `None` if it holds something else (ARP and the like).
pub(super) fn ip_packet(link: Linktype, frame: &[u8]) -> Option<&[u8]> {
    let packet = match link {
        Linktype::ETHERNET => behind_ethernet(frame.get(12..)?)?,
        // Four bytes of address family, in the byte order of the writer: the packet says itself.
        Linktype::NULL | Linktype::LOOP => frame.get(4..)?,
        _ => frame,
    };
    trim(packet)
}

fn behind_ethernet(mut rest: &[u8]) -> Option<&[u8]> {
    loop {
        let (kind, behind) = rest.split_first_chunk::<2>()?;
        match *kind {
            ETHERTYPE_IPV4 | ETHERTYPE_IPV6 => return Some(behind),
            tag if VLAN_TAGS.contains(&tag) => rest = behind.get(2..)?,
            _ => return None,
        }
    }
}

/// Cuts what the link appended (Ethernet pads to 60 bytes). A packet that claims to be longer than
/// what was captured, or shorter than its header, stays as it is: replaying damage is a use of captures, and hosts
/// that leave segmentation to an interface capture packets with a length of 0.
fn trim(packet: &[u8]) -> Option<&[u8]> {
    let claimed = match packet.first()? >> 4 {
        4 => usize::from(u16::from_be_bytes(*packet.get(2..)?.first_chunk()?)),
        6 => 40 + usize::from(u16::from_be_bytes(*packet.get(4..)?.first_chunk()?)),
        _ => return None,
    };
    Some(packet.get(..claimed).filter(|cut| cut.len() >= IPV4_HEADER).unwrap_or(packet))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet() -> Vec<u8> {
        let mut packet = vec![0; 24];
        packet[..4].copy_from_slice(&[0x45, 0, 0, 24]);
        packet
    }

    #[test]
    fn every_link_type_yields_the_same_packet() {
        let ip = packet();
        let mac = [2; 12];
        let ethernet = [&mac[..], &[8, 0], &ip, &[0; 22]].concat();
        let vlan = [&mac[..], &[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 8, 0], &ip].concat();
        let null = [&[2, 0, 0, 0], &ip[..]].concat();
        assert_eq!(ip_packet(Linktype::RAW, &ip), Some(&ip[..]));
        assert_eq!(ip_packet(Linktype::ETHERNET, &ethernet), Some(&ip[..]));
        assert_eq!(ip_packet(Linktype::ETHERNET, &vlan), Some(&ip[..]));
        assert_eq!(ip_packet(Linktype::NULL, &null), Some(&ip[..]));
    }

    #[test]
    fn a_packet_that_claims_less_than_its_header_stays_as_it_is() {
        for claimed in [0, 1, 19] {
            let mut ip = packet();
            ip[3] = claimed;
            assert_eq!(ip_packet(Linktype::RAW, &ip), Some(&ip[..]), "{claimed}");
        }
    }

    #[test]
    fn other_frames_yield_nothing() {
        let arp = [&[2; 12][..], &[8, 6], &[0; 28]].concat();
        assert_eq!(ip_packet(Linktype::ETHERNET, &arp), None);
        assert_eq!(ip_packet(Linktype::ETHERNET, &[0; 13]), None);
        assert_eq!(ip_packet(Linktype::RAW, &[]), None);
        assert_eq!(ip_packet(Linktype::RAW, &[0x45, 0]), None);
    }
}
