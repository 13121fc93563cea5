//! One case at a time: the test says what the engine finishes, and when.

use std::sync::{Arc, Mutex};

use super::{FORMS, arena, assert_all_back, in_software};
use crate::front::{Counts, Front, Sharing, Standing, WorkerLoad};
use crate::inline::run_copy;
use crate::lookaside::{Caps, Health, KeyRefused, Lookaside, Request};
use crate::{EngineKey, Job, JobBurst, KeyId, Status};
use convoy_packet::Pool;

const DEADLINE: u64 = 1000;

/// State of the engine that the test sees and sets.
#[derive(Debug, Default)]
struct Device {
    held: Vec<Request>,
    finished: Vec<Request>,
    keys: Vec<(KeyId, EngineKey)>,
    is_full: bool,
    is_gone: bool,
    has_begun: bool,
    refuses: Option<KeyId>,
    lets_go: bool,
    restarts: bool,
    asked_to_restart: Vec<u64>,
}

impl Device {
    /// Finishes the request with this number: all its jobs, or those that `which` names.
    fn finish(&mut self, number: u64, which: impl Fn(&Job) -> bool) {
        let at = self.held.iter().position(|request| request.number() == number).unwrap();
        let mut request = self.held.remove(at);
        let (jobs, outputs) = request.parts();
        for (job, output) in jobs.iter().zip(outputs) {
            if which(job) {
                output.bytes_mut().copy_from_slice(job.frame.data());
                let key = &self.keys.iter().rev().find(|(id, _)| *id == job.key).unwrap().1;
                let status = run_copy(key, job, output.bytes_mut());
                output.finish(status);
            }
        }
        self.finished.push(request);
    }
}

#[derive(Debug, Clone, Default)]
struct Handle(Arc<Mutex<Device>>);

impl Handle {
    fn with<T>(&self, f: impl FnOnce(&mut Device) -> T) -> T {
        f(&mut self.0.lock().unwrap())
    }
}

impl Lookaside for Handle {
    fn caps(&self) -> Caps {
        Caps { requests: 4, enough: 2, deadline: DEADLINE }
    }
    fn install(&mut self, id: KeyId, key: &EngineKey) -> Result<(), KeyRefused> {
        self.with(|device| {
            if device.refuses == Some(id) {
                return Err(KeyRefused::Full);
            }
            device.keys.push((id, key.clone()));
            Ok(())
        })
    }
    fn remove(&mut self, _: KeyId) {}
    fn submit(&mut self, _: u64, request: Request) -> Result<(), Request> {
        self.with(|device| {
            if device.is_full {
                return Err(request);
            }
            device.held.push(request);
            Ok(())
        })
    }
    fn poll(&mut self, _: u64) -> Option<Request> {
        self.with(|device| device.finished.pop())
    }
    fn recall(&mut self) -> Option<Request> {
        self.with(|device| {
            let waits = !device.has_begun && !device.held.is_empty();
            waits.then(|| device.held.remove(0))
        })
    }
    fn can_recall(&self) -> bool {
        self.with(|device| !device.has_begun && !device.held.is_empty())
    }
    fn health(&self) -> Health {
        self.with(|device| if device.is_gone { Health::Lost } else { Health::Up })
    }
    fn quiesce(&mut self, _: u64) -> bool {
        self.with(|device| {
            if device.lets_go {
                device.finished.append(&mut device.held);
            }
            device.lets_go
        })
    }
    fn restart(&mut self, now: u64) -> bool {
        self.with(|device| {
            device.asked_to_restart.push(now);
            device.keys.clear();
            device.is_gone &= !device.restarts;
            device.restarts
        })
    }
}

/// A front end with two keys, a device that the test drives, and a few frames.
struct Bench {
    front: Front,
    device: Handle,
    pool: Pool,
    keys: [EngineKey; 2],
    now: u64,
    numbers: u64,
}

impl Bench {
    fn new(frames: u32) -> Self {
        Self::sharing(frames, Sharing::default())
    }

    fn sharing(frames: u32, sharing: Sharing) -> Self {
        let device = Handle::default();
        let mut front =
            Front::with(Box::new(device.clone())).sharing(sharing, &WorkerLoad::default());
        let keys = [FORMS[0].keys(1).0, FORMS[1].keys(2).0];
        (0..).map(KeyId).zip(&keys).for_each(|(id, key)| front.install(id, key.clone()));
        Self { front, device, pool: arena(frames).pool(), keys, now: 0, numbers: 0 }
    }

