//! Clients that ask for too much, read too little, or talk nonsense.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use convoy_control::xfrm::Insertion;
use convoy_xfrm::{Flags, Group, PolicyDirection, Reply, Request};

use super::peer::{MEMBERSHIP, Peer, as_bytes, count, message, until};
use super::{Running, allocate, event, policy};

/// A generator of numbers that always gives the same ones.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> usize {
        (self.next() % end) as usize
    }
}

#[test]
fn a_long_dump_waits_for_its_reader_in_little_memory() {
    const COUNT: u32 = 100_000;
    let running = Running::new();
    for number in 0..COUNT {
        running.databases.policies().insert(policy(number), Insertion::New, 1).unwrap();
    }
    let (reader, other) = (running.peer(), running.peer());
    let listener = Peer::bound(running.path(), 5, 0);
    reader.tell(MEMBERSHIP, &[2, 1]);
    reader.send(&as_bytes(&Request::DumpPolicy, 1, Flags::default()));
    let mut read = 0;
    let mut indices = std::collections::BTreeSet::new();
    let mut heard = 0;
    let mut next = || match reader.next() {
        (1, Reply::NewPolicy(shown)) => {
            assert_eq!(shown.info.direction, PolicyDirection::Out);
            assert!(indices.insert(shown.info.index), "it was shown before");
            read += 1;
            Some(read)
        }
        (99, Reply::FlushSa(_)) => {
            heard += 1;
            Some(read)
        }
        (1, Reply::Done(None)) => None,
        other => panic!("{other:?}"),
    };
    for _ in 0..10 {
        next();
    }
    // As much as its buffer takes is under way, and no more.
    let dumped = || running.databases.dumped.load(SeqCst);
    let mut before = 0;
    until("it waits", || {
        std::thread::sleep(Duration::from_millis(20));
        std::mem::replace(&mut before, dumped()) == dumped()
    });
    assert!(dumped() < 5_000, "{}", dumped());
    // Others are served, and there is room for events to it.
    (0..100).for_each(|seq| assert_eq!(other.counts(seq), 0));
    (0..100).for_each(|_| running.emit(99));
    assert_eq!(listener.counts(1), 0);
    while let Some(read) = next() {
        assert!(dumped() - read < 5_000, "{} of {}", read, dumped());
    }
    assert_eq!((read, heard), (COUNT as usize, 100));
    assert_eq!(dumped(), COUNT as usize);
}

#[test]
fn a_client_that_never_reads_stops_only_itself() {
    let running = Running::new();
    let (deaf, other) = (running.peer(), running.peer());
    let dump = Request::DumpSa(Default::default());
    (0..200).for_each(|spi| drop(other.ask(1, &allocate(1000 + spi)).unwrap()));
    // Until there is no room for requests either, and rounds of the server change nothing: these
    // questions are more than two turns of one connection.
    let mut sent = 0;
    let mut dumped = usize::MAX;
    loop {
        while deaf.try_send(&as_bytes(&dump, 1, Flags::default())) {
            sent += 1;
            assert!(sent < 100_000, "all of it is taken");
        }
        (0..40).for_each(|seq| assert_eq!(other.counts(seq), 200));
        let before = std::mem::replace(&mut dumped, running.databases.dumped.load(SeqCst));
        if before == dumped && !deaf.try_send(&[0; 16]) {
            break;
        }
    }
    assert!(dumped < 10_000, "{dumped}");
    (0..100).for_each(|seq| assert_eq!(other.counts(seq), 200));
    assert_eq!(running.databases.dumped.load(SeqCst), dumped, "it waits");
    drop(deaf);
    (0..100).for_each(|seq| assert_eq!(other.counts(seq), 200));
}

#[test]
fn events_that_find_no_room_are_told_as_lost_and_later_ones_come() {
    const EVENTS: u32 = 40_000;
    let running = Running::new();
    let (slow, quick) = (Peer::bound(running.path(), 6, 2), Peer::bound(running.path(), 7, 2));
    assert_eq!((slow.counts(1), quick.counts(1)), (0, 0));
    for seq in 1..=EVENTS {
        running.emit(seq);
        assert_eq!(quick.next().0, seq);
    }
    // They are in order, and then there is a gap. What happens meanwhile is not told before it.
    let mut expected = 1;
    loop {
        let bytes = slow.receive();
        if expected % 100 == 0 {
            running.emit(EVENTS + expected);
            assert_eq!(quick.next().0, EVENTS + expected);
        }
        if bytes[4] == 4 {
            assert_eq!((bytes.len(), bytes[12]), (16, 6));
            break;
        }
        assert_eq!(bytes[8..12], u32::to_ne_bytes(expected));
        expected += 1;
    }
    assert!((1000..EVENTS).contains(&expected), "{expected}");
    while slow.is_readable(0) {
        assert!(slow.next().0 > EVENTS);
    }
    running.emit(0);
    assert_eq!((slow.next().0, quick.next().0), (0, 0));
}

