//! The choice of ciphers offered: those that are no slower on this processor than OpenSSL's own.
//!
//! OpenSSL takes what the provider does not offer from its default provider. Which cipher needs what of the
//! processor is one table, [`Cipher::needs`], filled by what `convoy bench tls-records` measured. All ciphers are
//! offered with [`KEY`]` = all` in the provider's section of OpenSSL's configuration, or else with [`VARIABLE`] in
//! the environment, for tests and for measuring.

use convoy_crypto::{Cpu, Tier};

/// The key of the provider's section that says which ciphers are offered.
pub const KEY: &str = "offer";

/// The environment variable that says the same. A process with rights that its caller lacks ignores it.
pub const VARIABLE: &str = "CONVOY_PROVIDER_OFFER";

/// The value that has every cipher offered, and the only one there is.
pub const EVERY: &str = "all";

/// A cipher that the provider has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cipher {
    /// AES-GCM with a key of 128 bits.
    Aes128Gcm,
    /// AES-GCM with a key of 192 bits.
    Aes192Gcm,
    /// AES-GCM with a key of 256 bits.
    Aes256Gcm,
    /// ChaCha20-Poly1305.
    ChaCha20Poly1305,
    /// The composite of AES-128-CBC and HMAC-SHA1.
    Aes128CbcHmacSha1,
    /// The composite of AES-256-CBC and HMAC-SHA1.
    Aes256CbcHmacSha1,
    /// The composite of AES-128-CBC and HMAC-SHA256.
    Aes128CbcHmacSha256,
    /// The composite of AES-256-CBC and HMAC-SHA256.
    Aes256CbcHmacSha256,
}

/// Requirements of a cipher on the processor to be no slower than OpenSSL's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// The CPU tier in use, or one that builds on it.
    pub tier: Tier,
    /// The SHA extensions.
    pub sha_extensions: bool,
    /// A processor of AMD's.
    pub by_amd: bool,
}

/// Features of a processor that may be used.
#[derive(Clone, Copy)]
struct Processor {
    best: Tier,
    sha_extensions: bool,
    by_amd: bool,
}

