//! Changes of a gateway to the host: derived from the site file, applied and taken back by
//! `convoy_host`.

use std::net::IpAddr;

use anyhow::Context as _;
use convoy_control::site::{Association, Finding, Routes, Site, XfrmInterface};
use convoy_host::{Change, IpNet, LinkName, Plan, Route};
use convoy_ipsec::sa::{IpsecProtocol, Mode};
use convoy_ipsec::suite::AhSuite;
use convoy_runtime::may_pin;
use convoy_wire::{IpVersion, Prefix};

use super::paths::routed_mtu;
use crate::exit::Stop;

/// Smallest MTU of an IPv6 link (RFC 8200 section 5).
const V6_LEAST: u16 = 1280;
/// MTU of an Ethernet in bytes, where nothing says otherwise.
const ETHERNET: u16 = 1500;

/// Most bytes that SAs of daemons add to a packet: an outer IPv6 header, UDP, and ESP with
/// AES-CBC, its padding and HMAC-SHA-512-256.
const DAEMONS_ROOM: u16 = 40 + 8 + 8 + 16 + 15 + 2 + 32;

/// Largest outer packet on the way to the peers, in bytes.
#[must_use]
pub fn wire_mtu(site: &Site) -> u16 {
    site.wire.mtu.or_else(|| routed_mtu(site)).unwrap_or(ETHERNET)
}

/// Largest inner packet that fits every outbound SA, whatever daemons bring, in bytes.
#[must_use]
pub fn plain_mtu(site: &Site, wire_mtu: u16) -> u16 {
    plain_mtu_with(site, wire_mtu, None)
}

/// The same where it is known what fits those that daemons have brought.
pub(super) fn plain_mtu_with(site: &Site, wire_mtu: u16, daemons: Option<u16>) -> u16 {
    if let Some(mtu) = site.plain.mtu {
        return mtu;
    }
    let room = site.outbound.iter().map(|sa| inner_room(&sa.association, sa.path_mtu_on(wire_mtu)));
    let room =
        room.chain(site.xfrm.is_some().then(|| daemons.unwrap_or_else(|| daemons_room(wire_mtu))));
    let room = room.min().unwrap_or(wire_mtu);
    let has_v6 = site.plain.addresses.iter().any(|a| a.addr.is_ipv6())
        || networks(site).iter().any(|network| network.addr().is_ipv6());
    // On an interface with less, the kernel knows no IPv6. Over IPv4 such packets are fragmented
    // outside; over IPv6 the wire has to be wide enough for them.
    if has_v6 { room.max(V6_LEAST) } else { room }
}

/// Largest inner packet that fits whatever SA a daemon may bring, in bytes.
const fn daemons_room(wire_mtu: u16) -> u16 {
    wire_mtu.saturating_sub(DAEMONS_ROOM)
}

/// The MTU in bytes that an interface for daemons' SAs begins with.
pub(super) fn interface_mtu(interface: &XfrmInterface, wire_mtu: u16) -> u16 {
    interface.mtu.unwrap_or_else(|| with_v6(daemons_room(wire_mtu)))
}

/// The MTU of such an interface whose SAs have room for inner packets of so many bytes. On one with less
/// than IPv6 needs, the kernel forgets addresses and routes of IPv6, and what they led there would take
/// another way.
pub(super) fn with_v6(room: u16) -> u16 {
    room.max(V6_LEAST)
}

/// Largest inner packet of an SA whose outer packets may have `outer` bytes (RFC 4303 section 2, RFC 4302
/// section 2).
fn inner_room(sa: &Association, outer: u16) -> u16 {
    let ip = if sa.endpoints.local.is_ipv4() { 20 } else { 40 };
    let udp = if sa.encap.is_some() { 8 } else { 0 };
    let room = usize::from(outer.saturating_sub(ip + udp));
    let payload = match sa.protocol {
        IpsecProtocol::Esp => sa.key.esp().layout().max_payload_len(room).unwrap_or(0),
        IpsecProtocol::Ah => {
            let outer = IpVersion::of_addr(sa.endpoints.local);
            let header = AhSuite::new(sa.key.suite()).map_or(0, |suite| suite.header_len(outer));
            room.saturating_sub(header)
        }
    } as u16;
    match sa.mode {
        Mode::Tunnel => payload,
        // The IP header is outside, and stays.
        Mode::Transport => payload + ip,
    }
}

/// Networks that are routed into the plain interface.
fn networks(site: &Site) -> Vec<Prefix> {
    match &site.plain.routes {
        Routes::FromPolicies => site.protected_networks(),
        Routes::Explicit(networks) => networks.clone(),
    }
}

