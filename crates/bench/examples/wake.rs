//! What vector code costs that follows scalar code: on some processors the units of wide registers sleep
//! after a while without them, and what comes next waits until they are awake.
//!
//! `cargo run --release -p convoy-bench --example wake`

use std::hint::{black_box, spin_loop};
use std::time::{Duration, Instant};

use convoy_bench::machine::Machine;
use convoy_bench::peer::ports::{Loop, Width};
use convoy_bench::run::pin;
use convoy_bench::stats::Summary;
use convoy_crypto::time_stamp;

/// Pauses in front of a burst, in microseconds.
const PAUSES: [u64; 8] = [0, 100, 300, 500, 600, 700, 1000, 3000];
/// Bursts for each pause and width.
const ROUNDS: usize = 200;
/// Loops of additions, rotations and logic in a burst.
const LOOPS: usize = 6;

fn main() {
    if let Err(error) = pin() {
        eprintln!("wake: cannot stay on one core ({error}); figures will vary more");
    }
    let machine = Machine::look();
    println!("{}; time-stamp counter {:.0} MHz", machine.cpu, machine.tsc_mhz);
    println!(
        "cycles of a burst behind a pause of scalar code, median (lower, upper quartile) of {ROUNDS}"
    );
    for (bits, width) in [(128, Width::W128), (256, Width::W256), (512, Width::W512)] {
        if Loop::Alu(width).measure().is_none() {
            println!("{bits} bits: SKIPPED: this processor has no such registers");
            continue;
        }
        let mut bursts = PAUSES.map(|_| Vec::with_capacity(ROUNDS));
        for _ in 0..ROUNDS {
            // In turn: what else the machine does meets all pauses alike.
            for (pause, bursts) in PAUSES.into_iter().zip(&mut bursts) {
                burst(width);
                wait(Duration::from_micros(pause));
                bursts.push(burst(width));
            }
        }
        for (pause, bursts) in PAUSES.into_iter().zip(&bursts) {
            let Some(Summary { median, low, high, .. }) = Summary::of(bursts) else { continue };
            println!("{bits} bits, {pause:>4} µs: {median:>7.0} ({low:.0}, {high:.0})");
        }
    }
}

/// Scalar code for a while.
fn wait(pause: Duration) {
    let start = Instant::now();
    while start.elapsed() < pause {
        spin_loop();
    }
}

/// Vector code; returns the cycles that it took.
fn burst(width: Width) -> f64 {
    let start = time_stamp();
    for _ in 0..LOOPS {
        black_box(Loop::Alu(width).measure());
    }
    (time_stamp() - start) as f64
}
