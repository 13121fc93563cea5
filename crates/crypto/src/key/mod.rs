//! Keys: what a suite's secrets are expanded to, and the tier that was chosen for them.

mod properties;
mod schedule;

use std::fmt;

pub(crate) use properties::{LANE_MAX, Limits, Route};
pub(crate) use schedule::{CipherKey, MacKey, Schedule};
use schedule::{KeyUse, Secrets};

use crate::{
    Cpu, GcmParams, KeyError, SecretBytes, Suite, Tier,
    class::{Class, NO_CLASS, last_class},
    isa::{Kernel, Tables, prefetch_read},
    memory::try_box,
    pass,
    portable::SoftKey,
    secret::{depth, scrubbed, scrubbed_to},
};

/// The secrets of a key: the cipher's or AEAD's, and for a pair the MAC's.
///
/// An AEAD's secret converts into it. Of IKE's keying material the cipher's key comes first
/// (RFC 7296 section 2.17); a salt or nonce behind it is part of the nonce, not of the key.
#[derive(Debug)]
pub struct KeyMaterial {
    /// Key of the cipher or AEAD; empty for the cipher NULL.
    pub cipher: SecretBytes,
    /// Key of the MAC; empty for an AEAD.
    pub integrity: SecretBytes,
}

impl From<SecretBytes> for KeyMaterial {
    fn from(cipher: SecretBytes) -> Self {
        Self { cipher, integrity: SecretBytes::copy_from(&[]) }
    }
}

impl KeyMaterial {
    fn secrets(&self) -> Secrets<'_> {
        Secrets { cipher: self.cipher.expose(), integrity: self.integrity.expose() }
    }
}

/// A key of any suite, for one way or both.
pub(crate) struct Key {
    suite: Suite,
    limits: Limits,
    route: Route,
    class: Class,
    schedule: Schedule,
}

impl Key {
    fn new(
        cpu: &Cpu,
        tier: Tier,
        suite: Suite,
        key_use: KeyUse,
        secrets: Secrets<'_>,
    ) -> Result<Self, KeyError> {
        if key_use == KeyUse::Both && !suite.is_aead() {
            return Err(KeyError::NotAead);
        }
        let set_up = || Schedule::new(cpu, tier, suite, key_use, secrets);
        let schedule = match (tier, suite) {
            (Tier::Portable, _) => scrubbed(set_up),
            (_, suite) if suite.is_legacy() => scrubbed(set_up),
            (_, Suite::Gcm(_) | Suite::Gmac(_)) => scrubbed_to::<{ depth::GCM_KEY }, _>(set_up),
            (_, Suite::ChaCha20Poly1305) => scrubbed_to::<{ depth::CHACHA_KEY }, _>(set_up),
            _ => scrubbed_to::<{ depth::KEY }, _>(set_up),
        }?;
        // What expanded nothing copied the key all the same.
        schedule.kernel().into_iter().for_each(Kernel::wipe_registers);
        Ok(Self::of(suite, tier, cpu.has_sha_ni(), schedule))
    }

    /// Puts a key together.
    #[inline]
    fn of(suite: Suite, tier: Tier, sha_ni: bool, schedule: Schedule) -> Self {
        let route = Route::new(suite, tier, sha_ni);
        let class = match (&schedule, suite) {
            (Schedule::Gcm { .. }, Suite::Gcm(params)) => last_class(tier, params.key_bits),
            _ => NO_CLASS,
        };
        Self { suite, limits: Limits::new(suite), route, class, schedule }
    }

    /// Takes the secret of another key for the same suite, which is an AEAD's.
    fn replace(&mut self, secret: &[u8]) -> Result<(), KeyError> {
        let (expected, given) = (self.suite.key_bytes(), secret.len());
        if expected != given {
            return Err(KeyError::Length { expected, given });
        }
        match (&mut self.schedule, self.suite) {
            (Schedule::Gcm { kernel, tables }, Suite::Gcm(GcmParams { key_bits, .. }))
            | (Schedule::Gmac { kernel, tables }, Suite::Gmac(key_bits)) => {
                let Some(tables) = tables.get_mut() else { return Err(KeyError::NotAead) };
                scrubbed_to::<{ depth::GCM_KEY }, _>(|| {
                    kernel.expand_into(key_bits, secret, tables)
                });
            }
            (Schedule::SoftGcm(key), Suite::Gcm(GcmParams { key_bits, .. }))
            | (Schedule::SoftGmac(key), Suite::Gmac(key_bits)) => {
                scrubbed(|| SoftKey::new(key_bits, secret).map(|soft| *key = soft))?;
            }
            (Schedule::Ccm { kernel, key_bits, keys }, _) => {
                scrubbed(|| pass::expand_encrypt(*kernel, *key_bits, secret, keys));
            }
            (Schedule::ChaCha { key, .. }, _) => {
                let Some(key) = key.get_mut() else { return Err(KeyError::NotAead) };
                key.0.copy_from_slice(secret);
            }
            _ => return Err(KeyError::NotAead),
        }
        self.schedule.kernel().into_iter().for_each(Kernel::wipe_registers);
        Ok(())
    }

