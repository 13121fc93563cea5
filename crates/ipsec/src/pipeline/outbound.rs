//! The outbound pipeline of one worker.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use convoy_crypto::prefetch_front;
use convoy_engine::{EngineKey, Front, JobBurst, KeyId};
use convoy_packet::{BURST_MAX, Burst, InterfaceId, Pool};
use convoy_wire::{SeqNum, parse_packet};

use super::acquire::Acquire;
use super::bin::Bin;
use super::classify::{self, Disposition};
use super::form::Form;
use super::fragments::Flows;
use super::hints::Hints;
use super::icmp::IcmpSender;
use super::idle::{IdleTimers, Outcome};
use super::iv::IvSource;
use super::job_maker::JobMaker;
use super::lookup::Lookup;
use super::packet::Packet;
use super::peers::Peers;
use super::refusals::Refusals;
use super::sa::OutboundSa;
use super::settled::Settled;
use super::slab::{AHEAD, HOT, Slab};
use super::watch::Watch;
use super::{
    HandOff, Observer, PathMtuNews, PipelineConfig, PipelineParts, Stage, WorkerCounters, dummy,
    forward, keepalive, parse, protect, transit,
};
use crate::clock::Now;
use crate::drop_reason::DropReason;
use crate::event::Event;
use crate::sa::SaSlot;
use crate::sequence::{SequenceCounter, SequenceLimits};
use crate::snapshot::Reader;
use crate::spd::{Direction, SpdId};

/// Packets that may wait between classification and protection: what a burst may be cut into, and
/// the rest of it.
const PENDING_MAX: usize = 6 * BURST_MAX;

/// Origin of packets that a caller brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Plain,
    Tunnel,
}

/// Source of the packets that are classified next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// Packets that waited for an SA, to be classified again.
    Waited,
    /// Messages of this pipeline to senders behind tunnels.
    Answers,
    /// Packets that the caller brought.
    Input(Origin),
}

/// Takes inner packets and makes ESP packets of them.
#[derive(Debug)]
pub struct Outbound<O: Observer = ()> {
    observer: O,
    config: PipelineConfig,
    reader: Reader,
    engine: Front,
    settled: Settled,
    refusals: Refusals,
    counters: Arc<WorkerCounters>,
    sas: Slab<OutboundSa>,
    watch: Watch,
    keepalives: IdleTimers,
    dummies: IdleTimers,
    peers: Peers,
    /// Slots whose SAs are still to be taken over: their keys may be another's, or the system has no
    /// random numbers for their IVs.
    unclaimed: Vec<u32>,
    /// The burst that is being classified.
    packets: Vec<Packet>,
    flows: Flows,
    lookup: Lookup,
    hints: Hints,
    dispositions: Vec<Disposition>,
    acquire: Acquire,
    /// Packets that are classified and did not fit into the jobs.
    pending: VecDeque<Packet>,
    jobs: JobBurst,
    done: JobBurst,
    in_flight: usize,
    bypass: Burst,
    icmp: IcmpSender,
    /// Messages to senders behind tunnels, to be protected.
    answers: Burst,
    ivs: IvSource,
}

impl Outbound {
    /// A pipeline without SAs; it takes them from the snapshot at the first burst.
    #[must_use]
    pub fn new(parts: PipelineParts) -> Self {
        Self::with_observer(parts, ())
    }
}

impl<O: Observer> Outbound<O> {
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
            keepalives: IdleTimers::new(),
            dummies: IdleTimers::new(),
            peers: Peers::default(),
            unclaimed: Vec::new(),
            packets: Vec::with_capacity(BURST_MAX),
            flows: Flows::with_capacity(BURST_MAX),
            lookup: Lookup::new(Direction::Outbound),
            hints: Hints::new(),
            dispositions: Vec::with_capacity(BURST_MAX),
            acquire: Acquire::new(),
            pending: VecDeque::with_capacity(PENDING_MAX),
            jobs: JobBurst::new(),
            done: JobBurst::new(),
            in_flight: 0,
            bypass: Burst::new(),
            icmp: IcmpSender::new(),
            answers: Burst::new(),
            ivs: IvSource::new(),
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

