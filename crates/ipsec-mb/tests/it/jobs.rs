//! Jobs one by one and in bursts, compared with the peer's.

use std::{ptr, slice};

use stand_in::types::*;

use crate::{
    library::Library,
    suites::{Keys, Memory, Suite, aeads, apart, length, pairs},
};

const LENGTHS: [usize; 20] =
    [0, 1, 15, 16, 17, 31, 32, 48, 63, 64, 65, 100, 127, 128, 256, 300, 512, 1000, 1420, 2049];

/// Jobs enough to fill lanes more than once.
const JOBS: usize = 70;

fn memories(suite: Suite) -> Vec<Memory> {
    // intel-ipsec-mb knows no IV of GMAC without bytes, and additional data is the IV there.
    let gmac = (AUTH_AES_GMAC_128..=AUTH_AES_GMAC_256).contains(&suite.hash);
    let seed = |i: usize| if gmac { 12 } else { i };
    (0..JOBS)
        .map(|i| Memory::new(suite, seed(i), length(suite, LENGTHS[i % LENGTHS.len()])))
        .collect()
}

/// A job's own number, as the jobs come back.
fn number(job: *mut Job) -> usize {
    // SAFETY: the library handed it back.
    let job = unsafe { &*job };
    assert_eq!(job.status, STATUS_COMPLETED, "{job:?}");
    job.user_data.addr()
}

/// One by one.
fn by_job(library: &Library, suite: Suite) -> Vec<Memory> {
    let keys = Keys::new(library, suite);
    let mut memories = memories(suite);
    let (f, mgr) = (*library.functions(), library.mgr());
    let mut done = Vec::new();
    for (i, memory) in memories.iter_mut().enumerate() {
        // SAFETY: the manager is there.
        let job = unsafe { f.get_next_job.unwrap()(mgr) };
        // SAFETY: the library lends it.
        memory.describe(unsafe { &mut *job }, suite, &keys);
        // SAFETY: as above.
        unsafe { (*job).user_data = ptr::without_provenance_mut(i) };
        // SAFETY: the job is good, and all that it points to stays.
        let mut back = unsafe { f.submit_job.unwrap()(mgr) };
        assert_eq!(library.errno(), 0, "{suite:?}");
        while !back.is_null() {
            done.push(number(back));
            // SAFETY: as above.
            back = unsafe { f.get_completed_job.unwrap()(mgr) };
        }
    }
    // Version 1.3 does not say 0 where none waits.
    // SAFETY: as above.
    let waiting = unsafe { f.queue_size.unwrap()(mgr) };
    if library.has_sessions() {
        assert_eq!(waiting as usize + done.len(), JOBS);
    }
    loop {
        // SAFETY: as above.
        let back = unsafe { f.flush_job.unwrap()(mgr) };
        if back.is_null() {
            break;
        }
        done.push(number(back));
    }
    assert_eq!(done, (0..JOBS).collect::<Vec<_>>(), "in order");
    memories
}

/// In bursts of half the jobs.
fn by_burst(library: &Library, suite: Suite) -> Vec<Memory> {
    let keys = Keys::new(library, suite);
    let mut memories = memories(suite);
    let (f, mgr) = (*library.functions(), library.mgr());
    let mut done = Vec::new();
    for (half, part) in memories.chunks_mut(JOBS / 2).enumerate() {
        let (count, mut jobs) = (part.len() as u32, [ptr::null_mut(); MAX_BURST]);
        // SAFETY: there is room for so many.
        let lent = unsafe { f.get_next_burst.unwrap()(mgr, count, jobs.as_mut_ptr()) };
        assert_eq!(lent, count);
        for (i, (memory, job)) in part.iter_mut().zip(jobs).enumerate() {
            // SAFETY: the library lends it.
            memory.describe(unsafe { &mut *job }, suite, &keys);
            // SAFETY: as above.
            unsafe { (*job).user_data = ptr::without_provenance_mut(half * JOBS / 2 + i) };
            library.set_session(job);
        }
        // SAFETY: the jobs are good, and all that they point to stays.
        let back = unsafe { f.submit_burst.unwrap()(mgr, count, jobs.as_mut_ptr()) };
        assert_eq!(library.errno(), 0, "{suite:?}");
        done.extend(jobs[..back as usize].iter().map(|job| number(*job)));
        // SAFETY: as above.
        let back = unsafe { f.flush_burst.unwrap()(mgr, count, jobs.as_mut_ptr()) };
        done.extend(jobs[..back as usize].iter().map(|job| number(*job)));
    }
    assert_eq!(done, (0..JOBS).collect::<Vec<_>>(), "in order");
    memories
}

/// In an array, as bursts of one algorithm.
fn by_array(library: &Library, suite: Suite) -> Option<Vec<Memory>> {
    let keys = Keys::new(library, suite);
    let mut memories = memories(suite);
    let mut jobs = vec![Job::EMPTY; JOBS];
    for (memory, job) in memories.iter_mut().zip(&mut jobs) {
        memory.describe(job, suite, &keys);
    }
    let (f, mgr, count) = (*library.functions(), library.mgr(), JOBS as u32);
    let direction = if suite.encrypt { DIR_ENCRYPT } else { DIR_DECRYPT };
    let done = match (suite.cipher, suite.hash) {
        (CIPHER_CBC | CIPHER_CNTR | CIPHER_ECB | CIPHER_CFB, AUTH_NULL) => {
            let burst = f.submit_cipher_burst.unwrap();
            let (cipher, key_len) = (suite.cipher, suite.key_len as u32);
            // SAFETY: the jobs are good.
            unsafe { burst(mgr, jobs.as_mut_ptr(), count, cipher, direction, key_len) }
        }
        (
            CIPHER_NULL,
            AUTH_HMAC_SHA_1..=AUTH_HMAC_SHA_512
            | AUTH_SHA_1..=AUTH_SHA_512
            | AUTH_AES_CMAC..=AUTH_AES_CMAC_BITLEN,
        ) => {
            // SAFETY: as above.
            unsafe { f.submit_hash_burst.unwrap()(mgr, jobs.as_mut_ptr(), count, suite.hash) }
        }
        _ => return None,
    };
    assert_eq!((done, library.errno()), (count, 0), "{suite:?}");
    assert!(jobs.iter().all(|job| job.status == STATUS_COMPLETED));
    Some(memories)
}

