//! The command line.

use std::path::PathBuf;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::privileges::Limits;

const EXIT_CODES: &str = "\
Exit codes:
  0  all is well
  1  a failure at run time, or warnings (check, status)
  2  the command line or a site file is wrong, nothing was changed; status: critical
  3  no gateway answers, or none that may be asked

Begin with:
  convoy demo                 two gateways and two hosts on this machine, with real traffic
  convoy init tunnel          writes tunnel/left.toml and tunnel/right.toml with fresh keys
  convoy check tunnel/left.toml
  convoy run tunnel/left.toml";

/// A userspace IPsec gateway.
#[derive(Debug, Parser)]
#[command(name = "convoy", version, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Cli {
    /// Command to carry out.
    #[command(subcommand)]
    pub verb: Verb,
    /// Messages to log to standard error: a level, or levels by crate such as
    /// "info,convoy_control=debug".
    #[arg(long, global = true, env = "CONVOY_LOG", default_value = "info", value_name = "FILTER")]
    pub log: String,
}

impl Cli {
    /// Reads the command line, and the environment where that is of somebody who may decide.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        let command = Self::command();
        let command = match convoy_io::rights::is_secure() {
            true => without_environment(command),
            false => command,
        };
        Self::from_arg_matches(&command.try_get_matches()?)
    }
}

/// The same command line, for a program with rights that its caller lacks: no variable of the caller says where
/// a socket is.
fn without_environment(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|argument| argument.env(clap::builder::Resettable::Reset));
    command.mut_subcommands(without_environment)
}

