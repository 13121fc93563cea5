//! Effects of IKE daemons on a running gateway: SAs and policies, leak protection of what they cover, and UDP
//! ports that are shared.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use convoy_control::site::{Site, Xfrm};
use convoy_control::xfrm::{
    Answer, Carried, Client, CoverChange, Earlier, Host, Keep, KeepError, Kernel, LARVAL_SECONDS,
    Moment, PathChange, Setting, Words,
};
use convoy_host::{News, Sysctl};
use convoy_io::IoError;
use convoy_io::udp::{SteerError, Steering, bound_to};
use convoy_ipsec::snapshot::Writer;
use convoy_runtime::{WireId, WirePlace, WirePort, Wiring, WiringError, now};
use convoy_xfrm::{Address, Datagram, Errno, Group, PolicyType, Refusal, Request};

use super::addresses::KnownAddresses;
use super::base::Core;
use super::helper::Helper;
use super::interfaces::{self, Interfaces};
use super::leak_protection::{LeakProtection, PendingChange};
use super::paths::Paths;
use super::ports;
use crate::exit::describe;

/// `UDP_ENCAP_ESPINUDP`; 0 gives a socket back.
const ESP_IN_UDP: u32 = 2;
/// Errors of sockets that are none of XFRM.
pub(super) const EADDRINUSE: Errno = Errno(98);
/// Time that a group of sockets beside a daemon's stays without it, in seconds.
const ALONE_MAX: u32 = 30;
/// Peers whose ways are looked at with the leak protection.
const PEERS_LOOKED_AT: usize = 64;
/// Longest time until workers let go of a group.
pub(super) const LET_GO: Duration = Duration::from_millis(100);

/// This moment.
pub(super) fn moment() -> Moment {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Moment { unix_ns: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX), worker: now() }
}

/// State that daemons have made in a gateway.
#[derive(Debug)]
pub(super) struct Daemons {
    pub(super) kernel: Kernel,
    /// Messages to send as soon as somebody listens: SAs of the previous run that are gone.
    lost: Vec<(Group, Datagram)>,
    /// By the address that they are bound to.
    shared: HashMap<SocketAddr, Shared>,
    wiring: Wiring,
    interfaces: Interfaces,
    /// Interfaces that somebody removed, in words.
    missing: Vec<String>,
    /// The snapshot after which interfaces were last as wide as their SAs.
    fitted: u64,
    /// True if the host's addresses may have changed since directions of SAs were decided.
    are_addresses_new: bool,
}

/// A UDP port that is shared.
#[derive(Debug)]
struct Shared {
    steering: Steering,
    /// The workers' sockets, if they were opened for a daemon.
    beside: Option<WireId>,
    /// For how many seconds it has had no daemon.
    alone: u32,
}

/// A request that was applied.
#[derive(Debug)]
#[must_use = "the answer waits for workers"]
pub(super) struct AppliedRequest {
    /// Answer to whoever asked.
    pub(super) answer: Answer,
    /// The snapshot that every worker is to see before the answer goes out. To be waited for without a lock: a worker
    /// may be stuck.
    pub(super) generation: Option<u64>,
}

impl Daemons {
    /// Databases for the daemons of a gateway whose workers run and whose frames have room for packets of so many bytes,
    /// with what the previous run left.
    pub(super) fn serve(
        core: &mut Core,
        leaks: &mut LeakProtection,
        keep: Option<Keep>,
        shared: Vec<Steering>,
        room: u16,
    ) -> anyhow::Result<Self> {
        let kernel = Kernel::new(
            setting(core),
            core.state().published(),
            Box::new(ThisHost::of(core.state().site(), room)),
        );
        let mut kernel = kernel.context("cannot get random numbers")?;
        let lost = match keep {
            Some(keep) => restore(core, &mut kernel, leaks, keep)?,
            None => Vec::new(),
        };
        let shared = shared
            .into_iter()
            .map(|steering| (steering.local(), Shared { steering, beside: None, alone: 0 }));
        Ok(Self {
            kernel,
            lost,
            shared: shared.collect(),
            wiring: core.take_wiring().context("cannot add ports to workers")?,
            interfaces: Interfaces::default(),
            missing: Vec::new(),
            fitted: 0,
            are_addresses_new: true,
        })
    }

