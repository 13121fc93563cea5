//! Leases on storage that forgets, tears and fails.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use convoy_crypto::{GcmParams, IcvLen, KeyBits, SecretBytes};
use convoy_ipsec::counters::SaCounters;
use convoy_ipsec::key::SaKeyMaterial;
use convoy_ipsec::sequence::{Lease, SequenceCounter, SequenceLimits};
use convoy_wire::SeqNum;
use proptest::prelude::*;

use super::LeaseError;
use super::binding::Binding;
use super::hash::HashKey;
use super::image::{BootId, Image};
use super::ledger::{InboundRequest, Ledger, OutboundRequest};
use super::storage::{Slot, Storage};
use super::store::Store;

/// Bytes that reach the medium together or not at all.
const SECTOR: usize = 64;

/// A medium with a write cache: what was written since the last sync of a slot reaches the disk in
/// any part and order when the power fails.
#[derive(Debug, Default)]
pub(super) struct Medium {
    slots: [Place; 2],
    /// Operations until the power fails in the middle of one.
    fuse: Option<usize>,
    /// Operations from here on fail without effect.
    dead: bool,
    /// Decides what survives.
    pub(super) dice: u64,
    /// Counters that the next write moves, and their edge when it returns.
    during_write: Option<(Arrivals, u64)>,
}

#[derive(Debug, Default, Clone)]
struct Place {
    disk: Option<Vec<u8>>,
    /// Contents written since the last sync; the last is what is read.
    cache: Vec<Vec<u8>>,
}

impl Medium {
    fn roll(&mut self) -> u64 {
        self.dice = self
            .dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.dice >> 33
    }

    /// Counts an operation; whether it is the one in which the power fails.
    fn step(&mut self) -> io::Result<bool> {
        if self.dead {
            return Err(io::Error::other("dead"));
        }
        let dies = self.fuse == Some(0);
        self.fuse = self.fuse.map(|fuse| fuse.saturating_sub(1));
        self.dead = dies;
        Ok(dies)
    }

    /// Power comes back: each sector holds one of the contents it had since the last sync.
    pub(super) fn lose_power(&mut self) {
        for slot in 0..2 {
            let place = std::mem::take(&mut self.slots[slot]);
            let mut versions = vec![place.disk.clone().unwrap_or_default()];
            versions.extend(place.cache.iter().cloned());
            let len = versions[self.roll() as usize % versions.len()].len();
            let mut disk = vec![0; len];
            for start in (0..len).step_by(SECTOR) {
                let version = &versions[self.roll() as usize % versions.len()];
                let end = (start + SECTOR).min(len);
                for (at, byte) in disk.iter_mut().enumerate().take(end).skip(start) {
                    *byte = version.get(at).copied().unwrap_or(0);
                }
            }
            let existed = place.disk.is_some() || !place.cache.is_empty();
            self.slots[slot] = Place { disk: existed.then_some(disk), cache: Vec::new() };
        }
        self.dead = false;
        self.fuse = None;
    }

    /// The process is killed: the kernel keeps what was written, the last write perhaps in part.
    pub(super) fn kill(&mut self) {
        self.dead = false;
        self.fuse = None;
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Shared(Arc<Mutex<Medium>>);

impl Shared {
    pub(super) fn medium(&self) -> MutexGuard<'_, Medium> {
        self.0.lock().unwrap()
    }
}

impl Storage for Shared {
    fn read(&mut self, slot: Slot) -> io::Result<Option<Vec<u8>>> {
        let medium = self.medium();
        let place = &medium.slots[slot as usize];
        Ok(place.cache.last().or(place.disk.as_ref()).cloned())
    }

    fn write(&mut self, slot: Slot, bytes: &[u8]) -> io::Result<()> {
        let mut medium = self.medium();
        let dies = medium.step()?;
        let roll = medium.roll() as usize;
        let place = &mut medium.slots[slot as usize];
        let mut content = place.cache.last().or(place.disk.as_ref()).cloned().unwrap_or_default();
        let count = if dies { roll % (bytes.len() + 1) } else { bytes.len() };
        content.resize(content.len().max(count), 0);
        content[..count].copy_from_slice(&bytes[..count]);
        place.cache.push(content);
        if let Some((arrivals, edge)) = medium.during_write.take() {
            arrivals.accept_up_to(edge);
        }
        if dies { Err(io::Error::other("power failed")) } else { Ok(()) }
    }

