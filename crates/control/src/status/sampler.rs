//! Rates from counters that are looked at now and then.

use std::collections::{HashMap, VecDeque};

use super::peers::Peers;

/// Time over which rates are averaged, in nanoseconds.
const SPAN_NS: u64 = 5_000_000_000;

/// Time that a counter is remembered that nobody looks at, in nanoseconds.
const KEPT_NS: u64 = 60_000_000_000;

/// Samples closer to each other than this are taken as one.
const LEAST_NS: u64 = 500_000_000;

/// Remembers recent values of counters by name, and tells their rates.
///
/// To be fed about once a second, so that a rate is there when somebody asks.
#[derive(Debug, Default)]
pub struct Sampler {
    series: HashMap<String, VecDeque<(u64, u64)>>,
    /// Traffic with peers.
    pub(super) peers: Peers,
    /// Moments of the last packet that left and of the last that arrived, also through SAs that are gone, in
    /// nanoseconds.
    last_packets_ns: [Option<u64>; 2],
}

impl Sampler {
    /// Takes note of a counter's value at a moment in nanoseconds.
    pub fn note(&mut self, name: &str, at_ns: u64, value: u64) {
        if !self.series.contains_key(name) {
            self.series.insert(name.to_owned(), VecDeque::new());
        }
        let Some(series) = self.series.get_mut(name) else { return };
        match series.back() {
            // A counter that fell belongs to something new.
            Some((_, last)) if *last > value => series.clear(),
            Some((at, _)) if at_ns.saturating_sub(*at) < LEAST_NS => return,
            _ => {}
        }
        series.push_back((at_ns, value));
        // One sample as old as the span stays, so that the span is covered.
        while series.get(1).is_some_and(|(at, _)| at_ns.saturating_sub(*at) >= SPAN_NS) {
            series.pop_front();
        }
    }

    /// Average rate over the last seconds; `None` with less than two samples.
    #[must_use]
    pub fn per_second(&self, name: &str) -> Option<f64> {
        let series = self.series.get(name)?;
        let ((from, first), (to, last)) = (series.front()?, series.back()?);
        let seconds = to.saturating_sub(*from) as f64 / 1e9;
        (seconds > 0.0).then(|| last.saturating_sub(*first) as f64 / seconds)
    }

    /// Takes note of the age of a direction's last packet in seconds, as its SAs tell it; returns the age of the last
    /// packet through any SA, those that are gone included.
    pub(super) fn last_packet(
        &mut self,
        is_outbound: bool,
        now_ns: u64,
        age_s: Option<f64>,
    ) -> Option<f64> {
        let [inbound, outbound] = &mut self.last_packets_ns;
        let last = if is_outbound { outbound } else { inbound };
        let told = age_s.map(|age| now_ns.saturating_sub((age * 1e9) as u64));
        *last = (*last).max(told);
        last.map(|at| now_ns.saturating_sub(at) as f64 / 1e9)
    }

    /// Forgets counters of which nobody took note for a minute.
    pub fn forget(&mut self, now_ns: u64) {
        let is_live = |at: u64| now_ns.saturating_sub(at) < KEPT_NS;
        self.series.retain(|_, series| series.back().is_some_and(|(at, _)| is_live(*at)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_rate_is_the_average_of_the_last_seconds() {
        let mut sampler = Sampler::default();
        assert_eq!(sampler.per_second("x"), None);
        sampler.note("x", 0, 0);
        assert_eq!(sampler.per_second("x"), None);
        for second in 1..=20 {
            sampler.note(
                "x",
                second * S,
                if second <= 10 { second * 100 } else { 1000 + (second - 10) * 10 },
            );
        }
        assert_eq!(sampler.per_second("x"), Some(10.0));
    }

    #[test]
    fn samples_that_come_too_fast_do_not_count() {
        let mut sampler = Sampler::default();
        sampler.note("x", 0, 0);
        sampler.note("x", 1, 1_000_000);
        assert_eq!(sampler.per_second("x"), None);
    }

    #[test]
    fn what_is_gone_is_forgotten() {
        let mut sampler = Sampler::default();
        sampler.note("gone", 0, 1);
        sampler.note("here", 59 * S, 1);
        sampler.forget(59 * S);
        assert_eq!(sampler.series.len(), 2);
        sampler.forget(60 * S);
        assert_eq!(sampler.series.keys().collect::<Vec<_>>(), ["here"]);
    }

    /// SAs are replaced, and packets that went through the old ones went all the same.
    #[test]
    fn the_last_packet_of_a_direction_outlives_its_sa() {
        let mut sampler = Sampler::default();
        assert_eq!(sampler.last_packet(true, 9 * S, Some(2.0)), Some(2.0));
        assert_eq!(sampler.last_packet(true, 10 * S, None), Some(3.0));
        assert_eq!(sampler.last_packet(false, 10 * S, None), None);
        assert_eq!(sampler.last_packet(true, 11 * S, Some(0.5)), Some(0.5));
    }

    #[test]
    fn a_counter_that_begins_anew_has_no_rate_yet() {
        let mut sampler = Sampler::default();
        sampler.note("x", 0, 500);
        sampler.note("x", S, 600);
        sampler.note("x", 2 * S, 3);
        assert_eq!(sampler.per_second("x"), None);
    }
}
