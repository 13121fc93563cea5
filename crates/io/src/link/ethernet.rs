//! Ethernet headers: taken off what is received, put in front of what is sent.
//!
//! ```text
//!  0..6          6..12      12..14
//!  destination   source     EtherType
//! ```

use convoy_packet::Frame;
use convoy_wire::checksum::sum;

use super::Mac;
use crate::bytes::{be16, byte, part};

/// Bytes of the header.
pub(crate) const HEADER: usize = 14;
/// Bytes of an IPv4 header without options.
const IPV4_LEAST: usize = 20;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// Payload of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// An IP packet, behind [`HEADER`] bytes.
    Ip,
    /// An IPv4 packet whose header checksum is wrong. On its way to a host's sockets the kernel
    /// looks at it; here no other program does.
    BadChecksum,
    /// Something else: another protocol, or a VLAN tag.
    Foreign,
    /// Too short, or the EtherType and the packet's first byte name different IP versions.
    Malformed,
}

/// Looks at a received frame.
#[inline]
pub(crate) fn content(frame: &[u8]) -> Content {
    if frame.len() <= HEADER {
        return Content::Malformed;
    }
    match (be16(frame, 12), byte(frame, HEADER) >> 4) {
        (IPV4, 4) if !is_intact(frame) => Content::BadChecksum,
        (IPV4, 4) | (IPV6, 6) => Content::Ip,
        (IPV4 | IPV6, _) => Content::Malformed,
        _ => Content::Foreign,
    }
}

/// True if an IPv4 header's checksum is right. What is no header at all the pipeline finds out.
#[inline]
fn is_intact(frame: &[u8]) -> bool {
    let end = HEADER + usize::from(byte(frame, HEADER) & 15) * 4;
    let header = part(frame, HEADER, end);
    header.len() < IPV4_LEAST || sum(header).is_valid()
}

/// The header of a frame from `src` to `dst` with an IP packet that begins with byte `first`.
#[inline]
pub(crate) fn header(dst: Mac, src: Mac, first: u8) -> [u8; HEADER] {
    let kind = if first >> 4 == 6 { IPV6 } else { IPV4 }.to_be_bytes();
    let ([a, b, c, d, e, f], [g, h, i, j, k, l]) = (dst, src);
    [a, b, c, d, e, f, g, h, i, j, k, l, kind[0], kind[1]]
}

/// Puts a header in front of an IP packet; false if there is no room.
#[inline]
pub(crate) fn put_on(frame: &mut Frame, to: Mac, own: Mac) -> bool {
    let header = header(to, own, byte(frame.data(), 0));
    match frame.grow_front(HEADER) {
        Ok(room) if room.len() == header.len() => {
            room.copy_from_slice(&header);
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_what_its_type_and_first_byte_say() {
        let frame = |first| [&header([1; 6], [2; 6], first)[..], &[first]].concat();
        assert_eq!(content(&frame(0x45)), Content::Ip);
        assert_eq!(content(&frame(0x60)), Content::Ip);
        assert_eq!(frame(0x60)[12..14], [0x86, 0xdd]);
        let mut other = frame(0x45);
        other[14] = 0x60;
        assert_eq!(content(&other), Content::Malformed);
        other[12..14].copy_from_slice(&[0x81, 0]);
        assert_eq!(content(&other), Content::Foreign);
        let packet = [0x45, 0, 0, 20, 0, 1, 0, 0, 64, 59, 0x66, 0xac, 10, 0, 0, 1, 10, 0, 0, 2];
        let with_options =
            [&[0x46][..], &packet[1..10], &[0x63, 0xab], &packet[12..], &[1, 1, 1, 0]];
        for packet in [packet.to_vec(), with_options.concat()] {
            let frame = [&frame(packet[0])[..14], &packet].concat();
            assert_eq!(content(&frame), Content::Ip);
            for bit in 8..packet.len() * 8 {
                let mut other = frame.clone();
                other[14 + bit / 8] ^= 0x80 >> (bit % 8);
                assert_eq!(content(&other), Content::BadChecksum, "{bit}");
            }
        }
        assert!((0..=14).all(|len| content(&frame(0x45)[..len]) == Content::Malformed));
    }
}
