//! ICMP errors by which a gateway answers who sent a packet into the device, sent by the host itself.
//!
//! Workers write them with the address that the packet was for, since the kernel takes none from an address of its own
//! out of a device (a "martian"), and reverse path filters find the way back. But a network that filters forged sources
//! drops them. From a raw socket the kernel chooses the address by the way to the sender, as for its own errors
//! (RFC 1812 section 4.3.2.4). Senders behind another router get theirs out of the device: who knows only the default
//! route to a sender may lead there in clear what a packet out of a tunnel said.

use core::net::{Ipv4Addr, SocketAddr};
use std::io;

use convoy_packet::{Frame, HEADROOM};
use socket2::{Domain, Protocol, Socket, Type};

/// The protocol of sockets to which headers are given, and that receive nothing (`IPPROTO_RAW`).
const WITH_HEADERS: i32 = 255;
/// Bytes of an IPv4 header without options, and of an ICMP header.
const HEADER: usize = 20;
const ICMP_HEADER: usize = 8;
/// An error is at most this long (RFC 1812 section 4.3.2.3).
const LONGEST: usize = 576;
const ICMP: u8 = 1;
/// Type and code of "fragmentation needed" and of "time to live exceeded in transit" (RFC 792).
const OURS: [[u8; 2]; 2] = [[3, 4], [11, 0]];
const SOURCE: core::ops::Range<usize> = 12..16;

/// A socket for them.
#[derive(Debug)]
pub(super) struct OwnErrors {
    socket: Socket,
}

impl OwnErrors {
    /// In the network namespace of the calling thread; all that is sent bears the mark.
    pub(super) fn open(mark: u32) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(WITH_HEADERS)))?;
        socket.set_nonblocking(true)?;
        socket.set_mark(mark)?;
        Ok(Self { socket })
    }

    /// Sends such an error to a sender on a network of the host's own; whether this is one, and the host did.
    pub(super) fn send(&self, packet: &[u8]) -> bool {
        let Some(to) = answered(packet) else { return false };
        let mut copy = [0; LONGEST];
        let Some(copy) = copy.get_mut(..packet.len()) else { return false };
        copy.copy_from_slice(packet);
        if let Some(source) = copy.get_mut(SOURCE) {
            // The kernel fills in its own, and the checksum of the header.
            source.fill(0);
        }
        let to = SocketAddr::new(to.into(), 0);
        self.socket.send_to_with_flags(copy, &to.into(), libc::MSG_DONTROUTE).is_ok()
    }
}

/// True if it is such an error, written by a worker: what came out of another packet begins elsewhere in its frame, and a
/// tunnel's peer has no say in what the host sends.
pub(super) fn is_one(frame: &Frame) -> bool {
    frame.headroom() == HEADROOM && answered(frame.data()).is_some()
}

/// To whom a packet is the answer that says that what he sent was too big, or too long under way, in the name of him
/// that it was for.
fn answered(packet: &[u8]) -> Option<Ipv4Addr> {
    let (header, rest) = packet.split_first_chunk::<HEADER>()?;
    if (header[0], header[9]) != (0x45, ICMP) {
        return None;
    }
    let (kind, quoted) = rest.split_at_checked(ICMP_HEADER)?;
    let quoted = quoted.first_chunk::<HEADER>()?;
    let ((from, to), (sender, receiver)) = (ends(header)?, ends(quoted)?);
    let is_ours = OURS.iter().any(|ours| kind.starts_with(ours));
    (is_ours && from == receiver && to == sender).then_some(to)
}

/// Source and destination.
fn ends(header: &[u8; HEADER]) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let (source, destination) = header.get(SOURCE.start..)?.split_first_chunk::<4>()?;
    Some(((*source).into(), (*destination.first_chunk::<4>()?).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(protocol: u8, from: u8, to: u8) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, protocol, 0, 0];
        packet.extend([10, 0, 0, from, 10, 0, 0, to]);
        packet
    }

    fn error(kind: [u8; 2], from: u8, quoted: (u8, u8)) -> Vec<u8> {
        let mut error = packet(1, from, 1);
        error.extend([kind[0], kind[1], 0, 0, 0, 0, 5, 0]);
        error.extend(packet(17, quoted.0, quoted.1));
        error.extend([0; 8]);
        error
    }

    #[test]
    fn only_errors_in_the_name_of_who_a_packet_was_for_are_the_gateways_own() {
        let sender = Some(Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(answered(&error([3, 4], 2, (1, 2))), sender);
        assert_eq!(answered(&error([11, 0], 2, (1, 2))), sender);
        for other in [
            // Port unreachable, an echo, a router's word, and of somebody else's packet.
            error([3, 3], 2, (1, 2)),
            error([8, 0], 2, (1, 2)),
            error([3, 4], 9, (1, 2)),
            error([3, 4], 2, (7, 2)),
            packet(17, 2, 1),
            Vec::new(),
        ] {
            assert_eq!(answered(&other), None, "{other:?}");
        }
        let whole = error([3, 4], 2, (1, 2));
        assert!((0..48).all(|len| answered(&whole[..len]).is_none()));
    }
}
