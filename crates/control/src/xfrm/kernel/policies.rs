//! Policies come, change and go.

use std::fmt;

use convoy_ipsec::snapshot::Writer;
use convoy_wire::Protocol;
use convoy_wire::icmp::NEIGHBOUR_DISCOVERY;
use convoy_xfrm::{
    Action, Address, FlushPolicy, Group, Policy, PolicyDeleted, PolicyDirection, PolicyInfo,
    PolicyKey, Refusal, Reply, Request, Selector,
};

use super::transaction::{NewPolicy, PublishedPolicy};
use super::{Carried, Cover, CoverChange, Covered, Kernel, OnInterface};
use crate::xfrm::plane::networks;
use crate::xfrm::{Client, Insertion, Moment};

/// Protocol number of ICMP.
const ICMP: u8 = 1;
/// Protocol number of ICMPv6.
const ICMPV6: u8 = 58;

/// A policy in words, put together only when shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Described {
    info: PolicyInfo,
    if_id: u32,
    cover: Cover,
}

impl fmt::Display for Described {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PolicyInfo { direction, index, .. } = self.info;
        f.write_str(match direction {
            PolicyDirection::In => "policy in",
            PolicyDirection::Out => "policy out",
            PolicyDirection::Forward => "policy fwd",
        })?;
        if let Some((from, to)) = networks(&self.info) {
            write!(f, " {from} -> {to}")?;
        }
        upper(f, &self.info.selector)?;
        f.write_str(match self.cover {
            Cover::Protect => ", protect",
            Cover::Bypass => ", bypass",
            Cover::Discard => ", discard",
        })?;
        write!(f, " (index {index}{})", OnInterface(self.if_id))
    }
}

/// Protocol and ports of a selector, if it does not mean all.
fn upper(f: &mut fmt::Formatter<'_>, selector: &Selector) -> fmt::Result {
    let protocol = selector.protocol;
    if protocol == 0 {
        return Ok(());
    }
    write!(f, " {}", Protocol(protocol))?;
    let names = match protocol {
        ICMP | ICMPV6 => [" type", " code"],
        _ => [" from port", " to port"],
    };
    for (name, port) in names.into_iter().zip([selector.source_port, selector.destination_port]) {
        match port.mask {
            0 => {}
            u16::MAX => write!(f, "{name} {}", port.value)?,
            mask => write!(f, "{name} {}/{mask:#06x}", port.value)?,
        }
    }
    Ok(())
}

pub(super) fn describe(policy: &Policy) -> Described {
    Described { info: policy.info, if_id: policy.if_id, cover: cover(policy) }
}

/// Treatment of the packets that a policy means.
fn cover(policy: &Policy) -> Cover {
    match (policy.info.action, policy.templates.is_empty()) {
        (Action::Block, _) => Cover::Discard,
        (Action::Allow, true) => Cover::Bypass,
        (Action::Allow, false) => Cover::Protect,
    }
}

/// Meaning of a policy to the packet filter. Packets to an interface by its identifier are for others to route.
pub(super) fn covered(policy: &Policy) -> Option<Covered> {
    let info = &policy.info;
    if policy.if_id != 0 {
        return None;
    }
    let (source, destination) = networks(info)?;
    let (local, remote) = match info.direction {
        PolicyDirection::Out => (source, destination),
        PolicyDirection::In | PolicyDirection::Forward => (destination, source),
    };
    let selector = &info.selector;
    let ports = selector.source_port.mask | selector.destination_port.mask;
    let cover = cover(policy);
    if cover == Cover::Bypass && is_neighbour_discovery(info) {
        return None;
    }
    let is_whole = selector.protocol == 0 && ports == 0;
    Some(Covered { local, remote, is_whole, cover, direction: info.direction })
}

/// True if a policy is for Neighbour Discovery alone (RFC 4861), which passes on its link anyway: Libreswan has such.
fn is_neighbour_discovery(info: &PolicyInfo) -> bool {
    let types = info.selector.source_port;
    info.selector.protocol == ICMPV6
        && types.mask == u16::MAX
        && u8::try_from(types.value).is_ok_and(|kind| NEIGHBOUR_DISCOVERY.contains(&kind))
}

