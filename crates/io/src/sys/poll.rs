//! Waiting for a descriptor.

use core::time::Duration;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Waits until `fd` can be written to, at most for `limit` (rounded up to milliseconds).
///
/// Errors and signals end the wait early: the caller tries again or gives up either way.
pub(crate) fn wait_writable(fd: BorrowedFd<'_>, limit: Duration) {
    let millis = limit.as_micros().div_ceil(1000).min(1000) as libc::c_int;
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: `poll` is one valid entry that lives through the call, and the count says one.
    unsafe { libc::poll(&raw mut poll, 1, millis) };
}
