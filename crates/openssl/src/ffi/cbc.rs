//! The functions of the composites of AES-CBC and HMAC.

use std::{
    ffi::{c_int, c_void},
    ptr,
};

use convoy_crypto::{
    KeyBits,
    tls::{HEADER, RecordMac},
};

use super::{
    context::{
        Cipher, Context, Describe, DescribeContext, Duplicate, Final, Free, Get, GetContext, Init,
        New, SetContext, Update, duplicate_context, fill, free_context, get_context_params,
        gettable_params, in_place, open_init, seal_init, set_context_params, tell, with,
    },
    core::{Dispatch, Failure, dispatch, guard_pointer},
    loading::Provider,
    param::{Given, Param, Params},
};
use crate::{
    Reason,
    cbc::{CbcHmac, IV},
};

macro_rules! cbc_table {
    ($name:ident, $bits:literal, $digest:literal) => {
        pub(super) static $name: [Dispatch; 15] = dispatch![
            1: new_context::<$bits, $digest> as New<CbcHmac>,
            2: seal_init as Init<CbcHmac>,
            3: open_init as Init<CbcHmac>,
            4: update as Update<CbcHmac>,
            5: finish as Final<CbcHmac>,
            6: cipher as Update<CbcHmac>,
            7: free_context as Free<CbcHmac>,
            8: duplicate_context as Duplicate<CbcHmac>,
            9: get_params::<$bits> as Get,
            10: get_context_params as GetContext<CbcHmac>,
            11: set_context_params as SetContext<CbcHmac>,
            12: gettable_params as Describe,
            13: gettable_context_params as DescribeContext,
            14: settable_context_params as DescribeContext,
        ];
    };
}

cbc_table!(AES_128_CBC_HMAC_SHA1, 128, 160);
cbc_table!(AES_256_CBC_HMAC_SHA1, 256, 160);
cbc_table!(AES_128_CBC_HMAC_SHA256, 128, 256);
cbc_table!(AES_256_CBC_HMAC_SHA256, 256, 256);

