//! Ciphers that are offered, and those that serve in place of the others.

use convoy_crypto::{Cpu, Tier};
use convoy_openssl::{
    offer::{Cipher, VARIABLE},
    stats::Counter,
};

use crate::{
    common::{Setup, has, run},
    talk::talk,
};

/// Features to deny; with the best tier each, and those that take one of two branches.
const DENIALS: [&str; 7] =
    ["", "sha-ni", "vaes512", "vaes512,vaes256,sha-ni", "avx512", "avx512,vaes256,sha-ni", "aesni"];

/// The ciphers that a provider has, as `openssl list` says.
fn listed(setup: &Setup, provider: &str) -> Vec<Cipher> {
    let mut command = setup.command("openssl");
    let output = run(command.args(["list", "-cipher-algorithms"]));
    let text = String::from_utf8(output.stdout).unwrap().to_lowercase();
    let lines = text.lines().filter(|line| line.ends_with(&format!("@ {provider}")));
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '-';
    let words: Vec<_> = lines.flat_map(|line| line.split(|letter| !is_word(letter))).collect();
    let has = |cipher: &Cipher| words.contains(&&*cipher.name().to_lowercase());
    Cipher::ALL.into_iter().filter(has).collect()
}

#[test]
fn what_is_slower_here_than_openssl_s_own_is_not_offered() {
    if !has(&[]) {
        return;
    }
    for denied in DENIALS {
        let mut setup = Setup::new();
        setup.deny(denied);
        assert_eq!(listed(&setup, "convoy"), Cipher::ALL, "offer = all without {denied:?}");
        setup.offer(None);
        let cpu = Cpu::without(denied).unwrap();
        let expected: Vec<_> =
            Cipher::ALL.into_iter().filter(|cipher| cipher.withheld(&cpu).is_none()).collect();
        assert_eq!(listed(&setup, "convoy"), expected, "without {denied:?}");
        let gcm = [Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305];
        assert!(gcm.iter().all(|cipher| listed(&setup, "default").contains(cipher)));
    }
}

#[test]
fn configuration_and_environment_have_every_cipher_offered_and_nothing_else() {
    if !has(&[]) {
        return;
    }
    let mut setup = Setup::new();
    setup.deny("aesni");
    setup.offer(None);
    assert_eq!(listed(&setup, "convoy"), []);
    let providers = |value: &str| {
        let mut command = setup.command("openssl");
        let output = command.args(["list", "-providers"]).env(VARIABLE, value).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(providers("").contains("Convoy") && providers("all").contains("Convoy"));
    assert!(!providers("some").contains("Convoy"), "a value that there is not");
    let mut command = setup.command("openssl");
    command.args(["list", "-cipher-algorithms"]).env(VARIABLE, "all");
    let ciphers = String::from_utf8(run(&mut command).stdout).unwrap();
    let ours = ciphers.lines().filter(|line| line.ends_with("@ convoy"));
    assert_eq!(ours.count(), Cipher::ALL.len(), "{ciphers}");

    let other = Setup::new();
    other.offer(Some("ALL"));
    let mut command = other.command("openssl");
    let output = command.args(["list", "-providers"]).output().unwrap();
    assert!(!String::from_utf8_lossy(&output.stdout).contains("Convoy"), "{output:?}");
}

/// TLS 1.2 with `AES128-SHA` and its kind, authenticated before it is encrypted and afterwards: the default
/// provider has the ciphers, though Convoy's is preferred.
#[test]
fn tls_goes_on_with_openssl_s_own_composites_where_they_are_not_offered() {
    if !has(&[]) {
        return;
    }
    for authenticates_first in [true, false] {
        let mut setup = Setup::new();
        setup.offer(None);
        setup.deny("sha-ni");
        setup.certify_with(&["rsa:2048"]);
        if authenticates_first {
            setup.macs_before_it_encrypts();
        }
        let ciphers = ["AES128-SHA", "ECDHE-RSA-AES256-SHA", "AES128-SHA256", "AES256-SHA256"];
        for (number, cipher) in ciphers.into_iter().enumerate() {
            for serves in [true, false] {
                let way = ["-tls1_2", "-cipher", cipher];
                talk(&setup, &format!("{number}-{serves}"), &way, serves);
            }
        }
        assert_eq!(setup.count(Counter::CbcRecordsSealed), 0);
        assert_eq!(setup.count(Counter::CbcRecordsOpened), 0);
        // The provider is there all the same.
        assert!(setup.count(Counter::Loaded) >= 8);
        let records = || setup.count(Counter::RecordsSealed);
        assert_eq!(records(), 0);
        if Cpu::without("sha-ni").unwrap().has(Tier::AesNi) {
            talk(&setup, "gcm", &["-tls1_2"], true);
            assert!(records() > 0);
        }
    }
}
