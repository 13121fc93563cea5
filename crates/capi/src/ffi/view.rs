//! A job of C seen as one of Rust.

use std::ffi::c_int;

use arrayvec::ArrayVec;
use convoy_crypto::{
    HashAlg,
    manager::{
        Buffer, ChainOrder, Direction, HmacKeys, Iv, Job as Inner, JobCipher, JobError, JobHash,
        Span,
    },
};

use super::chunk::CHUNK;
use super::raw::{
    Error, IN_REACH, Region, aead_key, bytes, bytes_mut, input, object, output, reach,
};
use crate::types::{
    CONVOY_CIPHER_AEAD, CONVOY_CIPHER_CBC, CONVOY_CIPHER_CCM, CONVOY_CIPHER_CTR,
    CONVOY_CIPHER_NULL, CONVOY_DIRECTION_DECRYPT, CONVOY_DIRECTION_ENCRYPT, CONVOY_ERR_AAD,
    CONVOY_ERR_AAD_LEN, CONVOY_ERR_ARGS, CONVOY_ERR_CHAIN_ORDER, CONVOY_ERR_CIPHER_DIRECTION,
    CONVOY_ERR_CIPHER_KEY, CONVOY_ERR_CIPHER_LEN, CONVOY_ERR_CIPHER_MODE, CONVOY_ERR_DST,
    CONVOY_ERR_HASH_ALG, CONVOY_ERR_HASH_KEY, CONVOY_ERR_HASH_LEN, CONVOY_ERR_IV,
    CONVOY_ERR_IV_LEN, CONVOY_ERR_LENGTH, CONVOY_ERR_SRC, CONVOY_ERR_TAG, CONVOY_ERR_TAG_LEN,
    CONVOY_ERR_TRAILER, CONVOY_ERR_TRAILER_LEN, CONVOY_HASH_AES_CMAC, CONVOY_HASH_AES_XCBC,
    CONVOY_HASH_HMAC_MD5, CONVOY_HASH_HMAC_SHA512, CONVOY_HASH_NULL, CONVOY_MAX_BYTES,
    CONVOY_ORDER_CIPHER_HASH, CONVOY_ORDER_HASH_CIPHER, Job,
};

/// Whether a job is valid and asks for nothing at all, so that it need not be looked at more closely.
/// Where this says no, [`view`] may still find the job to be good.
///
/// Nothing is read or written for such a job, so it may point anywhere: at the array of jobs, too,
/// where [`view`] lets nothing lie that a job might write.
#[inline]
pub(super) fn is_idle(job: &Job) -> bool {
    let end = job.cipher_offset.saturating_add(job.cipher_len);
    job.cipher_mode == CONVOY_CIPHER_NULL
        && job.hash_alg == CONVOY_HASH_NULL
        && job.src == job.dst.cast_const()
        && (!job.dst.is_null() || job.cipher_len == 0)
        && job.iv_len | job.tag_len | job.aad_len | job.trailer_len == 0
        && job.chain_order <= CONVOY_ORDER_HASH_CIPHER
        && end <= CONVOY_MAX_BYTES
        && job.dst.addr() <= usize::MAX - CONVOY_MAX_BYTES
}

/// Adds the job to `views` with pointers and lengths checked, or, if not `is_checked`, with what the caller answers
/// for; whether its parts fit together, the manager says. What is written lies apart from `jobs`, which are worked on
/// together with this one.
///
/// # Safety
///
/// Every pointer that the job's modes make use of, if not null, points to as much memory as its
/// length or type says. Nobody else writes that memory, nor reads what is to be written, while the
/// view is used. If not `is_checked`, the job meets all that `convoy_submit_job_nocheck` says.
#[inline(always)]
pub(super) unsafe fn push<'a>(
    job: &Job,
    is_checked: bool,
    jobs: Region,
    views: &mut ArrayVec<Inner<'a>, CHUNK>,
) -> Result<(), Error> {
    // Made in its place: what was just written in pieces is waited for when it is copied in larger ones.
    views.push(Inner::default());
    let Some(view) = views.last_mut() else { return Ok(()) };
    // SAFETY: the caller's promise is passed on.
    if unsafe { usual(job, is_checked, jobs, view) }.is_some() {
        return Ok(());
    }
    // SAFETY: as above.
    match unsafe { careful(job, jobs) } {
        Ok(good) => *view = good,
        Err(error) => {
            views.pop();
            return Err(error);
        }
    }
    Ok(())
}

