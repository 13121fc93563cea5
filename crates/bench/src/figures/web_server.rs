//! F14 to F16: a web server.

use super::Experiment;
use super::goals::Goals;
use super::merge::{command, left_out};
use super::points::{count, distinct, fact, names, per, sorted, text, times};
use crate::chart::{
    Axis, Bar, Bars, Chart, Dot, Figure, Kind, Line, Lines, Role, Scale, Studied, Value, number,
};
use crate::results::fields::Value as Field;
use crate::results::{CONVOY, Name, Point, Results};
use crate::stats::Summary;

/// The step that measures it.
pub(super) const STEP: &str = "web server";
const RECORDS: &str = "time per call";
const PROCESSOR: &str = "bytes per second of the workers' processor time";
const HIGHEST: &str = "highest throughput";
const SHARE: &str = "share of the workers' processors at the highest throughput";
/// Ciphers whose records are compared, and how records are sealed.
const GCM: &str = "aes-128-gcm";
const CBC: &str = "aes-128-cbc-hmac-sha1";
const SEAL: &str = "tls12-seal";
/// The cipher suites that the study compared.
const GCM_SUITE: &str = "AES128-GCM-SHA256";
const CBC_SUITE: &str = "AES128-SHA";
/// Source of the study's values.
const SOURCE: &str = "The study is Intel's \"AES-GCM Encryption Performance on Intel Xeon E5 v3 Processors\" (30 March 2015): nginx with OpenSSL 1.0.2, \
                      Apache Bench as the client.";

/// The figures.
pub(super) fn figures(results: &Results) -> Vec<Figure> {
    [records(results), throughput(results), shares(results)].into_iter().flatten().collect()
}

fn points<'a>(results: &'a Results, quantity: &'a str) -> Vec<&'a Point> {
    results.of(Experiment::WebServer, quantity).collect()
}

fn provider(name: &Name) -> String {
    let whose = if name.who == CONVOY { "Convoy's provider" } else { "OpenSSL's own" };
    whose.to_owned()
}

fn role(name: &Name) -> Role {
    if name.who == CONVOY { Role::Convoy } else { Role::Peer }
}

/// Way to serve files: cipher, certificate and buffer.
fn way(point: &Point) -> String {
    let mut name = text(point, "cipher").unwrap_or_default().to_owned();
    if name == CBC_SUITE && point.place.get("encrypt_then_mac") == Some(&Field::Flag(true)) {
        name += ", encrypt-then-MAC";
    }
    if text(point, "certificate") == Some("ecdsa") {
        name += ", ECDSA";
    }
    format!("{name}, buffer of {} KiB", number(count(point, "buffer_kib").unwrap_or_default()))
}

/// The ways of some points, each once.
fn ways(points: &[&Point]) -> Vec<String> {
    let mut ways: Vec<String> = Vec::new();
    for way in points.iter().map(|point| way(point)) {
        if !ways.contains(&way) {
            ways.push(way);
        }
    }
    ways
}

/// F14.
fn records(results: &Results) -> Option<Figure> {
    let points: Vec<&Point> = points(results, RECORDS)
        .into_iter()
        .filter(|point| text(point, "call") == Some(SEAL))
        .collect();
    let charts: Vec<Chart> = distinct(&points, "cipher")
        .into_iter()
        .map(|cipher| record_chart(&points, cipher))
        .chain(processor_chart(results))
        .collect();
    if charts.is_empty() {
        return None;
    }
    let mut goals = Goals::default();
    for (suite, buffer) in [(GCM_SUITE, 16.0), (CBC_SUITE, 128.0)] {
        let buffer_told = number(buffer);
        let what = format!(
            "bytes per processor second with Convoy's provider in OpenSSL's own, {suite}, buffer of {buffer_told} KiB"
        );
        goals.at_least(&what, 1.2, gain(results, suite, buffer));
    }
    let told = |name: &Name| {
        let smallest = factor(&points, name, f64::min)?;
        let largest = factor(&points, name, f64::max)?;
        Some(format!("{} and {} ({})", number(smallest), number(largest), provider(name)))
    };
    let factors: Vec<String> = names(&points).into_iter().filter_map(told).collect();
    Some(Figure {
        id: "F14".to_owned(),
        title: "Records of TLS, and what a worker serves".to_owned(),
        caption: "How fast records of TLS 1.2 are sealed through OpenSSL's interface EVP, with its own provider and with Convoy's; and the bytes of files that nginx \
                  serves for each second of its worker's processor time."
            .to_owned(),
        command: command(results, Experiment::WebServer, STEP),
        charts,
        studied: vec![
            Studied {
                what: "AES-128-CBC with HMAC-SHA1, its time in AES-128-GCM's; ours for the smallest and the largest record".to_owned(),
                theirs: "2.5 and 4.5".to_owned(),
                ours: (!factors.is_empty()).then(|| factors.join("; ")),
            },
            Studied {
                what: "AES128-GCM-SHA256 in AES128-SHA in nginx, bytes per processor second; theirs is of throughput".to_owned(),
                theirs: "2 to 2.4".to_owned(),
                ours: suites(results),
            },
        ],
        goals: goals.into(),
        notes: vec![SOURCE.to_owned(), "Encrypt-then-MAC is off with AES-CBC, as the study had it.".to_owned()],
        left_out: left_out(results, Experiment::WebServer),
    })
}

