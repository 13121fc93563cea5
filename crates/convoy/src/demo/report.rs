//! Results of a demonstration.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use convoy_lab::traffic::{PingReport, TcpFlow, TcpReport, UdpFlow, UdpReport};
use serde::Serialize;

use super::engine::Engines;
use super::folder::Folder;
use crate::output::si;

/// Datagrams that may travel as one packet, which the kernel counts as one drop (`UDP_MAX_SEGMENTS`).
const SEGMENTS: u64 = 128;

/// The summary; its JSON is what `convoy demo --json` prints.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Summary {
    /// "native ESP", "ESP in UDP" or "in-memory".
    pub(super) wire: &'static str,
    /// Means by which the gateways received and sent: a word of `--io`, or "memory".
    pub(super) io: &'static str,
    /// Way that protected packets took, as the first gateway's status tells it.
    pub(super) way: Option<String>,
    /// Reason for the lack of namespaces, where the wire is in memory.
    pub(super) why_in_memory: Option<String>,
    /// Traffic with which the baseline and the throughput were measured.
    pub(super) bulk: &'static str,
    /// 4 or 6, inside and outside.
    pub(super) ip_version: u8,
    /// MTU of the wire in bytes.
    pub(super) mtu: u16,
    /// CPU tier of the cryptography.
    pub(super) tier: String,
    /// Settings with which the program was built.
    pub(super) build: Build,
    /// Counts of engines beside the workers; all 0 where workers do all themselves.
    pub(super) engines: Engines,
    /// Payload bits per second through the tunnel, from A to B.
    pub(super) throughput_bps: u64,
    /// The same from B to A.
    pub(super) throughput_back_bps: u64,
    /// Rates by the other wire, where they were measured.
    pub(super) other_wire: Option<OtherWire>,
    /// The same path from A to B without Convoy.
    pub(super) baseline_bps: u64,
    /// Packets that came through the tunnels, both ways together.
    pub(super) packets: u64,
    /// Echo requests and datagrams that were not answered or did not arrive.
    pub(super) lost: u64,
    /// Of those: in a phase in which nobody counted enough packets dropped for want of room.
    pub(super) uncounted: u64,
    /// Percent of the processors' time that the demonstration got; the rest was others'.
    pub(super) processors_percent: u64,
    /// Packets whose integrity check failed.
    pub(super) icv_failures: u64,
    /// Packets seen before or too old.
    pub(super) replays: u64,
    pub(super) ping: Ping,
    /// Both ways together.
    pub(super) udp: Udp,
    pub(super) tcp: Option<Tcp>,
    /// Numbers of packets that both gateways dropped, by reason. TCP finds its speed by such losses.
    pub(super) drops: BTreeMap<String, u64>,
    /// Paths that are left to look at.
    pub(super) files: Files,
    /// Decrypts the capture.
    pub(super) decrypt: String,
    /// Faults that were found; empty after success.
    pub(super) problems: Vec<String>,
}

/// Throughput by the wire that the rest of the demonstration does not use.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct OtherWire {
    /// "native ESP" or "ESP in UDP".
    pub(super) wire: &'static str,
    /// Payload bits per second from A to B.
    pub(super) throughput_bps: u64,
    /// The same from B to A.
    pub(super) throughput_back_bps: u64,
}

/// Settings with which the program was built.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Build {
    /// Cargo's profile, where it was told; "release" or "dev" otherwise.
    pub(super) profile: &'static str,
}

impl Default for Build {
    fn default() -> Self {
        let usual = if cfg!(debug_assertions) { "dev" } else { "release" };
        Self { profile: option_env!("CONVOY_PROFILE").unwrap_or(usual) }
    }
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.profile {
            "quick" => {
                f.write_str("profile quick, for a short build; `make build` makes a faster program")
            }
            "release" => f.write_str("profile release"),
            other => write!(f, "profile {other}, for tests, and slow"),
        }
    }
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Ping {
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) lost: u64,
    #[serde(flatten)]
    pub(super) dropped: Dropped,
    pub(super) rtt_min_us: f64,
    pub(super) rtt_mean_us: f64,
    pub(super) rtt_max_us: f64,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Udp {
    /// Payload bits per second, each way.
    pub(super) rate_bps: u64,
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) lost: u64,
    #[serde(flatten)]
    pub(super) dropped: Dropped,
    pub(super) duplicates: u64,
    pub(super) damaged: u64,
    pub(super) a_to_b_bps: u64,
    pub(super) b_to_a_bps: u64,
}

