//! Events of workers, in words for the log.

use std::sync::Arc;

use convoy_ipsec::event::{Event, SaId};
use convoy_ipsec::selector::Direction;
use convoy_ipsec::snapshot::Snapshot;
use convoy_ipsec::spd::SpdId;
use convoy_wire::FlowKey;

use crate::status::Level;

/// Urgency of an event, and one line about it: which SA, what happened, what to do. No keys.
///
/// The SA's name is that of the picture of now; an SA that is gone has none. `spd` is the database
/// that the plain interface asks.
#[must_use]
pub fn describe(snapshot: &Snapshot, spd: SpdId, event: &Event) -> (Level, String) {
    match event {
        Event::Soft { sa, limit } => {
            let what = format!(
                "{} reached a soft limit ({limit}): give it a new key",
                label(snapshot, sa)
            );
            (Level::Warning, what)
        }
        Event::Hard { sa, limit } => {
            let sa = label(snapshot, sa);
            let what = format!(
                "{sa} reached a hard limit ({limit}), and its packets are dropped: give it a new key"
            );
            (Level::Critical, what)
        }
        Event::Acquire { flow, .. } => {
            let policy =
                name_of(snapshot, spd, flow).map_or_else(String::new, |name| format!(" {name}"));
            let (from, to) = (flow.src_addr(), flow.dst_addr());
            (
                Level::Warning,
                format!(
                    "policy{policy} has no SA for a packet from {from} to {to}: add one to the site file and \
                 reload"
                ),
            )
        }
        Event::Mapping { sa, from } => {
            let sa = label(snapshot, sa);
            let what = format!(
                "packets of {sa} now come from {from}, while packets to the peer still go to the old address: \
                 change the site file if the peer has moved"
            );
            (Level::Warning, what)
        }
        _ => (Level::Ok, "a worker told of an event that this version does not know".to_owned()),
    }
}

/// The policy that decides about packets of a flow that leave.
fn name_of(snapshot: &Snapshot, spd: SpdId, flow: &FlowKey) -> Option<Arc<str>> {
    let spd = snapshot.spd_of(spd)?;
    let decision = spd.lookup(Direction::Outbound, flow)?;
    spd.policy(decision.id).map(|policy| policy.name.clone())
}

fn label(snapshot: &Snapshot, sa: &SaId) -> String {
    let name = match sa.direction {
        Direction::Outbound => {
            snapshot.outbound(sa.slot).filter(|spec| spec.spi == sa.spi).map(|spec| &spec.name)
        }
        Direction::Inbound => {
            snapshot.inbound(sa.slot).filter(|spec| spec.spi == sa.spi).map(|spec| &spec.name)
        }
    };
    let (direction, spi, to) = (sa.direction.name(), sa.spi, sa.destination);
    match name {
        Some(name) => format!("{direction} SA {name} (SPI {spi} to {to})"),
        None => format!("{direction} SA with SPI {spi} to {to} (already removed)"),
    }
}
