//! Algorithms as strongSwan, Libreswan, OpenSSL and Linux write them.

use std::fmt;

use convoy_crypto::{Cipher, Integrity, KeyBits, Suite};

/// Algorithms that a text means, and the lines that a site file has for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spelling {
    pub(super) meaning: Meaning,
    /// True if the text says nothing of the key's size; the meaning has the smallest one.
    pub(super) is_size_open: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Aead(Suite),
    Cipher(Cipher),
    Mac(Integrity),
    Pair(Cipher, Integrity),
}

/// The lines to write.
impl fmt::Display for Spelling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = self.is_size_open;
        let size = if open { ", or with 192 or 256 as its key is" } else { "" };
        match self.meaning {
            Meaning::Aead(suite) => {
                let name = suite.names().map_or("", |names| names.name);
                write!(f, "`algorithm = \"{name}\"`{size}")?;
                if suite.icv_bytes() != 16 {
                    write!(f, " and `icv = {}`", suite.icv_bytes())?;
                }
                Ok(())
            }
            Meaning::Cipher(cipher) => {
                write!(f, "`encryption = \"{}\"`{size}", cipher.names().name)
            }
            Meaning::Mac(mac) => write!(f, "`integrity = \"{mac}\"`"),
            Meaning::Pair(cipher, mac) => {
                let name = cipher.names().name;
                write!(f, "`encryption = \"{name}\"`{size} and `integrity = \"{mac}\"`")
            }
        }
    }
}

/// Longest text that is looked at, in bytes.
const LONGEST: usize = 80;

/// Words that algorithms are written with. None begins with another one before it.
const WORDS: [&str; 24] = [
    "aes", "gcm", "ccm", "ctr", "cbc", "gmac", "cmac", "xcbc", "hmac", "mac", "sha", "md", "des",
    "ede", "triple", "camellia", "chacha", "poly", "cipher", "null", "none", "esp", "rfc", "id",
];

/// Beginnings of words that a proposal has behind the algorithms of ESP: key exchange, PRF, ESN.
const BEHIND: [&str; 10] = ["modp", "ecp", "dh", "curve", "x", "prf", "ke", "ml", "esn", "no"];

/// Understands a text, or does not.
pub(super) fn read(text: &str) -> Option<Spelling> {
    let mut reader = Reader::default();
    for token in tokens(text)? {
        match token {
            Token::Word(word) => reader.word(word)?,
            Token::Number(number) => reader.number(number)?,
            Token::Other(word) => {
                if reader.has_something() && BEHIND.iter().any(|begin| word.starts_with(begin)) {
                    break;
                }
                reader.letter(&word)?;
            }
        }
    }
    reader.meaning()
}

enum Token {
    Word(&'static str),
    Other(String),
    Number(u32),
}

/// Words and numbers of a text; what stands between them only parts them.
fn tokens(text: &str) -> Option<Vec<Token>> {
    if text.len() > LONGEST || !text.is_ascii() {
        return None;
    }
    let lower = text.to_ascii_lowercase();
    let mut tokens = Vec::new();
    let mut rest = lower.as_str();
    while let Some(first) = rest.chars().next() {
        let is_same: fn(char) -> bool = match first {
            '0'..='9' => |c| c.is_ascii_digit(),
            'a'..='z' => |c| c.is_ascii_lowercase(),
            _ => {
                rest = rest.get(1..)?;
                continue;
            }
        };
        let end = rest.find(|c| !is_same(c)).unwrap_or(rest.len());
        let (run, behind) = rest.split_at(end);
        rest = behind;
        if first.is_ascii_digit() {
            tokens.push(Token::Number(run.parse().ok()?));
        } else {
            tokens.extend(words(run));
        }
    }
    Some(tokens)
}

/// Known words that letters are put together from, or all of them as one that is not known.
fn words(run: &str) -> Vec<Token> {
    let (mut tokens, mut rest) = (Vec::new(), run);
    while !rest.is_empty() {
        let Some(word) = WORDS.into_iter().find(|word| rest.starts_with(word)) else {
            return vec![Token::Other(run.to_owned())];
        };
        tokens.push(Token::Word(word));
        rest = rest.get(word.len()..).unwrap_or_default();
    }
    tokens
}

/// Parts of a proposal, as they come.
#[derive(Default)]
struct Reader {
    /// Number of times that AES was named: a MAC made of it takes one.
    aes: u32,
    mode: Option<&'static str>,
    bits: Option<KeyBits>,
    /// Bytes of an AEAD's ICV.
    icv: Option<usize>,
    other: Option<Other>,
    mac: Option<Hash>,
    /// Numbers behind the name of the hash.
    mac_numbers: Vec<u32>,
    /// The 3 of 3DES, which stands in front of it.
    has_three: bool,
    /// True if RFC 4543 was named, whose GMAC Linux writes as GCM.
    is_gmac: bool,
    last: Option<&'static str>,
}

/// Ciphers that are not of AES.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Other {
    Null,
    Des,
    Camellia,
    ChaCha,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Hash {
    Sha,
    Md,
    Xcbc,
    Cmac,
}

impl Reader {
    fn has_something(&self) -> bool {
        self.aes > 0 || self.other.is_some() || self.mac.is_some()
    }

