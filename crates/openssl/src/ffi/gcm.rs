//! The functions of a cipher: what `EVP_CIPHER_CTX` and libssl call.

use std::{
    ffi::{c_int, c_void},
    ptr,
};

use convoy_crypto::KeyBits;

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
    gcm::{Gcm, IV_MAX, TAG},
};

macro_rules! gcm_table {
    ($name:ident, $bits:literal) => {
        pub(super) static $name: [Dispatch; 15] = dispatch![
            1: new_context::<$bits> as New<Gcm>,
            2: seal_init as Init<Gcm>,
            3: open_init as Init<Gcm>,
            4: update as Update<Gcm>,
            5: finish as Final<Gcm>,
            6: cipher as Update<Gcm>,
            7: free_context as Free<Gcm>,
            8: duplicate_context as Duplicate<Gcm>,
            9: get_params::<$bits> as Get,
            10: get_context_params as GetContext<Gcm>,
            11: set_context_params as SetContext<Gcm>,
            12: gettable_params as Describe,
            13: gettable_context_params as DescribeContext,
            14: settable_context_params as DescribeContext,
        ];
    };
}

gcm_table!(AES_128_GCM, 128);
gcm_table!(AES_192_GCM, 192);
gcm_table!(AES_256_GCM, 256);

impl Cipher for Gcm {
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
unsafe extern "C" fn new_context<const BITS: usize>(provider: *mut Provider) -> *mut Context<Gcm> {
    guard_pointer(|| {
        let bits = KeyBits::from_bits(BITS);
        bits.map_or(ptr::null_mut(), |bits| Context::boxed(Gcm::new(bits), provider))
    })
}

impl Aead for Gcm {
    fn expects_record(&self) -> bool {
        self.expects_record()
    }

