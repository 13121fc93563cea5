//! Ciphers and hashes of the caller's.

use std::ffi::c_int;

use stand_in::types::*;

use crate::library::Library;

/// Data that the functions below are given with a job.
#[derive(Default)]
struct Calls {
    order: Vec<&'static str>,
    cipher_fails: bool,
    hash_fails: bool,
}

/// # Safety
///
/// It is a job of the tests below.
unsafe fn calls<'a>(job: *mut Job) -> &'a mut Calls {
    // SAFETY: the caller's promise.
    let calls = unsafe { (*job).user_data.cast::<Calls>() };
    // SAFETY: as above.
    unsafe { &mut *calls }
}

/// Adds one to each byte.
unsafe extern "C" fn cipher(job: *mut Job) -> c_int {
    // SAFETY: it is a job of the tests below.
    let calls = unsafe { calls(job) };
    calls.order.push("cipher");
    // SAFETY: as above.
    let Job { dst, cipher_len, .. } = unsafe { *job };
    // SAFETY: as above.
    let text = unsafe { std::slice::from_raw_parts_mut(dst, cipher_len as usize) };
    text.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
    calls.cipher_fails.into()
}

/// The sum of all bytes.
unsafe extern "C" fn hash(job: *mut Job) -> c_int {
    // SAFETY: it is a job of the tests below.
    let calls = unsafe { calls(job) };
    calls.order.push("hash");
    // SAFETY: as above.
    let Job { src, hash_len, tag, tag_len, .. } = unsafe { *job };
    // SAFETY: as above.
    let text = unsafe { std::slice::from_raw_parts(src, hash_len as usize) };
    let sum = text.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    // SAFETY: as above.
    unsafe { tag.write_bytes(sum, tag_len as usize) };
    calls.hash_fails.into()
}

/// Result of a job: text, tag, status, error, and the functions called.
type Outcome = (Vec<u8>, Vec<u8>, u32, i32, Vec<&'static str>);

fn outcome(library: &Library, job: Job, mut calls: Calls) -> Outcome {
    let (f, mgr) = (*library.functions(), library.mgr());
    let (mut text, mut tag) = ((0..48).collect::<Vec<u8>>(), vec![0xee; 24]);
    // SAFETY: the manager is there.
    let next = unsafe { f.get_next_job.unwrap()(mgr) };
    let (cipher_len, hash_len, tag_len) = (48, 48, 20);
    let (src, dst) = (text.as_ptr(), text.as_mut_ptr());
    let user_data = (&raw mut calls).cast();
    let tag_at = tag.as_mut_ptr();
    let job = Job { src, dst, cipher_len, hash_len, tag: tag_at, tag_len, user_data, ..job };
    // SAFETY: the library lends it.
    unsafe { next.write(job) };
    // SAFETY: the job is good, or refused.
    let mut back = unsafe { f.submit_job.unwrap()(mgr) };
    let errno = library.errno();
    if back.is_null() {
        // SAFETY: as above.
        back = unsafe { f.flush_job.unwrap()(mgr) };
    }
    assert_eq!(back, next);
    // SAFETY: it was handed back.
    (text, tag, unsafe { (*back).status }, errno, calls.order)
}

fn job(cipher_mode: u32, hash_alg: u32, chain_order: u32) -> Job {
    Job {
        cipher_func: Some(cipher),
        hash_func: Some(hash),
        cipher_direction: DIR_ENCRYPT,
        cipher_mode,
        hash_alg,
        chain_order,
        ..Job::EMPTY
    }
}

#[test]
fn functions_of_the_caller_s_are_called_in_order() {
    let ours = Library::ours();
    let (both, order) = (job(CIPHER_CUSTOM, AUTH_CUSTOM, ORDER_CIPHER_HASH), ORDER_HASH_CIPHER);
    let (text, tag, status, errno, called) = outcome(&ours, both, Calls::default());
    assert_eq!((status, errno, called), (STATUS_COMPLETED, 0, vec!["cipher", "hash"]));
    assert_eq!(text, (1..49).collect::<Vec<u8>>());
    let sum = (1..49u8).fold(0, |sum: u8, byte| sum.wrapping_add(byte));
    assert_eq!(tag, [[sum; 20].as_slice(), &[0xee; 4]].concat());
    let back = job(CIPHER_CUSTOM, AUTH_CUSTOM, order);
    let (_, _, status, _, called) = outcome(&ours, back, Calls::default());
    assert_eq!((status, called), (STATUS_COMPLETED, vec!["hash", "cipher"]));
}

#[test]
fn what_comes_of_them_is_the_peer_s() {
    let (ours, peer) = (Library::ours(), Library::peer());
    let kinds = [
        (CIPHER_CUSTOM, AUTH_CUSTOM),
        (CIPHER_CUSTOM, AUTH_NULL),
        (CIPHER_NULL, AUTH_CUSTOM),
        (CIPHER_CUSTOM, AUTH_SHA_1),
    ];
    for (cipher, hash) in kinds {
        for order in [ORDER_CIPHER_HASH, ORDER_HASH_CIPHER] {
            for (cipher_fails, hash_fails) in [(false, false), (true, false), (false, true)] {
                let calls = || Calls { cipher_fails, hash_fails, ..Calls::default() };
                let mine = outcome(&ours, job(cipher, hash, order), calls());
                let (cipher_is, hash_is) = (cipher == CIPHER_CUSTOM, hash == AUTH_CUSTOM);
                let fails = cipher_is && cipher_fails || hash_is && hash_fails;
                let status = if fails { STATUS_INTERNAL_ERROR } else { STATUS_COMPLETED };
                assert_eq!(mine.2, status, "{cipher}, {hash}, {order}");
                // What the peer does behind a function that failed is not the same for every order.
                if let (false, Some(peer)) = (fails, Library::peer()) {
                    let theirs = outcome(&peer, job(cipher, hash, order), calls());
                    assert_eq!(mine, theirs, "{cipher}, {hash}, {order}");
                }
            }
        }
    }
    // A missing function is an address that is wrong.
    for wrong in [
        Job { cipher_func: None, ..job(CIPHER_CUSTOM, AUTH_CUSTOM, ORDER_CIPHER_HASH) },
        Job { hash_func: None, ..job(CIPHER_CUSTOM, AUTH_CUSTOM, ORDER_CIPHER_HASH) },
        Job { cipher_direction: 0, ..job(CIPHER_CUSTOM, AUTH_NULL, ORDER_CIPHER_HASH) },
    ] {
        let mine = outcome(&ours, wrong, Calls::default());
        assert_eq!((mine.2, mine.4.len()), (STATUS_INVALID_ARGS, 0));
        if let Some(peer) = &peer {
            let mut theirs = outcome(peer, wrong, Calls::default());
            // Versions do not number all errors alike.
            if peer.has_sessions() != ours.has_sessions() {
                theirs.3 = mine.3;
            }
            assert_eq!(mine, theirs);
        }
    }
}

#[cfg(not(abi_1))]
#[test]
fn a_session_of_them_is_one() {
    let ours = Library::ours();
    let mut job = job(CIPHER_CUSTOM, AUTH_CUSTOM, ORDER_CIPHER_HASH);
    ours.set_session(&raw mut job);
    assert_ne!(job.session.session_id, 0);
}
