//! SAs that send something of their own when nothing was sent on them for some time.

use std::time::Duration;

use super::slab::Slab;
use crate::clock::Now;

/// Place of a slot without timer.
const NOWHERE: u32 = u32::MAX;

/// Sender that can be silent.
pub(super) trait Talker {
    /// Time at which a packet was last sent, in nanoseconds; 0 for never.
    fn last_sent(&self) -> u64;
}

/// Result of a sending that was due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was sent.
    Sent,
    /// It may not be sent now. After another interval it is tried again.
    Refused,
    /// There is no room: it stays due.
    NoRoom,
}

/// One slot's timer.
#[derive(Clone, Copy, Debug)]
struct Timer {
    /// Time of the next look, in nanoseconds. Packets sent meanwhile move it only then.
    due: u64,
    /// Nanoseconds.
    interval: u64,
    slot: u32,
}

/// Timers of the slots that have one. A look costs nothing before the first is due, and then what
/// they cost, however many other SAs there are.
#[derive(Debug)]
pub(super) struct Silence {
    timers: Vec<Timer>,
    /// Position of a slot's timer.
    places: Vec<u32>,
    /// No timer is due before, as far as is known.
    first: u64,
    /// Index at which the look goes on that found no more room, and the first deadline of those before.
    at: usize,
    soonest: u64,
}

impl Silence {
    pub(super) const fn new() -> Self {
        Self { timers: Vec::new(), places: Vec::new(), first: 0, at: 0, soonest: u64::MAX }
    }

    /// Sets the timer of an SA that came to its slot now.
    pub(super) fn add(&mut self, slot: u32, interval: Duration, now: Now) {
        self.remove(slot);
        let interval = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        let slots = slot as usize + 1;
        if self.places.len() < slots {
            self.places.resize(slots, NOWHERE);
        }
        if let Some(place) = self.places.get_mut(slot as usize) {
            *place = self.timers.len() as u32;
            let due = now.0.saturating_add(interval);
            self.timers.push(Timer { due, interval, slot });
            self.first = self.first.min(due);
        }
    }

    /// Forgets a slot's timer, if it has one.
    pub(super) fn remove(&mut self, slot: u32) {
        let Some(place) = self.places.get_mut(slot as usize) else { return };
        let place = std::mem::replace(place, NOWHERE) as usize;
        if place >= self.timers.len() {
            return;
        }
        self.timers.swap_remove(place);
        if let Some(moved) = self.timers.get(place)
            && let Some(of_moved) = self.places.get_mut(moved.slot as usize)
        {
            *of_moved = place as u32;
        }
        // The one that moved may have jumped over the look that is under way.
        (self.first, self.at, self.soonest) = (0, 0, u64::MAX);
    }

