//! From one super-segment to packets.

use convoy_packet::{Burst, Frame, NoRoom, Pool};
use convoy_wire::checksum::{Sum, sum};

use super::vnet::{Gso, Vnet};
use super::{CWR, FIN, PSH, TCP, TCP_CSUM, TCP_FLAGS, UDP, UDP_CSUM};
use crate::PortCounters;
use crate::bytes::{be16, be32, byte, part, put};

/// The super-segment contradicts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Reason that no more packets were made of a super-segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Poured {
    /// All are made.
    All,
    /// The burst is full.
    BurstFull,
    /// No frame is free.
    NoFrame,
}

/// Division of a super-segment. Made once, then asked for one packet after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split {
    v6: bool,
    tcp: bool,
    /// Offset of the transport header.
    l4: usize,
    /// Bytes of all headers.
    headers: usize,
    /// Payload bytes of each packet but the last.
    size: usize,
    /// Payload bytes in all.
    payload: usize,
    /// The constant part of every packet's pseudo-header: addresses and protocol.
    pseudo: Sum,
}

impl Split {
    /// Checks the super-segment `packet` (from the IP header on) against its `vnet` header.
    pub(crate) fn new(vnet: &Vnet, packet: &[u8]) -> Result<Self, Malformed> {
        let v6 = match byte(packet, 0) >> 4 {
            4 => false,
            6 => true,
            _ => return Err(Malformed),
        };
        let tcp = match vnet.gso {
            Gso::TcpV4 if !v6 => true,
            Gso::TcpV6 if v6 => true,
            Gso::Udp => false,
            _ => return Err(Malformed),
        };
        let ip_len = if v6 { 40 } else { usize::from(byte(packet, 0) & 15) * 4 };
        // With extension headers only the kernel's word tells where the transport header is.
        let l4 = if vnet.needs_csum { usize::from(vnet.csum_start) } else { ip_len };
        let l4_len = if tcp { usize::from(byte(packet, l4 + 12) >> 4) * 4 } else { 8 };
        let least = if tcp { 20 } else { 8 };
        let headers = l4 + l4_len;
        if ip_len < 20 || l4 < ip_len || l4_len < least || vnet.gso_size == 0 {
            return Err(Malformed);
        }
        let payload = packet.len().checked_sub(headers).ok_or(Malformed)?;
        let addresses = if v6 { part(packet, 8, 40) } else { part(packet, 12, 20) };
        let protocol = u16::from(if tcp { TCP } else { UDP });
        Ok(Self {
            v6,
            tcp,
            l4,
            headers,
            size: usize::from(vnet.gso_size),
            payload,
            pseudo: sum(addresses) + Sum::word(protocol),
        })
    }

    /// Makes packets of the super-segment `packet` from the `next` one on, as far as frames and the
    /// burst go.
    pub(crate) fn pour(
        &self,
        packet: &[u8],
        next: &mut usize,
        pool: &mut Pool,
        into: &mut Burst,
        counters: &mut PortCounters,
    ) -> Poured {
        let count = self.count();
        while *next < count {
            if into.is_full() {
                return Poured::BurstFull;
            }
            let Some(mut frame) = pool.alloc() else {
                counters.rx_no_frame += 1;
                return Poured::NoFrame;
            };
            if self.emit(packet, *next, &mut frame).is_ok() {
                let _ = into.push(frame);
            } else {
                counters.rx_truncated += 1;
                pool.free(frame);
            }
            *next += 1;
        }
        counters.rx_supers += 1;
        Poured::All
    }

    /// Number of packets; a super-segment without payload is one.
    pub(crate) fn count(&self) -> usize {
        self.payload.div_ceil(self.size).max(1)
    }

    /// Writes packet `index` of `packet`, the super-segment given to [`Self::new`].
    pub(crate) fn emit(&self, packet: &[u8], index: usize, out: &mut Frame) -> Result<(), NoRoom> {
        let start = index * self.size;
        let len = self.size.min(self.payload.saturating_sub(start));
        let last = start + len >= self.payload;
        let begin = self.headers + start;
        out.reset();
        let room = out.grow_back(self.headers + len)?;
        let (headers, payload) = room.split_at_mut_checked(self.headers).ok_or(NoRoom(len))?;
        copy(headers, part(packet, 0, self.headers));
        copy(payload, part(packet, begin, begin + len));
        let payload_sum = sum(payload);
        self.patch_ip(headers, index, len);
        let l4 = headers.get_mut(self.l4..).unwrap_or_default();
        let l4_len = (l4.len() + len) as u16;
        let at = if self.tcp { TCP_CSUM } else { UDP_CSUM };
        if self.tcp {
            patch_tcp(l4, start as u32, index == 0, last);
        } else {
            put(l4, 4, l4_len.to_be_bytes());
        }
        put(l4, at, [0, 0]);
        let check = self.pseudo + Sum::word(l4_len) + sum(l4) + payload_sum;
        put(l4, at, finished(check, self.tcp).to_be_bytes());
        Ok(())
    }

