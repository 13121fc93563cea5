//! Policies, and what the database says by them.

use std::sync::Arc;

use super::tuples;
use crate::sa::ReqId;
use crate::selector::{Direction, Selector};
use crate::table::MAX_SLOTS;

/// A policy's place in its [`Spd`](super::Spd). Stays the same while the policy is there; may be used again
/// afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyId(pub u32);

/// Number of one of a snapshot's databases: interfaces may have policies of their own (RFC 4301
/// section 4.4.1). 0 is the one that all others use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpdId(pub u16);

/// Treatment of a packet (RFC 4301 section 4.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// Rule that says what is done with which packets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// Name, for people. Several policies may have one name.
    pub name: Arc<str>,
    /// Among policies that mean the same packet, the lowest number decides; among equal numbers,
    /// the one added first.
    pub priority: u32,
    /// Way that packets go.
    pub direction: Direction,
    /// Packets that are meant.
    pub selector: Selector,
    /// Treatment of these packets.
    pub action: PolicyAction,
}

/// Incoming packets that a policy means, of those that its selector does: policies of Linux are `in` or `fwd`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MeantFor {
    /// All.
    #[default]
    Anybody,
    /// Packets for this host.
    Host,
    /// Packets for others.
    Others,
}

impl MeantFor {
    pub(super) const fn has_host(self) -> bool {
        matches!(self, Self::Anybody | Self::Host)
    }

    pub(super) const fn has_others(self) -> bool {
        matches!(self, Self::Anybody | Self::Others)
    }
}

/// Answer of the database for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The policy that decides.
    pub id: PolicyId,
    /// Treatment that the policy asks for.
    pub action: PolicyAction,
}

/// A policy was refused.
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
    /// It asks for what no packet has: addresses of two IP versions, or one port known and the
    /// other not.
    #[error("policy '{0}' means no packet")]
    Nothing(Arc<str>),
    /// More policies than have a number.
    #[error("more than {MAX_SLOTS} policies")]
    Full,
    /// A packet that no cache knows would ask too many tables.
    #[error("the policies of one direction have more than {} different shapes", tuples::MAX_SHAPES)]
    Shapes,
    /// A packet would have to be compared with too many policies one by one.
    #[error(
        "more than {} policies differ in priorities or overlapping ranges only",
        tuples::MAX_ALIKE
    )]
    Alike,
    /// There is no number left between those two policies; all must be given again.
    #[error("no place is left between two policies")]
    NoPlace,
}
