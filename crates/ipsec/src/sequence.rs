//! Outbound sequence numbers: each is given out once, below a limit and below a lease.
//!
//! A repeated number under one key repeats a nonce, which with AES-GCM gives the key away. So
//! numbers leave only through a [`SequenceCounter`], of which a [`Lease`] has at most one at a
//! time, as [`ReservedSeq`] values that cannot be copied. Control raises the lease's ceiling after
//! the new one is on stable storage; the counter never passes it.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use convoy_wire::SeqNum;

use crate::drop_reason::DropReason;
use crate::lifetime::Numbers;

/// Numbers that a counter announces as used before it gives out the first of them, so that the line
/// that control reads is written once for so many packets.
pub const AHEAD: u64 = 64;

/// The sequence numbers that one key may use, shared by control and the worker that owns the SA.
#[derive(Debug)]
pub struct Lease {
    /// Numbers below this may be used.
    granted: AtomicU64,
    /// No number above this was given out; 0 for none.
    used: AtomicU64,
    /// Counters that claim the lease later begin above this.
    skipped: AtomicU64,
    /// True if a counter has the lease.
    claimed: AtomicBool,
}

impl Lease {
    /// A lease on the numbers above `used` and below `granted`.
    ///
    /// `used` is the highest number that may already have been sent, 0 for a fresh key.
    #[must_use]
    pub const fn new(used: SeqNum, granted: u64) -> Self {
        Self {
            granted: AtomicU64::new(granted),
            used: AtomicU64::new(used.get()),
            skipped: AtomicU64::new(0),
            claimed: AtomicBool::new(false),
        }
    }

    /// Allows numbers below `granted`, which must be on stable storage by now. Never lowers it.
    pub fn grant(&self, granted: u64) {
        // Release: whoever sees the new ceiling also sees what control did before.
        self.granted.fetch_max(granted, Ordering::Release);
    }

    /// Makes counters that claim the lease from now on begin above `seq`, and never lower than they
    /// would: for numbers that somebody else may have used.
    pub fn skip(&self, seq: SeqNum) {
        self.skipped.fetch_max(seq.get(), Ordering::Release);
    }

    /// Counters that claim the lease begin above this.
    #[must_use]
    pub fn before(&self) -> SeqNum {
        self.used().max(SeqNum::new(self.skipped.load(Ordering::Acquire)))
    }

    /// Numbers below this may be used.
    #[inline]
    #[must_use]
    pub fn granted(&self) -> u64 {
        self.granted.load(Ordering::Acquire)
    }

    /// No number above this was given out; 0 for none. While a counter has the lease, up to
    /// [`AHEAD`] numbers below may not have been either.
    #[inline]
    #[must_use]
    pub fn used(&self) -> SeqNum {
        SeqNum::new(self.used.load(Ordering::Acquire))
    }

    /// Numbers that are granted and not used yet.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.granted().saturating_sub(self.used().get().saturating_add(1))
    }
}

/// Bounds of the numbers of an SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceLimits {
    /// The last number that may be used.
    pub hard: SeqNum,
    /// The number from which on the SA should be replaced.
    pub soft: SeqNum,
}

impl SequenceLimits {
    /// The limits of RFC 4303 section 3.3.3: the number may not cycle, so the last one is 2³²−1, or
    /// 2⁶⁴−2 with extended numbers (one less than the RFC's, so that a ceiling above it exists).
    /// The soft limit is at seven eighths.
    #[must_use]
    pub const fn new(esn: bool) -> Self {
        let hard = SeqNum::new(if esn { u64::MAX - 1 } else { u32::MAX as u64 });
        Self { hard, soft: soft(hard) }
    }
}

const fn soft(hard: SeqNum) -> SeqNum {
    SeqNum::new(hard.get() / 8 * 7)
}

/// No sequence number may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Exhausted {
    /// The hard limit is reached: the SA must be replaced.
    #[error("the last sequence number of the SA is used")]
    Limit,
    /// The lease is used up: more numbers come when control has stored a new ceiling.
    #[error("the leased sequence numbers are used")]
    Lease,
    /// The SA's source address is no address of this host: whoever has it uses the numbers.
    #[error("the source address of the SA is no address of this host")]
    Withheld,
}

impl From<Exhausted> for DropReason {
    fn from(exhausted: Exhausted) -> Self {
        exhausted.drop_reason()
    }
}

