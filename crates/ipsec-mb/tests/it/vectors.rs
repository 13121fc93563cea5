//! Published vectors of what is worked on apart, through this library and through the peer.

use std::ptr;

use stand_in::types::*;

use crate::{library::Library, suites::Aligned};

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// Does something with Convoy's library, and with the peer where it is installed.
fn with_each(work: impl Fn(&Library)) {
    work(&Library::ours());
    if let Some(peer) = Library::peer() {
        work(&peer);
    }
}

fn run(library: &Library, job: Job) {
    let (f, mgr) = (*library.functions(), library.mgr());
    // SAFETY: the manager is there.
    let next = unsafe { f.get_next_job.unwrap()(mgr) };
    // SAFETY: the library lends it.
    unsafe { next.write(Job { chain_order: ORDER_CIPHER_HASH, ..job }) };
    // SAFETY: the job is good.
    let mut back = unsafe { f.submit_job.unwrap()(mgr) };
    if back.is_null() {
        // SAFETY: as above.
        back = unsafe { f.flush_job.unwrap()(mgr) };
    }
    assert_eq!(back, next);
    // SAFETY: it was handed back.
    assert_eq!((unsafe { (*back).status }, library.errno()), (STATUS_COMPLETED, 0));
}

/// Round keys for encryption and for decryption.
fn expanded(library: &Library, key: &[u8]) -> [Box<Aligned<240>>; 2] {
    let (mut enc, mut dec) = (Box::new(Aligned([0; 240])), Box::new(Aligned([0; 240])));
    let expand = library.functions().keyexp[key.len() / 8 - 2].unwrap();
    // SAFETY: there is room for round keys.
    unsafe {
        expand(key.as_ptr().cast(), enc.0.as_mut_ptr().cast(), dec.0.as_mut_ptr().cast());
    }
    [enc, dec]
}

/// A cipher over a text, of which `len` counts as the cipher's lengths do.
fn ciphered(
    library: &Library,
    (cipher_mode, seal): (u32, bool),
    (enc, dec, key_len): (*const u8, *const u8, usize),
    iv: &[u8],
    (text, cipher_len): (&[u8], u64),
) -> Vec<u8> {
    // What is behind the last bit is the output's.
    let mut out = vec![0xff; text.len()];
    run(
        library,
        Job {
            cipher_mode,
            cipher_direction: if seal { DIR_ENCRYPT } else { DIR_DECRYPT },
            hash_alg: AUTH_NULL,
            enc_keys: enc.cast(),
            dec_keys: dec.cast(),
            key_len: key_len as u64,
            src: text.as_ptr(),
            dst: out.as_mut_ptr(),
            cipher_len,
            iv: iv.as_ptr(),
            iv_len: iv.len() as u64,
            ..Job::EMPTY
        },
    );
    out
}

const PLAIN: &str = "6bc1bee22e409f96e93d7e117393172a ae2d8a571e03ac9c9eb76fac45af8e51
                     30c81c46a35ce411e5fbc1191a0a52ef f69f2445df4f9b17ad2b417be66c3710";
const KEYS: [&str; 3] = [
    "2b7e151628aed2a6abf7158809cf4f3c",
    "8e73b0f7da0e6452c810f32b809079e562f8ead2522c6b7b",
    "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
];

