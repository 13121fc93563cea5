//! Records of TLS, sealed and opened by the calls of EVP that libssl makes: OpenSSL's default provider and
//! another one in turn, in one process.

mod check;
pub(crate) mod results;
mod runner;

pub mod measure;
pub mod report;

use std::ffi::CStr;
use std::str::FromStr;

/// A cipher, as libssl asks a provider for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordCipher {
    /// Its name here.
    pub name: &'static str,
    /// The name libssl fetches it by.
    evp: &'static CStr,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Gcm,
    /// ChaCha20-Poly1305, whose nonces nobody sends (RFC 7905).
    ChaCha,
    /// MAC, then encrypt, in one: with how many bytes of MAC, which are as many as its key has.
    CbcHmac(usize),
}

impl RecordCipher {
    /// Ciphers that can be measured.
    pub const ALL: [Self; 8] = [
        Self::new("aes-128-gcm", c"id-aes128-GCM", Kind::Gcm),
        Self::new("aes-192-gcm", c"id-aes192-GCM", Kind::Gcm),
        Self::new("aes-256-gcm", c"id-aes256-GCM", Kind::Gcm),
        Self::new("chacha20-poly1305", c"ChaCha20-Poly1305", Kind::ChaCha),
        Self::new("aes-128-cbc-hmac-sha1", c"AES-128-CBC-HMAC-SHA1", Kind::CbcHmac(20)),
        Self::new("aes-256-cbc-hmac-sha1", c"AES-256-CBC-HMAC-SHA1", Kind::CbcHmac(20)),
        Self::new("aes-128-cbc-hmac-sha256", c"AES-128-CBC-HMAC-SHA256", Kind::CbcHmac(32)),
        Self::new("aes-256-cbc-hmac-sha256", c"AES-256-CBC-HMAC-SHA256", Kind::CbcHmac(32)),
    ];

    const fn new(name: &'static str, evp: &'static CStr, kind: Kind) -> Self {
        Self { name, evp, kind }
    }

    fn is_aead(self) -> bool {
        matches!(self.kind, Kind::Gcm | Kind::ChaCha)
    }
}

impl FromStr for RecordCipher {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|cipher| cipher.name == word);
        named.ok_or_else(|| {
            let names = Self::ALL.map(|cipher| cipher.name).join(", ");
            format!("no cipher is called {word:?}; valid names are {names}")
        })
    }
}

/// Operation of a cipher that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A record of TLS 1.2 sealed: additional data set, growth asked for, one update in place.
    Tls12Seal,
    /// One opened.
    Tls12Open,
    /// A record of TLS 1.3 sealed: IV, header, text, end, tag.
    Tls13Seal,
    /// One opened.
    Tls13Open,
    /// A packet sealed as OpenVPN does it: IV, header, text from one place to another, end, tag.
    PacketSeal,
    /// One opened.
    PacketOpen,
    /// The next part of a message that does not end.
    Part,
    /// Four records sealed in one call.
    Multiblock4,
    /// Eight.
    Multiblock8,
    /// A key set up in a context that is there, with that of the MAC.
    Key,
    /// A context made, given its keys as libssl gives them, and freed: what a connection's direction needs.
    Context,
}

impl Call {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Tls12Seal,
        Self::Tls12Open,
        Self::Tls13Seal,
        Self::Tls13Open,
        Self::PacketSeal,
        Self::PacketOpen,
        Self::Part,
        Self::Multiblock4,
        Self::Multiblock8,
        Self::Key,
        Self::Context,
    ];

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tls12Seal => "tls12-seal",
            Self::Tls12Open => "tls12-open",
            Self::Tls13Seal => "tls13-seal",
            Self::Tls13Open => "tls13-open",
            Self::PacketSeal => "packet-seal",
            Self::PacketOpen => "packet-open",
            Self::Part => "part",
            Self::Multiblock4 => "multiblock-4",
            Self::Multiblock8 => "multiblock-8",
            Self::Key => "key",
            Self::Context => "context",
        }
    }

    /// True if it applies to a cipher.
    fn suits(self, cipher: RecordCipher) -> bool {
        match self {
            Self::Tls13Seal
            | Self::Tls13Open
            | Self::PacketSeal
            | Self::PacketOpen
            | Self::Part => cipher.is_aead(),
            Self::Multiblock4 | Self::Multiblock8 => !cipher.is_aead(),
            _ => true,
        }
    }

    /// Records of a call.
    #[must_use]
    pub const fn records(self) -> usize {
        match self {
            Self::Multiblock4 => 4,
            Self::Multiblock8 => 8,
            _ => 1,
        }
    }

    fn opens(self) -> bool {
        matches!(self, Self::Tls12Open | Self::Tls13Open | Self::PacketOpen)
    }
}

