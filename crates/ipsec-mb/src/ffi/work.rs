//! From jobs of C to the work of the kernels.
//!
//! A job's cipher reads at `src` plus its offset and writes at `dst`, without one; its hash reads at `src` plus an offset that may lead to another
//! buffer. So what each of them covers is told apart by addresses. Where they share bytes, they become one job of the manager in Rust, over
//! what both cover together; where they do not, two; and where text must be hashed before it is overwritten from elsewhere, or the hash is
//! GMAC, one follows the other at once.

use std::{ffi::c_int, ptr};

use arrayvec::ArrayVec;
use convoy_crypto::{
    HashAlg, KeyBits, KeyLender, LentKey,
    manager::{
        AesDecryptKey, AesEncryptKey, Buffer, ChainOrder, CmacKey, Direction, Engine, HmacKeys, Iv,
        Job as Inner, JobCipher, JobHash, Runner, Span, Status, XcbcKey, chaining_bytes,
        round_key_bytes,
    },
};
use zeroize::Zeroize;

use super::{
    apart, gcm,
    keys::subkey,
    packets,
    raw::{input, set_status, text},
    state::{CHUNK, Slot, State},
};
use crate::{
    check::{CCM_AAD_MAX, Suite, gmac_bits, hmac_hash},
    types::*,
};

/// A job that was checked, and what it asks for.
#[derive(Clone, Copy)]
pub(super) struct Task {
    pub(super) suite: Suite,
    pub(super) job: *mut Job,
}

/// The addresses of some memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    pub(super) start: *const u8,
    pub(super) len: usize,
}

impl Region {
    /// The memory that both cover, if they share a byte.
    fn united(self, other: Self) -> Option<Self> {
        let end = |region: Self| region.start.addr().saturating_add(region.len);
        let shared = self.start.addr().max(other.start.addr()) < end(self).min(end(other));
        let first = if self.start.addr() < other.start.addr() { self } else { other };
        let len = end(self).max(end(other)) - first.start.addr();
        shared.then_some(Self { start: first.start, len })
    }

    fn overlaps(self, other: Self) -> bool {
        self.united(other).is_some()
    }

    /// Place of a part of it within it.
    fn span_of(self, part: Self) -> Span {
        Span::new(part.start.addr() - self.start.addr(), part.len)
    }
}

/// Start of the bytes that the cipher reads.
pub(super) fn cipher_input(job: &Job) -> *const u8 {
    job.src.wrapping_add(job.cipher_offset as usize)
}

/// Bytes that the hash reads.
pub(super) fn hash_input(job: &Job) -> Region {
    Region { start: job.src.wrapping_add(job.hash_offset as usize), len: job.hash_len as usize }
}

/// Works on at most [`CHUNK`] jobs that were checked, and sets the status of each; gives an error that was found only now.
///
/// # Safety
///
/// The jobs are there, and what they point to is as large as their lengths and types say. Nobody else uses it, and no job writes what
/// another reads or writes.
pub(super) unsafe fn run(state: &mut State, tasks: &[Task]) -> Option<c_int> {
    let State { runner, lender, slots, .. } = state;
    if let ([task], [slot, ..]) = (tasks, &mut *slots)
        && matches!(task.suite.cipher, CIPHER_GCM | CIPHER_CHACHA20_POLY1305)
    {
        // SAFETY: the caller's promise.
        return unsafe { packets::single(lender, slot, task) }.err();
    }
    let mut others = ArrayVec::new();
    // SAFETY: the caller's promise.
    let mut error = unsafe { packets::run(lender, slots, tasks, &mut others) };
    if others.is_empty() {
        return error;
    }
    others.retain(|task| {
        let is_apart = task.suite.has_cipher_apart() || task.suite.has_hash_apart();
        if let (true, [slot, ..]) = (is_apart, &mut *slots) {
            // SAFETY: the caller's promise.
            error = unsafe { apart::run(runner, lender, slot, task) }.err().or(error);
        }
        !is_apart
    });
    if others.is_empty() {
        return error;
    }
    for (task, slot) in others.iter().zip(&mut *slots) {
        // SAFETY: the caller's promise.
        let job = unsafe { &*task.job };
        // SAFETY: as above.
        if let Err(code) = unsafe { take_keys(slot, job, task.suite) } {
            error = Some(code);
        }
    }
    // SAFETY: as above.
    unsafe { run_views(runner, lender, slots, &others) };
    slots.iter_mut().take(others.len()).for_each(wipe);
    error
}

