//! What the instructions compute, by their definitions: FIPS 197 for AES, FIPS 180-4 for SHA, and
//! the operation sections of Intel's manual for how both are cut into instructions. No lane knows
//! of another, so everything here works on one.

use crate::decode::Operation;

/// One 128-bit lane, lowest byte first.
pub type Lane = [u8; 16];

/// Applies an operation to one lane: `x` is the first source, `y` the second, `constants` the lane
/// of register 0, which only `SHA256RNDS2` reads.
#[must_use]
pub fn compute(operation: Operation, x: Lane, y: Lane, constants: Lane, immediate: u8) -> Lane {
    match operation {
        Operation::AesEnc => xor(mix_columns(permuted(x, SHIFT_ROWS).map(substitute), MIX), y),
        Operation::AesEncLast => xor(permuted(x, SHIFT_ROWS).map(substitute), y),
        Operation::AesDec => {
            xor(mix_columns(permuted(x, UNSHIFT_ROWS).map(resubstitute), UNMIX), y)
        }
        Operation::AesDecLast => xor(permuted(x, UNSHIFT_ROWS).map(resubstitute), y),
        Operation::Clmul => carryless(half(x, immediate & 1), half(y, immediate >> 4 & 1)),
        _ => unwords(sha(operation, words(x), words(y), words(constants), immediate)),
    }
}

fn xor(x: Lane, y: Lane) -> Lane {
    (u128::from_le_bytes(x) ^ u128::from_le_bytes(y)).to_le_bytes()
}

/// Where each byte of the state comes from (FIPS 197 sections 5.1.2 and 5.3.1).
const SHIFT_ROWS: [usize; 16] = [0, 5, 10, 15, 4, 9, 14, 3, 8, 13, 2, 7, 12, 1, 6, 11];
const UNSHIFT_ROWS: [usize; 16] = [0, 13, 10, 7, 4, 1, 14, 11, 8, 5, 2, 15, 12, 9, 6, 3];
/// First rows of the matrices (sections 5.1.3 and 5.3.3).
const MIX: [u8; 4] = [2, 3, 1, 1];
const UNMIX: [u8; 4] = [14, 11, 13, 9];

fn permuted(state: Lane, from: [usize; 16]) -> Lane {
    from.map(|index| state[index])
}

fn mix_columns(state: Lane, row: [u8; 4]) -> Lane {
    std::array::from_fn(|at| {
        let (column, down) = (at & !3, at & 3);
        (0..4).fold(0, |sum, i| sum ^ times(row[(i + 4 - down) % 4], state[column + i]))
    })
}

/// The product in the field of section 4.2.
const fn times(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while a != 0 {
        if a & 1 == 1 {
            product ^= b;
        }
        b = b << 1 ^ if b >> 7 == 1 { 0x1b } else { 0 };
        a >>= 1;
    }
    product
}

/// The S-box, made as section 5.1.1 defines it: the inverse, then an affine map.
const BOX: [u8; 256] = {
    let mut table = [0; 256];
    let mut value = 0;
    while value < 256 {
        // The inverse is the 254th power.
        let mut inverse = 1;
        let mut count = 0;
        while count < 254 {
            inverse = times(inverse, value as u8);
            count += 1;
        }
        table[value] = inverse
            ^ inverse.rotate_left(1)
            ^ inverse.rotate_left(2)
            ^ inverse.rotate_left(3)
            ^ inverse.rotate_left(4)
            ^ 0x63;
        value += 1;
    }
    table
};

const UNBOX: [u8; 256] = {
    let mut table = [0; 256];
    let mut value = 0;
    while value < 256 {
        table[BOX[value] as usize] = value as u8;
        value += 1;
    }
    table
};

fn substitute(byte: u8) -> u8 {
    BOX[usize::from(byte)]
}

fn resubstitute(byte: u8) -> u8 {
    UNBOX[usize::from(byte)]
}

fn half(lane: Lane, which: u8) -> u64 {
    (u128::from_le_bytes(lane) >> (64 * u32::from(which))) as u64
}

