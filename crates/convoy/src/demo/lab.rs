//! The demonstration in network namespaces.

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::time::Duration;

use convoy_control::status::{DirectionStatus, Status};
use convoy_ipsec::drop_reason::DropReason;
use convoy_lab::traffic::{
    self, Direction, PingReport, Rate, TcpBulk, TcpReport, UdpPaced, UdpReport, Watch,
};
use convoy_lab::{Family, Topology, TopologyConfig};

use super::args::Io;
use super::budget::Budget;
use super::folder::{Folder, SiteOptions};
use super::gateways::Gateways;
use super::progress::Progress;
use super::report::{Dropped, OtherWire, Ping, Summary, Tcp, Udp};
use crate::interrupt::Interrupt;

/// Payload bits per second of the paced datagrams, each way: moderate, so that a machine with two
/// processors keeps up. Less where a probe shows that this one does not.
const UDP_RATE: u64 = 100_000_000;
/// The same for an ordinary user, whose sockets have small buffers.
const UDP_RATE_OF_USER: u64 = 20_000_000;
/// Payload bytes of a datagram where the path allows.
const UDP_PAYLOAD: usize = 1200;
/// Most bytes of a packet that the headers of tunnel, ESP, IP and UDP take, rounded up.
const HEADERS: usize = 160;
/// Echo requests.
const PINGS: u16 = 10;
/// Latest arrival of an answer or a datagram: on a crowded machine everyone waits for a processor,
/// and what is late is not lost.
pub(super) const LATEST: Duration = Duration::from_secs(5);
/// Reasons for which gateways drop packets that they cannot pass on fast enough.
const WITHOUT_ROOM: [DropReason; 3] =
    [DropReason::NoFrame, DropReason::RingFull, DropReason::IoTxFailed];
/// Duration of echo requests that only have counters brought up to date.
const FLUSH: Duration = Duration::from_millis(100);
/// MTU of the networks behind the gateways, in bytes: as wide as the wire, and at least Ethernet's.
const LAN_MTU: u16 = 1500;

/// The interface that `convoy init` names.
const TUN_LINK: &str = "convoy0";
/// Packets it keeps while its gateway waits for a processor.
const TUN_QUEUE: u32 = 4000;

/// Network and settings of the demonstration.
#[derive(Clone, Copy, Debug)]
pub(super) struct World<'a> {
    pub(super) topology: &'a Topology,
    pub(super) family: Family,
    pub(super) mtu: u16,
    pub(super) udp_encap: bool,
    pub(super) io: Io,
    /// True if the other wire is measured, too.
    pub(super) both_wires: bool,
}

impl World<'_> {
    /// Names of the wire that is demonstrated, and of the other one.
    fn wires(&self) -> [&'static str; 2] {
        match self.udp_encap {
            true => ["ESP in UDP", "native ESP"],
            false => ["native ESP", "ESP in UDP"],
        }
    }
}

/// Checks that this process may make namespaces and TUN interfaces; becomes root of its own namespaces
/// if it is not root. Has to come before the first thread.
pub(super) fn rights() -> Result<(), String> {
    let tun = OpenOptions::new().read(true).write(true).open("/dev/net/tun");
    tun.map_err(|error| format!("/dev/net/tun: {error}"))?;
    if nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    convoy_lab::rootless().map_err(|error| error.to_string())
}

/// Builds the networks; clears up first after demonstrations that were killed.
pub(super) fn build(mtu: u16) -> Result<Topology, String> {
    // What cannot be cleared up is in nobody's way: names are new for every run.
    let _ = convoy_lab::sweep();
    let config =
        TopologyConfig { wire_mtu: mtu.into(), lan_mtu: mtu.max(LAN_MTU).into(), named: true };
    Topology::build(&config).map_err(|error| error.to_string())
}

