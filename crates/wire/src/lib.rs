//! Header views and values of the protocols an IPsec gateway handles.
//!
//! This crate knows *formats* and nothing else: it does no I/O, keeps no state, allocates nothing
//! and has no `unsafe`. Each protocol file has the same three things:
//!
//! * a checked **view** (`Ipv4View`, `EspView` …) over borrowed bytes. All length checks happen in
//!   `parse`; afterwards no getter can fail or panic;
//! * a plain value (`Ipv4Repr` …) with `emit`;
//! * where packets are changed in place, a **mutable view** (`Ipv4Mut` …) whose setters keep
//!   checksums right incrementally (RFC 1624).
//!
//! Byte order lives in the types: bytes on the wire are big-endian, everything a getter returns is
//! a host-order number or a newtype around one ([`Spi`], [`SeqNum`], [`Protocol`] …).
//!
//! The hot entry is [`parse_packet`], which turns one IP packet into the [`PacketInfo`] that
//! classification needs, in one pass.
//!
//! ```
//! use convoy_wire::{parse_packet, ParseError, Ports};
//!
//! // 10.0.0.1:4096 → 10.0.0.2:53, UDP, no payload, checksums left out.
//! let packet = [
//!     0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, //
//!     0x10, 0, 0, 53, 0, 8, 0, 0,
//! ];
//! let info = parse_packet(&packet)?;
//! assert_eq!(info.flow.ports, Ports::Known { src: 4096, dst: 53 });
//! assert_eq!(parse_packet(&packet[..27]), Err(ParseError::LengthBeyondData));
//! # Ok::<(), ParseError>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::cast_possible_truncation,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used
    )
)]

#[cfg(test)]
extern crate std;

pub mod ah;
mod bytes;
pub mod checksum;
pub mod ecn;
mod error;
pub mod esp;
pub mod flow;
pub mod icmp;
pub mod ipv4;
pub mod ipv6;
mod number;
pub mod pcap;
mod port;
mod prefix;
mod protocol;
pub mod tcp;
pub mod udp;

pub use ecn::{Dscp, Ecn, Tos};
pub use error::{EmitError, ParseError};
pub use esp::{EspLayout, EspView};
pub use flow::{
    FlowKey, FragmentState, PacketInfo, ParseOptions, Ports, parse_packet, parse_packet_into,
    parse_packet_with, parse_plain, parse_plain_v6,
};
pub use ipv4::{Ipv4Mut, Ipv4Repr, Ipv4View};
pub use ipv6::{Ipv6Mut, Ipv6Repr, Ipv6View};
pub use number::{SeqNum, Spi};
pub use pcap::PcapHeader;
pub use port::{PortRange, PortRangeError};
pub use prefix::{Prefix, PrefixError};
pub use protocol::{IpVersion, Protocol};
pub use tcp::TcpView;
pub use udp::UdpView;