    /// Part that does the cryptography.
    #[must_use]
    pub const fn engine(&self) -> &Front {
        &self.engine
    }

    /// Says that the worker is about to sleep, or to wait for packets to gather.
    pub fn rests(&mut self) {
        self.engine.rests();
    }

    /// Has the next burst meet the newest snapshot, whoever publishes another one meanwhile: to be called when
    /// the worker works again after a rest on which others count.
    pub fn rises(&mut self) {
        self.reader.wait_for_next();
    }

    /// Of the packets in flight, those that the engine wakes the worker for. 0 while polling it is of use.
    #[must_use]
    pub fn with_engine(&self) -> usize {
        if self.in_flight == 0 || self.engine.is_ready() { 0 } else { self.in_flight }
    }

    /// Generation of the snapshot that packets which come now meet, and all that are under way have met.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.settled.generation()
    }

    /// Takes inner packets as far as the engine.
    ///
    /// Consumes a prefix of `input`, normally all; what stays did not fit yet: call again after
    /// [`Self::collect`].
    pub fn submit(&mut self, now: Now, pool: &mut Pool, input: &mut Burst, handoff: &mut HandOff) {
        self.take_in(now, pool, input, Origin::Plain, handoff);
    }

    /// The same for packets that came out of a tunnel and go on into another one. One that needs an SA of
    /// another worker is that worker's as if it had come from the plain side.
    pub fn forward(&mut self, now: Now, pool: &mut Pool, input: &mut Burst, handoff: &mut HandOff) {
        self.take_in(now, pool, input, Origin::Tunnel, handoff);
    }

    fn take_in(
        &mut self,
        now: Now,
        pool: &mut Pool,
        input: &mut Burst,
        origin: Origin,
        handoff: &mut HandOff,
    ) {
        self.protect(now, pool, None);
        if let Some(source) = self.source(now, input.len(), origin) {
            let since = self.fetch(source, now, pool, input);
            let usual = self.classify(since, now, pool, handoff);
            self.observer.passed(Stage::Classify);
            self.protect(now, pool, usual);
        }
    }

    /// Chooses what is classified next; `None` while packets that were classified must leave first.
    fn source(&mut self, now: Now, input: usize, origin: Origin) -> Option<Source> {
        // Fragments held back may come to light together with the packets of this burst.
        let most = input.max(self.answers.len()) + self.flows.held();
        let has_room = self.pending.is_empty() && self.bypass.room() >= most.min(BURST_MAX);
        if !has_room || !self.follow(now) {
            return None;
        }
        if self.acquire.again() > 0 {
            // What has waited goes before what comes now; each is one burst for the bypass's room.
            return self.bypass.is_empty().then_some(Source::Waited);
        }
        Some(if self.answers.is_empty() { Source::Input(origin) } else { Source::Answers })
    }

    /// Follows the published snapshot; `false` while jobs that were laid out must leave first: a new snapshot
    /// may give slots, and with them key numbers, to other SAs, and under another key a job's nonce would not
    /// be its own.
    fn follow(&mut self, now: Now) -> bool {
        if !self.jobs.is_empty() {
            return !self.reader.is_behind();
        }
        let seen = self.reader.generation();
        self.adopt(now);
        if self.reader.generation() != seen {
            self.acquire.look_again();
        }
        true
    }

    /// Takes packets from their source to be classified; returns the time at which they came.
    fn fetch(&mut self, source: Source, now: Now, pool: &mut Pool, input: &mut Burst) -> Now {
        let Self { config, packets, icmp, answers, acquire, counters, flows, .. } = self;
        let mut bin = Bin { pool, counters };
        let n = BURST_MAX - flows.held();
        acquire.begin();
        match source {
            Source::Waited => return acquire.take(packets).unwrap_or(now),
            Source::Answers => parse::run(answers, n, packets, &mut bin),
            Source::Input(Origin::Plain) => parse::run(input, n, packets, &mut bin),
            Source::Input(Origin::Tunnel) => {
                parse::run(input, n, packets, &mut bin);
                transit::run(now, config, packets, icmp, &mut bin);
            }
        }
        flows.run(now, packets, &mut bin);
        self.observer.passed(Stage::Parse);
        now
    }

    /// Sends what was parsed and came at `since` on its way; says of which form all is that is to be
    /// protected, if it goes the usual way.
    fn classify(
        &mut self,
        since: Now,
        now: Now,
        pool: &mut Pool,
        handoff: &mut HandOff,
    ) -> Option<Form> {
        let mut stage = classify::Stage {
            snapshot: self.reader.snapshot(),
            config: &self.config,
            icmp: &mut self.icmp,
            since,
            now,
            sas: &self.sas,
            lookup: &mut self.lookup,
            hints: &mut self.hints,
            dispositions: &mut self.dispositions,
            bypass: &mut self.bypass,
            handoff,
            acquire: &mut self.acquire,
            bin: &mut Bin { pool, counters: &self.counters },
        };
        classify::run(&mut stage, &mut self.packets)
    }

    /// Gives finished ESP packets to `wire` and ICMP messages for inner senders to `plain`, as
    /// many as fit. Messages to senders behind tunnels are protected with the next packets.
    pub fn collect(&mut self, now: Now, pool: &mut Pool, wire: &mut Burst, plain: &mut Burst) {
        move_frames(&mut self.bypass, wire);
        if !self.icmp.ready.is_empty() {
            self.send_answers(pool, plain);
        }
        self.engine.flush(now.0);
        self.in_flight -= self.engine.poll(now.0, pool, &mut self.done);
        let n = self.done.len().min(wire.room());
        let mut bin = Bin { pool, counters: &self.counters };
        forward::run(&mut self.done, n, self.config.udp6_checksum, wire, &mut bin);
        self.observer.passed(Stage::Forward);
        if self.done.is_empty() {
            self.settled.look(&self.engine);
        }
        self.protect(now, pool, None);
    }

    /// Gives messages to inner senders to the plain side, or keeps those that outbound policies decide about. One to
    /// a sender behind a tunnel that no policy decides about is dropped: it quotes what was protected.
    #[cold]
    fn send_answers(&mut self, pool: &mut Pool, plain: &mut Burst) {
        let Self { icmp, answers, lookup, reader, counters, .. } = self;
        let spd = lookup.spd(InterfaceId(0)).and_then(|spd| reader.snapshot().spd_of(spd));
        let n = icmp.ready.len().min(plain.room()).min(answers.room());
        for frame in icmp.ready.drain_front(n) {
            let flow = parse_packet(frame.data()).map(|info| info.flow).ok();
            let asked = spd.zip(flow).filter(|_| frame.interface() == InterfaceId(0));
            let way = match asked {
                Some((spd, flow)) if spd.is_for_tunnel(&flow) => &mut *answers,
                Some((spd, flow)) if spd.is_behind_tunnel(&flow) => {
                    Bin { pool, counters }.drop(frame, DropReason::NoPolicy);
                    continue;
                }
                _ => &mut *plain,
            };
            // Dropping a frame that does not fit would be a counted leak; room was checked.
            drop(way.push(frame));
        }
    }

    /// Sends a NAT keepalive on every encapsulated SA that was idle for its interval
    /// (RFC 3948 section 4). Says whether all that were due found room.
    pub fn keepalives(&mut self, now: Now, pool: &mut Pool, wire: &mut Burst) -> bool {
        let Self { keepalives, sas, config, counters, .. } = self;
        keepalives.run(now, sas, |_, sa| {
            let outcome = keepalive::send(sa, config.udp6_checksum, pool, wire);
            counters.keepalives_sent.add((outcome == Outcome::Sent).into());
            outcome
        })
    }

    /// Makes a dummy packet for every SA that was idle for so long as its record says (RFC 4303
    /// section 2.6); [`Self::collect`] gives them out. Says whether all that were due found room.
    pub fn dummies(&mut self, now: Now, pool: &mut Pool) -> bool {
        let Self { dummies, sas, ivs, watch, jobs, counters, .. } = self;
        let mut maker = JobMaker { now, ivs, watch, jobs };
        let all = dummies.run(now, sas, |slot, sa| {
            let outcome = dummy::send(&mut maker, SaSlot(slot), sa, pool);
            counters.dummies_sent.add((outcome == Outcome::Sent).into());
            outcome
        });
        if !self.jobs.is_empty() {
            self.in_flight += self.engine.submit(now.0, pool, &mut self.jobs);
        }
        all
    }

    /// Hears that a packet was too big for the path; says whether it was believed.
    ///
    /// Anyone can send such a message, so it must quote the SPI of an SA of this worker and a
    /// sequence number that was used lately, and make the path narrower, not wider
    /// (RFC 4301 section 8.2.1, RFC 4303 section 7).
    pub fn path_mtu(&mut self, now: Now, news: &PathMtuNews) -> bool {
        let Some((spi, quoted)) = news.quote else { return false };
        let Self { peers, sas, .. } = self;
        peers.with_spi(news.destination, spi).any(|slot| {
            let sa = sas.get_mut(slot).filter(|sa| sa.sent_lately(quoted));
            sa.is_some_and(|sa| sa.narrow(now, news.mtu))
        })
    }

    /// Hears from this host itself that its own link to `destination` takes no more than `mtu`
    /// bytes; says whether that changed anything. Only the host can say so, so no proof is asked for,
    /// and it concerns every SA to that peer.
    pub fn link_mtu(&mut self, now: Now, destination: IpAddr, mtu: u32) -> bool {
        let Self { peers, sas, .. } = self;
        peers.with_address(destination).fold(false, |changed, slot| {
            sas.get_mut(slot).is_some_and(|sa| sa.narrow(now, mtu)) | changed
        })
    }

    /// Looks at the SAs whose time may be over, and drops packets that waited too long for an SA, and
    /// fragments for the first of their packet. To be called about twice a second, also when nothing
    /// arrives.
    pub fn expire(&mut self, now: Now, pool: &mut Pool) {
        self.flows.expire(now, &mut Bin { pool, counters: &self.counters });
        self.watch.tick(&mut self.sas, now);
        self.acquire.tick(now, &mut Bin { pool, counters: &self.counters });
        let sas = self.sas.iter().map(|(slot, sa)| (slot, &*sa.spec.counters));
        self.refusals.look(&self.engine, sas);
    }

    /// True if [`Self::tell`] has something to tell.
    #[inline]
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.watch.has_news() || self.acquire.has_news()
    }

    /// Gives events to `tell` until it answers `false`; what it did not take comes again.
    pub fn tell(&mut self, mut tell: impl FnMut(Event) -> bool) {
        self.watch.tell(&mut self.sas, &mut tell);
        self.acquire.tell(&mut tell);
    }

    /// Watcher of the stages.
    pub fn observer_mut(&mut self) -> &mut O {
        &mut self.observer
    }

    /// True if packets wait for an SA: the next snapshot may bring it.
    #[must_use]
    pub fn waits_for_sas(&self) -> bool {
        self.acquire.is_waited_for()
    }

    /// Packets taken in and not yet given out. Those that wait for an SA, and fragments that wait
    /// for others, are not counted: what they wait for may never come.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.pending.len()
            + self.acquire.again()
            + self.jobs.len()
            + self.in_flight
            + self.done.len()
            + self.bypass.len()
            + self.icmp.ready.len()
            + self.answers.len()
    }

    /// Gives all packets back to `pool`, unprotected ones included, for the end of a worker. Returns how many
    /// requests the engine still holds: with a value above 0, ask again.
    pub fn release(&mut self, now: Now, pool: &mut Pool) -> usize {
        self.flows.release(&mut Bin { pool, counters: &self.counters });
        self.acquire.release(&mut Bin { pool, counters: &self.counters });
        self.bypass.release(pool);
        self.icmp.ready.release(pool);
        self.answers.release(pool);
        self.pending.drain(..).for_each(|packet| pool.free(packet.frame));
        self.jobs.drain().for_each(|job| pool.free(job.frame));
        self.done.drain().for_each(|job| pool.free(job.frame));
        self.in_flight = 0;
        self.engine.release(now.0, pool)
    }

    /// Lays out what was classified and what waits, as far as jobs fit, and submits it. `usual` is what
    /// [`Self::classify`] said.
    fn protect(&mut self, now: Now, pool: &mut Pool, usual: Option<Form>) {
        if self.packets.is_empty() && self.pending.is_empty() && self.jobs.is_empty() {
            return;
        }
        let Self { ivs, watch, jobs, .. } = self;
        let mut stage = protect::Stage {
            now,
            config: &self.config,
            sas: &mut self.sas,
            icmp: &mut self.icmp,
            maker: JobMaker { now, ivs, watch, jobs },
            bin: &mut Bin { pool, counters: &self.counters },
        };
        protect::run(&mut stage, &mut self.packets, usual, &mut self.pending);
        self.observer.passed(Stage::Protect);
        self.in_flight += self.engine.submit(now.0, pool, &mut self.jobs);
        self.observer.passed(Stage::Engine);
    }

    /// Follows the published snapshot, at the cost of what changed: SAs that are gone leave, new
    /// ones come, records that changed replace their predecessors.
    fn adopt(&mut self, now: Now) {
        let old = self.reader.refresh();
        if old.is_none() && self.unclaimed.is_empty() {
            return;
        }
        self.settled.took_over(self.reader.generation(), &self.engine, None);
        let Self { config, reader, engine, sas, watch, unclaimed, ivs, hints, .. } = self;
        let Self { keepalives, dummies, peers, .. } = self;
        hints.grow(reader.snapshot().len().0);
        hints.forget();
        // All that goes, goes first: a record that takes over a key finds it free.
        if let Some(old) = old {
            reader.snapshot().outbound_changes(&old, |slot, wanted| {
                // Another worker's are let go below: here no record is touched.
                let there = sas.get(slot).map(|sa| &sa.spec);
                let stays = there.zip(wanted).is_some_and(|(a, b)| Arc::ptr_eq(a, b));
                if !stays && let Some(sa) = sas.get(slot) {
                    engine.remove(KeyId(slot));
                    peers.remove(slot, sa);
                    sas.remove(slot);
                    keepalives.remove(slot);
                    dummies.remove(slot);
                }
                if !stays && wanted.is_some() {
                    unclaimed.push(slot);
                }
            });
            unclaimed.sort_unstable();
            unclaimed.dedup();
        }
        let record = |slot: u32| reader.snapshot().outbound(SaSlot(slot));
        unclaimed.retain(|slot| {
            // Where many come they mostly lie in a row, but not what they are made of.
            record(slot.saturating_add(2 * AHEAD))
                .inspect(|spec| prefetch_front::<HOT, _>(&***spec));
            record(slot.saturating_add(AHEAD)).inspect(|spec| spec.prefetch());
            let wanted = record(*slot).filter(|spec| spec.worker == config.worker);
            let Some(spec) = wanted else { return false };
            if !ivs.serve(spec.key.suite()) {
                return true;
            }
            let limits = SequenceLimits::new(spec.esn);
            let claim = SequenceCounter::claim(spec.lease.as_arc().clone(), SeqNum::new(1), limits);
            let Ok(sequence) = claim else { return true };
            let sequence = if spec.source_is_here { sequence } else { sequence.withheld() };
            engine.install(KeyId(*slot), EngineKey::Seal(spec.key.as_arc().clone()));
            Refusals::tell(engine, *slot, &spec.counters);
            // A suite that cannot be is refused when the snapshot is made.
            if let Some(sa) = OutboundSa::new(spec.clone(), sequence, now) {
                watch.add(*slot, &sa.meter);
                peers.add(*slot, &sa);
                if let Some(interval) = spec.keepalive_every() {
                    keepalives.add(*slot, interval, now);
                }
                if let Some(interval) = spec.dummy_every() {
                    dummies.add(*slot, interval, now);
                }
                sas.insert(*slot, sa);
            }
            false
        });
    }
}

/// Moves packets from one burst to another, as many as fit.
fn move_frames(from: &mut Burst, to: &mut Burst) {
    let n = from.len().min(to.room());
    for frame in from.drain_front(n) {
        // Dropping a frame that does not fit would be a counted leak; room was checked.
        drop(to.push(frame));
    }
}
