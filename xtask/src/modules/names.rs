//! The names that a module defines, imports and uses.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, Macro, Path, UseTree, Visibility};

use super::Module;

/// Notes in `module` the names in `items`, those in modules within them left out.
pub(super) fn collect(items: &[Item], module: &mut Module) {
    for item in items {
        module.items.extend(defined(item));
    }
    let mut names = Names { module };
    for item in items {
        names.visit_item(item);
    }
}

fn defined(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// The kind of a `use`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Import {
    /// For the module alone.
    Private,
    /// For others, as a part of the module.
    PassedOn,
}

struct Names<'a> {
    module: &'a mut Module,
}

impl Names<'_> {
    /// Notes the imports of a tree below `prefix`. Re-exports bring names in and use none.
    fn import(&mut self, tree: &UseTree, prefix: &[String], of: Import) {
        let below =
            |name: String| -> Vec<String> { prefix.iter().cloned().chain([name]).collect() };
        let (name, path) = match tree {
            UseTree::Path(path) => {
                return self.import(&path.tree, &below(path.ident.to_string()), of);
            }
            UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.import(tree, prefix, of));
            }
            UseTree::Glob(_) => {
                self.module.globs.push(prefix.to_vec());
                self.module.used.insert(prefix.to_vec());
                return;
            }
            UseTree::Name(name) if name.ident == "self" => {
                (prefix.last().cloned().unwrap_or_default(), prefix.to_vec())
            }
            UseTree::Name(name) => (name.ident.to_string(), below(name.ident.to_string())),
            UseTree::Rename(names) if names.ident == "self" => {
                (names.rename.to_string(), prefix.to_vec())
            }
            UseTree::Rename(names) => (names.rename.to_string(), below(names.ident.to_string())),
        };
        if of == Import::Private {
            self.module.used.insert(path.clone());
        }
        self.module.imports.insert(name, path);
    }

    /// Notes the paths in the text of a macro.
    fn scan(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let is_punct = |at: usize, wanted: char| matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == wanted);
        let ident = |at: usize| match tokens.get(at) {
            Some(TokenTree::Ident(ident)) => Some(ident.to_string()),
            _ => None,
        };
        let mut at = 0;
        while at < tokens.len() {
            if let TokenTree::Group(group) = &tokens[at] {
                self.scan(group.stream());
            }
            let Some(first) = ident(at) else {
                at += 1;
                continue;
            };
            let before = |wanted: char| at > 0 && is_punct(at - 1, wanted);
            // A field or method, a lifetime, the rest of a path, a variable of the macro.
            let is_other =
                before('.') || before('\'') || before(':') && at > 1 && is_punct(at - 2, ':');
            let is_variable = before('$') && first != "crate";
            let mut path = vec![first];
            at += 1;
            while is_punct(at, ':') && is_punct(at + 1, ':') {
                let Some(next) = ident(at + 2) else { break };
                path.push(next);
                at += 3;
            }
            if !is_other && !is_variable {
                self.module.used.insert(path);
            }
        }
    }
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_item_mod(&mut self, _: &'ast ItemMod) {}

    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if item.leading_colon.is_none() {
            let of = match item.vis {
                Visibility::Inherited => Import::Private,
                _ => Import::PassedOn,
            };
            self.import(&item.tree, &[], of);
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        if path.leading_colon.is_none() {
            self.module.used.insert(path.segments.iter().map(|s| s.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.visit_path(&call.path);
        self.scan(call.tokens.clone());
    }
}
