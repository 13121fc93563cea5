//! Lifetime limits of SAs and policies, and their counters.

use crate::bytes::{Fields, Writer};

/// A soft limit, at which an event is raised, and a hard one, at which the end comes.
///
/// Nothing makes the soft limit the lower one: daemons send soft limits above the hard one, which
/// then are never reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Limit {
    /// Raises an event.
    pub soft: u64,
    /// Ends the SA or policy.
    pub hard: u64,
}

/// `struct xfrm_lifetime_cfg`: the limits of an SA or a policy.
///
/// For bytes and packets [`Limits::UNLIMITED`] means no limit; for seconds 0 does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Bytes of payload.
    pub bytes: Limit,
    /// Packets.
    pub packets: Limit,
    /// Seconds since it was added.
    pub add_seconds: Limit,
    /// Seconds since it was first used.
    pub use_seconds: Limit,
}

impl Limits {
    /// No limit of bytes or packets (`XFRM_INF`).
    pub const UNLIMITED: u64 = u64::MAX;
    /// No limits at all.
    pub const NONE: Self = Self {
        bytes: Limit { soft: Self::UNLIMITED, hard: Self::UNLIMITED },
        packets: Limit { soft: Self::UNLIMITED, hard: Self::UNLIMITED },
        add_seconds: Limit { soft: 0, hard: 0 },
        use_seconds: Limit { soft: 0, hard: 0 },
    };

    pub(crate) fn read(fields: &mut Fields<'_>) -> Self {
        let mut limit = || Limit { soft: fields.u64(), hard: fields.u64() };
        Self { bytes: limit(), packets: limit(), add_seconds: limit(), use_seconds: limit() }
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        for limit in [self.bytes, self.packets, self.add_seconds, self.use_seconds] {
            to.u64(limit.soft);
            to.u64(limit.hard);
        }
    }
}

/// `struct xfrm_lifetime_cur`: what an SA or a policy has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Usage {
    /// Bytes of payload.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// Time of its addition, in seconds since 1970.
    pub add_time: u64,
    /// Time of its first use, in seconds since 1970; of a policy, time of its last use. 0 for
    /// never.
    pub use_time: u64,
}

impl Usage {
    pub(crate) fn read(fields: &mut Fields<'_>) -> Self {
        Self {
            bytes: fields.u64(),
            packets: fields.u64(),
            add_time: fields.u64(),
            use_time: fields.u64(),
        }
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        for value in [self.bytes, self.packets, self.add_time, self.use_time] {
            to.u64(value);
        }
    }
}

/// `struct xfrm_stats`: packets that an inbound SA dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Failures {
    /// Packets older than the replay window.
    pub replay_window: u32,
    /// Packets that came before.
    pub replay: u32,
    /// Packets whose ICV is wrong.
    pub integrity_failed: u32,
}

impl Failures {
    pub(crate) fn read(fields: &mut Fields<'_>) -> Self {
        Self { replay_window: fields.u32(), replay: fields.u32(), integrity_failed: fields.u32() }
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        for value in [self.replay_window, self.replay, self.integrity_failed] {
            to.u32(value);
        }
    }
}
