//! A gateway of one worker between two rings.

use std::sync::Arc;
use std::time::Duration;

use convoy_crypto::Suite;
use convoy_engine::front::Sharing;
use convoy_io::mem::{self, Config};
use convoy_ipsec::pipeline::PipelineConfig;
use convoy_ipsec::sa::WorkerId;
use convoy_ipsec::spd::SpdId;
use convoy_packet::{Arena, ArenaError, FrameSize};
use convoy_runtime::{
    EngineChoice, Runtime, Surroundings, ThreadConfig, WireMatch, WirePort, WorkerPorts,
    WorkerStats,
};

use super::generator::{Generator, Near, RingEnd};
use super::search::{RING, Trial};
use super::watch::{Disturbance, Watch};
use crate::esp::rig::RigError;
use crate::esp::site::{Shape, Site};
use crate::esp::traffic::{PACKET_MAX, PACKET_MIN, Traffic};
use crate::maker::Maker;
use crate::mix::Sizes;

/// Frames that rings, the delay and pools hold at most.
const FRAMES: usize = 1 << 15;
/// Time in which a worker must end.
const LIMIT: Duration = Duration::from_secs(10);

/// Configuration of a gateway.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Makes its keys.
    pub maker: Maker,
    /// Does its cryptography.
    pub engine: EngineChoice,
    /// The suite of its two SAs.
    pub suite: Suite,
    /// Bytes of inner packets.
    pub size: usize,
    /// The processors of worker and generator.
    pub cpus: [usize; 2],
}

/// Memory for packets, which lives as long as the process: gateways that follow each other use it in turn.
#[derive(Debug, Default)]
pub struct Memory(Vec<&'static Arena>);

impl Memory {
    /// Memory for packets of `size` bytes and what an engine holds of them.
    ///
    /// # Errors
    /// [`ArenaError`] when there is none.
    pub fn of(&mut self, size: usize, engine: &EngineChoice) -> Result<&'static Arena, ArenaError> {
        let frames = u32::try_from(FRAMES + engine.frames()).unwrap_or(u32::MAX);
        let size = FrameSize::for_packet(size);
        let fits = |arena: &&&Arena| arena.frame_size() == size && arena.frames() >= frames;
        if let Some(arena) = self.0.iter().find(fits) {
            return Ok(arena);
        }
        let arena = Arena::map(frames, size)?;
        self.0.push(arena);
        Ok(arena)
    }
}

/// Surroundings of one worker that forwards.
pub(crate) fn surroundings(engine: &EngineChoice, arena: &'static Arena) -> Surroundings {
    Surroundings {
        pipeline: PipelineConfig {
            worker: WorkerId(0),
            decrement_ttl: true,
            udp6_checksum: true,
            icmp_source_v4: None,
            icmp_source_v6: None,
        },
        spds: vec![SpdId::default()],
        engine: engine.clone(),
        sharing: Sharing::default(),
        checks: 0,
        arena,
    }
}

/// A worker at work, and what offers it packets.
#[derive(Debug)]
pub struct Gateway {
    runtime: Runtime,
    stats: Arc<WorkerStats>,
    generator: Generator,
    arena: &'static Arena,
    cpus: [usize; 2],
    /// Ticks of the time-stamp counter in a microsecond.
    mhz: f64,
}

impl Gateway {
    /// Starts the worker. The caller's thread is the generator's, and should be on its processor.
    ///
    /// # Errors
    /// [`RigError`].
    pub fn start(setting: &Setting, memory: &mut Memory, mhz: f64) -> Result<Self, RigError> {
        let Setting { maker, engine, suite, size, cpus } = setting;
        if !(PACKET_MIN..=PACKET_MAX).contains(size) {
            return Err(RigError::Size(*size));
        }
        let shape = Shape::new(1);
        let site = Site::new(maker, *suite, shape)?;
        let arena = memory.of(*size, engine)?;
        let ring = Config { depth: RING, ..Config::default() };
        let [(plain, near_plain), (wire, near_wire)] = [mem::pair(&ring), mem::pair(&ring)];
        let (near_plain, near_wire) = (Near::new(near_plain), Near::new(near_wire));
        let generator = Generator::new(
            arena.pool(),
            RingEnd { port: plain, told: near_plain.told() },
            RingEnd { port: wire, told: near_wire.told() },
            Traffic::new(shape, Sizes::Fixed(*size), 1),
            *size,
            shape.flows,
        );
        let ports = WorkerPorts {
            plain: Box::new(near_plain),
            interfaces: Vec::new(),
            wire: vec![WirePort { carries: WireMatch::default(), port: Box::new(near_wire) }],
        };
        let surroundings = surroundings(engine, arena);
        let threads = ThreadConfig { pin: vec![cpus[0]], busy_poll: true };
        let runtime =
            Runtime::start(&surroundings, &threads, vec![ports], &site.published, |_| {})?;
        let stats = runtime.stats().first().cloned();
        let stats = stats.ok_or(RigError::Broken("there is no worker"))?;
        Ok(Self { runtime, stats, generator, arena, cpus: *cpus, mhz })
    }

