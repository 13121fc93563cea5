//! A port that misbehaves on purpose, for tests.

use convoy_packet::{Burst, Frame, Pool};
use std::os::fd::BorrowedFd;

use crate::stash::Stash;
use crate::{IoError, Offloads, Port, PortCounters, PortEvent};

/// Most packets that one direction keeps back.
const HELD_MAX: usize = 64;
/// Packets of a burst, each doubled, and all that were kept back.
const READY_MAX: usize = 2 * convoy_packet::BURST_MAX + HELD_MAX;

/// Probability of each fault, between 0 (never) and 1 (always), for each packet on its own.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// The packet disappears.
    pub loss: f64,
    /// The packet comes twice.
    pub duplication: f64,
    /// The packet comes after some of those behind it.
    pub reordering: f64,
    /// Number of packets that may overtake a reordered one, 1…64.
    pub distance: u8,
    /// One bit of the packet is inverted.
    pub bit_flip: f64,
    /// The packet loses at least one byte at its end.
    pub truncation: f64,
}

/// Counts of packets, by what was done to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Packets seen.
    pub seen: u64,
    /// Packets that disappeared.
    pub lost: u64,
    /// Packets sent twice.
    pub duplicated: u64,
    /// Packets kept back to be overtaken.
    pub reordered: u64,
    /// Packets with an inverted bit.
    pub flipped: u64,
    /// Packets cut short.
    pub truncated: u64,
}

/// A port with faults in either direction. The same seed and traffic give the same faults.
#[derive(Debug)]
pub struct Faulty<P> {
    inner: P,
    rx: Channel,
    tx: Channel,
    scratch: Burst,
}

impl<P: Port> Faulty<P> {
    /// Wraps `inner`; `rx` faults strike received packets, `tx` faults those sent.
    pub fn new(inner: P, seed: u64, rx: Faults, tx: Faults) -> Self {
        Self {
            inner,
            rx: Channel::new(rx, seed),
            tx: Channel::new(tx, seed ^ 0x5bd1_e995_9c3c_6b7f),
            scratch: Burst::new(),
        }
    }

    /// Counts of faults in received packets.
    pub fn rx_faults(&self) -> FaultCounts {
        self.rx.counts
    }

    /// Counts of faults in sent packets.
    pub fn tx_faults(&self) -> FaultCounts {
        self.tx.counts
    }

    /// The port inside.
    pub fn inner(&self) -> &P {
        &self.inner
    }
}

impl<P: Port> Port for Faulty<P> {
    fn rx(&mut self, pool: &mut Pool, into: &mut Burst) -> Result<usize, IoError> {
        if self.rx.ready.is_empty() {
            self.inner.rx(pool, &mut self.scratch)?;
            if self.scratch.is_empty() {
                self.rx.release_held(pool);
            }
            self.scratch.drain().for_each(|frame| self.rx.strike(frame, pool));
        }
        Ok(self.rx.pour(into))
    }

    fn tx(&mut self, pool: &mut Pool, from: &mut Burst) -> Result<(), IoError> {
        let idle = from.is_empty();
        from.drain().for_each(|frame| self.tx.strike(frame, pool));
        if idle {
            self.tx.release_held(pool);
        }
        while self.tx.pour(&mut self.scratch) > 0 {
            self.inner.tx(pool, &mut self.scratch)?;
        }
        Ok(())
    }

    fn event(&mut self) -> Option<PortEvent> {
        self.inner.event()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.fd()
    }

    fn counters(&self) -> PortCounters {
        let mut counters = self.inner.counters();
        counters.fault_losses += self.rx.counts.lost + self.tx.counts.lost;
        counters
    }

    fn offloads(&self) -> Offloads {
        self.inner.offloads()
    }
}

/// One direction.
#[derive(Debug)]
struct Channel {
    faults: Faults,
    dice: Dice,
    counts: FaultCounts,
    /// Packets kept back; `overtakes` has, for each, how many may still pass it.
    held: Stash,
    overtakes: Vec<u8>,
    ready: Stash,
}

