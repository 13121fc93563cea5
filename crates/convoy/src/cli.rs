//! The command line.

#[cfg(not(all(feature = "bench", feature = "provider")))]
use clap::Args;
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::demo::{self, DemoArgs};
use crate::exit::Exit;
#[cfg(not(all(feature = "bench", feature = "provider")))]
use crate::exit::left_out;
use crate::privileges;
use crate::verbs::ask::AskArgs;
#[cfg(feature = "bench")]
use crate::verbs::bench::{self, BenchArgs};
use crate::verbs::check::{self, CheckArgs};
use crate::verbs::crypto::{self, CryptoArgs};
use crate::verbs::doctor::{self, DoctorArgs};
use crate::verbs::enable::{self, EnableArgs};
use crate::verbs::exec::{self, ExecArgs};
use crate::verbs::genkey::{self, GenkeyArgs};
use crate::verbs::init::{self, InitArgs};
use crate::verbs::keys::{self, KeysArgs};
use crate::verbs::manual::{self, ManualArgs};
use crate::verbs::open::{self, OpenArgs};
#[cfg(feature = "provider")]
use crate::verbs::openssl_conf::{self, OpensslConfArgs};
use crate::verbs::replay::{self, ReplayArgs};
use crate::verbs::run::{self, RunArgs};
use crate::verbs::status::{self, StatusArgs};
use crate::verbs::trace::{self, TraceArgs};
use crate::verbs::{helper, policy, reload, sa};

const EXIT_CODES: &str = "\
Exit codes:
  0  all is well
  1  a failure at run time, or warnings (check, status)
  2  the command line or a site file is wrong, nothing was changed; status: critical
  3  no gateway answers, or the user may not ask it

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
    /// Messages that are logged to standard error: a level, or levels by crate such as
    /// "info,convoy_control=debug".
    #[arg(long, global = true, env = "CONVOY_LOG", default_value = "info", value_name = "FILTER")]
    pub log: String,
}

impl Cli {
    /// Reads the command line, and the environment where that is of somebody who may decide.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        let command = Self::command();
        let mut command = match convoy_io::rights::is_secure() {
            true => without_environment(command),
            false => command,
        };
        let matches = command.try_get_matches_from_mut(std::env::args_os());
        Self::from_arg_matches(&matches.map_err(|error| with_usage_of_help(error, command))?)
    }
}

/// The error with the usage that `--help` shows of its verb: clap's own shows what was given as if it were needed, and
/// leaves out the rest.
fn with_usage_of_help(mut error: clap::Error, mut command: clap::Command) -> clap::Error {
    let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else { return error };
    let usage = usage.to_string();
    command.build();
    // Behind the program's name come the verb, and its own verb.
    let whole = usage_of(&mut command, usage.split_whitespace().skip(2));
    error.insert(ContextKind::Usage, ContextValue::StyledStr(whole));
    error
}

