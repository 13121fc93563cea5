//! The kernel: its own ESP, what Convoy needs of it, the rights of this process, and the clock.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::check::Check;

/// Folders from which modprobe(8) takes its settings.
const MODPROBE: [&str; 4] =
    ["etc/modprobe.d", "run/modprobe.d", "usr/local/lib/modprobe.d", "usr/lib/modprobe.d"];
/// Names of a gateway's rights, by their number (`capability.h`), and the use of each.
const RIGHTS: [(u32, &str, &str); 3] = [
    (12, "CAP_NET_ADMIN", "the TUN interface, routes and the packet filter"),
    (13, "CAP_NET_RAW", "native ESP"),
    (10, "CAP_NET_BIND_SERVICE", "UDP ports below 1024"),
];
/// 1 January 2025, in seconds.
const BEFORE: Duration = Duration::from_secs(1_735_689_600);

pub(super) fn look(root: &Path) -> Vec<Check> {
    let mut checks = esp(root);
    checks.push(tun(root));
    checks.push(rights(&fs::read_to_string(root.join("proc/self/status")).unwrap_or_default()));
    checks.push(landlock(convoy_io::landlock::version()));
    checks.push(clock(root, SystemTime::now()));
    checks.push(ipv6(root));
    checks.push(generation(root));
    checks
}

fn generation(root: &Path) -> Check {
    const ABOUT: &str = "VM generation id";
    if convoy_host::has_generation_id(root) {
        return match convoy_host::can_read_kernel_log(root) {
            Ok(()) => Check::ok(
                ABOUT,
                "present: a gateway detects snapshots and clones of this machine, and ends its SAs",
            ),
            Err(error) => Check::note(
                ABOUT,
                format!(
                    "present, but this user cannot read the kernel's log /dev/kmsg ({error}), and kernels \
                     since 6.9 report a snapshot or clone of this machine nowhere else: let the gateway read \
                     it (in a container, pass the device into it), or make new keys and restart IKE daemons \
                     after each copy"
                ),
            ),
        };
    }
    Check::note(
        ABOUT,
        "absent: if this is a virtual machine, a gateway does not detect that it was resumed from a snapshot \
         or cloned; make new keys then, and restart IKE daemons",
    )
}

fn esp(root: &Path) -> Vec<Check> {
    const ABOUT: &str = "kernel ESP";
    let modules = fs::read_to_string(root.join("proc/modules")).unwrap_or_default();
    let loaded: Vec<_> = ["esp4", "esp6"]
        .into_iter()
        .filter(|name| modules.lines().any(|line| line.split(' ').next() == Some(name)))
        .collect();
    let mut checks: Vec<_> = blocked(root)
        .into_iter()
        .map(|(place, line)| {
            Check::note(ABOUT, format!("blocked by `{line}` in {place}: Convoy does not need it"))
        })
        .collect();
    if !loaded.is_empty() {
        let loaded = loaded.join(" and ");
        checks.push(Check::note(
            ABOUT,
            format!(
                "{loaded} loaded: the kernel looks at every native ESP packet, too, and drops its copy; \
                 Convoy does not need it: unload with `modprobe -r`, or block it in /etc/modprobe.d"
            ),
        ));
    } else if checks.is_empty() {
        checks.push(Check::ok(ABOUT, "no module of it is loaded; Convoy does not need any"));
    }
    checks
}

/// Lines that keep modules of the kernel's IPsec from being loaded, and their files.
fn blocked(root: &Path) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    for folder in MODPROBE {
        let Ok(files) = fs::read_dir(root.join(folder)) else { continue };
        let mut files: Vec<_> = files.flatten().map(|file| file.path()).collect();
        files.sort();
        for file in files.iter().filter(|file| file.extension().is_some_and(|e| e == "conf")) {
            let text = fs::read_to_string(file).unwrap_or_default();
            let place =
                format!("/{folder}/{}", file.file_name().unwrap_or_default().to_string_lossy());
            let blocks = text.lines().map(str::trim).filter(|line| blocks_esp(line));
            lines.extend(blocks.map(|line| (place.clone(), line.to_owned())));
        }
    }
    lines
}

fn blocks_esp(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let (verb, module) = (words.next(), words.next());
    let command = words.next().unwrap_or_default();
    let is_esp = matches!(module, Some("esp4" | "esp6"));
    let to_nothing = ["/false", "/true"].iter().any(|end| command.ends_with(end));
    is_esp && (verb == Some("blacklist") || verb == Some("install") && to_nothing)
}

fn tun(root: &Path) -> Check {
    match root.join("dev/net/tun").exists() {
        true => Check::ok("TUN", "/dev/net/tun is present"),
        false => Check::problem(
            "TUN",
            "/dev/net/tun is missing: load the kernel module tun, or pass the device into the container",
        ),
    }
}

