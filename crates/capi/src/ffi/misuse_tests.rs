//! What a C program may do wrong, and must get an error value for.

// C has no such thing as a single unsafe operation: a sequence of calls is what is tested.
#![allow(clippy::multiple_unsafe_ops_per_block)]

use std::{
    ffi::{CStr, c_int},
    mem::MaybeUninit,
    ptr,
};

use crate::{
    ffi::*,
    types::{
        AeadKey, AesDecKey, AesEncKey, CONVOY_BATCH_MAX, CONVOY_CIPHER_AEAD, CONVOY_CIPHER_CBC,
        CONVOY_CIPHER_CCM, CONVOY_CIPHER_CTR, CONVOY_CIPHER_NULL, CONVOY_DIRECTION_DECRYPT,
        CONVOY_DIRECTION_ENCRYPT, CONVOY_ERR_AAD, CONVOY_ERR_AAD_LEN, CONVOY_ERR_ARGS,
        CONVOY_ERR_CHAIN_ORDER, CONVOY_ERR_CIPHER_DIRECTION, CONVOY_ERR_CIPHER_KEY,
        CONVOY_ERR_CIPHER_LEN, CONVOY_ERR_CIPHER_MODE, CONVOY_ERR_DST, CONVOY_ERR_FORGED,
        CONVOY_ERR_HASH_ALG, CONVOY_ERR_HASH_KEY, CONVOY_ERR_IV, CONVOY_ERR_IV_LEN,
        CONVOY_ERR_LENGTH, CONVOY_ERR_MEMORY, CONVOY_ERR_NULL, CONVOY_ERR_OVERLAP, CONVOY_ERR_SRC,
        CONVOY_ERR_STATE, CONVOY_ERR_TAG, CONVOY_ERR_TAG_LEN, CONVOY_ERR_TRAILER,
        CONVOY_ERR_TRAILER_LEN, CONVOY_HASH_AES_CMAC, CONVOY_HASH_AES_XCBC, CONVOY_HASH_HMAC_SHA1,
        CONVOY_HASH_HMAC_SHA256, CONVOY_MAX_BYTES, CONVOY_OK, CONVOY_STATUS_COMPLETED,
        CONVOY_STATUS_INVALID_ARGS, CONVOY_TIER_AUTO, CONVOY_TIER_PORTABLE, CipherKey, CmacKey,
        HashKey, HmacKey, Job, XcbcKey,
    },
};

fn zeroed<T>() -> Box<T> {
    let memory = MaybeUninit::<T>::zeroed();
    // SAFETY: used for types that are made of integers.
    Box::new(unsafe { memory.assume_init() })
}

/// A manager that is freed at the end.
struct Manager(*mut Mgr);

impl Manager {
    fn new() -> Self {
        let mut mgr = ptr::null_mut();
        // SAFETY: the place is a local variable.
        assert_eq!(unsafe { convoy_mgr_new(CONVOY_TIER_AUTO, &raw mut mgr) }, CONVOY_OK);
        Self(mgr)
    }

    /// The status of one job, taken through the queue.
    fn status(&self, job: Job) -> u32 {
        self.run(job).status
    }

    /// One job as it comes back from the queue.
    fn run(&self, job: Job) -> Job {
        // SAFETY: tests promise what a C program would, but for what they try out.
        unsafe {
            *convoy_get_next_job(self.0) = job;
            assert!(convoy_submit_job(self.0).is_null());
            let done = convoy_flush_job(self.0);
            assert!(!done.is_null());
            *done
        }
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        // SAFETY: made above, and freed once.
        unsafe { convoy_mgr_free(self.0) };
    }
}

struct Keys {
    enc: Box<AesEncKey>,
    dec: Box<AesDecKey>,
    hmac: Box<HmacKey>,
}

fn keys() -> Keys {
    let mut keys = Keys { enc: zeroed(), dec: zeroed(), hmac: zeroed() };
    let secret = [1u8; 16];
    // SAFETY: all pointers are to locals of the right size.
    unsafe {
        assert_eq!(convoy_aes_keyexp_128(secret.as_ptr(), &mut *keys.enc, &mut *keys.dec), 0);
        let (alg, hmac) = (CONVOY_HASH_HMAC_SHA1, &raw mut *keys.hmac);
        assert_eq!(convoy_hmac_keyexp(alg, secret.as_ptr(), 16, hmac), 0);
    }
    keys
}

/// A good job: CBC and HMAC-SHA-1 over a buffer of 100 bytes.
fn good(keys: &Keys, buffer: &mut [u8; 100], tag: &mut [u8; 20], iv: &[u8; 16]) -> Job {
    let mut job = Job {
        src: buffer.as_ptr(),
        dst: buffer.as_mut_ptr(),
        cipher_offset: 16,
        cipher_len: 64,
        hash_offset: 8,
        hash_len: 72,
        iv: iv.as_ptr(),
        iv_len: 16,
        tag: tag.as_mut_ptr(),
        tag_len: 12,
        cipher_mode: CONVOY_CIPHER_CBC,
        cipher_direction: CONVOY_DIRECTION_ENCRYPT,
        hash_alg: CONVOY_HASH_HMAC_SHA1,
        ..Job::default()
    };
    job.cipher_key.enc = &raw const *keys.enc;
    job.hash_key.hmac = &raw const *keys.hmac;
    job
}

