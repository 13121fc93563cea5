//! One worker: the loop rx → pipeline → tx, in both directions.
//!
//! ```text
//!            ┌─ rings to and from other workers ─┐
//! plain rx ──┴─► outbound.submit ► collect ──────┼─► wire tx
//!                  ▲ from tunnel to tunnel      │
//! plain tx ◄──── inbound.collect ◄ submit ◄──────┴── wire rx
//! ```
//!
//! A [`Worker`] is driven one [`turn`](Worker::turn) at a time: by its own thread
//! ([`Runtime`](crate::Runtime)), or by hand in tests and offline runs. After it was made, a turn
//! allocates nothing, takes no lock and writes no log.

mod reports;
mod traffic;

use core::fmt;
use std::sync::Arc;
use std::time::Duration;

use convoy_engine::front::{Sharing, WorkerLoad};
use convoy_io::{IoError, PortCounters};
use convoy_ipsec::clock::Now;
use convoy_ipsec::pipeline::{HandOff, Inbound, Outbound, PipelineConfig, PipelineParts};
use convoy_ipsec::sa::WorkerId;
use convoy_ipsec::snapshot::Published;
use convoy_ipsec::spd::SpdId;
use convoy_packet::{Arena, Burst, Pool};

use crate::clock::now;
use crate::events::Teller;
use crate::links::{Links, Side};
use crate::plain::Plain;
use crate::pool::Helper;
use crate::ports::{Source, WorkerPorts};
use crate::stats::WorkerStats;
use crate::wiring::{Orders, SPARE, Wire, WirePlace};
use crate::{EngineChoice, StartError, Waker};

/// Turns between publications of port counters.
const PUBLISH_TURNS: u32 = 64;
/// Nanoseconds between looks at keepalive timers and lifetimes.
const TICK_NS: u64 = 500_000_000;
/// Nanoseconds for which a worker that has helped another one stays awake to help again.
const LINGER_NS: u64 = 200_000;
/// Nanoseconds that an engine has at the end for giving back what it holds.
const LETTING_GO_NS: u64 = 500_000_000;
/// The pause between two questions whether it has.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Settings and memory that all workers of a gateway have in common.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// For every worker's pipelines; the worker's number in it is replaced.
    pub pipeline: PipelineConfig,
    /// The databases that decide about packets of the plain ports (RFC 4301 section 4.4.1): first that
    /// of [`WorkerPorts::plain`], then those of [`WorkerPorts::interfaces`].
    pub spds: Vec<SpdId>,
    /// Does the cryptography.
    pub engine: EngineChoice,
    /// Division of the work between workers and an engine.
    pub sharing: Sharing,
    /// Of about so many results of an engine, the worker computes one again and compares; 0: none.
    pub checks: u32,
    /// Memory that frames come from.
    pub arena: &'static Arena,
}

/// One worker with its pipelines and ports.
pub struct Worker {
    id: WorkerId,
    pool: Pool,
    outbound: Outbound,
    inbound: Inbound,
    plain: Plain,
    wire: Vec<Wire>,
    /// Counters of ports that left, by slot.
    counted: Box<[PortCounters]>,
    orders: Option<Orders>,
    /// Ports have come or gone since this was last asked.
    rewired: bool,
    links: Links,
    handoff_out: HandOff,
    handoff_in: HandOff,
    ring_out: Burst,
    ring_in: Burst,
    to_wire: Burst,
    to_plain: Burst,
    waker: Waker,
    helper: Option<Helper>,
    /// Until when it stays awake to help others.
    lingers: u64,
    teller: Option<Teller>,
    stats: Arc<WorkerStats>,
    receiving: bool,
    next_tick: u64,
    /// True if timers of idle SAs may be due.
    idle_sas_due: bool,
    unpublished: u32,
}