    /// Submits a job for each key named; returns their numbers and what is left.
    fn submit(&mut self, keys: &[u32]) -> (Vec<u64>, JobBurst) {
        let mut jobs = JobBurst::new();
        let mut numbers = Vec::new();
        for key in keys {
            self.numbers += 1;
            numbers.push(self.numbers);
            let form = FORMS[*key as usize];
            jobs.push(form.seal(&mut self.pool, *key, self.numbers, 3)).unwrap();
        }
        let n = self.front.submit(self.now, &mut self.pool, &mut jobs);
        assert_eq!(n + jobs.len(), keys.len());
        (numbers, jobs)
    }

    /// The numbers of the jobs that are finished, each checked against software.
    fn poll(&mut self) -> Vec<u64> {
        let mut done = JobBurst::new();
        while self.front.poll(self.now, &mut self.pool, &mut done) > 0 {}
        let jobs: Vec<Job> = done.drain().collect();
        let check = |job: Job| {
            let (key, number) = (job.key.0, job.context.value);
            let again = FORMS[key as usize].seal(&mut self.pool, key, number, 3);
            let wanted = in_software(&self.keys[key as usize], &again);
            assert_eq!((job.status, job.frame.data().to_vec()), wanted, "job {number}");
            assert_eq!((job.context.slot, job.context.note), (key, !key));
            [job.frame, again.frame].into_iter().for_each(|frame| self.pool.free(frame));
            number
        };
        jobs.into_iter().map(check).collect()
    }

    fn finish(&mut self, number: u64) {
        self.device.with(|device| device.finish(number, |_| true));
    }

    fn end(mut self) -> Counts {
        assert_eq!(self.poll(), [], "nothing is left");
        self.device.with(|device| device.lets_go = true);
        assert_eq!(self.front.release(self.now, &mut self.pool), 0);
        assert_all_back(self.pool);
        self.front.counts()
    }
}

#[test]
fn order_is_kept_within_a_key_and_not_beyond() {
    let mut bench = Bench::new(100);
    let (first, _) = bench.submit(&[0, 0]);
    let (other, _) = bench.submit(&[1, 1]);
    let mark = bench.front.mark();
    let (mixed, _) = bench.submit(&[1, 0, 1, 0]);
    bench.finish(2);
    assert_eq!(
        bench.poll(),
        [],
        "its jobs of key 1 wait for those before them, and so do those of 0"
    );
    bench.finish(1);
    assert_eq!(bench.poll(), [other[0], other[1], mixed[0], mixed[2]]);
    assert!(!bench.front.is_idle(KeyId(0)) && bench.front.is_idle(KeyId(1)));
    assert!(!bench.front.has_passed(mark));
    bench.finish(0);
    assert_eq!(bench.poll(), [first[0], first[1], mixed[1], mixed[3]]);
    assert!(bench.front.has_passed(mark));
    let counts = bench.end();
    assert_eq!(counts, Counts { requests: 3, jobs: 8, ..Counts::default() });
}

#[test]
fn a_full_engine_leaves_jobs_in_their_order() {
    let mut bench = Bench::new(100);
    bench.device.with(|device| device.is_full = true);
    let (numbers, mut left) = bench.submit(&[0, 1, 0]);
    let order: Vec<u64> = left.as_slice().iter().map(|job| job.context.value).collect();
    assert_eq!(order, numbers);
    bench.device.with(|device| device.is_full = false);
    assert_eq!(bench.front.submit(0, &mut bench.pool, &mut left), 3);
    for _ in 0..3 {
        assert_eq!(bench.submit(&[0]).1.len(), 0);
    }
    let (_, mut left) = bench.submit(&[0]);
    assert_eq!(left.len(), 1, "it holds four requests");
    left.drain().for_each(|job| bench.pool.free(job.frame));
    (0..4).for_each(|number| bench.finish(number));
    assert_eq!(bench.poll(), [1, 2, 3, 4, 5, 6]);
    bench.end();
}

#[test]
fn without_frames_for_results_software_works() {
    let mut bench = Bench::new(5);
    let (numbers, _) = bench.submit(&[0, 0, 1]);
    bench.device.with(|device| assert!(device.held.is_empty()));
    // The check needs a frame of its own.
    let mut done = JobBurst::new();
    bench.front.poll(0, &mut bench.pool, &mut done);
    let order: Vec<u64> = done.as_slice().iter().map(|job| job.context.value).collect();
    assert_eq!(order, numbers);
    assert!(done.as_slice().iter().all(|job| job.status == Status::Done));
    done.drain().for_each(|job| bench.pool.free(job.frame));
    assert_eq!(bench.end(), Counts { in_software: 3, ..Counts::default() });
}

