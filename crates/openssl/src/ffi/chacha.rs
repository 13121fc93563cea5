//! The functions of ChaCha20-Poly1305.

use std::{
    ffi::{c_int, c_void},
    slice,
};

use super::{
    aead::{Aead, part, update},
    context::{
        Cipher, Context, Describe, DescribeContext, Duplicate, Final, Free, Get, GetContext, Init,
        New, SetContext, Update, duplicate_context, fill, free_context, get_context_params,
        gettable_params, in_place, open_init, seal_init, set_context_params, tell, with,
    },
    core::{Dispatch, Failure, dispatch, guard_pointer},
    loading::Provider,
    param::{Given, Param, Params, keys},
};
use crate::{
    Reason,
    chacha::{ChaCha, IV, KEY},
    gcm::TAG,
};

pub(super) static CHACHA20_POLY1305: [Dispatch; 15] = dispatch![
    1: new_context as New<ChaCha>,
    2: seal_init as Init<ChaCha>,
    3: open_init as Init<ChaCha>,
    4: update as Update<ChaCha>,
    5: finish as Final<ChaCha>,
    6: cipher as Update<ChaCha>,
    7: free_context as Free<ChaCha>,
    8: duplicate_context as Duplicate<ChaCha>,
    9: get_params as Get,
    10: get_context_params as GetContext<ChaCha>,
    11: set_context_params as SetContext<ChaCha>,
    12: gettable_params as Describe,
    13: gettable_context_params as DescribeContext,
    14: settable_context_params as DescribeContext,
];

impl Cipher for ChaCha {
    fn copy(&self) -> Result<Self, Reason> {
        self.try_clone()
    }

    fn start(&mut self, seals: bool, key: Option<&[u8]>, iv: Option<&[u8]>) -> Result<(), Reason> {
        self.init(seals, key, iv)
    }

    fn set(&mut self, params: Params<'_>) -> Result<(), Failure> {
        set(self, params)
    }

    fn get(&mut self, params: Params<'_>) -> Result<(), Failure> {
        get(self, params)
    }
}

/// # Safety
///
/// `provider` is what loading the provider gave.
unsafe extern "C" fn new_context(provider: *mut Provider) -> *mut Context<ChaCha> {
    guard_pointer(|| Context::boxed(ChaCha::new(), provider))
}

impl Aead for ChaCha {
    fn expects_record(&self) -> bool {
        self.record_len().is_some()
    }

    unsafe fn record(&mut self, to: *mut u8, from: *const u8, len: usize) -> Result<usize, Reason> {
        let text = self.record_len().ok_or(Reason::CipherOperationFailed)?;
        // SAFETY: the caller's promise.
        unsafe { record(self, to, from, len, text) }
    }

    fn take_aad(&mut self, more: &[u8]) -> Result<(), Reason> {
        self.aad(more)
    }

    fn make_ready(&mut self, more: usize) -> Result<(), Reason> {
        self.prepare(more)
    }

    fn take_text(&mut self, data: &mut [u8]) -> Result<(), Reason> {
        self.update(data)
    }

    fn failure_of_update(failure: Failure) -> Failure {
        failure.without_operation()
    }
}

/// A record of `text` bytes. Where it is opened, nothing is written behind its text.
///
/// # Safety
///
/// As for [`part`].
unsafe fn record(
    chacha: &mut ChaCha,
    to: *mut u8,
    from: *const u8,
    len: usize,
    text: usize,
) -> Result<usize, Reason> {
    if from.is_null() || to.is_null() || len != text + TAG {
        return Err(Reason::CipherOperationFailed);
    }
    if chacha.seals() {
        // SAFETY: the caller's promise.
        unsafe { in_place(from, to, len, |record| chacha.seal_record(record)) }?;
        return Ok(len);
    }
    // SAFETY: the caller's promise; it is copied before anything is written.
    let tag = *unsafe { slice::from_raw_parts(from.wrapping_add(text), TAG) }
        .first_chunk()
        .ok_or(Reason::CipherOperationFailed)?;
    // SAFETY: the caller's promise.
    unsafe { in_place(from, to, text, |text| chacha.open_record(text, &tag)) }?;
    Ok(text)
}

