//! Checks of the crates that Convoy uses: advisories, licences, sources, generations.

use anyhow::Result;

use crate::report::Tally;
use crate::workspace::{Workspace, cargo, works};

/// The workspaces; each has a lock file of its own.
const MANIFESTS: &[&str] = &[
    "Cargo.toml",
    "fuzz/Cargo.toml",
    "interop/isatrap/Cargo.toml",
    "interop/rust-user/Cargo.toml",
];
/// Checks that need nothing but the lock file and the sources of the crates.
const OFFLINE: &[&str] = &["bans", "licenses", "sources"];

/// Asks cargo-deny, by the rules of deny.toml.
pub(crate) fn run(workspace: &Workspace) -> Result<Tally> {
    if !works(cargo().args(["deny", "--version"])) {
        let why =
            "audit: cargo-deny is not installed; get it with: cargo install --locked cargo-deny";
        return Ok(skip(why));
    }
    let mut tally = Tally::default();
    tally.add(check(workspace, OFFLINE)?);
    // Without the database nothing can be said about advisories, neither good nor bad.
    if works(cargo().args(["deny", "fetch", "db"]).current_dir(&workspace.root)) {
        tally.add(check(workspace, &["advisories"])?);
    } else {
        tally.add(skip("audit, advisories: the advisory database could not be fetched"));
    }
    Ok(tally)
}

fn check(workspace: &Workspace, what: &[&str]) -> Result<Tally> {
    let mut tally = Tally::default();
    for manifest in MANIFESTS {
        let status = cargo()
            // Of the exceptions in deny.toml no workspace needs all, which would be warned of.
            .args([
                "deny",
                "--log-level",
                "error",
                "--manifest-path",
                manifest,
                "--locked",
                "check",
            ])
            .args(what)
            .current_dir(&workspace.root)
            .status()?;
        if status.success() {
            tally.add(Tally::pass());
        } else {
            println!("    mend: update or replace the crate, or allow it in deny.toml and say why");
            tally.add(Tally::fail(format!("audit: {} of {manifest}", what.join(" "))));
        }
    }
    Ok(tally)
}

fn skip(why: &str) -> Tally {
    println!("SKIPPED: {why}");
    Tally::skip(why)
}
