//! A plain packet on its way through the stages.

use convoy_crypto::prefetch_front;
use convoy_packet::Frame;
use convoy_wire::{FlowKey, PacketInfo};

use crate::sa::{ReqId, SaSlot};

/// A packet that parsed, and what the stages found out about it.
///
/// Stages change it where it lies: a struct that was just put together from small fields is slow to
/// copy, because the copy's wide loads wait for all the narrow stores.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) frame: Frame,
    /// Inbound the SA it came through; outbound the one that is to protect it, once that is known.
    pub(super) slot: SaSlot,
    /// The group of that SA; outbound 0.
    pub(super) reqid: ReqId,
    pub(super) info: PacketInfo,
}

/// Adds a value to memory for a burst, and gives it back when that is full.
///
/// Unlike [`Vec::push`] this has no way to the allocator, across which the value would be put
/// together on the stack and then copied.
#[inline(always)]
pub(super) fn add<T>(burst: &mut Vec<T>, value: T) -> Result<&mut T, T> {
    if burst.len() == burst.capacity() {
        return Err(value);
    }
    Ok(burst.push_mut(value))
}

/// Starts loading the header of a packet whose turn comes soon. Frames lie a power of two apart, so
/// that few of them fit a near cache at once: not long before.
#[inline(always)]
pub(super) fn prefetch_ahead(frames: &[Frame]) {
    const AHEAD: usize = 6;
    if let Some(frame) = frames.get(AHEAD) {
        prefetch_front::<64, _>(frame.data());
    }
}

impl Packet {
    /// Of a frame about which nothing is known yet.
    #[inline(always)]
    pub(super) const fn new(frame: Frame) -> Self {
        Self { frame, slot: SaSlot(0), reqid: ReqId(0), info: PacketInfo::NONE }
    }

    /// Adds a packet to memory for a burst, and gives the frame back when that is full.
    #[inline(always)]
    pub(super) fn add(burst: &mut Vec<Self>, frame: Frame, info: PacketInfo) -> Result<(), Frame> {
        // Asked first, so that the packet is put together where it goes.
        if burst.len() == burst.capacity() {
            return Err(frame);
        }
        burst.push(Self { info, ..Self::new(frame) });
        Ok(())
    }
}

impl AsRef<FlowKey> for Packet {
    #[inline]
    fn as_ref(&self) -> &FlowKey {
        &self.info.flow
    }
}
