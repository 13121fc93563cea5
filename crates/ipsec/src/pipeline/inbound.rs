//! The inbound pipeline of one worker.

use std::mem;
use std::sync::Arc;

use convoy_crypto::prefetch_front;
use convoy_engine::{EngineKey, Front, JobBurst, KeyId};
use convoy_packet::{BURST_MAX, Burst, Pool};

use super::arrival::Arrivals;
use super::bin::Bin;
use super::commit::{self, Verdict};
use super::demux;
use super::fragments::{Flows, Reassembly};
use super::hints::Hints;
use super::lookup::Lookup;
use super::mapping::Mappings;
use super::packet::Packet;
use super::refusals::Refusals;
use super::sa::InboundSa;
use super::settled::Settled;
use super::slab::{AHEAD, HOT, Slab};
use super::watch::Watch;
use super::{
    HandOff, Observer, PipelineConfig, PipelineParts, Stage, WorkerCounters, decap, policy,
};
use crate::clock::Now;
use crate::event::Event;
use crate::sa::{InboundSpec, SaSlot};
use crate::snapshot::{Reader, SpiKey};
use crate::spd::{Direction, SpdId};

/// Takes packets from the wire and brings the inner packets to light.
#[derive(Debug)]
pub struct Inbound<O: Observer = ()> {
    observer: O,
    config: PipelineConfig,
    reader: Reader,
    engine: Front,
    settled: Settled,
    refusals: Refusals,
    counters: Arc<WorkerCounters>,
    sas: Slab<InboundSa>,
    watch: Watch,
    mappings: Mappings,
    epoch: u32,
    jobs: JobBurst,
    done: JobBurst,
    in_flight: usize,
    /// Slots whose change waits for packets of the SA that is there.
    due: Vec<u32>,
    /// Some of those have another record already.
    is_held_up: bool,
    reassembly: Reassembly,
    arrivals: Arrivals,
    hints: Hints,
    verdicts: Vec<Verdict>,
    /// Inner packets of the burst that is being opened.
    packets: Vec<Packet>,
    flows: Flows,
    lookup: Lookup,
    transit: Burst,
}

impl Inbound {
    /// A pipeline without SAs; it takes them from the snapshot at the first burst.
    #[must_use]
    pub fn new(parts: PipelineParts) -> Self {
        Self::with_observer(parts, ())
    }
}

impl<O: Observer> Inbound<O> {
    /// The same, watched.
    #[must_use]
    pub fn with_observer(parts: PipelineParts, observer: O) -> Self {
        Self {
            observer,
            config: parts.config,
            settled: Settled::new(parts.reader.generation()),
            reader: parts.reader,
            engine: parts.engine,
            counters: parts.counters,
            refusals: Refusals::default(),
            sas: Slab::new(),
            watch: Watch::default(),
            mappings: Mappings::new(),
            epoch: 0,
            jobs: JobBurst::new(),
            done: JobBurst::new(),
            in_flight: 0,
            due: Vec::new(),
            is_held_up: false,
            reassembly: Reassembly::new(),
            arrivals: Arrivals::with_capacity(BURST_MAX),
            hints: Hints::new(),
            verdicts: Vec::with_capacity(BURST_MAX),
            packets: Vec::with_capacity(BURST_MAX),
            flows: Flows::with_capacity(BURST_MAX),
            lookup: Lookup::new(Direction::Inbound),
            transit: Burst::new(),
        }
    }

    /// The same for plain interfaces with policies of their own (RFC 4301 section 4.4.1): the database of
    /// each, the first one's first. Without a database of its number in the snapshot all packets of an
    /// interface are dropped, and so are those of interfaces beyond.
    #[must_use]
    pub fn with_spds(mut self, spds: &[SpdId]) -> Self {
        self.lookup.set_spds(spds);
        self
    }

    /// Takes packets from the wire as far as the engine.
    ///
    /// Consumes a prefix of `input`, normally all; what stays did not fit yet: call again after
    /// [`Self::collect`].
    pub fn submit(&mut self, now: Now, pool: &mut Pool, input: &mut Burst, handoff: &mut HandOff) {
        // A new picture may give slots, and with them key numbers, to other SAs. Jobs that the engine has
        // not taken yet go first, so that they meet the key they were made for.
        if self.jobs.is_empty() {
            self.adopt(now);
        } else if self.reader.is_behind() {
            return;
        }
        if self.is_held_up {
            return;
        }
        let n = self.jobs.room();
        let mut stage = demux::Stage {
            now,
            snapshot: self.reader.snapshot(),
            me: self.config.worker,
            sas: &self.sas,
            hints: &mut self.hints,
            jobs: &mut self.jobs,
            handoff,
            reassembly: &mut self.reassembly,
            arrivals: &mut self.arrivals,
            bin: &mut Bin { pool, counters: &self.counters },
        };
        demux::run(&mut stage, input, n);
        self.observer.passed(Stage::Demux);
        self.in_flight += self.engine.submit(now.0, pool, &mut self.jobs);
        self.observer.passed(Stage::Engine);
    }

