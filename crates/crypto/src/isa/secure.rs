//! Whether the environment may say anything.

/// Whether the process has rights that whoever ran its program lacks: capabilities of the file, or setuid.
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
    fn tests_run_with_the_rights_of_their_caller() {
        assert!(!super::is_secure());
    }
}
