//! Path MTU news for ports that share theirs.
//!
//! Whom an ICMP message concerns the kernel looks up without the program that steers, by a hash over all
//! sockets of the group: news about ESP may go to the daemon, for some peers always. A raw socket hears
//! every ICMP message, so the first port of a group has one, and tells what is about ESP of this port.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use super::header::{UDP, UDP_LEN};
use crate::bytes::{be16, be32, byte};
use crate::socket::{SocketOptions, grow_buffers};
use crate::sys::set_words;
use crate::{IoError, NewsSource, PortEvent, Quote};

/// Time between two looks while receive calls come: nothing wakes a port for these.
const EVERY: Duration = Duration::from_millis(20);
/// Size of the queue in bytes.
const BUFFER: usize = 1 << 16;
/// As much of a message as is looked at: headers of 60 bytes each, ICMP, UDP, and what ESP begins with.
const MESSAGE: usize = 60 + 8 + 60 + UDP_LEN + 8;

const UNREACHABLE: u8 = 3;
const FRAGMENTATION_NEEDED: u8 = 4;
const TOO_BIG_V6: u8 = 2;
// linux/icmp.h, linux/icmpv6.h: which types a raw socket is not to get.
const ICMP_FILTER: libc::c_int = 1;
const ICMPV6_FILTER: libc::c_int = 1;

/// Hears what ICMP says about packets of a port.
#[derive(Debug)]
pub(super) struct Ear {
    /// A raw socket; std's type for its way to receive.
    socket: UdpSocket,
    local: SocketAddr,
    looked: Option<Instant>,
    listening: bool,
}

impl Ear {
    /// For the port at `local`.
    ///
    /// # Errors
    /// [`IoError::Setup`], without `CAP_NET_RAW` for one.
    pub(super) fn open(local: SocketAddr, options: &SocketOptions) -> Result<Self, IoError> {
        let step = "hear icmp messages about a shared port";
        let (domain, protocol) = if local.is_ipv4() {
            (Domain::IPV4, Protocol::ICMPV4)
        } else {
            (Domain::IPV6, Protocol::ICMPV6)
        };
        let socket =
            Socket::new(domain, Type::RAW, Some(protocol)).map_err(IoError::setup(step))?;
        let fd = socket.as_fd();
        // Set bits keep a type out.
        let filtered = if local.is_ipv4() {
            set_words(fd, libc::SOL_RAW, ICMP_FILTER, &[!(1 << UNREACHABLE)])
        } else {
            let mut types = [u32::MAX; 8];
            types[0] = !(1 << TOO_BIG_V6);
            set_words(fd, libc::SOL_ICMPV6, ICMPV6_FILTER, &types)
        };
        filtered
            .and_then(|()| socket.set_nonblocking(true))
            .and_then(|()| grow_buffers(fd, BUFFER))
            .and_then(|()| socket.bind_device(options.device.as_deref().map(str::as_bytes)))
            .map_err(IoError::setup(step))?;
        let socket = UdpSocket::from(OwnedFd::from(socket));
        Ok(Self { socket, local, looked: None, listening: false })
    }

    /// To be called once for each receive call.
    #[inline]
    pub(super) fn tick(&mut self) {
        if self.looked.is_none_or(|looked| looked.elapsed() >= EVERY) {
            self.looked = Some(Instant::now());
            self.listening = true;
        }
    }

    /// The next piece of news.
    pub(super) fn next(&mut self) -> Option<PortEvent> {
        let mut message = [0; MESSAGE];
        while self.listening {
            match self.socket.recv_from(&mut message) {
                Ok((len, sender)) => {
                    let message = message.get(..len).unwrap_or_default();
                    let said =
                        if self.local.is_ipv4() { read_v4(message) } else { read_v6(message) };
                    if let Some(event) = said.and_then(|said| said.about(self.local, sender.ip())) {
                        return Some(event);
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => self.listening = false,
            }
        }
        None
    }
}

/// A message about a packet that was too big, and that packet, from its UDP header on.
struct Said<'a> {
    mtu: u32,
    src: IpAddr,
    dst: IpAddr,
    udp: &'a [u8],
}

impl Said<'_> {
    /// The news, if it concerns ESP from `local`.
    fn about(&self, local: SocketAddr, router: IpAddr) -> Option<PortEvent> {
        let from_here = self.udp.len() >= UDP_LEN
            && be16(self.udp, 0) == local.port()
            && (local.ip().is_unspecified() || local.ip() == self.src);
        let payload = self.udp.get(UDP_LEN..).unwrap_or_default();
        let is_ike = payload.len() >= 4 && be32(payload, 0) == 0;
        (from_here && !is_ike).then(|| PortEvent::PathMtu {
            destination: self.dst,
            mtu: self.mtu,
            source: NewsSource::Icmp(Some(router)),
            quote: Quote::of(payload),
        })
    }
}

