//! Costs, load and budget, with stamps that the test gives.

use super::super::tests::{FORMS, Form, arena};
use super::load::INTERVAL;
use super::*;
use crate::KeyId;
use convoy_packet::Pool;

/// Cycles for a packet of each form, and for each byte of its text, in these tests.
const COSTS: [(f64, f64); 2] = [(100.0, 0.25), (300.0, 0.6)];
const HANDING: u64 = 70;

struct Bench {
    share: Share,
    keys: Keys,
    pool: Pool,
    now: u64,
    /// Cycles that a packet costs which was handed over, later, somewhere else.
    hidden: u64,
}

impl Bench {
    fn new(sharing: Sharing) -> Self {
        Self::with(sharing, &WorkerLoad::default())
    }

    fn with(sharing: Sharing, load: &WorkerLoad) -> Self {
        let (mut share, mut keys) = (Share::new(sharing, load), Keys::default());
        for (id, form) in (0..).map(KeyId).zip(FORMS) {
            let key = form.keys(1).0;
            let class = share.class_of(&key);
            keys.insert(id, key, true);
            keys.classify(id, class);
        }
        Self { share, keys, pool: arena(256).pool(), now: 0, hidden: 0 }
    }

    fn jobs(&mut self, key: u32, n: usize, blocks: usize) -> Vec<Job> {
        let form: Form = FORMS[key as usize];
        (0..n).map(|number| form.seal(&mut self.pool, key, number as u64, blocks)).collect()
    }

    fn free(&mut self, jobs: Vec<Job>) {
        jobs.into_iter().for_each(|job| self.pool.free(job.frame));
    }

    fn cost(jobs: &[Job]) -> f64 {
        let one = |job: &Job| {
            let (packet, byte) = COSTS[job.key.0 as usize];
            packet + byte * f64::from(job.text.len)
        };
        jobs.iter().map(one).sum()
    }

    /// Does jobs here; a turn takes as long as the jobs, and `idle` more.
    fn here(&mut self, jobs: &[Job], idle: u64) {
        let cycles = self.work(jobs);
        self.pass(cycles, idle);
    }

    /// Does jobs here, and says how long that takes.
    fn work(&mut self, jobs: &[Job]) -> u64 {
        let cycles = Self::cost(jobs) as u64;
        self.share.took(self.share.work(jobs));
        self.share.did(&self.keys, jobs, Some(cycles));
        cycles
    }

    /// Does jobs here or hands them over: how long that takes the worker, and whether they were handed over.
    fn share(&mut self, jobs: &[Job]) -> (u64, bool) {
        let here = self.share.worth(&self.keys, jobs);
        if !self.share.goes_away(jobs.len(), here) {
            return (self.work(jobs), false);
        }
        self.share.took(self.share.work(jobs));
        let cycles = HANDING * jobs.len() as u64;
        self.share.handed_over(jobs.len(), here, cycles);
        (cycles + self.hidden * jobs.len() as u64, true)
    }

    /// A turn as a worker has it: says whether the jobs were handed over.
    fn turn(&mut self, jobs: &[Job], idle: u64) -> bool {
        let (cycles, is_away) = self.share(jobs);
        // What is spared is idle time, unless there is more to do.
        self.pass(cycles, idle);
        is_away
    }

    /// The turn takes so long; then there is one without packets.
    fn pass(&mut self, cycles: u64, idle: u64) {
        for time in [cycles, idle] {
            self.now += time;
            self.share.turn_at(self.now, self.now);
        }
    }

    /// The worker does not keep up, whatever its turns were.
    fn overload(&mut self) {
        self.share.load.with(|worker| worker.is_overloaded = true);
        self.share.judgement.is_overloaded = true;
    }

    /// A turn goes on for so long with other work.
    fn pass_busy(&mut self, cycles: u64) {
        self.share.took(0.0);
        self.now += cycles;
        self.share.turn_at(self.now, self.now);
    }

    fn expected(&self, jobs: &[Job]) -> f64 {
        self.share.costs.of(&self.keys, jobs)
    }
}

const BALANCE: Sharing = Sharing { balance: true, budget: 0 };

