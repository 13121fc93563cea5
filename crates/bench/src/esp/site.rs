//! The SAs, policies and networks of a measurement.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use convoy_crypto::{KeyError, KeyMaterial, SecretBytes, Suite, Tier};
use convoy_ipsec::counters::SaCounters;
use convoy_ipsec::sa::{
    DfPolicy, DscpPolicy, Endpoints, InboundSpec, IpsecProtocol, Mode, OutboundSpec, OuterHeader,
    ReqId, SaSlot, SaSpec, Shared, WorkerId,
};
use convoy_ipsec::selector::Selector;
use convoy_ipsec::sequence::Lease;
use convoy_ipsec::snapshot::{Published, Snapshot, SnapshotError};
use convoy_ipsec::spd::{Direction, Policy, PolicyAction, Spd, SpdError};
use convoy_packet::InterfaceId;
use convoy_wire::{Prefix, SeqNum, Spi};

use crate::maker::Maker;
use crate::mix::Numbers;

/// Addresses of a policy's network on either side.
const NETWORK: u32 = 16;
/// Prefix length of such a network.
const NETWORK_BITS: u8 = 28;
/// Hosts of a network that send: neither the network's own address nor the broadcast address.
const HOSTS: u32 = 14;
/// Most policies: 10.0.0.0/9 and 10.128.0.0/9 have so many networks.
pub const POLICIES_MAX: usize = 1 << 19;
/// Flows of a policy at most: as many as hosts and ports make.
const FLOWS_PER_POLICY: usize = 900_000;
/// The anti-replay window of every SA, packets.
const WINDOW: u32 = 1024;
/// The first SPI; those below 256 are reserved (RFC 4303 section 2.1).
const FIRST_SPI: u32 = 0x1000;
/// Largest outer packet, bytes: no size that is measured is cut.
const PATH_MTU: u16 = 9200;

/// Number of SAs, and the traffic that falls to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// SAs in each direction.
    pub sas: usize,
    /// Policies in each direction; policy `n` names SA `n` modulo the number of SAs.
    pub policies: usize,
    /// Flows; flow `n` falls under policy `n` modulo the number of policies.
    pub flows: usize,
    /// Extended sequence numbers.
    pub esn: bool,
    /// Workers among which the SAs are divided, one by one.
    pub workers: u16,
}

impl Shape {
    /// One worker, a policy for each SA, and at least 64 flows.
    #[must_use]
    pub fn new(sas: usize) -> Self {
        Self { sas, policies: sas, flows: sas.max(64), esn: false, workers: 1 }
    }

    /// Checks that there can be such a site.
    ///
    /// # Errors
    /// [`SiteError::Shape`].
    pub fn check(&self) -> Result<(), SiteError> {
        if self.sas == 0 || self.policies < self.sas {
            return Err(SiteError::Shape("there must be an SA, and a policy for each SA"));
        }
        if self.policies > POLICIES_MAX {
            return Err(SiteError::Shape("there are networks for 524288 policies at most"));
        }
        if self.flows < self.policies || self.flows / self.policies > FLOWS_PER_POLICY {
            return Err(SiteError::Shape("there must be a flow for each policy, 900000 at most"));
        }
        Ok(())
    }

    /// The SA that a flow goes through.
    #[must_use]
    pub const fn sa_of(&self, flow: u32) -> usize {
        flow as usize % self.policies % self.sas
    }

    /// Source and destination address and source port of a flow.
    pub(crate) fn addresses(&self, flow: u32) -> (Ipv4Addr, Ipv4Addr, u16) {
        let policies = self.policies as u32;
        let (policy, nth) = (flow % policies, flow / policies);
        let host = |side| Ipv4Addr::from(network(side, policy) + 1 + nth % HOSTS);
        (host(Side::Sender), host(Side::Receiver), 1024 + (nth / HOSTS) as u16)
    }
}

/// End of the tunnels.
#[derive(Clone, Copy)]
enum Side {
    Sender,
    Receiver,
}

/// First address of a policy's network.
const fn network(side: Side, policy: u32) -> u32 {
    let base: u32 = match side {
        Side::Sender => 0x0a00_0000,
        Side::Receiver => 0x0a80_0000,
    };
    base + policy * NETWORK
}

