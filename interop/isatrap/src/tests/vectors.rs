//! Whole algorithms made of single operations, against their standards' examples.

use crate::{
    compute::{Lane, compute},
    decode::Operation,
};

fn lane(hex: &str) -> Lane {
    u128::from_str_radix(hex, 16).unwrap().to_be_bytes()
}

fn aes(operation: Operation, state: Lane, key: Lane) -> Lane {
    compute(operation, state, key, [0; 16], 0)
}

/// FIPS 197 appendix A.1 and B: the round keys and the text.
const ROUND_KEYS: [&str; 11] = [
    "2b7e151628aed2a6abf7158809cf4f3c",
    "a0fafe1788542cb123a339392a6c7605",
    "f2c295f27a96b9435935807a7359f67f",
    "3d80477d4716fe3e1e237e446d7a883b",
    "ef44a541a8525b7fb671253bdb0bad00",
    "d4d1c6f87c839d87caf2b8bc11f915bc",
    "6d88a37a110b3efddbf98641ca0093fd",
    "4e54f70e5f5fc9f384a64fb24ea6dc4f",
    "ead27321b58dbad2312bf5607f8d292f",
    "ac7766f319fadc2128d12941575c006e",
    "d014f9a8c9ee2589e13f0cc8b6630ca6",
];

#[test]
fn aes_rounds_make_the_example_of_fips_197() {
    let keys = ROUND_KEYS.map(lane);
    let (plain, cipher) =
        (lane("3243f6a8885a308d313198a2e0370734"), lane("3925841d02dc09fbdc118597196a0b32"));
    let xor = |a: Lane, b: Lane| std::array::from_fn(|i| a[i] ^ b[i]);
    let mut state = xor(plain, keys[0]);
    for key in &keys[1..10] {
        state = aes(Operation::AesEnc, state, *key);
    }
    assert_eq!(aes(Operation::AesEncLast, state, keys[10]), cipher);

    // The equivalent inverse cipher of section 5.3.5: AESENCLAST and AESDEC with a key of zeros make
    // the inverse MixColumns of a round key.
    let zero = [0; 16];
    let unmixed = |key| aes(Operation::AesDec, aes(Operation::AesEncLast, key, zero), zero);
    let mut state = xor(cipher, keys[10]);
    for key in keys[1..10].iter().rev() {
        state = aes(Operation::AesDec, state, unmixed(*key));
    }
    assert_eq!(aes(Operation::AesDecLast, state, keys[0]), plain);
}

#[test]
fn carryless_products_are_those_of_intels_paper() {
    // Gueron and Kounavis, "Intel Carry-Less Multiplication Instruction", section on PCLMULQDQ.
    let (x, y) =
        (lane("7b5b54657374566563746f725d53475d"), lane("48692853686179295b477565726f6e5d"));
    for (immediate, expected) in [
        (0x00, "1d4d84c85c3440c0929633d5d36f0451"),
        (0x01, "1a2bf6db3a30862fbabf262df4b7d5c9"),
        (0x10, "1bd17c8d556ab5a17fa540ac2a281315"),
        (0x11, "1d1e1f2c592e7c45d66ee03e410fd4ed"),
    ] {
        let reversed = |mut lane: Lane| {
            lane.reverse();
            lane
        };
        let found = compute(Operation::Clmul, reversed(x), reversed(y), [0; 16], immediate);
        assert_eq!(reversed(found), lane(expected), "{immediate:#x}");
    }
}

/// The block that holds "abc" (FIPS 180-4 section 5.1.1), as message words.
const ABC: [u32; 16] = [0x6162_6380, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 24];

/// Four words, the first in the lowest place.
fn rising(words: [u32; 4]) -> Lane {
    words.iter().rev().fold(0_u128, |all, &word| all << 32 | u128::from(word)).to_le_bytes()
}

/// Four words, the first in the highest place.
fn falling(mut words: [u32; 4]) -> Lane {
    words.reverse();
    rising(words)
}

fn words(lane: Lane) -> [u32; 4] {
    std::array::from_fn(|i| (u128::from_le_bytes(lane) >> (32 * i)) as u32)
}

