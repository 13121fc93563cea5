//! Making the status of a running gateway.

use std::sync::Arc;
use std::time::Duration;

use convoy_crypto::Cpu;
use convoy_ipsec::clock::Now;
use convoy_ipsec::counters::SaCounters;
use convoy_ipsec::drop_reason::DropReason;
use convoy_ipsec::lifetime::{Lifetime, Limits, Usage};
use convoy_ipsec::pipeline::WorkerCounters;
use convoy_ipsec::sa::{InboundSpec, Mode, OutboundSpec};
use convoy_ipsec::selector;
use convoy_ipsec::sequence::SequenceLimits;
use convoy_ipsec::snapshot::Snapshot;

use super::attached::Attached;
use super::health::{Seen, health};
use super::{
    Confinement, Count, DirectionStatus, Drops, Flow, LeakProtection, Leases, LifetimeLeft,
    LifetimeState, LifetimeStatus, Origin, SCHEMA, SaReport, SaStatus, Sampler, Status, Wire,
    WorkerStatus,
};
use crate::state::State;
use crate::xfrm::Kernel;

/// A counter that belongs to a port or a worker.
#[derive(Clone, Copy, Debug)]
pub struct NamedCount<'a> {
    /// Name, such as `wire.rx-packets`.
    pub name: &'a str,
    /// Value.
    pub value: u64,
    /// True if it counts packets that the kernel dropped before they could be read.
    pub is_kernel_drop: bool,
}

/// Sources of the status beyond the [`State`].
#[derive(Debug)]
pub struct Inputs<'a> {
    /// Moment, in nanoseconds of the workers' monotonic clock.
    pub now_ns: u64,
    /// Time since the gateway's start.
    pub uptime: Duration,
    /// Counters of the workers.
    pub workers: &'a [Arc<WorkerCounters>],
    /// Counters of ports, already summed over workers.
    pub counts: &'a [NamedCount<'a>],
    /// Interfaces that cannot be used at present, each with the reason.
    pub broken: &'a [String],
    /// Facilities that the gateway can do without and has not at present, each with the reason.
    pub lacking: &'a [String],
    /// SAs and policies of IKE daemons, if they are served.
    pub daemons: Option<&'a Kernel>,
    /// Measures that keep protected packets from leaving in clear.
    pub leak_protection: Option<LeakProtection>,
    /// Processes that listen as IKE daemons do: those that do, and the one that ended last.
    pub attached: &'a Attached,
    /// Limits on somebody who has taken the gateway over.
    pub confinement: Option<Confinement>,
    /// Input and output of protected packets.
    pub wire: Option<Wire>,
}

