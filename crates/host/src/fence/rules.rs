//! Who is led to the fence's tables: `ip rule`s.

use std::{collections::BTreeSet, net::IpAddr};

use netlink_packet_core::NLM_F_CREATE;
use netlink_packet_route::{
    AddressFamily, IpProtocol, RouteNetlinkMessage as Message,
    route::RouteProtocol,
    rule::{RuleAction, RuleAttribute, RuleMessage, RulePortRange},
};

use super::{FenceConfig, PROTOCOL, Pair};
use crate::netlink::{Refusal, Rtnl};

/// UDP ports that IKE is sent from (RFC 7296 section 2).
pub(super) const IKE_PORTS: [u16; 2] = [500, 4500];
/// How the kernel calls the "interface" that the host's own packets come from.
const OF_THE_HOST: &str = "lo";

/// The place of the rule where those go on who are led past the fence's tables. At the usual priority it
/// is behind strongSwan's (220): what that routes is what tunnels are to carry, and a default route there
/// would lead what comes out of a tunnel back to the wire, in clear.
const BEHIND: u32 = 11;
/// Priorities that are the fence's, from the first on.
const PLACES: u32 = BEHIND + 1;

/// The rules in the order in which they may be made: nobody is led to the fence's tables before
/// those who must not be have a way around them.
fn wanted(config: &FenceConfig, open: &BTreeSet<Pair>, family: AddressFamily) -> Vec<RuleMessage> {
    let behind = config.priority.saturating_add(BEHIND);
    let rule = |place: u32, action: RuleAction, what: Vec<RuleAttribute>| {
        let mut message = RuleMessage::default();
        message.header.family = family;
        message.header.action = action;
        message.attributes.push(RuleAttribute::Priority(config.priority.saturating_add(place)));
        message.attributes.push(RuleAttribute::Protocol(RouteProtocol::Other(PROTOCOL)));
        message.attributes.extend(what);
        message
    };
    let goto = |place: u32, mut what: Vec<RuleAttribute>| {
        what.push(RuleAttribute::Goto(behind));
        rule(place, RuleAction::Goto, what)
    };
    let of = |interface: &str| RuleAttribute::Iifname(interface.into());
    let ike = |place: u32, port: u16| {
        let ports = RulePortRange { start: port, end: port };
        let udp = RuleAttribute::IpProtocol(IpProtocol::Udp);
        goto(place, vec![of(OF_THE_HOST), udp, RuleAttribute::SourcePortRange(ports)])
    };
    let [out, from_tun] = config.tables().map(RuleAttribute::Table);
    let tun = config.tun.as_str();
    let [first, second] = IKE_PORTS;
    let (mark, mask) = (config.mark.masked(), config.mark.mask);
    let mut rules = vec![
        rule(BEHIND, RuleAction::Nop, Vec::new()),
        goto(0, vec![of(OF_THE_HOST), RuleAttribute::FwMark(mark), RuleAttribute::FwMask(mask)]),
        ike(1, first),
        ike(2, second),
        goto(4, vec![of(tun)]),
        rule(3, RuleAction::ToTable, vec![of(tun), from_tun]),
    ];
    let of_family = |pair: &&Pair| pair.to.addr().is_ipv4() == (family == AddressFamily::Inet);
    rules.extend(open.iter().filter(of_family).map(|pair| {
        let ends = [
            (pair.from, RuleAttribute::Source as fn(IpAddr) -> RuleAttribute),
            (pair.to, RuleAttribute::Destination),
        ];
        // The kernel does not show a prefix of everything.
        let ends = ends.into_iter().filter(|(network, _)| network.prefix_len() > 0);
        let mut message = goto(5, ends.map(|(network, end)| end(network.network())).collect());
        message.header.src_len = pair.from.prefix_len();
        message.header.dst_len = pair.to.prefix_len();
        message
    }));
    rules.push(rule(6, RuleAction::ToTable, vec![out]));
    rules
}

/// Makes the rules that are not there, and takes away those of an earlier life that are not wanted.
/// How many were made.
pub(super) fn make(
    rtnl: &mut Rtnl,
    config: &FenceConfig,
    open: &BTreeSet<Pair>,
) -> Result<usize, Refusal> {
    let mut made = 0;
    for family in families(rtnl)? {
        let wanted = wanted(config, open, family);
        // Asked to remove a rule without a source (or destination), a kernel removes the oldest that has
        // the rest, whatever its source: then that one is made again, and is the youngest.
        for _ in 0..=wanted.len() {
            let there = present(rtnl, config, family)?;
            let is_in = |list: &[RuleMessage], rule: &RuleMessage| {
                let meant = meaning(rule);
                list.iter().any(|other| meaning(other) == meant)
            };
            // Whether a rule exists a kernel answers in the same way, so it is not asked.
            for missing in wanted.iter().filter(|rule| !is_in(&there, rule)) {
                match rtnl.change(Message::NewRule(missing.clone()), NLM_F_CREATE) {
                    Ok(()) => made += 1,
                    Err(Refusal { errno: nix::libc::EEXIST, .. }) => {}
                    Err(other) => return Err(other),
                }
            }
            let mut others = there.into_iter().filter(|rule| !is_in(&wanted, rule)).peekable();
            if others.peek().is_none() {
                break;
            }
            others.try_for_each(|other| remove(rtnl, other))?;
        }
    }
    Ok(made)
}

