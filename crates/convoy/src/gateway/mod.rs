//! A running gateway: state, workers, ports, and what it changed on the host.

mod addresses;
mod base;
mod carriers;
mod clamp;
mod connections;
mod daemons;
pub(crate) mod devices;
mod direct;
mod fast_path;
mod floods;
mod helper;
mod holder;
mod interfaces;
mod late_ports;
mod leak_protection;
mod live;
mod metrics;
mod on_change;
mod open;
mod own_networks;
mod paths;
mod plan;
mod port_wait;
mod ports;
mod recheck;
mod rights;
mod routes;
mod trace;
mod tun_state;
mod unusable;
mod verdicts;
mod width;
mod worker_wait;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use convoy_control::protocol::DriverSetting;
use convoy_control::site::{BetweenTunnels, Site, Warning};
use convoy_control::state::ReloadReport;
use convoy_control::status::{self, Confinement, LeakProtection as LeakProtectionReport};
use convoy_control::trace::{HostWay, Question};
use convoy_control::xfrm::{Client, Cursor, Kernel, Told};
use convoy_host::{Applied, Change, Clamp, HostError, LinkName, Network, News, Plan, Watch};
use convoy_io::pcap::Recorder;
use convoy_io::tun::Device;
use convoy_io::udp::bound_to;
use convoy_ipsec::event::Event;
use convoy_ipsec::sa::WorkerId;
use convoy_packet::Arena;
use convoy_runtime::{Events, WireId, WireMatch, WirePlace, Wiring, WorkerStats};
use convoy_wire::{FlowKey, Prefix};
use convoy_xfrm::{Address, Datagram, Errno, Group, Refusal, Request};
use scopeguard::ScopeGuard;

use addresses::{Addresses, Sources};
use connections::Lookout;
use daemons::{AppliedRequest, Daemons, EADDRINUSE, LET_GO, moment};
use direct::{Following, Side};
use fast_path::{Opened as FastPathPorts, Way};
use floods::Floods;
use late_ports::LatePorts;
use leak_protection::LeakProtection;
use on_change::OnChange;
use own_networks::OwnNetworks;
use ports::{Opened, Sides};
use recheck::Recheck;
use routes::{missing_routes, routes};
use width::Widths;

pub use base::{Core, EngineTold, HostMedium, Medium, Prepared};
pub use carriers::Carriers;
pub(crate) use connections::{NEARLY_FULL, nearly_full};
pub use helper::Helper;
pub(crate) use helper::serve as serve_as_helper;
pub use interfaces::Absent;
pub use leak_protection::{
    configured, describe_protection, past_interface, unprotectable, will_ask,
};
pub use live::Live;
pub use metrics::Metrics;
pub use open::{Opened as OpenedHost, Unprotected, open};
pub use plan::{loops, missing_cpus, plain_mtu, plan, wire_mtu};
pub use ports::{Socket, describe_wire, sockets};
pub use unusable::{
    absent_here, enter_namespace, lost_state, notes_here, refuse, unusable, unusable_here,
};

use crate::exit::{Stop, describe};
use crate::privileges::Programs;

/// Reads a site file; its errors end the process with exit code 2.
///
/// # Errors
/// Everything that is wrong with the file.
pub fn load(path: &Path) -> anyhow::Result<(Site, Vec<Warning>)> {
    Site::load(path).map_err(|errors| Stop::usage(format!("the site file is not usable\n{errors}")))
}

/// Reads what [`open()`] needs of a site file; its errors end the process with exit code 2.
///
/// # Errors
/// Everything that is wrong with that part of the file.
pub fn load_to_open(path: &Path) -> anyhow::Result<Site> {
    let site = Site::load_to_open(path);
    site.map_err(|errors| Stop::usage(format!("the site file is not usable\n{errors}")))
}

/// Reason for the end of SAs that two machines have.
const IS_COPY: &str =
    "this virtual machine was resumed from a snapshot or cloned (its generation changed)";

/// A gateway between a plain and a wire side of this host.
#[derive(Debug)]
pub struct Gateway {
    core: Core,
    /// Follow the kernel's tables for sides that are direct.
    following: Vec<Following>,
    /// Native ESP and AH beside sockets, and its ports if they were added to workers.
    fast_path: Way,
    fast_path_ports: Option<WireId>,
    arena: &'static Arena,
    /// Taken back in this order: routes first, so that nothing more comes.
    routes: BTreeMap<Prefix, Applied>,
    /// Somebody may have removed some of them.
    routes_recheck: Recheck,
    /// Hears of the host's interfaces and addresses.
    watch: Watch,
    addresses: Addresses,
    sources: Sources,
    own_networks: OwnNetworks,
    widths: Widths,
    /// Routes to peers may take packets of another size.
    paths_recheck: Recheck,
    /// State that IKE daemons made, if they are served.
    daemons: Option<Daemons>,
    /// Keeps what policies of the site, and of daemons, protect from leaving in clear.
    leaks: LeakProtection,
    /// Drops in the kernel what no SA takes.
    floods: Floods,
    /// UDP ports that somebody else has, and what brings them to the workers where no daemons are served.
    late: LatePorts,
    wiring: Option<Wiring>,
    /// There until the end.
    clamp: Option<Clamp>,
    interface_changes: Applied,
    made: Made,
    interface: String,
    sockets: Vec<Socket>,
    recorder: Option<Recorder>,
    started: Instant,
    /// Reason for which it may not hear that its machine is a copy, if so.
    deaf: Option<String>,
    helper: Helper,
    /// Limits that hold it, once it has given up what only the start needed.
    confinement: Option<Confinement>,
}

