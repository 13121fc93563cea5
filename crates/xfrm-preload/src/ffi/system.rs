//! System calls, as safe functions.

use std::ffi::{c_int, c_void};
use std::mem::{self, MaybeUninit};
use std::ptr;

use libc::{itimerspec, msghdr, socklen_t, ssize_t, timespec};

use super::next;
use crate::table::Identity;

unsafe extern "C-unwind" {
    // Declared again, because a cancelled thread is unwound through it.
    fn poll(entries: *mut libc::pollfd, count: libc::nfds_t, milliseconds: c_int) -> c_int;
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// Does something that a thread must not be cancelled within.
pub(super) fn uncancelled<T>(work: impl FnOnce() -> T) -> T {
    const DISABLE: c_int = 1;
    let mut before = 0;
    // SAFETY: there is room for the state before.
    unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
    let result = work();
    // SAFETY: the state before is not asked for.
    unsafe { pthread_setcancelstate(before, ptr::null_mut()) };
    result
}

/// The number of the last error.
pub(super) fn errno() -> c_int {
    // SAFETY: gives a valid pointer to the thread's number.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the pointer is valid, and only this thread uses it.
    unsafe { *place }
}

/// Sets the number of the last error.
pub(super) fn set_errno(number: c_int) {
    // SAFETY: gives a valid pointer to the thread's number.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the pointer is valid, and only this thread uses it.
    unsafe { *place = number };
}

/// A call's result, or the error number if it is -1.
pub(super) fn checked<T: PartialEq + From<i8>>(result: T) -> Result<T, c_int> {
    if result == T::from(-1) { Err(errno()) } else { Ok(result) }
}

/// Status of a descriptor's file, as the kernel gives it.
fn status(fd: c_int) -> Option<libc::stat> {
    let before = errno();
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: there is room for the result.
    let result = unsafe { libc::fstat(fd, status.as_mut_ptr()) };
    if result != 0 {
        set_errno(before);
        return None;
    }
    // SAFETY: the call filled it in.
    Some(unsafe { status.assume_init() })
}

/// The inode of a socket.
pub(super) fn socket_inode(fd: c_int) -> Option<u64> {
    let status = status(fd)?;
    (status.st_mode & libc::S_IFMT == libc::S_IFSOCK).then_some(status.st_ino)
}

/// Device and inode of a file that somebody may read; `None` for `/dev/null`.
pub(super) fn identity(fd: c_int) -> Option<[u64; 2]> {
    let status = status(fd)?;
    let is_null =
        status.st_mode & libc::S_IFMT == libc::S_IFCHR && status.st_rdev == libc::makedev(1, 3);
    (!is_null).then_some([status.st_dev, status.st_ino])
}

/// The interval of a timer, in nanoseconds.
fn timer_interval(fd: c_int) -> Option<u64> {
    let before = errno();
    let mut setting = MaybeUninit::<itimerspec>::uninit();
    // SAFETY: there is room for the result.
    let result = unsafe { libc::timerfd_gettime(fd, setting.as_mut_ptr()) };
    if result != 0 {
        set_errno(before);
        return None;
    }
    // SAFETY: the call filled it in.
    let interval = unsafe { setting.assume_init() }.it_interval;
    let seconds = u64::try_from(interval.tv_sec).ok()?;
    let nanoseconds = u64::try_from(interval.tv_nsec).ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

/// True if a descriptor is that file.
pub(super) fn is(fd: c_int, identity: Identity) -> bool {
    let found = if identity.is_parked() {
        timer_interval(fd).map(Identity::timer)
    } else {
        socket_inode(fd).map(Identity::socket)
    };
    found == Some(identity)
}

/// A timer that becomes readable every `interval` nanoseconds.
pub(super) fn timer(interval: u64) -> Result<c_int, c_int> {
    let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
    // SAFETY: takes numbers only.
    let fd = checked(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })?;
    let time = timespec {
        tv_sec: i64::try_from(interval / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(interval % 1_000_000_000).unwrap_or_default(),
    };
    let setting = itimerspec { it_interval: time, it_value: time };
    // SAFETY: the setting is valid, and the old one is not asked for.
    let result = unsafe { libc::timerfd_settime(fd, 0, &raw const setting, ptr::null_mut()) };
    checked(result).map(|_| fd).inspect_err(|_| close(fd))
}

/// Makes a timer unreadable until its next beat; the descriptor does not block then.
pub(super) fn drain(fd: c_int) {
    let mut beats = 0_u64;
    if readable(fd, 0) == Ok(true) {
        // SAFETY: there is room for the eight bytes.
        unsafe { next::READ.get()(fd, (&raw mut beats).cast(), size_of::<u64>()) };
    }
}

/// Closes a descriptor of this library.
pub(super) fn close(fd: c_int) {
    let before = errno();
    // SAFETY: the descriptor was made here, and nobody else knows it.
    unsafe { libc::close(fd) };
    set_errno(before);
}

/// Waits until there is something to read; tells whether there is. -1 waits for ever.
pub(super) fn readable(fd: c_int, milliseconds: c_int) -> Result<bool, c_int> {
    let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: it is an array of one entry.
    checked(unsafe { poll(&raw mut entry, 1, milliseconds) }).map(|ready| ready > 0)
}

/// Waits, unless a signal comes.
pub(super) fn pause(milliseconds: c_int) {
    // SAFETY: no entries, so nothing is read behind the pointer.
    unsafe { poll(ptr::null_mut(), 0, milliseconds) };
}

/// `fcntl` with a number.
pub(super) fn control(fd: c_int, command: c_int, number: c_int) -> Result<c_int, c_int> {
    // SAFETY: the commands used here take a number or nothing.
    checked(unsafe { next::FCNTL.get()(fd, command, number) })
}

/// True if calls on a descriptor are not to wait.
pub(super) fn is_nonblocking(fd: c_int) -> bool {
    control(fd, libc::F_GETFL, 0).is_ok_and(|flags| flags & libc::O_NONBLOCK != 0)
}

/// Sets whether calls on a descriptor are to wait.
pub(super) fn set_nonblocking(fd: c_int, nonblocking: bool) {
    if let Ok(flags) = control(fd, libc::F_GETFL, 0) {
        let wanted = if nonblocking { flags | libc::O_NONBLOCK } else { flags & !libc::O_NONBLOCK };
        if wanted != flags {
            let _ = control(fd, libc::F_SETFL, wanted);
        }
    }
}

/// Replaces the file of `to`.
pub(super) fn replace(from: c_int, to: c_int, close_on_exec: bool) -> Result<(), c_int> {
    let flags = if close_on_exec { libc::O_CLOEXEC } else { 0 };
    // SAFETY: takes numbers only; that `to` changes its file is what the caller wants.
    checked(unsafe { next::DUP3.get()(from, to, flags) }).map(|_| ())
}

/// The process.
pub(super) fn process() -> c_int {
    // SAFETY: takes nothing.
    unsafe { libc::getpid() }
}

/// An unconnected socket that does not wait.
pub(super) fn seqpacket(close_on_exec: bool) -> Result<c_int, c_int> {
    let flags = if close_on_exec { libc::SOCK_CLOEXEC } else { 0 } | libc::SOCK_NONBLOCK;
    // SAFETY: takes numbers only.
    checked(unsafe { next::SOCKET.get()(libc::AF_UNIX, libc::SOCK_SEQPACKET | flags, 0) })
}

/// Connects to a path, which ends with a zero.
pub(super) fn connect(fd: c_int, path: &[u8; 108]) -> Result<(), c_int> {
    // SAFETY: zeros are a value of it.
    let mut name: libc::sockaddr_un = unsafe { mem::zeroed() };
    name.sun_family = libc::sa_family_t::try_from(libc::AF_UNIX).unwrap_or_default();
    for (to, from) in name.sun_path.iter_mut().zip(path) {
        *to = from.cast_signed();
    }
    let len = socklen_t::try_from(size_of_val(&name)).unwrap_or_default();
    // SAFETY: the name is as long as it says.
    checked(unsafe { next::CONNECT.get()(fd, (&raw const name).cast(), len) }).map(|_| ())
}

/// The process that listens at the other end of a connection, as it was when it began to.
pub(super) fn peer(fd: c_int) -> Result<libc::ucred, c_int> {
    let mut peer = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: libc::gid_t::MAX };
    let mut len = socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or_default();
    let room = (&raw mut peer).cast::<c_void>();
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: there is as much room as it says.
    let result = unsafe { next::GETSOCKOPT.get()(fd, level, option, room, &raw mut len) };
    checked(result).map(|_| peer)
}

/// The user whose rights this process has.
pub(super) fn effective_user() -> libc::uid_t {
    // SAFETY: takes nothing.
    unsafe { libc::geteuid() }
}

/// True if this process has rights that whoever ran its program lacks (setuid, capabilities of its file).
pub(super) fn is_secure() -> bool {
    // SAFETY: takes a number.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Writes a short text where that neither waits nor ends the process; whether it did.
pub(super) fn write_at_once(fd: c_int, text: &[u8]) -> bool {
    let mut entry = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
    // SAFETY: it is an array of one entry.
    let ready = unsafe { poll(&raw mut entry, 1, 0) };
    // Also a pipe that nobody reads is ready, with an error beside.
    if ready != 1 || entry.revents != libc::POLLOUT {
        return false;
    }
    // SAFETY: the text is as long as it says.
    let written = unsafe { next::WRITE.get()(fd, text.as_ptr().cast(), text.len()) };
    usize::try_from(written) == Ok(text.len())
}

/// Puts a text, which ends with a zero, into the system's log as a warning.
pub(super) fn log(text: &[u8]) {
    let Ok(text) = std::ffi::CStr::from_bytes_until_nul(text) else { return };
    let priority = libc::LOG_DAEMON | libc::LOG_WARNING;
    // SAFETY: the format asks for one text, and that ends with a zero.
    unsafe { libc::syslog(priority, c"%s".as_ptr(), text.as_ptr()) };
}

/// Sets an option that is a number.
pub(super) fn set_option(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: c_int,
) -> Result<(), c_int> {
    let len = socklen_t::try_from(size_of::<c_int>()).unwrap_or_default();
    let value = (&raw const value).cast::<c_void>();
    // SAFETY: the value is as long as it says.
    checked(unsafe { next::SETSOCKOPT.get()(fd, level, option, value, len) }).map(|_| ())
}

/// Reads an option that is a number.
pub(super) fn option(fd: c_int, level: c_int, option: c_int) -> Result<c_int, c_int> {
    let mut value: c_int = 0;
    let mut len = socklen_t::try_from(size_of::<c_int>()).unwrap_or_default();
    let room = (&raw mut value).cast::<c_void>();
    // SAFETY: there is as much room as it says.
    let result = unsafe { next::GETSOCKOPT.get()(fd, level, option, room, &raw mut len) };
    checked(result).map(|_| value)
}

/// Sends a datagram made here, without waiting and without SIGPIPE; with a descriptor, if given.
pub(super) fn send(fd: c_int, bytes: &[u8], passed: Option<c_int>) -> Result<(), c_int> {
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: zeros are a value of it.
    let mut message: msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    let rights = passed.map(Rights::new);
    if let Some(rights) = &rights {
        message.msg_control = ptr::from_ref(rights).cast_mut().cast();
        message.msg_controllen = size_of::<Rights>();
    }
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the message's parts outlive the call, which only reads them.
    checked(unsafe { next::SENDMSG.get()(fd, &raw const message, flags) }).map(|_| ())
}

/// Ancillary data with one descriptor.
#[repr(C)]
struct Rights {
    header: libc::cmsghdr,
    descriptor: c_int,
    padding: c_int,
}

impl Rights {
    fn new(descriptor: c_int) -> Self {
        let len = size_of::<libc::cmsghdr>() + size_of::<c_int>();
        // SAFETY: zeros are a value of it.
        let mut header: libc::cmsghdr = unsafe { mem::zeroed() };
        header.cmsg_len = len as _;
        header.cmsg_level = libc::SOL_SOCKET;
        header.cmsg_type = libc::SCM_RIGHTS;
        Self { header, descriptor, padding: 0 }
    }
}

/// Receives a datagram into memory of this library, without waiting.
pub(super) fn receive(fd: c_int, room: &mut [u8]) -> Result<usize, c_int> {
    let (start, len) = (room.as_mut_ptr().cast(), room.len());
    // SAFETY: there is as much room as it says.
    let result: ssize_t = unsafe { next::RECV.get()(fd, start, len, libc::MSG_DONTWAIT) };
    checked(result).map(|len| usize::try_from(len).unwrap_or_default())
}
