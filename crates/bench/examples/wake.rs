//! Cycles of vector code behind scalar code: on some processors the units of wide registers sleep
//! after a while without them, and the code after that waits until they are awake.
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
/// Rounds of each pause for each width.
const ROUNDS: usize = 200;
/// Bursts behind a pause: what is slow may be so for a while.
const BURSTS: usize = 6;
/// Loops of additions, rotations and logic in a burst.
const LOOPS: usize = 2;
/// Time for which the same code runs in front of a pause.
const WARM: Duration = Duration::from_micros(400);

fn main() {
    if let Err(error) = pin() {
        eprintln!("wake: cannot stay on one core ({error}); figures will vary more");
    }
    let machine = Machine::look();
    println!("{}; time-stamp counter {:.0} MHz", machine.cpu, machine.tsc_mhz);
    println!(
        "cycles of {BURSTS} bursts one after the other behind a pause of scalar code, medians of {ROUNDS}"
    );
    for (bits, width) in [(128, Width::W128), (256, Width::W256), (512, Width::W512)] {
        if Loop::Alu(width).measure().is_none() {
            println!("{bits} bits: SKIPPED: this processor has no such registers");
            continue;
        }
        let mut samples = PAUSES.map(|_| [(); BURSTS].map(|()| Vec::with_capacity(ROUNDS)));
        for _ in 0..ROUNDS {
            // In turn: what else the machine does meets all pauses alike.
            for (pause, samples) in PAUSES.into_iter().zip(&mut samples) {
                repeat(WARM, || {
                    burst(width);
                });
                repeat(Duration::from_micros(pause), spin_loop);
                samples.iter_mut().for_each(|samples| samples.push(burst(width)));
            }
        }
        for (pause, samples) in PAUSES.into_iter().zip(&samples) {
            let medians = samples.iter().filter_map(|samples| Summary::of(samples));
            let cells: String = medians.map(|burst| format!(" {:>7.0}", burst.median)).collect();
            println!("{bits} bits, {pause:>4} µs:{cells}");
        }
    }
}

/// Does something for a while.
fn repeat(time: Duration, mut each: impl FnMut()) {
    let start = Instant::now();
    while start.elapsed() < time {
        each();
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
