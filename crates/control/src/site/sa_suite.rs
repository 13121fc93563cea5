//! The algorithms of an SA: an AEAD by `algorithm`, or `encryption` and `integrity`.

use convoy_crypto::{Cipher, Integrity, Suite};
use convoy_ipsec::suite::{AhSuite, EspSuite};

use super::reader::{Field, Place, Report, Table, list_words, quote};
use super::spelling::{self, Meaning};

/// AEADs. The ICV's length of those that have a choice comes from `icv`.
fn aeads() -> Vec<(&'static str, Suite)> {
    Suite::AEADS.into_iter().filter_map(|aead| Some((aead.names()?.name, aead))).collect()
}

/// Ciphers that need a MAC; NULL is the last.
fn ciphers() -> Vec<(&'static str, Cipher)> {
    let mut ciphers = named(|cipher| !cipher.is_legacy());
    ciphers.sort_by_key(|(_, cipher)| *cipher == Cipher::Null);
    ciphers
}

/// Ciphers of old peers, which need a MAC as well.
fn legacy_ciphers() -> Vec<(&'static str, Cipher)> {
    named(Cipher::is_legacy)
}

fn named(is_wanted: impl Fn(Cipher) -> bool) -> Vec<(&'static str, Cipher)> {
    let wanted = Cipher::ALL.into_iter().filter(|cipher| is_wanted(*cipher));
    wanted.map(|cipher| (cipher.names().name, cipher)).collect()
}

/// Terms under which a section names its algorithms.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    pub(super) is_ah: bool,
    /// True if ciphers of old peers are allowed.
    pub(super) legacy: bool,
}

/// The suite that a section names. Those of AH are suites of ESP as well, with the cipher NULL.
pub(super) fn read(
    table: &mut Table<'_>,
    report: &mut Report<'_>,
    terms: Terms,
) -> Option<EspSuite> {
    let encryption = table.take("encryption");
    let integrity = table.take("integrity");
    let icv = table.take("icv");
    let suite = match (encryption, integrity) {
        (None, None) => aead(table, report, terms),
        (encryption, Some(integrity)) if terms.is_ah => {
            integrity_alone(report, encryption, integrity)
        }
        (encryption, integrity) => pair(table, report, encryption, integrity, terms),
    };
    let suite = match (icv, suite) {
        (Some(field), Some(suite)) => with_icv(suite, field, report),
        (Some(field), None) => {
            // Of what is not known, but its own errors can be told.
            field.integer(report, 8..=16, "use 16, 12 or 8 bytes, or leave the line out");
            None
        }
        (None, suite) => suite,
    };
    // The tables hold nothing else.
    EspSuite::new(suite?).ok()
}

/// Suite of AH: it encrypts nothing.
fn integrity_alone(
    report: &mut Report<'_>,
    encryption: Option<Field<'_>>,
    integrity: Field<'_>,
) -> Option<Suite> {
    let integrity = mac(integrity, report);
    if let Some(field) = encryption {
        report.error(
            &field.place,
            "has no meaning with AH, which encrypts nothing",
            "remove the line",
        );
        return None;
    }
    Some(Suite::Pair { cipher: Cipher::Null, integrity: integrity? })
}

fn aead(table: &mut Table<'_>, report: &mut Report<'_>, terms: Terms) -> Option<Suite> {
    let is_ah = terms.is_ah;
    let example =
        if is_ah { "integrity = \"hmac-sha256-128\"" } else { "algorithm = \"aes-128-gcm\"" };
    let field = table.need(report, "algorithm", example)?;
    let spelt = field.as_str().filter(|name| !is_one_of(name, &aeads())).and_then(spelling::read);
    if let Some(spelt) = spelt {
        let text = field.as_str().map(quote).unwrap_or_default();
        let (what, help, known) = match spelt.meaning {
            Meaning::Aead(suite) if !is_ah => (
                format!("{text} is spelt otherwise here"),
                format!("write {spelt}"),
                (!spelt.is_size_open).then_some(suite),
            ),
            Meaning::Mac(mac) | Meaning::Pair(_, mac) if is_ah => (
                format!("{text} is for `integrity`, which AH has alone"),
                format!("write `integrity = \"{mac}\"` instead, with the key in `integrity_key`"),
                None,
            ),
            Meaning::Cipher(cipher) if !is_ah => (
                format!("{text} has no integrity of its own (RFC 8221 section 4)"),
                format!(
                    "use {}; or an AEAD: {}",
                    pair_in_words(cipher, Integrity::HMAC_SHA256_128, terms),
                    names(&aeads())
                ),
                None,
            ),
            Meaning::Pair(cipher, mac) => (
                format!("{text} is a pair of a cipher and a MAC"),
                format!("use {} instead", pair_in_words(cipher, mac, terms)),
                None,
            ),
            Meaning::Mac(mac) => (
                format!("{text} authenticates only"),
                format!(
                    "use `integrity = \"{mac}\"` with `encryption`, or an AEAD: {}",
                    names(&aeads())
                ),
                None,
            ),
            Meaning::Aead(Suite::Gmac(_)) => {
                (format!("{text} is spelt otherwise here"), format!("write {spelt}"), None)
            }
            Meaning::Aead(_) | Meaning::Cipher(_) => (
                "encrypts, which AH does not".to_owned(),
                format!(
                    "use `integrity`, one of {}, or \"aes-128-gmac\"",
                    names(&Integrity::NAMED)
                ),
                None,
            ),
        };
        report.error(&field.place, what, help);
        return known;
    }
    let aead = field.choice(report, &aeads())?;
    if is_ah && AhSuite::new(aead.value).is_err() {
        let help =
            format!("use `integrity`, one of {}, or \"aes-128-gmac\"", names(&Integrity::NAMED));
        report.error(&aead.place, "encrypts, which AH does not", help);
        return None;
    }
    Some(aead.value)
}

