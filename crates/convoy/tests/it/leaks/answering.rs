//! Questions of the kernel are answered again after an error.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Caller, Echo, World, with_a_free_port};
use crate::common::{Gateway, PATIENCE};

/// The thread of a gateway that answers.
fn thread(gateway: &Gateway) -> String {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", gateway.pid())).unwrap();
    let is_it = |task: &std::fs::DirEntry| {
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        "convoy-questions".starts_with(name.trim()) && name.starts_with("convoy-quest")
    };
    tasks.map(Result::unwrap).find(is_it).unwrap().file_name().into_string().unwrap()
}

#[test]
fn questions_are_answered_again_after_an_error_of_the_kernel() {
    let Some(world) = World::new(with_a_free_port) else { return };
    let _echo = Echo::start(&world);
    let [a, _b] = world.start();
    assert!(Caller::new(&world).is_answered(&world), "{}", a.log());
    let fault = "sendto:error=ENOBUFS:when=1";
    let mut strace = Command::new("strace");
    strace.args(["-p", &thread(&a), "-e", "trace=sendto", "-e", &format!("inject={fault}")]);
    let strace = strace.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut strace = match strace {
        Ok(strace) => strace,
        Err(error) => return println!("SKIPPED: strace: {error}"),
    };
    let failed = || a.log().contains("verdict requests cannot be answered");
    let until = Instant::now() + PATIENCE;
    while !failed() && strace.try_wait().unwrap().is_none() {
        // The fault is injected once it traces.
        let _ = Caller::new(&world).is_answered(&world);
        assert!(Instant::now() < until, "no fault: {}", a.log());
    }
    let _ = strace.kill();
    let _ = strace.wait();
    if !failed() {
        return println!("SKIPPED: strace may not trace here");
    }
    let until = Instant::now() + PATIENCE;
    while !Caller::new(&world).is_answered(&world) {
        assert!(Instant::now() < until, "nobody answers any more: {}", a.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(a.log().contains("verdict requests are answered again"), "{}", a.log());
}
