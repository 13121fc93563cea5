//! `convoy replay`: the real worker over capture files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use convoy_control::site::Site;
use convoy_control::state::State;
use convoy_io::pcap::{Reader, Writer};
use convoy_io::{IoError, Port, PortCounters};
use convoy_ipsec::sa::WorkerId;
use convoy_packet::{BURST_MAX, Burst, Pool};
use convoy_runtime::{PortTotals, WireMatch, WirePort, Worker, WorkerPorts, now};
use serde::Serialize;

use crate::exit::{Exit, Stop, describe};
use crate::gateway::{Medium, Prepared, load};
use crate::output;
use crate::privileges;

/// `convoy replay`
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Site file.
    #[arg(value_name = "SITE.toml")]
    pub site: PathBuf,
    /// Packets that arrive at the plain side.
    #[arg(long, value_name = "PCAP")]
    pub plain_in: Option<PathBuf>,
    /// File for packets that leave the plain side.
    #[arg(long, value_name = "PCAP")]
    pub plain_out: Option<PathBuf>,
    /// Packets that arrive at the wire side.
    #[arg(long, value_name = "PCAP")]
    pub wire_in: Option<PathBuf>,
    /// File for packets that leave the wire side.
    #[arg(long, value_name = "PCAP")]
    pub wire_out: Option<PathBuf>,
    /// Begin sequence numbers at 1 and remember nothing. Repeats nonces if the keys are used for
    /// anything else: for tests with throw-away keys only.
    #[arg(long)]
    pub no_lease: bool,
    /// Print counts as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Outer packets are for an Ethernet unless the site file says otherwise.
const WIRE_MTU: u16 = 1500;
/// Fragments that one packet may become, at most, for which sequence numbers must be left.
const FRAGMENTS: u64 = 64;
/// Time to wait for leased sequence numbers before packets are dropped for want of them.
const LEASE_PATIENCE: Duration = Duration::from_secs(2);

#[derive(Serialize)]
struct Report {
    plain: SideReport,
    wire: SideReport,
    /// Dropped packets by reason; reasons that did not occur are left out.
    drops: BTreeMap<&'static str, u64>,
    icmp_sent: u64,
    fragments_made: u64,
    /// Fragments from the wire that became part of another's packet.
    fragments_joined: u64,
    sas: Vec<SaReport>,
}

#[derive(Serialize)]
struct SideReport {
    packets_in: u64,
    packets_out: u64,
    /// Packets in the file that are no IP packets or too large.
    unreadable: u64,
}

#[derive(Serialize)]
struct SaReport {
    name: String,
    direction: &'static str,
    spi: u32,
    packets: u64,
    bytes: u64,
    sequence: u64,
    replayed: u64,
    icv_failures: u64,
    dropped: u64,
}

pub(crate) fn run(args: &ReplayArgs) -> anyhow::Result<Exit> {
    if args.plain_in.is_none() && args.wire_in.is_none() {
        return Err(Stop::usage("nothing to replay: name a capture by --plain-in or --wire-in"));
    }
    privileges::keep_private();
    let (mut site, _) = load(&args.site)?;
    // One worker for all: captures have no queues.
    site.workers.count = 1;
    let outbound = site.outbound.iter_mut().map(|sa| &mut sa.association);
    outbound.chain(site.inbound.iter_mut().map(|sa| &mut sa.association)).for_each(|sa| {
        sa.worker = WorkerId(0);
    });
    // Kept until the end, and removed then.
    let throw_away = args.no_lease.then(|| throw_away(&mut site)).transpose()?;
    let budget = Arc::new(AtomicUsize::new(0));
    let plain = FilePort::open(args.plain_in.as_deref(), args.plain_out.as_deref(), &budget)?;
    let wire = FilePort::open(args.wire_in.as_deref(), args.wire_out.as_deref(), &budget)?;
    let ports = WorkerPorts {
        plain: Box::new(plain),
        interfaces: Vec::new(),
        wire: vec![WirePort { carries: WireMatch::default(), port: Box::new(wire) }],
    };
    let prepared = Prepared::new(site, WIRE_MTU, Medium::Bare)?;
    let (state, mut workers) = prepared.into_workers(vec![ports])?;
    let worker = workers.first_mut().context("no worker")?;
    drive(worker, &state, &budget)?;
    let report = report(worker, &state);
    // Closes the files, and gives the sequence counters back before their numbers are written.
    drop(workers);
    state.finish()?;
    drop(throw_away);
    if args.json {
        output::json(&report)?;
    } else {
        output::print(&text(&report))?;
    }
    Ok(Exit::Ok)
}

/// Puts the state folder where nobody keeps it.
fn throw_away(site: &mut Site) -> anyhow::Result<tempfile::TempDir> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    site.state_dir = Some(folder.path().to_owned());
    Ok(folder)
}

