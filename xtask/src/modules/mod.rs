//! The modules of one target of cargo, from its root file down, and the names that each uses of others.

mod names;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use proc_macro2::TokenTree;
use syn::{Attribute, Expr, ExprLit, Item, ItemMod, Lit, Meta};

use crate::syntax;
use crate::tree::Tree;

/// The name of the root among top-level modules.
pub(crate) const ROOT: &str = "crate";

/// The index of the root module.
const ROOT_INDEX: usize = 0;
/// Steps over imports after which a name counts as unknown: imports may name each other in a ring.
const STEPS_MAX: usize = 16;

/// A module, in a file of its own or within another's.
#[derive(Debug, Default)]
struct Module {
    file: String,
    /// Names from the root down; empty for the root.
    path: Vec<String>,
    parent: usize,
    children: BTreeMap<String, usize>,
    /// Names that the module itself defines.
    items: BTreeSet<String>,
    /// Paths that imports stand for, by the name that they bring in.
    imports: BTreeMap<String, Vec<String>>,
    /// Paths of `use path::*`.
    globs: Vec<Vec<String>>,
    /// Paths in code and in private imports. Re-exports alone use nothing.
    used: BTreeSet<Vec<String>>,
}

/// The end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Module(usize),
    /// An item that this module defines.
    ItemOf(usize),
}

/// Names that one file or module uses of another, by (user, used).
pub(crate) type Edges = BTreeMap<(String, String), BTreeSet<String>>;

/// All modules of a target but those for tests.
///
/// A path counts for the module that it names: an item that the root or a parent passes on is part of that one's face.
pub(crate) struct Modules {
    modules: Vec<Module>,
    files: BTreeMap<String, syn::File>,
}

impl Modules {
    /// Reads the target whose root file is `root`.
    pub(crate) fn read(tree: &Tree, root: &str) -> Result<Self> {
        let mut read = Self { modules: Vec::new(), files: BTreeMap::new() };
        read.add_file(tree, root, Module::default(), &folder_of(root))?;
        Ok(read)
    }

