//! What control publishes and workers read: an immutable picture of policies and SAs.
//!
//! Control builds a [`Snapshot`] and publishes it; each worker holds a [`Reader`], looks at the
//! generation once per burst and takes the new picture when it changed. Looking costs one atomic
//! load; the lock is taken only on change.

use core::hash::{BuildHasherDefault, Hasher};
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use convoy_wire::{SeqNum, Spi};

use crate::replay::{ReplayWindow, WindowError};
use crate::sa::{InboundSpec, OutboundSpec, ReqId, SaSlot};
use crate::spd::Spd;

/// Why a set of SAs and policies is not consistent.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// Two inbound SAs would receive the same packets.
    #[error("inbound SAs '{first}' and '{second}' share SPI {spi:#x} and address {local}")]
    InboundSpiTwice {
        /// Name of the SA that was there.
        first: Arc<str>,
        /// Name of the SA that came.
        second: Arc<str>,
        /// The SPI both have.
        spi: u32,
        /// The address both receive on.
        local: IpAddr,
    },
    /// Two outbound SAs would use the same nonces.
    #[error("outbound SAs '{first}' and '{second}' have the same key and salt")]
    OutboundKeyTwice {
        /// Name of the SA that was there.
        first: Arc<str>,
        /// Name of the SA that came.
        second: Arc<str>,
    },
    /// An anti-replay window that cannot be.
    #[error(transparent)]
    Window(#[from] WindowError),
    /// A slot was given to two SAs.
    #[error("slot {0} is taken twice")]
    SlotTwice(u32),
}

/// An immutable picture of the SPD and the SAD.
#[derive(Debug, Default)]
pub struct Snapshot {
    spd: Spd,
    outbound: Vec<Option<Arc<OutboundSpec>>>,
    inbound: Vec<Option<Arc<InboundSpec>>>,
    by_reqid: HashMap<ReqId, SaSlot>,
    by_spi: HashMap<(Spi, IpAddr), SaSlot, BuildHasherDefault<SpiHasher>>,
}

impl Snapshot {
    /// An empty picture: every packet is dropped for want of a policy.
    #[must_use]
    pub fn new(spd: Spd) -> Self {
        Self { spd, ..Self::default() }
    }

    /// Puts an outbound SA into `slot`. Of several SAs with one `reqid`, the last added is used.
    ///
    /// # Errors
    /// [`SnapshotError`] when the slot is taken or another SA has the same lease (the same key).
    pub fn add_outbound(
        &mut self,
        slot: SaSlot,
        sa: Arc<OutboundSpec>,
    ) -> Result<(), SnapshotError> {
        if let Some(other) =
            self.outbound.iter().flatten().find(|other| Arc::ptr_eq(&other.lease, &sa.lease))
        {
            return Err(SnapshotError::OutboundKeyTwice {
                first: other.name.clone(),
                second: sa.name.clone(),
            });
        }
        let reqid = sa.reqid;
        put(&mut self.outbound, slot, sa)?;
        self.by_reqid.insert(reqid, slot);
        Ok(())
    }

    /// Puts an inbound SA into `slot`.
    ///
    /// # Errors
    /// [`SnapshotError`] when the slot is taken or another SA has the same SPI and local address.
    pub fn add_inbound(&mut self, slot: SaSlot, sa: Arc<InboundSpec>) -> Result<(), SnapshotError> {
        let key = (sa.spi, sa.endpoints.local);
        if let Some(other) = self.by_spi.get(&key).and_then(|s| self.inbound(*s)) {
            return Err(SnapshotError::InboundSpiTwice {
                first: other.name.clone(),
                second: sa.name.clone(),
                spi: sa.spi.get(),
                local: key.1,
            });
        }
        ReplayWindow::new(sa.replay_window, sa.esn, SeqNum::default())?;
        put(&mut self.inbound, slot, sa)?;
        self.by_spi.insert(key, slot);
        Ok(())
    }

    /// The policies.
    #[must_use]
    pub fn spd(&self) -> &Spd {
        &self.spd
    }

    /// The SA that policies with this `reqid` use now.
    #[inline]
    #[must_use]
    pub fn outbound_for(&self, reqid: ReqId) -> Option<SaSlot> {
        self.by_reqid.get(&reqid).copied()
    }

