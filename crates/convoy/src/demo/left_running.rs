//! `--keep` and `--stop`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::folder::Folder;
use super::gateways::Gateways;
use super::lab::{World, own_world};
use crate::exit::Exit;
use crate::interrupt::Interrupt;

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest time that a demonstration may take to clean up.
const END_LIMIT: Duration = Duration::from_secs(20);

/// Stays until a signal comes or a gateway ends.
pub(super) fn stay(
    world: &World<'_>,
    sites: &[PathBuf; 2],
    folder: &Folder,
    gateways: &mut Option<Gateways>,
    interrupt: &Interrupt,
) -> anyhow::Result<()> {
    let Some(gateways) = gateways else { return Ok(()) };
    eprint!("{}", how_to(world, sites, folder, gateways));
    while !interrupt.is_set() {
        gateways.check()?;
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Commands for a look around, in words.
fn how_to(
    world: &World<'_>,
    sites: &[PathBuf; 2],
    folder: &Folder,
    gateways: &mut Gateways,
) -> String {
    let own = std::process::id();
    let lab = world.topology;
    let host = lab.a.host.name().unwrap_or_default();
    let gateway = lab.a.gateway.name().unwrap_or_default();
    // Of a user's own world, only those who enter it see the names.
    let prefix = if own_world() {
        format!("nsenter -t {own} -U -n -m --preserve-credentials ")
    } else {
        String::new()
    };
    let mut text =
        String::from("\nEverything is left running. Look around from another terminal:\n");
    let to = lab.b.host_address(world.family);
    let lines = [
        format!("{prefix}ip netns exec {host} ping {to}"),
        format!("{prefix}ip netns exec {gateway} tcpdump -ni wire"),
        format!("{prefix}ip netns exec {gateway} ip route"),
        format!("convoy status {} --watch", sites[0].display()),
        format!("convoy sa {}", sites[1].display()),
    ];
    for line in lines {
        // Writing to a String does not fail.
        let _ = writeln!(text, "  {line}");
    }
    let names: Vec<_> =
        lab.namespaces().iter().filter_map(|(_, namespace)| namespace.name()).collect();
    let _ = writeln!(text, "Namespaces: {}", names.join(", "));
    for (name, pid) in gateways.processes() {
        let _ = writeln!(text, "Gateway {name}: process {pid}, log {}", folder.log(name).display());
    }
    let _ = writeln!(
        text,
        "End it with Ctrl-C, or `convoy demo --stop --out {}`, or `kill {own}`.",
        folder.path().display()
    );
    text
}

/// Takes away what demonstrations left that were killed. Another user's is no reason to fail.
fn sweep() {
    let names = |left: Vec<convoy_lab::Leftover>| {
        left.into_iter().map(|left| left.name).collect::<Vec<_>>().join(", ")
    };
    match convoy_lab::sweep() {
        Ok(left) if left.is_empty() => {}
        Ok(left) => {
            eprintln!("convoy demo: removed what a killed demonstration left: {}", names(left))
        }
        Err(error) => {
            eprintln!(
                "convoy demo: cannot remove {}, which a killed demonstration left: {error}",
                names(convoy_lab::leftovers())
            )
        }
    }
}

/// Ends the demonstration that uses a folder.
pub(super) fn stop(folder: &Path) -> anyhow::Result<Exit> {
    let Some(pid) = Folder::user_of(folder)? else {
        eprintln!("convoy demo: no demonstration runs with {}", folder.display());
        sweep();
        return Ok(Exit::Ok);
    };
    // It holds the lock, so the number is its own.
    kill(Pid::from_raw(pid), Signal::SIGTERM)
        .with_context(|| format!("cannot end the demonstration, process {pid}"))?;
    let begun = Instant::now();
    while Folder::user_of(folder)?.is_some() {
        anyhow::ensure!(begun.elapsed() < END_LIMIT, "process {pid} does not end");
        std::thread::sleep(PAUSE);
    }
    eprintln!("convoy demo: ended, nothing is left behind");
    Ok(Exit::Ok)
}
