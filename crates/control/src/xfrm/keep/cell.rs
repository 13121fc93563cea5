//! State kept of one SA beside its message, in 128 bytes that never lie on two pages of memory.

use sha2::{Digest as _, Sha256};

use convoy_ipsec::counters::SaCounters;
use convoy_ipsec::selector::Direction;

use crate::lease::{RecordId, direction_of, number_of};

/// Bytes of a cell.
pub(super) const CELL: usize = 128;

/// Progress of an SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::xfrm) struct Cell {
    /// Of the SA: later ones have higher numbers. No two have the same.
    pub(in crate::xfrm) serial: u64,
    pub(in crate::xfrm) direction: Direction,
    /// Its key, by a keyed hash.
    pub(in crate::xfrm) key: RecordId,
    /// Outbound: numbers below may have been used. Inbound: the highest number accepted.
    pub(in crate::xfrm) sequence: u64,
    /// Inbound: how much further that may have come meanwhile.
    pub(in crate::xfrm) allowance: u64,
    pub(in crate::xfrm) counts: Counts,
}

/// Values of an SA's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::xfrm) struct Counts {
    packets: u64,
    bytes: u64,
    lifetime_packets: u64,
    lifetime_bytes: u64,
    /// In nanoseconds of the workers' clock, which goes on as long as the machine runs: as do these.
    first_use_ns: u64,
    last_packet_ns: u64,
    replayed: u32,
    icv_failures: u32,
}

impl Counts {
    pub(super) fn of(counters: &SaCounters) -> Self {
        let low = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        Self {
            packets: counters.packets.get(),
            bytes: counters.bytes.get(),
            lifetime_packets: counters.usage.packets.get(),
            lifetime_bytes: counters.usage.bytes.get(),
            first_use_ns: counters.usage.first_use_ns.get(),
            last_packet_ns: counters.last_packet_ns.get(),
            replayed: low(counters.replayed.get()),
            icv_failures: low(counters.icv_failures.get()),
        }
    }

    /// Makes counters that nobody else sees yet go on from here.
    pub(in crate::xfrm) fn restore(&self, counters: &SaCounters) {
        counters.packets.set(self.packets);
        counters.bytes.set(self.bytes);
        counters.usage.packets.set(self.lifetime_packets);
        counters.usage.bytes.set(self.lifetime_bytes);
        counters.usage.first_use_ns.set(self.first_use_ns);
        counters.last_packet_ns.set(self.last_packet_ns);
        counters.replayed.set(self.replayed.into());
        counters.icv_failures.set(self.icv_failures.into());
    }
}

fn check(bytes: &[u8]) -> [u8; 8] {
    let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(Sha256::digest(bytes));
    [a, b, c, d, e, f, g, h]
}

impl Cell {
    /// No number above this was used, or accepted.
    pub(in crate::xfrm) fn bound(&self) -> u64 {
        match self.direction {
            Direction::Outbound => self.sequence.saturating_sub(1),
            Direction::Inbound => self.sequence.saturating_add(self.allowance),
        }
    }

    pub(super) fn encode(&self) -> [u8; CELL] {
        let mut bytes = [0; CELL];
        let (numbers, rest) = bytes.split_at_mut(16);
        let direction = u64::from(number_of(self.direction));
        for (into, number) in
            numbers.as_chunks_mut::<8>().0.iter_mut().zip([self.serial, direction])
        {
            *into = number.to_le_bytes();
        }
        let (key, rest) = rest.split_at_mut(32);
        key.copy_from_slice(self.key.bytes());
        let c = &self.counts;
        let failures = u64::from(c.replayed) << 32 | u64::from(c.icv_failures);
        let numbers = [
            self.sequence,
            self.allowance,
            c.packets,
            c.bytes,
            c.lifetime_packets,
            c.lifetime_bytes,
            c.first_use_ns,
            c.last_packet_ns,
            failures,
        ];
        for (into, number) in rest.as_chunks_mut::<8>().0.iter_mut().zip(numbers) {
            *into = number.to_le_bytes();
        }
        let (said, sum) = bytes.split_at_mut(CELL - 8);
        sum.copy_from_slice(&check(said));
        bytes
    }

    /// `None` when it was never written.
    pub(super) fn decode(bytes: &[u8; CELL]) -> Option<Self> {
        let (said, sum) = bytes.split_last_chunk::<8>()?;
        if check(said) != *sum {
            return None;
        }
        let (serial, rest) = said.split_first_chunk::<8>()?;
        let (direction, rest) = rest.split_first_chunk::<8>()?;
        let direction = direction_of(u64::from_le_bytes(*direction))?;
        let (key, rest) = rest.split_first_chunk::<32>()?;
        let mut numbers = rest.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        let mut next = || numbers.next().unwrap_or_default();
        let (sequence, allowance) = (next(), next());
        let counts = Counts {
            packets: next(),
            bytes: next(),
            lifetime_packets: next(),
            lifetime_bytes: next(),
            first_use_ns: next(),
            last_packet_ns: next(),
            ..Counts::default()
        };
        let failures = next();
        let counts = Counts {
            replayed: u32::try_from(failures >> 32).unwrap_or(u32::MAX),
            icv_failures: u32::try_from(failures & u64::from(u32::MAX)).unwrap_or(u32::MAX),
            ..counts
        };
        let (serial, key) = (u64::from_le_bytes(*serial), RecordId::from_bytes(*key));
        Some(Self { serial, direction, key, sequence, allowance, counts })
    }
}