/// The status of this moment. Feeds the sampler as well, so calling it every second keeps rates.
#[must_use]
pub fn observe(state: &State, cpu: &Cpu, inputs: &Inputs<'_>, sampler: &mut Sampler) -> Status {
    let snapshot = state.published().current();
    let site = state.site();
    let sas = sas(&snapshot, inputs.daemons, inputs.now_ns, sampler);
    let outbound =
        total(inputs, sampler, "outbound", |w| (w.outbound_packets.get(), w.outbound_bytes.get()));
    let inbound =
        total(inputs, sampler, "inbound", |w| (w.inbound_packets.get(), w.inbound_bytes.get()));
    let transit =
        total(inputs, sampler, "transit", |w| (w.transit_packets.get(), w.transit_bytes.get()));
    let drops = drops(inputs, sampler);
    let kernel_drops = inputs.counts.iter().filter(|c| c.is_kernel_drop).map(|c| c.value).sum();
    sampler.note("kernel-drops", inputs.now_ns, kernel_drops);
    for count in inputs.counts {
        sampler.note(&series(count.name), inputs.now_ns, count.value);
    }
    sampler.peers.note(&sas, inputs.now_ns);
    // SAs come and go, and their names with them.
    sampler.forget(inputs.now_ns);
    let leases = Leases {
        state_dir: state.state_dir().map(|dir| dir.display().to_string()),
        failure: state.lease_failure(),
    };
    let growing = |count: &&NamedCount<'_>| {
        sampler.per_second(&series(count.name)).is_some_and(|rate| rate > 0.0)
    };
    let daemons = inputs.daemons.map(|kernel| inputs.attached.report(kernel, inputs.now_ns));
    let has_nothing = inputs.daemons.is_some_and(Kernel::is_empty);
    let health = health(&Seen {
        sas: &sas,
        silent: sampler.peers.silent(inputs.now_ns),
        drops: &drops,
        outbound,
        inbound,
        kernel_drop_rate: sampler.per_second("kernel-drops"),
        growing: inputs.counts.iter().filter(growing).map(|count| count.name).collect(),
        broken: inputs.broken,
        lacking: inputs.lacking,
        leases: &leases,
        daemons: daemons.as_ref(),
        has_nothing_of_daemons: has_nothing,
    });
    Status {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        name: site.name.clone(),
        pid: std::process::id(),
        uptime_s: inputs.uptime.as_secs_f64(),
        site_file: site.path.display().to_string(),
        namespace: site.namespace.clone(),
        health,
        tier: cpu.best().to_string(),
        engine: state.site().crypto.name().map(str::to_owned),
        generation: state.generation(),
        outbound: latest(outbound, &sas, true, inputs.now_ns, sampler),
        inbound: latest(inbound, &sas, false, inputs.now_ns, sampler),
        transit: Some(transit),
        drops,
        kernel_drops,
        counters: counts(inputs),
        workers: site.workers.count,
        by_worker: by_worker(inputs, &sas),
        leases,
        sas,
        leak_protection: inputs.leak_protection.clone(),
        daemons,
        confinement: inputs.confinement.clone(),
        wire: inputs.wire.clone(),
    }
}

/// The sampler's name of a port's counter.
fn series(counter: &str) -> String {
    format!("port.{counter}")
}

fn counts(inputs: &Inputs<'_>) -> Vec<Count> {
    let ports = inputs.counts.iter().map(|count| (count.name, count.value));
    let sum = |of: fn(&WorkerCounters) -> u64| inputs.workers.iter().map(|w| of(w)).sum::<u64>();
    let workers = [
        ("bypassed", sum(|w| w.bypassed.get())),
        ("icmp-sent", sum(|w| w.icmp_sent.get())),
        ("fragments-made", sum(|w| w.fragments_made.get())),
        ("fragments-joined", sum(|w| w.fragments_joined.get())),
        ("held-for-sa", sum(|w| w.held_for_sa.get())),
        ("keepalives-sent", sum(|w| w.keepalives_sent.get())),
        ("dummies-sent", sum(|w| w.dummies_sent.get())),
        ("ecn-alarms", sum(|w| w.ecn_alarms.get())),
    ];
    ports.chain(workers).map(|(name, value)| Count { name: name.to_owned(), value }).collect()
}

/// SAs and work of each worker.
fn by_worker(inputs: &Inputs<'_>, sas: &[SaStatus]) -> Vec<WorkerStatus> {
    let mut workers: Vec<_> = (0..)
        .zip(inputs.workers)
        .map(|(worker, counters)| WorkerStatus {
            worker,
            outbound_packets: counters.outbound_packets.get(),
            inbound_packets: counters.inbound_packets.get(),
            dropped: DropReason::ALL.iter().map(|reason| counters.drops.get(*reason)).sum(),
            ..WorkerStatus::default()
        })
        .collect();
    for sa in sas {
        let Some(owner) = workers.get_mut(usize::from(sa.worker)) else { continue };
        match sa.direction {
            DirectionStatus::Outbound { .. } => owner.outbound_sas += 1,
            DirectionStatus::Inbound { .. } => owner.inbound_sas += 1,
        }
    }
    workers
}

/// Packets and bytes of all workers in one direction, with their rates.
fn total(
    inputs: &Inputs<'_>,
    sampler: &mut Sampler,
    name: &str,
    of: impl Fn(&WorkerCounters) -> (u64, u64),
) -> Flow {
    let sums = inputs
        .workers
        .iter()
        .map(|w| of(w))
        .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let (packets, bytes) = sums;
    flow(sampler, name, inputs.now_ns, packets, bytes)
}

