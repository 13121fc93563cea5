//! Engines that the tests of the pipelines run over.

#[path = "../../../../engine/examples/aws_lc/driver.rs"]
mod aws_lc;

#[path = "../../../../cryptodev/tests/it/setup.rs"]
#[allow(dead_code, reason = "its own tests use more of it")]
mod dpdk;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use convoy_crypto::{Cpu, KeyMaterial, OpenKey, SealKey, Suite};
use convoy_engine::front::{Sharing, WorkerLoad};
use convoy_engine::lookaside::{Caps, KeyRefused, Request, run_copy};
use convoy_engine::model::{Faults, Model, Settings};
use convoy_engine::registry::Provider as _;
use convoy_engine::{EngineKey, Front, Job, KeyId, KeyTable, Lookaside, Op, Synchronous};

/// All of them.
pub const NAMES: [&str; 6] = ["inline", "moody", "shared", "model", "aws-lc", "cryptodev"];

thread_local! {
    static CHOSEN: RefCell<Option<&'static str>> = const { RefCell::new(None) };
}

/// Has this thread's pipelines run over another engine while `work` lasts.
pub fn with<T>(name: &'static str, work: impl FnOnce() -> T) -> T {
    let before = CHOSEN.replace(Some(name));
    let done = work();
    CHOSEN.set(before);
    done
}

/// Engine that this thread or `CONVOY_TEST_ENGINE` asks for; "inline" is the default.
fn name() -> &'static str {
    if let Some(name) = CHOSEN.with_borrow(|name| *name) {
        return name;
    }
    let Ok(wanted) = std::env::var("CONVOY_TEST_ENGINE") else { return "inline" };
    let known = NAMES.into_iter().find(|name| *name == wanted);
    known.unwrap_or_else(|| panic!("CONVOY_TEST_ENGINE={wanted}: there are {NAMES:?}"))
}

pub fn front() -> Front {
    static SEED: AtomicU64 = AtomicU64::new(1);
    let seed = || SEED.fetch_add(1, Ordering::Relaxed);
    match name() {
        "moody" => Moody::front(seed(), &Arc::default()),
        // A turn lasts as long as the clock of these tests stands still: a part is done here, and the rest away.
        "shared" => {
            let sharing = Sharing { balance: true, budget: 50_000 };
            Moody::front(seed(), &Arc::default()).sharing(sharing, &WorkerLoad::default())
        }
        // It finishes at once, for the clock of these tests stands still, and is wrong now and then.
        "model" => {
            let settings = Settings {
                latency: 0,
                jitter: 0,
                bandwidth: 0,
                deadline: 1,
                seed: seed(),
                ..Settings::default()
            };
            let faults =
                Faults { doubled: 500, refused: 1000, wrong: 20, full: 5000, ..Faults::default() };
            Front::with(Box::new(Model::new(settings, faults))).checking(1)
        }
        "aws-lc" => Front::at_once(Box::<AwsLcOrConvoy>::default()),
        "cryptodev" => cryptodev(),
        _ => Front::inline(),
    }
}

fn keeps_keys() -> bool {
    matches!(name(), "aws-lc" | "cryptodev")
}

/// A device of DPDK's own for each pipeline and direction; software where DPDK is not installed, which is told.
fn cryptodev() -> Front {
    let settings = convoy_cryptodev::Settings { queues: 1, ..dpdk::settings("crypto_openssl") };
    let engine = dpdk::open(&settings).and_then(|device| device.engine());
    engine.map_or_else(Front::inline, |engine| Front::with(engine).checking(1))
}

pub fn seal_key(cpu: &Cpu, suite: Suite, material: KeyMaterial) -> SealKey {
    let key = if keeps_keys() { SealKey::keeping } else { SealKey::new };
    key(cpu, suite, material).unwrap()
}

pub fn open_key(cpu: &Cpu, suite: Suite, material: KeyMaterial) -> OpenKey {
    let key = if keeps_keys() { OpenKey::keeping } else { OpenKey::new };
    key(cpu, suite, material).unwrap()
}

/// aws-lc for the suites that it has, and Convoy's own code for the others.
#[derive(Debug, Default)]
struct AwsLcOrConvoy {
    aws_lc: aws_lc::Engine,
    others: KeyTable<EngineKey>,
}

impl Synchronous for AwsLcOrConvoy {
    fn install(&mut self, id: KeyId, key: EngineKey) {
        let suite = match &key {
            EngineKey::Seal(key) => key.suite(),
            EngineKey::Open(key) => key.suite(),
        };
        let is_other = !aws_lc::AwsLc::new(&Cpu::detect().unwrap()).takes(suite);
        self.others.put(id, is_other.then(|| key.clone()));
        self.aws_lc.install(id, key);
    }

    fn remove(&mut self, id: KeyId) {
        self.others.remove(id);
        self.aws_lc.remove(id);
    }

    fn run(&mut self, jobs: &mut [Job]) {
        for job in jobs {
            let Some(key) = self.others.get(job.key) else {
                self.aws_lc.run(std::slice::from_mut(job));
                continue;
            };
            let mut packet = job.frame.data().to_vec();
            job.status = run_copy(key, job, &mut packet);
            job.frame.data_mut().copy_from_slice(&packet);
            job.op = Op::Spent;
        }
    }
}

/// Takes what it likes, and finishes when it likes and in any order.
#[derive(Debug, Default)]
pub struct Moody {
    keys: Vec<Option<EngineKey>>,
    held: Vec<Request>,
    random: u64,
    mood: Arc<Mood>,
}

/// Behaviour that a test asks of a moody engine.
#[derive(Debug, Default)]
pub struct Mood {
    /// It takes nothing.
    pub closed: AtomicBool,
    /// It gives nothing back.
    pub holding: AtomicBool,
}

impl Moody {
    pub fn front(random: u64, mood: &Arc<Mood>) -> Front {
        Front::with(Box::new(Self { random, mood: mood.clone(), ..Self::default() }))
    }

    fn next(&mut self) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 8) as usize
    }
}

impl Lookaside for Moody {
    fn caps(&self) -> Caps {
        Caps { requests: 3, enough: 3, deadline: u64::MAX }
    }
    fn install(&mut self, id: KeyId, key: &EngineKey) -> Result<(), KeyRefused> {
        self.keys.resize(self.keys.len().max(id.0 as usize + 1), None);
        self.keys[id.0 as usize] = Some(key.clone());
        Ok(())
    }
    fn remove(&mut self, id: KeyId) {
        self.keys[id.0 as usize] = None;
    }
    fn submit(&mut self, _: u64, mut request: Request) -> Result<(), Request> {
        let is_full = self.held.len() == 3 || self.random != 0 && self.next().is_multiple_of(4);
        if is_full || self.mood.closed.load(Ordering::Relaxed) {
            return Err(request);
        }
        let (jobs, outputs) = request.parts();
        for (job, output) in jobs.iter().zip(outputs) {
            output.bytes_mut().copy_from_slice(job.frame.data());
            let key = self.keys[job.key.0 as usize].as_ref().unwrap();
            let status = run_copy(key, job, output.bytes_mut());
            output.finish(status);
        }
        self.held.push(request);
        Ok(())
    }
    fn poll(&mut self, _: u64) -> Option<Request> {
        if self.mood.holding.load(Ordering::Relaxed) {
            return None;
        }
        if self.held.is_empty() || self.random != 0 && self.next().is_multiple_of(3) {
            return None;
        }
        let at = self.next() % self.held.len();
        Some(self.held.swap_remove(at))
    }
    fn quiesce(&mut self, _: u64) -> bool {
        self.random = 0;
        true
    }
}
