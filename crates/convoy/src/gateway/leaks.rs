//! Leak protection of a site with keys of its own: which networks are on which side of its tunnels.
//!
//! Policies of IKE daemons are held by `guard.rs`, and so are a site's own policies beside them (`own_policies.rs`).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use convoy_control::site::{Finding, Marks, Site};
use convoy_control::status::{LeakProtection as Report, Questions as QuestionReport};
use convoy_host::{IpNet, LinkName, Network};
use convoy_ipsec::snapshot::{Published, Snapshot};
use convoy_ipsec::spd::SpdId;
use convoy_leak_protection::{
    Answered, Config, Drops, Finding as Past, Lead, LeakProtection, LeakProtectionError, Look,
    PrefixSets, Questions, Repaired, Sides, Tracked, findings, interferences,
};

use super::connections::{Connections, Lookout};
use super::guard::Count;
use super::near_and_far::prefix_sets;
use super::own_policies;
use super::questions::{Answering, Database, Pause, Pauses, Tally};
use super::trace::Protection;
use crate::exit::{Stop, describe};

/// Pause before the next look, in durations of the last one: routes may change all the time.
pub(super) const RESTS: u32 = 30;

const ONE_LOCK: &str = "the local networks of policies are more than 256 prefixes: no ip rules hold what these protect \
                        beside the packet filter, and `nft flush ruleset` opens it while no gateway runs";

/// Leak protection that stands, or why none does.
#[derive(Debug)]
pub(super) struct Leaks {
    protection: Option<LeakProtection>,
    /// Answers what the kernel asks about mixed prefixes, if there are any.
    answering: Option<Answering>,
    database: (Arc<Published>, SpdId),
    /// Policies changed, and the kernel may still believe answers by those before.
    must_forget: bool,
    pauses: Pauses,
    /// Nothing is answered at present, nor believed that was answered before.
    pause: Option<Pause>,
    /// Reason for its absence although the site file asks for it.
    missing: Option<String>,
    counts: DropCounts,
    tally: Tally,
    connections: Connections,
    config: Config,
    /// Routes and rules that led past the TUN interface at the last look.
    found: Vec<Past>,
    /// There are too many near networks for the second lock, and it was told.
    has_one_lock: bool,
    /// Error of the last look, in words.
    trouble: Option<String>,
    /// True if somebody may have changed something, and the earliest time of the next look.
    is_due: bool,
    rests_until: Instant,
}

impl Leaks {
    /// Raises what the site asks for; nothing where the plain side is no TUN interface, or IKE daemons are served. A
    /// process that has not the right goes on without, and says so.
    ///
    /// # Errors
    /// Fails if it is asked for and cannot be had.
    pub(super) fn raise(
        site: &Site,
        (published, spd): (&Arc<Published>, SpdId),
    ) -> anyhow::Result<Option<Self>> {
        if site.xfrm.is_some() {
            return Ok(None);
        }
        let (tally, connections) = (Tally::default(), Connections::default());
        let pauses = Pauses::default();
        let config = config(site)?;
        let leaks = |protection, answering, missing, tally| Self {
            protection,
            answering,
            database: (Arc::clone(published), spd),
            must_forget: false,
            pauses: pauses.clone(),
            pause: None,
            missing,
            counts: DropCounts::default(),
            tally,
            connections: connections.clone(),
            config: config.clone(),
            found: Vec::new(),
            has_one_lock: false,
            trouble: None,
            is_due: true,
            rests_until: Instant::now(),
        };
        if !site.leak_protection {
            // What an earlier life held is to be let go, as the file says.
            match convoy_leak_protection::take_away(config.clone()) {
                Err(error) if !error.is_denied() => {
                    tracing::warn!("leak protection of an earlier life still stands: {error}");
                }
                _ => {}
            }
            return Ok(Some(leaks(None, None, None, tally)));
        }
        let sets = sets_of(site)?;
        // Closed first: while nobody answers, nothing passes that is asked about.
        let raised = LeakProtection::raise(config.clone(), sets).and_then(|protection| {
            let seen = (&tally, &connections, &pauses);
            let answering = answering(&config, (published, spd), protection.sets(), seen)?;
            Ok((protection, answering))
        });
        match raised {
            Ok((protection, answering)) => {
                tell_others(site);
                tell_interferences(&config, protection.asks());
                tell_own_links(site, &protection);
                let has_one_lock = protection.has_one_lock_only();
                let mut leaks = leaks(Some(protection), answering, None, tally);
                tell_one_lock(&mut leaks.has_one_lock, has_one_lock);
                Ok(Some(leaks))
            }
            Err(error) if error.is_denied() => {
                tracing::warn!(
                    "{error}: packets that policies protect leave in clear wherever a route leads past the \
                     tunnels, and when the gateway ends"
                );
                Ok(Some(leaks(None, None, Some(error.to_string()), tally)))
            }
            Err(error @ LeakProtectionError::Held { .. }) => Err(error.into()),
            Err(error) => Err(error).context(
                "protected packets cannot be kept from leaving in clear (leak_protection = false in the \
                 site file does without)",
            ),
        }
    }

