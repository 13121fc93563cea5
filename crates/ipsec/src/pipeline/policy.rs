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
use crate::spd::{Decision, PolicyAction, Spd, Tally};

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
    lookup.burst(snapshot, packets);
    let (mut passed, mut total) = (0, 0);
    let mut last: Option<(SaSlot, &InboundSa)> = None;
    let mut decisions = lookup.decisions().iter();
    for Packet { frame, slot, reqid, .. } in packets.drain(..) {
        let decision = decisions.next().copied().flatten();
        // Packets of one SA come in runs.
        if last.is_none_or(|(last, _)| last != slot) {
            last = sas.get(slot.0).map(|sa| (slot, sa));
        }
        // A fragment may have waited while its slot went to another SA.
        let sa = last.map(|(_, sa)| sa).filter(|sa| sa.reqid == reqid);
        let bytes = frame.len() as u64;
        let is_meant = match decision.map(|decision| decision.action) {
            Some(PolicyAction::Protect { reqid: wanted }) => {
                wanted == reqid || sa.is_some_and(|sa| sa.spec.serves(wanted))
            }
            _ => false,
        };
        if !is_meant {
            let spd = lookup.spd(frame.interface()).and_then(|spd| snapshot.spd_of(spd));
            note(now, spd, decision, frame.len());
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
fn note(now: Now, spd: Option<&Spd>, decision: Option<Decision>, len: usize) {
    if let Some(Decision { action: PolicyAction::Discard, id }) = decision {
        Tally::new(now.0).count(spd, id, len);
    }
}
