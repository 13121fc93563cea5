//! Packets of many kinds with a tag, and who hears them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, recvfrom, setsockopt, socket,
    sockopt,
};

use crate::world::{SIGN, Tun};

pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;
/// A protocol that nobody knows.
pub(crate) const UNKNOWN: u8 = 99;
const FRAGMENT: u8 = 44;
/// Bytes of what a fragment carries; each has a tag.
const PIECE: usize = 64;
const ETHERNET: usize = 14;
const IPV6_HEADER: usize = 40;

/// Properties of a packet that policies look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Selectors {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    pub(crate) protocol: u8,
    /// Of source and destination, or twice the number of an echo.
    pub(crate) ports: [u16; 2],
}

impl Selectors {
    pub(crate) fn port(&self) -> Option<u16> {
        [TCP, UDP].contains(&self.protocol).then_some(self.ports[1])
    }

    /// Of a packet as the kernel shows it.
    pub(crate) fn of(packet: &[u8]) -> Self {
        let (from, to, protocol, carried) = header(packet);
        let number = |at: usize| {
            let bytes = carried.and_then(|carried| carried.get(at..at + 2));
            bytes.map_or(0, |bytes| u16::from_be_bytes(bytes.try_into().unwrap()))
        };
        Self { from, to, protocol, ports: [number(0), number(2)] }
    }
}

/// Addresses, the protocol, and what it carries, unless this is a later fragment of it.
fn header(packet: &[u8]) -> (IpAddr, IpAddr, u8, Option<&[u8]>) {
    if packet[0] >> 4 == 4 {
        let address = |at: usize| IpAddr::from(<[u8; 4]>::try_from(&packet[at..at + 4]).unwrap());
        let offset = u16::from_be_bytes([packet[6], packet[7]]) & 0x1fff;
        let carried = packet.get(usize::from(packet[0] & 15) * 4..).filter(|_| offset == 0);
        return (address(12), address(16), packet[9], carried);
    }
    let address = |at: usize| IpAddr::from(<[u8; 16]>::try_from(&packet[at..at + 16]).unwrap());
    let (protocol, carried) = match packet[6] {
        FRAGMENT => {
            let offset = u16::from_be_bytes([packet[42], packet[43]]) >> 3;
            (packet[IPV6_HEADER], packet.get(IPV6_HEADER + 8..).filter(|_| offset == 0))
        }
        protocol => (protocol, packet.get(IPV6_HEADER..)),
    };
    (address(8), address(24), protocol, carried)
}

/// Packet that shows a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shows {
    /// The packet itself.
    Itself,
    /// The answer to an echo.
    Reply,
    /// An ICMP error that quotes it, or a redirect.
    Error,
}

fn shows(packet: &[u8]) -> Shows {
    let (_, _, protocol, carried) = header(packet);
    match (protocol, carried.and_then(|carried| carried.first())) {
        (ICMP, Some(0)) | (ICMPV6, Some(129)) => Shows::Reply,
        (ICMP, Some(3 | 4 | 5 | 11 | 12)) | (ICMPV6, Some(..=127 | 137)) => Shows::Error,
        _ => Shows::Itself,
    }
}

