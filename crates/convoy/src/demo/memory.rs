//! The demonstration without namespaces: both gateways in this process, joined by memory, and the
//! hosts behind them are two ends of a loop that makes packets and compares them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use convoy_control::site::Site;
use convoy_crypto::Cpu;
use convoy_io::mem::{Config, CopyPort, copying_pair};
use convoy_io::pcap::{Recorder, RecorderConfig, Tap};
use convoy_io::{Port, PortCounters};
use convoy_ipsec::drop_reason::DropReason;
use convoy_lab::Family;
use convoy_packet::{Arena, Burst, FrameSize, Pool};
use convoy_runtime::{WireMatch, WirePort, WorkerPorts};

use super::budget::Budget;
use super::folder::Folder;
use super::lab::version;
use super::packets::{Datagrams, Host, Hosts};
use super::progress::Progress;
use super::report::{Dropped, Ping, Summary, Udp, tenths};
use crate::gateway::{Core, Medium, Prepared, load, plain_mtu};
use crate::interrupt::Interrupt;

/// Packets each piece of memory between two ports holds.
const DEPTH: usize = 1024;
/// Time that a gateway waits for room before it drops.
const PATIENCE: Duration = Duration::from_millis(5);
/// Datagrams under way at most: fewer than any piece of memory holds, so none is lost for want of
/// room.
const WINDOW: u64 = 512;
/// Frames of the hosts.
const FRAMES: u32 = 2048;
/// After so long a silence, what is still under way counts as lost. Nothing is lost in memory for
/// want of time, so this only guards against hanging: on a busy machine a gateway waits long for a
/// processor.
const QUIET: Duration = Duration::from_secs(10);
/// Echo requests.
const PINGS: u16 = 10;
/// Time between two reports of progress.
const TICK: Duration = Duration::from_millis(100);

/// Settings of the demonstration.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) family: Family,
    pub(super) mtu: u16,
    /// Reason for the lack of namespaces.
    pub(super) why: String,
}

/// Sends all traffic and sums up.
pub(super) fn run(
    world: &World,
    seconds: u32,
    folder: &Folder,
    sites: &[PathBuf; 2],
    progress: &mut Progress,
    interrupt: &Interrupt,
) -> anyhow::Result<Summary> {
    let budget = Budget::of(seconds);
    let (site_a, site_b) = (read(&sites[0])?, read(&sites[1])?);
    let size = usize::from(plain_mtu(&site_a, world.mtu));
    let mut stage = Stage { hosts: Hosts { family: world.family }, size, progress, interrupt };

    let (a, b) = copying_pair(&memory(), size);
    let mut direct = Ends::new(a, b, size)?;
    let baseline = stage.bulk("packets without Convoy", &mut direct, Host::A, budget.baseline)?;

    let (wire_a, wire_b) = copying_pair(&memory(), world.mtu.into());
    let capture = capture(&site_a, world.mtu)?;
    let wire_a: Box<dyn Port> = match &capture {
        Some(recorder) => Box::new(Tap::new(wire_a, recorder)),
        None => Box::new(wire_a),
    };
    let (gateway_a, a) = start(site_a, world.mtu, size, wire_a)?;
    let (gateway_b, b) = start(site_b, world.mtu, size, Box::new(wire_b))?;
    let mut tunnel = Ends::new(a, b, size)?;
    let ping = stage.ping(&mut tunnel, budget.ping)?;
    let forward =
        stage.bulk("packets A to B", &mut tunnel, Host::A, budget.bulk + budget.paced / 2)?;
    let backward =
        stage.bulk("packets B to A", &mut tunnel, Host::B, budget.bulk + budget.paced / 2)?;

    let summary = Summary {
        wire: "in-memory",
        io: "memory",
        why_in_memory: Some(world.why.clone()),
        bulk: "packets",
        ip_version: version(world.family),
        mtu: world.mtu,
        throughput_bps: forward.bits_per_second(),
        throughput_back_bps: backward.bits_per_second(),
        baseline_bps: baseline.bits_per_second(),
        ping,
        udp: Udp {
            sent: forward.sent + backward.sent,
            received: forward.received + backward.received,
            lost: forward.lost() + backward.lost(),
            duplicates: forward.duplicates + backward.duplicates,
            damaged: forward.damaged + backward.damaged,
            a_to_b_bps: forward.bits_per_second(),
            b_to_a_bps: backward.bits_per_second(),
            ..Udp::default()
        },
        processors_percent: (convoy_lab::share_of_processors() * 100.0).round() as u64,
        tier: Cpu::detect()?.best().name().to_owned(),
        ..Summary::default()
    };
    let summary = end([gateway_a, gateway_b], summary)?;
    drop(capture);
    Ok(summary.conclude(folder, sites))
}

