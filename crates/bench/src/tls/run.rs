//! One run: load processes fetch a file from nginx for a while, and what that cost is written down.

use serde::{Deserialize, Serialize};

use super::hub::{Hub, HubError};
use super::job::{Job, Tally};
use super::server::{Nginx, ServerError, TlsConfig};

/// The latency that is bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Latency {
    /// Until a connection is there.
    Connect,
    /// Until the file begins.
    #[default]
    FirstByte,
    /// Until the file is there.
    Whole,
}

impl Latency {
    /// Its name in options and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::FirstByte => "first-byte",
            Self::Whole => "whole",
        }
    }
}

/// Latencies of all connections of a run, seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// Of connections that got so far, half took less.
    pub median: f64,
    /// Ninety-nine of a hundred took less.
    pub p99: f64,
    /// The longest, of those that were still waiting at the end as well.
    pub max: f64,
}

impl Latencies {
    fn of(microseconds: &[u32]) -> Self {
        let mut sorted = microseconds.to_vec();
        sorted.sort_unstable();
        let at = |part: f64| {
            let place = (part * sorted.len() as f64).ceil() as usize;
            let found = sorted.get(place.saturating_sub(1).min(sorted.len().saturating_sub(1)));
            found.map_or(0.0, |micros| f64::from(*micros) / 1e6)
        };
        Self { median: at(0.5), p99: at(0.99), max: at(1.0) }
    }
}

/// Processors that kept the throughput from being higher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bottleneck {
    /// nginx had no time left.
    Server,
    /// The load processes had none.
    Clients,
    /// Both had time left.
    Neither,
}

/// Share of a processor's time above which it is full.
const FULL: f64 = 0.92;

/// Result of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Whose cryptography the server used.
    pub provider: String,
    /// Configuration that it served with.
    pub way: TlsConfig,
    /// Bytes of the file.
    pub size: u64,
    /// Workers of nginx.
    pub workers: usize,
    /// Connections at once.
    pub connections: usize,
    /// Seconds it took.
    pub seconds: f64,
    /// Bytes of files a second.
    pub throughput: f64,
    /// Processor time of the workers, seconds.
    pub server_cpu: f64,
    /// Per cent of the workers' processors that they used.
    pub server_percent: f64,
    /// Bytes of files for each second of their processor time.
    pub bytes_per_cpu_second: f64,
    /// Processor time of the load processes, seconds.
    pub client_cpu: f64,
    /// Processors that kept throughput from being higher.
    pub bottleneck: Bottleneck,
    /// Files that came whole.
    pub files: u64,
    /// Of those, how many were decrypted and compared.
    pub verified: u64,
    /// Records of application data.
    pub records: u64,
    /// Connections that failed, and why.
    pub failures: Vec<(String, u64)>,
    /// Until connections were there.
    pub connect: Latencies,
    /// Until files began.
    pub first_byte: Latencies,
    /// Until files were there.
    pub whole: Latencies,
    /// True if encrypt-then-MAC was used, where records show it.
    pub encrypt_then_mac: Option<bool>,
    /// Records that the provider sealed meanwhile, if it counts.
    pub calls: Option<u64>,
}

impl Run {
    /// The latency that is bounded, at its longest.
    #[must_use]
    pub const fn latency(&self, which: Latency) -> f64 {
        match which {
            Latency::Connect => self.connect.max,
            Latency::FirstByte => self.first_byte.max,
            Latency::Whole => self.whole.max,
        }
    }

    /// Connections that failed.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failures.iter().map(|(_, n)| n).sum()
    }
}

/// A run that did not take place, or was not what it was to be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The load processes.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// nginx.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The server did something else than it was asked for.
    #[error("{provider}, {way}: {what}")]
    Other {
        /// Whose cryptography it used.
        provider: String,
        /// Configuration that it was to serve with.
        way: String,
        /// Description of its behaviour.
        what: String,
    },
}

