//! Frames of an interface that a gateway takes.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arrayvec::ArrayVec;

use super::Mac;
use super::program::{Goto, Program, Test, Width};

const IPV4: u32 = 0x0800;
const IPV6: u32 = 0x86dd;
const ESP: u32 = 50;
const AH: u32 = 51;
const UDP: u32 = 17;
const FRAGMENT: u32 = 44;
/// Offsets in a frame, which begins with 14 bytes of Ethernet header.
const ETHER_TYPE: u32 = 12;
const IP: u32 = 14;
const V4_SRC: u32 = IP + 12;
const V4_DST: u32 = IP + 16;
const V6_SRC: u32 = IP + 8;
const V6_DST: u32 = IP + 24;
const V6_PAYLOAD: u32 = IP + 40;
/// More addresses than this are not looked for one by one.
const ADDRESSES_MAX: usize = 64;

/// The frames that a gateway takes from an interface; all others are left to the kernel. Only IP
/// packets in untagged frames to the interface's own address are ever taken, so ARP, and all that is
/// sent to several, stays the kernel's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take {
    /// The interface's own link address.
    pub mac: Mac,
    /// Packets that are taken.
    pub what: What,
}

/// Kinds of packets that are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Plain side: what this host would have to forward, that is, everything but packets to these
    /// addresses, link-local and multicast ones (and with them Neighbour Discovery), and packets from
    /// sources and over IPv4 to destinations that no router forwards (RFC 1812 section 5.3.7): these
    /// addresses, loopback, multicast and broadcast ones, over IPv6 the unspecified and link-local ones.
    /// The kernel drops those.
    Forwarded {
        /// The host's own addresses, at most 64 of each IP version.
        except: Vec<IpAddr>,
    },
    /// Wire side: protected packets to these addresses. IKE stays the kernel's, and with it all that
    /// has the non-ESP marker of RFC 3948 section 2.2.
    Protected {
        /// The host's addresses that SAs use, at most 64 of each IP version.
        local: Vec<IpAddr>,
        /// True if ESP (protocol 50) is taken.
        esp: bool,
        /// True if AH (protocol 51) is taken.
        ah: bool,
        /// The port of ESP in UDP, if it is taken. Packet sockets take fragments of UDP too, of which
        /// only the first tells a port; the kernel gets them as well. From XDP they would not reach
        /// it, and IKE may come in them, so there they are left.
        udp_port: Option<u16>,
    },
}

/// The kernel's view of a frame that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// The kernel goes on with it all the same.
    Copies,
    /// The kernel never sees it.
    Alone,
}

/// More addresses than a program can look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the interface has {0} addresses of one IP version: at most 64 are possible")]
pub struct TakeError(pub usize);

impl Take {
    /// The host's addresses, if the port takes what is for others.
    #[must_use]
    pub fn host_addresses(&self) -> Vec<IpAddr> {
        match &self.what {
            What::Forwarded { except } => except.clone(),
            What::Protected { .. } => Vec::new(),
        }
    }

    /// The program that tells these frames from others.
    pub(crate) fn program(&self, sight: Sight) -> Result<Program, TakeError> {
        let (v4, v6) = split(match &self.what {
            What::Forwarded { except } => except,
            What::Protected { local, .. } => local,
        });
        if let Some(many) = [v4.len(), v6.len()].into_iter().find(|n| *n > ADDRESSES_MAX) {
            return Err(TakeError(many));
        }
        let mut program = Program::default();
        let [a, b, c, d, e, f] = self.mac.map(u32::from);
        let (high, low) = (a << 24 | b << 16 | c << 8 | d, e << 8 | f);
        program.check(0, Width::Four, Test::Equal(high), Goto::Next, Goto::Leave);
        program.check(4, Width::Two, Test::Equal(low), Goto::Next, Goto::Leave);
        let is_v4 = program.label();
        program.check(ETHER_TYPE, Width::Two, Test::Equal(IPV4), Goto::Label(is_v4), Goto::Next);
        program.check(ETHER_TYPE, Width::Two, Test::Equal(IPV6), Goto::Next, Goto::Leave);
        match self.what {
            What::Forwarded { .. } => {
                forwarded_v6(&mut program, &v6);
                program.place(is_v4);
                forwarded_v4(&mut program, &v4);
            }
            What::Protected { esp, ah, udp_port, .. } => {
                let native: ArrayVec<_, 2> =
                    [(esp, ESP), (ah, AH)].into_iter().filter(|p| p.0).map(|p| p.1).collect();
                let udp = udp_port.map(|port| Udp { port, sight });
                protected_v6(&mut program, &v6, &native, udp);
                program.place(is_v4);
                protected_v4(&mut program, &v4, &native, udp);
            }
        }
        Ok(program)
    }
}

