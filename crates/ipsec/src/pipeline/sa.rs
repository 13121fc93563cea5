//! Hot SAs: what a worker keeps per SA and touches per packet.

use std::net::IpAddr;
use std::sync::Arc;

use convoy_crypto::prefetch_read;
use convoy_wire::{IpVersion, Protocol, Spi, Tos, esp};

use super::Now;
use super::ah::AhLayout;
use super::layout::{Layout, UDP_HEADER};
use crate::counters::SaCounters;
use crate::lifetime::{Meter, Numbers};
use crate::replay::{Floor, ReplayWindow};
use crate::sa::{InboundSpec, IpsecProtocol, Mode, OuterHeader, OutboundSpec, ReqId, UdpEncap};
use crate::sequence::SequenceCounter;
use crate::snapshot::SpiKey;
use crate::suite::{AhSuite, EspSuite};

/// Outer IP header and, with encapsulation, UDP header, as far as they are the same for every
/// packet of an SA.
#[derive(Clone, Copy, Debug)]
pub(super) struct OuterTemplate {
    bytes: [u8; 48],
    ip_len: u8,
    len: u8,
    /// Sum of the IPv4 header's constant 16-bit words, folded.
    sum: u16,
}

impl OuterTemplate {
    pub(super) fn new(spec: &OutboundSpec) -> Self {
        let protocol = if spec.encap.is_some() { Protocol::UDP } else { spec.protocol.number() };
        let mut template = match (spec.endpoints.local, spec.endpoints.remote) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                let mut header = [0_u8; 20];
                header[0] = 0x45;
                header[8] = spec.outer.hop_limit;
                header[9] = protocol.0;
                header[12..16].copy_from_slice(&local.octets());
                header[16..20].copy_from_slice(&remote.octets());
                Self::with_ip(&header)
            }
            (local, remote) => {
                let mut header = [0_u8; 40];
                header[0] = 0x60;
                header[6] = protocol.0;
                header[7] = spec.outer.hop_limit;
                header[8..24].copy_from_slice(&v6(local));
                header[24..40].copy_from_slice(&v6(remote));
                Self::with_ip(&header)
            }
        };
        if let Some(UdpEncap { local_port, remote_port, .. }) = spec.encap {
            let at = usize::from(template.ip_len);
            template.bytes[at..at + 2].copy_from_slice(&local_port.to_be_bytes());
            template.bytes[at + 2..at + 4].copy_from_slice(&remote_port.to_be_bytes());
            template.len += UDP_HEADER as u8;
        }
        template
    }

    fn with_ip(header: &[u8]) -> Self {
        let mut bytes = [0; 48];
        bytes[..header.len()].copy_from_slice(header);
        let sum: u32 = header.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
        let len = header.len() as u8;
        Self { bytes, ip_len: len, len, sum: fold(fold(sum)) as u16 }
    }

    /// Bytes before the ESP header.
    #[inline]
    pub(super) fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Length of the IP header.
    #[inline]
    pub(super) fn ip_len(&self) -> usize {
        usize::from(self.ip_len)
    }

    /// Length of the UDP header; 0 without encapsulation.
    #[inline]
    pub(super) fn udp_len(&self) -> usize {
        usize::from(self.len - self.ip_len)
    }

    /// The UDP header for a packet of `total` bytes whose UDP header begins at `at`, without
    /// checksum.
    #[inline]
    pub(super) fn write_udp(&self, packet: &mut [u8], at: usize, total: usize) {
        let Some(into) = packet.get_mut(at..at + self.udp_len()) else { return };
        into.copy_from_slice(&self.bytes[self.ip_len()..self.len()]);
        if let Some(field) = into.get_mut(4..6) {
            field.copy_from_slice(&((total - at) as u16).to_be_bytes());
        }
    }

    /// Writes the headers of a packet of `total` bytes to its front.
    ///
    /// `id` is the IPv4 identification: it must differ between packets that may be fragmented
    /// (RFC 6864 section 4), for which the low half of the sequence number serves.
    #[inline]
    pub(super) fn write(&self, packet: &mut [u8], total: usize, tos: Tos, df: bool, id: u16) {
        let Some(front) = packet.get_mut(..self.ip_len()) else { return };
        front.copy_from_slice(&self.bytes[..self.ip_len()]);
        if self.ip_len == 20 {
            let Some(ip) = front.first_chunk_mut::<20>() else { return };
            let flags = if df { 0x4000_u16 } else { 0 };
            ip[1] = tos.0;
            ip[2..4].copy_from_slice(&(total as u16).to_be_bytes());
            ip[4..6].copy_from_slice(&id.to_be_bytes());
            ip[6..8].copy_from_slice(&flags.to_be_bytes());
            let sum = u32::from(self.sum)
                + u32::from(tos.0)
                + (total as u32 & 0xffff)
                + u32::from(id)
                + u32::from(flags);
            let sum = fold(fold(sum)) as u16;
            ip[10..12].copy_from_slice(&(!sum).to_be_bytes());
        } else {
            let Some(ip) = front.first_chunk_mut::<40>() else { return };
            ip[0] = 0x60 | tos.0 >> 4;
            ip[1] = tos.0 << 4;
            ip[4..6].copy_from_slice(&((total - 40) as u16).to_be_bytes());
        }
        if self.len != self.ip_len {
            self.write_udp(packet, self.ip_len(), total);
        }
    }
}

