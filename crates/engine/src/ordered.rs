//! The one place where the order of jobs is restored.

use std::collections::VecDeque;

use crate::{Caps, Engine, EngineKey, Health, Job, JobBurst, KeyId};

/// Wraps an engine so that jobs come back in the order they were submitted.
///
/// For an engine that keeps order by itself this adds nothing. Otherwise finished jobs wait here
/// until all that were submitted before them are finished too.
#[derive(Debug)]
pub struct Ordered {
    engine: Box<dyn Engine>,
    in_order: bool,
    /// Sequence of the next job to submit and of the next to release.
    next: u64,
    release: u64,
    /// Jobs that finished early, by distance from `release`.
    waiting: VecDeque<Option<Job>>,
    finished: JobBurst,
    /// The submitter's `context.value` of each job in flight, which here carries the ticket.
    values: VecDeque<u64>,
}

impl Ordered {
    /// Wraps `engine`, which must be empty.
    #[must_use]
    pub fn new(engine: Box<dyn Engine>) -> Self {
        let Caps { max_in_flight, in_order } = engine.caps();
        let room = if in_order { 0 } else { max_in_flight };
        Self {
            engine,
            in_order,
            next: 0,
            release: 0,
            waiting: VecDeque::with_capacity(room),
            finished: JobBurst::new(),
            values: VecDeque::with_capacity(room),
        }
    }

    /// Gives each job a ticket in place of `context.value`, which is kept here meanwhile.
    fn stamp(&mut self, jobs: &mut JobBurst) {
        for job in jobs.as_mut_slice() {
            self.values.push_back(job.context.value);
            self.waiting.push_back(None);
            job.context.value = self.next;
            self.next += 1;
        }
    }

    /// Takes the tickets of the jobs from `from` on back.
    fn unstamp(&mut self, jobs: &mut JobBurst) {
        for job in jobs.as_mut_slice().iter_mut().rev() {
            if let Some(value) = self.values.pop_back() {
                job.context.value = value;
            }
            self.waiting.pop_back();
            self.next -= 1;
        }
    }

    fn gather(&mut self) {
        while self.engine.poll(&mut self.finished) > 0 {
            for job in self.finished.drain() {
                let at = (job.context.value - self.release) as usize;
                if let Some(place) = self.waiting.get_mut(at) {
                    *place = Some(job);
                }
            }
        }
    }
}

impl Engine for Ordered {
    fn caps(&self) -> Caps {
        Caps { in_order: true, ..self.engine.caps() }
    }

    fn install(&mut self, id: KeyId, key: EngineKey) {
        self.engine.install(id, key);
    }

    fn remove(&mut self, id: KeyId) {
        self.engine.remove(id);
    }

    fn submit(&mut self, jobs: &mut JobBurst) -> usize {
        if self.in_order {
            return self.engine.submit(jobs);
        }
        self.stamp(jobs);
        let taken = self.engine.submit(jobs);
        self.unstamp(jobs);
        taken
    }

    fn poll(&mut self, done: &mut JobBurst) -> usize {
        if self.in_order {
            return self.engine.poll(done);
        }
        self.gather();
        let mut released = 0;
        while done.room() > 0 {
            let Some(mut job) = self.waiting.front_mut().and_then(Option::take) else { break };
            self.waiting.pop_front();
            job.context.value = self.values.pop_front().unwrap_or_default();
            self.release += 1;
            released += 1;
            if let Err(job) = done.push(job) {
                // Unreachable: room was checked. Dropping the job would be a counted leak.
                drop(job);
            }
        }
        released
    }

    fn flush(&mut self) {
        self.engine.flush();
    }

    fn health(&self) -> Health {
        self.engine.health()
    }

    fn quiesce(&mut self) {
        self.engine.quiesce();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Context, Op, Span, Status};
    use convoy_packet::{Arena, FrameSize, Pool};

    /// Takes a part of what it is given and finishes it in a shuffled order.
    #[derive(Debug)]
    struct Shuffling {
        held: Vec<Job>,
        random: u64,
    }

    impl Shuffling {
        fn next(&mut self) -> usize {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            self.random as usize
        }
    }

    impl Engine for Shuffling {
        fn caps(&self) -> Caps {
            Caps { max_in_flight: 512, in_order: false }
        }
        fn install(&mut self, _: KeyId, _: EngineKey) {}
        fn remove(&mut self, _: KeyId) {}
        fn submit(&mut self, jobs: &mut JobBurst) -> usize {
            let n = (self.next() % (jobs.len() + 1)).min(512 - self.held.len());
            self.held.extend(jobs.drain_front(n));
            n
        }
        fn poll(&mut self, done: &mut JobBurst) -> usize {
            let mut n = 0;
            while !self.held.is_empty() && done.room() > 0 && !self.next().is_multiple_of(4) {
                let at = self.next() % self.held.len();
                let mut job = self.held.swap_remove(at);
                job.status = Status::Done;
                done.push(job).unwrap();
                n += 1;
            }
            n
        }
    }

    fn job(pool: &mut Pool, value: u64) -> Job {
        Job {
            frame: pool.alloc().unwrap(),
            text: Span::default(),
            key: KeyId(0),
            status: Status::Pending,
            header: 0,
            aad_len: 0,
            aad: [0; 20],
            op: Op::Open([0; 12].into()),
            context: Context { slot: 7, note: 9, value },
        }
    }

    #[test]
    fn jobs_come_back_in_order_with_their_context() {
        let arena = Arena::map(2048, FrameSize::for_packet(100)).unwrap();
        let mut pool = arena.pool();
        for seed in 1..50 {
            let mut engine = Ordered::new(Box::new(Shuffling { held: vec![], random: seed }));
            let (mut jobs, mut done) = (JobBurst::new(), JobBurst::new());
            let (mut made, mut seen) = (0, 0);
            while seen < 2000 {
                while made < 2000 && jobs.room() > 200 {
                    // Values that are no ticket numbers, so that mixing the two up shows.
                    jobs.push(job(&mut pool, made * 3 + 1000)).unwrap();
                    made += 1;
                }
                engine.submit(&mut jobs);
                engine.poll(&mut done);
                for job in done.drain() {
                    assert_eq!(job.context, Context { slot: 7, note: 9, value: seen * 3 + 1000 });
                    assert_eq!(job.status, Status::Done);
                    seen += 1;
                    pool.free(job.frame);
                }
            }
        }
        assert_eq!(arena.leaked(), 0);
    }
}
