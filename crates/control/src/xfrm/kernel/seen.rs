//! Names that daemons have for the SAs and policies that workers see.

use std::collections::BTreeSet;
use std::net::IpAddr;

use convoy_ipsec::sa::SaSlot;
use convoy_ipsec::selector::Direction;
use convoy_ipsec::spd::{PolicyId, SpdId};

use convoy_xfrm::{Mode, PolicyDirection, PolicyInfo, Template};

use super::Kernel;

/// A tunnel that a daemon's policy asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The reqid of its SAs.
    pub reqid: u32,
    /// Their interface identifier (`if_id`); 0 for none.
    pub if_id: u32,
    /// Our outer address.
    pub local: IpAddr,
    /// The peer's.
    pub remote: IpAddr,
}

impl Kernel {
    /// The reqid that its daemon gave to the SA in a slot; `None` for an SA that is no daemon's.
    #[must_use]
    pub fn reqid(&self, direction: Direction, slot: SaSlot) -> Option<u32> {
        self.numbers(direction, slot).map(|(reqid, _)| reqid)
    }

    /// As [`Kernel::reqid`], with the interface identifier (`if_id`).
    #[must_use]
    pub fn numbers(&self, direction: Direction, slot: SaSlot) -> Option<(u32, u32)> {
        let number = self.by_slot.get(&(direction, slot))?;
        let found = self.associations.of_number(*number);
        found.map(|found| (found.sa.info.reqid, found.sa.if_id))
    }

    /// The index of a daemon's policy, as `ip xfrm policy` shows it; `None` for a policy that is no
    /// daemon's. Of policies `in` and `fwd` that are one to workers, that of the stricter one. `spd` is the
    /// database that it is in.
    #[must_use]
    pub fn policy_index(&self, spd: SpdId, id: PolicyId) -> Option<u32> {
        self.plane.number(spd, id)
    }

    /// Far ends of the tunnels that policies `out` ask for: each peer once, at most so many.
    #[must_use]
    pub fn peers(&self, most: usize) -> Vec<IpAddr> {
        let known =
            self.tunnels().map(|tunnel| tunnel.remote).filter(|peer| !peer.is_unspecified());
        let mut peers = BTreeSet::new();
        for peer in known {
            if peers.len() >= most {
                break;
            }
            peers.insert(peer);
        }
        peers.into_iter().collect()
    }

    /// The tunnels that policies `out` ask for, one for each policy.
    pub fn tunnels(&self) -> impl Iterator<Item = Wanted> {
        let out = |info: &PolicyInfo| info.direction == PolicyDirection::Out;
        let policies = self.policies.dump(None).filter(move |(_, policy)| out(&policy.info));
        policies.filter_map(|(_, policy)| {
            let Template { mode, reqid, source, destination, .. } = *policy.templates.first()?;
            let is_tunnel = mode == Mode::Tunnel;
            let (local, remote) = (source, destination);
            is_tunnel.then_some(Wanted { reqid, if_id: policy.if_id, local, remote })
        })
    }
}
