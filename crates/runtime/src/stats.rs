//! Counters that workers publish about themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use convoy_engine::Front;
use convoy_engine::front::{Counts, Standing};
use convoy_io::PortCounters;
use convoy_ipsec::counter::Counter;
use convoy_ipsec::pipeline::WorkerCounters;
use convoy_ipsec::sa::WorkerId;

use crate::wake::rest::RestFlag;

/// A port's counters, where its worker writes them and anyone reads them.
#[derive(Debug)]
pub(crate) struct PortStats(Vec<Counter>);

impl PortStats {
    fn new() -> Self {
        Self(PortCounters::default().iter().map(|_| Counter::default()).collect())
    }

    pub(crate) fn publish(&self, counters: PortCounters) {
        for (place, (_, _, value)) in self.0.iter().zip(counters.iter()) {
            place.set(value);
        }
    }

    fn totals(&self) -> PortTotals {
        PortTotals(self.0.iter().map(Counter::get).collect())
    }
}

/// Counters of a port, or sums over ports, as they were when they were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortTotals(Vec<u64>);

impl PortTotals {
    /// Nothing counted.
    #[must_use]
    pub fn zero() -> Self {
        Self(PortCounters::default().iter().map(|_| 0).collect())
    }

    /// All counters as (name, help text, value), in the order of [`PortCounters::iter`].
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> + '_ {
        let names: Vec<_> = PortCounters::default().iter().collect();
        names.into_iter().zip(&self.0).map(|((name, help, _), value)| (name, help, *value))
    }

    /// The counters of lost packets as (name, value).
    pub fn losses(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let names: Vec<_> = PortCounters::default().losses().map(|(name, _)| name).collect();
        self.iter().filter(move |(name, ..)| names.contains(name)).map(|(name, _, n)| (name, n))
    }

    /// The counter with this name; 0 when there is none.
    #[must_use]
    pub fn value(&self, name: &str) -> u64 {
        self.iter().find(|(n, ..)| *n == name).map_or(0, |(_, _, value)| value)
    }

    /// Adds counter by counter.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = mine.wrapping_add(*theirs);
        }
    }
}

/// Counters of the engines of one worker, both directions together; all zero while it does its own
/// cryptography. See [`Counts`](convoy_engine::front::Counts).
#[derive(Debug, Default)]
pub struct EngineStats {
    /// Requests that the engines took.
    pub requests: Counter,
    /// Jobs in them.
    pub jobs: Counter,
    /// Jobs that software did because a key was refused, no frame was free or an engine was down.
    pub in_software: Counter,
    /// Jobs that a worker which shares the work with its engine did itself.
    pub here: Counter,
    /// Jobs that went to an engine because they were beyond the worker's budget.
    pub deferred: Counter,
    /// Jobs that a worker with nothing else to do took back and did itself.
    pub recalled: Counter,
    /// Jobs that such a worker did again because others waited for them.
    pub overtaken: Counter,
    /// Jobs that an engine gave back undone.
    pub refused: Counter,
    /// Jobs that software did because an engine was lost.
    pub redone: Counter,
    /// Results of an engine that workers computed again.
    pub checked: Counter,
    /// Of these, wrong ones.
    pub wrong: Counter,
    /// Times that an engine was lost.
    pub losses: Counter,
    /// Times that one began anew.
    pub restarts: Counter,
    /// Keys that an engine refused.
    pub keys_refused: Counter,
    /// Engines that are lost at present.
    pub down: Counter,
}

impl EngineStats {
    /// Only the worker calls this.
    pub(crate) fn publish(&self, engines: [&Front; 2]) {
        let sum = |of: fn(&Counts) -> u64| engines.iter().map(|front| of(&front.counts())).sum();
        self.requests.set(sum(|counts| counts.requests));
        self.jobs.set(sum(|counts| counts.jobs));
        self.in_software.set(sum(|counts| counts.in_software));
        self.here.set(sum(|counts| counts.here));
        self.deferred.set(sum(|counts| counts.deferred));
        self.recalled.set(sum(|counts| counts.recalled));
        self.overtaken.set(sum(|counts| counts.overtaken));
        self.refused.set(sum(|counts| counts.refused));
        self.redone.set(sum(|counts| counts.redone));
        self.checked.set(sum(|counts| counts.checked));
        self.wrong.set(sum(|counts| counts.wrong));
        self.losses.set(sum(|counts| counts.losses));
        self.restarts.set(sum(|counts| counts.restarts));
        self.keys_refused.set(sum(|counts| counts.keys_refused));
        let is_down =
            |front: &&&Front| front.standing().is_some_and(|standing| standing != Standing::Up);
        self.down.set(engines.iter().filter(is_down).count() as u64);
    }
}

