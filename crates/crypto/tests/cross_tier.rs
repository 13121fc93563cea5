//! Every tier against every other, and all of them against an implementation that is not ours.

mod common;

use std::ptr;

use common::{Packet, Random, open, seal, sealed_by_oracle, tiers};
use convoy_crypto::{
    IcvLen, KeyBits, Nonce, OpenOp, SealOp, Tier, Verdict, open_burst, seal_burst,
};
use proptest::prelude::*;

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
            assert_eq!(opened.data, packet.data, "opened by {tier}");
        }
    }
}

fn assert_same(packets: &[Packet], expected: &[Packet], what: &str, tier: Tier) {
    for (i, (packet, expected)) in packets.iter().zip(expected).enumerate() {
        assert!(
            packet.data == expected.data && packet.icv == expected.icv,
            "packet {i} of {} bytes, {} bytes of additional data, {}: {what} differently by {tier}",
            expected.data.len(),
            expected.aad.len(),
            expected.params,
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
                    prop_assert_eq!(&opened.data, &packet.data, "{} to {}", sealer, opener);
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
                base.data.iter_mut().for_each(|byte| *byte |= 1);
                packets.extend(std::iter::repeat_n(base, 8));
            }
        }
        seal(&mut packets, |_| tier);
        for (i, packet) in packets.iter_mut().enumerate() {
            let bit = 1 << random.below(8);
            let (last, any) = (packet.data.len() - 1, random.below(packet.data.len()));
            match i % 8 {
                0 => {}
                1 => packet.data[0] ^= bit,
                2 => packet.data[last] ^= bit,
                3 => packet.data[any] ^= bit,
                4 => packet.aad[random.below(12)] ^= bit,
                5 => packet.nonce[random.below(12)] ^= bit,
                6 => packet.icv[0] ^= bit,
                _ => *packet.icv.last_mut().unwrap() ^= bit,
            }
        }
        let verdicts = open(&mut packets, |_| tier);
        for (i, (packet, verdict)) in packets.iter().zip(verdicts).enumerate() {
            let expected = if i % 8 == 0 { Verdict::Authentic } else { Verdict::Forged };
            assert_eq!(verdict, expected, "{tier}: {} bytes, change {}", packet.data.len(), i % 8);
            let wiped = packet.data.iter().all(|&byte| byte == 0);
            assert_eq!(wiped, i % 8 != 0, "{tier}: {} bytes, change {}", packet.data.len(), i % 8);
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
                    .data
                    .iter_mut()
                    .chain(&mut packet.aad)
                    .chain(&mut packet.icv)
                    .nth(bit / 8);
                *byte.unwrap() ^= 1 << (bit % 8);
                forged.push(packet);
            }
            assert!(open(&mut forged, |_| tier).iter().all(|&verdict| verdict == Verdict::Forged));
        }
    }
}

/// An accessible page between two pages that cannot be touched.
struct Guarded {
    base: *mut u8,
}

const PAGE: usize = 4096;

/// Accessible bytes in the middle.
const ROOM: usize = 4 * PAGE;

impl Guarded {
    fn new() -> Self {
        // SAFETY: a fresh anonymous mapping touches no existing memory.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                ROOM + 2 * PAGE,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(base, libc::MAP_FAILED);
        let base: *mut u8 = base.cast();
        // SAFETY: the range lies within the mapping made above.
        let rc = unsafe {
            libc::mprotect(base.wrapping_add(PAGE).cast(), ROOM, libc::PROT_READ | libc::PROT_WRITE)
        };
        assert_eq!(rc, 0);
        Self { base }
    }