    /// Applies a request. What it changed of SAs is published, and [to be waited for](AppliedRequest) before the answer goes
    /// out. Of policies every worker sees it when this returns, and leak protection follows: what a policy covers
    /// is closed before anybody knows it, and what it does not any more opens when all have forgotten it. What policies
    /// of before answered is forgotten first, and nothing is answered until they have changed.
    ///
    /// # Errors
    /// As a kernel refuses it, or with the kernel's error number where leak protection cannot follow. Nothing has
    /// changed then.
    pub(super) fn apply(
        &mut self,
        core: &mut Core,
        leaks: &mut LeakProtection,
        client: &Client,
        request: Request,
        to: Address,
    ) -> Result<AppliedRequest, Refusal> {
        let Some(change) = self.kernel.cover_change(client, &request, moment())? else {
            let before = self.kernel.generation();
            let carried = self.kernel.execute(core.writer(), client, request, to, moment())?;
            let generation = self.kernel.generation();
            let generation = (generation != before).then_some(generation);
            return Ok(AppliedRequest { answer: carried.answer, generation });
        };
        leaks.pause();
        let outcome = self.change_policies(core, leaks, client, request, to, change);
        leaks.go_on();
        Ok(AppliedRequest { answer: outcome?, generation: None })
    }

    /// Applies a request about policies, and waits for workers to see it.
    fn apply_and_wait(
        &mut self,
        core: &mut Core,
        client: &Client,
        request: Request,
        to: Address,
    ) -> Result<Carried, Refusal> {
        let before = self.kernel.generation();
        let carried = self.kernel.execute(core.writer(), client, request, to, moment())?;
        let generation = self.kernel.generation();
        if generation != before && !core.worker_wait().wait_and_wake_late(generation) {
            tracing::error!(
                "workers have not taken over a change by {} in time: a worker may be stuck",
                client.command
            );
        }
        Ok(carried)
    }

    /// Closes, has the change written down and published, and opens.
    fn change_policies(
        &mut self,
        core: &mut Core,
        leaks: &mut LeakProtection,
        client: &Client,
        request: Request,
        to: Address,
        change: CoverChange,
    ) -> Result<Answer, Refusal> {
        let is_flush = matches!(
            &request,
            Request::FlushPolicy(flush) if flush.policy_type.unwrap_or_default() == PolicyType::Main
        );
        let pending = PendingChange::begin(leaks, change).inspect_err(|refusal| {
            self.kernel.note_refused(client, &request, refusal, moment());
        })?;
        let carried = match self.apply_and_wait(core, client, request, to) {
            Ok(carried) => carried,
            Err(refusal) => {
                pending.undo(leaks);
                return Err(refusal);
            }
        };
        pending.done();
        let Carried { answer, uncovered, .. } = carried;
        leaks.attempt(|leaks| leaks.follow(&[], &uncovered).and_then(|()| leaks.forget()));
        // A daemon that begins may flush before it brings its policies: only one that takes some away
        // again knows what there is.
        if is_flush && !uncovered.is_empty() {
            leaks.attempt(LeakProtection::settle);
            self.kernel.stay_closed(false);
        }
        Ok(answer)
    }

    /// Messages for a daemon that begins to listen to these groups.
    pub(super) fn listens(&mut self, groups: u32) -> Vec<(Group, Datagram)> {
        let (told, kept) =
            std::mem::take(&mut self.lost).into_iter().partition(|(g, _)| g.bit() & groups != 0);
        self.lost = kept;
        told
    }

    /// The orderly end, when no worker runs any more.
    pub(super) fn finish(&mut self, leaks: &LeakProtection) {
        if let Err(error) = self.kernel.finish(leaks.protects_own()) {
            tracing::warn!(%error, "cannot finish the state folder of [xfrm]: the next start restores SAs as \
                                    after a crash");
        }
    }

    /// Workers, to which ports are added.
    pub(super) fn wiring(&mut self) -> &mut Wiring {
        &mut self.wiring
    }

    /// Shares a UDP port, which was somebody else's until now.
    ///
    /// # Errors
    /// Fails if workers take no more ports.
    pub(super) fn share(
        &mut self,
        ports: Vec<WirePort>,
        steering: Steering,
    ) -> Result<(), WiringError> {
        self.wiring.add(ports, WirePlace::Last)?;
        self.shared.insert(steering.local(), Shared { steering, beside: None, alone: 0 });
        Ok(())
    }

