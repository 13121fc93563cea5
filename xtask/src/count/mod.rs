//! Counts of what makes source hard to read: length, parameters without names, circles, doc comments that
//! begin with a question. Test code is left out.

mod docs;
mod parameters;

use std::fs;

use anyhow::{Context as _, Result};

use crate::circles::{self, Circles, Names};
use crate::layers::{self, Package};
use crate::modules::Modules;
use crate::ratchet::{self, Measured};
use crate::report::{self, Tally};
use crate::sizes;
use crate::tokens::Source;
use crate::tree::{Finding, Tree};
use crate::workspace::Workspace;

/// Rows of the lists of largest files and functions.
const LARGEST: usize = 10;

/// A place in a file, and what is there.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    path: String,
    line: usize,
    what: String,
}

/// Something with a size, by its name.
#[derive(Debug, PartialEq, Eq)]
struct Sized {
    name: String,
    lines: usize,
}

/// Code lines (no blanks, comments, tests) of a crate.
#[derive(Debug, PartialEq, Eq)]
struct PackageSize {
    name: String,
    files: usize,
    lines: usize,
}

/// All that is counted in files one by one.
#[derive(Debug, Default)]
struct Counts {
    packages: Vec<PackageSize>,
    files: Vec<Sized>,
    functions: Vec<Sized>,
    tuple_parameters: Vec<Place>,
    boolean_parameters: Vec<Place>,
    doc_comments: usize,
    questions: Vec<Place>,
}

/// Prints everything; `--places` lists each place, `--write` lowers the allowed numbers.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<Tally> {
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    if let Some(other) = arguments.iter().find(|a| !["--places", "--write"].contains(&&***a)) {
        anyhow::bail!("count: no option {other:?}; there are --places and --write");
    }
    let tree = Tree::read(&workspace.root)?;
    let counts = count(&tree, &workspace.packages)?;
    let circles = circles::find(&tree, &workspace.packages)?;
    let measured: Vec<Measured> =
        in_files(&counts).into_iter().chain(in_circles(&circles)).collect();
    if has("--places") {
        let all = [&counts.tuple_parameters, &counts.boolean_parameters, &counts.questions];
        for place in all.into_iter().flatten() {
            println!("{}:{}: {}", place.path, place.line, place.what);
        }
    }
    println!("{}\n{}", counts.report(), ratchet::table(&tree, &measured));
    if has("--write") {
        let path = workspace.root.join(ratchet::FILE);
        let text = ratchet::lowered(&tree, &measured)?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        return Ok(Tally::pass());
    }
    Ok(report::tell("count", &ratchet::check(&tree, &measured)))
}

/// Prints the circles within crates, and checks them and the table of layers; `--names` shows what closes a circle.
pub(crate) fn run_layers(workspace: &Workspace, arguments: &[String]) -> Result<Tally> {
    let names = match arguments {
        [] => Names::Hidden,
        [option] if option == "--names" => Names::Shown,
        _ => anyhow::bail!("layers: there is only the option --names"),
    };
    let tree = Tree::read(&workspace.root)?;
    let circles = circles::find(&tree, &workspace.packages)?;
    print!("{}", circles.list(names));
    let mut findings = layers::check(tree.text(layers::DRAWING), &workspace.packages);
    findings.extend(ratchet::check(&tree, &in_circles(&circles)));
    Ok(report::tell("layers", &findings))
}

/// Reports measures of single files that rose.
pub(crate) fn check(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    match count(tree, packages) {
        Ok(counts) => ratchet::check(tree, &in_files(&counts)),
        Err(error) => {
            vec![Finding::new("crates", 0, format!("{error:#}"), "make it compile first")]
        }
    }
}

/// Reports circles where there are more than before.
pub(crate) fn check_circles(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    match circles::find(tree, packages) {
        Ok(circles) => ratchet::check(tree, &in_circles(&circles)),
        Err(error) => {
            vec![Finding::new("crates", 0, format!("{error:#}"), "make it compile first")]
        }
    }
}

fn in_files(counts: &Counts) -> [Measured; 3] {
    [
        Measured {
            key: "tuple_parameters",
            number: counts.tuple_parameters.len(),
            goal: Some(0),
            mend: "make the group a type with names; cargo xtask count --places lists them",
        },
        Measured {
            key: "boolean_parameters",
            number: counts.boolean_parameters.len(),
            goal: None,
            mend: "make a mode an enum; cargo xtask count --places lists them",
        },
        Measured {
            key: "question_doc_comments",
            number: counts.questions.len(),
            goal: Some(249),
            mend: "begin with a noun or a verb; cargo xtask count --places lists them",
        },
    ]
}

fn in_circles(circles: &Circles) -> [Measured; 2] {
    let mend = "move the shared part into a file of its own; cargo xtask layers --names shows what closes a circle";
    [
        Measured {
            key: "modules_in_circles",
            number: circles::size(&circles.modules),
            goal: Some(0),
            mend,
        },
        Measured {
            key: "files_in_circles",
            number: circles::size(&circles.files),
            goal: Some(0),
            mend,
        },
    ]
}