    fn sync(&mut self, slot: Slot) -> io::Result<()> {
        let mut medium = self.medium();
        let dies = medium.step()?;
        // A sync in which the power fails may have done its work or not.
        let done = !dies || medium.roll().is_multiple_of(2);
        let place = &mut medium.slots[slot as usize];
        if done && let Some(last) = place.cache.pop() {
            place.disk = Some(last);
            place.cache.clear();
        }
        if dies { Err(io::Error::other("power failed")) } else { Ok(()) }
    }
}

pub(super) fn material(number: u8) -> SaKeyMaterial {
    let bytes = SecretBytes::copy_from(&[number; 20]);
    SaKeyMaterial::new(GcmParams::new(KeyBits::Aes128, IcvLen::Icv16), bytes).unwrap()
}

/// The key of the other direction.
fn turned(key: &SaKeyMaterial) -> SaKeyMaterial {
    material(key.expose_with_salt()[0] ^ 0x80)
}

const HASH_KEY: [u8; 32] = [9; 32];

fn hash_key() -> HashKey {
    HashKey::for_tests(HASH_KEY)
}

pub(super) fn new_storage() -> Shared {
    let shared = Shared::default();
    for (slot, generation) in [(0, 1), (1, 2)] {
        let (binding, records) = (Binding::default(), Vec::new());
        let image = Image { generation, boot: None, clean: true, binding, records };
        shared.medium().slots[slot].disk = Some(image.to_bytes(&hash_key()));
    }
    shared
}

pub(super) fn open(storage: &Shared, boot: u8) -> Result<Ledger, LeaseError> {
    let boot = Some(BootId([boot; 16]));
    let store = Store::open(Box::new(storage.clone()), hash_key(), boot, Binding::default())?;
    Ok(Ledger::new(store, Instant::now()))
}

fn acquire(
    ledger: &mut Ledger,
    keys: &[SaKeyMaterial],
    block: u64,
) -> Result<Vec<Arc<Lease>>, LeaseError> {
    acquire_counted(ledger, keys, block).map(|(acquired, _)| acquired)
}

/// As [`acquire`], with the inbound SAs.
pub(super) fn acquire_counted(
    ledger: &mut Ledger,
    keys: &[SaKeyMaterial],
    block: u64,
) -> Result<(Vec<Arc<Lease>>, Vec<Arrivals>), LeaseError> {
    let outbound: Vec<_> =
        keys.iter().map(|key| OutboundRequest { name: "out", key, esn: true, block }).collect();
    let theirs: Vec<_> = keys.iter().map(turned).collect();
    let counters: Vec<Arc<SaCounters>> = keys.iter().map(|_| Arc::default()).collect();
    let inbound: Vec<_> = theirs
        .iter()
        .zip(&counters)
        .map(|(key, counters)| InboundRequest { name: "in", key, counters })
        .collect();
    let acquired = ledger.acquire(&outbound, &inbound)?;
    Ok((acquired, counters.into_iter().map(Arrivals).collect()))
}

/// One key, as peer of which packets are accepted.
pub(super) fn acquire_one(ledger: &mut Ledger) -> Arrivals {
    acquire_counted(ledger, &[material(1)], 10).unwrap().1.remove(0)
}

/// Counters that a worker keeps of an inbound SA.
#[derive(Debug, Clone)]
pub(super) struct Arrivals(pub(super) Arc<SaCounters>);

impl Arrivals {
    pub(super) fn edge(&self) -> u64 {
        self.0.floor.get().get()
    }

    /// Accepts packets up to this number, from where the edge is.
    fn accept_up_to(&self, number: u64) {
        self.0.usage.packets.add(number - self.edge());
        self.0.floor.raise(SeqNum::new(number));
    }

    pub(super) fn accept(&self, packets: u64) {
        self.accept_up_to(self.edge() + packets);
    }

    pub(super) fn count(&self, packets: u64) {
        self.0.usage.packets.add(packets);
    }