fn sum(words: impl Iterator<Item = u8>) -> u16 {
    let mut total = 0_u32;
    for (at, byte) in words.enumerate() {
        total += u32::from(byte) << if at % 2 == 0 { 8 } else { 0 };
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    !u16::try_from(total).unwrap()
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// The checksum of what a protocol of the transport layer carries.
fn checksum(it: &Selectors, carried: &[u8]) -> u16 {
    let length = u32::try_from(carried.len()).unwrap().to_be_bytes();
    let pseudo = match it.protocol {
        ICMP => Vec::new(),
        _ => [octets(it.from), octets(it.to), length.to_vec(), vec![0, 0, 0, it.protocol]].concat(),
    };
    sum(pseudo.into_iter().chain(carried.iter().copied()))
}

/// A payload of whole pieces, but for the header before it.
fn payload(tag: &[u8], header: usize, pieces: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in 0..pieces {
        bytes.extend([SIGN, tag].concat());
        bytes.resize((piece + 1) * PIECE - header, 0);
    }
    bytes
}

/// IP payload of its protocol, a tag in each piece.
fn carried(it: &Selectors, tag: &[u8], pieces: usize) -> Vec<u8> {
    let [from, to] = it.ports.map(u16::to_be_bytes);
    let (mut bytes, checksum_at): (Vec<u8>, _) = match it.protocol {
        UDP => {
            let length = u16::try_from(pieces * PIECE).unwrap().to_be_bytes();
            ([from, to, length, [0; 2]].concat(), 6)
        }
        // A SYN.
        TCP => {
            let rest = [0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0x20, 0, 0, 0, 0, 0];
            ([&from[..], &to, &rest].concat(), 16)
        }
        ICMP => (vec![8, 0, 0, 0, from[0], from[1], 0, 1], 2),
        ICMPV6 => (vec![128, 0, 0, 0, from[0], from[1], 0, 1], 2),
        _ => return payload(tag, 0, pieces),
    };
    bytes.extend(payload(tag, bytes.len(), pieces));
    let sum = checksum(it, &bytes).to_be_bytes();
    bytes[checksum_at..checksum_at + 2].copy_from_slice(&sum);
    bytes
}

/// An IP packet around something, or a fragment of one: its number, its offset, and whether more come.
fn ip(it: &Selectors, carried: &[u8], fragment: Option<(u16, usize, bool)>) -> Vec<u8> {
    let (number, offset, more) = fragment.unwrap_or_default();
    let eighths = u16::try_from(offset / 8).unwrap();
    if it.from.is_ipv4() {
        let total = u16::try_from(20 + carried.len()).unwrap().to_be_bytes();
        let flags = (eighths | u16::from(more) << 13).to_be_bytes();
        let mut bytes = vec![0x45, 0];
        bytes.extend([total, number.to_be_bytes(), flags].concat());
        bytes.extend([64, it.protocol, 0, 0]);
        bytes.extend([octets(it.from), octets(it.to)].concat());
        let sum = sum(bytes.iter().copied()).to_be_bytes();
        bytes[10..12].copy_from_slice(&sum);
        bytes.extend(carried);
        return bytes;
    }
    let extension = match fragment {
        Some(_) => {
            let flags = (eighths << 3 | u16::from(more)).to_be_bytes();
            [vec![it.protocol, 0], flags.to_vec(), vec![0, 0], number.to_be_bytes().to_vec()]
                .concat()
        }
        None => Vec::new(),
    };
    let next = if extension.is_empty() { it.protocol } else { FRAGMENT };
    let length = u16::try_from(extension.len() + carried.len()).unwrap().to_be_bytes();
    let start = vec![0x60, 0, 0, 0, length[0], length[1], next, 64];
    [start, octets(it.from), octets(it.to), extension, carried.to_vec()].concat()
}

/// A packet.
pub(crate) fn whole(it: &Selectors, tag: &[u8]) -> Vec<u8> {
    ip(it, &carried(it, tag, 1), None)
}

/// A packet in three fragments with a number.
pub(crate) fn fragments(it: &Selectors, tag: &[u8], number: u16) -> Vec<Vec<u8>> {
    let carried = carried(it, tag, 3);
    let pieces = carried.chunks(PIECE).enumerate();
    pieces.map(|(at, piece)| ip(it, piece, Some((number, at * PIECE, at < 2)))).collect()
}

/// An ICMP error, Destination Unreachable (of a host), about a packet.
pub(crate) fn error(from: IpAddr, about: &[u8]) -> Vec<u8> {
    let (to, ..) = header(about);
    let protocol = if from.is_ipv4() { ICMP } else { ICMPV6 };
    let it = Selectors { from, to, protocol, ports: [0; 2] };
    let kind = if from.is_ipv4() { [3, 1] } else { [1, 3] };
    let mut carried = [&kind[..], &[0; 6], about].concat();
    let sum = checksum(&it, &carried).to_be_bytes();
    carried[2..4].copy_from_slice(&sum);
    ip(&it, &carried, None)
}

/// Number of times that each tag was heard, by what showed it.
#[derive(Debug, Default)]
pub(crate) struct Heard(BTreeMap<(Vec<u8>, Shows), u64>);

impl Heard {
    fn note(&mut self, packet: &[u8]) {
        let shown = shows(packet);
        let mut rest = packet;
        while let Some(at) = rest.windows(SIGN.len()).position(|part| part == SIGN) {
            rest = &rest[at + SIGN.len()..];
            if let Some(tag) = rest.get(..8) {
                *self.0.entry((tag.to_vec(), shown)).or_default() += 1;
            }
        }
    }

    pub(crate) fn count(&self, tag: &[u8], shown: Shows) -> u64 {
        self.0.get(&(tag.to_vec(), shown)).copied().unwrap_or(0)
    }

    /// Takes what comes out of the TUN interface.
    pub(crate) fn drain(&mut self, tun: &mut Tun) {
        while let Some(packet) = tun.read() {
            self.note(&packet);
        }
    }
}

/// Hears every IP packet that others send to a namespace.
#[derive(Debug)]
pub(crate) struct Ears {
    heard: Arc<Mutex<Heard>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Ears {
    /// In the calling thread's namespace.
    pub(crate) fn start() -> Self {
        let all = SockProtocol::EthAll;
        let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::empty(), all).unwrap();
        setsockopt(&socket, sockopt::RcvBufForce, &(64 << 20)).unwrap();
        let wait = nix::sys::time::TimeVal::new(0, 20_000);
        setsockopt(&socket, sockopt::ReceiveTimeout, &wait).unwrap();
        let heard = Arc::<Mutex<Heard>>::default();
        let ended = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let (heard, ended) = (Arc::clone(&heard), Arc::clone(&ended));
            move || {
                let mut frame = vec![0; 70_000];
                while !ended.load(Ordering::Relaxed) {
                    let Ok((length, from)) = recvfrom::<LinkAddr>(socket.as_raw_fd(), &mut frame)
                    else {
                        continue;
                    };
                    let is_own =
                        from.is_none_or(|from| from.pkttype() == nix::libc::PACKET_OUTGOING);
                    let packet = frame[..length].get(ETHERNET..).unwrap_or_default();
                    let is_ip = matches!(&frame[12..14], [8, 0] | [0x86, 0xdd]);
                    if !is_own && is_ip && packet.len() >= 20 {
                        heard.lock().unwrap().note(packet);
                    }
                }
            }
        });
        Self { heard, ended, thread: Some(thread) }
    }

    pub(crate) fn count(&self, tag: &[u8], shown: Shows) -> u64 {
        self.heard.lock().unwrap().count(tag, shown)
    }

    /// True if a tag is heard before so much time is over.
    pub(crate) fn hears(&self, tag: &[u8], patience: Duration) -> bool {
        let begun = Instant::now();
        while self.count(tag, Shows::Itself) == 0 {
            if begun.elapsed() > patience {
                return false;
            }
            thread::sleep(Duration::from_micros(200));
        }
        true
    }

    /// Waits until a tag was heard so often.
    #[track_caller]
    pub(crate) fn wait(&self, tag: &[u8], shown: Shows, times: u64, what: impl Fn() -> String) {
        let begun = Instant::now();
        while self.count(tag, shown) < times {
            let is_late = begun.elapsed() > Duration::from_secs(20);
            assert!(
                !is_late,
                "does not get through ({} of {times}): {}",
                self.count(tag, shown),
                what()
            );
            thread::sleep(Duration::from_micros(200));
        }
    }
}

impl Drop for Ears {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
