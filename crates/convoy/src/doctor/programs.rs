//! Programs: who holds the ports, IKE daemons, Convoy's library, socket and units.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::check::{Check, Patient};
use crate::exit::describe;
use crate::preload::{Listener, find_library, probe};
use crate::units::{Daemon, drop_in, folder_with};

/// As IKE daemons are called in `/proc/PID/comm`.
const DAEMONS: [&str; 5] = ["charon", "charon-systemd", "charon-nm", "pluto", "iked"];
/// The library that leads them to Convoy, as it begins in `/proc/PID/maps`.
const LIBRARY: &str = "libconvoy_xfrm";
/// A plugin of strongSwan that gives SAs to a second node, as it ends in `/proc/PID/maps`.
const HA_PLUGIN: &str = "/libstrongswan-ha.so";
/// UDP port of that plugin. It is bound if the plugin has a second node (`local` and `remote`): without, the plugin is there
/// and does nothing, as many packages install it.
const HA_PORT: u16 = 4510;

pub(super) fn look(root: &Path, patient: &Patient<'_>) -> Vec<Check> {
    let proc = root.join("proc");
    let processes = processes(&proc);
    // Of several gateways, or one that another user runs, the control socket says nothing.
    let listener = patient.socket.as_deref().and_then(|path| probe(path).ok());
    let is_answered = patient.gateway.is_ok() || listener.is_some();
    let mut checks = daemons(&processes, is_answered);
    let bound = udp_sockets(&proc);
    checks.extend(pairs(&bound, &processes));
    checks.extend(ports(&bound, &processes, patient.udp_port));
    match &patient.gateway {
        Ok(()) => checks.push(Check::ok("gateway", "answers")),
        Err(error) => checks.push(Check::note("gateway", error.clone())),
    }
    if let Some(path) = &patient.socket {
        checks.push(socket(path, is_answered));
        checks.extend(listener.and_then(|listener| elsewhere(path, listener)));
        checks.push(match find_library() {
            Ok(path) => Check::ok("library", format!("{}", path.display())),
            Err(error) if patient.site.is_some() => {
                Check::problem("library", describe(&error).replace("\n ", ""))
            }
            Err(error) => Check::note("library", describe(&error).replace("\n ", "")),
        });
        checks.push(units(root));
    }
    checks
}

/// A process that may matter.
#[derive(Debug)]
struct Process {
    pid: u32,
    name: String,
    /// True if it is led to Convoy; `None`: not to be seen.
    is_led: Option<bool>,
    /// True if it can share its SAs with another node.
    has_ha: bool,
    /// Sockets that it holds; `None`: not to be seen.
    sockets: Option<BTreeSet<u64>>,
}

/// The processes of this network namespace: what others do with their ports and daemons is their own. One
/// whose namespace is not to be seen counts.
fn processes(proc: &Path) -> Vec<Process> {
    let namespace = |folder: &Path| fs::read_link(folder.join("ns/net")).ok();
    let own = namespace(&proc.join("self"));
    let Ok(entries) = fs::read_dir(proc) else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut pids: Vec<u32> = pids.collect();
    pids.sort_unstable();
    pids.into_iter()
        .filter_map(|pid| {
            let folder = proc.join(pid.to_string());
            if namespace(&folder).is_some_and(|its| own.as_ref().is_some_and(|own| *own != its)) {
                return None;
            }
            // One that has ended meanwhile.
            let name = fs::read_to_string(folder.join("comm")).ok()?.trim_end().to_owned();
            let maps = fs::read_to_string(folder.join("maps")).ok();
            // What ends, and what is a thread of the kernel, has none.
            if maps.as_ref().is_some_and(String::is_empty) {
                return None;
            }
            let has = |what: &str| maps.as_ref().map(|maps| maps.contains(what));
            let (is_led, has_ha) = (has(LIBRARY), has(HA_PLUGIN) == Some(true));
            Some(Process { pid, name, is_led, has_ha, sockets: sockets(&folder.join("fd")) })
        })
        .collect()
}

fn sockets(folder: &Path) -> Option<BTreeSet<u64>> {
    let links = fs::read_dir(folder).ok()?.flatten();
    let inode =
        |link: PathBuf| link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok();
    Some(links.filter_map(|link| fs::read_link(link.path()).ok().and_then(inode)).collect())
}

