//! The table of the packet filter: made as a whole, changed in one step, held against others.

use std::{collections::BTreeMap, time::Duration};

use convoy_host::LinkName;
use convoy_netlink::{
    Refusal,
    nft::{self, AddressSet, Nft, Order, QueueBy, expression::Expression},
};
use netlink_packet_netfilter::nftables::TableFlags;

use crate::{
    chains::{self, Chain, Counted, discarded::DISCARDED, marking, questions, rewritten, tracking},
    config::{Config, Lead, TABLE_PREFIX},
    error::LeakProtectionError,
    forgetting::Flows,
    marks::{Epoch, Marks},
    policy_direction::PolicyDirection,
    questions::Asking,
    sets::{Covers, Differences, SETS, Shown, asks},
    tracked::Tracked,
};

/// Interfaces that have such a table.
pub(crate) fn interfaces() -> Result<Vec<LinkName>, LeakProtectionError> {
    let tables = Nft::open().and_then(|mut nft| nft.tables());
    let tables = tables.map_err(LeakProtectionError::Netlink)?;
    let names = tables.iter().filter_map(|table| table.strip_prefix(TABLE_PREFIX));
    // Another table of ours, which fits TCP connections to tunnels.
    let names = names.filter(|name| !name.starts_with("mss-"));
    Ok(names.filter_map(|name| LinkName::new(name).ok()).collect())
}

/// Number of tries, and time between two, for a table that another process still owns.
const TRIES: u32 = 50;
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// Numbers of other sets in a transaction.
const NOTES_FROM: u32 = 101;
const DISCARDS_FROM: u32 = 111;
/// Packets that leak protection dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Drops {
    /// From local to remote networks, which would have left in clear.
    pub outbound: u64,
    /// From remote to local networks, which came in in clear.
    pub inbound: u64,
    /// Outbound ones that bore no answer, although answers decide about them.
    pub unanswered_outbound: u64,
    /// Outbound ones that were ICMP errors about what came out of a tunnel.
    pub quoting: u64,
    /// Inbound ones that bore no answer, although answers decide about them.
    pub unanswered_inbound: u64,
    /// Packets like one that was answered to be dropped shortly before, and not asked about again.
    pub discarded_again: u64,
}

impl Drops {
    /// Protected packets that were to leave by another way than the TUN interface: a route or a rule led them there, or
    /// somebody took the mark that leads them, or gave them a source that is local.
    #[must_use]
    pub const fn past_interface(&self) -> u64 {
        self.outbound.saturating_sub(self.unanswered_outbound).saturating_sub(self.quoting)
    }
}

/// Table that stands where this one is to be, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    /// A table of the previous run, or this one, whose chains stay. A packet that is on its way through the chains of a
    /// table while another one takes its place finds no rules any more, and passes.
    Kept,
    /// A table of the previous run, if any.
    Ours,
    /// One without an owner.
    Anybodys,
    Nothing,
}

/// True if the table may be had in another way: this kernel lacks owners, or there is no such table.
const fn is_worth_another_way(errno: i32) -> bool {
    matches!(errno, nix::libc::EOPNOTSUPP | nix::libc::EINVAL | nix::libc::ENOENT)
}

/// A table that this process holds, once it has made it.
#[derive(Debug)]
pub(crate) struct Table {
    config: Config,
    nft: Nft,
    flows: Flows,
    /// Settings of questions, and true if they are asked.
    asking: Asking,
    asks: bool,
    /// True if packets that NAT turns into protected ones are led and queued.
    follows_nat: bool,
    /// Packets that are tracked while questions are asked.
    tracked: Tracked,
    /// Nobody else may change it.
    is_held: bool,
    /// The last change was made, as far as is known: then it holds what it was told.
    is_current: bool,
    /// Number of rules of each chain.
    rules: BTreeMap<String, usize>,
}

