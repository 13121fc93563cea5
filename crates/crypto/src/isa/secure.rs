//! Variables of the environment, and the check that the process may trust them.

use std::ffi::CStr;

/// Does something with the value of a variable of the environment, without memory of its own. As the
/// environment is the program's, nobody may change it meanwhile (getenv(3)).
#[cfg(unix)]
pub(crate) fn with_variable<R>(name: &CStr, work: impl FnOnce(Option<&[u8]>) -> R) -> R {
    use std::ffi::c_char;
    // SAFETY: as the C library that std is linked with declares it.
    unsafe extern "C" {
        fn getenv(name: *const c_char) -> *const c_char;
    }
    // SAFETY: the name ends with 0.
    let value = unsafe { getenv(name.as_ptr()) };
    // SAFETY: a value is a text that ends with 0, and stays while nobody changes the environment.
    work((!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_bytes()))
}

/// The same where the C library is another.
#[cfg(not(unix))]
pub(crate) fn with_variable<R>(name: &CStr, work: impl FnOnce(Option<&[u8]>) -> R) -> R {
    let value = name.to_str().ok().and_then(std::env::var_os);
    work(value.as_ref().map(|value| value.as_encoded_bytes()))
}

/// True if the process has rights that whoever ran its program lacks: capabilities of the file, or setuid.
/// Its environment is then that of somebody who may not decide. The kernel tells a process in its auxiliary
/// vector (`AT_SECURE`).
pub(crate) fn is_secure() -> bool {
    #[cfg(target_os = "linux")]
    {
        use std::ffi::c_ulong;
        const AT_SECURE: c_ulong = 23;
        // SAFETY: as the C library that std is linked with declares it (getauxval(3)).
        unsafe extern "C" {
            safe fn getauxval(kind: c_ulong) -> c_ulong;
        }
        getauxval(AT_SECURE) != 0
    }
    #[cfg(not(target_os = "linux"))]
    false
}

#[cfg(test)]
mod tests {
    #[test]
    fn variables_are_read_where_they_are() {
        let path = std::env::var_os("PATH").unwrap();
        super::with_variable(c"PATH", |read| assert_eq!(read, Some(path.as_encoded_bytes())));
        super::with_variable(c"CONVOY_NO_SUCH", |read| assert_eq!(read, None));
    }

    #[test]
    fn tests_run_with_the_rights_of_their_caller() {
        assert!(!super::is_secure());
    }
}
