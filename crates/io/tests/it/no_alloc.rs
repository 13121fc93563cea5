//! After set-up, ports do not allocate.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use crate::common::wire::{FAR, NEAR, all_at, board, cable, forwarded, interface};
use crate::common::{Namespace, esp, ip_packet};
use convoy_io::fault::{Faults, Faulty};
use convoy_io::pcap::{Recorder, RecorderConfig, Tap};
use convoy_io::{Port, mem, packet, raw, udp, xdp};
use convoy_packet::{Arena, Burst, FrameSize, Pool};

/// Counts allocations of threads that ask for it.
struct Counting;

thread_local! {
    static COUNT: Cell<Option<u64>> = const { Cell::new(None) };
}

// SAFETY: everything is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get().map(|n| n + 1));
        // SAFETY: the caller's contract is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract is the same.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Number of allocations by `work`.
fn allocations(work: impl FnOnce()) -> u64 {
    COUNT.set(Some(0));
    work();
    COUNT.take().unwrap()
}

/// Sends 200 packets from `left` to `right` over and over, and counts after the first rounds.
fn shuttle(left: impl Port, right: impl Port, packet: &[u8], lossless: bool) -> (u64, u64) {
    let arena = Arena::map(4096, FrameSize::for_packet(1500)).unwrap();
    shuttle_in(arena, left, right, packet, lossless)
}

/// The same with frames of this arena.
fn shuttle_in(
    arena: &'static Arena,
    mut left: impl Port,
    mut right: impl Port,
    packet: &[u8],
    lossless: bool,
) -> (u64, u64) {
    let (mut pool, mut burst) = (arena.pool(), Burst::new());
    let packets = vec![packet.to_vec(); 200];
    let mut received = 0;
    let mut sent = 0;
    let mut round = |pool: &mut Pool, burst: &mut Burst| {
        for packet in &packets {
            let mut frame = pool.alloc().unwrap();
            frame.fill_from(packet).unwrap();
            burst.push(frame).unwrap();
        }
        left.tx(pool, burst).unwrap();
        sent += packets.len() as u64;
        while right.rx(pool, burst).unwrap() > 0 || (lossless && received < sent) {
            received += burst.len() as u64;
            burst.release(pool);
        }
        while left.event().is_some() {}
    };
    for _ in 0..3 {
        round(&mut pool, &mut burst);
    }
    let count = allocations(|| {
        for _ in 0..100 {
            round(&mut pool, &mut burst);
        }
    });
    (count, received)
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(vec![0_u8; 100]))), 1);
}

#[test]
fn memory_faults_and_taps_do_not_allocate() {
    let folder = tempfile::tempdir().unwrap();
    let recorder =
        Recorder::create(&folder.path().join("tap.pcap"), RecorderConfig::default()).unwrap();
    let faults = Faults {
        loss: 0.1,
        duplication: 0.1,
        reordering: 0.1,
        distance: 9,
        bit_flip: 0.1,
        truncation: 0.1,
    };
    let (left, right) = mem::pair(&mem::Config::default());
    let left = Tap::new(left, &recorder);
    let right = Faulty::new(right, 1, faults, Faults::default());
    let (count, received) = shuttle(left, right, &[0x45; 100], false);
    assert!(received > 10_000);
    assert_eq!(count, 0);
}

#[test]
fn wire_sockets_do_not_allocate() {
    let namespace = or_skip!(Namespace::new());
    let (a, b) = ("127.0.0.1".parse().unwrap(), "127.0.0.2".parse().unwrap());
    let open = move |ip| udp::open(&udp::Config::new((ip, 4500).into())).unwrap().remove(0);
    let (left, right) = namespace.run(move || (open(a), open(b)));
    let mut body = [17, 148, 17, 148, 0, 0, 0, 0].to_vec();
    body.extend(esp(1, 1, 1000));
    body[4..6].copy_from_slice(&1016_u16.to_be_bytes());
    let (count, received) = shuttle(left, right, &ip_packet(a, b, 17, 2, true, &body), true);
    assert_eq!((count, received), (0, 103 * 200));

    let open = move |ip| raw::open(&raw::Config::new(ip)).unwrap().remove(0);
    let (left, right) = namespace.run(move || (open(a), open(b)));
    let packet = ip_packet(a, b, 50, 2, true, &esp(1, 1, 1000));
    let (count, received) = shuttle(left, right, &packet, true);
    assert_eq!((count, received), (0, 103 * 200));
}

#[test]
fn ports_on_interfaces_do_not_allocate() {
    let [near, far] = or_skip!(cable(1500));
    let (a, b) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
    let packet = ip_packet(a, b, 50, 2, true, &esp(1, 1, 1000));
    let open = |namespace: &Namespace, link, own, peer| {
        let (board, _asks) = board(all_at(own, peer, &[a, b]));
        let config = packet::Config::new(interface(namespace, link), forwarded(own), board);
        namespace.run(move || packet::open(&config)).unwrap().0.remove(0)
    };
    let (left, right) = (open(&near, "near", NEAR, FAR), open(&far, "far", FAR, NEAR));
    let (count, received) = shuttle(left, right, &packet, true);
    assert_eq!((count, received), (0, 103 * 200));

    let arena = Arena::map(8192, FrameSize::for_packet(2048)).unwrap();
    let open = |namespace: &Namespace, link, own, peer| {
        let (board, _asks) = board(all_at(own, peer, &[a, b]));
        let config = xdp::Config::new(interface(namespace, link), forwarded(own), board, arena);
        namespace.run(move || xdp::open(&config)).map_err(|error| error.to_string())
    };
    let (mut left, _s) = or_skip!(open(&near, "near", NEAR, FAR));
    let (mut right, _t) = or_skip!(open(&far, "far", FAR, NEAR));
    let (mut left, mut right) = (left.remove(0), right.remove(0));
    // The first call gives the kernel frames to receive into.
    for port in [&mut left, &mut right] {
        assert_eq!(port.rx(&mut arena.pool(), &mut Burst::new()).unwrap(), 0);
    }
    let (count, received) = shuttle_in(arena, left, right, &packet, true);
    assert_eq!((count, received), (0, 103 * 200));
}
