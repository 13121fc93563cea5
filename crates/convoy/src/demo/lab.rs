//! The demonstration in network namespaces.

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::time::Duration;

use convoy_control::status::{Direction as SaDirection, Status};
use convoy_lab::traffic::{
    self, Direction, PingReport, Rate, TcpBulk, TcpReport, UdpPaced, UdpReport, Watch,
};
use convoy_lab::{Family, Topology, TopologyConfig};

use super::Io;
use super::budget::Budget;
use super::folder::Folder;
use super::gateways::Gateways;
use super::interrupt::Interrupt;
use super::progress::Progress;
use super::report::{Summary, Tcp, Udp};

/// Payload bits per second of the paced datagrams, each way: moderate, so that a busy machine with
/// two processors keeps up.
const UDP_RATE: u64 = 100_000_000;
/// The same for an ordinary user, whose sockets have small buffers.
const UDP_RATE_OF_USER: u64 = 20_000_000;
/// Payload bytes of a datagram where the path allows.
const UDP_PAYLOAD: usize = 1200;
/// What the headers of tunnel, ESP, IP and UDP take of a packet at most, in bytes, rounded up.
const HEADERS: usize = 160;
/// Echo requests.
const PINGS: u16 = 10;
/// How late an answer or a datagram may come: on a crowded machine everyone waits for a processor,
/// and what is late is not lost.
const LATEST: Duration = Duration::from_secs(3);
/// MTU of the networks behind the gateways, in bytes: as wide as the wire, and at least Ethernet's.
const LAN_MTU: u16 = 1500;

/// The interface that `convoy init` names.
const TUN_LINK: &str = "convoy0";
/// Packets it keeps while its gateway waits for a processor.
const TUN_QUEUE: u32 = 4000;

/// What is demonstrated.
#[derive(Clone, Copy, Debug)]
pub(super) struct World<'a> {
    pub(super) topology: &'a Topology,
    pub(super) family: Family,
    pub(super) mtu: u16,
    pub(super) udp_encap: bool,
    pub(super) io: Io,
}

/// Whether this process may make namespaces and TUN interfaces; becomes root of its own namespaces
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

/// Sends all traffic and sums up. The gateways are left in `gateways`, running.
pub(super) fn run(
    world: &World<'_>,
    seconds: u32,
    folder: &Folder,
    sites: &[PathBuf; 2],
    gateways: &mut Option<Gateways>,
    progress: &mut Progress,
    interrupt: &Interrupt,
) -> anyhow::Result<Summary> {
    let budget = Budget::of(seconds);
    let mut stage = Stage { world, gateways, progress, interrupt };
    let routes = world.topology.direct_routes()?;
    let baseline = stage.tcp("TCP without Convoy", Direction::Forward, budget.baseline)?;
    drop(routes);

    *stage.gateways = Some(Gateways::start(world.topology, folder, sites, interrupt)?);
    let with_tun =
        if world.io == Io::Tun { &[&world.topology.a, &world.topology.b][..] } else { &[] };
    for site in with_tun {
        // A gateway of an ordinary user may not do this itself.
        site.gateway.set_queue_length(TUN_LINK, TUN_QUEUE)?;
    }
    let ping = stage.ping(budget.ping)?;
    let forward = stage.tcp("TCP A to B through the tunnel", Direction::Forward, budget.bulk)?;
    let backward = stage.tcp("TCP B to A through the tunnel", Direction::Backward, budget.bulk)?;
    let udp = stage.udp(budget.paced)?;
    let both = stage.status()?;

    let summary = Summary {
        wire: if world.udp_encap { "ESP in UDP" } else { "native ESP" },
        io: world.io.word(),
        bulk: "TCP",
        ip_version: version(world.family),
        mtu: world.mtu,
        throughput_bps: forward.forward.bits_per_second() as u64,
        throughput_back_bps: backward.backward.bits_per_second() as u64,
        baseline_bps: baseline.forward.bits_per_second() as u64,
        ping: ping.into(),
        udp: Udp::of(&udp, udp_rate()),
        tcp: Some(Tcp::of(&forward, &backward)),
        ..Summary::default()
    };
    Ok(count(summary, &both).conclude(folder, sites))
}

/// Adds what the gateways counted.
fn count(mut summary: Summary, both: &[Status]) -> Summary {
    for status in both {
        summary.tier.clone_from(&status.tier);
        summary.packets += status.inbound.packets;
        for drops in &status.drops {
            *summary.drops.entry(drops.reason.clone()).or_default() += drops.packets;
        }
        summary.udp.kernel_drops += status.kernel_drops;
        for sa in &status.sas {
            if let SaDirection::Inbound { replayed, icv_failures, .. } = sa.direction {
                summary.replays += replayed;
                summary.icv_failures += icv_failures;
            }
        }
    }
    summary
}

fn udp_rate() -> u64 {
    if own_world() { UDP_RATE_OF_USER } else { UDP_RATE }
}

/// Whether this process is root of a world of its own only.
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

    fn udp(&mut self, time: Duration) -> anyhow::Result<UdpReport> {
        let to = self.world.topology.b.host_address(self.world.family);
        let paced = UdpPaced {
            direction: Direction::Both,
            payload: UDP_PAYLOAD.min(usize::from(self.world.mtu) - HEADERS),
            quiet: LATEST,
            ..UdpPaced::new(to, Rate::BitsPerSecond(udp_rate()), time)
        };
        self.watched("UDP both ways", |topology, watch| {
            paced.run(&topology.a.host, &topology.b.host, watch)
        })
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
