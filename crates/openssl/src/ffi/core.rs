//! Interface to libcrypto: OpenSSL's types as `openssl/core.h` has them, and its core's functions.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
};

use crate::Reason;

/// A function of either side, before its signature is known.
pub(super) type Function = unsafe extern "C" fn();

/// `OSSL_DISPATCH`: a function and its number. A table ends with the number 0.
#[repr(C)]
pub(super) struct Dispatch {
    pub(super) id: c_int,
    pub(super) function: Option<Function>,
}

/// A table's entry for a function, which loses its signature here.
macro_rules! dispatch {
    ($($id:literal: $function:path as $signature:ty),* $(,)?) => {
        [
            $($crate::ffi::core::Dispatch {
                id: $id,
                // SAFETY: whoever calls the function gives it its signature back, which the number stands for.
                function: Some(unsafe {
                    std::mem::transmute::<$signature, $crate::ffi::core::Function>($function)
                }),
            },)*
            $crate::ffi::core::Dispatch { id: 0, function: None },
        ]
    };
}
pub(super) use dispatch;

/// `OSSL_ALGORITHM`: names with colons between them, properties, functions. A table ends with null names.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Algorithm {
    pub(super) names: *const c_char,
    pub(super) properties: *const c_char,
    pub(super) implementation: *const Dispatch,
    pub(super) description: *const c_char,
}

impl Algorithm {
    /// Last entry of a table.
    pub(super) const END: Self = Self {
        names: ptr::null(),
        properties: ptr::null(),
        implementation: ptr::null(),
        description: ptr::null(),
    };
}

// SAFETY: its pointers are to constants, which nobody writes.
unsafe impl Sync for Algorithm {}

/// `OSSL_CORE_HANDLE`: the provider, as libcrypto knows it.
#[repr(C)]
pub(super) struct Handle {
    _private: [u8; 0],
}

type NewError = unsafe extern "C" fn(*const Handle);
type SetErrorDebug = unsafe extern "C" fn(*const Handle, *const c_char, c_int, *const c_char);
type SetError = unsafe extern "C" fn(*const Handle, u32, *const c_char, *mut c_void);
type GetParams = unsafe extern "C" fn(*const Handle, *mut super::param::Param) -> c_int;

const GET_PARAMS: c_int = 2;
const NEW_ERROR: c_int = 5;
const SET_ERROR_DEBUG: c_int = 6;
const VSET_ERROR: c_int = 7;

/// The side of libcrypto that loaded the provider: its handle, and what it lets providers call. A process
/// may have several.
pub(super) struct Core {
    handle: *const Handle,
    get_params: Option<GetParams>,
    new_error: Option<NewError>,
    set_error_debug: Option<SetErrorDebug>,
    set_error: Option<SetError>,
}

impl Core {
    /// Reads libcrypto's table.
    ///
    /// # Safety
    ///
    /// `table` is null, or a table that ends with the number 0 and whose functions have the signatures
    /// that `openssl/core_dispatch.h` gives their numbers; `handle` is theirs.
    pub(super) unsafe fn of(handle: *const Handle, mut table: *const Dispatch) -> Self {
        let mut core = Self {
            handle,
            get_params: None,
            new_error: None,
            set_error_debug: None,
            set_error: None,
        };
        // SAFETY: the caller's promise; the end of the table is not passed.
        while let Some(Dispatch { id: id @ 1.., function }) = unsafe { table.as_ref() } {
            if let Some(function) = *function {
                // SAFETY: the caller's promise.
                unsafe { core.note(*id, function) };
            }
            table = table.wrapping_add(1);
        }
        core
    }

