//! Sockets that a daemon exempts from policies: they bear the mark that leak protection lets pass
//! (`docs/leak-protection.md`).

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use libc::{SO_MARK, SOL_SOCKET};

use super::remembered::Remembered;
use super::{connection, system};

/// The mark while no server has told another one.
const USUAL: Mark = Mark { value: 0xc500_0000, mask: 0xff00_0000 };
/// The last one that was told.
static LAST: AtomicU64 = AtomicU64::new(USUAL.number());
/// Sockets that are exempt, and the mark that each of them was given.
static EXEMPT: Remembered = Remembered::new();
/// The last question was not answered, or not in time.
static IS_UNANSWERED: AtomicBool = AtomicBool::new(false);

/// A mark of sockets, and the bits of it that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    value: u32,
    mask: u32,
}

impl Mark {
    /// The mark in the upper half, and its mask.
    const fn number(self) -> u64 {
        (self.value as u64) << 32 | self.mask as u64
    }

    fn of(number: u64) -> Self {
        let half = |shift: u32| u32::try_from(number >> shift & 0xffff_ffff).unwrap_or_default();
        Self { value: half(32), mask: half(0) }
    }

    /// Asks the server for the mark; gives the last one if none answers.
    fn ask() -> Self {
        let told = connection::mark();
        IS_UNANSWERED.store(told.is_err(), Relaxed);
        if let Ok(told) = told {
            // A server that tells none knows no other than the usual one.
            let now = told.map_or(USUAL, |[value, mask]| Self { value, mask });
            LAST.store(now.number(), Relaxed);
        }
        Self::of(LAST.load(Relaxed))
    }

    const fn is_on(self, mark: u32) -> bool {
        mark & self.mask == self.value
    }

    const fn on(self, mark: u32) -> u32 {
        mark & !self.mask | self.value
    }

    const fn off(self, mark: u32) -> u32 {
        if self.is_on(mark) { mark & !self.mask } else { mark }
    }
}

/// Exempts a socket, whose mark is known. It is remembered for the next server, which may have another mark for it.
pub(super) fn exempt(fd: c_int, before: u32) -> Result<(), c_int> {
    let now = Mark::ask();
    let before = EXEMPT.of(fd).map_or(before, |given| Mark::of(given).off(before));
    set(fd, now.on(before))?;
    EXEMPT.add(fd, now.number());
    give(now);
    Ok(())
}

/// Exempts a socket no more.
pub(super) fn forget(fd: c_int, before: u32) -> Result<(), c_int> {
    let given = EXEMPT.of(fd).unwrap_or_else(|| LAST.load(Relaxed));
    set(fd, Mark::of(given).off(before))?;
    EXEMPT.remove(fd);
    Ok(())
}

/// Gives sockets the mark of a server that came back.
pub(super) fn exempt_again() {
    give(Mark::ask());
}

/// The same, if the server did not tell it when it was asked.
pub(super) fn catch_up() {
    if IS_UNANSWERED.swap(false, Relaxed) && EXEMPT.all().next().is_some() {
        exempt_again();
    }
}

/// Gives this mark to those sockets that have another one.
fn give(now: Mark) {
    for (fd, given) in EXEMPT.all() {
        let given = Mark::of(given);
        // Somebody else may have given it another mark since.
        let mark = mark_of(fd).ok().filter(|mark| given != now && given.is_on(*mark));
        if mark.is_some_and(|mark| set(fd, now.on(given.off(mark))).is_ok()) {
            EXEMPT.add(fd, now.number());
        }
    }
}

fn mark_of(fd: c_int) -> Result<u32, c_int> {
    system::option(fd, SOL_SOCKET, SO_MARK).map(c_int::cast_unsigned)
}

fn set(fd: c_int, mark: u32) -> Result<(), c_int> {
    system::set_option(fd, SOL_SOCKET, SO_MARK, mark.cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_leaves_the_bits_of_others() {
        let mark = Mark { value: 0x0500, mask: 0x0f00 };
        assert_eq!(mark.on(0x1234_5678), 0x1234_5578);
        assert_eq!(mark.off(0x1234_5578), 0x1234_5078);
        assert_eq!(mark.off(0x1234_5678), 0x1234_5678);
        assert_eq!(Mark::of(mark.number()), mark);
        assert_eq!(LAST.load(Relaxed), 0xc500_0000_ff00_0000);
    }
}
