//! Circles within crates: modules or files of which each uses, over some steps, each other.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use crate::layers::Package;
use crate::modules::{Edges, Modules, ROOT};
use crate::tree::Tree;

/// Files that may stand in one circle: a module, a part of it, and a type that both name.
const FILES_MAX: usize = 3;

/// Nodes of one circle, and what they use of each other.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Circle {
    pub(crate) package: String,
    pub(crate) members: BTreeSet<String>,
    pub(crate) edges: Edges,
}

/// All circles that count.
#[derive(Debug, Default)]
pub(crate) struct Circles {
    /// Circles of top-level modules of a crate. The root and one module alone are a parent and its child.
    pub(crate) modules: Vec<Circle>,
    /// Circles of more than three files.
    pub(crate) files: Vec<Circle>,
}

/// Finds the circles of every package.
pub(crate) fn find(tree: &Tree, packages: &[Package]) -> Result<Circles> {
    let mut circles = Circles::default();
    for package in packages {
        for root in package.sources() {
            let modules = Modules::read(tree, root)?;
            let found = of(&package.name, &modules.edges_of_top_level());
            circles.modules.extend(found.into_iter().filter(|circle| !is_parent_and_child(circle)));
            let found = of(&package.name, &modules.edges_of_files());
            circles.files.extend(found.into_iter().filter(|c| c.members.len() > FILES_MAX));
        }
    }
    for circles in [&mut circles.modules, &mut circles.files] {
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.members.len()));
    }
    Ok(circles)
}

/// The number of nodes in circles.
pub(crate) fn size(circles: &[Circle]) -> usize {
    circles.iter().map(|circle| circle.members.len()).sum()
}

impl Circles {
    /// Lists all.
    pub(crate) fn list(&self, names: Names) -> String {
        let title = format!("circles of more than {FILES_MAX} files");
        list("circles of top-level modules", &self.modules, names)
            + &list(&title, &self.files, names)
    }
}

fn list(title: &str, circles: &[Circle], names: Names) -> String {
    let mut text = format!("{title}: {}, with {} in them\n", circles.len(), size(circles));
    for circle in circles {
        let members: Vec<&str> = circle.members.iter().map(String::as_str).collect();
        text += &format!("  {} ({}): {}\n", circle.package, members.len(), members.join(", "));
        if names == Names::Shown {
            for ((user, used), names) in &circle.edges {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                text += &format!("    {user} → {used}: {}\n", names.join(", "));
            }
        }
    }
    text
}

/// Names that close circles, in a list of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    Shown,
    Hidden,
}

fn is_parent_and_child(circle: &Circle) -> bool {
    circle.members.len() == 2 && circle.members.contains(ROOT)
}

