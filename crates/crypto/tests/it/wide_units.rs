//! Wide units that sleep: which registers a burst is computed in, and that its bytes do not depend on it.

use std::thread;

use crate::common::{
    Packet, Random, cpu,
    packet::{open_op, seal_op},
    setups, setups_for,
};
use convoy_crypto::{
    Cpu, HashAlg, MacAlg, OpenKey, SealKey, SecretBytes, Suite, Tier, Verdict, WideUnits,
    computed_in,
    manager::{
        Buffer, Direction, Engine as _, HmacKeys, Job, JobCipher, JobHash, Runner, Span, Status,
    },
    open_burst, seal_burst,
    tls::{BurstRecord, CbcHmacKey, RecordHeader, RecordMac},
};

/// Nothing that a test does pays for waking these.
const DEEP: WideUnits =
    WideUnits { sleep_us: 600, wake_256_us: 1_000_000, wake_512_us: 1_000_000, tsc_mhz: 4000 };
/// These wake for nothing.
const LIGHT: WideUnits = WideUnits { wake_256_us: 0, wake_512_us: 0, ..DEEP };
/// One burst of a test pays for waking these, which then stay awake for an hour.
const LONG: WideUnits =
    WideUnits { sleep_us: 1 << 31, wake_256_us: 5, wake_512_us: 5, tsc_mhz: 4000 };

/// Numbers of packets that `work` computed in registers of 128, 256 and 512 bits, on a thread of its own: what other
/// tests did with the units counts for them alone.
fn widths(work: impl FnOnce() + Send) -> [u64; 3] {
    thread::scope(|scope| {
        let run = move || {
            work();
            [128, 256, 512].map(computed_in)
        };
        scope.spawn(run).join().unwrap()
    })
}

/// Suites whose hash or cipher has wide registers on some tier where AES has none.
fn suites() -> impl Iterator<Item = Suite> {
    Suite::all().filter(|suite| match suite {
        Suite::ChaCha20Poly1305 => true,
        Suite::Pair { integrity, .. } => matches!(integrity.alg(), MacAlg::Hmac(_)),
        _ => false,
    })
}

/// Packets of one key.
fn packets(suite: Suite, count: usize, text: usize) -> Vec<Packet> {
    let mut random = Random(1);
    let first = Packet::random(suite, &mut random, text);
    (0..count)
        .map(|_| {
            let packet = Packet::random(suite, &mut random, text);
            Packet { keys: first.keys.clone(), ..packet }
        })
        .collect()
}

/// Frames and ICVs of the packets.
fn frames(packets: &[Packet]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let frame = |packet: &Packet| [&*packet.header, &*packet.text].concat();
    packets.iter().map(|packet| (frame(packet), packet.icv.clone())).collect()
}

/// Seals all packets in one burst.
fn seal(cpu: &Cpu, tier: Tier, packets: &[Packet]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let key = SealKey::with_tier(cpu, tier, packets[0].suite, packets[0].material()).unwrap();
    let mut frames = frames(packets);
    let pairs = packets.iter().zip(&mut frames);
    let mut ops: Vec<_> = pairs.map(|(p, (frame, icv))| seal_op(p, &key, frame, icv)).collect();
    seal_burst(&mut ops);
    drop(ops);
    frames
}

/// Opens all packets in one burst; all are authentic.
fn open(
    cpu: &Cpu,
    tier: Tier,
    packets: &[Packet],
    sealed: &[(Vec<u8>, Vec<u8>)],
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let key = OpenKey::with_tier(cpu, tier, packets[0].suite, packets[0].material()).unwrap();
    let mut frames = sealed.to_vec();
    let pairs = packets.iter().zip(&mut frames);
    let mut ops: Vec<_> = pairs.map(|(p, (frame, icv))| open_op(p, &key, frame, icv)).collect();
    open_burst(&mut ops);
    assert!(ops.iter().all(|op| op.verdict() == Verdict::Authentic), "{}", packets[0].suite);
    drop(ops);
    frames
}

#[test]
fn bursts_go_through_narrow_kernels_while_units_sleep_and_come_to_the_same_bytes() {
    let setups = setups();
    let mut were_wide = 0;
    for suite in suites() {
        let packets = packets(suite, 200, 300);
        for setup in setups_for(suite, &setups) {
            let tier = setup.tier;
            let [awake, asleep] = [None, Some(&DEEP)].map(|u| setup.cpu().with_wide_units(u));
            let mut sealed = Vec::new();
            let [_, w256, w512] = widths(|| sealed = seal(&awake, tier, &packets));
            let kernels = if tier == Tier::Portable { 0 } else { 200 };
            were_wide += w256 + w512;
            let mut again = Vec::new();
            let narrow = widths(|| again = seal(&asleep, tier, &packets));
            assert_eq!(narrow, [kernels, 0, 0], "{suite} sealed on {setup}");
            assert_eq!(sealed, again, "{suite} sealed on {setup}");
            let mut opened = Vec::new();
            let narrow = widths(|| opened = open(&asleep, tier, &packets, &sealed));
            assert_eq!(narrow, [kernels, 0, 0], "{suite} opened on {setup}");
            let texts = |frames: &[(Vec<u8>, Vec<u8>)]| {
                frames.iter().map(|(frame, _)| frame.clone()).collect::<Vec<_>>()
            };
            assert_eq!(texts(&opened), texts(&frames(&packets)), "{suite} opened on {setup}");
            let light = setup.cpu().with_wide_units(Some(&LIGHT));
            let wide = widths(|| again = seal(&light, tier, &packets));
            assert_eq!(wide[1..], [w256, w512], "{suite} on {setup}: waking costs nothing");
        }
    }
    if !cpu().has(Tier::Avx2) {
        return println!("SKIPPED in part: this machine has no wide registers, or they are denied");
    }
    assert!(were_wide > 0);
}