/// Takes the rules away, those that lead to the tables first.
pub(super) fn remove_all(rtnl: &mut Rtnl, config: &FenceConfig) -> Result<(), Refusal> {
    for family in families(rtnl)? {
        for message in wanted(config, &BTreeSet::new(), family).into_iter().rev() {
            remove(rtnl, message)?;
        }
        for message in present(rtnl, config, family)? {
            remove(rtnl, message)?;
        }
    }
    Ok(())
}

/// Address families whose rules this kernel has.
pub(super) fn families(rtnl: &mut Rtnl) -> Result<Vec<AddressFamily>, Refusal> {
    let mut families = Vec::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        if !dump(rtnl, family)?.is_empty() {
            families.push(family);
        }
    }
    Ok(families)
}

fn remove(rtnl: &mut Rtnl, message: RuleMessage) -> Result<(), Refusal> {
    match rtnl.change(Message::DelRule(message), 0) {
        Ok(()) | Err(Refusal { errno: nix::libc::ENOENT, .. }) => Ok(()),
        Err(other) => Err(other),
    }
}

fn dump(rtnl: &mut Rtnl, family: AddressFamily) -> Result<Vec<RuleMessage>, Refusal> {
    let mut question = RuleMessage::default();
    question.header.family = family;
    let list = match rtnl.dump(&Message::GetRule(question)) {
        // The kernel has no such family.
        Err(Refusal { errno: nix::libc::EOPNOTSUPP | nix::libc::EAFNOSUPPORT, .. }) => Vec::new(),
        other => other?,
    };
    let rule = |m| if let Message::NewRule(rule) = m { Some(rule) } else { None };
    // Without the family the kernel answers with the rules of all.
    Ok(list.into_iter().filter_map(rule).filter(|rule| rule.header.family == family).collect())
}

/// Rules of this kind: made by Convoy, and about the same tables or the same priorities.
fn present(
    rtnl: &mut Rtnl,
    config: &FenceConfig,
    family: AddressFamily,
) -> Result<Vec<RuleMessage>, Refusal> {
    let mut list = dump(rtnl, family)?;
    let tables = config.tables();
    list.retain(|rule| {
        let meaning = meaning(rule);
        let place = meaning.priority.wrapping_sub(config.priority);
        meaning.is_ours && (place < PLACES || meaning.table.is_some_and(|t| tables.contains(&t)))
    });
    Ok(list)
}

/// Rules that lead all packets, or all but marked ones, to a table: priority and table.
pub(super) fn lookups(rtnl: &mut Rtnl, family: AddressFamily) -> Result<Vec<(u32, u32)>, Refusal> {
    let selects = |attribute: &RuleAttribute| {
        matches!(
            attribute,
            RuleAttribute::Iifname(_)
                | RuleAttribute::Oifname(_)
                | RuleAttribute::Source(_)
                | RuleAttribute::Destination(_)
                | RuleAttribute::IpProtocol(_)
                | RuleAttribute::L3MDev(true)
                | RuleAttribute::UidRange(_)
        )
    };
    let rules = dump(rtnl, family)?.into_iter();
    let general = rules.filter(|rule| !rule.attributes.iter().any(selects));
    Ok(general.map(|r| meaning(&r)).filter_map(|m| Some((m.priority, m.table?))).collect())
}

/// What of a rule tells it from others.
#[derive(Debug, Default, PartialEq, Eq)]
struct Meaning {
    is_ours: bool,
    action: u8,
    priority: u32,
    table: Option<u32>,
    goto: Option<u32>,
    from: Option<String>,
    mark: Option<u32>,
    mask: Option<u32>,
    ports: Option<(u16, u16)>,
    source: Option<(IpAddr, u8)>,
    destination: Option<(IpAddr, u8)>,
}

fn meaning(rule: &RuleMessage) -> Meaning {
    let mut meaning = Meaning { action: rule.header.action.into(), ..Meaning::default() };
    for attribute in &rule.attributes {
        match attribute {
            RuleAttribute::Protocol(protocol) => {
                meaning.is_ours = u8::from(*protocol) == PROTOCOL;
            }
            RuleAttribute::Priority(priority) => meaning.priority = *priority,
            RuleAttribute::Table(table) if rule.header.action == RuleAction::ToTable => {
                meaning.table = Some(*table);
            }
            RuleAttribute::Goto(goto) => meaning.goto = Some(*goto),
            RuleAttribute::Iifname(name) => meaning.from = Some(name.clone()),
            RuleAttribute::Source(address) => {
                meaning.source = Some((*address, rule.header.src_len));
            }
            RuleAttribute::Destination(address) => {
                meaning.destination = Some((*address, rule.header.dst_len));
            }
            RuleAttribute::FwMark(mark) => meaning.mark = Some(*mark),
            RuleAttribute::FwMask(mask) => meaning.mask = Some(*mask),
            RuleAttribute::SourcePortRange(range) => meaning.ports = Some((range.start, range.end)),
            _ => {}
        }
    }
    meaning
}
