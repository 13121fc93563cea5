//! Keys: what a suite's secrets are expanded to, and the tier that was chosen for them.

use std::fmt;

use crate::{
    Cipher, Cpu, GcmParams, HashAlg, KeyBits, KeyError, MacAlg, SecretBytes, Suite, Tier,
    WideUnits,
    block::{CbcMacKey, ChaChaKey, HmacKey, RoundKeys},
    burst,
    isa::{Kernel, Tables, prefetch_read},
    memory::{Held, Lined, OutOfMemory, try_box},
    pass::{self, Hasher},
    portable::{LegacyKey, SoftKey},
    secret::{depth, scrubbed, scrubbed_to},
    wide_units::{Work, go_narrow},
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

/// Both secrets, wherever they are.
#[derive(Clone, Copy)]
struct Secrets<'s> {
    cipher: &'s [u8],
    integrity: &'s [u8],
}

impl KeyMaterial {
    fn secrets(&self) -> Secrets<'_> {
        Secrets { cipher: self.cipher.expose(), integrity: self.integrity.expose() }
    }
}

/// Everything derived from a key, in the form its tier wants.
///
/// The secret parts are boxed, so that moving a key leaves no copy behind, and wipe themselves on
/// drop.
pub(crate) enum Schedule {
    /// GCM on the portable tier.
    SoftGcm(SoftKey),
    /// GCM on every other tier; the tables are the same for all tiers of a processor family.
    Gcm {
        /// Proof that the tier may be used, and so the choice of kernel.
        kernel: Kernel,
        /// Round keys and GHASH key powers.
        tables: Held<Tables>,
    },
    SoftGmac(SoftKey),
    Gmac {
        kernel: Kernel,
        tables: Held<Tables>,
    },
    Ccm {
        kernel: Option<Kernel>,
        key_bits: KeyBits,
        keys: Box<RoundKeys>,
    },
    ChaCha {
        kernel: Option<Kernel>,
        wide_units: Option<&'static WideUnits>,
        key: Held<ChaChaKey>,
    },
    Pair {
        kernel: Option<Kernel>,
        cipher: CipherKey,
        mac: MacKey,
    },
}

/// A cipher with its key, for one direction.
pub(crate) enum CipherKey {
    Null,
    Cbc(KeyBits, Box<RoundKeys>),
    Ctr(KeyBits, Box<RoundKeys>),
    /// CBC of a cipher that no kernel has.
    Legacy(LegacyKey),
}

/// A MAC with its key.
pub(crate) enum MacKey {
    Null,
    Hmac(Hasher, HashAlg, Box<HmacKey>),
    CbcMac(KeyBits, Box<CbcMacKey>),
}

/// The operations that a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyUse {
    Seal,
    Open,
    Both,
}

impl Schedule {
    /// Starts loading what lies elsewhere and packets of so many bytes use first.
    #[inline]
    pub(crate) fn prefetch(&self, len: usize) {
        match self {
            Self::SoftGcm(_) | Self::SoftGmac(_) => {}
            Self::Gcm { tables, kernel, .. } => {
                tables.prefetch(len <= 128, kernel.tier() != Tier::Vaes512);
            }
            Self::Gmac { tables, .. } => tables.prefetch(true, true),
            Self::Ccm { keys, .. } => prefetch_read(&**keys),
            Self::ChaCha { key, .. } => prefetch_read(&**key),
            Self::Pair { cipher, mac, .. } => {
                match cipher {
                    CipherKey::Null | CipherKey::Legacy(_) => {}
                    CipherKey::Cbc(_, keys) | CipherKey::Ctr(_, keys) => prefetch_read(&**keys),
                }
                match mac {
                    MacKey::Null => {}
                    MacKey::Hmac(_, _, key) => prefetch_read(&**key),
                    MacKey::CbcMac(_, key) => prefetch_read(&**key),
                }
            }
        }
    }

