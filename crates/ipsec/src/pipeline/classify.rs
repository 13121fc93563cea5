//! Second stage outbound: which policy a packet falls under, and which SA that means.

use std::net::IpAddr;

use convoy_packet::{Burst, InterfaceId};
use convoy_wire::FlowKey;

use super::acquire::{Acquire, Need};
use super::bin::Bin;
use super::form::Form;
use super::handoff::HandOff;
use super::hints::Hints;
use super::icmp::IcmpSender;
use super::lengths::Tunnel;
use super::lookup::Lookup;
use super::packet::Packet;
use super::sa::OutboundSa;
use super::slab::Slab;
use super::{PipelineConfig, protect};
use crate::clock::Now;
use crate::drop_reason::DropReason;
use crate::sa::{ReqId, SaSlot, WorkerId};
use crate::snapshot::{SaOwner, Snapshot};
use crate::spd::{Decision, PolicyAction, PolicyId, Spd, Tally};

/// Data that classification works with.
pub(super) struct Stage<'a, 'b> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) config: &'a PipelineConfig,
    pub(super) icmp: &'a mut IcmpSender,
    /// Time at which the packets came.
    pub(super) since: Now,
    pub(super) now: Now,
    pub(super) sas: &'a Slab<OutboundSa>,
    pub(super) lookup: &'a mut Lookup,
    pub(super) hints: &'a mut Hints,
    /// Empty; memory for one burst.
    pub(super) leaving: &'a mut Vec<Exit>,
    pub(super) bypass: &'a mut Burst,
    pub(super) handoff: &'a mut HandOff,
    pub(super) acquire: &'a mut Acquire,
    pub(super) bin: &'a mut Bin<'b>,
}

/// The way of a packet that no SA of this worker is to protect.
#[derive(Clone, Copy, Debug)]
pub(super) enum Exit {
    Drop(DropReason),
    Discard(PolicyId),
    Bypass(PolicyId),
    Acquire(Need),
    HandOff(WorkerId),
}

/// The slot of packets that leave; no snapshot has so many.
const LEAVES: SaSlot = SaSlot(u32::MAX);

/// Values that the packets of one group of SAs have in common.
#[derive(Clone, Copy)]
struct ChosenSa {
    reqid: ReqId,
    slot: SaSlot,
    tunnel: Tunnel,
}

/// Looks up all packets at once and gives each its SA. Those that have none here leave `packets`. Says
/// of which form all others are, if they go the [usual way](super::tunnel).
pub(super) fn run(stage: &mut Stage<'_, '_>, packets: &mut Vec<Packet>) -> Option<Form> {
    let Stage { snapshot, config, sas, hints, leaving, .. } = stage;
    stage.lookup.burst(snapshot, packets);
    let decisions = stage.lookup.decisions();
    if hints.are_many() {
        prefetch_sas(sas, hints, decisions);
    }
    // Whether all go the usual way, and a bit for each form there is.
    let (mut usual, mut forms) = (true, 0);
    // Packets of one group come in runs.
    let mut last: Option<ChosenSa> = None;
    for (packet, decision) in packets.iter_mut().zip(decisions) {
        packet.slot = match *decision {
            Some(Decision { action: PolicyAction::Protect { reqid }, .. }) => {
                let way = last
                    .filter(|way| way.reqid == reqid)
                    .or_else(|| hinted(sas, hints, reqid, &mut forms));
                last = way;
                let slot = match way {
                    Some(way) => {
                        usual &= way.tunnel.takes(packet.frame.len());
                        way.slot
                    }
                    None => {
                        usual = false;
                        find(snapshot, config.worker, hints, leaving, (reqid, &packet.info.flow))
                    }
                };
                // Routes into the first interface are the gateway's own, and no others are.
                if packet.frame.interface() != InterfaceId(0) && comes_back(sas, slot, packet) {
                    leave(leaving, Exit::Drop(DropReason::RoutingLoop))
                } else {
                    slot
                }
            }
            Some(Decision { action: PolicyAction::Bypass, id }) => leave(leaving, Exit::Bypass(id)),
            Some(Decision { action: PolicyAction::Discard, id }) => {
                leave(leaving, Exit::Discard(id))
            }
            None => leave_uncovered(leaving, packet),
        }
    }
    if !stage.leaving.is_empty() {
        see_off(stage, packets);
    }
    usual.then(|| Form::of_all(forms))
}

/// Starts loading the SAs of packets at random.
fn prefetch_sas(sas: &Slab<OutboundSa>, hints: &Hints, decisions: &[Option<Decision>]) {
    let mut last = None;
    for decision in decisions {
        if let Some(Decision { action: PolicyAction::Protect { reqid }, .. }) = decision
            && last.replace(*reqid) != Some(*reqid)
        {
            sas.prefetch(hints.get(reqid.0));
        }
    }
}

