//! Jobs by the ten thousand through a device that fails in every way at random: each comes out once, in
//! order within its SA, and with the bytes that software makes of it.

use std::collections::HashMap;
use std::sync::Arc;

use super::{FORMS, Form, arena, in_software};
use crate::front::{Front, Sharing, WorkerLoad};
use crate::lookaside::{Caps, Health, KeyRefused, Request};
use crate::model::{Faults, Link, Model, Settings};
use crate::{EngineKey, Job, JobBurst, KeyId, Lookaside, Op, Status};
use convoy_packet::Pool;

const SAS: u32 = 12;

/// Number of a job that is under way, and the result that it must have.
struct Expected {
    number: u64,
    status: Status,
    packet: Vec<u8>,
}

/// One SA: a key that changes now and then, and jobs in order.
struct Sa {
    form: Form,
    seals: bool,
    mark: u8,
    keys: (EngineKey, EngineKey),
    expected: std::collections::VecDeque<Expected>,
}

impl Sa {
    fn key(&self) -> EngineKey {
        if self.seals { self.keys.0.clone() } else { self.keys.1.clone() }
    }
}

struct Traffic {
    pool: Pool,
    front: Front,
    sas: Vec<Sa>,
    random: u64,
    numbers: u64,
    seen: u64,
}

/// A device that is watched: no nonce of a key may come to it with two texts.
#[derive(Debug)]
struct Watched {
    device: Model,
    /// Count of the keys that each number has had.
    keys: HashMap<KeyId, u64>,
    sealed: HashMap<(KeyId, u64, Vec<u8>), Vec<u8>>,
}

impl Lookaside for Watched {
    fn caps(&self) -> Caps {
        self.device.caps()
    }
    fn install(&mut self, id: KeyId, key: &EngineKey) -> Result<(), KeyRefused> {
        *self.keys.entry(id).or_default() += 1;
        self.device.install(id, key)
    }
    fn remove(&mut self, id: KeyId) {
        self.device.remove(id);
    }
    fn submit(&mut self, now: u64, request: Request) -> Result<(), Request> {
        for job in request.jobs() {
            let Op::Seal(nonce) = &job.op else { continue };
            let key = (job.key, self.keys[&job.key], nonce.expose().to_vec());
            let text = job.frame.data();
            let first = self.sealed.entry(key).or_insert_with(|| text.to_vec());
            assert!(first == text, "a nonce comes with two texts");
        }
        self.device.submit(now, request)
    }
    fn poll(&mut self, now: u64) -> Option<Request> {
        self.device.poll(now)
    }
    fn is_ready(&self) -> bool {
        self.device.is_ready()
    }
    fn flush(&mut self, now: u64) {
        self.device.flush(now);
    }
    fn health(&self) -> Health {
        self.device.health()
    }
    fn quiesce(&mut self, now: u64) -> bool {
        self.device.quiesce(now)
    }
    fn restart(&mut self, now: u64) -> bool {
        self.device.restart(now)
    }
}

