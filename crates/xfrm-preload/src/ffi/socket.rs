//! Sockets and their names.

use std::ffi::c_int;
use std::sync::atomic::Ordering::Relaxed;

use libc::{AF_INET, AF_INET6, AF_NETLINK, AF_UNSPEC, sockaddr, sockaddr_nl, socklen_t};

use super::{answer, dial, next, ours, system};
use crate::table::{self, DESCRIPTORS, Identity, Slot};

const NAME_LEN: usize = size_of::<sockaddr_nl>();

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let flags = kind & (libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);
    let style = kind & !flags;
    let is_xfrm = domain == AF_NETLINK
        && protocol == libc::NETLINK_XFRM
        && matches!(style, libc::SOCK_RAW | libc::SOCK_DGRAM);
    if !is_xfrm {
        // SAFETY: takes numbers only.
        return unsafe { next::SOCKET.get()(domain, kind, protocol) };
    }
    answer(open(style, flags & libc::SOCK_CLOEXEC != 0, flags & libc::SOCK_NONBLOCK != 0))
}

fn open(style: c_int, close_on_exec: bool, nonblocking: bool) -> Result<c_int, c_int> {
    let fd = dial::dial(close_on_exec, nonblocking).map_err(|errno| match errno {
        libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS => errno,
        // As from a kernel without XFRM.
        _ => libc::EPROTONOSUPPORT,
    })?;
    let slot =
        usize::try_from(fd).ok().filter(|fd| *fd < DESCRIPTORS).and_then(|_| table::slot(fd));
    match slot.zip(system::socket_inode(fd)) {
        Some((slot, inode)) => {
            slot.occupy(Identity::socket(inode), style);
            Ok(fd)
        }
        None => {
            system::close(fd);
            Err(libc::EMFILE)
        }
    }
}

/// Reads an address that an application passes; only its family if it need not be netlink's.
///
/// # Safety
///
/// If not null, `name` points to `len` bytes.
pub(super) unsafe fn read_name(
    name: *const sockaddr,
    len: socklen_t,
) -> Result<sockaddr_nl, c_int> {
    if usize::try_from(len).is_ok_and(|len| len < NAME_LEN) {
        return Err(libc::EINVAL);
    }
    if name.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: it is as long as that; alignment does not matter.
    let name = unsafe { name.cast::<sockaddr_nl>().read_unaligned() };
    if c_int::from(name.nl_family) == AF_NETLINK { Ok(name) } else { Err(libc::EINVAL) }
}

/// Writes an address into an application's memory, as far as there is room. Returns its whole length.
///
/// # Safety
///
/// `room` points to `len` bytes.
pub(super) unsafe fn write_name(
    room: *mut sockaddr,
    len: socklen_t,
    port: u32,
    groups: u32,
) -> socklen_t {
    let mut bytes = [0_u8; NAME_LEN];
    let family = libc::sa_family_t::try_from(AF_NETLINK).unwrap_or_default();
    bytes[..2].copy_from_slice(&family.to_ne_bytes());
    bytes[4..8].copy_from_slice(&port.to_ne_bytes());
    bytes[8..].copy_from_slice(&groups.to_ne_bytes());
    let len = usize::try_from(len).unwrap_or_default().min(NAME_LEN);
    // SAFETY: there is room for as much, and the bytes are this function's own.
    unsafe { bytes.as_ptr().copy_to_nonoverlapping(room.cast(), len) };
    socklen_t::try_from(NAME_LEN).unwrap_or_default()
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn bind(fd: c_int, name: *const sockaddr, len: socklen_t) -> c_int {
    if let Some(slot) = ours(fd) {
        // SAFETY: the caller's promise.
        return answer(unsafe { read_name(name, len) }.and_then(|name| bind_to(fd, slot, name)));
    }
    // SAFETY: the caller's promise.
    let result = unsafe { next::BIND.get()(fd, name, len) };
    if result != -1 || system::errno() != libc::EADDRINUSE || !share_port(fd) {
        return result;
    }
    // SAFETY: the caller's promise.
    let again = unsafe { next::BIND.get()(fd, name, len) };
    if again == -1 {
        let errno = system::errno();
        let _ = system::set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 0);
        system::set_errno(errno);
    }
    again
}

