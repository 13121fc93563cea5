//! DPDK's programs, run once.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use convoy_crypto::Suite;

use super::options::{self, Driver};
use super::printed::{Printed, Window};
use super::{BURST, PACKETS, WINDOWS};
use crate::esp::rig::RigError;

/// Name of the program that measures devices.
pub const DEVICES: &str = "dpdk-test-crypto-perf";
/// Time between two looks at a program.
const PAUSE: Duration = Duration::from_millis(20);
/// Longest time of a run; one takes about a second.
const PATIENCE: Duration = Duration::from_secs(60);
/// Folders in which DPDK keeps files of a run (EAL, `eal_create_runtime_dir`): for root, and for others.
const FOLDERS: [&str; 2] = ["RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"];

/// A run came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The program is not there, or cannot be run.
    #[error("{program} cannot be started ({error}); {mend}")]
    Missing {
        /// Name of the program.
        program: String,
        /// The system's error.
        error: io::Error,
        /// A way to get it.
        mend: &'static str,
    },
    /// It ended without a result.
    #[error("{program} ended with {status}: {said}")]
    Ended {
        /// Name of the program.
        program: &'static str,
        /// Its exit status.
        status: ExitStatus,
        /// Its own words.
        said: String,
    },
    /// It took too long, and was ended.
    #[error("{0} took longer than {limit} s", limit = PATIENCE.as_secs())]
    Late(&'static str),
    /// The bench was interrupted, and the run with it.
    #[error("interrupted")]
    Interrupted,
    /// Its output is not that of such a run.
    #[error("{program}: {what}")]
    Table {
        /// Name of the program.
        program: &'static str,
        /// The fault of the output.
        what: String,
    },
    /// Convoy's own side could not be measured.
    #[error(transparent)]
    Own(#[from] RigError),
    /// Files for a run.
    #[error("files for a run: {0}")]
    Files(#[from] io::Error),
}

/// A program of DPDK's.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    name: &'static str,
    mend: &'static str,
}

/// A run of the program that measures devices.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The kind of device.
    pub driver: &'a Driver,
    /// Suite and sizes.
    pub suite: Suite,
    /// Bytes of texts, whole blocks.
    pub texts: &'a [usize],
    /// The processor that computes, and one where the program's main thread spins meanwhile.
    pub processors: [usize; 2],
}

impl Program {
    /// The program that measures devices: that at `path`, or the one that is installed.
    #[must_use]
    pub fn devices(path: Option<&Path>) -> Self {
        let mend = "install it (Debian and Ubuntu: apt install dpdk-dev librte-meta-crypto), or name it with --program PATH";
        Self::new(path.unwrap_or_else(|| Path::new(DEVICES)), DEVICES, mend)
    }

    /// The program at `path`, with words on the way to get it.
    pub(super) fn new(path: &Path, name: &'static str, mend: &'static str) -> Self {
        Self { path: path.to_owned(), name, mend }
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Runs it to its end; `go_on` is asked meanwhile. The table has [`WINDOWS`] windows of each text, in the order of the texts.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn run(&self, run: &Run<'_>, go_on: &dyn Fn() -> bool) -> Result<Printed, RunError> {
        let Run { driver, suite, texts, processors } = *run;
        let suite = options::of_suite(suite)
            .ok_or_else(|| self.wrong(format!("it has no options for {suite}")))?;
        let folder = tempfile::tempdir()?;
        let arguments = options::all(driver, &suite, texts, processors);
        let text = self.printed(self.command(&arguments, folder.path()), go_on)?;
        let printed = Printed::parse(&text).map_err(|what| self.wrong(what))?;
        check(&printed.windows, texts).map_err(|what| self.wrong(what))?;
        Ok(printed)
    }

    /// An error on its output.
    pub(super) const fn wrong(&self, what: String) -> RunError {
        RunError::Table { program: self.name, what }
    }

    /// A run of it in `folder`.
    pub(super) fn command(&self, arguments: &[String], folder: &Path) -> Command {
        // A path is meant from here, a name from `PATH`.
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let mut command = Command::new(path);
        command.args(arguments).current_dir(folder).envs(FOLDERS.map(|name| (name, folder)));
        command
    }

    /// Its output when it has ended; `go_on` is asked meanwhile.
    pub(super) fn printed(
        &self,
        mut command: Command,
        go_on: &dyn Fn() -> bool,
    ) -> Result<String, RunError> {
        let mut output = tempfile::tempfile()?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?);
        let missing = |error| RunError::Missing {
            program: self.path.display().to_string(),
            error,
            mend: self.mend,
        };
        let status = wait(command.spawn().map_err(missing)?, self.name, go_on)?;
        let text = all_of(&mut output)?;
        match status.success() {
            true => Ok(text),
            false => Err(RunError::Ended { program: self.name, status, said: said(&text) }),
        }
    }
}

/// Waits for its end.
fn wait(
    mut child: Child,
    name: &'static str,
    go_on: &dyn Fn() -> bool,
) -> Result<ExitStatus, RunError> {
    let begun = Instant::now();
    loop {
        // Ctrl-C reaches the program, too.
        let why = match child.try_wait()? {
            _ if !go_on() => RunError::Interrupted,
            Some(status) => return Ok(status),
            None if begun.elapsed() > PATIENCE => RunError::Late(name),
            None => {
                thread::sleep(PAUSE);
                continue;
            }
        };
        // It may have ended by now.
        let _ = child.kill();
        child.wait()?;
        return Err(why);
    }
}

fn all_of(file: &mut File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The line of a program's output that tells why it ended: the first about something that failed, else the last.
fn said(text: &str) -> String {
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_cause = |line: &&str| {
        let line = line.to_lowercase();
        let words = ["error", "fail", "cannot", "not support", "invalid"];
        // The line below it has the cause.
        words.iter().any(|word| line.contains(word)) && !line.contains("error - exiting")
    };
    let found = lines().find(is_cause).or_else(|| lines().next_back()).unwrap_or("it said nothing");
    let mend = [
        (
            "failed to parse device",
            "DPDK has no driver for it here (Debian and Ubuntu: apt install librte-meta-crypto)",
        ),
        (
            "required RX offloads",
            "its source asks this of every device, and interop/secgw/build.sh changes that",
        ),
    ];
    let mend = mend.iter().find(|(sign, _)| found.contains(sign));
    mend.map_or_else(|| found.to_owned(), |(_, mend)| format!("{found}; {mend}"))
}

/// True if the table is that of a run: all windows of all texts, and every packet came back.
fn check(windows: &[Window], texts: &[usize]) -> Result<(), String> {
    let all = texts.len() * WINDOWS;
    if windows.len() != all {
        return Err(format!("its table has {} rows instead of {all}", windows.len()));
    }
    for (part, text) in windows.chunks(WINDOWS).zip(texts) {
        for window in part {
            let Window { bytes, burst, packets, .. } = *window;
            if (bytes, burst, packets) != (*text, BURST, PACKETS) {
                return Err(format!(
                    "a row is of {packets} packets of {bytes} bytes in bursts of {burst}, instead of {PACKETS} of {text} in \
                     bursts of {BURST}"
                ));
            }
        }
    }
    Ok(())
}