#[test]
fn every_wrong_job_is_told_from_the_good_one() {
    let (manager, keys) = (Manager::new(), keys());
    let (mut buffer, mut tag, iv) = ([5; 100], [6; 20], [7; 16]);
    let mut other = [0u8; 200];
    let job = good(&keys, &mut buffer, &mut tag, &iv);
    let xcbc: Box<XcbcKey> = zeroed();
    let odd = ptr::without_provenance::<AesEncKey>(8);
    let far = ptr::without_provenance_mut::<u8>(usize::MAX - 50);
    let wrong: Vec<(&str, Job)> = vec![
        ("nothing set", Job::default()),
        ("nothing to do beyond the limit", {
            let job = Job { cipher_mode: CONVOY_CIPHER_NULL, hash_alg: 0, tag_len: 0, ..job };
            Job { cipher_offset: CONVOY_MAX_BYTES, cipher_len: 1, ..job }
        }),
        ("nothing to do with an iv that is not there", {
            let job = Job { cipher_mode: CONVOY_CIPHER_NULL, hash_alg: 0, tag_len: 0, ..job };
            Job { iv: ptr::null(), ..job }
        }),
        ("no mode", Job { cipher_mode: 0, ..job }),
        ("unknown mode", Job { cipher_mode: 77, ..job }),
        ("no direction", Job { cipher_direction: 0, ..job }),
        ("unknown direction", Job { cipher_direction: 3, ..job }),
        ("unknown hash", Job { hash_alg: 99, ..job }),
        ("hash of another key", Job { hash_alg: CONVOY_HASH_HMAC_SHA256, ..job }),
        ("unknown order", Job { chain_order: 2, ..job }),
        ("null src", Job { src: ptr::null(), ..job }),
        ("null dst", Job { dst: ptr::null_mut(), ..job }),
        ("null iv", Job { iv: ptr::null(), ..job }),
        ("null tag", Job { tag: ptr::null_mut(), ..job }),
        ("null aad", Job { aad_len: 8, ..job }),
        ("null trailer", Job { trailer_len: 4, ..job }),
        ("null cipher key", {
            let mut job = job;
            job.cipher_key.enc = ptr::null();
            job
        }),
        ("null hash key", {
            let mut job = job;
            job.hash_key.hmac = ptr::null();
            job
        }),
        ("misaligned key", {
            let mut job = job;
            job.cipher_key.enc = odd;
            job
        }),
        ("decryption key for encryption", {
            let mut job = job;
            job.cipher_key.dec = &raw const *keys.dec;
            job
        }),
        ("encryption key for decryption", {
            Job { cipher_direction: CONVOY_DIRECTION_DECRYPT, ..job }
        }),
        ("xcbc key that was not set up", {
            let mut job = Job { hash_alg: CONVOY_HASH_AES_XCBC, ..job };
            job.hash_key.xcbc = &raw const *xcbc;
            job
        }),
        ("aead without a key", {
            let mut job = Job { cipher_mode: CONVOY_CIPHER_AEAD, hash_alg: 0, ..job };
            job.cipher_key.aead = ptr::null();
            job
        }),
        ("part of a block", Job { cipher_len: 63, ..job }),
        ("absurd length", Job { cipher_len: usize::MAX & !15, ..job }),
        ("absurd offset", Job { cipher_offset: usize::MAX - 15, ..job }),
        ("absurd hash length", Job { hash_len: usize::MAX / 2, ..job }),
        ("beyond the limit", Job { hash_len: CONVOY_MAX_BYTES, hash_offset: 1, ..job }),
        ("absurd iv", Job { iv_len: usize::MAX, ..job }),
        ("absurd aad", Job { aad: iv.as_ptr(), aad_len: usize::MAX, ..job }),
        ("absurd tag", Job { tag_len: usize::MAX, ..job }),
        ("aad without an aead", Job { aad: other.as_ptr(), aad_len: 8, ..job }),
        ("trailer too long", Job { trailer: other.as_ptr(), trailer_len: 17, ..job }),
        ("iv too short", Job { iv_len: 15, ..job }),
        ("iv too long", Job { iv_len: 17, ..job }),
        ("tag too short", Job { tag_len: 3, ..job }),
        ("tag too long", Job { tag_len: 21, ..job }),
        ("buffer at the end of memory", Job { src: far, dst: far, ..job }),
        (
            "partial overlap",
            Job { src: other.as_ptr(), dst: other.as_mut_ptr().wrapping_add(1), ..job },
        ),
        ("partial overlap from behind", {
            Job { src: other.as_ptr().wrapping_add(71), dst: other.as_mut_ptr(), ..job }
        }),
        ("tag in the text", Job { tag: job.dst.wrapping_add(70), ..job }),
        ("trailer in the text", Job { trailer: job.src.wrapping_add(78), trailer_len: 4, ..job }),
        ("tag in the source", {
            Job { src: other.as_ptr(), tag: other.as_mut_ptr().wrapping_add(20), ..job }
        }),
        ("text in the key", {
            let key = (&raw const *keys.enc).cast_mut().cast();
            Job { src: key, dst: key, ..job }
        }),
        ("tag in the key", Job { tag: (&raw const *keys.hmac).cast_mut().cast(), ..job }),
    ];
    for (what, job) in wrong {
        assert_eq!(manager.status(job), CONVOY_STATUS_INVALID_ARGS, "{what}");
    }
    assert_eq!((buffer, tag, other), ([5; 100], [6; 20], [0; 200]), "nothing was touched");
    let job = good(&keys, &mut buffer, &mut tag, &iv);
    assert_eq!(manager.status(job), CONVOY_STATUS_COMPLETED);
    assert!(buffer[..16] == [5; 16] && buffer[16..80] != [5; 64] && buffer[80..] == [5; 20]);
    assert!(tag[..12] != [6; 12] && tag[12..] == [6; 8]);
    // A buffer right behind the source is no overlap: 72 bytes are covered.
    let far_enough = Job { src: other.as_ptr(), dst: other.as_mut_ptr().wrapping_add(72), ..job };
    assert_eq!(manager.status(far_enough), CONVOY_STATUS_COMPLETED);
}

