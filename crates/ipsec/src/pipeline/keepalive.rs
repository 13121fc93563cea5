//! NAT keepalives (RFC 3948 sections 2.3 and 4).

use convoy_packet::{Burst, Frame, Pool};
use convoy_wire::{Tos, esp};

use super::forward;
use super::idle::Outcome;
use super::sa::OutboundSa;

/// Puts a keepalive on the wire.
pub(super) fn send(
    sa: &OutboundSa,
    udp6_checksum: bool,
    pool: &mut Pool,
    wire: &mut Burst,
) -> Outcome {
    if !sa.spec.source_is_here {
        return Outcome::Refused;
    }
    if wire.is_full() {
        return Outcome::NoRoom;
    }
    let Some(mut frame) = pool.alloc() else { return Outcome::NoRoom };
    if write(sa, &mut frame).is_none() {
        pool.free(frame);
        return Outcome::Refused;
    }
    if udp6_checksum {
        forward::fill_udp6_checksum(&mut frame);
    }
    match wire.push(frame) {
        Ok(()) => Outcome::Sent,
        Err(frame) => {
            pool.free(frame);
            Outcome::NoRoom
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
