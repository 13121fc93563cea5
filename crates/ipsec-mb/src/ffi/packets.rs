//! Jobs of AES-GCM and ChaCha20-Poly1305: straight to bursts of operations.

use std::ffi::c_int;

use arrayvec::ArrayVec;
use convoy_crypto::{
    AeadKey, ChaChaSecret, GcmTables, KeyLender, LentKey, Nonce, OpenOp, SealOp,
    manager::{ChaChaSaved, GcmSaved},
    open_burst, seal_burst,
};
use zeroize::Zeroize;

use super::{
    gcm::{self, Part, number_of},
    one::{open, seal},
    raw::{copied, input, text},
    region::Region,
    sgl::{self, Parts},
    state::{CHUNK, Slot},
    task::{Task, finish},
};
use crate::types::*;

/// Works on those of at most [`CHUNK`] jobs that are of AEADs with keys of their own, and leaves the others in `others`, which is as
/// large as to be worth no move. Gives an error that was found only now.
///
/// # Safety
///
/// As for `work::run`.
pub(super) unsafe fn run(
    lender: &KeyLender,
    slots: &mut [Slot; CHUNK],
    tasks: &[Task],
    others: &mut ArrayVec<Task, CHUNK>,
) -> Option<c_int> {
    let mut error = None;
    let mut packets = ArrayVec::<&Task, CHUNK>::new();
    let mut copied = ArrayVec::<&Task, CHUNK>::new();
    for task in tasks {
        match task.suite.cipher {
            CIPHER_GCM | CIPHER_CHACHA20_POLY1305 => {
                // SAFETY: the caller's promise.
                let job = unsafe { &*task.job };
                let gcm = task.suite.cipher == CIPHER_GCM;
                if writes_aad(job) {
                    // SAFETY: as above.
                    error = unsafe { in_steps(lender, task, job) }.err().or(error);
                } else if gcm && job.iv_len != 12 {
                    // SAFETY: as above.
                    error = unsafe { alone(lender, task, job) }.err().or(error);
                } else if gcm && !gcm::are_in_place(key_of(task, job)) {
                    copied.push(task);
                } else {
                    packets.push(task);
                }
            }
            CIPHER_GCM_SGL | CIPHER_CHACHA20_POLY1305_SGL => {
                // SAFETY: the caller's promise.
                error = unsafe { sgl::run(lender, task) }.err().or(error);
            }
            _ => others.push(*task),
        }
    }
    if !packets.is_empty() {
        // SAFETY: the caller's promise.
        error = unsafe { burst(lender, slots, &packets, None) }.err().or(error);
    }
    // SAFETY: the caller's promise.
    let key = |task: &Task| (key_of(task, unsafe { &*task.job }), task.suite.bits());
    for group in copied.chunk_by(|one, next| key(one) == key(next)) {
        let Some(first) = group.first() else { continue };
        // SAFETY: the caller's promise.
        let work = |tables: &GcmTables| unsafe { burst(lender, slots, group, Some(tables)) };
        // SAFETY: as above.
        error = unsafe { gcm::with_tables(key(first).0, work) }.err().or(error);
    }
    error
}

/// Works on a job that comes alone, of [`CIPHER_GCM`] or [`CIPHER_CHACHA20_POLY1305`].
///
/// # Safety
///
/// As for [`run`].
pub(super) unsafe fn single(lender: &KeyLender, slot: &mut Slot, task: &Task) -> Result<(), c_int> {
    // SAFETY: the caller's promise.
    let job = unsafe { &*task.job };
    let gcm = task.suite.cipher == CIPHER_GCM;
    if writes_aad(job) {
        // SAFETY: as above.
        return unsafe { in_steps(lender, task, job) };
    }
    if gcm && job.iv_len != 12 {
        // SAFETY: as above.
        return unsafe { alone(lender, task, job) };
    }
    let Slot { secret, icv, .. } = slot;
    let done = if gcm {
        // SAFETY: as above.
        let work = |key: LentKey<'_>| unsafe { transform(&key, task, job, icv) };
        let bits = task.suite.bits().ok_or(ERR_JOB_KEY_LEN);
        // SAFETY: as above.
        bits.and_then(|bits| unsafe { gcm::with_key(lender, bits, key_of(task, job), work) })
    } else {
        // SAFETY: as above.
        let copy = unsafe { copied(job.enc_keys.cast(), ERR_JOB_NULL_KEY) };
        let done = copy.and_then(|bytes| {
            secret.set(&bytes);
            // SAFETY: as above.
            unsafe { transform(&lender.chacha20_poly1305(secret), task, job, icv) }
        });
        secret.wipe();
        done
    };
    let status = if done.is_ok() { STATUS_COMPLETED } else { STATUS_INVALID_ARGS };
    // SAFETY: as above.
    unsafe { finish(task, icv, status) };
    icv.zeroize();
    done
}

