//! Duplicates of descriptors, and their registrations with epoll.

use std::ffi::c_int;

use libc::epoll_event;

use super::{next, ours};
use crate::table;

/// Notes that `new` is another descriptor of the file behind `old`.
fn duplicated(old: c_int, new: c_int) -> c_int {
    if new >= 0
        && new != old
        && let Some(from) = ours(old)
        && let Some(to) = table::slot(new)
    {
        to.duplicate(from);
    }
    new
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn dup(old: c_int) -> c_int {
    // SAFETY: takes numbers only.
    duplicated(old, unsafe { next::DUP.get()(old) })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn dup2(old: c_int, new: c_int) -> c_int {
    // SAFETY: takes numbers only.
    duplicated(old, unsafe { next::DUP2.get()(old, new) })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    // SAFETY: takes numbers only.
    duplicated(old, unsafe { next::DUP3.get()(old, new, flags) })
}

/// Declared with `...` in C. On Linux' ABIs, integers and pointers among variable arguments are passed
/// like others.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the caller's promise.
    let result = unsafe { next::FCNTL.get()(fd, command, argument) };
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicated(fd, result),
        _ => result,
    }
}

/// [`fcntl`] of programs with large files.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the caller's promise. On 64-bit systems it is the same function.
    unsafe { fcntl(fd, command, argument) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn epoll_ctl(
    epoll: c_int,
    command: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: the caller's promise.
    let result = unsafe { next::EPOLL_CTL.get()(epoll, command, fd, event) };
    if result == 0
        && let Some(slot) = ours(fd)
    {
        match command {
            libc::EPOLL_CTL_DEL => slot.unwatch(epoll),
            _ => {
                // SAFETY: the kernel has just read it; the structure may be packed.
                let event = unsafe { event.read_unaligned() };
                slot.watch(epoll, event.events, event.u64);
            }
        }
    }
    result
}
