//! The part of a gateway that needs neither root nor a network: state, pipelines, workers.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use convoy_control::lease::{LeaseEvent, Machine};
use convoy_control::site::{CryptoEngine, ModelFaultKind, SharedWork, Site};
use convoy_control::state::{ReloadReport, State, StateError};
use convoy_crypto::Cpu;
use convoy_engine::front::{Sharing, cycles_in};
use convoy_engine::model::{Faults, Settings};
use convoy_engine::registry::Drivers;
use convoy_ipsec::pipeline::PipelineConfig;
use convoy_ipsec::sa::WorkerId;
use convoy_ipsec::snapshot::Writer;
use convoy_ipsec::spd::KnownNetworks;
use convoy_packet::{Arena, FrameSize};
use convoy_runtime::{
    CryptoPool, EngineChoice, Events, Runtime, StopReport, Surroundings, ThreadConfig, Wiring,
    Worker, WorkerPorts, WorkerStats,
};

use super::devices;
use super::worker_wait::WorkerWait;
use crate::exit::Stop;

/// Frames for each worker: some full bursts on every port, and what its ports keep.
const FRAMES_PER_WORKER: u32 = 8192;
/// Frames for each plain interface beside the first: a burst that waits, and one on its way out.
const FRAMES_PER_INTERFACE: u32 = 512;
/// Frames that may lie in rings between two workers.
const FRAMES_PER_PAIR: u32 = 4096;
/// Frames are at least for packets of this size, so that a site may raise its MTU later.
const LEAST_PACKET: u16 = 2048;
/// Longest time of a stop before packets under way are given up.
const STOP_LIMIT: Duration = Duration::from_secs(2);

/// Nanoseconds after which a device made of software is back that was removed.
const MODEL_ABSENT_NS: u64 = 1_000_000_000;
/// Longest time until workers say what they have counted; one that is stuck must not hold up who asks.
const ANSWERS: Duration = Duration::from_millis(500);

/// Surroundings of the pipelines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Interfaces and sockets of this host.
    Host(HostMedium),
    /// Memory or capture files: nobody else touches the packets.
    Bare,
}

/// Surroundings of the pipelines on this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostMedium {
    /// The plain side is an interface from which the gateway itself forwards. (To a TUN interface
    /// the kernel does.)
    pub is_plain_direct: bool,
    /// Largest IP packet of that interface in bytes.
    pub plain_mtu: u16,
    /// Largest outer packet in bytes that SAs of IKE daemons may have by this host's interfaces; 0 where there will be no
    /// such SAs, or the site says it.
    pub widest: u16,
    /// The wire side is an interface, where nobody computes UDP checksums as sockets do.
    pub is_wire_direct: bool,
    /// Addresses that may speak to inner senders. None on a TUN interface: the kernel drops packets
    /// from an interface that bear an address of its own ("martian source").
    pub plain_addresses: Vec<IpAddr>,
}

/// State and workers of a gateway.
#[derive(Debug)]
pub struct Core {
    state: State,
    runtime: Runtime,
    worker_wait: WorkerWait,
}

/// State of a gateway before it has workers.
#[derive(Debug)]
pub struct Prepared {
    state: State,
    surroundings: Surroundings,
}

/// The engine that a site asks for; the threads of a pool run from now on.
fn engine_of(crypto: &CryptoEngine, workers: u16) -> anyhow::Result<EngineChoice> {
    Ok(match crypto {
        CryptoEngine::Inline => EngineChoice::Inline,
        CryptoEngine::Pool { threads } => {
            let threads: Vec<_> = threads.iter().map(|cpu| cpu.map(usize::from)).collect();
            let pool = CryptoPool::start(&threads).context("crypto.pool")?;
            EngineChoice::Pool(pool)
        }
        CryptoEngine::Workers => EngineChoice::Workers(workers.into()),
        CryptoEngine::Model { faults } => {
            let mut wrong = Faults { tells: true, absent: MODEL_ABSENT_NS, ..Faults::default() };
            for fault in faults {
                let at = u64::try_from(fault.after.as_nanos()).unwrap_or(u64::MAX);
                match fault.kind {
                    ModelFaultKind::Stall => wrong.stall_at = Some(at),
                    ModelFaultKind::Remove => wrong.remove_at = Some(at),
                }
            }
            EngineChoice::Model(Settings::default(), wrong)
        }
        CryptoEngine::Cryptodev(cryptodev) => {
            EngineChoice::Device(devices::of_site(cryptodev, workers)?)
        }
    })
}