    /// Accepts the one packet of this number.
    pub(super) fn accept_one(&self, number: u64) {
        self.0.usage.packets.add(1);
        self.0.floor.raise(SeqNum::new(number));
    }
}

fn counter(lease: &Arc<Lease>) -> SequenceCounter {
    SequenceCounter::claim(lease.clone(), SeqNum::new(0), SequenceLimits::new(true)).unwrap()
}

#[derive(Debug, Clone)]
enum Step {
    /// Take up to so many numbers of a key, and accept so many packets.
    Use { key: usize, numbers: u8, packets: u8 },
    /// The keeper looks, after so many milliseconds.
    Tick(u16),
}

#[derive(Debug, Clone)]
enum End {
    Orderly,
    /// The process dies, now or in the middle of one of the next operations.
    Killed(Option<usize>),
    /// The machine does.
    PowerFailed(Option<usize>),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3usize, any::<u8>(), any::<u8>()).prop_map(|(key, numbers, packets)| Step::Use { key, numbers, packets }),
        2 => (0..1500u16).prop_map(Step::Tick),
    ]
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![
        1 => Just(End::Orderly),
        3 => prop::option::of(0..12usize).prop_map(End::Killed),
        3 => prop::option::of(0..12usize).prop_map(End::PowerFailed),
    ]
}

type Life = (Vec<Step>, End, bool);

fn lives() -> impl Strategy<Value = Vec<Life>> {
    prop::collection::vec((prop::collection::vec(step(), 0..20), end(), any::<bool>()), 1..12)
}

/// Numbers of one key that the world has seen.
#[derive(Default, Clone, Copy)]
struct Seen {
    used: u64,
    /// The next number, when the last life ended in order.
    next: Option<u64>,
}

/// One life of a gateway; whether it ended in order.
fn live(
    storage: &Shared,
    boot: u8,
    block: u64,
    (steps, end, _): &Life,
    seen: &mut [Seen; 3],
) -> Result<bool, TestCaseError> {
    // A start that fails half-way may skip numbers too, so the promise holds for the next start only.
    let promised = seen.each_mut().map(|seen| seen.next.take());
    if let End::Killed(Some(fuse)) | End::PowerFailed(Some(fuse)) = end {
        storage.medium().fuse = Some(*fuse);
    }
    let Ok(mut ledger) = open(storage, boot) else {
        // Only the failing medium may keep a gateway from starting.
        prop_assert!(storage.medium().dead);
        return Ok(false);
    };
    let keys: Vec<_> = (0..3).map(material).collect();
    let Ok((acquired, arrivals)) = acquire_counted(&mut ledger, &keys, block) else {
        prop_assert!(storage.medium().dead);
        return Ok(false);
    };
    let mut counters: Vec<_> = acquired.iter().map(counter).collect();
    for ((counter, seen), promised) in counters.iter().zip(seen.iter()).zip(promised) {
        let first = counter.upcoming().get();
        prop_assert!(first > seen.used, "{first} after {}", seen.used);
        prop_assert_eq!(first, promised.unwrap_or(first), "an orderly end skips nothing");
    }
    let mut now = Instant::now();
    for step in steps {
        match step {
            Step::Use { key, numbers, packets } => {
                for number in counters[*key].reserve(usize::from(*numbers)).into_iter().flatten() {
                    let number = number.into_number().get();
                    prop_assert!(number > seen[*key].used, "{number} comes twice");
                    seen[*key].used = number;
                }
                arrivals[*key].accept(u64::from(*packets));
            }
            Step::Tick(ms) => {
                now += Duration::from_millis((*ms).into());
                let _ = ledger.tick(now);
            }
        }
    }
    if matches!(end, End::Orderly) {
        let next = counters.iter().map(|counter| counter.upcoming().get());
        seen.iter_mut().zip(next).for_each(|(seen, next)| seen.next = Some(next));
        drop(counters);
        ledger.finish().unwrap();
    }
    Ok(matches!(end, End::Orderly))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn no_crash_ever_repeats_a_number(lives in lives(), dice: u64, block in 1..300u64) {
        let storage = new_storage();
        storage.medium().dice = dice;
        let (mut boot, mut seen) = (1, [Seen::default(); 3]);
        for life in &lives {
            live(&storage, boot, block, life, &mut seen)?;
            if matches!(life.1, End::PowerFailed(_)) {
                storage.medium().lose_power();
                boot += 1;
            } else {
                storage.medium().kill();
            }
        }
    }

    #[test]
    fn damage_to_one_image_at_any_time_repeats_no_number(lives in lives(), dice: u64, block in 1..300u64) {
        let storage = new_storage();
        storage.medium().dice = dice;
        let mut seen = [Seen::default(); 3];
        for (steps, _, first) in lives {
            // Without a tear, so that the damaged image is the only one.
            let life = (steps, End::Killed(None), first);
            live(&storage, 1, block, &life, &mut seen)?;
            let mut medium = storage.medium();
            let place = &mut medium.slots[usize::from(first)];
            let mut content = place.cache.pop().or_else(|| place.disk.take()).unwrap();
            content[20] ^= 1;
            *place = Place { disk: Some(content), cache: Vec::new() };
        }
    }
}

