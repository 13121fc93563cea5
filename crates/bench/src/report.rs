//! Results as rows of text.

mod results;

use std::iter;

use crate::between::Between;
use crate::class::Class;
use crate::gate::{self, Row};
use crate::mix::Sizes;
use crate::peer::linked::Linked;
use crate::results::LeftOut;
use crate::results::head::Head;
use crate::run::{Fit, Peer, Point};
use crate::stats::Summary;

/// Everything a run found out.
#[derive(Clone, Debug)]
pub struct Report {
    /// Version, command and machine.
    pub head: Head,
    /// Contenders, tier by tier.
    pub lineups: Vec<LineupInfo>,
    /// The figures to reach, where they were measured.
    pub gate: Vec<Figure>,
    /// All points.
    pub points: Vec<Point>,
    /// Straight lines through points of single sizes.
    pub fits: Vec<Fit>,
    /// Peers that are not here, and why.
    pub absent: Vec<LeftOut>,
    /// Points that could not be measured, with the reason.
    pub left_out: Vec<LeftOut>,
}

/// Contenders on a tier.
#[derive(Clone, Debug)]
pub struct LineupInfo {
    /// Convoy's tier.
    pub tier: &'static str,
    /// The class of processors that have it as their best tier, whose goals count.
    pub class: Class,
    /// True if Convoy's hashes could use the SHA extensions.
    pub sha_ni: bool,
    /// Version of intel-ipsec-mb and kind of its manager.
    pub ipsec_mb: Option<String>,
    /// Version of OpenSSL.
    pub openssl: Option<String>,
    /// Version of AWS-LC.
    pub aws_lc: Option<String>,
    /// Version of BoringSSL.
    pub boringssl: Option<String>,
}

/// A figure to reach, and what was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Name of the suite.
    pub suite: String,
    /// Seal or open.
    pub direction: &'static str,
    /// Size or mix.
    pub size: Sizes,
    /// Number of keys.
    pub keys: usize,
    /// Work between bursts.
    pub between: Between,
    /// Convoy's tier.
    pub tier: &'static str,
    /// The class of processors whose goal it is.
    pub class: Class,
    /// The fastest peer.
    pub peer: &'static str,
    /// Least ratio of that peer's time to Convoy's.
    pub target: f64,
    /// Median ratio.
    pub measured: f64,
    /// True if it was reached.
    pub reached: bool,
}

/// The figures to reach that `points` hold, on a processor that is AMD's or not. Points without a peer have none.
#[must_use]
pub fn figures(points: &[Point], by_amd: bool) -> Vec<Figure> {
    let figure = |point: &Point| {
        let row = Row { suite: point.suite.parse().ok()?, direction: point.direction };
        let class = Class::of(point.tier.parse().ok()?, by_amd);
        let target = gate::target(class, row, point.keys, point.size);
        let fastest = |a: &&Peer, b: &&Peer| a.ratio.median.total_cmp(&b.ratio.median);
        let peer = point.peers.iter().min_by(fastest)?;
        Some(Figure {
            suite: point.suite.clone(),
            direction: point.direction.name(),
            size: point.size,
            keys: point.keys,
            between: point.between,
            tier: point.tier,
            class,
            peer: peer.who,
            target,
            measured: peer.ratio.median,
            reached: peer.ratio.median >= target,
        })
    };
    points.iter().filter_map(figure).collect()
}

type Rows = Vec<Vec<String>>;