impl Traffic {
    fn new(device: Model, seed: u64, checks: u32, sharing: Sharing) -> Self {
        let device = Watched { device, keys: HashMap::new(), sealed: HashMap::new() };
        let mut front =
            Front::with(Box::new(device)).sharing(sharing, &WorkerLoad::default()).checking(checks);
        let sa = |n: u32| {
            let form = FORMS[n as usize % 2];
            let keys = form.keys(n as u8);
            Sa { form, seals: n % 4 < 2, mark: n as u8, keys, expected: Default::default() }
        };
        let sas: Vec<Sa> = (0..SAS).map(sa).collect();
        (0..).map(KeyId).zip(&sas).for_each(|(id, sa)| front.install(id, sa.key()));
        let pool = arena(12_000).pool();
        Self { pool, front, sas, random: seed * 2 + 1, numbers: 0, seen: 0 }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 8) % below
    }

    /// A job of any SA, and what is to become of it.
    fn make(&mut self) -> Job {
        let (key, blocks) = (self.random(u64::from(SAS)) as u32, 1 + self.random(8) as usize);
        let is_forged = self.random(50) == 0;
        let number = self.numbers;
        self.numbers += 1;
        let Self { sas, pool, .. } = self;
        let sa = &mut sas[key as usize];
        let mut job = sa.form.seal(pool, key, number, blocks);
        if !sa.seals {
            let (_, mut sealed) = in_software(&sa.keys.0, &job);
            pool.free(job.frame);
            *sealed.last_mut().unwrap() ^= u8::from(is_forged);
            job = sa.form.open(pool, key, number, &sealed);
        }
        let (status, packet) = in_software(&sa.key(), &job);
        sa.expected.push_back(Expected { number, status, packet });
        job
    }

    /// Gives an SA a new key, under the number of the old one.
    fn rekey(&mut self) {
        let at = self.random(u64::from(SAS)) as usize;
        let sa = &mut self.sas[at];
        sa.mark = sa.mark.wrapping_add(SAS as u8);
        sa.keys = sa.form.keys(sa.mark);
        let (key, id) = (sa.key(), KeyId(at as u32));
        if self.random(2) == 0 {
            self.front.remove(id);
        }
        self.front.install(id, key);
    }

    fn check(&mut self, job: Job) {
        let expected = self.sas[job.key.0 as usize].expected.pop_front().unwrap();
        assert_eq!(job.context.value, expected.number, "in order within the SA");
        assert_eq!(job.status, expected.status);
        if job.status == Status::Done {
            assert!(job.frame.data() == expected.packet, "job {}", expected.number);
        }
        self.seen += 1;
        self.pool.free(job.frame);
    }

    fn run(&mut self, jobs: u64) {
        let (mut burst, mut done) = (JobBurst::new(), JobBurst::new());
        let (mut now, mut idle) = (0, 0);
        while self.seen < jobs {
            now += 1 + self.random(60_000);
            for _ in 0..self.random(50) {
                if self.numbers < jobs && burst.room() > 0 {
                    let job = self.make();
                    burst.push(job).unwrap();
                }
            }
            self.front.submit(now, &mut self.pool, &mut burst);
            // Jobs that were not taken belong to the keys of now.
            if burst.is_empty() && self.random(20) == 0 {
                self.rekey();
            }
            self.front.flush(now);
            let before = self.seen;
            if self.random(4) > 0 {
                self.front.poll(now, &mut self.pool, &mut done);
                let part = self.random(300) as usize;
                let jobs: Vec<Job> = done.drain_front(part).collect();
                jobs.into_iter().for_each(|job| self.check(job));
            }
            idle = if self.seen == before { idle + 1 } else { 0 };
            assert!(idle < 100_000, "stuck at {} of {jobs}: {:?}", self.seen, self.front.counts());
        }
        assert_eq!((self.seen, self.numbers), (jobs, jobs), "once each");
    }
}

fn settings(seed: u64) -> Settings {
    Settings { seed, requests: 12, descriptors: 600, deadline: 150_000, ..Settings::default() }
}

fn all_faults() -> Faults {
    Faults {
        lost: 20,
        doubled: 500,
        late: 50,
        refused: 1000,
        stalled: 20,
        removed: 50,
        full: 5000,
        absent: 3_000_000,
        ..Faults::default()
    }
}

fn run(settings: Settings, faults: Faults, jobs: u64) -> Traffic {
    run_checked(settings, faults, 0, jobs)
}

/// The same with one of so many results computed again.
fn run_checked(settings: Settings, faults: Faults, checks: u32, jobs: u64) -> Traffic {
    run_shared(settings, faults, checks, Sharing::default(), jobs)
}

/// The same with a worker that shares the work.
fn run_shared(
    settings: Settings,
    faults: Faults,
    checks: u32,
    sharing: Sharing,
    jobs: u64,
) -> Traffic {
    let device = Model::new(settings, faults);
    let mut traffic = Traffic::new(device, settings.seed, checks, sharing);
    traffic.run(jobs);
    traffic
}

/// All frames are there again, and none was dropped on the way.
fn assert_accounted(mut traffic: Traffic) {
    let mut now = u64::MAX / 2;
    while traffic.front.release(now, &mut traffic.pool) > 0 {
        now += 1_000_000;
        assert!(now < u64::MAX / 2 + 10_000_000, "the device lets go");
    }
    super::assert_all_back(traffic.pool);
}

#[test]
fn a_device_that_works_does_all_of_it() {
    for seed in 1..4 {
        let traffic = run(settings(seed), Faults::default(), 5_000);
        let counts = traffic.front.counts();
        assert_eq!((counts.jobs, counts.losses, counts.refused, counts.redone), (5_000, 0, 0, 0));
        assert_accounted(traffic);
    }
}

