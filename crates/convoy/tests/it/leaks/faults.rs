//! The kernel fails while a request of a daemon, or a reload, is carried out: it is in force, or nothing has changed.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::beside_daemons::{ip_xfrm, try_ip_xfrm, with_daemons};
use super::{Caller, Echo, World, with_a_free_port};
use crate::common::{Gateway, PATIENCE, convoy};

const PORT: &str = "src 10.1.0.0/24 dst 10.2.0.0/24 proto udp dport 9 dir out";

/// Lets one send of the thread that serves daemons fail, from now on the `nth`.
struct Fault {
    strace: Child,
    file: PathBuf,
}

impl Fault {
    /// None where nothing may be traced.
    fn begin(world: &World, gateway: &Gateway, nth: u32) -> Option<Self> {
        Self::of(world, gateway, "xfrm", nth)
    }

    /// The same of another thread, and of each that it begins meanwhile.
    fn of(world: &World, gateway: &Gateway, thread: &str, nth: u32) -> Option<Self> {
        let tasks = fs::read_dir(format!("/proc/{}/task", gateway.pid())).unwrap();
        let mut paths = tasks.map(|task| task.unwrap().path());
        let is_it =
            |task: &PathBuf| fs::read_to_string(task.join("comm")).unwrap().trim_end() == thread;
        let task = paths.find(is_it).unwrap();
        let file = world.folder.path().join("strace");
        let inject = format!("inject=sendto:error=ENOBUFS:when={nth}");
        let mut strace = Command::new("strace");
        strace.args(["-f", "-yy", "-e", "trace=sendto", "-e", &inject, "-o"]).arg(&file);
        strace.arg("-p").arg(task.file_name().unwrap());
        let strace = strace.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
        let mut fault = Self { strace, file };
        let until = Instant::now() + PATIENCE;
        while fs::read_to_string(task.join("status")).unwrap().contains("TracerPid:\t0\n") {
            if fault.strace.try_wait().unwrap().is_some() {
                return None;
            }
            assert!(Instant::now() < until, "strace does not begin");
        }
        Some(fault)
    }

    /// Ends it; what was sent meanwhile.
    fn end(mut self) -> String {
        let pid = nix::unistd::Pid::from_raw(self.strace.id().try_into().unwrap());
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT);
        let _ = self.strace.wait();
        fs::read_to_string(&self.file).unwrap()
    }
}

/// Number of sends to the kernel that a request takes. None where nothing may be traced.
fn sends(world: &World, gateway: &Gateway, request: &str) -> Option<u32> {
    // None fails that is not there.
    let Some(fault) = Fault::begin(world, gateway, u16::MAX.into()) else {
        println!("SKIPPED: strace may not trace here");
        return None;
    };
    ip_xfrm(world, request);
    let said = fault.end();
    let sends = said.lines().filter(|line| line.contains("NETLINK")).count();
    Some(u32::try_from(sends).unwrap())
}

#[test]
fn policies_are_in_force_or_as_they_were_wherever_the_kernel_fails() {
    let Some(world) = World::new(|text| with_daemons(with_a_free_port(text))) else { return };
    let _echo = Echo::start(&world);
    let [a, _b] = world.start();
    let caller = Caller::new(&world);
    assert!(caller.is_answered(&world), "{}", a.log());
    let block = format!("policy add {PORT} priority 1 action block");
    let pass = format!("policy add {PORT} priority 1");
    let delete = format!("policy delete {PORT}");
    // One comes and blocks what passed, or goes and what it let pass is blocked by the one beneath it.
    let all = PORT.replace(" proto udp dport 9", "");
    let beneath = format!("policy add {all} priority 2 action block");
    for (before, request, undo) in [("", &block, &delete), (&*beneath, &delete, &pass)] {
        if !before.is_empty() {
            ip_xfrm(&world, &pass);
            ip_xfrm(&world, before);
        }
        let Some(sends) = sends(&world, &a, request) else { return };
        assert!(sends > 0, "{request}");
        assert!(!caller.is_answered(&world), "{request}: {}", a.log());
        ip_xfrm(&world, undo);
        let mut refused = 0;
        for nth in 1..=sends {
            assert!(caller.is_answered(&world), "{request}: {}", a.log());
            let fault = Fault::begin(&world, &a, nth).unwrap();
            let outcome = try_ip_xfrm(&world, request);
            let mut passes = caller.is_answered(&world);
            // strace counts sends of each thread apart: the first look at what a refusal left may fail, too. Until the
            // next one, a second later, packets are held.
            let until = Instant::now() + PATIENCE;
            while outcome.is_err() && !passes && Instant::now() < until {
                passes = caller.is_answered(&world);
            }
            let said = format!("{request}: {outcome:?}\n{}{}", fault.end(), a.log());
            assert_eq!(passes, outcome.is_err(), "{said}");
            let is_there = ip_xfrm(&world, "policy list").contains("dport 9");
            assert_eq!(is_there, outcome.is_ok() == (request == &block), "{said}");
            match outcome {
                Ok(_) => drop(ip_xfrm(&world, undo)),
                Err(_) => refused += 1,
            }
        }
        assert!(refused > 0, "{request}: {sends} sends");
    }
}

