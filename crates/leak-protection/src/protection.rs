//! Leak protection that is installed.

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;

use crate::ranges::version_of;
use crate::{
    config::{Config, Lead},
    error::LeakProtectionError,
    installation::{Installation, Repaired},
    policy_direction::PolicyDirection,
    policy_prefixes::{Policy, PolicyPrefixes},
    prefix_sets::PrefixSets,
    second_lock::SecondLock,
    sets::{self, Covers, Differences, Held, Shown},
    site_policies::SitePolicies,
    table::{Drops, Table},
    tracked::Tracked,
};

/// Outcome of a change of policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "answers of before may be believed"]
pub struct Changed {
    /// Packets are asked about of which the policies may say something else:
    /// [`LeakProtection::forget_answers`] is due when they are in force.
    pub answers: bool,
}

/// Leak protection that is installed around what the policies of a site, and of IKE daemons, protect.
///
/// It outlives its value and its process; [`LeakProtection::remove`] ends it.
#[derive(Debug)]
pub struct LeakProtection {
    installation: Installation,
    prefixes: Prefixes,
}

/// Prefixes that policies protect: the contents of the table's sets.
#[derive(Debug)]
enum Prefixes {
    /// Of a site without daemons: worked out as a whole.
    Networks { sets: PrefixSets, covers: Box<Covers> },
    /// Of a site with daemons: they follow its own policies, and those of daemons, one by one.
    Each { own: BTreeSet<Policy>, prefixes: Box<PolicyPrefixes> },
}

impl Prefixes {
    fn shown(&self) -> Shown<'_> {
        match self {
            Self::Networks { covers, .. } => covers.each_ref(),
            Self::Each { prefixes, .. } => prefixes.covers(),
        }
    }

    /// The policies of the site itself and others together, if both are of one kind.
    fn with(&self, next: &SitePolicies) -> Result<SitePolicies, LeakProtectionError> {
        match (self, next) {
            (Self::Networks { sets, .. }, SitePolicies::Networks(next)) => {
                Ok(SitePolicies::Networks(sets.union(next)))
            }
            (Self::Each { own, .. }, SitePolicies::Each { policies, routed }) => {
                Ok(SitePolicies::Each { policies: own | policies, routed: routed.clone() })
            }
            _ => Err(LeakProtectionError::AnotherKind),
        }
    }

    fn each(&self) -> Option<&PolicyPrefixes> {
        match self {
            Self::Networks { .. } => None,
            Self::Each { prefixes, .. } => Some(prefixes),
        }
    }

    fn each_mut(&mut self) -> Result<&mut PolicyPrefixes, LeakProtectionError> {
        match self {
            Self::Networks { .. } => Err(LeakProtectionError::AnotherKind),
            Self::Each { prefixes, .. } => Ok(prefixes),
        }
    }
}

impl LeakProtection {
    /// Protects what these policies do, in the calling thread's network namespace. Of [`SitePolicies::Networks`] that is in
    /// place of what an earlier life protected; with [`SitePolicies::Each`], what that protected stays so until policies
    /// name it again or [`LeakProtection::settle`] is called.
    ///
    /// Another process that holds the table gets a second to end.
    ///
    /// # Errors
    /// [`LeakProtectionError`]. The table stands as a whole, or is as it was.
    pub fn install(
        config: Config,
        own: impl Into<SitePolicies>,
    ) -> Result<Self, LeakProtectionError> {
        let own = own.into();
        let routed = own.routed().clone();
        let (config, prefixes) = match own {
            SitePolicies::Networks(sets) => {
                let covers = Box::new(sets.covers());
                (config, Prefixes::Networks { sets, covers })
            }
            SitePolicies::Each { policies: own, .. } => {
                let config = Config { leads: Lead::ByMark, ..config };
                let mut prefixes = Box::<PolicyPrefixes>::default();
                let _ = prefixes.change(&Vec::from_iter(own.iter().copied()), &[]);
                let by_table = Table::open(config.clone())?.present()?;
                // Somebody may have emptied the packet filter.
                let left = by_table.map_or_else(|| SecondLock::left(&config), |it| Ok(Some(it)))?;
                if let Some(left) = left {
                    let _: Differences = prefixes.leave(&left);
                }
                (config, Prefixes::Each { own, prefixes })
            }
        };
        let installation = Installation::install(config, prefixes.shown(), routed)?;
        Ok(Self { installation, prefixes })
    }