impl Table {
    /// Opens the packet filter of the calling thread's namespace.
    pub(crate) fn open(config: Config) -> Result<Self, LeakProtectionError> {
        let nft = Nft::open().map_err(|refusal| match refusal.errno {
            nix::libc::EPROTONOSUPPORT => LeakProtectionError::Unsupported(refusal),
            _ => LeakProtectionError::Netlink(refusal),
        })?;
        let flows = Flows::open()?;
        let asking = Asking::new(&config.questions);
        Ok(Self {
            config,
            nft,
            flows,
            asking,
            asks: false,
            follows_nat: false,
            tracked: Tracked::default(),
            is_held: false,
            is_current: false,
            rules: BTreeMap::new(),
        })
    }

    /// Contents of its sets; none when there is no such table.
    pub(crate) fn present(&mut self) -> Result<Option<Covers>, LeakProtectionError> {
        let name = self.config.table();
        let mut covers = Covers::default();
        let mut is_there = false;
        for (which, sets) in SETS.iter() {
            // Where ways have no sets of their own, it is held whichever way it goes.
            let mut read = covers.out.of(which.version).clone();
            for (set, cover) in sets.each().into_iter().zip(read.each_mut()) {
                let there = set.read(&mut self.nft, &name);
                if let Some(there) = there.map_err(|refusal| self.refused("read", refusal))? {
                    is_there = true;
                    *cover = there;
                }
            }
            *covers.get_mut(which) = read;
        }
        Ok(is_there.then_some(covers))
    }

    /// Makes the table, its sets with these contents and its chains, in place of what stands there, in
    /// one step.
    pub(crate) fn make(&mut self, covers: Shown<'_>) -> Result<(), LeakProtectionError> {
        if asks(covers) && !self.asks {
            // Answers of before are forgotten first, and are not to be those of a process that is still there.
            self.wait_for_owner()?;
        }
        self.will_ask(asks(covers))?;
        for _ in 1..TRIES {
            match self.try_make(covers) {
                Err(refusal) if self.is_anothers(&refusal) => std::thread::sleep(BETWEEN_TRIES),
                outcome => return outcome.map_err(|refusal| self.refused("make", refusal)),
            }
        }
        self.try_make(covers).map_err(|refusal| match self.is_anothers(&refusal) {
            true => LeakProtectionError::Held { table: self.config.table() },
            false => self.refused("make", refusal),
        })
    }

    /// Waits a while for another process that owns the table to end.
    fn wait_for_owner(&mut self) -> Result<(), LeakProtectionError> {
        let name = self.config.table();
        for _ in 0..TRIES {
            let tables = self.nft.tables().map_err(|refusal| self.refused("read", refusal))?;
            if !tables.contains(&name) {
                return Ok(());
            }
            // It is there, so this changes nothing.
            match self.nft.commit(nft::table(&name, TableFlags::empty(), false)) {
                Err(refusal) if self.is_anothers(&refusal) => std::thread::sleep(BETWEEN_TRIES),
                _ => return Ok(()),
            }
        }
        Err(LeakProtectionError::Held { table: name })
    }

    fn try_make(&mut self, covers: Shown<'_>) -> Result<(), Refusal> {
        let mut outcome = self.try_ways(covers);
        // The kernel may know only the other way to ask.
        if let Err(refusal) = &outcome
            && (self.asks || self.follows_nat)
            && is_worth_another_way(refusal.errno)
        {
            self.asking.by = match self.asking.by {
                QueueBy::Expression => QueueBy::Target,
                QueueBy::Target => QueueBy::Expression,
            };
            outcome = self.try_ways(covers);
        }
        outcome
    }

