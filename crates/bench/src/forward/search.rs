//! The highest offered load of which at most one packet in 10,000 is lost.

/// Packets that a ring in front of the worker holds.
pub const RING: usize = 4096;
/// Packets of a trial: 26 of them may be lost. Whoever is offered 1 % too much has 1,300 more packets waiting in
/// each ring at the end than at the beginning, so that it shows within one trial.
pub const PACKETS: u64 = 1 << 18;
/// Share of the packets that may be lost.
pub const LOSS: f64 = 1e-4;
/// Precision of the search: the lowest load that loses too much, by the highest that does not, less 1.
pub const CLOSE: f64 = 0.01;
/// Void trials one after another with which a search ends.
pub const VOIDS_MAX: usize = 10;
/// The first step of the search, as a share of the load; each further one is twice as large, up to the last.
const STEPS: (f64, f64) = (0.03, 0.5);
/// Share of the first load: if even that is too much, the search ends.
const LEAST: f64 = 1e-4;

/// Result of one trial; `V` says what made it void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trial<V> {
    /// It counts.
    Counted {
        /// Packets offered.
        offered: u64,
        /// Of these, lost.
        lost: u64,
    },
    /// It says nothing.
    Void(V),
}

/// Packets that count as lost: those that found a ring full, and those that wait in a ring at the end beyond what
/// bursts and short pauses leave there. A trial of a minute, as RFC 2544 has them, would have lost these.
#[must_use]
pub fn lost(dropped: u64, waiting: [u64; 2], packets: u64) -> u64 {
    let usual = (packets / 256).clamp(256, RING as u64 / 4);
    dropped + waiting.iter().map(|waiting| waiting.saturating_sub(usual)).sum::<u64>()
}

/// A search that found a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// Packets a second.
    pub rate: f64,
    /// Trials that count.
    pub trials: usize,
    /// Trials that were void.
    pub voids: usize,
}

/// Result of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ended<V> {
    /// With a rate.
    Found(Found),
    /// [`VOIDS_MAX`] trials one after another were void, the last one for this.
    Busy(V),
    /// Packets are lost at any rate.
    Lossy,
}