/// Division of the work between workers and the engine, as a site has it.
fn sharing_of(work: SharedWork) -> Sharing {
    // Each direction has half of it.
    let budget = work.budget.map_or(0, |budget| cycles_in(budget / 2).max(1));
    Sharing { balance: work.balance, budget }
}

/// Counts of an engine that the log was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineTold {
    losses: u64,
    wrong: u64,
    restarts: u64,
}

impl Prepared {
    /// Locks the state folder, leases sequence numbers and sets up keys.
    ///
    /// # Errors
    /// Refuses a site that cannot be brought into force; nothing is left running.
    pub fn new(site: Site, wire_mtu: u16, medium: Medium) -> anyhow::Result<Self> {
        let cpu = Cpu::detect().map_err(|e| Stop::usage(e.to_string()))?;
        let (engine, checks) = (engine_of(&site.crypto, site.workers.count)?, site.verify_every);
        let sharing = sharing_of(site.shared_work);
        let pairs = u32::from(site.workers.count) * u32::from(site.workers.count - 1);
        let frames = u32::from(site.workers.count) * FRAMES_PER_WORKER + pairs * FRAMES_PER_PAIR;
        let largest = site.outbound.iter().filter_map(|sa| sa.path_mtu).max().unwrap_or(0);
        let plain = match &medium {
            Medium::Host(host) if host.is_plain_direct => host.plain_mtu,
            _ => site.plain.mtu.unwrap_or(0),
        };
        let widest = match &medium {
            Medium::Host(host) => host.widest,
            Medium::Bare => 0,
        };
        let interfaces = site.xfrm_interfaces();
        let of_interfaces = interfaces.iter().filter_map(|interface| interface.mtu).max();
        let largest = largest.max(widest);
        let largest =
            largest.max(wire_mtu).max(plain).max(of_interfaces.unwrap_or(0)).max(LEAST_PACKET);
        let more = interfaces.len() as u32 * FRAMES_PER_INTERFACE;
        let more = more + u32::try_from(engine.frames()).unwrap_or(u32::MAX);
        let frames = frames.saturating_add(more.saturating_mul(u32::from(site.workers.count)));
        let arena = Arena::map(frames, FrameSize::for_packet(largest.into()))
            .context("cannot get memory for packets")?;
        let pipeline = pipeline_config(&medium);
        let state = State::start(site, cpu, wire_mtu, tell_lease_event).map_err(state_error)?;
        if state.state_dir().is_some()
            && let Some([known, unknown]) = Machine::current().only()
        {
            tracing::info!(
                "the state folder is tied to this machine by its {known} alone, because its {unknown} cannot \
                 be read: a copy on another machine with the same {known} would not be refused"
            );
        }
        let interfaces = state.interface_spds().map(|(_, spd)| spd);
        let spds = core::iter::once(state.plain_spd()).chain(interfaces).collect();
        Ok(Self {
            state,
            surroundings: Surroundings { pipeline, spds, engine, sharing, checks, arena },
        })
    }

    /// As [`State::writer`].
    pub(super) fn writer(&mut self) -> &mut Writer {
        self.state.writer()
    }

    /// Memory that frames come from.
    #[must_use]
    pub fn arena(&self) -> &'static Arena {
        self.surroundings.arena
    }

    /// The state.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// As [`State::send_on`].
    pub fn send_on(&mut self, networks: Option<&KnownNetworks>) {
        self.state.send_on(networks);
    }

    /// Workers to be stepped by hand, and the state they work on.
    ///
    /// # Errors
    /// Fails if there are too many, or no descriptors left.
    pub fn into_workers(self, ports: Vec<WorkerPorts>) -> anyhow::Result<(State, Vec<Worker>)> {
        let workers = Worker::team(&self.surroundings, ports, self.state.published())?;
        Ok((self.state, workers))
    }

    /// Starts worker threads; `alarm` is called from the thread of a worker that fails.
    ///
    /// # Errors
    /// Fails if a thread cannot be started or pinned.
    pub fn start(
        self,
        ports: Vec<WorkerPorts>,
        alarm: impl Fn(WorkerId) + Clone + Send + 'static,
    ) -> anyhow::Result<Core> {
        let workers = &self.state.site().workers;
        let threads = ThreadConfig {
            pin: workers.pin.iter().map(|cpu| usize::from(*cpu)).collect(),
            busy_poll: workers.busy_poll,
        };
        let published = self.state.published();
        match Runtime::start(&self.surroundings, &threads, ports, published, alarm) {
            Ok(runtime) => {
                let worker_wait = WorkerWait::new(runtime.stats().to_vec(), runtime.waker());
                Ok(Core { state: self.state, runtime, worker_wait })
            }
            Err(error) => {
                self.abandon();
                Err(error.into())
            }
        }
    }

    /// Ends a start that failed, when no worker runs: the next start skips no sequence number.
    pub fn abandon(self) {
        if let Err(error) = self.state.finish() {
            tracing::warn!(%error, "cannot finish the state folder after a failed start");
        }
    }
}

