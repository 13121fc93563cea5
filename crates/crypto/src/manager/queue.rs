//! The queue of a job manager: order and batching, nothing about cryptography.

use std::fmt;

use crate::OutOfMemory;

/// Processor of a queue's jobs.
pub trait Engine<J> {
    /// Processes the jobs and sets the status of each; one that makes no sense is marked so and
    /// left alone. Must not panic.
    fn run(&mut self, jobs: &mut [J]);
}

/// A ring of jobs that are processed in batches and handed back strictly in the order in which they
/// were submitted.
///
/// Jobs live in the ring, which is allocated when the queue is made; nothing is allocated later.
/// [`next_job`](Self::next_job) lends an empty job to be filled in, [`submit`](Self::submit) puts it
/// in line. When a batch of jobs waits, all are processed at once.
///
/// Each of the three positions counts jobs since the ring was last empty, and a job's place is its
/// number less whole rounds. At most `batch - 1` jobs are in line between calls: a job goes without
/// return only when none has been processed, so either fewer than a batch wait, or each submit hands
/// one back.
pub struct Queue<J, E> {
    engine: E,
    /// Its length is a power of two, not below `batch`.
    ring: Box<[J]>,
    batch: usize,
    /// The earliest job that was not handed back.
    head: usize,
    /// The first job that was not processed.
    done: usize,
    /// The job that is filled in next.
    tail: usize,
    /// True if the job at `tail` has been lent since the last submit.
    lent: bool,
}

impl<J: Default, E: Engine<J>> Queue<J, E> {
    /// Most jobs of a batch.
    pub const MAX_BATCH: usize = 4096;

    /// An empty queue whose jobs are processed when `batch` of them wait (1 to
    /// [`MAX_BATCH`](Self::MAX_BATCH); a number outside is moved to the nearer end).
    #[must_use]
    pub fn new(engine: E, batch: usize) -> Self {
        let batch = batch.clamp(1, Self::MAX_BATCH);
        let ring = (0..batch.next_power_of_two()).map(|_| J::default()).collect();
        Self { engine, ring, batch, head: 0, done: 0, tail: 0, lent: false }
    }

    /// The same, for processes that go on without memory.
    ///
    /// # Errors
    ///
    /// There is no memory for the ring.
    pub fn try_new(engine: E, batch: usize) -> Result<Self, OutOfMemory> {
        let batch = batch.clamp(1, Self::MAX_BATCH);
        let (mut ring, len) = (Vec::new(), batch.next_power_of_two());
        ring.try_reserve_exact(len).map_err(|_| OutOfMemory)?;
        ring.extend((0..len).map(|_| J::default()));
        let ring = ring.into_boxed_slice();
        Ok(Self { engine, ring, batch, head: 0, done: 0, tail: 0, lent: false })
    }

    /// The job to be filled in next, empty. Until it is submitted this is always the same job.
    ///
    /// Whatever was handed back before may be overwritten by this.
    #[inline]
    pub fn next_job(&mut self) -> &mut J {
        self.lent = true;
        let place = self.place(self.tail);
        let job = &mut self.ring[place];
        *job = J::default();
        job
    }

    /// The job that [`next_job`](Self::next_job) lent and that was not submitted, as it is now.
    #[inline]
    pub fn lent_job(&mut self) -> Option<&mut J> {
        let place = self.place(self.tail);
        self.ring.get_mut(place).filter(|_| self.lent)
    }

    /// Puts the job that [`next_job`](Self::next_job) lent in line, processes a batch if one is
    /// complete, and hands back the earliest job if it has been processed.
    ///
    /// Without a lent job nothing is done: an empty one might take the place of one that was handed
    /// back and is still being read.
    #[inline]
    pub fn submit(&mut self) -> Option<&mut J> {
        if !self.lent {
            return None;
        }
        self.lent = false;
        self.tail = self.tail.wrapping_add(1);
        if self.tail.wrapping_sub(self.done) >= self.batch {
            self.process();
        }
        self.completed()
    }