/// Copies the keys of a job to where kernels can read them. Those that cannot be taken leave none, and the job is invalid.
///
/// # Safety
///
/// As for [`run`].
pub(super) unsafe fn take_keys(slot: &mut Slot, job: &Job, suite: Suite) -> Result<(), c_int> {
    let bits = suite.bits();
    match (suite.cipher, bits) {
        (CIPHER_CBC | CIPHER_ECB, Some(bits)) if !suite.is_encrypt() => {
            // SAFETY: the caller's promise.
            let keys = unsafe { round_keys(job.dec_keys.cast(), bits) }?;
            slot.decrypt.set_round_keys(bits, keys).map_err(|_| ERR_JOB_KEY_LEN)?;
        }
        (CIPHER_CFB, Some(bits)) if !suite.is_encrypt() => {
            // What decrypts is the cipher's encryption, by the round keys in the place of those for decryption.
            // SAFETY: the caller's promise.
            let keys = unsafe { round_keys(job.dec_keys.cast(), bits) }?;
            slot.encrypt.set_round_keys(bits, keys).map_err(|_| ERR_JOB_KEY_LEN)?;
        }
        (
            CIPHER_CBC | CIPHER_CNTR | CIPHER_CNTR_BITLEN | CIPHER_ECB | CIPHER_CFB | CIPHER_CCM,
            Some(bits),
        ) => {
            // SAFETY: the caller's promise.
            let keys = unsafe { round_keys(job.enc_keys.cast(), bits) }?;
            slot.encrypt.set_round_keys(bits, keys).map_err(|_| ERR_JOB_KEY_LEN)?;
        }
        _ => {}
    }
    if let Some(alg) = hmac_hash(suite.hash) {
        let bytes = chaining_bytes(alg) as u64;
        // SAFETY: the caller's promise.
        let inner = unsafe { input(job.pointer(0), bytes, ERR_JOB_NULL_HMAC_IPAD) }?;
        // SAFETY: as above.
        let outer = unsafe { input(job.pointer(1), bytes, ERR_JOB_NULL_HMAC_OPAD) }?;
        slot.hmac.set_chaining(alg, inner, outer).map_err(|_| ERR_JOB_KEY_LEN)?;
    }
    match suite.hash {
        AUTH_AES_XCBC => {
            // SAFETY: as above.
            let k1 = unsafe { round_keys(job.pointer(0), KeyBits::Aes128) }?;
            let (k2, k3) = (subkey(job.pointer(1))?, subkey(job.pointer(2))?);
            slot.xcbc.set_parts(k1, &k2, &k3).map_err(|_| ERR_JOB_KEY_LEN)
        }
        AUTH_AES_CMAC | AUTH_AES_CMAC_BITLEN | AUTH_AES_CMAC_256 => {
            let bits = match suite.hash {
                AUTH_AES_CMAC_256 => KeyBits::Aes256,
                _ => KeyBits::Aes128,
            };
            // SAFETY: as above.
            let keys = unsafe { round_keys(job.pointer(0), bits) }?;
            let (k1, k2) = (subkey(job.pointer(1))?, subkey(job.pointer(2))?);
            slot.cmac.set_parts(bits, keys, &k1, &k2).map_err(|_| ERR_JOB_KEY_LEN)
        }
        _ => Ok(()),
    }
}

/// Round keys where the caller holds them.
///
/// # Safety
///
/// If not null, `keys` points to the round keys of a key of that size.
pub(super) unsafe fn round_keys<'a>(keys: *const u8, bits: KeyBits) -> Result<&'a [u8], c_int> {
    // SAFETY: the caller's promise.
    unsafe { input(keys, round_key_bytes(bits) as u64, ERR_JOB_NULL_KEY) }
}

/// Wipes what was copied for a job.
pub(super) fn wipe(slot: &mut Slot) {
    // In place of each an empty one, which drops what was there: that wipes itself.
    if slot.encrypt.bits().is_some() {
        slot.encrypt = Default::default();
    }
    if slot.decrypt.bits().is_some() {
        slot.decrypt = Default::default();
    }
    if slot.hmac.alg().is_some() {
        slot.hmac = Default::default();
    }
    if slot.cmac.bits().is_some() {
        slot.cmac = Default::default();
    }
    if slot.xcbc.is_set() {
        slot.xcbc = Default::default();
    }
    slot.tag.zeroize();
}