fn memory() -> Config {
    Config { depth: DEPTH, send_timeout: PATIENCE }
}

fn read(site: &Path) -> anyhow::Result<Site> {
    Ok(load(site)?.0)
}

fn capture(site: &Site, mtu: u16) -> anyhow::Result<Option<Recorder>> {
    let Some(capture) = &site.capture else { return Ok(None) };
    let config = RecorderConfig {
        file_bytes: u64::from(capture.max_mib) << 20,
        snap: mtu,
        ..RecorderConfig::default()
    };
    Ok(Some(Recorder::create(&capture.file, config)?))
}

/// A running gateway, and the host's end of its plain side.
fn start(
    site: Site,
    mtu: u16,
    size: usize,
    wire: Box<dyn Port>,
) -> anyhow::Result<(Core, CopyPort)> {
    let name = site.name.clone();
    let (plain, host) = copying_pair(&memory(), size);
    let ports = WorkerPorts {
        plain: Box::new(plain),
        interfaces: Vec::new(),
        wire: vec![WirePort { carries: WireMatch::default(), port: wire }],
    };
    let alarm = move |_| tracing::error!("gateway {name} failed");
    Ok((Prepared::new(site, mtu, Medium::Bare)?.start(vec![ports], alarm)?, host))
}

/// Ends both gateways and adds what they counted.
fn end(gateways: [Core; 2], mut summary: Summary) -> anyhow::Result<Summary> {
    for gateway in gateways {
        let stats = gateway.stats().to_vec();
        let snapshot = gateway.state().published().current();
        // Before anything is read: an ending worker publishes all it counted.
        gateway.stop()?;
        for worker in stats {
            summary.packets += worker.pipeline.inbound_packets.get();
            summary.engines.add_stats(&worker.engine);
            for (reason, count) in worker.pipeline.drops.iter().filter(|(_, n)| *n > 0) {
                *summary.drops.entry(reason.name().to_owned()).or_default() += count;
            }
            let drops = &worker.pipeline.drops;
            summary.replays += drops.get(DropReason::Replayed) + drops.get(DropReason::TooOld);
            summary.icv_failures += drops.get(DropReason::BadIcv);
        }
        drop(snapshot);
    }
    Ok(summary)
}

/// The two ends between which the hosts send.
struct Ends {
    a: CopyPort,
    b: CopyPort,
    pool: Pool,
    burst: Burst,
}

impl Ends {
    fn new(a: CopyPort, b: CopyPort, size: usize) -> anyhow::Result<Self> {
        let arena =
            Arena::map(FRAMES, FrameSize::for_packet(size)).context("no memory for packets")?;
        Ok(Self { a, b, pool: arena.pool(), burst: Burst::new() })
    }

    fn of(&mut self, host: Host) -> &mut CopyPort {
        match host {
            Host::A => &mut self.a,
            Host::B => &mut self.b,
        }
    }

    /// Adds a packet to those sent by the next [`Ends::flush`].
    fn stage(&mut self, packet: &[u8]) -> anyhow::Result<()> {
        let mut frame = self.pool.alloc().context("no frame")?;
        let filled = frame.fill_from(packet);
        if let Err(frame) = self.burst.push(frame) {
            self.pool.free(frame);
        }
        Ok(filled?)
    }

    fn flush(&mut self, sender: Host) -> anyhow::Result<()> {
        let port = match sender {
            Host::A => &mut self.a,
            Host::B => &mut self.b,
        };
        Ok(port.tx(&mut self.pool, &mut self.burst)?)
    }

    /// Hands every packet that has arrived at a host to `take`.
    fn receive(&mut self, host: Host, mut take: impl FnMut(&[u8])) -> anyhow::Result<usize> {
        let port = match host {
            Host::A => &mut self.a,
            Host::B => &mut self.b,
        };
        let received = port.rx(&mut self.pool, &mut self.burst)?;
        for frame in self.burst.drain() {
            take(frame.data());
            self.pool.free(frame);
        }
        Ok(received)
    }
}

/// Result of one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    sent: u64,
    received: u64,
    duplicates: u64,
    damaged: u64,
    bytes: u64,
    elapsed: Duration,
}

impl Flow {
    fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    fn bits_per_second(&self) -> u64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { (self.bytes as f64 * 8.0 / seconds) as u64 } else { 0 }
    }
}

struct Stage<'a> {
    hosts: Hosts,
    size: usize,
    progress: &'a mut Progress,
    interrupt: &'a Interrupt,
}

