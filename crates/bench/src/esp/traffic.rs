//! Inner packets: made before they are protected, and known again after they were opened.

use convoy_packet::Frame;
use convoy_wire::{FlowKey, Ipv4Repr, Ports, Protocol, Tos, udp::UdpRepr};

use super::site::Shape;
use crate::mix::{Numbers, Sizes};

/// IPv4 and UDP header.
const HEADERS: usize = 28;
/// Headers, flow and number: the smallest packet that can be known again, bytes.
pub const PACKET_MIN: usize = HEADERS + 4 + 8;
/// The largest inner packet, bytes.
pub const PACKET_MAX: usize = 8900;
/// TTL as sent.
const TTL: u8 = 64;
/// Destination port of flows; the discard port.
const PORT: u16 = 9;
/// Texts begin at one of so many places of the pattern.
const PLACES: u64 = 251;

/// Makes packets and checks them.
#[derive(Debug)]
pub struct Traffic {
    shape: Shape,
    /// Lengths of the packets of a burst.
    lengths: Vec<usize>,
    pattern: Vec<u8>,
    scratch: Vec<u8>,
}

impl Traffic {
    /// Bursts of `burst` packets of these sizes.
    #[must_use]
    pub fn new(shape: Shape, sizes: Sizes, burst: usize) -> Self {
        let mut pattern = vec![0; PACKET_MAX + PLACES as usize];
        Numbers::new(12).fill(&mut pattern);
        Self { shape, lengths: sizes.packets(burst), pattern, scratch: vec![0; PACKET_MAX] }
    }

    /// Lengths of a burst's packets in bytes.
    #[must_use]
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// The flows of burst number `burst`, packet by packet: at random, the same in every run.
    pub fn flows(&self, burst: u64) -> impl Iterator<Item = u32> + use<> {
        let mut numbers = Numbers::new(burst.wrapping_mul(0x5851_f42d_4c95_7f2d));
        let flows = self.shape.flows;
        core::iter::repeat_with(move || numbers.below(flows) as u32).take(self.lengths.len())
    }

    /// Key by which policies identify a flow.
    #[must_use]
    pub fn key(&self, flow: u32) -> Option<FlowKey> {
        let (src, dst, port) = self.shape.addresses(flow);
        let ports = Ports::Known { src: port, dst: PORT };
        FlowKey::new(src.into(), dst.into(), Protocol::UDP, ports)
    }

    /// Writes a packet of `len` bytes into an empty frame; says whether there was room.
    #[must_use]
    pub fn write(&self, frame: &mut Frame, flow: u32, number: u64, len: usize) -> bool {
        frame.reset();
        let Ok(into) = frame.grow_back(len) else { return false };
        self.emit(into, flow, number, TTL).is_some()
    }

    fn emit(&self, into: &mut [u8], flow: u32, number: u64, ttl: u8) -> Option<()> {
        let (src, dst, port) = self.shape.addresses(flow);
        let header = Ipv4Repr {
            tos: Tos::default(),
            ident: number as u16,
            dont_fragment: true,
            ttl,
            protocol: Protocol::UDP,
            src,
            dst,
            payload_len: into.len().checked_sub(20)?,
        };
        header.emit(into).ok()?;
        let payload_len = into.len().checked_sub(HEADERS)?;
        let udp = UdpRepr { src_port: port, dst_port: PORT, payload_len };
        udp.emit(into.get_mut(20..)?).ok()?;
        let text = into.get_mut(HEADERS..)?;
        let (front, rest) = text.split_at_mut_checked(12)?;
        front.get_mut(..4)?.copy_from_slice(&flow.to_be_bytes());
        front.get_mut(4..)?.copy_from_slice(&number.to_be_bytes());
        let place = (number % PLACES) as usize;
        rest.copy_from_slice(self.pattern.get(place..place + rest.len())?);
        Some(())
    }

    /// The number of a packet that is, byte by byte, one that [`Self::write`] wrote, after
    /// `hops` gateways counted its TTL down; `None` for anything else.
    #[must_use]
    pub fn recognise(&mut self, packet: &[u8], hops: u8) -> Option<u64> {
        let flow = u32::from_be_bytes(*packet.get(HEADERS..)?.first_chunk()?);
        let number = u64::from_be_bytes(*packet.get(HEADERS + 4..)?.first_chunk()?);
        if !self.lengths.contains(&packet.len()) || flow as usize >= self.shape.flows {
            return None;
        }
        let mut scratch = core::mem::take(&mut self.scratch);
        let expected = scratch.get_mut(..packet.len())?;
        let emitted = self.emit(expected, flow, number, TTL - hops);
        let same = emitted.is_some() && *expected == *packet;
        self.scratch = scratch;
        same.then_some(number)
    }
}

/// Packets under way, by number.
///
/// A ring of bits: numbers that are this far behind the newest are taken for lost.
#[derive(Debug)]
pub struct Ledger {
    under_way: Vec<u64>,
    sent: u64,
    received: u64,
    lost: u64,
    strange: u64,
}

