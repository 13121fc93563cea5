//! Choice between AF_XDP, packet sockets that send, and sockets alone for native ESP and AH.

use std::collections::BTreeSet;
use std::net::IpAddr;

use convoy_control::site::Site;
use convoy_host::netlink::nft::ruleset::{ChainName, Ruleset};
use convoy_host::{Link, LinkName, Network, RouteBy};
use convoy_io::xdp;
use convoy_ipsec::snapshot::Snapshot;

/// Drivers that attach an XDP program without taking their link down for a while, or other traffic's offloads away.
/// More are possible, and were not measured.
const QUIET_DRIVERS: [&str; 1] = ["veth"];
/// Queueing disciplines that nobody has to set up.
const USUAL_QDISCS: [&str; 7] = ["", "noqueue", "mq", "fq_codel", "fq", "pfifo_fast", "pfifo"];
/// Beginning of the names of gateways' own tables of the packet filter.
const OWN_TABLES: &str = "convoy-";
/// `NFPROTO_NETDEV`, whose chains belong to interfaces.
const OF_INTERFACES: u8 = 5;
/// `NF_INET_FORWARD`: ESP to and from this host never comes there.
const FORWARD: u32 = 2;
/// `NF_INET_LOCAL_OUT` and `NF_INET_POST_ROUTING`.
const LEAVING: [u32; 2] = [3, 4];

/// Outbound SAs, as far as the choice depends on them.
pub(super) struct Sas {
    /// Local and remote addresses of those without UDP.
    pub(super) native: BTreeSet<(IpAddr, IpAddr)>,
    has_udp: bool,
}

impl Sas {
    pub(super) fn of_site(site: &Site) -> Self {
        let all = site.outbound.iter().map(|sa| &sa.association);
        let ends = all.map(|sa| ((sa.endpoints.local, sa.endpoints.remote), sa.encap.is_some()));
        Self::of(ends)
    }

    pub(super) fn of_snapshot(snapshot: &Snapshot) -> Self {
        let all = snapshot.outbound_sas().map(|(_, sa)| sa);
        Self::of(all.map(|sa| ((sa.endpoints.local, sa.endpoints.remote), sa.encap.is_some())))
    }

    fn of(all: impl Iterator<Item = ((IpAddr, IpAddr), bool)>) -> Self {
        let (mut native, mut has_udp) = (BTreeSet::new(), false);
        for (ends, is_udp) in all {
            has_udp |= is_udp;
            if !is_udp {
                native.insert(ends);
            }
        }
        Self { native, has_udp }
    }
}

/// Says why AF_XDP would not be right on an interface.
///
/// # Errors
/// The reason, or what the kernel refuses.
pub(super) fn may_be_xdp(interface: &str, sas: &Sas) -> anyhow::Result<()> {
    anyhow::ensure!(!sas.has_udp, "there are SAs in UDP, which sockets carry faster than AF_XDP");
    passes_nothing_by(interface)?;
    let driver = xdp::driver(interface)?;
    anyhow::ensure!(
        QUIET_DRIVERS.contains(&driver.as_str()),
        "the driver of interface {interface}{} may interrupt its link, or slow other traffic, when an XDP program is attached (backend = \
         \"af_xdp\" asks for it all the same)",
        if driver.is_empty() { String::new() } else { format!(", {driver},") }
    );
    Ok(())
}

/// Says why packet sockets would not be right to send on an interface. Its queueing discipline sees what they send, and so do
/// captures; chains of the packet filter for packets that leave the host do not.
///
/// # Errors
/// The reason, or what the kernel refuses.
pub(super) fn may_send(interface: &str) -> anyhow::Result<()> {
    let link = Network::open()?.link(&LinkName::new(interface)?)?;
    let is_ethernet = link.mac.is_some_and(|mac| mac != [0; 6]);
    anyhow::ensure!(is_ethernet, "interface {interface} has no Ethernet headers");
    no_chains("packet sockets", |chain, hook| {
        chain.family != OF_INTERFACES && LEAVING.contains(&hook)
    })
}

/// The interface that leads to all peers of native SAs.
///
/// # Errors
/// Says why there is none, or what the kernel refuses.
pub(super) fn interface(site: &Site, sas: &Sas) -> anyhow::Result<String> {
    anyhow::ensure!(
        !sas.native.is_empty(),
        if sas.has_udp { "all SAs are in UDP" } else { "there is no SA of native ESP or AH yet" }
    );
    interface_of(site, sas, &mut Network::open()?)
}

/// The interface that leads to all peers.
fn interface_of(site: &Site, sas: &Sas, network: &mut Network) -> anyhow::Result<String> {
    if let Some(interface) = &site.wire.interface {
        return Ok(interface.clone());
    }
    let mark = super::mark(site);
    let mut chosen: Option<String> = None;
    for (from, to) in &sas.native {
        let by = RouteBy { from: Some(*from), link: None, mark };
        let link = network.route_by(*to, by)?.link;
        let is_same = chosen.as_ref().is_none_or(|chosen| *chosen == link);
        anyhow::ensure!(is_same, "peers are behind several interfaces");
        chosen = Some(link);
    }
    chosen.ok_or_else(|| anyhow::anyhow!("no route leads to a peer"))
}

/// Refuses AF_XDP where it would pass by what somebody has set up on the host.
///
/// # Errors
/// Says what that is, or what the kernel refuses.
pub(super) fn passes_nothing_by(interface: &str) -> anyhow::Result<()> {
    let Link { qdisc, .. } = Network::open()?.link(&LinkName::new(interface)?)?;
    anyhow::ensure!(
        USUAL_QDISCS.contains(&qdisc.as_str()),
        "interface {interface} has queueing discipline {qdisc}, which AF_XDP would pass by"
    );
    no_chains("AF_XDP", |chain, hook| chain.family == OF_INTERFACES || hook != FORWARD)
}

/// Refuses where the packet filter has chains of others that see ESP of this host.
fn no_chains(who: &str, sees: impl Fn(&ChainName, u32) -> bool) -> anyhow::Result<()> {
    let places = Ruleset::read_places().map_err(|refusal| anyhow::anyhow!("{refusal}"))?;
    let seen = places
        .iter()
        .find(|(chain, (hook, _))| !chain.table.starts_with(OWN_TABLES) && sees(chain, *hook));
    if let Some((ChainName { table, chain, .. }, _)) = seen {
        anyhow::bail!(
            "chain {chain} of table {table} of the packet filter sees packets of this host, and {who} would pass it by"
        );
    }
    let is_used = |file| std::fs::read_to_string(file).is_ok_and(|text| !text.is_empty());
    anyhow::ensure!(
        !["/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"].into_iter().any(is_used),
        "iptables has rules, which {who} would pass by"
    );
    Ok(())
}
