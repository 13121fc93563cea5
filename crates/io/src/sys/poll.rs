//! Waiting for a descriptor.

use core::time::Duration;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::check;

/// Waits until `fd` can be written to, at most for `limit` (rounded up to milliseconds).
///
/// Errors and signals end the wait early: the caller tries again or gives up either way.
pub(crate) fn wait_writable(fd: BorrowedFd<'_>, limit: Duration) {
    let millis = limit.as_micros().div_ceil(1000).min(1000) as libc::c_int;
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: `poll` is one valid entry that lives through the call, and the count says one.
    unsafe { libc::poll(&raw mut poll, 1, millis) };
}

/// A descriptor that can be read when any of `fds` can.
pub(crate) fn gather<'a>(fds: impl Iterator<Item = BorrowedFd<'a>>) -> io::Result<OwnedFd> {
    // SAFETY: makes a descriptor or fails, and touches no memory.
    let gathered = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    check(gathered)?;
    // SAFETY: the descriptor is fresh and has no other owner.
    let gathered = unsafe { OwnedFd::from_raw_fd(gathered) };
    for fd in fds {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        let (to, fd) = (gathered.as_raw_fd(), fd.as_raw_fd());
        // SAFETY: the kernel reads one `epoll_event`, which lives through the call.
        check(unsafe { libc::epoll_ctl(to, libc::EPOLL_CTL_ADD, fd, &raw mut event) })?;
    }
    Ok(gathered)
}

/// Takes `fd` out of a gathered descriptor, which it makes readable no more.
pub(crate) fn forget(gathered: BorrowedFd<'_>, fd: BorrowedFd<'_>) -> io::Result<()> {
    let (from, fd) = (gathered.as_raw_fd(), fd.as_raw_fd());
    // SAFETY: the kernel reads no event for this order.
    check(unsafe { libc::epoll_ctl(from, libc::EPOLL_CTL_DEL, fd, core::ptr::null_mut()) })
        .map(drop)
}
