//! NAT keepalives (RFC 3948 sections 2.3 and 4).

use convoy_packet::{Burst, Frame, Pool};
use convoy_wire::{Tos, esp};

use super::sa::OutboundSa;
use super::{Now, forward};

/// Whether nothing was sent on the SA for its keepalive interval.
pub(super) fn is_due(sa: &OutboundSa, now: Now) -> bool {
    let interval = sa.spec.encap.and_then(|encap| encap.keepalive);
    let last = sa.last_keepalive.0.max(sa.counters.last_packet_ns.get());
    interval.is_some_and(|interval| u128::from(now.0.saturating_sub(last)) >= interval.as_nanos())
}

/// Puts a keepalive on the wire; says whether there was room.
pub(super) fn send(
    sa: &OutboundSa,
    udp6_checksum: bool,
    pool: &mut Pool,
    wire: &mut Burst,
) -> bool {
    if wire.is_full() {
        return false;
    }
    let Some(mut frame) = pool.alloc() else { return false };
    if write(sa, &mut frame).is_none() {
        pool.free(frame);
        return false;
    }
    if udp6_checksum {
        forward::fill_udp6_checksum(&mut frame);
    }
    match wire.push(frame) {
        Ok(()) => true,
        Err(frame) => {
            pool.free(frame);
            false
        }
    }
}

fn write(sa: &OutboundSa, frame: &mut Frame) -> Option<()> {
    frame.fill_from(&esp::KEEPALIVE).ok()?;
    frame.grow_front(sa.outer.len()).ok()?;
    let total = frame.len();
    sa.outer.write(frame.data_mut(), total, Tos::default(), true, 0);
    Some(())
}
