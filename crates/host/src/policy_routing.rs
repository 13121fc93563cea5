//! Rules beside those that a kernel has from the start (`ip rule`).

use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage as Message,
    route::RouteProtocol,
    rule::{RuleAction, RuleAttribute, RuleMessage},
};

use crate::{HostError, LinkName, Network, change::GUARD_PROTOCOL, netlink::Refusal};

/// Priorities and tables of the rules that a kernel has from the start: local, main, default.
const USUAL: [(u32, u32); 3] = [(0, 255), (32766, 254), (32767, 253)];

impl Network {
    /// True if rules of others choose between routing tables, so that the main table alone does not tell where packets
    /// go. Rules of gateways like this one only keep packets from going elsewhere.
    ///
    /// # Errors
    /// [`HostError::Netlink`].
    pub fn has_policy_routing(&mut self) -> Result<bool, HostError> {
        Ok(self.rules()?.iter().any(is_of_others))
    }

    /// Interfaces whose packets a [`Change::Guard`](crate::Change::Guard) keeps the kernel from forwarding.
    ///
    /// # Errors
    /// [`HostError::Netlink`].
    pub fn guarded(&mut self) -> Result<Vec<String>, HostError> {
        let mut links: Vec<_> = self.rules()?.iter().filter_map(guarded).collect();
        links.sort();
        links.dedup();
        Ok(links)
    }

    /// Removes what a process that was killed left of a [`Change::Guard`](crate::Change::Guard); true if there was
    /// something.
    ///
    /// # Errors
    /// [`HostError::Netlink`].
    pub fn remove_guard(&mut self, link: &LinkName) -> Result<bool, HostError> {
        let mut was_there = false;
        for rule in self.rules()? {
            if guarded(&rule).is_none_or(|name| name != link.as_str()) {
                continue;
            }
            match self.rtnl.change(Message::DelRule(rule), 0) {
                Ok(()) => was_there = true,
                Err(Refusal { errno: nix::libc::ENOENT, .. }) => {}
                Err(refusal) => return Err(refusal.into()),
            }
        }
        Ok(was_there)
    }

    /// The rules of both families.
    fn rules(&mut self) -> Result<Vec<RuleMessage>, HostError> {
        let mut rules = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut question = RuleMessage::default();
            question.header.family = family;
            let list = match self.rtnl.dump(&Message::GetRule(question)) {
                Err(Refusal { errno, .. })
                    if [nix::libc::EOPNOTSUPP, nix::libc::EAFNOSUPPORT].contains(&errno) =>
                {
                    Vec::new()
                }
                list => list?,
            };
            rules.extend(list.into_iter().filter_map(|message| match message {
                Message::NewRule(rule) if rule.header.family == family => Some(rule),
                _ => None,
            }));
        }
        Ok(rules)
    }
}

/// The interface of a rule that is a guard's.
fn guarded(rule: &RuleMessage) -> Option<String> {
    let ours = RuleAttribute::Protocol(RouteProtocol::Other(GUARD_PROTOCOL));
    let is_guard = rule.header.action == RuleAction::Blackhole && rule.attributes.contains(&ours);
    rule.attributes.iter().filter(|_| is_guard).find_map(|attribute| match attribute {
        RuleAttribute::Iifname(name) => Some(name.clone()),
        _ => None,
    })
}

fn is_of_others(rule: &RuleMessage) -> bool {
    let (mut priority, mut table) = (0, u32::from(rule.header.table));
    for attribute in &rule.attributes {
        match attribute {
            RuleAttribute::Priority(number) => priority = *number,
            RuleAttribute::Table(number) => table = *number,
            RuleAttribute::Protocol(protocol) if u8::from(*protocol) == GUARD_PROTOCOL => {
                return false;
            }
            RuleAttribute::Source(_)
            | RuleAttribute::Destination(_)
            | RuleAttribute::FwMark(_)
            | RuleAttribute::Iifname(_)
            | RuleAttribute::Oifname(_) => return true,
            _ => {}
        }
    }
    rule.header.action != RuleAction::ToTable || !USUAL.contains(&(priority, table))
}
