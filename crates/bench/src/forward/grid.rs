//! All points of a run, in rounds: one search of each, then the next of each.

use std::sync::Arc;
use std::time::{Duration, Instant};

use convoy_crypto::Suite;
use convoy_engine::model::LinkCounts;
use convoy_runtime::{EngineChoice, PinError, Waker, pin_current_thread};

use super::gateway::{Gateway, Memory, Setting};
use super::latency::{LOADS, Latency};
use super::model::Counted;
use super::plan::{Engine, Plan, Subject};
use super::point::{Costs, Findings, PerPacket, Point};
use super::search::{Ended, Trial, VOIDS_MAX, search};
use super::watch::Disturbance;
use crate::engine::measure::{self, EngineError, Load, PacketSize};
use crate::esp::rig::RigError;
use crate::maker::Maker;

/// Time for which the worker is saturated to see where its rate may be.
const LOOK: Duration = Duration::from_millis(60);
/// Packets at one load, for latencies: as many as come in that time, at most those of a trial.
const LATENCY_TIME: f64 = 0.4;
/// Fewest of them.
const LATENCY_PACKETS: f64 = 20_000.0;
/// Longest time of a trial in seconds, unless that is for fewer packets than these.
const TRIAL_TIME: f64 = 4.0;
const FEWEST: u64 = 1000;
/// Void trials of a latency after which it is given up when the budget is spent.
const LATE_TRIES: usize = 2;
/// Time for which the submitting core's costs of a point are measured.
const COSTS_TIME: Duration = Duration::from_millis(100);

/// A run could not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForwardError {
    /// The gateway.
    #[error(transparent)]
    Rig(#[from] RigError),
    /// The cryptography alone.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A processor.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// A thread, or what wakes it.
    #[error("{0}")]
    Thread(String),
    /// The run was to end.
    #[error("interrupted")]
    Stopped,
}

/// Measures all of it on threads of its own, and leaves the caller's alone. `tell` is told what happens, a line
/// each; the run ends early, with what it has, when `go_on` says no.
///
/// # Errors
/// [`ForwardError`]; what was measured until then is in `findings`.
pub fn run(
    plan: &Plan,
    findings: &mut Findings,
    go_on: &(dyn Fn() -> bool + Sync),
    tell: &mut (dyn FnMut(&str) + Send),
) -> Result<(), ForwardError> {
    *findings = Findings {
        tier: plan.tier.to_string(),
        cpus: plan.cpus.clone(),
        mhz: crate::machine::Machine::look().tsc_mhz,
        packets: plan.packets,
        allowed: plan.allowed,
        left_out: plan.left_out.clone(),
        ..Findings::default()
    };
    let &[worker, generator, ..] = &plan.cpus[..] else {
        findings.complete = true;
        return Ok(());
    };
    let work = || {
        pin_current_thread(generator)?;
        let cpus = [worker, generator];
        let (memory, begun, mhz) = (Memory::default(), Instant::now(), findings.mhz);
        let mut course = Course { plan, cpus, memory, go_on, tell, begun, mhz };
        match course.all(findings) {
            Err(ForwardError::Stopped) => Ok(()),
            Ok(()) => {
                findings.complete = true;
                Ok(())
            }
            Err(error) => Err(error),
        }
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("generator".to_owned());
        let thread = thread.spawn_scoped(scope, work);
        let thread = thread.map_err(|error| ForwardError::Thread(error.to_string()))?;
        let panicked = |_| Err(ForwardError::Thread("the generator panicked".to_owned()));
        thread.join().unwrap_or_else(panicked)
    })
}

/// A run under way.
struct Course<'a> {
    plan: &'a Plan,
    /// The processors of worker and generator.
    cpus: [usize; 2],
    memory: Memory,
    go_on: &'a (dyn Fn() -> bool + Sync),
    tell: &'a mut (dyn FnMut(&str) + Send),
    begun: Instant,
    /// Ticks of the time-stamp counter in a microsecond.
    mhz: f64,
}

