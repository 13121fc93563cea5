//! Cutting inner IPv4 packets that are too big and allow it (RFC 4301 section 8.2.1).

use std::collections::VecDeque;

use convoy_packet::{BURST_MAX, Frame, Pool};
use convoy_wire::ipv4::{Fragment, Fragments};
use convoy_wire::{Ipv4View, parse_packet};

use super::bin::Bin;
use super::packet::Packet;
use crate::drop_reason::DropReason;

/// Puts the fragments of `packet`, each at most `mtu` bytes, at the front of `pending`, in order.
///
/// All or none: when frames run out, the packet is dropped whole, because a receiver can do
/// nothing with the rest. Returns whether it was cut.
pub(super) fn run(
    packet: Packet,
    mtu: usize,
    pending: &mut VecDeque<Packet>,
    bin: &mut Bin<'_>,
) -> bool {
    let before = pending.len();
    let made = cut(&packet, mtu, pending, bin.pool);
    let n = pending.len() - before;
    if let Err(reason) = made {
        for part in pending.drain(before..) {
            bin.pool.free(part.frame);
        }
        bin.drop(packet.frame, reason);
        return false;
    }
    pending.rotate_right(n);
    bin.counters.fragments_made.add(n.saturating_sub(1) as u64);
    bin.pool.free(packet.frame);
    true
}

/// Appends the fragments to `pending`; tells why not all could be made.
fn cut(
    packet: &Packet,
    mtu: usize,
    pending: &mut VecDeque<Packet>,
    pool: &mut Pool,
) -> Result<(), DropReason> {
    let view = Ipv4View::parse(packet.frame.data()).map_err(DropReason::from)?;
    for fragment in Fragments::new(&view, mtu).map_err(|_| DropReason::TooBig)? {
        // Growing the queue would allocate, and the rest of the burst may have to wait there as
        // well; a packet of 64 KiB in 68-byte fragments does not pass.
        if pending.len() + 2 * BURST_MAX > pending.capacity() {
            return Err(DropReason::NoFrame);
        }
        let mut frame = pool.alloc().ok_or(DropReason::NoFrame)?;
        frame.set_interface(packet.frame.interface());
        let info =
            copy(&view, &fragment, &mut frame).and_then(|()| parse_packet(frame.data()).ok());
        match info {
            Some(info) => {
                pending.push_back(Packet { frame, info, slot: packet.slot, reqid: packet.reqid })
            }
            None => {
                pool.free(frame);
                return Err(DropReason::NoFrame);
            }
        }
    }
    Ok(())
}

fn copy(view: &Ipv4View<'_>, fragment: &Fragment, frame: &mut Frame) -> Option<()> {
    let header = frame.grow_back(fragment.header_len).ok()?;
    fragment.emit_header(view, header).ok()?;
    let part = view.payload().get(fragment.start..)?.get(..fragment.len)?;
    frame.grow_back(part.len()).ok()?.copy_from_slice(part);
    Some(())
}