    fn word(&mut self, word: &'static str) -> Option<()> {
        match word {
            "aes" => self.aes += 1,
            "gcm" | "ccm" | "ctr" | "cbc" | "gmac" if self.mode.is_some() => return None,
            "gcm" | "ccm" | "ctr" | "cbc" | "gmac" => self.mode = Some(word),
            "sha" => self.mac = Some(Hash::Sha),
            "md" => self.mac = Some(Hash::Md),
            "xcbc" => self.mac = Some(Hash::Xcbc),
            "cmac" => self.mac = Some(Hash::Cmac),
            "des" => self.other = Some(Other::Des),
            "ede" | "triple" => self.has_three = true,
            "camellia" => self.other = Some(Other::Camellia),
            "chacha" => self.other = Some(Other::ChaCha),
            // Behind a cipher it says that there is no MAC.
            "null" | "none" if !self.has_something() => self.other = Some(Other::Null),
            _ => {}
        }
        if !matches!(word, "hmac" | "mac") {
            self.last = Some(word);
        }
        Some(())
    }

    /// The letter behind GCM or CCM in Libreswan, which stands for the length of the ICV.
    fn letter(&mut self, word: &str) -> Option<()> {
        self.icv = match (self.mode, word) {
            (Some("gcm" | "ccm"), "a") => Some(8),
            (Some("gcm" | "ccm"), "b") => Some(12),
            (Some("gcm" | "ccm"), "c") => Some(16),
            _ => return None,
        };
        Some(())
    }

    fn number(&mut self, number: u32) -> Option<()> {
        match (self.last, number) {
            (Some("sha" | "md" | "xcbc" | "cmac"), _) => self.mac_numbers.push(number),
            // "aes-xcbc-96" has its number behind the MAC, "xcbc(aes)" has none.
            (Some("aes"), 96) if self.mac.is_some() => self.mac_numbers.push(number),
            (Some("rfc"), _) => self.is_gmac = number == 4543,
            (Some("chacha" | "poly"), _) => {}
            (None | Some("des" | "ede" | "esp"), 3) => self.has_three = true,
            (Some("aes" | "gcm" | "ccm" | "ctr" | "cbc" | "gmac" | "camellia"), _) => {
                match KeyBits::from_bits(usize::try_from(number).ok()?) {
                    Some(bits) if self.bits.is_none() => self.bits = Some(bits),
                    _ => {
                        self.icv = Some(match number {
                            8 | 64 => 8,
                            12 | 96 => 12,
                            16 | 128 => 16,
                            _ => return None,
                        });
                    }
                }
            }
            _ => return None,
        }
        Some(())
    }