/// The verbs, in the order in which one meets them.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Write a commented pair of site files with fresh keys.
    #[command(
        after_help = "Example:\n  convoy init tunnel --left 192.0.2.1 --right 198.51.100.1 \\\n      --left-net 10.1.0.0/24 --right-net 10.2.0.0/24"
    )]
    Init(InitArgs),
    /// Check site files; tells every error, and what would be right. Changes nothing.
    #[command(
        after_help = "Example:\n  convoy check left.toml right.toml\n\nExit codes: 0 no finding, 1 warnings only, 2 errors."
    )]
    Check(CheckArgs),
    /// Run a gateway until SIGTERM or SIGINT; SIGHUP reloads the site file.
    #[command(
        after_help = "Examples:\n  convoy run left.toml --dry-run   # what would be changed on this host\n  convoy run left.toml\n\nNeeds CAP_NET_ADMIN (TUN interface, routes) and CAP_NET_RAW (native ESP)."
    )]
    Run(RunArgs),
    /// The state of a running gateway: rates, SAs, losses.
    #[command(
        after_help = "Examples:\n  convoy status              # the only gateway here\n  convoy status left.toml --watch\n  convoy status left --json\n\nExit codes, as monitoring systems take them: 0 ok, 1 warning, 2 critical (packets are being\nlost for want of something), 3 no gateway answers, or it may not be asked."
    )]
    Status(StatusArgs),
    /// The SAs of a running gateway.
    Sa(AskArgs),
    /// The policies of a running gateway.
    Policy(AskArgs),
    /// The fate of a packet in a running gateway, and the reason; nothing is sent.
    #[command(
        after_help = "Examples:\n  convoy trace left --from 10.1.0.5 --to 10.2.0.7\n  convoy trace left --from 10.1.0.5 --to 10.2.0.7 --proto tcp --dport 443 --bytes 1500\n  convoy trace left --inbound --spi 0xc1a2b3c4 --from 10.2.0.7 --to 10.1.0.5\n\nOf a packet that arrives, --from and --to are the addresses inside. Of one that leaves, host, route and fate say how\nthe host leads it: by its prefixes, by what policies answer where the kernel asks, and by its routes.\n\nExit codes: 0 it passes, in clear too, or waits for an SA, 1 it is dropped, 2 the question makes no sense,\n3 no gateway answers."
    )]
    Trace(TraceArgs),
    /// CPU tiers, engines, algorithms and drivers of this machine, or of a running gateway.
    #[command(after_help = CRYPTO)]
    Crypto(CryptoArgs),
    /// Print a configuration with which programs that use OpenSSL use Convoy, or judge one.
    #[cfg(feature = "provider")]
    #[command(after_help = crate::verbs::openssl_conf::HELP)]
    OpensslConf(crate::verbs::openssl_conf::OpensslConfArgs),
    /// Left out of this program: a configuration with which programs that use OpenSSL use Convoy.
    #[cfg(not(feature = "provider"))]
    #[command(disable_help_flag = true)]
    OpensslConf(LeftOutArgs),
    /// Measure what packets cost: the crypto library beside others, and ESP from end to end.
    #[cfg(feature = "bench")]
    Bench(crate::verbs::bench::BenchArgs),
    /// Left out of this program: measures what packets cost.
    #[cfg(not(feature = "bench"))]
    #[command(disable_help_flag = true)]
    Bench(LeftOutArgs),
    /// Keys for Wireshark, as an esp_sa file. The keys of live SAs: treat the file as a secret.
    #[command(
        after_help = "Examples:\n  convoy keys left --output esp_sa\n  convoy keys --from-site left.toml      # without a running gateway"
    )]
    Keys(KeysArgs),
    /// Make a running gateway read its site file again; no packet is lost.
    Reload(AskArgs),
    /// Look at what on this host helps or hinders a gateway. Changes nothing.
    #[command(after_help = DOCTOR)]
    Doctor(DoctorArgs),
    /// Remove the leak protection of a stopped gateway.
    #[command(
        after_help = "Example:\n  convoy open site.toml\n\nA gateway leaves the networks closed that policies protect, however it ends: nothing leaves for them in\nclear until it runs again (leak protection). This takes its packet filter, routes and rules away, and the\ninterfaces of [[xfrm.interface]] with the routes into them. It is refused while the gateway runs."
    )]
    Open(OpenArgs),
    /// Send the packets of a capture through a gateway that exists only for that.
    #[command(
        after_help = "Examples:\n  convoy replay left.toml --plain-in plain.pcap --wire-out esp.pcap\n  convoy replay right.toml --wire-in esp.pcap --plain-out plain.pcap --json\n\nSequence numbers are leased in the state folder as by a running gateway, so no nonce repeats. Captures that are\nwritten have mode 0600; links are not followed."
    )]
    Replay(ReplayArgs),
    /// Run a command whose XFRM sockets lead to Convoy instead of the kernel.
    #[command(
        after_help = "Examples:\n  convoy exec -- ip xfrm state\n  convoy exec -- charon-systemd\n\nThe command runs in this process's place, so signals and exit codes are its own. A library is preloaded into it and its children. It does not reach programs\nthat are linked statically, those in Go, and setuid ones: these are refused.\n\nExit codes before the command runs: 2 it, or the library, is not found or cannot be led;\n3 no gateway serves XFRM at this socket."
    )]
    Exec(ExecArgs),
    /// Work that `convoy run` leaves to a process of its own.
    #[command(hide = true)]
    Helper,
    /// Show an ESP tunnel at work on this machine: two gateways, two hosts, real traffic.
    Demo(crate::demo::DemoArgs),
}

/// `convoy exec`
#[derive(Debug, Args)]
pub struct ExecArgs {
    /// The socket of the gateway that is to be the command's kernel.
    #[arg(
        long,
        env = "CONVOY_XFRM_SOCKET",
        default_value = "/run/convoy/xfrm.sock",
        value_name = "PATH"
    )]
    pub socket: PathBuf,
    /// The command, and what it is given.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<std::ffi::OsString>,
}

/// `convoy init`
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Folder to write the two files into; nothing in it is overwritten.
    #[arg(default_value = ".")]
    pub folder: PathBuf,
    /// Outer address of the left gateway.
    #[arg(long, default_value = "192.0.2.1", value_name = "ADDRESS")]
    pub left: std::net::IpAddr,
    /// Outer address of the right gateway.
    #[arg(long, default_value = "198.51.100.1", value_name = "ADDRESS")]
    pub right: std::net::IpAddr,
    /// Networks behind the left gateway.
    #[arg(long, default_value = "10.1.0.0/24", value_name = "NETWORK", value_delimiter = ',')]
    pub left_net: Vec<convoy_wire::Prefix>,
    /// Networks behind the right gateway.
    #[arg(long, default_value = "10.2.0.0/24", value_name = "NETWORK", value_delimiter = ',')]
    pub right_net: Vec<convoy_wire::Prefix>,
    /// Name of the left gateway, its file and its state folder.
    #[arg(long, default_value = "left", value_name = "NAME")]
    pub left_name: String,
    /// Name of the right gateway, its file and its state folder.
    #[arg(long, default_value = "right", value_name = "NAME")]
    pub right_name: String,
    /// Size of the AES keys in bits: 128, 192 or 256.
    #[arg(long, default_value_t = 128, value_name = "BITS")]
    pub key_bits: u16,
    /// Carry ESP in UDP, as through a NAT.
    #[arg(long)]
    pub udp_encap: bool,
    /// Print what was written as JSON.
    #[arg(long)]
    pub json: bool,
}

