//! Every suite on every tier: what is sealed opens, and what was touched does not.

use crate::common::{Packet, Random, open, seal, setups, setups_for, tiers};
use convoy_crypto::{Cipher, Suite, Tier, Verdict};

/// Packets of one suite with the lengths that traffic has, and some odd ones.
fn packets(suite: Suite, count: usize, seed: u64) -> Vec<Packet> {
    let mut random = Random(seed);
    let lengths = [0, 1, 15, 16, 17, 48, 64, 65, 68, 100, 128, 256, 255, 524, 1348, 1420, 4000];
    (0..count)
        .map(|_| {
            let length = random.pick(&lengths);
            Packet::random(suite, &mut random, length)
        })
        .collect()
}

#[test]
fn every_tier_seals_like_the_portable_one_and_opens_what_it_sealed() {
    let setups = setups();
    for (i, suite) in Suite::all().enumerate() {
        let plain = packets(suite, 40, i as u64);
        let mut expected = plain.clone();
        seal(&mut expected, |_| Tier::Portable);
        for tier in setups_for(suite, &setups) {
            let mut sealed = plain.clone();
            seal(&mut sealed, |_| tier);
            for (i, (sealed, expected)) in sealed.iter().zip(&expected).enumerate() {
                assert_eq!(sealed, expected, "{suite} on {tier}, packet {i}");
            }
            let verdicts = open(&mut sealed, |_| tier);
            assert!(verdicts.iter().all(|v| *v == Verdict::Authentic), "{suite} on {tier}");
            for (opened, plain) in sealed.iter().zip(&plain) {
                assert_eq!(opened.text, plain.text, "{suite} on {tier}");
            }
        }
    }
}

#[test]
fn encryption_changes_the_text_and_authentication_alone_does_not() {
    for suite in Suite::all() {
        let plain = Packet::random(suite, &mut Random(7), 64);
        let mut sealed = [plain.clone()];
        seal(&mut sealed, |_| Tier::Portable);
        let keeps = matches!(suite, Suite::Gmac(_) | Suite::Pair { cipher: Cipher::Null, .. });
        assert_eq!(sealed[0].text == plain.text, keeps, "{suite}");
        assert_ne!(sealed[0].icv, plain.icv, "{suite}");
    }
}

#[test]
fn a_touched_packet_is_forged_and_wiped_and_its_neighbours_are_not() {
    for tier in tiers() {
        for (i, suite) in Suite::all().enumerate() {
            let plain = packets(suite, 20, 1000 + i as u64);
            let mut sealed = plain.clone();
            seal(&mut sealed, |_| tier);
            let mut random = Random(i as u64);
            for (j, packet) in sealed.iter_mut().enumerate().filter(|(j, _)| j % 3 == 0) {
                let parts =
                    [&mut packet.text, &mut packet.icv, &mut packet.header, &mut packet.trailer];
                let mut parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
                let chosen = j % parts.len();
                let part = &mut parts[chosen];
                let bit = random.below(part.len() * 8);
                part[bit / 8] ^= 1 << (bit % 8);
            }
            let verdicts = open(&mut sealed, |_| tier);
            for (j, (opened, plain)) in sealed.iter().zip(&plain).enumerate() {
                if j % 3 == 0 {
                    assert_eq!(verdicts[j], Verdict::Forged, "{suite} on {tier}, packet {j}");
                    assert!(opened.text.iter().all(|&byte| byte == 0), "{suite} on {tier}");
                } else {
                    assert_eq!(verdicts[j], Verdict::Authentic, "{suite} on {tier}, packet {j}");
                    assert_eq!(opened.text, plain.text, "{suite} on {tier}, packet {j}");
                }
            }
        }
    }
}

#[test]
fn a_burst_may_mix_every_suite_and_every_tier() {
    let tiers = tiers();
    let suites: Vec<_> = Suite::all().collect();
    let mut random = Random(3);
    let plain: Vec<_> = (0..700)
        .map(|_| {
            let (suite, length) = (random.pick(&suites), random.below(600));
            Packet::random(suite, &mut random, length)
        })
        .collect();
    let mut expected = plain.clone();
    for packet in &mut expected {
        seal(std::slice::from_mut(packet), |_| Tier::Portable);
    }
    let mut mixed = plain.clone();
    seal(&mut mixed, |i| tiers[i % tiers.len()]);
    assert!(mixed == expected);
    let verdicts = open(&mut mixed, |i| tiers[(i / 3) % tiers.len()]);
    assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Authentic));
    assert!(mixed.iter().zip(&plain).all(|(opened, plain)| opened.text == plain.text));
}