/// The changes, in order.
///
/// # Errors
/// Refuses a route that would lead the protected packets themselves back into the tunnel.
pub fn plan(site: &Site, interface: &str, wire_mtu: u16) -> anyhow::Result<Plan> {
    let link = LinkName::new(interface)?;
    let mut plan = Plan::default();
    if site.plain.backend.is_direct() {
        // The gateway forwards what arrives there; the kernel must not do it as well, in the clear.
        plan.push(Change::Guard { link });
        return Ok(plan);
    }
    let mtu = plain_mtu(site, wire_mtu);
    plan.push(Change::Mtu { link: link.clone(), mtu: mtu.into() });
    for address in &site.plain.addresses {
        let address = net(address.addr, address.prefix_len)?;
        plan.push(Change::Address { link: link.clone(), address });
    }
    plan.push(Change::LinkUp { link: link.clone() });
    for network in networks(site) {
        plan.push(route(site, network, link.clone())?);
    }
    Ok(plan)
}

/// Changes that make the TUN interface work which a direct side has beside it, if it has one.
pub(super) fn beside(site: &Site, wire_mtu: u16) -> anyhow::Result<Plan> {
    let mut plan = Plan::default();
    if site.plain.backend.is_direct() && site.leak_protection {
        let link = LinkName::new(site.plain.tun())?;
        plan.push(Change::Mtu { link: link.clone(), mtu: plain_mtu(site, wire_mtu).into() });
        plan.push(Change::LinkUp { link });
    }
    Ok(plan)
}

/// The route that leads a network into the plain interface.
///
/// # Errors
/// Refuses one that would lead the protected packets themselves back into the tunnel.
pub(super) fn route(site: &Site, network: Prefix, link: LinkName) -> anyhow::Result<Change> {
    let source = no_loop(site, network).map_err(|finding| Stop::usage(finding.to_string()))?;
    let to = net(network.addr(), network.len())?;
    Ok(Change::Route(Route { source, ..Route::new(to, link) }))
}

/// Obstacles to the gateway's start, as far as they can be told without rights and without the
/// interfaces: routes that would lead protected packets back into the tunnel. Empty when all is well.
#[must_use]
pub fn loops(site: &Site) -> Vec<Finding> {
    if site.plain.backend.is_direct() {
        return Vec::new();
    }
    let errors = networks(site).into_iter().filter_map(|network| no_loop(site, network).err());
    errors.map(|finding| *finding).collect()
}

/// CPUs to which workers, or threads of a pool, of this site cannot be bound on this machine.
#[must_use]
pub fn missing_cpus(site: &Site) -> Vec<Finding> {
    let of_workers = site.workers.pin.iter().map(|cpu| ("workers.pin", *cpu));
    let of_pool = site.crypto.pinned().map(|cpu| ("crypto.pool.pin", cpu));
    let errors = of_workers
        .chain(of_pool)
        .filter_map(|(key, cpu)| Some((key, may_pin(usize::from(cpu)).err()?)));
    errors
        .map(|(key, error)| site.finding(key, error.to_string(), "use CPUs that `lscpu` shows"))
        .collect()
}

/// A note that workers are more than processors, if so.
pub(super) fn crowded(site: &Site) -> Option<String> {
    let (workers, processors) = (site.workers.count, std::thread::available_parallelism().ok()?);
    (usize::from(workers) > processors.get()).then(|| {
        format!(
            "{workers} workers share {processors} processors, and slow each other down: lower `count` in \
             [workers]"
        )
    })
}

/// Makes sure that a route through the plain interface does not catch the protected packets. Returns
/// the source address of the host's own packets there, if it has to be a certain one: that of an SA of
/// transport mode.
fn no_loop(site: &Site, network: Prefix) -> Result<Option<IpAddr>, Box<Finding>> {
    let mut source = None;
    let sas = site.outbound.iter().map(|sa| &sa.association);
    for sa in sas.filter(|sa| network.contains(sa.endpoints.remote)) {
        let help = match (sa.mode, site.wire.backend.is_direct(), &site.wire.interface) {
            // They leave through the interface that the sockets are bound to, whatever routes say.
            (Mode::Transport, false, Some(_))
                if source.is_none_or(|it| it == sa.endpoints.local) =>
            {
                source = Some(sa.endpoints.local);
                continue;
            }
            (Mode::Transport, false, Some(_)) => {
                "it has a source address, and other SAs of transport mode there have another: list a \
                 network for each of the peers in `routes`"
            }
            (Mode::Transport, false, None) => {
                "name the interface in `wire.interface`; protected packets then leave through it \
                 whatever the routes say"
            }
            (Mode::Transport, true, _) => {
                "transport mode needs a wire of sockets: leave `wire.backend` out and name the \
                 interface in `wire.interface`"
            }
            (Mode::Tunnel, ..) => {
                "list narrower networks in `routes`, or set `routes = \"none\"` and route by policy \
                 rules of your own"
            }
        };
        let what = format!(
            "a route to {network} through {} would also catch the packets that SA '{}' sends to {}",
            site.plain.interface, sa.name, sa.endpoints.remote,
        );
        return Err(Box::new(site.finding("plain.routes", what, help)));
    }
    Ok(source)
}

pub(super) fn net(addr: IpAddr, len: u8) -> anyhow::Result<IpNet> {
    IpNet::new(addr, len).with_context(|| format!("{addr}/{len}"))
}