/// Connections of a worker with the others of its team.
struct Membership {
    /// Number of workers in the team.
    workers: u16,
    links: Links,
    waker: Waker,
    helper: Option<Helper>,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Worker {
    /// Makes one worker per entry of `ports`, joined by rings.
    ///
    /// # Errors
    /// [`StartError`] when there is no worker, there are too many, or the kernel has no
    /// descriptors left.
    pub fn team(
        surroundings: &Surroundings,
        ports: Vec<WorkerPorts>,
        published: &Arc<Published>,
    ) -> Result<Vec<Self>, StartError> {
        let n = u16::try_from(ports.len()).map_err(|_| StartError::Workers(ports.len()))?;
        if n == 0 {
            return Err(StartError::Workers(0));
        }
        let wakers: Result<Vec<_>, _> = ports.iter().map(|_| Waker::new()).collect();
        let wakers = wakers.map_err(StartError::Descriptor)?;
        let links = Links::mesh(&wakers);
        let engine = surroundings.engine.among(wakers.len());
        let mut sharing = surroundings.sharing;
        // Workers that help have work of their own.
        sharing.balance |= matches!(surroundings.engine, EngineChoice::Workers(_));
        let surroundings = &Surroundings { engine, sharing, ..surroundings.clone() };
        let helpers: Vec<_> =
            wakers.iter().map(|waker| surroundings.engine.helper(waker)).collect();
        let each = (0..n).zip(ports).zip(links.into_iter().zip(wakers.into_iter().zip(helpers)));
        Ok(each
            .map(|((id, ports), (links, (waker, helper)))| {
                let team = Membership { workers: n, links, waker, helper };
                Self::new(WorkerId(id), surroundings, ports, published, team)
            })
            .collect())
    }

    fn new(
        id: WorkerId,
        surroundings: &Surroundings,
        ports: WorkerPorts,
        published: &Arc<Published>,
        team: Membership,
    ) -> Self {
        let Membership { workers, links, waker, helper } = team;
        let slots = ports.wire.len() + SPARE;
        let stats = Arc::new(WorkerStats::new(id, slots));
        let load = WorkerLoad::default();
        let parts = || PipelineParts {
            config: PipelineConfig { worker: id, ..surroundings.pipeline.clone() },
            reader: published.reader(),
            engine: surroundings
                .engine
                .make(&waker)
                .sharing(surroundings.sharing, &load)
                .checking(surroundings.checks),
            counters: stats.pipeline.clone(),
        };
        let mut wire = Vec::with_capacity(slots);
        let first = ports.wire.into_iter().enumerate();
        wire.extend(first.map(|(slot, port)| Wire::new(slot, port, WirePlace::Last)));
        Self {
            id,
            pool: surroundings.arena.pool(),
            outbound: Outbound::new(parts()).with_spds(&surroundings.spds),
            inbound: Inbound::new(parts()).with_spds(&surroundings.spds),
            plain: Plain::new(ports.plain, ports.interfaces),
            wire,
            counted: vec![PortCounters::default(); slots].into(),
            orders: None,
            rewired: false,
            links,
            handoff_out: HandOff::new(workers),
            handoff_in: HandOff::new(workers),
            ring_out: Burst::new(),
            ring_in: Burst::new(),
            to_wire: Burst::new(),
            to_plain: Burst::new(),
            helper,
            lingers: 0,
            waker,
            teller: None,
            stats,
            receiving: true,
            next_tick: 0,
            idle_sas_due: false,
            unpublished: 0,
        }
    }

    /// Number of this worker.
    #[must_use]
    pub fn id(&self) -> WorkerId {
        self.id
    }

    /// Counters that it publishes.
    #[must_use]
    pub fn stats(&self) -> &Arc<WorkerStats> {
        &self.stats
    }

    /// Handle to wake it.
    #[must_use]
    pub fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Moves one burst per port and direction along and returns how many packets moved. 0 means
    /// that there was nothing to do.
    ///
    /// # Errors
    /// [`IoError::Dead`] when a port is of no more use.
    pub fn turn(&mut self, now: Now) -> Result<usize, IoError> {
        let mut moved = 0;
        if self.has_orders() {
            self.rewire();
        }
        if self.receiving {
            moved += self.plain.rx(&mut self.pool)?;
        }
        if self.plain.lost_one() {
            // Before the next sleep its descriptor is not waited for any more.
            self.rewired = true;
        }
        moved += self.run_outbound(now)?;
        if self.receiving {
            for wire in self.wire.iter_mut().filter(|wire| !wire.leaving) {
                moved += wire.source.rx(&mut self.pool)?;
            }
        }
        moved += self.run_inbound(now)?;
        self.stats.saw(self.outbound.generation().min(self.inbound.generation()));
        self.news(now);
        if now.0 >= self.next_tick {
            self.next_tick = now.0 + TICK_NS;
            self.outbound.expire(now, &mut self.pool);
            self.inbound.expire(now, &mut self.pool);
            self.idle_sas_due = true;
        }
        if self.idle_sas_due {
            moved += self.send_for_idle_sas(now)?;
        }
        if self.outbound.has_news() || self.inbound.has_news() {
            self.tell();
        }
        self.unpublished += 1;
        if self.unpublished >= PUBLISH_TURNS || self.stats.is_asked() {
            self.publish();
        }
        if moved == 0 {
            moved = self.help(now);
        }
        Ok(moved)
    }

    /// Does what another worker has too much of, a request at a time.
    fn help(&mut self, now: Now) -> usize {
        let Some(helper) = &mut self.helper else { return 0 };
        let packets = helper.help();
        if packets > 0 {
            self.lingers = now.0.saturating_add(LINGER_NS);
            self.stats.helped.add(packets as u64);
        } else if now.0 >= self.lingers {
            self.lingers = 0;
        }
        packets
    }

    /// Says that the worker is about to sleep, or to wait for packets to gather.
    pub(crate) fn rests(&mut self) {
        self.outbound.rests();
        self.inbound.rests();
    }

    /// Has it take the newest snapshot before its next packet, now that it rested.
    pub(crate) fn rises(&mut self) {
        self.outbound.rises();
        self.inbound.rises();
    }

    pub(crate) fn tell_to(&mut self, teller: Teller) {
        self.teller = Some(teller);
    }

    /// Slots of the wire ports it was made with.
    pub(crate) fn wire_slots(&self) -> usize {
        self.counted.len() - SPARE
    }

    pub(crate) fn take_orders(&mut self, orders: Orders) {
        self.orders = Some(orders);
    }

    /// True if ports are to be added or removed.
    #[inline]
    fn has_orders(&self) -> bool {
        self.orders.as_ref().is_some_and(|orders| !orders.is_empty())
            || self.wire.iter().any(|wire| wire.leaving)
    }

    /// Adds and removes ports as control wants it; one whose packets still wait for room in the engine
    /// goes later.
    #[cold]
    fn rewire(&mut self) {
        let Some(mut orders) = self.orders.take() else { return };
        orders.follow(&mut self.wire);
        let is_done = |wire: &Wire| wire.leaving && wire.source.input.is_empty();
        while let Some(at) = self.wire.iter().position(is_done) {
            // What is counted so far stays in the sums when the slot gets another port.
            self.publish();
            let mut wire = self.wire.remove(at);
            if let Some(counted) = self.counted.get_mut(wire.slot) {
                *counted += wire.source.count().0;
            }
            wire.release(&mut self.pool);
            orders.retire(wire);
        }
        self.orders = Some(orders);
        self.rewired = true;
    }

    /// True if ports came or went since this was last asked.
    pub(crate) fn was_rewired(&mut self) -> bool {
        core::mem::take(&mut self.rewired)
    }

    /// Takes no more packets from the ports; what was taken goes its way.
    pub fn stop_receiving(&mut self) {
        self.receiving = false;
    }

    /// Packets taken and not yet given on: input that waits and jobs in flight.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.plain.left()
            + self.ring_out.len()
            + self.inbound_left()
            + self.outbound.in_flight()
            + self.inbound.in_flight()
    }