/// Makes `view` the job, if it is a usual one and good: most are, and few branches tell.
///
/// # Safety
///
/// As for [`push`].
#[inline(always)]
unsafe fn usual<'a>(job: &Job, is_checked: bool, jobs: Region, view: &mut Inner<'a>) -> Option<()> {
    let hash_span = match job.hash_alg {
        CONVOY_HASH_NULL => Span::new(job.cipher_offset, 0),
        _ => Span::new(job.hash_offset, job.hash_len),
    };
    let cipher_span = Span::new(job.cipher_offset, job.cipher_len);
    let order = match job.chain_order {
        CONVOY_ORDER_CIPHER_HASH => ChainOrder::CipherThenHash,
        CONVOY_ORDER_HASH_CIPHER => ChainOrder::HashThenCipher,
        _ => return None,
    };
    // Nothing to work on, or sums that might be wrong, is not usual.
    let lengths = cipher_span.offset | cipher_span.len | hash_span.offset | hash_span.len;
    let others = job.aad_len | job.trailer_len | job.tag_len | job.iv_len;
    if lengths | others >= CONVOY_MAX_BYTES / 2 || cipher_span.len | hash_span.len == 0 {
        return None;
    }
    let whole = cover(cipher_span, hash_span);
    // SAFETY: the caller's promise is passed on.
    let (cipher, cipher_key) = unsafe { cipher(job) }.ok()?;
    // SAFETY: as above.
    let (hash, hash_key) = unsafe { hash(job) }.ok()?;
    let (src, dst) = (job.src.wrapping_add(whole.offset), job.dst.wrapping_add(whole.offset));
    let in_place = src == dst.cast_const();
    if is_checked && !(is_in_reach(job) && is_apart(job, whole, &[cipher_key, hash_key, jobs])) {
        return None;
    }
    // SAFETY: the caller's promise, for the IV. It may lie in what is worked on, so it is copied before
    // there is a reference to that.
    view.iv = Iv::new(unsafe { bytes(job.iv, job.iv_len) });
    view.buffer = if in_place && matches!(cipher, JobCipher::Null) {
        // SAFETY: the caller's promise, for what the spans cover.
        Buffer::ReadOnly(unsafe { bytes(src, whole.len) })
    } else if in_place {
        // SAFETY: as above.
        Buffer::InPlace(unsafe { bytes_mut(dst, whole.len) })
    } else {
        // SAFETY: as above, and the two do not overlap.
        let (src, dst) = (unsafe { bytes(src, whole.len) }, unsafe { bytes_mut(dst, whole.len) });
        Buffer::Copy { src, dst }
    };
    (view.cipher, view.cipher_span) = (cipher, within(whole, cipher_span));
    (view.hash, view.hash_span) = (hash, within(whole, hash_span));
    view.order = order;
    // SAFETY: the caller's promise, for additional data.
    view.aad = unsafe { bytes(job.aad, job.aad_len) };
    // SAFETY: the caller's promise, for the trailer.
    view.trailer = unsafe { bytes(job.trailer, job.trailer_len) };
    // SAFETY: the caller's promise, for the tag, which overlaps none of the above.
    view.tag = unsafe { bytes_mut(job.tag, job.tag_len) };
    Some(())
}

