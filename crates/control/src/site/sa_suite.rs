//! The algorithms of an SA: an AEAD by `algorithm`, or `encryption` and `integrity`.

use convoy_crypto::{Cipher, GcmParams, IcvLen, Integrity, KeyBits, Suite};
use convoy_ipsec::suite::{AhSuite, EspSuite};

use super::reader::{Field, Place, Report, Table, list_words};

/// AEADs. The ICV's length of those that have a choice comes from `icv`.
const AEADS: &[(&str, Suite)] = &[
    ("aes-128-gcm", gcm(KeyBits::Aes128)),
    ("aes-192-gcm", gcm(KeyBits::Aes192)),
    ("aes-256-gcm", gcm(KeyBits::Aes256)),
    ("aes-128-ccm", ccm(KeyBits::Aes128)),
    ("aes-192-ccm", ccm(KeyBits::Aes192)),
    ("aes-256-ccm", ccm(KeyBits::Aes256)),
    ("chacha20-poly1305", Suite::ChaCha20Poly1305),
    ("aes-128-gmac", Suite::Gmac(KeyBits::Aes128)),
    ("aes-192-gmac", Suite::Gmac(KeyBits::Aes192)),
    ("aes-256-gmac", Suite::Gmac(KeyBits::Aes256)),
];

/// Ciphers that need a MAC.
const CIPHERS: &[(&str, Cipher)] = &[
    ("aes-128-cbc", Cipher::AesCbc(KeyBits::Aes128)),
    ("aes-192-cbc", Cipher::AesCbc(KeyBits::Aes192)),
    ("aes-256-cbc", Cipher::AesCbc(KeyBits::Aes256)),
    ("aes-128-ctr", Cipher::AesCtr(KeyBits::Aes128)),
    ("aes-192-ctr", Cipher::AesCtr(KeyBits::Aes192)),
    ("aes-256-ctr", Cipher::AesCtr(KeyBits::Aes256)),
    ("null", Cipher::Null),
];

/// Ciphers of old peers, which need a MAC as well.
const LEGACY: &[(&str, Cipher)] = &[
    ("3des-cbc", Cipher::TripleDesCbc),
    ("camellia-128-cbc", Cipher::CamelliaCbc(KeyBits::Aes128)),
    ("camellia-192-cbc", Cipher::CamelliaCbc(KeyBits::Aes192)),
    ("camellia-256-cbc", Cipher::CamelliaCbc(KeyBits::Aes256)),
];

/// MACs, the usual first.
const MACS: &[(&str, Integrity)] = &[
    ("hmac-sha256-128", Integrity::HMAC_SHA256_128),
    ("hmac-sha384-192", Integrity::HMAC_SHA384_192),
    ("hmac-sha512-256", Integrity::HMAC_SHA512_256),
    ("hmac-sha1-96", Integrity::HMAC_SHA1_96),
    ("hmac-md5-96", Integrity::HMAC_MD5_96),
    ("aes-xcbc-96", Integrity::AES_XCBC_96),
    ("aes-cmac-96", Integrity::AES_CMAC_96),
    ("hmac-sha256-96", Integrity::HMAC_SHA256_96),
];

const fn gcm(bits: KeyBits) -> Suite {
    Suite::Gcm(GcmParams::new(bits, IcvLen::Icv16))
}

const fn ccm(key_bits: KeyBits) -> Suite {
    Suite::Ccm { key_bits, icv_len: IcvLen::Icv16 }
}

