//! Printed report of the study: the figures of 2015 beside those of this machine.

use std::fmt::{self, Write as _};

use super::job::Generator;
use super::run::{Bottleneck, Latency};
use super::server::TlsConfig;
use super::study::{Findings, Peak};
use crate::class::Class;
use crate::records::measure::Point;
use crate::results::LeftOut;
use crate::results::head::Head;

/// All that was measured.
#[derive(Debug)]
pub struct Report {
    /// Version, command and machine.
    pub head: Head,
    /// The class of processors whose best tier Convoy used.
    pub class: Class,
    /// The tier of CPU that Convoy's provider takes.
    pub tier: &'static str,
    /// Version of OpenSSL.
    pub openssl: String,
    /// nginx's description of itself.
    pub nginx: String,
    /// Providers.
    pub providers: Vec<String>,
    /// Program that fetched.
    pub generator: Generator,
    /// Load processes.
    pub load_processes: usize,
    /// The latency that is bounded.
    pub latency: Latency,
    /// Its bound, seconds.
    pub latency_bound: f64,
    /// Record calls through EVP, for F14.
    pub records: Vec<Point>,
    /// Results of the servers.
    pub findings: Findings,
    /// Measurements that were left out, with the reason.
    pub left_out: Vec<LeftOut>,
    /// Settings of the kernel that were changed meanwhile.
    pub tuned: Vec<String>,
    /// Changes by which this machine would carry more.
    pub advice: Vec<String>,
}

/// A table: rows of cells, the first of them the heads.
pub type Rows = Vec<Vec<String>>;

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).into()
}

/// A size of a file for people.
fn size_name(bytes: u64) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 30) => format!("{} GB", bytes >> 30),
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MB", bytes >> 20),
        _ => format!("{bytes} B"),
    }
}

fn mega(bytes: f64) -> String {
    format!("{:.0}", bytes / 1e6)
}

