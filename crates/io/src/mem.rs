//! Two ports joined by rings in memory.

use core::time::Duration;
use std::time::Instant;

use convoy_packet::{Arena, Burst, Frame, Pool};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::{IoError, Port, PortCounters};

/// Settings of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Packets that each direction holds before it is full.
    pub depth: usize,
    /// Longest time that one `tx` waits for room before it drops. Zero when one thread drives both ends.
    pub patience: Duration,
}

impl Default for Config {
    /// 1,024 packets, and no waiting.
    fn default() -> Self {
        Self { depth: 1024, patience: Duration::ZERO }
    }
}

/// Two connected ports whose workers draw on one arena: frames move across, no byte is copied.
#[must_use]
pub fn pair(config: &Config) -> (MemPort, MemPort) {
    let (to_b, from_a) = RingBuffer::new(config.depth.max(1));
    let (to_a, from_b) = RingBuffer::new(config.depth.max(1));
    let end = |out, inward| MemPort {
        out,
        inward,
        patience: config.patience,
        counters: PortCounters::default(),
    };
    (end(to_b, from_b), end(to_a, from_a))
}

/// One end of a pair that shares an arena.
#[derive(Debug)]
pub struct MemPort {
    out: Producer<Parcel>,
    inward: Consumer<Parcel>,
    patience: Duration,
    counters: PortCounters,
}

/// A frame under way. If both ends are closed meanwhile, it goes back to its arena.
#[derive(Debug)]
struct Parcel {
    frame: Option<Frame>,
    arena: &'static Arena,
}

impl Drop for Parcel {
    fn drop(&mut self) {
        if let Some(frame) = self.frame.take() {
            self.arena.pool().free(frame);
        }
    }
}

impl Port for MemPort {
    fn rx(&mut self, _pool: &mut Pool, into: &mut Burst) -> Result<usize, IoError> {
        let before = into.len();
        while !into.is_full() {
            let Ok(mut parcel) = self.inward.pop() else { break };
            let Some(frame) = parcel.frame.take() else { continue };
            self.counters.rx_bytes += frame.len() as u64;
            // There is room: checked above.
            let _ = into.push(frame);
        }
        let received = into.len() - before;
        self.counters.rx_packets += received as u64;
        Ok(received)
    }

