//! Bits of marks, of packets and of flows, in which answers are kept.

use convoy_netlink::nft::flow::{Bits, FlowDirection};

/// What was answered about packets of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// They pass in clear.
    Bypass,
    /// They go into the TUN interface.
    Protect,
    /// They are dropped. Nothing remembers it.
    Discard,
}

/// What marks say about a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Noted {
    /// It leaves in clear.
    Bypass,
    /// It goes into the TUN interface.
    Protect,
    /// It came in in clear, and this host may take it. Nothing is said about where it may leave.
    Here,
}

/// What a packet bears that came out of the TUN interface, where packets are routed by marks alone: the reverse path
/// filter finds the way back by it. No flow remembers it.
const OUT_OF_TUNNEL: u32 = 4;

impl Noted {
    pub(crate) const ALL: [Self; 3] = [Self::Bypass, Self::Protect, Self::Here];

    /// 0 is what a packet bears that nobody has answered for.
    const fn value(self) -> u32 {
        match self {
            Self::Bypass => 1,
            Self::Protect => 2,
            Self::Here => 3,
        }
    }
}

/// Where in marks answers are kept: four bits of those of packets, twelve of those of flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marks {
    packet: u32,
    flow: u32,
}

/// Which policies an answer is from: answers of an earlier epoch are not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Epoch(u8);

impl Epoch {
    pub(crate) const FIRST: Self = Self(1);

    /// The next one, and whether it is the first again.
    pub(crate) fn next(self) -> (Self, bool) {
        match self.0.checked_add(1) {
            Some(next) => (Self(next), false),
            None => (Self::FIRST, true),
        }
    }
}

/// Bits of a packet's mark: three for the verdict, one that says that it is fresh.
const VERDICT: u32 = 0b111;
const FRESH: u32 = 0b1000;
/// Bits of a flow's mark: two verdicts and the epoch.
const REMEMBERED: u32 = 0b11;
const REPLIES: u32 = 2;
const EPOCH: u32 = 4;
const FLOW: u32 = 0xfff;

impl Default for Marks {
    fn default() -> Self {
        Self::new()
    }
}

impl Marks {
    /// Bits 0x000f0000 of packets and 0x0fff0000 of flows.
    #[must_use]
    pub const fn new() -> Self {
        Self { packet: 16, flow: 16 }
    }

    /// The bits of a packet's mark.
    #[must_use]
    pub const fn of_packets(self) -> u32 {
        (VERDICT | FRESH) << self.packet
    }

    /// The bits of a flow's mark (conntrack).
    #[must_use]
    pub const fn of_flows(self) -> u32 {
        FLOW << self.flow
    }

    /// A packet without a verdict.
    pub(crate) const fn none(self) -> Bits {
        Bits { mask: self.of_packets(), value: 0 }
    }

    pub(crate) const fn noted(self, noted: Noted) -> Bits {
        Bits { mask: VERDICT << self.packet, value: noted.value() << self.packet }
    }

    /// A packet that nobody has answered for.
    pub(crate) const fn unanswered(self) -> Bits {
        Bits { mask: VERDICT << self.packet, value: 0 }
    }

    /// A packet that came out of the TUN interface.
    pub(crate) const fn out_of_tunnel(self) -> Bits {
        Bits { mask: VERDICT << self.packet, value: OUT_OF_TUNNEL << self.packet }
    }

    pub(crate) const fn fresh(self, is_fresh: bool) -> Bits {
        let mask = FRESH << self.packet;
        Bits { mask, value: if is_fresh { mask } else { 0 } }
    }

    /// What a flow remembers of packets of one direction.
    pub(crate) const fn of_flow(self, direction: FlowDirection, noted: Noted) -> Bits {
        let shift = match direction {
            FlowDirection::Original => self.flow,
            FlowDirection::Reply => self.flow + REPLIES,
        };
        Bits { mask: REMEMBERED << shift, value: noted.value() << shift }
    }

    pub(crate) const fn epoch(self, epoch: Epoch) -> Bits {
        let shift = self.flow + EPOCH;
        Bits { mask: (u8::MAX as u32) << shift, value: (epoch.0 as u32) << shift }
    }

    /// A flow of this epoch for which nothing is decided yet.
    pub(crate) const fn undecided(self, epoch: Epoch) -> Bits {
        Bits { mask: self.of_flows(), value: self.epoch(epoch).value }
    }

    /// The epoch that a flow's mark, or a mask and value for such, stands for.
    pub(crate) fn epoch_of(self, flow: u32) -> Option<Epoch> {
        let [number, ..] = (flow >> (self.flow + EPOCH)).to_le_bytes();
        (number != 0).then_some(Epoch(number))
    }

    /// The mark of a packet that is answered for; the answer may be kept for others of its flow.
    pub(crate) const fn answered(self, mark: u32, noted: Noted, is_kept: bool) -> u32 {
        let rest = mark & !self.of_packets();
        rest | self.noted(noted).value | self.fresh(is_kept).value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_keep_the_bits_of_others() {
        let marks = Marks::default();
        let answered = marks.answered(0xdead_beef, Noted::Bypass, true);
        assert_eq!(answered, 0xdead_beef & !0xf_0000 | 0x9_0000);
        assert_eq!(marks.answered(0x0007_0001, Noted::Protect, false), 0x0002_0001);
    }

    #[test]
    fn bits_of_one_mark_do_not_meet() {
        let marks = Marks::default();
        let original = marks.of_flow(FlowDirection::Original, Noted::Protect);
        let reply = marks.of_flow(FlowDirection::Reply, Noted::Protect);
        let epoch = marks.epoch(Epoch(0xff));
        assert_eq!(original.mask | reply.mask | epoch.mask, marks.of_flows());
        assert_eq!(original.mask & reply.mask | reply.mask & epoch.mask, 0);
        assert_eq!(marks.noted(Noted::Bypass).mask & marks.fresh(true).mask, 0);
        assert_eq!(marks.epoch_of(epoch.value | original.mask), Some(Epoch(0xff)));
    }

    #[test]
    fn the_epoch_after_the_last_is_the_first_again() {
        assert_eq!(Epoch(254).next(), (Epoch(255), false));
        assert_eq!(Epoch(255).next(), (Epoch(1), true));
    }
}
