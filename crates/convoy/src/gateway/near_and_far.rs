//! Which networks of a site are on this side of its tunnels, and which behind them.

use std::collections::BTreeSet;

use convoy_control::site::{Action, Addresses, Finding, Policy, Routes, Site, Upper};
use convoy_host::IpNet;
use convoy_leak_protection::PrefixSets;
use convoy_wire::{IpVersion, Prefix};

use super::claims::net;
use super::plan::finding;
use super::routes;

/// What a site's policies protect, by prefixes. Of a policy that protects everything from everybody, routes into the
/// interface say which networks are meant.
///
/// # Errors
/// When a policy protects everything from everybody, and no route says what is meant; or the interface has another
/// name at each start.
pub(super) fn prefix_sets(site: &Site) -> Result<PrefixSets, Box<Finding>> {
    if site.plain.interface.contains('%') {
        return Err(Box::new(changes_name(site)));
    }
    let (mut near, mut far) = (BTreeSet::new(), BTreeSet::new());
    let is_protecting = |policy: &&Policy| matches!(policy.action, Action::Protect { .. });
    for policy in site.deciding_policies().filter(is_protecting) {
        for version in [IpVersion::V4, IpVersion::V6] {
            let of = |side: &[Addresses]| of_version(side, version);
            let (local, remote) = (of(&policy.local), of(&policy.remote));
            if !is_everything(&local) || !is_everything(&remote) {
                far.extend(remote);
            } else if site.plain.routes == Routes::Explicit(Vec::new()) {
                return Err(Box::new(closes_in(site, policy)));
            }
            near.extend(local);
        }
    }
    let routed: BTreeSet<_> = routes(site).into_iter().filter_map(net).collect();
    far.extend(&routed);
    let free = site.deciding_policies().filter(|policy| is_free(site, policy));
    let bypassed = free.flat_map(|policy| &policy.remote).flat_map(Addresses::prefixes);
    Ok(PrefixSets { near, far, routed, bypassed: bypassed.filter_map(net).collect() })
}

fn of_version(side: &[Addresses], version: IpVersion) -> Vec<IpNet> {
    let side = side.iter().filter(|part| part.version() == version);
    side.flat_map(Addresses::prefixes).filter_map(|prefix: Prefix| net(prefix)).collect()
}

fn is_everything(networks: &[IpNet]) -> bool {
    networks.iter().any(|network| network.prefix_len() == 0)
}

/// Whether a policy passes all packets to its networks in clear, from whomever others would protect them.
fn is_free(site: &Site, policy: &Policy) -> bool {
    let is_whole = policy.protocol.is_none() && policy.upper == Upper::Any;
    let covers = |part: &Addresses| {
        let covers = |own: &Addresses| own.first() <= part.first() && part.last() <= own.last();
        policy.local.iter().any(|own| own.version() == part.version() && covers(own))
    };
    let touches = |other: &&Policy| {
        let parts =
            || policy.remote.iter().flat_map(|own| other.remote.iter().map(move |o| (own, o)));
        matches!(other.action, Action::Protect { .. }) && parts().any(|(own, o)| own.overlaps(o))
    };
    let yields =
        |other: &Policy| policy.priority < other.priority && other.local.iter().all(covers);
    policy.action == Action::Bypass
        && is_whole
        && site.deciding_policies().filter(touches).all(yields)
}

fn closes_in(site: &Site, policy: &Policy) -> Finding {
    let what = format!(
        "policy '{}' protects everything from everybody, and no route says what goes into {}: leak protection \
         would cut this host off",
        policy.name, site.plain.interface
    );
    let help = "list the networks behind the tunnels, give the policy narrower addresses, or set \
                leak_protection = false at the top of the file";
    finding(site, "plain.routes", what, help)
}

