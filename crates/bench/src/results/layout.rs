//! Writing results: a field to a line, and the rounds of a series in one line.

use std::io::{self, Write};

use serde::Serialize as _;
use serde_json::Serializer;
use serde_json::ser::Formatter;

use super::Results;
use super::check::Disagreement;

impl Results {
    /// As JSON, with a line end behind it.
    ///
    /// # Errors
    /// [`Disagreement`], if it could not be read back.
    pub fn to_json(&self) -> Result<String, Disagreement> {
        self.check()?;
        let mut bytes = Vec::new();
        let mut serializer = Serializer::with_formatter(&mut bytes, Layout::default());
        let other = |what: String| Disagreement { place: "results".to_owned(), what };
        self.serialize(&mut serializer).map_err(|error| other(error.to_string()))?;
        bytes.push(b'\n');
        String::from_utf8(bytes).map_err(|error| other(error.to_string()))
    }
}

/// Lists of numbers and texts stand in one line, everything else in lines of its own.
#[derive(Default)]
struct Layout {
    /// For each object and list that is open, whether it takes several lines.
    is_broken: Vec<bool>,
    /// True if an entry of a list is about to begin.
    begins_entry: bool,
}

impl Layout {
    fn line<W: ?Sized + Write>(&self, to: &mut W) -> io::Result<()> {
        to.write_all(b"\n")?;
        self.is_broken.iter().try_for_each(|_| to.write_all(b"  "))
    }

    fn open<W: ?Sized + Write>(&mut self, to: &mut W, bracket: &[u8]) -> io::Result<()> {
        if std::mem::take(&mut self.begins_entry) {
            self.line(to)?;
            self.is_broken.last_mut().into_iter().for_each(|is_broken| *is_broken = true);
        }
        self.is_broken.push(false);
        to.write_all(bracket)
    }

    fn close<W: ?Sized + Write>(&mut self, to: &mut W, bracket: &[u8]) -> io::Result<()> {
        if self.is_broken.pop() == Some(true) {
            self.line(to)?;
        }
        to.write_all(bracket)
    }
}

impl Formatter for Layout {
    fn begin_array<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.open(to, b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.close(to, b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        self.begins_entry = true;
        if first { Ok(()) } else { to.write_all(b",") }
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.begins_entry = false;
        Ok(())
    }

    fn begin_object<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.open(to, b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.close(to, b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        if !first {
            to.write_all(b",")?;
        }
        self.is_broken.last_mut().into_iter().for_each(|is_broken| *is_broken = true);
        self.line(to)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        to.write_all(b": ")
    }
}
