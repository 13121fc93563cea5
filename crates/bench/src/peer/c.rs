//! Convoy through its C library, by each of the ways that a C program has.
//!
//! The library is linked in, and called as C calls it: by the functions of its header, none of which can be inlined
//! here.

use std::ffi::c_int;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};

use convoy_capi::ffi;
use convoy_capi::types::{
    AeadKey, AesDecKey, AesEncKey, CONVOY_CIPHER_AEAD, CONVOY_CIPHER_CBC, CONVOY_CIPHER_CCM,
    CONVOY_CIPHER_CTR, CONVOY_CIPHER_NULL, CONVOY_DIRECTION_DECRYPT, CONVOY_DIRECTION_ENCRYPT,
    CONVOY_HASH_AES_CMAC, CONVOY_HASH_AES_XCBC, CONVOY_HASH_HMAC_MD5, CONVOY_HASH_HMAC_SHA1,
    CONVOY_HASH_HMAC_SHA224, CONVOY_HASH_HMAC_SHA256, CONVOY_HASH_HMAC_SHA384,
    CONVOY_HASH_HMAC_SHA512, CONVOY_ORDER_CIPHER_HASH, CONVOY_ORDER_HASH_CIPHER, CmacKey, HmacKey,
    Job, XcbcKey,
};
use convoy_crypto::{Cipher, HashAlg, KeyBits, MacAlg, Suite, Tier};

use super::tags;
use crate::api::CApi;
use crate::contender::Contender;
use crate::suite::{ESP_HEADER, Layout as _, aad_bytes};
use crate::workload::{Arena, Direction, Keys, Packet, Workload};

/// Convoy through one of the C library's interfaces, if the suite has it.
#[must_use]
pub fn contender(tier: Tier, api: CApi, work: &Workload) -> Option<Box<dyn Contender>> {
    let keys = work.keys.iter().map(|keys| Material::new(tier, work.suite, keys));
    let keys = keys.collect::<Option<Vec<_>>>()?;
    if api == CApi::Direct && !work.suite.is_aead() {
        return None;
    }
    let templates =
        [template(work.suite, Direction::Seal)?, template(work.suite, Direction::Open)?];
    Some(Box::new(Convoy {
        api,
        templates,
        manager: Manager::new(tier)?,
        keys,
        jobs: vec![Job::default(); work.packets.len()],
        tags: vec![[0; 64]; work.packets.len()],
    }))
}

struct Convoy {
    api: CApi,
    templates: [Job; 2],
    manager: Manager,
    keys: Vec<Material>,
    jobs: Vec<Job>,
    /// ICVs of opened packets, to be compared.
    tags: Vec<[u8; 64]>,
}

impl Contender for Convoy {
    fn who(&self) -> &'static str {
        CApi::WHO
    }

    fn api(&self) -> &str {
        self.api.name()
    }

    fn seal(&mut self, work: &Workload, arena: &mut Arena) {
        self.run(Direction::Seal, work, arena);
    }

    fn open(&mut self, work: &Workload, arena: &mut Arena) -> usize {
        let authentic = self.run(Direction::Open, work, arena);
        match self.api {
            CApi::Direct => authentic,
            _ => tags::authentic(work, arena, &self.tags),
        }
    }
}

impl Convoy {
    /// Returns how many direct calls found their packets authentic.
    fn run(&mut self, direction: Direction, work: &Workload, arena: &mut Arena) -> usize {
        let bytes = arena.bytes_mut().as_mut_ptr();
        match self.api {
            CApi::Job => self.jobs(direction, work, bytes, ffi::convoy_submit_job),
            CApi::JobNocheck => self.jobs(direction, work, bytes, ffi::convoy_submit_job_nocheck),
            CApi::Burst => self.burst(direction, work, bytes, ffi::convoy_submit_burst),
            CApi::BurstNocheck => {
                self.burst(direction, work, bytes, ffi::convoy_submit_burst_nocheck);
            }
            CApi::Direct => return self.direct(direction, work, bytes),
        }
        0
    }

