use aws_lc_rs::hmac as oracle;
use hmac::{KeyInit, Mac};

use super::*;
use crate::{
    Cpu,
    isa::job::TRAILER_MAX,
    pass::tests::{Guarded, Random},
};

/// Every way to hash on this machine, less what `CONVOY_DENY_CPU` denies, with and without the SHA
/// extensions.
fn hashers(alg: HashAlg) -> Vec<Hasher> {
    let cpu = Cpu::detect().unwrap();
    if !cpu.has_sha_ni() {
        println!("SKIPPED in part: sha-ni: not on this machine, or denied");
    }
    let denied = std::env::var(Cpu::DENY_VARIABLE).unwrap_or_default();
    let without = Cpu::without(&format!("{denied},{}", Cpu::SHA_NI)).unwrap();
    let choose = |cpu: Cpu| cpu.tiers().map(move |tier| Hasher::choose(&cpu, tier, alg));
    choose(cpu).chain(choose(without)).collect()
}

fn key(hasher: Hasher, alg: HashAlg, bytes: &[u8]) -> Box<HmacKey> {
    let mut key = Box::new(HmacKey { inner: [0xaa; 64], outer: [0xaa; 64] });
    expand(hasher, alg, bytes, &mut key);
    key
}

/// The MAC by a program that is not ours.
fn expected(alg: HashAlg, key: &[u8], message: &[u8]) -> Vec<u8> {
    let algorithm = match alg {
        HashAlg::Md5 => {
            let mut mac = hmac::Hmac::<md5::Md5>::new_from_slice(key).unwrap();
            mac.update(message);
            return mac.finalize().into_bytes().to_vec();
        }
        HashAlg::Sha1 => oracle::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        HashAlg::Sha224 => oracle::HMAC_SHA224,
        HashAlg::Sha256 => oracle::HMAC_SHA256,
        HashAlg::Sha384 => oracle::HMAC_SHA384,
        HashAlg::Sha512 => oracle::HMAC_SHA512,
    };
    oracle::sign(&oracle::Key::new(algorithm, key), message).as_ref().to_vec()
}

