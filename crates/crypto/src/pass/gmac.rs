//! The pass of AES-GMAC.

use crate::isa::{Kernel, job::GmacJob};

/// Computes the tag of every job; additional data and data are hashed as one string of additional
/// data (RFC 4543 section 5). Comparing tags is left to the caller. Keys may be of different sizes.
///
/// The portable tier's keys have no tables; it is `SoftKey::gmac` instead.
pub(crate) fn gmac(kernel: Kernel, jobs: &mut [GmacJob<'_>]) {
    kernel.gmac(jobs);
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::aead::{
        AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey,
    };

    use super::*;
    use crate::{
        KeyBits,
        isa::Tables,
        pass::tests::{Guarded, Random, kernels},
        portable::SoftKey,
    };

    struct Packet {
        key: usize,
        nonce: [u8; 16],
        aad: Vec<u8>,
        data: Vec<u8>,
        expected: [u8; 16],
    }

    struct Key {
        bits: KeyBits,
        bytes: Vec<u8>,
    }

    impl Key {
        fn random(random: &mut Random) -> Self {
            let bits = KeyBits::ALL[random.below(3)];
            Self { bits, bytes: random.bytes(bits.bytes()) }
        }
    }

    impl Packet {
        /// A packet with the tag that an independent implementation gives it.
        fn random(random: &mut Random, keys: &[Key], aad: usize, len: usize) -> Self {
            let key = random.below(keys.len());
            let algorithm = match keys[key].bits {
                KeyBits::Aes128 => &AES_128_GCM,
                KeyBits::Aes192 => &AES_192_GCM,
                KeyBits::Aes256 => &AES_256_GCM,
            };
            let oracle = LessSafeKey::new(UnboundKey::new(algorithm, &keys[key].bytes).unwrap());
            let nonce: [u8; 12] = random.array();
            let (aad, data) = (random.bytes(aad), random.bytes(len));
            let both = [&*aad, &*data].concat();
            let tag = oracle
                .seal_in_place_separate_tag(
                    Nonce::assume_unique_for_key(nonce),
                    Aad::from(both),
                    &mut [],
                )
                .unwrap();
            let mut counter = [0; 16];
            counter[..12].copy_from_slice(&nonce);
            Self { key, nonce: counter, aad, data, expected: tag.as_ref().try_into().unwrap() }
        }
    }

    fn check(keys: &[Key], packets: &[Packet]) {
        let soft: Vec<_> = keys.iter().map(|k| SoftKey::new(k.bits, &k.bytes).unwrap()).collect();
        for (i, p) in packets.iter().enumerate() {
            let tag = soft[p.key].gmac(&p.nonce, &p.aad, &p.data);
            assert_eq!(tag, p.expected, "packet {i} of {} bytes, portable", p.data.len());
        }
        for kernel in kernels() {
            let tables: Vec<_> =
                keys.iter().map(|k| kernel.expand(k.bits, &k.bytes).unwrap()).collect();
            let mut jobs: Vec<_> = packets.iter().map(|p| job(&tables[p.key].0, p)).collect();
            gmac(kernel, &mut jobs);
            for (i, (job, p)) in jobs.iter().zip(packets).enumerate() {
                assert_eq!(job.tag, p.expected, "packet {i} of {} bytes, {kernel:?}", p.data.len());
            }
        }
    }

    fn job<'j>(tables: &'j Tables, p: &'j Packet) -> GmacJob<'j> {
        GmacJob { tables, nonce: &p.nonce, aad: &p.aad, data: &p.data, tag: [0; 16] }
    }

    #[test]
    fn every_length_up_to_700_agrees_with_the_oracle() {
        let mut random = Random(1);
        let keys: Vec<_> = (0..9).map(|_| Key::random(&mut random)).collect();
        for aad in [0, 8, 16, 20, 33] {
            let packets: Vec<_> =
                (0..=700).map(|len| Packet::random(&mut random, &keys, aad, len)).collect();
            check(&keys, &packets);
        }
    }

    #[test]
    fn random_bursts_agree_with_the_oracle() {
        let mut random = Random(2);
        for round in 0..90 {
            let count = [1, 64][round % 2];
            let keys: Vec<_> = (0..count).map(|_| Key::random(&mut random)).collect();
            let packets: Vec<_> = (0..random.below([4, 40, 257][round % 3]))
                .map(|_| {
                    let aad = [16, 20, random.below(600)][random.below(3)];
                    let len = random.length();
                    Packet::random(&mut random, &keys, aad, len)
                })
                .collect();
            check(&keys, &packets);
        }
    }

    #[test]
    fn nothing_outside_the_buffers_is_touched() {
        let mut random = Random(3);
        let key = [Key::random(&mut random)];
        let (mut data, mut aad) = (Guarded::new(), Guarded::new());
        for kernel in kernels() {
            let tables = kernel.expand(key[0].bits, &key[0].bytes).unwrap();
            for at_end in [false, true] {
                for len in (0..600).chain([1420, 4095, 4096, 9000]) {
                    let packet = Packet::random(&mut random, &key, len % 35, len);
                    let mut jobs = [GmacJob {
                        tables: &tables.0,
                        nonce: &packet.nonce,
                        aad: aad.copy(&packet.aad, at_end),
                        data: data.copy(&packet.data, at_end),
                        tag: [0; 16],
                    }];
                    gmac(kernel, &mut jobs);
                    assert_eq!(jobs[0].tag, packet.expected, "{kernel:?}, {len} bytes");
                }
            }
        }
    }
}
