//! Wrong arguments get an error number of the header, and nothing is done.

use std::{
    ffi::{c_int, c_void},
    ptr,
    sync::{Mutex, MutexGuard},
};

use super::*;
use crate::{check::Suite, types::*};

/// The library has one number for functions that know no manager, so tests that read it go one after another.
static ORDER: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ORDER.lock().unwrap_or_else(|error| error.into_inner())
}

struct Manager(*mut Mgr);

impl Manager {
    fn new() -> Self {
        let mgr = alloc_mb_mgr(0);
        // SAFETY: it was just allocated.
        unsafe { init_mb_mgr_auto(mgr, ptr::null_mut()) };
        Self(mgr)
    }

    fn functions(&self) -> Functions {
        // SAFETY: it is there.
        unsafe { (*self.0).functions }
    }

    fn errno(&self) -> c_int {
        // SAFETY: it is there.
        unsafe { imb_get_errno(self.0) }
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more.
        unsafe { free_mb_mgr(self.0) };
    }
}

fn last_error() -> c_int {
    // SAFETY: null is no manager.
    unsafe { imb_get_errno(ptr::null_mut()) }
}

/// Good jobs point here; the tests below change one field each, before anything is read.
static MEMORY: [u8; 2048] = [0; 2048];

fn memory() -> *const c_void {
    MEMORY.as_ptr().cast()
}

fn good(cipher: u32, hash: u32) -> Job {
    let at = MEMORY.as_ptr();
    let (iv_len, tag_len) = match (cipher, hash) {
        (CIPHER_CBC | CIPHER_CNTR_BITLEN | CIPHER_CFB, _) => (16, 12),
        (_, AUTH_CHACHA20_POLY1305 | AUTH_POLY1305) => (12, 16),
        (_, AUTH_SHA_1) => (12, 20),
        _ => (12, 12),
    };
    let first = at.expose_provenance();
    let u = match hash {
        AUTH_AES_GMAC_128 => [first, first, 12],
        _ if cipher_is_aead(cipher) => [first, 8, 0],
        _ => [first; 3],
    };
    Job {
        enc_keys: memory(),
        dec_keys: memory(),
        key_len: match cipher {
            CIPHER_CHACHA20_POLY1305 | CIPHER_CHACHA20 => 32,
            _ => 16,
        },
        src: at,
        dst: at.cast_mut(),
        cipher_len: 64,
        hash_len: 64,
        iv: at,
        iv_len,
        tag: at.cast_mut(),
        tag_len,
        u,
        cipher_mode: cipher,
        cipher_direction: DIR_ENCRYPT,
        hash_alg: hash,
        chain_order: ORDER_CIPHER_HASH,
        ..Job::EMPTY
    }
}

fn cipher_is_aead(cipher: u32) -> bool {
    [CIPHER_GCM, CIPHER_CCM, CIPHER_CHACHA20_POLY1305].contains(&cipher)
}

type Change = fn(&mut Job);

