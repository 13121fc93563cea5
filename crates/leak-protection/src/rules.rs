//! The `ip rule`s that lead packets to the tables of [`crate::routes`].
//!
//! What the gateway sends itself, and what was answered to pass in clear, goes by the host's own tables; what was
//! answered to be protected goes into the TUN interface; all others are routed to remote networks as if nothing were asked.
//! Where marks lead, all others go by the host's own tables, and the reverse path filter looks for those who sent what
//! came out of the TUN interface there. A site's own policies may have routes to remote networks all the same: packets
//! without a mark find these behind everybody's rules and routes, and ahead of the main table's default route.

use convoy_host::{LinkName, Mark};
use convoy_netlink::{Refusal, Rtnl};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage as Message,
    route::RouteProtocol,
    rule::{RuleAction, RuleAttribute, RuleMessage},
};

use crate::{
    config::{Config, Lead},
    error::LeakProtectionError,
    marks::Noted,
    questions::Questions,
    routes::PROTOCOL,
};

/// Place of the rule at which packets go on that are led past the tables.
const BEHIND: u32 = 7;
/// Place of the rule at which packets go on that came out of the TUN interface, where marks lead: behind strongSwan's table
/// (220 by its own rule's priority). What that routes is what tunnels are to carry, and a default route there would lead
/// what a tunnel brought back to the wire.
const BEHIND_DAEMONS: u32 = 11;
/// The first and the last of the rules just ahead of that which leads to the main table.
const LATE: [u32; 2] = [32_762, 32_765];
const MAIN: u32 = 254;

/// Properties of a rule that tell it from others.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    priority: u32,
    to: To,
    /// The mark of the packets that are meant, and its mask.
    mark: Option<(u32, u32)>,
    /// Only what comes in by this interface.
    from: Option<String>,
}

/// Target of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum To {
    Table(u32),
    /// To a table, but not by its default route.
    Networks(u32),
    /// The rule of another priority.
    Rule(u32),
    /// On.
    Nowhere,
}

/// The rules of one pair of tables.
#[derive(Debug)]
pub(crate) struct Rules {
    rtnl: Rtnl,
    tun: LinkName,
    leads: Lead,
    questions: Questions,
    /// Mark of the gateway's own packets.
    own: Mark,
}

impl Rules {
    /// Opens the rules of the calling thread's network namespace.
    pub(crate) fn open(config: &Config) -> Result<Self, LeakProtectionError> {
        let rtnl = Rtnl::open().map_err(|error| LeakProtectionError::Netlink(error.into()))?;
        let Config { tun, mark, leads, questions, .. } = config;
        Ok(Self { rtnl, tun: tun.clone(), leads: *leads, questions: *questions, own: *mark })
    }

