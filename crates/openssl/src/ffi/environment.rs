//! Variables of the environment.

use std::ffi::{CStr, c_char, c_ulong};

// SAFETY: as the C library that std is linked with declares them (getauxval(3), getenv(3)).
unsafe extern "C" {
    safe fn getauxval(kind: c_ulong) -> c_ulong;
    fn getenv(name: *const c_char) -> *const c_char;
}

/// Value of an environment variable, if it is set. It takes no memory.
pub(super) fn variable(name: &'static CStr) -> Option<&'static CStr> {
    // SAFETY: the name ends with 0.
    let value = unsafe { getenv(name.as_ptr()) };
    if value.is_null() || is_secure() {
        return None;
    }
    // SAFETY: a value is a text that ends with 0, and stays while nobody changes the environment.
    Some(unsafe { CStr::from_ptr(value) }).filter(|value| !value.is_empty())
}

/// True if the process has rights that whoever ran its program lacks (`AT_SECURE`), so that its environment
/// may not decide.
fn is_secure() -> bool {
    const AT_SECURE: c_ulong = 23;
    getauxval(AT_SECURE) != 0
}
