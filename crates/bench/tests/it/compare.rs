//! Two results beside each other: no false alarms, and what changed is found.

use convoy_bench::results::build::Draft;
use convoy_bench::results::compare::{Change, CompareError, Comparisons, compare, compare_runs};
use convoy_bench::results::fields::Fields;
use convoy_bench::results::head::Head;
use convoy_bench::results::{Better, Name, Results};

/// Numbers of a seed: SplitMix64.
struct Numbers(u64);

impl Numbers {
    /// From 0 to 1.
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Time of a burst: some of it noise of one side, as interruptions make it, in whole ticks, so that rounds
    /// are tied.
    fn cycles(&mut self, least: f64) -> f64 {
        let noise = -(1.0 - self.uniform()).ln();
        (least * (1.0 + 0.02 * noise)).round()
    }
}

const POINTS: usize = 10;
const ROUNDS: usize = 40;

/// Results with `POINTS` points, of which the last takes Convoy `slower` as long.
fn results(numbers: &mut Numbers, slower: f64, with_peer: bool) -> Results {
    let mut results = Results::new("crypto", &head());
    let [convoy, peer] = [Name::new("convoy", "avx512"), Name::new("openssl", "evp")];
    for at in 0..POINTS {
        let factor = if at + 1 == POINTS { slower } else { 1.0 };
        let mut rounds =
            |least: f64| -> Vec<f64> { (0..ROUNDS).map(|_| numbers.cycles(least)).collect() };
        let (own, other) = (rounds(1000.0 * factor), rounds(1500.0));
        let place = Fields::default().with("size", 64 * (at + 1));
        let mut draft = Draft::new("cycles per packet", "cycles", Better::Less, place);
        draft = draft.series(&convoy, &own);
        if with_peer {
            draft = draft.series(&peer, &other).ratio(&peer, &convoy, Better::More);
        }
        results.add(draft);
    }
    results
}

/// The same where everything takes so much longer.
fn scaled(results: &Results, factor: f64) -> Results {
    let mut scaled = Results::new("crypto", &head());
    for point in &results.points {
        let place = point.place.clone();
        let mut draft = Draft::new("cycles per packet", "cycles", Better::Less, place);
        for series in &point.series {
            let rounds: Vec<_> = series.rounds.iter().map(|round| factor * round).collect();
            draft = draft.series(&series.name, &rounds);
        }
        draft = point
            .ratios
            .iter()
            .fold(draft, |draft, pair| draft.ratio(&pair.of, &pair.to, pair.better));
        scaled.add(draft);
    }
    scaled
}

/// Looking at the machine takes its time, so that is done once.
fn head() -> Head {
    use std::sync::OnceLock;
    static HEAD: OnceLock<Head> = OnceLock::new();
    HEAD.get_or_init(Head::now).clone()
}

fn count(comparisons: &Comparisons, change: Change) -> usize {
    comparisons.of(change).count()
}

#[test]
fn equal_distributions_make_no_alarms() {
    let mut numbers = Numbers(58);
    let (mut alarms, mut beyond) = (0, 0);
    for _ in 0..1000 {
        let [one, other] = [(); 2].map(|()| results(&mut numbers, 1.0, true));
        let strict = compare(&one, &other, 0.0).unwrap();
        assert_eq!(strict.all.len(), POINTS);
        alarms += usize::from(count(&strict, Change::Loss) + count(&strict, Change::Gain) > 0);
        beyond += count(&compare(&one, &other, 0.03).unwrap(), Change::Loss);
    }
    assert!(alarms <= 10, "{alarms} of 1000");
    assert_eq!(beyond, 0);
}

#[test]
fn known_shifts_are_found() {
    let mut numbers = Numbers(7);
    for _ in 0..100 {
        let base = results(&mut numbers, 1.0, true);
        let slow = results(&mut numbers, 1.15, true);
        let lost = compare(&base, &slow, 0.03).unwrap();
        let losses: Vec<_> = lost.of(Change::Loss).collect();
        assert_eq!((losses.len(), count(&lost, Change::Gain)), (1, 0), "{losses:?}");
        assert!(losses[0].point.ends_with("size 640"), "{losses:?}");
        assert!((-0.17..-0.09).contains(&losses[0].gain), "{losses:?}");
        assert!(losses[0].what.starts_with("ratio of openssl (evp)"));
        let won = compare(&slow, &base, 0.03).unwrap();
        assert_eq!((count(&won, Change::Loss), count(&won, Change::Gain)), (0, 1));
        // It is there, but nobody minds.
        assert_eq!(count(&compare(&base, &slow, 0.2).unwrap(), Change::Loss), 0);
    }
}

#[test]
fn a_change_within_the_spread_of_two_runs_is_none() {
    let mut numbers = Numbers(9);
    // The quartile ranges of such ratios are some 3 % each.
    let (base, slow) = (results(&mut numbers, 1.0, true), results(&mut numbers, 1.03, true));
    let found = compare(&base, &slow, 0.01).unwrap();
    assert!(found.all.iter().any(|it| it.probability < 0.01), "{:?}", found.all);
    assert_eq!(count(&found, Change::None), POINTS, "{:?}", found.all);
}

