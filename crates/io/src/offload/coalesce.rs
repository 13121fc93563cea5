//! From packets to super-segments.
//!
//! The rules are those of the kernel's own receive offload (`tcp_gro_receive`, `inet_gro_receive`,
//! `udp_gro_receive`): what is merged here must come out the same if it is split again.

use arrayvec::ArrayVec;
use convoy_packet::{BURST_MAX, Frame};
use convoy_wire::checksum::{Sum, sum};

use super::vnet::{Gso, Vnet};
use super::{ACK, CWR, FIN, PSH, RST, SYN, TCP, TCP_CSUM, TCP_FLAGS, UDP, UDP_CSUM, URG};
use crate::bytes::{be16, be32, byte, part, put};

/// Flows that may grow at the same time; with more, the oldest is closed.
const OPEN_MAX: usize = 8;
/// Datagrams in one UDP super-segment (`UDP_MAX_SEGMENTS` of kernels before 6.9).
const UDP_SEGMENTS_MAX: u16 = 64;
/// Largest IP packet.
const TOTAL_MAX: usize = 65_535;
const NONE: u16 = u16::MAX;

/// One packet or super-segment to be written: a chain of frames of the burst.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    pub(crate) vnet: Vnet,
    /// Index of the first frame, which is written whole.
    head: u16,
    tail: u16,
    /// Frames in the chain.
    pub(crate) count: u16,
    /// Header bytes left out of all frames but the first.
    pub(crate) headers: u16,
    /// IP bytes of the super-segment.
    total: usize,
}

/// Arranges the frames of one burst into as few writes as the rules allow.
///
/// Packets of one flow stay in order; flows may overtake each other within the burst.
#[derive(Debug)]
pub(crate) struct Coalescer {
    tcp: bool,
    udp: bool,
    writes: Vec<Write>,
    next: Box<[u16; BURST_MAX]>,
    open: ArrayVec<Open, OPEN_MAX>,
}

/// A write that may still grow.
#[derive(Clone, Copy, Debug)]
struct Open {
    write: usize,
    head: usize,
    first: Segment,
    /// IP bytes so far.
    total: usize,
    count: u16,
    next_seq: u32,
    next_id: u16,
    /// The first packet's checksum was found right.
    verified: bool,
    /// Nothing may be added any more.
    complete: bool,
}

/// Header fields of one mergeable packet.
#[derive(Clone, Copy, Debug)]
struct Segment {
    v6: bool,
    tcp: bool,
    l4: usize,
    headers: usize,
    payload: usize,
    ports: u32,
    seq: u32,
    flags: u8,
}

/// Fitness of a packet for a super-segment.
enum Sort {
    /// No transport header to go by: it is nobody's successor.
    Foreign,
    /// Of a flow, but must stay alone: what the flow has open ends here.
    Alone(Segment),
    /// May begin or continue a super-segment.
    Mergeable(Segment),
}

impl Coalescer {
    pub(crate) fn new(tcp: bool, udp: bool) -> Self {
        Self {
            tcp,
            udp,
            writes: Vec::with_capacity(BURST_MAX),
            next: Box::new([NONE; BURST_MAX]),
            open: ArrayVec::new(),
        }
    }

    /// Plans the writes for `frames` (at most [`BURST_MAX`]) and changes the headers of the first
    /// packet of each super-segment accordingly.
    pub(crate) fn plan(&mut self, frames: &mut [Frame]) {
        self.writes.clear();
        self.open.clear();
        for at in 0..frames.len().min(BURST_MAX) {
            self.place(frames, at);
        }
        self.open.clear();
        for write in self.writes.iter_mut().filter(|w| w.count > 1) {
            let last_flags = {
                let tail = frames.get(usize::from(write.tail)).map_or(&[][..], |f| f.data());
                byte(tail, usize::from(write.vnet.csum_start) + TCP_FLAGS)
            };
            if let Some(head) = frames.get_mut(usize::from(write.head)) {
                write.finish(head.data_mut(), last_flags);
            }
        }
    }

