//! Files that a kernel without XFRM lacks under `/proc`, and some daemons insist on.

use std::ffi::{CStr, c_char, c_int};

use libc::FILE;

use super::next::{self, ModeArgument};
use super::system;

/// A file and what it says: seconds until an ACQUIRE is repeated, as kernels begin with, and
/// counters, of which there are none.
const FILES: [(&CStr, &[u8]); 2] =
    [(c"/proc/sys/net/core/xfrm_acq_expires", b"30\n"), (c"/proc/net/xfrm_stat", b"")];

/// Content of the file, if it is one of [`FILES`] and was not found.
///
/// # Safety
///
/// `path` is a C string or null.
unsafe fn lacking(path: *const c_char) -> Option<&'static [u8]> {
    if system::errno() != libc::ENOENT || path.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) };
    FILES.iter().find(|(name, _)| *name == path).map(|(_, text)| *text)
}

macro_rules! status_calls {
    ($($name:ident, $next:ident;)*) => {
        $(
            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C-unwind" fn $name(path: *const c_char, room: *mut libc::$name) -> c_int {
                // SAFETY: the caller's promise.
                let result = unsafe { next::$next.get()(path, room) };
                // SAFETY: the caller's promise.
                let text = if result == -1 { unsafe { lacking(path) } } else { None };
                if text.is_none() || room.is_null() {
                    return result;
                }
                // SAFETY: there is room for one, and zeros are a value of it.
                unsafe { room.write_bytes(0, 1) };
                // SAFETY: it is valid now.
                let status = unsafe { &mut *room };
                status.st_mode = libc::S_IFREG | 0o644;
                status.st_nlink = 1;
                0
            }
        )*
    };
}

status_calls! {
    stat, STAT;
    stat64, STAT64;
}

/// Declared with `...` in C: the mode of a new file. See `fcntl` on such arguments.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn open(path: *const c_char, flags: c_int, mode: ModeArgument) -> c_int {
    // SAFETY: the caller's promise.
    let fd = unsafe { next::OPEN.get()(path, flags, mode) };
    // SAFETY: the caller's promise.
    let text = if fd == -1 { unsafe { lacking(path) } } else { None };
    text.map_or(fd, |text| temporary(text, flags & libc::O_CLOEXEC != 0))
}

/// [`open`] of programs with large files.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn open64(path: *const c_char, flags: c_int, mode: ModeArgument) -> c_int {
    // SAFETY: the caller's promise. On 64-bit systems it is the same function.
    unsafe { open(path, flags, mode) }
}

/// A file in memory. What is written to it goes nowhere, as it must.
fn temporary(text: &[u8], close_on_exec: bool) -> c_int {
    let flags = if close_on_exec { libc::MFD_CLOEXEC } else { 0 };
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"xfrm".as_ptr(), flags) };
    if fd >= 0 && !text.is_empty() {
        // SAFETY: the text is as long as it says.
        unsafe { libc::pwrite(fd, text.as_ptr().cast(), text.len(), 0) };
    }
    fd
}

macro_rules! stream_calls {
    ($($name:ident, $next:ident;)*) => {
        $(
            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C-unwind" fn $name(path: *const c_char, mode: *const c_char) -> *mut FILE {
                // SAFETY: the caller's promise.
                let file = unsafe { next::$next.get()(path, mode) };
                // SAFETY: the caller's promise.
                let text = if file.is_null() { unsafe { lacking(path) } } else { None };
                match text {
                    // SAFETY: the descriptor is new, and the mode a C string.
                    Some(text) => unsafe { libc::fdopen(temporary(text, false), mode) },
                    None => file,
                }
            }
        )*
    };
}

stream_calls! {
    fopen, FOPEN;
    fopen64, FOPEN64;
}
