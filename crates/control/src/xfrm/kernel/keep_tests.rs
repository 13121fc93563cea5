//! Whatever becomes of the process, daemons find again what they were told.

use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use convoy_ipsec::sequence::{Exhausted, SequenceCounter, SequenceLimits};
use convoy_ipsec::snapshot::Snapshot;
use convoy_wire::SeqNum;
use convoy_xfrm::{
    Action, AsyncEvent, Encap, Expire, FlushPolicy, FlushSa, Group, Messages, Policy,
    PolicyDirection, PolicyInfo, ProtocolFilter, Replay, Reply, Sa, SaFlags,
};
use proptest::prelude::*;

use super::tests::*;
use super::*;
use crate::xfrm::keep::memory::Memory;
use crate::xfrm::{Cursor, Earlier, Words};

/// A gateway that keeps what it has in `memory`.
pub(super) fn life(memory: &Memory) -> (Gateway, Arc<Published>, Restored) {
    let (mut kernel, published) = kernel_at(4500);
    let restored = kernel.keep(memory.open(), moment(0));
    (kernel, published, restored)
}

/// All that a daemon sees, without how far sequence numbers are.
pub(super) fn dump(kernel: &mut Gateway) -> Vec<Vec<u8>> {
    let nobody = Address { seq: 0, port: 0, multi: false };
    let mut cursors = [Cursor::Sas(Box::default(), None), Cursor::Policies(None)];
    let all = cursors.iter_mut().flat_map(|cursor| kernel.dump(cursor, nobody, 1 << 20, moment(0)));
    all.collect::<Vec<_>>().iter().map(|message| without_numbers(message.as_bytes())).collect()
}

fn without_numbers(message: &[u8]) -> Vec<u8> {
    let nobody = Address { seq: 0, port: 0, multi: false };
    match Reply::parse(&Messages::new(message).next().unwrap()).unwrap() {
        Reply::NewSa(mut sa) => {
            sa.state.replay = None;
            if let Some(esn) = &mut sa.state.replay_esn {
                (esn.sent, esn.received) = (0, 0);
                esn.bitmap.fill(0);
            }
            sa.answer(false, nobody).as_bytes().to_vec()
        }
        _ => message.to_vec(),
    }
}

fn flush_sas() -> Request {
    Request::FlushSa(FlushSa { protocol: ProtocolFilter::default(), ..FlushSa::default() })
}

/// Takes a counter for all its life, as a worker does.
fn claim(published: &Published, spi: u32) -> SequenceCounter {
    let spec = outbounds(published).into_iter().find(|sa| sa.spi.get() == spi).unwrap();
    let limits = SequenceLimits::new(spec.esn);
    SequenceCounter::claim(spec.lease.as_arc().clone(), SeqNum::new(1), limits).unwrap()
}

