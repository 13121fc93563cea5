//! Figures of gateways and of a web server have the numbers that follow from results.

use convoy_bench::chart::{Bars, Figure, Kind, Line, Role};
use convoy_bench::figures::{Experiment, merge, page};
use convoy_bench::html;
use convoy_bench::results::build::Draft;
use convoy_bench::results::fields::Fields;
use convoy_bench::results::head::Head;
use convoy_bench::results::read::ReadError;
use convoy_bench::results::{Better, LeftOut, Name, Results};
use serde_json::{Value, json};

/// A sample of TCP as `interop/throughput/compare.py` writes it.
fn stream(round: u64, load: &str, gigabits: f64) -> Value {
    json!({
        "round": round, "load": load, "direction": "a-to-b", "bits_per_second": gigabits * 1e9, "retransmits": 0,
        "path_mtu": 1500, "gateway_cpu_s_per_gb": 10.0 / gigabits, "others_cores": 0.1, "stolen_cores": 0.0
    })
}

/// A sample of UDP: nothing is lost at half the rate, and 2 % at twice it.
fn datagrams(round: u64, rate: f64) -> Value {
    let step = |factor: f64, lost: f64| json!({"asked": factor * rate, "lost_share": lost});
    json!({
        "round": round, "load": "udp64", "direction": "a-to-b", "datagrams_per_second": rate, "bits_per_second": 288.0 * rate,
        "lost_share": 0.0, "ended_by": "loss", "gateway_cpu_s_per_gb": 100.0, "path_mtu": 1500, "others_cores": 0.1,
        "stolen_cores": 0.0, "receive_buffer": 4_194_304, "steps": [step(0.5, 0.0), step(2.0, 0.02)]
    })
}

fn candidate(name: &str, program: &str, variant: &str, samples: &[Value]) -> Value {
    let version = if program == "convoy" { "convoy 0.9.1, CPU tier vaes256" } else { "1.2" };
    json!({"name": name, "program": program, "variant": variant, "cipher": "AES-128-GCM", "version": version, "samples": samples})
}

/// Two rounds, of which libipsec missed the first.
fn comparison() -> Value {
    let both = |gigabits: f64, rate: f64| {
        [1, 2].map(|round| [stream(round, "tcp1", gigabits), datagrams(round, rate)]).concat()
    };
    let mut esp = both(3.0, 40e3);
    esp.push(stream(1, "tcp8", 4.0));
    json!({
        "schema": "convoy-gateways", "schema_version": 1, "command": "compare.py --load all --json", "rounds": 2, "seconds": 5,
        "step_seconds": 1, "loads": ["tcp1", "tcp8", "udp64"], "urgent": false, "interrupted": false, "summary": [],
        "machine": {
            "cpu": "A processor", "class": null, "cores": 2, "processors": [0, 1], "tiers": ["portable", "aesni"],
            "load_before": [0.1, 0.1, 0.1], "load_after": [0.2, 0.1, 0.1], "kernel": "6.18", "iperf3": "3.12",
            "commit": "abc", "time": "2026-11-29T10:00:00Z"
        },
        "candidates": [
            candidate("plain", "kernel", "routing in the clear", &both(9.0, 80e3)),
            candidate("convoy-esp", "convoy", "native ESP, sockets, 1 worker", &esp),
            candidate("wireguard-go", "wireguard-go", "ChaCha20-Poly1305", &both(1.5, 20e3)),
            candidate("libipsec", "strongswan", "kernel-libipsec, plugin aesni", &[stream(2, "tcp1", 0.5)]),
        ],
        "skipped": [{"candidate": "boringtun", "why": "boringtun-cli is not installed"}],
        "failures": [{"candidate": "libipsec", "round": 1, "load": "tcp1", "why": "no ping\nand more"}]
    })
}

fn parse(value: &Value) -> Result<Results, ReadError> {
    Results::parse_any(value.to_string().as_bytes())
}

