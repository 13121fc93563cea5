//! Bits of marks, of packets and of flows, in which answers are kept.

use convoy_host::Mark;
use convoy_netlink::nft::flow::{Bits, FlowDirection};

/// Answer about packets of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// They pass in clear.
    Bypass,
    /// They go into the TUN interface.
    Protect,
    /// They are dropped. Nothing remembers it.
    Discard,
}

/// Meaning of the marks of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Noted {
    /// It leaves in clear.
    Bypass,
    /// It goes into the TUN interface.
    Protect,
    /// It came in in clear, and this host may take it. Nothing is said about where it may leave.
    Here,
}

/// Mark of a packet that came out of the TUN interface, where packets are routed by marks alone: the reverse path
/// filter finds the way back by it. No flow remembers it.
const OUT_OF_TUNNEL: u32 = 4;
/// Mark of a packet that came in by another interface than the TUN interface and is to be protected. The reverse path
/// filter may look at it, and the way back to its sender is not that into the tunnel.
const PROTECT_FORWARDED: u32 = 5;

/// Mark of a packet that NAT gave the addresses of a protected one, behind routing: its flow is in the kernel's table,
/// or is not yet. It is fresh where prefixes alone say that it is protected.
const REWRITTEN: u32 = 6;
const REWRITTEN_FIRST: u32 = 7;

/// Mark, ahead of routing, of a packet that is to be dropped and remembered.
const DISCARDED: u32 = 6;

/// A packet that NAT gave the addresses of a protected one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rewritten {
    /// Its flow is not in the kernel's table, and the mark is the number of a note.
    pub(crate) is_first: bool,
    /// Prefixes alone say that it is protected.
    pub(crate) is_whole: bool,
}

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

/// Bits of marks in which answers are kept: four of those of packets, twelve of those of flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marks {
    packet: u32,
    flow: u32,
}

/// Generation of policies that an answer is from: answers of an earlier one are not believed. Its highest bit is always
/// set, so that small numbers, which others like to give flows, are answers of no epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Epoch(u8);

impl Epoch {
    pub(crate) const FIRST: Self = Self(0x80);

    /// The next one; none behind the last, where numbers begin with the first again.
    pub(crate) fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
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
/// The first bits of both, unless others are chosen: neither meets the other, nor the gateway's mark, so that a mark that
/// somebody carries from a flow to its packets, or back, is no answer there.
const PACKETS_FROM: u32 = 20;
const FLOWS_FROM: u32 = 8;

impl Default for Marks {
    fn default() -> Self {
        Self::new()
    }
}

impl Marks {
    /// Bits 0x00f00000 of packets and 0x000fff00 of flows.
    #[must_use]
    pub const fn new() -> Self {
        Self { packet: PACKETS_FROM, flow: FLOWS_FROM }
    }

