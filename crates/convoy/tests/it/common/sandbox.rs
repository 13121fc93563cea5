//! The sandbox of the systemd unit, as far as it can be had without systemd as the first process.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

const UNIT: &str = include_str!("../../../../../systemd/convoy.service.in");
/// Installs a filter of system calls from a file, and becomes another program.
const INSTALL: &str = "\
import ctypes, os, sys
filter = open(sys.argv[1], 'rb').read()
code = ctypes.create_string_buffer(filter)
class Program(ctypes.Structure): _fields_ = [('length', ctypes.c_ushort), ('code', ctypes.c_void_p)]
program = Program(len(filter) // 8, ctypes.addressof(code))
prctl = ctypes.CDLL(None, use_errno=True).prctl
if prctl(38, 1, 0, 0, 0) or prctl(22, 2, ctypes.byref(program), 0, 0): sys.exit(os.strerror(ctypes.get_errno()))
os.execv(sys.argv[2], sys.argv[2:])
";
/// Nodes of a private `/dev`, beside `shm`.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Values of a key in the unit, or in its drop-in for a user of its own, one line after the other.
fn said_in(unit: &'static str, key: &'static str) -> impl Iterator<Item = &'static str> {
    unit.lines().filter_map(move |line| line.strip_prefix(key)?.strip_prefix('='))
}

fn said(key: &'static str) -> impl Iterator<Item = &'static str> {
    said_in(UNIT, key)
}

/// Whose the gateway is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    Root,
    /// One of its own, with ambient capabilities, as by the drop-in.
    Own,
}

/// The user of gateways that have one of their own.
pub const OWN_USER: u32 = 65534;

/// The program in the folder of a sandbox.
const PROGRAM: &str = "convoy";

/// A helper's socket in the folder of a sandbox: it is where the unit has it.
pub const HELPER: &str = "helper.sock";

/// A command that runs the gateway as the unit would: its capabilities, filter of system calls, and what it sees of files,
/// devices and processes. `folder` is for its files, and can be written. Says what is missing, and does without.
pub fn sandboxed(folder: &Path) -> Command {
    sandboxed_as(folder, User::Root)
}

pub fn sandboxed_as(folder: &Path, user: User) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-ec", &format!("{}exec \"$0\" \"$@\"", mounts(folder))]);
    let has_setpriv = Command::new("setpriv").arg("--version").stdout(Stdio::null()).status();
    if has_setpriv.is_ok() {
        let capabilities = capabilities(UNIT, "CapabilityBoundingSet");
        command.args(["setpriv", "--no-new-privs", "--bounding-set", &capabilities]);
        if user == User::Own {
            let kept = capabilities_of_drop_in();
            command.args(["--reuid", &OWN_USER.to_string(), "--regid", &OWN_USER.to_string()]);
            command.args(["--clear-groups", "--inh-caps", &kept, "--ambient-caps", &kept]);
        }
        command.arg("--");
    } else {
        assert_eq!(user, User::Root, "setpriv is needed for gateways of another user");
        println!("SKIPPED in part: there is no setpriv, so the gateway keeps its capabilities");
    }
    match filter() {
        Ok(filter) => {
            let path = folder.join("filter");
            fs::write(&path, bytes(&filter)).unwrap();
            // Another one may be in a folder that not every user may enter.
            let python = Path::new("/usr/bin/python3");
            let python = if python.exists() { python } else { Path::new("python3") };
            command.arg(python).args(["-c", INSTALL]).arg(path);
        }
        Err(why) => println!("SKIPPED in part: no filter of system calls: {why}"),
    }
    command.arg(folder.join(PROGRAM));
    command
}

fn capabilities_of_drop_in() -> String {
    capabilities(include_str!("../../../../../systemd/own-user.conf"), "AmbientCapabilities")
}

/// As setpriv has them: none but these.
fn capabilities(unit: &'static str, key: &'static str) -> String {
    let all: Vec<_> = said_in(unit, key).collect();
    format!("-all,{}", all.join(" ").to_lowercase().replace("cap_", "+").replace(' ', ","))
}

/// Lines of a shell that mount what the unit says. Whatever it does not say is not done.
fn mounts(folder: &Path) -> String {
    let has = |line: &str| UNIT.lines().any(|it| it == line);
    let place = folder.display();
    // What mount(8) keeps for itself in /run may be out of its sight.
    let mut script = "mount() { command mount -n \"$@\"; }\n".to_owned();
    script += &format!("mount --bind {place} {place}\n");
    if has("PrivateDevices=yes") {
        script += &private("/dev", folder);
        for device in DEVICES {
            script += &bind(&format!("/dev/{device}"), &format!("{place}/.dev/{device}"));
        }
        script += &format!("mkdir {place}/.dev/shm\nmount --bind /dev/shm {place}/.dev/shm\n");
        script += &bound("/dev", folder);
        script += &format!("mount --move {place}/.dev /dev\n");
    }
    for line in said("TemporaryFileSystem") {
        let (path, options) = line.split_once(':').unwrap_or((line, "rw"));
        script += &private(path, folder);
        script += &bound(path, folder);
        script += &bind(
            &format!("{place}/{HELPER}"),
            &format!("{place}/.{}/convoy-helper.sock", &path[1..]),
        );
        script += &format!("mount -o remount,bind,{options} {place}/.{}\n", &path[1..]);
        script += &format!("mount --move {place}/.{} {path}\n", &path[1..]);
    }
    // Every user may enter this folder.
    script += &bind(env!("CARGO_BIN_EXE_convoy"), &format!("{place}/{PROGRAM}"));
    if let Some(hidden) = said("ProtectProc").next() {
        script += &format!("mount -t proc -o hidepid={hidden} proc /proc\n");
    }
    if has("ProtectKernelTunables=yes") {
        script += "mount --bind /proc/sys /proc/sys\nmount -o remount,bind,ro /proc/sys\n";
        script += "mount -o remount,bind,ro /sys\n";
    }
    if has("ProtectSystem=strict") {
        script += "mount -o remount,bind,ro /\n";
    }
    script
}

