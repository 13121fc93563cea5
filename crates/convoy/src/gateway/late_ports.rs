//! UDP ports that somebody else held when the gateway started: they are opened as soon as they are free.
//!
//! Until then SAs without UDP encapsulation work; packets of others are dropped.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};

use convoy_control::site::Site;
use convoy_io::IoError;
use convoy_io::pcap::Recorder;
use convoy_io::udp::Steering;
use convoy_runtime::{WirePort, WiringError};

use super::holder::Transport;
use super::port_wait::PortWait;
use super::ports::{self, UdpPorts};

/// True if somebody else has what was to be opened.
pub(super) fn is_held(error: &IoError) -> bool {
    matches!(error, IoError::Setup { source, .. } if source.kind() == ErrorKind::AddrInUse)
}

/// UDP ports that the gateway waits for.
#[derive(Debug, Default)]
pub(super) struct LatePorts {
    waits: Vec<PortWait>,
    /// True if sockets bear the gateway's mark.
    is_marked: bool,
}

impl LatePorts {
    /// Waits for none so far. Sockets will bear the gateway's mark if `is_marked`.
    pub(super) const fn new(is_marked: bool) -> Self {
        Self { waits: Vec::new(), is_marked }
    }

    /// Waits for one, which could not be had for this reason.
    pub(super) fn wait(&mut self, at: SocketAddr, error: &IoError) {
        let missing = "packets of SAs with UDP encapsulation are dropped";
        let mut wait = PortWait::new(missing, Transport::Udp, at);
        failed(&mut wait, error);
        self.waits.push(wait);
    }

    /// True if it waits for this one.
    pub(super) fn waits_for(&self, at: SocketAddr) -> bool {
        self.waits.iter().any(|wait| wait.at() == at)
    }

    /// Tries again; `add` gets the ports of all workers of what can be had now.
    pub(super) fn retry(
        &mut self,
        site: &Site,
        recorder: Option<&Recorder>,
        mut add: impl FnMut(Vec<WirePort>, Option<Steering>) -> Result<(), WiringError>,
    ) {
        let is_marked = self.is_marked;
        self.waits.retain_mut(|wait| {
            let local: IpAddr = wait.at().ip();
            let opened = match ports::open_udp(local, site, is_marked) {
                Ok(opened) => opened,
                Err(error) => {
                    failed(wait, &error);
                    return true;
                }
            };
            let UdpPorts { carries, ports, steering } = opened;
            match add(ports::wire(carries, ports, recorder), steering) {
                Ok(()) => wait.done("packets of SAs with UDP encapsulation pass"),
                Err(error) => wait.failed(ErrorKind::Other, &error),
            }
            wait.reason().is_some()
        });
    }

    /// Causes of its waiting, in words.
    pub(super) fn reasons(&self) -> impl Iterator<Item = &str> {
        self.waits.iter().filter_map(PortWait::reason)
    }
}

fn failed(wait: &mut PortWait, error: &IoError) {
    let kind = match error {
        IoError::Setup { source, .. } => source.kind(),
        _ => ErrorKind::Other,
    };
    wait.failed(kind, error);
}
