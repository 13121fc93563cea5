//! Exceptions by source and destination in the packet filter: sets of pairs of prefixes.

use std::collections::BTreeSet;

use ipnet::IpNet;
use netlink_packet_core::DefaultNla;
use netlink_packet_netfilter::nftables::{
    DataAttribute, Expressions, ListAttribute, MetaKey, NfTablesMessage, Payload, Register,
    SetAttribute, SetDescription, SetElementAttribute, SetFlags, SetMessage,
};

use super::{
    Exceptions, Pair,
    book::{first, last},
};
use crate::netlink::nft::{
    IPV4_ADDRESS, IPV6_ADDRESS, Order,
    elements::{self, DATA_VALUE, Element},
    expression::{ACCEPT, Expression, NETWORK, V4, V6, equal, found_in, meta, verdict},
    stop,
};

/// Most elements that the pairs of one kind may come to once they do not overlap.
const MOST: usize = 1000;
/// Bits of one part of a key's type, as nft(8) puts them together.
const TYPE_BITS: u32 = 6;
/// `NFTA_SET_FIELD_LEN`, `NFTA_LIST_ELEM`.
const FIELD_LEN: u16 = 1;
const LIST_ELEMENT: u16 = 1;
/// Marks attributes that hold others.
const NESTED: u16 = 1 << 15;

/// What becomes of the pairs of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Open,
    Admitted,
    Withheld,
}

const KINDS: [Kind; 3] = [Kind::Open, Kind::Admitted, Kind::Withheld];

impl Kind {
    fn set(self, is_v4: bool) -> &'static str {
        match (self, is_v4) {
            (Self::Open, true) => "open4",
            (Self::Open, false) => "open6",
            (Self::Admitted, true) => "admitted4",
            (Self::Admitted, false) => "admitted6",
            (Self::Withheld, true) => "withheld4",
            (Self::Withheld, false) => "withheld6",
        }
    }

    pub(super) fn of(self, exceptions: &Exceptions) -> &BTreeSet<Pair> {
        match self {
            Self::Open => &exceptions.open,
            Self::Admitted => &exceptions.admitted,
            Self::Withheld => &exceptions.withheld,
        }
    }
}

fn sets() -> impl Iterator<Item = (Kind, bool)> {
    KINDS.into_iter().flat_map(|kind| [(kind, true), (kind, false)])
}

/// The sets, with numbers from `id` on.
pub(super) fn new_sets(table: &str, id: u32) -> Vec<Order> {
    let set = |((kind, is_v4), id): ((Kind, bool), u32)| {
        let (part, len) = if is_v4 { (IPV4_ADDRESS, 4_u32) } else { (IPV6_ADDRESS, 16) };
        let field = DefaultNla::new(FIELD_LEN, len.to_be_bytes().to_vec());
        let field = DefaultNla::new(LIST_ELEMENT | NESTED, emitted(&field));
        Order::make(NfTablesMessage::NewSet(SetMessage {
            attributes: vec![
                SetAttribute::Table(table.into()),
                SetAttribute::Name(kind.set(is_v4).into()),
                SetAttribute::Flags(SetFlags::Interval | SetFlags::Concat),
                SetAttribute::KeyType(part << TYPE_BITS | part),
                SetAttribute::KeyLen(len * 2),
                SetAttribute::Description(vec![SetDescription::Concat(vec![field.clone(), field])]),
                SetAttribute::Id(id),
            ],
        }))
    };
    sets().zip(id..).map(set).collect()
}

/// Fills the sets. They are emptied first if there may be something in them.
pub(super) fn fill(table: &str, exceptions: &Exceptions, empty: bool) -> Vec<Order> {
    let mut orders = Vec::new();
    for (kind, is_v4) in sets() {
        let set = kind.set(is_v4);
        orders.extend(empty.then(|| elements::none(table, set)));
        let elements = keys(kind.of(exceptions), is_v4).into_iter().map(element).collect();
        orders.extend(elements::orders(table, set, elements, true));
    }
    orders
}

/// The elements of a set: of their keys, the first and the last one.
pub(super) type Keys = BTreeSet<[Vec<u8>; 2]>;

/// What the sets are to hold, by their names.
pub(super) fn contents(exceptions: &Exceptions) -> impl Iterator<Item = (&'static str, Keys)> {
    sets().map(|(kind, is_v4)| (kind.set(is_v4), keys(kind.of(exceptions), is_v4)))
}

fn keys(pairs: &BTreeSet<Pair>, is_v4: bool) -> Keys {
    let len = if is_v4 { 4 } else { 16 };
    let key = |pair: &Pair, end: fn(&IpNet) -> u128| -> Vec<u8> {
        let parts = [end(&pair.from), end(&pair.to)].map(u128::to_be_bytes);
        parts.iter().flat_map(|bytes| &bytes[16 - len..]).copied().collect()
    };
    let pairs = apart(pairs).into_iter().filter(|pair| pair.to.addr().is_ipv4() == is_v4);
    pairs.map(|pair| [key(&pair, first), key(&pair, last)]).collect()
}

fn element([from, to]: [Vec<u8>; 2]) -> Element {
    ListAttribute::Element(vec![
        SetElementAttribute::Key(DataAttribute::Value(from)),
        SetElementAttribute::KeyEnd(vec![DefaultNla::new(DATA_VALUE, to)]),
    ])
}