fn pipeline_config(medium: &Medium) -> PipelineConfig {
    let (decrement_ttl, udp6_checksum, addresses) = match medium {
        Medium::Bare => (true, true, &[][..]),
        Medium::Host(host) => (host.is_plain_direct, host.is_wire_direct, &*host.plain_addresses),
    };
    PipelineConfig {
        worker: WorkerId(0),
        decrement_ttl,
        udp6_checksum,
        // Without one, messages to inner senders bear the address they wrote to.
        icmp_source_v4: addresses.iter().find_map(|address| match address {
            IpAddr::V4(v4) => Some(*v4),
            IpAddr::V6(_) => None,
        }),
        icmp_source_v6: addresses.iter().find_map(|address| match address {
            // Who is behind a router cannot answer to a link-local address.
            IpAddr::V6(v6) if !v6.is_unicast_link_local() => Some(*v6),
            _ => None,
        }),
    }
}

impl Core {
    /// The state.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The state, to be changed in what workers need not see at once.
    pub(super) fn state_mut(&mut self) -> &mut State {
        &mut self.state
    }

    /// As [`State::writer`].
    pub(super) fn writer(&mut self) -> &mut Writer {
        self.state.writer()
    }

    /// The right to change the snapshot, and the workers' counters.
    pub(super) fn writer_and_stats(&mut self) -> (&mut Writer, &[Arc<WorkerStats>]) {
        (self.state.writer(), self.runtime.stats())
    }

    /// Counters that the workers publish.
    #[must_use]
    pub fn stats(&self) -> &[Arc<WorkerStats>] {
        self.runtime.stats()
    }

