//! Jobs of ciphers and hashes that kernels have no pass for: one after another, the cipher and the hash of each in turn.
//!
//! AES-ECB, AES-CFB, AES-CTR and AES-CMAC by bits, ChaCha20, Poly1305, GHASH, hashes without a key, and functions of the caller's.

use std::ffi::c_int;

use convoy_crypto::{
    GcmTables, KeyLender,
    manager::{AesEncryptKey, Buffer, Engine, Iv, Job as Inner, JobCipher, Runner, Span, Status},
};
use zeroize::Zeroizing;

use super::{
    gcm,
    raw::{copied, input, text},
    region::Region,
    state::Slot,
    task::{Task, cipher_input, finish, hash_input},
    views::{Keys, Parts, cipher_alone, gmac, hash_alone, round_keys, take_keys, wipe},
};
use crate::{
    check::{gmac_bits, plain_hash},
    types::*,
};

/// A job was not done.
enum Failure {
    /// Something in it is wrong.
    Invalid(c_int),
    /// A function of the caller's said so.
    Theirs,
}

impl From<c_int> for Failure {
    fn from(error: c_int) -> Self {
        Self::Invalid(error)
    }
}

/// Works on a job that was checked, and sets its status.
///
/// # Safety
///
/// As for `work::run`.
pub(super) unsafe fn run(
    runner: &mut Runner,
    lender: &KeyLender,
    slot: &mut Slot,
    task: &Task,
) -> Result<(), c_int> {
    // A copy, as functions of the caller's may write the job.
    // SAFETY: the caller's promise.
    let job = &unsafe { task.job.read() };
    // SAFETY: as above.
    let done = unsafe { both(runner, lender, slot, task, job) };
    let (status, error) = match done {
        Ok(()) => (STATUS_COMPLETED, Ok(())),
        Err(Failure::Invalid(error)) => (STATUS_INVALID_ARGS, Err(error)),
        Err(Failure::Theirs) => (STATUS_INTERNAL_ERROR, Ok(())),
    };
    // SAFETY: as above.
    unsafe { finish(task, &slot.tag, status) };
    wipe(slot);
    // Keys and tags were copied.
    runner.wipe_registers();
    error
}

/// The cipher and the hash, as the job orders them.
///
/// # Safety
///
/// As for [`run`].
unsafe fn both(
    runner: &mut Runner,
    lender: &KeyLender,
    slot: &mut Slot,
    task: &Task,
    job: &Job,
) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    unsafe { take_keys(slot, job, task.suite) }?;
    if job.chain_order == ORDER_HASH_CIPHER {
        // SAFETY: as above.
        unsafe { hash(runner, lender, slot, task, job) }?;
        // SAFETY: as above.
        return unsafe { cipher(runner, slot, task, job) };
    }
    // SAFETY: as above.
    unsafe { cipher(runner, slot, task, job) }?;
    // SAFETY: as above.
    unsafe { hash(runner, lender, slot, task, job) }
}

/// Calls a function of the caller's.
///
/// # Safety
///
/// The function takes the job.
unsafe fn call(function: Option<CustomFn>, task: &Task) -> Result<(), Failure> {
    // A job without one was refused.
    let function = function.ok_or(Failure::Theirs)?;
    // SAFETY: the caller's promise.
    if unsafe { function(task.job) } == 0 { Ok(()) } else { Err(Failure::Theirs) }
}

/// Does the cipher of a job.
///
/// # Safety
///
/// As for [`run`].
unsafe fn cipher(
    runner: &mut Runner,
    slot: &mut Slot,
    task: &Task,
    job: &Job,
) -> Result<(), Failure> {
    let (from, to, len) = (cipher_input(job), job.dst, job.cipher_len as usize);
    let seal = task.suite.is_encrypt();
    match task.suite.cipher {
        CIPHER_NULL => {}
        // SAFETY: the caller's promise.
        CIPHER_CUSTOM => unsafe { call(job.cipher_func, task) }?,
        CIPHER_ECB => {
            // SAFETY: as above.
            let (blocks, _) = unsafe { text(from, to, len) }.as_chunks_mut();
            let done = match seal {
                true => runner.encrypt_blocks(&slot.encrypt, blocks),
                false => runner.decrypt_blocks(&slot.decrypt, blocks),
            };
            done.map_err(|_| ERR_JOB_KEY_LEN)?;
        }
        CIPHER_CFB => {
            // SAFETY: as above. The IV may lie in the text, so it is copied before there is a reference to that.
            let iv = unsafe { copied(job.iv, ERR_JOB_NULL_IV) }?;
            // SAFETY: as above.
            cfb(*runner, &slot.encrypt, seal, iv, unsafe { text(from, to, len) })?;
        }
        CIPHER_CHACHA20 => {
            // SAFETY: as above.
            let key = Zeroizing::new(unsafe { copied(job.enc_keys.cast(), ERR_JOB_NULL_KEY) }?);
            // SAFETY: as above.
            let nonce = unsafe { copied(job.iv, ERR_JOB_NULL_IV) }?;
            // SAFETY: as above.
            let done = runner.chacha20(&key, &nonce, 1, unsafe { text(from, to, len) });
            done.map_err(|_| ERR_JOB_CIPH_LEN)?;
        }
        // SAFETY: as above.
        CIPHER_CNTR_BITLEN => unsafe { ctr_bits(runner, &slot.encrypt, job) }?,
        _ => {
            let parts = Parts::of(keys_of(slot), job, task.suite);
            // SAFETY: as above.
            let mut view = unsafe { cipher_alone(job, &parts, 0) };
            runner.run_one(&mut view);
            is_done(&view, ERR_JOB_CIPH_LEN)?;
        }
    }
    Ok(())
}