/// Every field of a job wrong once.
fn wrong_jobs() -> Vec<(u32, u32, Change, c_int)> {
    let (cbc, ctr, sha) = (CIPHER_CBC, CIPHER_CNTR, AUTH_HMAC_SHA_1);
    let (gcm, gmac) = (CIPHER_GCM, AUTH_AES_GMAC);
    let (chacha, poly) = (CIPHER_CHACHA20_POLY1305, AUTH_CHACHA20_POLY1305);
    let (ccm, ccm_hash, null) = (CIPHER_CCM, AUTH_AES_CCM, CIPHER_NULL);
    vec![
        (cbc, sha, |job| job.src = ptr::null(), ERR_JOB_NULL_SRC),
        (cbc, sha, |job| job.dst = ptr::null_mut(), ERR_JOB_NULL_DST),
        (cbc, sha, |job| job.iv = ptr::null(), ERR_JOB_NULL_IV),
        (cbc, sha, |job| job.enc_keys = ptr::null(), ERR_JOB_NULL_KEY),
        (cbc, sha, |job| job.key_len = 17, ERR_JOB_KEY_LEN),
        (cbc, sha, |job| job.key_len = u64::MAX, ERR_JOB_KEY_LEN),
        (cbc, sha, |job| job.cipher_len = 0, ERR_JOB_CIPH_LEN),
        (cbc, sha, |job| job.cipher_len = 63, ERR_JOB_CIPH_LEN),
        (cbc, sha, |job| job.cipher_len = 1 << 16, ERR_JOB_CIPH_LEN),
        (cbc, sha, |job| job.cipher_offset = u64::MAX, ERR_JOB_CIPH_LEN),
        (cbc, sha, |job| job.iv_len = 12, ERR_JOB_IV_LEN),
        (cbc, sha, |job| job.cipher_direction = 3, ERR_JOB_CIPH_DIR),
        (cbc, sha, |job| job.tag_len = 0, ERR_JOB_AUTH_TAG_LEN),
        (cbc, sha, |job| job.tag_len = 21, ERR_JOB_AUTH_TAG_LEN),
        (cbc, sha, |job| job.tag = ptr::null_mut(), ERR_JOB_NULL_AUTH),
        (cbc, sha, |job| job.hash_len = 1 << 16, ERR_JOB_AUTH_LEN),
        (cbc, sha, |job| job.u[0] = 0, ERR_JOB_NULL_HMAC_IPAD),
        (cbc, sha, |job| job.u[1] = 0, ERR_JOB_NULL_HMAC_OPAD),
        (cbc, AUTH_NULL, |job| job.cipher_direction = 0, ERR_JOB_CIPH_DIR),
        (cbc, AUTH_AES_XCBC, |job| job.u[0] = 0, ERR_JOB_NULL_XCBC_K1_EXP),
        (cbc, AUTH_AES_XCBC, |job| job.u[1] = 0, ERR_JOB_NULL_XCBC_K2),
        (cbc, AUTH_AES_XCBC, |job| job.u[2] = 0, ERR_JOB_NULL_XCBC_K3),
        (cbc, AUTH_AES_XCBC, |job| job.tag_len = 11, ERR_JOB_AUTH_TAG_LEN),
        (null, AUTH_AES_CMAC, |job| job.u[2] = 0, ERR_JOB_NULL_KEY),
        (null, AUTH_AES_CMAC_256, |job| job.tag_len = 17, ERR_JOB_AUTH_TAG_LEN),
        (null, AUTH_MD5, |job| job.tag_len = 13, ERR_JOB_AUTH_TAG_LEN),
        (null, AUTH_AES_GMAC_128, |job| job.u[0] = 0, ERR_JOB_NULL_AUTH_KEY),
        (null, AUTH_AES_GMAC_128, |job| job.u[1] = 0, ERR_JOB_NULL_IV),
        (null, AUTH_AES_GMAC_128, |job| job.u[2] = 0, ERR_JOB_IV_LEN),
        (null, AUTH_AES_GMAC_128, |job| job.src = ptr::null(), ERR_JOB_NULL_SRC),
        (ctr, sha, |job| job.iv_len = 13, ERR_JOB_IV_LEN),
        (ctr, sha, |job| job.cipher_len = u64::MAX, ERR_JOB_CIPH_LEN),
        (gcm, gmac, |job| job.iv_len = 0, ERR_JOB_IV_LEN),
        (gcm, gmac, |job| job.enc_keys = ptr::null(), ERR_JOB_NULL_KEY),
        (gcm, gmac, |job| job.u[0] = 0, ERR_JOB_NULL_AAD),
        (gcm, gmac, |job| job.u[1] = usize::MAX, ERR_JOB_AAD_LEN),
        (gcm, gmac, |job| job.tag_len = 17, ERR_JOB_AUTH_TAG_LEN),
        (gcm, gmac, |job| job.cipher_len = u64::MAX, ERR_JOB_CIPH_LEN),
        (gcm, gmac, |job| job.hash_alg = AUTH_HMAC_SHA_1, ERR_HASH_ALGO),
        (gcm, gmac, |job| job.cipher_mode = CIPHER_CNTR, ERR_CIPH_MODE),
        (chacha, poly, |job| job.key_len = 16, ERR_JOB_KEY_LEN),
        (chacha, poly, |job| job.iv_len = 16, ERR_JOB_IV_LEN),
        (chacha, poly, |job| job.tag_len = 12, ERR_JOB_AUTH_TAG_LEN),
        (ccm, ccm_hash, |job| job.key_len = 24, ERR_JOB_KEY_LEN),
        (ccm, ccm_hash, |job| job.iv_len = 14, ERR_JOB_IV_LEN),
        (ccm, ccm_hash, |job| job.u[1] = 47, ERR_JOB_AAD_LEN),
        (ccm, ccm_hash, |job| job.hash_offset = 1, ERR_JOB_SRC_OFFSET),
        (ccm, ccm_hash, |job| job.hash_len = 63, ERR_JOB_CIPH_LEN),
        (ccm, ccm_hash, |job| job.tag_len = 5, ERR_JOB_AUTH_TAG_LEN),
    ]
}

