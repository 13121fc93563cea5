//! Schedules: all that is derived from a key's secrets, in the form that its tier wants.

use crate::{
    Cipher, Cpu, GcmParams, HashAlg, KeyBits, KeyError, MacAlg, Suite, Tier, WideUnits,
    block::{CbcMacKey, ChaChaKey, HmacKey, RoundKeys},
    isa::{Kernel, Tables, prefetch_read},
    memory::{Held, Lined, OutOfMemory, try_box},
    pass::{self, Hasher},
    portable::{LegacyKey, SoftKey},
    secret::{depth, scrubbed, scrubbed_to},
    wide_units::{Load, Work, go_narrow},
};

/// Both secrets, wherever they are.
#[derive(Clone, Copy)]
pub(super) struct Secrets<'s> {
    pub(super) cipher: &'s [u8],
    pub(super) integrity: &'s [u8],
}

/// The operations that a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyUse {
    Seal,
    Open,
    Both,
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

    pub(super) fn new(
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

    /// True if this thread's next burst is better off in narrow registers, as wide units sleep. `burst` returns its
    /// load; at most `most` packets go side by side;
    /// it is called only where wide units can sleep.
    #[inline(always)]
    pub(crate) fn goes_narrow(&self, most: usize, burst: impl FnOnce() -> Load) -> bool {
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