    #[inline(always)]
    pub(crate) const fn suite(&self) -> Suite {
        self.suite
    }

    #[inline(always)]
    pub(crate) const fn limits(&self) -> &Limits {
        &self.limits
    }

    #[inline(always)]
    pub(crate) const fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Last class of the scheduler for AES-GCM, for this tier and key size.
    #[inline(always)]
    pub(crate) const fn class(&self) -> Class {
        self.class
    }

    /// Tables for kernels of AES-GCM.
    #[inline(always)]
    pub(crate) fn tables(&self) -> Option<&Tables> {
        match &self.schedule {
            Schedule::Gcm { tables, .. } => Some(tables),
            _ => None,
        }
    }

    /// Passes of this key: operations with the same ones may go through them together.
    #[inline(always)]
    pub(crate) const fn route(&self) -> Route {
        self.route
    }

    /// See [`SealKey::implementation`].
    fn implementation(&self) -> String {
        let tier = self.tier();
        match &self.schedule {
            Schedule::Pair { cipher: CipherKey::Legacy(_), mac, .. } => match mac {
                MacKey::Null => Tier::Portable.to_string(),
                MacKey::Hmac(hasher, hash, _) => {
                    format!("{} + {}", Tier::Portable, hasher.name(*hash))
                }
                MacKey::CbcMac(..) => format!("{} + {tier}", Tier::Portable),
            },
            Schedule::Pair { cipher, mac: MacKey::Hmac(hasher, hash, _), .. } => {
                let name = hasher.name(*hash);
                match cipher {
                    CipherKey::Null => name.to_owned(),
                    _ => format!("{tier} + {name}"),
                }
            }
            _ => tier.to_string(),
        }
    }

    #[inline]
    pub(crate) fn tier(&self) -> Tier {
        self.schedule.kernel().map_or(Tier::Portable, Kernel::tier)
    }
}

