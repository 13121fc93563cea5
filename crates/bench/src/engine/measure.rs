//! Bursts of jobs through an engine: what they cost the submitting core, and how many get done.

use std::sync::Arc;
use std::time::{Duration, Instant};

use convoy_crypto::{KeyMaterial, Nonce, SecretBytes, Suite, time_stamp};
use convoy_engine::{Context, EngineKey, Front, Job, JobBurst, KeyId, Op, Span, Status};
use convoy_packet::{Arena, FrameSize, Pool};
use serde::Serialize;

use crate::maker::Maker;
use crate::stats::Summary;

/// Jobs of a burst.
pub const BURST: usize = 64;
/// Bursts that are under way while costs are measured.
const UNDER_WAY: usize = 4;
/// Bytes in front of the text: outer header, ESP header and IV.
const FRONT: usize = 44;
/// How long an engine may take to let go of what it holds.
const PATIENCE: Duration = Duration::from_secs(2);
/// Frames: what is under way, its sources, results and copies.
const FRAMES: u32 = 16_384;

/// Why a point could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// A key or packet does not suit the suite: a defect of the benchmark.
    #[error("{0}")]
    Key(String),
    /// No memory for packets.
    #[error("no memory for packets: {0}")]
    Arena(#[from] convoy_packet::ArenaError),
    /// A job was not done, or a frame got lost.
    #[error("{0}")]
    Broken(&'static str),
}

/// What one engine needs for packets of one size.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Name of the engine.
    pub engine: String,
    /// Name of the suite.
    pub suite: String,
    /// Bytes of inner packets.
    pub bytes: usize,
    /// Cycles of the submitting core for a packet: handing it over and taking it back.
    pub cycles: Summary,
    /// Packets a second, submitted by one core.
    pub packets_per_second: f64,
}

/// Inner packets of one size under one suite.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The suite.
    pub suite: Suite,
    /// Bytes of inner packets.
    pub bytes: usize,
}

impl Load {
    /// Bytes of ESP text: the packet and its trailer, aligned (RFC 4303 section 2.4).
    fn text(self) -> usize {
        (self.bytes + 2).next_multiple_of(if self.suite.is_aead() { 4 } else { 16 })
    }

    /// A key; `mark` makes it differ from others.
    pub(super) fn key(self, maker: &Maker, mark: u8) -> Result<EngineKey, EngineError> {
        let material = KeyMaterial {
            cipher: SecretBytes::copy_from(&vec![mark; self.suite.key_bytes()]),
            integrity: SecretBytes::copy_from(&vec![0x22; self.suite.integrity_key_bytes()]),
        };
        let key = maker.seal_key(self.suite, material);
        Ok(EngineKey::Seal(Arc::new(key.map_err(|error| EngineError::Key(error.to_string()))?)))
    }
}

/// An engine at work: what is under way, and where frames come from.
pub(super) struct Course {
    pub(super) front: Front,
    arena: &'static Arena,
    pool: Pool,
    load: Load,
    /// Jobs of a burst.
    burst: usize,
    jobs: JobBurst,
    done: JobBurst,
    number: u64,
    /// The last number that came back.
    last: u64,
    pub(super) under_way: usize,
    begun: Instant,
}

impl Course {
    pub(super) fn new(front: Front, load: Load, burst: usize) -> Result<Self, EngineError> {
        let arena = Arena::map(FRAMES, FrameSize::for_packet(load.bytes + 80))?;
        Ok(Self {
            front,
            arena,
            pool: arena.pool(),
            load,
            burst,
            jobs: JobBurst::new(),
            done: JobBurst::new(),
            number: 0,
            last: 0,
            under_way: 0,
            begun: Instant::now(),
        })
    }