fn split(addresses: &[IpAddr]) -> (Vec<Ipv4Addr>, Vec<Ipv6Addr>) {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for address in addresses {
        match address {
            IpAddr::V4(address) => v4.push(*address),
            IpAddr::V6(address) => v6.push(*address),
        }
    }
    (v4, v6)
}

fn forwarded_v4(program: &mut Program, except: &[Ipv4Addr]) {
    for address in except {
        let own = Test::Equal(address.to_bits());
        program.check(V4_DST, Width::Four, own, Goto::Leave, Goto::Next);
        program.check(V4_SRC, Width::Four, own, Goto::Leave, Goto::Next);
    }
    for network in [0, 127] {
        program.check(V4_SRC, Width::One, Test::Equal(network), Goto::Leave, Goto::Next);
        program.check(V4_DST, Width::One, Test::Equal(network), Goto::Leave, Goto::Next);
    }
    // Multicast, reserved and broadcast addresses.
    program.check(V4_SRC, Width::One, Test::AtLeast(224), Goto::Leave, Goto::Next);
    program.check(V4_DST, Width::One, Test::AtLeast(224), Goto::Leave, Goto::Take);
}

fn forwarded_v6(program: &mut Program, except: &[Ipv6Addr]) {
    let link_local = Test::Equal(0xfe80);
    for at in [V6_DST, V6_SRC] {
        program.check(at, Width::One, Test::Equal(0xff), Goto::Leave, Goto::Next);
        program.check_masked(at, Width::Two, 0xffc0, link_local, Goto::Leave, Goto::Next);
        for address in except {
            is_v6(program, at, *address, Goto::Leave);
        }
    }
    for address in [Ipv6Addr::UNSPECIFIED, Ipv6Addr::LOCALHOST] {
        is_v6(program, V6_SRC, address, Goto::Leave);
    }
    program.go(Goto::Take);
}

/// Goes to `yes` if `address` stands at an offset of the frame, on otherwise.
fn is_v6(program: &mut Program, start: u32, address: Ipv6Addr, yes: Goto) {
    let other = program.label();
    let bits = address.to_bits();
    for word in 0..4_u32 {
        let value = (bits >> (96 - 32 * word)) as u32;
        let then = if word == 3 { yes } else { Goto::Next };
        let at = start + 4 * word;
        program.check(at, Width::Four, Test::Equal(value), then, Goto::Label(other));
    }
    program.place(other);
}

/// Rule for ESP in UDP.
#[derive(Clone, Copy)]
struct Udp {
    port: u16,
    sight: Sight,
}

fn protected_v4(program: &mut Program, local: &[Ipv4Addr], native: &[u32], udp: Option<Udp>) {
    if local.is_empty() {
        // The kernel wants no steps that are never made.
        return program.go(Goto::Leave);
    }
    let mine = program.label();
    for address in local {
        let own = Test::Equal(address.to_bits());
        program.check(V4_DST, Width::Four, own, Goto::Label(mine), Goto::Next);
    }
    program.go(Goto::Leave);
    program.place(mine);
    native_protocols(program, IP + 9, native);
    let Some(Udp { port, sight }) = udp else { return program.go(Goto::Leave) };
    program.check(IP + 9, Width::One, Test::Equal(UDP), Goto::Next, Goto::Leave);
    // With options the ports are elsewhere; the kernel may have such packets.
    program.check(IP, Width::One, Test::Equal(0x45), Goto::Next, Goto::Leave);
    let (mask, later) = match sight {
        // A fragment that does not begin its packet has no ports: all of them are looked at.
        Sight::Copies => (0x1fff, Goto::Take),
        // Who takes them from the kernel takes its IKE as well.
        Sight::Alone => (0x3fff, Goto::Leave),
    };
    program.check_masked(IP + 6, Width::Two, mask, Test::Equal(0), Goto::Next, later);
    esp_in_udp(program, IP + 20, port);
}

