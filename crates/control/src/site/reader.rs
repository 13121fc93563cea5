//! Taking a TOML document apart with a place for everything that is said about it.
//!
//! A [`Table`] hands out its entries by name; what nobody asked for is reported by
//! [`Table::finish`] with the nearest name that was asked for. A [`Field`] turns its value into a
//! type or reports what would have been right, once.

use std::fmt::Display;
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};
use zeroize::Zeroize;

use super::finding::{Excerpt, Finding, SiteErrors, Warning};
use super::name::is_name;
use super::source::{Source, has_secret_run};

/// Position of something: bytes of the file, and the path of its key.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) span: Range<usize>,
    pub(super) key: String,
}

/// A value and where it was read.
#[derive(Clone, Debug)]
pub(super) struct At<T> {
    pub(super) value: T,
    pub(super) place: Place,
}

/// Collects what is found while a site file is read.
#[derive(Debug)]
pub(super) struct Report<'s> {
    source: &'s Source,
    errors: Vec<(usize, Finding)>,
    warnings: Vec<(usize, Warning)>,
    /// Files from which keys were read.
    pub(super) key_files: Vec<At<PathBuf>>,
}

impl<'s> Report<'s> {
    pub(super) fn new(source: &'s Source) -> Self {
        Self { source, errors: Vec::new(), warnings: Vec::new(), key_files: Vec::new() }
    }

    pub(super) fn error(
        &mut self,
        place: &Place,
        what: impl Into<String>,
        help: impl Into<String>,
    ) {
        let finding =
            self.finding(place, what.into(), help.into(), self.source.excerpt(&place.span));
        self.errors.push((place.span.start, finding));
    }

    /// An error about a value that must not be shown, not even as an excerpt.
    pub(super) fn secret_error(
        &mut self,
        place: &Place,
        what: impl Into<String>,
        help: impl Into<String>,
    ) {
        let finding = self.finding(place, what.into(), help.into(), None);
        self.errors.push((place.span.start, finding));
    }

    pub(super) fn warn(&mut self, place: &Place, what: impl Into<String>, help: impl Into<String>) {
        let finding =
            self.finding(place, what.into(), help.into(), self.source.excerpt(&place.span));
        self.warnings.push((place.span.start, Warning(finding)));
    }

    fn finding(
        &self,
        place: &Place,
        what: String,
        help: String,
        excerpt: Option<Excerpt>,
    ) -> Finding {
        let (line, column) = self.source.position(place.span.start);
        Finding {
            file: self.source.path.clone(),
            line,
            column,
            key: place.key.clone(),
            what,
            help: (!help.is_empty()).then_some(help),
            excerpt,
        }
    }

    pub(super) fn line_of(&self, place: &Place) -> usize {
        self.source.position(place.span.start).0
    }

    pub(super) fn finish<T>(mut self, site: Option<T>) -> Result<(T, Vec<Warning>), SiteErrors> {
        self.errors.sort_by_key(|(at, _)| *at);
        self.warnings.sort_by_key(|(at, _)| *at);
        match site {
            Some(site) if self.errors.is_empty() => {
                Ok((site, self.warnings.into_iter().map(|(_, warning)| warning).collect()))
            }
            _ => Err(SiteErrors {
                errors: self.errors.into_iter().map(|(_, error)| error).collect(),
            }),
        }
    }
}

/// A table whose entries are taken out by name.
#[derive(Debug)]
pub(super) struct Table<'s> {
    pub(super) place: Place,
    entries: Vec<(Spanned<DeString<'s>>, Spanned<DeValue<'s>>)>,
    asked: Vec<&'static str>,
}

impl<'s> Table<'s> {
    pub(super) fn new(place: Place, table: DeTable<'s>) -> Self {
        Self { place, entries: table.into_iter().collect(), asked: Vec::new() }
    }

    /// The text of an entry, without taking it: for naming the table in messages.
    pub(super) fn peek_str(&self, key: &str) -> Option<&str> {
        self.entries.iter().find(|(k, _)| k.get_ref() == key)?.1.get_ref().as_str()
    }

