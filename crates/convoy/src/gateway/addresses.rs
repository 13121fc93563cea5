//! Check that this host has the addresses at which SAs end.
//!
//! An address may be on whatever interface, also on the loopback interface of a router: the host answers
//! for all of its addresses. The criterion is the kernel's, which sockets are subject to anyway: what
//! one may be bound to. So local routes count (`ip route add local …`), and where
//! `net.ipv4.ip_nonlocal_bind` or its like of IPv6 says that addresses come later, nothing is missing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use convoy_control::site::{Finding, Site};
use convoy_control::sources::{self, Absent};
use convoy_control::state::State;
use convoy_host::{AddressWatch, Network};
use convoy_leak_protection::PROTOCOL;
use socket2::{Domain, Socket, Type};

use super::direct::local_addresses;

/// Longest time of duplicate-address detection. As the kernel is set by default it is a random delay of up
/// to a second and one probe, but a busy host runs it late.
const DETECTION: Duration = Duration::from_secs(6);
/// Between two looks meanwhile.
const PAUSE: Duration = Duration::from_millis(50);

/// Follows the addresses at which SAs end.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    /// Addresses that are missing, with one of their SAs.
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
            tracing::info!(
                "{address}, the local address of SA '{sa}', is an address of this host again"
            );
        }
        self.gone = gone;
    }

    /// Faults at present, in words.
    pub(super) fn troubles(&self) -> impl Iterator<Item = String> + '_ {
        self.gone.iter().map(|(address, sa)| lost(*address, sa))
    }
}

/// Follows the source addresses of SAs, also of those that IKE daemons made: an SA sends only from an address of this
/// host. An address that sockets may be bound to before it comes (`net.ipv4.ip_nonlocal_bind`) is none.
#[derive(Debug, Default)]
pub(super) struct Sources {
    absent: Vec<Absent>,
    /// The snapshot that was looked at.
    generation: u64,
}

impl Sources {
    /// Looks at all SAs, if there are others than before or the host `changed`.
    pub(super) fn follow(&mut self, state: &mut State, changed: bool) {
        if !changed && state.published().generation() == self.generation {
            return;
        }
        let host = HostAddresses::new(state.site());
        let absent = sources::follow(state.writer(), |address| host.has(address));
        self.generation = state.published().generation();
        for one in absent.iter().filter(|one| !self.has(one.address)) {
            tracing::warn!("{}", nobodys(one));
        }
        for one in &self.absent {
            if !absent.iter().any(|other| other.address == one.address) {
                tracing::info!("SAs from {} send again, or were removed", one.address);
            }
        }
        self.absent = absent;
    }

    fn has(&self, address: IpAddr) -> bool {
        self.absent.iter().any(|one| one.address == address)
    }

    /// Missing addresses at present, in words.
    pub(super) fn lacking(&self) -> impl Iterator<Item = String> + '_ {
        self.absent.iter().map(nobodys)
    }
}

fn nobodys(Absent { address, sa, count }: &Absent) -> String {
    let sends = match count {
        0 | 1 => " from it sends".to_owned(),
        2 => " and 1 other from it send".to_owned(),
        _ => format!(" and {} others from it send", count - 1),
    };
    format!(
        "{address} is not an address of this host: SA '{sa}'{sends} nothing until it is, because \
         another host may send on them; add the address, or remove the SAs"
    )
}

/// Addresses of which it is remembered whether they are this host's.
const KNOWN_MAX: usize = 1 << 16;

/// The addresses of this host, asked for one by one and remembered until something changes.
#[derive(Debug)]
pub(super) struct KnownAddresses {
    host: HostAddresses,
    /// None where nothing is remembered, as nobody would tell of changes.
    watch: Option<AddressWatch>,
    known: HashMap<IpAddr, bool>,
}

impl KnownAddresses {
    pub(super) fn new(site: &Site) -> Self {
        // Ahead of all looks.
        let watch = AddressWatch::open(PROTOCOL);
        let watch = watch.inspect_err(|error| {
            tracing::warn!("changes of this host's addresses are not told: {error}");
        });
        Self { host: HostAddresses::new(site), watch: watch.ok(), known: HashMap::new() }
    }

    /// As [`HostAddresses::has`].
    pub(super) fn has(&mut self, address: IpAddr) -> bool {
        let is_old = self.watch.as_mut().is_none_or(AddressWatch::has_news);
        if is_old || self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        *self.known.entry(address).or_insert_with(|| self.host.has(address))
    }
}

/// The addresses of this host.
#[derive(Debug)]
pub(super) struct HostAddresses {
    /// Of the wire side, which may be in a VRF.
    interface: Option<String>,
    network: Option<Mutex<Network>>,
    probe: Mutex<Probe>,
}

impl HostAddresses {
    pub(super) fn new(site: &Site) -> Self {
        let network = Network::open().map(Mutex::new);
        let network = network
            .inspect_err(|error| tracing::warn!("cannot read the addresses of this host: {error}"));
        let (interface, probe) = (site.wire.interface.clone(), Mutex::default());
        Self { interface, network: network.ok(), probe }
    }