/// The table of figures to reach: one row for each suite, direction, tier and number of keys, in
/// each cell what was measured, the target, and `!` where it was missed.
#[must_use]
pub fn gate_rows(figures: &[Figure]) -> Rows {
    let mut columns: Vec<Sizes> = Vec::new();
    for figure in figures {
        if !columns.contains(&figure.size) {
            columns.push(figure.size);
        }
    }
    columns.sort_by_key(|size| match size {
        // The mix stands where its mean does.
        Sizes::Mix(_) => 400,
        Sizes::Fixed(size) => *size,
    });
    let mut heading: Vec<_> = ["SUITE", "", "TIER", "KEYS"].map(str::to_owned).to_vec();
    heading.extend(columns.iter().map(size_name));
    let mut rows = vec![heading];
    let mut between = Vec::new();
    let same = |a: &Figure, b: &Figure| {
        (&a.suite, a.direction, a.tier, a.keys, a.between)
            == (&b.suite, b.direction, b.tier, b.keys, b.between)
    };
    for (i, first) in figures.iter().enumerate() {
        if figures[..i].iter().any(|earlier| same(earlier, first)) {
            continue;
        }
        between.push(first.between);
        let mut row = vec![
            first.suite.clone(),
            first.direction.to_owned(),
            first.tier.to_owned(),
            first.keys.to_string(),
        ];
        for column in &columns {
            let cell = figures.iter().find(|f| same(f, first) && f.size == *column);
            row.push(cell.map_or_else(
                || "–".to_owned(),
                |f| {
                    let mark = if f.reached { " " } else { "!" };
                    format!("{:.2} ≥ {:.2}{mark}", f.measured, f.target)
                },
            ));
        }
        rows.push(row);
    }
    with_between(rows, &between)
}

/// Tells in a column of its own what ran between bursts, if anything did. `between` has an entry for each
/// row but the heading.
fn with_between(mut rows: Rows, between: &[Between]) -> Rows {
    if between.iter().all(|between| *between == Between::None) {
        return rows;
    }
    let names = between.iter().map(|between| between.name());
    for (row, name) in rows.iter_mut().zip(iter::once("BETWEEN").chain(names)) {
        row.insert(AFTER_KEYS, name.to_owned());
    }
    rows
}

/// Position of a column behind suite, direction, tier and number of keys.
const AFTER_KEYS: usize = 4;

/// All points, one row each. Peers that are linked in have columns where they took part.
#[must_use]
pub fn point_rows(points: &[Point]) -> Rows {
    let heading = [
        "SUITE", "", "TIER", "KEYS", "SIZE", "CYC/PKT", "CYC/B", "FLOOR", "IPSEC-MB", "RATIO",
        "API", "OPENSSL", "RATIO",
    ];
    let took_part = |who| points.iter().any(|point| point.peers.iter().any(|peer| peer.who == who));
    let linked: Vec<_> =
        Linked::ALL.map(Linked::name).into_iter().filter(|who| took_part(*who)).collect();
    let mut heading = heading.map(str::to_owned).to_vec();
    heading.extend(linked.iter().flat_map(|who| [who.to_uppercase(), "RATIO".to_owned()]));
    let mut rows = vec![heading];
    for point in points {
        let mut row = vec![
            point.suite.clone(),
            point.direction.name().to_owned(),
            point.tier.to_owned(),
            point.keys.to_string(),
            size_name(&point.size),
            cycles(point.convoy.packet.mean),
            format!("{:.2}", point.convoy.byte),
            point.floor_percent.map_or_else(|| "–".to_owned(), |p| format!("{:.0} %", p.median)),
        ];
        for who in ["ipsec-mb", "openssl"].iter().chain(&linked).copied() {
            match point.peers.iter().find(|peer| peer.who == who) {
                Some(peer) => {
                    row.extend([cycles(peer.cost.packet.mean), spread(&peer.ratio)]);
                    row.extend((who == "ipsec-mb").then(|| peer.api.clone()));
                }
                None => {
                    row.extend(["–", "–"].map(str::to_owned));
                    row.extend((who == "ipsec-mb").then(|| "–".to_owned()));
                }
            }
        }
        rows.push(row);
    }
    with_between(rows, &points.iter().map(|point| point.between).collect::<Vec<_>>())
}