/// Adds the carries of a sum of 16-bit words back in; what two such steps leave has 16 bits.
const fn fold(sum: u32) -> u32 {
    (sum & 0xffff) + (sum >> 16)
}

fn v6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
    }
}

/// An SA that protects, on the worker that owns it: three cache lines with all that its packets need.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct OutboundSa {
    pub(super) sequence: SequenceCounter,
    /// Counts against the SA's lifetime.
    pub(super) meter: Meter,
    pub(super) counters: Arc<SaCounters>,
    pub(super) spec: Arc<OutboundSpec>,
    pub(super) outer: OuterTemplate,
    /// What the SA's packets have in common.
    pub(super) layout: Layout,
    /// The same of an SA of AH.
    pub(super) ah: Option<AhLayout>,
    pub(super) mode: Mode,
    /// How the outer header is made.
    pub(super) rules: OuterHeader,
    pub(super) spi: Spi,
    pub(super) reqid: ReqId,
    /// Largest outer packet the path takes, in bytes.
    pub(super) path_mtu: u32,
    /// To how many bytes inner packets are filled up, as far as the path takes it.
    pub(super) pad_to: u16,
    /// When a router last lowered the path MTU, if it is not what was configured.
    pub(super) mtu_lowered: Now,
    /// When a keepalive last left, or the SA began.
    pub(super) last_keepalive: Now,
}

const _: () = assert!(size_of::<Option<OutboundSa>>() <= 256);

impl OutboundSa {
    /// The hot SA of a record; `None` for a suite that no snapshot takes.
    pub(super) fn new(
        spec: Arc<OutboundSpec>,
        sequence: SequenceCounter,
        now: Now,
    ) -> Option<Self> {
        let suite = EspSuite::new(spec.key.suite()).ok()?;
        let counters = spec.counters.clone();
        counters.path_mtu.set(spec.path_mtu.into());
        Some(Self {
            outer: OuterTemplate::new(&spec),
            layout: Layout::new(suite, spec.esn, spec.salt),
            ah: ah_layout(spec.protocol, suite, spec.esn, spec.endpoints.remote)?,
            mode: spec.mode,
            rules: spec.outer,
            spi: spec.spi,
            reqid: spec.reqid,
            pad_to: match (spec.protocol, spec.mode) {
                (IpsecProtocol::Esp, Mode::Tunnel) => spec.pad_to,
                _ => 0,
            },
            meter: Meter::new(&spec.lifetime, &counters.usage, sequence.numbers(), now),
            sequence,
            path_mtu: spec.path_mtu.into(),
            mtu_lowered: now,
            last_keepalive: now,
            counters,
            spec,
        })
    }

    /// Bytes of header that go in front of a payload.
    #[inline]
    pub(super) fn prefix_len(&self) -> usize {
        self.ah.as_ref().map_or_else(|| self.layout.lengths().prefix_len(), AhLayout::header_len)
    }

    /// Bytes that a payload has with all that the protocol puts around it.
    #[inline]
    pub(super) fn sealed_len(&self, payload: usize) -> usize {
        match &self.ah {
            Some(ah) => ah.header_len() + payload,
            None => self.layout.lengths().sealed_len(payload),
        }
    }

    /// The longest payload that [`sealed_len`](Self::sealed_len) keeps within `room` bytes.
    pub(super) fn max_payload_len(&self, room: usize) -> usize {
        match &self.ah {
            Some(ah) => room.saturating_sub(ah.header_len()),
            None => self.layout.lengths().max_payload_len(room).unwrap_or(0),
        }
    }

    /// Bytes that a frame must have room for behind a payload filled up by `fill` bytes.
    #[inline]
    pub(super) fn room_behind(&self, fill: usize) -> usize {
        match &self.ah {
            Some(ah) => ah.behind(),
            None => {
                let lengths = self.layout.lengths();
                fill + lengths.align() + esp::TRAILER_LEN + lengths.icv_len()
            }
        }
    }