    fn try_ways(&mut self, covers: Shown<'_>) -> Result<(), Refusal> {
        // With an owner nobody else can empty it, `nft flush ruleset` included, and it outlives its
        // owner; kernels before 6.9 cannot do both.
        let held = TableFlags::Owner | TableFlags::Persisent;
        let none = TableFlags::empty();
        let mut outcome = Ok(());
        let there = self.nft.chains(&self.config.table())?;
        let ways = [
            (held, Before::Kept),
            (held, Before::Ours),
            // Somebody made it without an owner.
            (held, Before::Anybodys),
            (held, Before::Nothing),
            (none, Before::Kept),
            (none, Before::Ours),
            (none, Before::Nothing),
        ];
        for (flags, before) in ways {
            if before == Before::Kept && there.is_empty() {
                continue;
            }
            let orders = match before {
                Before::Kept => self.orders_within(covers, flags, &there),
                _ => self.orders(covers, flags, before),
            };
            self.rules = nft::rules_of(&orders);
            outcome = self.nft.commit(orders);
            self.is_held = outcome.is_ok() && flags == held;
            self.is_current = outcome.is_ok();
            match &outcome {
                Err(Refusal { errno, .. }) if is_worth_another_way(*errno) => {}
                _ => break,
            }
        }
        outcome
    }

    /// Says whether questions are asked from the next [`Table::make`] on. Where they were not, or by the previous run, no
    /// answer of before is believed.
    fn will_ask(&mut self, asks: bool) -> Result<(), LeakProtectionError> {
        if asks && !self.asks {
            let rules = match self.nft.dump(nft::question(&self.config.table(), questions::RECALL))
            {
                Err(Refusal { errno: nix::libc::ENOENT, .. }) => Vec::new(),
                rules => rules.map_err(|refusal| self.refused("read", refusal))?,
            };
            let compared: Vec<_> = rules.iter().flat_map(nft::compared).collect();
            let there = compared.iter().find_map(|bits| self.asking.marks.epoch_of(*bits));
            if there.is_none() {
                // The previous run kept answers elsewhere. What it wrote is not to be taken for somebody else's.
                let left = compared.iter().find_map(|bits| Marks::with_epochs(bits.mask));
                left.iter().for_each(|left| self.flows.are_due(left.of_flows()));
            }
            self.asking.epoch = self.epoch_after(there);
            if self.asking.epoch.is_none() && self.flows.are_cleared()? {
                self.asking.epoch = Some(Epoch::FIRST);
            }
        }
        self.asks = asks;
        Ok(())
    }

    /// Has every answer of before forgotten, in one step.
    pub(crate) fn forget(&mut self) -> Result<(), LeakProtectionError> {
        if !self.asks {
            return Ok(());
        }
        let epoch = self.asking.epoch;
        if epoch.is_some() {
            // Answers of the last one are kept until this is in force.
            self.asking.epoch = self.epoch_after(epoch);
        }
        let name = self.config.table();
        let none = DISCARDED.map(|discards| nft::elements::none(&name, discards.name));
        // Where flows remember nothing, there is nothing to be forgotten.
        let chains = epoch.map(|_| questions::of_epoch(&self.asking)).into_iter().flatten();
        self.refill(none.into(), chains)?;
        self.begin_epochs()
    }

    /// Has flows remember answers again once those of the last time that epochs had these numbers are cleared.
    fn begin_epochs(&mut self) -> Result<(), LeakProtectionError> {
        let is_due = self.asks && self.is_current && self.asking.epoch.is_none();
        if is_due && self.flows.are_cleared()? {
            self.asking.epoch = Some(Epoch::FIRST);
            self.refill(Vec::new(), questions::of_epoch(&self.asking))?;
        }
        Ok(())
    }

    /// Says whether what NAT makes a protected packet is led into the TUN interface, and queued. Where the kernel cannot do
    /// so, all else stands as before.
    pub(crate) fn follow_nat(
        &mut self,
        follows: bool,
        covers: Shown<'_>,
    ) -> Result<(), LeakProtectionError> {
        if core::mem::replace(&mut self.follows_nat, follows) == follows {
            return Ok(());
        }
        let made = self.make(covers);
        if made.is_err() && follows {
            self.follows_nat = false;
            self.make(covers)?;
        }
        made
    }