/// An empty file system that is to come to a path; until then it is in the folder.
fn private(path: &str, folder: &Path) -> String {
    let place = format!("{}/.{}", folder.display(), &path[1..]);
    format!("mkdir -p {place}\nmount -t tmpfs -o mode=755 tmpfs {place}\n")
}

/// Commands that bind what the unit lets through to an empty file system.
fn bound(below: &str, folder: &Path) -> String {
    let paths = said("BindPaths").chain(said("BindReadOnlyPaths")).flat_map(|it| it.split(' '));
    let inside = paths.filter(|path| path.trim_start_matches('-').starts_with(below));
    inside
        .map(|path| match path.strip_prefix('-') {
            Some(path) => bind(path, &format!("{}/.{}", folder.display(), &path[1..])),
            // Systemd has made it.
            None => format!("mkdir -p {}/.{}\n", folder.display(), &path[1..]),
        })
        .collect()
}

/// Lets a file or a folder be at another place, if it is there.
fn bind(from: &str, to: &str) -> String {
    format!(
        "if [ -d {from} ]; then mkdir -p {to}; mount --rbind {from} {to}\n\
         elif [ -e {from} ]; then mkdir -p \"$(dirname {to})\"; touch {to}; mount --bind {from} {to}; fi\n"
    )
}

/// The unit's `SystemCallFilter`.
fn filter() -> Result<BpfProgram, String> {
    let groups = groups()?;
    let numbers = numbers()?;
    let mut allowed = BTreeSet::new();
    for line in said("SystemCallFilter") {
        let (line, is_refusal) = line.strip_prefix('~').map_or((line, false), |rest| (rest, true));
        for word in line.split(' ') {
            let calls = calls_of(word, &groups);
            if is_refusal {
                allowed.retain(|call| !calls.contains(call));
            } else {
                allowed.extend(calls);
            }
        }
    }
    // Others are of other families of processors.
    let rules = allowed.iter().filter_map(|call| Some((*numbers.get(call)?, Vec::new()))).collect();
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let family = std::env::consts::ARCH.try_into().map_err(|_| "this family of processors")?;
    SeccompFilter::new(rules, refuse, SeccompAction::Allow, family)
        .and_then(BpfProgram::try_from)
        .map_err(|error| error.to_string())
}

/// Names of system calls by groups such as `@system-service`, which name others.
fn groups() -> Result<BTreeMap<String, Vec<String>>, String> {
    let output = Command::new("systemd-analyze").args(["--no-pager", "syscall-filter"]).output();
    let output = output.map_err(|error| format!("systemd-analyze: {error}"))?;
    let mut groups = BTreeMap::<_, Vec<_>>::new();
    let mut last = String::new();
    for line in super::text(&output.stdout).lines() {
        match line.trim() {
            "" => {}
            name if name.starts_with('#') => {}
            name if line.starts_with('@') => last = name.to_owned(),
            name => groups.entry(last.clone()).or_default().push(name.to_owned()),
        }
    }
    let is_known = groups.contains_key("@system-service");
    if is_known { Ok(groups) } else { Err("systemd-analyze knows no groups".to_owned()) }
}

fn calls_of(word: &str, groups: &BTreeMap<String, Vec<String>>) -> BTreeSet<String> {
    match groups.get(word) {
        Some(names) => names.iter().flat_map(|name| calls_of(name, groups)).collect(),
        None => [word.to_owned()].into(),
    }
}

/// Numbers of system calls by name, as the C library's headers have them.
fn numbers() -> Result<BTreeMap<String, i64>, String> {
    let header = format!("/usr/include/{}-linux-gnu/asm/unistd_64.h", std::env::consts::ARCH);
    let text = fs::read_to_string(&header).map_err(|error| format!("{header}: {error}"))?;
    let number = |line: &str| {
        let (name, number) = line.strip_prefix("#define __NR_")?.split_once(' ')?;
        Some((name.to_owned(), number.trim().parse().ok()?))
    };
    Ok(text.lines().filter_map(number).collect())
}

fn bytes(filter: &BpfProgram) -> Vec<u8> {
    let bytes = |it: &seccompiler::sock_filter| {
        let [low, high] = it.code.to_ne_bytes();
        [[low, high, it.jt, it.jf], it.k.to_ne_bytes()].concat()
    };
    filter.iter().flat_map(bytes).collect()
}
