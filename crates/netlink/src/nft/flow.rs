//! Steps of rules about flows: conntrack's entries, and the marks of both packets and entries.

use netlink_packet_core::DefaultNla;
use netlink_packet_netfilter::nftables::{
    Bitwise, DataAttribute, Expressions, Meta, MetaKey, Operator, Register,
};

use super::expression::{Expression, and, compare, equal, meta};

/// `NFT_REG_1`.
pub(super) const REGISTER: u32 = 1;
/// `NFTA_CT_DREG`, `NFTA_CT_KEY`, `NFTA_CT_SREG`.
pub(super) const CT_LOAD_TO: u16 = 1;
pub(super) const CT_KEY: u16 = 2;
pub(super) const CT_TAKE_FROM: u16 = 4;
/// `NFT_CT_STATE` to `NFT_CT_MARK`.
const STATE: u32 = 0;
const DIRECTION: u32 = 1;
const STATUS: u32 = 2;
pub(super) const MARK: u32 = 3;
/// `NFTA_CT_DIRECTION`.
const CT_DIRECTION: u16 = 3;
/// `NFT_CT_PROTO_SRC`; `NFT_CT_SRC_IP` and `NFT_CT_DST_IP`, and behind them those of IPv6.
const SOURCE_PORT: u32 = 11;
const SOURCE: u32 = 19;
const DESTINATION: u32 = 20;
const TO_V6: u32 = 2;
/// `NFTA_FIB_DREG`, `NFTA_FIB_RESULT`, `NFTA_FIB_FLAGS`.
const FIB_LOAD_TO: u16 = 1;
const FIB_RESULT: u16 = 2;
const FIB_FLAGS: u16 = 3;
/// `NFT_FIB_RESULT_ADDRTYPE`.
const ADDRESS_TYPE: u32 = 3;
/// `NFTA_FIB_F_DADDR`.
const OF_DESTINATION: u32 = 2;
/// `RTN_LOCAL` and `RTN_MULTICAST`, with `RTN_BROADCAST` and `RTN_ANYCAST` between them.
const LOCAL_TYPES: [u8; 2] = [2, 5];

/// `NF_CT_STATE_BIT` of flows that are established.
pub const ESTABLISHED: u32 = 1 << 1;
/// Of packets about a flow, as ICMP errors.
pub const RELATED: u32 = 1 << 2;
/// Of flows whose first packet this is.
pub const NEW: u32 = 1 << 3;
/// `IPS_EXPECTED`: a helper saw in another flow that this one would come.
pub const EXPECTED: u32 = 1;
/// `IPS_CONFIRMED`: the kernel has entered the flow into its table.
pub const CONFIRMED: u32 = 1 << 3;
/// `IPS_SRC_NAT`: the flow's source is changed.
pub const SOURCE_NAT: u32 = 1 << 4;
/// `IPS_DST_NAT`: its destination is.
pub const DESTINATION_NAT: u32 = 1 << 5;

/// Direction of a flow's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowDirection {
    /// As the first one went.
    Original,
    /// The other way.
    Reply,
}

/// One of the two addresses of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Its source.
    Source,
    /// Its destination.
    Destination,
}

/// Some bits of a mark, and their value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bits {
    /// The bits.
    pub mask: u32,
    /// Set bits among them; bits beyond the mask are none.
    pub value: u32,
}

impl Bits {
    /// Goes on if the packet's mark has these bits.
    #[must_use]
    pub fn in_mark(self) -> Vec<Expression> {
        [vec![meta(MetaKey::Mark)], self.loaded(Operator::Equal)].concat()
    }

    /// Goes on if the packet's mark has other bits there.
    #[must_use]
    pub fn not_in_mark(self) -> Vec<Expression> {
        [vec![meta(MetaKey::Mark)], self.loaded(Operator::NotEqual)].concat()
    }

    /// Goes on if the mark of the flow has these bits.
    #[must_use]
    pub fn in_flow(self) -> Vec<Expression> {
        [vec![ct(MARK)], self.loaded(Operator::Equal)].concat()
    }

    /// Goes on if the mark of the flow has other bits there.
    #[must_use]
    pub fn not_in_flow(self) -> Vec<Expression> {
        [vec![ct(MARK)], self.loaded(Operator::NotEqual)].concat()
    }

    /// Puts these bits into the packet's mark, and leaves the others as they are.
    #[must_use]
    pub fn into_mark(self) -> Vec<Expression> {
        let store =
            Expressions::Meta(vec![Meta::Key(MetaKey::Mark), Meta::SourceRegister(Register::Reg1)]);
        vec![meta(MetaKey::Mark), self.put(), store.into()]
    }