/// NIST SP 800-38A sections F.1 and F.3.13 to F.3.18.
#[test]
fn ecb_and_cfb_are_those_of_sp_800_38a() {
    let ecb = [
        "3ad77bb40d7a3660a89ecaf32466ef97 f5d3d58503b9699de785895a96fdbaaf
         43b1cd7f598ece23881b00e3ed030688 7b0c785e27e8ad3f8223207104725dd4",
        "bd334f1d6e45f25ff712a214571fa5cc 974104846d0ad3ad7734ecb3ecee4eef
         ef7afd2270e2e60adce0ba2face6444e 9a4b41ba738d6c72fb16691603c18e0e",
        "f3eed1bdb5d2a03c064b5a7e3db181f8 591ccb10d410ed26dc5ba74a31362870
         b6ed21b99ca6f4f9f153e7b1beafed1d 23304b7a39f9f3ff067d8d8f9e24ecc7",
    ];
    let cfb = [
        "3b3fd92eb72dad20333449f8e83cfb4a c8a64537a0b3a93fcde3cdad9f1ce58b
         26751f67a3cbb140b1808cf187a4f4df c04b05357c5d1c0eeac4c66f9ff7f2e6",
        "cdc80d6fddf18cab34c25909c99a4174 67ce7f7f81173621961a2b70171d3d7a
         2e1e8a1dd59b88b1c8e60fed1efac4c9 c05f9f9ca9834fa042ae8fba584b09ff",
        "dc7e84bfda79164b7ecd8486985d3860 39ffed143b28b1c832113c6331e5407b
         df10132415e54b92a13ed0a8267ae2f9 75a385741ab9cef82031623d55b1e471",
    ];
    let (plain, iv) = (hex(PLAIN), hex("000102030405060708090a0b0c0d0e0f"));
    with_each(|library| {
        for (at, key) in KEYS.map(hex).iter().enumerate() {
            let [enc, dec] = expanded(library, key);
            let (enc, dec) = (enc.0.as_ptr(), dec.0.as_ptr());
            // The cipher's encryption decrypts CFB, too.
            let kinds = [(CIPHER_ECB, dec, &iv[..0], ecb[at]), (CIPHER_CFB, enc, &iv[..], cfb[at])];
            for (cipher, dec, iv, sealed) in kinds {
                if !library.has_cipher(cipher) {
                    continue;
                }
                let (keys, sealed) = ((enc, dec, key.len()), hex(sealed));
                let out = ciphered(library, (cipher, true), keys, iv, (&plain, 64));
                assert_eq!(out, sealed, "{cipher}, {} bytes of key", key.len());
                let out = ciphered(library, (cipher, false), keys, iv, (&sealed, 64));
                assert_eq!(out, plain, "{cipher}, {} bytes of key", key.len());
            }
        }
    });
}

/// NIST SP 800-38A sections F.3.13 and F.3.17, block by block, and the front of one.
#[test]
fn single_blocks_of_cfb_are_called_directly() {
    let plain = hex(PLAIN);
    with_each(|library| {
        let one_128 = library.functions().cfb_one_128.unwrap();
        #[cfg_attr(abi_1, expect(unused_mut))]
        let mut kinds = vec![(KEYS[0], one_128, "3b3fd92eb72dad20333449f8e83cfb4a")];
        #[cfg(not(abi_1))]
        if let Some(later) = library.later() {
            let sealed = "dc7e84bfda79164b7ecd8486985d3860";
            kinds.push((KEYS[2], later.cfb_one_256.unwrap(), sealed));
        }
        for (key, one, sealed) in kinds {
            let [enc, _] = expanded(library, &hex(key));
            let (iv, sealed) = (hex("000102030405060708090a0b0c0d0e0f"), hex(sealed));
            for len in [16, 15, 7, 1] {
                let mut out = [0xee; 17];
                let (dst, src) = (out.as_mut_ptr().cast(), plain.as_ptr().cast());
                let keys = enc.0.as_ptr().cast();
                // SAFETY: all lengths are right.
                unsafe { one(dst, src, iv.as_ptr().cast(), keys, len as u64) };
                assert_eq!(library.errno(), 0);
                assert_eq!(out[..len], sealed[..len], "{len} bytes");
                assert!(out[len..].iter().all(|byte| *byte == 0xee), "{len} bytes");
            }
        }
    });
}

