//! Parts that the tests share.

#![allow(dead_code, reason = "not every test uses everything")]

use std::{
    io::Write as _,
    sync::{Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use convoy_lab::{Family, Namespace, Topology, TopologyConfig};

pub(crate) const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// A flag nobody sets.
pub(crate) static NEVER: AtomicBool = AtomicBool::new(false);

static ALONE: Mutex<()> = Mutex::new(());

/// The right to run alone, if this process may make namespaces at all; says so loudly when not.
/// Streams at full speed take all processors, and tests that wait for answers would wait in vain.
pub(crate) fn alone() -> Option<MutexGuard<'static, ()>> {
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    match Namespace::anonymous() {
        Ok(_) => Some(guard),
        Err(error) => {
            // Past the harness, which would keep it from being seen.
            let _ = writeln!(std::io::stderr(), "SKIPPED: {error}");
            None
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
