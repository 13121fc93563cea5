//! Abilities of somebody who has taken a running gateway over, tried from inside.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use convoy_lab::{Namespace, Topology, TopologyConfig};
use nix::errno::Errno;
use nix::libc;

use crate::common::inside::{Inside, Outcome};
use crate::common::{Gateway, OWN_USER, PATIENCE, Plan, User, convoy, sandboxed_as, status, text};

fn lab() -> Topology {
    Topology::build(&TopologyConfig { named: false, ..Default::default() }).unwrap()
}

/// True if the kernel has Landlock; else it says why not.
fn has_landlock() -> bool {
    let version = convoy_io::landlock::version();
    if let Err(why) = &version {
        println!("SKIPPED: {why}");
    }
    version.is_ok()
}

/// A gateway for static SAs, whose files are in folders of their own below `folder`.
fn start(namespace: &Namespace, folder: &Path, arguments: &[&str]) -> (Gateway, PathBuf) {
    let place = folder.join("site");
    fs::create_dir(&place).unwrap();
    let site = Plan::simple().write('a', &place);
    let program = Command::new(env!("CARGO_BIN_EXE_convoy"));
    let mut gateway = Gateway::launch_with(namespace, program, &site, arguments);
    assert!(gateway.wait_ready(), "not ready:\n{}", gateway.log());
    (gateway, site)
}

const REFUSED: Outcome = Outcome::Failed(Errno::EACCES);

#[test]
fn a_gateway_uses_no_files_but_those_of_its_site() {
    if !crate::common::can_make_namespaces() || !has_landlock() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let lab = lab();
    let (gateway, site) = start(&lab.a.gateway, folder.path(), &[]);
    let beside = folder.path().join("beside");
    fs::write(&beside, "x").unwrap();
    let own = site.with_file_name("a.state").join("new");
    let Some(mut inside) = Inside::of(gateway.pid()) else { return };
    for (path, flags) in [
        (beside.to_str().unwrap(), libc::O_RDONLY),
        ("/etc/shadow", libc::O_RDONLY),
        ("/root", libc::O_RDONLY | libc::O_DIRECTORY),
        ("/proc/sys/kernel/core_pattern", libc::O_WRONLY),
        ("/proc/self/mem", libc::O_RDWR),
        ("/etc/cron.d/convoy-test", libc::O_WRONLY | libc::O_CREAT),
        (site.to_str().unwrap(), libc::O_WRONLY),
    ] {
        assert_eq!(inside.open(path, flags), REFUSED, "{path}");
    }
    for (path, flags) in [
        (site.to_str().unwrap(), libc::O_RDONLY),
        ("/proc/sys/kernel/core_pattern", libc::O_RDONLY),
        ("/proc/sys/net/ipv4/conf/all/rp_filter", libc::O_RDWR),
        (own.to_str().unwrap(), libc::O_RDWR | libc::O_CREAT),
    ] {
        assert!(inside.open(path, flags).descriptor().is_some(), "{path}");
    }
    drop(inside);
    let confinement = &status(&site)["confinement"];
    assert_eq!(confinement["landlock"], convoy_io::landlock::version().unwrap());
    assert_eq!(confinement["system_calls"], true);
    assert!(!gateway.log().contains("WARN"), "{}", gateway.log());
    assert!(gateway.terminate().success());
}

#[test]
fn a_gateway_can_be_left_all_files_of_its_user_and_says_so() {
    if !crate::common::can_make_namespaces() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let lab = lab();
    let (gateway, site) = start(&lab.a.gateway, folder.path(), &["--landlock", "off"]);
    let confinement = &status(&site)["confinement"];
    assert!(confinement["landlock"].is_null());
    assert_eq!(confinement["no_landlock"], "--landlock off");
    let output = convoy(&["status", site.to_str().unwrap()]);
    assert!(
        text(&output.stdout).contains("file access is not limited: --landlock off"),
        "{}",
        text(&output.stdout)
    );
    let Some(mut inside) = Inside::of(gateway.pid()) else { return };
    assert!(inside.open("/etc/hostname", libc::O_RDONLY).descriptor().is_some());
    drop(inside);
    assert!(gateway.terminate().success());
}