    fn new(
        cpu: &Cpu,
        tier: Tier,
        suite: Suite,
        key_use: KeyUse,
        secrets: Secrets<'_>,
    ) -> Result<Self, KeyError> {
        let Secrets { cipher: secret, integrity: mac_secret } = secrets;
        suite.check_key(secret)?;
        check_integrity(suite, mac_secret.len())?;
        let kernel = match cpu.proofs().kernel(tier) {
            None if tier != Tier::Portable => return Err(KeyError::TierUnavailable(tier)),
            kernel => kernel,
        };
        Ok(match suite {
            Suite::Gcm(GcmParams { key_bits, .. }) => match kernel {
                None => Self::SoftGcm(SoftKey::new(key_bits, secret)?),
                Some(kernel) => {
                    Self::Gcm { kernel, tables: kernel.expand(key_bits, secret)?.into() }
                }
            },
            Suite::Gmac(key_bits) => match kernel {
                None => Self::SoftGmac(SoftKey::new(key_bits, secret)?),
                Some(kernel) => {
                    Self::Gmac { kernel, tables: kernel.expand(key_bits, secret)?.into() }
                }
            },
            Suite::Ccm { key_bits, .. } => {
                Self::Ccm { kernel, key_bits, keys: encrypt_keys(kernel, key_bits, secret)? }
            }
            Suite::ChaCha20Poly1305 => {
                let mut key = try_box(Lined(ChaChaKey([0; 32])))?;
                key.0.0.copy_from_slice(secret);
                Self::ChaCha { kernel, wide_units: cpu.wide_units(), key: key.into() }
            }
            Suite::Pair { cipher, integrity } => Self::Pair {
                kernel,
                cipher: CipherKey::new(kernel, cipher, key_use, secret)?,
                mac: MacKey::new(cpu, tier, kernel, integrity.alg(), mac_secret)?,
            },
        })
    }

    /// True if its cipher has no kernel, so that the portable tier takes part.
    #[inline]
    pub(crate) const fn is_legacy(&self) -> bool {
        matches!(self, Self::Pair { cipher: CipherKey::Legacy(_), .. })
    }

    /// True if this thread's next burst is better off in narrow registers, as wide units sleep. `burst` returns the
    /// number of packets and that of all their bytes; at most `most` packets go side by side;
    /// it is called only where wide units can sleep.
    #[inline(always)]
    pub(crate) fn goes_narrow(&self, most: usize, burst: impl FnOnce() -> (usize, usize)) -> bool {
        match self {
            Self::ChaCha { kernel: Some(kernel), wide_units: Some(units), .. } => {
                go_narrow(units, Work::ChaCha, kernel.chacha_width(), burst())
            }
            Self::Pair { mac: MacKey::Hmac(hasher, hash, _), .. } => {
                hasher.goes_narrow(*hash, most, burst)
            }
            // AES has no wide registers where they sleep.
            _ => false,
        }
    }

    /// The tier whose kernels run, None for the portable one.
    #[inline(always)]
    pub(crate) fn kernel(&self) -> Option<Kernel> {
        match self {
            Self::SoftGcm(_) | Self::SoftGmac(_) => None,
            Self::Gcm { kernel, .. } | Self::Gmac { kernel, .. } => Some(*kernel),
            Self::Ccm { kernel, .. } | Self::ChaCha { kernel, .. } | Self::Pair { kernel, .. } => {
                *kernel
            }
        }
    }
}

impl CipherKey {
    fn new(
        kernel: Option<Kernel>,
        cipher: Cipher,
        key_use: KeyUse,
        secret: &[u8],
    ) -> Result<Self, KeyError> {
        Ok(match cipher {
            Cipher::Null => Self::Null,
            Cipher::AesCbc(bits) if key_use == KeyUse::Open => {
                Self::Cbc(bits, decrypt_keys(kernel, bits, secret)?)
            }
            Cipher::AesCbc(bits) => Self::Cbc(bits, encrypt_keys(kernel, bits, secret)?),
            Cipher::AesCtr(bits) => Self::Ctr(bits, encrypt_keys(kernel, bits, secret)?),
            Cipher::TripleDesCbc => Self::Legacy(scrubbed(|| LegacyKey::triple_des(secret))?),
            Cipher::CamelliaCbc(bits) => {
                Self::Legacy(scrubbed(|| LegacyKey::camellia(bits, secret))?)
            }
        })
    }
}