    /// True if there is an entry; does not take it.
    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|(k, _)| k.get_ref() == key)
    }

    /// Takes an entry out.
    pub(super) fn take(&mut self, key: &'static str) -> Option<Field<'s>> {
        self.asked.push(key);
        let at = self.entries.iter().position(|(k, _)| k.get_ref() == key)?;
        let (_, value) = self.entries.swap_remove(at);
        let path = self.path_of(key);
        Some(Field { place: Place { span: value.span(), key: path }, value: value.into_inner() })
    }

    /// Takes an entry out that must be there.
    pub(super) fn need(
        &mut self,
        report: &mut Report<'_>,
        key: &'static str,
        example: &str,
    ) -> Option<Field<'s>> {
        let field = self.take(key);
        if field.is_none() {
            let near = self.nearest_entry(key);
            let place = Place { span: self.place.span.clone(), key: self.path_of(key) };
            match near {
                // The misspelt entry is taken out with the error, so that it is told only once.
                Some(at) => {
                    let (found, mut value) = self.entries.swap_remove(at);
                    wipe(value.get_mut());
                    let place = Place { span: found.span(), key: self.path_of(found.get_ref()) };
                    report.error(
                        &place,
                        format!("unknown key {}", quote(found.get_ref())),
                        format!("did you mean `{key}`?"),
                    );
                }
                None => {
                    report.error(&place, "is missing", format!("add a line such as `{example}`"))
                }
            }
        }
        field
    }

    /// True if an entry looks like `key` misspelt; [`Table::finish`] will say so.
    pub(super) fn has_misspelt(&self, key: &'static str) -> bool {
        self.nearest_entry(key).is_some()
    }

    /// True if every entry was taken out.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Reports what nobody asked for.
    pub(super) fn finish(mut self, report: &mut Report<'_>) {
        for (key, mut value) in std::mem::take(&mut self.entries) {
            wipe(value.get_mut());
            let name = key.get_ref();
            let place = Place { span: key.span(), key: self.path_of(name) };
            let help = match nearest(name, self.asked.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known keys here are {}", self.asked.join(", ")),
            };
            report.error(&place, format!("unknown key {}", quote(name)), help);
        }
    }

    fn nearest_entry(&self, key: &'static str) -> Option<usize> {
        self.entries.iter().position(|(found, _)| {
            let known = self.asked.iter().any(|asked| *asked != key && asked == found.get_ref());
            !known && nearest(found.get_ref(), [key].into_iter()).is_some()
        })
    }

    fn path_of(&self, key: &str) -> String {
        let key = if has_secret_run(key) { "(not shown)" } else { key };
        if self.place.key.is_empty() { key.to_owned() } else { format!("{}.{key}", self.place.key) }
    }
}

/// One value, not yet understood.
#[derive(Debug)]
pub(super) struct Field<'s> {
    pub(super) place: Place,
    value: DeValue<'s>,
}

impl<'s> Field<'s> {
    fn mismatch(mut self, report: &mut Report<'_>, expected: &str, help: impl Into<String>) {
        report.error(
            &self.place,
            format!("expected {expected}, found {}", kind(&self.value)),
            help,
        );
        wipe(&mut self.value);
    }

    pub(super) fn string(self, report: &mut Report<'_>, expected: &str) -> Option<At<String>> {
        match self.value {
            DeValue::String(text) => Some(At { value: text.into_owned(), place: self.place }),
            DeValue::Integer(ref number) if !has_secret_run(number.as_str()) => {
                let help = format!("put it in quotes: \"{number}\"");
                self.mismatch(report, expected, help);
                None
            }
            _ => {
                self.mismatch(report, expected, "");
                None
            }
        }
    }

