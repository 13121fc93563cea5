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
/// Sees `/proc/sys` read-only (`ProtectKernelTunables`), and becomes another program.
const READ_ONLY: &str =
    "mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys && exec \"$0\" \"$@\"";

/// What the unit says of a key, one line after the other.
fn said(key: &'static str) -> impl Iterator<Item = &'static str> {
    UNIT.lines().filter_map(move |line| line.strip_prefix(key)?.strip_prefix('='))
}

/// A command that runs the gateway under the unit's capabilities, filter of system calls, and read-only settings. `folder`
/// is for a file. Says what is missing, and does without.
pub fn sandboxed(folder: &Path) -> Command {
    let capabilities: Vec<_> = said("CapabilityBoundingSet").collect();
    let capabilities = capabilities.join(" ").to_lowercase().replace("cap_", "+").replace(' ', ",");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-ec", READ_ONLY]);
    let has_setpriv = Command::new("setpriv").arg("--version").stdout(Stdio::null()).status();
    if has_setpriv.is_ok() {
        command.args(["setpriv", "--no-new-privs", "--bounding-set"]);
        command.args([&format!("-all,{capabilities}"), "--"]);
    } else {
        println!("SKIPPED in part: there is no setpriv, so the gateway keeps its capabilities");
    }
    match filter() {
        Ok(filter) => {
            let path = folder.join("filter");
            fs::write(&path, bytes(&filter)).unwrap();
            command.args(["python3", "-c", INSTALL]).arg(path);
        }
        Err(why) => println!("SKIPPED in part: no filter of system calls: {why}"),
    }
    command.arg(env!("CARGO_BIN_EXE_convoy"));
    command
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
