//! Memory of keys whose SA went: a daemon that moves an SA removes it and adds it again
//! with its key, and no sequence number of that key may be used twice or accepted again.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use convoy_ipsec::counters::SaCounters;
use convoy_ipsec::key::SaKeyMaterial;
use convoy_ipsec::selector::Direction;
use convoy_ipsec::sequence::Lease;
use convoy_wire::SeqNum;
use convoy_xfrm::{Errno, Refusal};

use crate::lease::{HashKey, RecordId};
use crate::xfrm::keep::DEAD_MAX;

/// Numbers from here on are never granted: there is none.
const ALL: u64 = u64::MAX;

/// The keys of this process's life, by a keyed hash.
#[derive(Debug)]
pub(super) struct Graves {
    hash: HashKey,
    /// Of live SAs and of dead ones.
    leases: HashMap<RecordId, Kept<Arc<Lease>>>,
    /// In the order of their deaths, and the how manieth death it was.
    dead_leases: VecDeque<(RecordId, u64)>,
    /// Of live SAs and of dead ones.
    floors: HashMap<RecordId, Known>,
    /// As `dead_leases`.
    dead_floors: VecDeque<(RecordId, u64)>,
    /// Lowest number that a lease of a new key does not grant yet.
    ceiling: u64,
}

#[derive(Debug)]
struct Kept<T> {
    what: T,
    is_live: bool,
    deaths: u64,
}

/// Record of an inbound key.
#[derive(Debug, Default)]
struct Known {
    /// SAs that have it.
    live: usize,
    deaths: u64,
    /// The highest number that was accepted, as far as is known.
    floor: SeqNum,
    /// Of the SA that went last: its worker may still have accepted something.
    last: Option<Arc<SaCounters>>,
}

impl Known {
    fn floor(&self) -> SeqNum {
        let last = self.last.as_ref().map(|counters| counters.floor.get());
        self.floor.max(last.unwrap_or_default())
    }
}

impl Graves {
    /// # Errors
    /// Fails if the system has no random numbers.
    pub(super) fn new() -> Result<Self, getrandom::Error> {
        Ok(Self {
            hash: HashKey::random()?,
            leases: HashMap::new(),
            dead_leases: VecDeque::new(),
            floors: HashMap::new(),
            dead_floors: VecDeque::new(),
            ceiling: ALL,
        })
    }

    /// From now on numbers are granted by somebody who writes them down, and keys have the names of an
    /// earlier life.
    pub(super) fn keep(&mut self, hash: HashKey) {
        (self.hash, self.ceiling) = (hash, 0);
    }

    /// Remembers the numbers of the previous run.
    pub(super) fn remember_lease(&mut self, key: RecordId, used: SeqNum) {
        let what = Arc::new(Lease::new(used, used.get().saturating_add(1)));
        self.leases.insert(key, Kept { what: what.clone(), is_live: true, deaths: 0 });
        self.bury_lease(key, &what);
    }

    /// The name of a key of this direction.
    pub(super) fn name(&self, key: &SaKeyMaterial, direction: Direction) -> RecordId {
        self.hash.record_id(direction, key)
    }

    /// The sequence numbers of a key, behind `sent` and behind all that were ever used. An SA whose cipher makes no
    /// nonces of them (`is_shared`) has its own where another one has the key.
    ///
    /// # Errors
    /// `EEXIST` when a live SA has the key otherwise: two would use its nonces twice.
    pub(super) fn raise(
        &mut self,
        key: RecordId,
        sent: SeqNum,
        is_shared: bool,
    ) -> Result<Arc<Lease>, Refusal> {
        let ceiling = self.ceiling;
        let fresh =
            || Kept { what: Arc::new(Lease::new(sent, ceiling)), is_live: false, deaths: 0 };
        let kept = self.leases.entry(key).or_insert_with(fresh);
        if kept.is_live && is_shared {
            return Ok(Arc::new(Lease::new(sent, ceiling)));
        }
        if kept.is_live {
            let text = "Another outbound SA has this key: nonces would repeat";
            return Err(Refusal::new(Errno::EEXIST, text));
        }
        kept.is_live = true;
        kept.what.skip(sent);
        Ok(kept.what.clone())
    }

