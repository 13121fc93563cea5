//! Letting packets gather, so that they travel in bursts.
//!
//! A worker that looks at its ports the moment a packet arrives finds one or two packets each
//! time, and pays a system call, a look-up and a write to the TUN interface for each of them. When
//! packets come fast that costs more than it gains: a pause of some microseconds lets a burst
//! gather, of which the kernel makes one large segment. Network cards moderate their interrupts
//! for the same reason.
//!
//! Packets that come slowly see no pause: a packet that comes alone is passed on at once.

/// Time over which packets are counted.
const WINDOW_NS: u64 = 2_000_000;
/// Moves in a window from which on packets come fast: a packet in and out counts as two, so this
/// is about 50,000 packets a second.
const FAST: usize = 200;
/// A turn that moved so much was worth its costs.
const ENOUGH: usize = 64;

/// Decides when a worker pauses.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    since: u64,
    moves: usize,
    fast: bool,
}

impl Gather {
    /// Notes a turn at `now` (nanoseconds) that moved `moved` packets; says whether to pause
    /// before the next.
    #[inline]
    pub(crate) fn pauses(&mut self, now: u64, moved: usize) -> bool {
        let age = now.saturating_sub(self.since);
        if age >= WINDOW_NS {
            // A window that was slept through says nothing of haste.
            self.fast = self.moves >= FAST && age < 2 * WINDOW_NS;
            self.since = now;
            self.moves = 0;
        }
        self.moves += moved;
        self.fast && moved < ENOUGH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets at even distances for `windows` windows; how many turns paused.
    fn pauses(gather: &mut Gather, start: u64, windows: u64, per_window: u64, each: usize) -> u64 {
        let step = WINDOW_NS / per_window;
        let turns = (0..windows * per_window).map(|n| start + n * step);
        turns.map(|now| u64::from(gather.pauses(now, each))).sum()
    }

    #[test]
    fn slow_packets_are_never_held_up() {
        let mut gather = Gather::default();
        assert_eq!(pauses(&mut gather, 0, 50, 10, 2), 0);
        assert_eq!(pauses(&mut gather, 1 << 40, 50, 90, 2), 0);
    }

    #[test]
    fn fast_packets_gather_from_the_second_window_on() {
        let mut gather = Gather::default();
        let turns = 10 * 400;
        let paused = pauses(&mut gather, 1 << 40, 10, 400, 2);
        assert!((turns - 2 * 400..turns).contains(&paused), "{paused}");
    }

    #[test]
    fn large_bursts_need_no_pause() {
        let mut gather = Gather::default();
        assert_eq!(pauses(&mut gather, 0, 10, 400, 64), 0);
    }

    #[test]
    fn the_first_packet_after_a_silence_is_passed_on_at_once() {
        let mut gather = Gather::default();
        pauses(&mut gather, 1 << 40, 10, 400, 2);
        assert!(!gather.pauses(1 << 41, 2));
    }
}
