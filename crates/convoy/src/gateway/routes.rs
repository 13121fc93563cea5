//! Routes into the plain interface.

use std::collections::BTreeSet;

use convoy_control::site::{Routes, Site};
use convoy_host::{HostError, IpNet, LinkName, Network, RouteEntry};
use convoy_wire::Prefix;

/// The table that the gateway lays its routes in (`rtnetlink.h`).
const MAIN_TABLE: u32 = 254;

/// Of these networks, those to which no route leads through the interface.
pub(super) fn missing_routes<'a>(
    interface: &str,
    networks: impl Iterator<Item = &'a Prefix>,
) -> Result<Vec<Prefix>, HostError> {
    let mut network = Network::open()?;
    let link = network.link(&LinkName::new(interface)?)?;
    if !link.up {
        return Ok(Vec::new());
    }
    // Leak protection has tables of its own.
    let is_one = |it: &RouteEntry| it.table == MAIN_TABLE && it.link_index == Some(link.index);
    let there = network.routes()?.into_iter().filter(is_one);
    let there: BTreeSet<_> = there.map(|route| route.to).collect();
    let is_missing = |to: &&Prefix| net(**to).is_some_and(|to| !there.contains(&to));
    Ok(networks.filter(is_missing).copied().collect())
}

/// Networks to be routed into the plain interface.
pub(super) fn routes(site: &Site) -> Vec<Prefix> {
    match &site.plain.routes {
        Routes::FromPolicies => site.protected_networks(),
        Routes::Explicit(networks) => networks.clone(),
    }
}

/// A prefix as the host's side writes it.
pub(super) fn net(prefix: Prefix) -> Option<IpNet> {
    IpNet::new(prefix.addr(), prefix.len()).ok()
}