/// Each packet once there and once back, with a descriptor and a completion.
#[test]
fn what_goes_over_the_link_of_a_device_is_counted() {
    let (settings, link) = (settings(5), Arc::<Link>::default());
    let device = Model::new(settings, Faults::default()).counting(link.clone());
    let mut traffic = Traffic::new(device, settings.seed, 0, Sharing::default());
    traffic.run(5_000);
    let counts = link.counts();
    assert_eq!((counts.descriptors, counts.completions), (5_000, 5_000));
    assert!(counts.to_device == counts.from_device && counts.to_device > 5_000, "{counts:?}");
    assert_accounted(traffic);
}

#[test]
fn nothing_is_lost_doubled_or_out_of_order_whatever_fails() {
    for (seed, tells) in [(11, false), (12, true), (13, false), (14, true)] {
        let faults = Faults { tells, ..all_faults() };
        // A million together where there is time for it.
        let jobs = if std::env::var_os("CONVOY_LONG").is_some() { 250_000 } else { 20_000 };
        let traffic = run(settings(seed), faults, jobs);
        let counts = traffic.front.counts();
        let happened = [
            counts.losses,
            counts.redone,
            counts.refused,
            counts.late,
            counts.restarts,
            counts.in_software,
        ];
        assert!(happened.iter().all(|count| *count > 0), "{counts:?}");
        assert_accounted(traffic);
    }
}

/// Each is checked, so none of them gets out.
#[test]
fn wrong_results_cost_a_device_its_place_and_harm_nobody() {
    for (seed, faults) in [(41, Faults::default()), (42, all_faults())] {
        let traffic = run_checked(settings(seed), Faults { wrong: 200, ..faults }, 1, 20_000);
        let counts = traffic.front.counts();
        assert!(counts.wrong > 0 && counts.losses >= counts.wrong, "{counts:?}");
        assert!(counts.restarts > 0 && counts.jobs > 500, "{counts:?}");
        assert_accounted(traffic);
    }
}

/// Right results cost no device its place.
#[test]
fn a_part_of_the_results_is_checked() {
    let traffic = run_checked(settings(43), Faults::default(), 10, 20_000);
    let counts = traffic.front.counts();
    assert!((1_700..2_300).contains(&counts.checked), "{counts:?}");
    assert_eq!((counts.wrong, counts.losses, counts.jobs), (0, 0, 20_000));
    assert_accounted(traffic);
}

/// Bursts that are done in part here, in part by the device, whatever happens to it.
#[test]
fn shared_work_is_neither_lost_nor_out_of_order() {
    let long = std::env::var_os("CONVOY_LONG").is_some();
    let jobs = if long { 250_000 } else { 10_000 };
    for (seed, balance, budget) in
        [(51, true, 0), (52, false, 20_000), (53, true, 20_000), (54, false, 1)]
    {
        for faults in [Faults::default(), Faults { wrong: 200, ..all_faults() }] {
            let sharing = Sharing { balance, budget };
            let settings = Settings { sessions: 10, ..settings(seed) };
            let traffic = run_shared(settings, faults, 1, sharing, jobs);
            let counts = traffic.front.counts();
            assert!(counts.here > 0, "{counts:?}");
            assert_eq!(counts.deferred > 0, budget > 0, "{counts:?}");
            assert_accounted(traffic);
        }
    }
}

#[test]
fn keys_that_find_no_session_run_in_software() {
    let settings = Settings { sessions: 7, ..settings(21) };
    let traffic = run(settings, all_faults(), 20_000);
    assert!(traffic.front.counts().keys_refused > 0);
    assert_accounted(traffic);
}

/// Its frames come back when it ends: those are counted as leaked, for nobody gave them back.
#[test]
fn a_device_that_never_lets_go_keeps_its_frames_and_nothing_else() {
    let faults = Faults { removed: 100, clings: true, ..Faults::default() };
    let mut traffic = run(settings(31), faults, 5_000);
    assert_eq!(traffic.front.counts().losses, 1);
    let held = traffic.front.release(0, &mut traffic.pool);
    assert!(held > 0);
    let Traffic { front, pool, .. } = traffic;
    let arena = pool.arena();
    drop((front, pool));
    assert!(arena.leaked() > 0);
    assert_eq!(arena.in_depot(), arena.frames() as usize);
}
