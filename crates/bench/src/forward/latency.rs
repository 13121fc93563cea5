//! Latencies of packets.

/// Times that packets took at one load, from when each was due to when the sink saw it, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// The load, as a share of the rate found.
    pub load: f64,
    /// Packets a second that were offered.
    pub rate: f64,
    /// Of [`PERCENTILES`], each.
    pub percentiles: [f64; PERCENTILES.len()],
    /// The longest.
    pub max: f64,
    /// Packets that were timed.
    pub packets: usize,
}

/// Percentiles that are told, and what they are called.
pub const PERCENTILES: [(f64, &str); 4] = [(0.5, "50"), (0.9, "90"), (0.99, "99"), (0.999, "99.9")];

/// Loads at which latencies are measured, as shares of the rate found.
pub const LOADS: [f64; 3] = [0.1, 0.5, 0.9];

impl Latency {
    /// Of times in ticks, of which `mhz` are a microsecond. None if there are none.
    #[must_use]
    pub fn of(load: f64, rate: f64, mut ticks: Vec<u64>, mhz: f64) -> Option<Self> {
        ticks.sort_unstable();
        let max = *ticks.last()? as f64 / mhz;
        let at = |part: f64| {
            // The least that so large a part is not above.
            let place = (part * ticks.len() as f64).ceil() as usize;
            ticks.get(place.saturating_sub(1)).map_or(0.0, |ticks| *ticks as f64 / mhz)
        };
        let percentiles = PERCENTILES.map(|(part, _)| at(part));
        Some(Self { load, rate, percentiles, max, packets: ticks.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let ticks: Vec<u64> = (1..=1000).rev().map(|n| 10 * n).collect();
        let latency = Latency::of(0.5, 1e6, ticks, 10.0).unwrap();
        assert_eq!((latency.percentiles, latency.max), ([500.0, 900.0, 990.0, 999.0], 1000.0));
        let one = Latency::of(0.5, 1e6, vec![30], 10.0).unwrap();
        assert_eq!((one.percentiles, one.max, one.packets), ([3.0; 4], 3.0, 1));
        assert_eq!(Latency::of(0.5, 1e6, Vec::new(), 10.0), None);
    }
}