#[test]
fn nothing_is_granted_while_the_storage_fails() {
    let storage = new_storage();
    let mut ledger = open(&storage, 1).unwrap();
    let lease = acquire(&mut ledger, &[material(1)], 10).unwrap().remove(0);
    let granted = lease.granted();
    counter(&lease).reserve(1000).unwrap().for_each(drop);
    storage.medium().dead = true;
    let now = Instant::now();
    for _ in 0..3 {
        assert!(ledger.tick(now).is_err());
        assert_eq!(lease.granted(), granted);
    }
    storage.medium().dead = false;
    ledger.tick(now).unwrap();
    assert!(lease.granted() > granted);
}

#[test]
fn two_damaged_images_are_refused() {
    let storage = new_storage();
    for place in &mut storage.medium().slots {
        place.disk.as_mut().unwrap()[0] ^= 1;
    }
    assert!(matches!(open(&storage, 1), Err(LeaseError::Corrupt)));
}

/// A machine that is a copy of another one may use no key that both have, not even after a start.
#[test]
fn keys_that_are_spent_stay_so_and_others_can_be_had() {
    let storage = new_storage();
    let mut ledger = open(&storage, 1).unwrap();
    let (first, _) = acquire_counted(&mut ledger, &[material(1)], 10).unwrap();
    acquire(&mut ledger, &[material(2)], 10).unwrap();
    storage.medium().dead = true;
    assert!(ledger.spend().is_err());
    storage.medium().dead = false;
    let granted = first[0].granted();
    counter(&first[0]).reserve(1000).unwrap().for_each(drop);
    // What could not be written is written at the next look.
    ledger.tick(Instant::now()).unwrap();
    assert_eq!(first[0].granted(), granted, "nobody looks after it any more");
    for damaged in [None, Some(0), Some(1)] {
        let refused = |ledger: &mut Ledger, number| {
            let refused = acquire(ledger, &[material(number)], 10);
            assert!(matches!(refused, Err(LeaseError::KeySpent { .. })), "{refused:?}");
        };
        refused(&mut ledger, 1);
        refused(&mut ledger, 2);
        acquire(&mut ledger, &[material(3)], 10).unwrap();
        drop(ledger);
        if let Some(slot) = damaged {
            let place = &mut storage.medium().slots[slot];
            let mut content = place.cache.pop().or_else(|| place.disk.take()).unwrap();
            content[20] ^= 1;
            *place = Place { disk: Some(content), cache: Vec::new() };
        }
        ledger = open(&storage, 1).unwrap();
    }
}

#[test]
fn one_key_is_leased_once_at_a_time() {
    let storage = new_storage();
    let mut ledger = open(&storage, 1).unwrap();
    let (first, arrivals) = acquire_counted(&mut ledger, &[material(1)], 10).unwrap();
    assert!(matches!(acquire(&mut ledger, &[material(1)], 10), Err(LeaseError::KeyInUse { .. })));
    assert!(matches!(
        acquire(&mut ledger, &[material(2), material(2)], 10),
        Err(LeaseError::KeyInUse { .. })
    ));
    let granted = first[0].granted();
    ledger.release(&first, &[arrivals[0].0.clone()]);
    let second = acquire(&mut ledger, &[material(1)], 10).unwrap();
    assert!(
        second[0].used().get() + 1 >= granted,
        "what the old lease may still use is left to it"
    );
}

