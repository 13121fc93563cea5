//! From policies of daemons to the database that workers ask.
//!
//! Packets that leave ask the policies `out`. Packets that came through an SA ask those `in` if they are for this host,
//! and else those `fwd`. As long as workers do not know the host's addresses they ask both, and the stricter answer counts.

use std::collections::{BTreeMap, HashMap};

use convoy_ipsec::sa::ReqId;
use convoy_ipsec::selector::{
    AddressRange, AddressSelector, Direction, PortSelector, Selector, UpperSelector,
};
use convoy_ipsec::snapshot::Snapshot;
use convoy_ipsec::spd::{self, MeantFor, PolicyAction, PolicyId, Spd, SpdError, SpdId};
use convoy_wire::{PortRange, Prefix, Protocol};
use convoy_xfrm::{
    Action, Addresses, Errno, Network, Policy, PolicyDirection, PolicyInfo, PortMask, Refusal,
};

use super::groups::{Group, Groups};
use super::honoured;
use super::interfaces::Interfaces;

/// Position of a policy of a daemon: those of one place are one policy to workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) spd: SpdId,
    pub(super) direction: Direction,
    meant_for: MeantFor,
    pub(super) selector: Selector,
    priority: u32,
}

/// A place's policies by their numbers, and what workers see of them.
#[derive(Clone, Debug, Default)]
struct Shared {
    members: BTreeMap<u32, PolicyAction>,
    seen: Option<(PolicyId, PolicyAction)>,
}

/// All policies of daemons, as workers see them.
#[derive(Debug, Default)]
pub(super) struct Placement {
    places: HashMap<Place, Shared>,
    /// A daemon's number for each policy that workers see.
    by_id: HashMap<(SpdId, PolicyId), u32>,
    /// Number of policies `out` that name a group.
    wanted: HashMap<ReqId, usize>,
}

/// A policy, read.
#[derive(Clone, Copy, Debug)]
pub(in crate::xfrm) struct Read {
    pub(super) place: Place,
    /// Its SAs, if it protects.
    pub(super) group: Option<Group>,
    blocks: bool,
}

impl Read {
    /// # Errors
    /// Refuses what workers cannot do.
    pub(super) fn new(policy: &Policy, interfaces: &Interfaces) -> Result<Self, Refusal> {
        honoured::policy(policy, interfaces)?;
        let spd = interfaces.spd(policy.if_id).ok_or_else(honoured::no_interface)?;
        let info = &policy.info;
        let (direction, meant_for) = match info.direction {
            PolicyDirection::Out => (Direction::Outbound, MeantFor::Anybody),
            PolicyDirection::In => (Direction::Inbound, MeantFor::Host),
            PolicyDirection::Forward => (Direction::Inbound, MeantFor::Others),
        };
        let selector = selector(info, direction)?;
        let place = Place { spd, direction, meant_for, selector, priority: info.priority };
        let blocks = info.action == Action::Block;
        let template = policy.templates.first().filter(|_| !blocks);
        let group = template.map(|template| Group::of_policy(policy, template, direction));
        Ok(Self { place, group, blocks })
    }

    fn action(&self, groups: &mut Groups) -> PolicyAction {
        match self.group {
            _ if self.blocks => PolicyAction::Discard,
            Some(group) => {
                PolicyAction::Protect { reqid: groups.join_policy(group, self.place.direction) }
            }
            None => PolicyAction::Bypass,
        }
    }

    /// Takes back what [`Read::action`] joined.
    fn leave(&self, groups: &mut Groups) {
        if let Some(group) = self.group {
            groups.leave_policy(group, self.place.direction);
        }
    }
}

/// A database of a draft of the next snapshot.
fn database(draft: &mut Snapshot, spd: SpdId) -> Result<&mut Spd, Refusal> {
    let gone = || Refusal::new(Errno::EINVAL, "The interface has no policies");
    draft.spd_of_mut(spd).ok_or_else(gone)
}

/// A policy with its daemon's number.
#[derive(Clone, Copy, Debug)]
pub(in crate::xfrm) struct Numbered {
    pub(in crate::xfrm) number: u32,
    pub(in crate::xfrm) read: Read,
}

/// A policy that came, went or took another's place in a draft, and may still be taken back.
#[derive(Debug)]
#[must_use = "it is finished or taken back"]
pub(in crate::xfrm) struct PolicyMove {
    /// The places that it concerns, as they were.
    before: Vec<(Place, Option<Shared>)>,
    /// The policy that goes, and that comes.
    old: Option<(Read, PolicyAction)>,
    new: Option<(Read, PolicyAction)>,
    /// True if workers are to see anything new.
    is_other: bool,
}

