//! The command line of `convoy demo`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use convoy_control::site::{Backend, ModelFault};

use super::engine::Engine;
use super::ike::args::IkeArgs;

/// `convoy demo`
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct DemoArgs {
    /// Demonstration to run instead of that of ESP alone.
    #[command(subcommand)]
    pub what: Option<DemoWhat>,
    /// Seconds of traffic, all phases together.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=3600))]
    pub seconds: u32,
    /// Print one JSON object instead of the summary.
    #[arg(long)]
    pub json: bool,
    /// Leave everything running until Ctrl-C or `convoy demo --stop`, to look around.
    #[arg(long)]
    pub keep: bool,
    /// End a demonstration that --keep left running.
    #[arg(long, conflicts_with_all = ["keep", "seconds", "v6", "mtu", "io", "udp_encap", "json", "engine", "fault"])]
    pub stop: bool,
    /// Use IPv6, inside and outside.
    #[arg(long)]
    pub v6: bool,
    /// MTU of the wire in bytes: 576 to 9000, with --v6 from 1400.
    #[arg(long, value_name = "N", default_value_t = 1500, value_parser = clap::value_parser!(u16).range(576..=9000))]
    pub mtu: u16,
    /// Input and output of the gateways.
    #[arg(long, value_enum, default_value_t)]
    pub io: Io,
    /// Send ESP inside UDP, as through a NAT.
    #[arg(long)]
    pub udp_encap: bool,
    /// Show the rate of one SA on one worker, and on several that share its cryptography. In memory.
    #[arg(long, conflicts_with_all = ["keep", "stop", "v6", "mtu", "io", "udp_encap", "engine", "fault"])]
    pub one_sa: bool,
    /// With --one-sa: workers that share the SA.
    #[arg(long, value_name = "N", default_value_t = 2, requires = "one_sa", value_parser = clap::value_parser!(u16).range(2..=64))]
    pub workers: u16,
    /// Unit that does the cryptography of the gateways: "inline", the workers themselves; "pool", a thread beside each;
    /// "cryptodev", a crypto device that DPDK drives, or "cryptodev:NAME"; "model", a device made of software; or a driver, as `convoy crypto` lists them.
    #[arg(long, value_name = "NAME", default_value_t)]
    pub engine: Engine,
    /// Failures of `--engine model`, each at a time after its first packet: stall@2s, remove@500ms.
    #[arg(long, value_name = "FAULT", value_parser = super::engine::fault)]
    pub fault: Vec<ModelFault>,
    /// Folder for site files, capture and keys.
    #[arg(long, value_name = "DIR", default_value = "target/demo")]
    pub out: PathBuf,
    /// Use no network namespaces.
    #[arg(long, hide = true, env = "CONVOY_DEMO_IN_MEMORY", value_parser = clap::builder::FalseyValueParser::new())]
    pub in_memory: bool,
}

/// Other demonstrations.
#[derive(Clone, Debug, Subcommand)]
pub enum DemoWhat {
    /// Tunnels by unmodified strongSwan: keys, certificates, rekeys, moves and crashes.
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
    pub(super) fn backend(self) -> Backend {
        match self {
            Self::Tun => Backend::Host,
            Self::AfPacket => Backend::AfPacket,
            Self::AfXdp => Backend::AfXdp,
        }
    }

    /// The word on the command line.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Tun => "tun",
            Self::AfPacket => "af_packet",
            Self::AfXdp => "af_xdp",
        }
    }
}
