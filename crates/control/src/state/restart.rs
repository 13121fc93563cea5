//! The one table of settings that a reload cannot change.

use super::keys::SiteKeys;
use super::{State, StateError};
use crate::site::{Plain, SharedWork, Site, Wire};

impl State {
    /// Refuses a site that a running gateway cannot go over to.
    ///
    /// # Errors
    /// [`StateError::NeedsRestart`] with the settings that differ.
    pub fn check_reload(&self, site: &Site) -> Result<(), StateError> {
        let differ = settings(&self.site, site, &SiteKeys::of(&self.site));
        if differ.is_empty() { Ok(()) } else { Err(StateError::NeedsRestart(differ)) }
    }
}

/// Settings that differ and need a restart.
///
/// The patterns name every setting, so that a new one must be put here: one that is bound needs a restart, and `_` is brought
/// into force by a reload.
fn settings(old: &Site, new: &Site, keys: &SiteKeys<'_>) -> Vec<String> {
    let Site {
        path: _,
        name,
        namespace,
        state_dir,
        control_socket,
        plain,
        wire,
        workers,
        worker_rules: _,
        crypto,
        verify_every,
        shared_work,
        drivers: _,
        capture,
        xfrm,
        metrics,
        outbound: _,
        inbound: _,
        policies: _,
        leak_protection,
        marks,
        legacy: _,
        key_files: _,
        places: _,
    } = new;
    let Plain { backend, interface, addresses, mtu, routes, spd, between_tunnels: _ } = plain;
    let Wire {
        backend: wire_backend,
        fast_path,
        interface: wire_interface,
        udp_port,
        mtu: wire_mtu,
    } = wire;
    let SharedWork { balance, budget } = shared_work;
    let all = [
        ("name", old.name == *name),
        ("namespace", old.namespace == *namespace),
        ("state_dir", old.state_dir == *state_dir),
        ("metrics", old.metrics == *metrics),
        ("xfrm", old.xfrm == *xfrm),
        ("control_socket", old.control_socket == *control_socket),
        ("plain.backend", old.plain.backend == *backend),
        ("plain.interface", old.plain.interface == *interface),
        ("plain.addresses", old.plain.addresses == *addresses),
        ("plain.mtu", old.plain.mtu == *mtu),
        ("plain.routes", old.plain.routes == *routes),
        ("plain.spd", old.plain.spd == *spd),
        ("wire.backend", (old.wire.backend, old.wire.fast_path) == (*wire_backend, *fast_path)),
        ("wire.interface", old.wire.interface == *wire_interface),
        ("wire.udp_port", old.wire.udp_port == *udp_port),
        ("wire.mtu", old.wire.mtu == *wire_mtu),
        ("workers", old.workers == *workers),
        ("crypto.engine", old.crypto == *crypto),
        ("crypto.balance", old.shared_work.balance == *balance),
        ("crypto.budget_us", old.shared_work.budget == *budget),
        ("crypto.verify_every", old.verify_every == *verify_every),
        ("capture", old.capture == *capture),
        ("leak_protection", old.leak_protection == *leak_protection),
        // Those of sockets, of packets and of flows would not change in one step.
        ("marks", old.marks == *marks),
        // Sockets are opened at the start.
        ("the first SA with UDP encapsulation", old.uses_udp() || !new.uses_udp()),
        ("the first SA of AH", old.uses_ah() || !new.uses_ah()),
        ("the first SA without encapsulation", old.uses_native_esp() || !new.uses_native_esp()),
    ];
    let mut differ: Vec<_> =
        all.into_iter().filter(|(_, same)| !same).map(|(name, _)| name.to_owned()).collect();
    for sa in new.associations() {
        if keys.any(&sa.key).is_some_and(|before| before.worker != sa.worker) {
            differ.push(format!("sa[{}].worker", sa.name));
        }
    }
    differ
}
