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
        (&["--peer", "boringssl"], "ipsec-mb, openssl"),
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