    /// True if packets wait for what the next snapshot may bring.
    pub(crate) fn waits_for_sas(&self) -> bool {
        self.outbound.waits_for_sas()
    }

    /// True if nothing is under way in this worker or in a ring to it.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.pending() == 0 && self.links.is_empty()
    }

    /// True if sleeping is possible: nothing to do, or nothing but to wait for an engine that wakes this
    /// worker, and every port said so.
    pub(crate) fn may_sleep(&self) -> bool {
        self.pending() == self.outbound.with_engine() + self.inbound.with_engine()
            && self.links.is_empty()
            && self.lingers == 0
            && !self.helper.as_ref().is_some_and(Helper::sees_work)
            && !self.has_orders()
            && !self.stats.is_asked()
            && self.sources().all(|source| source.is_polled() || source.is_idle())
    }

    /// Time at which an engine must be looked at though it did not wake this worker, in nanoseconds of its clock.
    pub(crate) fn wake_at(&self) -> Option<u64> {
        let times = [self.outbound.engine().wake_at(), self.inbound.engine().wake_at()];
        times.into_iter().flatten().min()
    }

    /// All ports, the plain ones first.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &Source> {
        self.plain.sources().chain(self.wire.iter().map(|wire| &wire.source))
    }

    /// The kernel signalled port number `n` of [`Self::sources`].
    pub(crate) fn signalled(&mut self, n: usize) {
        let source = match self.plain.source(n) {
            Ok(source) => Some(source),
            Err(n) => self.wire.get_mut(n).map(|wire| &mut wire.source),
        };
        if let Some(source) = source {
            source.signalled();
        }
    }
}

impl Worker {
    /// Takes back what the engines hold, for as long as it is reasonable to wait for a device.
    fn release_pipelines(&mut self) {
        let until = now().0.saturating_add(LETTING_GO_NS);
        loop {
            let held = self.outbound.release(now(), &mut self.pool)
                + self.inbound.release(now(), &mut self.pool);
            if held == 0 {
                return;
            }
            if now().0 >= until {
                let worker = self.id.0;
                tracing::error!(
                    "worker {worker}: the crypto engine did not return {held} requests at the end; their \
                     packets are lost"
                );
                return;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

impl Drop for Worker {
    /// Gives back every frame at hand, also when a port died or the worker panicked.
    fn drop(&mut self) {
        self.publish();
        loop {
            let n = self.links.pop(Side::Outbound, &mut self.ring_out)
                + self.links.pop(Side::Inbound, &mut self.ring_in);
            self.ring_out.release(&mut self.pool);
            self.ring_in.release(&mut self.pool);
            if n == 0 {
                break;
            }
        }
        self.release_pipelines();
        self.plain.release(&mut self.pool);
        for burst in [&mut self.to_wire, &mut self.to_plain] {
            burst.release(&mut self.pool);
        }
        self.wire.iter_mut().for_each(|wire| wire.release(&mut self.pool));
    }
}