    unsafe fn record(&mut self, to: *mut u8, from: *const u8, len: usize) -> Result<usize, Reason> {
        // Records are worked on where they are: their explicit nonce and tag are part of them.
        if from != to.cast_const() {
            let _ = self.record(&mut []);
            return Err(Reason::CipherOperationFailed);
        }
        // SAFETY: the caller's promise.
        unsafe { in_place(from, to, len, |record| self.record(record)) }
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
        failure
    }
}

/// `EVP_Cipher`: an update, or without input the end, and no error for what an update has one for. Users
/// such as OpenSSH tell success by its result, which is right only where a provider has this function.
///
/// # Safety
///
/// As for [`update`].
unsafe extern "C" fn cipher(
    context: *mut Context<Gcm>,
    out: *mut u8,
    out_len: *mut usize,
    room: usize,
    from: *const u8,
    len: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { tell(out_len, 0) };
    let work = |gcm: &mut Gcm| {
        if from.is_null() {
            if gcm.expects_record() || !gcm.finish() {
                return Err(Failure::Quiet);
            }
        } else {
            // SAFETY: the caller's promise.
            unsafe { part(gcm, out, room, from, len) }.map_err(Failure::without_operation)?;
        }
        // SAFETY: the caller's promise.
        unsafe { tell(out_len, len) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { with(context, work) }
}

/// # Safety
///
/// `context` as for [`with`]; `out_len` as for [`tell`].
unsafe extern "C" fn finish(
    context: *mut Context<Gcm>,
    _out: *mut u8,
    out_len: *mut usize,
    _room: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { tell(out_len, 0) };
    let work = |gcm: &mut Gcm| {
        if gcm.expects_record() {
            let _ = gcm.record(&mut []);
            return Err(Failure::Quiet);
        }
        if gcm.finish() { Ok(()) } else { Err(Failure::Quiet) }
    };
    // SAFETY: the caller's promise.
    unsafe { with(context, work) }
}

keys! {
    KEY_LEN = c"keylen";
    IV_LEN = c"ivlen";
    TAG_LEN = c"taglen";
    TLS_AAD_PAD = c"tlsaadpad";
    IV_GENERATED = c"iv-generated";
    IV = c"iv";
    UPDATED_IV = c"updated-iv";
    TAG_KEY = c"tag";
    TLS_IV_GENERATE = c"tlsivgen";
    TLS_AAD_KEY = c"tlsaad";
    TLS_IV_FIXED = c"tlsivfixed";
    TLS_IV_COUNTED = c"tlsivinv";
}

/// Fills in the parameters that are the same for every context of a cipher.
///
/// # Safety
///
/// `params` is a list of parameters to be filled.
unsafe extern "C" fn get_params<const BITS: usize>(params: *mut Param) -> c_int {
    let value = |key: &[u8]| match key {
        // `EVP_CIPH_GCM_MODE`.
        b"mode" => Some(6),
        b"keylen" => Some(BITS / 8),
        b"ivlen" => Some(12),
        b"blocksize" | b"aead" | b"custom-iv" => Some(1),
        b"cts" | b"tls-multi" | b"has-randkey" | b"encrypt-then-mac" => Some(0),
        _ => None,
    };
    // SAFETY: the caller's promise.
    unsafe { fill(params, value) }
}

static GETTABLE_OF_CONTEXT: [Param; 10] = [
    Param::size(c"keylen"),
    Param::size(c"ivlen"),
    Param::size(c"taglen"),
    Param::octets(c"iv"),
    Param::octets(c"updated-iv"),
    Param::octets(c"tag"),
    Param::size(c"tlsaadpad"),
    Param::octets(c"tlsivgen"),
    Param::unsigned(c"iv-generated"),
    Param::END,
];

extern "C" fn gettable_context_params(_: *mut c_void, _: *mut c_void) -> *const Param {
    GETTABLE_OF_CONTEXT.as_ptr()
}

static SETTABLE_OF_CONTEXT: [Param; 6] = [
    Param::size(c"ivlen"),
    Param::octets(c"tag"),
    Param::octets(c"tlsaad"),
    Param::octets(c"tlsivfixed"),
    Param::octets(c"tlsivinv"),
    Param::END,
];

extern "C" fn settable_context_params(_: *mut c_void, _: *mut c_void) -> *const Param {
    SETTABLE_OF_CONTEXT.as_ptr()
}

fn get(gcm: &mut Gcm, params: Params<'_>) -> Result<(), Failure> {
    for mut param in params {
        let done = match param.word() {
            KEY_LEN => param.put_number(gcm.key_len()),
            IV_LEN => param.put_number(gcm.iv_len()),
            TAG_LEN => param.put_number(gcm.tag_len()),
            TLS_AAD_PAD => param.put_number(gcm.tls_pad()),
            IV_GENERATED => param.put_number(gcm.iv_is_random().into()),
            IV | UPDATED_IV => get_iv(gcm, &mut param)?,
            // Asked for nowhere, it has the length that was asked for.
            TAG_KEY if !param.has_data() => {
                gcm.made_tag(TAG)?;
                param.put_size()
            }
            TAG_KEY => param.put_octets(gcm.made_tag(param.size())?),
            TLS_IV_GENERATE => {
                let is_right = param.is_octets() && param.has_data();
                let size = param.size();
                if !is_right || !gcm.generate_iv(size, |iv| param.put_octets_unsized(iv)) {
                    return Err(Failure::Quiet);
                }
                true
            }
            _ => true,
        };
        if !done {
            return Err(Reason::FailedToSetParameter.into());
        }
    }
    Ok(())
}

fn get_iv(gcm: &mut Gcm, param: &mut Given<'_>) -> Result<bool, Failure> {
    let len = gcm.iv().ok_or(Failure::Quiet)?.len();
    if param.has_data() && len > param.size() {
        return Err(Reason::InvalidIvLength.into());
    }
    let iv = gcm.iv_place().get(..len).ok_or(Failure::Quiet)?;
    Ok(param.put_octets(iv) || param.put_octet_pointer(iv))
}

/// Values of a list of parameters: the first of each name.
#[derive(Default)]
struct Settings<'a> {
    tag: Option<Given<'a>>,
    iv_len: Option<Given<'a>>,
    aad: Option<Given<'a>>,
    fixed: Option<Given<'a>>,
    counted: Option<Given<'a>>,
}

/// Sets what a list says. The order is OpenSSL's, whatever that of the list.
fn set(gcm: &mut Gcm, params: Params<'_>) -> Result<(), Failure> {
    let mut found = Settings::default();
    let mut any = false;
    for param in params {
        let place = match param.word() {
            TAG_KEY => &mut found.tag,
            IV_LEN => &mut found.iv_len,
            TLS_AAD_KEY => &mut found.aad,
            TLS_IV_FIXED => &mut found.fixed,
            TLS_IV_COUNTED => &mut found.counted,
            _ => continue,
        };
        any = true;
        place.get_or_insert(param);
    }
    if any { found.apply(gcm) } else { Ok(()) }
}

impl Settings<'_> {
    fn apply(&self, gcm: &mut Gcm) -> Result<(), Failure> {
        let unfit = Reason::FailedToGetParameter;
        if let Some(tag) = &self.tag {
            gcm.set_tag(tag.octets(TAG).ok_or(unfit)?)?;
        }
        if let Some(len) = &self.iv_len {
            gcm.set_iv_len(len.number().ok_or(unfit)?)?;
        }
        if let Some(aad) = &self.aad {
            if !aad.is_octets() {
                return Err(unfit.into());
            }
            gcm.set_tls_aad(aad.octets(IV_MAX).ok_or(Reason::InvalidAad)?)?;
        }
        if let Some(fixed) = &self.fixed {
            if fixed.size() == usize::MAX {
                gcm.restore_iv(fixed.octets_of(gcm.iv_len()).ok_or(unfit)?)?;
            } else {
                gcm.set_fixed(fixed.octets(IV_MAX).ok_or(unfit)?)?;
            }
        }
        if let Some(counted) = &self.counted {
            let part = counted.octets(IV_MAX).ok_or(Failure::Quiet)?;
            if !gcm.set_counted(part) {
                return Err(Failure::Quiet);
            }
        }
        Ok(())
    }
}
