//! Statistics over samples that were taken one after another.

use serde::{Deserialize, Serialize};

/// Statistics of many samples of one point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// First and last eighth dropped, the rest sorted, its middle quarters averaged.
    pub mean: f64,
    /// Median of what was kept.
    pub median: f64,
    /// Lower quartile of what was kept.
    pub low: f64,
    /// Upper quartile of what was kept.
    pub high: f64,
}

impl Summary {
    /// Sums samples up, given in the order in which they were taken. None if there are none.
    ///
    /// The first eighth is dropped for caches and clocks that have not settled, the last for
    /// whatever ends a run; the outer quarters of the sorted rest hold the interruptions.
    #[must_use]
    pub fn of(samples: &[f64]) -> Option<Self> {
        let eighth = samples.len() / 8;
        let mut kept = samples.get(eighth..samples.len() - eighth)?.to_vec();
        kept.sort_by(f64::total_cmp);
        let (&first, &last) = (kept.first()?, kept.last()?);
        let quarter = kept.len() / 4;
        let middle = kept.get(quarter..kept.len() - quarter).unwrap_or(&[]);
        let mean = middle.iter().sum::<f64>() / middle.len() as f64;
        let at = |part: f64| {
            let place = part * (kept.len() - 1) as f64;
            let below = place.floor() as usize;
            let low = kept.get(below).copied().unwrap_or(first);
            let high = kept.get(below + 1).copied().unwrap_or(last);
            low + (high - low) * (place - below as f64)
        };
        Some(Self { mean, median: at(0.5), low: at(0.25), high: at(0.75) })
    }
}

/// The median of many samples, and where the true one lies with a probability of 95 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Median {
    /// Median of all samples.
    pub median: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Median {
    /// Whatever the samples' distribution: of n in order, how many lie below the true median is binomial
    /// with a standard deviation of √n / 2. None if there are none; of fewer than six the interval is all
    /// of them, and holds less than 95 %.
    #[must_use]
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (count, last) = (sorted.len(), sorted.len().checked_sub(1)?);
        let (lower, upper) = (sorted.get(last / 2)?, sorted.get(count / 2)?);
        let away = 1.96 * (count as f64).sqrt() / 2.0;
        let low = ((count as f64 / 2.0 - away).round() as usize).saturating_sub(1);
        let (median, low, high) =
            ((lower + upper) / 2.0, *sorted.get(low)?, *sorted.get(last - low)?);
        Some(Self { median, low, high })
    }
}

/// A straight line through points: cost = `intercept` + `slope` × bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// Cycles per byte.
    pub slope: f64,
    /// Cycles per packet.
    pub intercept: f64,
}

impl Line {
    /// The line of least squared *relative* error through points of (bytes, cycles); none for fewer
    /// than two lengths. Relative, so that a packet of 16 KB does not drown the short ones, whose
    /// cost is what the intercept is asked for.
    #[must_use]
    pub fn through(points: &[(f64, f64)]) -> Option<Self> {
        let (mut s, mut sx, mut sy, mut sxx, mut sxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for &(x, y) in points {
            if y <= 0.0 {
                return None;
            }
            let weight = 1.0 / (y * y);
            s += weight;
            sx += weight * x;
            sy += weight * y;
            sxx += weight * x * x;
            sxy += weight * x * y;
        }
        let determinant = s * sxx - sx * sx;
        // Two points of one length give a determinant of rounding errors.
        if points.len() < 2 || determinant <= 1e-9 * s * sxx {
            return None;
        }
        let slope = (s * sxy - sx * sy) / determinant;
        Some(Self { slope, intercept: (sy - slope * sx) / s })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outer_eighths_are_dropped_by_time_and_outer_quarters_by_size() {
        // Two wild samples at either end of time, two wild ones inside.
        let mut samples = vec![1e9, 1e9];
        samples.extend([10.0, 11.0, 0.0, 12.0, 13.0, 1e6, 11.0, 12.0, 12.0, 11.0, 11.5, 11.5]);
        samples.extend([-1e9, -1e9]);
        let summary = Summary::of(&samples).unwrap();
        // Kept and sorted: 0 10 11 | 11 11 11.5 11.5 12 12 | 12 13 1e6.
        assert!((summary.mean - 69.0 / 6.0).abs() < 1e-9, "{summary:?}");
        assert!((summary.median - 11.5).abs() < 1e-9);
        assert!(summary.low >= 10.0 && summary.low <= 11.0);
        assert!(summary.high >= 12.0 && summary.high <= 13.0);
    }

    #[test]
    fn few_samples_are_summed_up_and_none_are_not() {
        assert_eq!(Summary::of(&[]), None);
        let one = Summary::of(&[7.0]).unwrap();
        assert_eq!((one.mean, one.median, one.low, one.high), (7.0, 7.0, 7.0, 7.0));
        let three = Summary::of(&[1.0, 2.0, 9.0]).unwrap();
        assert_eq!((three.median, three.mean), (2.0, 4.0));
    }

    #[test]
    fn the_true_median_is_in_the_interval_nineteen_times_of_twenty() {
        assert_eq!(Median::of(&[]), None);
        assert_eq!(Median::of(&[3.0]), Some(Median { median: 3.0, low: 3.0, high: 3.0 }));
        let even = Median::of(&[4.0, 1.0, 2.0, 3.0]).unwrap();
        assert_eq!((even.median, even.low, even.high), (2.5, 1.0, 4.0));
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            (state >> 40) as f64 / (1u64 << 24) as f64
        };
        let mut within = 0;
        for _ in 0..2000 {
            let samples: Vec<f64> = (0..41).map(|_| random()).collect();
            let Median { median, low, high } = Median::of(&samples).unwrap();
            assert!(low <= median && median <= high);
            within += usize::from((low..=high).contains(&0.5));
        }
        assert!((1880..1990).contains(&within), "{within} of 2000");
    }

    #[test]
    fn line_through_exact_points_is_found() {
        let points = [(64.0, 50.0 + 32.0), (256.0, 50.0 + 128.0), (16384.0, 50.0 + 8192.0)];
        let line = Line::through(&points).unwrap();
        assert!((line.slope - 0.5).abs() < 1e-9 && (line.intercept - 50.0).abs() < 1e-6);
    }

    #[test]
    fn points_of_one_length_have_no_line() {
        assert_eq!(Line::through(&[(64.0, 80.0)]), None);
        assert_eq!(Line::through(&[(64.0, 80.0), (64.0, 90.0)]), None);
        assert_eq!(Line::through(&[(64.0, 0.0), (128.0, 90.0)]), None);
    }
}
