//! Drivers for benches beside Convoy's own.

use std::sync::Arc;

use convoy_crypto::{Cpu, KeyMaterial, Nonce, SealKey, SecretBytes, Suite};
use convoy_packet::{Arena, FrameSize, Pool};

use crate::registry::{Purpose, Ready, Registry, SelfTest, algorithm};
use crate::{EngineKey, Front, Job, JobBurst, KeyId, Op, Span, Status};

fn cpu() -> Cpu {
    Cpu::detect().unwrap()
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}

/// A packet with its text somewhere within.
#[derive(Clone)]
struct Packet {
    bytes: Vec<u8>,
    text: Span,
    nonce: [u8; 12],
    aad: Vec<u8>,
}

impl Packet {
    fn random(random: &mut Random) -> Self {
        let (start, len, aad) = (random.below(40), random.below(1600), random.below(21));
        let behind = 16 + random.below(9);
        Self {
            bytes: random.bytes(start + len + behind),
            text: Span { start: start as u32, len: len as u32 },
            nonce: random.bytes(12).try_into().unwrap(),
            aad: random.bytes(aad),
        }
    }

    fn job(&self, pool: &mut Pool, op: Op) -> Job {
        let mut frame = pool.alloc().unwrap();
        frame.fill_from(&self.bytes).unwrap();
        let mut job = Job::idle(frame);
        job.aad[..self.aad.len()].copy_from_slice(&self.aad);
        Job { text: self.text, aad_len: self.aad.len() as u8, op, ..job }
    }
}

/// A driver's engines with one key.
struct Both {
    seal: Front,
    open: Front,
}

impl Both {
    fn new(driver: &Ready, suite: Suite, key: &[u8]) -> Self {
        let (mut seal, mut open) = (driver.engine(), driver.engine());
        let secret = || SecretBytes::copy_from(key);
        let key = driver.seal_key(suite, secret()).unwrap();
        seal.install(KeyId(0), EngineKey::Seal(Arc::new(key)));
        let key = driver.open_key(suite, secret()).unwrap();
        open.install(KeyId(0), EngineKey::Open(Arc::new(key)));
        Self { seal, open }
    }
}

fn run(front: &mut Front, pool: &mut Pool, job: Job) -> (Status, Vec<u8>) {
    let (mut jobs, mut done) = (JobBurst::new(), JobBurst::new());
    jobs.push(job).unwrap();
    front.submit(0, pool, &mut jobs);
    assert_eq!(front.poll(0, pool, &mut done), 1);
    let job = done.pop().unwrap();
    let outcome = (job.status, job.frame.data().to_vec());
    pool.free(job.frame);
    outcome
}

#[test]
fn two_passes_make_of_random_packets_what_convoy_s_own_drivers_make() {
    let registry = Registry::of(&cpu());
    let mut pool = Arena::map(4, FrameSize::for_packet(1700)).unwrap().pool();
    let mut random = Random(1);
    let names = ["rfc4106-gcm-aes-two-pass", "rfc4106-gcm-aes-two-pass-clmul"];
    let drivers: Vec<_> =
        names.iter().filter_map(|name| registry.driver(name, Purpose::Bench).ok()).collect();
    assert_eq!(drivers.len(), cpu().tiers().count().min(2));
    for driver in drivers {
        assert_eq!(*driver.self_test(), SelfTest::Passed);
        for suite in algorithm::suites("rfc4106(gcm(aes))") {
            let key = random.bytes(suite.key_bytes());
            let mut own = Both::new(&registry.for_suite(suite).unwrap(), suite, &key);
            let mut other = Both::new(&driver, suite, &key);
            for _ in 0..100 {
                let mut packet = Packet::random(&mut random);
                let seal = |front: &mut Front, pool: &mut Pool| {
                    let job = packet.job(pool, Op::Seal(Nonce::new(packet.nonce)));
                    run(front, pool, job)
                };
                let sealed = seal(&mut own.seal, &mut pool);
                assert_eq!(seal(&mut other.seal, &mut pool), sealed, "{suite}, {}", driver.name());
                assert_eq!(sealed.0, Status::Done);
                packet.bytes = sealed.1;
                let forged = random.below(3) == 0;
                if forged {
                    let authenticated = packet.text.len as usize + suite.icv_bytes();
                    let at = packet.text.start as usize + random.below(authenticated);
                    packet.bytes[at] ^= 1 << random.below(8);
                }
                let open = |front: &mut Front, pool: &mut Pool| {
                    let job = packet.job(pool, Op::Open(packet.nonce.into()));
                    run(front, pool, job)
                };
                let opened = open(&mut own.open, &mut pool);
                assert_eq!(open(&mut other.open, &mut pool), opened, "{suite}, {}", driver.name());
                assert_eq!(opened.0, if forged { Status::BadIcv } else { Status::Done });
            }
        }
    }
}