    /// Brings what the workers publish up to date when it is called; a worker that is stuck is not waited for.
    pub fn stats_updater(&self) -> impl Fn() + Send + Sync + 'static {
        let update = self.runtime.stats_updater();
        move || update(ANSWERS)
    }

    /// Fault of the engine that workers have their cryptography done by, if there is one.
    pub fn engine_trouble(&self) -> Option<String> {
        let down: u64 = self.stats().iter().map(|stats| stats.engine.down.get()).sum();
        let name = self.engine_name()?;
        (down > 0).then(|| {
            format!(
                "{name} did not answer in time, gave wrong results or went away: workers do the cryptography \
                 themselves, and retry it from time to time ({down} of {} queues)",
                2 * self.stats().len()
            )
        })
    }

    /// Unit that does the cryptography beside the workers, in words.
    fn engine_name(&self) -> Option<&'static str> {
        match self.state.site().crypto {
            CryptoEngine::Inline => None,
            CryptoEngine::Pool { .. } => Some("the threads of [crypto.pool]"),
            CryptoEngine::Workers => Some("the help of other workers"),
            CryptoEngine::Model { .. } => Some("the device of [crypto.model]"),
            CryptoEngine::Cryptodev(_) => Some("the device of [crypto.cryptodev]"),
        }
    }

    /// Tells the log what has become of the engine since the last time.
    pub fn tell_engine(&self, told: &mut EngineTold) {
        let Some(name) = self.engine_name() else { return };
        let sum = |of: fn(&WorkerStats) -> u64| self.stats().iter().map(|stats| of(stats)).sum();
        let now = EngineTold {
            losses: sum(|stats| stats.engine.losses.get()),
            wrong: sum(|stats| stats.engine.wrong.get()),
            restarts: sum(|stats| stats.engine.restarts.get()),
        };
        if now.wrong > told.wrong {
            tracing::error!(
                "{name} gave wrong results, which workers found by repeating its work: it is not used until it \
                 was reset; check it for a fault ({} so far)",
                now.wrong
            );
        } else if now.losses > told.losses {
            tracing::warn!(
                "{name} did not answer in time or went away: workers do the cryptography of its packets, and \
                 retry it ({} losses so far)",
                now.losses
            );
        }
        if now.restarts > told.restarts {
            tracing::info!("{name} works again ({} times so far)", now.restarts);
        }
        *told = now;
    }

    /// Wakes the workers, from any thread.
    pub fn waker(&self) -> impl Fn() + Send + 'static {
        self.runtime.waker()
    }

    /// Messages of the workers; `None` the second time.
    #[must_use]
    pub fn take_events(&mut self) -> Option<Events> {
        self.runtime.take_events()
    }

    /// Handle that adds wire ports to the workers; `None` the second time.
    #[must_use]
    pub fn take_wiring(&mut self) -> Option<Wiring> {
        self.runtime.take_wiring()
    }

    /// Brings another site into force.
    ///
    /// # Errors
    /// [`StateError`]; then nothing has changed.
    pub fn reload(&mut self, site: Site) -> Result<ReloadReport, StateError> {
        let report = self.state.reload(site)?;
        self.runtime.wake();
        Ok(report)
    }

    /// As [`State::send_on`].
    pub fn send_on(&mut self, networks: Option<&KnownNetworks>) {
        self.state.send_on(networks);
        self.runtime.wake();
    }

    /// Has workers that sleep look for a new snapshot.
    pub(super) fn wake(&self) {
        self.runtime.wake();
    }

    /// Ends all SAs of the site, as their keys may not be used any more.
    pub fn end_sas(&mut self, why: &'static str) {
        self.state.end_sas(why);
        self.runtime.wake();
    }

    /// Takes over the largest outer packet in bytes where the site does not say; whether that
    /// changed anything.
    ///
    /// # Errors
    /// [`StateError`]; then nothing has changed.
    pub fn set_wire_mtu(&mut self, mtu: u16) -> Result<bool, StateError> {
        let changed = self.state.set_wire_mtu(mtu)?;
        if changed {
            self.runtime.wake();
        }
        Ok(changed)
    }

    /// Takes over drivers that are set otherwise, in the site's SAs. Returns how many have another one now.
    ///
    /// # Errors
    /// [`StateError`]; then nothing has changed.
    pub fn set_drivers(&mut self, drivers: Drivers) -> Result<usize, StateError> {
        let changed = self.state.set_drivers(drivers)?;
        self.runtime.wake();
        Ok(changed)
    }

    /// As [`WorkerWait::wait`].
    #[must_use]
    pub fn wait_for_workers(&self, generation: u64) -> bool {
        self.worker_wait.wait(generation)
    }

    /// The workers, to be waited for.
    #[must_use]
    pub fn worker_wait(&self) -> &WorkerWait {
        &self.worker_wait
    }

    /// Ends the workers when all that had arrived has gone through, then writes down exactly which
    /// sequence numbers were used.
    ///
    /// # Errors
    /// Fails if a worker had failed, or the numbers could not be written.
    pub fn stop(self) -> anyhow::Result<()> {
        let StopReport { lost, mut failures } = self.runtime.stop(STOP_LIMIT);
        if lost > 0 {
            tracing::warn!(lost, "packets that were under way at the end are lost");
        }
        if failures.is_empty() {
            return self.state.finish().context("cannot write the sequence numbers that were used");
        }
        // A worker that failed may have used numbers it did not publish: the state is dropped, and
        // the next start goes on beyond all that was leased.
        Err(failures.swap_remove(0).into())
    }
}

/// Faults of the site file are the caller's to mend; the rest is trouble at run time.
pub(crate) fn state_error(error: StateError) -> anyhow::Error {
    match error {
        StateError::NeedsRestart(_)
        | StateError::KeyReused { .. }
        | StateError::NoStateFolder(_)
        | StateError::Policies(_)
        | StateError::Associations(_) => Stop::usage(error.to_string()),
        other => other.into(),
    }
}

fn tell_lease_event(event: LeaseEvent) {
    match event {
        LeaseEvent::WriteFailed { reason } => tracing::error!(
            reason,
            "the state folder cannot be written: packets are dropped once the leased sequence numbers are used \
             up; check the disk"
        ),
        LeaseEvent::CopyMended { file } => tracing::warn!(
            "restored {file} in the state folder from its other copy: it was missing, damaged, or half-written \
             by a crash"
        ),
        LeaseEvent::Bound { to } => tracing::info!(
            "the state folder is tied to this machine from now on, by its {to}: other machines refuse it"
        ),
        LeaseEvent::MachineUnknown => tracing::warn!(
            "neither machine-id nor the DMI product UUID can be read, so another machine may not refuse a copy \
             of the state folder: never copy it"
        ),
        LeaseEvent::WriteRecovered => tracing::info!("the state folder can be written again"),
        _ => {}
    }
}
