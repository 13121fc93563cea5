//! The security policy database (RFC 4301 section 4.4.1): ordered policies, and the look-up.
//!
//! The look-up here walks the policies in order. It stands behind the interface that a look-up of
//! constant cost will have, and will be the model that one is tested against.

use std::sync::Arc;

use convoy_wire::FlowKey;

use crate::sa::ReqId;
pub use crate::selector::Direction;
use crate::selector::Selector;

/// A policy's place in its [`Spd`]: 0 for the first that was added, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyId(pub u32);

/// What becomes of a packet (RFC 4301 section 4.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyAction {
    /// It goes through an SA of this `reqid`; inbound, it must have come through one.
    Protect {
        /// Names the SAs.
        reqid: ReqId,
    },
    /// It passes unprotected.
    Bypass,
    /// It is dropped.
    Discard,
}

/// What is to be done with which packets.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Name, for people. Several policies may have one name.
    pub name: Arc<str>,
    /// Among policies that mean the same packet, the lowest number decides; among equal numbers,
    /// the one added first.
    pub priority: u32,
    /// Which way packets go.
    pub direction: Direction,
    /// Which packets are meant.
    pub selector: Selector,
    /// What becomes of them.
    pub action: PolicyAction,
}

/// Why a policy was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpdError {
    /// A policy with this direction, selector and priority is there: one of the two can never
    /// decide.
    #[error("policies '{first}' and '{second}' have the same direction, selector and priority")]
    Duplicate {
        /// Name of the policy that was there.
        first: Arc<str>,
        /// Name of the policy that came.
        second: Arc<str>,
    },
    /// More policies than have a number.
    #[error("too many policies")]
    Full,
}

/// A policy as the look-up wants it: the selector turned so that its local side is the source.
#[derive(Clone, Copy, Debug)]
struct Entry {
    priority: u32,
    id: PolicyId,
    selector: Selector,
}

/// The policies of both directions. Without policies, no packet has one.
#[derive(Clone, Debug, Default)]
pub struct Spd {
    policies: Vec<Policy>,
    /// Per direction, in the order in which they decide.
    outbound: Vec<Entry>,
    inbound: Vec<Entry>,
}

impl Spd {
    /// A database of these policies.
    ///
    /// # Errors
    /// [`SpdError`]; see [`Spd::insert`].
    pub fn new(policies: impl IntoIterator<Item = Policy>) -> Result<Self, SpdError> {
        let mut spd = Self::default();
        for policy in policies {
            spd.insert(policy)?;
        }
        Ok(spd)
    }

    /// Adds a policy.
    ///
    /// # Errors
    /// [`SpdError::Duplicate`] when one with the same direction, selector and priority is there.
    pub fn insert(&mut self, policy: Policy) -> Result<PolicyId, SpdError> {
        let id = PolicyId(u32::try_from(self.policies.len()).map_err(|_| SpdError::Full)?);
        let (entries, selector) = match policy.direction {
            Direction::Outbound => (&mut self.outbound, policy.selector),
            Direction::Inbound => (&mut self.inbound, policy.selector.mirrored()),
        };
        let end = entries.partition_point(|entry| entry.priority <= policy.priority);
        let same = |e: &&Entry| e.priority == policy.priority && e.selector == selector;
        if let Some(first) =
            entries.iter().find(same).and_then(|e| self.policies.get(e.id.0 as usize))
        {
            return Err(SpdError::Duplicate {
                first: first.name.clone(),
                second: policy.name.clone(),
            });
        }
        entries.insert(end, Entry { priority: policy.priority, id, selector });
        self.policies.push(policy);
        Ok(id)
    }

    /// The policy that decides about a packet with this key; `None`: it is to be discarded
    /// (RFC 4301 section 5.1).
    #[inline]
    #[must_use]
    pub fn lookup(&self, direction: Direction, key: &FlowKey) -> Option<PolicyId> {
        let entries = match direction {
            Direction::Outbound => &self.outbound,
            Direction::Inbound => &self.inbound,
        };
        entries.iter().find(|entry| entry.selector.matches_from_local(key)).map(|entry| entry.id)
    }

    /// [`Spd::lookup`] for a burst: one answer into `out` for each key, as far as both go.
    pub fn lookup_burst(
        &self,
        direction: Direction,
        keys: &[FlowKey],
        out: &mut [Option<PolicyId>],
    ) {
        let mut last: Option<(&FlowKey, Option<PolicyId>)> = None;
        for (key, out) in keys.iter().zip(out) {
            // Packets of one flow come in runs.
            let found = match last {
                Some((same, found)) if same == key => found,
                _ => self.lookup(direction, key),
            };
            last = Some((key, found));
            *out = found;
        }
    }

    /// The policy with this number.
    #[inline]
    #[must_use]
    pub fn policy(&self, id: PolicyId) -> Option<&Policy> {
        self.policies.get(id.0 as usize)
    }

    /// All policies, in the order they were added: that of their numbers.
    #[must_use]
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selector::{PortSelector, UpperSelector};
    use convoy_wire::{PortRange, Ports, Prefix, Protocol};
    use proptest::prelude::*;
    use std::net::IpAddr;

    fn policy(name: &str, priority: u32, direction: Direction, selector: Selector) -> Policy {
        Policy { name: name.into(), priority, direction, selector, action: PolicyAction::Discard }
    }

