//! No packet to a protected network leaves in clear.
//!
//! A gateway's plain side is a TUN interface: what goes into it leaves as ESP or not at all. The
//! fence leads packets there, and keeps them from going anywhere else, also while the gateway is
//! being started, after it was killed, and when others change routes. It has two locks, and either
//! holds alone:
//!
//! * **Routes.** Two routing tables of its own, and `ip rule`s ahead of those of the main table and
//!   of strongSwan's (220). A protected network has a route into the TUN interface, and beneath it,
//!   with a higher metric, an `unreachable` one, which stays when the interface has gone. A bypassed
//!   network has a `throw` route, so that the look-up goes on in the tables behind. The second table
//!   is for packets that come out of the TUN interface: for them the networks behind the gateway
//!   are open, also within a larger network that is protected.
//! * **The packet filter.** An `nf_tables` chain behind all routing (`postrouting`), which sees what
//!   the host sends and what it forwards. It drops what is sent to a closed address through any
//!   interface but the TUN interface. It has as many rules for ten thousand networks as for one; the
//!   addresses are in sets of ranges, which follow the claims. It asks nothing of routes and rules
//!   on purpose, for those may be what went wrong. It lies ahead of all that changes sources, as source
//!   NAT does, so [`Exceptions`] are for the addresses that senders wrote, as policies are. Behind that a
//!   second one drops what was given a source that makes it a packet for a tunnel: a guarded one to
//!   a closed address, or a withheld pair.
//!
//!   Two more chains (`input`, `forward`) look at what arrives, as a kernel asks its policies of every
//!   packet (RFC 4301 section 5.2): what a protected network sends to a guarded one is dropped unless
//!   it comes out of the TUN interface.
//!
//!   A last one (`clamp`) has connections through tunnels begin with segments that fit.
//!
//! Past both go packets of the host's sockets that bear a [`Mark`]: the gateway's own, and those of IKE daemons, else
//! a policy that covers the peer's address would lock the tunnel out. To the UDP ports of IKE (500 and 4500) routes
//! have a way around as well, which the reverse path filter asks; the packet filter has none. Neighbour Discovery stays open, and loopback as it is.
//!
//! Multicast, broadcast and link-local addresses are nearby, however wide the protected network that holds
//! them: routes leave them alone as long as no claim names them, so that the host can speak to its own links.
//! There the filter holds alone: it drops what is sent and forwarded to them from an address that a policy
//! is for ([`Treatment::Sender`]), as a kernel would have that protected. Where there is no filter, routes are
//! as those of all others, but who names an interface goes past these, and so does what is sent to groups.
//!
//! Those who send in clear and lie within a protected network are strangers, also when that network is
//! everything and they are on the gateway's own link: as with a kernel, a policy that bypasses is what
//! lets neighbours in. Let in for the host is what peers send to the gateway and to IKE: ESP, AH, UDP to
//! their ports, errors about these, and Neighbour Discovery. Networks that are protected only in part,
//! by protocol or ports, are not guarded.
//!
//! The kernel's reverse path filter (`rp_filter`) asks the same tables, for ARP, too. Where the address
//! of a neighbour or of a peer is protected, it must not be strict, and while there is no TUN interface
//! only 0 lets their ARP requests and native ESP in; IKE and ESP in UDP it knows by their ports.
//!
//! Packets that no hook of IP sees are not stopped: those of packet sockets (`packet(7)`), of bridges (where
//! `br_netfilter` shows them to IP, they are judged as if they were forwarded), and of flows that were offloaded
//! into a flow table before their destination was closed.

mod book;
mod chain;
mod clamp;
mod exceptions;
mod filter;
mod findings;
mod inbound;
mod pairs;
mod routes;
mod rules;

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use ipnet::{IpNet, Ipv4Subnets, Ipv6Subnets};

use self::{
    book::{Book, VIEWS, View, first, last},
    filter::{Covers, Differences, Filter, SETS},
    routes::Way,
};
pub use self::{
    clamp::Clamp,
    exceptions::{Exceptions, Pair},
    findings::{Finding, Look, Lookup, findings},
    inbound::admitted,
};
use crate::{
    Cause, HostError, LinkName, Network,
    netlink::{
        Refusal,
        nft::{Cover, Range},
    },
};

