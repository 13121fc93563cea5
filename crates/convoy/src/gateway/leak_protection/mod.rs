//! Leak protection of a gateway: what the policies of the site, and those of IKE daemons, protect leaves and comes in by
//! tunnels alone. The gateway asks this for both kinds of site; they differ in [`OwnPolicies`].
//!
//! A reload: [`LeakProtection::widen`], [`LeakProtection::void_answers`], the new policies come into force,
//! [`LeakProtection::narrow`]. A change of a daemon's policy: [`PendingChange`].

mod drop_counts;
mod effects;
mod log;
mod networks;
mod own_policies;
mod pending_change;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use convoy_control::site::Site;
use convoy_control::status::LeakProtection as Report;
use convoy_control::xfrm::{Cover, Covered};
use convoy_ipsec::snapshot::{Published, Snapshot};
use convoy_ipsec::spd::SpdId;
use convoy_leak_protection::{
    Answered, Changed, Config, Finding, LeakProtection as Installed, LeakProtectionError, Look,
    Pause, Pauses, Policy, PolicyDirection, SitePolicies, Tally, Tracked, Verdict, VerdictService,
    findings, remote_prefixes,
};

use super::connections::{Connections, Lookout};
use super::on_change::OnChange;
use super::recheck::Recheck;
use super::routes::net;
use super::trace::Protection;
use super::verdicts::{Database, Source};
use crate::exit::{Stop, describe};
use drop_counts::DropCounts;
use effects::networks as in_few_words;
use own_policies::OwnPolicies;

pub(super) use drop_counts::COUNTS;
pub use effects::{configured, describe_protection, past_interface, unprotectable, will_ask};
pub(super) use pending_change::PendingChange;

const UNFOLLOWED: &str = "packets to which NAT gives the addresses of protected ones cannot be led into \
                          tunnels, and are dropped (the kernel needs nfnetlink_queue, nft_queue, nft_ct, \
                          nf_conntrack_netlink)";
/// Time that it is left at that.
const UNFOLLOWED_FOR: Duration = Duration::from_secs(10);

const ONE_LOCK: &str = "policies have more than 256 local prefixes, so no ip rules protect them beside the \
                        packet filter: while no gateway runs, `nft flush ruleset` lets their packets leave in \
                        clear; use fewer and larger prefixes";

/// Leak protection that is installed, or the reason for its absence.
#[derive(Debug)]
pub(super) struct LeakProtection {
    /// None where the site does without, or the process may not have it.
    installed: Option<Installed>,
    /// Reason for its absence although the site file asks for it.
    missing: Option<String>,
    config: Config,
    /// The interface that the gateway's sockets are bound to.
    wire: Option<String>,
    /// The site's own policies that are in force.
    own: OwnPolicies,
    /// Source of answers to what the kernel asks, once there are policies that can.
    source: Option<Source>,
    /// Answers what the kernel asks about partly bypassed prefixes, if there are any, and takes what NAT makes of packets.
    answering: Option<VerdictService>,
    /// Policies changed, and the kernel may still believe answers by those before.
    must_forget: bool,
    pauses: Pauses,
    /// Nothing is answered at present.
    pause: Option<Pause>,
    /// Nor is anything believed that was answered before.
    is_void: bool,
    /// True once what others do to marks of flows was told, as questions need these.
    are_interferences_told: bool,
    counts: DropCounts,
    tally: Tally,
    connections: Connections,
    /// Reason for which what NAT makes a protected packet is dropped, if it is, and the time of that finding.
    unfollowed: Option<(String, Instant)>,
    /// There are too many local networks for the second lock.
    has_one_lock: OnChange<bool>,
    /// Faults of this host that worked against it at the last look.
    found: OnChange<Vec<Finding>>,
    /// Somebody may have changed it, or the host's routes.
    recheck: Recheck,
    /// Errors that come again and again: of its repair, and of reading its counters.
    repairing: OnChange<Option<String>>,
    counting: OnChange<Option<String>>,
}

