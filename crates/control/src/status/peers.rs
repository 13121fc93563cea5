//! Peers that are sent packets and send none.

use std::collections::HashMap;
use std::net::IpAddr;

use super::{DirectionStatus, SaStatus};

/// Time without an answer after which a peer counts as silent, in nanoseconds.
const SILENT_NS: u64 = 30_000_000_000;

/// Traffic with a peer, as far as its silence is judged by it. Moments are nanoseconds of the workers' clock.
#[derive(Clone, Copy, Debug, Default)]
struct Peer {
    /// The last packet from it.
    heard_ns: u64,
    /// The last packet to it.
    sent_ns: u64,
    /// The first packet to it that was seen after the last one from it; `None` where nothing is unanswered.
    unanswered_ns: Option<u64>,
}

/// A peer that has sent nothing since packets went to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Silent {
    /// Outer address.
    pub(super) peer: IpAddr,
    /// Seconds since the first packet that it did not answer.
    pub(super) seconds: u64,
}

/// Memory of what went to peers and came from them, also through SAs that are gone.
#[derive(Debug, Default)]
pub(super) struct Peers(HashMap<IpAddr, Peer>);

impl Peers {
    /// Takes note of SAs at a moment. A peer without SAs is forgotten.
    pub(super) fn note(&mut self, sas: &[SaStatus], now_ns: u64) {
        let mut now: HashMap<IpAddr, Peer> = HashMap::new();
        for sa in sas {
            let peer = now.entry(sa.remote).or_default();
            let Some(age) = sa.flow.last_packet_s else { continue };
            let at = now_ns.saturating_sub((age * 1e9) as u64);
            let last = match sa.direction {
                DirectionStatus::Outbound { .. } => &mut peer.sent_ns,
                DirectionStatus::Inbound { .. } => &mut peer.heard_ns,
            };
            *last = at.max(*last);
        }
        for (address, peer) in &mut now {
            let before = self.0.get(address).copied().unwrap_or_default();
            peer.heard_ns = peer.heard_ns.max(before.heard_ns);
            peer.sent_ns = peer.sent_ns.max(before.sent_ns);
            let since = before.unanswered_ns.or(Some(peer.sent_ns));
            peer.unanswered_ns = since.filter(|since| *since > peer.heard_ns);
            // A question that nobody repeats says nothing about the peer.
            if now_ns.saturating_sub(peer.sent_ns) > SILENT_NS {
                peer.unanswered_ns = None;
            }
        }
        self.0 = now;
    }

    /// Peers that have sent nothing for a while, though packets go to them, by address.
    pub(super) fn silent(&self, now_ns: u64) -> Vec<Silent> {
        let age = |peer: &Peer| Some(now_ns.saturating_sub(peer.unanswered_ns?));
        let mut silent: Vec<_> = self
            .0
            .iter()
            .filter_map(|(address, peer)| Some((*address, age(peer)?)))
            .filter(|(_, age)| *age >= SILENT_NS)
            .map(|(peer, age)| Silent { peer, seconds: age / 1_000_000_000 })
            .collect();
        silent.sort_by_key(|silent| silent.peer);
        silent
    }
}
