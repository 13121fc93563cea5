//! AES-GCM and GMAC, called directly: whole messages, and messages in parts.

use std::ffi::{c_int, c_void};

use convoy_crypto::{
    AeadKey, GcmTables, KeyBits, KeyLender, LentKey,
    manager::{GcmSaved, GcmStream, StreamError},
};
use zeroize::Zeroizing;

use super::{
    one,
    raw::{copied, input, lender, noting, noting_of_secrets, output, text, with_object},
    region::Region,
};
use crate::{
    check::GCM_MAX,
    types::{
        ERR_AAD_LEN, ERR_AUTH_LEN, ERR_AUTH_TAG_LEN, ERR_CIPH_LEN, ERR_IV_LEN, ERR_KEY_LEN,
        ERR_NULL_AAD, ERR_NULL_AUTH, ERR_NULL_CTX, ERR_NULL_DST, ERR_NULL_EXP_KEY, ERR_NULL_IV,
        ERR_NULL_KEY, ERR_NULL_SRC, GCM_KEY_BYTES, GcmContext, GcmKey,
    },
};

const fn bits(bits: usize) -> KeyBits {
    match KeyBits::from_bits(bits) {
        Some(bits) => bits,
        None => panic!("AES has keys of 128, 192 and 256 bits"),
    }
}

/// The number of an error of a message in parts.
pub(super) fn number_of(error: StreamError) -> c_int {
    match error {
        StreamError::IvLength { .. } => ERR_IV_LEN,
        StreamError::AadTooLong | StreamError::AadBehindText => ERR_AAD_LEN,
        StreamError::DataTooLong { .. } | StreamError::OutputLength { .. } => ERR_CIPH_LEN,
        StreamError::Ended | StreamError::TagOfOpened => ERR_NULL_CTX,
        // ENOMEM
        StreamError::OutOfMemory => 12,
        _ => ERR_NULL_KEY,
    }
}

const _: () = assert!(size_of::<GcmTables>() <= GCM_KEY_BYTES);

/// True if tables can be used where they lie: if no block of them lies across cache lines. Programs that do not define `LINUX`
/// have them anywhere.
#[inline]
pub(super) fn are_in_place(key: *const GcmKey) -> bool {
    key.cast::<GcmTables>().is_aligned()
}

/// Does something with the tables in a `struct gcm_key_data`, which are copied first where they cannot be used in place.
///
/// # Safety
///
/// `key` is null or points to key data that nobody writes during the call.
#[inline]
pub(super) unsafe fn with_tables<T>(
    key: *const GcmKey,
    work: impl FnOnce(&GcmTables) -> Result<T, c_int>,
) -> Result<T, c_int> {
    if key.is_null() {
        return Err(ERR_NULL_EXP_KEY);
    }
    if are_in_place(key) {
        // SAFETY: they are aligned, and any bytes are tables; the caller promises the rest.
        return work(unsafe { &*key.cast::<GcmTables>() });
    }
    // Wipes itself.
    let mut copy = GcmTables::EMPTY;
    let place = (&raw mut copy).cast::<u8>();
    // SAFETY: the caller's promise; tables are plain bytes.
    unsafe { std::ptr::copy_nonoverlapping(key.cast(), place, size_of::<GcmTables>()) };
    let done = work(&copy);
    // Kernels wipe what they use, which need not be the widest.
    if let Ok(lender) = lender() {
        lender.wipe_registers();
    }
    done
}

