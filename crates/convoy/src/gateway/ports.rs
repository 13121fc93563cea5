//! Opens what a gateway receives from and sends to.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use convoy_control::site::{Association, Backend, BetweenTunnels, FastPath, Site, Wire};
use convoy_io::pcap::{Recorder, RecorderConfig, Tap};
use convoy_io::udp::{Form, Steering};
use convoy_io::{Beside, HostAddresses, IoError, Port, SocketOptions, SpiFilter, raw, tun, udp};
use convoy_ipsec::sa::IpsecProtocol;
use convoy_packet::Arena;
use convoy_runtime::{WireMatch, WirePort, WorkerPorts};

use super::carriers::Carriers;
use super::direct::{Follower, Side};
use super::fast_path::Way;
use super::late_ports::{LatePorts, is_held};
use super::plan::wire_mtu;
use super::{interfaces, rights};

/// A kind of wire socket that SAs need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Socket {
    /// Native ESP at an address (unspecified: any).
    Raw(IpAddr),
    /// AH at an address (unspecified: any).
    Ah(IpAddr),
    /// ESP in UDP at an address (unspecified: any).
    Udp(IpAddr),
}

impl Socket {
    /// Kind and address, in words.
    #[must_use]
    pub fn describe(self, udp_port: u16) -> String {
        let at = |addr: IpAddr| match addr.is_unspecified() {
            true if addr.is_ipv4() => "any IPv4 address".to_owned(),
            true => "any IPv6 address".to_owned(),
            false => addr.to_string(),
        };
        match self {
            Self::Raw(addr) => format!("a raw socket for ESP (protocol 50) on {}", at(addr)),
            Self::Ah(addr) => format!("a raw socket for AH (protocol 51) on {}", at(addr)),
            Self::Udp(addr) => format!("UDP port {udp_port} on {}", at(addr)),
        }
    }

    /// The same at any address of its IP version.
    fn at_any(self) -> Self {
        let any = |local: IpAddr| match local {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        match self {
            Self::Raw(local) => Self::Raw(any(local)),
            Self::Ah(local) => Self::Ah(any(local)),
            Self::Udp(local) => Self::Udp(any(local)),
        }
    }

    /// Kind of packets that it carries, and its address.
    fn parts(self) -> (Carried, IpAddr) {
        match self {
            Self::Raw(addr) => (Carried::Esp, addr),
            Self::Ah(addr) => (Carried::Ah, addr),
            Self::Udp(addr) => (Carried::Udp, addr),
        }
    }

    /// True if packets of this kind at this local address are served.
    fn serves(self, local: IpAddr, carried: Carried) -> bool {
        let (mine_carries, mine) = self.parts();
        mine_carries == carried
            && mine.is_ipv4() == local.is_ipv4()
            && (mine.is_unspecified() || mine == local)
    }
}

/// Outer form of the packets of an SA.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Carried {
    Esp,
    Ah,
    Udp,
}

impl Carried {
    fn of(sa: &Association) -> Self {
        match (sa.protocol, sa.encap) {
            (IpsecProtocol::Ah, _) => Self::Ah,
            (IpsecProtocol::Esp, None) => Self::Esp,
            (IpsecProtocol::Esp, Some(_)) => Self::Udp,
        }
    }
}

/// The sockets that the SAs of a site need: one per kind and IP version, bound to the one local
/// address of its SAs, or to any address where they have several.
#[must_use]
pub fn sockets(site: &Site) -> Vec<Socket> {
    if site.xfrm.is_some() {
        return for_daemons();
    }
    let mut sockets = Vec::new();
    for carried in [Carried::Esp, Carried::Ah, Carried::Udp] {
        for v4 in [true, false] {
            let locals: BTreeSet<IpAddr> = site
                .associations()
                .filter(|sa| Carried::of(sa) == carried && sa.endpoints.local.is_ipv4() == v4)
                .map(|sa| sa.endpoints.local)
                .collect();
            let any = if v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
            let local = match locals.len() {
                0 => continue,
                1 => locals.first().copied().unwrap_or(any),
                _ => any,
            };
            sockets.push(match carried {
                Carried::Esp => Socket::Raw(local),
                Carried::Ah => Socket::Ah(local),
                Carried::Udp => Socket::Udp(local),
            });
        }
    }
    sockets
}

/// The first SA of a site that none of the open sockets serves, by name.
#[must_use]
pub(super) fn unserved(site: &Site, open: &[Socket]) -> Option<String> {
    let served = |local, carried| open.iter().any(|socket| socket.serves(local, carried));
    site.associations()
        .find(|sa| !served(sa.endpoints.local, Carried::of(sa)))
        .map(|sa| sa.name.to_string())
}