    /// The SA that receives ESP with this SPI at this address (RFC 4301 section 4.1).
    #[inline]
    #[must_use]
    pub fn inbound_for(&self, spi: Spi, local: IpAddr) -> Option<SaSlot> {
        self.by_spi.get(&(spi, local)).copied()
    }

    /// The outbound SA in a slot.
    #[inline]
    #[must_use]
    pub fn outbound(&self, slot: SaSlot) -> Option<&Arc<OutboundSpec>> {
        self.outbound.get(slot.0 as usize)?.as_ref()
    }

    /// The inbound SA in a slot.
    #[inline]
    #[must_use]
    pub fn inbound(&self, slot: SaSlot) -> Option<&Arc<InboundSpec>> {
        self.inbound.get(slot.0 as usize)?.as_ref()
    }

    /// All outbound slots; `None` where a slot is free.
    #[must_use]
    pub fn outbound_slots(&self) -> &[Option<Arc<OutboundSpec>>] {
        &self.outbound
    }

    /// All inbound slots; `None` where a slot is free.
    #[must_use]
    pub fn inbound_slots(&self) -> &[Option<Arc<InboundSpec>>] {
        &self.inbound
    }
}

fn put<T>(table: &mut Vec<Option<T>>, slot: SaSlot, value: T) -> Result<(), SnapshotError> {
    let at = slot.0 as usize;
    if table.len() <= at {
        table.resize_with(at + 1, || None);
    }
    match table.get_mut(at) {
        Some(place @ None) => {
            *place = Some(value);
            Ok(())
        }
        _ => Err(SnapshotError::SlotTwice(slot.0)),
    }
}

/// Hashes an SPI and an address.
///
/// Keys of this table come from control, not from packets, so nobody outside can pick colliding
/// ones; packets only look up.
#[derive(Debug, Default)]
pub struct SpiHasher(u64);

impl Hasher for SpiHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        // Multiplicative mixing with an odd constant (golden ratio), as in Knuth, TAOCP 6.4.
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
}

/// The current [`Snapshot`], where control puts it and workers find it.
#[derive(Debug, Default)]
pub struct Published {
    generation: AtomicU64,
    current: Mutex<Arc<Snapshot>>,
}

impl Published {
    /// Starts with a first picture.
    #[must_use]
    pub fn new(snapshot: Snapshot) -> Arc<Self> {
        Arc::new(Self { generation: AtomicU64::new(1), current: Mutex::new(Arc::new(snapshot)) })
    }

    /// Replaces the picture; workers see it at their next burst. Returns its generation.
    pub fn publish(&self, snapshot: Snapshot) -> u64 {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(snapshot);
        // Inside the lock, so that generations and pictures come in the same order. Release pairs
        // with the reader's Acquire, though the lock alone would do: the reader takes it as well.
        self.generation.fetch_add(1, Ordering::Release) + 1
    }

    /// The picture of now.
    #[must_use]
    pub fn current(&self) -> Arc<Snapshot> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A reader for one worker.
    #[must_use]
    pub fn reader(self: &Arc<Self>) -> Reader {
        // Generation 0 was never published, so the first look reports a change.
        Reader { published: self.clone(), seen: 0, snapshot: Arc::default() }
    }
}

/// One worker's view of [`Published`].
#[derive(Debug)]
pub struct Reader {
    published: Arc<Published>,
    seen: u64,
    snapshot: Arc<Snapshot>,
}

impl Reader {
    /// Takes a newer picture if there is one; returns the one it replaced.
    #[inline]
    pub fn refresh(&mut self) -> Option<Arc<Snapshot>> {
        let generation = self.published.generation.load(Ordering::Acquire);
        if generation == self.seen {
            return None;
        }
        self.seen = generation;
        Some(core::mem::replace(&mut self.snapshot, self.published.current()))
    }

    /// Whether there is a newer picture than the one taken last.
    #[inline]
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.published.generation.load(Ordering::Acquire) != self.seen
    }

    /// The picture taken last.
    #[inline]
    #[must_use]
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Generation of the picture taken last.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.seen
    }
}
