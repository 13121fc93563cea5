//! Convoy's own drivers: one for each algorithm and tier.

use std::sync::Arc;

use convoy_crypto::{Cpu, KeyError, KeyMaterial, OpenKey, SealKey, Suite, Tier};

use super::{Driver, Provider, algorithm};
use crate::Front;

/// The kernels of one tier.
#[derive(Debug)]
struct OfTier {
    cpu: Cpu,
    tier: Tier,
}

impl Provider for OfTier {
    fn takes(&self, _: Suite) -> bool {
        true
    }

    fn seal_key(&self, suite: Suite, material: KeyMaterial) -> Result<SealKey, KeyError> {
        SealKey::with_tier(&self.cpu, self.tier, suite, material)
    }

    fn open_key(&self, suite: Suite, material: KeyMaterial) -> Result<OpenKey, KeyError> {
        OpenKey::with_tier(&self.cpu, self.tier, suite, material)
    }

    fn keeping_seal_key(&self, suite: Suite, material: KeyMaterial) -> Result<SealKey, KeyError> {
        SealKey::keeping_with_tier(&self.cpu, self.tier, suite, material)
    }

    fn keeping_open_key(&self, suite: Suite, material: KeyMaterial) -> Result<OpenKey, KeyError> {
        OpenKey::keeping_with_tier(&self.cpu, self.tier, suite, material)
    }

    fn engine(&self) -> Front {
        Front::inline()
    }

    fn tier(&self) -> Option<Tier> {
        Some(self.tier)
    }
}

/// A driver for each algorithm and each tier of `cpu`.
pub(super) fn drivers(cpu: &Cpu) -> impl Iterator<Item = Driver> {
    let tiers: Vec<_> = cpu.tiers().map(|tier| Arc::new(OfTier { cpu: *cpu, tier })).collect();
    let of = |algorithm: &str, tier: &Arc<OfTier>| {
        let name = format!("{}-convoy-{}", algorithm::as_word(algorithm), tier.tier);
        let rank = Tier::ALL.iter().position(|other| *other == tier.tier).unwrap_or_default();
        Driver::new(algorithm, name, tier.clone())
            .with_priority(Driver::PORTABLE + 100 * u16::try_from(rank).unwrap_or_default())
            .with_about(format!("Convoy's kernels of the tier {}", tier.tier))
    };
    let algorithms = algorithm::names().into_iter();
    algorithms.flat_map(move |name| tiers.iter().map(|tier| of(&name, tier)).collect::<Vec<_>>())
}
