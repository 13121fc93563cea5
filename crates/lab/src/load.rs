//! Load of this machine. Loss and times mean something only together with that.

use std::{
    num::NonZero,
    thread,
    time::{Duration, Instant},
};

/// Time that one look takes: some time slices of whoever else wants the processors.
const LOOK: Duration = Duration::from_millis(40);
/// A gap between two readings of the clock that no interrupt explains.
const GAP: Duration = Duration::from_micros(500);
/// Time between two looks for a quiet moment.
const PAUSE: Duration = Duration::from_millis(500);

/// Share of the processors that a process has almost for itself.
pub const QUIET: f64 = 0.9;

/// Measures which share of the processors' time this process gets now, from 0 to 1.
///
/// One thread per processor reads the clock all the time for 40 ms and adds up the gaps. So it sees
/// other programs and a hypervisor alike, and needs no right.
#[must_use]
pub fn share_of_processors() -> f64 {
    let count = thread::available_parallelism().map_or(1, NonZero::get);
    let shares: f64 = thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(look)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(0.0)).sum()
    });
    shares / count as f64
}

/// Waits for a moment in which hardly anyone else uses the processors. Looks `looks` times at most,
/// half a second apart; false when none of these moments was quiet.
#[must_use]
pub fn wait_for_quiet(looks: u32) -> bool {
    (0..looks).any(|number| {
        if number > 0 {
            thread::sleep(PAUSE);
        }
        share_of_processors() >= QUIET
    })
}

fn look() -> f64 {
    let start = Instant::now();
    let (mut last, mut taken) = (start, Duration::ZERO);
    while last - start < LOOK {
        let now = Instant::now();
        let gap = now - last;
        if gap > GAP {
            taken += gap;
        }
        last = now;
    }
    1.0 - taken.as_secs_f64() / (last - start).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn threads_that_spin_leave_a_smaller_share() {
        let stop = AtomicBool::new(false);
        let share = thread::scope(|scope| {
            for _ in 0..4 * thread::available_parallelism().map_or(1, NonZero::get) {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            // The first threads of a burst may run before the others are on a processor.
            let share = (0..20).map(|_| share_of_processors()).fold(1.0, f64::min);
            stop.store(true, Ordering::Relaxed);
            share
        });
        assert!((0.0..QUIET).contains(&share), "{share}");
    }
}
