//! The way to TLS through Convoy, verb by verb, with OpenSSL's own program at its end.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use convoy_crypto::Cpu;
use convoy_openssl::offer::Cipher;

use crate::common::{convoy, text};

/// The provider's library, as cargo built it for these tests.
fn library() -> PathBuf {
    let library = std::env::current_exe().unwrap().parent().unwrap().join("libconvoy_openssl.so");
    assert!(library.exists(), "{} is not there", library.display());
    library
}

/// The providers that OpenSSL's program has loaded under a configuration; nothing without that program.
fn providers(conf: &Path) -> Option<String> {
    let output =
        Command::new("openssl").args(["list", "-providers"]).env("OPENSSL_CONF", conf).output();
    let Ok(output) = output else {
        println!("SKIPPED in part: openssl is not installed");
        return None;
    };
    Some(text(&output.stdout))
}

fn loads_both(conf: &Path) -> Option<bool> {
    let providers = providers(conf)?;
    Some(["Convoy", "OpenSSL Default Provider"].iter().all(|name| providers.contains(name)))
}

#[test]
fn what_openssl_conf_prints_leads_openssl_to_convoy_and_its_counts_can_be_seen() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let module = library();
    let module = module.to_str().unwrap();
    let (conf, stats) = (path("convoy.cnf"), path("stats"));

    let missing = convoy(&["openssl-conf", "--module", &path("none.so")]);
    assert_eq!(missing.status.code(), Some(2), "{}", text(&missing.stderr));
    let printed = convoy(&["openssl-conf", "--module", module, "--stats", &stats]);
    assert!(printed.status.success(), "{}", text(&printed.stderr));
    fs::write(&conf, &printed.stdout).unwrap();
    let checked = convoy(&["openssl-conf", "--check", &conf]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
    // Each cipher in a line of its own: whether it is offered here, or why not.
    let said = text(&checked.stdout);
    for cipher in Cipher::ALL {
        let line = said.lines().find(|line| line.starts_with(&format!("{} is ", cipher.name())));
        let line = line.unwrap_or_else(|| panic!("{}: {said}", cipher.name()));
        let why = cipher.withheld(&Cpu::detect().unwrap());
        assert_eq!(line.contains(" not offered "), why.is_some(), "{line}");
        assert!(line.ends_with(&why.unwrap_or_default()), "{line}");
        assert!(text(&printed.stdout).contains(&format!("# {line}\n")), "{line}");
    }

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

/// Compares what `--check` says with what OpenSSL does here. From 3.3 on OpenSSL refuses more than before, so what it
/// loads may be wrong; what is good must load in all of them.
#[test]
fn check_says_of_a_configuration_what_openssl_does_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let conf = folder.path().join("a.cnf");
    let good = format!(
        "openssl_conf = start\n[start]\nproviders = list\nalg_section = algorithms\n\
         [list]\ndefault = own\nconvoy = ours\n[own]\nactivate = 1\n\
         [ours]\nmodule = {}\nactivate = 1\n\
         [algorithms]\ndefault_properties = ?provider=convoy\n",
        library().display()
    );
    // What is changed, the exit code, and whether Convoy and the default provider load; nothing where that
    // depends on OpenSSL's version.
    for (from, to, code, loads) in [
        ("", "", 0, Some(true)),
        ("", "\u{feff}", 0, Some(true)),
        ("convoy = ", "1.convoy = ", 0, Some(true)),
        ("convoy = ", "fast = ", 0, Some(true)),
        ("[ours]\n", "[ours]\nidentity = fast\n", 0, Some(true)),
        ("default = ", "7.default = ", 0, Some(true)),
        ("providers = ", "providers.x = ", 0, Some(true)),
        ("convoy = ours\n", "convoy = ours\nmore = none\n", 1, Some(true)),
        ("convoy = ours\n", "more = none\nconvoy = ours\n", 2, Some(false)),
        ("[start]\n", "[start]\nmore = own\n", 2, Some(false)),
        ("[start]\n", "[start]\nalg_section.1 = none\n", 2, Some(false)),
        ("[start]\n", "[start]\nx = $none\n", 2, Some(false)),
        ("[ours]\n", "[ours\n", 2, Some(false)),
        ("convoy = ours", "null = ours", 2, Some(false)),
        ("default = own\n", "", 2, Some(false)),
        ("[own]\nactivate = 1", "[own]\nactivate = ON", 0, Some(true)),
        ("[own]\nactivate = 1", "[own]\nactivate = On", 2, None),
        ("[own]\nactivate = 1", "[own]\nactivate =", 2, None),
        ("[own]\nactivate = 1", "[own]\nactivate = 0", 2, None),
        ("[own]\nactivate = 1", "[own]\nx = 1", 2, Some(false)),
    ] {
        fs::write(&conf, good.replacen(from, to, 1)).unwrap();
        let checked = convoy(&["openssl-conf", "--check", conf.to_str().unwrap()]);
        assert_eq!(checked.status.code(), Some(code), "{to:?}: {}", text(&checked.stderr));
        let (Some(loaded), Some(loads)) = (loads_both(&conf), loads) else { continue };
        assert_eq!(loaded, loads, "{to:?}: {:?}", providers(&conf));
    }
}