/// `EVP_Cipher`: an update, or without input the end.
///
/// # Safety
///
/// As for [`update`].
unsafe extern "C" fn cipher(
    context: *mut Context<ChaCha>,
    out: *mut u8,
    out_len: *mut usize,
    room: usize,
    from: *const u8,
    len: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { tell(out_len, 0) };
    let work = |chacha: &mut ChaCha| {
        if room < len {
            return Err(Reason::OutputBufferTooSmall.into());
        }
        if from.is_null() {
            return end(chacha);
        }
        // SAFETY: the caller's promise.
        let made = unsafe { part(chacha, out, room, from, len) };
        // SAFETY: the caller's promise.
        unsafe { tell(out_len, made.map_err(Failure::without_operation)?) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { with(context, work) }
}

/// Ends a message. A record that is expected is none.
fn end(chacha: &mut ChaCha) -> Result<(), Failure> {
    match chacha.record_len() {
        None if chacha.finish() => Ok(()),
        _ => Err(Failure::Quiet),
    }
}

/// # Safety
///
/// `context` as for [`with`]; `out_len` as for [`tell`].
unsafe extern "C" fn finish(
    context: *mut Context<ChaCha>,
    _out: *mut u8,
    out_len: *mut usize,
    _room: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { tell(out_len, 0) };
    // SAFETY: the caller's promise.
    unsafe { with(context, end) }
}

keys! {
    KEY_LEN = c"keylen";
    IV_LEN = c"ivlen";
    TAG_LEN = c"taglen";
    TLS_AAD_PAD = c"tlsaadpad";
    TAG_KEY = c"tag";
    TLS_AAD_KEY = c"tlsaad";
    TLS_IV_FIXED = c"tlsivfixed";
}

/// Fills in the parameters that are the same for every context.
///
/// # Safety
///
/// `params` is a list of parameters to be filled.
unsafe extern "C" fn get_params(params: *mut Param) -> c_int {
    let value = |key: &[u8]| match key {
        b"keylen" => Some(KEY),
        b"ivlen" => Some(IV),
        b"blocksize" | b"aead" | b"custom-iv" => Some(1),
        // The mode is `EVP_CIPH_STREAM_CIPHER`.
        b"mode" | b"cts" | b"tls-multi" | b"has-randkey" | b"encrypt-then-mac" => Some(0),
        _ => None,
    };
    // SAFETY: the caller's promise.
    unsafe { fill(params, value) }
}

static GETTABLE_OF_CONTEXT: [Param; 6] = [
    Param::size(c"keylen"),
    Param::size(c"ivlen"),
    Param::size(c"taglen"),
    Param::octets(c"tag"),
    Param::size(c"tlsaadpad"),
    Param::END,
];

extern "C" fn gettable_context_params(_: *mut c_void, _: *mut c_void) -> *const Param {
    GETTABLE_OF_CONTEXT.as_ptr()
}

static SETTABLE_OF_CONTEXT: [Param; 6] = [
    Param::size(c"keylen"),
    Param::size(c"ivlen"),
    Param::octets(c"tag"),
    Param::octets(c"tlsaad"),
    Param::octets(c"tlsivfixed"),
    Param::END,
];

extern "C" fn settable_context_params(_: *mut c_void, _: *mut c_void) -> *const Param {
    SETTABLE_OF_CONTEXT.as_ptr()
}

fn get(chacha: &ChaCha, params: Params<'_>) -> Result<(), Failure> {
    for mut param in params {
        let done = match param.word() {
            KEY_LEN => param.put_number(KEY),
            IV_LEN => param.put_number(IV),
            TAG_LEN => param.put_number(chacha.tag_len()),
            TLS_AAD_PAD => param.put_number(chacha.tls_pad()),
            TAG_KEY if param.is_octets() => {
                // How many bytes were written is not told, as OpenSSL does not tell it.
                let size = param.size();
                param.put_octets_unsized(chacha.made_tag(size)?);
                true
            }
            TAG_KEY => false,
            _ => true,
        };
        if !done {
            return Err(Reason::FailedToSetParameter.into());
        }
    }
    Ok(())
}

/// Values of a list of parameters: the first of each name.
#[derive(Default)]
struct Settings<'a> {
    key_len: Option<Given<'a>>,
    iv_len: Option<Given<'a>>,
    tag: Option<Given<'a>>,
    aad: Option<Given<'a>>,
    fixed: Option<Given<'a>>,
}

/// Sets what a list says. The order is OpenSSL's, whatever that of the list.
fn set(chacha: &mut ChaCha, params: Params<'_>) -> Result<(), Failure> {
    let mut found = Settings::default();
    let mut any = false;
    for param in params {
        let place = match param.word() {
            KEY_LEN => &mut found.key_len,
            IV_LEN => &mut found.iv_len,
            TAG_KEY => &mut found.tag,
            TLS_AAD_KEY => &mut found.aad,
            TLS_IV_FIXED => &mut found.fixed,
            _ => continue,
        };
        any = true;
        place.get_or_insert(param);
    }
    if any { found.apply(chacha) } else { Ok(()) }
}

impl Settings<'_> {
    fn apply(&self, chacha: &mut ChaCha) -> Result<(), Failure> {
        let unfit = Reason::FailedToGetParameter;
        if let Some(len) = &self.key_len
            && len.number().ok_or(unfit)? != KEY
        {
            return Err(Reason::InvalidKeyLength.into());
        }
        if let Some(len) = &self.iv_len
            && len.number().ok_or(unfit)? != IV
        {
            return Err(Reason::InvalidIvLength.into());
        }
        if let Some(tag) = &self.tag {
            if !tag.is_octets() {
                return Err(unfit.into());
            }
            chacha.set_tag(tag.octets(TAG), tag.size())?;
        }
        if let Some(aad) = &self.aad {
            if !aad.is_octets() {
                return Err(unfit.into());
            }
            chacha.set_tls_aad(aad.octets(isize::MAX as usize).ok_or(Reason::InvalidData)?)?;
        }
        if let Some(fixed) = &self.fixed {
            if !fixed.is_octets() {
                return Err(unfit.into());
            }
            chacha.set_fixed(fixed.octets(IV).ok_or(Reason::InvalidIvLength)?)?;
        }
        Ok(())
    }
}
