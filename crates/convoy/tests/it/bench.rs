//! `convoy bench` from outside.

use convoy_bench::results::build::Draft;
use convoy_bench::results::fields::Value;
use convoy_bench::results::{Bound, Results, Series};

use crate::common::{convoy, text};

/// Output of a bench, which must be of the form that all have.
fn results(json: &[u8], bench: &str) -> Results {
    let results = Results::parse(json).unwrap_or_else(|error| panic!("{error}: {}", text(json)));
    assert_eq!(results.bench, bench);
    assert!(!results.points.is_empty() && results.complete, "{results:?}");
    assert_eq!(results.started.len(), "2026-01-01T00:00:00Z".len());
    results
}

#[test]
fn list_names_every_suite_and_only_suites() {
    let output = convoy(&["bench", "crypto", "--suite", "list"]);
    assert!(output.status.success());
    let names = text(&output.stdout);
    assert!(names.lines().count() > 50, "{names}");
    for name in names.lines() {
        assert!(name.parse::<convoy_crypto::Suite>().is_ok(), "{name}");
    }
}

#[test]
fn a_point_is_measured_and_told_in_json() {
    let arguments = [
        "bench",
        "crypto",
        "--suite",
        "aes-128-gcm-16",
        "--sizes",
        "64",
        "--mix",
        "none",
        "--keys",
        "2",
        "--burst",
        "16",
        "--time",
        "0.001",
        "--direction",
        "seal",
        "--json",
    ];
    let output = convoy(&arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("1 of 1"), "progress goes to standard error");
    let results = results(&output.stdout, "crypto");
    let point = &results.points[0];
    let at = |name: &str| point.place.get(name).unwrap().to_string();
    assert_eq!((at("suite"), at("keys")), ("aes-128-gcm-16".to_owned(), "2".to_owned()));
    let convoy = &point.series[0];
    assert!(convoy.name.is_convoy() && convoy.summary.mean > 1.0, "{point:?}");
    // Everybody is given every burst.
    assert!(point.series.iter().all(|series| series.rounds.len() == convoy.rounds.len()));
    for series in point.series.iter().filter(|series| series.name.who == "ipsec-mb") {
        let library = series.facts.get("library").and_then(Value::text);
        assert!(library.is_some_and(|name| name.starts_with("intel-ipsec-mb ")), "{series:?}");
    }
    assert!(results.command.contains("--burst 16") && results.machine.load_after.is_some());
    // Whoever takes part has a version, and whoever does not a reason.
    for peer in ["ipsec-mb", "openssl", "aws-lc", "boringssl"] {
        let takes_part = results.machine.peers.iter().any(|found| found.who == peer);
        let is_left_out = results.left_out.iter().any(|left_out| left_out.what == peer);
        assert!(takes_part != is_left_out, "{peer}: {results:?}");
    }
}

#[test]
fn messages_in_parts_are_told_in_the_same_form() {
    let words = "bench crypto --stream --time 0.001 --direction seal --json";
    let output = convoy(&words.split(' ').collect::<Vec<_>>());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let results = results(&output.stdout, "crypto --stream");
    assert_eq!(results.points.len(), 8);
    assert!(results.points.iter().all(|point| point.ratios.len() == 2), "{results:?}");
}