    /// Has the kernel track these packets where questions are asked.
    pub(crate) fn track(&mut self, tracked: Tracked) -> Result<(), LeakProtectionError> {
        let before = core::mem::replace(&mut self.tracked, tracked);
        // Otherwise it is made so when questions are, or all is made anew.
        match self.asks && before != tracked && self.is_current {
            true => self.refill(Vec::new(), tracking::rules(&self.config, tracked)),
            false => Ok(()),
        }
    }

    /// Puts other rules into chains, in one step, with what else is ordered.
    fn refill(
        &mut self,
        mut orders: Vec<Order>,
        chains: impl IntoIterator<Item = (&'static str, Vec<Vec<Expression>>)>,
    ) -> Result<(), LeakProtectionError> {
        let name = self.config.table();
        for (chain, rules) in chains {
            self.rules.insert(chain.to_owned(), rules.len());
            orders.push(nft::emptying(&name, chain));
            orders.extend(rules.into_iter().map(|rule| nft::rule(&name, chain, rule)));
        }
        let outcome = self.nft.commit(orders);
        self.is_current &= outcome.is_ok();
        outcome.map_err(|refusal| self.refused("change", refusal))
    }

    /// The epoch after another; none as long as flows may remember answers of one with the same number.
    fn epoch_after(&mut self, there: Option<Epoch>) -> Option<Epoch> {
        let next = there.and_then(Epoch::next);
        if next.is_none() {
            self.flows.are_due(self.asking.marks.of_flows());
        }
        next
    }

    fn orders(&self, covers: Shown<'_>, flags: TableFlags, before: Before) -> Vec<Order> {
        let name = self.config.table();
        let mut orders = nft::table(&name, flags, before == Before::Ours);
        if before == Before::Anybodys {
            orders.insert(0, nft::removal(&name));
        }
        orders.extend(self.empty_sets());
        for Chain { name: chain, place, rules, .. } in self.chains() {
            orders.extend(nft::chain(&name, chain, place, rules));
        }
        orders
            .extend(self.sets().zip(covers.each()).flat_map(|(set, cover)| set.fill(&name, cover)));
        orders
    }

    /// As [`Table::orders`], with the table and the chains that are there.
    fn orders_within(&self, covers: Shown<'_>, flags: TableFlags, there: &[String]) -> Vec<Order> {
        let name = self.config.table();
        let mut orders = nft::table(&name, flags, false);
        let chains = self.chains();
        orders.extend(there.iter().map(|chain| nft::emptying(&name, chain)));
        let is_wanted = |there: &&String| chains.iter().any(|chain| chain.name == *there);
        let gone = there.iter().filter(|chain| !is_wanted(chain));
        orders.extend(gone.map(|chain| nft::removal_of_chain(&name, chain)));
        orders.extend(self.filled_by_rules(false));
        orders.extend(self.empty_sets());
        let discards = DISCARDED.into_iter().filter(|_| self.asks);
        orders.extend(discards.map(|it| nft::elements::none(&name, it.name)));
        for (set, cover) in self.sets().zip(covers.each()) {
            orders.push(nft::elements::none(&name, set.name));
            orders.extend(set.fill(&name, cover));
        }
        for Chain { name: chain, place, rules, .. } in chains {
            orders.extend(nft::chain(&name, chain, place, rules));
        }
        orders
    }

    fn empty_sets(&self) -> impl Iterator<Item = Order> {
        let name = self.config.table();
        let own: Vec<_> = self.sets().zip(1..).map(|(set, id)| set.make(&name, id)).collect();
        own.into_iter().chain(self.filled_by_rules(true))
    }

    /// Makes the sets that rules fill and that are wanted, or removes those that are not.
    fn filled_by_rules(&self, are_wanted: bool) -> impl Iterator<Item = Order> {
        let name = self.config.table();
        let notes = rewritten::NOTES.into_iter().zip(NOTES_FROM..);
        let notes = notes.filter(|_| self.follows_nat == are_wanted);
        let discards = DISCARDED.into_iter().zip(DISCARDS_FROM..);
        let discards = discards.filter(|_| self.asks == are_wanted);
        let notes = notes.map(|(it, id)| (it.make(&name, id), it.name));
        let made: Vec<_> =
            notes.chain(discards.map(|(it, id)| (it.make(&name, id), it.name))).collect();
        let orders = made.into_iter().flat_map(move |(make, set)| {
            // It may not be there, and is made to be able to remove it.
            let removal = (!are_wanted).then(|| nft::removal_of_set(&name, set));
            core::iter::once(make).chain(removal)
        });
        orders.collect::<Vec<_>>().into_iter()
    }

    /// Its sets: policies of a site alone mean all ways.
    fn sets(&self) -> impl Iterator<Item = &'static AddressSet> {
        let has_all = self.config.leads == Lead::ByMark;
        let ways = SETS.iter().filter(move |(of, _)| has_all || of.way == PolicyDirection::Out);
        ways.flat_map(|(_, prefixes)| prefixes.each())
    }