impl MacKey {
    fn new(
        cpu: &Cpu,
        tier: Tier,
        kernel: Option<Kernel>,
        alg: MacAlg,
        secret: &[u8],
    ) -> Result<Self, OutOfMemory> {
        Ok(match alg {
            MacAlg::Null => Self::Null,
            MacAlg::Hmac(hash) => {
                let hasher = Hasher::choose(cpu, tier, hash);
                let mut key = try_box(HmacKey::zeroed())?;
                scrubbed(|| pass::hmac::expand(hasher, hash, secret, &mut key));
                Self::Hmac(hasher, hash, key)
            }
            MacAlg::AesXcbc => Self::cbc_mac(kernel, alg, KeyBits::Aes128, secret)?,
            MacAlg::AesCmac(bits) => Self::cbc_mac(kernel, alg, bits, secret)?,
        })
    }

    fn cbc_mac(
        kernel: Option<Kernel>,
        alg: MacAlg,
        bits: KeyBits,
        secret: &[u8],
    ) -> Result<Self, OutOfMemory> {
        let mut key = try_box(CbcMacKey::zeroed())?;
        expand(kernel, || pass::expand_cbc_mac(kernel, alg, secret, &mut key));
        Ok(Self::CbcMac(bits, key))
    }
}

/// Expands a key, and wipes at once what that leaves on the stack: what is moved behind it, parts of it without a value
/// among them, would take it along.
fn expand(kernel: Option<Kernel>, work: impl FnOnce()) {
    match kernel {
        Some(_) => scrubbed_to::<{ depth::KEY }, _>(work),
        None => scrubbed(work),
    }
}

fn encrypt_keys(
    kernel: Option<Kernel>,
    bits: KeyBits,
    secret: &[u8],
) -> Result<Box<RoundKeys>, OutOfMemory> {
    let mut keys = try_box(RoundKeys::zeroed())?;
    expand(kernel, || pass::expand_encrypt(kernel, bits, secret, &mut keys));
    Ok(keys)
}

fn decrypt_keys(
    kernel: Option<Kernel>,
    bits: KeyBits,
    secret: &[u8],
) -> Result<Box<RoundKeys>, OutOfMemory> {
    let forward = encrypt_keys(kernel, bits, secret)?;
    let mut keys = try_box(RoundKeys::zeroed())?;
    expand(kernel, || pass::expand_decrypt(kernel, bits, &forward, &mut keys));
    Ok(keys)
}

/// An HMAC takes any key; the other MACs, and suites without one, exactly one length.
fn check_integrity(suite: Suite, given: usize) -> Result<(), KeyError> {
    let expected = suite.integrity_key_bytes();
    let any = matches!(suite, Suite::Pair { integrity, .. } if matches!(integrity.alg(), MacAlg::Hmac(_)));
    if any || given == expected {
        return Ok(());
    }
    Err(KeyError::IntegrityLength { expected, given })
}

/// Most bytes of a pair's text.
const PAIR_MAX: u64 = u32::MAX as u64;

/// Limits that building an operation checks, worked out once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes of an ICV.
    pub(crate) icv: u8,
    /// Fewest and most bytes of a nonce.
    pub(crate) nonce: (u8, u8),
    /// True if operations come with additional data, false if with a header in front of the text.
    pub(crate) aead: bool,
    /// One less than the bytes of a block that text must be a multiple of.
    pub(crate) partial: u8,
    /// Most bytes of text. For CCM, with a nonce of 7 bytes.
    pub(crate) data: u64,
    /// Initial value of the last 32 bits of the nonce's block.
    pub(crate) counter: u8,
}