/// The keys that were taken for a job.
fn keys_of(slot: &Slot) -> Keys<'_> {
    let Slot { encrypt, decrypt, hmac, cmac, xcbc, .. } = slot;
    Keys { encrypt, decrypt, hmac, cmac, xcbc }
}

fn is_done(view: &Inner<'_>, error: c_int) -> Result<(), Failure> {
    if view.status() == Status::Completed { Ok(()) } else { Err(error.into()) }
}

/// AES-CTR over bits, of which the first are the high ones of a byte. What is behind them in the last byte of the output stays
/// as it is.
///
/// # Safety
///
/// As for [`run`].
unsafe fn ctr_bits(runner: &mut Runner, key: &AesEncryptKey, job: &Job) -> Result<(), Failure> {
    let len = job.cipher_len.div_ceil(8) as usize;
    // SAFETY: the caller's promise. It may lie in the text, so it is copied before there is a reference to that.
    let iv = Iv::new(unsafe { input(job.iv, job.iv_len, ERR_JOB_NULL_IV) }?);
    // SAFETY: as above; there is a bit at least.
    let before = unsafe { job.dst.wrapping_add(len - 1).read() };
    // SAFETY: as above.
    let text = unsafe { text(cipher_input(job), job.dst, len) };
    let mut view = Inner::default();
    view.buffer = Buffer::InPlace(text);
    (view.cipher, view.cipher_span, view.iv) = (JobCipher::Ctr(key), Span::new(0, len), iv);
    runner.run_one(&mut view);
    is_done(&view, ERR_JOB_CIPH_LEN)?;
    if let (Buffer::InPlace(text), used @ 1..) = (view.buffer, job.cipher_len % 8)
        && let Some(last) = text.last_mut()
    {
        let stays = 0xff >> used;
        *last = (*last & !stays) | (before & stays);
    }
    Ok(())
}

/// Blocks of CFB that are worked on together.
const BLOCKS: usize = 32;

/// AES-CFB with whole blocks of feedback (NIST SP 800-38A section 6.3, of 128 bits). Of the last block there may be less.
pub(super) fn cfb(
    mut runner: Runner,
    key: &AesEncryptKey,
    seal: bool,
    iv: [u8; 16],
    text: &mut [u8],
) -> Result<(), c_int> {
    let mut blocks = Zeroizing::new([[0u8; 16]; BLOCKS]);
    // What is encrypted next, and when sealing what it is added to before.
    let (mut next, mut chain) = (Zeroizing::new(iv), Zeroizing::new([0; 16]));
    for part in text.chunks_mut(16 * BLOCKS) {
        let Some(keystream) = blocks.get_mut(..part.len().div_ceil(16)) else { break };
        let (whole, _) = part.as_chunks();
        keystream
            .iter_mut()
            .zip(std::iter::once(&*next).chain(whole))
            .for_each(|(to, block)| *to = *block);
        if let Some(last) = whole.last() {
            *next = *last;
        }
        if seal {
            // A block of ciphertext is one of plaintext with keystream added: to encrypt one after the other is what CBC does.
            let mut job = Inner::default();
            let len = keystream.as_flattened().len();
            job.buffer = Buffer::InPlace(keystream.as_flattened_mut());
            (job.cipher, job.cipher_span) = (JobCipher::CbcEncrypt(key), Span::new(0, len));
            job.iv = Iv::new(&*chain);
            runner.run(std::slice::from_mut(&mut job));
            if job.status() != Status::Completed {
                return Err(ERR_JOB_KEY_LEN);
            }
        } else {
            runner.encrypt_blocks(key, keystream).map_err(|_| ERR_JOB_KEY_LEN)?;
        }
        if let Some(last) = keystream.last() {
            *chain = *last;
        }
        part.iter_mut().zip(keystream.as_flattened()).for_each(|(byte, key)| *byte ^= key);
    }
    runner.wipe_registers();
    Ok(())
}