/// Who made a rule or a route, in `ip rule` and `ip route`: a number that no routing daemon uses
/// (`rtnetlink.h`).
const PROTOCOL: u8 = 0xc5;

/// Multicast, link-local, broadcast. None lies within another.
const NEARBY: [&str; 5] =
    ["224.0.0.0/4", "169.254.0.0/16", "255.255.255.255/32", "ff00::/8", "fe80::/10"];

/// How often, and how long in between, a table is tried for that another process still owns.
const TRIES: u32 = 50;
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// A mark of packets (`SO_MARK` in `socket(7)`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The value; bits outside of the mask are ignored.
    pub value: u32,
    /// The bits that count.
    pub mask: u32,
}

impl Mark {
    /// What a gateway's own packets bear: 0xc5000000/0xff000000.
    pub const GATEWAY: Self = Self { value: 0xc500_0000, mask: 0xff00_0000 };

    /// The bits of the value that count.
    const fn masked(self) -> u32 {
        self.value & self.mask
    }
}

/// Where a fence stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FenceConfig {
    /// The TUN interface; it need not exist yet. The filter's table is named after it.
    pub tun: LinkName,
    /// The first of two routing tables, 1 to 252 or from 256 on, which nobody else uses.
    pub table: u32,
    /// Priority of the first `ip rule`; the twelve from there on are the fence's.
    pub priority: u32,
    /// What the gateway's own packets bear.
    pub mark: Mark,
    /// UDP port that ESP comes to, besides those of IKE.
    pub udp_port: u16,
}

impl FenceConfig {
    /// A fence for an interface in tables 4500 and 4501, with priorities 210 to 221, the mark
    /// 0xc5000000/0xff000000 and UDP port 4500. Gateways that share a network namespace need tables and priorities
    /// of their own.
    #[must_use]
    pub const fn new(tun: LinkName) -> Self {
        let mark = Mark::GATEWAY;
        Self { tun, table: 4500, priority: 210, mark, udp_port: 4500 }
    }

    /// Those of [`VIEWS`].
    fn tables(&self) -> [u32; 2] {
        [self.table, self.table.saturating_add(1)]
    }

    /// Name of the filter's table, for example in `nft list table inet convoy-convoy0`.
    #[must_use]
    pub fn filter_table(&self) -> String {
        format!("convoy-{}", self.tun)
    }
}

/// What is to become of packets to a network. Of several prefixes around an address the longest
/// decides; of several claims on one network, protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Treatment {
    /// They go into the TUN interface or nowhere: the remote network of a policy that protects or
    /// discards. Convoy's own database then decides by the whole selector.
    Protected {
        /// Source address that the host prefers for packets of its own. One that is not, or no more,
        /// the host's is left out.
        source: Option<IpAddr>,
    },
    /// They leave in clear: the remote network of a policy that bypasses.
    Bypassed,
    /// A network behind the gateway, the local one of a policy: packets out of tunnels reach it,
    /// also where it lies within a protected network. For all others this says nothing.
    Local,
    /// What a protected network sends to this one comes out of a tunnel or is dropped: the local one
    /// of a policy that protects or discards all of what passes between the two.
    Guarded,
    /// What this network sends to multicast, broadcast and link-local addresses within a protected one does
    /// not leave in clear: the local one of a policy that protects or discards some of it
    /// ([`holds_nearby`]).
    Sender,
}

/// One policy's wish for one network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claim {
    /// The network; bits beyond the prefix are ignored.
    pub network: IpNet,
    /// What is to become of packets to it.
    pub treatment: Treatment,
}

impl Claim {
    /// Packets to a network go into the TUN interface or nowhere.
    #[must_use]
    pub const fn protected(network: IpNet, source: Option<IpAddr>) -> Self {
        Self { network, treatment: Treatment::Protected { source } }
    }
}