    /// These bits: four of packets, twelve of flows, beside each other. None if they are others.
    #[must_use]
    pub const fn at(packets: u32, flows: u32) -> Option<Self> {
        let marks = Self { packet: packets.trailing_zeros(), flow: flows.trailing_zeros() };
        // As many as there are, so that none is beyond the last one.
        let are_all = packets.count_ones() == (VERDICT | FRESH).count_ones()
            && flows.count_ones() == FLOW.count_ones();
        let are_those = are_all && marks.of_packets() == packets && marks.of_flows() == flows;
        if are_those { Some(marks) } else { None }
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

    /// Mark of a packet of this host that was answered for; none for one that is dropped.
    #[must_use]
    pub const fn of_answer(self, verdict: Verdict) -> Option<Mark> {
        let noted = match verdict {
            Verdict::Bypass => Noted::Bypass,
            Verdict::Protect => Noted::Protect,
            Verdict::Discard => return None,
        };
        let Bits { mask, value } = self.noted(noted);
        Some(Mark { value, mask })
    }

    /// The same of a packet that this host forwards.
    #[must_use]
    pub const fn of_forwarded(self, verdict: Verdict) -> Option<Mark> {
        let Verdict::Protect = verdict else { return self.of_answer(verdict) };
        let Bits { mask, value } = self.protect_forwarded();
        Some(Mark { value, mask })
    }

    /// Mark of a packet that came in in clear, and that this host may take.
    #[must_use]
    pub const fn of_arrival(self) -> Mark {
        let Bits { mask, value } = self.noted(Noted::Here);
        Mark { value, mask }
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

    /// A packet that came in and is to be protected.
    pub(crate) const fn protect_forwarded(self) -> Bits {
        Bits { mask: VERDICT << self.packet, value: PROTECT_FORWARDED << self.packet }
    }

    /// A packet, ahead of routing, that was answered to be dropped.
    pub(crate) const fn discarded(self) -> Bits {
        Bits { mask: VERDICT << self.packet, value: DISCARDED << self.packet }
    }

    /// A packet that NAT gave the addresses of a protected one.
    pub(crate) const fn rewritten(self, is: Rewritten) -> Bits {
        let value = if is.is_first { REWRITTEN_FIRST } else { REWRITTEN };
        let whole = if is.is_whole { FRESH } else { 0 };
        Bits { mask: self.of_packets(), value: (value | whole) << self.packet }
    }

    /// Kind of a packet that NAT gave such addresses, by its mark; none for others.
    pub(crate) const fn rewritten_of(self, mark: u32) -> Option<Rewritten> {
        let bits = (mark & self.of_packets()) >> self.packet;
        let is_whole = bits & FRESH != 0;
        match bits & VERDICT {
            REWRITTEN => Some(Rewritten { is_first: false, is_whole }),
            REWRITTEN_FIRST => Some(Rewritten { is_first: true, is_whole }),
            _ => None,
        }
    }

    pub(crate) const fn fresh(self, is_fresh: bool) -> Bits {
        let mask = FRESH << self.packet;
        Bits { mask, value: if is_fresh { mask } else { 0 } }
    }

    /// Bits that a flow remembers of packets of one direction.
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

    /// The epoch that bits of flows' marks stand for.
    pub(crate) fn epoch_of(self, bits: Bits) -> Option<Epoch> {
        let [number, ..] = (bits.value >> (self.flow + EPOCH)).to_le_bytes();
        let is_one = bits.mask == self.epoch(Epoch::FIRST).mask && number >= Epoch::FIRST.0;
        is_one.then_some(Epoch(number))
    }

    /// The bits of flows' marks of somebody whose epochs have this mask.
    pub(crate) const fn with_epochs(mask: u32) -> Option<Self> {
        let flow = match mask.trailing_zeros().checked_sub(EPOCH) {
            Some(flow) if mask.count_ones() == u8::BITS => flow,
            _ => return None,
        };
        let marks = Self { packet: PACKETS_FROM, flow };
        if marks.epoch(Epoch::FIRST).mask == mask { Some(marks) } else { None }
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
        assert_eq!(answered, 0xdead_beef & !0xf0_0000 | 0x90_0000);
        assert_eq!(marks.answered(0x0070_0001, Noted::Protect, false), 0x0020_0001);
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
        assert_eq!(marks.epoch_of(epoch), Some(Epoch(0xff)));
        let gateway = Mark::GATEWAY.mask;
        let of_two = [marks.of_packets() & marks.of_flows(), gateway & marks.of_packets()];
        assert_eq!([of_two[0], of_two[1], gateway & marks.of_flows()], [0; 3]);
    }

    #[test]
    fn bits_can_be_chosen_where_they_lie_together() {
        assert_eq!(Marks::at(0x00f0_0000, 0x000f_ff00), Some(Marks::new()));
        for (packets, flows) in [(0xf, 0xfff0_0000), (0xf000_0000, 0xfff), (0x1e, 0x1ffe)] {
            let marks = Marks::at(packets, flows).unwrap();
            assert_eq!((marks.of_packets(), marks.of_flows()), (packets, flows));
            let epochs = Marks::with_epochs(marks.epoch(Epoch::FIRST).mask).unwrap();
            assert_eq!(epochs.of_flows(), flows);
        }
        for (packets, flows) in
            [(0, 0xfff), (0x7, 0xfff), (0x1f, 0xfff), (0x17, 0xfff), (0xf, 0), (0xf, 0xffe)]
                .into_iter()
                .chain([(0xe000_0000, 0xfff), (0xf, 0xffe0_0000)])
        {
            assert_eq!(Marks::at(packets, flows), None, "{packets:x} {flows:x}");
        }
        for mask in [0, 0xff, 0x7f0, 0xff00_0000 << 1, 0xff0f0] {
            assert_eq!(Marks::with_epochs(mask), None, "{mask:x}");
        }
    }

    #[test]
    fn what_others_write_is_no_epoch() {
        let marks = Marks::new();
        let mask = marks.epoch(Epoch::FIRST).mask;
        for value in [0, 0x100, 0x1100, 0x3f00, 0x4000, 0x8000, 0x4_0000] {
            assert_eq!(marks.epoch_of(Bits { mask, value: value & mask }), None, "{value:x}");
        }
        let elsewhere = Marks::at(0xf, 0x0fff_0000).unwrap().epoch(Epoch::FIRST);
        assert_eq!(marks.epoch_of(elsewhere), None);
    }

    #[test]
    fn no_epoch_follows_the_last() {
        assert_eq!(Epoch(254).next(), Some(Epoch(255)));
        assert_eq!(Epoch(255).next(), None);
    }
}
