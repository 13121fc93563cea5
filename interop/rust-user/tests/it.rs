//! What another program may count on.

use convoy_crypto::{
    Cpu, KeyError, KeyMaterial, Nonce, OpenKey, OpenOp, PORTABLE_IS_SOFT, SealKey, SealOp,
    SecretBytes, Suite, Tier, Verdict, open_burst, seal_burst,
};

fn material(suite: Suite) -> KeyMaterial {
    let secret = |bytes: usize| SecretBytes::copy_from(&vec![7; bytes]);
    let (cipher, integrity) = (suite.key_bytes(), suite.integrity_key_bytes());
    KeyMaterial { cipher: secret(cipher), integrity: secret(integrity) }
}

#[test]
fn every_tier_agrees_and_opens_what_another_sealed() {
    let cpu = Cpu::detect().unwrap();
    for name in ["aes-128-gcm-16", "aes-256-ccm-16", "chacha20-poly1305"] {
        let suite: Suite = name.parse().unwrap();
        let nonce = vec![9; suite.nonce_bytes()];
        let nonce = || {
            Nonce::front(
                [&nonce[..], &[0; 16]].concat()[..16].try_into().unwrap(),
                nonce.len() as u8,
            )
        };
        let mut sealed = Vec::new();
        for tier in cpu.tiers() {
            let key = SealKey::with_tier(&cpu, tier, suite, material(suite)).unwrap();
            let (mut text, mut icv) = (vec![5; 1000], vec![0; suite.icv_bytes()]);
            seal_burst(&mut [SealOp::new(&key, nonce(), b"aad", &mut text, &mut icv).unwrap()]);
            sealed.push((text, icv));
        }
        assert!(sealed.len() > 1 || cpu.best() == Tier::Portable);
        assert!(sealed.iter().all(|one| *one == sealed[0]), "{name}");
        for tier in cpu.tiers() {
            let key = OpenKey::with_tier(&cpu, tier, suite, material(suite)).unwrap();
            let (mut text, icv) = sealed[0].clone();
            let front = convoy_crypto::OpenNonce::front([9; 16], suite.nonce_bytes() as u8);
            let mut burst = [OpenOp::new(&key, front, b"aad", &mut text, &icv).unwrap()];
            open_burst(&mut burst);
            assert_eq!(burst[0].verdict(), Verdict::Authentic, "{name} on {tier}");
            assert_eq!(text, [5; 1000]);
        }
    }
}

#[test]
fn ciphers_of_old_peers_are_left_out() {
    assert!(Suite::all().all(|suite| !suite.is_legacy()));
    for name in ["3des-cbc+hmac-sha1-96", "camellia-128-cbc+hmac-sha256-128"] {
        // The name is known, the key is not to be had.
        let suite: Suite = name.parse().unwrap();
        let mut keys = material(suite);
        keys.cipher = SecretBytes::copy_from(
            &(0..suite.key_bytes() as u8).map(|i| i * 9).collect::<Vec<_>>(),
        );
        let error = SealKey::new(&Cpu::detect().unwrap(), suite, keys).map(drop).unwrap_err();
        assert_eq!(error, KeyError::LegacyLeftOut);
        assert!(error.to_string().contains("`legacy`"), "{error}");
    }
}

#[test]
fn the_portable_tier_says_that_it_is_not_soft() {
    assert!(!PORTABLE_IS_SOFT, "flags of Convoy's workspace came in here");
    assert!(!Tier::Portable.info().keeps_to_its_features());
    assert!(Tier::AesNi.info().keeps_to_its_features());
}