#[test]
fn engines_are_told_in_the_same_form() {
    let words = "bench engine --engine inline,two-pass --suite aes-128-gcm-16,aes-128-ccm-16 --sizes 64 \
                 --seconds 0.05 --json";
    let output = convoy(&words.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let results = results(&output.stdout, "engine");
    let quantities =
        |quantity: &str| results.points.iter().filter(|point| point.quantity == quantity).count();
    assert_eq!(quantities("cycles of the submitting core per packet"), 3);
    assert_eq!((quantities("packets per second"), quantities("latency")), (3, 27));
    assert!(results.left_out.iter().any(|left_out| left_out.why.contains("aes-128-ccm-16")));
}

#[test]
fn forwarding_is_told_in_the_same_form() {
    let words = "bench forward --engine inline,pool,model --suite aes-128-gcm-16 --sizes 256 --quick --packets 10000 \
                 --disturbed 100 --json";
    let output = convoy(&words.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>());
    let error = text(&output.stderr);
    assert!(output.status.success(), "{error}");
    let results = Results::parse(&output.stdout).unwrap();
    assert!(results.bench == "forward" && results.complete && results.errors.is_empty());
    let processors = convoy_bench::cores::Cores::allowed().unwrap().len();
    let is_left_out =
        |what: &str| results.left_out.iter().any(|left_out| left_out.what.starts_with(what));
    let of = |quantity: &str, engine: &str| {
        let is_of = |point: &&convoy_bench::results::Point| {
            let place = point.place.get("engine").and_then(Value::text);
            point.quantity == quantity && place == Some(engine)
        };
        results.points.iter().filter(is_of).count()
    };
    for (engine, needs) in [("inline", 2), ("pool", 3), ("model", 2)] {
        let rates = of("packets per second at 0.01 % loss", engine);
        // On a busy machine a rate may not be there, but then it is told why.
        assert_eq!(
            rates == 0,
            is_left_out(&format!("{engine},")) || processors < needs,
            "{engine}"
        );
        assert!(processors >= needs || is_left_out(engine), "{results:?}");
        let latencies = of("latency", engine);
        assert!(latencies == 15 * rates || is_left_out(&format!("{engine}, ")), "{engine}");
    }
    // A search and latencies of each.
    let steps = 2 * [0, 0, 2, 3][processors.min(3)];
    assert!(steps == 0 || error.contains(&format!("{steps} of {steps}")), "{error}");
}

#[test]
fn what_cannot_be_forwarded_ends_with_2_and_says_what_is_right() {
    for (words, said) in [
        ("--engine null", "use inline, pool, model, cryptodev"),
        ("--engine cryptodev:crypto_nowhere", "--engine cryptodev:crypto_nowhere"),
        ("--suite aes-128-cbc", "--suite list"),
        ("--sizes 39", "use 40 to 8900"),
        ("--searches 0", "use 1 to 1000"),
        ("--disturbed 101", "use 0 to 100"),
        ("--packets 9999", "use 10000 to"),
        ("--processors 100000", "this process may use"),
        ("--tier mmx", "valid names are"),
    ] {
        let all = ["bench", "forward"].into_iter().chain(words.split(' '));
        let output = convoy(&all.collect::<Vec<_>>());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}: {error}");
        assert!(error.contains(said), "{words}: {error}");
    }
}

#[test]
fn wrong_arguments_end_with_2_and_say_what_is_right() {
    for (arguments, said) in [
        (&["--suite", "aes-128-cbc"][..], "--suite list"),
        (&["--peer", "ipsec-mb", "--ipsec-mb", "/nowhere/lib.so"], "apt install"),
        (&["--peer", "gnutls"], "ipsec-mb, openssl, aws-lc, boringssl, none"),
        (&["--peer-arch", "mmx"], "avx512-t1"),
    ] {
        let all = ["bench", "crypto"].iter().chain(arguments).copied();
        let output = convoy(&all.collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let error = text(&output.stderr);
        assert!(error.contains(said), "{arguments:?}: {error}");
    }
}

#[test]
fn a_peer_takes_part_where_it_was_built_in_and_else_says_how_to_build_it() {
    for (peer, built_in) in
        [("aws-lc", cfg!(feature = "peer-aws-lc")), ("boringssl", cfg!(feature = "peer-boringssl"))]
    {
        let words = format!(
            "bench crypto --peer {peer} --suite chacha20-poly1305 --sizes 64 --mix none --keys 1 --burst 4 \
             --time 0.001 --direction seal --json"
        );
        let output = convoy(&words.split(' ').collect::<Vec<_>>());
        let error = text(&output.stderr);
        if !built_in {
            let build = format!("cargo build --release -p convoy --features peer-{peer}\n");
            assert_eq!(output.status.code(), Some(2), "{peer}: {error}");
            assert!(error.lines().count() == 1 && error.ends_with(&build), "{peer}: {error}");
            continue;
        }
        assert!(output.status.success(), "{peer}: {error}");
        let results = results(&output.stdout, "crypto");
        let peers: Vec<_> = results.machine.peers.iter().map(|found| &found.who).collect();
        assert_eq!(peers, [peer]);
        let mut ratios = results.points[0].ratios.iter();
        assert!(ratios.any(|ratio| ratio.of.who == peer && ratio.median.median > 0.0));
    }
}

#[test]
fn esp_is_measured_end_to_end_and_told_in_json() {
    let words = "bench esp --suite aes-128-gcm-16 --sizes 64 --mix imix --sas 1,3 --json \
                 --seconds 0.05 --burst 16";
    let output = convoy(&words.split(' ').collect::<Vec<_>>());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("4 of 4"), "progress goes to standard error");
    let results = results(&output.stdout, "esp");
    // Out, in and look-ups.
    assert_eq!(results.points.len(), 3 * 4);
    for point in &results.points {
        assert!(point.series[0].summary.mean > 1.0, "{point:?}");
        assert_eq!(point.facts.get("packets_received"), point.facts.get("packets_sent"));
        let is_way = point.quantity == "cycles per packet";
        assert_eq!(point.differences.len(), usize::from(is_way), "{point:?}");
        assert!(!is_way || point.series.iter().any(|series| series.name.by == "stage engine"));
    }
    let mut goals = results.points.iter().flat_map(|point| &point.goals);
    assert!(goals.any(|goal| goal.bound == Bound::AtMost(185.0)));
}