fn of(package: &str, edges: &Edges) -> Vec<Circle> {
    let mut next = BTreeMap::<&str, BTreeSet<&str>>::new();
    for (user, used) in edges.keys() {
        next.entry(user).or_default().insert(used);
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        next.keys().map(|node| (*node, reach(&next, node))).collect();
    let leads = |from: &str, to: &str| reached.get(from).is_some_and(|nodes| nodes.contains(to));
    let mut circles = Vec::new();
    let mut seen = BTreeSet::new();
    for node in reached.keys().filter(|node| leads(node, node)) {
        if !seen.insert(*node) {
            continue;
        }
        let members: BTreeSet<String> = reached
            .keys()
            .filter(|other| leads(node, other) && leads(other, node))
            .map(|other| (*other).to_owned())
            .collect();
        seen.extend(reached.keys().filter(|other| members.contains(**other)));
        let within = edges.iter().filter(|((a, b), _)| members.contains(a) && members.contains(b));
        let edges = within.map(|(edge, names)| (edge.clone(), names.clone())).collect();
        circles.push(Circle { package: package.to_owned(), members, edges });
    }
    circles
}

/// All nodes that `from` uses over one step or more.
fn reach<'a>(next: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = next.get(from).into_iter().flatten().copied().collect();
    while let Some(node) = open.pop() {
        if reached.insert(node) {
            open.extend(next.get(node).into_iter().flatten());
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package() -> Package {
        Package {
            name: "a".to_owned(),
            manifest: "crates/a/Cargo.toml".to_owned(),
            roots: vec!["crates/a/src/lib.rs".to_owned()],
            uses: Vec::new(),
        }
    }

    fn circles(files: &[(&str, &str)]) -> Circles {
        let files: Vec<(String, &str)> =
            files.iter().map(|(path, text)| (format!("crates/a/src/{path}"), *text)).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, *text)).collect();
        find(&Tree::of(&files), &[package()]).unwrap()
    }

    fn members(circles: &[Circle]) -> Vec<Vec<&str>> {
        let short = |name: &String| name.len() - name.trim_start_matches("crates/a/src/").len();
        circles
            .iter()
            .map(|circle| circle.members.iter().map(|name| &name[short(name)..]).collect())
            .collect()
    }

    #[test]
    fn two_top_level_modules_that_use_each_other_are_a_circle() {
        let found = circles(&[
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use crate::b::B; pub struct A;"),
            ("b.rs", "use crate::a::A; pub struct B; use crate::c::C;"),
            ("c.rs", "pub struct C;"),
        ]);
        assert_eq!(members(&found.modules), [["a", "b"]]);
        assert_eq!(members(&found.files), [[""; 0]; 0]);
        let text = list("circles", &found.modules, Names::Shown);
        assert!(text.starts_with("circles: 1, with 2 in them\n  a (2): a, b\n"), "{text}");
        assert!(text.contains("    a → b: crate::b::B\n"), "{text}");
        assert!(!list("circles", &found.modules, Names::Hidden).contains('→'));
    }

    #[test]
    fn root_and_one_module_are_no_circle_and_with_two_they_are() {
        let lib = ("lib.rs", "mod a; mod b; pub struct Root; fn f() { a::f(); b::f() }");
        let a = ("a.rs", "pub fn f() {} use crate::Root;");
        assert_eq!(circles(&[lib, a, ("b.rs", "pub fn f() {}")]).modules, []);
        let both = circles(&[lib, a, ("b.rs", "pub fn f() {} use crate::Root;")]);
        assert_eq!(members(&both.modules), [["a", "b", "crate"]]);
    }

    #[test]
    fn circle_of_four_files_counts_and_one_of_three_does_not() {
        let files = |count: usize| -> Vec<(String, String)> {
            let mut files = vec![("lib.rs".to_owned(), "mod m;".to_owned())];
            let children: String = (1..count).map(|at| format!("mod f{at};")).collect();
            files.push(("m/mod.rs".to_owned(), format!("{children} use f1::X; pub struct Y;")));
            for at in 1..count {
                let next = if at + 1 < count { format!("f{}::X", at + 1) } else { "Y".to_owned() };
                let text = format!("pub struct X; use super::{next} as Next;");
                files.push((format!("m/f{at}.rs"), text));
            }
            files
        };
        let found = |count| {
            let files = files(count);
            circles(&files.iter().map(|(path, text)| (&**path, &**text)).collect::<Vec<_>>())
        };
        assert_eq!(found(3).files, []);
        let four = found(4);
        assert_eq!(members(&four.files), [["m/f1.rs", "m/f2.rs", "m/f3.rs", "m/mod.rs"]]);
        assert_eq!(size(&four.files), 4);
        assert_eq!(four.modules, []);
    }

    #[test]
    fn two_circles_of_one_crate_stay_apart() {
        let found = circles(&[
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "use crate::b::X as B; pub struct X; use crate::c::X as C;"),
            ("b.rs", "use crate::a::X as A; pub struct X;"),
            ("c.rs", "use crate::d::X as D; pub struct X;"),
            ("d.rs", "use crate::c::X as C; pub struct X;"),
        ]);
        assert_eq!(members(&found.modules), [["a", "b"], ["c", "d"]]);
    }
}
