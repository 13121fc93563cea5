//! Printing results.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use crate::exit::Exit;

/// Prints one JSON value and a line end.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    print(&text)
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

/// Columns of text, each as wide as its widest cell; the first row is the heading.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |n: usize| {
        rows.iter().filter_map(|row| row.get(n)).map(|c: &String| c.chars().count()).max()
    };
    let widths: Vec<_> = (0..columns).map(|n| width(n).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<_> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
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
    fn numbers_get_metric_prefixes() {
        assert_eq!((si(0.0), si(999.0), si(1e9)), ("0 ".into(), "999 ".into(), "1.00 G".into()));
    }
}