/// Steps the worker until the files are at their end and nothing is under way.
fn drive(worker: &mut Worker, state: &State, budget: &AtomicUsize) -> anyhow::Result<()> {
    let mut waiting_since = Instant::now();
    loop {
        let leased = leased(state);
        let in_time = waiting_since.elapsed() < LEASE_PATIENCE;
        let share = match usize::try_from(leased / FRAGMENTS).unwrap_or(usize::MAX) {
            0 if leased > 0 => 1,
            0 if in_time => 0,
            0 => BURST_MAX,
            share => share.min(BURST_MAX),
        };
        budget.store(share, Ordering::Relaxed);
        let moved = worker.turn(now())?;
        if share == 0 {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        waiting_since = Instant::now();
        if moved == 0 && worker.is_drained() {
            worker.publish();
            return Ok(());
        }
    }
}

/// The fewest sequence numbers that an SA may use now.
fn leased(state: &State) -> u64 {
    let snapshot = state.published().current();
    let left = snapshot.outbound_sas().map(|(_, sa)| sa.lease.left());
    left.min().unwrap_or(u64::MAX)
}

fn report(worker: &Worker, state: &State) -> Report {
    let stats = worker.stats();
    let side = |totals: &PortTotals| SideReport {
        packets_in: totals.value("rx_packets"),
        packets_out: totals.value("tx_packets"),
        unreadable: totals.value("rx_malformed") + totals.value("rx_truncated"),
    };
    let snapshot = state.published().current();
    let outbound = snapshot.outbound_sas().map(|(_, sa)| {
        let sequence = sa.counters.sequence.get();
        sa_report(&sa.name, "outbound", sa.spi.get(), sequence, &sa.counters)
    });
    let inbound = snapshot.inbound_sas().map(|(_, sa)| {
        let sequence = sa.counters.floor.get().get();
        sa_report(&sa.name, "inbound", sa.spi.get(), sequence, &sa.counters)
    });
    Report {
        plain: side(&stats.plain()),
        wire: side(&stats.wire()),
        drops: stats
            .pipeline
            .drops
            .iter()
            .filter(|(_, n)| *n > 0)
            .map(|(reason, n)| (reason.name(), n))
            .collect(),
        icmp_sent: stats.pipeline.icmp_sent.get(),
        fragments_made: stats.pipeline.fragments_made.get(),
        fragments_joined: stats.pipeline.fragments_joined.get(),
        sas: outbound.chain(inbound).collect(),
    }
}

fn sa_report(
    name: &str,
    direction: &'static str,
    spi: u32,
    sequence: u64,
    counters: &convoy_ipsec::counters::SaCounters,
) -> SaReport {
    SaReport {
        name: name.to_owned(),
        direction,
        spi,
        packets: counters.packets.get(),
        bytes: counters.bytes.get(),
        sequence,
        replayed: counters.replayed.get(),
        icv_failures: counters.icv_failures.get(),
        dropped: counters.dropped.get(),
    }
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    for (name, side) in [("plain", &report.plain), ("wire", &report.wire)] {
        text += &format!("{name}: {} packets in, {} out", side.packets_in, side.packets_out);
        if side.unreadable > 0 {
            text += &format!(", {} unreadable", side.unreadable);
        }
        text.push('\n');
    }
    for (reason, packets) in &report.drops {
        text += &format!("dropped: {packets} {reason}\n");
    }
    for sa in &report.sas {
        text += &format!(
            "{} ({}): {} packets, {} bytes, sequence {}\n",
            sa.name, sa.direction, sa.packets, sa.bytes, sa.sequence
        );
    }
    text
}

/// Receives from one capture file and sends to another; either may be missing.
struct FilePort {
    reader: Option<Reader>,
    writer: Option<Writer>,
    /// Read but not yet handed over.
    stock: Burst,
    /// Number of packets that may be handed over per call.
    budget: Arc<AtomicUsize>,
    sent: PortCounters,
}

impl FilePort {
    fn open(
        from: Option<&Path>,
        to: Option<&Path>,
        budget: &Arc<AtomicUsize>,
    ) -> anyhow::Result<Self> {
        let named = |path: &Path| path.display().to_string();
        Ok(Self {
            reader: from
                .map(|path| {
                    Reader::open(path, 1).map_err(|error| {
                        Stop::usage(format!("{}: {}", named(path), describe(&error.into())))
                    })
                })
                .transpose()?,
            writer: to.map(|path| Writer::create(path).with_context(|| named(path))).transpose()?,
            stock: Burst::new(),
            budget: budget.clone(),
            sent: PortCounters::default(),
        })
    }
}

impl Port for FilePort {
    fn rx(&mut self, pool: &mut Pool, into: &mut Burst) -> Result<usize, IoError> {
        let Some(reader) = &mut self.reader else { return Ok(0) };
        if self.stock.is_empty() {
            reader.rx(pool, &mut self.stock)?;
        }
        let n = self.budget.load(Ordering::Relaxed).min(into.room()).min(self.stock.len());
        for frame in self.stock.drain_front(n) {
            if let Err(frame) = into.push(frame) {
                pool.free(frame);
            }
        }
        Ok(n)
    }

    fn tx(&mut self, pool: &mut Pool, from: &mut Burst) -> Result<(), IoError> {
        if let Some(writer) = &mut self.writer {
            return writer.tx(pool, from);
        }
        self.sent.tx_packets += from.len() as u64;
        from.release(pool);
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        let mut counters = self.sent;
        counters += self.reader.as_ref().map(Port::counters).unwrap_or_default();
        counters += self.writer.as_ref().map(Port::counters).unwrap_or_default();
        counters
    }
}
