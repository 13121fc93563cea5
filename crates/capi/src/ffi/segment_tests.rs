//! Texts in segments, beside the same texts in one piece.

// C has no such thing as a single unsafe operation: a sequence of calls is what is tested.
#![allow(clippy::multiple_unsafe_ops_per_block)]

use std::{ffi::c_int, ptr};

use crate::{
    ffi::*,
    types::{
        AeadKey, CONVOY_CIPHER_AEAD_SEGMENTS, CONVOY_DIRECTION_DECRYPT, CONVOY_DIRECTION_ENCRYPT,
        CONVOY_ERR_ARGS, CONVOY_ERR_CHAIN_ORDER, CONVOY_ERR_CIPHER_DIRECTION,
        CONVOY_ERR_CIPHER_KEY, CONVOY_ERR_CIPHER_LEN, CONVOY_ERR_DST, CONVOY_ERR_FORGED,
        CONVOY_ERR_HASH_ALG, CONVOY_ERR_LENGTH, CONVOY_ERR_NULL, CONVOY_ERR_OVERLAP,
        CONVOY_ERR_SRC, CONVOY_ERR_TAG, CONVOY_ERR_TAG_LEN, CONVOY_ERR_TRAILER_LEN,
        CONVOY_MAX_BYTES, CONVOY_OK, CONVOY_STATUS_COMPLETED, CONVOY_STATUS_INVALID_ARGS,
        CONVOY_TIER_AUTO, CONVOY_TIER_PORTABLE, CipherKey, Job, Segment,
    },
};

/// Keys of all AEADs, on the portable tier and the best.
fn keys() -> Vec<*mut AeadKey> {
    let (secret, mut keys) = ([3u8; 32], Vec::new());
    for tier in [CONVOY_TIER_PORTABLE, CONVOY_TIER_AUTO] {
        let mut new = [ptr::null_mut(); 3];
        let [gcm, gmac, chacha] = &mut new;
        // SAFETY: the secret has as many bytes as are told, the places are there.
        unsafe {
            assert_eq!(convoy_gcm_key_new(tier, secret.as_ptr(), 16, gcm), CONVOY_OK);
            assert_eq!(convoy_gmac_key_new(tier, secret.as_ptr(), 32, gmac), CONVOY_OK);
            assert_eq!(convoy_chacha20_poly1305_key_new(tier, secret.as_ptr(), chacha), CONVOY_OK);
        }
        keys.extend(new);
    }
    keys
}

const IV: [u8; 12] = [7; 12];
const AAD: [u8; 20] = [9; 20];

/// Segments of the text: cut where `sizes` say again and again, in place or not.
fn cut(from: &[u8], to: *mut u8, sizes: &[usize]) -> Vec<Segment> {
    let (mut at, mut segments) = (0, Vec::new());
    for size in sizes.iter().cycle() {
        let len = (from.len() - at).min(*size);
        let (input, output) = (from[at..].as_ptr(), to.wrapping_add(at));
        segments.push(Segment { input, output, len });
        at += len;
        if at == from.len() {
            return segments;
        }
    }
    segments
}

fn seal(key: *const AeadKey, segments: &[Segment], tag: &mut [u8]) -> c_int {
    let (at, count, to) = (segments.as_ptr(), segments.len(), tag.as_mut_ptr());
    // SAFETY: segments and tag are there.
    unsafe {
        let (iv, aad) = (IV.as_ptr(), AAD.as_ptr());
        convoy_aead_encrypt_segments(key, iv, 12, aad, 20, at, count, to, tag.len())
    }
}

fn open(key: *const AeadKey, segments: &[Segment], tag: &[u8]) -> c_int {
    let (at, count, from) = (segments.as_ptr(), segments.len(), tag.as_ptr());
    // SAFETY: as above.
    unsafe {
        let (iv, aad) = (IV.as_ptr(), AAD.as_ptr());
        convoy_aead_decrypt_segments(key, iv, 12, aad, 20, at, count, from, tag.len())
    }
}

