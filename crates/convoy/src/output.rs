//! Printing results.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use convoy_control::status::columns;
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};

use crate::exit::Exit;

/// Prints an object as JSON, and a line end. In front of its keys stands `schema`, the version of the form of all
/// verbs whose values have none of their own.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    json_as_is(&WithSchema { schema: 1, value })
}

/// Prints an object that has its `schema` as JSON, and a line end.
pub(crate) fn json_as_is(value: &impl Serialize) -> anyhow::Result<()> {
    json_with(value, PrettyFormatter::new())
}

/// The same on one line.
pub(crate) fn json_line(value: &impl Serialize) -> anyhow::Result<()> {
    json_with(value, CompactFormatter)
}

fn json_with(value: &impl Serialize, form: impl Formatter) -> anyhow::Result<()> {
    let mut text = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut text, Exact(form)))?;
    text.push(b'\n');
    bytes(&text)
}

#[derive(Serialize)]
struct WithSchema<'a, T> {
    schema: u32,
    #[serde(flatten)]
    value: &'a T,
}

/// Highest whole number up to which readers agree on all (RFC 8259 section 6): 2^53.
const EXACT_MAX: u64 = 1 << 53;

/// Writes whole numbers as strings where readers that know only doubles would round them.
struct Exact<F>(F);

impl<F: Formatter> Formatter for Exact<F> {
    fn write_u64<W: ?Sized + Write>(&mut self, out: &mut W, value: u64) -> io::Result<()> {
        match value {
            0..=EXACT_MAX => self.0.write_u64(out, value),
            _ => write!(out, "\"{value}\""),
        }
    }

    fn write_i64<W: ?Sized + Write>(&mut self, out: &mut W, value: i64) -> io::Result<()> {
        match value.unsigned_abs() {
            0..=EXACT_MAX => self.0.write_i64(out, value),
            _ => write!(out, "\"{value}\""),
        }
    }

    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_array(out)
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array(out)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(out, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array_value(out)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object(out)
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object(out)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(out, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object_value(out)
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object_value(out)
    }
}

/// Prints a text. A reader that has gone away (`| head`) is no error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    bytes(text.as_bytes())
}

/// Prints a text that may have paths in it which are not UTF-8.
pub(crate) fn bytes(text: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            std::process::exit(Exit::Ok.code().into())
        }
        other => Ok(other?),
    }
}

/// Puts a whole text in the place of a file, or nothing: it is on the disk before it has the name.
pub(crate) fn replace_file(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    let write = || {
        let mut file = File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&new)))
}

/// Columns of text, each as wide as its widest cell, folded to the width of a terminal; the first row is the heading.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    columns(rows, |_| false)
}

/// A number with a metric prefix and a blank before the unit to come.
pub(crate) fn si(value: f64) -> String {
    let (mut value, mut prefix) = (value, "");
    for next in ["k", "M", "G", "T"] {
        if value < 1000.0 {
            break;
        }
        value /= 1000.0;
        prefix = next;
    }
    if prefix.is_empty() { format!("{value:.0} ") } else { format!("{value:.2} {prefix}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [vec!["name".to_owned(), "n".into()], vec!["a".into(), "10".into()]];
        assert_eq!(table(&rows), "name  n\na     10\n");
    }

    #[test]
    fn whole_numbers_that_doubles_do_not_hold_are_strings() {
        let text = |value: serde_json::Value| {
            let mut text = Vec::new();
            let mut serializer = Serializer::with_formatter(&mut text, Exact(CompactFormatter));
            value.serialize(&mut serializer).unwrap();
            String::from_utf8(text).unwrap()
        };
        let value = serde_json::json!([EXACT_MAX, EXACT_MAX + 1, u64::MAX, i64::MIN, -1, 0.5, "a"]);
        let written = r#"[9007199254740992,"9007199254740993","18446744073709551615","-9223372036854775808",-1,0.5,"a"]"#;
        assert_eq!(text(value), written);
        let value = serde_json::json!({"a": [], "b": {}, "c": [{"d": 1}]});
        assert_eq!(text(value.clone()), value.to_string());
        let mut pretty = Vec::new();
        let form = Exact(PrettyFormatter::new());
        value.serialize(&mut Serializer::with_formatter(&mut pretty, form)).unwrap();
        assert_eq!(pretty, serde_json::to_vec_pretty(&value).unwrap());
    }

    #[test]
    fn numbers_get_metric_prefixes() {
        assert_eq!((si(0.0), si(999.0), si(1e9)), ("0 ".into(), "999 ".into(), "1.00 G".into()));
    }
}
