//! `convoy exec`: a command whose XFRM sockets lead to Convoy.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;
use convoy_control::peer::Stranger;
use nix::errno::Errno;

use crate::exit::{Exit, Stop};
use crate::preload::{Listener, PRELOAD_VARIABLE, find_library, probe};

/// `convoy exec`
#[derive(Debug, Args)]
pub struct ExecArgs {
    /// XFRM socket of the gateway that serves the command in place of the kernel.
    #[arg(
        long,
        env = "CONVOY_XFRM_SOCKET",
        default_value = "/run/convoy/xfrm.sock",
        value_name = "PATH"
    )]
    pub socket: PathBuf,
    /// Seconds to wait for a gateway to serve that socket; 0 does not wait.
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    pub wait: u32,
    /// Command and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// The variable that the library reads.
const SOCKET_VARIABLE: &str = "CONVOY_XFRM_SOCKET";
/// Bytes of a program that are read to find out what it is, and at most of the names of its sections.
const START: u64 = 4096;
const NAMES_MOST: u64 = 1 << 20;
/// The section that a linker of Go makes, with the end of its name.
const BUILD_INFO: &[u8] = b".go.buildinfo\0";

pub(crate) fn run(args: &ExecArgs) -> anyhow::Result<Exit> {
    let (name, rest) =
        args.command.split_first().ok_or_else(|| Stop::usage("no command was given"))?;
    let program = find_program(name)?;
    check_program(&program)?;
    let library = find_library()?;
    // The command may change its folder.
    let socket = std::path::absolute(&args.socket)?;
    warn_of_namespace(await_socket(&socket, Duration::from_secs(args.wait.into()))?, &socket);
    let error = Command::new(&program)
        .arg0(name)
        .args(rest)
        .env("LD_PRELOAD", preloads(&library)?)
        .env(SOCKET_VARIABLE, &socket)
        .exec();
    Err(Stop::usage(format!("{}: {error}", program.display())))
}

fn find_program(name: &OsStr) -> anyhow::Result<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(name));
    }
    let is_program = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(is_program)
        .ok_or_else(|| Stop::usage(format!("{}: no such command in PATH", name.display())))
}

/// Refuses programs that the loader preloads nothing into.
fn check_program(program: &Path) -> anyhow::Result<()> {
    let refuse = |why: String| Stop::usage(format!("{}: {why}", program.display()));
    let status = fs::metadata(program).map_err(|error| refuse(error.to_string()))?;
    if changes_user(&status) {
        return Err(refuse(
            "runs as another user or group (setuid, setgid), so the loader takes no library for it; \
             run it as that user"
                .to_owned(),
        ));
    }
    let mut file = match File::open(program) {
        // What may be run but not read cannot be judged.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(()),
        file => file.map_err(|error| refuse(error.to_string()))?,
    };
    let start = read_at(&mut file, 0, START).map_err(|error| refuse(error.to_string()))?;
    let why = if is_static(&start) {
        "is linked statically (as programs in Go are), so no library can be led into it"
    } else if is_in_go(&mut file, &start) {
        "is in Go, whose programs make system calls by themselves, so no library leads them"
    } else {
        return Ok(());
    };
    Err(refuse(format!("{why}; it would speak to the kernel")))
}

/// The bytes of a file from one on, as far as there are.
fn read_at(file: &mut File, at: u64, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(at))?;
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// True if a program has the section in which Go notes how it was built. One whose sections were taken away is not
/// judged.
fn is_in_go(file: &mut File, start: &[u8]) -> bool {
    const HEADER: usize = 64;
    let mut sections = || {
        let (table, size) = (long(start, 40)?, usize::from(half(start, 58)?));
        let (count, names) = (usize::from(half(start, 60)?), usize::from(half(start, 62)?));
        if !is_elf(start) || size < HEADER {
            return None;
        }
        let headers = read_at(file, table, (size * count) as u64).ok()?;
        let of_names = headers.get(names.checked_mul(size)?..)?;
        let names = read_at(file, long(of_names, 24)?, long(of_names, 32)?.min(NAMES_MOST)).ok()?;
        Some((headers, size, names))
    };
    let Some((headers, size, names)) = sections() else { return false };
    headers.chunks_exact(size).any(|header| {
        let at = header.first_chunk().copied().map(u32::from_le_bytes);
        let name = at.and_then(|at| names.get(usize::try_from(at).ok()?..));
        name.is_some_and(|name| name.starts_with(BUILD_INFO))
    })
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_le_bytes)
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_le_bytes)
}

/// Only 64-bit little-endian ones, as this machine's are.
fn is_elf(start: &[u8]) -> bool {
    start.starts_with(b"\x7fELF\x02\x01")
}

fn changes_user(status: &Metadata) -> bool {
    let mode = status.permissions().mode();
    (mode & 0o4000 != 0 && status.uid() != nix::unistd::geteuid().as_raw())
        || (mode & 0o2010 == 0o2010 && status.gid() != nix::unistd::getegid().as_raw())
}

