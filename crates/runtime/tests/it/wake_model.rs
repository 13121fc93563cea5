//! Explores every interleaving and reordering of the wake-up protocol.

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, Ordering, fence};
}

// The file under test itself, over the model's atomics instead of the standard library's.
#[path = "../../src/wake/flag.rs"]
mod flag;

#[path = "../../src/wake/rest.rs"]
mod rest;

use flag::SleepFlag;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering as O};
use loom::thread;
use rest::RestFlag;

/// A hand-off ring reduced to its counter, and an event counter in place of the kernel's.
struct Shared {
    flag: SleepFlag,
    pushed: AtomicUsize,
    bell: AtomicUsize,
}

fn shared() -> Arc<Shared> {
    Arc::new(Shared {
        flag: SleepFlag::new(),
        pushed: AtomicUsize::new(0),
        bell: AtomicUsize::new(0),
    })
}

fn produce(s: &Shared) {
    s.pushed.fetch_add(1, O::Release);
    if s.flag.must_ring() {
        s.bell.fetch_add(1, O::Release);
    }
}

/// Explores schedules with up to three preemptions, which is where such defects show; more take
/// minutes without finding more.
fn explore(body: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(body);
}

/// One attempt to sleep with `seen` pieces of work done. True when the worker did sleep.
fn sleeps(s: &Shared, seen: usize) -> bool {
    s.flag.announce();
    if s.pushed.load(O::Acquire) > seen {
        s.flag.retract();
        return false;
    }
    true
}

#[test]
fn a_worker_that_sleeps_is_always_rung() {
    explore(|| {
        let s = shared();
        let producer = thread::spawn({
            let s = s.clone();
            move || produce(&s)
        });
        let asleep = sleeps(&s, 0);
        producer.join().unwrap();
        // The work is there now. A worker that sleeps through it must have been rung.
        assert!(!asleep || s.bell.load(O::Acquire) == 1);
    });
}

#[test]
fn two_producers_ring_at_most_once_per_sleep() {
    explore(|| {
        let s = shared();
        let producers: Vec<_> = (0..2)
            .map(|_| {
                let s = s.clone();
                thread::spawn(move || produce(&s))
            })
            .collect();
        let asleep = sleeps(&s, 0);
        producers.into_iter().for_each(|p| p.join().unwrap());
        let rung = s.bell.load(O::Acquire);
        assert!(rung <= 1 && (!asleep || rung == 1), "asleep {asleep}, rung {rung}");
    });
}

#[test]
fn a_second_sleep_is_rung_as_well() {
    explore(|| {
        let s = shared();
        let producer = thread::spawn({
            let s = s.clone();
            move || {
                produce(&s);
                produce(&s);
            }
        });
        let mut seen = 0;
        if sleeps(&s, seen) {
            // Blocks in the kernel until the bell rings.
            while s.bell.load(O::Acquire) == 0 {
                thread::yield_now();
            }
            s.bell.swap(0, O::AcqRel);
            s.flag.retract();
        }
        seen = seen.max(s.pushed.load(O::Acquire));
        assert!(seen > 0, "woken without work");
        let asleep = sleeps(&s, seen);
        producer.join().unwrap();
        let missed = s.pushed.load(O::Acquire) > seen;
        assert!(!(asleep && missed) || s.bell.load(O::Acquire) > 0);
    });
}

/// Control publishes a picture and, where the worker rests, sends a packet at once that needs it.
#[test]
fn a_worker_that_rests_takes_what_was_published_before_its_next_packet() {
    explore(|| {
        let (flag, published, packet) = (
            Arc::new(RestFlag::new()),
            Arc::new(AtomicUsize::new(1)),
            Arc::new(AtomicUsize::new(0)),
        );
        let control = thread::spawn({
            let (flag, published, packet) = (flag.clone(), published.clone(), packet.clone());
            move || {
                published.store(2, O::Release);
                if flag.is_resting() {
                    packet.store(1, O::Release);
                }
            }
        });
        for _ in 0..2 {
            flag.rest();
            flag.rise();
            let has_packet = packet.load(O::Relaxed) == 1;
            let picture = published.load(O::Acquire);
            assert!(!has_packet || picture == 2, "a packet met an old picture");
        }
        control.join().unwrap();
    });
}