/// Writes the site files, sends all traffic and sums up. The gateways are left in `gateways`, running.
pub(super) fn run(
    world: &World<'_>,
    seconds: u32,
    folder: &Folder,
    options: &SiteOptions,
    gateways: &mut Option<Gateways>,
    progress: &mut Progress,
    interrupt: &Interrupt,
) -> anyhow::Result<Summary> {
    let budget = Budget::of(seconds);
    let mut stage = Stage { world, gateways, progress, interrupt };
    let routes = world.topology.direct_routes()?;
    let baseline = stage.tcp("TCP without Convoy", Direction::Forward, budget.baseline)?;
    drop(routes);

    let other_wire = match world.both_wires {
        true => Some(stage.other_wire(folder, options, budget.other)?),
        false => None,
    };
    let sites = stage.start_gateways(folder, options)?;
    let (ping, with_ping) = stage.counted(|stage| {
        let report = stage.ping(budget.ping)?;
        let lost = report.lost();
        Ok((report, lost))
    })?;
    let forward = stage.tcp("TCP A to B through the tunnel", Direction::Forward, budget.bulk)?;
    let backward = stage.tcp("TCP B to A through the tunnel", Direction::Backward, budget.bulk)?;
    let rate = stage.probe()?;
    let share = convoy_lab::share_of_processors();
    let (udp, with_udp) = stage.counted(|stage| {
        let report = stage.udp(rate, budget.paced)?;
        let lost = report.forward.lost() + report.backward.lost();
        Ok((report, lost))
    })?;
    let both = stage.status()?;

    let summary = Summary {
        wire: world.wires()[0],
        io: world.io.word(),
        bulk: "TCP",
        ip_version: version(world.family),
        mtu: world.mtu,
        throughput_bps: forward.forward.bits_per_second() as u64,
        throughput_back_bps: backward.backward.bits_per_second() as u64,
        other_wire,
        baseline_bps: baseline.forward.bits_per_second() as u64,
        processors_percent: (share * 100.0).round() as u64,
        ping: Ping::of(&ping, with_ping),
        udp: Udp::of(&udp, bits_per_second(rate, payload(world)), with_udp),
        tcp: Some(Tcp::of(&forward, &backward)),
        ..Summary::default()
    };
    Ok(count(summary, &both).conclude(folder, &sites))
}

/// Adds what the gateways counted.
fn count(mut summary: Summary, both: &[Status]) -> Summary {
    summary.way = both.first().and_then(|it| it.wire.as_ref()).map(|wire| wire.in_words());
    for status in both {
        summary.tier.clone_from(&status.tier);
        summary.packets += status.inbound.packets;
        summary.engines.add_status(status);
        for drops in &status.drops {
            *summary.drops.entry(drops.reason.clone()).or_default() += drops.packets;
        }
        for sa in &status.sas {
            if let DirectionStatus::Inbound { replayed, icv_failures, .. } = sa.direction {
                summary.replays += replayed;
                summary.icv_failures += icv_failures;
            }
        }
    }
    summary
}

/// Packets that gateways have dropped because they could not pass them on fast enough.
pub(super) fn without_room(all: &[Status]) -> u64 {
    let names = WITHOUT_ROOM.map(DropReason::name);
    let drops = all.iter().flat_map(|status| &status.drops);
    drops.filter(|drops| names.contains(&&*drops.reason)).map(|drops| drops.packets).sum()
}

fn payload(world: &World<'_>) -> usize {
    UDP_PAYLOAD.min(usize::from(world.mtu) - HEADERS)
}

fn bits_per_second(rate: Rate, payload: usize) -> u64 {
    match rate {
        Rate::BitsPerSecond(rate) => rate,
        Rate::PacketsPerSecond(rate) => rate * payload as u64 * 8,
    }
}

fn udp_rate() -> u64 {
    if own_world() { UDP_RATE_OF_USER } else { UDP_RATE }
}

/// True if this process is root of a world of its own only.
pub(super) fn own_world() -> bool {
    // In the first user namespace every number stands for itself.
    std::fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| !map.split_whitespace().eq(["0", "0", "4294967295"]))
}

pub(super) fn version(family: Family) -> u8 {
    match family {
        Family::V4 => 4,
        Family::V6 => 6,
    }
}

/// One phase after the other, each watched.
struct Stage<'a> {
    world: &'a World<'a>,
    gateways: &'a mut Option<Gateways>,
    progress: &'a mut Progress,
    interrupt: &'a Interrupt,
}

