//! The key of an SA, as the site file or a file beside it gives it.

use std::path::Path;
use std::sync::Arc;

use convoy_crypto::{GcmParams, IcvLen, KeyBits, SecretBytes};
use zeroize::Zeroize;

use super::key::{KeyFileError, KeyMaterial, KeyTextError, decode_hex, read_key_file};
use super::reader::{At, Field, Place, Report, Table};
use super::sections::path_in;

/// The key, from `key` or `key_file`, with the algorithm it is for.
pub(super) fn read(
    table: &mut Table<'_>,
    report: &mut Report<'_>,
    folder: &Path,
) -> (Option<At<Arc<KeyMaterial>>>, bool) {
    let section = table.place.clone();
    let bits = table
        .need(report, "algorithm", "algorithm = \"aes-128-gcm\"")
        .and_then(|f| {
            f.choice(
                report,
                &[
                    ("aes-128-gcm", KeyBits::Aes128),
                    ("aes-192-gcm", KeyBits::Aes192),
                    ("aes-256-gcm", KeyBits::Aes256),
                ],
            )
        })
        .map(|at| at.value);
    let icv = match table.take("icv") {
        Some(f) => icv(f, report),
        None => Some(IcvLen::Icv16),
    };
    let inline = table.take("key");
    let file = table.take("key_file");
    let is_inline = inline.is_some();
    let secret = match (inline, file) {
        (Some(_), Some(file)) => {
            report.error(&file.place, "both `key` and `key_file` are given", "keep one of them");
            None
        }
        (Some(field), None) => inline_key(field, report),
        (None, Some(field)) => key_from_file(field, report, folder),
        (None, None) if table.has_misspelt("key") || table.has_misspelt("key_file") => None,
        (None, None) => {
            let place = Place { span: section.span.clone(), key: format!("{}.key", section.key) };
            report.error(
                &place,
                "is missing",
                "add `key = \"…\"` (hexadecimal, key and 4 bytes of salt) or `key_file = \"…\"`",
            );
            None
        }
    };
    let material = (|| {
        let (secret, bits, icv) = (secret?, bits?, icv?);
        let given = secret.value.len();
        match KeyMaterial::new(GcmParams::new(bits, icv), secret.value) {
            Ok(material) => Some(At { value: Arc::new(material), place: secret.place }),
            Err(needed) => {
                let what = format!("has {given} bytes; aes-{}-gcm needs {needed}", bits.bits());
                let help = format!(
                    "give {} hexadecimal digits: {} bytes of key, then 4 bytes of salt",
                    needed * 2,
                    needed - 4
                );
                report.secret_error(&secret.place, what, help);
                None
            }
        }
    })();
    (material, is_inline)
}

fn icv(field: Field<'_>, report: &mut Report<'_>) -> Option<IcvLen> {
    let help = "use 16, 12 or 8 bytes (RFC 4106 section 6)";
    let number = field.integer(report, 8..=16, help)?;
    let icv = usize::try_from(number.value).ok().and_then(IcvLen::from_bytes);
    match icv {
        None => report.error(
            &number.place,
            format!("{} bytes is no ICV length of AES-GCM", number.value),
            help,
        ),
        Some(IcvLen::Icv8) => report.warn(
            &number.place,
            "an ICV of 8 bytes is forged with far fewer tries than one of 16",
            "use 16 unless the peer cannot",
        ),
        Some(_) => {}
    }
    icv
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
        Ok(value) => Some(At { value, place: path.place }),
        Err(error) => {
            let shown = path.value.display();
            let help = match &error {
                KeyFileError::Mode(_) => format!("make it its owner's alone: chmod 600 {shown}"),
                KeyFileError::Owner(_) => format!("give it to the user the gateway runs as: chown root {shown}"),
                KeyFileError::Text(error) => hex_help(error).to_owned(),
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
