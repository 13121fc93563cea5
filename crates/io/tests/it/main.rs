//! The integration tests of this crate, in one program: linking is what many would cost.
#![allow(clippy::unwrap_used, reason = "tests")]

#[macro_use]
mod common;
mod forged_mtu;
mod no_alloc;
mod packet;
mod pcap;
mod raw;
mod tun;
mod tun_strangers;
mod udp;
mod xdp;
