//! What the policies of IKE daemons mean to this host's routes: the fence around what they protect.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::Context as _;
use convoy_control::site::Site;
use convoy_control::status::LeakProtection;
use convoy_control::xfrm::{Cover, Covered};
use convoy_host::fence::{Exceptions, holds_nearby};
use convoy_host::{
    Claim, Clamp, Fence, FenceConfig, Finding, LinkName, Look, Network, Treatment, findings,
};
use convoy_wire::Prefix;

use super::claims::{Change, Claims, MOST_WITHHELD, net};
use super::interfaces;

const NOT_CLAMPED: &str = "the packet filter here cannot fit TCP connections to the MTU of tunnels (nf_tables, \
                           nft_rt, nft_exthdr); they depend on ICMP messages that get through";

/// The fence of a gateway, and how much it guards.
#[derive(Debug)]
pub(super) struct Guard {
    /// There until the end.
    fence: Option<Fence>,
    network: Network,
    claims: Claims,
    /// What policies allow and the fence has to keep closed, in words.
    closed: BTreeSet<String>,
    /// What worked against the fence at the last look.
    found: Vec<Finding>,
    /// Packets that would have left in clear, and such as came in so.
    counts: [Count; 2],
}

/// A counter of the packet filter, which begins anew when the filter is made again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    pub(super) total: u64,
    last: u64,
}

impl Count {
    pub(super) fn note(&mut self, now: u64) {
        self.total += now.checked_sub(self.last).unwrap_or(now);
        self.last = now;
    }
}

impl Guard {
    /// Raises the fence around what an earlier life left closed.
    pub(super) fn raise(site: &Site) -> anyhow::Result<Self> {
        let link = LinkName::new(&site.plain.interface)?;
        let config = FenceConfig { udp_port: site.wire.udp_port, ..FenceConfig::new(link) };
        // A gateway with keys of its own may have stood here before.
        convoy_leak_protection::remove_routes(super::leaks::config(site)?)?;
        let mut fence = Fence::raise(config)?;
        let tunnels = site.xfrm_interfaces().iter().map(|interface| LinkName::new(&interface.name));
        fence.clamp(tunnels.collect::<Result<Vec<_>, _>>()?)?;
        if let Some(trouble) = fence.filter_trouble() {
            tracing::warn!(
                "there is no packet filter (nf_tables) here: routes alone keep protected packets from \
                 leaving in clear, and nothing keeps such packets from coming in: {trouble}"
            );
        }
        if let Some(trouble) = fence.clamp_trouble() {
            tracing::warn!("{NOT_CLAMPED}: {trouble}");
        }
        let left: Vec<_> = fence.left_behind().map(|network| network.to_string()).collect();
        if !left.is_empty() {
            tracing::warn!(
                "{} stay closed, as a gateway before left them, until a policy names them again or \
                 all policies are flushed",
                left.join(", ")
            );
        }
        let takes_exceptions = fence.takes_exceptions();
        Ok(Self {
            fence: Some(fence),
            network: Network::open()?,
            claims: Claims::new(takes_exceptions),
            closed: BTreeSet::new(),
            found: Vec::new(),
            counts: [Count::default(); 2],
        })
    }

    /// Looks at the packet filter's counters. To be called about once a second.
    pub(super) fn count(&mut self) -> anyhow::Result<()> {
        let Some(fence) = &mut self.fence else { return Ok(()) };
        let now = [fence.stopped()?, fence.refused()?];
        self.counts.iter_mut().zip(now).for_each(|(count, now)| count.note(now));
        Ok(())
    }

    /// Packets that were stopped from leaving in clear, and such as were refused, by name.
    pub(super) fn counts(&self) -> [(&'static str, u64); 2] {
        let [stopped, refused] = self.counts.map(|count| count.total);
        [("fence.stopped", stopped), ("fence.refused", refused)]
    }

    /// For `convoy status`.
    pub(super) fn report(&self) -> LeakProtection {
        let [stopped, refused] = self.counts.map(|count| count.total);
        let without = self.fence.as_ref().and_then(|fence| fence.filter_trouble());
        match without {
            None => LeakProtection {
                is_on: true,
                detail: format!(
                    "what policies of IKE daemons protect, {stopped} packets kept in and {refused} out"
                ),
            },
            Some(why) => {
                LeakProtection { is_on: false, detail: format!("routes alone hold: {why}") }
            }
        }
    }

    /// What works against the fence at present, in words.
    pub(super) fn troubles(&self) -> impl Iterator<Item = String> + '_ {
        let found = self.found.iter().map(ToString::to_string);
        found.chain(self.closed.iter().cloned())
    }

