//! Meaning of a site file, as types.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use convoy_engine::registry::{DaemonSas, DriverRules};
use convoy_host::Mark;
use convoy_ipsec::key::SaKeyMaterial;
use convoy_ipsec::lifetime::Lifetime;
use convoy_ipsec::sa::{Endpoints, IpsecProtocol, Mode, OuterHeader, UdpEncap, WorkerId};
use convoy_wire::{IpVersion, PortRange, Prefix, Protocol, Spi};

use super::places::Places;

/// A gateway as its site file describes it: every value checked, every default filled in.
#[derive(Debug)]
pub struct Site {
    /// The file it was read from.
    pub path: PathBuf,
    /// Name of the gateway: letters, digits, `-` and `_`.
    pub name: String,
    /// Network namespace the gateway runs in: a name below `/run/netns` or an absolute path.
    pub namespace: Option<String>,
    /// Folder in which leases on sequence numbers are kept; always there when there are SAs.
    pub state_dir: Option<PathBuf>,
    /// UNIX socket on which the running gateway answers.
    pub control_socket: PathBuf,
    /// The plain side.
    pub plain: Plain,
    /// The wire side.
    pub wire: Wire,
    /// Worker threads.
    pub workers: Workers,
    /// Rules for the workers that own SAs of IKE daemons: the first that matches; all may where
    /// none does.
    pub worker_rules: Vec<WorkerRule>,
    /// Executor of the cryptography.
    pub crypto: CryptoEngine,
    /// Of about so many packets that an engine returns, the worker works on one again and compares; 0: none.
    pub verify_every: u32,
    /// Division of the cryptography between workers and engine.
    pub shared_work: SharedWork,
    /// With which drivers, where an SA does not say.
    pub drivers: DriverRules,
    /// File that records the packets of the wire side, if asked for.
    pub capture: Option<Capture>,
    /// Access of IKE daemons to the gateway, if they have any.
    pub xfrm: Option<Xfrm>,
    /// Address on which metrics are served, if they are.
    pub metrics: Option<Metrics>,
    /// SAs that protect packets leaving the gateway.
    pub outbound: Vec<OutboundSa>,
    /// SAs that open packets arriving at the gateway.
    pub inbound: Vec<InboundSa>,
    /// Policies.
    pub policies: Vec<Policy>,
    /// True if the packet filter keeps what policies protect from leaving in clear, whoever runs.
    pub leak_protection: bool,
    /// Bits of marks that leak protection uses.
    pub marks: Marks,
    /// True if SAs may have ciphers of old peers: 3DES and Camellia.
    pub legacy: bool,
    /// Files that keys were read from.
    pub key_files: Vec<PathBuf>,
    /// Positions of keys in the file, for [`Site::finding`].
    pub places: Places,
}

impl Site {
    /// True if some SA uses native ESP (IP protocol 50).
    #[must_use]
    pub fn uses_native_esp(&self) -> bool {
        self.associations().any(|sa| sa.protocol == IpsecProtocol::Esp && sa.encap.is_none())
    }

    /// True if some SA uses AH (IP protocol 51).
    #[must_use]
    pub fn uses_ah(&self) -> bool {
        self.associations().any(|sa| sa.protocol == IpsecProtocol::Ah)
    }

    /// True if some SA uses UDP encapsulation, on [`Wire::udp_port`].
    #[must_use]
    pub fn uses_udp(&self) -> bool {
        self.associations().any(|sa| sa.encap.is_some())
    }

    /// Settings that all SAs have in common, outbound ones first.
    pub fn associations(&self) -> impl Iterator<Item = &Association> {
        let outbound = self.outbound.iter().map(|sa| &sa.association);
        outbound.chain(self.inbound.iter().map(|sa| &sa.association))
    }

    /// Interfaces for what IKE daemons give an identifier; none where no daemons are served.
    #[must_use]
    pub fn xfrm_interfaces(&self) -> &[XfrmInterface] {
        self.xfrm.as_ref().map_or(&[], |xfrm| &xfrm.interfaces)
    }

    /// The policies that decide about packets of the plain interface.
    pub fn deciding_policies(&self) -> impl Iterator<Item = &Policy> {
        self.policies.iter().filter(|policy| policy.spd == self.plain.spd)
    }

