//! The characters that mean something in OpenSSL's configuration files, as its own reader takes them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

/// Characters that enclose values. A backslash within keeps the next character from ending the value.
const QUOTES: &[u8] = b"'\"`";

/// Besides letters, digits and `_`, what names of values and sections are made of.
const PUNCTUATION: &[u8] = b"!%&*+,-./;?@^|~";

pub(super) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

pub(super) fn is_quote(byte: u8) -> bool {
    QUOTES.contains(&byte)
}

/// True if a variable's name may have it.
fn is_alphanumeric(byte: u8, dollar: Dollar) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || (byte == b'$' && dollar == Dollar::InNames)
}

/// Meaning of `$`, which `.pragma = dollarid:on` changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dollar {
    /// A variable's name is behind it.
    Variable,
    /// A variable's name is behind it in braces or parentheses; else it is a letter of names.
    InNames,
}

/// Length of the name that a text begins with, in bytes.
pub(super) fn end_of_name(text: &[u8], dollar: Dollar) -> usize {
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'\\' => at = (at + 2).min(text.len()),
            _ if is_alphanumeric(byte, dollar) || PUNCTUATION.contains(&byte) => at += 1,
            _ => break,
        }
    }
    at
}

/// Length of the variable's name that a text begins with, in bytes.
pub(super) fn end_of_variable(text: &[u8], dollar: Dollar) -> usize {
    let is_other = |byte: &u8| !is_alphanumeric(*byte, dollar);
    text.iter().position(is_other).unwrap_or(text.len())
}

pub(super) fn without_blanks_before(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|byte| !is_blank(*byte)).unwrap_or(text.len());
    &text[start..]
}

/// Blanks at the end go even if a backslash is in front of them.
pub(super) fn without_blanks_behind(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| !is_blank(*byte)).map_or(0, |last| last + 1);
    &text[..end]
}

/// A line up to its comment.
pub(super) fn without_comment(line: &[u8]) -> &[u8] {
    let mut quote = None;
    let mut at = 0;
    while let Some(&byte) = line.get(at) {
        match (quote, byte) {
            (_, b'\\') => at += 1,
            (None, b'#') => return &line[..at],
            (None, _) if is_quote(byte) => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            _ => {}
        }
        at += 1;
    }
    line
}

/// The lines of a file with their numbers; one that ends with a backslash goes on in the next.
pub(super) fn lines(text: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let mut lines: Vec<(usize, Vec<u8>)> = Vec::new();
    let mut goes_on = false;
    for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let end = line.iter().rposition(|byte| *byte != b'\r').map_or(0, |last| last + 1);
        match lines.last_mut().filter(|_| goes_on) {
            Some((_, last)) => last.extend(&line[..end]),
            None => lines.push((at + 1, line[..end].to_vec())),
        }
        let Some((_, whole)) = lines.last_mut() else { continue };
        goes_on = whole.ends_with(b"\\") && !whole.ends_with(b"\\\\");
        if goes_on {
            whole.pop();
        }
    }
    lines
}

/// A value as it must be written for OpenSSL to read exactly it.
pub(super) fn quoted(value: &OsStr) -> Vec<u8> {
    let value = value.as_bytes();
    let mut text = Vec::new();
    for (at, &byte) in value.iter().enumerate() {
        match byte {
            b'\n' => text.extend(b"\\n"),
            b'\r' => text.extend(b"\\r"),
            b'\t' => text.extend(b"\\t"),
            // A backslash would not keep one at the end.
            b' ' if at == 0 || at + 1 == value.len() => text.extend(b"\" \""),
            b'\\' | b'$' | b'#' => text.extend([b'\\', byte]),
            _ if is_quote(byte) => text.extend([b'\\', byte]),
            _ => text.push(byte),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted_text(value: &str) -> String {
        String::from_utf8(quoted(OsStr::new(value))).unwrap()
    }

    #[test]
    fn only_what_means_something_is_quoted() {
        assert_eq!(quoted_text("/usr/lib/a b;c=d[e]/f.so"), "/usr/lib/a b;c=d[e]/f.so");
        assert_eq!(quoted_text("/a$b#c\\d'e\"f`g"), "/a\\$b\\#c\\\\d\\'e\\\"f\\`g");
        assert_eq!(quoted_text(" a b "), "\" \"a b\" \"");
        assert_eq!(quoted_text("a\tb\nc\rd"), "a\\tb\\nc\\rd");
    }

    #[test]
    fn comments_begin_outside_quotes() {
        let cut =
            |line: &'static str| std::str::from_utf8(without_comment(line.as_bytes())).unwrap();
        assert_eq!(cut("a = b # c"), "a = b ");
        assert_eq!(cut("a = `b # c` # d"), "a = `b # c` ");
        assert_eq!(cut("a = 'b \\' # c' # d"), "a = 'b \\' # c' ");
        assert_eq!(cut("a = b \\# c"), "a = b \\# c");
        assert_eq!(cut("; = 1"), "; = 1");
    }

    #[test]
    fn lines_go_on_behind_one_backslash_and_end_behind_two() {
        let text = b"a\\\r\nb\\\\\nc\r\r\n\nd\\";
        let of: Vec<_> = lines(text).into_iter().filter(|(_, line)| !line.is_empty()).collect();
        assert_eq!(of, [(1, b"ab\\\\".to_vec()), (3, b"c".to_vec()), (5, b"d".to_vec())]);
    }
}