/// A provider's counter of records.
pub type Calls<'a> = &'a dyn Fn() -> Option<u64>;

/// A server at work, by whose cryptography, and how many processors the clients have.
#[derive(Clone, Copy)]
pub struct Served<'a> {
    /// The server.
    pub nginx: &'a Nginx,
    /// Name of the provider.
    pub provider: &'a str,
    /// Its counter.
    pub calls: Calls<'a>,
    /// Its workers.
    pub workers: usize,
    /// Processors of the load processes.
    pub clients: usize,
}

impl std::fmt::Debug for Served<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Served({}, {} workers)", self.provider, self.workers)
    }
}

/// Has all load processes do a job with a server, and with its way of this number.
///
/// # Errors
/// [`RunError`], also when the server chose another cipher or mode than it was to.
pub fn run(
    hub: &mut Hub,
    served: &Served<'_>,
    number: usize,
    way: &TlsConfig,
    job: Job,
) -> Result<Run, RunError> {
    let job = Job { server: served.nginx.address(number), cipher: way.cipher.clone(), ..job };
    let calls = (served.calls)();
    let before = served.nginx.cpu_seconds()?;
    let tally = hub.run(&job)?;
    let server_cpu = served.nginx.cpu_seconds()? - before;
    let calls = (served.calls)().zip(calls).map(|(now, then)| now - then);
    let other = |what: String| RunError::Other {
        provider: served.provider.to_owned(),
        way: way.name(),
        what,
    };
    if let Some(cipher) = tally.ciphers.keys().find(|name| **name != way.cipher.name) {
        return Err(other(format!("the cipher was {cipher}")));
    }
    let wanted = way.cipher.encrypt_then_mac;
    if let Some(used) = tally.encrypt_then_mac.filter(|used| *used != wanted) {
        return Err(other(format!("encrypt-then-MAC was to be {wanted}, and was {used}")));
    }
    if tally.files == 0 && tally.bytes == 0 {
        let why = tally.failures.keys().next().map_or("nothing came", String::as_str);
        return Err(other(why.to_owned()));
    }
    Ok(summed(served, way, &job, tally, server_cpu, calls))
}

fn summed(
    served: &Served<'_>,
    way: &TlsConfig,
    job: &Job,
    tally: Tally,
    server_cpu: f64,
    calls: Option<u64>,
) -> Run {
    let share = server_cpu / (tally.seconds * served.workers as f64);
    let of_clients = tally.cpu_seconds / (tally.seconds * served.clients.max(1) as f64);
    Run {
        provider: served.provider.to_owned(),
        way: way.clone(),
        size: job.size,
        workers: served.workers,
        connections: job.connections,
        seconds: tally.seconds,
        throughput: tally.bytes as f64 / tally.seconds,
        server_cpu,
        server_percent: 100.0 * share,
        bytes_per_cpu_second: tally.bytes as f64 / server_cpu.max(1e-9),
        client_cpu: tally.cpu_seconds,
        bottleneck: match (share > FULL, of_clients > FULL) {
            (true, _) => Bottleneck::Server,
            (false, true) => Bottleneck::Clients,
            (false, false) => Bottleneck::Neither,
        },
        files: tally.files,
        verified: tally.verified,
        records: tally.records,
        connect: Latencies::of(&tally.connect),
        first_byte: Latencies::of(&tally.first_byte),
        whole: Latencies::of(&tally.whole),
        encrypt_then_mac: tally.encrypt_then_mac,
        failures: tally.failures.into_iter().collect(),
        calls,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_percentiles_and_the_longest() {
        let hundred: Vec<u32> = (1..=100).rev().map(|n| n * 1_000_000).collect();
        let latencies = Latencies::of(&hundred);
        assert_eq!((latencies.median, latencies.p99, latencies.max), (50.0, 99.0, 100.0));
        assert_eq!(Latencies::of(&[]), Latencies::default());
        assert_eq!(Latencies::of(&[5]).max, 5e-6);
    }
}
