//! One file per verb.

mod ask;
#[cfg(feature = "bench")]
pub mod bench;
mod check;
mod crypto;
mod doctor;
mod exec;
mod helper;
mod init;
mod keys;
mod open;
#[cfg(feature = "provider")]
pub mod openssl_conf;
mod policy;
mod reload;
mod replay;
mod run;
mod sa;
mod status;
mod trace;

use crate::cli::Verb;
use crate::exit::Exit;
#[cfg(not(all(feature = "bench", feature = "provider")))]
use crate::exit::left_out;
use crate::privileges;

/// Does what the command line asks for.
///
/// # Errors
/// The error to print to standard error; [`crate::exit::code_of`] tells the exit code.
pub fn run(verb: Verb) -> anyhow::Result<Exit> {
    if has_keys(&verb) {
        privileges::keep_private_for_now();
    }
    match verb {
        Verb::Init(args) => init::run(&args),
        Verb::Check(args) => check::run(&args),
        Verb::Run(args) => run::run(&args),
        Verb::Status(args) => status::run(&args),
        Verb::Sa(args) => sa::run(&args),
        Verb::Policy(args) => policy::run(&args),
        Verb::Trace(args) => trace::run(&args),
        Verb::Crypto(args) => crypto::run(&args),
        #[cfg(feature = "provider")]
        Verb::OpensslConf(args) => openssl_conf::run(&args),
        #[cfg(not(feature = "provider"))]
        Verb::OpensslConf(_) => Err(left_out("openssl-conf")),
        #[cfg(feature = "bench")]
        Verb::Bench(args) => bench::run(&args),
        #[cfg(not(feature = "bench"))]
        Verb::Bench(_) => Err(left_out("bench")),
        Verb::Keys(args) => keys::run(&args),
        Verb::Reload(args) => reload::run(&args),
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Open(args) => open::run(&args),
        Verb::Replay(args) => replay::run(&args),
        Verb::Exec(args) => exec::run(&args),
        Verb::Helper => helper::run(),
        Verb::Demo(args) => crate::demo::run(&args),
    }
}

/// True if a verb makes keys, asks for them, or reads a site file, which holds them. A gateway and a demonstration see
/// to it themselves.
const fn has_keys(verb: &Verb) -> bool {
    match verb {
        Verb::Run(args) => args.dry_run,
        Verb::Replay(_) | Verb::Demo(_) => false,
        // What it runs would inherit a part of it.
        Verb::Exec(_) => false,
        // It gives up by itself all but what it is for.
        Verb::Helper => false,
        // The keys of measurements are nobody's.
        Verb::Bench(_) | Verb::OpensslConf(_) => false,
        Verb::Init(_) | Verb::Check(_) | Verb::Keys(_) | Verb::Doctor(_) | Verb::Open(_) => true,
        // They look for the gateway's socket in its site file.
        Verb::Status(_) | Verb::Sa(_) | Verb::Policy(_) | Verb::Trace(_) => true,
        Verb::Crypto(_) | Verb::Reload(_) => true,
    }
}
