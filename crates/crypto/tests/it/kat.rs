//! NIST's CAVP vectors and others that come with them, in every set-up.
//!
//! The files come from the Python package `cryptography-vectors`, which `interop/fetch-vectors.sh`
//! unpacks into `target/vectors`; the environment variable `CONVOY_VECTORS` names another folder.

use std::collections::BTreeMap;

use crate::common::{
    Packet, gcm,
    vectors::{Set, Vector, bytes, fields, read, unhex},
};
use convoy_crypto::{Cipher, HashAlg, IcvLen, Integrity, KeyBits, MacAlg, Suite};

/// Blocks of a file whose lines give values their names; `Count` begins each.
fn blocks(text: &str) -> impl Iterator<Item = &str> {
    text.split("\n\n").map(str::trim).filter(|block| !block.is_empty())
}

/// A field that must be there, as bytes.
fn need(fields: &BTreeMap<String, String>, name: &str) -> Vec<u8> {
    bytes(fields.get(name).unwrap_or_else(|| panic!("no {name} in {fields:?}")))
}

fn key_bits(key: &[u8]) -> KeyBits {
    KeyBits::from_bits(key.len() * 8).expect("an AES key")
}

/// AES-GCM; what has no text is GMAC as well, its additional data divided in two.
fn gcm_file(name: &str, forgeries: bool) {
    let Some(text) = read(&format!("ciphers/AES/GCM/{name}")) else { return };
    let (mut set, mut gmac) = (Set::new(name), Set::new(format!("{name} as GMAC")));
    for block in blocks(&text).filter(|block| block.starts_with("Count")) {
        let fields = fields(block);
        let (key, tag, nonce) = (need(&fields, "key"), need(&fields, "tag"), need(&fields, "iv"));
        if nonce.len() != 12 {
            set.skip("the nonce is not 96 bits");
            continue;
        }
        let forged = block.lines().any(|line| line.trim() == "FAIL");
        let (aad, ct) = (need(&fields, "aad"), need(&fields, "ct"));
        let vector = |suite, header: &[u8], text: &[u8], plain: Option<Vec<u8>>| Vector {
            name: format!("count {}", fields["count"]),
            sealed: Packet {
                suite,
                keys: (key.clone(), Vec::new()),
                nonce: nonce.clone(),
                header: header.to_vec(),
                text: text.to_vec(),
                trailer: Vec::new(),
                icv: tag.clone(),
            },
            plain: plain.filter(|_| !forged),
        };
        if ct.is_empty() && tag.len() == 16 {
            let (header, text) = aad.split_at(aad.len() / 3);
            let vector = vector(Suite::Gmac(key_bits(&key)), header, text, Some(text.to_vec()));
            gmac.vectors.push(vector);
        }
        let Some(icv_len) = IcvLen::from_bytes(tag.len()) else {
            set.skip("the tag is not 8, 12 or 16 bytes");
            continue;
        };
        let plain = (!forged).then(|| need(&fields, "pt"));
        set.vectors.push(vector(gcm(key_bits(&key), icv_len), &aad, &ct, plain));
    }
    assert!(set.vectors.len() > 500, "{name} holds fewer vectors than it should");
    assert_eq!(set.vectors.iter().any(|vector| vector.plain.is_none()), forgeries, "{name}");
    assert!(gmac.vectors.len() > 50, "{name}");
    set.check();
    gmac.check();
}

macro_rules! gcm_files {
    ($($test:ident: $name:literal, forgeries $forgeries:literal;)*) => {$(
        #[test]
        fn $test() {
            gcm_file($name, $forgeries);
        }
    )*};
}

gcm_files! {
    nist_encrypt_128: "gcmEncryptExtIV128.rsp", forgeries false;
    nist_encrypt_192: "gcmEncryptExtIV192.rsp", forgeries false;
    nist_encrypt_256: "gcmEncryptExtIV256.rsp", forgeries false;
    nist_decrypt_128: "gcmDecrypt128.rsp", forgeries true;
    nist_decrypt_192: "gcmDecrypt192.rsp", forgeries true;
    nist_decrypt_256: "gcmDecrypt256.rsp", forgeries true;
}

#[test]
fn nist_cbc() {
    for kind in ["GFSbox", "KeySbox", "MMT", "VarKey", "VarTxt"] {
        for bits in KeyBits::ALL {
            let name = format!("CBC{kind}{}.rsp", bits.bits());
            let Some(text) = read(&format!("ciphers/AES/CBC/{name}")) else { return };
            let mut set = Set::new(&name);
            for block in blocks(&text).filter(|block| block.starts_with("COUNT")) {
                let fields = fields(block);
                let of = |name| need(&fields, name);
                let (key, plain, sealed) = (of("key"), of("plaintext"), of("ciphertext"));
                let name = format!("count {}", fields["count"]);
                set.push_cipher(&name, Cipher::AesCbc(bits), &key, &of("iv"), &plain, &sealed);
            }
            // Each vector stands there for both directions, and gives two packets.
            assert!(set.vectors.len() >= 4 * 5, "{name} holds fewer vectors than it should");
            set.check();
        }
    }
}