#[test]
fn an_invalid_job_says_what_is_wrong_with_it() {
    let (manager, keys) = (Manager::new(), keys());
    let (mut buffer, mut tag, iv) = ([5; 100], [6; 20], [7; 16]);
    let job = good(&keys, &mut buffer, &mut tag, &iv);
    let fresh: Box<CmacKey> = zeroed();
    let wrong_enc = Job { cipher_key: CipherKey { dec: &raw const *keys.dec }, ..job };
    let no_enc = Job { cipher_key: CipherKey { enc: ptr::null() }, ..job };
    let cmac = HashKey { cmac: &raw const *fresh };
    let ccm = Job { cipher_mode: CONVOY_CIPHER_CCM, hash_alg: 0, iv_len: 12, tag_len: 16, ..job };
    let other = iv.as_ptr();
    for (wrong, error) in [
        (Job::default(), CONVOY_ERR_CIPHER_MODE),
        (Job { cipher_mode: 77, ..job }, CONVOY_ERR_CIPHER_MODE),
        (Job { cipher_direction: 0, ..job }, CONVOY_ERR_CIPHER_DIRECTION),
        (Job { hash_alg: 99, ..job }, CONVOY_ERR_HASH_ALG),
        (Job { hash_alg: CONVOY_HASH_HMAC_SHA1, ..ccm }, CONVOY_ERR_HASH_ALG),
        (Job { chain_order: 2, ..job }, CONVOY_ERR_CHAIN_ORDER),
        (wrong_enc, CONVOY_ERR_CIPHER_KEY),
        (no_enc, CONVOY_ERR_CIPHER_KEY),
        (Job { hash_alg: CONVOY_HASH_HMAC_SHA256, ..job }, CONVOY_ERR_HASH_KEY),
        (Job { hash_alg: CONVOY_HASH_AES_CMAC, hash_key: cmac, ..job }, CONVOY_ERR_HASH_KEY),
        (Job { iv_len: 15, ..job }, CONVOY_ERR_IV_LEN),
        (Job { cipher_len: 63, ..job }, CONVOY_ERR_CIPHER_LEN),
        (Job { aad: other, aad_len: 8, ..job }, CONVOY_ERR_AAD_LEN),
        (Job { trailer: other, trailer_len: 17, ..job }, CONVOY_ERR_TRAILER_LEN),
        (Job { trailer: other, trailer_len: 4, ..ccm }, CONVOY_ERR_TRAILER_LEN),
        (Job { tag_len: 3, ..job }, CONVOY_ERR_TAG_LEN),
        (Job { tag_len: 5, ..ccm }, CONVOY_ERR_TAG_LEN),
        (Job { src: ptr::null(), ..job }, CONVOY_ERR_SRC),
        (Job { dst: ptr::null_mut(), ..job }, CONVOY_ERR_DST),
        (Job { iv: ptr::null(), ..job }, CONVOY_ERR_IV),
        (Job { aad_len: 8, ..ccm }, CONVOY_ERR_AAD),
        (Job { trailer_len: 8, ..job }, CONVOY_ERR_TRAILER),
        (Job { tag: ptr::null_mut(), ..job }, CONVOY_ERR_TAG),
        (Job { cipher_len: CONVOY_MAX_BYTES + 16, ..job }, CONVOY_ERR_LENGTH),
        (Job { tag: job.dst.wrapping_add(70), ..job }, CONVOY_ERR_OVERLAP),
        // The IV is read while tags are written.
        (Job { tag: iv.as_ptr().cast_mut(), ..job }, CONVOY_ERR_OVERLAP),
        (Job { tag: iv.as_ptr().cast_mut().wrapping_add(4), ..ccm }, CONVOY_ERR_OVERLAP),
    ] {
        let done = manager.run(wrong);
        let codes = (done.status, done.error);
        assert_eq!(codes, (CONVOY_STATUS_INVALID_ARGS, error), "{wrong:?} {error}");
    }
    assert_eq!((buffer, tag, iv), ([5; 100], [6; 20], [7; 16]), "nothing was touched");
    let job = good(&keys, &mut buffer, &mut tag, &iv);
    let done = manager.run(Job { error: 1, ..job });
    assert_eq!((done.status, done.error), (CONVOY_STATUS_COMPLETED, CONVOY_OK));
}

#[test]
fn a_manager_works_on_as_many_jobs_together_as_it_was_told() {
    let (keys, iv) = (keys(), [7; 16]);
    let mut memory = vec![([5u8; 100], [6u8; 20]); 40];
    for batch in [0, CONVOY_BATCH_MAX + 1, usize::MAX] {
        let mut mgr = ptr::dangling_mut();
        // SAFETY: the place is a local.
        let code = unsafe { convoy_mgr_new_batch(CONVOY_TIER_AUTO, batch, &raw mut mgr) };
        assert_eq!((code, mgr), (CONVOY_ERR_LENGTH, ptr::null_mut()));
    }
    for batch in [1, 5, 16] {
        let mut mgr = ptr::null_mut();
        // SAFETY: pointers are to locals, and jobs are good ones.
        unsafe {
            assert_eq!(convoy_mgr_new_batch(CONVOY_TIER_AUTO, batch, &raw mut mgr), CONVOY_OK);
            for (number, (buffer, tag)) in memory.iter_mut().enumerate() {
                let job = convoy_get_next_job(mgr);
                *job = good(&keys, buffer, tag, &iv);
                (*job).user_data = ptr::without_provenance_mut(number);
                let done = convoy_submit_job(mgr);
                // The earliest comes back as soon as a batch is there.
                assert_eq!(done.is_null(), number + 1 < batch, "{batch}");
                assert!(done.is_null() || (*done).user_data.addr() == number + 1 - batch);
            }
            // The rest by a burst, two at a time.
            let mut jobs = [ptr::null_mut(); 2];
            for first in (41 - batch..40).step_by(2) {
                let count = convoy_flush_burst(mgr, jobs.as_mut_ptr(), 2);
                assert_eq!(count, (40 - first).min(2));
                for (place, job) in jobs[..count].iter().enumerate() {
                    assert_eq!((**job).user_data.addr(), first + place);
                    assert_eq!((**job).status, CONVOY_STATUS_COMPLETED);
                }
            }
            assert_eq!(convoy_flush_burst(mgr, jobs.as_mut_ptr(), 2), 0);
            assert_eq!(convoy_flush_burst(mgr, ptr::null_mut(), 2), 0);
            assert_eq!(convoy_flush_burst(ptr::null_mut(), jobs.as_mut_ptr(), 2), 0);
            convoy_mgr_free(mgr);
        }
    }
}