    /// One job after the other through the manager's queue.
    fn jobs(
        &mut self,
        direction: Direction,
        work: &Workload,
        arena: *mut u8,
        submit: unsafe extern "C" fn(*mut ffi::Mgr) -> *mut Job,
    ) {
        let (next, submit) = (black_box(NEXT), black_box(submit));
        let (completed, flush) = (black_box(COMPLETED), black_box(FLUSH));
        let Self { manager: Manager(manager), templates, keys, tags, .. } = self;
        let (manager, fill) = (*manager, Fill::new(work.suite, direction));
        let template = &templates[direction as usize];
        for (packet, tag) in work.packets.iter().zip(tags) {
            // SAFETY: the manager is alive and used by this thread alone.
            let slot = unsafe { next(manager) };
            // SAFETY: what is lent is nobody else's until it is submitted.
            let job = unsafe { &mut *slot };
            fill.fill(job, template, &keys[packet.key], packet, arena, tag);
            // SAFETY: the job is filled; keys, packet, nonce and tag outlive the flush below.
            let mut done = unsafe { submit(manager) };
            while !done.is_null() {
                // SAFETY: as above; it looks at the queue only.
                done = unsafe { completed(manager) };
            }
        }
        // SAFETY: as above; it ends when the queue is empty.
        while !unsafe { flush(manager) }.is_null() {}
    }

    /// All jobs in one call.
    fn burst(
        &mut self,
        direction: Direction,
        work: &Workload,
        arena: *mut u8,
        submit: unsafe extern "C" fn(*mut ffi::Mgr, *mut Job, usize) -> i64,
    ) {
        let submit = black_box(submit);
        let Self { manager: Manager(manager), templates, keys, jobs, tags, .. } = self;
        let fill = Fill::new(work.suite, direction);
        let template = &templates[direction as usize];
        let places = jobs.iter_mut().zip(tags);
        for (packet, (job, tag)) in work.packets.iter().zip(places) {
            fill.fill(job, template, &keys[packet.key], packet, arena, tag);
        }
        // SAFETY: the jobs are filled, and done when the call returns.
        unsafe { submit(*manager, jobs.as_mut_ptr(), jobs.len()) };
    }

    /// A call for each packet. Returns how many succeeded.
    fn direct(&mut self, direction: Direction, work: &Workload, arena: *mut u8) -> usize {
        let suite = work.suite;
        let (header, aad_len, icv) = (suite.header_bytes(), aad_bytes(suite), suite.icv_bytes());
        let nonce_len = suite.nonce_bytes();
        let (seal, open) = (black_box(SEAL), black_box(OPEN));
        let (ccm_seal, ccm_open) = (black_box(CCM_SEAL), black_box(CCM_OPEN));
        let mut good = 0;
        for packet in &work.packets {
            let frame = arena.wrapping_add(packet.start);
            let text = frame.wrapping_add(header);
            let (tag, len) = (text.wrapping_add(packet.text), packet.text);
            let nonce = packet.nonce.as_ptr();
            let Material { aead, enc, .. } = &self.keys[packet.key];
            let enc: *const AesEncKey = &raw const **enc;
            let seals = direction == Direction::Seal;
            // All pointers are to where their names say, and nothing that is written overlaps anything else, but for
            // the text in place.
            let code = match suite {
                Suite::Ccm { .. } if seals => {
                    // SAFETY: see above.
                    unsafe {
                        ccm_seal(enc, nonce, nonce_len, frame, aad_len, text, text, len, tag, icv)
                    }
                }
                Suite::Ccm { .. } => {
                    // SAFETY: see above.
                    unsafe {
                        ccm_open(enc, nonce, nonce_len, frame, aad_len, text, text, len, tag, icv)
                    }
                }
                // SAFETY: see above.
                _ if seals => unsafe {
                    seal(aead.0, nonce, frame, aad_len, text, text, len, tag, icv)
                },
                // SAFETY: see above.
                _ => unsafe { open(aead.0, nonce, frame, aad_len, text, text, len, tag, icv) },
            };
            good += usize::from(code == 0);
        }
        good
    }
}

