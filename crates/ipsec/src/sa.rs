//! Security associations as control describes them: the cold records.
//!
//! A record is immutable and shared by `Arc`; the worker that owns the SA builds its hot
//! counterpart from it ([`crate::pipeline`]). Direction is a type: an [`OutboundSpec`] holds a
//! [`SealKey`] and a lease on sequence numbers, an [`InboundSpec`] an [`OpenKey`] and the floor of
//! its anti-replay window.

use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use convoy_crypto::{OpenKey, SealKey, prefetch_read};
pub use convoy_packet::InterfaceId;
use convoy_wire::{Dscp, FlowKey, Ports, Protocol, Spi};

use crate::counters::SaCounters;
use crate::lifetime::Lifetime;
pub use crate::salt::Salt;
use crate::sequence::Lease;

/// Number of a worker thread, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerId(pub u16);

/// Position of an SA in its direction's table of a snapshot.
///
/// Stays the same while the SA exists; may be used again after the SA is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SaSlot(pub u32);

/// Links policies to SAs: a policy that protects names a `reqid`, and so does each SA made for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReqId(pub u32);

/// One of the two protocols that an SA may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IpsecProtocol {
    /// RFC 4303.
    #[default]
    Esp,
    /// RFC 4302: everything is authenticated, the immutable fields of the outer IP header included,
    /// and nothing encrypted.
    Ah,
}

impl IpsecProtocol {
    /// Its number in IP headers.
    #[must_use]
    pub const fn number(self) -> Protocol {
        match self {
            Self::Esp => Protocol::ESP,
            Self::Ah => Protocol::AH,
        }
    }
}

/// Part of a packet that ESP or AH protects (RFC 4303 section 3.1, RFC 4302 section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The whole inner packet, behind a new outer header.
    Tunnel,
    /// Bytes behind the IP header; the header stays in front.
    Transport,
}

/// UDP encapsulation of ESP (RFC 3948).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpEncap {
    /// Our UDP port, usually 4500.
    pub local_port: u16,
    /// The peer's UDP port, usually 4500.
    pub remote_port: u16,
    /// Send a NAT keepalive when nothing was sent for so long (RFC 3948 section 4; 20 s usual).
    pub keepalive: Option<Duration>,
}

/// Treatment of the don't-fragment bit of an IPv4 outer header (RFC 4301 section 8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DfPolicy {
    /// As in the inner header; set for IPv6 inside, but for packets of up to 1280 bytes over a path
    /// too narrow for them (RFC 2473 section 7.1).
    Copy,
    /// Always set.
    Set,
    /// Always clear: routers may fragment the outer packet.
    Clear,
}

/// DSCP of the outer header (RFC 4301 section 5.1.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DscpPolicy {
    /// As in the inner header.
    Copy,
    /// Always this value, so that the inner one is not shown.
    Fixed(Dscp),
}

/// Rules for making the outer header of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OuterHeader {
    /// Don't-fragment bit.
    pub df: DfPolicy,
    /// DSCP.
    pub dscp: DscpPolicy,
    /// True if ECN is carried through the tunnel (RFC 6040 normal mode), false if it is not offered
    /// outside (compatibility mode).
    pub ecn: bool,
    /// TTL or hop limit.
    pub hop_limit: u8,
}

/// The two outer addresses, seen from this gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// Our address.
    pub local: IpAddr,
    /// The peer's address; same family.
    pub remote: IpAddr,
}

/// A value that records share, compared by identity: two are equal when they are one value.
#[derive(Default)]
pub struct Shared<T>(Arc<T>);

impl<T> Shared<T> {
    /// The reference that is counted.
    #[must_use]
    pub const fn as_arc(&self) -> &Arc<T> {
        &self.0
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> From<Arc<T>> for Shared<T> {
    fn from(value: Arc<T>) -> Self {
        Self(value)
    }
}

impl<T> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The part of an SA's record that both directions have.
#[derive(Clone, PartialEq)]
pub struct SaSpec {
    /// Name from the site file, for people.
    pub name: Arc<str>,
    /// SPI, chosen by the receiver.
    pub spi: Spi,
    /// Tells it from other SAs that had its slot before and of which workers may still tell, among
    /// those whose makers ask for that; else 0.
    pub serial: u64,
    /// Outbound: the policies that use the SA. Inbound: the policies that opened packets may match.
    pub reqid: ReqId,
    /// A second number: that of policies which want this one of the SAs with its `reqid`, and no
    /// other.
    pub named: Option<ReqId>,
    /// ESP or AH. AH knows no UDP encapsulation: it covers the addresses.
    pub protocol: IpsecProtocol,
    /// Tunnel or transport.
    pub mode: Mode,
    /// Outer addresses (in transport mode: the only ones). Inbound, `local` is part of the look-up.
    /// `remote` is checked in transport mode without encapsulation, and with it only if
    /// [`from_peer_only`](InboundSpec::from_peer_only) says so: elsewhere the source of an
    /// authenticated packet may change behind a NAT, and in a tunnel it goes no further.
    pub endpoints: Endpoints,
    /// UDP encapsulation, if any.
    pub encap: Option<UdpEncap>,
    /// Extended (64-bit) sequence numbers (RFC 4303 section 2.2.1).
    pub esn: bool,
    /// The first bytes of the nonce (RFC 4106 section 4; RFC 3686 calls them nonce). AES-CCM uses
    /// three (RFC 4309 section 4), AES-CBC and NULL none.
    pub salt: Salt,
    /// Limits at which it should be replaced, and limits at which it ends.
    pub lifetime: Lifetime,
    /// The worker that owns the hot state.
    pub worker: WorkerId,
    /// Published by the owner, read by anyone. Every record of the same key shares it: inbound it
    /// also holds the [floor](SaCounters::floor), at or below which no sequence number is accepted.
    pub counters: Shared<SaCounters>,
}

impl SaSpec {
    /// True if policies with this number may mean its packets.
    #[must_use]
    pub fn serves(&self, reqid: ReqId) -> bool {
        reqid == self.reqid || Some(reqid) == self.named
    }
}

/// Shows which SA it is; the salt is key material (RFC 4106 section 8.1) and stays out.
impl fmt::Debug for SaSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SaSpec")
            .field("name", &self.name)
            .field("spi", &self.spi)
            .field("endpoints", &self.endpoints)
            .finish_non_exhaustive()
    }
}

