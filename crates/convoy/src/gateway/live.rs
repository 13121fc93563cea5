//! A running gateway as the control socket sees it.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use convoy_control::event::describe as describe_event;
use convoy_control::metrics::{self, Load, Tunnels};
use convoy_control::protocol::DriverSetting;
use convoy_control::server;
use convoy_control::site::CryptoEngine;
use convoy_control::state::ReloadReport;
use convoy_control::status::{
    Attached, CryptoReport, DriverChange, Inputs, Level, NamedCount, PolicyReport, SCHEMA,
    SaReport, Sampler, Status, Text as _, crypto_report, driver_status, observe, policy_report,
    sa_report,
};
use convoy_control::trace::{Question, Trace, flow, trace};
use convoy_control::wireshark::esp_sa;
use convoy_control::xfrm::{self, Answer, Client, Cursor, Multicast, Told};
use convoy_crypto::Cpu;
use convoy_engine::registry::Drivers;
use convoy_host::{GenerationEvent, GenerationWatch, LinkName, Mark, Network, has_generation_id};
use convoy_ipsec::event::{Event, SaId};
use convoy_runtime::{PortTotals, WorkerStats, now};
use convoy_xfrm::{Address, Datagram, Errno, Group, Refusal, Request};
use zeroize::Zeroizing;

use super::connections::Lookout;
use super::daemons::{AppliedRequest, moment};
use super::recheck::Recheck;
use super::worker_wait::WorkerWait;
use super::{EngineTold, Gateway, load};
use crate::exit::describe;
use crate::privileges::{self, Limits};

/// Longest sleep of a listener that hears nothing.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Time for which a status waits for a request that holds the gateway.
const STATUS_WAIT: Duration = Duration::from_secs(3);
/// Pause between two attempts to get the gateway.
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Of so many SAs at most the log remembers where it was told that packets come from.
const MOVED_MAX: usize = 1 << 16;

/// Shared by the control socket and the one who waits for signals.
pub struct Live {
    inner: Mutex<Inner>,
    /// The status that was made last; answers while something holds the gateway.
    last_known: Mutex<Arc<Status>>,
    cpu: Cpu,
    /// Brings the workers' counters up to date. Not under the lock: it waits for them.
    update_stats: Box<dyn Fn() + Send + Sync>,
    /// Workers that are to see a snapshot. Not waited for under the lock either: status and metrics answer meanwhile.
    worker_wait: WorkerWait,
    /// Called when a client wants the gateway to end.
    stop: Box<dyn Fn() + Send + Sync>,
    /// Channel at which IKE daemons listen.
    multicast: Multicast,
    /// Mark that exempts their sockets.
    exempt: Mark,
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").field("inner", &self.inner).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Inner {
    /// `None` once it is ending.
    gateway: Option<Gateway>,
    sampler: Sampler,
    /// Pace of the status that nobody asked for: with tens of thousands of SAs it takes long, and requests wait.
    status_recheck: Recheck,
    /// Answers while it is ending.
    last: Arc<Status>,
    /// IKE daemons.
    attached: Attached,
    /// For metrics: what went through tunnels whose SAs were replaced, and what workers told.
    tunnels: Tunnels,
    told: metrics::Told,
    /// Reason for which metrics are not served that are asked for.
    no_metrics: Option<String>,
    /// Counts of the engine that the log was told.
    engine: EngineTold,
    /// Addresses from which packets of an SA of the site file come, as the log was last told.
    moved: HashMap<SaId, SocketAddr>,
}

