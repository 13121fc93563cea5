//! Which networks are on this side of tunnels, and which behind them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use convoy_netlink::nft::{Cover, Difference, Range};
use ipnet::IpNet;

use crate::table::SETS;

/// The networks on both sides of tunnels. What one on the near side sends to one on the far side is protected;
/// bits beyond prefixes are ignored.
///
/// A near network that lies within a wider far one is near, as a LAN beside a tunnel for everything: of the prefixes
/// that an address has on both sides the longest decides, and of equal ones the far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrefixSets {
    /// Local networks of policies that protect.
    pub near: BTreeSet<IpNet>,
    /// Networks that are routed into tunnels.
    pub far: BTreeSet<IpNet>,
    /// Of these, those beneath which an `unreachable` route is to lie in the main table.
    pub routed: BTreeSet<IpNet>,
    /// Of the far networks, what leaves in clear and comes in so all the same.
    pub bypassed: BTreeSet<IpNet>,
}

/// What the table's sets hold, in their order.
pub(crate) type Covers = [Cover; SETS.len()];
/// What changes of them.
pub(crate) type Differences = [Difference; SETS.len()];

impl PrefixSets {
    /// These networks and those of another one: what either protects is protected.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let join = |one: &BTreeSet<IpNet>, two: &BTreeSet<IpNet>| one | two;
        Self {
            near: join(&self.near, &other.near),
            far: join(&self.far, &other.far),
            routed: join(&self.routed, &other.routed),
            bypassed: &self.bypassed & &other.bypassed,
        }
    }

    pub(crate) fn covers(&self) -> Covers {
        let [near, far] = [&self.near, &self.far]
            .map(|nets| nets.iter().map(IpNet::trunc).collect::<BTreeSet<_>>());
        let mut covers = Covers::default();
        for (is_v4, covers) in [true, false].into_iter().zip(covers.chunks_exact_mut(2)) {
            let [near_cover, far_cover] = covers else { continue };
            let of_family = |net: &&IpNet| net.addr().is_ipv4() == is_v4;
            for net in near.iter().filter(of_family) {
                put(near_cover, net, true);
            }
            // Longer prefixes come later, and so decide; of equal ones the far.
            let mut both: Vec<_> = near.iter().filter(of_family).map(|net| (net, false)).collect();
            both.extend(far.iter().filter(of_family).map(|net| (net, true)));
            both.sort_by_key(|(net, is_far)| (net.prefix_len(), *is_far));
            for (net, is_far) in both {
                put(far_cover, net, is_far);
            }
            for net in self.bypassed.iter().filter(of_family) {
                put(far_cover, net, false);
            }
        }
        covers
    }
}

fn put(cover: &mut Cover, net: &IpNet, is_covered: bool) {
    let range = (number(net.network()), number(net.broadcast()));
    let covered: &[Range] = if is_covered { &[range] } else { &[] };
    cover.set(range, covered, &mut Difference::default());
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

/// What has to be taken out of a set, and put in, to make one cover of another.
pub(crate) fn differ(before: &Cover, after: &Cover, note: &mut Difference) {
    let mut cover = before.clone();
    for range in before.without(after) {
        cover.set(range, &[], note);
    }
    for range in after.without(before) {
        cover.set(range, &[range], note);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(texts: &[&str]) -> BTreeSet<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn sets(near: &[&str], far: &[&str]) -> PrefixSets {
        PrefixSets { near: nets(near), far: nets(far), ..PrefixSets::default() }
    }

    fn has(cover: &Cover, address: &str) -> bool {
        let at = number(address.parse().unwrap());
        cover.ranges().any(|(from, to)| (from..=to).contains(&at))
    }

    #[test]
    fn near_networks_within_a_tunnel_for_everything_stay_near() {
        let [near4, far4, near6, far6] = sets(&["10.1.0.0/24"], &["0.0.0.0/0"]).covers();
        assert!(has(&near4, "10.1.0.7") && !has(&far4, "10.1.0.7"));
        assert!(has(&far4, "10.1.1.0") && has(&far4, "255.255.255.255") && has(&far4, "0.0.0.0"));
        assert_eq!((near6, far6), Default::default());
    }

    #[test]
    fn a_spoke_within_the_network_of_its_hub_is_far() {
        let [near4, far4, ..] = sets(&["10.0.0.0/8"], &["10.2.0.0/16", "10.3.0.0/16"]).covers();
        assert!(has(&near4, "10.2.0.1") && has(&far4, "10.2.0.1"));
        assert!(has(&near4, "10.1.0.1") && !has(&far4, "10.1.0.1"));
    }

    #[test]
    fn the_longest_prefix_decides_and_of_equal_ones_the_far() {
        let near = ["2001:db8::/32", "2001:db8:2:3::/64", "2001:db8:7::/48"];
        let far = ["2001:db8:2::/48", "2001:db8:2:3:4::/80", "2001:db8:7::/48"];
        let [.., far6] = sets(&near, &far).covers();
        let is_far = |address| has(&far6, address);
        assert!(is_far("2001:db8:2::1") && !is_far("2001:db8:2:3::1"));
        assert!(is_far("2001:db8:2:3:4::1") && is_far("2001:db8:7::1"));
        assert!(!is_far("2001:db8:3::1"));
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
                for (before, after) in before.covers().iter().zip(&after.covers()) {
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
