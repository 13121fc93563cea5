//! Leak protection of what the policies of IKE daemons, and a site's own beside them, protect.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use convoy_control::site::Site;
use convoy_control::status::LeakProtection;
use convoy_control::xfrm::{Cover, Covered};
use convoy_host::{Clamp, LinkName};
use convoy_ipsec::snapshot::{Published, Snapshot};
use convoy_ipsec::spd::SpdId;
use convoy_leak_protection::{
    Answered, Changed, Config, Finding, Lead, LeakProtectionError, Look, Policy, PolicyDirection,
    PolicyProtection, Tracked, Verdict, far, findings,
};

use super::connections::{Connections, Lookout};
use super::leaks::{COUNTS, DropCounts};
use super::near_and_far::net;
use super::own_policies::OwnPolicies;
use super::questions::{Answering, Database, Pause, Pauses, Tally};
use super::trace::Protection;
use super::{interfaces, leaks};
use crate::exit::Stop;

const NOT_CLAMPED: &str = "the packet filter here cannot fit TCP connections to the MTU of tunnels (nf_tables, \
                           nft_rt, nft_exthdr); they depend on ICMP messages that get through";

const UNFOLLOWED: &str = "this kernel cannot lead into tunnels what NAT gives the addresses of a protected packet, and \
                          drops it (it needs nfnetlink_queue, nft_queue, nft_ct, nf_conntrack_netlink)";
/// Time that it is left at that.
const UNFOLLOWED_FOR: Duration = Duration::from_secs(10);

/// Leak protection of a gateway for daemons.
#[derive(Debug)]
pub(super) struct Guard {
    /// There until the end.
    protection: Option<PolicyProtection>,
    config: Config,
    /// The site's own policies that are in force, and what is held of own ones: while they change, that of both.
    own: OwnPolicies,
    held: BTreeSet<Policy>,
    /// Source of answers to what the kernel asks, once there are policies that can.
    database: Option<(Arc<Published>, SpdId)>,
    answering: Option<Answering>,
    /// Policies changed, and the kernel may still believe answers by those before.
    must_forget: bool,
    pauses: Pauses,
    /// Nothing is answered at present.
    pause: Option<Pause>,
    /// Nor is anything believed that was answered before.
    is_void: bool,
    /// True once what others do to marks of flows was told, as questions need these.
    is_told: bool,
    /// Faults that worked against it at the last look.
    found: Vec<Finding>,
    counts: DropCounts,
    tally: Tally,
    connections: Connections,
    /// Reason for which what NAT makes a protected packet is dropped, if it is, and the time of that finding.
    unfollowed: Option<(String, Instant)>,
    /// There are too many near networks for the second lock, and it was told.
    has_one_lock: bool,
}

/// A counter of the packet filter, which begins anew when the filter is made again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    pub(super) total: u64,
    last: u64,
}

impl Count {
    pub(super) fn note(&mut self, now: u64) {
        self.total += now.checked_sub(self.last).unwrap_or(now);
        self.last = now;
    }
}

impl Guard {
    /// Raises leak protection around what the site's own policies protect, and what an earlier life left closed.
    pub(super) fn raise(site: &Site) -> anyhow::Result<Self> {
        let config = Config { leads: Lead::ByMark, ..leaks::config(site)? };
        let own = OwnPolicies::of(site).map_err(|finding| Stop::usage(finding.to_string()))?;
        let held = own.covers().clone();
        let policies: Vec<_> = held.iter().copied().collect();
        let protection =
            PolicyProtection::raise_with(config.clone(), &policies, own.routed().clone());
        let protection = protection.context(
            "packets of policies cannot be led to tunnels and kept from leaving in clear",
        )?;
        let is_told = protection.asks();
        leaks::tell_interferences(&config, is_told);
        let left: Vec<_> = protection.left().map(|network| network.to_string()).collect();
        if !left.is_empty() {
            tracing::warn!(
                "{} stay closed, as a gateway before left them, until a policy names them again or \
                 all policies are flushed",
                left.join(", ")
            );
        }
        let connections = Connections::default();
        connections.look_at_others(&config);
        let mut guard = Self {
            protection: Some(protection),
            config,
            own,
            held,
            database: None,
            answering: None,
            must_forget: false,
            pauses: Pauses::default(),
            pause: None,
            is_void: false,
            is_told,
            found: Vec::new(),
            counts: DropCounts::default(),
            tally: Tally::default(),
            connections,
            unfollowed: None,
            has_one_lock: false,
        };
        guard.follow_nat()?;
        Ok(guard)
    }

