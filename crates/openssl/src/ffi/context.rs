//! Code that the contexts of all ciphers share: how they are made, started, copied and freed, and how
//! their parameters come and go.

use std::{
    ffi::{c_int, c_void},
    ptr::{self, slice_from_raw_parts as bytes},
    slice,
};

use convoy_crypto::try_box;
use zeroize::{Zeroize, zeroize_stack};

use super::{
    core::{Core, Failure, guard, guard_pointer},
    loading::Provider,
    param::{Param, Params},
};
use crate::{
    Reason,
    stats::{Counter, Tally},
};

/// A cipher of one direction, as the functions here call it.
pub(super) trait Cipher: Sized {
    /// A copy, which goes on by itself.
    fn copy(&self) -> Result<Self, Reason>;

    /// Sets the direction and, if given, key and IV.
    fn start(&mut self, seals: bool, key: Option<&[u8]>, iv: Option<&[u8]>) -> Result<(), Reason>;

    /// Sets what a list of parameters says.
    fn set(&mut self, params: Params<'_>) -> Result<(), Failure>;

    /// Fills a list of parameters.
    fn get(&mut self, params: Params<'_>) -> Result<(), Failure>;
}

/// Provider's part of an `EVP_CIPHER_CTX`, which libcrypto holds.
pub(super) struct Context<C> {
    cipher: C,
    /// Whose it is; libcrypto does not tear a provider down that has contexts.
    provider: *const Provider,
}

pub(super) type New<C> = unsafe extern "C" fn(*mut Provider) -> *mut Context<C>;
pub(super) type Free<C> = unsafe extern "C" fn(*mut Context<C>);
pub(super) type Duplicate<C> = unsafe extern "C" fn(*mut Context<C>) -> *mut Context<C>;
pub(super) type Init<C> = unsafe extern "C" fn(
    *mut Context<C>,
    *const u8,
    usize,
    *const u8,
    usize,
    *const Param,
) -> c_int;
pub(super) type Update<C> =
    unsafe extern "C" fn(*mut Context<C>, *mut u8, *mut usize, usize, *const u8, usize) -> c_int;
pub(super) type Final<C> =
    unsafe extern "C" fn(*mut Context<C>, *mut u8, *mut usize, usize) -> c_int;
pub(super) type Get = unsafe extern "C" fn(*mut Param) -> c_int;
pub(super) type GetContext<C> = unsafe extern "C" fn(*mut Context<C>, *mut Param) -> c_int;
pub(super) type SetContext<C> = unsafe extern "C" fn(*mut Context<C>, *const Param) -> c_int;
pub(super) type Describe = unsafe extern "C" fn(*mut c_void) -> *const Param;
pub(super) type DescribeContext = unsafe extern "C" fn(*mut c_void, *mut c_void) -> *const Param;

impl<C> Context<C> {
    /// A context for libcrypto to hold; null if there is no memory.
    pub(super) fn boxed(cipher: C, provider: *const Provider) -> *mut Self {
        let Ok(context) = try_box(Self { cipher, provider }) else { return ptr::null_mut() };
        Tally::here().add(Counter::Contexts, 1);
        Box::into_raw(context)
    }
}

/// # Safety
///
/// `context` is null, or came from one of the two functions that make them and was not freed.
pub(super) unsafe extern "C" fn free_context<C>(context: *mut Context<C>) {
    guard_pointer::<()>(|| {
        if !context.is_null() {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(context) });
        }
        ptr::null_mut()
    });
}

/// # Safety
///
/// `context` is null or a context, which nobody writes meanwhile.
pub(super) unsafe extern "C" fn duplicate_context<C: Cipher>(
    context: *mut Context<C>,
) -> *mut Context<C> {
    guard_pointer(|| {
        // SAFETY: the caller's promise.
        let Some(context) = (unsafe { context.as_ref() }) else { return ptr::null_mut() };
        let Ok(copy) = context.cipher.copy() else { return ptr::null_mut() };
        let copy = Context::boxed(copy, context.provider);
        // On its way into the box the key, or the state of a message, was on the stack.
        zeroize_stack::<4096>();
        copy
    })
}

/// Does the work of a function of a context. Errors go into the queue of the libcrypto it belongs to.
///
/// # Safety
///
/// `context` is null, or a context that nobody else uses meanwhile.
#[inline(always)]
pub(super) unsafe fn with<C>(
    context: *mut Context<C>,
    work: impl FnOnce(&mut C) -> Result<(), Failure>,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(context) = (unsafe { context.as_mut() }) else { return 0 };
    // SAFETY: a provider is not torn down before its contexts.
    let core: Option<&Core> = unsafe { context.provider.as_ref() }.map(|provider| &provider.core);
    guard(core, || work(&mut context.cipher))
}