    /// Refuses to write marks where another interface's table does: one would be taken for the other's.
    pub(crate) fn may_mark(&mut self, covers: Shown<'_>) -> Result<(), LeakProtectionError> {
        let is_new = !self.asks && !self.is_current;
        let marks = asks(covers) && !self.asks || self.config.leads == Lead::ByMark && is_new;
        if marks && self.is_marked_by_another()? {
            return Err(LeakProtectionError::Asked);
        }
        Ok(())
    }

    /// True if another interface's table writes marks: then rules and tables of routes are that one's.
    pub(crate) fn is_marked_by_another(&mut self) -> Result<bool, LeakProtectionError> {
        let own = self.config.table();
        let tables = self.nft.tables().map_err(|refusal| self.refused("read", refusal))?;
        for table in tables.iter().filter(|table| table.starts_with(TABLE_PREFIX) && **table != own)
        {
            match self.nft.dump(nft::question(table, marking::ARRIVING)) {
                Ok(rules) if !rules.is_empty() => return Ok(true),
                Ok(_) | Err(Refusal { errno: nix::libc::ENOENT, .. }) => {}
                Err(refusal) => return Err(self.refused("read", refusal)),
            }
        }
        Ok(false)
    }

    fn chains(&self) -> Vec<Chain> {
        let when = |is| Some(&self.asking).filter(|_| is);
        chains::all(&self.config, when(self.asks), when(self.follows_nat), self.tracked)
    }

    /// Changes what the sets hold, in one step; all is made anew where it is not known what they hold.
    pub(crate) fn change(
        &mut self,
        covers: Shown<'_>,
        differences: &Differences,
    ) -> Result<(), LeakProtectionError> {
        if !self.is_current || self.asks != asks(covers) {
            return self.make(covers);
        }
        let name = self.config.table();
        let sets = self.sets().zip(differences.each());
        let orders: Vec<_> = sets.flat_map(|(set, change)| set.change(&name, change)).collect();
        if orders.is_empty() {
            return Ok(());
        }
        let outcome = self.nft.commit(orders);
        self.is_current = outcome.is_ok();
        // Somebody else may have taken it away, where it has no owner.
        if outcome.is_err() { self.make(covers) } else { Ok(()) }
    }

    /// True if it is as it was made, and its sets hold this.
    pub(crate) fn holds(&mut self, covers: Shown<'_>) -> Result<bool, LeakProtectionError> {
        if self.is_held || !self.is_current {
            return Ok(self.is_current);
        }
        let is_same = self.present()?.is_some_and(|there| there.each_ref() == covers);
        Ok(is_same && self.has_rules()?)
    }

    /// True if each chain has its number of rules: who changes rules changes it, but for somebody who means to hide that.
    fn has_rules(&mut self) -> Result<bool, LeakProtectionError> {
        let name = self.config.table();
        for (chain, made) in &self.rules {
            match self.nft.dump(nft::question(&name, chain)) {
                Err(Refusal { errno: nix::libc::ENOENT, .. }) => return Ok(false),
                Ok(there) if there.len() != *made => return Ok(false),
                Ok(_) => {}
                Err(refusal) => return Err(self.refused("read", refusal)),
            }
        }
        Ok(true)
    }

