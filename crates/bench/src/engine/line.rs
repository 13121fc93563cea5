//! Time that a cache line takes from one processor to another and back.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use convoy_crypto::time_stamp;
use convoy_runtime::pin_current_thread;

/// Time for which the line travels.
const TIME: Duration = Duration::from_millis(30);
/// Rounds of one sample.
const ROUNDS: u64 = 256;

#[repr(align(128))]
#[derive(Default)]
struct Ball(AtomicU64);

/// Cache line that two threads exchange, and a flag that one of them has left.
#[derive(Default)]
struct Game {
    ball: Ball,
    is_over: AtomicBool,
}

/// Cycles of the time-stamp counter for a cache line there and back between two processors, the best of many
/// samples. `None` where threads cannot be bound to them.
#[must_use]
pub fn there_and_back(cpus: [usize; 2]) -> Option<f64> {
    let game = Game::default();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let pinned = pin_current_thread(cpus[1]).is_ok();
            while pinned && game.answer() {}
            game.is_over.store(true, Ordering::Release);
            pinned
        });
        let one = scope.spawn(|| {
            let best = pin_current_thread(cpus[0]).ok().and_then(|()| game.best());
            game.is_over.store(true, Ordering::Release);
            best
        });
        let pinned = other.join().unwrap_or(false);
        one.join().ok().flatten().filter(|_| pinned)
    })
}

impl Game {
    /// Cycles of the best sample.
    fn best(&self) -> Option<f64> {
        let (begun, mut best, mut next) = (Instant::now(), f64::INFINITY, 1);
        while begun.elapsed() < TIME {
            let start = time_stamp();
            for _ in 0..ROUNDS {
                if !self.serve(next) {
                    return None;
                }
                next += 2;
            }
            best = best.min((time_stamp() - start) as f64 / ROUNDS as f64);
        }
        Some(best)
    }

    /// Waits for a number, as long as both play.
    fn await_number(&self, is_it: impl Fn(u64) -> bool) -> Option<u64> {
        loop {
            let number = self.ball.0.load(Ordering::Acquire);
            if is_it(number) {
                return Some(number);
            }
            if self.is_over.load(Ordering::Relaxed) {
                return None;
            }
            std::hint::spin_loop();
        }
    }

    /// Plays an odd number, and waits for the even one that follows.
    fn serve(&self, number: u64) -> bool {
        self.ball.0.store(number, Ordering::Release);
        self.await_number(|answer| answer == number + 1).is_some()
    }

    /// Waits for an odd number and plays the next; `false` at the end.
    fn answer(&self) -> bool {
        let odd = self.await_number(|number| number % 2 == 1);
        odd.is_some_and(|odd| {
            self.ball.0.store(odd + 1, Ordering::Release);
            true
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cores::Cores;

    #[test]
    fn a_line_travels_between_two_processors() {
        let cpus = Cores::allowed().unwrap();
        let &[one, two, ..] = &cpus[..] else { return };
        let cycles = there_and_back([one, two]).unwrap();
        assert!(cycles > 0.0 || !cfg!(target_arch = "x86_64"), "{cycles}");
        assert_eq!(there_and_back([one, 4000]), None);
    }
}