/// Sealing of one cipher, a line for each provider.
fn record_chart(points: &[&Point], cipher: String) -> Chart {
    let points: Vec<&Point> =
        points.iter().filter(|point| text(point, "cipher") == Some(&cipher)).copied().collect();
    let line = |name: &Name| {
        let dot = |point: &&Point| {
            let (size, time) = (count(point, "size")?, point.series(name)?.summary);
            let records = fact(&point.facts, "records").unwrap_or(1.0);
            Some(Dot { x: size, y: per(size * records, &time) })
        };
        let dots = sorted(points.iter().filter_map(dot).collect());
        Line { name: provider(name), role: role(name), dots }
    };
    let x =
        Axis { label: "record".to_owned(), unit: "bytes".to_owned(), scale: Scale::Logarithmic };
    let series = names(&points).into_iter().map(line).collect();
    let lines = Lines { x, y: Axis::linear("sealed", "GB/s"), series };
    Chart { heading: format!("records, {cipher}"), kind: Kind::Lines(lines) }
}

/// Bytes for each second of processor time, a group of bars for each way.
fn processor_chart(results: &Results) -> Option<Chart> {
    let points = points(results, PROCESSOR);
    let bar = |name: &Name| {
        let value = |point: &&Point| Some(times(1e-6, &point.series(name)?.summary));
        Bar { name: provider(name), role: role(name), values: points.iter().map(value).collect() }
    };
    let series: Vec<Bar> = names(&points).into_iter().map(bar).collect();
    let groups = points.iter().map(|point| format!("{}, {}", way(point), file(point))).collect();
    let y = Axis::linear("served", "MB a processor second");
    let kind = Kind::Bars(Bars { y, groups, series });
    (!points.is_empty()).then(|| Chart { heading: "nginx, one worker".to_owned(), kind })
}

/// The size of files.
fn file(point: &Point) -> String {
    format!("files of {} MB", number(megabytes(point).unwrap_or_default()))
}

/// Sizes are in units of 2²⁰ bytes, as the command line has them.
fn megabytes(point: &Point) -> Option<f64> {
    count(point, "size").map(|bytes| bytes / f64::from(1 << 20))
}

/// The time of a record of AES-CBC in that of AES-GCM, at the size that `which` takes of all that both have.
fn factor(points: &[&Point], name: &Name, which: fn(f64, f64) -> f64) -> Option<f64> {
    let of = |cipher: &str, size: Option<f64>| {
        let is_it = |point: &&&Point| {
            text(point, "cipher") == Some(cipher)
                && size.is_none_or(|size| count(point, "size") == Some(size))
        };
        points.iter().filter(is_it).copied().collect::<Vec<_>>()
    };
    let sizes = of(GCM, None).into_iter().filter_map(|point| count(point, "size"));
    let size = sizes.filter(|size| !of(CBC, Some(*size)).is_empty()).reduce(which)?;
    let time = |cipher| Some(of(cipher, Some(size)).first()?.series(name)?.summary.median);
    Some(time(CBC)? / time(GCM)?)
}

/// The point of a suite with a certificate of RSA, without encrypt-then-MAC and with such a buffer in KiB.
fn served<'a>(results: &'a Results, suite: &str, buffer: f64) -> Option<&'a Point> {
    let is_it = |point: &&Point| {
        text(point, "cipher") == Some(suite)
            && count(point, "buffer_kib") == Some(buffer)
            && text(point, "certificate") == Some("rsa")
            && (suite != CBC_SUITE
                || point.place.get("encrypt_then_mac") == Some(&Field::Flag(false)))
    };
    results.of(Experiment::WebServer, PROCESSOR).find(is_it)
}

/// Convoy's provider in OpenSSL's.
fn gain(results: &Results, suite: &str, buffer: f64) -> Option<Value> {
    let pair = served(results, suite, buffer)?.ratios.iter().find(|pair| pair.of.who == CONVOY)?;
    Some(times(1.0, &pair.summary))
}

/// AES-GCM in AES-CBC with each provider.
fn suites(results: &Results) -> Option<String> {
    let (gcm, cbc) = served(results, GCM_SUITE, 16.0).zip(served(results, CBC_SUITE, 16.0))?;
    let ratio = |name: &&Name| {
        let of = |point: &Point| Some(point.series(name)?.summary.median);
        Some(format!("{} ({})", number(of(gcm)? / of(cbc)?), provider(name)))
    };
    Some(names(&[gcm]).iter().filter_map(ratio).collect::<Vec<_>>().join("; "))
}