/// Whether no pointer is null but where nothing is, and none near the end of memory.
#[inline(always)]
fn is_in_reach(job: &Job) -> bool {
    let addresses = reach(job.src, 1)
        | reach(job.dst, 1)
        | reach(job.iv, job.iv_len)
        | reach(job.tag, job.tag_len)
        | reach(job.aad, job.aad_len)
        | reach(job.trailer, job.trailer_len);
    addresses < IN_REACH
}

/// Whether what the job writes, `whole` of its destination and the tag, is apart from what it reads, and from
/// `others`. All of it is [in reach](is_in_reach).
#[inline(always)]
fn is_apart(job: &Job, whole: Span, others: &[Region; 3]) -> bool {
    let from = Region::within_reach(job.src.wrapping_add(whole.offset), whole.len);
    let to = Region::within_reach(job.dst.wrapping_add(whole.offset), whole.len);
    let tag = Region::within_reach(job.tag, job.tag_len);
    if job.src != job.dst.cast_const() && to.overlaps(from) | tag.overlaps(from) {
        return false;
    }
    let iv = Region::within_reach(job.iv, job.iv_len);
    let mut near = tag.overlaps(to) | tag.overlaps(iv);
    if job.aad_len | job.trailer_len != 0 {
        let aad = Region::within_reach(job.aad, job.aad_len);
        let trailer = Region::within_reach(job.trailer, job.trailer_len);
        near |= to.overlaps(aad) | tag.overlaps(aad) | to.overlaps(trailer) | tag.overlaps(trailer);
    }
    // Mostly the tag is behind the text, and keys and jobs are elsewhere.
    let written = if job.tag_len == 0 { to } else { to.hull(tag) };
    let mut far = others.iter().fold(false, |any, other| any | written.overlaps(*other));
    if far {
        far = others.iter().any(|other| to.overlaps(*other) | tag.overlaps(*other));
    }
    !(near | far)
}

/// A span as seen from the beginning of the one that it lies in.
#[inline(always)]
fn within(whole: Span, span: Span) -> Span {
    match span.len {
        0 => Span::default(),
        len => Span::new(span.offset - whole.offset, len),
    }
}