/// Packets dropped for want of room during a phase, its own and others. The kernel counts a segmented
/// packet once.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Dropped {
    /// By the kernel, because a queue or a socket was full.
    #[serde(rename = "kernel_drops")]
    pub(super) kernels: u64,
    /// By gateways, because a queue, a ring or their memory was full.
    #[serde(rename = "gateway_drops")]
    pub(super) gateways: u64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Tcp {
    pub(super) a_to_b: Stream,
    pub(super) b_to_a: Stream,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Stream {
    pub(super) bytes: u64,
    /// Bytes that were not what was sent.
    pub(super) damaged: u64,
    pub(super) retransmits: u64,
    /// Did not come to its proper end.
    pub(super) broken: bool,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Files {
    pub(super) sites: Vec<PathBuf>,
    pub(super) capture: PathBuf,
    pub(super) keys: PathBuf,
}

impl Dropped {
    /// Packets dropped since `before`.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            kernels: self.kernels.saturating_sub(before.kernels),
            gateways: self.gateways.saturating_sub(before.gateways),
        }
    }

    /// Tells why packets were probably lost when this share of the processors was free.
    pub(super) fn in_words(self, share: f64) -> String {
        let cause = if share < convoy_lab::QUIET {
            format!("the processors are shared, {:.0} % were free", share * 100.0)
        } else {
            "this machine does not carry more".to_owned()
        };
        let Self { kernels, gateways } = self;
        format!("{cause}; queues were full: kernels dropped {kernels}, gateways {gateways}")
    }

    /// Number of `lost` packets that nobody counted.
    pub(super) fn leaves(self, lost: u64) -> u64 {
        let counted = self.kernels.saturating_mul(SEGMENTS).saturating_add(self.gateways);
        lost.saturating_sub(counted)
    }
}

impl Ping {
    pub(super) fn of(report: &PingReport, dropped: Dropped) -> Self {
        let micros = |time: Duration| tenths(time.as_secs_f64() * 1e6);
        let (min, mean, max) = report.min_mean_max().unwrap_or_default();
        Self {
            sent: report.sent,
            received: report.received,
            lost: report.lost(),
            dropped,
            rtt_min_us: micros(min),
            rtt_mean_us: micros(mean),
            rtt_max_us: micros(max),
        }
    }
}

/// Rounded to tenths.
pub(super) fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

impl Udp {
    pub(super) fn of(report: &UdpReport, rate_bps: u64, dropped: Dropped) -> Self {
        let both = [&report.forward, &report.backward];
        let sum = |count: fn(&UdpFlow) -> u64| both.iter().map(|flow| count(flow)).sum::<u64>();
        Self {
            rate_bps,
            sent: sum(|flow| flow.sent),
            received: sum(|flow| flow.received),
            lost: sum(UdpFlow::lost),
            dropped,
            duplicates: sum(|flow| flow.duplicates),
            damaged: sum(|flow| flow.damaged),
            a_to_b_bps: report.forward.bits_per_second() as u64,
            b_to_a_bps: report.backward.bits_per_second() as u64,
        }
    }
}

impl Tcp {
    pub(super) fn of(forward: &TcpReport, backward: &TcpReport) -> Self {
        let stream = |flow: &TcpFlow| Stream {
            bytes: flow.received,
            damaged: flow.damaged,
            retransmits: flow.retransmits,
            broken: flow.broken > 0 || flow.received != flow.sent,
        };
        Self { a_to_b: stream(&forward.forward), b_to_a: stream(&backward.backward) }
    }
}

impl Summary {
    /// Says where everything is, and finds what is not as it should be.
    pub(super) fn conclude(mut self, folder: &Folder, sites: &[PathBuf; 2]) -> Self {
        self.files =
            Files { sites: sites.to_vec(), capture: folder.capture(), keys: folder.key_file() };
        self.decrypt = format!(
            "WIRESHARK_CONFIG_DIR={} tshark -r {} -o esp.enable_encryption_decode:TRUE -o \
             esp.enable_authentication_check:TRUE",
            folder.wireshark().display(),
            folder.capture().display(),
        );
        self.lost = self.ping.lost + self.udp.lost;
        self.uncounted =
            self.ping.dropped.leaves(self.ping.lost) + self.udp.dropped.leaves(self.udp.lost);
        self.problems = self.find_problems();
        self
    }

