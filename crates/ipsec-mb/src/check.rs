//! Checks that a job's fields fit together. Errors come in the order in which intel-ipsec-mb finds them.

mod apart;

use std::ffi::c_int;

use convoy_crypto::{HashAlg, KeyBits};

use crate::types::*;

/// Most bytes of CBC, CCM and MACs: what lengths of 16 bits tell.
const LANE_MAX: u64 = (1 << 16) - 2;
/// Most bytes of text under one IV of GCM (NIST SP 800-38D section 5.2.1.1).
pub(crate) const GCM_MAX: u64 = (1 << 36) - 33;
/// Most bytes of text of ChaCha20-Poly1305.
pub(crate) const CHACHA_MAX: u64 = ((1 << 32) - 2) * 64;
/// Most bytes of additional data of CCM.
pub(crate) const CCM_AAD_MAX: usize = 46;
/// Most bytes of anything: so that ends of buffers can be told.
const ANY_MAX: u64 = 1 << 40;

/// Algorithms, direction and key length asked for: by a job's own fields, or by the burst that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Suite {
    pub(crate) cipher: u32,
    pub(crate) direction: u32,
    pub(crate) hash: u32,
    pub(crate) key_len: u64,
}

impl Suite {
    /// Reads the job's own fields.
    pub(crate) fn of(job: &Job) -> Self {
        Self {
            cipher: job.cipher_mode,
            direction: job.cipher_direction,
            hash: job.hash_alg,
            key_len: job.key_len,
        }
    }

    pub(crate) fn is_encrypt(self) -> bool {
        self.direction == DIR_ENCRYPT
    }

    pub(crate) fn bits(self) -> Option<KeyBits> {
        KeyBits::from_bits(usize::try_from(self.key_len).ok()?.checked_mul(8)?)
    }

    /// Two numbers that stand for it, neither of them zero.
    pub(crate) fn id(self, order: u32) -> [u32; 2] {
        [
            1 << 31
                | self.cipher << 16
                | (self.direction & 3) << 12
                | (self.key_len as u32 & 0xfff),
            1 << 31 | (order & 3) << 16 | self.hash,
        ]
    }

    /// Checks it, whatever a job says beside. Version 1 asks of jobs alone.
    #[cfg(not(abi_1))]
    pub(crate) fn check(self) -> Result<(), c_int> {
        let direction = self.direction == DIR_ENCRYPT || self.direction == DIR_DECRYPT;
        first(&[(!direction && self.cipher != CIPHER_NULL, ERR_JOB_CIPH_DIR)])?;
        let (key, hash) = match self.cipher {
            CIPHER_NULL | CIPHER_CUSTOM => (true, None),
            CIPHER_CBC | CIPHER_CNTR | CIPHER_CNTR_BITLEN | CIPHER_ECB | CIPHER_CFB => {
                (self.bits().is_some(), None)
            }
            CIPHER_CHACHA20 => (self.key_len == 32, None),
            CIPHER_GCM => (self.bits().is_some(), Some(AUTH_AES_GMAC)),
            CIPHER_CCM => (self.key_len == 16 || self.key_len == 32, Some(AUTH_AES_CCM)),
            CIPHER_CHACHA20_POLY1305 => (self.key_len == 32, Some(AUTH_CHACHA20_POLY1305)),
            CIPHER_GCM_SGL => (self.bits().is_some(), Some(AUTH_GCM_SGL)),
            CIPHER_CHACHA20_POLY1305_SGL => (self.key_len == 32, Some(AUTH_CHACHA20_POLY1305_SGL)),
            _ => return Err(ERR_CIPH_MODE),
        };
        let aeads = [
            AUTH_AES_GMAC,
            AUTH_AES_CCM,
            AUTH_CHACHA20_POLY1305,
            AUTH_GCM_SGL,
            AUTH_CHACHA20_POLY1305_SGL,
        ];
        let macs = [AUTH_AES_XCBC, AUTH_NULL, AUTH_AES_CMAC, AUTH_AES_CMAC_256];
        let is_mac = hmac_hash(self.hash).is_some()
            || gmac_bits(self.hash).is_some()
            || self.has_hash_apart()
            || macs.contains(&self.hash);
        first(&[
            (!key, ERR_JOB_KEY_LEN),
            (hash.is_some_and(|hash| hash != self.hash), ERR_HASH_ALGO),
            (hash.is_none() && aeads.contains(&self.hash), ERR_CIPH_MODE),
            (hash.is_none() && !is_mac, ERR_HASH_ALGO),
        ])
    }