/// `convoy check`
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Site files.
    #[arg(required = true, value_name = "SITE.toml")]
    pub sites: Vec<PathBuf>,
    /// Print findings as JSON.
    #[arg(long)]
    pub json: bool,
}

const DOCTOR: &str = "\
Looks at kernel modules, rights, routes and settings, at rules of others with the same marks, at flows that
are offloaded or not tracked, at MTUs, ports and IKE daemons. It reads, and changes nothing.

Examples:
  convoy doctor                # as /etc/convoy/convoy.toml says, if that is there
  convoy doctor site.toml --json

One line for each thing: OK, note (worth knowing, or not to be seen by this user), or PROBLEM, with where
it was found and what would be right. What is looked at:
  kernel ESP    modules esp4 and esp6, blocked or loaded; Convoy does without them
  TUN, rights   what `convoy run` needs: /dev/net/tun and capabilities
  Landlock      whether the kernel keeps a running gateway from files that it does not need
  clock, IPv6   certificates and lifetimes need a clock that is right
  routes        routes past the tunnels, rules ahead of Convoy's, rp_filter, forwarding, peers without a route
  packet filter whether the kernel has nf_tables
  MTU           of the ways to the peers, beside that of the TUN interface
  IKE daemon    whether those that run are led to Convoy
  UDP ports     who holds 500, 4500 and `udp_port`
  gateway, XFRM socket, library, systemd: whether a daemon that starts finds Convoy
  engine        of a running gateway: whether it was lost, or wrong

As root it sees more. Exit codes: 0 no problem, 1 problems, 2 the site file is wrong.";

/// `convoy doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Site file of the gateway.
    #[arg(value_name = "SITE.toml")]
    pub site: Option<PathBuf>,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

/// `convoy open`
#[derive(Debug, Args)]
pub struct OpenArgs {
    /// Site file of the gateway.
    #[arg(value_name = "SITE.toml")]
    pub site: PathBuf,
    /// Another interface, that the gateway had under an earlier site file.
    #[arg(long, value_name = "NAME")]
    pub interface: Option<String>,
}

/// `convoy run`
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Site file.
    #[arg(value_name = "SITE.toml")]
    pub site: PathBuf,
    /// Tell what would be changed on this host, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// With --dry-run: print as JSON.
    #[arg(long, requires = "dry_run")]
    pub json: bool,
    /// Also end when standard input ends: for a program that starts a gateway and may die before it.
    #[arg(long)]
    pub until_stdin_ends: bool,
    /// The limits under which it runs.
    #[command(flatten)]
    pub limits: Limits,
}

/// A running gateway, as the command line names it.
#[derive(Clone, Debug, Args)]
pub struct Target {
    /// Name of the gateway, its site file, or its control socket; may be left out when only one
    /// runs.
    #[arg(value_name = "GATEWAY", env = "CONVOY_GATEWAY")]
    pub gateway: Option<String>,
}