    /// An outbound SA went that had this lease.
    pub(super) fn bury_lease(&mut self, key: RecordId, lease: &Arc<Lease>) {
        if let Some(kept) = self.leases.get_mut(&key)
            && Arc::ptr_eq(&kept.what, lease)
            && core::mem::take(&mut kept.is_live)
        {
            kept.deaths += 1;
            self.dead_leases.push_back((key, kept.deaths));
        }
        while self.dead_leases.len() > DEAD_MAX {
            let Some((oldest, at)) = self.dead_leases.pop_front() else { break };
            // It may live again, or have died again since.
            let died = |kept: &Kept<_>| !kept.is_live && kept.deaths == at;
            if self.leases.get(&oldest).is_some_and(died) {
                self.leases.remove(&oldest);
            }
        }
    }

    /// An inbound SA comes: the highest number that was accepted under its key, as far as is known.
    pub(super) fn receive(&mut self, key: RecordId) -> SeqNum {
        let known = self.floors.entry(key).or_default();
        known.live += 1;
        known.floor()
    }

    /// Remembers the highest number that the previous run accepted.
    pub(super) fn remember_floor(&mut self, key: RecordId, floor: SeqNum) {
        let known = self.floors.entry(key).or_default();
        known.floor = known.floor.max(floor);
        known.live += 1;
        self.bury(key, None);
    }

    /// An inbound SA went. Its worker may not know yet, so its counters are read when the key comes
    /// again.
    pub(super) fn bury_floor(&mut self, key: RecordId, counters: Arc<SaCounters>) {
        self.bury(key, Some(counters));
    }

    /// An inbound SA that went was a guess, and nothing came by it: its key may be an outbound one.
    pub(super) fn forget_floor(&mut self, key: RecordId) {
        let known = self.floors.get(&key);
        if known.is_some_and(|known| known.live == 0 && known.floor() == SeqNum::default()) {
            self.floors.remove(&key);
        }
    }

    fn bury(&mut self, key: RecordId, counters: Option<Arc<SaCounters>>) {
        let Some(known) = self.floors.get_mut(&key) else { return };
        known.floor = known.floor();
        known.last = counters.or_else(|| known.last.take());
        known.live = known.live.saturating_sub(1);
        known.deaths += 1;
        self.dead_floors.push_back((key, known.deaths));
        while self.dead_floors.len() > DEAD_MAX {
            let Some((oldest, at)) = self.dead_floors.pop_front() else { break };
            let died = |known: &Known| known.live == 0 && known.deaths == at;
            if self.floors.get(&oldest).is_some_and(died) {
                self.floors.remove(&oldest);
            }
        }
    }

    /// As [`Graves::direction`]; a key that came inbound and by which nothing came says nothing, since its direction
    /// may have been a guess.
    pub(super) fn used(&self, key: &SaKeyMaterial) -> Option<Direction> {
        let direction = self.direction(key)?;
        let floor = self.floors.get(&self.name(key, Direction::Inbound)).map(Known::floor);
        let is_guess = direction == Direction::Inbound && floor == Some(SeqNum::default());
        (!is_guess).then_some(direction)
    }

    /// Direction of the packets of a key, if it was one alone.
    pub(super) fn direction(&self, key: &SaKeyMaterial) -> Option<Direction> {
        let is_known = |direction| self.is_known(self.name(key, direction), direction);
        match (is_known(Direction::Outbound), is_known(Direction::Inbound)) {
            (true, false) => Some(Direction::Outbound),
            (false, true) => Some(Direction::Inbound),
            _ => None,
        }
    }

    /// True if the packets of a key, which has this `name` in one direction, had the other one alone.
    pub(super) fn is_other_way_alone(
        &self,
        key: &SaKeyMaterial,
        name: RecordId,
        direction: Direction,
    ) -> bool {
        let other = direction.reversed();
        !self.is_known(name, direction) && self.is_known(self.name(key, other), other)
    }

    fn is_known(&self, name: RecordId, direction: Direction) -> bool {
        match direction {
            Direction::Outbound => self.leases.contains_key(&name),
            Direction::Inbound => self.floors.contains_key(&name),
        }
    }
}

#[cfg(test)]
mod tests {
    use convoy_crypto::{GcmParams, IcvLen, KeyBits, SecretBytes};
    use convoy_ipsec::sequence::{SequenceCounter, SequenceLimits};

    use super::*;

    fn material(first: u8) -> SaKeyMaterial {
        let mut bytes = [7; 20];
        bytes[0] = first;
        let suite = GcmParams::new(KeyBits::Aes128, IcvLen::Icv16);
        SaKeyMaterial::new(suite, SecretBytes::copy_from(&bytes)).unwrap()
    }

