//! Every tier against every other, and all of them against an implementation that is not ours.

// A failed oracle is a failed test.

use crate::common::{
    Packet, Random,
    guarded::Guarded,
    open,
    packet::{open_op, seal_op},
    seal, tiers,
};
use convoy_crypto::{IcvLen, KeyBits, Tier, Verdict, open_burst, seal_burst};
use proptest::prelude::*;

/// Seals a packet of AES-GCM with an independent implementation.
fn sealed_by_oracle(packet: &Packet) -> Packet {
    use aws_lc_rs::aead::{
        AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey,
    };
    let algorithm = match packet.suite.key_bytes() {
        16 => &AES_128_GCM,
        24 => &AES_192_GCM,
        _ => &AES_256_GCM,
    };
    let key =
        LessSafeKey::new(UnboundKey::new(algorithm, &packet.keys.0).expect("a key of its length"));
    let mut sealed = packet.clone();
    let nonce = Nonce::try_assume_unique_for_key(&packet.nonce).expect("12 bytes");
    let tag = key
        .seal_in_place_separate_tag(nonce, Aad::from(&packet.header), &mut sealed.text)
        .expect("lengths fit");
    sealed.icv = tag.as_ref()[..packet.icv.len()].to_vec();
    sealed
}

/// Checks that sealing on each tier gives what the oracle gives, and that each tier opens it again.
fn assert_all_tiers_agree(packets: &[Packet]) {
    let expected: Vec<_> = packets.iter().map(sealed_by_oracle).collect();
    for tier in tiers() {
        let mut sealed = packets.to_vec();
        seal(&mut sealed, |_| tier);
        assert_same(&sealed, &expected, "sealed", tier);
        let verdicts = open(&mut sealed, |_| tier);
        assert!(
            verdicts.iter().all(|&v| v == Verdict::Authentic),
            "{tier} refuses its own packets"
        );
        for (opened, packet) in sealed.iter().zip(packets) {
            assert_eq!(opened.text, packet.text, "opened by {tier}");
        }
    }
}

fn assert_same(packets: &[Packet], expected: &[Packet], what: &str, tier: Tier) {
    for (i, (packet, expected)) in packets.iter().zip(expected).enumerate() {
        assert!(
            packet.text == expected.text && packet.icv == expected.icv,
            "packet {i} of {} bytes, {} bytes of additional data, {}: {what} differently by {tier}",
            expected.text.len(),
            expected.header.len(),
            expected.suite,
        );
    }
}

#[test]
fn every_length_up_to_700_agrees_with_the_oracle() {
    for key_bits in KeyBits::ALL {
        let packets: Vec<_> = (0..=700)
            .map(|len| Packet::of_shape(key_bits, IcvLen::Icv16, 8, len, len as u64))
            .collect();
        assert_all_tiers_agree(&packets);
    }
}

#[test]
fn packets_of_one_key_and_as_many_blocks_agree_with_the_oracle() {
    // Kernels take such packets side by side.
    for (key_bits, icv_len) in
        KeyBits::ALL.into_iter().flat_map(|bits| IcvLen::ALL.map(|icv| (bits, icv)))
    {
        let packet = |len: usize| {
            let header = [8, 12, 0, 16, 20, 33][len % 6];
            let packet = Packet::of_shape(key_bits, icv_len, header, len, len as u64);
            Packet { keys: Packet::of_shape(key_bits, icv_len, 0, 0, 1).keys, ..packet }
        };
        assert_all_tiers_agree(&[0; 7].map(packet));
        for blocks in 1..=20 {
            let of_blocks: Vec<_> = (16 * blocks - 15..=16 * blocks).map(packet).collect();
            assert_all_tiers_agree(&of_blocks);
            assert_all_tiers_agree(&of_blocks[3..10]);
        }
    }
}

#[test]
fn longer_packets_of_one_key_and_of_a_few_agree_with_the_oracle() {
    for key_bits in KeyBits::ALL {
        let packet = |len: usize, key: usize| {
            let packet =
                Packet::of_shape(key_bits, IcvLen::Icv16, 8 + 4 * (len % 2), len, len as u64);
            Packet {
                keys: Packet::of_shape(key_bits, IcvLen::Icv16, 0, 0, key as u64).keys,
                ..packet
            }
        };
        // Rows of four blocks, up to those behind the last ones that have a class of their own.
        for rows in 4..=26 {
            let ends = [64, 1, 16, 17, 32, 33, 48, 49, 63, 5, 12];
            let lens = ends.map(|end| 64 * (rows - 1) + end);
            assert_all_tiers_agree(&lens.map(|len| packet(len, 1)));
            // As many as make fours, all of one length: full rows, one block behind them, neither.
            for len in lens {
                assert_all_tiers_agree(&[len; 5].map(|len| packet(len, 1)));
            }
            let few: Vec<_> = (0..40).map(|i| packet(lens[i % 3], i * i % 7)).collect();
            assert_all_tiers_agree(&few);
        }
        let any: Vec<_> = (0..300).map(|i| packet(i * 37 % 1700, i * i % 3)).collect();
        assert_all_tiers_agree(&any);
    }
}