    /// True if intel-ipsec-mb is done with such a job when its submission returns, so that callers may count on it.
    pub(crate) fn is_done_at_once(self) -> bool {
        let cipher = match self.cipher {
            CIPHER_CBC | CIPHER_CFB => !self.is_encrypt(),
            CIPHER_CCM => false,
            _ => true,
        };
        let gmac = AUTH_AES_GMAC_128..=AUTH_AES_GMAC_256;
        let aeads =
            [AUTH_AES_GMAC, AUTH_CHACHA20_POLY1305, AUTH_GCM_SGL, AUTH_CHACHA20_POLY1305_SGL];
        let others = [AUTH_NULL, AUTH_GHASH, AUTH_POLY1305, AUTH_CUSTOM];
        let hashes = [aeads, others];
        cipher && (gmac.contains(&self.hash) || hashes.as_flattened().contains(&self.hash))
    }

    /// True if its cipher is one that kernels have no pass for.
    pub(crate) fn has_cipher_apart(self) -> bool {
        let apart = [CIPHER_CUSTOM, CIPHER_ECB, CIPHER_CNTR_BITLEN, CIPHER_CHACHA20, CIPHER_CFB];
        // Version 1 has no jobs of CFB.
        apart.contains(&self.cipher) && self.cipher < CIPHER_NUM
    }

    /// True if its hash is one that kernels have no pass for.
    pub(crate) fn has_hash_apart(self) -> bool {
        let apart = [AUTH_CUSTOM, AUTH_AES_CMAC_BITLEN, AUTH_POLY1305, AUTH_GHASH];
        plain_hash(self.hash).is_some() || apart.contains(&self.hash)
    }
}

/// A hash by itself.
pub(crate) fn plain_hash(hash: u32) -> Option<HashAlg> {
    Some(match hash {
        AUTH_SHA_1 => HashAlg::Sha1,
        AUTH_SHA_224 => HashAlg::Sha224,
        AUTH_SHA_256 => HashAlg::Sha256,
        AUTH_SHA_384 => HashAlg::Sha384,
        AUTH_SHA_512 => HashAlg::Sha512,
        _ => return None,
    })
}

/// The hash of an HMAC.
pub(crate) fn hmac_hash(hash: u32) -> Option<HashAlg> {
    Some(match hash {
        AUTH_HMAC_SHA_1 => HashAlg::Sha1,
        AUTH_HMAC_SHA_224 => HashAlg::Sha224,
        AUTH_HMAC_SHA_256 => HashAlg::Sha256,
        AUTH_HMAC_SHA_384 => HashAlg::Sha384,
        AUTH_HMAC_SHA_512 => HashAlg::Sha512,
        AUTH_MD5 => HashAlg::Md5,
        _ => return None,
    })
}

/// The key size of GMAC by itself.
pub(crate) fn gmac_bits(hash: u32) -> Option<KeyBits> {
    Some(match hash {
        AUTH_AES_GMAC_128 => KeyBits::Aes128,
        AUTH_AES_GMAC_192 => KeyBits::Aes192,
        AUTH_AES_GMAC_256 => KeyBits::Aes256,
        _ => return None,
    })
}

/// Checks a job that asks for `suite`.
pub(crate) fn check(job: &Job, suite: Suite) -> Result<(), c_int> {
    let direction = suite.direction == DIR_ENCRYPT || suite.direction == DIR_DECRYPT;
    first(&[(!direction && suite.cipher != CIPHER_NULL, ERR_JOB_CIPH_DIR)])?;
    check_cipher(job, suite)?;
    check_hash(job, suite)
}

