//! Dependencies between crates: the table in ARCHITECTURE.md against the manifests.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::tree::Finding;

/// The file that draws the layers.
pub(crate) const DRAWING: &str = "ARCHITECTURE.md";
const BEGIN: &str = "<!-- layers: begin -->";
const END: &str = "<!-- layers: end -->";

/// Kind of a package's dependency on another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// In what is shipped, or in its build script.
    Normal,
    /// In tests, examples and benches only.
    Dev,
}

/// A member of the workspace, by the name of its folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) manifest: String,
    /// Root source files of its libraries, programs and build script.
    pub(crate) roots: Vec<String>,
    pub(crate) uses: Vec<(String, Use)>,
}

impl Package {
    /// Root source files of what is shipped, those that another package has already left out.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &str> {
        let folder = format!("{}src/", self.manifest.trim_end_matches("Cargo.toml"));
        self.roots.iter().map(String::as_str).filter(move |root| root.starts_with(&folder))
    }
}

/// One row of the drawing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Row {
    line: usize,
    may_use: BTreeSet<String>,
    everything: bool,
    dev_only: bool,
}

type Table = BTreeMap<String, Row>;

/// Reports every edge that the table in `drawing` does not allow, and every fault of the table.
pub(crate) fn check(drawing: Option<&str>, packages: &[Package]) -> Vec<Finding> {
    let Some(drawing) = drawing else {
        let what = "is missing, and with it the table of layers".to_owned();
        return vec![Finding::new(DRAWING, 0, what, format!("write it with {BEGIN} and {END}"))];
    };
    let (table, mut findings) = match parse(drawing) {
        Ok(parsed) => parsed,
        Err(error) => {
            let mend = format!("put rows like \"io → packet, wire\" between {BEGIN} and {END}");
            return vec![Finding::new(DRAWING, 0, error.to_string(), mend)];
        }
    };
    findings.extend(faults(&table, packages));
    for package in packages {
        let Some(row) = table.get(&package.name) else {
            let what = format!("crate {} is not in the table of {DRAWING}", package.name);
            let mend = "add a row that says what it may use";
            findings.push(Finding::new(&package.manifest, 0, what, mend));
            continue;
        };
        for (used, kind) in &package.uses {
            findings.extend(refused(&table, package, row, used, *kind));
        }
        let is_used = |name: &&String| package.uses.contains(&((*name).clone(), Use::Normal));
        for unused in row.may_use.iter().filter(|name| !is_used(name) && table.contains_key(*name))
        {
            let what = format!("{} may use {unused}, and does not", package.name);
            findings.push(Finding::new(DRAWING, row.line, what, "take it out of the row"));
        }
    }
    findings
}

fn refused(table: &Table, user: &Package, row: &Row, used: &str, kind: Use) -> Option<Finding> {
    let target = table.get(used)?;
    let name = &user.name;
    let finding = |what: String, mend: &str| Some(Finding::new(&user.manifest, 0, what, mend));
    match kind {
        Use::Normal if target.dev_only => finding(
            format!("{name} uses {used}, which is for tests only"),
            "move it to [dev-dependencies]",
        ),
        Use::Normal if row.everything || row.may_use.contains(used) => None,
        Use::Normal => finding(
            format!("{name} may not use {used}"),
            "move the shared part down, pass it in from above, or change the table and say why",
        ),
        Use::Dev if target.dev_only || !reaches(table, used, name) => None,
        Use::Dev => finding(
            format!("the tests of {name} may not use {used}, which stands above it"),
            "move the test up, or use testkit",
        ),
    }
}

/// True if `from` may use `to` over any number of steps.
fn reaches(table: &Table, from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(name) = open.pop() {
        let Some(row) = table.get(name).filter(|_| seen.insert(name)) else { continue };
        if row.may_use.contains(to) || (row.everything && name != to) {
            return true;
        }
        open.extend(row.may_use.iter().map(String::as_str));
    }
    false
}

/// Rows that name crates which do not exist, and cycles.
fn faults(table: &Table, packages: &[Package]) -> Vec<Finding> {
    let exists = |name: &str| packages.iter().any(|package| package.name == name);
    let mut findings = Vec::new();
    for (name, row) in table {
        for unknown in row.may_use.iter().chain([name]).filter(|name| !exists(name)) {
            let what = format!("the table names {unknown}, which is no member of the workspace");
            findings.push(Finding::new(DRAWING, row.line, what, "mend the name or drop it"));
        }
        if reaches(table, name, name) {
            let what = format!("{name} may, over some steps, use itself");
            findings.push(Finding::new(DRAWING, row.line, what, "cut one edge of the cycle"));
        }
    }
    findings
}

