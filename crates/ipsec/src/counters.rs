//! Counters of an SA, which one worker writes and anyone reads.

use core::sync::atomic::AtomicU64;
use std::sync::OnceLock;

use convoy_crypto::prefetch_read;

use crate::counter::Counter;
use crate::lifetime::Usage;
use crate::replay::Floor;

/// Figures that the owning worker publishes about an SA. Those that every packet changes come first
/// and fit one cache line.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct SaCounters {
    /// Packets protected or accepted.
    pub packets: Counter,
    /// Inner bytes protected or accepted.
    pub bytes: Counter,
    /// Time at which the last such packet passed, in nanoseconds of the worker's monotonic clock
    /// (0: never).
    pub last_packet_ns: Counter,
    /// Outbound: last sequence number used.
    pub sequence: Counter,
    /// Inbound: right edge of the anti-replay window, where windows that begin later begin.
    pub floor: Floor,
    /// Used part of its lifetime.
    pub usage: Usage,
    /// Inbound: a word that outlives the process, if there is one. The right edge of the window stands
    /// there before a packet that moved it goes further.
    pub outliving: OnceLock<&'static AtomicU64>,
    /// Outbound: largest outer packet the path takes, in bytes.
    pub path_mtu: Counter,
    /// Inbound: packets outside or already seen inside the anti-replay window.
    pub replayed: Counter,
    /// Inbound: packets whose ICV was wrong.
    pub icv_failures: Counter,
    /// Packets of this SA dropped for any reason.
    pub dropped: Counter,
    /// 1 where the engine refused the SA's key, so that the worker does the cryptography.
    pub refused_by_engine: Counter,
}

impl SaCounters {
    /// Starts loading what every packet changes.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch_read(&self.packets);
    }
}
