//! Measuring: both sides in turn, in CPU time of the thread.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use super::check::{Party, compare, refused, runner};
use super::runner::Runner;
use super::{Call, RecordError, Subject};
use crate::peer::PeerError;
use crate::peer::openssl::{Libcrypto, Refused, Side};
use crate::stats::Median;

/// OpenSSL's own provider, and the one that is measured beside it.
#[derive(Debug)]
pub struct Sides {
    /// OpenSSL's default provider.
    pub default: Rc<Side>,
    /// The other one.
    pub ours: Rc<Side>,
}

/// Thoroughness of the measurement of a point.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Rounds of both sides.
    pub rounds: usize,
    /// About how long a side is called in a round.
    pub time: Duration,
}

/// One point that was measured.
#[derive(Clone, Debug)]
pub struct Point {
    /// Name of the cipher.
    pub cipher: &'static str,
    /// Call that was measured.
    pub call: &'static str,
    /// Bytes of text of a record or part; 0 where there is no text.
    pub size: usize,
    /// Records of a call.
    pub records: usize,
    /// True if Convoy's provider offers the cipher here, unless every one is asked for.
    pub offered: bool,
    /// Number of rounds.
    pub rounds: usize,
    /// Calls of each side in a round.
    pub calls: usize,
    /// Nanoseconds of a call by the default provider: the median of all rounds.
    pub default_ns: f64,
    /// The same by Convoy's.
    pub convoy_ns: f64,
    /// The default provider's time in Convoy's, round by round: above 1, Convoy is faster.
    pub ratio: Median,
    /// Nanoseconds of a call in each round: by the default provider, and by Convoy's.
    pub times: [Vec<f64>; 2],
}

/// Result of a point.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// It was measured.
    Measured(Point),
    /// A side has no such cipher.
    NoCipher(&'static str),
    /// A side has the cipher, but not this call of it.
    NoCall(&'static str),
}

/// The name of OpenSSL's own provider in reports.
pub const DEFAULT: &str = "the default provider";

/// The name of the other.
pub const OURS: &str = "Convoy's provider";

impl Sides {
    /// The default provider of `library`, and the one in the file `provider`.
    ///
    /// # Errors
    ///
    /// [`PeerError`] if OpenSSL cannot load one of them.
    pub fn load(library: &Rc<Libcrypto>, provider: &Path) -> Result<Self, PeerError> {
        Ok(Self { default: Side::new(library, None)?, ours: Side::new(library, Some(provider))? })
    }

    /// Measures one point: checks first that both agree, then gives each one round after the other,
    /// beginning with another one each time.
    ///
    /// # Errors
    ///
    /// [`RecordError`] if a side refuses a call, or both do not agree.
    pub fn measure(&self, subject: Subject, effort: Effort) -> Result<Outcome, RecordError> {
        let several = matches!(subject.call, Call::Multiblock4 | Call::Multiblock8);
        let mut ciphers = Vec::new();
        for (who, side) in [(DEFAULT, &self.default), (OURS, &self.ours)] {
            match side.cipher(subject.cipher.evp) {
                None => return Ok(Outcome::NoCipher(who)),
                Some(cipher) if several && !cipher.has_multiblock() => {
                    return Ok(Outcome::NoCall(who));
                }
                Some(cipher) => ciphers.push((who, cipher)),
            }
        }
        let [(_, default), (_, ours)] = &ciphers[..] else { return Ok(Outcome::NoCipher(OURS)) };
        let default = Party { who: DEFAULT, cipher: default };
        let ours = Party { who: OURS, cipher: ours };
        let sealed = compare([default, ours], subject)?;
        let mut runners = [runner(default, subject, &sealed)?, runner(ours, subject, &sealed)?];
        let calls = calls(&mut runners[0], effort.time).map_err(refused(DEFAULT, String::new))?;
        let mut times = [const { Vec::new() }; 2];
        let mut ratios = Vec::new();
        // One round ahead warms caches.
        for round in 0..=effort.rounds {
            let mut took = [0.0; 2];
            for turn in 0..2 {
                let side = (round + turn) % 2;
                let result = time(&mut runners[side], calls);
                let who = [default.who, ours.who][side];
                let spent = result.map_err(refused(who, || runners[side].errors()))?;
                took[side] = spent.as_secs_f64() * 1e9 / calls as f64;
            }
            if round > 0 {
                times.iter_mut().zip(took).for_each(|(all, one)| all.push(one));
                ratios.push(took[0] / took[1].max(f64::MIN_POSITIVE));
            }
        }
        let median = |samples: &[f64]| Median::of(samples).unwrap_or_default();
        Ok(Outcome::Measured(Point {
            cipher: subject.cipher.name,
            call: subject.call.name(),
            size: subject.size,
            records: subject.call.records(),
            offered: true,
            rounds: ratios.len(),
            calls,
            default_ns: median(&times[0]).median,
            convoy_ns: median(&times[1]).median,
            ratio: median(&ratios),
            times,
        }))
    }
}

/// Number of calls that take about so long.
fn calls(runner: &mut Runner, enough: Duration) -> Result<usize, Refused> {
    let mut calls = 1;
    loop {
        let spent = time(runner, calls)?;
        if spent >= enough || calls >= 1 << 24 {
            return Ok(calls);
        }
        calls *= 2;
    }
}

/// Processor time of so many calls.
fn time(runner: &mut Runner, calls: usize) -> Result<Duration, Refused> {
    let mut left = calls;
    let mut spent = Duration::ZERO;
    while left > 0 {
        let now = left.min(runner.batch());
        runner.refill()?;
        let start = cpu_time();
        runner.run(now)?;
        spent += cpu_time().saturating_sub(start);
        left -= now;
    }
    Ok(spent)
}

/// The processor's time that the thread has had.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
