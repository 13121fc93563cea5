//! The policies of a site file, as leak protection knows them.

use std::collections::BTreeSet;

use convoy_control::site::{Action, Finding, Policy as SitePolicy, Site, Upper};
use convoy_host::{HostError, IpNet};
use convoy_leak_protection::{
    Config, Finding as Past, Lead, Look, Policy, PrefixSets, Sides, SitePolicies, Verdict, findings,
};
use convoy_wire::icmp::NEIGHBOUR_DISCOVERY;
use convoy_wire::{IpVersion, Protocol};

use super::networks::{changes_name, meant, of_version, prefix_sets};
use crate::gateway::routes::{net, routes};

/// A site's own policies, as leak protection has to know them.
#[derive(Clone, Debug)]
pub(super) struct OwnPolicies {
    protected: SitePolicies,
    /// The policies as look-ups find them, in order. None of a site without daemons: whatever is reloaded there may decide
    /// otherwise.
    looked_up: Option<Vec<SitePolicy>>,
}

impl OwnPolicies {
    /// Policies of a site.
    ///
    /// # Errors
    /// Refuses policies that leak protection cannot hold, in words for people.
    pub(super) fn of(site: &Site) -> Result<Self, Box<Finding>> {
        if site.plain.interface.contains('%') {
            return Err(Box::new(changes_name(site)));
        }
        if site.xfrm.is_none() {
            return Ok(Self::of_networks(prefix_sets(site)?));
        }
        let policies = covers(site)?;
        let is_peer = |network: &IpNet| {
            let mut peers = site.outbound.iter().map(|sa| sa.association.endpoints.remote);
            peers.any(|peer| network.contains(&peer))
        };
        // The host has a way of its own to a peer, and marks lead what is for it into the TUN interface.
        let routed = routes(site).into_iter().filter_map(net).filter(|network| !is_peer(network));
        let protected = SitePolicies::Each { policies, routed: routed.collect() };
        Ok(Self { protected, looked_up: Some(looked_up(site)) })
    }

    /// No policies, as of a site that does without leak protection.
    pub(super) fn none() -> Self {
        Self::of_networks(PrefixSets::default())
    }

    const fn of_networks(sets: PrefixSets) -> Self {
        Self { protected: SitePolicies::Networks(sets), looked_up: None }
    }

    pub(super) const fn protected(&self) -> &SitePolicies {
        &self.protected
    }

    /// True if they hold something.
    pub(super) fn protect_something(&self) -> bool {
        match &self.protected {
            SitePolicies::Networks(sets) => !sets.policies.is_empty(),
            SitePolicies::Each { policies, .. } => policies.iter().any(Policy::holds),
        }
    }

    /// True if their effects are worth telling: those of a site with daemons may have none.
    pub(super) fn are_described(&self) -> bool {
        matches!(self.protected, SitePolicies::Networks(_)) || self.protect_something()
    }

    /// True if look-ups are known to find the same as with others.
    pub(super) fn decide_as(&self, other: &Self) -> bool {
        self.looked_up.is_some() && self.looked_up == other.looked_up
    }

    /// Networks of those that hold: local and remote ones.
    pub(super) fn sides(&self) -> Sides {
        match &self.protected {
            SitePolicies::Networks(sets) => sets.sides(),
            SitePolicies::Each { policies, .. } => {
                let holding = || policies.iter().filter(|policy| policy.holds());
                let local = holding().map(|policy| policy.local).collect();
                Sides { local, remote: holding().map(|policy| policy.remote).collect() }
            }
        }
    }

    /// Routes and rules of this host that lead what they protect past the TUN interface.
    ///
    /// # Errors
    /// Fails if the host cannot be looked at.
    pub(super) fn leads_past(&self, config: &Config) -> Result<Vec<Past>, HostError> {
        // Where the kernel asks, rules lead to tables of their own, ahead of the main one.
        let leads = if self.protected.ask() { Lead::ByMark } else { config.leads };
        let config = Config { leads, ..config.clone() };
        let remote: Vec<_> = match &self.protected {
            SitePolicies::Networks(sets) => sets.routed.iter().copied().collect(),
            SitePolicies::Each { .. } => self.sides().remote.into_iter().collect(),
        };
        let mut found = findings(&Look::around(&config, &[], None)?, &config, &remote);
        found.retain(Past::leads_past);
        Ok(found)
    }
}