fn flow(sampler: &mut Sampler, name: &str, now_ns: u64, packets: u64, bytes: u64) -> Flow {
    let (of_packets, of_bytes) = (format!("{name}.packets"), format!("{name}.bytes"));
    sampler.note(&of_packets, now_ns, packets);
    sampler.note(&of_bytes, now_ns, bytes);
    Flow {
        packets,
        bytes,
        packets_per_second: sampler.per_second(&of_packets),
        bits_per_second: sampler.per_second(&of_bytes).map(|bytes| bytes * 8.0),
        last_packet_s: None,
    }
}

/// A direction's flow with its last packet, which is the last of any of its SAs.
fn latest(
    flow: Flow,
    sas: &[SaStatus],
    is_outbound: bool,
    now_ns: u64,
    sampler: &mut Sampler,
) -> Flow {
    let same = sas
        .iter()
        .filter(|sa| matches!(sa.direction, DirectionStatus::Outbound { .. }) == is_outbound);
    let last = same.filter_map(|sa| sa.flow.last_packet_s).min_by(f64::total_cmp);
    Flow { last_packet_s: sampler.last_packet(is_outbound, now_ns, last), ..flow }
}

fn drops(inputs: &Inputs<'_>, sampler: &mut Sampler) -> Vec<Drops> {
    let mut drops = Vec::new();
    for reason in DropReason::ALL {
        let packets: u64 = inputs.workers.iter().map(|w| w.drops.get(*reason)).sum();
        let name = format!("drop.{}", reason.name());
        sampler.note(&name, inputs.now_ns, packets);
        if packets > 0 {
            drops.push(Drops {
                reason: reason.name().to_owned(),
                help: reason.help().to_owned(),
                packets,
                packets_per_second: sampler.per_second(&name),
                is_loss: reason.is_loss(),
            });
        }
    }
    drops
}

/// All SAs of a snapshot, outbound ones first, each direction by name.
fn sas(
    snapshot: &Snapshot,
    daemons: Option<&Kernel>,
    now_ns: u64,
    sampler: &mut Sampler,
) -> Vec<SaStatus> {
    let mut outbound: Vec<_> = snapshot.outbound_sas().collect();
    outbound.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
    let mut inbound: Vec<_> = snapshot.inbound_sas().collect();
    inbound.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
    let named = |status: SaStatus, direction, slot| match daemons
        .and_then(|kernel| kernel.numbers(direction, slot))
    {
        Some((reqid, if_id)) => SaStatus { origin: Origin::Daemon, reqid, if_id, ..status },
        None => status,
    };
    let mut sas = Vec::with_capacity(outbound.len() + inbound.len());
    sas.extend(outbound.into_iter().map(|(slot, sa)| {
        named(outbound_sa(sa, now_ns, sampler), selector::Direction::Outbound, slot)
    }));
    sas.extend(inbound.into_iter().map(|(slot, sa)| {
        named(inbound_sa(sa, now_ns, sampler), selector::Direction::Inbound, slot)
    }));
    sas
}

fn sa_flow(name: &str, counters: &SaCounters, now_ns: u64, sampler: &mut Sampler) -> Flow {
    let flow =
        flow(sampler, &format!("sa.{name}"), now_ns, counters.packets.get(), counters.bytes.get());
    let last = counters.last_packet_ns.get();
    let age = (last > 0).then(|| now_ns.saturating_sub(last) as f64 / 1e9);
    Flow { last_packet_s: age, ..flow }
}

