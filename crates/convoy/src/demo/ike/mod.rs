//! `convoy demo ike`: unmodified strongSwan makes the tunnels, Convoy carries them.
//!
//! ```text
//!   hostA ─── gwA ══ wire ══ gwB ─── hostB
//!             charon         charon
//!             convoy run     convoy run
//! ```
//!
//! One act follows the other, each with its verdict; a capture of the wire says in the end whether
//! anything crossed it in the clear.

mod acts;
mod play;
mod shares;
mod world;

use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, ValueEnum};
use convoy_control::site::ModelFault;

use super::Engine;
use super::folder::Folder;
use super::lab;
use super::progress::Progress;
use crate::exit::{Exit, Stop};
use crate::interrupt::Interrupt;
use crate::output;
use crate::privileges;
use play::Play;
use world::World;

/// `convoy demo ike`
#[derive(Clone, Debug, Args)]
pub struct IkeArgs {
    /// Tunnels, each with an IKE SA of its own. With more than one, all are under load at once and
    /// nothing is killed.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub tunnels: u16,
    /// Workers of each gateway. Left out: two where there are many tunnels and two processors, else one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub workers: Option<u16>,
    /// Seconds that bulk traffic flows, each way.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub seconds: u32,
    /// Unit that does the cryptography of the gateways: "inline", "pool", "model", or a driver, as `convoy crypto` lists
    /// them, for SAs that it suits.
    #[arg(long, value_name = "NAME", default_value_t)]
    pub engine: Engine,
    /// Failures of `--engine model`, each at a time after its first packet: stall@2s, remove@500ms.
    #[arg(long, value_name = "FAULT", value_parser = super::fault)]
    pub fault: Vec<ModelFault>,
    /// Print one JSON object instead of the acts.
    #[arg(long)]
    pub json: bool,
    /// Folder for configurations, logs and captures.
    #[arg(long, value_name = "DIR", default_value = "target/demo-ike")]
    pub out: PathBuf,
    /// Data plane of the two daemons.
    #[arg(long, value_enum, default_value_t, hide = true)]
    pub peers: Peers,
}

impl IkeArgs {
    /// Number of workers of each gateway.
    fn worker_count(&self) -> u16 {
        let usual = || {
            let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
            if self.tunnels > 1 && processors > 1 { 2 } else { 1 }
        };
        self.workers.unwrap_or_else(usual)
    }
}

/// Data planes of the two daemons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Peers {
    /// Convoy on both sides
    #[default]
    Convoy,
    /// Convoy on the left, strongSwan's own ESP on the right
    Mixed,
    /// strongSwan's own ESP on both sides
    Libipsec,
}

pub(super) fn run(args: &IkeArgs) -> anyhow::Result<Exit> {
    let missing = world::missing(args.peers);
    if !missing.is_empty() {
        return Err(Stop::usage(format!(
            "strongSwan is not here; install {}, or let `make demo-ike` do it as root",
            missing.join(", ")
        )));
    }
    super::check_faults(&args.engine, &args.fault)?;
    // The order matters: becoming root of one's own namespaces needs a process with one thread.
    lab::rights().map_err(|why| anyhow::anyhow!("no network namespaces here: {why}"))?;
    privileges::keep_private_for_now();
    let interrupt = Interrupt::listen()?;
    let outcome = demonstrate(args, &interrupt);
    // Everything is cleaned up by now. A signal explains whatever went wrong after it.
    if let Some(signal) = interrupt.signal() {
        eprintln!("convoy demo ike: ended by a signal; nothing is left behind");
        std::process::exit(128 + signal);
    }
    outcome
}

fn demonstrate(args: &IkeArgs, interrupt: &Interrupt) -> anyhow::Result<Exit> {
    let folder = Folder::take(&args.out)?;
    let progress = Progress::new(Instant::now());
    let world = World::build(args, folder)?;
    let mut play = Play::new(world, progress, interrupt, !args.json)?;
    let acts = if args.tunnels == 1 { acts::TOUR } else { acts::LOAD };
    for act in acts {
        play.act(act)?;
    }
    let summary = play.end()?;
    if args.json {
        output::json(&summary)?;
    } else {
        output::print(&summary.text())?;
    }
    Ok(if summary.failed == 0 { Exit::Ok } else { Exit::Trouble })
}
