//! From an SA of a daemon to the record that workers see.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use convoy_crypto::{KeyError, Suite};
use convoy_engine::registry::{Ready, RegistryError};
use convoy_ipsec::counters::SaCounters;
use convoy_ipsec::key::SaKeyMaterial;
use convoy_ipsec::lifetime::{Lifetime, Limits};
use convoy_ipsec::sa::{
    AhAlignment, DfPolicy, DscpPolicy, Endpoints, InboundSpec, IpsecProtocol, Mode, OutboundSpec,
    OuterHeader, SaSpec, UdpEncap, WorkerId,
};
use convoy_ipsec::selector::Direction;
use convoy_ipsec::sequence::Lease;
use convoy_wire::{Dscp, SeqNum, Spi};
use convoy_xfrm::{EXTRA_DONT_ENCAP_DSCP, Errno, Refusal, Sa, SaDirection, SaFlags};

use super::groups::Numbers;
use super::honoured;
use super::placed::Placed;
use super::surroundings::Surroundings;
use crate::xfrm::Moment;

/// Hop limit of outer headers, as Linux gives it.
const HOP_LIMIT: u8 = 64;

/// The way of an outbound SA's packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    /// True if its source address is an address of this host.
    pub(super) source_is_here: bool,
    /// Largest outer packet in bytes, where a route says so.
    pub(super) path_mtu: Option<u16>,
}

/// The direction that a daemon asked for.
pub(in crate::xfrm) const fn direction_of(said: SaDirection) -> Direction {
    match said {
        SaDirection::Out => Direction::Outbound,
        SaDirection::In => Direction::Inbound,
    }
}

/// Our address and the peer's.
fn endpoints(direction: Direction, sa: &Sa) -> Endpoints {
    let (source, destination) = (sa.info.source, sa.info.destination);
    match direction {
        Direction::Outbound => Endpoints { local: source, remote: destination },
        Direction::Inbound => Endpoints { local: destination, remote: source },
    }
}

/// Keys of one SA, checked.
#[derive(Debug)]
pub(super) struct Keys {
    pub(super) protocol: IpsecProtocol,
    pub(super) material: SaKeyMaterial,
}

/// Identity of an SA here, with its counters.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) serial: u64,
    pub(super) numbers: Numbers,
    /// Its owner.
    pub(super) worker: WorkerId,
    pub(super) counters: Arc<SaCounters>,
}

/// The name of an SA, for people: its SPI and where its packets go.
pub(super) fn name(spi: Spi, destination: IpAddr) -> Arc<str> {
    format!("{:08x}@{destination}", spi.get()).into()
}

fn cannot(error: KeyError) -> Refusal {
    Refusal::new(Errno::EINVAL, error.to_string())
}

fn no_driver(error: RegistryError) -> Refusal {
    Refusal::new(Errno::ENOSYS, error.to_string())
}

impl Surroundings {
    pub(super) fn outbound(
        &self,
        sa: &Sa,
        keys: &Keys,
        known: Known,
        lease: Arc<Lease>,
        way: Way,
    ) -> Result<OutboundSpec, Refusal> {
        let driver = self.driver(sa, &keys.material, Direction::Outbound)?;
        let key = driver.seal_key(keys.material.suite(), keys.material.keys()).map_err(cannot)?;
        Ok(OutboundSpec {
            sa: spec(sa, keys, known, Direction::Outbound)?,
            key: Arc::new(key).into(),
            source_is_here: way.source_is_here,
            outer: outer(sa),
            path_mtu: way.path_mtu.unwrap_or(self.wire_mtu),
            pad_to: u16::try_from(sa.tfc_padding.unwrap_or(0)).unwrap_or(u16::MAX),
            dummy_every: None,
            lease: lease.into(),
        })
    }

    pub(super) fn inbound(
        &self,
        sa: &Sa,
        keys: &Keys,
        known: Known,
    ) -> Result<InboundSpec, Refusal> {
        let driver = self.driver(sa, &keys.material, Direction::Inbound)?;
        let key = driver.open_key(keys.material.suite(), keys.material.keys()).map_err(cannot)?;
        Ok(InboundSpec {
            sa: spec(sa, keys, known, Direction::Inbound)?,
            key: Arc::new(key).into(),
            from_peer_only: honoured::selects_source(sa),
            ecn: !sa.info.flags.any(SaFlags::NO_ECN),
            replay_window: honoured::window(sa),
            interface: self.interfaces.id(sa.if_id).ok_or_else(honoured::no_interface)?,
        })
    }

