//! The block functions, on one message per lane.

use super::words::{Constant, Words};
use crate::pairs::PairedWith;

/// A chaining value of each lane; hashes with fewer words leave the last ones alone.
pub(super) type State<W> = [<W as Words>::V; 8];

/// The words of a block of each lane.
pub(super) type Block<W> = [<W as Words>::V; 16];

/// A hash function on registers of words.
pub(super) trait Hash<W: Words> {
    /// Words of a chaining value.
    const WORDS: usize;
    /// Words of the shortest digest that is cut from the last chaining value.
    const SHORTEST: usize;
    /// True if words lie in memory with their last byte first.
    const LITTLE_ENDIAN: bool = false;

    /// Takes in a block of each lane.
    fn block(w: W, state: &mut State<W>, words: Block<W>);
}

/// MD5 (RFC 1321).
pub(super) struct Md5;
/// SHA-1 (FIPS 180-4).
pub(super) struct Sha1;
/// SHA-224 and SHA-256 (FIPS 180-4).
pub(super) struct Sha256;
/// SHA-384 and SHA-512 (FIPS 180-4).
pub(super) struct Sha512;

const fn repeat32<const N: usize>(words: [u32; N]) -> [Constant<u32>; N] {
    let mut all = [[0; 4]; N];
    let mut i = 0;
    while i < N {
        all[i] = [words[i]; 4];
        i += 1;
    }
    all
}

const fn repeat64<const N: usize>(words: [u64; N]) -> [Constant<u64>; N] {
    let mut all = [[0; 4]; N];
    let mut i = 0;
    while i < N {
        all[i] = [words[i]; 4];
        i += 1;
    }
    all
}

/// Bits of a register. Which sums gain by [`Words::settle`] depends on it, as measured: the compiler
/// orders them otherwise where registers are few.
const fn bits<W: Words>() -> usize {
    8 * size_of::<W::V>()
}

static SHA1_K: [Constant<u32>; 4] = repeat32([0x5a82_7999, 0x6ed9_eba1, 0x8f1b_bcdc, 0xca62_c1d6]);

impl<W: Words<Word = u32>> Hash<W> for Sha1 {
    const WORDS: usize = 5;
    const SHORTEST: usize = 5;

    #[inline(always)]
    #[allow(unused_assignments)] // The last rounds prepare no words.
    fn block(w: W, state: &mut State<W>, mut m: Block<W>) {
        let [mut a, mut b, mut c, mut d, mut e, ..] = *state;
        macro_rules! round {
            ($t:expr, $stage:expr, $f:ident) => {{
                let sum = w.add(w.add(e, w.constant(&SHA1_K[$stage])), m[$t % 16]);
                let sum = w.add(sum, w.$f(b, c, d));
                let sum = if bits::<W>() > 128 { w.settle(sum) } else { sum };
                if $t >= 13 && $t < 77 {
                    let q = $t + 3;
                    let mixed = w.xor3(m[(q + 13) % 16], m[(q + 8) % 16], m[(q + 2) % 16]);
                    m[q % 16] = w.rotate::<1, 31>(w.xor(mixed, m[q % 16]));
                }
                e = d;
                d = c;
                c = w.rotate::<30, 2>(b);
                b = a;
                a = w.add(w.rotate::<5, 27>(a), sum);
            }};
        }
        macro_rules! stage {
            ($stage:expr, $f:ident) => {
                stage!(@ $stage, $f, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19)
            };
            (@ $stage:expr, $f:ident, $($t:literal)*) => {
                $(round!(20 * $stage + $t, $stage, $f);)*
            };
        }
        stage!(0, choose);
        stage!(1, xor3);
        stage!(2, majority);
        stage!(3, xor3);
        for (word, new) in state.iter_mut().paired_with([a, b, c, d, e]) {
            *word = w.add(*word, new);
        }
    }
}