/// The TUN interface, if there is one: somebody may remove it.
#[derive(Debug)]
struct Made {
    device: Option<Device>,
    /// Settings that it gets when it is made.
    plan: Plan,
    /// It is gone and cannot be made again.
    lost: Option<String>,
    /// Fault of the one that is there, in words.
    trouble: OnChange<Option<String>>,
}

/// Carries out plans: some of which nothing is taken back, and one that the end of the gateway takes back.
fn applied(to_stay: &[&Plan], plan: &Plan) -> Result<Applied, HostError> {
    for stays in to_stay {
        stays.apply()?.leave();
    }
    plan.apply()
}

/// Stops the workers of a start that failed. Why it failed is the caller's to tell, and not what follows from that.
fn stop_after_failure(core: Core) {
    if let Err(error) = core.stop() {
        tracing::warn!(
            "cannot end the workers in order after a failed start: {}",
            describe(&error)
        );
    }
}

/// Use of a host's interfaces.
fn host_medium(site: &Site, sides: &mut Sides) -> anyhow::Result<HostMedium> {
    Ok(HostMedium {
        widest: paths::widest(site),
        is_plain_direct: sides.plain.is_some(),
        plain_mtu: sides.plain.as_ref().map_or(0, Side::mtu),
        is_wire_direct: sides.wire.is_some(),
        plain_addresses: match &mut sides.plain {
            Some(side) => side.addresses()?,
            None => Vec::new(),
        },
    })
}

