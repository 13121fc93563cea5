//! The pass of ChaCha20-Poly1305.

use crate::{
    isa::{Kernel, job::ChaChaJob},
    portable,
};

/// Seals or opens the jobs: data is transformed in place, and the tag of its ciphertext is left in
/// each job. Comparing tags, and wiping what is not authentic, is left to the caller.
///
/// Without a kernel it is the portable tier. Data is shorter than 2^32 - 1 blocks of 64 bytes.
pub(crate) fn chacha20_poly1305(kernel: Option<Kernel>, seal: bool, jobs: &mut [ChaChaJob<'_>]) {
    match kernel {
        Some(kernel) => kernel.chacha20_poly1305(seal, jobs),
        None => jobs.iter_mut().for_each(|job| portable::chacha::run(seal, job)),
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

    use super::*;
    use crate::{
        block::ChaChaKey,
        pass::tests::{Guarded, Random, tiers},
    };

    /// A packet that owns its buffers.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Packet {
        key: usize,
        nonce: [u8; 16],
        aad: Vec<u8>,
        /// Bytes in front of the data, so that it is not aligned.
        offset: usize,
        data: Vec<u8>,
        tag: [u8; 16],
    }

    impl Packet {
        fn random(random: &mut Random, keys: usize, aad: usize, len: usize) -> Self {
            let mut nonce = random.array();
            nonce[12..].fill(0);
            let offset = random.below(64);
            Self {
                key: random.below(keys),
                nonce,
                aad: random.bytes(aad),
                offset,
                data: random.bytes(offset + len),
                tag: [0; 16],
            }
        }
    }

    fn run(kernel: Option<Kernel>, seal: bool, keys: &[ChaChaKey], packets: &mut [Packet]) {
        let mut jobs: Vec<_> = packets
            .iter_mut()
            .map(|p| ChaChaJob {
                key: &keys[p.key],
                nonce: &p.nonce,
                aad: &p.aad,
                data: &mut p.data[p.offset..],
                tag: [0; 16],
            })
            .collect();
        chacha20_poly1305(kernel, seal, &mut jobs);
        let tags: Vec<_> = jobs.iter().map(|job| job.tag).collect();
        packets.iter_mut().zip(tags).for_each(|(packet, tag)| packet.tag = tag);
    }

    fn sealed_by_oracle(key: &ChaChaKey, packet: &Packet) -> Packet {
        let mut sealed = packet.clone();
        let key = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &key.0).unwrap());
        let nonce = Nonce::assume_unique_for_key(*packet.nonce.first_chunk().unwrap());
        let data = &mut sealed.data[packet.offset..];
        let tag = key.seal_in_place_separate_tag(nonce, Aad::from(&packet.aad), data).unwrap();
        sealed.tag.copy_from_slice(tag.as_ref());
        sealed
    }

    fn keys(random: &mut Random, count: usize) -> Vec<ChaChaKey> {
        (0..count).map(|_| ChaChaKey(random.array())).collect()
    }

    /// Seals and opens the packets in one burst on every tier.
    fn check(keys: &[ChaChaKey], packets: &[Packet]) {
        let expected: Vec<_> = packets.iter().map(|p| sealed_by_oracle(&keys[p.key], p)).collect();
        for kernel in tiers() {
            let mut burst = packets.to_vec();
            run(kernel, true, keys, &mut burst);
            for (i, (packet, expected)) in burst.iter().zip(&expected).enumerate() {
                let len = packet.data.len() - packet.offset;
                assert!(packet == expected, "packet {i} of {len} bytes sealed by {kernel:?}");
            }
            run(kernel, false, keys, &mut burst);
            for (i, ((packet, original), sealed)) in
                burst.iter().zip(packets).zip(&expected).enumerate()
            {
                let len = packet.data.len() - packet.offset;
                assert!(packet.data == original.data, "packet {i} of {len} opened by {kernel:?}");
                assert!(packet.tag == sealed.tag, "tag {i} of {len} opened by {kernel:?}");
            }
        }
    }

    /// RFC 8439 section 2.8.2.
    #[test]
    fn the_example_of_rfc_8439_comes_out() {
        let text = b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip \
                     for the future, sunscreen would be it.";
        let key = ChaChaKey(std::array::from_fn(|i| 0x80 + i as u8));
        let nonce = [7, 0, 0, 0, 0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0, 0, 0, 0];
        let aad = [0x50, 0x51, 0x52, 0x53, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7];
        for kernel in tiers() {
            let mut data = text.to_vec();
            let job =
                ChaChaJob { key: &key, nonce: &nonce, aad: &aad, data: &mut data, tag: [0; 16] };
            let mut jobs = [job];
            chacha20_poly1305(kernel, true, &mut jobs);
            let [ChaChaJob { tag, .. }] = jobs;
            assert_eq!(data[..8], [0xd3, 0x1a, 0x8d, 0x34, 0x64, 0x8e, 0x60, 0xdb]);
            assert_eq!(data[106..], [0xd2, 0x65, 0x86, 0xce, 0xc6, 0x4b, 0x61, 0x16]);
            assert_eq!(
                tag,
                [
                    0x1a, 0xe1, 0x0b, 0x59, 0x4f, 0x09, 0xe2, 0x6a, 0x7e, 0x90, 0x2e, 0xcb, 0xd0,
                    0x60, 0x06, 0x91
                ]
            );
        }
    }

    #[test]
    fn every_length_up_to_1200_agrees_with_the_oracle() {
        let mut random = Random(1);
        let keys = keys(&mut random, 3);
        for aad in [0, 8, 12, 16, 21] {
            let packets: Vec<_> =
                (0..=1200).map(|len| Packet::random(&mut random, keys.len(), aad, len)).collect();
            check(&keys, &packets);
        }
    }

    #[test]
    fn random_bursts_agree_with_the_oracle() {
        let mut random = Random(2);
        for round in 0..60 {
            let count = if round % 2 == 0 { 1 } else { 64 };
            let keys = keys(&mut random, count);
            let burst = 1 + random.below([4, 40, 256][round % 3]);
            let packets: Vec<_> = (0..burst)
                .map(|_| {
                    let aad = [8, 12, random.below(100)][random.below(3)];
                    let len = random.length();
                    Packet::random(&mut random, count, aad, len)
                })
                .collect();
            check(&keys, &packets);
        }
    }

    #[test]
    fn equal_lengths_agree_with_the_oracle() {
        let mut random = Random(3);
        let keys = keys(&mut random, 64);
        for len in [0, 16, 48, 63, 64, 65, 68, 128, 256, 512, 1420, 9000, 16_384, 70_000] {
            for burst in [1, 2, 3, 4, 5, 8, 9, 15, 16, 17, 33] {
                let packets: Vec<_> =
                    (0..burst).map(|_| Packet::random(&mut random, keys.len(), 12, len)).collect();
                check(&keys, &packets);
            }
        }
    }

    /// Poly1305's accumulator is largest when every bit of the message is set.
    #[test]
    fn messages_of_ones_agree_with_the_oracle() {
        let mut random = Random(4);
        let keys = keys(&mut random, 16);
        for len in [1, 16, 64, 255, 1024, 16_384] {
            let mut packets: Vec<_> =
                (0..40).map(|_| Packet::random(&mut random, keys.len(), 32, len)).collect();
            for packet in &mut packets {
                packet.aad.fill(0xff);
                // Sealing twice is the identity, so the ciphertext is all ones.
                let mut flipped = packet.clone();
                flipped.data.fill(0);
                let keystream = sealed_by_oracle(&keys[packet.key], &flipped).data;
                packet.data.iter_mut().zip(&keystream).for_each(|(byte, key)| *byte = !key);
                packet.data[..packet.offset].fill(0);
            }
            check(&keys, &packets);
        }
    }

    #[test]
    fn nothing_outside_the_buffers_is_touched() {
        let mut random = Random(5);
        let key = ChaChaKey(random.array());
        let (mut data, mut aad) = (Guarded::new(), Guarded::new());
        for kernel in tiers() {
            for at_end in [false, true] {
                for len in (0..300).chain([511, 512, 513, 1420, 4095, 4096, 9000]) {
                    let mut packet = Packet::random(&mut random, 1, len % 35, len);
                    packet.data.drain(..packet.offset);
                    packet.offset = 0;
                    let expected = sealed_by_oracle(&key, &packet);
                    let data = data.copy(&packet.data, at_end);
                    let aad = aad.copy(&packet.aad, at_end);
                    for seal in [true, false] {
                        let nonce = &packet.nonce;
                        let job = ChaChaJob { key: &key, nonce, aad, data, tag: [0; 16] };
                        let mut jobs = [job];
                        chacha20_poly1305(kernel, seal, &mut jobs);
                        assert_eq!(jobs[0].tag, expected.tag, "{kernel:?}, {len} bytes");
                        let after = if seal { &expected.data } else { &packet.data };
                        assert_eq!(jobs[0].data, after, "{kernel:?}, {len} bytes");
                    }
                }
            }
        }
    }
}
