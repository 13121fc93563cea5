//! Where in its slab a worker last found the SA that a number stands for.

/// Slots that a table has at least and at most.
const LEAST: usize = 64;
const MOST: usize = 1 << 18;

/// Slots by some number of the SA, small enough to stay in a near cache when the tables of the
/// snapshot do not.
///
/// A hint may be another SA's: who takes one compares with what the SA itself says.
#[derive(Debug)]
pub(super) struct Hints {
    hints: Box<[Hint]>,
    epoch: u32,
}

#[derive(Clone, Copy, Debug)]
struct Hint {
    slot: u32,
    /// Hints of other epochs do not count.
    epoch: u32,
}

/// Epoch 0 never comes.
const NONE: Hint = Hint { slot: u32::MAX, epoch: 0 };

impl Hints {
    pub(super) fn new() -> Self {
        Self { hints: vec![NONE; LEAST].into_boxed_slice(), epoch: 1 }
    }

    /// Makes room for `sas` SAs.
    pub(super) fn grow(&mut self, sas: usize) {
        let places = sas.saturating_mul(2).clamp(LEAST, MOST).next_power_of_two();
        if places > self.hints.len() {
            self.hints = vec![NONE; places].into_boxed_slice();
        }
    }

    /// Forgets everything.
    pub(super) fn forget(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        if self.epoch == 0 {
            // After 2³² times an old hint would look new.
            self.hints.fill(NONE);
            self.epoch = 1;
        }
    }

    /// Where the SA of `number` may be; a slot that does not exist when nothing is known.
    #[inline]
    pub(super) fn get(&self, number: u32) -> u32 {
        match self.hints.get(self.place(number)) {
            Some(hint) if hint.epoch == self.epoch => hint.slot,
            _ => u32::MAX,
        }
    }

    /// Remembers where the SA of `number` was found.
    #[inline]
    pub(super) fn set(&mut self, number: u32, slot: u32) {
        let (at, epoch) = (self.place(number), self.epoch);
        if let Some(hint) = self.hints.get_mut(at) {
            *hint = Hint { slot, epoch };
        }
    }

    /// Numbers that are given out in a row lie in a row; a peer's SPIs spread by themselves, and who
    /// chooses them badly has the cost of a look-up.
    #[inline]
    const fn place(&self, number: u32) -> usize {
        number as usize & (self.hints.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_of_their_epoch_only() {
        let mut hints = Hints::new();
        assert_eq!(hints.get(7), u32::MAX);
        hints.set(7, 3);
        assert_eq!((hints.get(7), hints.get(7 + LEAST as u32)), (3, 3), "anyone's, to be checked");
        hints.forget();
        assert_eq!(hints.get(7), u32::MAX);
        hints.set(7, 4);
        assert_eq!(hints.get(7), 4);
    }

    #[test]
    fn a_table_grows_with_the_sas_and_survives_the_last_epoch() {
        let mut hints = Hints::new();
        hints.grow(1000);
        for number in 0..1000 {
            hints.set(number, number + 1);
        }
        assert!((0..1000).all(|number| hints.get(number) == number + 1));
        hints.epoch = u32::MAX;
        hints.set(5, 9);
        hints.forget();
        assert!((0..1000).all(|number| hints.get(number) == u32::MAX));
        hints.grow(usize::MAX);
        assert_eq!(hints.hints.len(), MOST);
    }
}