    /// True if the gateway's own packets must bear its mark.
    pub(super) const fn stands(&self) -> bool {
        self.protection.is_some()
    }

    /// Protects what either site does. To be called before another one comes into force.
    pub(super) fn widen(&mut self, site: &Site) -> anyhow::Result<()> {
        let sets = sets_of(site)?;
        let Some(protection) = &mut self.protection else { return Ok(()) };
        let both = protection.sets().union(&sets);
        let held = both.held();
        protection.set(both).context("leak protection")?;
        tell_one_lock(&mut self.has_one_lock, protection.has_one_lock_only());
        match &self.answering {
            Some(answering) => answering.set(held),
            None => {
                let (published, spd) = &self.database;
                let database = (published, *spd);
                let sets = protection.sets();
                let seen = (&self.tally, &self.connections, &self.pauses);
                self.answering = answering(&self.config, database, sets, seen)?;
                if self.answering.is_some() {
                    tell_interferences(&self.config, true);
                }
            }
        }
        Ok(())
    }

    /// Has nothing answered from now on, and nothing believed that was answered before, until [`Self::narrow`]. To be
    /// called before other policies come into force.
    pub(super) fn void_answers(&mut self) -> Result<(), LeakProtectionError> {
        let (Some(protection), Some(answering)) = (&mut self.protection, &self.answering) else {
            return Ok(());
        };
        let pause = self.pauses.begin();
        answering.finish();
        protection.forget_answers()?;
        self.pause = Some(pause);
        Ok(())
    }

    /// Protects what this site does. To be called when it is in force.
    pub(super) fn narrow(&mut self, site: &Site) {
        // Answered is again when all is as the site says.
        let pause = self.pause.take();
        let outcome = sets_of(site).and_then(|sets| {
            let Some(protection) = &mut self.protection else { return Ok(()) };
            if let Some(answering) = &self.answering {
                // Answers of before are given when this is set, and then forgotten.
                answering.set(sets.held());
                if pause.is_none() {
                    self.must_forget = true;
                    protection.forget_answers()?;
                    self.must_forget = false;
                }
            }
            protection.set(sets)?;
            tell_one_lock(&mut self.has_one_lock, protection.has_one_lock_only());
            self.answering = self.answering.take().filter(|_| protection.asks());
            Ok(())
        });
        if let Err(error) = outcome {
            let what = match self.must_forget {
                true => "flows pass in clear as policies of before said, until this works",
                false => "leak protection holds more than the site file says",
            };
            tracing::error!("{what}: {}", describe(&error));
        }
    }

    /// True if the leak protection lays the routes to far networks.
    pub(super) fn leads(&self) -> bool {
        self.protection.as_ref().is_some_and(LeakProtection::asks)
    }

    /// Lays the routes into the TUN interface, which has come up: those of the second lock, and those to far networks where
    /// they are this one's.
    pub(super) fn lead(&mut self) -> anyhow::Result<()> {
        match &mut self.protection {
            Some(protection) => Ok(protection.repair().map(|_| ())?),
            None => Ok(()),
        }
    }