    /// Bytes that a payload has with what fills it up (RFC 4303 section 2.7); never more than the
    /// path takes.
    #[inline]
    pub(super) fn filled(&self, payload: usize) -> usize {
        let pad_to = usize::from(self.pad_to);
        if pad_to <= payload {
            return payload;
        }
        let room = (self.path_mtu as usize).saturating_sub(self.outer.len());
        pad_to.min(self.max_payload_len(room)).max(payload)
    }

    /// Takes over a smaller path MTU in bytes; says whether it is smaller.
    pub(super) fn narrow(&mut self, now: Now, mtu: u32) -> bool {
        // Below these no link of the IP version may go (RFC 791, RFC 8200 section 5).
        let least = if self.spec.endpoints.remote.is_ipv4() { 576 } else { 1280 };
        let mtu = mtu.max(least);
        if mtu >= self.path_mtu {
            return false;
        }
        self.path_mtu = mtu;
        self.mtu_lowered = now;
        self.counters.path_mtu.set(mtu.into());
        true
    }

    /// Whether the path was found narrower than configured, and when.
    #[inline]
    pub(super) fn lowered(&self) -> Option<Now> {
        (self.path_mtu != u32::from(self.spec.path_mtu)).then_some(self.mtu_lowered)
    }
}

/// An SA that opens, on the worker that owns it: three cache lines with all that its packets need.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct InboundSa {
    /// What its packets are found by.
    pub(super) key: SpiKey,
    pub(super) window: ReplayWindow,
    /// Counts against the SA's lifetime.
    pub(super) meter: Meter,
    pub(super) counters: Arc<SaCounters>,
    /// Raised with the window.
    pub(super) floor: Arc<Floor>,
    pub(super) spec: Arc<InboundSpec>,
    /// What the SA's packets have in common.
    pub(super) layout: Layout,
    /// The same of an SA of AH.
    pub(super) ah: Option<AhLayout>,
    pub(super) spi: Spi,
    pub(super) reqid: ReqId,
    /// Tells this SA from an earlier one in the same slot, for jobs that were in flight.
    pub(super) epoch: u32,
    /// Our UDP port, with encapsulation.
    pub(super) port: Option<u16>,
    pub(super) mode: Mode,
    /// Whether ECN marks of the outer header go on.
    pub(super) ecn: bool,
}

const _: () = assert!(size_of::<Option<InboundSa>>() <= 256);

impl InboundSa {
    /// The hot SA of a record; `old` was in the slot before and gives its window if its key is the
    /// same and the window's size did not change. `None` for a suite or window that no snapshot takes.
    pub(super) fn new(
        spec: Arc<InboundSpec>,
        old: Option<Self>,
        epoch: u32,
        now: Now,
    ) -> Option<Self> {
        let suite = EspSuite::new(spec.key.suite()).ok()?;
        let inherited = old.filter(|old| {
            Arc::ptr_eq(&old.spec.floor, &spec.floor)
                && old.spec.replay_window == spec.replay_window
                && old.spec.esn == spec.esn
        });
        let window = match inherited {
            Some(old) => old.window,
            None => ReplayWindow::new(spec.replay_window, spec.esn, spec.floor.get()).ok()?,
        };
        let counters = spec.counters.clone();
        counters.sequence.set(window.right_edge().get());
        Some(Self {
            key: SpiKey::of(&spec),
            window,
            meter: Meter::new(&spec.lifetime, &counters.usage, Numbers::ENDLESS, now),
            counters,
            floor: spec.floor.clone(),
            layout: Layout::new(suite, spec.esn, spec.salt),
            ah: ah_layout(spec.protocol, suite, spec.esn, spec.endpoints.remote)?,
            spi: spec.spi,
            reqid: spec.reqid,
            epoch,
            port: spec.encap.map(|encap| encap.local_port),
            mode: spec.mode,
            ecn: spec.ecn,
            spec,
        })
    }

    /// Starts loading what lies elsewhere and a packet with this number will change.
    #[inline]
    pub(super) fn prefetch(&self, seq_low: u32) {
        self.window.prefetch(seq_low);
        self.counters.prefetch();
        prefetch_read(&*self.floor);
    }
}

/// What an SA's AH packets have in common, if it uses AH; `None` for a suite that no snapshot takes.
fn ah_layout(
    protocol: IpsecProtocol,
    suite: EspSuite,
    esn: bool,
    peer: IpAddr,
) -> Option<Option<AhLayout>> {
    match protocol {
        IpsecProtocol::Esp => Some(None),
        IpsecProtocol::Ah => {
            let suite = AhSuite::new(suite.suite()).ok()?;
            Some(Some(AhLayout::new(suite, esn, IpVersion::of_addr(peer))))
        }
    }
}
