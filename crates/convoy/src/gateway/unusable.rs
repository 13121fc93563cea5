//! Reasons for which a site cannot run on this machine, found before anything is changed.

use convoy_control::lease;
use convoy_control::site::{Action, Addresses, Finding, Policy, Routes, Site};
use convoy_host::{Conflict, HostError, IpNet, LinkName, Netns, Network, Route};
use convoy_ipsec::sa::IpsecProtocol;

use super::addresses::{missing_addresses, missing_after_a_while};
use super::leak_protection::{unprotectable, will_ask};
use super::plan::{loops, missing_cpus};
use super::routes::{net, routes};
use crate::exit::{Stop, describe};

/// Everything for which a gateway of this site can run on no machine.
#[must_use]
pub fn unusable(site: &Site) -> Vec<Finding> {
    let mut findings = loops(site);
    findings.extend(unprotectable(site));
    findings.extend(nothing_to_protect(site));
    findings.extend(loopback(site));
    findings
}

/// Everything for which a gateway of this site cannot run on this machine, as far as it can be seen
/// beforehand. To be asked in the site's network namespace.
#[must_use]
pub fn unusable_here(site: &Site) -> Vec<Finding> {
    let mut findings = unusable(site);
    findings.extend(lost_state(site));
    findings.extend(missing_cpus(site));
    findings.extend(foreign_interface(site));
    findings.extend(routed_elsewhere(site));
    findings
}

/// Reason for which a start refuses the state folder, as far as a look tells that changes nothing.
#[must_use]
pub fn lost_state(site: &Site) -> Option<Finding> {
    let error = lease::look(site.state_dir.as_ref()?).err()?.to_string();
    let (what, help) = error.split_once("; ").unwrap_or((&error, "name another folder"));
    Some(site.finding("state_dir", what.to_owned(), help))
}

/// Interfaces and addresses that this host does not have, without which a gateway does not start: they may come later. To
/// be asked in the site's network namespace; waits until the kernel has made sure of IPv6 addresses.
#[must_use]
pub fn absent_here(site: &Site) -> Vec<Finding> {
    let mut findings = missing_interfaces(site);
    findings.extend(missing_after_a_while(site));
    findings
}

/// Everything for which a gateway of this site would not start on this machine as it is now, for somebody who may have
/// the file for another machine.
#[must_use]
pub fn notes_here(site: &Site) -> Vec<Finding> {
    if let Some(name) = &site.namespace {
        let missing = Netns::open(name).err().map(|error| no_namespace(site, error));
        // The rest is to be seen from inside.
        return missing.into_iter().collect();
    }
    let mut findings: Vec<_> = foreign_interface(site).into_iter().collect();
    findings.extend(routed_elsewhere(site));
    findings.extend(missing_interfaces(site));
    findings.extend(missing_addresses(site));
    findings
}

/// Refusal of a reload that brings an SA for which no socket is open.
#[must_use]
pub(super) fn no_socket(site: &Site, name: &str) -> anyhow::Error {
    let sa = site.associations().find(|sa| &*sa.name == name);
    let needed = sa.map_or_else(String::new, |sa| {
        let kind = match (sa.protocol, sa.encap) {
            (IpsecProtocol::Ah, _) => "AH",
            (IpsecProtocol::Esp, None) => "native ESP",
            (IpsecProtocol::Esp, Some(_)) => "ESP in UDP",
        };
        format!(" for {kind} at {}", sa.endpoints.local)
    });
    Stop::usage(format!(
        "SA '{name}' needs a socket{needed}, and a gateway opens sockets when it starts: stop it and start it again, \
         or take the change back"
    ))
}

/// Refuses what was found, with all of it in one error.
///
/// # Errors
/// The findings, unless there are none.
pub fn refuse(findings: &[Finding]) -> anyhow::Result<()> {
    if findings.is_empty() {
        return Ok(());
    }
    let told: Vec<_> = findings.iter().map(ToString::to_string).collect();
    Err(Stop::usage(told.join("\n")))
}