/// IKE daemons bring SAs of any kind and address.
fn for_daemons() -> Vec<Socket> {
    let v4 = IpAddr::from(Ipv4Addr::UNSPECIFIED);
    // A kernel without IPv6 has no such file, and no such sockets.
    let v6 = Path::new("/proc/net/if_inet6").exists();
    let versions = [Some(v4), v6.then_some(Ipv6Addr::UNSPECIFIED.into())].into_iter().flatten();
    versions.flat_map(|any| [Socket::Raw(any), Socket::Ah(any), Socket::Udp(any)]).collect()
}

/// Ports of all workers, the name of the plain interface, and the recording of the wire, if any.
#[derive(Debug)]
pub(super) struct Opened {
    /// One entry per worker.
    pub(super) workers: Vec<WorkerPorts>,
    /// The plain interface's name.
    pub(super) interface: String,
    /// The TUN interface, if there is one.
    pub(super) device: Option<tun::Device>,
    /// Sockets that are open, or, where the wire side is direct, those that would do the same.
    pub(super) sockets: Vec<Socket>,
    /// Writes the capture; the file is complete when this is dropped.
    pub(super) recorder: Option<Recorder>,
    /// Handles that follow the kernel's tables, for each side that is direct.
    pub(super) followers: Vec<Follower>,
    /// Way of native ESP and AH beside sockets, and what follows the kernel's tables for it.
    pub(super) fast_path: (Way, Option<Follower>),
    /// Handles that share UDP ports with IKE daemons.
    pub(super) shared: Vec<Steering>,
    /// UDP ports that somebody else has.
    pub(super) late: LatePorts,
}

/// Opens both sides in the calling thread's network namespace.
///
/// Sockets bear the gateway's mark if `is_marked`.
///
/// # Errors
/// Names what could not be opened, and the right that is missing if that is the reason.
pub(super) fn open(
    site: &Site,
    sides: Sides,
    arena: &'static Arena,
    is_marked: bool,
    carriers: &Carriers,
    filter: Option<&Arc<SpiFilter>>,
) -> anyhow::Result<Opened> {
    let count = site.workers.count;
    let recorder = site
        .capture
        .as_ref()
        .map(|capture| {
            let bytes = u64::from(capture.max_mib) << 20;
            // Packets that were cut short cannot be decrypted.
            let snap = wire_mtu(site).max(RecorderConfig::default().snap);
            let config = RecorderConfig { file_bytes: bytes, snap, ..RecorderConfig::default() };
            Recorder::create(&capture.file, config)
                .with_context(|| capture.file.display().to_string())
        })
        .transpose()?;
    let mut followers = Vec::new();
    let (interface, plain, device) = match sides.plain {
        Some(side) => {
            let addresses = side.host_addresses();
            let (ports, follower) = side.open(count, arena)?;
            followers.push(follower);
            let (ports, device) = match site.leak_protection {
                true => beside_host(ports, addresses, site).map(|(all, it)| (all, Some(it)))?,
                false => (ports, None),
            };
            (site.plain.interface.clone(), ports, device)
        }
        None => {
            let (ports, device) = open_tun(site, is_marked, count)?;
            (device.name().to_owned(), ports, Some(device))
        }
    };
    let mut workers: Vec<_> = plain
        .into_iter()
        .zip(interfaces::open(site, carriers)?)
        .map(|(plain, interfaces)| WorkerPorts { plain, interfaces, wire: Vec::new() })
        .collect();
    let mut sockets = sockets(site);
    let mut shared = Vec::new();
    let mut late = LatePorts::new(is_marked);
    let (way, beside) = Way::at_start(site, arena)?;
    let mut fast_path_follower = None;
    let mut add = |carries: WireMatch, ports: Ports| {
        for (worker, port) in workers.iter_mut().zip(wire(carries, ports, recorder.as_ref())) {
            worker.wire.push(port);
        }
    };
    match sides.wire {
        Some(side) => {
            // First: what hears ICMP messages for the interface leaves the port to them.
            let joined = joined_datagrams(site, &sockets)?;
            let (ports, follower) = side.open(count, arena)?;
            followers.push(follower);
            // Ahead of the others: all is sent through the interface.
            add(WireMatch::default(), ports);
            // One worker receives them all, and hands over what is not its own.
            joined.into_iter().for_each(|ports| add(WireMatch::default(), ports));
            // Nothing is bound: whatever address comes with a reload can be taken.
            sockets = sockets.into_iter().map(Socket::at_any).collect();
        }
        None => {
            let (ports, follower) = beside.map(|it| (it.ports, it.follower)).unzip();
            fast_path_follower = follower;
            // Ahead of sockets, which get what it cannot send.
            ports.into_iter().for_each(|ports| add(WireMatch::default(), ports));
            for socket in &sockets {
                let (local, protocol) = match *socket {
                    Socket::Raw(local) => (local, raw::ESP),
                    Socket::Ah(local) => (local, raw::AH),
                    Socket::Udp(local) => {
                        let at = SocketAddr::new(local, site.wire.udp_port);
                        match open_udp(local, site, is_marked) {
                            Ok(UdpPorts { carries, ports, steering }) => {
                                shared.extend(steering);
                                add(carries, ports);
                            }
                            Err(error) if is_held(&error) => late.wait(at, &error),
                            Err(error) => {
                                return Err(rights::explain(error, rights::Need::Udp(at)));
                            }
                        }
                        continue;
                    }
                };
                let (carries, ports) = open_raw(local, protocol, site, is_marked, filter)?;
                add(carries, ports);
            }
        }
    }
    let fast_path = (way, fast_path_follower);
    Ok(Opened { workers, interface, device, sockets, recorder, followers, fast_path, shared, late })
}

