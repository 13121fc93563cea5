//! The server goes and comes back under programs that go on.

use std::io::{BufRead as _, BufReader};

use crate::common::{Running, Server, Told, client, preloaded, until};

/// Waits for events in one way while the server is killed and started again.
fn events_go_on(how: &str) {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = client(folder.path()) else { return };
    let socket = folder.path().join("xfrm.sock");
    let server = Server::start(&socket);
    let mut child = preloaded(&program, &socket).args(["wait", how]).spawn().map(Running).unwrap();
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let bound = |resumed| Told::Bind { port: child.0.id(), groups: 2, resumed };
    let (first, again) = (bound(false), bound(true));
    until("bound", || server.told().contains(&first));
    server.emit(1);
    assert_eq!(lines.next().unwrap(), "came: ok [type 28 seq 1 port 0]");
    drop(server);
    // Long enough for a busy loop to show.
    std::thread::sleep(std::time::Duration::from_secs(2));
    let server = Server::start(&socket);
    until("bound again", || server.told().contains(&again));
    assert_eq!(lines.next().unwrap(), "came: ENOBUFS", "events were lost");
    server.emit(2);
    assert_eq!(lines.next().unwrap(), "came: ok [type 28 seq 2 port 0]");
    // And at once, without a time between.
    drop(server);
    let server = Server::start(&socket);
    until("bound a third time", || server.told().contains(&again));
    assert_eq!(lines.next().unwrap(), "came: ENOBUFS");
    server.emit(99);
    assert_eq!(lines.next().unwrap(), "came: ok [type 28 seq 99 port 0]");
    let used = lines.next().unwrap();
    let numbers: Vec<u32> = used.split(' ').filter_map(|word| word.parse().ok()).collect();
    // Some per attempt to reach a server, and hardly any time.
    assert!(numbers[0] < 40 && numbers[1] < 200, "{how}: {used}");
    assert!(child.0.wait().unwrap().success());
}

#[test]
fn poll_goes_on() {
    events_go_on("poll");
}

#[test]
fn select_goes_on() {
    events_go_on("select");
}

#[test]
fn epoll_registrations_go_on() {
    events_go_on("epoll");
}

#[test]
fn edge_triggered_epoll_registrations_go_on() {
    events_go_on("edge");
}

#[test]
fn calls_that_wait_go_on() {
    events_go_on("recv");
}

#[test]
fn requests_without_an_answer_get_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = client(folder.path()) else { return };
    let socket = folder.path().join("xfrm.sock");
    let server = Server::mute(&socket);
    let mut child = preloaded(&program, &socket).arg("unanswered").spawn().map(Running).unwrap();
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    until("asked", || server.requests() == 2);
    let mut next = || lines.next().unwrap();
    assert!(next().ends_with(" ok") && next().ends_with(" ok"));
    assert_eq!(next(), "sent");
    drop(server);
    assert_eq!(next(), "length: 36");
    for (what, seq) in [("first", 41), ("second", 42)] {
        let refused = format!("{what}: ok [type 2 seq {seq} port pid error ECONNREFUSED]");
        assert_eq!(next(), refused);
        assert!(next().starts_with(&format!("{what}: namelen 12 family 16 port 0")));
    }
    assert_eq!(next(), "none: EAGAIN");
    assert!(next().ends_with(" ECONNREFUSED"));
    assert_eq!(next(), "refused");
    let server = Server::start(&socket);
    assert_eq!(next(), "answered: ok [type 34 seq 43 port pid]");
    next();
    assert_eq!(next(), "after: ok len 12 family 16 pad 0 port pid groups 0");
    assert!(child.0.wait().unwrap().success());
    assert_eq!(server.requests(), 1);
}