    /// Protects what the site's own policies do, and what others do that are to come.
    ///
    /// # Errors
    /// As [`LeakProtection::set`].
    pub fn widen(&mut self, next: &SitePolicies) -> Result<Changed, LeakProtectionError> {
        let both = self.prefixes.with(next)?;
        let both = match both {
            SitePolicies::Each { policies, routed } => {
                let routed = &routed | self.installation.routed();
                SitePolicies::Each { policies, routed }
            }
            networks @ SitePolicies::Networks(_) => networks,
        };
        self.set(both)
    }

    /// Has the site's own policies be these, in place of those before, in one step.
    ///
    /// # Errors
    /// [`LeakProtectionError`]. What packets may do is as it was, or as it was to be. Of [`SitePolicies::Networks`] those of
    /// before are protected; of [`SitePolicies::Each`] the new ones count all the same, and [`LeakProtection::repair`] tries
    /// again. With [`LeakProtectionError::AnotherKind`] nothing has changed.
    pub fn set(&mut self, own: impl Into<SitePolicies>) -> Result<Changed, LeakProtectionError> {
        let own = own.into();
        let routed = own.routed().clone();
        let answers = match (&mut self.prefixes, own) {
            (Prefixes::Networks { sets, covers }, SitePolicies::Networks(next)) => {
                let after = next.covers();
                let differences = sets::differences(covers, &after);
                self.installation.change(after.each_ref(), &differences)?;
                (*sets, **covers) = (next, after);
                false
            }
            (Prefixes::Each { own, prefixes }, SitePolicies::Each { policies, .. }) => {
                let [come, gone] = [policies.difference(own), own.difference(&policies)]
                    .map(|some| some.copied().collect::<Vec<_>>());
                *own = policies;
                match come.is_empty() && gone.is_empty() {
                    true => false,
                    false => {
                        let (differences, answers) = prefixes.change(&come, &gone);
                        self.follow(&differences)?;
                        answers
                    }
                }
            }
            _ => return Err(LeakProtectionError::AnotherKind),
        };
        self.installation.route(routed)?;
        Ok(Changed { answers: answers && self.asks() })
    }

    /// Policies of daemons come, and others go, in one step. Of those that go, each is to have come before.
    ///
    /// # Errors
    /// As [`LeakProtection::set`]; a site without daemons has none.
    pub fn change(
        &mut self,
        add: &[Policy],
        remove: &[Policy],
    ) -> Result<Changed, LeakProtectionError> {
        let (differences, answers) = self.prefixes.each_mut()?.change(add, remove);
        self.follow(&differences)?;
        Ok(Changed { answers: answers && self.asks() })
    }

    /// Takes back the last change, in which these policies came and none went: as if they had never been there. What an
    /// earlier life left, and they named, is held again.
    ///
    /// # Errors
    /// As [`LeakProtection::change`].
    pub fn take_back(&mut self, came: &[Policy]) -> Result<Changed, LeakProtectionError> {
        let (differences, answers) = self.prefixes.each_mut()?.take_back(came);
        self.follow(&differences)?;
        Ok(Changed { answers })
    }

    /// Prefixes that an earlier life left closed, and no policy has named since.
    pub fn left(&self) -> impl Iterator<Item = IpNet> {
        self.prefixes.each().into_iter().flat_map(PolicyPrefixes::left)
    }

    /// Ends the hold on what an earlier life left. To be called when all who make policies are known to have made them.
    ///
    /// # Errors
    /// As [`LeakProtection::change`].
    pub fn settle(&mut self) -> Result<(), LeakProtectionError> {
        let differences = self.prefixes.each_mut()?.settle();
        self.follow(&differences)
    }

    /// Prefixes between which packets are held that no policy names: all of [`SitePolicies::Networks`], and otherwise
    /// what an earlier life left.
    #[must_use]
    pub fn held(&self) -> Held {
        match &self.prefixes {
            Prefixes::Networks { covers, .. } => Held::of((**covers).clone()),
            Prefixes::Each { prefixes, .. } => prefixes.held(),
        }
    }