/// Costs of the C library's interfaces, one row for each point and interface; none if none was measured.
#[must_use]
pub fn c_rows(points: &[Point]) -> Rows {
    let heading = [
        "SUITE",
        "",
        "TIER",
        "KEYS",
        "SIZE",
        "API",
        "CYC/PKT",
        "OVER RUST",
        "IPSEC-MB",
        "RATIO",
        "",
    ];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    let mut between = Vec::new();
    for point in points {
        for c in &point.c {
            between.push(point.between);
            let (api, ratio, reached) = match &c.peer {
                Some(peer) => {
                    let mark = if peer.reached { "" } else { "!" };
                    let target = format!("≥ {:.2}{mark}", peer.target);
                    (peer.api.clone(), spread(&peer.ratio), target)
                }
                None => ("–".to_owned(), "–".to_owned(), String::new()),
            };
            rows.push(vec![
                point.suite.clone(),
                point.direction.name().to_owned(),
                point.tier.to_owned(),
                point.keys.to_string(),
                size_name(&point.size),
                c.api.to_owned(),
                cycles(c.cost.packet.mean),
                format!("{:+.1}", c.over_rust.median),
                api,
                ratio,
                reached,
            ]);
        }
    }
    with_between(rows, &between)
}

/// Costs as straight lines: cycles per packet and per byte.
#[must_use]
pub fn fit_rows(fits: &[Fit]) -> Rows {
    let heading = ["SUITE", "", "TIER", "KEYS", "WHO", "CYC/PKT", "+ CYC/B"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for fit in fits {
        rows.push(vec![
            fit.suite.clone(),
            fit.direction.name().to_owned(),
            fit.tier.to_owned(),
            fit.keys.to_string(),
            fit.who.to_owned(),
            format!("{:.0}", fit.line.intercept),
            format!("{:.3}", fit.line.slope),
        ]);
    }
    with_between(rows, &fits.iter().map(|fit| fit.between).collect::<Vec<_>>())
}

pub(crate) fn size_name(size: &Sizes) -> String {
    match size {
        Sizes::Fixed(bytes) if *bytes >= 1024 && bytes.is_multiple_of(1024) => {
            format!("{} KB", bytes / 1024)
        }
        Sizes::Fixed(bytes) => format!("{bytes} B"),
        Sizes::Mix(mix) => mix.to_string(),
    }
}

pub(crate) fn cycles(value: f64) -> String {
    if value < 1000.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

fn spread(ratio: &Summary) -> String {
    format!("{:.2} ({:.2}–{:.2})", ratio.median, ratio.low, ratio.high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Cost, Peer};
    use crate::workload::Direction;

    fn point(peers: &[&'static str]) -> Point {
        let summary = |mean| Summary { mean, median: mean, low: mean, high: mean };
        let cost = |mean| Cost { packet: summary(mean), byte: mean / 64.0 };
        let peer = |(i, who): (usize, &&'static str)| Peer {
            who,
            api: "evp".to_owned(),
            cost: cost(100.0 * (i + 2) as f64),
            ratio: summary((i + 2) as f64),
            interfaces: Vec::new(),
        };
        Point {
            suite: "aes-128-gcm-16".to_owned(),
            direction: Direction::Seal,
            size: Sizes::Fixed(64),
            text_bytes: 64.0,
            keys: 1,
            burst: 4,
            between: Between::None,
            tier: "portable",
            sha_ni: false,
            rounds: 16,
            samples: Vec::new(),
            floors: Vec::new(),
            convoy: cost(100.0),
            floor_percent: None,
            c: Vec::new(),
            peers: peers.iter().enumerate().map(peer).collect(),
            left_out: Vec::new(),
        }
    }

    #[test]
    fn linked_peers_have_columns_only_where_they_took_part() {
        let headings = |points: &[Point]| point_rows(points)[0][8..].join(" ");
        let always = "IPSEC-MB RATIO API OPENSSL RATIO";
        assert_eq!(headings(&[point(&["openssl"])]), always);
        assert_eq!(headings(&[point(&["boringssl"])]), format!("{always} BORINGSSL RATIO"));
        let points = [point(&["boringssl", "aws-lc"]), point(&["ipsec-mb"])];
        assert_eq!(headings(&points), format!("{always} AWS-LC RATIO BORINGSSL RATIO"));
        let rows = point_rows(&points);
        let first = "– – – – – 300.0 3.00 (3.00–3.00) 200.0 2.00 (2.00–2.00)";
        assert_eq!(rows[1][8..].join(" "), first);
        assert_eq!(rows[2][8..].join(" "), "200.0 2.00 (2.00–2.00) evp – – – – – –");
    }
}