    /// Looks for what works against the fence, and says what has come and gone.
    fn look_around(&mut self, peers: &[IpAddr]) -> anyhow::Result<()> {
        let Some(fence) = &self.fence else { return Ok(()) };
        let config = fence.config();
        let look = Look::around(config, peers)?;
        let protected = look.closed(config);
        let mut found = findings(&look, config, &protected);
        // A host without networks behind it need not forward.
        found.retain(|finding| !matches!(finding, Finding::ForwardingOff { .. }));
        for finding in found.iter().filter(|finding| !self.found.contains(finding)) {
            tracing::warn!("{finding}");
        }
        for finding in self.found.iter().filter(|finding| !found.contains(finding)) {
            tracing::info!("put right: {finding}");
        }
        self.found = found;
        Ok(())
    }

    /// Follows policies that came and went.
    pub(super) fn follow(
        &mut self,
        covered: &[Covered],
        uncovered: &[Covered],
    ) -> anyhow::Result<()> {
        let Self { network, claims, .. } = self;
        let change = claims.follow(covered, uncovered, |policy| claims_of(policy, network));
        let outcome = self.carry_out(change);
        self.tell_closed();
        outcome
    }

    /// Has the fence follow the claims. What needs exceptions that the kernel refuses is closed.
    fn carry_out(&mut self, mut change: Change) -> anyhow::Result<()> {
        let Self { fence, network, claims, .. } = self;
        let Some(fence) = fence else { return Ok(()) };
        let (before, after) = (fence.exceptions(), claims.exceptions());
        // At no time is more open than before or after.
        let meanwhile = Exceptions {
            open: before.open.intersection(&after.open).copied().collect(),
            admitted: before.admitted.intersection(&after.admitted).copied().collect(),
            withheld: before.withheld.union(&after.withheld).copied().collect(),
        };
        let mut excepted = fence.except(meanwhile);
        if excepted.is_err() && claims.takes_exceptions() {
            let closed = claims.take_exceptions(false, |policy| claims_of(policy, network));
            change = change.and(closed);
        }
        let changed = fence.change(&change.add, &change.remove);
        // What is closed by now needs no exceptions any more, whether or not it was refused them.
        if changed.is_ok() {
            let made = fence.except(claims.exceptions());
            excepted = excepted.and(made);
        }
        changed.and(excepted).context("routes and packet filter of policies")
    }

    /// Tries again what the packet filter refused, and does without what it does not do any more.
    fn retry(&mut self) -> anyhow::Result<()> {
        let Self { fence, network, claims, .. } = self;
        let Some(fence) = fence else { return Ok(()) };
        let takes = fence.takes_exceptions();
        let change = match takes == claims.takes_exceptions() {
            true if *fence.exceptions() == claims.exceptions() => return Ok(()),
            true => Change::default(),
            false => claims.take_exceptions(takes, |policy| claims_of(policy, network)),
        };
        let outcome = self.carry_out(change);
        self.tell_closed();
        outcome
    }

    /// Says what is closed although policies allow it, and what is so no more.
    fn tell_closed(&mut self) {
        let unreached = self.claims.unreached().map(unreached);
        let fences = self.fence.iter().filter(|fence| fence.takes_exceptions());
        let crowded = fences.flat_map(crowded);
        let now: BTreeSet<_> = unreached.chain(crowded).collect();
        for words in now.difference(&self.closed) {
            tracing::warn!("{words}");
        }
        for words in self.closed.difference(&now) {
            tracing::info!("put right: {words}");
        }
        self.closed = now;
    }

    /// Whether networks are closed that nobody claimed in this life.
    pub(super) fn has_unclaimed(&self) -> bool {
        self.fence.as_ref().is_some_and(|fence| fence.left_behind().next().is_some())
    }

    /// All who make policies have made them: what nobody claimed is open again.
    pub(super) fn settle(&mut self) -> anyhow::Result<()> {
        Ok(self.fence.as_mut().map_or(Ok(()), Fence::settle)?)
    }

    /// Makes again what others took away, and looks for what works against the fence; says what that was.
    /// Tunnels lead to `peers`.
    pub(super) fn repair(&mut self, peers: &[IpAddr]) -> anyhow::Result<()> {
        self.mend()?;
        self.look_around(peers)
    }