#[test]
fn managers_that_are_none_are_refused() {
    // SAFETY: null pointers are what is tried out; places are locals.
    unsafe {
        assert_eq!(convoy_mgr_new(CONVOY_TIER_AUTO, ptr::null_mut()), CONVOY_ERR_NULL);
        let mut mgr = ptr::dangling_mut();
        for tier in [-1, 8, c_int::MIN, c_int::MAX] {
            assert_eq!(convoy_mgr_new(tier, &raw mut mgr), CONVOY_ERR_ARGS);
            assert!(mgr.is_null());
        }
        assert!(convoy_get_next_job(mgr).is_null());
        assert!(convoy_submit_job(mgr).is_null());
        assert!(convoy_get_completed_job(mgr).is_null());
        assert!(convoy_flush_job(mgr).is_null());
        assert_eq!(convoy_queue_size(mgr), 0);
        assert_eq!(convoy_mgr_tier(mgr), CONVOY_ERR_NULL);
        let mut job = Job::default();
        assert_eq!(convoy_submit_burst(mgr, &raw mut job, 1), i64::from(CONVOY_ERR_NULL));
        convoy_mgr_free(mgr);
        assert_eq!(convoy_mgr_new(CONVOY_TIER_PORTABLE, &raw mut mgr), CONVOY_OK);
        assert_eq!(convoy_mgr_tier(mgr), CONVOY_TIER_PORTABLE);
        assert_eq!(convoy_submit_burst(mgr, ptr::null_mut(), 1), i64::from(CONVOY_ERR_NULL));
        assert_eq!(convoy_submit_burst(mgr, ptr::null_mut(), 0), 0);
        for count in [usize::MAX, CONVOY_MAX_BYTES] {
            let code = convoy_submit_burst(mgr, &raw mut job, count);
            assert_eq!(code, i64::from(CONVOY_ERR_LENGTH));
        }
        let odd = (&raw mut job).wrapping_byte_add(1);
        assert_eq!(convoy_submit_burst(mgr, odd, 1), i64::from(CONVOY_ERR_ARGS));
        assert_eq!(convoy_submit_burst(mgr, &raw mut job, 1), 0);
        assert_eq!(job.status, CONVOY_STATUS_INVALID_ARGS);
        let jobs = mgr.cast::<Job>();
        assert_eq!(convoy_submit_burst(mgr, jobs, 1), i64::from(CONVOY_ERR_OVERLAP));
        convoy_mgr_free(mgr);
        // The end is not always a tidy one.
        assert_eq!(convoy_mgr_new(CONVOY_TIER_AUTO, &raw mut mgr), CONVOY_OK);
        assert!(convoy_submit_job(mgr).is_null());
        assert_eq!(convoy_queue_size(mgr), 0, "no job was lent");
        assert!(!convoy_get_next_job(mgr).is_null());
        assert!(convoy_submit_job(mgr).is_null());
        assert_eq!(convoy_queue_size(mgr), 1);
        convoy_mgr_free(mgr);
    }
}

#[test]
fn invalid_jobs_come_back_in_their_place() {
    let (manager, keys, iv) = (Manager::new(), keys(), [7; 16]);
    let mut memory = vec![([5u8; 100], [6u8; 20]); 300];
    let mut order = Vec::new();
    let mut take = |job: *mut Job| {
        // SAFETY: a job that came back is readable until the next is asked for.
        let job = unsafe { job.as_ref() };
        order.extend(job.map(|job| (job.user_data.addr(), job.status)));
        job.is_some()
    };
    for (number, (buffer, tag)) in memory.iter_mut().enumerate() {
        let mut job = good(&keys, buffer, tag, &iv);
        job.user_data = ptr::without_provenance_mut(number);
        if number % 3 == 1 {
            job.iv = ptr::null();
        }
        if number % 5 == 0 {
            job =
                Job { cipher_mode: CONVOY_CIPHER_NULL, hash_alg: 0, tag_len: 0, iv_len: 0, ..job };
        }
        // SAFETY: the manager is good, and what jobs point to outlives it.
        unsafe { *convoy_get_next_job(manager.0) = job };
        // SAFETY: as above.
        take(unsafe { convoy_submit_job(manager.0) });
    }
    // SAFETY: as above.
    while take(unsafe { convoy_flush_job(manager.0) }) {}
    let expected: Vec<_> = (0..300)
        .map(|number| {
            let bad = number % 3 == 1 && number % 5 != 0;
            (number, if bad { CONVOY_STATUS_INVALID_ARGS } else { CONVOY_STATUS_COMPLETED })
        })
        .collect();
    assert_eq!(order, expected);
}

#[test]
fn key_expansion_refuses_null_overlap_and_misalignment() {
    let secret = [3u8; 200];
    let key = secret.as_ptr();
    let (mut enc, mut dec): (Box<AesEncKey>, Box<AesDecKey>) = (zeroed(), zeroed());
    let (mut hmac, mut xcbc): (Box<HmacKey>, Box<XcbcKey>) = (zeroed(), zeroed());
    let mut cmac: Box<CmacKey> = zeroed();
    let (enc, dec) = (&raw mut *enc, &raw mut *dec);
    let (hmac, xcbc, cmac) = (&raw mut *hmac, &raw mut *xcbc, &raw mut *cmac);
    let mut digest = [0u8; 64];
    let digest = digest.as_mut_ptr();
    // SAFETY: pointers are null, or to locals of the right size.
    unsafe {
        for expand in [convoy_aes_keyexp_128, convoy_aes_keyexp_192, convoy_aes_keyexp_256] {
            assert_eq!(expand(key, enc, dec), CONVOY_OK);
            assert_eq!(expand(ptr::null(), enc, dec), CONVOY_ERR_NULL);
            assert_eq!(expand(key, ptr::null_mut(), dec), CONVOY_ERR_NULL);
            assert_eq!(expand(key, enc, ptr::null_mut()), CONVOY_ERR_NULL);
            assert_eq!(expand(enc.cast(), enc, dec), CONVOY_ERR_OVERLAP);
            assert_eq!(expand(key, enc, enc.cast()), CONVOY_ERR_OVERLAP);
            assert_eq!(expand(key, enc.wrapping_byte_add(4), dec), CONVOY_ERR_ARGS);
        }
        for expand in
            [convoy_aes_keyexp_enc_128, convoy_aes_keyexp_enc_192, convoy_aes_keyexp_enc_256]
        {
            assert_eq!(expand(key, enc), CONVOY_OK);
            assert_eq!(expand(ptr::null(), enc), CONVOY_ERR_NULL);
            assert_eq!(expand(key, ptr::null_mut()), CONVOY_ERR_NULL);
        }
        for one_block in [
            convoy_hmac_md5_one_block,
            convoy_hmac_sha1_one_block,
            convoy_hmac_sha224_one_block,
            convoy_hmac_sha256_one_block,
            convoy_hmac_sha384_one_block,
            convoy_hmac_sha512_one_block,
        ] {
            assert_eq!(one_block(key, digest), CONVOY_OK);
            assert_eq!(one_block(ptr::null(), digest), CONVOY_ERR_NULL);
            assert_eq!(one_block(key, ptr::null_mut()), CONVOY_ERR_NULL);
            assert_eq!(one_block(digest, digest), CONVOY_ERR_OVERLAP);
        }
        assert_eq!(convoy_hmac_keyexp(CONVOY_HASH_HMAC_SHA1, key, 200, hmac), CONVOY_OK);
        assert_eq!(convoy_hmac_keyexp(CONVOY_HASH_HMAC_SHA1, ptr::null(), 0, hmac), CONVOY_OK);
        assert_eq!(convoy_hmac_keyexp(CONVOY_HASH_AES_XCBC, key, 16, hmac), CONVOY_ERR_ARGS);
        assert_eq!(convoy_hmac_keyexp(0, key, 16, hmac), CONVOY_ERR_ARGS);
        assert_eq!(convoy_hmac_keyexp(1, key, usize::MAX, hmac), CONVOY_ERR_LENGTH);
        assert_eq!(convoy_hmac_keyexp(1, key, 16, ptr::null_mut()), CONVOY_ERR_NULL);
        assert_eq!(convoy_xcbc_keyexp(key, xcbc), CONVOY_OK);
        assert_eq!(convoy_xcbc_keyexp(ptr::null(), xcbc), CONVOY_ERR_NULL);
        assert_eq!(convoy_xcbc_keyexp(key, ptr::null_mut()), CONVOY_ERR_NULL);
        for (len, code) in
            [(16, 0), (24, 0), (32, 0), (15, CONVOY_ERR_LENGTH), (0, CONVOY_ERR_LENGTH)]
        {
            assert_eq!(convoy_cmac_keyexp(key, len, cmac), code);
        }
    }
}

