//! Networks on this side of tunnels, and networks behind them.

use std::collections::BTreeSet;

use convoy_host::Family;
use convoy_netlink::nft::{Cover, Difference, Range};
use ipnet::IpNet;

use crate::{
    ranges::{prefixes, range, version_of},
    sets::{ByDirection, ByFamily, Covers, Prefixes},
};

/// Addresses that no router passes on: multicast, broadcast and link-local ones (RFC 5771, RFC 919, RFC 3927, RFC 4291).
const OF_A_LINK: [&str; 5] =
    ["224.0.0.0/24", "255.255.255.255/32", "169.254.0.0/16", "ff02::/16", "fe80::/10"];

/// The networks on both sides of a policy that protects. What one on the local side sends to one on the remote side is
/// protected; bits beyond prefixes are ignored.
///
/// A local network that lies within a wider remote one is local, as a LAN beside a tunnel for everything: of the prefixes
/// that an address has on both sides the longest decides, and of equal ones the remote. The same holds for addresses that
/// no router passes on, unless a remote prefix names them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sides {
    /// Local networks.
    pub local: BTreeSet<IpNet>,
    /// Networks behind tunnels.
    pub remote: BTreeSet<IpNet>,
}

/// Networks between which packets are protected: from any local one to any remote one, also where no policy has just these two.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrefixSets {
    /// Policies that protect.
    pub policies: Vec<Sides>,
    /// Networks beneath which an `unreachable` route is to lie in the main table.
    pub routed: BTreeSet<IpNet>,
    /// Of the remote networks, what leaves in clear and comes in so all the same.
    pub bypassed: BTreeSet<IpNet>,
    /// Of the remote networks, those about which policies say more than prefixes do: the kernel asks about packets to and
    /// from them, if [`Questions`](crate::Questions) are asked.
    pub partly_bypassed: BTreeSet<IpNet>,
}

impl PrefixSets {
    /// True if the kernel asks about some packets.
    #[must_use]
    pub fn ask(&self) -> bool {
        !self.partly_bypassed.is_empty()
    }

    /// Protects what either protects.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self {
            policies: [&self.policies[..], &other.policies].concat(),
            routed: &self.routed | &other.routed,
            bypassed: &self.bypassed & &other.bypassed,
            // Who is asked about decides for the rest as well.
            partly_bypassed: &self.partly_bypassed | &other.partly_bypassed,
        }
    }

    /// The networks of all policies: local and remote ones.
    #[must_use]
    pub fn sides(&self) -> Sides {
        let all = |of: fn(&Sides) -> &BTreeSet<IpNet>| {
            self.policies.iter().flat_map(of).copied().collect()
        };
        Sides { local: all(|policy| &policy.local), remote: all(|policy| &policy.remote) }
    }

    pub(crate) fn covers(&self) -> Covers {
        let both = ByFamily { v4: self.of_family(Family::V4), v6: self.of_family(Family::V6) };
        // They are the same whichever way packets go.
        ByDirection { out: both.clone(), input: both.clone(), forward: both }
    }

    fn of_family(&self, version: Family) -> Prefixes<Cover> {
        let Prefixes { mut local, mut remote, mut partly_bypassed } = Prefixes::default();
        let of_a_link = of_a_link();
        for policy in &self.policies {
            of_family(&policy.local, version).for_each(|net| put(&mut local, &net));
            // In a cover of its own: one policy's local networks are no reason to open another's remote ones.
            let ranges: Vec<_> = policy.remote_cover(&of_a_link, version).ranges().collect();
            ranges.into_iter().for_each(|range| put_range(&mut remote, range));
        }
        of_family(&self.bypassed, version).for_each(|net| cut(&mut remote, &net));
        of_family(&self.partly_bypassed, version).for_each(|net| put(&mut partly_bypassed, &net));
        Prefixes { local, remote, partly_bypassed }
    }
}

impl Sides {
    /// Protected prefixes of the remote side, as few as possible: without local networks within it, and without addresses
    /// that no router passes on.
    #[must_use]
    pub fn remote_prefixes(&self) -> Vec<IpNet> {
        let of_a_link = of_a_link();
        let of = |version| -> Vec<IpNet> {
            let cover = self.remote_cover(&of_a_link, version);
            cover.ranges().flat_map(|range| prefixes(range, version)).collect()
        };
        [of(Family::V4), of(Family::V6)].concat()
    }

    fn remote_cover(&self, of_a_link: &BTreeSet<IpNet>, version: Family) -> Cover {
        let sides = [(of_a_link, false), (&self.local, false), (&self.remote, true)];
        let prefixes = sides.into_iter().flat_map(|(nets, is_remote)| {
            of_family(nets, version).map(move |net| (net, is_remote))
        });
        // Longer prefixes come later, and so decide; of equal ones the remote.
        let mut prefixes: Vec<_> = prefixes.collect();
        prefixes.sort_by_key(|(net, is_remote)| (net.prefix_len(), *is_remote));
        let mut cover = Cover::default();
        for (net, is_remote) in prefixes {
            if is_remote { put(&mut cover, &net) } else { cut(&mut cover, &net) }
        }
        cover
    }
}

fn of_a_link() -> BTreeSet<IpNet> {
    OF_A_LINK.iter().filter_map(|text| text.parse().ok()).collect()
}

fn of_family(nets: &BTreeSet<IpNet>, version: Family) -> impl Iterator<Item = IpNet> {
    nets.iter().map(IpNet::trunc).filter(move |net| version_of(net.addr()) == version)
}

fn put(cover: &mut Cover, net: &IpNet) {
    put_range(cover, range(net));
}

