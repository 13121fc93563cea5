//! Network namespaces for tests: each has a thread of its own, in which things are opened.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)]

use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use nix::sched::{CloneFlags, unshare};

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace that lives as long as this value or anything opened in it.
pub struct Namespace {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Namespace {
    /// A fresh one with its loopback up, or the reason why there can be none.
    pub fn new() -> Result<Self, String> {
        let (jobs, todo) = channel::<Job>();
        let (ready, outcome) = channel();
        let thread = std::thread::spawn(move || {
            let entered = unshare(CloneFlags::CLONE_NEWNET)
                .map_err(|e| format!("no network namespace of one's own: {e}"))
                .and_then(|()| ip("link set lo up"));
            let failed = entered.is_err();
            ready.send(entered).unwrap();
            if !failed {
                todo.into_iter().for_each(|job| job());
            }
        });
        outcome.recv().unwrap()?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Runs `job` inside and returns what it returned. What it opened stays in the namespace.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = channel();
        let job: Job = Box::new(move || drop(done.send(job())));
        self.jobs.as_ref().unwrap().send(job).unwrap();
        result.recv().expect("the job panicked")
    }

    /// Runs `ip` inside, which must succeed.
    pub fn ip(&self, arguments: &str) {
        let arguments = arguments.to_owned();
        self.run(move || ip(&arguments)).unwrap();
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split_whitespace()).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr))),
        Err(error) => Err(format!("no ip command: {error}")),
    }
}

/// The value, or a loud skip of the calling test.
#[macro_export]
macro_rules! or_skip {
    ($value:expr) => {
        match $value {
            Ok(value) => value,
            Err(why) => {
                println!("SKIPPED: {why}");
                return;
            }
        }
    };
}

/// Bytes that do not repeat within any packet: byte `i` of stream `seed`.
pub fn pattern(seed: u64, from: u64, into: &mut [u8]) {
    for (i, byte) in into.iter_mut().enumerate() {
        let n = (from + i as u64).wrapping_add(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        *byte = (n >> 56) as u8;
    }
}
