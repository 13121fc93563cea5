//! Networks, and the look-up of those that contain an address.

use std::sync::Arc;

#[cfg(doc)]
use convoy_wire::FlowKey;
use convoy_wire::flow::addr_bytes;
use convoy_wire::{IpVersion, Prefix};

use crate::table::{Key, PagedMap, Seed};

/// An address in the layout of [`FlowKey`] as a number: IPv4 addresses have zeros behind them.
pub(super) const fn number(bytes: [u8; 16]) -> u128 {
    u128::from_be_bytes(bytes)
}

/// The bits that addresses have.
pub(super) const fn used(version: IpVersion) -> u128 {
    mask(version.address_bits())
}

const fn mask(len: u8) -> u128 {
    match u128::MAX.checked_shr(len as u32) {
        Some(rest) => !rest,
        None => u128::MAX,
    }
}

/// Addresses from a first to a last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u128,
    pub(super) last: u128,
}

impl Range {
    pub(super) const fn contains(self, address: u128) -> bool {
        self.first <= address && address <= self.last
    }

    pub(super) const fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// True if it has fewer addresses than another one of the same version.
    pub(super) const fn is_smaller(self, other: Self) -> bool {
        self.last - self.first < other.last - other.first
    }

    /// The networks that it consists of.
    pub(super) fn networks(self, version: IpVersion) -> impl Iterator<Item = Network> {
        let bits = version.address_bits();
        let unused = 128 - u32::from(bits);
        let last = self.last.checked_shr(unused).unwrap_or(0);
        let mut next = self.first.checked_shr(unused);
        core::iter::from_fn(move || {
            let at = next?;
            // As long as its place and what is left allow.
            let left = (last - at).checked_add(1).map_or(128, u128::ilog2);
            let free = at.trailing_zeros().min(u32::from(bits)).min(left);
            let end = at | !mask_low(free);
            next = end.checked_add(1).filter(|next| *next <= last);
            let len = bits - free as u8;
            Some(Network { version, len, bits: at << unused })
        })
    }
}

/// All but the lowest `n` bits.
const fn mask_low(n: u32) -> u128 {
    match u128::MAX.checked_shl(n) {
        Some(mask) => mask,
        None => 0,
    }
}

/// A network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Network {
    version: IpVersion,
    len: u8,
    bits: u128,
}

impl Network {
    const fn range(self) -> Range {
        let last = self.bits | used(self.version) & !mask(self.len);
        Range { first: self.bits, last }
    }
}

impl From<Prefix> for Network {
    fn from(prefix: Prefix) -> Self {
        let bits = number(addr_bytes(prefix.addr()));
        Self { version: prefix.version(), len: prefix.len(), bits }
    }
}

impl Key for Network {
    fn hash(&self, seed: Seed) -> u64 {
        let (high, low) = ((self.bits >> 64) as u64, self.bits as u64);
        let kind = u64::from(self.version == IpVersion::V6) << 8 | u64::from(self.len);
        seed.of(high ^ low.rotate_left(29), kind)
    }
}

/// Networks with something about each. Clones share what is the same.
#[derive(Clone, Debug)]
pub(super) struct Networks<V> {
    map: PagedMap<Network, V>,
    /// Lengths that networks of either version have, and how many have each.
    lengths: Arc<[Vec<(u8, u32)>; 2]>,
}

impl<V> Default for Networks<V> {
    fn default() -> Self {
        Self { map: PagedMap::default(), lengths: Arc::default() }
    }
}

impl<V> Networks<V> {
    pub(super) fn is_empty(&self) -> bool {
        self.lengths.iter().all(Vec::is_empty)
    }

    /// True if this is one of the addresses that are networks of their own.
    pub(super) fn has_host(&self, version: IpVersion, address: u128) -> bool {
        let host = Network { version, len: version.address_bits(), bits: address };
        self.map.get(&host).is_some()
    }

    /// True if one of the networks that contain an address is as wanted.
    pub(super) fn any(
        &self,
        version: IpVersion,
        address: u128,
        mut is_wanted: impl FnMut(Range, &V) -> bool,
    ) -> bool {
        let lengths = self.lengths.get(place(version)).map_or(&[][..], Vec::as_slice);
        lengths.iter().any(|(len, _)| {
            let network = Network { version, len: *len, bits: address & mask(*len) };
            self.map.get(&network).is_some_and(|value| is_wanted(network.range(), value))
        })
    }
}