    /// `len` bytes that begin right behind the first guard page, or end right before the last.
    fn slice(&mut self, len: usize, at_end: bool) -> &mut [u8] {
        let offset = if at_end { PAGE + ROOM - len } else { PAGE };
        // SAFETY: the range lies within the accessible pages, which the exclusive borrow guards.
        unsafe { std::slice::from_raw_parts_mut(self.base.wrapping_add(offset), len) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own and no slice outlives it.
        unsafe { libc::munmap(self.base.cast(), ROOM + 2 * PAGE) };
    }
}

#[test]
fn nothing_outside_the_buffers_is_touched() {
    let (mut data, mut aad, mut icv) = (Guarded::new(), Guarded::new(), Guarded::new());
    for tier in tiers() {
        for at_end in [false, true] {
            for len in (0..300).chain([511, 512, 513, 1420, 4095, 4096, 9000]) {
                let icv_len = IcvLen::ALL[len % 3];
                let packet =
                    Packet::of_shape(KeyBits::ALL[len % 3], icv_len, len % 35, len, len as u64);
                let expected = sealed_by_oracle(&packet);
                let data = data.slice(len, at_end);
                data.copy_from_slice(&packet.data);
                let aad = aad.slice(packet.aad.len(), at_end);
                aad.copy_from_slice(&packet.aad);
                let icv = icv.slice(icv_len.bytes(), at_end);
                let key = common::seal_key(tier, packet.params, &packet.key);
                seal_burst(&mut [
                    SealOp::new(&key, Nonce::new(packet.nonce), aad, data, icv).unwrap()
                ]);
                assert_eq!(
                    (&*data, &*icv),
                    (&*expected.data, &*expected.icv),
                    "{tier}, {len} bytes"
                );
                let key = common::open_key(tier, packet.params, &packet.key);
                let mut ops = [OpenOp::new(&key, packet.nonce, aad, data, icv).unwrap()];
                open_burst(&mut ops);
                let [op] = ops;
                assert_eq!(
                    op.into_plaintext().as_deref(),
                    Some(&*packet.data),
                    "{tier}, {len} bytes"
                );
            }
        }
    }
}

/// Neighbouring packets in one buffer: a store that is too wide would show.
#[test]
fn neighbours_in_one_buffer_stay_apart() {
    for tier in tiers() {
        for len in 0..150 {
            let packets: Vec<_> = (0..5)
                .map(|i| Packet::of_shape(KeyBits::Aes128, IcvLen::Icv16, 8, len, i))
                .collect();
            let expected: Vec<u8> = packets
                .iter()
                .map(sealed_by_oracle)
                .flat_map(|p| [p.data, p.icv].concat())
                .collect();
            let mut buffer: Vec<u8> =
                packets.iter().flat_map(|p| [&p.data[..], &p.icv].concat()).collect();
            let keys: Vec<_> =
                packets.iter().map(|p| common::seal_key(tier, p.params, &p.key)).collect();
            let mut ops: Vec<_> = buffer
                .chunks_mut(len + 16)
                .zip(packets.iter().zip(&keys))
                .map(|(chunk, (p, key))| {
                    let (data, icv) = chunk.split_at_mut(len);
                    SealOp::new(key, Nonce::new(p.nonce), &p.aad, data, icv).unwrap()
                })
                .collect();
            seal_burst(&mut ops);
            assert_eq!(buffer, expected, "{tier}, {len} bytes");
        }
    }
}

#[test]
fn a_spent_operation_is_left_alone() {
    for tier in tiers() {
        let packet = Packet::of_shape(KeyBits::Aes128, IcvLen::Icv16, 8, 100, 1);
        let expected = sealed_by_oracle(&packet);
        let mut twice = packet.clone();
        let key = common::seal_key(tier, packet.params, &packet.key);
        let nonce = Nonce::new(packet.nonce);
        let mut ops =
            [SealOp::new(&key, nonce, &twice.aad, &mut twice.data, &mut twice.icv).unwrap()];
        assert!(!ops[0].is_sealed());
        seal_burst(&mut ops);
        seal_burst(&mut ops);
        assert_eq!((&twice.data, &twice.icv), (&expected.data, &expected.icv), "{tier}");
        let key = common::open_key(tier, packet.params, &packet.key);
        let mut ops =
            [OpenOp::new(&key, twice.nonce, &twice.aad, &mut twice.data, &twice.icv).unwrap()];
        assert_eq!(ops[0].verdict(), Verdict::Pending);
        open_burst(&mut ops);
        open_burst(&mut ops);
        assert_eq!(ops[0].verdict(), Verdict::Authentic);
        assert_eq!(twice.data, packet.data, "{tier}");
    }
}
