//! Hot SAs: what a worker keeps per SA and touches per packet.

use core::mem::{self, offset_of};
use core::sync::atomic::AtomicU64;
use std::net::IpAddr;
use std::sync::Arc;

use convoy_crypto::prefetch_read;
use convoy_engine::{Job, Op, Span};
use convoy_packet::InterfaceId;
use convoy_wire::{Ecn, IpVersion, Protocol, SeqNum, Spi, Tos, esp};

use super::ah::AhLayout;
use super::form::Known;
use super::layout::{Iv, Layout, UDP_HEADER};
use super::lengths::Tunnel;
use super::silence::Talker;
use super::slab::HOT;
use crate::clock::Now;
use crate::counters::SaCounters;
use crate::lifetime::{Meter, Numbers};
use crate::replay::ReplayWindow;
use crate::sa::{
    DfPolicy, DscpPolicy, InboundSpec, IpsecProtocol, Mode, OutboundSpec, OuterHeader, ReqId,
    Shared, UdpEncap,
};
use crate::sequence::{ReservedSeq, SequenceCounter};
use crate::snapshot::SpiKey;
use crate::suite::{AhSuite, EspSuite};

/// Distance behind the newest sequence number below which a quoted one is believed.
const QUOTE_AGE: u64 = 1 << 16;

/// Outer IP header and, with encapsulation, UDP header, as far as they are the same for every
/// packet of an SA.
#[derive(Clone, Copy, Debug)]
pub(super) struct OuterTemplate {
    /// The IP header in big-endian words, zeros behind it.
    words: [u64; 5],
    /// The UDP header without length and checksum.
    udp: u64,
    /// Sum of the IPv4 header's constant 16-bit words, folded.
    sum: u16,
    ip_len: u8,
    len: u8,
    /// True if UDP follows on IPv6.
    is_udp6: bool,
}

/// Marks jobs, beside the inner packet's length, whose packets may need a UDP checksum.
pub(super) const UDP6_MARK: u32 = 1 << 30;

