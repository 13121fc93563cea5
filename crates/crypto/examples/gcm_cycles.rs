//! Prints what AES-GCM costs on this machine: cycles of the time-stamp counter per packet, for
//! every tier.
//!
//! ```text
//! cargo run --release -p convoy-crypto --example gcm_cycles [KEY-BITS]
//! ```
//!
//! Each figure is the median over many bursts of 64 packets that lie in the nearest caches, eight
//! keys in turn; the least is in parentheses. Building the operations is part of what is measured.

use arrayvec::ArrayVec;
use convoy_crypto::{
    Cpu, GcmParams, IcvLen, KeyBits, Nonce, OpenKey, OpenOp, SealKey, SealOp, SecretBytes, Tier,
    Verdict, open_burst, seal_burst, time_stamp,
};

const BURST: usize = 64;
const KEYS: usize = 8;
const LENGTHS: [usize; 6] = [64, 128, 256, 512, 1420, 9000];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bits = std::env::args().nth(1).map_or(Ok(128), |word| word.parse())?;
    let key_bits = KeyBits::from_bits(bits).ok_or("key bits are 128, 192 or 256")?;
    let params = GcmParams::new(key_bits, IcvLen::Icv16);
    let cpu = Cpu::detect()?;
    println!("{params}, bursts of {BURST}, {KEYS} keys: cycles per packet, median (least)\n");
    print!("{:10}{:6}", "tier", "");
    LENGTHS.iter().for_each(|length| print!("{length:>18}"));
    println!();
    for tier in cpu.tiers() {
        let secret = |i| SecretBytes::from(vec![i as u8; key_bits.bytes()]);
        let seal_keys: Vec<_> = (0..KEYS)
            .map(|i| SealKey::with_tier(&cpu, tier, params, secret(i)))
            .collect::<Result<_, _>>()?;
        let open_keys: Vec<_> = (0..KEYS)
            .map(|i| OpenKey::with_tier(&cpu, tier, params, secret(i)))
            .collect::<Result<_, _>>()?;
        print_row(tier, "seal", |length| Packets::new(length).time(tier, |p| p.seal(&seal_keys)));
        print_row(tier, "open", |length| {
            Packets::new(length).time(tier, |p| {
                p.seal(&seal_keys);
                p.open(&open_keys)
            })
        });
    }
    Ok(())
}

fn print_row(tier: Tier, verb: &str, measure: impl Fn(usize) -> (f64, f64)) {
    print!("{:10}{verb:6}", tier.name());
    for length in LENGTHS {
        let (median, least) = measure(length);
        print!("{:>18}", format!("{median:.1} ({least:.1})"));
    }
    println!();
}

/// A burst's buffers.
struct Packets {
    length: usize,
    nonce: u64,
    data: Vec<u8>,
    icvs: [[u8; 16]; BURST],
}

impl Packets {
    fn new(length: usize) -> Self {
        Self { length, nonce: 0, data: vec![0x5a; length * BURST], icvs: [[0; 16]; BURST] }
    }

    fn next_nonce(nonce: &mut u64) -> [u8; 12] {
        *nonce += 1;
        let mut bytes = [7; 12];
        bytes[4..].copy_from_slice(&nonce.to_be_bytes());
        bytes
    }

    /// Seals the burst; returns the cycles it took.
    fn seal(&mut self, keys: &[SealKey]) -> u64 {
        let start = time_stamp();
        let nonce = &mut self.nonce;
        let packets = self.data.chunks_exact_mut(self.length).zip(&mut self.icvs);
        let packets = packets.zip(keys.iter().cycle()).map(|((data, icv), key)| {
            SealOp::new(key, Nonce::new(Self::next_nonce(nonce)), &[1; 8], data, icv)
                .expect("lengths fit")
        });
        let mut ops: ArrayVec<_, BURST> = packets.collect();
        seal_burst(&mut ops);
        time_stamp() - start
    }

    /// Opens what was sealed just before; returns the cycles it took.
    fn open(&mut self, keys: &[OpenKey]) -> u64 {
        let start = time_stamp();
        let mut first_nonce = self.nonce - BURST as u64;
        let nonce = &mut first_nonce;
        let packets = self.data.chunks_exact_mut(self.length).zip(&self.icvs);
        let packets = packets.zip(keys.iter().cycle()).map(|((data, icv), key)| {
            OpenOp::new(key, Self::next_nonce(nonce), &[1; 8], data, icv).expect("lengths fit")
        });
        let mut ops: ArrayVec<_, BURST> = packets.collect();
        open_burst(&mut ops);
        assert!(ops.iter().all(|op| op.verdict() == Verdict::Authentic));
        time_stamp() - start
    }

    /// Cycles per packet: median and least.
    fn time(&mut self, tier: Tier, mut round: impl FnMut(&mut Self) -> u64) -> (f64, f64) {
        let rounds = if tier == Tier::Portable { 30 } else { 2000 };
        let mut samples: Vec<_> = (0..rounds).map(|_| round(self) as f64 / BURST as f64).collect();
        samples.sort_by(f64::total_cmp);
        (samples[rounds / 2], samples[0])
    }
}