impl Stage<'_> {
    fn ping(&mut self, ends: &mut Ends, time: Duration) -> anyhow::Result<Ping> {
        self.progress.phase("ping through the tunnel");
        let mut times = Vec::new();
        for number in 0..PINGS {
            let begun = Instant::now();
            if self.echo(ends, number)? {
                times.push(begun.elapsed().as_secs_f64() * 1e6);
            }
            let pause = time / u32::from(PINGS);
            std::thread::sleep(pause.saturating_sub(begun.elapsed()));
            self.interrupt.check()?;
        }
        let received = times.len() as u64;
        let sent = u64::from(PINGS);
        Ok(Ping {
            sent,
            received,
            lost: sent - received,
            dropped: Dropped::default(),
            rtt_min_us: tenths(times.iter().copied().reduce(f64::min).unwrap_or_default()),
            rtt_mean_us: tenths(times.iter().sum::<f64>() / times.len().max(1) as f64),
            rtt_max_us: tenths(times.iter().copied().reduce(f64::max).unwrap_or_default()),
        })
    }

    /// One request and its reply; true if both arrived.
    fn echo(&mut self, ends: &mut Ends, number: u16) -> anyhow::Result<bool> {
        for sender in [Host::A, Host::B] {
            let message = self.hosts.echo(sender, number)?;
            ends.stage(&message)?;
            ends.flush(sender)?;
            if !self.arrives(ends, sender.other(), &message)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn arrives(&self, ends: &mut Ends, host: Host, message: &[u8]) -> anyhow::Result<bool> {
        let begun = Instant::now();
        let mut arrived = false;
        while !arrived && begun.elapsed() < QUIET {
            let take = |packet: &[u8]| arrived |= self.hosts.same_message(packet, message);
            if ends.receive(host, take)? == 0 {
                self.interrupt.check()?;
                std::thread::yield_now();
            }
        }
        Ok(arrived)
    }

    fn bulk(
        &mut self,
        phase: &'static str,
        ends: &mut Ends,
        sender: Host,
        time: Duration,
    ) -> anyhow::Result<Flow> {
        self.progress.phase(phase);
        let mut datagrams = self.hosts.datagrams(sender, self.size)?;
        let mut flow = Flow::default();
        let mut seen = Seen::default();
        let begun = Instant::now();
        let (mut heard, mut told) = (begun, begun);
        loop {
            let now = Instant::now();
            let sending = now - begun < time;
            let under_way = flow.sent - flow.received;
            if (!sending && under_way == 0) || now - heard > QUIET {
                break;
            }
            if sending && under_way < WINDOW {
                send(ends, sender, &mut datagrams, &mut flow)?;
            }
            let got =
                ends.receive(sender.other(), |packet| seen.take(packet, &datagrams, &mut flow))?;
            if got > 0 {
                heard = Instant::now();
                flow.elapsed = heard - begun;
            } else {
                std::thread::yield_now();
            }
            if now - told > TICK {
                told = now;
                self.progress.bytes(now - begun, flow.bytes);
                self.interrupt.check()?;
            }
        }
        Ok(flow)
    }
}

/// Sends a burst, or less when not so much may be under way.
fn send(
    ends: &mut Ends,
    sender: Host,
    datagrams: &mut Datagrams,
    flow: &mut Flow,
) -> anyhow::Result<()> {
    let room = (WINDOW - (flow.sent - flow.received)).min(ends.burst.room() as u64);
    for _ in 0..room {
        ends.stage(datagrams.numbered(flow.sent))?;
        flow.sent += 1;
    }
    let refused = |counters: PortCounters| counters.tx_would_block + counters.tx_too_big;
    let before = refused(ends.of(sender).counters());
    ends.flush(sender)?;
    // What was not taken was not sent; with the window below the depth that does not happen.
    anyhow::ensure!(refused(ends.of(sender).counters()) == before, "memory between ports is full");
    Ok(())
}

/// Numbers that have arrived: one bit each.
#[derive(Debug, Default)]
struct Seen(Vec<u64>);

impl Seen {
    fn take(&mut self, packet: &[u8], datagrams: &Datagrams, flow: &mut Flow) {
        let number = datagrams.number_of(packet).filter(|number| *number < flow.sent);
        let Some(number) = number else {
            flow.damaged += 1;
            return;
        };
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        if self.0[word] & bit != 0 {
            flow.duplicates += 1;
            return;
        }
        self.0[word] |= bit;
        flow.received += 1;
        flow.bytes += datagrams.payload() as u64;
    }
}