/// What [`Fence::repair`] found missing and made again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Repaired {
    /// `ip rule`s.
    pub rules: usize,
    /// Networks whose routes were not as they should be.
    pub networks: usize,
    /// The packet filter was not as it should be.
    pub filter: bool,
}

impl Repaired {
    /// Whether there was anything to repair.
    #[must_use]
    pub fn any(&self) -> bool {
        *self != Self::default()
    }
}

/// A fence that stands. Dropping it leaves it closed, as [`Fence::leave_closed`] does: that is what
/// the death of a process amounts to, too.
#[derive(Debug)]
pub struct Fence {
    config: FenceConfig,
    network: Network,
    filter: Result<Filter, Refusal>,
    book: Book,
    /// What the sets are to hold, in the order of [`SETS`].
    covers: Covers,
    /// What was asked for, and what of it is made.
    exceptions: Exceptions,
    made: Exceptions,
    /// Networks that nothing out of the TUN interface reaches, whatever the book says.
    shut: BTreeSet<IpNet>,
}

impl Fence {
    /// Raises a fence in the calling thread's network namespace, around nothing at first. What an
    /// earlier life left closed stays so until it is claimed again or [`Fence::settle`] is called. What
    /// it had opened within that is closed, too, until it is claimed again.
    ///
    /// Another process that holds the packet filter's table gets a second to end.
    ///
    /// A kernel without `nf_tables` is no error: [`Fence::filter_trouble`] tells.
    ///
    /// # Errors
    /// [`HostError::Netlink`], [`HostError::Fence`]. What was made by then stays, and is closed.
    pub fn raise(config: FenceConfig) -> Result<Self, HostError> {
        let filter = Filter::open(&config);
        Self::raise_with(config, filter)
    }

    fn raise_with(config: FenceConfig, filter: Result<Filter, Refusal>) -> Result<Self, HostError> {
        let mut fence = Self {
            config,
            network: Network::open()?,
            filter,
            book: Book::default(),
            covers: Default::default(),
            exceptions: Exceptions::default(),
            made: Exceptions::default(),
            shut: BTreeSet::new(),
        };
        let nearby: Vec<_> = nearby().collect();
        fence.book.leave_open(&nearby, true);
        let opened = fence.adopt()?;
        let all: BTreeSet<_> = fence.book.networks().chain(opened).chain(nearby.clone()).collect();
        fence.cover(&all);
        fence.make_filter()?;
        // Routes know destinations alone: who sends there only a filter can tell.
        fence.book.leave_open(&nearby, fence.filter.is_ok());
        fence.lay(&all)?;
        fence.make_rules("make the fence's rules")?;
        Ok(fence)
    }

    /// Where it stands.
    #[must_use]
    pub fn config(&self) -> &FenceConfig {
        &self.config
    }

    /// Why there is no packet filter, and routes alone must hold, if that is so.
    #[must_use]
    pub fn filter_trouble(&self) -> Option<&Refusal> {
        self.filter.as_ref().err()
    }

    /// Claims networks. A claim counts as often as it is made.
    ///
    /// # Errors
    /// As [`Fence::change`].
    pub fn add(&mut self, claims: &[Claim]) -> Result<(), HostError> {
        self.change(claims, &[])
    }

    /// Takes claims back, each once. One that was not made is none.
    ///
    /// # Errors
    /// As [`Fence::change`].
    pub fn remove(&mut self, claims: &[Claim]) -> Result<(), HostError> {
        self.change(&[], claims)
    }

    /// Makes claims and takes others back, as one change: a network that is protected before and
    /// after is so in between.
    ///
    /// # Errors
    /// [`HostError::Fence`] when the kernel refuses some of it. The rest has been done, the claims
    /// count, and [`Fence::repair`] tries again.
    pub fn change(&mut self, add: &[Claim], remove: &[Claim]) -> Result<(), HostError> {
        // Policies of one network here and many there say the same of it again and again.
        let mut concerned = BTreeSet::new();
        for (claims, is_added) in [(add, true), (remove, false)] {
            let changes = claims.iter().filter(|claim| self.book.count(claim, is_added));
            concerned.extend(changes.map(|claim| claim.network.trunc()));
        }
        self.follow(&concerned)
    }