#[test]
fn a_soak_with_faults_accounts_for_every_packet() {
    let arguments = [
        "bench",
        "esp",
        "--suite",
        "aes-128-gcm-16",
        "--sas",
        "2",
        "--packets",
        "30000",
        "--faults",
        "--sizes",
        "64",
        "--mix",
        "none",
    ];
    let output = convoy(&arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("of 30000 packets"), "progress");
    let told = text(&output.stdout);
    assert!(told.contains("replayed") && told.contains("PACKETS/S"), "{told}");
    let output = convoy(&[&arguments[..], &["--json"]].concat());
    let results = results(&output.stdout, "esp");
    let count = |name| results.points[0].facts.get(name).and_then(Value::number).unwrap();
    assert!(count("packets_sent") >= 30_000.0 && count("dropped_replayed") > 0.0);
}

#[test]
fn workers_pass_packets_by_the_gateways_own_threads() {
    let arguments = [
        "bench",
        "esp",
        "--suite",
        "aes-128-gcm-16",
        "--workers",
        "1",
        "--sas",
        "2",
        "--sizes",
        "64",
        "--mix",
        "none",
        "--seconds",
        "0.1",
        "--json",
    ];
    let output = convoy(&arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let results = results(&output.stdout, "esp");
    let point = &results.points[0];
    let at = |name: &str| point.place.get(name).and_then(Value::number);
    assert_eq!((at("workers"), at("sas")), (Some(1.0), Some(2.0)));
    assert!(point.series[0].summary.median > 0.0 && point.series[0].rounds.len() == 7);
    assert!(results.facts.get("computing_at_once").and_then(Value::number).unwrap() > 0.0);
}

#[test]
fn dpdks_devices_take_turns_with_convoy_or_are_named() {
    let words = "bench dpdk --suite aes-128-gcm-16 --sizes 64 --rounds 2 --json";
    let output = convoy(&words.split(' ').collect::<Vec<_>>());
    let error = text(&output.stderr);
    if convoy_bench::cores::Cores::allowed().unwrap().len() < 2 {
        assert!(error.contains("needs a second processor"), "{error}");
        return println!("SKIPPED: there is one processor");
    }
    // DPDK's program, or a library that its devices take; `without_dpdks_program_…` holds the words.
    if ["is not here", "dpdk-test-crypto-perf cannot be started"]
        .iter()
        .any(|why| error.contains(why))
    {
        let why = error.lines().find(|line| line.starts_with("convoy: "));
        return println!("SKIPPED: {}", why.unwrap_or(&error));
    }
    assert_eq!(output.status.code(), Some(0), "{error}");
    let results = results(&output.stdout, "dpdk");
    let point = &results.points[0];
    assert_eq!((results.points.len(), point.ratios.len()), (1, 2), "{results:?}");
    assert!(point.series.iter().all(|series| series.rounds.len() == 2), "{point:?}");
    assert!(results.machine.peers[0].version.starts_with("DPDK "), "{:?}", results.machine);
}

#[test]
fn without_dpdks_program_it_is_told_how_to_get_it() {
    if convoy_bench::cores::Cores::allowed().unwrap().len() < 2 {
        return println!("SKIPPED: there is one processor");
    }
    let output = convoy(&["bench", "dpdk", "--program", "/nowhere/perf", "--quick", "--json"]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    let is_told = error.contains("/nowhere/perf cannot be started (No such file or directory");
    assert!(is_told && error.contains("apt install dpdk"), "{error}");
    let gateway = convoy(&["bench", "dpdk", "--secgw", "/nowhere/secgw", "--quick"]);
    let said = text(&gateway.stderr);
    assert!(gateway.status.code() == Some(2) && said.contains("interop/secgw/build.sh"), "{said}");
    // A report says what is missing in the same words.
    let results = Results::parse(&output.stdout).unwrap();
    assert!(results.points.is_empty() && results.left_out[0].why.contains("apt install dpdk"));
}

/// The kernel must not be asked for memory, nor a run begun, before such a number is refused.
#[test]
fn counts_that_nothing_holds_are_refused_with_what_fits() {
    let most = u64::MAX.to_string();
    for (arguments, said) in [
        (&["crypto", "--keys", "100000000000"][..], "--keys 100000000000: use 1 to "),
        (&["crypto", "--keys", &most], "use 1 to "),
        (&["crypto", "--keys", "0"], "--keys 0: use 1 to "),
        (&["crypto", "--burst", &most], "1 to 256 packets"),
        (&["crypto", "--sizes", &most], "from 1 to 65535"),
        (&["crypto", "--time", "1e300"], "at most 3600"),
        (&["esp", "--sas", &most], "524288"),
        (&["esp", "--policies", &most], "524288"),
        (&["esp", "--flows", &most], "900000 at most"),
        (&["esp", "--burst", &most], "1 to "),
        (&["esp", "--workers", "65535"], "a processor for each"),
        (&["esp", "--seconds", "1e300"], "at most 3600"),
        (&["engine", "--sizes", &most], "8900"),
        (&["engine", "--seconds", "1e300"], "0.01 to 3600"),
        (&["tls", "--rounds", "100000000000"], "use 1 to 10000"),
        (&["tls", "--rounds", "0"], "use 1 to 10000"),
        (&["tls", "--seconds=-1"], "use 0.1 to 86400"),
        (&["tls", "--seconds", "1e300"], "use 0.1 to 86400"),
        (&["tls", "--seconds", "nan"], "use 0.1 to 86400"),
        (&["tls", "--latency-bound", "inf"], "use 0.001 to 3600"),
        (&["tls", "--load-hosts", &most], "use 0 to 1000"),
        (&["tls", "--sizes", "100000000000G"], "to 64G"),
        (&["tls-records", "--rounds", "100000000000"], "1..=10000"),
        (&["tls-records", "--sizes", "100000000000"], "1..=16384"),
    ] {
        let all: Vec<_> = ["bench"].iter().chain(arguments).copied().collect();
        let output = convoy(&all);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(said), "{arguments:?}: {error}");
    }
}

#[test]
fn two_builds_are_run_in_turn_and_compared() {
    let own = env!("CARGO_BIN_EXE_convoy");
    let bench = ["--", "crypto", "--suite", "aes-128-gcm-16", "--sizes", "64", "--mix", "none"];
    let quick = ["--keys", "1", "--time", "0.001", "--direction", "seal", "--peer", "openssl"];
    let head = ["bench", "compare", "--against", own, "--runs", "2", "--all"];
    let output = convoy(&[&head[..], &bench, &quick].concat());
    let (told, error) = (text(&output.stdout), text(&output.stderr));
    // Two runs a side rule nothing out.
    assert_eq!(output.status.code(), Some(0), "{told}{error}");
    assert!(told.contains("compared: 0 worse and 0 better"), "{told}{error}");
    assert_eq!(error.matches("compare: run").count(), 4, "{error}");
}

#[test]
fn two_results_are_compared_by_their_ratios() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let stored = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/tests/data/results-1.json");
    let compare = |words: &[&str]| {
        let output = convoy(&[&["bench", "compare"], words].concat());
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, told, _) = compare(&[stored, stored, "--all"]);
    assert!(code == Some(0) && told.contains("0 worse and 0 better by more than 3 %"), "{told}");
    assert!(told.contains("ratio of openssl (evp) to convoy"), "{told}");
    // Convoy at half its speed, its peers as they were.
    let base = Results::read(stored.as_ref()).unwrap();
    let mut slow = Results { points: Vec::new(), ..base.clone() };
    for point in &base.points {
        let mut draft = Draft::new(&point.quantity, &point.unit, point.better, point.place.clone());
        for Series { name, rounds, .. } in &point.series {
            let factor = if name.is_convoy() { 2.0 } else { 1.0 };
            let rounds: Vec<_> = rounds.iter().map(|round| factor * round).collect();
            draft = draft.series(name, &rounds);
        }
        for pair in &point.ratios {
            draft = draft.ratio(&pair.of, &pair.to, pair.better);
        }
        slow.add(draft);
    }
    std::fs::write(path("slow.json"), slow.to_json().unwrap()).unwrap();
    let (code, told, _) = compare(&[stored, &path("slow.json")]);
    assert!(code == Some(1) && told.contains("worse") && told.contains("-50.0 %"), "{told}");
    let (code, told, _) = compare(&[&path("slow.json"), stored]);
    assert!(code == Some(0) && told.contains("better"), "{told}");
    std::fs::write(path("cut.json"), &slow.to_json().unwrap()[..1000]).unwrap();
    for (words, said) in [
        (&[stored, &*path("cut.json")][..], "cut.json: the file is cut off"),
        (&[stored, &path("none.json")], "none.json: No such file"),
        (&[stored, stored, "--tolerance", "nan"], "use 0 to 100"),
        (&[stored], "AFTER.json"),
        (&["--against", "/nowhere", "--", "esp"], "cannot run /nowhere"),
        (&["--against", "/nowhere", "--runs", "1", "--", "esp"], "use 2 to 1000"),
        (&["--against", "/nowhere"], "BENCH"),
        (&[stored, stored, "--", "esp"], "--against"),
    ] {
        let (code, _, error) = compare(words);
        assert!(code == Some(2) && error.contains(said), "{words:?}: {error}");
    }
}

