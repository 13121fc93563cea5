//! Tests that need no gateway and no rights.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;

use crate::common::{Plan, convoy, text};

#[test]
fn status_without_a_gateway_says_so_and_ends_with_3() {
    let folder = tempfile::tempdir().unwrap();
    let site = Plan::simple().write('a', folder.path());
    for verb in ["status", "sa", "policy", "reload", "keys", "trace", "metrics"] {
        let packet = ["--from", "10.1.0.1", "--to", "10.2.0.1"];
        let more = if verb == "trace" { &packet[..] } else { &[] };
        let output = convoy(&[&[verb, site.to_str().unwrap()], more].concat());
        assert_eq!(output.status.code(), Some(3), "{verb}: {}", text(&output.stderr));
        let said = text(&output.stderr);
        assert!(said.contains("no gateway") && said.contains("a.sock"), "{verb}: {said}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn help_is_an_answer_and_a_wrong_command_line_is_not() {
    for arguments in [&["--help"][..], &["run", "--help"], &["--version"]] {
        let output = convoy(arguments);
        assert_eq!(output.status.code(), Some(0));
        assert!(!output.stdout.is_empty());
    }
    assert!(text(&convoy(&["--help"]).stdout).contains("no gateway answers"));
    for arguments in [&["rum"][..], &["run"], &["check"], &["status", "--jsn"]] {
        assert_eq!(convoy(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

/// An error shows the usage of its verb as the help does: what may be left out stands in brackets.
#[test]
fn usage_of_an_error_is_that_of_the_help() {
    for (verb, wrong) in [
        (&["status"][..], &["left", "--watch", "1", "--jsn"][..]),
        (&["run"], &["--json", "site.toml"]),
        (&["keys"], &["left", "--output", "x", "--from-site", "y"]),
        (&["crypto", "set"], &["--on", "x", "--priority", "7", "left"]),
        (&[], &["--log", "debug", "rum"]),
    ] {
        let usage = |of: &[&str]| {
            let output = convoy(of);
            let said = text(&output.stdout) + &text(&output.stderr);
            let usage = said.lines().find(|line| line.starts_with("Usage: "));
            usage.unwrap_or_else(|| panic!("{of:?}: {said}")).to_owned()
        };
        let (help, error) = ([verb, &["--help"]].concat(), [verb, wrong].concat());
        assert_eq!(convoy(&error).status.code(), Some(2), "{error:?}");
        assert_eq!(usage(&error), usage(&help), "{error:?}");
    }
}

#[test]
fn a_gateway_named_after_watch_is_told_its_place() {
    let output = convoy(&["status", "--watch", "left.toml"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("put it before --watch"), "{said}");
}

#[test]
fn init_writes_a_pair_that_check_finds_good_and_never_overwrites() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("tunnel");
    let target = target.to_str().unwrap();
    assert!(convoy(&["init", target]).status.success());
    let files = [format!("{target}/left.toml"), format!("{target}/right.toml")];
    let checked = convoy(&["check", &files[0], &files[1]]);
    // Temporary folders may lie in memory, which is worth a warning.
    let code = checked.status.code();
    assert!(matches!(code, Some(0 | 1)), "{}", text(&checked.stderr));
    let read = || {
        let names = ["left.toml", "left.keys/right-out.key", "right.keys/left-in.key"];
        names.map(|name| fs::read_to_string(format!("{target}/{name}")).unwrap())
    };
    let before = read();
    assert_eq!(convoy(&["init", target]).status.code(), Some(2));
    assert_eq!(read(), before);
    // Both ends have the key in a file of their own, and the site file has none.
    let [site, out, inward] = before;
    assert_eq!((out.len(), &out), (41, &inward));
    assert!(site.contains("key_file = \"left.keys/right-out.key\""), "{site}");
    assert!(!site.contains(out.trim_end()) && !site.contains("\nkey = "), "{site}");
}

#[test]
fn genkey_writes_private_files_that_a_site_takes_and_never_over_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let key = path("one.key");
    let output = convoy(&["genkey", &key]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.contains("16 bytes of key and 4 of salt for aes-128-gcm"), "{said}");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o7777, 0o600);
    let digits = fs::read_to_string(&key).unwrap();
    assert_eq!(digits.len(), 41);
    assert!(!said.contains(digits.trim_end()), "{said}");
    let again = convoy(&["genkey", &key, "--algorithm", "aes-256-gcm"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("its key may be in use"), "{}", text(&again.stderr));
    assert_eq!(fs::read_to_string(&key).unwrap(), digits);

    // In the place of the key of a good site file.
    let site = Plan::simple().write('a', folder.path());
    let with_keys = fs::read_to_string(&site).unwrap();
    let (head, rest) = with_keys.split_once("key = \"").unwrap();
    let (_, rest) = rest.split_once('"').unwrap();
    fs::write(&site, format!("{head}key_file = \"one.key\"{rest}")).unwrap();
    let checked = convoy(&["check", site.to_str().unwrap()]);
    assert!(matches!(checked.status.code(), Some(0 | 1)), "{}", text(&checked.stderr));

    let printed = convoy(&["genkey", "-", "-a", "hmac-sha256-128"]);
    assert_eq!(text(&printed.stdout).len(), 65, "{}", text(&printed.stderr));
    assert!(!Path::new("-").exists());
    let mac = path("mac.key");
    let report = convoy(&["genkey", &mac, "--algorithm", "sha512", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let wanted = serde_json::json!({
        "schema": 1, "file": mac, "algorithm": "hmac-sha512-256", "field": "integrity_key_file",
        "key_bytes": 64, "salt_bytes": 0,
    });
    assert_eq!(report, wanted);
    for (arguments, why) in [
        (["genkey", "x", "-a", "rot13"], "is no algorithm"),
        (["genkey", "x", "-a", "aes128-sha256"], "make one for aes-128-cbc, and one for hmac"),
        (["genkey", "x", "-a", "null"], "null has no key"),
        (["genkey", "-", "-acbc", "--json"], "--algorithm"),
        (["genkey", "-", "-asha256", "--json"], "name a file"),
    ] {
        let output = convoy(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
        assert!(output.stdout.is_empty() && !Path::new("x").exists());
    }
    let nowhere = convoy(&["genkey", &path("none/one.key")]);
    assert_eq!(nowhere.status.code(), Some(1), "{}", text(&nowhere.stderr));
}

#[test]
fn a_site_file_with_keys_that_others_can_read_is_refused_by_all_verbs() {
    let folder = tempfile::tempdir().unwrap();
    let site = Plan::simple().write('a', folder.path());
    let file = site.to_str().unwrap();
    for (mode, is_good) in [(0o600, true), (0o640, false), (0o604, false)] {
        fs::set_permissions(&site, fs::Permissions::from_mode(mode)).unwrap();
        let verbs: [&[&str]; 3] =
            [&["check", file], &["run", file, "--dry-run"], &["keys", "--from-site", file]];
        for arguments in verbs {
            let output = convoy(arguments);
            let said = text(&output.stderr);
            let is_told = said.contains("this file holds keys and is readable by others");
            assert_eq!(is_told, !is_good, "{arguments:?}: {said}");
            assert_eq!(output.status.code() == Some(2), !is_good, "{arguments:?}: {said}");
        }
    }
}

#[test]
fn crypto_lists_tiers_engines_and_algorithms() {
    let output = convoy(&["crypto", "--json"]);
    assert!(output.status.success());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let tiers = report["tiers"].as_array().unwrap();
    assert_eq!(tiers.iter().filter(|tier| tier["state"] == "in use").count(), 1);
    assert!(tiers.iter().any(|tier| tier["name"] == "portable"));
    let sleep = convoy_crypto::Cpu::detect().unwrap().wide_units().map(|units| units.sleep_us);
    assert_eq!(report["wide_units"]["sleep_us"].as_u64(), sleep.map(u64::from));
    assert!(report["engines"].as_array().unwrap().iter().any(|e| e["name"] == "inline"));
    let ciphers = report["provider"].as_array().unwrap();
    assert!(ciphers.iter().all(|cipher| cipher["offered"] == cipher["why"].is_null()), "{report}");
    // What the compiler was told of, it was told for all of this build.
    let assumed = convoy_crypto::assumed_features().collect::<Vec<_>>();
    assert_eq!(report["assumed"], serde_json::json!(assumed));
    let said = text(&convoy(&["crypto"]).stdout).contains("RUSTFLAGS");
    assert_eq!(said, !assumed.is_empty());
}

#[test]
fn crypto_lists_drivers_like_a_kernel_and_every_one_of_convoy_s_own_passes() {
    let output = convoy(&["crypto", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let drivers = report["drivers"].as_array().unwrap();
    let gcm = |name: &str| {
        let of =
            |driver: &&serde_json::Value| driver["driver"] == format!("rfc4106-gcm-aes-{name}");
        drivers.iter().find(of)
    };
    let portable = gcm("convoy-portable").unwrap();
    assert_eq!(portable["algorithm"], "rfc4106(gcm(aes))");
    assert_eq!((&portable["type"], &portable["synchronous"]), (&"aead".into(), &true.into()));
    assert_eq!((&portable["priority"], &portable["self_test"]), (&100.into(), &"passed".into()));
    for tier in report["tiers"].as_array().unwrap() {
        let driver = gcm(&format!("convoy-{}", tier["name"].as_str().unwrap()));
        let usable = tier["state"] == "in use" || tier["state"] == "available";
        assert_eq!(driver.is_some(), usable, "{tier}");
        assert_eq!(
            driver.is_some_and(|driver| driver["chosen"] == true),
            tier["state"] == "in use"
        );
    }
    let own = |driver: &&serde_json::Value| driver["driver"].as_str().unwrap().contains("-convoy-");
    assert!(drivers.iter().filter(own).all(|driver| driver["self_test"] == "passed"));

    let said = text(&convoy(&["crypto", "hmac(sha1)"]).stdout);
    assert!(said.starts_with("algorithm"), "{said}");
    assert!(said.lines().skip(1).all(|line| line.starts_with("hmac(sha1)  hmac-sha1-")), "{said}");
    let output = convoy(&["crypto", "rot13"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("\"rot13\"") && said.contains("rfc4106(gcm(aes))"), "{said}");
    assert!(text(&convoy(&["crypto", "--help"]).stdout).contains("/proc/crypto"));
}

#[test]
fn keys_from_a_site_file_are_what_wireshark_reads() {
    let folder = tempfile::tempdir().unwrap();
    let site = Plan::simple().write('a', folder.path());
    let output = convoy(&["keys", "--from-site", site.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines = text(&output.stdout);
    let sas: Vec<_> = lines.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(sas.len(), 2, "{lines}");
    for line in sas {
        assert!(line.starts_with("\"IPv4\",\"198.51.100."), "{line}");
        assert!(line.contains("AES-GCM"), "{line}");
    }
    let file = folder.path().join("esp_sa");
    let arguments =
        ["keys", "--from-site", site.to_str().unwrap(), "--output", file.to_str().unwrap()];
    assert!(convoy(&arguments).status.success());
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_to_string(&file).unwrap(), lines);

    // A link stays a link, and where it leads stays as it is; a device is written to.
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&site, &link).unwrap();
    let before = fs::read(&site).unwrap();
    let to = |path: &str| convoy(&["keys", "--from-site", site.to_str().unwrap(), "-o", path]);
    let output = to(link.to_str().unwrap());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("link: it is a link, which is not followed"), "{said}");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read(&site).unwrap(), before);
    use std::os::unix::fs::FileTypeExt;
    assert!(to("/dev/null").status.success());
    assert!(fs::symlink_metadata("/dev/null").unwrap().file_type().is_char_device());
}

/// One way to break a good site file, and what the error must name.
const BROKEN: &[(&str, &str, &str)] = &[
    ("name = \"a\"", "nam = \"a\"", "nam"),
    ("name = \"a\"", "name = \"a b\"", "name"),
    ("[plain]", "[plan]", "plan"),
    ("interface = \"tun0\"", "interface = \"an-interface-name-too-long\"", "interface"),
    ("interface = \"tun0\"", "interface = 7", "interface"),
    ("count = 1", "count = 0", "count"),
    ("count = 1", "count = \"one\"", "count"),
    ("direction = \"outbound\"", "direction = \"outward\"", "direction"),
    ("spi = 4097", "spi = 255", "spi"),
    ("spi = 4097", "spi = 4294967296", "spi"),
    ("spi = 4097", "", "spi"),
    ("algorithm = \"aes-128-gcm\"", "algorithm = \"aes-128-gmc\"", "algorithm"),
    ("algorithm = \"aes-128-gcm\"", "algorithm = \"aes-256-gcm\"", "key"),
    ("key = \"03", "key = \"0g", "key"),
    ("key = \"03", "key = \"3", "key"),
    ("remote = \"198.51.100.2\"", "remote = \"2001:db8::2\"", "remote"),
    ("local = \"10.1.0.0/24\"", "local = \"10.1.0.1/24\"", "local"),
    ("remote = \"10.2.0.0/24\"", "remote = \"10.2.0.0/33\"", "remote"),
    ("sa_out = \"one-out\"", "sa_out = \"one-uot\"", "sa_out"),
    ("sa_out = \"one-out\"", "sa_out = \"one-in\"", "sa_out"),
    ("action = \"protect\"", "action = \"encrypt\"", "action"),
    ("lease_block = 1048576", "lease_block = 0", "lease_block"),
    ("a.state", "missing.state", "state_dir"),
    ("name = \"a\"", "name = \"a", "TOML"),
];

#[test]
fn every_broken_site_file_gives_an_error_with_file_line_key_and_help() {
    let folder = tempfile::tempdir().unwrap();
    let good = {
        let path = Plan::simple().write('a', folder.path());
        assert!(matches!(convoy(&["check", path.to_str().unwrap()]).status.code(), Some(0 | 1)));
        fs::read_to_string(path).unwrap()
    };
    for (n, (right, wrong, key)) in BROKEN.iter().enumerate() {
        let broken = good.replacen(right, wrong, 1);
        assert_ne!(broken, good, "{right}");
        let path = folder.path().join(format!("broken-{n}.toml"));
        write_private(&path, &broken);
        finds(&path, key);
    }
    let twice = good.clone() + &good[good.find("[[policy]]").unwrap()..];
    let path = folder.path().join("twice.toml");
    write_private(&path, &twice);
    finds(&path, "policy");
    let missing = folder.path().join("missing.toml");
    let output = convoy(&["check", missing.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("missing.toml"));
}

/// Faults that a dry run refuses are found without rights as well.
#[test]
fn check_and_dry_run_agree() {
    let folder = tempfile::tempdir().unwrap();
    let path = Plan::simple().write('a', folder.path());
    let good = fs::read_to_string(&path).unwrap();
    let check = |text: &str| {
        fs::write(&path, text).unwrap();
        let dry = convoy(&["run", path.to_str().unwrap(), "--dry-run"]);
        let checked = convoy(&["check", path.to_str().unwrap()]);
        (dry.status.code(), checked.status.code(), text_of(&dry) + &text_of(&checked))
    };
    let (dry, checked, said) = check(&good);
    // Its address is not here: the file may be meant for another machine.
    assert_eq!(dry, Some(1), "{said}");
    assert!(matches!(checked, Some(0 | 1)), "{said}");
    assert!(said.contains(", but not yet on this machine"), "{said}");
    assert_eq!(said.matches(".local: 198.51.100.1 is not an address of this host").count(), 2);
    let (dry, checked, said) =
        check(&good.replacen("remote = \"10.2.0.0/24\"", "remote = \"0.0.0.0/0\"", 1));
    assert_eq!((dry, checked), (Some(2), Some(2)), "{said}");
    assert_eq!(said.matches("would also catch the packets").count(), 2, "{said}");
    assert!(!said.contains(": good") && !said.contains(": usable"), "{said}");
    let cut_off = good.find("[[sa]]").expect("SAs stand at the end");
    let (dry, checked, said) = check(&good[..cut_off]);
    assert_eq!((dry, checked), (Some(2), Some(2)), "{said}");
    assert_eq!(said.matches("no [[policy]] and no [xfrm]").count(), 2, "{said}");
    let (dry, checked, said) = check(&good.replacen("count = 1", "count = 1\npin = [1023]", 1));
    // The file may be meant for another machine, so this is a warning to `check`.
    assert_eq!((dry, checked), (Some(2), Some(1)), "{said}");
    assert_eq!(said.matches("processor 1023 is not available").count(), 2, "{said}");
}

/// Changes of a good site file, and the line and key of what is found then: by `check` as an error, a warning or a note, and
/// by a dry run as an error.
const FOUND_LATE: &[(&str, &str, &str, &str)] = &[
    ("[wire]", "routes = [\"0.0.0.0/0\"]\n[wire]", "routes = ", "plain.routes"),
    // Routes are missing there that would say what is meant.
    ("remote = \"10.2.0.0/24\"", "remote = \"0.0.0.0/0\"", "[plain]", "plain.routes"),
    ("interface = \"tun0\"", "interface = \"lo\"", "interface = ", "plain.interface"),
    ("interface = \"tun0\"", "interface = \"t%d\"", "interface = ", "plain.interface"),
    ("count = 1", "count = 1\npin = [1023]", "pin = ", "workers.pin"),
    ("[plain]", "namespace = \"no-such-one\"\n[plain]", "namespace = ", "namespace"),
    ("[wire]", "[wire]\ninterface = \"no-such0\"", "interface = \"no", "wire.interface"),
    ("esn = true", "esn = true", "local = \"198", "sa[one-out].local"),
];

#[test]
fn what_is_found_late_has_the_line_of_its_key_in_all_verbs() {
    let folder = tempfile::tempdir().unwrap();
    let path = Plan::simple().write('a', folder.path());
    let good = fs::read_to_string(&path).unwrap();
    for (right, wrong, line, key) in FOUND_LATE {
        let broken = good.replacen(right, wrong, 1);
        fs::write(&path, &broken).unwrap();
        let at = broken.lines().position(|it| it.starts_with(line)).unwrap();
        let at = format!("{}:{}:", path.display(), at + 1);
        for arguments in [&["check"][..], &["run", "--dry-run"]] {
            let output = convoy(&[arguments, &[path.to_str().unwrap()]].concat());
            let said = text(&output.stderr);
            let is_told = |line: &str| line.contains(&at) && line.contains(&format!(" {key}: "));
            assert!(said.lines().any(is_told), "{arguments:?} {key} at {at}\n{said}");
        }
    }
}

/// A dry run by somebody who could not start the gateway says so, and does not end as if all were well.
#[test]
fn a_dry_run_without_rights_says_what_it_could_not_see() {
    if !nix::unistd::geteuid().is_root() {
        return println!("SKIPPED: only root can become another user");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = Plan::simple().write('a', folder.path());
    let program = folder.path().join("convoy");
    crate::common::copy_program(&program);
    let nobody = 65_534;
    for entry in fs::read_dir(folder.path()).unwrap() {
        std::os::unix::fs::chown(entry.unwrap().path(), Some(nobody), Some(nobody)).unwrap();
    }
    std::os::unix::fs::chown(folder.path(), Some(nobody), Some(nobody)).unwrap();
    let mut command = std::process::Command::new(&program);
    command.args(["run", path.to_str().unwrap(), "--dry-run", "--json"]);
    let output = command.uid(nobody).gid(nobody).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text_of(&output));
    assert!(text(&output.stderr).contains("this user lacks CAP_NET_ADMIN and CAP_NET_RAW"));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["lacking"], serde_json::json!(["CAP_NET_ADMIN", "CAP_NET_RAW"]));
}

fn text_of(output: &std::process::Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

/// Errors name what is wrong once, and by the name under which it was given.
#[test]
fn what_is_wrong_is_told_once_and_by_its_name() {
    let with = |variable: &str, value: &str, arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_convoy"));
        command.env_remove("CONVOY_LOG").env_remove("CONVOY_DENY_CPU").env(variable, value);
        let output = command.args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        text(&output.stderr)
    };
    let said = with("CONVOY_DENY_CPU", "mmx", &["crypto"]);
    assert_eq!(said.matches("CONVOY_DENY_CPU").count(), 1, "{said}");
    let said = with("CONVOY_LOG", "a=b=c", &["crypto"]);
    assert!(said.contains("CONVOY_LOG: ") && !said.contains("--log"), "{said}");
    let said = with("CONVOY_LOG", "info", &["--log", "a=b=c", "crypto"]);
    assert!(said.contains("--log: ") && !said.contains("CONVOY_LOG"), "{said}");
    let folder = tempfile::tempdir().unwrap();
    let site = Plan::simple().write('a', folder.path());
    let missing = folder.path().join("missing.pcap");
    let said = with(
        "CONVOY_LOG",
        "info",
        &["replay", site.to_str().unwrap(), "--plain-in", missing.to_str().unwrap()],
    );
    assert!(said.contains("missing.pcap") && said.contains("No such file"), "{said}");
}

/// Writes a file with keys in it, which nobody else may read.
fn write_private(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

fn finds(path: &Path, key: &str) {
    let output = convoy(&["check", path.to_str().unwrap()]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{}: {said}", path.display());
    let line = said.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
    assert!(line.contains(&format!("{}:", path.display())) && line.contains(key), "{key}: {said}");
    // What would be right stands beside, or in the message itself.
    assert!(said.contains("help: ") || said.contains("expected"), "{said}");
    // The keys of the file are in no message.
    assert!(!said.contains("0303030303"), "{said}");
    let run = convoy(&["run", path.to_str().unwrap()]);
    assert_eq!(run.status.code(), Some(2), "{}", text(&run.stderr));
    assert!(text(&run.stderr).contains(key));
}