/// Does something with the key in a `struct gcm_key_data`.
///
/// # Safety
///
/// As for [`with_tables`].
pub(super) unsafe fn with_key<T>(
    lender: &KeyLender,
    bits: KeyBits,
    key: *const GcmKey,
    work: impl FnOnce(LentKey<'_>) -> Result<T, c_int>,
) -> Result<T, c_int> {
    // SAFETY: the caller's promise.
    unsafe { with_tables(key, |tables| work(lender.gcm(bits, tables))) }
}

/// Expands a key.
///
/// # Safety
///
/// `key` is null or points to the key, `out` is null or points to key data.
pub(super) unsafe extern "C" fn pre<const BITS: usize>(key: *const c_void, out: *mut GcmKey) {
    noting_of_secrets(|| {
        // SAFETY: the caller's promise.
        let key = unsafe { input(key.cast(), const { bits(BITS) }.bytes() as u64, ERR_NULL_KEY) }?;
        // SAFETY: as above.
        unsafe { fill(out, |tables| lender()?.expand(key, tables).map_err(|_| ERR_KEY_LEN)) }
    });
}

/// Fills key data, wherever it lies.
///
/// # Safety
///
/// `out` is null or points to key data.
unsafe fn fill(
    out: *mut GcmKey,
    expand: impl FnOnce(&mut GcmTables) -> Result<(), c_int>,
) -> Result<(), c_int> {
    if out.is_null() {
        return Err(ERR_NULL_EXP_KEY);
    }
    if are_in_place(out) {
        // SAFETY: the caller's promise; any bytes are tables.
        return expand(unsafe { &mut *out.cast::<GcmTables>() });
    }
    let mut tables = GcmTables::EMPTY;
    expand(&mut tables)?;
    let from = (&raw const tables).cast::<u8>();
    // SAFETY: as above, wherever the data lies. What is dropped is the copy here.
    unsafe { std::ptr::copy_nonoverlapping(from, out.cast(), size_of::<GcmTables>()) };
    Ok(())
}

/// Expands a key of GHASH alone.
///
/// # Safety
///
/// `key` is null or points to 16 bytes, `out` is null or points to key data.
pub(super) unsafe extern "C" fn ghash_pre(key: *const c_void, out: *mut GcmKey) {
    noting_of_secrets(|| {
        // SAFETY: the caller's promise.
        let h = Zeroizing::new(unsafe { copied::<16>(key.cast(), ERR_NULL_KEY) }?);
        // SAFETY: as above.
        unsafe {
            fill(out, |tables| {
                lender()?.expand_hash_key(&h, tables);
                Ok(())
            })
        }
    });
}

/// Goes on with GHASH: the tag is what came out so far, and becomes what comes out with the text behind it. Of a tag that is
/// shorter than a block the rest is zeros.
///
/// # Safety
///
/// Each pointer is null, or points to as much as its length or type says.
pub(super) unsafe extern "C" fn ghash(
    key: *const GcmKey,
    src: *const c_void,
    len: u64,
    tag: *mut c_void,
    tag_len: u64,
) {
    noting(|| {
        if key.is_null() {
            return Err(ERR_NULL_EXP_KEY);
        }
        if src.is_null() {
            return Err(ERR_NULL_SRC);
        }
        if len == 0 {
            return Err(ERR_AUTH_LEN);
        }
        // SAFETY: the caller's promise.
        let message = unsafe { input(src.cast(), len, ERR_NULL_SRC) }?;
        let mut hash = [0; 16];
        {
            // SAFETY: as above.
            let place = unsafe { tag_place(tag.cast(), tag_len) }?;
            hash.iter_mut().zip(&*place).for_each(|(to, byte)| *to = *byte);
        }
        let work = |tables: &GcmTables| {
            lender()?.ghash(tables, &mut hash, message);
            Ok(())
        };
        // SAFETY: as above.
        unsafe { with_tables(key, work) }?;
        // SAFETY: as above. The tag may lie in the text, which is not read any more.
        let place = unsafe { tag_place(tag.cast(), tag_len) }?;
        place.iter_mut().zip(hash).for_each(|(to, byte)| *to = byte);
        Ok(())
    });
}

/// Completes key data whose round keys are there: they begin with the key.
///
/// # Safety
///
/// `data` is null or points to key data.
pub(super) unsafe extern "C" fn precomp<const BITS: usize>(data: *mut GcmKey) {
    if data.is_null() {
        return noting(|| Err(ERR_NULL_EXP_KEY));
    }
    let mut key = Zeroizing::new([0; 32]);
    // SAFETY: the caller's promise; there are round keys at the front.
    if let Ok(front) = unsafe { copied::<32>(data.cast(), ERR_NULL_EXP_KEY) } {
        *key = front;
    }
    // SAFETY: as above.
    unsafe { pre::<BITS>(key.as_ptr().cast(), data) };
}

/// One part, or all, of a message.
pub(super) struct Part {
    pub(super) dst: *mut u8,
    pub(super) src: *const u8,
    pub(super) len: u64,
}

impl Part {
    /// Checks pointers and length.
    fn check(&self) -> Result<(), c_int> {
        match self.len {
            0 => Ok(()),
            _ if self.src.is_null() => Err(ERR_NULL_SRC),
            _ if self.dst.is_null() => Err(ERR_NULL_DST),
            len if len > 1 << 36 => Err(ERR_CIPH_LEN),
            _ => Ok(()),
        }
    }

    /// Encrypts or decrypts it.
    ///
    /// # Safety
    ///
    /// The pointers were [checked](Self::check), and point to as many bytes as there are, which nobody else uses.
    unsafe fn update(&self, stream: &mut GcmStream<&AeadKey>) -> Result<(), c_int> {
        stream.prepare(self.len as usize).map_err(number_of)?;
        // SAFETY: the caller's promise.
        let text = unsafe { text(self.src, self.dst, self.len as usize) };
        stream.update(text).map_err(number_of)
    }
}

/// Place of a tag, checked.
///
/// # Safety
///
/// `tag` is null or points to `len` bytes.
unsafe fn tag_place<'a>(tag: *mut u8, len: u64) -> Result<&'a mut [u8], c_int> {
    if tag.is_null() {
        return Err(ERR_NULL_AUTH);
    }
    if !(1..=16).contains(&len) {
        return Err(ERR_AUTH_TAG_LEN);
    }
    // SAFETY: the caller's promise.
    unsafe { output(tag, len, ERR_NULL_AUTH) }
}

/// A whole message, with an IV of any length: its text, and its tag whichever way it goes.
///
/// # Safety
///
/// The pointers of `part` point to as many bytes as there are, which nobody else uses.
pub(super) unsafe fn message(
    key: &AeadKey,
    seal: bool,
    part: &Part,
    iv: &[u8],
    aad: &[u8],
) -> Result<[u8; 16], c_int> {
    let mut stream = if seal { GcmStream::seal(key, iv) } else { GcmStream::open(key, iv) }
        .map_err(number_of)?;
    stream.aad(aad).map_err(number_of)?;
    // SAFETY: the caller's promise.
    unsafe { part.update(&mut stream) }?;
    if seal {
        return stream.tag().map_err(number_of);
    }
    // Tags of what is opened are compared by callers of this library.
    let mut saved = GcmSaved::NONE;
    stream.save(&mut saved);
    let tag = GcmStream::resume(key, true, &saved).and_then(|mut stream| stream.tag());
    saved.wipe();
    tag.map_err(number_of)
}

/// A whole message with an IV of 12 bytes.
///
/// # Safety
///
/// As for [`message`].
unsafe fn whole_message(
    key: &AeadKey,
    seal: bool,
    part: &Part,
    iv: &[u8; 12],
    aad: &[u8],
) -> Result<[u8; 16], c_int> {
    let written = Region { start: part.dst.cast_const(), len: part.len as usize };
    if written.overlaps(Region { start: aad.as_ptr(), len: aad.len() }) {
        // SAFETY: the caller's promise. Additional data is read before the text is written.
        return unsafe { message(key, seal, part, iv, aad) };
    }
    if part.len > GCM_MAX {
        return Err(ERR_CIPH_LEN);
    }
    // SAFETY: as above.
    let text = unsafe { text(part.src, part.dst, part.len as usize) };
    let mut tag = [0; 16];
    let done = if seal {
        one::seal(key, *iv, aad, text, &mut tag)
    } else {
        one::open(key, *iv, aad, text, &mut tag)
    };
    done.map(|()| tag).map_err(|_| ERR_CIPH_LEN)
}

macro_rules! whole {
    ($name:ident, $seal:literal, $text:literal) => {
        #[doc = $text]
        ///
        /// # Safety
        ///
        /// Each pointer is null, or points to as much as its length or type says, which nobody else uses during the call.
        pub(super) unsafe extern "C" fn $name<const BITS: usize>(
            key: *const GcmKey,
            ctx: *mut GcmContext,
            dst: *mut u8,
            src: *const u8,
            len: u64,
            iv: *const u8,
            aad: *const u8,
            aad_len: u64,
            tag: *mut u8,
            tag_len: u64,
        ) {
            noting(|| {
                if key.is_null() {
                    return Err(ERR_NULL_EXP_KEY);
                }
                if ctx.is_null() {
                    return Err(ERR_NULL_CTX);
                }
                // SAFETY: the caller's promise. The IV may lie in the text, so it is copied.
                let iv: [u8; 12] = unsafe { copied(iv, ERR_NULL_IV) }?;
                let part = Part { dst, src, len };
                part.check()?;
                // SAFETY: as above.
                let aad = unsafe { input(aad, aad_len, ERR_NULL_AAD) }?;
                if tag.is_null() {
                    return Err(ERR_NULL_AUTH);
                }
                if !(1..=16).contains(&tag_len) {
                    return Err(ERR_AUTH_TAG_LEN);
                }
                // SAFETY: as above.
                let made = unsafe {
                    with_key(lender()?, const { bits(BITS) }, key, |key| {
                        whole_message(&key, $seal, &part, &iv, aad)
                    })
                }?;
                // SAFETY: as above.
                let place = unsafe { tag_place(tag, tag_len) }?;
                place.iter_mut().zip(made).for_each(|(to, byte)| *to = byte);
                Ok(())
            });
        }
    };
}

whole!(enc, true, "Encrypts a message and makes its tag.");
whole!(dec, false, "Decrypts a message and makes the tag that it should have.");

/// Begins a message: its IV and additional data.
///
/// # Safety
///
/// Each pointer is null, or points to as much as its length or type says.
unsafe fn begin<const BITS: usize>(
    key: *const GcmKey,
    ctx: *mut GcmContext,
    iv: Region,
    aad: Region,
) {
    noting(|| {
        if key.is_null() {
            return Err(ERR_NULL_EXP_KEY);
        }
        if ctx.is_null() {
            return Err(ERR_NULL_CTX);
        }
        if iv.start.is_null() {
            return Err(ERR_NULL_IV);
        }
        if iv.len == 0 {
            return Err(ERR_IV_LEN);
        }
        // SAFETY: as above.
        let iv = unsafe { input(iv.start, iv.len as u64, ERR_NULL_IV) }?;
        // SAFETY: as above.
        let aad = unsafe { input(aad.start, aad.len as u64, ERR_NULL_AAD) }?;
        let begin = |ctx: &mut GcmContext| {
            let nonce = iv.first_chunk().filter(|_| iv.len() == 12);
            if let Some(begun) = nonce.and_then(|nonce| GcmSaved::begun(nonce, aad)) {
                *ctx = begun;
                return Ok(());
            }
            let work = |key: LentKey<'_>| {
                let mut stream = GcmStream::seal(&*key, iv).map_err(number_of)?;
                stream.aad(aad).map_err(number_of)?;
                stream.save(ctx);
                Ok(())
            };
            // SAFETY: as above.
            unsafe { with_key(lender()?, const { bits(BITS) }, key, work) }
        };
        // SAFETY: as above.
        unsafe { with_object(ctx, ERR_NULL_CTX, begin) }
    });
}

