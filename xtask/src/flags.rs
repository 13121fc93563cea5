//! Builds whose RUSTFLAGS come from outside, as packagers set them to harden programs.

use std::process::{Command, Stdio};

use anyhow::Result;

use crate::report::Tally;
use crate::workspace::{Workspace, cargo};

/// Flags that have nothing to do with the portable tier.
const HARDENING: &str = "-C force-frame-pointers=yes";
/// Beginning of the refusal of convoy-crypto.
const REFUSAL: &str = "the portable tier would use special instructions";

/// Flag that asks convoy-crypto for a portable tier without special instructions.
const MUST_BE_SOFT: &str = "--cfg convoy_portable_must_be_soft";

/// Such flags alone build, with a portable tier that is not soft; with what `make` adds to them it is.
pub(crate) fn run(workspace: &Workspace) -> Result<Tally> {
    let (builds, said) = check(workspace, HARDENING)?;
    if !builds {
        println!("{said}");
        return Ok(Tally::fail(format!("flags: RUSTFLAGS={HARDENING:?} was refused")));
    }
    let (builds, said) = check(workspace, &format!("{HARDENING} {MUST_BE_SOFT}"))?;
    if builds || !said.contains(REFUSAL) {
        println!("{said}");
        let what = "flags: a portable tier that is not soft passed for one that is";
        return Ok(Tally::fail(what.to_owned()));
    }
    let make = Command::new("make")
        .args(["--silent", "rustflags"])
        .env("RUSTFLAGS", HARDENING)
        .current_dir(&workspace.root)
        .output()?;
    let flags = String::from_utf8(make.stdout)?;
    if !flags.starts_with(HARDENING) {
        return Ok(Tally::fail(format!("flags: make loses {HARDENING:?} and says {flags:?}")));
    }
    let (builds, said) = check(workspace, &format!("{} {MUST_BE_SOFT}", flags.trim()))?;
    if !builds {
        println!("{said}");
        let what =
            format!("flags: with RUSTFLAGS={:?} the portable tier is not soft", flags.trim());
        return Ok(Tally::fail(what));
    }
    println!("flags: good");
    Ok(Tally::pass())
}

/// Compiles convoy-crypto with these flags; returns true if that works, and the compiler's output.
fn check(workspace: &Workspace, flags: &str) -> Result<(bool, String)> {
    let output = cargo()
        .args(["check", "--quiet", "--package", "convoy-crypto", "--target-dir"])
        .arg(workspace.target.join("flags"))
        .env("RUSTFLAGS", flags)
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .current_dir(&workspace.root)
        .stdin(Stdio::null())
        .output()?;
    Ok((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
}
