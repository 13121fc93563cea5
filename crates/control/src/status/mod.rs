//! Condition of a gateway: typed, as JSON, and as text.
//!
//! The JSON of these types is an interface: [`SCHEMA`] is its version. Fields may be added under one
//! version; their meaning and unit do not change. Units are in the names: `_s` seconds, `_bytes`,
//! `per_second`. Counters count since the gateway's start.

mod attached;
mod columns;
mod crypto;
mod health;
mod observe;
mod peers;
mod policies;
mod sampler;
mod summary;
mod text;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

pub use attached::Attached;
pub use columns::{columns, fold_to};
pub use crypto::{
    CryptoReport, DriverChange, DriverState, DriverStatus, TierStatus, crypto_report, driver_status,
};
pub use observe::{Inputs, NamedCount, observe, sa_report};
pub(crate) use observe::{last_number, mode};
pub use policies::policy_report;
pub use sampler::Sampler;
pub use text::Text;

/// Version of the JSON of this module's types.
pub const SCHEMA: u32 = 1;

/// A gateway as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Version of the program.
    pub version: String,
    /// Name of the gateway.
    pub name: String,
    /// Process.
    pub pid: u32,
    /// Time since its start.
    pub uptime_s: f64,
    /// Site file in force.
    pub site_file: String,
    /// Network namespace it runs in, if not its caller's.
    pub namespace: Option<String>,
    /// Need for somebody to look after it.
    pub health: Health,
    /// CPU tier that new keys get.
    pub tier: String,
    /// Executor of the cryptography beside the workers, as `engine` in the site file; none where workers
    /// do it.
    #[serde(default)]
    pub engine: Option<String>,
    /// Generation of the published policies and SAs.
    pub generation: u64,
    /// From the plain side to the wire.
    pub outbound: Flow,
    /// From the wire to the plain side.
    pub inbound: Flow,
    /// Of these, what went on from tunnel to tunnel, or was dropped there.
    #[serde(default)]
    pub transit: Option<Flow>,
    /// Dropped packets by reason; reasons that never occurred are left out.
    pub drops: Vec<Drops>,
    /// Packets the kernel dropped before they could be read.
    pub kernel_drops: u64,
    /// Other counters of ports and workers, by name.
    pub counters: Vec<Count>,
    /// Worker threads.
    pub workers: u16,
    /// SAs and work of each of them, in their order.
    #[serde(default)]
    pub by_worker: Vec<WorkerStatus>,
    /// Memory of sequence numbers.
    pub leases: Leases,
    /// SAs.
    pub sas: Vec<SaStatus>,
    /// Measures that keep packets that policies protect from leaving in clear; none where the plain side
    /// is no TUN interface.
    #[serde(default)]
    pub leak_protection: Option<LeakProtection>,
    /// IKE daemons; absent without `[xfrm]`.
    #[serde(default)]
    pub daemons: Option<Daemons>,
    /// Limits on somebody who has taken the gateway over; absent until it has started.
    #[serde(default)]
    pub confinement: Option<Confinement>,
    /// Input and output of protected packets.
    #[serde(default)]
    pub wire: Option<Wire>,
}

/// Input and output of protected packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wire {
    /// As `backend` in the site file.
    pub backend: String,
    /// Way of native ESP and AH: `socket`, `af_packet` or `af_xdp`.
    pub native: String,
    /// True if sockets carry all else, and what that way cannot carry.
    pub has_sockets: bool,
    /// The interface of that way, or that sockets are bound to, if any.
    pub interface: Option<String>,
    /// Mode of AF_XDP: `native, zero-copy`, `native, copied` or `generic, copied`; `sending` of packet sockets that only
    /// send.
    pub mode: Option<String>,
    /// Reason that `auto` has chosen nothing faster, or that sockets took over.
    pub reason: Option<String>,
}

impl Wire {
    /// The way in words, and the reason of it.
    #[must_use]
    pub fn in_words(&self) -> String {
        let on = self.interface.as_ref().map(|name| format!(" on {name}")).unwrap_or_default();
        match (&*self.native, &self.mode, &self.reason) {
            ("socket", _, Some(reason)) => format!("sockets{on}: {reason}"),
            ("socket", ..) => format!("sockets{on}"),
            ("af_packet", Some(_), Some(reason)) => format!(
                "packet sockets send native ESP and AH{on}, sockets carry all else; not by AF_XDP: {reason}"
            ),
            (way, Some(mode), _) if self.has_sockets => {
                format!("{way} ({mode}){on} for native ESP and AH, sockets for all else")
            }
            (way, Some(mode), _) => format!("{way} ({mode}){on}"),
            (way, None, _) => format!("{way}{on}"),
        }
    }
}

