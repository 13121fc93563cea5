//! Every requirement of `docs/rfc.md` names tests that exist, or says why there is none.

use std::collections::BTreeMap;

use proc_macro2::Delimiter;

use crate::tokens::{Source, Token, is_test_path};
use crate::tree::{Finding, Tree};

/// The list of requirements.
const LIST: &str = "docs/rfc.md";

/// Reports rows without an answer, and tests that are not there.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(text) = tree.text(LIST) else {
        let mend = "list there what the RFCs ask for, and the test that holds it";
        return vec![Finding::new(LIST, 0, "is missing".to_owned(), mend)];
    };
    let mut findings = Vec::new();
    let mut tests = Tests { tree, known: BTreeMap::new() };
    let mut rows = 0;
    for (line, number) in text.lines().zip(1..) {
        let Some(cells) = cells(line) else { continue };
        rows += 1;
        let [_, requirement, answer] = cells[..] else {
            let what = format!("a row of {} cells", cells.len());
            findings.push(Finding::new(LIST, number, what, "write section, requirement, answer"));
            continue;
        };
        if answer.is_empty() {
            let what = format!("nothing holds {requirement:?}");
            let mend = "name a test as `crate::file::test`, or say why there is none";
            findings.push(Finding::new(LIST, number, what, mend));
        }
        for name in answer.split('`').skip(1).step_by(2).filter(|name| name.contains("::")) {
            if let Err(what) = tests.find(name) {
                let mend = "correct the name, or write the test";
                findings.push(Finding::new(LIST, number, format!("{name}: {what}"), mend));
            }
        }
    }
    if rows == 0 {
        let what = "lists no requirement".to_owned();
        findings.push(Finding::new(LIST, 0, what, "write a table of three columns"));
    }
    findings
}

/// The cells of a table's row; `None` for other lines, heads and rulers.
fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.strip_prefix('|')?.strip_suffix('|')?;
    let cells: Vec<_> = inner.split('|').map(str::trim).collect();
    let is_ruler = cells.iter().all(|cell| cell.chars().all(|c| matches!(c, '-' | ':')));
    let is_head = cells.first() == Some(&"section");
    (!is_ruler && !is_head).then_some(cells)
}

/// The names of functions in test code, by file.
struct Tests<'a> {
    tree: &'a Tree,
    known: BTreeMap<String, Vec<String>>,
}

impl Tests<'_> {
    /// Checks that there is a test `crate::file::name`, in `tests/it/file.rs` of the crate or in the unit
    /// tests of its module `file`.
    fn find(&mut self, name: &str) -> Result<(), String> {
        let parts: Vec<_> = name.split("::").collect();
        let [krate, modules @ .., test] = &parts[..] else { return Err("is no path".to_owned()) };
        if modules.is_empty() {
            return Err("does not say in which file".to_owned());
        }
        let folder = format!("crates/{krate}");
        let module = modules.join("/");
        let files = [
            format!("{folder}/tests/it/{module}.rs"),
            format!("{folder}/tests/it/{module}/mod.rs"),
            format!("{folder}/tests/{module}.rs"),
            format!("{folder}/src/{module}.rs"),
            format!("{folder}/src/{module}/mod.rs"),
            format!("{folder}/src/{module}/tests.rs"),
        ];
        let there: Vec<_> = files.into_iter().filter(|f| self.tree.text(f).is_some()).collect();
        if there.is_empty() {
            return Err(format!("there is no such file in {folder}"));
        }
        if there.iter().any(|file| self.names(file).iter().any(|known| known == test)) {
            return Ok(());
        }
        Err(format!("no such test in {}", there.join(", ")))
    }

    fn names(&mut self, file: &str) -> &[String] {
        let tree = self.tree;
        self.known.entry(file.to_owned()).or_insert_with(|| {
            let source = tree.text(file).and_then(|text| Source::parse(text).ok());
            source.map_or_else(Vec::new, |source| functions(file, &source))
        })
    }
}

/// Functions marked as tests, those in `proptest!` included.
fn functions(path: &str, source: &Source<'_>) -> Vec<String> {
    let ranges = source.test_items();
    let in_tests = |at| is_test_path(path) || ranges.iter().any(|range| range.contains(&at));
    let names = (0..source.tokens.len()).filter(|at| source.is_ident(*at, "fn") && in_tests(*at));
    // Behind `#[test]`, perhaps with other attributes between, but not behind another item.
    let is_between = |at: &usize| {
        let token = &source.tokens[*at].token;
        !matches!(
            token,
            Token::Open(Delimiter::Brace) | Token::Close(Delimiter::Brace) | Token::Punct(';')
        )
    };
    let marked =
        |at: &usize| (0..*at).rev().take_while(is_between).any(|at| source.is_ident(at, "test"));
    names.filter(marked).filter_map(|at| source.ident(at + 1).map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "| section | requirement | held by |\n|---|---|---|\n";

    fn whats(rows: &str) -> Vec<String> {
        let list = format!("{HEAD}{rows}");
        let tree = Tree::of(&[
            (LIST, &list),
            ("crates/a/tests/b.rs", "#[test]\nfn holds() {}\nfn helps() {}\n"),
            (
                "crates/a/src/c.rs",
                "#[cfg(test)]\nmod tests { proptest! { #[test] fn deep(x in 0..9) {} } }",
            ),
        ]);
        check(&tree).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn tests_that_exist_and_reasons_pass() {
        let rows =
            "| 1 | one | `a::b::holds`, `a::c::deep` |\n| 2 | two | there is no `TUN` here |\n";
        assert_eq!(whats(rows), Vec::<String>::new());
    }

    #[test]
    fn tests_that_do_not_exist_are_reported() {
        assert_eq!(
            whats("| 1 | one | `a::b::gone` |\n"),
            ["a::b::gone: no such test in crates/a/tests/b.rs"]
        );
        assert_eq!(whats("| 1 | one | `a::b::helps` |\n").len(), 1, "a function, but no test");
        assert_eq!(
            whats("| 1 | one | `a::x::holds` |\n"),
            ["a::x::holds: there is no such file in crates/a"]
        );
        assert_eq!(whats("| 1 | one | `a::holds` |\n"), ["a::holds: does not say in which file"]);
    }

    #[test]
    fn rows_without_an_answer_are_reported() {
        assert_eq!(whats("| 1 | one | |\n"), ["nothing holds \"one\""]);
        assert_eq!(whats("| 1 | one |\n"), ["a row of 2 cells"]);
        assert_eq!(whats(""), ["lists no requirement"]);
        assert_eq!(check(&Tree::of(&[])).len(), 1);
    }
}
