//! Last stage inbound: the inner packet must be one its SA may carry (RFC 4301 section 5.2,
//! step 4).

use convoy_packet::Burst;

use super::bin::Bin;
use super::lookup::Lookup;
use super::packet::Packet;
use super::sa::InboundSa;
use super::slab::Slab;
use crate::drop_reason::DropReason;
use crate::sa::SaSlot;
use crate::snapshot::Snapshot;
use crate::spd::PolicyAction;

/// The slot of packets that are not allowed; no snapshot has so many.
const REFUSED: SaSlot = SaSlot(u32::MAX);

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
    for (packet, decision) in packets.iter_mut().zip(decisions) {
        let action = decision.map(|decision| decision.action);
        // A fragment may have waited while its slot went to another SA.
        let sa = sas.get(packet.slot.0).filter(|sa| sa.reqid == packet.reqid);
        let counters = sa.map(|sa| &*sa.counters);
        if action == Some(PolicyAction::Protect { reqid: packet.reqid }) {
            let bytes = packet.frame.len() as u64;
            if let Some(counters) = counters {
                counters.packets.add(1);
                counters.bytes.add(bytes);
            }
            passed += 1;
            total += bytes;
        } else {
            if let Some(counters) = counters {
                counters.dropped.add(1);
            }
            packet.slot = REFUSED;
        }
    }
    bin.counters.inbound_packets.add(passed);
    bin.counters.inbound_bytes.add(total);
    for Packet { frame, slot, .. } in packets.drain(..) {
        if slot == REFUSED {
            bin.drop(frame, DropReason::InnerPolicyMismatch);
        } else if let Err(frame) = plain.push(frame) {
            // Unreachable: there is room for all.
            bin.drop(frame, DropReason::NoFrame);
        }
    }
}