fn pair(
    table: &mut Table<'_>,
    report: &mut Report<'_>,
    encryption: Option<Field<'_>>,
    integrity: Option<Field<'_>>,
    terms: Terms,
) -> Option<Suite> {
    if let Some(field) = table.take("algorithm") {
        let help = "keep `algorithm` for an AEAD, or `encryption` and `integrity` for a pair";
        report.error(&field.place, "is given beside `encryption` or `integrity`", help);
        return None;
    }
    let cipher = match encryption {
        Some(field) => cipher(field, report, terms),
        None => {
            missing(table, report, "encryption", format!("one of {}", names(&ciphers())));
            None
        }
    };
    let mac = match integrity {
        Some(field) => mac(field, report),
        None => {
            let help =
                format!("one of {}: no cipher goes without (RFC 8221)", names(&Integrity::NAMED));
            missing(table, report, "integrity", help);
            None
        }
    };
    Some(Suite::Pair { cipher: cipher?, integrity: mac? })
}

fn missing(table: &Table<'_>, report: &mut Report<'_>, key: &'static str, help: String) {
    // What looks like it misspelt is told as an unknown key.
    if !table.has_misspelt(key) {
        let section = &table.place;
        let place = Place { span: section.span.clone(), key: format!("{}.{key}", section.key) };
        report.error(&place, "is missing", format!("add `{key} = \"…\"`, {help}"));
    }
}

/// The lines that make a pair, with the keys that they need.
fn pair_in_words(cipher: Cipher, mac: Integrity, terms: Terms) -> String {
    let suite = Suite::Pair { cipher, integrity: mac };
    let salt = EspSuite::new(suite).map_or(0, EspSuite::salt_bytes);
    let key = match suite.key_bytes() + salt {
        0 => String::new(),
        bytes => format!(" a `key` of {bytes} bytes and"),
    };
    let mut words = format!(
        "`encryption = \"{}\"` with `integrity = \"{mac}\"`,{key} an `integrity_key` of {} bytes",
        cipher.names().name,
        suite.integrity_key_bytes(),
    );
    if cipher.is_legacy() && !terms.legacy {
        words += ", and `legacy = true` above the first [section], as it is for old peers only";
    }
    words
}

fn cipher(field: Field<'_>, report: &mut Report<'_>, terms: Terms) -> Option<Cipher> {
    let is_own = |name: &&str| is_one_of(name, &ciphers()) || is_one_of(name, &legacy_ciphers());
    let text = field.as_str().map(quote).unwrap_or_default();
    let own = field.as_str().filter(is_own);
    let spelt = field.as_str().and_then(spelling::read);
    let old = "if the peer has none of them, add `legacy = true` above the first [section]";
    let (what, help, known) = match (own, spelt.map(|spelt| (spelt, spelt.meaning))) {
        (_, Some((_, Meaning::Aead(suite)))) => (
            format!("{text} authenticates by itself"),
            format!(
                "use `algorithm = \"{}\"` without `integrity`, or a cipher: {}",
                suite.names().map_or("", |names| names.name),
                names(&ciphers())
            ),
            None,
        ),
        (own, Some((_, Meaning::Cipher(cipher)))) if cipher.is_legacy() && !terms.legacy => {
            let name = cipher.names().name;
            let write = match own {
                Some(_) => String::new(),
                None => format!(", and write `encryption = \"{name}\"`"),
            };
            (
                format!("{text} is for old peers only, and off"),
                format!("use {}; {old}{write}", names(&ciphers())),
                Some(cipher),
            )
        }
        (None, Some((spelt, Meaning::Cipher(cipher)))) => (
            format!("{text} is spelt otherwise here"),
            format!("write {spelt}"),
            (!spelt.is_size_open).then_some(cipher),
        ),
        (None, Some((_, Meaning::Pair(cipher, mac)))) => (
            format!("{text} is a pair of a cipher and a MAC"),
            format!("use {} instead", pair_in_words(cipher, mac, terms)),
            None,
        ),
        (None, Some((spelt, Meaning::Mac(_)))) => {
            (format!("{text} does not encrypt"), format!("write {spelt}, and a cipher here"), None)
        }
        _ => return listed_cipher(field, report, terms),
    };
    report.error(&field.place, what, help);
    known
}

