//! Effects on a provider.

use convoy_crypto::{Cpu, Tier};
use rustls::{
    SupportedCipherSuite,
    crypto::{CryptoProvider, aws_lc_rs},
};

fn provider() -> CryptoProvider {
    convoy_rustls::with_convoy_aead(aws_lc_rs::default_provider()).unwrap()
}

fn is_gcm(suite: &SupportedCipherSuite) -> bool {
    format!("{:?}", suite.suite()).contains("GCM")
}

/// Addresses of a provider's suites in memory.
fn places(provider: &CryptoProvider) -> Vec<usize> {
    let place = |suite: &SupportedCipherSuite| match *suite {
        SupportedCipherSuite::Tls12(suite) => std::ptr::from_ref(suite).addr(),
        SupportedCipherSuite::Tls13(suite) => std::ptr::from_ref(suite).addr(),
    };
    provider.cipher_suites.iter().map(place).collect()
}

#[test]
fn suites_stay_in_their_order_and_keep_all_but_their_aead() {
    let (base, ours) = (aws_lc_rs::default_provider(), provider());
    assert_eq!(base.cipher_suites, ours.cipher_suites);
    for (base, ours) in base.cipher_suites.iter().zip(&ours.cipher_suites) {
        match (base, ours) {
            (SupportedCipherSuite::Tls12(base), SupportedCipherSuite::Tls12(ours)) => {
                let (base_shape, shape) =
                    (base.aead_alg.key_block_shape(), ours.aead_alg.key_block_shape());
                assert_eq!(shape.enc_key_len, base_shape.enc_key_len);
                assert_eq!(shape.fixed_iv_len, base_shape.fixed_iv_len);
                assert_eq!(shape.explicit_nonce_len, base_shape.explicit_nonce_len);
                assert_eq!(base.sign, ours.sign);
                assert_eq!(base.common.confidentiality_limit, ours.common.confidentiality_limit);
            }
            (SupportedCipherSuite::Tls13(base), SupportedCipherSuite::Tls13(ours)) => {
                assert_eq!(base.aead_alg.key_len(), ours.aead_alg.key_len());
                assert_eq!(base.quic.is_some(), ours.quic.is_some());
                assert_eq!(base.common.confidentiality_limit, ours.common.confidentiality_limit);
            }
            _ => panic!("{base:?} became {ours:?}"),
        }
    }
}

#[test]
fn a_suite_takes_memory_once() {
    let (first, base) = (places(&provider()), places(&aws_lc_rs::default_provider()));
    for ((ours, base), suite) in first.iter().zip(&base).zip(provider().cipher_suites) {
        let is_ours = is_gcm(&suite) || Cpu::detect().unwrap().best() == Tier::Vaes512;
        assert_eq!(ours != base, is_ours, "{suite:?}");
    }
    assert_eq!(first, places(&provider()));
    let twice = convoy_rustls::with_convoy_aead(provider()).unwrap();
    assert_eq!(first, places(&twice), "Convoy's own suites stay as they are");
}

#[test]
fn convoy_is_no_validated_module() {
    let suites = provider().cipher_suites;
    assert!(!suites.iter().filter(|suite| is_gcm(suite)).any(SupportedCipherSuite::fips));
}