    /// Hands back the earliest job if it has been processed; processes nothing.
    #[inline]
    pub fn completed(&mut self) -> Option<&mut J> {
        if self.head == self.done {
            return None;
        }
        let place = self.place(self.head);
        self.head = self.head.wrapping_add(1);
        if self.head == self.tail && !self.lent {
            // Begin anew in front: the places last used are the warmest, and a batch is one slice.
            (self.head, self.done, self.tail) = (0, 0, 0);
        }
        Some(&mut self.ring[place])
    }

    /// Processes every job in line, and hands back the earliest.
    pub fn flush(&mut self) -> Option<&mut J> {
        if self.done != self.tail {
            self.process();
        }
        self.completed()
    }

    /// Jobs in line: submitted and not handed back.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.tail.wrapping_sub(self.head)
    }

    /// True if no job is in line.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Jobs that are processed together.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Processes jobs that the caller holds, in place and at once. Jobs in line stay there.
    pub fn burst(&mut self, jobs: &mut [J]) {
        self.engine.run(jobs);
    }

    /// Engine that processes the jobs.
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// The same, for work on jobs that pass the queue by.
    pub fn engine_mut(&mut self) -> &mut E {
        &mut self.engine
    }

    #[inline(always)]
    fn place(&self, number: usize) -> usize {
        number & (self.ring.len() - 1)
    }

    #[inline(never)]
    fn process(&mut self) {
        let (first, end) = (self.place(self.done), self.place(self.tail));
        if first < end {
            self.engine.run(&mut self.ring[first..end]);
        } else {
            let (front, back) = self.ring.split_at_mut(first);
            self.engine.run(back);
            if end > 0 {
                self.engine.run(&mut front[..end]);
            }
        }
        self.done = self.tail;
    }
}

