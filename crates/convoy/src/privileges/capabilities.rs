//! Capabilities that a running gateway keeps.

use anyhow::Context as _;
use convoy_control::site::Site;
use convoy_io::landlock::Ruleset;
use convoy_io::rights;
use rustix::thread::{CapabilitySet, capabilities};

use super::{Programs, memory};

/// Every thread gives up what the site does not need, and gets under the ruleset.
pub(super) fn keep_needed(
    site: &Site,
    programs: Programs,
    files: Option<&Ruleset>,
) -> anyhow::Result<()> {
    let mut keep = needed(site, programs, knows_bpf());
    if memory::is_locked_by_right() {
        // Without it, the next memory that is asked for would be refused.
        keep |= CapabilitySet::IPC_LOCK;
    }
    rights::keep_only(keep.bits(), files)
        .context("cannot drop the capabilities that a running gateway does not need")?;
    let names: Vec<_> = keep.iter_names().map(|(name, _)| name).collect();
    tracing::debug!("capabilities that the gateway keeps, if it had them: {}", names.join(", "));
    Ok(())
}

/// From this port on, everybody may bind, unless `net.ipv4.ip_unprivileged_port_start` says otherwise.
const FREE_PORTS: u16 = 1024;

/// Capabilities that a gateway of this site needs while it runs.
fn needed(site: &Site, programs: Programs, knows_bpf: bool) -> CapabilitySet {
    // Routes, interfaces and the packet filter; sockets for ESP and AH, and on interfaces.
    let mut needed = CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW;
    if site.xfrm.is_some() {
        // A daemon's UDP socket is shared, whatever port it is.
        needed |= CapabilitySet::NET_BIND_SERVICE;
    }
    let metrics = site.metrics.map(|metrics| metrics.listen.port());
    // These ports may come free only later.
    if metrics.into_iter().chain([site.wire.udp_port]).any(|port| port < FREE_PORTS) {
        needed |= CapabilitySet::NET_BIND_SERVICE;
    }
    if programs == Programs::Changing {
        needed |= if knows_bpf { CapabilitySet::BPF } else { CapabilitySet::SYS_ADMIN };
    }
    needed
}

/// Names of capabilities that a gateway of this site cannot start without, and that this thread lacks.
pub(crate) fn lacking(site: &Site) -> Vec<String> {
    let own = capabilities(None).map_or(CapabilitySet::empty(), |own| own.effective);
    let mut needed = CapabilitySet::NET_ADMIN;
    if site.uses_native_esp() || site.plain.backend.is_direct() || site.wire.backend.is_direct() {
        needed |= CapabilitySet::NET_RAW;
    }
    needed.difference(own).iter_names().map(|(name, _)| format!("CAP_{name}")).collect()
}

/// Linux before 5.8 has no `CAP_BPF`; its `bpf()` wants `CAP_SYS_ADMIN`.
fn knows_bpf() -> bool {
    let last = std::fs::read_to_string("/proc/sys/kernel/cap_last_cap");
    let last = last.ok().and_then(|number| number.trim().parse::<u32>().ok());
    last.is_none_or(|last| CapabilitySet::BPF.bits() >> last <= 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(text: &str) -> Site {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("site.toml");
        std::fs::write(&path, format!("name = \"g\"\n{text}")).unwrap();
        Site::load(&path).unwrap().0
    }

    fn needed_by(site: &Site, knows_bpf: bool) -> CapabilitySet {
        needed(site, Programs::of(site), knows_bpf)
    }

    #[test]
    fn a_site_keeps_what_its_backends_need_and_nothing_else() {
        let always = CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW;
        let tun = site("[plain]\ninterface = \"tun0\"\n");
        assert_eq!(needed_by(&tun, true), always);
        assert_eq!(needed_by(&tun, false), always);
        let metrics = |port| {
            let listen = format!("[metrics]\nlisten = \"127.0.0.1:{port}\"\n");
            site(&format!("[plain]\ninterface = \"tun0\"\n{listen}"))
        };
        assert_eq!(needed_by(&metrics(1024), true), always);
        assert_eq!(needed_by(&metrics(1023), true), always | CapabilitySet::NET_BIND_SERVICE);
        let direct = |backend: &str| {
            site(&format!(
                "[plain]\nbackend = \"{backend}\"\ninterface = \"a\"\n[wire]\nbackend = \"{backend}\"\ninterface = \"b\"\n"
            ))
        };
        assert_eq!(needed_by(&direct("af_packet"), true), always);
        assert_eq!(needed_by(&direct("af_xdp"), true), always | CapabilitySet::BPF);
        assert_eq!(needed_by(&direct("af_xdp"), false), always | CapabilitySet::SYS_ADMIN);
        let daemons =
            site("[plain]\ninterface = \"tun0\"\n[xfrm]\nsocket = \"/run/convoy/x.sock\"\n");
        let shared = CapabilitySet::NET_BIND_SERVICE | CapabilitySet::BPF;
        assert_eq!(needed_by(&daemons, true), always | shared);
        assert_eq!(needed(&tun, Programs::Changing, true), always | CapabilitySet::BPF);
    }
}