impl Stage<'_> {
    /// Writes site files and starts their gateways.
    fn start_gateways(
        &mut self,
        folder: &Folder,
        options: &SiteOptions,
    ) -> anyhow::Result<[PathBuf; 2]> {
        let World { topology, io, .. } = *self.world;
        let sites = folder.write_sites(options)?;
        *self.gateways = Some(Gateways::start(topology, folder, &sites, self.interrupt)?);
        let with_tun = if io == Io::Tun { &[&topology.a, &topology.b][..] } else { &[] };
        for site in with_tun {
            // A gateway of an ordinary user may not do this itself.
            site.gateway.set_queue_length(TUN_LINK, TUN_QUEUE)?;
        }
        Ok(sites)
    }

    /// Measures the throughput of gateways with the other wire, which end and leave no files.
    fn other_wire(
        &mut self,
        folder: &Folder,
        options: &SiteOptions,
        time: Duration,
    ) -> anyhow::Result<OtherWire> {
        let [_, wire] = self.world.wires();
        self.start_gateways(folder, &options.of_other_wire())?;
        let forward = self.tcp("TCP A to B by the other wire", Direction::Forward, time)?;
        let backward = self.tcp("TCP B to A by the other wire", Direction::Backward, time)?;
        self.gateways.take().map_or(Ok(()), Gateways::end)?;
        folder.clear_files()?;
        Ok(OtherWire {
            wire,
            throughput_bps: forward.forward.bits_per_second() as u64,
            throughput_back_bps: backward.backward.bits_per_second() as u64,
        })
    }

    fn ping(&mut self, time: Duration) -> anyhow::Result<PingReport> {
        let ping = traffic::Ping {
            count: PINGS,
            interval: time / u32::from(PINGS),
            timeout: LATEST,
            ..traffic::Ping::new(self.world.topology.b.host_address(self.world.family))
        };
        self.watched("ping through the tunnel", |topology, watch| ping.run(&topology.a.host, watch))
    }

    fn tcp(
        &mut self,
        phase: &'static str,
        direction: Direction,
        time: Duration,
    ) -> anyhow::Result<TcpReport> {
        let to = self.world.topology.b.host_address(self.world.family);
        // Comparing every byte would cost what is measured; ESP has authenticated them all.
        let bulk = TcpBulk { direction, verify: false, ..TcpBulk::new(to, time) };
        self.watched(phase, |topology, watch| bulk.run(&topology.a.host, &topology.b.host, watch))
    }

    /// Finds the rate of datagrams that this machine carries now.
    fn probe(&mut self) -> anyhow::Result<Rate> {
        let paced = self.paced(Rate::BitsPerSecond(udp_rate()), Duration::ZERO);
        self.watched("what this machine carries now", |topology, watch| {
            paced.probe(&topology.a.host, &topology.b.host, watch)
        })
    }

    fn udp(&mut self, rate: Rate, time: Duration) -> anyhow::Result<UdpReport> {
        let paced = self.paced(rate, time);
        self.watched("UDP both ways", |topology, watch| {
            paced.run(&topology.a.host, &topology.b.host, watch)
        })
    }

    fn paced(&self, rate: Rate, time: Duration) -> UdpPaced {
        let to = self.world.topology.b.host_address(self.world.family);
        UdpPaced {
            direction: Direction::Both,
            payload: payload(self.world),
            quiet: LATEST,
            ..UdpPaced::new(to, rate, time)
        }
    }

    /// Runs a phase, and tells what was dropped meanwhile for want of room. The phase says how many
    /// packets it lost.
    fn counted<T>(
        &mut self,
        phase: impl FnOnce(&mut Self) -> anyhow::Result<(T, u64)>,
    ) -> anyhow::Result<(T, Dropped)> {
        let before = self.dropped()?;
        let (report, lost) = phase(self)?;
        if lost > 0 && self.world.io != Io::Tun {
            // The kernel tells such a gateway of drops with the next packet.
            self.ping(FLUSH)?;
        }
        Ok((report, self.dropped()?.since(before)))
    }

    /// Packets that kernels and gateways have dropped for want of room until now.
    fn dropped(&mut self) -> anyhow::Result<Dropped> {
        let both = self.status()?;
        let counted = self.world.topology.kernel_drops().map_err(Into::into);
        let mut kernels = match self.gateways.as_mut() {
            Some(gateways) => gateways.unless_dead(counted)?,
            None => counted?,
        };
        if self.world.io != Io::Tun {
            // Their sockets are in no table of the kernel.
            kernels += both.iter().map(|status| status.kernel_drops).sum::<u64>();
        }
        Ok(Dropped { kernels, gateways: without_room(&both) })
    }

    /// Runs a phase, tells its progress, and ends it early when a gateway dies.
    fn watched<T>(
        &mut self,
        phase: &'static str,
        work: impl FnOnce(&Topology, &mut Watch<'_>) -> Result<T, convoy_lab::LabError>,
    ) -> anyhow::Result<T> {
        self.progress.phase(phase);
        let mut tell = |now| {
            self.progress.tell(now);
            if self.gateways.as_mut().is_some_and(|gateways| !gateways.live()) {
                self.interrupt.cancel();
            }
        };
        let mut watch = Watch::new(self.interrupt.flag()).on_progress(&mut tell);
        let result = work(self.world.topology, &mut watch);
        // Why it ended comes before what became of it.
        self.interrupt.check()?;
        if let Some(gateways) = self.gateways.as_mut() {
            gateways.check()?;
        }
        Ok(result?)
    }

    fn status(&mut self) -> anyhow::Result<Vec<Status>> {
        self.interrupt.check()?;
        let Some(gateways) = self.gateways.as_mut() else { return Ok(Vec::new()) };
        gateways.check()?;
        Ok(gateways.status()?.into())
    }
}
