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

/// Sets an option whose value is a row of words.
pub(crate) fn set_words<const N: usize>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &[u32; N],
) -> io::Result<()> {
    set(fd, level, name, value)
}

/// The value of an option that is an int.
pub(crate) fn get_int(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
) -> io::Result<libc::c_int> {
    get(fd, level, name, 0)
}

/// Values of options: integers and structures of integers, for which any bytes are a value.
pub(super) trait Plain: Copy {}
impl Plain for libc::c_int {}
impl Plain for libc::xdp_options {}
impl Plain for libc::xdp_statistics {}
impl Plain for libc::xdp_mmap_offsets {}

/// The value of an option; what the kernel leaves out stays as in `value`.
pub(super) fn get<T: Plain>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    mut value: T,
) -> io::Result<T> {
    let mut len = size_of::<T>() as libc::socklen_t;
    let at = &raw mut value;
    // SAFETY: the kernel writes at most `len` bytes at `at`, a live `T` of that size for which any
    // bytes are a value, and the length it wrote at `len`.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, at.cast(), &raw mut len) })?;
    Ok(value)
}

/// Binds a packet socket to an interface, for all protocols.
pub(crate) fn bind_packet(fd: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    bind_packet_for(fd, index, libc::ETH_P_ALL as u16)
}

/// Binds a packet socket to an interface to send there, and to receive nothing.
pub(crate) fn bind_packet_to_send(fd: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    bind_packet_for(fd, index, 0)
}

fn bind_packet_for(fd: BorrowedFd<'_>, index: u32, protocol: u16) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol.to_be(),
        sll_ifindex: index as libc::c_int,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let at = &raw const address;
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes at `at`, a live `sockaddr_ll` of that size.
    check(unsafe { libc::bind(fd.as_raw_fd(), at.cast(), len) })?;
    Ok(())
}

/// Attaches a classic BPF program: as a filter (`SO_ATTACH_FILTER`), or as the selector of a group
/// of sockets (`SO_ATTACH_REUSEPORT_CBPF`).
pub(crate) fn attach_program(
    fd: BorrowedFd<'_>,
    name: libc::c_int,
    program: &[libc::sock_filter],
) -> io::Result<()> {
    set_program(fd, libc::SOL_SOCKET, name, program)
}

/// Sets an option whose value is a classic BPF program.
pub(crate) fn set_program(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    program: &[libc::sock_filter],
) -> io::Result<()> {
    // The kernel copies the instructions; the pointer is `*mut` only by C's habit.
    let described =
        libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    set(fd, level, name, &described)
}

/// Attaches a loaded program as a filter (`SO_ATTACH_BPF`).
pub(crate) fn attach_filter(fd: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    set_int(fd, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, program.as_raw_fd())
}

pub(super) fn set<T>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    let at: *const T = value;
    // SAFETY: the kernel reads `len` bytes at `at`, which is a live `T` of that size; a program
    // described in it is borrowed by the caller for as long.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, at.cast(), len) })?;
    Ok(())
}