fn rights(status: &str) -> Check {
    const ABOUT: &str = "rights";
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let Some(has) = line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()) else {
        return Check::note(ABOUT, "unknown: /proc/self/status has no CapEff");
    };
    let missing: Vec<_> = RIGHTS
        .iter()
        .filter(|(bit, ..)| has >> bit & 1 == 0)
        .map(|(_, name, purpose)| format!("{name} ({purpose})"))
        .collect();
    match missing.is_empty() {
        true => Check::ok(ABOUT, "this user may run a gateway"),
        false => Check::note(
            ABOUT,
            format!(
                "this process lacks capabilities that `convoy run` needs: {}; run it as root, or by systemd, \
                 or give the program these by `setcap`",
                missing.join(", ")
            ),
        ),
    }
}

fn landlock(version: Result<u32, convoy_io::landlock::Missing>) -> Check {
    const ABOUT: &str = "Landlock";
    match version {
        Ok(version) => Check::ok(
            ABOUT,
            format!("version {version}: a running gateway may use no files but those of its site"),
        ),
        Err(why) => Check::note(
            ABOUT,
            format!("{why}: an attacker who takes over a gateway can use all files of its user"),
        ),
    }
}

fn clock(root: &Path, now: SystemTime) -> Check {
    const ABOUT: &str = "clock";
    if now.duration_since(UNIX_EPOCH).is_ok_and(|since| since >= BEFORE) {
        let by = match root.join("run/systemd/timesync/synchronized").exists() {
            true => "set by systemd-timesyncd",
            false => "no sign of NTP is found here",
        };
        return Check::ok(ABOUT, format!("after the beginning of 2025; {by}"));
    }
    Check::problem(
        ABOUT,
        "the clock is before 2025, so daemons refuse certificates and lifetimes are wrong: set it, for example \
         by NTP",
    )
}

fn ipv6(root: &Path) -> Check {
    const ABOUT: &str = "IPv6";
    match fs::read_to_string(root.join("proc/sys/net/ipv6/conf/all/disable_ipv6")) {
        Ok(value) if value.trim() == "0" => Check::ok(ABOUT, "on"),
        Ok(_) => Check::note(
            ABOUT,
            "switched off (net.ipv6.conf.all.disable_ipv6 = 1): tunnels carry IPv4 only",
        ),
        Err(_) => Check::note(ABOUT, "this kernel has no IPv6: tunnels carry IPv4 only"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::Level;

    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn lines_that_block_esp_are_quoted_with_their_files() {
        let text = "# esp\nblacklist esp4\n  install esp6 /bin/false\ninstall esp4 /sbin/x\nalias a esp4\n";
        let root = root(&[("etc/modprobe.d/cve.conf", text), ("etc/modprobe.d/old.bak", text)]);
        let said: Vec<_> = esp(root.path()).into_iter().map(|check| check.found).collect();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].starts_with("blocked by `blacklist esp4` in /etc/modprobe.d/cve.conf"));
        assert!(said[1].contains("`install esp6 /bin/false`"));
    }

    #[test]
    fn handlers_of_the_kernel_are_noted() {
        let root = root(&[("proc/modules", "esp4_offload 1 0 - Live\nesp6 24576 0 - Live 0x0\n")]);
        let [check] = &esp(root.path())[..] else { panic!() };
        assert!(check.level == Level::Note && check.found.starts_with("esp6 loaded"), "{check:?}");
    }

    #[test]
    fn missing_rights_are_named() {
        let check = rights("Name:\tx\nCapEff:\t0000000000001000\n");
        assert!(check.found.contains("CAP_NET_RAW (native ESP), CAP_NET_BIND"), "{check:?}");
        assert!(!check.found.contains("CAP_NET_ADMIN"));
        assert_eq!(rights("CapEff:\t000001ffffffffff\n").level, Level::Ok);
    }

    #[test]
    fn a_generation_id_without_a_log_that_can_be_read_is_noted() {
        let root = root(&[("sys/bus/platform/drivers/vmgenid/bind", "")]);
        let device = root.path().join("sys/bus/platform/drivers/vmgenid/VMGENCTR:00");
        std::os::unix::fs::symlink("x", device).unwrap();
        let check = generation(root.path());
        assert!(check.level == Level::Note && check.found.contains("/dev/kmsg"), "{check:?}");
        fs::create_dir_all(root.path().join("dev")).unwrap();
        fs::write(root.path().join("dev/kmsg"), "").unwrap();
        assert_eq!(generation(root.path()).level, Level::Ok);
    }

    #[test]
    fn an_old_clock_and_missing_devices_are_problems() {
        let root = root(&[("proc/sys/net/ipv6/conf/all/disable_ipv6", "1\n")]);
        assert_eq!(clock(root.path(), UNIX_EPOCH).level, Level::Problem);
        assert_eq!(clock(root.path(), SystemTime::now()).level, Level::Ok);
        assert_eq!(tun(root.path()).level, Level::Problem);
        assert_eq!(ipv6(root.path()).level, Level::Note);
    }
}