impl Gateway {
    /// Starts everything, in the calling thread's network namespace. Traffic can flow when this
    /// returns. The steps, each of which, but for leak protection, is taken back if a later one fails:
    ///
    /// 1. the plan of what changes on this host, which finds most of what can be wrong, and changes nothing;
    /// 2. the session store of IKE daemons, so that no second gateway takes up the same SAs;
    /// 3. leak protection of IKE daemons' policies, so that what was closed stays so;
    /// 4. state: leases of sequence numbers, and the first snapshot;
    /// 5. leak protection of the site's own policies, before there is an interface;
    /// 6. ports, and the workers on them;
    /// 7. addresses of interfaces, and interfaces for SAs of IKE daemons;
    /// 8. the XFRM database for IKE daemons, with the SAs of the previous run;
    /// 9. routes, which bring the first packets.
    ///
    /// `helper` changes owners of daemons' sockets; `carriers` are queues of interfaces that somebody keeps; `alarm` is called from the thread of a worker that
    /// fails.
    ///
    /// # Errors
    /// The failure; everything done until then is taken back, but for leak protection, which stays.
    pub fn start(
        site: Site,
        helper: Helper,
        carriers: &Carriers,
        alarm: impl Fn(WorkerId) + Clone + Send + 'static,
    ) -> anyhow::Result<Self> {
        let wire_mtu = wire_mtu(&site);
        // Before anything is changed: this finds most of what can be wrong.
        let changes = plan(&site, &site.plain.interface, wire_mtu)?;
        let for_interfaces = interfaces::plan(&site, wire_mtu)?;
        let beside = plan::beside(&site, wire_mtu)?;
        refuse(&unusable(&site))?;
        plan::crowded(&site).iter().for_each(|crowded| tracing::warn!("{crowded}"));
        // Held from here on, so that two gateways do not take up the same SAs.
        let keep = site.xfrm.as_ref().map(daemons::open_keep).transpose()?.flatten();
        // What the previous run of a gateway for daemons left closed stays so from here on.
        let leaks = site.xfrm.as_ref().map(|_| LeakProtection::install(&site)).transpose()?;
        // Before the first look around, so that no change is missed.
        let watch = Watch::open()?;
        let mut sides = Sides::new(&site)?;
        if let Some(missing) = absent_here(&site).first() {
            anyhow::bail!("{missing}");
        }
        let medium = Medium::Host(host_medium(&site, &mut sides)?);
        // Their addresses and routes may be those of others now.
        interfaces::remove_unnamed(&site);
        let mut prepared =
            scopeguard::guard(Prepared::new(site, wire_mtu, medium)?, Prepared::abandon);
        // Before there is a TUN interface, but not on behalf of a second gateway of the same state folder.
        let own_networks = OwnNetworks::of(&mut prepared)?;
        let state = prepared.state();
        let mut leaks = leaks.map_or_else(|| LeakProtection::install(state.site()), Ok)?;
        leaks.serve(state.site(), state.published(), state.plain_spd())?;
        let serves_daemons = state.site().xfrm.is_some();
        let is_marked = leaks.is_installed();
        let arena = prepared.arena();
        let widths = Widths::open(arena.frame_size().largest_packet())?;
        let floods = Floods::new();
        floods.follow(prepared.writer());
        let filter = floods.filter();
        let site = prepared.state().site();
        let opened = ports::open(site, sides, arena, is_marked, carriers, filter.as_ref())?;
        let Opened {
            workers,
            interface,
            device,
            sockets,
            recorder,
            followers,
            fast_path: (mut fast_path, fast_path_follower),
            shared,
            late,
        } = opened;
        let is_route = |change: &&Change| matches!(change, Change::Route(_));
        let interface_plan: Plan =
            changes.changes().iter().filter(|c| !is_route(c)).cloned().collect();
        // In front of the workers, which a start that fails from here on ends before it takes these back.
        let (interface_changes, daemons);
        let mut following = Vec::new();
        let core = ScopeGuard::into_inner(prepared).start(workers, alarm)?;
        let mut core = scopeguard::guard(core, stop_after_failure);
        // Routes of others lead to these: they stay as they are.
        interface_changes = applied(&[&for_interfaces, &beside], &interface_plan)?;
        // Behind these: an interface that is down takes no routes.
        daemons = match serves_daemons {
            true => Some(Daemons::serve(&mut core, &mut leaks, keep, shared, widths.room())?),
            false => None,
        };
        let wiring = if serves_daemons { None } else { core.take_wiring() };
        let clamp = clamp::clamp(core.state().site());
        for follower in followers {
            following.push(follower.start(core.waker())?);
        }
        if let Some(follower) = fast_path_follower {
            fast_path.follow(follower, core.waker())?;
        }
        Self {
            core: ScopeGuard::into_inner(core),
            following,
            fast_path,
            fast_path_ports: None,
            arena,
            routes: BTreeMap::new(),
            routes_recheck: Recheck::default(),
            watch,
            addresses: Addresses::default(),
            sources: Sources::default(),
            own_networks,
            widths,
            paths_recheck: Recheck::default(),
            daemons,
            leaks,
            floods,
            late,
            wiring,
            clamp,
            interface_changes,
            made: Made {
                device,
                plan: if beside.changes().is_empty() { interface_plan } else { beside },
                lost: None,
                trouble: OnChange::default(),
            },
            interface,
            sockets,
            recorder,
            started: Instant::now(),
            deaf: None,
            helper,
            confinement: None,
        }
        .with_routes()
    }

    /// As [`Gateway::stop`], for a start that failed: what goes wrong then is told in the log alone.
    pub fn stop_after_failure(self) {
        if let Err(error) = self.stop() {
            tracing::warn!("cannot end in order after a failed start: {}", describe(&error));
        }
    }

    /// Does what takes an interface that is up.
    fn with_routes(self) -> anyhow::Result<Self> {
        let mut this = scopeguard::guard(self, Self::stop_after_failure);
        if let Err(error) = this.fit_segments(true) {
            tracing::warn!(
                "cannot clamp the MSS of TCP connections to the MTU of tunnels: {}",
                describe(&error)
            );
        }
        this.lay_routes()?;
        this.follow_sources(true);
        // The TUN interface has its addresses only now.
        this.own_networks.look_again();
        this.follow_own_networks(true);
        Ok(ScopeGuard::into_inner(this))
    }

    /// Lays the routes into the TUN interface that the site in force wants, or has the leak protection do so.
    fn lay_routes(&mut self) -> anyhow::Result<()> {
        let wanted = self.wanted_routes();
        for network in wanted {
            if !self.routes.contains_key(&network) {
                self.add_route(network)?;
            }
        }
        self.leaks.lead()
    }

    /// Routes that the gateway lays itself. Where daemons are served, marks lead, and leak protection lays those that the
    /// host chooses sources by.
    fn wanted_routes(&self) -> BTreeSet<Prefix> {
        if self.leaks.lays_routes() {
            return BTreeSet::new();
        }
        routes(self.core.state().site()).into_iter().collect()
    }

    /// State and workers.
    #[must_use]
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// State that IKE daemons made, if they are served.
    #[must_use]
    pub fn kernel(&self) -> Option<&Kernel> {
        self.daemons.as_ref().map(|daemons| &daemons.kernel)
    }

    /// Counters that the workers publish.
    #[must_use]
    pub fn stats(&self) -> &[Arc<WorkerStats>] {
        self.core.stats()
    }

