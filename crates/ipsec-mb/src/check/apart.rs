//! The same for ciphers and hashes that kernels have no pass for.

use std::ffi::c_int;

use convoy_crypto::HashAlg;

use super::{ANY_MAX, LANE_MAX, Suite, first, plain_hash};
use crate::types::*;

/// Most bytes of text of ChaCha20: as many blocks as 32 bits count from 1.
const CHACHA20_MAX: u64 = (1 << 38) - 64;
/// Error of a null function of the caller's: the system's number for a bad address.
const BAD_ADDRESS: c_int = 14;

/// Checks the cipher of a job.
pub(super) fn check_cipher(job: &Job, suite: Suite, no_key: bool) -> Result<(), c_int> {
    let len = job.cipher_len;
    let (no_src, no_dst) = (job.src.is_null(), job.dst.is_null());
    let no_aes = suite.bits().is_none();
    let far = (job.cipher_offset > ANY_MAX || len > ANY_MAX, ERR_JOB_CIPH_LEN);
    match suite.cipher {
        CIPHER_CNTR_BITLEN => first(&[
            (no_src, ERR_JOB_NULL_SRC),
            (no_dst, ERR_JOB_NULL_DST),
            (job.iv.is_null(), ERR_JOB_NULL_IV),
            (no_key, ERR_JOB_NULL_KEY),
            (no_aes, ERR_JOB_KEY_LEN),
            (job.iv_len != 16, ERR_JOB_IV_LEN),
            // There, lengths are in bits.
            (len == 0 || len > 1 << 39, ERR_JOB_CIPH_LEN),
            far,
        ]),
        CIPHER_ECB => first(&[
            (no_src, ERR_JOB_NULL_SRC),
            (no_dst, ERR_JOB_NULL_DST),
            (no_key, ERR_JOB_NULL_KEY),
            (no_aes, ERR_JOB_KEY_LEN),
            (len == 0 || len > LANE_MAX || !len.is_multiple_of(16), ERR_JOB_CIPH_LEN),
            far,
        ]),
        // Version 1 has no jobs of it.
        CIPHER_CFB if CIPHER_CFB < CIPHER_NUM => first(&[
            (len != 0 && no_src, ERR_JOB_NULL_SRC),
            (len != 0 && no_dst, ERR_JOB_NULL_DST),
            (job.iv.is_null(), ERR_JOB_NULL_IV),
            (no_key, ERR_JOB_NULL_KEY),
            (no_aes, ERR_JOB_KEY_LEN),
            (job.iv_len != 16, ERR_JOB_IV_LEN),
            (!len.is_multiple_of(16), ERR_JOB_CIPH_LEN),
            far,
        ]),
        CIPHER_CHACHA20 => first(&[
            (no_src, ERR_JOB_NULL_SRC),
            (no_dst, ERR_JOB_NULL_DST),
            (job.iv.is_null(), ERR_JOB_NULL_IV),
            (no_key, ERR_JOB_NULL_KEY),
            (suite.key_len != 32, ERR_JOB_KEY_LEN),
            (len == 0 || len > CHACHA20_MAX, ERR_JOB_CIPH_LEN),
            (job.iv_len != 12, ERR_JOB_IV_LEN),
            far,
        ]),
        CIPHER_CUSTOM => first(&[(job.cipher_func.is_none(), BAD_ADDRESS)]),
        _ => Err(ERR_CIPH_MODE),
    }
}

/// Checks the hash of a job.
pub(super) fn check_hash(job: &Job, suite: Suite) -> Result<(), c_int> {
    let no_src = (job.src.is_null(), ERR_JOB_NULL_SRC);
    let no_tag = (job.tag.is_null(), ERR_JOB_NULL_AUTH);
    let long = (job.hash_len > LANE_MAX, ERR_JOB_AUTH_LEN);
    let endless = (job.hash_len > ANY_MAX, ERR_JOB_AUTH_LEN);
    let tag_not = |fits: bool| (!fits, ERR_JOB_AUTH_TAG_LEN);
    let [u0, u1, u2] = job.u.map(|field| field == 0);
    match suite.hash {
        AUTH_AES_CMAC_BITLEN => first(&[
            no_src,
            (u0 || u1 || u2, ERR_JOB_NULL_KEY),
            tag_not((1..=16).contains(&job.tag_len)),
            no_tag,
            (job.hash_len > 8 * LANE_MAX, ERR_JOB_AUTH_LEN),
        ]),
        AUTH_SHA_1..=AUTH_SHA_512 => {
            let whole = plain_hash(suite.hash).map_or(0, HashAlg::digest_bytes) as u64;
            first(&[tag_not(job.tag_len == whole), no_src, no_tag, long])
        }
        AUTH_GHASH => first(&[
            tag_not((1..=16).contains(&job.tag_len)),
            no_tag,
            (u0, ERR_JOB_NULL_AUTH_KEY),
            (u1, ERR_JOB_NULL_GHASH_INIT_TAG),
            (job.hash_len != 0 && job.src.is_null(), ERR_JOB_NULL_SRC),
            endless,
        ]),
        AUTH_POLY1305 => first(&[
            no_src,
            (u0, ERR_JOB_NULL_AUTH_KEY),
            no_tag,
            tag_not(job.tag_len == 16),
            endless,
        ]),
        AUTH_CUSTOM => first(&[(job.hash_func.is_none(), BAD_ADDRESS)]),
        _ => Err(ERR_HASH_ALGO),
    }
}
