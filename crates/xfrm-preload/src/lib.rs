//! `libconvoy_xfrm.so`: preloaded into an IKE daemon or `ip`, it leads the process's
//! `socket(AF_NETLINK, …, NETLINK_XFRM)` to Convoy's UNIX socket; all else stays the kernel's.
//!
//! An application's descriptor **is** the connection, so `poll`, `select`, `epoll`, `fcntl`, `ioctl` and
//! the buffer options need no help. Only calls that would show that it is no netlink socket are
//! interposed, and each begins with one look at a table of descriptors ([`table`]); what is not in
//! it goes on to libc. An entry is believed only while the descriptor still has the identity noted
//! there, so that `close`, `close_range` or a descriptor closed by a child need no hook.
//!
//! [`wire`] and `docs/xfrm-socket.md` describe the messages on the socket.
//!
//! Requests that wait for an answer get an error when the server goes, and the descriptor's file is
//! replaced (`dup3`) by a timer until a server is there again; epoll registrations are repeated.
//! So a loop around `poll` wakes now and then and does not spin, and the number stays.
//!
//! Out of reach are programs that make system calls by themselves: static ones, Go programs,
//! `io_uring`; and setuid programs and those with file capabilities, for which the loader ignores
//! libraries to preload.

#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod ffi;
pub mod table;
pub mod wire;
