//! Sides that go through an interface directly: what the kernel knows of it is followed, so that
//! packets find their next hops and the host keeps what is its own.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use convoy_control::site::{Backend, Site};
use convoy_host::{Link, LinkName, Network, News, NextHop, Scope, Sysctl, Watch};
use convoy_io::link::{Asks, Board, Hop, Interface, Route, Table, Take, What};
use convoy_io::{HostAddresses, IoError, Port, SocketOptions, packet, xdp};
use convoy_packet::Arena;

use super::fast_path::Peers;

/// Longest time between two confirmations of neighbours that are in use.
const ROUND: Duration = Duration::from_secs(1);
/// Pause between two looks at tables that keep changing.
const PAUSE: Duration = Duration::from_millis(2);

/// Sockets of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Means {
    /// Packet sockets.
    Packet,
    /// AF_XDP, with the longest wait for a queue, if not the usual one.
    Xdp(Option<Duration>),
    /// Packet sockets that send and receive nothing, with this mark.
    Sending(Option<u32>),
}

impl Means {
    /// Sockets of a backend, if it goes through an interface directly.
    fn of(backend: Backend) -> Option<Self> {
        match backend {
            Backend::Host => None,
            Backend::AfPacket => Some(Self::Packet),
            Backend::AfXdp => Some(Self::Xdp(None)),
        }
    }
}

/// One side's interface before its ports are open.
#[derive(Debug)]
pub(super) struct Side {
    means: Means,
    interface: Interface,
    mac: [u8; 6],
    wants: Wants,
    board: Arc<Board>,
    asks: Asks,
    watch: Watch,
    network: Network,
    /// Ports into the host ask these which packets are its own.
    addresses: Arc<HostAddresses>,
}

/// Role of the side.
#[derive(Clone, Debug)]
enum Wants {
    Plain,
    Wire {
        local: Vec<IpAddr>,
        esp: bool,
        ah: bool,
        udp_port: Option<u16>,
    },
    /// Native ESP and AH to local addresses of SAs, or to all of the host's, beside sockets.
    Beside(Served, Peers),
}

/// Addresses whose ESP and AH go past the host's network stack.
#[derive(Clone, Debug)]
pub(super) enum Served {
    /// The local ones of SAs.
    Sas(Vec<IpAddr>),
    /// All of the host's.
    Host,
}

/// Role of ports on an interface.
#[derive(Clone, Debug)]
enum Role {
    /// They carry all packets of their side.
    Alone,
    /// They carry packets to these peers, and sockets what the table of next hops has no way for.
    BesideSockets(Peers),
}

impl Role {
    fn of(wants: &Wants) -> Self {
        match wants {
            Wants::Plain | Wants::Wire { .. } => Self::Alone,
            Wants::Beside(_, peers) => Self::BesideSockets(peers.clone()),
        }
    }
}

impl Side {
    /// The plain side, if it is direct.
    pub(super) fn plain(site: &Site) -> anyhow::Result<Option<Self>> {
        let Some(means) = Means::of(site.plain.backend) else { return Ok(None) };
        Self::new(means, &site.plain.interface, Wants::Plain).map(Some)
    }

    /// The wire side, if it is direct.
    pub(super) fn wire(site: &Site) -> anyhow::Result<Option<Self>> {
        let means = Means::of(site.wire.backend).zip(site.wire.interface.as_ref());
        let Some((means, interface)) = means else { return Ok(None) };
        let wants = Wants::Wire {
            local: local_addresses(site).into_iter().collect(),
            esp: site.uses_native_esp(),
            ah: site.uses_ah(),
            udp_port: site.uses_udp().then_some(site.wire.udp_port),
        };
        Self::new(means, interface, wants).map(Some)
    }

    /// An interface beside sockets.
    pub(super) fn beside(
        means: Means,
        interface: &str,
        served: Served,
        peers: Peers,
    ) -> anyhow::Result<Self> {
        Self::new(means, interface, Wants::Beside(served, peers))
    }

    /// The board that tells next hops.
    pub(super) fn board(&self) -> Arc<Board> {
        Arc::clone(&self.board)
    }

