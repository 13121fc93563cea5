//! Messages to the server.

use std::ffi::{c_int, c_void};
use std::{mem, ptr, slice};

use libc::{iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use super::{answer, dial, exempt, next, ours, socket, system};
use crate::table::Slot;
use crate::wire::{self, FIRST_XFRM_TYPE};

/// Number of steps, each of [`STEP`] milliseconds, for which a call waits for the answer: from a kernel it is there
/// when the call returns.
const STEPS: u32 = 20;
const STEP: c_int = 5;
/// Milliseconds before a call gives up on a server, so that programs that try again do not spin.
const PATIENCE: c_int = 100;

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn write(fd: c_int, bytes: *const c_void, len: size_t) -> ssize_t {
    match ours(fd) {
        // SAFETY: the caller's promise.
        Some(slot) => unsafe { send_bytes(fd, slot, bytes, len, 0, None) },
        // SAFETY: the caller's promise.
        None => unsafe { next::WRITE.get()(fd, bytes, len) },
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn send(
    fd: c_int,
    bytes: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    match ours(fd) {
        // SAFETY: the caller's promise.
        Some(slot) => unsafe { send_bytes(fd, slot, bytes, len, flags, None) },
        // SAFETY: the caller's promise.
        None => unsafe { next::SEND.get()(fd, bytes, len, flags) },
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    bytes: *const c_void,
    len: size_t,
    flags: c_int,
    name: *const sockaddr,
    name_len: socklen_t,
) -> ssize_t {
    match ours(fd) {
        // SAFETY: the caller's promise.
        Some(slot) => unsafe {
            send_bytes(fd, slot, bytes, len, flags, (!name.is_null()).then_some((name, name_len)))
        },
        // SAFETY: the caller's promise.
        None => unsafe { next::SENDTO.get()(fd, bytes, len, flags, name, name_len) },
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    let slot = if message.is_null() { None } else { ours(fd) };
    match slot {
        Some(slot) => {
            // SAFETY: it is not null, and the caller promises the rest.
            let message = unsafe { &*message };
            // SAFETY: the caller's promise.
            unsafe { send_message(fd, slot, message, flags) }
        }
        // SAFETY: the caller's promise.
        None => unsafe { next::SENDMSG.get()(fd, message, flags) },
    }
}

/// # Safety
///
/// `bytes` points to `len` bytes, and the name to as many as it says.
unsafe fn send_bytes(
    fd: c_int,
    slot: &Slot,
    bytes: *const c_void,
    len: size_t,
    flags: c_int,
    name: Option<(*const sockaddr, socklen_t)>,
) -> ssize_t {
    let mut part = iovec { iov_base: bytes.cast_mut(), iov_len: len };
    // SAFETY: zeros are a value of it.
    let mut message: msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if let Some((name, len)) = name {
        message.msg_name = name.cast_mut().cast();
        message.msg_namelen = len;
    }
    // SAFETY: the caller's promise.
    unsafe { send_message(fd, slot, &message, flags) }
}

/// # Safety
///
/// The buffers that the message points to are as long as it says.
unsafe fn send_message(fd: c_int, slot: &Slot, message: &msghdr, flags: c_int) -> ssize_t {
    if flags & libc::MSG_OOB != 0 {
        return answer(Err(libc::EOPNOTSUPP));
    }
    // SAFETY: the caller's promise.
    let parts = unsafe { parts(message) };
    if parts.iter().all(|part| part.iov_len == 0) {
        return answer(Err(libc::ENODATA));
    }
    if message.msg_namelen > 0 {
        // SAFETY: the caller's promise.
        match unsafe { socket::read_name(message.msg_name.cast(), message.msg_namelen) } {
            // No other process can be reached from here.
            Ok(name) if name.nl_pid != 0 => return answer(Err(libc::ECONNREFUSED)),
            Ok(_) => {}
            Err(errno) => return answer(Err(errno)),
        }
    }
    socket::bind_if_unbound(fd, slot);
    // SAFETY: the caller's promise.
    let start = unsafe { start(parts) };
    let plain = msghdr { msg_name: ptr::null_mut(), msg_namelen: 0, ..*message };
    // SAFETY: the caller's promise.
    answer(transmit(fd, slot, start, || unsafe {
        next::SENDMSG.get()(fd, &raw const plain, flags | libc::MSG_NOSIGNAL)
    }))
}

/// The parts of a message.
///
/// # Safety
///
/// `msg_iov` points to as many parts as it says, which nobody changes while the slice is used.
pub(super) unsafe fn parts(message: &msghdr) -> &[iovec] {
    if message.msg_iov.is_null() || message.msg_iovlen == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(message.msg_iov, message.msg_iovlen) }
}

/// The bytes of the first part, where the headers are.
///
/// # Safety
///
/// The part is as long as it says, and nobody changes it while the slice is used.
pub(super) unsafe fn start(parts: &[iovec]) -> &[u8] {
    let Some(first) = parts.iter().find(|part| part.iov_len > 0 && !part.iov_base.is_null()) else {
        return &[];
    };
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(first.iov_base.cast(), first.iov_len) }
}

/// Sends requests and waits a while for what a kernel would have answered by then.
fn transmit(
    fd: c_int,
    slot: &Slot,
    start: &[u8],
    send: impl Fn() -> ssize_t,
) -> Result<ssize_t, c_int> {
    let requests = || wire::headers(start).filter(|header| header.kind >= FIRST_XFRM_TYPE);
    let awaited = || requests().filter(wire::Header::wants_answer);
    awaited().for_each(|header| slot.expect(header.seq));
    let sent = attempt(slot, &send).or_else(|errno| {
        if !is_lost(errno) {
            return Err(errno);
        }
        // Not waited for any more, but those before still are.
        awaited().for_each(|header| {
            slot.answered(header.seq);
        });
        again(fd, slot, &send, || awaited().for_each(|header| slot.expect(header.seq)))
    });
    if sent.is_err() {
        awaited().for_each(|header| {
            slot.answered(header.seq);
        });
        return sent;
    }
    if requests().next().is_some() {
        let waits = awaited().next().map(|header| header.seq);
        let errno = system::errno();
        exempt::catch_up();
        wait_for_answer(fd, slot, waits);
        system::set_errno(errno);
    }
    sent
}

fn attempt(slot: &Slot, send: &impl Fn() -> ssize_t) -> Result<ssize_t, c_int> {
    if slot.identity().is_parked() { Err(libc::EPIPE) } else { system::checked(send()) }
}

/// True if an error says that the server went.
pub(super) fn is_lost(errno: c_int) -> bool {
    matches!(errno, libc::EPIPE | libc::ECONNRESET | libc::ENOTCONN | libc::ENOTSOCK)
}

/// Sends to the next server, if there is one soon.
fn again(
    fd: c_int,
    slot: &Slot,
    send: &impl Fn() -> ssize_t,
    expect: impl Fn(),
) -> Result<ssize_t, c_int> {
    use std::sync::atomic::Ordering::Relaxed;
    // The errors for earlier requests are read from the old connection. Whoever does not read them
    // but goes on sending, does not want them.
    if slot.unanswered().is_some() {
        if slot.refused.swap(1, Relaxed) == 0 {
            system::pause(PATIENCE);
            return Err(libc::ECONNREFUSED);
        }
        slot.forget_pending();
    }
    for patience in [PATIENCE, 0] {
        if dial::redial(fd, slot) {
            slot.refused.store(0, Relaxed);
            expect();
            return system::checked(send())
                .map_err(|errno| if is_lost(errno) { libc::ECONNREFUSED } else { errno });
        }
        if patience > 0 {
            system::pause(patience);
        }
    }
    Err(libc::ECONNREFUSED)
}

fn wait_for_answer(fd: c_int, slot: &Slot, awaited: Option<u32>) {
    for _ in 0..STEPS {
        // Another thread may have read the answer.
        let read = awaited.is_some_and(|seq| !slot.awaits(seq));
        if read || system::readable(fd, STEP) != Ok(false) {
            return;
        }
    }
}