    /// Networks that are as an earlier life left them, because nobody has claimed them since.
    pub fn left_behind(&self) -> impl Iterator<Item = IpNet> {
        self.book.left_behind()
    }

    /// Opens what an earlier life left closed and nobody has claimed since. To be called when all who
    /// make claims are known to have made them.
    ///
    /// # Errors
    /// As [`Fence::change`].
    pub fn settle(&mut self) -> Result<(), HostError> {
        let concerned = self.book.settle();
        self.follow(&concerned.into_iter().collect())
    }

    /// Makes again what others have removed or changed, and the routes that vanished while the TUN
    /// interface was down or gone. To be called when it comes up, and when [`crate::Watch`] hears of
    /// routes or rules. It changes nothing, and so causes no news, when there is nothing to repair.
    ///
    /// # Errors
    /// [`HostError::Netlink`], [`HostError::Fence`].
    pub fn repair(&mut self) -> Result<Repaired, HostError> {
        let mut repaired = Repaired::default();
        let mut filtered = Ok(());
        if let Ok(filter) = &mut self.filter {
            let outcome = match filter.holds(&self.covers, &self.made) {
                Ok(true) => Ok(()),
                Ok(false) => {
                    repaired.filter = true;
                    self.make_table()
                }
                Err(refusal) => Err(refusal),
            };
            filtered =
                outcome.map_err(|refusal| failed("repair the packet filter's table", refusal, 0));
        }
        let tun = self.tun()?;
        let there: Vec<_> = routes::present(&mut self.network.rtnl, self.config.tables())?;
        let there: std::collections::HashSet<_> = there.into_iter().collect();
        let lacks = |network: &IpNet| {
            VIEWS.into_iter().zip(self.config.tables()).any(|(view, table)| {
                let state = self.book.state(network, view);
                let expected = routes::expected(table, *network, state, tun);
                expected.iter().any(|laid| !there.contains(laid))
            })
        };
        let concerned: BTreeSet<_> = self.book.networks().filter(lacks).collect();
        repaired.networks = concerned.len();
        self.lay(&concerned)?;
        repaired.rules = self.make_rules("repair the fence's rules")?;
        // Routes hold meanwhile.
        filtered.map(|()| repaired)
    }

    /// Packets that the packet filter has stopped since it was made: each would have left in clear, as
    /// the routes did not hold them. To multicast, broadcast and link-local addresses they never do.
    ///
    /// # Errors
    /// [`HostError::Netlink`].
    pub fn stopped(&mut self) -> Result<u64, HostError> {
        match &mut self.filter {
            Ok(filter) => Ok(filter.stopped()?),
            Err(_) => Ok(0),
        }
    }

    /// Packets that were not let in since the packet filter was made: they came in clear from where
    /// only tunnels may bring them.
    ///
    /// # Errors
    /// [`HostError::Netlink`].
    pub fn refused(&mut self) -> Result<u64, HostError> {
        match &mut self.filter {
            Ok(filter) => Ok(filter.refused()?),
            Err(_) => Ok(0),
        }
    }

    /// Takes everything back: from now on packets go where the host's other routes lead.
    ///
    /// # Errors
    /// [`HostError::Netlink`] or [`HostError::Fence`]; some of the fence may still stand then.
    pub fn open_up(mut self) -> Result<(), HostError> {
        remove_routes(&mut self.network, &self.config)?;
        if let Ok(filter) = &mut self.filter {
            filter.remove().map_err(|r| failed("remove the packet filter's table", r, 0))?;
        }
        Ok(())
    }

    /// Removes the rules and routes of a fence alone, in the calling thread's network namespace: another kind of
    /// protection does not need them.
    ///
    /// # Errors
    /// [`HostError::Netlink`] or [`HostError::Fence`]; some may still be there then.
    pub fn remove_routes(config: &FenceConfig) -> Result<(), HostError> {
        remove_routes(&mut Network::open()?, config)
    }

