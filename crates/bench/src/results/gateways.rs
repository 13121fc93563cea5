//! Results of `interop/throughput/compare.py`, put into the form of all benches.

use serde::Deserialize;

use super::build::Draft;
use super::fields::Fields;
use super::head::Head;
use super::{Better, LeftOut, Name, Point, Results};
use crate::class::Class;
use crate::machine::Machine;

/// Schema name in files of `compare.py`.
pub const SCHEMA: &str = "convoy-gateways";
/// The newest version of it that is read.
pub const SCHEMA_VERSION: u64 = 1;
/// The name of these results' bench.
pub const BENCH: &str = "gateways";
/// Data that streams of TCP carry.
pub const THROUGHPUT: &str = "throughput";
/// Datagrams that arrive at the highest rate that is good.
pub const DATAGRAMS: &str = "datagrams per second at 0.1 % loss";
/// Processor time of both gateways for 10⁹ bytes of data.
pub const PROCESSOR_TIME: &str = "processor time per gigabyte";
/// Datagrams that are lost at a rate.
pub const LOST: &str = "share of datagrams lost";
/// The fact of a series that has the candidate's name in `compare.py`.
pub const CANDIDATE: &str = "candidate";

/// Output of `compare.py --json`. Fields that are not here are passed over.
#[derive(Deserialize)]
pub(super) struct File {
    command: String,
    machine: Host,
    rounds: u64,
    seconds: u64,
    step_seconds: u64,
    urgent: bool,
    interrupted: bool,
    candidates: Vec<Candidate>,
    skipped: Vec<Skipped>,
    failures: Vec<Failure>,
}

#[derive(Deserialize)]
struct Host {
    cpu: String,
    class: Option<Class>,
    processors: Vec<usize>,
    tiers: Vec<String>,
    load_before: Option<[f64; 3]>,
    load_after: Option<[f64; 3]>,
    kernel: String,
    iperf3: String,
    commit: String,
    time: String,
}

#[derive(Deserialize)]
struct Candidate {
    name: String,
    program: String,
    variant: String,
    cipher: String,
    version: String,
    samples: Vec<Sample>,
}

#[derive(Deserialize)]
struct Sample {
    round: u64,
    load: String,
    direction: String,
    bits_per_second: f64,
    datagrams_per_second: Option<f64>,
    gateway_cpu_s_per_gb: Option<f64>,
    path_mtu: f64,
    others_cores: f64,
    ended_by: Option<String>,
    #[serde(default)]
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    asked: f64,
    lost_share: f64,
}

#[derive(Deserialize)]
struct Skipped {
    candidate: String,
    why: String,
}

#[derive(Deserialize)]
struct Failure {
    candidate: String,
    round: u64,
    load: String,
    why: String,
}

/// Samples of one load in one direction.
struct Place<'a> {
    load: &'a str,
    direction: &'a str,
}

impl From<File> for Results {
    fn from(file: File) -> Self {
        let mut results = Self::new(BENCH, &file.head());
        results.complete = !file.interrupted;
        let Host { cpu, kernel, iperf3, commit, time, processors, .. } = &file.machine;
        results.facts = Fields::default()
            .with("cpu", cpu.as_str())
            .with("processors", processors.len())
            .with("kernel", kernel.as_str())
            .with("iperf3", iperf3.as_str())
            .with("commit", commit.as_str())
            .with("started", time.as_str())
            .with("rounds", file.rounds)
            .with("seconds", file.seconds)
            .with("step_seconds", file.step_seconds)
            .with("urgent", file.urgent);
        for one in file.candidates.iter().filter(|one| !one.is_convoy()) {
            results.machine.add_peer(&one.program, &one.version, None);
        }
        for place in file.places() {
            match (place.streams(), place.size()) {
                (None, None) => {
                    let why = "this version of Convoy does not know this load";
                    results.left_out.push(LeftOut::new(place.load, why));
                }
                _ => file.add(&mut results, &place),
            }
        }
        let skipped = file.skipped.iter().map(|one| LeftOut::new(&one.candidate, &one.why));
        results.left_out.extend(skipped);
        let failed = |one: &Failure| {
            let Failure { candidate, round, load, why } = one;
            let why = why.lines().next().unwrap_or_default();
            LeftOut::new(format!("{candidate}, {load}, round {round}"), why)
        };
        results.left_out.extend(file.failures.iter().map(failed));
        results
    }
}

impl File {
    fn head(&self) -> Head {
        let convoy = self.candidates.iter().find(|one| one.is_convoy());
        let version = convoy.and_then(|one| one.version.split([' ', ',']).nth(1));
        let host = &self.machine;
        let machine = Machine {
            cpu: host.cpu.clone(),
            class: host.class,
            tiers: host.tiers.clone(),
            denied: None,
            // `compare.py` counts no cycles.
            tsc_mhz: 0.0,
            clock_mhz: None,
            governor: None,
            processors: host.processors.clone(),
            siblings: Vec::new(),
            load_before: host.load_before,
            load_after: host.load_after,
            kernel: host.kernel.clone(),
            peers: Vec::new(),
        };
        Head {
            version: version.unwrap_or_default().to_owned(),
            command: self.command.clone(),
            started: host.time.clone(),
            machine,
        }
    }