    fn new(means: Means, interface: &str, wants: Wants) -> anyhow::Result<Self> {
        // Before the first look, so that no change is missed.
        let watch = Watch::open()?;
        let mut network = Network::open()?;
        let link = network.link(&LinkName::new(interface)?)?;
        let mac = link.mac.with_context(|| {
            format!("interface {interface} has no Ethernet headers: use one that has")
        })?;
        anyhow::ensure!(link.up, "interface {interface} is down: ip link set {interface} up");
        let routes = routes(&mut network, &link, &Role::of(&wants))?;
        let table = table(&mut network, &link, mac, &routes)?;
        let interface = Interface { name: link.name, index: link.index, mtu: link.mtu };
        let (board, asks) = Board::new(table).context("cannot make the table of next hops")?;
        let addresses = Arc::<HostAddresses>::default();
        Ok(Self { means, interface, mac, wants, board, asks, watch, network, addresses })
    }

    /// Largest IP packet of the interface in bytes.
    pub(super) fn mtu(&self) -> u16 {
        u16::try_from(self.interface.mtu).unwrap_or(u16::MAX)
    }

    /// The addresses of this host on the interface.
    pub(super) fn addresses(&mut self) -> anyhow::Result<Vec<IpAddr>> {
        let networks = self.network.addresses(Some(self.interface.index))?;
        Ok(networks.iter().map(|network| network.addr()).collect())
    }

    /// The host's addresses, which are followed once the ports are open.
    pub(super) fn host_addresses(&self) -> Arc<HostAddresses> {
        Arc::clone(&self.addresses)
    }

    /// Opens a port for each worker.
    pub(super) fn open(
        mut self,
        workers: u16,
        arena: &'static Arena,
    ) -> anyhow::Result<(Vec<Box<dyn Port>>, Follower)> {
        let take = self.wants.take(&mut self.network, self.mac)?;
        let (ports, steering) = open_ports(&self, take.clone(), workers, arena)?;
        let Self { interface, wants, board, asks, watch, network, addresses, .. } = self;
        addresses.set(take.host_addresses());
        let follows_host = matches!(wants, Wants::Beside(Served::Host, _));
        let taken = Arc::new(Taken { steering, take: Mutex::new(take), addresses, follows_host });
        let role = Role::of(&wants);
        let (routes, known) = (Vec::new(), None);
        Ok((ports, Follower { interface, board, asks, watch, network, taken, role, routes, known }))
    }
}

type Opened = (Vec<Box<dyn Port>>, Steering);

fn open_ports(
    side: &Side,
    take: Take,
    workers: u16,
    arena: &'static Arena,
) -> anyhow::Result<Opened> {
    let need = super::rights::Need::Interface;
    let refused = |error: IoError| {
        super::rights::explain(error, need).context(format!("interface {}", side.interface.name))
    };
    match side.means {
        Means::Packet => {
            let config = packet::Config {
                workers,
                ..packet::Config::new(side.interface.clone(), take, side.board.clone())
            };
            let (ports, steering) = packet::open(&config).map_err(refused)?;
            let ports = ports.into_iter().map(|port| Box::new(port) as Box<dyn Port>);
            Ok((ports.collect(), Steering::Packet(steering)))
        }
        Means::Sending(mark) => {
            let config = packet::SendingConfig {
                interface: side.interface.clone(),
                workers,
                next_hops: side.board.clone(),
                mark,
                buffer_bytes: SocketOptions::default().buffer_bytes,
            };
            let ports = packet::open_sending(&config).map_err(refused)?.into_iter();
            let ports = ports.map(|port| Box::new(port) as Box<dyn Port>);
            Ok((ports.collect(), Steering::Nothing))
        }
        Means::Xdp(patience) => {
            let (interface, board) = (side.interface.clone(), side.board.clone());
            let usual = xdp::Config::new(interface, take, board, arena);
            let patience = patience.unwrap_or(usual.patience);
            let hears_icmp = !matches!(side.wants, Wants::Beside(..));
            let config = xdp::Config { workers, patience, hears_icmp, ..usual };
            let (ports, steering) = xdp::open(&config).map_err(refused)?;
            tracing::info!(interface = side.interface.name, mode = %steering.mode(), "xdp program attached");
            let ports = ports.into_iter().map(|port| Box::new(port) as Box<dyn Port>);
            Ok((ports.collect(), Steering::Xdp(steering)))
        }
    }
}