#[test]
fn two_passes_reject_what_can_never_be_done() {
    let registry = Registry::of(&cpu());
    let driver = registry.driver("rfc4106-gcm-aes-two-pass", Purpose::Bench).unwrap();
    let suite: Suite = "aes-128-gcm-16".parse().unwrap();
    let mut pool = Arena::map(4, FrameSize::for_packet(100)).unwrap().pool();
    let mut both = Both::new(&driver, suite, &[1; 16]);
    let packet = Packet {
        bytes: vec![0; 60],
        text: Span { start: 20, len: 24 },
        nonce: [1; 12],
        aad: Vec::new(),
    };
    let seal = || Op::Seal(Nonce::new([1; 12]));
    let mut check = |packet: &Packet, op, change: fn(&mut Job), expected| {
        let mut job = packet.job(&mut pool, op);
        change(&mut job);
        assert_eq!(run(&mut both.seal, &mut pool, job).0, expected);
    };
    check(&packet, seal(), |_| {}, Status::Done);
    check(&packet, Op::Open([1; 12].into()), |_| {}, Status::Rejected);
    check(&packet, Op::Spent, |_| {}, Status::Rejected);
    check(&packet, Op::Seal(Nonce::new([1; 11])), |_| {}, Status::Rejected);
    check(&packet, seal(), |job| job.key = KeyId(7), Status::Rejected);
    check(&packet, seal(), |job| job.header = 8, Status::Rejected);
    check(&packet, seal(), |job| job.aad_len = 21, Status::Rejected);
    check(&packet, seal(), |job| job.text.len = 25, Status::Rejected);
    check(&packet, seal(), |job| job.text.start = u32::MAX, Status::Rejected);

    let forgetful = SealKey::new(&cpu(), suite, SecretBytes::copy_from(&[1; 16])).unwrap();
    both.seal.install(KeyId(0), EngineKey::Seal(Arc::new(forgetful)));
    let job = packet.job(&mut pool, seal());
    assert_eq!(run(&mut both.seal, &mut pool, job).0, Status::Rejected, "no material");
}

#[test]
fn drivers_for_benches_are_never_chosen_and_refused_for_traffic() {
    let registry = Registry::of(&cpu());
    for name in algorithm::names() {
        let null = format!("{}-null", algorithm::as_word(&name));
        assert_eq!(*registry.driver(&null, Purpose::Bench).unwrap().self_test(), SelfTest::Exempt);
        let error = registry.driver(&null, Purpose::Traffic).unwrap_err().to_string();
        assert!(
            error.contains("is for benches only; for ") && error.contains("-convoy-"),
            "{error}"
        );
        let chosen = registry.for_algorithm(&name).unwrap();
        assert!(!chosen.is_for_benches() && chosen.name().contains("-convoy-"));
    }
    for suite in Suite::all() {
        assert!(!registry.for_suite(suite).unwrap().is_for_benches());
    }
    let error = registry.driver("rfc4106-gcm-aes-two-pass", Purpose::Traffic).unwrap_err();
    assert!(error.to_string().contains("benches only"), "{error}");
}

/// Of whatever suite.
#[test]
fn null_does_nothing_and_says_that_it_is_done() {
    let registry = Registry::of(&cpu());
    let mut pool = Arena::map(4, FrameSize::for_packet(100)).unwrap().pool();
    for name in ["rfc4106-gcm-aes-null", "authenc-hmac-sha1-cbc-aes-null"] {
        let driver = registry.driver(name, Purpose::Bench).unwrap();
        let suite = algorithm::suites(driver.algorithm()).next().unwrap();
        let secret = |bytes| SecretBytes::from(vec![1; bytes]);
        let material = KeyMaterial {
            cipher: secret(suite.key_bytes()),
            integrity: secret(suite.integrity_key_bytes()),
        };
        let key = driver.seal_key(suite, material).unwrap();
        let mut front = driver.engine();
        front.install(KeyId(0), EngineKey::Seal(Arc::new(key)));
        let packet = Packet {
            bytes: (0..80).collect(),
            text: Span { start: 20, len: 32 },
            nonce: [1; 12],
            aad: Vec::new(),
        };
        let job = packet.job(&mut pool, Op::Seal(Nonce::new([1; 12])));
        let (status, bytes) = run(&mut front, &mut pool, job);
        assert_eq!((status, bytes), (Status::Done, packet.bytes));
    }
}