#[test]
fn among_ten_thousand_keys_each_has_its_own_lease_and_floor() {
    const KEYS: usize = 10_000;
    let key = |number: usize| {
        let mut bytes = [0x5a; 20];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        let bytes = SecretBytes::copy_from(&bytes);
        SaKeyMaterial::new(GcmParams::new(KeyBits::Aes128, IcvLen::Icv16), bytes).unwrap()
    };
    let keys: Vec<_> = (0..2 * KEYS).map(key).collect();
    let counters: Vec<Arc<SaCounters>> = keys.iter().map(|_| Arc::default()).collect();
    let ask = |ledger: &mut Ledger, outbound: &[usize], inbound: &[usize]| {
        let outbound = outbound.iter().map(|n| OutboundRequest {
            name: "out",
            key: &keys[*n],
            esn: true,
            block: 10,
        });
        let inbound = inbound.iter().map(|n| InboundRequest {
            name: "in",
            key: &keys[*n],
            counters: &counters[*n],
        });
        ledger.acquire(&outbound.collect::<Vec<_>>(), &inbound.collect::<Vec<_>>())
    };
    let mut ledger = open(&new_storage(), 1).unwrap();
    let (mine, theirs): (Vec<_>, Vec<_>) = ((0..KEYS).collect(), (KEYS..2 * KEYS).collect());
    let first = ask(&mut ledger, &mine, &theirs).unwrap();
    assert_eq!(first.len(), KEYS);
    for refused in [ask(&mut ledger, &[7777], &[]), ask(&mut ledger, &[], &[KEYS + 7777])] {
        assert!(matches!(refused, Err(LeaseError::KeyInUse { .. })));
    }
    for refused in [ask(&mut ledger, &[KEYS + 7777], &[]), ask(&mut ledger, &[], &[7777])] {
        assert!(matches!(refused, Err(LeaseError::KeyTurned { .. })));
    }
    // One wants more at a time, and gets it alone.
    ledger.set_blocks([(&first[1234], 1000)].into_iter());
    let granted: Vec<_> = first.iter().map(|lease| lease.granted()).collect();
    ledger.tick(Instant::now()).unwrap();
    ledger.tick(Instant::now()).unwrap();
    let grown: Vec<_> = (0..KEYS).filter(|n| first[*n].granted() > granted[*n]).collect();
    assert_eq!(grown, [1234]);
    // Every other one goes; those alone can be had again, and go on beyond what was granted.
    let odd: Vec<_> = mine.iter().copied().filter(|n| n % 2 == 1).collect();
    let leases: Vec<_> = odd.iter().map(|n| first[*n].clone()).collect();
    let floors: Vec<_> = odd.iter().map(|n| counters[KEYS + n].clone()).collect();
    let granted: Vec<_> = leases.iter().map(|lease| lease.granted()).collect();
    ledger.release(&leases, &floors);
    for still in [7776, 0, 9998] {
        assert!(matches!(ask(&mut ledger, &[still], &[]), Err(LeaseError::KeyInUse { .. })));
        let still = ask(&mut ledger, &[], &[KEYS + still]);
        assert!(matches!(still, Err(LeaseError::KeyInUse { .. })));
    }
    let odd_theirs: Vec<_> = odd.iter().map(|n| KEYS + n).collect();
    let second = ask(&mut ledger, &odd, &odd_theirs).unwrap();
    for (lease, granted) in second.iter().zip(granted) {
        assert!(lease.used().get() + 1 >= granted);
    }
}

/// A key that was inbound has been used by the peer, from number 1 on: used outbound it would repeat
/// the peer's nonces. A folder remembers that also when the gateway was started anew in between, as
/// when a site file comes to the wrong gateway.
#[test]
fn a_key_keeps_its_direction_for_good() {
    let storage = new_storage();
    let mut ledger = open(&storage, 1).unwrap();
    let counters = Arc::default();
    let both = |ledger: &mut Ledger, out: u8, inn: u8| {
        let (out, inn) = (material(out), material(inn));
        let outbound = OutboundRequest { name: "out", key: &out, esn: true, block: 10 };
        let inbound = InboundRequest { name: "in", key: &inn, counters: &counters };
        ledger.acquire(&[outbound], &[inbound])
    };
    let refused = |result: Result<Vec<Arc<Lease>>, LeaseError>, sa: &str| match result {
        Err(LeaseError::KeyTurned { name }) => name == sa,
        _ => false,
    };
    assert!(refused(both(&mut ledger, 1, 1), "in"), "in one call");
    let acquired = both(&mut ledger, 1, 2).unwrap();
    ledger.release(&acquired, std::slice::from_ref(&counters));
    assert!(refused(both(&mut ledger, 3, 1), "in"), "after release");
    ledger.finish().unwrap();
    let mut ledger = open(&storage, 2).unwrap();
    assert!(refused(both(&mut ledger, 2, 1), "out"), "after a restart");
    assert!(refused(both(&mut ledger, 4, 1), "in"));
    // What was refused has left no trace.
    both(&mut ledger, 1, 3).unwrap();
    both(&mut ledger, 5, 4).unwrap();
}