/// Changes what ports take.
#[derive(Debug)]
enum Steering {
    Packet(packet::Steering),
    Xdp(xdp::Steering),
    /// They take nothing.
    Nothing,
}

impl Steering {
    fn update(&self, take: &Take) -> Result<(), IoError> {
        match self {
            Self::Packet(steering) => steering.update(take),
            Self::Xdp(steering) => steering.update(take),
            Self::Nothing => Ok(()),
        }
    }
}

impl Wants {
    fn take(&self, network: &mut Network, mac: [u8; 6]) -> anyhow::Result<Take> {
        let what = match self.clone() {
            Self::Plain => What::Forwarded { except: own_addresses(network)? },
            Self::Wire { local, esp, ah, udp_port } => What::Protected { local, esp, ah, udp_port },
            Self::Beside(served, _) => {
                let local = match served {
                    Served::Sas(local) => local,
                    Served::Host => own_addresses(network)?,
                };
                What::Protected { local, esp: true, ah: true, udp_port: None }
            }
        };
        Ok(Take { mac, what })
    }
}

/// The local addresses of all SAs.
pub(super) fn local_addresses(site: &Site) -> BTreeSet<IpAddr> {
    site.associations().map(|sa| sa.endpoints.local).collect()
}

/// The host's addresses: whatever interface one is on, the host is meant by it.
fn own_addresses(network: &mut Network) -> anyhow::Result<Vec<IpAddr>> {
    let all: BTreeSet<_> = network.addresses(None)?.iter().map(|network| network.addr()).collect();
    Ok(all.into_iter().filter(is_looked_for).collect())
}

/// Selection of packets that ports take now. The kernel's news and reloads change it, each its own part.
#[derive(Debug)]
struct Taken {
    steering: Steering,
    take: Mutex<Take>,
    addresses: Arc<HostAddresses>,
    /// ESP and AH to all addresses of the host are taken.
    follows_host: bool,
}

impl Taken {
    fn change(&self, change: impl FnOnce(&mut Take) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let mut now = self.take.lock().unwrap_or_else(PoisonError::into_inner);
        let mut take = now.clone();
        change(&mut take)?;
        self.steering.update(&take)?;
        self.addresses.set(take.host_addresses());
        *now = take;
        Ok(())
    }

    /// The interface has this link address now, and maybe the host other addresses.
    fn follow(&self, network: &mut Network, mac: [u8; 6]) -> anyhow::Result<()> {
        self.change(|take| {
            take.mac = mac;
            match &mut take.what {
                What::Forwarded { except } => *except = own_addresses(network)?,
                What::Protected { local, .. } if self.follows_host => {
                    *local = own_addresses(network)?;
                }
                What::Protected { .. } => {}
            }
            Ok(())
        })
    }

    /// SAs have these local addresses now; says nothing to the plain side.
    fn serve(&self, addresses: &BTreeSet<IpAddr>) -> anyhow::Result<()> {
        self.change(|take| {
            if let What::Protected { local, .. } = &mut take.what
                && !self.follows_host
            {
                *local = addresses.iter().copied().collect();
            }
            Ok(())
        })
    }
}

/// Loopback addresses are on no wire, and all link-local ones are the host's anyway.
fn is_looked_for(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !v4.is_loopback(),
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local(),
    }
}

/// Follows the kernel's tables for one interface.
#[derive(Debug)]
pub(super) struct Follower {
    interface: Interface,
    board: Arc<Board>,
    asks: Asks,
    watch: Watch,
    network: Network,
    taken: Arc<Taken>,
    role: Role,
    /// Routes of the last table, and the peers that they are for.
    routes: Vec<Route>,
    known: Option<u64>,
}

