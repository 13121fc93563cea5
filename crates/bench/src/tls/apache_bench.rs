//! Apache Bench as a load process, which the study had.

use std::fs;
use std::io::{self, Read as _};
use std::process::{Command, Stdio};

use nix::sys::resource::UsageWho;

use super::job::{Job, Tally};
use super::load::{LoadError, cpu_seconds};
use crate::peer::libssl::Version;

/// The program.
pub const PROGRAM: &str = "ab";
/// Most files of a run; Apache Bench takes 40 bytes for each.
const FILES: usize = 2_000_000;
/// Most bytes of its complaints that are read.
const COMPLAINTS: u64 = 4096;

/// A run that is set up; it begins with [`ApacheBench::run`].
#[derive(Debug)]
pub struct ApacheBench(Job);

impl ApacheBench {
    /// Looks for the program.
    ///
    /// # Errors
    /// [`LoadError::Program`] when it is not there.
    pub fn new(job: Job) -> Result<Self, LoadError> {
        let mut command = Command::new(PROGRAM);
        command.arg("-V").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().map_err(not_started)?;
        Ok(Self(job))
    }

    /// Fetches until the time is over, a whole number of seconds. Files are counted that came whole by then.
    ///
    /// # Errors
    /// [`LoadError`] when the program cannot be started, or its report cannot be read.
    pub fn run(self) -> Result<Tally, LoadError> {
        let Self(job) = self;
        let trouble = |error| LoadError::Program { what: "a folder for its table", error };
        let folder = tempfile::tempdir().map_err(trouble)?;
        let table = folder.path().join("requests.tsv");
        let before = cpu_seconds(UsageWho::RUSAGE_CHILDREN);
        let mut command = Command::new(PROGRAM);
        command.args(["-q", "-r", "-s", &seconds(job.patience), "-t", &seconds(job.seconds)]);
        command.args(["-n", &FILES.to_string(), "-c", &job.connections.to_string()]);
        match job.cipher.version {
            Version::Tls12 => command.args(["-f", "TLS1.2", "-Z", &job.cipher.name]),
            // The server alone says which suite.
            Version::Tls13 => command.args(["-f", "TLS1.3"]),
        };
        command.arg("-g").arg(&table).arg(format!("https://{}{}", job.server, job.path));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(not_started)?;
        // It repeats its complaints for each connection: the first are kept, the rest is thrown away.
        let complaints = child.stderr.take().map(|mut stderr| {
            std::thread::spawn(move || {
                let mut first = String::new();
                let _ = stderr.by_ref().take(COMPLAINTS).read_to_string(&mut first);
                let _ = io::copy(&mut stderr, &mut io::sink());
                first
            })
        });
        let output = child
            .wait_with_output()
            .map_err(|error| LoadError::Program { what: "its report", error })?;
        let complaints = complaints.and_then(|thread| thread.join().ok()).unwrap_or_default();
        let report = String::from_utf8_lossy(&output.stdout);
        let mut tally = read_report(&report, &job).ok_or_else(|| {
            let said = complaints.lines().next().unwrap_or("it said nothing").to_owned();
            LoadError::Program { what: "a report", error: io::Error::other(said) }
        })?;
        let table = fs::read_to_string(&table).unwrap_or_default();
        read_table(&table, &mut tally);
        tally.cpu_seconds = cpu_seconds(UsageWho::RUSAGE_CHILDREN) - before;
        Ok(tally)
    }
}

fn not_started(error: io::Error) -> LoadError {
    LoadError::Program {
        what: "itself; install it (Debian and Ubuntu: apt install apache2-utils)",
        error,
    }
}

/// As it takes them: whole ones, at least one.
fn seconds(seconds: f64) -> String {
    format!("{:.0}", seconds.ceil().max(1.0))
}