/// The usage of the verb that words name.
fn usage_of<'a>(
    command: &mut clap::Command,
    mut words: impl Iterator<Item = &'a str>,
) -> clap::builder::StyledStr {
    match words.next().and_then(|word| command.find_subcommand_mut(word)) {
        Some(verb) => usage_of(verb, words),
        None => command.render_usage(),
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
    /// Write a key file for one direction of a tunnel.
    #[command(after_help = genkey::HELP)]
    Genkey(GenkeyArgs),
    /// Check site files and report every error with its remedy. Changes nothing.
    #[command(
        after_help = "Example:\n  convoy check left.toml right.toml\n\nExit codes: 0 no finding, 1 warnings only, 2 errors."
    )]
    Check(CheckArgs),
    /// Run a gateway until SIGTERM or SIGINT; SIGHUP reloads the site file.
    #[command(
        after_help = "Examples:\n  convoy run left.toml --dry-run   # what would be changed on this host\n  convoy run left.toml\n\nNeeds CAP_NET_ADMIN (TUN interface, routes) and CAP_NET_RAW (native ESP)."
    )]
    Run(RunArgs),
    /// Show the state of a running gateway: rates, SAs, losses.
    #[command(
        after_help = "Examples:\n  convoy status              # the only gateway here\n  convoy status left.toml --watch\n  convoy status left --json\n\nExit codes, as monitoring systems take them: 0 ok, 1 warning, 2 critical (packets are being\nlost because something is missing), 3 no gateway answers, or the user may not ask it."
    )]
    Status(StatusArgs),
    /// Show the SAs of a running gateway.
    Sa(AskArgs),
    /// Show the policies of a running gateway.
    Policy(AskArgs),
    /// Show what a running gateway does with a packet, and why. Sends nothing.
    #[command(
        after_help = "Examples:\n  convoy trace left --from 10.1.0.5 --to 10.2.0.7\n  convoy trace left --from 10.1.0.5 --to 10.2.0.7 --proto tcp --dport 443 --bytes 1500\n  convoy trace left --inbound --spi 0xc1a2b3c4 --from 10.2.0.7 --to 10.1.0.5\n\nFor a packet that arrives, --from and --to are the inner addresses. For one that leaves, host, route and fate show how\nthe host routes it: by the prefixes of policies, by the verdict where the kernel requests one, and by its routes.\n\nExit codes: 0 it passes, in clear too, or waits for an SA, 1 it is dropped, 2 there can be no such packet,\n3 no gateway answers."
    )]
    Trace(TraceArgs),
    /// Show CPU tiers, engines, algorithms and drivers of this machine, or of a running gateway.
    #[command(after_help = crypto::HELP)]
    Crypto(CryptoArgs),
    /// Print or check an OpenSSL configuration that loads Convoy's provider.
    #[cfg(feature = "provider")]
    #[command(after_help = openssl_conf::HELP)]
    OpensslConf(OpensslConfArgs),
    /// Print or check an OpenSSL configuration (left out of this program).
    #[cfg(not(feature = "provider"))]
    #[command(disable_help_flag = true)]
    OpensslConf(LeftOutArgs),
    /// Measure the cost of packets: the crypto library beside others, and ESP from end to end.
    #[cfg(feature = "bench")]
    Bench(BenchArgs),
    /// Measure the cost of packets (left out of this program).
    #[cfg(not(feature = "bench"))]
    #[command(disable_help_flag = true)]
    Bench(LeftOutArgs),
    /// Export the keys of live SAs for Wireshark, as an esp_sa file. The file is a secret.
    #[command(
        after_help = "Examples:\n  convoy keys left --output esp_sa\n  convoy keys --from-site left.toml      # without a running gateway"
    )]
    Keys(KeysArgs),
    /// Reload the site file of a running gateway. No packet is lost.
    Reload(AskArgs),
    /// Check this host for what a gateway needs and what hinders it. Changes nothing.
    #[command(after_help = doctor::HELP)]
    Doctor(DoctorArgs),
    /// Remove the leak protection and the interfaces of a stopped gateway.
    #[command(
        after_help = "Example:\n  convoy open site.toml\n\nLeak protection outlives the gateway: packets that policies protect are dropped until the gateway runs again.\nThis removes its packet filter, routes and rules, and the interfaces of [[xfrm.interface]] with the routes\ninto them; packets then leave in clear. It is refused while the gateway runs."
    )]
    Open(OpenArgs),
    /// Send the packets of a capture through a temporary gateway.
    #[command(
        after_help = "Examples:\n  convoy replay left.toml --plain-in plain.pcap --wire-out esp.pcap\n  convoy replay right.toml --wire-in esp.pcap --plain-out plain.pcap --json\n\nSequence numbers are leased in the state folder, as a running gateway does, so no nonce repeats. New capture\nfiles have mode 0600; links are not followed."
    )]
    Replay(ReplayArgs),
    /// Run a command whose XFRM sockets lead to Convoy instead of the kernel.
    #[command(
        after_help = "Examples:\n  convoy exec -- ip xfrm state\n  convoy exec -- charon-systemd\n\nThe command runs in this process's place, so signals and exit codes are its own. A library is preloaded into it and its children. Programs that\nare linked statically, programs in Go and setuid programs cannot load it, and are refused.\n\nExit codes before the command runs: 2 the command or the library is not found, or the command cannot load it;\n3 no gateway serves XFRM at this socket, even after --wait."
    )]
    Exec(ExecArgs),
    /// Make systemd start an IKE daemon under Convoy, or undo that.
    #[command(after_help = enable::HELP)]
    Enable(EnableArgs),
    /// Do the work that `convoy run` leaves to a process of its own.
    #[command(hide = true)]
    Helper,
    /// Write man pages and completions of shells, for packages.
    #[command(hide = true)]
    Manual(ManualArgs),
    /// Show an ESP tunnel at work on this machine: two gateways, two hosts, real traffic.
    Demo(DemoArgs),
}