impl LeakProtection {
    /// Installs what the site asks for. Where daemons are served, what the previous run protected stays so; otherwise a
    /// process that has not the right goes on without, and says so.
    ///
    /// # Errors
    /// Fails if it is asked for and cannot be had.
    pub(super) fn install(site: &Site) -> anyhow::Result<Self> {
        let config = effects::config(site)?;
        if !effects::is_asked_for(site) {
            // What the previous run held is to be let go, as the file says.
            match convoy_leak_protection::remove(config.clone()) {
                Err(error) if !error.is_denied() => {
                    tracing::warn!(
                        "cannot remove the leak protection of the previous run: {error}"
                    );
                }
                _ => {}
            }
            return Ok(Self::new(site, config, OwnPolicies::none()));
        }
        let own = own_policies(site)?;
        // Closed first: while nobody answers, nothing passes that is asked about.
        let installed = Installed::install(config.clone(), own.protected().clone());
        let mut this = Self::new(site, config, own);
        match installed {
            Ok(installed) => this.installed = Some(installed),
            Err(error) => {
                this.missing = Some(missing(site, error)?);
                return Ok(this);
            }
        }
        this.tell_at_start(site);
        if this.serves_daemons() {
            this.connections.look_at_others(&this.config);
            this.follow_nat()?;
        }
        Ok(this)
    }

    fn new(site: &Site, config: Config, own: OwnPolicies) -> Self {
        Self {
            installed: None,
            missing: None,
            config,
            wire: site.wire.interface.clone(),
            own,
            source: None,
            answering: None,
            must_forget: false,
            pauses: Pauses::default(),
            pause: None,
            is_void: false,
            are_interferences_told: false,
            counts: DropCounts::default(),
            tally: Tally::default(),
            connections: Connections::default(),
            unfollowed: None,
            has_one_lock: OnChange::default(),
            found: OnChange::default(),
            recheck: Recheck::due(),
            repairing: OnChange::default(),
            counting: OnChange::default(),
        }
    }

    fn tell_at_start(&mut self, site: &Site) {
        let Some(installed) = &self.installed else { return };
        self.are_interferences_told = installed.asks();
        log::tell_interferences(&self.config, installed.asks());
        match self.own.protected() {
            SitePolicies::Networks(sets) => {
                log::tell_others(site);
                log::tell_own_links(site, sets, installed);
            }
            SitePolicies::Each { .. } => {
                let left: BTreeSet<_> = installed.left().collect();
                if !left.is_empty() {
                    tracing::warn!(
                        "{} stay blocked since the previous run, until a policy names them again or all \
                         policies are flushed",
                        in_few_words(&left)
                    );
                }
            }
        }
        self.tell_one_lock();
    }

    /// Has these policies asked from now on.
    ///
    /// # Errors
    /// Fails if the kernel asks about packets, and nobody can answer.
    pub(super) fn serve(
        &mut self,
        site: &Site,
        published: &Arc<Published>,
        spd: SpdId,
    ) -> anyhow::Result<()> {
        self.source = Some(Source { published: Arc::clone(published), spd });
        let Err(error) = self.answer() else { return Ok(()) };
        if self.serves_daemons() {
            return Err(error).context("verdict requests of the kernel cannot be answered");
        }
        self.missing = Some(missing(site, error)?);
        self.installed = None;
        Ok(())
    }

    /// True if the gateway's own packets must bear its mark.
    pub(super) const fn is_installed(&self) -> bool {
        self.installed.is_some()
    }

    fn serves_daemons(&self) -> bool {
        matches!(self.own.protected(), SitePolicies::Each { .. })
    }

    fn asks(&self) -> bool {
        self.installed.as_ref().is_some_and(Installed::asks)
    }

    /// True if it lays the routes to remote networks.
    pub(super) fn lays_routes(&self) -> bool {
        self.serves_daemons() || self.asks()
    }

    /// True if the site's own policies protect something.
    pub(super) fn protects_own(&self) -> bool {
        self.own.protect_something()
    }