    /// Packets a second that it passes when there are always some.
    ///
    /// # Errors
    /// [`RigError`] when packets do not move, which is a defect.
    pub fn saturate(&mut self, time: Duration) -> Result<f64, RigError> {
        self.generator.saturate(time)
    }

    /// Offers `packets` packets, `rate` a second. The trial is void when others took more than the share `allowed`
    /// of the time. It ends early, and says nothing, when `go_on` says no. `waited` is told how long packets took, in
    /// ticks.
    ///
    /// # Errors
    /// [`RigError`] when packets do not move, which is a defect.
    pub fn trial(
        &mut self,
        rate: f64,
        packets: u64,
        allowed: f64,
        go_on: &dyn Fn() -> bool,
        waited: impl FnMut(u64),
    ) -> Result<Trial<Disturbance>, RigError> {
        let troubles = self.troubles();
        let watch = Watch::begin(&self.cpus);
        let offered = self.generator.offer(packets, self.mhz * 1e6 / rate, go_on, waited)?;
        // Others first: they are why the generator was late.
        let disturbance = watch.end(allowed).or(offered.disturbance);
        let failed = (self.troubles() != troubles).then_some(Disturbance::Engine);
        Ok(match disturbance.or(failed) {
            Some(disturbance) => Trial::Void(disturbance),
            None => Trial::Counted { offered: offered.packets, lost: offered.lost },
        })
    }

    /// Packets that the engine left to software.
    fn troubles(&self) -> u64 {
        self.runtime.update_stats(LIMIT);
        let engine = &self.stats.engine;
        engine.losses.get() + engine.in_software.get() + engine.refused.get() + engine.redone.get()
    }

    /// Stops the worker. Returns what went wrong: nothing when every packet is accounted for.
    ///
    /// # Errors
    /// [`RigError`] when packets do not move, which is a defect.
    pub fn end(self) -> Result<Vec<String>, RigError> {
        let Self { runtime, stats, generator, arena, .. } = self;
        let books = generator.end()?;
        let end = runtime.stop(LIMIT);
        let mut errors: Vec<_> = end.failures.iter().map(ToString::to_string).collect();
        errors.extend(books.error());
        if end.lost > 0 {
            errors.push(format!("{} packets lost at the end", end.lost));
        }
        let drops = stats.pipeline.drops.iter().filter(|(_, n)| *n > 0);
        errors.extend(drops.map(|(why, n)| format!("{n} packets dropped: {}", why.name())));
        let (frames, back) = (arena.frames() as usize, arena.in_depot());
        if (back, arena.leaked()) != (frames, 0) {
            errors.push(format!("{back} of {frames} frames back"));
        }
        Ok(errors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cores::Cores;
    use crate::forward::model::Counted;
    use convoy_crypto::Cpu;

    fn setting(engine: EngineChoice, suite: &str) -> Setting {
        let cpu = Cpu::detect().unwrap();
        let cpus = Cores::allowed().unwrap();
        Setting {
            maker: Maker::Tier(cpu, cpu.best()),
            engine,
            suite: suite.parse().unwrap(),
            size: 100,
            cpus: [cpus[0], cpus[cpus.len() - 1]],
        }
    }

    #[test]
    fn every_packet_is_accounted_for_at_rates_that_are_kept_and_that_are_not() {
        let mhz = crate::machine::Machine::look().tsc_mhz;
        let mut memory = Memory::default();
        for suite in ["aes-128-gcm-16", "aes-128-cbc+hmac-sha1-96"] {
            let model = Arc::new(Counted::default());
            for engine in [EngineChoice::Inline, EngineChoice::Device(model.clone())] {
                let setting = setting(engine, suite);
                let mut gateway = Gateway::start(&setting, &mut memory, mhz).unwrap();
                let rate = gateway.saturate(Duration::from_millis(20)).unwrap();
                assert!(rate > 1000.0, "{rate}");
                let mut times = Vec::new();
                let packets = 5_000;
                let trial =
                    gateway.trial(rate / 10.0, packets, 1.0, &|| true, |ticks| times.push(ticks));
                if let Trial::Counted { offered, .. } = trial.unwrap() {
                    assert_eq!((offered, times.len()), (packets, packets as usize));
                }
                // Four times too much: rings overflow, unless the generator cannot offer so much. Where others had the processor
                // while the rate was looked for, four times is not too much, and it goes on from there.
                let mut too_much = 4.0 * rate;
                while let Trial::Counted { offered, lost } =
                    gateway.trial(too_much, 50_000, 1.0, &|| true, |_| {}).unwrap()
                {
                    if lost as f64 > 1e-4 * offered as f64 {
                        break;
                    }
                    too_much *= 4.0;
                    assert!(too_much < 1e10, "no ring overflows");
                }
                assert_eq!(gateway.end().unwrap(), [""; 0]);
            }
            let counts = model.counts();
            // On a busy machine the device may be taken for lost.
            assert!(counts.descriptors > 0 && counts.completions <= counts.descriptors);
            assert!(counts.to_device / counts.descriptors > 100, "{counts:?}");
        }
        assert_eq!(memory.0.len(), 2, "memory is used again");
    }
}