impl Exhausted {
    /// Reason that the packet is counted under.
    #[inline]
    #[must_use]
    pub const fn drop_reason(self) -> DropReason {
        match self {
            Self::Limit => DropReason::SequenceExhausted,
            Self::Lease => DropReason::LeaseExhausted,
            Self::Withheld => DropReason::SourceAbsent,
        }
    }
}

/// The lease already has a counter; two would give out the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease is in use by another worker")]
pub struct LeaseBusy;

/// A number given out for one packet. Neither `Clone` nor `Copy`: making a nonce from it uses it
/// up by move.
#[derive(Debug, PartialEq, Eq)]
pub struct ReservedSeq(SeqNum);

impl ReservedSeq {
    /// The number, for headers and counters. A nonce is made from the reservation itself.
    #[inline]
    #[must_use]
    pub const fn number(&self) -> SeqNum {
        self.0
    }

    /// Gives the reservation up for its number, of which this was the only one.
    #[inline]
    #[must_use]
    pub const fn into_number(self) -> SeqNum {
        self.0
    }
}

/// Gives out the sequence numbers of one outbound SA, in order.
#[derive(Debug)]
pub struct SequenceCounter {
    next: u64,
    /// Numbers below this were announced and need no more than counting.
    end: u64,
    lease: Arc<Lease>,
    /// The last number that may be used.
    hard: SeqNum,
    is_withheld: bool,
}

impl SequenceCounter {
    /// Claims the lease. The first number is the one after the last used, or `start` if that is
    /// higher; a start can only raise it.
    ///
    /// # Errors
    /// [`LeaseBusy`] while another counter of this lease is alive.
    pub fn claim(
        lease: Arc<Lease>,
        start: SeqNum,
        limits: SequenceLimits,
    ) -> Result<Self, LeaseBusy> {
        // Acquire pairs with the Release in `drop`: this counter sees what the last one used.
        if lease.claimed.swap(true, Ordering::Acquire) {
            return Err(LeaseBusy);
        }
        let next = start.get().max(lease.before().get().saturating_add(1));
        Ok(Self { next, end: next, lease, hard: limits.hard, is_withheld: false })
    }

    /// The same without a number to give out: each request fails with [`Exhausted::Withheld`]. To be
    /// called before the first.
    #[must_use]
    pub const fn withheld(mut self) -> Self {
        self.is_withheld = true;
        self
    }

    /// Reserves up to `n` numbers, as many as limit and lease allow but at least one. Those that are
    /// not taken are given to the next.
    ///
    /// # Errors
    /// [`Exhausted`] when not even one is left (or `n` is 0 and none would be).
    pub fn reserve(&mut self, n: usize) -> Result<Reservation<'_>, Exhausted> {
        let end = self.limit()?.min(self.next.saturating_add(n as u64));
        self.announce(end);
        Ok(Reservation { end, counter: self })
    }

    /// Reserves one number.
    ///
    /// # Errors
    /// [`Exhausted`].
    #[inline]
    #[allow(clippy::should_implement_trait)] // it fails with a reason, not with an end
    pub fn next(&mut self) -> Result<ReservedSeq, Exhausted> {
        if self.next >= self.end {
            let end = self.limit()?.min(self.next.saturating_add(AHEAD));
            self.announce(end);
        }
        Ok(self.take())
    }

    /// The caller has made sure that the next number was announced, so it is below `u64::MAX`.
    #[inline]
    fn take(&mut self) -> ReservedSeq {
        let seq = self.next;
        self.next = seq.wrapping_add(1);
        ReservedSeq(SeqNum::new(seq))
    }

    /// One past the last number that may be used now.
    #[cold]
    fn limit(&self) -> Result<u64, Exhausted> {
        if self.is_withheld {
            return Err(Exhausted::Withheld);
        }
        let hard = self.hard.get();
        if self.next > hard {
            return Err(Exhausted::Limit);
        }
        let end = self.lease.granted().min(hard.saturating_add(1));
        if self.next >= end {
            return Err(Exhausted::Lease);
        }
        Ok(end)
    }

    /// Announces the numbers below `end`, before any of them leaves, so that `used` is never too low.
    fn announce(&mut self, end: u64) {
        if end > self.end {
            self.end = end;
            self.publish(end - 1);
        }
    }

    fn publish(&self, used: u64) {
        // The claim makes this the only writer: a plain store is enough.
        self.lease.used.store(used, Ordering::Release);
    }

    /// The number the next packet will get.
    #[inline]
    #[must_use]
    pub const fn upcoming(&self) -> SeqNum {
        SeqNum::new(self.next)
    }

    /// True if the soft limit is reached: the SA should be replaced, but still works.
    #[inline]
    #[must_use]
    pub fn is_past_soft_limit(&self) -> bool {
        self.next > soft(self.hard).get()
    }

    /// Counts left until the limits, for the SA's lifetime.
    pub(crate) fn numbers(&self) -> Numbers {
        let to_soft = soft(self.hard).get().saturating_add(1).saturating_sub(self.next);
        Numbers { to_soft, left: self.left() }
    }

    /// Numbers until the hard limit, however far the lease goes.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.hard.get().saturating_add(1).saturating_sub(self.next)
    }
}

