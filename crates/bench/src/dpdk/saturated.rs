//! Convoy's worker between a source that always has packets and a sink that takes all, as DPDK's gateway stands.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use convoy_crypto::{Suite, time_stamp};
use convoy_io::{IoError, Port, PortCounters};
use convoy_packet::{Arena, Burst, Pool};
use convoy_runtime::{EngineChoice, Runtime, ThreadConfig, WireMatch, WirePort, WorkerPorts};

use super::{PACKETS, WINDOWS};
use crate::esp::rig::RigError;
use crate::esp::site::{Shape, Site};
use crate::esp::traffic::Traffic;
use crate::forward::gateway::{Memory, surroundings};
use crate::maker::Maker;
use crate::mix::Sizes;

/// Packets of the source, which come over and over.
const DISTINCT: u64 = 512;
/// Time between two looks at the windows.
const PAUSE: Duration = Duration::from_millis(5);
/// Longest time of the windows, and of the worker's end.
const PATIENCE: Duration = Duration::from_secs(20);

/// Inner packets of `size` bytes, of 64 flows through one SA.
///
/// # Errors
/// [`RigError`] where there is no memory for one.
pub(super) fn packets(size: usize, arena: &'static Arena) -> Result<Vec<Vec<u8>>, RigError> {
    let shape = Shape::new(1);
    let traffic = Traffic::new(shape, Sizes::Fixed(size), 1);
    let mut pool = arena.pool();
    let mut frame = pool.alloc().ok_or(RigError::Broken("there is no frame"))?;
    let packet = |number: u64| {
        let flow = (number % shape.flows as u64) as u32;
        traffic.write(&mut frame, flow, number, size).then(|| frame.data().to_vec())
    };
    let packets: Option<Vec<_>> = (0..DISTINCT).map(packet).collect();
    pool.free(frame);
    packets.ok_or(RigError::Size(size))
}

/// Results of the source.
#[derive(Debug, Default)]
struct Told {
    cycles: Mutex<Vec<f64>>,
    is_done: AtomicBool,
}

/// Has packets whenever it is asked, and times windows of them.
#[derive(Debug)]
struct Source {
    packets: Vec<Vec<u8>>,
    next: usize,
    /// Of the window under way.
    taken: usize,
    begun: u64,
    told: Arc<Told>,
    counters: PortCounters,
}

/// Takes all.
#[derive(Debug, Default)]
struct Sink(PortCounters);

impl Source {
    /// The end of a window, where it is one.
    fn window(&mut self) {
        if self.begun > 0 && self.taken < PACKETS {
            return;
        }
        let now = time_stamp();
        let cycles = (now - self.begun) as f64 / self.taken.max(1) as f64;
        let mut windows = self.told.cycles.lock().unwrap_or_else(PoisonError::into_inner);
        // What comes before the first burst is no window.
        if self.begun > 0 && windows.len() < WINDOWS {
            windows.push(cycles);
            self.told.is_done.store(windows.len() == WINDOWS, Ordering::Release);
        }
        (self.begun, self.taken) = (now, 0);
    }
}

impl Port for Source {
    fn rx(&mut self, pool: &mut Pool, into: &mut Burst) -> Result<usize, IoError> {
        self.window();
        let before = into.len();
        while !into.is_full() {
            let Some(packet) = self.packets.get(self.next) else {
                self.next = 0;
                continue;
            };
            let Some(mut frame) = pool.alloc() else { break };
            // Frames are as large as the packets want them, and there is room in the burst.
            let _ = frame.fill_from(packet);
            let _ = into.push(frame);
            self.next += 1;
        }
        let received = into.len() - before;
        self.taken += received;
        self.counters.rx_packets += received as u64;
        Ok(received)
    }

    fn tx(&mut self, pool: &mut Pool, from: &mut Burst) -> Result<(), IoError> {
        from.release(pool);
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

impl Port for Sink {
    fn rx(&mut self, _: &mut Pool, _: &mut Burst) -> Result<usize, IoError> {
        Ok(0)
    }

    fn tx(&mut self, pool: &mut Pool, from: &mut Burst) -> Result<(), IoError> {
        self.0.tx_packets += from.len() as u64;
        from.release(pool);
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.0
    }
}

/// Cycles per packet of [`WINDOWS`] windows of a worker on `processor` that protects these packets over and over.
///
/// # Errors
/// [`RigError`] when packets do not move, or one is dropped.
pub(super) fn windows(
    maker: &Maker,
    suite: Suite,
    packets: &[Vec<u8>],
    processor: usize,
    memory: &mut Memory,
) -> Result<Vec<f64>, RigError> {
    let site = Site::new(maker, suite, Shape::new(1))?;
    let engine = EngineChoice::Inline;
    let largest = packets.iter().map(Vec::len).max().unwrap_or_default();
    let arena = memory.of(largest, &engine)?;
    let told = Arc::new(Told::default());
    let (packets, counters) = (packets.to_vec(), PortCounters::default());
    let source = Source { packets, next: 0, taken: 0, begun: 0, told: told.clone(), counters };
    let sink = WirePort { carries: WireMatch::default(), port: Box::new(Sink::default()) };
    let ports = WorkerPorts { plain: Box::new(source), interfaces: Vec::new(), wire: vec![sink] };
    let threads = ThreadConfig { pin: vec![processor], busy_poll: true };
    let surroundings = surroundings(&engine, arena);
    let runtime = Runtime::start(&surroundings, &threads, vec![ports], &site.published, |_| {})?;
    let begun = Instant::now();
    while !told.is_done.load(Ordering::Acquire) && begun.elapsed() < PATIENCE {
        thread::sleep(PAUSE);
    }
    let stats = runtime.stats().first().cloned();
    let end = runtime.stop(PATIENCE);
    let is_whole = end.failures.is_empty()
        && stats.is_some_and(|stats| stats.pipeline.drops.iter().all(|(_, dropped)| dropped == 0));
    if !is_whole {
        return Err(RigError::Broken("the worker dropped packets"));
    }
    let windows = told.cycles.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if windows.len() == WINDOWS {
        Ok(windows)
    } else {
        Err(RigError::Broken("the worker passed no packets"))
    }
}

#[cfg(test)]
mod tests {
    use convoy_crypto::Cpu;

    use super::*;
    use crate::cores::Cores;

    #[test]
    fn a_worker_passes_windows_of_packets_that_differ() {
        let (cpu, mut memory) = (Cpu::detect().unwrap(), Memory::default());
        let arena = memory.of(100, &EngineChoice::Inline).unwrap();
        let packets = packets(100, arena).unwrap();
        assert!(packets.len() == 512 && packets.iter().all(|packet| packet.len() == 100));
        assert!(packets.windows(2).all(|pair| pair[0] != pair[1]));
        let processor = Cores::allowed().unwrap()[0];
        let maker = Maker::Tier(cpu, cpu.best());
        for suite in ["aes-128-gcm-16", "aes-128-cbc+hmac-sha1-96"] {
            let suite = suite.parse().unwrap();
            let windows = windows(&maker, suite, &packets, processor, &mut memory).unwrap();
            assert!(windows.iter().all(|cycles| *cycles > 1.0), "{windows:?}");
            // All frames are back.
            assert_eq!(arena.in_depot(), arena.frames() as usize);
        }
    }
}
