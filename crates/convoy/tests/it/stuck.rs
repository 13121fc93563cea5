//! A worker that is stuck, and a disk that does not answer, keep only those waiting who asked for a change.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Gateway, PATIENCE, Plan, can_make_namespaces, exec, status};
use convoy_lab::{Family, Topology, TopologyConfig};
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

/// The first worker of a gateway, which does nothing until this is dropped.
struct Held(Pid);

impl Held {
    /// Says why, and returns nothing, where threads cannot be held.
    fn of(gateway: &Gateway) -> Option<Self> {
        let threads = fs::read_dir(format!("/proc/{}/task", gateway.pid())).unwrap();
        let mut threads = threads.map(|thread| thread.unwrap().path());
        let is_worker = |thread: &std::path::PathBuf| {
            fs::read_to_string(thread.join("comm")).is_ok_and(|name| name.trim() == "convoy-w0")
        };
        let worker = threads.find(is_worker).unwrap();
        let worker = Pid::from_raw(worker.file_name().unwrap().to_str().unwrap().parse().unwrap());
        if let Err(error) = ptrace::attach(worker) {
            println!("SKIPPED: no thread can be held here: {error}");
            return None;
        }
        assert_eq!(waitpid(worker, None), Ok(WaitStatus::Stopped(worker, Signal::SIGSTOP)));
        Some(Self(worker))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = ptrace::detach(self.0, None);
    }
}

fn sas(site: &Path) -> usize {
    status(site)["sas"].as_array().unwrap().len()
}

/// Begins to add an SA by `ip xfrm`.
fn add_sa(lab: &Topology, socket: &Path, spi: usize) -> Child {
    let wire = |site: &convoy_lab::Site| site.wire_address(Family::V4);
    let (here, there) = (wire(&lab.a), wire(&lab.b));
    let arguments = format!(
        "xfrm state add src {here} dst {there} proto esp spi {spi} reqid 1 mode tunnel \
         replay-window 32 aead rfc4106(gcm(aes)) 0x{spi:040x} 128"
    );
    let mut command = exec(socket);
    command.args(["timeout", "20", "ip"]).args(arguments.split_whitespace());
    command.stdout(Stdio::null());
    lab.a.gateway.spawn(&mut command).unwrap()
}

/// Seen before: each `NEWSA` held the gateway's lock until its workers saw it, so status came after two seconds.
/// A worker that rests takes a change before its next packet, so nobody waits for it.
#[test]
fn a_worker_that_is_held_while_it_rests_keeps_no_request_waiting() {
    if !can_make_namespaces() {
        return;
    }
    let (folder, memory) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
    let lab = Topology::build(&TopologyConfig { named: false, ..Default::default() }).unwrap();
    let (site, socket) = (folder.path().join("site.toml"), folder.path().join("xfrm.sock"));
    let text = format!(
        "name = \"a\"\ncontrol_socket = \"{0}/control.sock\"\n[plain]\ninterface = \"convoy0\"\n\
         [xfrm]\nsocket = \"{0}/xfrm.sock\"\nstate = \"{1}/a\"\n",
        folder.path().display(),
        memory.path().display(),
    );
    fs::write(&site, text).unwrap();
    let gateway = Gateway::start(&lab.a.gateway, &site);
    let Some(held) = Held::of(&gateway) else { return };
    for spi in 257..262 {
        let mut request = add_sa(&lab, &socket, spi);
        while sas(&site) < spi - 256 {}
        assert!(request.wait().unwrap().success(), "{}", gateway.log());
    }
    assert!(!gateway.log().contains("workers do not see a change"), "{}", gateway.log());
    drop(held);
    let mut request = add_sa(&lab, &socket, 300);
    assert!(request.wait().unwrap().success(), "{}", gateway.log());
}

/// A reload that waits for the disk of the state folder holds the gateway.
#[test]
fn status_answers_and_says_so_while_the_disk_does_not() {
    if !can_make_namespaces() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let lab = Topology::build(&TopologyConfig { named: false, ..Default::default() }).unwrap();
    let site = Plan::simple().write('a', folder.path());
    let gateway = Gateway::start(&lab.a.gateway, &site);
    assert_eq!(status(&site)["health"]["level"], "ok");
    // As long as a disk takes that does not answer: longer than a status waits.
    let fault = "inject=fdatasync,fsync:delay_enter=20000000";
    let mut strace = Command::new("strace");
    strace.args([
        "-f",
        "-p",
        &gateway.pid().to_string(),
        "-e",
        "trace=fdatasync,fsync",
        "-e",
        fault,
    ]);
    let mut strace = match strace.stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
        Ok(strace) => strace,
        Err(error) => return println!("SKIPPED: strace: {error}"),
    };
    // A new key needs a lease of its own.
    let text = fs::read_to_string(&site).unwrap();
    let key = text.lines().find(|line| line.starts_with("key = ")).unwrap().to_owned();
    let mut reloads = Vec::new();
    let until = Instant::now() + PATIENCE;
    let mut at = 0;
    let seen = loop {
        at += 1;
        let fresh = format!("{at:08x}").repeat(5);
        fs::write(&site, text.replacen(&key, &format!("key = \"{fresh}\""), 1)).unwrap();
        let mut reload = Command::new(env!("CARGO_BIN_EXE_convoy"));
        reload.arg("reload").arg(&site).stdout(Stdio::null()).stderr(Stdio::null());
        reloads.push(reload.spawn().unwrap());
        // The fault is injected once it traces.
        std::thread::sleep(Duration::from_millis(500));
        let status = status(&site);
        let is_busy = status["health"]["reasons"].as_array().unwrap().iter().any(|reason| {
            reason.as_str().unwrap().contains("a request has blocked the gateway for more than 3 s")
        });
        if is_busy || strace.try_wait().unwrap().is_some() || Instant::now() > until {
            break (is_busy, status["health"]["level"] == "critical");
        }
    };
    let was_tracing = strace.try_wait().unwrap().is_none();
    let _ = strace.kill();
    let _ = strace.wait();
    for reload in &mut reloads {
        let _ = reload.wait();
    }
    if !was_tracing {
        return println!("SKIPPED: strace may not trace here");
    }
    assert_eq!(seen, (true, true), "{}", gateway.log());
    assert_eq!(status(&site)["health"]["level"], "ok");
}
