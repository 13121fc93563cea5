//! The passes against other people's code and against one another, on every tier: random bursts, and
//! memory that ends where it must not be left.

use std::cell::Cell;

use aws_lc_rs::{
    cipher::{self, EncryptionContext, StreamingEncryptingKey, UnboundCipherKey},
    cmac,
    iv::FixedLength,
};
use ccm::{
    Ccm, KeyInit,
    aead::AeadInOut,
    consts::{U7, U8, U11, U12, U13, U16},
};

use super::{
    tests::{Mode, Packet, Sealed, decrypt_keys, encrypt_keys, mac_key, name, pass, run, run_ccm},
    *,
};
use crate::pass::tests::{Guarded, Random, tiers};

/// Numbers of packets of the random bursts.
const BURSTS: [usize; 14] = [1, 2, 3, 4, 5, 7, 8, 9, 15, 17, 33, 64, 256, 300];

/// Keys of one size for a burst: one for all, or a few at random.
fn some_keys(random: &mut Random, bits: KeyBits, packets: usize) -> Vec<Vec<u8>> {
    let pool: Vec<_> = (0..1 + 9 * random.below(2)).map(|_| random.bytes(bits.bytes())).collect();
    (0..packets).map(|_| pool[random.below(pool.len())].clone()).collect()
}

/// Lengths for a burst: all alike, or each of its own.
fn some_lengths(random: &mut Random, packets: usize) -> Vec<usize> {
    let (alike, same) = (random.below(3) == 0, random.length());
    (0..packets).map(|_| if alike { same } else { random.length() }).collect()
}

#[test]
fn bursts_of_ciphers_agree_with_aws_lc() {
    let mut random = Random(1);
    for (round, packets) in (0..3).flat_map(|round| BURSTS.map(|packets| (round, packets))) {
        let bits = KeyBits::ALL[round];
        for mode in [Mode::CbcEncrypt, Mode::CbcDecrypt, Mode::Ctr] {
            let keys = some_keys(&mut random, bits, packets);
            let plain: Vec<_> = keys
                .into_iter()
                .zip(some_lengths(&mut random, packets))
                .map(|(key, len)| {
                    let len = if mode == Mode::Ctr { len } else { len & !15 };
                    let mut iv: [u8; 16] = random.array();
                    if random.below(4) == 0 {
                        // The counter is about to wrap.
                        iv[12..].copy_from_slice(&[
                            0xff,
                            0xff,
                            0xff,
                            0xff - random.below(40) as u8,
                        ]);
                    }
                    Packet { key, iv, data: random.bytes(len) }
                })
                .collect();
            let sealed: Vec<_> = plain
                .iter()
                .map(|packet| match mode {
                    Mode::Ctr => wrapping_reference(packet),
                    _ => reference(mode, packet),
                })
                .collect();
            for kernel in tiers() {
                let mut packets = plain.clone();
                if mode == Mode::CbcDecrypt {
                    packets.iter_mut().zip(&sealed).for_each(|(p, data)| p.data.clone_from(data));
                }
                run(kernel, mode, &mut packets);
                for (i, packet) in packets.iter().enumerate() {
                    let expected =
                        if mode == Mode::CbcDecrypt { &plain[i].data } else { &sealed[i] };
                    assert!(
                        packet.data == *expected,
                        "{mode:?} {bits:?}, packet {i} of {}, {} bytes, {}",
                        packets.len(),
                        packet.data.len(),
                        name(kernel)
                    );
                }
            }
        }
    }
}

/// Encrypts with aws-lc. CBC pads there, which adds one block; it is dropped.
fn reference(mode: Mode, packet: &Packet) -> Vec<u8> {
    let algorithm = match packet.key.len() {
        16 => &cipher::AES_128,
        24 => &cipher::AES_192,
        _ => &cipher::AES_256,
    };
    let key = UnboundCipherKey::new(algorithm, &packet.key).unwrap();
    let context = EncryptionContext::Iv128(FixedLength::from(packet.iv));
    let mut key = match mode {
        Mode::Ctr => StreamingEncryptingKey::less_safe_ctr(key, context),
        _ => StreamingEncryptingKey::less_safe_cbc_pkcs7(key, context),
    }
    .unwrap();
    let mut out = vec![0; packet.data.len() + 16];
    let written = key.update(&packet.data, &mut out).unwrap().written().len();
    key.finish(&mut [0; 16]).unwrap();
    assert_eq!(written, packet.data.len());
    out.truncate(written);
    out
}

