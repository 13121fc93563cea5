//! Content of policies, and counts of their decisions.

use std::collections::HashMap;
use std::sync::Arc;

use convoy_ipsec::counters::SaCounters;
use convoy_ipsec::sa::ReqId;
use convoy_ipsec::selector::{AddressSelector, Direction, PortSelector, UpperSelector};
use convoy_ipsec::snapshot::Snapshot;
use convoy_ipsec::spd::{MeantFor, PolicyAction, Spd, SpdId};
use convoy_wire::Spi;

use super::{Origin, PolicyDirection, PolicyReport, PolicyStatus, SCHEMA, Use};
use crate::site::{Action, Policy, Site, Upper};
use crate::state::State;
use crate::xfrm::Kernel;

/// Counts of a site's policies: of those that protect nothing by their own counters, of the others by those of
/// their SAs.
#[derive(Debug, Default)]
struct PolicyUses {
    policies: HashMap<(Arc<str>, Direction), Use>,
    questions: HashMap<(Arc<str>, Direction), u64>,
    sas: HashMap<(Arc<str>, Direction), (Spi, Use)>,
    /// Number of policies that name an SA.
    named: HashMap<Arc<str>, usize>,
}

impl PolicyUses {
    /// As of `now_ns`, nanoseconds of the workers' clock.
    fn read(state: &State, now_ns: u64) -> Self {
        let snapshot = state.published().current();
        let mut uses = Self::default();
        for spd in state.databases().filter_map(|id| snapshot.spd_of(id)) {
            for (id, policy) in spd.policies() {
                let asked = spd.questions(id);
                if asked > 0 {
                    let key = (policy.name.clone(), policy.direction);
                    *uses.questions.entry(key).or_default() += asked;
                }
                let Some(counts) = spd.uses(id) else { continue };
                let last = counts.last_packet_ns();
                let counts = Use::new(counts.packets(), counts.bytes(), last, now_ns);
                uses.policies
                    .entry((policy.name.clone(), policy.direction))
                    .or_default()
                    .add(counts);
            }
        }
        let outbound = snapshot.outbound_sas();
        uses.sas.extend(outbound.map(|(_, sa)| {
            ((sa.name.clone(), Direction::Outbound), (sa.spi, used(&sa.counters, now_ns)))
        }));
        let inbound = snapshot.inbound_sas();
        uses.sas.extend(inbound.map(|(_, sa)| {
            ((sa.name.clone(), Direction::Inbound), (sa.spi, used(&sa.counters, now_ns)))
        }));
        for sa in state.site().policies.iter().flat_map(sas) {
            *uses.named.entry(sa.clone()).or_default() += 1;
        }
        uses
    }

    fn of(&self, policy: &Policy, direction: Direction) -> Use {
        let key = |name: &Arc<str>| (name.clone(), direction);
        // One that protects in one direction only discards in the other.
        let mut sum = self.policies.get(&key(&policy.name)).copied().unwrap_or_default();
        for sa in sas(policy) {
            sum.add(self.sas.get(&key(sa)).map(|(_, used)| *used).unwrap_or_default());
        }
        sum
    }

    fn asked(&self, policy: &Policy, direction: Direction) -> u64 {
        self.questions.get(&(policy.name.clone(), direction)).copied().unwrap_or_default()
    }

    fn spi(&self, sa: &Arc<str>, direction: Direction) -> Option<String> {
        self.sas.get(&(sa.clone(), direction)).map(|(spi, _)| spi.to_string())
    }

    fn are_shared(&self, policy: &Policy) -> bool {
        sas(policy).any(|sa| self.named.get(sa).is_some_and(|policies| *policies > 1))
    }
}

/// Packets that went through an SA.
fn used(counters: &SaCounters, now_ns: u64) -> Use {
    let last = counters.last_packet_ns.get();
    Use::new(counters.packets.get(), counters.bytes.get(), last, now_ns)
}

/// The SAs that a policy names, in both directions.
fn sas(policy: &Policy) -> impl Iterator<Item = &Arc<str>> {
    let (sa_out, sa_in) = match &policy.action {
        Action::Protect { sa_out, sa_in } => (sa_out.as_ref(), &sa_in[..]),
        Action::Bypass | Action::Discard => (None, &[][..]),
    };
    sa_out.into_iter().chain(sa_in)
}

