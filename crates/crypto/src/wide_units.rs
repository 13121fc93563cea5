//! Wide units that sleep: some processors switch the upper halves of their vector units off after a while
//! without wide instructions, and the next of these wait until they are on again.
//!
//! A burst that comes then may go through a kernel of 128-bit registers, which waits for nothing. Whether it
//! does is decided once per burst and thread, by one time stamp: [`Thread::goes_narrow`].

use std::{cell::Cell, sync::OnceLock};

use crate::{
    HashAlg,
    isa::{self, time_stamp},
    width::Width,
};

/// Time that a class of processors keeps its wide units awake, and times to wake them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WideUnits {
    /// Microseconds without wide instructions after which they may be asleep.
    pub sleep_us: u32,
    /// Microseconds that the next instruction of 256 bits waits then.
    pub wake_256_us: u32,
    /// Microseconds that the next instruction of 512 bits waits then.
    pub wake_512_us: u32,
    /// Ticks of the time-stamp counter in a microsecond.
    pub tsc_mhz: u32,
}

impl WideUnits {
    /// Intel's processors with AVX-512 and without VAES (Skylake-SP to Cooper Lake), as measured on Cascade
    /// Lake: asleep after 670 µs.
    pub(crate) const fn of_skylake(tsc_mhz: u32) -> Self {
        Self { sleep_us: 600, wake_256_us: 17, wake_512_us: 25, tsc_mhz }
    }

    /// Wide units of the processor at hand, by the table.
    pub(crate) fn here() -> Option<&'static Self> {
        static HERE: OnceLock<Option<WideUnits>> = OnceLock::new();
        HERE.get_or_init(|| isa::sleepers_mhz().map(Self::of_skylake)).as_ref()
    }

    fn sleep(&self) -> u64 {
        u64::from(self.sleep_us) * u64::from(self.tsc_mhz)
    }

    fn wake(&self, width: Width) -> u64 {
        let micros = match width {
            Width::W128 => 0,
            Width::W256 => self.wake_256_us,
            Width::W512 => self.wake_512_us,
        };
        u64::from(micros) * u64::from(self.tsc_mhz)
    }
}

/// Computation of a burst, as far as it uses wide registers where they can sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A message in each lane.
    Hash(HashAlg),
    /// A block of keystream in each lane.
    ChaCha,
}

/// Size of a burst.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// Messages, or packets.
    pub(crate) messages: usize,
    /// Bytes of all of them.
    pub(crate) bytes: usize,
}

/// Number of lanes of kernels of a width, and cycles that they take for 64 bytes in each.
struct Lanes {
    lanes: u64,
    cycles: u64,
}

impl Work {
    /// Rough figures: those of Zen 4, in cycles of its time-stamp counter, and up to 256 bits a third more, for it
    /// has four vector ports where Skylake-SP has three. In 512 bits both do two instructions a cycle.
    const fn lanes(self, width: Width) -> Lanes {
        let (narrow, cycles) = match self {
            Self::Hash(HashAlg::Md5) => (4, [420, 460, 500]),
            Self::Hash(HashAlg::Sha1) => (4, [430, 480, 490]),
            Self::Hash(HashAlg::Sha224 | HashAlg::Sha256) => (4, [1010, 1010, 870]),
            Self::Hash(HashAlg::Sha384 | HashAlg::Sha512) => (2, [650, 630, 500]),
            Self::ChaCha => (4, [670, 920, 880]),
        };
        Lanes { lanes: narrow << width as u32, cycles: cycles[width as usize] }
    }

    /// About how many cycles more than with `width` a burst takes in registers of 128 bits.
    fn narrow_loss(self, width: Width, messages: u64, bytes: u64) -> u64 {
        let cost = |width| {
            let Lanes { lanes, cycles } = self.lanes(width);
            match self {
                // Passes over messages of mean length, and two blocks for padding and the outer hash.
                Self::Hash(_) => {
                    let blocks = bytes.div_ceil(64 * messages.max(1)).saturating_add(2);
                    messages.div_ceil(lanes).saturating_mul(blocks).saturating_mul(cycles)
                }
                // Each packet has a block for its MAC's key, and half a block that is not used.
                Self::ChaCha => {
                    let blocks = (bytes / 64).saturating_add(messages + messages.div_ceil(2));
                    blocks.div_ceil(lanes).saturating_mul(cycles)
                }
            }
        };
        cost(Width::W128).saturating_sub(cost(width))
    }
}

/// Times of a thread's use of units, in ticks of the time-stamp counter.
#[derive(Clone, Copy, Debug)]
struct Thread {
    /// Behind the last burst that used 256 bits or more, and 512 bits.
    wide: [Option<u64>; 2],
    /// The last burst of any width.
    last: u64,
    /// Cycles that narrow kernels have lost since the units went to sleep or were last too long without work.
    lost: u64,
}

impl Thread {
    const NEW: Self = Self { wide: [None; 2], last: 0, lost: 0 };

