//! Jobs over messages in parts: one job for each part, or one for a list of all.

use std::ffi::c_int;

use convoy_crypto::{
    AeadKey, ChaChaSecret, KeyLender, LentKey,
    manager::{ChaChaSaved, ChaChaStream, GcmSaved, GcmStream, StreamError},
};

use super::{
    gcm::{number_of, with_key},
    raw::{copied, input, text, with_object},
    task::{Task, finish},
};
use crate::{
    check::{CHACHA_MAX, GCM_MAX},
    types::*,
};

/// A message in parts of either kind, which is put down in the context of the caller's.
pub(super) trait Parts {
    fn begin(&mut self, key: &AeadKey, iv: &[u8], aad: &[u8]) -> Result<(), StreamError>;
    fn update(&mut self, key: &AeadKey, seal: bool, text: &mut [u8]) -> Result<(), StreamError>;
    fn tag(&mut self, key: &AeadKey) -> Result<[u8; 16], StreamError>;
}

impl Parts for GcmSaved {
    fn begin(&mut self, key: &AeadKey, iv: &[u8], aad: &[u8]) -> Result<(), StreamError> {
        let mut stream = GcmStream::seal(key, iv)?;
        stream.aad(aad)?;
        stream.save(self);
        Ok(())
    }

    fn update(&mut self, key: &AeadKey, seal: bool, text: &mut [u8]) -> Result<(), StreamError> {
        let mut stream = GcmStream::resume(key, seal, self)?;
        stream.update(text)?;
        stream.save(self);
        Ok(())
    }

    fn tag(&mut self, key: &AeadKey) -> Result<[u8; 16], StreamError> {
        let tag = GcmStream::resume(key, true, self)?.tag();
        self.wipe();
        tag
    }
}

impl Parts for ChaChaSaved {
    fn begin(&mut self, key: &AeadKey, iv: &[u8], aad: &[u8]) -> Result<(), StreamError> {
        let given = iv.len();
        let nonce = iv.first_chunk().ok_or(StreamError::IvLength { given })?;
        let mut stream = ChaChaStream::seal(key, nonce)?;
        stream.aad(aad)?;
        stream.save(self)
    }

    fn update(&mut self, key: &AeadKey, seal: bool, text: &mut [u8]) -> Result<(), StreamError> {
        let mut stream = ChaChaStream::resume(key, seal, self)?;
        stream.update(text)?;
        stream.save(self)
    }

    fn tag(&mut self, _: &AeadKey) -> Result<[u8; 16], StreamError> {
        let tag = Self::tag(self);
        self.wipe();
        tag
    }
}

/// Checks the list of a job over all parts of a message, which other jobs have not.
///
/// # Safety
///
/// If the job is one and not null, its list is as long as it says.
pub(super) unsafe fn check(job: &Job) -> Result<(), c_int> {
    let most = match job.cipher_mode {
        CIPHER_GCM_SGL => GCM_MAX,
        CIPHER_CHACHA20_POLY1305_SGL => CHACHA_MAX,
        _ => return Ok(()),
    };
    if job.sgl_state != SGL_ALL {
        return Ok(());
    }
    let mut left = most;
    for at in 0..job.dst.addr() {
        // SAFETY: the caller's promise.
        let part = unsafe { segment(job.src.cast(), at) };
        left = left.checked_sub(part.len).ok_or(ERR_JOB_CIPH_LEN)?;
        match part.len {
            0 => {}
            _ if part.src.is_null() => return Err(ERR_JOB_NULL_SRC),
            _ if part.dst.is_null() => return Err(ERR_JOB_NULL_DST),
            _ => {}
        }
    }
    Ok(())
}

/// A part of a message.
///
/// # Safety
///
/// The list has it.
unsafe fn segment(list: *const Segment, at: usize) -> Segment {
    // SAFETY: the caller's promise.
    unsafe { list.wrapping_add(at).read_unaligned() }
}