    /// Has these policies asked from now on.
    pub(super) fn serve(
        &mut self,
        published: &Arc<Published>,
        spd: SpdId,
    ) -> Result<(), LeakProtectionError> {
        self.database = Some((Arc::clone(published), spd));
        self.answer()
    }

    /// Protects what the site's own policies do that are in force, and what others do that are to come.
    pub(super) fn widen(&mut self, next: &OwnPolicies) -> Result<(), LeakProtectionError> {
        let come: Vec<_> = next.covers().difference(&self.held).copied().collect();
        self.held.extend(&come);
        self.change(&come, &[])?;
        let routed = self.own.routed() | next.routed();
        self.protection.as_mut().map_or(Ok(()), |protection| protection.route(routed))
    }

    /// Has nothing answered from now on, and nothing believed that was answered before, until [`Guard::go_on`], if these own
    /// policies decide otherwise. To be called before they come into force.
    pub(super) fn void_answers(&mut self, next: &OwnPolicies) -> Result<(), LeakProtectionError> {
        let asks = self.protection.as_ref().is_some_and(PolicyProtection::asks);
        if !asks || next.decide_as(&self.own) {
            return Ok(());
        }
        self.pause();
        self.must_forget = true;
        self.forget()
    }

    /// The site's own policies are these, and they are in force.
    pub(super) fn narrow(&mut self, own: OwnPolicies) -> Result<(), LeakProtectionError> {
        let gone: Vec<_> = self.held.difference(own.covers()).copied().collect();
        self.held.clone_from(own.covers());
        let decide_as_before = own.decide_as(&self.own);
        self.own = own;
        let changed = self.change(&[], &gone);
        let Some(protection) = &mut self.protection else { return Ok(()) };
        self.must_forget |= !decide_as_before && !self.is_void && protection.asks();
        let routed = protection.route(self.own.routed().clone());
        let forgotten = self.forget();
        changed.and(routed).and(forgotten)
    }

    /// True if the site's own policies hold something.
    pub(super) fn holds_own(&self) -> bool {
        !self.own.hold_nothing()
    }

    /// Closes what policies that come cover, and opens what those cover that went. Questions are answered by the
    /// policies that are published.
    pub(super) fn follow(
        &mut self,
        come: &[Covered],
        gone: &[Covered],
    ) -> Result<(), LeakProtectionError> {
        let [come, gone] =
            [come, gone].map(|all| all.iter().filter_map(policy).collect::<Vec<_>>());
        self.change(&come, &gone)
    }

    /// Opens what policies cover that came last, and were refused, as if they had never been there.
    pub(super) fn take_back(&mut self, came: &[Covered]) -> Result<(), LeakProtectionError> {
        let came: Vec<_> = came.iter().filter_map(policy).collect();
        let Some(protection) = &mut self.protection else { return Ok(()) };
        if came.is_empty() {
            return Ok(());
        }
        let changed = protection.take_back(&came);
        self.changed(changed)
    }

    fn change(&mut self, come: &[Policy], gone: &[Policy]) -> Result<(), LeakProtectionError> {
        let Some(protection) = &mut self.protection else { return Ok(()) };
        if come.is_empty() && gone.is_empty() {
            return Ok(());
        }
        let changed = protection.change(come, gone);
        self.changed(changed)
    }

    fn changed(
        &mut self,
        changed: Result<Changed, LeakProtectionError>,
    ) -> Result<(), LeakProtectionError> {
        let Some(protection) = &self.protection else { return Ok(()) };
        // What failed is made anew as a whole, and nobody knows what was asked meanwhile.
        self.must_forget |=
            changed.as_ref().map_or(true, |changed| changed.answers && !self.is_void);
        leaks::tell_one_lock(&mut self.has_one_lock, protection.has_one_lock_only());
        changed.map(drop).and_then(|()| self.answer())
    }

