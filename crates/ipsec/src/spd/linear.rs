//! The model: policies in the order in which they decide, searched one after another.
//!
//! It is what the words of RFC 4301 say and nothing more. Tests compare [`Spd`](super::Spd) with it.

use std::sync::Arc;

use convoy_wire::FlowKey;

use super::policy::{Policy, SpdError};
use crate::selector::Direction;

/// An ordered list of policies.
#[derive(Clone, Debug, Default)]
pub struct LinearSpd {
    /// In the order in which they were given; those of one priority decide in it.
    policies: Vec<Arc<Policy>>,
}

impl LinearSpd {
    /// Adds a policy before the one at place `at` of the list, or behind the last.
    ///
    /// # Errors
    /// [`SpdError::Duplicate`] when one with the same direction, selector and priority is there.
    pub fn insert(&mut self, at: usize, policy: Policy) -> Result<(), SpdError> {
        let same = |p: &&Arc<Policy>| {
            (p.direction, p.priority, p.selector)
                == (policy.direction, policy.priority, policy.selector)
        };
        if let Some(first) = self.policies.iter().find(same) {
            let (first, second) = (first.name.clone(), policy.name);
            return Err(SpdError::Duplicate { first, second });
        }
        self.policies.insert(at.min(self.policies.len()), Arc::new(policy));
        Ok(())
    }

    /// Removes the policy at place `at` of the list.
    pub fn remove(&mut self, at: usize) -> Option<Arc<Policy>> {
        (at < self.policies.len()).then(|| self.policies.remove(at))
    }

    /// The policies in their order.
    #[must_use]
    pub fn policies(&self) -> &[Arc<Policy>] {
        &self.policies
    }

    /// The policy that decides about a packet with this key.
    #[must_use]
    pub fn lookup(&self, direction: Direction, key: &FlowKey) -> Option<&Arc<Policy>> {
        let meant = self.policies.iter().filter(|policy| {
            policy.direction == direction && policy.selector.matches(direction, key)
        });
        // The first of several with the lowest number.
        meant.min_by_key(|policy| policy.priority)
    }
}