    /// The writes, in order.
    pub(crate) fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// The indices of the frames of `write`, in order.
    pub(crate) fn chain(&self, write: &Write) -> impl Iterator<Item = usize> + '_ {
        let mut at = write.head;
        (0..write.count).map(move |_| {
            let this = usize::from(at);
            at = self.next.get(this).copied().unwrap_or(NONE);
            this
        })
    }

    fn place(&mut self, frames: &[Frame], at: usize) {
        let Some(data) = frames.get(at).map(Frame::data) else { return };
        match sort(data) {
            Sort::Foreign => {
                self.begin(at);
            }
            Sort::Alone(segment) => {
                self.close(frames, data, &segment);
                self.begin(at);
            }
            Sort::Mergeable(segment) => self.join_or_begin(frames, data, at, segment),
        }
    }

    fn join_or_begin(&mut self, frames: &[Frame], data: &[u8], at: usize, segment: Segment) {
        let wanted = if segment.tcp { self.tcp } else { self.udp };
        let found = self.open.iter().position(|open| open.is_flow_of(frames, data, &segment));
        if let Some(slot) = found {
            let grown =
                self.open.get_mut(slot).is_some_and(|open| open.grow(frames, data, &segment));
            if grown {
                self.append(slot, at);
                return;
            }
            self.open.remove(slot);
        }
        let write = self.begin(at);
        if wanted && segment.may_be_followed() {
            if self.open.is_full() {
                self.open.remove(0);
            }
            self.open.push(Open::new(write, at, segment, data));
        }
    }

    /// Starts a write with frame `at`.
    fn begin(&mut self, at: usize) -> usize {
        let at = at as u16;
        self.writes.push(Write {
            vnet: Vnet::PLAIN,
            head: at,
            tail: at,
            count: 1,
            headers: 0,
            total: 0,
        });
        self.writes.len() - 1
    }

    /// Adds frame `at` to the write of `slot`, which has grown already.
    fn append(&mut self, slot: usize, at: usize) {
        let Some(open) = self.open.get(slot) else { return };
        if let Some(write) = self.writes.get_mut(open.write) {
            if let Some(next) = self.next.get_mut(usize::from(write.tail)) {
                *next = at as u16;
            }
            write.tail = at as u16;
            write.count = open.count;
            write.headers = open.first.headers as u16;
            write.total = open.total;
            write.vnet = open.vnet();
        }
        if open.complete {
            self.open.remove(slot);
        }
    }

    fn close(&mut self, frames: &[Frame], data: &[u8], segment: &Segment) {
        self.open.retain(|open| !open.is_flow_of(frames, data, segment));
    }
}

impl Write {
    /// Turns the first packet's headers into those of the super-segment.
    fn finish(&self, head: &mut [u8], last_flags: u8) {
        let l4 = usize::from(self.vnet.csum_start);
        let tcp = self.vnet.gso != Gso::Udp;
        let total = self.total;
        let v6 = byte(head, 0) >> 4 == 6;
        if v6 {
            put(head, 4, ((total - 40) as u16).to_be_bytes());
        } else {
            put(head, 2, (total as u16).to_be_bytes());
            put(head, 10, [0, 0]);
            let check = sum(part(head, 0, 20));
            put(head, 10, check.finish().to_be_bytes());
        }
        let l4_len = (total - l4) as u16;
        let pseudo = pseudo(head, v6, tcp, l4_len).fold().to_be_bytes();
        if tcp {
            let flags = byte(head, l4 + TCP_FLAGS) | (last_flags & (FIN | PSH));
            put(head, l4 + TCP_FLAGS, [flags]);
            put(head, l4 + TCP_CSUM, pseudo);
        } else {
            put(head, l4 + 4, l4_len.to_be_bytes());
            put(head, l4 + UDP_CSUM, pseudo);
        }
    }
}

/// Sorts one packet. Only packets whose lengths agree, without IP options or extension headers and
/// not fragmented, can be merged.
fn sort(data: &[u8]) -> Sort {
    let first = byte(data, 0);
    let (v6, l4, protocol, total) = match first {
        // Flags and fragment offset must be nothing but "don't fragment".
        0x45 if be16(data, 6) & 0xbfff == 0 => {
            (false, 20, byte(data, 9), usize::from(be16(data, 2)))
        }
        _ if first >> 4 == 6 => (true, 40, byte(data, 6), 40 + usize::from(be16(data, 4))),
        _ => return Sort::Foreign,
    };
    if total != data.len() {
        return Sort::Foreign;
    }
    match protocol {
        TCP if total >= l4 + 20 => sort_tcp(data, v6, l4),
        UDP if total >= l4 + 8 => sort_udp(data, v6, l4),
        _ => Sort::Foreign,
    }
}

fn sort_tcp(data: &[u8], v6: bool, l4: usize) -> Sort {
    let headers = l4 + usize::from(byte(data, l4 + 12) >> 4) * 4;
    if headers < l4 + 20 || headers > data.len() {
        return Sort::Foreign;
    }
    let segment = Segment {
        v6,
        tcp: true,
        l4,
        headers,
        payload: data.len() - headers,
        ports: be32(data, l4),
        seq: be32(data, l4 + 4),
        flags: byte(data, l4 + TCP_FLAGS),
    };
    let plain = segment.flags & (ACK | SYN | RST | URG) == ACK;
    if plain && segment.payload > 0 { Sort::Mergeable(segment) } else { Sort::Alone(segment) }
}

fn sort_udp(data: &[u8], v6: bool, l4: usize) -> Sort {
    let segment = Segment {
        v6,
        tcp: false,
        l4,
        headers: l4 + 8,
        payload: data.len() - l4 - 8,
        ports: be32(data, l4),
        seq: 0,
        flags: 0,
    };
    let whole = usize::from(be16(data, l4 + 4)) == data.len() - l4;
    // A datagram without checksum cannot be told from a damaged one.
    let summed = be16(data, l4 + UDP_CSUM) != 0;
    if whole && summed && segment.payload > 0 {
        Sort::Mergeable(segment)
    } else {
        Sort::Alone(segment)
    }
}