static MD5_K: [Constant<u32>; 64] = repeat32([
    0xd76a_a478,
    0xe8c7_b756,
    0x2420_70db,
    0xc1bd_ceee,
    0xf57c_0faf,
    0x4787_c62a,
    0xa830_4613,
    0xfd46_9501,
    0x6980_98d8,
    0x8b44_f7af,
    0xffff_5bb1,
    0x895c_d7be,
    0x6b90_1122,
    0xfd98_7193,
    0xa679_438e,
    0x49b4_0821,
    0xf61e_2562,
    0xc040_b340,
    0x265e_5a51,
    0xe9b6_c7aa,
    0xd62f_105d,
    0x0244_1453,
    0xd8a1_e681,
    0xe7d3_fbc8,
    0x21e1_cde6,
    0xc337_07d6,
    0xf4d5_0d87,
    0x455a_14ed,
    0xa9e3_e905,
    0xfcef_a3f8,
    0x676f_02d9,
    0x8d2a_4c8a,
    0xfffa_3942,
    0x8771_f681,
    0x6d9d_6122,
    0xfde5_380c,
    0xa4be_ea44,
    0x4bde_cfa9,
    0xf6bb_4b60,
    0xbebf_bc70,
    0x289b_7ec6,
    0xeaa1_27fa,
    0xd4ef_3085,
    0x0488_1d05,
    0xd9d4_d039,
    0xe6db_99e5,
    0x1fa2_7cf8,
    0xc4ac_5665,
    0xf429_2244,
    0x432a_ff97,
    0xab94_23a7,
    0xfc93_a039,
    0x655b_59c3,
    0x8f0c_cc92,
    0xffef_f47d,
    0x8584_5dd1,
    0x6fa8_7e4f,
    0xfe2c_e6e0,
    0xa301_4314,
    0x4e08_11a1,
    0xf753_7e82,
    0xbd3a_f235,
    0x2ad7_d2bb,
    0xeb86_d391,
]);

impl<W: Words<Word = u32>> Hash<W> for Md5 {
    const WORDS: usize = 4;
    const SHORTEST: usize = 4;
    const LITTLE_ENDIAN: bool = true;

    #[inline(always)]
    fn block(w: W, state: &mut State<W>, m: Block<W>) {
        let [mut a, mut b, mut c, mut d, ..] = *state;
        macro_rules! round {
            ($t:expr, $word:expr, $f:expr, $left:literal, $right:literal) => {{
                let sum = w.add(w.add(a, w.constant(&MD5_K[$t])), m[$word % 16]);
                // The compiler would add the constant last, when all else waits for it.
                let sum = if bits::<W>() == 128 { w.settle(sum) } else { sum };
                let sum = w.add(sum, $f);
                a = d;
                d = c;
                c = b;
                b = w.add(b, w.rotate::<$left, $right>(sum));
            }};
        }
        macro_rules! stage {
            ($from:expr, $factor:expr, $plus:expr, $f:expr,
             [$l0:literal $r0:literal, $l1:literal $r1:literal, $l2:literal $r2:literal, $l3:literal $r3:literal]) => {
                stage!(@ $from, $factor, $plus, $f, [$l0 $r0, $l1 $r1, $l2 $r2, $l3 $r3], 0 4 8 12)
            };
            (@ $from:expr, $factor:expr, $plus:expr, $f:expr,
             [$l0:literal $r0:literal, $l1:literal $r1:literal, $l2:literal $r2:literal, $l3:literal $r3:literal], $t:literal $($more:literal)*) => {
                round!($from + $t, $factor * $t + $plus, $f, $l0, $r0);
                round!($from + $t + 1, $factor * ($t + 1) + $plus, $f, $l1, $r1);
                round!($from + $t + 2, $factor * ($t + 2) + $plus, $f, $l2, $r2);
                round!($from + $t + 3, $factor * ($t + 3) + $plus, $f, $l3, $r3);
                stage!(@ $from, $factor, $plus, $f, [$l0 $r0, $l1 $r1, $l2 $r2, $l3 $r3], $($more)*)
            };
            (@ $from:expr, $factor:expr, $plus:expr, $f:expr, $rotations:tt,) => {};
        }
        stage!(0, 1, 0, w.choose(b, c, d), [7 25, 12 20, 17 15, 22 10]);
        stage!(16, 5, 1, w.choose(d, b, c), [5 27, 9 23, 14 18, 20 12]);
        stage!(32, 3, 5, w.xor3(b, c, d), [4 28, 11 21, 16 16, 23 9]);
        stage!(48, 7, 0, w.xor_or_not(c, b, d), [6 26, 10 22, 15 17, 21 11]);
        for (word, new) in state.iter_mut().paired_with([a, b, c, d]) {
            *word = w.add(*word, new);
        }
    }
}

