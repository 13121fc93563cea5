//! Scope of a change: the packages that it touches, all that use them, and the steps that tell of these.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::layers::Package;
use crate::tree::Tree;
use crate::workspace::Workspace;

/// Most names in one line.
const NAMES_MAX: usize = 4;

/// Packages and steps that the gate is to run for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Concerned {
    /// Since when, as the user said it.
    since: String,
    /// Number of files that differ.
    files: usize,
    /// The packages that a file of the change belongs to, or that read one.
    touched: BTreeSet<String>,
    /// These and all that use them.
    packages: BTreeSet<String>,
    /// Steps that files outside of packages concern.
    steps: BTreeSet<&'static str>,
}

impl Concerned {
    /// True if a package is concerned.
    pub(crate) fn has(&self, package: &str) -> bool {
        self.packages.contains(package)
    }

    /// True if a step of the gate can tell of the change.
    pub(crate) fn needs(&self, step: &str) -> bool {
        if self.steps.contains(step) {
            return true;
        }
        match step {
            "audit" => false,
            "flags" | "kernels" => self.touched.contains("crypto"),
            "ports" => ["crypto", "ports", "xtask"].iter().any(|name| self.touched.contains(*name)),
            "instructions" => {
                ["crypto", "ipsec", "bench", "ports", "xtask"].iter().any(|name| self.has(name))
            }
            "clippy" | "test" => !self.packages.is_empty(),
            "tiers" => self.has("crypto") || self.has("ipsec"),
            "c-library" => self.has("capi"),
            "ipsec-mb" => self.has("ipsec-mb"),
            "rust-user" => ["crypto", "packet", "rustls", "wire"].iter().any(|name| self.has(name)),
            "interop" => self.has("convoy"),
            // Seconds, and about files of all kinds.
            _ => true,
        }
    }

    /// Lists what is run and what is left out.
    pub(crate) fn tell<'a>(
        &self,
        workspace: &Workspace,
        left_out: impl Iterator<Item = &'a str>,
    ) -> String {
        let list = |names: &mut dyn Iterator<Item = &str>| {
            let names: Vec<&str> = names.collect();
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        };
        let all = workspace.packages.iter().map(|package| &*package.name);
        format!(
            "since {}: {} files differ; packages they touch: {}\n\
             tested: {}\n\
             left out, as nothing they use differs: packages {}; steps {}",
            self.since,
            self.files,
            list(&mut self.touched.iter().map(String::as_str)),
            list(&mut self.packages.iter().map(String::as_str)),
            list(&mut all.filter(|name| !self.has(name))),
            list(&mut left_out.into_iter()),
        )
    }
}

/// Finds what differs between a commit and the one that is checked out.
pub(crate) fn concerned(workspace: &Workspace, reference: &str) -> Result<Concerned> {
    let root = &workspace.root;
    let commit = format!("{reference}^{{commit}}");
    let found = git(root, &["rev-parse", "--verify", "--quiet", "--end-of-options", &commit])?;
    ensure!(
        found.is_some(),
        "--since: there is no commit {reference:?}; name one that git log shows, as in --since HEAD~1"
    );
    let status = git(root, &["status", "--porcelain"])?.context("git status failed")?;
    if !status.is_empty() {
        let files: Vec<&str> = status.lines().filter_map(|line| line.get(3..)).collect();
        let more = if files.len() > NAMES_MAX { ", …" } else { "" };
        let files = files[..files.len().min(NAMES_MAX)].join(", ");
        bail!("--since: {files}{more} differ from HEAD; commit them or stash them first");
    }
    let commit = found.unwrap_or_default();
    let differ = git(root, &["diff", "--name-only", "--no-renames", commit.trim(), "HEAD"])?;
    let differ = differ.context("git diff failed")?;
    let files: Vec<&str> = differ.lines().collect();
    let outside = read_from_outside(&Tree::read(root)?, &workspace.packages);
    Ok(Concerned { since: reference.to_owned(), ..of(&files, &workspace.packages, &outside) })
}

/// Output of git; `None` if it fails.
fn git(root: &Path, arguments: &[&str]) -> Result<Option<String>> {
    let output = Command::new("git").args(arguments).current_dir(root).output();
    let output = output.context("--since: cannot run git")?;
    let text = || String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(output.status.success().then(text))
}