/// CTR whose counter has 32 bits, out of one whose counter has 128.
fn wrapping_reference(packet: &Packet) -> Vec<u8> {
    let [.., a, b, c, d] = packet.iv;
    let until_wrap = 16 * (1u64 << 32).wrapping_sub(u64::from(u32::from_be_bytes([a, b, c, d])));
    let at = packet.data.len().min(until_wrap as usize);
    let mut front = packet.clone();
    let mut back = Packet { data: front.data.split_off(at), ..packet.clone() };
    back.iv[12..].fill(0);
    [reference(Mode::Ctr, &front), reference(Mode::Ctr, &back)].concat()
}

#[test]
fn data_of_ciphers_may_lie_between_guard_pages() {
    let mut random = Random(2);
    let mut pages: Vec<_> = (0..20).map(|_| Guarded::new()).collect();
    for kernel in tiers() {
        for mode in [Mode::CbcEncrypt, Mode::CbcDecrypt, Mode::Ctr] {
            for start in (0..800).step_by(16) {
                let packets: Vec<_> = (0..pages.len())
                    .map(|i| {
                        let len = if mode == Mode::Ctr { start + i } else { start + 16 * (i % 5) };
                        Packet { key: vec![7; 16], iv: random.array(), data: random.bytes(len) }
                    })
                    .collect();
                let keys = match mode {
                    Mode::CbcDecrypt => decrypt_keys(kernel, &[7; 16]),
                    _ => encrypt_keys(kernel, &[7; 16]),
                };
                let at_end = random.below(2) == 0;
                let mut jobs: Vec<_> = packets
                    .iter()
                    .zip(&mut pages)
                    .map(|(packet, page)| CipherJob {
                        keys: &keys,
                        iv: &packet.iv,
                        data: page.copy(&packet.data, at_end),
                    })
                    .collect();
                pass(kernel, mode, KeyBits::Aes128, &mut jobs);
            }
        }
    }
}

/// AES-XCBC out of aws-lc's CBC: the chain with K1 over padded blocks.
fn xcbc_reference(key: &[u8], message: &[u8]) -> Vec<u8> {
    let cbc = |key: &[u8], data: Vec<u8>| {
        reference(Mode::CbcEncrypt, &Packet { key: key.to_vec(), iv: [0; 16], data })
    };
    let [k1, k2, k3] = [1, 2, 3].map(|byte| cbc(key, vec![byte; 16]));
    let mut padded = message.to_vec();
    let last = if message.is_empty() || !message.len().is_multiple_of(16) {
        padded.push(0x80);
        padded.resize(padded.len().next_multiple_of(16), 0);
        k3
    } else {
        k2
    };
    let end = padded.len() - 16;
    padded[end..].iter_mut().zip(last).for_each(|(byte, key)| *byte ^= key);
    cbc(&k1, padded)[end..].to_vec()
}

#[test]
fn bursts_of_macs_agree_with_aws_lc() {
    let mut random = Random(3);
    let algs = [MacAlg::AesXcbc].into_iter().chain(KeyBits::ALL.map(MacAlg::AesCmac));
    for (alg, packets) in algs.flat_map(|alg| BURSTS.map(|packets| (alg, packets))) {
        let bits = if let MacAlg::AesCmac(bits) = alg { bits } else { KeyBits::Aes128 };
        let keys = some_keys(&mut random, bits, packets);
        let messages: Vec<_> = some_lengths(&mut random, packets)
            .into_iter()
            .map(|len| (random.bytes(len), random.below(17).min(len)))
            .collect();
        // Messages begin anywhere, not where an allocation does.
        let rooms: Vec<_> = messages
            .iter()
            .enumerate()
            .map(|(i, (message, _))| [&[0; 16][..i % 16], message].concat())
            .collect();
        let expected: Vec<_> = keys
            .iter()
            .zip(&messages)
            .map(|(key, (message, _))| {
                let algorithm = [cmac::AES_128, cmac::AES_192, cmac::AES_256][bits as usize];
                match alg {
                    MacAlg::AesXcbc => xcbc_reference(key, message),
                    _ => cmac::sign(&cmac::Key::new(algorithm, key).unwrap(), message)
                        .unwrap()
                        .as_ref()
                        .to_vec(),
                }
            })
            .collect();
        for kernel in tiers() {
            let keys: Vec<_> = keys.iter().map(|key| mac_key(kernel, alg, key)).collect();
            let mut jobs: Vec<_> = keys
                .iter()
                .zip(rooms.iter().zip(&messages))
                .enumerate()
                .map(|(i, (key, (room, (_, trailer))))| {
                    let (message, trailer) = room[i % 16..].split_at(room.len() - i % 16 - trailer);
                    CbcMacJob { key, message, trailer, tag: [0; 16] }
                })
                .collect();
            cbc_mac(kernel, bits, &mut jobs);
            for (i, (job, expected)) in jobs.iter().zip(&expected).enumerate() {
                assert!(
                    job.tag == **expected,
                    "{alg:?}, packet {i} of {packets}, {} + {} bytes, {}",
                    job.message.len(),
                    job.trailer.len(),
                    name(kernel)
                );
            }
        }
    }
}