fn one(hasher: Hasher, alg: HashAlg, key_bytes: &[u8], message: &[u8]) -> Vec<u8> {
    let key = key(hasher, alg, key_bytes);
    let mut jobs = [HmacJob { key: &key, message, trailer: &[], tag: [0; 64] }];
    hmac(hasher, alg, &mut jobs);
    jobs[0].tag[..alg.digest_bytes()].to_vec()
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |c: u8| (c as char).to_digit(16).unwrap() as u8;
    text.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

#[test]
fn vectors_of_rfc_2202_and_4231() {
    use HashAlg::*;
    let jefe = (b"Jefe".to_vec(), b"what do ya want for nothing?".to_vec());
    let long =
        |len| (vec![0xaa; len], b"Test Using Larger Than Block-Size Key - Hash Key First".to_vec());
    for (alg, (key, message), mac) in [
        (Md5, jefe.clone(), "750c783e6ab0b503eaa86e310a5db738"),
        (Md5, (vec![0x0b; 16], b"Hi There".to_vec()), "9294727a3638bb1c13f48ef8158bfc9d"),
        (Md5, (vec![0xaa; 16], vec![0xdd; 50]), "56be34521d144c88dbb8c733f0e8b3f6"),
        (Md5, long(80), "6b1ab7fe4bd7bf8f0b62e6ce61b9d0cd"),
        (Sha1, jefe.clone(), "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"),
        (Sha1, (vec![0x0b; 20], b"Hi There".to_vec()), "b617318655057264e28bc0b6fb378c8ef146be00"),
        (Sha1, (vec![0xaa; 20], vec![0xdd; 50]), "125d7342b9ac11cd91a39af48aa17b4f63f175d3"),
        (Sha1, long(80), "aa4ae5e15272d00e95705637ce8a3b55ed402112"),
        (Sha224, jefe.clone(), "a30e01098bc6dbbf45690f3a7e9e6d0f8bbea2a39e6148008fd05e44"),
        (Sha224, long(131), "95e9a0db962095adaebe9b2d6f0dbce2d499f112f2d2b7273fa6870e"),
        (Sha256, jefe.clone(), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
        (Sha256, long(131), "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"),
        (
            Sha384,
            jefe.clone(),
            "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e\
             8e2240ca5e69e2c78b3239ecfab21649",
        ),
        (
            Sha384,
            long(131),
            "4ece084485813e9088d2c63a041bc5b44f9ef1012a2b588f3cd11f05033ac4c6\
             0c2ef6ab4030fe8296248df163f44952",
        ),
        (
            Sha512,
            jefe.clone(),
            "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554\
             9758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737",
        ),
        (
            Sha512,
            long(131),
            "80b24263c7c1a3ebb71493c1dd7be8b49b46d1f41b4aeec1121b013783f8f352\
             6b56d037e05f2598bd0fd2215d6a1e5295e64f73f63f0aec8b915a985d786598",
        ),
    ] {
        for hasher in hashers(alg) {
            assert_eq!(
                one(hasher, alg, &key, &message),
                unhex(mac),
                "{alg:?} {}",
                hasher.name(alg)
            );
        }
    }
}

#[test]
fn keys_of_any_length() {
    for alg in HashAlg::ALL {
        for len in [0, 1, 20, 63, 64, 65, 127, 128, 129, 183, 184, 185, 300] {
            let key = Random(len as u64).bytes(len);
            for hasher in hashers(alg) {
                assert_eq!(one(hasher, alg, &key, b"x"), expected(alg, &key, b"x"), "{alg:?}");
            }
        }
    }
}

/// A burst of random packets, against a program that is not ours.
fn check_burst(alg: HashAlg, hasher: Hasher, seed: u64, lengths: &[usize], keys: usize) {
    let mut random = Random(seed);
    let secrets: Vec<_> = (0..keys).map(|_| random.bytes(alg.digest_bytes())).collect();
    let expanded: Vec<_> = secrets.iter().map(|secret| key(hasher, alg, secret)).collect();
    let packets: Vec<_> = lengths
        .iter()
        .map(|&len| {
            let trailer = [0, 4, 4, 1 + random.below(TRAILER_MAX)][random.below(4)];
            let shift = random.below(64);
            (random.below(keys), shift, random.bytes(shift + len), random.bytes(trailer))
        })
        .collect();
    let mut jobs: Vec<_> = packets
        .iter()
        .map(|(key, shift, message, trailer)| HmacJob {
            key: &expanded[*key],
            message: &message[*shift..],
            trailer,
            tag: [0; 64],
        })
        .collect();
    hmac(hasher, alg, &mut jobs);
    let name = hasher.name(alg);
    for (job, (key, ..)) in jobs.iter().zip(&packets) {
        let mac = &job.tag[..alg.digest_bytes()];
        let whole = [job.message, job.trailer].concat();
        let len = job.message.len();
        assert_eq!(mac, expected(alg, &secrets[*key], &whole), "{alg:?} {name}, {len} bytes");
    }
}

#[test]
fn bursts_of_any_size_and_lengths() {
    for alg in HashAlg::ALL {
        for hasher in hashers(alg) {
            for seed in 0..60 {
                let mut random = Random(seed);
                let limit = [2, 5, 9, 17, 33, 70, 257][random.below(7)];
                let jobs = 1 + random.below(limit);
                let lengths: Vec<_> = (0..jobs).map(|_| random.length()).collect();
                check_burst(alg, hasher, seed, &lengths, [1, 3, 64][random.below(3)]);
            }
        }
    }
}

#[test]
fn bursts_of_one_length() {
    for alg in HashAlg::ALL {
        for hasher in hashers(alg) {
            for (seed, len) in (0..140).chain([280, 1444]).enumerate() {
                let jobs = [1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 33, 64][seed % 12];
                check_burst(alg, hasher, seed as u64, &vec![len; jobs], [1, 64][seed % 2]);
            }
            check_burst(alg, hasher, 1, &[88; 300], 64);
            check_burst(alg, hasher, 2, &[], 1);
        }
    }
}

#[test]
fn reads_nothing_outside_a_message() {
    let mut pages: Vec<_> = (0..20).map(|_| (Guarded::new(), Guarded::new())).collect();
    for alg in HashAlg::ALL {
        for hasher in hashers(alg) {
            for seed in 0..30 {
                let mut random = Random(seed);
                let secret = random.bytes(16);
                let key = key(hasher, alg, &secret);
                let at_end = seed % 2 == 0;
                let mut jobs: Vec<_> = pages
                    .iter_mut()
                    .map(|(message, trailer)| {
                        let bytes = random.length();
                        let message: &[u8] = message.copy(&random.bytes(bytes), at_end);
                        let bytes = random.below(TRAILER_MAX + 1);
                        let trailer: &[u8] = trailer.copy(&random.bytes(bytes), at_end);
                        HmacJob { key: &key, message, trailer, tag: [0; 64] }
                    })
                    .collect();
                hmac(hasher, alg, &mut jobs);
                for job in &jobs {
                    let whole = [job.message, job.trailer].concat();
                    assert_eq!(&job.tag[..alg.digest_bytes()], expected(alg, &secret, &whole));
                }
            }
        }
    }
}

#[test]
fn bytes_beyond_the_longest_trailer_do_not_count() {
    for alg in HashAlg::ALL {
        let key = key(hashers(alg)[0], alg, b"k");
        for hasher in hashers(alg) {
            let long = HmacJob { key: &key, message: b"m", trailer: &[7; 300], tag: [0; 64] };
            let cut =
                HmacJob { key: &key, message: b"m", trailer: &[7; TRAILER_MAX], tag: [0; 64] };
            let mut jobs = [long, cut];
            hmac(hasher, alg, &mut jobs);
            assert_eq!(jobs[0].tag, jobs[1].tag, "{alg:?} {}", hasher.name(alg));
        }
    }
}