    /// The files that modules stand in, as syntax trees without tests.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &syn::File)> {
        self.files.iter().map(|(path, file)| (path.as_str(), file))
    }

    /// The names that files use of each other.
    pub(crate) fn edges_of_files(&self) -> Edges {
        self.edges(|module| module.file.clone())
    }

    /// The names that top-level modules, each with all below it, use of each other. The root is [`ROOT`].
    pub(crate) fn edges_of_top_level(&self) -> Edges {
        self.edges(|module| module.path.first().map_or(ROOT, String::as_str).to_owned())
    }

    fn edges(&self, node: impl Fn(&Module) -> String) -> Edges {
        let mut edges = Edges::new();
        for (at, module) in self.modules.iter().enumerate() {
            let user = node(module);
            for path in &module.used {
                let Some(Target::ItemOf(owner)) = self.resolve(at, path, 0) else { continue };
                let used = node(&self.modules[owner]);
                if used != user {
                    edges.entry((user.clone(), used)).or_default().insert(path.join("::"));
                }
            }
        }
        edges
    }

    /// Adds the module of a file and those below it. `folder` is where the files of its children are.
    fn add_file(&mut self, tree: &Tree, path: &str, module: Module, folder: &str) -> Result<usize> {
        let text = tree.text(path).with_context(|| format!("{path} is missing"))?;
        let file = syntax::parse(text).with_context(|| path.to_owned())?;
        let module = Module { file: path.to_owned(), ..module };
        let at = self.add(tree, module, &file.items, folder)?;
        self.files.insert(path.to_owned(), file);
        Ok(at)
    }

    fn add(
        &mut self,
        tree: &Tree,
        mut module: Module,
        items: &[Item],
        folder: &str,
    ) -> Result<usize> {
        names::collect(items, &mut module);
        let at = self.modules.len();
        self.modules.push(module);
        for item in items {
            if let Item::Mod(child) = item {
                let name = child.ident.to_string();
                let added = self.add_child(tree, at, child, folder)?;
                self.modules[at].children.insert(name, added);
            }
        }
        Ok(at)
    }

    fn add_child(
        &mut self,
        tree: &Tree,
        parent: usize,
        child: &ItemMod,
        folder: &str,
    ) -> Result<usize> {
        let name = child.ident.to_string();
        let above = &self.modules[parent];
        let path: Vec<String> = above.path.iter().cloned().chain([name.clone()]).collect();
        let (file, below) = (above.file.clone(), format!("{folder}/{name}"));
        let module =
            || Module { file: file.clone(), path: path.clone(), parent, ..Module::default() };
        if let Some((_, items)) = &child.content {
            return self.add(tree, module(), items, &below);
        }
        // With a path for some builds only, one module stands in several files.
        let mut places: Vec<(String, String)> = path_attributes(child)
            .iter()
            .map(|path| {
                let path = within(&folder_of(&file), path);
                (path.clone(), folder_of(&path))
            })
            .collect();
        let usual = [format!("{below}.rs"), format!("{below}/mod.rs")];
        let usual = usual.into_iter().find(|path| tree.text(path).is_some());
        places.extend(usual.map(|path| (path, below.clone())));
        if places.is_empty() {
            places.push((format!("{below}/mod.rs"), below));
        }
        let mut first = None;
        for (path, folder) in &places {
            let added = self.add_file(tree, path, module(), folder)?;
            first = first.or(Some(added));
        }
        first.context("a module has no file")
    }

    fn resolve(&self, from: usize, path: &[String], steps: usize) -> Option<Target> {
        let (first, rest) = path.split_first()?;
        let mut target = match first.as_str() {
            "crate" => Target::Module(ROOT_INDEX),
            "self" => Target::Module(from),
            "super" => Target::Module(self.modules[from].parent),
            name => self.in_scope(from, name, steps)?,
        };
        for name in rest {
            let Target::Module(module) = target else { break };
            target = match name.as_str() {
                "super" => Target::Module(self.modules[module].parent),
                // A name that nobody sees defined is one that a macro defines there.
                name => self.named_in(module, name, steps).unwrap_or(Target::ItemOf(module)),
            };
        }
        Some(target)
    }

    /// The target of a name that stands alone in a module.
    fn in_scope(&self, module: usize, name: &str, steps: usize) -> Option<Target> {
        let here = &self.modules[module];
        if steps > STEPS_MAX || here.children.contains_key(name) || here.items.contains(name) {
            return self.named_in(module, name, steps);
        }
        if let Some(path) = here.imports.get(name) {
            return self.resolve(module, path, steps + 1);
        }
        here.globs.iter().find_map(|glob| match self.resolve(module, glob, steps + 1)? {
            Target::Module(of) if of != module => self.named_in(of, name, steps + 1),
            _ => None,
        })
    }

    /// The target of `module::name`. An item that a module passes on counts as its own.
    fn named_in(&self, module: usize, name: &str, steps: usize) -> Option<Target> {
        let here = &self.modules[module];
        if let Some(child) = here.children.get(name) {
            return Some(Target::Module(*child));
        }
        if here.items.contains(name) || steps > STEPS_MAX {
            return Some(Target::ItemOf(module));
        }
        match self.in_scope(module, name, steps + 1)? {
            passed_on @ Target::Module(_) => Some(passed_on),
            Target::ItemOf(_) => Some(Target::ItemOf(module)),
        }
    }
}

/// The values of `#[path = "…"]`, also of those that a condition stands before.
fn path_attributes(module: &ItemMod) -> Vec<String> {
    let of = |attribute: &Attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        Meta::List(list) if list.path.is_ident("cfg_attr") => {
            let tokens: Vec<TokenTree> = list.tokens.clone().into_iter().collect();
            tokens.windows(3).find_map(|window| match window {
                [TokenTree::Ident(name), TokenTree::Punct(_), TokenTree::Literal(text)]
                    if name == "path" =>
                {
                    Some(text.to_string().trim_matches('"').to_owned())
                }
                _ => None,
            })
        }
        _ => None,
    };
    module.attrs.iter().filter_map(of).collect()
}

fn folder_of(path: &str) -> String {
    path.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned()
}