/// SHA-256's constants (FIPS 180-4 section 4.2.2).
pub(super) const SHA256_WORDS: [u32; 64] = [
    0x428a_2f98,
    0x7137_4491,
    0xb5c0_fbcf,
    0xe9b5_dba5,
    0x3956_c25b,
    0x59f1_11f1,
    0x923f_82a4,
    0xab1c_5ed5,
    0xd807_aa98,
    0x1283_5b01,
    0x2431_85be,
    0x550c_7dc3,
    0x72be_5d74,
    0x80de_b1fe,
    0x9bdc_06a7,
    0xc19b_f174,
    0xe49b_69c1,
    0xefbe_4786,
    0x0fc1_9dc6,
    0x240c_a1cc,
    0x2de9_2c6f,
    0x4a74_84aa,
    0x5cb0_a9dc,
    0x76f9_88da,
    0x983e_5152,
    0xa831_c66d,
    0xb003_27c8,
    0xbf59_7fc7,
    0xc6e0_0bf3,
    0xd5a7_9147,
    0x06ca_6351,
    0x1429_2967,
    0x27b7_0a85,
    0x2e1b_2138,
    0x4d2c_6dfc,
    0x5338_0d13,
    0x650a_7354,
    0x766a_0abb,
    0x81c2_c92e,
    0x9272_2c85,
    0xa2bf_e8a1,
    0xa81a_664b,
    0xc24b_8b70,
    0xc76c_51a3,
    0xd192_e819,
    0xd699_0624,
    0xf40e_3585,
    0x106a_a070,
    0x19a4_c116,
    0x1e37_6c08,
    0x2748_774c,
    0x34b0_bcb5,
    0x391c_0cb3,
    0x4ed8_aa4a,
    0x5b9c_ca4f,
    0x682e_6ff3,
    0x748f_82ee,
    0x78a5_636f,
    0x84c8_7814,
    0x8cc7_0208,
    0x90be_fffa,
    0xa450_6ceb,
    0xbef9_a3f7,
    0xc671_78f2,
];

static SHA256_K: [Constant<u32>; 64] = repeat32(SHA256_WORDS);

static SHA512_K: [Constant<u64>; 80] = repeat64([
    0x428a_2f98_d728_ae22,
    0x7137_4491_23ef_65cd,
    0xb5c0_fbcf_ec4d_3b2f,
    0xe9b5_dba5_8189_dbbc,
    0x3956_c25b_f348_b538,
    0x59f1_11f1_b605_d019,
    0x923f_82a4_af19_4f9b,
    0xab1c_5ed5_da6d_8118,
    0xd807_aa98_a303_0242,
    0x1283_5b01_4570_6fbe,
    0x2431_85be_4ee4_b28c,
    0x550c_7dc3_d5ff_b4e2,
    0x72be_5d74_f27b_896f,
    0x80de_b1fe_3b16_96b1,
    0x9bdc_06a7_25c7_1235,
    0xc19b_f174_cf69_2694,
    0xe49b_69c1_9ef1_4ad2,
    0xefbe_4786_384f_25e3,
    0x0fc1_9dc6_8b8c_d5b5,
    0x240c_a1cc_77ac_9c65,
    0x2de9_2c6f_592b_0275,
    0x4a74_84aa_6ea6_e483,
    0x5cb0_a9dc_bd41_fbd4,
    0x76f9_88da_8311_53b5,
    0x983e_5152_ee66_dfab,
    0xa831_c66d_2db4_3210,
    0xb003_27c8_98fb_213f,
    0xbf59_7fc7_beef_0ee4,
    0xc6e0_0bf3_3da8_8fc2,
    0xd5a7_9147_930a_a725,
    0x06ca_6351_e003_826f,
    0x1429_2967_0a0e_6e70,
    0x27b7_0a85_46d2_2ffc,
    0x2e1b_2138_5c26_c926,
    0x4d2c_6dfc_5ac4_2aed,
    0x5338_0d13_9d95_b3df,
    0x650a_7354_8baf_63de,
    0x766a_0abb_3c77_b2a8,
    0x81c2_c92e_47ed_aee6,
    0x9272_2c85_1482_353b,
    0xa2bf_e8a1_4cf1_0364,
    0xa81a_664b_bc42_3001,
    0xc24b_8b70_d0f8_9791,
    0xc76c_51a3_0654_be30,
    0xd192_e819_d6ef_5218,
    0xd699_0624_5565_a910,
    0xf40e_3585_5771_202a,
    0x106a_a070_32bb_d1b8,
    0x19a4_c116_b8d2_d0c8,
    0x1e37_6c08_5141_ab53,
    0x2748_774c_df8e_eb99,
    0x34b0_bcb5_e19b_48a8,
    0x391c_0cb3_c5c9_5a63,
    0x4ed8_aa4a_e341_8acb,
    0x5b9c_ca4f_7763_e373,
    0x682e_6ff3_d6b2_b8a3,
    0x748f_82ee_5def_b2fc,
    0x78a5_636f_4317_2f60,
    0x84c8_7814_a1f0_ab72,
    0x8cc7_0208_1a64_39ec,
    0x90be_fffa_2363_1e28,
    0xa450_6ceb_de82_bde9,
    0xbef9_a3f7_b2c6_7915,
    0xc671_78f2_e372_532b,
    0xca27_3ece_ea26_619c,
    0xd186_b8c7_21c0_c207,
    0xeada_7dd6_cde0_eb1e,
    0xf57d_4f7f_ee6e_d178,
    0x06f0_67aa_7217_6fba,
    0x0a63_7dc5_a2c8_98a6,
    0x113f_9804_bef9_0dae,
    0x1b71_0b35_131c_471b,
    0x28db_77f5_2304_7d84,
    0x32ca_ab7b_40c7_2493,
    0x3c9e_be0a_15c9_bebc,
    0x431d_67c4_9c10_0d4c,
    0x4cc5_d4be_cb3e_42b6,
    0x597f_299c_fc65_7e2a,
    0x5fcb_6fab_3ad6_faec,
    0x6c44_198c_4a47_5817,
]);

