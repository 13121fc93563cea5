//! The contract of every backend.

use core::fmt;
use core::net::IpAddr;
use std::os::fd::BorrowedFd;

use convoy_packet::{Burst, Pool};

use crate::{IoError, PortCounters};

/// One worker's side of a link: where bursts of whole IP packets come from and go to.
///
/// A port has one owner and is driven by it alone. After set-up no method allocates. An error means
/// that the port is dead; everything less is a counter.
pub trait Port: Send {
    /// Receives what is there, without blocking: appends up to [`Burst::room`] frames, each holding
    /// one whole IP packet, and returns how many.
    ///
    /// A return of 0 means that nothing more is there now, and only then may a worker sleep on
    /// [`Self::fd`]: a port may hold the rest of a super-segment that did not fit. It also means so
    /// when no frame was free ([`PortCounters::rx_no_frame`]); then there may be more, which the
    /// descriptor does not signal, and the worker should ask again once frames came back.
    ///
    /// # Errors
    /// [`IoError::Dead`] when the port can never receive again.
    fn rx(&mut self, pool: &mut Pool, into: &mut Burst) -> Result<usize, IoError>;

    /// Sends all packets. Afterwards `from` is empty: each packet was given on or counted as lost,
    /// and its frame went back to `pool` or to the peer.
    ///
    /// When the way out is full this waits, a few milliseconds at most per call, before packets are
    /// dropped as [`PortCounters::tx_would_block`]. Packets may be changed in place.
    ///
    /// # Errors
    /// [`IoError::Dead`] when the port can never send again; all frames are given back then too.
    fn tx(&mut self, pool: &mut Pool, from: &mut Burst) -> Result<(), IoError>;

    /// True if this port can send a packet now. Of several ports for one kind of packets, the next one gets what
    /// this one cannot send.
    fn can_send(&mut self, packet: &[u8]) -> bool {
        let _ = packet;
        true
    }

    /// News from the network about packets sent earlier, until there is none. Costs no system call
    /// unless the kernel signalled news.
    fn event(&mut self) -> Option<PortEvent> {
        None
    }

    /// The descriptor that becomes readable when packets arrive (and signals an error condition
    /// when [`Self::event`] has news); `None` when the port must be polled.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Counts since the port was opened.
    fn counters(&self) -> PortCounters;

    /// Help of the kernel that this port uses.
    fn offloads(&self) -> Offloads {
        Offloads::default()
    }
}

impl<P: Port + ?Sized> Port for Box<P> {
    fn rx(&mut self, pool: &mut Pool, into: &mut Burst) -> Result<usize, IoError> {
        (**self).rx(pool, into)
    }
    fn tx(&mut self, pool: &mut Pool, from: &mut Burst) -> Result<(), IoError> {
        (**self).tx(pool, from)
    }
    fn can_send(&mut self, packet: &[u8]) -> bool {
        (**self).can_send(packet)
    }
    fn event(&mut self) -> Option<PortEvent> {
        (**self).event()
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        (**self).fd()
    }
    fn counters(&self) -> PortCounters {
        (**self).counters()
    }
    fn offloads(&self) -> Offloads {
        (**self).offloads()
    }
}

/// News from the network about a packet that this port sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PortEvent {
    /// A packet did not fit through a link on its way.
    PathMtu {
        /// Destination of the packet (the outer one).
        destination: IpAddr,
        /// Largest packet that fits, in bytes with the outer IP header; 0 when the router did not
        /// say (RFC 1191 section 5).
        mtu: u32,
        /// Origin of the news.
        source: NewsSource,
        /// Quoted part of the packet.
        quote: Quote,
    },
    /// A packet could not be delivered.
    Unreachable {
        /// Destination of the packet (the outer one).
        destination: IpAddr,
        /// ICMP or ICMPv6 type and code; (0, 0) when this host itself refused.
        icmp: (u8, u8),
        /// Origin of the news.
        source: NewsSource,
        /// Quoted part of the packet.
        quote: Quote,
    },
}