impl Channel {
    fn new(faults: Faults, seed: u64) -> Self {
        Self {
            faults,
            dice: Dice(seed),
            counts: FaultCounts::default(),
            held: Stash::new(HELD_MAX),
            overtakes: Vec::with_capacity(HELD_MAX),
            ready: Stash::new(READY_MAX),
        }
    }

    fn strike(&mut self, mut frame: Frame, pool: &mut Pool) {
        self.counts.seen += 1;
        if self.dice.chance(self.faults.loss) {
            self.counts.lost += 1;
            pool.free(frame);
            return self.age(pool);
        }
        if self.dice.chance(self.faults.bit_flip) && !frame.is_empty() {
            let bit = self.dice.below(frame.len() as u64 * 8);
            if let Some(byte) = frame.data_mut().get_mut((bit / 8) as usize) {
                *byte ^= 1 << (bit % 8);
                self.counts.flipped += 1;
            }
        }
        if self.dice.chance(self.faults.truncation) && !frame.is_empty() {
            let len = self.dice.below(frame.len() as u64) as usize;
            frame.truncate(len);
            self.counts.truncated += 1;
        }
        let copy = if self.dice.chance(self.faults.duplication) {
            pool.alloc().and_then(|mut copy| match copy.fill_from(frame.data()) {
                Ok(()) => Some(copy),
                Err(_) => {
                    pool.free(copy);
                    None
                }
            })
        } else {
            None
        };
        if self.dice.chance(self.faults.reordering) && !self.held.is_full() {
            let distance = u64::from(self.faults.distance.clamp(1, HELD_MAX as u8));
            self.overtakes.push(1 + self.dice.below(distance) as u8);
            self.held.push(frame, pool);
            self.counts.reordered += 1;
        } else {
            self.ready.push(frame, pool);
            self.age(pool);
        }
        if let Some(copy) = copy {
            self.counts.duplicated += 1;
            self.ready.push(copy, pool);
        }
    }

    /// One packet has gone by: those kept back long enough follow it.
    fn age(&mut self, pool: &mut Pool) {
        let mut at = 0;
        while let Some(left) = self.overtakes.get_mut(at) {
            *left = left.saturating_sub(1);
            if *left > 0 {
                at += 1;
                continue;
            }
            self.overtakes.remove(at);
            if let Some(frame) = self.held.take(at) {
                self.ready.push(frame, pool);
            }
        }
    }

    /// Traffic pauses: nothing more will overtake.
    fn release_held(&mut self, pool: &mut Pool) {
        self.overtakes.clear();
        while let Some(frame) = self.held.pop() {
            self.ready.push(frame, pool);
        }
    }

