//! Vectors of others, whatever they come from, and the check that they hold in every set-up.

use std::{collections::BTreeMap, env, fs, path::PathBuf};

use convoy_crypto::{Cipher, Integrity, MacAlg, Suite, Verdict};

use super::{Packet, open, seal, setups};

/// A packet as it is when sealed, and what it opens to: nothing if it is a forgery.
#[derive(Clone)]
pub(crate) struct Vector {
    pub(crate) name: String,
    pub(crate) sealed: Packet,
    pub(crate) plain: Option<Vec<u8>>,
}

/// Vectors from one source, and what of it is left out and why.
pub(crate) struct Set {
    name: String,
    pub(crate) vectors: Vec<Vector>,
    skipped: BTreeMap<String, usize>,
}

impl Set {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), vectors: Vec::new(), skipped: BTreeMap::new() }
    }

    pub(crate) fn skip(&mut self, why: impl Into<String>) {
        *self.skipped.entry(why.into()).or_default() += 1;
    }

    pub(crate) fn skipped(&self) -> usize {
        self.skipped.values().sum()
    }

    /// A vector of a MAC alone, through the suite `null+MAC`: the message is divided among header,
    /// text and trailer in three ways.
    pub(crate) fn push_mac(
        &mut self,
        name: &str,
        integrity: Integrity,
        key: &[u8],
        message: &[u8],
        tag: &[u8],
        valid: bool,
    ) {
        assert_eq!(integrity.icv_bytes(), tag.len());
        let len = message.len();
        for (header, trailer) in [(0, 0), (len, 0), (len / 3, len.min(16)), (0, len.min(4))] {
            let trailer = trailer.min(len - header);
            let (header, rest) = message.split_at(header);
            let (text, trailer) = rest.split_at(rest.len() - trailer);
            let sealed = Packet {
                suite: Suite::Pair { cipher: Cipher::Null, integrity },
                keys: (Vec::new(), key.to_vec()),
                nonce: Vec::new(),
                header: header.to_vec(),
                text: text.to_vec(),
                trailer: trailer.to_vec(),
                icv: tag.to_vec(),
            };
            let plain = valid.then(|| text.to_vec());
            self.vectors.push(Vector { name: name.to_owned(), sealed, plain });
        }
    }

    /// A vector of a cipher alone, through the suite `cipher+null`.
    pub(crate) fn push_cipher(
        &mut self,
        name: &str,
        cipher: Cipher,
        key: &[u8],
        iv: &[u8],
        plain: &[u8],
        sealed: &[u8],
    ) {
        for header in [&b""[..], b"in front"] {
            let sealed = Packet {
                suite: Suite::Pair { cipher, integrity: Integrity::NULL },
                keys: (key.to_vec(), Vec::new()),
                nonce: iv.to_vec(),
                header: header.to_vec(),
                text: sealed.to_vec(),
                trailer: Vec::new(),
                icv: Vec::new(),
            };
            self.vectors.push(Vector {
                name: name.to_owned(),
                sealed,
                plain: Some(plain.to_vec()),
            });
        }
    }

    /// Says what runs and what is left out; the reasons begin with how many there are of each.
    pub(crate) fn report(&self) {
        let forged = self.vectors.iter().filter(|vector| vector.plain.is_none()).count();
        println!("{}: {} packets, {forged} of them forgeries", self.name, self.vectors.len());
        for (why, count) in &self.skipped {
            println!("SKIPPED in part: {}: {count} vectors: {why}", self.name);
        }
    }

    /// Checks that every vector holds in every set-up, all in bursts together and each alone.
    pub(crate) fn check(&self) {
        self.report();
        for setup in setups() {
            let hashes = |suite| {
                matches!(suite, Suite::Pair { integrity, .. }
                    if matches!(integrity.alg(), MacAlg::Hmac(_)))
            };
            let vectors = self.vectors.iter();
            let vectors: Vec<_> =
                vectors.filter(|vector| setup.sha_ni || hashes(vector.sealed.suite)).collect();
            for size in [1, 7, 256] {
                for burst in vectors.chunks(size) {
                    self.check_burst(burst, setup);
                }
            }
        }
    }

    fn check_burst(&self, burst: &[&Vector], setup: super::Setup) {
        let say = |vector: &Vector| {
            format!(
                "{}, {}, {}, on {setup} in a burst of {}",
                self.name,
                vector.name,
                vector.sealed.suite,
                burst.len()
            )
        };
        let mut opened: Vec<_> = burst.iter().map(|vector| vector.sealed.clone()).collect();
        let verdicts = open(&mut opened, |_| setup);
        for ((vector, opened), verdict) in burst.iter().zip(&opened).zip(verdicts) {
            if let Some(plain) = &vector.plain {
                assert_eq!(verdict, Verdict::Authentic, "{}", say(vector));
                assert_eq!(&opened.text, plain, "{}", say(vector));
            } else {
                assert_eq!(verdict, Verdict::Forged, "{}", say(vector));
                assert!(opened.text.iter().all(|&byte| byte == 0), "{}: wiped", say(vector));
            }
        }
        let authentic: Vec<_> =
            burst.iter().filter_map(|vector| Some((vector, vector.plain.as_ref()?))).collect();
        let mut sealed: Vec<_> =
            authentic.iter().map(|(vector, plain)| vector.sealed.with_text(plain)).collect();
        seal(&mut sealed, |_| setup);
        for ((vector, _), sealed) in authentic.iter().zip(&sealed) {
            assert_eq!(sealed, &vector.sealed, "{}", say(vector));
        }
    }
}

/// Folder that `interop/fetch-vectors.sh` puts files in, or that `CONVOY_VECTORS` names.
fn folder() -> PathBuf {
    let fallback = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/vectors");
    env::var_os("CONVOY_VECTORS").map_or_else(|| fallback.into(), PathBuf::from)
}

/// A file of vectors (its lines may end as on DOS); says if it is not there.
pub(crate) fn read(path: &str) -> Option<String> {
    let path = folder().join("cryptography_vectors").join(path);
    match fs::read_to_string(&path) {
        Ok(text) => Some(text.replace('\r', "")),
        Err(error) => {
            println!("SKIPPED: {}: {error}; run interop/fetch-vectors.sh", path.display());
            None
        }
    }
}

/// The lines `name = value` of a block, by name in lower case; values in square brackets (common to
/// the blocks that follow) included.
pub(crate) fn fields(block: &str) -> BTreeMap<String, String> {
    let lines = block.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.flat_map(|line| {
        let common = line.strip_prefix('[').and_then(|line| line.strip_suffix(']'));
        common.map_or_else(|| vec![line], |line| line.split(',').collect())
    });
    let pairs = pairs.filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.trim().to_lowercase(), value.trim().to_owned())).collect()
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).unwrap_or_else(|| panic!("{c:?} in {text}")) as u8)
        .collect();
    assert!(digits.len().is_multiple_of(2), "half a byte: {text}");
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// The same, or the text itself if it stands in quotes.
pub(crate) fn bytes(text: &str) -> Vec<u8> {
    match text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        Some(text) => text.as_bytes().to_vec(),
        None => unhex(text),
    }
}