/// The same of jobs that are worked on apart.
fn wrong_jobs_apart() -> Vec<(u32, u32, Change, c_int)> {
    let (ecb, cfb, bits, chacha) = (CIPHER_ECB, CIPHER_CFB, CIPHER_CNTR_BITLEN, CIPHER_CHACHA20);
    let (none, null, cmac) = (AUTH_NULL, CIPHER_NULL, AUTH_AES_CMAC_BITLEN);
    vec![
        (ecb, none, |job| job.src = ptr::null(), ERR_JOB_NULL_SRC),
        (ecb, none, |job| job.dst = ptr::null_mut(), ERR_JOB_NULL_DST),
        (ecb, none, |job| job.enc_keys = ptr::null(), ERR_JOB_NULL_KEY),
        (
            ecb,
            none,
            |job| (job.dec_keys, job.cipher_direction) = (ptr::null(), DIR_DECRYPT),
            ERR_JOB_NULL_KEY,
        ),
        (ecb, none, |job| job.key_len = 8, ERR_JOB_KEY_LEN),
        (ecb, none, |job| job.cipher_len = 0, ERR_JOB_CIPH_LEN),
        (ecb, none, |job| job.cipher_len = 17, ERR_JOB_CIPH_LEN),
        (ecb, none, |job| job.cipher_len = 1 << 16, ERR_JOB_CIPH_LEN),
        (cfb, none, |job| job.iv = ptr::null(), ERR_JOB_NULL_IV),
        (cfb, none, |job| job.iv_len = 12, ERR_JOB_IV_LEN),
        (cfb, none, |job| job.cipher_len = 17, ERR_JOB_CIPH_LEN),
        (cfb, none, |job| job.key_len = 20, ERR_JOB_KEY_LEN),
        (bits, none, |job| job.iv_len = 12, ERR_JOB_IV_LEN),
        (bits, none, |job| job.cipher_len = 0, ERR_JOB_CIPH_LEN),
        (bits, none, |job| job.cipher_len = u64::MAX, ERR_JOB_CIPH_LEN),
        (bits, none, |job| job.enc_keys = ptr::null(), ERR_JOB_NULL_KEY),
        (chacha, none, |job| job.key_len = 16, ERR_JOB_KEY_LEN),
        (chacha, none, |job| job.iv_len = 16, ERR_JOB_IV_LEN),
        (chacha, none, |job| job.cipher_len = 1 << 38, ERR_JOB_CIPH_LEN),
        (null, AUTH_SHA_1, |job| job.tag_len = 12, ERR_JOB_AUTH_TAG_LEN),
        (null, AUTH_SHA_1, |job| job.hash_len = 1 << 16, ERR_JOB_AUTH_LEN),
        (null, AUTH_SHA_1, |job| job.src = ptr::null(), ERR_JOB_NULL_SRC),
        (null, AUTH_SHA_1, |job| job.tag = ptr::null_mut(), ERR_JOB_NULL_AUTH),
        (null, cmac, |job| job.u[1] = 0, ERR_JOB_NULL_KEY),
        (null, cmac, |job| job.tag_len = 17, ERR_JOB_AUTH_TAG_LEN),
        (null, cmac, |job| job.hash_len = 8 << 16, ERR_JOB_AUTH_LEN),
        (null, AUTH_GHASH, |job| job.u[0] = 0, ERR_JOB_NULL_AUTH_KEY),
        (null, AUTH_GHASH, |job| job.u[1] = 0, ERR_JOB_NULL_GHASH_INIT_TAG),
        (null, AUTH_GHASH, |job| job.tag_len = 0, ERR_JOB_AUTH_TAG_LEN),
        (null, AUTH_POLY1305, |job| job.u[0] = 0, ERR_JOB_NULL_AUTH_KEY),
        (null, AUTH_POLY1305, |job| job.tag_len = 12, ERR_JOB_AUTH_TAG_LEN),
        // The system's number for an address that is wrong.
        (CIPHER_CUSTOM, none, |_| (), 14),
        (null, AUTH_CUSTOM, |_| (), 14),
        (CIPHER_CUSTOM, none, |job| job.cipher_direction = 0, ERR_JOB_CIPH_DIR),
    ]
}

#[test]
fn a_wrong_job_comes_back_with_its_error() {
    let _alone = alone();
    let manager = Manager::new();
    let f = manager.functions();
    // Version 1 has no jobs of CFB.
    let rows = wrong_jobs().into_iter().chain(wrong_jobs_apart()).filter(|row| row.0 < CIPHER_NUM);
    for (row, (cipher, hash, change, error)) in rows.enumerate() {
        // SAFETY: the manager is there.
        let job = unsafe { f.get_next_job.unwrap()(manager.0) };
        let mut wrong = good(cipher, hash);
        change(&mut wrong);
        // SAFETY: the library lends it.
        unsafe { job.write(wrong) };
        // SAFETY: a wrong job is not looked at more closely.
        let back = unsafe { f.submit_job.unwrap()(manager.0) };
        assert_eq!((back, manager.errno()), (job, error), "row {row}");
        // SAFETY: it was handed back.
        assert_eq!(unsafe { (*back).status }, STATUS_INVALID_ARGS, "row {row}");
    }
}