type GetJob = unsafe extern "C" fn(*mut ffi::Mgr) -> *mut Job;
const NEXT: GetJob = ffi::convoy_get_next_job;
const COMPLETED: GetJob = ffi::convoy_get_completed_job;
const FLUSH: GetJob = ffi::convoy_flush_job;

/// Signature of a direct call of an AEAD; `T` is the pointer to its tag.
type Direct<T> = unsafe extern "C" fn(
    *const AeadKey,
    *const u8,
    *const u8,
    usize,
    *const u8,
    *mut u8,
    usize,
    T,
    usize,
) -> c_int;
const SEAL: Direct<*mut u8> = ffi::convoy_aead_encrypt;
const OPEN: Direct<*const u8> = ffi::convoy_aead_decrypt;

/// The same of AES-CCM, whose nonces have a length.
type DirectCcm<T> = unsafe extern "C" fn(
    *const AesEncKey,
    *const u8,
    usize,
    *const u8,
    usize,
    *const u8,
    *mut u8,
    usize,
    T,
    usize,
) -> c_int;
const CCM_SEAL: DirectCcm<*mut u8> = ffi::convoy_ccm_encrypt;
const CCM_OPEN: DirectCcm<*const u8> = ffi::convoy_ccm_decrypt;

/// A manager that is freed at the end.
struct Manager(*mut ffi::Mgr);

impl Manager {
    fn new(tier: Tier) -> Option<Self> {
        let mut manager = null_mut();
        // SAFETY: the place is a local.
        let code = unsafe { ffi::convoy_mgr_new(number_of(tier), &raw mut manager) };
        (code == 0).then_some(Self(manager))
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        // SAFETY: made above, and freed once.
        unsafe { ffi::convoy_mgr_free(self.0) };
    }
}

/// CONVOY_TIER_*: they are numbered from 1.
fn number_of(tier: Tier) -> c_int {
    tier as c_int + 1
}

/// A key that is freed at the end; null if the suite has none.
struct Aead(*mut AeadKey);

impl Drop for Aead {
    fn drop(&mut self) {
        // SAFETY: made below, and freed once.
        unsafe { ffi::convoy_aead_key_free(self.0) };
    }
}

/// Everything expanded from the keys of one SA.
struct Material {
    aead: Aead,
    enc: Box<AesEncKey>,
    dec: Box<AesDecKey>,
    mac: Mac,
}

enum Mac {
    None,
    Hmac(Box<HmacKey>),
    Xcbc(Box<XcbcKey>),
    Cmac(Box<CmacKey>),
}

/// A key of the C library before it is set up.
fn blank<T>() -> Box<T> {
    // SAFETY: the library's keys are made of integers.
    Box::new(unsafe { MaybeUninit::<T>::zeroed().assume_init() })
}

impl Material {
    /// Expands the keys; none if the library lacks the suite.
    fn new(tier: Tier, suite: Suite, keys: &Keys) -> Option<Self> {
        let mut this = Self { aead: Aead(null_mut()), enc: blank(), dec: blank(), mac: Mac::None };
        let (key, len) = (keys.cipher.as_ptr(), keys.cipher.len());
        let (number, aead) = (number_of(tier), &raw mut this.aead.0);
        let code = match suite {
            // SAFETY: the key has as many bytes as are told, and the place is a local.
            Suite::Gcm(_) => unsafe { ffi::convoy_gcm_key_new(number, key, len, aead) },
            // SAFETY: as above.
            Suite::Gmac(_) => unsafe { ffi::convoy_gmac_key_new(number, key, len, aead) },
            Suite::ChaCha20Poly1305 => {
                // SAFETY: as above.
                unsafe { ffi::convoy_chacha20_poly1305_key_new(number, key, aead) }
            }
            Suite::Ccm { key_bits: bits, .. }
            | Suite::Pair { cipher: Cipher::AesCbc(bits) | Cipher::AesCtr(bits), .. } => {
                let expand = match bits {
                    KeyBits::Aes128 => ffi::convoy_aes_keyexp_128,
                    KeyBits::Aes192 => ffi::convoy_aes_keyexp_192,
                    KeyBits::Aes256 => ffi::convoy_aes_keyexp_256,
                };
                // SAFETY: the key has the length of the function's name.
                unsafe { expand(key, &raw mut *this.enc, &raw mut *this.dec) }
            }
            Suite::Pair { cipher: Cipher::Null, .. } => 0,
            Suite::Pair { cipher: Cipher::TripleDesCbc | Cipher::CamelliaCbc(_), .. } => {
                return None;
            }
        };
        if let Suite::Pair { integrity, .. } = suite {
            this.mac = mac(integrity.alg(), &keys.mac)?;
        }
        (code == 0).then_some(this)
    }
}