fn protected_v6(program: &mut Program, local: &[Ipv6Addr], native: &[u32], udp: Option<Udp>) {
    if local.is_empty() {
        return program.go(Goto::Leave);
    }
    let mine = program.label();
    for address in local {
        is_v6(program, V6_DST, *address, Goto::Label(mine));
    }
    program.go(Goto::Leave);
    program.place(mine);
    native_protocols(program, IP + 6, native);
    let not = program.label();
    program.check(IP + 6, Width::One, Test::Equal(FRAGMENT), Goto::Next, Goto::Label(not));
    native_protocols(program, V6_PAYLOAD, native);
    match udp {
        Some(Udp { port, sight: Sight::Copies }) => {
            program.check(V6_PAYLOAD, Width::One, Test::Equal(UDP), Goto::Next, Goto::Leave);
            let offset = V6_PAYLOAD + 2;
            program.check_masked(
                offset,
                Width::Two,
                0xfff8,
                Test::Equal(0),
                Goto::Next,
                Goto::Take,
            );
            esp_in_udp(program, V6_PAYLOAD + 8, port);
        }
        _ => program.go(Goto::Leave),
    }
    program.place(not);
    let Some(Udp { port, .. }) = udp else { return program.go(Goto::Leave) };
    program.check(IP + 6, Width::One, Test::Equal(UDP), Goto::Next, Goto::Leave);
    esp_in_udp(program, V6_PAYLOAD, port);
}

fn native_protocols(program: &mut Program, at: u32, protocols: &[u32]) {
    for protocol in protocols {
        program.check(at, Width::One, Test::Equal(*protocol), Goto::Take, Goto::Next);
    }
}

