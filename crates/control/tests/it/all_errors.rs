//! All errors of a site file are told in one run: no fault hides another one.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use convoy_control::site::Site;

const GOOD: &str = r#"name = "left"
state_dir = "."
control_socket = "left.sock"
leak_protection = true
legacy = false

[plain]
interface = "convoy0"
addresses = ["10.1.0.1/24"]
mtu = 1400

[wire]
interface = "eth0"
udp_port = 4500
mtu = 1500

[workers]
count = 2
busy_poll = false

[[workers.rule]]
worker = 1
if_id = 7

[crypto]
engine = "pool"
verify_every = 100
budget_us = 50

[crypto.pool]
threads = 2

[metrics]
listen = "127.0.0.1:9464"

[marks]
packets = "0x00f00000"

[xfrm]
socket = "xfrm.sock"

[[xfrm.interface]]
name = "ipsec7"
if_id = 7 # of the interface

[[sa]]
name = "to-right"
direction = "outbound"
spi = 0x1001
local = "192.0.2.1"
remote = "192.0.2.2"
encryption = "aes-128-cbc"
integrity = "hmac-sha256-128"
key = "000102030405060708090a0b0c0d0e0f"
integrity_key = "404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f"
encap = { kind = "udp", remote_port = 4500 }
lifetime = { soft = { packets = 10 }, hard = { packets = 20 } }
df = "copy"
dscp = 46
hop_limit = 64
tfc = 512

[[sa]]
name = "from-right"
direction = "inbound"
spi = 0x1002
local = "192.0.2.1" # in
remote = "192.0.2.2" # in
algorithm = "aes-128-gcm"
icv = 16
key = "202122232425262728292a2b2c2d2e2f30313233"
replay_window = 4096

[[policy]]
name = "web"
action = "protect"
local = "10.1.0.0/24"
remote = "10.2.0.0/24"
protocol = "tcp"
remote_port = "8000-8999"
priority = 10
sa_out = "to-right"
sa_in = "from-right"

[[policy]]
name = "lans"
action = "protect" # lans
local = "10.1.0.0/24" # lans
remote = "10.3.0.0/24"
priority = 20
sa_out = "to-right" # lans
sa_in = "from-right" # lans
"#;

/// A line, and one in its place that is wrong by itself.
const FAULTS: &[(&str, &str)] = &[
    ("name = \"left\"", "name = \"the left one\""),
    ("state_dir = \".\"", "state_dir = \"nowhere\""),
    ("control_socket = \"left.sock\"", "control_socket = \"\""),
    ("leak_protection = true", "leak_protection = \"true\""),
    ("legacy = false", "legacy = \"no\""),
    ("interface = \"convoy0\"", "interface = \"an-interface-name-too-long\""),
    ("addresses = [\"10.1.0.1/24\"]", "addresses = [\"10.1.0.1\"]"),
    ("mtu = 1400", "mtu = \"1400\""),
    ("interface = \"eth0\"", "interface = 0"),
    ("udp_port = 4500", "udp_port = \"4500\""),
    ("mtu = 1500", "mtu = 5"),
    ("count = 2", "count = \"two\""),
    ("busy_poll = false", "busy_poll = 0"),
    ("worker = 1", "worker = -1"),
    ("if_id = 7", "if_id = 8"),
    ("engine = \"pool\"", "engine = \"pol\""),
    ("verify_every = 100", "verify_every = \"all\""),
    ("budget_us = 50", "budget_us = 0"),
    ("threads = 2", "threads = 0"),
    ("listen = \"127.0.0.1:9464\"", "listen = \"127.0.0.1\""),
    ("packets = \"0x00f00000\"", "packets = \"0x00f10000\""),
    ("socket = \"xfrm.sock\"", "socket = 1"),
    ("if_id = 7 # of the interface", "if_id = 0"),
    ("direction = \"outbound\"", "direction = \"out\""),
    ("spi = 0x1001", "spi = \"0x1001\""),
    ("local = \"192.0.2.1\"", "local = \"224.0.0.1\""),
    ("remote = \"192.0.2.2\"", "remote = \"0.0.0.0\""),
    ("encryption = \"aes-128-cbc\"", "encryption = \"aes128\""),
    ("integrity = \"hmac-sha256-128\"", "integrity = \"sha256\""),
    ("key = \"000102030405060708090a0b0c0d0e0f\"", "key = \"000102030405060708090a0b0c0d0e\""),
    (
        INTEGRITY_KEY,
        "integrity_key = \"404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5g\"",
    ),
    (
        "encap = { kind = \"udp\", remote_port = 4500 }",
        "encap = { kind = \"udp\", remote_port = \"4500\" }",
    ),
    (
        "lifetime = { soft = { packets = 10 }, hard = { packets = 20 } }",
        "lifetime = { soft = { packets = 30 }, hard = { packets = 20 } }",
    ),
    ("df = \"copy\"", "df = \"cpoy\""),
    ("dscp = 46", "dscp = \"46\""),
    ("hop_limit = 64", "hop_limit = 256"),
    ("tfc = 512", "tcf = 512"),
    ("direction = \"inbound\"", "direction = \"in\""),
    ("spi = 0x1002", "spi = 2"),
    ("local = \"192.0.2.1\" # in", "local = \"192.0.2\""),
    ("remote = \"192.0.2.2\" # in", "remote = \"right\""),
    ("algorithm = \"aes-128-gcm\"", "algorithm = \"aes128gcm16\""),
    ("icv = 16", "icv = 9"),
    (
        "key = \"202122232425262728292a2b2c2d2e2f30313233\"",
        "key = \"202122232425262728292a2b2c2d2e2f3031323\"",
    ),
    ("replay_window = 4096", "replay_window = 5"),
    ("action = \"protect\"", "action = \"proect\""),
    ("local = \"10.1.0.0/24\"", "local = \"10.1.0.1/24\""),
    ("remote = \"10.2.0.0/24\"", "remote = \"10.2.0.0/33\""),
    ("protocol = \"tcp\"", "protocol = \"6\""),
    ("remote_port = \"8000-8999\"", "remote_port = \"8999-8000\""),
    ("priority = 10", "priority = \"10\""),
    ("sa_out = \"to-right\"", "sa_out = \"to-the-right\""),
    ("sa_in = \"from-right\"", "sa_in = \"from-the-right\""),
    ("sa_in = \"from-right\" # lans", "sa_in = \"to-right\""),
    ("remote = \"10.3.0.0/24\"", "remote = \"10.1.0.0/24\""),
    ("priority = 20", "priority = 65536"),
];

