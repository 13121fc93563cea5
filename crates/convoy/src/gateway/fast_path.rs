//! Native ESP and AH by AF_XDP beside sockets: past the host's network stack where that is faster and nothing of the host
//! is passed by that somebody has set up. Sockets stay open and carry all else, and everything when this way ends.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use convoy_control::site::{Backend, FastPath, Site};
use convoy_control::status;
use convoy_host::netlink::nft::ruleset::{ChainName, Ruleset};
use convoy_host::{Link, LinkName, Network, RouteBy};
use convoy_io::link::Board;
use convoy_io::xdp;
use convoy_io::{self as io, Port};
use convoy_packet::Arena;

use super::direct::{Follower, Following, Served, Side, local_addresses};
use crate::exit::describe;

/// Drivers that attach an XDP program without taking their link down for a while.
const QUIET_DRIVERS: [&str; 3] = ["veth", "virtio_net", "hv_netvsc"];
/// Queueing disciplines that nobody has to set up.
const USUAL_QDISCS: [&str; 7] = ["", "noqueue", "mq", "fq_codel", "fq", "pfifo_fast", "pfifo"];
/// Beginning of the names of gateways' own tables of the packet filter.
const OWN_TABLES: &str = "convoy-";
/// `NFPROTO_NETDEV`, whose chains belong to interfaces.
const OF_INTERFACES: u8 = 5;
/// `NF_INET_FORWARD`: ESP to and from this host never comes there.
const FORWARD: u32 = 2;

/// Way of native ESP and AH of a gateway that has sockets, before its ports are open.
#[derive(Debug)]
pub(super) struct Chosen {
    side: Option<Side>,
    wanted: FastPath,
    reason: Option<String>,
}

/// The same of one that runs.
#[derive(Debug)]
pub(super) struct Way {
    running: Option<Running>,
    reason: Option<String>,
}

#[derive(Debug)]
struct Running {
    interface: String,
    mode: xdp::Mode,
    is_dead: Arc<AtomicBool>,
    following: Option<Following>,
}

/// Open ports of all workers.
pub(super) struct Opened {
    pub(super) ports: Vec<Box<dyn Port>>,
    pub(super) follower: Follower,
}

impl Chosen {
    /// Looks at the host, and chooses.
    ///
    /// # Errors
    /// Fails if AF_XDP must be and the interface cannot be used.
    pub(super) fn new(site: &Site) -> anyhow::Result<Self> {
        let wanted = site.wire.fast_path;
        let none = |reason| Self { side: None, wanted, reason };
        match wanted {
            FastPath::Off => Ok(none(None)),
            FastPath::Auto => Ok(match choose(site) {
                Ok(side) => Self { side: Some(side), wanted, reason: None },
                Err(reason) => none(Some(reason)),
            }),
            FastPath::Needed => {
                let interface =
                    site.wire.interface.as_ref().context("[wire] names no interface")?;
                let side = Side::beside(interface, served(site))?;
                Ok(Self { side: Some(side), wanted, reason: None })
            }
        }
    }

    /// Opens it, if there is one.
    ///
    /// # Errors
    /// Fails if it must be, and cannot be opened.
    pub(super) fn open(
        self,
        workers: u16,
        arena: &'static Arena,
    ) -> anyhow::Result<(Way, Option<Opened>)> {
        let Self { side, wanted, reason } = self;
        let Some(side) = side else { return Ok((Way { running: None, reason }, None)) };
        match open(side, workers, arena, wanted) {
            Ok((running, opened)) => {
                tracing::info!(
                    "native ESP and AH go by AF_XDP ({}) on interface {}, all else by sockets: no capture on that \
                     interface sees them (`[capture]` in the site file records them; backend = \"socket\" in [wire] turns \
                     this off)",
                    running.mode,
                    running.interface
                );
                Ok((Way { running: Some(running), reason: None }, Some(opened)))
            }
            Err(error) if wanted == FastPath::Needed => Err(error),
            Err(error) => {
                let reason = describe(&error);
                tracing::info!("native ESP and AH go by sockets: {reason}");
                Ok((Way { running: None, reason: Some(reason) }, None))
            }
        }
    }
}