#[test]
fn what_is_not_in_the_set_is_refused() {
    let _alone = alone();
    let manager = Manager::new();
    let f = manager.functions();
    for number in 0..60 {
        let apart = Suite { cipher: number, direction: 1, hash: 0, key_len: 16 }.has_cipher_apart();
        let mine = apart || [CIPHER_CBC, CIPHER_CNTR, CIPHER_NULL].contains(&number);
        let sgl = [CIPHER_GCM_SGL, CIPHER_CHACHA20_POLY1305_SGL].contains(&number);
        if !mine && !cipher_is_aead(number) && !sgl {
            assert_eq!(submitted(&manager, good(number, AUTH_NULL)), ERR_CIPH_MODE, "{number}");
        }
        let hash = Job { hash_alg: number, ..good(CIPHER_NULL, AUTH_NULL) };
        let known = (AUTH_HMAC_SHA_1..=AUTH_NULL).contains(&number)
            || [AUTH_AES_GMAC, AUTH_AES_CCM, AUTH_AES_CMAC, AUTH_AES_CMAC_256].contains(&number)
            || (AUTH_AES_GMAC_128..=AUTH_AES_GMAC_256).contains(&number)
            || (AUTH_SHA_1..=AUTH_AES_CMAC_BITLEN).contains(&number)
            || [AUTH_CUSTOM, AUTH_POLY1305, AUTH_GHASH].contains(&number)
            || [AUTH_CHACHA20_POLY1305, AUTH_CHACHA20_POLY1305_SGL, AUTH_GCM_SGL].contains(&number);
        if !known {
            assert_eq!(submitted(&manager, hash), ERR_HASH_ALGO, "{number}");
        }
    }
    // No pointer is null, and those of functions outside the set note an error.
    let words = size_of::<Functions>() / size_of::<usize>();
    // SAFETY: functions are pointers without padding.
    let all = unsafe { std::slice::from_raw_parts((&raw const f).cast::<usize>(), words) };
    assert!(all.iter().all(|pointer| *pointer != 0) && words == 119);
    let refused = f.mobile.iter().chain(&f.crc).chain(&f.hec);
    // Those that set keys up tell that they did not.
    let keys = [f.des_key_sched, f.mobile[12], f.mobile[13], f.mobile[24]];
    assert!(keys.iter().all(|function| function.unwrap()() as c_int == -1));
    for function in refused.chain([&f.des_key_sched, &f.eia3_n_buffer]) {
        raw::set_global_errno(0);
        assert!([0, usize::MAX].contains(&function.unwrap()()));
        assert!([ERR_CIPH_MODE, ERR_HASH_ALGO].contains(&last_error()));
    }
}

fn submitted(manager: &Manager, job: Job) -> c_int {
    let f = manager.functions();
    // SAFETY: the manager is there.
    let next = unsafe { f.get_next_job.unwrap()(manager.0) };
    // SAFETY: the library lends it.
    unsafe { next.write(job) };
    // SAFETY: a wrong job is not looked at more closely.
    let back = unsafe { f.submit_job.unwrap()(manager.0) };
    // SAFETY: it was handed back.
    assert_eq!(unsafe { (*back).status }, STATUS_INVALID_ARGS);
    manager.errno()
}

#[test]
fn no_manager_is_an_error() {
    let _alone = alone();
    let f = Manager::new().functions();
    let fresh = alloc_mb_mgr(0);
    for mgr in [ptr::null_mut(), fresh] {
        for function in [f.get_next_job, f.submit_job, f.get_completed_job, f.flush_job] {
            raw::set_global_errno(0);
            // SAFETY: null, or a manager that no function made ready.
            assert!(unsafe { function.unwrap()(mgr) }.is_null());
            assert_eq!(last_error(), ERR_NULL_MBMGR);
        }
        // SAFETY: as above.
        assert_eq!(unsafe { f.queue_size.unwrap()(mgr) }, 0);
        let mut jobs = [ptr::null_mut(); 4];
        for function in [f.get_next_burst, f.submit_burst, f.submit_burst_nocheck, f.flush_burst] {
            // SAFETY: as above.
            assert_eq!(unsafe { function.unwrap()(mgr, 4, jobs.as_mut_ptr()) }, 0);
        }
        let mut job = Job::EMPTY;
        // SAFETY: as above.
        let done = unsafe { f.submit_cipher_burst.unwrap()(mgr, &raw mut job, 1, 1, 1, 16) };
        // SAFETY: as above.
        assert_eq!(done + unsafe { f.submit_hash_burst.unwrap()(mgr, &raw mut job, 1, 1) }, 0);
    }
    // SAFETY: it was allocated here.
    unsafe { free_mb_mgr(fresh) };
    // SAFETY: null is nothing to free, to make ready or to set up.
    unsafe { free_mb_mgr(ptr::null_mut()) };
    // SAFETY: as above.
    unsafe { init_mb_mgr_auto(ptr::null_mut(), ptr::null_mut()) };
    // SAFETY: as above.
    unsafe { init_mb_mgr_sse(ptr::null_mut()) };
    // SAFETY: as above.
    assert!(unsafe { imb_set_pointers_mb_mgr(ptr::null_mut(), 0, 1) }.is_null());
    // SAFETY: as above.
    unsafe { imb_clear_mem(ptr::null_mut(), 4) };
}