/// The job, or what is wrong with it.
///
/// # Safety
///
/// As for [`push`].
#[cold]
#[inline(never)]
pub(super) unsafe fn careful<'a>(job: &Job, jobs: Region) -> Result<Inner<'a>, Error> {
    // SAFETY: the caller's promise is passed on.
    let (cipher, cipher_key) = unsafe { cipher(job) }?;
    // SAFETY: as above.
    let (hash, hash_key) = unsafe { hash(job) }?;
    let order = match job.chain_order {
        CONVOY_ORDER_CIPHER_HASH => ChainOrder::CipherThenHash,
        CONVOY_ORDER_HASH_CIPHER => ChainOrder::HashThenCipher,
        _ => return Err(Error::Job(CONVOY_ERR_CHAIN_ORDER)),
    };
    let cipher_span = span(job.cipher_offset, job.cipher_len)?;
    let hash_span = match hash {
        JobHash::Null => Span::default(),
        _ => span(job.hash_offset, job.hash_len)?,
    };
    let whole = cover(cipher_span, hash_span);
    // Only what the job covers becomes a slice: additional data may lie in front of it.
    let (src, dst) = if whole.len == 0 {
        (job.src, job.dst)
    } else if job.src.is_null() {
        return Err(Error::Job(CONVOY_ERR_SRC));
    } else if job.dst.is_null() {
        return Err(Error::Job(CONVOY_ERR_DST));
    } else {
        // That the ends of both can be told makes sure that the beginnings are what they seem.
        let end = whole.offset + whole.len;
        Region::new(job.src, end)?;
        Region::new(job.dst, end)?;
        (job.src.wrapping_add(whole.offset), job.dst.wrapping_add(whole.offset))
    };
    let (from, to) = (Region::new(src, whole.len)?, Region::new(dst, whole.len)?);
    let tag = region(job.tag, job.tag_len, CONVOY_ERR_TAG)?;
    let aad = region(job.aad, job.aad_len, CONVOY_ERR_AAD)?;
    let trailer = region(job.trailer, job.trailer_len, CONVOY_ERR_TRAILER)?;
    let iv = region(job.iv, job.iv_len, CONVOY_ERR_IV)?;
    to.apart(&[aad, trailer, cipher_key, hash_key, jobs])?;
    tag.apart(&[from, to, aad, trailer, iv, cipher_key, hash_key, jobs])?;
    // SAFETY: the caller's promise, for the IV. It may lie in what is worked on, so it is copied before
    // there is a reference to that.
    let iv = Iv::new(unsafe { input(job.iv, job.iv_len) }?);
    let buffer = if src == dst.cast_const() && matches!(cipher, JobCipher::Null) {
        // SAFETY: the caller's promise, for what the spans cover.
        Buffer::ReadOnly(unsafe { input(src, whole.len) }?)
    } else if src == dst.cast_const() {
        // SAFETY: as above.
        Buffer::InPlace(unsafe { output(dst, whole.len) }?)
    } else {
        to.apart(&[from])?;
        // SAFETY: as above, and the two do not overlap.
        let (src, dst) = (unsafe { input(src, whole.len) }?, unsafe { output(dst, whole.len) }?);
        Buffer::Copy { src, dst }
    };
    // SAFETY: the caller's promise, for additional data.
    let aad = unsafe { input(job.aad, job.aad_len) }?;
    // SAFETY: the caller's promise, for the trailer.
    let trailer = unsafe { input(job.trailer, job.trailer_len) }?;
    // SAFETY: the caller's promise, for the tag, which overlaps none of the above.
    let tag = unsafe { output(job.tag, job.tag_len) }?;
    let mut view = Inner::default();
    view.buffer = buffer;
    (view.cipher, view.cipher_span) = (cipher, within(whole, cipher_span));
    (view.hash, view.hash_span) = (hash, within(whole, hash_span));
    (view.order, view.iv, view.aad, view.trailer, view.tag) = (order, iv, aad, trailer, tag);
    Ok(view)
}

/// As [`Region::new`], with an error of its own for null.
fn region(pointer: *const u8, len: usize, null: c_int) -> Result<Region, Error> {
    Region::new(pointer, len).map_err(|error| match error {
        Error::Null => Error::Job(null),
        other => other,
    })
}

fn span(offset: usize, len: usize) -> Result<Span, Error> {
    match offset.checked_add(len) {
        Some(end) if end <= CONVOY_MAX_BYTES => Ok(Span::new(offset, len)),
        _ => Err(Error::Length),
    }
}

/// From the first byte of either to the last.
fn cover(a: Span, b: Span) -> Span {
    match (a.len, b.len) {
        (0, 0) => Span::default(),
        (_, 0) => a,
        (0, _) => b,
        _ => {
            let offset = a.offset.min(b.offset);
            Span::new(offset, (a.offset + a.len).max(b.offset + b.len) - offset)
        }
    }
}