impl Verb {
    /// Does what the command line asks for.
    ///
    /// # Errors
    /// The error to print to standard error; [`code_of`](crate::exit::code_of) tells the exit code.
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        if self.has_keys() {
            privileges::keep_private_for_now();
        }
        match self {
            Self::Init(args) => init::run(&args),
            Self::Genkey(args) => genkey::run(&args),
            Self::Check(args) => check::run(&args),
            Self::Run(args) => run::run(&args),
            Self::Status(args) => status::run(&args),
            Self::Sa(args) => sa::run(&args),
            Self::Policy(args) => policy::run(&args),
            Self::Trace(args) => trace::run(&args),
            Self::Crypto(args) => crypto::run(&args),
            #[cfg(feature = "provider")]
            Self::OpensslConf(args) => openssl_conf::run(&args),
            #[cfg(not(feature = "provider"))]
            Self::OpensslConf(_) => Err(left_out("openssl-conf")),
            #[cfg(feature = "bench")]
            Self::Bench(args) => bench::run(&args),
            #[cfg(not(feature = "bench"))]
            Self::Bench(_) => Err(left_out("bench")),
            Self::Keys(args) => keys::run(&args),
            Self::Reload(args) => reload::run(&args),
            Self::Doctor(args) => doctor::run(&args),
            Self::Open(args) => open::run(&args),
            Self::Replay(args) => replay::run(&args),
            Self::Exec(args) => exec::run(&args),
            Self::Enable(args) => enable::run(&args),
            Self::Helper => helper::run(),
            Self::Manual(args) => manual::run(&args, &Cli::command()),
            Self::Demo(args) => demo::run(&args),
        }
    }

    /// True if a verb makes keys, asks for them, or reads a site file, which holds them. A gateway and a demonstration see
    /// to it themselves.
    const fn has_keys(&self) -> bool {
        match self {
            Self::Run(args) => args.dry_run,
            Self::Replay(_) | Self::Demo(_) => false,
            // What they run would inherit a part of it.
            Self::Exec(_) | Self::Enable(_) => false,
            // It gives up by itself all but what it is for.
            Self::Helper => false,
            Self::Manual(_) => false,
            // The keys of measurements are nobody's.
            Self::Bench(_) | Self::OpensslConf(_) => false,
            Self::Init(_) | Self::Genkey(_) | Self::Check(_) | Self::Keys(_) => true,
            Self::Doctor(_) | Self::Open(_) => true,
            // They look for the gateway's socket in its site file.
            Self::Status(_) | Self::Sa(_) | Self::Policy(_) | Self::Trace(_) => true,
            Self::Crypto(_) | Self::Reload(_) => true,
        }
    }
}

/// Arguments of a verb that a feature of the build left out.
#[cfg(not(all(feature = "bench", feature = "provider")))]
#[derive(Debug, Args)]
pub struct LeftOutArgs {
    /// Not looked at.
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<std::ffi::OsString>,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_verb_that_is_shown_has_a_page_and_is_completed() {
        let command = Cli::command();
        let pages = manual::pages(&command).unwrap();
        let completions: Vec<_> = manual::completions(&command).collect();
        let shown: Vec<_> = command.get_subcommands().filter(|verb| !verb.is_hide_set()).collect();
        assert!(shown.len() > 10);
        for verb in shown {
            let name = format!("man/man1/convoy-{}.1", verb.get_name());
            let page = pages.iter().find(|(path, _)| path == Path::new(&name));
            let text = String::from_utf8(page.unwrap().1.clone()).unwrap();
            assert!(text.contains(".SH SYNOPSIS") && text.contains(".SH OPTIONS"), "{name}");
            for (path, bytes) in &completions {
                let text = String::from_utf8_lossy(bytes);
                assert!(text.contains(verb.get_name()), "{}: {name}", path.display());
            }
        }
        assert!(pages.iter().all(|(path, _)| !path.ends_with("convoy-helper.1")));
    }
}
