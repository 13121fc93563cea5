//! A look-aside device made of software: it has memory, a link and a clock of its own, and faults on demand.
//!
//! It shows what pipelines do with a device that is slow, finishes in any order, lies or disappears. What it
//! computes, it computes by [`convoy_crypto`] on the core that submits.

mod device;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::lookaside::{Caps, Health, KeyRefused, Lookaside, Request};
use crate::{EngineKey, KeyId, KeyTable, Status};
use device::{Completion, Device, Work};

/// Behaviour of a device while nothing fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Requests that the queue takes.
    pub requests: usize,
    /// Jobs that the queue takes. A longer request is taken when the queue is empty.
    pub descriptors: usize,
    /// Keys that the device has room for.
    pub sessions: usize,
    /// Nanoseconds from the arrival of a packet in the device to its result.
    pub latency: u64,
    /// Up to so many nanoseconds more, at random for each job: so jobs finish in any order.
    pub jitter: u64,
    /// Bytes a second of the link, each way; 0 for no limit.
    pub bandwidth: u64,
    /// Nanoseconds for which a request may be away before the device counts as lost.
    pub deadline: u64,
    /// Start of the random numbers.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            requests: 32,
            descriptors: 2048,
            sessions: 1024,
            latency: 20_000,
            jitter: 5_000,
            bandwidth: 8_000_000_000,
            deadline: 1_000_000,
            seed: 1,
        }
    }
}

/// Failures of a device: so many times in 100,000 jobs, unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The device does the job and says nothing.
    pub lost: u32,
    /// It says twice that the job is done, the second time when it may be another's.
    pub doubled: u32,
    /// It finishes thirty deadlines late.
    pub late: u32,
    /// It says that it could not do the job.
    pub refused: u32,
    /// One byte of the result is wrong.
    pub wrong: u32,
    /// It stops for forty deadlines.
    pub stalled: u32,
    /// It is gone, half-way through its writes.
    pub removed: u32,
    /// Of so many in 100,000 requests the queue says that it is full.
    pub full: u32,
    /// True if the host learns that the device is gone.
    pub tells: bool,
    /// Nanoseconds after its first job at which the device stops, once, until it begins anew.
    pub stall_at: Option<u64>,
    /// Nanoseconds after its first job at which the device is gone, once.
    pub remove_at: Option<u64>,
    /// Nanoseconds after which a device that was removed is back.
    pub absent: u64,
    /// True if the device never says that it has let go.
    pub clings: bool,
}

/// Traffic over the link of one or more devices, counted.
#[derive(Debug, Default)]
pub struct Link {
    to_device: AtomicU64,
    from_device: AtomicU64,
    descriptors: AtomicU64,
    completions: AtomicU64,
}

/// Counters of a [`Link`], read at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Bytes of packets that devices read.
    pub to_device: u64,
    /// Bytes of packets that they wrote.
    pub from_device: u64,
    /// Descriptors of jobs that they read.
    pub descriptors: u64,
    /// Completions that they wrote.
    pub completions: u64,
}

impl Link {
    /// Bytes, descriptors and completions so far.
    #[must_use]
    pub fn counts(&self) -> LinkCounts {
        let [to_device, from_device, descriptors, completions] =
            [&self.to_device, &self.from_device, &self.descriptors, &self.completions]
                .map(|count| count.load(Ordering::Relaxed));
        LinkCounts { to_device, from_device, descriptors, completions }
    }

    fn read(&self, bytes: usize) {
        self.to_device.fetch_add(bytes as u64, Ordering::Relaxed);
        self.descriptors.fetch_add(1, Ordering::Relaxed);
    }

    fn written(&self, bytes: usize) {
        self.from_device.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn completed(&self) {
        self.completions.fetch_add(1, Ordering::Relaxed);
    }
}

/// The host's side of the device: what a driver does.
#[derive(Debug)]
pub struct Model {
    settings: Settings,
    faults: Faults,
    device: Device,
    keys: KeyTable<EngineKey>,
    sessions: usize,
    held: Vec<Held>,
    finished: VecDeque<Request>,
    /// Completions that belonged to no job under way.
    stray: u64,
    stopping: Option<u64>,
    link: Option<Arc<Link>>,
}

/// A request with the device.
#[derive(Debug)]
struct Held {
    request: Request,
    /// True for each job that is still to be completed.
    pending: Vec<bool>,
    left: usize,
}

/// Deadlines that the device takes to stop.
const STOP: f64 = 0.5;

impl Model {
    /// A device with an empty queue and without keys.
    #[must_use]
    pub fn new(settings: Settings, faults: Faults) -> Self {
        Self {
            settings,
            faults,
            device: Device::new(settings, faults),
            keys: KeyTable::new(),
            sessions: 0,
            held: Vec::new(),
            finished: VecDeque::new(),
            stray: 0,
            stopping: None,
            link: None,
        }
    }