fn count(tree: &Tree, packages: &[Package]) -> Result<Counts> {
    let mut counts = Counts::default();
    for package in packages {
        let mut size = PackageSize { name: package.name.clone(), files: 0, lines: 0 };
        for root in package.sources() {
            for (path, file) in Modules::read(tree, root)?.files() {
                let text = tree.text(path).unwrap_or_default();
                let lines = counts.add(path, text, file)?;
                size.files += 1;
                size.lines += lines;
            }
        }
        counts.packages.push(size);
    }
    counts.packages.sort_by_key(|package| std::cmp::Reverse(package.lines));
    for sized in [&mut counts.files, &mut counts.functions] {
        sized.sort_by_key(|one| std::cmp::Reverse(one.lines));
    }
    Ok(counts)
}

impl Counts {
    /// Counts one file; returns its code lines.
    fn add(&mut self, path: &str, text: &str, file: &syn::File) -> Result<usize> {
        let place = |(line, what)| Place { path: path.to_owned(), line, what };
        let source = Source::parse(text).with_context(|| path.to_owned())?;
        let lines = source.code_lines();
        self.files.push(Sized { name: path.to_owned(), lines });
        self.functions.extend(sizes::functions(&source).into_iter().map(|function| Sized {
            name: format!("{path}:{} {}", function.line, function.name),
            lines: function.lines,
        }));
        let found = parameters::of(file);
        self.tuple_parameters.extend(found.tuples.into_iter().map(place));
        self.boolean_parameters.extend(found.booleans.into_iter().map(place));
        let docs = docs::of(text, &source.test_lines());
        self.doc_comments += docs.all;
        self.questions.extend(docs.questions.into_iter().map(place));
        Ok(lines)
    }

    fn report(&self) -> String {
        let mut text = format!("{:<20}{:>8}{:>8}\n", "crate", "files", "lines");
        let all = PackageSize {
            name: "all".to_owned(),
            files: self.packages.iter().map(|package| package.files).sum(),
            lines: self.packages.iter().map(|package| package.lines).sum(),
        };
        for PackageSize { name, files, lines } in self.packages.iter().chain([&all]) {
            text += &format!("{name:<20}{files:>8}{lines:>8}\n");
        }
        for (title, sized) in
            [("largest files", &self.files), ("longest functions", &self.functions)]
        {
            text += &format!("\n{title}\n");
            for Sized { name, lines } in sized.iter().take(LARGEST) {
                text += &format!("{lines:>6}  {name}\n");
            }
        }
        text += &format!("\ndoc comments: {}\n", self.doc_comments);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packages() -> Vec<Package> {
        vec![Package {
            name: "a".to_owned(),
            manifest: "crates/a/Cargo.toml".to_owned(),
            roots: vec!["crates/a/src/lib.rs".to_owned(), "crates/a/build.rs".to_owned()],
            uses: Vec::new(),
        }]
    }

    fn tree(allowed: &str) -> Tree {
        Tree::of(&[
            ("crates/a/build.rs", "fn main() {}"),
            (
                "crates/a/src/lib.rs",
                "//! A crate.\n\nmod b;\n#[cfg(test)]\nmod tests;\nfn f(x: bool) {\n    g(x)\n}\n",
            ),
            ("crates/a/src/b.rs", "/// What it does.\nfn g((x, y): (u8, u8)) {}\n"),
            ("crates/a/src/tests.rs", "/// What it tests.\nfn h(x: bool) {}\n"),
            (ratchet::FILE, allowed),
        ])
    }

    #[test]
    fn files_of_tests_and_build_scripts_are_left_out() {
        let counts = count(&tree("{}"), &packages()).unwrap();
        assert_eq!(counts.packages, [PackageSize { name: "a".to_owned(), files: 2, lines: 5 }]);
        assert_eq!((counts.tuple_parameters.len(), counts.boolean_parameters.len()), (1, 1));
        assert_eq!((counts.doc_comments, counts.questions.len()), (2, 1));
        assert_eq!(counts.questions[0].path, "crates/a/src/b.rs");
        let report = counts.report();
        assert!(report.contains("     4  crates/a/src/lib.rs\n"), "{report}");
        assert!(report.contains("     3  crates/a/src/lib.rs:6 f\n"), "{report}");
    }

    #[test]
    fn each_measure_is_held_by_itself() {
        let whats = |allowed: &str| -> Vec<String> {
            let findings = check(&tree(allowed), &packages());
            findings.into_iter().map(|finding| finding.what).collect()
        };
        let held = "{\"tuple_parameters\":1,\"boolean_parameters\":1,\"question_doc_comments\":1}";
        assert_eq!(whats(held), [""; 0]);
        for key in ["tuple_parameters", "boolean_parameters", "question_doc_comments"] {
            let less = held.replace(&format!("{key}\":1"), &format!("{key}\":0"));
            assert_eq!(whats(&less), [format!("{key}: 1 where 0 are allowed")]);
        }
    }

    #[test]
    fn circles_are_held_too() {
        let tree = |allowed: &str| {
            Tree::of(&[
                ("crates/a/src/lib.rs", "mod b; mod c;"),
                ("crates/a/src/b.rs", "use crate::c::C; pub struct B;"),
                ("crates/a/src/c.rs", "use crate::b::B; pub struct C;"),
                (ratchet::FILE, allowed),
            ])
        };
        let held = "{\"modules_in_circles\":2,\"files_in_circles\":0}";
        assert_eq!(check_circles(&tree(held), &packages()), []);
        let findings = check_circles(&tree(&held.replace('2', "1")), &packages());
        assert_eq!(findings[0].what, "modules_in_circles: 2 where 1 are allowed");
    }
}