#[test]
fn a_key_that_is_refused_runs_in_software_and_waits_for_nobody_else() {
    let mut bench = Bench::new(100);
    bench.device.with(|device| device.refuses = Some(KeyId(1)));
    bench.front.install(KeyId(1), bench.keys[1].clone());
    assert!(bench.front.is_offloaded(KeyId(0)) && !bench.front.is_offloaded(KeyId(1)));
    let (numbers, _) = bench.submit(&[0, 1, 0, 1]);
    assert_eq!(bench.poll(), [numbers[1], numbers[3]]);
    bench.finish(0);
    assert_eq!(bench.poll(), [numbers[0], numbers[2]]);
    // Once it is taken, its jobs wait for those that software did, which are out already.
    bench.device.with(|device| device.refuses = None);
    bench.front.install(KeyId(1), bench.keys[1].clone());
    let (numbers, _) = bench.submit(&[1]);
    assert_eq!(bench.poll(), []);
    bench.device.with(|device| assert_eq!(device.held.len(), 1));
    let number = bench.device.with(|device| device.held[0].number());
    bench.finish(number);
    assert_eq!(bench.poll(), numbers);
    let counts = bench.end();
    assert_eq!((counts.in_software, counts.keys_refused), (2, 1));
}

#[test]
fn what_the_engine_leaves_undone_software_does() {
    let mut bench = Bench::new(100);
    let (numbers, _) = bench.submit(&[0, 1, 0, 1]);
    bench.device.with(|device| device.finish(0, |job| job.key == KeyId(0)));
    assert_eq!(bench.poll(), numbers);
    assert_eq!(bench.end().refused, 2);
}

#[test]
fn a_late_engine_is_given_up_and_all_is_done_in_order() {
    let mut bench = Bench::new(100);
    let (first, _) = bench.submit(&[0, 1, 0]);
    bench.now = DEADLINE;
    let (second, _) = bench.submit(&[1, 0]);
    assert_eq!(bench.poll(), []);
    assert_eq!(bench.front.wake_at(), Some(DEADLINE + 1));
    bench.now = DEADLINE + 1;
    assert_eq!(bench.poll(), [first, second].concat());
    assert_eq!(bench.front.standing(), Some(Standing::Stopping));
    // What comes meanwhile is done here; what comes back later is not given out twice.
    let (third, _) = bench.submit(&[1]);
    assert_eq!(bench.poll(), third);
    bench.finish(0);
    assert_eq!(bench.poll(), []);
    bench.device.with(|device| device.lets_go = true);
    assert_eq!(bench.poll(), []);
    assert_eq!(bench.front.standing(), Some(Standing::Down));
    let counts = bench.end();
    assert_eq!((counts.losses, counts.redone, counts.late, counts.in_software), (1, 5, 2, 1));
}

/// Sources that the engine may still be reading are copied; without frames for that they wait for the
/// engine to let go.
#[test]
fn jobs_are_done_again_as_far_as_there_are_frames() {
    let mut bench = Bench::new(10);
    let (numbers, _) = bench.submit(&[0, 0, 0, 0]);
    // Two frames are left.
    bench.device.with(|device| device.is_gone = true);
    let mut done = JobBurst::new();
    assert_eq!(bench.front.poll(0, &mut bench.pool, &mut done), 0);
    assert_eq!(bench.front.wake_at(), Some(0));
    let (_, mut left) = (0, JobBurst::new());
    assert!(bench.pool.alloc().is_none(), "both are taken for copies");
    assert_eq!(bench.front.submit(0, &mut bench.pool, &mut left), 0);
    bench.device.with(|device| device.lets_go = true);
    let mut polled = 0;
    for _ in 0..3 {
        polled += bench.front.poll(0, &mut bench.pool, &mut done);
    }
    assert_eq!(polled, 4);
    let order: Vec<u64> = done.as_slice().iter().map(|job| job.context.value).collect();
    assert_eq!(order, numbers);
    assert!(done.as_slice().iter().all(|job| job.status == Status::Done));
    done.drain().for_each(|job| bench.pool.free(job.frame));
    assert_eq!(bench.end().redone, 4);
}

