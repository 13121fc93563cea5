//! Options of `dpdk-test-crypto-perf`.

use std::fmt;
use std::str::FromStr;

use convoy_crypto::Suite;

use super::{BURST, PACKETS, WINDOWS};
use crate::suite::{Layout as _, aad_bytes};

/// A kind of crypto device, such as `crypto_aesni_mb`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver(String);

impl Driver {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0
    }

    /// True if it may have the suite: one is known to be for AES-GCM alone. Of others the program itself tells.
    #[must_use]
    pub fn may_have(&self, suite: Suite) -> bool {
        self.0 != "crypto_aesni_gcm" || matches!(suite, Suite::Gcm(_))
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for Driver {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let is_name = |rest: &str| {
            !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        };
        match word.strip_prefix("crypto_").is_some_and(is_name) {
            true => Ok(Self(word.to_owned())),
            false => Err(format!(
                "{word:?}: kinds of crypto devices are called crypto_aesni_mb, crypto_aesni_gcm, crypto_openssl and so on"
            )),
        }
    }
}

/// The options that name a suite, for sealing; none where the program has none for it.
///
/// Additional data, nonces and ICVs are as long as in ESP. The program has no way to authenticate ESP header and IV of suites
/// that are no AEADs, 24 bytes with AES-CBC: it hashes the text alone.
#[must_use]
pub fn of_suite(suite: Suite) -> Option<String> {
    let (key, icv, nonce) = (suite.key_bytes(), suite.icv_bytes(), suite.nonce_bytes());
    let aead = |name: &str| {
        let aad = aad_bytes(suite);
        format!(
            "--optype aead --aead-algo {name} --aead-op encrypt --aead-key-sz {key} --aead-iv-sz {nonce} \
             --aead-aad-sz {aad} --digest-sz {icv}"
        )
    };
    match suite {
        Suite::Pair { cipher, integrity } => {
            let (cipher, mac) = (cipher.names().dpdk?, integrity.alg().names().dpdk?);
            let mac_key = suite.integrity_key_bytes();
            let iv = suite.iv_bytes();
            Some(format!(
                "--optype cipher-then-auth --cipher-algo {cipher} --cipher-op encrypt --cipher-key-sz {key} \
                 --cipher-iv-sz {iv} --auth-algo {mac} --auth-op generate --auth-key-sz {mac_key} --digest-sz {icv}"
            ))
        }
        _ if icv == 16 => Some(aead(suite.names()?.dpdk?)),
        _ => None,
    }
}

/// All arguments of a run: windows of each of `texts` bytes, on the first of `processors`; the program's main thread waits on
/// the second. Without huge pages, devices of the machine and files that outlive the run.
#[must_use]
pub fn all(driver: &Driver, suite: &str, texts: &[usize], processors: [usize; 2]) -> Vec<String> {
    let [worker, main] = processors;
    let list = |numbers: &mut dyn Iterator<Item = usize>| {
        numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(",")
    };
    let sizes = list(&mut texts.iter().copied());
    // It measures a size once for each burst size in the list.
    let bursts = list(&mut std::iter::repeat_n(BURST, WINDOWS));
    let words = format!(
        "--no-huge -m 1024 --no-pci --no-telemetry --no-shconf -v --lcores 0@{main},1@{worker} --vdev {driver} \
         -- --ptest throughput --silent --csv-friendly --devtype {driver} {suite} --buffer-sz {sizes} \
         --burst-sz {bursts} --total-ops {PACKETS}"
    );
    words.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(suite: &str) -> Option<String> {
        of_suite(suite.parse().unwrap())
    }

    #[test]
    fn suites_are_named_as_esp_has_them() {
        let gcm = options("aes-256-gcm-16").unwrap();
        assert!(gcm.contains("--aead-algo aes-gcm --aead-op encrypt --aead-key-sz 32"), "{gcm}");
        assert!(gcm.ends_with("--aead-iv-sz 12 --aead-aad-sz 8 --digest-sz 16"), "{gcm}");
        let cbc = options("aes-128-cbc+hmac-sha1-96").unwrap();
        assert!(
            cbc.contains("--cipher-key-sz 16 --cipher-iv-sz 16 --auth-algo sha1-hmac"),
            "{cbc}"
        );
        assert!(cbc.ends_with("--auth-key-sz 20 --digest-sz 12"), "{cbc}");
        let xcbc = options("aes-128-cbc+aes-xcbc-96").unwrap();
        assert!(xcbc.ends_with(
            "--auth-algo aes-xcbc-mac --auth-op generate --auth-key-sz 16 --digest-sz 12"
        ));
        for other in
            ["aes-128-gcm-8", "aes-128-ccm-16", "null+hmac-sha1-96", "aes-128-cbc+hmac-md5-96"]
        {
            assert_eq!(options(other), None, "{other}");
        }
    }

    #[test]
    fn drivers_are_names_and_nothing_else() {
        let driver: Driver = "crypto_aesni_gcm".parse().unwrap();
        assert!(driver.may_have("aes-128-gcm-16".parse().unwrap()));
        assert!(!driver.may_have("aes-128-cbc+hmac-sha1-96".parse().unwrap()));
        for word in ["aesni_mb", "crypto_", "crypto_a,max_nb_queue_pairs=1", "crypto_a b"] {
            assert!(word.parse::<Driver>().unwrap_err().contains("crypto_aesni_mb"), "{word}");
        }
    }

    #[test]
    fn a_run_has_a_window_for_each_burst_size_of_each_size() {
        let driver = "crypto_aesni_mb".parse().unwrap();
        let words = all(&driver, "--optype aead", &[64, 1408], [3, 5]).join(" ");
        assert!(
            words.contains("--lcores 0@5,1@3 --vdev crypto_aesni_mb -- --ptest throughput"),
            "{words}"
        );
        assert!(words.contains("--buffer-sz 64,1408 --burst-sz 32,32,"), "{words}");
        assert!(words.ends_with(",32 --total-ops 1024"), "{words}");
        assert_eq!(words.matches(",32").count() + 1, WINDOWS);
    }
}