    fn claim(lease: Arc<Lease>) -> SequenceCounter {
        SequenceCounter::claim(lease, SeqNum::new(1), SequenceLimits::new(false)).unwrap()
    }

    #[test]
    fn a_key_that_comes_again_goes_on_behind_all_that_was_used_or_given() {
        let mut graves = Graves::new().unwrap();
        let key = graves.name(&material(1), Direction::Outbound);
        let lease = graves.raise(key, SeqNum::default(), false).unwrap();
        let mut counter = claim(lease.clone());
        for expected in 1..=5 {
            assert_eq!(counter.next().unwrap().number(), SeqNum::new(expected));
        }
        let again = graves.raise(key, SeqNum::default(), false);
        assert_eq!(again.unwrap_err().errno, Errno::EEXIST);
        drop(counter);
        graves.bury_lease(key, &lease);
        // The daemon asked for the numbers before the last packets went out.
        let mut counter = claim(graves.raise(key, SeqNum::new(2), false).unwrap());
        assert_eq!(counter.next().unwrap().number(), SeqNum::new(6));
        drop(counter);
        graves.bury_lease(key, &lease);
        let mut counter = claim(graves.raise(key, SeqNum::new(1000), false).unwrap());
        assert_eq!(counter.next().unwrap().number(), SeqNum::new(1001));
    }

    #[test]
    fn a_key_without_nonces_may_have_several_sas_with_numbers_of_their_own() {
        let mut graves = Graves::new().unwrap();
        let key = graves.name(&material(1), Direction::Outbound);
        let [first, second] =
            [7, 3].map(|sent| graves.raise(key, SeqNum::new(sent), true).unwrap());
        assert!(!Arc::ptr_eq(&first, &second));
        assert_eq!([first.used(), second.used()], [7, 3].map(SeqNum::new));
        // The one that goes does not bury the other.
        graves.bury_lease(key, &second);
        let again = graves.raise(key, SeqNum::default(), false);
        assert_eq!(again.unwrap_err().errno, Errno::EEXIST);
        graves.bury_lease(key, &first);
        let again = graves.raise(key, SeqNum::default(), false).unwrap();
        assert_eq!(again.used(), SeqNum::new(7));
    }

    #[test]
    fn the_oldest_dead_are_forgotten_and_the_living_are_not() {
        let mut graves = Graves::new().unwrap();
        let id = |n: u32| {
            let mut bytes = [0; 32];
            bytes[..4].copy_from_slice(&n.to_be_bytes());
            RecordId::from_bytes(bytes)
        };
        let lives = graves.raise(id(0), SeqNum::new(9), false).unwrap();
        let count = u32::try_from(DEAD_MAX).unwrap() + 2;
        for n in 1..=count {
            let lease = graves.raise(id(n), SeqNum::new(5), false).unwrap();
            graves.bury_lease(id(n), &lease);
            let counters = Arc::<SaCounters>::default();
            graves.receive(id(n));
            counters.floor.raise(SeqNum::new(7));
            graves.bury_floor(id(n), counters);
        }
        assert!(graves.leases.len() <= DEAD_MAX + 1);
        assert!(!graves.leases.contains_key(&id(1)) && graves.leases.contains_key(&id(count)));
        let again = graves.raise(id(0), SeqNum::default(), false);
        assert_eq!(again.unwrap_err().errno, Errno::EEXIST);
        assert_eq!(lives.used(), SeqNum::new(9));
        assert_eq!(graves.receive(id(1)), SeqNum::default());
        assert_eq!(graves.receive(id(count)), SeqNum::new(7));
    }

    #[test]
    fn a_floor_never_goes_back() {
        let mut graves = Graves::new().unwrap();
        let key = graves.name(&material(1), Direction::Inbound);
        let (first, second) = (Arc::<SaCounters>::default(), Arc::<SaCounters>::default());
        graves.receive(key);
        graves.receive(key);
        first.floor.raise(SeqNum::new(50));
        second.floor.raise(SeqNum::new(40));
        graves.bury_floor(key, first.clone());
        // Its worker accepts something more before it sees that the SA went.
        first.floor.raise(SeqNum::new(60));
        assert_eq!(graves.receive(key), SeqNum::new(60));
        graves.bury_floor(key, second);
        assert_eq!(graves.receive(key), SeqNum::new(60));
        assert_eq!(graves.direction(&material(1)), Some(Direction::Inbound));
        assert_eq!(graves.direction(&material(2)), None);
    }
}
