//! Traffic that the policies of a site file protect.

use std::collections::BTreeSet;

use ipnet::IpNet;

use crate::{
    policy_prefixes::{Policy, PolicyPrefixes},
    prefix_sets::PrefixSets,
    sets,
};

/// Traffic that the policies of a site file protect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SitePolicies {
    /// Of a site that serves no IKE daemons: what goes between two sets of networks, whichever policy names them and in
    /// both directions.
    Networks(PrefixSets),
    /// Of a site that serves daemons: what each policy says, beside those of the daemons. What none means passes.
    Each {
        /// The policies, by prefixes.
        policies: BTreeSet<Policy>,
        /// Networks to which routes lead into the TUN interface, and nowhere without it, behind all other routes but for
        /// the main table's default one. Packets with a mark do not use them; the host chooses a source by them for its
        /// own.
        routed: BTreeSet<IpNet>,
    },
}

impl Default for SitePolicies {
    /// No policies of a site that serves daemons.
    fn default() -> Self {
        Self::Each { policies: BTreeSet::new(), routed: BTreeSet::new() }
    }
}

impl From<PrefixSets> for SitePolicies {
    fn from(sets: PrefixSets) -> Self {
        Self::Networks(sets)
    }
}

impl SitePolicies {
    /// True if the kernel asks about some packets, if there are no other policies.
    #[must_use]
    pub fn ask(&self) -> bool {
        match self {
            Self::Networks(sets) => sets.ask(),
            Self::Each { policies, .. } => {
                let mut prefixes = PolicyPrefixes::default();
                let _ = prefixes.change(&Vec::from_iter(policies.iter().copied()), &[]);
                sets::asks(prefixes.covers())
            }
        }
    }

    /// Networks beneath which routes are laid.
    #[must_use]
    pub const fn routed(&self) -> &BTreeSet<IpNet> {
        match self {
            Self::Networks(sets) => &sets.routed,
            Self::Each { routed, .. } => routed,
        }
    }
}
