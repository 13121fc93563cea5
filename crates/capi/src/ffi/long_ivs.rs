//! Jobs of AES-GCM and AES-GMAC with IVs that are hashed first (NIST SP 800-38D section 7.1), those of 12 bytes being all others:
//! one after the other, as messages in parts go.

use std::panic::{AssertUnwindSafe, catch_unwind};

use convoy_crypto::{Suite, manager::Buffer};
use zeroize::Zeroizing;

use super::{
    parts::Parts,
    raw::{Error, Region, aead_key, input},
    view::careful,
};
use crate::types::{
    CONVOY_CIPHER_AEAD, CONVOY_DIRECTION_DECRYPT, CONVOY_DIRECTION_ENCRYPT, CONVOY_ERR_HASH_ALG,
    CONVOY_ERR_INTERNAL, CONVOY_ERR_IV, CONVOY_ERR_IV_LEN, CONVOY_ERR_TAG_LEN,
    CONVOY_ERR_TRAILER_LEN, CONVOY_HASH_NULL, Job,
};

/// Whether the job is of an AEAD and has an IV of another length than AEADs have. There may be more that is wrong.
#[inline(always)]
pub(super) fn has_one(job: &Job) -> bool {
    job.cipher_mode == CONVOY_CIPHER_AEAD && job.iv_len != 12
}

/// Works on such a job; only AES-GCM and AES-GMAC take it.
///
/// # Safety
///
/// As for [`view::push`](super::view::push).
#[inline(never)]
pub(super) unsafe fn run(job: &Job, jobs: Region) -> Result<(), Error> {
    // What says nothing of the IV.
    let other = Job { iv: std::ptr::null(), iv_len: 0, ..*job };
    // SAFETY: all variants are pointers of one size, so reading any of them yields a pointer.
    let key = unsafe { job.cipher_key.aead };
    // SAFETY: the caller promises that the mode says which key is meant.
    let key = unsafe { aead_key(key) };
    let seals = match job.cipher_direction {
        CONVOY_DIRECTION_ENCRYPT => true,
        CONVOY_DIRECTION_DECRYPT => false,
        // SAFETY: the caller's promise; it tells what is wrong.
        _ => return unsafe { careful(&other, jobs) }.map(drop),
    };
    let Ok(key) = key else {
        // SAFETY: as above.
        return unsafe { careful(&other, jobs) }.map(drop);
    };
    let fits = [
        (key.key.suite() != Suite::ChaCha20Poly1305 && job.iv_len > 0, CONVOY_ERR_IV_LEN),
        (job.hash_alg == CONVOY_HASH_NULL, CONVOY_ERR_HASH_ALG),
        (job.trailer_len == 0, CONVOY_ERR_TRAILER_LEN),
        ((4..=16).contains(&job.tag_len), CONVOY_ERR_TAG_LEN),
        (!job.iv.is_null(), CONVOY_ERR_IV),
    ];
    if let Some((_, error)) = fits.into_iter().find(|(fits, _)| !fits) {
        return Err(Error::Job(error));
    }
    Region::new(job.tag, job.tag_len)?.apart(&[Region::new(job.iv, job.iv_len)?])?;
    // SAFETY: the caller's promise. The IV may lie in the text, so it is hashed before there is a reference to that.
    let iv = unsafe { input(job.iv, job.iv_len) }?;
    let key: &convoy_crypto::AeadKey = &key.key;
    let mut parts = Parts::new(key, seals, iv)?;
    // SAFETY: the caller's promise.
    let view = unsafe { careful(&other, jobs) }?;
    let text = match view.buffer {
        Buffer::InPlace(text) => text,
        Buffer::Copy { src, dst } => {
            dst.copy_from_slice(src);
            dst
        }
        Buffer::ReadOnly(_) => return Err(Error::Args),
    };
    let work = || {
        parts.aad(view.aad)?;
        parts.update(text)?;
        parts.any_tag()
    };
    let Ok(tag) = catch_unwind(AssertUnwindSafe(work)) else {
        return Err(Error::Job(CONVOY_ERR_INTERNAL));
    };
    let tag = Zeroizing::new(tag?);
    view.tag.copy_from_slice(tag.get(..job.tag_len).unwrap_or_default());
    Ok(())
}
