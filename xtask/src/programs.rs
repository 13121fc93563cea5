//! Products of one build of the workspace: the program of every test, and programs that tests and oracles run.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::layers::Package;
use crate::workspace::{Workspace, cargo};

/// A program of tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    /// The package, by the name of its folder.
    pub(crate) package: String,
    /// The name of its target: `it`, or that of the library or program whose unit tests it has.
    pub(crate) name: String,
    path: PathBuf,
    /// The folder of the package, where cargo, too, runs it.
    folder: PathBuf,
}

impl Program {
    /// Name of the program in the gate.
    pub(crate) fn title(&self) -> String {
        format!("{} ({})", self.package, self.name)
    }

    /// Runs all its tests, as `cargo test -- --show-output` would.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.arg("--show-output").current_dir(&self.folder);
        command.env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}

/// Builds everything that tests need, in one call, so that one set of features serves all; `None` if it
/// does not build.
pub(crate) fn build(workspace: &Workspace) -> Result<Option<Vec<Program>>> {
    let mut command = cargo();
    command
        .args(["test", "--workspace", "--tests", "--no-run", "--locked"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(&workspace.root)
        .stderr(Stdio::inherit());
    let output = command.output().context("cannot run cargo test")?;
    if !output.status.success() {
        return Ok(None);
    }
    let text = String::from_utf8(output.stdout)?;
    let programs = programs(&text, &workspace.root, &workspace.packages)?;
    ensure!(!programs.is_empty(), "cargo test names no programs");
    Ok(Some(programs))
}

/// The test programs among the artefacts that cargo names, in its words.
fn programs(messages: &str, root: &Path, packages: &[Package]) -> Result<Vec<Program>> {
    let mut found = Vec::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line).context("cargo's messages are not JSON")?;
        let is_test =
            message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
        let Some(path) = message["executable"].as_str().filter(|_| is_test) else { continue };
        let manifest = message["manifest_path"].as_str().map(Path::new);
        let folder = manifest.and_then(Path::parent).context("an artefact without a manifest")?;
        let relative = folder.strip_prefix(root).unwrap_or(folder).join("Cargo.toml");
        let package = packages.iter().find(|package| Path::new(&package.manifest) == relative);
        let package =
            package.with_context(|| format!("{} is of no package", relative.display()))?;
        found.push(Program {
            package: package.name.clone(),
            name: message["target"]["name"].as_str().unwrap_or_default().to_owned(),
            path: PathBuf::from(path),
            folder: folder.to_owned(),
        });
    }
    Ok(found)
}

/// The program of a package among the artefacts that cargo names.
pub(crate) fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    messages.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_it = message["target"]["name"] == name && message["profile"]["test"] == false;
        message["executable"].as_str().filter(|_| is_it).map(PathBuf::from)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str) -> Package {
        Package {
            name: name.to_owned(),
            manifest: format!("crates/{name}/Cargo.toml"),
            roots: Vec::new(),
            uses: Vec::new(),
        }
    }

    fn artefact(package: &str, name: &str, is_test: bool, executable: Option<&str>) -> String {
        serde_json::json!({
            "reason": "compiler-artifact",
            "manifest_path": format!("/w/crates/{package}/Cargo.toml"),
            "target": { "name": name },
            "profile": { "test": is_test },
            "executable": executable,
        })
        .to_string()
    }

    #[test]
    fn test_programs_are_those_that_cargo_names_and_no_others() {
        let messages = [
            artefact("io", "convoy_io", false, None),
            artefact("io", "it", true, Some("/t/it-1")),
            artefact("convoy", "convoy", false, Some("/t/convoy")),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let packages = [package("io"), package("convoy")];
        let found = programs(&messages.join("\n"), Path::new("/w"), &packages).unwrap();
        let [one] = &found[..] else { panic!("{found:?}") };
        assert_eq!(one.title(), "io (it)");
        assert_eq!(one.folder, Path::new("/w/crates/io"));
        assert!(programs(&messages[1], Path::new("/w"), &packages[1..]).is_err());
        assert!(programs("no message", Path::new("/w"), &packages).is_err());
    }

    #[test]
    fn a_program_is_told_from_its_tests() {
        let messages =
            [artefact("a", "a", true, Some("/t/a-1")), artefact("a", "a", false, Some("/t/a"))];
        assert_eq!(executable(&messages.join("\n"), "a"), Some(PathBuf::from("/t/a")));
        assert_eq!(executable(&messages[0], "a"), None);
    }
}
