//! Putting outer packets together.

use arrayvec::ArrayVec;
use convoy_packet::Frame;
use convoy_wire::{Ecn, IpVersion, Ipv4Mut, Ipv6Mut, PacketInfo, ipv4};

use super::PATIENCE_NS;
use super::piece::Piece;
use super::sets::Sets;
use crate::clock::Now;
use crate::drop_reason::DropReason;
use crate::pipeline::bin::Bin;

/// Packets put together at a time: four times so many, each in a frame of its own.
const SETS: usize = 32;
/// Bytes kept free for the headers, which may come last. IPv4 needs 60.
const HEAD_MAX: usize = 128;
/// Stretches of data with gaps between them that one packet may have at a time.
const STRETCHES: usize = 16;

/// A packet of which parts are there.
#[derive(Debug)]
struct Packet {
    frame: Frame,
    /// Stretches of data that are there, in order and apart.
    there: ArrayVec<(usize, usize), STRETCHES>,
    /// Position behind the data, once the last fragment is there.
    end: Option<usize>,
    /// Bytes of header, once the first fragment is there.
    head: Option<usize>,
    /// Fragments in it.
    parts: u64,
    congested: bool,
    not_capable: bool,
}

/// Progress of the packet of a name.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "the table is allocated once, for growing packets")]
enum State {
    /// Parts are there.
    Growing(Packet),
    /// Parts contradicted each other: the rest is not wanted (RFC 8200 section 4.5).
    Refused,
}

/// Puts packets together that came in fragments.
#[derive(Debug)]
pub(in super::super) struct Reassembly {
    packets: Sets<State>,
}

impl Reassembly {
    pub(in super::super) fn new() -> Self {
        Self { packets: Sets::new(SETS) }
    }

    /// Takes a fragment; returns the whole packet when this was the last part that lacked.
    #[cold]
    pub(in super::super) fn take(
        &mut self,
        now: Now,
        frame: Frame,
        info: &PacketInfo,
        bin: &mut Bin<'_>,
    ) -> Option<Frame> {
        let Some(piece) = Piece::of(frame.data(), info, 0) else {
            bin.drop(frame, DropReason::BadFragment);
            return None;
        };
        if self.packets.find(&piece.name).is_none() {
            let Some(fresh) = Packet::new(bin) else {
                bin.drop(frame, DropReason::NoFrame);
                return None;
            };
            let gone = self.packets.insert(piece.name, now, State::Growing(fresh));
            give_up(gone, DropReason::FragmentsFull, bin);
        }
        let state = self.packets.find(&piece.name)?;
        let State::Growing(packet) = state else {
            bin.drop(frame, DropReason::FragmentOverlap);
            return None;
        };
        match packet.add(frame.data(), info, &piece) {
            Ok(Added::Known) => {
                bin.drop(frame, DropReason::FragmentDuplicate);
                None
            }
            Ok(Added::New) => {
                packet.parts += 1;
                bin.pool.free(frame);
                if !packet.is_whole() {
                    return None;
                }
                self.finish(&piece, bin)
            }
            Err(reason) => {
                let refused = core::mem::replace(state, State::Refused);
                give_up(Some(refused), reason, bin);
                bin.drop(frame, reason);
                None
            }
        }
    }

    fn finish(&mut self, piece: &Piece, bin: &mut Bin<'_>) -> Option<Frame> {
        let Some(State::Growing(mut packet)) = self.packets.remove(&piece.name) else {
            return None;
        };
        match packet.close() {
            Ok(()) => {
                bin.counters.fragments_joined.add(packet.parts.saturating_sub(1));
                Some(packet.frame)
            }
            Err(reason) => {
                give_up(Some(State::Growing(packet)), reason, bin);
                None
            }
        }
    }

    /// Drops what has waited too long.
    pub(in super::super) fn expire(&mut self, now: Now, bin: &mut Bin<'_>) {
        let than = Now(now.0.saturating_sub(PATIENCE_NS));
        for state in self.packets.older(than) {
            give_up(Some(state), DropReason::FragmentTimeout, bin);
        }
    }

    /// Drops everything; for the end of a worker.
    pub(in super::super) fn release(&mut self, bin: &mut Bin<'_>) {
        for state in self.packets.drain() {
            give_up(Some(state), DropReason::FragmentTimeout, bin);
        }
    }
}

/// Counts each part of a packet that will not be, and gives its frame back.
fn give_up(state: Option<State>, reason: DropReason, bin: &mut Bin<'_>) {
    if let Some(State::Growing(packet)) = state {
        bin.counters.drops.add(reason, packet.parts);
        bin.pool.free(packet.frame);
    }
}

enum Added {
    New,
    /// The same bytes were there before.
    Known,
}

impl Packet {
    fn new(bin: &mut Bin<'_>) -> Option<Self> {
        let mut frame = bin.pool.alloc()?;
        if frame.set_len(HEAD_MAX).is_err() {
            bin.pool.free(frame);
            return None;
        }
        Some(Self {
            frame,
            there: ArrayVec::new(),
            end: None,
            head: None,
            parts: 0,
            congested: false,
            not_capable: false,
        })
    }

