//! Whether this host has the addresses at which SAs end.
//!
//! An address may be on whatever interface, also on the loopback interface of a router: the host answers
//! for all of its addresses. The criterion is the kernel's, which sockets are subject to anyway: what
//! one may be bound to. So local routes count (`ip route add local …`), and where
//! `net.ipv4.ip_nonlocal_bind` says that addresses come later, nothing is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;

use convoy_control::site::{Finding, Site};

use super::direct::local_addresses;
use super::plan::finding;

/// Follows the addresses at which SAs end.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    /// Those that are gone, with one of their SAs.
    gone: BTreeMap<IpAddr, Arc<str>>,
}

impl Addresses {
    /// Looks whether addresses have gone or come back, and says so in the log. They may move to
    /// another host for a while, so this is no reason to end.
    pub(super) fn follow(&mut self, site: &Site) {
        let wanted = local_addresses(site);
        let gone = missing(site, &wanted);
        for (address, sa) in gone.iter().filter(|(address, _)| !self.gone.contains_key(address)) {
            tracing::warn!("{}", lost(*address, sa));
        }
        // Of those that no SA has any more there is nothing to say.
        let is_back = |address| wanted.contains(address) && !gone.contains_key(address);
        for (address, sa) in self.gone.iter().filter(|(address, _)| is_back(*address)) {
            tracing::info!("{address}, the local address of SA '{sa}', is here again");
        }
        self.gone = gone;
    }

    /// What is wrong at present, in words.
    pub(super) fn troubles(&self) -> impl Iterator<Item = String> + '_ {
        self.gone.iter().map(|(address, sa)| lost(*address, sa))
    }
}

fn lost(address: IpAddr, sa: &str) -> String {
    format!(
        "{address}, the local address of SA '{sa}', is no address of this host any more: peers do \
         not reach it"
    )
}

/// SAs at addresses that this host does not have, one for each address.
#[must_use]
pub fn missing_addresses(site: &Site) -> Vec<Finding> {
    findings(site, &local_addresses(site))
}

/// The same for some of the addresses.
pub(super) fn findings(site: &Site, addresses: &BTreeSet<IpAddr>) -> Vec<Finding> {
    let missing = missing(site, addresses).into_iter().map(|(address, sa)| {
        let what = format!("{address} is not an address of this host");
        let help = "use an address that `ip address` shows, on whatever interface, or give the host this \
                    one first; where it comes later, set net.ipv4.ip_nonlocal_bind";
        finding(site, &format!("sa[{sa}].local"), what, help)
    });
    missing.collect()
}

fn missing(site: &Site, addresses: &BTreeSet<IpAddr>) -> BTreeMap<IpAddr, Arc<str>> {
    let absent: BTreeSet<_> = addresses.iter().copied().filter(|a| !is_here(*a)).collect();
    if absent.is_empty() {
        return BTreeMap::new();
    }
    // The first SA of each is named.
    let sas = site.associations().collect::<Vec<_>>().into_iter().rev();
    sas.map(|sa| (sa.endpoints.local, sa.name.clone()))
        .filter(|(local, _)| absent.contains(local))
        .collect()
}

fn is_here(address: IpAddr) -> bool {
    // Anything else that goes wrong says nothing about the address.
    !UdpSocket::bind((address, 0)).is_err_and(|e| e.kind() == ErrorKind::AddrNotAvailable)
}
