//! `convoy demo`: two networks joined by a tunnel on this machine, with real traffic.
//!
//! ```text
//!   hostA ─── gwA ══ wire ══ gwB ─── hostB
//! ```
//!
//! Each of the four is a network namespace; the gateways are `convoy run` processes. Where
//! namespaces are not allowed, both gateways run in this process, joined by memory.

mod budget;
mod engine;
mod folder;
mod gateways;
mod ike;
mod lab;
mod left_running;
mod memory;
#[cfg(feature = "bench")]
mod one_sa;
mod packets;
mod progress;
mod report;

use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, Subcommand, ValueEnum};
use convoy_control::site::{Backend, ModelFault};
use convoy_engine::registry::algorithm;
use convoy_lab::Family;

pub use engine::Engine;
pub use ike::{IkeArgs, Peers};

use crate::exit::{Exit, Stop};
use crate::interrupt::Interrupt;
use crate::output;
use crate::privileges;
use folder::{Folder, SiteOptions};
use progress::Progress;

/// `convoy demo`
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct DemoArgs {
    /// Another demonstration than that of ESP alone.
    #[command(subcommand)]
    pub what: Option<DemoWhat>,
    /// Seconds that traffic flows, all phases together.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=3600))]
    pub seconds: u32,
    /// Print one JSON object instead of the summary.
    #[arg(long)]
    pub json: bool,
    /// Leave everything running until Ctrl-C or `convoy demo --stop`, to poke around.
    #[arg(long)]
    pub keep: bool,
    /// End a demonstration that --keep left running.
    #[arg(long, conflicts_with_all = ["keep", "seconds", "v6", "mtu", "io", "udp_encap", "json", "engine", "fault"])]
    pub stop: bool,
    /// IPv6, inside and outside.
    #[arg(long)]
    pub v6: bool,
    /// MTU of the wire in bytes: 576 to 9000, with --v6 from 1400.
    #[arg(long, value_name = "N", default_value_t = 1500, value_parser = clap::value_parser!(u16).range(576..=9000))]
    pub mtu: u16,
    /// Means by which the gateways receive and send.
    #[arg(long, value_enum, default_value_t)]
    pub io: Io,
    /// ESP inside UDP, as through a NAT.
    #[arg(long)]
    pub udp_encap: bool,
    /// Show how far one SA gets on one worker, and on several that help each other with its cryptography. In memory.
    #[arg(long, conflicts_with_all = ["keep", "stop", "v6", "mtu", "io", "udp_encap", "engine", "fault"])]
    pub one_sa: bool,
    /// Workers that share one SA, with --one-sa.
    #[arg(long, value_name = "N", default_value_t = 2, requires = "one_sa", value_parser = clap::value_parser!(u16).range(2..=64))]
    pub workers: u16,
    /// Unit that does the cryptography of the gateways: "inline", the workers themselves; "pool", a thread beside each;
    /// "cryptodev", a crypto device that DPDK drives, or "cryptodev:NAME"; "model", a device made of software; or a driver, as `convoy crypto` lists them.
    #[arg(long, value_name = "NAME", default_value_t)]
    pub engine: Engine,
    /// Failures of `--engine model`, each at a time after its first packet: stall@2s, remove@500ms.
    #[arg(long, value_name = "FAULT", value_parser = fault)]
    pub fault: Vec<ModelFault>,
    /// Folder for site files, capture and keys.
    #[arg(long, value_name = "DIR", default_value = "target/demo")]
    pub out: PathBuf,
    /// Do without namespaces, as where they are not allowed.
    #[arg(long, hide = true, env = "CONVOY_DEMO_IN_MEMORY", value_parser = clap::builder::FalseyValueParser::new())]
    pub in_memory: bool,
}

fn fault(text: &str) -> Result<ModelFault, String> {
    text.parse().map_err(String::from)
}

/// A driver that no SA of the demonstration would use proves nothing.
fn check_driver(engine: &Engine) -> anyhow::Result<()> {
    /// The algorithm of `convoy init`'s SAs.
    const ALGORITHM: &str = "rfc4106(gcm(aes))";
    match engine {
        Engine::Driver(name) if !name.starts_with(&algorithm::as_word(ALGORITHM)) => {
            Err(Stop::usage(format!(
                "--engine {name}: the SAs of the demonstration are of {ALGORITHM}; `convoy crypto {ALGORITHM}` \
                 lists its drivers"
            )))
        }
        _ => Ok(()),
    }
}

/// Only a device made of software fails on demand.
fn check_faults(engine: &Engine, faults: &[ModelFault]) -> anyhow::Result<()> {
    match faults.first().filter(|_| *engine != Engine::Model) {
        None => Ok(()),
        Some(fault) => {
            Err(Stop::usage(format!("--fault {fault}: only --engine model fails as it is told")))
        }
    }
}

/// Other demonstrations.
#[derive(Clone, Debug, Subcommand)]
pub enum DemoWhat {
    /// Unmodified strongSwan makes the tunnels: keys, certificates, rekeys, moves and deaths.
    Ike(IkeArgs),
}

/// Means by which the gateways of a demonstration receive and send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Io {
    /// TUN interfaces and ordinary sockets
    #[default]
    #[value(name = "tun")]
    Tun,
    /// Packet sockets on the interfaces of both sides
    #[value(name = "af_packet")]
    AfPacket,
    /// AF_XDP sockets on the interfaces of both sides
    #[value(name = "af_xdp")]
    AfXdp,
}

impl Io {
    fn backend(self) -> Backend {
        match self {
            Self::Tun => Backend::Host,
            Self::AfPacket => Backend::AfPacket,
            Self::AfXdp => Backend::AfXdp,
        }
    }

