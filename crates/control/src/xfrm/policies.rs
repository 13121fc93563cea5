//! Policies by name and by number, as `net/xfrm/xfrm_policy.c` keeps them.

use std::collections::{BTreeMap, HashMap};

use convoy_xfrm::{
    Errno, Mark, Policy, PolicyDirection, PolicyKey, PolicyName, PolicyType, Refusal, Selector,
    Usage,
};

/// Maximum number of policies; a kernel's limit is its memory.
const POLICIES_MAX: usize = 1 << 20;

/// The policies that daemons made.
///
/// A policy has two names: its selector with all that narrows it, and a number. Policies of one
/// selector and different priorities are one policy.
#[derive(Debug, Default)]
pub struct Policies {
    /// By when it came, later ones with higher numbers.
    stored: BTreeMap<u64, Policy>,
    by_name: HashMap<Name, u64>,
    by_index: HashMap<u32, u64>,
    /// Start of the search for the next number: kernels go up in steps of 8.
    next_index: u32,
    /// Place of the next policy in the order of arrival.
    next: u64,
    counts: Counts,
}

/// Number of policies of each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// To this host.
    pub inbound: u32,
    /// Away.
    pub outbound: u32,
    /// Through this host.
    pub forward: u32,
}

impl Counts {
    fn of(&mut self, direction: PolicyDirection) -> &mut u32 {
        match direction {
            PolicyDirection::In => &mut self.inbound,
            PolicyDirection::Out => &mut self.outbound,
            PolicyDirection::Forward => &mut self.forward,
        }
    }
}

/// Result of an addition.
#[derive(Debug)]
pub struct Changed<'a> {
    /// The policy as it is now.
    pub policy: &'a Policy,
    /// The one that was in its place.
    pub before: Option<Replaced>,
}

/// A policy in whose place another came.
#[derive(Clone, Debug)]
pub struct Replaced {
    /// The policy.
    pub policy: Policy,
    /// Its place in the order of arrival.
    at: u64,
}

/// Treatment of a policy whose name another has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// It is refused (`NEWPOLICY`).
    New,
    /// It comes in the place of the other (`UPDPOLICY`).
    Replace,
}

/// Properties that together no two policies share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Name {
    selector: Selector,
    direction: PolicyDirection,
    policy_type: PolicyType,
    mark: Mark,
    if_id: u32,
}

impl Name {
    fn of(policy: &Policy) -> Self {
        Self {
            selector: policy.info.selector,
            direction: policy.info.direction,
            policy_type: policy.policy_type.unwrap_or_default(),
            mark: policy.mark,
            if_id: policy.if_id,
        }
    }
}

/// Direction as a policy's number says it: its lowest three bits.
const fn direction_bits(direction: PolicyDirection) -> u32 {
    match direction {
        PolicyDirection::In => 0,
        PolicyDirection::Out => 1,
        PolicyDirection::Forward => 2,
    }
}