/// Traffic that a site's policies cover, by prefixes.
fn covers(site: &Site) -> Result<BTreeSet<Policy>, Box<Finding>> {
    let mut covers = BTreeSet::new();
    for policy in site.deciding_policies().filter(|policy| !is_neighbour_discovery(policy)) {
        let verdict = match policy.action {
            Action::Protect { .. } => Verdict::Protect,
            Action::Bypass => Verdict::Bypass,
            Action::Discard => Verdict::Discard,
        };
        let is_whole = policy.protocol.is_none() && policy.upper == Upper::Any;
        for version in [IpVersion::V4, IpVersion::V6] {
            let (local, remote) = match meant(site, policy, version) {
                _ if verdict == Verdict::Bypass => {
                    (of_version(&policy.local, version), of_version(&policy.remote, version))
                }
                Ok(sides) => {
                    (sides.local.iter().copied().collect::<Vec<_>>(), sides.remote_prefixes())
                }
                // It is for what the TUN interface takes: held, it would cut the host off.
                Err(_) if verdict == Verdict::Discard => continue,
                Err(finding) => return Err(finding),
            };
            for local in IpNet::aggregate(&local) {
                let policy = |remote: &IpNet| Policy {
                    local,
                    remote: *remote,
                    is_whole,
                    verdict,
                    way: None,
                };
                covers.extend(remote.iter().map(policy));
            }
        }
    }
    Ok(covers)
}

/// True if a policy passes Neighbour Discovery alone (RFC 4861), which passes on its link anyway.
fn is_neighbour_discovery(policy: &SitePolicy) -> bool {
    let is_of_it = |(first, last): (u8, u8)| {
        NEIGHBOUR_DISCOVERY.contains(&first) && NEIGHBOUR_DISCOVERY.contains(&last)
    };
    policy.action == Action::Bypass
        && policy.protocol == Some(Protocol::ICMPV6)
        && matches!(policy.upper, Upper::Icmp { types, .. } if is_of_it(types))
}

