//! Last stage inbound: the inner packet must be one its SA may carry (RFC 4301 section 5.2,
//! step 4).

use convoy_packet::Burst;

use super::Now;
use super::bin::Bin;
use super::lookup::Lookup;
use super::packet::Packet;
use super::sa::InboundSa;
use super::slab::Slab;
use crate::drop_reason::DropReason;
use crate::sa::SaSlot;
use crate::snapshot::Snapshot;
use crate::spd::{Decision, PolicyAction, SpdId, Tally};

/// Gives the packets that inbound policy allows to `plain`, which must have room for them.
pub(super) fn run(
    now: Now,
    snapshot: &Snapshot,
    sas: &Slab<InboundSa>,
    packets: &mut Vec<Packet>,
    lookup: &mut Lookup,
    plain: &mut Burst,
    bin: &mut Bin<'_>,
) {
    let spd = lookup.spd;
    let decisions = lookup.burst(snapshot, packets);
    let (mut passed, mut total) = (0, 0);
    let mut last: Option<(SaSlot, &InboundSa)> = None;
    let mut decisions = decisions.iter();
    for Packet { frame, slot, reqid, .. } in packets.drain(..) {
        let decision = decisions.next().copied().flatten();
        // Packets of one SA come in runs.
        if last.is_none_or(|(last, _)| last != slot) {
            last = sas.get(slot.0).map(|sa| (slot, sa));
        }
        // A fragment may have waited while its slot went to another SA.
        let sa = last.map(|(_, sa)| sa).filter(|sa| sa.reqid == reqid);
        let bytes = frame.len() as u64;
        if decision.map(|decision| decision.action) != Some(PolicyAction::Protect { reqid }) {
            note(now, snapshot, spd, decision, frame.len());
            sa.inspect(|sa| sa.counters.dropped.add(1));
            bin.drop(frame, DropReason::InnerPolicyMismatch);
        } else if let Err(frame) = plain.push(frame) {
            // Unreachable: there is room for all.
            bin.drop(frame, DropReason::NoFrame);
        } else {
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
}

/// Counts for a policy that says what is done anyway.
#[cold]
fn note(now: Now, snapshot: &Snapshot, spd: SpdId, decision: Option<Decision>, len: usize) {
    if let Some(Decision { action: PolicyAction::Discard, id }) = decision {
        Tally::new(snapshot.spd_of(spd), now.0).count(id, len);
    }
}
