//! Floors of anti-replay windows, when peers skip numbers and gateways die at any moment.

use std::time::{Duration, Instant};

use convoy_ipsec::replay::ReplayWindow;
use convoy_wire::SeqNum;
use proptest::prelude::*;

use super::crash_tests::{
    Arrivals, Shared, acquire_counted, acquire_one, material, new_storage, open,
};
use super::ledger::{Ledger, Wrote};

/// Numbers that a killed peer skips: two blocks of a lease.
const RESTART: u64 = 1 << 21;

/// Two gateways are killed; ours comes back, hears its peer for so many seconds, once a second, and
/// is killed again. How many fresh numbers it refuses after that.
fn refused_after_two_crashes(seconds: u64) -> u64 {
    let storage = new_storage();
    let mut peer = RESTART;
    for life in 0..2 {
        let mut ledger = open(&storage, 1).unwrap();
        let arrivals = acquire_one(&mut ledger);
        if life == 1 {
            return arrivals.edge() - (peer - 1);
        }
        let mut now = Instant::now();
        for tick in 0..seconds * 200 {
            if tick % 200 == 0 {
                arrivals.accept_one(peer);
                peer += 1;
            }
            now += Duration::from_millis(5);
            ledger.tick(now).unwrap();
        }
    }
    unreachable!("the second life returns")
}

#[test]
fn a_peer_that_skipped_numbers_is_heard_after_our_own_crash() {
    for seconds in 1..6 {
        let refused = refused_after_two_crashes(seconds);
        assert!(refused <= 40, "{refused} numbers after {seconds} s");
    }
}

/// Events until the keeper looks.
#[derive(Debug, Clone)]
struct Turn {
    /// The peer skips so many numbers first.
    jump: u64,
    /// Numbers of packets: so many are lost before each.
    lost: Vec<u8>,
    /// Until the look.
    ms: u16,
}

#[derive(Debug, Clone)]
struct Life {
    turns: Vec<Turn>,
    /// After the last look.
    last: Turn,
    power_fails: bool,
}

fn turn() -> impl Strategy<Value = Turn> {
    let jump = prop_oneof![8 => Just(0), 1 => 1..3000u64, 1 => Just(RESTART), 1 => 0..1u64 << 24];
    let lost = prop::collection::vec(prop_oneof![4 => Just(0), 1 => 0..4u8], 0..12);
    let ms = prop_oneof![3 => Just(5), 1 => 5..1500u16];
    (jump, lost, ms).prop_map(|(jump, lost, ms)| Turn { jump, lost, ms })
}

fn life() -> impl Strategy<Value = Life> {
    (prop::collection::vec(turn(), 0..40), turn(), any::<bool>())
        .prop_map(|(turns, last, power_fails)| Life { turns, last, power_fails })
}

/// Packets accepted since the records told of the edge.
#[derive(Debug, Default)]
struct Since {
    edge: u64,
    accepted: Vec<u64>,
    /// Packets of the time before that.
    before: u64,
    /// Most packets of two such times in a row: some may have been counted ahead of the edge.
    most: u64,
}

impl Since {
    fn told(&mut self, edge: u64) {
        let accepted = self.accepted.len() as u64;
        self.most = self.most.max(accepted + self.before);
        self.before = accepted;
        self.edge = edge;
        self.accepted.clear();
    }
}

/// The gateway of one life, and what is to be expected of the next.
struct Alive {
    ledger: Ledger,
    arrivals: Arrivals,
    window: ReplayWindow,
    now: Instant,
    written: Since,
    synced: Since,
    floor: u64,
}

impl Alive {
    fn start(storage: &Shared, boot: u8) -> Self {
        let mut ledger = open(storage, boot).unwrap();
        let arrivals = acquire_one(&mut ledger);
        let edge = arrivals.edge();
        let window = ReplayWindow::new(1024, true, SeqNum::new(edge)).unwrap();
        let since = || Since { edge, ..Since::default() };
        let (written, synced) = (since(), since());
        Self { ledger, arrivals, window, now: Instant::now(), written, synced, floor: edge }
    }

    /// A packet comes; whether it is accepted. Its number is inferred as a worker does, and its ICV
    /// is wrong where that goes wrong.
    fn packet(&mut self, number: u64) -> bool {
        let seq = self.window.infer(number as u32);
        let accepted = seq.get() == number && self.window.accept(seq).is_ok();
        if accepted {
            self.arrivals.accept_one(number);
            self.written.accepted.push(number);
            self.synced.accepted.push(number);
        }
        accepted
    }

    fn hear(&mut self, turn: &Turn, peer: &mut u64, seen: &mut Vec<u64>) {
        *peer += turn.jump;
        for lost in &turn.lost {
            *peer += 1 + u64::from(*lost);
            let accepted = self.packet(*peer);
            assert_eq!(accepted, *peer > self.floor, "{peer} with floor {}", self.floor);
            if accepted {
                seen.push(*peer);
            }
        }
    }