#[cfg(not(abi_1))]
#[test]
fn what_version_2_has_besides_refuses_null() {
    let _alone = alone();
    let (none, manager) = (ptr::null_mut(), Manager::new());
    // SAFETY: null is no manager.
    assert_eq!(unsafe { imb_set_session(none, ptr::null_mut()) }, 0);
    assert_eq!(last_error(), ERR_NULL_MBMGR);
    // SAFETY: as above.
    unsafe { imb_hmac_ipad_opad(none, 1, memory(), 1, ptr::null_mut(), ptr::null_mut()) };
    assert_eq!(last_error(), ERR_NULL_MBMGR);
    // SAFETY: it is there.
    let later = unsafe { (*manager.0).later };
    refuse_block(later.cfb_one_256);
    let refused = later.ecb_quic.iter().chain(&later.chacha_quic);
    for function in refused.chain([&later.sm4_keyexp]) {
        raw::set_global_errno(0);
        assert_eq!(function.unwrap()(), 0);
        assert_eq!(last_error(), ERR_CIPH_MODE);
    }
}

#[cfg(not(abi_1))]
#[test]
fn whom_to_tell_of_self_tests_is_remembered() {
    unsafe extern "C" fn told(_: *mut c_void, _: *const c_void) -> c_int {
        1
    }
    let manager = Manager::new();
    let argument = manager.0.cast();
    // SAFETY: the manager is there.
    assert_eq!(unsafe { imb_self_test_set_cb(manager.0, Some(told), argument) }, 0);
    // SAFETY: as above. A manager is made ready after it was told whom to tell.
    unsafe { init_mb_mgr_auto(manager.0, ptr::null_mut()) };
    let (mut function, mut found) = (None, ptr::null_mut());
    // SAFETY: as above.
    let done = unsafe { imb_self_test_get_cb(manager.0, &raw mut function, &raw mut found) };
    assert!(done == 0 && function.is_some() && found == argument);
}

#[cfg(not(abi_1))]
#[test]
fn kernels_have_names() {
    let manager = Manager::new();
    let (mut name, mut needs) = (ptr::null(), ptr::null());
    // SAFETY: all of it is there.
    let told = unsafe { imb_get_arch_type_string(manager.0, &raw mut name, &raw mut needs) };
    // SAFETY: texts of the library's.
    let [name, needs] = [name, needs].map(|text| unsafe { std::ffi::CStr::from_ptr(text) });
    assert_eq!(told, 0);
    assert!(name.to_str().unwrap().contains(" Type ") && !needs.is_empty());
    // SAFETY: one of them may be left out.
    let told = unsafe { imb_get_arch_type_string(manager.0, ptr::null_mut(), ptr::null_mut()) };
    assert_ne!(told, 0);
}

#[cfg(abi_1)]
#[test]
fn aes_without_instructions_is_refused() {
    let _alone = alone();
    assert!(alloc_mb_mgr(FLAG_AESNI_OFF).is_null());
    assert_eq!(last_error(), ERR_NO_AESNI_EMU);
}

#[test]
fn a_manager_may_lie_anywhere() {
    let _alone = alone();
    let mut memory = vec![0u64; imb_get_mb_mgr_size() / 8 + 8];
    for shift in 0..8 {
        let at = memory[shift..].as_mut_ptr().cast();
        // SAFETY: there is as much memory as that function wants.
        let mgr = unsafe { imb_set_pointers_mb_mgr(at, 0, 1) };
        // SAFETY: as above.
        unsafe { init_mb_mgr_auto(mgr, ptr::null_mut()) };
        // SAFETY: as above.
        assert_eq!(unsafe { (*mgr).errno }, 0);
        // SAFETY: as above.
        let next = unsafe { ring_next(mgr) };
        assert!(!next.is_null());
    }
    // SAFETY: it is one byte off.
    let odd =
        unsafe { imb_set_pointers_mb_mgr(memory.as_mut_ptr().wrapping_byte_add(1).cast(), 0, 1) };
    assert!(odd.is_null());
}

/// # Safety
///
/// The manager is there.
unsafe fn ring_next(mgr: *mut Mgr) -> *mut Job {
    // SAFETY: the caller's promise.
    let f = unsafe { (*mgr).functions };
    // SAFETY: as above.
    unsafe { f.get_next_job.unwrap()(mgr) }
}