/// A key that was there before does not outlive a call that failed to replace it.
#[test]
fn a_key_that_is_not_set_up_is_none() {
    fn is_zero<T>(key: *const T) -> bool {
        // SAFETY: used for types that are made of integers, all of which were written.
        let bytes = unsafe { std::slice::from_raw_parts(key.cast::<u8>(), size_of::<T>()) };
        bytes.iter().all(|&byte| byte == 0)
    }
    let secret = [3u8; 64];
    let (key, null) = (secret.as_ptr(), ptr::null());
    let (mut enc, mut dec): (Box<AesEncKey>, Box<AesDecKey>) = (zeroed(), zeroed());
    let (mut hmac, mut xcbc): (Box<HmacKey>, Box<XcbcKey>) = (zeroed(), zeroed());
    let mut cmac: Box<CmacKey> = zeroed();
    let (enc, dec) = (&raw mut *enc, &raw mut *dec);
    let (hmac, xcbc, cmac) = (&raw mut *hmac, &raw mut *xcbc, &raw mut *cmac);
    // SAFETY: pointers are null, or to locals of the right size.
    unsafe {
        for (from, to) in [(null, dec), (enc.cast_const().cast(), dec), (key, enc.cast())] {
            assert_eq!(convoy_aes_keyexp_256(key, enc, dec), CONVOY_OK);
            assert!(!is_zero(enc) && !is_zero(dec));
            assert_ne!(convoy_aes_keyexp_256(from, enc, to), CONVOY_OK);
            assert!(is_zero(enc) && (is_zero(dec) || to == enc.cast()));
        }
        for (from, len, alg) in
            [(null, 16, 1), (key, usize::MAX, 1), (key, 16, 7), (hmac.cast_const().cast(), 16, 1)]
        {
            assert_eq!(convoy_hmac_keyexp(1, key, 64, hmac), CONVOY_OK);
            assert!(!is_zero(hmac));
            assert_ne!(convoy_hmac_keyexp(alg, from, len, hmac), CONVOY_OK);
            assert!(is_zero(hmac));
        }
        for (inner, outer, alg) in [(null, key, 1), (key, null, 1), (key, key, 0), (key, key, 7)] {
            assert_eq!(convoy_hmac_key_set(1, key, key, hmac), CONVOY_OK);
            assert!(!is_zero(hmac));
            assert_ne!(convoy_hmac_key_set(alg, inner, outer, hmac), CONVOY_OK);
            assert!(is_zero(hmac));
        }
        for from in [null, xcbc.cast_const().cast()] {
            assert_eq!(convoy_xcbc_keyexp(key, xcbc), CONVOY_OK);
            assert!(!is_zero(xcbc));
            assert_ne!(convoy_xcbc_keyexp(from, xcbc), CONVOY_OK);
            assert!(is_zero(xcbc));
        }
        for (from, len) in
            [(null, 16), (key, 15), (key, usize::MAX), (cmac.cast_const().cast(), 16)]
        {
            assert_eq!(convoy_cmac_keyexp(key, 16, cmac), CONVOY_OK);
            assert!(!is_zero(cmac));
            assert_ne!(convoy_cmac_keyexp(from, len, cmac), CONVOY_OK);
            assert!(is_zero(cmac));
        }
    }
}

/// What a job writes, and its IV, may lie in places that C does not forbid.
#[test]
fn jobs_may_have_their_iv_in_the_packet_and_not_write_each_other() {
    let (manager, keys) = (Manager::new(), keys());
    let (mut buffer, mut tag, iv) = ([5; 100], [6; 20], [5; 16]);
    let job = good(&keys, &mut buffer, &mut tag, &iv);
    assert_eq!(manager.status(job), CONVOY_STATUS_COMPLETED);
    let (mut other, mut other_tag) = ([5; 100], [6; 20]);
    let mut within = good(&keys, &mut other, &mut other_tag, &iv);
    // In front of the text, and authenticated.
    (within.cipher_offset, within.iv) = (24, within.src.wrapping_add(8));
    let mut apart = good(&keys, &mut buffer, &mut tag, &iv);
    apart.cipher_offset = 24;
    buffer = [5; 100];
    assert_eq!(manager.status(apart), CONVOY_STATUS_COMPLETED);
    assert_eq!(manager.status(within), CONVOY_STATUS_COMPLETED);
    assert_eq!((buffer, tag), (other, other_tag));

    let mut jobs = [job, job];
    jobs[0].dst = jobs.as_mut_ptr().cast();
    let (first, count) = (jobs.as_mut_ptr(), jobs.len());
    // SAFETY: that the first job writes where the second one is, is what is tried out.
    assert_eq!(unsafe { convoy_submit_burst(manager.0, first, count) }, 1);
    let statuses = jobs.map(|job| job.status);
    assert_eq!(statuses, [CONVOY_STATUS_INVALID_ARGS, CONVOY_STATUS_COMPLETED]);
}

#[test]
fn among_the_jobs_may_lie_only_what_nobody_looks_at() {
    let keys = keys();
    let manager = Manager::new();
    let (mut buffer, mut tag, iv) = ([5; 100], [6; 20], [7; 16]);
    let both = good(&keys, &mut buffer, &mut tag, &iv);
    let hash = Job { cipher_mode: CONVOY_CIPHER_NULL, iv_len: 0, ..both };
    let idle = Job { hash_alg: 0, tag_len: 0, ..hash };
    for (job, status) in [
        (idle, CONVOY_STATUS_COMPLETED),
        (hash, CONVOY_STATUS_INVALID_ARGS),
        (both, CONVOY_STATUS_INVALID_ARGS),
    ] {
        // SAFETY: the manager is there. The job will lie where it points to.
        let here = unsafe { convoy_get_next_job(manager.0) }.cast::<u8>();
        assert_eq!(manager.status(Job { src: here, dst: here, ..job }), status);
    }
}