    /// Makes again what others took away, and says what that was.
    pub(super) fn mend(&mut self) -> anyhow::Result<()> {
        let Some(fence) = &mut self.fence else { return Ok(()) };
        let repaired = fence.repair();
        // Also where it could not be: what then cannot be withheld is closed.
        let retried = self.retry();
        let repaired = repaired?;
        if repaired.any() {
            tracing::warn!(
                "somebody changed the fence around protected networks; made again: {} rule(s), routes \
                 of {} network(s){}",
                repaired.rules,
                repaired.networks,
                if repaired.filter { ", the packet filter" } else { "" },
            );
        }
        retried
    }
}

/// What is claimed for a policy by itself.
fn claims_of(covered: &Covered, network: &mut Network) -> Vec<Claim> {
    let Some(remote) = net(covered.remote) else { return Vec::new() };
    if covered.cover == Cover::Bypass {
        return vec![Claim { network: remote, treatment: Treatment::Bypassed }];
    }
    // What one protocol or port is protected for, others may come to in clear.
    let guarded = covered.is_whole.then_some(Treatment::Guarded);
    let sender = holds_nearby(&remote).then_some(Treatment::Sender);
    let local = [Some(Treatment::Local), guarded, sender].into_iter().flatten();
    let local =
        local.filter_map(|treatment| Some(Claim { network: net(covered.local)?, treatment }));
    let local: Vec<_> = local.collect();
    // What the host itself sends there.
    let source = net(covered.local).and_then(|local| network.source_within(&local).ok()?);
    let remote = Claim { network: remote, treatment: Treatment::Protected { source } };
    local.into_iter().chain([remote]).collect()
}

fn unreached(network: Prefix) -> String {
    format!(
        "what tunnels bring does not reach networks of this side within {network}: policies protect some \
         of it on the way there, too, and the packet filter cannot tell it apart (Linux 5.7 and later \
         can, for {MOST_WITHHELD} pairs of networks)"
    )
}

/// What the fence has no room for, in words.
fn crowded(fence: &Fence) -> impl Iterator<Item = String> {
    let (asked, made) = (fence.exceptions(), fence.exceptions_made());
    let opened = [
        ("pass in clear stay closed", &asked.open, &made.open),
        ("let in in clear are not let in", &asked.admitted, &made.admitted),
    ];
    let opened = opened.map(|(what, asked, made)| (what, asked.difference(made).count()));
    let opened = opened.into_iter().filter(|(_, count)| *count > 0).map(|(what, count)| {
        format!(
            "{count} pairs of networks that policies {what}: with others they overlap too often"
        )
    });
    let withheld = (made.withheld != asked.withheld).then(|| {
        "what tunnels bring reaches fewer networks of this side than policies allow: what others \
         protect on the way there overlaps too often"
            .to_owned()
    });
    opened.chain(withheld)
}

/// What policies protect stays closed, and where there are none all is as it was.
impl Drop for Guard {
    fn drop(&mut self) {
        let Some(fence) = self.fence.take() else { return };
        if !self.claims.is_empty() || fence.left_behind().next().is_some() {
            tracing::warn!(
                "what policies protect stays closed until the gateway runs again; `convoy open` opens it"
            );
            return fence.leave_closed();
        }
        if let Err(error) = fence.open_up() {
            tracing::warn!(%error, "the fence around protected networks");
        }
    }
}

/// Fits TCP connections through the TUN interface of a gateway without IKE daemons to its MTU.
pub(super) fn clamp(site: &Site) -> Option<Clamp> {
    if site.xfrm.is_some() || site.plain.backend.is_direct() {
        return None;
    }
    let outcome = LinkName::new(&site.plain.interface).and_then(|link| Clamp::raise(&link));
    outcome.inspect_err(|error| tracing::warn!(%error, "{NOT_CLAMPED}")).ok()
}