const INTEGRITY_KEY: &str =
    "integrity_key = \"404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f\"";

/// Faults of the second line that nobody can know of while the first one is wrong.
const HIDDEN: &[(&str, &str)] = &[
    // The interfaces that a rule may name.
    ("if_id = 7 # of the interface", "if_id = 7"),
    ("socket = \"xfrm.sock\"", "if_id = 7"),
    // Who may use the SA.
    ("direction = \"outbound\"", "sa_in = \"from-right\" # lans"),
];

/// The file with some lines replaced, and the numbers of these lines.
fn broken(faults: &[(&str, &str)]) -> (String, BTreeSet<usize>) {
    let mut lines: Vec<&str> = GOOD.lines().collect();
    let numbers = faults.iter().map(|(right, wrong)| {
        let at = lines.iter().position(|line| line == right).unwrap_or_else(|| panic!("{right}"));
        lines[at] = wrong;
        at + 1
    });
    let numbers = numbers.collect();
    (lines.join("\n"), numbers)
}

/// Numbers of the lines at which errors are told, and the errors.
fn told(path: &Path, text: &str) -> (BTreeSet<usize>, String) {
    std::fs::write(path, text).unwrap();
    match Site::load(path) {
        Ok(_) => (BTreeSet::new(), String::new()),
        Err(errors) => (errors.errors.iter().map(|error| error.line).collect(), errors.to_string()),
    }
}

fn folder() -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o700)).unwrap();
    let path = dir.path().join("left.toml");
    std::fs::write(&path, GOOD).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    (dir, path)
}

#[test]
fn every_fault_is_told_beside_every_other_one() {
    let (_dir, path) = folder();
    assert_eq!(told(&path, GOOD), (BTreeSet::new(), String::new()));
    let mut complaints = Vec::new();
    for (at, first) in FAULTS.iter().enumerate() {
        for second in &FAULTS[at..] {
            let hides = |a: &(&str, &str), b: &(&str, &str)| HIDDEN.contains(&(a.0, b.0));
            if hides(first, second) || hides(second, first) {
                continue;
            }
            let (text, wanted) = broken(&[*first, *second]);
            let (lines, errors) = told(&path, &text);
            if lines != wanted {
                complaints.push(format!("{} / {}: {errors}", first.1, second.1));
            }
        }
    }
    assert!(complaints.is_empty(), "{}:\n{}", complaints.len(), complaints.join("\n\n"));
}

#[test]
fn all_faults_are_told_at_once() {
    let (_dir, path) = folder();
    let (text, mut wanted) = broken(FAULTS);
    for (_, hidden) in HIDDEN {
        wanted.remove(&(GOOD.lines().position(|line| line == *hidden).unwrap() + 1));
    }
    let (lines, errors) = told(&path, &text);
    let missing: Vec<_> = wanted.difference(&lines).collect();
    assert!(missing.is_empty(), "lines {missing:?} are not told of:\n{errors}");
}

#[test]
fn a_key_that_is_given_twice_hides_nothing() {
    let (_dir, path) = folder();
    let text = GOOD
        .replacen("mtu = 1400", "mtu = 1400\nmtu = 1300", 1)
        .replacen("tfc = 512", "tfc = 512\ntfc = 0", 1)
        .replacen("priority = 10", "priority = \"10\"", 1);
    let (lines, errors) = told(&path, &text);
    let at = |line: &str| text.lines().position(|it| it == line).unwrap() + 1;
    let wanted = ["mtu = 1300", "tfc = 0", "priority = \"10\""].map(at);
    assert_eq!(lines, BTreeSet::from(wanted), "{errors}");
}
