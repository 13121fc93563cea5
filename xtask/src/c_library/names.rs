//! The C library defines its own names only, so it can be linked beside other libraries in Rust.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{LIBDIR, STATIC_NEEDS};
use crate::report::Tally;
use crate::workspace::works;

/// Prefix of every name.
const OWN: &str = "convoy_";

/// A static library in Rust that has the standard library in it, with optimisation over all of it.
const NEIGHBOUR: &str = r#"
use std::{panic, thread};

#[unsafe(no_mangle)]
pub extern "C" fn neighbour() -> i32 {
    panic::set_hook(Box::new(|_| {}));
    let is_caught = panic::catch_unwind(|| -> i32 { panic!("to be caught") }).is_err();
    let sum = thread::spawn(|| (1..=10).sum::<i32>()).join().unwrap_or(0);
    if is_caught { sum } else { 0 }
}
"#;

/// A program that uses both: the second case of the AES-GCM specification, and a panic that is caught.
const PROGRAM: &str = r#"
#include <convoy_crypto.h>
#include <string.h>

int neighbour(void);

int main(void)
{
    static const uint8_t zeros[16];
    static const uint8_t right[32] = {
        0x03, 0x88, 0xda, 0xce, 0x60, 0xb6, 0xa3, 0x92, 0xf3, 0x28, 0xc2, 0xb9, 0x71, 0xb2, 0xfe, 0x78,
        0xab, 0x6e, 0x47, 0xd4, 0x2c, 0xec, 0x13, 0xbd, 0xf5, 0x3a, 0x67, 0xb2, 0x12, 0x57, 0xbd, 0xdf,
    };
    uint8_t sealed[32];
    convoy_aead_key *key;
    if (convoy_gcm_key_new(CONVOY_TIER_AUTO, zeros, 16, &key) != CONVOY_OK) {
        return 1;
    }
    if (convoy_aead_encrypt(key, zeros, NULL, 0, zeros, sealed, 16, sealed + 16, 16) != CONVOY_OK) {
        return 2;
    }
    convoy_aead_key_free(key);
    if (memcmp(sealed, right, sizeof right) != 0) {
        return 3;
    }
    return neighbour() == 55 ? 0 : 4;
}
"#;

/// Checks that the installed files, and a shared library made of the archive, define nothing but the library's
/// functions; a program links the archive and another static library in Rust, and both work.
pub(super) fn check(prefix: &Path, folder: &Path) -> Result<Tally> {
    let (archive, shared) = (library(prefix, "a"), library(prefix, "so"));
    let made = folder.join("made-of-the-archive.so");
    let mut link = Command::new("cc");
    link.arg("-shared").arg("-o").arg(&made).arg("-Wl,--whole-archive").arg(&archive);
    link.arg("-Wl,--no-whole-archive").args(STATIC_NEEDS);
    let mut sum = Tally::default();
    sum.add(verdict("a shared library made of the archive", succeed(&mut link)));
    for (file, scope) in [(&archive, "--extern-only"), (&shared, "--dynamic"), (&made, "--dynamic")]
    {
        sum.add(verdict("names", own_names(file, scope)));
    }
    if !works(Command::new("rustc").arg("--version")) {
        sum.add(Tally::skip(
            "c-library: rustc is not there to make another static library".to_owned(),
        ));
        return Ok(sum);
    }
    let other = neighbour(folder)?;
    for (name, libraries) in [("before", [&archive, &other]), ("after", [&other, &archive])] {
        let program = folder.join(format!("neighbour-{name}"));
        sum.add(verdict("beside another library in Rust", beside(prefix, &program, libraries)));
    }
    Ok(sum)
}

fn library(prefix: &Path, ending: &str) -> PathBuf {
    prefix.join(LIBDIR).join(format!("libconvoy_crypto.{ending}"))
}

fn verdict(what: &str, outcome: Result<()>) -> Tally {
    match outcome {
        Ok(()) => Tally::pass(),
        Err(error) => Tally::fail(format!("c-library: {what}: {error:#}")),
    }
}

fn succeed(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let first = errors.lines().take(3).collect::<Vec<_>>().join("; ");
    ensure!(output.status.success(), "{command:?}: {}: {first}", output.status);
    Ok(())
}

/// Checks that the names that a file defines for others are the library's, and are there.
fn own_names(file: &Path, scope: &str) -> Result<()> {
    let output =
        Command::new("nm").args([scope, "--defined-only", "--format=posix"]).arg(file).output()?;
    ensure!(output.status.success(), "nm cannot read {}", file.display());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // Each line of a name has its kind as well; others name a member.
    let names = text.lines().filter_map(|line| line.split_once(' ').map(|(name, _)| name));
    let (own, foreign): (Vec<&str>, Vec<&str>) = names.partition(|name| name.starts_with(OWN));
    let some = foreign.iter().take(3).copied().collect::<Vec<_>>().join(", ");
    ensure!(!own.is_empty(), "{} defines no {OWN}*", file.display());
    ensure!(foreign.is_empty(), "{} defines {} other names: {some}", file.display(), foreign.len());
    println!("{}: {} names, all of them {OWN}*", file.display(), own.len());
    Ok(())
}

fn neighbour(folder: &Path) -> Result<PathBuf> {
    let (source, library) = (folder.join("neighbour.rs"), folder.join("libneighbour.a"));
    fs::write(&source, NEIGHBOUR)?;
    let mut command = Command::new("rustc");
    command.args(["--edition=2024", "--crate-type=staticlib", "-Clto", "-Copt-level=1"]);
    // Flags for the workspace's crates are none for this one.
    command.env_remove("RUSTFLAGS").arg(&source).arg("-o").arg(&library);
    succeed(&mut command)?;
    Ok(library)
}

fn beside(prefix: &Path, program: &Path, libraries: [&PathBuf; 2]) -> Result<()> {
    let source = program.with_extension("c");
    fs::write(&source, PROGRAM)?;
    let mut command = Command::new("cc");
    command.args(["-std=gnu99", "-Wall", "-Wextra", "-Werror", "-I"]).arg(prefix.join("include"));
    command.arg(&source).arg("-o").arg(program).args(libraries).args(STATIC_NEEDS);
    succeed(&mut command)?;
    succeed(&mut Command::new(program))
}