fn outbound_sa(sa: &OutboundSpec, now_ns: u64, sampler: &mut Sampler) -> SaStatus {
    let flow = sa_flow(&sa.name, &sa.counters, now_ns, sampler);
    let used = last_number(sa);
    let left = SequenceLimits::new(sa.esn).hard.get().saturating_sub(used);
    let rate = flow.packets_per_second.filter(|rate| *rate > 0.0);
    // 0: the worker has not heard anything of the path yet.
    let path_mtu = Some(sa.counters.path_mtu.get())
        .filter(|mtu| *mtu > 0)
        .unwrap_or_else(|| sa.path_mtu.into());
    SaStatus {
        name: sa.name.to_string(),
        spi: sa.spi.to_string(),
        protocol: sa.protocol.number().to_string(),
        mode: mode(sa.mode),
        local: sa.endpoints.local,
        remote: sa.endpoints.remote,
        udp_ports: sa.encap.map(|encap| (encap.local_port, encap.remote_port)),
        algorithm: sa.key.suite().to_string(),
        tier: sa.key.tier().to_string(),
        refused_by_engine: sa.counters.refused_by_engine.get() > 0,
        esn: sa.esn,
        origin: Origin::Site,
        reqid: sa.reqid.0,
        if_id: 0,
        worker: sa.worker.0,
        flow,
        dropped: sa.counters.dropped.get(),
        lifetime: lifetime(&sa.lifetime, &sa.counters.usage, now_ns),
        direction: DirectionStatus::Outbound {
            sequence: used,
            left,
            exhausted_in_s: rate.map(|rate| left as f64 / rate),
            leased_until: sa.lease.granted(),
            path_mtu,
        },
    }
}

/// The lease runs ahead of what is sent, but before the first packet only it knows of earlier runs.
pub(crate) fn last_number(sa: &OutboundSpec) -> u64 {
    let leased = sa.lease.used().get();
    match sa.counters.sequence.get() {
        0 => leased,
        sent => sent,
    }
}

fn inbound_sa(sa: &InboundSpec, now_ns: u64, sampler: &mut Sampler) -> SaStatus {
    SaStatus {
        name: sa.name.to_string(),
        spi: sa.spi.to_string(),
        protocol: sa.protocol.number().to_string(),
        mode: mode(sa.mode),
        local: sa.endpoints.local,
        remote: sa.endpoints.remote,
        udp_ports: sa.encap.map(|encap| (encap.local_port, encap.remote_port)),
        algorithm: sa.key.suite().to_string(),
        tier: sa.key.tier().to_string(),
        refused_by_engine: sa.counters.refused_by_engine.get() > 0,
        esn: sa.esn,
        origin: Origin::Site,
        reqid: sa.reqid.0,
        if_id: 0,
        worker: sa.worker.0,
        flow: sa_flow(&sa.name, &sa.counters, now_ns, sampler),
        dropped: sa.counters.dropped.get(),
        lifetime: lifetime(&sa.lifetime, &sa.counters.usage, now_ns),
        direction: DirectionStatus::Inbound {
            replay_edge: sa.counters.floor.get().get(),
            replay_window: sa.replay_window,
            replayed: sa.counters.replayed.get(),
            icv_failures: sa.counters.icv_failures.get(),
        },
    }
}

fn lifetime(lifetime: &Lifetime, usage: &Usage, now_ns: u64) -> Option<LifetimeStatus> {
    let Lifetime { soft, hard } = lifetime;
    if soft.is_none() && hard.is_none() {
        return None;
    }
    let now = Now(now_ns);
    let left = |limits: &Limits| {
        let left = limits.left(usage, now);
        LifetimeLeft {
            packets: left.packets,
            bytes: left.bytes,
            age_s: left.since_add.map(|time| time.as_secs_f64()),
            use_s: left.since_use.map(|time| time.as_secs_f64()),
        }
    };
    let state = if hard.reached(usage, now).is_some() {
        LifetimeState::Expired
    } else if soft.reached(usage, now).is_some() {
        LifetimeState::Ending
    } else {
        LifetimeState::Live
    };
    let (packets, bytes) = (usage.packets.get(), usage.bytes.get());
    Some(LifetimeStatus { state, packets, bytes, soft: left(soft), hard: left(hard) })
}

/// A mode in a word.
pub(crate) fn mode(mode: Mode) -> String {
    match mode {
        Mode::Tunnel => "tunnel".to_owned(),
        Mode::Transport => "transport".to_owned(),
    }
}

/// The SAs of a gateway, those of IKE daemons included.
#[must_use]
pub fn sa_report(
    state: &State,
    daemons: Option<&Kernel>,
    now_ns: u64,
    sampler: &mut Sampler,
) -> SaReport {
    let snapshot = state.published().current();
    SaReport { schema: SCHEMA, sas: sas(&snapshot, daemons, now_ns, sampler) }
}