    /// Protects what the site's own policies do that are in force, and what others do. To be called before these come into
    /// force.
    pub(super) fn widen(&mut self, site: &Site) -> anyhow::Result<()> {
        let Some(installed) = &mut self.installed else { return Ok(()) };
        let next = own_policies(site)?;
        let widened = installed.widen(next.protected());
        let widened = match self.changed(widened) {
            // These policies count by now, and all is made anew.
            Err(_) if self.serves_daemons() => self.repair(),
            widened => widened,
        };
        widened.context("leak protection")
    }

    /// Has nothing answered from now on, and nothing believed that was answered before, until [`Self::narrow`], if these
    /// own policies decide otherwise. To be called before they come into force.
    pub(super) fn void_answers(&mut self, site: &Site) -> anyhow::Result<()> {
        if !self.asks() || own_policies(site)?.decide_as(&self.own) {
            return Ok(());
        }
        self.pause();
        self.must_forget = true;
        self.forget().context("leak protection")
    }

    /// Protects what the own policies of the site in force do, and no more, and has questions answered again.
    pub(super) fn narrow(&mut self, site: &Site) {
        // What cannot be had was not widened for either.
        let own = own_policies(site);
        if let (Some(installed), Ok(own)) = (&mut self.installed, own) {
            let decide_as_before = own.decide_as(&self.own);
            let narrowed = installed.set(own.protected().clone());
            self.own = own;
            let changed = self.changed(narrowed);
            self.must_forget |= !decide_as_before && !self.is_void && self.asks();
            let forgotten = self.forget();
            if let Err(error) = changed.and(forgotten) {
                let what = match self.must_forget {
                    true => {
                        "flows still pass in clear by verdicts of earlier policies; the gateway tries \
                             again"
                    }
                    false => {
                        "leak protection still covers more than the site file says; the gateway tries \
                              again"
                    }
                };
                tracing::error!("{what}: {error}");
                self.note_failure();
            }
        }
        self.go_on();
    }

    /// Closes what policies of daemons that come cover, and opens what those cover that went. Questions are answered by
    /// the policies that are published.
    pub(super) fn follow(
        &mut self,
        come: &[Covered],
        gone: &[Covered],
    ) -> Result<(), LeakProtectionError> {
        let [come, gone] = [come, gone].map(policies);
        let Some(installed) = &mut self.installed else { return Ok(()) };
        if come.is_empty() && gone.is_empty() {
            return Ok(());
        }
        let changed = installed.change(&come, &gone);
        self.changed(changed)
    }

    /// Opens what policies cover that came last, and were refused, as if they had never been there.
    pub(super) fn take_back(&mut self, came: &[Covered]) -> Result<(), LeakProtectionError> {
        let came = policies(came);
        let Some(installed) = &mut self.installed else { return Ok(()) };
        if came.is_empty() {
            return Ok(());
        }
        let changed = installed.take_back(&came);
        self.changed(changed)
    }

    fn changed(
        &mut self,
        changed: Result<Changed, LeakProtectionError>,
    ) -> Result<(), LeakProtectionError> {
        // What failed is made anew as a whole, and nobody knows what was asked meanwhile.
        self.must_forget |=
            changed.as_ref().map_or(true, |changed| changed.answers && !self.is_void);
        self.tell_one_lock();
        changed.map(drop).and_then(|()| self.answer())
    }