/// Editors and tools put a new file in the place of the old one, in whose folder key files are, too.
#[test]
fn a_new_site_file_and_new_key_files_in_the_place_of_the_old_ones_are_read() {
    if !crate::common::can_make_namespaces() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let lab = lab();
    let place = folder.path().join("site");
    let keys = folder.path().join("keys");
    fs::create_dir(&place).unwrap();
    fs::create_dir(&keys).unwrap();
    let site = Plan::simple().write('a', &place);
    let before = fs::read_to_string(&site).unwrap();
    let put = |path: &Path, content: &str| {
        let fresh = path.with_extension("fresh");
        fs::write(&fresh, content).unwrap();
        fs::set_permissions(&fresh, fs::Permissions::from_mode(0o600)).unwrap();
        fs::rename(&fresh, path).unwrap();
    };
    // The first key of the file is in one of its own.
    let (head, rest) = before.split_once("key = \"").unwrap();
    let (key, rest) = rest.split_once('"').unwrap();
    let file = keys.join("one.key");
    put(&file, key);
    put(&site, &format!("{head}key_file = \"{}\"{rest}", file.display()));
    let gateway = Gateway::start(&lab.a.gateway, &site);
    put(&file, key);
    let other = "[[policy]]\nname = \"beside\"\naction = \"discard\"\nlocal = \"10.9.0.0/24\"\nremote = \"10.8.0.0/24\"\n";
    put(&site, &format!("{head}key_file = \"{}\"{rest}{other}", file.display()));
    let output = convoy(&["reload", site.to_str().unwrap()]);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).contains("beside"), "{}", text(&output.stdout));

    // A key elsewhere takes a new start, which is said.
    let elsewhere = folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let file = elsewhere.join("one.key");
    put(&file, key);
    put(&site, &format!("{head}key_file = \"{}\"{rest}{other}", file.display()));
    let output = convoy(&["reload", site.to_str().unwrap()]);
    let said = format!("{}{}{}", text(&output.stdout), text(&output.stderr), gateway.log());
    match convoy_io::landlock::version() {
        Ok(_) => {
            assert!(!output.status.success(), "{said}");
            assert!(said.contains("restart the gateway"), "{said}");
        }
        Err(why) => println!("SKIPPED in part: {why}"),
    }
    assert!(gateway.terminate().success());
}