    /// From now on nothing is answered, until [`Guard::go_on`].
    pub(super) fn pause(&mut self) {
        self.pause = Some(self.pauses.begin());
        if let Some(answering) = &self.answering {
            answering.finish();
        }
    }

    /// Questions that wait, and others, are answered by the policies that are published.
    pub(super) fn go_on(&mut self) {
        self.is_void = false;
        self.pause = None;
    }

    /// During a pause: what was answered is forgotten if it may be about what is to change, or about what goes.
    pub(super) fn forget_first(&mut self, gone: &[Covered]) -> Result<(), LeakProtectionError> {
        let gone: Vec<_> = gone.iter().filter_map(policy).collect();
        self.must_forget |= self.protection.as_ref().is_some_and(|it| it.asks_about(&gone));
        self.forget()
    }

    /// Has earlier answers forgotten if policies changed since.
    pub(super) fn forget(&mut self) -> Result<(), LeakProtectionError> {
        let Some(protection) = self.protection.as_mut().filter(|_| self.must_forget) else {
            return Ok(());
        };
        if let Some(answering) = &self.answering {
            // When this returns, what others answered has been given.
            answering.set(protection.held());
        }
        protection.forget_answers()?;
        self.must_forget = false;
        self.is_void = self.pause.is_some();
        Ok(())
    }

    /// Answers questions as long as some are asked, and takes packets as long as NAT is followed.
    fn answer(&mut self) -> Result<(), LeakProtectionError> {
        let outcome = self.listen();
        let may_do_without = |it: &PolicyProtection| it.follows_nat() && !it.asks();
        match outcome {
            Err(error) if self.protection.as_ref().is_some_and(may_do_without) => {
                self.unfollow(&error)
            }
            outcome => outcome,
        }
    }

    fn listen(&mut self) -> Result<(), LeakProtectionError> {
        let Self { protection: Some(protection), database: Some((published, spd)), .. } = self
        else {
            return Ok(());
        };
        if !protection.asks() && !protection.follows_nat() {
            self.answering = None;
        } else if let Some(answering) = &self.answering {
            answering.set(protection.held());
        } else {
            let seen = (&self.tally, &self.connections);
            let (database, held) = ((&*published, *spd), protection.held());
            let answering = Answering::start(&self.config, database, held, seen, &self.pauses)?;
            self.answering = Some(answering);
        }
        Ok(())
    }

    /// Lays the routes into the TUN interface, which has come up.
    pub(super) fn lead(&mut self) -> Result<(), LeakProtectionError> {
        self.protection.as_mut().map_or(Ok(()), |protection| protection.repair().map(drop))
    }

    /// Looks at the packet filter's counters; whether they were its own. To be called about once a second.
    pub(super) fn count(&mut self) -> Result<bool, LeakProtectionError> {
        let Some(protection) = &mut self.protection else { return Ok(true) };
        if let Some(answering) = &self.answering {
            self.tally.follow_kernel(answering.questions());
            if !core::mem::replace(&mut self.is_told, true) {
                leaks::tell_interferences_later(&self.config);
            }
        }
        protection.track(self.connections.tracked())?;
        self.follow_nat()?;
        let Some(protection) = &mut self.protection else { return Ok(true) };
        let Some(drops) = protection.drops()? else { return Ok(false) };
        self.counts.note(&drops);
        Ok(true)
    }

    /// Has what NAT makes a protected packet go into the TUN interface, as long as others change addresses.
    fn follow_nat(&mut self) -> Result<(), LeakProtectionError> {
        let Some(protection) = &mut self.protection else { return Ok(()) };
        let is_due = self.connections.are_rewritten();
        let rests = self.unfollowed.as_ref().is_some_and(|(_, at)| at.elapsed() < UNFOLLOWED_FOR);
        if is_due == protection.follows_nat() || is_due && rests {
            return Ok(());
        }
        match protection.follow_nat(is_due) {
            Err(error) if is_due => self.unfollow(&error),
            outcome => outcome.and_then(|()| self.answer()),
        }
    }

