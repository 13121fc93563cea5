//! Super-segments: what the kernel leaves to a device, and what it takes from one.
//!
//! Both ends of a TUN queue and of a packet socket put the same header in front of each packet
//! ([`vnet`]). [`split`] makes packets as they would appear on a wire of what was received,
//! [`coalesce`] makes super-segments of what is sent.

mod coalesce;
mod split;
#[cfg(test)]
mod tests;
mod vnet;

pub(crate) use coalesce::{Coalescer, Write};
pub(crate) use split::{Poured, Split, finish_checksum, finish_partial};
pub(crate) use vnet::{Gso, VNET_LEN, Vnet};

const TCP: u8 = 6;
const UDP: u8 = 17;
/// Offset of the flags in a TCP header, and their names.
const TCP_FLAGS: usize = 13;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const URG: u8 = 0x20;
const CWR: u8 = 0x80;
/// Offsets of the checksums in the transport headers.
const TCP_CSUM: usize = 16;
const UDP_CSUM: usize = 6;
