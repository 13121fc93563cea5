//! The command line of `convoy demo ike`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use convoy_control::site::ModelFault;

use crate::demo::engine::Engine;

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
    /// Seconds of bulk traffic, each way.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub seconds: u32,
    /// Unit that does the cryptography of the gateways: "inline", "pool", "model", or a driver, as `convoy crypto` lists
    /// them, for SAs that it suits.
    #[arg(long, value_name = "NAME", default_value_t)]
    pub engine: Engine,
    /// Failures of `--engine model`, each at a time after its first packet: stall@2s, remove@500ms.
    #[arg(long, value_name = "FAULT", value_parser = crate::demo::engine::fault)]
    pub fault: Vec<ModelFault>,
    /// Print one JSON object instead of the scenarios.
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
    pub(super) fn worker_count(&self) -> u16 {
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
