//! The exact flow cache in front of the index.

use convoy_crypto::prefetch_read;
use convoy_wire::{FlowKey, IpVersion, Ports};

use super::policy::Decision;
use super::shape::Address;
use super::tuples::Probe;
use crate::table::Seed;

/// Packets that are looked up together.
pub(super) const CHUNK: usize = 256;

/// Flows of each IP version that a cache holds: 1 MiB and 0.5 MiB.
const FLOWS_V4: usize = 1 << 15;
const FLOWS_V6: usize = 1 << 13;
/// Places in which one flow can be.
const WAYS: usize = 4;
/// In an answer's epoch: its packets go on into another tunnel.
const GOES_ON: u32 = 1 << 31;

/// Policies that recent flows were found to fall under, in memory of fixed size. One for each
/// worker and direction.
///
/// A flow is remembered with its whole key and compared with it, and hashed with a seed that nobody
/// outside knows. When the policies change, everything is forgotten.
#[derive(Debug)]
pub struct FlowCache {
    seed: Seed,
    /// The policies that the answers are of.
    stamp: u64,
    /// Answers of other epochs do not count.
    epoch: u32,
    v4: Box<[Set<KeyV4>]>,
    v6: Box<[Set<FlowKey>]>,
    /// Place, of four, that a flow takes that finds none free.
    turn: usize,
    pub(super) scratch: Scratch,
}

/// Memory for one burst, allocated once.
#[derive(Debug)]
pub(super) struct Scratch {
    hashed: Vec<Hashed>,
    pub(super) v4: Vec<Probe<u32>>,
    pub(super) v6: Vec<Probe<u128>>,
    /// Of packets that come out of tunnels: where they may go on.
    pub(super) onward_v4: Vec<Probe<u32>>,
    pub(super) onward_v6: Vec<Probe<u128>>,
}

/// A packet's flow: its hash, and an IPv4 flow's words.
#[derive(Clone, Copy, Debug)]
struct Hashed {
    hash: u64,
    v4: KeyV4,
}

/// Two cache lines for IPv4, four for IPv6.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Set<K>([Way<K>; WAYS]);

#[derive(Clone, Copy, Debug)]
struct Way<K> {
    key: K,
    epoch: u32,
    decision: Option<Decision>,
}

/// An IPv4 flow in two words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KeyV4(u64, u64);

const _: () = assert!(size_of::<Set<KeyV4>>() == 128 && size_of::<Set<FlowKey>>() <= 256);

impl KeyV4 {
    #[inline]
    fn of(key: &FlowKey) -> Self {
        let (addresses, _) = u32::words(u32::of(&key.src), u32::of(&key.dst));
        Self(addresses, upper(key))
    }

    #[inline]
    const fn hash(self, seed: Seed) -> u64 {
        seed.short(self.0, self.1)
    }
}

/// Everything of a key but addresses and version, in one word.
#[inline]
fn upper(key: &FlowKey) -> u64 {
    let ports = match key.ports {
        Ports::Known { src, dst } => u64::from(src) << 32 | u64::from(dst) << 16 | 1 << 8,
        Ports::Icmp { ty, code } => u64::from(ty) << 32 | u64::from(code) << 16 | 2 << 8,
        Ports::Opaque => 3 << 8,
    };
    ports | u64::from(key.protocol.0)
}

impl Default for FlowCache {
    fn default() -> Self {
        Self::new(FLOWS_V4, FLOWS_V6)
    }
}

impl FlowCache {
    /// A cache for so many IPv4 and IPv6 flows, each rounded up to a power of two and at least four.
    #[must_use]
    pub fn new(flows_v4: usize, flows_v6: usize) -> Self {
        let sets = |flows: usize| flows.div_ceil(WAYS).next_power_of_two();
        // Epoch 0 never comes, so these count as free.
        let v4 = Way { key: KeyV4(0, 0), epoch: 0, decision: None };
        let v6 = Way { key: NO_FLOW, epoch: 0, decision: None };
        Self {
            seed: Seed::of_process(),
            stamp: 0,
            epoch: 1,
            v4: vec![Set([v4; WAYS]); sets(flows_v4)].into_boxed_slice(),
            v6: vec![Set([v6; WAYS]); sets(flows_v6)].into_boxed_slice(),
            turn: 0,
            scratch: Scratch {
                hashed: Vec::with_capacity(CHUNK),
                v4: Vec::with_capacity(CHUNK),
                v6: Vec::with_capacity(CHUNK),
                onward_v4: Vec::with_capacity(CHUNK),
                onward_v6: Vec::with_capacity(CHUNK),
            },
        }
    }

    /// Forgets everything if the policies are others than before.
    pub(super) fn follow(&mut self, stamp: u64) {
        if self.stamp == stamp {
            return;
        }
        self.stamp = stamp;
        self.epoch = self.epoch.wrapping_add(1) & !GOES_ON;
        if self.epoch == 0 {
            // After 2³¹ changes an old answer would look new.
            *self = Self { stamp, ..Self::new(self.v4.len() * WAYS, self.v6.len() * WAYS) };
        }
    }