fn daemons(processes: &[Process], is_answered: bool) -> Vec<Check> {
    const ABOUT: &str = "IKE daemon";
    let is_daemon = |process: &&Process| DAEMONS.contains(&process.name.as_str());
    let found: Vec<_> = processes
        .iter()
        .filter(is_daemon)
        .map(|Process { pid, name, is_led, .. }| match is_led {
            Some(true) if !is_answered => Check::problem(
                ABOUT,
                format!("{name} (pid {pid}) is led to Convoy, and no gateway answers: start it"),
            ),
            Some(true) => Check::ok(ABOUT, format!("{name} (pid {pid}) is led to Convoy")),
            Some(false) => Check::problem(
                ABOUT,
                format!(
                    "{name} (pid {pid}) speaks to the kernel, not to Convoy: start it by `convoy exec`, or \
                     after `convoy enable strongswan` (or libreswan)"
                ),
            ),
            None => Check::note(
                ABOUT,
                format!("{name} (pid {pid}) runs; only root can see whether it is led to Convoy"),
            ),
        })
        .collect();
    if found.is_empty() { vec![Check::ok(ABOUT, "none runs")] } else { found }
}

impl Process {
    fn holds(&self, inodes: &BTreeSet<u64>) -> bool {
        self.sockets.as_ref().is_some_and(|sockets| !sockets.is_disjoint(inodes))
    }
}

/// UDP sockets by the port that they are bound to.
type Bound = BTreeMap<u16, BTreeSet<u64>>;

fn udp_sockets(proc: &Path) -> Bound {
    let mut inodes = Bound::new();
    for file in ["net/udp", "net/udp6"] {
        let text = fs::read_to_string(proc.join(file)).unwrap_or_default();
        for (port, inode) in text.lines().skip(1).filter_map(bound) {
            inodes.entry(port).or_default().insert(inode);
        }
    }
    inodes
}

/// Daemons that give their SAs to a second node. Both would send with the same nonces.
fn pairs(bound: &Bound, processes: &[Process]) -> impl Iterator<Item = Check> {
    let inodes = bound.get(&HA_PORT).cloned().unwrap_or_default();
    let is_of_pair = move |process: &&Process| {
        process.has_ha && process.is_led == Some(true) && process.holds(&inodes)
    };
    let of_pairs = processes.iter().filter(is_of_pair);
    of_pairs.map(|Process { pid, name, .. }| {
        Check::problem(
            "IKE daemon",
            format!(
                "{name} (pid {pid}) gives its SAs to a second node (plugin `ha`), and the node that takes over \
                 would use sequence numbers, and so nonces, again: set `load = no` in \
                 /etc/strongswan.d/charon/ha.conf"
            ),
        )
    })
}

fn ports(bound: &Bound, processes: &[Process], udp_port: u16) -> Vec<Check> {
    const ABOUT: &str = "UDP ports";
    let wanted: BTreeSet<_> = [500, 4500, udp_port].into();
    wanted
        .into_iter()
        .map(|port| {
            let Some(inodes) = bound.get(&port) else {
                return Check::ok(ABOUT, format!("{port} is free"));
            };
            let holders: Vec<_> =
                processes.iter().filter(|process| process.holds(inodes)).collect();
            let names = holders.iter().map(|p| format!("{} (pid {})", p.name, p.pid));
            let names = names.collect::<Vec<_>>().join(", ");
            let stranger = holders.iter().find(|p| p.name != "convoy" && p.is_led == Some(false));
            match (names.is_empty(), stranger) {
                (true, _) => Check::note(ABOUT, format!(
                    "{port} is in use; only root can see by which process"
                )),
                (false, Some(stranger)) if port == udp_port => Check::problem(
                    ABOUT,
                    format!(
                        "{port} is in use by {} (pid {}), which is not led to Convoy, so ESP in UDP would go \
                         there: stop it, or run it by `convoy exec`",
                        stranger.name, stranger.pid
                    ),
                ),
                _ => Check::ok(ABOUT, format!("{port} is in use by {names}")),
            }
        })
        .collect()
}

/// Local port and inode of a line of `/proc/net/udp`.
fn bound(line: &str) -> Option<(u16, u64)> {
    let mut words = line.split_whitespace();
    let (_, port) = words.nth(1)?.rsplit_once(':')?;
    Some((u16::from_str_radix(port, 16).ok()?, words.nth(7)?.parse().ok()?))
}

