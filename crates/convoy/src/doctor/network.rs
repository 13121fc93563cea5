//! The network: routes and settings that work against leak protection, the packet filter, and MTUs.

use std::path::Path;

use convoy_control::site::Site;
use convoy_host::{HostError, IpNet, LinkName, Network, RouteBy};
use convoy_leak_protection::{
    Config, Fill, Finding, Interference, Lead, LeakProtectionError, Look, connections, findings,
    has_legacy_rules, interferences,
};

use super::check::{Check, Patient};
use super::modules::{self, Need};
use crate::gateway;

pub(super) fn look(root: &Path, patient: &Patient<'_>) -> Vec<Check> {
    let Ok(link) = LinkName::new(&patient.interface) else { return Vec::new() };
    let for_daemons = patient.site.is_none_or(|site| site.xfrm.is_some());
    let leads = if for_daemons { Lead::ByMark } else { Lead::ByDestination };
    let config = patient
        .site
        .map_or_else(|| Config::new(link.clone()), |site| gateway::configured(site, link.clone()));
    let config = Config { leads, ..config };
    let asks_now = convoy_leak_protection::asks(config.clone()).unwrap_or(false);
    let asks = asks_now || patient.site.is_some_and(gateway::will_ask);
    let is_held = patient.site.is_none_or(|site| site.leak_protection);
    // Where the kernel asks, rules lead to tables of their own, ahead of the main one.
    let led = if asks { Config { leads: Lead::ByMark, ..config.clone() } } else { config.clone() };
    let mut checks = routes(patient, &led).unwrap_or_else(|error| vec![unseen("routes", &error)]);
    // Without a site file only the usual place was looked at for a gateway.
    let is_running = patient.is_running.filter(|is_running| *is_running || patient.site.is_some());
    checks.push(filter(&config, is_running));
    checks.extend(table_of_connections());
    if is_held {
        checks.extend(others(&config, asks));
        // Sites without daemons that need no questions need no modules for them.
        let is_rewritten =
            || convoy_leak_protection::others(&config).is_ok_and(|others| others.rewrite);
        let need = match asks {
            true => Need::Policies,
            false if for_daemons && is_rewritten() => Need::Nat,
            false => Need::None,
        };
        if !asks_now && (asks || for_daemons) {
            checks.push(modules::look(root, need));
        }
    }
    checks.extend(interface(patient, &link));
    checks.extend(mtus(patient, &link));
    checks.extend(shared(patient));
    checks.extend(guarded(patient));
    checks
}

fn unseen(about: &'static str, error: &HostError) -> Check {
    Check::note(about, format!("cannot be read: {error}"))
}

fn routes(patient: &Patient<'_>, config: &Config) -> Result<Vec<Check>, HostError> {
    let look = Look::around(config, &patient.peers, patient.wire())?;
    let of_site = patient.site.map(|site| site.protected_networks()).unwrap_or_default();
    let of_site = of_site.iter().filter_map(|net| IpNet::new(net.addr(), net.len()).ok());
    let mut protected = convoy_leak_protection::remote_prefixes(config.clone()).unwrap_or_default();
    protected.extend(of_site);
    protected.sort();
    protected.dedup();
    let found = findings(&look, config, &protected);
    Ok(match found.is_empty() {
        true if protected.is_empty() => {
            vec![Check::ok("routes", "no conflicts; no network is protected now")]
        }
        true => vec![Check::ok(
            "routes",
            format!("no conflicts with {} protected network(s)", protected.len()),
        )],
        false => found.iter().map(judged).collect(),
    })
}

fn judged(finding: &Finding) -> Check {
    match finding {
        // As a host without a network behind it wants it.
        Finding::ForwardingOff { .. } => Check::note("routes", finding.to_string()),
        _ => Check::problem("routes", finding.to_string()),
    }
}

/// Interference of others with the marks and flows that leak protection needs.
fn others(config: &Config, asks: bool) -> Vec<Check> {
    const ABOUT: &str = "marks and flows";
    let found = match interferences(config, asks) {
        Ok(found) => found,
        Err(error) => return vec![Check::note(ABOUT, format!("cannot be read: {error}"))],
    };
    let judged = found.iter().map(|it| match it {
        Interference::Untracked { .. }
        | Interference::AsksForIpsec { .. }
        | Interference::NotUnderstood { .. } => Check::note(ABOUT, it.to_string()),
        _ => Check::problem(ABOUT, it.to_string()),
    });
    let mut checks: Vec<_> = judged.collect();
    if has_legacy_rules() {
        checks.push(Check::note(
            ABOUT,
            "rules of iptables-legacy cannot be read here: `iptables-legacy-save` shows whether they write \
             marks",
        ));
    }
    if checks.is_empty() {
        checks.push(Check::ok(
            ABOUT,
            "no other rule uses the same bits of marks, and none offloads flows",
        ));
    }
    checks
}

/// Fill of the kernel's table of connections, if it tracks any.
fn table_of_connections() -> Option<Check> {
    const ABOUT: &str = "table of connections";
    let Fill { entries, limit } = match connections() {
        Ok(fill) => fill.filter(|fill| fill.entries > 0)?,
        Err(error) => return Some(Check::note(ABOUT, format!("cannot be read: {error}"))),
    };
    let fill = Fill { entries, limit };
    Some(match fill.has_reached(gateway::NEARLY_FULL) {
        true => Check::problem(ABOUT, gateway::nearly_full(entries, limit)),
        false => Check::ok(ABOUT, format!("{entries} of at most {limit} entries")),
    })
}

