//! `dpdk-test-crypto-perf`, run once.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use convoy_crypto::Suite;

use super::options::{self, Driver};
use super::printed::{Printed, Window};
use super::{BURST, PACKETS, WINDOWS};

/// Its name.
pub const NAME: &str = "dpdk-test-crypto-perf";
/// Time between two looks at it.
const PAUSE: Duration = Duration::from_millis(20);
/// Longest time of a run; one takes about a second.
const PATIENCE: Duration = Duration::from_secs(60);
/// Folders in which DPDK keeps files of a run (EAL, `eal_create_runtime_dir`): for root, and for others.
const FOLDERS: [&str; 2] = ["RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"];

/// A run came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It is not there.
    #[error(
        "{program} is not here ({error}); install it (Debian and Ubuntu: apt install dpdk librte-meta-crypto), or name it \
         with --program PATH"
    )]
    Missing {
        /// Name of the program.
        program: String,
        /// The system's error.
        error: io::Error,
    },
    /// It ended without a result.
    #[error("{name} ended with {status}: {said}", name = NAME)]
    Ended {
        /// Its exit status.
        status: ExitStatus,
        /// Its own words.
        said: String,
    },
    /// It took too long, and was ended.
    #[error("{name} took longer than {limit} s", name = NAME, limit = PATIENCE.as_secs())]
    Late,
    /// The bench was interrupted, and the run with it.
    #[error("interrupted")]
    Interrupted,
    /// Its table is not that of such a run.
    #[error("{name}: {0}", name = NAME)]
    Table(String),
    /// Files for what it prints.
    #[error("files for what {name} prints: {0}", name = NAME)]
    Files(#[from] io::Error),
}

/// Its path.
#[derive(Clone, Debug)]
pub struct Program(PathBuf);

/// One run.
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
    /// The program at `path`, or the one that is installed.
    #[must_use]
    pub fn new(path: Option<&Path>) -> Self {
        Self(path.map_or_else(|| PathBuf::from(NAME), Path::to_owned))
    }

    /// Runs it to its end; `go_on` is asked meanwhile. The table has [`WINDOWS`] windows of each text, in the order of the texts.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn run(&self, run: &Run<'_>, go_on: &dyn Fn() -> bool) -> Result<Printed, RunError> {
        let Run { driver, suite, texts, processors } = *run;
        let suite = options::of_suite(suite)
            .ok_or_else(|| RunError::Table(format!("it has no options for {suite}")))?;
        let folder = tempfile::tempdir()?;
        let mut output = tempfile::tempfile()?;
        let mut command = Command::new(&self.0);
        command.args(options::all(driver, &suite, texts, processors));
        command.envs(FOLDERS.map(|name| (name, folder.path())));
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?);
        let missing = |error| RunError::Missing { program: self.0.display().to_string(), error };
        let status = wait(command.spawn().map_err(missing)?, go_on)?;
        let text = all_of(&mut output)?;
        if !status.success() {
            return Err(RunError::Ended { status, said: said(&text) });
        }
        let printed = Printed::parse(&text).map_err(RunError::Table)?;
        check(&printed.windows, texts).map_err(RunError::Table)?;
        Ok(printed)
    }
}

/// Waits for its end.
fn wait(mut child: Child, go_on: &dyn Fn() -> bool) -> Result<ExitStatus, RunError> {
    let begun = Instant::now();
    loop {
        // Ctrl-C reaches the program, too.
        let why = match child.try_wait()? {
            _ if !go_on() => RunError::Interrupted,
            Some(status) => return Ok(status),
            None if begun.elapsed() > PATIENCE => RunError::Late,
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

/// The line of its output that tells why it ended: the first about something that failed, else the last.
fn said(text: &str) -> String {
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_cause = |line: &&str| {
        let line = line.to_lowercase();
        ["error", "fail", "cannot", "not support", "invalid"].iter().any(|word| line.contains(word))
    };
    let found = lines().find(is_cause).or_else(|| lines().next_back()).unwrap_or("it said nothing");
    match found.contains("failed to parse device") {
        true => format!(
            "{found}; DPDK has no driver for it here (Debian and Ubuntu: apt install librte-meta-crypto)"
        ),
        false => found.to_owned(),
    }
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