#[test]
fn costs_are_learnt_for_suites_and_sizes_also_when_they_are_mixed() {
    let mut bench = Bench::new(BALANCE);
    for turn in 0..2000 {
        let mut jobs = bench.jobs(0, turn % 7 + 2, 2 + turn % 60);
        jobs.extend(bench.jobs(1, turn % 5 + 2, 1 + turn % 80));
        bench.here(&jobs, 0);
        bench.free(jobs);
    }
    for key in 0..2 {
        for blocks in [4, 40, 88] {
            let jobs = bench.jobs(key, 10, blocks);
            let ratio = bench.expected(&jobs) / Bench::cost(&jobs);
            assert!((0.95..1.05).contains(&ratio), "{ratio} for {blocks} blocks of {key}");
            bench.free(jobs);
        }
    }
}

#[test]
fn an_interrupted_burst_teaches_nothing_and_a_slower_processor_something() {
    let mut bench = Bench::new(BALANCE);
    let jobs = bench.jobs(0, 32, 20);
    (0..50).for_each(|_| bench.here(&jobs, 0));
    let before = bench.expected(&jobs);
    bench.share.did(&bench.keys, &jobs, Some(before as u64 * 100));
    assert_eq!(bench.expected(&jobs), before);
    for _ in 0..200 {
        bench.share.did(&bench.keys, &jobs, Some(before as u64 * 4));
    }
    let ratio = bench.expected(&jobs) / before;
    assert!((3.8..4.1).contains(&ratio), "{ratio}");
    bench.free(jobs);
}

#[test]
fn bursts_are_handed_over_when_the_worker_does_not_keep_up_and_that_is_worth_it() {
    let mut bench = Bench::new(BALANCE);
    let (long, short, few) = (bench.jobs(0, 32, 80), bench.jobs(0, 32, 1), bench.jobs(0, 4, 80));
    let turns = |bench: &mut Bench, jobs: &[Job], idle: u64| {
        // Not counted: until the load is judged, and what handing over is good for.
        for _ in 0..60_000 {
            bench.turn(jobs, idle);
        }
        (0..1000).filter(|_| bench.turn(jobs, idle)).count()
    };
    let cost = Bench::cost(&long) as u64;
    assert_eq!(turns(&mut bench, &long, cost), 0, "half of the time there is nothing to do");
    assert_eq!(turns(&mut bench, &long, 0), 1000);
    // A packet of 16 bytes costs 104, and handing it over 70: that is worth it.
    assert_eq!(turns(&mut bench, &short, 0), 1000);
    assert_eq!(turns(&mut bench, &few, 0), 0, "small bursts say that the worker keeps up");
    // Handed over, the same packets leave it idle for most of the time; it would have been busy all the time.
    let spared = cost - HANDING * 32;
    assert_eq!(turns(&mut bench, &long, 0), 1000);
    assert_eq!(turns(&mut bench, &long, spared), 1000);
    assert_eq!(turns(&mut bench, &long, spared + cost), 0, "half of the load");
    for jobs in [long, short, few] {
        bench.free(jobs);
    }
}

#[test]
fn what_handing_over_costs_later_and_elsewhere_counts_too() {
    let mut bench = Bench::new(BALANCE);
    let jobs = bench.jobs(0, 32, 5);
    let handed = |bench: &mut Bench, hidden: u64| {
        bench.hidden = hidden;
        // Until that is known.
        (0..300_000).for_each(|_| _ = bench.turn(&jobs, 0));
        (0..50_000).filter(|_| bench.turn(&jobs, 0)).count()
    };
    // A packet costs 120 here; 70 to hand it over.
    for (hidden, most) in [(0, true), (40, true), (60, false), (500, false), (30, true)] {
        let handed = handed(&mut bench, hidden);
        let nearly_all = if most { 48_000..=50_000 } else { 0..=5_000 };
        assert!(nearly_all.contains(&handed), "{handed} with {hidden} cycles more");
    }
    bench.free(jobs);
}

#[test]
fn packets_that_cost_more_while_others_help_are_not_more_work() {
    let mut bench = Bench::new(BALANCE);
    let jobs = bench.jobs(0, 32, 80);
    let cost = Bench::cost(&jobs) as u64;
    // The engine has enough with every other burst, and while it works those that stay cost so many times as much.
    let mut handed = |times: u64| {
        let mut turns = |turns: u32| {
            let mut handed = 0;
            for _ in 0..turns {
                let (cycles, is_away) = bench.share(&jobs);
                handed += u32::from(is_away);
                let cost = if is_away { times * cost } else { cost };
                bench.share.took(bench.share.work(&jobs));
                bench.share.did(&bench.keys, &jobs, Some(cost));
                bench.pass(cycles + cost, 0);
            }
            handed
        };
        turns(200_000);
        turns(50_000)
    };
    assert!(handed(1) > 48_000);
    assert!(handed(2) < 5_000);
    assert!(handed(1) > 48_000);
    bench.free(jobs);
}

