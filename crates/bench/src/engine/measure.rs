//! Bursts of jobs through an engine: what they cost the submitting core, and how many get done.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use convoy_crypto::{KeyMaterial, Nonce, SecretBytes, Suite, time_stamp};
use convoy_engine::{Context, EngineKey, Front, Job, JobBurst, KeyId, Op, Span, Status};
use convoy_packet::{Arena, FrameSize, Pool};

use crate::maker::Maker;
use crate::mix::Mix;
use crate::results::fields::Value;
use crate::stats::Summary;

/// Jobs of a burst.
pub const BURST: usize = 64;
/// Bursts that are under way while costs are measured.
const UNDER_WAY: usize = 4;
/// Bytes in front of the text: outer header, ESP header and IV.
const FRONT: usize = 44;
/// Time in which an engine must let go of what it holds.
const PATIENCE: Duration = Duration::from_secs(10);
/// Frames: what is under way, its sources, results and copies.
const FRAMES: u32 = 16_384;
/// Most samples of a point's costs that are kept.
pub const SAMPLES: usize = 4000;

/// A point could not be measured.
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

/// Costs and rate of one engine for packets of one size.
#[derive(Clone, Debug)]
pub struct Point {
    /// Name of the engine.
    pub engine: String,
    /// Name of the suite.
    pub suite: String,
    /// Bytes of inner packets, or the name of a mix.
    pub size: PacketSize,
    /// Bytes of inner packets, their mean in a mix.
    pub bytes: f64,
    /// Cycles of the submitting core for a packet: handing it over and taking it back.
    pub cycles: Summary,
    /// The same, burst by burst: [`SAMPLES`] at most, in even spaces.
    pub samples: Vec<f64>,
    /// Packets a second, submitted by one core.
    pub packets_per_second: f64,
    /// Latency of packets when less than that comes.
    pub latencies: Vec<Latency>,
}

/// Time that packets are away when bursts come at even spaces: from when a burst was to come, so that time
/// for which nobody could take it counts as well.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// Packets that come, of what gets done at most.
    pub load: f64,
    /// Half of the bursts took less, in microseconds.
    pub median_us: f64,
    /// Ninety-nine of a hundred took less.
    pub p99_us: f64,
    /// Nine hundred and ninety-nine of a thousand took less.
    pub p999_us: f64,
}

/// Loads at which latencies are measured.
const LOADS: [f64; 3] = [0.1, 0.5, 0.9];

/// Sizes of inner packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketSize {
    /// All alike, in bytes.
    Bytes(usize),
    /// A mix.
    Mix(Mix),
}

impl PacketSize {
    /// Lengths that come in turn.
    fn lengths(self) -> Vec<usize> {
        /// Enough that a mix comes near its weights.
        const OF_MIX: usize = 960;
        match self {
            Self::Bytes(bytes) => vec![bytes],
            Self::Mix(mix) => mix.lengths(OF_MIX),
        }
    }
}

impl fmt::Display for PacketSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => bytes.fmt(f),
            Self::Mix(mix) => mix.fmt(f),
        }
    }
}

impl FromStr for PacketSize {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word.parse::<usize>() {
            Ok(bytes @ 40..=8900) => Ok(Self::Bytes(bytes)),
            Ok(_) => Err("use 40 to 8900 bytes".to_owned()),
            Err(_) => word.parse().map(Self::Mix),
        }
    }
}

impl From<PacketSize> for Value {
    fn from(size: PacketSize) -> Self {
        match size {
            PacketSize::Bytes(bytes) => bytes.into(),
            PacketSize::Mix(mix) => mix.name().into(),
        }
    }
}

/// Inner packets under one suite.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The suite.
    pub suite: Suite,
    /// Size of its packets.
    pub size: PacketSize,
}

impl Load {
    /// Bytes of ESP text: the packet and its trailer, aligned (RFC 4303 section 2.4).
    fn text(self, bytes: usize) -> usize {
        (bytes + 2).next_multiple_of(self.suite.block_bytes().max(4))
    }

    /// A key; `mark` makes it differ from others.
    pub(super) fn key(self, maker: &Maker, mark: u8) -> Result<EngineKey, EngineError> {
        let material = KeyMaterial {
            cipher: SecretBytes::from(counting(mark, self.suite.key_bytes())),
            integrity: SecretBytes::copy_from(&vec![0x22; self.suite.integrity_key_bytes()]),
        };
        let key = maker.seal_key(self.suite, material);
        Ok(EngineKey::Seal(Arc::new(key.map_err(|error| EngineError::Key(error.to_string()))?)))
    }
}

/// Bytes that all differ, for 3DES takes no key of equal parts.
fn counting(mark: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| mark ^ i as u8).collect()
}

