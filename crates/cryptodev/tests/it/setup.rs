//! The library in C, built once, and devices of this process.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use convoy_cryptodev::{Cryptodev, Settings};

/// Software devices that the tests use, as far as their drivers are installed.
pub(crate) const DEVICES: [&str; 2] = ["crypto_openssl", "crypto_aesni_mb"];

/// `None`, which is told, where DPDK is not installed.
fn library() -> Option<&'static Path> {
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    LIBRARY.get_or_init(build).as_deref()
}

fn build() -> Option<PathBuf> {
    let is_there = Command::new("pkg-config").args(["--exists", "libdpdk >= 22.11"]).status();
    if !is_there.is_ok_and(|status| status.success()) {
        return None;
    }
    let path =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(concat!(env!("CARGO_PKG_NAME"), "-dpdk.so"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut make = Command::new("make");
    make.arg("-C").arg(root).args(["-s", "cryptodev"]);
    make.arg(format!("CRYPTODEV={}", path.display()));
    // What cargo sets for this process is not for that one.
    make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
    let output = make.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(path)
}

pub(crate) fn settings(device: &str) -> Settings {
    let library = library().map(Path::to_owned);
    Settings { library, device: device.to_owned(), sessions: 64, ..Settings::default() }
}

/// `None`, which is told, where DPDK or the driver is not installed.
pub(crate) fn open(settings: &Settings) -> Option<Cryptodev> {
    if settings.library.is_none() {
        println!("SKIPPED: DPDK is not installed, with its headers");
        return None;
    }
    match Cryptodev::open(settings) {
        Ok(device) => Some(device),
        Err(error) if settings.device.starts_with("crypto_aesni_mb") => {
            println!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}