/// IKE daemons that the gateway serves, and requests that it refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Daemons {
    /// Processes that listen for acquires and expiries, by pid.
    pub attached: Vec<Daemon>,
    /// The one that ended last in this run of the gateway, while none is attached.
    pub gone: Option<Daemon>,
    /// Requests for SAs and policies that were refused with a reason.
    pub refused_requests: u64,
    /// The last of them.
    pub last_refusal: Option<RefusedRequest>,
}

/// Process that listens as IKE daemons do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Daemon {
    /// Its name (`/proc/PID/comm`).
    pub name: String,
    /// Process.
    pub pid: i32,
    /// Time since it began to listen; of one that ended, since then.
    pub since_s: f64,
}

/// Request of an IKE daemon that was refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RefusedRequest {
    /// SA or policy, reason and process.
    pub text: String,
    /// Time since then.
    pub age_s: f64,
}

/// Rights that a gateway has given up for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// True if the kernel refuses system calls that no gateway makes.
    pub system_calls: bool,
    /// Version of the kernel's Landlock by which the gateway may use no files but those of its site.
    pub landlock: Option<u32>,
    /// Reason that it may use others, if so.
    pub no_landlock: Option<String>,
}

impl Confinement {
    fn in_words(&self) -> String {
        let calls = match self.system_calls {
            true => "system calls are filtered",
            false => "system calls are not filtered",
        };
        let files = match (&self.landlock, &self.no_landlock) {
            (Some(version), _) => {
                format!("file access is limited to the files of the site (Landlock {version})")
            }
            (None, Some(why)) => format!("file access is not limited: {why}"),
            (None, None) => "file access is not limited".to_owned(),
        };
        format!("{calls}; {files}")
    }
}

/// Measures that keep packets that policies protect from leaving in clear.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeakProtection {
    /// True if they are in force.
    pub is_on: bool,
    /// Traffic that is protected, or the reason that none is, in words.
    pub detail: String,
    /// Fate of packets that the kernel asks about; absent where it asks about none.
    #[serde(default)]
    pub questions: Option<Questions>,
    /// Fill of the kernel's table of connections; absent where it tracks none.
    #[serde(default)]
    pub connections: Option<Connections>,
}

/// Fill of the kernel's table of connections (conntrack), in the gateway's network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connections {
    /// Flows that the kernel tracks.
    pub entries: u64,
    /// As many as it tracks at most.
    pub limit: u64,
}

/// Questions of the kernel about packets between networks of which a part passes in clear.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Questions {
    /// About packets from near to far.
    pub outbound: QuestionCounts,
    /// About packets from far to near.
    pub inbound: QuestionCounts,
}

/// Fate of packets of one direction that the kernel asks about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionCounts {
    /// Packets that the kernel asked about; absent where `/proc` does not tell.
    pub asked: Option<u64>,
    /// Answers that they pass in clear.
    pub bypassed: u64,
    /// Answers that they go into the TUN interface.
    pub protected: u64,
    /// Answers that they are dropped.
    pub discarded: u64,
    /// Packets that were dropped as they bore no answer.
    pub unanswered: u64,
    /// Packets that were dropped as too many waited for an answer; absent as above.
    pub queue_full: Option<u64>,
    /// Packets that were dropped as the gateway did not read the question soon enough; absent as above.
    pub unread: Option<u64>,
}

/// Need for somebody to look after a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Urgency.
    pub level: Level,
    /// Reasons for it; empty when all is well.
    pub reasons: Vec<String>,
}

/// Urgency of a look at the gateway; fits the plug-ins of monitoring systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Not at all.
    Ok,
    /// Some day soon; or some packets are being lost, or refused for a reason that anybody can cause
    /// who reaches this gateway.
    Warning,
    /// Now: packets are being lost for want of something, at least one in a hundred of their direction
    /// within the last seconds.
    Critical,
}

impl Level {
    /// Exit code for monitoring: 0, 1 or 2.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Warning => 1,
            Self::Critical => 2,
        }
    }

    /// In words.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// Exit code for monitoring when no gateway answers.