    /// Makes again what others took away, once they may have (`changed`), and looks at the counters. To be called
    /// about once a second.
    pub(super) fn follow_host(&mut self, changed: bool) {
        self.is_due |= changed;
        let begin = Instant::now();
        let was_due = core::mem::take(&mut self.is_due);
        let is_due = was_due && begin >= self.rests_until;
        let Some(protection) = &mut self.protection else { return };
        if self.must_forget {
            self.must_forget = protection.forget_answers().is_err();
        }
        let mut look = || -> Result<(), LeakProtectionError> {
            protection.track(self.connections.tracked())?;
            if is_due {
                tell_repaired(protection.repair()?);
                follow_past(&mut self.found, leads_past(&self.config, protection.sets()));
            }
            let Some(drops) = protection.drops()? else {
                // Without an owner anybody may change it, and nobody hears of that.
                self.is_due = true;
                return Ok(());
            };
            self.counts.note(&drops);
            Ok(())
        };
        if let Some(answering) = &self.answering {
            self.tally.follow_kernel(answering.questions());
        }
        let trouble = look().err().map(|error| format!("leak protection: {error}"));
        self.is_due |= trouble.is_some() || was_due && !is_due;
        if is_due {
            self.rests_until = begin + begin.elapsed() * RESTS;
        }
        if let Some(words) = trouble.as_ref().filter(|words| self.trouble.as_ref() != Some(*words))
        {
            tracing::error!("{words}");
        }
        self.trouble = trouble;
    }

    /// Makes the table of the packet filter again, which others changed just now.
    pub(super) fn mend(&mut self) {
        let Some(protection) = &mut self.protection else { return };
        match protection.repair_table() {
            Ok(repaired) => tell_repaired(repaired),
            // It is tried again, and told.
            Err(_) => self.is_due = true,
        }
    }

    /// Looks after the packet filter and the table of connections, if something stands.
    pub(super) fn lookout(&self) -> Option<Lookout> {
        let port = self.protection.as_ref()?.port();
        Some(Lookout::open(self.connections.clone(), self.config.clone(), port))
    }

    /// Its verdicts on packets, for a trace.
    pub(super) fn trace<'a>(&'a self, picture: &'a Snapshot) -> Option<Protection<'a>> {
        let sets = self.protection.as_ref()?.sets();
        let held = sets.held();
        let database =
            Database { spd: picture.spd_of(self.database.1), held: Cow::Owned(held.clone()) };
        let mixed = Box::new(move |way, near, far| held.mixed(way, near, far));
        Some(Protection { config: self.config.clone(), mixed, database })
    }

    /// Numbers of dropped packets, by name.
    pub(super) fn counts(&self) -> [(&'static str, u64); COUNTS] {
        self.counts.named(&self.tally)
    }

    /// Faults at present, in words.
    pub(super) fn troubles(&self) -> impl Iterator<Item = String> + '_ {
        let missing = self.missing.iter().map(|why| format!("there is no leak protection: {why}"));
        let dead = self.answering.as_ref().and_then(dead);
        let past = self.found.iter().map(ToString::to_string);
        let full = self.connections.trouble().filter(|_| self.stands());
        missing.chain(self.trouble.clone()).chain(dead).chain(past).chain(full)
    }

    /// For `convoy status`.
    pub(super) fn report(&self) -> Report {
        let (is_on, detail) = match &self.protection {
            None => {
                let why = self.missing.as_deref();
                (false, why.unwrap_or("leak_protection = false in the site file").to_owned())
            }
            Some(protection) => {
                let Sides { near, far } = protection.sets().sides();
                let mut detail = format!(
                    "{} to {}, {}",
                    networks(&near),
                    networks(&far),
                    self.counts.in_words()
                );
                if self.answering.is_some() {
                    let about = networks(&protection.sets().mixed);
                    detail += &format!("; asked about {about}: {}", in_words(&self.tally));
                }
                (true, detail)
            }
        };
        let questions = self.answering.as_ref().map(|_| self.counts.questions(&self.tally));
        let connections = self.connections.report();
        Report { is_on, detail, questions, connections }
    }
}