fn report(experiment: Experiment, step: &str, results: Results) -> Results {
    let mut report = Results::new("report", &Head::now());
    merge::add(&mut report, experiment, step, results);
    report
}

fn bars(figure: &Figure, chart: usize) -> &Bars {
    let Kind::Bars(bars) = &figure.charts[chart].kind else { panic!("no bars: {figure:?}") };
    bars
}

fn lines(figure: &Figure, chart: usize) -> &[Line] {
    let Kind::Lines(lines) = &figure.charts[chart].kind else { panic!("no lines: {figure:?}") };
    &lines.series
}

/// The values of a bar.
fn values(bars: &Bars, name: &str) -> Vec<Option<f64>> {
    let bar = bars.series.iter().find(|bar| bar.name == name);
    let bar = bar.unwrap_or_else(|| panic!("no {name} in {bars:?}"));
    bar.values.iter().map(|value| value.map(|value| value.middle)).collect()
}

#[test]
fn a_comparison_becomes_results_like_those_of_all_benches() {
    let results = parse(&comparison()).unwrap();
    results.check().unwrap();
    assert_eq!((results.bench.as_str(), results.version.as_str()), ("gateways", "0.9.1"));
    assert_eq!((results.machine.cpu.as_str(), results.complete), ("A processor", true));
    assert_eq!(Results::parse(results.to_json().unwrap().as_bytes()).unwrap(), results);
    let wanted = [
        LeftOut::new("boringtun", "boringtun-cli is not installed"),
        LeftOut::new("libipsec, tcp1, round 1", "no ping"),
    ];
    assert_eq!(results.left_out, wanted);
    let tcp1 = results.points.iter().find(|point| point.quantity == "throughput").unwrap();
    // What a point is about comes first.
    assert_eq!(tcp1.series[0].name, Name::new("convoy", "native ESP, sockets, 1 worker"));
    // libipsec has other rounds, so that none pair.
    let beside: Vec<&str> = tcp1.ratios.iter().map(|pair| &*pair.to.who).collect();
    assert_eq!(beside, ["kernel", "wireguard-go"]);
    assert_eq!(tcp1.ratios[1].summary.median, 2.0);
    let lost = results.points.iter().filter(|point| point.quantity == "share of datagrams lost");
    let at = |rate: u64| {
        let place = Fields::default().with("load", "udp64").with("size", 64_u64);
        let place = place.with("direction", "a-to-b").with("rate", rate);
        let point = lost.clone().find(|point| point.place == place).unwrap();
        point.series.iter().map(|series| (&*series.name.who, series.summary.median)).collect()
    };
    let at: [Vec<(&str, f64)>; 2] = [at(20_000), at(80_000)];
    assert_eq!(at[0], [("convoy", 0.0)]);
    assert_eq!(at[1], [("convoy", 2.0)]);
}

#[test]
fn an_interrupted_comparison_is_not_complete_and_unknown_loads_are_named() {
    let mut value = comparison();
    value["interrupted"] = json!(true);
    value["candidates"][0]["samples"][0]["load"] = json!("sctp");
    let results = parse(&value).unwrap();
    assert!(!results.complete);
    assert!(results.left_out.iter().any(|one| one.what == "sctp"), "{:?}", results.left_out);
}

#[test]
fn what_is_no_result_is_named() {
    let mut newer = comparison();
    newer["schema_version"] = json!(2);
    let mut less = comparison();
    less.as_object_mut().unwrap().remove("machine");
    for (value, said) in [
        (json!([1, 2]), "a list"),
        (json!({}), "an empty object"),
        (json!({"end": 1, "start": 2}), "an object without a schema, with end, start"),
        (json!({"schema": "lcov"}), "JSON of the schema \"lcov\""),
        (newer, "a newer compare.py, schema 2; this one reads up to 1"),
        (less, "missing field `machine`"),
    ] {
        let error = parse(&value).unwrap_err().to_string();
        assert!(error.contains(said), "{error}, not {said}");
    }
    let bytes = comparison().to_string();
    let cut = Results::parse_any(&bytes.as_bytes()[..bytes.len() / 2]).unwrap_err();
    assert!(matches!(cut, ReadError::Cut(_)), "{cut}");
    // What only benches write is read only where other forms are not taken.
    assert!(matches!(Results::parse(bytes.as_bytes()), Err(ReadError::Foreign)));
}

