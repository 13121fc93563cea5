//! `convoy bench` from outside.

use crate::common::{convoy, text};

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
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let point = &report["points"][0];
    assert_eq!((&point["suite"], &point["keys"]), (&"aes-128-gcm-16".into(), &2.into()));
    assert!(point["convoy"]["packet"]["mean"].as_f64().unwrap() > 1.0);
    assert!(report["command"].as_str().unwrap().contains("--burst 16"));
    assert!(report["machine"]["tsc_mhz"].as_f64().is_some());
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
    for (peer, field, built_in) in [
        ("aws-lc", "aws_lc", cfg!(feature = "peer-aws-lc")),
        ("boringssl", "boringssl", cfg!(feature = "peer-boringssl")),
    ] {
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
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(report["lineups"][0][field].is_string(), "{peer}: {report}");
        let peers = report["points"][0]["peers"].as_array().unwrap();
        assert_eq!(peers.iter().map(|found| &found["who"]).collect::<Vec<_>>(), [peer]);
        assert!(peers[0]["ratio"]["median"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn esp_is_measured_end_to_end_and_told_in_json() {
    let words = "bench esp --suite aes-128-gcm-16 --sizes 64 --mix imix --sas 1,3 --json \
                 --seconds 0.05 --burst 16";
    let output = convoy(&words.split(' ').collect::<Vec<_>>());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("4 of 4"), "progress goes to standard error");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let points = |report: &serde_json::Value| report["points"].as_array().unwrap().clone();
    assert_eq!(points(&report).len(), 4);
    for point in points(&report) {
        assert!(point["outbound"]["pipeline"]["mean"].as_f64().unwrap() > 1.0, "{point}");
        assert_eq!(point["books"]["received"], point["books"]["sent"]);
    }
    assert!(report["figures"].as_array().unwrap().iter().any(|f| f["goal"] == 185.0));
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
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rate = &report["rates"][0];
    assert_eq!((&rate["workers"], &rate["sas"]), (&1.into(), &2.into()));
    assert!(rate["packets"]["median"].as_f64().unwrap() > 0.0);
    assert!(report["cores"]["together"].as_f64().unwrap() > 0.0);
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
