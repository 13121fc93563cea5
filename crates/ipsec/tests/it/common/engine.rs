//! Engines that the tests of the pipelines run over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use convoy_engine::lookaside::{Caps, KeyRefused, Request, run_copy};
use convoy_engine::{EngineKey, Front, KeyId, Lookaside};

/// What `CONVOY_TEST_ENGINE` asks for: "inline", which is the default, or "moody".
pub fn front() -> Front {
    static SEED: AtomicU64 = AtomicU64::new(1);
    match std::env::var("CONVOY_TEST_ENGINE").as_deref() {
        Err(_) | Ok("inline") => Front::inline(),
        Ok("moody") => Moody::front(SEED.fetch_add(1, Ordering::Relaxed), &Arc::default()),
        Ok(other) => panic!("CONVOY_TEST_ENGINE={other}: there are inline and moody"),
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

/// What a test asks of a moody engine.
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
        Caps { requests: 3, deadline: u64::MAX }
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