    /// From now on nothing is answered, until [`Self::go_on`].
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
        let gone = policies(gone);
        self.must_forget |= self.installed.as_ref().is_some_and(|it| it.asks_about(&gone));
        self.forget()
    }

    /// Has earlier answers forgotten if policies changed since.
    pub(super) fn forget(&mut self) -> Result<(), LeakProtectionError> {
        let Some(installed) = self.installed.as_mut().filter(|_| self.must_forget) else {
            return Ok(());
        };
        if let Some(answering) = &self.answering {
            // When this returns, what others answered has been given.
            answering.set(installed.held());
        }
        installed.forget_answers()?;
        self.must_forget = false;
        self.is_void = self.pause.is_some();
        Ok(())
    }

    /// True if networks are closed that nobody claimed in this run.
    pub(super) fn has_unclaimed(&self) -> bool {
        self.installed.as_ref().is_some_and(|installed| installed.left().next().is_some())
    }

    /// All who make policies have made them: what nobody claimed is open again.
    pub(super) fn settle(&mut self) -> Result<(), LeakProtectionError> {
        let Some(installed) = &mut self.installed else { return Ok(()) };
        let settled = installed.settle();
        self.must_forget |= settled.is_err() || !self.is_void;
        settled.and_then(|()| self.answer()).and_then(|()| self.forget())
    }

    /// Changes it, and logs what goes wrong; then it is looked at soon.
    pub(super) fn attempt(
        &mut self,
        change: impl FnOnce(&mut Self) -> Result<(), LeakProtectionError>,
    ) {
        if let Err(error) = change(self) {
            tracing::error!("leak protection: {error}");
            self.note_failure();
        }
    }

    /// Something went wrong: has it looked at soon.
    fn note_failure(&mut self) {
        self.recheck.note(true);
    }

    /// Answers questions as long as some are asked, and takes packets as long as NAT is followed.
    fn answer(&mut self) -> Result<(), LeakProtectionError> {
        let may_do_without = |it: &Installed| it.follows_nat() && !it.asks();
        match self.listen() {
            Err(error) if self.installed.as_ref().is_some_and(may_do_without) => {
                self.unfollow(&error)
            }
            outcome => outcome,
        }
    }

    fn listen(&mut self) -> Result<(), LeakProtectionError> {
        let Self { installed: Some(installed), source: Some(source), .. } = self else {
            return Ok(());
        };
        if !installed.asks() && !installed.follows_nat() {
            self.answering = None;
        } else if let Some(answering) = &self.answering {
            answering.set(installed.held());
        } else {
            let answer = source.answering(&self.connections, self.config.tun.to_string());
            let held = installed.held();
            let (tally, pauses) = (&self.tally, &self.pauses);
            let service = VerdictService::start(&self.config, held, tally, pauses, answer)?;
            self.answering = Some(service);
        }
        Ok(())
    }

    /// Lays the routes into the TUN interface, which has come up: those of the second lock, and those to remote networks where
    /// they are this one's.
    pub(super) fn lead(&mut self) -> anyhow::Result<()> {
        let Some(installed) = &mut self.installed else { return Ok(()) };
        installed.repair().map(drop).context("cannot lay the routes of leak protection")
    }

    /// Makes again what others took away, once they may have (`changed`), with pauses: to look at many networks takes its
    /// time. Looks at the counters. Tunnels lead to `peers`. To be called about once a second.
    pub(super) fn follow_host(&mut self, changed: bool, peers: impl FnOnce() -> Vec<IpAddr>) {
        self.recheck.note(changed);
        if !self.is_installed() {
            return;
        }
        if let Some(began) = self.recheck.begin() {
            let outcome = self.look(&peers());
            self.recheck.note(outcome.is_err());
            self.repairing.tell(outcome.err().map(|error| in_words(&error)));
            self.recheck.rest(began);
        }
        let counted = self.count();
        // Without an owner anybody may change the table, and nobody hears of that.
        self.recheck.note(!matches!(counted, Ok(true)));
        self.counting.tell(counted.err().map(|error| in_words(&error.into())));
    }

    /// Makes again what others took away, and looks for what works against it; says what that was.
    fn look(&mut self, peers: &[IpAddr]) -> anyhow::Result<()> {
        self.repair()?;
        self.forget()?;
        let found = self.findings(peers)?;
        self.found.tell_all(found);
        Ok(())
    }

    fn findings(&self, peers: &[IpAddr]) -> anyhow::Result<Vec<Finding>> {
        Ok(match self.own.protected() {
            SitePolicies::Networks(_) => self.own.leads_past(&self.config)?,
            SitePolicies::Each { .. } => {
                let look = Look::around(&self.config, peers, self.wire.as_deref())?;
                let mut found =
                    findings(&look, &self.config, &remote_prefixes(self.config.clone())?);
                // A host without networks behind it need not forward.
                found.retain(|finding| !matches!(finding, Finding::ForwardingOff { .. }));
                found
            }
        })
    }

    /// Makes again what others took away, and says what that was.
    pub(super) fn repair(&mut self) -> Result<(), LeakProtectionError> {
        let Some(installed) = &mut self.installed else { return Ok(()) };
        log::tell_repaired(installed.repair()?);
        self.answer()
    }

    /// Makes the table of the packet filter again, which others changed just now.
    pub(super) fn repair_table(&mut self) {
        let Some(installed) = &mut self.installed else { return };
        match installed.repair_table() {
            Ok(repaired) => log::tell_repaired(repaired),
            // It is tried again, and told.
            Err(_) => self.recheck.note(true),
        }
    }

    /// Looks at the packet filter's counters; whether they were its own.
    fn count(&mut self) -> Result<bool, LeakProtectionError> {
        let Some(installed) = &mut self.installed else { return Ok(true) };
        if let Some(answering) = &self.answering {
            self.tally.follow_kernel(answering.questions());
            if !core::mem::replace(&mut self.are_interferences_told, true) {
                log::tell_interferences_later(&self.config);
            }
        }
        installed.track(self.connections.tracked())?;
        if self.serves_daemons() {
            self.follow_nat()?;
        }
        let Some(installed) = &mut self.installed else { return Ok(true) };
        let Some(drops) = installed.drops()? else { return Ok(false) };
        self.counts.note(&drops);
        Ok(true)
    }

    /// Has what NAT makes a protected packet go into the TUN interface, as long as others change addresses.
    fn follow_nat(&mut self) -> Result<(), LeakProtectionError> {
        let Some(installed) = &mut self.installed else { return Ok(()) };
        let is_due = self.connections.are_rewritten();
        let rests = self.unfollowed.as_ref().is_some_and(|(_, at)| at.elapsed() < UNFOLLOWED_FOR);
        if is_due == installed.follows_nat() || is_due && rests {
            return Ok(());
        }
        match installed.follow_nat(is_due) {
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
        self.installed.as_mut().map_or(Ok(()), |installed| installed.follow_nat(false))
    }

    fn tell_one_lock(&mut self) {
        let has_one_lock = self.installed.as_ref().is_some_and(Installed::has_one_lock_only);
        if self.has_one_lock.set(has_one_lock).is_some() && has_one_lock {
            tracing::warn!("{ONE_LOCK}");
        }
    }

    /// Watcher of the packet filter and the table of connections, if something is installed.
    pub(super) fn lookout(&self) -> Option<Lookout> {
        let port = self.installed.as_ref()?.port();
        Some(Lookout::open(self.connections.clone(), self.config.clone(), port))
    }

    /// Its verdicts on packets, for a trace.
    pub(super) fn trace<'a>(&'a self, snapshot: &'a Snapshot) -> Option<Protection<'a>> {
        let (installed, source) = (self.installed.as_ref()?, self.source.as_ref()?);
        let database =
            Database { spd: snapshot.spd_of(source.spd), held: Cow::Owned(installed.held()) };
        Some(Protection { config: &self.config, installed, database })
    }

    /// Numbers of dropped packets, by name.
    pub(super) fn counts(&self) -> [(&'static str, u64); COUNTS] {
        self.counts.named(&self.tally)
    }

    /// Faults at present, in words.
    pub(super) fn troubles(&self) -> impl Iterator<Item = String> + '_ {
        let missing = self.missing.iter().map(|why| format!("there is no leak protection: {why}"));
        let errors = self.repairing.get().iter().chain(self.counting.get()).cloned();
        let dead = self.answering.as_ref().and_then(dead);
        let found = self.found.get().iter().map(ToString::to_string);
        let is_unfollowed = self.connections.are_rewritten()
            && self.installed.as_ref().is_some_and(|installed| !installed.follows_nat());
        let unfollowed = self.unfollowed.iter().filter(move |_| is_unfollowed);
        let unfollowed = unfollowed.map(|(why, _)| why.clone());
        let full = self.connections.trouble().filter(|_| self.is_installed());
        missing.chain(errors).chain(found).chain(dead).chain(unfollowed).chain(full)
    }

    /// For `convoy status`.
    pub(super) fn report(&self) -> Report {
        let connections = self.connections.report();
        let Some(installed) = &self.installed else {
            let why = self.missing.as_deref();
            let detail = why.unwrap_or("leak_protection = false in the site file").to_owned();
            return Report { is_on: false, detail, questions: None, connections };
        };
        let dropped = self.counts.in_words();
        let (mut detail, about) = match self.own.protected() {
            SitePolicies::Networks(sets) => {
                let sides = sets.sides();
                let [local, remote, partly_bypassed] =
                    [&sides.local, &sides.remote, &sets.partly_bypassed].map(in_few_words);
                (format!("{local} to {remote}, {dropped}"), partly_bypassed)
            }
            SitePolicies::Each { .. } => {
                let beside = if self.protects_own() { "this site and of " } else { "" };
                let about = "partly bypassed networks".to_owned();
                (format!("traffic that policies of {beside}IKE daemons protect, {dropped}"), about)
            }
        };
        if installed.asks() {
            detail += &format!("; verdicts on {about}: {}", drop_counts::in_words(&self.tally));
        } else if self.answering.is_some() {
            let Answered { protected, discarded, .. } = self.tally.answered();
            detail += &format!(
                "; behind NAT: {protected} packets led into tunnels one by one, {discarded} dropped"
            );
        }
        let questions = installed.asks().then(|| self.counts.questions(&self.tally));
        Report { is_on: true, detail, questions, connections }
    }
}

