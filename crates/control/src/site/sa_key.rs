//! The keys of an SA, as the site file or files beside it give them.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use convoy_crypto::{SecretBytes, Suite};
use convoy_ipsec::key::{KeyMisfit, SaKeyMaterial};
use convoy_ipsec::sa::IpsecProtocol;
use convoy_ipsec::suite::EspSuite;
use zeroize::Zeroize;

use super::fields::path_in;
use super::key::{KeyFileError, KeyTextError, decode_hex, read_key_file};
use super::reader::{At, Field, Place, Report, Table};
use super::sa::Context;
use super::sa_suite::{self, Terms};

/// The keys of an SA as far as they could be read.
pub(super) struct Keys {
    /// Algorithms that they are for.
    pub(super) suite: Option<Suite>,
    pub(super) material: Option<At<Arc<SaKeyMaterial>>>,
    /// Position of one that stands in the site file itself.
    pub(super) inline: Option<Place>,
}

/// Reads the keys and the algorithms they are for.
pub(super) fn read(
    table: &mut Table<'_>,
    report: &mut Report<'_>,
    context: &Context<'_>,
    protocol: Option<IpsecProtocol>,
) -> Keys {
    let folder = context.folder;
    let is_ah = protocol == Some(IpsecProtocol::Ah);
    let suite = sa_suite::read(table, report, Terms { is_ah, legacy: context.legacy });
    // The longer names first, so that they are not taken for the shorter ones misspelt.
    let integrity = Given::take(table, "integrity_key", "integrity_key_file");
    let cipher = Given::take(table, "key", "key_file");
    let inline = cipher.inline.as_ref().or(integrity.inline.as_ref());
    let inline = inline.map(|field| field.place.clone());
    let Some(suite) = suite else {
        // What the keys are for is not known, but their own errors can be told.
        cipher.secret(table, report, folder, None);
        integrity.secret(table, report, folder, None);
        return Keys { suite: None, material: None, inline };
    };
    let material = material(table, report, folder, suite, cipher, integrity);
    Keys { suite: Some(suite.suite()), material, inline }
}

fn material(
    table: &Table<'_>,
    report: &mut Report<'_>,
    folder: &Path,
    suite: EspSuite,
    cipher: Given<'_>,
    integrity: Given<'_>,
) -> Option<At<Arc<SaKeyMaterial>>> {
    let name = algorithm(suite);
    let one = |given: Given<'_>, needed: usize, parts: &str, report: &mut Report<'_>| {
        if needed == 0 {
            let Some(unwanted) = given.place() else { return Some(None) };
            let what = format!("has no meaning here: {name} has no such key");
            report.secret_error(unwanted, what, "remove the line");
            return None;
        }
        let key = given.secret(table, report, folder, Some(parts))?;
        let length = key.value.len();
        if length != needed {
            let what = format!("has {length} bytes; {name} needs {needed}");
            let help = format!("give {} hexadecimal digits: {parts}", needed * 2);
            report.secret_error(&key.place, what, help);
            return None;
        }
        Some(Some(key))
    };
    let cipher_bytes = suite.suite().key_bytes() + suite.salt_bytes();
    let integrity_bytes = suite.suite().integrity_key_bytes();
    let key = one(cipher, cipher_bytes, &cipher_parts(suite), report);
    let mac = one(integrity, integrity_bytes, &format!("{integrity_bytes} bytes"), report);
    let (key, mac) = (key?, mac?);
    let without_salt = key.as_ref().and_then(|at| {
        let bytes = at.value.expose().get(..suite.suite().key_bytes())?;
        Some((&at.place, bytes)).filter(|_| !bytes.is_empty())
    });
    if let Some((place, _)) = without_salt.filter(|(_, bytes)| bytes.iter().all(|byte| *byte == 0))
    {
        let what = "is all zeros but for its salt, which is no key";
        report.secret_error(place, what, hex_help(&KeyTextError::Zeros));
        return None;
    }
    let place = key.as_ref().or(mac.as_ref()).map(|at| at.place.clone())?;
    let bytes = |key: Option<At<SecretBytes>>| {
        key.map_or_else(|| SecretBytes::copy_from(&[]), |at| at.value)
    };
    match SaKeyMaterial::with_integrity(suite.suite(), bytes(key), bytes(mac)) {
        Ok(material) => Some(At { value: Arc::new(material), place }),
        Err(KeyMisfit::Unfit(error)) => {
            let help =
                format!("make a new one: convoy genkey --algorithm {} FILE", cipher_name(suite));
            report.secret_error(&place, error.to_string(), help);
            None
        }
        // Found out above.
        Err(misfit) => {
            report.secret_error(&place, misfit.to_string(), "");
            None
        }
    }
}

