#![doc = include_str!("reference.md")]

mod check;
mod crypto;
mod cryptodev;
mod daemon_sas;
mod daemons;
mod drivers;
mod fields;
mod finding;
mod key;
mod key_parts;
mod left;
mod lifetime;
mod marks;
mod model;
mod name;
mod places;
mod policy;
mod reader;
mod sa;
mod sa_key;
mod sa_suite;
mod sections;
mod source;
mod spelling;
mod width;
mod workers;

use std::path::{Path, PathBuf};

use toml::de::DeTable;

pub use finding::{Excerpt, Finding, SiteErrors, Warning};
pub use key_parts::{KeyParts, UnknownAlgorithm, key_parts};
pub use model::{
    Action, Addresses, Association, Backend, BetweenTunnels, Capture, CryptoEngine, Cryptodev,
    FastPath, InboundSa, InterfaceAddress, Marks, Metrics, ModelFault, ModelFaultKind, OutboundSa,
    Plain, Policy, Routes, SharedWork, Site, Upper, Wire, WorkerRule, Workers, Xfrm, XfrmInterface,
    least_mtu,
};
pub(crate) use name::is_name;
pub use places::Places;

use reader::{Place, Report, Table};
use source::Source;

/// Largest site file that is read on behind a key that is given twice, in bytes.
const MOST_TO_MEND: usize = 1 << 20;

impl Site {
    /// Reads and checks a site file.
    ///
    /// The text of the file is wiped from memory afterwards; keys go into wiped memory of their own.
    ///
    /// # Errors
    /// Everything that is wrong with the file, with what it names (key files, the state folder), in
    /// the order of the file. A file that is no TOML gives the first such error, and no others but keys given twice.
    pub fn load(path: &Path) -> Result<(Self, Vec<Warning>), SiteErrors> {
        Self::load_of(path, |document| document)
    }

    /// Reads the part of a site file that names what the previous run left on the host. SAs, policies, the state folder
    /// and key files need not be there.
    ///
    /// # Errors
    /// As [`Site::load`], in what is read.
    pub fn load_to_open(path: &Path) -> Result<Self, SiteErrors> {
        Self::load_of(path, left::only).map(|(site, _)| site)
    }

    fn load_of(
        path: &Path,
        part: impl FnOnce(DeTable<'_>) -> DeTable<'_>,
    ) -> Result<(Self, Vec<Warning>), SiteErrors> {
        let source = Source::read(path)?;
        let mut report = Report::new(&source);
        let whole = Place { span: 0..0, key: String::new() };
        let (document, errors) = match DeTable::parse(&source.text) {
            Ok(document) => (document, Vec::new()),
            // As many errors as a file has lines take memory.
            Err(error) if is_second_line(&source, &error) && source.text.len() <= MOST_TO_MEND => {
                DeTable::parse_recoverable(&source.text)
            }
            Err(error) => {
                syntax_error(&mut report, &source, &error);
                return report.finish(None);
            }
        };
        for error in &errors {
            syntax_error(&mut report, &source, error);
            // What follows may be understood otherwise than it is meant.
            if !is_second_line(&source, error) {
                return report.finish(None);
            }
        }
        let document = document.into_inner();
        let places = Places::of(&document, &source);
        let site = sections::read(Table::new(whole, part(document)), &mut report, path);
        let site = site.map(|site| Self { places, ..site });
        report.finish(site.filter(|_| errors.is_empty()))
    }
}

impl Site {
    /// The control socket that a site file names, without checking the rest of the file, which may
    /// be in the middle of a change.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is no TOML, or names no gateway.
    pub fn control_socket_of(path: &Path) -> Result<PathBuf, SiteErrors> {
        let source = Source::read(path)?;
        let mut report = Report::new(&source);
        let whole = Place { span: 0..0, key: String::new() };
        let socket = match DeTable::parse(&source.text) {
            Ok(document) => sections::control_socket(
                &mut Table::new(whole, document.into_inner()),
                &mut report,
                path,
            ),
            Err(error) => {
                syntax_error(&mut report, &source, &error);
                None
            }
        };
        report.finish(socket).map(|(socket, _)| socket)
    }
}

/// True if an error is that a line gives a key once more: then the rest of the file is still what it is.
fn is_second_line(source: &Source, error: &toml::de::Error) -> bool {
    error.message().contains("duplicate key") && {
        let at = error.span().unwrap_or(0..0).start;
        let begun = source.text.get(..at).and_then(|before| before.rfind('\n'));
        let line = source.text.get(begun.map_or(0, |at| at + 1)..).unwrap_or_default();
        !line.trim_start().starts_with('[')
    }
}

/// Tells what the TOML parser said, without the text it says it about where that may be a key.
fn syntax_error(report: &mut Report<'_>, source: &Source, error: &toml::de::Error) {
    let at = error.span().unwrap_or(0..0);
    let place = Place { span: at, key: String::new() };
    let line = report.line_of(&place);
    let text = source.text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
    let message = error.message().lines().collect::<Vec<_>>().join("; ");
    let hidden = source::may_hold_secret(text) && message.contains(['`', '"', '\'']);
    let message = if source::has_secret_run(&message) || hidden {
        "unexpected text here".to_owned()
    } else {
        message
    };
    let what = format!("not valid TOML: {message}");
    let help = if !error.message().contains("duplicate key") {
        "write `key = value` lines below [section] headers; texts in quotes"
    } else if text.trim_start().starts_with('[') {
        "write [[sa]] and [[policy]] in two brackets, each time; every other section once"
    } else {
        "keep one of the lines with this key, or begin the next [[sa]] or [[policy]] before it"
    };
    if source::may_hold_piece(text) {
        report.secret_error(&place, what, help);
    } else {
        report.error(&place, what, help);
    }
}
