//! Networks of a site on this side of its tunnels, and networks behind them.

use std::collections::BTreeSet;

use convoy_control::site::{Action, Addresses, Finding, Policy, Routes, Site, Upper};
use convoy_host::IpNet;
use convoy_leak_protection::{PrefixSets, Sides};
use convoy_wire::{IpVersion, Prefix};

use crate::gateway::routes::{net, routes};

/// Prefixes that a site's policies protect. Where the local and the remote addresses of one overlap, as where both
/// are everything, and `routes` lists networks, these say which of the remote ones are meant.
///
/// # Errors
/// Refuses a policy that protects everything from everybody, if no route says what is meant; and an interface that
/// has another name at each start.
pub(super) fn prefix_sets(site: &Site) -> Result<PrefixSets, Box<Finding>> {
    if site.plain.interface.contains('%') {
        return Err(Box::new(changes_name(site)));
    }
    let mut policies = Vec::new();
    let is_protecting = |policy: &&Policy| matches!(policy.action, Action::Protect { .. });
    for policy in site.deciding_policies().filter(is_protecting) {
        for version in [IpVersion::V4, IpVersion::V6] {
            let sides = meant(site, policy, version)?;
            if !sides.remote.is_empty() {
                policies.push(sides);
            }
        }
    }
    let routed: BTreeSet<_> = routes(site).into_iter().filter_map(net).collect();
    let free = site.deciding_policies().filter(|policy| is_free(site, policy));
    let bypassed = free.flat_map(|policy| &policy.remote).flat_map(Addresses::prefixes);
    let bypassed = bypassed.filter_map(net).collect();
    Ok(PrefixSets { policies, routed, bypassed, partly_bypassed: partly_bypassed(site) })
}

/// The networks of one IP version that a policy means. Where its local and its remote addresses overlap, as where both
/// are everything, and `routes` lists networks, these say which of the remote ones are meant.
///
/// # Errors
/// Refuses one for everything from everybody, if no route says what is meant.
pub(super) fn meant(
    site: &Site,
    policy: &Policy,
    version: IpVersion,
) -> Result<Sides, Box<Finding>> {
    let [local, remote] = [&policy.local, &policy.remote].map(|side| of_version(side, version));
    let remote = match &site.plain.routes {
        Routes::Explicit(listed) if !listed.is_empty() && overlap(&local, &remote) => {
            let listed: Vec<_> = listed.iter().copied().filter_map(net).collect();
            common(&listed, &remote)
        }
        _ if is_everything(&local) && is_everything(&remote) => {
            return Err(Box::new(closes_in(site, policy)));
        }
        _ => remote,
    };
    let [local, remote] = [local, remote].map(|side| side.into_iter().collect());
    Ok(Sides { local, remote })
}

/// Remote networks about which policies say more than prefixes do: part of what is sent there passes in clear.
fn partly_bypassed(site: &Site) -> BTreeSet<IpNet> {
    let protects = |policy: &&Policy| matches!(policy.action, Action::Protect { .. });
    let protecting: Vec<_> = site.deciding_policies().filter(protects).collect();
    let bypasses = |policy: &&Policy| policy.action == Action::Bypass && !is_free(site, policy);
    let versions = [IpVersion::V4, IpVersion::V6].map(|version| {
        let local = protecting.iter().flat_map(|policy| of_version(&policy.local, version));
        (version, local.collect::<BTreeSet<_>>())
    });
    let mut partly_bypassed = BTreeSet::new();
    for bypass in site.deciding_policies().filter(bypasses) {
        for policy in &protecting {
            for (version, local) in &versions {
                let own = of_version(&policy.local, *version);
                let is_all_local = local.iter().all(|net| own.iter().any(|own| own.contains(net)));
                // All that is sent there is protected before the other policy is asked.
                let is_settled =
                    is_whole(policy) && policy.priority < bypass.priority && is_all_local;
                let [passed, protected] =
                    [bypass, policy].map(|policy| of_version(&policy.remote, *version));
                partly_bypassed
                    .extend(common(&passed, &protected).into_iter().filter(|_| !is_settled));
            }
        }
    }
    partly_bypassed
}

/// True if a policy is for all packets between its addresses.
fn is_whole(policy: &Policy) -> bool {
    policy.protocol.is_none() && policy.upper == Upper::Any
}

fn overlap(one: &[IpNet], other: &[IpNet]) -> bool {
    !common(one, other).is_empty()
}

/// Intersection of two lists of networks.
fn common(one: &[IpNet], other: &[IpNet]) -> Vec<IpNet> {
    let pairs = one.iter().flat_map(|one| other.iter().map(move |other| (one, other)));
    let inner = |(one, other): (&IpNet, &IpNet)| match (one.contains(other), other.contains(one)) {
        (true, _) => Some(*other),
        (_, true) => Some(*one),
        _ => None,
    };
    pairs.filter_map(inner).collect()
}