    fn is_whole(&self) -> bool {
        let all = self.end.is_some_and(|end| *self.there == [(0, end)]);
        all && self.head.is_some()
    }

    /// Adds a fragment's data, and the header of a first one.
    fn add(&mut self, from: &[u8], info: &PacketInfo, piece: &Piece) -> Result<Added, DropReason> {
        let data = from.get(piece.data_at..piece.data_at + piece.len);
        let data = data.ok_or(DropReason::BadFragment)?;
        if piece.len == 0 {
            return Err(DropReason::BadFragment);
        }
        let (start, end) = (piece.offset, piece.end());
        if self.there.iter().any(|&(a, b)| a <= start && end <= b) {
            let same = self.data(start, end) == Some(data);
            return if same { Ok(Added::Known) } else { Err(DropReason::FragmentOverlap) };
        }
        if self.there.iter().any(|&(a, b)| start < b && a < end) {
            return Err(DropReason::FragmentOverlap);
        }
        self.bound(piece)?;
        self.mark(start, end)?;
        if self.frame.len() < HEAD_MAX + end {
            self.frame.set_len(HEAD_MAX + end).map_err(|_| DropReason::ReassemblyTooBig)?;
        }
        let room = self.frame.data_mut().get_mut(HEAD_MAX + start..HEAD_MAX + end);
        room.ok_or(DropReason::ReassemblyTooBig)?.copy_from_slice(data);
        if start == 0 {
            self.keep_head(from, piece)?;
        }
        self.congested |= info.tos.ecn() == Ecn::Ce;
        self.not_capable |= info.tos.ecn() == Ecn::NotEct;
        Ok(Added::New)
    }

    fn data(&self, start: usize, end: usize) -> Option<&[u8]> {
        self.frame.data().get(HEAD_MAX + start..HEAD_MAX + end)
    }

    /// The last fragment says where the packet ends, and nothing may lie behind.
    fn bound(&mut self, piece: &Piece) -> Result<(), DropReason> {
        let last = self.there.last().map_or(0, |&(_, end)| end);
        if piece.more {
            let beyond = self.end.is_some_and(|end| piece.end() >= end);
            return if beyond { Err(DropReason::FragmentOverlap) } else { Ok(()) };
        }
        if self.end.is_some() || last > piece.end() {
            return Err(DropReason::FragmentOverlap);
        }
        self.end = Some(piece.end());
        Ok(())
    }

    /// Adds a stretch that touches none, joined with those that it meets.
    fn mark(&mut self, mut start: usize, mut end: usize) -> Result<(), DropReason> {
        self.there.retain(|&mut (a, b)| {
            let meets = b == start || a == end;
            if meets {
                start = start.min(a);
                end = end.max(b);
            }
            !meets
        });
        let at = self.there.partition_point(|&(a, _)| a < start);
        self.there.try_insert(at, (start, end)).map_err(|_| DropReason::FragmentsFull)
    }

    /// Puts the header directly before the data.
    fn keep_head(&mut self, from: &[u8], piece: &Piece) -> Result<(), DropReason> {
        let head = from.get(..piece.head).ok_or(DropReason::BadFragment)?;
        let at = HEAD_MAX.checked_sub(head.len()).ok_or(DropReason::ExtensionHeaders)?;
        let room = self.frame.data_mut().get_mut(at..HEAD_MAX).ok_or(DropReason::NoFrame)?;
        room.copy_from_slice(head);
        if let Some(byte) = room.get_mut(piece.next_header_at) {
            *byte = piece.next_header.0;
        }
        self.head = Some(head.len());
        Ok(())
    }

    /// Makes the whole packet of its parts.
    fn close(&mut self) -> Result<(), DropReason> {
        let (Some(head), Some(end)) = (self.head, self.end) else {
            return Err(DropReason::BadFragment);
        };
        // RFC 3168 section 5.3: congestion met by one part was met by the packet, unless its
        // sender could not be told.
        if self.congested && self.not_capable {
            return Err(DropReason::EcnDrop);
        }
        self.frame.truncate(HEAD_MAX + end);
        self.frame.shrink_front(HEAD_MAX - head);
        let total = u16::try_from(self.frame.len()).map_err(|_| DropReason::ReassemblyTooBig)?;
        let packet = self.frame.data_mut();
        match packet.first().copied().and_then(IpVersion::of) {
            Some(IpVersion::V4) => {
                let mut header = Ipv4Mut::new(packet)?;
                header.set_whole();
                header.set_total_len(total);
                if self.congested {
                    header.set_ecn(Ecn::Ce);
                }
                // As right as the first fragment's was, which its port has looked at.
                ipv4::fill_checksum(packet)?;
            }
            Some(IpVersion::V6) => {
                let payload = total.checked_sub(40).ok_or(DropReason::BadFragment)?;
                let mut header = Ipv6Mut::new(packet)?;
                header.set_payload_len(payload);
                if self.congested {
                    header.set_ecn(Ecn::Ce);
                }
            }
            None => return Err(DropReason::IpVersion),
        }
        Ok(())
    }
}
