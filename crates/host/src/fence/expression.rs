//! Expressions of rules: what `nft` compiles its language to.

use netlink_packet_netfilter::nftables::{
    Bitwise, Cmp, DataAttribute, ExpressionAttribute, Expressions, Immediate, ListAttribute,
    Lookup, Meta, MetaKey, Operator, Payload, Register, Verdict, VerdictAttribute,
};

/// `IFNAMSIZ`.
pub(super) const NAME_LEN: usize = 16;
/// `NF_DROP`, `NF_ACCEPT`.
pub(super) const DROP: u32 = 0;
pub(super) const ACCEPT: u32 = 1;
/// `NFT_PAYLOAD_NETWORK_HEADER`, `NFT_PAYLOAD_TRANSPORT_HEADER`.
pub(super) const NETWORK: u32 = 1;
pub(super) const TRANSPORT: u32 = 2;
/// `NFPROTO_IPV4`, `NFPROTO_IPV6`.
pub(super) const V4: u8 = 2;
pub(super) const V6: u8 = 10;
pub(super) const ICMP: u8 = 1;
pub(super) const UDP: u8 = 17;
pub(super) const ICMPV6: u8 = 58;
/// Router Solicitation to Redirect (RFC 4861 section 4), sent with this hop limit.
const NEIGHBOUR_DISCOVERY: [u8; 2] = [133, 137];
const NEIGHBOUR_HOP_LIMIT: u8 = 255;

pub(super) type Expression = ListAttribute<ExpressionAttribute>;

/// Lets Neighbour Discovery through.
pub(super) fn neighbour_discovery() -> Vec<Expression> {
    vec![
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
    ]
}

/// What was loaded is in a set.
pub(super) fn found_in(set: &str) -> Expression {
    Expressions::Lookup(vec![Lookup::Set(set.into()), Lookup::SourceRegister(Register::Reg1)])
        .into()
}

pub(super) fn count() -> Expression {
    let expression_type = "counter".into();
    Expressions::Other { expression_type, attributes: Vec::new() }.into()
}

pub(super) fn meta(key: MetaKey) -> Expression {
    Expressions::Meta(vec![Meta::DestinationRegister(Register::Reg1), Meta::Key(key)]).into()
}

pub(super) fn payload(base: u32, offset: u32, len: usize) -> Expression {
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    Expressions::Payload(vec![
        Payload::DestinationRegister(Register::Reg1),
        Payload::Base(base),
        Payload::Offset(offset),
        Payload::Len(len),
    ])
    .into()
}

/// The bits of what was loaded that the mask has, in the mask's length.
pub(super) fn and(mask: &[u8]) -> Expression {
    Expressions::Bitwise(vec![
        Bitwise::SourceRegister(Register::Reg1),
        Bitwise::DestinationRegister(Register::Reg1),
        Bitwise::Length(u32::try_from(mask.len()).unwrap_or(u32::MAX)),
        Bitwise::Mask(DataAttribute::Value(mask.to_vec())),
        Bitwise::Xor(DataAttribute::Value(vec![0; mask.len()])),
    ])
    .into()
}

pub(super) fn equal(value: Vec<u8>) -> Expression {
    compare(Operator::Equal, value)
}

pub(super) fn compare(how: Operator, value: Vec<u8>) -> Expression {
    Expressions::Cmp(vec![
        Cmp::SourceRegister(Register::Reg1),
        Cmp::Op(how),
        Cmp::Data(DataAttribute::Value(value)),
    ])
    .into()
}

pub(super) fn verdict(code: u32) -> Expression {
    let code = VerdictAttribute::Code(Verdict::Other(code));
    Expressions::Immediate(vec![
        Immediate::DestinationRegister(Register::Verdict),
        Immediate::Data(DataAttribute::Verdict(vec![code])),
    ])
    .into()
}

/// An interface's name as the kernel compares it.
pub(super) fn name(text: &str) -> Vec<u8> {
    let mut name = text.as_bytes().to_vec();
    name.resize(NAME_LEN, 0);
    name
}
