//! `convoy helper`: what a gateway leaves to a process of its own.

use std::os::fd::AsFd as _;

use nix::sys::socket::{AddressFamily, SockType, SockaddrLike as _, UnixAddr};
use nix::sys::socket::{getsockname, getsockopt, sockopt};

use crate::exit::{Exit, Stop};
use crate::gateway;

pub(crate) fn run() -> anyhow::Result<Exit> {
    if !is_unix_stream() {
        return Err(Stop::usage(
            "this verb is for `convoy run` and for convoy-helper.socket, which start it by themselves",
        ));
    }
    gateway::serve_as_helper()?;
    Ok(Exit::Ok)
}

/// True if standard input is a Unix stream socket, as a gateway gives it.
fn is_unix_stream() -> bool {
    let stdin = std::io::stdin();
    getsockopt(&stdin.as_fd(), sockopt::SockType).is_ok_and(|kind| kind == SockType::Stream)
        && getsockname::<UnixAddr>(std::os::fd::AsRawFd::as_raw_fd(&stdin))
            .is_ok_and(|address| address.family() == Some(AddressFamily::Unix))
}
