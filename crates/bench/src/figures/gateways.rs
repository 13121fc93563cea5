//! F13: whole gateways beside each other.

use super::Experiment;
use super::goals::Goals;
use super::headline::Headlines;
use super::merge::{command, left_out};
use super::points::{names, ratio, text, times};
use crate::chart::{Axis, Bar, Bars, Chart, Figure, Kind, Role, Value, number};
use crate::results::fields::Value as Field;
use crate::results::gateways::{BENCH, DATAGRAMS, PROCESSOR_TIME, THROUGHPUT};
use crate::results::{CONVOY, Name, Point, Results};

/// The gateway that routes in the clear.
const KERNEL: &str = "kernel";
/// Name of one stream of TCP.
const ONE_STREAM: &str = "tcp1";
/// The direction that is always measured.
const WAY: &str = "a-to-b";
/// Goals with one stream: Convoy's gateway, the other, and least of the ratio.
const GOALS: [(&str, &str, f64); 4] = [
    ("convoy-esp", "wireguard-go", 1.5),
    ("convoy-udp", "wireguard-go", 1.5),
    ("convoy-esp", "libipsec", 5.0),
    ("convoy-udp", "libipsec", 5.0),
];

/// The figure.
pub(super) fn figures(results: &Results) -> Vec<Figure> {
    let points = |quantity| results.of(Experiment::Gateways, quantity).collect::<Vec<_>>();
    let times: Vec<&Point> = points(PROCESSOR_TIME);
    let is_tcp = |point: &&&Point| load(point).starts_with("tcp");
    let times: Vec<&Point> = times.iter().filter(is_tcp).copied().collect();
    let charts = [
        chart("TCP", Axis::linear("throughput", "Gb/s"), 1e-9, &points(THROUGHPUT)),
        chart(
            "UDP",
            Axis::linear("datagrams at 0.1 % loss", "thousand a second"),
            1e-3,
            &points(DATAGRAMS),
        ),
        chart("TCP, processor time", Axis::linear("processor time", "s a gigabyte"), 1.0, &times),
    ];
    let charts: Vec<Chart> = charts.into_iter().flatten().collect();
    if charts.is_empty() {
        return Vec::new();
    }
    let mut goals = Goals::default();
    for (of, to, least) in GOALS {
        if let Some((what, value)) = beside(results, of, to) {
            goals.at_least(&what, least, Some(value));
        }
    }
    vec![Figure {
        id: "F13".to_owned(),
        title: "Whole gateways".to_owned(),
        caption: "What goes from one host to another through two gateways of a kind, on one machine with both hosts: \
                  TCP, UDP at the highest rate at which one datagram of 1,000 is lost at most, and the processor time of both gateways."
            .to_owned(),
        command: command(results, Experiment::Gateways, BENCH),
        charts,
        studied: Vec::new(),
        goals: goals.into(),
        notes: notes(results),
        left_out: left_out(results, Experiment::Gateways),
    }]
}

/// A group of bars for each load and direction, one for each gateway; none without points.
fn chart(heading: &str, y: Axis, scale: f64, points: &[&Point]) -> Option<Chart> {
    let names = names(points);
    let bar = |name: &&Name| {
        let value = |point: &&Point| Some(times(scale, &point.series(name)?.summary));
        Bar { name: told(name), role: role(name), values: points.iter().map(value).collect() }
    };
    let series: Vec<Bar> = names.iter().map(bar).collect();
    let groups = points.iter().map(|point| group(point)).collect();
    let kind = Kind::Bars(Bars { y, groups, series });
    (!names.is_empty()).then(|| Chart { heading: heading.to_owned(), kind })
}

fn load(point: &Point) -> &str {
    text(point, "load").unwrap_or_default()
}

/// Traffic, and its direction if not the usual one.
fn group(point: &Point) -> String {
    let field = |name: &str| point.place.get(name).and_then(Field::number);
    let what = match (field("streams"), field("size")) {
        (Some(1.0), _) => "one stream".to_owned(),
        (Some(streams), _) => format!("{} streams", number(streams)),
        (_, Some(size)) => format!("packets of {} bytes", number(size)),
        _ => load(point).to_owned(),
    };
    if text(point, "direction") == Some(WAY) { what } else { format!("{what}, the other way") }
}

fn told(name: &Name) -> String {
    let Name { who, by } = name;
    match who.as_str() {
        CONVOY => format!("Convoy, {by}"),
        KERNEL => by.clone(),
        "strongswan" => format!("strongSwan, {by}"),
        _ => format!("{who}, {by}"),
    }
}

fn role(name: &Name) -> Role {
    match name.who.as_str() {
        CONVOY => Role::Convoy,
        KERNEL => Role::Base,
        _ => Role::Peer,
    }
}

/// One of Convoy's gateways in another with one stream, and what it is called.
fn beside(results: &Results, of: &str, to: &str) -> Option<(String, Value)> {
    let is_it = |point: &&Point| load(point) == ONE_STREAM && text(point, "direction") == Some(WAY);
    let point = results.of(Experiment::Gateways, THROUGHPUT).find(is_it)?;
    let (of, to) = (point.candidate(of)?, point.candidate(to)?);
    let pair = ratio(point, of, to)?;
    let what = format!("one TCP stream: {}, beside {}", told(of), told(to));
    Some((what, times(1.0, &pair.summary)))
}

/// Date, machine and method of the measurement, and notes for the reader.
fn notes(results: &Results) -> Vec<String> {
    let fact = |name: &str| {
        let value = results.facts.get(&format!("{}: {name}", Experiment::Gateways.name()));
        value.map(ToString::to_string).unwrap_or_default()
    };
    let priority = if fact("urgent") == "yes" { ", before other programs" } else { "" };
    vec![
        format!(
            "Measured {} on {}, {} processors, Linux {}, by {}: {} rounds, in which all took turns{priority}.",
            fact("started"),
            fact("cpu"),
            fact("processors"),
            fact("kernel"),
            fact("commit"),
            fact("rounds")
        ),
        "Hosts, gateways and iperf3 share the processors, so a figure says what the whole path takes. Several workers need processors of their own to gain."
            .to_owned(),
        "Datagrams that the receiving host is too slow for are lost, too: where routing in the clear ends, nothing is said about gateways. Every step, and the \
         processor time for UDP, are in report.json."
            .to_owned(),
        "WireGuard and ESP differ in cipher and in bytes for each packet.".to_owned(),
    ]
}

/// For the top of the page.
pub(super) fn headlines(results: &Results, lines: &mut Headlines) {
    let [(of, to, least), ..] = GOALS;
    if let Some((what, value)) = beside(results, of, to) {
        lines.add("F13", &what, least, Some(value));
    }
}