    /// Loads and directions, in the order in which they were measured.
    fn places(&self) -> Vec<Place<'_>> {
        let mut places: Vec<Place<'_>> = Vec::new();
        for Sample { load, direction, .. } in self.candidates.iter().flat_map(|one| &one.samples) {
            if !places.iter().any(|known| known.load == load && known.direction == direction) {
                places.push(Place { load, direction });
            }
        }
        places
    }

    /// Adds all that was measured in a place.
    fn add(&self, results: &mut Results, place: &Place<'_>) {
        let speed = match place.streams().is_some() {
            true => Draft::new(THROUGHPUT, "bit/s", Better::More, place.fields()),
            false => Draft::new(DATAGRAMS, "datagrams/s", Better::More, place.fields()),
        };
        let of_speed = |sample: &Sample| match place.streams() {
            Some(_) => Some(sample.bits_per_second),
            None => sample.datagrams_per_second,
        };
        results.add(self.with_ratios(self.draft(speed, place, of_speed), place));
        let time = Draft::new(PROCESSOR_TIME, "s", Better::Less, place.fields());
        results.add(self.draft(time, place, |sample| sample.gateway_cpu_s_per_gb));
        self.losses(place).into_iter().for_each(|draft| results.add(draft));
    }

    /// Candidates, Convoy's first.
    fn in_order(&self) -> impl Iterator<Item = &Candidate> {
        let own = self.candidates.iter().filter(|one| one.is_convoy());
        own.chain(self.candidates.iter().filter(|one| !one.is_convoy()))
    }

    /// A series for each candidate that has such a value.
    fn draft(
        &self,
        draft: Draft,
        place: &Place<'_>,
        value: impl Fn(&Sample) -> Option<f64>,
    ) -> Draft {
        self.in_order().fold(draft, |draft, candidate| {
            let samples: Vec<&Sample> = candidate.of(place).collect();
            let rounds: Vec<f64> = samples.iter().filter_map(|sample| value(sample)).collect();
            match rounds.is_empty() {
                true => draft,
                false => draft.series_with(&candidate.name(), &rounds, candidate.facts(&samples)),
            }
        })
    }

    /// Convoy's gateways beside the others, where they were measured in the same rounds.
    fn with_ratios(&self, draft: Draft, place: &Place<'_>) -> Draft {
        let rounds = |one: &Candidate| one.of(place).map(|sample| sample.round).collect::<Vec<_>>();
        let own = self.candidates.iter().filter(|one| one.is_convoy());
        own.fold(draft, |draft, of| {
            let others = self.candidates.iter().filter(|one| !one.is_convoy());
            let beside = others.filter(|to| rounds(of) == rounds(to));
            beside.fold(draft, |draft, to| draft.ratio(&of.name(), &to.name(), Better::More))
        })
    }

    /// Datagrams lost at each rate that was tried, in per cent; a rate that was tried twice in a round counts twice.
    fn losses(&self, place: &Place<'_>) -> Vec<Draft> {
        let steps = |one: &Candidate| {
            one.of(place).flat_map(|sample| &sample.steps).map(Step::told).collect::<Vec<_>>()
        };
        let mut rates: Vec<u64> =
            self.candidates.iter().flat_map(steps).map(|(rate, _)| rate).collect();
        rates.sort_unstable();
        rates.dedup();
        let at = |rate: u64| {
            let draft = Draft::new(LOST, "%", Better::Less, place.fields().with("rate", rate));
            self.in_order().fold(draft, |draft, candidate| {
                let here = steps(candidate).into_iter().filter(|(asked, _)| *asked == rate);
                let lost: Vec<f64> = here.map(|(_, lost)| lost).collect();
                if lost.is_empty() { draft } else { draft.series(&candidate.name(), &lost) }
            })
        };
        rates.into_iter().map(at).collect()
    }
}

impl Step {
    /// The rate in whole datagrams a second, and what was lost in per cent.
    fn told(&self) -> (u64, f64) {
        (self.asked.max(0.0).round() as u64, 100.0 * self.lost_share)
    }
}

impl Place<'_> {
    /// Streams of TCP, if it is TCP.
    fn streams(&self) -> Option<u64> {
        self.load.strip_prefix("tcp")?.parse().ok()
    }

    /// Bytes of packets of UDP, if it is UDP.
    fn size(&self) -> Option<u64> {
        self.load.strip_prefix("udp")?.parse().ok()
    }

    fn fields(&self) -> Fields {
        let mut fields = Fields::default().with("load", self.load);
        let numbers = [("streams", self.streams()), ("size", self.size())];
        for (name, number) in numbers {
            if let Some(number) = number {
                fields.set(name, number);
            }
        }
        fields.with("direction", self.direction)
    }
}

impl Candidate {
    fn is_convoy(&self) -> bool {
        self.program == super::CONVOY
    }

    fn name(&self) -> Name {
        Name::new(&*self.program, &*self.variant)
    }

    fn of(&self, place: &Place<'_>) -> impl Iterator<Item = &Sample> {
        let (load, direction) = (place.load, place.direction);
        self.samples.iter().filter(move |one| one.load == load && one.direction == direction)
    }

    fn facts(&self, samples: &[&Sample]) -> Fields {
        let mtu = samples.iter().map(|one| one.path_mtu).fold(f64::INFINITY, f64::min);
        let others = samples.iter().map(|one| one.others_cores).sum::<f64>();
        let mut ends: Vec<&str> =
            samples.iter().filter_map(|one| one.ended_by.as_deref()).collect();
        ends.sort_unstable();
        ends.dedup();
        let facts = Fields::default()
            .with(CANDIDATE, &*self.name)
            .with("cipher", &*self.cipher)
            .with("path_mtu", mtu)
            .with("others_cores", others / samples.len().max(1) as f64);
        if ends.is_empty() { facts } else { facts.with("ended_by", ends.join(" ")) }
    }
}

impl Point {
    /// The name of a candidate of `compare.py` in this point.
    #[must_use]
    pub fn candidate(&self, name: &str) -> Option<&Name> {
        let is_it = |facts: &Fields| {
            facts.get(CANDIDATE).and_then(super::fields::Value::text) == Some(name)
        };
        self.series.iter().find(|series| is_it(&series.facts)).map(|series| &series.name)
    }
}