    /// Shares the UDP socket of a daemon.
    pub(super) fn steer(
        &mut self,
        site: &Site,
        client: &Client,
        socket: &OwnedFd,
        helper: &Helper,
        encap: u32,
    ) -> Result<(), Refusal> {
        if encap != ESP_IN_UDP && encap != 0 {
            let text = "Convoy encapsulates ESP in UDP only (UDP_ENCAP_ESPINUDP)";
            return Err(Refusal::new(Errno::ENOPROTOOPT, text));
        }
        let local = bound_to(socket.as_fd()).map_err(refusal)?;
        if encap == 0 {
            if let Some(shared) = self.shared.get_mut(&local) {
                shared.steering.take_back(socket.as_fd()).map_err(refusal)?;
            }
            return Ok(());
        }
        if local.port() != site.wire.udp_port {
            let text = format!(
                "the socket is bound to {local}, but ESP in UDP arrives at port {0} (wire.udp_port): there is no tunnel \
                 behind a NAT until the daemon's port is {0} (strongSwan: port_nat_t)",
                site.wire.udp_port
            );
            tracing::warn!(
                "cannot share the UDP socket of {} (pid {}): {text}",
                client.command,
                client.pid
            );
            return Err(Refusal::new(Errno::EINVAL, text));
        }
        if let Err(error) = helper.make_shareable(socket.as_fd()) {
            tracing::warn!(
                "cannot share the UDP socket of {} (pid {}): {error}",
                client.command,
                client.pid
            );
            return Err(refusal(error));
        }
        let is_new = !self.shared.contains_key(&local);
        if is_new {
            let (ports, steering) = ports::open_beside(socket.as_fd(), site).map_err(refusal)?;
            let beside = self.wiring.add(ports, WirePlace::OfSource(local.ip()));
            let beside = beside.map_err(|e| Refusal::new(Errno::ENOMEM, e.to_string()))?;
            self.shared.insert(local, Shared { steering, beside: Some(beside), alone: 0 });
        }
        let Some(shared) = self.shared.get_mut(&local) else { return Ok(()) };
        if let Err(error) = shared.steering.give(socket.as_fd()) {
            tracing::warn!(
                "cannot share the UDP socket of {} (pid {}): {error}",
                client.command,
                client.pid
            );
            // Sockets beside nobody's would keep IKE from whoever binds there.
            if is_new && let Some(gone) = self.shared.remove(&local) {
                let _ = gone.beside.map(|id| self.wiring.remove(id, LET_GO));
            }
            return Err(refusal(error));
        }
        tracing::info!(
            "{} (pid {}) shares its UDP socket {local} with the gateway",
            client.command,
            client.pid
        );
        Ok(())
    }

    /// Takes over what has changed of this host's interfaces and addresses.
    pub(super) fn follow_host(&mut self, site: &Site, news: News) {
        if news.links && !site.xfrm_interfaces().is_empty() {
            self.missing = interfaces::missing(site).unwrap_or_default();
        }
        self.are_addresses_new |= news.routes || news.links;
    }

    /// Has SAs follow the routes to their peers.
    pub(super) fn follow_paths(&mut self, core: &mut Core) {
        let wire_mtu = core.state().wire_mtu();
        let changes = self.kernel.follow_paths(core.writer(), wire_mtu);
        let Some((PathChange { peer, before, now }, others)) = changes.split_first() else {
            return;
        };
        core.wake();
        let likewise = match others.len() {
            0 => String::new(),
            count => format!(" (and those to {count} other peers)"),
        };
        tracing::info!("path MTU to {peer} changed from {before} to {now} bytes{likewise}");
    }

    /// Peers of SAs, some of them if they are many.
    pub(super) fn peers(&self) -> Vec<IpAddr> {
        self.kernel.peers(PEERS_LOOKED_AT)
    }

    /// Decides about SAs whose direction was not known. What is returned is to be told to daemons.
    pub(super) fn review_directions(&mut self, writer: &mut Writer) -> Vec<(Group, Datagram)> {
        let changed = std::mem::take(&mut self.are_addresses_new);
        self.kernel.review_directions(writer, changed, moment())
    }

    /// Makes interfaces as wide as their SAs leave room; the largest inner packet in bytes of those of the plain
    /// interface, if this may be another one than before. To be called about once a second.
    pub(super) fn fit_interfaces(&mut self, site: &Site) -> Option<u16> {
        let generation = self.kernel.generation();
        if generation == self.fitted {
            return None;
        }
        let rooms = self.kernel.rooms();
        match self.interfaces.follow(site, &rooms) {
            Ok(()) => self.fitted = generation,
            Err(error) => tracing::error!(
                "cannot set the MTUs of interfaces of [[xfrm.interface]]: {}",
                describe(&error)
            ),
        }
        rooms.get(&0).copied()
    }

    /// Faults of what daemons made, in words.
    pub(super) fn troubles(&self) -> impl Iterator<Item = String> + '_ {
        let kept = self.kernel.keep_failure();
        let kept = kept.map(|why| {
            format!("SAs of IKE daemons cannot be recorded, so they end with the gateway: {why}")
        });
        self.missing.iter().cloned().chain(kept)
    }

    /// Does the work that falls due with time. To be called about once a second.
    pub(super) fn tick(&mut self) {
        let Self { shared, wiring, .. } = self;
        shared.retain(|local, shared| {
            shared.alone = if shared.steering.has_daemon() { 0 } else { shared.alone + 1 };
            let Some(id) = shared.beside.filter(|_| shared.alone > ALONE_MAX) else { return true };
            tracing::info!(
                "UDP socket {local} is not shared any more: its IKE daemon has closed it"
            );
            // What is not closed by now is closed later.
            let _ = wiring.remove(id, LET_GO);
            false
        });
        wiring.collect();
    }
}