/// `path` as seen from `folder`, without `..`.
fn within(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').collect();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(tree: &[(&str, &str)]) -> Vec<String> {
        let modules = Modules::read(&Tree::of(tree), tree[0].0).unwrap();
        let edges = modules.edges_of_files();
        edges.into_iter().map(|((user, used), _)| format!("{user} → {used}")).collect()
    }

    #[test]
    fn imports_paths_and_names_in_macros_are_uses() {
        let edges = files(&[
            ("s/lib.rs", "mod a; mod b; mod c; mod d;"),
            ("s/a.rs", "use crate::b::B; fn f() -> super::c::C { assert!(crate::d::is_good()) }"),
            ("s/b.rs", "pub struct B;"),
            ("s/c.rs", "pub struct C; use std::fmt; fn g() -> fmt::Result { Ok(()) }"),
            ("s/d.rs", "pub fn is_good() -> bool { true }"),
        ]);
        assert_eq!(edges, ["s/a.rs → s/b.rs", "s/a.rs → s/c.rs", "s/a.rs → s/d.rs"]);
    }

    #[test]
    fn name_that_is_passed_on_counts_for_the_module_that_the_path_names() {
        let edges = files(&[
            ("s/lib.rs", "mod a; mod b; pub use b::B;"),
            ("s/a.rs", "use crate::B; use crate::b; fn f(_: b::Inner, _: b::deep::D) {}"),
            ("s/b/mod.rs", "mod inner; pub use inner::*; pub use inner::deep; pub struct B;"),
            ("s/b/inner.rs", "pub struct Inner; pub mod deep { pub struct D; }"),
        ]);
        assert_eq!(edges, ["s/a.rs → s/b/inner.rs", "s/a.rs → s/b/mod.rs", "s/a.rs → s/lib.rs"]);
    }

    #[test]
    fn passing_a_name_on_uses_nothing() {
        let edges = files(&[
            ("s/lib.rs", "mod a; pub use a::A; pub(crate) use a::B; use a::C;"),
            ("s/a.rs", "pub struct A; pub struct B; pub struct C;"),
        ]);
        assert_eq!(edges, ["s/lib.rs → s/a.rs"]);
    }

    #[test]
    fn tests_visibilities_and_declarations_use_nothing() {
        let edges = files(&[
            ("s/lib.rs", "mod a; mod b; pub struct Root;"),
            ("s/a.rs", "pub(in crate::b) fn f() {} #[cfg(test)] mod tests { use crate::Root; }"),
            ("s/b.rs", "pub(crate) struct B { pub(crate) field: u8 }"),
        ]);
        assert_eq!(edges, [""; 0]);
    }

    #[test]
    fn modules_within_a_file_and_with_a_path_of_their_own_are_found() {
        let edges = files(&[
            ("s/lib.rs", "mod a { pub(super) mod deep; } #[path = \"../x/y.rs\"] mod odd; mod c;"),
            ("s/a/deep.rs", "pub fn f() { crate::odd::g() }"),
            ("x/y.rs", "pub fn g() {}"),
            ("s/c.rs", "pub fn h() { super::a::deep::f() }"),
        ]);
        assert_eq!(edges, ["s/a/deep.rs → x/y.rs", "s/c.rs → s/a/deep.rs"]);
    }

    #[test]
    fn module_that_differs_by_build_stands_in_several_files() {
        let edges = files(&[
            ("s/lib.rs", "#[cfg_attr(not(unix), path = \"b.rs\")] mod a; pub struct Root;"),
            ("s/a.rs", "use crate::Root;"),
            ("s/b.rs", "use crate::Root;"),
        ]);
        assert_eq!(edges, ["s/a.rs → s/lib.rs", "s/b.rs → s/lib.rs"]);
    }

    #[test]
    fn top_level_modules_stand_for_all_below_them() {
        let tree = Tree::of(&[
            ("s/lib.rs", "mod a; mod b; pub struct Root; fn f() { b::g() }"),
            ("s/a/mod.rs", "mod deep; use crate::Root;"),
            ("s/a/deep.rs", "use crate::b::g;"),
            ("s/b.rs", "pub fn g() {}"),
        ]);
        let edges = Modules::read(&tree, "s/lib.rs").unwrap().edges_of_top_level();
        let edges: Vec<(&str, &str)> = edges.keys().map(|(a, b)| (&**a, &**b)).collect();
        assert_eq!(edges, [("a", "b"), ("a", "crate"), ("crate", "b")]);
    }

    #[test]
    fn module_without_a_file_is_an_error() {
        let error = Modules::read(&Tree::of(&[("s/lib.rs", "mod a;")]), "s/lib.rs").err().unwrap();
        assert_eq!(error.to_string(), "s/a/mod.rs is missing");
    }

    #[test]
    fn imports_in_a_ring_end() {
        let edges = files(&[("s/lib.rs", "use a::x; mod a;"), ("s/a.rs", "pub use crate::x;")]);
        assert_eq!(edges, ["s/lib.rs → s/a.rs"]);
    }
}