/// Enters the site's network namespace, if it names one.
///
/// # Errors
/// The finding, where there is no such namespace or it may not be entered.
pub fn enter_namespace(site: &Site) -> anyhow::Result<()> {
    let Some(name) = &site.namespace else { return Ok(()) };
    let entered = Netns::open(name).and_then(|namespace| namespace.enter_process());
    entered.map_err(|error| Stop::usage(no_namespace(site, error).to_string()))
}

fn no_namespace(site: &Site, error: HostError) -> Finding {
    let help = "make it first (`ip netns add`), or remove the line";
    site.finding("namespace", describe(&error.into()), help)
}

/// Interfaces that a site names and does not make, and that are not here.
fn missing_interfaces(site: &Site) -> Vec<Finding> {
    let plain = Some(&site.plain.interface).filter(|_| site.plain.backend.is_direct());
    let named = [("plain.interface", plain), ("wire.interface", site.wire.interface.as_ref())];
    let Ok(mut network) = Network::open() else { return Vec::new() };
    let missing = named.into_iter().filter_map(|(key, name)| {
        let error = network.link(&LinkName::new(name?).ok()?).err()?;
        let is_missing = matches!(error, HostError::NoSuchLink { .. });
        let help = "name one that `ip link` shows";
        is_missing.then(|| site.finding(key, error.to_string(), help))
    });
    missing.collect()
}

/// A TUN interface of the name that each host's loopback interface has.
fn loopback(site: &Site) -> Option<Finding> {
    let is_tun = !site.plain.backend.is_direct();
    (is_tun && site.plain.interface == "lo").then(|| {
        let what = "lo is the host's loopback interface, and no TUN interface".to_owned();
        site.finding("plain.interface", what, "choose another name, such as convoy0")
    })
}

/// The TUN interface's name, where another kind of interface has it.
fn foreign_interface(site: &Site) -> Option<Finding> {
    if site.plain.backend.is_direct() {
        return None;
    }
    let name = &site.plain.interface;
    if name == "lo" {
        return None;
    }
    let mut network = Network::open().ok()?;
    let link = network.link(&LinkName::new(name).ok()?).ok()?;
    let is_tun = network.tun_state(link.index).ok()?.is_some();
    (!is_tun).then(|| {
        let what = format!("{name} exists, and is no TUN interface with several queues");
        site.finding("plain.interface", what, "choose a name that `ip link` does not show")
    })
}

/// Networks behind the tunnels to which this host has a route already in whose place theirs would go: mostly it is connected
/// to them.
fn routed_elsewhere(site: &Site) -> Vec<Finding> {
    // Where marks lead, the routes stand in tables of their own.
    let is_led = site.plain.backend.is_direct() || site.xfrm.is_some() || will_ask(site);
    let (false, Ok(link)) = (is_led, LinkName::new(&site.plain.interface)) else {
        return Vec::new();
    };
    let wanted = routes(site).into_iter().filter_map(net);
    let wanted: Vec<_> = wanted.map(|to| Route::new(to, link.clone())).collect();
    if wanted.is_empty() {
        return Vec::new();
    }
    let Ok(mut network) = Network::open() else { return Vec::new() };
    let mut conflicts = network.conflicts(&wanted).unwrap_or_default();
    // Such an interface may be that of a gateway that runs, of which a start tells more.
    let mut is_tun = |index| network.tun_state(index).is_ok_and(|state| state.is_some());
    conflicts.retain(|conflict| !conflict.link_index.is_some_and(&mut is_tun));
    let findings = conflicts.into_iter().map(|Conflict { route, other, .. }| {
        let help = match site.plain.routes {
            Routes::FromPolicies => {
                "name the network behind the tunnel, remove the other route, or list the networks in `routes` \
                 of [plain]"
            }
            Routes::Explicit(_) => "list networks behind the tunnels alone, or remove the other route",
        };
        site.finding(&leads_to(site, route.to), format!("{other} is already there"), help)
    });
    findings.collect()
}

/// The key that has a network routed into the TUN interface.
fn leads_to(site: &Site, to: IpNet) -> String {
    let names = |policy: &&Policy| {
        let mut remote = policy.remote.iter().flat_map(Addresses::prefixes).filter_map(net);
        matches!(policy.action, Action::Protect { .. }) && remote.any(|remote| remote == to)
    };
    let policy = match site.plain.routes {
        Routes::FromPolicies => site.deciding_policies().find(names),
        Routes::Explicit(_) => None,
    };
    policy.map_or_else(
        || "plain.routes".to_owned(),
        |policy| format!("policy[{}].remote", policy.name),
    )
}