/// The gateway ends, or does not come up. What policies protect stays closed; but where the gateway forwards by itself, the
/// rule that keeps the kernel from forwarding ends with it, too, and where nothing is protected all is as it was.
impl Drop for LeakProtection {
    fn drop(&mut self) {
        let ends_now = match self.own.protected() {
            SitePolicies::Networks(_) => self.config.forwarding.is_some(),
            SitePolicies::Each { .. } => self.installed.as_ref().is_some_and(Installed::is_empty),
        };
        let Some(mut installed) = self.installed.take() else { return };
        if ends_now {
            if let Err(error) = installed.remove() {
                tracing::warn!("cannot remove the leak protection: {error}");
            }
            return;
        }
        // Whoever needs flows tracked may come while no gateway looks.
        let _ = installed.track(Tracked::All);
        tracing::warn!(
            "leak protection stays installed: packets that policies protect are dropped until the gateway runs \
             again; `convoy open` removes it"
        );
    }
}

fn own_policies(site: &Site) -> anyhow::Result<OwnPolicies> {
    OwnPolicies::of(site).map_err(|finding| Stop::usage(finding.to_string()))
}

/// The reason for which a process that has not the right goes on without leak protection.
///
/// # Errors
/// Everything else is a reason not to start.
fn missing(site: &Site, error: LeakProtectionError) -> anyhow::Result<String> {
    match error {
        error if site.xfrm.is_some() => Err(error).context(
            "leak protection cannot be installed, and [xfrm] needs it",
        ),
        error if error.is_denied() => {
            tracing::warn!(
                "leak protection is not installed: {error}; packets that policies protect leave in clear \
                 wherever a route leads past the tunnels, and when the gateway ends"
            );
            Ok(error.to_string())
        }
        error @ LeakProtectionError::Held { .. } => Err(error.into()),
        error => Err(error).context(
            "leak protection cannot be installed (leak_protection = false in the site file turns it off)",
        ),
    }
}

fn in_words(error: &anyhow::Error) -> String {
    format!("leak protection: {}", describe(error))
}

/// That nobody answers any more, in words.
fn dead(answering: &VerdictService) -> Option<String> {
    let words = "verdict requests of the kernel are not answered, and new flows are dropped: if that lasts, \
                 restart the gateway";
    answering.is_dead().then(|| words.to_owned())
}

/// Translates daemons' policies for leak protection.
fn policies(covered: &[Covered]) -> Vec<Policy> {
    covered.iter().filter_map(policy).collect()
}

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