/// Packets that a [`Ledger`] keeps in sight.
const SIGHT: u64 = 1 << 16;

impl Default for Ledger {
    fn default() -> Self {
        let under_way = vec![0; (SIGHT / 64) as usize];
        Self { under_way, sent: 0, received: 0, lost: 0, strange: 0 }
    }
}

impl Ledger {
    /// Notes that the next packet is sent; returns its number.
    pub fn send(&mut self) -> u64 {
        let number = self.sent;
        self.sent += 1;
        // Whoever had this place 65,536 packets ago comes no more.
        self.lost += u64::from(self.take(number));
        let (word, bit) = place(number);
        if let Some(word) = self.under_way.get_mut(word) {
            *word |= bit;
        }
        number
    }

    /// Notes that a packet arrived; `None` stands for one that nobody sent so.
    pub fn receive(&mut self, number: Option<u64>) {
        let in_sight = number.filter(|&n| n < self.sent && self.sent - n <= SIGHT);
        match in_sight.map(|number| self.take(number)) {
            Some(true) => self.received += 1,
            _ => self.strange += 1,
        }
    }

    fn take(&mut self, number: u64) -> bool {
        let (word, bit) = place(number);
        let Some(word) = self.under_way.get_mut(word) else { return false };
        let there = *word & bit != 0;
        *word &= !bit;
        there
    }

    /// Packets sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Packets that arrived whole, each counted once.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Packets that did not arrive, or not yet.
    #[must_use]
    pub fn missing(&self) -> u64 {
        let waiting: u32 = self.under_way.iter().map(|word| word.count_ones()).sum();
        self.lost + u64::from(waiting)
    }

    /// Packets that arrived a second time, late, or changed.
    #[must_use]
    pub fn strange(&self) -> u64 {
        self.strange
    }
}

const fn place(number: u64) -> (usize, u64) {
    ((number % SIGHT / 64) as usize, 1 << (number % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix::Mix;
    use convoy_packet::{Arena, FrameSize};

    #[test]
    fn a_packet_is_known_again_and_a_changed_one_is_not() {
        let arena = Arena::map(1, FrameSize::for_packet(PACKET_MAX)).unwrap();
        let mut pool = arena.pool();
        let mut frame = pool.alloc().unwrap();
        let shape = Shape { policies: 5, flows: 500, ..Shape::new(3) };
        let mut traffic = Traffic::new(shape, Sizes::Mix(Mix::Imix), 8);
        for (number, len) in [(0, 90), (77, 1418), (u64::from(u32::MAX) + 3, 594)] {
            assert!(traffic.write(&mut frame, 499, number, len));
            let packet = frame.data().to_vec();
            assert_eq!(traffic.recognise(&packet, 0), Some(number));
            assert_eq!(traffic.recognise(&packet, 1), None, "a TTL that was counted down");
            for at in 0..packet.len() {
                let mut changed = packet.clone();
                changed[at] ^= 1;
                assert_eq!(traffic.recognise(&changed, 0), None, "byte {at} of {len}");
            }
            assert_eq!(traffic.recognise(&packet[..len - 1], 0), None);
        }
        pool.free(frame);
    }

    #[test]
    fn flows_fall_under_their_policy_and_sa() {
        let shape = Shape { policies: 6, flows: 100, ..Shape::new(3) };
        for flow in 0..100 {
            let (src, dst, port) = shape.addresses(flow);
            let network = u32::from(src) / 16 % 1024;
            assert_eq!(network, flow % 6);
            assert_eq!(u32::from(dst) - u32::from(src), 0x80_0000);
            assert!((1..=14).contains(&(u32::from(src) % 16)), "{src}");
            assert_eq!(port, 1024 + (flow / 6 / 14) as u16);
            assert_eq!(shape.sa_of(flow), flow as usize % 3);
        }
    }

    #[test]
    fn the_ledger_knows_losses_copies_and_strangers() {
        let mut ledger = Ledger::default();
        let numbers: Vec<_> = (0..10).map(|_| ledger.send()).collect();
        assert_eq!(numbers, (0..10).collect::<Vec<_>>());
        (0..10).filter(|n| *n != 4).for_each(|n| ledger.receive(Some(n)));
        assert_eq!((ledger.received(), ledger.missing(), ledger.strange()), (9, 1, 0));
        ledger.receive(Some(3));
        ledger.receive(Some(10));
        ledger.receive(None);
        assert_eq!((ledger.received(), ledger.missing(), ledger.strange()), (9, 1, 3));
        // Number 4 falls out of sight, and is still missing; if it comes now, it is strange.
        for _ in 0..SIGHT {
            let number = ledger.send();
            ledger.receive(Some(number));
        }
        assert_eq!((ledger.missing(), ledger.received()), (1, 9 + SIGHT));
        ledger.receive(Some(4));
        assert_eq!((ledger.missing(), ledger.strange()), (1, 4));
    }
}