    /// The same, and what goes over its link is counted.
    #[must_use]
    pub fn counting(mut self, link: Arc<Link>) -> Self {
        self.link = Some(link);
        self
    }

    /// Completions so far that belonged to no job under way, and were ignored.
    #[must_use]
    pub const fn stray(&self) -> u64 {
        self.stray
    }

    /// Looks up what a completion says. What is not expected is counted and ignored.
    fn complete(&mut self, completion: Completion) {
        let Completion { request, at, status } = completion;
        let held = self.held.iter_mut().position(|held| held.request.number() == request);
        let Some(place) = held else {
            self.stray += 1;
            return;
        };
        let Some(held) = self.held.get_mut(place) else { return };
        let is_expected = held.pending.get_mut(at).is_some_and(std::mem::take);
        if !is_expected {
            self.stray += 1;
            return;
        }
        if let Some(output) = held.request.parts().1.get_mut(at) {
            output.finish(status);
        }
        held.left -= 1;
        if held.left == 0 {
            self.finished.push_back(self.held.swap_remove(place).request);
        }
    }

    fn descriptors_in_use(&self) -> usize {
        self.held.iter().map(|held| held.left).sum()
    }

    /// The device's turn: writes what is due to host memory, and completions.
    fn turn(&mut self, now: u64) {
        let (held, link) = (&mut self.held, self.link.as_ref());
        let write = |work: &Work, bytes: &[u8]| {
            link.into_iter().for_each(|link| link.written(bytes.len()));
            let place = held.iter_mut().find(|held| held.request.number() == work.request);
            let output = place.and_then(|held| held.request.parts().1.get_mut(work.at));
            if let Some(to) = output.and_then(|output| output.bytes_mut().get_mut(..bytes.len())) {
                to.copy_from_slice(bytes);
            }
        };
        self.device.turn(now, write);
        while let Some(completion) = self.device.completion() {
            self.link.iter().for_each(|link| link.completed());
            self.complete(completion);
        }
    }
}

impl Lookaside for Model {
    fn caps(&self) -> Caps {
        let Settings { requests, deadline, .. } = self.settings;
        Caps { requests, enough: requests, deadline }
    }

    fn install(&mut self, id: KeyId, key: &EngineKey) -> Result<(), KeyRefused> {
        self.remove(id);
        if self.sessions >= self.settings.sessions {
            return Err(KeyRefused::Full);
        }
        self.keys.put(id, Some(key.clone()));
        self.sessions += 1;
        Ok(())
    }

    fn remove(&mut self, id: KeyId) {
        if self.keys.remove(id).is_some() {
            self.sessions -= 1;
        }
    }

    fn submit(&mut self, now: u64, request: Request) -> Result<(), Request> {
        let n = request.jobs().len();
        let used = self.descriptors_in_use();
        let is_full = self.held.len() >= self.settings.requests
            || used > 0 && used + n > self.settings.descriptors;
        if is_full || self.device.chance(self.faults.full) {
            return Err(request);
        }
        for (at, job) in request.jobs().iter().enumerate() {
            let key = self.keys.get(job.key);
            self.link.iter().for_each(|link| link.read(job.frame.len()));
            self.device.fetch(now, request.number(), at, job, key);
        }
        self.held.push(Held { request, pending: vec![true; n], left: n });
        Ok(())
    }

    fn poll(&mut self, now: u64) -> Option<Request> {
        if self.finished.is_empty() {
            self.turn(now);
        }
        self.finished.pop_front()
    }

    fn health(&self) -> Health {
        if self.faults.tells && self.device.is_gone() { Health::Lost } else { Health::Up }
    }

    fn quiesce(&mut self, now: u64) -> bool {
        if self.faults.clings {
            return false;
        }
        let stop = (self.settings.deadline as f64 * STOP) as u64;
        let quiet_at = *self.stopping.get_or_insert(now + stop);
        // Until then it goes on, and so may its writes: to outputs that have no owner.
        self.turn(now);
        if now < quiet_at {
            return false;
        }
        self.device.stop(now);
        self.keys.clear();
        self.sessions = 0;
        self.finished.extend(self.held.drain(..).map(|held| held.request));
        for request in &mut self.finished {
            request.parts().1.iter_mut().for_each(|output| output.finish(Status::Pending));
        }
        true
    }

    fn restart(&mut self, now: u64) -> bool {
        let is_back = self.device.start(now);
        if is_back {
            self.stopping = None;
        }
        is_back
    }
}
