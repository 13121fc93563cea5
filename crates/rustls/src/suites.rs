//! Cipher suites of rustls, with Convoy's AEADs in them.

use std::{
    ptr,
    sync::{Mutex, PoisonError},
};

use convoy_crypto::{Cpu, CpuError, Tier};
use rustls::{
    CipherSuite, CipherSuiteCommon, SupportedCipherSuite, Tls12CipherSuite, Tls13CipherSuite,
    crypto::CryptoProvider,
};

use crate::{aead::Aead, tls12::Tls12, tls13::Tls13};

/// `base` with Convoy's AES-GCM in those of its cipher suites that have it, and with ChaCha20-Poly1305 likewise
/// where the best CPU tier is `vaes512`: on others it was not found to be faster, one record at a time.
///
/// The suites stay the same ones in the same order. Everything else of the provider is left as it is. Records use
/// the best CPU tier that is not denied (`CONVOY_DENY_CPU`).
///
/// rustls asks for suites that live as long as the process, so each suite that is seen for the first time
/// takes some 100 bytes which are never given back.
///
/// # Errors
///
/// [`CpuError`] if `CONVOY_DENY_CPU` names anything but tiers that can be denied.
pub fn with_convoy_aead(base: CryptoProvider) -> Result<CryptoProvider, CpuError> {
    let has_chacha = Cpu::detect()?.best() == Tier::Vaes512;
    let mut provider = base;
    for suite in &mut provider.cipher_suites {
        *suite = with_aead(*suite, has_chacha);
    }
    Ok(provider)
}

/// Suites that were seen, and what they became.
static SEEN: Mutex<Vec<(SupportedCipherSuite, SupportedCipherSuite)>> = Mutex::new(Vec::new());

fn with_aead(base: SupportedCipherSuite, has_chacha: bool) -> SupportedCipherSuite {
    let aead = aead_of(base.suite()).filter(|aead| has_chacha || *aead != Aead::ChaCha20Poly1305);
    let Some(aead) = aead else { return base };
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    if seen.iter().any(|(_, ours)| is_same(*ours, base)) {
        return base;
    }
    if let Some((_, ours)) = seen.iter().find(|(known, _)| is_same(*known, base)) {
        return *ours;
    }
    let ours = match base {
        SupportedCipherSuite::Tls12(suite) => tls12(suite, aead),
        SupportedCipherSuite::Tls13(suite) => tls13(suite, aead),
    };
    seen.push((base, ours));
    ours
}

/// True if both are one suite of one provider.
fn is_same(one: SupportedCipherSuite, other: SupportedCipherSuite) -> bool {
    match (one, other) {
        (SupportedCipherSuite::Tls12(one), SupportedCipherSuite::Tls12(other)) => {
            ptr::eq(one, other)
        }
        (SupportedCipherSuite::Tls13(one), SupportedCipherSuite::Tls13(other)) => {
            ptr::eq(one, other)
        }
        _ => false,
    }
}

fn tls12(base: &'static Tls12CipherSuite, aead: Aead) -> SupportedCipherSuite {
    let aead_alg: &'static Tls12 = match aead {
        Aead::Aes128Gcm => &Tls12(Aead::Aes128Gcm),
        Aead::Aes256Gcm => &Tls12(Aead::Aes256Gcm),
        Aead::ChaCha20Poly1305 => &Tls12(Aead::ChaCha20Poly1305),
    };
    let suite = Tls12CipherSuite {
        common: common(&base.common),
        prf_provider: base.prf_provider,
        kx: base.kx,
        sign: base.sign,
        aead_alg,
    };
    SupportedCipherSuite::Tls12(Box::leak(Box::new(suite)))
}

fn tls13(base: &'static Tls13CipherSuite, aead: Aead) -> SupportedCipherSuite {
    let aead_alg: &'static Tls13 = match aead {
        Aead::Aes128Gcm => &Tls13(Aead::Aes128Gcm),
        Aead::Aes256Gcm => &Tls13(Aead::Aes256Gcm),
        Aead::ChaCha20Poly1305 => &Tls13(Aead::ChaCha20Poly1305),
    };
    let suite = Tls13CipherSuite {
        common: common(&base.common),
        hkdf_provider: base.hkdf_provider,
        aead_alg,
        quic: base.quic,
    };
    SupportedCipherSuite::Tls13(Box::leak(Box::new(suite)))
}

fn common(base: &CipherSuiteCommon) -> CipherSuiteCommon {
    CipherSuiteCommon {
        suite: base.suite,
        hash_provider: base.hash_provider,
        confidentiality_limit: base.confidentiality_limit,
    }
}

fn aead_of(suite: CipherSuite) -> Option<Aead> {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
        | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => Some(Aead::Aes128Gcm),
        CipherSuite::TLS13_AES_256_GCM_SHA384
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
        | CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => Some(Aead::Aes256Gcm),
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        | CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => Some(Aead::ChaCha20Poly1305),
        _ => None,
    }
}
