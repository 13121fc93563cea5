//! Rust source as a flat list of tokens with their lines: comments are gone and strings are one token,
//! so a check never takes a word in a text for code.

use std::collections::BTreeSet;
use std::ops::Range;
use std::str::FromStr as _;

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// One token; brackets are two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token {
    Ident(String),
    Punct(char),
    Literal(String),
    Open(Delimiter),
    Close(Delimiter),
}

/// A token and the lines (counted from 1) it stands on.
#[derive(Debug, Clone)]
pub(crate) struct Spanned {
    pub(crate) token: Token,
    pub(crate) first_line: usize,
    pub(crate) last_line: usize,
}

/// One Rust file, lexed.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    text: &'a str,
    pub(crate) tokens: Vec<Spanned>,
}

impl<'a> Source<'a> {
    /// Lexes `text`.
    pub(crate) fn parse(text: &'a str) -> Result<Self> {
        let stream = TokenStream::from_str(text).map_err(|error| {
            anyhow!("is no Rust source: {error} at line {}", error.span().start().line)
        })?;
        let mut tokens = Vec::new();
        flatten(stream, &mut tokens);
        Ok(Self { text, tokens })
    }

    pub(crate) fn is_ident(&self, at: usize, name: &str) -> bool {
        self.ident(at) == Some(name)
    }

    pub(crate) fn ident(&self, at: usize) -> Option<&str> {
        match &self.tokens.get(at)?.token {
            Token::Ident(name) => Some(name),
            _ => None,
        }
    }

    pub(crate) fn is_punct(&self, at: usize, wanted: char) -> bool {
        self.tokens.get(at).is_some_and(|found| found.token == Token::Punct(wanted))
    }

    pub(crate) fn is_open(&self, at: usize, wanted: Delimiter) -> bool {
        self.tokens.get(at).is_some_and(|found| found.token == Token::Open(wanted))
    }

    /// The index of the bracket that closes the one at `open`.
    pub(crate) fn closing(&self, open: usize) -> usize {
        let mut depth = 0usize;
        for (at, found) in self.tokens.iter().enumerate().skip(open) {
            match found.token {
                Token::Open(_) => depth += 1,
                Token::Close(_) => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return at;
                    }
                }
                _ => {}
            }
        }
        self.tokens.len().saturating_sub(1)
    }

    /// The index just behind the item that starts at `start`: behind its body or its semicolon.
    pub(crate) fn item_end(&self, start: usize) -> usize {
        let mut at = start;
        while let Some(found) = self.tokens.get(at) {
            match found.token {
                Token::Open(Delimiter::Brace) => return self.closing(at) + 1,
                Token::Open(_) => at = self.closing(at) + 1,
                Token::Punct(';') => return at + 1,
                _ => at += 1,
            }
        }
        self.tokens.len()
    }

    /// Token ranges of the items under `#[cfg(test)]` (or a `cfg(all(test, …))`), attribute included.
    pub(crate) fn test_items(&self) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        let mut at = 0;
        while at < self.tokens.len() {
            if self.is_punct(at, '#') && self.is_open(at + 1, Delimiter::Bracket) {
                let close = self.closing(at + 1);
                if self.is_test_cfg(at + 2..close) {
                    let end = self.item_end(close + 1);
                    found.push(at..end);
                    at = end;
                    continue;
                }
            }
            at += 1;
        }
        found
    }

    /// The lines that test items stand on.
    pub(crate) fn test_lines(&self) -> BTreeSet<usize> {
        let lines = |range: Range<usize>| {
            let tokens = self.tokens.get(range).unwrap_or_default();
            let first = tokens.first().map_or(1, |token| token.first_line);
            first..=tokens.last().map_or(0, |token| token.last_line)
        };
        self.test_items().into_iter().flat_map(lines).collect()
    }

    fn is_test_cfg(&self, inside: Range<usize>) -> bool {
        self.is_ident(inside.start, "cfg")
            && inside.clone().any(|at| self.is_ident(at, "test"))
            && !inside.clone().any(|at| self.is_ident(at, "not"))
    }

    /// The lines that hold code: neither blank, nor comment, nor part of a test item.
    pub(crate) fn code_lines(&self) -> usize {
        let tests = self.test_items();
        let lines: BTreeSet<usize> = self
            .tokens
            .iter()
            .enumerate()
            .filter(|(at, _)| !tests.iter().any(|range| range.contains(at)))
            .flat_map(|(_, found)| found.first_line..=found.last_line)
            .collect();
        let comment: BTreeSet<usize> = self
            .text
            .lines()
            .enumerate()
            .filter(|(_, line)| line.trim_start().starts_with("//"))
            .map(|(index, _)| index + 1)
            .collect();
        lines.difference(&comment).count()
    }
}

/// True if a file holds only tests, examples or benches by its place alone.
pub(crate) fn is_test_path(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "tests" | "examples" | "benches" | "tests.rs"))
        || path.starts_with("fuzz/")
        || path.starts_with("interop/")
}

fn flatten(stream: TokenStream, into: &mut Vec<Spanned>) {
    for tree in stream {
        let span = tree.span();
        let (first_line, last_line) = (span.start().line, span.end().line);
        let token = match tree {
            TokenTree::Group(group) => {
                let delimiter = group.delimiter();
                let (open, close) = (group.span_open().start().line, group.span_close().end().line);
                into.push(Spanned {
                    token: Token::Open(delimiter),
                    first_line: open,
                    last_line: open,
                });
                flatten(group.stream(), into);
                into.push(Spanned {
                    token: Token::Close(delimiter),
                    first_line: close,
                    last_line: close,
                });
                continue;
            }
            TokenTree::Ident(ident) => Token::Ident(ident.to_string()),
            TokenTree::Punct(punct) => Token::Punct(punct.as_char()),
            TokenTree::Literal(literal) => Token::Literal(literal.to_string()),
        };
        into.push(Spanned { token, first_line, last_line });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_no_identifiers() {
        let source = Source::parse(
            "// unsafe\n/* unsafe /* unsafe */ */\nconst A: &str = \"unsafe { }\"; const B: &str = r#\"unsafe\"#;",
        )
        .unwrap();
        assert!((0..source.tokens.len()).all(|at| !source.is_ident(at, "unsafe")));
    }

    #[test]
    fn code_lines_leave_out_comments_blanks_and_test_items() {
        let text = "//! Doc.\n\n/// Doc.\nfn a() {\n    // why\n    b();\n}\n\n#[cfg(test)]\nmod tests {\n    fn c() {}\n}\n";
        assert_eq!(Source::parse(text).unwrap().code_lines(), 3);
    }

    #[test]
    fn lines_of_test_items_reach_from_attribute_to_brace() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
        let lines: Vec<usize> = Source::parse(text).unwrap().test_lines().into_iter().collect();
        assert_eq!(lines, [2, 3, 4, 5]);
    }

    #[test]
    fn code_behind_a_test_module_counts_again() {
        let text = "#[cfg(test)]\nmod tests;\nfn a() {}\n#[cfg(not(test))]\nfn b() {}\n";
        assert_eq!(Source::parse(text).unwrap().code_lines(), 3);
    }

    #[test]
    fn unbalanced_source_is_an_error_and_no_panic() {
        assert!(Source::parse("fn a() {").is_err());
    }
}