/// True if these are the first bytes of an ELF program that names no loader (`PT_INTERP`).
///
/// Scripts are none, nor are programs whose table is not at the beginning.
fn is_static(start: &[u8]) -> bool {
    const PT_INTERP: u32 = 3;
    if !is_elf(start) {
        return false;
    }
    let half = |at| half(start, at).map(usize::from);
    let table = long(start, 32).and_then(|at| usize::try_from(at).ok());
    let (Some(table), Some(size), Some(count)) = (table, half(54), half(56)) else { return false };
    let Some(end) = size.checked_mul(count).and_then(|len| len.checked_add(table)) else {
        return false;
    };
    let Some(entries) = start.get(table..end).filter(|_| size >= 4) else { return false };
    !entries
        .chunks_exact(size)
        .filter_map(|entry| entry.first_chunk().copied().map(u32::from_le_bytes))
        .any(|kind| kind == PT_INTERP)
}

/// The value of `LD_PRELOAD`: the library, before what is there already.
fn preloads(library: &Path) -> anyhow::Result<OsString> {
    let mut value = library.as_os_str().to_owned();
    if value.as_bytes().iter().any(|byte| matches!(byte, b' ' | b':')) {
        return Err(Stop::usage(format!(
            "{}: LD_PRELOAD takes no path with a blank or a colon; copy the library elsewhere and \
             name it in {PRELOAD_VARIABLE}",
            library.display()
        )));
    }
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        value.push(":");
        value.push(others);
    }
    Ok(value)
}

/// Tells that what the daemon asks for is done to the packets of another namespace. Some want it so.
fn warn_of_namespace(listener: Listener, socket: &Path) {
    if let Some(its) = listener.elsewhere() {
        tracing::warn!(
            "the gateway at {} runs in another network namespace than this command: it protects packets there, \
             and none of this namespace. `nsenter --net={} convoy exec …` runs the command there, and \
             `--socket` names another gateway",
            socket.display(),
            its.display()
        );
    }
}

/// Waits until a gateway serves XFRM at a socket: `convoy run &` just before may need a moment.
fn await_socket(socket: &Path, most: Duration) -> anyhow::Result<Listener> {
    const PAUSE: Duration = Duration::from_millis(50);
    let begin = Instant::now();
    let mut is_told = false;
    loop {
        match check_socket(socket) {
            Err(Unserved::NotYet(_)) if begin.elapsed() < most => {}
            outcome => return outcome.map_err(|error| error.stop(socket).into()),
        }
        if !is_told {
            is_told = true;
            tracing::info!(
                "waiting up to {} s for a gateway at {}",
                most.as_secs(),
                socket.display()
            );
        }
        std::thread::sleep(PAUSE);
    }
}

/// A reason for which a socket does not lead to a gateway.
enum Unserved {
    /// There is none yet, or no process listens.
    NotYet(String),
    /// It is something else.
    Wrong(String),
    /// A process serves it that is not to be trusted.
    Stranger(String),
}

impl Unserved {
    fn stop(self, socket: &Path) -> Stop {
        let message = match self {
            Self::Stranger(message) => message,
            Self::NotYet(why) | Self::Wrong(why) => format!(
                "{}: {why}: no gateway serves XFRM there; --socket or {SOCKET_VARIABLE} names another place",
                socket.display()
            ),
        };
        Stop { message, exit: Exit::NoGateway }
    }
}

fn check_socket(socket: &Path) -> Result<Listener, Unserved> {
    match fs::metadata(socket) {
        Ok(status) if status.file_type().is_socket() => {}
        Ok(_) => return Err(Unserved::Wrong("no socket".to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(Unserved::NotYet(error.to_string()));
        }
        Err(error) => return Err(Unserved::Wrong(error.to_string())),
    }
    probe(socket).map_err(|error| match error.kind() {
        ErrorKind::ConnectionRefused => {
            Unserved::NotYet("left over: no process listens".to_owned())
        }
        ErrorKind::NotFound => Unserved::NotYet(error.to_string()),
        // Such as a gateway's control socket.
        _ if error.raw_os_error() == Some(Errno::EPROTOTYPE as i32) => {
            Unserved::Wrong("a socket for something else".to_owned())
        }
        _ if error.get_ref().is_some_and(|why| why.is::<Stranger>()) => {
            Unserved::Stranger(error.to_string())
        }
        _ => Unserved::Wrong(error.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF header and its table, with entries of these kinds.
    fn program(kinds: &[u32]) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(64, 0);
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = u8::try_from(kinds.len()).unwrap();
        for kind in kinds {
            bytes.extend(kind.to_le_bytes());
            bytes.resize(bytes.len() + 52, 0);
        }
        bytes
    }

    #[test]
    fn a_program_without_a_loader_is_static() {
        assert!(is_static(&program(&[1, 1, 2])));
        assert!(!is_static(&program(&[6, 3, 1])));
        assert!(!is_static(b"#!/bin/sh\n"));
        assert!(!is_static(&[]));
    }

    #[test]
    fn a_torn_header_is_not_judged() {
        let whole = program(&[1, 1]);
        for len in 0..whole.len() {
            assert!(!is_static(&whole[..len]), "{len}");
        }
        let mut far = whole;
        far[32..40].fill(0xff);
        assert!(!is_static(&far));
    }
}
