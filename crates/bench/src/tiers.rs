//! Tiers by name.

use convoy_crypto::{Cpu, Tier};

/// The tiers that words of the command line name; without words, the best.
///
/// # Errors
/// A message on the first word that names none, or one that this machine or this build does not have.
pub fn named(cpu: &Cpu, words: &[String]) -> Result<Vec<Tier>, String> {
    let mut tiers = Vec::new();
    for word in words {
        let tier: Tier = word.parse().map_err(|_| {
            let names = Tier::ALL.map(Tier::name).join(", ");
            format!("no tier is called {word:?}; valid names are {names}")
        })?;
        if !cpu.has(tier) {
            return Err(format!("this machine has no tier {tier}; convoy crypto lists them"));
        }
        if !tier.info().keeps_to_its_features() {
            return Err(format!(
                "tier {tier} of this program uses special instructions, so its figures would say nothing: it was \
                 built with RUSTFLAGS in place of Convoy's own; build it with make"
            ));
        }
        tiers.push(tier);
    }
    if tiers.is_empty() {
        tiers.push(cpu.best());
    }
    Ok(tiers)
}
