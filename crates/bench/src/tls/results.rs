//! Results of `convoy bench tls`.

use super::report::{Report, why_none};
use super::run::{Bottleneck, Run};
use super::server::{Certificate, TlsConfig};
use super::study::{Duel, Handshake, Peak};
use crate::peer::libssl::Version;
use crate::records::results as records;
use crate::results::build::Draft;
use crate::results::fields::Fields;
use crate::results::{Better, LeftOut, Name, Results};

impl Report {
    /// In the form of all benches.
    #[must_use]
    pub fn results(&self) -> Results {
        let mut results = Results::new("tls", &self.head);
        results.machine.add_peer("openssl", &self.openssl, None);
        results.machine.add_peer("nginx", &self.nginx, None);
        results.facts = Fields::default()
            .with("class", self.class.name())
            .with("tier", self.tier)
            .with("generator", self.generator.name())
            .with("load_processes", self.load_processes)
            .with("latency", self.latency.name())
            .with("latency_bound_s", self.latency_bound)
            .with("tuned", self.tuned.join("; "))
            .with("advice", self.advice.join("; "));
        results.complete = !self.findings.is_cut;
        let records = self.records.iter().map(|point| records::draft(point, self.tier));
        records.for_each(|draft| results.add(draft));
        self.findings.duels.iter().for_each(|one| results.add(duel(one)));
        self.findings.handshakes.chunk_by(is_beside).for_each(|pair| {
            [
                handshakes(pair, "1 B", |one| one.milliseconds),
                handshakes(pair, "1 MB", |one| one.milliseconds_1mb),
            ]
            .into_iter()
            .for_each(|draft| results.add(draft));
        });
        for pair in self.findings.peaks.chunk_by(are_of_one_place) {
            peaks(pair).into_iter().for_each(|draft| results.add(draft));
            results.left_out.extend(pair.iter().filter_map(|peak| self.without_peak(peak)));
        }
        results.left_out.extend_from_slice(&self.left_out);
        results
    }

    fn without_peak(&self, peak: &Peak) -> Option<LeftOut> {
        let what = || {
            let Peak { provider, way, size, workers, .. } = peak;
            format!("{provider}, {}, {size} bytes, {workers} workers", way.name())
        };
        let why =
            || format!("no number of connections was good: {}", why_none(peak, self.latency_bound));
        peak.best.is_none().then(|| LeftOut::new(what(), why()))
    }
}

fn place(way: &TlsConfig) -> Fields {
    let certificate = if way.certificate == Certificate::Rsa { "rsa" } else { "ecdsa" };
    let version = if way.cipher.version == Version::Tls13 { "1.3" } else { "1.2" };
    Fields::default()
        .with("cipher", way.cipher.name.as_str())
        .with("tls", version)
        .with("encrypt_then_mac", way.cipher.encrypt_then_mac)
        .with("certificate", certificate)
        .with("buffer_kib", way.buffer_kib)
}

/// A provider of the study as a series.
fn provider(name: &str) -> Name {
    let [default, convoy] = records::providers();
    if name == "convoy" { convoy } else { default }
}

fn duel(duel: &Duel) -> Draft {
    let place = place(&duel.way).with("size", duel.size);
    let [first, second] = [&duel.providers[0], &duel.providers[1]].map(|name| provider(name));
    let [first_rounds, second_rounds] = &duel.samples;
    let quantity = "bytes per second of the workers' processor time";
    let mut draft = Draft::new(quantity, "B/s", Better::More, place)
        .series(&second, second_rounds)
        .series(&first, first_rounds)
        .ratio(&second, &first, Better::More);
    if let Some(calls) = duel.calls {
        draft = draft.fact("records_by_convoy", calls);
    }
    draft
}

fn is_beside(one: &Handshake, other: &Handshake) -> bool {
    one.way == other.way
}

/// The providers' connections with one file.
fn handshakes(pair: &[Handshake], file: &str, time: fn(&Handshake) -> f64) -> Draft {
    let mut place = pair.first().map(|one| place(&one.way)).unwrap_or_default();
    place.set("file", file);
    let quantity = "processor time of a connection";
    pair.iter().fold(Draft::new(quantity, "ms", Better::Less, place), |draft, one| {
        draft.series(&provider(&one.provider), &[time(one)])
    })
}

fn are_of_one_place(one: &Peak, other: &Peak) -> bool {
    (&one.way, one.size, one.workers) == (&other.way, other.size, other.workers)
}

/// Highest throughputs of the providers, and the processor time that they take.
fn peaks(pair: &[Peak]) -> Vec<Draft> {
    let Some(first) = pair.first() else { return Vec::new() };
    let place = place(&first.way).with("size", first.size).with("workers", first.workers);
    let best: Vec<&Run> = pair.iter().filter_map(|peak| peak.best.as_ref()).collect();
    let draft = |quantity, unit, value: fn(&Run) -> f64| {
        let draft = Draft::new(quantity, unit, Better::More, place.clone());
        best.iter().fold(draft, |draft, run| {
            draft.series_with(&provider(&run.provider), &[value(run)], facts(run))
        })
    };
    if best.is_empty() {
        return Vec::new();
    }
    vec![
        draft("highest throughput", "B/s", |run| run.throughput),
        draft("share of the workers' processors at the highest throughput", "%", |run| {
            run.server_percent
        }),
        draft(
            "bytes per second of the workers' processor time at the highest throughput",
            "B/s",
            |run| run.bytes_per_cpu_second,
        ),
    ]
}

/// Conditions under which it was reached.
fn facts(run: &Run) -> Fields {
    let bottleneck = match run.bottleneck {
        Bottleneck::Server => "server",
        Bottleneck::Clients => "clients",
        Bottleneck::Neither => "neither",
    };
    Fields::default()
        .with("connections", run.connections)
        .with("seconds", run.seconds)
        .with("files", run.files)
        .with("verified", run.verified)
        .with("client_cpu_s", run.client_cpu)
        .with("first_byte_median_s", run.first_byte.median)
        .with("first_byte_max_s", run.first_byte.max)
        .with("whole_median_s", run.whole.median)
        .with("whole_max_s", run.whole.max)
        .with("bottleneck", bottleneck)
}
