//! Networks on this side of tunnels, and networks behind them.

use std::collections::BTreeSet;

use convoy_netlink::nft::{Cover, Difference, Range};
use ipnet::IpNet;

use crate::{
    ranges::{prefixes, range},
    sets::{ByDirection, ByFamily, Covers, Prefixes},
};

/// Addresses that no router passes on: multicast, broadcast and link-local ones (RFC 5771, RFC 919, RFC 3927, RFC 4291).
const OF_A_LINK: [&str; 5] =
    ["224.0.0.0/24", "255.255.255.255/32", "169.254.0.0/16", "ff02::/16", "fe80::/10"];

/// The networks on both sides of a policy that protects. What one on the near side sends to one on the far side is
/// protected; bits beyond prefixes are ignored.
///
/// A near network that lies within a wider far one is near, as a LAN beside a tunnel for everything: of the prefixes
/// that an address has on both sides the longest decides, and of equal ones the far. The same holds for addresses that
/// no router passes on, unless a far prefix names them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sides {
    /// Local networks.
    pub near: BTreeSet<IpNet>,
    /// Networks behind tunnels.
    pub far: BTreeSet<IpNet>,
}

/// Networks between which packets are protected: from any near one to any far one, also where no policy has just these two.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrefixSets {
    /// Policies that protect.
    pub policies: Vec<Sides>,
    /// Networks beneath which an `unreachable` route is to lie in the main table.
    pub routed: BTreeSet<IpNet>,
    /// Of the far networks, what leaves in clear and comes in so all the same.
    pub bypassed: BTreeSet<IpNet>,
    /// Of the far networks, those about which policies say more than prefixes do: the kernel asks about packets to and
    /// from them, if [`Questions`](crate::Questions) are asked.
    pub mixed: BTreeSet<IpNet>,
}

impl PrefixSets {
    /// True if the kernel asks about some packets.
    #[must_use]
    pub fn ask(&self) -> bool {
        !self.mixed.is_empty()
    }

    /// Protects what either protects.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self {
            policies: [&self.policies[..], &other.policies].concat(),
            routed: &self.routed | &other.routed,
            bypassed: &self.bypassed & &other.bypassed,
            // Who is asked about decides for the rest as well.
            mixed: &self.mixed | &other.mixed,
        }
    }

    /// The networks of all policies: near and far ones.
    #[must_use]
    pub fn sides(&self) -> Sides {
        let all = |of: fn(&Sides) -> &BTreeSet<IpNet>| {
            self.policies.iter().flat_map(of).copied().collect()
        };
        Sides { near: all(|policy| &policy.near), far: all(|policy| &policy.far) }
    }

    pub(crate) fn covers(&self) -> Covers {
        let both = ByFamily { v4: self.of_family(true), v6: self.of_family(false) };
        // They are the same whichever way packets go.
        ByDirection { out: both.clone(), input: both.clone(), forward: both }
    }

    fn of_family(&self, is_v4: bool) -> Prefixes<Cover> {
        let Prefixes { mut near, mut far, mut mixed } = Prefixes::default();
        let of_a_link = of_a_link();
        for policy in &self.policies {
            of_family(&policy.near, is_v4).for_each(|net| put(&mut near, &net));
            // In a cover of its own: one policy's near networks are no reason to open another's far ones.
            let ranges: Vec<_> = policy.far_cover(&of_a_link, is_v4).ranges().collect();
            ranges.into_iter().for_each(|range| put_range(&mut far, range));
        }
        of_family(&self.bypassed, is_v4).for_each(|net| cut(&mut far, &net));
        of_family(&self.mixed, is_v4).for_each(|net| put(&mut mixed, &net));
        Prefixes { near, far, mixed }
    }
}

impl Sides {
    /// Protected prefixes of the far side, as few as possible: without near networks within it, and without addresses
    /// that no router passes on.
    #[must_use]
    pub fn far_prefixes(&self) -> Vec<IpNet> {
        let of_a_link = of_a_link();
        let of = |is_v4| -> Vec<IpNet> {
            let cover = self.far_cover(&of_a_link, is_v4);
            cover.ranges().flat_map(|range| prefixes(range, is_v4)).collect()
        };
        [of(true), of(false)].concat()
    }

    fn far_cover(&self, of_a_link: &BTreeSet<IpNet>, is_v4: bool) -> Cover {
        let sides = [(of_a_link, false), (&self.near, false), (&self.far, true)];
        let prefixes = sides
            .into_iter()
            .flat_map(|(nets, is_far)| of_family(nets, is_v4).map(move |net| (net, is_far)));
        // Longer prefixes come later, and so decide; of equal ones the far.
        let mut prefixes: Vec<_> = prefixes.collect();
        prefixes.sort_by_key(|(net, is_far)| (net.prefix_len(), *is_far));
        let mut cover = Cover::default();
        for (net, is_far) in prefixes {
            if is_far { put(&mut cover, &net) } else { cut(&mut cover, &net) }
        }
        cover
    }
}