    fn driver(
        &self,
        sa: &Sa,
        material: &SaKeyMaterial,
        direction: Direction,
    ) -> Result<Ready, Refusal> {
        let peer = endpoints(direction, sa).remote;
        self.drivers.for_daemon(material.suite(), peer, sa.if_id).map_err(no_driver)
    }

    /// The same outbound SA with the driver that it should have now; `None` where it has it.
    pub(super) fn driven_outbound(
        &self,
        old: &OutboundSpec,
        sa: &Sa,
        material: &SaKeyMaterial,
    ) -> Result<Option<OutboundSpec>, Refusal> {
        let driver = self.driver(sa, material, Direction::Outbound)?;
        if driver.tier() == Some(old.key.tier()) {
            return Ok(None);
        }
        let key = driver.seal_key(material.suite(), material.keys()).map_err(cannot)?;
        Ok(Some(OutboundSpec { key: Arc::new(key).into(), ..old.clone() }))
    }

    /// As [`Self::driven_outbound`].
    pub(super) fn driven_inbound(
        &self,
        old: &InboundSpec,
        sa: &Sa,
        material: &SaKeyMaterial,
    ) -> Result<Option<InboundSpec>, Refusal> {
        let driver = self.driver(sa, material, Direction::Inbound)?;
        if driver.tier() == Some(old.key.tier()) {
            return Ok(None);
        }
        let key = driver.open_key(material.suite(), material.keys()).map_err(cannot)?;
        Ok(Some(InboundSpec { key: Arc::new(key).into(), ..old.clone() }))
    }
}

/// The part that both directions have.
fn spec(sa: &Sa, keys: &Keys, known: Known, direction: Direction) -> Result<SaSpec, Refusal> {
    let Known { serial, numbers: (reqid, named), worker, counters } = known;
    let spi = sa.info.spi.ok_or(Refusal::bare(Errno::EINVAL))?;
    Ok(SaSpec {
        name: name(spi, sa.info.destination),
        spi,
        serial,
        reqid,
        named,
        protocol: keys.protocol,
        ah_alignment: match sa.info.flags.any(SaFlags::ALIGN4) {
            true => AhAlignment::Rfc4302,
            false => AhAlignment::Eight,
        },
        mode: mode(sa),
        endpoints: endpoints(direction, sa),
        encap: encap(sa, direction),
        esn: sa.info.flags.any(SaFlags::ESN),
        salt: keys.material.salt(),
        lifetime: lifetime(sa, keys.material.suite()),
        worker,
        counters: counters.into(),
    })
}

/// The same SA with what a daemon may change of a live one in both directions.
fn changed(old: &SaSpec, suite: Suite, sa: &Sa, direction: Direction) -> SaSpec {
    SaSpec {
        endpoints: endpoints(direction, sa),
        encap: encap(sa, direction),
        lifetime: lifetime(sa, suite),
        ..old.clone()
    }
}

/// The same outbound SA with what a daemon may change of a live one.
pub(super) fn changed_outbound(old: &OutboundSpec, sa: &Sa) -> OutboundSpec {
    OutboundSpec { sa: changed(&old.sa, old.key.suite(), sa, Direction::Outbound), ..old.clone() }
}

/// The same outbound SA on another path.
pub(super) fn with_path_mtu(old: &OutboundSpec, path_mtu: u16) -> OutboundSpec {
    OutboundSpec { path_mtu, ..old.clone() }
}

/// The same inbound SA with what a daemon may change of a live one.
pub(super) fn changed_inbound(old: &InboundSpec, sa: &Sa) -> InboundSpec {
    InboundSpec {
        sa: changed(&old.sa, old.key.suite(), sa, Direction::Inbound),
        from_peer_only: honoured::selects_source(sa),
        ecn: !sa.info.flags.any(SaFlags::NO_ECN),
        replay_window: honoured::window(sa),
        ..old.clone()
    }
}

/// Modes other than these two were refused.
fn mode(sa: &Sa) -> Mode {
    if sa.info.mode == convoy_xfrm::Mode::Transport { Mode::Transport } else { Mode::Tunnel }
}

fn encap(sa: &Sa, direction: Direction) -> Option<UdpEncap> {
    let encap = sa.encap?;
    let (local_port, remote_port) = match direction {
        Direction::Outbound => (encap.source_port, encap.destination_port),
        Direction::Inbound => (encap.destination_port, encap.source_port),
    };
    let seconds = Some(sa.nat_keepalive).filter(|seconds| *seconds > 0);
    let keepalive = seconds.map(|seconds| Duration::from_secs(seconds.into()));
    Some(UdpEncap { local_port, remote_port, keepalive })
}

