//! A program outside the workspace that depends on the library crates.

use std::env;
use std::process::Stdio;

use anyhow::{Context as _, Result};

use crate::gate::Gate;
use crate::report::Tally;
use crate::test_steps::tests;
use crate::workspace::{cargo, skip};

/// Path of its manifest.
const MANIFEST: &str = "interop/rust-user/Cargo.toml";

/// The crates that others may depend on.
const LIBRARIES: [&str; 4] = ["convoy-crypto", "convoy-packet", "convoy-rustls", "convoy-wire"];

/// Its tests, and the packages of the crates.
pub(crate) fn run(gate: &Gate) -> Result<Tally> {
    let mut sum = tests_of_user(gate)?;
    sum.add(packages(gate)?);
    Ok(sum)
}

/// Makes packages of the library crates, as a registry takes them.
fn packages(gate: &Gate) -> Result<Tally> {
    let workspace = &gate.workspace;
    let mut command = cargo();
    // What is in them is built by the tests.
    command.args(["package", "--no-verify", "--allow-dirty", "--target-dir"]);
    command.arg(workspace.target.join("rust-user"));
    command.args(LIBRARIES.iter().flat_map(|name| ["--package", *name]));
    let output = command.current_dir(&workspace.root).stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        return Ok(Tally::pass());
    }
    println!("{said}");
    // Cargo asks the registry for what the crates depend on.
    if ["Could not resolve", "network failure", "failed to download"]
        .iter()
        .any(|s| said.contains(s))
    {
        return Ok(skip(
            "rust-user: packages: the registry of crates cannot be reached".to_owned(),
        ));
    }
    Ok(Tally::fail("rust-user: cargo package".to_owned()))
}

/// Builds it as any other program is built, with none of the workspace's flags, and runs its tests and the examples of the
/// crates' READMEs.
fn tests_of_user(gate: &Gate) -> Result<Tally> {
    let workspace = &gate.workspace;
    // Cargo looks for configuration above the folder in which it runs.
    let elsewhere = env::temp_dir();
    let elsewhere =
        elsewhere.canonicalize().context("cannot find the folder for temporary files")?;
    let mut command = cargo();
    command.args(["test", "--locked", "--no-fail-fast", "--manifest-path"]);
    command.arg(workspace.root.join(MANIFEST)).args(["--", "--show-output"]);
    command.env("CARGO_TARGET_DIR", workspace.target.join("rust-user"));
    for flags in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_RUSTFLAGS", "RUSTDOCFLAGS"] {
        command.env_remove(flags);
    }
    command.current_dir(elsewhere);
    tests(workspace, "rust-user", &mut command, &mut |line| println!("{line}"))
}