macro_rules! key_type {
    ($(#[$doc:meta])* $name:ident, $key_use:expr) => {
        $(#[$doc])*
        ///
        /// Setting a key up expands everything that does not depend on a packet and chooses the
        /// tier; a packet pays for none of it. Keys are shared freely between threads. All that was
        /// derived from the secret is wiped when the key is dropped.
        pub struct $name {
            key: Key,
            /// Only of keys that were asked to keep it.
            material: Option<Box<KeyMaterial>>,
        }

        impl $name {
            /// Sets a key up for the best tier of `cpu`.
            ///
            /// # Errors
            ///
            /// [`KeyError`] if a secret does not have the length that the suite calls for.
            pub fn new(
                cpu: &Cpu,
                suite: impl Into<Suite>,
                material: impl Into<KeyMaterial>,
            ) -> Result<Self, KeyError> {
                Self::with_tier(cpu, cpu.best(), suite, material)
            }

            /// Sets a key up for a tier of the caller's choice, as tests and benchmarks do.
            ///
            /// # Errors
            ///
            /// As for [`new`](Self::new); [`KeyError::TierUnavailable`] if `cpu` lacks the tier.
            pub fn with_tier(
                cpu: &Cpu,
                tier: Tier,
                suite: impl Into<Suite>,
                material: impl Into<KeyMaterial>,
            ) -> Result<Self, KeyError> {
                let key = Key::new(cpu, tier, suite.into(), $key_use, material.into().secrets())?;
                Ok(Self { key, material: None })
            }

            /// A key for the best tier of `cpu` that also keeps what it was made of, for an engine that
            /// has another library or a device do the work. It is wiped with the key and never printed.
            ///
            /// # Errors
            ///
            /// As for [`new`](Self::new).
            pub fn keeping(
                cpu: &Cpu,
                suite: impl Into<Suite>,
                material: impl Into<KeyMaterial>,
            ) -> Result<Self, KeyError> {
                Self::keeping_with_tier(cpu, cpu.best(), suite, material)
            }

            /// The same for a tier of the caller's choice.
            ///
            /// # Errors
            ///
            /// As for [`with_tier`](Self::with_tier).
            pub fn keeping_with_tier(
                cpu: &Cpu,
                tier: Tier,
                suite: impl Into<Suite>,
                material: impl Into<KeyMaterial>,
            ) -> Result<Self, KeyError> {
                let material = try_box(material.into())?;
                let key = Key::new(cpu, tier, suite.into(), $key_use, material.secrets())?;
                Ok(Self { key, material: Some(material) })
            }

            /// Secrets that the key was made of, if it [keeps](Self::keeping) them. Every caller of this is a
            /// place to review.
            #[must_use]
            pub fn material(&self) -> Option<&KeyMaterial> {
                self.material.as_deref()
            }

            /// Suite of the key.
            #[inline]
            #[must_use]
            pub const fn suite(&self) -> Suite {
                self.key.suite()
            }

            /// Bytes of its suite's ICV; quicker than to ask the suite.
            #[inline(always)]
            #[must_use]
            pub const fn icv_bytes(&self) -> usize {
                self.key.limits.icv as usize
            }

            /// True if its suite is an AEAD, so that operations are made with `new`, not `framed`.
            #[inline(always)]
            #[must_use]
            pub const fn is_aead(&self) -> bool {
                self.key.limits.aead
            }

            /// The tier whose kernels will run with this key.
            #[must_use]
            pub fn tier(&self) -> Tier {
                self.key.tier()
            }

            /// Name of the code that computes with this key: the tier, and of an HMAC the instructions and
            /// the number of messages side by side (`avx512 + avx512 x16`).
            #[must_use]
            pub fn implementation(&self) -> String {
                self.key.implementation()
            }

            /// Starts loading the key, for callers that are about to make an operation of it. The
            /// burst itself loads what the key points to.
            #[inline(always)]
            pub fn prefetch(&self) {
                prefetch_read(&self.key);
            }

            #[inline(always)]
            pub(crate) const fn inner(&self) -> &Key {
                &self.key
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({} on {})"), self.suite(), self.tier())
            }
        }
    };
}

key_type! {
    /// A key that can only seal: encrypt and make ICVs.
    SealKey, KeyUse::Seal
}

key_type! {
    /// A key that can only open: verify ICVs and decrypt.
    OpenKey, KeyUse::Open
}

key_type! {
    /// An AEAD key that can seal and open, for both ways need the same tables; other suites are
    /// refused ([`KeyError::NotAead`]).
    ///
    /// Prefer [`SealKey`] and [`OpenKey`], with which a packet cannot take the wrong way.
    AeadKey, KeyUse::Both
}

impl AeadKey {
    /// A key of what was expanded before; an AEAD's.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub(crate) fn expanded(suite: Suite, tier: Tier, schedule: Schedule) -> Self {
        Self { key: Key::of(suite, tier, false, schedule), material: None }
    }

    /// Sets a key up from a secret that the caller holds and wipes, for a tier of the caller's choice: as
    /// [`with_tier`](Self::with_tier), without a copy of the secret on the heap.
    ///
    /// # Errors
    ///
    /// As for [`with_tier`](Self::with_tier).
    pub fn from_slice(
        cpu: &Cpu,
        tier: Tier,
        suite: impl Into<Suite>,
        secret: &[u8],
    ) -> Result<Self, KeyError> {
        let secrets = Secrets { cipher: secret, integrity: &[] };
        let key = Key::new(cpu, tier, suite.into(), KeyUse::Both, secrets)?;
        Ok(Self { key, material: None })
    }

    /// Takes the secret of another key in place of the one held, for the same suite and tier. It takes no
    /// memory, and so less time than a new key.
    ///
    /// # Errors
    ///
    /// [`KeyError::Length`] if it does not have the length that the suite calls for; the key that is held
    /// stays.
    pub fn replace(&mut self, secret: &[u8]) -> Result<(), KeyError> {
        self.key.replace(secret)?;
        if let Some(material) = &mut self.material {
            material.cipher = SecretBytes::copy_from(secret);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IcvLen, KeyBits, Nonce, SealOp, seal_burst};

    const PARAMS: GcmParams = GcmParams::new(KeyBits::Aes128, IcvLen::Icv16);

    fn secret(bytes: usize) -> SecretBytes {
        SecretBytes::copy_from(&vec![0x5a; bytes])
    }

    /// Bytes that all differ, for 3DES takes no key of equal parts.
    fn counting(bytes: usize) -> SecretBytes {
        (0..bytes).map(|i| i as u8).collect::<Vec<_>>().into()
    }

    fn material(suite: Suite) -> KeyMaterial {
        let integrity = counting(suite.integrity_key_bytes());
        KeyMaterial { cipher: counting(suite.key_bytes()), integrity }
    }

    #[test]
    fn keys_show_parameters_and_tier_but_no_secret() {
        let cpu = Cpu::without("aesni").unwrap();
        let key = SealKey::new(&cpu, PARAMS, secret(16)).unwrap();
        assert_eq!(format!("{key:?}"), "SealKey(aes-128-gcm-16 on portable)");
        let material = KeyMaterial::from(secret(16));
        let shown =
            "KeyMaterial { cipher: SecretBytes(16 bytes), integrity: SecretBytes(0 bytes) }";
        assert_eq!(format!("{material:?}"), shown);
    }

    #[test]
    fn only_keys_that_were_asked_to_keep_their_material() {
        let cpu = Cpu::without("").unwrap();
        let key = OpenKey::keeping(&cpu, PARAMS, secret(16)).unwrap();
        assert_eq!(key.material().unwrap().cipher.expose(), [0x5a; 16]);
        assert!(OpenKey::new(&cpu, PARAMS, secret(16)).unwrap().material().is_none());
        let shown = format!("{key:?}");
        assert_eq!(shown, format!("OpenKey(aes-128-gcm-16 on {})", cpu.best()));
        let error = SealKey::keeping(&cpu, PARAMS, secret(20)).unwrap_err();
        assert_eq!(error, KeyError::Length { expected: 16, given: 20 });
    }

    /// A replaced key seals to the same bytes as a new one.
    #[test]
    fn keys_for_both_ways_are_replaced_in_place() {
        let cpu = Cpu::without("").unwrap();
        for suite in Suite::all().filter(|suite| suite.is_aead()) {
            for tier in cpu.tiers() {
                let key = |byte| {
                    let secret = SecretBytes::copy_from(&vec![byte; suite.key_bytes()]);
                    AeadKey::with_tier(&cpu, tier, suite, secret).unwrap()
                };
                let seal = |key: &AeadKey| {
                    let (mut data, mut icv) = ([7; 700], vec![0; suite.icv_bytes()]);
                    let nonce = Nonce::new([9; 12]);
                    let op = SealOp::with_aead_key(key, nonce, &[1; 20], &mut data, &mut icv);
                    seal_burst(&mut [op.unwrap()]);
                    (data, icv)
                };
                let (mut replaced, new) = (key(1), key(2));
                let error = KeyError::Length { expected: suite.key_bytes(), given: 1 };
                assert_eq!(replaced.replace(&[5]), Err(error));
                assert_eq!(seal(&replaced), seal(&key(1)), "{suite} on {tier}");
                replaced.replace(&vec![2; suite.key_bytes()]).unwrap();
                assert_eq!(seal(&replaced), seal(&new), "{suite} on {tier}");
            }
        }
    }

    #[test]
    fn wrong_key_lengths_are_refused_with_both_numbers() {
        let cpu = Cpu::without("").unwrap();
        let error = OpenKey::new(&cpu, PARAMS, secret(20)).unwrap_err();
        assert_eq!(error, KeyError::Length { expected: 16, given: 20 });
        for suite in Suite::all() {
            let error =
                SealKey::new(&cpu, suite, KeyMaterial { cipher: secret(17), ..material(suite) });
            let expected = suite.key_bytes();
            assert_eq!(error.unwrap_err(), KeyError::Length { expected, given: 17 }, "{suite}");
            let long = KeyMaterial { integrity: secret(99), ..material(suite) };
            let outcome = SealKey::new(&cpu, suite, long).map(|_| ());
            if suite.to_string().contains("hmac") {
                assert_eq!(outcome, Ok(()), "{suite}");
            } else {
                let expected = suite.integrity_key_bytes();
                let error = KeyError::IntegrityLength { expected, given: 99 };
                assert_eq!(outcome, Err(error), "{suite}");
            }
        }
    }

    #[test]
    fn only_aeads_go_both_ways() {
        let cpu = Cpu::without("").unwrap();
        for suite in Suite::all() {
            let outcome = AeadKey::new(&cpu, suite, material(suite)).map(|key| key.suite());
            let expected = if suite.is_aead() { Ok(suite) } else { Err(KeyError::NotAead) };
            assert_eq!(outcome, expected);
        }
    }

    #[test]
    fn denied_tiers_get_no_keys() {
        let cpu = Cpu::without("aesni").unwrap();
        for tier in Tier::ALL.into_iter().skip(1) {
            for suite in Suite::all() {
                let error = SealKey::with_tier(&cpu, tier, suite, material(suite));
                assert_eq!(error.unwrap_err(), KeyError::TierUnavailable(tier));
            }
        }
    }

    #[test]
    fn keys_may_be_shared_between_threads() {
        fn shared<T: Send + Sync>() {}
        shared::<SealKey>();
        shared::<OpenKey>();
        shared::<AeadKey>();
        shared::<KeyMaterial>();
    }
}
