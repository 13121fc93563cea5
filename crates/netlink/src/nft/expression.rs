//! Expressions of rules: what `nft` compiles its language to.

use netlink_packet_netfilter::nftables::{
    Bitwise, Cmp, DataAttribute, ExpressionAttribute, Expressions, Immediate, ListAttribute,
    Lookup, Meta, MetaKey, Operator, Payload, Register, Verdict, VerdictAttribute,
};

/// `IFNAMSIZ`.
pub const NAME_LEN: usize = 16;
/// `NF_DROP`.
pub const DROP: u32 = 0;
/// `NF_ACCEPT`.
pub const ACCEPT: u32 = 1;
/// `NFT_PAYLOAD_NETWORK_HEADER`.
pub const NETWORK: u32 = 1;
/// `NFT_PAYLOAD_TRANSPORT_HEADER`.
pub const TRANSPORT: u32 = 2;
/// `NFPROTO_IPV4`.
pub const V4: u8 = 2;
/// `NFPROTO_IPV6`.
pub const V6: u8 = 10;
/// `IPPROTO_ICMP`.
pub const ICMP: u8 = 1;
/// `IPPROTO_UDP`.
pub const UDP: u8 = 17;
/// `IPPROTO_ICMPV6`.
pub const ICMPV6: u8 = 58;
/// `NFT_LOOKUP_F_INV`.
const INVERTED: u32 = 1;
/// Router Solicitation to Redirect (RFC 4861 section 4), sent with this hop limit.
const NEIGHBOUR_DISCOVERY: [u8; 2] = [133, 137];
const NEIGHBOUR_HOP_LIMIT: u8 = 255;

/// A step of a rule.
pub type Expression = ListAttribute<ExpressionAttribute>;

/// Goes on if the packet is of Neighbour Discovery, and no router passed it on.
pub fn is_neighbour_discovery() -> Vec<Expression> {
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
    ]
}

/// Goes on if a process of this host sends the packet: sockets of the kernel are nobody's, as are packets that it passes on.
pub fn is_of_process() -> Expression {
    meta(MetaKey::SocketUserId)
}

/// Goes on if the loaded value is in a set.
pub fn found_in(set: &str) -> Expression {
    Expressions::Lookup(vec![Lookup::Set(set.into()), Lookup::SourceRegister(Register::Reg1)])
        .into()
}

/// Goes on if the loaded value is not in a set.
pub fn not_found_in(set: &str) -> Expression {
    Expressions::Lookup(vec![
        Lookup::Set(set.into()),
        Lookup::SourceRegister(Register::Reg1),
        Lookup::Flags(INVERTED),
    ])
    .into()
}

/// Counts the packet and its bytes.
pub fn count() -> Expression {
    let expression_type = "counter".into();
    Expressions::Other { expression_type, attributes: Vec::new() }.into()
}

/// Loads what the kernel knows of the packet beside its bytes.
pub fn meta(key: MetaKey) -> Expression {
    Expressions::Meta(vec![Meta::DestinationRegister(Register::Reg1), Meta::Key(key)]).into()
}

/// Loads bytes of the packet.
pub fn payload(base: u32, offset: u32, len: usize) -> Expression {
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
pub fn and(mask: &[u8]) -> Expression {
    Expressions::Bitwise(vec![
        Bitwise::SourceRegister(Register::Reg1),
        Bitwise::DestinationRegister(Register::Reg1),
        Bitwise::Length(u32::try_from(mask.len()).unwrap_or(u32::MAX)),
        Bitwise::Mask(DataAttribute::Value(mask.to_vec())),
        Bitwise::Xor(DataAttribute::Value(vec![0; mask.len()])),
    ])
    .into()
}

/// Goes on if what was loaded is this.
pub fn equal(value: Vec<u8>) -> Expression {
    compare(Operator::Equal, value)
}

/// Goes on if what was loaded compares with this as wanted.
pub fn compare(how: Operator, value: Vec<u8>) -> Expression {
    Expressions::Cmp(vec![
        Cmp::SourceRegister(Register::Reg1),
        Cmp::Op(how),
        Cmp::Data(DataAttribute::Value(value)),
    ])
    .into()
}

/// Ends with a verdict, such as [`ACCEPT`].
pub fn verdict(code: u32) -> Expression {
    let code = VerdictAttribute::Code(Verdict::Other(code));
    Expressions::Immediate(vec![
        Immediate::DestinationRegister(Register::Verdict),
        Immediate::Data(DataAttribute::Verdict(vec![code])),
    ])
    .into()
}

/// An interface's name as the kernel compares it.
pub fn name(text: &str) -> Vec<u8> {
    let mut name = text.as_bytes().to_vec();
    name.resize(NAME_LEN, 0);
    name
}