impl Kernel {
    /// Changes that a request would make to what policies cover, before it is carried out; nothing for one that is not
    /// about policies. A refusal is logged and counted like one of [`Kernel::execute`].
    ///
    /// # Errors
    /// As the request would be refused because workers cannot do it.
    pub fn cover_change(
        &mut self,
        client: &Client,
        request: &Request,
        at: Moment,
    ) -> Result<Option<CoverChange>, Refusal> {
        let change = self.change_of(request);
        change.inspect_err(|refusal| self.note_refused(client, request, refusal, at))
    }

    fn change_of(&self, request: &Request) -> Result<Option<CoverChange>, Refusal> {
        let change = match request {
            Request::NewPolicy(policy) | Request::UpdPolicy(policy) => {
                self.plane.read(policy)?;
                let twin = self.policies.twin(policy).and_then(covered);
                CoverChange { come: covered(policy), gone: twin.into_iter().collect() }
            }
            Request::DelPolicy(key) => {
                let gone = self.policies.get(key).ok().and_then(covered);
                CoverChange { come: None, gone: gone.into_iter().collect() }
            }
            Request::FlushPolicy(flush) => {
                let gone = self.policies.of_type(flush.policy_type.unwrap_or_default());
                CoverChange { come: None, gone: gone.filter_map(covered).collect() }
            }
            _ => return Ok(None),
        };
        Ok(Some(change))
    }

    pub(super) fn put_policy(
        &mut self,
        writer: &mut Writer,
        client: &Client,
        policy: Policy,
        insertion: Insertion,
        to: Address,
        at: Moment,
    ) -> Result<Carried, Refusal> {
        let recorded = NewPolicy::check(self, &policy)?.record(policy, insertion, at.unix())?;
        let committed = recorded.place(writer)?.commit()?;
        let Some(PublishedPolicy { index, before }) = committed else {
            return Ok(Carried::default());
        };
        let Some(policy) = self.policies.by_index(index) else { return Ok(Carried::default()) };
        let verb = if before.is_some() { "changed" } else { "added" };
        self.log.changed(client, format_args!("{} {verb}", describe(policy)));
        self.undecided.extend(self.plane.guesses_of(policy));
        let mut carried = Carried {
            covered: covered(policy).into_iter().collect(),
            uncovered: before.as_ref().and_then(covered).into_iter().collect(),
            ..Carried::default()
        };
        let is_update = insertion == Insertion::Replace;
        carried.answer.events.push((Group::Policy, policy.answer(is_update, to)));
        Ok(carried)
    }

    pub(super) fn delete_policy(
        &mut self,
        writer: &mut Writer,
        client: &Client,
        key: &PolicyKey,
        to: Address,
    ) -> Result<Carried, Refusal> {
        let policy = self.policies.remove(key)?;
        self.let_go_of_policies(std::slice::from_ref(&policy), writer);
        self.log.changed(client, format_args!("{} removed", describe(&policy)));
        let uncovered = covered(&policy).into_iter().collect();
        let deleted = Reply::DelPolicy(Box::new(PolicyDeleted { name: key.name, policy }));
        let mut carried = Carried { uncovered, ..Carried::default() };
        carried.answer.events.extend(deleted.build(to).map(|message| (Group::Policy, message)));
        Ok(carried)
    }

    pub(super) fn flush_policies(
        &mut self,
        writer: &mut Writer,
        client: &Client,
        flush: &FlushPolicy,
        to: Address,
    ) -> Result<Carried, Refusal> {
        let gone = self.policies.flush(flush.policy_type.unwrap_or_default());
        if gone.is_empty() {
            return Ok(Carried::default());
        }
        self.let_go_of_policies(&gone, writer);
        tracing::info!(by = %client.command, pid = client.pid, "{} policies flushed", gone.len());
        let uncovered = gone.iter().filter_map(covered).collect();
        let flushed = FlushPolicy { policy_type: flush.policy_type, ..FlushPolicy::default() };
        let mut carried = Carried { uncovered, ..Carried::default() };
        let message = Reply::FlushPolicy(flushed).build(to);
        carried.answer.events.extend(message.map(|message| (Group::Policy, message)));
        Ok(carried)
    }
}