    /// Networks that policies protect on the far side: what must be routed into the gateway.
    #[must_use]
    pub fn protected_networks(&self) -> Vec<Prefix> {
        let mut networks: Vec<Prefix> = self
            .deciding_policies()
            .filter(|policy| matches!(policy.action, Action::Protect { .. }))
            .flat_map(|policy| policy.remote.iter().flat_map(Addresses::prefixes))
            .collect();
        networks.sort();
        // Sorted, a network stands before all that it covers, and nothing else stands between.
        networks.dedup_by(|network, kept| kept.covers(network));
        networks
    }
}

/// Input and output of packets on one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// Through this host's network stack: a TUN interface on the plain side, sockets on the wire
    /// side.
    #[default]
    Host,
    /// Directly through an interface that is there already: `AF_PACKET` sockets.
    AfPacket,
    /// The same by AF_XDP sockets: faster, and the kernel never sees the packets.
    AfXdp,
}

impl Backend {
    /// The word for it in a site file, for backends that have one for both sides.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::AfPacket => "af_packet",
            Self::AfXdp => "af_xdp",
        }
    }

    /// True if the gateway itself receives from and sends through an interface.
    #[must_use]
    pub fn is_direct(self) -> bool {
        self != Self::Host
    }
}

/// The plain side: where inner packets come and go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plain {
    /// Input and output of inner packets.
    pub backend: Backend,
    /// Name of the interface, 1 to 15 bytes. A TUN interface is made, any other must exist.
    pub interface: String,
    /// Addresses the interface gets.
    pub addresses: Vec<InterfaceAddress>,
    /// MTU in bytes; `None`: the largest inner packet that fits all SAs.
    pub mtu: Option<u16>,
    /// Networks that are routed into the interface.
    pub routes: Routes,
    /// The database of the interface's own policies (RFC 4301 section 4.4.1); `None`: the common one.
    pub spd: Option<Arc<str>>,
    /// Forwarder of packets from one tunnel into another.
    pub between_tunnels: BetweenTunnels,
}

impl Plain {
    /// Name of the TUN interface: the plain side itself, or what the host's own packets go by where that is another
    /// interface, which the end of its name tells from others.
    #[must_use]
    pub fn tun(&self) -> String {
        const PREFIX: &str = "cv-";
        const MOST: usize = 15 - PREFIX.len();
        match self.backend {
            Backend::Host => self.interface.clone(),
            Backend::AfPacket | Backend::AfXdp => {
                let from = self.interface.len().saturating_sub(MOST);
                format!("{PREFIX}{}", self.interface.get(from..).unwrap_or_default())
            }
        }
    }
}

/// Forwarder of packets that come out of one tunnel and fall under a policy of another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BetweenTunnels {
    /// The gateway itself.
    #[default]
    Gateway,
    /// The host, to which the gateway gives all that comes out of tunnels.
    Host,
}

/// Access of IKE daemons to the gateway: they bring SAs and policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xfrm {
    /// UNIX socket on which the kernel's XFRM protocol is served.
    pub socket: PathBuf,
    /// Folder in memory that keeps what daemons negotiated while the gateway starts again; `None` for
    /// one beside the socket, if that is in memory.
    pub state: Option<PathBuf>,
    /// Interfaces for SAs and policies with an interface identifier, at most 64.
    pub interfaces: Vec<XfrmInterface>,
}

/// An interface for what daemons give an interface identifier (`if_id`): a TUN interface in the place of
/// a kernel's XFRM interface. What is routed into it asks the policies of that identifier alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XfrmInterface {
    /// Its name.
    pub name: String,
    /// The identifier, not 0.
    pub if_id: u32,
    /// Its addresses.
    pub addresses: Vec<InterfaceAddress>,
    /// Its MTU in bytes; `None` for what its SAs leave of the wire's.
    pub mtu: Option<u16>,
}

impl Xfrm {
    /// The folder beside the socket.
    #[must_use]
    pub fn usual_state(&self) -> PathBuf {
        self.socket.with_extension("state")
    }
}

/// Metrics for Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// Address and TCP port on which they are served.
    pub listen: SocketAddr,
}

/// An address of an interface with the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The address.
    pub addr: IpAddr,
    /// Bits of the prefix, 0 to 32 or 128.
    pub prefix_len: u8,
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.prefix_len)
    }
}

/// Networks that are routed into the plain interface if that is a TUN interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Routes {
    /// [`Site::protected_networks`].
    FromPolicies,
    /// These networks; none if empty.
    Explicit(Vec<Prefix>),
}

/// Native ESP and AH past the host's network stack by AF_XDP, beside sockets, which carry everything else and what this
/// way cannot carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FastPath {
    /// Sockets alone.
    Off,
    /// AF_XDP, as far as the host, the interface and the process's rights allow.
    #[default]
    Auto,
    /// AF_XDP, or no start.
    Needed,
}