fn parse(drawing: &str) -> Result<(Table, Vec<Finding>)> {
    let mut lines = drawing.lines().enumerate().skip_while(|(_, line)| line.trim() != BEGIN);
    lines.next().with_context(|| format!("has no line {BEGIN}"))?;
    let mut table = Table::new();
    let mut findings = Vec::new();
    for (index, line) in lines {
        let line = line.trim();
        if line == END {
            return Ok((table, findings));
        }
        if line.is_empty() || line.starts_with("```") {
            continue;
        }
        let Some((users, used)) = line.split_once('→').or_else(|| line.split_once("->")) else {
            let what = format!("{line:?} is no row of the table");
            findings.push(Finding::new(DRAWING, index + 1, what, "write: user, user → used, used"));
            continue;
        };
        for user in users.split(',') {
            let (name, row) = parse_row(user.trim(), used, index + 1);
            if table.insert(name.clone(), row).is_some() {
                let what = format!("{name} has two rows");
                findings.push(Finding::new(DRAWING, index + 1, what, "keep one"));
            }
        }
    }
    bail!("has no line {END} behind {BEGIN}")
}

fn parse_row(user: &str, used: &str, line: usize) -> (String, Row) {
    let (name, dev_only) = match user.strip_suffix("(tests only)") {
        Some(name) => (name.trim(), true),
        None => (user, false),
    };
    let mut row = Row { line, dev_only, ..Row::default() };
    for name in used.split(',').map(str::trim) {
        match name {
            "–" | "-" | "" => {}
            "everything" => row.everything = true,
            _ => {
                row.may_use.insert(name.to_owned());
            }
        }
    }
    (name.to_owned(), row)
}

