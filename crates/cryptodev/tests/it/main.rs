//! Software devices of DPDK beside Convoy's own code: the same packets, byte for byte.
#![allow(clippy::unwrap_used, reason = "tests")]

mod jobs;
mod setup;

use convoy_crypto::Suite;
use convoy_cryptodev::Settings;
use convoy_engine::front::Counts;
use convoy_engine::lookaside::{Caps, Health, KeyRefused, Request};
use convoy_engine::{EngineKey, Front, JobBurst, KeyId, Lookaside, Status};

use jobs::{Keys, Random, arena, in_software};
use setup::{DEVICES, open, settings};

/// Suites that a device may be asked for.
const SUITES: [&str; 9] = [
    "aes-128-gcm-16",
    "aes-192-gcm-16",
    "aes-256-gcm-12",
    "chacha20-poly1305",
    "aes-128-cbc+hmac-sha1-96",
    "aes-256-cbc+hmac-sha256-128",
    "aes-192-cbc+hmac-sha384-192",
    "aes-256-cbc+hmac-sha512-256",
    "null+hmac-sha256-128",
];

/// Nanoseconds of a clock that goes on by itself.
fn clock() -> u64 {
    static BEGUN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    let begun = BEGUN.get_or_init(std::time::Instant::now);
    u64::try_from(begun.elapsed().as_nanos()).unwrap()
}

/// Random packets through an engine, each of them compared with what software makes of it. Every fifth
/// packet to be opened is forged.
fn compare(front: &mut Front, suite: Suite, seed: u64) -> Counts {
    let mut random = Random(seed);
    let keys = Keys::new(suite, seed as u8);
    let arena = arena();
    let mut pool = arena.pool();
    front.install(KeyId(0), keys.seal.clone());
    front.install(KeyId(1), keys.open.clone());
    let mut expected = std::collections::HashMap::new();
    let (mut jobs, mut done) = (JobBurst::new(), JobBurst::new());
    let mut number = 0;
    let mut seen = 0;
    while seen < 1500 {
        while jobs.len() < 64 && number < 1500 {
            number += 1;
            let job = keys.job(&mut pool, number, &mut random);
            let key = if job.key == KeyId(0) { &keys.seal } else { &keys.open };
            expected.insert(number, in_software(key, &job));
            assert!(jobs.push(job).is_ok());
        }
        front.submit(clock(), &mut pool, &mut jobs);
        front.flush(clock());
        while front.poll(clock(), &mut pool, &mut done) > 0 {
            for job in done.drain() {
                let (status, packet) = expected.remove(&job.context.value).unwrap();
                assert_eq!(job.status, status, "{suite}, packet {}", job.context.value);
                if status == Status::Done {
                    assert!(job.frame.data() == packet, "{suite}, packet {}", job.context.value);
                }
                pool.free(job.frame);
                seen += 1;
            }
        }
    }
    let counts = front.counts();
    assert_eq!(counts.wrong, 0, "{suite}: {counts:?}");
    while front.release(clock(), &mut pool) > 0 {}
    drop(pool);
    assert_eq!((arena.leaked(), arena.in_depot()), (0, arena.frames() as usize), "{suite}");
    counts
}

/// A device that gives so many requests back, and then none until it is asked to let go.
#[derive(Debug)]
struct Mute {
    engine: Box<dyn Lookaside>,
    answers: u32,
}

impl Lookaside for Mute {
    fn caps(&self) -> Caps {
        self.engine.caps()
    }
    fn install(&mut self, id: KeyId, key: &EngineKey) -> Result<(), KeyRefused> {
        self.engine.install(id, key)
    }
    fn remove(&mut self, id: KeyId) {
        self.engine.remove(id);
    }
    fn submit(&mut self, now: u64, request: Request) -> Result<(), Request> {
        self.engine.submit(now, request)
    }
    fn poll(&mut self, now: u64) -> Option<Request> {
        self.answers = self.answers.checked_sub(1)?;
        self.engine.poll(now)
    }
    fn health(&self) -> Health {
        self.engine.health()
    }
    fn quiesce(&mut self, now: u64) -> bool {
        self.answers = 100;
        self.engine.quiesce(now)
    }
    fn restart(&mut self, now: u64) -> bool {
        self.answers = 3;
        self.engine.restart(now)
    }
}

#[test]
fn devices_and_software_make_the_same_packets() {
    for device in DEVICES {
        for copies in [false, true] {
            let name = format!("{device}_same_{copies}");
            let Some(device) = open(&Settings { copies, ..settings(&name) }) else { continue };
            let mut by_device = 0;
            for (suite, seed) in SUITES.iter().zip(1..) {
                let mut front = Front::with(device.engine().unwrap());
                let suite: Suite = suite.parse().unwrap();
                let counts = compare(&mut front, suite, seed);
                assert_eq!(counts.losses, 0, "{suite}: {counts:?}");
                by_device += u32::from(counts.jobs > counts.refused);
            }
            // Not every device knows all of them.
            println!("{name}: {by_device} suites by the device, {}", device.about());
            assert!(by_device >= 6, "{name} did {by_device} suites");
        }
    }
}

#[test]
fn a_device_is_stopped_and_started_a_hundred_times() {
    for device in DEVICES {
        let name = format!("{device}_again");
        for round in 0..100 {
            let Some(device) = open(&settings(&name)) else { break };
            let mut front = Front::with(device.engine().unwrap());
            if round % 10 == 0 {
                let suite = SUITES[round / 10 % 9].parse().unwrap();
                compare(&mut front, suite, round as u64 + 1);
            }
        }
    }
}