#[test]
fn both_ways_to_an_hmac_key_agree() {
    let block = [0x5au8; 128];
    let secret: Vec<u8> = block[..64].iter().map(|byte| byte ^ 0x36).collect();
    let outer: Vec<u8> = secret.iter().map(|byte| byte ^ 0x5c).collect();
    let (mut direct, mut built): (Box<HmacKey>, Box<HmacKey>) = (zeroed(), zeroed());
    let (mut ipad, mut opad) = ([0u8; 32], [0u8; 32]);
    let alg = CONVOY_HASH_HMAC_SHA256;
    // SAFETY: pointers are to locals of the right size.
    unsafe {
        assert_eq!(convoy_hmac_keyexp(alg, secret.as_ptr(), 64, &raw mut *direct), 0);
        let built = &raw mut *built;
        assert_eq!(convoy_hmac_sha256_one_block(block.as_ptr(), (*built).ipad.as_mut_ptr()), 0);
        assert_eq!(convoy_hmac_sha256_one_block(outer.as_ptr(), (*built).opad.as_mut_ptr()), 0);
        let (inner, outer) = ((*built).ipad.as_ptr(), (*built).opad.as_ptr());
        assert_eq!(convoy_hmac_key_set(alg, inner, outer, built), 0);
        let (inner, outer) = (ipad.as_mut_ptr(), opad.as_mut_ptr());
        assert_eq!(convoy_hmac_ipad_opad(alg, secret.as_ptr(), 64, inner, outer), 0);
    }
    assert_eq!((direct.ipad, direct.opad, direct.label), (built.ipad, built.opad, built.label));
    assert_eq!((&direct.ipad[..32], &direct.opad[..32]), (&ipad[..], &opad[..]));
}

#[test]
fn direct_calls_refuse_what_makes_no_sense() {
    let (secret, iv, mut key) = ([1u8; 32], [2u8; 16], ptr::null_mut::<AeadKey>());
    let (mut data, mut tag, mut out) = ([3u8; 64], [0u8; 16], [0u8; 64]);
    // SAFETY: pointers are null, or to locals of the right size.
    unsafe {
        for len in [0, 15, 17, 33, usize::MAX] {
            let code = convoy_gcm_key_new(0, secret.as_ptr(), len, &raw mut key);
            assert_eq!((code, key.is_null()), (CONVOY_ERR_LENGTH, true));
        }
        assert_eq!(convoy_gcm_key_new(0, ptr::null(), 16, &raw mut key), CONVOY_ERR_NULL);
        assert_eq!(convoy_gcm_key_new(0, secret.as_ptr(), 16, ptr::null_mut()), CONVOY_ERR_NULL);
        let mut both = [1u64; 2];
        let (key_in_out, place) = (both.as_ptr().cast(), both.as_mut_ptr().cast());
        assert_eq!(convoy_gcm_key_new(0, key_in_out, 16, place), CONVOY_ERR_OVERLAP);
        assert_eq!(both, [1; 2], "what is read is not written to");
        assert_eq!(convoy_gcm_key_new(0, secret.as_ptr(), 16, &raw mut key), CONVOY_OK);
        let (iv, none, data, tag) = (iv.as_ptr(), ptr::null(), data.as_mut_ptr(), tag.as_mut_ptr());
        let out = out.as_mut_ptr();
        let seal = |key, iv, aad_len, from, to, len, tag, tag_len| {
            convoy_aead_encrypt(key, iv, none, aad_len, from, to, len, tag, tag_len)
        };
        assert_eq!(seal(ptr::null(), iv, 0, data, data, 64, tag, 16), CONVOY_ERR_NULL);
        assert_eq!(seal(key, none, 0, data, data, 64, tag, 16), CONVOY_ERR_NULL);
        assert_eq!(seal(key, iv, 1, data, data, 64, tag, 16), CONVOY_ERR_NULL);
        assert_eq!(seal(key, iv, 0, ptr::null_mut(), data, 64, tag, 16), CONVOY_ERR_NULL);
        assert_eq!(seal(key, iv, 0, data, ptr::null_mut(), 64, tag, 16), CONVOY_ERR_NULL);
        assert_eq!(seal(key, iv, 0, data, data, 64, ptr::null_mut(), 16), CONVOY_ERR_NULL);
        assert_eq!(seal(key, iv, 0, data, data, 64, tag, 17), CONVOY_ERR_LENGTH);
        assert_eq!(seal(key, iv, 0, data, data, 64, tag, 3), CONVOY_ERR_LENGTH);
        assert_eq!(seal(key, iv, 0, data, data, usize::MAX, tag, 16), CONVOY_ERR_LENGTH);
        assert_eq!(seal(key, iv, 0, data, data.wrapping_add(1), 63, tag, 16), CONVOY_ERR_OVERLAP);
        assert_eq!(seal(key, iv, 0, data, data, 64, data.wrapping_add(63), 16), CONVOY_ERR_OVERLAP);
        assert_eq!(seal(key, iv, 0, data, out, 64, tag, 16), CONVOY_OK);
        convoy_aead_key_free(key);
        convoy_aead_key_free(ptr::null_mut());
    }
    assert_eq!(data, [3; 64], "out of place");
}