pub const EXIT_NO_GATEWAY: u8 = 3;

/// Packets that went one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Packets.
    pub packets: u64,
    /// Inner bytes.
    pub bytes: u64,
    /// Packets per second, over the last seconds; absent in the first.
    pub packets_per_second: Option<f64>,
    /// Bits of inner bytes per second.
    pub bits_per_second: Option<f64>,
    /// Time since the last one; absent when there was none.
    pub last_packet_s: Option<f64>,
}

/// Packets dropped for one reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drops {
    /// Name of the reason.
    pub reason: String,
    /// Meaning of the reason.
    pub help: String,
    /// Packets.
    pub packets: u64,
    /// Packets per second, over the last seconds.
    pub packets_per_second: Option<f64>,
    /// False where nothing is lost by it: a host's own packets for its link, keepalives and dummies.
    #[serde(default = "yes")]
    pub is_loss: bool,
}

/// Gateways of before did not say it.
fn yes() -> bool {
    true
}

/// One worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Its number.
    pub worker: u16,
    /// SAs for packets that leave which it owns.
    pub outbound_sas: u64,
    /// SAs for packets that arrive which it owns.
    pub inbound_sas: u64,
    /// Packets that it protected.
    pub outbound_packets: u64,
    /// Packets that it accepted from the wire.
    pub inbound_packets: u64,
    /// Packets that it dropped, for any reason.
    pub dropped: u64,
}

/// A counter by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Name.
    pub name: String,
    /// Value.
    pub value: u64,
}

/// Memory of sequence numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leases {
    /// The state folder, if there is one.
    pub state_dir: Option<String>,
    /// Reason that it cannot be written at present, if so.
    pub failure: Option<String>,
}

/// All SAs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SaReport {
    /// [`SCHEMA`].
    pub schema: u32,
    /// SAs, outbound ones first.
    pub sas: Vec<SaStatus>,
}

/// One SA.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SaStatus {
    /// Name.
    pub name: String,
    /// SPI, as `0x00001001`.
    pub spi: String,
    /// `esp` or `ah`.
    pub protocol: String,
    /// `tunnel` or `transport`.
    pub mode: String,
    /// Our outer address.
    pub local: IpAddr,
    /// The peer's.
    pub remote: IpAddr,
    /// Our and the peer's UDP port, if encapsulated.
    pub udp_ports: Option<(u16, u16)>,
    /// Algorithm, as `aes-128-gcm-16`.
    pub algorithm: String,
    /// CPU tier of its key.
    pub tier: String,
    /// True if the engine refused its key, for want of sessions, so that the worker does the cryptography.
    #[serde(default)]
    pub refused_by_engine: bool,
    /// Extended sequence numbers.
    pub esn: bool,
    /// Whose it is.
    pub origin: Origin,
    /// Links it to policies; of an IKE daemon's SA, the daemon's own number.
    pub reqid: u32,
    /// Identifier of the interface whose packets it protects; 0 for the one that every gateway has.
    #[serde(default)]
    pub if_id: u32,
    /// The worker that owns it.
    pub worker: u16,
    /// Packets and bytes that went through.
    pub flow: Flow,
    /// Packets of this SA dropped for any reason.
    pub dropped: u64,
    /// Its lifetime; absent without limits.
    pub lifetime: Option<LifetimeStatus>,
    /// Values of its direction.
    #[serde(flatten)]
    pub direction: DirectionStatus,
}

/// Used and remaining lifetime of an SA (RFC 4301 section 4.4.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LifetimeStatus {
    /// Stage of the lifetime.
    pub state: LifetimeState,
    /// Packets that passed.
    pub packets: u64,
    /// Bytes of them that were encrypted, padding included.
    pub bytes: u64,
    /// Left until it should be replaced.
    pub soft: LifetimeLeft,
    /// Left until it ends.
    pub hard: LifetimeLeft,
}

/// Stage of an SA's lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LifetimeState {
    /// Below all limits.
    Live,
    /// A soft limit is reached: it should be replaced.
    Ending,
    /// A hard limit is reached: it passes nothing.
    Expired,
}

/// Remainder of each limit; absent where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LifetimeLeft {
    /// Packets.
    pub packets: Option<u64>,
    /// Bytes.
    pub bytes: Option<u64>,
    /// Seconds, of the time since it was added.
    pub age_s: Option<f64>,
    /// Seconds, of the time since its first packet.
    pub use_s: Option<f64>,
}

