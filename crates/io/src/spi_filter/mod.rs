//! Drops in the kernel of what no SA takes, for as long as a flood of it lasts.
//!
//! A packet of an unknown SPI costs a raw socket a copy, a place in its queue, a part of a system call and a look-up
//! until a worker drops it. A filter of the socket drops it for a look at a table, and counts it. It does so only while it
//! is active: else all packets come to the workers, which can say more about them.
//!
//! The table has a slot for the low 16 bits of SPIs, so some unknown ones pass, and no known one is ever dropped: each is
//! put into the table before its SA can receive, and one more in the table does no harm.

mod program;

use core::num::Wrapping;
use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

use crate::sys::{self, KNOWN, SLOTS, SpiTable, WITH_EDGE};
use crate::{IoError, PortCounters};
use program::{Place, Share};

/// Table of the SPIs of all inbound SAs, which filters of sockets ask.
#[derive(Debug)]
pub struct SpiFilter {
    table: SpiTable,
    /// SPIs added to each slot since it was cleared: of several, none can have an edge.
    members: Mutex<Box<[u8]>>,
    claimed_unknown: AtomicU64,
    claimed_old: AtomicU64,
}

impl SpiFilter {
    /// An empty table, which is not active.
    ///
    /// # Errors
    /// [`IoError::Setup`] when the kernel refuses: without `CAP_BPF`, or before Linux 5.5.
    pub fn new() -> Result<Self, IoError> {
        let table = SpiTable::new()
            .map_err(IoError::setup("make a bpf map of security parameter indexes"))?;
        Ok(Self {
            table,
            members: Mutex::new(vec![0; SLOTS].into()),
            claimed_unknown: AtomicU64::new(0),
            claimed_old: AtomicU64::new(0),
        })
    }

    /// Adds an SPI. To be called before an SA with it can receive.
    pub fn add(&self, spi: u32) {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        let (slot, count) = (slot_of(spi), members.get_mut(slot_of(spi)));
        if let Some(count) = count {
            *count = count.saturating_add(1);
        }
        self.store(slot, KNOWN);
    }

    /// Forgets all SPIs and drops nothing until it is made active again.
    pub fn clear(&self) {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        self.end();
        members.fill(0);
        for slot in 0..SLOTS {
            self.store(slot, 0);
        }
    }

    /// Has packets of an SPI dropped whose sequence numbers are before `left_edge`, by less than 2³⁰ in their low 32
    /// bits. Has no effect where SPIs share a slot.
    pub fn set_left_edge(&self, spi: u32, left_edge: u64) {
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        if members.get(slot_of(spi)) == Some(&1) {
            self.store(slot_of(spi), WITH_EDGE | left_edge & 0xffff_ffff);
        }
    }

    /// Begins to drop what is not in the table.
    pub fn begin(&self) {
        self.table.shared().is_active.store(1, Ordering::SeqCst);
    }

    /// Drops nothing from now on.
    pub fn end(&self) {
        self.table.shared().is_active.store(0, Ordering::SeqCst);
    }

    /// Number of packets that were dropped.
    pub fn dropped(&self) -> u64 {
        let shared = self.table.shared();
        let counts = [&shared.unknown, &shared.old].map(|n| Wrapping(n.load(Ordering::Relaxed)));
        counts.into_iter().sum::<Wrapping<u64>>().0
    }

    fn store(&self, slot: usize, value: u64) {
        if let Some(slot) = self.table.shared().slots.get(slot) {
            slot.store(value, Ordering::SeqCst);
        }
    }

    /// Adds packets dropped since anyone last asked to a port's counters.
    #[inline]
    pub(crate) fn count(&self, counters: &mut PortCounters) {
        let shared = self.table.shared();
        counters.rx_unknown_spi += claim(&shared.unknown, &self.claimed_unknown);
        counters.rx_too_old += claim(&shared.old, &self.claimed_old);
    }

    /// Has a raw socket ask the table, and take its share of SPIs alone.
    pub(crate) fn attach(
        &self,
        socket: BorrowedFd<'_>,
        place: Place,
        share: Share,
    ) -> std::io::Result<()> {
        let program = program::filter(self.table.map(), place, share);
        let program = sys::load_filter(&program)?;
        sys::attach_filter(socket, program.as_fd())
    }
}

pub(crate) use program::{Place as SpiPlace, Share as SpiShare};

const fn slot_of(spi: u32) -> usize {
    spi as usize % SLOTS
}

/// Part of a count that was not claimed before. Several threads may claim at a time.
#[inline]
fn claim(count: &AtomicU64, claimed: &AtomicU64) -> u64 {
    let now = count.load(Ordering::Relaxed);
    if now == claimed.load(Ordering::Relaxed) {
        return 0;
    }
    now.saturating_sub(claimed.fetch_max(now, Ordering::Relaxed))
}
