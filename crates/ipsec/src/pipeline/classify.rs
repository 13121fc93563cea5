//! Second stage outbound: which policy a packet falls under, and which SA that means.

use std::collections::VecDeque;

use convoy_packet::{Burst, Frame};
use convoy_wire::{FlowKey, PacketInfo};

use super::bin::Bin;
use super::handoff::HandOff;
use super::parse::Parsed;
use crate::drop_reason::DropReason;
use crate::sa::{SaSlot, WorkerId};
use crate::snapshot::Snapshot;
use crate::spd::{Direction, PolicyAction, PolicyId};

/// A packet and the SA that is to protect it.
#[derive(Debug)]
pub(super) struct Classified {
    pub(super) frame: Frame,
    pub(super) info: PacketInfo,
    pub(super) slot: SaSlot,
}

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

/// Where packets can go from here.
pub(super) struct Exits<'a> {
    pub(super) protect: &'a mut VecDeque<Classified>,
    pub(super) bypass: &'a mut Burst,
    pub(super) handoff: &'a mut HandOff,
}

/// Looks up all packets of `input` at once, then sends each on its way.
pub(super) fn run(
    snapshot: &Snapshot,
    me: WorkerId,
    input: &mut Vec<Parsed>,
    scratch: &mut Scratch,
    exits: &mut Exits<'_>,
    bin: &mut Bin<'_>,
) {
    scratch.keys.clear();
    scratch.keys.extend(input.iter().map(|parsed| parsed.info.flow));
    scratch.policies.clear();
    scratch.policies.resize(input.len(), None);
    snapshot.spd().lookup_burst(Direction::Outbound, &scratch.keys, &mut scratch.policies);

    for (Parsed { frame, info }, policy) in input.drain(..).zip(&scratch.policies) {
        let action = policy.and_then(|id| snapshot.spd().policy(id)).map(|policy| &policy.action);
        match action {
            None => bin.drop(frame, DropReason::NoPolicy),
            Some(PolicyAction::Discard) => bin.drop(frame, DropReason::PolicyDiscard),
            Some(PolicyAction::Bypass) => match exits.bypass.push(frame) {
                Ok(()) => bin.counters.bypassed.add(1),
                Err(frame) => bin.drop(frame, DropReason::NoFrame),
            },
            Some(PolicyAction::Protect { reqid }) => {
                let target = snapshot
                    .outbound_for(*reqid)
                    .and_then(|slot| Some((slot, snapshot.outbound(slot)?)));
                match target {
                    None => bin.drop(frame, DropReason::NoSa),
                    Some((slot, sa)) if sa.worker == me => {
                        exits.protect.push_back(Classified { frame, info, slot });
                    }
                    Some((_, sa)) => {
                        if let Err(frame) = exits.handoff.push(sa.worker, frame) {
                            bin.drop(frame, DropReason::RingFull);
                        }
                    }
                }
            }
        }
    }
}