fn mac(alg: MacAlg, key: &[u8]) -> Option<Mac> {
    let (from, len) = (key.as_ptr(), key.len());
    let (code, mac) = match alg {
        MacAlg::Null => return None,
        MacAlg::Hmac(hash) => {
            let mut to = blank();
            let number = hmac_number(hash);
            // SAFETY: the key has so many bytes, and the place is a local.
            let code = unsafe { ffi::convoy_hmac_keyexp(number, from, len, &raw mut *to) };
            (code, Mac::Hmac(to))
        }
        MacAlg::AesXcbc => {
            let mut to = blank();
            // SAFETY: the key has 16 bytes, and the place is a local.
            (unsafe { ffi::convoy_xcbc_keyexp(from, &raw mut *to) }, Mac::Xcbc(to))
        }
        MacAlg::AesCmac(_) => {
            let mut to = blank();
            // SAFETY: the key has so many bytes, and the place is a local.
            (unsafe { ffi::convoy_cmac_keyexp(from, len, &raw mut *to) }, Mac::Cmac(to))
        }
    };
    (code == 0).then_some(mac)
}

const fn hmac_number(hash: HashAlg) -> u32 {
    match hash {
        HashAlg::Md5 => CONVOY_HASH_HMAC_MD5,
        HashAlg::Sha1 => CONVOY_HASH_HMAC_SHA1,
        HashAlg::Sha224 => CONVOY_HASH_HMAC_SHA224,
        HashAlg::Sha256 => CONVOY_HASH_HMAC_SHA256,
        HashAlg::Sha384 => CONVOY_HASH_HMAC_SHA384,
        HashAlg::Sha512 => CONVOY_HASH_HMAC_SHA512,
    }
}

/// Job with the fields that all jobs of one suite and direction share.
fn template(suite: Suite, direction: Direction) -> Option<Job> {
    let seals = direction == Direction::Seal;
    let (cipher_mode, hash_alg) = match suite {
        Suite::Gcm(_) | Suite::Gmac(_) | Suite::ChaCha20Poly1305 => (CONVOY_CIPHER_AEAD, 0),
        Suite::Ccm { .. } => (CONVOY_CIPHER_CCM, 0),
        Suite::Pair { cipher, integrity } => {
            let mode = match cipher {
                Cipher::Null => CONVOY_CIPHER_NULL,
                Cipher::AesCbc(_) => CONVOY_CIPHER_CBC,
                Cipher::AesCtr(_) => CONVOY_CIPHER_CTR,
                Cipher::TripleDesCbc | Cipher::CamelliaCbc(_) => return None,
            };
            let hash = match integrity.alg() {
                MacAlg::Null => return None,
                MacAlg::Hmac(hash) => hmac_number(hash),
                MacAlg::AesXcbc => CONVOY_HASH_AES_XCBC,
                MacAlg::AesCmac(_) => CONVOY_HASH_AES_CMAC,
            };
            (mode, hash)
        }
    };
    let iv_len = match suite {
        // The counter's first value goes with the nonce.
        Suite::Pair { cipher: Cipher::AesCtr(_), .. } => 16,
        _ => suite.nonce_bytes(),
    };
    Some(Job {
        cipher_offset: suite.header_bytes(),
        iv_len,
        aad_len: if suite.is_aead() { aad_bytes(suite) } else { 0 },
        tag_len: suite.icv_bytes(),
        cipher_mode,
        hash_alg,
        cipher_direction: if seals { CONVOY_DIRECTION_ENCRYPT } else { CONVOY_DIRECTION_DECRYPT },
        chain_order: if seals { CONVOY_ORDER_CIPHER_HASH } else { CONVOY_ORDER_HASH_CIPHER },
        ..Job::default()
    })
}