/// An engine at work: what is under way, and where frames come from.
pub(super) struct Course {
    pub(super) front: Front,
    arena: &'static Arena,
    pool: Pool,
    load: Load,
    /// Lengths of inner packets that come in turn, and the next one's place.
    lengths: Vec<usize>,
    turn: usize,
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
        let lengths = load.size.lengths();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let arena = Arena::map(FRAMES, FrameSize::for_packet(longest + 80))?;
        Ok(Self {
            front,
            arena,
            pool: arena.pool(),
            load,
            lengths,
            turn: 0,
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
        let nonce = suite.nonce_bytes() as u8;
        let (header, aad) = if suite.is_aead() { (0, 8) } else { (8 + u32::from(nonce), 0) };
        while self.jobs.len() < self.burst {
            self.number += 1;
            let bytes = self.lengths.get(self.turn).copied().unwrap_or_default();
            self.turn = (self.turn + 1) % self.lengths.len().max(1);
            let text = self.load.text(bytes);
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
        // Threads of an engine may get no processor for longer than that.
        while begun.elapsed() < time || packets == 0 && begun.elapsed() < PATIENCE {
            before(&mut self.front);
            self.lay_out()?;
            self.hand_over();
            packets += self.poll()?.0;
        }
        if packets == 0 {
            return Err(EngineError::Broken("nothing came back"));
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

    /// Measures the time that bursts are away at the share `load` of `rate` packets a second.
    fn latency(&mut self, load: f64, rate: f64, time: Duration) -> Result<Latency, EngineError> {
        let space = (self.burst as f64 / (load * rate) * 1e9) as u64;
        let end = self.now() + time.as_nanos() as u64;
        let mut due = self.now();
        // The last number of each burst under way, and when the burst was due.
        let mut bursts = VecDeque::new();
        let mut waited = Vec::new();
        loop {
            let now = self.now();
            if now >= due && now < end && self.jobs.is_empty() {
                self.lay_out()?;
                bursts.push_back((self.number, due));
                due += space;
            }
            if !self.jobs.is_empty() {
                self.hand_over();
            }
            self.poll()?;
            let now = self.now();
            while bursts.front().is_some_and(|(last, _)| *last <= self.last) {
                waited.extend(bursts.pop_front().map(|(_, due)| now.saturating_sub(due)));
            }
            if now >= end && bursts.is_empty() {
                break;
            }
        }
        waited.sort_unstable();
        let at = |part: f64| {
            let place = (part * waited.len() as f64) as usize;
            let found = waited.get(place.min(waited.len().saturating_sub(1)));
            found.map_or(0.0, |nanoseconds| *nanoseconds as f64 / 1e3)
        };
        Ok(Latency { load, median_us: at(0.5), p99_us: at(0.99), p999_us: at(0.999) })
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

/// Measures one engine with one load, for not quite three times `time`, under a key of `maker`.
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
    let samples = evenly(&course.costs(time)?);
    let packets_per_second = course.rate(time)?;
    let mut latencies = Vec::new();
    for load in LOADS {
        latencies.push(course.latency(load, packets_per_second, time / 4)?);
    }
    let bytes = course.lengths.iter().sum::<usize>() as f64 / course.lengths.len().max(1) as f64;
    course.end()?;
    let cycles = Summary::of(&samples).ok_or(EngineError::Broken("nothing was measured"))?;
    let suite = load.suite.to_string();
    let (engine, size) = (name.to_owned(), load.size);
    Ok(Point { engine, suite, size, bytes, cycles, samples, packets_per_second, latencies })
}

/// Measures for about `time` what packets cost the core that submits them, under a key of `maker`: what it comes to,
/// and burst by burst, [`SAMPLES`] at most.
///
/// # Errors
/// [`EngineError`], also when a packet was not sealed or a frame got lost.
pub fn costs(
    front: Front,
    maker: &Maker,
    load: Load,
    time: Duration,
) -> Result<(Summary, Vec<f64>), EngineError> {
    let mut course = Course::new(front, load, BURST)?;
    course.front.install(KeyId(0), load.key(maker, 0x11)?);
    let samples = evenly(&course.costs(time)?);
    course.end()?;
    let cycles = Summary::of(&samples).ok_or(EngineError::Broken("nothing was measured"))?;
    Ok((cycles, samples))
}

/// [`SAMPLES`] of all at most, with as many left out between each two.
fn evenly(all: &[f64]) -> Vec<f64> {
    all.iter().step_by(all.len().div_ceil(SAMPLES).max(1)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_thinned_evenly() {
        let all: Vec<f64> = (0..3 * SAMPLES as u32).map(f64::from).collect();
        assert_eq!(evenly(&all[..SAMPLES]), all[..SAMPLES]);
        assert_eq!(evenly(&all[..=SAMPLES])[..3], [0.0, 2.0, 4.0]);
        assert_eq!((evenly(&all).len(), evenly(&[]).len()), (SAMPLES, 0));
    }

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
            let load = Load { suite: suite.parse().unwrap(), size: PacketSize::Mix(Mix::Imix) };
            let model = Model::new(settings, Faults::default());
            for (name, front) in [
                ("inline", Front::inline()),
                ("pool", Front::with(pool.engine(&waker))),
                ("model", Front::with(Box::new(model))),
            ] {
                let time = Duration::from_millis(20);
                let point = measure(name, front, &maker, load, time).unwrap();
                assert!(point.packets_per_second > 0.0, "{point:?}");
                assert!((300.0..500.0).contains(&point.bytes), "{point:?}");
                let [.., busy] = point.latencies[..] else { panic!("{point:?}") };
                assert!(0.0 < busy.median_us && busy.median_us <= busy.p999_us, "{point:?}");
            }
        }
    }
}
