//! Packets that come out of a tunnel and go on into another one.
//!
//! What comes out of a tunnel is for the near side, or for a network behind another tunnel. The outbound
//! policy that means the packet decides: one that protects or discards does so here, at once, unless the
//! packet's destination is near. Where no such policy means it, or one bypasses it, the packet goes to the
//! plain side, and the host decides about it.
//!
//! A destination is near if it is
//!
//! * an address of this host, or one that no router passes on;
//! * in a network that this host is connected to and that is smaller than the policy's remote network;
//! * in the local network of a policy whose remote network meets that and is larger, as a LAN beside a tunnel
//!   for everything, unless the policy that decides has a remote network that is as small or smaller;
//! * in both networks of the policy that decides, and its remote one is not the smaller.
//!
//! A spoke within the network of its hub is far for this reason: the hub's policy has the larger local
//! network. A policy that discards is mostly for what nobody protects, from everywhere to everywhere: for it, the
//! local networks of all policies that protect are near, where none of these has a remote network that is as
//! small or smaller.

use std::sync::Arc;

use convoy_wire::{FlowKey, IpVersion, Prefix};

use super::networks::{Networks, Range, number, used};
use super::policy::{Policy, PolicyAction};
use crate::selector::{AddressSelector, Direction, Selector};

/// Networks that a gateway knows beside its policies. Nothing goes from tunnel to tunnel without.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownNetworks {
    /// Networks that the host is connected to, other than by tunnels, and its addresses as networks of one.
    pub own: Vec<Prefix>,
    /// Networks that are far, for policies whose local and remote networks overlap. Empty: where both have an
    /// address, it is near unless the remote network is the smaller.
    pub far: Vec<Prefix>,
    /// Addresses that the host takes packets for.
    pub hosts: Vec<Prefix>,
    /// Nothing goes from tunnel to tunnel past the host.
    pub stays: bool,
}

/// The same, to be looked up in.
#[derive(Debug)]
struct Known {
    own: Networks<()>,
    far: Networks<()>,
}

/// Data of one database about packets from tunnel to tunnel, beside what its policies mean.
#[derive(Clone, Debug, Default)]
pub(super) struct Transit {
    known: Option<Arc<Known>>,
    /// The local networks of outbound policies that protect.
    locals: Sides,
    /// Their remote networks.
    remotes: Sides,
}

impl Transit {
    /// Knows these from now on.
    pub(super) fn know(&mut self, said: Option<&KnownNetworks>) {
        let networks = |all: &[Prefix]| {
            let mut networks = Networks::default();
            all.iter().for_each(|prefix| networks.change((*prefix).into(), |_| Some(())));
            networks
        };
        self.known =
            said.map(|said| Arc::new(Known { own: networks(&said.own), far: networks(&said.far) }));
    }

    /// True if anything goes from tunnel to tunnel.
    #[inline]
    pub(super) const fn is_on(&self) -> bool {
        self.known.is_some()
    }

    pub(super) fn add(&mut self, policy: &Policy) {
        for (version, [local, remote]) in protected(policy) {
            self.locals.add(version, local, is_beside(local, remote));
            self.remotes.add(version, remote, false);
        }
    }

    pub(super) fn remove(&mut self, policy: &Policy) {
        for (version, [local, remote]) in protected(policy) {
            self.locals.remove(version, local, is_beside(local, remote));
            self.remotes.remove(version, remote, false);
        }
    }

    /// True if this outbound policy decides about a packet that it means and that is on its way to the plain
    /// side.
    pub(super) fn decides(&self, policy: &Policy, flow: &FlowKey) -> bool {
        let Some(known) = &self.known else { return false };
        let (version, to) = (flow.version, number(flow.dst));
        let Some([local, remote]) = sides(&policy.selector, version) else { return false };
        if policy.action == PolicyAction::Bypass || !may_be_passed_on(flow) {
            return false;
        }
        let is_beside = || match policy.action {
            PolicyAction::Discard => {
                let is_less = |side: &Side| {
                    let protects = |other: &Side| !side.range.is_smaller(other.range);
                    side.range.is_smaller(remote) && !self.remotes.any(version, to, protects)
                };
                self.locals.any(version, to, is_less)
            }
            _ => self.locals.any(version, to, |s| s.beside > 0 && s.range.is_smaller(remote)),
        };
        !known.own.has_host(version, to)
            && !known.own.any(version, to, |own, ()| own.is_smaller(remote))
            && !is_beside()
            && known.is_far(version, to, local, remote)
    }

    /// True if an address is behind a tunnel: a policy that protects has it in its remote network, and in no network
    /// as small or smaller it is near.
    pub(super) fn is_behind_tunnel(&self, flow: &FlowKey) -> bool {
        let Some(known) = &self.known else { return false };
        let (version, to) = (flow.version, number(flow.dst));
        let is_nearer = |remote: Range| {
            known.own.any(version, to, |own, ()| !remote.is_smaller(own))
                || self.locals.any(version, to, |local| !remote.is_smaller(local.range))
        };
        may_be_passed_on(flow)
            && !known.own.has_host(version, to)
            && self.remotes.any(version, to, |remote| !is_nearer(remote.range))
    }

