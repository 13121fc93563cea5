//! The chain that stops what would leave in clear, and the sets that it asks.

use netlink_packet_core::{DefaultNla, Nla as _, ParseableParametrized as _};
use netlink_packet_netfilter::{
    NetfilterMessage, NetfilterMessageInner,
    nftables::{
        Bitwise, ChainAttribute, ChainMessage, Cmp, DataAttribute, ExpressionAttribute,
        Expressions, Hook, HookNumber, Immediate, InetHookNumber, ListAttribute, Lookup, Meta,
        MetaKey, NfTablesMessage, Operator, Payload, Register, RuleAttribute, RuleMessage,
        SetAttribute, SetFlags, SetMessage, Verdict, VerdictAttribute,
    },
};

use super::{
    FenceConfig,
    book::View,
    filter::{SETS, SetOf},
    rules::IKE_PORTS,
    transaction::{Answer, Order},
};

const CHAIN: &str = "egress";
/// Behind source NAT (100), where the packet is as it will leave.
const PRIORITY: u32 = 300;
/// `IFNAMSIZ`.
const NAME_LEN: usize = 16;
/// `NF_DROP`, `NF_ACCEPT`.
const DROP: u32 = 0;
const ACCEPT: u32 = 1;
/// `NFT_PAYLOAD_NETWORK_HEADER`, `NFT_PAYLOAD_TRANSPORT_HEADER`.
const NETWORK: u32 = 1;
const TRANSPORT: u32 = 2;
/// `NFPROTO_IPV4`, `NFPROTO_IPV6`.
const V4: u8 = 2;
const V6: u8 = 10;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
/// Router Solicitation to Redirect (RFC 4861 section 4), sent with this hop limit.
const NEIGHBOUR_DISCOVERY: [u8; 2] = [133, 137];
const NEIGHBOUR_HOP_LIMIT: u8 = 255;
/// `NFTA_COUNTER_PACKETS`.
const COUNTER_PACKETS: u16 = 2;
/// nft(8)'s numbers for addresses, so that it can print them.
const IPV4_ADDRESS: u32 = 7;
const IPV6_ADDRESS: u32 = 8;

type Expression = ListAttribute<ExpressionAttribute>;

/// The sets and the chain. Sets without a set that they belong to cannot be made, so they come first.
pub(super) fn sets_and_rules(config: &FenceConfig, table: &str) -> Vec<Order> {
    let mut orders: Vec<_> =
        SETS.iter().zip(1..).map(|(set, id)| new_set(table, *set, id)).collect();
    orders.push(Order::make(NfTablesMessage::NewChain(ChainMessage {
        attributes: vec![
            ChainAttribute::Table(table.into()),
            ChainAttribute::Name(CHAIN.into()),
            ChainAttribute::Hook(vec![
                Hook::Number(HookNumber::Inet(InetHookNumber::PostRouting)),
                Hook::Priority(PRIORITY),
            ]),
            ChainAttribute::Policy(ACCEPT),
            ChainAttribute::Type("filter".into()),
        ],
    })));
    orders.extend(rules(config).into_iter().map(|expressions| {
        Order::append(NfTablesMessage::NewRule(RuleMessage {
            attributes: vec![
                RuleAttribute::Table(table.into()),
                RuleAttribute::Chain(CHAIN.into()),
                RuleAttribute::Expressions(expressions),
            ],
        }))
    }));
    orders
}

fn new_set(table: &str, set: SetOf, id: u32) -> Order {
    Order::make(NfTablesMessage::NewSet(SetMessage {
        attributes: vec![
            SetAttribute::Table(table.into()),
            SetAttribute::Name(set.name().into()),
            SetAttribute::Flags(SetFlags::Interval),
            SetAttribute::KeyType(if set.is_v4 { IPV4_ADDRESS } else { IPV6_ADDRESS }),
            SetAttribute::KeyLen(if set.is_v4 { 4 } else { 16 }),
            SetAttribute::Id(id),
        ],
    }))
}