#[test]
fn messages_may_lie_between_guard_pages() {
    let mut random = Random(4);
    let mut pages: Vec<_> = (0..40).map(|_| Guarded::new()).collect();
    for kernel in tiers() {
        let key = mac_key(kernel, MacAlg::AesXcbc, &[9; 16]);
        for start in (0..700).step_by(16) {
            let at_end = random.below(2) == 0;
            let mut jobs: Vec<_> = pages
                .chunks_mut(2)
                .enumerate()
                .map(|(i, pages)| {
                    let [message, trailer] = pages else { panic!("an even number of pages") };
                    let message = message.copy(&random.bytes(start + i), at_end);
                    let len = random.below(17);
                    let trailer = trailer.copy(&random.bytes(len), at_end);
                    CbcMacJob { key: &key, message, trailer, tag: [0; 16] }
                })
                .collect();
            cbc_mac(kernel, KeyBits::Aes128, &mut jobs);
        }
    }
}

/// Seals with RustCrypto's `ccm`, in the sizes chosen: of the nonce, and of the ICV.
fn ccm_reference(packet: &mut Sealed) {
    macro_rules! seal {
        ($($nonce:literal $nonce_size:ident, $icv:literal $icv_size:ident;)*) => {
            match (packet.key.len(), packet.nonce.len(), packet.tag.len()) {
                $(
                    (16, $nonce, $icv) => seal!(aes::Aes128, $nonce_size, $icv_size),
                    (24, $nonce, $icv) => seal!(aes::Aes192, $nonce_size, $icv_size),
                    (32, $nonce, $icv) => seal!(aes::Aes256, $nonce_size, $icv_size),
                )*
                sizes => panic!("no reference for {sizes:?}"),
            }
        };
        ($aes:ty, $nonce_size:ident, $icv_size:ident) => {{
            let ccm = Ccm::<$aes, $icv_size, $nonce_size>::new_from_slice(&packet.key).unwrap();
            let nonce = packet.nonce.as_slice().try_into().unwrap();
            let data = packet.data.as_mut_slice().into();
            ccm.encrypt_inout_detached(nonce, &packet.aad, data).unwrap().to_vec()
        }};
    }
    packet.tag = seal!(7 U7, 8 U8; 11 U11, 12 U12; 11 U11, 16 U16; 12 U12, 8 U8; 13 U13, 16 U16;);
}

#[test]
fn bursts_of_ccm_agree_with_rustcrypto() {
    let mut random = Random(5);
    for (round, packets) in (0..3).flat_map(|round| BURSTS.map(|packets| (round, packets))) {
        let bits = KeyBits::ALL[round];
        let keys = some_keys(&mut random, bits, packets);
        let (short_aad, odd) = (random.below(2) == 0, random.below(2) == 0);
        let plain: Vec<_> = keys
            .into_iter()
            .zip(some_lengths(&mut random, packets))
            .map(|(key, len)| {
                let sizes = [(7, 8), (11, 12), (11, 16), (12, 8), (13, 16)];
                let (nonce, icv) = if odd { sizes[random.below(5)] } else { sizes[2] };
                let aad = match random.below(40) {
                    _ if short_aad => [8, 12][random.below(2)],
                    0 => 0xff00 + random.below(600) - 300,
                    _ => random.below(70),
                };
                let [nonce, aad, data] = [nonce, aad, len].map(|len| random.bytes(len));
                Sealed { key, nonce, aad, data, tag: vec![0; icv] }
            })
            .collect();
        assert_ccm_agrees(bits, &plain);
    }
}

