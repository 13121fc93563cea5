//! What policies say, and how often they decided.

use std::collections::HashMap;
use std::sync::Arc;

use convoy_ipsec::counters::SaCounters;
use convoy_ipsec::selector::Direction;

use super::{PolicyReport, PolicyStatus, SCHEMA, Use};
use crate::site::{Action, Policy, Site, Upper};
use crate::state::State;

/// What policies have decided: those that protect nothing by their own counters, the others by those of
/// their SAs.
#[derive(Debug, Default)]
pub struct PolicyUses {
    policies: HashMap<(Arc<str>, Direction), Use>,
    sas: HashMap<(Arc<str>, Direction), Use>,
    /// How many policies name an SA.
    named: HashMap<Arc<str>, usize>,
}

impl PolicyUses {
    /// As of `now_ns`, nanoseconds of the workers' clock.
    #[must_use]
    pub fn read(state: &State, now_ns: u64) -> Self {
        let snapshot = state.published().current();
        let mut uses = Self::default();
        for spd in state.databases().filter_map(|id| snapshot.spd_of(id)) {
            for (id, policy) in spd.policies() {
                let Some(counts) = spd.uses(id) else { continue };
                let last = counts.last_packet_ns();
                let counts = Use::new(counts.packets(), counts.bytes(), last, now_ns);
                uses.policies
                    .entry((policy.name.clone(), policy.direction))
                    .or_default()
                    .add(counts);
            }
        }
        let of = |counters: &SaCounters| {
            let last = counters.last_packet_ns.get();
            Use::new(counters.packets.get(), counters.bytes.get(), last, now_ns)
        };
        let outbound = snapshot.outbound_sas();
        uses.sas.extend(
            outbound.map(|(_, sa)| ((sa.name.clone(), Direction::Outbound), of(&sa.counters))),
        );
        let inbound = snapshot.inbound_sas();
        uses.sas.extend(
            inbound.map(|(_, sa)| ((sa.name.clone(), Direction::Inbound), of(&sa.counters))),
        );
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
            sum.add(self.sas.get(&key(sa)).copied().unwrap_or_default());
        }
        sum
    }

    fn are_shared(&self, policy: &Policy) -> bool {
        sas(policy).any(|sa| self.named.get(sa).is_some_and(|policies| *policies > 1))
    }
}

/// The SAs that a policy names, in both directions.
fn sas(policy: &Policy) -> impl Iterator<Item = &Arc<str>> {
    let (sa_out, sa_in) = match &policy.action {
        Action::Protect { sa_out, sa_in } => (sa_out.as_ref(), &sa_in[..]),
        Action::Bypass | Action::Discard => (None, &[][..]),
    };
    sa_out.into_iter().chain(sa_in)
}

/// The policies of a site, and what they have decided.
#[must_use]
pub fn policy_report(site: &Site, uses: &PolicyUses) -> PolicyReport {
    let policies = site.policies.iter().map(|policy| {
        let (sa_out, sa_in) = match &policy.action {
            Action::Protect { sa_out, sa_in } => (
                sa_out.as_ref().map(ToString::to_string),
                sa_in.iter().map(ToString::to_string).collect(),
            ),
            Action::Bypass | Action::Discard => (None, Vec::new()),
        };
        let span = |(first, last): (u8, u8)| {
            if first == last { first.to_string() } else { format!("{first}-{last}") }
        };
        let upper = match policy.upper {
            Upper::Any => None,
            Upper::Ports { local, remote } if local.is_any() && remote.is_any() => None,
            Upper::Ports { local, remote } => Some(format!("port {local} to {remote}")),
            Upper::Icmp { types: (0, 255), codes: (0, 255) } => None,
            Upper::Icmp { types, codes: (0, 255) } => Some(format!("type {}", span(types))),
            Upper::Icmp { types, codes } => {
                Some(format!("type {} code {}", span(types), span(codes)))
            }
        };
        PolicyStatus {
            name: policy.name.to_string(),
            action: policy.action.word().to_owned(),
            local: policy.local.iter().map(ToString::to_string).collect(),
            remote: policy.remote.iter().map(ToString::to_string).collect(),
            protocol: policy.protocol.map(|protocol| protocol.to_string()),
            upper,
            priority: policy.priority,
            acquire: policy.acquire,
            spd: policy.spd.as_ref().map(ToString::to_string),
            decides: policy.spd == site.plain.spd,
            sa_out,
            sa_in,
            sent: uses.of(policy, Direction::Outbound),
            received: uses.of(policy, Direction::Inbound),
            shared: uses.are_shared(policy),
        }
    });
    PolicyReport { schema: SCHEMA, policies: policies.collect() }
}