/// An SA that protects packets leaving this gateway.
#[derive(Clone, PartialEq)]
pub struct OutboundSpec {
    /// The part that an inbound SA has, too.
    pub sa: SaSpec,
    /// Expanded key, of a suite that the protocol takes ([`EspSuite`](crate::suite::EspSuite),
    /// [`AhSuite`](crate::suite::AhSuite)).
    pub key: Shared<SealKey>,
    /// True if the source address is an address of this host. As long as it is not, nothing is sent.
    pub source_is_here: bool,
    /// Outer header rules; tunnel mode only.
    pub outer: OuterHeader,
    /// Largest outer packet in bytes until the path says otherwise.
    pub path_mtu: u16,
    /// To how many bytes inner packets are filled up, as far as the path takes it, so that their
    /// lengths tell less (RFC 4303 section 2.7); 0 for none. Tunnel mode only.
    pub pad_to: u16,
    /// Send a dummy packet when nothing was sent for so long (RFC 4303 section 2.6), as long as
    /// `pad_to` says, if it does. ESP in tunnel mode only.
    pub dummy_every: Option<Duration>,
    /// Sequence numbers that may be used; shared by every record of the same key.
    pub lease: Shared<Lease>,
}

impl Deref for OutboundSpec {
    type Target = SaSpec;

    fn deref(&self) -> &SaSpec {
        &self.sa
    }
}

impl OutboundSpec {
    /// Starts loading what a hot SA is made of, beside the record itself.
    pub(crate) fn prefetch(&self) {
        self.key.prefetch();
        prefetch_read(&*self.lease);
        self.counters.prefetch();
    }

    /// True if a packet of this flow is one that the SA sent, judged by its outer header.
    pub(crate) fn has_sent(&self, flow: &FlowKey) -> bool {
        let Endpoints { local, remote } = self.endpoints;
        let is_between = || (flow.src_addr(), flow.dst_addr()) == (local, remote);
        match (flow.protocol, self.encap) {
            (Protocol::ESP | Protocol::AH, None) => is_between(),
            (Protocol::UDP, Some(encap)) => {
                matches!(flow.ports, Ports::Known { src, .. } if src == encap.local_port)
                    && is_between()
            }
            _ => false,
        }
    }

    /// After how much silence a NAT keepalive is sent.
    pub(crate) fn keepalive_every(&self) -> Option<Duration> {
        self.encap.and_then(|encap| encap.keepalive)
    }

    /// After how much silence a dummy packet is sent.
    pub(crate) fn dummy_every(&self) -> Option<Duration> {
        let is_esp_tunnel = (self.protocol, self.mode) == (IpsecProtocol::Esp, Mode::Tunnel);
        self.dummy_every.filter(|_| is_esp_tunnel)
    }
}

/// An SA that opens packets arriving at this gateway.
#[derive(Clone, PartialEq)]
pub struct InboundSpec {
    /// The part that an outbound SA has, too.
    pub sa: SaSpec,
    /// Expanded key, of a suite that the protocol takes ([`EspSuite`](crate::suite::EspSuite),
    /// [`AhSuite`](crate::suite::AhSuite)).
    pub key: Shared<OpenKey>,
    /// True if the SA has a selector of its own that names the peer's host: in transport mode, what
    /// it carries must then have come from `endpoints.remote` also in UDP (RFC 4301 section 5.2,
    /// step 4).
    pub from_peer_only: bool,
    /// True if congestion marks of the outer header reach the inner one (RFC 6040).
    pub ecn: bool,
    /// Anti-replay window in packets: 0 (off) or 32 to 65,536.
    pub replay_window: u32,
    /// The plain interface where its packets come to light, whose policies must allow them.
    pub interface: InterfaceId,
}

impl Deref for InboundSpec {
    type Target = SaSpec;

    fn deref(&self) -> &SaSpec {
        &self.sa
    }
}

impl InboundSpec {
    /// Starts loading what a hot SA is made of, beside the record itself.
    pub(crate) fn prefetch(&self) {
        self.key.prefetch();
        self.counters.prefetch();
    }

    /// The protocol it receives, part of what its packets are found by (RFC 4301 section 4.1).
    #[must_use]
    pub const fn protocol(&self) -> Protocol {
        self.sa.protocol.number()
    }
}

impl fmt::Debug for OutboundSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OutboundSpec").field(&self.sa).finish()
    }
}

impl fmt::Debug for InboundSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InboundSpec").field(&self.sa).finish()
    }
}
