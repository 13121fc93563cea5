//! Chains of rules, and what their counters say.

use std::collections::BTreeMap;

use netlink_packet_core::{DefaultNla, Nla as _, ParseableParametrized as _};
use netlink_packet_netfilter::{
    NetfilterMessage, NetfilterMessageInner,
    nftables::{
        ChainAttribute, ChainMessage, ExpressionAttribute, Expressions, Hook, HookNumber,
        InetHookNumber, ListAttribute, NfTablesMessage, RuleAttribute, RuleMessage,
    },
};

use super::{
    expression::{ACCEPT, DROP, Expression, count, verdict},
    transaction::{Answer, Order},
};

/// A place of chains ahead of all that others usually do. Sources are changed at 100 (`NF_IP_PRI_NAT_SRC`), and
/// by SNPT of ip6tables at -150 (`NF_IP6_PRI_MANGLE`).
pub const FIRST: i32 = -500;
/// A place of chains behind all that others usually do.
pub const LAST: i32 = 300;
/// `NFTA_COUNTER_PACKETS`.
const COUNTER_PACKETS: u16 = 2;

/// A chain at a hook and its place there, and its rules.
pub fn chain(
    table: &str,
    name: &str,
    (hook, place): (InetHookNumber, i32),
    rules: Vec<Vec<Expression>>,
) -> Vec<Order> {
    let new = Order::make(NfTablesMessage::NewChain(ChainMessage {
        attributes: vec![
            ChainAttribute::Table(table.into()),
            ChainAttribute::Name(name.into()),
            ChainAttribute::Hook(vec![
                Hook::Number(HookNumber::Inet(hook)),
                Hook::Priority(place.cast_unsigned()),
            ]),
            ChainAttribute::Policy(ACCEPT),
            ChainAttribute::Type("filter".into()),
        ],
    }));
    let rules = rules.into_iter().map(|expressions| {
        Order::append(NfTablesMessage::NewRule(RuleMessage {
            attributes: vec![
                RuleAttribute::Table(table.into()),
                RuleAttribute::Chain(name.into()),
                RuleAttribute::Expressions(expressions),
            ],
        }))
    });
    core::iter::once(new).chain(rules).collect()
}

/// Counts and drops.
pub fn stop() -> Vec<Expression> {
    vec![count(), verdict(DROP)]
}

/// Asks for the rules of a chain.
pub fn question(table: &str, chain: &str) -> NfTablesMessage {
    let attributes = vec![RuleAttribute::Table(table.into()), RuleAttribute::Chain(chain.into())];
    NfTablesMessage::GetRule(RuleMessage { attributes })
}

/// Packets that the counters of a rule have counted.
pub fn packets_counted(rule: &Answer) -> u64 {
    let Ok(message) = NetfilterMessage::parse_with_param(&rule.bytes, rule.kind) else { return 0 };
    let NetfilterMessageInner::NfTables(NfTablesMessage::NewRule(rule)) = message.inner else {
        return 0;
    };
    let lists = rule.attributes.iter().filter_map(|a| match a {
        RuleAttribute::Expressions(list) => Some(list),
        _ => None,
    });
    let data = lists.flatten().filter_map(|e| match e {
        ListAttribute::Element(attributes) => Some(attributes),
        _ => None,
    });
    data.flatten()
        .filter_map(|attribute| match attribute {
            ExpressionAttribute::Data(Expressions::Other { expression_type, attributes })
                if expression_type == "counter" =>
            {
                attributes.iter().find(|nla| nla.kind() == COUNTER_PACKETS).and_then(number)
            }
            _ => None,
        })
        .fold(0, u64::saturating_add)
}

fn number(nla: &DefaultNla) -> Option<u64> {
    let mut bytes = [0; 8];
    if nla.value_len() != bytes.len() {
        return None;
    }
    nla.emit_value(&mut bytes);
    Some(u64::from_be_bytes(bytes))
}

/// How many rules these make in each chain.
#[must_use]
pub fn rules_of(orders: &[Order]) -> BTreeMap<String, usize> {
    let mut rules = BTreeMap::<String, usize>::new();
    for chain in orders.iter().filter_map(Order::chain_of_rule) {
        *rules.entry(chain.to_owned()).or_default() += 1;
    }
    rules
}