impl FromStr for Call {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|call| call.name() == word);
        named.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("no call is named {word:?}; valid names are {names}")
        })
    }
}

/// Sizes of records that are measured if none are named.
pub const SIZES: [usize; 4] = [64, 256, 1424, 16_384];

/// Sizes of parts.
pub const PARTS: [usize; 5] = [16, 64, 256, 1024, 16_384];

/// Sizes of packets that are measured if none are named.
pub const PACKETS: [usize; 3] = [64, 256, 1400];

/// Fewest bytes of a record among several: libssl splits no finer.
const LEAST_OF_SEVERAL: usize = 512;

/// Most bytes of a record's text.
pub const MOST: usize = 16_384;

/// One point to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The cipher.
    pub cipher: RecordCipher,
    /// Call that is measured.
    pub call: Call,
    /// Bytes of text of a record or part; 0 where there is no text.
    pub size: usize,
}

/// Sizes at which calls are measured.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// Bytes of text of records.
    pub records: Vec<usize>,
    /// Bytes of text of packets.
    pub packets: Vec<usize>,
    /// Bytes of parts.
    pub parts: Vec<usize>,
}

impl Subject {
    /// The points of some ciphers at some sizes.
    #[must_use]
    pub fn all(ciphers: &[RecordCipher], sizes: &Sizes) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for &cipher in ciphers {
            for call in Call::ALL.into_iter().filter(|call| call.suits(cipher)) {
                let sizes: Vec<usize> = match call {
                    Call::Key | Call::Context => vec![0],
                    Call::Part => sizes.parts.clone(),
                    Call::PacketSeal | Call::PacketOpen => sizes.packets.clone(),
                    Call::Multiblock4 | Call::Multiblock8 => {
                        sizes.records.iter().filter_map(|size| fragment(*size)).collect()
                    }
                    _ => sizes.records.clone(),
                };
                all.extend(sizes.into_iter().map(|size| Self { cipher, call, size }));
            }
        }
        all
    }
}

/// As libssl splits what is written for several records at once: never a whole number of pages, 512 bytes
/// less.
fn fragment(size: usize) -> Option<usize> {
    let size = if size.is_multiple_of(4096) { size.saturating_sub(512) } else { size };
    (size >= LEAST_OF_SEVERAL).then_some(size)
}

/// A point cannot be measured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A side refused a call.
    #[error("{who} refused {what}: {why}")]
    Refused {
        /// Whose provider.
        who: &'static str,
        /// Call that was refused.
        what: &'static str,
        /// OpenSSL's errors.
        why: String,
    },
    /// Wrong results are not measured.
    #[error("{0}")]
    Disagreement(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cipher_has_its_calls_and_only_those() {
        let (records, packets, parts) = (SIZES.to_vec(), PACKETS.to_vec(), PARTS.to_vec());
        let all = Subject::all(&RecordCipher::ALL, &Sizes { records, packets, parts });
        let count = |name: &str| all.iter().filter(|s| s.cipher.name == name).count();
        // Four calls at four sizes and two at three, five parts, key and context; two calls, two of several at
        // two sizes.
        assert_eq!((count("aes-128-gcm"), count("aes-256-cbc-hmac-sha256")), (29, 14));
        assert_eq!(count("chacha20-poly1305"), 29);
        let several: Vec<_> = all.iter().filter(|s| s.call == Call::Multiblock8).collect();
        assert!(several.iter().all(|s| [1424, 15_872].contains(&s.size)), "{several:?}");
    }

    #[test]
    fn ciphers_and_calls_are_named_as_they_are_printed() {
        for cipher in RecordCipher::ALL {
            assert_eq!(cipher.name.parse(), Ok(cipher));
        }
        let error = "aes-128-ccm".parse::<RecordCipher>().unwrap_err();
        assert!(error.contains("aes-256-cbc-hmac-sha1,"), "{error}");
        for call in Call::ALL {
            assert_eq!(call.name().parse(), Ok(call));
        }
        assert!("seal".parse::<Call>().unwrap_err().contains("tls12-seal,"));
    }
}