    /// True if packets to an address are for this host.
    pub(super) fn has(&self, address: IpAddr) -> bool {
        !address.is_unspecified()
            && self.may_be_bound(address)
            && self.network.as_ref().is_none_or(|network| {
                let mut network = network.lock().unwrap_or_else(PoisonError::into_inner);
                answers_for(&mut network, address)
            })
    }

    fn may_be_bound(&self, address: IpAddr) -> bool {
        let mut probe = self.probe.lock().unwrap_or_else(PoisonError::into_inner);
        may_be_bound(&mut probe, self.interface.as_deref(), address)
    }
}

/// True if the kernel says so; also where it says nothing.
fn answers_for(network: &mut Network, address: IpAddr) -> bool {
    // A local route, as `ip address add` makes one.
    if network.route_to(address, None).is_ok_and(|route| route.local) {
        return true;
    }
    // Those of a VRF are in other tables.
    network.addresses(None).map_or(true, |all| all.iter().any(|one| one.addr() == address))
}

fn lost(address: IpAddr, sa: &str) -> String {
    format!(
        "{address}, the local address of SA '{sa}', is not an address of this host any more: peers cannot \
         reach it; add it again (ip address add)"
    )
}

/// The same, once those of IPv6 have had the time that the kernel takes to find out whether another
/// host has them (RFC 4862 section 5.4): until then nothing can be bound to them.
pub(super) fn missing_after_a_while(site: &Site) -> Vec<Finding> {
    let (wanted, begun) = (local_addresses(site), Instant::now());
    loop {
        let missing = missing(site, &wanted);
        let may_come = !missing.is_empty() && missing.keys().all(IpAddr::is_ipv6);
        if !may_come || begun.elapsed() >= DETECTION {
            return findings(site, &wanted);
        }
        std::thread::sleep(PAUSE);
    }
}

/// SAs at addresses that this host does not have, one for each address.
#[must_use]
pub(super) fn missing_addresses(site: &Site) -> Vec<Finding> {
    findings(site, &local_addresses(site))
}

/// The same for some of the addresses.
pub(super) fn findings(site: &Site, addresses: &BTreeSet<IpAddr>) -> Vec<Finding> {
    let missing = missing(site, addresses).into_iter().map(|(address, sa)| {
        let what = format!("{address} is not an address of this host");
        let family = if address.is_ipv4() { "ipv4" } else { "ipv6" };
        let help = format!(
            "use an address that `ip address` shows, on whatever interface, or give the host this one \
             first; where it comes later, set net.{family}.ip_nonlocal_bind"
        );
        site.finding(&format!("sa[{sa}].local"), what, &help)
    });
    missing.collect()
}

fn missing(site: &Site, addresses: &BTreeSet<IpAddr>) -> BTreeMap<IpAddr, Arc<str>> {
    let absent: BTreeSet<_> = addresses.iter().copied().filter(|a| !is_here(site, *a)).collect();
    if absent.is_empty() {
        return BTreeMap::new();
    }
    // The first SA of each is named.
    let sas = site.associations().collect::<Vec<_>>().into_iter().rev();
    sas.map(|sa| (sa.endpoints.local, sa.name.clone()))
        .filter(|(local, _)| absent.contains(local))
        .collect()
}

fn is_here(site: &Site, address: IpAddr) -> bool {
    may_be_bound(&mut Probe::default(), site.wire.interface.as_deref(), address)
}

fn may_be_bound(probe: &mut Probe, interface: Option<&str>, address: IpAddr) -> bool {
    let Err(error) = probe.bind(address) else { return true };
    // Anything else that goes wrong says nothing about the address.
    if error.kind() != io::ErrorKind::AddrNotAvailable {
        return true;
    }
    // In a VRF, only sockets on its interfaces can have its addresses.
    interface.is_some_and(|wire| bind_on(wire, address).is_ok())
}

/// Sockets that could not be bound, to be tried again, for both IP versions: most addresses that are asked for are peers'.
#[derive(Debug, Default)]
struct Probe([Option<Socket>; 2]);

impl Probe {
    fn bind(&mut self, address: IpAddr) -> io::Result<()> {
        let [v4, v6] = &mut self.0;
        let place = if address.is_ipv4() { v4 } else { v6 };
        let socket = place.take().map_or_else(|| new_socket(address), Ok)?;
        let outcome = socket.bind(&SocketAddr::new(address, 0).into());
        let is_unchanged = |error: &io::Error| error.kind() == io::ErrorKind::AddrNotAvailable;
        *place = Some(socket).filter(|_| outcome.as_ref().is_err_and(is_unchanged));
        outcome
    }
}

fn bind_on(interface: &str, address: IpAddr) -> io::Result<()> {
    let socket = new_socket(address)?;
    socket.bind_device(Some(interface.as_bytes()))?;
    socket.bind(&SocketAddr::new(address, 0).into())
}

fn new_socket(address: IpAddr) -> io::Result<Socket> {
    Socket::new(Domain::for_address(SocketAddr::new(address, 0)), Type::DGRAM, None)
}