    fn look(&mut self, ms: u16) {
        self.now += Duration::from_millis(ms.into());
        let edge = self.arrivals.edge();
        match self.ledger.tick(self.now).unwrap() {
            Wrote::Nothing => {}
            Wrote::Written => self.written.told(edge),
            Wrote::Synced => {
                self.written.told(edge);
                self.synced.told(edge);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// The guarantee of the module, against a peer that loses packets and skips numbers: what a
    /// record told of is never accepted again, nor what came after it without a jump; and no more
    /// fresh packets are refused after a crash than their pace before it allows for.
    #[test]
    fn no_packet_is_accepted_twice_and_few_fresh_ones_are_refused(
        lives in prop::collection::vec(life(), 2..6), dice: u64,
    ) {
        let storage = new_storage();
        storage.medium().dice = dice;
        let (mut boot, mut peer, mut seen) = (1, 0, Vec::new());
        let (mut may_pass, mut highest_floor) = (Vec::<u64>::new(), 0);
        for life in &lives {
            let mut alive = Alive::start(&storage, boot);
            prop_assert!(alive.floor <= highest_floor, "{} > {highest_floor}", alive.floor);
            may_pass.retain(|number| *number > alive.arrivals.edge());
            for number in &seen {
                if !may_pass.contains(number) {
                    let again = alive.packet(*number);
                    prop_assert!(!again, "{number} is accepted twice, at {}", alive.arrivals.edge());
                }
            }
            for turn in &life.turns {
                alive.hear(turn, &mut peer, &mut seen);
                alive.look(turn.ms);
            }
            alive.hear(&life.last, &mut peer, &mut seen);
            let (since, least, first) = if life.power_fails {
                storage.medium().lose_power();
                boot += 1;
                (alive.synced, 32, 32)
            } else {
                storage.medium().kill();
                (alive.written, 8, 8)
            };
            let edge = alive.arrivals.edge();
            // What is not synced may be on the disk all the same.
            let most = since.most.max(since.accepted.len() as u64 + since.before);
            highest_floor = edge + 4 * (4 * most).max(first) + least;
            // What jumped, or came faster than any allowance covers, since the records told.
            if edge - since.edge > least {
                may_pass.extend(since.accepted);
            }
        }
    }
}

/// A run of 256 packets as `pipeline::commit` tells of it: each is counted when it is judged, and the floor
/// is raised behind the last. The keeper looks after `before` of them. How many numbers that were
/// accepted would be accepted again after a later run of the same size and a kill.
fn accepted_again(before: u64, counts_first: bool) -> u64 {
    let storage = new_storage();
    let mut ledger = open(&storage, 1).unwrap();
    let arrivals = acquire_one(&mut ledger);
    let mut now = Instant::now();
    let mut tick = |ledger: &mut Ledger| {
        now += Duration::from_millis(5);
        ledger.tick(now).unwrap();
    };
    tick(&mut ledger);
    arrivals.accept_one(1);
    arrivals.count(before);
    if !counts_first {
        arrivals.0.floor.raise(SeqNum::new(1 + before));
    }
    tick(&mut ledger);
    arrivals.count(256 - before);
    arrivals.0.floor.raise(SeqNum::new(257));
    tick(&mut ledger);
    tick(&mut ledger);
    // The same again: no faster than before.
    arrivals.count(256);
    arrivals.0.floor.raise(SeqNum::new(513));
    let mut ledger = open(&storage, 1).unwrap();
    513_u64.saturating_sub(acquire_one(&mut ledger).edge())
}

#[test]
fn a_look_in_the_middle_of_a_run_does_not_hide_its_pace() {
    for before in [0, 100, 255, 256] {
        assert_eq!(accepted_again(before, false), 0, "{before}: floor with each packet");
    }
    let again: Vec<_> = [0, 1, 100, 200, 255, 256].map(|n| (n, accepted_again(n, true))).into();
    assert!(again.iter().all(|(_, n)| *n == 0), "floor behind the run: {again:?}");
}

/// An SA of a fast peer whose key was changed: the storage, the ledger, and what its worker may still raise.
fn released() -> (Shared, Ledger, Arrivals) {
    let storage = new_storage();
    let mut ledger = open(&storage, 1).unwrap();
    let (leases, arrivals) = acquire_counted(&mut ledger, &[material(1)], 10).unwrap();
    let [arrivals] = <[Arrivals; 1]>::try_from(arrivals).unwrap();
    let mut now = Instant::now();
    for _ in 0..20 {
        arrivals.accept(500);
        now += Duration::from_millis(5);
        ledger.tick(now).unwrap();
    }
    ledger.release(&leases, std::slice::from_ref(&arrivals.0));
    (storage, ledger, arrivals)
}

/// Once no worker has it, a key that comes back goes on behind the last packet that was accepted.
#[test]
fn a_key_that_was_changed_and_comes_back_refuses_no_fresh_packet() {
    for (accepted_later, ticks, is_killed) in
        [(0, 0, false), (100, 0, false), (1 << 20, 1, false), (100, 1, true)]
    {
        let (storage, mut ledger, worker) = released();
        worker.accept(accepted_later);
        let edge = worker.edge();
        drop(worker);
        for _ in 0..ticks {
            ledger.tick(Instant::now()).unwrap();
        }
        if is_killed {
            storage.medium().kill();
            ledger = open(&storage, 1).unwrap();
        }
        assert_eq!(acquire_one(&mut ledger).edge(), edge, "{accepted_later} {ticks} {is_killed}");
    }
}

/// As long as a worker may accept packets, the key goes on where that worker cannot get to, and what becomes of
/// the worker then changes nothing.
#[test]
fn a_key_that_comes_back_too_soon_stays_ahead_of_its_worker() {
    let (storage, mut ledger, worker) = released();
    let back = acquire_one(&mut ledger);
    let floor = back.edge();
    assert!(floor > worker.edge() + 100, "{floor}");
    worker.accept(100);
    drop(worker);
    ledger.tick(Instant::now()).unwrap();
    storage.medium().kill();
    assert!(acquire_one(&mut open(&storage, 1).unwrap()).edge() >= floor);
    drop(back);
}