/// A job's cipher and hash with their keys, and its order.
pub(super) struct Parts<'s> {
    cipher: JobCipher<'s>,
    hash: JobHash<'s>,
    /// Bytes of the whole tag.
    whole_tag: usize,
    order: ChainOrder,
}

impl<'s> Parts<'s> {
    pub(super) fn of(keys: Keys<'s>, job: &Job, suite: Suite) -> Self {
        let direction = if suite.is_encrypt() { Direction::Encrypt } else { Direction::Decrypt };
        let cipher = match suite.cipher {
            CIPHER_CBC if !suite.is_encrypt() => JobCipher::CbcDecrypt(keys.decrypt),
            CIPHER_CBC => JobCipher::CbcEncrypt(keys.encrypt),
            CIPHER_CNTR => JobCipher::Ctr(keys.encrypt),
            CIPHER_CCM => JobCipher::Ccm(keys.encrypt, direction),
            _ => JobCipher::Null,
        };
        let (hash, whole_tag) = match suite.hash {
            AUTH_AES_XCBC => (JobHash::Xcbc(keys.xcbc), 16),
            AUTH_AES_CMAC | AUTH_AES_CMAC_BITLEN | AUTH_AES_CMAC_256 => {
                (JobHash::Cmac(keys.cmac), 16)
            }
            hash => match hmac_hash(hash) {
                Some(alg) => (JobHash::Hmac(keys.hmac), HashAlg::digest_bytes(alg)),
                None => (JobHash::Null, 0),
            },
        };
        let order = match job.chain_order {
            ORDER_HASH_CIPHER => ChainOrder::HashThenCipher,
            _ => ChainOrder::CipherThenHash,
        };
        Self { cipher, hash, whole_tag, order }
    }

    pub(super) fn has_cipher(&self) -> bool {
        !matches!(self.cipher, JobCipher::Null)
    }

    pub(super) fn has_hash(&self) -> bool {
        !matches!(self.hash, JobHash::Null)
    }
}

/// The keys of a slot, apart from the tag.
#[derive(Clone, Copy)]
pub(super) struct Keys<'s> {
    pub(super) encrypt: &'s AesEncryptKey,
    pub(super) decrypt: &'s AesDecryptKey,
    pub(super) hmac: &'s HmacKeys,
    pub(super) cmac: &'s CmacKey,
    pub(super) xcbc: &'s XcbcKey,
}

/// Works on jobs whose keys were taken.
///
/// # Safety
///
/// As for [`run`].
unsafe fn run_views(
    runner: &mut Runner,
    lender: &KeyLender,
    slots: &mut [Slot; CHUNK],
    tasks: &[Task],
) {
    let mut statuses = [STATUS_COMPLETED; CHUNK];
    let mut views = ArrayVec::<Inner<'_>, { 2 * CHUNK }>::new();
    for (at, (task, slot)) in tasks.iter().zip(&mut *slots).enumerate() {
        let Slot { encrypt, decrypt, hmac, cmac, xcbc, tag, .. } = slot;
        let keys = Keys { encrypt, decrypt, hmac, cmac, xcbc };
        // SAFETY: the caller's promise.
        let job = unsafe { &*task.job };
        let parts = Parts::of(keys, job, task.suite);
        // SAFETY: as above.
        let done = unsafe { add(runner, lender, &mut views, at, job, task.suite, parts, tag) };
        if done.is_err() {
            statuses[at] = STATUS_INVALID_ARGS;
        }
    }
    runner.run(&mut views);
    for view in &views {
        if view.status() != Status::Completed
            && let Some(status) = statuses.get_mut(view.user_data)
        {
            *status = STATUS_INVALID_ARGS;
        }
    }
    drop(views);
    for ((task, slot), status) in tasks.iter().zip(slots).zip(statuses) {
        // SAFETY: the caller's promise.
        unsafe { finish(task, &slot.tag, status) };
    }
}

/// Hands a job's tag over, and sets its status.
///
/// # Safety
///
/// As for [`run`].
pub(super) unsafe fn finish(task: &Task, tag: &[u8], status: u32) {
    // SAFETY: the caller's promise.
    let Job { tag: to, tag_len, .. } = unsafe { &*task.job };
    let is_made = !matches!(task.suite.hash, AUTH_NULL | AUTH_CUSTOM);
    if status == STATUS_COMPLETED && is_made && !to.is_null() {
        let len = tag.len().min(*tag_len as usize);
        // SAFETY: as above. It may lie anywhere, but not in the copy.
        unsafe { ptr::copy_nonoverlapping(tag.as_ptr(), *to, len) };
    }
    // SAFETY: as above.
    unsafe { set_status(task.job, status) };
}