/// Does the hash of a job, and leaves the tag in the slot.
///
/// # Safety
///
/// As for [`run`].
unsafe fn hash(
    runner: &mut Runner,
    lender: &KeyLender,
    slot: &mut Slot,
    task: &Task,
    job: &Job,
) -> Result<(), Failure> {
    let region = hash_input(job);
    let message = || {
        // SAFETY: the caller's promise.
        unsafe { input(region.start, region.len as u64, ERR_JOB_NULL_SRC) }
    };
    if let Some(alg) = plain_hash(task.suite.hash) {
        slot.tag = runner.digest(alg, message()?);
        return Ok(());
    }
    if let Some(bits) = gmac_bits(task.suite.hash) {
        // SAFETY: as above.
        fill(&mut slot.tag, &unsafe { gmac(lender, bits, job) }?);
        return Ok(());
    }
    match task.suite.hash {
        // SAFETY: as above.
        AUTH_CUSTOM => unsafe { call(job.hash_func, task) }?,
        AUTH_POLY1305 => {
            // SAFETY: as above.
            let key = Zeroizing::new(unsafe { copied(job.pointer(0), ERR_JOB_NULL_AUTH_KEY) }?);
            fill(&mut slot.tag, &runner.poly1305(&key, message()?));
        }
        AUTH_GHASH => {
            let mut hash = [0; 16];
            // SAFETY: as above.
            let first = unsafe { input(job.pointer(1), job.tag_len, ERR_JOB_NULL_GHASH_INIT_TAG) }?;
            fill(&mut hash, first);
            let message = message()?;
            let work = |tables: &GcmTables| {
                lender.ghash(tables, &mut hash, message);
                Ok(())
            };
            // SAFETY: as above.
            unsafe { gcm::with_tables(job.pointer::<GcmKey>(0), work) }?;
            fill(&mut slot.tag, &hash);
        }
        // SAFETY: as above.
        AUTH_AES_CMAC_BITLEN => unsafe { cmac_bits(runner, slot, task, job) }?,
        _ => {
            let Slot { encrypt, decrypt, hmac, cmac, xcbc, tag, .. } = slot;
            let keys = Keys { encrypt, decrypt, hmac, cmac, xcbc };
            let parts = Parts::of(keys, job, task.suite);
            if parts.has_hash() {
                // SAFETY: as above.
                let mut view = unsafe { hash_alone(region, &parts, 0, tag) };
                runner.run_one(&mut view);
                is_done(&view, ERR_JOB_AUTH_LEN)?;
            }
        }
    }
    Ok(())
}

/// Copies as much as there is, or as there is room for.
fn fill(to: &mut [u8], from: &[u8]) {
    to.iter_mut().zip(from).for_each(|(to, byte)| *to = *byte);
}

/// AES-CMAC over bits, of which the first are the high ones of a byte.
///
/// # Safety
///
/// As for [`run`].
unsafe fn cmac_bits(
    runner: &mut Runner,
    slot: &mut Slot,
    task: &Task,
    job: &Job,
) -> Result<(), Failure> {
    let start = hash_input(job).start;
    let (bytes, used) = ((job.hash_len / 8) as usize, job.hash_len % 8);
    // A part of a byte has the last block padded behind it, which is then a whole one but for the subkey: that of a padded
    // block stands in the place of both.
    let (whole, mut last) = if used == 0 { (bytes, [0; 16]) } else { (bytes / 16 * 16, [0; 16]) };
    if used != 0 {
        // SAFETY: the caller's promise: there is a byte for the last bits.
        let rest = unsafe { input(start, bytes as u64 + 1, ERR_JOB_NULL_SRC) }?;
        fill(&mut last, rest.get(whole..).unwrap_or_default());
        let byte = &mut last[bytes % 16];
        *byte = *byte & !(0xff >> used) | 0x80 >> used;
        // SAFETY: as above.
        let padded = unsafe { copied(job.pointer(2), ERR_JOB_NULL_KEY) }?;
        let padded = Zeroizing::<[u8; 16]>::new(padded);
        let bits = slot.cmac.bits().ok_or(ERR_JOB_KEY_LEN)?;
        // SAFETY: as above.
        let keys = unsafe { round_keys(job.pointer(0), bits) }?;
        slot.cmac.set_parts(bits, keys, &padded, &padded).map_err(|_| ERR_JOB_KEY_LEN)?;
    }
    let Slot { encrypt, decrypt, hmac, cmac, xcbc, tag, .. } = slot;
    let keys = Keys { encrypt, decrypt, hmac, cmac, xcbc };
    let parts = Parts::of(keys, job, task.suite);
    // SAFETY: as above.
    let mut view = unsafe { hash_alone(Region { start, len: whole }, &parts, 0, tag) };
    if used != 0 {
        view.trailer = &last;
    }
    runner.run_one(&mut view);
    is_done(&view, ERR_JOB_AUTH_LEN)
}