fn of(
    files: &[&str],
    packages: &[Package],
    outside: &BTreeMap<String, BTreeSet<String>>,
) -> Concerned {
    let mut found = Concerned { files: files.len(), ..Concerned::default() };
    for file in files {
        let readers = outside.get(*file);
        found.touched.extend(readers.into_iter().flatten().cloned());
        match owner(file, packages) {
            Some(package) => {
                found.touched.insert(package.name.clone());
            }
            None => touch_outside(&mut found, file, packages, readers.is_some()),
        }
    }
    let is_touched = |root: &String| {
        owner(root, packages).is_some_and(|owner| found.touched.contains(&owner.name))
    };
    let of_its_sources = packages.iter().filter(|package| package.roots.iter().any(is_touched));
    let also: Vec<String> = of_its_sources.map(|package| package.name.clone()).collect();
    found.touched.extend(also);
    found.packages = with_users(&found.touched, packages);
    found
}

/// The package that a file belongs to.
fn owner<'a>(file: &str, packages: &'a [Package]) -> Option<&'a Package> {
    let folder = |package: &'a Package| Path::new(&package.manifest).parent();
    packages.iter().find(|package| folder(package).is_some_and(|f| Path::new(file).starts_with(f)))
}

/// Folders of which no step of the gate runs anything.
const LONG_INTEROP: &[&str] =
    &["interop/isatrap/", "interop/openssl-tests/", "interop/report/", "interop/throughput/"];

/// Notes what a file concerns that is of no package. What is not known here concerns everything.
fn touch_outside(found: &mut Concerned, file: &str, packages: &[Package], has_readers: bool) {
    let steps: &[&'static str] = match file {
        "deny.toml" => &["audit"],
        "clippy.toml" => &["clippy"],
        "Makefile" => &["flags", "c-library"],
        // The manual and what the checks of the source read; those run anyway.
        "rustfmt.toml" | ".gitignore" => &[],
        _ if file.ends_with(".md") || file.starts_with("docs/") => &[],
        _ if file.starts_with("LICENSE") || file.starts_with(".ci/") => &[],
        _ if LONG_INTEROP.iter().any(|folder| file.starts_with(folder)) => &[],
        _ if file.starts_with("interop/rust-user/") => &["rust-user"],
        _ if file.starts_with("interop/ipsec-mb/") => &["ipsec-mb"],
        _ if file.starts_with("interop/") => &["interop"],
        _ if file.starts_with("fuzz/") => {
            found.touched.insert("fuzz-targets".to_owned());
            &[]
        }
        _ if has_readers => &[],
        _ => {
            found.touched.extend(packages.iter().map(|package| package.name.clone()));
            &["audit", "flags", "c-library", "ipsec-mb", "interop"]
        }
    };
    found.steps.extend(steps);
}

/// These packages and all that use them, over any number of steps, in their tests too.
fn with_users(touched: &BTreeSet<String>, packages: &[Package]) -> BTreeSet<String> {
    let mut all: BTreeSet<String> = packages
        .iter()
        .map(|package| package.name.clone())
        .filter(|name| touched.contains(name))
        .collect();
    loop {
        let uses_one = |package: &&Package| package.uses.iter().any(|(used, _)| all.contains(used));
        let users: Vec<String> = packages
            .iter()
            .filter(uses_one)
            .map(|package| package.name.clone())
            .filter(|name| !all.contains(name))
            .collect();
        if users.is_empty() {
            return all;
        }
        all.extend(users);
    }
}

/// Files that a package's source names by a path out of its folder, and the packages that do.
fn read_from_outside(tree: &Tree, packages: &[Package]) -> BTreeMap<String, BTreeSet<String>> {
    let mut found = BTreeMap::<String, BTreeSet<String>>::new();
    for (path, text) in tree.rust() {
        let Some(package) = owner(path, packages) else { continue };
        let folders = [path, &package.manifest].map(|file| Path::new(file).parent());
        for name in text.split('"').filter(|part| part.contains("../") && !part.contains('\n')) {
            // By `include_str!` from the file, by programs from the package's folder.
            for base in folders.into_iter().flatten() {
                let Some(file) = normal(&base.join(name.trim_start_matches('/'))) else { continue };
                if tree.text(&file).is_some()
                    && owner(&file, packages).is_none_or(|owner| owner.name != package.name)
                {
                    found.entry(file).or_default().insert(package.name.clone());
                }
            }
        }
    }
    found
}