fn outer(sa: &Sa) -> OuterHeader {
    let flags = sa.info.flags;
    let hides_dscp = sa.extra_flags & EXTRA_DONT_ENCAP_DSCP != 0;
    OuterHeader {
        df: if flags.any(SaFlags::NO_PMTU_DISCOVERY) { DfPolicy::Clear } else { DfPolicy::Copy },
        dscp: if hides_dscp { DscpPolicy::Fixed(Dscp::default()) } else { DscpPolicy::Copy },
        ecn: !flags.any(SaFlags::NO_ECN),
        hop_limit: HOP_LIMIT,
    }
}

/// As the daemon says, and no more than the suite allows.
fn lifetime(sa: &Sa, suite: Suite) -> Lifetime {
    let convoy_xfrm::Limits { bytes, packets, add_seconds, use_seconds } = sa.info.limits;
    let count = |limit: u64| Some(limit).filter(|n| *n != convoy_xfrm::Limits::UNLIMITED);
    let time = |limit: u64| Some(Duration::from_secs(limit)).filter(|time| !time.is_zero());
    let lifetime = Lifetime {
        soft: Limits {
            packets: count(packets.soft),
            bytes: count(bytes.soft),
            since_add: time(add_seconds.soft),
            since_use: time(use_seconds.soft),
        },
        hard: Limits {
            packets: count(packets.hard),
            bytes: count(bytes.hard),
            since_add: time(add_seconds.hard),
            since_use: time(use_seconds.hard),
        },
    };
    lifetime.capped(suite)
}

/// Counters that go on from what an SA has done; nobody else sees them yet.
pub(super) fn counters(sa: &Sa, at: Moment) -> Arc<SaCounters> {
    let counters = SaCounters::default();
    let usage = sa.info.usage;
    counters.packets.set(usage.packets);
    counters.bytes.set(usage.bytes);
    counters.usage.packets.set(usage.packets);
    counters.usage.bytes.set(usage.bytes);
    counters.usage.added_ns.set(at.worker_ns_of(usage.add_time));
    if usage.use_time > 0 {
        counters.usage.first_use_ns.set(at.worker_ns_of(usage.use_time));
    }
    Arc::new(counters)
}

/// The last sequence number that an SA has sent, and the highest that came, as far as a daemon says.
pub(super) fn numbers(sa: &Sa) -> (SeqNum, SeqNum) {
    let (sent, received) = match (&sa.state.replay_esn, sa.state.replay) {
        (Some(esn), _) => (esn.sent, esn.received),
        (None, Some(replay)) => (replay.sent.into(), replay.received.into()),
        (None, None) => (0, 0),
    };
    (SeqNum::new(sent), SeqNum::new(received))
}

/// Brings what an SA shows up to date: what it did, and how far its numbers are.
pub(super) fn refresh(sa: &mut Sa, placed: &Placed, at: Moment) {
    let counters = &placed.counters;
    let usage = &mut sa.info.usage;
    (usage.bytes, usage.packets) = (counters.bytes.get(), counters.packets.get());
    usage.use_time = at.unix_of(counters.usage.first_use_ns.get());
    sa.last_used = Some(at.unix_of(counters.last_packet_ns.get())).filter(|time| *time > 0);
    let low = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    sa.info.failures.replay = low(counters.replayed.get());
    sa.info.failures.integrity_failed = low(counters.icv_failures.get());
    let sent = match &placed.lease {
        // A daemon may have said that the numbers are further.
        Some(lease) if counters.sequence.get() == 0 => lease.before().get(),
        _ => counters.sequence.get(),
    };
    let received = counters.floor.get().get();
    // Which of the last ones came only their worker knows: to a daemon that moves the SA, all did.
    if let Some(esn) = &mut sa.state.replay_esn {
        (esn.sent, esn.received) = (sent, received);
        let seen = if received == 0 { 0 } else { u32::MAX };
        esn.bitmap.iter_mut().for_each(|word| *word = seen);
    } else {
        let replay = sa.state.replay.get_or_insert_default();
        // Without ESN they have 32 bits.
        (replay.sent, replay.received) = (sent as u32, received as u32);
        let came = received.min(sa.info.replay_window.into());
        replay.bitmap = u32::try_from((1_u64 << came.min(32)) - 1).unwrap_or(u32::MAX);
    }
}