    fn tx(&mut self, pool: &mut Pool, from: &mut Burst) -> Result<(), IoError> {
        let mut patience = Patience::new(self.patience);
        let arena = pool.arena();
        for frame in from.drain() {
            let bytes = frame.len() as u64;
            if self.out.is_full() {
                self.counters.tx_waits += u64::from(patience.fresh());
                while self.out.is_full() && !self.out.is_abandoned() && patience.wait() {}
            }
            match self.out.push(Parcel { frame: Some(frame), arena }) {
                Ok(()) => {
                    self.counters.tx_packets += 1;
                    self.counters.tx_bytes += bytes;
                }
                Err(rtrb::PushError::Full(mut parcel)) => {
                    self.counters.tx_would_block += 1;
                    if let Some(frame) = parcel.frame.take() {
                        pool.free(frame);
                    }
                }
            }
        }
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

/// Two connected ports whose workers may draw on different arenas: bytes are copied across.
///
/// Packets above `max_packet` bytes are counted as [`PortCounters::tx_too_big`].
#[must_use]
pub fn copying_pair(config: &Config, max_packet: usize) -> (CopyPort, CopyPort) {
    let depth = config.depth.max(1);
    let one_way = || {
        let (out, inward) = RingBuffer::new(depth);
        let (mut give_back, empties) = RingBuffer::new(depth);
        for _ in 0..depth {
            let _ = give_back.push(Slot { len: 0, bytes: vec![0; max_packet].into() });
        }
        ((out, empties), (inward, give_back))
    };
    let (out_a, in_b) = one_way();
    let (out_b, in_a) = one_way();
    let end = |(out, empties), (inward, give_back)| CopyPort {
        out,
        empties,
        inward,
        give_back,
        patience: config.patience,
        counters: PortCounters::default(),
    };
    (end(out_a, in_a), end(out_b, in_b))
}

/// One end of a pair that copies.
#[derive(Debug)]
pub struct CopyPort {
    out: Producer<Slot>,
    empties: Consumer<Slot>,
    inward: Consumer<Slot>,
    give_back: Producer<Slot>,
    patience: Duration,
    counters: PortCounters,
}

/// A packet under way, or an empty buffer on its way back.
#[derive(Debug)]
struct Slot {
    len: usize,
    bytes: Box<[u8]>,
}

impl CopyPort {
    fn send(&mut self, packet: &[u8], patience: &mut Patience) {
        if self.empties.is_empty() {
            self.counters.tx_waits += u64::from(patience.fresh());
            while self.empties.is_empty() && !self.out.is_abandoned() && patience.wait() {}
        }
        // A buffer is taken only for a packet that fits, so it never has to be put back.
        let fits = self.empties.peek().map(|slot| slot.bytes.len() >= packet.len());
        match fits {
            Err(_) => self.counters.tx_would_block += 1,
            Ok(false) => self.counters.tx_too_big += 1,
            Ok(true) => {
                let Ok(mut slot) = self.empties.pop() else { return };
                if let Some(room) = slot.bytes.get_mut(..packet.len()) {
                    room.copy_from_slice(packet);
                }
                slot.len = packet.len();
                self.counters.tx_packets += 1;
                self.counters.tx_bytes += packet.len() as u64;
                // As many places as buffers: this cannot be full.
                let _ = self.out.push(slot);
            }
        }
    }
}

impl Port for CopyPort {
    fn rx(&mut self, pool: &mut Pool, into: &mut Burst) -> Result<usize, IoError> {
        let before = into.len();
        while !into.is_full() && !self.inward.is_empty() {
            let Some(mut frame) = pool.alloc() else {
                self.counters.rx_no_frame += 1;
                break;
            };
            let Ok(slot) = self.inward.pop() else {
                pool.free(frame);
                break;
            };
            let copied = frame.fill_from(slot.bytes.get(..slot.len).unwrap_or_default());
            let _ = self.give_back.push(slot);
            if copied.is_err() {
                self.counters.rx_truncated += 1;
                pool.free(frame);
                continue;
            }
            self.counters.rx_bytes += frame.len() as u64;
            let _ = into.push(frame);
        }
        let received = into.len() - before;
        self.counters.rx_packets += received as u64;
        Ok(received)
    }

    fn tx(&mut self, pool: &mut Pool, from: &mut Burst) -> Result<(), IoError> {
        let mut patience = Patience::new(self.patience);
        for frame in from.drain() {
            self.send(frame.data(), &mut patience);
            pool.free(frame);
        }
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

/// Bounded waiting for a whole call; the clock is looked at only once waiting begins.
struct Patience {
    limit: Duration,
    since: Option<Instant>,
}

impl Patience {
    fn new(limit: Duration) -> Self {
        Self { limit, since: None }
    }

    /// True if nobody has waited yet, and somebody may.
    fn fresh(&self) -> bool {
        self.since.is_none() && !self.limit.is_zero()
    }

    /// Lets others run; false once the time is up.
    fn wait(&mut self) -> bool {
        if self.limit.is_zero() {
            return false;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        std::thread::yield_now();
        since.elapsed() < self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoy_packet::FrameSize;

    fn burst_of(pool: &mut Pool, packets: impl Iterator<Item = Vec<u8>>) -> Burst {
        let mut burst = Burst::new();
        for packet in packets {
            let mut frame = pool.alloc().unwrap();
            frame.fill_from(&packet).unwrap();
            burst.push(frame).unwrap();
        }
        burst
    }

    fn numbered(n: u8) -> impl Iterator<Item = Vec<u8>> {
        (0..n).map(|i| vec![i; 1 + usize::from(i)])
    }

    #[test]
    fn packets_cross_in_order_and_what_does_not_fit_is_counted() {
        let arena = Arena::map(64, FrameSize::for_packet(100)).unwrap();
        let mut pool = arena.pool();
        let config = Config { depth: 16, ..Config::default() };
        let (mut a, mut b) = pair(&config);
        let mut burst = burst_of(&mut pool, numbered(20));
        a.tx(&mut pool, &mut burst).unwrap();
        assert!(burst.is_empty());
        assert_eq!((a.counters().tx_packets, a.counters().tx_would_block), (16, 4));
        assert_eq!(b.rx(&mut pool, &mut burst).unwrap(), 16);
        for (i, frame) in burst.as_slice().iter().enumerate() {
            assert_eq!(frame.data(), vec![i as u8; 1 + i]);
        }
        assert_eq!(b.counters().rx_bytes, a.counters().tx_bytes);
        b.tx(&mut pool, &mut burst).unwrap();
        assert_eq!(a.rx(&mut pool, &mut burst).unwrap(), 16);
        burst.release(&mut pool);
        drop(pool);
        assert_eq!((arena.in_depot(), arena.leaked()), (64, 0));
    }

    #[test]
    fn frames_under_way_when_both_ends_close_are_not_leaked() {
        let arena = Arena::map(8, FrameSize::for_packet(100)).unwrap();
        let mut pool = arena.pool();
        let (mut a, b) = pair(&Config::default());
        let mut burst = burst_of(&mut pool, numbered(5));
        a.tx(&mut pool, &mut burst).unwrap();
        drop((a, b, pool));
        assert_eq!((arena.in_depot(), arena.leaked()), (8, 0));
    }

    #[test]
    fn copying_joins_two_arenas() {
        let small = Arena::map(8, FrameSize::for_packet(100)).unwrap();
        let large = Arena::map(8, FrameSize::for_packet(9000)).unwrap();
        let (mut small_pool, mut large_pool) = (small.pool(), large.pool());
        let (mut a, mut b) = copying_pair(&Config { depth: 4, ..Config::default() }, 9000);
        let packets = [vec![1; 9000], vec![2; 40], vec![3; 9001]];
        let mut burst = burst_of(&mut large_pool, packets.into_iter());
        a.tx(&mut large_pool, &mut burst).unwrap();
        assert_eq!((a.counters().tx_packets, a.counters().tx_too_big), (2, 1));
        let mut got = Burst::new();
        assert_eq!(b.rx(&mut small_pool, &mut got).unwrap(), 1);
        assert_eq!(got.as_slice()[0].data(), [2; 40]);
        assert_eq!(b.counters().rx_truncated, 1);
        got.release(&mut small_pool);
        // All buffers came back: another four packets fit.
        let mut burst = burst_of(&mut large_pool, numbered(5));
        a.tx(&mut large_pool, &mut burst).unwrap();
        assert_eq!(a.counters().tx_would_block, 1);
        drop((small_pool, large_pool));
        assert_eq!((small.in_depot(), large.in_depot()), (8, 8));
    }

    #[test]
    fn a_patient_sender_loses_nothing_to_a_slow_receiver() {
        let arena = Arena::map(4096, FrameSize::for_packet(100)).unwrap();
        let (mut a, mut b) = pair(&Config { depth: 4, patience: Duration::from_secs(60) });
        let sender = std::thread::spawn(move || {
            let mut pool = arena.pool();
            for _ in 0..100 {
                let mut burst = burst_of(&mut pool, numbered(100));
                a.tx(&mut pool, &mut burst).unwrap();
            }
            a.counters()
        });
        let mut pool = arena.pool();
        let mut burst = Burst::new();
        let mut seen = 0_usize;
        while seen < 10_000 {
            b.rx(&mut pool, &mut burst).unwrap();
            for frame in burst.drain() {
                assert_eq!(frame.data()[0], (seen % 100) as u8);
                seen += 1;
                pool.free(frame);
            }
            std::thread::yield_now();
        }
        let counters = sender.join().unwrap();
        assert_eq!((counters.tx_packets, counters.tx_would_block), (10_000, 0));
        assert!(counters.tx_waits > 0);
    }
}
