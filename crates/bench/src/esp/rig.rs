//! Generator → outbound → fault injector → inbound → sink, on one thread and in memory.

use std::sync::Arc;
use std::time::Instant;

use convoy_crypto::{Suite, time_stamp};
use convoy_engine::Front;
use convoy_io::fault::{Faults, Faulty};
use convoy_io::mem::{self, MemPort};
use convoy_io::{IoError, Port};
use convoy_ipsec::clock::Now;
use convoy_ipsec::pipeline::{
    HandOff, Inbound, Outbound, PipelineConfig, PipelineParts, WorkerCounters,
};
use convoy_ipsec::sa::WorkerId;
use convoy_packet::{Arena, ArenaError, BURST_MAX, Burst, FrameSize, Pool};
use convoy_runtime::StartError;

use super::books::Books;
use super::site::{Shape, Site, SiteError};
use super::stages::{Cycles, Watch};
use super::traffic::{Ledger, PACKET_MAX, PACKET_MIN, Traffic};
use crate::maker::Maker;
use crate::mix::Sizes;

/// Frames of the arena: some bursts on their way, and what pools keep.
const FRAMES: u32 = 4096;
/// Packets that the wire with the fault injector holds: two bursts, each doubled.
const WIRE_DEPTH: usize = 4 * BURST_MAX;
/// Both gateways forward: the sender's and the receiver's count the TTL down.
const HOPS: u8 = 2;

/// Traffic to send through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Task {
    /// The suite of all SAs.
    pub suite: Suite,
    /// Bytes of inner packets.
    pub sizes: Sizes,
    /// SAs, policies and flows.
    pub shape: Shape,
    /// Faults on the wire, if any.
    pub faults: Option<Faults>,
    /// Packets of a burst, 1 to 256.
    pub burst: usize,
}

/// A task could not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RigError {
    /// SAs and policies.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// No memory for frames.
    #[error(transparent)]
    Arena(#[from] ArenaError),
    /// A wire in memory broke, which cannot happen.
    #[error(transparent)]
    Wire(#[from] IoError),
    /// The workers did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Packets too small to be known again, or too large.
    #[error("inner packets must have {PACKET_MIN} to {PACKET_MAX} bytes, not {0}")]
    Size(usize),
    /// The burst's size.
    #[error("a burst has 1 to {BURST_MAX} packets, not {0}")]
    Burst(usize),
    /// A frame was missing, or a packet did not come out as it should.
    #[error("{0}")]
    Broken(&'static str),
}

/// A wire that loses, doubles, reorders and damages packets.
#[derive(Debug)]
struct Injector {
    near: Faulty<MemPort>,
    far: MemPort,
}

/// Cycles that a pipeline took, and packets that it took them for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Cycles of the time-stamp counter.
    pub cycles: u64,
    /// Packets.
    pub packets: usize,
}

impl Spent {
    /// Cycles per packet.
    #[must_use]
    pub fn each(self) -> f64 {
        self.cycles as f64 / self.packets.max(1) as f64
    }
}

/// Cycles and packets of one burst.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lap {
    /// The outbound pipeline's.
    pub outbound: Spent,
    /// The inbound pipeline's.
    pub inbound: Spent,
    /// Cycles of the outbound stages, if somebody looks.
    pub outbound_stages: Option<Cycles>,
    /// Cycles of the inbound stages.
    pub inbound_stages: Option<Cycles>,
}

/// Two gateways back to back, and who watches them.
#[derive(Debug)]
pub struct Rig<W: Watch = ()> {
    /// SAs and policies.
    pub site: Site,
    /// The packets.
    pub traffic: Traffic,
    arena: &'static Arena,
    pool: Pool,
    left: Outbound<W>,
    right: Inbound<W>,
    left_counters: Arc<WorkerCounters>,
    right_counters: Arc<WorkerCounters>,
    handoff: HandOff,
    injector: Option<Injector>,
    plain: Burst,
    wire: Burst,
    out: Burst,
    ledger: Ledger,
    sent_bytes: u64,
    received_bytes: u64,
    offered: u64,
    since: Instant,
}

