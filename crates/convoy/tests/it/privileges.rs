//! Rights that a running gateway still has, and its work with them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::common::inside::{Inside, Outcome};
use crate::common::{Gateway, HELPER, PATIENCE, Plan, convoy, sandboxed, status, text};
use convoy_lab::traffic::{Ping, Watch};
use convoy_lab::{Family, Topology, TopologyConfig};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::fs::{StatVfsMountFlags, XattrFlags, setxattr, statvfs};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// Capabilities that every gateway keeps.
const ALWAYS: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::NET_RAW);

/// Capabilities that are kept for daemons, too.
const FOR_DAEMONS: CapabilitySet = CapabilitySet::NET_BIND_SERVICE.union(CapabilitySet::BPF);

/// Means by which a gateway that these tests start locks its memory: no limit, the right to raise it, or that to
/// pass it, which it then keeps. Nothing: it cannot.
pub(crate) fn lock() -> Option<CapabilitySet> {
    let own = capabilities(None).unwrap().effective;
    let is_free =
        getrlimit(Resource::Memlock).maximum.is_none() || own.contains(CapabilitySet::SYS_RESOURCE);
    match is_free {
        true => Some(CapabilitySet::empty()),
        false => Some(own & CapabilitySet::IPC_LOCK).filter(|right| !right.is_empty()),
    }
}

fn lab() -> Topology {
    Topology::build(&TopologyConfig { named: false, ..Default::default() }).unwrap()
}

/// The lines of the `status` file of every thread of a process, by thread.
fn threads(process: u32) -> BTreeMap<String, BTreeMap<String, String>> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let of = |path: &Path| {
        let text = fs::read_to_string(path.join("status")).ok()?;
        let pairs = text.lines().filter_map(|line| line.split_once(":\t"));
        Some(pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect())
    };
    // One may end meanwhile.
    tasks
        .map(|task| task.unwrap())
        .filter_map(|task| Some((task.file_name().into_string().unwrap(), of(&task.path())?)))
        .collect()
}

/// Every thread has these capabilities and no others, is filtered, and can gain nothing. What the bounding set
/// holds beyond them, `bound`, is what the gateway was started with and had no right to take out.
fn assert_narrow(gateway: &Gateway, kept: CapabilitySet, bound: CapabilitySet) {
    let own = capabilities(None).unwrap().permitted;
    let expected = format!("{:016x}", (kept & own).bits());
    let none = format!("{:016x}", 0);
    let threads = threads(gateway.pid());
    assert!(threads.len() > 3, "{threads:?}");
    for (thread, status) in &threads {
        let name = &status["Name"];
        let sets = ["CapPrm", "CapEff", "CapInh", "CapAmb"].map(|set| status[set].as_str());
        assert_eq!(sets, [&*expected, &*expected, &*none, &*none], "{thread} {name}");
        if own.contains(CapabilitySet::SETPCAP) {
            let bounding = u64::from_str_radix(&status["CapBnd"], 16).unwrap();
            assert_eq!(bounding & !(kept | bound).bits(), 0, "{thread} {name}");
        }
        assert_eq!(status["NoNewPrivs"], "1", "{thread} {name}");
        assert_eq!(status["Seccomp"], "2", "{thread} {name}");
    }
}

/// Brings another policy into force.
fn reload(site: &Path) {
    let text_before = fs::read_to_string(site).unwrap();
    let (head, _) = text_before.split_once("[[policy]]").unwrap();
    let other = "[[policy]]\nname = \"beside\"\naction = \"discard\"\nlocal = \"10.9.0.0/24\"\nremote = \"10.8.0.0/24\"\n";
    fs::write(site, text_before.replacen(head, &format!("{head}{other}"), 1)).unwrap();
    let output = convoy(&["reload", site.to_str().unwrap()]);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).contains("beside"), "{}", text(&output.stdout));
}

fn pings(lab: &Topology) -> (u64, u64) {
    let cancel = AtomicBool::new(false);
    let interval = Duration::from_millis(10);
    let ping = Ping { interval, timeout: PATIENCE, ..Ping::new(lab.b.host_address(Family::V4)) };
    let report = ping.run(&lab.a.host, &mut Watch::new(&cancel)).unwrap();
    (report.sent, report.received)
}