/// Subject of a point.
#[derive(Clone, Copy)]
struct Place<'a> {
    subject: &'a Subject,
    suite: Suite,
    /// Bytes of inner packets.
    size: usize,
}

impl Course<'_> {
    fn all(&mut self, findings: &mut Findings) -> Result<(), ForwardError> {
        let plan = self.plan;
        let mut places = Vec::new();
        for suite in &plan.suites {
            for subject in &plan.subjects {
                let place = |size: &usize| Place { subject, suite: *suite, size: *size };
                places.extend(plan.sizes.iter().map(place));
            }
        }
        findings.points = places.iter().map(|place| empty(*place)).collect();
        let of = places.len() * (plan.searches + 1);
        for round in 0..plan.searches {
            for (at, place) in places.iter().enumerate() {
                if round > 0 && self.begun.elapsed() > plan.budget {
                    break;
                }
                let Some(point) = findings.points.get_mut(at) else { continue };
                let wrong = self.search(*place, point)?;
                let told = format!("{}: {}", point.named(), found(point));
                self.told(round * places.len() + at + 1, of, &told);
                let wrong = wrong.into_iter().map(|what| format!("{}: {what}", point.named()));
                findings.errors.extend(wrong);
            }
        }
        for (at, place) in places.iter().enumerate() {
            let Some(point) = findings.points.get_mut(at) else { continue };
            if let Some(rate) = point.rate() {
                let wrong = self.latencies(*place, point, rate)?;
                let wrong = wrong.into_iter().map(|what| format!("{}: {what}", point.named()));
                findings.errors.extend(wrong);
            }
            point.costs = Some(self.costs(*place)?);
            let told = format!("{}: latency and cycles", point.named());
            self.told(plan.searches * places.len() + at + 1, of, &told);
        }
        Ok(())
    }

    fn told(&mut self, done: usize, of: usize, what: &str) {
        let left = self.begun.elapsed().mul_f64((of - done) as f64 / done as f64);
        (self.tell)(&format!("{what}; {done} of {of}, {} s left at this pace", left.as_secs()));
    }

    fn check(&self) -> Result<(), ForwardError> {
        if (self.go_on)() { Ok(()) } else { Err(ForwardError::Stopped) }
    }

    /// One search. Returns what was wrong with its packets; then it does not count.
    fn search(&mut self, place: Place<'_>, point: &mut Point) -> Result<Vec<String>, ForwardError> {
        let Plan { packets, allowed, .. } = *self.plan;
        self.check()?;
        let (setting, _) = self.setting(place);
        let mut gateway = Gateway::start(&setting, &mut self.memory, self.mhz)?;
        let first = match point.rate() {
            Some(rate) => rate,
            None => gateway.saturate(LOOK)?,
        };
        let ended = search(first, |rate| {
            let trial =
                gateway.trial(rate, of_trial(packets, rate), allowed, self.go_on, |_| {})?;
            self.check()?;
            Ok::<_, ForwardError>(trial)
        });
        let wrong = gateway.end()?;
        match ended? {
            Ended::Found(found) if wrong.is_empty() => point.searches.push(found),
            Ended::Found(_) => {}
            Ended::Busy(why) => point.busy = Some(busy(VOIDS_MAX, why)),
            Ended::Lossy => point.busy = Some("packets are lost at any rate".to_owned()),
        }
        Ok(wrong)
    }

    /// Latencies at parts of the rate, and what goes over the link meanwhile.
    fn latencies(
        &mut self,
        place: Place<'_>,
        point: &mut Point,
        rate: f64,
    ) -> Result<Vec<String>, ForwardError> {
        let (setting, model) = self.setting(place);
        let mhz = self.mhz;
        let mut gateway = Gateway::start(&setting, &mut self.memory, mhz)?;
        for load in LOADS {
            let offered = load * rate;
            let packets = (offered * LATENCY_TIME).max(LATENCY_PACKETS) as u64;
            let packets = of_trial(packets.min(self.plan.packets), offered);
            // A busy machine is not to make a run endless.
            let is_late = self.begun.elapsed() > self.plan.budget;
            let tries = if is_late { LATE_TRIES } else { VOIDS_MAX };
            let mut disturbed = None;
            for _ in 0..tries {
                self.check()?;
                let mut ticks = Vec::with_capacity(packets as usize);
                let allowed = self.plan.allowed;
                let trial = gateway
                    .trial(offered, packets, allowed, self.go_on, |time| ticks.push(time))?;
                self.check()?;
                match trial {
                    Trial::Void(why) => disturbed = Some(busy(tries, why)),
                    Trial::Counted { .. } => {
                        point.latencies.extend(Latency::of(load, offered, ticks, mhz));
                        disturbed = None;
                        break;
                    }
                }
            }
            point.untimed.extend(disturbed.map(|why| (load, why)));
        }
        let wrong = gateway.end()?;
        point.link = model.and_then(|model| per_packet(model.counts()));
        Ok(wrong)
    }

    /// Measures the submitting core's cycles for a packet's cryptography, on the worker's processor.
    fn costs(&self, place: Place<'_>) -> Result<Costs, ForwardError> {
        self.check()?;
        let (setting, _) = self.setting(place);
        let [worker, generator] = self.cpus;
        pin_current_thread(worker)?;
        let waker = Waker::new().map_err(|error| ForwardError::Thread(error.to_string()))?;
        let front = setting.engine.make(&waker);
        let load = Load { suite: place.suite, size: PacketSize::Bytes(place.size) };
        let costs = measure::costs(front, &setting.maker, load, COSTS_TIME);
        pin_current_thread(generator)?;
        let (cycles, samples) = costs?;
        Ok(Costs { cycles, samples })
    }

    fn setting(&self, place: Place<'_>) -> (Setting, Option<Arc<Counted>>) {
        let Place { subject, suite, size } = place;
        let Plan { cpu, tier, .. } = *self.plan;
        let (engine, model) = match &subject.engine {
            Engine::Choice(choice) => (choice.clone(), None),
            Engine::Model(settings) => {
                let model = Arc::new(Counted::new(*settings));
                (EngineChoice::Device(model.clone()), Some(model))
            }
        };
        // Only a device that takes keys itself asks for their material.
        let maker = match &subject.engine {
            Engine::Choice(EngineChoice::Device(_)) => Maker::Keeping(cpu, tier),
            _ => Maker::Tier(cpu, tier),
        };
        (Setting { maker, engine, suite, size, cpus: self.cpus }, model)
    }
}

