//! Messages that a listening socket leaves out: the kernel throws them away, and nobody is woken for them.

use std::{io, os::fd::AsFd};

use socket2::{SockFilter, SockRef};

/// Of `struct nlmsghdr`: the type, and the port of the socket that asked for the change.
const TYPE_AT: u32 = 4;
const PORT_AT: u32 = 12;
/// Of `struct rtmsg` behind it: who laid the route.
const PROTOCOL_AT: u32 = 16 + 5;
/// `RTM_NEWROUTE`, `RTM_DELROUTE`.
const NEW_ROUTE: u16 = 24;
const DELETE_ROUTE: u16 = 25;

/// From linux/filter.h: `BPF_LD` of a word, half word and byte at an offset, `BPF_JMP | BPF_JEQ | BPF_K`, and
/// `BPF_RET | BPF_K` with the number of bytes to keep.
const WORD: u16 = 0x20;
const HALF: u16 = 0x28;
const BYTE: u16 = 0x30;
const JUMP_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
const ALL: u32 = u32::MAX;

const fn load(size: u16, at: u32) -> SockFilter {
    SockFilter::new(size, 0, 0, at)
}

const fn end(kept: u32) -> SockFilter {
    SockFilter::new(RETURN, 0, 0, kept)
}

/// As the filter loads it: in network order, where netlink has the host's.
const fn half(value: u16) -> u32 {
    value.to_be() as u32
}

/// Leaves out what the socket with this port asked for.
///
/// # Errors
/// The kernel has no filters.
pub(crate) fn leave_out_of_port(socket: &impl AsFd, port: u32) -> io::Result<()> {
    let program =
        [load(WORD, PORT_AT), SockFilter::new(JUMP_EQUAL, 0, 1, port.to_be()), end(0), end(ALL)];
    SockRef::from(socket).attach_filter(&program)
}

/// Leaves out routes of this origin (`proto` in `ip route`) that come and go.
///
/// # Errors
/// The kernel has no filters.
pub fn leave_out_routes_of(socket: &impl AsFd, protocol: u8) -> io::Result<()> {
    let program = [
        load(HALF, TYPE_AT),
        SockFilter::new(JUMP_EQUAL, 1, 0, half(NEW_ROUTE)),
        SockFilter::new(JUMP_EQUAL, 0, 3, half(DELETE_ROUTE)),
        load(BYTE, PROTOCOL_AT),
        SockFilter::new(JUMP_EQUAL, 0, 1, protocol as u32),
        end(0),
        end(ALL),
    ];
    SockRef::from(socket).attach_filter(&program)
}
