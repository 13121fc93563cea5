//! The packet filter's half: chains of constant size, and sets of closed addresses.
//!
//! It asks nothing of routing tables and rules, so that it still holds when others change those.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use netlink_packet_netfilter::nftables::TableFlags;

use super::{Exceptions, FenceConfig, book::View, chain, clamp, common, inbound, nearby, pairs};
use crate::{
    LinkName,
    netlink::{
        Refusal,
        nft::{self, AddressSet, Answer, Cover, Difference, Nft, Order, elements},
    },
};

/// How many rules each chain has.
type Rules = BTreeMap<String, usize>;

/// Addresses of one family as one view sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SetOf {
    pub(super) view: View,
    pub(super) is_v4: bool,
}

pub(super) const SETS: [SetOf; 10] = [
    SetOf { view: View::Out, is_v4: true },
    SetOf { view: View::Out, is_v4: false },
    SetOf { view: View::FromTun, is_v4: true },
    SetOf { view: View::FromTun, is_v4: false },
    SetOf { view: View::Guarded, is_v4: true },
    SetOf { view: View::Guarded, is_v4: false },
    SetOf { view: View::Nearby, is_v4: true },
    SetOf { view: View::Nearby, is_v4: false },
    SetOf { view: View::Sender, is_v4: true },
    SetOf { view: View::Sender, is_v4: false },
];

/// What the sets hold, in their order.
pub(super) type Covers = [Cover; SETS.len()];
/// What changes of them.
pub(super) type Differences = [Difference; SETS.len()];

impl SetOf {
    fn name(self) -> &'static str {
        match (self.view, self.is_v4) {
            (View::Out, true) => "closed4",
            (View::Out, false) => "closed6",
            (View::FromTun, true) => "closed4-from-tun",
            (View::FromTun, false) => "closed6-from-tun",
            (View::Guarded, true) => "guarded4",
            (View::Guarded, false) => "guarded6",
            (View::Nearby, true) => "nearby4",
            (View::Nearby, false) => "nearby6",
            (View::Sender, true) => "senders4",
            (View::Sender, false) => "senders6",
        }
    }

    /// The set in the packet filter.
    pub(super) fn addresses(self) -> AddressSet {
        AddressSet { name: self.name(), is_v4: self.is_v4 }
    }

    pub(super) fn has(self, network: &IpNet) -> bool {
        network.addr().is_ipv4() == self.is_v4
    }

    /// What of a network the set is about.
    pub(super) fn parts_of(self, network: &IpNet) -> Vec<IpNet> {
        match self.view {
            View::Nearby => nearby().filter_map(|nearby| common(&nearby, network)).collect(),
            _ => vec![*network],
        }
    }
}

/// A packet filter that this process holds.
#[derive(Debug)]
pub(super) struct Filter {
    nft: Nft,
    table: String,
    /// Nobody else may change it.
    is_held: bool,
    /// The last change was made, as far as is known: then it holds what it was told.
    is_current: bool,
    /// Those that were made.
    rules: Rules,
    /// The kernel knows sets of pairs.
    takes_pairs: bool,
    /// Interfaces of tunnels.
    links: BTreeSet<LinkName>,
    /// Why the MSS of connections through them is not clamped.
    clamp_trouble: Option<Refusal>,
}

impl Filter {
    /// Opens the packet filter of the calling thread's namespace.
    pub(super) fn open(config: &FenceConfig) -> Result<Self, Refusal> {
        Ok(Self {
            nft: Nft::open()?,
            table: config.filter_table(),
            is_held: false,
            is_current: false,
            rules: Rules::new(),
            takes_pairs: false,
            links: [config.tun.clone()].into(),
            clamp_trouble: None,
        })
    }

    /// Whether every change was made, as far as is known.
    pub(super) const fn is_current(&self) -> bool {
        self.is_current
    }

    /// Whether it is as it was made, and the sets hold this. After a change that failed it is not.
    pub(super) fn holds(
        &mut self,
        covers: &Covers,
        exceptions: &Exceptions,
    ) -> Result<bool, Refusal> {
        if self.is_held || !self.is_current {
            return Ok(self.is_current);
        }
        let has_covers = self.present()?.as_ref() == Some(covers);
        Ok(has_covers && self.has_pairs(exceptions)? && self.has_rules()?)
    }

