//! The command line of `convoy crypto`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::verbs::ask::{AskArgs, Target};

/// Text behind the options in `--help`.
pub(crate) const HELP: &str = "\
Examples:
  convoy crypto
  convoy crypto 'rfc4106(gcm(aes))'                # the drivers of one algorithm
  convoy crypto rfc4106-gcm-aes-convoy-avx512
  CONVOY_DENY_CPU=avx512 convoy crypto             # without a CPU tier
  convoy crypto show left                          # what the SAs of a running gateway use
  convoy crypto set rfc4106-gcm-aes-convoy-avx512 --off left
  convoy crypto --provider-stats /run/convoy-openssl.stats    # what programs with OpenSSL did through Convoy
  convoy crypto --provider-stats /run/convoy-openssl.stats --create --owner www-data
  convoy crypto --pid $(pidof -s haproxy)          # whether a running process uses the OpenSSL provider

Drivers are listed as /proc/crypto does. An algorithm has the name that a Linux kernel gives it; a driver
is one implementation of it. Each driver is tested now: it must give published results, and refuse forged
packets. USE is the outcome:
  chosen   it is used for the algorithm: of the drivers that passed, it has the highest priority
  by name  it passed, and is used where it is named
  benches  for measuring only; never chosen, and refused for traffic
  never    it failed its self-test, for the reason beside it

Exit codes with --pid: 0 the process has loaded the provider, and counts if it should; 1 it has not, or counts
nothing though it should; 2 there is no such process; 3 the user may not read it.";

/// `convoy crypto`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct CryptoArgs {
    /// Command to a running gateway.
    #[command(subcommand)]
    pub of_gateway: Option<CryptoVerb>,
    /// Show only the drivers of this algorithm, or the driver of this name.
    pub name: Option<String>,
    /// Show the counts of the OpenSSL provider in this file.
    #[arg(long, value_name = "FILE", conflicts_with = "name")]
    pub provider_stats: Option<PathBuf>,
    /// With --provider-stats: make the file, empty and with mode 0600, before a process counts.
    #[arg(long, requires = "provider_stats", conflicts_with_all = ["json", "pid"])]
    pub create: bool,
    /// With --create: the user that the processes have when they load the provider, by name or number.
    #[arg(long, value_name = "USER", requires = "create")]
    pub owner: Option<String>,
    /// Check that this running process uses the OpenSSL provider, and counts; with --provider-stats, in that file.
    #[arg(long, value_name = "PID", conflicts_with = "name")]
    pub pid: Option<u32>,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Commands of `convoy crypto` to a running gateway.
#[derive(Debug, Subcommand)]
pub enum CryptoVerb {
    /// Show the drivers of a running gateway, with their SAs and packets.
    Show(AskArgs),
    /// Change a driver's priority, or switch it off and on again, on a running gateway; no packet is lost.
    #[command(after_help = SET_DRIVER)]
    Set(SetDriverArgs),
}

const SET_DRIVER: &str = "\
Examples:
  convoy crypto set rfc4106-gcm-aes-convoy-avx512 --off
  convoy crypto set rfc4106-gcm-aes-convoy-avx512 --on left
  convoy crypto set rfc4106-gcm-aes-convoy-aesni --priority 1000 left.toml

SAs use their new driver at once, and keep sequence numbers, windows and counters. An SA of the site file that
names a driver uses it as long as it is switched on. A setting lasts until the gateway ends; for longer, set
`drivers` in [crypto] of the site file.

Exit codes: 0 done, 2 no such driver, or an SA would have none: nothing changed, 3 no gateway answers.";

/// `convoy crypto set`
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("setting").required(true)))]
pub struct SetDriverArgs {
    /// Name of the driver.
    pub driver: String,
    /// The gateway to change.
    #[command(flatten)]
    pub target: Target,
    /// Priority of the driver: of the drivers of one algorithm, the highest is used.
    #[arg(long, value_name = "NUMBER", group = "setting")]
    pub priority: Option<u16>,
    /// Switch the driver on again.
    #[arg(long, group = "setting")]
    pub on: bool,
    /// Switch the driver off.
    #[arg(long, group = "setting")]
    pub off: bool,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}