/// Begins a message with an IV of 12 bytes.
///
/// # Safety
///
/// Each pointer is null, or points to as much as its length or type says.
pub(super) unsafe extern "C" fn init<const BITS: usize>(
    key: *const GcmKey,
    ctx: *mut GcmContext,
    iv: *const u8,
    aad: *const u8,
    aad_len: u64,
) {
    // SAFETY: the caller's promise.
    unsafe { begin::<BITS>(key, ctx, Region::new(iv, 12), Region::new(aad, aad_len)) };
}

/// Begins a message with an IV of any length.
///
/// # Safety
///
/// As for [`init`].
pub(super) unsafe extern "C" fn init_var_iv<const BITS: usize>(
    key: *const GcmKey,
    ctx: *mut GcmContext,
    iv: *const u8,
    iv_len: u64,
    aad: *const u8,
    aad_len: u64,
) {
    // SAFETY: the caller's promise.
    unsafe { begin::<BITS>(key, ctx, Region::new(iv, iv_len), Region::new(aad, aad_len)) };
}

/// Goes on with a message.
///
/// # Safety
///
/// `key` and `ctx` are null, or point to key data and a context.
unsafe fn go_on<const BITS: usize>(
    key: *const GcmKey,
    ctx: *mut GcmContext,
    seal: bool,
    work: impl FnOnce(&mut GcmStream<&AeadKey>) -> Result<(), c_int>,
) -> Result<(), c_int> {
    if key.is_null() {
        return Err(ERR_NULL_EXP_KEY);
    }
    let go_on = |ctx: &mut GcmContext| {
        let work = |key: LentKey<'_>| {
            let mut stream = GcmStream::resume(&*key, seal, ctx).map_err(number_of)?;
            work(&mut stream)?;
            stream.save(ctx);
            Ok(())
        };
        // SAFETY: the caller's promise.
        unsafe { with_key(lender()?, const { bits(BITS) }, key, work) }
    };
    // SAFETY: as above.
    unsafe { with_object(ctx, ERR_NULL_CTX, go_on) }
}