impl OuterTemplate {
    pub(super) fn new(spec: &OutboundSpec) -> Self {
        let protocol = if spec.encap.is_some() { Protocol::UDP } else { spec.protocol.number() };
        let mut bytes = [0_u8; 40];
        let ip_len = match (spec.endpoints.local, spec.endpoints.remote) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                bytes[0] = 0x45;
                bytes[8] = spec.outer.hop_limit;
                bytes[9] = protocol.0;
                bytes[12..16].copy_from_slice(&local.octets());
                bytes[16..20].copy_from_slice(&remote.octets());
                20
            }
            (local, remote) => {
                bytes[0] = 0x60;
                bytes[6] = protocol.0;
                bytes[7] = spec.outer.hop_limit;
                bytes[8..24].copy_from_slice(&v6(local));
                bytes[24..40].copy_from_slice(&v6(remote));
                40
            }
        };
        let sum: u32 = bytes.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
        let mut words = [0; 5];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_be_bytes(*bytes);
        }
        let (udp, udp_len) =
            spec.encap.map_or((0, 0), |UdpEncap { local_port, remote_port, .. }| {
                (u64::from(local_port) << 48 | u64::from(remote_port) << 32, UDP_HEADER as u8)
            });
        Self {
            words,
            udp,
            sum: fold(fold(sum)) as u16,
            ip_len,
            len: ip_len + udp_len,
            is_udp6: ip_len == 40 && udp_len > 0,
        }
    }

    /// [`UDP6_MARK`], where it applies.
    #[inline]
    fn mark(&self) -> u32 {
        if self.is_udp6 { UDP6_MARK } else { 0 }
    }

    /// Bytes before the ESP header.
    #[inline]
    pub(super) fn len(&self) -> usize {
        usize::from(self.len)
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
        if self.len == self.ip_len {
            return;
        }
        let Some(into) = packet.get_mut(at..).and_then(<[u8]>::first_chunk_mut) else { return };
        let len = (total - at) as u16;
        *into = (self.udp | u64::from(len) << 16).to_be_bytes();
    }

    /// Writes the headers of a packet of `total` bytes to its front.
    ///
    /// `id` is the IPv4 identification: it must differ between packets that may be fragmented
    /// (RFC 6864 section 4), for which the low half of the sequence number serves.
    #[inline(always)]
    pub(super) fn write(&self, packet: &mut [u8], total: usize, tos: Tos, df: bool, id: u16) {
        if self.ip_len == 20 {
            self.write_v4(packet, total as u16, tos, df, id);
        } else {
            self.write_v6(packet, total, tos);
        }
        if self.len != self.ip_len {
            self.write_udp(packet, usize::from(self.ip_len), total);
        }
    }

    #[inline(always)]
    fn write_v4(&self, packet: &mut [u8], total: u16, tos: Tos, df: bool, id: u16) {
        let Some(ip) = packet.first_chunk_mut::<20>() else { return };
        let [first, second, third, ..] = self.words;
        let flags = u64::from(df) << 14;
        let sum = u64::from(self.sum) + u64::from(tos.0) + u64::from(total) + u64::from(id) + flags;
        let sum = !(fold(fold(sum as u32)) as u16);
        let fields = u64::from(tos.0) << 48 | u64::from(total) << 32 | u64::from(id) << 16 | flags;
        ip[..8].copy_from_slice(&(first | fields).to_be_bytes());
        ip[8..16].copy_from_slice(&(second | u64::from(sum) << 32).to_be_bytes());
        ip[16..].copy_from_slice(&((third >> 32) as u32).to_be_bytes());
    }

    #[inline(never)]
    fn write_v6(&self, packet: &mut [u8], total: usize, tos: Tos) {
        let Some(ip) = packet.first_chunk_mut::<40>() else { return };
        let [first, constant @ ..] = self.words;
        let fields = u64::from(tos.0) << 52 | u64::from((total - 40) as u16) << 16;
        let (words, _) = ip.as_chunks_mut();
        for (into, word) in words.iter_mut().zip([first | fields].iter().chain(&constant)) {
            *into = word.to_be_bytes();
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

/// Derivation of the outer header's TOS byte (or traffic class) and DF bit (RFC 4301 section
/// 5.1.2.1, RFC 6040 section 4.1), as masks.
#[derive(Clone, Copy, Debug)]
pub(super) struct OuterRules {
    tos_kept: u8,
    tos_set: u8,
    df_kept: bool,
    df_set: bool,
}

impl OuterRules {
    fn new(outer: &OuterHeader) -> Self {
        let (dscp_kept, tos_set) = match outer.dscp {
            DscpPolicy::Copy => (0xfc, 0),
            DscpPolicy::Fixed(dscp) => (0, Tos::new(dscp, Ecn::NotEct).0),
        };
        // Compatibility mode marks nothing.
        let ecn_kept = if outer.ecn { 0x03 } else { 0 };
        Self {
            tos_kept: dscp_kept | ecn_kept,
            tos_set,
            df_kept: outer.df == DfPolicy::Copy,
            df_set: outer.df == DfPolicy::Set,
        }
    }

    /// TOS byte and DF bit for a packet with these inside; `fits` says whether it is no larger than
    /// the path takes. If not, it may be fragmented.
    #[inline]
    pub(super) fn apply(&self, tos: Tos, df: bool, fits: bool) -> (Tos, bool) {
        (Tos(tos.0 & self.tos_kept | self.tos_set), self.df_set | self.df_kept & df & fits)
    }

    /// True if no packet may be fragmented on its way.
    pub(super) const fn forbids_fragments(&self) -> bool {
        self.df_set
    }
}

/// An SA that protects, on the worker that owns it. What its packets need comes first.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct OutboundSa {
    pub(super) sequence: SequenceCounter,
    pub(super) counters: Shared<SaCounters>,
    /// Counts against the SA's lifetime.
    pub(super) meter: Meter,
    /// Values that the SA's packets have in common.
    pub(super) layout: Layout,
    pub(super) tunnel: Tunnel,
    pub(super) reqid: ReqId,
    pub(super) spi: Spi,
    /// Derivation of the outer header from the inner one.
    pub(super) rules: OuterRules,
    pub(super) mode: Mode,
    /// Values that the SA's AH packets have in common.
    pub(super) ah: Option<AhLayout>,
    pub(super) outer: OuterTemplate,
    /// Largest outer packet the path takes, in bytes.
    pub(super) path_mtu: u32,
    /// To how many bytes inner packets are filled up, as far as the path takes it.
    pub(super) pad_to: u16,
    /// Time at which a router last lowered the path MTU, if it is not what was configured.
    pub(super) mtu_lowered: Now,
    pub(super) spec: Arc<OutboundSpec>,
}

const _: () = assert!(offset_of!(OutboundSa, path_mtu) <= HOT, "what packets need is loaded early");

impl OutboundSa {
    /// The hot SA of a record; `None` for a suite that no snapshot takes.
    pub(super) fn new(
        spec: Arc<OutboundSpec>,
        sequence: SequenceCounter,
        now: Now,
    ) -> Option<Self> {
        let suite = EspSuite::new(spec.key.suite()).ok()?;
        let (counters, path_mtu) = (spec.counters.clone(), spec.path_mtu.into());
        let mut sa = Self {
            outer: OuterTemplate::new(&spec),
            layout: Layout::new(suite, spec.esn, &spec.salt),
            ah: ah_layout(spec.protocol, suite, spec.esn, spec.endpoints.remote)?,
            mode: spec.mode,
            rules: OuterRules::new(&spec.outer),
            tunnel: Tunnel::default(),
            spi: spec.spi,
            reqid: spec.reqid,
            pad_to: match (spec.protocol, spec.mode) {
                (IpsecProtocol::Esp, Mode::Tunnel) => spec.pad_to,
                _ => 0,
            },
            meter: Meter::new(&spec.lifetime, &counters.usage, sequence.numbers(), now),
            sequence,
            path_mtu,
            mtu_lowered: now,
            counters,
            spec,
        };
        sa.set_path_mtu(path_mtu);
        Some(sa)
    }

    /// Takes over the largest outer packet that the path takes, in bytes.
    pub(super) fn set_path_mtu(&mut self, mtu: u32) {
        self.path_mtu = mtu;
        self.counters.path_mtu.set(mtu.into());
        self.tunnel = Tunnel::new(self);
    }

    /// Says in a job what the engine is to do with a packet of ESP that was laid out.
    #[inline(always)]
    pub(super) fn fill_in<K: Known>(
        &self,
        job: &mut Job,
        text: Span,
        (reserved, iv): (ReservedSeq, Iv),
        inner_len: usize,
    ) {
        let seq = reserved.number();
        job.aad_len = self.layout.write_beside::<K>(&mut job.aad, self.spi, seq, iv);
        (job.text, job.header) = (text, self.layout.header());
        job.op = Op::Seal(self.layout.seal_nonce::<K>(reserved, iv));
        (job.context.note, job.context.value) = (inner_len as u32 | self.outer.mark(), seq.get());
    }

    /// Counts a packet that got a number.
    #[inline]
    pub(super) fn count(&self, inner_len: usize, seq: SeqNum, now: Now) {
        let counters = &self.counters;
        counters.packets.add(1);
        counters.bytes.add(inner_len as u64);
        counters.sequence.set(seq.get());
        counters.last_packet_ns.set(now.0);
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
        self.set_path_mtu(mtu);
        self.mtu_lowered = now;
        true
    }

    /// True if a packet with this low half of its sequence number was sent lately.
    pub(super) fn sent_lately(&self, seq_low: u32) -> bool {
        let newest = self.counters.sequence.get();
        let age = u64::from((newest as u32).wrapping_sub(seq_low));
        newest != 0 && age < QUOTE_AGE.min(newest)
    }

    /// Time at which the path was found narrower than configured; `None` if it is not.
    #[inline]
    pub(super) fn lowered(&self) -> Option<Now> {
        (self.path_mtu != u32::from(self.spec.path_mtu)).then_some(self.mtu_lowered)
    }
}

impl Talker for OutboundSa {
    fn last_sent(&self) -> u64 {
        self.counters.last_packet_ns.get()
    }
}

/// An SA that opens, on the worker that owns it: three cache lines with all that its packets need.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct InboundSa {
    /// Address, SPI and protocol that its packets are found by.
    pub(super) key: SpiKey,
    pub(super) window: ReplayWindow,
    /// Counts against the SA's lifetime.
    pub(super) meter: Meter,
    pub(super) counters: Shared<SaCounters>,
    pub(super) spec: Arc<InboundSpec>,
    /// Values that the SA's packets have in common.
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
    /// True if ECN marks of the outer header go on.
    pub(super) ecn: bool,
    /// Plain interface where its packets come to light.
    pub(super) interface: InterfaceId,
    /// Word in which the window's right edge outlives the process.
    pub(super) outliving: Option<&'static AtomicU64>,
}

