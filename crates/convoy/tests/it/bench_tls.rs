//! `convoy bench tls`: nginx with both providers, and what is told before anything starts.

use std::io::{BufRead as _, BufReader};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use convoy_bench::peer::libssl::{LibSsl, Version};
use convoy_bench::results::fields::{Fields, Value};
use convoy_bench::results::{Point, Results};
use convoy_bench::tls::hub::Hub;
use convoy_bench::tls::job::{Cipher, Generator, Job};
use convoy_bench::tls::member;
use convoy_bench::tls::run::{Served, run};
use convoy_bench::tls::server::{Certificate, Nginx, Setup, Site, TlsConfig};
use convoy_lab::{End, Namespace, cable};

use crate::common::{PATIENCE, can_make_namespaces, convoy, text};

fn bench(words: &[&str]) -> Output {
    convoy(&[&["bench", "tls"], words].concat())
}

/// Measure of providers side by side, and that of the most that they reach.
const DUEL: &str = "bytes per second of the workers' processor time";
const PEAK: &str = "highest throughput";

fn results(output: &Output) -> Results {
    let results = Results::parse(&output.stdout);
    let results = results.unwrap_or_else(|error| panic!("{error}: {}", text(&output.stdout)));
    assert_eq!(results.bench, "tls");
    results
}

fn points<'a>(results: &'a Results, quantity: &str) -> Vec<&'a Point> {
    results.points.iter().filter(|point| point.quantity == quantity).collect()
}

fn number(fields: &Fields, name: &str) -> f64 {
    fields.get(name).and_then(Value::number).unwrap_or_else(|| panic!("{name}: {fields}"))
}

/// The provider, as cargo built it beside this test.
fn module() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().join("libconvoy_openssl.so")
}

/// Says which is missing.
fn are_installed(programs: &[&str]) -> bool {
    let is_missing = |program: &&&str| Command::new(program).arg("-V").output().is_err();
    let missing = programs.iter().find(is_missing);
    missing.map(|program| println!("SKIPPED: {program} is not installed")).is_none()
}