/// Reads the workspace's members from the output of `cargo metadata --no-deps`.
pub(crate) fn packages(metadata: &Value) -> Result<Vec<Package>> {
    let root = metadata["workspace_root"].as_str().context("cargo metadata names no root")?;
    let listed = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let relative =
        |path: &str| path.strip_prefix(root).unwrap_or(path).trim_start_matches('/').to_owned();
    let folder = |name: &str| name.strip_prefix("convoy-").unwrap_or(name).to_owned();
    let names: BTreeSet<&str> = listed.iter().filter_map(|one| one["name"].as_str()).collect();
    let mut packages = Vec::new();
    for one in listed {
        let mut package = Package {
            name: folder(one["name"].as_str().context("a package has no name")?),
            manifest: relative(one["manifest_path"].as_str().unwrap_or_default()),
            roots: Vec::new(),
            uses: Vec::new(),
        };
        for target in one["targets"].as_array().into_iter().flatten() {
            let kinds = || target["kind"].as_array().into_iter().flatten();
            let is_test =
                kinds().any(|kind| matches!(kind.as_str(), Some("test" | "example" | "bench")));
            if let Some(path) = target["src_path"].as_str().filter(|_| !is_test) {
                package.roots.push(relative(path));
            }
        }
        for dependency in one["dependencies"].as_array().into_iter().flatten() {
            let name = dependency["name"].as_str().unwrap_or_default();
            if names.contains(name) {
                let kind = if dependency["kind"] == "dev" { Use::Dev } else { Use::Normal };
                package.uses.push((folder(name), kind));
            }
        }
        packages.push(package);
    }
    Ok(packages)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "# Layers\n<!-- layers: begin -->\n```\nlow, other → –\nmid → low\n\
        top → everything\nkit (tests only) → low\n```\n<!-- layers: end -->\n";

    /// All that the table allows `mid`.
    const MID: [(&str, Use); 1] = [("low", Use::Normal)];

    fn package(name: &str, uses: &[(&str, Use)]) -> Package {
        Package {
            name: name.to_owned(),
            manifest: format!("crates/{name}/Cargo.toml"),
            roots: Vec::new(),
            uses: uses.iter().map(|(name, kind)| (name.to_string(), *kind)).collect(),
        }
    }

    fn workspace(mid: &[(&str, Use)], low: &[(&str, Use)]) -> Vec<Package> {
        vec![
            package("low", low),
            package("other", &[]),
            package("mid", mid),
            package("top", &[("mid", Use::Normal), ("other", Use::Normal)]),
            package("kit", &[("low", Use::Normal)]),
        ]
    }

    fn whats(findings: &[Finding]) -> Vec<&str> {
        findings.iter().map(|finding| finding.what.as_str()).collect()
    }

    #[test]
    fn edges_of_the_table_pass() {
        let low = [("kit", Use::Dev)];
        let mid = [("low", Use::Normal), ("kit", Use::Dev), ("other", Use::Dev)];
        assert_eq!(check(Some(TABLE), &workspace(&mid, &low)), []);
    }

    #[test]
    fn edge_that_is_allowed_and_not_used_is_reported_in_the_table() {
        for mid in [&[][..], &[("low", Use::Dev)]] {
            let findings = check(Some(TABLE), &workspace(mid, &[]));
            assert_eq!(whats(&findings), ["mid may use low, and does not"]);
            assert_eq!((&*findings[0].path, findings[0].line), (DRAWING, 5));
        }
    }

    #[test]
    fn edge_outside_the_table_is_reported_in_the_manifest() {
        let findings =
            check(Some(TABLE), &workspace(&[("low", Use::Normal), ("other", Use::Normal)], &[]));
        assert_eq!(whats(&findings), ["mid may not use other"]);
        assert_eq!(findings[0].path, "crates/mid/Cargo.toml");
    }

    #[test]
    fn tests_may_not_use_a_crate_above_them() {
        let findings = check(Some(TABLE), &workspace(&MID, &[("mid", Use::Dev)]));
        assert_eq!(whats(&findings), ["the tests of low may not use mid, which stands above it"]);
        let findings =
            check(Some(TABLE), &workspace(&[("low", Use::Normal), ("top", Use::Dev)], &[]));
        assert_eq!(whats(&findings), ["the tests of mid may not use top, which stands above it"]);
    }

    #[test]
    fn test_crate_in_shipped_code_is_reported() {
        let findings =
            check(Some(TABLE), &workspace(&[("low", Use::Normal), ("kit", Use::Normal)], &[]));
        assert_eq!(whats(&findings), ["mid uses kit, which is for tests only"]);
        // Also where the row says "everything".
        let mut packages = workspace(&MID, &[]);
        packages[3].uses.push(("kit".to_owned(), Use::Normal));
        assert_eq!(
            whats(&check(Some(TABLE), &packages)),
            ["top uses kit, which is for tests only"]
        );
    }

    #[test]
    fn crate_without_row_and_row_without_crate_are_reported() {
        let mut packages = workspace(&MID, &[]);
        packages[1].name = "new".to_owned();
        let findings = check(Some(TABLE), &packages);
        assert_eq!(
            whats(&findings),
            [
                "the table names other, which is no member of the workspace",
                "crate new is not in the table of ARCHITECTURE.md"
            ]
        );
    }

    #[test]
    fn cycle_and_double_row_and_broken_row_are_reported() {
        let table = TABLE.replace("low, other → –", "low → mid\nother -> -\nother -> -\nrubbish");
        let findings = check(Some(&table), &workspace(&MID, &[]));
        let whats = whats(&findings);
        assert!(whats.contains(&"low may, over some steps, use itself"), "{whats:?}");
        assert!(whats.contains(&"other has two rows"), "{whats:?}");
        assert!(whats.contains(&"\"rubbish\" is no row of the table"), "{whats:?}");
    }

    #[test]
    fn drawing_without_markers_is_reported() {
        assert_eq!(check(None, &[]).len(), 1);
        assert_eq!(check(Some("no table"), &[]).len(), 1);
        assert_eq!(check(Some("<!-- layers: begin -->\na → –\n"), &[]).len(), 1);
    }

    #[test]
    fn members_are_read_from_metadata() {
        let metadata = serde_json::json!({
            "workspace_root": "/src",
            "packages": [
                { "name": "convoy-io", "manifest_path": "/src/crates/io/Cargo.toml",
                  "targets": [
                    { "kind": ["lib"], "src_path": "/src/crates/io/src/lib.rs" },
                    { "kind": ["test"], "src_path": "/src/crates/io/tests/a.rs" }],
                  "dependencies": [
                    { "name": "convoy-wire", "kind": null },
                    { "name": "convoy-testkit", "kind": "dev" },
                    { "name": "libc", "kind": null }] },
                { "name": "convoy-wire", "manifest_path": "/src/crates/wire/Cargo.toml" },
                { "name": "convoy-testkit", "manifest_path": "/src/crates/testkit/Cargo.toml" },
            ]
        });
        let packages = packages(&metadata).unwrap();
        assert_eq!(packages[0].name, "io");
        assert_eq!(packages[0].roots, ["crates/io/src/lib.rs"]);
        assert_eq!(
            packages[0].uses,
            [("wire".to_owned(), Use::Normal), ("testkit".to_owned(), Use::Dev)]
        );
    }
}