/// Works on a job that was checked, and sets its status.
///
/// # Safety
///
/// As for `work::run`.
pub(super) unsafe fn run(lender: &KeyLender, task: &Task) -> Result<(), c_int> {
    // SAFETY: the caller's promise.
    let job = unsafe { &*task.job };
    let seal = task.suite.is_encrypt();
    let done = if task.suite.cipher == CIPHER_GCM_SGL {
        let key = if seal { job.enc_keys } else { job.dec_keys };
        let work = |key: LentKey<'_>| {
            let context = job.pointer::<GcmContext>(2).cast_mut();
            // SAFETY: as above.
            let work = |context: &mut GcmContext| unsafe { parts(context, &key, seal, job) };
            // SAFETY: as above.
            unsafe { with_object(context, ERR_JOB_NULL_SGL_CTX, work) }
        };
        let bits = task.suite.bits().ok_or(ERR_JOB_KEY_LEN)?;
        // SAFETY: as above.
        unsafe { with_key(lender, bits, key, work) }
    } else {
        let mut secret = ChaChaSecret::EMPTY;
        // SAFETY: as above.
        secret.set(&unsafe { copied(job.enc_keys.cast(), ERR_JOB_NULL_KEY) }?);
        let context = job.pointer::<ChaChaContext>(2).cast_mut();
        let key = lender.chacha20_poly1305(&secret);
        let work = |context: &mut ChaChaContext| {
            // SAFETY: as above.
            unsafe { parts(&mut context.saved, &key, seal, job) }
        };
        // SAFETY: as above.
        unsafe { with_object(context, ERR_JOB_NULL_SGL_CTX, work) }
    };
    let status = if done.is_ok() { STATUS_COMPLETED } else { STATUS_INVALID_ARGS };
    if let Ok(Some(tag)) = done {
        // SAFETY: as above.
        unsafe { finish(task, &tag, status) };
    } else {
        // SAFETY: as above. There is no tag yet.
        unsafe { super::raw::set_status(task.job, status) };
    }
    done.map(|_| ())
}

/// Does what the job's state asks for; returns the tag, if that ends the message.
///
/// # Safety
///
/// As for [`run`].
unsafe fn parts(
    context: &mut impl Parts,
    key: &AeadKey,
    seal: bool,
    job: &Job,
) -> Result<Option<[u8; 16]>, c_int> {
    if [SGL_INIT, SGL_ALL].contains(&job.sgl_state) {
        // SAFETY: the caller's promise.
        let iv = unsafe { input(job.iv, job.iv_len, ERR_JOB_NULL_IV) }?;
        // SAFETY: as above.
        let aad = unsafe { input(job.pointer(0), job.u[1] as u64, ERR_JOB_NULL_AAD) }?;
        context.begin(key, iv, aad).map_err(number_of)?;
    }
    // As there: of GCM, jobs that begin or end a message have no text, and the offset does not count.
    let gcm = job.cipher_mode == CIPHER_GCM_SGL;
    let offset = if gcm { 0 } else { job.cipher_offset as usize };
    let (src, dst, len) = (job.src.wrapping_add(offset), job.dst, job.cipher_len);
    let one = Segment { src, dst, len };
    let (list, count) = match job.sgl_state {
        SGL_ALL => (job.src.cast::<Segment>(), job.dst.addr()),
        SGL_INIT | SGL_COMPLETE if gcm => (&raw const one, 0),
        _ => (&raw const one, 1),
    };
    for at in 0..count {
        // SAFETY: as above.
        let Segment { src, dst, len } = unsafe { segment(list, at) };
        if len == 0 {
            continue;
        }
        if src.is_null() || dst.is_null() || len > 1 << 38 {
            return Err(if src.is_null() { ERR_JOB_NULL_SRC } else { ERR_JOB_NULL_DST });
        }
        // SAFETY: as above.
        context.update(key, seal, unsafe { text(src, dst, len as usize) }).map_err(number_of)?;
    }
    if [SGL_COMPLETE, SGL_ALL].contains(&job.sgl_state) {
        return context.tag(key).map(Some).map_err(number_of);
    }
    Ok(None)
}
