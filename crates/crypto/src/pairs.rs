//! Two iterators side by side, for kernels.

/// `zip` whose every part is inlined. Parts of core's are not marked for that, and where nothing is optimised
/// across crates and units they are called from the middle of kernels, without the kernels' features.
///
/// It is for loops that are unrolled or do much in each turn: compilers make no vectors of such a loop.
pub(crate) trait PairedWith: Iterator + Sized {
    /// Both iterators' items, until one of them ends.
    #[inline(always)]
    fn paired_with<I: IntoIterator>(self, other: I) -> Pairs<Self, I::IntoIter> {
        Pairs(self, other.into_iter())
    }
}

impl<I: Iterator> PairedWith for I {}

/// See [`PairedWith::paired_with`].
pub(crate) struct Pairs<A, B>(A, B);

impl<A: ExactSizeIterator, B: ExactSizeIterator> Pairs<A, B> {
    /// Number of items left.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.0.len().min(self.1.len())
    }
}

impl<A: Iterator, B: Iterator> Iterator for Pairs<A, B> {
    type Item = (A::Item, B::Item);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let (a, b) = (self.0.next()?, self.1.next()?);
        Some((a, b))
    }
}