impl<V: Clone> Networks<V> {
    /// Changes what is about a network; without anything left about it, it is gone.
    pub(super) fn change(&mut self, network: Network, change: impl FnOnce(Option<V>) -> Option<V>) {
        let before = self.map.remove(&network);
        let was_there = before.is_some();
        let after = change(before);
        let is_there = after.is_some();
        if let Some(value) = after {
            self.map.insert(network, value);
        }
        if was_there != is_there {
            self.count(network, is_there);
        }
    }

    fn count(&mut self, network: Network, is_more: bool) {
        let lengths = Arc::make_mut(&mut self.lengths);
        let Some(lengths) = lengths.get_mut(place(network.version)) else { return };
        match lengths.iter_mut().find(|(len, _)| *len == network.len) {
            Some((_, count)) if is_more => *count += 1,
            Some((_, count)) => *count -= 1,
            None => lengths.push((network.len, 1)),
        }
        lengths.retain(|(_, count)| *count > 0);
    }
}

const fn place(version: IpVersion) -> usize {
    match version {
        IpVersion::V4 => 0,
        IpVersion::V6 => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: &str, last: &str) -> (IpVersion, Range) {
        let [first, last] = [first, last].map(|text| text.parse().unwrap());
        let bits = |address| number(addr_bytes(address));
        (IpVersion::of_addr(first), Range { first: bits(first), last: bits(last) })
    }

    fn words(first: &str, last: &str) -> Vec<String> {
        let (version, range) = range(first, last);
        let address = |bits: u128| convoy_wire::flow::addr(version, bits.to_be_bytes());
        range.networks(version).map(|n| format!("{}/{}", address(n.bits), n.len)).collect()
    }

    #[test]
    fn a_range_consists_of_networks() {
        assert_eq!(words("10.1.0.0", "10.1.0.255"), ["10.1.0.0/24"]);
        assert_eq!(words("10.1.0.1", "10.1.0.4"), ["10.1.0.1/32", "10.1.0.2/31", "10.1.0.4/32"]);
        assert_eq!(words("0.0.0.0", "255.255.255.255"), ["0.0.0.0/0"]);
        assert_eq!(words("255.255.255.254", "255.255.255.255"), ["255.255.255.254/31"]);
        let all = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        assert_eq!(words("::", all), ["::/0"]);
        assert_eq!(words("0.0.0.1", "255.255.255.254").len(), 62);
        assert_eq!(words("::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe").len(), 254);
        for (first, last) in [("10.1.0.3", "10.9.7.1"), ("2001:db8::7", "2001:db9:1::")] {
            let (version, range) = range(first, last);
            let mut next = range.first;
            let used = range.networks(version).inspect(|network| {
                assert_eq!(network.range().first, next);
                next = (network.range().last | !used(version)).wrapping_add(1);
            });
            assert_eq!(used.last().unwrap().range().last, range.last);
        }
    }

    #[test]
    pub(super) fn networks_that_contain_an_address_are_found_until_they_go() {
        let mut networks = Networks::default();
        let of = |text: &str| Network::from(text.parse::<Prefix>().unwrap());
        let all = ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "a01::/16", "0.0.0.0/0"];
        for text in all {
            networks.change(of(text), |before| before.or(Some(text)));
        }
        let to = |text: &str| number(addr_bytes(text.parse().unwrap()));
        let found = |networks: &Networks<&str>, address: &str| {
            let mut found = Vec::new();
            let version = IpVersion::of_addr(address.parse().unwrap());
            networks.any(version, to(address), |range, text| {
                assert!(range == of(text).range());
                found.push(of(text).len);
                false
            });
            found.sort_unstable();
            found
        };
        assert_eq!(found(&networks, "10.1.2.3"), [0, 8, 16, 32]);
        assert_eq!(found(&networks, "10.2.2.3"), [0, 8]);
        assert_eq!(found(&networks, "a01::1"), [16], "the same leading bytes, another version");
        assert!(networks.has_host(IpVersion::V4, to("10.1.2.3")));
        assert!(!networks.has_host(IpVersion::V4, to("10.1.0.0")));
        let before = networks.clone();
        all.iter().for_each(|text| networks.change(of(text), |_| None));
        assert!(networks.is_empty() && !before.is_empty());
        assert_eq!(found(&networks, "10.1.2.3"), []);
        assert_eq!(found(&before, "10.1.2.3"), [0, 8, 16, 32]);
    }
}