fn carryless(x: u64, y: u64) -> Lane {
    let rows = (0..64).filter(|bit| y >> bit & 1 == 1).map(|bit| u128::from(x) << bit);
    rows.fold(0, |sum, row| sum ^ row).to_le_bytes()
}

fn words(lane: Lane) -> [u32; 4] {
    let all = u128::from_le_bytes(lane);
    std::array::from_fn(|i| (all >> (32 * i)) as u32)
}

fn unwords(words: [u32; 4]) -> Lane {
    words.iter().rev().fold(0_u128, |all, &word| all << 32 | u128::from(word)).to_le_bytes()
}

fn sha(op: Operation, x: [u32; 4], y: [u32; 4], constants: [u32; 4], immediate: u8) -> [u32; 4] {
    match op {
        Operation::Sha1Rnds4 => sha1_rounds(x, y, immediate & 3),
        Operation::Sha1NextE => [y[0], y[1], y[2], y[3].wrapping_add(x[3].rotate_left(30))],
        Operation::Sha1Msg1 => [x[0] ^ y[2], x[1] ^ y[3], x[2] ^ x[0], x[3] ^ x[1]],
        Operation::Sha1Msg2 => {
            let w16 = (x[3] ^ y[2]).rotate_left(1);
            let [w17, w18] = [x[2] ^ y[1], x[1] ^ y[0]].map(|word| word.rotate_left(1));
            [(x[0] ^ w16).rotate_left(1), w18, w17, w16]
        }
        Operation::Sha256Rnds2 => sha256_rounds(x, y, constants),
        Operation::Sha256Msg1 => {
            let next = [x[1], x[2], x[3], y[0]];
            std::array::from_fn(|i| x[i].wrapping_add(small_sigma(next[i], [7, 18], 3)))
        }
        _ => {
            let sigma = |word| small_sigma(word, [17, 19], 10);
            let (w16, w17) = (x[0].wrapping_add(sigma(y[2])), x[1].wrapping_add(sigma(y[3])));
            [w16, w17, x[2].wrapping_add(sigma(w16)), x[3].wrapping_add(sigma(w17))]
        }
    }
}

/// FIPS 180-4 section 6.1.2; the message words come with the first one's `e` added, and highest
/// first.
fn sha1_rounds(x: [u32; 4], y: [u32; 4], which: u8) -> [u32; 4] {
    let ([mut d, mut c, mut b, mut a], mut e) = (x, 0_u32);
    let constant = [0x5a82_7999, 0x6ed9_eba1, 0x8f1b_bcdc, 0xca62_c1d6][usize::from(which)];
    for message in y.into_iter().rev() {
        let f = match which {
            0 => b & c ^ !b & d,
            2 => b & c ^ b & d ^ c & d,
            _ => b ^ c ^ d,
        };
        let terms = [a.rotate_left(5), f, e, constant, message];
        let next = terms.into_iter().fold(0, u32::wrapping_add);
        (a, b, c, d, e) = (next, a, b.rotate_left(30), c, d);
    }
    [d, c, b, a]
}

/// Section 6.2.2; the constants come with the message words added.
fn sha256_rounds(x: [u32; 4], y: [u32; 4], constants: [u32; 4]) -> [u32; 4] {
    let ([mut f, mut e, mut b, mut a], [mut h, mut g, mut d, mut c]) = (y, x);
    for constant in &constants[..2] {
        let choice = e & f ^ !e & g;
        let terms = [h, big_sigma(e, [6, 11, 25]), choice, *constant];
        let first = terms.into_iter().fold(0, u32::wrapping_add);
        let second = big_sigma(a, [2, 13, 22]).wrapping_add(a & b ^ a & c ^ b & c);
        (h, g, f, e) = (g, f, e, d.wrapping_add(first));
        (d, c, b, a) = (c, b, a, first.wrapping_add(second));
    }
    [f, e, b, a]
}

fn big_sigma(word: u32, turns: [u32; 3]) -> u32 {
    turns.into_iter().fold(0, |sum, turn| sum ^ word.rotate_right(turn))
}

fn small_sigma(word: u32, turns: [u32; 2], shift: u32) -> u32 {
    turns.into_iter().fold(word >> shift, |sum, turn| sum ^ word.rotate_right(turn))
}
