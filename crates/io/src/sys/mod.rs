//! System calls behind safe functions: the only unsafe code of this crate.
//!
//! Every function takes borrowed descriptors and slices and keeps none of them; the structures that
//! the kernel reads or fills live no longer than the call. The exception is [`xdp`], where the kernel
//! works on frames, which the socket owns meanwhile.

mod bpf;
mod device;
mod inherited;
mod landlock;
mod message;
mod option;
mod poll;
mod rights;
mod ring;
mod spi_table;
mod words;
mod xdp;

#[cfg(test)]
pub(crate) use bpf::try_out;
pub(crate) use bpf::{
    Instruction, XdpLink, load_filter, load_selector, load_xdp, put_shared, remove_shared,
    set_socket, shared_cookie, shared_sockets, socket_map,
};
pub(crate) use device::{
    DeviceName, driver, effective_user, is_tun_queue, rx_queues, set_queue_len, tun_any_index,
    tun_attach, tun_detach, tun_name, tun_parked, tun_set_header_len, tun_set_offload,
    tun_set_owner, tun_set_persist,
};
pub use inherited::handed_over;
pub(crate) use landlock::{
    Handled, landlock_allow_path, landlock_allow_port, landlock_ruleset, landlock_try,
    landlock_version,
};
pub(crate) use message::{
    ADDRESS, CONTROL_IN, CONTROL_OUT, Outgoing, Received, RecvBatch, SendBatch, recv_error,
};
pub(crate) use option::{
    attach_filter, attach_program, bind_packet, bind_packet_to_send, get_int, set_int, set_program,
    set_words,
};
pub(crate) use poll::{forget, gather, wait_writable};
pub(crate) use rights::{Broadcast, Done, is_secure};
pub(crate) use spi_table::{KNOWN, SLOTS, SpiTable, WITH_EDGE, offsets};
pub use words::Words;
pub(crate) use xdp::{ENTRIES, KERNEL_HEADROOM, XdpSocket};

use std::io;

/// The result of a system call that returns a negative number on failure.
fn check(returned: libc::c_int) -> io::Result<usize> {
    usize::try_from(returned).map_err(|_| io::Error::last_os_error())
}