/// The way of a group whose SA was found before and is still that group's.
#[inline]
fn hinted(sas: &Slab<OutboundSa>, hints: &Hints, reqid: ReqId, forms: &mut u8) -> Option<ChosenSa> {
    let hint = hints.get(reqid.0);
    let sa = sas.get(hint).filter(|sa| sa.reqid == reqid || sa.spec.named == Some(reqid))?;
    sa.counters.prefetch();
    *forms |= sa.tunnel.form;
    Some(ChosenSa { reqid, slot: SaSlot(hint), tunnel: sa.tunnel })
}

/// True if a packet is one that its SA sent, judged by its outer header.
#[inline(never)]
fn comes_back(sas: &Slab<OutboundSa>, slot: SaSlot, packet: &Packet) -> bool {
    sas.get(slot.0).is_some_and(|sa| sa.spec.has_sent(&packet.info.flow))
}

#[cold]
fn leave_uncovered(leaving: &mut Vec<Exit>, packet: &Packet) -> SaSlot {
    leave(leaving, Exit::Drop(why_uncovered(&packet.info.flow)))
}

/// Reason for dropping a packet that leaves and that no policy covers.
pub(crate) fn why_uncovered(flow: &FlowKey) -> DropReason {
    let is_of_link = match flow.dst_addr() {
        IpAddr::V4(to) => {
            to.is_link_local() || to.is_broadcast() || to.octets().starts_with(&[224, 0, 0])
        }
        IpAddr::V6(to) => {
            let [first, second, ..] = to.octets();
            // Interface-local and link-local scope.
            to.is_unicast_link_local() || first == 0xff && second & 0xf <= 2
        }
    };
    if is_of_link { DropReason::LinkLocal } else { DropReason::NoPolicy }
}

fn leave(leaving: &mut Vec<Exit>, exit: Exit) -> SaSlot {
    leaving.push(exit);
    LEAVES
}

/// Asks the snapshot which SA the policies with this `reqid` use now for such a packet.
#[inline(never)]
fn find(
    snapshot: &Snapshot,
    me: WorkerId,
    hints: &mut Hints,
    leaving: &mut Vec<Exit>,
    (reqid, flow): (ReqId, &FlowKey),
) -> SaSlot {
    let exit = match snapshot.outbound_to(reqid, flow) {
        Some(SaOwner { slot, worker }) if worker == me => {
            hints.set(reqid.0, slot.0);
            return slot;
        }
        Some(SaOwner { worker, .. }) => Exit::HandOff(worker),
        None if snapshot.is_on_demand(reqid) => {
            let hosts = snapshot.is_between(reqid).then_some((flow.src, flow.dst));
            Exit::Acquire(Need { reqid, hosts })
        }
        None => Exit::Drop(DropReason::NoSa),
    };
    leave(leaving, exit)
}

/// Lets a packet pass unprotected. Who forwards takes one from its time to live, and tells its sender
/// when nothing is left (RFC 1812 section 5.3.1, RFC 8200 section 3).
fn bypass(stage: &mut Stage<'_, '_>, packet: Packet) {
    let Packet { mut frame, info, .. } = packet;
    if stage.config.decrement_ttl {
        if info.ttl <= 1 {
            let Bin { pool, counters } = stage.bin;
            stage.icmp.time_exceeded(stage.now, stage.config, counters, pool, &frame);
            return stage.bin.drop(frame, DropReason::TtlExpired);
        }
        protect::decrement_ttl(frame.data_mut(), info.flow.version);
    }
    match stage.bypass.push(frame) {
        Ok(()) => stage.bin.counters.bypassed.add(1),
        Err(frame) => stage.bin.drop(frame, DropReason::NoFrame),
    }
}

/// The database that decided about a packet.
fn spd<'a>(stage: &Stage<'a, '_>, packet: &Packet) -> Option<&'a Spd> {
    stage.snapshot.spd_of(stage.lookup.spd(packet.frame.interface())?)
}

/// Sends packets on their other ways, in order.
fn see_off(stage: &mut Stage<'_, '_>, packets: &mut Vec<Packet>) {
    let mut exits = core::mem::take(stage.leaving);
    let mut tally = Tally::new(stage.now.0);
    let leave = packets.extract_if(.., |packet| packet.slot == LEAVES);
    for (exit, packet) in exits.drain(..).zip(leave) {
        match exit {
            Exit::Drop(reason) => stage.bin.drop(packet.frame, reason),
            Exit::Discard(policy) => {
                tally.count(spd(stage, &packet), policy, packet.frame.len());
                stage.bin.drop(packet.frame, DropReason::PolicyDiscard);
            }
            Exit::Bypass(policy) => {
                tally.count(spd(stage, &packet), policy, packet.frame.len());
                bypass(stage, packet);
            }
            Exit::Acquire(need) => {
                stage.acquire.hold(packet, need, stage.since, stage.now, stage.bin);
            }
            Exit::HandOff(worker) => {
                if let Err(frame) = stage.handoff.push(worker, packet.frame) {
                    stage.bin.drop(frame, DropReason::RingFull);
                }
            }
        }
    }
    *stage.leaving = exits;
}
