//! The vectors with which OpenSSL tests these ciphers itself, which `interop/fetch-openssl-vectors.sh` fetches.

use std::{env, fmt::Write as _, fs, path::PathBuf};

use crate::{
    common::{Setup, has, run},
    vector::{Vector, check, field},
};

/// The vectors of a file of `test/recipes/30-test_evp_data`, each a block of lines; none if it is not there.
fn blocks(name: &str) -> Option<Vec<String>> {
    let fallback = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/vectors");
    let folder = env::var_os("CONVOY_VECTORS").map_or_else(|| fallback.into(), PathBuf::from);
    let path = folder.join("openssl").join(name);
    match fs::read_to_string(&path) {
        Ok(text) => Some(text.split("\n\n").map(str::to_owned).collect()),
        Err(error) => {
            println!("SKIPPED: {}: {error}; run interop/fetch-openssl-vectors.sh", path.display());
            None
        }
    }
}

/// Value of a name in a block's lines.
fn word<'a>(block: &'a str, name: &str) -> Option<&'a str> {
    let lines = block.lines().filter_map(|line| line.split_once('='));
    lines.into_iter().find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

/// Runs the vectors of an AEAD; at least so many.
fn run_aead(file: &str, cipher: Option<&str>, is_it: impl Fn(&str) -> bool, least: usize) {
    let Some(blocks) = blocks(file) else { return };
    let (mut lines, mut count) = (String::new(), 0);
    for (number, block) in blocks.iter().enumerate() {
        if !word(block, "Cipher").is_some_and(|name| is_it(&name.to_lowercase())) {
            continue;
        }
        let of = |name| field(block, name);
        // An IV that must be refused is refused to whoever seals, too.
        let is_good = matches!(word(block, "Result"), None | Some("INVALID_IV_LENGTH"));
        let vector = Vector {
            key: &of("Key"),
            iv: &of("IV"),
            aad: &of("AAD"),
            text: &of("Plaintext"),
            sealed: &of("Ciphertext"),
            tag: &of("Tag"),
            is_good,
        };
        vector.write(&format!("{file}-{number}"), &mut lines);
        count += 1;
    }
    let Some(said) = check(&lines, cipher) else { return };
    assert!(count >= least && said.starts_with(&format!("{count} vectors, ")), "{count}: {said}");
}

#[test]
fn openssl_s_vectors_of_aes_gcm_hold() {
    if has(&[]) {
        let is_gcm = |name: &str| name.starts_with("aes-") && name.ends_with("-gcm");
        run_aead("evpciph_aes_common.txt", None, is_gcm, 20);
    }
}

#[test]
fn openssl_s_vectors_of_chacha20_poly1305_hold() {
    if !has(&[]) {
        return;
    }
    let name = "ChaCha20-Poly1305";
    run_aead("evpciph_chacha.txt", Some(name), |cipher| cipher == "chacha20-poly1305", 6);
}

#[test]
fn openssl_s_vectors_of_composites_hold() {
    if !has(&[]) {
        return;
    }
    let Some(blocks) = blocks("evpciph_aes_stitched.txt") else { return };
    let (mut lines, mut count) = (String::new(), 0);
    for block in blocks.iter().filter(|block| block.contains("-CBC-HMAC-")) {
        let words = ["Cipher", "TLSVersion", "Key", "MACKey", "IV", "TLSAAD", "Plaintext"];
        let all = words.into_iter().chain(["Ciphertext", "NextIV"]);
        let Some(values) = all.map(|name| word(block, name)).collect::<Option<Vec<_>>>() else {
            continue;
        };
        writeln!(lines, "{}", values.join(" ")).unwrap();
        count += 1;
    }
    let setup = Setup::new();
    let Some(program) = setup.compile("stitched.c") else { return };
    fs::write(setup.path("lines"), lines).unwrap();
    let output = run(setup.command(program).arg("lines"));
    let said = String::from_utf8(output.stdout).unwrap();
    println!("{said}");
    assert!(count >= 12 && said.starts_with(&format!("{count} vectors")), "{count}: {said}");
}
