//! The ports of one worker.

use core::fmt;
use core::net::IpAddr;

use convoy_io::{IoError, Port, PortCounters};
use convoy_packet::{Burst, Pool};

/// Turns in a row that a port is asked although it gave nothing: answers to what was just sent
/// often come within these.
const EAGER: u32 = 16;
/// Afterwards, and as long as nothing signals packets, it is asked every so many turns.
const RETRY: u32 = 4;

/// Selects the outgoing packets that a wire port carries. `None` matches everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireMatch {
    /// IP version of the outer header: 4 or 6.
    pub version: Option<u8>,
    /// Protocol number in the outer header: 50 for native ESP, 17 for ESP in UDP.
    pub protocol: Option<u8>,
    /// UDP source port, that is, our port.
    pub source_port: Option<u16>,
}

impl WireMatch {
    /// True if `packet` (outer header first) goes this way.
    #[inline]
    #[must_use]
    pub fn takes(&self, packet: &[u8]) -> bool {
        let Some(version) = packet.first().map(|b| b >> 4) else { return false };
        if self.version.is_some_and(|v| v != version) {
            return false;
        }
        let (protocol, header) = match version {
            4 => (packet.get(9), usize::from(packet.first().map_or(0, |b| b & 15)) * 4),
            _ => (packet.get(6), 40),
        };
        if self.protocol.is_some_and(|p| protocol != Some(&p)) {
            return false;
        }
        self.source_port.is_none_or(|port| {
            packet.get(header..header + 2).is_some_and(|field| *field == port.to_be_bytes())
        })
    }
}

/// True if the outer header of `packet` has this source address.
#[inline]
pub(crate) fn is_from(packet: &[u8], source: IpAddr) -> bool {
    let version = packet.first().map_or(0, |b| b >> 4);
    match source {
        IpAddr::V4(v4) => version == 4 && packet.get(12..16) == Some(&v4.octets()),
        IpAddr::V6(v6) => version == 6 && packet.get(8..24) == Some(&v6.octets()),
    }
}

/// One way onto the wire.
pub struct WirePort {
    /// Outgoing packets that it carries; the first port that matches and can send it gets the packet.
    pub carries: WireMatch,
    /// The port.
    pub port: Box<dyn Port>,
}

impl fmt::Debug for WirePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WirePort").field("carries", &self.carries).finish_non_exhaustive()
    }
}

/// Everything that one worker receives from and sends to.
pub struct WorkerPorts {
    /// The side of unprotected packets.
    pub plain: Box<dyn Port>,
    /// Plain interfaces beside it, at most 255: the first has number 1
    /// ([`InterfaceId`](convoy_packet::InterfaceId)).
    pub interfaces: Vec<Box<dyn Port>>,
    /// The side of protected packets.
    pub wire: Vec<WirePort>,
}

impl fmt::Debug for WorkerPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerPorts").field("wire", &self.wire).finish_non_exhaustive()
    }
}

/// A port and whether asking it is worth a system call.
pub(crate) struct Source {
    pub(crate) port: Box<dyn Port>,
    /// Packets received and not yet taken by the pipeline.
    pub(crate) input: Burst,
    /// The port said "nothing more" when it was last asked, and nothing was signalled since.
    empty: bool,
    /// It has no descriptor to wait on.
    polled: bool,
    /// Turns since it last gave something.
    quiet: u32,
    /// Counters as they were when last looked at.
    seen: PortCounters,
}

/// Packets a port lost since it was last asked, for reasons that pipelines count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Received with a wrong IPv4 header checksum.
    pub(crate) checksum: u64,
    /// Dropped in the kernel during a flood: of an unknown SPI.
    pub(crate) unknown_spi: u64,
    /// Dropped there with a sequence number before the window.
    pub(crate) too_old: u64,
    /// Too long to be sent.
    pub(crate) too_big: u64,
    /// Not sent for another reason.
    pub(crate) failed: u64,
    /// Such as no router forwards.
    pub(crate) not_forwardable: u64,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("input", &self.input.len()).finish_non_exhaustive()
    }
}

impl Source {
    pub(crate) fn new(port: Box<dyn Port>) -> Self {
        let polled = port.fd().is_none();
        Self {
            port,
            input: Burst::new(),
            empty: false,
            polled,
            quiet: 0,
            seen: PortCounters::default(),
        }
    }