#[test]
fn a_job_keeps_the_key_that_it_was_taken_with() {
    let mut bench = Bench::new(100);
    let old = bench.keys[0].clone();
    bench.submit(&[0]);
    bench.keys[0] = FORMS[0].keys(77).0;
    bench.front.install(KeyId(0), bench.keys[0].clone());
    let (new, _) = bench.submit(&[0]);
    bench.front.remove(KeyId(0));
    bench.device.with(|device| device.is_gone = true);
    let mut done = JobBurst::new();
    for _ in 0..2 {
        bench.front.poll(0, &mut bench.pool, &mut done);
    }
    for (job, key) in done.drain().zip([&old, &bench.keys[0]]) {
        let again = FORMS[0].seal(&mut bench.pool, 0, job.context.value, 3);
        let wanted = in_software(key, &again);
        assert_eq!((job.status, job.frame.data().to_vec()), wanted);
        [job.frame, again.frame].into_iter().for_each(|frame| bench.pool.free(frame));
    }
    assert_eq!(new, [2]);
    // Under a number without a key nothing can be done.
    bench.submit(&[0]);
    bench.front.poll(0, &mut bench.pool, &mut done);
    assert_eq!(done.as_slice()[0].status, Status::Rejected);
    done.drain().for_each(|job| bench.pool.free(job.frame));
    bench.end();
}

#[test]
fn a_lost_engine_is_tried_again_after_pauses_that_double() {
    let mut bench = Bench::new(100);
    bench.device.with(|device| (device.is_gone, device.lets_go) = (true, true));
    bench.submit(&[0]);
    for now in 0..200_000 {
        bench.now = now;
        bench.poll();
    }
    let asked = bench.device.with(|device| std::mem::take(&mut device.asked_to_restart));
    let pauses: Vec<u64> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(asked[0], 10 * DEADLINE);
    assert_eq!(pauses, [20_000, 40_000, 80_000]);
    bench.device.with(|device| device.restarts = true);
    bench.now = 400_000;
    bench.poll();
    assert_eq!(bench.front.standing(), Some(Standing::Up));
    assert!(bench.front.is_offloaded(KeyId(0)) && bench.front.is_offloaded(KeyId(1)));
    let (numbers, _) = bench.submit(&[1, 0]);
    let number = bench.device.with(|device| device.held[0].number());
    bench.finish(number);
    assert_eq!(bench.poll(), numbers);
    assert_eq!(bench.end().restarts, 1);
}

#[test]
fn what_an_engine_clings_to_is_told_and_recovered_when_it_ends() {
    let mut bench = Bench::new(100);
    bench.submit(&[0, 1]);
    bench.submit(&[0]);
    assert_eq!(bench.front.release(0, &mut bench.pool), 2);
    bench.finish(0);
    assert_eq!(bench.front.release(0, &mut bench.pool), 1);
    bench.device.with(|device| device.lets_go = true);
    assert_eq!(bench.front.release(0, &mut bench.pool), 0);
    assert_all_back(bench.pool);
}

#[test]
fn without_an_engine_jobs_come_back_at_once_and_release_leaves_none() {
    let mut pool = arena(20).pool();
    let mut front = Front::inline();
    front.install(KeyId(0), FORMS[0].keys(1).0);
    let mut jobs = JobBurst::new();
    (0..5).for_each(|n| jobs.push(FORMS[0].seal(&mut pool, 0, n, 2)).unwrap());
    assert_eq!(front.submit(0, &mut pool, &mut jobs), 5);
    assert_eq!((front.wake_at(), front.standing()), (None, None));
    assert_eq!(front.release(0, &mut pool), 0);
    assert_all_back(pool);
}

const BALANCE: Sharing = Sharing { balance: true, budget: 0 };
/// A budget for one packet a turn: turns are told apart by their times.
const ONE: Sharing = Sharing { balance: false, budget: 1 };

#[test]
fn a_worker_that_keeps_up_does_all_itself() {
    let mut bench = Bench::sharing(100, BALANCE);
    for turn in 1..4 {
        bench.now = turn;
        let (numbers, _) = bench.submit(&[0, 1, 0, 1]);
        assert!(!bench.front.is_idle(KeyId(1)) && !bench.front.has_passed(0));
        assert_eq!(bench.poll(), numbers);
        assert!(bench.front.is_idle(KeyId(1)) && bench.front.has_passed(0));
        bench.front.flush(turn);
    }
    assert_eq!(bench.end(), Counts { here: 12, ..Counts::default() });
}

