//! An engine that works elsewhere, with software beside it for what it leaves undone.

mod recovery;
mod results;
mod sharing;

use std::mem;
use std::sync::Arc;

use convoy_packet::Pool;

use super::checks::Checks;
use super::keys::Keys;
use super::share::{Share, Sharing, WorkerLoad};
use super::window::{Place, Slot, Window, release};
use super::{Counts, Standing};
use crate::inline::run_jobs;
use crate::lookaside::{Batch, Caps, Lookaside, Output, Request};
use crate::{EngineKey, Job, JobBurst, KeyId};

/// Batches under way for each request that the engine can hold, what software has finished included.
const WINDOW: usize = 2;
/// Requests that a worker which shares the work finishes behind one that is away, before it does that one, too.
const AHEAD: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Up,
    /// Lost; it is to let go of what it holds.
    Stopping,
    /// It has let go, and is tried again at that time.
    Down(u64),
}

/// One engine and what is under way.
#[derive(Debug)]
pub(super) struct Lane {
    engine: Box<dyn Lookaside>,
    caps: Caps,
    state: State,
    /// Next pause after which a lost engine is tried again, in nanoseconds.
    pause: u64,
    up_since: u64,
    keys: Keys,
    window: Window,
    /// Jobs that software finished while nothing was under way: they go out before what is in the window.
    direct: JobBurst,
    /// Batches that may be under way.
    most: usize,
    /// Division of the work; `None`: the engine gets all that it takes.
    share: Option<Box<Share>>,
    /// Requests that the engine holds, those given up included.
    away: usize,
    /// Some batches are owed.
    owes: bool,
    /// Outputs of requests that are back.
    outputs: Vec<Vec<Output>>,
    checks: Checks,
    /// A result was wrong: no other is believed.
    is_wrong: bool,
    counts: Counts,
}

impl Lane {
    pub(super) fn new(engine: Box<dyn Lookaside>) -> Self {
        let caps = engine.caps();
        Self {
            engine,
            caps,
            state: State::Up,
            pause: recovery::first_pause(caps),
            up_since: 0,
            keys: Keys::default(),
            window: Window::default(),
            direct: JobBurst::new(),
            most: WINDOW * caps.requests,
            share: None,
            away: 0,
            owes: false,
            outputs: Vec::with_capacity(caps.requests),
            checks: Checks::new(0),
            is_wrong: false,
            counts: Counts::default(),
        }
    }

    pub(super) const fn check(&mut self, one_in: u32) {
        self.checks = Checks::new(one_in);
    }

    pub(super) fn share(&mut self, sharing: Sharing, load: &WorkerLoad) {
        self.share = (sharing != Sharing::default()).then(|| Box::new(Share::new(sharing, load)));
        if self.share.is_some() {
            self.most = self.most.max(AHEAD);
        }
    }

    pub(super) fn rests(&mut self) {
        if let Some(share) = &mut self.share {
            share.rests();
        }
    }

    pub(super) const fn counts(&self) -> Counts {
        self.counts
    }

    pub(super) const fn standing(&self) -> Standing {
        match self.state {
            State::Up => Standing::Up,
            State::Stopping => Standing::Stopping,
            State::Down(_) => Standing::Down,
        }
    }

    pub(super) fn is_offloaded(&self, id: KeyId) -> bool {
        self.state == State::Up && self.keys.is_offloaded(id)
    }

    pub(super) fn mark(&self) -> u64 {
        self.window.next()
    }

    pub(super) fn has_passed(&self, mark: u64) -> bool {
        self.direct.is_empty() && self.window.base() >= mark
    }

    pub(super) fn is_idle(&self, id: KeyId) -> bool {
        self.keys.is_idle(id) && !self.direct.as_slice().iter().any(|job| job.key == id)
    }

