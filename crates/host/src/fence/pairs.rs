//! Exceptions by source and destination, where destination alone cannot say what is to become of
//! packets.
//!
//! There are few, as the rest of the fence says most; they have sets of pairs of prefixes in the packet
//! filter, and open ones a rule (`ip rule`) each.

use std::collections::BTreeSet;

use ipnet::IpNet;
use netlink_packet_core::DefaultNla;
use netlink_packet_netfilter::nftables::{
    DataAttribute, Expressions, ListAttribute, MetaKey, NfTablesMessage, Payload, Register,
    SetAttribute, SetDescription, SetElementAttribute, SetElementList, SetElementMessage, SetFlags,
    SetMessage,
};

use nix::libc;

use super::{
    Fence,
    book::{first, last},
    chain::{IPV4_ADDRESS, IPV6_ADDRESS, stop},
    expression::{ACCEPT, Expression, NETWORK, V4, V6, equal, found_in, meta, verdict},
    transaction::Order,
};
use crate::{HostError, netlink::Refusal};

/// Most elements that the pairs of one kind may come to once they do not overlap.
const MOST: usize = 1000;
/// Bits of one part of a key's type, as nft(8) puts them together.
const TYPE_BITS: u32 = 6;
/// `NFTA_SET_FIELD_LEN`, `NFTA_LIST_ELEM`, `NFTA_SET_ELEM_KEY_END`, `NFTA_DATA_VALUE`.
const FIELD_LEN: u16 = 1;
const LIST_ELEMENT: u16 = 1;
const DATA_VALUE: u16 = 1;
/// Marks attributes that hold others.
const NESTED: u16 = 1 << 15;

/// Packets from one network to another, of the same IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pair {
    /// Of their sources.
    pub from: IpNet,
    /// Of their destinations.
    pub to: IpNet,
}

/// What is to become of packets of some pairs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exceptions {
    /// They leave in clear, though their destination is protected.
    pub open: BTreeSet<Pair>,
    /// They come in in clear, though only tunnels may bring what their sources send.
    pub admitted: BTreeSet<Pair>,
    /// Out of the TUN interface they go nowhere, though their destination is local.
    pub withheld: BTreeSet<Pair>,
}

/// The sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Open,
    Admitted,
    Withheld,
}

const KINDS: [Kind; 3] = [Kind::Open, Kind::Admitted, Kind::Withheld];

impl Fence {
    /// Whether exceptions can be made here: there is a packet filter, and it knows sets of pairs
    /// (Linux 5.6 and later).
    #[must_use]
    pub fn takes_exceptions(&self) -> bool {
        self.filter.as_ref().is_ok_and(super::Filter::takes_pairs)
    }

    /// The exceptions that are made now.
    #[must_use]
    pub fn exceptions(&self) -> &Exceptions {
        &self.exceptions
    }

    /// Makes exceptions, in place of those before; what ends and what begins does so in one step. Those
    /// of an earlier life ended when this fence was raised.
    ///
    /// # Errors
    /// [`HostError::Fence`], also where [`Fence::takes_exceptions`] is false, and for too many pairs that
    /// overlap: then nothing has changed.
    pub fn except(&mut self, exceptions: Exceptions) -> Result<(), HostError> {
        if exceptions == self.exceptions {
            return Ok(());
        }
        const DOING: &str = "make exceptions by source and destination";
        let trouble = match self.takes_exceptions() {
            true => {
                let is_long = |kind: Kind| apart(kind.of(&exceptions)).len() > MOST;
                KINDS.into_iter().any(is_long).then_some(libc::ENOSPC)
            }
            false => Some(libc::EOPNOTSUPP),
        };
        if let Some(errno) = trouble {
            return Err(super::failed(DOING, Refusal { errno, said: None }, 0));
        }
        self.exceptions = exceptions;
        if let Ok(filter) = &mut self.filter {
            let outcome = filter.except(&self.exceptions);
            outcome.map_err(|refusal| super::failed(DOING, refusal, 0))?;
        }
        self.make_rules("change the fence's rules").map(drop)
    }
}

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

    fn of(self, exceptions: &Exceptions) -> &BTreeSet<Pair> {
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
        let named = || {
            vec![SetElementList::Table(table.into()), SetElementList::Set(kind.set(is_v4).into())]
        };
        if empty {
            // Without elements all are meant.
            let all = SetElementMessage { attributes: named() };
            orders.push(Order::plain(NfTablesMessage::DeleteSetElement(all)));
        }
        let pairs = apart(kind.of(exceptions)).into_iter();
        let elements: Vec<_> = pairs
            .filter(|pair| pair.to.addr().is_ipv4() == is_v4)
            .map(|pair| element(&pair))
            .collect();
        if !elements.is_empty() {
            let mut attributes = named();
            attributes.push(SetElementList::Elements(elements));
            let message = SetElementMessage { attributes };
            orders.push(Order::make(NfTablesMessage::NewSetElement(message)));
        }
    }
    orders
}

fn element(pair: &Pair) -> ListAttribute<SetElementAttribute> {
    let len = if pair.to.addr().is_ipv4() { 4 } else { 16 };
    let key = |end: fn(&IpNet) -> u128| -> Vec<u8> {
        let parts = [end(&pair.from), end(&pair.to)].map(u128::to_be_bytes);
        parts.iter().flat_map(|bytes| &bytes[16 - len..]).copied().collect()
    };
    ListAttribute::Element(vec![
        SetElementAttribute::Key(DataAttribute::Value(key(first))),
        SetElementAttribute::KeyEnd(vec![DefaultNla::new(DATA_VALUE, key(last))]),
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
