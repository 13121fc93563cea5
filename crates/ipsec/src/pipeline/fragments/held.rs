//! Later fragments that wait for the first of their packet.

use std::hash::{BuildHasher, RandomState};

use super::piece::PacketName;
use crate::clock::Now;
use crate::pipeline::packet::Packet;

/// Fragments held at most. A packet of 64 KiB in fragments of 1,500 bytes has 45.
const MOST: usize = 64;
/// Shares that are told apart: owners of one hash have one together.
const SHARES: usize = 256;

#[derive(Debug)]
struct Fragment {
    name: PacketName,
    since: Now,
    share: u8,
    packet: Packet,
}

/// Fragments in the order in which they came. Where there is no room, the oldest of whoever has most gives way: one
/// greedy peer or host takes no other's place.
#[derive(Debug)]
pub(super) struct Held {
    fragments: Vec<Fragment>,
    /// Number of fragments of each share.
    counts: [u8; SHARES],
    seed: RandomState,
}

impl Held {
    /// With all memory there.
    pub(super) fn new() -> Self {
        Self {
            fragments: Vec::with_capacity(MOST + 1),
            counts: [0; SHARES],
            seed: RandomState::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.fragments.len()
    }

    /// Holds a fragment; returns one that gives way to it.
    pub(super) fn push(&mut self, name: PacketName, since: Now, packet: Packet) -> Option<Packet> {
        let share = self.seed.hash_one(name.owner()) as u8;
        self.fragments.push(Fragment { name, since, share, packet });
        self.counts[usize::from(share)] += 1;
        if self.fragments.len() <= MOST {
            return None;
        }
        let count = |fragment: &Fragment| self.counts[usize::from(fragment.share)];
        // The last of equals is taken, so from the newest on.
        let newest_first = self.fragments.iter().enumerate().rev();
        let most = newest_first.max_by_key(|(_, fragment)| count(fragment));
        most.map(|(at, _)| at).map(|at| self.remove(at))
    }

    /// Takes the oldest fragment of this packet out.
    pub(super) fn take(&mut self, name: &PacketName) -> Option<Packet> {
        let at = self.fragments.iter().position(|fragment| fragment.name == *name)?;
        Some(self.remove(at))
    }

    /// Takes a fragment out that came before `than`.
    pub(super) fn older(&mut self, than: Now) -> Option<Packet> {
        let is_old = self.fragments.first().is_some_and(|fragment| fragment.since < than);
        is_old.then(|| self.remove(0))
    }

    /// Takes the oldest fragment out.
    pub(super) fn pop(&mut self) -> Option<Packet> {
        (!self.fragments.is_empty()).then(|| self.remove(0))
    }

    fn remove(&mut self, at: usize) -> Packet {
        let fragment = self.fragments.remove(at);
        self.counts[usize::from(fragment.share)] -= 1;
        fragment.packet
    }
}
