use aws_lc_rs::digest;

use super::*;
use crate::{Cpu, SecretBytes, pass::tests::Random};

/// Every tier, with the SHA extensions and without them.
fn runners() -> Vec<(Cpu, Runner)> {
    let with_and_without = [Cpu::without("").unwrap(), Cpu::without("sha-ni").unwrap()];
    let of_all = |cpu: Cpu| {
        let tiers: Vec<_> = cpu.tiers().collect();
        tiers.into_iter().map(move |tier| (cpu, Runner::new(&cpu, tier).unwrap()))
    };
    with_and_without.into_iter().flat_map(of_all).collect()
}

fn bytes<const N: usize>(blocks: [u128; N]) -> Vec<[u8; 16]> {
    blocks.iter().map(|block| block.to_be_bytes()).collect()
}

/// NIST SP 800-38A sections F.1.1 to F.1.6.
#[test]
fn blocks_are_those_of_sp_800_38a() {
    let key = bytes([
        0x603d_eb10_15ca_71be_2b73_aef0_857d_7781,
        0x1f35_2c07_3b61_08d7_2d98_10a3_0914_dff4,
    ]);
    let keys = [
        0x2b7e_1516_28ae_d2a6_abf7_1588_09cf_4f3c_u128.to_be_bytes().to_vec(),
        [
            &0x8e73_b0f7_da0e_6452_c810_f32b_8090_79e5_u128.to_be_bytes()[..],
            &0x62f8_ead2_522c_6b7b_u64.to_be_bytes(),
        ]
        .concat(),
        key.concat(),
    ];
    let plain = bytes([
        0x6bc1_bee2_2e40_9f96_e93d_7e11_7393_172a,
        0xae2d_8a57_1e03_ac9c_9eb7_6fac_45af_8e51,
        0x30c8_1c46_a35c_e411_e5fb_c119_1a0a_52ef,
        0xf69f_2445_df4f_9b17_ad2b_417b_e66c_3710,
    ]);
    let sealed = [
        bytes([
            0x3ad7_7bb4_0d7a_3660_a89e_caf3_2466_ef97,
            0xf5d3_d585_03b9_699d_e785_895a_96fd_baaf,
            0x43b1_cd7f_598e_ce23_881b_00e3_ed03_0688,
            0x7b0c_785e_27e8_ad3f_8223_2071_0472_5dd4,
        ]),
        bytes([
            0xbd33_4f1d_6e45_f25f_f712_a214_571f_a5cc,
            0x9741_0484_6d0a_d3ad_7734_ecb3_ecee_4eef,
            0xef7a_fd22_70e2_e60a_dce0_ba2f_ace6_444e,
            0x9a4b_41ba_738d_6c72_fb16_6916_03c1_8e0e,
        ]),
        bytes([
            0xf3ee_d1bd_b5d2_a03c_064b_5a7e_3db1_81f8,
            0x591c_cb10_d410_ed26_dc5b_a74a_3136_2870,
            0xb6ed_21b9_9ca6_f4f9_f153_e7b1_beaf_ed1d,
            0x2330_4b7a_39f9_f3ff_067d_8d8f_9e24_ecc7,
        ]),
    ];
    for (cpu, runner) in runners() {
        for (key, sealed) in keys.iter().zip(&sealed) {
            let encrypt = AesEncryptKey::new(&cpu, &SecretBytes::copy_from(key)).unwrap();
            let decrypt = AesDecryptKey::new(&cpu, &SecretBytes::copy_from(key)).unwrap();
            let mut blocks = plain.clone();
            runner.encrypt_blocks(&encrypt, &mut blocks).unwrap();
            assert_eq!(&blocks, sealed, "{}", runner.tier());
            runner.decrypt_blocks(&decrypt, &mut blocks).unwrap();
            assert_eq!(blocks, plain, "{}", runner.tier());
        }
    }
}

#[test]
fn each_block_is_worked_on_by_itself() {
    let mut random = Random(3);
    for (cpu, runner) in runners() {
        let key = SecretBytes::copy_from(&random.bytes(32));
        let encrypt = AesEncryptKey::new(&cpu, &key).unwrap();
        let decrypt = AesDecryptKey::new(&cpu, &key).unwrap();
        for count in [0, 1, 2, 7, 63, 64, 65, 130] {
            let plain: Vec<[u8; 16]> = (0..count).map(|_| random.array()).collect();
            let (mut together, mut apart) = (plain.clone(), plain.clone());
            runner.encrypt_blocks(&encrypt, &mut together).unwrap();
            for block in apart.chunks_mut(1) {
                runner.encrypt_blocks(&encrypt, block).unwrap();
            }
            assert_eq!(together, apart, "{count} blocks, {}", runner.tier());
            runner.decrypt_blocks(&decrypt, &mut together).unwrap();
            assert_eq!(together, plain, "{count} blocks, {}", runner.tier());
        }
        let error = runner.encrypt_blocks(&AesEncryptKey::empty(), &mut [[0; 16]]);
        assert_eq!(error, Err(JobError::CipherKey));
        let error = runner.decrypt_blocks(&AesDecryptKey::empty(), &mut [[0; 16]]);
        assert_eq!(error, Err(JobError::CipherKey));
    }
}