    /// Makes the rules that are missing, those to remote networks included if there are routes to them; how many.
    pub(crate) fn make(&mut self, are_routed: bool) -> Result<usize, LeakProtectionError> {
        let failed = |refusal| LeakProtectionError::Rule { doing: "make", refusal };
        let mut made = 0;
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let Some(there) = self.present(family).map_err(failed)? else { continue };
            let wanted = self.wanted(are_routed);
            for rule in wanted.iter().filter(|rule| !there.contains(rule)) {
                let order = Message::NewRule(rule.message(family));
                match self.rtnl.change(order, NLM_F_CREATE | NLM_F_EXCL) {
                    Ok(()) => made += 1,
                    Err(Refusal { errno: nix::libc::EEXIST, .. }) => {}
                    Err(refusal) => return Err(failed(refusal)),
                }
            }
            for rule in there.iter().filter(|rule| !wanted.contains(rule)) {
                self.remove_one(rule, family).map_err(failed)?;
            }
        }
        Ok(made)
    }

    /// Removes the rules, those that lead to the tables first.
    pub(crate) fn remove(&mut self) -> Result<(), LeakProtectionError> {
        let failed = |refusal| LeakProtectionError::Rule { doing: "remove", refusal };
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut there = self.present(family).map_err(failed)?.unwrap_or_default();
            there.sort_by_key(|rule| core::cmp::Reverse(matches!(rule.to, To::Table(_))));
            for rule in there {
                self.remove_one(&rule, family).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// In the order in which they may be made: nobody is led to a table before those who must not be have a way around.
    fn wanted(&self, are_routed: bool) -> Vec<Rule> {
        let [remote, answered] = self.questions.tables();
        let first = self.questions.priority;
        let behind = |place: u32| first.saturating_add(place);
        let bits = |noted| {
            let bits = self.questions.marks.noted(noted);
            Some((bits.value, bits.mask))
        };
        let own = Some((self.own.value & self.own.mask, self.own.mask));
        let forwarded = self.questions.marks.protect_forwarded();
        let forwarded = Some((forwarded.value, forwarded.mask));
        // The reverse path filter asks for the way back as if the answer came in by where the packet goes out.
        let way_back = Some(self.tun.as_str().to_owned());
        let at = |priority, to, mark| Rule { priority, to, mark, from: None };
        let rule = |place, to, mark| at(behind(place), to, mark);
        if self.leads == Lead::ByMark {
            let out_of_tunnel = self.questions.marks.out_of_tunnel();
            let mark = Some((out_of_tunnel.value, out_of_tunnel.mask));
            let past = To::Rule(behind(BEHIND_DAEMONS));
            let mut rules = vec![
                rule(BEHIND_DAEMONS, To::Nowhere, None),
                Rule { from: way_back.clone(), ..rule(0, past, mark) },
                rule(1, To::Table(answered), mark),
                Rule { from: way_back, ..rule(2, past, forwarded) },
                rule(3, To::Table(answered), bits(Noted::Protect)),
                rule(4, To::Table(answered), forwarded),
            ];
            if are_routed {
                let none = self.questions.marks.unanswered();
                let none = Some((none.value, none.mask));
                let [from, to] = LATE;
                rules.extend([
                    at(to, To::Nowhere, None),
                    at(from, To::Rule(to), own),
                    // So that a remote network around the host's own ones does not take these away.
                    at(from + 1, To::Networks(MAIN), none),
                    at(from + 2, To::Table(remote), none),
                ]);
            }
            return rules;
        }
        vec![
            rule(BEHIND, To::Nowhere, None),
            rule(0, To::Rule(behind(BEHIND)), own),
            rule(1, To::Rule(behind(BEHIND)), bits(Noted::Bypass)),
            // The reverse path filter asks as well.
            rule(2, To::Rule(behind(BEHIND)), bits(Noted::Here)),
            Rule { from: way_back, ..rule(3, To::Rule(behind(BEHIND)), forwarded) },
            rule(4, To::Table(answered), bits(Noted::Protect)),
            rule(5, To::Table(answered), forwarded),
            rule(6, To::Table(remote), None),
        ]
    }

    /// Rules of this kind; none where the kernel has no such family.
    fn present(&mut self, family: AddressFamily) -> Result<Option<Vec<Rule>>, Refusal> {
        let there = of_family(&mut self.rtnl, family)?;
        if there.is_empty() {
            return Ok(None);
        }
        let tables = self.questions.tables();
        let first = self.questions.priority;
        let places = first..=first.saturating_add(BEHIND_DAEMONS);
        let [from, to] = LATE;
        let late = from..=to;
        let ours = there.iter().filter_map(Rule::read).filter(|rule| {
            let is_to_ours = matches!(rule.to, To::Table(table) if tables.contains(&table));
            is_to_ours || places.contains(&rule.priority) || late.contains(&rule.priority)
        });
        Ok(Some(ours.collect()))
    }

    fn remove_one(&mut self, rule: &Rule, family: AddressFamily) -> Result<(), Refusal> {
        match self.rtnl.change(Message::DelRule(rule.message(family)), 0) {
            Ok(()) | Err(Refusal { errno: nix::libc::ENOENT, .. }) => Ok(()),
            Err(other) => Err(other),
        }
    }
}

/// Anybody's rule that leads all packets to a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lookup {
    pub(crate) priority: u32,
    pub(crate) table: u32,
    /// Routes of at most this prefix length do not count.
    pub(crate) suppressed: Option<u8>,
}