#[test]
fn more_events_than_wait_for_the_server_are_told_as_lost() {
    let running = Running::new();
    let hears = Peer::bound(running.path(), 6, Group::Acquire.bit());
    let other = Peer::bound(running.path(), 7, Group::Expire.bit());
    assert_eq!((hears.counts(1), other.counts(1)), (0, 0));
    running.while_busy(|| {
        (0..4096).for_each(|seq| running.multicast.send(Group::Sa, event(seq)));
        running.multicast.send(Group::Acquire, event(1));
    });
    assert_eq!(hears.receive()[4], 4);
    assert_eq!(other.counts(2), 0);
    running.multicast.send(Group::Acquire, event(2));
    assert_eq!(hears.next().0, 2);
}

#[test]
fn answers_that_find_no_room_come_later_and_in_order() {
    let running = Running::new();
    let (slow, other) = (running.peer(), running.peer());
    let mut sent = 0;
    loop {
        while slow.try_send(&as_bytes(&count(), sent, Flags::ACK)) {
            sent += 1;
        }
        (0..40).for_each(|seq| assert_eq!(other.counts(seq), 0));
        if !slow.try_send(&as_bytes(&count(), sent, Flags::ACK)) {
            break;
        }
        sent += 1;
    }
    let carried_out = running.databases.requests.load(SeqCst);
    for seq in 0..sent {
        assert!(matches!(slow.next(), (at, Reply::NewSadInfo(_)) if at == seq), "{seq}");
        assert!(matches!(slow.next(), (at, Reply::Acknowledgement(_)) if at == seq), "{seq}");
    }
    assert!(running.databases.requests.load(SeqCst) > carried_out, "it did not wait");
}

/// Nonsense of several kinds, from noise to what is nearly right.
fn nonsense(numbers: &mut Numbers) -> Vec<u8> {
    let longest = if numbers.below(20) == 0 { 60_000 } else { 400 };
    let len = 1 + numbers.below(longest);
    let mut bytes: Vec<u8> = (0..len).map(|_| numbers.next() as u8).collect();
    if numbers.below(4) != 0 && bytes.len() >= 16 {
        // Headers that make sense, so that it gets further.
        let total = bytes.len();
        let mut at = 0;
        while at + 16 <= total {
            let len = (16 + numbers.below(300)).min(total - at);
            bytes[at..at + 4].copy_from_slice(&(len as u32).to_ne_bytes());
            let kind = if numbers.below(8) == 0 { 9 } else { 0x10 + numbers.below(0x1a) as u16 };
            bytes[at + 4..at + 6].copy_from_slice(&kind.to_ne_bytes());
            bytes[at + 6..at + 8].copy_from_slice(&(1 | numbers.next() as u16).to_ne_bytes());
            at += len.next_multiple_of(4);
        }
    }
    bytes
}

#[test]
fn nonsense_from_one_does_not_keep_others_waiting() {
    let running = Running::new();
    let stop = Arc::new(AtomicBool::new(false));
    let floods: Vec<_> = (1..=3)
        .map(|seed| {
            let (stop, path) = (stop.clone(), running.path().to_owned());
            std::thread::spawn(move || {
                let (mut numbers, mut peer) = (Numbers(seed), Peer::new(&path));
                let mut sent = 0_usize;
                while !stop.load(SeqCst) || sent <= 100 {
                    // One of them reads its answers.
                    while seed == 1 && peer.is_readable(0) && !peer.is_over() {}
                    if peer.try_send(&nonsense(&mut numbers)) {
                        sent += 1;
                    } else if numbers.below(50) == 0 {
                        peer = Peer::new(&path);
                    }
                }
                sent
            })
        })
        .collect();
    let peer = running.peer();
    for seq in 1..=500 {
        let asked = as_bytes(&count(), seq, Flags::ACK);
        peer.send(&[message(1, 1, seq, &[]), asked].concat());
        assert!(matches!(peer.next(), (at, Reply::NewSadInfo(_)) if at == seq));
        assert!(matches!(peer.next(), (at, Reply::Acknowledgement(_)) if at == seq));
    }
    until("much nonsense was heard", || running.databases.requests.load(SeqCst) > 5000);
    stop.store(true, SeqCst);
    let sent: Vec<usize> = floods.into_iter().map(|flood| flood.join().unwrap()).collect();
    assert!(sent.iter().all(|sent| *sent > 100), "{sent:?}");
    peer.counts(1);
}