/// # Safety
///
/// As for [`push`].
unsafe fn cipher<'a>(job: &Job) -> Result<(JobCipher<'a>, Region), Error> {
    let direction = match job.cipher_direction {
        CONVOY_DIRECTION_ENCRYPT => Direction::Encrypt,
        CONVOY_DIRECTION_DECRYPT => Direction::Decrypt,
        _ if job.cipher_mode == CONVOY_CIPHER_NULL => Direction::Encrypt,
        _ if !(CONVOY_CIPHER_NULL..=CONVOY_CIPHER_AEAD).contains(&job.cipher_mode) => {
            return Err(Error::Job(CONVOY_ERR_CIPHER_MODE));
        }
        _ => return Err(Error::Job(CONVOY_ERR_CIPHER_DIRECTION)),
    };
    let wrong_key = |_| Error::Job(CONVOY_ERR_CIPHER_KEY);
    let key = job.cipher_key;
    // SAFETY: all variants are pointers of one size, so reading any of them yields a pointer.
    let (enc, dec, aead) = (unsafe { key.enc }, unsafe { key.dec }, unsafe { key.aead });
    Ok(match (job.cipher_mode, direction) {
        (CONVOY_CIPHER_NULL, _) => (JobCipher::Null, Region::NONE),
        (CONVOY_CIPHER_CBC, Direction::Decrypt) => {
            // SAFETY: the mode says which key is meant; key types of both sides have one layout.
            let key = unsafe { object(dec.cast()) }.map_err(wrong_key)?;
            (JobCipher::CbcDecrypt(key), Region::of(dec)?)
        }
        (CONVOY_CIPHER_CBC | CONVOY_CIPHER_CTR | CONVOY_CIPHER_CCM, _) => {
            // SAFETY: as above.
            let key = unsafe { object(enc.cast()) }.map_err(wrong_key)?;
            let cipher = match job.cipher_mode {
                CONVOY_CIPHER_CBC => JobCipher::CbcEncrypt(key),
                CONVOY_CIPHER_CTR => JobCipher::Ctr(key),
                _ => JobCipher::Ccm(key, direction),
            };
            (cipher, Region::of(enc)?)
        }
        (CONVOY_CIPHER_AEAD, _) => {
            // SAFETY: as above; the pointer came from this library.
            let key = unsafe { aead_key(aead) }.map_err(wrong_key)?;
            (JobCipher::Aead(&key.key, direction), Region::of(aead)?)
        }
        _ => return Err(Error::Job(CONVOY_ERR_CIPHER_MODE)),
    })
}

/// # Safety
///
/// As for [`push`].
unsafe fn hash<'a>(job: &Job) -> Result<(JobHash<'a>, Region), Error> {
    let wrong_key = |_| Error::Job(CONVOY_ERR_HASH_KEY);
    let key = job.hash_key;
    // SAFETY: all variants are pointers of one size, so reading any of them yields a pointer.
    let (hmac, xcbc, cmac) = (unsafe { key.hmac }, unsafe { key.xcbc }, unsafe { key.cmac });
    Ok(match job.hash_alg {
        CONVOY_HASH_NULL => (JobHash::Null, Region::NONE),
        number @ CONVOY_HASH_HMAC_MD5..=CONVOY_HASH_HMAC_SHA512 => {
            // SAFETY: the algorithm says which key is meant; key types of both sides have one
            // layout.
            let keys: &HmacKeys = unsafe { object(hmac.cast()) }.map_err(wrong_key)?;
            if keys.alg() != hash_alg(number) {
                return Err(Error::Job(CONVOY_ERR_HASH_KEY));
            }
            (JobHash::Hmac(keys), Region::of(hmac)?)
        }
        CONVOY_HASH_AES_XCBC => {
            // SAFETY: as above.
            (JobHash::Xcbc(unsafe { object(xcbc.cast()) }.map_err(wrong_key)?), Region::of(xcbc)?)
        }
        CONVOY_HASH_AES_CMAC => {
            // SAFETY: as above.
            (JobHash::Cmac(unsafe { object(cmac.cast()) }.map_err(wrong_key)?), Region::of(cmac)?)
        }
        _ => return Err(Error::Job(CONVOY_ERR_HASH_ALG)),
    })
}

