//! Networks and addresses that are the host's own: what comes out of a tunnel for one of these goes on into no other.

use std::collections::BTreeSet;

use convoy_control::site::{BetweenTunnels, Routes, Site};
use convoy_host::{HostError, IpNet, Network, RouteEntry};
use convoy_ipsec::spd::KnownNetworks;
use convoy_wire::Prefix;

use super::base::Prepared;
use super::on_change::OnChange;
use super::recheck::Recheck;

/// The kernel's table of its own addresses.
const LOCAL: u32 = 255;
/// Origins of routes to networks that the host is connected to: the kernel for addresses, and for what routers advertise.
const CONNECTING: [u8; 2] = [2, 9];

/// Follows them.
#[derive(Debug)]
pub(super) struct OwnNetworks {
    known: Option<KnownNetworks>,
    /// They may have changed.
    recheck: Recheck,
    trouble: OnChange<Option<String>>,
}

impl OwnNetworks {
    /// Has pipelines know them that do not run yet.
    ///
    /// # Errors
    /// Fails if the host's networks cannot be read, and nobody but the pipelines would keep from its interface what
    /// goes from tunnel to tunnel.
    pub(super) fn of(prepared: &mut Prepared) -> anyhow::Result<Self> {
        let mut all = Self { known: None, recheck: Recheck::due(), trouble: OnChange::default() };
        if let Some(networks) = all.news(prepared.state().site(), true) {
            prepared.send_on(networks);
        }
        match all.trouble.get() {
            Some(words) if prepared.state().site().plain.backend.is_direct() => {
                Err(anyhow::anyhow!("{words}"))
            }
            _ => Ok(all),
        }
    }

    /// Has a look taken at once.
    pub(super) fn look_again(&mut self) {
        self.recheck.hurry();
    }

    /// Networks that the pipelines have to know from now on, once they may have changed (`changed`) and did.
    pub(super) fn news(&mut self, site: &Site, changed: bool) -> Option<Option<&KnownNetworks>> {
        self.recheck.note(changed);
        let began = self.recheck.begin()?;
        let outcome = networks(site);
        self.recheck.rest(began);
        self.recheck.note(outcome.is_err());
        self.trouble.tell(outcome.as_ref().err().map(|error| {
            format!(
                "cannot read the networks of this host, which are excluded from tunnel-to-tunnel traffic: \
                 {error}"
            )
        }));
        let now = Some(outcome.ok()?);
        if now == self.known {
            return None;
        }
        self.known = now;
        Some(self.known.as_ref())
    }

    /// Fault at present, in words.
    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.get().clone()
    }
}

/// Networks by what the host and the site file say.
fn networks(site: &Site) -> Result<KnownNetworks, HostError> {
    let mut network = Network::open()?;
    let own_links = site.xfrm_interfaces().iter().map(|interface| interface.name.as_str());
    let tun = site.plain.tun();
    let tunnels: BTreeSet<_> = own_links.chain([tun.as_str()]).collect();
    let links = network.links()?;
    let links = links.iter().filter(|link| !tunnels.contains(link.name.as_str()));
    let indices: BTreeSet<_> = links.map(|link| link.index).collect();
    let addresses = network.addresses_of_links()?;
    let routes = network.routes()?;
    let taken = routes.iter().filter(|route| route.table == LOCAL).map(|route| route.to);
    let hosts: BTreeSet<_> =
        addresses.iter().map(|(_, address)| host(address)).chain(taken).collect();
    let mut own: BTreeSet<IpNet> = addresses.iter().map(|(_, address)| host(address)).collect();
    let of_links = addresses.iter().filter(|(link, _)| indices.contains(link));
    own.extend(of_links.map(|(_, address)| address.trunc()));
    let is_own = |route: &&RouteEntry| {
        let is_connected = route.is_unicast
            && route.via.is_none()
            && CONNECTING.contains(&route.protocol)
            && route.link_index.is_some_and(|index| indices.contains(&index));
        is_connected || route.table == LOCAL
    };
    own.extend(routes.iter().filter(is_own).map(|route| route.to));
    let remote = match &site.plain.routes {
        Routes::Explicit(networks) => networks.clone(),
        Routes::FromPolicies => Vec::new(),
    };
    let prefixes = |nets: BTreeSet<IpNet>| -> Vec<Prefix> {
        nets.iter().filter_map(|net| Prefix::new(net.network(), net.prefix_len()).ok()).collect()
    };
    let stays = site.plain.between_tunnels == BetweenTunnels::Host;
    Ok(KnownNetworks { own: prefixes(own), remote, hosts: prefixes(hosts), stays })
}

/// An address as a network of its own.
fn host(address: &IpNet) -> IpNet {
    address.addr().into()
}
