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
pub(super) mod args;
mod play;
mod shares;
mod world;

use std::time::Instant;

use super::engine;
use super::folder::Folder;
use super::lab;
use super::progress::Progress;
use crate::exit::{Exit, Stop};
use crate::interrupt::Interrupt;
use crate::output;
use crate::privileges;
use args::IkeArgs;
use play::Play;
use world::World;

pub(super) fn run(args: &IkeArgs) -> anyhow::Result<Exit> {
    let missing = world::missing(args.peers);
    if !missing.is_empty() {
        return Err(Stop::usage(format!(
            "strongSwan is not installed: install {}, or run `make demo-ike` as root, which does",
            missing.join(", ")
        )));
    }
    engine::check_faults(&args.engine, &args.fault)?;
    // The order matters: becoming root of one's own namespaces needs a process with one thread.
    lab::rights().map_err(|why| anyhow::anyhow!("cannot make network namespaces: {why}"))?;
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
