//! `convoy bench tls-records` from outside.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use convoy_bench::results::fields::Value;
use convoy_bench::results::{LeftOut, Point, Results};
use convoy_bench::stats::Median;
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
    let results = Results::parse(&output.stdout).unwrap();
    assert_eq!(results.bench, "tls-records");
    let openssl = &results.machine.peers[0];
    assert!(openssl.who == "openssl" && openssl.version.contains("3."), "{results:?}");
    let class = results.facts.get("class").and_then(Value::text).unwrap();
    assert!(["A", "B-Intel", "B-AMD", "C", "D"].contains(&class));
    let is_of = |point: &Point, cipher: &str| point.place.get("cipher") == Some(&cipher.into());
    let calls = |cipher: &str| results.points.iter().filter(|point| is_of(point, cipher)).count();
    // Six calls at three sizes, parts at two, key and context.
    assert_eq!((calls("aes-128-gcm"), calls("aes-256-gcm")), (22, 22));
    for point in &results.points {
        let [convoy, default] = &point.series[..] else { panic!("{point:?}") };
        assert_eq!((&*convoy.name.who, &*default.name.who), ("convoy", "openssl"));
        assert!(convoy.rounds.len() == 2 && default.median.median > 0.0, "{point:?}");
        let Median { low, median, high } = point.ratios[0].median;
        assert!(low <= median && median <= high && low > 0.0, "{point:?}");
    }
    // What is not measured is named.
    assert!(results.left_out.iter().all(|left_out| left_out.why.starts_with("not offered by ")));
    for cipher in ["chacha20-poly1305", "aes-128-cbc-hmac-sha1", "aes-256-cbc-hmac-sha256"] {
        let is_named = results.left_out.iter().any(|left_out| left_out.what.starts_with(cipher));
        assert!(calls(cipher) > 0 || is_named, "{cipher}: {results:?}");
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
        Some(Results::parse(&output.stdout).unwrap())
    };
    let Some(results) = run("") else { return };
    let composite = "aes-128-cbc-hmac-sha1";
    let missing = |results: &Results| {
        let mut left_out = results.left_out.iter();
        left_out.find(|left_out| left_out.what == composite).cloned()
    };
    let LeftOut { why, .. } = missing(&results).unwrap();
    if why.contains("the default provider") {
        return println!("SKIPPED: the default provider has no composites on this processor");
    }
    assert!(why.contains("OpenSSL's own is as fast or faster without the "), "{why}");
    let results = run("all").unwrap();
    assert_eq!(missing(&results), None, "{results:?}");
    for point in &results.points {
        let is_composite = point.place.get("cipher") == Some(&composite.into());
        let is_offered = !is_composite && convoy_crypto::Cpu::detect().unwrap().has(Tier::AesNi);
        assert_eq!(point.facts.get("offered"), Some(&is_offered.into()), "{point:?}");
    }
    assert_eq!(results.points.len(), 2);
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
