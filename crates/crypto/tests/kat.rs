//! NIST's CAVP vectors for AES-GCM, on every tier.
//!
//! The files come from the Python package `cryptography-vectors`, which `interop/fetch-vectors.sh`
//! unpacks into `target/vectors`; the environment variable `CONVOY_VECTORS` names another folder.

mod common;

use std::{env, fs, path::PathBuf};

use common::{Packet, open, seal, tiers};
use convoy_crypto::{GcmParams, IcvLen, KeyBits, Verdict};

/// A vector: the packet as it is when sealed, and its plaintext unless it is a forgery.
struct Vector {
    sealed: Packet,
    plaintext: Option<Vec<u8>>,
}

/// What a file holds, and how many of its vectors are outside of what this crate offers.
#[derive(Default)]
struct File {
    vectors: Vec<Vector>,
    other_nonces: usize,
    other_tags: usize,
}

fn folder() -> PathBuf {
    let fallback = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/vectors");
    env::var_os("CONVOY_VECTORS").map_or_else(|| fallback.into(), PathBuf::from)
}

/// Reads a response file (its lines end as on DOS), or says that it is skipped.
fn read(name: &str) -> Option<File> {
    let path = folder().join("cryptography_vectors/ciphers/AES/GCM").join(name);
    match fs::read_to_string(&path) {
        Ok(text) => Some(parse(&text.replace('\r', ""))),
        Err(error) => {
            println!("SKIPPED: {name}: {}: {error}; run interop/fetch-vectors.sh", path.display());
            None
        }
    }
}

fn parse(text: &str) -> File {
    let mut file = File::default();
    for block in text.split("\n\n").map(str::trim).filter(|block| block.starts_with("Count")) {
        let field = |name: &str| {
            let line = block
                .lines()
                .find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix('='));
            line.map(|hex| unhex(hex.trim()))
        };
        let need = |name: &str| field(name).unwrap_or_else(|| panic!("no {name} in {block}"));
        let (key, tag) = (need("Key"), need("Tag"));
        let Ok(nonce) = need("IV").try_into() else {
            file.other_nonces += 1;
            continue;
        };
        let Some(icv_len) = IcvLen::from_bytes(tag.len()) else {
            file.other_tags += 1;
            continue;
        };
        let key_bits = KeyBits::from_bits(key.len() * 8).expect("an AES key");
        let params = GcmParams::new(key_bits, icv_len);
        let forged = block.lines().any(|line| line.trim() == "FAIL");
        let sealed = Packet { params, key, nonce, aad: need("AAD"), data: need("CT"), icv: tag };
        file.vectors.push(Vector { sealed, plaintext: (!forged).then(|| need("PT")) });
    }
    file
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |c: u8| (c as char).to_digit(16).expect("a hexadecimal digit") as u8;
    text.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn report(name: &str, file: &File) {
    println!("{name}: {} vectors", file.vectors.len());
    println!(
        "SKIPPED in part: {name}: {} vectors with nonces that are not 96 bits, {} with tags that \
         are not 8, 12 or 16 bytes",
        file.other_nonces, file.other_tags,
    );
}

fn assert_file_holds(name: &str, forgeries: bool) {
    let Some(file) = read(name) else { return };
    report(name, &file);
    assert!(file.vectors.len() > 500, "{name} holds fewer vectors than it should");
    assert_eq!(file.vectors.iter().any(|vector| vector.plaintext.is_none()), forgeries, "{name}");
    let tiers = tiers();
    for &tier in &tiers {
        let mut opened: Vec<_> = file.vectors.iter().map(|vector| vector.sealed.clone()).collect();
        let verdicts = open(&mut opened, |_| tier);
        for ((vector, opened), verdict) in file.vectors.iter().zip(&opened).zip(verdicts) {
            match &vector.plaintext {
                Some(plaintext) => {
                    assert_eq!(
                        (verdict, &opened.data),
                        (Verdict::Authentic, plaintext),
                        "{tier}, {vector:?}"
                    );
                }
                None => assert_eq!(verdict, Verdict::Forged, "{tier}, {vector:?}"),
            }
        }
        let authentic: Vec<_> = file.vectors.iter().filter(|v| v.plaintext.is_some()).collect();
        let mut resealed: Vec<_> = authentic
            .iter()
            .map(|vector| Packet {
                data: vector.plaintext.clone().unwrap_or_default(),
                icv: vec![0; vector.sealed.icv.len()],
                ..vector.sealed.clone()
            })
            .collect();
        seal(&mut resealed, |_| tier);
        for (vector, resealed) in authentic.iter().zip(&resealed) {
            assert_eq!(&vector.sealed, resealed, "{tier}");
        }
    }
}

impl std::fmt::Debug for Vector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "key {:02x?}, nonce {:02x?}", self.sealed.key, self.sealed.nonce)
    }
}

macro_rules! files {
    ($($test:ident: $name:literal, forgeries $forgeries:literal;)*) => {$(
        #[test]
        fn $test() {
            assert_file_holds($name, $forgeries);
        }
    )*};
}

files! {
    nist_encrypt_128: "gcmEncryptExtIV128.rsp", forgeries false;
    nist_encrypt_192: "gcmEncryptExtIV192.rsp", forgeries false;
    nist_encrypt_256: "gcmEncryptExtIV256.rsp", forgeries false;
    nist_decrypt_128: "gcmDecrypt128.rsp", forgeries true;
    nist_decrypt_192: "gcmDecrypt192.rsp", forgeries true;
    nist_decrypt_256: "gcmDecrypt256.rsp", forgeries true;
}