impl Live {
    /// Shares a gateway; `stop` is called when a client wants it to end, and IKE daemons hear of events by
    /// `multicast`.
    #[must_use]
    pub fn new(
        gateway: Gateway,
        cpu: Cpu,
        multicast: Multicast,
        stop: impl Fn() + Send + Sync + 'static,
    ) -> Arc<Self> {
        let exempt = gateway.core().state().site().marks.exempt;
        let update_stats = Box::new(gateway.stats_updater());
        let worker_wait = gateway.core().worker_wait().clone();
        let mut sampler = Sampler::default();
        let attached = Attached::default();
        let last = Arc::new(status(&gateway, &cpu, &mut sampler, &attached, None));
        let last_known = Mutex::new(Arc::clone(&last));
        let inner = Mutex::new(Inner {
            gateway: Some(gateway),
            sampler,
            status_recheck: Recheck::default(),
            last,
            attached,
            tunnels: Tunnels::default(),
            told: metrics::Told::default(),
            no_metrics: None,
            engine: EngineTold::default(),
            moved: HashMap::new(),
        });
        let stop = Box::new(stop);
        Arc::new(Self {
            inner,
            last_known,
            cpu,
            update_stats,
            worker_wait,
            stop,
            multicast,
            exempt,
        })
    }

    /// Gives up what only the start needed, in all threads: to be called when everything is open and every
    /// server runs.
    ///
    /// # Errors
    /// Fails if a thread keeps rights that a running gateway does not need.
    pub(crate) fn give_up(&self, limits: Limits) -> anyhow::Result<()> {
        if let Some(gateway) = &mut self.lock().gateway {
            gateway.settle_helper();
            let (site, programs) = (gateway.core().state().site(), gateway.programs());
            let confinement = privileges::give_up(site, programs, limits)?;
            gateway.note_confinement(confinement);
        }
        Ok(())
    }

    /// Writes down what the workers tell, until they have ended. For a thread of its own.
    pub fn listen(&self) {
        let events = self.lock().gateway.as_mut().and_then(Gateway::take_events);
        let Some(mut events) = events else { return };
        while !events.is_over() {
            events.wait(LONGEST_WAIT);
            while let Some((_, event)) = events.pop() {
                self.heard(&event);
            }
        }
    }

    fn heard(&self, event: &Event) {
        // An SA that reaches its end while the gateway does is nobody's concern.
        let mut inner = self.lock();
        inner.told.count(event);
        let Inner { gateway: Some(gateway), moved, .. } = &mut *inner else { return };
        match gateway.heard(event) {
            Told::Daemons(group, message) => return self.multicast.send(group, message),
            Told::Nothing => return,
            Told::NotOurs => {}
        }
        // It is told every second as long as it is so.
        if moved.len() >= MOVED_MAX {
            moved.clear();
        }
        if let Event::Mapping { sa, from } = event
            && moved.insert(*sa, *from) == Some(*from)
        {
            return;
        }
        let state = gateway.core().state();
        match describe_event(&state.published().current(), state.plain_spd(), event) {
            (Level::Critical, line) => tracing::error!("{line}"),
            (Level::Warning, line) => tracing::warn!("{line}"),
            (Level::Ok, line) => tracing::info!("{line}"),
        }
    }

    /// Keeps rates going and follows the host's interfaces; call about once a second.
    pub fn tick(&self) {
        let mut inner = self.lock();
        let Inner { gateway, engine, .. } = &mut *inner;
        if let Some(gateway) = gateway {
            gateway.core().tell_engine(engine);
            gateway.follow_host();
            gateway.open_late_ports();
            for (group, message) in gateway.daemons_tick() {
                self.multicast.send(group, message);
            }
        }
        inner.status_recheck.note(true);
        if let Some(began) = inner.status_recheck.begin() {
            inner.refresh(&self.cpu);
            inner.status_recheck.rest(began);
        } else {
            inner.look_at_tunnels();
        }
        let last = inner.last.clone();
        drop(inner);
        *self.last_known() = last;
    }