#[test]
fn a_report_is_measured_and_drawn_again_to_the_same_page() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let output = convoy(&["bench", "report", "--quick", "--only", "F1,F3", "--out", &path("one")]);
    let (told, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{told}{error}");
    assert!(error.contains("report: 1 of 2: one tunnel: engines in turn; about"), "{error}");
    assert!(told.contains("F1, F3: ") && told.contains("two passes"), "{told}");
    let results = Results::read(path("one/report.json").as_ref()).unwrap();
    assert!(results.complete && results.bench == "report", "{:?}", results.errors);
    let page = std::fs::read_to_string(path("one/report.html")).unwrap();
    assert!(page.contains("id=\"F1\"") && !page.contains("id=\"F2\""));
    assert!(
        page.contains("OPENSSL_ia32cap=0 convoy bench crypto")
            || told.contains("left out: openssl")
    );
    let json = path("one/report.json");
    let draw = ["bench", "report", "--from", &json, "--only", "F1,F3", "--out", &path("two")];
    let output = convoy(&draw);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for name in ["report.html", "report.json"] {
        let [one, two] =
            ["one", "two"].map(|folder| std::fs::read(path(&format!("{folder}/{name}"))));
        assert!(one.unwrap() == two.unwrap(), "{name}");
    }
}

#[test]
fn reports_that_cannot_be_are_refused_before_anything_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let out = path("out");
    let stored = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/tests/data/results-1.json");
    std::fs::write(path("cut.json"), &std::fs::read(stored).unwrap()[..500]).unwrap();
    std::fs::write(path("file"), "").unwrap();
    for (words, said) in [
        (
            &["--only", "F17", "--out", &*out][..],
            "no figure is called \"F17\"; there are F1 to F16",
        ),
        (&["--quick", "--full"], "cannot be used with"),
        (&["--from", stored, "--out", &out], "results of convoy bench crypto, not of a report"),
        (&["--from", &path("cut.json"), "--out", &out], "cut.json: the file is cut off"),
        (&["--from", &path("none.json"), "--out", &out], "none.json: No such file"),
        (&["--ipsec-mb", "a,b,c", "--out", &out], "--ipsec-mb: two at most"),
        (&["--with", stored, "--out", &out], "results of convoy bench crypto; use those of"),
        (&["--out", &path("file/below")], "cannot write there"),
    ] {
        let output = convoy(&[&["bench", "report"], words].concat());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {error}");
        assert!(error.contains(said), "{words:?}: {error}");
    }
}