pub(super) fn of_version(side: &[Addresses], version: IpVersion) -> Vec<IpNet> {
    let side = side.iter().filter(|part| part.version() == version);
    side.flat_map(Addresses::prefixes).filter_map(|prefix: Prefix| net(prefix)).collect()
}

fn is_everything(networks: &[IpNet]) -> bool {
    IpNet::aggregate(&networks.to_vec()).iter().any(|network| network.prefix_len() == 0)
}

/// True if a policy passes all packets to its networks in clear, from whomever others would protect them.
fn is_free(site: &Site, policy: &Policy) -> bool {
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
        && is_whole(policy)
        && site.deciding_policies().filter(touches).all(yields)
}

fn closes_in(site: &Site, policy: &Policy) -> Finding {
    let what = format!(
        "policy '{}' protects all packets from all to all addresses, and `routes` does not list networks for \
         {}: leak protection would cut this host off",
        policy.name,
        site.plain.tun()
    );
    let help = match site.xfrm {
        None if site.plain.backend.is_direct() => {
            "give the policy narrower addresses, or set leak_protection = false at the top of the file; the \
             host's own packets there then leave in clear"
        }
        None => {
            "list the networks behind the tunnels, give the policy narrower addresses, or set \
             leak_protection = false at the top of the file"
        }
        Some(_) => "list the networks behind the tunnels, or give the policy narrower addresses",
    };
    site.finding("plain.routes", what, help)
}

pub(super) fn changes_name(site: &Site) -> Finding {
    let what = format!(
        "interface {} has another name at each start, but leak protection outlives the gateway under its name",
        site.plain.interface
    );
    let help = match site.xfrm {
        None => {
            "leave '%' out, such as \"convoy0\", or set leak_protection = false at the top of the file"
        }
        Some(_) => "leave '%' out, such as \"convoy0\"",
    };
    site.finding("plain.interface", what, help)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn site(plain: &str, policies: &[&str]) -> Site {
        site_with("", plain, policies)
    }

    /// A site with these policies, called `p0` and so on, and more sections.
    pub(in crate::gateway) fn site_with(more: &str, plain: &str, policies: &[&str]) -> Site {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("site.toml");
        let policies: Vec<_> = policies
            .iter()
            .enumerate()
            .map(|(n, text)| format!("[[policy]]\nname = \"p{n}\"\n{text}\n"))
            .collect();
        let text = format!(
            "name = \"t\"\n[plain]\ninterface = \"convoy0\"\n{plain}\n[wire]\n{more}{}",
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
        let Sides { local, remote } = sets.sides();
        assert_eq!(words(&local), ["10.1.0.0/24", "10.1.0.1/32", "10.1.0.2/32", "2001:db8:1::/48"]);
        assert_eq!(words(&remote), ["10.2.0.0/16", "10.3.0.0/16", "2001:db8:2::/48"]);
        assert_eq!(sets.routed, remote);
        // What is not routed is protected all the same.
        let sets = prefix_sets(&site("routes = \"none\"", &[&one])).unwrap();
        assert_eq!(words(&sets.sides().remote), ["10.2.0.0/16", "2001:db8:2::/48"]);
        assert!(sets.routed.is_empty());
    }

    #[test]
    fn routes_say_what_policies_mean_whose_sides_overlap() {
        let remote_of = |local: &str, remote: &str, plain: &str| {
            let sets = prefix_sets(&site(plain, &[&protect(local, remote, "")]));
            sets.map(|sets| words(&sets.sides().remote)).map_err(|finding| finding.to_string())
        };
        let (all, listed) = ("\"0.0.0.0/0\"", "routes = [\"10.2.0.0/16\"]");
        let only = Ok(vec!["10.2.0.0/16".to_owned()]);
        assert_eq!(remote_of(all, all, listed), only);
        assert_eq!(remote_of("\"10.0.0.0/8\"", "\"10.0.0.0/8\"", listed), only);
        assert_eq!(remote_of("\"10.1.0.0/24\"", all, listed), only);
        // Apart, they mean what they say.
        let apart = remote_of("\"10.1.0.0/24\"", "[\"10.2.0.0/16\", \"10.3.0.0/16\"]", listed);
        assert_eq!(apart, Ok(vec!["10.2.0.0/16".to_owned(), "10.3.0.0/16".to_owned()]));
        let halves = "[\"0.0.0.0/1\", \"128.0.0.0/1\"]";
        for remote in [all, halves] {
            let refused = remote_of(all, remote, "routes = \"none\"").unwrap_err();
            assert!(refused.contains("policy 'p0'"), "{refused}");
            assert!(refused.contains("leak_protection = false"), "{refused}");
            // Beside another interface there are no routes that could say it.
            let refused = remote_of(all, remote, "backend = \"af_packet\"").unwrap_err();
            assert!(refused.contains("does not list networks for cv-convoy0"), "{refused}");
            assert!(refused.contains("leak_protection = false"), "{refused}");
            assert!(!refused.contains("list the networks"), "{refused}");
        }
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
