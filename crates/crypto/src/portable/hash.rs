//! HMAC over the block functions of RustCrypto's `md-5`, `sha1` and `sha2`.

use zeroize::Zeroize;

use crate::{
    HashAlg,
    block::{HmacKey, digest_bytes},
    isa::job::{HmacJob, TRAILER_MAX},
    secret::wipe,
};

/// A chaining value in the layout of [`HmacKey`].
type State = [u8; 64];

/// Chaining value that a hash starts from (RFC 1321 section 3.3; FIPS 180-4 section 5.3).
pub(crate) fn start(alg: HashAlg) -> State {
    const SHORT: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    let mut state = [0; 64];
    match alg {
        HashAlg::Md5 => fill32(&mut state, &SHORT[..4]),
        HashAlg::Sha1 => fill32(&mut state, &SHORT),
        HashAlg::Sha224 => fill32(
            &mut state,
            &[
                0xc105_9ed8,
                0x367c_d507,
                0x3070_dd17,
                0xf70e_5939, //
                0xffc0_0b31,
                0x6858_1511,
                0x64f9_8fa7,
                0xbefa_4fa4,
            ],
        ),
        HashAlg::Sha256 => fill32(
            &mut state,
            &[
                0x6a09_e667,
                0xbb67_ae85,
                0x3c6e_f372,
                0xa54f_f53a, //
                0x510e_527f,
                0x9b05_688c,
                0x1f83_d9ab,
                0x5be0_cd19,
            ],
        ),
        HashAlg::Sha384 => fill64(
            &mut state,
            &[
                0xcbbb_9d5d_c105_9ed8,
                0x629a_292a_367c_d507, //
                0x9159_015a_3070_dd17,
                0x152f_ecd8_f70e_5939, //
                0x6733_2667_ffc0_0b31,
                0x8eb4_4a87_6858_1511, //
                0xdb0c_2e0d_64f9_8fa7,
                0x47b5_481d_befa_4fa4,
            ],
        ),
        HashAlg::Sha512 => fill64(
            &mut state,
            &[
                0x6a09_e667_f3bc_c908,
                0xbb67_ae85_84ca_a73b, //
                0x3c6e_f372_fe94_f82b,
                0xa54f_f53a_5f1d_36f1, //
                0x510e_527f_ade6_82d1,
                0x9b05_688c_2b3e_6c1f, //
                0x1f83_d9ab_fb41_bd6b,
                0x5be0_cd19_137e_2179,
            ],
        ),
    }
    state
}

fn fill32(state: &mut State, words: &[u32]) {
    let slots = state.as_chunks_mut().0.iter_mut();
    slots.zip(words).for_each(|(slot, word)| *slot = word.to_ne_bytes());
}

fn fill64(state: &mut State, words: &[u64]) {
    let slots = state.as_chunks_mut().0.iter_mut();
    slots.zip(words).for_each(|(slot, word)| *slot = word.to_ne_bytes());
}

/// The block function on the first words of a state.
fn on32<const N: usize>(state: &mut State, compress: impl FnOnce(&mut [u32; N])) {
    let mut words = [0; N];
    let slots = state.as_chunks().0.iter();
    words.iter_mut().zip(slots).for_each(|(word, slot)| *word = u32::from_ne_bytes(*slot));
    compress(&mut words);
    fill32(state, &words);
    words.zeroize();
}

/// Takes in whole blocks; bytes behind the last one are ignored.
pub(crate) fn compress(alg: HashAlg, state: &mut State, bytes: &[u8]) {
    let short = bytes.as_chunks().0;
    match alg {
        HashAlg::Md5 => on32(state, |words| md5::block_api::compress(words, short)),
        HashAlg::Sha1 => on32(state, |words| sha1::block_api::compress(words, short)),
        HashAlg::Sha224 | HashAlg::Sha256 => {
            on32(state, |words| sha2::block_api::compress256(words, short));
        }
        HashAlg::Sha384 | HashAlg::Sha512 => {
            let mut words = [0; 8];
            let slots = state.as_chunks().0.iter();
            words.iter_mut().zip(slots).for_each(|(word, slot)| *word = u64::from_ne_bytes(*slot));
            sha2::block_api::compress512(&mut words, bytes.as_chunks().0);
            fill64(state, &words);
            words.zeroize();
        }
    }
}

/// Takes in `message`, then at most [`TRAILER_MAX`] bytes of `trailer`, then the padding. `before`
/// is how many bytes the state has taken in already: whole blocks.
pub(crate) fn finish(
    alg: HashAlg,
    state: &mut State,
    before: usize,
    message: &[u8],
    trailer: &[u8],
) {
    let block = alg.block_bytes();
    let (whole, rest) = message.split_at(message.len() / block * block);
    compress(alg, state, whole);

    let trailer = trailer.get(..TRAILER_MAX).unwrap_or(trailer);
    let mut tail = [0; 256];
    let used = rest.len() + trailer.len();
    tail[..rest.len()].copy_from_slice(rest);
    tail[rest.len()..used].copy_from_slice(trailer);
    tail[used] = 0x80;
    // The length field has an eighth of a block.
    let end = (used + 1 + block / 8).next_multiple_of(block);
    let bits = 8 * (before + message.len() + trailer.len()) as u64;
    let bits = if alg == HashAlg::Md5 { bits.to_le_bytes() } else { bits.to_be_bytes() };
    tail[end - 8..end].copy_from_slice(&bits);
    compress(alg, state, &tail[..end]);
    tail.zeroize();
}

/// A key of any length, one longer than a block hashed first, under inner and outer padding (RFC 2104
/// section 2): a block of the hash each.
pub(crate) fn pad(alg: HashAlg, key: &[u8], pads: &mut [[u8; 128]; 2]) {
    let mut padded = [0; 128];
    let block = alg.block_bytes();
    if key.len() <= block {
        padded[..key.len()].copy_from_slice(key);
    } else {
        let mut state = start(alg);
        finish(alg, &mut state, 0, key, &[]);
        let (mut bytes, len) = digest_bytes(alg, &state);
        padded[..len].copy_from_slice(&bytes[..len]);
        bytes.zeroize();
        state.zeroize();
    }
    for (to, pad) in pads.iter_mut().zip([0x36, 0x5c]) {
        to.iter_mut().zip(&padded).for_each(|(to, byte)| *to = byte ^ pad);
    }
    wipe(&mut padded, 0);
}

/// See [`pass::hmac::expand`](crate::pass::hmac::expand).
pub(crate) fn expand(alg: HashAlg, pads: &[[u8; 128]; 2], out: &mut HmacKey) {
    for (state, pad) in [&mut out.inner, &mut out.outer].into_iter().zip(pads) {
        *state = start(alg);
        compress(alg, state, &pad[..alg.block_bytes()]);
    }
}

/// Computes one job's MAC.
pub(crate) fn hmac(alg: HashAlg, job: &mut HmacJob<'_>) {
    let mut state = job.key.inner;
    finish(alg, &mut state, alg.block_bytes(), job.message, job.trailer);
    let (mut inner, len) = digest_bytes(alg, &state);
    state = job.key.outer;
    finish(alg, &mut state, alg.block_bytes(), &inner[..len], &[]);
    let (mac, len) = digest_bytes(alg, &state);
    job.tag[..len].copy_from_slice(&mac[..len]);
    inner.zeroize();
    state.zeroize();
}