/// The operation of such a job.
///
/// # Safety
///
/// As for [`run`].
unsafe fn transform(
    key: &AeadKey,
    task: &Task,
    job: &Job,
    icv: &mut [u8; 16],
) -> Result<(), c_int> {
    // SAFETY: the caller's promise.
    let (nonce, aad, text) = unsafe { operands(job) }?;
    if task.suite.is_encrypt() {
        seal(key, nonce, aad, text, icv)
    } else {
        open(key, nonce, aad, text, icv)
    }
    .map_err(|_| ERR_JOB_CIPH_LEN)
}

/// The key data of a job of GCM.
fn key_of(task: &Task, job: &Job) -> *const GcmKey {
    if task.suite.is_encrypt() { job.enc_keys } else { job.dec_keys }
}

/// Additional data of a job of an AEAD.
///
/// # Safety
///
/// As for [`run`].
unsafe fn aad<'a>(job: &Job) -> Result<&'a [u8], c_int> {
    // SAFETY: the caller's promise.
    unsafe { input(job.pointer(0), job.u[1] as u64, ERR_JOB_NULL_AAD) }
}

/// True if a job's additional data lies where it writes, so that it must be hashed before.
fn writes_aad(job: &Job) -> bool {
    let aad = Region { start: job.pointer(0), len: job.u[1] };
    let text = Region { start: job.dst.cast_const(), len: job.cipher_len as usize };
    aad.overlaps(text)
}

/// A job whose additional data lies where it writes: as a message in parts.
///
/// # Safety
///
/// As for [`run`].
unsafe fn in_steps(lender: &KeyLender, task: &Task, job: &Job) -> Result<(), c_int> {
    let made = if task.suite.cipher == CIPHER_GCM {
        let bits = task.suite.bits().ok_or(ERR_JOB_KEY_LEN)?;
        let mut saved = GcmSaved::NONE;
        // SAFETY: the caller's promise.
        let work = |key: LentKey<'_>| unsafe { steps(&mut saved, &key, task, job) };
        // SAFETY: as above.
        unsafe { gcm::with_key(lender, bits, key_of(task, job), work) }
    } else {
        let mut secret = ChaChaSecret::EMPTY;
        // SAFETY: as above.
        secret.set(&unsafe { copied(job.enc_keys.cast(), ERR_JOB_NULL_KEY) }?);
        let key = lender.chacha20_poly1305(&secret);
        let mut saved = ChaChaSaved::NONE;
        // SAFETY: as above.
        unsafe { steps(&mut saved, &key, task, job) }
    };
    let status = if made.is_ok() { STATUS_COMPLETED } else { STATUS_INVALID_ARGS };
    // SAFETY: as above.
    unsafe { finish(task, &made.unwrap_or_default(), status) };
    made.map(|_| ())
}

/// Each step of such a message, and its tag.
///
/// # Safety
///
/// As for [`run`].
unsafe fn steps(
    message: &mut impl Parts,
    key: &AeadKey,
    task: &Task,
    job: &Job,
) -> Result<[u8; 16], c_int> {
    // SAFETY: the caller's promise. Both are read here alone, before the text is touched.
    let iv = unsafe { input(job.iv, job.iv_len, ERR_JOB_NULL_IV) }?;
    // SAFETY: as above.
    message.begin(key, iv, unsafe { aad(job) }?).map_err(number_of)?;
    let from = job.src.wrapping_add(job.cipher_offset as usize);
    // SAFETY: as above.
    let text = unsafe { text(from, job.dst, job.cipher_len as usize) };
    let done = message.update(key, task.suite.is_encrypt(), text);
    // The tag wipes the message.
    let tag = message.tag(key);
    done.and(tag).map_err(number_of)
}

/// A job of GCM with an IV of any length.
///
/// # Safety
///
/// As for [`run`].
unsafe fn alone(lender: &KeyLender, task: &Task, job: &Job) -> Result<(), c_int> {
    let from = job.src.wrapping_add(job.cipher_offset as usize);
    let bits = task.suite.bits().ok_or(ERR_JOB_KEY_LEN)?;
    let work = |key: LentKey<'_>| {
        // SAFETY: the caller's promise.
        let aad = unsafe { aad(job) }?;
        // SAFETY: as above. It may lie in the text, but is hashed before that is touched.
        let iv = unsafe { input(job.iv, job.iv_len, ERR_JOB_NULL_IV) }?;
        let seal = task.suite.is_encrypt();
        let part = Part { dst: job.dst, src: from, len: job.cipher_len };
        // SAFETY: as above.
        unsafe { gcm::message(&key, seal, &part, iv, aad) }
    };
    // SAFETY: as above.
    let made = unsafe { gcm::with_key(lender, bits, key_of(task, job), work) };
    let status = if made.is_ok() { STATUS_COMPLETED } else { STATUS_INVALID_ARGS };
    // SAFETY: as above.
    unsafe { finish(task, &made.unwrap_or_default(), status) };
    made.map(|_| ())
}