fn of_a_link() -> BTreeSet<IpNet> {
    OF_A_LINK.iter().filter_map(|text| text.parse().ok()).collect()
}

fn of_family(nets: &BTreeSet<IpNet>, is_v4: bool) -> impl Iterator<Item = IpNet> {
    nets.iter().map(IpNet::trunc).filter(move |net| net.addr().is_ipv4() == is_v4)
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

    fn sets(near: &[&str], far: &[&str]) -> PrefixSets {
        let policies = vec![Sides { near: nets(near), far: nets(far) }];
        PrefixSets { policies, ..PrefixSets::default() }
    }

    fn is_far(sets: &PrefixSets, address: &str) -> bool {
        has(&sets.covers().out.of(!address.contains(':')).far, address)
    }

    fn has(cover: &Cover, address: &str) -> bool {
        cover.contains(address.parse().unwrap())
    }

    #[test]
    fn near_networks_within_a_tunnel_for_everything_stay_near() {
        let ByFamily { v4, v6 } = sets(&["10.1.0.0/24"], &["0.0.0.0/0"]).covers().out;
        assert!(has(&v4.near, "10.1.0.7") && !has(&v4.far, "10.1.0.7"));
        let has_far = |address| has(&v4.far, address);
        assert!(has_far("10.1.1.0") && has_far("255.255.255.254") && has_far("0.0.0.0"));
        assert_eq!(v6, Prefixes::default());
    }

    #[test]
    fn what_is_far_of_everything_is_all_but_the_near_side_and_links() {
        let sides =
            Sides { near: nets(&["10.1.0.0/24", "2001:db8:1::/48"]), far: nets(&["0.0.0.0/0"]) };
        let far = sides.far_prefixes();
        let is_far = |address: &str| {
            let address: IpAddr = address.parse().unwrap();
            far.iter().filter(|net| net.contains(&address)).count()
        };
        assert_eq!(["10.1.1.0", "0.0.0.0", "239.1.1.1"].map(is_far), [1, 1, 1]);
        assert_eq!(["10.1.0.7", "224.0.0.5", "169.254.9.9"].map(is_far), [0, 0, 0]);
        assert!(far.iter().all(|net| net.addr().is_ipv4()), "{far:?}");
    }

    #[test]
    fn a_spoke_within_the_network_of_its_hub_is_far() {
        let spokes = sets(&["10.0.0.0/8"], &["10.2.0.0/16", "10.3.0.0/16"]);
        let Prefixes { near, far, .. } = spokes.covers().out.v4;
        assert!(has(&near, "10.2.0.1") && has(&far, "10.2.0.1"));
        assert!(has(&near, "10.1.0.1") && !has(&far, "10.1.0.1"));
    }

    #[test]
    fn the_longest_prefix_decides_and_of_equal_ones_the_far() {
        let near = ["2001:db8::/32", "2001:db8:2:3::/64", "2001:db8:7::/48"];
        let far = ["2001:db8:2::/48", "2001:db8:2:3:4::/80", "2001:db8:7::/48"];
        let far = sets(&near, &far).covers().out.v6.far;
        let is_far = |address| has(&far, address);
        assert!(is_far("2001:db8:2::1") && !is_far("2001:db8:2:3::1"));
        assert!(is_far("2001:db8:2:3:4::1") && is_far("2001:db8:7::1"));
        assert!(!is_far("2001:db8:3::1"));
    }

    #[test]
    fn what_no_router_passes_on_is_far_only_if_it_is_named() {
        let everything = sets(&["10.1.0.0/24"], &["0.0.0.0/0", "::/0"]);
        let named = sets(&["10.1.0.0/24"], &["224.0.0.18/32", "169.254.0.0/16", "ff02::/16"]);
        for address in ["224.0.0.18", "169.254.1.1", "ff02::12"] {
            assert!(!is_far(&everything, address) && is_far(&named, address), "{address}");
        }
        assert!(is_far(&everything, "239.1.1.1"));
        assert!(is_far(&everything, "ff05::1"));
    }

    #[test]
    fn the_near_networks_of_one_policy_do_not_open_the_far_ones_of_another() {
        let hub = sets(&["10.0.0.0/16", "10.2.0.0/16"], &["10.1.0.0/16"]);
        let spoke = sets(&["10.0.0.0/16", "10.1.4.0/24"], &["10.2.0.0/16"]);
        for both in [hub.union(&spoke), spoke.union(&hub)] {
            assert!(is_far(&both, "10.1.4.9"));
            assert!(is_far(&both, "10.2.4.9"));
            assert!(!is_far(&both, "10.0.0.1"));
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
