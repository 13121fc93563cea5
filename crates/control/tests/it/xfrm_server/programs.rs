//! Programs that were not made for this, led here by the preloaded library.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use convoy_control::xfrm::{Insertion, Server};
use convoy_xfrm::Group;

use super::peer::{Peer, until};
use super::{Running, allocate, event, log};

pub(crate) fn preloaded(program: impl AsRef<OsStr>, socket: &Path) -> Command {
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join("libconvoy_xfrm_preload.so");
    assert!(library.exists(), "{} is not there", library.display());
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", library).env("CONVOY_XFRM_SOCKET", socket);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A program that ends with its test, however that ends.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn has_ip() -> bool {
    let has = Command::new("ip").arg("-V").output().is_ok();
    if !has {
        println!("SKIPPED: no ip of iproute2");
    }
    has
}

/// Runs `ip xfrm`; what it says, on one channel or the other.
fn ip(socket: &Path, arguments: &str) -> Result<String, String> {
    let command = &mut preloaded("ip", socket);
    let output = command.arg("xfrm").args(arguments.split_whitespace()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        assert_eq!(text(&output.stderr), "", "{arguments}");
        Ok(text(&output.stdout))
    } else {
        Err(text(&output.stderr))
    }
}

const STATE: &str = "state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1000 reqid 7 mode tunnel \
    aead rfc4106(gcm(aes)) 0x000102030405060708090a0b0c0d0e0f10111213 128";
const POLICY: &str = "policy add src 10.1.0.0/24 dst 10.2.0.0/24 dir out tmpl src 192.0.2.1 \
    dst 192.0.2.2 proto esp mode tunnel";

#[test]
fn ip_adds_lists_counts_and_deletes() {
    if !has_ip() {
        return;
    }
    let running = Running::new();
    let ip = |arguments: &str| ip(running.path(), arguments);
    assert_eq!(ip(STATE).as_deref(), Ok(""));
    assert!(ip(STATE).unwrap_err().contains("File exists"));
    assert_eq!(ip(POLICY).as_deref(), Ok(""));
    let listed = ip("state list").unwrap();
    assert!(listed.contains("proto esp spi 0x00001000 reqid 7 mode tunnel"), "{listed}");
    assert!(listed.contains("0x000102030405060708090a0b0c0d0e0f10111213 128"), "{listed}");
    let got = ip("state get src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1000").unwrap();
    assert!(got.contains("reqid 7"), "{got}");
    let listed = ip("policy list").unwrap();
    assert!(listed.contains("src 10.1.0.0/24 dst 10.2.0.0/24"), "{listed}");
    assert!(ip("state count").unwrap().contains("SAD count 1"));
    assert!(ip("policy count").unwrap().contains("SPD IN  0 OUT 1 FWD 0"));
    let allocated = ip("state allocspi src 192.0.2.1 dst 192.0.2.2 proto esp min 600 max 600");
    assert!(allocated.unwrap().contains("spi 0x00000258"));
    // Words of the server, and of the parser before it.
    let refused = ip("policy setdefault in block").unwrap_err();
    assert!(refused.contains("not in these tests"), "{refused}");
    // One datagram with many requests in it.
    let one = running.peer();
    (0..100).for_each(|spi| drop(one.ask(1, &allocate(1000 + spi)).unwrap()));
    assert!(ip("state count").unwrap().contains("SAD count 102"));
    ip("state deleteall").unwrap();
    assert!(ip("state count").unwrap().contains("SAD count 0"));
    ip("policy deleteall").unwrap();
    assert_eq!(ip("policy list").as_deref(), Ok(""));
    assert_eq!(ip(STATE).as_deref(), Ok(""));
    ip("state flush").unwrap();
    ip("policy flush").unwrap();
    assert!(ip("state count").unwrap().contains("SAD count 0"));
}

#[test]
fn ip_lists_very_many_policies() {
    if !has_ip() {
        return;
    }
    let running = Running::new();
    for number in 0..20_000 {
        running.databases.policies().insert(super::policy(number), Insertion::New, 1).unwrap();
    }
    let listed = ip(running.path(), "policy list").unwrap();
    assert_eq!(listed.matches("dir out").count(), 20_000);
}

