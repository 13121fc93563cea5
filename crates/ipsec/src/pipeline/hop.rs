//! The hop that a packet takes from one tunnel into another (RFC 1812 section 5.3.1, RFC 8200 section 3).

use convoy_wire::{IpVersion, Ipv4Mut, Ipv6Mut};

use super::PipelineConfig;
use super::bin::Bin;
use super::icmp::IcmpSender;
use super::packet::Packet;
use super::protect::decrement_ttl;
use crate::clock::Now;
use crate::drop_reason::DropReason;
use crate::sa::ReqId;

/// Fragments that go from tunnel to tunnel complete none from the plain side, as long as one worker has both.
const ONWARD: ReqId = ReqId(u32::MAX);

/// Takes one from the time to live of each packet, as a router does. Senders of packets that have none left are
/// told. A gateway that forwards by itself took one where it opened the first tunnel, and takes one where it
/// protects for the second: it gives one back here.
pub(super) fn run(
    now: Now,
    config: &PipelineConfig,
    packets: &mut Vec<Packet>,
    icmp: &mut IcmpSender,
    bin: &mut Bin<'_>,
) {
    packets.iter_mut().for_each(|packet| packet.reqid = ONWARD);
    if config.decrement_ttl {
        packets.iter_mut().for_each(give_back);
        return;
    }
    for Packet { frame, .. } in packets.extract_if(.., |packet| packet.info.ttl <= 1) {
        let Bin { pool, counters } = bin;
        icmp.time_exceeded(now, config, counters, pool, &frame);
        bin.drop(frame, DropReason::TtlExpired);
    }
    for Packet { frame, info, .. } in packets {
        decrement_ttl(frame.data_mut(), info.flow.version);
        info.ttl -= 1;
    }
}

/// Gives a packet back what the first tunnel's end took.
fn give_back(Packet { frame, info, .. }: &mut Packet) {
    info.ttl = info.ttl.saturating_add(1);
    match info.flow.version {
        IpVersion::V4 => {
            if let Ok(mut header) = Ipv4Mut::new(frame.data_mut()) {
                header.set_ttl(info.ttl);
            }
        }
        IpVersion::V6 => {
            if let Ok(mut header) = Ipv6Mut::new(frame.data_mut()) {
                header.set_hop_limit(info.ttl);
            }
        }
    }
}