    fn to(network: &str) -> Selector {
        Selector { remote: network.parse::<Prefix>().unwrap().into(), ..Selector::default() }
    }

    fn key(src: &str, dst: &str) -> FlowKey {
        let ports = Ports::Known { src: 1, dst: 2 };
        FlowKey::new(src.parse().unwrap(), dst.parse().unwrap(), Protocol::UDP, ports).unwrap()
    }

    #[test]
    fn the_lowest_priority_number_decides_and_then_the_first_added() {
        let spd = Spd::new([
            policy("all", 10, Direction::Outbound, Selector::default()),
            policy("net", 5, Direction::Outbound, to("10.2.0.0/16")),
            policy("host", 5, Direction::Outbound, to("10.2.0.1")),
        ])
        .unwrap();
        let found = |dst| spd.lookup(Direction::Outbound, &key("10.1.0.1", dst));
        assert_eq!(found("10.2.0.1"), Some(PolicyId(1)));
        assert_eq!(found("10.3.0.1"), Some(PolicyId(0)));
        assert_eq!(&*spd.policy(PolicyId(1)).unwrap().name, "net");
    }

    #[test]
    fn directions_are_apart_and_inbound_policies_look_from_the_far_side() {
        let spd = Spd::new([policy("in", 1, Direction::Inbound, to("10.2.0.0/16"))]).unwrap();
        assert_eq!(spd.lookup(Direction::Outbound, &key("10.1.0.1", "10.2.0.1")), None);
        assert_eq!(spd.lookup(Direction::Inbound, &key("10.1.0.1", "10.2.0.1")), None);
        let from_there = key("10.2.0.1", "10.1.0.1");
        assert_eq!(spd.lookup(Direction::Inbound, &from_there), Some(PolicyId(0)));
        assert_eq!(Spd::default().lookup(Direction::Inbound, &from_there), None);
    }

    #[test]
    fn a_policy_that_could_never_decide_is_refused() {
        let mut spd = Spd::default();
        spd.insert(policy("a", 1, Direction::Outbound, to("10.2.0.0/16"))).unwrap();
        let twin = policy("b", 1, Direction::Outbound, to("10.2.0.0/16"));
        assert_eq!(
            spd.insert(twin.clone()).unwrap_err().to_string(),
            "policies 'a' and 'b' have the same direction, selector and priority"
        );
        assert!(spd.insert(Policy { priority: 2, ..twin.clone() }).is_ok());
        assert!(spd.insert(Policy { direction: Direction::Inbound, ..twin }).is_ok());
        assert_eq!(spd.policies().len(), 3);
    }

    fn any_policy() -> impl Strategy<Value = Policy> {
        let side = || (0u8..4, prop_oneof![Just(0u8), Just(24), Just(32)]);
        let port = prop_oneof![
            Just(PortSelector::Any),
            Just(PortSelector::Opaque),
            (0u16..3, 0u16..3)
                .prop_map(|(a, b)| PortRange::new(a.min(b), a.max(b)).unwrap().into()),
        ];
        (side(), side(), 0u32..4, any::<bool>(), prop::option::of(0u8..3), port).prop_map(
            |(local, remote, priority, outbound, protocol, port)| {
                let net = |(host, len)| {
                    Prefix::containing(IpAddr::from([10, 0, 0, host]), len).unwrap().into()
                };
                let selector = Selector {
                    local: net(local),
                    remote: net(remote),
                    protocol: protocol.map(Protocol),
                    upper: UpperSelector::Ports { local: PortSelector::Any, remote: port },
                };
                let direction = if outbound { Direction::Outbound } else { Direction::Inbound };
                policy("p", priority, direction, selector)
            },
        )
    }

    fn any_key() -> impl Strategy<Value = FlowKey> {
        let ports = prop_oneof![
            Just(Ports::Opaque),
            (0u16..3, 0u16..3).prop_map(|(src, dst)| Ports::Known { src, dst }),
        ];
        (0u8..4, 0u8..4, 0u8..3, ports).prop_map(|(src, dst, protocol, ports)| {
            let addr = |host| IpAddr::from([10, 0, 0, host]);
            FlowKey::new(addr(src), addr(dst), Protocol(protocol), ports).unwrap()
        })
    }

    proptest! {
        #[test]
        fn single_and_burst_look_ups_find_the_first_match_in_order(
            policies in prop::collection::vec(any_policy(), 0..20),
            keys in prop::collection::vec(any_key(), 0..40),
        ) {
            let mut spd = Spd::default();
            for policy in policies {
                let _ = spd.insert(policy);
            }
            for direction in [Direction::Outbound, Direction::Inbound] {
                let mut burst = vec![Some(PolicyId(99)); keys.len()];
                spd.lookup_burst(direction, &keys, &mut burst);
                for (key, found) in keys.iter().zip(burst) {
                    let meant = spd.policies().iter().enumerate().filter(|(_, policy)| {
                        policy.direction == direction && policy.selector.matches(direction, key)
                    });
                    let model = meant.min_by_key(|(at, policy)| (policy.priority, *at));
                    prop_assert_eq!(found, model.map(|(at, _)| PolicyId(at as u32)));
                    prop_assert_eq!(found, spd.lookup(direction, key));
                }
            }
        }
    }
}