/// Encrypts or decrypts the next part of a message.
///
/// # Safety
///
/// As for [`go_on`], and for [`Part::update`].
unsafe fn next_part<const BITS: usize>(
    key: *const GcmKey,
    ctx: *mut GcmContext,
    seal: bool,
    part: &Part,
) -> Result<(), c_int> {
    let first = |ctx: &mut GcmContext| {
        let work = |key: LentKey<'_>| {
            let len = part.len as usize;
            if !ctx.takes_first_text(&key, len) {
                return Ok(false);
            }
            // SAFETY: the caller's promise.
            let text = unsafe { text(part.src, part.dst, len) };
            Ok(ctx.first_text(&key, seal, text))
        };
        // SAFETY: as above.
        unsafe { with_key(lender()?, const { bits(BITS) }, key, work) }
    };
    // SAFETY: as above.
    if unsafe { with_object(ctx, ERR_NULL_CTX, first) }? {
        return Ok(());
    }
    // SAFETY: as above.
    let next = |stream: &mut GcmStream<&AeadKey>| unsafe { part.update(stream) };
    // SAFETY: as above.
    unsafe { go_on::<BITS>(key, ctx, seal, next) }
}

macro_rules! update {
    ($name:ident, $seal:literal, $text:literal) => {
        #[doc = $text]
        ///
        /// # Safety
        ///
        /// Each pointer is null, or points to as much as its length or type says, which nobody else uses during the call.
        pub(super) unsafe extern "C" fn $name<const BITS: usize>(
            key: *const GcmKey,
            ctx: *mut GcmContext,
            dst: *mut u8,
            src: *const u8,
            len: u64,
        ) {
            let part = Part { dst, src, len };
            noting(|| {
                if key.is_null() {
                    return Err(ERR_NULL_EXP_KEY);
                }
                if ctx.is_null() {
                    return Err(ERR_NULL_CTX);
                }
                part.check()?;
                // SAFETY: the caller's promise.
                unsafe { next_part::<BITS>(key, ctx, $seal, &part) }
            });
        }
    };
}