    /// Finds what is wrong whatever else the machine does. Packets that were dropped for want of room are
    /// told and no problem; packets that nobody counted are.
    fn find_problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut zero = |count: u64, what: &str| {
            if count > 0 {
                problems.push(format!("{count} {what}"));
            }
        };
        zero(self.uncounted, "packets were lost and are in no counter of drops");
        zero(self.udp.duplicates, "datagrams came twice");
        zero(self.udp.damaged, "datagrams were damaged");
        zero(self.icv_failures, "packets had a wrong ICV");
        zero(self.replays, "packets were taken for replays");
        let streams = self.tcp.iter().flat_map(|tcp| [tcp.a_to_b, tcp.b_to_a]);
        for stream in streams {
            zero(stream.damaged, "bytes of a TCP stream were damaged");
            zero(u64::from(stream.broken), "TCP stream did not come to its proper end");
        }
        let flowed = [
            (self.baseline_bps, "without Convoy"),
            (self.throughput_bps, "from A to B"),
            (self.throughput_back_bps, "from B to A"),
            (self.packets, "through the tunnels"),
            (self.ping.received, "in answer to pings"),
            (self.udp.received, "as datagrams"),
        ];
        let other = self.other_wire.iter().flat_map(|other| {
            [
                (other.throughput_bps, "from A to B by the other wire"),
                (other.throughput_back_bps, "from B to A by the other wire"),
            ]
        });
        problems.extend(
            flowed
                .into_iter()
                .chain(other)
                .filter(|(rate, _)| *rate == 0)
                .map(|(_, way)| format!("no traffic flowed {way}")),
        );
        problems
    }

    /// The summary for people.
    pub(super) fn text(&self) -> String {
        let mut text = String::from("\n");
        let mut row = |name: &str, value: String| {
            // Writing to a String does not fail.
            let _ = writeln!(text, "  {name:<16}{value}");
        };
        let bps = |rate: u64| format!("{}b/s", si(rate as f64));
        row("wire", self.wire_row());
        if let Some(way) = &self.way {
            row("way", way.clone());
        }
        row("tier", self.tier.clone());
        row("build", self.build.to_string());
        if let Some(engines) = self.engines.in_words() {
            row("engine", engines);
        }
        row("ping", self.ping_row());
        let ratio = self.throughput_bps as f64 * 100.0 / self.baseline_bps.max(1) as f64;
        row(
            &format!("{} A to B", self.bulk),
            format!(
                "{}   (without Convoy {}; {ratio:.0} %)",
                bps(self.throughput_bps),
                bps(self.baseline_bps)
            ),
        );
        row(&format!("{} B to A", self.bulk), bps(self.throughput_back_bps));
        if let Some(OtherWire { wire, throughput_bps, throughput_back_bps }) = self.other_wire {
            let (there, back) = (bps(throughput_bps), bps(throughput_back_bps));
            row(wire, format!("{there} A to B, {back} B to A   ({} by the other wire)", self.bulk));
        }
        if self.tcp.is_some() {
            let udp = &self.udp;
            row("UDP A to B", bps(udp.a_to_b_bps));
            row("UDP B to A", bps(udp.b_to_a_bps));
        }
        row(
            "UDP loss",
            match self.udp.rate_bps {
                // As fast as they go.
                0 => format!("{} of {} datagrams", self.udp.lost, self.udp.sent),
                rate => format!(
                    "{} of {} datagrams at {} each way",
                    self.udp.lost,
                    self.udp.sent,
                    bps(rate)
                ),
            },
        );
        row("packets", format!("{} through the tunnels", self.packets));
        row("lost", self.lost.to_string());
        if self.lost > 0 {
            row("", self.cause_of_loss());
        }
        row("ICV failures", self.icv_failures.to_string());
        row("replays", self.replays.to_string());
        text.push('\n');
        for (what, path) in [("capture", &self.files.capture), ("keys", &self.files.keys)] {
            let _ = writeln!(text, "  {what:<16}{}", path.display());
        }
        for site in &self.files.sites {
            let _ = writeln!(text, "  {:<16}{}", "site file", site.display());
        }
        let _ = writeln!(text, "\nDecrypt the capture:\n  {}", self.decrypt);
        text
    }

    /// Probable cause of lost packets.
    fn cause_of_loss(&self) -> String {
        let (ping, udp) = (self.ping.dropped, self.udp.dropped);
        let both =
            Dropped { kernels: ping.kernels + udp.kernels, gateways: ping.gateways + udp.gateways };
        both.in_words(self.processors_percent as f64 / 100.0)
    }

    fn wire_row(&self) -> String {
        let Self { wire, ip_version, mtu, io, .. } = self;
        let mut text = format!("{wire}, IPv{ip_version}, MTU {mtu}, by way of {io}");
        if let Some(why) = &self.why_in_memory {
            let _ = write!(text, " (both gateways in one process: {why})");
        }
        text
    }

    fn ping_row(&self) -> String {
        let Ping { sent, received, rtt_min_us, rtt_mean_us, rtt_max_us, .. } = &self.ping;
        format!(
            "{received} of {sent} answered, {:.2} ms ({:.2} to {:.2})",
            rtt_mean_us / 1e3,
            rtt_min_us / 1e3,
            rtt_max_us / 1e3
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Traffic flowed and nothing was lost.
    fn good() -> Summary {
        let stream = Stream { bytes: 1, damaged: 0, retransmits: 7, broken: false };
        Summary {
            throughput_bps: 1,
            throughput_back_bps: 1,
            baseline_bps: 1,
            packets: 1,
            ping: Ping { sent: 1, received: 1, ..Ping::default() },
            udp: Udp { sent: 1, received: 1, ..Udp::default() },
            tcp: Some(Tcp { a_to_b: stream, b_to_a: stream }),
            other_wire: Some(OtherWire {
                wire: "ESP in UDP",
                throughput_bps: 2_000_000_000,
                throughput_back_bps: 1_000_000_000,
            }),
            // The kernel's own messages on the interface, which no policy covers.
            drops: [("link-local".to_owned(), 8)].into(),
            ..Summary::default()
        }
    }

    #[test]
    fn every_count_that_must_be_zero_is_a_problem_when_it_is_not() {
        assert_eq!(good().find_problems(), [""; 0]);
        let changes: [fn(&mut Summary); 9] = [
            |s| s.uncounted = 1,
            |s| s.udp.duplicates = 1,
            |s| s.udp.damaged = 1,
            |s| s.icv_failures = 1,
            |s| s.replays = 1,
            |s| s.tcp.as_mut().unwrap().b_to_a.damaged = 1,
            |s| s.tcp.as_mut().unwrap().a_to_b.broken = true,
            |s| s.packets = 0,
            |s| s.other_wire.as_mut().unwrap().throughput_back_bps = 0,
        ];
        for (n, change) in changes.iter().enumerate() {
            let mut summary = good();
            change(&mut summary);
            assert_eq!(summary.find_problems().len(), 1, "change {n}");
        }
        assert_eq!(Summary::default().find_problems().len(), 6);
    }

    #[test]
    fn loss_that_was_counted_is_told_and_loss_that_nobody_counted_is_a_problem() {
        let folder = tempfile::tempdir().unwrap();
        let folder = Folder::take(folder.path()).unwrap();
        let concluded = |change: fn(&mut Summary)| {
            let mut summary = good();
            change(&mut summary);
            summary.conclude(&folder, &[PathBuf::new(), PathBuf::new()])
        };
        let counted = concluded(|s| {
            s.processors_percent = 34;
            s.udp.lost = 7;
            s.udp.dropped = Dropped { kernels: 6, gateways: 1 };
        });
        assert_eq!((counted.lost, counted.uncounted, counted.problems.len()), (7, 0, 0));
        let text = counted.text();
        assert!(text.contains("processors are shared, 34 % were free"), "{text}");
        assert!(text.contains("kernels dropped 6, gateways 1"), "{text}");
        // What was dropped in one phase does not explain what another lost.
        let uncounted = concluded(|s| {
            s.processors_percent = 100;
            s.ping.lost = 2;
            s.udp.dropped.kernels = 5;
        });
        assert_eq!((uncounted.lost, uncounted.uncounted, uncounted.problems.len()), (2, 2, 1));
        assert!(uncounted.text().contains("this machine does not carry more"));
    }

    #[test]
    fn the_summary_tells_the_rates_of_both_wires() {
        let text = Summary { wire: "native ESP", bulk: "TCP", ..good() }.text();
        let other =
            "ESP in UDP      2.00 Gb/s A to B, 1.00 Gb/s B to A   (TCP by the other wire)\n";
        assert!(text.contains(other), "{text}");
        assert!(text.contains("wire            native ESP"), "{text}");
    }

    #[test]
    fn the_summary_tells_why_there_are_no_namespaces() {
        let why = Some("the kernel refuses".to_owned());
        let text = Summary { wire: "in-memory", why_in_memory: why, ..good() }.text();
        assert!(text.contains("both gateways in one process: the kernel refuses"), "{text}");
    }
}