fn compare(suites: &[Suite]) {
    let ours = Library::ours();
    let peer = Library::peer();
    for suite in suites {
        let jobs = by_job(&ours, *suite);
        assert_eq!(jobs, by_burst(&ours, *suite), "jobs and bursts: {suite:?}");
        if let Some(array) = by_array(&ours, *suite) {
            assert_eq!(jobs, array, "jobs and arrays: {suite:?}");
        }
        if let Some(peer) = peer.as_ref().filter(|peer| peer.has_cipher(suite.cipher)) {
            let (mine, theirs) = (Keys::new(&ours, *suite), Keys::new(peer, *suite));
            assert_eq!(mine.shared(), theirs.shared(), "keys: {suite:?}");
            let theirs = by_job(peer, *suite);
            for (mine, theirs) in jobs.iter().zip(&theirs) {
                assert_eq!(mine, theirs, "{suite:?}, version {:x}", peer.version());
            }
        }
    }
}

#[test]
fn pairs_of_cipher_and_mac_are_the_peer_s() {
    compare(&pairs());
}

#[test]
fn aeads_are_the_peer_s() {
    compare(&aeads());
}

#[test]
fn what_is_worked_on_apart_is_the_peer_s() {
    compare(&apart());
}

/// Additional data in the text that the job overwrites, or a copy of it elsewhere.
fn with_aad(library: &Library, suite: Suite, in_text: bool) -> Memory {
    let keys = Keys::new(library, suite);
    let mut memory = Memory::new(suite, 20, 64);
    let (f, mgr) = (*library.functions(), library.mgr());
    // SAFETY: the manager is there.
    let job = unsafe { f.get_next_job.unwrap()(mgr) };
    // SAFETY: the library lends it.
    let described = unsafe { &mut *job };
    memory.describe(described, suite, &keys);
    let text = described.dst.cast_const();
    // SAFETY: there are so many bytes of text.
    let copy = unsafe { slice::from_raw_parts(text, 20) }.to_vec();
    let aad = if in_text { text } else { copy.as_ptr() };
    (described.u[0], described.u[1]) = (aad.expose_provenance(), 20);
    // SAFETY: the job is good.
    let mut back = unsafe { f.submit_job.unwrap()(mgr) };
    if back.is_null() {
        // SAFETY: as above.
        back = unsafe { f.flush_job.unwrap()(mgr) };
    }
    number(back);
    memory
}

#[test]
fn additional_data_may_lie_where_text_goes() {
    // What the peer makes of that depends on the length.
    let ours = Library::ours();
    for suite in aeads().into_iter().filter(|suite| suite.cipher != CIPHER_NULL) {
        let apart = with_aad(&ours, suite, false);
        assert_eq!(apart, with_aad(&ours, suite, true), "{suite:?}");
    }
}

#[test]
fn jobs_of_all_kinds_come_back_in_order() {
    let ours = Library::ours();
    let apart = apart().into_iter().step_by(5);
    let suites: Vec<Suite> = pairs().into_iter().step_by(7).chain(apart).chain(aeads()).collect();
    let keys: Vec<Keys> = suites.iter().map(|suite| Keys::new(&ours, *suite)).collect();
    let expected: Vec<Vec<Memory>> = suites.iter().map(|suite| by_job(&ours, *suite)).collect();
    let (f, mgr) = (*ours.functions(), ours.mgr());
    let mut all: Vec<Vec<Memory>> = suites.iter().map(|suite| memories(*suite)).collect();
    let (mut back, mut sent) = (0, 0);
    let take = |job: *mut Job, back: &mut usize| {
        if !job.is_null() {
            assert_eq!(number(job), *back);
            *back += 1;
        }
    };
    for at in 0..JOBS {
        for ((suite, keys), memories) in suites.iter().zip(&keys).zip(&mut all) {
            // SAFETY: the manager is there.
            let job = unsafe { f.get_next_job.unwrap()(mgr) };
            // SAFETY: the library lends it.
            let described = unsafe { &mut *job };
            memories[at].describe(described, *suite, keys);
            described.user_data = ptr::without_provenance_mut(sent);
            sent += 1;
            // SAFETY: the job is good. Nobody asks for more than comes back by itself.
            take(unsafe { f.submit_job.unwrap()(mgr) }, &mut back);
        }
    }
    while back < sent {
        // SAFETY: as above.
        let job = unsafe { f.flush_job.unwrap()(mgr) };
        assert!(!job.is_null());
        take(job, &mut back);
    }
    assert_eq!(all, expected);
}

#[test]
fn nothing_of_a_key_stays_with_the_manager() {
    let ours = Library::ours();
    let secret: Vec<u8> = (0..16u8).map(|i| i * 7 + 3).collect();
    for suite in pairs().into_iter().filter(|suite| suite.key_len == 16).chain(apart()) {
        by_job(&ours, suite);
        // SAFETY: a manager has so many bytes.
        let memory = unsafe {
            slice::from_raw_parts(ours.mgr().cast::<u8>(), stand_in::ffi::imb_get_mb_mgr_size())
        };
        assert!(!memory.windows(16).any(|bytes| bytes == secret), "{suite:?}");
    }
}
