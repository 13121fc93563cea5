//! The way to TLS through Convoy, verb by verb, with OpenSSL's own program at its end.

use std::fs;
use std::process::Command;

use crate::common::{convoy, text};

#[test]
fn what_openssl_conf_prints_leads_openssl_to_convoy_and_its_counts_can_be_seen() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let test = std::env::current_exe().unwrap();
    let module = test.parent().unwrap().join("libconvoy_openssl.so");
    let module = module.to_str().unwrap();
    let (conf, stats) = (path("convoy.cnf"), path("stats"));

    let missing = convoy(&["openssl-conf", "--module", &path("none.so")]);
    assert_eq!(missing.status.code(), Some(2), "{}", text(&missing.stderr));
    let printed = convoy(&["openssl-conf", "--module", module, "--stats", &stats]);
    assert!(printed.status.success(), "{}", text(&printed.stderr));
    fs::write(&conf, &printed.stdout).unwrap();
    let checked = convoy(&["openssl-conf", "--check", &conf]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));

    let strict = path("strict.cnf");
    fs::write(&strict, text(&printed.stdout).replace("?provider", "provider")).unwrap();
    let checked = convoy(&["openssl-conf", "--check", &strict, "--json"]);
    assert_eq!(checked.status.code(), Some(2));
    let report: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
    let finding = &report["errors"][0];
    let line = text(&fs::read(&strict).unwrap());
    let line = line.lines().position(|line| line.starts_with("default_properties")).unwrap() + 1;
    assert_eq!(finding["line"], line, "{report}");

    let none = convoy(&["crypto", "--provider-stats", &stats]);
    assert_eq!(none.status.code(), Some(2), "nothing was counted yet");
    let mut openssl = Command::new("openssl");
    openssl.args(["speed", "-seconds", "1", "-bytes", "1024", "-evp", "aes-128-gcm"]);
    let Ok(output) = openssl.env("OPENSSL_CONF", &conf).output() else {
        println!("SKIPPED in part: openssl is not installed");
        return;
    };
    assert!(output.status.success(), "{}", text(&output.stderr));
    let counted = convoy(&["crypto", "--provider-stats", &stats, "--json"]);
    assert!(counted.status.success(), "{}", text(&counted.stderr));
    let counts: serde_json::Value = serde_json::from_slice(&counted.stdout).unwrap();
    assert!(counts["message-bytes-sealed"].as_u64().unwrap() > 1 << 20, "{counts}");
    assert!(counts["loaded"].as_u64().unwrap() >= 1, "{counts}");
    assert!(
        text(&convoy(&["crypto", "--provider-stats", &stats]).stdout).contains("records-sealed")
    );
}
