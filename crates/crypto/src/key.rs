//! Keys: parameters, expanded tables, and the tier that was chosen for them.

use std::fmt;

use crate::{
    Cpu, GcmParams, KeyError, SecretBytes, Tier, burst,
    isa::{Kernel, Tables},
    portable::SoftKey,
};

/// Everything derived from a key, in the form its tier wants.
///
/// The secret parts are boxed, so that moving a key leaves no copy behind, and wipe themselves on
/// drop.
pub(crate) enum Schedule {
    /// For the portable tier.
    Portable(SoftKey),
    /// For every other tier; the tables are the same for all tiers of a processor family.
    Kernel {
        /// Proof that the tier may be used, and so the choice of kernel.
        kernel: Kernel,
        /// Where the scheduler's classes for this key size begin.
        class: u8,
        /// Round keys and GHASH key powers.
        tables: Box<Tables>,
    },
}

impl Schedule {
    fn new(cpu: &Cpu, tier: Tier, params: GcmParams, key: &SecretBytes) -> Result<Self, KeyError> {
        let (expected, given) = (params.key_bits.bytes(), key.len());
        if expected != given {
            return Err(KeyError::Length { expected, given });
        }
        if tier == Tier::Portable {
            let soft = SoftKey::new(params.key_bits, key.expose());
            return soft.map(Self::Portable).map_err(|_| KeyError::Length { expected, given });
        }
        let Some(kernel) = cpu.proofs().kernel(tier) else {
            return Err(KeyError::TierUnavailable(tier));
        };
        let tables = kernel.expand(params.key_bits, key.expose());
        Ok(Self::Kernel { kernel, class: burst::first_class(params.key_bits), tables })
    }

    fn tier(&self) -> Tier {
        match self {
            Self::Portable(_) => Tier::Portable,
            Self::Kernel { kernel, .. } => kernel.tier(),
        }
    }
}

macro_rules! key_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// Setting a key up expands the AES key and computes the powers of the GHASH key, and
        /// chooses the tier; a packet pays for none of it. Keys are shared freely between threads.
        /// All that was derived from the secret is wiped when the key is dropped.
        pub struct $name {
            params: GcmParams,
            schedule: Schedule,
        }

        impl $name {
            /// Sets a key up for the best tier of `cpu`.
            ///
            /// # Errors
            ///
            /// [`KeyError::Length`] if `key` does not have the length that `params` calls for.
            pub fn new(cpu: &Cpu, params: GcmParams, key: SecretBytes) -> Result<Self, KeyError> {
                Self::with_tier(cpu, cpu.best(), params, key)
            }

            /// Sets a key up for a tier of the caller's choice, as tests and benchmarks do.
            ///
            /// # Errors
            ///
            /// [`KeyError::Length`] as for [`new`](Self::new); [`KeyError::TierUnavailable`] if
            /// `cpu` lacks the tier.
            pub fn with_tier(
                cpu: &Cpu,
                tier: Tier,
                params: GcmParams,
                key: SecretBytes,
            ) -> Result<Self, KeyError> {
                Ok(Self { params, schedule: Schedule::new(cpu, tier, params, &key)? })
            }

            /// Sizes of the key and of its ICV.
            #[inline]
            #[must_use]
            pub const fn params(&self) -> GcmParams {
                self.params
            }

            /// The tier whose kernels will run with this key.
            #[must_use]
            pub fn tier(&self) -> Tier {
                self.schedule.tier()
            }

            #[inline(always)]
            pub(crate) const fn schedule(&self) -> &Schedule {
                &self.schedule
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({} on {})"), self.params, self.tier())
            }
        }
    };
}

key_type! {
    /// An AES-GCM key that can only seal: encrypt and make ICVs.
    SealKey
}

key_type! {
    /// An AES-GCM key that can only open: verify ICVs and decrypt.
    OpenKey
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IcvLen, KeyBits};

    const PARAMS: GcmParams = GcmParams::new(KeyBits::Aes128, IcvLen::Icv16);

    #[test]
    fn keys_show_parameters_and_tier_but_no_secret() {
        let cpu = Cpu::without("aesni").unwrap();
        let key = SealKey::new(&cpu, PARAMS, SecretBytes::copy_from(&[0x5a; 16])).unwrap();
        assert_eq!(format!("{key:?}"), "SealKey(aes-128-gcm-16 on portable)");
    }

    #[test]
    fn wrong_key_length_is_refused_with_both_numbers() {
        let cpu = Cpu::without("").unwrap();
        let error = OpenKey::new(&cpu, PARAMS, SecretBytes::copy_from(&[0; 20])).unwrap_err();
        assert_eq!(error, KeyError::Length { expected: 16, given: 20 });
    }

    #[test]
    fn denied_tiers_get_no_keys() {
        let cpu = Cpu::without("aesni").unwrap();
        for tier in Tier::ALL.into_iter().skip(1) {
            let error = SealKey::with_tier(&cpu, tier, PARAMS, SecretBytes::copy_from(&[0; 16]));
            assert_eq!(error.unwrap_err(), KeyError::TierUnavailable(tier));
        }
    }

    #[test]
    fn keys_may_be_shared_between_threads() {
        fn shared<T: Send + Sync>() {}
        shared::<SealKey>();
        shared::<OpenKey>();
        shared::<SecretBytes>();
    }
}
