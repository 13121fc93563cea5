//! Last stage inbound: the inner packet must be one its SA may carry (RFC 4301 section 5.2,
//! step 4).

use convoy_packet::Burst;

use super::bin::Bin;
use super::decap::Inner;
use super::lookup::Lookup;
use super::sa::InboundSa;
use super::slab::Slab;
use crate::drop_reason::DropReason;
use crate::snapshot::Snapshot;
use crate::spd::PolicyAction;

/// Gives the packets that inbound policy allows to `plain`, which must have room for them.
pub(super) fn run(
    snapshot: &Snapshot,
    sas: &Slab<InboundSa>,
    input: &mut Vec<Inner>,
    lookup: &mut Lookup,
    plain: &mut Burst,
    bin: &mut Bin<'_>,
) {
    let flows = input.iter().map(|inner| inner.info.flow);
    let decisions = lookup.burst(snapshot, flows);

    let (mut packets, mut total) = (0, 0);
    for (inner, decision) in input.drain(..).zip(decisions) {
        let action = decision.map(|decision| decision.action);
        let counters = sas.get(inner.slot).map(|sa| &sa.spec.counters);
        if action != Some(PolicyAction::Protect { reqid: inner.reqid }) {
            if let Some(counters) = counters {
                counters.dropped.add(1);
            }
            bin.drop(inner.frame, DropReason::InnerPolicyMismatch);
            continue;
        }
        let bytes = inner.frame.len() as u64;
        match plain.push(inner.frame) {
            Ok(()) => {
                if let Some(counters) = counters {
                    counters.packets.add(1);
                    counters.bytes.add(bytes);
                }
                packets += 1;
                total += bytes;
            }
            Err(frame) => bin.drop(frame, DropReason::NoFrame),
        }
    }
    bin.counters.inbound_packets.add(packets);
    bin.counters.inbound_bytes.add(total);
}