/// Convoy may hold the port of an IKE daemon already, shared for it. Nobody else who holds one
/// without sharing is affected.
fn share_port(fd: c_int) -> bool {
    let option = |option| system::option(fd, libc::SOL_SOCKET, option).ok();
    let is_udp = matches!(option(libc::SO_DOMAIN), Some(AF_INET | AF_INET6))
        && option(libc::SO_PROTOCOL) == Some(libc::IPPROTO_UDP)
        && option(libc::SO_REUSEPORT) == Some(0);
    let shared = is_udp && system::set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1).is_ok();
    system::set_errno(libc::EADDRINUSE);
    shared
}

fn bind_to(fd: c_int, slot: &Slot, name: sockaddr_nl) -> Result<c_int, c_int> {
    let port = slot.port.load(Relaxed);
    if port != 0 && name.nl_pid != port {
        return Err(libc::EINVAL);
    }
    if port == 0 {
        if name.nl_pid == 0 {
            dial::choose_port(slot);
        } else if dial::is_taken(name.nl_pid) {
            return Err(libc::EADDRINUSE);
        } else {
            slot.port.store(name.nl_pid, Relaxed);
        }
    }
    slot.groups.store(name.nl_groups, Relaxed);
    dial::tell_address(fd, slot);
    Ok(0)
}

/// Gives a socket an address, if it has none.
pub(super) fn bind_if_unbound(fd: c_int, slot: &Slot) {
    if slot.port.load(Relaxed) == 0 {
        dial::choose_port(slot);
        dial::tell_address(fd, slot);
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn connect(fd: c_int, name: *const sockaddr, len: socklen_t) -> c_int {
    let Some(slot) = ours(fd) else {
        // SAFETY: the caller's promise.
        return unsafe { next::CONNECT.get()(fd, name, len) };
    };
    // SAFETY: the caller's promise.
    answer(unsafe { connect_to(fd, slot, name, len) })
}

/// # Safety
///
/// If not null, `name` points to `len` bytes.
unsafe fn connect_to(
    fd: c_int,
    slot: &Slot,
    name: *const sockaddr,
    len: socklen_t,
) -> Result<c_int, c_int> {
    if len < 2 {
        return Err(libc::EINVAL);
    }
    if name.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: it is as long as a family; alignment does not matter.
    let family = unsafe { name.cast::<libc::sa_family_t>().read_unaligned() };
    let mut peer = [0, 0];
    if c_int::from(family) != AF_UNSPEC {
        // SAFETY: the caller's promise.
        let name = unsafe { read_name(name, len) }?;
        bind_if_unbound(fd, slot);
        // A kernel keeps one group only, the lowest.
        peer = [name.nl_pid, name.nl_groups & name.nl_groups.wrapping_neg()];
    }
    for (place, number) in slot.peer.iter().zip(peer) {
        place.store(number, Relaxed);
    }
    Ok(0)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn getsockname(
    fd: c_int,
    room: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    let Some(slot) = ours(fd) else {
        // SAFETY: the caller's promise.
        return unsafe { next::GETSOCKNAME.get()(fd, room, len) };
    };
    let (port, groups) = (slot.port.load(Relaxed), slot.groups.load(Relaxed));
    // SAFETY: the caller's promise.
    answer(unsafe { give_name(room, len, port, groups) })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn getpeername(
    fd: c_int,
    room: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    let Some(slot) = ours(fd) else {
        // SAFETY: the caller's promise.
        return unsafe { next::GETPEERNAME.get()(fd, room, len) };
    };
    let [port, groups] = &slot.peer;
    // SAFETY: the caller's promise.
    answer(unsafe { give_name(room, len, port.load(Relaxed), groups.load(Relaxed)) })
}

/// # Safety
///
/// If neither is null, `len` points to the number of bytes that `room` points to.
pub(super) unsafe fn give_name(
    room: *mut sockaddr,
    len: *mut socklen_t,
    port: u32,
    groups: u32,
) -> Result<c_int, c_int> {
    if room.is_null() || len.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: the caller's promise.
    let given = unsafe { len.read_unaligned() };
    if given.cast_signed() < 0 {
        return Err(libc::EINVAL);
    }
    // SAFETY: there is room for as many bytes.
    let whole = unsafe { write_name(room, given, port, groups) };
    // SAFETY: the caller's promise.
    unsafe { len.write_unaligned(whole) };
    Ok(0)
}