    /// True if nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match &self.prefixes {
            Prefixes::Networks { sets, .. } => sets.policies.is_empty(),
            Prefixes::Each { prefixes, .. } => prefixes.is_empty(),
        }
    }

    /// True if the kernel asks about some packets, and a [`Listener`](crate::Listener) has to answer. Then the routes to remote
    /// networks are this one's, too.
    #[must_use]
    pub fn asks(&self) -> bool {
        self.installation.asks()
    }

    /// True if the kernel asks about some of the packets that these policies mean, and may believe answers about them.
    #[must_use]
    pub fn asks_about(&self, policies: &[Policy]) -> bool {
        let asks_about =
            |prefixes: &PolicyPrefixes| policies.iter().any(|policy| prefixes.asks_about(policy));
        self.asks() && self.prefixes.each().is_some_and(asks_about)
    }

    /// True if the second lock is left open, as there are too many local prefixes: then the table of the packet filter alone
    /// holds packets.
    #[must_use]
    pub fn has_one_lock_only(&self) -> bool {
        SecondLock::is_open(self.prefixes.shown())
    }

    /// The port of the netlink socket by which the table is changed: what came by others, others changed.
    #[must_use]
    pub fn port(&self) -> u32 {
        self.installation.port()
    }

    /// True if an address is a remote one of what leaves.
    #[must_use]
    pub fn is_remote(&self, address: IpAddr) -> bool {
        self.prefixes.shown().out.of(version_of(address)).remote.contains(address)
    }

    /// True if the remote one of two addresses is in a partly bypassed network; none if packets of this way are not held between them.
    #[must_use]
    pub fn partly_bypassed(
        &self,
        way: PolicyDirection,
        local: IpAddr,
        remote: IpAddr,
    ) -> Option<bool> {
        sets::partly_bypassed(self.prefixes.shown(), way, local, remote)
    }

    /// Has the kernel track these packets as flows from now on, where questions are asked: before, all of them.
    ///
    /// # Errors
    /// [`LeakProtectionError`]; [`LeakProtection::repair`] tries again.
    pub fn track(&mut self, tracked: Tracked) -> Result<(), LeakProtectionError> {
        self.installation.track(tracked)
    }

    /// Has what NAT makes a protected packet go into the TUN interface, as a kernel would look policies up again; before,
    /// it is dropped. To be said where marks lead and others change addresses ([`Others::rewrite`](crate::Others::rewrite)),
    /// as it needs the kernel to track flows.
    ///
    /// # Errors
    /// [`LeakProtectionError`]: the kernel cannot do it, and such packets are dropped.
    pub fn follow_nat(&mut self, follows: bool) -> Result<(), LeakProtectionError> {
        self.installation.follow_nat(follows, self.prefixes.shown())
    }

    /// True if NAT is followed, and a [`Listener`](crate::Listener) has to take packets.
    #[must_use]
    pub fn follows_nat(&self) -> bool {
        self.installation.follows_nat()
    }

    /// Makes again what others removed or changed. It changes nothing when there is nothing to repair.
    ///
    /// # Errors
    /// [`LeakProtectionError`].
    pub fn repair(&mut self) -> Result<Repaired, LeakProtectionError> {
        self.installation.repair(self.prefixes.shown())
    }

    /// The same without `ip rule`s and routes, which take longer to look at.
    ///
    /// # Errors
    /// [`LeakProtectionError`].
    pub fn repair_table(&mut self) -> Result<Repaired, LeakProtectionError> {
        self.installation.repair_table(self.prefixes.shown())
    }

    /// Packets that were dropped since the table was made; none where somebody changed it, and
    /// [`LeakProtection::repair`] is due.
    ///
    /// # Errors
    /// [`LeakProtectionError`].
    pub fn drops(&mut self) -> Result<Option<Drops>, LeakProtectionError> {
        self.installation.drops()
    }

    /// Has every answer of before forgotten: the next packet of each flow of partly bypassed prefixes is asked about. To be
    /// called when other policies answer, and what was asked before is answered.
    ///
    /// # Errors
    /// [`LeakProtectionError`]. Answers of before may still be believed then.
    pub fn forget_answers(&mut self) -> Result<(), LeakProtectionError> {
        self.installation.forget_answers()
    }

    /// Ends it: packets go where routes lead, in clear.
    ///
    /// # Errors
    /// [`LeakProtectionError`]; some of it may still stand then.
    pub fn remove(self) -> Result<(), LeakProtectionError> {
        self.installation.remove()
    }

    fn follow(&mut self, differences: &Differences) -> Result<(), LeakProtectionError> {
        let outcome = self.installation.change(self.prefixes.shown(), differences);
        outcome.inspect_err(|_| self.installation.is_behind())
    }
}