/// Adds what a job asks for to what is worked on together, or does it at once where that cannot be.
///
/// # Safety
///
/// As for [`run`].
#[allow(clippy::too_many_arguments)]
unsafe fn add<'s>(
    runner: &mut Runner,
    lender: &KeyLender,
    views: &mut ArrayVec<Inner<'s>, { 2 * CHUNK }>,
    at: usize,
    job: &Job,
    suite: Suite,
    parts: Parts<'s>,
    tag: &'s mut [u8; 64],
) -> Result<(), c_int> {
    if suite.cipher == CIPHER_CCM {
        let mut copy = [0; CCM_AAD_MAX];
        // SAFETY: the caller's promise.
        return match unsafe { ccm_aad(job, &mut copy) }? {
            Some(aad) => {
                // SAFETY: as above.
                views.push(unsafe { ccm(job, &parts, at, tag, aad) }?);
                Ok(())
            }
            None => {
                let aad = copy.get(..job.u[1]).ok_or(ERR_JOB_AAD_LEN)?;
                // SAFETY: as above.
                let mut view = unsafe { ccm(job, &parts, at, tag, aad) }?;
                runner.run_one(&mut view);
                let is_done = view.status() == Status::Completed;
                if is_done { Ok(()) } else { Err(ERR_JOB_CIPH_LEN) }
            }
        };
    }
    if let Some(bits) = gmac_bits(suite.hash) {
        // SAFETY: as above.
        return unsafe { with_gmac(runner, lender, bits, job, &parts, tag) };
    }
    let (from, hashed) = (cipher_input(job), hash_input(job));
    let (to, len) = (job.dst, job.cipher_len as usize);
    let ciphered = Region { start: to.cast_const(), len };
    let early = parts.order == ChainOrder::HashThenCipher;
    match (parts.has_cipher(), parts.has_hash()) {
        (false, false) => {}
        (true, false) => {
            // SAFETY: the caller's promise.
            views.push(unsafe { cipher_alone(job, &parts, at) });
        }
        (false, true) => {
            // SAFETY: as above.
            views.push(unsafe { hash_alone(hashed, &parts, at, tag) });
        }
        (true, true) if !ciphered.overlaps(hashed) => {
            // SAFETY: as above. Neither writes what the other reads.
            views.push(unsafe { hash_alone(hashed, &parts, at, tag) });
            // SAFETY: as above.
            views.push(unsafe { cipher_alone(job, &parts, at) });
        }
        (true, true) if early && from != to.cast_const() => {
            // What is hashed is overwritten by text from elsewhere.
            // SAFETY: as above.
            let mut first = unsafe { hash_alone(hashed, &parts, at, tag) };
            runner.run_one(&mut first);
            // SAFETY: as above.
            views.push(unsafe { cipher_alone(job, &parts, at) });
        }
        (true, true) => {
            let Some(both) = ciphered.united(hashed) else { return Ok(()) };
            // SAFETY: the caller's promise. The IV may lie in the text, so it is copied before there is a reference to that.
            let iv = Iv::new(unsafe { input(job.iv, job.iv_len, ERR_JOB_NULL_IV) }?);
            // SAFETY: as above.
            unsafe { text(from, to, len) };
            let start = to.wrapping_sub(ciphered.start.addr() - both.start.addr());
            // SAFETY: as above: each byte of it is of the cipher's or of the hash's.
            let buffer = unsafe { text(start, start, both.len) };
            let mut view = Inner::default();
            view.buffer = Buffer::InPlace(buffer);
            (view.cipher, view.cipher_span) = (parts.cipher, both.span_of(ciphered));
            (view.hash, view.hash_span) = (parts.hash, both.span_of(hashed));
            (view.order, view.iv, view.user_data) = (parts.order, iv, at);
            view.tag = &mut tag[..parts.whole_tag];
            views.push(view);
        }
    }
    Ok(())
}

/// The cipher of a job by itself.
///
/// # Safety
///
/// As for [`run`].
pub(super) unsafe fn cipher_alone<'s>(job: &Job, parts: &Parts<'s>, at: usize) -> Inner<'s> {
    let len = job.cipher_len as usize;
    // SAFETY: the caller's promise. The IV may lie in the text, so it is copied before there is a reference to that.
    let iv = Iv::new(unsafe { input(job.iv, job.iv_len, ERR_JOB_NULL_IV) }.unwrap_or_default());
    let mut view = Inner::default();
    // SAFETY: as above.
    view.buffer = Buffer::InPlace(unsafe { text(cipher_input(job), job.dst, len) });
    (view.cipher, view.cipher_span) = (parts.cipher, Span::new(0, len));
    (view.iv, view.user_data) = (iv, at);
    view
}

