//! Generator that offers packets at even spaces, and takes and checks those that come out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use convoy_crypto::time_stamp;
use convoy_io::mem::MemPort;
use convoy_io::{IoError, Port, PortCounters};
use convoy_packet::{Burst, Frame, Pool};

use super::search::{RING, lost};
use super::watch::Disturbance;
use crate::esp::rig::RigError;
use crate::esp::traffic::{Ledger, Traffic};
use crate::mix::Numbers;

/// ESP packets that are kept between protecting and opening: as many as may wait in a ring and an engine while the
/// other direction goes on, and some.
pub const DELAY: usize = 8192;
/// Packets under way in each direction while no pace is kept.
const WINDOW: u64 = 1024;
/// Packets that are offered before the sinks are looked at.
const AT_ONCE: u64 = 32;
/// Packets that may be due and not yet offered: a quarter of both rings.
const LATE: u64 = RING as u64 / 2;
/// Packets that tell how fast the worker is, and how long they may take.
const ENOUGH: u64 = 4 * WINDOW;
const TURNS: Duration = Duration::from_secs(2);
/// Time in which packets under way must come to their end.
const PATIENCE: Duration = Duration::from_secs(10);
/// Error when they do not.
const STUCK: &str = "packets did not come out of the worker";
/// Both ways through the gateway count the TTL down.
const HOPS: u8 = 2;
/// Packets whose times are remembered; as many as a [`Ledger`] keeps in sight.
const SIGHT: usize = 1 << 16;

/// Worker's end of a ring: inner packets go in and opened ones come out, or ESP packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingSide {
    /// Inner packets in, to be protected.
    Plain,
    /// ESP packets in, to be opened.
    Wire,
}

/// Counters that the worker's end of a ring shows the generator.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Told {
    /// Packets that the worker took.
    taken: AtomicU64,
    /// Packets that found no room on their way out.
    spilt: AtomicU64,
}

/// The worker's end of a ring. It tells how far the worker is.
#[derive(Debug)]
pub struct Near {
    port: MemPort,
    told: Arc<Told>,
}

impl Near {
    /// Wraps the worker's port.
    #[must_use]
    pub fn new(port: MemPort) -> Self {
        Self { port, told: Arc::default() }
    }

    /// Counters of this end.
    #[must_use]
    pub fn told(&self) -> Arc<Told> {
        self.told.clone()
    }
}

impl Port for Near {
    fn rx(&mut self, pool: &mut Pool, into: &mut Burst) -> Result<usize, IoError> {
        let received = self.port.rx(pool, into)?;
        if received > 0 {
            self.told.taken.store(self.port.counters().rx_packets, Ordering::Relaxed);
        }
        Ok(received)
    }

    fn tx(&mut self, pool: &mut Pool, from: &mut Burst) -> Result<(), IoError> {
        self.port.tx(pool, from)?;
        let spilt = self.port.counters().tx_would_block;
        if spilt > 0 {
            self.told.spilt.store(spilt, Ordering::Relaxed);
        }
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.port.counters()
    }
}

/// The generator's end of a ring, with the counters of the worker's end.
#[derive(Debug)]
pub struct RingEnd {
    /// The end.
    pub port: MemPort,
    /// Counters of the worker's end.
    pub told: Arc<Told>,
}

/// The generator's end of a ring, and what went over it.
#[derive(Debug)]
struct Far {
    port: MemPort,
    told: Arc<Told>,
    /// Packets that found room.
    accepted: u64,
    /// Packets that found none.
    dropped: u64,
    /// Packets of this direction that came out of the worker.
    seen: u64,
}

impl Far {
    fn new(end: RingEnd) -> Self {
        let RingEnd { port, told } = end;
        Self { port, told, accepted: 0, dropped: 0, seen: 0 }
    }

    /// Puts a packet into the ring; says whether there was room.
    fn offer(&mut self, pool: &mut Pool, one: &mut Burst, frame: Frame) -> Result<bool, RigError> {
        // There is room: the burst is empty.
        drop(one.push(frame));
        self.port.tx(pool, one)?;
        let dropped = self.port.counters().tx_would_block;
        let found_room = dropped == self.dropped;
        self.accepted += u64::from(found_room);
        self.dropped = dropped;
        Ok(found_room)
    }