#[test]
fn what_direct_calls_encrypt_they_decrypt_and_what_was_touched_they_wipe() {
    let (secret, iv, aad) = ([1u8; 32], [2u8; 13], [4u8; 20]);
    let enc = &raw const *{
        let mut enc: Box<AesEncKey> = zeroed();
        // SAFETY: pointers are to locals of the right size.
        assert_eq!(unsafe { convoy_aes_keyexp_enc_256(secret.as_ptr(), &raw mut *enc) }, 0);
        Box::leak(enc)
    };
    let (mut gcm, mut chacha) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: as above.
    unsafe {
        assert_eq!(convoy_gcm_key_new(0, secret.as_ptr(), 32, &raw mut gcm), 0);
        assert_eq!(convoy_chacha20_poly1305_key_new(0, secret.as_ptr(), &raw mut chacha), 0);
    }
    type Call<'a> = &'a dyn Fn(*const u8, *mut u8, *mut u8, bool) -> c_int;
    let (i, a) = (iv.as_ptr(), aad.as_ptr());
    let calls: [Call<'_>; 3] = [
        // SAFETY: pointers are to locals of the right size.
        &|from, to, tag, seal| unsafe {
            if seal {
                convoy_aead_encrypt(gcm, i, a, 20, from, to, 50, tag, 12)
            } else {
                convoy_aead_decrypt(gcm, i, a, 20, from, to, 50, tag, 12)
            }
        },
        // SAFETY: pointers are to locals of the right size.
        &|from, to, tag, seal| unsafe {
            if seal {
                convoy_aead_encrypt(chacha, i, a, 20, from, to, 50, tag, 12)
            } else {
                convoy_aead_decrypt(chacha, i, a, 20, from, to, 50, tag, 12)
            }
        },
        // SAFETY: pointers are to locals of the right size.
        &|from, to, tag, seal| unsafe {
            if seal {
                convoy_ccm_encrypt(enc, i, 13, a, 20, from, to, 50, tag, 12)
            } else {
                convoy_ccm_decrypt(enc, i, 13, a, 20, from, to, 50, tag, 12)
            }
        },
    ];
    for (number, call) in calls.iter().enumerate() {
        let (plain, mut sealed, mut tag) = ([9u8; 50], [0u8; 50], [0u8; 12]);
        assert_eq!(call(plain.as_ptr(), sealed.as_mut_ptr(), tag.as_mut_ptr(), true), CONVOY_OK);
        let mut opened = [0u8; 50];
        assert_eq!(call(sealed.as_ptr(), opened.as_mut_ptr(), tag.as_mut_ptr(), false), CONVOY_OK);
        assert!(opened == plain && sealed != plain, "call {number}");
        tag[11] ^= 0x80;
        let code = call(sealed.as_ptr(), opened.as_mut_ptr(), tag.as_mut_ptr(), false);
        assert_eq!((code, opened), (CONVOY_ERR_FORGED, [0; 50]), "call {number}");
    }
    let nonce = [2u8; 16];
    for (nonce_len, len) in [(0, 0), (6, 50), (14, 50), (15, 0), (16, 0)] {
        let (plain, mut sealed, mut tag) = ([9u8; 50], [0u8; 50], [0u8; 12]);
        let (n, from, to, tag) =
            (nonce.as_ptr(), plain.as_ptr(), sealed.as_mut_ptr(), tag.as_mut_ptr());
        // SAFETY: pointers are to locals of the right size.
        let code = unsafe { convoy_ccm_encrypt(enc, n, nonce_len, a, 20, from, to, len, tag, 12) };
        assert_ne!(code, CONVOY_OK, "a nonce of {nonce_len} bytes");
    }
    // SAFETY: made above, freed once.
    unsafe {
        convoy_aead_key_free(gcm);
        convoy_aead_key_free(chacha);
        drop(Box::from_raw(enc.cast_mut()));
    }
}

#[test]
fn streams_go_through_their_states_and_no_others() {
    let (secret, iv, plain) = ([1u8; 32], [2u8; 12], [9u8; 100]);
    let (mut key, other) = (ptr::null_mut(), [0u64; 64]);
    let (mut whole, mut whole_tag) = ([0u8; 100], [0u8; 16]);
    let (mut parts, mut tag) = ([0u8; 100], [0u8; 16]);
    let (iv, none) = (iv.as_ptr(), ptr::null());
    let mut stream = ptr::null_mut();
    // SAFETY: pointers are null, or to locals of the right size.
    unsafe {
        assert_eq!(convoy_gcm_key_new(0, secret.as_ptr(), 32, &raw mut key), 0);
        let (from, to) = (plain.as_ptr(), whole.as_mut_ptr());
        let tag_to = whole_tag.as_mut_ptr();
        assert_eq!(convoy_aead_encrypt(key, iv, none, 0, from, to, 100, tag_to, 16), 0);

        let out = &raw mut stream;
        assert_eq!(convoy_aead_init(ptr::null(), 1, iv, 12, none, 0, out), CONVOY_ERR_NULL);
        assert_eq!(convoy_aead_init(key, 1, none, 12, none, 0, out), CONVOY_ERR_NULL);
        assert_eq!(convoy_aead_init(key, 1, iv, 12, none, 1, out), CONVOY_ERR_NULL);
        assert_eq!(convoy_aead_init(key, 1, iv, 12, none, 0, ptr::null_mut()), CONVOY_ERR_NULL);
        assert_eq!(convoy_aead_init(key, 0, iv, 12, none, 0, out), CONVOY_ERR_ARGS);
        // A key of another kind has another label.
        assert_eq!(
            convoy_aead_init(other.as_ptr().cast(), 1, iv, 12, none, 0, out),
            CONVOY_ERR_ARGS
        );
        assert_eq!(convoy_aead_init(key, 1, iv, 0, none, 0, out), CONVOY_ERR_LENGTH);
        assert!(stream.is_null());
        let mut both = [1u64; 3];
        let (in_out, in_place) = (both.as_ptr().cast(), both.as_mut_ptr().cast());
        assert_eq!(convoy_aead_init(key, 1, in_out, 12, none, 0, in_place), CONVOY_ERR_OVERLAP);
        assert_eq!(convoy_aead_init(key, 1, iv, 12, in_out, 24, in_place), CONVOY_ERR_OVERLAP);
        let key_itself = key.cast();
        assert_eq!(convoy_aead_init(key, 1, iv, 12, none, 0, key_itself), CONVOY_ERR_OVERLAP);
        assert_eq!(both, [1; 3], "what is read is not written to");
        assert_eq!(convoy_aead_encrypt(key, iv, none, 0, from, to, 100, tag_to, 16), 0);
        let to = parts.as_mut_ptr();
        assert_eq!(convoy_aead_update(stream, from, to, 1), CONVOY_ERR_NULL);
        assert_eq!(convoy_aead_finalize(stream, tag.as_mut_ptr(), 16), CONVOY_ERR_NULL);

        assert_eq!(convoy_aead_init(key, CONVOY_DIRECTION_ENCRYPT, iv, 12, none, 0, out), 0);
        assert_eq!(convoy_aead_update(stream, from, to, usize::MAX), CONVOY_ERR_LENGTH);
        assert_eq!(convoy_aead_update(stream, to, to.wrapping_add(1), 9), CONVOY_ERR_OVERLAP);
        assert_eq!(convoy_aead_update(stream, from, stream.cast(), 9), CONVOY_ERR_OVERLAP);
        assert_eq!(convoy_aead_update(stream, stream.cast(), to, 9), CONVOY_ERR_OVERLAP);
        assert_eq!(convoy_aead_update(stream, none, ptr::null_mut(), 0), 0);
        assert_eq!(convoy_aead_update(stream, from, to, 33), 0);
        assert_eq!(convoy_aead_update(stream, from.add(33), to.add(33), 67), 0);
        assert_eq!(convoy_aead_finalize(stream, tag.as_mut_ptr(), 17), CONVOY_ERR_LENGTH);
        assert_eq!(convoy_aead_finalize(stream, tag.as_mut_ptr(), 16), 0);
        assert_eq!((parts, tag), (whole, whole_tag));
        assert_eq!(convoy_aead_update(stream, from, to, 1), CONVOY_ERR_STATE);
        assert_eq!(convoy_aead_finalize(stream, tag.as_mut_ptr(), 16), CONVOY_ERR_STATE);
        convoy_aead_stream_free(stream);

        for (flip, code) in [(0, CONVOY_OK), (1, CONVOY_ERR_FORGED)] {
            tag[15] ^= flip;
            assert_eq!(convoy_aead_init(key, CONVOY_DIRECTION_DECRYPT, iv, 12, none, 0, out), 0);
            parts = whole;
            let to = parts.as_mut_ptr();
            assert_eq!(convoy_aead_update(stream, to, to, 100), 0);
            assert_eq!((parts, convoy_aead_finalize(stream, tag.as_mut_ptr(), 16)), (plain, code));
            convoy_aead_stream_free(stream);
        }
        // A stream keeps what it needs of its key.
        assert_eq!(convoy_aead_init(key, CONVOY_DIRECTION_ENCRYPT, iv, 12, none, 0, out), 0);
        convoy_aead_key_free(key);
        assert_eq!(convoy_aead_update(stream, from, parts.as_mut_ptr(), 100), 0);
        assert_eq!(parts, whole);
        convoy_aead_stream_free(stream);
        convoy_aead_stream_free(ptr::null_mut());
    }
}