/// A job over segments, as it comes back.
fn run(key: *const AeadKey, direction: u32, segments: &[Segment], tag: &mut [u8]) -> Job {
    let job = Job {
        src: segments.as_ptr().cast(),
        cipher_len: segments.len(),
        iv: IV.as_ptr(),
        iv_len: 12,
        aad: AAD.as_ptr(),
        aad_len: 20,
        tag: tag.as_mut_ptr(),
        tag_len: tag.len(),
        cipher_key: CipherKey { aead: key },
        cipher_mode: CONVOY_CIPHER_AEAD_SEGMENTS,
        cipher_direction: direction,
        ..Job::default()
    };
    submit(job)
}

fn submit(mut job: Job) -> Job {
    let mut mgr = ptr::null_mut();
    // SAFETY: the jobs are as a program of C would make them.
    unsafe {
        assert_eq!(convoy_mgr_new(CONVOY_TIER_AUTO, &raw mut mgr), CONVOY_OK);
        convoy_submit_burst(mgr, &raw mut job, 1);
        convoy_mgr_free(mgr);
    }
    job
}

#[test]
fn a_text_in_segments_becomes_what_it_becomes_in_one_piece() {
    for key in keys() {
        for len in [0, 1, 16, 100, 1000, 5000] {
            let plain: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let (mut sealed, mut tag) = (plain.clone(), [0; 16]);
            // SAFETY: all of it is there.
            let code = unsafe {
                let (to, tag) = (sealed.as_mut_ptr(), tag.as_mut_ptr());
                let (iv, aad, from) = (IV.as_ptr(), AAD.as_ptr(), plain.as_ptr());
                convoy_aead_encrypt(key, iv, aad, 20, from, to, len, tag, 16)
            };
            assert_eq!(code, CONVOY_OK);
            for sizes in [&[usize::MAX][..], &[16], &[0, 1, 7, 64], &[100, 333]] {
                let (mut out, mut made) = (vec![0; len], [0; 16]);
                let segments = cut(&plain, out.as_mut_ptr(), sizes);
                assert_eq!(seal(key, &segments, &mut made), CONVOY_OK);
                assert_eq!((&out, made), (&sealed, tag), "{len} bytes in {sizes:?}");
                out.fill(0);
                let done = run(key, CONVOY_DIRECTION_ENCRYPT, &segments, &mut made[..12]);
                assert_eq!((done.status, done.error), (CONVOY_STATUS_COMPLETED, CONVOY_OK));
                assert_eq!((&out, made), (&sealed, tag), "{len} bytes in {sizes:?}, a job");

                let mut text = sealed.clone();
                let at = text.as_mut_ptr();
                let in_place = cut(&text, at, sizes);
                assert_eq!(open(key, &in_place, &tag), CONVOY_OK);
                assert_eq!(text, plain);
                let apart = cut(&sealed, out.as_mut_ptr(), sizes);
                made.fill(0);
                let done = run(key, CONVOY_DIRECTION_DECRYPT, &apart, &mut made);
                assert_eq!((done.status, made, &out), (CONVOY_STATUS_COMPLETED, tag, &plain));
                let mut forged = tag;
                forged[3] ^= 1;
                assert_eq!(open(key, &apart, &forged), CONVOY_ERR_FORGED);
                assert!(out.iter().all(|&byte| byte == 0), "nothing of a forged message is left");
                assert_eq!(open(key, &apart, &tag[..4]), CONVOY_OK);
                assert_eq!(out, plain);
            }
        }
        // SAFETY: it came from this library, and is used no more.
        unsafe { convoy_aead_key_free(key) };
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let keys = keys();
    let key: *const AeadKey = keys[3];
    let (text, mut out, mut tag) = ([1u8; 64], [2u8; 64], [3u8; 16]);
    let to = out.as_mut_ptr();
    let good = cut(&text, to, &[32]);
    let with = |wrong: Segment| [good[0], wrong];
    let (none, none_mut) = (ptr::null(), ptr::null_mut());
    for (wrong, error) in [
        (Segment { input: none, ..good[1] }, CONVOY_ERR_NULL),
        (Segment { output: none_mut, ..good[1] }, CONVOY_ERR_NULL),
        (Segment { len: usize::MAX, ..good[1] }, CONVOY_ERR_LENGTH),
        (Segment { len: CONVOY_MAX_BYTES + 1, ..good[1] }, CONVOY_ERR_LENGTH),
        (
            Segment { output: good[1].input.wrapping_add(1).cast_mut(), ..good[1] },
            CONVOY_ERR_OVERLAP,
        ),
        (Segment { output: tag.as_mut_ptr(), ..good[1] }, CONVOY_ERR_OVERLAP),
        (Segment { output: IV.as_ptr().cast_mut(), ..good[1] }, CONVOY_ERR_OVERLAP),
        (Segment { output: AAD.as_ptr().cast_mut(), ..good[1] }, CONVOY_ERR_OVERLAP),
        (Segment { output: key.cast_mut().cast(), ..good[1] }, CONVOY_ERR_OVERLAP),
    ] {
        let segments = with(wrong);
        assert_eq!(seal(key, &segments, &mut tag), error, "{wrong:?}");
        assert_eq!(open(key, &segments, &tag), error, "{wrong:?}");
        let done = run(key, CONVOY_DIRECTION_ENCRYPT, &segments, &mut tag);
        assert_eq!((done.status, done.error), (CONVOY_STATUS_INVALID_ARGS, error), "{wrong:?}");
    }
    assert_eq!(seal(key, &good, &mut tag[..3]), CONVOY_ERR_LENGTH);
    assert_eq!(seal(none.cast(), &good, &mut tag), CONVOY_ERR_NULL);
    // A key of another kind has another label.
    let other = [0u64; 64];
    assert_eq!(seal(other.as_ptr().cast(), &good, &mut tag), CONVOY_ERR_ARGS);
    let mut made = [0u8; 16];
    let to_tag = made.as_mut_ptr();
    let call = |at, count, iv_len| {
        // SAFETY: what is wrong is refused before it is used.
        unsafe {
            let (iv, tag) = (IV.as_ptr(), to_tag);
            convoy_aead_encrypt_segments(key, iv, iv_len, ptr::null(), 0, at, count, tag, 16)
        }
    };
    assert_eq!(call(ptr::null(), 1, 12), CONVOY_ERR_NULL);
    assert_eq!(call(good.as_ptr().wrapping_byte_add(1), 1, 12), CONVOY_ERR_ARGS);
    assert_eq!(call(good.as_ptr(), usize::MAX, 12), CONVOY_ERR_LENGTH);
    assert_eq!(call(good.as_ptr(), 2, 0), CONVOY_ERR_LENGTH);
    let job = run(key, CONVOY_DIRECTION_ENCRYPT, &good, &mut tag);
    assert_eq!(job.status, CONVOY_STATUS_COMPLETED);
    for (wrong, error) in [
        (Job { cipher_direction: 0, ..job }, CONVOY_ERR_CIPHER_DIRECTION),
        (Job { hash_alg: 1, ..job }, CONVOY_ERR_HASH_ALG),
        (Job { chain_order: 2, ..job }, CONVOY_ERR_CHAIN_ORDER),
        (Job { cipher_offset: 1, ..job }, CONVOY_ERR_CIPHER_LEN),
        (Job { dst: to, ..job }, CONVOY_ERR_DST),
        (Job { src: none, ..job }, CONVOY_ERR_SRC),
        (Job { trailer_len: 1, ..job }, CONVOY_ERR_TRAILER_LEN),
        (Job { tag_len: 17, ..job }, CONVOY_ERR_TAG_LEN),
        (Job { tag: none_mut, ..job }, CONVOY_ERR_TAG),
        (
            Job { cipher_key: CipherKey { enc: other.as_ptr().cast() }, ..job },
            CONVOY_ERR_CIPHER_KEY,
        ),
    ] {
        let done = submit(wrong);
        assert_eq!((done.status, done.error), (CONVOY_STATUS_INVALID_ARGS, error), "{wrong:?}");
    }
    // Nothing at all is a message, too.
    assert_eq!(call(ptr::null(), 0, 12), CONVOY_OK);
    // SAFETY: they came from this library, and are used no more.
    keys.into_iter().for_each(|key| unsafe { convoy_aead_key_free(key) });
}
