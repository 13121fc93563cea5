//! The filter of system calls (seccomp) under which a started gateway runs.
//!
//! Three lists, each a filter of its own; the kernel does what the strictest says. What no list knows fails
//! with `ENOSYS`, at which the C library and std take the older way they have for older kernels: a call that was
//! forgotten here, or that a newer C library prefers, costs at most the function that needs it. What somebody
//! does who has taken the gateway over (run a program, look into other processes) ends it.

mod calls;

use anyhow::Context as _;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter_all_threads};

use super::{Programs, limits::SyscallFilter};
use calls::Rules;

/// Puts all threads under the filter, for ever.
///
/// # Errors
/// Fails if the kernel or the processor's family has no such filters.
pub(super) fn install(programs: Programs, mode: SyscallFilter) -> anyhow::Result<()> {
    let uses_bpf = programs == Programs::Changing;
    let filters = match mode {
        SyscallFilter::Off => return Ok(()),
        SyscallFilter::Log => logging(uses_bpf)?,
        SyscallFilter::On => filters(uses_bpf)?,
    };
    for filter in &filters {
        apply_filter_all_threads(filter).context("the kernel refuses the filter")?;
    }
    Ok(())
}

/// Puts the helper under a filter of its own.
///
/// # Errors
/// Fails if the kernel or the processor's family has no such filters.
pub(super) fn install_for_helper() -> anyhow::Result<()> {
    let unknown = SeccompAction::Errno(libc::EPERM as u32);
    let filter = compile(calls::for_helper()?, SeccompAction::Allow, unknown)?;
    apply_filter_all_threads(&filter).context("the kernel refuses the filter")
}

/// In the order in which they are installed: the last one keeps further ones out.
fn filters(bpf: bool) -> anyhow::Result<Vec<BpfProgram>> {
    let mut allowed = calls::allowed(std::process::id(), bpf)?;
    // Judged by the filters below alone.
    allowed.extend(calls::fatal().chain(calls::refused()).map(|call| (call, Vec::new())));
    let plain =
        |calls: &mut dyn Iterator<Item = i64>| calls.map(|call| (call, Vec::new())).collect();
    let allow = SeccompAction::Allow;
    let unknown = SeccompAction::Errno(libc::ENOSYS as u32);
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    Ok(vec![
        compile(plain(&mut calls::fatal()), SeccompAction::KillProcess, allow.clone())?,
        compile(plain(&mut calls::refused()), refuse, allow.clone())?,
        compile(allowed, allow, unknown)?,
    ])
}

/// One that lets everything pass and has the kernel name what [`filters`] would not.
fn logging(bpf: bool) -> anyhow::Result<Vec<BpfProgram>> {
    let allowed = calls::allowed(std::process::id(), bpf)?;
    Ok(vec![compile(allowed, SeccompAction::Allow, SeccompAction::Log)?])
}

/// Makes a program with one action for calls of these rules, and another for all others.
fn compile(
    rules: Rules,
    these: SeccompAction,
    others: SeccompAction,
) -> anyhow::Result<BpfProgram> {
    let family = std::env::consts::ARCH
        .try_into()
        .context("there is no filter for this family of processors")?;
    let filter = SeccompFilter::new(rules, others, these, family);
    filter.and_then(BpfProgram::try_from).context("cannot make the filter")
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
    use std::process::{Command, Output};
    use std::time::Duration;

    use nix::errno::Errno;
    use nix::sched::{CloneFlags, unshare};

    use super::*;

    /// Tells the program of these tests, run by itself, what to do.
    const CHILD: &str = "CONVOY_TEST_UNDER_FILTER";

    fn under_the_filter(what: &str) -> Output {
        let own = std::env::current_exe().unwrap();
        let test = "privileges::filter::tests::child_under_the_filter";
        Command::new(own).args(["--exact", test, "--nocapture"]).env(CHILD, what).output().unwrap()
    }

    fn apply(filters: &[BpfProgram]) {
        filters.iter().for_each(|filter| apply_filter_all_threads(filter).unwrap());
    }

    #[test]
    fn child_under_the_filter() {
        let Ok(what) = std::env::var(CHILD) else { return };
        match &*what {
            "logged program" => apply(&logging(false).unwrap()),
            _ => apply(&filters(false).unwrap()),
        }
        match &*what {
            "program" => panic!("{}", Command::new("/bin/true").exec()),
            "logged program" => assert!(Command::new("/bin/true").status().unwrap().success()),
            "process" => assert!(Command::new("/bin/true").status().is_err()),
            "namespace" => assert_eq!(unshare(CloneFlags::CLONE_NEWNET), Err(Errno::EPERM)),
            "sockets" => sockets(),
            "work" => work(),
            "abort" => std::process::abort(),
            other => panic!("{other}"),
        }
        println!("done: {what}");
    }

    fn sockets() {
        use socket2::{Domain, Protocol, Socket, Type};
        let refused = |made: std::io::Result<Socket>| {
            assert_eq!(made.map(drop).unwrap_err().raw_os_error(), Some(libc::ENOSYS));
        };
        drop(Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap());
        // A Unix socket leads to other services of this host, as does a pair of datagrams.
        for domain in [Domain::VSOCK, Domain::UNIX] {
            refused(Socket::new(domain, Type::STREAM, None));
        }
        drop(Socket::pair(Domain::UNIX, Type::STREAM.cloexec(), None).unwrap());
        drop(Socket::pair(Domain::UNIX, Type::SEQPACKET, None).unwrap());
        refused(Socket::pair(Domain::UNIX, Type::DGRAM, None).map(|(one, _)| one));
        let netlink = |protocol: i32| {
            let domain = Domain::from(libc::AF_NETLINK);
            Socket::new(domain, Type::RAW, Some(Protocol::from(protocol)))
        };
        drop(netlink(libc::NETLINK_ROUTE).unwrap());
        drop(netlink(libc::NETLINK_NETFILTER).unwrap());
        for protocol in [libc::NETLINK_XFRM, libc::NETLINK_AUDIT, libc::NETLINK_GENERIC] {
            refused(netlink(protocol));
        }
    }

    /// Some of what a gateway does.
    fn work() {
        let folder = tempfile::tempdir().unwrap();
        let [fresh, file] = ["a.new", "a"].map(|name| folder.path().join(name));
        File::create(&fresh).unwrap().write_all(b"x").unwrap();
        File::open(&fresh).unwrap().sync_all().unwrap();
        File::open(&fresh).unwrap().try_lock().unwrap();
        std::fs::rename(&fresh, &file).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(1));
            TcpStream::connect(address).unwrap().write_all(b"hello").unwrap();
        });
        let mut heard = String::new();
        listener.accept().unwrap().0.read_to_string(&mut heard).unwrap();
        client.join().unwrap();
        assert_eq!(heard, "hello");
    }

    #[test]
    fn a_gateway_that_was_taken_over_cannot_run_a_program() {
        let output = under_the_filter("program");
        assert_eq!(output.status.signal(), Some(libc::SIGSYS), "{output:?}");
    }

    #[test]
    fn what_a_gateway_needs_works_and_what_it_does_not_fails() {
        for what in ["work", "process", "namespace", "sockets", "logged program"] {
            let output = under_the_filter(what);
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains(&format!("done: {what}")), "{output:?}");
            assert!(output.status.success(), "{output:?}");
        }
    }

    #[test]
    fn a_gateway_can_still_abort() {
        assert_eq!(under_the_filter("abort").status.signal(), Some(libc::SIGABRT));
    }
}
