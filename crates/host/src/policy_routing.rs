//! Rules beside those that a kernel has from the start (`ip rule`).

use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage as Message,
    rule::{RuleAction, RuleAttribute, RuleMessage},
};

use crate::{HostError, Network, change::GUARD_PROTOCOL, netlink::Refusal};

/// Priorities and tables of the rules that a kernel has from the start: local, main, default.
const USUAL: [(u32, u32); 3] = [(0, 255), (32766, 254), (32767, 253)];

impl Network {
    /// True if rules of others choose between routing tables, so that the main table alone does not tell where packets
    /// go. Rules of gateways like this one only keep packets from going elsewhere.
    ///
    /// # Errors
    /// [`HostError::Netlink`].
    pub fn has_policy_routing(&mut self) -> Result<bool, HostError> {
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
            let is_others = |message: &Message| match message {
                Message::NewRule(rule) => rule.header.family == family && is_of_others(rule),
                _ => false,
            };
            if list.iter().any(is_others) {
                return Ok(true);
            }
        }
        Ok(false)
    }
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