impl Segment {
    /// True if anything may come behind this packet in a super-segment.
    fn may_be_followed(&self) -> bool {
        self.flags & (PSH | FIN) == 0
    }
}

impl Open {
    fn new(write: usize, head: usize, first: Segment, data: &[u8]) -> Self {
        Self {
            write,
            head,
            first,
            total: data.len(),
            count: 1,
            next_seq: first.seq.wrapping_add(first.payload as u32),
            next_id: be16(data, 4).wrapping_add(1),
            verified: false,
            complete: false,
        }
    }

    /// Same protocol, addresses and ports.
    fn is_flow_of(&self, frames: &[Frame], data: &[u8], segment: &Segment) -> bool {
        self.first.ports == segment.ports
            && self.first.v6 == segment.v6
            && self.first.tcp == segment.tcp
            && frames.get(self.head).is_some_and(|head| {
                let (from, to) = if segment.v6 { (8, 40) } else { (12, 20) };
                part(head.data(), from, to) == part(data, from, to)
            })
    }

    /// Takes a packet of this flow in, if the rules allow; otherwise the flow's run ends.
    fn grow(&mut self, frames: &[Frame], data: &[u8], segment: &Segment) -> bool {
        let Some(head) = frames.get(self.head).map(Frame::data) else { return false };
        let fits = segment.headers == self.first.headers
            && segment.payload <= self.first.payload
            && self.total + segment.payload <= TOTAL_MAX
            && (segment.tcp || self.count < UDP_SEGMENTS_MAX)
            && self.same_ip(head, data)
            && (!segment.tcp || self.continues(head, data, segment));
        if !fits {
            return false;
        }
        if !self.verified && !checksum_holds(head, &self.first) {
            return false;
        }
        self.verified = true;
        if !checksum_holds(data, segment) {
            return false;
        }
        self.total += segment.payload;
        self.count += 1;
        self.next_seq = self.next_seq.wrapping_add(segment.payload as u32);
        self.next_id = self.next_id.wrapping_add(1);
        // A short packet is the last one: the kernel splits into equal sizes but the last.
        self.complete = !segment.may_be_followed() || segment.payload < self.first.payload;
        true
    }

    /// Traffic class, flow label, hop limit, DF; and the identification counts on, unless DF makes
    /// it meaningless (RFC 6864 section 4.1).
    fn same_ip(&self, head: &[u8], data: &[u8]) -> bool {
        if self.first.v6 {
            return be32(head, 0) == be32(data, 0) && byte(head, 7) == byte(data, 7);
        }
        let atomic = be16(data, 6) & 0x4000 != 0;
        byte(head, 1) == byte(data, 1)
            && be16(head, 6) == be16(data, 6)
            && byte(head, 8) == byte(data, 8)
            && (atomic || be16(data, 4) == self.next_id)
    }

    /// The TCP segment follows directly, and nothing but sequence number and final flags differs.
    fn continues(&self, head: &[u8], data: &[u8], segment: &Segment) -> bool {
        let l4 = segment.l4;
        segment.seq == self.next_seq
            && (segment.flags ^ self.first.flags) & !(PSH | FIN | CWR) == 0
            && segment.flags & CWR == 0
            // Acknowledgement number; window; header length with reserved bits; options.
            && be32(head, l4 + 8) == be32(data, l4 + 8)
            && be16(head, l4 + 14) == be16(data, l4 + 14)
            && byte(head, l4 + 12) == byte(data, l4 + 12)
            && part(head, l4 + 20, segment.headers) == part(data, l4 + 20, segment.headers)
    }

    fn vnet(&self) -> Vnet {
        let first = &self.first;
        Vnet {
            needs_csum: true,
            gso: match (first.tcp, first.v6) {
                (true, false) => Gso::TcpV4,
                (true, true) => Gso::TcpV6,
                (false, _) => Gso::Udp,
            },
            ecn: first.flags & CWR != 0,
            hdr_len: first.headers as u16,
            gso_size: first.payload as u16,
            csum_start: first.l4 as u16,
            csum_offset: (if first.tcp { TCP_CSUM } else { UDP_CSUM }) as u16,
        }
    }
}

/// True if the transport checksum and IPv4's own are right: both are made anew for a super-segment,
/// which must not turn damage into something that looks intact.
fn checksum_holds(data: &[u8], segment: &Segment) -> bool {
    if !segment.v6 && !sum(part(data, 0, 20)).is_valid() {
        return false;
    }
    let l4 = data.get(segment.l4..).unwrap_or_default();
    let check = pseudo(data, segment.v6, segment.tcp, l4.len() as u16) + sum(l4);
    check.is_valid()
}

/// The sum of the pseudo-header (RFC 9293 section 3.1, RFC 8200 section 8.1).
fn pseudo(data: &[u8], v6: bool, tcp: bool, l4_len: u16) -> Sum {
    let addresses = if v6 { part(data, 8, 40) } else { part(data, 12, 20) };
    let protocol = u16::from(if tcp { TCP } else { UDP });
    sum(addresses) + Sum::word(protocol) + Sum::word(l4_len)
}