    /// Lets every SA that was silent for its interval `send`. Says whether all that were due had
    /// their turn; where there was no room the next call goes on.
    pub(super) fn run<S: Talker>(
        &mut self,
        now: Now,
        sas: &mut Slab<S>,
        mut send: impl FnMut(u32, &mut S) -> Outcome,
    ) -> bool {
        if now.0 < self.first {
            return true;
        }
        while let Some(timer) = self.timers.get_mut(self.at) {
            if timer.due <= now.0
                && let Some(sa) = sas.get_mut(timer.slot)
            {
                timer.due = sa.last_sent().saturating_add(timer.interval);
                if timer.due <= now.0 {
                    if send(timer.slot, sa) == Outcome::NoRoom {
                        return false;
                    }
                    timer.due = now.0.saturating_add(timer.interval);
                }
            }
            self.soonest = self.soonest.min(timer.due);
            self.at += 1;
        }
        (self.first, self.at, self.soonest) = (self.soonest, 0, u64::MAX);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    struct Sa(u64);

    impl Talker for Sa {
        fn last_sent(&self) -> u64 {
            self.0
        }
    }

    fn all(slots: std::ops::Range<u32>) -> Slab<Sa> {
        let mut sas = Slab::new();
        slots.for_each(|slot| sas.insert(slot, Sa(0)));
        sas
    }

    const fn ns(n: u64) -> Duration {
        Duration::from_nanos(n)
    }

    /// Slots that sent, in order.
    fn sent(silence: &mut Silence, now: u64, sas: &mut Slab<Sa>) -> Vec<u32> {
        let mut who = Vec::new();
        assert!(silence.run(Now(now), sas, |slot, _| {
            who.push(slot);
            Outcome::Sent
        }));
        who.sort_unstable();
        who
    }

    #[test]
    fn only_who_was_silent_for_its_interval_sends() {
        let (mut silence, mut sas) = (Silence::new(), all(0..100));
        for slot in [7, 90, 3] {
            silence.add(slot, ns(10 + u64::from(slot)), Now(1000));
        }
        assert_eq!(sent(&mut silence, 1012, &mut sas), []);
        assert_eq!(sent(&mut silence, 1013, &mut sas), [3]);
        // A packet on slot 7 puts it off, from when it was sent.
        sas.insert(7, Sa(1010));
        assert_eq!(sent(&mut silence, 1026, &mut sas), [3]);
        assert_eq!(sent(&mut silence, 1027, &mut sas), [7]);
        assert_eq!(sent(&mut silence, 1099, &mut sas), [3, 7]);
        assert_eq!(sent(&mut silence, 1100, &mut sas), [90]);
    }

    #[test]
    fn a_timer_that_comes_later_is_looked_at_all_the_same() {
        let (mut silence, mut sas) = (Silence::new(), all(0..10));
        assert_eq!(sent(&mut silence, 5, &mut sas), [], "nobody has one yet");
        silence.add(4, ns(1000), Now(10));
        assert_eq!(sent(&mut silence, 20, &mut sas), []);
        silence.add(7, ns(10), Now(20));
        assert_eq!(sent(&mut silence, 30, &mut sas), [7]);
        assert_eq!(sent(&mut silence, 1010, &mut sas), [4, 7]);
    }

    #[test]
    fn what_is_refused_waits_an_interval_and_what_found_no_room_does_not() {
        let (mut silence, mut sas) = (Silence::new(), all(0..10));
        (0..10).for_each(|slot| silence.add(slot, ns(10), Now(0)));
        assert!(silence.run(Now(10), &mut sas, |_, _| Outcome::Refused));
        assert_eq!(sent(&mut silence, 19, &mut sas), []);
        // Room for three at a time: nobody comes twice, nobody is left out.
        let mut who = Vec::new();
        let mut calls = 1;
        loop {
            let mut room = 3;
            let done = silence.run(Now(20), &mut sas, |slot, _| {
                if room == 0 {
                    return Outcome::NoRoom;
                }
                room -= 1;
                who.push(slot);
                Outcome::Sent
            });
            if done {
                break;
            }
            calls += 1;
        }
        assert_eq!((calls, who), (4, (0..10).collect()));
        assert_eq!(sent(&mut silence, 29, &mut sas), []);
        assert_eq!(sent(&mut silence, 30, &mut sas).len(), 10);
    }

    #[test]
    fn timers_come_and_go_with_their_slots() {
        let (mut silence, mut sas) = (Silence::new(), all(0..50));
        let mut model = HashMap::new();
        // Anything goes in any order: some slots twice, some never, some that have no timer.
        for round in 0_u32..500 {
            let slot = (round.wrapping_mul(2_654_435_761) >> 16) % 50;
            let interval = u64::from(round * 37 % 500);
            if round % 3 == 0 {
                silence.remove(slot);
                model.remove(&slot);
            } else {
                silence.add(slot, ns(interval), Now(5));
                model.insert(slot, 5 + interval);
            }
            if round % 50 == 49 {
                // A look that is cut off in the middle must leave nobody out.
                let mut room = model.len() / 2;
                let half = silence.run(Now(600), &mut sas, |_, _| {
                    room = room.saturating_sub(1);
                    if room == 0 { Outcome::NoRoom } else { Outcome::Sent }
                });
                assert!(!half);
                for slot in 0..50 {
                    if let Some(due) = model.get_mut(&slot) {
                        silence.add(slot, ns(*due - 5), Now(5));
                    }
                }
            }
        }
        let mut expected: Vec<_> = model.into_iter().filter(|(_, due)| *due <= 300).collect();
        expected.sort_unstable();
        let expected: Vec<_> = expected.into_iter().map(|(slot, _)| slot).collect();
        assert!(expected.len() > 5 && expected.len() < 50);
        assert_eq!(sent(&mut silence, 300, &mut sas), expected);
    }
}
