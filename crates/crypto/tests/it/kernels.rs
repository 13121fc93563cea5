//! Counts of the kernels that ran. A wrong choice gives right answers slowly, so only counting shows it.

use std::{env, process::Command};

use crate::common::{Packet, Random, open, seal, setups, tiers};
use convoy_crypto::{
    Cpu, GcmParams, IcvLen, KeyBits, SealKey, SecretBytes, Suite, Tier, assumed_features,
    opened_by, sealed_by,
};

/// Packets sealed and opened by each tier's kernels on this thread.
fn counts() -> Vec<(Tier, u64, u64)> {
    Tier::ALL.into_iter().map(|tier| (tier, sealed_by(tier), opened_by(tier))).collect()
}

#[test]
fn each_key_runs_on_the_kernel_of_its_tier_and_no_other() {
    let suites: Vec<_> = Suite::all().collect();
    for setup in setups() {
        let of_suite = suites.iter().map(|&suite| {
            (0..100).map(move |len| Packet::random(suite, &mut Random(len), len as usize * 7))
        });
        for packets in of_suite {
            let before = counts();
            let mut packets: Vec<_> = packets.collect();
            let suite = packets[0].suite;
            assert_eq!(packets[0].seal_key(setup).tier(), setup.tier, "{suite}");
            seal(&mut packets, |_| setup);
            open(&mut packets[..60], |_| setup);
            for ((counted, sealed, opened), (_, sealed_before, opened_before)) in
                counts().into_iter().zip(before)
            {
                let expected = if counted == setup.tier { (100, 60) } else { (0, 0) };
                assert_eq!(
                    (sealed - sealed_before, opened - opened_before),
                    expected,
                    "{suite}: {counted}, with keys for {setup}"
                );
            }
        }
    }
}

#[test]
fn a_mixed_burst_runs_each_packet_on_the_kernel_of_its_key() {
    let tiers = tiers();
    let tier_of = |i: usize| Random(i as u64).pick(&tiers);
    let suites: Vec<_> = Suite::all().collect();
    let mut packets: Vec<_> = (0..500)
        .map(|i| {
            let suite = if i % 2 == 0 { suites[i % suites.len()] } else { suites[0] };
            Packet::random(suite, &mut Random(1), i * 5)
        })
        .collect();
    let before = counts();
    seal(&mut packets, tier_of);
    for ((tier, sealed, _), (_, sealed_before, _)) in counts().into_iter().zip(before) {
        let expected = (0..500).filter(|&i| tier_of(i) == tier).count() as u64;
        assert_eq!(sealed - sealed_before, expected, "{tier}");
    }
}

#[test]
fn the_compiler_was_told_of_no_special_instructions() {
    let assumed: Vec<_> = assumed_features().collect();
    assert!(assumed.is_empty(), "RUSTFLAGS name a processor; every tier needs its {assumed:?}");
}

#[test]
fn keys_take_the_best_tier_unless_told_otherwise() {
    let params = GcmParams::new(KeyBits::Aes128, IcvLen::Icv16);
    for denied in ["", "vaes512", "avx512", "aesni", "aesni,vaes512"] {
        let cpu = Cpu::without(denied).expect("names of tiers");
        let key = SealKey::new(&cpu, params, SecretBytes::copy_from(&[1; 16])).expect("16 bytes");
        assert_eq!(Some(key.tier()), cpu.tiers().last(), "without {denied:?}");
    }
}

/// Set for the child processes of the tests below.
const CHILD: &str = "CONVOY_TEST_CHILD";

/// Work of the child process: seals with a key of its own choice and prints the tiers that ran.
#[test]
fn child_prints_which_kernels_ran() {
    if env::var_os(CHILD).is_none() {
        return;
    }
    match Cpu::detect() {
        Err(error) => println!("answer: {error}"),
        Ok(cpu) => {
            seal(&mut [Packet::of_shape(KeyBits::Aes256, IcvLen::Icv16, 8, 1000, 1)], |_| {
                cpu.best()
            });
            let ran = Tier::ALL.into_iter().filter(|&tier| sealed_by(tier) > 0).map(Tier::name);
            println!("answer: {}", ran.collect::<Vec<_>>().join(" "));
        }
    }
}

/// Runs the test above in a process of its own, with `denied` in the environment.
fn answer_of_child(denied: &str) -> String {
    let output = Command::new(env::current_exe().expect("this program"))
        .args(["--exact", "kernels::child_prints_which_kernels_ran", "--nocapture"])
        .env(CHILD, "1")
        .env(Cpu::DENY_VARIABLE, denied)
        .output()
        .expect("this program runs again");
    let text = String::from_utf8_lossy(&output.stdout);
    let answer = text.lines().find_map(|line| Some(line.split_once("answer: ")?.1.to_owned()));
    answer.unwrap_or_else(|| panic!("no answer in {text}"))
}

#[test]
fn denied_tiers_do_not_run() {
    for denied in ["", "vaes512", "avx512", "aesni", " avx512 , vaes512"] {
        let expected = Cpu::without(denied).expect("names of tiers").best();
        assert_eq!(answer_of_child(denied), expected.name(), "CONVOY_DENY_CPU={denied:?}");
    }
}

#[test]
fn an_unknown_tier_in_the_environment_is_an_error_that_lists_the_known_ones() {
    assert_eq!(
        answer_of_child("aesni,sse9"),
        "CONVOY_DENY_CPU: no deniable tier is called \"sse9\"; valid names are aesni, avx, avx2, avx512, vaes256, vaes512, sha-ni"
    );
}