#[test]
fn gateways_stand_beside_each_other_by_load() {
    let report = report(Experiment::Gateways, "gateways", parse(&comparison()).unwrap());
    let figures = page::figures(&report, &[]);
    let [figure] = &figures[..] else { panic!("{figures:?}") };
    assert_eq!(
        (figure.id.as_str(), figure.command.as_str()),
        ("F13", "compare.py --load all --json")
    );
    let tcp = bars(figure, 0);
    assert_eq!(tcp.groups, ["one stream", "8 streams"]);
    let own = "Convoy, native ESP, sockets, 1 worker";
    assert_eq!(values(tcp, own), [Some(3.0), Some(4.0)]);
    assert_eq!(values(tcp, "routing in the clear"), [Some(9.0), None]);
    assert_eq!(values(tcp, "strongSwan, kernel-libipsec, plugin aesni"), [Some(0.5), None]);
    assert_eq!((tcp.series[0].name.as_str(), tcp.series[0].role), (own, Role::Convoy));
    assert_eq!(bars(figure, 1).groups, ["packets of 64 bytes"]);
    assert_eq!(values(bars(figure, 1), own), [Some(40.0)]);
    assert_eq!(values(bars(figure, 2), "wireguard-go, ChaCha20-Poly1305")[0], Some(6.66667));
    let goals: Vec<_> = figure.goals.iter().map(|goal| (&*goal.asked, goal.is_reached)).collect();
    assert_eq!(goals, [("at least 1.5", true)]);
    assert_eq!(figure.left_out.len(), 2);
    assert!(
        figure.notes[0].contains("A processor, 2 processors, Linux 6.18"),
        "{:?}",
        figure.notes
    );
    let headlines = page::headlines(&report);
    assert!(headlines.iter().any(|line| line.figure == "F13" && line.value.middle == 2.0));
    assert!(html::render(&page::report(&report, &[])).contains("id=\"F13\""));
}

/// OpenSSL's own provider and Convoy's.
fn providers() -> [Name; 2] {
    [Name::new("openssl", "default provider"), Name::new("convoy", "provider")]
}

fn served(cipher: &str, buffer: u64) -> Fields {
    let place = Fields::default().with("cipher", cipher).with("tls", "1.2");
    place.with("encrypt_then_mac", false).with("certificate", "rsa").with("buffer_kib", buffer)
}