impl Drop for SequenceCounter {
    fn drop(&mut self) {
        if self.next < self.end {
            // What was announced and not given out is for the next counter.
            self.publish(self.next.saturating_sub(1));
        }
        self.lease.claimed.store(false, Ordering::Release);
    }
}

/// Numbers reserved for a burst.
#[derive(Debug)]
pub struct Reservation<'a> {
    counter: &'a mut SequenceCounter,
    end: u64,
}

impl Iterator for Reservation<'_> {
    type Item = ReservedSeq;

    #[inline]
    fn next(&mut self) -> Option<ReservedSeq> {
        (self.counter.next < self.end).then(|| self.counter.take())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.end.saturating_sub(self.counter.next);
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        (left, Some(left))
    }
}

impl ExactSizeIterator for Reservation<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counter(used: u64, granted: u64, start: u64, esn: bool) -> SequenceCounter {
        let lease = Arc::new(Lease::new(SeqNum::new(used), granted));
        SequenceCounter::claim(lease, SeqNum::new(start), SequenceLimits::new(esn)).unwrap()
    }

    fn numbers(reservation: Reservation<'_>) -> Vec<u64> {
        reservation.map(|seq| seq.into_number().get()).collect()
    }

    #[test]
    fn the_first_packet_of_a_fresh_key_gets_number_one() {
        assert_eq!(counter(0, 100, 0, false).next().unwrap().number(), SeqNum::new(1));
    }

    #[test]
    fn a_start_only_ever_raises_the_first_number() {
        for (used, start, first) in [(0, 0, 1), (9, 0, 10), (9, 10, 10), (9, 11, 11), (9, 5, 10)] {
            assert_eq!(counter(used, 100, start, false).upcoming(), SeqNum::new(first));
        }
    }

    #[test]
    fn the_lease_ends_the_numbers_until_more_are_granted() {
        let mut counter = counter(0, 4, 0, false);
        assert_eq!(numbers(counter.reserve(10).unwrap()), [1, 2, 3]);
        assert_eq!(counter.reserve(1).unwrap_err(), Exhausted::Lease);
        assert_eq!(counter.next(), Err(Exhausted::Lease));
        assert_eq!(counter.lease.left(), 0);
        counter.lease.grant(2); // a ceiling never comes down
        assert_eq!(counter.lease.granted(), 4);
        counter.lease.grant(6);
        assert_eq!(counter.lease.left(), 2);
        assert_eq!(numbers(counter.reserve(10).unwrap()), [4, 5]);
    }

    #[test]
    fn the_last_number_without_esn_is_two_to_the_32_minus_1() {
        let mut counter = counter(u64::from(u32::MAX) - 2, u64::MAX, 0, false);
        assert_eq!(counter.left(), 2);
        let last = u64::from(u32::MAX);
        assert_eq!(numbers(counter.reserve(5).unwrap()), [last - 1, last]);
        assert_eq!(counter.next(), Err(Exhausted::Limit));
        assert_eq!(counter.left(), 0);
        assert_eq!(DropReason::from(Exhausted::Limit), DropReason::SequenceExhausted);
        assert_eq!(DropReason::from(Exhausted::Lease), DropReason::LeaseExhausted);
    }

    #[test]
    fn with_esn_numbers_go_on_past_32_bits_and_end_before_they_wrap() {
        let mut across = counter(u64::from(u32::MAX) - 1, u64::MAX, 0, true);
        let seqs: Vec<_> = across.reserve(3).unwrap().map(|s| s.into_number()).collect();
        assert_eq!((seqs[0].high(), seqs[0].low()), (0, u32::MAX));
        assert_eq!((seqs[1].high(), seqs[1].low()), (1, 0));
        let mut last = counter(u64::MAX - 2, u64::MAX, 0, true);
        assert_eq!(numbers(last.reserve(9).unwrap()), [u64::MAX - 1]);
        assert_eq!(last.next(), Err(Exhausted::Limit));
        let over = counter(u64::MAX, u64::MAX, 0, true).next();
        assert_eq!(over, Err(Exhausted::Limit));
    }

    #[test]
    fn the_soft_limit_comes_first_and_stops_nothing() {
        let soft = SequenceLimits::new(false).soft.get();
        let mut counter = counter(soft - 1, u64::MAX, 0, false);
        assert!(!counter.is_past_soft_limit());
        counter.next().unwrap();
        assert!(counter.is_past_soft_limit());
        assert!(counter.next().is_ok());
    }

    #[test]
    fn a_lease_has_one_counter_at_a_time() {
        let lease = Arc::new(Lease::new(SeqNum::new(0), 100));
        let claim =
            || SequenceCounter::claim(lease.clone(), SeqNum::new(0), SequenceLimits::new(true));
        let mut first = claim().unwrap();
        first.reserve(7).unwrap().for_each(drop);
        assert_eq!(claim().unwrap_err(), LeaseBusy);
        drop(first);
        assert_eq!(claim().unwrap().upcoming(), SeqNum::new(8));
    }

    #[test]
    fn used_is_published_before_a_number_leaves() {
        let mut counter = counter(0, 1000, 0, false);
        let lease = counter.lease.clone();
        for _ in 0..3 * AHEAD {
            let seq = counter.next().unwrap().into_number();
            assert!(lease.used() >= seq);
            assert!(lease.used().get() - seq.get() < AHEAD, "and not far before");
        }
        let mut burst = counter.reserve(100).unwrap();
        assert_eq!(burst.len(), 100);
        let seq = burst.next().unwrap().into_number();
        assert_eq!((burst.len(), lease.used().get()), (99, seq.get() + 99));
        drop(counter);
        assert_eq!(lease.used(), seq, "what was not given out is for the next counter");
    }

    #[test]
    fn a_counter_that_gives_out_nothing_uses_nothing() {
        let counter = counter(5, 1000, 9, false);
        let lease = counter.lease.clone();
        drop(counter);
        assert_eq!(lease.used(), SeqNum::new(5));
    }

    #[test]
    fn a_forgotten_reservation_repeats_no_number() {
        let mut counter = counter(0, 100, 0, false);
        let mut burst = counter.reserve(10).unwrap();
        let taken = burst.next().unwrap().into_number();
        // Whatever becomes of the reservation.
        let _ = core::mem::ManuallyDrop::new(burst);
        assert!(counter.next().unwrap().into_number() > taken);
    }

    proptest! {
        #[test]
        fn no_number_comes_twice_and_none_from_beyond_the_lease(
            steps in prop::collection::vec(
                (0usize..40, 0usize..50, 0usize..90, 0u64..90, any::<bool>()),
                1..60,
            ),
        ) {
            let lease = Arc::new(Lease::new(SeqNum::new(0), 1));
            let limits = SequenceLimits::new(false);
            let mut counter = SequenceCounter::claim(lease.clone(), SeqNum::new(0), limits).unwrap();
            let mut last = 0;
            for (ask, take, singly, grant, restart) in steps {
                if let Ok(burst) = counter.reserve(ask) {
                    for seq in burst.take(take) {
                        let seq = seq.into_number().get();
                        prop_assert_eq!(seq, last + 1);
                        prop_assert!(seq < lease.granted() && seq <= lease.used().get());
                        last = seq;
                    }
                }
                for seq in core::iter::from_fn(|| counter.next().ok()).take(singly) {
                    let seq = seq.into_number().get();
                    prop_assert_eq!(seq, last + 1);
                    prop_assert!(seq < lease.granted() && seq <= lease.used().get());
                    last = seq;
                }
                lease.grant(lease.granted() + grant);
                if restart {
                    drop(counter);
                    prop_assert_eq!(lease.used().get(), last);
                    counter = SequenceCounter::claim(lease.clone(), SeqNum::new(0), limits).unwrap();
                }
            }
        }
    }
}
