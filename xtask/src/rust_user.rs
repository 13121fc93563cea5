//! A program outside the workspace that depends on the library crates.

use std::env;

use anyhow::{Context as _, Result};

use crate::ci::Gate;
use crate::report::Tally;
use crate::test_steps::tests;
use crate::workspace::cargo;

/// Where it lies.
const MANIFEST: &str = "interop/rust-user/Cargo.toml";

/// Builds it as any other program is built, with none of the workspace's flags, and runs its tests and the examples of the
/// crates' READMEs.
pub(crate) fn run(gate: &Gate) -> Result<Tally> {
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
