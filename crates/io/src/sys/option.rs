//! Socket options.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::check;

/// Sets an option whose value is an int.
pub(crate) fn set_int(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    set(fd, level, name, &value)
}

/// Attaches a classic BPF program: as a filter (`SO_ATTACH_FILTER`), or as the selector of a group
/// of sockets (`SO_ATTACH_REUSEPORT_CBPF`).
pub(crate) fn attach_program(
    fd: BorrowedFd<'_>,
    name: libc::c_int,
    program: &[libc::sock_filter],
) -> io::Result<()> {
    // The kernel copies the instructions; the pointer is `*mut` only by C's habit.
    let described =
        libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    set(fd, libc::SOL_SOCKET, name, &described)
}

fn set<T>(fd: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    let at: *const T = value;
    // SAFETY: the kernel reads `len` bytes at `at`, which is a live `T` of that size; a program
    // described in it is borrowed by the caller for as long.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, at.cast(), len) })?;
    Ok(())
}
