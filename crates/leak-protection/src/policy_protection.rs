//! Leak protection by policies that come and go, as IKE daemons bring them.

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;

use crate::{
    Config, Drops, Held, Lead, LeakProtectionError, Policy, PolicyDirection, Repaired, Tracked,
    policy_prefixes::PolicyPrefixes, prefix_sets, prefix_sets::Differences,
    second_lock::SecondLock, standing::Standing, table::Table,
};

/// Outcome of a change of policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "answers of before may be believed"]
pub struct Changed {
    /// Packets are asked about of which the policies may say something else:
    /// [`PolicyProtection::forget_answers`] is due when they are in force.
    pub answers: bool,
}

/// Leak protection that follows policies. Packets from near to far that are not asked about go into the TUN interface
/// by a mark, whatever routes say; what no policy means passes.
///
/// It outlives its value and its process; [`PolicyProtection::take_away`] ends it.
#[derive(Debug)]
pub struct PolicyProtection {
    standing: Standing,
    prefixes: PolicyPrefixes,
}

impl PolicyProtection {
    /// Protects what an earlier life did, in the calling thread's network namespace, until policies name it again or
    /// [`PolicyProtection::settle`] is called; nothing if there was none.
    ///
    /// Another process that holds the table gets a second to end.
    ///
    /// # Errors
    /// [`LeakProtectionError`]. The table stands as a whole, or is as it was.
    pub fn raise(config: Config) -> Result<Self, LeakProtectionError> {
        Self::raise_with(config, &[], BTreeSet::new())
    }

    /// The same with policies that are there from the beginning, and with routes to some far networks
    /// ([`PolicyProtection::route`]).
    ///
    /// # Errors
    /// [`LeakProtectionError`]. The table stands as a whole, or is as it was.
    pub fn raise_with(
        config: Config,
        policies: &[Policy],
        routed: BTreeSet<IpNet>,
    ) -> Result<Self, LeakProtectionError> {
        let config = Config { leads: Lead::ByMark, ..config };
        let mut prefixes = PolicyPrefixes::default();
        let _ = prefixes.change(policies, &[]);
        let by_table = Table::open(config.clone())?.present()?;
        // Somebody may have emptied the packet filter.
        let left = by_table.map_or_else(|| SecondLock::left(&config), |it| Ok(Some(it)))?;
        if let Some(left) = left {
            let _: Differences = prefixes.leave(&left);
        }
        let standing = Standing::raise(config, prefixes.covers(), routed)?;
        Ok(Self { standing, prefixes })
    }

    /// Policies come, and others go, in one step. Of those that go, each is to have come before.
    ///
    /// # Errors
    /// [`LeakProtectionError`]. The policies count all the same, and [`PolicyProtection::repair`] tries again; what
    /// packets may do is as it was.
    pub fn change(
        &mut self,
        add: &[Policy],
        remove: &[Policy],
    ) -> Result<Changed, LeakProtectionError> {
        let (differences, answers) = self.prefixes.change(add, remove);
        self.follow(&differences)?;
        Ok(Changed { answers: answers && self.asks() })
    }

    /// Has routes lead to these networks into the TUN interface, and nowhere without it, behind all other routes but for
    /// the main table's default one. Packets with a mark do not use them; the host chooses a source by them for its own.
    ///
    /// # Errors
    /// [`LeakProtectionError`]; [`PolicyProtection::repair`] tries again.
    pub fn route(&mut self, networks: BTreeSet<IpNet>) -> Result<(), LeakProtectionError> {
        self.standing.route(networks)
    }

    /// Takes back the last change, in which these policies came and none went: as if they had never been there. What an
    /// earlier life left, and they named, is held again.
    ///
    /// # Errors
    /// As [`PolicyProtection::change`].
    pub fn take_back(&mut self, came: &[Policy]) -> Result<Changed, LeakProtectionError> {
        let (differences, answers) = self.prefixes.take_back(came);
        self.follow(&differences)?;
        Ok(Changed { answers })
    }

    /// Prefixes that an earlier life left closed, and no policy has named since.
    pub fn left(&self) -> impl Iterator<Item = IpNet> {
        self.prefixes.left().into_iter()
    }

