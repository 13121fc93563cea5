//! Costs of a stalled device and of a flood of new keys.

use std::time::{Duration, Instant};

use convoy_engine::model::{Faults, Model, Settings};
use convoy_engine::{Front, KeyId};

use super::measure::{Course, EngineError, Load};
use crate::maker::Maker;
use crate::stats::Summary;

/// Jobs of a burst in these trials: eight of them are the thousand that are to be under way.
const BURST: usize = 128;
/// Bursts that a stalled device holds.
const BURSTS: usize = 8;
/// Keys that are used in turn.
const KEYS: u8 = 64;
/// Between two new keys: a thousand a second.
const PAUSE: Duration = Duration::from_millis(1);
/// Rounds with new keys, and as many without.
const ROUNDS: usize = 8;

/// Error of a device that was to stall and did not.
const NO_STALL: &str = "the device did not stall";

/// A device stops without a word while it holds jobs.
#[derive(Clone, Copy, Debug)]
pub struct Stall {
    /// Jobs that it holds.
    pub jobs: usize,
    /// Milliseconds until all of them are out, done in software and in their order.
    pub all_out_ms: f64,
    /// Milliseconds after which such a device counts as lost.
    pub deadline_ms: f64,
}

/// Stops a device made of software with about a thousand jobs.
///
/// # Errors
/// [`EngineError`], also when a job does not come out, or not in its turn.
pub fn stall(maker: &Maker, load: Load) -> Result<Stall, EngineError> {
    let settings = Settings::default();
    let faults = Faults { stall_at: Some(0), ..Faults::default() };
    let front = Front::with(Box::new(Model::new(settings, faults)));
    let mut course = Course::new(front, load, BURST)?;
    course.front.install(KeyId(0), load.key(maker, 1)?);
    for _ in 0..BURSTS {
        course.lay_out()?;
        course.hand_over();
    }
    let (jobs, begun) = (course.under_way, Instant::now());
    course.drain()?;
    let all_out_ms = begun.elapsed().as_secs_f64() * 1e3;
    if course.front.counts().losses == 0 {
        return Err(EngineError::Broken(NO_STALL));
    }
    course.end()?;
    Ok(Stall { jobs, all_out_ms, deadline_ms: settings.deadline as f64 / 1e6 })
}

/// An engine whose key is replaced a thousand times a second.
#[derive(Clone, Debug)]
pub struct Rekeys {
    /// Name of the engine.
    pub engine: String,
    /// Packets a second with new keys, in those without: rounds of both took turns.
    pub throughput: Summary,
    /// Packets a second of each round with new keys, and of the one without that took turns with it.
    pub rounds: [Vec<f64>; 2],
}

/// Replaces a key a thousand times a second under load, with as many jobs under way as the engine takes.
///
/// # Errors
/// [`EngineError`], also when a job does not come out, or not in its turn.
pub fn rekeys(
    name: &str,
    front: Front,
    maker: &Maker,
    load: Load,
    time: Duration,
) -> Result<Rekeys, EngineError> {
    let keys: Result<Vec<_>, _> = (0..KEYS).map(|mark| load.key(maker, mark)).collect();
    let keys = keys?;
    let mut course = Course::new(front, load, BURST)?;
    let mut next = keys.iter().cycle();
    let mut renew = |front: &mut Front| {
        if let Some(key) = next.next() {
            front.install(KeyId(0), key.clone());
        }
    };
    renew(&mut course.front);
    let round = time / (2 * ROUNDS as u32);
    let (mut ratios, mut rounds) = (Vec::new(), [const { Vec::new() }; 2]);
    for _ in 0..ROUNDS {
        let without = course.rate_with(round, |_| {})?;
        let mut due = Instant::now();
        let with = course.rate_with(round, |front| {
            while Instant::now() >= due {
                renew(front);
                due += PAUSE;
            }
        })?;
        ratios.push(with / without);
        rounds.iter_mut().zip([with, without]).for_each(|(all, one)| all.push(one));
    }
    course.end()?;
    let throughput = Summary::of(&ratios).ok_or(EngineError::Broken("nothing was measured"))?;
    Ok(Rekeys { engine: name.to_owned(), throughput, rounds })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::measure::PacketSize;
    use convoy_crypto::Cpu;

    #[test]
    fn a_stall_and_new_keys_lose_nothing() {
        let cpu = Cpu::detect().unwrap();
        let load = Load { suite: "aes-128-gcm-16".parse().unwrap(), size: PacketSize::Bytes(100) };
        let with = &Maker::Tier(cpu, cpu.best());
        // A pause of this thread may hide the stall.
        let hidden = |stalled: &Result<_, _>| matches!(stalled, Err(EngineError::Broken(NO_STALL)));
        let stalled = (0..5).map(|_| stall(with, load)).find(|stalled| !hidden(stalled));
        assert_eq!(stalled.unwrap().unwrap().jobs, 1024);
        let rekeys = rekeys("inline", Front::inline(), with, load, Duration::from_millis(50));
        assert!(rekeys.unwrap().throughput.mean > 0.0);
    }
}