fn emitted(nla: &DefaultNla) -> Vec<u8> {
    use netlink_packet_core::Emitable as _;
    let mut bytes = vec![0; nla.buffer_len()];
    nla.emit(&mut bytes);
    bytes
}

/// What came out of the TUN interface for local networks, and is for somebody behind another tunnel.
pub(super) fn withhold() -> Vec<Vec<Expression>> {
    all_found(Kind::Withheld, &stop())
}

/// What leaves in clear all the same.
pub(super) fn let_pass() -> Vec<Vec<Expression>> {
    all_found(Kind::Open, &[verdict(ACCEPT)])
}

/// What comes in in clear all the same.
pub(super) fn admit() -> Vec<Vec<Expression>> {
    all_found(Kind::Admitted, &[verdict(ACCEPT)])
}

/// Rules for the pairs of a kind, in both IP versions.
fn all_found(kind: Kind, end: &[Expression]) -> Vec<Vec<Expression>> {
    [true, false].map(|is_v4| [&found(kind, is_v4)[..], end].concat()).to_vec()
}

/// The packet's addresses are a pair of a set.
fn found(kind: Kind, is_v4: bool) -> Vec<Expression> {
    let (version, source, len, second) = match is_v4 {
        true => (V4, 12, 4, Register::Reg32_01),
        false => (V6, 8, 16, Register::Reg32_04),
    };
    let load = |register: Register, offset: u32| {
        Expressions::Payload(vec![
            Payload::DestinationRegister(register),
            Payload::Base(NETWORK),
            Payload::Offset(offset),
            Payload::Len(len),
        ])
        .into()
    };
    vec![
        meta(MetaKey::Nfproto),
        equal(vec![version]),
        load(Register::Reg32_00, source),
        load(second, source + len),
        found_in(kind.set(is_v4)),
    ]
}

/// Whether there is room for all of these.
pub(super) fn fit(pairs: &BTreeSet<Pair>) -> bool {
    apart(pairs).len() <= MOST
}

/// Pairs that cover the same and do not overlap, as the kernel wants them.
fn apart(pairs: &BTreeSet<Pair>) -> Vec<Pair> {
    let mut pairs: Vec<_> =
        pairs.iter().map(|pair| Pair { from: pair.from.trunc(), to: pair.to.trunc() }).collect();
    // Then the sources of what is there already are as wide, or apart.
    pairs.sort_by_key(|pair| (pair.from.prefix_len(), pair.to.prefix_len()));
    let mut found: Vec<Pair> = Vec::new();
    for pair in pairs {
        let mut rest = vec![pair.to];
        for there in found.iter().filter(|there| there.from.contains(&pair.from)) {
            rest = rest.into_iter().flat_map(|to| without(to, there.to)).collect();
        }
        found.extend(rest.into_iter().map(|to| Pair { from: pair.from, to }));
        if found.len() > MOST {
            break;
        }
    }
    found
}

/// The fewest prefixes that are in a network and not in another.
fn without(network: IpNet, gone: IpNet) -> Vec<IpNet> {
    if gone.contains(&network) {
        return Vec::new();
    }
    if !network.contains(&gone) {
        return vec![network];
    }
    let way = core::iter::successors(Some(gone), |at| at.supernet());
    let way = way.take_while(|at| at.prefix_len() > network.prefix_len());
    way.filter_map(|at| {
        let halves = at.supernet()?.subnets(at.prefix_len()).ok()?;
        { halves }.find(|half| *half != at)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_taken_apart_and_cover_the_same() {
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        let lists: [&[(&str, &str)]; 4] = [
            &[("10.0.0.0/29", "10.0.0.0/31"), ("10.0.0.0/31", "10.0.0.0/29")],
            &[
                ("10.0.0.0/30", "10.0.0.4/30"),
                ("10.0.0.0/31", "10.0.0.4/31"),
                ("10.0.0.2/32", "10.0.0.0/29"),
            ],
            &[
                ("10.0.0.0/29", "10.0.0.5/32"),
                ("10.0.0.5/32", "10.0.0.0/29"),
                ("10.0.0.4/31", "10.0.0.4/30"),
            ],
            &[("2001:db8::/126", "2001:db8::2/127"), ("2001:db8::1/128", "2001:db8::/125")],
        ];
        for list in lists {
            let pairs: BTreeSet<_> =
                list.iter().map(|(from, to)| Pair { from: net(from), to: net(to) }).collect();
            let found = apart(&pairs);
            let base = if pairs.iter().all(|p| p.to.addr().is_ipv4()) {
                "10.0.0.0/28"
            } else {
                "2001:db8::/124"
            };
            let places: Vec<_> = net(base).subnets(net(base).max_prefix_len()).unwrap().collect();
            for from in &places {
                for to in &places {
                    let has = |pair: &&Pair| pair.from.contains(from) && pair.to.contains(to);
                    let wanted = usize::from(pairs.iter().any(|pair| has(&pair)));
                    assert_eq!(found.iter().filter(has).count(), wanted, "{from} {to} {found:?}");
                }
            }
        }
    }
}
