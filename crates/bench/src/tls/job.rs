//! Task of a load process, and its report.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::records::Overhead;
use crate::peer::libssl::Version;

/// A cipher of the study, or of today.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cipher {
    /// OpenSSL's name of the suite.
    pub name: String,
    /// The version of TLS it is used in.
    pub version: Version,
    /// True if encrypt-then-MAC is offered (RFC 7366); of no effect with an AEAD.
    pub encrypt_then_mac: bool,
}

impl Cipher {
    /// Bytes that the cipher adds to a record's text.
    #[must_use]
    pub fn overhead(&self) -> Overhead {
        match self.version {
            // The type of the record, and the tag.
            Version::Tls13 => Overhead::Fixed(17),
            Version::Tls12 if self.name.contains("GCM") => Overhead::Fixed(24),
            Version::Tls12 if self.name.contains("CHACHA20") => Overhead::Fixed(16),
            Version::Tls12 if self.name.ends_with("SHA256") => Overhead::Cbc(32),
            Version::Tls12 => Overhead::Cbc(20),
        }
    }

    /// True if it is AES-CBC with a MAC.
    #[must_use]
    pub fn is_cbc(&self) -> bool {
        matches!(self.overhead(), Overhead::Cbc(_))
    }
}

/// Program that fetches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Generator {
    /// Convoy's own load process.
    #[default]
    Convoy,
    /// Apache Bench, which decrypts all, has one thread, and counts whole files alone.
    ApacheBench,
}

impl Generator {
    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Convoy => "Convoy's",
            Self::ApacheBench => "Apache Bench",
        }
    }
}

/// One run: so many connections that fetch a file again and again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Program that fetches.
    pub generator: Generator,
    /// Address of the server: `address:port`.
    pub server: String,
    /// The file's path on it, with the slash.
    pub path: String,
    /// Bytes of the file, all of them zero.
    pub size: u64,
    /// Parameters to agree on with the server.
    pub cipher: Cipher,
    /// Connections at once.
    pub connections: usize,
    /// Seconds until the end, which comes up to five later where nothing has come by then.
    pub seconds: f64,
    /// One of so many connections is decrypted and compared; of the others records are counted.
    pub verify_every: usize,
    /// Seconds without a byte after which a connection has failed.
    pub patience: f64,
}

/// Counts of a load process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Seconds from the start to the end.
    pub seconds: f64,
    /// Files that came whole.
    pub files: u64,
    /// Of those, how many were decrypted and compared.
    pub verified: u64,
    /// Bytes of files, those of files that did not become whole by the end as well.
    pub bytes: u64,
    /// Records of application data.
    pub records: u64,
    /// Connections that failed, by reason.
    pub failures: BTreeMap<String, u64>,
    /// Ciphers that were agreed on.
    pub ciphers: BTreeMap<String, u64>,
    /// True if the server used encrypt-then-MAC, as lengths of records show; none with an AEAD.
    pub encrypt_then_mac: Option<bool>,
    /// Microseconds until each connection was connected, had its first byte, and had its file.
    pub connect: Vec<u32>,
    /// See [`Self::connect`].
    pub first_byte: Vec<u32>,
    /// See [`Self::connect`].
    pub whole: Vec<u32>,
    /// Seconds of processor time that this process spent.
    pub cpu_seconds: f64,
}

impl Tally {
    /// Adds what another process saw in the same run.
    pub fn add(&mut self, other: Self) {
        self.seconds = self.seconds.max(other.seconds);
        self.files += other.files;
        self.verified += other.verified;
        self.bytes += other.bytes;
        self.records += other.records;
        for (mine, theirs) in
            [(&mut self.failures, other.failures), (&mut self.ciphers, other.ciphers)]
        {
            for (name, n) in theirs {
                *mine.entry(name).or_default() += n;
            }
        }
        self.encrypt_then_mac = self.encrypt_then_mac.or(other.encrypt_then_mac);
        self.connect.extend(other.connect);
        self.first_byte.extend(other.first_byte);
        self.whole.extend(other.whole);
        self.cpu_seconds += other.cpu_seconds;
    }

    /// Connections that failed.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failures.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_add_up() {
        let tally = |seconds, n: u64, failure: &str| Tally {
            seconds,
            files: n,
            bytes: 100 * n,
            failures: [(failure.to_owned(), n)].into(),
            ciphers: [("AES128-SHA".to_owned(), n)].into(),
            connect: vec![1; n as usize],
            cpu_seconds: 0.5,
            ..Tally::default()
        };
        let mut sum = tally(1.0, 2, "reset");
        sum.add(tally(1.5, 3, "late"));
        assert_eq!((sum.seconds, sum.files, sum.bytes), (1.5, 5, 500));
        assert_eq!((sum.failed(), sum.failures.len()), (5, 2));
        assert_eq!(sum.ciphers["AES128-SHA"], 5);
        assert_eq!((sum.connect.len(), sum.cpu_seconds), (5, 1.0));
    }

    #[test]
    fn overheads_are_those_of_the_ciphers() {
        let cipher = |name: &str, version| Cipher {
            name: name.to_owned(),
            version,
            encrypt_then_mac: false,
        };
        for (name, version, overhead) in [
            ("AES128-SHA", Version::Tls12, Overhead::Cbc(20)),
            ("ECDHE-RSA-AES128-SHA256", Version::Tls12, Overhead::Cbc(32)),
            ("AES128-GCM-SHA256", Version::Tls12, Overhead::Fixed(24)),
            ("ECDHE-ECDSA-CHACHA20-POLY1305", Version::Tls12, Overhead::Fixed(16)),
            ("TLS_AES_128_GCM_SHA256", Version::Tls13, Overhead::Fixed(17)),
        ] {
            assert_eq!(cipher(name, version).overhead(), overhead, "{name}");
        }
    }
}