#[test]
fn digests_of_every_length_are_the_oracle_s() {
    let algs = [
        (HashAlg::Sha1, &digest::SHA1_FOR_LEGACY_USE_ONLY),
        (HashAlg::Sha224, &digest::SHA224),
        (HashAlg::Sha256, &digest::SHA256),
        (HashAlg::Sha384, &digest::SHA384),
        (HashAlg::Sha512, &digest::SHA512),
    ];
    let message = Random(7).bytes(1000);
    for (_, runner) in runners() {
        for (alg, oracle) in algs {
            for len in (0..300).chain([511, 512, 1000]) {
                let mine = runner.digest(alg, &message[..len]);
                let (digest, behind) = mine.split_at(alg.digest_bytes());
                let expected = digest::digest(oracle, &message[..len]);
                assert_eq!(digest, expected.as_ref(), "{alg:?}, {len} bytes, {}", runner.tier());
                assert!(behind.iter().all(|byte| *byte == 0), "{alg:?}");
            }
        }
        // RFC 1321 section A.5.
        let md5 = 0x9001_5098_3cd2_4fb0_d696_3f7d_28e1_7f72_u128.to_be_bytes();
        assert_eq!(runner.digest(HashAlg::Md5, b"abc")[..16], md5);
    }
}

/// RFC 8439 section 2.4.2.
#[test]
fn chacha20_is_that_of_rfc_8439() {
    let text = b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip \
                 for the future, sunscreen would be it.";
    let key = std::array::from_fn(|i| i as u8);
    let nonce = [0, 0, 0, 0, 0, 0, 0, 0x4a, 0, 0, 0, 0];
    for (_, runner) in runners() {
        let mut data = *text;
        runner.chacha20(&key, &nonce, 1, &mut data).unwrap();
        assert_eq!(data[..8], [0x6e, 0x2e, 0x35, 0x9a, 0x25, 0x68, 0xf9, 0x80]);
        assert_eq!(data[104..], [0xb4, 0x0b, 0x8e, 0xed, 0xf2, 0x78, 0x5e, 0x42, 0x87, 0x4d]);
        runner.chacha20(&key, &nonce, 1, &mut data).unwrap();
        assert_eq!(&data, text);
    }
}

#[test]
fn keystream_goes_on_from_block_to_block() {
    let mut random = Random(11);
    let (key, nonce): ([u8; 32], [u8; 12]) = (random.array(), random.array());
    for (_, runner) in runners() {
        // Up to the last block that 32 bits number.
        for (len, first) in [0, 1, 63, 64, 65, 1023, 1024, 1025, 1152, 4000]
            .map(|len: usize| (len, (1u64 << 32) - len.div_ceil(64) as u64))
        {
            let Ok(first) = u32::try_from(first) else { continue };
            let text = random.bytes(len);
            let (mut whole, mut parts) = (text.clone(), text);
            runner.chacha20(&key, &nonce, first, &mut whole).unwrap();
            for (i, part) in parts.chunks_mut(64).enumerate() {
                runner.chacha20(&key, &nonce, first + i as u32, part).unwrap();
            }
            assert!(whole == parts, "{len} bytes, {}", runner.tier());
        }
        let error = runner.chacha20(&key, &nonce, u32::MAX, &mut [0; 65]);
        assert_eq!(error, Err(JobError::CipherLength));
    }
}

/// RFC 8439 section 2.5.2, and vectors 2, 7 and 8 of section A.3.
#[test]
fn poly1305_is_that_of_rfc_8439() {
    for (_, runner) in runners() {
        let key = [
            0x85, 0xd6, 0xbe, 0x78, 0x57, 0x55, 0x6d, 0x33, 0x7f, 0x44, 0x52, 0xfe, 0x42, 0xd5,
            0x06, 0xa8, 0x01, 0x03, 0x80, 0x8a, 0xfb, 0x0d, 0xb2, 0xfd, 0x4a, 0xbf, 0xf6, 0xaf,
            0x41, 0x49, 0xf5, 0x1b,
        ];
        let tag = 0xa806_1dc1_3051_36c6_c22b_8baf_0c01_27a9_u128.to_be_bytes();
        assert_eq!(runner.poly1305(&key, b"Cryptographic Forum Research Group"), tag);
        // What is added at the end is the MAC of nothing.
        let mut key = [0; 32];
        key[16..].copy_from_slice(&tag);
        assert_eq!(runner.poly1305(&key, b""), tag);
        assert_eq!(runner.poly1305(&key, &[0x55; 99]), tag);
        let mut key = [0; 32];
        key[0] = 1;
        let ones =
            [[0xff; 16], *b"\xf0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"];
        let seven = [ones.concat(), [vec![0x11], vec![0; 15]].concat()].concat();
        assert_eq!(runner.poly1305(&key, &seven), 5u128.to_le_bytes());
        let eight = [[0xff; 16], [0xfe; 16], [1; 16]].concat();
        let eight: Vec<u8> =
            eight.iter().enumerate().map(|(i, byte)| if i == 16 { 0xfb } else { *byte }).collect();
        assert_eq!(runner.poly1305(&key, &eight), [0; 16]);
    }
}