#[test]
fn a_gateway_that_runs_has_given_up_what_it_does_not_need_and_still_does_its_work() {
    if !crate::common::can_make_namespaces() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let lab = lab();
    let plan = Plan { workers: 2, ..Plan::simple() };
    let kept = ALWAYS | lock().unwrap_or(CapabilitySet::empty());
    let (site_a, site_b) = (plan.write('a', folder.path()), plan.write('b', folder.path()));
    let a = Gateway::start(&lab.a.gateway, &site_a);
    let b = Gateway::start(&lab.b.gateway, &site_b);
    assert_narrow(&a, kept, CapabilitySet::empty());
    assert_eq!(pings(&lab), (5, 5));
    reload(&site_a);
    assert_eq!(pings(&lab), (5, 5));
    assert_eq!(status(&site_a)["sas"].as_array().unwrap().len(), 2);
    // Threads that it made since have no more than those that made them.
    assert_narrow(&a, kept, CapabilitySet::empty());
    assert!(!a.log().contains("WARN"), "{}", a.log());
    assert!(a.terminate().success());
    assert!(b.terminate().success());
}

#[test]
fn a_gateway_for_daemons_runs_with_what_its_unit_leaves_it() {
    if !crate::common::can_make_namespaces() {
        return;
    }
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let lab = lab();
    let site = folder.path().join("g.toml");
    let gateway = for_daemons_by(&lab, folder.path(), sandboxed(folder.path()));
    assert_narrow(&gateway, ALWAYS | FOR_DAEMONS, CapabilitySet::empty());
    assert_eq!(children(gateway.pid()).len(), 0, "{}", gateway.log());
    assert!(!gateway.log().contains("cannot share UDP sockets"), "{}", gateway.log());
    let confinement = &status(&site)["confinement"];
    assert_eq!(
        confinement["landlock"].as_u64(),
        convoy_io::landlock::version().ok().map(u64::from)
    );
    let output = convoy(&["reload", site.to_str().unwrap()]);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(gateway.terminate().success());
}

#[test]
fn a_gateway_can_be_told_to_filter_nothing() {
    if !crate::common::can_make_namespaces() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let lab = lab();
    let site = Plan::simple().write('a', folder.path());
    for (mode, expected) in [("off", "0"), ("log", "2")] {
        let program = Command::new(env!("CARGO_BIN_EXE_convoy"));
        let words = ["--syscall-filter", mode];
        let mut gateway = Gateway::launch_with(&lab.a.gateway, program, &site, &words);
        assert!(gateway.wait_ready(), "not ready:\n{}", gateway.log());
        for (thread, status) in threads(gateway.pid()) {
            assert_eq!(status["Seccomp"], expected, "{thread} with {mode}");
            assert_eq!(status["NoNewPrivs"], "1", "{thread} with {mode}");
        }
        assert!(gateway.terminate().success());
    }
}