    /// Ends the gateway's part and leaves protected networks closed: the `unreachable` routes, the
    /// rules and the packet filter stay until a later life settles, or opens up.
    pub fn leave_closed(self) {}

    fn make_filter(&mut self) -> Result<(), HostError> {
        let doing = "make the packet filter's table";
        for tries_left in (0..TRIES).rev() {
            let Err(refusal) = self.make_table() else { return Ok(()) };
            let Ok(filter) = &mut self.filter else { return Ok(()) };
            match refusal.errno {
                // The kernel has no packet filter of this kind.
                nix::libc::EOPNOTSUPP | nix::libc::EINVAL | nix::libc::EPROTONOSUPPORT => {
                    self.filter = Err(refusal);
                }
                // Who may ask may change, too, but for what another owns; that one may be ending.
                nix::libc::EPERM if filter.present().is_ok() => {
                    if tries_left == 0 {
                        let cause =
                            Cause::Conflict("one that another running process holds".into());
                        return Err(HostError::Fence { doing: doing.into(), cause, more: 0 });
                    }
                    std::thread::sleep(BETWEEN_TRIES);
                }
                _ => return Err(failed(doing, refusal, 0)),
            }
        }
        Ok(())
    }

    /// Makes the rules that are missing; how many.
    fn make_rules(&mut self, doing: &str) -> Result<usize, HostError> {
        rules::make(&mut self.network.rtnl, &self.config, &self.made.open)
            .map_err(|refusal| failed(doing, refusal, 0))
    }

    /// Takes over what an earlier life left closed. What it left open, whose routes are to go.
    fn adopt(&mut self) -> Result<Vec<IpNet>, HostError> {
        let laid = routes::present(&mut self.network.rtnl, self.config.tables())?;
        let mut opened = Vec::new();
        for one in laid {
            match one.way {
                Way::Onward => opened.push(one.network),
                _ => self.book.adopt(one.network, View::Out),
            }
        }
        let Ok(filter) = &mut self.filter else { return Ok(opened) };
        let Ok(Some(there)) = filter.present() else { return Ok(opened) };
        // Someone may have emptied the tables meanwhile; what the sets know is still to be kept.
        for ((set, there), whole) in SETS.iter().zip(&there).zip(whole_space()) {
            if set.view == View::FromTun {
                continue;
            }
            let known: Cover = self.book.closed_within(whole, set.view).into_iter().collect();
            for network in there.without(&known).into_iter().flat_map(|r| prefixes(r, set.is_v4)) {
                self.book.adopt(network, set.view);
            }
        }
        Ok(opened)
    }

    /// Makes the kernel as the book says, for networks that have changed.
    fn follow(&mut self, concerned: &BTreeSet<IpNet>) -> Result<(), HostError> {
        let differences = self.cover(concerned);
        let outcome = match &mut self.filter {
            // One change that failed would make all later ones fail.
            Ok(filter) if !filter.is_current() => self
                .make_table()
                .map_err(|refusal| failed("make the packet filter's table anew", refusal, 0)),
            Ok(filter) => filter
                .change_sets(&differences)
                .map_err(|refusal| failed("change the packet filter's sets", refusal, 0)),
            Err(_) => Ok(()),
        };
        self.lay(concerned).and(outcome)
    }

    /// Works out what the sets are to hold, and what changes.
    fn cover(&mut self, concerned: &BTreeSet<IpNet>) -> Differences {
        let mut differences: Differences = Default::default();
        for ((set, cover), difference) in SETS.iter().zip(&mut self.covers).zip(&mut differences) {
            let mut done: Option<IpNet> = None;
            for network in concerned.iter().filter(|network| set.has(network)) {
                // A network within one that has just been worked out is done, too.
                if !done.is_some_and(|done| done.contains(network)) {
                    for part in set.parts_of(network) {
                        let closed = self.book.closed_within(part, set.view);
                        cover.set((first(&part), last(&part)), &closed, difference);
                    }
                    let shut = self.shut.iter().filter(|_| set.view == View::FromTun);
                    for shut in shut.filter_map(|shut| common(shut, network)) {
                        let range = (first(&shut), last(&shut));
                        cover.set(range, &[range], difference);
                    }
                    done = Some(*network);
                }
            }
        }
        differences
    }