/// The folder that keeps what daemons negotiate; `None` where there is none in memory, and no site file
/// asks for one.
pub(super) fn open_keep(xfrm: &Xfrm) -> anyhow::Result<Option<Keep>> {
    let (path, is_asked_for) = match &xfrm.state {
        Some(path) => (path.clone(), true),
        None => (xfrm.usual_state(), false),
    };
    match Keep::open(&path, |path| Ok(Box::new(Mapped(convoy_io::Words::open(path)?)))) {
        Ok(keep) => Ok(Some(keep)),
        Err(error @ KeepError::NotInMemory(_)) if !is_asked_for => {
            tracing::warn!(
                "SAs of IKE daemons end with the gateway, because they cannot be recorded: {error}"
            );
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Memory of the folder that workers write.
#[derive(Debug)]
struct Mapped(convoy_io::Words);

impl Words for Mapped {
    fn earlier(&self) -> &[[u64; 2]] {
        self.0.earlier()
    }

    fn begin(&mut self) -> io::Result<()> {
        self.0.begin()
    }

    fn pair(&mut self, number: u32) -> io::Result<[&'static AtomicU64; 2]> {
        self.0.pair(number)
    }
}

/// Brings back what the previous run left: workers see it, and leak protection follows. Networks that nobody
/// claims any more are open.
fn restore(
    core: &mut Core,
    kernel: &mut Kernel,
    leaks: &mut LeakProtection,
    keep: Keep,
) -> anyhow::Result<Vec<(Group, Datagram)>> {
    let restored = kernel.keep(core.writer(), keep, moment());
    leaks.follow(&restored.covered, &[])?;
    leaks.forget()?;
    let generation = kernel.generation();
    if generation != 0 && !core.wait_for_workers(generation) {
        tracing::error!(
            "workers have not taken over the restored SAs in time: a worker may be stuck"
        );
    }
    if restored.earlier == Earlier::Damaged {
        tracing::error!(
            "a part of the state of the previous run could not be read: networks that it protected stay \
             blocked until policies name them again"
        );
    }
    if !restored.is_closed {
        leaks.settle()?;
    } else if leaks.has_unclaimed() {
        kernel.stay_closed(true);
    }
    if restored.sas + restored.policies + restored.lost.len() > 0 {
        let gone = restored.lost.len();
        tracing::info!(
            "restored {} SAs and {} policies of the previous run; {gone} SAs could not be restored",
            restored.sas,
            restored.policies
        );
    }
    Ok(restored.lost)
}

fn refusal(error: IoError) -> Refusal {
    let errno = match &error {
        IoError::Steer(SteerError::Taken(_)) => EADDRINUSE,
        _ => Errno::EINVAL,
    };
    Refusal::new(errno, error.to_string())
}

/// The network namespace of the calling thread.
#[derive(Debug)]
struct ThisHost {
    addresses: Mutex<KnownAddresses>,
    paths: Paths,
}

impl ThisHost {
    fn of(site: &Site, room: u16) -> Self {
        let addresses = Mutex::new(KnownAddresses::new(site));
        Self { addresses, paths: Paths::of(site, room) }
    }
}

impl Host for ThisHost {
    fn is_local(&self, address: IpAddr) -> bool {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner).has(address)
    }

    fn mtu_between(&self, source: IpAddr, destination: IpAddr) -> Option<u16> {
        self.paths.mtu(source, destination)
    }

    fn source_for(&self, destination: IpAddr) -> Option<IpAddr> {
        let any: IpAddr = match destination {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        // Connecting chooses a route, and sends nothing.
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect((destination, 1)).ok()?;
        socket.local_addr().ok().map(|address| address.ip())
    }

    fn larval_seconds(&self) -> u64 {
        // A kernel's own is 30; strongSwan sets 165.
        let set = Sysctl::acquire_expires().read().ok().and_then(|text| text.parse().ok());
        set.unwrap_or(LARVAL_SECONDS)
    }
}

/// Settings that SAs and policies of daemons depend on.
fn setting(core: &Core) -> Setting {
    let state = core.state();
    let site = state.site();
    Setting {
        drivers: state.drivers().clone(),
        spd: state.plain_spd(),
        interfaces: state.interface_spds().collect(),
        workers: site.workers.count,
        worker_rules: site.worker_rules.clone(),
        udp_port: site.wire.udp_port,
        wire_mtu: state.wire_mtu(),
        legacy: site.legacy,
    }
}