impl<W: Watch> Rig<W> {
    /// Sets everything up for `task`, with keys and engines of `maker`.
    ///
    /// # Errors
    /// [`RigError`].
    pub fn new(maker: &Maker, task: &Task) -> Result<Self, RigError> {
        if !(1..=BURST_MAX).contains(&task.burst) {
            return Err(RigError::Burst(task.burst));
        }
        let traffic = Traffic::new(task.shape, task.sizes, task.burst);
        let wrong = |len: &&usize| !(PACKET_MIN..=PACKET_MAX).contains(*len);
        if let Some(len) = traffic.lengths().iter().find(wrong) {
            return Err(RigError::Size(*len));
        }
        let site = Site::new(maker, task.suite, task.shape)?;
        let longest = traffic.lengths().iter().copied().max().unwrap_or(PACKET_MAX);
        let arena = Arena::map(FRAMES, FrameSize::for_packet(longest))?;
        let (left, right) = (parts(&site, maker.engine()), parts(&site, maker.engine()));
        let injector = task.faults.map(|faults| {
            let (near, far) = mem::pair(&mem::Config { depth: WIRE_DEPTH, ..Default::default() });
            Injector { near: Faulty::new(near, 13, Faults::default(), faults), far }
        });
        Ok(Self {
            traffic,
            arena,
            pool: arena.pool(),
            left_counters: left.counters.clone(),
            right_counters: right.counters.clone(),
            left: Outbound::with_observer(left, W::default()),
            right: Inbound::with_observer(right, W::default()),
            handoff: HandOff::new(1),
            injector,
            plain: Burst::new(),
            wire: Burst::new(),
            out: Burst::new(),
            ledger: Ledger::default(),
            sent_bytes: 0,
            received_bytes: 0,
            offered: 0,
            since: Instant::now(),
            site,
        })
    }