/// Searches with `trial`, which is given packets a second. `first` is where the rate is expected.
///
/// From there the load goes up or down by steps that double, until both a load that is kept and one that is not
/// are known; then the gap is halved until it is less than [`CLOSE`]. The rate found is the highest that was kept.
///
/// # Errors
/// Errors of `trial`.
pub fn search<V, E>(
    first: f64,
    mut trial: impl FnMut(f64) -> Result<Trial<V>, E>,
) -> Result<Ended<V>, E> {
    let (mut trials, mut voids, mut in_a_row) = (0, 0, 0);
    let (mut kept, mut too_much): (Option<f64>, Option<f64>) = (None, None);
    let (mut rate, mut step) = (first, STEPS.0);
    loop {
        match trial(rate)? {
            Trial::Void(why) => {
                (voids, in_a_row) = (voids + 1, in_a_row + 1);
                if in_a_row >= VOIDS_MAX {
                    return Ok(Ended::Busy(why));
                }
                continue;
            }
            Trial::Counted { offered, lost } => {
                (trials, in_a_row) = (trials + 1, 0);
                let is_kept = lost as f64 <= LOSS * offered as f64;
                *(if is_kept { &mut kept } else { &mut too_much }) = Some(rate);
            }
        }
        rate = match (kept, too_much) {
            (Some(kept), Some(too_much)) if too_much <= kept * (1.0 + CLOSE) => {
                return Ok(Ended::Found(Found { rate: kept, trials, voids }));
            }
            (Some(kept), Some(too_much)) => (kept * too_much).sqrt(),
            (Some(kept), None) => kept * (1.0 + step),
            (None, Some(too_much)) if too_much < first * LEAST => return Ok(Ended::Lossy),
            (None, too_much) => too_much.unwrap_or(first) * (1.0 - step),
        };
        step = (2.0 * step).min(STEPS.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix::Numbers;

    /// A worker of known speed behind two rings, served in turn by bursts.
    struct Simulated {
        /// Packets a second.
        speed: f64,
        /// By how much the time of a packet varies, as a share of it, and one packet in 10,000 takes so much longer.
        jitter: f64,
        pause: f64,
        numbers: Numbers,
    }

    impl Simulated {
        fn random(&mut self) -> f64 {
            self.numbers.below(1 << 20) as f64 / f64::from(1 << 20)
        }

        fn trial(&mut self, rate: f64, packets: u64) -> Trial<&'static str> {
            let (mut waiting, mut dropped) = ([0; 2], 0);
            let (mut free_at, mut ring, mut burst) = (0.0, 0, 0);
            for n in 0..packets {
                let now = n as f64 / rate;
                while free_at <= now && waiting != [0, 0] {
                    if burst == 256 || waiting[ring] == 0 {
                        (ring, burst) = (1 - ring, 0);
                        continue;
                    }
                    (waiting[ring], burst) = (waiting[ring] - 1, burst + 1);
                    let varies = 1.0 + self.jitter * (2.0 * self.random() - 1.0);
                    let pause = if self.random() < 1e-4 { self.pause } else { 0.0 };
                    free_at += varies / self.speed + pause;
                }
                if waiting == [0, 0] {
                    free_at = f64::max(free_at, now);
                }
                let into = &mut waiting[(n % 2) as usize];
                match *into < RING as u64 {
                    true => *into += 1,
                    false => dropped += 1,
                }
            }
            Trial::Counted { offered: packets, lost: lost(dropped, waiting, packets) }
        }
    }

    fn simulated(speed: f64, jitter: f64, pause: f64, seed: u64) -> Simulated {
        Simulated { speed, jitter, pause, numbers: Numbers::new(seed) }
    }

    #[test]
    fn the_rate_of_a_known_worker_is_found() {
        for seed in 0..24 {
            let speed = 20_000.0 * 1.37_f64.powi(seed);
            let mut gateway = simulated(speed, 0.5, 0.0, seed.unsigned_abs().into());
            // What is expected may be far off.
            let first = speed * [1.0, 0.97, 1.05, 0.2, 7.0][seed as usize % 5];
            let ended = search(first, |rate| Ok::<_, ()>(gateway.trial(rate, PACKETS)));
            let Ok(Ended::Found(found)) = ended else { panic!("{ended:?}") };
            let off = found.rate / speed - 1.0;
            assert!((-0.0105..0.0105).contains(&off), "{speed}: {found:?}, off by {off}");
            assert!(found.trials <= 16, "{found:?}");
        }
    }

    #[test]
    fn pauses_cost_what_they_take_as_long_as_a_ring_bridges_them() {
        // A pause of 200 packets' time after one packet in 10,000: the worker loses 2 % of its time.
        for seed in 0..6 {
            let mut gateway = simulated(1e6, 0.2, 200e-6, seed);
            let ended = search(1e6, |rate| Ok::<_, ()>(gateway.trial(rate, PACKETS)));
            let Ok(Ended::Found(found)) = ended else { panic!("{ended:?}") };
            let off = found.rate / (1e6 / 1.02) - 1.0;
            assert!((-0.02..0.015).contains(&off), "{found:?}, off by {off}");
        }
    }

    #[test]
    fn void_trials_are_taken_again_and_change_nothing() {
        let mut numbers = Numbers::new(5);
        for seed in 0..4 {
            let mut gateway = simulated(2e6, 0.5, 0.0, seed);
            let ended = search(2e6, |rate| {
                // What a void trial would have said is wrong.
                let is_void = numbers.below(3) == 0;
                Ok::<_, ()>(if is_void { Trial::Void("") } else { gateway.trial(rate, PACKETS) })
            });
            let Ok(Ended::Found(found)) = ended else { panic!("{ended:?}") };
            assert!((found.rate / 2e6 - 1.0).abs() < 0.0105, "{found:?}");
        }
    }

    #[test]
    fn a_search_ends_where_nothing_can_be_measured() {
        let mut turns = 0;
        let busy = search(1e6, |_| {
            turns += 1;
            Ok::<_, ()>(Trial::Void(turns))
        });
        assert_eq!(busy, Ok(Ended::Busy(VOIDS_MAX)));
        let all =
            search(1e6, |_| Ok::<Trial<()>, ()>(Trial::Counted { offered: 100_000, lost: 11 }));
        assert_eq!(all, Ok(Ended::Lossy));
        assert_eq!(search(1e6, |_| Err::<Trial<()>, _>("broken")), Err("broken"));
    }

    #[test]
    fn what_waits_beyond_the_usual_counts_as_lost() {
        assert_eq!(lost(0, [1024, 1024], PACKETS), 0);
        assert_eq!(lost(3, [1034, 1025], PACKETS), 14);
        assert_eq!(lost(0, [1100, 0], 1 << 24), 76);
        assert_eq!(lost(0, [300, 250], 1000), 44);
    }
}
