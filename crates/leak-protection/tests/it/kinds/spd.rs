//! Policies in order, looked up one after another: what is to become of packets.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use convoy_leak_protection::{
    Config, Lead, LeakProtection, Policies, Policy, PrefixSets, Sides, SitePolicies, Verdict,
};
use ipnet::IpNet;

use super::packets::Selectors;
use crate::world::{Door, World};

/// A policy.
#[derive(Clone, Copy)]
pub(crate) struct Rule {
    pub(crate) local: IpNet,
    pub(crate) remote: IpNet,
    /// If only one is meant.
    pub(crate) protocol: Option<u8>,
    /// Destination port, if only one is meant.
    pub(crate) port: Option<u16>,
    pub(crate) verdict: Verdict,
    /// True if packets that leave are meant, and true if those that arrive are.
    pub(crate) ways: [bool; 2],
}

impl std::fmt::Debug for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { local, remote, protocol, port, verdict, ways } = self;
        write!(f, "{verdict:?} {local} {remote} {protocol:?} {port:?} {ways:?}")
    }
}

impl Rule {
    fn shown(&self) -> Policy {
        let Self { local, remote, verdict, .. } = *self;
        Policy { local, remote, is_whole: self.protocol.is_none(), verdict, way: None }
    }

    fn means(&self, local: IpAddr, remote: IpAddr, it: &Selectors) -> bool {
        self.local.contains(&local)
            && self.remote.contains(&remote)
            && self.protocol.is_none_or(|only| only == it.protocol)
            && self.port.is_none_or(|only| it.port() == Some(only))
    }
}

/// Whose policies they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A site file's: all that goes between near and far is held.
    Site,
    /// IKE daemons': what no policy means passes.
    Daemons,
}

/// Policies, of which the first that means a packet decides.
#[derive(Debug, Clone)]
pub(crate) struct Spd {
    pub(crate) mode: Mode,
    pub(crate) rules: Vec<Rule>,
}

impl Spd {
    fn look_up(&self, way: usize, local: IpAddr, remote: IpAddr, it: &Selectors) -> Verdict {
        let mut rules = self.rules.iter().filter(|rule| rule.ways[way]);
        if let Some(rule) = rules.find(|rule| rule.means(local, remote, it)) {
            return rule.verdict;
        }
        let held = || self.rules.iter().filter(|rule| rule.verdict != Verdict::Bypass);
        let is_held = self.mode == Mode::Site
            && held().any(|rule| rule.local.contains(&local))
            && held().any(|rule| rule.remote.contains(&remote));
        if is_held { Verdict::Discard } else { Verdict::Bypass }
    }

    pub(crate) fn outbound(&self, it: &Selectors) -> Verdict {
        self.look_up(0, it.from, it.to, it)
    }

    pub(crate) fn inbound(&self, it: &Selectors) -> Verdict {
        self.look_up(1, it.to, it.from, it)
    }

    /// Verdict on a packet that comes by a door and goes elsewhere.
    pub(crate) fn fate(&self, door: Door, it: &Selectors) -> Verdict {
        match door {
            Door::Gateway => Verdict::Bypass,
            Door::Host | Door::Tun => self.outbound(it),
            Door::Lan | Door::Wire if self.inbound(it) != Verdict::Bypass => Verdict::Discard,
            Door::Lan | Door::Wire => self.outbound(it),
        }
    }

    fn sets(&self) -> PrefixSets {
        let held = || self.rules.iter().filter(|rule| rule.verdict != Verdict::Bypass);
        let far: BTreeSet<_> = held().map(|rule| rule.remote).collect();
        let sides = held().map(|rule| Sides { local: [rule.local].into(), remote: far.clone() });
        PrefixSets {
            policies: sides.collect(),
            partly_bypassed: far.clone(),
            ..PrefixSets::default()
        }
    }
}

/// Answers with what the policies say.
struct Asked<'a>(&'a Spd);

impl Policies for Asked<'_> {
    fn outbound(&mut self, packet: &[u8]) -> Verdict {
        self.0.outbound(&Selectors::of(packet))
    }

    fn inbound(&mut self, packet: &[u8]) -> Verdict {
        self.0.inbound(&Selectors::of(packet))
    }

    fn forwarded(&mut self, packet: &[u8]) -> Verdict {
        self.inbound(packet)
    }

    fn take(&mut self, _: &[u8]) {
        unreachable!("nobody said that NAT is to be followed");
    }
}

