//! A process that leases and uses sequence numbers is killed hundreds of times, at any moment; no
//! number is ever used twice.
//!
//! This program is its own child: with [`CHILD`] set, it opens the state folder, uses numbers of
//! three keys as fast as it can, and tells each burst on its standard error, which the parent keeps:
//! there the test harness writes nothing.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use convoy_control::lease::{LeaseEvent, LeaseKeeper, OutboundRequest};
use convoy_crypto::{GcmParams, IcvLen, KeyBits, SecretBytes};
use convoy_ipsec::key::SaKeyMaterial;
use convoy_ipsec::sequence::{SequenceCounter, SequenceLimits};
use convoy_wire::SeqNum;

const KEYS: usize = 3;
/// In a gate, and where `CONVOY_LONG` is set.
const KILLS: [usize; 2] = [60, 250];
/// A burst as it is told: key, first number, how many.
const TOLD: usize = 10;

/// Set for a child: the state folder. How many bursts it sends is in [`BURSTS`].
const CHILD: &str = "CONVOY_TEST_KILL_FOLDER";
const BURSTS: &str = "CONVOY_TEST_KILL_BURSTS";

#[test]
fn child_uses_numbers() {
    let Some(folder) = std::env::var_os(CHILD) else { return };
    child(Path::new(&folder), std::env::var(BURSTS).unwrap().parse().unwrap());
}

/// Uses numbers in `bursts` bursts, then ends in order.
fn child(folder: &Path, bursts: u64) {
    let keeper = LeaseKeeper::open(folder, |event| match event {
        // The kill may come in the middle of writing a copy.
        LeaseEvent::CopyMended { .. } | LeaseEvent::MachineUnknown => {}
        event => panic!("{event:?}"),
    })
    .unwrap();
    let keys: Vec<_> = (0..KEYS as u8)
        .map(|n| {
            let bytes = SecretBytes::copy_from(&[n; 20]);
            SaKeyMaterial::new(GcmParams::new(KeyBits::Aes128, IcvLen::Icv16), bytes).unwrap()
        })
        .collect();
    let requests: Vec<_> =
        keys.iter().map(|key| OutboundRequest { name: "sa", key, esn: true, block: 64 }).collect();
    let leases = keeper.acquire(&requests, &[]).unwrap();
    let claim =
        |lease| SequenceCounter::claim(lease, SeqNum::new(0), SequenceLimits::new(true)).unwrap();
    let mut counters: Vec<_> = leases.into_iter().map(claim).collect();
    let mut out = std::io::stderr().lock();
    for burst in 0..bursts {
        let key = (burst % KEYS as u64) as usize;
        // An exhausted lease fills up at the keeper's next look.
        let Ok(reserved) = counters[key].reserve(1 + (burst % 32) as usize) else { continue };
        let numbers: Vec<u64> = reserved.map(|seq| seq.into_number().get()).collect();
        let mut told = vec![key as u8];
        told.extend_from_slice(&numbers[0].to_le_bytes());
        told.push(numbers.len() as u8);
        out.write_all(&told).unwrap();
    }
    drop(counters);
    keeper.finish().unwrap();
}

/// Record that the parent has of a key.
#[derive(Clone, Copy, Default)]
struct Seen {
    last: u64,
    numbers: u64,
}

#[test]
fn no_number_comes_twice() {
    let folder = tempfile::tempdir().unwrap();
    let mut dice = Dice(0x5eed_c0de);
    let mut seen = [Seen::default(); KEYS];
    let (mut killed, mut orderly, mut told_in_kills) = (0, 0, 0);
    let kills = KILLS[usize::from(std::env::var_os("CONVOY_LONG").is_some())];
    while killed < kills {
        let ends_in_order = dice.roll(16) == 0;
        let bursts = if ends_in_order { dice.roll(3000) } else { u64::MAX };
        let mut child = spawn(folder.path(), bursts);
        let mut told = Vec::new();
        if ends_in_order {
            child.stderr.take().unwrap().read_to_end(&mut told).unwrap();
            assert!(child.wait().unwrap().success(), "the child failed");
            orderly += 1;
        } else {
            kill_somewhere(child, &mut dice, &mut told);
            killed += 1;
            told_in_kills += told.len();
        }
        check(&told, &mut seen);
    }
    assert!(orderly > 0 && told_in_kills > kills * TOLD, "{orderly} {told_in_kills}");
    let numbers: u64 = seen.iter().map(|seen| seen.numbers).sum();
    println!("{killed} kills, {orderly} orderly ends, {numbers} numbers");
}

fn spawn(folder: &Path, bursts: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::child_uses_numbers", "--nocapture"])
        .env(CHILD, folder)
        .env(BURSTS, bursts.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Kills a child after some of its output, or after a moment in which it may still be starting;
/// everything it told is kept.
fn kill_somewhere(mut child: Child, dice: &mut Dice, told: &mut Vec<u8>) {
    let mut out = child.stderr.take().unwrap();
    if dice.roll(4) == 0 {
        std::thread::sleep(Duration::from_micros(dice.roll(8000)));
    } else {
        let bytes = dice.roll(60_000);
        out.by_ref().take(bytes).read_to_end(told).unwrap();
    }
    child.kill().unwrap();
    out.read_to_end(told).unwrap();
    child.wait().unwrap();
}

/// Numbers of a key only ever rise, over all lives.
fn check(told: &[u8], seen: &mut [Seen; KEYS]) {
    for burst in told.chunks_exact(TOLD) {
        let first = u64::from_le_bytes(burst[1..9].try_into().unwrap());
        let seen = &mut seen[usize::from(burst[0])];
        assert!(
            first > seen.last,
            "number {first} of key {} comes again after {}",
            burst[0],
            seen.last
        );
        seen.last = first + u64::from(burst[9]) - 1;
        seen.numbers += u64::from(burst[9]);
    }
}

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}