/// Checks what every tier makes of a burst, sealing and opening, against the reference.
fn assert_ccm_agrees(bits: KeyBits, plain: &[Sealed]) {
    let mut sealed = plain.to_vec();
    sealed.iter_mut().for_each(ccm_reference);
    for kernel in tiers() {
        let mut packets = plain.to_vec();
        for (seal, expected) in [(true, &*sealed), (false, plain)] {
            run_ccm(kernel, seal, &mut packets);
            for (i, (packet, expected)) in packets.iter().zip(expected).enumerate() {
                let (aad, data) = (packet.aad.len(), packet.data.len());
                let what = format!(
                    "{bits:?}, seal {seal}, packet {i}, {aad} + {data} bytes, {}",
                    name(kernel)
                );
                assert!(packet.data == expected.data, "data: {what}");
                assert!(packet.tag == sealed[i].tag, "tag: {what}");
            }
        }
    }
}

#[test]
fn short_packets_of_ccm_agree_with_rustcrypto() {
    let mut random = Random(8);
    for (blocks, bits) in (0..=18).flat_map(|blocks| KeyBits::ALL.map(|bits| (blocks, bits))) {
        let packets = 24 + random.below(9);
        let keys = some_keys(&mut random, bits, packets);
        // As many blocks in nearly all of them, so that some go side by side and some do not.
        let plain: Vec<_> = keys
            .into_iter()
            .enumerate()
            .map(|(i, key)| {
                let len = match blocks {
                    0 => 0,
                    _ if i % 11 == 5 => random.below(400),
                    _ => 16 * blocks - random.below(16),
                };
                let aad = if i % 13 == 7 { random.below(40) } else { [8, 12, 14][i % 3] };
                let [nonce, aad, data] = [11, aad, len].map(|len| random.bytes(len));
                Sealed { key, nonce, aad, data, tag: vec![0; 16] }
            })
            .collect();
        assert_ccm_agrees(bits, &plain);
    }
}

#[test]
fn packets_of_ccm_may_lie_between_guard_pages() {
    let mut random = Random(6);
    let mut pages: Vec<_> = (0..40).map(|_| Guarded::new()).collect();
    for kernel in tiers() {
        let keys = encrypt_keys(kernel, &[5; 16]);
        for start in (0..500).step_by(16) {
            for seal in [false, true] {
                let at_end = random.below(2) == 0;
                let mut jobs: Vec<_> = pages
                    .chunks_mut(2)
                    .enumerate()
                    .map(|(i, pages)| {
                        let [data, aad] = pages else { panic!("an even number of pages") };
                        let aad_len = random.below(40);
                        CcmJob {
                            keys: &keys,
                            nonce: &[1; 16],
                            nonce_len: 11,
                            icv_len: 16,
                            aad: aad.copy(&random.bytes(aad_len), at_end),
                            data: data.copy(&random.bytes(start + i), at_end),
                            tag: Cell::new([0; 16]),
                            state: Cell::new([0; 16]),
                        }
                    })
                    .collect();
                ccm(kernel, KeyBits::Aes128, seal, &mut jobs);
            }
        }
    }
}

#[test]
fn round_keys_are_the_same_on_every_tier() {
    let mut random = Random(7);
    for bits in KeyBits::ALL {
        let key = random.bytes(bits.bytes());
        let all = |keys: &RoundKeys| keys.0.map(|block| block.0);
        for kernel in tiers() {
            let [forward, backward] =
                [encrypt_keys, decrypt_keys].map(|expand| all(&expand(kernel, &key)));
            assert_eq!(forward, all(&encrypt_keys(None, &key)), "{}", name(kernel));
            assert_eq!(backward, all(&decrypt_keys(None, &key)), "{}", name(kernel));
            for alg in [MacAlg::AesXcbc, MacAlg::AesCmac(bits)] {
                if alg == MacAlg::AesXcbc && bits != KeyBits::Aes128 {
                    continue;
                }
                let [here, there] = [kernel, None].map(|kernel| mac_key(kernel, alg, &key));
                assert_eq!(all(&here.round_keys), all(&there.round_keys), "{}", name(kernel));
                assert_eq!(here.whole.0, there.whole.0, "{}", name(kernel));
                assert_eq!(here.padded.0, there.padded.0, "{}", name(kernel));
            }
        }
    }
}