    /// Brings what the workers publish up to date when it is called.
    pub fn stats_updater(&self) -> impl Fn() + Send + Sync + 'static {
        self.core.stats_updater()
    }

    /// Messages of the workers; `None` the second time.
    #[must_use]
    pub fn take_events(&mut self) -> Option<Events> {
        self.core.take_events()
    }

    /// Name of the plain interface.
    #[must_use]
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Time at which traffic could first flow.
    #[must_use]
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Brings another site into force; no packet is lost. The steps, of which a failure takes back those before it:
    ///
    /// 1. what needs a restart is refused, and so are routes and addresses that cannot be;
    /// 2. leak protection covers both sites, and workers serve the addresses of both;
    /// 3. what policies answered is void, and questions wait;
    /// 4. the new snapshot is published, with its leases on disk;
    /// 5. leak protection covers the site in force alone, and questions are answered again;
    /// 6. routes, addresses and interface MTUs follow. What fails from here on is logged, and tried again.
    ///
    /// # Errors
    /// Refuses a site that cannot be brought into force as a whole; then nothing has changed.
    pub fn reload(&mut self, site: Site) -> anyhow::Result<ReloadReport> {
        if let Some(name) = ports::unserved(&site, &self.sockets) {
            return Err(unusable::no_socket(&site, &name));
        }
        self.core.state().check_reload(&site).map_err(base::state_error)?;
        // Before anything changes.
        refuse(&unusable(&site))?;
        plan(&site, &self.interface, self.core.state().wire_mtu())?;
        let before = direct::local_addresses(self.core.state().site());
        let after = direct::local_addresses(&site);
        if let Some(missing) = addresses::findings(&site, &(&after - &before)).first() {
            anyhow::bail!("{missing}");
        }
        // However it ends, what the site that is in force then does not protect is open again.
        let mut widened = scopeguard::guard(&mut *self, Self::narrow_leaks);
        widened.leaks.widen(&site)?;
        // First those of both, so that no packet is lost on the way.
        widened
            .serve(&(&before | &after))
            .context("cannot receive packets to the local addresses of SAs")?;
        widened.leaks.void_answers(&site)?;
        // Policies of the new site decide about nothing that the host is to pass on.
        if site.plain.between_tunnels == BetweenTunnels::Host {
            widened.core.send_on(None);
        }
        let report = widened.core.reload(site).map_err(|error| {
            if let Err(error) = widened.serve(&before) {
                tracing::warn!(
                    "the gateway still receives packets to addresses of the refused site: {}",
                    describe(&error)
                );
            }
            base::state_error(error)
        })?;
        widened.set_up_daemons();
        drop(widened);
        if let Err(error) = self.serve(&after) {
            tracing::warn!(
                "the gateway still receives packets to addresses that no SA has any more: {}",
                describe(&error)
            );
        }
        if let Err(error) = self.lay_routes() {
            tracing::error!("cannot lay the routes into {}: {}", self.interface, describe(&error));
        }
        self.take_back_routes();
        // Other SAs end elsewhere, and have other peers.
        self.addresses.follow(self.core.state().site());
        self.follow_sources(true);
        self.widths.look_again();
        self.own_networks.look_again();
        self.follow_own_networks(true);
        Ok(report)
    }

    /// Sets a driver otherwise; SAs that now have another one go on with it, and no packet is lost. Returns
    /// how many these are.
    ///
    /// # Errors
    /// Fails if there is no such driver, or an SA would have none; then nothing has changed.
    pub fn set_driver(&mut self, name: &str, setting: DriverSetting) -> anyhow::Result<usize> {
        let before = self.core.state().drivers().clone();
        let drivers = before.with_setting(name, setting.into())?;
        let of_site = self.core.set_drivers(drivers.clone())?;
        let Some(daemons) = &mut self.daemons else { return Ok(of_site) };
        match daemons.kernel.set_drivers(self.core.writer(), drivers) {
            Ok(of_daemons) => Ok(of_site + of_daemons),
            Err(error) => {
                self.core.set_drivers(before)?;
                anyhow::bail!("SAs of IKE daemons: {error}")
            }
        }
    }

    /// Takes back the routes that the site in force does not want.
    fn take_back_routes(&mut self) {
        let wanted = self.wanted_routes();
        let (kept, gone) = core::mem::take(&mut self.routes)
            .into_iter()
            .partition::<BTreeMap<_, _>, _>(|(network, _)| wanted.contains(network));
        self.routes = kept;
        for error in gone.into_values().filter_map(|route| route.take_back().err()) {
            tracing::warn!(%error, "cannot remove a route");
        }
    }

    /// Has SAs of daemons follow the site in force.
    fn set_up_daemons(&mut self) {
        let Some(daemons) = &mut self.daemons else { return };
        let drivers = self.core.state().drivers().clone();
        if let Err(error) = daemons.kernel.set_drivers(self.core.writer(), drivers) {
            tracing::error!("cannot change the drivers of SAs of IKE daemons: {error}");
        }
        let state = self.core.state();
        daemons.kernel.set_legacy(state.site().legacy);
        daemons.kernel.set_worker_rules(state.site().worker_rules.clone());
    }

    /// Protects from leaking what the site in force says, and no more.
    fn narrow_leaks(&mut self) {
        let state = self.core.state();
        if !self.core.wait_for_workers(state.generation()) {
            tracing::error!(
                "workers have not taken over the policies of the site in time: a worker may be stuck"
            );
        }
        self.leaks.narrow(state.site());
    }

    /// A direct wire side takes packets to these addresses from now on.
    fn serve(&self, addresses: &BTreeSet<IpAddr>) -> anyhow::Result<()> {
        for following in &self.following {
            following.serve(addresses)?;
        }
        self.fast_path.serve(addresses)
    }

    /// Takes over what has changed of this host's interfaces and addresses. To be called about once a
    /// second.
    pub fn follow_host(&mut self) {
        self.mend_interface();
        let (writer, stats) = self.core.writer_and_stats();
        self.floods.look(stats, writer);
        let news = self.watch.news().unwrap_or(News::ALL);
        self.follow_fast_path(news);
        if let Some(daemons) = &mut self.daemons {
            daemons.follow_host(self.core.state().site(), news);
        }
        let peers = || self.daemons.as_ref().map_or_else(Vec::new, Daemons::peers);
        self.leaks.follow_host(news.routes || news.links, peers);
        self.routes_recheck.note(news.routes && !self.routes.is_empty());
        if let Some(began) = self.routes_recheck.begin() {
            self.lay_missing_routes();
            self.routes_recheck.rest(began);
        }
        let look = news.links;
        if look {
            self.addresses.follow(self.core.state().site());
            self.look_at_interface();
        }
        self.follow_sources(look || news.routes);
        self.follow_own_networks(look || news.routes);
        self.paths_recheck.note(look || news.routes);
        let outcome = self.follow_mtus(look).and_then(|()| self.fit_segments(look));
        self.widths.note(outcome.err().map(|error| describe(&error)));
    }

    /// Has native ESP go by an interface where that is possible now, and by sockets where it is not any more.
    fn follow_fast_path(&mut self, news: News) {
        let Self { fast_path, fast_path_ports, daemons, wiring, recorder, core, .. } = self;
        let wiring = daemons.as_mut().map(Daemons::wiring).or(wiring.as_mut());
        let Some(wiring) = wiring else { return };
        if fast_path.has_ended()
            && let Some(id) = fast_path_ports.take()
        {
            // What is not closed by now is closed later. Ports of the start stay, and carry nothing.
            let _ = wiring.remove(id, LET_GO);
        }
        let state = core.state();
        // In this order: a snapshot that comes in between is looked at the next time. IKE daemons' SAs come with it, too.
        let (generation, arena) = (state.published().generation(), self.arena);
        let snapshot = state.published().current();
        let opened =
            fast_path.look(state.site(), &snapshot, generation, news.links || news.routes, arena);
        let Some(FastPathPorts { ports, follower }) = opened else { return };
        let ports = ports::wire(WireMatch::default(), ports, recorder.as_ref());
        let added = wiring.add(ports, WirePlace::First).map_err(anyhow::Error::from);
        let followed = added.and_then(|id| {
            *fast_path_ports = Some(id);
            fast_path.follow(follower, core.waker())
        });
        if let Err(error) = followed {
            tracing::warn!("native ESP and AH go by sockets: {}", describe(&error));
        }
    }

    /// Makes the TUN interface again if somebody removed it. Leak protection holds what it is to carry meanwhile.
    fn mend_interface(&mut self) {
        let gone = self.made.device.as_ref().filter(|device| device.is_gone());
        let Some(device) = gone else { return };
        let name = device.name().to_owned();
        match self.make_interface() {
            Ok(()) => tracing::warn!(
                "interface {name} was removed by another process; made again, with its addresses, its routes \
                 and leak protection. Packets that were in it are lost"
            ),
            Err(error) => {
                tracing::error!(
                    "interface {name} was removed by another process, and cannot be made again: {}",
                    describe(&error)
                );
                self.made.lost = Some(name);
            }
        }
    }

    /// Tells when nothing passes the TUN interface that is there, and when that is put right: what its kernel forgot of
    /// it meanwhile is as it was.
    fn look_at_interface(&mut self) {
        let Some(device) = &self.made.device else { return };
        let trouble = tun_state::trouble(device);
        let is_back = trouble.is_none() && self.made.trouble.get().is_some();
        self.made.trouble.tell(trouble);
        if is_back && let Err(error) = self.set_up_interface() {
            tracing::error!("interface {}: {}", self.interface, describe(&error));
        }
    }

    fn make_interface(&mut self) -> anyhow::Result<()> {
        let Some(device) = &self.made.device else { return Ok(()) };
        device.make_again()?;
        self.set_up_interface()
    }

    /// Gives the TUN interface what it has from the start.
    fn set_up_interface(&mut self) -> anyhow::Result<()> {
        self.made.plan.apply()?.leave();
        self.widths.plain_is_new();
        self.own_networks.look_again();
        self.lay_missing_routes();
        self.lay_routes()
    }

    /// Makes the table of leak protection again, which others changed just now.
    pub(super) fn mend_leaks(&mut self) {
        self.leaks.repair_table();
        self.fast_path.note_rules();
    }

    /// Looks after the packet filter and the table of connections, where there is leak protection.
    pub(super) fn lookout(&self) -> Option<Lookout> {
        self.leaks.lookout()
    }

    /// Has SAs send from addresses of this host alone.
    fn follow_sources(&mut self, changed: bool) {
        self.sources.follow(self.core.state_mut(), changed);
    }

    /// Has the pipelines know which networks are the host's own.
    fn follow_own_networks(&mut self, changed: bool) {
        let Self { own_networks, core, .. } = self;
        if let Some(networks) = own_networks.news(core.state().site(), changed) {
            core.send_on(networks);
        }
    }

    /// Opens UDP ports that somebody else had, as far as they are free now. To be called about once a second.
    pub fn open_late_ports(&mut self) {
        let Self { late, wiring, daemons, recorder, core, .. } = self;
        late.retry(core.state().site(), recorder.as_ref(), |ports, steering| {
            match (&mut *daemons, &mut *wiring, steering) {
                (Some(daemons), _, Some(steering)) => daemons.share(ports, steering),
                (_, Some(wiring), _) => wiring.add(ports, WirePlace::Last).map(drop),
                _ => Ok(()),
            }
        });
    }

    /// Waits until nothing that the gateway has started holds more rights than it needs.
    pub(crate) fn settle_helper(&self) {
        self.helper.settle();
    }

    /// The same for the port of a daemon's socket: perhaps it is this socket that holds it.
    fn open_late_port_of(&mut self, socket: &OwnedFd) -> Result<(), Refusal> {
        let Ok(at) = bound_to(socket.as_fd()) else { return Ok(()) };
        if !self.late.waits_for(at) {
            return Ok(());
        }
        let shareable = self.helper.make_shareable(socket.as_fd());
        shareable.map_err(|error| Refusal::new(Errno::EINVAL, error.to_string()))?;
        self.open_late_ports();
        match self.late.waits_for(at) {
            true => {
                Err(Refusal::new(EADDRINUSE, format!("UDP port {at} is in use by another process")))
            }
            false => Ok(()),
        }
    }

    /// Resources that the gateway can do without and waits for, in words.
    #[must_use]
    pub fn lacking(&self) -> Vec<String> {
        let unknown = self.daemons.iter().filter_map(|d| d.kernel.unknown_directions());
        let ports = self.late.reasons().map(str::to_owned);
        let crowded = plan::crowded(self.core.state().site());
        ports.chain(self.sources.lacking()).chain(unknown).chain(crowded).collect()
    }

    /// Applies what an IKE daemon asks for.
    ///
    /// # Errors
    /// As a kernel refuses it.
    fn serve_daemon(
        &mut self,
        client: &Client,
        request: Request,
        to: Address,
    ) -> Result<AppliedRequest, Refusal> {
        let daemons = self.daemons.as_mut().ok_or(Refusal::bare(Errno::EPROTONOSUPPORT))?;
        daemons.apply(&mut self.core, &mut self.leaks, client, request, to)
    }

    /// The next messages of a dump for an IKE daemon, at most `room`.
    pub fn dump(&mut self, cursor: &mut Cursor, to: Address, room: usize) -> Vec<Datagram> {
        let daemons = self.daemons.as_mut();
        daemons.map_or_else(Vec::new, |d| d.kernel.dump(cursor, to, room, moment()))
    }

    /// Shares an IKE daemon's UDP socket: the ESP that arrives there is the gateway's.
    ///
    /// # Errors
    /// As `setsockopt` would say it.
    pub fn steer(&mut self, client: &Client, socket: &OwnedFd, encap: u32) -> Result<(), Refusal> {
        if encap != 0 {
            self.open_late_port_of(socket)?;
        }
        let daemons = self.daemons.as_mut().ok_or(Refusal::bare(Errno::EPROTONOSUPPORT))?;
        daemons.steer(self.core.state().site(), client, socket, &self.helper, encap)
    }

    /// Messages for an IKE daemon that begins to listen to these groups.
    pub fn listens(&mut self, groups: u32) -> Vec<(Group, Datagram)> {
        self.daemons.as_mut().map_or_else(Vec::new, |daemons| daemons.listens(groups))
    }

    /// Takes over what a worker tells of SAs of daemons.
    pub fn heard(&mut self, event: &Event) -> Told {
        let Some(daemons) = &mut self.daemons else { return Told::NotOurs };
        daemons.kernel.heard(self.core.writer(), event, moment())
    }

    /// Does the work for IKE daemons that falls due with time. To be called about once a second.
    pub fn daemons_tick(&mut self) -> Vec<(Group, Datagram)> {
        let Some(daemons) = &mut self.daemons else { return Vec::new() };
        daemons.tick();
        let state = self.core.state();
        if let Some(room) = daemons.fit_interfaces(state.site()) {
            let outcome = self.widths.fit_daemons(room, state.site(), state.wire_mtu());
            self.widths.note(outcome.err().map(|error| describe(&error)));
        }
        let mut told = daemons.review_directions(self.core.writer());
        told.extend(daemons.kernel.tick(moment()));
        told
    }

    /// Ends all SAs, as this machine is a copy of another one that has them as well: each number that both
    /// use repeats a nonce. Daemons are to hear what this says, and make new SAs.
    pub fn end_sas(&mut self) -> Vec<(Group, Datagram)> {
        self.core.end_sas(IS_COPY);
        let (told, generation) = match &mut self.daemons {
            Some(daemons) => {
                let told = daemons.kernel.end_all(self.core.writer(), moment());
                (told, daemons.kernel.generation())
            }
            None => (Vec::new(), 0),
        };
        let generation = generation.max(self.core.state().generation());
        if !self.core.wait_for_workers(generation) {
            tracing::error!("workers have not ended all SAs in time: a worker may be stuck");
        }
        tracing::error!(
            "{IS_COPY}: all SAs ended, because each sequence number that both machines use repeats a nonce; \
             IKE daemons are told that {} SAs ended, and make new ones: restart them on both machines, since \
             both have their own keys and pending negotiations; replace static keys on both sides (convoy \
             init) and reload",
            told.len()
        );
        if let Err(error) = self.core.state().spend_keys() {
            tracing::error!(
                "cannot record in the state folder that its keys must not be used again; do not start a \
                 gateway with them: {error}"
            );
        }
        told
    }

    /// Has SAs and the TUN interface follow MTUs of interfaces, which may have changed if `look`, and those of routes.
    fn follow_mtus(&mut self, look: bool) -> anyhow::Result<()> {
        let Some(began) = self.paths_recheck.begin() else { return self.follow_own_mtus(look) };
        self.widths.look_again();
        let outcome = self.follow_own_mtus(look);
        if let Some(daemons) = &mut self.daemons {
            daemons.follow_paths(&mut self.core);
        }
        self.paths_recheck.rest(began);
        outcome
    }

    /// The same for the site's own SAs.
    fn follow_own_mtus(&mut self, look: bool) -> anyhow::Result<()> {
        let before = self.core.state().wire_mtu();
        let site = self.core.state().site();
        let Some(mtu) = self.widths.news(site, look)? else {
            // It may be due for another reason.
            return self.widths.set_plain(site, before);
        };
        if self.core.set_wire_mtu(mtu)? {
            tracing::info!("path MTU to the peers changed from {before} to {mtu} bytes");
            self.widths.plain_is_due();
        }
        self.widths.set_plain(self.core.state().site(), mtu)
    }

    /// Has TCP connections through the TUN interface fit its MTU.
    fn fit_segments(&mut self, look: bool) -> anyhow::Result<()> {
        let Some(clamp) = self.clamp.as_mut().filter(|_| look) else { return Ok(()) };
        let link = Network::open()?.link(&LinkName::new(&self.interface)?)?;
        Ok(clamp.fit(link.mtu)?)
    }

    /// Numbers of packets that leak protection has dropped, by name.
    pub fn leak_counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.leaks.counts().into_iter()
    }

    /// Protection of packets from leaving in clear, for `convoy status`.
    pub fn leak_protection(&self) -> LeakProtectionReport {
        self.leaks.report()
    }

    /// Way of a packet that leaves, or comes in in clear, through the host; none for others, and where the gateway forwards
    /// past the host.
    pub(super) fn host_way(&self, question: &Question, flow: FlowKey) -> Option<HostWay> {
        let site = self.core.state().site();
        if question.spi.is_some() || question.if_id != 0 || site.plain.backend.is_direct() {
            return None;
        }
        let snapshot = self.core.state().published().current();
        let protection = self.leaks.trace(&snapshot);
        let of_daemons = site.xfrm_interfaces().iter().map(|interface| interface.name.as_str());
        let interfaces: Vec<_> = [self.interface.as_str()].into_iter().chain(of_daemons).collect();
        Some(trace::host_way(protection.as_ref(), &interfaces, question, flow))
    }

    /// The identifier of the interface that a packet is routed into, if that is one of an `if_id`.
    pub(super) fn if_id_entered(&self, way: &HostWay) -> Option<u32> {
        let link = &way.route.as_ref()?.link;
        let mut interfaces = self.core.state().site().xfrm_interfaces().iter();
        interfaces.find(|interface| interface.name == *link).map(|interface| interface.if_id)
    }

    /// Keeps in mind that copies of this machine may go unnoticed, and why.
    pub fn note_deaf(&mut self, why: &[String]) {
        self.deaf = Some(format!(
            "snapshots and clones of this virtual machine may not be detected: {}; let the gateway read \
             /dev/kmsg",
            why.join("; ")
        ));
    }

    /// Remembers what holds the gateway.
    pub(crate) fn note_confinement(&mut self, confinement: Confinement) {
        self.confinement = Some(confinement);
    }

    /// Input and output of protected packets.
    #[must_use]
    pub(crate) fn wire(&self) -> status::Wire {
        self.fast_path.status(self.core.state().site())
    }

    /// Use of the kernel's programs from now on.
    pub(crate) fn programs(&self) -> Programs {
        match self.fast_path.is_running() {
            true => Programs::Changing,
            false => Programs::of(self.core.state().site()),
        }
    }

    /// Limits that hold somebody who has taken the gateway over.
    #[must_use]
    pub fn confinement(&self) -> Option<Confinement> {
        self.confinement.clone()
    }

    /// Faults of interfaces, addresses and routes at present, and of the machine, in words.
    #[must_use]
    pub fn troubles(&self) -> Vec<String> {
        let interfaces = self.following.iter().filter_map(Following::trouble);
        let made = self.made.trouble.get().clone();
        let daemons = self.daemons.iter().flat_map(Daemons::troubles);
        let spent = self.core.state().spent();
        let spent = spent.map(|why| format!("{why}, so SAs ended: write new keys on both sides"));
        let machine = spent.into_iter().chain(self.deaf.clone());
        let engine = self.core.engine_trouble();
        interfaces
            .chain(made)
            .chain(self.addresses.troubles())
            .chain(self.own_networks.trouble())
            .chain(self.leaks.troubles())
            .chain(daemons)
            .chain(machine)
            .chain(engine)
            .collect()
    }

    /// An interface that does not exist any more, if the gateway needs it.
    #[must_use]
    pub fn gone(&self) -> Option<&str> {
        self.following.iter().find_map(Following::gone).or(self.made.lost.as_deref())
    }

    fn add_route(&mut self, network: Prefix) -> anyhow::Result<()> {
        let link = LinkName::new(&self.interface)?;
        let route = plan::route(self.core.state().site(), network, link)?;
        let before = self.routes.insert(network, Plan::from_iter([route]).apply()?);
        // It is gone: there is nothing to take back.
        if let Some(before) = before {
            before.leave();
        }
        Ok(())
    }

    /// Lays routes that others took away, as a routing daemon does that begins anew.
    fn lay_missing_routes(&mut self) {
        let missing = match missing_routes(&self.interface, self.routes.keys()) {
            Ok(missing) => missing,
            Err(error) => {
                return tracing::warn!("cannot read the routes into {}: {error}", self.interface);
            }
        };
        for network in missing {
            match self.add_route(network) {
                Ok(()) => tracing::warn!(
                    "the route to {network} was removed by another process; added again"
                ),
                Err(error) => {
                    tracing::error!("cannot add the route to {network} again: {}", describe(&error))
                }
            }
        }
    }

    /// Ends the gateway: takes the routes back, lets what is under way go through, and leaves the
    /// host as it was.
    ///
    /// # Errors
    /// The first thing that went wrong; the rest is done all the same.
    pub fn stop(self) -> anyhow::Result<()> {
        let Self {
            core,
            mut daemons,
            leaks,
            following,
            fast_path,
            routes,
            widths,
            interface_changes,
            made,
            recorder,
            ..
        } = self;
        let mut outcome = Ok(());
        let note = |result: Result<(), HostError>| {
            if let Err(error) = result {
                tracing::warn!(%error, "cannot undo a change of this host");
            }
        };
        routes.into_values().for_each(|route| note(route.take_back()));
        interfaces::tell_left(core.state().site());
        match (core.stop(), &mut daemons) {
            (Err(error), _) => outcome = Err(error),
            (Ok(()), Some(daemons)) => daemons.finish(&leaks),
            (Ok(()), None) => {}
        }
        drop(following);
        drop(fast_path);
        drop(daemons);
        drop(made);
        // A TUN interface is gone with its descriptors; what was on it counts as taken back.
        note(widths.take_back());
        note(interface_changes.take_back());
        drop(recorder);
        drop(leaks);
        outcome
    }
}