/// A follower at work. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Following {
    /// Its other end is closed with this.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
    taken: Arc<Taken>,
    trouble: Arc<Mutex<Option<String>>>,
    gone: Arc<AtomicBool>,
    name: String,
}

impl Following {
    /// The interface's name, once it does not exist any more: its ports never carry a packet again,
    /// even if another interface gets the name.
    pub(super) fn gone(&self) -> Option<&str> {
        self.gone.load(Ordering::Relaxed).then_some(&*self.name)
    }

    /// Reason for which the interface cannot be followed at present, if so.
    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes packets to these addresses from now on, if this is the wire side.
    ///
    /// # Errors
    /// Fails if the ports cannot be told.
    pub(super) fn serve(&self, addresses: &BTreeSet<IpAddr>) -> anyhow::Result<()> {
        self.taken.serve(addresses)
    }
}

impl Follower {
    /// Way in which the kernel hands over packets of AF_XDP.
    pub(super) fn xdp_mode(&self) -> Option<xdp::Mode> {
        match &self.taken.steering {
            Steering::Packet(_) | Steering::Nothing => None,
            Steering::Xdp(steering) => Some(steering.mode()),
        }
    }

    /// Follows in a thread of its own. `wake` is called when there is news for the ports.
    pub(super) fn start(self, wake: impl Fn() + Send + 'static) -> io::Result<Following> {
        let (stop, stopped) = UnixStream::pair()?;
        stopped.set_nonblocking(true)?;
        let (name, taken) = (self.interface.name.clone(), self.taken.clone());
        let (trouble, gone) = (Arc::default(), Arc::<AtomicBool>::default());
        let (told, lost) = (Arc::clone(&trouble), gone.clone());
        let thread = Builder::new().name(format!("convoy-{name}"));
        let thread = thread.spawn(move || self.run(&stopped, &wake, &told, &lost))?;
        Ok(Following { stop: Some(stop), thread: Some(thread), taken, trouble, gone, name })
    }

    fn run(
        mut self,
        stopped: &UnixStream,
        wake: &dyn Fn(),
        told: &Mutex<Option<String>>,
        gone: &AtomicBool,
    ) {
        let mut next_round = Instant::now() + ROUND;
        let tell = |trouble| *told.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
        let mut trouble = false;
        // Something may have changed while the ports were opened.
        let mut news = News::ALL;
        loop {
            match self.follow(news, &mut next_round, wake) {
                Ok(()) if trouble => {
                    trouble = false;
                    tell(None);
                }
                Err(error) if !trouble => {
                    trouble = true;
                    let line = format!("interface {}: {error:#}", self.interface.name);
                    match self.role {
                        Role::BesideSockets(_) => self.leave_to_sockets(),
                        Role::Alone => tracing::error!("{line}"),
                    }
                    tell(Some(line));
                    let link = self.network.link_by_index(self.interface.index);
                    gone.store(link.is_ok_and(|link| link.is_none()), Ordering::Relaxed);
                }
                Ok(()) => {}
                Err(_) => {}
            }
            let limit = next_round.saturating_duration_since(Instant::now());
            let fds = [self.asks.as_fd(), stopped.as_fd()];
            if self.watch.wait(&fds, limit).is_err() || has_ended(stopped) {
                return;
            }
            std::thread::sleep(PAUSE);
            news = self.watch.news().unwrap_or(News::ALL);
        }
    }

    /// Ports know no way any more, so sockets carry everything.
    fn leave_to_sockets(&self) {
        let own = self.board.table().own();
        self.board.publish(Table::new(own, 0, &[], &[]));
    }