    /// Ends the hold on what an earlier life left. To be called when all who make policies are known to have made them.
    ///
    /// # Errors
    /// As [`PolicyProtection::change`].
    pub fn settle(&mut self) -> Result<(), LeakProtectionError> {
        let differences = self.prefixes.settle();
        self.follow(&differences)
    }

    /// Prefixes that are held whatever policies say, as an earlier life left them.
    #[must_use]
    pub fn held(&self) -> Held {
        self.prefixes.held()
    }

    /// True if nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }

    /// True if the kernel asks about some packets, and a [`Listener`](crate::Listener) has to answer.
    #[must_use]
    pub fn asks(&self) -> bool {
        self.standing.asks()
    }

    /// True if the kernel asks about some of the packets that these policies mean, and may believe answers about them.
    #[must_use]
    pub fn asks_about(&self, policies: &[Policy]) -> bool {
        self.asks() && policies.iter().any(|policy| self.prefixes.asks_about(policy))
    }

    /// As [`LeakProtection::port`](crate::LeakProtection::port).
    #[must_use]
    pub fn port(&self) -> u32 {
        self.standing.port()
    }

    /// As [`LeakProtection::has_one_lock_only`](crate::LeakProtection::has_one_lock_only).
    #[must_use]
    pub fn has_one_lock_only(&self) -> bool {
        SecondLock::is_open(self.prefixes.covers())
    }

    /// As [`Held::mixed`], of what is held by policies and by an earlier life.
    #[must_use]
    pub fn mixed(&self, way: PolicyDirection, near: IpAddr, far: IpAddr) -> Option<bool> {
        prefix_sets::mixed(self.prefixes.covers(), way, near, far)
    }

    /// As [`LeakProtection::track`](crate::LeakProtection::track).
    ///
    /// # Errors
    /// [`LeakProtectionError`]; [`PolicyProtection::repair`] tries again.
    pub fn track(&mut self, tracked: Tracked) -> Result<(), LeakProtectionError> {
        self.standing.track(tracked)
    }

    /// Has what NAT makes a protected packet go into the TUN interface, as a kernel would look policies up again; before,
    /// it is dropped. To be said where others change addresses ([`Others::rewrite`](crate::Others::rewrite)), as it
    /// needs the kernel to track flows.
    ///
    /// # Errors
    /// [`LeakProtectionError`]: the kernel cannot do it, and such packets are dropped.
    pub fn follow_nat(&mut self, follows: bool) -> Result<(), LeakProtectionError> {
        self.standing.follow_nat(follows, self.prefixes.covers())
    }

    /// True if NAT is followed, and a [`Listener`](crate::Listener) has to take packets.
    #[must_use]
    pub fn follows_nat(&self) -> bool {
        self.standing.follows_nat()
    }

    /// Makes again what others removed or changed. It changes nothing when there is nothing to repair.
    ///
    /// # Errors
    /// [`LeakProtectionError`].
    pub fn repair(&mut self) -> Result<Repaired, LeakProtectionError> {
        self.standing.repair(self.prefixes.covers())
    }

    /// As [`LeakProtection::repair_table`](crate::LeakProtection::repair_table).
    ///
    /// # Errors
    /// [`LeakProtectionError`].
    pub fn repair_table(&mut self) -> Result<Repaired, LeakProtectionError> {
        self.standing.repair_table(self.prefixes.covers())
    }

    /// As [`LeakProtection::drops`](crate::LeakProtection::drops).
    ///
    /// # Errors
    /// [`LeakProtectionError`].
    pub fn drops(&mut self) -> Result<Option<Drops>, LeakProtectionError> {
        self.standing.drops()
    }

    /// As [`LeakProtection::forget_answers`](crate::LeakProtection::forget_answers).
    ///
    /// # Errors
    /// [`LeakProtectionError`]. Answers of before may still be believed then.
    pub fn forget_answers(&mut self) -> Result<(), LeakProtectionError> {
        self.standing.forget_answers()
    }

    /// Ends it: packets go where routes lead, in clear.
    ///
    /// # Errors
    /// [`LeakProtectionError`]; some of it may still stand then.
    pub fn take_away(self) -> Result<(), LeakProtectionError> {
        self.standing.take_away()
    }

    fn follow(&mut self, differences: &Differences) -> Result<(), LeakProtectionError> {
        let outcome = self.standing.change(self.prefixes.covers(), differences);
        outcome.inspect_err(|_| self.standing.is_behind())
    }
}
