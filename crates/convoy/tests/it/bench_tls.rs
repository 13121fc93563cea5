//! `convoy bench tls`: nginx with both providers, and what is told before anything starts.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::{convoy, text};

fn bench(words: &[&str]) -> Output {
    convoy(&[&["bench", "tls"], words].concat())
}

/// The provider, as cargo built it beside this test.
fn module() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().join("libconvoy_openssl.so")
}

#[test]
fn nginx_is_measured_with_both_providers() {
    for program in ["nginx", "openssl"] {
        if Command::new(program).arg("-v").output().is_err() {
            println!("SKIPPED: {program} is not installed");
            return;
        }
    }
    let module = module();
    // On a busy machine a first byte may take longer than two seconds.
    let words = "--quick --json --rounds 1 --seconds 0.3 --sizes 1M --ciphers AES128-GCM-SHA256 \
                 --verify 4 --latency-bound 60 --provider";
    let mut words: Vec<_> = words.split(' ').collect();
    words.push(module.to_str().unwrap());
    let output = bench(&words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema"], 1);
    let duels = report["duels"].as_array().unwrap();
    let names: Vec<_> =
        duels.iter().map(|duel| duel["way"]["cipher"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["AES128-SHA", "AES128-GCM-SHA256", "AES128-SHA"]);
    for duel in duels {
        assert!(duel["ratio"]["median"].as_f64().unwrap() > 0.0, "{duel}");
    }
    // Each megabyte is at least 64 records, and Convoy sealed all of its server's.
    assert!(duels[1]["calls"].as_u64().unwrap() > 64, "{}", duels[1]);
    let peaks = report["peaks"].as_array().unwrap();
    assert_eq!(peaks.len(), 2);
    for peak in peaks {
        let best = &peak["best"];
        assert_eq!(best["way"]["cipher"]["name"], "AES128-GCM-SHA256", "{peak}");
        assert!(best["throughput"].as_f64().unwrap() > 0.0, "{peak}");
        assert!(best["server_percent"].as_f64().unwrap() > 0.0, "{peak}");
        assert!(best["verified"].as_u64() <= best["files"].as_u64());
    }
    assert!(report["handshakes"].as_array().unwrap().len() == 2);
    assert!(report["records"].as_array().unwrap().len() >= 6);
}

#[test]
fn what_is_missing_or_wrong_is_told_before_anything_starts() {
    let module = module();
    let module = module.to_str().unwrap();
    for (words, expected) in [
        (&["--provider", module, "--nginx", "/nowhere/nginx"][..], "--nginx"),
        (&["--provider", "/nowhere.so"], "/nowhere.so"),
        (&["--provider", module, "--libraries", "/nowhere"], "OpenSSL is not here"),
        (&["--provider", module, "--workers", "4000"], "--workers: 1 to"),
        (&["--provider", module, "--workers", "1,0"], "--workers: 1 to"),
        (&["--provider", module, "--listen", "192.0.2.1:1"], "cannot listen on 192.0.2.1:1"),
        (&["--sizes", "65G"], "64G"),
        (&["--verify", "none"], "all"),
        (&["--join", "127.0.0.1:1"], "--token"),
    ] {
        let output = bench(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", text(&output.stderr));
        if expected != "--nginx" && text(&output.stderr).contains("nginx-light") {
            println!("SKIPPED: {words:?}: nginx is not installed");
            continue;
        }
        assert!(text(&output.stderr).contains(expected), "{words:?}: {}", text(&output.stderr));
    }
}

#[test]
fn too_few_files_are_told_before_anything_starts() {
    let script = "ulimit -n 200 && exec \"$0\" bench tls --quick --provider \"$1\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_convoy")]).arg(module());
    let output = command.output().unwrap();
    let error = text(&output.stderr);
    if error.contains("nginx-light") {
        println!("SKIPPED: nginx is not installed");
        return;
    }
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        error.contains("200 files may be open") && error.contains("ulimit -n 20000"),
        "{error}"
    );
}

#[test]
fn an_interruption_leaves_what_was_measured() {
    if Command::new("nginx").arg("-v").output().is_err() {
        println!("SKIPPED: nginx is not installed");
        return;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_convoy"));
    command.args(["bench", "tls", "--quick", "--json", "--rounds", "1", "--provider"]);
    command.arg(module()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A terminal's Ctrl-C goes to every process of the group.
    let mut bench = command.process_group(0).spawn().unwrap();
    let lines = BufReader::new(bench.stderr.take().unwrap()).lines();
    let mut told = Vec::new();
    // The first comparison is over when the second begins.
    for line in lines.map_while(Result::ok) {
        let is_second = line.contains("AES128-GCM-SHA256, 16k, 64 MB, round 1");
        told.push(line);
        if is_second {
            killpg(Pid::from_raw(bench.id() as i32), Signal::SIGINT).unwrap();
        }
    }
    let output = bench.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{told:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["is_cut"], true, "{told:?}");
    let duels = report["duels"].as_array().unwrap();
    assert!((1..=2).contains(&duels.len()), "{duels:?}");
    assert_eq!(report["peaks"].as_array().unwrap().len(), 0);
}