/// The SAs and policies of a measurement could not be set up.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SiteError {
    /// No such key can be made.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The policies contradict each other, or are too many.
    #[error(transparent)]
    Policies(#[from] SpdError),
    /// The SAs contradict each other.
    #[error("{0}")]
    Sas(String),
    /// No SA, no policy, or fewer policies than SAs.
    #[error("{0}")]
    Shape(&'static str),
}

impl From<SnapshotError> for SiteError {
    fn from(error: SnapshotError) -> Self {
        Self::Sas(error.to_string())
    }
}

/// SAs and policies of both directions, as control would publish them.
///
/// There is one picture for the gateway that protects and the one that opens: a worker can then be
/// both, with its wire led back to itself.
#[derive(Debug)]
pub struct Site {
    /// Numbers of SAs, policies, flows and workers.
    pub shape: Shape,
    /// SAs and policies that pipelines read.
    pub published: Arc<Published>,
    /// The SAs that protect, by number.
    pub outbound: Vec<Arc<OutboundSpec>>,
    /// The SAs that open, by number.
    pub inbound: Vec<Arc<InboundSpec>>,
}

impl Site {
    /// Sets up keys, SAs and policies.
    ///
    /// # Errors
    /// [`SiteError`].
    pub fn new(maker: &Maker, suite: Suite, shape: Shape) -> Result<Self, SiteError> {
        shape.check()?;
        let mut numbers = Numbers::new(11);
        let mut snapshot = Snapshot::new(spd(&shape)?);
        let (mut outbound, mut inbound) = (Vec::new(), Vec::new());
        for n in 0..shape.sas {
            let (out, inn) = associations(maker, suite, &shape, n as u32, &mut numbers)?;
            let (out, inn) = (Arc::new(out), Arc::new(inn));
            snapshot.add_outbound(SaSlot(n as u32), out.clone())?;
            snapshot.add_inbound(SaSlot(n as u32), inn.clone())?;
            outbound.push(out);
            inbound.push(inn);
        }
        Ok(Self { shape, published: Published::new(snapshot), outbound, inbound })
    }

    /// The tier of the keys.
    #[must_use]
    pub fn tier(&self) -> Tier {
        // There is an SA, by the check of the shape.
        self.outbound.first().map_or(Tier::Portable, |sa| sa.key.tier())
    }
}

/// The policies of both directions.
fn spd(shape: &Shape) -> Result<Spd, SpdError> {
    let policy = |n: u32, direction| {
        let network = |side| {
            let prefix = Prefix::new(Ipv4Addr::from(network(side, n)).into(), NETWORK_BITS);
            prefix.map(Into::into).unwrap_or_default()
        };
        let (sender, receiver) = (network(Side::Sender), network(Side::Receiver));
        let (local, remote) = match direction {
            Direction::Outbound => (sender, receiver),
            Direction::Inbound => (receiver, sender),
        };
        Policy {
            name: Arc::from(format!("policy {n}")),
            priority: 0,
            direction,
            selector: Selector { local, remote, ..Selector::default() },
            action: PolicyAction::Protect { reqid: ReqId(n % shape.sas as u32) },
        }
    };
    let policies = (0..shape.policies as u32)
        .flat_map(|n| [policy(n, Direction::Outbound), policy(n, Direction::Inbound)]);
    Spd::new(policies)
}

/// Both ends of SA number `n`.
fn associations(
    maker: &Maker,
    suite: Suite,
    shape: &Shape,
    n: u32,
    numbers: &mut Numbers,
) -> Result<(OutboundSpec, InboundSpec), SiteError> {
    let mut random = |len: usize| {
        let mut bytes = vec![0; len];
        numbers.fill(&mut bytes);
        bytes
    };
    let (cipher, integrity) = (random(suite.key_bytes()), random(suite.integrity_key_bytes()));
    let mut salt = [0; 4];
    salt.copy_from_slice(&random(4));
    let material = || KeyMaterial {
        cipher: SecretBytes::copy_from(&cipher),
        integrity: SecretBytes::copy_from(&integrity),
    };
    let (sender, receiver) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
    let spi = Spi::new(FIRST_SPI + n).ok_or(SiteError::Shape("too many SAs"))?;
    let worker = WorkerId((n % u32::from(shape.workers.max(1))) as u16);
    let outer =
        OuterHeader { df: DfPolicy::Copy, dscp: DscpPolicy::Copy, ecn: true, hop_limit: 64 };
    let out = OutboundSpec {
        sa: SaSpec {
            name: Arc::from(format!("out {n}")),
            spi,
            reqid: ReqId(n),
            named: None,
            serial: 0,
            protocol: IpsecProtocol::Esp,
            mode: Mode::Tunnel,
            endpoints: Endpoints { local: sender, remote: receiver },
            encap: None,
            esn: shape.esn,
            salt: salt.into(),
            lifetime: convoy_ipsec::lifetime::Lifetime::default(),
            worker,
            counters: Shared::default(),
        },
        outer,
        source_is_here: true,
        path_mtu: PATH_MTU,
        pad_to: 0,
        dummy_every: None,
        key: Arc::new(maker.seal_key(suite, material())?).into(),
        lease: Arc::new(Lease::new(SeqNum::new(0), u64::MAX)).into(),
    };
    // As of SAs of IKE daemons, whose edges outlive the gateway.
    let received = SaCounters::default();
    let _ = received.outliving.set(word());
    let inn = InboundSpec {
        sa: SaSpec {
            name: Arc::from(format!("in {n}")),
            spi,
            reqid: ReqId(n),
            named: None,
            serial: 0,
            protocol: IpsecProtocol::Esp,
            mode: Mode::Tunnel,
            endpoints: Endpoints { local: receiver, remote: sender },
            encap: None,
            esn: shape.esn,
            salt: salt.into(),
            lifetime: convoy_ipsec::lifetime::Lifetime::default(),
            worker,
            counters: Arc::new(received).into(),
        },
        from_peer_only: false,
        ecn: true,
        replay_window: WINDOW,
        interface: InterfaceId(0),
        key: Arc::new(maker.open_key(suite, material())?).into(),
    };
    Ok((out, inn))
}

/// A word in a cache line of its own, as in the file that a gateway maps.
fn word() -> &'static AtomicU64 {
    #[repr(align(64))]
    struct Line(AtomicU64);
    let Line(word) = Box::leak(Box::new(Line(AtomicU64::new(0))));
    word
}