/// The hash of a job by itself.
///
/// # Safety
///
/// As for [`run`].
pub(super) unsafe fn hash_alone<'s>(
    hashed: Region,
    parts: &Parts<'s>,
    at: usize,
    tag: &'s mut [u8; 64],
) -> Inner<'s> {
    // SAFETY: the caller's promise.
    let message = unsafe { input(hashed.start, hashed.len as u64, ERR_JOB_NULL_SRC) };
    let mut view = Inner::default();
    view.buffer = Buffer::ReadOnly(message.unwrap_or_default());
    view.cipher = JobCipher::Null;
    (view.hash, view.hash_span) = (parts.hash, Span::new(0, hashed.len));
    (view.tag, view.user_data) = (&mut tag[..parts.whole_tag], at);
    view
}

/// Additional data of a job of CCM; none if that lies where it writes: then it was copied.
///
/// # Safety
///
/// As for [`run`].
unsafe fn ccm_aad<'a>(job: &Job, copy: &mut [u8; CCM_AAD_MAX]) -> Result<Option<&'a [u8]>, c_int> {
    let len = job.u[1];
    // SAFETY: the caller's promise.
    let aad = unsafe { input(job.pointer(0), len as u64, ERR_JOB_NULL_AAD) }?;
    let text = Region { start: job.dst.cast_const(), len: job.cipher_len as usize };
    if !text.overlaps(Region { start: aad.as_ptr(), len }) {
        return Ok(Some(aad));
    }
    copy.iter_mut().zip(aad).for_each(|(to, byte)| *to = *byte);
    Ok(None)
}

/// A job of CCM.
///
/// # Safety
///
/// As for [`run`].
unsafe fn ccm<'s>(
    job: &Job,
    parts: &Parts<'s>,
    at: usize,
    tag: &'s mut [u8; 64],
    aad: &'s [u8],
) -> Result<Inner<'s>, c_int> {
    // SAFETY: the caller's promise.
    let mut view = unsafe { cipher_alone(job, parts, at) };
    view.aad = aad;
    view.tag = tag.get_mut(..job.tag_len as usize).ok_or(ERR_JOB_AUTH_TAG_LEN)?;
    Ok(view)
}

/// A job with GMAC beside its cipher, done at once.
///
/// # Safety
///
/// As for [`run`].
unsafe fn with_gmac(
    runner: &mut Runner,
    lender: &KeyLender,
    bits: KeyBits,
    job: &Job,
    parts: &Parts<'_>,
    tag: &mut [u8; 64],
) -> Result<(), c_int> {
    let mut is_valid = true;
    let mut cipher = || {
        if parts.has_cipher() {
            // SAFETY: the caller's promise.
            let mut view = unsafe { cipher_alone(job, parts, 0) };
            runner.run_one(&mut view);
            is_valid = view.status() == Status::Completed;
        }
    };
    let early = parts.order == ChainOrder::HashThenCipher;
    if !early {
        cipher();
    }
    // SAFETY: as above.
    let made = unsafe { gmac(lender, bits, job) }?;
    tag.iter_mut().zip(made).for_each(|(to, byte)| *to = byte);
    if early {
        cipher();
    }
    if is_valid { Ok(()) } else { Err(ERR_JOB_CIPH_LEN) }
}

/// The tag of a job's GMAC.
///
/// # Safety
///
/// As for [`run`].
pub(super) unsafe fn gmac(lender: &KeyLender, bits: KeyBits, job: &Job) -> Result<[u8; 16], c_int> {
    let Region { start, len } = hash_input(job);
    // SAFETY: the caller's promise.
    let message = unsafe { input(start, len as u64, ERR_JOB_NULL_SRC) }?;
    // SAFETY: as above.
    let iv = unsafe { input(job.pointer(1), job.u[2] as u64, ERR_JOB_NULL_IV) }?;
    let key = job.pointer::<GcmKey>(0);
    let none = (ptr::null(), ptr::null_mut(), 0);
    // SAFETY: as above; there is no text.
    let work = |key: LentKey<'_>| unsafe { gcm::job(&key, true, none, iv, message) };
    // SAFETY: as above.
    unsafe { gcm::with_key(lender, bits, key, work) }
}