/// A gateway that finds an empty folder in the place of one that was in use must not take it for a new one.
#[test]
fn a_folder_that_was_put_in_the_place_of_a_state_folder_gets_its_sign() {
    if !crate::common::can_make_namespaces() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let lab = lab();
    let (gateway, site) = start(&lab.a.gateway, folder.path(), &[]);
    let state = site.with_file_name("a.state");
    fs::rename(&state, folder.path().join("aside")).unwrap();
    fs::create_dir(&state).unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
    let begun = Instant::now();
    while !state.join("records-lost").exists() {
        assert!(begun.elapsed() < PATIENCE, "no sign:\n{}", gateway.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    gateway.kill();
    let mut again = Gateway::launch(&lab.a.gateway, &site);
    assert!(!again.wait_ready(), "{}", again.log());
    assert!(!again.wait().success());
}

/// Sockets of services are no files to Landlock.
#[test]
fn a_gateway_connects_to_no_service_of_its_host() {
    if !crate::common::can_make_namespaces() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let lab = lab();
    let (gateway, _) = start(&lab.a.gateway, folder.path(), &[]);
    let path = folder.path().join("service.sock");
    let _service = UnixListener::bind(&path).unwrap();
    let Some(mut inside) = Inside::of(gateway.pid()) else { return };
    let unix = libc::AF_UNIX as u64;
    for kind in [libc::SOCK_STREAM, libc::SOCK_DGRAM, libc::SOCK_SEQPACKET] {
        let opened = inside.call(libc::SYS_socket, [unix, kind as u64, 0, 0, 0, 0]);
        assert_eq!(opened, Outcome::Failed(Errno::ENOSYS));
    }
    let at = inside.put(&[0; 8]);
    let pair = inside.call(libc::SYS_socketpair, [unix, libc::SOCK_DGRAM as u64, 0, at, 0, 0]);
    assert_eq!(pair, Outcome::Failed(Errno::ENOSYS));
    drop(inside);
    // Nor has it one that could be sent elsewhere.
    for entry in fs::read_dir(format!("/proc/{}/fd", gateway.pid())).unwrap() {
        let link = fs::read_link(entry.unwrap().path()).unwrap_or_default();
        let link = link.to_string_lossy().into_owned();
        let Some(inode) = link.strip_prefix("socket:[").and_then(|it| it.strip_suffix(']')) else {
            continue;
        };
        let list = fs::read_to_string(format!("/proc/{}/net/unix", gateway.pid())).unwrap();
        let ours = list.lines().find(|line| line.split_whitespace().nth(6) == Some(inode));
        let kind = ours.and_then(|line| line.split_whitespace().nth(4));
        assert_ne!(kind, Some("0002"), "a datagram socket: {ours:?}");
    }
    assert!(gateway.terminate().success());
}

/// Ways to start a gateway, as the columns of the table have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Root,
    Unit,
    OwnUser,
}

/// Cells of one line of the table in SECURITY.md: the outcome for each start, with Landlock and without.
struct Row {
    what: String,
    said: [[String; 2]; 3],
}

/// The table, whose first heading is this.
const HEADING: &str = "| who has taken the gateway over |";

fn table() -> Vec<Row> {
    let text = include_str!("../../../../SECURITY.md");
    let (_, rest) = text.split_once(HEADING).expect("the table is there");
    let lines = rest.lines().skip(2).take_while(|line| line.starts_with('|'));
    lines
        .map(|line| {
            let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [what, said @ ..] = &cells[..] else { panic!("{line}") };
            let both = |cell: &&str| {
                let (with, without) = cell.split_once(" / ").unwrap_or((cell, cell));
                [with, without].map(|word| word.trim_end_matches('*').to_owned())
            };
            let said: Vec<_> = said.iter().map(both).collect();
            let said = said.try_into().unwrap_or_else(|_| panic!("three cells: {line}"));
            Row { what: (*what).to_owned(), said }
        })
        .collect()
}

const NOTHING: [u64; 6] = [0; 6];

/// Tries what a row says. Nothing: it cannot be tried on this machine.
fn attempt(what: &str, inside: &mut Inside) -> Option<Outcome> {
    let first = |arguments: &[u64]| {
        let mut all = NOTHING;
        all[..arguments.len()].copy_from_slice(arguments);
        all
    };
    let socket = |family: i32, kind: i32, protocol: i32| {
        first(&[family as u64, kind as u64, protocol as u64])
    };
    let netlink = |protocol| socket(libc::AF_NETLINK, libc::SOCK_RAW, protocol);
    Some(match what {
        "reads `/etc/shadow`" => {
            // Some systems leave it to who passes by modes.
            if fs::metadata("/etc/shadow").is_ok_and(|it| it.permissions().mode() & 0o400 == 0) {
                return None;
            }
            inside.open("/etc/shadow", libc::O_RDONLY)
        }
        "reads `/etc/hosts`, which all may" => inside.open("/etc/hosts", libc::O_RDONLY),
        "writes `core_pattern`" => inside.open("/proc/sys/kernel/core_pattern", libc::O_WRONLY),
        "makes a file in `/etc/cron.d`" => {
            if !Path::new("/etc/cron.d").exists() {
                return None;
            }
            // One that cron passes by, and that is gone before it could look.
            let path = "/etc/cron.d/.convoy-test";
            let made = inside.open(path, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL);
            let _ = fs::remove_file(path);
            made
        }
        "writes over its own code (`/proc/self/mem`)" => {
            inside.open("/proc/self/mem", libc::O_RDWR)
        }
        "makes memory executable" => {
            let (size, access) = (4096, (libc::PROT_READ | libc::PROT_EXEC) as u64);
            let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
            inside.call(libc::SYS_mmap, [0, size, access, flags, u64::MAX, 0])
        }
        "changes who owns a file" => inside.call(libc::SYS_fchown, first(&[2, 0, 0])),
        "sees what other processes run" => inside.open("/proc/1/cmdline", libc::O_RDONLY),
        "opens a Unix socket, as of D-Bus or a container engine" => {
            inside.call(libc::SYS_socket, socket(libc::AF_UNIX, libc::SOCK_STREAM, 0))
        }
        "connects to a TCP port" => {
            let made = inside.call(libc::SYS_socket, socket(libc::AF_INET, libc::SOCK_STREAM, 0));
            let opened = made.descriptor().expect("a socket of TCP is opened");
            // Port 1 of 127.0.0.1, where nobody serves.
            let to = inside.put(&[2, 0, 0, 1, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
            let outcome = inside.call(libc::SYS_connect, first(&[opened, to, 16]));
            inside.call(libc::SYS_close, first(&[opened]));
            match outcome {
                Outcome::Failed(Errno::ECONNREFUSED | Errno::ENETUNREACH) => Outcome::Returned(0),
                other => other,
            }
        }
        "speaks other protocols of netlink, such as XFRM and audit" => {
            let outcome = inside.call(libc::SYS_socket, netlink(libc::NETLINK_XFRM));
            match inside.call(libc::SYS_socket, netlink(libc::NETLINK_AUDIT)) {
                made @ Outcome::Returned(_) => made,
                _ => outcome,
            }
        }
        "makes a process" => inside.call(libc::SYS_clone, first(&[libc::SIGCHLD as u64])),
        "enters another namespace" => {
            inside.call(libc::SYS_unshare, first(&[libc::CLONE_NEWNET as u64]))
        }
        "runs a program" => {
            let path = inside.path("/bin/true");
            inside.call(libc::SYS_execve, first(&[path, 0, 0]))
        }
        "looks into another process" => {
            let (seize, parent) = (0x4206_u64, u64::from(std::process::id()));
            inside.call(libc::SYS_ptrace, first(&[seize, parent, 0, 0]))
        }
        "loads a kernel module" => inside.call(libc::SYS_finit_module, first(&[2, 0, 0])),
        "changes interfaces, routes and the packet filter" => {
            let outcome = inside.call(libc::SYS_socket, netlink(libc::NETLINK_ROUTE));
            match inside.call(libc::SYS_socket, netlink(libc::NETLINK_NETFILTER)) {
                refused @ Outcome::Failed(_) => refused,
                _ => outcome,
            }
        }
        "sends and receives any packet" => {
            inside.call(libc::SYS_socket, socket(libc::AF_PACKET, libc::SOCK_RAW, 0x0300))
        }
        other => panic!("nobody knows how to try: {other}"),
    })
}

/// Entry of the table for that outcome.
fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Returned(_) => "yes",
        Outcome::Failed(_) => "no",
        Outcome::Killed(_) => "ends",
    }
}

/// The gateways of one column, one after the other, as some end.
struct World {
    folder: tempfile::TempDir,
    site: PathBuf,
    start: Start,
    has_landlock: bool,
    gateway: Option<Gateway>,
}

impl World {
    fn new(start: Start, has_landlock: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let site = Plan::simple().write('a', folder.path());
        if start == Start::OwnUser {
            let user = Some(OWN_USER);
            chown(folder.path(), user, user).unwrap();
            chown(&site, user, user).unwrap();
            chown(folder.path().join("a.state"), user, user).unwrap();
        }
        Self { folder, site, start, has_landlock, gateway: None }
    }

    /// The gateway that runs, or a new one.
    fn gateway(&mut self, lab: &Topology) -> &Gateway {
        let Self { folder, site, start, has_landlock, gateway } = self;
        gateway.get_or_insert_with(|| {
            let program = match start {
                Start::Root => Command::new(env!("CARGO_BIN_EXE_convoy")),
                Start::Unit => sandboxed_as(folder.path(), User::Root),
                Start::OwnUser => sandboxed_as(folder.path(), User::Own),
            };
            let words: &[&str] = if *has_landlock { &[] } else { &["--landlock", "off"] };
            let mut gateway = Gateway::launch_with(&lab.a.gateway, program, site, words);
            assert!(gateway.wait_ready(), "{start:?} is not ready:\n{}", gateway.log());
            gateway
        })
    }

    /// Tries a row, and says how it ended.
    fn attempt(&mut self, what: &str, lab: &Topology) -> Option<&'static str> {
        let mut inside = Inside::of(self.gateway(lab).pid())?;
        let outcome = attempt(what, &mut inside)?;
        if let Outcome::Killed(_) = outcome {
            drop(inside);
            self.gateway = None;
        }
        Some(word(outcome))
    }
}

