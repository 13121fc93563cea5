//! The text of a site file: where an offset lies, and what of it may be shown.

use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use zeroize::{Zeroize, Zeroizing};

use super::finding::{Excerpt, Finding, SiteErrors};

/// Largest site file that is read, in bytes.
const MAX_BYTES: u64 = 16 << 20;

/// Shortest run of hexadecimal digits that is taken for a key.
const SECRET_RUN: usize = 16;

/// Shortest run of hexadecimal digits that is taken for a piece of a torn key.
const SECRET_PIECE: usize = 6;

/// A site file in memory; wiped on drop.
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) text: Zeroizing<String>,
    /// Offsets of lines in bytes, but the first.
    lines: Vec<usize>,
}

impl Source {
    fn new(path: PathBuf, text: Zeroizing<String>) -> Self {
        let lines = text.match_indices('\n').map(|(at, _)| at + 1).collect();
        Self { path, text, lines }
    }

    /// Reads the file in one piece, so that no copy of its keys is left behind by growing.
    pub(super) fn read(path: &Path) -> Result<Self, SiteErrors> {
        Self::read_file(path).map_err(|finding| SiteErrors { errors: vec![*finding] })
    }

    fn read_file(path: &Path) -> Result<Self, Box<Finding>> {
        let whole = |what: String, help: Option<&str>| {
            Box::new(Finding {
                file: path.to_owned(),
                line: 0,
                column: 0,
                key: String::new(),
                what,
                help: help.map(str::to_owned),
                excerpt: None,
            })
        };
        let unreadable = |error: std::io::Error| {
            let help = match error.kind() {
                std::io::ErrorKind::NotFound => {
                    "check the path, or write a pair of site files with `convoy init`"
                }
                std::io::ErrorKind::PermissionDenied => "run as the owner of the file, or as root",
                _ => "give the path of a readable site file",
            };
            whole(format!("cannot be read: {}", convoy_host::describe_io(&error)), Some(help))
        };
        let meta = std::fs::metadata(path).map_err(unreadable)?;
        if !meta.is_file() {
            return Err(whole(
                "is not a regular file".into(),
                Some("give the path of a site file"),
            ));
        }
        if meta.len() > MAX_BYTES {
            return Err(whole(
                format!("has {} bytes; a site file has at most {MAX_BYTES}", meta.len()),
                None,
            ));
        }
        let file = std::fs::File::open(path).map_err(unreadable)?;
        // One spare byte lets the reader see the end without growing the buffer.
        let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or(0) + 1);
        let read = file.take(meta.len()).read_to_end(&mut bytes);
        if let Err(error) = read {
            bytes.zeroize();
            return Err(unreadable(error));
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Self::new(path.to_owned(), Zeroizing::new(text))),
            Err(error) => {
                let at = error.utf8_error().valid_up_to();
                let mut bytes = error.into_bytes();
                let before = bytes.get(..at).unwrap_or_default();
                let line = 1 + before.iter().filter(|b| **b == b'\n').count();
                let begun = before.rsplit(|b| *b == b'\n').next().unwrap_or_default();
                let column = 1 + String::from_utf8_lossy(begun).chars().count();
                let wrong = bytes.get(at).copied().unwrap_or_default();
                let (what, help) = match &*bytes {
                    [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => {
                        ("is UTF-16".to_owned(), "save the file as UTF-8")
                    }
                    _ => (
                        format!("is not UTF-8 text: byte 0x{wrong:02x} begins no character"),
                        "save the file as UTF-8, or leave the character out",
                    ),
                };
                bytes.zeroize();
                Err(Box::new(Finding { line, column, ..*whole(what, Some(help)) }))
            }
        }
    }

    /// Line and column, both from 1, the column in characters.
    pub(super) fn position(&self, offset: usize) -> (usize, usize) {
        let before = self.text.get(..offset).unwrap_or(&self.text);
        let lines_before = self.lines.partition_point(|start| *start <= before.len());
        let begun = self.lines.get(..lines_before).and_then(<[_]>::last);
        let (line, line_start) = (1 + lines_before, begun.copied().unwrap_or(0));
        let column = 1 + before.get(line_start..).map_or(0, |text| text.chars().count());
        (line, column)
    }

    /// The line that holds the start of `span`, unless a secret may stand on it.
    pub(super) fn excerpt(&self, span: &Range<usize>) -> Option<Excerpt> {
        let before = self.text.get(..span.start)?;
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = self.text.get(start..)?.lines().next()?;
        if may_hold_secret(line) || line.chars().count() > 160 {
            return None;
        }
        let end = span.end.min(start + line.len()).max(span.start);
        let width = self.text.get(span.start..end)?.chars().count().max(1);
        Some(Excerpt { text: line.replace('\t', " "), width })
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Source({}, {} bytes)", self.path.display(), self.text.len())
    }
}

/// True if a line may hold key material: it assigns to `key` or `integrity_key`, or has a long hexadecimal
/// run anywhere.
pub(super) fn may_hold_secret(line: &str) -> bool {
    let assigns_key = line.split('=').rev().skip(1).any(|before| {
        let name = before.trim_end_matches([' ', '\t', '"', '\'']);
        let mut words = name.rsplit(|c: char| !(c.is_alphanumeric() || c == '_' || c == '-'));
        let keys = ["key", "integrity_key"];
        words.next().is_some_and(|word| keys.iter().any(|key| word.eq_ignore_ascii_case(key)))
    });
    assigns_key || has_secret_run(line)
}

/// True if a text has a run of hexadecimal digits long enough to be a key.
pub(super) fn has_secret_run(text: &str) -> bool {
    longest_run(text) >= SECRET_RUN
}

/// True if a line of a file that is no TOML may hold a piece of a key, which can be torn anywhere.
pub(super) fn may_hold_piece(line: &str) -> bool {
    may_hold_secret(line) || longest_run(line) >= SECRET_PIECE
}

fn longest_run(text: &str) -> usize {
    text.split(|c: char| !c.is_ascii_hexdigit()).map(str::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source::new("t.toml".into(), Zeroizing::new(text.into()))
    }

    #[test]
    fn positions_count_lines_and_characters_from_one() {
        let source = source("a = 1\nµ = 2\n");
        assert_eq!(source.position(0), (1, 1));
        assert_eq!(source.position(6), (2, 1));
        assert_eq!(source.position("a = 1\nµ = ".len()), (2, 5));
        assert_eq!(source.position(1000), (3, 1));
    }

    #[test]
    fn lines_with_keys_are_not_shown() {
        for line in [
            "key = 'xyz'",
            "integrity_key='xyz'",
            "sa = [{ \"key\" = 'x' }]",
            "kye = \"00112233445566778899aabbccddeeff\"",
            "0011223344556677",
        ] {
            assert!(may_hold_secret(line), "{line}");
            assert_eq!(source(line).excerpt(&(0..1)), None, "{line}");
        }
        for line in [
            "spi = 0x1000",
            "key_file = \"left.key\"",
            "integrity_key_file = \"left.key\"",
            "local = \"2001:db8:1111:2222:3333:4444:5555:6666\"",
        ] {
            assert!(!may_hold_secret(line), "{line}");
        }
    }

    #[test]
    fn an_excerpt_marks_no_more_than_its_line() {
        let source = source("x = [\n1,\n]\n");
        let excerpt = source.excerpt(&(4..11)).unwrap();
        assert_eq!((excerpt.text.as_str(), excerpt.width), ("x = [", 1));
    }
}
