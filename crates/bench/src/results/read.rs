//! Reading results back.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use super::check::Disagreement;
use super::gateways::{self, SCHEMA_VERSION as GATEWAYS_VERSION};
use super::{Results, SCHEMA, SCHEMA_VERSION};

/// Bytes of a file at most.
pub const FILE_MAX: u64 = 512 << 20;

/// The results of a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {error}")]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// Reason.
    pub error: ReadError,
}

/// Bytes are no results.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is too long.
    #[error("longer than {} MiB, which no bench writes", FILE_MAX >> 20)]
    Long,
    /// The end is missing.
    #[error("the file is cut off: {0}")]
    Cut(serde_json::Error),
    /// It is something else.
    #[error("not JSON: {0}")]
    NotJson(serde_json::Error),
    /// It is other JSON.
    #[error("not results of convoy bench: no \"schema\": {SCHEMA:?}")]
    Foreign,
    /// It is neither of two forms; what it is.
    #[error("neither results of convoy bench nor of interop/throughput/compare.py, but {0}")]
    Unknown(String),
    /// This program is too old for a result of `compare.py`.
    #[error("written by a newer compare.py, schema {0}; this one reads up to {GATEWAYS_VERSION}")]
    NewerGateways(u64),
    /// This program is too old for it.
    #[error("written by a newer convoy, schema {0}; this one reads up to {SCHEMA_VERSION}")]
    Newer(u64),
    /// A number is not finite.
    #[error("a number is not finite: {0}")]
    NotFinite(serde_json::Error),
    /// A field is missing or of another kind.
    #[error("not as schema {SCHEMA_VERSION} has it: {0}")]
    Form(serde_json::Error),
    /// Numbers do not agree.
    #[error("the numbers do not agree: {0}")]
    Disagreement(#[from] Disagreement),
}

/// Fields of every version.
#[derive(Deserialize)]
struct Start {
    schema: Option<Value>,
    schema_version: Option<Value>,
}

impl Results {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn read(path: &Path) -> Result<Self, FileError> {
        read(path, Self::parse)
    }

    /// Reads the file at `path`, of a bench or of `interop/throughput/compare.py`.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn read_any(path: &Path) -> Result<Self, FileError> {
        read(path, Self::parse_any)
    }

    /// Reads results of a bench or of `interop/throughput/compare.py` from the bytes of a file.
    ///
    /// # Errors
    /// [`ReadError`], but not for the file itself.
    pub fn parse_any(bytes: &[u8]) -> Result<Self, ReadError> {
        match Self::parse(bytes) {
            Err(ReadError::Foreign) => parse_gateways(bytes),
            known => known,
        }
    }

    /// Reads results from the bytes of a file. Fields that this version does not know are passed over.
    ///
    /// # Errors
    /// [`ReadError`], but not for the file itself.
    pub fn parse(bytes: &[u8]) -> Result<Self, ReadError> {
        let start = serde_json::from_slice::<Start>(bytes).map_err(|error| match error {
            error if error.is_data() => ReadError::Foreign,
            error => unread(error, bytes),
        })?;
        if start.schema != Some(SCHEMA.into()) {
            return Err(ReadError::Foreign);
        }
        match start.schema_version.as_ref().and_then(Value::as_u64) {
            None | Some(0) => return Err(ReadError::Foreign),
            Some(version) if version > u64::from(SCHEMA_VERSION) => {
                return Err(ReadError::Newer(version));
            }
            Some(_) => {}
        }
        let results: Self = serde_json::from_slice(bytes).map_err(|error| unread(error, bytes))?;
        results.check()?;
        Ok(results)
    }
}

fn read(path: &Path, parse: fn(&[u8]) -> Result<Results, ReadError>) -> Result<Results, FileError> {
    let read = || {
        let mut bytes = Vec::new();
        File::open(path)?.take(FILE_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > FILE_MAX {
            return Err(ReadError::Long);
        }
        parse(&bytes)
    };
    read().map_err(|error| FileError { path: path.to_owned(), error })
}

/// Parses results that are of no bench, as those of `compare.py`.
fn parse_gateways(bytes: &[u8]) -> Result<Results, ReadError> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| unread(error, bytes))?;
    if value.get("schema").and_then(Value::as_str) != Some(gateways::SCHEMA) {
        return Err(ReadError::Unknown(kind(&value)));
    }
    match value.get("schema_version").and_then(Value::as_u64) {
        Some(version) if version > GATEWAYS_VERSION => {
            return Err(ReadError::NewerGateways(version));
        }
        _ => {}
    }
    let file: gateways::File = serde_json::from_value(value).map_err(ReadError::Form)?;
    Ok(file.into())
}

/// In words, what JSON it is.
fn kind(value: &Value) -> String {
    match value {
        Value::Object(fields) => match fields.get("schema").and_then(Value::as_str) {
            Some(schema) => format!("JSON of the schema {schema:?}"),
            None if fields.is_empty() => "an empty object".to_owned(),
            None => {
                let names: Vec<&str> = fields.keys().map(String::as_str).take(4).collect();
                format!("an object without a schema, with {}", names.join(", "))
            }
        },
        Value::Array(_) => "a list".to_owned(),
        _ => "a single value".to_owned(),
    }
}

fn unread(error: serde_json::Error, bytes: &[u8]) -> ReadError {
    match error.classify() {
        serde_json::error::Category::Eof => ReadError::Cut(error),
        // Within a number, the parser does not say that it was the end that it came to.
        serde_json::error::Category::Syntax if is_cut(bytes) => ReadError::Cut(error),
        _ if error.to_string().starts_with(OUT_OF_RANGE) => ReadError::NotFinite(error),
        _ if error.to_string().starts_with(NOT_FINITE) => ReadError::NotFinite(error),
        serde_json::error::Category::Data => ReadError::Form(error),
        _ => ReadError::NotJson(error),
    }
}

/// True if an object begins and does not end.
fn is_cut(bytes: &[u8]) -> bool {
    let bytes = bytes.trim_ascii();
    bytes.starts_with(b"{") && !bytes.ends_with(b"}")
}

/// Beginning of the parser's message on a number that no `f64` holds.
const OUT_OF_RANGE: &str = "number out of range";
/// Message on a round that is `null`, as numbers that are not finite are often written.
const NOT_FINITE: &str = "a round is null";

/// A number of rounds.
struct Number(f64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = Option::<f64>::deserialize(from)?;
        number.map(Self).ok_or_else(|| de::Error::custom(NOT_FINITE))
    }
}

/// Reads rounds.
pub(super) fn numbers<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f64>, D::Error> {
    let numbers = Vec::<Number>::deserialize(from)?;
    Ok(numbers.into_iter().map(|Number(number)| number).collect())
}