#[test]
fn wrong_bursts_are_refused() {
    let _alone = alone();
    let manager = Manager::new();
    let (f, mgr) = (manager.functions(), manager.0);
    let mut jobs = [ptr::null_mut(); MAX_BURST];
    for function in [f.get_next_burst, f.submit_burst, f.submit_burst_nocheck] {
        // SAFETY: null is no array.
        assert_eq!(unsafe { function.unwrap()(mgr, 1, ptr::null_mut()) }, 0);
        assert_eq!(manager.errno(), ERR_NULL_BURST);
        // SAFETY: an array that is too large is not looked at.
        assert_eq!(unsafe { function.unwrap()(mgr, 129, jobs.as_mut_ptr()) }, 0);
        assert_eq!(manager.errno(), ERR_BURST_SIZE);
    }
    // SAFETY: the array has as many places.
    assert_eq!(unsafe { f.submit_burst.unwrap()(mgr, 2, jobs.as_mut_ptr()) }, 0);
    assert_eq!(manager.errno(), ERR_NULL_JOB);
    // SAFETY: as above.
    assert_eq!(unsafe { f.get_next_burst.unwrap()(mgr, 2, jobs.as_mut_ptr()) }, 2);
    for job in &jobs[..2] {
        // SAFETY: the library lends it.
        unsafe { job.write(good(CIPHER_NULL, AUTH_NULL)) };
    }
    jobs.swap(0, 1);
    // SAFETY: as above.
    assert_eq!(unsafe { f.submit_burst.unwrap()(mgr, 2, jobs.as_mut_ptr()) }, 0);
    assert_eq!(manager.errno(), ERR_BURST_OOO);
    jobs.swap(0, 1);
    #[cfg(not(abi_1))]
    {
        // SAFETY: as above.
        assert_eq!(unsafe { f.submit_burst.unwrap()(mgr, 2, jobs.as_mut_ptr()) }, 0);
        assert_eq!(manager.errno(), ERR_BURST_SUITE_ID);
    }
    // SAFETY: as above.
    assert_eq!(unsafe { f.submit_burst_nocheck.unwrap()(mgr, 2, jobs.as_mut_ptr()) }, 2);
    let mut wrong = good(CIPHER_CBC, AUTH_NULL);
    wrong.iv = ptr::null();
    // SAFETY: a wrong job is not looked at more closely.
    let done = unsafe { f.submit_cipher_burst.unwrap()(mgr, &raw mut wrong, 1, 1, 1, 16) };
    assert_eq!((done, manager.errno(), wrong.status), (0, ERR_JOB_NULL_IV, STATUS_INVALID_ARGS));
    // SAFETY: null is no array.
    let done = unsafe { f.submit_hash_burst.unwrap()(mgr, ptr::null_mut(), 1, AUTH_HMAC_SHA_1) };
    assert_eq!((done, manager.errno()), (0, ERR_NULL_JOB));
    for burst in [f.submit_cipher_burst, f.submit_cipher_burst_nocheck] {
        // SAFETY: as above.
        let done = unsafe { burst.unwrap()(mgr, ptr::null_mut(), 1, CIPHER_ECB, 1, 16) };
        assert_eq!((done, manager.errno()), (0, ERR_NULL_BURST));
    }
}

#[test]
fn wrong_lists_of_parts_are_refused_before_anything_is_done() {
    let _alone = alone();
    let manager = Manager::new();
    let (f, mgr) = (manager.functions(), manager.0);
    let (src, dst) = (MEMORY.as_ptr(), MEMORY.as_ptr().cast_mut());
    let mut out = [0u8; 8];
    let (fine, none) = (Segment { src, dst: out.as_mut_ptr(), len: 8 }, ptr::null_mut());
    let lists = [
        ([fine, Segment { src: ptr::null(), dst, len: 1 }], ERR_JOB_NULL_SRC),
        ([fine, Segment { src, dst: none, len: 1 }], ERR_JOB_NULL_DST),
        ([fine, Segment { src, dst, len: 1 << 39 }], ERR_JOB_CIPH_LEN),
    ];
    for (cipher, hash) in
        [(CIPHER_GCM_SGL, AUTH_GCM_SGL), (CIPHER_CHACHA20_POLY1305_SGL, AUTH_CHACHA20_POLY1305_SGL)]
    {
        let usual = good(cipher, hash);
        for (list, error) in &lists {
            let mut context = [0u64; 24];
            let context = context.as_mut_ptr().expose_provenance();
            let wrong = Job {
                key_len: if cipher == CIPHER_GCM_SGL { 16 } else { 32 },
                sgl_state: SGL_ALL,
                src: list.as_ptr().cast(),
                dst: ptr::without_provenance_mut(2),
                tag_len: 16,
                u: [0, 0, context],
                ..usual
            };
            assert_eq!(submitted(&manager, wrong), *error);
            let mut jobs = [ptr::null_mut(); 1];
            // SAFETY: there is room for one.
            assert_eq!(unsafe { f.get_next_burst.unwrap()(mgr, 1, jobs.as_mut_ptr()) }, 1);
            // SAFETY: the library lends it.
            unsafe { jobs[0].write(wrong) };
            // SAFETY: a wrong job is not looked at more closely.
            let done = unsafe { f.submit_burst_nocheck.unwrap()(mgr, 1, jobs.as_mut_ptr()) };
            assert_eq!((done, manager.errno()), (0, *error));
        }
    }
    assert_eq!(out, [0; 8], "nothing was done");
}

