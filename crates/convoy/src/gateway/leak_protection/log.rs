//! Log lines of leak protection.

use convoy_control::site::Site;
use convoy_host::{LinkName, Network};
use convoy_leak_protection::{Config, LeakProtection, PrefixSets, Repaired, interferences};

/// Says what others do to the marks and flows that leak protection needs.
pub(super) fn tell_interferences(config: &Config, asks: bool) {
    match interferences(config, asks) {
        Ok(found) => found.iter().for_each(|it| tracing::warn!("{it}")),
        Err(error) => {
            tracing::warn!("cannot look for packet filter rules that use the same marks: {error}")
        }
    }
}

/// The same where the kernel asks, by a thread of its own: others may have very many rules.
pub(super) fn tell_interferences_later(config: &Config) {
    let config = config.clone();
    let thread = std::thread::Builder::new().name("convoy-marks".into());
    if let Err(error) = thread.spawn(move || tell_interferences(&config, true)) {
        tracing::warn!("cannot look for packet filter rules that use the same marks: {error}");
    }
}

/// Says what somebody changed.
pub(super) fn tell_repaired(repaired: Repaired) {
    if repaired.any() {
        tracing::warn!(
            "another process changed the leak protection; restored: {}{} ip rule(s), {} route(s)",
            if repaired.table { "the table of the packet filter, " } else { "" },
            repaired.rules,
            repaired.routes,
        );
    }
}

/// Says which leak protection of other interfaces stands: it may be that of this gateway under an earlier name.
pub(super) fn tell_others(site: &Site) {
    let others = convoy_leak_protection::interfaces().unwrap_or_default();
    let own = site.plain.tun();
    for other in others.iter().filter(|other| other.as_str() != own) {
        tracing::warn!(
            "leak protection of interface {other} is installed, too, and drops packets through {own} to \
             networks that it protects; if no gateway uses that interface any more, remove it: convoy open {} \
             --interface {other}",
            site.path.display()
        );
    }
}

/// Says where the host does not reach its own links any more, as policies protect what it says to them.
pub(super) fn tell_own_links(site: &Site, sets: &PrefixSets, protection: &LeakProtection) {
    let Ok(mut network) = Network::open() else { return };
    let (Ok(tun), Ok(routes)) = (LinkName::new(site.plain.tun()), network.routes()) else {
        return;
    };
    let tun = network.link(&tun).ok().map(|link| link.index);
    let local = sets.sides().local;
    for route in routes.iter().filter(|route| route.is_unicast && route.via.is_none()) {
        let Some(own) = route.source.filter(|own| route.to.contains(own)) else { continue };
        let is_local = local.iter().any(|net| net.contains(&own));
        if route.link_index != tun
            && route.to.prefix_len() < 31
            && is_local
            && protection.is_remote(own)
        {
            tracing::warn!(
                "policies protect packets from {own} to its own network {}: without an SA no host there can be \
                 reached; give the policies narrower remote addresses, or list the networks behind the tunnels \
                 in plain.routes",
                route.to
            );
        }
    }
}