/// Sealing takes OpenSSL a nanosecond a byte with AES-GCM and three with AES-CBC, and Convoy half of that; a worker serves
/// with Convoy's provider 1.25 times as much.
fn web_server() -> Results {
    let mut results = Results::new("tls", &Head::now());
    let [own, convoy] = providers();
    for (cipher, byte) in [("aes-128-gcm", 1.0), ("aes-128-cbc-hmac-sha1", 3.0)] {
        for size in [64_u64, 16_384] {
            let place = Fields::default().with("cipher", cipher).with("call", "tls12-seal");
            let time = byte * size as f64;
            let draft = Draft::new("time per call", "ns", Better::Less, place.with("size", size))
                .fact("records", 1_u64)
                .series(&convoy, &[time / 2.0; 9])
                .series(&own, &[time; 9]);
            results.add(draft);
        }
    }
    let quantity = "bytes per second of the workers' processor time";
    for (cipher, buffer, bytes) in
        [("AES128-GCM-SHA256", 16, 1e9), ("AES128-SHA", 16, 0.4e9), ("AES128-SHA", 128, 0.8e9)]
    {
        let place = served(cipher, buffer).with("size", 64_u64 << 20);
        let draft = Draft::new(quantity, "B/s", Better::More, place)
            .series(&convoy, &[1.25 * bytes; 9])
            .series(&own, &[bytes; 9]);
        results.add(draft.ratio(&convoy, &own, Better::More));
    }
    for workers in [1_u64, 2] {
        for size in [1_u64 << 20, 64 << 20] {
            let place =
                || served("AES128-GCM-SHA256", 16).with("size", size).with("workers", workers);
            let bytes = 1e9 * workers as f64;
            let facts = || Fields::default().with("bottleneck", "clients");
            let draft = Draft::new("highest throughput", "B/s", Better::More, place());
            let draft = draft.series_with(&own, &[bytes], facts());
            results.add(draft.series_with(&convoy, &[1.25 * bytes], facts()));
            let quantity = "share of the workers' processors at the highest throughput";
            let draft = Draft::new(quantity, "%", Better::More, place());
            results.add(draft.series(&own, &[97.0]).series(&convoy, &[99.0]));
        }
    }
    results.facts.set("latency_bound_s", 2.0);
    results.left_out.push(LeftOut::new("4 workers", "there are 2 processors"));
    results
}

#[test]
fn a_web_servers_figures_follow_from_records_and_runs() {
    let results = web_server();
    let command = results.command.clone();
    // As `--with` names the step, and not the plan.
    let figures = page::figures(&report(Experiment::WebServer, "tls", results), &[]);
    let [f14, f15, f16] = &figures[..] else { panic!("{figures:?}") };
    assert!([f14, f15, f16].iter().all(|figure| figure.command == command && !command.is_empty()));
    let dots = |line: &Line| line.dots.iter().map(|dot| (dot.x, dot.y.middle)).collect::<Vec<_>>();
    let sealed = lines(f14, 0);
    assert_eq!(sealed[0].name, "Convoy's provider");
    assert_eq!(dots(&sealed[0]), [(64.0, 2.0), (16_384.0, 2.0)]);
    assert_eq!(dots(&sealed[1]), [(64.0, 1.0), (16_384.0, 1.0)]);
    let worker = bars(f14, 2);
    assert_eq!(worker.groups[0], "AES128-GCM-SHA256, buffer of 16 KiB, files of 64 MB");
    assert_eq!(values(worker, "OpenSSL's own"), [Some(1000.0), Some(400.0), Some(800.0)]);
    let ours: Vec<_> = f14.studied.iter().map(|one| one.ours.as_deref().unwrap()).collect();
    assert_eq!(ours[0], "3 and 3 (Convoy's provider); 3 and 3 (OpenSSL's own)");
    assert_eq!(ours[1], "2.5 (Convoy's provider); 2.5 (OpenSSL's own)");
    let goals: Vec<_> = f14.goals.iter().map(|goal| (&*goal.measured, goal.is_reached)).collect();
    assert_eq!(goals, [("1.25", true), ("1.25", true)]);
    assert_eq!(f14.left_out, [LeftOut::new("4 workers", "there are 2 processors")]);
    let names: Vec<&str> = lines(f15, 0).iter().map(|line| &*line.name).collect();
    let wanted =
        ["OpenSSL's own, 1 worker", "Convoy's provider, 1 worker", "OpenSSL's own, 2 workers"];
    assert_eq!(names[..3], wanted);
    assert_eq!(dots(&lines(f15, 0)[3]), [(1.0, 20.0), (64.0, 20.0)]);
    assert_eq!(f15.studied[0].ours.as_deref(), Some("10 Gb/s, with 2 of them"));
    assert!(f15.notes.iter().any(|note| note.contains("In 8 of the points")), "{:?}", f15.notes);
    assert_eq!(f16.studied[0].ours.as_deref(), Some("97 to 99 %"));
    assert_eq!(dots(&lines(f16, 0)[0]), [(1.0, 97.0), (64.0, 97.0)]);
}
