//! Lifetimes of SAs (RFC 4301 section 4.4.2.1): when one should be replaced, and when it ends.
//!
//! A soft limit is the warning to make a new SA; at a hard limit the SA passes nothing more. Limits
//! are in packets, in bytes, and in time since the SA was added or first used; an outbound SA's
//! sequence numbers are one more (RFC 4303 section 3.3.3). Bytes are counted as RFC 4301 says: those
//! that the encryption algorithm is applied to, padding and trailer included (AH: those that are
//! authenticated). The Linux kernel counts the payload without them, some bytes less per packet. A
//! limit in bytes may be passed by one packet: the one that reaches it is the last, as in the kernel.
//!
//! What was used is kept in [`Usage`], which belongs to the key and outlives reloads. The worker
//! that owns the SA counts with a meter, which compares with the next threshold only.

use core::fmt;
use core::time::Duration;

use convoy_crypto::{Cipher, Suite};

use crate::clock::Now;
use crate::counter::Counter;

/// Limits of one kind, soft or hard. `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Packets.
    pub packets: Option<u64>,
    /// Bytes that the algorithm is applied to.
    pub bytes: Option<u64>,
    /// Time since the SA was added.
    pub since_add: Option<Duration>,
    /// Time since the SA's first packet.
    pub since_use: Option<Duration>,
}

impl Limits {
    /// True if there is no limit.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// The limit that is reached, if one is.
    #[must_use]
    pub fn reached(&self, usage: &Usage, now: Now) -> Option<Limit> {
        let past = |limit: Option<u64>, n: u64| limit.is_some_and(|limit| n >= limit);
        if past(self.packets, usage.packets.get()) {
            Some(Limit::Packets)
        } else if past(self.bytes, usage.bytes.get()) {
            Some(Limit::Bytes)
        } else if now.0 >= after(usage.added_ns.get(), self.since_add) {
            Some(Limit::SinceAdd)
        } else if now.0 >= after(usage.first_use_ns.get(), self.since_use) {
            Some(Limit::SinceUse)
        } else {
            None
        }
    }

    /// Earliest time at which a time limit is reached, as far as is known now; `u64::MAX` for never.
    fn deadline(&self, usage: &Usage) -> u64 {
        let added = after(usage.added_ns.get(), self.since_add);
        added.min(after(usage.first_use_ns.get(), self.since_use))
    }

    /// Rest of each limit.
    #[must_use]
    pub fn left(&self, usage: &Usage, now: Now) -> Self {
        let time = |start: &Counter, limit: Option<Duration>| {
            let age = match start.get() {
                0 => Duration::ZERO,
                start => Duration::from_nanos(now.0.saturating_sub(start)),
            };
            limit.map(|limit| limit.saturating_sub(age))
        };
        Self {
            packets: self.packets.map(|limit| limit.saturating_sub(usage.packets.get())),
            bytes: self.bytes.map(|limit| limit.saturating_sub(usage.bytes.get())),
            since_add: time(&usage.added_ns, self.since_add),
            since_use: time(&usage.first_use_ns, self.since_use),
        }
    }
}

/// The moment that lies `limit` after `start`; never, without a limit or when it has not started.
fn after(start: u64, limit: Option<Duration>) -> u64 {
    match limit {
        Some(limit) if start > 0 => {
            start.saturating_add(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX))
        }
        _ => u64::MAX,
    }
}

/// Both kinds of limits of an SA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lifetime {
    /// Point at which a new SA should be made.
    pub soft: Limits,
    /// Point at which this one ends.
    pub hard: Limits,
}

/// Most bytes under one key of 3DES, and when it should be replaced. NIST SP 800-67 revision 2 lets a key
/// do 2^20 blocks of 8 bytes; from that is taken what the packet that reaches the limit may have.
const TRIPLE_DES: (u64, u64) = (((1 << 20) * 8 - (1 << 16)) / 4 * 3, (1 << 20) * 8 - (1 << 16));

impl Lifetime {
    /// The most bytes that a suite lets an SA have, whatever else its limits are: 8,323,072 with 3DES.
    #[must_use]
    pub const fn most_bytes(suite: Suite) -> Option<u64> {
        match suite {
            Suite::Pair { cipher: Cipher::TripleDesCbc, .. } => Some(TRIPLE_DES.1),
            _ => None,
        }
    }

    /// With no more bytes than the suite lets it have, and a warning before.
    #[must_use]
    pub fn capped(mut self, suite: Suite) -> Self {
        if Self::most_bytes(suite).is_some() {
            let (soft, hard) = TRIPLE_DES;
            let least = |limit: Option<u64>, most: u64| Some(limit.map_or(most, |n| n.min(most)));
            self.soft.bytes = least(self.soft.bytes, soft);
            self.hard.bytes = least(self.hard.bytes, hard);
        }
        self
    }
}

/// Kind of limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Packets.
    Packets,
    /// Bytes.
    Bytes,
    /// Time since the SA was added.
    SinceAdd,
    /// Time since its first packet.
    SinceUse,
    /// Sequence numbers (RFC 4303 section 3.3.3).
    Sequence,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Packets => "packets",
            Self::Bytes => "bytes",
            Self::SinceAdd => "time since it was added",
            Self::SinceUse => "time since its first packet",
            Self::Sequence => "sequence numbers",
        })
    }
}

/// Amounts that an SA has used of its lifetime: written by the worker that owns it, read by anyone,
/// and kept as long as the key is.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Usage {
    /// Packets protected, or accepted as authentic and new.
    pub packets: Counter,
    /// Bytes of them that the algorithm was applied to.
    pub bytes: Counter,
    /// Time at which the SA was added, in nanoseconds of the workers' clock (0: not yet).
    pub added_ns: Counter,
    /// Time at which its first packet passed (0: never).
    pub first_use_ns: Counter,
    /// Events that were handed over: [`SOFT`], [`HARD`].
    told: Counter,
}