/// Somebody who answers until this is dropped.
struct Answering {
    answered: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Answering {
    fn start(world: &World, config: &Config, spd: &Arc<Mutex<Spd>>) -> Self {
        let mut listener = world.gateway.run(|| crate::world::listen(&config.questions));
        let (answered, ended) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let thread = thread::spawn({
            let (spd, answered, ended) =
                (Arc::clone(spd), Arc::clone(&answered), Arc::clone(&ended));
            move || {
                while !ended.load(Ordering::Relaxed) {
                    if listener.wait(Duration::from_millis(5)).unwrap() {
                        // As long as it is locked nothing changes.
                        let spd = spd.lock().unwrap();
                        let now = listener.answer(&mut Asked(&spd)).unwrap().sum();
                        answered.fetch_add(now.questions(), Ordering::Relaxed);
                    }
                }
            }
        });
        Self { answered, ended, thread: Some(thread) }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Leak protection, its policies, and who answers for them.
pub(crate) struct Guard<'a> {
    world: &'a World,
    config: Config,
    spd: Arc<Mutex<Spd>>,
    installed: Option<LeakProtection>,
    answering: Option<Answering>,
}

impl<'a> Guard<'a> {
    pub(crate) fn new(world: &'a World, mode: Mode) -> Self {
        let leads = if mode == Mode::Site { Lead::ByDestination } else { Lead::ByMark };
        let config = Config { leads, ..world.config() };
        let spd = Arc::new(Mutex::new(Spd { mode, rules: Vec::new() }));
        let mut guard = Self { world, config, spd, installed: None, answering: None };
        guard.restart(Vec::new());
        guard.answers(true);
        guard
    }

    pub(crate) fn spd(&self) -> Spd {
        self.spd.lock().unwrap().clone()
    }

    /// Waits until all that was asked is answered, so that no answer is by later policies.
    pub(crate) fn settle(&self) {
        let Some(answering) = &self.answering else { return };
        let answered = || answering.answered.load(Ordering::Relaxed);
        self.world.settle(&self.config.questions, answered);
    }

    /// Has somebody answer from now on, or nobody.
    pub(crate) fn answers(&mut self, does: bool) {
        self.answering = None;
        if does {
            self.answering = Some(Answering::start(self.world, &self.config, &self.spd));
        }
    }

    /// Has its process leave what is_installed, and another one take it over, with these policies.
    pub(crate) fn restart(&mut self, rules: Vec<Rule>) {
        self.installed = None;
        let mut spd = self.spd.lock().unwrap();
        spd.rules = rules;
        let (config, spd) = (self.config.clone(), spd.clone());
        let installed = self.world.gateway.run(move || match spd.mode {
            Mode::Site => LeakProtection::install(config, spd.sets()).unwrap(),
            Mode::Daemons => {
                let mut protection =
                    LeakProtection::install(config, SitePolicies::default()).unwrap();
                let shown: Vec<_> = spd.rules.iter().map(Rule::shown).collect();
                let _ = protection.change(&shown, &[]).unwrap();
                protection.settle().unwrap();
                protection.forget_answers().unwrap();
                protection
            }
        });
        self.installed = Some(installed);
    }

    /// These policies in place of those of before; those that come and go are named.
    pub(crate) fn change(&mut self, rules: Vec<Rule>, come: &[Rule], gone: &[Rule]) {
        let shown = |rules: &[Rule]| rules.iter().map(Rule::shown).collect::<Vec<_>>();
        let before = self.spd();
        let protection = self.installed.as_mut().unwrap();
        match before.mode {
            Mode::Site => {
                // Closed for the policies of before and of now, until all know the new ones.
                let after = Spd { rules, ..before.clone() };
                let _ = protection.widen(&after.sets().into()).unwrap();
                *self.spd.lock().unwrap() = after.clone();
                let _ = protection.set(after.sets()).unwrap();
                protection.forget_answers().unwrap();
            }
            Mode::Daemons => {
                let closed = protection.change(&shown(come), &[]).unwrap().answers;
                self.spd.lock().unwrap().rules = rules;
                let opened = protection.change(&[], &shown(gone)).unwrap().answers;
                if closed || opened {
                    protection.forget_answers().unwrap();
                }
            }
        }
    }

    /// Answers of before are believed no longer, as often.
    pub(crate) fn forget(&mut self, times: usize) {
        for _ in 0..times {
            self.installed.as_mut().unwrap().forget_answers().unwrap();
        }
    }
}