/// The policies of a gateway, and what they have decided.
#[must_use]
pub fn policy_report(state: &State, daemons: Option<&Kernel>, now_ns: u64) -> PolicyReport {
    let uses = PolicyUses::read(state, now_ns);
    let site = state.site();
    let mut policies: Vec<_> =
        site.policies.iter().map(|policy| of_site(site, policy, &uses)).collect();
    if let Some(kernel) = daemons {
        policies.extend(of_daemons(state, kernel, now_ns));
    }
    PolicyReport { schema: SCHEMA, policies }
}

fn of_site(site: &Site, policy: &Policy, uses: &PolicyUses) -> PolicyStatus {
    let (sa_out, sa_in) = match &policy.action {
        Action::Protect { sa_out, sa_in } => (sa_out.as_ref(), &sa_in[..]),
        Action::Bypass | Action::Discard => (None, &[][..]),
    };
    let upper = match policy.upper {
        Upper::Any => UpperSelector::Any,
        Upper::Ports { local, remote } => {
            UpperSelector::Ports { local: local.into(), remote: remote.into() }
        }
        Upper::Icmp { types, codes } => UpperSelector::Icmp { types, codes },
    };
    PolicyStatus {
        name: policy.name.to_string(),
        action: policy.action.word().to_owned(),
        local: policy.local.iter().map(ToString::to_string).collect(),
        remote: policy.remote.iter().map(ToString::to_string).collect(),
        protocol: policy.protocol.map(|protocol| protocol.to_string()),
        upper: describe_upper(&upper),
        priority: policy.priority,
        acquire: policy.acquire,
        origin: Origin::Site,
        index: None,
        direction: None,
        spd: policy.spd.as_ref().map(ToString::to_string),
        decides: policy.spd == site.plain.spd,
        sa_out: sa_out.map(ToString::to_string),
        sa_in: sa_in.iter().map(ToString::to_string).collect(),
        spi_out: sa_out.and_then(|name| uses.spi(name, Direction::Outbound)),
        spi_in: sa_in.iter().filter_map(|name| uses.spi(name, Direction::Inbound)).collect(),
        sent: uses.of(policy, Direction::Outbound),
        received: uses.of(policy, Direction::Inbound),
        asked_out: uses.asked(policy, Direction::Outbound),
        asked_in: uses.asked(policy, Direction::Inbound),
        shared: uses.are_shared(policy),
    }
}

/// SAs that one policy or several use.
#[derive(Default)]
struct Members {
    names: Vec<String>,
    spis: Vec<String>,
    used: Use,
}

/// Policies of IKE daemons, as workers see them.
fn of_daemons(state: &State, kernel: &Kernel, now_ns: u64) -> Vec<PolicyStatus> {
    let snapshot = state.published().current();
    let plain = state.site().plain.spd.as_ref().map(ToString::to_string);
    let interfaces = state.site().xfrm_interfaces().iter();
    let names = interfaces.map(|interface| Some(interface.name.clone()));
    let databases = state.interface_spds().map(|(_, spd)| spd).zip(names);
    let databases: Vec<Database<'_>> = core::iter::once((state.plain_spd(), plain))
        .chain(databases)
        .filter_map(|(id, name)| Some(Database { id, spd: snapshot.spd_of(id)?, name }))
        .collect();
    let mut members: HashMap<(ReqId, Direction), Members> = HashMap::new();
    let mut join = |reqid, direction, name: &Arc<str>, spi: Spi, counters: &SaCounters| {
        let members = members.entry((reqid, direction)).or_default();
        members.names.push(name.to_string());
        members.spis.push(spi.to_string());
        members.used.add(used(counters, now_ns));
    };
    for (_, sa) in snapshot.outbound_sas() {
        for number in core::iter::once(sa.reqid).chain(sa.named) {
            join(number, Direction::Outbound, &sa.name, sa.spi, &sa.counters);
        }
    }
    for (_, sa) in snapshot.inbound_sas() {
        for number in core::iter::once(sa.reqid).chain(sa.named) {
            join(number, Direction::Inbound, &sa.name, sa.spi, &sa.counters);
        }
    }
    let databases = databases.iter();
    let mut all: Vec<_> =
        databases.flat_map(|base| in_database(&snapshot, kernel, &members, base, now_ns)).collect();
    all.sort_by_key(|policy| (policy.direction, policy.priority, policy.index));
    all
}

/// A database of policies.
struct Database<'a> {
    id: SpdId,
    spd: &'a Spd,
    /// Its name, unless it is the common one.
    name: Option<String>,
}