    /// True if a burst that would use registers of `width`, and loses about `loss` cycles without them, is
    /// better off in registers of 128 bits.
    ///
    /// While the units are awake it is not. While they sleep it is, until what bursts close behind one another
    /// have lost together comes to what waking costs: then more of them are to be expected, and the units
    /// are woken for these. So nobody pays more than twice of what was best.
    fn goes_narrow(&mut self, units: &WideUnits, now: u64, width: Width, loss: u64) -> bool {
        let of_width = match width {
            Width::W128 => return false,
            Width::W256 => 0,
            Width::W512 => 1,
        };
        let within = |then: u64| now.wrapping_sub(then) < units.sleep();
        let is_busy = within(self.last);
        self.last = now;
        if !self.wide[of_width].is_some_and(within) {
            let lost = if is_busy { self.lost } else { 0 };
            self.lost = lost.saturating_add(loss);
            if self.lost < units.wake(width) {
                return true;
            }
        }
        self.lost = 0;
        self.wide[..=of_width].fill(Some(now));
        false
    }
}

thread_local! {
    static THREAD: Cell<Thread> = const { Cell::new(Thread::NEW) };
}

/// True if this thread's next burst, of that load, is better off in registers of 128
/// bits than in those of `width`. The burst is taken to run as said.
#[cold]
#[inline(never)]
pub(crate) fn go_narrow(units: &WideUnits, work: Work, width: Width, load: Load) -> bool {
    let mut thread = THREAD.get();
    let loss = work.narrow_loss(width, load.messages as u64, load.bytes as u64);
    let narrow = thread.goes_narrow(units, time_stamp(), width, loss);
    THREAD.set(thread);
    narrow
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ticks are microseconds.
    const UNITS: WideUnits =
        WideUnits { sleep_us: 600, wake_256_us: 17, wake_512_us: 25, tsc_mhz: 1 };

    #[test]
    fn a_burst_that_waking_costs_more_than_it_saves_goes_narrow() {
        for (width, wake) in [(Width::W256, 17), (Width::W512, 25)] {
            let mut thread = Thread::NEW;
            assert!(thread.goes_narrow(&UNITS, 10_000, width, wake - 1));
            assert!(thread.goes_narrow(&UNITS, 11_000, width, wake - 1), "a millisecond later");
            assert!(!thread.goes_narrow(&UNITS, 12_000, width, wake), "a long one wakes them");
            assert!(!thread.goes_narrow(&UNITS, 12_599, width, 1), "they are awake");
            assert!(!thread.goes_narrow(&UNITS, 13_198, width, 1), "that kept them so");
            assert!(thread.goes_narrow(&UNITS, 13_798, width, 1), "they sleep again");
        }
        let mut thread = Thread::NEW;
        assert!(!thread.goes_narrow(&UNITS, 10_000, Width::W128, 0), "nothing narrower is there");
    }

    #[test]
    fn short_bursts_close_behind_one_another_wake_the_units_together() {
        let mut thread = Thread::NEW;
        let narrow = (0..100).map(|i| thread.goes_narrow(&UNITS, 10_000 + 10 * i, Width::W512, 5));
        assert_eq!(narrow.filter(|narrow| *narrow).count(), 4, "five times five pay for waking");
        // Once a millisecond they never do.
        let mut thread = Thread::NEW;
        assert!((1..100).all(|i| thread.goes_narrow(&UNITS, 1000 * i, Width::W512, 5)));
    }

    #[test]
    fn half_of_the_width_does_not_keep_the_whole_awake() {
        let mut thread = Thread::NEW;
        assert!(!thread.goes_narrow(&UNITS, 10_000, Width::W256, 17));
        assert!(thread.goes_narrow(&UNITS, 10_001, Width::W512, 1));
        let mut thread = Thread::NEW;
        assert!(!thread.goes_narrow(&UNITS, 10_000, Width::W512, 25));
        assert!(!thread.goes_narrow(&UNITS, 10_001, Width::W256, 1), "but the whole the half");
    }

    #[test]
    fn losses_grow_with_the_work_and_a_single_message_has_none_to_speak_of() {
        let wake = WideUnits::of_skylake(2500).wake(Width::W512);
        assert_eq!(wake, 62_500);
        for work in [Work::ChaCha].into_iter().chain(HashAlg::ALL.map(Work::Hash)) {
            for width in [Width::W256, Width::W512] {
                let loss = |messages, each| work.narrow_loss(width, messages, messages * each);
                assert_eq!(work.narrow_loss(width, 0, 0), 0, "{work:?}");
                assert!(loss(256, 1420) > 2 * loss(64, 1420), "{work:?} {width:?}");
                assert!(loss(64, 1420) > 2 * loss(64, 256), "{work:?} {width:?}");
                assert!(
                    loss(1, 64) < wake / 30 && loss(256, 16_384) > 10 * wake,
                    "{work:?} {width:?}"
                );
            }
            assert_eq!(work.narrow_loss(Width::W128, 256, 1 << 20), 0, "{work:?}");
        }
    }
}