impl Placement {
    /// Puts a policy in the place of another in a draft, or adds or removes one.
    ///
    /// # Errors
    /// Refuses a policy that the workers' database has no room for. Then nothing has changed but the draft, which is to be dropped.
    pub(super) fn begin(
        &mut self,
        old: Option<Numbered>,
        new: Option<Numbered>,
        groups: &mut Groups,
        draft: &mut Snapshot,
    ) -> Result<PolicyMove, Refusal> {
        let mut places: Vec<Place> = old.iter().chain(&new).map(|one| one.read.place).collect();
        places.dedup();
        let before = places.iter().map(|place| (*place, self.places.get(place).cloned())).collect();
        let is_other = places.iter().any(|place| place.direction == Direction::Outbound);
        let mut change = PolicyMove { before, old: None, new: None, is_other };
        // Joined first, so that a group that both name keeps its number.
        change.new = new.map(|one| (one.read, one.read.action(groups)));
        change.old = old.and_then(|Numbered { number, read }| {
            Some((read, self.places.get_mut(&read.place)?.members.remove(&number)?))
        });
        if let Some((Numbered { number, .. }, (read, action))) = new.zip(change.new) {
            self.places.entry(read.place).or_default().members.insert(number, action);
        }
        for place in places {
            match self.show(place, draft) {
                Ok(is_shown) => change.is_other |= is_shown,
                Err(refusal) => {
                    self.take_back(&change, groups);
                    return Err(refusal);
                }
            }
        }
        Ok(change)
    }

    /// Lets the policy that goes leave its group, and has SAs made for the one that comes. True if workers are to see
    /// the draft.
    pub(super) fn finish(
        &mut self,
        change: PolicyMove,
        groups: &mut Groups,
        draft: &mut Snapshot,
    ) -> bool {
        if let Some((read, action)) = change.old {
            self.stop_wanting(&read, action, draft);
            read.leave(groups);
        }
        if let Some((read, action)) = change.new {
            self.want(&read, action, draft);
        }
        change.is_other
    }

    /// Makes undone what was begun in a draft that is dropped.
    pub(super) fn take_back(&mut self, change: &PolicyMove, groups: &mut Groups) {
        // All of the draft first: a policy may have got the number of one that went.
        for (place, _) in &change.before {
            if let Some((id, _)) = self.places.remove(place).and_then(|shared| shared.seen) {
                self.by_id.remove(&(place.spd, id));
            }
        }
        for (place, shared) in &change.before {
            let Some(shared) = shared else { continue };
            if let (Some((id, _)), Some(number)) = (shared.seen, shared.members.keys().next()) {
                self.by_id.insert((place.spd, id), *number);
            }
            self.places.insert(*place, shared.clone());
        }
        if let Some((read, _)) = &change.new {
            read.leave(groups);
        }
    }

    /// Has SAs of a policy that packets leave by made on demand.
    fn want(&mut self, read: &Read, action: PolicyAction, draft: &mut Snapshot) {
        let (Direction::Outbound, PolicyAction::Protect { reqid }) = (read.place.direction, action)
        else {
            return;
        };
        let count = self.wanted.entry(reqid).or_default();
        *count += 1;
        if *count == 1 {
            match read.group {
                Some(group) if group.is_of_any_hosts() => draft.make_on_demand_between(reqid),
                _ => draft.make_on_demand(reqid),
            }
        }
    }

    /// Takes back [`Placement::want`].
    fn stop_wanting(&mut self, read: &Read, action: PolicyAction, draft: &mut Snapshot) {
        let (Direction::Outbound, PolicyAction::Protect { reqid }) = (read.place.direction, action)
        else {
            return;
        };
        if let Some(count) = self.wanted.get_mut(&reqid) {
            *count -= 1;
            if *count == 0 {
                self.wanted.remove(&reqid);
                draft.make_beforehand(reqid);
            }
        }
    }