#[test]
fn nginx_is_measured_with_both_providers() {
    if !are_installed(&["nginx", "openssl"]) {
        return;
    }
    let module = module();
    // On a busy machine a first byte may take longer than two seconds.
    let words = "--quick --json --rounds 1 --seconds 0.3 --sizes 1M --ciphers AES128-GCM-SHA256 \
                 --verify 4 --latency-bound 60 --provider";
    let mut words: Vec<_> = words.split(' ').collect();
    words.push(module.to_str().unwrap());
    let output = bench(&words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let results = results(&output);
    let duels = points(&results, DUEL);
    let names: Vec<_> =
        duels.iter().map(|duel| duel.place.get("cipher").unwrap().text().unwrap()).collect();
    assert_eq!(names, ["AES128-SHA", "AES128-GCM-SHA256", "AES128-SHA"]);
    for duel in &duels {
        assert!(duel.ratios[0].median.median > 0.0, "{duel:?}");
    }
    // Each megabyte is at least 64 records, and Convoy sealed all of its server's.
    assert!(number(&duels[1].facts, "records_by_convoy") > 64.0, "{:?}", duels[1]);
    for quantity in [PEAK, "share of the workers' processors at the highest throughput"] {
        let found = points(&results, quantity);
        let [peak] = found[..] else { panic!("{found:?}") };
        assert_eq!(peak.place.get("cipher"), Some(&"AES128-GCM-SHA256".into()), "{peak:?}");
        assert_eq!(peak.series.len(), 2);
        for series in &peak.series {
            assert!(series.summary.mean > 0.0, "{peak:?}");
            assert!(number(&series.facts, "verified") <= number(&series.facts, "files"));
        }
    }
    let handshakes = points(&results, "processor time of a connection");
    assert!(handshakes.len() == 2 && handshakes.iter().all(|point| point.series.len() == 2));
    assert!(points(&results, "time per call").len() >= 6);
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
    if !are_installed(&["nginx"]) {
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
    let results = results(&output);
    assert!(!results.complete, "{told:?}");
    assert!((1..=2).contains(&points(&results, DUEL).len()), "{results:?}");
    assert!(points(&results, PEAK).is_empty());
}

/// In a namespace, whose settings no other test uses.
#[test]
fn apache_bench_fetches_with_settings_that_are_taken_back() {
    if !can_make_namespaces() || !are_installed(&["nginx", "openssl", "ab"]) {
        return;
    }
    let namespace = Namespace::anonymous().unwrap();
    let backlog = || {
        let read = || std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        namespace.run(read).unwrap()
    };
    let before = backlog();
    let mut command = Command::new(env!("CARGO_BIN_EXE_convoy"));
    let words = "bench tls --client ab --tune --quick --json --rounds 1 --seconds 1 --sizes 1M \
                 --ciphers AES128-SHA --latency-bound 60 --provider";
    command.args(words.split(' ')).arg(module());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = namespace.spawn(&mut command).unwrap().wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let results = results(&output);
    assert_eq!(results.facts.get("generator"), Some(&"Apache Bench".into()));
    let best = &points(&results, PEAK)[0].series[0].facts;
    assert!(number(best, "files") > 0.0 && number(best, "client_cpu_s") > 0.0, "{best}");
    assert!(number(best, "whole_median_s") >= number(best, "first_byte_median_s"), "{best}");
    let tuned = results.facts.get("tuned").unwrap().text().unwrap();
    let line = format!("net.core.somaxconn was {:?}, and \"8192\"", before.trim());
    assert!(tuned.contains(&line), "{tuned}");
    assert_eq!(backlog(), before);
}

/// Bytes that this thread's namespace has sent over its loopback interface.
fn loopback_bytes() -> u64 {
    let counters = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let line = counters.lines().find_map(|line| line.trim().strip_prefix("lo:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn the_bytes_of_a_run_are_those_that_the_kernel_counts() {
    if !can_make_namespaces() || !are_installed(&["nginx", "openssl"]) {
        return;
    }
    let namespace = Namespace::anonymous().unwrap();
    let (bytes, counted) = namespace.run(fetch_for_a_second).unwrap();
    // Headers of TLS, TCP and IP, acknowledgements, and at the end what is in one connection's buffers.
    let most = bytes * 101 / 100 + (1 << 20);
    assert!((bytes..most).contains(&counted), "{bytes} bytes of the file, {counted} on the wire");
}

/// Has one load process fetch from nginx: bytes of the file that it counted, and bytes on the wire.
fn fetch_for_a_second() -> (u64, u64) {
    std::fs::write("/proc/sys/net/ipv4/tcp_rmem", "4096 65536 262144").unwrap();
    std::fs::write("/proc/sys/net/ipv4/tcp_wmem", "4096 65536 262144").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let site = Site::new(folder.path(), Ipv4Addr::LOCALHOST.into()).unwrap();
    let cipher = Cipher {
        name: "AES128-GCM-SHA256".to_owned(),
        version: Version::Tls12,
        encrypt_then_mac: false,
    };
    let way = TlsConfig { cipher: cipher.clone(), certificate: Certificate::Rsa, buffer_kib: 16 };
    let nginx = Nginx::start(&Setup {
        program: Path::new("nginx"),
        site: &site,
        name: "default",
        environment: &[],
        cpus: &[0],
        ways: std::slice::from_ref(&way),
    })
    .unwrap();
    let mut hub = Hub::listen("127.0.0.1:0", "secret").unwrap();
    let server = hub.address().to_string();
    let load = std::thread::spawn(move || {
        let library = LibSsl::load(None).unwrap();
        member::work(&library, &server, "secret", PATIENCE)
    });
    hub.gather(1, PATIENCE).unwrap();
    let size = 64 << 20;
    let job = Job {
        generator: Generator::Convoy,
        server: String::new(),
        path: site.file(size).unwrap(),
        size,
        cipher,
        connections: 1,
        seconds: 1.0,
        verify_every: 32,
        patience: 30.0,
    };
    let served =
        Served { nginx: &nginx, provider: "default", calls: &|| None, workers: 1, clients: 1 };
    let before = loopback_bytes();
    let done = run(&mut hub, &served, 0, &way, job).unwrap();
    let counted = loopback_bytes() - before;
    drop(hub);
    load.join().unwrap().unwrap();
    ((done.throughput * done.seconds).round() as u64, counted)
}

/// The second host's monotonic clock is an hour ahead.
#[test]
fn load_comes_from_another_host_whose_clock_is_an_hour_apart() {
    if !can_make_namespaces() || !are_installed(&["nginx", "openssl", "unshare"]) {
        return;
    }
    let [server, client] = [(); 2].map(|()| Namespace::anonymous().unwrap());
    let address = |address: &str| vec![address.parse().unwrap()];
    let a = End { namespace: &server, link: "lan0", addresses: address("10.9.0.1/24") };
    let b = End { namespace: &client, link: "lan0", addresses: address("10.9.0.2/24") };
    cable(&a, &b, 1500).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_convoy"));
    let words = "bench tls --quick --json --rounds 1 --seconds 0.3 --sizes 1M --ciphers \
                 AES128-GCM-SHA256 --latency-bound 60 --address 10.9.0.1 --listen 10.9.0.1:7700 \
                 --load-hosts 1 --token secret --workers 1 --provider";
    command.args(words.split(' ')).arg(module());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let bench = server.spawn(&mut command).unwrap();
    let mut command = Command::new("unshare");
    command.args("--time --monotonic 3600 --boottime 3600 --fork --kill-child".split(' '));
    command.arg(env!("CARGO_BIN_EXE_convoy"));
    command.args("bench tls --join 10.9.0.1:7700 --token secret".split(' '));
    let mut load = client.spawn(command.stdin(Stdio::null()).stderr(Stdio::piped())).unwrap();
    let output = bench.wait_with_output().unwrap();
    if !output.status.success() {
        let _ = load.kill();
    }
    let load = load.wait_with_output().unwrap();
    let told = text(&load.stderr);
    if told.contains("unshare failed") {
        println!("SKIPPED: this kernel has no namespaces of clocks");
        return;
    }
    assert!(output.status.success(), "{}{told}", text(&output.stderr));
    assert!(load.status.success(), "{told}");
    let results = results(&output);
    assert_eq!(number(&results.facts, "load_processes"), 1.0);
    let best = &points(&results, PEAK)[0].series[0];
    assert!(best.summary.mean > 0.0, "{best:?}");
    // Time that passed, not time of day.
    assert!((0.3..60.0).contains(&number(&best.facts, "seconds")), "{best:?}");
    assert!(number(&best.facts, "whole_max_s") < 60.0, "{best:?}");
}
