//! Last stage inbound: the inner packet must be one its SA may carry (RFC 4301 section 5.2,
//! step 4), and may have to go on into another tunnel.

use convoy_packet::Burst;
use convoy_wire::FlowKey;

use super::bin::Bin;
use super::lookup::Lookup;
use super::packet::Packet;
use super::sa::InboundSa;
use super::settled::Settled;
use super::slab::Slab;
use crate::clock::Now;
use crate::drop_reason::DropReason;
use crate::sa::{Mode, SaSlot};
use crate::snapshot::Snapshot;
use crate::spd::{Decision, Direction, PolicyAction, Spd, SpdId, Tally};

/// Data that the stage works with; there must be room for all packets on both ways.
pub(super) struct Stage<'a, 'b> {
    pub(super) now: Now,
    pub(super) snapshot: &'a Snapshot,
    /// The snapshots that packets may have met before.
    pub(super) met: &'a Settled,
    pub(super) sas: &'a Slab<InboundSa>,
    pub(super) plain: &'a mut Burst,
    /// Into another tunnel.
    pub(super) transit: &'a mut Burst,
    pub(super) bin: &'a mut Bin<'b>,
}

/// Gives the packets that inbound policy allows to the plain side, and those that outbound policies keep from
/// there on into other tunnels.
pub(super) fn run(stage: &mut Stage<'_, '_>, packets: &mut Vec<Packet>, lookup: &mut Lookup) {
    lookup.burst(stage.snapshot, packets);
    // Mostly none does, and then none is asked.
    match lookup.transit() {
        transit if transit.is_empty() => pass(stage, packets, lookup, |_| false),
        transit => pass(stage, packets, lookup, |at| transit.has(at)),
    }
}

#[inline(always)]
fn pass(
    stage: &mut Stage<'_, '_>,
    packets: &mut Vec<Packet>,
    lookup: &Lookup,
    is_in_transit: impl Fn(usize) -> bool,
) {
    let Stage { now, snapshot, met, sas, plain, transit, bin } = stage;
    let (mut passed, mut total) = (0, 0);
    let mut in_transit = (0, 0);
    let mut last: Option<(SaSlot, &InboundSa)> = None;
    let mut decisions = lookup.decisions().iter();
    for (at, Packet { frame, slot, reqid, info }) in packets.drain(..).enumerate() {
        let decision = decisions.next().copied().flatten();
        // Packets of one SA come in runs.
        if last.is_none_or(|(last, _)| last != slot) {
            last = sas.get(slot.0).map(|sa| (slot, sa));
        }
        // A fragment may have waited while its slot went to another SA.
        let sa = last.map(|(_, sa)| sa).filter(|sa| sa.reqid == reqid);
        let bytes = frame.len() as u64;
        let serves = |decision: Option<Decision>| match decision.map(|decision| decision.action) {
            Some(PolicyAction::Protect { reqid: wanted }) => {
                wanted == reqid || sa.is_some_and(|sa| sa.spec.serves(wanted))
            }
            _ => false,
        };
        let is_meant =
            serves(decision) || was_meant(met, lookup.spd(frame.interface()), &info.flow, serves);
        if !is_meant {
            let spd = lookup.spd(frame.interface()).and_then(|spd| snapshot.spd_of(spd));
            note(*now, spd, decision, frame.len());
            sa.inspect(|sa| sa.counters.dropped.add(1));
            bin.drop(frame, DropReason::InnerPolicyMismatch);
            continue;
        }
        // What was between two hosts has arrived.
        let is_transit = is_in_transit(at) && sa.is_none_or(|sa| sa.mode == Mode::Tunnel);
        let way = if is_transit { &mut **transit } else { &mut **plain };
        if let Err(frame) = way.push(frame) {
            // Unreachable: there is room for all.
            bin.drop(frame, DropReason::NoFrame);
        } else {
            if is_transit {
                in_transit = (in_transit.0 + 1, in_transit.1 + bytes);
            }
            if let Some(sa) = sa {
                sa.counters.packets.add(1);
                sa.counters.bytes.add(bytes);
            }
            passed += 1;
            total += bytes;
        }
    }
    bin.counters.inbound_packets.add(passed);
    bin.counters.inbound_bytes.add(total);
    if in_transit.0 > 0 {
        bin.counters.transit_packets.add(in_transit.0);
        bin.counters.transit_bytes.add(in_transit.1);
    }
}

/// True if a snapshot that packets under way have met lets one pass.
#[cold]
fn was_meant(
    met: &Settled,
    spd: Option<SpdId>,
    flow: &FlowKey,
    serves: impl Fn(Option<Decision>) -> bool,
) -> bool {
    let decision = |snapshot: &Snapshot| {
        spd.and_then(|spd| snapshot.spd_of(spd))
            .and_then(|spd| spd.lookup(Direction::Inbound, flow))
    };
    met.earlier().any(|snapshot| serves(decision(snapshot)))
}

/// Counts for a policy that says what is done anyway.
#[cold]
fn note(now: Now, spd: Option<&Spd>, decision: Option<Decision>, len: usize) {
    if let Some(Decision { action: PolicyAction::Discard, id }) = decision {
        Tally::new(now.0).count(spd, id, len);
    }
}
