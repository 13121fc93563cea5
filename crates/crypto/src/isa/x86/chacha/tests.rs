//! MACs with keys and messages at the edges of the limbs' ranges, which no cipher would ever yield.

use poly1305::{
    Poly1305,
    universal_hash::{KeyInit, UniversalHash},
};

use super::{Field, Finish, GROUP, InLanes, Scratch, wide::Pad};
use crate::{
    block::ChaChaKey,
    isa::{
        job::ChaChaJob,
        x86::{Kernel, token::Door, without_vaes256},
    },
    pass::tests::{Random, kernels},
};

/// A MAC's key, additional data and data.
type Message = ([u8; 32], Vec<u8>, Vec<u8>);

/// Code that computes MACs.
#[derive(Clone, Copy, Debug)]
enum How {
    /// In general registers, two messages at a time.
    Beside,
    /// In lanes.
    Lanes,
}

fn macs<W: Field + Door>(w: W, how: How, jobs: &[ChaChaJob<'_>], keys: &[[u8; 32]]) -> Vec<u128> {
    let mut scratch = Scratch::new();
    for (Pad(to), key) in scratch.keys.iter_mut().zip(keys) {
        to[..32].copy_from_slice(key);
    }
    match how {
        How::Beside => w.enter(Finish { scratch: &mut scratch, jobs, next: 0 }),
        How::Lanes => {
            w.enter(InLanes { scratch: &mut scratch, jobs, start: 0, end: jobs.len() });
        }
    }
    scratch.tags[..jobs.len()].to_vec()
}

fn oracle((key, aad, data): &Message) -> u128 {
    let mut mac = Poly1305::new(&(*key).into());
    mac.update_padded(aad);
    mac.update_padded(data);
    mac.update_padded(&lengths(aad, data).to_le_bytes());
    u128::from_le_bytes(mac.finalize().into())
}

fn lengths(aad: &[u8], data: &[u8]) -> u128 {
    aad.len() as u128 | (data.len() as u128) << 64
}

fn check(messages: &[Message]) {
    let cipher_key = ChaChaKey([0; 32]);
    for messages in messages.chunks(GROUP) {
        let expected: Vec<_> = messages.iter().map(oracle).collect();
        let keys: Vec<_> = messages.iter().map(|(key, ..)| *key).collect();
        let mut copies: Vec<_> = messages.iter().map(|(_, _, data)| data.clone()).collect();
        let nonce = [0; 16];
        let jobs: Vec<_> = messages
            .iter()
            .zip(&mut copies)
            .map(|((_, aad, _), data)| ChaChaJob {
                key: &cipher_key,
                nonce: &nonce,
                aad,
                data,
                tag: [0; 16],
            })
            .collect();
        for kernel in kernels() {
            for how in [How::Beside, How::Lanes] {
                let tags = without_vaes256!(kernel, |token| macs(token, how, &jobs, &keys));
                for ((tag, expected), message) in tags.iter().zip(&expected).zip(messages) {
                    assert_eq!(tag, expected, "{kernel:?}, {how:?}: {message:02x?}");
                }
            }
        }
    }
}

/// Keys whose multiplier is 0, 1, or as large as can be, or has one bit, or its bits above all
/// borders of limbs; with nothing or everything added at the end.
fn keys() -> Vec<[u8; 32]> {
    let mut keys = Vec::new();
    let bits = (0..128).map(|bit| 1u128 << bit);
    for r in [0, 1, !0, !0 << 26, !0 << 44, !0 << 64, 1 << 44 | 1 << 26].into_iter().chain(bits) {
        for pad in [0, !0] {
            let mut key = [0; 32];
            key[..16].copy_from_slice(&u128::to_le_bytes(r));
            key[16..].copy_from_slice(&u128::to_le_bytes(pad));
            keys.push(key);
        }
    }
    keys
}

#[test]
fn messages_of_one_byte_value_agree_with_the_oracle() {
    for len in [0, 1, 15, 16, 17, 31, 32, 48, 64, 127, 128, 160, 1000, 4096] {
        for byte in [0, 0xff, 0x80] {
            let messages: Vec<_> =
                keys().into_iter().map(|key| (key, vec![byte; 16], vec![byte; len])).collect();
            check(&messages);
        }
    }
}

#[test]
fn sums_around_the_modulus_agree_with_the_oracle() {
    // The multiplier is one, so that the sum of the blocks is what is reduced: here 2^130 - 5, less
    // or more by some. Each of the three blocks has a bit behind its 128.
    let key = keys()[3];
    assert_eq!(key[..16], 1u128.to_le_bytes());
    let mut messages = Vec::new();
    for off in -10..=10 {
        for aad in [0, 1, u128::MAX >> 1, 0x0123_4567_89ab_cdef << 40] {
            let aad = aad.to_le_bytes().to_vec();
            let beside =
                lengths(&aad, &aad).wrapping_add(u128::from_le_bytes(*aad.first_chunk().unwrap()));
            let data = 0u128.wrapping_sub(5).wrapping_add_signed(off).wrapping_sub(beside);
            messages.push((key, aad, data.to_le_bytes().to_vec()));
        }
    }
    check(&messages);
}

#[test]
fn messages_of_unlike_lengths_agree_with_the_oracle() {
    let mut random = Random(6);
    for round in 0..100 {
        let messages: Vec<_> = (0..1 + random.below(GROUP))
            .map(|_| {
                let mut key = random.array();
                if round % 2 == 0 {
                    key = [0xff; 32];
                }
                let (aad, len) = ([8, 12, random.below(40)][random.below(3)], random.below(600));
                (key, random.bytes(aad), random.bytes(len))
            })
            .collect();
        check(&messages);
    }
}