    /// Asks the kernel what ports asked, tells them what has changed, and makes sure of neighbours
    /// that are in use.
    fn follow(
        &mut self,
        news: News,
        next_round: &mut Instant,
        wake: &dyn Fn(),
    ) -> anyhow::Result<()> {
        while let Some(address) = self.asks.next() {
            // The answer comes as news. There may be no such host; then there is none.
            if let Err(error) = self.network.seek_neighbour(self.interface.index, address) {
                tracing::debug!(%address, %error, "neighbour");
            }
        }
        let is_round = Instant::now() >= *next_round;
        if is_round {
            *next_round = Instant::now() + ROUND;
            self.refresh_used()?;
        }
        if !news.any() && !is_round {
            return Ok(());
        }
        let link = self.network.link_by_index(self.interface.index)?.context("it was removed")?;
        let mac = link.mac.context("it has no link address any more")?;
        if news.links {
            self.taken.follow(&mut self.network, mac)?;
        }
        // Also when only a round is over: a fresh table learns anew who is in use.
        let peers = match &self.role {
            Role::Alone => None,
            Role::BesideSockets(peers) => Some(peers.generation()),
        };
        if news.any() || peers.is_none() || peers != self.known {
            self.routes = routes(&mut self.network, &link, &self.role)?;
            self.known = peers;
        }
        self.board.publish(table(&mut self.network, &link, mac, &self.routes)?);
        if news.any() {
            wake();
        }
        Ok(())
    }

    /// The kernel would make sure of its neighbours when it sends to them; now others do.
    fn refresh_used(&mut self) -> anyhow::Result<()> {
        let table = self.board.table();
        let used: BTreeSet<_> = table.used().collect();
        if used.is_empty() {
            return Ok(());
        }
        for neighbour in self.network.neighbours(self.interface.index)? {
            if neighbour.stale && used.contains(&neighbour.address) {
                self.network.seek_neighbour(self.interface.index, neighbour.address)?;
            }
        }
        Ok(())
    }
}

/// True if the other end is closed.
fn has_ended(mut stopped: &UnixStream) -> bool {
    matches!(io::Read::read(&mut stopped, &mut [0; 1]), Ok(0))
}

impl Drop for Following {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It says itself what goes wrong.
            let _ = thread.join();
        }
    }
}

/// Routes that the kernel knows now.
fn routes(network: &mut Network, link: &Link, role: &Role) -> anyhow::Result<Vec<Route>> {
    if let Role::BesideSockets(peers) = role
        && let Some(routes) = peers.routes(network, link.index)?
    {
        return Ok(routes);
    }
    let mut routes: Vec<_> = network
        .ways(link.index)?
        .into_iter()
        .map(|(to, way)| Route {
            network: to.addr(),
            prefix_len: to.prefix_len(),
            hop: match way {
                NextHop::Direct => Hop::Direct,
                NextHop::Via(router) => Hop::Via(router),
                NextHop::Elsewhere => Hop::Elsewhere,
            },
        })
        .collect();
    if !forwards_broadcasts(link) {
        routes.extend(broadcasts(network, link)?);
    }
    Ok(routes)
}

/// A table with these routes, and the neighbours that the kernel knows now.
fn table(
    network: &mut Network,
    link: &Link,
    mac: [u8; 6],
    routes: &[Route],
) -> anyhow::Result<Table> {
    let neighbours: Vec<_> =
        network.neighbours(link.index)?.iter().map(|n| (n.address, n.mac)).collect();
    Ok(Table::new(mac, link.mtu, routes, &neighbours))
}

/// Routes for the addresses that mean all hosts of the link's IPv4 networks (RFC 1812
/// section 5.3.5.2, RFC 2644): the last of each, and the first, which is its older form.
fn broadcasts(network: &mut Network, link: &Link) -> anyhow::Result<Vec<Route>> {
    let addresses = network.addresses(Some(link.index))?;
    // A network of one or two hosts has none (RFC 3021).
    let networks = addresses.iter().filter(|at| at.addr().is_ipv4() && at.prefix_len() < 31);
    let all = networks.flat_map(|network| [network.broadcast(), network.network()]);
    Ok(all.map(|network| Route { network, prefix_len: 32, hop: Hop::Broadcast }).collect())
}

/// True if the administrator has the host forward packets to all hosts of this link.
fn forwards_broadcasts(link: &Link) -> bool {
    let is_on =
        |scope: Scope| Sysctl::broadcast_forwarding(&scope).read().is_ok_and(|value| value == "1");
    LinkName::new(&link.name).is_ok_and(|name| is_on(Scope::All) && is_on(Scope::Link(name)))
}