fn added(x: Lane, y: Lane) -> Lane {
    let (x, y) = (words(x), words(y));
    rising(std::array::from_fn(|i| x[i].wrapping_add(y[i])))
}

fn xored(x: Lane, y: Lane) -> Lane {
    (u128::from_le_bytes(x) ^ u128::from_le_bytes(y)).to_le_bytes()
}

#[test]
fn sha1_steps_make_the_digest_of_abc() {
    let op = |operation, x, y, immediate| compute(operation, x, y, [0; 16], immediate);
    let start = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let mut schedule: Vec<Lane> =
        ABC.chunks(4).map(|four| falling(four.try_into().unwrap())).collect();
    for group in 4..20 {
        let [a, b, c, d] = schedule[group - 4..].try_into().unwrap();
        let partial = xored(op(Operation::Sha1Msg1, a, b, 0), c);
        schedule.push(op(Operation::Sha1Msg2, partial, d, 0));
    }
    let first_e: Lane = falling([0xc3d2_e1f0, 0, 0, 0]);
    let (mut abcd, mut before) = (falling(start), None);
    for (group, message) in schedule.into_iter().enumerate() {
        // SHA1NEXTE adds the turned `a` of four rounds ago to the message.
        let with_e = match before {
            None => added(first_e, message),
            Some(earlier) => op(Operation::Sha1NextE, earlier, message, 0),
        };
        before = Some(abcd);
        abcd = op(Operation::Sha1Rnds4, abcd, with_e, (group / 5) as u8);
    }
    let e = op(Operation::Sha1NextE, before.unwrap(), first_e, 0);
    let mut digest = words(added(abcd, falling(start)));
    digest.reverse();
    assert_eq!(digest, [0xa999_3e36, 0x4706_816a, 0xba3e_2571, 0x7850_c26c]);
    assert_eq!(words(e)[3], 0x9cd0_d89d);
}

#[test]
fn sha256_steps_make_the_digest_of_abc() {
    let op = |operation, x, y| compute(operation, x, y, [0; 16], 0);
    let mut schedule: Vec<Lane> =
        ABC.chunks(4).map(|four| rising(four.try_into().unwrap())).collect();
    for group in 4..16 {
        let [a, b, c, d] = schedule[group - 4..].try_into().unwrap();
        // Seven words before each new one.
        let ([_, x, y, z], [last, ..]) = (words(c), words(d));
        let partial = added(op(Operation::Sha256Msg1, a, b), rising([x, y, z, last]));
        schedule.push(op(Operation::Sha256Msg2, partial, d));
    }
    let start = roots(2).map(|root| root as u32);
    let [a, b, c, d, e, f, g, h] = *start.first_chunk().unwrap();
    let (mut abef, mut cdgh) = (falling([a, b, e, f]), falling([c, d, g, h]));
    let constants = roots(3);
    for (group, message) in schedule.into_iter().enumerate() {
        let four = std::array::from_fn(|i| constants[group * 4 + i] as u32);
        let message = words(added(message, rising(four)));
        for pair in message.chunks(2) {
            let pair = rising([pair[0], pair[1], 0, 0]);
            let next = compute(Operation::Sha256Rnds2, cdgh, abef, pair, 0);
            (cdgh, abef) = (abef, next);
        }
    }
    let mut digest = words(added(abef, falling([a, b, e, f])));
    digest.reverse();
    assert_eq!(digest, [0xba78_16bf, 0x8f01_cfea, 0xb003_61a3, 0x9617_7a9c]);
}

/// The first 32 bits behind the point of the square or cube roots of the first 64 primes (FIPS 180-4
/// sections 4.2.2 and 5.3.3).
fn roots(degree: u32) -> [u64; 64] {
    let primes = (2_u128..).filter(|n| (2..*n).all(|d| n % d != 0));
    let mut found = primes.map(|prime| {
        let target = prime << (32 * degree);
        let (mut low, mut high) = (0_u128, 1 << 40);
        while high - low > 1 {
            let middle = u128::midpoint(low, high);
            if middle.pow(degree) <= target { low = middle } else { high = middle }
        }
        (low & 0xffff_ffff) as u64
    });
    std::array::from_fn(|_| found.next().unwrap())
}
