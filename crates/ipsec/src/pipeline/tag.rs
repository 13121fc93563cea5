//! Tags that jobs carry through the engine: what the stage behind it needs to go on with their packets.

use convoy_engine::{Context, Job};
use convoy_wire::SeqNum;

/// Work that is left on an outbound packet when the engine has sealed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Remainder {
    /// Nothing: the packet is complete.
    None = 0,
    /// The UDP checksum over IPv6, where no socket computes it.
    UdpChecksum = 1 << 30,
    /// The fields of AH that the engine has written elsewhere.
    AhFields = 1 << 31,
}

/// Tag of an outbound job.
#[derive(Clone, Copy)]
pub(super) struct OutboundTag(Context);

impl OutboundTag {
    const REMAINDERS: u32 = Remainder::UdpChecksum as u32 | Remainder::AhFields as u32;

    pub(super) const fn of(context: Context) -> Self {
        Self(context)
    }

    /// Tags a job, whose slot is known already.
    #[inline(always)]
    pub(super) const fn put(job: &mut Job, inner_len: usize, remainder: Remainder, seq: SeqNum) {
        job.context.note = inner_len as u32 | remainder as u32;
        job.context.value = seq.get();
    }

    /// True if all packets are complete. None of them is looked at.
    #[inline(always)]
    pub(super) fn all_complete(jobs: &[Job]) -> bool {
        jobs.iter().fold(0, |notes, job| notes | job.context.note) & Self::REMAINDERS == 0
    }

    /// Bytes of the inner packet.
    #[inline(always)]
    pub(super) fn inner_len(self) -> u64 {
        u64::from(self.0.note & !Self::REMAINDERS)
    }

    pub(super) const fn remainder(self) -> Remainder {
        if self.0.note & Remainder::AhFields as u32 != 0 {
            Remainder::AhFields
        } else if self.0.note & Remainder::UdpChecksum as u32 != 0 {
            Remainder::UdpChecksum
        } else {
            Remainder::None
        }
    }

    pub(super) const fn seq(self) -> SeqNum {
        SeqNum::new(self.0.value)
    }
}

/// Tag of an inbound job.
#[derive(Clone, Copy)]
pub(super) struct InboundTag(Context);

impl InboundTag {
    #[inline(always)]
    pub(super) const fn of(context: Context) -> Self {
        Self(context)
    }

    /// Tags a job of the SA in `slot` that came there in `epoch`.
    #[inline(always)]
    pub(super) const fn put(job: &mut Job, slot: u32, epoch: u32, seq: SeqNum) {
        job.context = Context { slot, note: epoch, value: seq.get() };
    }

    /// Slot of the SA, and its epoch: the SA may have gone, or another come to its slot.
    #[inline(always)]
    pub(super) const fn sa(self) -> (u32, u32) {
        (self.0.slot, self.0.note)
    }

    #[inline(always)]
    pub(super) const fn seq(self) -> SeqNum {
        SeqNum::new(self.0.value)
    }
}