    fn patch_ip(&self, headers: &mut [u8], index: usize, len: usize) {
        let total = self.headers + len;
        if self.v6 {
            return put(headers, 4, (total.saturating_sub(40) as u16).to_be_bytes());
        }
        let id = be16(headers, 4).wrapping_add(index as u16);
        put(headers, 2, (total as u16).to_be_bytes());
        put(headers, 4, id.to_be_bytes());
        put(headers, 10, [0, 0]);
        let ip_len = usize::from(byte(headers, 0) & 15) * 4;
        let check = sum(part(headers, 0, ip_len));
        put(headers, 10, check.finish().to_be_bytes());
    }
}

/// Sequence number and flags of one segment. FIN and PSH belong to the last one, CWR to the first
/// (RFC 3168 section 6.1.2).
fn patch_tcp(tcp: &mut [u8], start: u32, first: bool, last: bool) {
    let seq = be32(tcp, 4).wrapping_add(start);
    put(tcp, 4, seq.to_be_bytes());
    let mut flags = byte(tcp, TCP_FLAGS);
    if !last {
        flags &= !(FIN | PSH);
    }
    if !first {
        flags &= !CWR;
    }
    put(tcp, TCP_FLAGS, [flags]);
}

/// Finishes the checksum of an ordinary packet whose kernel left it to the device.
pub(crate) fn finish_checksum(vnet: &Vnet, packet: &mut [u8]) -> Result<(), Malformed> {
    let start = usize::from(vnet.csum_start);
    let at = usize::from(vnet.csum_offset);
    let rest = packet.get_mut(start..).ok_or(Malformed)?;
    if at + 2 > rest.len() {
        return Err(Malformed);
    }
    // The field holds the pseudo-header's sum, so the sum over everything is what is needed.
    let check = sum(rest);
    put(rest, at, finished(check, at != UDP_CSUM).to_be_bytes());
    Ok(())
}

/// Finishes the transport checksum of a packet whose sender left it to the device, where nothing but
/// the packet itself tells: its checksum field then holds the pseudo-header's sum.
///
/// A finished checksum looks like that once in 65,536 packets. It is then made anew, which changes
/// nothing unless the packet was damaged.
pub(crate) fn finish_partial(packet: &mut [u8]) {
    let (l4, protocol, addresses, end) = match byte(packet, 0) >> 4 {
        // Of a fragment the kernel finishes the checksum before it cuts.
        4 if be16(packet, 6) & 0x3fff == 0 => {
            let header = usize::from(byte(packet, 0) & 15) * 4;
            (header, byte(packet, 9), part(packet, 12, 20), usize::from(be16(packet, 2)))
        }
        6 => (40, byte(packet, 6), part(packet, 8, 40), 40 + usize::from(be16(packet, 4))),
        _ => return,
    };
    let at = match protocol {
        TCP => TCP_CSUM,
        UDP => UDP_CSUM,
        _ => return,
    };
    let Some(l4_len) = end.checked_sub(l4).filter(|len| *len >= at + 2) else { return };
    let pseudo = sum(addresses) + Sum::word(protocol.into()) + Sum::word(l4_len as u16);
    if be16(packet, l4 + at) != pseudo.fold() {
        return;
    }
    let Some(segment) = packet.get_mut(l4..end) else { return };
    let check = sum(segment);
    put(segment, at, finished(check, protocol == TCP).to_be_bytes());
}

/// The checksum; UDP writes all ones for zero, which means "none" there (RFC 768).
fn finished(check: Sum, zero_is_fine: bool) -> u16 {
    if zero_is_fine { check.finish() } else { check.finish_udp() }
}

#[inline]
fn copy(to: &mut [u8], from: &[u8]) {
    if to.len() == from.len() {
        to.copy_from_slice(from);
    }
}