/// The table of SECURITY.md is what a gateway that runs does, tried from inside.
#[test]
fn what_security_md_says_of_a_gateway_that_was_taken_over_is_so() {
    if !crate::common::can_make_namespaces() {
        return;
    }
    let rows = table();
    assert!(rows.len() > 10, "{}", rows.len());
    let lab = lab();
    crate::common::ip(&lab.a.gateway, "link set lo up");
    let mut wrong = Vec::new();
    for (column, start) in [Start::Root, Start::Unit, Start::OwnUser].into_iter().enumerate() {
        let has_setpriv = Command::new("setpriv").arg("--version").stdout(Stdio::null()).status();
        if start == Start::OwnUser && has_setpriv.is_err() {
            println!("SKIPPED in part: there is no setpriv for a gateway of another user");
            continue;
        }
        for has_landlock in [true, false] {
            if has_landlock && !self::has_landlock() {
                continue;
            }
            let mut world = World::new(start, has_landlock);
            let knows_ports = convoy_io::landlock::version().is_ok_and(|version| version >= 4);
            for row in &rows {
                if has_landlock && !knows_ports && row.what == "connects to a TCP port" {
                    println!(
                        "SKIPPED in part: this kernel's Landlock knows no ports: {}",
                        row.what
                    );
                    continue;
                }
                let said = &row.said[column][usize::from(!has_landlock)];
                match world.attempt(&row.what, &lab) {
                    None => println!("SKIPPED in part: {}", row.what),
                    Some(word) if word == said => {}
                    Some(word) => wrong.push(format!(
                        "{start:?}, Landlock {has_landlock}: {}: it says {said}, right is {word}",
                        row.what
                    )),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
