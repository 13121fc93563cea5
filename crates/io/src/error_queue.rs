//! News from ICMP and the local kernel about packets sent earlier.

use core::net::IpAddr;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use crate::ancillary::{decode_address, items};
use crate::bytes::byte;
use crate::{NewsSource, PortEvent, Quote, sys};

const ICMP_UNREACHABLE: u8 = 3;
const ICMP_FRAG_NEEDED: u8 = 4;
const ICMPV6_TOO_BIG: u8 = 2;

/// Messages in [`SHORT`] from which on they are a flood: a path tells some each second.
const FLOOD: u32 = 256;
const SHORT: Duration = Duration::from_millis(100);
/// Time for which the kernel keeps messages of a flood from the socket.
const PAUSE: Duration = Duration::from_secs(1);

/// Reads a socket's error queue, but only after a sign that there is something in it.
///
/// Anybody can send ICMP messages that look like news, and each would wake the worker. Where they are a flood, the
/// kernel drops them for a second at a time, and they are looked at again behind it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ErrorQueue {
    signalled: bool,
    /// Offset of the SPI in what is quoted.
    spi_at: usize,
    /// Messages since `began`.
    count: u32,
    began: Option<Instant>,
    /// Time from which on the kernel keeps messages for the socket again, and the IP version of the socket.
    paused: Option<(Instant, Version)>,
}

/// IP version of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V4,
    V6,
}

impl Version {
    fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// Has the kernel keep messages for a socket, or drop them with those that are kept.
    fn keep_messages(self, fd: BorrowedFd<'_>, keeps: bool) -> io::Result<()> {
        let (level, name) = match self {
            Self::V4 => (libc::IPPROTO_IP, libc::IP_RECVERR),
            Self::V6 => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
        };
        sys::set_int(fd, level, name, keeps.into())
    }
}

impl ErrorQueue {
    /// For a socket whose protocol has SPI and sequence number `spi_at` bytes into its header.
    pub(crate) fn new(spi_at: usize) -> Self {
        Self { spi_at, ..Self::default() }
    }

    /// A call on the socket failed with `error`: news may be the reason.
    pub(crate) fn signal(&mut self, error: &io::Error) {
        self.signalled |= error.kind() != io::ErrorKind::WouldBlock;
    }