/// The gateway ends, or does not come up; what policies protect stays closed, unless the gateway forwards by itself.
impl Drop for Leaks {
    fn drop(&mut self) {
        if self.config.forwarding.is_some() {
            // With the gateway ends the rule that keeps the kernel from forwarding, too.
            if let Some(Err(error)) = self.protection.take().map(LeakProtection::take_away) {
                tracing::warn!("leak protection still stands: {error}");
            }
        }
        if let Some(protection) = &mut self.protection {
            // Whoever needs flows tracked may come while no gateway looks.
            let _ = protection.track(Tracked::All);
            tracing::warn!(
                "what policies protect stays closed until the gateway runs again; `convoy open` opens it"
            );
        }
    }
}

/// Number of counters that have names.
pub(super) const COUNTS: usize = 8;

/// Packets that leak protection dropped.
#[derive(Debug, Default)]
pub(super) struct DropCounts {
    outbound: Count,
    inbound: Count,
    past_interface: Count,
    quoting: Count,
    /// From near to far, and from far to near.
    unanswered: [Count; 2],
    discarded_again: Count,
}

impl DropCounts {
    /// Takes over what the packet filter counts.
    pub(super) fn note(&mut self, drops: &Drops) {
        self.outbound.note(drops.outbound);
        self.inbound.note(drops.inbound);
        self.past_interface.note(drops.past_interface());
        self.quoting.note(drops.quoting);
        self.discarded_again.note(drops.discarded_again);
        let now = [drops.unanswered_outbound, drops.unanswered_inbound];
        self.unanswered.iter_mut().zip(now).for_each(|(count, now)| count.note(now));
    }

