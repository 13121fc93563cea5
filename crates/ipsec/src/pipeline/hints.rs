//! Slots of the slab where a worker last found the SA that a number stands for.

use convoy_crypto::prefetch_read;

/// Numbers that a table has places for, at least and at most.
const LEAST: usize = 64;
const MOST: usize = 1 << 18;
/// Sets of a table that a near cache holds.
const NEAR: usize = 1 << 13;
/// Sets of a table for so few SAs that these stay in a near cache.
const FEW: usize = 64;
/// Places in which one number can be.
const WAYS: usize = 2;

/// Slots by some number of the SA, small enough to stay in a near cache when the tables of the
/// snapshot do not.
///
/// A hint may be another SA's: who takes one compares with what the SA itself says.
#[derive(Debug)]
pub(super) struct Hints {
    sets: Box<[[Hint; WAYS]]>,
    /// Hints of other epochs do not count.
    epoch: u16,
}

#[derive(Clone, Copy, Debug)]
struct Hint {
    slot: u32,
    epoch: u16,
    /// The lowest bits of the number that do not tell the set.
    tag: u16,
}

/// Epoch 0 never comes.
const NONE: [Hint; WAYS] = [Hint { slot: u32::MAX, epoch: 0, tag: 0 }; WAYS];

impl Hints {
    pub(super) fn new() -> Self {
        Self { sets: vec![NONE; LEAST / WAYS].into_boxed_slice(), epoch: 1 }
    }

    /// Makes room for `sas` SAs.
    pub(super) fn grow(&mut self, sas: usize) {
        let sets = sas.saturating_mul(2).clamp(LEAST, MOST).next_power_of_two() / WAYS;
        if sets > self.sets.len() {
            self.sets = vec![NONE; sets].into_boxed_slice();
        }
    }

    /// Forgets everything.
    pub(super) fn forget(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        if self.epoch == 0 {
            // After 2¹⁶ times an old hint would look new.
            self.sets.fill(NONE);
            self.epoch = 1;
        }
    }

    /// True if the table is too large for a near cache, so that [`Self::prefetch`] is worth its cost.
    #[inline]
    pub(super) const fn is_far(&self) -> bool {
        self.sets.len() > NEAR
    }

    /// True if the SAs themselves may be too many for a near cache.
    #[inline]
    pub(super) const fn are_many(&self) -> bool {
        self.sets.len() > FEW
    }

    /// Starts loading what [`Self::get`] will read.
    #[inline]
    pub(super) fn prefetch(&self, number: u32) {
        if let Some(set) = self.sets.get(self.place(number).0) {
            prefetch_read(set);
        }
    }

    /// Slot where the SA of `number` may be; one that does not exist when nothing is known.
    #[inline]
    pub(super) fn get(&self, number: u32) -> u32 {
        let (at, tag) = self.place(number);
        let Some([first, second]) = self.sets.get(at) else { return u32::MAX };
        let is_it = |hint: &Hint| hint.tag == tag && hint.epoch == self.epoch;
        match () {
            () if is_it(first) => first.slot,
            () if is_it(second) => second.slot,
            () => u32::MAX,
        }
    }

    /// Remembers where the SA of `number` was found, in place of what was not asked for lately.
    pub(super) fn set(&mut self, number: u32, slot: u32) {
        let ((at, tag), epoch) = (self.place(number), self.epoch);
        if let Some([first, second]) = self.sets.get_mut(at) {
            if first.tag != tag {
                *second = *first;
            }
            *first = Hint { slot, epoch, tag };
        }
    }

    /// The set of a number, and its tag. Numbers that are given out in a row lie in a row; a peer's
    /// SPIs spread by themselves, and who chooses them badly has the cost of a look-up.
    #[inline]
    const fn place(&self, number: u32) -> (usize, u16) {
        let set = number as usize & (self.sets.len() - 1);
        (set, (number >> self.sets.len().trailing_zeros()) as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETS: u32 = (LEAST / WAYS) as u32;

    #[test]
    fn hints_are_of_their_epoch_only() {
        let mut hints = Hints::new();
        assert_eq!(hints.get(7), u32::MAX);
        hints.set(7, 3);
        assert_eq!(hints.get(7), 3);
        assert_eq!(hints.get(7 + (SETS << 16)), 3, "anyone's, to be checked");
        hints.forget();
        assert_eq!(hints.get(7), u32::MAX);
        hints.set(7, 4);
        assert_eq!(hints.get(7), 4);
    }

    #[test]
    fn two_numbers_of_one_set_do_not_drive_each_other_out() {
        let mut hints = Hints::new();
        let [a, b, c] = [7, 7 + SETS, 7 + 2 * SETS];
        hints.set(a, 1);
        hints.set(b, 2);
        assert_eq!([a, b, c].map(|number| hints.get(number)), [1, 2, u32::MAX]);
        hints.set(b, 3);
        assert_eq!([a, b].map(|number| hints.get(number)), [1, 3], "a number has one place");
        hints.set(c, 4);
        assert_eq!([a, b, c].map(|number| hints.get(number)), [u32::MAX, 3, 4]);
    }

    #[test]
    fn a_table_grows_with_the_sas_and_survives_the_last_epoch() {
        let mut hints = Hints::new();
        hints.grow(1000);
        for number in 0..1000 {
            hints.set(number, number + 1);
        }
        assert!((0..1000).all(|number| hints.get(number) == number + 1));
        hints.epoch = u16::MAX;
        hints.set(5, 9);
        hints.forget();
        assert!((0..1000).all(|number| hints.get(number) == u32::MAX));
        assert!(!hints.is_far());
        hints.grow(usize::MAX);
        assert!(hints.is_far());
        assert_eq!(hints.sets.len() * WAYS, MOST);
        hints.prefetch(u32::MAX);
    }
}
