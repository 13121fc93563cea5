//! Dummy packets (RFC 4303 section 2.6): what is sent on an SA that has nothing to send.

use convoy_packet::Pool;

use super::form::Any;
use super::idle::Outcome;
use super::job_maker::{JobMaker, Unprotected};
use super::sa::OutboundSa;
use super::tunnel::{self, Payload};
use crate::sa::SaSlot;

/// Bytes of payload where packets are not filled up to one length: an acknowledgement's order.
const LEN: usize = 64;

/// Lays out a dummy on an SA of ESP in tunnel mode, unless its lifetime, its sequence numbers or
/// its lease have come to an end.
pub(super) fn send(
    maker: &mut JobMaker<'_>,
    slot: SaSlot,
    sa: &mut OutboundSa,
    pool: &mut Pool,
) -> Outcome {
    if sa.meter.is_expired(maker.now) {
        return Outcome::Refused;
    }
    if maker.jobs.room() == 0 {
        return Outcome::NoRoom;
    }
    let Some(frame) = pool.alloc() else { return Outcome::NoRoom };
    let (payload, now) = (Payload::dummy(payload_len(sa)), maker.now);
    let made = maker
        .make(slot, sa, frame, |sa, ivs, job| tunnel::protect::<Any>(sa, now, ivs, job, &payload));
    match made {
        Ok(()) => Outcome::Sent,
        Err(Unprotected { frame, .. }) => {
            pool.free(frame);
            Outcome::Refused
        }
    }
}

/// Bytes of payload: as many as real packets have at least, and never more than the path takes.
fn payload_len(sa: &OutboundSa) -> usize {
    let wanted = if sa.pad_to > 0 { sa.pad_to.into() } else { LEN };
    let room = (sa.path_mtu as usize).saturating_sub(sa.outer.len());
    wanted.min(sa.max_payload_len(room))
}