    /// By name.
    pub(super) fn named(&self, tally: &Tally) -> [(&'static str, u64); COUNTS] {
        let [outbound, inbound] = self.unanswered.map(|count| count.total);
        [
            ("leak-protection.outbound", self.outbound.total),
            ("leak-protection.inbound", self.inbound.total),
            ("leak-protection.past-interface", self.past_interface.total),
            ("leak-protection.quoting-errors", self.quoting.total),
            ("leak-protection.unanswered-outbound", outbound),
            ("leak-protection.unanswered-inbound", inbound),
            ("leak-protection.discarded-again", self.discarded_again.total),
            ("leak-protection.question-overflows", tally.overflows()),
        ]
    }

    /// Outcomes of the kernel's questions.
    pub(super) fn questions(&self, tally: &Tally) -> QuestionReport {
        tally.report(self.unanswered.map(|count| count.total))
    }

    /// In words.
    pub(super) fn in_words(&self) -> String {
        let past = match self.past_interface.total {
            0 => String::new(),
            past => format!(" ({past} on their way past the interface)"),
        };
        let [outbound, inbound] = [self.outbound, self.inbound].map(|count| count.total);
        format!("{outbound} packets kept in{past} and {inbound} out")
    }
}

/// Answers that were given, in words.
pub(super) fn in_words(tally: &Tally) -> String {
    let Answered { bypassed, protected, discarded } = tally.answered();
    let overflows = match tally.overflows() {
        0 => String::new(),
        many => format!(", {many} more as their questions found no room"),
    };
    format!(
        "{bypassed} flows pass in clear, {protected} are protected, {discarded} packets dropped{overflows}"
    )
}

/// That nobody answers any more, in words.
pub(super) fn dead(answering: &Answering) -> Option<String> {
    let words = "nobody answers what the kernel asks about packets, and new flows are dropped: if that lasts, restart \
                 the gateway";
    answering.is_dead().then(|| words.to_owned())
}

/// Says that there is no second lock, once.
pub(super) fn tell_one_lock(was_told: &mut bool, has_one_lock: bool) {
    if has_one_lock && !*was_told {
        tracing::warn!("{ONE_LOCK}");
    }
    *was_told = has_one_lock;
}

/// Says what somebody changed.
pub(super) fn tell_repaired(repaired: Repaired) {
    if repaired.any() {
        tracing::warn!(
            "somebody changed the leak protection; made again: {}{} ip rule(s), {} route(s)",
            if repaired.table { "the table of the packet filter, " } else { "" },
            repaired.rules,
            repaired.routes,
        );
    }
}

/// Says which leak protection of other interfaces stands: it may be that of this gateway under an earlier name.
fn tell_others(site: &Site) {
    let others = convoy_leak_protection::interfaces().unwrap_or_default();
    let own = site.plain.tun();
    for other in others.iter().filter(|other| other.as_str() != own) {
        tracing::warn!(
            "leak protection stands for interface {other}, too, and drops what is to go through {own} to networks \
             that it holds; if no gateway has that interface any more: convoy open {} --interface {other}",
            site.path.display()
        );
    }
}

/// Says where the host does not reach its own links any more, as policies protect what it says to them.
fn tell_own_links(site: &Site, protection: &LeakProtection) {
    let Ok(mut network) = Network::open() else { return };
    let (Ok(tun), Ok(routes)) = (LinkName::new(site.plain.tun()), network.routes()) else {
        return;
    };
    let tun = network.link(&tun).ok().map(|link| link.index);
    let near = protection.sets().sides().near;
    for route in routes.iter().filter(|route| route.is_unicast && route.via.is_none()) {
        let Some(own) = route.source.filter(|own| route.to.contains(own)) else { continue };
        let is_near = near.iter().any(|net| net.contains(&own));
        if route.link_index != tun
            && route.to.prefix_len() < 31
            && is_near
            && protection.is_far(own)
        {
            tracing::warn!(
                "policies protect what {own} says to its own network {}: without an SA for it nobody there is \
                 reached; give the policies narrower remote addresses, or list the networks behind the tunnels \
                 in plain.routes",
                route.to
            );
        }
    }
}

/// Answers what the kernel asks about these prefix sets, if it asks anything.
fn answering(
    config: &Config,
    (published, spd): (&Arc<Published>, SpdId),
    sets: &PrefixSets,
    (tally, connections, pauses): (&Tally, &Connections, &Pauses),
) -> Result<Option<Answering>, LeakProtectionError> {
    let (policies, seen) = ((published, spd), (tally, connections));
    let start = || Answering::start(config, policies, sets.held(), seen, pauses);
    sets.ask().then(start).transpose()
}

fn sets_of(site: &Site) -> anyhow::Result<PrefixSets> {
    prefix_sets(site).map_err(|finding| Stop::usage(finding.to_string()))
}

/// True if a site's policies are held by this leak protection, and not with those of daemons.
fn is_asked_for(site: &Site) -> bool {
    site.leak_protection && site.xfrm.is_none()
}

/// Obstacle to raising leak protection, as far as the site file tells.
#[must_use]
pub fn unprotectable(site: &Site) -> Option<Finding> {
    let error = match site.xfrm {
        Some(_) => own_policies::unprotectable(site),
        None => is_asked_for(site).then(|| prefix_sets(site).err())?,
    };
    error.map(|finding| *finding)
}

/// True if the kernel asks about some packets of a site's own policies, as far as its file tells.
#[must_use]
pub fn will_ask(site: &Site) -> bool {
    if site.xfrm.is_some() {
        return own_policies::will_ask(site);
    }
    is_asked_for(site) && prefix_sets(site).is_ok_and(|sets| sets.ask())
}

/// Says what others do to the marks and flows that leak protection needs.
pub(super) fn tell_interferences(config: &Config, asks: bool) {
    match interferences(config, asks) {
        Ok(found) => found.iter().for_each(|it| tracing::warn!("{it}")),
        Err(error) => tracing::warn!("whether rules of others use the same marks: {error}"),
    }
}

/// The same where the kernel asks, by a thread of its own: others may have very many rules.
pub(super) fn tell_interferences_later(config: &Config) {
    let config = config.clone();
    let thread = std::thread::Builder::new().name("convoy-marks".into());
    if let Err(error) = thread.spawn(move || tell_interferences(&config, true)) {
        tracing::warn!("whether rules of others use the same marks: {error}");
    }
}

/// Routes and rules of this host that lead what a site protects past its TUN interface, in words.
#[must_use]
pub fn past_interface(site: &Site) -> Vec<String> {
    if site.xfrm.is_some() {
        let found = own_policies::leads_past(site);
        return found.iter().map(ToString::to_string).collect();
    }
    let sets = is_asked_for(site).then(|| prefix_sets(site).ok()).flatten();
    let found = sets.and_then(|sets| Some(leads_past(&config(site).ok()?, &sets)));
    found.unwrap_or_default().iter().map(ToString::to_string).collect()
}

/// Routes and rules past the interface for certain prefix sets. What cannot be seen is not told.
fn leads_past(config: &Config, sets: &PrefixSets) -> Vec<Past> {
    // Where the kernel asks, rules lead to tables of their own, ahead of the main one.
    let leads = if sets.ask() { Lead::ByMark } else { config.leads };
    let config = Config { leads, ..config.clone() };
    let far: Vec<_> = sets.routed.iter().copied().collect();
    past(&config, &far)
}

/// Routes and rules past an interface that concern these far networks.
pub(super) fn past(config: &Config, far: &[IpNet]) -> Vec<Past> {
    let found = Look::around(config, &[]).map(|look| findings(&look, config, far));
    found.unwrap_or_default().into_iter().filter(Past::leads_past).collect()
}

/// Says what has come and gone.
fn follow_past(before: &mut Vec<Past>, now: Vec<Past>) {
    now.iter().filter(|it| !before.contains(it)).for_each(|it| tracing::warn!("{it}"));
    before.iter().filter(|it| !now.contains(it)).for_each(|it| tracing::info!("put right: {it}"));
    *before = now;
}

/// Effects that leak protection would have, in words; nothing where it would have none.
#[must_use]
pub fn describe_protection(site: &Site) -> Option<String> {
    if site.xfrm.is_some() {
        return own_policies::describe(site);
    }
    let sets = is_asked_for(site).then(|| prefix_sets(site).ok())??;
    let Sides { near, far } = sets.sides();
    let config = config(site).ok()?;
    let mut words = format!(
        "drop packets between {} and {} that do not go through {}, also after its end (nf_tables, table \
         inet {})",
        networks(&near),
        networks(&far),
        config.tun,
        config.table()
    );
    if sets.ask() {
        words += &asks_in_words(&config, &networks(&sets.mixed));
    }
    Some(words)
}

/// That the kernel would ask about packets, in words.
pub(super) fn asks_in_words(config: &Config, about: &str) -> String {
    let Questions { queue, table, priority, .. } = config.questions;
    format!(
        "; ask about each new flow to and from {about} (queues from {queue} on, routing tables from {table} on, \
         ip rules from priority {priority} on)"
    )
}

/// A few networks, or how many.
pub(super) fn networks(all: &BTreeSet<IpNet>) -> String {
    match all.len() {
        0 => "nothing".to_owned(),
        1..=3 => all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        many => format!("{many} networks"),
    }
}

/// Settings of a site's leak protection.
pub(super) fn config(site: &Site) -> anyhow::Result<Config> {
    Ok(configured(site, LinkName::new(site.plain.tun())?))
}

/// Settings of a site's leak protection around an interface.
pub fn configured(site: &Site, tun: LinkName) -> Config {
    let Marks { exempt, packets, flows } = site.marks;
    // The site file has no others.
    let marks = convoy_leak_protection::Marks::at(packets, flows).unwrap_or_default();
    let questions = Questions { marks, ..Questions::new() };
    let udp_port = site.wire.udp_port;
    let forwarding = site.plain.backend.is_direct().then(|| LinkName::new(&site.plain.interface));
    let forwarding = forwarding.and_then(Result::ok);
    Config { mark: exempt, udp_port, questions, forwarding, ..Config::new(tun) }
}

#[cfg(test)]
mod tests {
    use convoy_leak_protection::Marks as Bits;

    use super::*;

    #[test]
    fn marks_of_a_site_file_are_those_of_leak_protection() {
        let Marks { exempt, packets, flows } = Marks::default();
        assert_eq!(exempt, Config::new(LinkName::new("tun").unwrap()).mark);
        assert_eq!(Bits::at(packets, flows), Some(Bits::default()));
    }
}