    /// The next piece of news. The quoted bytes begin with the header of ESP or AH unless the socket
    /// includes IP headers in what it sends.
    pub(crate) fn next(&mut self, fd: BorrowedFd<'_>) -> Option<PortEvent> {
        let mut data = [0; 64];
        let mut address = [0; sys::ADDRESS];
        let mut control = [0; sys::CONTROL_IN];
        self.go_on(fd);
        while self.signalled {
            match sys::recv_error(fd, &mut data, &mut address, &mut control) {
                Ok((len, control_len)) => {
                    let control = control.get(..control_len).unwrap_or_default();
                    let quoted = data.get(self.spi_at..len).unwrap_or_default();
                    let destination = decode_address(&address).map(|a| a.ip());
                    if let Some(destination) = destination {
                        self.count(fd, Version::of(destination));
                    }
                    if let Some(event) = destination.and_then(|d| interpret(d, control, quoted)) {
                        return Some(event);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.signalled = false,
            }
        }
        None
    }
}

impl ErrorQueue {
    /// Counts a message, and has the kernel drop more of them if they are a flood.
    fn count(&mut self, fd: BorrowedFd<'_>, version: Version) {
        self.count += 1;
        if self.count == 1 {
            self.began = Some(Instant::now());
        }
        if self.count < FLOOD {
            return;
        }
        self.count = 0;
        let is_flood = self.began.is_some_and(|began| began.elapsed() < SHORT);
        // Where the kernel refuses, they go on to be read.
        if is_flood && version.keep_messages(fd, false).is_ok() {
            self.paused = Some((Instant::now() + PAUSE, version));
        }
    }

    /// Has the kernel keep messages again when the pause is over.
    #[inline]
    fn go_on(&mut self, fd: BorrowedFd<'_>) {
        let Some((until, version)) = self.paused else { return };
        if Instant::now() >= until && version.keep_messages(fd, true).is_ok() {
            self.paused = None;
        }
    }
}

/// `struct sock_extended_err`: errno (4 bytes), origin, type, code, a free byte, info and data
/// (4 each), then the socket address of the router that sent the ICMP message.
fn interpret(destination: IpAddr, control: &[u8], quoted: &[u8]) -> Option<PortEvent> {
    let wanted = [(libc::IPPROTO_IP, libc::IP_RECVERR), (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)];
    let (_, _, error) =
        items(control).find(|(level, kind, _)| wanted.contains(&(*level, *kind)))?;
    let errno = i32::from_ne_bytes(*error.first_chunk()?);
    let (origin, kind, code) = (byte(error, 4), byte(error, 5), byte(error, 6));
    let info = u32::from_ne_bytes(*error.get(8..)?.first_chunk()?);
    let router = error.get(16..).and_then(decode_address).map(|a| a.ip());
    let (source, too_big) = match origin {
        libc::SO_EE_ORIGIN_LOCAL => (NewsSource::Local, errno == libc::EMSGSIZE),
        libc::SO_EE_ORIGIN_ICMP => {
            (NewsSource::Icmp(router), (kind, code) == (ICMP_UNREACHABLE, ICMP_FRAG_NEEDED))
        }
        libc::SO_EE_ORIGIN_ICMP6 => (NewsSource::Icmp(router), kind == ICMPV6_TOO_BIG),
        _ => return None,
    };
    let quote = if source == NewsSource::Local { Quote::TooShort } else { Quote::of(quoted) };
    Some(if too_big {
        PortEvent::PathMtu { destination, mtu: info, source, quote }
    } else {
        PortEvent::Unreachable { destination, icmp: (kind, code), source, quote }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ancillary::{Control, encode_address};

    fn control(level: i32, kind: i32, origin: u8, icmp: (u8, u8), info: u32) -> Control {
        let mut error = [0; 32];
        error[..4].copy_from_slice(&libc::EMSGSIZE.to_ne_bytes());
        error[4..7].copy_from_slice(&[origin, icmp.0, icmp.1]);
        error[8..12].copy_from_slice(&info.to_ne_bytes());
        let (router, _) = encode_address("192.0.2.9:0".parse().unwrap());
        error[16..32].copy_from_slice(&router[..16]);
        let mut control = Control::EMPTY;
        control.push(level, kind, error);
        control
    }

    #[test]
    fn fragmentation_needed_is_path_mtu_and_other_codes_are_not() {
        let destination: IpAddr = "198.51.100.1".parse().unwrap();
        let router = NewsSource::Icmp(Some("192.0.2.9".parse().unwrap()));
        let quote = Quote::Esp { spi: 1, seq_low: 2 };
        let quoted = [0, 0, 0, 1, 0, 0, 0, 2, 99];
        let interpret =
            |c: &Control| interpret(destination, &c.bytes[..usize::from(c.len)], &quoted);
        let too_big = control(libc::IPPROTO_IP, libc::IP_RECVERR, 2, (3, 4), 1280);
        assert_eq!(
            interpret(&too_big),
            Some(PortEvent::PathMtu { destination, mtu: 1280, source: router, quote })
        );
        let refused = control(libc::IPPROTO_IP, libc::IP_RECVERR, 2, (3, 2), 0);
        assert_eq!(
            interpret(&refused),
            Some(PortEvent::Unreachable { destination, icmp: (3, 2), source: router, quote })
        );
        let local = control(libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1, (0, 0), 1400);
        let (source, quote) = (NewsSource::Local, Quote::TooShort);
        assert_eq!(
            interpret(&local),
            Some(PortEvent::PathMtu { destination, mtu: 1400, source, quote })
        );
        assert_eq!(interpret(&control(libc::SOL_SOCKET, 1, 2, (3, 4), 0)), None);
    }
}
