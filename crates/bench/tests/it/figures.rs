//! Figures of the report have the numbers that follow from results.

use convoy_bench::chart::{Figure, Kind, Line};
use convoy_bench::figures::{Experiment, Id, merge, page};
use convoy_bench::html;
use convoy_bench::results::build::Draft;
use convoy_bench::results::fields::Fields;
use convoy_bench::results::head::Head;
use convoy_bench::results::{Better, LeftOut, Name, Results};

/// Ticks of the time-stamp counter in a microsecond.
const MHZ: f64 = 2000.0;

fn head() -> Head {
    let mut head = Head::now();
    head.machine.tsc_mhz = MHZ;
    head.machine.tiers = ["portable", "aesni", "vaes256"].map(str::to_owned).to_vec();
    head
}

fn convoy(by: &str) -> Name {
    Name::new("convoy", by)
}

/// One tunnel: the pipeline without cryptography takes 100 cycles, and each way a number of cycles a byte of the frame more.
fn one_tunnel(report: &mut Results) {
    let mut results = Results::new("esp", report_head(report));
    for size in [46_usize, 1440] {
        let place = Fields::default()
            .with("suite", "aes-128-gcm-16")
            .with("size", size)
            .with("direction", "outbound");
        let quantity = "cycles per packet, engines in turn";
        let frame = (size + 18) as f64;
        let mut draft = Draft::new(quantity, "cycles", Better::Less, place);
        let ways = [("vaes256", 0.5), ("null", 0.0), ("two-pass", 8.0), ("two-pass-clmul", 1.0)];
        for (name, byte) in ways {
            draft = draft.series(&convoy(name), &[100.0 + byte * frame; 20]);
        }
        draft = draft.series(&convoy("crypto library alone"), &[0.5 * frame; 20]);
        for name in ["crypto library alone", "null", "two-pass", "two-pass-clmul"] {
            draft = draft.ratio(&convoy(name), &convoy("vaes256"), Better::More);
        }
        results.add(draft);
    }
    results.left_out.push(LeftOut::new("aws-lc", "it was not built in"));
    merge::add(report, Experiment::OneTunnel, "engines in turn", results);
    // Texts of the two frames in plain software: 20 cycles a byte.
    let mut plain = Results::new("crypto", report_head(report));
    for text in [48_usize, 1444] {
        let place = Fields::default().with("suite", "aes-128-gcm-16").with("size", text);
        let draft = Draft::new("cycles per packet", "cycles", Better::Less, place);
        let draft = draft.series(&convoy("vaes256"), &[10.0; 20]);
        plain.add(draft.series(&Name::new("openssl", "evp"), &[20.0 * text as f64; 20]));
    }
    merge::add(report, Experiment::OneTunnel, "OpenSSL in plain software", plain);
}

fn report_head(_: &Results) -> &'static Head {
    use std::sync::OnceLock;
    static HEAD: OnceLock<Head> = OnceLock::new();
    HEAD.get_or_init(head)
}

fn many_tunnels(report: &mut Results) {
    let mut results = Results::new("esp", report_head(report));
    results.facts.set("computing_at_once", 0.9);
    for (workers, sas) in [(1_usize, 1_usize), (2, 2), (2, 4)] {
        for size in ["imix", "imix-paper"] {
            let place = Fields::default()
                .with("suite", "aes-128-gcm-16")
                .with("size", size)
                .with("sas", sas)
                .with("engine", "inline")
                .with("tier", "vaes256")
                .with("workers", workers);
            let (all, one) = (convoy("workers"), convoy("one worker in the run beside"));
            let rate = 1e6 * workers as f64 * 0.89;
            let draft = Draft::new("packets per second", "packets/s", Better::More, place)
                .series(&all, &[rate; 9])
                .series(&one, &[1e6; 9]);
            results.add(draft.ratio(&all, &one, Better::More));
        }
        let place = Fields::default()
            .with("suite", "aes-128-gcm-16")
            .with("size", 1440_usize)
            .with("sas", sas)
            .with("engine", "rfc4106-gcm-aes-null")
            .with("tier", "vaes256")
            .with("workers", workers);
        let draft = Draft::new("packets per second", "packets/s", Better::More, place);
        results.add(draft.series(&convoy("workers"), &[2e6; 9]));
    }
    merge::add(report, Experiment::ManyTunnels, "engines", results);
}

