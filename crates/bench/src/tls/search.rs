//! The number of connections at which throughput is highest while latency stays within its bound.

use serde::{Deserialize, Serialize};

/// Limits of a search.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Most connections at once.
    pub connections: usize,
    /// Longest latency of any connection, seconds.
    pub latency: f64,
    /// Most runs of the search.
    pub runs: usize,
}

/// Result of one run with some number of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Connections at once.
    pub connections: usize,
    /// Bytes of files a second.
    pub throughput: f64,
    /// Longest latency of a connection, seconds.
    pub latency: f64,
    /// Connections that failed.
    pub failures: u64,
}

impl Trial {
    fn is_good(&self, bounds: &Bounds) -> bool {
        self.failures == 0 && self.latency <= bounds.latency && self.throughput > 0.0
    }
}

/// Result of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Found<R> {
    /// All trials in their order, and what their runs reported.
    pub trials: Vec<(Trial, R)>,
    /// Position of the best good one; none if no number of connections kept the bounds.
    pub best: Option<usize>,
}

/// Below this share of the highest throughput so far, more connections only cost.
const FALLEN: f64 = 0.9;

/// Searches with `run`, which is given numbers of connections. The number doubles until latency leaves its
/// bound, a connection fails or throughput falls; then the gap between the last good and the first bad
/// number is halved.
///
/// # Errors
/// Errors of `run`.
pub fn highest<R, E>(
    bounds: &Bounds,
    mut run: impl FnMut(usize) -> Result<(Trial, R), E>,
) -> Result<Found<R>, E> {
    let mut trials: Vec<(Trial, R)> = Vec::new();
    let (mut good, mut bad) = (0, bounds.connections + 1);
    let mut next = 1;
    while trials.len() < bounds.runs && next > good && next < bad {
        let (trial, report) = run(next)?;
        let best = best(&trials, bounds).map_or(0.0, |at| trials[at].0.throughput);
        let is_over = trial.throughput < FALLEN * best;
        let is_good = trial.is_good(bounds);
        trials.push((trial, report));
        match is_good && !is_over {
            true => good = next,
            false => bad = next,
        }
        // Nothing bad is known yet: twice as many.
        next = if bad > bounds.connections {
            (2 * next).min(bounds.connections)
        } else {
            (good + bad) / 2
        };
        // A gap of an eighth is not worth a run.
        if bad <= bounds.connections && bad - good <= (good / 8).max(1) {
            break;
        }
    }
    let best = best(&trials, bounds);
    Ok(Found { trials, best })
}

fn best<R>(trials: &[(Trial, R)], bounds: &Bounds) -> Option<usize> {
    let good = trials.iter().enumerate().filter(|(_, (trial, _))| trial.is_good(bounds));
    good.max_by(|(_, (one, _)), (_, (other, _))| one.throughput.total_cmp(&other.throughput))
        .map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that carries `capacity` bytes a second and gives a connection `each` at most; connections
    /// beyond what it can carry wait for each other.
    fn server(capacity: f64, each: f64, size: f64) -> impl FnMut(usize) -> Result<(Trial, ()), ()> {
        move |connections| {
            let throughput = (each * connections as f64).min(capacity);
            let latency = size * connections as f64 / throughput;
            Ok((Trial { connections, throughput, latency, failures: 0 }, ()))
        }
    }

    fn found(bounds: &Bounds, run: impl FnMut(usize) -> Result<(Trial, ()), ()>) -> Option<Trial> {
        let Found { trials, best } = highest(bounds, run).unwrap();
        assert!(trials.len() <= bounds.runs);
        best.map(|at| trials[at].0)
    }

    const BOUNDS: Bounds = Bounds { connections: 8192, latency: 2.0, runs: 40 };

    #[test]
    fn a_server_of_known_capacity_is_filled() {
        for (capacity, each) in [(1e9, 1e8), (1e9, 2e9), (7e7, 1e6), (1e6, 333.0)] {
            // The latency bound is far away.
            let best = found(&BOUNDS, server(capacity, each, 1.0)).unwrap();
            assert!(best.throughput >= 0.99 * capacity.min(8192.0 * each), "{best:?}");
        }
    }

    #[test]
    fn latency_bounds_the_number_of_connections() {
        // Two seconds of capacity hold 100 files; to be full takes 50.
        let best = found(&BOUNDS, server(1e9, 2e7, 2e7)).unwrap();
        assert!(best.latency <= 2.0 && best.connections <= 100);
        assert!(best.throughput >= 0.99e9, "{best:?}");
        // One connection alone is within the bound, two are not.
        let best = found(&BOUNDS, server(1e9, 1e9, 1.5e9)).unwrap();
        assert_eq!((best.connections, best.throughput), (1, 1e9));
        // Even one is not.
        assert_eq!(found(&BOUNDS, server(1e9, 1e9, 3e9)), None);
    }

    #[test]
    fn failures_bound_it_as_well() {
        let mut server = server(1e9, 1e6, 1.0);
        let failing = |connections| {
            let (mut trial, ()) = server(connections)?;
            trial.failures = u64::from(connections > 300);
            Ok((trial, ()))
        };
        let best = found(&BOUNDS, failing).unwrap();
        assert!((266..=300).contains(&best.connections), "{best:?}");
    }

    #[test]
    fn a_server_that_slows_down_is_not_pushed_further() {
        let mut most = 0;
        let slowing = |connections: usize| {
            most = most.max(connections);
            let throughput = 1e9 / (1.0 + (connections as f64 - 16.0).abs() / 16.0);
            Ok::<_, ()>((Trial { connections, throughput, latency: 0.1, failures: 0 }, ()))
        };
        let Found { trials, best } = highest(&BOUNDS, slowing).unwrap();
        assert_eq!(trials[best.unwrap()].0.connections, 16);
        assert_eq!(most, 32);
    }

    #[test]
    fn bounds_hold() {
        let bounds = Bounds { connections: 100, latency: 2.0, runs: 40 };
        let best = found(&bounds, server(1e12, 1.0, 0.1)).unwrap();
        assert_eq!(best.connections, 100);
        let bounds = Bounds { connections: 8192, latency: 2.0, runs: 3 };
        assert_eq!(found(&bounds, server(1e12, 1.0, 0.1)).unwrap().connections, 4);
        let failed = highest(&bounds, |_| Err::<(Trial, ()), _>("no server"));
        assert_eq!(failed.unwrap_err(), "no server");
    }
}