#[test]
fn of_one_run_a_side_rounds_without_a_ratio_say_nothing() {
    let mut numbers = Numbers(5);
    let (base, slow) = (results(&mut numbers, 1.0, false), results(&mut numbers, 2.0, false));
    let found = compare(&base, &slow, 0.03).unwrap();
    assert_eq!((found.all.len(), found.without_ratio), (0, POINTS));
    // Of what took turns the ratios are compared, peers or not.
    let [own, other] = [Name::new("convoy", "vaes256"), Name::new("convoy", "two-pass")];
    let of = |factor: f64| {
        let mut results = Results::new("esp", &head());
        let draft = Draft::new("cycles per packet", "cycles", Better::Less, Fields::default());
        let draft = draft.series(&own, &[factor * 100.0; 30]).series(&other, &[300.0; 30]);
        results.add(draft.ratio(&other, &own, Better::More));
        results
    };
    let found = compare(&of(1.0), &of(1.5), 0.03).unwrap();
    assert_eq!((count(&found, Change::Loss), found.without_ratio), (1, 0), "{:?}", found.all);
}

#[test]
fn of_several_runs_each_counts_once() {
    let mut numbers = Numbers(11);
    // A whole run is slower or faster by up to four per cent, which its rounds know nothing of.
    let mut runs = |factor: f64| -> Vec<Results> {
        let each = (0..12).map(|_| {
            let of_run = 1.0 + 0.04 * (numbers.uniform() - 0.5);
            scaled(&results(&mut numbers, factor, false), of_run)
        });
        each.collect()
    };
    let (base, same, slow) = (runs(1.0), runs(1.0), runs(1.06));
    let found = compare_runs([&base, &same], 0.0).unwrap();
    assert_eq!(count(&found, Change::Loss) + count(&found, Change::Gain), 0, "{:?}", found.all);
    let found = compare_runs([&base, &slow], 0.01).unwrap();
    assert_eq!(count(&found, Change::Loss), 1, "{:?}", found.all);
    let lost = found.of(Change::Loss).next().unwrap();
    assert!(lost.point.ends_with("size 640") && (-0.08..-0.04).contains(&lost.gain), "{lost:?}");
    let empty: [Results; 0] = [];
    assert_eq!(compare_runs([&base, &empty], 0.0).unwrap_err(), CompareError::Apart);
}

#[test]
fn a_clock_that_changes_for_all_is_no_change_of_ratios() {
    let mut numbers = Numbers(3);
    let base = results(&mut numbers, 1.0, true);
    let slow = scaled(&base, 1.5);
    let same = compare(&base, &slow, 0.0).unwrap();
    assert_eq!(count(&same, Change::None), POINTS, "{:?}", same.all);
}

#[test]
fn of_a_peers_interfaces_the_best_is_compared() {
    let [convoy, burst, job, floor] = [
        Name::new("convoy", "avx512"),
        Name::new("ipsec-mb", "burst"),
        Name::new("ipsec-mb", "job"),
        Name::new("floor", "ports"),
    ];
    let of = |slow: f64| {
        let rounds = |value: f64| vec![value; 30];
        let mut results = Results::new("crypto", &head());
        let draft = Draft::new("cycles per packet", "cycles", Better::Less, Fields::default());
        results.add(
            draft
                .series(&convoy, &rounds(100.0 * slow))
                .series(&job, &rounds(150.0))
                .series(&burst, &rounds(130.0))
                .series(&floor, &rounds(50.0))
                .ratio(&job, &convoy, Better::More)
                .ratio(&burst, &convoy, Better::More)
                .ratio(&floor, &convoy, Better::More),
        );
        results
    };
    let found = compare(&of(1.0), &of(1.25), 0.03).unwrap();
    assert_eq!(found.all.len(), 1, "{:?}", found.all);
    assert_eq!(found.all[0].what, "ratio of ipsec-mb (burst) to convoy (avx512)");
    assert_eq!(found.all[0].medians, [1.3, 1.04]);
    assert!(found.all[0].change == Change::Loss && (found.all[0].gain + 0.2).abs() < 1e-9);
}

#[test]
fn what_has_nothing_in_common_is_refused() {
    let mut numbers = Numbers(1);
    let one = results(&mut numbers, 1.0, true);
    let mut other = one.clone();
    other.points.truncate(3);
    let found = compare(&one, &other, 0.03).unwrap();
    assert_eq!((found.all.len(), found.apart, found.other_machine), (3, [POINTS - 3, 0], false));
    other.machine.cpu = "another".to_owned();
    assert!(compare(&other, &one, 0.03).unwrap().other_machine);
    other.points.clear();
    assert_eq!(compare(&one, &other, 0.03).unwrap_err(), CompareError::Apart);
    other.bench = "esp".to_owned();
    let told = compare(&one, &other, 0.03).unwrap_err().to_string();
    assert_eq!(told, "one is of convoy bench crypto, the other of convoy bench esp");
}