fn multi_buffer(report: &mut Results) {
    library(report, "sizes and tiers", "1.3.0", 2.0);
    library(report, "sizes and tiers, another intel-ipsec-mb", "2.0.2", 3.0);
}

/// The crypto library beside a version of intel-ipsec-mb that takes `slower` times as long by its bursts.
fn library(report: &mut Results, step: &str, version: &str, slower: f64) {
    let mut results = Results::new("crypto", report_head(report));
    for (tier, factor, manager) in [("aesni", 4.0, "sse"), ("vaes256", 1.0, "avx2-t1")] {
        for suite in ["aes-128-cbc+aes-xcbc-96", "aes-128-gcm-16"] {
            for size in [64_usize, 1408, 2048] {
                let place = Fields::default()
                    .with("suite", suite)
                    .with("direction", "seal")
                    .with("size", size)
                    .with("tier", tier);
                let own = factor * size as f64;
                let of = format!("intel-ipsec-mb {version}, {manager}, by flags");
                let facts = || Fields::default().with("library", of.as_str());
                let [job, burst] = ["job", "burst"].map(|by| Name::new("ipsec-mb", by));
                let draft = Draft::new("cycles per packet", "cycles", Better::Less, place)
                    .fact("text_bytes", size as f64)
                    .series(&convoy(tier), &[own; 20]);
                let draft = match tier {
                    "aesni" => draft,
                    _ => draft.series(&convoy("aesni"), &[4.0 * size as f64; 20]).ratio(
                        &convoy("aesni"),
                        &convoy(tier),
                        Better::More,
                    ),
                };
                let draft = draft
                    .series(&Name::new("convoy-c", "c-job"), &[own + 20.0; 20])
                    .series_with(&job, &[4.0 * own; 20], facts())
                    .series_with(&burst, &[slower * own; 20], facts());
                let draft = draft.ratio(&job, &convoy(tier), Better::More);
                results.add(draft.ratio(&burst, &convoy(tier), Better::More));
            }
        }
    }
    merge::add(report, Experiment::MultiBuffer, step, results);
}

fn dpdk(report: &mut Results) {
    let mut results = Results::new("dpdk", report_head(report));
    for size in [64_usize, 1408] {
        let place = Fields::default()
            .with("suite", "aes-128-gcm-16")
            .with("direction", "seal")
            .with("size", size)
            .with("burst", 32_usize)
            .with("tier", "vaes256");
        let (own, device) = (convoy("vaes256"), Name::new("dpdk", "crypto_aesni_mb"));
        let library = Fields::default().with("library", "intel-ipsec-mb 1.3.0");
        let bytes = size as f64;
        let draft = Draft::new("cycles per packet in short windows", "cycles", Better::Less, place)
            .fact("text_bytes", bytes)
            .series(&own, &[bytes; 7])
            .series_with(&device, &[1.5 * bytes; 7], library);
        results.add(draft.ratio(&device, &own, Better::More));
    }
    merge::add(report, Experiment::MultiBuffer, "in turn with DPDK", results);
}

fn report() -> Results {
    let mut report = Results::new("report", report_head(&Results::new("report", &head())));
    one_tunnel(&mut report);
    many_tunnels(&mut report);
    multi_buffer(&mut report);
    dpdk(&mut report);
    report
}

fn figure<'a>(figures: &'a [Figure], id: &str) -> &'a Figure {
    figures.iter().find(|figure| figure.id == id).unwrap_or_else(|| panic!("no figure {id}"))
}

/// The values of a line of a figure's chart.
fn values(figure: &Figure, chart: usize, name: &str) -> Vec<(f64, f64)> {
    let Kind::Lines(lines) = &figure.charts[chart].kind else { panic!("{}: no lines", figure.id) };
    let found = lines.series.iter().find(|line| line.name == name);
    let names: Vec<&str> = lines.series.iter().map(|line| &*line.name).collect();
    let Line { dots, .. } = found.unwrap_or_else(|| panic!("no {name} among {names:?}"));
    dots.iter().map(|dot| (dot.x, dot.y.middle)).collect()
}

fn near(values: &[(f64, f64)], wanted: &[(f64, f64)]) {
    assert_eq!(values.len(), wanted.len(), "{values:?}");
    for ((x, y), (a, b)) in values.iter().zip(wanted) {
        assert!(x == a && (y - b).abs() < 1e-3 * b.abs(), "{values:?}, not {wanted:?}");
    }
}