/// The wire side: where protected packets come and go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wire {
    /// Input and output of protected packets.
    pub backend: Backend,
    /// Way beside sockets; [`FastPath::Off`] unless the backend is [`Backend::Host`].
    pub fast_path: FastPath,
    /// Interface the sockets are bound to, if any; always there unless the backend is
    /// [`Backend::Host`].
    pub interface: Option<String>,
    /// UDP port of encapsulated ESP (RFC 3948), usually 4500.
    pub udp_port: u16,
    /// Largest outer packet in bytes; `None`: as the interface says.
    pub mtu: Option<u16>,
}

/// Bits of marks that leak protection uses. No two of them meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// The mark of sockets whose packets it lets pass: the gateway's own, and those of IKE daemons.
    pub exempt: Mark,
    /// Four bits of packets' marks, beside each other: what was decided about them.
    pub packets: u32,
    /// Twelve bits of the marks of flows (conntrack), beside each other: what was decided about their packets.
    pub flows: u32,
}

impl Default for Marks {
    fn default() -> Self {
        Self { exempt: Mark::GATEWAY, packets: 0x00f0_0000, flows: 0x000f_ff00 }
    }
}

/// Worker threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workers {
    /// Number of threads, at least 1.
    pub count: u16,
    /// The CPU of each worker; empty: not pinned.
    pub pin: Vec<u16>,
    /// Never sleep: lowest latency for a whole CPU per worker.
    pub busy_poll: bool,
}

/// Executor of a gateway's cryptography.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CryptoEngine {
    /// Each worker, at once.
    Inline,
    /// Threads beside the workers.
    Pool {
        /// The CPU of each thread; `None`: not pinned.
        threads: Vec<Option<u16>>,
    },
    /// Idle workers help busy ones.
    Workers,
    /// A device made of software, for demonstrations.
    Model {
        /// Errors that it makes.
        faults: Vec<ModelFault>,
    },
    /// A device that DPDK drives.
    Cryptodev(Cryptodev),
}

/// Division of the cryptography between workers and an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedWork {
    /// Workers work, too, and give away what they do not keep up with.
    pub balance: bool,
    /// Longest time that a worker's own cryptography may take in a turn.
    pub budget: Option<Duration>,
}

/// A crypto device of DPDK's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cryptodev {
    /// A virtual device's name, or an address on PCI.
    pub device: String,
    /// Arguments of DPDK; none for those that suit the device.
    pub arguments: Option<Vec<String>>,
    /// The library between Convoy and DPDK; none for the one that is installed.
    pub library: Option<PathBuf>,
    /// Keys that the device may have at once.
    pub sessions: u32,
    /// Longest time that packets may be away before the device counts as lost.
    pub deadline: Duration,
}

impl CryptoEngine {
    /// Its name in a site file; `None` where workers do all themselves.
    #[must_use]
    pub const fn name(&self) -> Option<&'static str> {
        match self {
            Self::Inline => None,
            Self::Pool { .. } => Some("pool"),
            Self::Workers => Some("workers"),
            Self::Model { .. } => Some("model"),
            Self::Cryptodev(_) => Some("cryptodev"),
        }
    }

    /// The CPUs to which threads are to be bound.
    pub fn pinned(&self) -> impl Iterator<Item = u16> + '_ {
        let threads = if let Self::Pool { threads } = self { &threads[..] } else { &[] };
        threads.iter().copied().flatten()
    }
}

/// The workers of some SAs of IKE daemons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerRule {
    /// Over which these SAs are spread; at least one, none twice.
    pub workers: Vec<WorkerId>,
    /// SAs that the rule is for.
    pub sas: DaemonSas,
}

/// Something that a device made of software does wrong, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelFault {
    /// Type of the fault.
    pub kind: ModelFaultKind,
    /// Time of the fault, counted from the device's first packet.
    pub after: Duration,
}

/// Type of fault of a device made of software.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelFaultKind {
    /// It stops, and says nothing.
    Stall,
    /// It is gone, half-way through its writes.
    Remove,
}

impl fmt::Display for ModelFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ModelFaultKind::Stall => "stall",
            ModelFaultKind::Remove => "remove",
        };
        write!(f, "{kind}@{}ms", self.after.as_millis())
    }
}

/// A recording of the wire side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// The pcap file.
    pub file: PathBuf,
    /// It ends at this size in MiB.
    pub max_mib: u32,
}