/// From packets to jobs.
#[derive(Clone, Copy)]
struct Fill {
    suite: Suite,
    direction: Direction,
    header: usize,
}

impl Fill {
    fn new(suite: Suite, direction: Direction) -> Self {
        Self { suite, direction, header: suite.header_bytes() }
    }

    /// Makes a job of a template and what is the packet's own.
    #[inline(always)]
    fn fill(
        self,
        job: &mut Job,
        template: &Job,
        key: &Material,
        packet: &Packet,
        arena: *mut u8,
        tag: &mut [u8; 64],
    ) {
        let frame = arena.wrapping_add(packet.start);
        *job = *template;
        (job.src, job.dst, job.cipher_len) = (frame, frame, packet.text);
        job.tag = match self.direction {
            Direction::Seal => frame.wrapping_add(self.header + packet.text),
            Direction::Open => tag.as_mut_ptr(),
        };
        job.iv = match self.suite {
            Suite::Pair { cipher: Cipher::AesCbc(_), .. } => frame.wrapping_add(ESP_HEADER),
            _ => packet.nonce.as_ptr(),
        };
        match self.suite {
            Suite::Gcm(_) | Suite::Gmac(_) | Suite::ChaCha20Poly1305 => {
                (job.aad, job.cipher_key.aead) = (frame, key.aead.0);
            }
            Suite::Ccm { .. } => (job.aad, job.cipher_key.enc) = (frame, &raw const *key.enc),
            Suite::Pair { cipher, .. } => {
                job.hash_len = self.header + packet.text;
                match (cipher, self.direction) {
                    (Cipher::AesCbc(_), Direction::Open) => {
                        job.cipher_key.dec = &raw const *key.dec
                    }
                    (Cipher::Null, _) => job.cipher_key.enc = null(),
                    _ => job.cipher_key.enc = &raw const *key.enc,
                }
                match &key.mac {
                    Mac::None => {}
                    Mac::Hmac(key) => job.hash_key.hmac = &raw const **key,
                    Mac::Xcbc(key) => job.hash_key.xcbc = &raw const **key,
                    Mac::Cmac(key) => job.hash_key.cmac = &raw const **key,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use convoy_crypto::Cpu;

    use super::*;
    use crate::contender::agree;
    use crate::convoy;
    use crate::mix::{Mix, Sizes};
    use crate::suite;

    #[test]
    fn every_way_through_c_computes_what_rust_does() {
        let cpu = Cpu::detect().unwrap();
        let mut ways = 0;
        for suite in suite::all() {
            for (sizes, keys) in [(Sizes::Fixed(64), 1), (Sizes::Mix(Mix::ImixPaper), 5)] {
                let work = Workload::new(suite, sizes, keys, 70);
                let rust = convoy::Convoy::new(&cpu, cpu.best(), &work).unwrap();
                let mut all: Vec<Box<dyn Contender>> = vec![Box::new(rust)];
                all.extend(
                    CApi::ALL.into_iter().filter_map(|api| contender(cpu.best(), api, &work)),
                );
                ways += all.len() - 1;
                agree(&work, &mut all).unwrap();
            }
        }
        // Ten AEADs by five ways, 56 pairs by four, two workloads each.
        assert_eq!(ways, 2 * (10 * 5 + 56 * 4));
    }
}