#[test]
fn a_forged_packet_is_told_from_those_beside_it() {
    for tier in tiers() {
        let lens = (0..=130).chain([192, 256, 257, 300, 320, 321, 1420]);
        for (len, icv_len) in lens.flat_map(|len| IcvLen::ALL.map(|icv| (len, icv))) {
            let mut packets = vec![Packet::of_shape(KeyBits::Aes128, icv_len, 8, len, 3); 8];
            seal(&mut packets, |_| tier);
            // One in the first four, two in the others.
            let forged = [len % 4, 4 + len % 3, 7];
            for (i, at) in forged.into_iter().zip([0, len, icv_len.bytes() - 1]) {
                packets[i].icv[at % icv_len.bytes()] ^= 1 << (len % 8);
            }
            let verdicts = open(&mut packets, |_| tier);
            for (i, verdict) in verdicts.into_iter().enumerate() {
                let expected =
                    if forged.contains(&i) { Verdict::Forged } else { Verdict::Authentic };
                assert_eq!(verdict, expected, "{tier}, {len} bytes, {icv_len:?}, packet {i}");
            }
        }
    }
}

#[test]
fn every_length_of_additional_data_up_to_100_agrees_with_the_oracle() {
    let mut packets = Vec::new();
    for aad in 0..=100 {
        for len in [0, 1, 16, 64, 200, 1000] {
            packets.push(Packet::of_shape(KeyBits::Aes128, IcvLen::Icv12, aad, len, aad as u64));
        }
    }
    assert_all_tiers_agree(&packets);
}

/// The counter's last bytes carry after 254 and after 65,534 blocks; group boundaries fall around
/// them.
#[test]
fn counters_carry_from_byte_to_byte() {
    let mut packets = Vec::new();
    for len in (4064 - 300..4064 + 300).step_by(13).chain([9000, 65_535, (65_534 << 4) + 500]) {
        packets.push(Packet::of_shape(KeyBits::Aes256, IcvLen::Icv16, 12, len, len as u64));
    }
    assert_all_tiers_agree(&packets);
}