/// Settings that both directions of an SA have in common.
#[derive(Debug)]
pub struct Association {
    /// Name, unique in the file.
    pub name: Arc<str>,
    /// SPI, at least 256.
    pub spi: Spi,
    /// ESP or AH.
    pub protocol: IpsecProtocol,
    /// Tunnel or transport.
    pub mode: Mode,
    /// Outer addresses.
    pub endpoints: Endpoints,
    /// UDP encapsulation, if any.
    pub encap: Option<UdpEncap>,
    /// Extended (64-bit) sequence numbers (RFC 4303 section 2.2.1).
    pub esn: bool,
    /// True if congestion marks pass the tunnel's ends (RFC 6040).
    pub ecn: bool,
    /// Suite, keys and salt.
    pub key: Arc<SaKeyMaterial>,
    /// Limits at which the SA should be replaced, and at which it ends.
    pub lifetime: Lifetime,
    /// The worker that owns the SA.
    pub worker: WorkerId,
    /// The driver that works with its key; `None`: as [`Site::drivers`] says.
    pub driver: Option<Arc<str>>,
}

/// An SA that protects packets leaving the gateway.
#[derive(Debug)]
pub struct OutboundSa {
    /// Settings that both directions have.
    pub association: Association,
    /// Construction of outer headers.
    pub outer: OuterHeader,
    /// Largest outer packet in bytes to begin with; `None`: as the wire side says.
    pub path_mtu: Option<u16>,
    /// To how many bytes inner packets are filled up (RFC 4303 section 2.7); 0 for none.
    pub pad_to: u16,
    /// After how much silence a dummy packet is sent (RFC 4303 section 2.6).
    pub dummy_every: Option<Duration>,
    /// Sequence numbers leased at a time.
    pub lease_block: u64,
}

impl OutboundSa {
    /// Largest outer packet in bytes to begin with, where the wire side says `wire_mtu`.
    #[must_use]
    pub fn path_mtu_on(&self, wire_mtu: u16) -> u16 {
        let least = least_mtu(self.association.endpoints.remote);
        self.path_mtu.unwrap_or_else(|| wire_mtu.max(least))
    }
}

/// Smallest MTU in bytes that is believed of a path to this address: every IPv6 link takes so many (RFC
/// 8200 section 5), and every IPv4 host (RFC 791 section 3.1).
#[must_use]
pub fn least_mtu(to: IpAddr) -> u16 {
    if to.is_ipv4() { 576 } else { 1280 }
}

/// An SA that opens packets arriving at the gateway.
#[derive(Debug)]
pub struct InboundSa {
    /// Settings that both directions have.
    pub association: Association,
    /// Anti-replay window in packets: 0 (off) or 32 to 65,536.
    pub replay_window: u32,
}

/// Rule for packets that match selectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Name, unique in the file.
    pub name: Arc<str>,
    /// Treatment of the packets.
    pub action: Action,
    /// Addresses on this side; never empty.
    pub local: Vec<Addresses>,
    /// Addresses on the far side; never empty.
    pub remote: Vec<Addresses>,
    /// Protocol; `None`: any.
    pub protocol: Option<Protocol>,
    /// Fields of the protocol's own that must match.
    pub upper: Upper,
    /// Of overlapping policies the one with the lower number decides.
    pub priority: u32,
    /// True if its outbound SA is made on demand: packets wait for it and control is asked for one.
    pub acquire: bool,
    /// The database it is in; `None`: the common one.
    pub spd: Option<Arc<str>>,
}

impl Policy {
    /// Pairs of local and remote addresses of one IP version.
    pub fn address_pairs(&self) -> impl Iterator<Item = (Addresses, Addresses)> + '_ {
        self.local.iter().flat_map(|local| {
            let same = move |remote: &&Addresses| remote.version() == local.version();
            self.remote.iter().filter(same).map(move |remote| (*local, *remote))
        })
    }
}

/// Treatment of a policy's packets (RFC 4301 section 4.4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// ESP by these SAs.
    Protect {
        /// The SA for packets that leave; without one they are discarded.
        sa_out: Option<Arc<str>>,
        /// The SAs that packets may arrive through; several while a key is being replaced.
        sa_in: Vec<Arc<str>>,
    },
    /// Forward unprotected.
    Bypass,
    /// Drop.
    Discard,
}

impl Action {
    /// The RFC's word for it.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Protect { .. } => "protect",
            Self::Bypass => "bypass",
            Self::Discard => "discard",
        }
    }
}