/// 3DES with two keys and with three. (The files for tables of DES have keys of single DES, which are
/// refused.)
#[test]
fn nist_triple_des() {
    for name in ["TCBCMMT2.rsp", "TCBCMMT3.rsp"] {
        let Some(text) = read(&format!("ciphers/3DES/CBC/{name}")) else { return };
        let mut set = Set::new(name);
        for block in blocks(&text).filter(|block| block.starts_with("COUNT")) {
            let fields = fields(block);
            let of = |name| need(&fields, name);
            let key = ["key1", "key2", "key3"].map(of).concat();
            let (plain, sealed) = (of("plaintext"), of("ciphertext"));
            let name = format!("count {}", fields["count"]);
            set.push_cipher(&name, Cipher::TripleDesCbc, &key, &of("iv"), &plain, &sealed);
        }
        assert_eq!(set.vectors.len(), 2 * 20, "{name}");
        set.check();
    }
}

/// OpenSSL's, of all key sizes.
#[test]
fn camellia() {
    let Some(text) = read("ciphers/Camellia/camellia-cbc.txt") else { return };
    let mut set = Set::new("camellia-cbc.txt");
    let vectors = text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
    for block in blocks(&vectors).filter(|block| block.starts_with("COUNT")) {
        let fields = fields(block);
        let of = |name| need(&fields, name);
        let (key, plain, sealed) = (of("key"), of("plaintext"), of("ciphertext"));
        let (name, cipher) =
            (format!("count {}", fields["count"]), Cipher::CamelliaCbc(key_bits(&key)));
        set.push_cipher(&name, cipher, &key, &of("iv"), &plain, &sealed);
    }
    assert_eq!(set.vectors.len(), 2 * 12);
    set.check();
}

/// RFC 3686 section 6.
#[test]
fn counter_mode() {
    for bits in KeyBits::ALL {
        let name = format!("aes-{}-ctr.txt", bits.bits());
        let Some(text) = read(&format!("ciphers/AES/CTR/{name}")) else { return };
        let mut set = Set::new(&name);
        for block in blocks(&text).filter(|block| block.starts_with("COUNT")) {
            let fields = fields(block);
            let of = |name| need(&fields, name);
            let (key, plain, sealed) = (of("key"), of("plaintext"), of("ciphertext"));
            let iv = of("iv");
            let Some(nonce) = iv.strip_suffix(&[0, 0, 0, 1]) else {
                set.skip("the counter does not begin at 1");
                continue;
            };
            let name = format!("count {}", fields["count"]);
            set.push_cipher(&name, Cipher::AesCtr(bits), &key, nonce, &plain, &sealed);
        }
        assert_eq!(set.vectors.len() + 2 * set.skipped(), 6, "{name}");
        set.check();
    }
}

/// The five kinds of file of NIST's CCM validation system. Lengths and keys stand in front of groups.
#[test]
fn nist_ccm() {
    for kind in ["DVPT", "VADT", "VNT", "VPT", "VTT"] {
        for bits in KeyBits::ALL {
            let name = format!("{kind}{}.rsp", bits.bits());
            let Some(text) = read(&format!("ciphers/AES/CCM/{name}")) else { return };
            let set = ccm_set(&name, bits, &text);
            let expected = match kind {
                "DVPT" => 240,
                "VADT" => 330,
                "VNT" => 70,
                "VPT" => 250,
                _ => 70,
            };
            assert_eq!(set.vectors.len() + set.skipped(), expected, "{name}");
            set.check();
        }
    }
}

fn ccm_set(name: &str, key_bits: KeyBits, text: &str) -> Set {
    let mut set = Set::new(name);
    let mut known = BTreeMap::new();
    for block in blocks(text) {
        known.remove("payload");
        known.extend(fields(block));
        if !block.starts_with("Count") {
            continue;
        }
        let number = |name: &str| known[name].parse::<usize>().expect("a number");
        let (aad_len, text_len, tag_len) = (number("alen"), number("plen"), number("tlen"));
        let Some(icv_len) = IcvLen::from_bytes(tag_len) else {
            set.skip(format!("ICVs of {tag_len} bytes are not offered"));
            continue;
        };
        let sealed = need(&known, "ct");
        let (text, icv) = sealed.split_at(text_len);
        let forged = known.get("result").is_some_and(|result| result.starts_with("Fail"));
        let plain = (!forged).then(|| need(&known, "payload")[..text_len].to_vec());
        let packet = Packet {
            suite: Suite::Ccm { key_bits, icv_len },
            keys: (need(&known, "key"), Vec::new()),
            nonce: need(&known, "nonce"),
            // Where there is none, the file has one byte all the same.
            header: need(&known, "adata")[..aad_len].to_vec(),
            text: text.to_vec(),
            trailer: Vec::new(),
            icv: icv.to_vec(),
        };
        let name = format!("alen {aad_len}, plen {text_len}, count {}", known["count"]);
        set.vectors.push(Vector { name, sealed: packet, plain });
    }
    set
}