/// The suite that a section names. Those of AH are suites of ESP as well, with the cipher NULL. `legacy`
/// says whether ciphers of old peers are allowed.
pub(super) fn read(
    table: &mut Table<'_>,
    report: &mut Report<'_>,
    is_ah: bool,
    legacy: bool,
) -> Option<EspSuite> {
    let encryption = table.take("encryption");
    let integrity = table.take("integrity");
    let icv = table.take("icv");
    let suite = match (encryption, integrity) {
        (None, None) => aead(table, report, is_ah),
        (encryption, Some(integrity)) if is_ah => integrity_alone(report, encryption, integrity),
        (encryption, integrity) => pair(table, report, encryption, integrity, legacy),
    };
    let suite = match icv {
        Some(field) => with_icv(suite?, field, report),
        None => suite,
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

fn aead(table: &mut Table<'_>, report: &mut Report<'_>, is_ah: bool) -> Option<Suite> {
    let example =
        if is_ah { "integrity = \"hmac-sha256-128\"" } else { "algorithm = \"aes-128-gcm\"" };
    let field = table.need(report, "algorithm", example)?;
    let is_cipher = |name: &&str| is_one_of(name, CIPHERS) || is_one_of(name, LEGACY);
    if let Some(cipher) = field.as_str().filter(is_cipher) {
        let what = format!("\"{cipher}\" has no integrity of its own (RFC 8221 section 4)");
        let help = format!(
            "use `encryption = \"{cipher}\"` with `integrity = \"hmac-sha256-128\"`, or an AEAD: {}",
            names(AEADS)
        );
        report.error(&field.place, what, help);
        return None;
    }
    let aead = field.choice(report, AEADS)?;
    if is_ah && AhSuite::new(aead.value).is_err() {
        let help = format!("use `integrity`, one of {}, or \"aes-128-gmac\"", names(MACS));
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
    legacy: bool,
) -> Option<Suite> {
    if let Some(field) = table.take("algorithm") {
        let help = "keep `algorithm` for an AEAD, or `encryption` and `integrity` for a pair";
        report.error(&field.place, "is given beside `encryption` or `integrity`", help);
        return None;
    }
    let cipher = match encryption {
        Some(field) => cipher(field, report, legacy),
        None => {
            missing(table, report, "encryption", format!("one of {}", names(CIPHERS)));
            None
        }
    };
    let mac = match integrity {
        Some(field) => mac(field, report),
        None => {
            let help = format!("one of {}: no cipher goes without (RFC 8221)", names(MACS));
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

fn cipher(field: Field<'_>, report: &mut Report<'_>, legacy: bool) -> Option<Cipher> {
    if let Some(aead) = field.as_str().filter(|name| is_one_of(name, AEADS)) {
        let what = format!("\"{aead}\" authenticates by itself");
        let help = format!(
            "use `algorithm = \"{aead}\"` without `integrity`, or a cipher: {}",
            names(CIPHERS)
        );
        report.error(&field.place, what, help);
        return None;
    }
    if let Some(old) = field.as_str().filter(|name| !legacy && is_one_of(name, LEGACY)) {
        let help = format!(
            "use {}; if the peer has none of them, add `legacy = true` above the first [section]",
            names(CIPHERS)
        );
        report.error(&field.place, format!("\"{old}\" is for old peers only, and off"), help);
        return None;
    }
    let old = if legacy { LEGACY } else { &[] };
    let cipher = field.choice(report, &[CIPHERS, old].concat())?;
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
        report.error(&field.place, what, format!("use {}", names(MACS)));
        return None;
    }
    let mac = field.choice(report, MACS)?;
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
    let icv = usize::try_from(number.value).ok().and_then(IcvLen::from_bytes);
    let Some(icv_len) = icv else {
        let what = format!("{} bytes is no ICV length of {name}", number.value);
        report.error(&number.place, what, help);
        return None;
    };
    if icv_len == IcvLen::Icv8 {
        report.warn(
            &number.place,
            "an ICV of 8 bytes is forged with far fewer tries than one of 16",
            "use 16 unless the peer cannot",
        );
    }
    Some(match suite {
        Suite::Gcm(params) => Suite::Gcm(GcmParams { icv_len, ..params }),
        Suite::Ccm { key_bits, .. } => Suite::Ccm { key_bits, icv_len },
        other => other,
    })
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
    fn names_are_those_of_the_library_and_every_suite_has_one() {
        for (name, cipher) in CIPHERS.iter().chain(LEGACY) {
            assert_eq!(cipher.is_legacy(), is_one_of(name, LEGACY));
            assert_eq!(cipher.to_string(), *name);
        }
        for (name, integrity) in MACS {
            assert_eq!(integrity.to_string(), *name);
        }
        let mut named = HashSet::new();
        for (name, suite) in AEADS {
            assert!(suite.to_string().starts_with(name), "{name} is {suite}");
            for icv_len in IcvLen::ALL {
                named.insert(match *suite {
                    Suite::Gcm(params) => Suite::Gcm(GcmParams { icv_len, ..params }),
                    Suite::Ccm { key_bits, .. } => Suite::Ccm { key_bits, icv_len },
                    other => other,
                });
            }
        }
        for (_, cipher) in CIPHERS.iter().chain(LEGACY) {
            named.extend(
                MACS.iter()
                    .map(|(_, integrity)| Suite::Pair { cipher: *cipher, integrity: *integrity }),
            );
        }
        assert_eq!(named, EspSuite::all().map(EspSuite::suite).collect());
    }
}