/// A life that accepts packets at a steady pace and dies in the midst of it.
fn floor_after(power_fails: bool, per_tick: u64, ticks: u64) -> (u64, u64) {
    let storage = new_storage();
    let mut ledger = open(&storage, 1).unwrap();
    let arrivals = acquire_one(&mut ledger);
    let mut now = Instant::now();
    for _ in 0..ticks {
        arrivals.accept(per_tick);
        now += Duration::from_millis(5);
        ledger.tick(now).unwrap();
    }
    // Accepted after the last write.
    arrivals.accept(per_tick);
    let boot = if power_fails {
        storage.medium().slots.iter_mut().for_each(|place| place.cache.clear());
        2
    } else {
        1
    };
    let mut ledger = open(&storage, boot).unwrap();
    (arrivals.edge(), acquire_one(&mut ledger).edge())
}

#[test]
fn what_was_accepted_is_not_accepted_after_a_crash() {
    for per_tick in [1, 50, 5000] {
        for ticks in [1, 10, 399, 1000] {
            let (edge, floor) = floor_after(false, per_tick, ticks);
            assert!(floor >= edge, "killed: {floor} < {edge}");
            // The first seconds allow for a pace that is not known yet.
            let allowed = 4 * per_tick.max(8) + 8;
            assert!(floor <= edge + allowed, "killed: {floor} is far above {edge}");
            let (edge, floor) = floor_after(true, per_tick, ticks);
            // The first 20 ms of a pace faster than ever are not covered.
            assert!(
                floor >= edge || ticks * 5 < 20 && per_tick > 40,
                "power failed: {floor} < {edge}"
            );
            assert!(
                floor <= edge + 4 * 201 * per_tick + 200,
                "power failed: {floor} is far above {edge}"
            );
        }
    }
}

#[test]
fn packets_that_come_while_a_write_takes_its_time_count_for_the_pace() {
    let storage = new_storage();
    let mut ledger = open(&storage, 1).unwrap();
    let arrivals = acquire_one(&mut ledger);
    let mut now = Instant::now();
    let mut tick = |edge: u64| {
        arrivals.accept_up_to(edge);
        now += Duration::from_millis(5);
        ledger.tick(now).unwrap();
    };
    tick(10);
    storage.medium().during_write = Some((arrivals.clone(), 1020));
    tick(20);
    tick(1020);
    arrivals.accept_up_to(1920);
    let mut ledger = open(&storage, 1).unwrap();
    let after = acquire_one(&mut ledger).edge();
    assert!(after >= arrivals.edge(), "{after} < {}", arrivals.edge());
}

#[test]
fn an_orderly_end_keeps_the_exact_floor() {
    let storage = new_storage();
    let mut ledger = open(&storage, 1).unwrap();
    acquire_one(&mut ledger).0.floor.raise(SeqNum::new(1234));
    ledger.finish().unwrap();
    for boot in [1, 2] {
        let mut ledger = open(&storage, boot).unwrap();
        assert_eq!(acquire_one(&mut ledger).edge(), 1234);
        ledger.finish().unwrap();
    }
}

#[test]
fn a_fast_sender_gets_longer_leases() {
    let storage = new_storage();
    let mut ledger = open(&storage, 1).unwrap();
    let lease = acquire(&mut ledger, &[material(1)], 100).unwrap().remove(0);
    let mut counter = counter(&lease);
    let now = Instant::now();
    for _ in 0..20 {
        counter.reserve(150).unwrap().for_each(drop);
        ledger.tick(now).unwrap();
    }
    assert!(lease.left() >= 150 * 32, "{}", lease.left());
}

#[test]
fn leases_end_at_the_last_number_of_the_sa() {
    let storage = new_storage();
    let mut ledger = open(&storage, 1).unwrap();
    let key = material(1);
    let request = OutboundRequest { name: "out", key: &key, esn: false, block: 1 << 31 };
    let lease = ledger.acquire(&[request], &[]).unwrap().remove(0);
    ledger.tick(Instant::now()).unwrap();
    assert_eq!(lease.granted(), 1 << 32);
}