    pub(super) fn install(&mut self, id: KeyId, key: EngineKey) {
        self.retire(id);
        let is_up = self.state == State::Up;
        let taken = is_up && self.engine.install(id, &key).is_ok();
        self.counts.keys_refused += u64::from(is_up && !taken);
        let class = self.share.as_mut().map(|share| share.class_of(&key));
        self.keys.insert(id, key, taken);
        class.into_iter().for_each(|class| self.keys.classify(id, class));
    }

    pub(super) fn remove(&mut self, id: KeyId) {
        self.retire(id);
        if self.state == State::Up {
            self.engine.remove(id);
        }
    }

    fn retire(&mut self, id: KeyId) {
        let is_needed = self.away > 0 || self.owes;
        self.keys.retire(id, self.window.next(), is_needed);
    }

    #[inline]
    pub(super) fn submit(&mut self, now: u64, pool: &mut Pool, jobs: &mut JobBurst) -> usize {
        if jobs.is_empty() {
            return 0;
        }
        if self.share.is_some() {
            return self.submit_shared(now, pool, jobs);
        }
        if self.state != State::Up {
            return self.work_instead(jobs);
        }
        if self.keys.all_offloaded() {
            return self.send(now, pool, jobs);
        }
        self.part(now, pool, jobs)
    }

    /// Sends jobs to the engine whose keys it has, and works on the others here. Either part keeps its
    /// order, and all jobs of a key are in one.
    fn part(&mut self, now: u64, pool: &mut Pool, jobs: &mut JobBurst) -> usize {
        let (mut ahead, mut aside) = self.apart(jobs);
        let taken = self.send(now, pool, &mut ahead.jobs) + self.work_instead(&mut aside.jobs);
        self.put_together(ahead, aside, jobs);
        taken
    }

    /// Jobs whose keys the engine has, and the others.
    fn apart(&mut self, jobs: &mut JobBurst) -> (Slot, Slot) {
        let (mut ahead, mut aside) = (self.window.spare(), self.window.spare());
        for job in jobs.drain() {
            let part = if self.keys.is_offloaded(job.key) { &mut ahead } else { &mut aside };
            // Each has as much room as the burst that is being emptied.
            drop(part.jobs.push(job));
        }
        (ahead, aside)
    }

    /// Gives back what was not taken of two parts.
    fn put_together(&mut self, mut ahead: Slot, mut aside: Slot, jobs: &mut JobBurst) {
        for job in ahead.jobs.drain().chain(aside.jobs.drain()) {
            drop(jobs.push(job));
        }
        self.window.keep(ahead);
        self.window.keep(aside);
    }

    fn has_room(&self) -> bool {
        self.window.len() < self.most
    }

    /// Sends jobs to the engine: all or none.
    #[inline]
    fn send(&mut self, now: u64, pool: &mut Pool, jobs: &mut JobBurst) -> usize {
        let n = jobs.len();
        if n == 0 || self.away >= self.caps.requests || !self.has_room() {
            return 0;
        }
        let mut outputs = self.outputs.pop().unwrap_or_default();
        if !prepare(&mut outputs, pool, jobs.as_slice()) {
            self.outputs.push(outputs);
            return self.work_instead(jobs);
        }
        let mut slot = self.window.spare();
        slot.draw_tickets(&mut self.keys, jobs.as_slice());
        let mut batch = slot.batch.take().unwrap_or_default();
        fill(&mut batch, self.window.next(), jobs);
        let request = Request { batch: Arc::clone(&batch), outputs };
        if let Err(Request { batch: ours, outputs }) = self.engine.submit(now, request) {
            drop(ours);
            self.outputs.push(outputs);
            fill(&mut batch, 0, jobs);
            slot.return_tickets(&mut self.keys, jobs.as_slice());
            slot.batch = Some(batch);
            self.window.keep(slot);
            return 0;
        }
        slot.batch = Some(batch);
        slot.place = Place::Away(now);
        self.window.push(slot);
        self.away += 1;
        self.counts.requests += 1;
        self.counts.jobs += n as u64;
        n
    }