#[test]
fn a_long_burst_wakes_the_units_for_short_ones_behind_it() {
    let Some(tier) = cpu().tiers().filter(|tier| tier.needs(Tier::Avx2)).last() else {
        return println!("SKIPPED: this machine has no wide registers, or they are denied");
    };
    let denied = std::env::var(Cpu::DENY_VARIABLE).unwrap_or_default();
    let cpu = Cpu::without(&format!("{denied},{}", Cpu::SHA_NI)).unwrap();
    let cpu = cpu.with_wide_units(Some(&LONG));
    for name in ["aes-128-cbc+hmac-sha1-96", "aes-128-cbc+hmac-sha256-128", "chacha20-poly1305"] {
        let (short, long) =
            (packets(name.parse().unwrap(), 9, 16), packets(name.parse().unwrap(), 256, 1424));
        let narrow_then_wide = widths(|| {
            seal(&cpu, tier, &short);
            seal(&cpu, tier, &long);
            seal(&cpu, tier, &short);
        });
        assert_eq!(narrow_then_wide[0], 9, "{name}");
        assert_eq!(narrow_then_wide[1] + narrow_then_wide[2], 256 + 9, "{name}");
        // Another thread's units sleep.
        assert_eq!(widths(|| drop(seal(&cpu, tier, &short)))[0], 9, "{name}");
    }
}

#[test]
fn jobs_of_a_manager_are_hashed_in_narrow_registers_while_units_sleep() {
    let message = vec![7; 200];
    for alg in HashAlg::ALL {
        let key = HmacKeys::new(&cpu(), alg, &SecretBytes::copy_from(&[9; 20]));
        for tier in cpu().tiers().filter(|tier| *tier != Tier::Portable) {
            let run = |units: Option<&'static WideUnits>| {
                let mut runner = Runner::new(&cpu().with_wide_units(units), tier).unwrap();
                let mut buffers = vec![(message.clone(), vec![0; alg.digest_bytes()]); 40];
                let widths = widths(|| {
                    let mut jobs: Vec<_> = buffers
                        .iter_mut()
                        .map(|(message, tag)| {
                            let mut job = Job::default();
                            job.hash_span = Span::new(0, message.len());
                            job.buffer = Buffer::InPlace(message);
                            (job.cipher, job.hash) = (JobCipher::Null, JobHash::Hmac(&key));
                            job.tag = tag;
                            job
                        })
                        .collect();
                    runner.run(&mut jobs);
                    assert!(jobs.iter().all(|job| job.status() == Status::Completed));
                });
                (widths, buffers)
            };
            let (narrow, tags) = run(Some(&DEEP));
            assert_eq!(narrow, [40, 0, 0], "{alg:?} on {tier}");
            assert_eq!(run(None).1, tags, "{alg:?} on {tier}");
        }
    }
}

#[test]
fn records_of_tls_are_hashed_in_narrow_registers_while_units_sleep() {
    let secrets = [16, 20].map(|len| SecretBytes::copy_from(&vec![3; len]));
    let [cipher, mac_key] = &secrets;
    let mut were_wide = 0;
    for setup in setups() {
        let seal = |units: Option<&'static WideUnits>| {
            let (cpu, mac) = (setup.cpu().with_wide_units(units), RecordMac::HmacSha1);
            let (tier, way) = (setup.tier, Direction::Encrypt);
            let key = CbcHmacKey::with_tier(&cpu, tier, mac, way, cipher, mac_key).unwrap();
            let text = 500;
            let mut records = vec![vec![5; 16 + key.sealed_bytes(text)]; 12];
            let widths = widths(|| {
                let header = RecordHeader { number: 1, content_type: 23, version: 0x0302 };
                let record = |bytes| BurstRecord { header, text, bytes };
                let mut burst: Vec<_> =
                    records.iter_mut().map(|r| record(r.as_mut_slice())).collect();
                key.seal_burst(&mut burst).unwrap();
            });
            (widths, records)
        };
        let ([_, w256, w512], records) = seal(Some(&DEEP));
        assert_eq!([w256, w512], [0, 0], "{setup}");
        let ([_, w256, w512], awake) = seal(None);
        assert_eq!(records, awake, "{setup}");
        were_wide += w256 + w512;
    }
    if !cpu().has(Tier::Avx2) {
        return println!("SKIPPED in part: this machine has no wide registers, or they are denied");
    }
    assert!(were_wide > 0);
}

#[test]
fn only_processors_of_the_table_have_units_that_sleep() {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let (Some(vendor), Some(flags)) = (field("vendor_id"), field("flags")) else {
        return println!("SKIPPED: /proc/cpuinfo has neither vendor nor flags");
    };
    let has = |flag: &str| flags.split(' ').any(|word| word == flag);
    let expected = vendor == "GenuineIntel" && has("avx512bw") && !has("vaes");
    assert_eq!(cpu().wide_units().is_some(), expected, "{vendor}");
    // What is denied changes nothing about the processor.
    let without = Cpu::without("vaes256").unwrap();
    assert_eq!(without.wide_units().is_some(), expected, "{vendor}");
}