fn any_packet() -> impl Strategy<Value = Packet> {
    let length = prop_oneof![3 => 0usize..300, 2 => 0usize..1600, 1 => 0usize..=9000];
    let key_bits = proptest::sample::select(KeyBits::ALL.to_vec());
    let icv_len = proptest::sample::select(IcvLen::ALL.to_vec());
    (key_bits, icv_len, prop_oneof![Just(8usize), Just(12), 0usize..50], length, any::<u64>())
        .prop_map(|(key_bits, icv_len, aad, len, seed)| {
            Packet::of_shape(key_bits, icv_len, aad, len, seed)
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bursts_agree_across_tiers_and_with_the_oracle(
        packets in prop::collection::vec(any_packet(), 0..150)
    ) {
        let expected: Vec<_> = packets.iter().map(sealed_by_oracle).collect();
        for sealer in tiers() {
            let mut sealed = packets.clone();
            seal(&mut sealed, |_| sealer);
            assert_same(&sealed, &expected, "sealed", sealer);
            for opener in tiers() {
                let mut opened = sealed.clone();
                let verdicts = open(&mut opened, |_| opener);
                prop_assert!(verdicts.iter().all(|&v| v == Verdict::Authentic), "{sealer} to {opener}");
                for (opened, packet) in opened.iter().zip(&packets) {
                    prop_assert_eq!(&opened.text, &packet.text, "{} to {}", sealer, opener);
                }
            }
        }
    }

    #[test]
    fn one_burst_may_mix_tiers(packets in prop::collection::vec(any_packet(), 0..150), seed in any::<u64>()) {
        let tiers = tiers();
        let tier_of = |i: usize| Random(seed ^ i as u64).pick(&tiers);
        let expected: Vec<_> = packets.iter().map(sealed_by_oracle).collect();
        let mut sealed = packets.clone();
        seal(&mut sealed, tier_of);
        for (sealed, expected) in sealed.iter().zip(&expected) {
            prop_assert_eq!(sealed, expected);
        }
        let verdicts = open(&mut sealed, |i| tier_of(i + 1));
        prop_assert!(verdicts.iter().all(|&v| v == Verdict::Authentic));
    }
}

#[test]
fn tampering_with_any_part_is_noticed_and_the_payload_wiped() {
    let mut random = Random(77);
    for tier in tiers() {
        let mut packets = Vec::new();
        for len in [1, 15, 16, 40, 64, 100, 128, 200, 256, 300, 1420, 9000] {
            for icv_len in IcvLen::ALL {
                let mut base =
                    Packet::of_shape(random.pick(&KeyBits::ALL), icv_len, 12, len, random.next());
                // A payload without zero bytes makes the wiping visible.
                base.text.iter_mut().for_each(|byte| *byte |= 1);
                packets.extend(std::iter::repeat_n(base, 8));
            }
        }
        seal(&mut packets, |_| tier);
        for (i, packet) in packets.iter_mut().enumerate() {
            let bit = 1 << random.below(8);
            let (last, any) = (packet.text.len() - 1, random.below(packet.text.len()));
            match i % 8 {
                0 => {}
                1 => packet.text[0] ^= bit,
                2 => packet.text[last] ^= bit,
                3 => packet.text[any] ^= bit,
                4 => packet.header[random.below(12)] ^= bit,
                5 => packet.nonce[random.below(12)] ^= bit,
                6 => packet.icv[0] ^= bit,
                _ => *packet.icv.last_mut().unwrap() ^= bit,
            }
        }
        let verdicts = open(&mut packets, |_| tier);
        for (i, (packet, verdict)) in packets.iter().zip(verdicts).enumerate() {
            let expected = if i % 8 == 0 { Verdict::Authentic } else { Verdict::Forged };
            assert_eq!(verdict, expected, "{tier}: {} bytes, change {}", packet.text.len(), i % 8);
            let wiped = packet.text.iter().all(|&byte| byte == 0);
            assert_eq!(wiped, i % 8 != 0, "{tier}: {} bytes, change {}", packet.text.len(), i % 8);
        }
    }
}

#[test]
fn every_flipped_bit_of_a_small_packet_is_noticed() {
    for tier in tiers() {
        for icv_len in IcvLen::ALL {
            let mut sealed = [Packet::of_shape(KeyBits::Aes128, icv_len, 8, 70, 5)];
            seal(&mut sealed, |_| tier);
            let [sealed] = sealed;
            let mut forged = Vec::new();
            for bit in 0..8 * (70 + 8 + icv_len.bytes()) {
                let mut packet = sealed.clone();
                let byte = packet
                    .text
                    .iter_mut()
                    .chain(&mut packet.header)
                    .chain(&mut packet.icv)
                    .nth(bit / 8);
                *byte.unwrap() ^= 1 << (bit % 8);
                forged.push(packet);
            }
            assert!(open(&mut forged, |_| tier).iter().all(|&verdict| verdict == Verdict::Forged));
        }
    }
}

#[test]
fn nothing_outside_the_buffers_is_touched() {
    // One packet alone, and as many as kernels take side by side.
    for count in [1, 4] {
        let mut places: Vec<_> =
            (0..count).map(|_| (Guarded::new(4 * 4096), Guarded::new(16))).collect();
        for tier in tiers() {
            for at_end in [false, true] {
                for len in (0..300).chain([511, 512, 513, 1420, 4095, 4096, 9000]) {
                    assert_nothing_outside_is_touched(&mut places, tier, at_end, len);
                }
            }
        }
    }
}

fn assert_nothing_outside_is_touched(
    places: &mut [(Guarded, Guarded)],
    tier: Tier,
    at_end: bool,
    len: usize,
) {
    let icv_len = IcvLen::ALL[len % 3];
    let packet = Packet::of_shape(KeyBits::ALL[len % 3], icv_len, len % 35, len, len as u64);
    let expected = sealed_by_oracle(&packet);
    let bytes = [&*packet.header, &*packet.text].concat();
    let key = packet.seal_key(tier);
    let ops = places.iter_mut().map(|(frame, icv)| {
        let icv = icv.slice(icv_len.bytes(), at_end);
        seal_op(&packet, &key, frame.copy(&bytes, at_end), icv)
    });
    seal_burst(&mut ops.collect::<Vec<_>>());
    for (frame, icv) in &mut *places {
        let text = &frame.slice(bytes.len(), at_end)[packet.header.len()..];
        let icv = icv.slice(icv_len.bytes(), at_end);
        assert_eq!((text, &*icv), (&*expected.text, &*expected.icv), "{tier}, {len} bytes");
    }
    let key = packet.open_key(tier);
    let ops = places.iter_mut().map(|(frame, icv)| {
        let frame = frame.slice(bytes.len(), at_end);
        open_op(&packet, &key, frame, icv.slice(icv_len.bytes(), at_end))
    });
    let mut ops: Vec<_> = ops.collect();
    open_burst(&mut ops);
    for op in ops {
        assert_eq!(op.into_plaintext().as_deref(), Some(&*packet.text), "{tier}, {len} bytes");
    }
}

#[test]
fn a_spent_operation_is_left_alone() {
    for tier in tiers() {
        let packet = Packet::of_shape(KeyBits::Aes128, IcvLen::Icv16, 0, 100, 1);
        let expected = sealed_by_oracle(&packet);
        let (mut text, mut icv) = (packet.text.clone(), packet.icv.clone());
        let key = packet.seal_key(tier);
        let mut ops = [seal_op(&packet, &key, &mut text, &mut icv)];
        assert!(!ops[0].is_sealed());
        seal_burst(&mut ops);
        seal_burst(&mut ops);
        assert_eq!((&text, &icv), (&expected.text, &expected.icv), "{tier}");
        let key = packet.open_key(tier);
        let mut ops = [open_op(&packet, &key, &mut text, &icv)];
        assert_eq!(ops[0].verdict(), Verdict::Pending);
        open_burst(&mut ops);
        open_burst(&mut ops);
        assert_eq!(ops[0].verdict(), Verdict::Authentic);
        assert_eq!(text, packet.text, "{tier}");
    }
}