    /// This kernel, or who holds the queue, does not let NAT be followed: closed, and without questions that nobody answers.
    fn unfollow(&mut self, error: &LeakProtectionError) -> Result<(), LeakProtectionError> {
        let why = format!("{UNFOLLOWED}: {error}");
        if self.unfollowed.as_ref().is_none_or(|(before, _)| *before != why) {
            tracing::warn!("{why}");
        }
        self.unfollowed = Some((why, Instant::now()));
        self.protection.as_mut().map_or(Ok(()), |protection| protection.follow_nat(false))
    }

    /// Makes the table of the packet filter again, which others changed just now.
    pub(super) fn mend_table(&mut self) -> Result<(), LeakProtectionError> {
        let Some(protection) = &mut self.protection else { return Ok(()) };
        leaks::tell_repaired(protection.repair_table()?);
        Ok(())
    }

    /// Looks after the packet filter and the table of connections.
    pub(super) fn lookout(&self) -> Option<Lookout> {
        let port = self.protection.as_ref()?.port();
        Some(Lookout::open(self.connections.clone(), self.config.clone(), port))
    }

    /// Its verdicts on packets, for a trace.
    pub(super) fn trace<'a>(&'a self, picture: &'a Snapshot) -> Option<Protection<'a>> {
        let (protection, (_, spd)) = (self.protection.as_ref()?, self.database.as_ref()?);
        let database = Database { spd: picture.spd_of(*spd), held: Cow::Owned(protection.held()) };
        let mixed = Box::new(|way, near, far| protection.mixed(way, near, far));
        Some(Protection { config: self.config.clone(), mixed, database })
    }

    /// Numbers of dropped packets, by name.
    pub(super) fn counts(&self) -> [(&'static str, u64); COUNTS] {
        self.counts.named(&self.tally)
    }

    /// For `convoy status`.
    pub(super) fn report(&self) -> LeakProtection {
        let dropped = self.counts.in_words();
        let whose = if self.holds_own() { "this site and of IKE daemons" } else { "IKE daemons" };
        let mut detail = format!("what policies of {whose} protect, {dropped}");
        let asks = self.protection.as_ref().is_some_and(PolicyProtection::asks);
        if asks {
            let answered = leaks::in_words(&self.tally);
            detail += &format!("; asked about what policies tell apart: {answered}");
        } else if self.answering.is_some() {
            let Answered { protected, discarded, .. } = self.tally.answered();
            detail += &format!(
                "; behind NAT: {protected} packets led into tunnels one by one, {discarded} dropped"
            );
        }
        let asking = self.answering.as_ref().filter(|_| asks);
        let questions = asking.map(|_| self.counts.questions(&self.tally));
        let connections = self.connections.report();
        LeakProtection { is_on: true, detail, questions, connections }
    }

    /// Faults that work against it at present, in words.
    pub(super) fn troubles(&self) -> impl Iterator<Item = String> + '_ {
        let found = self.found.iter().map(ToString::to_string);
        let dead = self.answering.as_ref().and_then(leaks::dead);
        let is_unfollowed = self.connections.are_rewritten()
            && self.protection.as_ref().is_some_and(|protection| !protection.follows_nat());
        let unfollowed = self.unfollowed.iter().filter(move |_| is_unfollowed);
        let unfollowed = unfollowed.map(|(why, _)| why.clone());
        found.chain(dead).chain(unfollowed).chain(self.connections.trouble())
    }

    /// Looks for what works against it, and says what has come and gone.
    fn look_around(&mut self, peers: &[IpAddr]) -> anyhow::Result<()> {
        let look = Look::around(&self.config, peers)?;
        let mut found = findings(&look, &self.config, &far(self.config.clone())?);
        // A host without networks behind it need not forward.
        found.retain(|finding| !matches!(finding, Finding::ForwardingOff { .. }));
        for finding in found.iter().filter(|finding| !self.found.contains(finding)) {
            tracing::warn!("{finding}");
        }
        for finding in self.found.iter().filter(|finding| !found.contains(finding)) {
            tracing::info!("put right: {finding}");
        }
        self.found = found;
        Ok(())
    }