/// "Fragmentation needed" (RFC 792, RFC 1191) with its IP header.
fn read_v4(message: &[u8]) -> Option<Said<'_>> {
    let header = |ip: &[u8]| usize::from(byte(ip, 0) & 15) * 4;
    let icmp = message.get(header(message)..)?;
    let quoted = icmp.get(8..)?;
    let is_it = (byte(icmp, 0), byte(icmp, 1)) == (UNREACHABLE, FRAGMENTATION_NEEDED)
        && byte(quoted, 0) >> 4 == 4
        && byte(quoted, 9) == UDP
        // Later fragments have no UDP header.
        && be16(quoted, 6) & 0x1fff == 0;
    let address = |at: usize| quoted.get(at..)?.first_chunk::<4>().copied().map(Ipv4Addr::from);
    is_it.then_some(Said {
        mtu: u32::from(be16(icmp, 6)),
        src: address(12)?.into(),
        dst: address(16)?.into(),
        udp: quoted.get(header(quoted)..)?,
    })
}

/// "Packet too big" (RFC 4443 section 3.2).
fn read_v6(icmp: &[u8]) -> Option<Said<'_>> {
    let quoted = icmp.get(8..)?;
    let is_it = byte(icmp, 0) == TOO_BIG_V6 && byte(quoted, 0) >> 4 == 6 && byte(quoted, 6) == UDP;
    let address = |at: usize| quoted.get(at..)?.first_chunk::<16>().copied().map(Ipv6Addr::from);
    is_it.then_some(Said {
        mtu: be32(icmp, 4),
        src: address(8)?.into(),
        dst: address(24)?.into(),
        udp: quoted.get(40..)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ESP: [u8; 8] = [0, 0, 1, 0, 0, 0, 0, 9];

    fn udp(payload: &[u8]) -> Vec<u8> {
        [&4500_u16.to_be_bytes()[..], &[0x11, 0x94, 5, 0x50, 0, 0], payload].concat()
    }

    /// A message to 192.0.2.1 that quotes a packet of its to 198.51.100.7.
    fn v4(quoted: &[u8]) -> Vec<u8> {
        let outer = [&[0x46][..], &[0; 8], &[1], &[0; 14]].concat();
        let icmp = [3, 4, 0, 0, 0, 0, 5, 0x14];
        let mut inner = vec![0; 24];
        inner[0] = 0x46;
        inner[9] = UDP;
        inner[12..20].copy_from_slice(&[192, 0, 2, 1, 198, 51, 100, 7]);
        [&outer[..], &icmp, &inner, quoted].concat()
    }

    fn v6(quoted: &[u8]) -> Vec<u8> {
        let mut inner = vec![0; 40];
        inner[0] = 0x60;
        inner[6] = UDP;
        inner[8..10].copy_from_slice(&[0xfd, 1]);
        inner[24..26].copy_from_slice(&[0xfd, 2]);
        [&[2, 0, 0, 0, 0, 0, 5, 0][..], &inner, quoted].concat()
    }

    fn heard(message: &[u8], local: &str) -> Option<PortEvent> {
        let local: SocketAddr = local.parse().unwrap();
        let said = if local.is_ipv4() { read_v4(message) } else { read_v6(message) };
        said?.about(local, "203.0.113.1".parse().unwrap())
    }

    fn expected(destination: &str, mtu: u32, quote: Quote) -> Option<PortEvent> {
        let source = NewsSource::Icmp(Some("203.0.113.1".parse().unwrap()));
        Some(PortEvent::PathMtu { destination: destination.parse().unwrap(), mtu, source, quote })
    }

    #[test]
    fn esp_of_this_port_is_heard_and_nothing_else() {
        let quote = Quote::Esp { spi: 256, seq_low: 9 };
        let news = expected("198.51.100.7", 1300, quote);
        for local in ["0.0.0.0:4500", "192.0.2.1:4500"] {
            assert_eq!(heard(&v4(&udp(&ESP)), local), news);
        }
        let news = expected("fd02::", 1280, quote);
        for local in ["[::]:4500", "[fd01::]:4500"] {
            assert_eq!(heard(&v6(&udp(&ESP)), local), news);
        }
        for local in ["192.0.2.2:4500", "0.0.0.0:4501"] {
            assert_eq!(heard(&v4(&udp(&ESP)), local), None);
        }
        assert_eq!(heard(&v6(&udp(&ESP)), "[fd02::]:4500"), None);
        // IKE is the daemon's.
        assert_eq!(heard(&v4(&udp(&[0; 8])), "0.0.0.0:4500"), None);
        // A router that quotes no more than it must (RFC 792).
        let short = expected("198.51.100.7", 1300, Quote::TooShort);
        assert_eq!(heard(&v4(&udp(&[])), "0.0.0.0:4500"), short);
    }

    #[test]
    fn other_messages_and_protocols_fragments_and_cut_ones_are_ignored() {
        let whole = v4(&udp(&ESP));
        // Type, code, version of the quoted packet, its fragment offset, its protocol.
        for (at, value) in [(24, 11), (25, 3), (32, 0x65), (39, 1), (41, 6)] {
            let mut other = whole.clone();
            other[at] = value;
            assert_eq!(heard(&other, "0.0.0.0:4500"), None, "byte {at}");
        }
        assert!((0..64).all(|len| heard(&whole[..len], "0.0.0.0:4500").is_none()));
        let whole = v6(&udp(&ESP));
        for (at, value) in [(0, 1), (8, 0x40), (14, 44)] {
            let mut other = whole.clone();
            other[at] = value;
            assert_eq!(heard(&other, "[::]:4500"), None, "byte {at}");
        }
        assert!((0..56).all(|len| heard(&whole[..len], "[::]:4500").is_none()));
        assert_eq!(heard(&[0xff; 200], "0.0.0.0:4500"), None);
    }
}