fn filter(config: &Config, is_running: Option<bool>) -> Check {
    const ABOUT: &str = "packet filter";
    let table = config.table();
    match convoy_leak_protection::is_installed(config.clone()) {
        Ok(true) if is_running == Some(false) => Check::note(
            ABOUT,
            format!(
                "table inet {table} is installed and drops protected packets, because no gateway answers: \
                 start the gateway, or let the packets pass in clear: convoy open SITE.toml"
            ),
        ),
        Ok(true) => Check::ok(ABOUT, format!("table inet {table} is installed")),
        Ok(false) => Check::ok(
            ABOUT,
            format!("the kernel has nf_tables; table inet {table} is not installed now"),
        ),
        Err(error @ LeakProtectionError::Denied { .. }) => {
            Check::note(ABOUT, format!("cannot be read: {error}"))
        }
        Err(error) => Check::problem(
            ABOUT,
            format!(
                "{error}: without nf_tables there is no leak protection, and a gateway does not start; load \
                 the kernel module nf_tables"
            ),
        ),
    }
}

/// The TUN interface of a gateway that runs.
fn interface(patient: &Patient<'_>, link: &LinkName) -> Option<Check> {
    const ABOUT: &str = "TUN interface";
    // One that forwards by itself has such an interface for the host's packets alone.
    let has_one = |site: &&Site| site.leak_protection || !site.plain.backend.is_direct();
    patient.site.filter(|_| patient.is_running == Some(true)).filter(has_one)?;
    Some(match Network::open().and_then(|mut network| network.link(link)) {
        Ok(it) if it.up => Check::ok(ABOUT, format!("{link} is up")),
        Ok(_) => Check::problem(
            ABOUT,
            format!("{link} is down, so nothing passes: ip link set {link} up"),
        ),
        Err(HostError::NoSuchLink { .. }) => Check::problem(
            ABOUT,
            format!(
                "a gateway runs, and {link} is not here: it was renamed, or moved to another network namespace; \
                 `convoy status` says what to do"
            ),
        ),
        Err(error) => unseen(ABOUT, &error),
    })
}

/// The way to each peer, and whether what comes through the TUN interface fits there.
fn mtus(patient: &Patient<'_>, link: &LinkName) -> Vec<Check> {
    const ABOUT: &str = "MTU";
    let Ok(mut network) = Network::open() else { return Vec::new() };
    let inner = network.link(link).ok().map(|link| link.mtu);
    if let Some(wire) = patient.wire() {
        network.bind(wire);
    }
    let ways = patient
        .peers
        .iter()
        .filter_map(|peer| Some((peer, network.mtu_to(*peer, RouteBy::default()).ok()?)));
    ways.collect::<Vec<_>>()
        .into_iter()
        .map(|(peer, outer)| match inner {
            Some(inner) if inner >= outer => Check::problem(
                ABOUT,
                format!(
                    "path MTU to {peer} is {outer} bytes, but {link} takes inner packets of {inner}, to which \
                     ESP adds its headers: lower `mtu` in [plain], or leave it out"
                ),
            ),
            Some(inner) => {
                Check::ok(ABOUT, format!("{outer} bytes to {peer}, inner packets up to {inner}"))
            }
            None => Check::ok(ABOUT, format!("{outer} bytes to {peer}")),
        })
        .collect()
}

/// Rules by which the kernel does not forward what a gateway did that runs no more.
fn guarded(patient: &Patient<'_>) -> Option<Check> {
    if patient.is_running != Some(false) {
        return None;
    }
    let mut found = Network::open().and_then(|mut network| network.guarded()).ok()?;
    // Others may be of a gateway that runs.
    let site = patient.site?;
    found.retain(|link| *link == site.plain.interface);
    let link = found.first()?;
    Some(Check::note(
        "ip rules",
        format!(
            "rule 1 (iif {link} blackhole) keeps the kernel from forwarding what arrives on {link}, because no gateway \
             answers: start the gateway, or let the packets pass in clear: convoy open SITE.toml"
        ),
    ))
}

/// Interfaces whose packets go out and come in by the wire's device without passing this host.
fn shared(patient: &Patient<'_>) -> Option<Check> {
    let mut network = Network::open().ok()?;
    if let Some(wire) = patient.wire() {
        network.bind(wire);
    }
    let mut ways: Vec<u32> = patient
        .peers
        .iter()
        .filter_map(|peer| Some(network.route_to(*peer, None).ok()?.link_index))
        .collect();
    let named = patient.wire().and_then(|name| LinkName::new(name).ok());
    ways.extend(named.and_then(|name| Some(network.link(&name).ok()?.index)));
    ways.sort_unstable();
    ways.dedup();
    let found = ways.into_iter().flat_map(|way| network.sharing(way).unwrap_or_default());
    let mut found: Vec<_> = found.collect();
    found.sort();
    found.dedup();
    (!found.is_empty()).then(|| {
        Check::note(
            "wire interface",
            format!(
                "{} of kind macvlan or ipvlan share its device: their packets pass in clear, without this \
                 host's routes and packet filter; protect them where they begin, or put these interfaces on \
                 another device",
                found.join(", ")
            ),
        )
    })
}