#[test]
fn a_worker_whose_turns_are_longer_than_an_interval_hands_over_too() {
    let mut bench = Bench::new(BALANCE);
    let jobs = bench.jobs(0, 32, 80);
    // Beside the cryptography a turn has so much to do.
    let mut handed = |other: u64| {
        for _ in 0..200 {
            bench.turn(&jobs, 0);
            bench.pass_busy(other);
        }
        let turns = (0..100).filter(|_| {
            bench.pass_busy(other);
            bench.turn(&jobs, 0)
        });
        turns.count()
    };
    assert!(handed(3 * INTERVAL) > 90);
    bench.free(jobs);
}

#[test]
fn one_direction_hands_over_for_the_other() {
    let load = WorkerLoad::default();
    let mut ways = [Bench::with(BALANCE, &load), Bench::with(BALANCE, &load)];
    let jobs = ways.each_mut().map(|way| way.jobs(0, 32, 80));
    // All packets of the first direction get done in any case, of the second as many as there is time for.
    let (each, mut at, mut next) = (2 * Bench::cost(&jobs[0]) as u64, 1, 0);
    let mut handed = |hidden: u64, turns: usize| {
        let mut handed = [0; 2];
        for _ in 0..turns {
            ways.iter_mut().for_each(|way| way.share.turn_at(at, at));
            let first = usize::from(at < next);
            next += each * (1 - first as u64);
            for way in first..2 {
                ways[way].hidden = hidden;
                let (cycles, is_away) = ways[way].share(&jobs[way]);
                at += cycles;
                handed[way] += usize::from(is_away);
            }
        }
        handed
    };
    for hidden in [0, 1000, 0] {
        handed(hidden, 500_000);
        let [first, second] = handed(hidden, 100_000);
        let is_away = second > 98_000 && first > 1000;
        let is_here = second < 5000 && first < 5000;
        assert!(if hidden == 0 { is_away } else { is_here }, "{first} and {second} of {hidden}");
    }
    for (mut way, jobs) in ways.into_iter().zip(jobs) {
        way.free(jobs);
    }
}

#[test]
fn what_costs_less_than_handing_over_stays_here() {
    let mut bench = Bench::new(BALANCE);
    bench.overload();
    let jobs = bench.jobs(0, 32, 1);
    (0..20).for_each(|_| bench.here(&jobs, 0));
    while !bench.share.judgement.goes_away {
        bench.overload();
        bench.here(&jobs, 0);
    }
    bench.overload();
    // 104 cycles a packet here.
    for (handing, goes) in
        [(110.0, false), (90.0, false), (80.0, true), (95.0, true), (100.0, false)]
    {
        bench.share.judgement.handing = Some(handing);
        let here = bench.share.worth(&bench.keys, &jobs);
        assert_eq!(bench.share.goes_away(jobs.len(), here), goes, "{handing}");
    }
    // It is tried again after some time.
    bench.share.load.with(|worker| worker.handing = Some(200.0));
    let tried = (0..500_000).any(|_| {
        bench.overload();
        bench.turn(&jobs, 0)
    });
    assert!(tried);
    bench.free(jobs);
}

#[test]
fn no_turn_takes_more_than_its_budget_and_one_packet() {
    let budget = 20_000;
    let mut bench = Bench::new(Sharing { balance: false, budget });
    for turn in 0..500 {
        bench.now += 1;
        bench.share.turn_at(bench.now, bench.now);
        let mut spent = 0.0;
        for burst in 0..3 {
            let mut jobs = bench.jobs(0, 20, 1 + (turn + burst) % 80);
            jobs.extend(bench.jobs(1, 20, 1 + turn % 50));
            let fit = bench.share.within_budget(&bench.keys, &jobs);
            assert!(burst > 0 || fit > 0, "each turn does something");
            let done = &jobs[..fit];
            bench.share.did(&bench.keys, done, Some(Bench::cost(done) as u64));
            spent += Bench::cost(done);
            bench.free(jobs);
        }
        let longest = 300.0 + 0.6 * 80.0 * 16.0;
        let is_learnt = turn >= 200;
        let within = spent <= budget as f64 + longest && spent > budget as f64 * 0.8;
        assert!(within || !is_learnt, "{spent} cycles in turn {turn}");
    }
}