/// The sides that go through an interface directly.
#[derive(Debug)]
pub(super) struct Sides {
    pub(super) plain: Option<Side>,
    pub(super) wire: Option<Side>,
}

impl Sides {
    /// Looks at their interfaces.
    pub(super) fn new(site: &Site) -> anyhow::Result<Self> {
        Ok(Self { plain: Side::plain(site)?, wire: Side::wire(site)? })
    }
}

fn open_tun(site: &Site, is_marked: bool, queues: u16) -> anyhow::Result<(Ports, tun::Device)> {
    // Where the host has packets go from tunnel to tunnel, senders that seem to be on its networks may be behind one.
    let is_between =
        site.plain.between_tunnels == BetweenTunnels::Host || !site.xfrm_interfaces().is_empty();
    // An interface also brings what passes in clear, and what others say about that.
    let is_gateways_own = !is_between && !site.wire.backend.is_direct();
    let mark = if is_marked { site.marks.exempt.value } else { 0 };
    let error_mark = Some(mark).filter(|_| is_gateways_own);
    let returns = true;
    let config =
        tun::Config { queues, error_mark, returns, ..tun::Config::new(&site.plain.interface) };
    let tun = tun::open(&config).map_err(|e| rights::explain(e, rights::Need::Tun))?;
    let device = tun::Device::of(&tun, config)?;
    Ok((boxed(tun), device))
}

/// Ports on an interface, and beside each a queue of a TUN interface for what is from and for the host itself.
fn beside_host(
    ports: Ports,
    addresses: Arc<HostAddresses>,
    site: &Site,
) -> anyhow::Result<(Ports, tun::Device)> {
    let queues = u16::try_from(ports.len()).unwrap_or(u16::MAX);
    let config = tun::Config { queues, returns: true, ..tun::Config::new(site.plain.tun()) };
    let tun = tun::open(&config).map_err(|e| rights::explain(e, rights::Need::Tun)).context(
        "the host's own packets cannot be led into tunnels (leak_protection = false in the site file turns \
         that off)",
    )?;
    let device = tun::Device::of(&tun, config)?;
    let both = ports.into_iter().zip(boxed(tun)).map(|(port, host)| {
        let port = Beside::new(port, host, Arc::clone(&addresses))?;
        Ok(Box::new(port) as Box<dyn Port>)
    });
    both.collect::<anyhow::Result<_>>().map(|ports| (ports, device))
}

/// Parts of the wire side, in words.
#[must_use]
pub fn describe_wire(site: &Site) -> Vec<String> {
    match (site.wire.backend, &site.wire.interface) {
        (Backend::AfPacket, Some(interface)) => {
            vec![format!("packet sockets on interface {interface}")]
        }
        (Backend::AfXdp, Some(interface)) => vec![format!("xdp sockets on interface {interface}")],
        _ => {
            let is_needed = site.wire.fast_path == FastPath::Needed;
            let interface = site.wire.interface.as_ref().filter(|_| is_needed);
            let beside = interface
                .map(|name| format!("xdp sockets on interface {name}, for native ESP and AH"));
            sockets(site).iter().map(|s| s.describe(site.wire.udp_port)).chain(beside).collect()
        }
    }
}

type Ports = Vec<Box<dyn Port>>;

/// Options of the wire side's sockets. The mark tells leak protection that packets are the gateway's own.
fn options(site: &Site, is_marked: bool) -> SocketOptions {
    SocketOptions {
        device: site.wire.interface.clone(),
        mark: is_marked.then_some(site.marks.exempt.value),
        ..SocketOptions::default()
    }
}