#[test]
fn a_device_that_stops_answering_loses_nothing() {
    let Some(device) = open(&Settings { deadline: 100_000, ..settings("crypto_openssl_mute") })
    else {
        return;
    };
    let engine = Mute { engine: device.engine().unwrap(), answers: 3 };
    let mut front = Front::with(Box::new(engine));
    let counts = compare(&mut front, SUITES[0].parse().unwrap(), 3);
    assert!(counts.losses > 0 && counts.redone > 0 && counts.late > 0, "{counts:?}");
}

#[test]
fn a_device_with_too_few_sessions_leaves_the_rest_to_software() {
    let Some(device) = open(&Settings { sessions: 4, ..settings("crypto_openssl_few") }) else {
        return;
    };
    let mut front = Front::with(device.engine().unwrap());
    let keys = Keys::new("aes-128-cbc+hmac-sha1-96".parse().unwrap(), 7);
    for id in 0..6 {
        front.install(KeyId(id), keys.seal.clone());
    }
    let refused = (0..6).filter(|id| front.is_refused(KeyId(*id))).count();
    assert_eq!(refused, 2, "{:?}", front.counts());
    // Room that becomes free is used.
    front.remove(KeyId(0));
    front.install(KeyId(6), keys.seal.clone());
    assert!(front.is_offloaded(KeyId(6)));
}

#[test]
fn a_key_that_keeps_no_material_is_refused() {
    let Some(device) = open(&settings("crypto_openssl_kept")) else { return };
    let mut engine = device.engine().unwrap();
    let cpu = convoy_crypto::Cpu::detect().unwrap();
    let secret = convoy_crypto::SecretBytes::copy_from(&[1; 16]);
    let suite: Suite = "aes-128-gcm-16".parse().unwrap();
    let key = convoy_crypto::SealKey::new(&cpu, suite, secret).unwrap();
    let key = EngineKey::Seal(std::sync::Arc::new(key));
    assert!(engine.install(KeyId(0), &key).is_err());
}

#[test]
fn queue_pairs_are_given_once() {
    let Some(device) = open(&settings("crypto_openssl_pairs")) else { return };
    let first = device.engine();
    let second = device.engine();
    assert!(first.is_some() && second.is_some() && device.engine().is_none());
    drop(first);
    assert!(device.engine().is_some());
}

/// For measurements: everything but the work.
#[test]
fn a_device_that_does_no_work_gives_all_back() {
    let Some(device) = open(&Settings { idle: true, ..settings("crypto_null_idle") }) else {
        return;
    };
    let mut front = Front::with(device.engine().unwrap());
    let keys = Keys::new(SUITES[0].parse().unwrap(), 5);
    let mut pool = arena().pool();
    front.install(KeyId(0), keys.seal.clone());
    assert!(front.is_offloaded(KeyId(0)));
    let (mut jobs, mut done) = (JobBurst::new(), JobBurst::new());
    let mut random = Random(5);
    let only_seals = (1..).map(|number| keys.job(&mut pool, number, &mut random));
    for job in only_seals.filter(|job| job.key == KeyId(0)).take(64) {
        assert!(jobs.push(job).is_ok());
    }
    front.submit(clock(), &mut pool, &mut jobs);
    while done.len() < 64 {
        front.poll(clock(), &mut pool, &mut done);
    }
    assert!(done.as_slice().iter().all(|job| job.status == Status::Done));
    assert_eq!((front.counts().jobs, front.counts().refused), (64, 0));
    done.drain().for_each(|job| pool.free(job.frame));
    while front.release(clock(), &mut pool) > 0 {}
}

/// As two gateways of one process do.
#[test]
fn a_name_that_is_in_use_is_another_device() {
    let Some(first) = open(&settings("crypto_openssl_both")) else { return };
    let Some(second) = open(&settings("crypto_openssl_both")) else { return };
    for device in [first, second] {
        let mut front = Front::with(device.engine().unwrap());
        compare(&mut front, SUITES[0].parse().unwrap(), 9);
    }
}

#[test]
fn devices_are_opened_by_several_threads_at_once() {
    let open = || open(&settings("crypto_null_threads"));
    let opened = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
        let devices: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        devices.iter().filter(|device| device.is_ok()).count()
    });
    assert_eq!(opened, 8);
}

#[test]
fn what_is_wrong_is_told() {
    let Some(_) = open(&settings("crypto_openssl_told")) else { return };
    let said =
        |settings: Settings| convoy_cryptodev::Cryptodev::open(&settings).unwrap_err().to_string();
    let text = said(settings("crypto_abacus"));
    assert!(
        text.contains("crypto_abacus cannot be used") && text.contains("crypto_openssl"),
        "{text}"
    );
    let text = said(Settings { queues: 4096, ..settings("crypto_openssl_many") });
    assert!(text.contains("use fewer workers"), "{text}");
    let other = Some(vec!["--no-huge".to_owned()]);
    let text = said(Settings { arguments: other, ..settings("crypto_openssl_other") });
    assert!(text.contains("starts only once"), "{text}");
    let text = said(settings("0000:00:00.0"));
    assert!(text.contains("starts only once"), "{text}");
}

#[test]
fn a_library_that_is_not_there_is_told_with_what_to_do() {
    let missing = Settings { library: Some("/nonexistent/lib.so".into()), ..Settings::default() };
    // Where DPDK runs already in this process, the library is not looked for again.
    if let Err(error) = convoy_cryptodev::Cryptodev::open(&missing) {
        let text = error.to_string();
        assert!(text.contains("make cryptodev") && text.contains("libdpdk-dev"), "{text}");
    }
}