    fn lay(&mut self, concerned: &BTreeSet<IpNet>) -> Result<(), HostError> {
        if concerned.is_empty() {
            return Ok(());
        }
        let tun = self.tun()?;
        let mut steps = Vec::new();
        for network in concerned {
            for (view, table) in VIEWS.into_iter().zip(self.config.tables()) {
                let state = self.book.state(network, view);
                steps.extend(routes::steps(table, *network, state, tun));
            }
        }
        complain("lay routes to", routes::lay(&mut self.network.rtnl, steps)?)
    }

    /// Index of the TUN interface, while there is one and it is up.
    fn tun(&mut self) -> Result<Option<u32>, HostError> {
        match self.network.link(&self.config.tun) {
            Ok(link) => Ok(link.up.then_some(link.index)),
            Err(HostError::NoSuchLink { .. }) => Ok(None),
            Err(other) => Err(other),
        }
    }
}

fn remove_routes(network: &mut Network, config: &FenceConfig) -> Result<(), HostError> {
    rules::remove_all(&mut network.rtnl, config)
        .map_err(|refusal| failed("remove the fence's rules", refusal, 0))?;
    let there = routes::present(&mut network.rtnl, config.tables())?;
    let gone = there.iter().flat_map(|laid| routes::steps(laid.table, laid.network, None, None));
    complain("remove routes to", routes::lay(&mut network.rtnl, gone.collect())?)
}

/// Whether a fence's packet filter stands, in the calling thread's network namespace. It changes nothing.
///
/// # Errors
/// [`HostError::Fence`] when this kernel has no `nf_tables`, or this process may not look
/// ([`HostError::is_denied`]).
pub fn filter_stands(config: &FenceConfig) -> Result<bool, HostError> {
    let there = Filter::open(config).and_then(|mut filter| filter.present());
    Ok(there.map_err(|refusal| failed("look at the packet filter", refusal, 0))?.is_some())
}

/// Whether there are multicast, broadcast or link-local addresses within a network.
#[must_use]
pub fn holds_nearby(network: &IpNet) -> bool {
    nearby().any(|nearby| common(&nearby, network).is_some())
}

fn nearby() -> impl Iterator<Item = IpNet> {
    NEARBY.iter().filter_map(|text| text.parse().ok())
}

/// What two networks have in common: one of them, if anything.
fn common(one: &IpNet, other: &IpNet) -> Option<IpNet> {
    let inner = |inner: &IpNet, outer: &IpNet| outer.contains(inner).then_some(*inner);
    inner(one, other).or_else(|| inner(other, one))
}

/// All addresses of each set's family.
fn whole_space() -> impl Iterator<Item = IpNet> {
    SETS.iter().map(|set| {
        if set.is_v4 { ipnet::Ipv4Net::default().into() } else { ipnet::Ipv6Net::default().into() }
    })
}

/// The fewest prefixes that make up a range.
fn prefixes((from, to): Range, is_v4: bool) -> Vec<IpNet> {
    if is_v4 {
        let end = |n: u128| u32::try_from(n).unwrap_or(u32::MAX).into();
        Ipv4Subnets::new(end(from), end(to), 0).map(IpNet::from).collect()
    } else {
        Ipv6Subnets::new(from.into(), to.into(), 0).map(IpNet::from).collect()
    }
}

fn failed(doing: &str, refusal: Refusal, more: usize) -> HostError {
    HostError::Fence { doing: doing.into(), cause: Cause::from(refusal), more }
}

fn complain(doing: &str, failures: Vec<(IpNet, Refusal)>) -> Result<(), HostError> {
    let more = failures.len().saturating_sub(1);
    match failures.into_iter().next() {
        Some((network, refusal)) => Err(failed(&format!("{doing} {network}"), refusal, more)),
        None => Ok(()),
    }
}