#[cfg(not(abi_1))]
#[test]
fn what_is_told_of_self_tests_wants_both_places() {
    let _alone = alone();
    let manager = Manager::new();
    let (mut function, mut argument) = (None, ptr::null_mut());
    let (f, a) = (&raw mut function, &raw mut argument);
    for (f, a, error) in [
        (ptr::null_mut(), a, 22),
        (f, ptr::null_mut(), 22),
        (ptr::null_mut(), ptr::null_mut(), 22),
        (f, a, 0),
    ] {
        // SAFETY: each is null or a place.
        assert_eq!(unsafe { imb_self_test_get_cb(manager.0, f, a) }, error);
    }
}

#[test]
fn direct_calls_refuse_null() {
    let _alone = alone();
    let manager = Manager::new();
    let f = manager.functions();
    let mut room = vec![0u64; 400];
    let out: *mut c_void = room.as_mut_ptr().cast();
    let (null, none, key) = (ptr::null::<u8>(), ptr::null_mut::<u8>(), memory());
    let is = |error: c_int| assert_eq!(last_error(), error);
    for bits in 0..3 {
        let expand = f.keyexp[bits].unwrap();
        // SAFETY: null is refused.
        unsafe { expand(null.cast(), out, out) };
        is(ERR_NULL_KEY);
        // SAFETY: as above.
        unsafe { expand(key, out, none.cast()) };
        is(ERR_NULL_EXP_KEY);
        let pre = f.gcm_pre[bits].unwrap();
        // SAFETY: as above.
        unsafe { pre(null.cast(), out) };
        is(ERR_NULL_KEY);
        // SAFETY: as above.
        unsafe { pre(key, none.cast()) };
        is(ERR_NULL_EXP_KEY);
        let mut context = GcmContext::NONE;
        let ctx = &raw mut context;
        let (iv, seal) = (MEMORY.as_ptr(), f.gcm_enc[bits].unwrap());
        // SAFETY: there is room for key data.
        unsafe { pre(key, out) };
        is(0);
        let (gk, dst) = (out.cast_const(), room[300..].as_mut_ptr().cast::<u8>());
        let cases = [
            (null.cast(), ctx, dst, iv, iv, iv, 1, dst, 16, ERR_NULL_EXP_KEY),
            (gk, ptr::null_mut(), dst, iv, iv, iv, 1, dst, 16, ERR_NULL_CTX),
            (gk, ctx, none, iv, iv, iv, 1, dst, 16, ERR_NULL_DST),
            (gk, ctx, dst, null, iv, iv, 1, dst, 16, ERR_NULL_SRC),
            (gk, ctx, dst, iv, null, iv, 1, dst, 16, ERR_NULL_IV),
            (gk, ctx, dst, iv, iv, null, 1, dst, 16, ERR_NULL_AAD),
            (gk, ctx, dst, iv, iv, iv, 1, none, 16, ERR_NULL_AUTH),
            (gk, ctx, dst, iv, iv, iv, 1, dst, 17, ERR_AUTH_TAG_LEN),
            (gk, ctx, dst, iv, iv, iv, 1, dst, 0, ERR_AUTH_TAG_LEN),
        ];
        for (key, ctx, dst, src, iv, aad, aad_len, tag, tag_len, error) in cases {
            // SAFETY: as above.
            unsafe { seal(key, ctx, dst, src, 16, iv, aad, aad_len, tag, tag_len) };
            is(error);
        }
        // A context that nobody began.
        // SAFETY: as above.
        unsafe { f.gcm_enc_update[bits].unwrap()(gk, ctx, dst, iv, 16) };
        is(ERR_NULL_CTX);
        // SAFETY: as above.
        unsafe { f.gmac_init[bits].unwrap()(gk, ctx, iv, 0) };
        is(ERR_IV_LEN);
    }
    // SAFETY: as above.
    unsafe { f.one_block[0].unwrap()(null.cast(), out) };
    is(ERR_NULL_SRC);
    // SAFETY: as above.
    unsafe { f.one_block[0].unwrap()(key, none.cast()) };
    is(ERR_NULL_AUTH);
    for (at, digest) in f.plain_hashes.into_iter().enumerate() {
        let digest = digest.unwrap();
        // SAFETY: as above.
        unsafe { digest(null.cast(), 1, out) };
        is(ERR_NULL_SRC);
        // SAFETY: as above.
        unsafe { digest(key, 1, none.cast()) };
        is(ERR_NULL_AUTH);
        // SAFETY: there is room for a digest, and nothing to read.
        unsafe { digest(null.cast(), 0, out) };
        is(0);
        assert_ne!(room[at], 0);
    }
    refuse_block(f.cfb_one_128);
    refuse_ghash(&f);
    // SAFETY: as above.
    unsafe { f.cmac_subkeys_128.unwrap()(null.cast(), out, out) };
    is(ERR_NULL_EXP_KEY);
    // SAFETY: as above.
    unsafe { f.xcbc_keyexp.unwrap()(null.cast(), out, out, out) };
    is(ERR_NULL_KEY);
    // SAFETY: as above.
    unsafe { f.chacha_init.unwrap()(null.cast(), out.cast(), key, key, 1) };
    is(ERR_NULL_KEY);
    // SAFETY: as above.
    unsafe { f.chacha_init.unwrap()(key, ptr::null_mut(), key, key, 1) };
    is(ERR_NULL_CTX);
    room.fill(0);
    // SAFETY: as above; nobody began a message there.
    unsafe { f.chacha_finalize.unwrap()(room.as_mut_ptr().cast(), none.cast(), 16) };
    is(ERR_NULL_AUTH);
    let (ctx, tag) = (room.as_mut_ptr().cast(), room[100..].as_mut_ptr().cast());
    // SAFETY: as above.
    unsafe { f.chacha_finalize.unwrap()(ctx, tag, 16) };
    is(ERR_NULL_CTX);
}

