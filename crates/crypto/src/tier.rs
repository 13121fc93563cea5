//! Tiers: named sets of CPU features, and the one table that defines them.

use std::{fmt, str::FromStr};

use crate::isa::features;

/// A set of CPU features that kernels are written for.
///
/// A tier is named by what it needs. Later tiers are preferred where the machine has them. Every
/// tier needs the features of the tiers it builds on as well as its own, so denying one denies all
/// that build on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Tier {
    /// RustCrypto's constant-time code; without special instructions where
    /// [`PORTABLE_IS_SOFT`](crate::PORTABLE_IS_SOFT).
    Portable,
    /// AES-NI and PCLMULQDQ on 128-bit registers, two-operand encodings.
    AesNi,
    /// The same with three-operand encodings.
    Avx,
    /// The same, and 256-bit integer registers for hashes and ChaCha20.
    Avx2,
    /// The same instructions on 32 registers, with masks and three-input logic.
    Avx512,
    /// Two blocks per register, without AVX-512.
    Vaes256,
    /// Four blocks per register, and products of 52 bits for Poly1305.
    Vaes512,
}

/// One row of the tier table.
#[derive(Debug, Clone, Copy)]
pub struct TierInfo {
    /// The tier.
    pub tier: Tier,
    /// Its name, as `CONVOY_DENY_CPU` and every report spell it.
    pub name: &'static str,
    /// CPU features it needs beyond those of the tiers it builds on, as Rust spells them.
    pub features: &'static [&'static str],
    /// Tiers it builds on.
    pub builds_on: &'static [Tier],
}

impl TierInfo {
    const fn new(
        tier: Tier,
        name: &'static str,
        features: &'static [&'static str],
        builds_on: &'static [Tier],
    ) -> Self {
        Self { tier, name, features, builds_on }
    }

    /// True if the tier uses none but the instructions that its features name. The portable tier, which names none,
    /// may use what crates that it stands on find; see [`PORTABLE_IS_SOFT`](crate::PORTABLE_IS_SOFT).
    #[must_use]
    pub const fn keeps_to_its_features(&self) -> bool {
        !matches!(self.tier, Tier::Portable) || crate::PORTABLE_IS_SOFT
    }
}

/// Every tier, least preferred first.
const TIERS: [TierInfo; Tier::COUNT] = [
    TierInfo::new(Tier::Portable, "portable", &[], &[]),
    TierInfo::new(Tier::AesNi, "aesni", features::AESNI, &[]),
    TierInfo::new(Tier::Avx, "avx", features::AVX, &[Tier::AesNi]),
    TierInfo::new(Tier::Avx2, "avx2", features::AVX2, &[Tier::Avx]),
    TierInfo::new(Tier::Avx512, "avx512", features::AVX512, &[Tier::Avx2]),
    TierInfo::new(Tier::Vaes256, "vaes256", features::VAES256, &[Tier::Avx2]),
    TierInfo::new(Tier::Vaes512, "vaes512", features::VAES512, &[Tier::Avx512, Tier::Vaes256]),
];

impl Tier {
    /// Number of tiers.
    pub const COUNT: usize = 7;

    /// Every tier, least preferred first.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Portable,
        Self::AesNi,
        Self::Avx,
        Self::Avx2,
        Self::Avx512,
        Self::Vaes256,
        Self::Vaes512,
    ];

    /// The tier's row in the table.
    #[must_use]
    pub const fn info(self) -> &'static TierInfo {
        // The discriminant counts the variants, and a test compares the two orders.
        &TIERS[self as usize]
    }

    /// The tier's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.info().name
    }

    /// True if this tier needs `other`, directly or through a tier between them; a tier needs
    /// itself.
    #[must_use]
    pub fn needs(self, other: Self) -> bool {
        self == other || self.info().builds_on.iter().any(|below| below.needs(other))
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text names no tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no such tier")]
pub struct UnknownTier;

impl FromStr for Tier {
    type Err = UnknownTier;

    fn from_str(name: &str) -> Result<Self, UnknownTier> {
        Self::ALL.into_iter().find(|tier| tier.name() == name).ok_or(UnknownTier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_rows_stand_in_the_order_of_the_variants() {
        for (i, tier) in Tier::ALL.into_iter().enumerate() {
            assert_eq!((tier as usize, tier.info().tier), (i, tier));
            assert_eq!(tier.name().parse(), Ok(tier));
        }
        assert_eq!("sse".parse::<Tier>(), Err(UnknownTier));
    }

    #[test]
    fn every_tier_keeps_to_its_features_as_this_workspace_builds_it() {
        let keeps = |tier: Tier| tier.info().keeps_to_its_features();
        assert!(Tier::ALL.into_iter().all(keeps), "RUSTFLAGS lack what `make rustflags` prints");
    }

    #[test]
    fn needs_follows_the_chain() {
        assert!(Tier::Vaes512.needs(Tier::AesNi));
        assert!(Tier::Vaes512.needs(Tier::Vaes256));
        assert!(!Tier::Vaes256.needs(Tier::Avx512));
        assert!(!Tier::AesNi.needs(Tier::Avx512));
        assert!(Tier::Portable.needs(Tier::Portable));
    }

    /// The crate documentation shows the table to people; it must be this one.
    #[test]
    fn documented_table_is_the_table() {
        let docs = include_str!("lib.rs");
        for row in TIERS {
            let list = |words: Vec<&str>| {
                if words.is_empty() {
                    "–".to_owned()
                } else {
                    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" ")
                }
            };
            let below = list(row.builds_on.iter().map(|tier| tier.name()).collect());
            let line =
                format!("//! | `{}` | {below} | {} |", row.name, list(row.features.to_vec()));
            assert!(docs.contains(&line), "missing in the crate documentation: {line}");
        }
    }
}
