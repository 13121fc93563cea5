//! An engine that works elsewhere, with software beside it for what it leaves undone.

use std::mem;
use std::sync::Arc;

use convoy_crypto::time_stamp;
use convoy_packet::Pool;

use super::checks::Checks;
use super::keys::Keys;
use super::share::{Share, Sharing, WorkerLoad};
use super::window::{Place, Slot, Window, release};
use super::{Counts, Standing};
use crate::inline::run_jobs;
use crate::lookaside::{Batch, Caps, Health, Lookaside, Output, Request};
use crate::{EngineKey, Job, JobBurst, KeyId, Op, Status};

/// The first pause before a lost engine is tried again, in deadlines of it.
const FIRST_PAUSE: u64 = 10;
/// The longest, in nanoseconds.
const LONGEST_PAUSE: u64 = 60_000_000_000;
/// An engine that was up for so many pauses is as good as new.
const CALM: u64 = 10;
/// Batches under way for each request that the engine can hold, what software has finished included.
const WINDOW: usize = 2;
/// Requests that a worker which shares the work finishes behind one that is away, before it does that one, too.
const AHEAD: usize = 12;
/// With nothing else to do it waits for this part of the engine's deadline.
const PATIENCE: u64 = 100;

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
            pause: first_pause(caps),
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

    /// Does jobs here or has the engine do them, whatever is better.
    fn submit_shared(&mut self, now: u64, pool: &mut Pool, jobs: &mut JobBurst) -> usize {
        let Some(mut share) = self.share.take() else { return 0 };
        share.turn(now);
        let n = jobs.len();
        let worth = share.worth(&self.keys, jobs.as_slice());
        let work = share.work(jobs.as_slice());
        let fit = share.within_budget(&self.keys, jobs.as_slice());
        let taken = if fit < n {
            self.defer(now, pool, jobs, fit, &mut share)
        } else {
            match self.hand_over(now, pool, jobs, worth, &mut share) {
                0 => self.work_here(jobs, &mut share),
                taken => taken,
            }
        };
        if taken > 0 {
            share.took(work * taken as f64 / n as f64);
        } else {
            share.waits();
            if share.is_balanced() && !self.has_room() {
                self.overtake(pool);
            }
        }
        self.share = Some(share);
        taken
    }

    /// Sends jobs to the engine if that is better than to do them here, which would cost so much: all or none.
    fn hand_over(
        &mut self,
        now: u64,
        pool: &mut Pool,
        jobs: &mut JobBurst,
        here: f64,
        share: &mut Share,
    ) -> usize {
        let can_go = self.state == State::Up
            && self.away < self.caps.enough.min(self.caps.requests)
            && self.keys.all_offloaded();
        if !can_go || !share.goes_away(jobs.len(), here) {
            return 0;
        }
        let at = time_stamp();
        let taken = self.send(now, pool, jobs);
        if taken > 0 {
            share.handed_over(taken, here, time_stamp().saturating_sub(at));
        }
        taken
    }

    /// Does the first jobs here and has the engine do the others, as far as it takes them.
    fn defer(
        &mut self,
        now: u64,
        pool: &mut Pool,
        jobs: &mut JobBurst,
        fit: usize,
        share: &mut Share,
    ) -> usize {
        if !self.has_room() {
            return 0;
        }
        let mut taken = 0;
        if fit > 0 {
            let mut first = self.window.spare();
            // As much room as in the burst that is being emptied.
            jobs.drain_front(fit).for_each(|job| drop(first.jobs.push(job)));
            taken = self.work_here(&mut first.jobs, share);
            self.window.keep(first);
        }
        if self.state != State::Up {
            return taken;
        }
        let sent = if self.keys.all_offloaded() {
            self.send(now, pool, jobs)
        } else {
            let (mut ahead, aside) = self.apart(jobs);
            let sent = self.send(now, pool, &mut ahead.jobs);
            self.put_together(ahead, aside, jobs);
            sent
        };
        self.counts.deferred += sent as u64;
        taken + sent
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

    /// Does jobs here because that is better: all or none.
    fn work_here(&mut self, jobs: &mut JobBurst, share: &mut Share) -> usize {
        let n = self.work(jobs, |keys, jobs| {
            let begun = share.is_sample().then(time_stamp);
            run_jobs(|id| keys.get(id), jobs);
            share.did(keys, jobs, begun.map(|begun| time_stamp().saturating_sub(begun)));
        });
        self.counts.here += n as u64;
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

    /// Takes finished requests back, and looks after the engine. A worker that shares the work and has none
    /// does what the engine has not begun.
    fn look_away(&mut self, now: u64, pool: &mut Pool) {
        let Some(mut share) = self.share.take() else { return self.gather(now, pool) };
        let begun = time_stamp();
        let away = self.away;
        self.gather(now, pool);
        if self.away < away {
            share.handled(time_stamp().saturating_sub(begun));
        } else if share.is_balanced()
            && share.is_idle()
            && let Some(since) = self.window.behind_since()
        {
            let is_late = now.saturating_sub(since) > self.caps.deadline / PATIENCE;
            if !self.recall(pool) && is_late {
                self.overtake(pool);
            }
        }
        self.share = Some(share);
    }

    /// Does again what all wait for and somebody has begun with, who may have been stopped: what he makes of
    /// it is not used. That he keeps the request keeps him from getting others.
    #[cold]
    fn overtake(&mut self, pool: &mut Pool) {
        if self.recall(pool) || !self.window.owe_first() {
            return;
        }
        self.owes = true;
        self.counts.overtaken += self.redo(pool);
    }

    /// Does what the engine has not begun with, a request at a time; says whether there was one.
    fn recall(&mut self, pool: &mut Pool) -> bool {
        let Some(request) = self.engine.recall() else { return false };
        self.away = self.away.saturating_sub(1);
        let number = request.number();
        let slot = self.window.get_mut(number);
        let Some(slot) = slot.filter(|slot| matches!(slot.place, Place::Away(_))) else {
            self.take_back(request, pool);
            return true;
        };
        let Request { batch, outputs } = request;
        drop(batch);
        if let Some(own) = slot.batch.as_mut().and_then(Arc::get_mut) {
            run_jobs(|id| self.keys.at(id, number), own.jobs.as_mut_slice());
            mem::swap(&mut own.jobs, &mut slot.jobs);
        }
        slot.place = Place::Back;
        self.counts.recalled += slot.jobs.len() as u64;
        self.window.came_back();
        self.outputs.push(outputs);
        true
    }

    /// Takes finished requests back, and looks after the engine.
    fn gather(&mut self, now: u64, pool: &mut Pool) {
        self.take_all_back(now, pool);
        match self.state {
            State::Up => {
                let deadline = self.caps.deadline;
                let is_late = |since| now.saturating_sub(since) > deadline;
                if mem::take(&mut self.is_wrong)
                    || self.window.away_since().is_some_and(is_late)
                    || self.engine.health() == Health::Lost
                {
                    self.lose(now);
                }
            }
            State::Stopping if self.engine.quiesce(now) => {
                self.take_all_back(now, pool);
                self.away = 0;
                self.state = State::Down(now.saturating_add(self.pause));
            }
            State::Down(again) if now >= again => self.restart(now),
            State::Stopping | State::Down(_) => {}
        }
    }

    fn take_all_back(&mut self, now: u64, pool: &mut Pool) {
        while let Some(request) = self.engine.poll(now) {
            self.away = self.away.saturating_sub(1);
            self.take_back(request, pool);
        }
    }

    #[inline]
    fn take_back(&mut self, request: Request, pool: &mut Pool) {
        let Request { batch, mut outputs } = request;
        let number = batch.number;
        match self.window.get_mut(number) {
            Some(slot) if matches!(slot.place, Place::Away(_)) => {
                drop(batch);
                if !self.checks.pass_over(slot.len()) {
                    let key_of = |id| self.keys.at(id, number);
                    let (checked, wrong) = check(slot, &mut outputs, &mut self.checks, key_of);
                    self.counts.checked += checked;
                    self.counts.wrong += wrong;
                    self.is_wrong |= wrong > 0;
                }
                if self.is_wrong {
                    outputs.iter_mut().for_each(|output| output.finish(Status::Pending));
                }
                let undone = accept(slot, &mut outputs);
                if undone == slot.jobs.len() {
                    run_jobs(|id| self.keys.at(id, number), slot.jobs.as_mut_slice());
                } else if undone > 0 {
                    let jobs = slot.jobs.as_mut_slice().iter_mut();
                    for job in jobs.filter(|job| job.status == Status::Pending) {
                        run_jobs(|id| self.keys.at(id, number), std::slice::from_mut(job));
                    }
                }
                self.counts.refused += undone as u64;
                self.window.came_back();
            }
            Some(slot) if slot.place == Place::Owed => {
                drop(batch);
                self.counts.late += 1;
                // The engine has let go of the sources, so no more copies are needed.
                let copied = slot.jobs.len();
                let sources = slot.batch.as_mut().and_then(Arc::get_mut);
                for (at, job) in sources.into_iter().flat_map(|own| own.jobs.drain()).enumerate() {
                    if at < copied {
                        pool.free(job.frame);
                    } else {
                        drop(slot.jobs.push(job));
                    }
                }
            }
            _ => {
                self.counts.late += 1;
                release(batch, pool);
            }
        }
        self.outputs.push(outputs);
    }

    /// Gives the engine up: what it has not finished is owed from now on.
    #[cold]
    fn lose(&mut self, now: u64) {
        self.counts.losses += 1;
        self.state = State::Stopping;
        let was_up = now.saturating_sub(self.up_since);
        let was_calm = was_up > self.pause.saturating_mul(CALM) || self.counts.restarts == 0;
        self.pause = if was_calm {
            first_pause(self.caps)
        } else {
            self.pause.saturating_mul(2).min(LONGEST_PAUSE)
        };
        for (_, slot) in self.window.iter_mut() {
            if matches!(slot.place, Place::Away(_)) {
                slot.place = Place::Owed;
                self.owes = true;
            }
        }
    }

    /// Does owed jobs in software, as far as there are frames for copies of their sources, which the engine
    /// may still be reading. Returns how many it did.
    #[cold]
    fn redo(&mut self, pool: &mut Pool) -> u64 {
        let mut redone = 0;
        for (number, slot) in self.window.iter_mut() {
            if slot.place != Place::Owed {
                continue;
            }
            let sources = slot.batch.as_ref().map_or(&[][..], |batch| batch.jobs.as_slice());
            for job in sources.get(slot.jobs.len()..).unwrap_or_default() {
                let Some(frame) = pool.alloc() else { return redone };
                drop(slot.jobs.push(job.again(frame)));
            }
            run_jobs(|id| self.keys.at(id, number), slot.jobs.as_mut_slice());
            redone += slot.jobs.len() as u64;
            slot.batch = None;
            slot.place = Place::Back;
        }
        self.owes = false;
        self.window.came_back();
        redone
    }

    fn restart(&mut self, now: u64) {
        if !self.engine.restart(now) {
            self.pause = self.pause.saturating_mul(2).min(LONGEST_PAUSE);
            self.state = State::Down(now.saturating_add(self.pause));
            return;
        }
        self.state = State::Up;
        self.checks.begin_trial();
        self.up_since = now;
        self.counts.restarts += 1;
        let engine = &mut self.engine;
        let refused = self.keys.offer(|id, key| engine.install(id, key).is_ok());
        self.counts.keys_refused += refused as u64;
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

/// Time for which an engine lost for the first time is left alone, in nanoseconds.
fn first_pause(caps: Caps) -> u64 {
    caps.deadline.saturating_mul(FIRST_PAUSE).min(LONGEST_PAUSE)
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

/// Exchanges the jobs of a batch that nobody else has.
#[inline]
fn fill(batch: &mut Arc<Batch>, number: u64, jobs: &mut JobBurst) {
    if let Some(own) = Arc::get_mut(batch) {
        own.number = number;
        mem::swap(&mut own.jobs, jobs);
    }
}

/// Does some jobs again in software, and compares the results; jobs that software did are finished. Returns
/// how many were checked, and how many were wrong.
#[cold]
fn check<'k>(
    slot: &mut Slot,
    outputs: &mut [Output],
    checks: &mut Checks,
    key_of: impl Fn(KeyId) -> Option<&'k EngineKey>,
) -> (u64, u64) {
    let Some(own) = slot.batch.as_mut().and_then(Arc::get_mut) else { return (0, 0) };
    let jobs = own.jobs.as_mut_slice();
    let (mut checked, mut wrong) = (0, 0);
    for at in checks.places(jobs.len()) {
        let (Some(job), Some(output)) = (jobs.get_mut(at), outputs.get_mut(at)) else { break };
        let (bytes, status) = output.parts();
        if !matches!(status, Status::Done | Status::BadIcv) {
            continue;
        }
        run_jobs(&key_of, std::slice::from_mut(job));
        checked += 1;
        let is_same = job.status != Status::Done || job.frame.data() == bytes;
        wrong += u64::from(job.status != *status || !is_same);
    }
    (checked, wrong)
}

/// Takes the results of a batch, and returns how many jobs were left undone; these are pending.
#[inline]
fn accept(slot: &mut Slot, outputs: &mut [Output]) -> usize {
    let Some(own) = slot.batch.as_mut().and_then(Arc::get_mut) else { return 0 };
    let mut undone = 0;
    for (job, output) in own.jobs.as_mut_slice().iter_mut().zip(outputs) {
        let status = output.status();
        if matches!(job.op, Op::Spent) {
            // Software did it, to check the engine.
            continue;
        }
        if matches!(status, Status::Done | Status::BadIcv) {
            mem::swap(&mut job.frame, &mut output.frame);
            job.op = Op::Spent;
            job.status = status;
        } else {
            job.status = Status::Pending;
            undone += 1;
        }
    }
    mem::swap(&mut own.jobs, &mut slot.jobs);
    slot.place = Place::Back;
    undone
}
