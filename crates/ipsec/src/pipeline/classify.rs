//! Second stage outbound: which policy a packet falls under, and which SA that means.

use std::collections::VecDeque;

use convoy_packet::{Burst, Frame};
use convoy_wire::PacketInfo;

use super::Now;
use super::acquire::Acquire;
use super::bin::Bin;
use super::handoff::HandOff;
use super::lookup::Lookup;
use super::parse::Parsed;
use crate::drop_reason::DropReason;
use crate::sa::{SaSlot, WorkerId};
use crate::snapshot::{SaOwner, Snapshot};
use crate::spd::{Decision, PolicyAction};

/// A packet and the SA that is to protect it.
#[derive(Debug)]
pub(super) struct Classified {
    pub(super) frame: Frame,
    pub(super) info: PacketInfo,
    pub(super) slot: SaSlot,
}

/// Where packets can go from here.
pub(super) struct Exits<'a> {
    pub(super) protect: &'a mut VecDeque<Classified>,
    pub(super) bypass: &'a mut Burst,
    pub(super) handoff: &'a mut HandOff,
    pub(super) acquire: &'a mut Acquire,
}

/// When the packets came, and what time it is.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub(super) since: Now,
    pub(super) now: Now,
}

/// Looks up all packets of `input` at once, then sends each on its way.
pub(super) fn run(
    snapshot: &Snapshot,
    me: WorkerId,
    times: Times,
    input: &mut Vec<Parsed>,
    lookup: &mut Lookup,
    exits: &mut Exits<'_>,
    bin: &mut Bin<'_>,
) {
    let flows = input.iter().map(|parsed| parsed.info.flow);
    let decisions = lookup.burst(snapshot, flows);
    snapshot.prefetch_outbound(decisions.iter().filter_map(|decision| match decision {
        Some(Decision { action: PolicyAction::Protect { reqid }, .. }) => Some(*reqid),
        _ => None,
    }));

    for (Parsed { frame, info }, decision) in input.drain(..).zip(decisions) {
        match decision.map(|decision| decision.action) {
            None => bin.drop(frame, DropReason::NoPolicy),
            Some(PolicyAction::Discard) => bin.drop(frame, DropReason::PolicyDiscard),
            Some(PolicyAction::Bypass) => match exits.bypass.push(frame) {
                Ok(()) => bin.counters.bypassed.add(1),
                Err(frame) => bin.drop(frame, DropReason::NoFrame),
            },
            Some(PolicyAction::Protect { reqid }) => match snapshot.outbound_for(reqid) {
                None if snapshot.is_on_demand(reqid) => {
                    let Times { since, now } = times;
                    exits.acquire.hold(Parsed { frame, info }, reqid, since, now, bin);
                }
                None => bin.drop(frame, DropReason::NoSa),
                Some(SaOwner { slot, worker }) if worker == me => {
                    exits.protect.push_back(Classified { frame, info, slot });
                }
                Some(SaOwner { worker, .. }) => {
                    if let Err(frame) = exits.handoff.push(worker, frame) {
                        bin.drop(frame, DropReason::RingFull);
                    }
                }
            },
        }
    }
}