/// The policies without what look-ups do not ask: names, and which SAs protect.
fn looked_up(site: &Site) -> Vec<SitePolicy> {
    let plain = |policy: &SitePolicy| SitePolicy {
        name: "".into(),
        action: match policy.action {
            Action::Protect { .. } => Action::Protect { sa_out: None, sa_in: Vec::new() },
            Action::Bypass => Action::Bypass,
            Action::Discard => Action::Discard,
        },
        acquire: false,
        ..policy.clone()
    };
    site.deciding_policies().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::super::networks::tests::site_with;
    use super::super::{describe_protection, unprotectable, will_ask};
    use super::*;

    fn site(plain: &str, policies: &[&str]) -> Site {
        site_with("[xfrm]\n", plain, policies)
    }

    fn policy(action: &str, local: &str, remote: &str, more: &str) -> String {
        format!("action = \"{action}\"\nlocal = {local}\nremote = {remote}\n{more}")
    }

    fn protect(local: &str, remote: &str, more: &str) -> String {
        policy("protect", local, remote, &format!("acquire = true\n{more}"))
    }

    /// In words, as `+` for what is whole.
    fn covers(plain: &str, policies: &[&str]) -> Vec<String> {
        let own = OwnPolicies::of(&site(plain, policies)).unwrap();
        let words = |policy: &Policy| {
            let Policy { local, remote, is_whole, verdict, .. } = policy;
            format!("{verdict:?}{} {local} {remote}", if *is_whole { "+" } else { "" })
        };
        let SitePolicies::Each { policies, .. } = own.protected() else { panic!("{own:?}") };
        policies.iter().map(words).collect()
    }

    #[test]
    fn each_pair_of_networks_of_a_policy_is_covered() {
        let one = protect(
            "[\"10.1.0.0/24\", \"2001:db8:1::/48\"]",
            "[\"10.2.0.0/16\", \"10.4.0.0-10.4.0.2\", \"2001:db8:2::/48\"]",
            "",
        );
        let free = policy(
            "bypass",
            "\"10.1.0.0/24\"",
            "\"10.2.0.0/16\"",
            "protocol = \"udp\"\nremote_port = 9",
        );
        let none = policy("discard", "\"10.1.0.0/24\"", "\"10.9.0.0/16\"", "protocol = \"tcp\"");
        assert_eq!(
            covers("", &[&one, &free, &none]),
            [
                "Bypass 10.1.0.0/24 10.2.0.0/16",
                "Protect+ 10.1.0.0/24 10.2.0.0/16",
                "Protect+ 10.1.0.0/24 10.4.0.0/31",
                "Protect+ 10.1.0.0/24 10.4.0.2/32",
                "Discard 10.1.0.0/24 10.9.0.0/16",
                "Protect+ 2001:db8:1::/48 2001:db8:2::/48",
            ]
        );
    }

    #[test]
    fn everything_is_all_but_the_near_side_and_links() {
        let one = protect("\"10.1.0.0/24\"", "\"0.0.0.0/0\"", "");
        let own = OwnPolicies::of(&site("", &[&one])).unwrap();
        let Sides { local, remote } = own.sides();
        assert_eq!(local.len(), 1);
        let is_remote = |address: &str| {
            let address: std::net::IpAddr = address.parse().unwrap();
            remote.iter().any(|net| net.contains(&address))
        };
        assert!(is_remote("10.1.1.1") && is_remote("239.1.1.1"));
        assert!(!is_remote("10.1.0.9") && !is_remote("224.0.0.5") && !is_remote("169.254.1.1"));
    }

    #[test]
    fn policies_from_everything_to_everything_mean_what_routes_list() {
        let all = "\"0.0.0.0/0\"";
        let listed = "routes = [\"10.2.0.0/16\"]";
        let [protecting, dropping] = [protect(all, all, ""), policy("discard", all, all, "")];
        assert_eq!(covers(listed, &[&protecting]), ["Protect+ 0.0.0.0/0 10.2.0.0/16"]);
        assert_eq!(covers(listed, &[&dropping]), ["Discard+ 0.0.0.0/0 10.2.0.0/16"]);
        assert_eq!(covers("", &[&dropping]), [""; 0]);
        let refused = unprotectable(&site("", &[&protecting])).unwrap().to_string();
        assert!(refused.contains("policy 'p0'") && !refused.contains("= false"), "{refused}");
    }

    #[test]
    fn what_look_ups_do_not_ask_is_no_change() {
        let one = |more: &str| protect("\"10.1.0.0/24\"", "\"10.2.0.0/24\"", more);
        let of = |policies: &[&str]| OwnPolicies::of(&site("", policies)).unwrap();
        let before = of(&[&one("")]);
        assert!(before.decide_as(&of(&[&one("priority = 100")])));
        assert!(!before.decide_as(&of(&[&one("priority = 101")])));
        assert!(!before.decide_as(&of(&[&one("protocol = \"udp\"")])));
    }

    #[test]
    fn neighbour_discovery_passes_anyway_and_other_messages_are_asked_about() {
        let one = protect("\"2001:db8:1::/48\"", "\"2001:db8:2::/48\"", "");
        let free = |types: &str| {
            let more = format!("protocol = \"icmpv6\"\nicmp_type = {types}\npriority = 1");
            policy("bypass", "\"2001:db8:1::/48\"", "\"2001:db8:2::/48\"", &more)
        };
        assert!(!will_ask(&site("", &[&one, &free("\"133-137\"")])));
        assert!(will_ask(&site("", &[&one, &free("128")])));
        let said = describe_protection(&site("", &[&one, &free("128")])).unwrap();
        assert!(
            said.contains("2001:db8:2::/48")
                && said.contains("; request a verdict for each new flow"),
            "{said}"
        );
        assert_eq!(describe_protection(&site("", &[&free("128")])), None);
    }
}