impl Cipher {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Aes128Gcm,
        Self::Aes192Gcm,
        Self::Aes256Gcm,
        Self::ChaCha20Poly1305,
        Self::Aes128CbcHmacSha1,
        Self::Aes256CbcHmacSha1,
        Self::Aes128CbcHmacSha256,
        Self::Aes256CbcHmacSha256,
    ];

    /// Its name, as OpenSSL has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "AES-128-GCM",
            Self::Aes192Gcm => "AES-192-GCM",
            Self::Aes256Gcm => "AES-256-GCM",
            Self::ChaCha20Poly1305 => "ChaCha20-Poly1305",
            Self::Aes128CbcHmacSha1 => "AES-128-CBC-HMAC-SHA1",
            Self::Aes256CbcHmacSha1 => "AES-256-CBC-HMAC-SHA1",
            Self::Aes128CbcHmacSha256 => "AES-128-CBC-HMAC-SHA256",
            Self::Aes256CbcHmacSha256 => "AES-256-CBC-HMAC-SHA256",
        }
    }

    /// Requirements for it to be offered.
    #[must_use]
    pub const fn needs(self) -> Needs {
        let needs = Needs { tier: Tier::AesNi, sha_extensions: false, by_amd: false };
        match self {
            Self::Aes128Gcm | Self::Aes192Gcm | Self::Aes256Gcm => needs,
            // On Intel's, packets of 1,400 bytes that go from one place to another are slower than OpenSSL's.
            Self::ChaCha20Poly1305 => Needs { tier: Tier::Vaes512, by_amd: true, ..needs },
            // Without the extensions, cipher and hash go one after the other. Below these tiers eight records
            // at once are slower than OpenSSL's.
            Self::Aes128CbcHmacSha1 | Self::Aes256CbcHmacSha1 => {
                Needs { tier: Tier::Avx2, sha_extensions: true, ..needs }
            }
            Self::Aes128CbcHmacSha256 | Self::Aes256CbcHmacSha256 => {
                Needs { tier: Tier::Vaes512, sha_extensions: true, ..needs }
            }
        }
    }

    /// Reason that it is not offered with what may be used of the processor; `None` if it is.
    #[must_use]
    pub fn withheld(self, cpu: &Cpu) -> Option<String> {
        let (best, sha_extensions) = (cpu.best(), cpu.has_sha_ni());
        self.withheld_on(Processor { best, sha_extensions, by_amd: cpu.is_by_amd() })
    }

    fn withheld_on(self, processor: Processor) -> Option<String> {
        let needs = self.needs();
        let why = if !processor.best.needs(needs.tier) {
            format!("without the CPU tier {}", needs.tier)
        } else if needs.sha_extensions && !processor.sha_extensions {
            "without the SHA extensions".to_owned()
        } else if needs.by_amd && !processor.by_amd {
            "on processors of other makers than AMD".to_owned()
        } else {
            return None;
        };
        Some(format!("OpenSSL's own is as fast or faster {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(denied: &str) -> Vec<&'static str> {
        let cpu = Cpu::without(denied).unwrap();
        let offered = Cipher::ALL.into_iter().filter(|cipher| cipher.withheld(&cpu).is_none());
        offered.map(Cipher::name).collect()
    }

    #[test]
    fn what_the_processor_lacks_decides() {
        let all = Cpu::without("").unwrap();
        let count = |denied, word| offered(denied).iter().filter(|it| it.contains(word)).count();
        assert_eq!(offered("aesni"), [""; 0]);
        assert_eq!(count("sha-ni", "CBC"), 0);
        if all.has(Tier::AesNi) {
            assert_eq!(offered("avx,sha-ni"), ["AES-128-GCM", "AES-192-GCM", "AES-256-GCM"]);
        }
        let expected = |of: &[&str], has: bool| if has { of.len() } else { 0 };
        let composites = ["AES-128-CBC-HMAC-SHA1", "AES-256-CBC-HMAC-SHA1"];
        let has_sha1 = all.has_sha_ni() && all.has(Tier::Avx2);
        assert_eq!(count("vaes512", "CBC"), expected(&composites, has_sha1));
        assert_eq!(count("avx2", "CBC"), 0);
        let has_sha256 = all.has_sha_ni() && all.has(Tier::Vaes512);
        assert_eq!(count("", "SHA256"), expected(&composites, has_sha256));
        assert_eq!((count("vaes512", "SHA256"), count("vaes512", "ChaCha")), (0, 0));
        let has_chacha = all.has(Tier::Vaes512) && all.is_by_amd();
        assert_eq!(count("sha-ni", "ChaCha"), usize::from(has_chacha));
    }

    #[test]
    fn what_is_withheld_is_said_why() {
        let all = Processor { best: Tier::Vaes512, sha_extensions: true, by_amd: true };
        assert!(Cipher::ALL.iter().all(|cipher| cipher.withheld_on(all).is_none()));
        for (cipher, processor, why) in [
            (
                Cipher::ChaCha20Poly1305,
                Processor { best: Tier::Vaes256, ..all },
                "without the CPU tier vaes512",
            ),
            (
                Cipher::ChaCha20Poly1305,
                Processor { by_amd: false, ..all },
                "on processors of other makers than AMD",
            ),
            (
                Cipher::Aes128CbcHmacSha1,
                Processor { sha_extensions: false, ..all },
                "without the SHA extensions",
            ),
            (
                Cipher::Aes256Gcm,
                Processor { best: Tier::Portable, ..all },
                "without the CPU tier aesni",
            ),
        ] {
            let said = cipher.withheld_on(processor).unwrap();
            assert!(said.ends_with(why), "{said}");
        }
    }
}