impl Policies {
    /// Adds a policy at `now`, in seconds since 1970; with [`Insertion::Replace`] also in the place of one of
    /// the same name, whose number it takes over.
    ///
    /// # Errors
    /// `EEXIST` when there is one and the policy is to be new, `ENOMEM` when there are 2²⁰.
    pub fn insert(
        &mut self,
        mut policy: Policy,
        insertion: Insertion,
        now: u64,
    ) -> Result<Changed<'_>, Refusal> {
        let name = Name::of(&policy);
        let before = self.by_name.get(&name).copied();
        if before.is_some() && insertion == Insertion::New {
            return Err(Refusal::bare(Errno::EEXIST));
        }
        if before.is_none() && self.stored.len() >= POLICIES_MAX {
            return Err(Refusal::new(Errno::ENOMEM, "The table of policies is full"));
        }
        let before = before.and_then(|at| Some(Replaced { policy: self.take(at)?, at }));
        policy.info.index = match &before {
            Some(before) => before.policy.info.index,
            None => self.free_index(&policy),
        };
        policy.info.usage = Usage { add_time: now, ..Usage::default() };
        policy.policy_type = Some(name.policy_type);
        let at = self.next;
        self.next += 1;
        Ok(Changed { policy: self.enter(at, policy), before })
    }

    /// Takes back that the policy of this number came; the one in whose place it came is again where it was.
    pub fn take_back(&mut self, index: u32, before: Option<Replaced>) {
        self.remove_index(index);
        if let Some(Replaced { policy, at }) = before {
            self.enter(at, policy);
        }
    }

    fn enter(&mut self, at: u64, policy: Policy) -> &Policy {
        let name = Name::of(&policy);
        self.by_name.insert(name, at);
        self.by_index.insert(policy.info.index, at);
        *self.counts.of(name.direction) += 1;
        self.stored.entry(at).or_insert(policy)
    }

    /// A number that no policy has: the one asked for, if it is free.
    fn free_index(&mut self, policy: &Policy) -> u32 {
        let mut wanted = policy.info.index;
        loop {
            let mut index = wanted;
            if index == 0 {
                index = self.next_index | direction_bits(policy.info.direction);
                self.next_index = self.next_index.wrapping_add(8);
            }
            if index == 0 {
                index = 8;
            }
            wanted = 0;
            if !self.by_index.contains_key(&index) {
                return index;
            }
        }
    }

    /// The policy that a request names.
    ///
    /// # Errors
    /// `ENOENT`.
    pub fn get(&self, key: &PolicyKey) -> Result<&Policy, Refusal> {
        self.find(key).and_then(|at| self.stored.get(&at)).ok_or(Refusal::bare(Errno::ENOENT))
    }

    /// Removes the policy that a request names.
    ///
    /// # Errors
    /// `ENOENT`.
    pub fn remove(&mut self, key: &PolicyKey) -> Result<Policy, Refusal> {
        self.find(key).and_then(|at| self.take(at)).ok_or(Refusal::bare(Errno::ENOENT))
    }

    fn find(&self, key: &PolicyKey) -> Option<u64> {
        let policy_type = key.policy_type.unwrap_or_default();
        match key.name {
            PolicyName::Selector(selector) => {
                let (direction, mark, if_id) = (key.direction, key.mark, key.if_id);
                let name = Name { selector, direction, policy_type, mark, if_id };
                self.by_name.get(&name).copied()
            }
            PolicyName::Index(index) => {
                let at = *self.by_index.get(&index)?;
                let policy = self.stored.get(&at)?;
                let is_it = policy.policy_type.unwrap_or_default() == policy_type
                    && policy.info.direction == key.direction
                    && policy.mark == key.mark
                    && policy.if_id == key.if_id;
                is_it.then_some(at)
            }
        }
    }

    /// Takes a policy out.
    fn take(&mut self, at: u64) -> Option<Policy> {
        let policy = self.stored.remove(&at)?;
        let name = Name::of(&policy);
        self.by_name.remove(&name);
        self.by_index.remove(&policy.info.index);
        *self.counts.of(name.direction) -= 1;
        Some(policy)
    }

    /// All policies of a type.
    pub fn of_type(&self, policy_type: PolicyType) -> impl Iterator<Item = &Policy> {
        self.stored.values().filter(move |it| it.policy_type.unwrap_or_default() == policy_type)
    }

    /// Removes all policies of a type and returns them.
    pub fn flush(&mut self, policy_type: PolicyType) -> Vec<Policy> {
        let is_one = |policy: &Policy| policy.policy_type.unwrap_or_default() == policy_type;
        let all: Vec<u64> =
            self.stored.iter().filter(|(_, policy)| is_one(policy)).map(|(at, _)| *at).collect();
        all.iter().filter_map(|at| self.take(*at)).collect()
    }

    /// The policy of this name that an addition would replace.
    #[must_use]
    pub fn twin(&self, policy: &Policy) -> Option<&Policy> {
        self.by_name.get(&Name::of(policy)).and_then(|at| self.stored.get(at))
    }

    /// Removes the policy with this index.
    pub fn remove_index(&mut self, index: u32) -> Option<Policy> {
        self.by_index.get(&index).copied().and_then(|at| self.take(at))
    }

    /// The policy with this index.
    #[must_use]
    pub fn by_index(&self, index: u32) -> Option<&Policy> {
        self.by_index.get(&index).and_then(|at| self.stored.get(at))
    }

    /// All policies in the order of a dump, the newest first; `from` is where one before ended.
    pub fn dump(&self, from: Option<u64>) -> impl Iterator<Item = (u64, &Policy)> {
        let end = from.map_or(u64::MAX, |at| at);
        self.stored.range(..end).rev().map(|(at, policy)| (*at, policy))
    }

    /// Number of policies of each direction.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use convoy_xfrm::{Action, Addresses, Limits, Network, PolicyInfo, Share};

    use super::*;

    fn policy(last: u8, direction: PolicyDirection, priority: u32) -> Policy {
        let network = |last| Network { address: [10, 0, 0, last].into(), prefix_len: 32 };
        let addresses = Addresses::Networks { source: network(last), destination: network(9) };
        let info = PolicyInfo {
            selector: Selector { addresses, ..Selector::ANY },
            limits: Limits::NONE,
            usage: Usage::default(),
            priority,
            index: 0,
            direction,
            action: Action::Allow,
            flags: 0,
            share: Share::Any,
        };
        Policy {
            info,
            templates: Vec::new(),
            security: None,
            policy_type: None,
            mark: Mark::default(),
            if_id: 0,
            offload: None,
            others: convoy_xfrm::Others::default(),
        }
    }

    fn key(policy: &Policy) -> PolicyKey {
        PolicyKey {
            name: PolicyName::Selector(policy.info.selector),
            direction: policy.info.direction,
            policy_type: policy.policy_type,
            mark: policy.mark,
            if_id: policy.if_id,
            security: None,
            others: convoy_xfrm::Others::default(),
        }
    }

    fn indices(policies: &Policies) -> Vec<u32> {
        policies.dump(None).map(|(_, policy)| policy.info.index).collect()
    }

    /// Numbers and order as `ip xfrm policy` showed them on Linux 6.18 in a new namespace.
    #[test]
    fn numbers_go_up_in_eights_and_the_newest_is_shown_first() {
        let mut policies = Policies::default();
        let all = [PolicyDirection::In, PolicyDirection::Out, PolicyDirection::Forward];
        for (n, direction) in (1..).zip(all) {
            policies.insert(policy(n, direction, 5), Insertion::New, 77).unwrap();
        }
        assert_eq!(indices(&policies), [18, 9, 8]);
        let again =
            policies.insert(policy(1, PolicyDirection::In, 6), Insertion::New, 78).unwrap_err();
        assert_eq!(again.errno, Errno::EEXIST);
        let changed =
            policies.insert(policy(1, PolicyDirection::In, 6), Insertion::Replace, 78).unwrap();
        assert_eq!(changed.before.unwrap().policy.info.priority, 5);
        assert_eq!((changed.policy.info.index, changed.policy.info.usage.add_time), (8, 78));
        assert_eq!(indices(&policies), [8, 18, 9]);
        assert_eq!(policies.counts(), Counts { inbound: 1, outbound: 1, forward: 1 });
    }

    #[test]
    fn what_is_gone_has_no_name_and_a_dump_goes_on_where_it_ended() {
        let mut policies = Policies::default();
        for n in 0..10 {
            policies.insert(policy(n, PolicyDirection::Out, 0), Insertion::New, 1).unwrap();
        }
        let wanted = policy(4, PolicyDirection::Out, 0);
        let index = policies.get(&key(&wanted)).unwrap().info.index;
        let by_number = PolicyKey { name: PolicyName::Index(index), ..key(&wanted) };
        let in_vain = PolicyKey { if_id: 1, ..by_number.clone() };
        assert_eq!(policies.remove(&in_vain).unwrap_err().errno, Errno::ENOENT);
        let (first, last) =
            (policies.dump(None).take(3).last().unwrap().0, policies.dump(None).count());
        assert_eq!(policies.remove(&by_number).unwrap().info.index, index);
        assert_eq!(policies.get(&key(&wanted)).unwrap_err().errno, Errno::ENOENT);
        // One went and one came in the middle of a dump of ten; neither is shown twice.
        policies.insert(policy(20, PolicyDirection::Out, 0), Insertion::New, 1).unwrap();
        assert_eq!(policies.dump(Some(first)).count(), last - 3 - 1);
        assert_eq!(policies.flush(PolicyType::Sub).len(), 0);
        assert_eq!(policies.flush(PolicyType::Main).len(), 10);
        assert_eq!((policies.counts(), indices(&policies)), (Counts::default(), vec![]));
    }
}
