//! Errors of the system in words.

/// An I/O error without the number that the standard library adds.
#[must_use]
pub fn describe_io(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => nix::errno::Errno::from_raw(number).desc().to_lowercase(),
        None => error.to_string(),
    }
}