    /// Ends all SAs when this machine turns out to be a copy of another one. For a thread of its own.
    pub fn listen_to_generations(&self, mut watch: GenerationWatch) {
        let has_id = has_generation_id(Path::new("/"));
        let note = |watch: &GenerationWatch| {
            let is_deaf = has_id && !watch.receives_log();
            if let (true, Some(gateway)) = (is_deaf, &mut self.lock().gateway) {
                gateway.note_deaf(watch.unavailable());
            }
        };
        note(&watch);
        loop {
            match watch.wait() {
                Ok(GenerationEvent::Copy) => {}
                Ok(GenerationEvent::Unavailable(why)) => {
                    tracing::warn!(
                        "snapshots and clones of this machine may not be detected any more: {why}"
                    );
                    note(&watch);
                    continue;
                }
                Ok(_) => continue,
                // Where there is no id there is nothing to hear.
                Err(_) if !has_id => return,
                Err(error) => {
                    return tracing::error!(
                        "snapshots and clones of this machine are not detected any more: {error}"
                    );
                }
            }
            let mut inner = self.lock();
            let Some(gateway) = &mut inner.gateway else { return };
            for (group, message) in gateway.end_sas() {
                self.multicast.send(group, message);
            }
            watch.done();
        }
    }

    /// Watcher of the packet filter and the table of connections, where there is leak protection. To be called
    /// before rights are given up.
    pub(crate) fn lookout(&self) -> Option<Lookout> {
        self.lock().gateway.as_ref().and_then(Gateway::lookout)
    }

    /// Has leak protection made again as soon as others change it, and follows the table of connections. For a thread of
    /// its own.
    pub(crate) fn look_out(&self, mut lookout: Lookout) {
        loop {
            lookout.look();
            let is_changed = lookout.wait();
            match &mut self.lock().gateway {
                Some(gateway) if is_changed => gateway.mend_leaks(),
                Some(_) => {}
                None => return,
            }
        }
    }

    /// Keeps in mind why metrics are not served that are asked for, if so.
    pub(super) fn note_metrics(&self, why_not: Option<String>) {
        self.lock().no_metrics = why_not;
    }

    /// An interface that does not exist any more, if the gateway needs it.
    #[must_use]
    pub fn gone(&self) -> Option<String> {
        self.lock().gateway.as_ref().and_then(Gateway::gone).map(ToOwned::to_owned)
    }

    /// Takes the gateway out, to end it; `None` the second time.
    #[must_use]
    pub fn take(&self) -> Option<Gateway> {
        self.lock().gateway.take()
    }

    /// Reads the site file again.
    ///
    /// # Errors
    /// The fault; then nothing changed.
    pub fn reload(&self) -> anyhow::Result<ReloadReport> {
        let done = self.try_reload();
        // Whoever asked is told as well, but the log is what remains.
        match &done {
            Ok(report) => tracing::info!("{}", report.text().trim_end().replace('\n', "; ")),
            Err(error) => tracing::error!(
                "the site file was not reloaded, and nothing changed: {}",
                describe(error)
            ),
        }
        done
    }

    fn try_reload(&self) -> anyhow::Result<ReloadReport> {
        let mut inner = self.lock();
        let Some(gateway) = &mut inner.gateway else { anyhow::bail!("the gateway is ending") };
        let path = gateway.core().state().site().path.clone();
        let (site, warnings) = load(&path)?;
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let done = gateway.reload(site);
        inner.moved.clear();
        done
    }

    fn try_set_driver(&self, name: &str, setting: DriverSetting) -> anyhow::Result<DriverChange> {
        let mut inner = self.lock();
        let Some(gateway) = &mut inner.gateway else { anyhow::bail!("the gateway is ending") };
        let sas_changed = gateway.set_driver(name, setting)?;
        let state = gateway.core().state();
        let driver = driver_status(name, state.drivers(), &state.published().current());
        let driver = driver.with_context(|| format!("there is no driver {name} any more"))?;
        Ok(DriverChange { driver, sas_changed })
    }