    /// The text of a secret. Borrowed from the file wherever it is written without escapes.
    pub(super) fn secret(self, report: &mut Report<'_>) -> Option<At<DeString<'s>>> {
        match self.value {
            DeValue::String(text) => Some(At { value: text, place: self.place }),
            mut other => {
                report.secret_error(
                    &self.place,
                    format!("expected a string of hexadecimal digits, found {}", kind(&other)),
                    "put the digits in quotes",
                );
                wipe(&mut other);
                None
            }
        }
    }

    pub(super) fn boolean(self, report: &mut Report<'_>) -> Option<bool> {
        match self.value {
            DeValue::Boolean(value) => Some(value),
            _ => {
                let help = match self.as_str().map(str::to_ascii_lowercase).as_deref() {
                    Some("true" | "yes" | "on") => "write true, without quotes",
                    Some("false" | "no" | "off") => "write false, without quotes",
                    _ => "",
                };
                self.mismatch(report, "true or false", help);
                None
            }
        }
    }

    /// A whole number in a range.
    pub(super) fn integer(
        self,
        report: &mut Report<'_>,
        range: RangeInclusive<u64>,
        help: &str,
    ) -> Option<At<u64>> {
        let DeValue::Integer(number) = &self.value else {
            let expected = format!("a number from {} to {}", range.start(), range.end());
            let help = match self.number_in_quotes() {
                Some((digits, number)) if range.contains(&number) => {
                    format!("write {digits}, without quotes")
                }
                Some(_) => format!("{help}; without quotes"),
                None => help.to_owned(),
            };
            self.mismatch(report, &expected, help);
            return None;
        };
        match u64::from_str_radix(number.as_str(), number.radix())
            .ok()
            .filter(|n| range.contains(n))
        {
            Some(value) => Some(At { value, place: self.place }),
            None => {
                let text = number.to_string();
                report.error(
                    &self.place,
                    format!("{} is not from {} to {}", echo(&text), range.start(), range.end()),
                    help,
                );
                None
            }
        }
    }

    /// A text that a type reads itself.
    pub(super) fn parsed<T: FromStr<Err: Display>>(
        self,
        report: &mut Report<'_>,
        expected: &str,
    ) -> Option<At<T>> {
        let text = self.string(report, expected)?;
        match text.value.parse() {
            Ok(value) => Some(At { value, place: text.place }),
            Err(error) => {
                report.error(
                    &text.place,
                    format!("{}: {error}", quote(&text.value)),
                    format!("write {expected}"),
                );
                None
            }
        }
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(
        self,
        report: &mut Report<'_>,
        words: &[(&'static str, T)],
    ) -> Option<At<T>> {
        let names: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        let list = list_words(&names);
        let text = self.string(report, &list)?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text.value) {
            return Some(At { value: *value, place: text.place });
        }
        let help = match nearest(&text.value, names.iter().copied()) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("use {list}"),
        };
        report.error(&text.place, format!("{} is not {list}", quote(&text.value)), help);
        None
    }

    /// One value or a list of values.
    pub(super) fn one_or_many(self) -> Vec<Self> {
        match self.value {
            DeValue::Array(items) => items
                .into_iter()
                .map(|item| Field {
                    place: Place { span: item.span(), key: self.place.key.clone() },
                    value: item.into_inner(),
                })
                .collect(),
            _ => vec![self],
        }
    }

    /// A list of values.
    pub(super) fn many(self, report: &mut Report<'_>, expected: &str) -> Option<Vec<Self>> {
        if !self.value.is_array() {
            self.mismatch(report, expected, "");
            return None;
        }
        Some(self.one_or_many())
    }

    /// A table.
    pub(super) fn table(self, report: &mut Report<'_>, expected: &str) -> Option<Table<'s>> {
        match self.value {
            DeValue::Table(table) => Some(Table::new(self.place, table)),
            _ => {
                self.mismatch(report, expected, "");
                None
            }
        }
    }

    /// A list of tables, each written as `[[key]]`.
    pub(super) fn tables(self, report: &mut Report<'_>) -> Vec<Table<'s>> {
        let header = self.place.clone();
        let name = &header.key;
        if !self.value.is_array() {
            self.mismatch(report, &format!("sections that begin with [[{name}]]"), "");
            return Vec::new();
        }
        let tables = self.one_or_many().into_iter().enumerate().filter_map(|(at, item)| {
            let table = item.table(report, &format!("a section that begins with [[{name}]]"))?;
            let label = match table.peek_str("name") {
                Some(name) if is_name(name) => name.to_owned(),
                // What cannot be a name still tells which one is meant.
                Some(name) if !has_secret_run(name) && name.chars().count() <= 64 => {
                    format!("{name:?}")
                }
                _ => format!("#{}", at + 1),
            };
            Some(Table {
                place: Place {
                    span: table.place.span.clone(),
                    key: format!("{}[{label}]", header.key),
                },
                ..table
            })
        });
        tables.collect()
    }

    pub(super) fn as_str(&self) -> Option<&str> {
        self.value.as_str()
    }

    /// The digits and the value of a number that was written as a string.
    fn number_in_quotes(&self) -> Option<(&str, u64)> {
        let text = self.as_str()?.trim();
        let number = match text.strip_prefix("0x") {
            Some(digits) if digits.starts_with(|c: char| c.is_ascii_hexdigit()) => {
                u64::from_str_radix(digits, 16)
            }
            _ if text.starts_with(|c: char| c.is_ascii_digit()) => text.parse(),
            _ => return None,
        };
        // TOML takes no number that begins with a zero.
        let is_plain = text == "0" || !text.starts_with('0') || text.starts_with("0x");
        number.ok().filter(|_| is_plain && !has_secret_run(text)).map(|number| (text, number))
    }

    /// True for a word, false for a number, with quotes or without.
    pub(super) fn is_word(&self) -> bool {
        self.is_string() && self.number_in_quotes().is_none()
    }

    pub(super) fn is_string(&self) -> bool {
        self.value.is_str()
    }
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a fractional number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// Wipes the strings of a value that are copies of the file's text.
fn wipe(value: &mut DeValue<'_>) {
    match value {
        DeValue::String(std::borrow::Cow::Owned(text)) => text.zeroize(),
        DeValue::Array(items) => items.iter_mut().for_each(|item| wipe(item.get_mut())),
        DeValue::Table(table) => table.iter_mut().for_each(|(_, item)| wipe(item.get_mut())),
        _ => {}
    }
}

/// A text of the file in quotes, unless it may be a secret or is too long to help.
pub(super) fn quote(text: &str) -> String {
    if has_secret_run(text) || text.chars().count() > 64 {
        format!("this text of {} characters", text.chars().count())
    } else {
        format!("{text:?}")
    }
}

fn echo(text: &str) -> &str {
    if has_secret_run(text) || text.len() > 40 { "this number" } else { text }
}

/// `"a"`, `"a" or "b"`, `"a", "b" or "c"`.
pub(super) fn list_words(words: &[&str]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| format!("\"{word}\"")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}

/// The candidate that a person may have meant by `text`.
pub(super) fn nearest<'a>(
    text: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let allowed = |candidate: &str| 1 + candidate.chars().count().max(text.chars().count()) / 4;
    let folded = |s: &str| s.to_lowercase().replace('-', "_");
    candidates
        .map(|candidate| (distance(&folded(text), &folded(candidate)), candidate))
        .filter(|(edits, candidate)| {
            *edits <= allowed(candidate) && *edits < candidate.chars().count()
        })
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Edits (insert, delete, replace, swap of neighbours) from one text to the other: the optimal
/// string alignment distance.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in to.iter().enumerate() {
            let replace = last[j] + usize::from(a != b);
            let mut best = replace.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == to[j - 1] && from[i - 1] == *b {
                best = best.min(before_last[j - 1] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_and_a_far_one_is_not() {
        let names = ["spi", "mode", "replay_window", "remote_port"];
        let near = |text| nearest(text, names.into_iter());
        assert_eq!(near("sip"), Some("spi"));
        assert_eq!(near("Mode"), Some("mode"));
        assert_eq!(near("replay-windw"), Some("replay_window"));
        assert_eq!(near("remote_prot"), Some("remote_port"));
        assert_eq!(near("bananas"), None);
        assert_eq!(near("x"), None);
    }

    #[test]
    fn distance_counts_single_edits() {
        for (a, b, edits) in
            [("", "", 0), ("", "ab", 2), ("spi", "sip", 1), ("kitten", "sitting", 3)]
        {
            assert_eq!(distance(a, b), edits, "{a} {b}");
        }
    }

    #[test]
    fn long_hexadecimal_text_is_not_quoted() {
        assert_eq!(quote("tunel"), "\"tunel\"");
        assert_eq!(quote("0x00112233445566778899"), "this text of 22 characters");
    }
}