/// Takes away what a gateway that does not run left closed around its interface, or another one, and interfaces for
/// SAs of daemons. Whether there was a packet filter.
///
/// # Errors
/// When it cannot.
pub fn open(site: &Site, interface: Option<&str>) -> anyhow::Result<bool> {
    let tun = LinkName::new(interface.unwrap_or(&site.plain.interface))?;
    let is_its_own = tun.as_str() == site.plain.interface;
    let removed = if is_its_own { interfaces::remove(site) } else { Ok(()) };
    // Whichever kind of gateway it was.
    let config = convoy_leak_protection::Config::new(tun.clone());
    let stood = convoy_leak_protection::take_away(config)?;
    // All gateways for daemons share these tables, also one that runs now.
    if is_its_own {
        Fence::remove_routes(&FenceConfig::new(tun))?;
    }
    removed.map(|()| stood)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::Command;

    use nix::sched::{CloneFlags, unshare};

    use super::*;

    #[test]
    fn counts_go_on_when_the_filter_begins_anew() {
        let mut count = Count::default();
        [0, 3, 3, 1, 5].into_iter().for_each(|now| count.note(now));
        assert_eq!(count.total, 8);
    }

    #[test]
    fn those_for_whom_everything_is_protected_do_not_speak_to_links_in_clear() {
        let mut network = Network::open().unwrap();
        let mut senders = |local: &str, remote: &str| -> Vec<String> {
            let [local, remote] = [local, remote].map(|text| text.parse().unwrap());
            // Also those of some of it.
            let (cover, is_whole) = (Cover::Protect, false);
            let policy = Covered { is_inward: false, local, remote, priority: 1, is_whole, cover };
            let claims = claims_of(&policy, &mut network).into_iter();
            let senders = claims.filter(|claim| claim.treatment == Treatment::Sender);
            senders.map(|claim| claim.network.to_string()).collect()
        };
        assert_eq!(senders("10.1.0.0/24", "0.0.0.0/0"), ["10.1.0.0/24"]);
        assert_eq!(senders("10.1.0.0/24", "224.0.0.0/3"), ["10.1.0.0/24"]);
        assert_eq!(senders("10.1.0.0/24", "169.254.7.0/24"), ["10.1.0.0/24"]);
        assert_eq!(senders("2001:db8:1::/64", "::/0"), ["2001:db8:1::/64"]);
        assert_eq!(senders("10.1.0.0/24", "10.0.0.0/8"), [""; 0]);
        assert_eq!(senders("2001:db8:1::/64", "2000::/3"), [""; 0]);
    }

    fn skipped(why: &str) {
        let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
    }

    /// What a program prints in this thread's namespace.
    fn run(program: &str, words: &str) -> Result<String, String> {
        let output = Command::new(program).args(words.split(' ')).output();
        let output = output.map_err(|error| format!("{program}: {error}"))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    fn guard() -> Guard {
        let fence = Fence::raise(FenceConfig::new(LinkName::new("t0").unwrap())).unwrap();
        Guard {
            claims: Claims::new(fence.takes_exceptions()),
            fence: Some(fence),
            network: Network::open().unwrap(),
            closed: BTreeSet::new(),
            found: Vec::new(),
            counts: [Count::default(); 2],
        }
    }

    /// A table without an owner, which others may change as on kernels before 6.9, is taken away.
    fn follow_without_a_table() {
        if let Err(error) = run("nft", "add table inet convoy-t0") {
            return skipped(&format!("nobody takes a packet filter away: {error}"));
        }
        let mut guard = guard();
        let policy = |local: &str, remote: &str| Covered {
            local: local.parse().unwrap(),
            remote: remote.parse().unwrap(),
            priority: 9,
            is_whole: true,
            is_inward: false,
            cover: Cover::Protect,
        };
        // Out of tunnels into the main table, with a TUN interface or without.
        let is_reached = |network: &str| {
            let routes = run("ip", "route show table 4501").unwrap();
            routes.lines().any(|line| line.contains(&format!("throw {network}")))
        };
        let withheld = || run("nft", "list set inet convoy-t0 withheld4").unwrap();
        guard.follow(&[policy("10.2.5.0/24", "10.3.0.0/16")], &[]).unwrap();
        assert!(is_reached("10.2.5.0/24"));
        run("nft", "delete table inet convoy-t0").unwrap();
        assert!(guard.follow(&[policy("10.3.7.0/24", "10.2.0.0/16")], &[]).is_err());
        assert!(!is_reached("10.2.5.0/24") && !is_reached("10.3.7.0/24"));
        guard.repair(&[]).unwrap();
        assert!(is_reached("10.2.5.0/24") && is_reached("10.3.7.0/24"));
        for pair in ["10.2.5.0/24 . 10.3.0.0/16", "10.3.7.0/24 . 10.2.0.0/16"] {
            assert!(withheld().contains(pair), "{}", withheld());
        }
        assert_eq!(guard.troubles().collect::<Vec<_>>(), [""; 0]);
    }

    #[test]
    fn what_the_packet_filter_refuses_is_closed_and_tried_again() {
        let test = || match unshare(CloneFlags::CLONE_NEWNET) {
            Ok(()) => follow_without_a_table(),
            Err(error) => skipped(&format!("no network namespace: {error}")),
        };
        std::thread::scope(|scope| scope.spawn(test).join().unwrap());
    }
}