/// 3GPP TS 33.401 section C.1, test set 1.
#[test]
fn ctr_by_bits_is_eea2() {
    let key = hex("d3c5d592327fb11c4035c6680af8c6d1");
    let counter = hex("398a59b4ac0000000000000000000000");
    let plain = hex("981ba6824c1bfb1ab485472029b71d808ce33e2cc3c0b5fc1f3de8a6dc66b1f0");
    let sealed = hex("e9fed8a63d155304d71df20bf3e82214b20ed7dad2f233dc3c22d7bdeeed8e78");
    with_each(|library| {
        let [enc, _] = expanded(library, &key);
        let keys = (enc.0.as_ptr(), ptr::null(), 16);
        let cipher = |seal, text: &[u8]| {
            ciphered(library, (CIPHER_CNTR_BITLEN, seal), keys, &counter, (text, 253))
        };
        // The three bits behind the text are what they were in the output.
        let mut expected = sealed.clone();
        expected[31] |= 7;
        assert_eq!(cipher(true, &plain), expected);
        expected.copy_from_slice(&plain);
        expected[31] |= 7;
        assert_eq!(cipher(false, &sealed), expected);
    });
}

/// 3GPP TS 33.401 section C.2, test sets 1 to 3: messages of part of a byte, of whole bytes, and of more than a block.
#[test]
fn cmac_by_bits_is_eia2() {
    let sets = [
        ("2bd6459f82c5b300952c49104881ff48", "38a6f056c00000003332346263393840", 122, "118c6eb8"),
        ("d3c5d592327fb11c4035c6680af8c6d1", "398a59b4d4000000484583d5afe082ae", 128, "b93787e6"),
        (
            "7e5e94431e11d73828d739cc6ced4573",
            "36af6144c4000000 b3d3c9170a4e1632f60f861013d22d84b726b6a278d802d1eeaf1321ba5929dc",
            318,
            "1f60b01d",
        ),
    ];
    with_each(|library| {
        for (key, message, hash_len, tag) in sets {
            let [enc, _] = expanded(library, &hex(key));
            let (mut k1, mut k2) = ([0u8; 16], [0u8; 16]);
            let subkeys = library.functions().cmac_subkeys_128.unwrap();
            let (at1, at2) = (k1.as_mut_ptr(), k2.as_mut_ptr());
            // SAFETY: there is room for subkeys.
            unsafe { subkeys(enc.0.as_ptr().cast(), at1.cast(), at2.cast()) };
            let parts = [enc.0.as_ptr(), at1.cast_const(), at2.cast_const()];
            let u = parts.map(|part| part.expose_provenance());
            assert_eq!(
                hashed(library, AUTH_AES_CMAC_BITLEN, u, &hex(message), hash_len, 4),
                hex(tag)
            );
        }
    });
}

/// A hash over a message, of which `hash_len` counts as the hash's lengths do.
fn hashed(
    library: &Library,
    hash_alg: u32,
    u: [usize; 3],
    message: &[u8],
    hash_len: u64,
    tag_len: usize,
) -> Vec<u8> {
    let mut tag = vec![0; tag_len];
    let (src, at) = (message.as_ptr(), tag.as_mut_ptr());
    let (cipher_mode, tag_len) = (CIPHER_NULL, tag_len as u64);
    run(library, Job { cipher_mode, hash_alg, src, hash_len, u, tag: at, tag_len, ..Job::EMPTY });
    tag
}