    /// The gateway, unless something else holds it for longer than this.
    fn lock_within(&self, longest: Duration) -> Option<MutexGuard<'_, Inner>> {
        let end = Instant::now() + longest;
        loop {
            match self.inner.try_lock() {
                Ok(inner) => return Some(inner),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() >= end => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
            }
        }
    }

    fn last_known(&self) -> MutexGuard<'_, Arc<Status>> {
        self.last_known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The status of before, while a request holds the gateway: its workers go on, and nothing else does.
    fn busy_status(&self) -> Status {
        let mut status = Status::clone(&self.last_known());
        let seconds = STATUS_WAIT.as_secs();
        let reason = format!(
            "a request has blocked the gateway for more than {seconds} s, and this status is from before: does \
             the disk of the state folder answer, and what are the last lines of the log?"
        );
        status.health.level = Level::Critical;
        status.health.reasons.insert(0, reason);
        status
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn refresh(&mut self, cpu: &Cpu) {
        if let Some(gateway) = &self.gateway {
            let no_metrics = self.no_metrics.as_deref();
            let status = status(gateway, cpu, &mut self.sampler, &self.attached, no_metrics);
            self.last = Arc::new(status);
        }
        self.look_at_tunnels();
    }

    /// Counts what went through SAs that may be gone the next time.
    fn look_at_tunnels(&mut self) {
        if let Some(gateway) = &self.gateway {
            let snapshot = gateway.core().state().published().current();
            self.tunnels.look(&snapshot, gateway.kernel(), now());
        }
    }
}

impl Live {
    /// A page for Prometheus; empty while the gateway is ending.
    #[must_use]
    pub fn metrics(&self) -> String {
        (self.update_stats)();
        let mut inner = self.lock();
        inner.refresh(&self.cpu);
        let Inner { gateway: Some(gateway), last, tunnels, told, .. } = &*inner else {
            return String::new();
        };
        let workers: Vec<_> = gateway
            .stats()
            .iter()
            .map(|stats| Load {
                worker: stats.worker().0,
                pipeline: stats.pipeline.clone(),
                sleeps: stats.sleeps.get(),
                busy_ns: stats.busy_ns.get(),
                handed: (stats.handed_off.get(), stats.taken_over.get()),
            })
            .collect();
        let figures = metrics::Figures::of(&metrics::Inputs {
            state: gateway.core().state(),
            daemons: gateway.kernel(),
            status: last,
            tunnels,
            told: *told,
            workers: &workers,
            at: moment(),
        });
        // Others need not wait for the text.
        drop(inner);
        figures.page()
    }
}

impl server::Gateway for Live {
    fn status(&self) -> Status {
        (self.update_stats)();
        let Some(mut inner) = self.lock_within(STATUS_WAIT) else { return self.busy_status() };
        inner.refresh(&self.cpu);
        let last = inner.last.clone();
        drop(inner);
        self.last_known().clone_from(&last);
        Arc::unwrap_or_clone(last)
    }

    fn sas(&self) -> SaReport {
        let mut inner = self.lock();
        let Inner { gateway, sampler, last, .. } = &mut *inner;
        match gateway {
            Some(gateway) => sa_report(gateway.core().state(), gateway.kernel(), now().0, sampler),
            None => SaReport { schema: SCHEMA, sas: last.sas.clone() },
        }
    }

    fn metrics(&self) -> String {
        Self::metrics(self)
    }

    fn policies(&self) -> PolicyReport {
        match &self.lock().gateway {
            Some(gateway) => policy_report(gateway.core().state(), gateway.kernel(), now().0),
            None => PolicyReport { schema: SCHEMA, policies: Vec::new() },
        }
    }

    fn trace(&self, question: Question) -> Result<Trace, String> {
        match &self.lock().gateway {
            Some(gateway) => {
                let way = gateway.host_way(&question, flow(&question)?);
                // A route may lead it into the interface of an `if_id`, which has policies of its own.
                let entered = way.as_ref().and_then(|way| gateway.if_id_entered(way));
                let question = Question { if_id: entered.unwrap_or(question.if_id), ..question };
                let trace = trace(gateway.core().state(), gateway.kernel(), question, now())?;
                Ok(match way {
                    Some(way) => trace.on(way),
                    None => trace,
                })
            }
            None => Err("the gateway is ending".to_owned()),
        }
    }