impl<J, E: fmt::Debug> fmt::Debug for Queue<J, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("engine", &self.engine)
            .field("batch", &self.batch)
            .field("len", &self.tail.wrapping_sub(self.head))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    struct Numbered {
        number: usize,
        processed: usize,
    }

    /// Counts how often it ran and on how much.
    #[derive(Debug, Default)]
    struct Counting {
        batches: Vec<usize>,
    }

    impl Engine<Numbered> for Counting {
        fn run(&mut self, jobs: &mut [Numbered]) {
            self.batches.push(jobs.len());
            jobs.iter_mut().for_each(|job| job.processed += 1);
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Submit,
        SubmitUnasked,
        Ask,
        Completed,
        Flush,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            12 => Just(Step::Submit),
            1 => Just(Step::SubmitUnasked),
            1 => Just(Step::Ask),
            4 => Just(Step::Completed),
            1 => Just(Step::Flush),
        ];
        prop::collection::vec(step, 1..400)
    }

    /// Model of a queue, as simple as possible.
    struct Model {
        batch: usize,
        waiting: VecDeque<usize>,
        processed: VecDeque<usize>,
    }

    impl Model {
        fn submit(&mut self, number: usize) -> Option<usize> {
            self.waiting.push_back(number);
            if self.waiting.len() == self.batch {
                self.processed.append(&mut self.waiting);
            }
            self.processed.pop_front()
        }

        fn flush(&mut self) -> Option<usize> {
            self.processed.append(&mut self.waiting);
            self.processed.pop_front()
        }
    }

    proptest! {
        #[test]
        fn any_sequence_of_calls_does_as_the_model(batch in 1usize..20, steps in steps()) {
            let mut queue = Queue::new(Counting::default(), batch);
            let mut model =
                Model { batch, waiting: VecDeque::new(), processed: VecDeque::new() };
            let mut lent = false;
            for (number, step) in (1..).zip(steps) {
                let runs = queue.engine().batches.len();
                let (returned, expected) = match step {
                    Step::Submit => {
                        *queue.next_job() = Numbered { number, processed: 0 };
                        (queue.submit(), model.submit(number))
                    }
                    Step::SubmitUnasked => {
                        // Only what was asked for goes in line, and that is empty.
                        let expected = if lent { model.submit(0) } else { None };
                        (queue.submit(), expected)
                    }
                    Step::Ask => {
                        prop_assert_eq!(&*queue.next_job(), &Numbered::default());
                        (None, None)
                    }
                    Step::Completed => {
                        (queue.completed(), model.processed.pop_front())
                    }
                    Step::Flush => (queue.flush(), model.flush()),
                };
                let returned = returned.cloned();
                lent = match step {
                    Step::Ask => true,
                    Step::Submit | Step::SubmitUnasked => false,
                    Step::Completed | Step::Flush => lent,
                };
                prop_assert_eq!(returned.as_ref().map(|job| job.number), expected);
                prop_assert!(returned.is_none_or(|job| job.processed == 1));
                prop_assert_eq!(queue.len(), model.waiting.len() + model.processed.len());
                let empty = queue.is_empty();
                prop_assert_eq!(empty, model.waiting.is_empty() && model.processed.is_empty());
                if matches!(step, Step::Completed | Step::Ask) {
                    prop_assert_eq!(queue.engine().batches.len(), runs, "nothing is processed");
                }
                if matches!(step, Step::Flush) {
                    prop_assert!(model.waiting.is_empty());
                }
                prop_assert!(queue.len() < batch.max(2));
            }
        }

        #[test]
        fn a_returned_job_stays_until_the_next_is_asked_for(
            batch in 1usize..20,
            steps in steps(),
        ) {
            let mut queue = Queue::new(Counting::default(), batch);
            // Where jobs were handed back since the last that was asked for, and what they were.
            let mut readable: Vec<(*const Numbered, Numbered)> = Vec::new();
            for (number, step) in (1..).zip(steps) {
                let returned = match step {
                    Step::SubmitUnasked => queue.submit(),
                    Step::Submit | Step::Ask => {
                        readable.clear();
                        *queue.next_job() = Numbered { number, processed: 0 };
                        if matches!(step, Step::Ask) { None } else { queue.submit() }
                    }
                    Step::Completed => queue.completed(),
                    Step::Flush => queue.flush(),
                };
                readable.extend(returned.map(|job| (&raw const *job, job.clone())));
                for (place, job) in &readable {
                    let now = queue.ring.iter().find(|slot| std::ptr::eq(*slot, *place));
                    prop_assert_eq!(now, Some(job));
                }
            }
        }
    }

    #[test]
    fn batches_are_whole_slices_while_jobs_only_come_in() {
        let mut queue = Queue::new(Counting::default(), 64);
        for number in 0..640 {
            queue.next_job().number = number;
            queue.submit();
        }
        assert_eq!(queue.engine().batches, [64; 10]);
        assert_eq!(queue.len(), 63);
    }

    #[test]
    fn a_drained_ring_begins_in_front() {
        let mut queue = Queue::new(Counting::default(), 8);
        let first = &raw const *queue.next_job();
        for _ in 0..5 {
            queue.next_job();
            assert!(queue.submit().is_none());
        }
        let mut count = usize::from(queue.flush().is_some());
        while queue.completed().is_some() {
            count += 1;
        }
        assert_eq!((count, queue.flush().is_none()), (5, true));
        assert!(std::ptr::eq(queue.next_job(), first));
    }

    #[test]
    fn numbers_of_jobs_wrap_around() {
        let mut queue = Queue::new(Counting::default(), 4);
        let start = usize::MAX - 5;
        (queue.head, queue.done, queue.tail) = (start, start, start);
        let mut returned = Vec::new();
        for number in 0..20 {
            queue.next_job().number = number;
            returned.extend(queue.submit().map(|job| job.number));
        }
        returned.extend(queue.flush().map(|job| job.number));
        while let Some(job) = queue.completed() {
            returned.push(job.number);
        }
        assert_eq!(returned, (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn bursts_pass_the_queue_by() {
        let mut queue = Queue::new(Counting::default(), 8);
        queue.next_job().number = 7;
        assert!(queue.submit().is_none());
        let mut jobs = vec![Numbered::default(); 3];
        queue.burst(&mut jobs);
        assert!(jobs.iter().all(|job| job.processed == 1));
        assert_eq!((queue.len(), queue.engine().batches.as_slice()), (1, &[3][..]));
    }

    #[test]
    fn batches_out_of_range_are_moved_into_it() {
        let queue = |batch| Queue::<Numbered, _>::new(Counting::default(), batch).batch();
        assert_eq!((queue(0), queue(usize::MAX)), (1, 4096));
    }
}
