//! Messages from the server.

use std::ffi::{c_int, c_void};
use std::mem;
use std::sync::atomic::Ordering::Relaxed;

use libc::{iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use super::options::NO_ENOBUFS;
use super::send::{is_lost, parts, start};
use super::{answer, dial, next, ours, socket, system};
use crate::table::Slot;
use crate::wire;

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn read(fd: c_int, room: *mut c_void, len: size_t) -> ssize_t {
    match ours(fd) {
        // SAFETY: the caller's promise.
        Some(slot) => answer(unsafe { receive_bytes(fd, slot, room, len, 0) }),
        // SAFETY: the caller's promise.
        None => unsafe { next::READ.get()(fd, room, len) },
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn __read_chk(
    fd: c_int,
    room: *mut c_void,
    len: size_t,
    size: size_t,
) -> ssize_t {
    match fitting(fd, len, size) {
        // SAFETY: the caller's promise.
        Some(slot) => answer(unsafe { receive_bytes(fd, slot, room, len, 0) }),
        // SAFETY: the caller's promise.
        None => unsafe { next::READ_CHK.get()(fd, room, len, size) },
    }
}

/// One of ours, if what is asked for fits. If not, libc ends the program.
fn fitting(fd: c_int, len: size_t, size: size_t) -> Option<&'static Slot> {
    if len <= size { ours(fd) } else { None }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn recv(
    fd: c_int,
    room: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    match ours(fd) {
        // SAFETY: the caller's promise.
        Some(slot) => answer(unsafe { receive_bytes(fd, slot, room, len, flags) }),
        // SAFETY: the caller's promise.
        None => unsafe { next::RECV.get()(fd, room, len, flags) },
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn __recv_chk(
    fd: c_int,
    room: *mut c_void,
    len: size_t,
    size: size_t,
    flags: c_int,
) -> ssize_t {
    match fitting(fd, len, size) {
        // SAFETY: the caller's promise.
        Some(slot) => answer(unsafe { receive_bytes(fd, slot, room, len, flags) }),
        // SAFETY: the caller's promise.
        None => unsafe { next::RECV_CHK.get()(fd, room, len, size, flags) },
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn recvfrom(
    fd: c_int,
    room: *mut c_void,
    len: size_t,
    flags: c_int,
    name: *mut sockaddr,
    name_len: *mut socklen_t,
) -> ssize_t {
    match ours(fd) {
        // SAFETY: the caller's promise.
        Some(slot) => answer(unsafe { receive_from(fd, slot, room, len, flags, name, name_len) }),
        // SAFETY: the caller's promise.
        None => unsafe { next::RECVFROM.get()(fd, room, len, flags, name, name_len) },
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn __recvfrom_chk(
    fd: c_int,
    room: *mut c_void,
    len: size_t,
    size: size_t,
    flags: c_int,
    name: *mut sockaddr,
    name_len: *mut socklen_t,
) -> ssize_t {
    match fitting(fd, len, size) {
        // SAFETY: the caller's promise.
        Some(slot) => answer(unsafe { receive_from(fd, slot, room, len, flags, name, name_len) }),
        // SAFETY: the caller's promise.
        None => unsafe { next::RECVFROM_CHK.get()(fd, room, len, size, flags, name, name_len) },
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    let slot = if message.is_null() { None } else { ours(fd) };
    let Some(slot) = slot else {
        // SAFETY: the caller's promise.
        return unsafe { next::RECVMSG.get()(fd, message, flags) };
    };
    // SAFETY: it is not null, and the caller promises the rest.
    let message = unsafe { &mut *message };
    // SAFETY: the caller's promise.
    answer(unsafe { receive_message(fd, slot, message, flags) })
}

/// # Safety
///
/// There is room for `len` bytes.
unsafe fn receive_bytes(
    fd: c_int,
    slot: &Slot,
    room: *mut c_void,
    len: size_t,
    flags: c_int,
) -> Result<ssize_t, c_int> {
    let mut part = iovec { iov_base: room, iov_len: len };
    // SAFETY: zeros are a value of it.
    let mut message: msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    // SAFETY: the caller's promise.
    unsafe { receive_message(fd, slot, &mut message, flags) }
}

/// # Safety
///
/// There is room for `len` bytes, and if neither is null, for as many bytes of a name as `name_len`
/// points to.
unsafe fn receive_from(
    fd: c_int,
    slot: &Slot,
    room: *mut c_void,
    len: size_t,
    flags: c_int,
    name: *mut sockaddr,
    name_len: *mut socklen_t,
) -> Result<ssize_t, c_int> {
    // SAFETY: the caller's promise.
    let received = unsafe { receive_bytes(fd, slot, room, len, flags) }?;
    if !name.is_null() {
        // SAFETY: the caller's promise.
        unsafe { socket::give_name(name, name_len, 0, 0) }?;
    }
    Ok(received)
}

/// Receives a datagram, which comes from port 0, the kernel.
///
/// # Safety
///
/// There is as much room as the message says.
unsafe fn receive_message(
    fd: c_int,
    slot: &Slot,
    message: &mut msghdr,
    flags: c_int,
) -> Result<ssize_t, c_int> {
    if flags & libc::MSG_OOB != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    loop {
        if slot.identity().is_parked() {
            wait_for_server(fd, slot, flags)?;
            continue;
        }
        let mut plain = *message;
        plain.msg_name = std::ptr::null_mut();
        plain.msg_namelen = 0;
        // SAFETY: the caller's promise.
        let received = unsafe { next::RECVMSG.get()(fd, &raw mut plain, flags) };
        let lost = match system::checked(received) {
            // Empty datagrams are never sent.
            Ok(0) => plain.msg_flags & libc::MSG_TRUNC == 0,
            Ok(_) => false,
            Err(errno) if is_lost(errno) => true,
            Err(errno) => return Err(errno),
        };
        let outcome = if lost {
            // SAFETY: the caller's promise.
            unsafe { refuse(slot, message, flags) }
        } else {
            message.msg_flags = plain.msg_flags & !libc::MSG_EOR;
            // SAFETY: the caller's promise.
            unsafe { take_note(fd, slot, message, flags, received) }?
        };
        if let Some(received) = outcome {
            message.msg_controllen = 0;
            if !message.msg_name.is_null() {
                let room = message.msg_name.cast();
                // SAFETY: the caller's promise.
                message.msg_namelen =
                    unsafe { socket::write_name(room, message.msg_namelen, 0, 0) };
            }
            return Ok(received);
        }
        if lost && !dial::redial(fd, slot) && !slot.identity().is_parked() {
            // Another thread is at it.
            give_up_if_nonblocking(fd, flags)?;
            system::pause(5);
        }
    }
}

fn give_up_if_nonblocking(fd: c_int, flags: c_int) -> Result<(), c_int> {
    let nonblocking = flags & libc::MSG_DONTWAIT != 0 || system::is_nonblocking(fd);
    if nonblocking { Err(libc::EAGAIN) } else { Ok(()) }
}

/// Tries to reach a server, not before the timer says so.
fn wait_for_server(fd: c_int, slot: &Slot, flags: c_int) -> Result<(), c_int> {
    if system::readable(fd, 0) == Ok(true) {
        system::drain(fd);
        if dial::redial(fd, slot) {
            return Ok(());
        }
    }
    give_up_if_nonblocking(fd, flags)?;
    system::readable(fd, -1).map(|_| ())
}

/// Looks at what was received: which requests it answers, and whether it says that events were lost.
/// `None` if it is not for the application.
///
/// # Safety
///
/// The buffers that the message points to are as long as it says.
unsafe fn take_note(
    fd: c_int,
    slot: &Slot,
    message: &msghdr,
    flags: c_int,
    received: ssize_t,
) -> Result<Option<ssize_t>, c_int> {
    // SAFETY: the caller's promise.
    let parts = unsafe { parts(message) };
    // SAFETY: the caller's promise.
    let start = unsafe { start(parts) };
    let len = start.len().min(usize::try_from(received).unwrap_or_default());
    let bytes = start.get(..len).unwrap_or_default();
    let peeks = flags & libc::MSG_PEEK != 0;
    if wire::header(bytes).is_some_and(|header| header.kind == wire::OVERRUN) {
        if peeks {
            let _ = system::receive(fd, &mut [0; wire::ERROR_LEN]);
        }
        let silent = slot.options.load(Relaxed) & NO_ENOBUFS != 0;
        return if silent { Ok(None) } else { Err(libc::ENOBUFS) };
    }
    if !peeks {
        for header in wire::headers(bytes).filter(wire::Header::ends_answer) {
            slot.answered(header.seq);
        }
    }
    Ok(Some(received))
}

/// Answers a request whose server went with an error. The end of the connection stays readable until
/// all of them are answered.
///
/// # Safety
///
/// There is as much room as the message says.
unsafe fn refuse(slot: &Slot, message: &mut msghdr, flags: c_int) -> Option<ssize_t> {
    let seq = slot.unanswered()?;
    if flags & libc::MSG_PEEK == 0 {
        slot.answered(seq);
    }
    let refusal = wire::refusal(seq, slot.port.load(Relaxed), libc::ECONNREFUSED);
    let mut left = refusal.as_slice();
    // SAFETY: the caller's promise.
    for part in unsafe { parts(message) } {
        let len = left.len().min(part.iov_len);
        // SAFETY: there is room for as much, and it is not this function's.
        unsafe { left.as_ptr().copy_to_nonoverlapping(part.iov_base.cast(), len) };
        left = &left[len..];
    }
    message.msg_flags = if left.is_empty() { 0 } else { libc::MSG_TRUNC };
    let told = if flags & libc::MSG_TRUNC != 0 { 0 } else { left.len() };
    ssize_t::try_from(refusal.len() - told).ok()
}