/// The first error that is there.
fn first(found: &[(bool, c_int)]) -> Result<(), c_int> {
    match found.iter().find(|(is_there, _)| *is_there) {
        Some((_, error)) => Err(*error),
        None => Ok(()),
    }
}

/// True if decryption takes its key from the place of those for decryption.
fn reads_dec_keys(cipher: u32) -> bool {
    [CIPHER_CBC, CIPHER_ECB, CIPHER_CFB, CIPHER_GCM, CIPHER_GCM_SGL].contains(&cipher)
}

fn check_cipher(job: &Job, suite: Suite) -> Result<(), c_int> {
    let len = job.cipher_len;
    let (no_src, no_dst) = (job.src.is_null(), job.dst.is_null());
    let no_key = match suite.direction {
        DIR_DECRYPT if reads_dec_keys(suite.cipher) => job.dec_keys.is_null(),
        _ => job.enc_keys.is_null(),
    };
    let no_aes = suite.bits().is_none();
    let far = (job.cipher_offset > ANY_MAX || len > ANY_MAX, ERR_JOB_CIPH_LEN);
    match suite.cipher {
        CIPHER_NULL => Ok(()),
        CIPHER_CBC => first(&[
            (no_src, ERR_JOB_NULL_SRC),
            (no_dst, ERR_JOB_NULL_DST),
            (job.iv.is_null(), ERR_JOB_NULL_IV),
            (no_key, ERR_JOB_NULL_KEY),
            (no_aes, ERR_JOB_KEY_LEN),
            (len == 0 || !len.is_multiple_of(16), ERR_JOB_CIPH_LEN),
            (suite.is_encrypt() && len > LANE_MAX, ERR_JOB_CIPH_LEN),
            // Of lanes that count in 32 bits.
            (len > u64::from(u32::MAX), ERR_JOB_CIPH_LEN),
            (job.iv_len != 16, ERR_JOB_IV_LEN),
            far,
        ]),
        CIPHER_CNTR => first(&[
            (no_src, ERR_JOB_NULL_SRC),
            (no_dst, ERR_JOB_NULL_DST),
            (job.iv.is_null(), ERR_JOB_NULL_IV),
            (no_key, ERR_JOB_NULL_KEY),
            (no_aes, ERR_JOB_KEY_LEN),
            (job.iv_len != 16 && job.iv_len != 12, ERR_JOB_IV_LEN),
            (len == 0 || len > 1 << 36, ERR_JOB_CIPH_LEN),
            far,
        ]),
        CIPHER_GCM => first(&[
            (len > GCM_MAX, ERR_JOB_CIPH_LEN),
            (len != 0 && no_src, ERR_JOB_NULL_SRC),
            (len != 0 && no_dst, ERR_JOB_NULL_DST),
            (job.iv.is_null(), ERR_JOB_NULL_IV),
            (no_key, ERR_JOB_NULL_KEY),
            (no_aes, ERR_JOB_KEY_LEN),
            (job.iv_len == 0 || job.iv_len > ANY_MAX, ERR_JOB_IV_LEN),
            (suite.hash != AUTH_AES_GMAC, ERR_HASH_ALGO),
            far,
        ]),
        CIPHER_CCM => first(&[
            (len != 0 && no_src, ERR_JOB_NULL_SRC),
            (len != 0 && no_dst, ERR_JOB_NULL_DST),
            (len > LANE_MAX, ERR_JOB_CIPH_LEN),
            (job.iv.is_null(), ERR_JOB_NULL_IV),
            (no_key, ERR_JOB_NULL_KEY),
            (suite.key_len != 16 && suite.key_len != 32, ERR_JOB_KEY_LEN),
            (!(7..=13).contains(&job.iv_len), ERR_JOB_IV_LEN),
            (suite.hash != AUTH_AES_CCM, ERR_HASH_ALGO),
            far,
        ]),
        CIPHER_CHACHA20_POLY1305 => first(&[
            (len != 0 && no_src, ERR_JOB_NULL_SRC),
            (len != 0 && no_dst, ERR_JOB_NULL_DST),
            (job.iv.is_null(), ERR_JOB_NULL_IV),
            (no_key, ERR_JOB_NULL_KEY),
            (suite.key_len != 32, ERR_JOB_KEY_LEN),
            (len > CHACHA_MAX, ERR_JOB_CIPH_LEN),
            (job.iv_len != 12, ERR_JOB_IV_LEN),
            (suite.hash != AUTH_CHACHA20_POLY1305, ERR_HASH_ALGO),
            far,
        ]),
        CIPHER_GCM_SGL => {
            first(&[
                (suite.hash != AUTH_GCM_SGL, ERR_HASH_ALGO),
                (no_key, ERR_JOB_NULL_KEY),
                (no_aes, ERR_JOB_KEY_LEN),
                (job.iv.is_null(), ERR_JOB_NULL_IV),
                (job.iv_len == 0 || job.iv_len > ANY_MAX, ERR_JOB_IV_LEN),
            ])?;
            check_segments(job, GCM_MAX)
        }
        CIPHER_CHACHA20_POLY1305_SGL => {
            first(&[
                (suite.hash != AUTH_CHACHA20_POLY1305_SGL, ERR_HASH_ALGO),
                (no_key, ERR_JOB_NULL_KEY),
                (suite.key_len != 32, ERR_JOB_KEY_LEN),
                (job.iv.is_null(), ERR_JOB_NULL_IV),
                (job.iv_len != 12, ERR_JOB_IV_LEN),
            ])?;
            check_segments(job, CHACHA_MAX)
        }
        _ => apart::check_cipher(job, suite, no_key),
    }
}