/// A chart for each way: a line for each provider and number of workers, against the size of files.
fn by_file(points: &[&Point], y: &Axis, value: fn(&Summary) -> Value) -> Vec<Chart> {
    let mut workers: Vec<f64> = points.iter().filter_map(|point| count(point, "workers")).collect();
    workers.sort_by(f64::total_cmp);
    workers.dedup();
    let chart = |heading: String| {
        let points: Vec<&Point> =
            points.iter().filter(|point| way(point) == heading).copied().collect();
        let line = |(workers, name): (f64, &Name)| {
            let of = |point: &&&Point| count(point, "workers") == Some(workers);
            let dot = |point: &&Point| {
                Some(Dot { x: megabytes(point)?, y: value(&point.series(name)?.summary) })
            };
            let dots = sorted(points.iter().filter(of).filter_map(dot).collect());
            let plural = if workers == 1.0 { "" } else { "s" };
            let name_told = format!("{}, {} worker{plural}", provider(name), number(workers));
            Line { name: name_told, role: role(name), dots }
        };
        let names = names(&points);
        let each = workers.iter().flat_map(|workers| names.iter().map(|name| (*workers, *name)));
        let series = each.map(line).filter(|line| !line.dots.is_empty()).collect();
        let x = Axis { label: "file".to_owned(), unit: "MB".to_owned(), scale: Scale::Logarithmic };
        Chart { heading, kind: Kind::Lines(Lines { x, y: y.clone(), series }) }
    };
    ways(points).into_iter().map(chart).collect()
}

/// The most bytes a second for each worker with AES-GCM and Convoy's provider, and how many workers that was with.
fn best(points: &[&Point]) -> Option<(f64, f64)> {
    let of = |point: &&Point| {
        let series = point.series.iter().find(|series| series.name.who == CONVOY)?;
        let workers = count(point, "workers")?;
        Some((series.summary.median / workers, workers))
    };
    let gcm = points.iter().filter(|point| text(point, "cipher") == Some(GCM_SUITE));
    gcm.filter_map(of).max_by(|a, b| a.0.total_cmp(&b.0))
}

/// F15.
fn throughput(results: &Results) -> Option<Figure> {
    let points = points(results, HIGHEST);
    points.first()?;
    let ours = best(&points).map(|(bytes, workers)| {
        format!("{} Gb/s, with {} of them", number(8e-9 * bytes), number(workers))
    });
    let bound = results.facts.get(&format!("{}: latency_bound_s", Experiment::WebServer.name()));
    let bound = bound.and_then(Field::number).map_or_else(
        || "Latency was bounded, as in the study.".to_owned(),
        |bound| {
            format!("Connections doubled until one failed, or waited longer than {} s, or throughput fell; then the gap was halved.", number(bound))
        },
    );
    let clients = points
        .iter()
        .flat_map(|point| &point.series)
        .filter(|series| series.facts.get("bottleneck").and_then(Field::text) == Some("clients"));
    let clients = clients.count();
    let mut notes = vec![bound, SOURCE.to_owned()];
    if clients > 0 {
        notes.push(format!("In {clients} of the points the clients' processors were full: what the server could do, those do not say."));
    }
    Some(Figure {
        id: "F15".to_owned(),
        title: "Highest throughput of a web server".to_owned(),
        caption: "Bits of files a second that nginx serves at most, each over a connection of its own, by size of the file and number of workers.".to_owned(),
        command: command(results, Experiment::WebServer, STEP),
        charts: by_file(&points, &Axis::linear("throughput", "Gb/s"), |summary| times(8e-9, summary)),
        studied: vec![Studied {
            what: "AES128-GCM-SHA256, for each worker; ours with Convoy's provider".to_owned(),
            theirs: "8 Gb/s".to_owned(),
            ours,
        }],
        goals: Vec::new(),
        notes,
        left_out: left_out(results, Experiment::WebServer),
    })
}

/// F16.
fn shares(results: &Results) -> Option<Figure> {
    let points = points(results, SHARE);
    points.first()?;
    let all = points.iter().flat_map(|point| &point.series).map(|series| series.summary.median);
    let (least, most) = all.fold((f64::INFINITY, 0.0_f64), |(a, b), x| (a.min(x), b.max(x)));
    Some(Figure {
        id: "F16".to_owned(),
        title: "Processors of a web server at its highest throughput".to_owned(),
        caption: "How much of their processors nginx's workers use at the highest throughput. Where it is far below 100 %, something else was full.".to_owned(),
        command: command(results, Experiment::WebServer, STEP),
        charts: by_file(&points, &Axis::linear("share of the workers' processors", "%"), |summary| {
            times(1.0, summary)
        }),
        studied: vec![Studied {
            what: "share of the processors, all points".to_owned(),
            theirs: "high nineties of a hundred".to_owned(),
            ours: Some(format!("{} to {} %", number(least), number(most))),
        }],
        goals: Vec::new(),
        notes: vec![SOURCE.to_owned()],
        left_out: Vec::new(),
    })
}