/// A batch of jobs of every kind, then forged messages, on the stack that the header asks for.
fn all_kinds(tier: c_int) {
    let (keys, iv) = (keys(), [7u8; 16]);
    let secret = [1u8; 32];
    let (mut mgr, mut aeads) = (ptr::null_mut(), [ptr::null_mut(); 3]);
    // SAFETY: pointers are to locals of the right size.
    unsafe {
        assert_eq!(convoy_mgr_new(tier, &raw mut mgr), CONVOY_OK);
        let key = secret.as_ptr();
        assert_eq!(convoy_gcm_key_new(tier, key, 32, &raw mut aeads[0]), CONVOY_OK);
        assert_eq!(convoy_gmac_key_new(tier, key, 32, &raw mut aeads[1]), CONVOY_OK);
        assert_eq!(convoy_chacha20_poly1305_key_new(tier, key, &raw mut aeads[2]), CONVOY_OK);
    }
    let mut memory = vec![([5u8; 100], [6u8; 20]); 256];
    let jobs = memory.iter_mut().enumerate().map(|(number, (buffer, tag))| {
        let mut job = good(&keys, buffer, tag, &iv);
        if number % 4 > 0 {
            (job.cipher_mode, job.hash_alg, job.iv_len) = (CONVOY_CIPHER_AEAD, 0, 12);
            job.cipher_key.aead = aeads[number % 4 - 1];
            job.cipher_direction = 1 + number as u32 / 4 % 2;
        }
        job
    });
    let mut jobs: Vec<_> = jobs.collect();
    // SAFETY: what jobs point to outlives them.
    assert_eq!(unsafe { convoy_submit_burst(mgr, jobs.as_mut_ptr(), jobs.len()) }, 256);
    for key in aeads {
        let (mut data, tag) = ([0u8; 2000], [9u8; 16]);
        let (at, iv, none) = (data.as_mut_ptr(), iv.as_ptr(), ptr::null());
        // SAFETY: pointers are to locals of the right size, and keys are freed once.
        unsafe {
            let code = convoy_aead_decrypt(key, iv, none, 0, at, at, 2000, tag.as_ptr(), 16);
            assert_eq!(code, CONVOY_ERR_FORGED);
            convoy_aead_key_free(key);
        }
    }
    // SAFETY: made above, and freed once.
    unsafe { convoy_mgr_free(mgr) };
}

#[test]
fn the_stack_that_the_header_asks_for_is_enough() {
    for tier in [CONVOY_TIER_AUTO, CONVOY_TIER_PORTABLE] {
        let thread = std::thread::Builder::new().stack_size(128 << 10);
        thread.spawn(move || all_kinds(tier)).unwrap().join().unwrap();
    }
}

#[test]
fn counter_mode_wants_only_what_it_uses() {
    let (manager, keys) = (Manager::new(), keys());
    let (mut buffer, mut tag, iv) = ([5; 100], [6; 20], [7; 16]);
    let mut job = good(&keys, &mut buffer, &mut tag, &iv);
    (job.cipher_mode, job.cipher_len, job.iv_len) = (CONVOY_CIPHER_CTR, 61, 12);
    (job.hash_alg, job.tag_len, job.tag) = (0, 0, ptr::null_mut());
    job.hash_key.hmac = ptr::null();
    (job.hash_offset, job.hash_len) = (usize::MAX, usize::MAX);
    assert_eq!(manager.status(job), CONVOY_STATUS_COMPLETED);
    assert!(buffer[..16] == [5; 16] && buffer[16..77] != [5; 61] && buffer[77..] == [5; 23]);
}

#[test]
fn errors_have_texts() {
    let text = |error| {
        // SAFETY: texts are static and end with a zero.
        unsafe { CStr::from_ptr(convoy_strerror(error)) }
    };
    let codes = (CONVOY_ERR_MEMORY..=CONVOY_OK).chain(CONVOY_ERR_TAG..=CONVOY_ERR_CIPHER_MODE);
    let texts: std::collections::BTreeSet<_> = codes.clone().map(text).collect();
    assert_eq!(texts.len(), codes.count());
    assert!(!texts.contains(text(1)) && text(-1000) == text(1));
    // SAFETY: as above.
    let version = unsafe { CStr::from_ptr(convoy_version()) };
    assert_eq!(version.to_str(), Ok(env!("CARGO_PKG_VERSION")));
}
