//! Load processes count what servers did.

use std::time::Duration;

use convoy_bench::peer::libssl::{LibSsl, Version};
use convoy_bench::tls::job::{Cipher, Generator, Job, Tally};
use convoy_bench::tls::load::Load;

use super::server::{Deed, Server};

const SIZE: usize = 300_000;

/// Ways to agree with the server.
fn ciphers() -> [Cipher; 2] {
    [("ECDHE-RSA-AES128-GCM-SHA256", Version::Tls12), ("TLS_AES_256_GCM_SHA384", Version::Tls13)]
        .map(|(name, version)| Cipher { name: name.to_owned(), version, encrypt_then_mac: false })
}

fn job(server: &Server, cipher: Cipher, verify_every: usize) -> Job {
    Job {
        generator: Generator::Convoy,
        server: server.address.to_string(),
        path: "/file".to_owned(),
        size: SIZE as u64,
        cipher,
        connections: 4,
        seconds: 1.5,
        verify_every,
        patience: 30.0,
    }
}

/// `None`, and it is said, where there is no libssl.
fn run(job: Job) -> Option<Tally> {
    let library = match LibSsl::load(None) {
        Ok(library) => library,
        Err(error) => {
            println!("SKIPPED: {error}");
            return None;
        }
    };
    Some(Load::new(&library, job).unwrap().run().unwrap())
}

/// Runs until a script is over: on a busy machine that takes longer. `None`, and it is said, where something
/// is missing.
fn run_script(deeds: &[Deed], job: impl Fn(&Server) -> Job) -> Option<Tally> {
    let mut last = None;
    for seconds in [1.5, 8.0, 30.0] {
        let server = Server::start(SIZE, script(deeds))?;
        let tally = run(Job { seconds, ..job(&server) })?;
        let is_over = tally.files + tally.failed() >= deeds.len() as u64;
        last = Some(tally);
        if is_over {
            break;
        }
    }
    last
}

/// So many connections get a file or not; all that follow wait for the end.
fn script(deeds: &[Deed]) -> Vec<Deed> {
    deeds.iter().copied().chain([Deed::Ignore]).collect()
}

#[test]
fn files_and_bytes_are_counted_exactly() {
    for cipher in ciphers() {
        for verify_every in [1, 3, 1_000_000] {
            let job = |server: &Server| job(server, cipher.clone(), verify_every);
            let Some(tally) = run_script(&[Deed::Serve; 60], job) else { return };
            let what = (&cipher, verify_every);
            assert_eq!(tally.failures, [].into(), "{what:?}");
            assert_eq!((tally.files, tally.bytes), (60, 60 * SIZE as u64), "{what:?}");
            let verified = 60_u64.div_ceil(verify_every as u64);
            // Four begin at once, and end in any order.
            assert!(tally.verified.abs_diff(verified) <= 1, "{what:?}: {}", tally.verified);
            assert_eq!(tally.ciphers, [(cipher.name.clone(), 60)].into());
            // 19 records of 16,384 bytes hold the file; its header may have one of its own.
            assert!((60 * 19..=60 * 23).contains(&tally.records), "{what:?}: {}", tally.records);
            assert!(tally.connect.len() >= 60 && tally.first_byte.len() >= 60);
        }
    }
}

#[test]
fn failures_are_counted_by_their_reasons() {
    let bad = [
        (Deed::Cut, "in the middle of the file"),
        (Deed::TooMuch, "more came"),
        (Deed::Lie, "299999 bytes, not 300000"),
        (Deed::NotFound, "404 Not Found"),
        (Deed::Garble, "handshake"),
        (Deed::Wrong, "not what it should be"),
    ];
    let mut deeds = Vec::new();
    for (deed, _) in bad {
        deeds.extend([Deed::Serve, Deed::Serve, Deed::Serve, deed]);
    }
    for cipher in ciphers() {
        let Some(tally) = run_script(&deeds, |server| job(server, cipher.clone(), 1)) else {
            return;
        };
        assert_eq!(tally.files, 18, "{:?}", tally.failures);
        assert_eq!(tally.failed(), 6, "{:?}", tally.failures);
        for (deed, said) in bad {
            // What comes too much may come with the last record that was due, or not be waited for.
            let n: u64 =
                tally.failures.iter().filter(|(why, _)| why.contains(said)).map(|(_, n)| n).sum();
            assert_eq!(n, 1, "{deed:?}: {:?}", tally.failures);
        }
    }
}

/// Without decrypting, lengths of records tell as much.
#[test]
fn what_is_too_short_or_too_long_shows_without_decrypting() {
    let deeds = [Deed::Serve, Deed::Cut, Deed::TooMuch, Deed::Serve, Deed::Garble];
    for cipher in ciphers() {
        // The first one is decrypted.
        let one_by_one =
            |server: &Server| Job { connections: 1, ..job(server, cipher.clone(), 1_000_000) };
        let Some(tally) = run_script(&deeds, one_by_one) else { return };
        assert_eq!((tally.files, tally.failed()), (2, 3), "{:?}", tally.failures);
        assert!(tally.failures.keys().any(|why| why.contains("in the middle of the file")));
        assert!(tally.failures.keys().any(|why| why.contains("more came")));
    }
}

#[test]
fn who_is_silent_is_given_up() {
    let Some(server) =
        Server::start(SIZE, vec![Deed::Serve, Deed::Stall, Deed::Ignore, Deed::Serve])
    else {
        return;
    };
    let [cipher, _] = ciphers();
    let silent = Job { connections: 1, patience: 1.0, seconds: 8.0, ..job(&server, cipher, 1) };
    let Some(tally) = run(silent) else { return };
    let reasons: Vec<_> = tally.failures.keys().collect();
    assert_eq!(reasons, ["nothing was heard for 1.0 s"]);
    // On a busy machine it may be the same with others.
    assert!(tally.failed() >= 2 && tally.files >= 2, "{tally:?}");
}

#[test]
fn one_that_is_late_is_the_longest_latency() {
    let late = Duration::from_millis(400);
    let mut deeds = vec![Deed::Serve; 30];
    deeds[12] = Deed::Late(late);
    let [_, cipher] = ciphers();
    let Some(tally) = run_script(&deeds, |server| job(server, cipher.clone(), 2)) else { return };
    assert_eq!((tally.files, tally.failed()), (30, 0));
    let slow = |list: &[u32]| list.iter().filter(|micros| **micros >= 400_000).count();
    // Those that wait for the end of the run are told as well, once; on a busy machine others may be slow.
    assert!(slow(&tally.first_byte) >= 1 && tally.first_byte.len() >= 30, "{:?}", tally.first_byte);
    assert!(slow(&tally.whole) >= 1 && tally.whole.len() >= 30, "{:?}", tally.whole);
}

#[test]
fn a_cipher_that_was_not_asked_for_is_a_failure() {
    let Some(server) = Server::start(SIZE, vec![Deed::Serve]) else { return };
    let [cipher, _] = ciphers();
    // Both are offered under one name; the server takes what it prefers.
    let name = "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-RSA-AES128-GCM-SHA256".to_owned();
    let two = Job { seconds: 0.3, ..job(&server, Cipher { name, ..cipher }, 1) };
    let Some(tally) = run(two) else { return };
    assert_eq!(tally.files, 0);
    let why = tally.failures.keys().next().unwrap();
    assert!(why.starts_with("the server chose ECDHE-RSA-AES256-GCM-SHA384, not"), "{why}");
}