/// Rules that lead all packets to a table.
pub(crate) fn lookups(rtnl: &mut Rtnl, family: AddressFamily) -> Result<Vec<Lookup>, Refusal> {
    let selects = |attribute: &RuleAttribute| {
        matches!(
            attribute,
            RuleAttribute::Iifname(_)
                | RuleAttribute::Oifname(_)
                | RuleAttribute::Source(_)
                | RuleAttribute::Destination(_)
                | RuleAttribute::FwMark(_)
                | RuleAttribute::FwMask(_)
                | RuleAttribute::IpProtocol(_)
                | RuleAttribute::L3MDev(true)
                | RuleAttribute::UidRange(_)
        )
    };
    let rules = of_family(rtnl, family)?.into_iter();
    let general = rules.filter(|rule| !rule.attributes.iter().any(selects));
    let table = |rule: RuleMessage| {
        let (mut priority, mut table, mut suppressed) = (0, None, None);
        for attribute in rule.attributes {
            match attribute {
                RuleAttribute::Priority(number) => priority = number,
                RuleAttribute::Table(number) => table = Some(number),
                // The kernel shows all bits set where there is none.
                RuleAttribute::SuppressPrefixLen(bits) => suppressed = u8::try_from(bits).ok(),
                _ => {}
            }
        }
        let table = table.unwrap_or_else(|| rule.header.table.into());
        let leads = rule.header.action == RuleAction::ToTable;
        leads.then_some(Lookup { priority, table, suppressed })
    };
    Ok(general.filter_map(table).collect())
}

/// All rules of a family; none where the kernel has not got it.
pub(crate) fn of_family(
    rtnl: &mut Rtnl,
    family: AddressFamily,
) -> Result<Vec<RuleMessage>, Refusal> {
    let mut question = RuleMessage::default();
    question.header.family = family;
    let list = match rtnl.dump(&Message::GetRule(question)) {
        Err(Refusal { errno: nix::libc::EOPNOTSUPP | nix::libc::EAFNOSUPPORT, .. }) => Vec::new(),
        list => list?,
    };
    let rule = |m| if let Message::NewRule(rule) = m { Some(rule) } else { None };
    // Without the family the kernel answers with the rules of all.
    Ok(list.into_iter().filter_map(rule).filter(|rule| rule.header.family == family).collect())
}

/// The mark that a rule selects, and its mask. The kernel does not show a mark of 0.
pub(crate) fn mark_of(value: Option<u32>, mask: Option<u32>) -> Option<(u32, u32)> {
    match (value, mask) {
        (None, None | Some(0)) => None,
        (value, mask) => Some((value.unwrap_or(0), mask.unwrap_or(u32::MAX))),
    }
}

impl Rule {
    fn message(&self, family: AddressFamily) -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header.family = family;
        message.attributes.push(RuleAttribute::Priority(self.priority));
        message.attributes.push(RuleAttribute::Protocol(RouteProtocol::Other(PROTOCOL)));
        let (action, attribute) = match self.to {
            To::Table(table) | To::Networks(table) => {
                (RuleAction::ToTable, Some(RuleAttribute::Table(table)))
            }
            To::Rule(priority) => (RuleAction::Goto, Some(RuleAttribute::Goto(priority))),
            To::Nowhere => (RuleAction::Nop, None),
        };
        message.header.action = action;
        message.attributes.extend(attribute);
        if matches!(self.to, To::Networks(_)) {
            message.attributes.push(RuleAttribute::SuppressPrefixLen(0));
        }
        if let Some((value, mask)) = self.mark {
            message.attributes.push(RuleAttribute::FwMark(value));
            message.attributes.push(RuleAttribute::FwMask(mask));
        }
        message.attributes.extend(self.from.clone().map(RuleAttribute::Iifname));
        message
    }

    /// Parses a rule, if Convoy made it.
    fn read(message: &RuleMessage) -> Option<Self> {
        let (mut priority, mut table, mut goto, mut is_ours) = (0, None, None, false);
        let (mut from, mut is_specific) = (None, false);
        let (mut value, mut mask) = (None, None);
        for attribute in &message.attributes {
            match attribute {
                RuleAttribute::Priority(number) => priority = *number,
                RuleAttribute::Protocol(protocol) => is_ours = u8::from(*protocol) == PROTOCOL,
                RuleAttribute::Table(number) => table = Some(*number),
                RuleAttribute::Goto(number) => goto = Some(*number),
                RuleAttribute::FwMark(number) => value = Some(*number),
                RuleAttribute::FwMask(number) => mask = Some(*number),
                RuleAttribute::SuppressPrefixLen(len) => is_specific = *len == 0,
                RuleAttribute::Iifname(name) => from = Some(name.clone()),
                _ => {}
            }
        }
        let to = match message.header.action {
            RuleAction::ToTable if is_specific => To::Networks(table?),
            RuleAction::ToTable => To::Table(table?),
            RuleAction::Goto => To::Rule(goto?),
            RuleAction::Nop => To::Nowhere,
            _ => return None,
        };
        let mark = mark_of(value, mask);
        is_ours.then_some(Self { priority, to, mark, from })
    }
}