/// Checks the text of a message in parts, as far as the job itself says it.
fn check_segments(job: &Job, most: u64) -> Result<(), c_int> {
    let len = job.cipher_len;
    match job.sgl_state {
        SGL_INIT | SGL_UPDATE | SGL_COMPLETE => first(&[
            (len > most || job.cipher_offset > ANY_MAX, ERR_JOB_CIPH_LEN),
            (len != 0 && job.src.is_null(), ERR_JOB_NULL_SRC),
            (len != 0 && job.dst.is_null(), ERR_JOB_NULL_DST),
        ]),
        // There, the destination is the number of segments.
        SGL_ALL => first(&[
            (job.src.is_null() && !job.dst.is_null(), ERR_JOB_NULL_SRC),
            (job.dst.addr() as u64 > ANY_MAX, ERR_JOB_CIPH_LEN),
        ]),
        _ => Err(ERR_JOB_SGL_STATE),
    }
}

fn check_hash(job: &Job, suite: Suite) -> Result<(), c_int> {
    let no_src = (job.src.is_null(), ERR_JOB_NULL_SRC);
    let no_tag = (job.tag.is_null(), ERR_JOB_NULL_AUTH);
    let long = (job.hash_len > LANE_MAX, ERR_JOB_AUTH_LEN);
    let tag_not = |fits: bool| (!fits, ERR_JOB_AUTH_TAG_LEN);
    let [u0, u1, u2] = job.u.map(|field| field == 0);
    let hmac = |fits| {
        first(&[
            tag_not(fits),
            no_src,
            long,
            no_tag,
            (u0, ERR_JOB_NULL_HMAC_IPAD),
            (u1, ERR_JOB_NULL_HMAC_OPAD),
        ])
    };
    let aad = job.u[1];
    let no_aad = (aad > 0 && u0, ERR_JOB_NULL_AAD);
    let long_aad = (aad as u64 > ANY_MAX, ERR_JOB_AAD_LEN);
    let cipher_not = |cipher| (suite.cipher != cipher, ERR_CIPH_MODE);
    match suite.hash {
        AUTH_NULL => Ok(()),
        AUTH_MD5 => hmac(job.tag_len == 12 || job.tag_len == 16),
        AUTH_HMAC_SHA_1..=AUTH_HMAC_SHA_512 => {
            let whole = hmac_hash(suite.hash).map_or(0, HashAlg::digest_bytes) as u64;
            hmac((4..=whole).contains(&job.tag_len))
        }
        AUTH_AES_XCBC => first(&[
            no_src,
            tag_not(job.tag_len == 12 || job.tag_len == 16),
            no_tag,
            long,
            (u0, ERR_JOB_NULL_XCBC_K1_EXP),
            (u1, ERR_JOB_NULL_XCBC_K2),
            (u2, ERR_JOB_NULL_XCBC_K3),
        ]),
        AUTH_AES_CMAC | AUTH_AES_CMAC_256 => first(&[
            no_src,
            (u0 || u1 || u2, ERR_JOB_NULL_KEY),
            tag_not((1..=16).contains(&job.tag_len)),
            no_tag,
            long,
        ]),
        AUTH_AES_GMAC => first(&[
            tag_not((1..=16).contains(&job.tag_len)),
            no_aad,
            cipher_not(CIPHER_GCM),
            no_tag,
            long_aad,
        ]),
        AUTH_AES_GMAC_128..=AUTH_AES_GMAC_256 => first(&[
            tag_not((1..=16).contains(&job.tag_len)),
            no_tag,
            (suite.cipher == CIPHER_GCM, ERR_CIPH_MODE),
            (u0, ERR_JOB_NULL_AUTH_KEY),
            (u1, ERR_JOB_NULL_IV),
            (u2 || job.u[2] as u64 > ANY_MAX, ERR_JOB_IV_LEN),
            (job.hash_len != 0 && job.src.is_null(), ERR_JOB_NULL_SRC),
            (job.hash_len > ANY_MAX, ERR_JOB_AUTH_LEN),
        ]),
        AUTH_AES_CCM => first(&[
            (job.hash_len != 0 && job.src.is_null(), ERR_JOB_NULL_SRC),
            (aad > CCM_AAD_MAX, ERR_JOB_AAD_LEN),
            no_aad,
            tag_not((4..=16).contains(&job.tag_len) && job.tag_len.is_multiple_of(2)),
            cipher_not(CIPHER_CCM),
            long,
            (job.cipher_len != job.hash_len, ERR_JOB_CIPH_LEN),
            (job.cipher_offset != job.hash_offset, ERR_JOB_SRC_OFFSET),
            no_tag,
        ]),
        AUTH_CHACHA20_POLY1305 => first(&[
            (job.hash_len != 0 && job.src.is_null(), ERR_JOB_NULL_SRC),
            (job.hash_len != 0 && job.dst.is_null(), ERR_JOB_NULL_DST),
            cipher_not(CIPHER_CHACHA20_POLY1305),
            no_aad,
            no_tag,
            tag_not(job.tag_len == 16),
            long_aad,
        ]),
        AUTH_GCM_SGL | AUTH_CHACHA20_POLY1305_SGL => {
            let gcm = suite.hash == AUTH_GCM_SGL;
            let (cipher, fewest) =
                if gcm { (CIPHER_GCM_SGL, 1) } else { (CIPHER_CHACHA20_POLY1305_SGL, 16) };
            let ends = [SGL_COMPLETE, SGL_ALL].contains(&job.sgl_state);
            let begins = [SGL_INIT, SGL_ALL].contains(&job.sgl_state);
            first(&[
                cipher_not(cipher),
                (u2, ERR_JOB_NULL_SGL_CTX),
                (ends && !(fewest..=16).contains(&job.tag_len), ERR_JOB_AUTH_TAG_LEN),
                (ends && job.tag.is_null(), ERR_JOB_NULL_AUTH),
                (begins && aad > 0 && u0, ERR_JOB_NULL_AAD),
                long_aad,
            ])
        }
        _ => apart::check_hash(job, suite),
    }
}