/// Reloads the file of side A with this text; whether it is in force.
fn reloads(world: &World, file: &str) -> bool {
    fs::write(&world.sites[0], file).unwrap();
    convoy(&["reload", world.sites[0].to_str().unwrap()]).status.success()
}

/// Sends to the packet filter of the thread that changed it last, with their numbers: strace counts those of each thread
/// apart, and others look at the packet filter meanwhile.
fn sends_to_packet_filter(said: &str) -> Vec<(&str, u32)> {
    let sends = || said.lines().filter(|line| line.contains("sendto("));
    let thread = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    // Changes come in a transaction (`NFNL_MSG_BATCH_BEGIN`).
    let changing = sends().rfind(|line| line.contains("nlmsg_type=0x10 "));
    let changing = changing.map(thread).unwrap_or_default();
    let of_thread = sends().filter(|line| thread(line) == changing).zip(1..);
    of_thread.filter(|(line, _)| line.contains("nlmsg_type=0xa")).collect()
}

/// Most reloads in which one send is looked for: how many come before it differs from time to time.
const TRIES: u32 = 5;

/// Answers of earlier policies about flows are believed as long as these are in force, and no longer.
fn a_reload_is_in_force_for_flows_or_refused(change: impl Fn(String) -> String) {
    let Some(world) = World::new(|text| change(with_a_free_port(text))) else { return };
    let _echo = Echo::start(&world);
    let [a, _b] = world.start();
    let passing = fs::read_to_string(&world.sites[0]).unwrap();
    let dropping = passing.replace("action = \"bypass\"", "action = \"discard\"");
    assert_ne!(passing, dropping);
    let caller = Caller::new(&world);
    assert!(caller.is_answered(&world), "{}", a.log());
    let Some(fault) = Fault::of(&world, &a, "control", u16::MAX.into()) else {
        return println!("SKIPPED: strace may not trace here");
    };
    assert!(reloads(&world, &dropping), "{}", a.log());
    let said = fault.end();
    let sends = sends_to_packet_filter(&said);
    assert!(!sends.is_empty() && !caller.is_answered_once(&world), "{said}{}", a.log());
    let mut refused = 0;
    for (_, nth) in &sends {
        for _ in 0..TRIES {
            assert!(reloads(&world, &passing) && caller.is_answered(&world), "{}", a.log());
            let fault = Fault::of(&world, &a, "control", *nth).unwrap();
            let is_in_force = reloads(&world, &dropping);
            let passes = match is_in_force {
                true => caller.is_answered_once(&world),
                // An answer may be late.
                false => caller.is_answered(&world),
            };
            let said = fault.end();
            let is_kernels = |line: &str| line.contains("NETLINK") || !line.contains("(INJECTED)");
            if !said.lines().all(is_kernels) {
                // Fewer sends came before this time, and what failed is the answer to whoever asked.
                continue;
            }
            assert_eq!(passes, !is_in_force, "send {nth} of {sends:?} failed:\n{said}{}", a.log());
            refused += u32::from(!is_in_force);
            break;
        }
    }
    // In force it is when nothing is believed any more that was answered before.
    assert!(refused > 0, "{sends:?}");
    assert!(
        !a.log().contains("flows still pass in clear by verdicts of earlier policies"),
        "{}",
        a.log()
    );
}

#[test]
fn a_reload_is_in_force_for_flows_or_refused_wherever_the_kernel_fails() {
    a_reload_is_in_force_for_flows_or_refused(|text| text);
}

#[test]
fn a_reload_beside_daemons_is_in_force_for_flows_or_refused_wherever_the_kernel_fails() {
    a_reload_is_in_force_for_flows_or_refused(with_daemons);
}