fn socket(path: &Path, is_answered: bool) -> Check {
    const ABOUT: &str = "XFRM socket";
    let place = path.display();
    match fs::symlink_metadata(path) {
        Ok(status) if !status.file_type().is_socket() => {
            Check::problem(ABOUT, format!("{place} is no socket: remove it, or name another"))
        }
        Ok(status) if status.permissions().mode() & 0o007 != 0 => Check::problem(
            ABOUT,
            format!("all users can write to {place}, and so make SAs: `chmod 0600 {place}`"),
        ),
        Ok(_) if !is_answered => Check::problem(
            ABOUT,
            format!(
                "{place} is left over, and no gateway answers: start one with `convoy run SITE.toml`"
            ),
        ),
        Ok(_) => Check::ok(ABOUT, format!("{place}")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !is_answered => {
            Check::note(ABOUT, format!("{place} does not exist, because no gateway runs"))
        }
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Check::note(ABOUT, format!("{place} cannot be read: {error}"))
        }
        Err(error) => Check::problem(
            ABOUT,
            format!("{place}: {error}: the site file of the gateway needs an [xfrm] section"),
        ),
    }
}

/// A note if the gateway at the socket is one of another network namespace.
fn elsewhere(path: &Path, listener: Listener) -> Option<Check> {
    let its = listener.elsewhere()?;
    let (path, its) = (path.display(), its.display());
    Some(Check::note(
        "XFRM socket",
        format!(
            "the gateway at {path} runs in another network namespace ({its}): it protects packets there, and \
             none of this namespace, also for daemons of this one that are led to it; name another `socket` in \
             [xfrm]"
        ),
    ))
}

/// Drop-ins of units, and units that have none.
fn units(root: &Path) -> Check {
    const ABOUT: &str = "systemd";
    let (mut led, mut not) = (Vec::new(), Vec::new());
    for daemon in Daemon::ALL {
        for unit in daemon.units() {
            if folder_with(root, &format!("{unit}.service")).is_none() {
                continue;
            }
            let drop_in = drop_in(unit);
            match folder_with(root, &drop_in) {
                Some(folder) => led.push(format!("/{folder}/{drop_in}")),
                None => not.push((daemon, unit)),
            }
        }
    }
    match (led.is_empty(), not.is_empty()) {
        (_, false) => Check::note(
            ABOUT,
            format!(
                "{} would start without Convoy; to lead {} there: {}",
                not.iter()
                    .map(|(_, unit)| format!("{unit}.service"))
                    .collect::<Vec<_>>()
                    .join(", "),
                if not.len() == 1 { "it" } else { "them" },
                commands(&not).join(" and ")
            ),
        ),
        (false, true) => {
            Check::ok(ABOUT, format!("daemons start under Convoy: {}", led.join(", ")))
        }
        (true, true) => Check::ok(ABOUT, "no unit of an IKE daemon is installed"),
    }
}

/// The commands that lead daemons to Convoy, each once.
fn commands(units: &[(Daemon, &&str)]) -> Vec<String> {
    let mut commands: Vec<_> =
        units.iter().map(|(daemon, _)| format!("`convoy enable {}`", daemon.name())).collect();
    commands.dedup();
    commands
}

#[cfg(test)]
mod tests {
    use socket2::{Domain, SockAddr, Socket, Type};

    use super::*;
    use crate::doctor::check::Level;