    fn crypto(&self) -> CryptoReport {
        let (drivers, snapshot, engine) = match &self.lock().gateway {
            Some(gateway) => {
                let state = gateway.core().state();
                let engine = state.site().crypto.name().unwrap_or("inline");
                (state.drivers().clone(), state.published().current(), engine)
            }
            None => (Drivers::new(&self.cpu), Arc::default(), ""),
        };
        // Self-tests may have to be run, and nobody is to wait for them.
        crypto_report(&self.cpu, &drivers, &snapshot, engine)
    }

    fn set_driver(&self, name: &str, setting: DriverSetting) -> Result<DriverChange, String> {
        let done = self.try_set_driver(name, setting);
        match &done {
            Ok(change) => tracing::info!(
                "driver {name}: {setting}; number of SAs that changed their driver: {}",
                change.sas_changed
            ),
            Err(error) => tracing::error!("driver {name} was not changed: {}", describe(error)),
        }
        done.map_err(|error| describe(&error))
    }

    fn reload(&self) -> Result<ReloadReport, String> {
        Self::reload(self).map_err(|error| describe(&error))
    }

    fn keys(&self) -> Zeroizing<String> {
        match &self.lock().gateway {
            Some(gateway) => esp_sa(gateway.core().state().site()),
            None => Zeroizing::default(),
        }
    }

    fn stop(&self) {
        (self.stop)();
    }
}

/// IKE daemons may come and go while it runs; while it ends they hear what a kernel without IPsec says.
impl xfrm::Service for Live {
    fn answer(&self, client: &Client, request: Request, to: Address) -> Result<Answer, Refusal> {
        let applied =
            self.gateway_for_daemons(|gateway| gateway.serve_daemon(client, request, to))?;
        let AppliedRequest { answer, generation } = applied;
        if generation.is_some_and(|generation| !self.worker_wait.wait_and_wake_late(generation)) {
            tracing::error!(
                "workers have not taken over a change by {} in time: a worker may be stuck",
                client.command
            );
        }
        Ok(answer)
    }

    fn unsettled(&self) -> Option<Instant> {
        self.worker_wait.wake_late_at()
    }

    fn settle(&self) {
        self.worker_wait.wake_late();
    }

    fn dump(&self, cursor: &mut Cursor, to: Address, room: usize) -> Vec<Datagram> {
        self.gateway_for_daemons(|gateway| Ok(gateway.dump(cursor, to, room))).unwrap_or_default()
    }

    fn listens(&self, groups: u32) -> Vec<(Group, Datagram)> {
        self.lock().gateway.as_mut().map_or_else(Vec::new, |gateway| gateway.listens(groups))
    }

    fn daemons(&self, daemons: &[Client]) {
        self.lock().attached.follow(daemons, now());
    }

    fn steer(&self, client: &Client, socket: OwnedFd, encap: u32) -> Result<(), Refusal> {
        self.gateway_for_daemons(|gateway| gateway.steer(client, &socket, encap))
    }

    fn exempt_mark(&self) -> Mark {
        self.exempt
    }
}

impl Live {
    fn gateway_for_daemons<T>(
        &self,
        ask: impl FnOnce(&mut Gateway) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        match &mut self.lock().gateway {
            Some(gateway) => ask(gateway),
            None => Err(Refusal::new(Errno::EPROTONOSUPPORT, "The gateway is ending")),
        }
    }
}

fn status(
    gateway: &Gateway,
    cpu: &Cpu,
    sampler: &mut Sampler,
    attached: &Attached,
    no_metrics: Option<&str>,
) -> Status {
    let no_metrics = no_metrics.map(str::to_owned);
    let lacking: Vec<_> = gateway.lacking().into_iter().chain(no_metrics).collect();
    let counts = counts(gateway);
    let counts: Vec<_> = counts
        .iter()
        .map(|(name, value, is_kernel_drop)| NamedCount {
            name,
            value: *value,
            is_kernel_drop: *is_kernel_drop,
        })
        .collect();
    let workers: Vec<_> = gateway.stats().iter().map(|stats| stats.pipeline.clone()).collect();
    let inputs = Inputs {
        now_ns: now().0,
        uptime: gateway.started().elapsed(),
        workers: &workers,
        counts: &counts,
        broken: &gateway.troubles(),
        lacking: &lacking,
        daemons: gateway.kernel(),
        attached,
        leak_protection: Some(gateway.leak_protection()),
        confinement: gateway.confinement(),
        wire: Some(gateway.wire()),
    };
    observe(gateway.core().state(), cpu, &inputs, sampler)
}