/// Counters that one worker publishes.
#[derive(Debug)]
pub struct WorkerStats {
    id: WorkerId,
    /// Counters of its pipelines.
    pub pipeline: Arc<WorkerCounters>,
    /// Packets given to other workers.
    pub handed_off: Counter,
    /// Packets taken from other workers.
    pub taken_over: Counter,
    /// Packets whose cryptography it did for other workers.
    pub helped: Counter,
    /// Times the worker went to sleep for want of work.
    pub sleeps: Counter,
    /// Nanoseconds in turns that moved packets: how loaded it is, also where it never sleeps.
    pub busy_ns: Counter,
    /// ICMP errors other than "too big" about packets that were sent.
    pub unreachable: Counter,
    /// Messages about too small a path that were believed.
    pub path_mtu_believed: Counter,
    /// Messages about too small a path that quoted nothing of ours.
    pub path_mtu_ignored: Counter,
    /// Counters of its engines.
    pub engine: EngineStats,
    /// Generation of the snapshot that its packets meet.
    generation: AtomicU64,
    /// Rest of the worker with nothing under way.
    rest: RestFlag,
    /// True if it rests although packets of it wait for SAs.
    waits_for_sas: AtomicBool,
    /// Number of requests for counters that are up to date.
    asked: AtomicU64,
    /// Number of the last request that was answered.
    answered: AtomicU64,
    pub(crate) plain: PortStats,
    pub(crate) wire: Vec<PortStats>,
}

impl WorkerStats {
    pub(crate) fn new(id: WorkerId, wire_ports: usize) -> Self {
        Self {
            id,
            pipeline: Arc::default(),
            handed_off: Counter::default(),
            taken_over: Counter::default(),
            helped: Counter::default(),
            sleeps: Counter::default(),
            busy_ns: Counter::default(),
            unreachable: Counter::default(),
            path_mtu_believed: Counter::default(),
            path_mtu_ignored: Counter::default(),
            engine: EngineStats::default(),
            generation: AtomicU64::new(0),
            rest: RestFlag::new(),
            waits_for_sas: AtomicBool::new(false),
            asked: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            plain: PortStats::new(),
            wire: (0..wire_ports).map(|_| PortStats::new()).collect(),
        }
    }

    /// Number of the worker.
    #[must_use]
    pub fn worker(&self) -> WorkerId {
        self.id
    }

    /// Generation of the snapshot that all packets meet which the worker takes from now on, both ways;
    /// none that met an older one is under way in it.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// True if all packets that the worker takes from now on meet this generation or a newer one: it has it, or rests
    /// and takes it before its next packet. To be asked after the generation was published.
    #[must_use]
    pub fn has_seen(&self, generation: u64) -> bool {
        self.generation() >= generation || self.rest.is_resting()
    }

    /// True if the worker rests and nothing in it waits for a snapshot: that which was published can wait until it is
    /// woken, as it takes it before its next packet. To be asked after it was published.
    #[must_use]
    pub fn can_see_later(&self) -> bool {
        self.rest.is_resting() && !self.waits_for_sas.load(Ordering::Relaxed)
    }

    /// Only the worker calls this: it rests from here on, with nothing under way but packets that wait for SAs, if so.
    pub(crate) fn rests(&self, waits_for_sas: bool) {
        self.waits_for_sas.store(waits_for_sas, Ordering::Relaxed);
        self.rest.rest();
    }

    /// Only the worker calls this.
    pub(crate) fn rest(&self) -> &RestFlag {
        &self.rest
    }

    /// Only the worker calls this.
    pub(crate) fn saw(&self, generation: u64) {
        if self.generation.load(Ordering::Relaxed) != generation {
            self.generation.store(generation, Ordering::Release);
        }
    }

    /// Requests counters that are up to date; the number of the request.
    pub(crate) fn ask(&self) -> u64 {
        self.asked.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Number of requests so far.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Acquire)
    }

    /// True if an answer is due.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked() != self.answered.load(Ordering::Relaxed)
    }

    /// Only the worker calls this, with the [number](Self::asked) of requests before it published.
    pub(crate) fn answer(&self, asked: u64) {
        self.answered.store(asked, Ordering::Release);
    }

    /// The worker has ended: nothing will change any more.
    pub(crate) fn ends(&self) {
        self.answer(u64::MAX);
    }

    /// True if a request was answered.
    pub(crate) fn has_answered(&self, asked: u64) -> bool {
        self.answered.load(Ordering::Acquire) >= asked
    }

    /// The sum of the plain ports' counters.
    #[must_use]
    pub fn plain(&self) -> PortTotals {
        self.plain.totals()
    }

    /// The sum of the wire ports' counters.
    #[must_use]
    pub fn wire(&self) -> PortTotals {
        let mut sum = PortTotals::zero();
        self.wire.iter().for_each(|port| sum.add(&port.totals()));
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_port_counters_are_read_back_by_name_and_summed() {
        let stats = WorkerStats::new(WorkerId(1), 2);
        let mut counters = PortCounters::default();
        counters.rx_packets = 7;
        counters.tx_too_big = 2;
        stats.wire.iter().for_each(|port| port.publish(counters));
        let sum = stats.wire();
        assert_eq!((sum.value("rx_packets"), sum.value("tx_too_big")), (14, 4));
        assert_eq!(sum.losses().filter(|(_, n)| *n > 0).collect::<Vec<_>>(), [("tx_too_big", 4)]);
        assert_eq!(stats.plain(), PortTotals::zero());
    }
}