update!(enc_update, true, "Encrypts the next part of a message.");
update!(dec_update, false, "Decrypts the next part of a message.");

/// Ends a message: its tag.
///
/// # Safety
///
/// Each pointer is null, or points to as much as its length or type says.
pub(super) unsafe extern "C" fn finalize<const BITS: usize>(
    key: *const GcmKey,
    ctx: *mut GcmContext,
    tag: *mut u8,
    tag_len: u64,
) {
    noting(|| {
        if key.is_null() {
            return Err(ERR_NULL_EXP_KEY);
        }
        if ctx.is_null() {
            return Err(ERR_NULL_CTX);
        }
        // SAFETY: the caller's promise.
        let place = unsafe { tag_place(tag, tag_len) }?;
        let mut put = |tag: [u8; 16]| place.iter_mut().zip(tag).for_each(|(to, byte)| *to = byte);
        // SAFETY: as above.
        let whole = unsafe { with_object(ctx, ERR_NULL_CTX, |ctx| Ok(ctx.end_whole())) }?;
        if let Some(tag) = whole {
            put(tag);
            return Ok(());
        }
        let end = |stream: &mut GcmStream<&AeadKey>| {
            put(stream.tag().map_err(number_of)?);
            Ok(())
        };
        // SAFETY: as above.
        unsafe { go_on::<BITS>(key, ctx, true, end) }
    });
}

/// Begins a message of GMAC, with an IV of any length.
///
/// # Safety
///
/// As for [`init`].
pub(super) unsafe extern "C" fn gmac_init<const BITS: usize>(
    key: *const GcmKey,
    ctx: *mut GcmContext,
    iv: *const u8,
    iv_len: u64,
) {
    // SAFETY: the caller's promise.
    unsafe { begin::<BITS>(key, ctx, Region::new(iv, iv_len), Region::new(std::ptr::null(), 0)) };
}

/// Authenticates the next part of a message of GMAC.
///
/// # Safety
///
/// As for [`init`].
pub(super) unsafe extern "C" fn gmac_update<const BITS: usize>(
    key: *const GcmKey,
    ctx: *mut GcmContext,
    src: *const u8,
    len: u64,
) {
    noting(|| {
        if key.is_null() {
            return Err(ERR_NULL_EXP_KEY);
        }
        if ctx.is_null() {
            return Err(ERR_NULL_CTX);
        }
        // SAFETY: the caller's promise.
        let part = unsafe { input(src, len, ERR_NULL_SRC) }?;
        // SAFETY: as above.
        unsafe { go_on::<BITS>(key, ctx, true, |stream| stream.aad(part).map_err(number_of)) }
    });
}