/// Policies of IKE daemons in one database. Each has SAs of its own.
fn in_database(
    snapshot: &Snapshot,
    kernel: &Kernel,
    members: &HashMap<(ReqId, Direction), Members>,
    database: &Database<'_>,
    now_ns: u64,
) -> Vec<PolicyStatus> {
    let Database { id: number, spd, name } = database;
    let ours =
        || spd.policies().filter_map(|(id, p)| Some((id, p, kernel.policy_index(*number, id)?)));
    let mut named: HashMap<(ReqId, Direction), usize> = HashMap::new();
    for (_, policy, _) in ours() {
        if let PolicyAction::Protect { reqid } = policy.action {
            *named.entry((reqid, policy.direction)).or_default() += 1;
        }
    }
    ours()
        .map(|(id, policy, index)| {
            let selector = &policy.selector;
            let is_out = policy.direction == Direction::Outbound;
            let mut status = PolicyStatus {
                name: policy.name.to_string(),
                action: String::new(),
                local: vec![describe_addresses(&selector.local)],
                remote: vec![describe_addresses(&selector.remote)],
                protocol: selector.protocol.map(|protocol| protocol.to_string()),
                upper: describe_upper(&selector.upper),
                priority: policy.priority,
                acquire: false,
                origin: Origin::Daemon,
                index: Some(index),
                direction: Some(match spd.meant_for(id) {
                    _ if is_out => PolicyDirection::Out,
                    Some(MeantFor::Others) => PolicyDirection::Forward,
                    _ => PolicyDirection::In,
                }),
                spd: name.clone(),
                decides: true,
                sa_out: None,
                sa_in: Vec::new(),
                spi_out: None,
                spi_in: Vec::new(),
                sent: Use::default(),
                received: Use::default(),
                asked_out: 0,
                asked_in: 0,
                shared: false,
            };
            *(if is_out { &mut status.asked_out } else { &mut status.asked_in }) =
                spd.questions(id);
            status.action = match policy.action {
                PolicyAction::Protect { .. } => "protect",
                PolicyAction::Bypass => "bypass",
                PolicyAction::Discard => "discard",
            }
            .to_owned();
            let mut decided = Use::default();
            if let PolicyAction::Protect { reqid } = policy.action {
                let key = (reqid, policy.direction);
                let found = members.get(&key);
                decided = found.map_or(decided, |found| found.used);
                status.shared = named.get(&key).is_some_and(|policies| *policies > 1);
                if is_out {
                    let slot = snapshot.outbound_for(reqid).map(|owner| owner.slot);
                    let sa = slot.and_then(|slot| snapshot.outbound(slot));
                    status.sa_out = sa.map(|sa| sa.name.to_string());
                    status.spi_out = sa.map(|sa| sa.spi.to_string());
                    status.acquire = snapshot.is_on_demand(reqid);
                } else if let Some(found) = found {
                    (status.sa_in, status.spi_in) = (found.names.clone(), found.spis.clone());
                }
            } else if let Some(uses) = spd.uses(id) {
                decided = Use::new(uses.packets(), uses.bytes(), uses.last_packet_ns(), now_ns);
            }
            *(if is_out { &mut status.sent } else { &mut status.received }) = decided;
            status
        })
        .collect()
}

fn describe_addresses(addresses: &AddressSelector) -> String {
    match addresses {
        AddressSelector::Any => "any".to_owned(),
        AddressSelector::Range(range) => range.to_string(),
    }
}

/// Ports, or ICMP types and codes, in words; `None` for any.
fn describe_upper(upper: &UpperSelector) -> Option<String> {
    let span = |(first, last): (u8, u8)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    let port = |port: &PortSelector| match port {
        PortSelector::Any => "any".to_owned(),
        PortSelector::Range(range) => range.to_string(),
        PortSelector::Opaque => "opaque".to_owned(),
    };
    match upper {
        UpperSelector::Any
        | UpperSelector::Ports { local: PortSelector::Any, remote: PortSelector::Any }
        | UpperSelector::Icmp { types: (0, 255), codes: (0, 255) } => None,
        UpperSelector::Ports { local, remote } => {
            Some(format!("port {} to {}", port(local), port(remote)))
        }
        UpperSelector::Icmp { types, codes: (0, 255) } => Some(format!("type {}", span(*types))),
        UpperSelector::Icmp { types, codes } => {
            Some(format!("type {} code {}", span(*types), span(*codes)))
        }
    }
}
