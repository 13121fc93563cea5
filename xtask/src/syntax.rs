//! Rust source as a syntax tree, without its tests.

use anyhow::{Result, anyhow};
use proc_macro2::{TokenStream, TokenTree};
use syn::{Attribute, ImplItem, Item, Meta};

/// Parses `text` and drops every item under `#[cfg(test)]` or `#[test]`.
pub(crate) fn parse(text: &str) -> Result<syn::File> {
    let mut file = syn::parse_file(text).map_err(|error| {
        anyhow!("is no Rust source: {error} at line {}", error.span().start().line)
    })?;
    drop_tests(&mut file.items);
    Ok(file)
}

fn drop_tests(items: &mut Vec<Item>) {
    items.retain(|item| !is_test(attributes(item)));
    for item in items {
        match item {
            Item::Mod(module) => {
                if let Some((_, inner)) = &mut module.content {
                    drop_tests(inner);
                }
            }
            Item::Impl(block) => block.items.retain(|item| match item {
                ImplItem::Fn(function) => !is_test(&function.attrs),
                ImplItem::Const(constant) => !is_test(&constant.attrs),
                _ => true,
            }),
            _ => {}
        }
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("cfg") => {
            has_ident(&list.tokens, "test") && !has_ident(&list.tokens, "not")
        }
        _ => false,
    })
}

fn has_ident(tokens: &TokenStream, name: &str) -> bool {
    tokens.clone().into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == name,
        TokenTree::Group(group) => has_ident(&group.stream(), name),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_items_are_gone_and_other_conditions_stay() {
        let file = parse(
            "fn a() {}\n#[cfg(test)]\nmod tests { fn b() {} }\n#[cfg(not(test))]\nfn c() {}\n\
             #[test]\nfn d() {}\n#[cfg(all(test, unix))]\nuse x::y;\n\
             mod inner { #[cfg(test)] fn e() {} fn f() {} }\nimpl A { #[cfg(test)] fn g() {} }",
        )
        .unwrap();
        assert_eq!(file.items.len(), 4);
        let Item::Mod(inner) = &file.items[2] else { panic!("no module") };
        assert_eq!(inner.content.as_ref().unwrap().1.len(), 1);
        let Item::Impl(block) = &file.items[3] else { panic!("no impl") };
        assert!(block.items.is_empty());
    }

    #[test]
    fn broken_source_is_an_error_with_its_line() {
        let error = parse("fn a() {}\nfn {}").err().unwrap().to_string();
        assert!(error.contains("line 2"), "{error}");
    }
}