#[test]
fn openssl_finds_the_library_wherever_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let conf = folder.path().join("convoy.cnf");
    let names: [&[u8]; 9] = [
        b"a $b ${c} $(d)",
        b"# e",
        b"f\\g\\",
        b"'h\"i`j",
        b" k ",
        b"l\nm\tn\ro",
        b";p=q [r] ::s",
        b"\xff\xfe",
        b"$LIBRARY",
    ];
    for name in names {
        let folder = folder.path().join(OsStr::from_bytes(name));
        fs::create_dir(&folder).unwrap();
        let module = folder.join(OsStr::from_bytes(&[name, b".so "].concat()));
        fs::hard_link(library(), &module)
            .or_else(|_| fs::copy(library(), &module).map(drop))
            .unwrap();
        let stats = folder.join(OsStr::from_bytes(&[name, b"#stats"].concat()));
        // The system's own configuration may be anywhere, too.
        let system = folder.join(OsStr::from_bytes(&[name, b".cnf"].concat()));
        fs::write(&system, "a = 1\n").unwrap();
        let printed = Command::new(env!("CARGO_BIN_EXE_convoy"))
            .args([OsStr::new("openssl-conf"), OsStr::new("--module"), module.as_os_str()])
            .args([OsStr::new("--stats"), stats.as_os_str()])
            .args([OsStr::new("--system"), system.as_os_str()])
            .output()
            .unwrap();
        assert!(printed.status.success(), "{}", text(&printed.stderr));
        fs::write(&conf, &printed.stdout).unwrap();
        let checked = convoy(&["openssl-conf", "--check", conf.to_str().unwrap()]);
        assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
        let Some(loaded) = loads_both(&conf) else { return };
        assert!(loaded, "{:?}: {}", module, text(&printed.stdout));
        assert!(stats.exists(), "{}", stats.display());
    }

    // The dynamic linker would look elsewhere.
    let replaced = folder.path().join("$LIB");
    fs::create_dir(&replaced).unwrap();
    let module = replaced.join("convoy.so");
    fs::hard_link(library(), &module).or_else(|_| fs::copy(library(), &module).map(drop)).unwrap();
    let refused = convoy(&["openssl-conf", "--module", module.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("dynamic linker"), "{}", text(&refused.stderr));
    assert!(refused.stdout.is_empty());
}

#[test]
fn node_begins_where_it_is_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let (conf, stats) = (folder.path().join("convoy.cnf"), folder.path().join("stats"));
    let (module, of) = (library(), stats.to_str().unwrap());
    let printed = convoy(&["openssl-conf", "--module", module.to_str().unwrap(), "--stats", of]);
    fs::write(&conf, &printed.stdout).unwrap();
    let script = "const c = require('crypto'); \
                  const x = c.createCipheriv('aes-128-gcm', Buffer.alloc(16), Buffer.alloc(12)); \
                  x.update('text'); x.final(); console.log(process.versions.openssl)";
    for options in [&[][..], &["--openssl-shared-config"]] {
        let mut node = Command::new("node");
        let Ok(output) =
            node.args(options).args(["-e", script]).env("OPENSSL_CONF", &conf).output()
        else {
            println!("SKIPPED: node is not installed");
            return;
        };
        assert!(output.status.success(), "{}", text(&output.stderr));
        if !text(&output.stdout).starts_with("3.") {
            println!("SKIPPED: node has no OpenSSL 3");
            return;
        }
        let counted = convoy(&["crypto", "--provider-stats", of, "--json"]);
        let counts: serde_json::Value = serde_json::from_slice(&counted.stdout).unwrap();
        assert_eq!(counts["messages-sealed"], 1, "{options:?}: {counts}");
        fs::remove_file(&stats).unwrap();
    }
}

/// A server of OpenSSL's own program that has loaded Convoy, with whatever else it is given.
fn server(folder: &Path, conf: Option<&Path>) -> Option<Served> {
    let (key, cert) = (folder.join("key.pem"), folder.join("cert.pem"));
    let mut request = Command::new("openssl");
    request.args([
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=localhost",
        "-keyout",
    ]);
    let Ok(made) = request.arg(&key).arg("-out").arg(&cert).output() else {
        println!("SKIPPED: openssl is not installed");
        return None;
    };
    assert!(made.status.success(), "{}", text(&made.stderr));
    let mut command = Command::new("openssl");
    command.args(["s_server", "-accept", "127.0.0.1:0", "-key"]).arg(&key).arg("-cert").arg(&cert);
    match conf {
        Some(conf) => command.env("OPENSSL_CONF", conf),
        None => command.env_remove("OPENSSL_CONF"),
    };
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    // It says so once it listens, and has OpenSSL ready by then.
    let mut said = String::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    while !said.contains("ACCEPT") {
        assert!(lines.read_line(&mut said).unwrap() > 0, "{said}");
    }
    Some(Served(child))
}

struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_running_process_is_judged() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let print = |stats: Option<&Path>| {
        let module = library();
        let mut arguments = vec!["openssl-conf", "--module", module.to_str().unwrap()];
        arguments.extend(stats.into_iter().flat_map(|stats| ["--stats", stats.to_str().unwrap()]));
        let conf = path("convoy.cnf");
        fs::write(&conf, convoy(&arguments).stdout).unwrap();
        conf
    };
    let judged = |served: &Served| {
        let output = convoy(&["crypto", "--json", "--pid", &served.0.id().to_string()]);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), report)
    };

    let stats = path("stats");
    let conf = print(Some(&stats));
    let Some(counting) = server(folder.path(), Some(&conf)) else { return };
    let (code, report) = judged(&counting);
    assert_eq!(code, Some(0), "{report}");
    assert_eq!(report["library"], library().to_str().unwrap());
    assert_eq!(report["counts_in"], stats.to_str().unwrap());
    fs::remove_file(&stats).unwrap();
    let (code, report) = judged(&counting);
    assert_eq!(code, Some(1), "{report}");
    assert!(report["says"][1].as_str().unwrap().contains("was removed"), "{report}");

    let conf = print(None);
    let silent = server(folder.path(), Some(&conf)).unwrap();
    let (code, report) = judged(&silent);
    assert_eq!((code, &report["counts_in"]), (Some(0), &serde_json::Value::Null), "{report}");

    // No file of counters can be made there.
    let conf = print(Some(&path("none/stats")));
    let hindered = server(folder.path(), Some(&conf)).unwrap();
    let (code, report) = judged(&hindered);
    assert_eq!(code, Some(1), "{report}");
    assert!(report["says"][1].as_str().unwrap().contains("could not make"), "{report}");
    // One that others may write it cannot count in, either.
    fs::create_dir(path("none")).unwrap();
    fs::write(path("none/stats"), "").unwrap();
    let (code, report) = judged(&hindered);
    assert_eq!(code, Some(1), "{report}");
    assert!(report["says"][1].as_str().unwrap().contains("could not open"), "{report}");

    let without = server(folder.path(), None).unwrap();
    let (code, report) = judged(&without);
    assert_eq!((code, &report["library"]), (Some(1), &serde_json::Value::Null), "{report}");
    assert!(report.to_string().contains("has no OPENSSL_CONF"), "{report}");

    let told = convoy(&["crypto", "--pid", "4294967295"]);
    assert_eq!(told.status.code(), Some(2), "{}", text(&told.stderr));
}

#[test]
fn who_may_count_in_a_file_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let stats = folder.path().join("stats");
    let file = stats.to_str().unwrap();
    let nobody = "65534";
    let is_root = nix::unistd::geteuid().is_root();
    let owner = if is_root { &["--owner", nobody][..] } else { &[] };
    let made = convoy(&[&["crypto", "--provider-stats", file, "--create"], owner].concat());
    assert!(made.status.success(), "{}", text(&made.stderr));
    let metadata = fs::metadata(&stats).unwrap();
    assert_eq!((metadata.len(), metadata.permissions().mode() & 0o777), (0, 0o600));
    assert_eq!(metadata.uid() == 65534, is_root);
    let again = convoy(&["crypto", "--provider-stats", file, "--create"]);
    assert_eq!(again.status.code(), Some(2), "an older file stays: {}", text(&again.stdout));
    let strange =
        convoy(&["crypto", "--provider-stats", "/x", "--create", "--owner", "no such user"]);
    assert_eq!(strange.status.code(), Some(2));
    assert!(text(&strange.stderr).contains("no user"), "{}", text(&strange.stderr));

    let empty = convoy(&["crypto", "--provider-stats", file]);
    assert_eq!(empty.status.code(), Some(2));
    let error = text(&empty.stderr);
    assert!(error.contains("is empty") && error.contains("mode 0600"), "{error}");
    if is_root {
        assert!(error.contains("(65534)") || error.contains("user 65534"), "{error}");
    }

    // The provider fills it, and it keeps its owner.
    let printed =
        convoy(&["openssl-conf", "--module", library().to_str().unwrap(), "--stats", file]);
    let conf = folder.path().join("convoy.cnf");
    fs::write(&conf, printed.stdout).unwrap();
    let Some(_) = providers(&conf) else { return };
    let counts = convoy(&["crypto", "--provider-stats", file]);
    assert!(counts.status.success(), "{}", text(&counts.stderr));
    assert!(text(&counts.stdout).contains("mode 0600"), "{}", text(&counts.stdout));
    assert_eq!(fs::metadata(&stats).unwrap().uid(), metadata.uid());
}