/// Takes numbers as they are granted, and returns the first and the last one.
fn take(counter: &mut SequenceCounter, count: u64) -> (u64, u64) {
    let first = counter.upcoming().get();
    let mut last = first - 1;
    let until = Instant::now() + Duration::from_secs(20);
    while last + 1 - first < count {
        match counter.reserve(usize::try_from(first + count - 1 - last).unwrap()) {
            Ok(numbers) => last = numbers.last().unwrap().into_number().get(),
            Err(Exhausted::Lease) => {
                assert!(Instant::now() < until, "nothing is granted");
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(_) => break,
        }
    }
    (first, last)
}

/// A pair of SAs in UDP with ESN, and others of each kind.
fn a_day() -> Vec<Request> {
    let udp = |mut sa: Sa| {
        let ports = if sa.info.source == IpAddr::from([192, 0, 2, 1]) {
            (4500, 4501)
        } else {
            (4501, 4500)
        };
        let (source_port, destination_port) = ports;
        sa.encap = Some(Encap { kind: 2, source_port, destination_port, original: [0; 4].into() });
        sa.info.limits.packets.hard = 5000;
        sa.info.limits.add_seconds.hard = 3600;
        sa
    };
    let esn = |mut sa: Sa| {
        sa.info.flags = SaFlags(SaFlags::ESN.0 | SaFlags::AF_UNSPEC.0);
        sa.info.replay_window = 0;
        let replay =
            convoy_xfrm::ReplayEsn { window: 128, bitmap: vec![0; 4], ..Default::default() };
        sa.state.replay_esn = Some(replay);
        sa
    };
    let out = policy(PolicyDirection::Out, Action::Allow, true);
    let mut updated = udp(outbound(1, 1));
    updated.info.limits.packets.hard = 9000;
    let mut threshold = AsyncEvent {
        sa: outbound(1, 1).key(),
        source: outbound(1, 1).info.source,
        flags: 0,
        reqid: 0,
        direction: None,
        cpu: None,
        state: convoy_xfrm::SaState::default(),
        others: convoy_xfrm::Others::default(),
    };
    threshold.state.replay_threshold = Some(32);
    vec![
        Request::NewSa(Box::new(udp(outbound(1, 1)))),
        Request::NewSa(Box::new(esn(inbound(2, 2)))),
        Request::UpdPolicy(Box::new(out.clone())),
        Request::UpdPolicy(Box::new(policy(PolicyDirection::In, Action::Allow, true))),
        Request::UpdPolicy(Box::new(policy(PolicyDirection::Forward, Action::Block, false))),
        Request::NewSa(Box::new(esn(outbound(3, 3)))),
        Request::UpdSa(Box::new(updated)),
        Request::NewAe(Box::new(threshold)),
        Request::DelSa(query(&inbound(2, 2))),
        Request::UpdPolicy(Box::new(policy(PolicyDirection::Out, Action::Block, false))),
        Request::NewSa(Box::new(inbound(4, 4))),
        Request::DelPolicy(Box::new(name_of(&out))),
        Request::DelSa(query(&outbound(3, 3))),
    ]
}

/// The process may be killed at every byte that it writes: what was answered is there, and of what was
/// not either all or nothing.
#[test]
fn a_process_killed_anywhere_leaves_all_that_it_answered() {
    let memory = Memory::default();
    let (mut kernel, _, restored) = life(&memory);
    assert_eq!((restored.earlier, restored.is_closed), (Earlier::None, true));
    let mut states = vec![(memory.steps(), dump(&mut kernel))];
    for request in a_day() {
        ask(&mut kernel, request, 0).unwrap();
        states.push((memory.steps(), dump(&mut kernel)));
    }
    let mut kills = 0;
    for pair in states.windows(2) {
        let [(from, before), (to, after)] = pair else { unreachable!() };
        for step in *from..*to {
            let mut known = Vec::new();
            for left in memory.killed_in(step) {
                kills += 1;
                let what = left.killed().records();
                if known.contains(&what) {
                    continue;
                }
                known.push(what);
                let (mut again, _, restored) = life(&left);
                let seen = dump(&mut again);
                assert!(seen == *before || seen == *after, "step {step} of {from}..{to}");
                assert_eq!((restored.earlier, restored.lost.len()), (Earlier::Whole, 0));
                assert!(!restored.is_closed);
            }
            assert!(known.len() <= 2, "all or nothing");
        }
    }
    println!("{kills} deaths");
    assert!(kills > 3000);
    let (mut again, published, restored) = life(&memory.killed());
    assert_eq!(dump(&mut again), states.last().unwrap().1);
    assert_eq!((restored.sas, restored.policies), (2, 2));
    assert_eq!((outbounds(&published).len(), inbounds(&published).len()), (1, 1));
}

/// Whoever is killed in the middle of a flush leaves a part of what was there, and nothing else.
#[test]
fn a_torn_flush_leaves_a_part() {
    let memory = Memory::default();
    let (mut kernel, ..) = life(&memory);
    for n in 1..=5 {
        add(&mut kernel, outbound(n.into(), n)).unwrap();
    }
    let (from, before) = (memory.steps(), dump(&mut kernel));
    ask(&mut kernel, flush_sas(), 0).unwrap();
    for step in from..memory.steps() {
        for left in memory.killed_in(step) {
            let (mut again, ..) = life(&left);
            assert!(dump(&mut again).iter().all(|sa| before.contains(sa)), "step {step}");
        }
    }
    assert!(dump(&mut life(&memory.killed()).0).is_empty());
}

#[test]
fn policies_that_come_back_cover_what_they_covered() {
    let memory = Memory::default();
    let (mut kernel, published, _) = life(&memory);
    add(&mut kernel, outbound(1, 1)).unwrap();
    let put = put(&mut kernel, policy(PolicyDirection::Out, Action::Allow, true)).unwrap();
    let (_, again, restored) = life(&memory.killed());
    assert_eq!(restored.covered, put.covered);
    assert!(!restored.is_closed);
    assert_eq!(decides(&again, Direction::Outbound), decides(&published, Direction::Outbound));
    assert!(again.current().outbound_for(outbounds(&again)[0].reqid).is_some());
}

#[test]
fn what_lives_before_closed_stays_closed_until_all_is_flushed() {
    let memory = Memory::default();
    let (mut kernel, ..) = life(&memory);
    kernel.stay_closed(true);
    let memory = memory.killed();
    let (mut kernel, _, restored) = life(&memory);
    assert_eq!((restored.earlier, restored.is_closed), (Earlier::Whole, true));
    kernel.stay_closed(false);
    assert!(!life(&memory.killed()).2.is_closed);
}

/// RFC 4106 section 3: also where the process is killed between the packets, and where a daemon moves
/// an SA meanwhile.
#[test]
fn no_number_is_used_in_two_lives() {
    let mut memory = Memory::default();
    let mut highest = 0;
    for round in 0..12_u32 {
        let (mut kernel, published, _) = life(&memory);
        if round == 0 {
            add(&mut kernel, outbound(1, 1)).unwrap();
        }
        if round % 4 == 2 {
            // The daemon moves it, and asked for its numbers long ago.
            let removed = ask(&mut kernel, Request::DelSa(query(&outbound(1, 1))), 1);
            assert!(removed.is_ok());
            let at_once = memory.killed();
            let mut moved = sa([192, 0, 2, 7], [192, 0, 2, 2], 1, 1);
            moved.state.replay = Some(Replay { sent: 3, ..Replay::default() });
            moved.direction = Some(convoy_xfrm::SaDirection::Out);
            if round == 6 {
                // Killed in between.
                memory = at_once;
                let (mut kernel, published, restored) = life(&memory);
                assert_eq!(restored.sas, 0);
                add(&mut kernel, moved).unwrap();
                let (first, last) = take(&mut claim(&published, 1), 10);
                assert!(first > highest);
                highest = last;
                memory = memory.killed();
                continue;
            }
            add(&mut kernel, moved).unwrap();
        }
        let mut counter = claim(&published, 1);
        // More than are granted at once, and sometimes few or none.
        let count = [5_000_000, 1, 70, 100_000][usize::try_from(round % 4).unwrap()];
        let (first, last) = take(&mut counter, count);
        assert!(first > highest, "round {round}: {first} after {highest}");
        highest = last;
        memory = memory.killed();
    }
    assert!(highest < 1 << 30, "few are skipped: {highest}");
}

#[test]
fn an_orderly_end_skips_no_number_and_a_crash_few() {
    let memory = Memory::default();
    let (mut kernel, published, _) = life(&memory);
    add(&mut kernel, outbound(1, 1)).unwrap();
    add(&mut kernel, inbound(2, 2)).unwrap();
    let mut counter = claim(&published, 1);
    take(&mut counter, 100);
    drop(counter);
    let counters = inbounds(&published)[0].counters.clone();
    counters.floor.raise(SeqNum::new(50));
    kernel.finish(false).unwrap();
    let (kernel, published, _) = life(&memory.killed());
    assert_eq!(claim(&published, 1).upcoming().get(), 101);
    assert_eq!(inbounds(&published)[0].counters.floor.get().get(), 50);
    drop(kernel);
    let (_kernel, published, _) = life(&memory.killed());
    let next = claim(&published, 1).upcoming().get();
    assert!((101..8_000_000).contains(&next), "{next}");
}

/// Nothing above the floor was accepted before: it is written every few milliseconds, and is raised by
/// what may have come since.
#[test]
fn what_was_accepted_is_not_accepted_again() {
    let memory = Memory::default();
    let (mut kernel, published, _) = life(&memory);
    add(&mut kernel, inbound(2, 2)).unwrap();
    let counters = inbounds(&published)[0].counters.clone();
    let before = memory.steps();
    counters.usage.packets.set(1000);
    counters.floor.raise(SeqNum::new(1000));
    let until = Instant::now() + Duration::from_secs(20);
    while memory.steps() == before {
        assert!(Instant::now() < until, "nothing is written");
        std::thread::sleep(Duration::from_millis(1));
    }
    let (_kernel, published, _) = life(&memory.killed());
    let floor = inbounds(&published)[0].counters.floor.get().get();
    assert!((1008..10_000).contains(&floor), "{floor}");
}

/// Memory that workers write, and what the previous run left there.
#[derive(Clone, Debug, Default)]
struct Mapped {
    earlier: Vec<[u64; 2]>,
    now: Arc<Mutex<BTreeMap<u32, [&'static AtomicU64; 2]>>>,
}

impl Words for Mapped {
    fn earlier(&self) -> &[[u64; 2]] {
        &self.earlier
    }

    fn begin(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn pair(&mut self, number: u32) -> io::Result<[&'static AtomicU64; 2]> {
        let new = || [0; 2].map(|zero| &*Box::leak(Box::new(AtomicU64::new(zero))));
        Ok(*self.now.lock().unwrap().entry(number).or_insert_with(new))
    }
}

impl Mapped {
    /// As a process finds it after this one was killed.
    fn killed(&self) -> Self {
        let now = self.now.lock().unwrap();
        let mut earlier = vec![[0; 2]; now.keys().max().map_or(0, |max| *max as usize + 1)];
        for (number, words) in now.iter() {
            earlier[*number as usize] = words.map(|word| word.load(Ordering::SeqCst));
        }
        Self { earlier, ..Self::default() }
    }
}

/// Edges that workers write themselves need no margin, and count for the SA alone that they were written of.
#[test]
fn what_was_received_is_known_exactly_where_workers_can_write_it() {
    let memory = Memory::default();
    let life = |memory: &Memory, mapped: &Mapped| {
        let (mut kernel, published) = kernel_at(4500);
        kernel.keep(memory.open_with(Some(Box::new(mapped.clone()))), moment(0));
        (kernel, published)
    };
    let floor = |published: &Published| inbounds(published)[0].counters.floor.get().get();
    let mapped = Mapped::default();
    let (mut kernel, published) = life(&memory, &mapped);
    add(&mut kernel, inbound(2, 2)).unwrap();
    let edge = *inbounds(&published)[0].counters.outliving.get().unwrap();
    assert_eq!(edge.load(Ordering::SeqCst), 0);
    edge.store(5, Ordering::SeqCst);
    let (memory, mapped) = (memory.killed(), mapped.killed());
    let (kernel, published) = life(&memory.killed(), &mapped);
    assert_eq!(floor(&published), 5);
    drop(kernel);
    // A life after that has heard of nothing more.
    let second = Mapped { earlier: mapped.earlier.clone(), ..Mapped::default() };
    let (kernel, _published) = life(&memory, &second);
    let (kernel_after, published) = life(&memory.killed(), &second.killed());
    assert_eq!(floor(&published), 5);
    drop((kernel, kernel_after));
    // Nor one that ended before it had anything.
    let memory_of = memory.killed();
    drop(memory_of.open_with(Some(Box::new(mapped.clone()))));
    let (_kernel, published) = life(&memory_of.killed(), &Mapped::default());
    assert_eq!(floor(&published), 5);
    // Words of another one say nothing.
    let mut other = mapped;
    other.earlier.iter_mut().for_each(|pair| pair[0] += 1);
    let (_kernel, published) = life(&memory.killed(), &other);
    let with_margin = floor(&published);
    assert!((8..1000).contains(&with_margin), "{with_margin}");
}

/// Words that say what was in the files when they forgot the previous run.
#[derive(Debug)]
struct Watched {
    mapped: Mapped,
    files: Memory,
    at_begin: Arc<Mutex<Option<Memory>>>,
}

impl Words for Watched {
    fn earlier(&self) -> &[[u64; 2]] {
        self.mapped.earlier()
    }

    fn begin(&mut self) -> io::Result<()> {
        *self.at_begin.lock().unwrap() = Some(self.files.killed());
        self.mapped.begin()
    }

    fn pair(&mut self, number: u32) -> io::Result<[&'static AtomicU64; 2]> {
        self.mapped.pair(number)
    }
}

/// A process that is killed when the edges of the previous run are gone must have them in the cells.
#[test]
fn edges_of_the_life_before_are_in_the_cells_before_they_are_forgotten() {
    let memory = Memory::default();
    let life = |memory: &Memory, words: Box<dyn Words>| {
        let (mut kernel, published) = kernel_at(4500);
        kernel.keep(memory.open_with(Some(words)), moment(0));
        (kernel, published)
    };
    let mapped = Mapped::default();
    let (mut kernel, published) = life(&memory, Box::new(mapped.clone()));
    add(&mut kernel, inbound(2, 2)).unwrap();
    inbounds(&published)[0].counters.outliving.get().unwrap().store(12_345, Ordering::SeqCst);
    let (files, at_begin) = (memory.killed(), Arc::default());
    let mapped = mapped.killed();
    let watched = Watched { mapped, files: files.clone(), at_begin: Arc::clone(&at_begin) };
    drop(files.open_with(Some(Box::new(watched))));
    let left = at_begin.lock().unwrap().take().unwrap();
    let (_kernel, published) = life(&left, Box::<Mapped>::default());
    assert_eq!(inbounds(&published)[0].counters.floor.get().get(), 12_345);
}

fn has_outbound_sas(snapshot: &Snapshot) -> bool {
    snapshot.outbound_sas().next().is_some()
}

fn has_policies(snapshot: &Snapshot) -> bool {
    snapshot.spd().lookup(Direction::Outbound, &flow(true)).is_some()
}

/// A packet that left by what a later life does not know could not be answered there.
#[test]
fn what_comes_is_in_the_journal_before_workers_see_it() {
    let memory = Memory::default();
    let (mut kernel, published, _) = life(&memory);
    let quiet = |work: &mut dyn FnMut(), is: fn(&Snapshot) -> bool| {
        let before = is(&published.current());
        memory.watch(&published, is);
        work();
        assert_ne!(is(&published.current()), before, "workers see what came, or went");
        let seen = memory.watched();
        assert!(!seen.is_empty() && !seen.contains(&!before), "{seen:?}");
    };
    quiet(&mut || drop(add(&mut kernel, outbound(1, 1)).unwrap()), has_outbound_sas);
    let limited = |snapshot: &Snapshot| {
        snapshot.outbound_sas().any(|(_, sa)| sa.lifetime.hard.packets.is_some())
    };
    let mut sa = outbound(1, 1);
    sa.info.limits.packets.hard = 9000;
    let mut request = Some(Request::UpdSa(Box::new(sa)));
    quiet(&mut || drop(ask(&mut kernel, request.take().unwrap(), 0).unwrap()), limited);
    let out = policy(PolicyDirection::Out, Action::Allow, true);
    quiet(&mut || drop(put(&mut kernel, out.clone()).unwrap()), has_policies);
    let mut request = Some(Request::DelPolicy(Box::new(name_of(&out))));
    quiet(&mut || drop(ask(&mut kernel, request.take().unwrap(), 0).unwrap()), has_policies);
    put(&mut kernel, out).unwrap();
    let mut request = Some(Request::FlushPolicy(FlushPolicy::default()));
    quiet(&mut || drop(ask(&mut kernel, request.take().unwrap(), 0).unwrap()), has_policies);
}

/// A change that cannot be written is refused, and all is as it was: in the database, for workers and in the journal.
#[test]
fn what_cannot_be_written_changes_nothing() {
    let memory = Memory::default();
    let (mut kernel, published, _) = life(&memory);
    add(&mut kernel, outbound(1, 1)).unwrap();
    let out = policy(PolicyDirection::Out, Action::Allow, true);
    put(&mut kernel, out.clone()).unwrap();
    ask(&mut kernel, Request::AllocSpi(Box::new(allocation(256))), 0).unwrap();
    let (before, generation) = (dump(&mut kernel), kernel.generation());
    let limited = |mut sa: Sa| {
        sa.info.limits.packets.hard = 9000;
        sa
    };
    let blocking = Policy { info: PolicyInfo { action: Action::Block, ..out.info }, ..out };
    memory.fill_up(true);
    let requests = [
        Request::NewSa(Box::new(outbound(3, 3))),
        Request::UpdSa(Box::new(limited(outbound(1, 1)))),
        Request::UpdSa(Box::new(inbound(256, 4))),
        Request::UpdPolicy(Box::new(blocking)),
    ];
    for request in requests {
        let what = format!("{request:?}");
        assert_eq!(ask(&mut kernel, request, 0).unwrap_err().errno, Errno::ENOMEM, "{what}");
        assert_eq!(dump(&mut kernel), before, "{what}");
        assert_eq!(kernel.generation(), generation, "workers saw {what}");
    }
    memory.fill_up(false);
    let (mut again, ..) = life(&memory.killed());
    // Larval SAs live in one life.
    assert_eq!(dump(&mut again).len() + 1, before.len());
    ask(&mut kernel, Request::UpdSa(Box::new(inbound(256, 4))), 0).unwrap();
    add(&mut kernel, outbound(3, 3)).unwrap();
    assert_eq!((outbounds(&published).len(), inbounds(&published).len()), (2, 1));
}

/// The host knows what it has to close, and of what answers are void.
#[test]
fn a_draft_says_what_a_request_would_change() {
    let memory = Memory::default();
    let (mut kernel, ..) = life(&memory);
    let out = policy(PolicyDirection::Out, Action::Allow, true);
    let requests = [
        Request::UpdPolicy(Box::new(out.clone())),
        Request::UpdPolicy(Box::new(policy(PolicyDirection::Out, Action::Block, false))),
        Request::DelPolicy(Box::new(name_of(&out))),
        Request::UpdPolicy(Box::new(policy(PolicyDirection::In, Action::Allow, true))),
        Request::FlushPolicy(FlushPolicy::default()),
        Request::FlushPolicy(FlushPolicy::default()),
    ];
    let cover_change = |kernel: &mut Gateway, request: &Request| {
        kernel.kernel.cover_change(&client(), request, moment(0)).unwrap()
    };
    let mut gone = 0;
    for request in requests {
        let draft = cover_change(&mut kernel, &request).unwrap();
        let carried = ask(&mut kernel, request, 0).unwrap();
        assert_eq!(draft.come.into_iter().collect::<Vec<_>>(), carried.covered);
        assert_eq!(draft.gone, carried.uncovered);
        gone += draft.gone.len();
    }
    assert_eq!(gone, 3);
    assert!(cover_change(&mut kernel, &flush_sas()).is_none());
    let none = cover_change(&mut kernel, &Request::DelPolicy(Box::new(name_of(&out)))).unwrap();
    assert!(none.come.is_none() && none.gone.is_empty());
}

/// A machine that is a copy of another one has its keys, and the numbers that go with them.
#[test]
fn all_sas_end_at_once_and_daemons_hear_of_each() {
    let memory = Memory::default();
    let (mut kernel, published, _) = life(&memory);
    add(&mut kernel, outbound(1, 1)).unwrap();
    add(&mut kernel, inbound(2, 2)).unwrap();
    memory.watch(&published, has_outbound_sas);
    let told = kernel.end_all(moment(0));
    // Workers are not kept waiting until all is wiped.
    let seen = memory.watched();
    assert!(!seen.is_empty() && !seen.contains(&true), "{seen:?}");
    assert!(outbounds(&published).is_empty() && inbounds(&published).is_empty());
    let expired = told.iter().filter(|(group, message)| {
        let message = Messages::new(message.as_bytes()).next().unwrap();
        *group == Group::Expire
            && matches!(Reply::parse(&message).unwrap(), Reply::Expire(expire) if expire.hard)
    });
    assert_eq!((expired.count(), told.len()), (2, 2));
    assert_eq!(kernel.counts().0, 0);
    // They do not come back with a later life either.
    let (_kernel, _published, restored) = life(&memory.killed());
    assert_eq!((restored.sas, restored.lost.len()), (0, 0));
}

#[test]
fn counters_and_lifetimes_go_on() {
    let memory = Memory::default();
    let (mut kernel, published, _) = life(&memory);
    add(&mut kernel, outbound(1, 1)).unwrap();
    let counters = outbounds(&published)[0].counters.clone();
    counters.packets.set(7);
    counters.bytes.set(700);
    counters.usage.packets.set(7);
    counters.usage.bytes.set(770);
    counters.usage.first_use_ns.set(900_000_000_000);
    counters.last_packet_ns.set(950_000_000_000);
    counters.replayed.set(3);
    let shown = dump(&mut kernel);
    kernel.finish(false).unwrap();
    let (mut kernel, published, _) = life(&memory.killed());
    assert_eq!(dump(&mut kernel), shown);
    let again = &outbounds(&published)[0].counters;
    assert_eq!(again.usage.bytes.get(), 770);
    assert_eq!(again.usage.added_ns.get(), counters.usage.added_ns.get());
}

/// Of an SA that cannot be used again a daemon hears that it ended.
#[test]
fn what_cannot_come_back_is_told_as_expired() {
    let memory = Memory::default();
    let (mut kernel, published, _) = life(&memory);
    let mut udp = outbound(1, 1);
    udp.encap =
        Some(Encap { kind: 2, source_port: 4500, destination_port: 4501, original: [0; 4].into() });
    add(&mut kernel, udp).unwrap();
    add(&mut kernel, outbound(2, 2)).unwrap();
    let mut worn = outbound(3, 3);
    worn.state.replay = Some(Replay { sent: u32::MAX - 100, ..Replay::default() });
    add(&mut kernel, worn).unwrap();
    take(&mut claim(&published, 3), 1);
    let told = |restored: &Restored| -> Vec<u32> {
        let spi = |message: &convoy_xfrm::Datagram| match Reply::parse(
            &Messages::new(message.as_bytes()).next().unwrap(),
        )
        .unwrap()
        {
            Reply::Expire(expire) => {
                let Expire { sa, hard: true, .. } = *expire else { panic!() };
                sa.spi.unwrap().get()
            }
            other => panic!("{other:?}"),
        };
        restored
            .lost
            .iter()
            .map(|(group, message)| {
                assert_eq!(*group, Group::Expire);
                spi(message)
            })
            .collect()
    };
    let left = memory.killed();
    let (mut kernel, _) = kernel_at(4600);
    let restored = kernel.keep(left.open(), moment(0));
    assert_eq!((told(&restored), restored.sas), (vec![1, 3], 1), "another port, and no numbers");
    drop(kernel);
    assert_eq!(life(&left.killed()).2.sas, 1, "they are told once");
    let left = memory.killed();
    left.change(1, Vec::clear);
    let (mut kernel, _, restored) = life(&left);
    assert_eq!((told(&restored), restored.sas), (vec![1, 2, 3], 0), "no numbers are known");
    assert!(dump(&mut kernel).is_empty());
}

#[test]
fn an_sa_whose_numbers_cannot_be_written_is_refused() {
    let memory = Memory::default();
    let (mut kernel, published, _) = life(&memory);
    memory.fill_up(true);
    assert_eq!(add(&mut kernel, outbound(1, 1)).unwrap_err().errno, Errno::ENOMEM);
    let out = policy(PolicyDirection::Out, Action::Allow, true);
    assert_eq!(put(&mut kernel, out.clone()).unwrap_err().errno, Errno::ENOMEM);
    assert!(published.current().is_empty() && dump(&mut kernel).is_empty());
    memory.fill_up(false);
    add(&mut kernel, outbound(1, 1)).unwrap();
    put(&mut kernel, out).unwrap();
    assert_eq!(dump(&mut life(&memory.killed()).0), dump(&mut kernel));
}

/// An SA whose key is its number.
fn numbered(n: u32) -> Sa {
    let mut one = if n.is_multiple_of(2) { outbound(n + 1, 0) } else { inbound(n + 1, 0) };
    one.info.reqid = n / 2 + 1;
    let mut key = [7; 20];
    key[..4].copy_from_slice(&n.to_be_bytes());
    if let convoy_xfrm::Transform::Aead(aead) = &mut one.transform {
        aead.key = convoy_xfrm::Key::new(&key).unwrap();
    }
    one
}

#[test]
fn ten_thousand_sas_come_back() {
    let memory = Memory::default();
    let (mut kernel, ..) = life(&memory);
    (0..10_000).for_each(|n| drop(add(&mut kernel, numbered(n)).unwrap()));
    let (mut again, _, restored) = life(&memory.killed());
    assert_eq!(restored.sas, 10_000);
    assert!(dump(&mut again) == dump(&mut kernel));
}

/// There are more SAs than keys that are remembered without one.
#[test]
fn no_number_comes_again_however_many_sas_there_are() {
    let memory = Memory::default();
    let (mut kernel, published, _) = life(&memory);
    let count = 66_000;
    (0..count).for_each(|n| drop(add(&mut kernel, numbered(2 * n)).unwrap()));
    let granted = outbounds(&published).iter().map(|sa| sa.lease.granted()).min().unwrap();
    let (_again, published, restored) = life(&memory.killed());
    assert_eq!(restored.sas, usize::try_from(count).unwrap());
    let used = outbounds(&published).iter().map(|sa| sa.lease.used().get()).min().unwrap();
    assert!(granted > 1 && used + 1 >= granted, "{used} of {granted}");
}

#[derive(Clone, Debug)]
enum Act {
    Add(u8),
    Limit(u8, u64),
    Remove(u8),
    Put(u8, bool, u32),
    Drop(u8),
    FlushSas,
    FlushPolicies,
    Restart,
    Crash,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (0_u8..12).prop_map(Act::Add),
        3 => (0_u8..12, 1_u64..9).prop_map(|(n, limit)| Act::Limit(n, limit)),
        5 => (0_u8..12).prop_map(Act::Remove),
        6 => (0_u8..6, any::<bool>(), 0_u32..3).prop_map(|(n, blocks, p)| Act::Put(n, blocks, p)),
        3 => (0_u8..6).prop_map(Act::Drop),
        1 => Just(Act::FlushSas),
        1 => Just(Act::FlushPolicies),
        1 => Just(Act::Restart),
        1 => Just(Act::Crash),
    ]
}

/// The directions alternate, so that an SPI has one.
fn of(n: u8) -> Sa {
    if n.is_multiple_of(2) { outbound(u32::from(n) + 1, n) } else { inbound(u32::from(n) + 1, n) }
}

fn ruling(n: u8, blocks: bool) -> Policy {
    let direction = [PolicyDirection::Out, PolicyDirection::In, PolicyDirection::Forward];
    let direction = direction[usize::from(n % 3)];
    let action = if blocks { Action::Block } else { Action::Allow };
    let mut policy = policy(direction, action, !blocks);
    policy.info.selector.protocol = [6, 17][usize::from(n / 3)];
    policy
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn databases_are_the_same_in_every_life(acts in prop::collection::vec(act(), 1..60)) {
        let mut memory = Memory::default();
        let (mut kernel, mut published, _) = life(&memory);
        for act in acts {
            // What is refused changes nothing, here as in the journal.
            let _ = match act {
                Act::Add(n) => add(&mut kernel, of(n)),
                Act::Limit(n, limit) => {
                    let mut sa = of(n);
                    sa.info.limits.bytes.hard = limit << 40;
                    ask(&mut kernel, Request::UpdSa(Box::new(sa)), 0)
                }
                Act::Remove(n) => ask(&mut kernel, Request::DelSa(query(&of(n))), 0),
                Act::Put(n, blocks, priority) => {
                    let mut policy = ruling(n, blocks);
                    policy.info.priority = priority;
                    put(&mut kernel, policy)
                }
                Act::Drop(n) => {
                    let name = name_of(&ruling(n, false));
                    ask(&mut kernel, Request::DelPolicy(Box::new(name)), 0)
                }
                Act::FlushSas => ask(&mut kernel, flush_sas(), 0),
                Act::FlushPolicies => {
                    ask(&mut kernel, Request::FlushPolicy(FlushPolicy::default()), 0)
                }
                Act::Restart | Act::Crash => {
                    let before = dump(&mut kernel);
                    if matches!(act, Act::Restart) {
                        kernel.finish(false).unwrap();
                    }
                    memory = memory.killed();
                    let (new, snapshot, restored) = life(&memory);
                    (kernel, published) = (new, snapshot);
                    prop_assert!(restored.lost.is_empty());
                    prop_assert!(dump(&mut kernel) == before);
                    Ok(Carried::default())
                }
            };
        }
        let (mut again, snapshot, _) = life(&memory.killed());
        prop_assert!(dump(&mut again) == dump(&mut kernel));
        let flow = flow(true);
        let decision = |snapshot: &Published| {
            let action = snapshot.current().spd().lookup(Direction::Outbound, &flow)?.action;
            Some(std::mem::discriminant(&action))
        };
        prop_assert_eq!(decision(&snapshot), decision(&published));
    }
}
