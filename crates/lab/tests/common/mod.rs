//! What the tests share.

#![allow(dead_code, reason = "not every test uses everything")]
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::{sync::atomic::AtomicBool, time::Duration};

use convoy_lab::{Family, Namespace, Topology, TopologyConfig};

pub(crate) const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// A flag nobody sets.
pub(crate) static NEVER: AtomicBool = AtomicBool::new(false);

/// Whether this process may make namespaces; says so loudly when not.
pub(crate) fn permitted() -> bool {
    match Namespace::anonymous() {
        Ok(_) => true,
        Err(error) => {
            println!("SKIPPED: {error}");
            false
        }
    }
}

/// A topology without names, so that tests do not meet.
pub(crate) fn nameless() -> TopologyConfig {
    TopologyConfig { named: false, ..TopologyConfig::default() }
}

pub(crate) fn build(config: &TopologyConfig) -> Topology {
    Topology::build(config).unwrap()
}

pub(crate) fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}