/// Wrong arguments of a single block of CFB.
fn refuse_block(one: Option<CfbFn>) {
    let mut room = [0u8; 64];
    let out: *mut c_void = room.as_mut_ptr().cast();
    let (null, none, at) = (ptr::null::<c_void>(), ptr::null_mut::<c_void>(), memory());
    let cases = [
        (none, at, at, at, 1, ERR_NULL_DST),
        (out, null, at, at, 1, ERR_NULL_SRC),
        (out, at, null, at, 1, ERR_NULL_IV),
        (out, at, at, null, 1, ERR_NULL_EXP_KEY),
        (out, at, at, at, 17, ERR_CIPH_LEN),
        (none, null, at, at, 0, 0),
    ];
    for (dst, src, iv, keys, len, error) in cases {
        // SAFETY: each is null, or as large as it must be.
        unsafe { one.unwrap()(dst, src, iv, keys, len) };
        assert_eq!(last_error(), error);
    }
    assert_eq!(room, [0; 64]);
}

/// Wrong arguments of GHASH.
fn refuse_ghash(f: &Functions) {
    let mut room = [0u8; 64];
    let out: *mut c_void = room.as_mut_ptr().cast();
    let (null, none, at) = (ptr::null::<c_void>(), ptr::null_mut::<c_void>(), memory());
    let is = |error: c_int| assert_eq!(last_error(), error);
    let mut data = vec![0u64; 170];
    let key: *mut c_void = data.as_mut_ptr().cast();
    let pre = f.ghash_pre.unwrap();
    // SAFETY: as above.
    unsafe { pre(null, key) };
    is(ERR_NULL_KEY);
    // SAFETY: as above.
    unsafe { pre(at, none) };
    is(ERR_NULL_EXP_KEY);
    let cases = [
        (null, at, 16, out, 16, ERR_NULL_EXP_KEY),
        (key.cast_const(), null, 16, out, 16, ERR_NULL_SRC),
        (key.cast_const(), at, 0, out, 16, ERR_AUTH_LEN),
        (key.cast_const(), at, 16, none, 16, ERR_NULL_AUTH),
        (key.cast_const(), at, 16, out, 0, ERR_AUTH_TAG_LEN),
        (key.cast_const(), at, 16, out, 17, ERR_AUTH_TAG_LEN),
    ];
    for (key, src, len, tag, tag_len, error) in cases {
        // SAFETY: as above.
        unsafe { f.ghash.unwrap()(key, src, len, tag, tag_len) };
        is(error);
    }
    assert!(room[16..].iter().all(|byte| *byte == 0));
}

#[cfg(not(abi_1))]
#[test]
fn wrong_arrays_of_samples_are_refused() {
    let _alone = alone();
    let manager = Manager::new();
    let (mgr, key) = (manager.0, memory());
    let mut out = [0u8; 16];
    let (good_dst, good_src) = ([out.as_mut_ptr().cast(); 2], [memory(); 2]);
    let (bad_dst, bad_src) = ([good_dst[0], ptr::null_mut()], [memory(), ptr::null()]);
    let (dst, src) = (good_dst.as_ptr(), good_src.as_ptr());
    let cases = [
        (ptr::null(), dst, src, 16, ERR_NULL_EXP_KEY),
        (key, ptr::null(), src, 16, ERR_NULL_DST),
        (key, dst, ptr::null(), 16, ERR_NULL_SRC),
        (key, bad_dst.as_ptr(), src, 16, ERR_NULL_DST),
        (key, dst, bad_src.as_ptr(), 16, ERR_NULL_SRC),
        (key, dst, src, 24, ERR_KEY_LEN),
    ];
    for (key, dst, src, key_len, error) in cases {
        // SAFETY: what is not null is there.
        unsafe { imb_quic_hp_aes_ecb(mgr, key, dst, src, 2, key_len) };
        assert_eq!(manager.errno(), error);
        if key_len == 16 {
            // SAFETY: as above.
            unsafe { imb_quic_hp_chacha20(mgr, key, dst, src, 2) };
            assert_eq!(manager.errno(), error);
        }
    }
    // SAFETY: null is no manager.
    unsafe { imb_quic_hp_aes_ecb(ptr::null_mut(), key, dst, src, 2, 16) };
    assert_eq!((last_error(), out), (ERR_NULL_MBMGR, [0; 16]));
}