/// Values of an SA's direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "direction", rename_all = "kebab-case")]
pub enum DirectionStatus {
    /// It protects packets that leave.
    Outbound {
        /// Last sequence number used; before the first packet of a run, the last that an earlier one
        /// may have used.
        sequence: u64,
        /// Numbers left until the SA must be replaced.
        left: u64,
        /// Time until then at the present rate.
        exhausted_in_s: Option<f64>,
        /// First number that is not leased yet; the highest number of all for an SA without leases.
        leased_until: u64,
        /// Largest outer packet the path takes, in bytes.
        path_mtu: u64,
    },
    /// It opens packets that arrive.
    Inbound {
        /// Right edge of the anti-replay window: highest number accepted.
        replay_edge: u64,
        /// Size of the window in packets; 0 is off.
        replay_window: u32,
        /// Packets seen before, or too old to tell.
        replayed: u64,
        /// Packets whose ICV was wrong.
        icv_failures: u64,
    },
}

/// All policies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyReport {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Policies: those of the site file in its order, then those of IKE daemons by direction and priority.
    pub policies: Vec<PolicyStatus>,
}

/// One policy. One of the site file holds for both directions, one of an IKE daemon for one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyStatus {
    /// Name.
    pub name: String,
    /// `protect`, `bypass` or `discard`.
    pub action: String,
    /// Addresses on this side.
    pub local: Vec<String>,
    /// Addresses on the far side.
    pub remote: Vec<String>,
    /// Protocol; absent for any.
    pub protocol: Option<String>,
    /// Ports or ICMP types, in words; absent for any.
    pub upper: Option<String>,
    /// Of overlapping policies the lowest decides.
    pub priority: u32,
    /// True if the SA for packets that leave is made on demand.
    pub acquire: bool,
    /// Whose it is.
    pub origin: Origin,
    /// The number by which its IKE daemon knows it; absent for one of the site file.
    pub index: Option<u32>,
    /// The only direction that it holds for, if so; `in` stands for `fwd` too.
    pub direction: Option<PolicyDirection>,
    /// The database it is in; absent for the common one.
    pub spd: Option<String>,
    /// True if it decides about packets of the plain interface.
    pub decides: bool,
    /// The SA for packets that leave.
    pub sa_out: Option<String>,
    /// The SAs that packets may arrive through.
    pub sa_in: Vec<String>,
    /// The SPI of the SA for packets that leave; absent while there is none.
    pub spi_out: Option<String>,
    /// The SPIs of the SAs that packets may arrive through now.
    pub spi_in: Vec<String>,
    /// Packets that leave and that it decided about.
    pub sent: Use,
    /// Packets that arrived through SAs and that it decided about.
    pub received: Use,
    /// Questions of the kernel that it decided, about packets that leave.
    #[serde(default)]
    pub asked_out: u64,
    /// Questions about packets that come in in clear.
    #[serde(default)]
    pub asked_in: u64,
    /// True if other policies use one of its SAs too, so that `sent` and `received` count for them as
    /// well.
    pub shared: bool,
}

/// Maker of an SA or a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// It stands in the site file.
    Site,
    /// An IKE daemon did.
    Daemon,
}

/// Direction of the packets that a policy decides about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyDirection {
    /// From the plain side to the wire.
    Out,
    /// From the wire to the plain side; of an IKE daemon's policy, for this host alone.
    In,
    /// The same for others.
    #[serde(rename = "fwd")]
    Forward,
}

/// Packets that a policy has decided about: since it came where it protects nothing, else through
/// the SAs that it names now, since they came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Use {
    /// Packets.
    pub packets: u64,
    /// Inner bytes.
    pub bytes: u64,
    /// Time since the last one; absent when there was none.
    pub last_packet_s: Option<f64>,
}

impl Use {
    /// With the time of the last packet and of now in nanoseconds of one clock; 0: never.
    fn new(packets: u64, bytes: u64, last_ns: u64, now_ns: u64) -> Self {
        let last = (last_ns > 0).then(|| now_ns.saturating_sub(last_ns) as f64 / 1e9);
        Self { packets, bytes, last_packet_s: last }
    }

    fn add(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        let both = [self.last_packet_s, other.last_packet_s];
        self.last_packet_s = both.into_iter().flatten().min_by(f64::total_cmp);
    }
}
