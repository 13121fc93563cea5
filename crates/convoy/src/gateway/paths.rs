//! Largest packets that this host's routes take to peers.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Mutex, Once, PoisonError};

use convoy_control::site::{Backend, FastPath, Site, least_mtu};
use convoy_host::{Network, RouteBy};

/// Largest MTU of an interface in bytes that a gateway has room for from its start, where it is not told which
/// interfaces lead to its peers: that of Ethernets with large frames.
const JUMBO: u16 = 9216;

/// Looks for the narrowest of an SA's way, as the SA's packets take it.
#[derive(Debug)]
struct Way {
    network: Network,
    /// Mark of the packets.
    mark: Option<u32>,
    /// The interface that sockets are bound to.
    interface: Option<String>,
}

impl Way {
    fn of(site: &Site) -> Option<Self> {
        let mark = site.leak_protection.then_some(site.marks.exempt.value);
        let interface = site.wire.interface.clone();
        Some(Self { network: Network::open().ok()?, mark, interface })
    }

    /// Largest packet in bytes, and no less than every path takes; `None` where no route leads there.
    fn mtu(&mut self, from: IpAddr, to: IpAddr) -> Option<u16> {
        // The interface may have come since.
        if let Some(interface) = &self.interface {
            self.network.bind(interface);
        }
        let by = |from| RouteBy { from, mark: self.mark, link: None };
        let (chosen, any) = (by(Some(from)), by(None));
        // From an address that is not here yet, nothing leads anywhere.
        let mtu = self.network.mtu_to(to, chosen).or_else(|_| self.network.mtu_to(to, any)).ok()?;
        Some(u16::try_from(mtu).unwrap_or(u16::MAX).max(least_mtu(to)))
    }
}

/// Largest outer packet in bytes that this host's routes to the peers of a site's own SAs take; `None` while there are
/// none.
pub(super) fn routed_mtu(site: &Site) -> Option<u16> {
    let mut way = Way::of(site)?;
    let ends: BTreeSet<_> = site
        .outbound
        .iter()
        .map(|sa| (sa.association.endpoints.local, sa.association.endpoints.remote))
        .collect();
    ends.into_iter().filter_map(|(from, to)| way.mtu(from, to)).min()
}

/// Largest packet in bytes that a gateway has room for because a daemon may bring an SA to whoever is behind one of this
/// host's interfaces; 0 where the site says how large outer packets are.
pub(super) fn widest(site: &Site) -> u16 {
    // Frames for such sockets are no larger than a page.
    let is_xdp = [site.plain.backend, site.wire.backend].contains(&Backend::AfXdp)
        || site.wire.fast_path == FastPath::Needed;
    if site.xfrm.is_none() || site.wire.mtu.is_some() || is_xdp {
        return 0;
    }
    let links = Network::open().and_then(|mut network| network.links()).unwrap_or_default();
    let leads_away = |name: &str| match &site.wire.interface {
        Some(wire) => name == wire,
        None => name != "lo" && name != site.plain.tun(),
    };
    let mtus = links.iter().filter(|link| link.up && leads_away(&link.name)).map(|link| link.mtu);
    mtus.max().map_or(0, |mtu| u16::try_from(mtu).unwrap_or(u16::MAX).min(JUMBO))
}

/// Paths of SAs that daemons bring.
#[derive(Debug)]
pub(super) struct Paths {
    /// None where the site says how large outer packets are.
    way: Option<Mutex<Way>>,
    /// Largest packet in bytes that a frame holds.
    room: u16,
    /// Tells once that more would pass.
    narrow: Once,
}

impl Paths {
    pub(super) fn of(site: &Site, room: u16) -> Self {
        let way = if site.wire.mtu.is_none() { Way::of(site).map(Mutex::new) } else { None };
        Self { way, room, narrow: Once::new() }
    }

    /// Largest packet in bytes from one address to another; `None` where no route leads there, or the site says it.
    pub(super) fn mtu(&self, from: IpAddr, to: IpAddr) -> Option<u16> {
        let way = self.way.as_ref()?;
        let mtu = way.lock().unwrap_or_else(PoisonError::into_inner).mtu(from, to)?;
        if mtu > self.room {
            let room = self.room;
            self.narrow.call_once(|| {
                tracing::warn!(
                    "the way to {to} takes packets of {mtu} bytes, but there is room for {room}: start the gateway \
                     again to use more of it"
                );
            });
        }
        Some(mtu.min(self.room))
    }
}
