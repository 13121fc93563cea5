//! Last stage outbound: finished packets go to the wire.

use convoy_engine::{Job, JobBurst, Status};
use convoy_packet::{Burst, Frame};
use convoy_wire::ipv6::ExtensionLimits;
use convoy_wire::{IpVersion, Ipv6View, Protocol, checksum};

use super::ah;
use super::bin::Bin;
use super::tag::{OutboundTag, Remainder};
use crate::drop_reason::DropReason;

/// Gives the first `n` finished jobs' packets to the wire; what the engine could not do is dropped.
pub(super) fn run(
    done: &mut JobBurst,
    n: usize,
    udp6_checksum: bool,
    wire: &mut Burst,
    bin: &mut Bin<'_>,
) {
    let finished = done.as_mut_slice().get_mut(..n).unwrap_or_default();
    // The usual packet is complete, and is not even looked at.
    if !OutboundTag::all_complete(finished) {
        finished.iter_mut().for_each(|job| complete(job, udp6_checksum));
    }
    let (mut packets, mut bytes) = (0, 0);
    for Job { frame, status, context, .. } in done.drain_front(n) {
        if status != Status::Done {
            drop_packet(bin, frame, DropReason::EngineRejected);
            continue;
        }
        match wire.push(frame) {
            Ok(()) => {
                (packets, bytes) = (packets + 1, bytes + OutboundTag::of(context).inner_len())
            }
            Err(frame) => drop_packet(bin, frame, DropReason::NoFrame),
        }
    }
    bin.counters.outbound_packets.add(packets);
    bin.counters.outbound_bytes.add(bytes);
}

/// Does what is left to do on a packet when the engine has worked on it.
fn complete(job: &mut Job, udp6_checksum: bool) {
    if job.status != Status::Done {
        return;
    }
    let tag = OutboundTag::of(job.context);
    match tag.remainder() {
        Remainder::AhFields => {
            if ah::finish(&mut job.frame, tag.seq()).is_none() {
                job.status = Status::Rejected;
            }
        }
        Remainder::UdpChecksum if udp6_checksum => fill_udp6_checksum(&mut job.frame),
        Remainder::UdpChecksum | Remainder::None => {}
    }
}

#[cold]
fn drop_packet(bin: &mut Bin<'_>, frame: Frame, reason: DropReason) {
    bin.drop(frame, reason);
}

/// IPv6 wants a checksum in every UDP header (RFC 8200 section 8.1); RFC 3948 lets only IPv4 go
/// without.
pub(super) fn fill_udp6_checksum(frame: &mut Frame) {
    let Ok(view) = Ipv6View::parse(frame.data()) else { return };
    let offset = match view.next_header() {
        Protocol::UDP => 0,
        Protocol::ESP => return,
        // In transport mode extension headers stay in front.
        _ => match view.upper_layer(ExtensionLimits::default()) {
            Ok(upper) if upper.protocol == Protocol::UDP => upper.offset,
            _ => return,
        },
    };
    let len = usize::from(view.payload_len()).saturating_sub(offset);
    let pseudo = view.pseudo_sum(Protocol::UDP, len as u32);
    if let Some(datagram) = frame.data_mut().get_mut(IpVersion::V6.header_len() + offset..) {
        // A datagram too short for its checksum cannot come here: its header was laid out here.
        let _ = checksum::fill_udp(pseudo, datagram);
    }
}
