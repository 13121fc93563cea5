//! Flow of a later fragment: that of its packet's first fragment.

use convoy_wire::{FragmentState, Ports, Protocol};

use super::PATIENCE_NS;
use super::held::Held;
use super::piece::Piece;
use super::sets::Sets;
use crate::clock::Now;
use crate::drop_reason::DropReason;
use crate::pipeline::bin::Bin;
use crate::pipeline::packet::Packet;

/// Packets whose flow is remembered: four times so many.
const SETS: usize = 64;

/// Values read from a packet's first fragment.
#[derive(Clone, Copy, Debug)]
struct Told {
    protocol: Protocol,
    ports: Ports,
    /// Offset behind these values in the fragmentable part: no later fragment may begin before.
    end: usize,
}

/// The flows of packets that came in fragments lately.
#[derive(Debug)]
pub(in super::super) struct Flows {
    told: Sets<Told>,
    held: Held,
    scratch: Vec<Packet>,
}

impl Flows {
    /// For bursts of up to `n` packets, with all memory there.
    pub(in super::super) fn with_capacity(n: usize) -> Self {
        Self { told: Sets::new(SETS), held: Held::new(), scratch: Vec::with_capacity(n) }
    }

    /// Fragments that wait for their first.
    pub(in super::super) fn held(&self) -> usize {
        self.held.len()
    }

    /// Completes the flows of all fragments in `packets`, in place. Those whose first fragment is
    /// still to come are held back; those that were held for one that came follow it, so `packets`
    /// may grow by [`Self::held`].
    #[inline]
    pub(in super::super) fn run(&mut self, now: Now, packets: &mut Vec<Packet>, bin: &mut Bin<'_>) {
        if packets.iter().any(|p| p.info.fragment != FragmentState::Whole) {
            self.run_fragments(now, packets, bin);
        }
    }

    #[cold]
    fn run_fragments(&mut self, now: Now, packets: &mut Vec<Packet>, bin: &mut Bin<'_>) {
        core::mem::swap(packets, &mut self.scratch);
        let mut scratch = core::mem::take(&mut self.scratch);
        for packet in scratch.drain(..) {
            match packet.info.fragment {
                FragmentState::Whole => packets.push(packet),
                FragmentState::First => self.first(now, packet, packets, bin),
                FragmentState::Later => self.later(now, packet, packets, bin),
            }
        }
        self.scratch = scratch;
    }

    fn first(&mut self, now: Now, packet: Packet, packets: &mut Vec<Packet>, bin: &mut Bin<'_>) {
        let Some(piece) = piece(&packet) else {
            return bin.drop(packet.frame, DropReason::BadFragment);
        };
        let info = &packet.info;
        let upper = usize::from(info.upper_offset).saturating_sub(piece.data_at);
        let told = Told {
            protocol: info.flow.protocol,
            ports: info.flow.ports,
            end: upper + told_len(info.flow.ports),
        };
        // A first fragment begins anew: the name may have come round again.
        self.told.insert(piece.name, now, told);
        packets.push(packet);
        while let Some(packet) = self.held.take(&piece.name) {
            release(told, packet, packets, bin);
        }
    }

    fn later(&mut self, now: Now, packet: Packet, packets: &mut Vec<Packet>, bin: &mut Bin<'_>) {
        let Some(piece) = piece(&packet) else {
            return bin.drop(packet.frame, DropReason::BadFragment);
        };
        if let Some(told) = self.told.find(&piece.name) {
            release(*told, packet, packets, bin);
        } else if let Some(packet) = self.held.push(piece.name, now, packet) {
            bin.drop(packet.frame, DropReason::FragmentsFull);
        }
    }

    /// Drops what has waited too long.
    pub(in super::super) fn expire(&mut self, now: Now, bin: &mut Bin<'_>) {
        let than = Now(now.0.saturating_sub(PATIENCE_NS));
        self.told.older(than).for_each(drop);
        while let Some(packet) = self.held.older(than) {
            bin.drop(packet.frame, DropReason::FragmentTimeout);
        }
    }

    /// Drops everything; for the end of a worker.
    pub(in super::super) fn release(&mut self, bin: &mut Bin<'_>) {
        self.told.drain().for_each(drop);
        while let Some(packet) = self.held.pop() {
            bin.drop(packet.frame, DropReason::FragmentTimeout);
        }
    }
}

/// The part of its packet that a fragment is. Peers must not complete each other's packets, nor those of
/// one interface another's: their scope is the SA's group and the interface.
fn piece(packet: &Packet) -> Option<Piece> {
    let scope = u64::from(packet.frame.interface().0) << 32 | u64::from(packet.reqid.0);
    Piece::of(packet.frame.data(), &packet.info, scope)
}

/// Bytes of the upper layer that give its ports, or type and code.
const fn told_len(ports: Ports) -> usize {
    match ports {
        Ports::Known { .. } => 4,
        Ports::Icmp { .. } => 2,
        Ports::Opaque => 0,
    }
}

/// Gives a later fragment its flow, unless it would write over what the first one told
/// (RFC 1858 section 4, RFC 5722).
fn release(told: Told, mut packet: Packet, packets: &mut Vec<Packet>, bin: &mut Bin<'_>) {
    if piece(&packet).is_none_or(|piece| piece.offset < told.end) {
        return bin.drop(packet.frame, DropReason::FragmentOverlap);
    }
    let flow = &mut packet.info.flow;
    flow.protocol = told.protocol;
    flow.ports = told.ports;
    packets.push(packet);
}
