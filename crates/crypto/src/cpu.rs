//! Tiers of this machine, and the choice of those that may be used.

use std::{ffi::CStr, sync::OnceLock};

use crate::{
    CpuError, Tier, WideUnits,
    isa::{self, Proofs},
};

/// The tiers that may be used: found on this machine and not denied.
///
/// Detection asks the processor and the operating system (register state must be saved on context
/// switches), once per process. A `Cpu` is cheap to copy and is asked only when keys are set up.
#[derive(Clone, Copy, Debug)]
pub struct Cpu {
    proofs: Proofs,
    wide_units: Option<&'static WideUnits>,
}

impl Cpu {
    /// Name of the environment variable that denies tiers: a list of tier names with commas between
    /// them.
    pub const DENY_VARIABLE: &str = "CONVOY_DENY_CPU";

    /// Detects the tiers of this machine, less those that `CONVOY_DENY_CPU` denies. The variable is read once per
    /// process, and ignored in one that has rights which its caller lacks (`AT_SECURE`: a program with
    /// capabilities of its file, or setuid).
    ///
    /// # Errors
    ///
    /// [`CpuError`] if the variable names anything but tiers that can be denied.
    pub fn detect() -> Result<Self, CpuError> {
        static DETECTED: OnceLock<Result<Cpu, CpuError>> = OnceLock::new();
        const VARIABLE: &CStr = c"CONVOY_DENY_CPU";
        DETECTED
            .get_or_init(|| {
                isa::with_variable(VARIABLE, |denied| Self::detect_by(denied, isa::is_secure()))
            })
            .clone()
    }

    /// The same, with what the environment says and whether it may say anything.
    fn detect_by(denied: Option<&[u8]>, is_secure: bool) -> Result<Self, CpuError> {
        let denied = denied.filter(|_| !is_secure).unwrap_or_default();
        Self::without(str::from_utf8(denied).map_err(|_| CpuError::NotText)?)
    }

    /// The word that denies the SHA extensions, which are no tier.
    pub const SHA_NI: &str = "sha-ni";

    /// Detects the tiers of this machine, less those in `list` and all that build on them, and less the SHA
    /// extensions if `list` holds `sha-ni`.
    ///
    /// The environment is not consulted. Empty words and blanks around words are ignored.
    ///
    /// # Errors
    ///
    /// [`CpuError::UnknownTier`] for a word that names no tier, or `portable`, which cannot be
    /// denied.
    pub fn without(list: &str) -> Result<Self, CpuError> {
        let mut denied = [false; Tier::COUNT];
        let mut sha_ni = true;
        for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            if word == Self::SHA_NI {
                sha_ni = false;
                continue;
            }
            match word.parse() {
                Ok(Tier::Portable) | Err(_) => return Err(unknown(word)),
                Ok(tier) => denied[tier as usize] = true,
            }
        }
        let is_denied = |tier: Tier| denied[tier as usize];
        let allowed = |tier: Tier| !Tier::ALL.into_iter().any(|of| is_denied(of) && tier.needs(of));
        Ok(Self { proofs: isa::detect(allowed, sha_ni), wide_units: WideUnits::here() })
    }

    /// True if keys can be made for this tier.
    #[must_use]
    pub fn has(&self, tier: Tier) -> bool {
        tier == Tier::Portable || self.proofs.kernel(tier).is_some()
    }

    /// Every tier that keys can be made for, least preferred first.
    pub fn tiers(&self) -> impl Iterator<Item = Tier> + use<> {
        let cpu = *self;
        Tier::ALL.into_iter().filter(move |&tier| cpu.has(tier))
    }

    /// The tier that keys get when none is asked for: the most preferred one.
    #[must_use]
    pub fn best(&self) -> Tier {
        self.tiers().last().unwrap_or(Tier::Portable)
    }

    /// True if hashes may use the SHA extensions.
    #[must_use]
    pub fn has_sha_ni(&self) -> bool {
        self.proofs.has_sha_ni()
    }

    /// True if the processor is AMD's. On some tiers the fastest code depends on the maker.
    #[must_use]
    pub fn is_by_amd(&self) -> bool {
        isa::is_by_amd()
    }

    /// Sleep and wake times of the wide units, by a table of processors; none where they do not sleep.
    #[must_use]
    pub fn wide_units(&self) -> Option<&'static WideUnits> {
        self.wide_units
    }

    /// The same processor, as if its wide units slept so, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn with_wide_units(self, wide_units: Option<&'static WideUnits>) -> Self {
        Self { wide_units, ..self }
    }

    pub(crate) fn proofs(&self) -> &Proofs {
        &self.proofs
    }
}

fn unknown(word: &str) -> CpuError {
    let tiers = Tier::ALL.iter().skip(1).map(|tier| tier.name());
    let valid: Vec<_> = tiers.chain([Cpu::SHA_NI]).collect();
    CpuError::UnknownTier { name: word.to_owned(), valid: valid.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denying_a_tier_denies_what_builds_on_it() {
        let all = Cpu::without("").unwrap();
        for denied in Tier::ALL.into_iter().skip(1) {
            let cpu = Cpu::without(denied.name()).unwrap();
            for tier in Tier::ALL {
                assert_eq!(
                    cpu.has(tier),
                    all.has(tier) && !tier.needs(denied),
                    "{tier} without {denied}"
                );
            }
        }
        assert_eq!(Cpu::without(" aesni ,,avx512").unwrap().best(), Tier::Portable);
        let without = Cpu::without("sha-ni").unwrap();
        assert_eq!((without.best(), without.has_sha_ni()), (all.best(), false));
    }

    #[test]
    fn the_environment_of_a_program_with_more_rights_than_its_caller_denies_nothing() {
        let all = Cpu::without("").unwrap().best();
        for denied in ["aesni", "sse9"] {
            let cpu = Cpu::detect_by(Some(denied.as_bytes()), true).unwrap();
            assert_eq!(cpu.best(), all, "{denied}");
        }
        let cpu = Cpu::detect_by(Some(b"aesni"), false).unwrap();
        assert_eq!(cpu.best(), Tier::Portable);
        assert!(Cpu::detect_by(Some(b"sse9"), false).is_err());
        assert_eq!(Cpu::detect_by(Some(b"aes\xff"), false).unwrap_err(), CpuError::NotText);
        assert_eq!(Cpu::detect_by(None, false).unwrap().best(), all);
    }

    #[test]
    fn unknown_names_are_answered_with_the_valid_ones() {
        for word in ["sse9", "portable"] {
            let error = Cpu::without(word).unwrap_err().to_string();
            assert_eq!(
                error,
                format!(
                    "CONVOY_DENY_CPU: no deniable tier is called {word:?}; \
                     valid names are aesni, avx, avx2, avx512, vaes256, vaes512, sha-ni"
                )
            );
        }
    }
}
