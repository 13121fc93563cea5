//! Routes to the peers of native SAs: as the kernel answers for packets of the gateway's sockets, by all its rules and tables.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use convoy_host::{Network, RouteBy};
use convoy_io::link::{Hop, Route};

/// Pairs of addresses that the kernel is asked about. With more, the main table tells where there are no rules.
const MOST: usize = 1024;

/// Local and remote addresses of SAs, shared with what follows the kernel's tables.
#[derive(Clone, Debug, Default)]
pub(in crate::gateway) struct Peers(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    ends: BTreeSet<(IpAddr, IpAddr)>,
    /// Mark of the sockets' packets.
    mark: Option<u32>,
    generation: u64,
}

impl Peers {
    /// These are the addresses from now on.
    pub(super) fn set(&self, ends: &BTreeSet<(IpAddr, IpAddr)>, mark: Option<u32>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.ends != *ends || known.mark != mark {
            *known = Known { ends: ends.clone(), mark, generation: known.generation + 1 };
        }
    }

    /// Number of the present addresses: it grows with each change.
    pub(in crate::gateway) fn generation(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).generation
    }

    /// Routes to the peers that are behind an interface, whatever local address packets have; `None` if there are too many
    /// peers to ask for, and the main table tells.
    ///
    /// # Errors
    /// Fails if the kernel cannot be asked for rules.
    pub(in crate::gateway) fn routes(
        &self,
        network: &mut Network,
        link_index: u32,
    ) -> anyhow::Result<Option<Vec<Route>>> {
        let (ends, mark) = {
            let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            (known.ends.clone(), known.mark)
        };
        if ends.len() > MOST {
            return Ok(if network.has_policy_routing()? { Some(Vec::new()) } else { None });
        }
        let mut hops: BTreeMap<IpAddr, Option<Hop>> = BTreeMap::new();
        for (from, to) in ends {
            let route = network.route_by(to, RouteBy { from: Some(from), link: None, mark });
            let there = route.ok().filter(|route| route.link_index == link_index && !route.local);
            let hop = there.map(|route| route.via.map_or(Hop::Direct, Hop::Via));
            let known = hops.entry(to).or_insert(hop);
            if *known != hop {
                *known = None;
            }
        }
        let routes = hops.into_iter().filter_map(|(network, hop)| {
            let prefix_len = if network.is_ipv4() { 32 } else { 128 };
            Some(Route { network, prefix_len, hop: hop? })
        });
        Ok(Some(routes.collect()))
    }
}