impl Cipher for CbcHmac {
    fn copy(&self) -> Result<Self, Reason> {
        Ok(self.clone())
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
unsafe extern "C" fn new_context<const BITS: usize, const DIGEST: usize>(
    provider: *mut Provider,
) -> *mut Context<CbcHmac> {
    guard_pointer(|| {
        let mac = if DIGEST == 160 { RecordMac::HmacSha1 } else { RecordMac::HmacSha256 };
        let cbc = KeyBits::from_bits(BITS).and_then(|bits| CbcHmac::new(bits, mac).ok());
        cbc.map_or(ptr::null_mut(), |cbc| Context::boxed(cbc, provider))
    })
}

/// # Safety
///
/// `context` as for [`with`]; `from` points to `len` bytes, `out` to `room` bytes; `out_len` as for
/// [`tell`].
unsafe extern "C" fn update(
    context: *mut Context<CbcHmac>,
    out: *mut u8,
    out_len: *mut usize,
    room: usize,
    from: *const u8,
    len: usize,
) -> c_int {
    let work = |cbc: &mut CbcHmac| {
        cbc.needs_key()?;
        let mut made = 0;
        if len > 0 {
            if room < len {
                return Err(Reason::OutputBufferTooSmall.into());
            }
            // SAFETY: the caller's promise.
            made = unsafe { in_place(from, out, len, |data| cbc.update(data)) }?;
        }
        // SAFETY: the caller's promise.
        unsafe { tell(out_len, made) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { with(context, work) }
}

/// `EVP_Cipher`: the same, but what comes out is told to be as long as what came in.
///
/// # Safety
///
/// As for [`update`].
unsafe extern "C" fn cipher(
    context: *mut Context<CbcHmac>,
    out: *mut u8,
    out_len: *mut usize,
    room: usize,
    from: *const u8,
    len: usize,
) -> c_int {
    let work = |cbc: &mut CbcHmac| {
        cbc.needs_key()?;
        if room < len {
            return Err(Reason::OutputBufferTooSmall.into());
        }
        if len == 0 {
            cbc.update(&mut [])?;
        } else {
            // SAFETY: the caller's promise.
            unsafe { in_place(from, out, len, |data| cbc.update(data)) }?;
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
    context: *mut Context<CbcHmac>,
    _out: *mut u8,
    out_len: *mut usize,
    _room: usize,
) -> c_int {
    let work = |cbc: &mut CbcHmac| {
        cbc.needs_key()?;
        // SAFETY: the caller's promise.
        unsafe { tell(out_len, 0) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { with(context, work) }
}

/// Fills in the parameters that are the same for every context of a cipher.
///
/// # Safety
///
/// `params` is a list of parameters to be filled.
unsafe extern "C" fn get_params<const BITS: usize>(params: *mut Param) -> c_int {
    let value = |key: &[u8]| match key {
        // `EVP_CIPH_CBC_MODE`.
        b"mode" => Some(2),
        b"keylen" => Some(BITS / 8),
        b"ivlen" | b"blocksize" => Some(IV),
        b"aead" | b"tls-multi" => Some(1),
        b"custom-iv" | b"cts" | b"has-randkey" | b"encrypt-then-mac" => Some(0),
        _ => None,
    };
    // SAFETY: the caller's promise.
    unsafe { fill(params, value) }
}

static GETTABLE_OF_CONTEXT: [Param; 10] = [
    Param::size(c"tls1multi_maxbufsz"),
    Param::unsigned(c"tls1multi_interleave"),
    Param::unsigned(c"tls1multi_aadpacklen"),
    Param::size(c"tls1multi_enclen"),
    Param::size(c"tlsaadpad"),
    Param::size(c"keylen"),
    Param::size(c"ivlen"),
    Param::octets(c"iv"),
    Param::octets(c"updated-iv"),
    Param::END,
];

extern "C" fn gettable_context_params(_: *mut c_void, _: *mut c_void) -> *const Param {
    GETTABLE_OF_CONTEXT.as_ptr()
}

static SETTABLE_OF_CONTEXT: [Param; 10] = [
    Param::octets(c"mackey"),
    Param::octets(c"tlsaad"),
    Param::size(c"tls1multi_maxsndfrag"),
    Param::octets(c"tls1multi_aad"),
    Param::unsigned(c"tls1multi_interleave"),
    Param::octets(c"tls1multi_enc"),
    Param::octets(c"tls1multi_encin"),
    Param::size(c"keylen"),
    Param::unsigned(c"tls-version"),
    Param::END,
];

extern "C" fn settable_context_params(_: *mut c_void, _: *mut c_void) -> *const Param {
    SETTABLE_OF_CONTEXT.as_ptr()
}

fn get(cbc: &CbcHmac, params: Params<'_>) -> Result<(), Failure> {
    for mut param in params {
        let done = match param.key() {
            b"tlsaadpad" => param.put_number(cbc.tls_pad()),
            b"tls1multi_aadpacklen" => param.put_number(cbc.multi_packed()),
            b"tls1multi_interleave" => param.put_number(cbc.multi_records()),
            b"tls1multi_enclen" => param.put_number(cbc.multi_made()),
            b"tls1multi_maxbufsz" => param.put_number(cbc.max_record()),
            b"keylen" => param.put_number(cbc.key_len()),
            b"ivlen" => param.put_number(IV),
            b"iv" => param.put_octets(cbc.first_iv()) || param.put_octet_pointer(cbc.first_iv()),
            b"updated-iv" => param.put_octets(cbc.iv()) || param.put_octet_pointer(cbc.iv()),
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
    mac_key: Option<Given<'a>>,
    max_fragment: Option<Given<'a>>,
    multi_aad: Option<Given<'a>>,
    multi_out: Option<Given<'a>>,
    multi_text: Option<Given<'a>>,
    multi_records: Option<Given<'a>>,
    aad: Option<Given<'a>>,
    key_len: Option<Given<'a>>,
    version: Option<Given<'a>>,
}

/// Sets what a list says. The order is OpenSSL's, whatever that of the list.
fn set(cbc: &mut CbcHmac, params: Params<'_>) -> Result<(), Failure> {
    let mut found = Settings::default();
    let mut any = false;
    for param in params {
        let place = match param.key() {
            b"tlsaad" => &mut found.aad,
            b"mackey" => &mut found.mac_key,
            b"tls1multi_maxsndfrag" => &mut found.max_fragment,
            b"tls1multi_aad" => &mut found.multi_aad,
            b"tls1multi_enc" => &mut found.multi_out,
            b"tls1multi_encin" => &mut found.multi_text,
            b"tls1multi_interleave" => &mut found.multi_records,
            b"keylen" => &mut found.key_len,
            b"tls-version" => &mut found.version,
            _ => continue,
        };
        any = true;
        place.get_or_insert(param);
    }
    if any { found.apply(cbc) } else { Ok(()) }
}

const UNFIT: Reason = Reason::FailedToGetParameter;

impl Settings<'_> {
    fn apply(&mut self, cbc: &mut CbcHmac) -> Result<(), Failure> {
        if let Some(key) = &self.mac_key {
            cbc.set_mac_key(octets(key)?);
        }
        if let Some(bytes) = &self.max_fragment {
            cbc.set_max_fragment(bytes.number().ok_or(UNFIT)?);
        }
        if self.multi_aad.is_some() || self.multi_out.is_some() {
            self.apply_multi(cbc)?;
        }
        if let Some(aad) = &self.aad {
            cbc.set_tls_aad(octets(aad)?).ok_or(Failure::Quiet)?;
        }
        if let Some(len) = &self.key_len
            && len.number().ok_or(UNFIT)? != cbc.key_len()
        {
            return Err(Reason::InvalidKeyLength.into());
        }
        if let Some(version) = &self.version {
            let version = version.number().and_then(|number| u32::try_from(number).ok());
            cbc.set_tls_version(version.ok_or(UNFIT)?);
        }
        Ok(())
    }

    fn apply_multi(&mut self, cbc: &mut CbcHmac) -> Result<(), Failure> {
        let records = self.multi_records.as_ref().and_then(Given::number);
        let records = records.filter(|&records| u32::try_from(records).is_ok());
        if let Some(aad) = &self.multi_aad {
            // Its size is that of the whole text; 13 bytes are there.
            let bytes = aad.octets_of(HEADER).and_then(|bytes| bytes.first_chunk());
            let (bytes, records) = bytes.zip(records).ok_or(UNFIT)?;
            cbc.plan_multi(bytes, aad.size(), records).ok_or(Failure::Quiet)?;
        }
        if let Some(out) = &mut self.multi_out {
            let text = self.multi_text.as_ref().filter(|text| text.is_octets());
            let (text, records) = text.zip(records).filter(|_| out.is_octets()).ok_or(UNFIT)?;
            let text = text.octets(isize::MAX as usize).ok_or(Failure::Quiet)?;
            // Its size is that of the text; as many bytes as the plan said are written.
            let packed = cbc.multi_packed();
            let done = out.fill(packed, text, |out| cbc.seal_multi(out, text, records).is_some());
            if !done {
                return Err(Failure::Quiet);
            }
        }
        Ok(())
    }
}

/// The bytes of a parameter, of whatever number.
fn octets<'p>(param: &'p Given<'_>) -> Result<&'p [u8], Failure> {
    if !param.is_octets() {
        return Err(UNFIT.into());
    }
    if param.size() == 0 {
        return Ok(&[]);
    }
    Ok(param.octets(isize::MAX as usize).ok_or(UNFIT)?)
}
