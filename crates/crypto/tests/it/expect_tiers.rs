//! Tiers of the processor at hand, by other witnesses than this crate's detection: the kernel,
//! and whoever emulates a processor on purpose.

use std::{collections::BTreeSet, env, fs};

use convoy_crypto::{Cpu, Tier};

/// Variable that lists what must be there, and nothing else: names of tiers and `sha-ni`, with commas between. Whoever
/// runs tests on an emulated processor sets it, lest they pass on another one unnoticed.
const EXPECTED: &str = "CONVOY_EXPECT_TIERS";

fn found() -> BTreeSet<String> {
    let cpu = Cpu::without("").expect("nothing is denied");
    let tiers = cpu.tiers().map(|tier| tier.name().to_owned());
    tiers.chain(cpu.has_sha_ni().then(|| Cpu::SHA_NI.to_owned())).collect()
}

#[test]
fn the_processor_has_the_tiers_that_are_expected_of_it() {
    let Ok(list) = env::var(EXPECTED) else { return };
    let expected: BTreeSet<_> = list.split(',').map(str::to_owned).collect();
    assert_eq!(found(), expected, "{EXPECTED}={list}");
    println!("found what was expected: {list}");
}

/// Names of features as Linux has them, where they are not Rust's.
const LINUX_NAMES: [(&str, &str); 2] = [("sse4.1", "sse4_1"), ("sha", "sha_ni")];

#[test]
fn tiers_agree_with_what_the_kernel_says() {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let Some(line) = text.lines().find(|line| line.starts_with("flags")) else {
        println!("SKIPPED: tiers by the kernel: /proc/cpuinfo has no flags");
        return;
    };
    let flags: BTreeSet<_> = line.split_whitespace().collect();
    let told = |feature: &str| {
        let name = LINUX_NAMES.iter().find(|(rust, _)| *rust == feature).map(|(_, linux)| *linux);
        flags.contains(name.unwrap_or(feature))
    };
    let has = |tier: Tier| {
        Tier::ALL
            .into_iter()
            .filter(|&below| tier.needs(below))
            .all(|below| below.info().features.iter().all(|feature| told(feature)))
    };
    let mut expected: BTreeSet<_> = Tier::ALL
        .into_iter()
        .filter(|&tier| has(tier))
        .map(|tier| tier.name().to_owned())
        .collect();
    if ["sse4.1", "ssse3", "sha"].into_iter().all(told) {
        expected.insert(Cpu::SHA_NI.to_owned());
    }
    assert_eq!(found(), expected);
}