/// A datagram to `port` whose payload does not begin with the non-ESP marker.
fn esp_in_udp(program: &mut Program, udp: u32, port: u16) {
    let ours = Test::Equal(port.into());
    program.check(udp + 2, Width::Two, ours, Goto::Next, Goto::Leave);
    program.check(udp + 8, Width::Four, Test::Equal(0), Goto::Leave, Goto::Take);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAC: Mac = [2, 0, 0, 0, 0, 1];

    fn frame(mac: Mac, packet: &[u8]) -> Vec<u8> {
        let kind = if packet.first().is_some_and(|b| b >> 4 == 6) { IPV6 } else { IPV4 };
        [&mac[..], &[2, 0, 0, 0, 0, 9], &(kind as u16).to_be_bytes(), packet].concat()
    }

    fn v4(dst: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 9];
        packet.extend(dst);
        packet.extend(payload);
        packet
    }

    fn v6(dst: &str, next: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, next, 64];
        packet.extend([0x20; 16]);
        packet.extend(dst.parse::<Ipv6Addr>().unwrap().octets());
        packet.extend(payload);
        packet
    }

    fn plain() -> Take {
        let except = ["10.1.0.1", "2001:db8:1::1"].map(|a| a.parse().unwrap()).to_vec();
        Take { mac: MAC, what: What::Forwarded { except } }
    }

    fn wire(esp: bool, ah: bool, udp_port: Option<u16>) -> Take {
        let local = ["192.0.2.1", "192.0.2.7", "2001:db8::1"].map(|a| a.parse().unwrap()).to_vec();
        Take { mac: MAC, what: What::Protected { local, esp, ah, udp_port } }
    }

    fn takes(take: &Take, packet: &[u8]) -> bool {
        let [copies, alone] =
            [Sight::Copies, Sight::Alone].map(|sight| takes_with(take, sight, packet));
        assert_eq!(copies, alone);
        copies
    }

    fn takes_with(take: &Take, sight: Sight, packet: &[u8]) -> bool {
        take.program(sight).unwrap().takes(&frame(MAC, packet))
    }

    #[test]
    fn the_plain_side_takes_what_would_be_forwarded() {
        let plain = plain();
        assert!(takes(&plain, &v4([10, 2, 0, 2], 6, &[0; 20])));
        assert!(takes(&plain, &v6("2001:db8:2::2", 58, &[128, 0])));
        for own in [[10, 1, 0, 1], [0, 0, 0, 5], [127, 0, 0, 1], [224, 0, 0, 1], [255; 4]] {
            assert!(!takes(&plain, &v4(own, 6, &[0; 20])), "{own:?}");
        }
        for own in ["2001:db8:1::1", "fe80::1", "febf::1", "ff02::1"] {
            assert!(!takes(&plain, &v6(own, 6, &[0; 20])), "{own}");
        }
        assert!(takes(&plain, &v6("fec0::1", 6, &[0; 20])));
    }

    #[test]
    fn packets_whose_source_no_router_forwards_are_left() {
        let plain = plain();
        let from_v4 = |source: [u8; 4]| {
            let mut packet = v4([10, 2, 0, 2], 6, &[0; 20]);
            packet[12..16].copy_from_slice(&source);
            takes(&plain, &packet)
        };
        for source in [[10, 1, 0, 1], [0, 0, 0, 5], [127, 0, 0, 1], [224, 0, 0, 5], [255; 4]] {
            assert!(!from_v4(source), "{source:?}");
        }
        assert!([[1, 0, 0, 1], [126, 0, 0, 1], [223, 1, 1, 1]].into_iter().all(from_v4));
        let from_v6 = |source: &str| {
            let mut packet = v6("2001:db8:2::2", 6, &[0; 20]);
            packet[8..24].copy_from_slice(&source.parse::<Ipv6Addr>().unwrap().octets());
            takes(&plain, &packet)
        };
        for source in ["::", "::1", "ff02::1", "fe80::1", "2001:db8:1::1"] {
            assert!(!from_v6(source), "{source}");
        }
        assert!(["::2", "2001:db8:1::2", "fec0::1"].into_iter().all(from_v6));
    }

    #[test]
    fn frames_to_others_and_other_protocols_are_left() {
        let packet = v4([10, 2, 0, 2], 6, &[0; 20]);
        let program = plain().program(Sight::Alone).unwrap();
        assert!(program.takes(&frame(MAC, &packet)));
        for mac in [[0xff; 6], [2, 0, 0, 0, 0, 2], [3, 0, 0, 0, 0, 1]] {
            assert!(!program.takes(&frame(mac, &packet)), "{mac:?}");
        }
        for kind in [0x0806_u16, 0x8100, 0x88cc, 0x8864] {
            let mut other = frame(MAC, &packet);
            other[12..14].copy_from_slice(&kind.to_be_bytes());
            assert!(!program.takes(&other), "{kind:#x}");
        }
    }

    #[test]
    fn the_wire_side_takes_esp_to_its_own_addresses_and_leaves_ike() {
        let udp = |port: u16, payload: [u8; 4]| {
            [&[0x11, 0x94], &port.to_be_bytes()[..], &[0; 4], &payload].concat()
        };
        let (esp, ike) = (udp(4500, [0, 0, 1, 0]), udp(4500, [0; 4]));
        for (has_esp, has_ah, has_udp) in
            [(true, false, false), (false, true, false), (false, false, true), (true, true, true)]
        {
            let take = wire(has_esp, has_ah, has_udp.then_some(4500));
            for (protocol, has_native) in [(50, has_esp), (51, has_ah)] {
                assert_eq!(takes(&take, &v4([192, 0, 2, 7], protocol, &[0; 8])), has_native);
                assert_eq!(takes(&take, &v6("2001:db8::1", protocol, &[0; 8])), has_native);
                assert!(!takes(&take, &v4([192, 0, 2, 2], protocol, &[0; 8])));
                assert!(!takes(&take, &v6("2001:db8::2", protocol, &[0; 8])));
                let fragment = [&[protocol][..], &[0; 15]].concat();
                assert_eq!(takes(&take, &v6("2001:db8::1", 44, &fragment)), has_native);
            }
            assert_eq!(takes(&take, &v4([192, 0, 2, 1], 17, &esp)), has_udp);
            assert_eq!(takes(&take, &v6("2001:db8::1", 17, &esp)), has_udp);
            for other in [&ike, &udp(500, [1; 4]), &udp(4500, [1; 4])[..11].to_vec()] {
                assert!(!takes(&take, &v4([192, 0, 2, 1], 17, other)));
                assert!(!takes(&take, &v6("2001:db8::1", 17, other)));
            }
            assert!(!takes(&take, &v4([192, 0, 2, 1], 6, &esp)));
        }
    }

    #[test]
    fn fragments_of_esp_in_udp_are_taken_where_the_kernel_keeps_its_own() {
        let udp = |port: u16, payload: [u8; 4]| {
            [&[0x11, 0x94], &port.to_be_bytes()[..], &[0; 4], &payload].concat()
        };
        let cut_v4 = |field: u16, datagram: &[u8]| {
            let mut packet = v4([192, 0, 2, 1], 17, datagram);
            packet[6..8].copy_from_slice(&field.to_be_bytes());
            packet
        };
        let cut_v6 = |field: u16, datagram: &[u8]| {
            let header = [&[17, 0][..], &field.to_be_bytes(), &[0, 0, 0, 9]].concat();
            v6("2001:db8::1", 44, &[&header, datagram].concat())
        };
        let (esp, ike) = (udp(4500, [0, 0, 1, 0]), udp(4500, [0; 4]));
        let take = wire(false, false, Some(4500));
        let later = [9; 12];
        for (packet, wanted) in [
            (cut_v4(0x2000, &esp), true),
            (cut_v4(0x2001, &later), true),
            (cut_v4(0x0001, &later), true),
            (cut_v4(0x2000, &ike), false),
            (cut_v4(0x2000, &udp(53, [1; 4])), false),
            (cut_v6(0x0001, &esp), true),
            (cut_v6(0x0009, &later), true),
            (cut_v6(0x0008, &later), true),
            (cut_v6(0x0001, &ike), false),
            (cut_v6(0x0001, &udp(53, [1; 4])), false),
        ] {
            assert_eq!(takes_with(&take, Sight::Copies, &packet), wanted, "{packet:?}");
            assert!(!takes_with(&take, Sight::Alone, &packet), "{packet:?}");
            assert!(!takes(&wire(true, true, None), &packet), "{packet:?}");
        }
        let mut other = cut_v4(0x0001, &later);
        other[19] = 2;
        assert!(!takes_with(&take, Sight::Copies, &other));
        let mut tcp = cut_v4(0x0001, &later);
        tcp[9] = 6;
        assert!(!takes_with(&take, Sight::Copies, &tcp));
    }

    #[test]
    fn too_many_addresses_are_refused() {
        let except = (0..65_u8).map(|n| IpAddr::from([10, 0, 0, n])).collect();
        let take = Take { mac: MAC, what: What::Forwarded { except } };
        assert_eq!(take.program(Sight::Alone).unwrap_err(), TakeError(65));
    }

    proptest! {
        #[test]
        fn any_bytes_get_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            for (take, sight) in [
                (plain(), Sight::Alone),
                (wire(true, true, Some(4500)), Sight::Copies),
                (wire(true, true, Some(4500)), Sight::Alone),
            ] {
                let program = take.program(sight).unwrap();
                let _ = program.takes(&bytes);
                let mut ours = bytes.clone();
                ours.splice(..ours.len().min(6), MAC);
                let _ = program.takes(&ours);
            }
        }
    }
}