/// A path without `..`; `None` if it leads out of the repository.
fn normal(path: &Path) -> Option<String> {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir if !out.pop() => return None,
            Component::ParentDir | Component::CurDir => {}
            Component::Normal(name) => out.push(name),
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(out.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::Use;

    fn packages() -> Vec<Package> {
        let package = |name: &str, uses: &[(&str, Use)]| Package {
            name: name.to_owned(),
            manifest: format!("crates/{name}/Cargo.toml"),
            roots: Vec::new(),
            uses: uses.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect(),
        };
        vec![
            package("wire", &[]),
            package("ipsec", &[("wire", Use::Normal)]),
            package("lab", &[]),
            package("convoy", &[("ipsec", Use::Normal), ("lab", Use::Dev)]),
            package("capi", &[]),
            package("fuzz-targets", &[("wire", Use::Normal)]),
        ]
    }

    fn concerned_by(files: &[&str]) -> Concerned {
        of(files, &packages(), &BTreeMap::new())
    }

    fn names(concerned: &Concerned) -> String {
        concerned.packages.iter().cloned().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn users_are_concerned_over_any_number_of_steps_and_by_their_tests() {
        assert_eq!(names(&concerned_by(&["crates/ipsec/src/spd.rs"])), "convoy ipsec");
        assert_eq!(names(&concerned_by(&["crates/lab/README"])), "convoy lab");
        let wire = concerned_by(&["crates/wire/tests/it/main.rs"]);
        assert_eq!(names(&wire), "convoy fuzz-targets ipsec wire");
        assert!(wire.needs("tiers") && wire.needs("interop") && wire.needs("test"));
        assert!(!wire.needs("c-library") && !wire.needs("audit") && !wire.needs("flags"));
        let capi = concerned_by(&["crates/capi/src/lib.rs"]);
        assert!(capi.needs("c-library") && !capi.needs("interop"));
    }

    #[test]
    fn packages_of_one_root_are_concerned_together() {
        let mut packages = packages();
        let twin = |name: &str| Package {
            name: name.to_owned(),
            manifest: format!("crates/{name}/Cargo.toml"),
            roots: vec!["crates/ipsec-mb/src/lib.rs".to_owned()],
            uses: Vec::new(),
        };
        packages.extend(["ipsec-mb", "ipsec-mb-1"].map(twin));
        let concerned = of(&["crates/ipsec-mb/src/check.rs"], &packages, &BTreeMap::new());
        assert_eq!(names(&concerned), "ipsec-mb ipsec-mb-1");
        assert!(concerned.needs("ipsec-mb") && !concerned.needs("c-library"));
        assert!(concerned_by(&["interop/ipsec-mb/run.sh"]).needs("ipsec-mb"));
    }

    #[test]
    fn files_outside_of_packages_concern_what_reads_them_or_everything() {
        let docs = concerned_by(&["README.md", "docs/rfc.md"]);
        assert!(docs.packages.is_empty() && docs.needs("words") && !docs.needs("clippy"));
        assert_eq!(names(&concerned_by(&["Cargo.lock"])).split(' ').count(), 6);
        assert_eq!(names(&concerned_by(&["fuzz/seeds/a/1"])), "fuzz-targets");
        assert!(concerned_by(&["interop/harness.py"]).needs("interop"));
        let unit = "systemd/convoy.service.in";
        let outside = [(unit.to_owned(), BTreeSet::from(["lab".to_owned()]))].into();
        assert_eq!(names(&of(&[unit], &packages(), &outside)), "convoy lab");
    }

    #[test]
    fn what_a_package_reads_from_outside_is_found() {
        let tree = Tree::of(&[
            ("systemd/convoy.service.in", ""),
            ("crates/lab/data", ""),
            (
                "crates/convoy/tests/it/unit.rs",
                "include_str!(\"../../../../systemd/convoy.service.in\")",
            ),
            (
                "crates/convoy/src/lib.rs",
                "Path::new(HERE).join(\"../lab/data\"); \"../src/lib.rs\"",
            ),
        ]);
        let found = read_from_outside(&tree, &packages());
        let files: Vec<&str> = found.keys().map(String::as_str).collect();
        assert_eq!(files, ["crates/lab/data", "systemd/convoy.service.in"]);
    }

    #[test]
    fn unknown_commits_are_refused_in_one_line() {
        let workspace = Workspace::load().unwrap();
        let error = concerned(&workspace, "no-such-commit").unwrap_err().to_string();
        assert!(error.starts_with("--since: there is no commit \"no-such-commit\"; name one"));
        assert_eq!(error.lines().count(), 1);
    }
}
