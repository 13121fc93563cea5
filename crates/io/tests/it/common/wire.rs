//! Virtual cables for ports on interfaces, and a raw way to put any bytes on them.

use std::fs;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use convoy_io::link::{Asks, Board, Hop, Interface, Mac, Route, Table, Take, What};

use super::Namespace;

/// Link addresses of the two ends of a cable.
pub const NEAR: Mac = [2, 0, 0, 0, 0, 1];
pub const FAR: Mac = [2, 0, 0, 0, 0, 2];

/// Two namespaces and a cable between them, `near` in one and `far` in the other. Neither end has
/// IPv6 or any address, so that nothing is on the cable but what a test puts there.
pub fn cable(mtu: u32) -> Result<[Namespace; 2], String> {
    let ends = [Namespace::new()?, Namespace::new()?];
    plug(&ends[0], "near", &ends[1], "far", mtu);
    for (namespace, link) in ends.iter().zip(["near", "far"]) {
        namespace.run(move || silence(link));
        namespace.ip(&format!("link set {link} up"));
    }
    // Until then the kernel drops what is sent.
    for (namespace, link) in ends.iter().zip(["near", "far"]) {
        super::until(|| namespace.run(move || shown(link).contains("state UP")));
    }
    Ok(ends)
}

/// A cable whose ends have the two addresses.
pub fn plug(a: &Namespace, a_link: &str, b: &Namespace, b_link: &str, mtu: u32) {
    plug_with(a, a_link, b, b_link, mtu, 1);
}

/// As [`plug`], with so many queues at each end.
pub fn plug_with(a: &Namespace, a_link: &str, b: &Namespace, b_link: &str, mtu: u32, queues: u32) {
    let queues = format!("numrxqueues {queues} numtxqueues {queues}");
    a.ip(&format!(
        "link add {a_link} mtu {mtu} address {} {queues} type veth peer name {b_link} mtu {mtu} address {} {queues} \
         netns {}",
        text(NEAR),
        text(FAR),
        b.id()
    ));
}

fn silence(link: &str) {
    fs::write(format!("/proc/sys/net/ipv6/conf/{link}/disable_ipv6"), "1").unwrap();
}

fn text(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// A line of `ip` about an interface.
fn shown(name: &str) -> String {
    let shown = std::process::Command::new("ip").args(["-o", "link", "show", name]).output();
    String::from_utf8(shown.unwrap().stdout).unwrap()
}

/// The interface, as the namespace knows it.
pub fn interface(namespace: &Namespace, name: &'static str) -> Interface {
    let (index, mtu) = namespace.run(move || {
        let path = format!("{name}\0");
        // SAFETY: the name ends with a zero byte.
        let index = unsafe { libc::if_nametoindex(path.as_ptr().cast()) };
        let shown = shown(name);
        let mut words = shown.split_whitespace().skip_while(|word| *word != "mtu");
        (index, words.nth(1).unwrap().parse().unwrap())
    });
    assert_ne!(index, 0);
    Interface { name: name.to_owned(), index, mtu }
}

/// Everything is reached directly, at one link address, by packets of any length; what is not in
/// `known` is unknown.
pub fn all_at(own: Mac, mac: Mac, known: &[IpAddr]) -> Table {
    all_within(u32::MAX, own, mac, known)
}

/// The same by packets of up to `mtu` bytes.
pub fn all_within(mtu: u32, own: Mac, mac: Mac, known: &[IpAddr]) -> Table {
    let networks = ["0.0.0.0", "::"].map(|network| Route {
        network: network.parse().unwrap(),
        prefix_len: 0,
        hop: Hop::Direct,
    });
    let known: Vec<_> = known.iter().map(|address| (*address, mac)).collect();
    Table::new(own, mtu, &networks, &known)
}

pub fn board(table: Table) -> (Arc<Board>, Asks) {
    Board::new(table).unwrap()
}

/// All that would be forwarded.
pub fn forwarded(mac: Mac) -> Take {
    Take { mac, what: What::Forwarded { except: Vec::new() } }
}

/// ESP and AH to these addresses.
pub fn esp_to(mac: Mac, local: &[IpAddr]) -> Take {
    let what = What::Protected { local: local.to_vec(), esp: true, ah: true, udp_port: Some(4500) };
    Take { mac, what }
}

/// Puts whole frames on an interface, whatever they are.
#[derive(Debug)]
pub struct Injector(OwnedFd);

impl Injector {
    pub fn new(namespace: &Namespace, link: &'static str) -> Self {
        let index = interface(namespace, link).index;
        Self(namespace.run(move || {
            // SAFETY: makes a descriptor or fails.
            let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0) };
            assert!(fd >= 0);
            // SAFETY: the descriptor is fresh and owned by nobody else.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            let address = libc::sockaddr_ll {
                sll_family: libc::AF_PACKET as u16,
                sll_protocol: 0,
                sll_ifindex: index as i32,
                sll_hatype: 0,
                sll_pkttype: 0,
                sll_halen: 0,
                sll_addr: [0; 8],
            };
            let len = size_of::<libc::sockaddr_ll>() as u32;
            // SAFETY: the address lives through the call and has the length given.
            let bound = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) };
            assert_eq!(bound, 0);
            fd
        }))
    }

    /// False when the kernel refuses the frame.
    pub fn send(&self, frame: &[u8]) -> bool {
        // SAFETY: the kernel reads the frame, which lives through the call.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        sent == frame.len() as isize
    }
}

/// A frame from the far end to the near one.
pub fn frame(packet: &[u8]) -> Vec<u8> {
    let kind: [u8; 2] =
        if packet.first().is_some_and(|b| b >> 4 == 6) { [0x86, 0xdd] } else { [8, 0] };
    [&NEAR[..], &FAR, &kind, packet].concat()
}

/// True if lengths and checksums of a TCP or UDP packet without options are right.
pub fn is_right(packet: &[u8]) -> bool {
    let sum = |pieces: &[&[u8]]| {
        let all = pieces.concat();
        let words =
            all.chunks(2).map(|w| u32::from(w[0]) << 8 | w.get(1).map_or(0, |b| u32::from(*b)));
        let sum = words.fold(0_u32, |sum, word| ((sum + word) & 0xffff) + ((sum + word) >> 16));
        sum == 0xffff
    };
    let v6 = packet[0] >> 4 == 6;
    let (l4, protocol, addresses) =
        if v6 { (40, packet[6], &packet[8..40]) } else { (20, packet[9], &packet[12..20]) };
    let (at, more) = if v6 { (4, 40) } else { (2, 0) };
    let length = more + usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    let l4_len = ((packet.len() - l4) as u16).to_be_bytes();
    length == packet.len()
        && (v6 || sum(&[&packet[..20]]))
        && sum(&[addresses, &[0, protocol], &l4_len, &packet[l4..]])
}