/// The suite as the file names it.
fn algorithm(suite: EspSuite) -> String {
    let name = suite.suite().to_string();
    match name.rsplit_once('-') {
        Some((algorithm, _)) if suite.suite().is_aead() && suite.salt_bytes() > 0 => {
            // The ICV's length has a key of its own.
            if name.starts_with("aes") { algorithm.to_owned() } else { name }
        }
        _ => name,
    }
}

/// The name of what `key` is for.
fn cipher_name(suite: EspSuite) -> String {
    match suite.suite() {
        Suite::Pair { cipher, .. } => cipher.names().name.to_owned(),
        _ => algorithm(suite),
    }
}

/// Parts that `key` is put together from, in words.
fn cipher_parts(suite: EspSuite) -> String {
    let key = suite.suite().key_bytes();
    match suite.salt_bytes() {
        0 => format!("{key} bytes of key"),
        salt => format!("{key} bytes of key, then {salt} bytes of salt"),
    }
}

/// Fields of one key in a section: digits, a file, both or neither.
struct Given<'s> {
    inline: Option<Field<'s>>,
    file: Option<Field<'s>>,
    names: (&'static str, &'static str),
}

impl<'s> Given<'s> {
    fn take(table: &mut Table<'s>, key: &'static str, file: &'static str) -> Self {
        Self { inline: table.take(key), file: table.take(file), names: (key, file) }
    }

    fn place(&self) -> Option<&Place> {
        self.inline.as_ref().or(self.file.as_ref()).map(|field| &field.place)
    }

    /// Reads the key. If there is none and `needed` says what it is made of, that is an error.
    fn secret(
        self,
        table: &Table<'_>,
        report: &mut Report<'_>,
        folder: &Path,
        needed: Option<&str>,
    ) -> Option<At<SecretBytes>> {
        let (key, key_file) = self.names;
        match (self.inline, self.file) {
            (Some(_), Some(file)) => {
                let what = format!("both `{key}` and `{key_file}` are given");
                report.error(&file.place, what, "keep one of them");
                None
            }
            (Some(field), None) => inline_key(field, report),
            (None, Some(field)) => key_from_file(field, report, folder),
            (None, None) => {
                let needed = needed?;
                if table.has_misspelt(key) || table.has_misspelt(key_file) {
                    return None;
                }
                let section = &table.place;
                let place =
                    Place { span: section.span.clone(), key: format!("{}.{key}", section.key) };
                let help =
                    format!("add `{key} = \"…\"` (hexadecimal, {needed}) or `{key_file} = \"…\"`");
                report.error(&place, "is missing", help);
                None
            }
        }
    }
}

fn inline_key(field: Field<'_>, report: &mut Report<'_>) -> Option<At<SecretBytes>> {
    let text = field.secret(report)?;
    let decoded = decode_hex(&text.value);
    if let std::borrow::Cow::Owned(mut copy) = text.value {
        copy.zeroize();
    }
    match decoded {
        Ok(value) => Some(At { value, place: text.place }),
        Err(error) => {
            report.secret_error(&text.place, error.to_string(), hex_help(&error));
            None
        }
    }
}

fn hex_help(error: &KeyTextError) -> &'static str {
    match error {
        KeyTextError::OddDigits(_) => "give two digits for each byte",
        KeyTextError::Zeros => {
            "write random digits, the same on both sides: `convoy genkey` makes some"
        }
        KeyTextError::NotHex(_) => "use the digits 0-9 and a-f only, with or without 0x in front",
    }
}

fn key_from_file(
    field: Field<'_>,
    report: &mut Report<'_>,
    folder: &Path,
) -> Option<At<SecretBytes>> {
    let path = path_in(field, report, folder)?;
    match read_key_file(&path.value) {
        Ok(value) => {
            let place = path.place.clone();
            report.key_files.push(path);
            Some(At { value, place })
        }
        Err(error) => {
            let shown = path.value.display();
            let help = match &error {
                KeyFileError::Mode(_) => format!("make it its owner's alone: chmod 600 {shown}"),
                KeyFileError::Owner(_) => format!("give it to the user the gateway runs as: chown root {shown}"),
                KeyFileError::Text(error) => hex_help(error).to_owned(),
                KeyFileError::Unreadable(error) if error.kind() == ErrorKind::PermissionDenied => {
                    "let the gateway's user read it; and restart the gateway if it runs: it reads key files only in \
                     folders where it read some at its start"
                        .to_owned()
                }
                KeyFileError::Unreadable(_) | KeyFileError::NotAFile => {
                    "give the path of a readable file; a relative one begins at the site file's folder".to_owned()
                }
                KeyFileError::TooLong(_) | KeyFileError::Empty => {
                    "put nothing but the hexadecimal digits of key and salt into it".to_owned()
                }
            };
            report.error(&path.place, format!("key file {shown} {error}"), help);
            None
        }
    }
}