    /// Packets in the ring.
    fn waiting(&self) -> u64 {
        self.accepted - self.told.taken.load(Ordering::Relaxed)
    }
}

/// Result of offering packets at a pace.
#[derive(Clone, Debug)]
pub struct Offered {
    /// Packets offered, both directions together.
    pub packets: u64,
    /// Of these, lost.
    pub lost: u64,
    /// Cause for which it says nothing, such as a generator that was late.
    pub disturbance: Option<Disturbance>,
}

/// Counts of the generator until its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// Inner packets made.
    pub sent: u64,
    /// Packets that found a ring in front of the worker full.
    pub dropped: u64,
    /// Packets that found a ring behind the worker full.
    pub spilt: u64,
    /// Packets that came back as they were sent, each once.
    pub received: u64,
    /// Packets that never came back.
    pub missing: u64,
    /// Packets that came twice, or as nobody sent them.
    pub strange: u64,
}

impl Books {
    /// Describes counts that do not add up; none when every packet is accounted for.
    #[must_use]
    pub fn error(&self) -> Option<String> {
        let Self { sent, dropped, spilt, received, missing, strange } = *self;
        let adds_up = received + missing == sent && missing == dropped + spilt && strange == 0;
        (!adds_up).then(|| {
            format!(
                "{sent} packets sent, {received} came back; {missing} did not, but rings lost {dropped} \
                 and {spilt}; {strange} twice or changed"
            )
        })
    }
}

/// Offers packets, takes what comes out and checks it.
#[derive(Debug)]
pub struct Generator {
    pool: Pool,
    plain: Far,
    wire: Far,
    traffic: Traffic,
    size: usize,
    flows: usize,
    numbers: Numbers,
    /// Inner packets, from being made to coming back.
    ledger: Ledger,
    /// Packets to protect, by their place in the order, which is their sequence number less 1.
    sealing: Ledger,
    /// Number of the inner packet and time when it was due, by that place.
    sealed: Vec<(u64, u64)>,
    /// Due times of ESP packets, by the numbers of their inner packets.
    opening: Vec<u64>,
    /// ESP packets on their way from protecting to opening, with the numbers of their inner packets.
    delay: VecDeque<(Frame, u64)>,
    one: Burst,
    many: Burst,
}

impl Generator {
    /// Packets of `size` bytes over `flows` flows, through the far ends of two rings.
    #[must_use]
    pub fn new(
        pool: Pool,
        plain: RingEnd,
        wire: RingEnd,
        traffic: Traffic,
        size: usize,
        flows: usize,
    ) -> Self {
        Self {
            pool,
            plain: Far::new(plain),
            wire: Far::new(wire),
            traffic,
            size,
            flows,
            numbers: Numbers::new(21),
            ledger: Ledger::default(),
            sealing: Ledger::default(),
            sealed: vec![(0, 0); SIGHT],
            opening: vec![0; SIGHT],
            delay: VecDeque::with_capacity(2 * DELAY),
            one: Burst::new(),
            many: Burst::new(),
        }
    }

    /// Offers an inner packet that was due at `due`.
    fn offer_plain(&mut self, due: u64) -> Result<(), RigError> {
        let frame = self.pool.alloc();
        let mut frame =
            frame.ok_or(RigError::Broken("no frame is free: some were not given back"))?;
        let number = self.ledger.send();
        let flow = self.numbers.below(self.flows) as u32;
        if !self.traffic.write(&mut frame, flow, number, self.size) {
            return Err(RigError::Broken("a packet does not fit its frame"));
        }
        if self.plain.offer(&mut self.pool, &mut self.one, frame)? {
            let place = self.sealing.send();
            if let Some(sealed) = self.sealed.get_mut(place as usize % SIGHT) {
                *sealed = (number, due);
            }
        }
        Ok(())
    }

    /// Offers the ESP packet that has waited longest; says whether there was one.
    fn offer_wire(&mut self, due: u64) -> Result<bool, RigError> {
        let Some((frame, number)) = self.delay.pop_front() else { return Ok(false) };
        if let Some(opening) = self.opening.get_mut(number as usize % SIGHT) {
            *opening = due;
        }
        self.wire.offer(&mut self.pool, &mut self.one, frame)?;
        Ok(true)
    }

