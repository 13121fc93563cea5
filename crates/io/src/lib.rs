//! Sources and sinks of bursts.
//!
//! A [`Port`] is one worker's side of a link. It receives and sends bursts of **whole IP packets**;
//! how they travel is its own affair:
//!
//! | module    | for        | what it does                                                        |
//! |-----------|------------|---------------------------------------------------------------------|
//! | [`tun`]   | the plain side | TUN queues; TCP and UDP super-segments split and coalesced      |
//! | [`packet`] | an interface  | `AF_PACKET` sockets: forwards between interfaces of this host    |
//! | [`xdp`]   | an interface   | AF_XDP sockets: the same, with the arena as the kernel's memory |
//! | [`udp`]   | the wire side  | ESP in UDP (RFC 3948), many datagrams per system call           |
//! | [`raw`]   | the wire side  | native ESP, IP protocol 50                                      |
//! | [`mem`]   | tests, demo in one process | two ends joined by rings                            |
//! | [`pcap`]  | tests, captures | replays a file, records to a file, taps another port           |
//! | [`fault`] | tests      | loses, doubles, reorders, damages and cuts packets of another port   |
//! | [`rights`] | the process     | gives up capabilities in all threads, for programs that have started |
//! | [`landlock`] | the process   | which files it may use from then on                               |
//!
//! This crate does not look into packets beyond what a backend needs to carry them.
//!
//! ```
//! use convoy_io::{Port, mem};
//! use convoy_packet::{Arena, Burst, FrameSize};
//!
//! let arena = Arena::map(64, FrameSize::for_packet(1500)).unwrap();
//! let mut pool = arena.pool();
//! let (mut left, mut right) = mem::pair(&mem::Config::default());
//!
//! let mut burst = Burst::new();
//! let mut frame = pool.alloc().unwrap();
//! frame.fill_from(b"a packet").unwrap();
//! burst.push(frame).unwrap();
//! left.tx(&mut pool, &mut burst).unwrap();
//! assert_eq!(right.rx(&mut pool, &mut burst).unwrap(), 1);
//! assert_eq!(burst.as_slice()[0].data(), b"a packet");
//! burst.release(&mut pool);
//! ```
#![deny(unsafe_code)]

mod ancillary;
mod beside;
mod bytes;
mod counters;
mod ebpf;
mod error;
mod error_queue;
mod fast_path;
pub mod fault;
pub mod landlock;
pub mod link;
pub mod mem;
mod offload;
mod outer;
pub mod packet;
pub mod pcap;
mod port;
pub mod raw;
pub mod rights;
mod socket;
mod spi_filter;
mod stash;
#[allow(unsafe_code)]
mod sys;
pub mod tun;
pub mod udp;
pub mod xdp;

pub use beside::{Beside, HostAddresses};
pub use counters::PortCounters;
pub use error::IoError;
pub use fast_path::FastPath;
pub use port::{NewsSource, Offloads, Port, PortEvent, Quote};
pub use socket::SocketOptions;
pub use spi_filter::SpiFilter;
pub use sys::{Words, handed_over};