fn changes_name(site: &Site) -> Finding {
    let what = format!(
        "interface {} has another name at each start, and leak protection outlives the gateway by its name",
        site.plain.interface
    );
    let help =
        "leave '%' out, such as \"convoy0\", or set leak_protection = false at the top of the file";
    finding(site, "plain.interface", what, help)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(plain: &str, policies: &[&str]) -> Site {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("site.toml");
        let policies: Vec<_> = policies
            .iter()
            .enumerate()
            .map(|(n, text)| format!("[[policy]]\nname = \"p{n}\"\n{text}\n"))
            .collect();
        let text = format!(
            "name = \"t\"\n[plain]\ninterface = \"convoy0\"\n{plain}\n[wire]\n{}",
            policies.concat()
        );
        std::fs::write(&path, text).unwrap();
        Site::load(&path).unwrap().0
    }

    fn protect(local: &str, remote: &str, more: &str) -> String {
        format!("action = \"protect\"\nacquire = true\nlocal = {local}\nremote = {remote}\n{more}")
    }

    fn words(nets: &BTreeSet<IpNet>) -> Vec<String> {
        nets.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn policies_say_what_is_near_and_far() {
        let one = protect("\"10.1.0.0/24\"", "[\"10.2.0.0/16\", \"2001:db8:2::/48\"]", "");
        let one = one
            .replace("local = \"10.1.0.0/24\"", "local = [\"10.1.0.0/24\", \"2001:db8:1::/48\"]");
        let two = protect("\"10.1.0.1-10.1.0.2\"", "\"10.3.0.0/16\"", "protocol = \"tcp\"");
        let sets = prefix_sets(&site("", &[&one, &two])).unwrap();
        assert_eq!(
            words(&sets.near),
            ["10.1.0.0/24", "10.1.0.1/32", "10.1.0.2/32", "2001:db8:1::/48"]
        );
        assert_eq!(words(&sets.far), ["10.2.0.0/16", "10.3.0.0/16", "2001:db8:2::/48"]);
        assert_eq!(sets.routed, sets.far);
        // What is not routed is protected all the same.
        let sets = prefix_sets(&site("routes = \"none\"", &[&one])).unwrap();
        assert_eq!(words(&sets.far), ["10.2.0.0/16", "2001:db8:2::/48"]);
        assert!(sets.routed.is_empty());
    }

    #[test]
    fn routes_say_what_a_policy_for_everything_means() {
        let all = protect("\"0.0.0.0/0\"", "\"0.0.0.0/0\"", "");
        let sets = prefix_sets(&site("routes = [\"10.2.0.0/16\"]", &[&all])).unwrap();
        assert_eq!(
            (words(&sets.near), words(&sets.far)),
            (vec!["0.0.0.0/0".to_owned()], vec!["10.2.0.0/16".to_owned()])
        );
        let refused = prefix_sets(&site("routes = \"none\"", &[&all])).unwrap_err().to_string();
        assert!(
            refused.contains("policy 'p0'") && refused.contains("leak_protection = false"),
            "{refused}"
        );
    }

    #[test]
    fn networks_are_bypassed_by_policies_that_come_first_for_all_sources() {
        let protecting = protect("\"10.1.0.0/24\"", "\"10.0.0.0/8\"", "priority = 9");
        let bypassed = |local: &str, more: &str| {
            let text = format!(
                "action = \"bypass\"\nlocal = \"{local}\"\nremote = \"10.2.5.0/24\"\n{more}"
            );
            words(&prefix_sets(&site("routes = \"none\"", &[&protecting, &text])).unwrap().bypassed)
        };
        assert_eq!(bypassed("10.1.0.0/16", "priority = 8"), ["10.2.5.0/24"]);
        assert_eq!(bypassed("10.1.0.0/16", "priority = 9"), [""; 0]);
        assert_eq!(bypassed("10.1.0.0/25", "priority = 8"), [""; 0]);
        assert_eq!(bypassed("10.1.0.0/16", "priority = 8\nprotocol = \"udp\""), [""; 0]);
    }
}