/// Fields of the upper layer that a policy asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upper {
    /// Nothing.
    Any,
    /// Ports, of a protocol that has them.
    Ports {
        /// Port on this side.
        local: PortRange,
        /// Port on the far side.
        remote: PortRange,
    },
    /// ICMP or ICMPv6 type and code.
    Icmp {
        /// First and last type.
        types: (u8, u8),
        /// First and last code.
        codes: (u8, u8),
    },
}

/// Addresses of a selector: a network or a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Addresses {
    first: IpAddr,
    last: IpAddr,
}

impl Addresses {
    /// The addresses of a network.
    #[must_use]
    pub fn network(prefix: Prefix) -> Self {
        Self { first: prefix.addr(), last: prefix.last() }
    }

    /// The addresses from `first` to `last`; `None` when reversed or of two IP versions.
    #[must_use]
    pub fn range(first: IpAddr, last: IpAddr) -> Option<Self> {
        (first.is_ipv4() == last.is_ipv4() && first <= last).then_some(Self { first, last })
    }

    /// The lowest address.
    #[must_use]
    pub fn first(&self) -> IpAddr {
        self.first
    }

    /// The highest address.
    #[must_use]
    pub fn last(&self) -> IpAddr {
        self.last
    }

    /// IPv4 or IPv6.
    #[must_use]
    pub fn version(&self) -> IpVersion {
        IpVersion::of_addr(self.first)
    }

    /// True if some address lies in both.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.version() == other.version() && self.first <= other.last && other.first <= self.last
    }

    /// True if this is the one address `addr`.
    #[must_use]
    pub fn is_only(&self, addr: IpAddr) -> bool {
        self.first == addr && self.last == addr
    }

    /// The fewest networks that together are these addresses.
    #[must_use]
    pub fn prefixes(&self) -> Vec<Prefix> {
        let width = self.version().address_bits();
        let (mut at, last) = (number(self.first), number(self.last));
        let mut prefixes = Vec::new();
        loop {
            // The largest aligned block that begins here and does not pass the end.
            let mut host_bits = u8::try_from(at.trailing_zeros()).unwrap_or(128).min(width);
            let top =
                |bits: u8| at | 1u128.checked_shl(bits.into()).map_or(u128::MAX, |size| size - 1);
            while host_bits > 0 && top(host_bits) > last {
                host_bits -= 1;
            }
            prefixes.extend(Prefix::containing(address(self.first, at), width - host_bits).ok());
            match top(host_bits).checked_add(1) {
                Some(next) if next <= last => at = next,
                _ => return prefixes,
            }
        }
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.prefixes().as_slice() {
            [one] => one.fmt(f),
            _ => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

fn number(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(v4) => v4.to_bits().into(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn address(like: IpAddr, number: u128) -> IpAddr {
    match (like, u32::try_from(number)) {
        (IpAddr::V4(_), Ok(bits)) => IpAddr::V4(bits.into()),
        _ => IpAddr::V6(number.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: &str, last: &str) -> Addresses {
        Addresses::range(first.parse().unwrap(), last.parse().unwrap()).unwrap()
    }

    fn shown(addresses: Addresses) -> Vec<String> {
        addresses.prefixes().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_range_is_cut_into_the_fewest_networks() {
        assert_eq!(
            shown(range("10.0.0.1", "10.0.0.6")),
            ["10.0.0.1/32", "10.0.0.2/31", "10.0.0.4/31", "10.0.0.6/32"]
        );
        assert_eq!(shown(range("0.0.0.0", "255.255.255.255")), ["0.0.0.0/0"]);
        assert_eq!(shown(range("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")), ["::/0"]);
        assert_eq!(shown(range("255.255.255.255", "255.255.255.255")), ["255.255.255.255/32"]);
        assert_eq!(shown(range("2001:db8::", "2001:db8::ffff")), ["2001:db8::/112"]);
    }

    #[test]
    fn ranges_print_as_networks_where_they_are() {
        assert_eq!(range("10.0.0.0", "10.0.0.255").to_string(), "10.0.0.0/24");
        assert_eq!(range("10.0.0.1", "10.0.0.6").to_string(), "10.0.0.1-10.0.0.6");
    }

    #[test]
    fn reversed_and_mixed_ranges_do_not_exist() {
        assert_eq!(
            Addresses::range("10.0.0.2".parse().unwrap(), "10.0.0.1".parse().unwrap()),
            None
        );
        assert_eq!(Addresses::range("10.0.0.2".parse().unwrap(), "::1".parse().unwrap()), None);
    }
}