    /// Takes and checks what came out of the worker. `waited` is told how long packets took, in ticks.
    fn collect(&mut self, mut waited: impl FnMut(u64)) -> Result<(), RigError> {
        self.wire.port.rx(&mut self.pool, &mut self.many)?;
        let now = time_stamp();
        self.plain.seen += self.many.len() as u64;
        for frame in self.many.drain() {
            let place = sequence_number(frame.data()).and_then(|n| u64::from(n).checked_sub(1));
            let known = self.sealing.received();
            self.sealing.receive(place);
            let meant = place.and_then(|place| self.sealed.get(place as usize % SIGHT));
            match meant.filter(|_| self.sealing.received() > known) {
                Some(&(number, due)) => {
                    waited(now.saturating_sub(due));
                    self.delay.push_back((frame, number));
                }
                None => self.pool.free(frame),
            }
        }
        self.plain.port.rx(&mut self.pool, &mut self.many)?;
        let now = time_stamp();
        self.wire.seen += self.many.len() as u64;
        for frame in self.many.drain() {
            let number = self.traffic.recognise(frame.data(), HOPS);
            self.ledger.receive(number);
            let due = number.and_then(|number| self.opening.get(number as usize % SIGHT));
            due.into_iter().for_each(|due| waited(now.saturating_sub(*due)));
            self.pool.free(frame);
        }
        Ok(())
    }

    /// Packets of a direction that the worker, or a ring, holds.
    fn under_way(&self, way: RingSide) -> u64 {
        let far = match way {
            RingSide::Plain => &self.plain,
            RingSide::Wire => &self.wire,
        };
        // What spills behind the worker comes out at the other side.
        let spilt = match way {
            RingSide::Plain => &self.wire.told.spilt,
            RingSide::Wire => &self.plain.told.spilt,
        };
        (far.accepted - far.seen).saturating_sub(spilt.load(Ordering::Relaxed))
    }

    /// Lets packets flow into these sides as the worker takes them, until `done` says so.
    fn flow(
        &mut self,
        sides: &[RingSide],
        mut done: impl FnMut(&Self) -> bool,
    ) -> Result<(), RigError> {
        let [plain, wire] = [RingSide::Plain, RingSide::Wire].map(|side| sides.contains(&side));
        let begun = Instant::now();
        while !done(self) {
            for _ in 0..AT_ONCE {
                if plain && self.under_way(RingSide::Plain) < WINDOW {
                    self.offer_plain(0)?;
                }
                if wire && self.under_way(RingSide::Wire) < WINDOW {
                    self.offer_wire(0)?;
                }
            }
            self.collect(|_| {})?;
            if begun.elapsed() > PATIENCE {
                return Err(RigError::Broken(STUCK));
            }
        }
        Ok(())
    }

    /// Waits for all that is under way.
    fn drain(&mut self, mut waited: impl FnMut(u64)) -> Result<(), RigError> {
        let begun = Instant::now();
        while self.under_way(RingSide::Plain) + self.under_way(RingSide::Wire) > 0 {
            self.collect(&mut waited)?;
            if begun.elapsed() > PATIENCE {
                return Err(RigError::Broken(STUCK));
            }
        }
        Ok(())
    }

    /// Has so many ESP packets made that both directions can be offered.
    fn fill(&mut self) -> Result<(), RigError> {
        self.flow(&[RingSide::Plain], |all| {
            all.delay.len() + all.under_way(RingSide::Plain) as usize >= DELAY
        })?;
        self.drain(|_| {})
    }

    /// Packets a second that the worker passes when there are always some, both directions together.
    ///
    /// # Errors
    /// [`RigError`] when packets do not move, which is a defect.
    pub fn saturate(&mut self, time: Duration) -> Result<f64, RigError> {
        self.fill()?;
        let passed = |all: &Self| all.plain.seen + all.wire.seen;
        let (begun, before) = (Instant::now(), passed(self));
        // On a busy machine the worker may not have had its turn yet.
        let is_enough = |all: &Self| passed(all) >= before + ENOUGH || begun.elapsed() >= TURNS;
        self.flow(&[RingSide::Plain, RingSide::Wire], |all| {
            begun.elapsed() >= time && is_enough(all)
        })?;
        let rate = (passed(self) - before) as f64 / begun.elapsed().as_secs_f64();
        self.drain(|_| {})?;
        Ok(rate)
    }