    /// Gives inner packets to `plain`, as many as fit, but for those that go on into other tunnels: they are
    /// to be taken from [`Self::transit`].
    pub fn collect(&mut self, now: Now, pool: &mut Pool, plain: &mut Burst) {
        self.engine.flush(now.0);
        self.in_flight -= self.engine.poll(now.0, pool, &mut self.done);
        // Fragments held back may come to light together with the packets of this burst.
        let room = plain.room().min(self.transit.room());
        let n = self.done.len().min(room.saturating_sub(self.flows.held()));
        let mut bin = Bin { pool, counters: &self.counters };
        let finished = self.done.as_slice().get(..n).unwrap_or_default();
        self.verdicts.clear();
        let many = self.hints.are_many();
        let (watch, mappings) = (&mut self.watch, &mut self.mappings);
        commit::run(now, many, &mut self.sas, watch, mappings, finished, &mut self.verdicts);
        self.observer.passed(Stage::Commit);
        let (done, packets) = (&mut self.done, &mut self.packets);
        decap::run(&self.config, &self.sas, done, &self.verdicts, packets, &mut bin);
        self.flows.run(now, packets, &mut bin);
        self.observer.passed(Stage::Decap);
        let snapshot = self.reader.snapshot();
        let (sas, transit, bin) = (&self.sas, &mut self.transit, &mut bin);
        let met = &self.settled;
        let mut stage = policy::Stage { now, snapshot, met, sas, plain, transit, bin };
        policy::run(&mut stage, packets, &mut self.lookup);
        self.observer.passed(Stage::Policy);
        if self.done.is_empty() && self.transit.is_empty() {
            self.settled.look(&self.engine);
        }
        self.in_flight += self.engine.submit(now.0, pool, &mut self.jobs);
    }

    /// Packets that go on into other tunnels, for [`Outbound::forward`](super::Outbound::forward).
    #[inline]
    pub fn transit(&mut self) -> &mut Burst {
        &mut self.transit
    }

    /// Looks at the SAs whose time may be over, and drops fragments that waited too long for the
    /// rest of their packet. To be called about twice a second, also when nothing arrives.
    pub fn expire(&mut self, now: Now, pool: &mut Pool) {
        let mut bin = Bin { pool, counters: &self.counters };
        self.reassembly.expire(now, &mut bin);
        self.flows.expire(now, &mut bin);
        self.watch.tick(&mut self.sas, now);
        let sas = self.sas.iter().map(|(slot, sa)| (slot, &*sa.spec.counters));
        self.refusals.look(&self.engine, sas);
    }