impl Limits {
    const fn new(suite: Suite) -> Self {
        let nonce = suite.nonce_bytes() as u8;
        let fixed = Self {
            icv: suite.icv_bytes() as u8,
            nonce: (nonce, nonce),
            aead: suite.is_aead(),
            partial: 0,
            data: u64::MAX,
            counter: 0,
        };
        match suite {
            Suite::Gcm(_) => Self { data: GcmParams::MAX_DATA, ..fixed },
            Suite::Gmac(_) => Self { data: 1 << 60, ..fixed },
            Suite::Ccm { .. } => Self { nonce: (7, 13), ..fixed },
            // Blocks 1 to 2^32 - 2 of 64 bytes: one less than RFC 8439 section 2.8 allows, for that is
            // what the portable tier's crate takes.
            Suite::ChaCha20Poly1305 => Self { data: ((1 << 32) - 2) * 64, ..fixed },
            // CTR counts blocks in 32 bits (RFC 3686 section 4). No packet is longer.
            Suite::Pair { cipher, .. } => Self {
                data: PAIR_MAX,
                partial: cipher.block_bytes() as u8 - 1,
                counter: matches!(cipher, Cipher::AesCtr(_)) as u8,
                ..fixed
            },
        }
    }
}

/// A key of any suite, for one way or both.
pub(crate) struct Key {
    suite: Suite,
    limits: Limits,
    route: Route,
    class: burst::Class,
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
            (Schedule::Gcm { .. }, Suite::Gcm(params)) => burst::last_class(tier, params.key_bits),
            _ => burst::NO_CLASS,
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
    pub(crate) const fn class(&self) -> burst::Class {
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

/// Passes that a key's operations go through, as a number, so that comparing two is one
/// instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route(u32);

impl Route {
    const fn new(suite: Suite, tier: Tier, sha_ni: bool) -> Self {
        let (family, cipher, mac) = match suite {
            Suite::Gcm(GcmParams { key_bits, .. }) => (0, key_bits as u32, 0),
            Suite::Gmac(key_bits) => (1, key_bits as u32, 0),
            Suite::Ccm { key_bits, .. } => (2, key_bits as u32, 0),
            Suite::ChaCha20Poly1305 => (3, 0, 0),
            Suite::Pair { cipher, integrity } => {
                let cipher = match cipher {
                    Cipher::Null => 0,
                    Cipher::AesCbc(key_bits) => 1 + key_bits as u32,
                    Cipher::AesCtr(key_bits) => 4 + key_bits as u32,
                    Cipher::TripleDesCbc => 7,
                    Cipher::CamelliaCbc(key_bits) => 8 + key_bits as u32,
                };
                let mac = match integrity.alg() {
                    MacAlg::Null => 0,
                    MacAlg::AesXcbc => 1,
                    MacAlg::AesCmac(key_bits) => 2 + key_bits as u32,
                    MacAlg::Hmac(hash) => 5 + hash as u32,
                };
                (4, cipher, mac)
            }
        };
        Self(family | cipher << 4 | mac << 8 | (tier as u32) << 16 | (sha_ni as u32) << 31)
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
    use crate::{IcvLen, Nonce, SealOp, seal_burst};

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

    #[test]
    fn routes_tell_apart_all_that_passes_do() {
        // Of the ICV's length passes know nothing.
        let same = |a: Suite, b: Suite| match (a, b) {
            (Suite::Gcm(a), Suite::Gcm(b)) => a.key_bits == b.key_bits,
            (Suite::Ccm { key_bits: a, .. }, Suite::Ccm { key_bits: b, .. }) => a == b,
            (Suite::Pair { cipher: a, integrity: x }, Suite::Pair { cipher: b, integrity: y }) => {
                a == b && x.alg() == y.alg()
            }
            _ => a == b,
        };
        let route = Route::new;
        for a in Suite::all() {
            assert_ne!(route(a, Tier::Avx2, false), route(a, Tier::Avx512, false));
            assert_ne!(route(a, Tier::Avx2, false), route(a, Tier::Avx2, true));
            for b in Suite::all() {
                let equal = route(a, Tier::Avx2, true) == route(b, Tier::Avx2, true);
                assert_eq!(equal, same(a, b), "{a} and {b}");
            }
        }
    }
}