    /// True if networks are closed that nobody claimed in this life.
    pub(super) fn has_unclaimed(&self) -> bool {
        self.protection.as_ref().is_some_and(|protection| protection.left().next().is_some())
    }

    /// All who make policies have made them: what nobody claimed is open again.
    pub(super) fn settle(&mut self) -> Result<(), LeakProtectionError> {
        let Some(protection) = &mut self.protection else { return Ok(()) };
        let settled = protection.settle();
        self.must_forget |= settled.is_err() || !self.is_void;
        settled.and_then(|()| self.answer()).and_then(|()| self.forget())
    }

    /// Makes again what others took away, and looks for what works against it; says what that was. Tunnels lead
    /// to `peers`.
    pub(super) fn repair(&mut self, peers: &[IpAddr]) -> anyhow::Result<()> {
        self.mend()?;
        self.forget()?;
        self.look_around(peers)
    }

    /// Makes again what others took away, and says what that was.
    pub(super) fn mend(&mut self) -> Result<(), LeakProtectionError> {
        let Some(protection) = &mut self.protection else { return Ok(()) };
        leaks::tell_repaired(protection.repair()?);
        self.answer()
    }
}

/// Translates a daemon's policy for leak protection.
fn policy(covered: &Covered) -> Option<Policy> {
    let verdict = match covered.cover {
        Cover::Protect => Verdict::Protect,
        Cover::Discard => Verdict::Discard,
        Cover::Bypass => Verdict::Bypass,
    };
    let (local, remote) = (net(covered.local)?, net(covered.remote)?);
    let way = match covered.direction {
        convoy_xfrm::PolicyDirection::Out => PolicyDirection::Out,
        convoy_xfrm::PolicyDirection::In => PolicyDirection::In,
        convoy_xfrm::PolicyDirection::Forward => PolicyDirection::Forward,
    };
    Some(Policy { local, remote, is_whole: covered.is_whole, verdict, way: Some(way) })
}

/// Leaves closed what policies protect; where there are none, all is as it was.
impl Drop for Guard {
    fn drop(&mut self) {
        let Some(mut protection) = self.protection.take() else { return };
        if !protection.is_empty() {
            // Whoever needs flows tracked may come while no gateway looks.
            let _ = protection.track(Tracked::All);
            return tracing::warn!(
                "what policies protect stays closed until the gateway runs again; `convoy open` opens it"
            );
        }
        if let Err(error) = protection.take_away() {
            tracing::warn!("leak protection: {error}");
        }
    }
}

/// Fits TCP connections through tunnels to their MTU.
pub(super) fn clamp(site: &Site) -> Option<Clamp> {
    if site.plain.backend.is_direct() {
        return None;
    }
    let tunnels = site.xfrm_interfaces().iter().map(|interface| LinkName::new(&interface.name));
    let outcome = tunnels.collect::<Result<Vec<_>, _>>().and_then(|tunnels| {
        let tun = LinkName::new(&site.plain.interface)?;
        Clamp::raise(&tun, tunnels)
    });
    outcome.inspect_err(|error| tracing::warn!(%error, "{NOT_CLAMPED}")).ok()
}

/// Takes away what a gateway that does not run left closed around its interface, or another one, and interfaces for
/// SAs of daemons. Whether there was a packet filter.
///
/// # Errors
/// Fails if it cannot.
pub fn open(site: &Site, interface: Option<&str>) -> anyhow::Result<bool> {
    let own = site.plain.tun();
    let tun = LinkName::new(interface.unwrap_or(&own))?;
    let is_its_own = tun.as_str() == own;
    let removed = if is_its_own { interfaces::remove(site) } else { Ok(()) };
    // Whichever kind of gateway it was.
    let stood = convoy_leak_protection::take_away(leaks::configured(site, tun))?;
    removed.map(|()| stood)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_go_on_when_the_filter_begins_anew() {
        let mut count = Count::default();
        [0, 3, 3, 1, 5].into_iter().for_each(|now| count.note(now));
        assert_eq!(count.total, 8);
    }
}