    /// Puts these bits into the mark of the flow, and leaves the others as they are.
    #[must_use]
    pub fn into_flow(self) -> Vec<Expression> {
        let store = other("ct", vec![number(CT_KEY, MARK), number(CT_TAKE_FROM, REGISTER)]);
        vec![ct(MARK), self.put(), store]
    }

    fn loaded(self, how: Operator) -> Vec<Expression> {
        let value = self.value & self.mask;
        vec![and(&self.mask.to_ne_bytes()), compare(how, value.to_ne_bytes().to_vec())]
    }

    fn put(self) -> Expression {
        let bytes = |value: u32| DataAttribute::Value(value.to_ne_bytes().to_vec());
        Expressions::Bitwise(vec![
            Bitwise::SourceRegister(Register::Reg1),
            Bitwise::DestinationRegister(Register::Reg1),
            Bitwise::Length(4),
            Bitwise::Mask(bytes(!self.mask)),
            Bitwise::Xor(bytes(self.value & self.mask)),
        ])
        .into()
    }
}

/// Goes on if the flow is in none of these states, such as [`NEW`].
#[must_use]
pub fn is_not_in_state(states: u32) -> Vec<Expression> {
    any_of(STATE, states, Operator::Equal)
}

/// Goes on if the flow has one of these, such as [`EXPECTED`] or [`SOURCE_NAT`].
#[must_use]
pub fn is_with(status: u32) -> Vec<Expression> {
    any_of(STATUS, status, Operator::NotEqual)
}

/// Goes on if the flow has none of these.
#[must_use]
pub fn is_without(status: u32) -> Vec<Expression> {
    any_of(STATUS, status, Operator::Equal)
}

/// Loads an address that the flow's packets have which come in by this direction.
pub(super) fn address(
    direction: FlowDirection,
    end: End,
    is_v4: bool,
    register: u32,
) -> Expression {
    let key = match end {
        End::Source => SOURCE,
        End::Destination => DESTINATION,
    };
    tuple(direction, if is_v4 { key } else { key + TO_V6 }, register)
}

/// The same of the source port, or of the number of an ICMP message's flow, as it stands in the packet.
pub(super) fn source_port(direction: FlowDirection, register: u32) -> Expression {
    tuple(direction, SOURCE_PORT, register)
}

fn tuple(direction: FlowDirection, key: u32, register: u32) -> Expression {
    let direction = DefaultNla::new(CT_DIRECTION, vec![direction_code(direction)]);
    other("ct", vec![number(CT_LOAD_TO, register), number(CT_KEY, key), direction])
}

fn direction_code(direction: FlowDirection) -> u8 {
    u8::from(direction == FlowDirection::Reply)
}

/// Goes on if the packet goes this way.
#[must_use]
pub fn goes(direction: FlowDirection) -> Vec<Expression> {
    vec![ct(DIRECTION), equal(vec![direction_code(direction)])]
}

/// Goes on if this host takes the packet: it, a broadcast or a group is meant.
#[must_use]
pub fn is_for_this_host() -> Vec<Expression> {
    let load = vec![
        number(FIB_LOAD_TO, REGISTER),
        number(FIB_RESULT, ADDRESS_TYPE),
        number(FIB_FLAGS, OF_DESTINATION),
    ];
    // The low byte alone can be compared: the others are 0 in what the kernel loads.
    let low = u32::from(u8::MAX).to_ne_bytes();
    let [from, to] = LOCAL_TYPES.map(|kind| u32::from(kind).to_ne_bytes().to_vec());
    vec![
        other("fib", load),
        and(&low),
        compare(Operator::GreatherThanEqual, from),
        compare(Operator::LessThanEqual, to),
    ]
}

/// Keeps the packet from being tracked, ahead of where that is done.
#[must_use]
pub fn untracked() -> Expression {
    other("notrack", Vec::new())
}

fn any_of(key: u32, bits: u32, how: Operator) -> Vec<Expression> {
    vec![ct(key), and(&bits.to_ne_bytes()), compare(how, vec![0; 4])]
}

fn ct(key: u32) -> Expression {
    other("ct", vec![number(CT_LOAD_TO, REGISTER), number(CT_KEY, key)])
}

pub(super) fn other(name: &str, attributes: Vec<DefaultNla>) -> Expression {
    Expressions::Other { expression_type: name.into(), attributes }.into()
}

pub(super) fn number(kind: u16, value: u32) -> DefaultNla {
    DefaultNla::new(kind, value.to_be_bytes().to_vec())
}