impl Report {
    /// F14: AES-128-GCM over AES-128-CBC with HMAC-SHA1 at the level of EVP, by size of the record.
    #[must_use]
    pub fn f14(&self) -> Rows {
        let mut rows = vec![row(["RECORD", "default", "Convoy"])];
        let of = |cipher: &str, size: usize| {
            let found = |point: &&Point| {
                (point.cipher, point.call, point.size) == (cipher, "tls12-seal", size)
            };
            self.records.iter().find(found)
        };
        let mut sizes: Vec<_> = self.records.iter().map(|point| point.size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        for size in sizes {
            let gcm = of("aes-128-gcm", size);
            let Some((gcm, cbc)) = gcm.zip(of("aes-128-cbc-hmac-sha1", size)) else { continue };
            rows.push(vec![
                format!("{size} B"),
                format!("{:.2}", cbc.default_ns / gcm.default_ns),
                format!("{:.2}", cbc.convoy_ns / gcm.convoy_ns),
            ]);
        }
        rows
    }

    /// F15 and F16: the highest throughput by size of the file, and the workers' share of their processors
    /// at it.
    #[must_use]
    pub fn peaks(&self) -> Rows {
        let mut rows = vec![row([
            "WORKERS",
            "FILE",
            "CIPHER",
            "PROVIDER",
            "CONNECTIONS",
            "MB/s",
            "Gb/s A WORKER",
            "%CPU",
            "MB/CPU-s",
            "LATENCY ms",
            "BY",
        ])];
        for peak in &self.findings.peaks {
            let mut cells = vec![
                peak.workers.to_string(),
                size_name(peak.size),
                peak.way.name(),
                peak.provider.clone(),
            ];
            match &peak.best {
                Some(run) => cells.extend([
                    run.connections.to_string(),
                    mega(run.throughput),
                    format!("{:.2}", run.throughput * 8e-9 / peak.workers as f64),
                    format!("{:.0}", run.server_percent),
                    mega(run.bytes_per_cpu_second),
                    format!("{:.0}", 1e3 * run.latency(self.latency)),
                    match run.bottleneck {
                        Bottleneck::Server => "server",
                        Bottleneck::Clients => "clients",
                        Bottleneck::Neither => "neither",
                    }
                    .to_owned(),
                ]),
                None => cells.push(format!("none: {}", why_none(peak, self.latency_bound))),
            }
            rows.push(cells);
        }
        rows
    }

    /// Providers side by side.
    #[must_use]
    pub fn duels(&self) -> Rows {
        let mut rows = vec![row(["CIPHER", "FILE", "default", "Convoy", "RATIO", "95 %", "CALLS"])];
        for duel in &self.findings.duels {
            let [first, second] = duel.bytes_per_cpu_second;
            rows.push(vec![
                duel.way.name(),
                size_name(duel.size),
                mega(first),
                mega(second),
                format!("{:.2}", duel.ratio.median),
                format!("{:.2}–{:.2}", duel.ratio.low, duel.ratio.high),
                duel.calls.map_or_else(|| "–".to_owned(), |calls| calls.to_string()),
            ]);
        }
        rows
    }

    /// Costs of connections without their files.
    #[must_use]
    pub fn handshakes(&self) -> Rows {
        let mut rows = vec![row(["CIPHER", "PROVIDER", "ms A CONNECTION", "OF 1 MB"])];
        for handshake in &self.findings.handshakes {
            rows.push(vec![
                handshake.way.name(),
                handshake.provider.clone(),
                format!("{:.2}", handshake.milliseconds),
                format!("{:.0} %", 100.0 * handshake.milliseconds / handshake.milliseconds_1mb),
            ]);
        }
        rows
    }

    /// Share of the worker's time for AES-GCM with the first provider, and the bound that it sets for every cipher.
    fn bound_of_gcm(&self) -> Option<String> {
        const FULL: usize = 16_384;
        let is_gcm =
            |way: &TlsConfig| way.cipher.name == "AES128-GCM-SHA256" && way.buffer_kib == 16;
        let duel = self.findings.duels.iter().find(|duel| is_gcm(&duel.way))?;
        let sealed = self.records.iter().find(|point| {
            (point.cipher, point.call, point.size) == ("aes-128-gcm", "tls12-seal", FULL)
        })?;
        let share = duel.bytes_per_cpu_second[0] / FULL as f64 * sealed.default_ns * 1e-9;
        (share < 1.0).then(|| {
            format!(
                "Sealing is {:.0} % of the worker's time with AES128-GCM-SHA256, 16k, and the default provider: \
                 no cipher could reach more than {:.2} there.\n",
                100.0 * share,
                1.0 / (1.0 - share)
            )
        })
    }

    /// The study's ratio in nginx, GCM over AES128-SHA, for each provider, file and buffer that has both.
    #[must_use]
    pub fn gcm_over_cbc(&self) -> Vec<String> {
        let duels = &self.findings.duels;
        let mut lines = Vec::new();
        let with = |is: fn(&TlsConfig) -> bool| duels.iter().filter(move |duel| is(&duel.way));
        let gcm = with(|way| way.cipher.name == "AES128-GCM-SHA256");
        for gcm in gcm {
            let cbc = with(|way| way.cipher.name == "AES128-SHA" && !way.cipher.encrypt_then_mac);
            for cbc in cbc.filter(|cbc| cbc.size == gcm.size) {
                let ratio = |at: usize| gcm.bytes_per_cpu_second[at] / cbc.bytes_per_cpu_second[at];
                let [first, second] = &gcm.providers;
                lines.push(format!(
                    "{} over {}: {first} {:.2}, {second} {:.2}",
                    gcm.way.name(),
                    cbc.way.name(),
                    ratio(0),
                    ratio(1)
                ));
            }
        }
        lines
    }

    /// Everything as text, with tables laid out by `table`.
    #[must_use]
    pub fn text(&self, table: fn(&[Vec<String>]) -> String) -> String {
        let mut text = format!(
            "convoy {}: {}\n{}, class {}; kernel {}\n{}; {}; {} load processes ({}); bounded: {} latency, {} s\n",
            self.head.version,
            self.head.command,
            self.head.machine.cpu,
            self.class.name(),
            self.head.machine.kernel,
            self.openssl,
            self.nginx,
            self.load_processes,
            self.generator.name(),
            self.latency.name(),
            self.latency_bound,
        );
        let mut part = |heading: &str, rows: Rows, below: &str| {
            if rows.len() > 1 {
                let _ = write!(text, "\n{heading}\n\n{}{below}", table(&rows));
            }
        };
        part(
            "F14: sealing a record of AES-128-CBC with HMAC-SHA1, in the time of AES-128-GCM (2015: 2.5 and 4.5)",
            self.f14(),
            "",
        );
        part(
            "One worker, MB of files for each second of its processor time; RATIO: Convoy over the default provider",
            self.duels(),
            &self.bound_of_gcm().unwrap_or_default(),
        );
        part(
            "Handshakes: what a connection costs without its file, and its share of 1 MB",
            self.handshakes(),
            "",
        );
        part(
            "F15 and F16: highest throughput, and %CPU of the workers at it (2015: 8 Gb/s a core; high nineties)",
            self.peaks(),
            "",
        );
        let ratios = self.gcm_over_cbc();
        if !ratios.is_empty() {
            let _ = writeln!(text, "\nGCM over CBC with HMAC-SHA1 in nginx (2015: 2 to 2.4)\n");
            ratios.iter().for_each(|line| text.push_str(&format!("{line}\n")));
        }
        for LeftOut { what, why } in &self.left_out {
            let _ = writeln!(text, "left out: {what}: {why}");
        }
        for line in &self.tuned {
            let _ = writeln!(text, "tuned: {line}");
        }
        for line in &self.advice {
            let _ = writeln!(text, "advice: {line}");
        }
        if self.findings.is_cut {
            text.push_str("ended before its time: what was measured until then\n");
        }
        text
    }
}

/// Reason for which no number of connections was good.
pub(crate) fn why_none(peak: &Peak, bound: f64) -> String {
    match peak.trials.first() {
        None => "nothing was tried".to_owned(),
        Some(trial) if trial.failures > 0 => format!("{} connections failed", trial.failures),
        Some(trial) => format!(
            "{} connection took {:.1} s, the bound is {bound} s",
            trial.connections, trial.latency
        ),
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