/// Works on jobs with IVs of 12 bytes: over the key data that each points to, or all over `tables`, a copy of that.
///
/// # Safety
///
/// As for [`run`].
unsafe fn burst(
    lender: &KeyLender,
    slots: &mut [Slot; CHUNK],
    tasks: &[&Task],
    tables: Option<&GcmTables>,
) -> Result<(), c_int> {
    for (task, Slot { secret, .. }) in tasks.iter().zip(&mut *slots) {
        // SAFETY: the caller's promise.
        let job = unsafe { &*task.job };
        if task.suite.cipher == CIPHER_CHACHA20_POLY1305 {
            // SAFETY: as above.
            secret.set(&unsafe { copied(job.enc_keys.cast(), ERR_JOB_NULL_KEY) }?);
        }
    }
    let mut statuses = [STATUS_COMPLETED; CHUNK];
    // SAFETY: the caller's promise.
    let done = unsafe { transform_all(lender, slots, tasks, tables, &mut statuses) };
    for ((task, Slot { icv, secret, .. }), status) in tasks.iter().zip(slots).zip(statuses) {
        // SAFETY: the caller's promise.
        unsafe { finish(task, icv, status) };
        icv.zeroize();
        if task.suite.cipher == CIPHER_CHACHA20_POLY1305 {
            secret.wipe();
        }
    }
    done
}

/// Makes keys and operations of such jobs, and runs those. Where none can be made, that is the job's status.
///
/// # Safety
///
/// As for [`run`].
unsafe fn transform_all(
    lender: &KeyLender,
    slots: &mut [Slot; CHUNK],
    tasks: &[&Task],
    tables: Option<&GcmTables>,
    statuses: &mut [u32; CHUNK],
) -> Result<(), c_int> {
    let mut keys = ArrayVec::<LentKey<'_>, CHUNK>::new();
    let mut places = ArrayVec::<usize, CHUNK>::new();
    let mut icvs = ArrayVec::<&mut [u8; 16], CHUNK>::new();
    let mut last = (std::ptr::null(), None);
    for (task, Slot { secret, icv, .. }) in tasks.iter().zip(&mut *slots) {
        icvs.push(icv);
        // SAFETY: the caller's promise.
        let job = unsafe { &*task.job };
        if task.suite.cipher == CIPHER_CHACHA20_POLY1305 {
            keys.push(lender.chacha20_poly1305(secret));
            last = (std::ptr::null(), None);
        } else {
            // Packets of one key come one after another, mostly.
            let this = (key_of(task, job), task.suite.bits());
            if let (false, Some(bits)) = (this == last, this.1) {
                // SAFETY: without a copy they are in place, and checked not to be null; any bytes are tables.
                let tables = tables.unwrap_or_else(|| unsafe { &*this.0.cast() });
                keys.push(lender.gcm(bits, tables));
                last = this;
            }
        }
        places.push(keys.len() - 1);
    }
    let mut error = Ok(());
    let mut seal = ArrayVec::<SealOp<'_>, CHUNK>::new();
    let mut open = ArrayVec::<OpenOp<'_>, CHUNK>::new();
    for (at, ((task, icv), key)) in tasks.iter().zip(icvs).zip(&places).enumerate() {
        // SAFETY: the caller's promise.
        let job = unsafe { &*task.job };
        let Some(key) = keys.get(*key) else { continue };
        // SAFETY: as above.
        if let Err(code) = unsafe { push(task, job, key, icv, &mut seal, &mut open) } {
            (statuses[at], error) = (STATUS_INVALID_ARGS, Err(code));
        }
    }
    if !seal.is_empty() {
        seal_burst(&mut seal);
    }
    if !open.is_empty() {
        open_burst(&mut open);
    }
    error
}

/// Makes an operation of a job.
///
/// # Safety
///
/// As for [`run`].
unsafe fn push<'a>(
    task: &Task,
    job: &Job,
    key: &'a AeadKey,
    icv: &'a mut [u8; 16],
    seal: &mut ArrayVec<SealOp<'a>, CHUNK>,
    open: &mut ArrayVec<OpenOp<'a>, CHUNK>,
) -> Result<(), c_int> {
    // SAFETY: the caller's promise.
    let (nonce, aad, text) = unsafe { operands(job) }?;
    if task.suite.is_encrypt() {
        // Whoever submits a job vouches for its nonce.
        let op = SealOp::with_aead_key(key, Nonce::new(nonce), aad, text, icv);
        seal.push(op.map_err(|_| ERR_JOB_CIPH_LEN)?);
    } else {
        let op = OpenOp::unverified(key, nonce, aad, text, icv);
        open.push(op.map_err(|_| ERR_JOB_CIPH_LEN)?);
    }
    Ok(())
}

/// The nonce, additional data and text of a job.
type Operands<'a> = ([u8; 12], &'a [u8], &'a mut [u8]);

/// Reads those of a job; the text is brought to where it is worked on.
///
/// # Safety
///
/// As for [`run`].
unsafe fn operands<'a>(job: &Job) -> Result<Operands<'a>, c_int> {
    // SAFETY: the caller's promise. The nonce may lie in the text, so it is copied before there is a reference to that.
    let nonce = unsafe { copied(job.iv, ERR_JOB_NULL_IV) }?;
    // SAFETY: as above.
    let aad = unsafe { aad(job) }?;
    let from = job.src.wrapping_add(job.cipher_offset as usize);
    // SAFETY: as above.
    Ok((nonce, aad, unsafe { text(from, job.dst, job.cipher_len as usize) }))
}
