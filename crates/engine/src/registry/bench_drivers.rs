//! Drivers that stand beside Convoy's own for comparison, and are for benches only.

mod null;
#[cfg(test)]
mod tests;
mod two_pass;

use std::sync::Arc;

use convoy_crypto::{Cpu, Tier};

use super::{Driver, algorithm};
use null::Null;
use two_pass::TwoPass;

const GCM: &str = "rfc4106(gcm(aes))";

/// *null* for every algorithm; *two-pass* and *two-pass-clmul* for AES-GCM, the latter where `cpu` has
/// carry-less multiplication.
pub(crate) fn for_benches(cpu: &Cpu) -> impl Iterator<Item = Driver> + use<> {
    let null: Arc<Null> = Arc::new(Null(*cpu));
    let null = algorithm::names().into_iter().map(move |algorithm| {
        let name = format!("{}-null", algorithm::as_word(&algorithm));
        let about = "does no work and writes no ICV: what everything but the cryptography costs";
        Driver::new(&algorithm, name, null.clone())
            .with_priority(0)
            .with_about(about)
            .does_no_work()
    });
    let two_pass = |suffix, priority, hash: Tier, about| {
        let name = format!("{}-{suffix}", algorithm::as_word(GCM));
        let provider = Arc::new(TwoPass { cpu: *cpu, hash });
        Driver::new(GCM, name, provider).with_priority(priority).with_about(about).bench_only()
    };
    let software = two_pass(
        "two-pass",
        10,
        Tier::Portable,
        "encrypts with AES instructions, then hashes in portable software; one packet at a time",
    );
    let clmul = (cpu.best() != Tier::Portable).then(|| {
        two_pass(
            "two-pass-clmul",
            20,
            cpu.best(),
            "encrypts, then hashes with carry-less multiplication; one packet at a time",
        )
    });
    [software].into_iter().chain(clmul).chain(null)
}
