//! What somebody can do who has taken a running gateway over, tried from inside.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use convoy_lab::{Namespace, Topology, TopologyConfig};
use nix::errno::Errno;
use nix::libc;

use crate::common::inside::{Inside, Outcome};
use crate::common::{Gateway, Plan, convoy, status, text};

fn lab() -> Topology {
    Topology::build(&TopologyConfig { named: false, ..Default::default() }).unwrap()
}

/// Whether the kernel has Landlock; says why not.
fn has_landlock() -> bool {
    let version = convoy_io::landlock::version();
    if let Err(why) = &version {
        println!("SKIPPED: {why}");
    }
    version.is_ok()
}

/// A gateway for static SAs, whose files are in folders of their own below `folder`.
fn start(
    namespace: &Namespace,
    folder: &Path,
    arguments: &[&str],
) -> (Gateway, std::path::PathBuf) {
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
        text(&output.stdout).contains("all files of its user may be used: --landlock off"),
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