/// What a job's error says of what the manager found.
pub(super) fn code_of(error: JobError) -> c_int {
    match error {
        JobError::Cipher => CONVOY_ERR_CIPHER_MODE,
        JobError::CipherKey => CONVOY_ERR_CIPHER_KEY,
        JobError::HashKey => CONVOY_ERR_HASH_KEY,
        JobError::Hash => CONVOY_ERR_HASH_ALG,
        JobError::IvLength => CONVOY_ERR_IV_LEN,
        JobError::CipherLength => CONVOY_ERR_CIPHER_LEN,
        JobError::HashLength => CONVOY_ERR_HASH_LEN,
        JobError::Aad => CONVOY_ERR_AAD_LEN,
        JobError::Trailer => CONVOY_ERR_TRAILER_LEN,
        JobError::TagLength => CONVOY_ERR_TAG_LEN,
        // What is described here has neither.
        JobError::Span | JobError::ReadOnly => CONVOY_ERR_LENGTH,
        _ => CONVOY_ERR_ARGS,
    }
}

/// The hash of an HMAC's number.
pub(super) fn hash_alg(number: u32) -> Option<HashAlg> {
    let place = number.checked_sub(CONVOY_HASH_HMAC_MD5)?;
    HashAlg::ALL.get(place as usize).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where nothing is, for what must not be looked at.
    const NO_JOBS: Region = Region::NONE;

    #[test]
    fn jobs_that_ask_for_nothing_are_valid_ones() {
        let mut bytes = [0u8; 64];
        let good = bytes.as_mut_ptr();
        let far = |back: usize| std::ptr::without_provenance_mut::<u8>(usize::MAX - back);
        let ends = [0, 1, 40, CONVOY_MAX_BYTES - 1, CONVOY_MAX_BYTES, usize::MAX - 1, usize::MAX];
        let (mut idle, mut all) = (0, 0);
        for dst in [std::ptr::null_mut(), good, far(0), far(60), far(CONVOY_MAX_BYTES)] {
            for (cipher_offset, cipher_len) in
                ends.iter().flat_map(|&offset| ends.iter().map(move |&len| (offset, len)))
            {
                for (other_len, chain_order) in [(0, 0), (0, 2), (1, 0), (usize::MAX, 1)] {
                    for place in 0..4 {
                        let mut job =
                            Job { src: dst, dst, cipher_offset, cipher_len, ..Job::default() };
                        (job.cipher_mode, job.chain_order) = (CONVOY_CIPHER_NULL, chain_order);
                        let len = match place {
                            0 => &mut job.iv_len,
                            1 => &mut job.aad_len,
                            2 => &mut job.trailer_len,
                            _ => &mut job.tag_len,
                        };
                        *len = other_len;
                        all += 1;
                        if is_idle(&job) {
                            idle += 1;
                            let mut views = ArrayVec::new();
                            // SAFETY: whatever is pointed to, nobody looks there.
                            let pushed = unsafe { push(&job, true, NO_JOBS, &mut views) };
                            assert!(pushed.is_ok(), "{dst:?}, {cipher_offset} and {cipher_len}");
                        }
                    }
                }
            }
        }
        assert!(idle > 0 && idle < all);
    }

    #[test]
    fn jobs_that_only_authenticate_take_no_reference_to_write() {
        let (mut bytes, mut tag) = ([0u8; 64], [0u8; 16]);
        let key = HmacKeys::new(
            &convoy_crypto::Cpu::without("").unwrap(),
            HashAlg::Md5,
            &convoy_crypto::SecretBytes::copy_from(b"key"),
        );
        let mut job = Job { src: bytes.as_ptr(), dst: bytes.as_mut_ptr(), ..Job::default() };
        (job.cipher_mode, job.hash_alg, job.hash_len) =
            (CONVOY_CIPHER_NULL, CONVOY_HASH_HMAC_MD5, 64);
        (job.tag, job.tag_len) = (tag.as_mut_ptr(), 16);
        job.hash_key.hmac = (&raw const *key).cast();
        let mut views = ArrayVec::new();
        // SAFETY: all pointers are to locals.
        unsafe { push(&job, true, NO_JOBS, &mut views) }.unwrap();
        assert!(matches!(views[0].buffer, Buffer::ReadOnly(data) if data.len() == 64));
    }
}