    /// Answers from the cache what it can, and makes probes of the other packets. Says of which it knows that
    /// they go on into another tunnel.
    #[inline]
    pub(super) fn split<K>(
        &mut self,
        keys: &[K],
        out: &mut [Option<Decision>],
        mut goes_on: impl FnMut(usize),
    ) where
        K: AsRef<FlowKey>,
    {
        let Scratch { hashed, v4, v6, .. } = &mut self.scratch;
        v4.clear();
        v6.clear();
        hashed.clear();
        hashed.extend(keys.iter().map(AsRef::as_ref).map(|key| match key.version {
            IpVersion::V4 => {
                let v4 = KeyV4::of(key);
                let hash = v4.hash(self.seed);
                prefetch_set(&self.v4, hash);
                Hashed { hash, v4 }
            }
            IpVersion::V6 => {
                let hash = hash_v6(self.seed, key);
                prefetch_set(&self.v6, hash);
                Hashed { hash, v4: KeyV4(0, 0) }
            }
        }));
        let packets = keys.iter().map(AsRef::as_ref).zip(out).zip(&*hashed).zip(0..);
        for (((key, out), flow), at) in packets {
            let is_onward = match key.version {
                IpVersion::V4 => match find(&self.v4, flow.hash, self.epoch, &flow.v4) {
                    Some(way) => {
                        *out = way.decision;
                        way.epoch & GOES_ON != 0
                    }
                    None => {
                        v4.push(Probe::new(at, flow.hash, key));
                        false
                    }
                },
                IpVersion::V6 => match find(&self.v6, flow.hash, self.epoch, key) {
                    Some(way) => {
                        *out = way.decision;
                        way.epoch & GOES_ON != 0
                    }
                    None => {
                        v6.push(Probe::new(at, flow.hash, key));
                        false
                    }
                },
            };
            if is_onward {
                goes_on(usize::from(at));
            }
        }
    }

    /// Remembers what was found for the packets that the cache did not know.
    pub(super) fn learn<K>(
        &mut self,
        keys: &[K],
        out: &mut [Option<Decision>],
        mut goes_on: impl FnMut(usize),
    ) where
        K: AsRef<FlowKey>,
    {
        let epoch = self.epoch;
        let mut note = |at: usize, is_so: bool| match is_so {
            true => {
                goes_on(at);
                epoch | GOES_ON
            }
            false => epoch,
        };
        for probe in &self.scratch.v4 {
            let at = usize::from(probe.at);
            if let (Some(key), Some(out)) = (keys.get(at).map(AsRef::as_ref), out.get_mut(at)) {
                *out = probe.found;
                let epoch = note(at, probe.goes_on);
                let way = Way { key: KeyV4::of(key), epoch, decision: probe.found };
                put(&mut self.v4, probe.flow, way, &mut self.turn);
            }
        }
        for probe in &self.scratch.v6 {
            let at = usize::from(probe.at);
            if let (Some(key), Some(out)) = (keys.get(at).map(AsRef::as_ref), out.get_mut(at)) {
                *out = probe.found;
                let epoch = note(at, probe.goes_on);
                let way = Way { key: *key, epoch, decision: probe.found };
                put(&mut self.v6, probe.flow, way, &mut self.turn);
            }
        }
    }
}

const NO_FLOW: FlowKey = FlowKey {
    src: [0; 16],
    dst: [0; 16],
    version: IpVersion::V6,
    protocol: convoy_wire::Protocol(0),
    ports: Ports::Opaque,
};

#[inline]
fn hash_v6(seed: Seed, key: &FlowKey) -> u64 {
    let words = |bytes: &[u8; 16]| {
        let number = u128::of(bytes);
        ((number >> 64) as u64, number as u64)
    };
    let ((a, b), (c, d)) = (words(&key.src), words(&key.dst));
    seed.short(seed.short(a, b) ^ c, seed.short(d, upper(key)))
}

#[inline]
const fn index<K>(sets: &[Set<K>], hash: u64) -> usize {
    hash as usize & (sets.len() - 1)
}

/// Starts loading the first half of a flow's set. Ways are filled from the front, so few flows are
/// in the other.
#[inline]
fn prefetch_set<K>(sets: &[Set<K>], hash: u64) {
    if let Some(Set([first, second, ..])) = sets.get(index(sets, hash)) {
        prefetch_read(first);
        if size_of::<K>() > 16 {
            prefetch_read(second);
        }
    }
}

/// True if two answers are of the same epoch.
#[inline]
const fn is_of(epoch: u32, other: u32) -> bool {
    (epoch ^ other) & !GOES_ON == 0
}

#[inline]
fn find<'a, K: Eq>(sets: &'a [Set<K>], hash: u64, epoch: u32, key: &K) -> Option<&'a Way<K>> {
    let Set(ways) = sets.get(index(sets, hash))?;
    ways.iter().find(|way| is_of(way.epoch, epoch) && way.key == *key)
}

fn put<K: Eq>(sets: &mut [Set<K>], hash: u64, new: Way<K>, turn: &mut usize) {
    let at = index(sets, hash);
    let Some(Set(ways)) = sets.get_mut(at) else { return };
    // Another packet of the burst may have been of the same flow.
    let free = ways.iter().position(|way| !is_of(way.epoch, new.epoch) || way.key == new.key);
    let way = free.unwrap_or_else(|| {
        *turn = turn.wrapping_add(1);
        *turn % WAYS
    });
    if let Some(way) = ways.get_mut(way) {
        *way = new;
    }
}