/// Origin of a [`PortEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewsSource {
    /// This host's kernel: its own link is too small. This can be believed.
    Local,
    /// An ICMP message, from the given router if known. Anyone can forge one: believe it only when
    /// [`Quote::Esp`] names a packet that was sent.
    Icmp(Option<IpAddr>),
}

/// Part that an ICMP message quotes of the packet that caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quote {
    /// The quote ends before the sequence number, so it proves nothing.
    TooShort,
    /// The first eight bytes of the quoted ESP header.
    Esp {
        /// Security parameters index.
        spi: u32,
        /// The sequence number as sent (low 32 bits).
        seq_low: u32,
    },
}

impl Quote {
    /// Reads `payload`, the quoted packet from its ESP header on.
    #[must_use]
    pub fn of(payload: &[u8]) -> Self {
        match payload.first_chunk::<8>() {
            Some(&[a, b, c, d, e, f, g, h]) => Self::Esp {
                spi: u32::from_be_bytes([a, b, c, d]),
                seq_low: u32::from_be_bytes([e, f, g, h]),
            },
            None => Self::TooShort,
        }
    }
}

/// Help of the kernel that a port uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Offloads {
    /// TCP super-segments are taken from the kernel and split here.
    pub rx_tcp_segments: bool,
    /// UDP datagrams arrive several at a time (USO on TUN, `UDP_GRO` on sockets).
    pub rx_udp_segments: bool,
    /// TCP segments are coalesced and given to the kernel as one.
    pub tx_tcp_segments: bool,
    /// UDP datagrams are given to the kernel several at a time (USO on TUN, `UDP_SEGMENT`).
    pub tx_udp_segments: bool,
    /// Transport checksums of local traffic are left to this port.
    pub rx_checksum: bool,
    /// Several packets per system call.
    pub batch: bool,
    /// Losses in the kernel's receive queue are counted.
    pub kernel_drops: bool,
    /// ICMP errors about sent packets are reported as events.
    pub error_queue: bool,
    /// Several ports share the address, each receiving its share of the SPIs.
    pub spread_by_spi: bool,
    /// Packets are taken in the interface's driver (AF_XDP), not behind it.
    pub native_xdp: bool,
    /// The interface itself writes into frames (AF_XDP).
    pub zero_copy: bool,
}

impl Offloads {
    /// All features as (name, active), in a fixed order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, bool)> {
        [
            ("rx_tcp_segments", self.rx_tcp_segments),
            ("rx_udp_segments", self.rx_udp_segments),
            ("tx_tcp_segments", self.tx_tcp_segments),
            ("tx_udp_segments", self.tx_udp_segments),
            ("rx_checksum", self.rx_checksum),
            ("batch", self.batch),
            ("kernel_drops", self.kernel_drops),
            ("error_queue", self.error_queue),
            ("spread_by_spi", self.spread_by_spi),
            ("native_xdp", self.native_xdp),
            ("zero_copy", self.zero_copy),
        ]
        .into_iter()
    }
}

impl fmt::Display for Offloads {
    /// The active features, separated by blanks.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut gap = "";
        for (name, _) in self.iter().filter(|(_, active)| *active) {
            write!(f, "{gap}{name}")?;
            gap = " ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_of_seven_bytes_proves_nothing() {
        assert_eq!(Quote::of(&[1, 2, 3, 4, 5, 6, 7]), Quote::TooShort);
        let esp = Quote::Esp { spi: 0x0102_0304, seq_low: 0x0506_0708 };
        assert_eq!(Quote::of(&[1, 2, 3, 4, 5, 6, 7, 8]), esp);
    }

    #[test]
    fn offloads_print_what_is_active() {
        let offloads = Offloads { batch: true, kernel_drops: true, ..Default::default() };
        assert_eq!(offloads.to_string(), "batch kernel_drops");
    }
}
