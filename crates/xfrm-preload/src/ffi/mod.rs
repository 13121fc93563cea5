//! The border to C, and all unsafe code: the interposed functions and what they call.
//!
//! `next` finds libc's own functions, `system` makes safe functions of those needed here, `load` has them looked up.
//! `connection` reaches the server, `trust` looks at who serves, `dial` replaces the files of descriptors. The rest are the interposed calls: sockets and
//! their names in `socket`, options in `options`, sockets that policies do not concern in `exempt`, messages in
//! `send` and `receive`, `descriptor` for `dup` and epoll, `files` for what a kernel without XFRM lacks under
//! `/proc`.
//!
//! Threads may be cancelled in libc's functions, and are unwound through these then: hence `C-unwind`,
//! and no value on the way has anything to do when it is dropped.
//!
//! Each function is defined under its C name, except in this crate's tests, which would otherwise
//! run on top of themselves.

#![cfg_attr(test, allow(dead_code))]

mod connection;
mod descriptor;
mod dial;
mod exempt;
mod files;
mod load;
mod next;
mod options;
mod path;
mod receive;
mod remembered;
mod send;
mod socket;
mod system;
mod trust;

use std::ffi::c_int;

use crate::table::{self, Slot};

/// The entry of a descriptor that is one of ours now.
#[inline]
fn ours(fd: c_int) -> Option<&'static Slot> {
    let slot = table::occupied(fd)?;
    slot.verify(|identity| system::is(fd, identity)).then_some(slot)
}

/// Return value of a call: the number, or -1 with the error number set.
fn answer<T: From<i8>>(outcome: Result<T, c_int>) -> T {
    outcome.unwrap_or_else(|errno| {
        system::set_errno(errno);
        T::from(-1)
    })
}