#[test]
fn a_gateway_that_crashes_leaves_no_core_whatever_the_limit_and_its_memory_is_locked() {
    if !crate::common::can_make_namespaces() {
        return;
    }
    // Whatever a gateway inherits; a program in core_pattern does not ask for it either.
    let limit = getrlimit(Resource::Core);
    setrlimit(Resource::Core, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let lab = lab();
    let site = Plan::simple().write('a', folder.path());
    let mut gateway = Gateway::start(&lab.a.gateway, &site);
    let filter = fs::read_to_string(format!("/proc/{}/coredump_filter", gateway.pid())).unwrap();
    assert_eq!(u32::from_str_radix(filter.trim(), 16), Ok(0));
    let locked = &threads(gateway.pid())[&gateway.pid().to_string()]["VmLck"];
    match lock() {
        Some(_) => assert_ne!(locked, "0 kB", "memory is not locked"),
        None => println!("SKIPPED in part: memory may not be locked here"),
    }
    gateway.signal(Signal::SIGABRT);
    let end = gateway.wait();
    assert_eq!((end.signal(), end.core_dumped()), (Some(6), false), "{end:?}");

    // Another process that ends so leaves one, where this machine writes any.
    let mut other = Command::new("sleep").arg("60").current_dir(folder.path()).spawn().unwrap();
    kill(Pid::from_raw(other.id() as i32), Signal::SIGABRT).unwrap();
    if !other.wait().unwrap().core_dumped() {
        println!("SKIPPED in part: this machine writes no core files for others either");
    }
}

/// `struct vfs_cap_data` of version 2: CAP_NET_RAW permitted, and effective from the start.
const NET_RAW_OF_FILE: [u8; 20] = {
    let mut data = [0; 20];
    // VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE; then permitted and inheritable, low words first.
    data[0] = 1;
    data[3] = 2;
    data[5] = 1 << 5;
    data
};

#[test]
fn a_program_with_capabilities_of_its_file_ignores_the_variable_that_denies_cpu_tiers() {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED: to give a file capabilities needs root");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    open(folder.path());
    let program = folder.path().join("convoy");
    crate::common::copy_program(&program);
    open(&program);
    let run = || {
        let mut command = Command::new(&program);
        command.arg("crypto").env("CONVOY_DENY_CPU", "sse9").uid(65534).gid(65534).output()
    };
    let refused = run().unwrap();
    assert!(text(&refused.stderr).contains("CONVOY_DENY_CPU"), "{}", text(&refused.stderr));
    let flags = statvfs(folder.path()).unwrap().f_flag;
    if flags.contains(StatVfsMountFlags::NOSUID) {
        println!("SKIPPED: programs in {} get no rights of their files", folder.path().display());
        return;
    }
    if let Err(error) =
        setxattr(&program, "security.capability", &NET_RAW_OF_FILE, XattrFlags::empty())
    {
        println!("SKIPPED: a file cannot be given capabilities here: {error}");
        return;
    }
    let output = match run() {
        Ok(output) => output,
        Err(error) => {
            println!("SKIPPED: programs get no rights of their files here: {error}");
            return;
        }
    };
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// A gateway for daemons whose files are in a folder.
fn for_daemons(lab: &Topology, folder: &Path) -> Gateway {
    for_daemons_by(lab, folder, Command::new(env!("CARGO_BIN_EXE_convoy")))
}

fn for_daemons_by(lab: &Topology, folder: &Path, command: Command) -> Gateway {
    let site = folder.join("g.toml");
    let place = folder.display();
    let site_text = format!(
        "name = \"g\"\ncontrol_socket = \"{place}/g.sock\"\n[plain]\ninterface = \"tun0\"\n\
         [xfrm]\nsocket = \"{place}/g.xfrm.sock\"\n"
    );
    fs::write(&site, &site_text).unwrap();
    fs::set_permissions(&site, fs::Permissions::from_mode(0o600)).unwrap();
    let mut gateway = Gateway::launch_by(&lab.a.gateway, command, &site);
    assert!(gateway.wait_ready(), "not ready:\n{}", gateway.log());
    gateway
}

/// Rights of the processes that a gateway has started, by their threads' `status`.
fn children(process: u32) -> Vec<BTreeMap<String, String>> {
    let list = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap();
    list.split_whitespace()
        .flat_map(|child| threads(child.parse().unwrap()).into_values())
        .collect()
}

/// Files of other users that all may read are what ownership would lead to.
#[test]
fn a_gateway_that_was_taken_over_makes_no_file_its_own() {
    if !crate::common::can_make_namespaces() {
        return;
    }
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let lab = lab();
    let gateway = for_daemons(&lab, folder.path());
    let file = folder.path().join("bashrc");
    fs::write(&file, "alias ls=ls\n").unwrap();
    std::os::unix::fs::chown(&file, Some(65534), Some(65534)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let path = file.to_str().unwrap();
    let Some(mut inside) = Inside::of(gateway.pid()) else { return };
    assert_eq!(inside.open(path, libc::O_WRONLY), Outcome::Failed(Errno::EACCES));
    // Standard error is such a file, too, if it can be opened no more.
    let open = inside.open(path, libc::O_RDONLY).descriptor().unwrap_or(2);
    let refused = Outcome::Failed(Errno::EPERM);
    assert_eq!(inside.call(libc::SYS_fchown, [open, 0, 0, 0, 0, 0]), refused);
    let at = inside.path(path);
    assert_eq!(inside.call(libc::SYS_chown, [at, 0, 0, 0, 0, 0]), refused);
    let here = libc::AT_FDCWD as u64;
    let at = inside.path(path);
    assert_eq!(inside.call(libc::SYS_fchownat, [here, at, 0, 0, 0, 0]), refused);
    assert_eq!(inside.open(path, libc::O_WRONLY), Outcome::Failed(Errno::EACCES));
    drop(inside);
    let about = fs::metadata(&file).unwrap();
    assert_eq!(about.uid(), 65534);
    // The right is with a process that has nothing else, and can do nothing else.
    let chown = format!("{:016x}", CapabilitySet::CHOWN.bits());
    let none = format!("{:016x}", 0);
    let helpers = children(gateway.pid());
    assert_eq!(helpers.len(), 1, "{helpers:?}");
    for status in &helpers {
        let sets = ["CapPrm", "CapEff", "CapInh", "CapAmb"].map(|set| status[set].as_str());
        assert_eq!(sets, [&*chown, &*chown, &*none, &*none]);
        assert_eq!([&*status["NoNewPrivs"], &*status["Seccomp"]], ["1", "2"]);
    }
    let helper = helpers[0]["Pid"].parse().unwrap();
    let mut inside = Inside::of(helper).unwrap();
    assert_eq!(inside.open(path, libc::O_RDONLY), refused);
    drop(inside);
    assert!(gateway.terminate().success());
    assert!(!Path::new(&format!("/proc/{helper}")).exists(), "the process is left over");
}

/// A daemon that is led to a gateway by `convoy exec`: its socket is another user's, and there first.
const DAEMON: &str = "\
import os, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
os.fchown(s.fileno(), 65534, -1)
s.bind(('0.0.0.0', 4500))
print('bound', flush=True)
sys.stdin.readline()
s.setsockopt(socket.IPPROTO_UDP, 100, 2)
print(os.fstat(s.fileno()).st_uid, flush=True)
sys.stdin.readline()
";

/// Lets a daemon of another user share its port with a gateway that `start` starts.
fn share_with_another_user(folder: &Path, start: impl FnOnce(&Topology) -> Gateway) {
    let lab = lab();
    let socket = folder.join("g.xfrm.sock");
    let (name, library) = crate::common::preload();
    let mut command = Command::new("python3");
    command.args(["-c", DAEMON]).env("LD_PRELOAD", library).env("CONVOY_XFRM_SOCKET", &socket);
    command.env(name, "").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut daemon = lab.a.gateway.spawn(&mut command).unwrap();
    let mut lines = BufReader::new(daemon.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "bound");
    let gateway = start(&lab);
    let mut input = daemon.stdin.take().unwrap();
    input.write_all(b"\n").unwrap();
    let owner = lines.next().map(Result::unwrap);
    assert_eq!(owner.as_deref(), Some("0"), "{}", gateway.log());
    assert!(
        gateway.log().contains("shares its UDP socket 0.0.0.0:4500 with the gateway"),
        "{}",
        gateway.log()
    );
    drop(input);
    assert!(daemon.wait().unwrap().success());
    assert!(gateway.terminate().success());
}

fn has_python() -> bool {
    let has = Command::new("python3").arg("-c").arg("").status().is_ok();
    if !has {
        println!("SKIPPED: the daemon of this test is in Python, which is not here");
    }
    has
}

#[test]
fn a_daemon_of_another_user_shares_its_port_also_when_it_was_there_first() {
    if !crate::common::can_make_namespaces() || !has_python() {
        return;
    }
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    share_with_another_user(folder.path(), |lab| for_daemons(lab, folder.path()));
}

/// As convoy-helper.socket does: a helper for whoever connects, with that for its standard input.
#[test]
fn under_its_unit_a_gateway_has_the_helper_of_a_socket() {
    if !crate::common::can_make_namespaces() || !has_python() {
        return;
    }
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let socket = UnixListener::bind(folder.path().join(HELPER)).unwrap();
    let service = std::thread::spawn(move || {
        let (connection, _) = socket.accept().unwrap();
        let mut helper = Command::new(env!("CARGO_BIN_EXE_convoy"));
        helper.arg("helper").stdin(OwnedFd::from(connection));
        helper.status().unwrap()
    });
    share_with_another_user(folder.path(), |lab| {
        let gateway = for_daemons_by(lab, folder.path(), sandboxed(folder.path()));
        assert_eq!(children(gateway.pid()).len(), 0, "{}", gateway.log());
        gateway
    });
    // It ends with the gateway.
    assert!(service.join().unwrap().success());
}

#[test]
fn a_helper_that_nobody_has_started_for_a_gateway_says_so() {
    let output = Command::new(env!("CARGO_BIN_EXE_convoy"))
        .arg("helper")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("convoy-helper.socket"), "{}", text(&output.stderr));
}