    /// True if a packet that came out of a tunnel bears a source that no other host may use.
    pub(super) fn is_martian(&self, flow: &FlowKey) -> bool {
        let from = number(flow.src);
        is_of_host_or_link(flow.version, from)
            || flow.src_addr().is_multicast()
            || self.known.as_ref().is_some_and(|known| known.own.has_host(flow.version, from))
    }
}

impl Known {
    /// True if an address of a policy's remote network is on the remote side.
    fn is_far(&self, version: IpVersion, to: u128, local: Range, remote: Range) -> bool {
        if !local.overlaps(remote) {
            true
        } else if self.far.is_empty() {
            !local.contains(to) || remote.is_smaller(local)
        } else {
            self.far.any(version, to, |_, ()| true)
        }
    }
}

/// One side of policies, and how many have it.
#[derive(Clone, Copy, Debug)]
struct Side {
    range: Range,
    all: u32,
    /// Number of policies whose other side is larger and meets this one.
    beside: u32,
}

/// Sides of policies, by the networks that they consist of.
#[derive(Clone, Debug, Default)]
struct Sides(Networks<Arc<[Side]>>);

impl Sides {
    fn add(&mut self, version: IpVersion, range: Range, is_beside: bool) {
        self.change(version, range, |side| {
            let Side { all, beside, .. } = side.unwrap_or(Side { range, all: 0, beside: 0 });
            Some(Side { range, all: all + 1, beside: beside + u32::from(is_beside) })
        });
    }

    fn remove(&mut self, version: IpVersion, range: Range, is_beside: bool) {
        self.change(version, range, |side| {
            let Side { all, beside, .. } = side?;
            let left = Side { range, all: all - 1, beside: beside - u32::from(is_beside) };
            (left.all > 0).then_some(left)
        });
    }

    fn change(
        &mut self,
        version: IpVersion,
        range: Range,
        change: impl Fn(Option<Side>) -> Option<Side>,
    ) {
        for network in range.networks(version) {
            self.0.change(network, |before| {
                let before = before.unwrap_or_default();
                let (same, others): (Vec<_>, Vec<_>) =
                    before.iter().partition(|side| side.range == range);
                let after: Arc<[_]> =
                    others.into_iter().chain(change(same.first().copied())).collect();
                (!after.is_empty()).then_some(after)
            });
        }
    }

    /// True if a side that has an address is as wanted.
    fn any(&self, version: IpVersion, address: u128, is_wanted: impl Fn(&Side) -> bool) -> bool {
        self.0.any(version, address, |_, sides| sides.iter().any(&is_wanted))
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The sides of a policy that counts: one that protects what leaves.
fn protected(policy: &Policy) -> impl Iterator<Item = (IpVersion, [Range; 2])> + '_ {
    let protects = matches!(policy.action, PolicyAction::Protect { .. });
    let counts = protects && policy.direction == Direction::Outbound;
    let versions = [IpVersion::V4, IpVersion::V6].into_iter().filter(move |_| counts);
    versions.filter_map(|version| Some((version, sides(&policy.selector, version)?)))
}

/// True if a local network is a smaller one beside what is behind the tunnel.
const fn is_beside(local: Range, remote: Range) -> bool {
    local.overlaps(remote) && local.is_smaller(remote)
}

/// The local and the remote addresses of a selector.
fn sides(selector: &Selector, version: IpVersion) -> Option<[Range; 2]> {
    let range = |side: &AddressSelector| match side {
        AddressSelector::Any => Some(Range { first: 0, last: used(version) }),
        AddressSelector::Range(range) => {
            let (of, first, last) = range.bounds();
            (of == version).then(|| Range { first: number(*first), last: number(*last) })
        }
    };
    Some([range(&selector.local)?, range(&selector.remote)?])
}

/// True if routers pass packets on to such a destination (RFC 1812 section 4.2.2.11, RFC 4291 section 2.5.6).
fn may_be_passed_on(flow: &FlowKey) -> bool {
    let to = number(flow.dst);
    let is_of_link_group = match flow.version {
        IpVersion::V4 => to >> 104 == 0xe0_0000 || to >> 96 == 0xffff_ffff,
        IpVersion::V6 => to >> 120 == 0xff && to >> 112 & 0xf <= 2,
    };
    !is_of_link_group && !is_of_host_or_link(flow.version, to)
}

/// Addresses of no host, of the host itself, or of one link.
const fn is_of_host_or_link(version: IpVersion, address: u128) -> bool {
    match version {
        IpVersion::V4 => matches!(address >> 120, 0 | 127) || address >> 112 == 0xa9fe,
        IpVersion::V6 => address <= 1 || address >> 118 == 0xfe80 >> 6,
    }
}

#[cfg(test)]
mod tests;
