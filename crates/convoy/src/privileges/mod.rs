//! Rights of a running gateway: no more than it needs.
//!
//! * `memory`: before keys are read, by any verb, no core file and no debugger of the same user gets at them, and
//!   they are not swapped out;
//! * `capabilities`: once the gateway has started, every thread keeps those that its site needs;
//! * `files`: from then on, the kernel lets it use the files that its site needs, and no others;
//! * `filter`: from then on, the kernel refuses system calls that no gateway makes.

mod capabilities;
mod files;
mod filter;
mod limits;
mod memory;

use std::io::ErrorKind;
use std::path::Path;

use convoy_control::site::{Backend, Site};
use convoy_control::status::Confinement;
use convoy_io::landlock::Ruleset;
use convoy_io::rights;
use nix::sys::signal::SigSet;
use rustix::thread::CapabilitySet;

use crate::exit::describe;
use limits::{Landlock, SyscallFilter};

pub(crate) use capabilities::lacking;
pub(crate) use limits::Limits;
pub(crate) use memory::{keep_private, keep_private_for_now};

/// Use of the kernel's programs (BPF) by a gateway that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Programs {
    /// It loads none, and changes none.
    Settled,
    /// It changes those that pick packets of an interface, or datagrams of a shared port.
    Changing,
}

impl Programs {
    /// The use that a site needs, whatever was chosen at the start.
    pub(crate) fn of(site: &Site) -> Self {
        let has_xdp = [site.plain.backend, site.wire.backend].contains(&Backend::AfXdp);
        if site.xfrm.is_some() || has_xdp { Self::Changing } else { Self::Settled }
    }
}

/// The helper gives up everything but the right for that.
///
/// # Errors
/// Fails if it keeps other rights. It does without the filter, and Landlock, where the kernel has none.
pub(crate) fn keep_only_chown() -> std::io::Result<()> {
    rights::keep_only(CapabilitySet::CHOWN.bits(), None)?;
    // It has one thread.
    let _ = Ruleset::new().and_then(|no_files| no_files.restrict_thread());
    // The gateway ends it by closing a socket. Signals to all processes of the unit are not for it.
    SigSet::all().thread_block()?;
    let _ = filter::install_for_helper();
    Ok(())
}

/// Cost of an open folder whose path the gateway may not follow any more, in words.
fn hidden(folder: &Path) -> String {
    format!(
        "{} cannot be reached by its path from now on, because a running gateway has only the rights of its \
         user: the gateway notices when it is removed, but not when it is moved or replaced; leave it where it \
         is, or let the gateway's user into the folders above (chmod o+x)",
        folder.display()
    )
}

/// Gives up what the gateway needs for its start alone, in all threads and for ever. Returns what holds it from
/// now on.
///
/// # Errors
/// Fails if a thread keeps rights all the same. A kernel without filters for system calls is told, and no error, as is
/// one without Landlock.
pub(crate) fn give_up(
    site: &Site,
    programs: Programs,
    limits: Limits,
) -> anyhow::Result<Confinement> {
    let files = match limits.landlock {
        Landlock::On => ruleset(site).map_err(|why| describe(&why)),
        Landlock::Off => Err("--landlock off".to_owned()),
    };
    capabilities::keep_needed(site, programs, files.as_ref().ok())?;
    if let (Landlock::On, Err(why)) = (limits.landlock, &files) {
        tracing::info!("file access of the gateway is not limited: {why}");
    }
    if let Err(error) = std::fs::File::open(&site.path) {
        tracing::warn!(
            "{} cannot be read from now on ({error}), so a reload will fail: a running gateway has only the \
             rights of its user; let that user read the file and enter the folders above",
            site.path.display(),
        );
    }
    let kept = site.xfrm.as_ref();
    let kept = kept.map(|xfrm| xfrm.state.clone().unwrap_or_else(|| xfrm.usual_state()));
    for folder in site.state_dir.iter().chain(&kept) {
        if std::fs::metadata(folder).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
        {
            tracing::warn!("{}", hidden(folder));
        }
    }
    let filter = filter::install(programs, limits.syscall_filter);
    if let Err(error) = &filter {
        tracing::warn!(
            "system calls are not filtered: {}; to accept this: --syscall-filter off",
            describe(error)
        );
    }
    Ok(Confinement {
        system_calls: filter.is_ok() && limits.syscall_filter == SyscallFilter::On,
        landlock: files.as_ref().ok().map(Ruleset::version),
        no_landlock: files.err(),
    })
}

/// Files that the gateway may use.
fn ruleset(site: &Site) -> anyhow::Result<Ruleset> {
    let ruleset = Ruleset::new()?;
    files::allow(&ruleset, site)?;
    ruleset.try_out()?;
    Ok(ruleset)
}
