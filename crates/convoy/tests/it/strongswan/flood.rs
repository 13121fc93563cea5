//! Nonsense on the socket of a daemon, while its tunnel is in use.

use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use convoy_lab::Family;
use socket2::{Domain, SockAddr, Socket, Type};

use super::traffic::{assert_whole, counted_under_load};
use super::world::{LIMIT, Plane, World};
use crate::common::{convoy, status};

/// Rekeys that the daemon asks for meanwhile.
const REKEYS: usize = 10;
/// Messages that are sent at least.
const MESSAGES: usize = 20_000;
/// Flushes are well-formed without a body, and would be done.
const FLUSHES: [u16; 2] = [0x1c, 0x1d];

/// Numbers that look random (xorshift of 64 bits).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Noise; three times in four with headers of XFRM messages in it.
    fn nonsense(&mut self) -> Vec<u8> {
        let len = 1 + self.next() as usize % 1000;
        let mut bytes: Vec<u8> = (0..len).map(|_| self.next() as u8).collect();
        let mut at = 0;
        while !len.is_multiple_of(4) && at + 16 <= len {
            let part = (16 + self.next() as usize % 300).min(len - at);
            let kind = 0x10 + self.next() as u16 % 0x1a;
            let kind = if FLUSHES.contains(&kind) { 0x10 } else { kind };
            bytes[at..at + 4].copy_from_slice(&(part as u32).to_ne_bytes());
            bytes[at + 4..at + 6].copy_from_slice(&kind.to_ne_bytes());
            bytes[at + 6..at + 8].copy_from_slice(&(1 | self.next() as u16).to_ne_bytes());
            at += part.next_multiple_of(4);
        }
        bytes
    }
}

fn connect(path: &Path) -> Socket {
    let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
    socket.connect(&SockAddr::unix(path).unwrap()).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// Sends nonsense until it is told to stop and has sent enough; tells how much. One that reads hears
/// the answers, another is a client that never does.
fn flood(path: &Path, seed: u64, reads: bool, stop: &AtomicBool) -> usize {
    let (mut numbers, mut socket) = (Numbers(seed), connect(path));
    let mut sent = 0;
    let mut answer = [MaybeUninit::uninit(); 4096];
    while !stop.load(Ordering::Relaxed) || sent < MESSAGES {
        while reads && matches!(socket.recv(&mut answer), Ok(1..)) {}
        match socket.send(&numbers.nonsense()) {
            Ok(_) => sent += 1,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock && reads => {
                thread::sleep(Duration::from_micros(100));
            }
            // The connection was ended, or nobody reads it any more.
            Err(_) => socket = connect(path),
        }
    }
    sent
}

#[test]
fn nonsense_on_the_socket_disturbs_neither_packets_nor_the_daemon() {
    let Some(mut world) = World::start([Plane::Convoy; 2]) else { return };
    world.load(|world, side| world.connection(side, Family::V4));
    world.daemon(0).initiate("net", LIMIT).unwrap();
    world.daemon(1).wait_installed("net", LIMIT).unwrap();
    let path = world.sites[0].with_file_name("xfrm.sock");
    let stop = AtomicBool::new(false);
    let mut sent = Vec::new();
    let (report, dropped) = counted_under_load(&world, |world| {
        thread::scope(|scope| {
            let floods = [(1, true), (2, false)].map(|(seed, reads)| {
                let (path, stop) = (&path, &stop);
                scope.spawn(move || flood(path, seed, reads, stop))
            });
            for _ in 0..REKEYS {
                let daemon = world.daemon(0);
                let before = daemon.wait_installed("net", LIMIT).unwrap().id;
                daemon.rekey("net").unwrap();
                daemon.wait_rekeyed("net", before, LIMIT).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
            sent.extend(floods.map(|flood| flood.join().unwrap()));
        });
    });
    println!("{sent:?} messages; {:?}, {:?}", report.forward, report.backward);
    assert!(sent.iter().all(|sent| *sent >= MESSAGES), "{sent:?}");
    assert!(report.forward.received.min(report.backward.received) > 500, "{report:?}");
    assert_whole(&world, &report, dropped);
    // Both sides know the daemons' SAs, and as many policies.
    let sa = world.daemon(0).wait_installed("net", LIMIT).unwrap();
    let sides = [0, 1].map(|side| status(&world.sites[side]));
    for of_side in &sides {
        let known = of_side["sas"].to_string();
        for spi in [sa.spi_in, sa.spi_out] {
            assert!(known.contains(&format!("{spi:#010x}")), "{spi:#x} in {known}");
        }
    }
    let policies = [0, 1].map(|side| {
        let output = convoy(&["policy", world.sites[side].to_str().unwrap(), "--json"]);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        report["policies"].as_array().unwrap().len()
    });
    assert!(policies[0] > 0 && policies[0] == policies[1], "{policies:?}");
    world.assert_nothing_in_the_clear();
}
