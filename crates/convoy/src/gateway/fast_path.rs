//! Native ESP and AH beside sockets: by AF_XDP, or sent by packet sockets while raw sockets receive. That is past the host's
//! network stack, as far as it is faster and passes nothing by that somebody has set up. Sockets stay open and carry all
//! else, and everything while this way is not there.

mod choice;
mod peers;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use convoy_control::site::{Backend, FastPath, Site};
use convoy_control::status;
use convoy_io::link::Board;
use convoy_io::xdp;
use convoy_io::{self as io, Port};
use convoy_ipsec::snapshot::Snapshot;
use convoy_packet::Arena;

use super::direct::{Follower, Following, Means, Served, Side, local_addresses};
use crate::exit::describe;
use choice::Sas;
pub(super) use peers::Peers;

/// Longest wait at the start for a queue that the kernel has not freed yet. A gateway that runs tries again later.
const PATIENCE: Duration = Duration::from_secs(10);
/// Looks after a change of SAs or interfaces, one a second, until the way is open.
const LOOKS: u32 = 15;
/// Looks between two checks of the packet filter where nothing tells of its changes.
const CHECK: u32 = 5;

/// Way of native ESP and AH of a gateway that has sockets.
#[derive(Debug)]
pub(super) struct Way {
    wanted: FastPath,
    running: Option<Running>,
    /// Reason that there is none.
    reason: Option<String>,
    /// Looks that are left, and the state that the last change was seen in.
    looks: u32,
    generation: u64,
    peers: Peers,
    /// Looks until the packet filter is checked again for what this way passes by.
    until_check: u32,
}

#[derive(Debug)]
struct Running {
    interface: String,
    by: By,
    is_dead: Arc<AtomicBool>,
    following: Option<Following>,
}

/// Sockets that carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// AF_XDP, both ways.
    Xdp(xdp::Mode),
    /// Packet sockets send, raw sockets receive.
    Sending,
}

/// Open ports of all workers, and what follows the kernel's tables for them.
pub(super) struct Opened {
    pub(super) ports: Vec<Box<dyn Port>>,
    pub(super) follower: Follower,
}

impl Way {
    /// Chooses at the start, by the SAs of the site, and opens what was chosen.
    ///
    /// # Errors
    /// Fails if AF_XDP must be, and cannot be.
    pub(super) fn at_start(
        site: &Site,
        arena: &'static Arena,
    ) -> anyhow::Result<(Self, Option<Opened>)> {
        let wanted = site.wire.fast_path;
        let mut way = Self {
            wanted,
            running: None,
            reason: None,
            looks: 0,
            generation: 0,
            peers: Peers::default(),
            until_check: CHECK,
        };
        if !way.may_be(site) {
            return Ok((way, None));
        }
        match way.open(site, &Sas::of_site(site), arena, PATIENCE) {
            Ok(opened) => Ok((way, Some(opened))),
            Err(error) if wanted == FastPath::Needed => Err(error),
            Err(error) => {
                way.note(&describe(&error));
                Ok((way, None))
            }
        }
    }

    /// Chooses again when SAs or interfaces have changed. To be called about once a second.
    pub(super) fn look(
        &mut self,
        site: &Site,
        snapshot: &Snapshot,
        generation: u64,
        has_news: bool,
        arena: &'static Arena,
    ) -> Option<Opened> {
        if !self.may_be(site) {
            return None;
        }
        if self.running.is_some() {
            if generation != self.generation {
                self.generation = generation;
                self.peers.set(&Sas::of_snapshot(snapshot).native, mark(site));
            }
            return None;
        }
        if has_news || generation != self.generation {
            self.generation = generation;
            self.looks = LOOKS;
        }
        self.looks = self.looks.checked_sub(1)?;
        match self.open(site, &Sas::of_snapshot(snapshot), arena, Duration::ZERO) {
            Ok(opened) => Some(opened),
            Err(error) => {
                self.note(&describe(&error));
                None
            }
        }
    }

    /// True if the wire side has sockets that it may be beside, and nobody forbids it.
    fn may_be(&self, site: &Site) -> bool {
        site.wire.backend == Backend::Host && self.wanted != FastPath::Off
    }

    fn open(
        &mut self,
        site: &Site,
        sas: &Sas,
        arena: &'static Arena,
        patience: Duration,
    ) -> anyhow::Result<Opened> {
        self.peers.set(&sas.native, mark(site));
        self.until_check = CHECK;
        let by_xdp = Means::Xdp(Some(patience));
        if let (FastPath::Needed, Some(interface)) = (self.wanted, &site.wire.interface) {
            return self.open_by(by_xdp, interface, site, arena);
        }
        let interface = choice::interface(site, sas)?;
        if self.wanted == FastPath::Needed {
            return self.open_by(by_xdp, &interface, site, arena);
        }
        let opened = choice::may_be_xdp(&interface, sas)
            .and_then(|()| self.open_by(by_xdp, &interface, site, arena));
        let why = match opened {
            Ok(opened) => return Ok(opened),
            Err(error) => describe(&error),
        };
        choice::may_send(&interface)?;
        let opened = self.open_by(Means::Sending(mark(site)), &interface, site, arena)?;
        self.reason = Some(why);
        Ok(opened)
    }