    /// # Safety
    ///
    /// `function` has the signature of its number.
    unsafe fn note(&mut self, id: c_int, function: Function) {
        match id {
            GET_PARAMS => {
                // SAFETY: the caller's promise.
                self.get_params =
                    Some(unsafe { std::mem::transmute::<Function, GetParams>(function) });
            }
            NEW_ERROR => {
                // SAFETY: the caller's promise.
                self.new_error =
                    Some(unsafe { std::mem::transmute::<Function, NewError>(function) });
            }
            SET_ERROR_DEBUG => {
                // SAFETY: the caller's promise.
                let function = unsafe { std::mem::transmute::<Function, SetErrorDebug>(function) };
                self.set_error_debug = Some(function);
            }
            VSET_ERROR => {
                // SAFETY: the caller's promise.
                self.set_error =
                    Some(unsafe { std::mem::transmute::<Function, SetError>(function) });
            }
            _ => {}
        }
    }

    /// Puts an error into libcrypto's queue, with a place in this library.
    pub(super) fn raise(&self, reason: Reason) {
        let (Some(new), Some(set)) = (self.new_error, self.set_error) else { return };
        // SAFETY: the handle is that of this function's table.
        unsafe { new(self.handle) };
        if let Some(set_debug) = self.set_error_debug {
            let (file, function) = (c"convoy-openssl".as_ptr(), c"convoy".as_ptr());
            // SAFETY: as above; the strings are constants.
            unsafe { set_debug(self.handle, file, 0, function) };
        }
        // Without a format the list of its arguments, a pointer wherever Rust runs OpenSSL, is not looked at.
        let mut no_arguments = [0u64; 4];
        // SAFETY: as above.
        unsafe {
            set(self.handle, reason.packed(), ptr::null(), no_arguments.as_mut_ptr().cast());
        };
    }

    /// Value of a key in the provider's section of the configuration.
    pub(super) fn configured(&self, key: &'static CStr) -> Option<&CStr> {
        use super::param::Param;
        let get_params = self.get_params?;
        let mut value: *const c_char = ptr::null();
        let mut wanted = [Param::text_pointer(key, &raw mut value), Param::END];
        // SAFETY: the handle is that of this function's table; the list has an end, and its only
        // parameter has room for a pointer.
        let done = unsafe { get_params(self.handle, wanted.as_mut_ptr()) };
        if done != 1 || value.is_null() {
            return None;
        }
        // SAFETY: libcrypto gives a text of the configuration, which ends with 0 and stays as long as the
        // provider is loaded.
        Some(unsafe { CStr::from_ptr(value) })
    }
}

/// Failure of a call: with a reason for the queue, or without one.
pub(super) enum Failure {
    Raise(Reason),
    Quiet,
}

impl Failure {
    /// Without [`Reason::CipherOperationFailed`], which only some functions raise.
    pub(super) fn without_operation(self) -> Self {
        match self {
            Self::Raise(Reason::CipherOperationFailed) => Self::Quiet,
            other => other,
        }
    }
}

impl From<Reason> for Failure {
    fn from(reason: Reason) -> Self {
        Self::Raise(reason)
    }
}

/// Does the work of a function of a table: 1 for success, 0 for failure, as OpenSSL has it.
pub(super) fn guard(core: Option<&Core>, work: impl FnOnce() -> Result<(), Failure>) -> c_int {
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return 1,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::Raise(Reason::Internal),
    };
    if let (Failure::Raise(reason), Some(core)) = (failure, core) {
        core.raise(reason);
    }
    0
}

/// The same for functions that give a pointer: null for failure.
pub(super) fn guard_pointer<T>(work: impl FnOnce() -> *mut T) -> *mut T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(ptr::null_mut())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_and_a_failure_become_numbers() {
        assert_eq!(guard(None, || panic!("a defect")), 0);
        assert_eq!(guard(None, || Err(Failure::Quiet)), 0);
        assert_eq!(guard(None, || Err(Reason::InvalidTag.into())), 0);
        assert_eq!(guard(None, || Ok(())), 1);
        assert!(guard_pointer::<u8>(|| panic!("a defect")).is_null());
    }
}