    fn has_pairs(&mut self, exceptions: &Exceptions) -> Result<bool, Refusal> {
        if !self.takes_pairs {
            return Ok(true);
        }
        for (set, wanted) in pairs::contents(exceptions) {
            let Some(there) = self.answers(set)? else { return Ok(false) };
            let there = elements::shown(&there);
            let there = there.map(|e| [e.key, e.key_end.unwrap_or(e.key)].map(<[u8]>::to_vec));
            if there.collect::<pairs::Keys>() != wanted {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Who changes rules changes their number, but for somebody who means to hide it.
    fn has_rules(&mut self) -> Result<bool, Refusal> {
        for (chain, made) in &self.rules {
            let there = match self.nft.dump(nft::question(&self.table, chain)) {
                Err(Refusal { errno: nix::libc::ENOENT, .. }) => return Ok(false),
                other => other?,
            };
            if there.len() != *made {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What the sets hold now; none when there are none. Those of another version may be fewer.
    pub(super) fn present(&mut self) -> Result<Option<Covers>, Refusal> {
        let mut covers: Covers = Default::default();
        let mut is_there = false;
        for (set, cover) in SETS.iter().zip(&mut covers) {
            if let Some(there) = set.addresses().read(&mut self.nft, &self.table)? {
                *cover = there;
                is_there = true;
            }
        }
        Ok(is_there.then_some(covers))
    }

    /// Makes the table, its sets with these contents and its chains, in place of what stands there, in
    /// one step; without sets of pairs if there are none to be.
    pub(super) fn make(
        &mut self,
        config: &FenceConfig,
        covers: &Covers,
        exceptions: Option<&Exceptions>,
    ) -> Result<(), Refusal> {
        // With an owner nobody else can empty it, `nft flush ruleset` included, and it outlives its
        // owner; kernels before 6.9 cannot do both.
        let held = TableFlags::Owner | TableFlags::Persisent;
        let none = TableFlags::empty();
        let mut outcome = Ok(());
        for (flags, replace) in [(held, true), (held, false), (none, true), (none, false)] {
            let orders = self.whole(config, covers, exceptions, flags, replace);
            self.rules = nft::rules_of(&orders);
            outcome = self.nft.commit(orders);
            self.takes_pairs = exceptions.is_some() && outcome.is_ok();
            self.is_held = outcome.is_ok() && flags == held;
            self.is_current = outcome.is_ok();
            match &outcome {
                Err(Refusal { errno: nix::libc::EOPNOTSUPP | nix::libc::EINVAL, .. }) => {}
                _ => break,
            }
        }
        if outcome.is_ok() {
            // Apart: a kernel that cannot do this shall have the rest.
            let orders = clamp::set_and_rules(&self.table, &self.links);
            let rules = nft::rules_of(&orders);
            self.clamp_trouble = self.nft.commit(orders).err();
            if self.clamp_trouble.is_none() {
                self.rules.extend(rules);
            }
        }
        outcome
    }

    pub(super) const fn clamp_trouble(&self) -> Option<&Refusal> {
        self.clamp_trouble.as_ref()
    }

    /// Clamps the MSS of connections through these interfaces.
    pub(super) fn clamp(&mut self, links: BTreeSet<LinkName>) -> Result<(), Refusal> {
        if links == self.links {
            return Ok(());
        }
        self.links = links;
        if self.clamp_trouble.is_some() {
            return Ok(());
        }
        let outcome = self.nft.commit(clamp::change(&self.table, &self.links));
        self.is_current &= outcome.is_ok();
        outcome
    }

    fn whole(
        &self,
        config: &FenceConfig,
        covers: &Covers,
        exceptions: Option<&Exceptions>,
        flags: TableFlags,
        replace: bool,
    ) -> Vec<Order> {
        let mut orders = nft::table(&self.table, flags, replace);
        orders.extend(chain::sets_and_rules(config, &self.table, exceptions.is_some()));
        orders.extend(exceptions.iter().flat_map(|these| pairs::fill(&self.table, these, false)));
        for (set, cover) in SETS.iter().zip(covers) {
            orders.extend(set.addresses().fill(&self.table, cover));
        }
        orders
    }

    /// Changes the contents of the sets, in one step.
    pub(super) fn change_sets(&mut self, differences: &Differences) -> Result<(), Refusal> {
        let mut orders = Vec::new();
        for (set, difference) in SETS.iter().zip(differences) {
            orders.extend(set.addresses().change(&self.table, difference));
        }
        if orders.is_empty() {
            return Ok(());
        }
        // After a change that failed, or of which nothing was heard, nobody knows what there is.
        let outcome = self.nft.commit(orders);
        self.is_current &= outcome.is_ok();
        outcome
    }

    pub(super) const fn takes_pairs(&self) -> bool {
        self.takes_pairs
    }

    /// Makes exceptions in place of others.
    pub(super) fn except(&mut self, exceptions: &Exceptions) -> Result<(), Refusal> {
        let outcome = self.nft.commit(pairs::fill(&self.table, exceptions, true));
        self.is_current &= outcome.is_ok();
        outcome
    }

    /// Removes everything.
    pub(super) fn remove(&mut self) -> Result<(), Refusal> {
        match self.nft.commit(vec![nft::removal(&self.table)]) {
            Err(Refusal { errno: nix::libc::ENOENT, .. }) => Ok(()),
            other => other,
        }
    }

    /// Packets that were stopped from leaving since the chains were made.
    pub(super) fn stopped(&mut self) -> Result<u64, Refusal> {
        self.counted(&chain::CHAINS)
    }

    /// Packets that were not let in since the chains were made.
    pub(super) fn refused(&mut self) -> Result<u64, Refusal> {
        self.counted(&inbound::CHAINS)
    }

    fn counted(&mut self, chains: &[&str]) -> Result<u64, Refusal> {
        let mut packets = 0_u64;
        for chain in chains {
            let answers = self.nft.dump(nft::question(&self.table, chain))?;
            let counts = answers.iter().map(nft::packets_counted);
            packets = counts.fold(packets, u64::saturating_add);
        }
        Ok(packets)
    }

    /// What the kernel answers to who asks for a set's elements; none when there is no such set.
    fn answers(&mut self, set: &str) -> Result<Option<Vec<Answer>>, Refusal> {
        match self.nft.dump(elements::question(&self.table, set)) {
            Err(Refusal { errno: nix::libc::ENOENT, .. }) => Ok(None),
            other => other.map(Some),
        }
    }
}