#[test]
fn what_is_beyond_the_budget_goes_to_the_engine_in_its_order() {
    let mut bench = Bench::sharing(100, ONE);
    bench.now = 1;
    let (first, left) = bench.submit(&[0, 0, 1]);
    assert!(left.is_empty());
    bench.device.with(|device| assert_eq!(device.held[0].jobs().len(), 2));
    assert_eq!(bench.poll(), [first[0]], "done here");
    let (second, left) = bench.submit(&[0]);
    assert!(left.is_empty());
    bench.device.with(|device| assert_eq!(device.held.len(), 2, "nothing more in this turn"));
    bench.now = 2;
    let (third, left) = bench.submit(&[1, 1]);
    assert!(left.is_empty());
    assert_eq!(bench.poll(), [], "done here, but behind one that is away");
    bench.finish(0);
    assert_eq!(bench.poll(), [first[1], first[2], third[0]]);
    bench.finish(1);
    // The one that was done here has number 2.
    bench.finish(3);
    assert_eq!(bench.poll(), [second[0], third[1]]);
    let counts = bench.end();
    assert_eq!((counts.here, counts.deferred, counts.jobs), (2, 4, 4));
}

#[test]
fn what_the_engine_has_no_room_for_waits_for_the_next_turn() {
    let mut bench = Bench::sharing(100, ONE);
    bench.device.with(|device| device.is_full = true);
    bench.now = 1;
    let (numbers, mut left) = bench.submit(&[0, 1, 0]);
    assert_eq!(left.len(), 2);
    assert_eq!(bench.front.submit(1, &mut bench.pool, &mut left), 0, "the same turn");
    assert_eq!(bench.front.submit(2, &mut bench.pool, &mut left), 1);
    assert_eq!(bench.front.submit(3, &mut bench.pool, &mut left), 1);
    assert_eq!(bench.poll(), numbers);
    bench.end();
}

#[test]
fn a_lost_engine_leaves_the_budget_as_it_is() {
    let mut bench = Bench::sharing(100, ONE);
    bench.now = 1;
    let (first, _) = bench.submit(&[0, 0]);
    bench.device.with(|device| device.is_gone = true);
    bench.now = 2;
    assert_eq!(bench.poll(), first);
    let (second, mut left) = bench.submit(&[0, 0]);
    assert_eq!((bench.poll(), left.len()), (vec![second[0]], 1));
    assert_eq!(bench.front.submit(3, &mut bench.pool, &mut left), 1);
    assert_eq!(bench.poll(), [second[1]]);
    assert_eq!(bench.end().redone, 1);
}

#[test]
fn a_worker_with_nothing_to_do_takes_back_what_nobody_has_begun() {
    let mut bench = Bench::sharing(100, Sharing { balance: true, ..ONE });
    bench.now = 1;
    let (numbers, _) = bench.submit(&[0, 0, 1]);
    assert!(bench.front.is_ready(), "it need not be waited for");
    assert_eq!(bench.poll(), [numbers[0]], "the turn is not over");
    bench.now = 2;
    assert_eq!(bench.poll(), [], "more may come");
    bench.now = 3;
    assert_eq!(bench.poll(), numbers[1..]);
    assert_eq!(bench.end().recalled, 2);
}

/// The device has begun, and then nothing is heard of it: the worker goes on, and what comes late is dropped.
#[test]
fn a_worker_overtakes_what_all_wait_for() {
    let mut bench = Bench::sharing(100, Sharing { balance: true, ..ONE });
    bench.device.with(|device| device.has_begun = true);
    let mut numbers = Vec::new();
    let mut left = JobBurst::new();
    for turn in 1..=12 {
        bench.now = turn;
        let jobs = if turn == 1 { &[0, 0][..] } else { &[0] };
        let (more, rest) = bench.submit(jobs);
        numbers.extend(more);
        left = rest;
    }
    assert_eq!((bench.poll(), left.len()), (vec![numbers[0]], 0), "all wait for the second");
    bench.now = 13;
    let (more, mut left) = bench.submit(&[0]);
    assert_eq!(left.len(), 1, "a dozen wait already");
    assert_eq!(bench.poll(), numbers[1..]);
    assert_eq!(bench.front.submit(14, &mut bench.pool, &mut left), 1);
    assert_eq!(bench.poll(), more);
    // One that is idle does not wait for long.
    bench.now = 15;
    let (last, _) = bench.submit(&[0, 0]);
    assert_eq!(bench.poll(), last[..1]);
    bench.now = 16;
    assert_eq!(bench.poll(), []);
    bench.now = 15 + DEADLINE / 100 + 1;
    assert_eq!(bench.poll(), last[1..]);
    bench.device.with(|device| {
        let late = device.held[0].number();
        device.finish(late, |_| true);
    });
    assert_eq!(bench.poll(), []);
    let counts = bench.end();
    assert_eq!((counts.overtaken, counts.redone, counts.losses), (2, 0, 0));
    assert!(counts.late >= 1, "{counts:?}");
}