/// A site without policies of its own and without those of IKE daemons; so a file looks that was cut off.
fn nothing_to_protect(site: &Site) -> Option<Finding> {
    (site.policies.is_empty() && site.xfrm.is_none()).then(|| {
        let what = "there is no [[policy]] and no [xfrm], so the gateway would protect nothing";
        let help = "add policies and their SAs, or [xfrm] for an IKE daemon; was the file cut off?";
        site.finding("policy", what.to_owned(), help)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A site with an SA of each kind, and these lines in place of others.
    fn site(with: &[(&str, &str)]) -> Site {
        let folder = tempfile::tempdir().unwrap();
        let sa = |name: &str, way: &str, spi: u16, key: &str| {
            format!(
                "[[sa]]\nname = \"{name}\"\ndirection = \"{way}\"\nspi = {spi}\nlocal = \"192.0.2.1\"\n\
                 remote = \"192.0.2.2\"\nalgorithm = \"aes-128-gcm\"\nkey = \"{}\"\n",
                key.repeat(20)
            )
        };
        let mut text = format!(
            "name = \"one\"\nstate_dir = \".\"\n[plain]\ninterface = \"convoy0\"\n{}{}\
             [[policy]]\nname = \"nets\"\nlocal = \"10.1.0.0/24\"\nremote = \"10.2.0.0/24\"\n\
             action = \"protect\"\nsa_out = \"out\"\nsa_in = \"in\"\n",
            sa("out", "outbound", 4097, "ab"),
            sa("in", "inbound", 4098, "cd"),
        );
        for (line, other) in with {
            assert!(text.contains(line), "{line}");
            text = text.replacen(line, other, 1);
        }
        let path = folder.path().join("one.toml");
        std::fs::write(&path, text).unwrap();
        for (path, mode) in [(folder.path(), 0o700), (path.as_path(), 0o600)] {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(path, mode).unwrap();
        }
        Site::load(&path).unwrap_or_else(|errors| panic!("{errors}")).0
    }

    fn keys(findings: &[Finding]) -> Vec<&str> {
        findings.iter().map(|finding| finding.key.as_str()).collect()
    }

    #[test]
    fn what_a_host_has_not_is_noted_by_the_key_that_names_it() {
        let wire = ("[plain]", "[wire]\ninterface = \"no-such0\"\n[plain]");
        let found = notes_here(&site(&[wire]));
        assert_eq!(keys(&found), ["wire.interface", "sa[out].local"], "{found:?}");
        assert!(found[0].what.contains("interface no-such0 does not exist"), "{found:?}");
        let packet =
            ("interface = \"convoy0\"", "interface = \"no-such1\"\nbackend = \"af_packet\"");
        let found = missing_interfaces(&site(&[packet]));
        assert_eq!(keys(&found), ["plain.interface"], "{found:?}");
        let namespace = ("[plain]", "namespace = \"no-such-namespace\"\n[plain]");
        assert_eq!(keys(&notes_here(&site(&[namespace]))), ["namespace"]);
    }

    #[test]
    fn the_loopback_interface_is_no_tun_interface_anywhere() {
        let loopback = ("interface = \"convoy0\"", "interface = \"lo\"");
        let found = unusable_here(&site(&[loopback]));
        assert_eq!(keys(&found), ["plain.interface"], "{found:?}");
        assert!(unusable(&site(&[])).is_empty());
    }

    #[test]
    fn a_reload_that_needs_a_socket_says_which() {
        let refused = |with: &[(&str, &str)]| no_socket(&site(with), "out").to_string();
        let native = refused(&[]);
        assert!(native.contains("'out' needs a socket for native ESP at 192.0.2.1"), "{native}");
        let in_udp = ("spi = 4097", "spi = 4097\nencap = { kind = \"udp\" }");
        let other = ("local = \"192.0.2.1\"", "local = \"192.0.2.7\"");
        let udp = refused(&[in_udp, other]);
        assert!(udp.contains("a socket for ESP in UDP at 192.0.2.7"), "{udp}");
    }
}
