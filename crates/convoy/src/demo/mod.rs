//! `convoy demo`: two networks joined by a tunnel on this machine, with real traffic.
//!
//! ```text
//!   hostA ─── gwA ══ wire ══ gwB ─── hostB
//! ```
//!
//! Each of the four is a network namespace; the gateways are `convoy run` processes. Where
//! namespaces are not allowed, both gateways run in this process, joined by memory.

mod args;
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

use std::time::Instant;

use convoy_lab::Family;

pub use args::{DemoArgs, DemoWhat, Io};
pub use engine::Engine;
pub use ike::args::{IkeArgs, Peers};

use crate::exit::{Exit, Stop};
use crate::interrupt::Interrupt;
use crate::output;
use crate::privileges;
use folder::{Folder, SiteOptions};
use progress::Progress;

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
    engine::check_faults(&args.engine, &args.fault)?;
    engine::check_driver(&args.engine)?;
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
                "cannot make network namespaces ({why}): both gateways run in this process, joined by memory"
            ));
            return in_memory(args, family, folder, why, &mut progress, interrupt);
        }
    };
    let options = SiteOptions::of_topology(&topology, family, args.udp_encap, args.io.backend())
        .with_crypto(engine::section(&args.engine, &args.fault));
    let world = lab::World {
        topology: &topology,
        family,
        mtu: args.mtu,
        udp_encap: args.udp_encap,
        io: args.io,
        // A fault comes once, and is for the gateways that stay.
        both_wires: args.fault.is_empty(),
    };
    let mut gateways = None;
    let summary =
        lab::run(&world, args.seconds, &folder, &options, &mut gateways, &mut progress, interrupt)?;
    progress.clear();
    let exit = tell(args, &summary)?;
    let finished = if args.keep {
        left_running::stay(&world, &folder.sites(), &folder, &mut gateways, interrupt)?;
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
        progress.note(
            "--keep has no effect: there are no network namespaces that another program could enter"
        );
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