fn open(
    side: Side,
    workers: u16,
    arena: &'static Arena,
    wanted: FastPath,
) -> anyhow::Result<(Running, Opened)> {
    let (board, interface) = (side.board(), side.name().to_owned());
    let (ports, follower) = side.open(workers, arena)?;
    let mode = follower.xdp_mode().context("no AF_XDP")?;
    anyhow::ensure!(
        wanted == FastPath::Needed || mode != xdp::Mode::Generic,
        "the driver of interface {interface} has no XDP"
    );
    let is_dead = Arc::<AtomicBool>::default();
    let ports = ports.into_iter().map(|port| beside(port, &board, &is_dead));
    let ports = ports.collect::<anyhow::Result<_>>()?;
    let running = Running { interface, mode, is_dead, following: None };
    Ok((running, Opened { ports, follower }))
}

fn beside(
    port: Box<dyn Port>,
    board: &Arc<Board>,
    is_dead: &Arc<AtomicBool>,
) -> anyhow::Result<Box<dyn Port>> {
    let path = io::FastPath::new(port, Arc::clone(board), Arc::clone(is_dead))?;
    Ok(Box::new(path))
}

/// IKE daemons bring SAs of any address of the host.
fn served(site: &Site) -> Served {
    match site.xfrm {
        Some(_) => Served::Host,
        None => Served::Sas(local_addresses(site).into_iter().collect()),
    }
}

/// The interface for it, or the reason that sockets are better.
fn choose(site: &Site) -> Result<Side, String> {
    if site.xfrm.is_some() {
        return Err(
            "SAs of IKE daemons may come in UDP (backend = \"af_xdp\" and an interface in [wire] \
                    take native ESP to AF_XDP)"
                .to_owned(),
        );
    }
    if site.uses_udp() {
        return Err("SAs in UDP are faster by sockets".to_owned());
    }
    if !site.uses_native_esp() && !site.uses_ah() {
        return Err("no SA needs more".to_owned());
    }
    let look = || -> anyhow::Result<Result<Side, String>> {
        let mut network = Network::open()?;
        let interface = match interface_of(site, &mut network)? {
            Ok(interface) => interface,
            Err(reason) => return Ok(Err(reason)),
        };
        let link = network.link(&LinkName::new(&interface)?)?;
        if let Some(reason) = passed_by(&link, &mut network)? {
            return Ok(Err(reason));
        }
        let driver = xdp::driver(&interface)?;
        if !QUIET_DRIVERS.contains(&driver.as_str()) {
            return Ok(Err(format!(
                "driver {driver} of interface {interface} may interrupt its link when an XDP program is attached \
                 (backend = \"af_xdp\" asks for that)"
            )));
        }
        Ok(Ok(Side::beside(&interface, served(site))?))
    };
    look().unwrap_or_else(|error| Err(describe(&error)))
}

/// The interface that leads to all peers.
fn interface_of(site: &Site, network: &mut Network) -> anyhow::Result<Result<String, String>> {
    if let Some(interface) = &site.wire.interface {
        return Ok(Ok(interface.clone()));
    }
    let mark = site.leak_protection.then_some(site.marks.exempt.value);
    let ends: BTreeSet<(IpAddr, IpAddr)> = site
        .outbound
        .iter()
        .map(|sa| (sa.association.endpoints.local, sa.association.endpoints.remote))
        .collect();
    let mut names = BTreeSet::new();
    for (from, to) in ends {
        let by = RouteBy { from: Some(from), link: None, mark };
        names.insert(network.route_by(to, by)?.link);
    }
    let mut names = names.into_iter();
    Ok(match (names.next(), names.next()) {
        (Some(name), None) => Ok(name),
        (Some(_), Some(_)) => Err("peers are behind several interfaces".to_owned()),
        (None, _) => Err("there is no outbound SA".to_owned()),
    })
}