/// A point of which nothing is known yet.
fn empty(place: Place<'_>) -> Point {
    Point {
        engine: place.subject.name.clone(),
        suite: place.suite.to_string(),
        size: place.size,
        searches: Vec::new(),
        busy: None,
        latencies: Vec::new(),
        untimed: Vec::new(),
        link: None,
        costs: None,
    }
}

/// Packets of a trial: as many as come within [`TRIAL_TIME`], of `packets` at most.
fn of_trial(packets: u64, rate: f64) -> u64 {
    packets.min((rate * TRIAL_TIME) as u64).max(FEWEST)
}

/// The rate of a point, or why there is none.
fn found(point: &Point) -> String {
    match (point.rate(), &point.busy) {
        (Some(rate), _) => format!("{:.3} Mpps", rate / 1e6),
        (None, Some(why)) => why.clone(),
        (None, None) => "no rate".to_owned(),
    }
}

fn busy(voids: usize, why: Disturbance) -> String {
    format!("busy: {voids} trials were void, the last because {why}")
}

/// Traffic over the link, by the packets that it was for.
fn per_packet(counts: LinkCounts) -> Option<PerPacket> {
    let LinkCounts { to_device, from_device, descriptors, completions } = counts;
    let mean = |count: u64| count as f64 / descriptors as f64;
    (descriptors > 0).then(|| PerPacket {
        to_device: mean(to_device),
        from_device: mean(from_device),
        descriptors: 1.0,
        completions: mean(completions),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cores::Cores;
    use crate::forward::search::PACKETS;
    use crate::results::LeftOut;
    use convoy_crypto::Cpu;

    /// A plan for tests: few packets, and others may take all of the time.
    fn plan(names: &[&str], cpus: &[usize]) -> Plan {
        let mut plan = Plan {
            suites: vec!["aes-128-gcm-16".parse().unwrap()],
            sizes: vec![256],
            subjects: Vec::new(),
            left_out: Vec::new(),
            packets: 10_000,
            allowed: 1e9,
            ..Plan::of_study(Cpu::detect().unwrap(), true, &[]).unwrap()
        };
        plan.cpus = cpus.to_vec();
        for name in names {
            assert!(plan.add(name).unwrap(), "{name}");
        }
        plan
    }

    #[test]
    fn every_point_is_measured_or_says_why_it_is_not() {
        let allowed = Cores::allowed().unwrap();
        // On one processor two that never sleep get along, slowly.
        let cpus: Vec<_> =
            allowed.iter().cycle().take(allowed.len().clamp(2, 3)).copied().collect();
        let plan = plan(&["inline", "pool", "model"], &cpus);
        let engines = plan.subjects.len();
        let (mut findings, mut lines) = (Findings::default(), 0);
        run(&plan, &mut findings, &|| true, &mut |_| lines += 1).unwrap();
        assert_eq!((findings.points.len(), lines), (engines, 2 * engines), "{findings:?}");
        assert_eq!((findings.errors.len(), findings.complete), (0, true), "{:?}", findings.errors);
        let left_out = findings.all_left_out();
        for point in &findings.points {
            assert!(point.costs.as_ref().is_some_and(|costs| costs.cycles.median > 0.0));
            let is_told = left_out.iter().any(|left| left.what.starts_with(&point.named()));
            assert!(is_told || point.latencies.len() == 3, "{point:?}");
            assert_eq!(point.rate().is_some() && point.engine == "model", point.link.is_some());
        }
        assert_eq!(Cores::allowed().unwrap(), allowed, "the caller's thread is left alone");
    }

    #[test]
    fn a_run_ends_with_what_it_has() {
        let cpus = Cores::allowed().unwrap();
        let plan = plan(&["inline"], &[cpus[0], cpus[cpus.len() - 1]]);
        let mut findings = Findings::default();
        run(&plan, &mut findings, &|| false, &mut |_| {}).unwrap();
        assert!(!findings.complete);
        let left_out = findings.all_left_out();
        assert_eq!(left_out[0].why, "the run ended before");
    }

    #[test]
    fn what_a_machine_has_too_few_processors_for_is_named() {
        let cpu = Cpu::detect().unwrap();
        let small = Plan::of_study(cpu, false, &[3, 4]).unwrap();
        let [LeftOut { what, why }] = &small.left_out[..] else { panic!("{small:?}") };
        assert_eq!(what, "pool");
        assert!(why.contains("3 processors") && why.contains("has 2"), "{why}");
        let mut findings = Findings::default();
        let single = Plan::of_study(cpu, false, &[3]).unwrap();
        run(&single, &mut findings, &|| true, &mut |_| {}).unwrap();
        assert_eq!((findings.left_out.len(), findings.points.len()), (3, 0));
        assert!(findings.complete);
    }

    #[test]
    fn slow_workers_have_fewer_packets_in_a_trial() {
        let of = |rate| of_trial(PACKETS, rate);
        assert_eq!((of(1e6), of(50_000.0), of(1.0)), (PACKETS, 200_000, FEWEST));
    }

    #[test]
    fn the_link_is_told_for_a_packet() {
        let counts =
            LinkCounts { to_device: 3000, from_device: 2900, descriptors: 10, completions: 10 };
        let expected =
            PerPacket { to_device: 300.0, from_device: 290.0, descriptors: 1.0, completions: 1.0 };
        assert_eq!(per_packet(counts), Some(expected));
        assert_eq!(per_packet(LinkCounts::default()), None);
    }
}