#[test]
fn a_second_daemon_is_named_beside_the_first() {
    let _ = log();
    if !has_ip() {
        return;
    }
    let running = Running::new();
    let me = std::process::id();
    let first = Peer::bound(running.path(), 5, 3);
    assert_eq!(first.counts(1), 0);
    assert!(log().contains(&format!("(pid {me}) listens for acquire, expire\n")), "{}", log());
    // The same process once more is no other daemon.
    assert_eq!(Peer::bound(running.path(), 6, 1).counts(1), 0);
    assert!(log().contains(&format!("(pid {me}) listens for acquire\n")), "{}", log());
    // `ip` by another name: `ip xfrm monitor` is known to be no daemon.
    let folder = tempfile::tempdir().unwrap();
    let path = std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .map(|folder| folder.join("ip"))
        .find(|program| program.exists());
    let iked = folder.path().join("iked");
    std::os::unix::fs::symlink(path.unwrap(), &iked).unwrap();
    let child = preloaded("stdbuf", running.path())
        .args(["-oL", "bash", "-c", "exec -a ip \"$0\" xfrm monitor"])
        .arg(iked)
        .spawn()
        .map(Started);
    let mut child = child.unwrap();
    let second = child.0.id();
    let warned = || {
        log().lines().any(|line| {
            line.contains("WARN")
                && line.contains(&format!("iked (pid {second}) listens for"))
                && line.contains(&format!("(pid {me}): both would answer the same events"))
        })
    };
    until("the second is told of", warned);
    // And it hears what happens.
    assert_eq!(ip(running.path(), STATE).as_deref(), Ok(""));
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let heard = lines.find(|line| line.contains("proto esp spi")).unwrap();
    assert!(heard.contains("0x00001000"), "{heard}");
    assert_eq!(ip(running.path(), "state flush").as_deref(), Ok(""));
    assert!(lines.any(|line| line.starts_with("Flushed state")));
}

#[test]
fn a_monitor_goes_on_with_the_next_server() {
    if !has_ip() {
        return;
    }
    let _ = log();
    let Running { databases, multicast, server, folder } = Running::new();
    let path = server.path().to_owned();
    let spawned = preloaded("stdbuf", &path).args(["-oL", "ip", "xfrm", "monitor"]).spawn();
    let mut child = spawned.map(Started).unwrap();
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let who = format!("(pid {})", child.0.id());
    let listens = || log().matches(&who).count();
    until("it listens", || listens() > 0);
    let before = listens();
    // The events of a request and others are in order.
    multicast.send(Group::Expire, event(1));
    assert_eq!(ip(&path, STATE).as_deref(), Ok(""));
    assert!(lines.next().unwrap().starts_with("Flushed state proto esp"));
    assert!(lines.next().unwrap().starts_with("src 192.0.2.1 dst 192.0.2.2"));
    drop(server);
    let server = Server::start(&path, databases, multicast.clone()).unwrap();
    until("it listens again", || listens() > before);
    // It says that events were lost, and goes on.
    let mut errors = BufReader::new(child.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let lost = errors.next().unwrap();
    assert!(lost.contains("No buffer space available"), "{lost}");
    multicast.send(Group::Expire, event(2));
    assert!(lines.any(|line| line.starts_with("Flushed state proto esp")));
    drop((server, folder));
}

/// The client of the library's own tests.
fn client(folder: &Path) -> Option<PathBuf> {
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../xfrm-preload/tests/client/client.c");
    let program = folder.join("client");
    let compiler =
        Command::new("cc").args(["-O2", "-pthread", "-o"]).args([&program, &source]).status();
    match compiler {
        Ok(status) => {
            assert!(status.success(), "the client does not compile");
            Some(program)
        }
        Err(error) => {
            println!("SKIPPED: no C compiler: {error}");
            None
        }
    }
}

/// One program, printing all it sees, on the kernel's sockets and on these.
#[test]
fn a_program_sees_what_the_kernel_shows_it() {
    let running = Running::new();
    let Some(program) = client(running.folder.path()) else { return };
    let text = |command: &mut Command| {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let ours = text(preloaded(&program, running.path()).arg("same"));
    assert!(ours.contains("threads: 0 failures"), "{ours}");
    let is_allowed = Command::new("unshare").args(["-n", "true"]).status();
    if !is_allowed.is_ok_and(|status| status.success()) {
        println!("SKIPPED: no namespace to ask the kernel in");
        return;
    }
    let theirs = text(Command::new("unshare").arg("-n").arg(&program).arg("same"));
    assert_eq!(ours, theirs);
}