/// Reads its final report, which says nothing of files that did not become whole.
fn read_report(report: &str, job: &Job) -> Option<Tally> {
    let behind =
        |name: &str| report.lines().find_map(|line| line.trim().strip_prefix(name)).map(str::trim);
    let number =
        |name: &str| -> Option<f64> { behind(name)?.split_whitespace().next()?.parse().ok() };
    let bytes = number("HTML transferred:")? as u64;
    let mut tally = Tally {
        seconds: number("Time taken for tests:")?,
        files: bytes / job.size.max(1),
        bytes,
        ..Tally::default()
    };
    // "(Connect: 0, Receive: 0, Length: 0, Exceptions: 0)"
    let reasons = behind("(Connect:").unwrap_or_default().trim_end_matches(')');
    for (reason, count) in format!("connect: {reasons}").split(", ").filter_map(|reason| {
        let (name, count) = reason.split_once(':')?;
        Some((name.to_lowercase(), count.trim().parse::<u64>().ok()?))
    }) {
        if count > 0 {
            tally.failures.insert(format!("ab: {reason}"), count);
        }
    }
    if let Some(count) = number("Non-2xx responses:").filter(|count| *count > 0.0) {
        tally.failures.insert("ab: no such file".to_owned(), count as u64);
    }
    // "TLSv1.2,AES128-SHA,2048,128"
    if let Some(cipher) = behind("SSL/TLS Protocol:").and_then(|line| line.split(',').nth(1)) {
        tally.ciphers.insert(cipher.to_owned(), tally.files);
    }
    Some(tally)
}

/// Its table of requests: milliseconds until each was connected, answered, and over.
fn read_table(table: &str, tally: &mut Tally) {
    for line in table.lines().skip(1) {
        let mut cells = line.split('\t').skip(2).map(|cell| cell.trim().parse::<u32>().ok());
        let mut next = || cells.next().flatten();
        let (Some(connect), Some(_), Some(whole), Some(wait)) = (next(), next(), next(), next())
        else {
            continue;
        };
        tally.connect.push(connect.saturating_mul(1000));
        tally.first_byte.push(connect.saturating_add(wait).saturating_mul(1000));
        tally.whole.push(whole.saturating_mul(1000));
    }
}

#[cfg(test)]
mod tests {
    use super::super::job::{Cipher, Generator};
    use super::*;

    fn job() -> Job {
        Job {
            generator: Generator::ApacheBench,
            server: "127.0.0.1:443".to_owned(),
            path: "/f".to_owned(),
            size: 1000,
            cipher: Cipher {
                name: "AES128-SHA".to_owned(),
                version: Version::Tls12,
                encrypt_then_mac: false,
            },
            connections: 4,
            seconds: 1.0,
            verify_every: 32,
            patience: 30.0,
        }
    }

    #[test]
    fn reports_are_read() {
        let report = "Server Port:  9443\nSSL/TLS Protocol:       TLSv1.2,AES128-SHA,2048,128\n\
                      Time taken for tests:   2.056 seconds\nComplete requests:      14\n\
                      Failed requests:        3\n   (Connect: 0, Receive: 0, Length: 2, Exceptions: 1)\n\
                      Total transferred:      13585 bytes\nHTML transferred:       13000 bytes\n";
        let tally = read_report(report, &job()).unwrap();
        assert_eq!((tally.files, tally.bytes, tally.seconds), (13, 13_000, 2.056));
        let failures = [("ab: exceptions".to_owned(), 1), ("ab: length".to_owned(), 2)];
        assert_eq!(tally.failures, failures.into());
        assert_eq!(tally.ciphers, [("AES128-SHA".to_owned(), 13)].into());
        assert!(read_report("apr_socket_connect(): Connection refused (111)", &job()).is_none());
    }

    #[test]
    fn latencies_are_those_of_the_table() {
        let table = "starttime\tseconds\tctime\tdtime\tttime\twait\n\
                     Thu Nov 26 07:05:14 2026\t1795676714\t8\t255\t262\t3\n\
                     Thu Nov 26 07:05:14 2026\t1795676714\t258\t154\t412\t0\nhalf a line\n";
        let mut tally = Tally::default();
        read_table(table, &mut tally);
        assert_eq!(tally.connect, [8000, 258_000]);
        assert_eq!(tally.first_byte, [11_000, 258_000]);
        assert_eq!(tally.whole, [262_000, 412_000]);
    }
}
