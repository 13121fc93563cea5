//! Wire ports that come and go while workers run.
//!
//! Control makes the ports, hands one to each worker through a ring, and gets back what the workers let
//! go of through another. So a worker's turn neither opens, closes nor allocates anything.

use core::fmt;
use core::net::IpAddr;
use core::time::Duration;
use std::thread;
use std::time::Instant;

use convoy_packet::{Burst, Pool};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::ports::{Source, WireMatch, is_from};
use crate::{Waker, WirePort, Worker};

/// Number of sets of wire ports that may be added to those that workers were made with.
pub(crate) const SPARE: usize = 64;

/// Place of a worker's wire port among the others, which are asked in their order for each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WirePlace {
    /// Ahead of all that are there.
    First,
    /// Behind all that are there.
    Last,
    /// Ahead of all that are there, for packets with this outer source address alone.
    OfSource(IpAddr),
}

impl WirePlace {
    #[inline]
    fn fits(self, packet: &[u8]) -> bool {
        match self {
            Self::First | Self::Last => true,
            Self::OfSource(from) => is_from(packet, from),
        }
    }
}

/// A wire port and the packets on their way to it.
#[derive(Debug)]
pub(crate) struct Wire {
    /// Place in the published counters that is its own.
    pub(crate) slot: usize,
    carries: WireMatch,
    place: WirePlace,
    pub(crate) source: Source,
    pub(crate) output: Burst,
    /// To be taken out as soon as what it received is in the pipeline; takes no more packets.
    pub(crate) leaving: bool,
}

impl Wire {
    pub(crate) fn new(slot: usize, port: WirePort, place: WirePlace) -> Self {
        Self {
            slot,
            carries: port.carries,
            place,
            source: Source::new(port.port),
            output: Burst::new(),
            leaving: false,
        }
    }

    /// True if a packet goes this way.
    #[inline]
    pub(crate) fn takes(&mut self, packet: &[u8]) -> bool {
        self.carries.takes(packet) && self.place.fits(packet) && self.source.port.can_send(packet)
    }

    /// Gives back the frames at hand.
    pub(crate) fn release(&mut self, pool: &mut Pool) {
        self.source.input.release(pool);
        self.output.release(pool);
    }
}

/// Change that control wants of a worker.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a worker would have to free a box")]
enum Order {
    Add(Wire),
    /// The port of this slot.
    Remove(usize),
}

/// A worker's end.
#[derive(Debug)]
pub(crate) struct Orders {
    orders: Consumer<Order>,
    retired: Producer<Wire>,
}

impl Orders {
    /// True if control wants nothing.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.orders.is_empty()
    }

    /// Changes `wires` as ordered.
    pub(crate) fn follow(&mut self, wires: &mut Vec<Wire>) {
        while let Ok(order) = self.orders.pop() {
            match order {
                Order::Add(wire) => {
                    // There is room: control counts.
                    let at = if wire.place == WirePlace::Last { wires.len() } else { 0 };
                    wires.insert(at, wire);
                }
                Order::Remove(slot) => {
                    wires.iter_mut().filter(|w| w.slot == slot).for_each(|w| w.leaving = true);
                }
            }
        }
    }

    /// Gives a port back to control, which closes it.
    pub(crate) fn retire(&mut self, wire: Wire) {
        // There is room for all that there are. Were there none, the port would be closed here.
        let _ = self.retired.push(wire);
    }
}

/// Control's ends to one worker.
#[derive(Debug)]
struct Line {
    orders: Producer<Order>,
    retired: Consumer<Wire>,
    waker: Waker,
    /// Slots of ports that this worker has, or will have.
    held: Vec<usize>,
}

/// A set of wire ports, one per worker, that was added to running workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WireId {
    slot: usize,
    number: u64,
}

/// Wire ports cannot be added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WiringError {
    /// There must be one port per worker.
    #[error("{ports} wire port(s) for {workers} worker(s): each worker needs one")]
    Count {
        /// Ports given.
        ports: usize,
        /// Workers there are.
        workers: usize,
    },
    /// So many sets are there already, or not yet closed.
    #[error("no more than {SPARE} sets of wire ports can be added")]
    Full,
    /// It was removed before.
    #[error("no such set of wire ports")]
    Unknown,
}