/// Counters of ports and workers, summed over workers: name, value, lost in the kernel.
fn counts(gateway: &Gateway) -> Vec<(String, u64, bool)> {
    let mut counts = Vec::new();
    for (side, of) in [
        ("plain", WorkerStats::plain as fn(&WorkerStats) -> PortTotals),
        ("wire", WorkerStats::wire),
    ] {
        let mut sum = PortTotals::zero();
        gateway.stats().iter().for_each(|stats| sum.add(&of(stats)));
        counts.extend(sum.iter().map(|(name, _, value)| {
            let kernel = name == "rx_kernel_drops";
            (format!("{side}.{}", name.replace('_', "-")), value, kernel)
        }));
    }
    if !gateway.core().state().site().plain.backend.is_direct() {
        counts.push(("plain.queue-drops".to_owned(), queue_drops(gateway.interface()), true));
    }
    counts.extend(gateway.leak_counts().map(|(name, value)| (name.to_owned(), value, false)));
    let sum = |of: fn(&WorkerStats) -> u64| gateway.stats().iter().map(|stats| of(stats)).sum();
    counts.extend([
        ("worker.handed-off".to_owned(), sum(|s| s.handed_off.get()), false),
        ("worker.sleeps".to_owned(), sum(|s| s.sleeps.get()), false),
        ("wire.unreachable".to_owned(), sum(|s| s.unreachable.get()), false),
        ("wire.path-mtu-believed".to_owned(), sum(|s| s.path_mtu_believed.get()), false),
        ("wire.path-mtu-ignored".to_owned(), sum(|s| s.path_mtu_ignored.get()), false),
    ]);
    if gateway.core().state().site().crypto != CryptoEngine::Inline {
        counts.extend(engine_counts(&sum).map(|(name, value)| (name.to_owned(), value, false)));
    }
    counts
}

/// Counts of engines beside the workers, by name.
fn engine_counts(
    sum: &dyn Fn(fn(&WorkerStats) -> u64) -> u64,
) -> impl Iterator<Item = (&'static str, u64)> {
    [
        ("engine.requests", sum(|s| s.engine.requests.get())),
        ("engine.jobs", sum(|s| s.engine.jobs.get())),
        ("engine.in-software", sum(|s| s.engine.in_software.get())),
        ("engine.by-worker", sum(|s| s.engine.here.get())),
        ("engine.deferred", sum(|s| s.engine.deferred.get())),
        ("engine.recalled", sum(|s| s.engine.recalled.get())),
        ("engine.overtaken", sum(|s| s.engine.overtaken.get())),
        ("worker.helped", sum(|s| s.helped.get())),
        ("engine.refused", sum(|s| s.engine.refused.get())),
        ("engine.redone", sum(|s| s.engine.redone.get())),
        ("engine.checked", sum(|s| s.engine.checked.get())),
        ("engine.wrong", sum(|s| s.engine.wrong.get())),
        ("engine.losses", sum(|s| s.engine.losses.get())),
        ("engine.restarts", sum(|s| s.engine.restarts.get())),
        ("engine.keys-refused", sum(|s| s.engine.keys_refused.get())),
    ]
    .into_iter()
}

/// Packets that found the plain interface's queue full.
fn queue_drops(interface: &str) -> u64 {
    let counters = LinkName::new(interface)
        .and_then(|link| Network::open().and_then(|mut network| network.counters(&link)));
    counters.map_or(0, |counters| counters.tx_dropped)
}
