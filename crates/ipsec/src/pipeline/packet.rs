//! A plain packet on its way through the stages.

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

impl Packet {
    /// Of a frame about which nothing is known yet.
    #[inline]
    pub(super) const fn new(frame: Frame) -> Self {
        Self { frame, slot: SaSlot(0), reqid: ReqId(0), info: PacketInfo::NONE }
    }
}

impl AsRef<FlowKey> for Packet {
    #[inline]
    fn as_ref(&self) -> &FlowKey {
        &self.info.flow
    }
}