/// NIST SP 800-38B appendix D.
#[test]
fn nist_cmac() {
    for bits in KeyBits::ALL {
        let name = format!("nist-800-38b-aes{}.txt", bits.bits());
        let Some(text) = read(&format!("CMAC/{name}")) else { return };
        let mut set = Set::new(&name);
        let integrity = Integrity::full(MacAlg::AesCmac(bits));
        for block in blocks(&text).filter(|block| block.starts_with("COUNT")) {
            let fields = fields(block);
            let of = |name| need(&fields, name);
            let (key, message, tag) = (of("key"), of("message"), of("output"));
            let name = format!("count {}", fields["count"]);
            set.push_mac(&name, integrity, &key, &message, &tag, true);
        }
        assert_eq!(set.vectors.len(), 4 * 4, "{name}");
        set.check();
    }
}

/// RFC 2202 and RFC 4231.
#[test]
fn hmac() {
    for (name, hash) in [
        ("rfc-2202-md5.txt", HashAlg::Md5),
        ("rfc-2202-sha1.txt", HashAlg::Sha1),
        ("rfc-4231-sha224.txt", HashAlg::Sha224),
        ("rfc-4231-sha256.txt", HashAlg::Sha256),
        ("rfc-4231-sha384.txt", HashAlg::Sha384),
        ("rfc-4231-sha512.txt", HashAlg::Sha512),
    ] {
        let Some(text) = read(&format!("HMAC/{name}")) else { return };
        let mut set = Set::new(name);
        for (i, block) in blocks(&text).filter(|block| block.starts_with("Len")).enumerate() {
            let fields = fields(block);
            let of = |name| need(&fields, name);
            let (key, message, tag) = (of("key"), of("msg"), of("md"));
            assert_eq!(message.len() * 8, fields["len"].parse::<usize>().expect("a number"));
            let name = format!("case {i}");
            for icv in [12, tag.len()] {
                let integrity = Integrity::new(MacAlg::Hmac(hash), icv).expect("fits the hash");
                set.push_mac(&name, integrity, &key, &message, &tag[..icv], true);
            }
        }
        assert!(set.vectors.len() >= 6 * 2 * 4, "{name}");
        set.check();
    }
}

/// RFC 7539 and what BoringSSL and OpenSSL test with.
#[test]
fn chacha20_poly1305() {
    for (name, [nonce, plain, aad, sealed]) in [
        ("boringssl.txt", ["nonce", "in", "ad", "ct"]),
        ("openssl.txt", ["iv", "plaintext", "aad", "ciphertext"]),
    ] {
        let Some(text) = read(&format!("ciphers/ChaCha20Poly1305/{name}")) else { return };
        let mut set = Set::new(name);
        for block in blocks(&text) {
            let fields = fields(block);
            if !fields.contains_key("count") {
                continue;
            }
            let of = |name| need(&fields, name);
            let (nonce, tag) = (of(nonce), of("tag"));
            if nonce.len() != 12 || tag.len() != 16 {
                set.skip("the nonce is not 12 bytes or the tag not 16");
                continue;
            }
            let packet = Packet {
                suite: Suite::ChaCha20Poly1305,
                keys: (of("key"), Vec::new()),
                nonce,
                header: of(aad),
                text: of(sealed),
                trailer: Vec::new(),
                icv: tag,
            };
            let forged = fields.get("result").is_some_and(|result| result.contains("ERROR"));
            let plain = (!forged).then(|| of(plain));
            let name = format!("count {}", fields["count"]);
            set.vectors.push(Vector { name, sealed: packet, plain });
        }
        assert!(set.vectors.len() >= 5, "{name}");
        set.check();
    }
}

#[test]
fn the_reader_of_files_reads() {
    let fields = fields("# note\n[Alen = 0, Plen = 24]\nKey = 0aFF\nMsg = \"a=b\"\nEmpty =");
    assert_eq!(fields["alen"], "0");
    assert_eq!(fields["plen"], "24");
    assert_eq!((bytes(&fields["key"]), bytes(&fields["empty"])), (vec![0x0a, 0xff], Vec::new()));
    assert_eq!(bytes(&fields["msg"]), b"a=b");
    assert_eq!(unhex("00 11\n22"), [0, 0x11, 0x22]);
}
