//! Programs that answer and end.

use std::{
    io,
    process::{Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{LabError, error::Doing as _};

/// Runs a program to its end and returns what it printed.
///
/// # Errors
/// [`LabError::Program`] with what it said when it fails or takes longer than allowed.
pub(super) fn run(command: &mut Command, limit: Duration) -> Result<Vec<u8>, LabError> {
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
        let shell = |script: &str| {
            let limit = Duration::from_millis(300);
            run(Command::new("sh").args(["-c", script]), limit).map_err(|error| error.to_string())
        };
        assert_eq!(shell("echo good").unwrap(), b"good\n");
        assert!(shell("echo no; echo never >&2; exit 3").unwrap_err().contains("no\nnever"));
        assert!(shell("sleep 20").unwrap_err().contains("no answer within 300ms"));
    }
}