/// The rules, as many for ten thousand networks as for one.
fn rules(config: &FenceConfig) -> Vec<Vec<Expression>> {
    let tun = name(config.tun.as_str());
    let from_host = || vec![meta(MetaKey::Iif), equal(0_u32.to_ne_bytes().to_vec())];
    let mut rules = vec![
        // Where they belong.
        vec![meta(MetaKey::Oifname), equal(tun.clone()), verdict(ACCEPT)],
        vec![meta(MetaKey::Oifname), equal(name("lo")), verdict(ACCEPT)],
    ];
    let (mark, mask) = (config.mark.masked(), config.mark.mask);
    let masked = vec![meta(MetaKey::Mark), and(mask), equal(mark.to_ne_bytes().to_vec())];
    rules.push([from_host(), masked, vec![verdict(ACCEPT)]].concat());
    for port in IKE_PORTS {
        let ike = vec![
            meta(MetaKey::L4Proto),
            equal(vec![UDP]),
            payload(TRANSPORT, 0, 2),
            equal(port.to_be_bytes().to_vec()),
            verdict(ACCEPT),
        ];
        rules.push([from_host(), ike].concat());
    }
    let neighbours = vec![
        meta(MetaKey::Nfproto),
        equal(vec![V6]),
        meta(MetaKey::L4Proto),
        equal(vec![ICMPV6]),
        payload(NETWORK, 7, 1),
        equal(vec![NEIGHBOUR_HOP_LIMIT]),
        payload(TRANSPORT, 0, 1),
        compare(Operator::GreatherThanEqual, vec![NEIGHBOUR_DISCOVERY[0]]),
        compare(Operator::LessThanEqual, vec![NEIGHBOUR_DISCOVERY[1]]),
        verdict(ACCEPT),
    ];
    // The kernel gives these an interface that they came from, and they came from nowhere: what is
    // forwarded has another hop limit by now.
    rules.push(neighbours);
    let from_tun = || vec![meta(MetaKey::Iifname), equal(tun.clone())];
    for set in SETS.iter().filter(|set| set.view == View::FromTun) {
        rules.push([from_tun(), stop(*set)].concat());
    }
    rules.push([from_tun(), vec![verdict(ACCEPT)]].concat());
    rules.extend(SETS.iter().filter(|set| set.view == View::Out).map(|set| stop(*set)));
    rules
}

/// Counts and drops what is sent to an address of a set.
fn stop(set: SetOf) -> Vec<Expression> {
    let (version, offset) = if set.is_v4 { (V4, 16) } else { (V6, 24) };
    vec![
        meta(MetaKey::Nfproto),
        equal(vec![version]),
        payload(NETWORK, offset, set.key_len()),
        Expression::from(Expressions::Lookup(vec![
            Lookup::Set(set.name().into()),
            Lookup::SourceRegister(Register::Reg1),
        ])),
        Expression::from(Expressions::Other {
            expression_type: "counter".into(),
            attributes: Vec::new(),
        }),
        verdict(DROP),
    ]
}

fn meta(key: MetaKey) -> Expression {
    Expressions::Meta(vec![Meta::DestinationRegister(Register::Reg1), Meta::Key(key)]).into()
}

fn payload(base: u32, offset: u32, len: usize) -> Expression {
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    Expressions::Payload(vec![
        Payload::DestinationRegister(Register::Reg1),
        Payload::Base(base),
        Payload::Offset(offset),
        Payload::Len(len),
    ])
    .into()
}

fn and(mask: u32) -> Expression {
    Expressions::Bitwise(vec![
        Bitwise::SourceRegister(Register::Reg1),
        Bitwise::DestinationRegister(Register::Reg1),
        Bitwise::Length(4),
        Bitwise::Mask(DataAttribute::Value(mask.to_ne_bytes().to_vec())),
        Bitwise::Xor(DataAttribute::Value(vec![0; 4])),
    ])
    .into()
}

fn equal(value: Vec<u8>) -> Expression {
    compare(Operator::Equal, value)
}

fn compare(how: Operator, value: Vec<u8>) -> Expression {
    Expressions::Cmp(vec![
        Cmp::SourceRegister(Register::Reg1),
        Cmp::Op(how),
        Cmp::Data(DataAttribute::Value(value)),
    ])
    .into()
}

fn verdict(code: u32) -> Expression {
    let code = VerdictAttribute::Code(Verdict::Other(code));
    Expressions::Immediate(vec![
        Immediate::DestinationRegister(Register::Verdict),
        Immediate::Data(DataAttribute::Verdict(vec![code])),
    ])
    .into()
}

/// An interface's name as the kernel compares it.
fn name(text: &str) -> Vec<u8> {
    let mut name = text.as_bytes().to_vec();
    name.resize(NAME_LEN, 0);
    name
}

/// Asks for the rules of the chain.
pub(super) fn question(table: &str) -> NfTablesMessage {
    let attributes = vec![RuleAttribute::Table(table.into()), RuleAttribute::Chain(CHAIN.into())];
    NfTablesMessage::GetRule(RuleMessage { attributes })
}

/// Packets that the counters of a rule have counted.
pub(super) fn packets_counted(rule: &Answer) -> u64 {
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