    fn meaning(self) -> Option<Spelling> {
        let mac = match self.mac {
            Some(hash) => Some(mac(hash, &self.mac_numbers)?),
            None => None,
        };
        let of_mac = u32::from(matches!(self.mac, Some(Hash::Xcbc | Hash::Cmac)));
        let bits = self.bits.unwrap_or(KeyBits::Aes128);
        let has_aes = self.aes > of_mac;
        let mut is_size_open = self.bits.is_none();
        let cipher = match (self.other, has_aes, self.mode) {
            (Some(Other::ChaCha), false, None) => {
                return Some(Spelling {
                    meaning: Meaning::Aead(Suite::ChaCha20Poly1305),
                    is_size_open: false,
                });
            }
            (None, true, Some(mode @ ("gcm" | "ccm" | "gmac"))) => {
                let suite = match mode {
                    "gcm" if !self.is_gmac => Suite::gcm(bits),
                    "ccm" => Suite::ccm(bits),
                    _ => Suite::Gmac(bits),
                };
                let meaning = Meaning::Aead(suite.with_icv(self.icv.unwrap_or(16))?);
                return Some(Spelling { meaning, is_size_open });
            }
            _ if self.icv.is_some() => return None,
            (None, true, Some("ctr")) => Some(Cipher::AesCtr(bits)),
            (None, true, None | Some("cbc")) => Some(Cipher::AesCbc(bits)),
            (Some(Other::Camellia), false, None | Some("cbc")) => Some(Cipher::CamelliaCbc(bits)),
            (Some(Other::Des), false, None | Some("cbc")) if self.has_three => {
                is_size_open = false;
                Some(Cipher::TripleDesCbc)
            }
            (Some(Other::Null), false, None) => {
                is_size_open = false;
                Some(Cipher::Null)
            }
            (None, false, None) => {
                is_size_open = false;
                None
            }
            _ => return None,
        };
        let meaning = match (cipher, mac) {
            (Some(cipher), Some(mac)) => Meaning::Pair(cipher, mac),
            (Some(cipher), None) => Meaning::Cipher(cipher),
            (None, Some(mac)) => Meaning::Mac(mac),
            (None, None) => return None,
        };
        Some(Spelling { meaning, is_size_open })
    }
}

/// The MAC of a hash and the numbers behind its name.
fn mac(hash: Hash, numbers: &[u32]) -> Option<Integrity> {
    // As in SHA-2-256.
    let numbers = numbers.strip_prefix(&[2]).unwrap_or(numbers);
    Some(match (hash, numbers) {
        (Hash::Sha, [] | [1] | [96] | [1, 96]) => Integrity::HMAC_SHA1_96,
        (Hash::Sha, [256] | [256, 128]) => Integrity::HMAC_SHA256_128,
        (Hash::Sha, [256, 96]) => Integrity::HMAC_SHA256_96,
        (Hash::Sha, [384] | [384, 192]) => Integrity::HMAC_SHA384_192,
        (Hash::Sha, [512] | [512, 256]) => Integrity::HMAC_SHA512_256,
        (Hash::Md, [5] | [5, 96]) => Integrity::HMAC_MD5_96,
        (Hash::Xcbc, [] | [96]) => Integrity::AES_XCBC_96,
        (Hash::Cmac, [] | [96]) => Integrity::AES_CMAC_96,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_others_are_understood() {
        for (text, lines) in [
            // strongSwan
            ("aes128gcm16", "`algorithm = \"aes-128-gcm\"`"),
            ("aes256gcm128", "`algorithm = \"aes-256-gcm\"`"),
            ("aes128gcm16-prfsha256-ecp256", "`algorithm = \"aes-128-gcm\"`"),
            ("aes192gcm12", "`algorithm = \"aes-192-gcm\"` and `icv = 12`"),
            ("aes256ccm64", "`algorithm = \"aes-256-ccm\"` and `icv = 8`"),
            ("aes128gmac", "`algorithm = \"aes-128-gmac\"`"),
            ("chacha20poly1305-x25519", "`algorithm = \"chacha20-poly1305\"`"),
            ("aes128", "`encryption = \"aes-128-cbc\"`"),
            ("aes256ctr", "`encryption = \"aes-256-ctr\"`"),
            ("aes128-sha256-modp2048", AES_SHA2),
            ("aes128-sha256-esn-noesn", AES_SHA2),
            ("3des-sha1", "`encryption = \"3des-cbc\"` and `integrity = \"hmac-sha1-96\"`"),
            ("camellia192-md5", CAMELLIA),
            ("null-sha384", "`encryption = \"null\"` and `integrity = \"hmac-sha384-192\"`"),
            ("sha256_96", "`integrity = \"hmac-sha256-96\"`"),
            ("aesxcbc", "`integrity = \"aes-xcbc-96\"`"),
            // Libreswan
            ("aes_gcm_c_256", "`algorithm = \"aes-256-gcm\"`"),
            ("aes_gcm_a_128-null", "`algorithm = \"aes-128-gcm\"` and `icv = 8`"),
            ("aes_gcm256-null", "`algorithm = \"aes-256-gcm\"`"),
            ("AES_GCM_16_256", "`algorithm = \"aes-256-gcm\"`"),
            ("chacha20_poly1305", "`algorithm = \"chacha20-poly1305\"`"),
            ("AES_CBC_128-HMAC_SHA2_256_128", AES_SHA2),
            ("aes128-sha2_256;dh14", AES_SHA2),
            ("aes_cmac_96", "`integrity = \"aes-cmac-96\"`"),
            // OpenSSL
            ("id-aes128-GCM", "`algorithm = \"aes-128-gcm\"`"),
            ("AES-128-CBC-HMAC-SHA256", AES_SHA2),
            ("DES-EDE3-CBC", "`encryption = \"3des-cbc\"`"),
            ("ChaCha20-Poly1305", "`algorithm = \"chacha20-poly1305\"`"),
            ("SHA2-512", "`integrity = \"hmac-sha512-256\"`"),
            // Linux
            ("rfc4106(gcm(aes))", OPEN_GCM),
            (
                "rfc4543(gcm(aes))",
                "`algorithm = \"aes-128-gmac\"`, or with 192 or 256 as its key is",
            ),
            ("rfc7539esp(chacha20,poly1305)", "`algorithm = \"chacha20-poly1305\"`"),
            ("cbc(des3_ede)", "`encryption = \"3des-cbc\"`"),
            ("hmac(sha256)", "`integrity = \"hmac-sha256-128\"`"),
            ("xcbc(aes)", "`integrity = \"aes-xcbc-96\"`"),
        ] {
            let spelling = read(text).map(|spelling| spelling.to_string());
            assert_eq!(spelling.as_deref(), Some(lines), "{text}");
        }
    }

    const AES_SHA2: &str = "`encryption = \"aes-128-cbc\"` and `integrity = \"hmac-sha256-128\"`";
    const CAMELLIA: &str = "`encryption = \"camellia-192-cbc\"` and `integrity = \"hmac-md5-96\"`";
    const OPEN_GCM: &str = "`algorithm = \"aes-128-gcm\"`, or with 192 or 256 as its key is";

    #[test]
    fn own_names_mean_themselves() {
        for suite in Suite::AEADS {
            let meaning = read(suite.names().unwrap().name).unwrap().meaning;
            assert_eq!(meaning, Meaning::Aead(suite));
        }
        for cipher in Cipher::ALL {
            let meaning = read(cipher.names().name).unwrap().meaning;
            assert_eq!(meaning, Meaning::Cipher(cipher));
        }
        for (name, mac) in Integrity::NAMED {
            assert_eq!(read(name).unwrap().meaning, Meaning::Mac(mac), "{name}");
        }
    }

    #[test]
    fn what_is_no_algorithm_is_not_understood() {
        for text in
            ["", "aes-129-gcm", "aes-128-gmc", "rot13", "des-cbc", "sha224", "128", "modp2048", "µ"]
        {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
