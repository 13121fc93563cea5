//! Every reason for which a packet is dropped is raised somewhere, and some test knows it.

use std::collections::BTreeSet;

use proc_macro2::Delimiter;

use crate::tokens::{Source, Token, is_test_path};
use crate::tree::{Finding, Tree};

/// The file that defines the reasons.
const DEFINITION: &str = "crates/ipsec/src/drop_reason.rs";
const ENUM: &str = "DropReason";

/// Reports variants that nothing raises, and variants that no test names.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(source) = tree.text(DEFINITION).and_then(|text| Source::parse(text).ok()) else {
        let what = "is missing or is no Rust source".to_owned();
        return vec![Finding::new(DEFINITION, 0, what, format!("define enum {ENUM} there"))];
    };
    let variants = variants(&source);
    if variants.is_empty() {
        let what = format!("defines no variants of {ENUM}");
        return vec![Finding::new(DEFINITION, 0, what, format!("define enum {ENUM} there"))];
    }
    let (mut raised, mut tested) = (BTreeSet::new(), BTreeSet::new());
    for (path, text) in tree.rust() {
        let Ok(source) = Source::parse(text) else { continue };
        collect(path, &source, &mut raised, &mut tested);
    }
    let mut findings = Vec::new();
    for (name, line) in variants {
        if !raised.contains(&name) {
            let what = format!("nothing raises {ENUM}::{name}");
            let mend = "raise it where the packet is dropped, or remove it";
            findings.push(Finding::new(DEFINITION, line, what, mend));
        }
        if !tested.contains(&name) {
            let what = format!("no test names {ENUM}::{name}");
            let mend = "write a test that drops a packet for this reason and asserts it";
            findings.push(Finding::new(DEFINITION, line, what, mend));
        }
    }
    findings
}

/// The variants and their lines.
fn variants(source: &Source<'_>) -> Vec<(String, usize)> {
    let Some(open) = (0..source.tokens.len()).find_map(|at| {
        let named = source.is_ident(at, "enum") && source.is_ident(at + 1, ENUM);
        (named && source.is_open(at + 2, Delimiter::Brace)).then_some(at + 2)
    }) else {
        return Vec::new();
    };
    let close = source.closing(open);
    let mut found = Vec::new();
    let mut at = open + 1;
    let mut expected = true;
    while at < close {
        match &source.tokens[at].token {
            Token::Open(_) => at = source.closing(at),
            Token::Punct(',') => expected = true,
            Token::Ident(name) if expected => {
                found.push((name.clone(), source.tokens[at].first_line));
                expected = false;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

fn collect(
    path: &str,
    source: &Source<'_>,
    raised: &mut BTreeSet<String>,
    tested: &mut BTreeSet<String>,
) {
    let tests = source.test_items();
    let aliases = aliases(source);
    for at in 0..source.tokens.len() {
        let names_enum = source.ident(at).is_some_and(|name| aliases.contains(name));
        if !names_enum || !source.is_punct(at + 1, ':') || !source.is_punct(at + 2, ':') {
            continue;
        }
        let Some(variant) = source.ident(at + 3) else { continue };
        if is_test_path(path) || tests.iter().any(|range| range.contains(&at)) {
            tested.insert(variant.to_owned());
        } else if path != DEFINITION {
            raised.insert(variant.to_owned());
        }
    }
}

/// The names under which a file knows the enum: its own, and any `DropReason as Other`.
fn aliases<'a>(source: &'a Source<'_>) -> BTreeSet<&'a str> {
    let renamed = (0..source.tokens.len())
        .filter(|at| source.is_ident(*at, ENUM) && source.is_ident(at + 1, "as"))
        .filter_map(|at| source.ident(at + 2));
    renamed.chain([ENUM]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENUM_TEXT: &str = "/// Why.\n#[repr(u8)]\npub enum DropReason {\n    /// Too short, see `Other`.\n    \
        Malformed = 0,\n    #[doc(alias = \"x\")]\n    IcvMismatch,\n}\n\
        impl DropReason { const ALL: [Self; 2] = [DropReason::Malformed, DropReason::IcvMismatch]; }\n";

    fn whats(files: &[(&str, &str)]) -> Vec<String> {
        let mut all = vec![(DEFINITION, ENUM_TEXT)];
        all.extend_from_slice(files);
        check(&Tree::of(&all)).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn reasons_raised_and_tested_pass() {
        let stage = "use crate::DropReason as Why;\nfn a() { drop(Why::Malformed); drop(DropReason::IcvMismatch) }\n\
            #[cfg(test)]\nmod tests { fn t() { assert_eq!(x, DropReason::Malformed) } }\n";
        let test = "fn t() { assert_eq!(x, DropReason::IcvMismatch) }\n";
        assert!(
            whats(&[("crates/ipsec/src/stage.rs", stage), ("crates/ipsec/tests/a.rs", test)])
                .is_empty()
        );
    }

    #[test]
    fn reason_that_only_its_definition_and_a_comment_name_is_reported() {
        let stage = "// DropReason::IcvMismatch\nfn a() { drop(DropReason::Malformed) }\n\
            #[cfg(test)]\nmod tests { fn t() { (DropReason::Malformed, DropReason::IcvMismatch); } }\n";
        assert_eq!(
            whats(&[("crates/ipsec/src/stage.rs", stage)]),
            ["nothing raises DropReason::IcvMismatch"]
        );
    }

    #[test]
    fn reason_without_a_test_is_reported_at_its_line() {
        let stage = "fn a() { drop(DropReason::Malformed); drop(DropReason::IcvMismatch) }\n";
        let test = "fn t() { assert_eq!(x, DropReason::Malformed) }\n";
        let files = [
            (DEFINITION, ENUM_TEXT),
            ("crates/ipsec/src/stage.rs", stage),
            ("crates/ipsec/tests/a.rs", test),
        ];
        let findings = check(&Tree::of(&files));
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].what, "no test names DropReason::IcvMismatch");
        assert_eq!(findings[0].line, 7);
    }

    #[test]
    fn missing_definition_is_reported() {
        assert_eq!(check(&Tree::of(&[])).len(), 1);
        assert_eq!(check(&Tree::of(&[(DEFINITION, "pub struct A;")])).len(), 1);
    }
}