/// Adds wire ports to running workers and removes them again.
pub struct Wiring {
    lines: Vec<Line>,
    /// Number of what is open in each slot above `base`.
    open: Vec<Option<u64>>,
    /// Ports that workers were made with.
    base: usize,
    made: u64,
}

impl fmt::Debug for Wiring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wiring").field("open", &self.len()).finish_non_exhaustive()
    }
}

impl Wiring {
    /// Directs workers from now on: all of one team, which no other caller directs.
    pub fn of(workers: &mut [Worker]) -> Self {
        let base = workers.iter().map(Worker::wire_slots).max().unwrap_or(0);
        let lines = workers.iter_mut().map(|worker| {
            // Each set is added once and removed once before its slot is used again.
            let (orders, theirs) = RingBuffer::new(2 * SPARE);
            let (retiring, retired) = RingBuffer::new(SPARE);
            worker.take_orders(Orders { orders: theirs, retired: retiring });
            Line { orders, retired, waker: worker.waker().clone(), held: Vec::new() }
        });
        Self { lines: lines.collect(), open: vec![None; SPARE], base, made: 0 }
    }

    /// Adds a port to each worker, the first to the first. The workers have them with their next turn,
    /// to which they are woken.
    ///
    /// # Errors
    /// [`WiringError::Count`] or [`WiringError::Full`]; the ports are closed then.
    pub fn add(&mut self, ports: Vec<WirePort>, place: WirePlace) -> Result<WireId, WiringError> {
        self.collect();
        if ports.len() != self.lines.len() {
            return Err(WiringError::Count { ports: ports.len(), workers: self.lines.len() });
        }
        let is_free = |slot: usize| self.lines.iter().all(|line| !line.held.contains(&slot));
        let mut slots = self.base..self.base + SPARE;
        let slot = slots.find(|slot| is_free(*slot)).ok_or(WiringError::Full)?;
        for (line, port) in self.lines.iter_mut().zip(ports) {
            // There is room for every slot's orders. A worker that ended needs no ports.
            if line.orders.push(Order::Add(Wire::new(slot, port, place))).is_ok() {
                line.held.push(slot);
                line.waker.wake();
            }
        }
        self.made += 1;
        if let Some(place) = self.open.get_mut(slot - self.base) {
            *place = Some(self.made);
        }
        Ok(WireId { slot, number: self.made })
    }

    /// Removes a set of ports. What workers had received from them goes its way first. Waits at most `limit` for the
    /// workers to let go of them, and tells whether all are closed; if not, a later
    /// [`collect`](Self::collect) closes the rest.
    ///
    /// # Errors
    /// [`WiringError::Unknown`].
    pub fn remove(&mut self, id: WireId, limit: Duration) -> Result<bool, WiringError> {
        let place = id.slot.checked_sub(self.base).and_then(|n| self.open.get_mut(n));
        let open = place.filter(|open| **open == Some(id.number)).ok_or(WiringError::Unknown)?;
        *open = None;
        for line in self.lines.iter_mut().filter(|line| line.held.contains(&id.slot)) {
            // As above.
            let _ = line.orders.push(Order::Remove(id.slot));
            line.waker.wake();
        }
        let begin = Instant::now();
        loop {
            self.collect();
            let held = self.lines.iter().any(|line| line.held.contains(&id.slot));
            if !held || begin.elapsed() >= limit {
                return Ok(!held);
            }
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// Closes the ports that workers have let go of.
    pub fn collect(&mut self) {
        for line in &mut self.lines {
            while let Ok(wire) = line.retired.pop() {
                line.held.retain(|slot| *slot != wire.slot);
            }
            if line.retired.is_abandoned() {
                // The worker ended, and closed all it had.
                line.held.clear();
            }
        }
    }

    /// Number of sets of ports that were added and not removed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.open.iter().flatten().count()
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
