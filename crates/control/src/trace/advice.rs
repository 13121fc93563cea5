//! Advice on a packet that is dropped.

use convoy_ipsec::drop_reason::DropReason;

use super::PolicyUsed;
use crate::status::Origin;

/// For packets that wait.
pub(super) const ON_WAITING: &str = "an SA was requested on demand: if none comes within seconds, look at the \
                                     log of the IKE daemon, or add the SA to the site file and reload";

/// Remedy, if anything but another packet would help.
pub(super) fn on(reason: DropReason, policy: Option<&PolicyUsed>) -> Option<&'static str> {
    let is_daemons = policy.is_some_and(|policy| policy.origin == Origin::Daemon);
    Some(match reason {
        DropReason::NoPolicy => {
            "add a policy that covers it: [[policy]] in the site file, or traffic selectors of the IKE daemon"
        }
        DropReason::PolicyDiscard if is_daemons => {
            "the IKE daemon blocks these packets, as while it moves SAs: look at its log"
        }
        DropReason::PolicyDiscard => {
            "change the policy's action, or put another one before it with a lower priority"
        }
        DropReason::NoSa if is_daemons => "have the IKE daemon bring the connection up",
        DropReason::NoSa => "add an SA and name it in the policy's sa_out, or say acquire = true",
        DropReason::BypassImpossible => {
            "a wire side of sockets cannot send packets in clear: route them past the plain interface, or \
             use an interface as the wire side (backend in [wire])"
        }
        DropReason::LifetimeExpired | DropReason::SequenceExhausted if is_daemons => {
            "the IKE daemon should have made another SA by now: look at its log"
        }
        DropReason::LifetimeExpired | DropReason::SequenceExhausted => {
            "give the SA a new key on both sides and reload"
        }
        DropReason::SourceAbsent => {
            "give this host the SA's source address, or remove the SA where another host has taken over"
        }
        DropReason::LeaseExhausted => {
            "no sequence numbers are leased: check that the state folder can be written"
        }
        DropReason::TooBig => {
            "the sender is told by ICMP and should send smaller packets: lower the MTU of the plain interface \
             if it ignores that, or raise path_mtu if the path takes more"
        }
        DropReason::TransportAddress => {
            "an SA in transport mode carries packets between its own two addresses only: use tunnel mode, or \
             make the IKE daemon negotiate again if a NAT gave the peer another address"
        }
        DropReason::RoutingLoop => {
            "add a route to the peer past the interface: its own packets must not be routed into it"
        }
        DropReason::UnknownSpi => {
            "no SA of this gateway has this SPI: compare `convoy sa` on both sides, and make the IKE daemons \
             negotiate again if they disagree"
        }
        DropReason::InnerPolicyMismatch => {
            "what arrives through an SA must be covered by a policy of that SA: compare the selectors on \
             both sides"
        }
        _ => return None,
    })
}
