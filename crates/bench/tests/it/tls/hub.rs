//! The synchronisation server, and load processes that are wrong, die or hang.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use convoy_bench::peer::libssl::{LibSsl, Version};
use convoy_bench::tls::hub::{Hub, PROTOCOL};
use convoy_bench::tls::job::{Cipher, Generator, Job};
use convoy_bench::tls::member::{self, JoinError};

use super::server::{Deed, Server};

const PATIENCE: Duration = Duration::from_secs(20);

fn hub() -> Hub {
    Hub::listen("127.0.0.1:0", "secret").unwrap().with_patience(Duration::from_millis(500))
}

/// A load process, on a thread.
fn join(hub: &Hub, token: &'static str) -> JoinHandle<Result<(), JoinError>> {
    let server = hub.address().to_string();
    thread::spawn(move || {
        let library = LibSsl::load(None).unwrap();
        member::work(&library, &server, token, PATIENCE)
    })
}

fn job(server: &Server) -> Job {
    Job {
        generator: Generator::Convoy,
        server: server.address.to_string(),
        path: "/file".to_owned(),
        size: 1000,
        cipher: Cipher {
            name: "ECDHE-RSA-AES128-GCM-SHA256".to_owned(),
            version: Version::Tls12,
            encrypt_then_mac: false,
        },
        connections: 5,
        seconds: 1.0,
        verify_every: 1,
        patience: 30.0,
    }
}

fn has_libssl() -> bool {
    LibSsl::load(None).map_err(|error| println!("SKIPPED: {error}")).is_ok()
}

#[test]
fn processes_share_the_connections_and_their_counts_add_up() {
    if !has_libssl() {
        return;
    }
    let mut hub = hub().with_patience(PATIENCE);
    let members = [join(&hub, "secret"), join(&hub, "secret")];
    hub.gather(2, PATIENCE).unwrap();
    let mut last = None;
    // On a busy machine it takes longer.
    for seconds in [1.0, 8.0, 30.0] {
        let deeds = [vec![Deed::Serve; 50], vec![Deed::Ignore]].concat();
        let Some(server) = Server::start(1000, deeds) else { return };
        let tally = hub.run(&Job { seconds, ..job(&server) }).unwrap();
        let is_over = tally.files >= 50;
        last = Some(tally);
        if is_over {
            break;
        }
    }
    let tally = last.unwrap();
    assert_eq!((tally.files, tally.bytes, tally.failed()), (50, 50_000, 0), "{tally:?}");
    assert!(tally.seconds >= 1.0 && tally.cpu_seconds > 0.0);
    drop(hub);
    for member in members {
        member.join().unwrap().unwrap();
    }
}

#[test]
fn a_wrong_token_or_version_is_refused_with_the_reason() {
    if !has_libssl() {
        return;
    }
    let mut hub = hub();
    let wrong = join(&hub, "guessed");
    let mut told = String::new();
    // On a busy machine it comes later.
    while !wrong.is_finished() {
        told += &hub.gather(1, Duration::from_secs(1)).unwrap_err().to_string();
    }
    assert!(told.contains("1 of 1 load processes"), "{told}");
    assert!(told.contains("its token is wrong"), "{told}");
    let error = wrong.join().unwrap().unwrap_err();
    assert!(matches!(&error, JoinError::Refused { why, .. } if why.contains("token")), "{error}");

    let mut old = TcpStream::connect(hub.address()).unwrap();
    let hello = r#"{"hello":{"protocol":"convoy-bench-tls 0","token":"secret","host":"old"}}"#;
    old.write_all(format!("{hello}\n").as_bytes()).unwrap();
    let error = hub.gather(1, Duration::from_secs(1)).unwrap_err().to_string();
    assert!(error.contains("one version on all hosts"), "{error}");
    let mut told = String::new();
    BufReader::new(old).read_line(&mut told).unwrap();
    assert!(told.contains("refused") && told.contains(PROTOCOL), "{told}");
}

/// Joins, hears that a run is to be set up, and then does `then` with the connection.
fn stranger(hub: &Hub, then: impl FnOnce(TcpStream) + Send + 'static) -> JoinHandle<()> {
    let address = hub.address();
    thread::spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        let hello = format!(
            r#"{{"hello":{{"protocol":"{PROTOCOL}","token":"secret","host":"stranger"}}}}"#
        );
        stream.write_all(format!("{hello}\n").as_bytes()).unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        for _ in ["welcome", "prepare"] {
            reader.read_line(&mut line).unwrap();
        }
        then(stream);
    })
}

/// Behaviour of a load process once it was told to set a run up.
type Death = fn(TcpStream);

#[test]
fn a_process_that_dies_or_hangs_makes_the_run_void() {
    let Some(server) = Server::start(1000, vec![Deed::Serve]) else { return };
    let deaths: [(Death, &str); 5] = [
        (drop, "has gone"),
        (
            |mut stream| stream.write_all(b"{\"unable\":\"no cipher\"}\n").unwrap(),
            "cannot: no cipher",
        ),
        (|mut stream| stream.write_all(b"nonsense\n").unwrap(), "has gone"),
        (|mut stream| stream.write_all(b"\"ready\"\n").unwrap(), "has gone"),
        (
            |mut stream| {
                stream.write_all(b"\"ready\"\n").unwrap();
                thread::sleep(Duration::from_secs(3));
            },
            "does not answer",
        ),
    ];
    for (death, said) in deaths {
        let mut hub = hub();
        let stranger = stranger(&hub, death);
        hub.gather(1, PATIENCE).unwrap();
        let begun = Instant::now();
        let error = hub.run(&job(&server)).unwrap_err().to_string();
        assert!(error.contains("void") && error.contains("stranger"), "{error}");
        assert!(error.contains(said), "{said}: {error}");
        assert!(begun.elapsed() < Duration::from_secs(10));
        drop(hub);
        stranger.join().unwrap();
    }
}