/// Packets that a socket for ESP in UDP carries.
fn udp_match(local: IpAddr, udp_port: u16) -> WireMatch {
    let version = Some(if local.is_ipv4() { 4 } else { 6 });
    WireMatch { version, protocol: Some(17), source_port: Some(udp_port) }
}

/// Sockets of all workers for ESP in UDP.
pub(super) struct UdpPorts {
    pub(super) carries: WireMatch,
    pub(super) ports: Ports,
    /// Handle that shares the port with IKE daemons, where they are served.
    pub(super) steering: Option<Steering>,
}

/// Opens the UDP port at a local address.
///
/// # Errors
/// Fails if the kernel refuses.
pub(super) fn open_udp(local: IpAddr, site: &Site, is_marked: bool) -> Result<UdpPorts, IoError> {
    let udp_port = site.wire.udp_port;
    let config = udp::Config {
        workers: site.workers.count,
        options: options(site, is_marked),
        ..udp::Config::new(SocketAddr::new(local, udp_port))
    };
    let (ports, steering) = match site.xfrm {
        Some(_) => {
            udp::share(&config, Form::Extended).map(|(ports, steering)| (ports, Some(steering)))?
        }
        None => (udp::open(&config)?, None),
    };
    Ok(UdpPorts { carries: udp_match(local, udp_port), ports: boxed(ports), steering })
}

/// The same ports as workers have them, recorded where that is asked for.
pub(super) fn wire(carries: WireMatch, ports: Ports, recorder: Option<&Recorder>) -> Vec<WirePort> {
    let ports = ports.into_iter().map(|port| match recorder {
        Some(recorder) => Box::new(Tap::new(port, recorder)),
        None => port,
    });
    ports.map(|port| WirePort { carries, port }).collect()
}

/// A group of sockets at the very address of a daemon's socket, which is shareable and would otherwise get all
/// that is sent there.
///
/// # Errors
/// Fails if it cannot be opened.
pub(super) fn open_beside(
    socket: BorrowedFd<'_>,
    site: &Site,
) -> Result<(Vec<WirePort>, Steering), IoError> {
    let config = udp::Config::beside(socket)?;
    let options = SocketOptions { device: config.options.device.clone(), ..options(site, true) };
    let config = udp::Config { workers: site.workers.count, options, ..config };
    let (ports, steering) = udp::share(&config, Form::Extended)?;
    let carries = udp_match(config.local.ip(), config.local.port());
    let ports = boxed(ports).into_iter().map(|port| WirePort { carries, port }).collect();
    Ok((ports, steering))
}

fn open_raw(
    local: IpAddr,
    protocol: u8,
    site: &Site,
    is_marked: bool,
    filter: Option<&Arc<SpiFilter>>,
) -> anyhow::Result<(WireMatch, Ports)> {
    let (workers, options) = (site.workers.count, options(site, is_marked));
    let filter = filter.cloned();
    let config = raw::Config { workers, options, protocol, filter, ..raw::Config::new(local) };
    let version = Some(if local.is_ipv4() { 4 } else { 6 });
    let carries = WireMatch { version, protocol: Some(protocol), source_port: None };
    raw::open(&config)
        .map(|ports| (carries, boxed(ports)))
        .map_err(|error| rights::explain(error, rights::Need::Raw(local)))
}

/// Opens sockets for ESP in UDP that comes in fragments, which cannot be taken from the interface:
/// the kernel puts them together. Whole packets never come there.
fn joined_datagrams(site: &Site, sockets: &[Socket]) -> anyhow::Result<Vec<Ports>> {
    let mut opened = Vec::new();
    for socket in sockets.iter().filter(|_| site.wire.backend == Backend::AfXdp) {
        let Socket::Udp(local) = socket.at_any() else { continue };
        match open_joined(local, &site.wire) {
            Ok(ports) => opened.push(ports),
            Err(error) if is_held(&error) => {
                tracing::warn!(
                    "UDP port {} is in use by another program, so ESP in UDP that arrives in fragments is \
                     lost: avoid fragments on the paths to its peers (`path_mtu`)",
                    site.wire.udp_port,
                );
            }
            Err(error) => {
                let need = rights::Need::Udp(SocketAddr::new(local, site.wire.udp_port));
                return Err(rights::explain(error, need));
            }
        }
    }
    Ok(opened)
}

fn open_joined(local: IpAddr, wire: &Wire) -> Result<Ports, IoError> {
    let options = SocketOptions { device: wire.interface.clone(), ..SocketOptions::default() };
    let at = SocketAddr::new(local, wire.udp_port);
    udp::open(&udp::Config { options, ..udp::Config::new(at) }).map(boxed)
}

fn boxed<P: Port + 'static>(ports: Vec<P>) -> Ports {
    ports.into_iter().map(|port| Box::new(port) as Box<dyn Port>).collect()
}
