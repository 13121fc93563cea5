//! A point is measured with whoever is here, and comes out with numbers that hang together.

use std::time::Duration;

use convoy_bench::api::CApi;
use convoy_bench::between::Between;
use convoy_bench::mix::{Mix, Sizes};
use convoy_bench::peer::ipsec_mb::{Arch, IpsecMb};
use convoy_bench::peer::linked::Linked;
use convoy_bench::peer::openssl::OpenSsl;
use convoy_bench::report;
use convoy_bench::run::{Lineup, Peer, Point, Task, fits};
use convoy_bench::workload::Direction;
use convoy_crypto::{Cpu, Tier};

fn lineup() -> Lineup {
    let skipped = |error| println!("SKIPPED a peer: {error}");
    let cpu = Cpu::detect().unwrap();
    Lineup {
        cpu,
        tier: cpu.best(),
        sha_ni: cpu.has_sha_ni(),
        c_apis: CApi::ALL.to_vec(),
        ipsec_mb: IpsecMb::load(None, Arch::SseType1).map_err(skipped).ok(),
        openssl: OpenSsl::load(None).map_err(skipped).ok(),
        linked: Linked::ALL.into_iter().filter(|peer| peer.version().is_ok()).collect(),
        base: None,
        openssl_between: None,
    }
}

fn task(name: &str, direction: Direction, sizes: Sizes) -> Task {
    let time = Duration::from_millis(1);
    let suite = name.parse().unwrap();
    Task { suite, direction, sizes, keys: 3, burst: 20, between: Between::None, time }
}

#[test]
fn points_hold_what_was_asked_for() {
    let lineup = lineup();
    for direction in [Direction::Seal, Direction::Open] {
        let task = task("aes-128-gcm-16", direction, Sizes::Mix(Mix::Imix));
        let mut point = lineup.measure(&task).unwrap();
        // The fastest interface is the one that is shown. It is chosen by medians, and means are moved by whoever
        // else uses the processor.
        let shows_fastest = |point: &Point| {
            point.peers.iter().all(|peer| {
                let best = peer.interfaces.iter().map(|i| i.packet).fold(f64::INFINITY, f64::min);
                peer.cost.packet.mean < 1.5 * best
            })
        };
        for _ in 0..4 {
            if shows_fastest(&point) {
                break;
            }
            point = lineup.measure(&task).unwrap();
        }
        assert!(shows_fastest(&point), "{:?}", point.peers);
        assert_eq!((point.keys, point.burst, point.direction), (3, 20, direction));
        assert!(point.rounds >= 16);
        let convoy = point.convoy.packet;
        assert!(convoy.mean > 1.0 && convoy.low <= convoy.median && convoy.median <= convoy.high);
        assert!((point.convoy.byte * point.text_bytes - convoy.mean).abs() < 0.01 * convoy.mean);
        let expected = usize::from(lineup.ipsec_mb.is_some()) + lineup.linked.len();
        assert_eq!(point.peers.len(), expected + usize::from(lineup.openssl.is_some()));
        for peer in &point.peers {
            assert!(peer.ratio.low <= peer.ratio.median && peer.ratio.median <= peer.ratio.high);
        }
    }
}

#[test]
fn ways_through_c_are_measured_beside_rust_and_the_peers_interfaces_like_them() {
    let lineup = lineup();
    let point = |suite| lineup.measure(&task(suite, Direction::Seal, Sizes::Fixed(64))).unwrap();
    let (aead, pair) = (point("aes-128-gcm-16"), point("aes-128-cbc+aes-xcbc-96"));
    let apis = |point: &Point| point.c.iter().map(|c| c.api).collect::<Vec<_>>();
    assert_eq!(apis(&aead), CApi::ALL.map(CApi::name));
    // A pair has no direct calls, and takes part where hashes are left as they are.
    let jobs: Vec<_> = CApi::ALL.map(CApi::name).into_iter().filter(|a| *a != "c-direct").collect();
    assert_eq!(apis(&pair), if lineup.sha_ni { jobs } else { Vec::new() });
    for c in &aead.c {
        assert!(c.cost.packet.mean > 1.0 && c.over_rust.median < c.cost.packet.high);
        assert_eq!(c.peer.is_some(), lineup.ipsec_mb.is_some());
        let like = c.peer.as_ref().map_or("–", |peer| peer.api.as_str());
        assert!(like == "–" || CApi::named(c.api).unwrap().is_like(like), "{like}");
    }
    let rows = report::c_rows(&[aead, pair]);
    assert!(rows.len() > 5 && rows.iter().all(|row| row.len() == rows[0].len()), "{rows:?}");
}