    /// True if [`Self::tell`] has something to tell.
    #[inline]
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.watch.has_news() || self.mappings.has_news()
    }

    /// Gives events to `tell` until it answers `false`; what it did not take comes again.
    pub fn tell(&mut self, mut tell: impl FnMut(Event) -> bool) {
        self.watch.tell(&mut self.sas, &mut tell);
        self.mappings.tell(&self.sas, &mut tell);
    }

    /// Watcher of the stages.
    pub fn observer_mut(&mut self) -> &mut O {
        &mut self.observer
    }

    /// Packets taken in and not yet given out. Fragments that wait for others are not counted:
    /// what they wait for may never come.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.jobs.len() + self.in_flight + self.done.len() + self.transit.len()
    }

    /// Part that does the cryptography.
    #[must_use]
    pub const fn engine(&self) -> &Front {
        &self.engine
    }

    /// Says that the worker is about to sleep, or to wait for packets to gather.
    pub fn rests(&mut self) {
        self.engine.rests();
    }

    /// Has the next burst meet the newest picture, whoever publishes another one meanwhile: to be called when
    /// the worker works again after a rest on which others count.
    pub fn rises(&mut self) {
        self.reader.wait_for_next();
    }

    /// Of the packets in flight, those that the engine wakes the worker for. 0 while polling it is of use.
    #[must_use]
    pub fn with_engine(&self) -> usize {
        if self.in_flight == 0 || self.engine.is_ready() { 0 } else { self.in_flight }
    }

    /// Generation of the picture that packets which come now meet, and all that are under way have met.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.settled.generation()
    }

    /// Gives all packets back to `pool`, for the end of a worker. Returns how many requests the engine still
    /// holds: with a value above 0, ask again.
    pub fn release(&mut self, now: Now, pool: &mut Pool) -> usize {
        let mut bin = Bin { pool, counters: &self.counters };
        self.reassembly.release(&mut bin);
        self.flows.release(&mut bin);
        self.transit.release(pool);
        self.jobs.drain().for_each(|job| pool.free(job.frame));
        self.done.drain().for_each(|job| pool.free(job.frame));
        self.in_flight = 0;
        self.engine.release(now.0, pool)
    }

    /// Follows the published snapshot, at the cost of what changed, whatever is in flight. An SA of which
    /// packets are still with the engine stays in its slot until they are back: if it goes, it takes no more
    /// packets meanwhile; if its slot or its window is another record's now, packets wait in their ports.
    fn adopt(&mut self, now: Now) {
        let mut slots = mem::take(&mut self.due);
        if let Some(old) = self.reader.refresh() {
            let snapshot = self.reader.snapshot();
            self.hints.grow(snapshot.len().1);
            snapshot.inbound_changes(&old, |slot, _| slots.push(slot));
            // What is under way is judged by what it met: a group of SAs may have another number now.
            let is_met = self.in_flight > 0 || !self.done.is_empty();
            let generation = self.reader.generation();
            self.settled.took_over(generation, &self.engine, is_met.then_some(old));
        }
        self.is_held_up = false;
        // First all that stays for now: no other SA takes over a window that still moves.
        slots.retain(|slot| !self.put_off(*slot));
        for slot in &slots {
            // Where many come they mostly lie in a row, but not what they are made of.
            let record = |slot: u32| self.reader.snapshot().inbound(SaSlot(slot));
            record(slot.saturating_add(2 * AHEAD))
                .inspect(|spec| prefetch_front::<HOT, _>(&***spec));
            record(slot.saturating_add(AHEAD)).inspect(|spec| spec.prefetch());
            self.settle(now, *slot);
        }
        if self.due.is_empty() {
            // What was allocated serves again.
            slots.clear();
            self.due = slots;
        }
    }

    /// The record that the SA in a slot is to have.
    fn wanted(&self, slot: u32) -> Option<&Arc<InboundSpec>> {
        let record = self.reader.snapshot().inbound(SaSlot(slot));
        record.filter(|spec| spec.worker == self.config.worker)
    }

    /// Puts the change of a slot off if packets of the SA that is there are under way; says whether.
    fn put_off(&mut self, slot: u32) -> bool {
        let Some(sa) = self.sas.get(slot) else { return false };
        let wanted = self.wanted(slot);
        if wanted.is_some_and(|spec| Arc::ptr_eq(&sa.spec, spec)) || self.is_idle(slot) {
            return false;
        }
        match wanted {
            Some(_) => self.is_held_up = true,
            None => self.sas.get_mut(slot).into_iter().for_each(|sa| sa.key = SpiKey::NONE),
        }
        self.due.push(slot);
        true
    }

    /// Brings a slot to its record. An SA whose record changed but whose key did not keeps its window.
    fn settle(&mut self, now: Now, slot: u32) {
        let Some(spec) = self.wanted(slot).cloned() else {
            if self.sas.get(slot).is_some() {
                self.engine.remove(KeyId(slot));
                self.sas.remove(slot);
            }
            return;
        };
        let Self { engine, sas, watch, mappings, epoch, due, is_held_up, .. } = self;
        if let Some(sa) = sas.get_mut(slot).filter(|sa| Arc::ptr_eq(&sa.spec, &spec)) {
            // It may have been about to go.
            sa.key = SpiKey::of(&spec);
            return;
        }
        let has_window = |slot: &u32| sas.get(*slot).is_some_and(|sa| sa.counters == spec.counters);
        if due.iter().any(has_window) {
            *is_held_up = true;
            due.push(slot);
            return;
        }
        *epoch = epoch.wrapping_add(1);
        engine.install(KeyId(slot), EngineKey::Open(spec.key.as_arc().clone()));
        Refusals::tell(engine, slot, &spec.counters);
        let window = sas.get_mut(slot).and_then(|sa| sa.bequeath(&spec));
        sas.remove(slot);
        // A window or suite that cannot be is refused when the snapshot is made.
        if let Some(sa) = InboundSa::new(spec, window, *epoch, now) {
            watch.add(slot, &sa.meter);
            if sa.port.is_some() {
                mappings.add(slot);
            }
            sas.insert(slot, sa);
        }
    }

    /// True if no packet of the SA in a slot is between demultiplexing and its verdict.
    fn is_idle(&self, slot: u32) -> bool {
        let mut finished = self.done.as_slice().iter();
        self.engine.is_idle(KeyId(slot)) && finished.all(|job| job.context.slot != slot)
    }
}
