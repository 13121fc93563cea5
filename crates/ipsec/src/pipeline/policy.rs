//! Last stage inbound: the inner packet must be one its SA may carry (RFC 4301 section 5.2,
//! step 4).

use convoy_packet::Burst;

use super::bin::Bin;
use super::lookup::Lookup;
use super::packet::Packet;
use super::sa::InboundSa;
use super::slab::Slab;
use crate::drop_reason::DropReason;
use crate::snapshot::Snapshot;
use crate::spd::PolicyAction;

/// Gives the packets that inbound policy allows to `plain`, which must have room for them.
pub(super) fn run(
    snapshot: &Snapshot,
    sas: &Slab<InboundSa>,
    packets: &mut Vec<Packet>,
    lookup: &mut Lookup,
    plain: &mut Burst,
    bin: &mut Bin<'_>,
) {
    let decisions = lookup.burst(snapshot, packets);
    let (mut passed, mut total) = (0, 0);
    for (Packet { frame, slot, reqid, .. }, decision) in packets.drain(..).zip(decisions) {
        let action = decision.map(|decision| decision.action);
        let counters = sas.get(slot.0).map(|sa| &*sa.counters);
        if action != Some(PolicyAction::Protect { reqid }) {
            if let Some(counters) = counters {
                counters.dropped.add(1);
            }
            bin.drop(frame, DropReason::InnerPolicyMismatch);
            continue;
        }
        let bytes = frame.len() as u64;
        match plain.push(frame) {
            Ok(()) => {
                if let Some(counters) = counters {
                    counters.packets.add(1);
                    counters.bytes.add(bytes);
                }
                passed += 1;
                total += bytes;
            }
            Err(frame) => bin.drop(frame, DropReason::NoFrame),
        }
    }
    bin.counters.inbound_packets.add(passed);
    bin.counters.inbound_bytes.add(total);
}