    /// Makes workers see what the policies of a place say now; whether that is something else.
    fn show(&mut self, place: Place, draft: &mut Snapshot) -> Result<bool, Refusal> {
        let Some(shared) = self.places.get_mut(&place) else { return Ok(false) };
        // The first one, as for a kernel.
        let wanted = shared.members.iter().next().map(|(number, action)| (*number, *action));
        let is_other = wanted.map(|(_, action)| action) != shared.seen.map(|(_, action)| action);
        if is_other {
            let spd = database(draft, place.spd)?;
            if let Some((old, _)) = shared.seen.take() {
                spd.remove(old);
                self.by_id.remove(&(place.spd, old));
            }
            if let Some((number, action)) = wanted {
                let policy = spd::Policy {
                    name: name(number),
                    priority: place.priority,
                    direction: place.direction,
                    selector: place.selector,
                    action,
                };
                let id = spd.insert_for(place.meant_for, policy).map_err(no_room)?;
                shared.seen = Some((id, action));
            }
        }
        if let (Some((id, _)), Some((number, _))) = (shared.seen, wanted) {
            self.by_id.insert((place.spd, id), number);
        }
        if shared.members.is_empty() {
            self.places.remove(&place);
        }
        Ok(is_other)
    }

    /// The daemon's number of a policy of this database that workers see.
    pub(super) fn number(&self, spd: SpdId, id: PolicyId) -> Option<u32> {
        self.by_id.get(&(spd, id)).copied()
    }

    /// The policy that workers see in a place.
    pub(super) fn id(&self, place: &Place) -> Option<PolicyId> {
        self.places.get(place)?.seen.map(|(id, _)| id)
    }
}

/// The name of a policy, for people: the number that `ip xfrm policy` shows as its index.
fn name(number: u32) -> std::sync::Arc<str> {
    format!("xfrm-{number}").into()
}

fn no_room(error: SpdError) -> Refusal {
    match error {
        // Another program's policy of the site file has this place.
        SpdError::Duplicate { .. } => Refusal::new(Errno::EEXIST, error.to_string()),
        SpdError::Nothing(_) => Refusal::new(Errno::EINVAL, error.to_string()),
        _ => Refusal::new(Errno::ENOMEM, error.to_string()),
    }
}

/// Protocols whose ports, or what stands in their place, selectors may ask for.
fn upper(info: &PolicyInfo, outbound: bool) -> Result<UpperSelector, Refusal> {
    let selector = &info.selector;
    let (source, destination) = (selector.source_port, selector.destination_port);
    if source.mask == 0 && destination.mask == 0 {
        return Ok(UpperSelector::Any);
    }
    match selector.protocol {
        // TCP, UDP, DCCP, SCTP, UDP-Lite.
        6 | 17 | 33 | 132 | 136 => {
            let (source, destination) = (port(source)?, port(destination)?);
            let (local, remote) =
                if outbound { (source, destination) } else { (destination, source) };
            Ok(UpperSelector::Ports { local, remote })
        }
        1 | 58 => {
            let byte = |mask: PortMask| {
                let (first, last) = honoured::ports(mask)?;
                let small = |number: u16| u8::try_from(number).map_err(|_| no_type());
                if mask.mask == 0 { Ok((0, u8::MAX)) } else { Ok((small(first)?, small(last)?)) }
            };
            Ok(UpperSelector::Icmp { types: byte(source)?, codes: byte(destination)? })
        }
        _ => Err(Refusal::new(Errno::EOPNOTSUPP, "Convoy knows no ports of this protocol")),
    }
}

fn no_type() -> Refusal {
    Refusal::new(Errno::EINVAL, "Types and codes of ICMP are at most 255")
}

fn port(mask: PortMask) -> Result<PortSelector, Refusal> {
    let (first, last) = honoured::ports(mask)?;
    let range = PortRange::new(first, last);
    range.map(PortSelector::from).map_err(|e| Refusal::new(Errno::EINVAL, e.to_string()))
}

fn selector(info: &PolicyInfo, direction: Direction) -> Result<Selector, Refusal> {
    let Addresses::Networks { source, destination } = info.selector.addresses else {
        return Err(Refusal::new(Errno::EINVAL, "Invalid family in selector"));
    };
    let outbound = direction == Direction::Outbound;
    let (local, remote) = if outbound { (source, destination) } else { (destination, source) };
    Ok(Selector {
        local: range(local)?,
        remote: range(remote)?,
        protocol: Some(info.selector.protocol).filter(|p| *p != 0).map(Protocol),
        upper: upper(info, outbound)?,
    })
}

/// All of one version stays a range: ANY would match the other version too.
fn range(network: Network) -> Result<AddressSelector, Refusal> {
    let prefix = prefix(network)?;
    Ok(AddressRange::new(prefix.addr(), prefix.last())
        .map_or(AddressSelector::Any, AddressSelector::Range))
}

/// The network without the bits behind its prefix.
pub(super) fn prefix(network: Network) -> Result<Prefix, Refusal> {
    Prefix::containing(network.address, network.prefix_len)
        .map_err(|error| Refusal::new(Errno::EINVAL, error.to_string()))
}