/// # Safety
///
/// `context` as for [`with`]; key and IV are null or of their lengths; `params` is a list.
#[inline(always)]
unsafe fn init<C: Cipher>(
    context: *mut Context<C>,
    seals: bool,
    key: *const [u8],
    iv: *const [u8],
    params: *const Param,
) -> c_int {
    let work = |cipher: &mut C| {
        // SAFETY: the caller's promise.
        let key = unsafe { input(key.cast(), key.len()) };
        // SAFETY: the caller's promise.
        let iv = unsafe { input(iv.cast(), iv.len()) };
        cipher.start(seals, key, iv)?;
        // SAFETY: the caller's promise.
        cipher.set(unsafe { Params::new(params) })
    };
    // SAFETY: the caller's promise.
    unsafe { with(context, work) }
}

/// # Safety
///
/// As for [`init`].
pub(super) unsafe extern "C" fn seal_init<C: Cipher>(
    context: *mut Context<C>,
    key: *const u8,
    key_len: usize,
    iv: *const u8,
    iv_len: usize,
    params: *const Param,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { init(context, true, bytes(key, key_len), bytes(iv, iv_len), params) }
}

/// # Safety
///
/// As for [`init`].
pub(super) unsafe extern "C" fn open_init<C: Cipher>(
    context: *mut Context<C>,
    key: *const u8,
    key_len: usize,
    iv: *const u8,
    iv_len: usize,
    params: *const Param,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { init(context, false, bytes(key, key_len), bytes(iv, iv_len), params) }
}

/// # Safety
///
/// `context` as for [`with`]; `params` is a list of parameters to be filled.
pub(super) unsafe extern "C" fn get_context_params<C: Cipher>(
    context: *mut Context<C>,
    params: *mut Param,
) -> c_int {
    // SAFETY: the caller's promise.
    let work = |cipher: &mut C| cipher.get(unsafe { Params::new(params) });
    // SAFETY: the caller's promise.
    unsafe { with(context, work) }
}

/// # Safety
///
/// `context` as for [`with`]; `params` is a list of parameters.
pub(super) unsafe extern "C" fn set_context_params<C: Cipher>(
    context: *mut Context<C>,
    params: *const Param,
) -> c_int {
    // SAFETY: the caller's promise.
    let work = |cipher: &mut C| cipher.set(unsafe { Params::new(params) });
    // SAFETY: the caller's promise.
    unsafe { with(context, work) }
}

/// Fills a list with what is the same for every context of a cipher: `value` has it by names.
///
/// # Safety
///
/// `params` is a list of parameters to be filled.
pub(super) unsafe fn fill(params: *mut Param, value: impl Fn(&[u8]) -> Option<usize>) -> c_int {
    guard(None, || {
        // SAFETY: the caller's promise.
        for mut param in unsafe { Params::new(params) } {
            let Some(value) = value(param.key()) else { continue };
            if !param.put_number(value) {
                return Err(Failure::Quiet);
            }
        }
        Ok(())
    })
}

static GETTABLE: [Param; 9] = [
    Param::unsigned(c"mode"),
    Param::size(c"keylen"),
    Param::size(c"ivlen"),
    Param::size(c"blocksize"),
    Param::flag(c"aead"),
    Param::flag(c"custom-iv"),
    Param::flag(c"cts"),
    Param::flag(c"tls-multi"),
    Param::END,
];

pub(super) extern "C" fn gettable_params(_: *mut c_void) -> *const Param {
    GETTABLE.as_ptr()
}

/// Bytes to read, if there are any.
///
/// # Safety
///
/// `from` is null, or points to `len` bytes that nobody writes while they are used.
pub(super) unsafe fn input<'a>(from: *const u8, len: usize) -> Option<&'a [u8]> {
    let is_there = !from.is_null() && isize::try_from(len).is_ok();
    // SAFETY: the caller's promise; no memory is longer than an isize says.
    is_there.then(|| unsafe { slice::from_raw_parts(from, len) })
}

/// Has the work done on the input, copied to the output unless it is there already. Where the work fails, the
/// copy is wiped: nobody takes for ciphertext what is none.
///
/// # Safety
///
/// `from` and `to` point to `len` bytes, which may overlap. Nobody else uses those of `to` while they are
/// used.
#[inline(always)]
pub(super) unsafe fn in_place<R>(
    from: *const u8,
    to: *mut u8,
    len: usize,
    work: impl FnOnce(&mut [u8]) -> Result<R, Reason>,
) -> Result<R, Reason> {
    if from.is_null() || to.is_null() || isize::try_from(len).is_err() {
        return Err(Reason::CipherOperationFailed);
    }
    let is_copied = from != to.cast_const();
    if is_copied {
        // SAFETY: the caller's promise.
        unsafe { ptr::copy(from, to, len) };
    }
    // SAFETY: the caller's promise; the bytes have been written.
    let data = unsafe { slice::from_raw_parts_mut(to, len) };
    let done = work(data);
    if is_copied && done.is_err() {
        wipe(data);
    }
    done
}

#[cold]
#[inline(never)]
fn wipe(data: &mut [u8]) {
    data.zeroize();
}

/// Says how long the result is.
///
/// # Safety
///
/// `place` is null or a place for a number.
pub(super) unsafe fn tell(place: *mut usize, len: usize) {
    if !place.is_null() {
        // SAFETY: the caller's promise.
        unsafe { place.write(len) };
    }
}
