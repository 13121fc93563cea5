//! `make install`, `convoy enable` and `make uninstall`, in a root folder of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{preload, text};

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Files below a folder, sorted.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found.sort();
    found
}

struct Root {
    root: tempfile::TempDir,
    built: tempfile::TempDir,
}

impl Root {
    /// A host with units of both daemons, and what `make build` made: of what is not tested here, empty files.
    fn new() -> Self {
        let (root, built) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let units = root.path().join("usr/lib/systemd/system");
        fs::create_dir_all(&units).unwrap();
        for unit in ["strongswan", "ipsec"] {
            fs::write(units.join(format!("{unit}.service")), "[Service]\n").unwrap();
        }
        let from = [Path::new(env!("CARGO_BIN_EXE_convoy")), &preload().1];
        for (from, name) in from.iter().zip(["convoy", "libconvoy_xfrm_preload.so"]) {
            fs::hard_link(from, built.path().join(name))
                .or_else(|_| fs::copy(from, built.path().join(name)).map(drop))
                .unwrap();
        }
        fs::write(built.path().join("libconvoy_openssl.so"), "").unwrap();
        Self { root, built }
    }

    fn make(&self, goal: &str) -> Output {
        Command::new("make")
            .args(["-C", REPOSITORY, "STRIP=", "CRYPTODEV=none", goal])
            .arg(format!("DESTDIR={}", self.root.path().display()))
            .arg(format!("BUILT={}", self.built.path().display()))
            .output()
            .unwrap()
    }

    fn enable(&self, words: &[&str]) -> Output {
        let program = self.root.path().join("usr/local/bin/convoy");
        let command = &mut Command::new(program);
        command.arg("enable").args(words).arg("--root").arg(self.root.path()).output().unwrap()
    }
}

#[track_caller]
fn good(output: &Output) -> String {
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn what_is_installed_and_enabled_is_gone_after_uninstall() {
    let host = Root::new();
    let before = files(host.root.path());
    good(&host.make("install-files"));
    let installed = files(host.root.path());
    let below = |path: &str| host.root.path().join(path);
    for file in ["bin/convoy", "share/man/man1/convoy-run.1", "share/zsh/site-functions/_convoy"] {
        assert!(installed.contains(&below("usr/local").join(file)), "{file}: {installed:?}");
    }
    // No daemon is led to Convoy before the administrator asks for it.
    assert!(installed.iter().all(|path| !path.ends_with("50-convoy.conf")), "{installed:?}");

    let drop_in = below("etc/systemd/system/strongswan.service.d/50-convoy.conf");
    let told = good(&host.enable(&["strongswan"]));
    assert!(told.contains(&format!("wrote {}", drop_in.display())), "{told}");
    assert!(told.contains("systemctl restart strongswan"), "{told}");
    let line = "Environment=LD_PRELOAD=/usr/local/lib/convoy/libconvoy_xfrm.so\n";
    assert!(fs::read_to_string(&drop_in).unwrap().contains(line));
    assert!(good(&host.enable(&["strongswan"])).contains("was there already"));
    good(&host.enable(&["libreswan"]));
    good(&host.enable(&["strongswan", "--off"]));
    assert!(!drop_in.parent().unwrap().exists());

    good(&host.enable(&["strongswan"]));
    good(&host.make("uninstall"));
    assert_eq!(files(host.root.path()), before);
}

#[test]
fn a_site_file_that_was_changed_stays() {
    let host = Root::new();
    good(&host.make("install-files"));
    let site = host.root.path().join("etc/convoy/convoy.toml");
    fs::write(&site, "name = \"mine\"\n").unwrap();
    let output = host.make("uninstall");
    good(&output);
    assert!(text(&output.stderr).contains("left: "), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(&site).unwrap(), "name = \"mine\"\n");
}