/// Set-up of the host that AF_XDP would pass by.
fn passed_by(link: &Link, network: &mut Network) -> anyhow::Result<Option<String>> {
    let name = &link.name;
    if !USUAL_QDISCS.contains(&link.qdisc.as_str()) {
        let qdisc = &link.qdisc;
        return Ok(Some(format!(
            "interface {name} has queueing discipline {qdisc}, which AF_XDP would pass by"
        )));
    }
    if network.has_policy_routing()? {
        return Ok(Some(
            "this host has rules for routing (`ip rule`), which sockets follow".to_owned(),
        ));
    }
    let rules = Ruleset::read().map_err(|refusal| anyhow::anyhow!("{refusal}"))?;
    if let Some(chain) = rules.places.iter().find(|(chain, (hook, _))| sees_esp(chain, *hook)) {
        let ChainName { table, chain, .. } = chain.0;
        return Ok(Some(format!(
            "chain {chain} of table {table} of the packet filter sees packets of this host, and AF_XDP would pass it by"
        )));
    }
    let legacy = ["/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"];
    let is_used =
        |file| std::fs::read_to_string(Path::new(file)).is_ok_and(|text| !text.is_empty());
    let used = legacy.into_iter().find(|file| is_used(*file));
    Ok(used.map(|_| "iptables has rules, which AF_XDP would pass by".to_owned()))
}

fn sees_esp(chain: &ChainName, hook: u32) -> bool {
    !chain.table.starts_with(OWN_TABLES) && (chain.family == OF_INTERFACES || hook != FORWARD)
}

impl Way {
    /// Begins to follow the kernel's tables.
    ///
    /// # Errors
    /// Fails if there can be no thread.
    pub(super) fn follow(
        &mut self,
        opened: Option<Follower>,
        wake: impl Fn() + Send + 'static,
    ) -> anyhow::Result<()> {
        if let (Some(running), Some(follower)) = (&mut self.running, opened) {
            running.following = Some(follower.start(wake)?);
        }
        Ok(())
    }

    /// SAs have these local addresses now.
    ///
    /// # Errors
    /// Fails if the ports cannot be told.
    pub(super) fn serve(&self, addresses: &BTreeSet<IpAddr>) -> anyhow::Result<()> {
        let following = self.running.as_ref().and_then(|running| running.following.as_ref());
        following.map_or(Ok(()), |following| following.serve(addresses))
    }

    /// Looks whether the way has ended, and tells once. To be called about once a second.
    pub(super) fn tick(&mut self) {
        let Some(running) = &self.running else { return };
        let gone = running.following.as_ref().and_then(Following::gone);
        if gone.is_none() && !running.is_dead.load(Ordering::Relaxed) {
            return;
        }
        running.is_dead.store(true, Ordering::Relaxed);
        let why =
            if gone.is_some() { "was removed" } else { "takes no packets by AF_XDP any more" };
        let reason = format!("interface {} {why}", running.interface);
        tracing::warn!(
            "native ESP and AH go by sockets from now on: {reason}; restart the gateway to use AF_XDP again"
        );
        self.reason = Some(reason);
        self.running = None;
    }

    /// The status of it.
    pub(super) fn status(&self, site: &Site) -> status::Wire {
        let (backend, fast_path) = (site.wire.backend, site.wire.fast_path);
        let word = match (backend, fast_path) {
            (Backend::Host, FastPath::Auto) => "auto",
            (Backend::Host, FastPath::Off) => "socket",
            (Backend::Host, FastPath::Needed) => Backend::AfXdp.word(),
            (direct, _) => direct.word(),
        };
        let running = self.running.as_ref();
        let native = match (backend, running) {
            (Backend::Host, None) => "socket",
            (Backend::Host, Some(_)) => Backend::AfXdp.word(),
            (direct, _) => direct.word(),
        };
        let interface = running.map(|running| running.interface.clone());
        status::Wire {
            backend: word.to_owned(),
            native: native.to_owned(),
            has_sockets: backend == Backend::Host,
            interface: interface.or_else(|| site.wire.interface.clone()),
            mode: running.map(|running| running.mode.to_string()),
            reason: self.reason.clone(),
        }
    }

    /// True if AF_XDP is in use.
    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }
}