/// A step for each word of a block.
macro_rules! sixteen {
    ($step:ident) => {
        $step!(0);
        $step!(1);
        $step!(2);
        $step!(3);
        $step!(4);
        $step!(5);
        $step!(6);
        $step!(7);
        $step!(8);
        $step!(9);
        $step!(10);
        $step!(11);
        $step!(12);
        $step!(13);
        $step!(14);
        $step!(15);
    };
}

/// SHA-2 with words of 32 or 64 bits: the names of the rotations are those of FIPS 180-4 section 4.1.
macro_rules! sha2 {
    ($name:ident, $word:ident, $k:ident, $shortest:literal,
     big0 $a0:literal $b0:literal, $a1:literal $b1:literal, $a2:literal $b2:literal;
     big1 $c0:literal $d0:literal, $c1:literal $d1:literal, $c2:literal $d2:literal;
     small0 $e0:literal $f0:literal, $e1:literal $f1:literal, $e2:literal;
     small1 $g0:literal $h0:literal, $g1:literal $h1:literal, $g2:literal;) => {
        impl<W: Words<Word = $word>> Hash<W> for $name {
            const WORDS: usize = 8;
            const SHORTEST: usize = $shortest;

            #[inline(always)]
            fn block(w: W, state: &mut State<W>, mut m: Block<W>) {
                let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
                macro_rules! round {
                    ($t:expr, $table:ident) => {{
                        let sum = w.add(w.add(h, w.constant(&$table[$t])), m[$t]);
                        let big1 = w.xor3(
                            w.rotate::<$d0, $c0>(e),
                            w.rotate::<$d1, $c1>(e),
                            w.rotate::<$d2, $c2>(e),
                        );
                        let sum = w.add(sum, w.choose(e, f, g));
                        let sum = if bits::<W>() == 512 { w.settle(sum) } else { sum };
                        let sum = w.add(sum, big1);
                        let big0 = w.xor3(
                            w.rotate::<$b0, $a0>(a),
                            w.rotate::<$b1, $a1>(a),
                            w.rotate::<$b2, $a2>(a),
                        );
                        let other = w.add(big0, w.majority(a, b, c));
                        h = g;
                        g = f;
                        f = e;
                        e = w.add(d, sum);
                        d = c;
                        c = b;
                        b = a;
                        a = w.add(sum, other);
                    }};
                }
                macro_rules! next {
                    ($t:expr) => {{
                        let early = m[($t + 1) % 16];
                        let small0 = w.xor3(
                            w.rotate::<$f0, $e0>(early),
                            w.rotate::<$f1, $e1>(early),
                            w.shift::<$e2, $e2>(early),
                        );
                        let late = m[($t + 14) % 16];
                        let small1 = w.xor3(
                            w.rotate::<$h0, $g0>(late),
                            w.rotate::<$h1, $g1>(late),
                            w.shift::<$g2, $g2>(late),
                        );
                        m[$t] = w.add(w.add(m[$t], small0), w.add(m[($t + 9) % 16], small1));
                    }};
                }
                let (first, later) = $k.as_chunks::<16>().0.split_at(1);
                for table in first {
                    macro_rules! step {
                        ($t:expr) => {
                            round!($t, table);
                        };
                    }
                    sixteen!(step);
                }
                for table in later {
                    macro_rules! step {
                        ($t:expr) => {
                            next!($t);
                            round!($t, table);
                        };
                    }
                    sixteen!(step);
                }
                for (word, new) in state.iter_mut().paired_with([a, b, c, d, e, f, g, h]) {
                    *word = w.add(*word, new);
                }
            }
        }
    };
}

sha2! {
    Sha256, u32, SHA256_K, 7,
    big0 2 30, 13 19, 22 10;
    big1 6 26, 11 21, 25 7;
    small0 7 25, 18 14, 3;
    small1 17 15, 19 13, 10;
}

sha2! {
    Sha512, u64, SHA512_K, 6,
    big0 28 36, 34 30, 39 25;
    big1 14 50, 18 46, 41 23;
    small0 1 63, 8 56, 7;
    small1 19 45, 61 3, 6;
}