    /// Does jobs here because the engine cannot: all or none.
    fn work_instead(&mut self, jobs: &mut JobBurst) -> usize {
        let n = self.work(jobs, |keys, jobs| run_jobs(|id| keys.get(id), jobs));
        self.counts.in_software += n as u64;
        n
    }

    /// Works on jobs in software: all or none. They are given out behind earlier ones of their keys.
    #[inline]
    fn work(&mut self, jobs: &mut JobBurst, work: impl FnOnce(&Keys, &mut [Job])) -> usize {
        let n = jobs.len();
        if self.window.len() == 0 && n <= self.direct.room() {
            return self.direct.take_from(jobs, |jobs| work(&self.keys, jobs));
        }
        if n == 0 || !self.has_room() {
            return 0;
        }
        let mut slot = self.window.spare();
        slot.draw_tickets(&mut self.keys, jobs.as_slice());
        work(&self.keys, jobs.as_mut_slice());
        mem::swap(&mut slot.jobs, jobs);
        slot.place = Place::Back;
        self.window.push(slot);
        n
    }

    #[inline]
    pub(super) fn flush(&mut self, now: u64) {
        self.engine.flush(now);
    }

    #[inline]
    pub(super) fn poll(&mut self, now: u64, pool: &mut Pool, done: &mut JobBurst) -> usize {
        if let Some(share) = &mut self.share {
            share.turn(now);
        }
        if self.away > 0 || self.state != State::Up {
            self.look_away(now, pool);
        }
        if self.owes {
            self.counts.redone += self.redo(pool);
        }
        let from = done.len();
        done.take_from(&mut self.direct, |_| {});
        if self.direct.is_empty() {
            self.window.give(&mut self.keys, done);
        }
        let given = done.len() - from;
        if given > 0
            && let Some(share) = &mut self.share
        {
            share.gave();
        }
        given
    }

    pub(super) fn is_ready(&self) -> bool {
        let is_well = self.state == State::Up && !self.owes;
        let may_recall = || self.share.is_some() && self.engine.can_recall();
        !is_well
            || !self.direct.is_empty()
            || self.window.is_ready()
            || self.engine.is_ready()
            || may_recall()
    }

    pub(super) fn wake_at(&self) -> Option<u64> {
        match self.state {
            _ if self.owes => Some(0),
            State::Stopping => Some(0),
            State::Up => self
                .window
                .away_since()
                .map(|since| since.saturating_add(self.caps.deadline).saturating_add(1)),
            State::Down(again) => Some(again),
        }
    }

    pub(super) fn release(&mut self, now: u64, pool: &mut Pool) -> usize {
        self.state = State::Stopping;
        self.owes = false;
        let is_quiet = self.engine.quiesce(now);
        self.direct.drain().for_each(|job| pool.free(job.frame));
        self.window.release(pool);
        while let Some(Request { batch, outputs }) = self.engine.poll(now) {
            self.away = self.away.saturating_sub(1);
            release(batch, pool);
            self.outputs.push(outputs);
        }
        for output in self.outputs.drain(..).flatten() {
            pool.free(output.frame);
        }
        if is_quiet {
            self.away = 0;
        }
        self.away
    }
}

/// Makes an output for each job. `false` when there are no frames for that.
#[inline]
fn prepare(outputs: &mut Vec<Output>, pool: &mut Pool, jobs: &[Job]) -> bool {
    while outputs.len() < jobs.len() {
        let Some(frame) = pool.alloc() else { return false };
        outputs.push(Output::new(frame));
    }
    jobs.iter().zip(outputs).all(|(job, output)| output.prepare(&job.frame))
}

/// Exchanges the jobs of a batch that has no other holder.
#[inline]
fn fill(batch: &mut Arc<Batch>, number: u64, jobs: &mut JobBurst) {
    if let Some(own) = Arc::get_mut(batch) {
        own.number = number;
        mem::swap(&mut own.jobs, jobs);
    }
}