    /// The word on the command line.
    fn word(self) -> &'static str {
        match self {
            Self::Tun => "tun",
            Self::AfPacket => "af_packet",
            Self::AfXdp => "af_xdp",
        }
    }
}

/// Smallest MTU of a wire whose tunnel is an IPv6 link: 1280 bytes (RFC 8200 section 5), and what
/// the outer headers, ESP and its trailer take at most, rounded up.
const V6_LEAST_MTU: u16 = 1400;

/// Largest MTU with AF_XDP in bytes.
const XDP_MOST_MTU: u16 = 3400;

pub(crate) fn run(args: &DemoArgs) -> anyhow::Result<Exit> {
    if let Some(DemoWhat::Ike(args)) = &args.what {
        return ike::run(args);
    }
    if args.stop {
        return left_running::stop(&args.out);
    }
    if args.v6 && args.mtu < V6_LEAST_MTU {
        return Err(Stop::usage(format!(
            "--mtu {}: with --v6 use at least {V6_LEAST_MTU}, so that the tunnel can carry the 1280 \
             bytes that every IPv6 link must",
            args.mtu
        )));
    }
    if args.io == Io::AfXdp && args.mtu > XDP_MOST_MTU {
        return Err(Stop::usage(format!(
            "--mtu {}: with --io af_xdp use at most {XDP_MOST_MTU}, what a frame of one page holds",
            args.mtu
        )));
    }
    if args.one_sa {
        #[cfg(not(feature = "bench"))]
        return Err(crate::exit::left_out("demo --one-sa"));
        #[cfg(feature = "bench")]
        return one_sa::run(args.workers, args.seconds, args.json);
    }
    check_faults(&args.engine, &args.fault)?;
    check_driver(&args.engine)?;
    // The order matters: becoming root of one's own namespaces needs a process with one thread.
    let place = if args.in_memory { Err("asked for".to_owned()) } else { lab::rights() };
    let interrupt = Interrupt::listen()?;
    let outcome = demonstrate(args, place, &interrupt);
    // Everything is cleaned up by now. A signal explains whatever went wrong after it.
    if let Some(signal) = interrupt.signal()
        && !matches!(outcome, Ok(Finished::Kept(_)))
    {
        eprintln!("convoy demo: ended by a signal; nothing is left behind");
        std::process::exit(128 + signal);
    }
    outcome.map(|finished| match finished {
        Finished::Done(exit) | Finished::Kept(exit) => exit,
    })
}

/// Outcome of a demonstration.
#[derive(Clone, Copy, Debug)]
enum Finished {
    /// By itself.
    Done(Exit),
    /// It had done all, stayed, and was told to end.
    Kept(Exit),
}

fn demonstrate(
    args: &DemoArgs,
    place: Result<(), String>,
    interrupt: &Interrupt,
) -> anyhow::Result<Finished> {
    // An ordinary user enters their world that stays by way of this process, which must let them.
    if !(args.keep && lab::own_world()) {
        privileges::keep_private_for_now();
    }
    let family = if args.v6 { Family::V6 } else { Family::V4 };
    let folder = Folder::take(&args.out)?;
    let mut progress = Progress::new(Instant::now());
    let built = place.and_then(|()| lab::build(args.mtu));
    let topology = match built {
        Ok(topology) => topology,
        Err(why) => {
            progress.note(&format!(
                "no network namespaces here ({why}): both gateways run in this process, joined by \
                 memory"
            ));
            return in_memory(args, family, folder, why, &mut progress, interrupt);
        }
    };
    let options = SiteOptions::of_topology(&topology, family, args.udp_encap, args.io.backend())
        .with_crypto(engine::section(&args.engine, &args.fault));
    let sites = folder.write_sites(&options)?;
    let world = lab::World {
        topology: &topology,
        family,
        mtu: args.mtu,
        udp_encap: args.udp_encap,
        io: args.io,
    };
    let mut gateways = None;
    let summary =
        lab::run(&world, args.seconds, &folder, &sites, &mut gateways, &mut progress, interrupt)?;
    progress.clear();
    let exit = tell(args, &summary)?;
    let finished = if args.keep {
        left_running::stay(&world, &sites, &folder, &mut gateways, interrupt)?;
        Finished::Kept(exit)
    } else {
        Finished::Done(exit)
    };
    // In this order: the processes, the namespaces they are in, their files.
    if let Some(gateways) = gateways {
        gateways.end()?;
    }
    topology.delete()?;
    folder.clear_state()?;
    Ok(finished)
}

fn in_memory(
    args: &DemoArgs,
    family: Family,
    folder: Folder,
    why: String,
    progress: &mut Progress,
    interrupt: &Interrupt,
) -> anyhow::Result<Finished> {
    if args.keep {
        progress.note("--keep has no effect: there is nothing that another program could enter");
    }
    let options = SiteOptions::in_memory(family, args.udp_encap)
        .with_crypto(engine::section(&args.engine, &args.fault));
    let sites = folder.write_sites(&options)?;
    let world = memory::World { family, mtu: args.mtu, why };
    let summary = memory::run(&world, args.seconds, &folder, &sites, progress, interrupt)?;
    progress.clear();
    let exit = tell(args, &summary)?;
    folder.clear_state()?;
    Ok(Finished::Done(exit))
}

fn tell(args: &DemoArgs, summary: &report::Summary) -> anyhow::Result<Exit> {
    if args.json {
        output::json(summary)?;
    } else {
        output::print(&summary.text())?;
    }
    for problem in &summary.problems {
        eprintln!("convoy demo: {problem}");
    }
    Ok(if summary.problems.is_empty() { Exit::Ok } else { Exit::Trouble })
}