const SOFT: u64 = 1;
const HARD: u64 = 2;

impl Usage {
    fn was_told(&self, bit: u64) -> bool {
        self.told.get() & bit != 0
    }

    fn set_told(&self, bit: u64, told: bool) {
        let others = self.told.get() & !bit;
        self.told.set(if told { others | bit } else { others });
    }
}

/// Sequence numbers that an outbound SA has left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    /// Until the soft limit; 0 when it is reached.
    pub(crate) to_soft: u64,
    /// Until the last one.
    pub(crate) left: u64,
}

impl Numbers {
    /// For an inbound SA, which does not choose them.
    pub(crate) const ENDLESS: Self = Self { to_soft: u64::MAX, left: u64::MAX };
}

/// News to be told about an SA: the limit that it came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    Soft(Limit),
    Hard(Limit),
}

/// Counts a hot SA's packets against its lifetime.
#[derive(Debug)]
pub(crate) struct Meter {
    /// The counts at which [`Self::look`] must be called.
    next_packets: u64,
    next_bytes: u64,
    /// From then on nothing passes.
    hard_at: u64,
    /// Time of the next check although no packet comes.
    next_look: u64,
    soft: Option<Limit>,
    hard: Option<Limit>,
}

impl Meter {
    /// A meter that goes on where `usage` is.
    pub(crate) fn new(lifetime: &Lifetime, usage: &Usage, numbers: Numbers, now: Now) -> Self {
        if usage.added_ns.get() == 0 {
            usage.added_ns.set(now.0.max(1));
        }
        let mut meter = Self {
            next_packets: 0,
            next_bytes: 0,
            hard_at: 0,
            next_look: 0,
            soft: None,
            hard: None,
        };
        // A reload may have moved limits that were reached; then they can be reached again.
        let soft = lifetime.soft.reached(usage, now).is_some() || numbers.to_soft == 0;
        let hard = lifetime.hard.reached(usage, now).is_some() || numbers.left == 0;
        usage.set_told(SOFT, usage.was_told(SOFT) && (soft || hard));
        usage.set_told(HARD, usage.was_told(HARD) && hard);
        meter.look(lifetime, usage, numbers, now);
        meter
    }

    /// True if the SA has ended.
    #[inline]
    pub(crate) fn is_expired(&self, now: Now) -> bool {
        now.0 >= self.hard_at
    }

    /// Counts a packet that passed; says whether [`Self::look`] must be called.
    #[inline]
    #[must_use]
    pub(crate) fn count(&self, usage: &Usage, bytes: u64) -> bool {
        usage.packets.add(1);
        usage.bytes.add(bytes);
        usage.packets.get() >= self.next_packets || usage.bytes.get() >= self.next_bytes
    }

    /// Compares with all limits, notes what is to be told, and sets the next thresholds.
    #[cold]
    pub(crate) fn look(&mut self, lifetime: &Lifetime, usage: &Usage, numbers: Numbers, now: Now) {
        let packets = usage.packets.get();
        if packets > 0 && usage.first_use_ns.get() == 0 {
            usage.first_use_ns.set(now.0.max(1));
        }
        let Lifetime { soft, hard } = lifetime;
        let ended = hard.reached(usage, now);
        let exhausted = (numbers.left == 0).then_some(Limit::Sequence);
        self.hard = self.hard.or(ended).or(exhausted).filter(|_| !usage.was_told(HARD));
        let warned = soft.reached(usage, now);
        let warned = warned.or_else(|| (numbers.to_soft == 0).then_some(Limit::Sequence));
        let told_soft = usage.was_told(SOFT);
        if self.soft.is_none() && self.hard.is_none() && !told_soft {
            self.soft = warned;
        }
        // After the hard event the warning would come too late.
        let soft_matters = warned.is_none() && !told_soft && ended.or(exhausted).is_none();

        self.hard_at = if ended.is_some() { 0 } else { hard.deadline(usage) };
        let or_never = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
        let watched = |limit: Option<u64>| if soft_matters { or_never(limit) } else { u64::MAX };
        let to_soft = packets.saturating_add(numbers.to_soft);
        let to_end =
            if exhausted.is_some() { u64::MAX } else { packets.saturating_add(numbers.left) };
        let first = if packets == 0 { 1 } else { u64::MAX };
        self.next_packets = [watched(soft.packets), watched(Some(to_soft)), to_end, first]
            .into_iter()
            .fold(or_never(hard.packets), u64::min);
        self.next_bytes = watched(soft.bytes).min(or_never(hard.bytes));
        self.next_look =
            if soft_matters { soft.deadline(usage) } else { u64::MAX }.min(self.hard_at);
        if ended.is_some() {
            (self.next_packets, self.next_bytes, self.next_look) = (u64::MAX, u64::MAX, u64::MAX);
        }
    }

    /// Time of the next check although no packet comes; `u64::MAX` for never.
    pub(crate) fn next_look(&self) -> u64 {
        self.next_look
    }

    /// News to be told next.
    pub(crate) fn to_tell(&self) -> Option<Reached> {
        self.soft.map(Reached::Soft).or_else(|| self.hard.map(Reached::Hard))
    }

    /// It was told: it will not be again.
    pub(crate) fn told(&mut self, usage: &Usage, reached: Reached) {
        match reached {
            Reached::Soft(_) => {
                self.soft = None;
                usage.set_told(SOFT, true);
            }
            Reached::Hard(_) => {
                self.hard = None;
                usage.set_told(HARD, true);
            }
        }
    }
}
