//! The example's driver, registered from outside the crate, beside Convoy's own.

#[path = "../examples/aws_lc/driver.rs"]
mod driver;

use std::sync::Arc;

use convoy_crypto::{Cpu, Nonce, SealKey, SecretBytes, Suite};
use convoy_engine::registry::{Driver, Purpose, Ready, Registry, SelfTest, algorithm};
use convoy_engine::{EngineKey, Front, Job, JobBurst, KeyId, Op, Span, Status};
use convoy_packet::{Arena, BURST_MAX, FrameSize, Pool};

fn registry() -> Registry {
    let cpu = Cpu::detect().unwrap();
    let mut registry = Registry::of(&cpu);
    for driver in driver::drivers(&cpu) {
        assert_eq!(registry.register(driver).unwrap(), SelfTest::Passed);
    }
    registry
}

#[test]
fn it_is_found_by_its_name_and_chosen_by_its_priority_alone() {
    let mut registry = registry();
    for name in [driver::GCM, driver::CHACHA] {
        let own = format!("-convoy-{}", Cpu::detect().unwrap().best());
        assert!(registry.for_algorithm(name).unwrap().name().ends_with(&own));
    }
    let driver = registry.driver("rfc4106-gcm-aes-aws-lc", Purpose::Traffic).unwrap();
    assert!(driver.takes("aes-192-gcm-16".parse().unwrap()));
    assert!(!driver.takes("aes-192-gcm-12".parse().unwrap()));

    // The same under another name and with the highest priority gets the suites that it takes.
    let provider = Arc::new(driver::AwsLc::new(&Cpu::detect().unwrap()));
    let driver = Driver::new(driver::GCM, "rfc4106-gcm-aes-preferred", provider);
    registry.register(driver.with_priority(9999)).unwrap();
    let chosen = |suite: &str| registry.for_suite(suite.parse().unwrap()).unwrap();
    assert_eq!(chosen("aes-256-gcm-16").name(), "rfc4106-gcm-aes-preferred");
    assert!(chosen("aes-256-gcm-8").name().contains("-convoy-"));
}

/// Random bytes that are the same each time.
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

struct Packet {
    bytes: Vec<u8>,
    text: u32,
    nonce: [u8; 12],
    aad: Vec<u8>,
}

const FRONT: u32 = 28;
const ICV: usize = 16;

fn random_packet(random: &mut Random) -> Packet {
    let (len, aad) = (random.below(1500), [8, 12][random.below(2)]);
    let bytes = random.bytes(FRONT as usize + len + ICV);
    let nonce = random.bytes(12).try_into().unwrap();
    Packet { bytes, text: len as u32, nonce, aad: random.bytes(aad) }
}

fn burst(pool: &mut Pool, packets: &[Packet], seal: bool) -> JobBurst {
    let mut jobs = JobBurst::new();
    for packet in packets {
        let mut frame = pool.alloc().unwrap();
        frame.fill_from(&packet.bytes).unwrap();
        let job = jobs.add(frame).unwrap();
        job.text = Span { start: FRONT, len: packet.text };
        job.aad_len = packet.aad.len() as u8;
        job.aad[..packet.aad.len()].copy_from_slice(&packet.aad);
        job.op =
            if seal { Op::Seal(Nonce::new(packet.nonce)) } else { Op::Open(packet.nonce.into()) };
    }
    jobs
}

fn run(front: &mut Front, pool: &mut Pool, mut jobs: JobBurst) -> Vec<(Status, Vec<u8>)> {
    let mut done = JobBurst::new();
    while !jobs.is_empty() || front.poll(0, pool, &mut done) > 0 {
        front.submit(0, pool, &mut jobs);
    }
    let finish = |job: Job| {
        let outcome = (job.status, job.frame.data().to_vec());
        pool.free(job.frame);
        outcome
    };
    done.drain().map(finish).collect()
}

fn fronts(driver: &Ready, suite: Suite, key: &[u8]) -> (Front, Front) {
    let (mut seal, mut open) = (driver.engine(), driver.engine());
    let secret = || SecretBytes::copy_from(key);
    let key = driver.seal_key(suite, secret()).unwrap();
    seal.install(KeyId(0), EngineKey::Seal(Arc::new(key)));
    let key = driver.open_key(suite, secret()).unwrap();
    open.install(KeyId(0), EngineKey::Open(Arc::new(key)));
    (seal, open)
}

#[test]
fn bursts_of_random_packets_come_out_as_from_convoy_s_own_drivers() {
    let registry = registry();
    let mut pool = Arena::map(1024, FrameSize::for_packet(1600)).unwrap().pool();
    let mut random = Random(7);
    let aws = |driver: &&Driver| driver.name().ends_with("-aws-lc");
    for driver in registry.drivers().filter(aws) {
        let other = registry.driver(driver.name(), Purpose::Traffic).unwrap();
        for suite in algorithm::suites(driver.algorithm()).filter(|suite| driver.takes(*suite)) {
            let key = random.bytes(suite.key_bytes());
            let own = registry.for_suite(suite).unwrap();
            let (mut own_seal, mut own_open) = fronts(&own, suite, &key);
            let (mut seal, mut open) = fronts(&other, suite, &key);
            let mut packets: Vec<_> = (0..BURST_MAX).map(|_| random_packet(&mut random)).collect();
            let jobs = burst(&mut pool, &packets, true);
            let sealed = run(&mut own_seal, &mut pool, jobs);
            let jobs = burst(&mut pool, &packets, true);
            assert!(run(&mut seal, &mut pool, jobs) == sealed, "{suite}");
            assert!(sealed.len() == BURST_MAX && sealed.iter().all(|(s, _)| *s == Status::Done));

            for (i, (packet, (_, bytes))) in packets.iter_mut().zip(sealed).enumerate() {
                packet.bytes = bytes;
                if i % 3 == 0 {
                    let at = FRONT as usize + random.below(packet.text as usize + ICV);
                    packet.bytes[at] ^= 1 << random.below(8);
                }
            }
            let jobs = burst(&mut pool, &packets, false);
            let opened = run(&mut own_open, &mut pool, jobs);
            let jobs = burst(&mut pool, &packets, false);
            assert!(run(&mut open, &mut pool, jobs) == opened, "{suite}");
            for (i, (status, _)) in opened.iter().enumerate() {
                let expected = if i % 3 == 0 { Status::BadIcv } else { Status::Done };
                assert_eq!(*status, expected, "{suite}, packet {i}");
            }
        }
    }
    assert_eq!(pool.arena().leaked(), 0);
}

#[test]
fn a_key_that_does_not_keep_its_material_is_of_no_use_to_it() {
    let driver = registry().driver("rfc4106-gcm-aes-aws-lc", Purpose::Traffic).unwrap();
    let suite: Suite = "aes-128-gcm-16".parse().unwrap();
    let mut front = driver.engine();
    let secret = SecretBytes::copy_from(&[1; 16]);
    let key = SealKey::new(&Cpu::detect().unwrap(), suite, secret).unwrap();
    front.install(KeyId(0), EngineKey::Seal(Arc::new(key)));
    let mut pool = Arena::map(4, FrameSize::for_packet(1600)).unwrap().pool();
    let jobs = burst(&mut pool, &[random_packet(&mut Random(1))], true);
    let [(status, _)] = &run(&mut front, &mut pool, jobs)[..] else { panic!("one packet") };
    assert_eq!(*status, Status::Rejected);
}