const _: () = assert!(size_of::<Option<InboundSa>>() <= HOT);

impl InboundSa {
    /// The window, for the SA of another record in this one's place, if its key is the same and the
    /// window's size did not change. This one is to be removed then.
    pub(super) fn bequeath(&mut self, spec: &InboundSpec) -> Option<ReplayWindow> {
        let is_heir = self.counters == spec.counters
            && self.spec.replay_window == spec.replay_window
            && self.spec.esn == spec.esn;
        is_heir.then(|| mem::take(&mut self.window))
    }

    /// The hot SA of a record, with the window that it inherits, if it does. `None` for a suite or window
    /// that no snapshot takes.
    pub(super) fn new(
        spec: Arc<InboundSpec>,
        inherited: Option<ReplayWindow>,
        epoch: u32,
        now: Now,
    ) -> Option<Self> {
        let suite = EspSuite::new(spec.key.suite()).ok()?;
        let window = match inherited {
            Some(window) => window,
            None => {
                ReplayWindow::new(spec.replay_window, spec.esn, spec.counters.floor.get()).ok()?
            }
        };
        let counters = spec.counters.clone();
        Some(Self {
            key: SpiKey::of(&spec),
            window,
            meter: Meter::new(&spec.lifetime, &counters.usage, Numbers::ENDLESS, now),
            counters,
            layout: Layout::new(suite, spec.esn, &spec.salt),
            ah: ah_layout(spec.protocol, suite, spec.esn, spec.endpoints.remote)?,
            spi: spec.spi,
            reqid: spec.reqid,
            epoch,
            port: spec.encap.map(|encap| encap.local_port),
            mode: spec.mode,
            ecn: spec.ecn,
            interface: spec.interface,
            outliving: spec.counters.outliving.get().copied(),
            spec,
        })
    }

    /// True if it is one of ESP in tunnel mode, as most are.
    #[inline]
    pub(super) fn is_usual(&self) -> bool {
        self.mode == Mode::Tunnel && self.ah.is_none()
    }

    /// Starts loading what lies elsewhere and a packet with this number will change.
    #[inline]
    pub(super) fn prefetch(&self, seq_low: u32) {
        self.window.prefetch(seq_low);
        self.counters.prefetch();
        if let Some(word) = self.outliving {
            prefetch_read(word);
        }
    }
}

/// Values that an SA's AH packets have in common, if it uses AH; `None` for a suite that no snapshot takes.
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
