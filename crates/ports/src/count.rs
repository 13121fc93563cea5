//! Bursts whose instructions Valgrind counts while it is within one function.

use std::error::Error;

use convoy_bench::esp::rig::{Rig, Task};
use convoy_bench::esp::site::Shape;
use convoy_bench::maker::Maker;
use convoy_bench::mix::Sizes;
use convoy_crypto::{Cpu, Suite};

use crate::packets::{Direction, Packets};

/// So many bursts within [`counted_burst`], after one that is not.
pub(crate) fn bursts(
    packets: &mut Packets,
    direction: Direction,
    rounds: usize,
) -> Result<(), Box<dyn Error>> {
    packets.round(direction, |burst| burst())?;
    // By a closure: names of functions that take the function itself would hold its name.
    (0..rounds).try_for_each(|_| packets.round(direction, |burst| counted_burst(burst)))
}

/// The function whose instructions are counted.
#[inline(never)]
fn counted_burst(burst: &mut dyn FnMut()) {
    burst();
}

/// So many bursts through both pipelines, with one SA each way. All of them are counted, so it is told by two runs what one takes.
pub(crate) fn pipelines(
    cpu: &Cpu,
    suite: Suite,
    bytes: usize,
    burst: usize,
    rounds: u64,
) -> Result<(), Box<dyn Error>> {
    let task =
        Task { suite, sizes: Sizes::Fixed(bytes), shape: Shape::new(1), faults: None, burst };
    let mut rig = Rig::<()>::new(&Maker::Tier(*cpu, cpu.best()), &task)?;
    for round in 0..rounds {
        rig.lap(round)?;
    }
    match rig.finish()?.errors()[..] {
        [] => Ok(()),
        [ref first, ..] => Err(first.clone().into()),
    }
}
