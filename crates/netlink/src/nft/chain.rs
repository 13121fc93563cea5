//! Chains of rules, and what their counters say.

use std::collections::BTreeMap;

use netlink_packet_netfilter::nftables::{
    Bitwise, ChainAttribute, ChainMessage, Cmp, DataAttribute, ExpressionAttribute, Expressions,
    Hook, HookNumber, InetHookNumber, ListAttribute, NfTablesMessage, RuleAttribute, RuleMessage,
};

use super::{
    elements::{ELEMENT, within},
    expression::{ACCEPT, DROP, Expression, count, verdict},
    flow::Bits,
    read::{EXPRESSION_DATA, EXPRESSION_NAME, EXPRESSIONS, RULE},
    transaction::{Answer, Order},
};

/// A place of chains ahead of all that others usually do. Sources are changed at 100 (`NF_IP_PRI_NAT_SRC`), and
/// by SNPT of ip6tables at -150 (`NF_IP6_PRI_MANGLE`).
pub const FIRST: i32 = -500;
/// A place of chains behind all that others usually do.
pub const LAST: i32 = 300;
/// `NFTA_COUNTER_PACKETS`.
const COUNTER_PACKETS: u16 = 2;
/// Name of the expression that counts.
const COUNTER: &[u8] = b"counter\0";

/// Way by which packets come to a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Rules that [`super::jump()`] there.
    Jumps,
    /// A hook, at a priority.
    At(InetHookNumber, i32),
    /// The hook of what the host sends, at a priority. A packet whose mark the chain changes is routed anew.
    Routing(i32),
}

impl Place {
    fn attributes(self) -> Vec<ChainAttribute> {
        let (kind, hook, priority) = match self {
            Self::Jumps => return Vec::new(),
            Self::At(hook, priority) => ("filter", hook, priority),
            Self::Routing(priority) => ("route", InetHookNumber::LocalOut, priority),
        };
        vec![
            ChainAttribute::Hook(vec![
                Hook::Number(HookNumber::Inet(hook)),
                Hook::Priority(priority.cast_unsigned()),
            ]),
            ChainAttribute::Policy(ACCEPT),
            ChainAttribute::Type(kind.into()),
        ]
    }
}

/// A chain and its rules. Chains that these jump to must be there.
pub fn chain(table: &str, name: &str, place: Place, rules: Vec<Vec<Expression>>) -> Vec<Order> {
    let named = [ChainAttribute::Table(table.into()), ChainAttribute::Name(name.into())];
    let attributes = named.into_iter().chain(place.attributes()).collect();
    let new = Order::make(NfTablesMessage::NewChain(ChainMessage { attributes }));
    let rules = rules.into_iter().map(|expressions| rule(table, name, expressions));
    core::iter::once(new).chain(rules).collect()
}

/// Puts a rule behind all others of a chain.
pub fn rule(table: &str, chain: &str, expressions: Vec<Expression>) -> Order {
    Order::append(NfTablesMessage::NewRule(RuleMessage {
        attributes: vec![
            RuleAttribute::Table(table.into()),
            RuleAttribute::Chain(chain.into()),
            RuleAttribute::Expressions(expressions),
        ],
    }))
}

/// Counts and drops.
pub fn stop() -> Vec<Expression> {
    vec![count(), verdict(DROP)]
}

/// Removes the rules of a chain, which stays.
pub fn emptying(table: &str, chain: &str) -> Order {
    let attributes = vec![RuleAttribute::Table(table.into()), RuleAttribute::Chain(chain.into())];
    Order::plain(NfTablesMessage::DeleteRule(RuleMessage { attributes }))
}

/// Removes a chain that has no rules, and to which none leads.
pub fn removal_of_chain(table: &str, chain: &str) -> Order {
    let attributes = vec![ChainAttribute::Table(table.into()), ChainAttribute::Name(chain.into())];
    Order::plain(NfTablesMessage::DeleteChain(ChainMessage { attributes }))
}

/// Asks for the rules of a chain.
pub fn question(table: &str, chain: &str) -> NfTablesMessage {
    let attributes = vec![RuleAttribute::Table(table.into()), RuleAttribute::Chain(chain.into())];
    NfTablesMessage::GetRule(RuleMessage { attributes })
}

/// Packets that the counters of a rule have counted.
pub fn packets_counted(rule: &Answer) -> u64 {
    // Read here, as a gateway reads its rules each second, and the library takes 50 times as long.
    let expressions = rule.attributes(EXPRESSIONS).flat_map(|list| within(list, ELEMENT));
    let counters = expressions
        .filter(|expression| within(expression, EXPRESSION_NAME).any(|name| name == COUNTER));
    let counted = counters
        .flat_map(|counter| within(counter, EXPRESSION_DATA))
        .flat_map(|data| within(data, COUNTER_PACKETS))
        .filter_map(|packets| packets.try_into().ok().map(u64::from_be_bytes));
    counted.fold(0, u64::saturating_add)
}

/// Bits that a rule compares, in its order: those of four bytes of which it takes some before.
pub fn compared(rule: &Answer) -> Vec<Bits> {
    let mut mask = None;
    let mut found = Vec::new();
    let word = |value: &[u8]| value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
    for expression in expressions(rule) {
        match expression {
            Expressions::Bitwise(attributes) => {
                mask = attributes.iter().find_map(|attribute| match attribute {
                    Bitwise::Mask(DataAttribute::Value(value)) => word(value),
                    _ => None,
                });
            }
            Expressions::Cmp(attributes) => {
                let value = attributes.iter().find_map(|attribute| match attribute {
                    Cmp::Data(DataAttribute::Value(value)) => word(value),
                    _ => None,
                });
                found.extend(mask.zip(value).map(|(mask, value)| Bits { mask, value }));
            }
            _ => mask = None,
        }
    }
    found
}

fn expressions(rule: &Answer) -> Vec<Expressions> {
    let Some(NfTablesMessage::NewRule(rule)) = rule.read(RULE) else { return Vec::new() };
    expressions_of(rule)
}

/// Steps that a rule is made of.
pub(super) fn expressions_of(rule: RuleMessage) -> Vec<Expressions> {
    let lists = rule.attributes.into_iter().filter_map(|attribute| match attribute {
        RuleAttribute::Expressions(list) => Some(list),
        _ => None,
    });
    let elements = lists.flatten().filter_map(|element| match element {
        ListAttribute::Element(attributes) => expression(attributes),
        _ => None,
    });
    elements.collect()
}

/// Reads one step; of some the kernel says no more than their names.
fn expression(attributes: Vec<ExpressionAttribute>) -> Option<Expressions> {
    let mut named = None;
    for attribute in attributes {
        match attribute {
            ExpressionAttribute::Data(expression) => return Some(expression),
            ExpressionAttribute::Name(name) => named = Some(name),
            _ => {}
        }
    }
    let nothing_more =
        |expression_type| Expressions::Other { expression_type, attributes: Vec::new() };
    named.map(nothing_more)
}

/// Number of rules that these make in each chain.
#[must_use]
pub fn rules_of(orders: &[Order]) -> BTreeMap<String, usize> {
    let mut rules = BTreeMap::<String, usize>::new();
    for chain in orders.iter().filter_map(Order::chain_of_rule) {
        *rules.entry(chain.to_owned()).or_default() += 1;
    }
    rules
}
