//! DPDK's program is read and takes turns with Convoy. A script stands in for it, so that this does not need DPDK.

use std::path::Path;

use convoy_bench::cores::Cores;
use convoy_bench::dpdk::WINDOWS;
use convoy_bench::dpdk::contest::Peer;
use convoy_bench::dpdk::printed::{Printed, Window};
use convoy_bench::dpdk::program::{Program, Run, RunError};
use convoy_bench::dpdk::report::Report;
use convoy_bench::dpdk::rounds::{Findings, Plan, RoundsError, measure};
use convoy_bench::results::fields::Value;
use convoy_bench::results::head::Head;
use convoy_bench::results::{LeftOut, Name, Results};
use convoy_crypto::Cpu;

/// Output of version 22.11.11.
const STORED: &str = include_str!("../data/crypto-perf-22.11.txt");

fn stand_in() -> Program {
    Program::devices(Some(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/crypto-perf.sh")))
}

fn plan(drivers: &[&str]) -> Plan {
    let cpu = Cpu::detect().unwrap();
    Plan {
        peer: Peer::Devices(stand_in()),
        drivers: drivers.iter().map(|name| name.parse().unwrap()).collect(),
        suites: ["aes-128-gcm-16", "aes-128-cbc+hmac-sha1-96"]
            .map(|name| name.parse().unwrap())
            .to_vec(),
        sizes: vec![100, 256],
        rounds: 3,
        cpu,
        tier: cpu.best(),
        // With one processor both are the same: it is slower, and no other.
        processors: {
            let allowed = Cores::allowed().unwrap();
            [allowed[0], *allowed.get(1).unwrap_or(&allowed[0])]
        },
    }
}

#[test]
fn what_the_program_prints_is_read() {
    let printed = Printed::parse(STORED).unwrap();
    assert_eq!(printed.version.as_deref(), Some("22.11.11"));
    assert_eq!(printed.library.as_deref(), Some("1.3.0"));
    assert_eq!(printed.windows.len(), 2 * WINDOWS);
    let first = Window { cycles: printed.windows[0].cycles, bytes: 64, burst: 32, packets: 1024 };
    assert!(printed.windows[0] == first && first.cycles > 10.0, "{printed:?}");
    assert!(printed.windows[WINDOWS..].iter().all(|window| window.bytes == 1408));
    // A table that another version might print.
    let other = STORED.replace("Cycles/Buf", "Cycles");
    assert!(Printed::parse(&other).unwrap_err().contains("no column \"Cycles/Buf\""));
    let cut = STORED.replace(",64,32,", ",64,many,");
    assert!(Printed::parse(&cut).unwrap_err().contains("no row of its table"));
    assert_eq!(Printed::parse("").unwrap(), Printed::default());
}

#[test]
fn rounds_are_told_in_the_form_of_all_benches() {
    let plan = plan(&["crypto_aesni_mb", "crypto_aesni_gcm"]);
    let mut findings = Findings::default();
    let mut told = Vec::new();
    let mut tell = |line: &str| told.push(line.to_owned());
    measure(&plan, &mut findings, &|| true, &mut tell).unwrap();
    assert_eq!(told, ["round 1 of 3", "round 2 of 3", "round 3 of 3"]);
    let report = Report { head: Head::now(), tier: plan.tier, is_of_gateways: false, findings };
    let results = report.results();
    let read = Results::parse(results.to_json().unwrap().as_bytes()).unwrap();
    assert!(read == results && read.complete && read.left_out.is_empty(), "{read:?}");
    assert_eq!(read.machine.peers[0].version, "DPDK 1.2.3, intel-ipsec-mb 4.5.6");
    let place = |name: &str| {
        read.points
            .iter()
            .map(|point| point.place.get(name).unwrap().to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(place("size"), ["100", "256", "100", "256"]);
    let (mb, gcm) = (Name::new("dpdk", "crypto_aesni_mb"), Name::new("dpdk", "crypto_aesni_gcm"));
    // Blocks of 16 bytes round up.
    for (point, cycles, devices) in [(0, 100.0, 2), (1, 256.0, 2), (2, 112.0, 1), (3, 256.0, 1)]
        .map(|(at, a, b)| (&read.points[at], a, b))
    {
        assert_eq!((point.ratios.len(), point.series.len()), (devices, 1 + devices));
        assert_eq!(point.series(&mb).unwrap().rounds, [cycles; 3]);
        assert_eq!(point.series(&gcm).is_some(), devices == 2);
        assert_eq!(point.facts.get("text_bytes").and_then(Value::number), Some(cycles));
    }
    assert_eq!(report.rows().len(), 1 + 6);
    assert!(report.head().contains("DPDK 1.2.3, intel-ipsec-mb 4.5.6"));
}

#[test]
fn a_device_that_cannot_take_part_is_named_with_the_programs_words() {
    let plan = plan(&["crypto_openssl", "crypto_aesni_gcm"]);
    let mut findings = Findings::default();
    measure(&plan, &mut findings, &|| true, &mut |_| {}).unwrap();
    // Convoy has nobody beside it with AES-CBC.
    assert_eq!(findings.points.len(), 2);
    assert!(
        findings.points.iter().all(|point| point.devices.len() == 1 && point.convoy.len() == 3)
    );
    let whats: Vec<&str> = findings.left_out.iter().map(|one| &*one.what).collect();
    assert_eq!(
        whats,
        ["DPDK crypto_openssl, aes-128-gcm-16", "DPDK crypto_openssl, aes-128-cbc+hmac-sha1-96"]
    );
    let why = &findings.left_out[0].why;
    assert!(
        why.ends_with(
            "exit status: 1: USER1: Crypto device type does not support capabilities requested"
        ),
        "{why}"
    );
}

#[test]
fn gateways_take_turns_with_the_same_packets() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/secgw.sh");
    let peer = Peer::Gateway(Program::gateway(&path));
    let drivers = ["crypto_openssl", "crypto_aesni_gcm", "crypto_null"];
    let plan = Plan { peer, rounds: 2, ..plan(&drivers) };
    let mut findings = Findings::default();
    measure(&plan, &mut findings, &|| true, &mut |_| {}).unwrap();
    // AES-GCM is not asked for other suites, one device is not there, and nothing comes out with another.
    let whys: Vec<&str> = findings.left_out.iter().map(|one| &*one.why).collect();
    let [no_device, nothing, _, _] = whys[..] else { panic!("{whys:?}") };
    assert!(no_device.contains("required RX offloads"), "{no_device}");
    assert!(no_device.contains("interop/secgw/build.sh"), "{no_device}");
    assert!(nothing.ends_with("it sent no packet of 156 bytes"), "{nothing}");
    let report = Report { head: Head::now(), tier: plan.tier, is_of_gateways: true, findings };
    let results = report.results();
    let read = Results::parse(results.to_json().unwrap().as_bytes()).unwrap();
    assert!(read.bench == "dpdk --secgw" && read.points.len() == 2, "{read:?}");
    for point in &read.points {
        assert_eq!(point.quantity, "cycles per packet of a gateway in short windows");
        let device = point.series(&Name::new("dpdk", "crypto_aesni_gcm")).unwrap();
        assert_eq!(device.rounds, [500.0; 2]);
        assert!(point.series[0].summary.median > 1.0 && point.ratios.len() == 1, "{point:?}");
    }
    assert!(report.head().contains("windows of 1024 packets, the middle"), "{}", report.head());
    // A file that is not there, and one that is no program.
    for path in ["/nowhere", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")] {
        let none = Plan { peer: Peer::Gateway(Program::gateway(Path::new(path))), ..plan.clone() };
        let error = measure(&none, &mut Findings::default(), &|| true, &mut |_| {}).unwrap_err();
        assert!(error.to_string().contains("interop/secgw/build.sh makes one"), "{error}");
    }
    // Another program.
    let other = Plan { peer: Peer::Gateway(Program::gateway(Path::new("true"))), ..plan };
    let mut findings = Findings::default();
    measure(&other, &mut findings, &|| true, &mut |_| {}).unwrap();
    let is_told = |one: &LeftOut| one.why.contains("timed no windows: build it with interop/secgw");
    assert!(findings.points.is_empty() && findings.left_out.iter().all(is_told), "{findings:?}");
    assert_eq!(findings.left_out.len(), 5);
}

#[test]
fn what_ends_a_run_is_told_apart() {
    let driver = "crypto_aesni_gcm".parse().unwrap();
    let suite = "aes-128-gcm-16".parse().unwrap();
    let run = Run { driver: &driver, suite, texts: &[64], processors: [0, 1] };
    assert!(matches!(stand_in().run(&run, &|| false), Err(RunError::Interrupted)));
    let missing = Program::devices(Some(Path::new("/nowhere/dpdk-test-crypto-perf")));
    let error = missing.run(&run, &|| true).unwrap_err();
    assert!(error.to_string().contains("apt install dpdk-dev librte-meta-crypto"), "{error}");
    let driver = "crypto_nowhere".parse().unwrap();
    let error = stand_in().run(&Run { driver: &driver, ..run }, &|| true).unwrap_err();
    assert!(error.to_string().contains("apt install librte-meta-crypto"), "{error}");
    // A program that succeeds and prints no table.
    let other = Program::devices(Some(Path::new("true"))).run(&run, &|| true).unwrap_err();
    assert!(other.to_string().ends_with("its table has 0 rows instead of 15"), "{other}");
    let mut plan = plan(&["crypto_aesni_gcm"]);
    plan.peer = Peer::Devices(missing);
    let outcome = measure(&plan, &mut Findings::default(), &|| true, &mut |_| {});
    assert!(matches!(outcome, Err(RoundsError::Program(RunError::Missing { .. }))));
    let mut findings = Findings::default();
    plan.peer = Peer::Devices(stand_in());
    measure(&plan, &mut findings, &|| false, &mut |_| {}).unwrap();
    assert!(findings.is_interrupted && findings.points.is_empty(), "{findings:?}");
}
