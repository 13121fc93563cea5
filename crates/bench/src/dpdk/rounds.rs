//! Rounds: Convoy's windows and runs of the program, in turn.

use convoy_crypto::{Cpu, Suite, Tier};
use convoy_runtime::{PinError, pin_current_thread};

use super::contest::{Contest, Measured, Peer};
use super::options::Driver;
use super::program::RunError;
use super::windows::OwnError;
use crate::results::LeftOut;

/// The points to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The side beside Convoy.
    pub peer: Peer,
    /// Kinds of devices.
    pub drivers: Vec<Driver>,
    /// Suites.
    pub suites: Vec<Suite>,
    /// Bytes of text, or of inner packets of gateways; [`SIZES_MAX`](super::SIZES_MAX) at most.
    pub sizes: Vec<usize>,
    /// Rounds of each suite.
    pub rounds: usize,
    /// Features that Convoy may use.
    pub cpu: Cpu,
    /// Convoy's tier.
    pub tier: Tier,
    /// The processor that computes, and the one beside it.
    pub processors: [usize; 2],
}

/// Results of a run.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// DPDK's version.
    pub version: Option<String>,
    /// Points, by suite and size.
    pub points: Vec<Point>,
    /// Points that were not measured, with the reason.
    pub left_out: Vec<LeftOut>,
    /// True if the bench was interrupted.
    pub is_interrupted: bool,
}

/// One suite and size; rounds are cycles of the time-stamp counter per packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The suite.
    pub suite: Suite,
    /// Bytes of text or inner packet, as asked for.
    pub size: usize,
    /// Bytes that count as throughput: whole blocks of text.
    pub bytes: usize,
    /// Convoy's rounds.
    pub convoy: Vec<f64>,
    /// The devices.
    pub devices: Vec<Device>,
}

/// A device of a point.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Its kind.
    pub driver: Driver,
    /// The version of intel-ipsec-mb, if it is made of it.
    pub library: Option<String>,
    /// As many rounds as Convoy's.
    pub rounds: Vec<f64>,
}

/// Nothing can be measured.
#[derive(Debug, thiserror::Error)]
pub enum RoundsError {
    /// Convoy's side.
    #[error("{suite}: {error}")]
    Own {
        /// The suite.
        suite: Suite,
        /// The reason.
        error: OwnError,
    },
    /// The processor.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// The program is not there, or Convoy's worker does not work.
    #[error(transparent)]
    Program(RunError),
}

/// One suite under way.
struct Turns {
    suite: Suite,
    contest: Box<dyn Contest>,
    sides: Vec<Side>,
}

/// The two that take turns.
struct Side {
    /// None is Convoy.
    driver: Option<Driver>,
    /// The version of intel-ipsec-mb, if the device is made of it.
    library: Option<String>,
    /// A value for each size, round by round.
    rounds: Vec<Vec<f64>>,
}

/// Measures all of it. The calling thread is bound to the first processor. What is measured is in `findings` also when this
/// fails or `go_on` says no.
///
/// # Errors
/// [`RoundsError`].
pub fn measure(
    plan: &Plan,
    findings: &mut Findings,
    go_on: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(&str),
) -> Result<(), RoundsError> {
    let mut suites = Vec::new();
    for suite in &plan.suites {
        suites.extend(Turns::new(plan, *suite, findings)?);
    }
    pin_current_thread(plan.processors[0])?;
    for round in 0..plan.rounds {
        tell(&format!("round {} of {}", round + 1, plan.rounds));
        for turns in &mut suites {
            match turns.round(round, findings, go_on) {
                Ok(()) => {}
                Err(RunError::Interrupted) => findings.is_interrupted = true,
                Err(error) => return Err(RoundsError::Program(error)),
            }
            if findings.is_interrupted {
                break;
            }
        }
        if findings.is_interrupted {
            break;
        }
    }
    findings.points = suites.iter().flat_map(|turns| turns.points(&plan.sizes)).collect();
    Ok(())
}

impl Turns {
    /// None for a suite that the program has no options for.
    fn new(
        plan: &Plan,
        suite: Suite,
        findings: &mut Findings,
    ) -> Result<Option<Self>, RoundsError> {
        if !plan.peer.has(suite) {
            let why = format!("{} has no options for it", plan.peer.program().name());
            findings.left_out.push(LeftOut::new(suite.to_string(), why));
            return Ok(None);
        }
        let contest = plan.peer.contest(plan, suite)?;
        let drivers = plan.drivers.iter().filter(|driver| driver.may_have(suite));
        let sides = [None].into_iter().chain(drivers.cloned().map(Some));
        let sides =
            sides.map(|driver| Side { driver, library: None, rounds: Vec::new() }).collect();
        Ok(Some(Self { suite, contest, sides }))
    }

    /// One round, which begins with another side each time. A device that cannot take part is left out from here on, with what
    /// was measured of it.
    fn round(
        &mut self,
        number: usize,
        findings: &mut Findings,
        go_on: &dyn Fn() -> bool,
    ) -> Result<(), RunError> {
        let count = self.sides.len();
        if count < 2 {
            return Ok(());
        }
        let mut values = vec![None; count];
        for turn in 0..count {
            let place = (number + turn) % count;
            let Some(driver) = self.sides[place].driver.clone() else {
                values[place] = Some(self.contest.own()?);
                continue;
            };
            match self.contest.device(&driver, go_on) {
                Ok(Measured { version, library, values: measured }) => {
                    findings.version = version.or_else(|| findings.version.take());
                    self.sides[place].library = library;
                    values[place] = Some(measured);
                }
                Err(error @ (RunError::Interrupted | RunError::Missing { .. })) => {
                    return Err(error);
                }
                Err(error) => {
                    let what = format!("DPDK {driver}, {}", self.suite);
                    findings.left_out.push(LeftOut::new(what, error));
                }
            }
        }
        let mut values = values.into_iter();
        self.sides.retain_mut(|side| {
            let value = values.next().flatten();
            let is_there = value.is_some();
            side.rounds.extend(value);
            is_there
        });
        Ok(())
    }

    /// None where no device took part.
    fn points(&self, sizes: &[usize]) -> Vec<Point> {
        let Some((convoy, devices)) = self.sides.split_first() else { return Vec::new() };
        if devices.is_empty() || convoy.rounds.is_empty() {
            return Vec::new();
        }
        let point = |(at, (size, bytes)): (usize, (&usize, &usize))| {
            let rounds = |side: &Side| {
                side.rounds.iter().filter_map(|round| round.get(at).copied()).collect::<Vec<_>>()
            };
            let device = |side: &Side| {
                let (driver, library) = (side.driver.clone()?, side.library.clone());
                Some(Device { driver, library, rounds: rounds(side) })
            };
            Point {
                suite: self.suite,
                size: *size,
                bytes: *bytes,
                convoy: rounds(convoy),
                devices: devices.iter().filter_map(device).collect(),
            }
        };
        sizes.iter().zip(&self.contest.bytes()).enumerate().map(point).collect()
    }
}
