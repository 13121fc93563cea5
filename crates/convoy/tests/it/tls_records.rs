//! `convoy bench tls-records` from outside.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use convoy_crypto::Tier;

use crate::common::{convoy, text};

/// The provider, as cargo has put it beside the tests.
fn provider() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().join("libconvoy_openssl.so")
}

#[test]
fn records_of_both_providers_agree_and_are_told_in_json() {
    let provider = provider();
    let words = "bench tls-records --quick --rounds 2 --json --sizes 1,100,16384 --provider";
    let mut words: Vec<_> = words.split(' ').collect();
    words.push(provider.to_str().unwrap());
    let output = convoy(&words);
    let error = text(&output.stderr);
    if error.contains("OpenSSL is not here") {
        return println!("SKIPPED: {error}");
    }
    assert!(output.status.success(), "{error}\n{}", text(&output.stdout));
    assert!(error.contains("bench: 1 of "), "progress goes to standard error");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema"], 1);
    assert!(report["openssl"].as_str().unwrap().contains("3."), "{report}");
    assert!(["A", "B-Intel", "B-AMD", "C", "D"].contains(&report["class"].as_str().unwrap()));
    assert!(report["failed"].as_array().unwrap().is_empty());
    let points = report["points"].as_array().unwrap();
    let calls = |cipher: &str| points.iter().filter(|point| point["cipher"] == cipher).count();
    // Six calls at three sizes, parts at two, key and context.
    assert_eq!((calls("aes-128-gcm"), calls("aes-256-gcm")), (22, 22));
    for point in points {
        let number = |value: &serde_json::Value| value.as_f64().unwrap();
        assert!(number(&point["default_ns"]) > 0.0 && number(&point["convoy_ns"]) > 0.0, "{point}");
        let ratio = &point["ratio"];
        let [low, median, high] = ["low", "median", "high"].map(|name| number(&ratio[name]));
        assert!(low <= median && median <= high && low > 0.0, "{point}");
        assert_eq!(point["rounds"], 2);
    }
    // What is not measured is named.
    let named = |list: &serde_json::Value, cipher: &str| {
        list.as_array().unwrap().iter().any(|entry| entry["cipher"] == cipher)
    };
    for cipher in ["chacha20-poly1305", "aes-128-cbc-hmac-sha1", "aes-256-cbc-hmac-sha256"] {
        let is_told = named(&report["points"], cipher) || named(&report["not_offered"], cipher);
        assert!(is_told, "{cipher}: {report}");
    }
}

/// Without the SHA extensions OpenSSL's own composites are faster.
#[test]
fn what_is_not_offered_here_is_measured_if_that_is_asked_for() {
    let provider = provider();
    let run = |offer: &str| {
        let words = "bench tls-records --quick --rounds 2 --json --sizes 64 --calls tls12-seal";
        let mut command = Command::new(env!("CARGO_BIN_EXE_convoy"));
        command.args(words.split(' ')).args(["--ciphers", "aes-128-gcm,aes-128-cbc-hmac-sha1"]);
        command.arg("--provider").arg(&provider);
        command.env("CONVOY_DENY_CPU", "sha-ni").env("CONVOY_PROVIDER_OFFER", offer);
        let output = command.output().unwrap();
        let error = text(&output.stderr);
        if error.contains("OpenSSL is not here") {
            println!("SKIPPED: {error}");
            return None;
        }
        assert!(output.status.success(), "{error}");
        Some(serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap())
    };
    let Some(report) = run("") else { return };
    let missing = |report: &serde_json::Value| {
        let missing = report["not_offered"].as_array().unwrap();
        missing.iter().find(|it| it["cipher"] == "aes-128-cbc-hmac-sha1").cloned()
    };
    let told = missing(&report).unwrap();
    if told["by"] == "the default provider" {
        return println!("SKIPPED: the default provider has no composites on this processor");
    }
    let why = told["why"].as_str().unwrap();
    assert!(why.contains("OpenSSL's own is as fast or faster without the "), "{report}");
    let report = run("all").unwrap();
    assert_eq!(missing(&report), None, "{report}");
    for point in report["points"].as_array().unwrap() {
        let is_composite = point["cipher"] == "aes-128-cbc-hmac-sha1";
        let is_offered = !is_composite && convoy_crypto::Cpu::detect().unwrap().has(Tier::AesNi);
        assert_eq!(point["offered"], is_offered, "{point}");
    }
    assert_eq!(report["points"].as_array().unwrap().len(), 2);
}

#[test]
fn what_cannot_be_measured_is_refused_with_what_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let provider = provider();
    let right = provider.to_str().unwrap().to_owned();
    // The same library, but said to be for AArch64.
    let mut bytes = fs::read(&provider).unwrap();
    bytes[18..20].copy_from_slice(&[183, 0]);
    fs::write(path("other.so"), bytes).unwrap();
    fs::write(path("text.so"), "no library").unwrap();
    let mut cases = vec![
        ("--provider", path("none.so"), "No such file"),
        ("--provider", path("other.so"), "is for AArch64, this machine is"),
        ("--provider", path("text.so"), "not an ELF file"),
        ("--provider", "/proc/self/exe".to_owned(), "provider"),
        ("--libcrypto", path("none.so"), "name libcrypto with --libcrypto FILE"),
        ("--libcrypto", right.clone(), "is not libcrypto of OpenSSL 3"),
    ];
    if let Some(old) = old_libcrypto(&path("old.c"), &path("old.so")) {
        cases.push(("--libcrypto", old, "is OpenSSL 1.1.1w; it must be OpenSSL 3.0 or newer"));
    }
    for (option, value, said) in cases {
        let mut words = vec!["bench", "tls-records", option, &value];
        if option == "--libcrypto" {
            words.extend(["--provider", &right]);
        }
        let output = convoy(&words);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {error}");
        assert!(error.contains(said), "{words:?}: {error}");
    }
}

/// A library that says of itself what OpenSSL 1.1.1 says.
fn old_libcrypto(source: &str, library: &str) -> Option<String> {
    let code = "const char *OpenSSL_version(int what) { return what ? \"\" : \"OpenSSL 1.1.1w\"; }\n\
                unsigned long OpenSSL_version_num(void) { return 0x1010117fL; }\n";
    fs::write(source, code).unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o", library, source]).status();
    if !built.is_ok_and(|status| status.success()) {
        println!("SKIPPED in part: no C compiler makes an old libcrypto");
        return None;
    }
    Some(library.to_owned())
}