/// Verbs that ask a running gateway something.
#[derive(Debug, Args)]
pub struct AskArgs {
    /// The gateway to ask.
    #[command(flatten)]
    pub target: Target,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

/// `convoy trace`
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// The gateway to ask.
    #[command(flatten)]
    pub target: Target,
    /// Source of the packet.
    #[arg(long, value_name = "ADDRESS")]
    pub from: std::net::IpAddr,
    /// Its destination.
    #[arg(long, value_name = "ADDRESS")]
    pub to: std::net::IpAddr,
    /// Upper protocol: a name such as tcp, udp or icmp, or a number.
    #[arg(
        long,
        value_name = "PROTOCOL",
        default_value = "icmp",
        default_value_if("sport", clap::builder::ArgPredicate::IsPresent, "udp"),
        default_value_if("dport", clap::builder::ArgPredicate::IsPresent, "udp")
    )]
    pub proto: String,
    /// Source port, or ICMP type.
    #[arg(long, value_name = "PORT")]
    pub sport: Option<u16>,
    /// Destination port, or ICMP code.
    #[arg(long, value_name = "PORT")]
    pub dport: Option<u16>,
    /// Length of the packet with its IP header.
    #[arg(long, value_name = "BYTES", default_value_t = 84)]
    pub bytes: u16,
    /// Its don't-fragment bit is clear: IPv4 packets that are too long are cut.
    #[arg(long)]
    pub may_fragment: bool,
    /// The packet is routed into the interface of this identifier ([[xfrm.interface]]).
    #[arg(long, value_name = "NUMBER", default_value_t = 0, conflicts_with = "inbound")]
    pub if_id: u32,
    /// The packet arrives in one of ESP or AH.
    #[arg(long, requires = "spi")]
    pub inbound: bool,
    /// The SPI that it arrives with.
    #[arg(long, value_name = "SPI", requires = "inbound", value_parser = spi)]
    pub spi: Option<u32>,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

/// `convoy status`
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The gateway to ask.
    #[command(flatten)]
    pub target: Target,
    /// Show again every so many seconds, until interrupted.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = seconds)]
    pub watch: Option<f64>,
    /// Print as JSON; with --watch one object per line.
    #[arg(long)]
    pub json: bool,
}

const CRYPTO: &str = "\
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
is one implementation of it. Each driver is tested here and now: it must give published results, and
refuse forged packets. USE says what becomes of it:
  chosen   the algorithm's name stands for it: of those that passed, it has the highest priority
  by name  it passed, and is used where it is asked for by its name
  benches  for measuring only; never chosen, and refused for traffic
  never    it failed its self-test, for the reason beside it

Exit codes with --pid: 0 the process has loaded the provider, and counts if it should; 1 it has not, or counts
nothing though it should; 2 there is no such process; 3 it may not be looked at.";

/// `convoy crypto`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct CryptoArgs {
    /// Command to a running gateway.
    #[command(subcommand)]
    pub of_gateway: Option<CryptoVerb>,
    /// Only the drivers of this algorithm, or the driver of this name.
    pub name: Option<String>,
    /// Counts of the OpenSSL provider in this file.
    #[arg(long, value_name = "FILE", conflicts_with = "name")]
    pub provider_stats: Option<PathBuf>,
    /// With --provider-stats: make the file, empty and for its owner alone (mode 0600), before a process counts.
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
    /// The drivers of a running gateway, with the SAs that have them, and packets.
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

SAs whose driver is another one now go on with it at once: sequence numbers, windows and counters stay. An SA
of the site file that names a driver has it as long as that is switched on. What is set lasts until the
gateway ends; `drivers` in [crypto] of the site file is what lasts longer.

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
    /// Its priority: of the drivers of one algorithm, the highest is used.
    #[arg(long, value_name = "NUMBER", group = "setting")]
    pub priority: Option<u16>,
    /// Use it again.
    #[arg(long, group = "setting")]
    pub on: bool,
    /// Do not use it any more.
    #[arg(long, group = "setting")]
    pub off: bool,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of a verb that a feature of the build left out.
#[cfg(not(all(feature = "bench", feature = "provider")))]
#[derive(Debug, Args)]
pub struct LeftOutArgs {
    /// Not looked at.
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<std::ffi::OsString>,
}

/// `convoy keys`
#[derive(Debug, Args)]
pub struct KeysArgs {
    /// The gateway that has the keys.
    #[command(flatten)]
    pub target: Target,
    /// Take the keys from this site file instead of a running gateway.
    #[arg(long, value_name = "SITE.toml", conflicts_with = "gateway")]
    pub from_site: Option<PathBuf>,
    /// Write to this file (mode 0600) instead of standard output.
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

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

/// An SPI, in hexadecimal with 0x in front or in decimal.
fn spi(text: &str) -> Result<u32, String> {
    let spi = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    spi.map_err(|_| "an SPI is a number of 32 bits, such as 0xc1a2b3c4".to_owned())
}

/// A number of seconds. What follows `--watch` is taken for one, even where a gateway was meant.
fn seconds(text: &str) -> Result<f64, String> {
    text.parse()
        .map_err(|_| "not a number of seconds; to name a gateway, put it before --watch".to_owned())
}