    /// Receives, unless the port has been silent for long and nothing says that this has changed.
    #[inline]
    pub(crate) fn rx(&mut self, pool: &mut Pool) -> Result<usize, IoError> {
        if self.input.is_full() {
            return Ok(0);
        }
        self.quiet = self.quiet.wrapping_add(1);
        let is_idle = self.quiet > EAGER && self.empty && !self.polled;
        if is_idle && !self.quiet.is_multiple_of(RETRY) {
            return Ok(0);
        }
        let n = self.port.rx(pool, &mut self.input)?;
        self.empty = n == 0;
        if n > 0 {
            self.quiet = 0;
        }
        Ok(n)
    }

    /// The port's counters, and what it lost since this was last asked.
    pub(crate) fn count(&mut self) -> (PortCounters, Lost) {
        let now = self.port.counters();
        let failed = |c: &PortCounters| {
            let refused = c.tx_denied + c.tx_error + c.tx_malformed;
            c.tx_would_block + refused + c.tx_unresolved + c.tx_no_route
        };
        let lost = Lost {
            checksum: now.rx_checksum.saturating_sub(self.seen.rx_checksum),
            unknown_spi: now.rx_unknown_spi.saturating_sub(self.seen.rx_unknown_spi),
            too_old: now.rx_too_old.saturating_sub(self.seen.rx_too_old),
            too_big: now.tx_too_big.saturating_sub(self.seen.tx_too_big),
            failed: failed(&now).saturating_sub(failed(&self.seen)),
            not_forwardable: now.tx_not_forwardable.saturating_sub(self.seen.tx_not_forwardable),
        };
        self.seen = now;
        (now, lost)
    }

    /// The kernel signalled packets or news.
    pub(crate) fn signalled(&mut self) {
        self.empty = false;
    }

    /// True if its worker may sleep as far as this port is concerned.
    pub(crate) fn is_idle(&self) -> bool {
        self.empty && self.input.is_empty()
    }

    /// True if the port cannot signal and must be asked from time to time.
    pub(crate) fn is_polled(&self) -> bool {
        self.polled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4_udp(source: u16) -> Vec<u8> {
        let mut packet = vec![0; 28];
        packet[0] = 0x45;
        packet[9] = 17;
        packet[20..22].copy_from_slice(&source.to_be_bytes());
        packet
    }

    fn udp_4500() -> WireMatch {
        let source_port = Some(4500);
        WireMatch { version: Some(4), protocol: Some(17), source_port }
    }

    #[test]
    fn the_source_address_of_a_packet_is_found() {
        let is = |packet: &[u8], source: &str| is_from(packet, source.parse().unwrap());
        let mut v4 = v4_udp(4500);
        v4[12..16].copy_from_slice(&[192, 0, 2, 1]);
        assert!(is(&v4, "192.0.2.1") && !is(&v4, "192.0.2.2") && !is(&v4, "::"));
        assert!((0..16).all(|len| !is(&v4[..len], "192.0.2.1")));
        let mut v6 = vec![0; 48];
        v6[0] = 0x60;
        v6[8..10].copy_from_slice(&[0xfd, 0]);
        v6[23] = 1;
        assert!(is(&v6, "fd00::1") && !is(&v6, "fd00::2"));
        // The same bytes in the wrong place.
        v6[12..16].copy_from_slice(&[192, 0, 2, 1]);
        assert!(!is(&v6, "192.0.2.1"));
    }

    #[test]
    fn a_port_carries_what_its_version_protocol_and_source_port_say() {
        let native = WireMatch { version: Some(4), protocol: Some(50), source_port: None };
        let udp = udp_4500();
        let mut esp = v4_udp(4500);
        esp[9] = 50;
        assert!(native.takes(&esp) && !udp.takes(&esp));
        assert!(udp.takes(&v4_udp(4500)) && !udp.takes(&v4_udp(4501)));
        let mut v6 = vec![0; 48];
        v6[0] = 0x60;
        v6[6] = 17;
        assert!(!udp.takes(&v6));
        v6[40..42].copy_from_slice(&4500_u16.to_be_bytes());
        assert!(WireMatch { version: Some(6), ..udp }.takes(&v6));
        assert!(WireMatch::default().takes(&v6) && !WireMatch::default().takes(&[]));
    }

    #[test]
    fn a_packet_cut_short_matches_no_port_that_looks_there() {
        let udp = udp_4500();
        let packet = v4_udp(4500);
        for len in 0..22 {
            assert!(!udp.takes(&packet[..len]), "{len} bytes");
        }
    }
}