    /// The worker's pool.
    pub fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// Packets sent so far.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.ledger.sent()
    }

    /// Sends burst number `burst` all the way.
    ///
    /// # Errors
    /// [`RigError`] when packets do not move, which is a defect.
    pub fn lap(&mut self, burst: u64) -> Result<Lap, RigError> {
        self.generate(burst)?;
        let now = Now(self.since.elapsed().as_nanos() as u64);
        let outbound = Spent { cycles: 0, packets: self.plain.len() };
        let mut lap = Lap { outbound, ..Lap::default() };
        self.left.observer_mut().start();
        lap.outbound.cycles = self.outbound_pipeline(now);
        lap.outbound_stages = self.left.observer_mut().take();
        if !self.plain.is_empty() || !self.out.is_empty() || self.left.in_flight() > 0 {
            return Err(RigError::Broken("the outbound pipeline did not take a whole burst"));
        }
        match self.injector.is_some() {
            false => self.receive(now, &mut lap)?,
            true => {
                self.inject(now, &mut lap)?;
            }
        }
        lap.inbound_stages = self.right.observer_mut().take();
        Ok(lap)
    }

    /// Protects the burst of inner packets, in cycles. A function of its own, so that its instructions can be counted.
    #[inline(never)]
    fn outbound_pipeline(&mut self, now: Now) -> u64 {
        let start = time_stamp();
        self.left.submit(now, &mut self.pool, &mut self.plain, &mut self.handoff);
        self.left.collect(now, &mut self.pool, &mut self.wire, &mut self.out);
        time_stamp() - start
    }

    /// Opens what is on the wire, in cycles.
    #[inline(never)]
    fn inbound_pipeline(&mut self, now: Now) -> u64 {
        let start = time_stamp();
        self.right.submit(now, &mut self.pool, &mut self.wire, &mut self.handoff);
        self.right.collect(now, &mut self.pool, &mut self.out);
        time_stamp() - start
    }

    fn generate(&mut self, burst: u64) -> Result<(), RigError> {
        for (at, flow) in self.traffic.flows(burst).enumerate() {
            let Some(&len) = self.traffic.lengths().get(at) else { break };
            let Some(mut frame) = self.pool.alloc() else {
                return Err(RigError::Broken("no frame is free: some were not given back"));
            };
            let number = self.ledger.send();
            let written = self.traffic.write(&mut frame, flow, number, len);
            self.sent_bytes += len as u64;
            if let (false, _) | (true, Err(_)) = (written, self.plain.push(frame)) {
                return Err(RigError::Broken("a packet does not fit its frame or the burst"));
            }
        }
        Ok(())
    }

    /// Sends the wire's burst through the injector and receives what comes out of it.
    fn inject(&mut self, now: Now, lap: &mut Lap) -> Result<(), RigError> {
        let Some(injector) = &mut self.injector else { return Ok(()) };
        injector.near.tx(&mut self.pool, &mut self.wire)?;
        while let Some(injector) = &mut self.injector
            && injector.far.rx(&mut self.pool, &mut self.wire)? > 0
        {
            self.receive(now, lap)?;
        }
        Ok(())
    }

    /// Opens what is on the wire and takes it to the sink.
    fn receive(&mut self, now: Now, lap: &mut Lap) -> Result<(), RigError> {
        let packets = self.wire.len();
        self.offered += packets as u64;
        self.right.observer_mut().start();
        lap.inbound.cycles += self.inbound_pipeline(now);
        lap.inbound.packets += packets;
        if !self.wire.is_empty() || self.right.in_flight() > 0 {
            return Err(RigError::Broken("the inbound pipeline did not take a whole burst"));
        }
        for frame in self.out.drain() {
            self.received_bytes += frame.len() as u64;
            self.ledger.receive(self.traffic.recognise(frame.data(), HOPS));
            self.pool.free(frame);
        }
        Ok(())
    }

    /// Ends the traffic, gives everything back and closes the books.
    ///
    /// # Errors
    /// [`RigError`] as for [`Self::lap`].
    pub fn finish(mut self) -> Result<Books, RigError> {
        // An empty burst tells the injector that nothing more will overtake what it keeps back.
        let now = Now(self.since.elapsed().as_nanos() as u64);
        self.inject(now, &mut Lap::default())?;
        self.left.release(now, &mut self.pool);
        self.right.release(now, &mut self.pool);
        let faults = self.injector.as_ref().map(|injector| injector.near.tx_faults());
        let drops = |counters: &WorkerCounters| {
            let dropped = counters.drops.iter().filter(|(_, n)| *n > 0);
            dropped.map(|(reason, n)| (reason.name(), n)).collect()
        };
        let books = Books {
            sent: self.ledger.sent(),
            sent_bytes: self.sent_bytes,
            refused: drops(&self.left_counters),
            protected: self.left_counters.outbound_packets.get(),
            protected_bytes: self.left_counters.outbound_bytes.get(),
            faults: faults.map(Into::into),
            offered: self.offered,
            dropped: drops(&self.right_counters),
            accepted: self.right_counters.inbound_packets.get(),
            accepted_bytes: self.right_counters.inbound_bytes.get(),
            received: self.ledger.received(),
            received_bytes: self.received_bytes,
            missing: self.ledger.missing(),
            strange: self.ledger.strange(),
            outbound_sas: self.site.outbound.iter().map(|sa| &*sa.counters).collect(),
            inbound_sas: self.site.inbound.iter().map(|sa| &*sa.counters).collect(),
            frames_lost: 0,
        };
        let arena = self.arena;
        drop(self);
        let frames_lost = u64::from(arena.frames()).saturating_sub(arena.in_depot() as u64);
        Ok(Books { frames_lost: frames_lost + arena.leaked(), ..books })
    }
}

fn parts(site: &Site, engine: Front) -> PipelineParts {
    PipelineParts {
        config: PipelineConfig {
            worker: WorkerId(0),
            decrement_ttl: true,
            udp6_checksum: true,
            icmp_source_v4: None,
            icmp_source_v6: None,
        },
        reader: site.published.reader(),
        engine,
        counters: Arc::default(),
    }
}