    /// Of a host where the control socket tells nothing.
    fn patient(socket: Option<PathBuf>) -> Patient<'static> {
        let gateway = Err("several gateways run here".to_owned());
        let (site, peers) = (None, Vec::new());
        let is_running = None;
        Patient {
            site,
            peers,
            udp_port: 4500,
            interface: "convoy0".to_owned(),
            socket,
            gateway,
            is_running,
        }
    }

    #[test]
    fn a_socket_that_is_served_is_not_left_over() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("xfrm.sock");
        let listener = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
        listener.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let level = || {
            let checks = look(root.path(), &patient(Some(path.clone())));
            checks.into_iter().find(|check| check.about == "XFRM socket").unwrap().level
        };
        assert_eq!(level(), Level::Problem);
        listener.listen(1).unwrap();
        assert_eq!(level(), Level::Ok);
    }

    fn daemon(pid: u32, name: &str, is_led: Option<bool>, inode: u64) -> Process {
        let (name, sockets) = (name.into(), Some([inode].into()));
        Process { pid, name, is_led, has_ha: false, sockets }
    }

    #[test]
    fn a_daemon_that_shares_its_sas_is_a_problem() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("7");
        fs::create_dir_all(folder.join("fd")).unwrap();
        fs::write(folder.join("comm"), "charon\n").unwrap();
        let library = "7f0-7f1 r-xp 00000000 08:01 1 /usr/lib/convoy/libconvoy_xfrm.so\n";
        let found = |maps: &str| {
            fs::write(folder.join("maps"), maps).unwrap();
            let processes = processes(root.path());
            pairs(&udp_sockets(root.path()), &processes)
                .map(|check| check.found)
                .collect::<Vec<_>>()
        };
        let plugin = "7f2-7f3 r-xp 00000000 08:01 2 /usr/lib/ipsec/plugins/libstrongswan-ha.so\n";
        assert!(found(library).is_empty());
        assert!(found(plugin).is_empty(), "it speaks to the kernel");
        let both = [library, plugin].concat();
        assert!(found(&both).is_empty(), "the plugin has no second node");
        fs::create_dir(root.path().join("net")).unwrap();
        let text = "  sl  local_address rem_address   st\n   \
            9: 010200C0:119E 020200C0:119E 01 00000000:00000000 00:00000000 00000000     0        0 77 2 0 0\n";
        fs::write(root.path().join("net/udp"), text).unwrap();
        assert!(found(&both).is_empty(), "another process has the port");
        std::os::unix::fs::symlink("socket:[77]", folder.join("fd/5")).unwrap();
        let [told] = &found(&both)[..] else { panic!() };
        assert!(told.contains("charon (pid 7)") && told.contains("ha.conf"), "{told}");
    }

    #[test]
    fn daemons_without_convoy_are_problems() {
        let processes = [
            daemon(7, "charon", Some(false), 1),
            daemon(8, "pluto", Some(true), 2),
            daemon(9, "sh", Some(false), 3),
            daemon(10, "charon-systemd", None, 4),
        ];
        let levels = |is_answered| -> Vec<_> {
            daemons(&processes, is_answered).iter().map(|check| check.level).collect()
        };
        assert_eq!(levels(true), [Level::Problem, Level::Ok, Level::Note]);
        assert_eq!(levels(false), [Level::Problem, Level::Problem, Level::Note]);
        assert_eq!(daemons(&processes[2..3], true)[0].level, Level::Ok);
    }

    #[test]
    fn whoever_holds_a_port_is_named() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("net")).unwrap();
        let text = "  sl  local_address rem_address   st\n   \
            9: 00000000:1194 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 77 2 0 0\n  \
            10: 0100007F:01F4 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 78 2 0 0\n";
        fs::write(root.path().join("net/udp"), text).unwrap();
        let stranger = [daemon(7, "charon", Some(false), 77)];
        let found = ports(&udp_sockets(root.path()), &stranger, 4500);
        assert_eq!(
            found[0],
            Check::note("UDP ports", "500 is in use; only root can see by which process")
        );
        assert!(found[1].level == Level::Problem && found[1].found.contains("charon (pid 7)"));
        let led = [daemon(7, "charon", Some(true), 77), daemon(8, "convoy", Some(false), 77)];
        let found = ports(&udp_sockets(root.path()), &led, 4500);
        assert_eq!(
            found[1],
            Check::ok("UDP ports", "4500 is in use by charon (pid 7), convoy (pid 8)")
        );
    }

    #[test]
    fn units_without_a_drop_in_are_noted() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("usr/lib/systemd/system");
        fs::create_dir_all(folder.join("ipsec.service.d")).unwrap();
        assert_eq!(units(root.path()).level, Level::Ok);
        fs::write(folder.join("ipsec.service"), "").unwrap();
        assert!(units(root.path()).found.starts_with("ipsec.service would start without Convoy"));
        fs::write(folder.join("ipsec.service.d/50-convoy.conf"), "").unwrap();
        assert!(units(root.path()).found.contains("/usr/lib/systemd/system/ipsec.service.d/50-"));
    }

    #[test]
    fn a_socket_that_everybody_may_use_is_a_problem() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("xfrm.sock");
        assert_eq!(socket(&path, false).level, Level::Note);
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let set = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        set(0o600);
        assert_eq!(socket(&path, true).level, Level::Ok);
        assert_eq!(socket(&path, false).level, Level::Problem);
        set(0o666);
        assert!(socket(&path, true).found.contains("chmod 0600"));
    }
}
