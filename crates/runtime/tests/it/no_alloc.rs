//! After start-up a gateway forwards without touching the heap.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use crate::common::{Side, arena, cable, frame, receive, settle, teams};
use convoy_io::{Port, mem};
use convoy_packet::Burst;

/// Counts this thread's allocations; other threads belong to the test harness.
struct Counting;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // During thread exit there is nothing to count any more.
    let _ = CALLS.try_with(|calls| calls.set(calls.get() + 1));
}

// SAFETY: every call goes to the system's allocator unchanged; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count();
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as the caller promised.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ROUND: u64 = 200;
const WARM_UP: u64 = 100;
/// Rounds of 200 packets each way: a million packets.
const ROUNDS: u64 = 2500;

#[test]
fn a_million_packets_cross_two_gateways_without_an_allocation_or_a_loss() {
    const FLOWS: u8 = 2;
    let arena = arena(4096);
    let mut cabling = cable(2, &mem::Config::default());
    let mut workers = teams(
        (cabling.ports_a, cabling.ports_b),
        arena,
        FLOWS,
        // Flow 1 belongs to the second worker, so that half of the packets are handed off.
        u16::from,
        u16::from,
    );
    let mut pool = arena.pool();
    let mut burst = Burst::new();
    let mut next_at_b = [0; FLOWS as usize];
    let mut next_at_a = [0; FLOWS as usize];
    let (mut at_a, mut at_b) = (0, 0);
    let mut before = 0;
    for round in 0..WARM_UP + ROUNDS {
        if round == WARM_UP {
            before = CALLS.get();
        }
        for (side, host) in [(Side::A, &mut cabling.hosts_a[0]), (Side::B, &mut cabling.hosts_b[0])]
        {
            for i in 0..ROUND {
                let number = (round * ROUND + i) / u64::from(FLOWS);
                let len = 36 + (number as usize * 97) % 1300;
                let flow = (i % u64::from(FLOWS)) as u8;
                burst.push(frame(&mut pool, side, flow, number, len)).unwrap();
            }
            host.tx(&mut pool, &mut burst).unwrap();
        }
        settle(&mut workers);
        for host in &mut cabling.hosts_b {
            at_b += receive(host, &mut pool, &mut burst, &mut next_at_b);
        }
        for host in &mut cabling.hosts_a {
            at_a += receive(host, &mut pool, &mut burst, &mut next_at_a);
        }
    }
    let calls = CALLS.get() - before;
    assert_eq!((at_a, at_b), ((WARM_UP + ROUNDS) * ROUND, (WARM_UP + ROUNDS) * ROUND));
    assert_eq!(calls, 0, "calls to the heap");
    let handed: u64 = workers.iter().map(|w| w.stats().handed_off.get()).sum();
    assert_eq!(
        handed,
        (WARM_UP + ROUNDS) * ROUND,
        "packets of flow 1 change workers once each way"
    );
    drop((workers, pool, burst, cabling.hosts_a, cabling.hosts_b));
    assert_eq!((arena.leaked(), arena.in_depot()), (0, 4096));
}