    fn open_by(
        &mut self,
        means: Means,
        interface: &str,
        site: &Site,
        arena: &'static Arena,
    ) -> anyhow::Result<Opened> {
        let side = Side::beside(means, interface, served(site), self.peers.clone())?;
        let (board, workers) = (side.board(), site.workers.count);
        let (ports, follower) = side.open(workers, arena)?;
        let by = follower.xdp_mode().map_or(By::Sending, By::Xdp);
        anyhow::ensure!(
            self.wanted == FastPath::Needed || by != By::Xdp(xdp::Mode::Generic),
            "the driver of interface {interface} has no XDP"
        );
        let is_dead = Arc::<AtomicBool>::default();
        let ports = ports.into_iter().map(|port| beside(port, &board, &is_dead));
        let ports = ports.collect::<anyhow::Result<_>>()?;
        match by {
            By::Xdp(mode) => tracing::info!(
                "native ESP and AH go by AF_XDP ({mode}) on interface {interface}, all else by sockets: no capture on that \
                 interface sees them ([capture] in the site file records them; backend = \"socket\" in [wire] turns this off)"
            ),
            By::Sending => tracing::info!(
                "native ESP and AH are sent by packet sockets on interface {interface}: routes of the kernel hold, and rules of \
                 its packet filter do not see them (backend = \"socket\" in [wire] turns this off)"
            ),
        }
        let interface = interface.to_owned();
        self.reason = None;
        self.running = Some(Running { interface, by, is_dead, following: None });
        Ok(Opened { ports, follower })
    }

    fn note(&mut self, reason: &str) {
        if self.reason.as_deref() != Some(reason) {
            tracing::info!("native ESP and AH go by sockets: {reason}");
            self.reason = Some(reason.to_owned());
        }
    }

    /// Begins to follow the kernel's tables.
    ///
    /// # Errors
    /// Fails if there can be no thread.
    pub(super) fn follow(
        &mut self,
        follower: Follower,
        wake: impl Fn() + Send + 'static,
    ) -> anyhow::Result<()> {
        if let Some(running) = &mut self.running {
            running.following = Some(follower.start(wake)?);
        }
        Ok(())
    }

    /// SAs have these local addresses now.
    ///
    /// # Errors
    /// Fails if the ports cannot be told.
    pub(super) fn serve(&self, addresses: &BTreeSet<IpAddr>) -> anyhow::Result<()> {
        let following = self.running.as_ref().and_then(|running| running.following.as_ref());
        following.map_or(Ok(()), |following| following.serve(addresses))
    }

    /// Rules of the packet filter have changed: this way may pass by some of them now.
    pub(super) fn note_rules(&mut self) {
        self.until_check = 0;
    }

    /// True if the way has ended since the last call, which is told. To be called about once a second.
    pub(super) fn has_ended(&mut self) -> bool {
        let is_check = self.until_check == 0;
        self.until_check = if is_check { CHECK } else { self.until_check - 1 };
        let Some(running) = &self.running else { return false };
        let Running { interface, by, is_dead, following } = running;
        let refusal = match by {
            By::Sending if is_check => choice::may_send(interface).err(),
            By::Xdp(_) if is_check && self.wanted == FastPath::Auto => {
                choice::passes_nothing_by(interface).err()
            }
            _ => None,
        };
        let reason = match refusal {
            _ if following.as_ref().and_then(Following::gone).is_some() => {
                format!("interface {interface} was removed")
            }
            _ if is_dead.load(Ordering::Relaxed) => {
                format!("interface {interface} takes no packets in this way any more")
            }
            Some(refusal) => describe(&refusal),
            None => return false,
        };
        is_dead.store(true, Ordering::Relaxed);
        tracing::warn!("native ESP and AH go by sockets from now on: {reason}");
        self.reason = Some(reason);
        self.running = None;
        // Another way may be possible.
        self.looks = LOOKS;
        true
    }

    /// The status of it.
    pub(super) fn status(&self, site: &Site) -> status::Wire {
        let backend = site.wire.backend;
        let word = match (backend, self.wanted) {
            (Backend::Host, FastPath::Auto) => "auto",
            (Backend::Host, FastPath::Off) => "socket",
            (Backend::Host, FastPath::Needed) => Backend::AfXdp.word(),
            (direct, _) => direct.word(),
        };
        let running = self.running.as_ref();
        let native = match (backend, running.map(|running| running.by)) {
            (Backend::Host, None) => "socket",
            (Backend::Host, Some(By::Xdp(_))) => Backend::AfXdp.word(),
            (Backend::Host, Some(By::Sending)) => Backend::AfPacket.word(),
            (direct, _) => direct.word(),
        };
        let mode = |running: &Running| match running.by {
            By::Xdp(mode) => mode.to_string(),
            By::Sending => "sending".to_owned(),
        };
        let interface = running.map(|running| running.interface.clone());
        status::Wire {
            backend: word.to_owned(),
            native: native.to_owned(),
            has_sockets: backend == Backend::Host,
            interface: interface.or_else(|| site.wire.interface.clone()),
            mode: running.map(mode),
            reason: self.reason.clone(),
        }
    }

    /// True if there is such a way.
    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }
}

fn beside(
    port: Box<dyn Port>,
    board: &Arc<Board>,
    is_dead: &Arc<AtomicBool>,
) -> anyhow::Result<Box<dyn Port>> {
    let path = io::FastPath::new(port, Arc::clone(board), Arc::clone(is_dead))?;
    Ok(Box::new(path))
}

/// Mark of the sockets' packets.
fn mark(site: &Site) -> Option<u32> {
    site.leak_protection.then_some(site.marks.exempt.value)
}

/// IKE daemons bring SAs of any address of the host.
fn served(site: &Site) -> Served {
    match site.xfrm {
        Some(_) => Served::Host,
        None => Served::Sas(local_addresses(site).into_iter().collect()),
    }
}