#[test]
fn one_tunnels_figures_follow_from_cycles() {
    let figures = page::figures(&report(), &[]);
    let f1 = figure(&figures, "F1");
    // Bits of the frame, times ticks in a microsecond, by cycles: megabits a second.
    let own = |frame: f64| (frame, 8.0 * frame * MHZ / (100.0 + 0.5 * frame));
    near(&values(f1, 0, "combined, vaes256"), &[own(64.0), own(1458.0)]);
    let plain = |frame: f64, text: f64| (frame, 8.0 * frame * MHZ / (100.0 + 20.0 * text));
    let wanted = [plain(64.0, 48.0), plain(1458.0, 1444.0)];
    near(&values(f1, 0, "null with OpenSSL in plain software"), &wanted);
    assert_eq!(f1.left_out, [LeftOut::new("aws-lc", "it was not built in")]);
    assert!(
        f1.goals.iter().any(|goal| goal.is_reached) && f1.goals.iter().any(|goal| !goal.is_reached)
    );
    let f2 = figure(&figures, "F2");
    assert!(
        f2.notes.iter().any(|note| note.contains("vaes256: 100 cycles a packet and 0.5 a byte")),
        "{f2:?}"
    );
    let slope = &f2.goals[0];
    assert!(slope.measured == "16" && slope.is_reached, "{slope:?}");
    assert!(f2.goals[1].measured == "100" && f2.goals[1].is_reached, "{:?}", f2.goals);
    let f3 = figure(&figures, "F3");
    let share = |frame: f64| (frame, 100.0 * 0.5 * frame / (100.0 + 0.5 * frame));
    near(&values(f3, 0, "cryptography"), &[share(64.0), share(1458.0)]);
}

#[test]
fn workers_are_judged_by_what_processors_reach_together() {
    let figures = page::figures(&report(), &[]);
    let f6 = figure(&figures, "F6");
    // 1.78 of 2, and 1.9 times 0.9 is asked for.
    assert_eq!(f6.goals.len(), 2);
    assert!(f6.goals.iter().all(|goal| goal.asked == "at least 1.71" && goal.is_reached), "{f6:?}");
    let f5 = figure(&figures, "F5");
    near(&values(f5, 0, "null"), &[(1458.0, 8.0 * 1458.0 * 2.0)]);
}

#[test]
fn the_librarys_figures_show_the_fastest_way_into_a_peer() {
    let figures = page::figures(&report(), &[]);
    let f7 = figure(&figures, "F7");
    let gigabits = |factor: f64| 8.0 * MHZ / 1e3 / factor;
    let each = |factor| [64.0, 1408.0, 2048.0].map(|size| (size, gigabits(factor)));
    near(&values(f7, 0, "Convoy, bursts in Rust"), &each(1.0));
    near(&values(f7, 0, "intel-ipsec-mb, burst"), &each(2.0));
    let Kind::Lines(lines) = &f7.charts[0].kind else { panic!("no lines") };
    assert!(!lines.series.iter().any(|line| line.name == "intel-ipsec-mb, job"));
    // 1.94 cycles a byte in 1.
    assert!(f7.goals[0].measured.starts_with("1.94") && f7.goals[0].is_reached, "{:?}", f7.goals);
    let f8 = figure(&figures, "F8");
    let speeds = |factor| [64.0, 1408.0, 2048.0].map(|size| (size, factor));
    near(&values(f8, 1, "vaes256"), &speeds(4.0));
    // Its fastest way in takes twice what the tier beside it takes, the other version three times.
    near(&values(f8, 1, "intel-ipsec-mb 1.3.0, sse"), &speeds(0.5));
    near(&values(f8, 1, "intel-ipsec-mb 1.3.0, avx2-t1"), &speeds(2.0));
    near(&values(f8, 1, "intel-ipsec-mb 2.0.2, avx2-t1"), &speeds(4.0 / 3.0));
    // What the other version did beside is in no other figure.
    near(&values(f7, 1, "intel-ipsec-mb, burst"), &each(2.0));
    let headlines = page::headlines(&report());
    let first = &headlines[0];
    assert!(first.figure == "F7" && first.value.middle == 2.0 && first.is_reached(), "{first:?}");
}

