//! Files that a running gateway may use (Landlock).

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use convoy_control::site::Site;
use convoy_io::landlock::{Access, Ruleset};

/// Paths that every gateway reads: of processes and network settings; of the machine, to tell it from others; names of
/// users, for messages.
const READ: [&str; 7] = [
    "/proc",
    "/sys/bus",
    "/sys/devices/system/cpu",
    "/sys/fs/cgroup",
    "/sys/class/dmi/id",
    "/etc/machine-id",
    "/etc/passwd",
];

/// Folder of settings of interfaces, which it changes.
const SETTINGS: &str = "/proc/sys/net";

/// The site's folders and files, and what every gateway uses.
///
/// # Errors
/// Fails if the kernel refuses a rule.
pub(super) fn allow(ruleset: &Ruleset, site: &Site) -> anyhow::Result<()> {
    for (path, access) in uses(site) {
        let found = ruleset.allow(&path, access);
        found.with_context(|| format!("cannot allow access to {}", path.display()))?;
    }
    let settings = ruleset.allow(Path::new(SETTINGS), Access::WRITE);
    // The kernel forgets folders of /proc that nobody has open, and the rule with them.
    std::mem::forget(settings.context("cannot allow access to /proc/sys/net")?);
    if let Some(metrics) = &site.metrics {
        ruleset.allow_tcp(metrics.listen.port()).context("cannot allow the TCP port of metrics")?;
    }
    Ok(())
}

fn uses(site: &Site) -> Vec<(PathBuf, Access)> {
    let mut uses: Vec<_> =
        READ.into_iter().map(|path| (PathBuf::from(path), Access::READ)).collect();
    // For the names of functions where a panic is told.
    uses.extend(std::env::current_exe().map(|own| (own, Access::READ)));
    // A new site or key file may take the place of the one that is there.
    for file in site.key_files.iter().chain([&site.path]) {
        uses.extend(folders_of(file).map(|folder| (folder, Access::READ)));
    }
    // The folder itself may be replaced while the gateway runs, and the other gets a sign then.
    if let Some(folder) = &site.state_dir {
        uses.push((folder.clone(), Access::KEEP));
        uses.extend(folders_of(folder).map(|parent| (parent, Access::MAKE_EMPTY)));
    }
    let sockets = site.xfrm.iter().map(|xfrm| &xfrm.socket).chain([&site.control_socket]);
    for socket in sockets {
        uses.extend(folders_of(socket).map(|folder| (folder, Access::REMOVE)));
    }
    if let Some(xfrm) = &site.xfrm {
        // It is removed at the end if nothing is in it.
        let folder = xfrm.state.clone().unwrap_or_else(|| xfrm.usual_state());
        uses.extend(folders_of(&folder).map(|parent| (parent, Access::REMOVE_FOLDERS)));
        uses.push((folder, Access::KEEP));
    }
    uses
}

/// The folder in which a path is, and that in which it is once symbolic links are followed.
fn folders_of(path: &Path) -> impl Iterator<Item = PathBuf> {
    let given = std::path::absolute(path).ok();
    let meant = path.canonicalize().ok();
    [given, meant].into_iter().flatten().filter_map(|path| path.parent().map(Path::to_owned))
}