    /// Lays a burst out as the outbound pipeline does: headers written, jobs filled in where they lie.
    pub(super) fn lay_out(&mut self) -> Result<(), EngineError> {
        let Load { suite, .. } = self.load;
        let (text, nonce) = (self.load.text(), suite.nonce_bytes() as u8);
        let (header, aad) = if suite.is_aead() { (0, 8) } else { (8 + u32::from(nonce), 0) };
        while self.jobs.len() < self.burst {
            self.number += 1;
            let mut frame = self.pool.alloc().ok_or(EngineError::Broken("no frame is free"))?;
            let length = FRONT + text + suite.icv_bytes();
            frame.set_len(length).map_err(|_| EngineError::Broken("a packet does not fit"))?;
            frame.data_mut().iter_mut().take(FRONT).for_each(|byte| *byte = 0x45);
            let mut bytes = [0; 16];
            bytes[4..12].copy_from_slice(&self.number.to_be_bytes());
            let job = Job {
                text: Span { start: FRONT as u32, len: text as u32 },
                header,
                aad_len: aad,
                op: Op::Seal(Nonce::front(bytes, nonce)),
                context: Context { value: self.number, ..Context::default() },
                ..Job::idle(frame)
            };
            drop(self.jobs.push(job));
        }
        Ok(())
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    /// Hands a burst over, in cycles. Attempts in vain are not counted.
    fn submit(&mut self) -> u64 {
        loop {
            let now = self.now();
            let start = time_stamp();
            let taken = self.front.submit(now, &mut self.pool, &mut self.jobs);
            self.front.flush(now);
            let spent = time_stamp() - start;
            self.under_way += taken;
            if self.jobs.is_empty() {
                return spent;
            }
            std::hint::spin_loop();
        }
    }

    /// Takes jobs back, if any are finished: how many, and the cycles for that.
    pub(super) fn poll(&mut self) -> Result<(usize, u64), EngineError> {
        let now = self.now();
        let start = time_stamp();
        let finished = self.front.poll(now, &mut self.pool, &mut self.done);
        let spent = time_stamp() - start;
        self.under_way -= finished;
        let (mut all_done, mut in_order) = (true, true);
        for job in self.done.drain() {
            all_done &= job.status == Status::Done;
            in_order &= job.context.value == self.last + 1;
            self.last = job.context.value;
            self.pool.free(job.frame);
        }
        match (all_done, in_order) {
            (true, true) => Ok((finished, spent)),
            (false, _) => Err(EngineError::Broken("a job was not done")),
            (_, false) => Err(EngineError::Broken("jobs came back in another order")),
        }
    }

    /// Cycles of this core for a packet, burst by burst.
    fn costs(&mut self, time: Duration) -> Result<Vec<f64>, EngineError> {
        let (begun, mut samples) = (Instant::now(), Vec::new());
        while begun.elapsed() < time {
            self.lay_out()?;
            let handed = self.submit() as f64 / BURST as f64;
            while self.under_way >= UNDER_WAY * BURST || self.under_way > 0 && samples.is_empty() {
                let (finished, spent) = self.poll()?;
                if finished > 0 {
                    samples.push(handed + spent as f64 / finished as f64);
                    break;
                }
                std::hint::spin_loop();
            }
        }
        self.drain()?;
        Ok(samples)
    }

    /// Packets a second when this core hands over as fast as it can.
    fn rate(&mut self, time: Duration) -> Result<f64, EngineError> {
        self.rate_with(time, |_| {})
    }

    /// The same, with something done before each burst.
    pub(super) fn rate_with(
        &mut self,
        time: Duration,
        mut before: impl FnMut(&mut Front),
    ) -> Result<f64, EngineError> {
        let (begun, mut packets) = (Instant::now(), 0);
        while begun.elapsed() < time {
            before(&mut self.front);
            self.lay_out()?;
            self.hand_over();
            packets += self.poll()?.0;
        }
        let rate = packets as f64 / begun.elapsed().as_secs_f64();
        self.drain()?;
        Ok(rate)
    }

    /// Hands over what the engine takes.
    pub(super) fn hand_over(&mut self) {
        let now = self.now();
        self.under_way += self.front.submit(now, &mut self.pool, &mut self.jobs);
        self.front.flush(now);
    }

    /// Waits for all that is under way.
    pub(super) fn drain(&mut self) -> Result<(), EngineError> {
        while self.under_way > 0 {
            self.poll()?;
        }
        Ok(())
    }

    /// Ends; every frame must be back.
    pub(super) fn end(mut self) -> Result<(), EngineError> {
        self.jobs.drain().for_each(|job| self.pool.free(job.frame));
        let (begun, arena) = (Instant::now(), self.arena);
        let mut held = usize::MAX;
        while held > 0 && begun.elapsed() < PATIENCE {
            let now = self.now();
            held = self.front.release(now, &mut self.pool);
        }
        drop(self);
        let is_whole = held == 0 && arena.leaked() == 0;
        let is_whole = is_whole && arena.in_depot() == arena.frames() as usize;
        if is_whole { Ok(()) } else { Err(EngineError::Broken("frames were lost")) }
    }
}

/// Measures one engine with one load, for twice `time`, under a key of `maker`.
///
/// # Errors
/// [`EngineError`], also when a packet was not sealed or a frame got lost.
pub fn measure(
    name: &str,
    front: Front,
    maker: &Maker,
    load: Load,
    time: Duration,
) -> Result<Point, EngineError> {
    let mut course = Course::new(front, load, BURST)?;
    course.front.install(KeyId(0), load.key(maker, 0x11)?);
    let samples = course.costs(time)?;
    let packets_per_second = course.rate(time)?;
    course.end()?;
    let cycles = Summary::of(&samples).ok_or(EngineError::Broken("nothing was measured"))?;
    let suite = load.suite.to_string();
    Ok(Point { engine: name.to_owned(), suite, bytes: load.bytes, cycles, packets_per_second })
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoy_crypto::Cpu;
    use convoy_engine::model::{Faults, Model, Settings};
    use convoy_runtime::{CryptoPool, Waker};

    #[test]
    fn every_engine_gets_all_done_and_gives_all_frames_back() {
        let cpu = Cpu::detect().unwrap();
        let maker = Maker::Tier(cpu, cpu.best());
        let pool = CryptoPool::start(&[None]).unwrap();
        let waker = Waker::new().unwrap();
        let settings = Settings { latency: 1000, jitter: 500, ..Settings::default() };
        for suite in ["aes-128-gcm-16", "aes-128-cbc+hmac-sha1-96"] {
            let load = Load { suite: suite.parse().unwrap(), bytes: 100 };
            let model = Model::new(settings, Faults::default());
            for (name, front) in [
                ("inline", Front::inline()),
                ("pool", Front::with(pool.engine(&waker))),
                ("model", Front::with(Box::new(model))),
            ] {
                let time = Duration::from_millis(20);
                let point = measure(name, front, &maker, load, time).unwrap();
                assert!(point.packets_per_second > 0.0, "{point:?}");
            }
        }
    }
}