#[test]
fn dpdks_devices_stand_beside_the_bursts_that_they_took_turns_with() {
    let figures = page::figures(&report(), &[]);
    let f7 = figure(&figures, "F7");
    let chart = f7.charts.len() - 1;
    assert_eq!(f7.charts[chart].heading, "aes-128-gcm-16, in turn with DPDK's devices");
    let gigabits = |factor: f64| [64.0, 1408.0].map(|size| (size, 8.0 * MHZ / 1e3 / factor));
    near(&values(f7, chart, "Convoy, bursts of 32"), &gigabits(1.0));
    near(&values(f7, chart, "DPDK crypto_aesni_mb (intel-ipsec-mb 1.3.0)"), &gigabits(1.5));
    assert!(f7.caption.contains("short windows taken in turn"), "{}", f7.caption);
    let ratios = "in Convoy's: 1.5 (1.5 to 1.5) at 64 bytes, 1.5 (1.5 to 1.5) at 1,408 bytes.";
    assert!(f7.notes.iter().any(|note| note.ends_with(ratios)), "{:?}", f7.notes);
    // Where it was not measured, nothing is said of it.
    let mut without = Results::new("report", report_head(&report()));
    multi_buffer(&mut without);
    let f7 = page::figures(&without, &[]).into_iter().find(|figure| figure.id == "F7").unwrap();
    assert!(!f7.caption.contains("DPDK") && !f7.notes.iter().any(|note| note.contains("DPDK")));
}

#[test]
fn dpdks_gateway_stands_beside_the_worker_that_it_took_turns_with() {
    let mut report = Results::new("report", report_head(&report()));
    let place = |engine: Option<&str>| {
        let place = Fields::default().with("suite", "aes-128-gcm-16").with("size", 64_usize);
        engine.map_or_else(|| place.clone(), |engine| place.clone().with("engine", engine))
    };
    let mut forward = Results::new("forward", report_head(&report));
    let quantity = "packets per second at 0.01 % loss";
    let draft = Draft::new(quantity, "packets/s", Better::More, place(Some("inline")));
    forward.add(draft.series(&convoy("inline"), &[1e6; 5]));
    merge::add(&mut report, Experiment::LookAside, "engines under load", forward);
    let mut gateways = Results::new("dpdk --secgw", report_head(&report));
    let quantity = "cycles per packet of a gateway in short windows";
    let (own, device) = (convoy("vaes256"), Name::new("dpdk", "crypto_aesni_mb"));
    let draft =
        Draft::new(quantity, "cycles", Better::Less, place(None)).fact("packet_bytes", 64_usize);
    let draft = draft.series(&own, &[400.0; 7]).series(&device, &[500.0; 7]);
    gateways.add(draft.ratio(&device, &own, Better::More));
    merge::add(&mut report, Experiment::LookAside, "in turn with DPDK's ipsec-secgw", gateways);
    let figures = page::figures(&report, &[]);
    let f9 = figure(&figures, "F9");
    assert_eq!(f9.charts.len(), 2);
    near(&values(f9, 1, "Convoy, a worker"), &[(64.0, MHZ / 400.0)]);
    near(&values(f9, 1, "DPDK ipsec-secgw, crypto_aesni_mb"), &[(64.0, MHZ / 500.0)]);
    let ratio =
        "time of DPDK ipsec-secgw, crypto_aesni_mb in Convoy's: 1.25 (1.25 to 1.25) at 64 bytes.";
    assert!(f9.notes.iter().any(|note| note.ends_with(ratio)), "{:?}", f9.notes);
}

#[test]
fn only_wanted_figures_are_drawn_and_one_result_gives_one_page() {
    let results = report();
    let only: Vec<Id> = vec!["F2".parse().unwrap()];
    let page = page::report(&results, &only);
    assert_eq!(page.figures.len(), 1);
    assert!(page.headline.iter().all(|line| line.figure.as_deref() == Some("F2")));
    let page = html::render(&page::report(&results, &[]));
    let again = Results::parse(results.to_json().unwrap().as_bytes()).unwrap();
    assert!(page == html::render(&page::report(&again, &[])));
    for id in ["F1", "F8"] {
        assert!(page.contains(&format!("id=\"{id}\"")), "{id}");
    }
}
