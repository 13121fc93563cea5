//! Captures of others, pcap and pcapng: no bytes make the reader panic, and each packet that it found is replayed as often
//! as was asked, or counted as too long.

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use convoy_io::Port as _;
use convoy_io::pcap::Reader;
use convoy_packet::{Arena, Burst, FrameSize};

/// The bytes of a file.
#[derive(Arbitrary, Debug)]
pub struct Input<'a>(&'a [u8]);

const ROUNDS: u32 = 2;

static ARENA: LazyLock<&'static Arena> =
    LazyLock::new(|| Arena::map(512, FrameSize::for_packet(1500)).unwrap());

/// Panics where the reader breaks its promise.
pub fn check(input: &Input<'_>) {
    let Ok(mut reader) = Reader::read(input.0, ROUNDS) else { return };
    let packets = reader.packets();
    assert!(packets <= input.0.len(), "no packet is empty");
    let (mut pool, mut burst) = (ARENA.pool(), Burst::new());
    let mut received = 0;
    while !reader.is_finished() {
        received += reader.rx(&mut pool, &mut burst).expect("what was read is in memory");
        for frame in burst.as_slice() {
            assert!(matches!(frame.data()[0] >> 4, 4 | 6), "only IP packets are taken");
        }
        burst.release(&mut pool);
    }
    let counters = reader.counters();
    assert_eq!(counters.rx_packets, received as u64);
    assert_eq!(counters.rx_packets + counters.rx_truncated, packets as u64 * u64::from(ROUNDS));
    drop(pool);
    assert_eq!(ARENA.leaked(), 0);
}
