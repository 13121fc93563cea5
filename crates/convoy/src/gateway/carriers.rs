//! Carriers of interfaces for daemons' SAs. A gateway that is killed leaves them without one, and routing daemons take
//! their routes away, unless somebody has a queue of each: the service manager keeps one that takes no packets, from the
//! first run of a gateway to the last.

use std::thread;
use std::time::Duration;

use convoy_control::site::Site;
use convoy_host::{LinkName, Network};
use convoy_io::handed_over;
use convoy_io::tun::Parked;

use super::rights;
use crate::exit::describe;
use crate::service_manager::ServiceManager;

/// Number of looks whether what was let go has lost its carrier, and the pause between two.
const LOOKS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

/// Queues that the service manager keeps.
#[derive(Debug, Default)]
pub struct Carriers {
    /// From an earlier run.
    kept: Vec<Parked>,
    /// Interfaces that are to have one.
    wanted: Vec<String>,
}

/// Name of a descriptor in the service manager's store.
fn name_of(interface: &str) -> String {
    format!("tun-{interface}")
}

impl Carriers {
    /// Takes over what an earlier run had kept, and lets go of what the site names no more.
    pub(crate) fn take_over(site: &Site, manager: &ServiceManager) -> Self {
        let wanted: Vec<_> =
            site.xfrm_interfaces().iter().map(|interface| interface.name.clone()).collect();
        let mut kept: Vec<Parked> = Vec::new();
        for (name, descriptor) in handed_over() {
            match Parked::of(descriptor) {
                Some(one)
                    if wanted.iter().any(|it| it == one.name()) && name == name_of(one.name()) =>
                {
                    // Of two copies one is enough.
                    if kept.iter().all(|it| it.name() != one.name()) {
                        kept.push(one);
                    }
                }
                other => {
                    manager.let_go(&name);
                    other.into_iter().for_each(wait_without_carrier);
                }
            }
        }
        Self { kept, wanted }
    }

    /// Number of such queues that an interface has.
    pub(super) fn of(&self, interface: &str) -> u16 {
        u16::from(self.kept.iter().any(|one| one.name() == interface))
    }

    /// Has the service manager keep a queue of each interface. To be called when they are open, and before rights are
    /// given up.
    pub(crate) fn keep(self, manager: &ServiceManager) {
        for interface in self.wanted.iter().filter(|name| manager.is_there() && self.of(name) == 0)
        {
            match Parked::open(interface).map_err(|e| rights::explain(e, rights::Need::Tunnel)) {
                Ok(parked) => manager.keep(&name_of(interface), std::os::fd::AsFd::as_fd(&parked)),
                Err(error) => tracing::warn!(
                    "interface {interface} loses its carrier when this gateway is killed: {}",
                    describe(&error)
                ),
            }
        }
    }
}

/// Waits for a while until an interface whose last queue this was has no carrier: then it can be removed.
fn wait_without_carrier(last: Parked) {
    let Ok(link) = LinkName::new(last.name()) else { return };
    drop(last);
    for _ in 0..LOOKS {
        let has_one = Network::open().and_then(|mut network| network.link(&link));
        if !has_one.is_ok_and(|link| link.carrier) {
            return;
        }
        thread::sleep(PAUSE);
    }
}
