//! Time that the processor at hand takes for a burst.

use std::error::Error;
use std::hint::black_box;

use convoy_crypto::time_stamp;

use crate::packets::{Direction, Packets};

/// Bursts that are timed; the least counts, which is the one that nothing disturbed.
const ROUNDS: usize = 4000;
/// Steps of the chain that tells how fast the core's clock is, two cycles each.
const STEPS: u64 = 100_000;

/// Results of a measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figures {
    /// Cycles of the time-stamp counter for a packet.
    pub(crate) time_stamps: f64,
    /// Cycles of the core for a cycle of the counter.
    pub(crate) factor: f64,
}

/// Times bursts.
pub(crate) fn of(packets: &mut Packets, direction: Direction) -> Result<Figures, Box<dyn Error>> {
    let mut least = u64::MAX;
    let mut factor = 0_f64;
    for round in 0..ROUNDS {
        packets.round(direction, |burst| {
            let start = time_stamp();
            burst();
            least = least.min(time_stamp() - start);
        })?;
        if round.is_multiple_of(ROUNDS / 20) {
            factor = factor.max(clock_factor());
        }
    }
    let time_stamps = least as f64 / packets.count() as f64;
    Ok(Figures { time_stamps, factor })
}

/// Times a chain of instructions whose latencies are the same on every processor: one cycle for a rotation,
/// one for an addition.
fn clock_factor() -> f64 {
    let add = black_box(3_u64);
    let mut value = black_box(1_u64);
    let start = time_stamp();
    for _ in 0..STEPS {
        value = value.rotate_left(7).wrapping_add(add);
    }
    let end = time_stamp();
    black_box(value);
    (2 * STEPS) as f64 / (end - start) as f64
}