/// FIPS 180 examples, of one block and of two.
#[test]
fn digests_are_those_of_fips_180() {
    let one = [
        (AUTH_SHA_1, "a9993e364706816aba3e25717850c26c9cd0d89d"),
        (AUTH_SHA_224, "23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7"),
        (AUTH_SHA_256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (
            AUTH_SHA_384,
            "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed
             8086072ba1e7cc2358baeca134c825a7",
        ),
        (
            AUTH_SHA_512,
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a
             2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        ),
    ];
    let two = [
        (AUTH_SHA_1, "84983e441c3bd26ebaae4aa1f95129e5e54670f1"),
        (AUTH_SHA_256, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"),
    ];
    let long = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    with_each(|library| {
        for (hash, expected) in one {
            check_digest(library, hash, b"abc", &hex(expected));
        }
        for (hash, expected) in two {
            check_digest(library, hash, long, &hex(expected));
        }
    });
}

/// As a job, and called directly.
fn check_digest(library: &Library, hash: u32, message: &[u8], expected: &[u8]) {
    let tag = hashed(library, hash, [0; 3], message, message.len() as u64, expected.len());
    assert_eq!(tag, expected, "{hash}");
    let direct = library.functions().plain_hashes[(hash - AUTH_SHA_1) as usize].unwrap();
    let mut tag = vec![0xee; expected.len() + 1];
    let (src, at) = (message.as_ptr().cast(), tag.as_mut_ptr().cast());
    // SAFETY: there is room for a digest.
    unsafe { direct(src, message.len() as u64, at) };
    assert_eq!((&tag[..expected.len()], tag[expected.len()]), (expected, 0xee), "{hash}");
}

const VERSE: &[u8] =
    b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip \
                       for the future, sunscreen would be it.";

/// RFC 8439 sections 2.4.2 and 2.5.2.
#[test]
fn chacha20_and_poly1305_are_those_of_rfc_8439() {
    let sealed = hex("6e2e359a2568f98041ba0728dd0d6981e97e7aec1d4360c20a27afccfd9fae0b
         f91b65c5524733ab8f593dabcd62b3571639d624e65152ab8f530c359f0861d8
         07ca0dbf500d6a6156a38e088a22b65e52bc514d16ccf806818ce91ab7793736
         5af90bbf74a35be6b40b8eedf2785e42874d");
    let (key, nonce): (Vec<u8>, _) = ((0..32).collect(), hex("000000000000004a00000000"));
    let one_time = hex("85d6be7857556d337f4452fe42d506a80103808afb0db2fd4abff6af4149f51b");
    let message = b"Cryptographic Forum Research Group";
    let tag = hex("a8061dc1305136c6c22b8baf0c0127a9");
    with_each(|library| {
        let keys = (key.as_ptr(), ptr::null(), 32);
        let out = ciphered(library, (CIPHER_CHACHA20, true), keys, &nonce, (VERSE, 114));
        assert_eq!(out, sealed);
        let out = ciphered(library, (CIPHER_CHACHA20, false), keys, &nonce, (&sealed, 114));
        assert_eq!(out, VERSE);
        let u = [one_time.as_ptr().expose_provenance(), 0, 0];
        assert_eq!(hashed(library, AUTH_POLY1305, u, message, 34, 16), tag);
    });
}

/// RFC 9001 sections A.2 and A.5, many times over.
#[cfg(not(abi_1))]
#[test]
fn masks_of_quic_are_those_of_rfc_9001() {
    use std::ffi::c_void;

    use stand_in::ffi::{imb_quic_hp_aes_ecb, imb_quic_hp_chacha20};

    let ours = Library::ours();
    let hp = hex("9f50449e04a0e810283a1e9933adedd2");
    let [enc, _] = expanded(&ours, &hp);
    let key = hex("25a282b9e82f06f21f488917a4fc8f1b73573685608597d0efcb076b0ab7a7a4");
    let kinds = [
        (true, "d1b1c98dd7689fb8ec11d242b123dc9b", "437b9aec36"),
        (false, "5e5cd55c41f69080575d7999c25a5bfb", "aefefe7d03"),
    ];
    for (aes, sample, mask) in kinds {
        let (sample, mask) = (hex(sample), hex(mask));
        for count in [0, 1, 63, 64, 65, 130] {
            let mut out = vec![[0xee; 6]; count];
            let src: Vec<_> = out.iter().map(|_| sample.as_ptr().cast::<c_void>()).collect();
            let dst: Vec<_> = out.iter_mut().map(|to| to.as_mut_ptr().cast::<c_void>()).collect();
            let (mgr, dst, src, count) = (ours.mgr(), dst.as_ptr(), src.as_ptr(), count as u64);
            if aes {
                let key = enc.0.as_ptr().cast();
                // SAFETY: the arrays have so many elements.
                unsafe { imb_quic_hp_aes_ecb(mgr, key, dst, src, count, 16) };
            } else {
                // SAFETY: as above.
                unsafe { imb_quic_hp_chacha20(mgr, key.as_ptr().cast(), dst, src, count) };
            }
            assert_eq!(ours.errno(), 0);
            assert!(out.iter().all(|out| out[..5] == mask && out[5] == 0xee), "{count} packets");
        }
    }
}

/// The same with key data that lies anywhere, behind which is something else.
#[test]
fn keys_of_ghash_lie_anywhere_and_in_their_room() {
    let (h, ours) = (hex("66e94bd4ef8a2c3b884cfa59ca342b2e"), Library::ours());
    let blocks = hex("0388dace60b6a392f328c2b971b2fe78 00000000000000000000000000000080");
    let expected = hex("f38cbb1ad69223dcc3457ae5b6b0f885");
    for shift in [0, 1, 16] {
        let mut data = Box::new(Aligned([0xee; 1344]));
        let at: *mut GcmKey = data.0[shift..].as_mut_ptr().cast();
        // SAFETY: there is room for key data.
        unsafe { ours.functions().ghash_pre.unwrap()(h.as_ptr().cast(), at) };
        let first = [0u8; 16];
        let u = [at.expose_provenance(), first.as_ptr().expose_provenance(), 0];
        assert_eq!(hashed(&ours, AUTH_GHASH, u, &blocks, 32, 16), expected, "shift {shift}");
        let mut tag = [0u8; 16];
        let (src, to) = (blocks.as_ptr().cast(), tag.as_mut_ptr().cast());
        // SAFETY: all lengths are right.
        unsafe { ours.functions().ghash.unwrap()(at, src, 32, to, 16) };
        assert_eq!(tag.to_vec(), expected, "shift {shift}");
        let around = data.0[..shift].iter().chain(&data.0[shift + GCM_KEY_BYTES..]);
        assert!(around.into_iter().all(|byte| *byte == 0xee), "shift {shift}");
    }
}

/// Test case 2 of "The Galois/Counter Mode of Operation" by McGrew and Viega, as a job and called directly, and with the
/// key data of AES-GCM.
#[test]
fn ghash_is_that_of_gcm_s_specification() {
    let (h, key) = (hex("66e94bd4ef8a2c3b884cfa59ca342b2e"), [0u8; 16]);
    let blocks = hex("0388dace60b6a392f328c2b971b2fe78 00000000000000000000000000000080");
    let expected = hex("f38cbb1ad69223dcc3457ae5b6b0f885");
    with_each(|library| {
        let f = library.functions();
        for (expand, secret) in [(f.ghash_pre, &h[..]), (f.gcm_pre[0], &key)] {
            let mut data = Box::new(Aligned([0u8; 1280]));
            let at = data.0.as_mut_ptr().cast();
            // SAFETY: there is room for key data.
            unsafe { expand.unwrap()(secret.as_ptr().cast(), at) };
            let first = [0u8; 16];
            let u = [at.expose_provenance(), first.as_ptr().expose_provenance(), 0];
            assert_eq!(hashed(library, AUTH_GHASH, u, &blocks, 32, 16), expected);
            // In two steps, the first of which is no whole block but for its zeros.
            let mut tag = [0u8; 16];
            let ghash = f.ghash.unwrap();
            for part in [&blocks[..16], &blocks[16..]] {
                let (src, to) = (part.as_ptr().cast(), tag.as_mut_ptr().cast());
                // SAFETY: all lengths are right.
                unsafe { ghash(at, src, part.len() as u64, to, 16) };
            }
            assert_eq!(tag.to_vec(), expected);
        }
    });
}
