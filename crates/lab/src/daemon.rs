//! Parts that all IKE daemons of the laboratory need: files, a process that does not outlive its owner, and
//! programs that answer and end.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::{
        ffi::OsStrExt as _, fs::DirBuilderExt as _, fs::OpenOptionsExt as _,
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{LabError, Namespace, Program, error::Doing as _};

/// Folders of programs that are not in everybody's `PATH`.
const PLACES: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];
/// Longest path of a UNIX socket in bytes (`sockaddr_un`), with its end.
const SOCKET_PATH: usize = 108;
/// Lines of a log that are shown.
const LOG_LINES: usize = 15;

/// A program's file.
pub(crate) fn find(name: &str) -> Result<PathBuf, LabError> {
    let path = env::var_os("PATH").unwrap_or_default();
    let places = env::split_paths(&path).chain(PLACES.map(PathBuf::from));
    places
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .ok_or_else(|| LabError::Missing { program: name.into() })
}

/// Makes a folder for the owner's eyes only, and those above it.
pub(crate) fn make_folder(folder: &Path) -> Result<(), LabError> {
    let mut builder = fs::DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(folder);
    made.doing(|| format!("make {}", folder.display()))
}

/// Writes a file for the owner's eyes only.
pub(crate) fn write_private(path: &Path, content: &[u8]) -> Result<(), LabError> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written = options.open(path).and_then(|mut file| file.write_all(content));
    written.doing(|| format!("write {}", path.display()))
}

/// Makes room for a daemon's socket: an earlier one's answers must not be taken for its own.
pub(crate) fn make_way(socket: &Path) -> Result<(), LabError> {
    if socket.as_os_str().as_bytes().len() >= SOCKET_PATH {
        return Err(LabError::LongPath { path: socket.into() });
    }
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).doing(|| format!("remove {}", socket.display()))
        }
        _ => Ok(()),
    }
}

/// A text file, as far as there is one.
pub(crate) fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// The end of the first of some logs that is not empty.
pub(crate) fn last_words(logs: &[PathBuf]) -> String {
    let full = logs.iter().map(|log| (log, read(log))).find(|(_, text)| !text.is_empty());
    let Some((log, text)) = full else { return "nothing was logged".into() };
    let lines: Vec<_> = text.lines().collect();
    let last = lines.get(lines.len().saturating_sub(LOG_LINES)..).unwrap_or_default();
    format!("{} ends with\n  {}", log.display(), last.join("\n  "))
}

/// A daemon, and what ends it should its owner die.
#[derive(Debug)]
pub(crate) struct Daemon {
    // Before the daemon, which it would take along.
    _watch: Program,
    program: Program,
}

impl Daemon {
    /// Starts a command that runs in the place of the words before it, as `env` does. What it prints
    /// goes to a file.
    pub(crate) fn start<'a>(
        namespace: &Namespace,
        launcher: &'a [OsString],
        command: impl IntoIterator<Item = &'a OsStr>,
        variables: &[(&str, PathBuf)],
        output: &Path,
    ) -> Result<Self, LabError> {
        let mut words = launcher.iter().map(OsString::as_os_str).chain(command);
        let mut command = Command::new(words.next().unwrap_or_default());
        let output = File::create(output).doing(|| format!("create {}", output.display()))?;
        let errors = output.try_clone().doing(|| "share a file".into())?;
        command
            .args(words)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            // It would tell a service manager that is not its own.
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            // Ctrl-C is for the owner, who then ends it.
            .process_group(0);
        let mut program = Program::start(namespace, &mut command)?;
        let watch = watch(namespace, program.child().id())?;
        Ok(Self { _watch: watch, program })
    }

    pub(crate) fn program(&mut self) -> &mut Program {
        &mut self.program
    }

    /// Asks it to end, and makes it.
    pub(crate) fn end(self, patience: Duration) -> Result<(), LabError> {
        let Self { _watch: watch, program } = self;
        drop(watch);
        program.end(patience).map(drop)
    }

    /// Kills it without warning (SIGKILL).
    pub(crate) fn kill(self) -> Result<(), LabError> {
        let Self { _watch: watch, mut program } = self;
        drop(watch);
        let child = program.child();
        child.kill().and_then(|()| child.wait()).doing(|| "kill a daemon".into()).map(drop)
    }
}

/// A process that kills the daemon when this one dies without ending it: its standard input ends
/// then. The time at which the daemon began tells it from a later process of the same number.
fn watch(namespace: &Namespace, daemon: u32) -> Result<Program, LabError> {
    let script = "born() { cut -d ' ' -f 22 \"/proc/$1/stat\"; }; first=$(born \"$1\"); read -r _
                  [ \"$(born \"$1\")\" = \"$first\" ] && kill -9 \"$1\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "watch", &daemon.to_string()]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    Program::start(namespace, &mut command)
}

/// Runs a program to its end and returns what it printed.
///
/// # Errors
/// [`LabError::Program`] with what it said when it fails or takes longer than allowed.
pub(crate) fn run(command: &mut Command, limit: Duration) -> Result<Vec<u8>, LabError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
    let called = [program].into_iter().chain(words).collect::<Vec<_>>().join(" ");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().doing(|| format!("start {called}"))?;
    let pid = Pid::from_raw(child.id().cast_signed());
    let (done, ended) = mpsc::channel();
    let waiting = thread::Builder::new().name("command".into()).spawn(move || {
        // Whoever has stopped listening has killed it.
        let _ = done.send(child.wait_with_output());
    });
    waiting.map_err(LabError::Thread)?;
    let output = match ended.recv_timeout(limit) {
        Ok(output) => output,
        Err(RecvTimeoutError::Timeout) => {
            // It has not been waited for, or the thread would have told so.
            let _ = kill(pid, Signal::SIGKILL);
            let said = format!("no answer within {limit:?}");
            return Err(LabError::Program { program: called, said });
        }
        Err(RecvTimeoutError::Disconnected) => Err(io::ErrorKind::BrokenPipe.into()),
    };
    let output = output.doing(|| format!("wait for {called}"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let both = [output.stdout, output.stderr].concat();
    let said = format!("{}: {}", output.status, String::from_utf8_lossy(&both).trim());
    Err(LabError::Program { program: called, said })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_is_told_when_it_fails() {
        let shell = |script: &str, limit: Duration| {
            run(Command::new("sh").args(["-c", script]), limit).map_err(|error| error.to_string())
        };
        let (long, short) = (Duration::from_secs(60), Duration::from_millis(300));
        assert_eq!(shell("echo good", long).unwrap(), b"good\n");
        assert!(shell("echo no; echo never >&2; exit 3", long).unwrap_err().contains("no\nnever"));
        assert!(shell("sleep 20", short).unwrap_err().contains("no answer within 300ms"));
    }
}