#[test]
fn another_tier_takes_turns_with_the_first() {
    let cpu = Cpu::detect().unwrap();
    let lineup = Lineup { base: Some((cpu, Tier::Portable)), ..lineup() };
    let point = lineup.measure(&task("aes-128-gcm-16", Direction::Seal, Sizes::Fixed(64))).unwrap();
    let own: Vec<_> = point.samples.iter().filter(|samples| samples.who == "convoy").collect();
    let names: Vec<&str> = own.iter().map(|samples| &*samples.api).collect();
    assert_eq!(
        names,
        [lineup.tier.name(), "portable"][..if cpu.best() == Tier::Portable { 1 } else { 2 }]
    );
    assert!(own.iter().all(|samples| samples.packet.len() == point.rounds));
    assert!(point.peers.iter().all(|peer| peer.who != "convoy"), "a tier is no peer");
}

#[test]
fn lines_are_drawn_through_single_sizes_for_everybody() {
    let lineup = lineup();
    let sizes = [Sizes::Fixed(64), Sizes::Fixed(1420), Sizes::Mix(Mix::ImixPaper)];
    let points: Vec<_> = sizes
        .map(|sizes| lineup.measure(&task("aes-256-gcm-16", Direction::Seal, sizes)).unwrap())
        .to_vec();
    let fits = fits(&points);
    assert_eq!(fits.len(), 1 + points[0].peers.len());
    assert!(fits.iter().all(|fit| fit.line.slope > 0.0));
    let rows = report::point_rows(&points);
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{rows:?}");
}

#[test]
fn what_runs_between_bursts_is_told_in_a_column_and_not_timed() {
    let library = OpenSsl::load(None);
    let lineup = Lineup {
        openssl_between: library.ok(),
        openssl: None,
        ipsec_mb: None,
        linked: Vec::new(),
        ..lineup()
    };
    let mut points = Vec::new();
    for between in Between::ALL {
        if between == Between::OpenSsl && lineup.openssl_between.is_none() {
            println!("SKIPPED: OpenSSL between bursts: it is not here");
            continue;
        }
        let task = Task { between, ..task("aes-128-gcm-16", Direction::Seal, Sizes::Fixed(64)) };
        let point = lineup.measure(&task).unwrap();
        assert_eq!(point.between, between);
        points.push(point);
    }
    // Twenty packets in a millisecond: no clock is so slow that these would be fewer cycles each.
    assert!(points.iter().all(|point| point.convoy.packet.median < 25_000.0), "{points:?}");
    let column = |rows: Vec<Vec<String>>| {
        assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{rows:?}");
        let place = rows[0].iter().position(|name| name == "BETWEEN");
        place.map(|place| rows[1..].iter().map(|row| row[place].clone()).collect::<Vec<_>>())
    };
    let names: Vec<_> = points.iter().map(|point| point.between.to_string()).collect();
    assert_eq!(column(report::point_rows(&points)).unwrap(), names);
    assert_eq!(column(report::point_rows(&points[..1])), None, "nothing ran between those bursts");
    // One size makes no line; those through two are drawn for each thing between apart.
    let long =
        |between| Task { between, ..task("aes-128-gcm-16", Direction::Seal, Sizes::Fixed(1420)) };
    for between in [Between::None, Between::Pause] {
        points.push(lineup.measure(&long(between)).unwrap());
    }
    assert_eq!(column(report::fit_rows(&fits(&points))).unwrap(), ["none", "pause"]);
}

#[test]
fn missed_figures_are_named() {
    let lineup = lineup();
    let task = task("aes-128-gcm-16", Direction::Seal, Sizes::Fixed(64));
    let point = lineup.measure(&task).unwrap();
    let figures = report::figures(std::slice::from_ref(&point), lineup.cpu.is_by_amd());
    assert_eq!(figures.len(), usize::from(!point.peers.is_empty()));
    for figure in &figures {
        assert_eq!(figure.reached, figure.measured >= figure.target);
        let slower = |peer: &Peer| peer.ratio.median >= figure.measured;
        assert!(point.peers.iter().all(slower), "the fastest peer counts: {figure:?}");
        let cell = &report::gate_rows(&figures)[1][4];
        assert_eq!(cell.ends_with('!'), !figure.reached, "{cell}");
    }
}
