//! Last stage inbound: the inner packet must be one its SA may carry (RFC 4301 section 5.2,
//! step 4).

use convoy_packet::Burst;
use convoy_wire::FlowKey;

use super::bin::Bin;
use super::decap::Inner;
use super::sa::InboundSa;
use crate::drop_reason::DropReason;
use crate::snapshot::Snapshot;
use crate::spd::{Direction, PolicyAction, PolicyId};

/// Room for one burst's look-ups.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    keys: Vec<FlowKey>,
    policies: Vec<Option<PolicyId>>,
}

impl Scratch {
    pub(super) fn with_capacity(n: usize) -> Self {
        Self { keys: Vec::with_capacity(n), policies: Vec::with_capacity(n) }
    }
}

/// Gives the packets that inbound policy allows to `plain`, which must have room for them.
pub(super) fn run(
    snapshot: &Snapshot,
    sas: &[Option<InboundSa>],
    input: &mut Vec<Inner>,
    scratch: &mut Scratch,
    plain: &mut Burst,
    bin: &mut Bin<'_>,
) {
    scratch.keys.clear();
    scratch.keys.extend(input.iter().map(|inner| inner.info.flow));
    scratch.policies.clear();
    scratch.policies.resize(input.len(), None);
    snapshot.spd().lookup_burst(Direction::Inbound, &scratch.keys, &mut scratch.policies);

    for (inner, policy) in input.drain(..).zip(&scratch.policies) {
        let action = policy.and_then(|id| snapshot.spd().policy(id)).map(|policy| policy.action);
        let counters =
            sas.get(inner.slot as usize).and_then(Option::as_ref).map(|sa| &sa.spec.counters);
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
                bin.counters.inbound_packets.add(1);
                bin.counters.inbound_bytes.add(bytes);
            }
            Err(frame) => bin.drop(frame, DropReason::NoFrame),
        }
    }
}