    /// Readings of its counters; none where it has not the rules that were made.
    pub(crate) fn drops(&mut self) -> Result<Option<Drops>, LeakProtectionError> {
        self.begin_epochs()?;
        let name = self.config.table();
        let mut drops = Drops::default();
        let quoting = chains::quoting::drop_rules();
        for Chain { name: chain, counts, rules, .. } in self.chains() {
            let mut none = 0;
            let (count, unanswered) = match counts {
                Some(Counted::Outbound) => (&mut drops.outbound, &mut drops.unanswered_outbound),
                Some(Counted::Inbound) => (&mut drops.inbound, &mut drops.unanswered_inbound),
                Some(Counted::Discarded) => (&mut drops.discarded_again, &mut none),
                None => continue,
            };
            let answers = match self.nft.dump(nft::question(&name, chain)) {
                Err(Refusal { errno: nix::libc::ENOENT, .. }) => Vec::new(),
                answers => answers.map_err(|refusal| self.refused("read", refusal))?,
            };
            if answers.len() != rules.len() {
                return Ok(None);
            }
            for (answer, rule) in answers.iter().zip(&rules) {
                let packets = nft::packets_counted(answer);
                *count = count.saturating_add(packets);
                if quoting.contains(rule) {
                    drops.quoting = drops.quoting.saturating_add(packets);
                }
                if self.asks && chains::drops_unanswered(rule) {
                    *unanswered = unanswered.saturating_add(packets);
                }
            }
        }
        Ok(Some(drops))
    }

    /// The port of the socket that it is changed by.
    pub(crate) const fn port(&self) -> u32 {
        self.nft.port()
    }

    /// True if packets that NAT turns into protected ones are queued.
    pub(crate) const fn follows_nat(&self) -> bool {
        self.follows_nat
    }

    /// True if it asks questions.
    pub(crate) const fn asks(&self) -> bool {
        self.asks
    }

    /// Its sets are not what they should be: the next change, or repair, makes all of it anew.
    pub(crate) const fn is_behind(&mut self) {
        self.is_current = false;
    }

    /// Removes it; whether it was there.
    pub(crate) fn remove(&mut self) -> Result<bool, LeakProtectionError> {
        let name = self.config.table();
        let mut outcome = self.nft.commit(vec![nft::removal(&name)]);
        if matches!(outcome, Err(Refusal { errno: nix::libc::EPERM, .. })) && self.may_look() {
            // That of a process that has ended is taken over first.
            self.make(Covers::default().each_ref())?;
            outcome = self.nft.commit(vec![nft::removal(&name)]);
        }
        match outcome {
            Ok(()) => Ok(true),
            Err(Refusal { errno: nix::libc::ENOENT, .. }) => Ok(false),
            Err(refusal) => Err(self.refused("remove", refusal)),
        }
    }

    /// True if another, which may be ending, owns it: who may ask may change, too, but for what another owns.
    fn is_anothers(&mut self, refusal: &Refusal) -> bool {
        refusal.errno == nix::libc::EPERM && self.may_look()
    }

    fn may_look(&mut self) -> bool {
        self.present().is_ok()
    }

    fn refused(&self, doing: &'static str, refusal: Refusal) -> LeakProtectionError {
        match refusal.errno {
            nix::libc::EPERM | nix::libc::EACCES => {
                LeakProtectionError::Denied { doing: "change the packet filter" }
            }
            nix::libc::EOPNOTSUPP | nix::libc::EINVAL | nix::libc::EPROTONOSUPPORT => {
                LeakProtectionError::Unsupported(refusal)
            }
            _ => LeakProtectionError::Table { doing, table: self.config.table(), refusal },
        }
    }
}