/// A cipher by its name.
fn listed_cipher(field: Field<'_>, report: &mut Report<'_>, terms: Terms) -> Option<Cipher> {
    let old = if terms.legacy { legacy_ciphers() } else { Vec::new() };
    let cipher = field.choice(report, &[ciphers(), old].concat())?;
    if cipher.value == Cipher::TripleDesCbc {
        let what = "3DES is for old peers only: RFC 8221 section 5 says it should not be used, and an SA ends \
                    after 8 MB";
        report.warn(&cipher.place, what, "use \"aes-128-cbc\" unless the peer cannot");
    }
    Some(cipher.value)
}

fn mac(field: Field<'_>, report: &mut Report<'_>) -> Option<Integrity> {
    if matches!(field.as_str(), Some("null" | "none")) {
        let what = "a cipher without integrity is refused (RFC 8221 section 4)";
        report.error(&field.place, what, format!("use {}", names(&Integrity::NAMED)));
        return None;
    }
    let text = field.as_str().filter(|name| !is_one_of(name, &Integrity::NAMED));
    if let Some((text, spelt)) = text.and_then(|text| Some((text, spelling::read(text)?)))
        && let Meaning::Mac(mac) = spelt.meaning
    {
        report.error(
            &field.place,
            format!("{} is spelt otherwise here", quote(text)),
            format!("write {spelt}"),
        );
        return Some(mac);
    }
    let mac = field.choice(report, &Integrity::NAMED)?;
    if mac.value == Integrity::HMAC_MD5_96 {
        let what = "HMAC-MD5-96 is for old peers only: RFC 8221 section 6 says it must not be used";
        report.warn(&mac.place, what, "use \"hmac-sha256-128\" unless the peer cannot");
    }
    if mac.value == Integrity::HMAC_SHA256_96 {
        let what = "HMAC-SHA-256 cut to 96 bits is of a draft that RFC 4868 replaced";
        report.warn(&mac.place, what, "use \"hmac-sha256-128\" unless the peer cannot");
    }
    Some(mac.value)
}

/// The suite with another length of ICV.
fn with_icv(suite: Suite, field: Field<'_>, report: &mut Report<'_>) -> Option<Suite> {
    let (name, section) = match suite {
        Suite::Gcm(_) => ("AES-GCM", "RFC 4106 section 6"),
        Suite::Ccm { .. } => ("AES-CCM", "RFC 4309 section 6"),
        _ => {
            let what =
                format!("has no meaning here: an ICV of {suite} has {} bytes", suite.icv_bytes());
            report.error(&field.place, what, "remove the line");
            return None;
        }
    };
    let help = format!("use 16, 12 or 8 bytes ({section})");
    let number = field.integer(report, 8..=16, &help)?;
    let bytes = usize::try_from(number.value).ok();
    let Some(cut) = bytes.and_then(|bytes| suite.with_icv(bytes)) else {
        let what = format!("{} bytes is no ICV length of {name}", number.value);
        report.error(&number.place, what, help);
        return None;
    };
    if cut.icv_bytes() == 8 {
        report.warn(
            &number.place,
            "an ICV of 8 bytes is forged with far fewer tries than one of 16",
            "use 16 unless the peer cannot",
        );
    }
    Some(cut)
}

fn is_one_of<T>(name: &str, words: &[(&'static str, T)]) -> bool {
    words.iter().any(|(word, _)| *word == name)
}

fn names<T>(words: &[(&'static str, T)]) -> String {
    list_words(&words.iter().map(|(word, _)| *word).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_suite_has_names() {
        let mut named = HashSet::new();
        for (name, suite) in aeads() {
            assert!(suite.to_string().starts_with(name), "{name} is {suite}");
            named.extend([8, 12, 16].into_iter().filter_map(|icv| suite.with_icv(icv)));
        }
        for (_, cipher) in ciphers().into_iter().chain(legacy_ciphers()) {
            named.extend(Integrity::NAMED.map(|(_, integrity)| Suite::Pair { cipher, integrity }));
        }
        assert_eq!(named, EspSuite::all().map(EspSuite::suite).collect());
    }
}