    /// Offers `packets` packets, each `interval` ticks after the other, inner and ESP packets in turn. It ends early
    /// when too many are lost, or `go_on` says no. `waited` is told for each how long after it was due it came out, in ticks.
    ///
    /// # Errors
    /// [`RigError`] when packets do not move, which is a defect.
    pub fn offer(
        &mut self,
        packets: u64,
        interval: f64,
        go_on: &dyn Fn() -> bool,
        mut waited: impl FnMut(u64),
    ) -> Result<Offered, RigError> {
        self.fill()?;
        let [dropped_before, spilt_before] = [self.dropped(), self.spilt()];
        let (start, mut next, mut latest) = (time_stamp(), 0, 0);
        let too_many = (super::search::LOSS * packets as f64) as u64 + 1;
        let mut starved = false;
        while next < packets && self.dropped() - dropped_before < too_many && !starved && go_on() {
            let due = (time_stamp().saturating_sub(start) as f64 / interval) as u64 + 1;
            let late = due.min(packets) - next;
            latest = late.max(latest);
            if latest > LATE {
                break;
            }
            for _ in 0..late.min(AT_ONCE) {
                let due = start + (next as f64 * interval) as u64;
                if next % 2 == 0 {
                    self.offer_plain(due)?;
                } else {
                    starved |= !self.offer_wire(due)?;
                }
                next += 1;
            }
            self.collect(&mut waited)?;
        }
        let waiting = [self.plain.waiting(), self.wire.waiting()];
        let dropped = self.dropped() - dropped_before;
        self.drain(&mut waited)?;
        let spilt = self.spilt() - spilt_before;
        let mut lost = lost(dropped, waiting, packets);
        if starved {
            // The worker holds all of them back.
            lost = lost.max(too_many);
        }
        let disturbance = match () {
            () if latest > LATE => Some(Disturbance::Pace(latest)),
            () if spilt > 0 => Some(Disturbance::Sinks(spilt)),
            () => None,
        };
        Ok(Offered { packets: next, lost, disturbance })
    }

    fn dropped(&self) -> u64 {
        self.plain.dropped + self.wire.dropped
    }

    fn spilt(&self) -> u64 {
        let spilt = |far: &Far| far.told.spilt.load(Ordering::Relaxed);
        spilt(&self.plain) + spilt(&self.wire)
    }

    /// Has all ESP packets opened, and closes the books.
    ///
    /// # Errors
    /// [`RigError`] when packets do not move, which is a defect.
    pub fn end(mut self) -> Result<Books, RigError> {
        self.flow(&[RingSide::Wire], |all| all.delay.is_empty())?;
        self.drain(|_| {})?;
        Ok(Books {
            sent: self.ledger.sent(),
            dropped: self.dropped(),
            spilt: self.spilt(),
            received: self.ledger.received(),
            missing: self.ledger.missing(),
            strange: self.ledger.strange() + self.sealing.strange(),
        })
    }
}

/// The sequence number of an ESP packet in IPv4 without options (RFC 4303 section 2.2).
fn sequence_number(packet: &[u8]) -> Option<u32> {
    let is_esp = packet.first() == Some(&0x45) && packet.get(9) == Some(&50);
    packet.get(24..)?.first_chunk().filter(|_| is_esp).map(|bytes| u32::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_packet_too_many_or_too_few_shows() {
        let good =
            Books { sent: 100, dropped: 4, spilt: 1, received: 95, missing: 5, ..Books::default() };
        assert_eq!(good.error(), None);
        let wrong: [fn(&mut Books); 6] = [
            |books| books.sent += 1,
            |books| books.dropped -= 1,
            |books| books.spilt += 1,
            |books| books.received -= 1,
            |books| books.missing += 1,
            |books| books.strange += 1,
        ];
        for wrong in wrong {
            let mut books = good;
            wrong(&mut books);
            assert!(books.error().is_some(), "{books:?}");
        }
    }

    #[test]
    fn only_esp_has_a_sequence_number() {
        let mut packet = [0; 28];
        (packet[0], packet[9], packet[27]) = (0x45, 50, 7);
        assert_eq!(sequence_number(&packet), Some(7));
        assert_eq!(sequence_number(&packet[..27]), None);
        packet[9] = 17;
        assert_eq!(sequence_number(&packet), None);
    }
}