    fn pour(&mut self, into: &mut Burst) -> usize {
        let before = into.len();
        while !into.is_full() {
            let Some(frame) = self.ready.pop() else { break };
            let _ = into.push(frame);
        }
        into.len() - before
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): small, seeded, good enough to throw dice.
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 for `n` of 0.
    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    fn chance(&mut self, p: f64) -> bool {
        p > 0.0 && ((self.next() >> 11) as f64) < p * (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem;
    use convoy_packet::{Arena, FrameSize};

    /// Sends `n` packets, each holding its number, through a faulty port; returns what arrived.
    fn run(faults: Faults, n: u64, seed: u64) -> (Vec<Vec<u8>>, FaultCounts) {
        let arena = Arena::map(2048, FrameSize::for_packet(100)).unwrap();
        let mut pool = arena.pool();
        let (mut a, b) = mem::pair(&mem::Config::default());
        let mut b = Faulty::new(b, seed, faults, Faults::default());
        let (mut burst, mut got) = (Burst::new(), Vec::new());
        let mut sent = 0;
        while sent < n {
            for _ in 0..100 {
                let mut frame = pool.alloc().unwrap();
                frame.fill_from(&[&sent.to_be_bytes()[..], &[0; 12]].concat()).unwrap();
                burst.push(frame).unwrap();
                sent += 1;
            }
            a.tx(&mut pool, &mut burst).unwrap();
            b.rx(&mut pool, &mut burst).unwrap();
            got.extend(burst.as_slice().iter().map(|f| f.data().to_vec()));
            burst.release(&mut pool);
        }
        while b.rx(&mut pool, &mut burst).unwrap() > 0 {
            got.extend(burst.as_slice().iter().map(|f| f.data().to_vec()));
            burst.release(&mut pool);
        }
        let counts = b.rx_faults();
        assert_eq!(b.counters().fault_losses, counts.lost);
        drop((a, b, pool));
        assert_eq!((arena.in_depot(), arena.leaked()), (2048, 0));
        (got, counts)
    }

    fn number(packet: &[u8]) -> u64 {
        u64::from_be_bytes(packet[..8].try_into().unwrap())
    }

    /// Within five standard deviations of the mean, which a right injector misses once in 10^6.
    fn plausible(count: u64, n: u64, p: f64) -> bool {
        let (mean, sd) = (n as f64 * p, (n as f64 * p * (1.0 - p)).sqrt());
        (count as f64 - mean).abs() < 5.0 * sd
    }

    #[test]
    fn without_faults_everything_arrives_in_order() {
        let (got, counts) = run(Faults::default(), 1000, 1);
        assert_eq!(counts, FaultCounts { seen: 1000, ..Default::default() });
        assert!(got.iter().map(|p| number(p)).eq(0..1000));
    }

    #[test]
    fn loss_and_duplication_have_the_asked_frequency_and_are_counted() {
        let faults = Faults { loss: 0.1, duplication: 0.2, ..Faults::default() };
        let (got, counts) = run(faults, 20_000, 7);
        assert!(plausible(counts.lost, 20_000, 0.1), "{counts:?}");
        assert!(plausible(counts.duplicated, 20_000 - counts.lost, 0.2), "{counts:?}");
        assert_eq!(got.len() as u64, 20_000 - counts.lost + counts.duplicated);
    }

    #[test]
    fn reordering_stays_within_its_distance_and_loses_nothing() {
        let faults = Faults { reordering: 0.05, distance: 8, ..Faults::default() };
        let (got, counts) = run(faults, 5_000, 3);
        assert!(plausible(counts.reordered, 5_000, 0.05), "{counts:?}");
        let numbers: Vec<u64> = got.iter().map(|p| number(p)).collect();
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..5_000));
        let late = |(at, n): (usize, &u64)| numbers[..at].iter().filter(|m| *m > n).count();
        let worst = numbers.iter().enumerate().map(late).max().unwrap();
        assert!((1..=16).contains(&worst), "overtaken by {worst}");
    }

    #[test]
    fn a_flip_changes_one_bit_and_a_truncation_only_the_length() {
        let faults = Faults { bit_flip: 1.0, ..Faults::default() };
        let (got, _) = run(faults, 300, 11);
        for (n, packet) in got.iter().enumerate() {
            let original = [&(n as u64).to_be_bytes()[..], &[0; 12]].concat();
            let bits: u32 = packet.iter().zip(&original).map(|(a, b)| (a ^ b).count_ones()).sum();
            assert_eq!(bits, 1);
        }
        let (got, counts) = run(Faults { truncation: 0.5, ..Faults::default() }, 2000, 5);
        assert!(plausible(counts.truncated, 2000, 0.5), "{counts:?}");
        assert_eq!(got.iter().filter(|p| p.len() < 20).count() as u64, counts.truncated);
    }

    #[test]
    fn the_same_seed_gives_the_same_faults() {
        let faults = Faults {
            loss: 0.1,
            duplication: 0.1,
            reordering: 0.1,
            distance: 5,
            bit_flip: 0.1,
            truncation: 0.1,
        };
        assert_eq!(run(faults, 2000, 99), run(faults, 2000, 99));
        assert_ne!(run(faults, 2000, 99).0, run(faults, 2000, 98).0);
    }
}