fn put_range(cover: &mut Cover, range: Range) {
    cover.set(range, &[range], &mut Difference::default());
}

fn cut(cover: &mut Cover, net: &IpNet) {
    cover.set(range(net), &[], &mut Difference::default());
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::sets::differ;

    fn nets(texts: &[&str]) -> BTreeSet<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn sets(local: &[&str], remote: &[&str]) -> PrefixSets {
        let policies = vec![Sides { local: nets(local), remote: nets(remote) }];
        PrefixSets { policies, ..PrefixSets::default() }
    }

    fn is_remote(sets: &PrefixSets, address: &str) -> bool {
        has(&sets.covers().out.of(version_of(address.parse().unwrap())).remote, address)
    }

    fn has(cover: &Cover, address: &str) -> bool {
        cover.contains(address.parse().unwrap())
    }

    #[test]
    fn near_networks_within_a_tunnel_for_everything_stay_near() {
        let ByFamily { v4, v6 } = sets(&["10.1.0.0/24"], &["0.0.0.0/0"]).covers().out;
        assert!(has(&v4.local, "10.1.0.7") && !has(&v4.remote, "10.1.0.7"));
        let has_far = |address| has(&v4.remote, address);
        assert!(has_far("10.1.1.0") && has_far("255.255.255.254") && has_far("0.0.0.0"));
        assert_eq!(v6, Prefixes::default());
    }

    #[test]
    fn what_is_far_of_everything_is_all_but_the_near_side_and_links() {
        let sides = Sides {
            local: nets(&["10.1.0.0/24", "2001:db8:1::/48"]),
            remote: nets(&["0.0.0.0/0"]),
        };
        let remote = sides.remote_prefixes();
        let is_remote = |address: &str| {
            let address: IpAddr = address.parse().unwrap();
            remote.iter().filter(|net| net.contains(&address)).count()
        };
        assert_eq!(["10.1.1.0", "0.0.0.0", "239.1.1.1"].map(is_remote), [1, 1, 1]);
        assert_eq!(["10.1.0.7", "224.0.0.5", "169.254.9.9"].map(is_remote), [0, 0, 0]);
        assert!(remote.iter().all(|net| net.addr().is_ipv4()), "{remote:?}");
    }

    #[test]
    fn a_spoke_within_the_network_of_its_hub_is_far() {
        let spokes = sets(&["10.0.0.0/8"], &["10.2.0.0/16", "10.3.0.0/16"]);
        let Prefixes { local, remote, .. } = spokes.covers().out.v4;
        assert!(has(&local, "10.2.0.1") && has(&remote, "10.2.0.1"));
        assert!(has(&local, "10.1.0.1") && !has(&remote, "10.1.0.1"));
    }

    #[test]
    fn the_longest_prefix_decides_and_of_equal_ones_the_far() {
        let local = ["2001:db8::/32", "2001:db8:2:3::/64", "2001:db8:7::/48"];
        let remote = ["2001:db8:2::/48", "2001:db8:2:3:4::/80", "2001:db8:7::/48"];
        let remote = sets(&local, &remote).covers().out.v6.remote;
        let is_remote = |address| has(&remote, address);
        assert!(is_remote("2001:db8:2::1") && !is_remote("2001:db8:2:3::1"));
        assert!(is_remote("2001:db8:2:3:4::1") && is_remote("2001:db8:7::1"));
        assert!(!is_remote("2001:db8:3::1"));
    }

    #[test]
    fn what_no_router_passes_on_is_far_only_if_it_is_named() {
        let everything = sets(&["10.1.0.0/24"], &["0.0.0.0/0", "::/0"]);
        let named = sets(&["10.1.0.0/24"], &["224.0.0.18/32", "169.254.0.0/16", "ff02::/16"]);
        for address in ["224.0.0.18", "169.254.1.1", "ff02::12"] {
            assert!(!is_remote(&everything, address) && is_remote(&named, address), "{address}");
        }
        assert!(is_remote(&everything, "239.1.1.1"));
        assert!(is_remote(&everything, "ff05::1"));
    }

    #[test]
    fn the_near_networks_of_one_policy_do_not_open_the_far_ones_of_another() {
        let hub = sets(&["10.0.0.0/16", "10.2.0.0/16"], &["10.1.0.0/16"]);
        let spoke = sets(&["10.0.0.0/16", "10.1.4.0/24"], &["10.2.0.0/16"]);
        for both in [hub.union(&spoke), spoke.union(&hub)] {
            assert!(is_remote(&both, "10.1.4.9"));
            assert!(is_remote(&both, "10.2.4.9"));
            assert!(!is_remote(&both, "10.0.0.1"));
        }
    }

    #[test]
    fn differences_make_one_cover_of_another() {
        let lists = [
            sets(&["10.1.0.0/24"], &["0.0.0.0/0"]),
            sets(&["10.0.0.0/8"], &["10.2.0.0/16", "10.4.0.0/15"]),
            sets(&["10.0.0.0/8"], &["10.2.0.0/15", "10.9.0.0/32"]),
            sets(&[], &[]),
        ];
        for before in &lists {
            for after in &lists {
                for (before, after) in before.covers().each().zip(after.covers().each()) {
                    let mut note = Difference::default();
                    differ(before, after, &mut note);
                    let mut ranges: BTreeSet<_> = before.ranges().collect();
                    note.removed().for_each(|range| assert!(ranges.remove(&range)));
                    note.added().for_each(|range| assert!(ranges.insert(range)));
                    assert_eq!(ranges, after.ranges().collect());
                }
            }
        }
    }
}
