//! Sets of packets that rules fill themselves: by addresses, protocol and ports, for a while.

use netlink_packet_core::DefaultNla;
use netlink_packet_netfilter::nftables::{
    MetaKey, NfTablesMessage, SetAttribute, SetDescription, SetFlags, SetMessage,
};

use super::{
    addresses::{IPV4_ADDRESS, IPV6_ADDRESS},
    expression::{Expression, NETWORK, TRANSPORT, V4, V6, equal, meta},
    flow::{number, other},
    notes::{ADD, FIRST, KEY_FROM, OPERATION, SET_NAME, WORD, load},
    transaction::Order,
};

/// nft(8)'s numbers for protocols and for ports, and by how many bits each part of a combination is shifted.
const PROTOCOL: u32 = 12;
const PORT: u32 = 13;
const COMBINED_BY: u32 = 6;
/// `NFTA_PAYLOAD_DREG`, `NFTA_PAYLOAD_BASE`, `NFTA_PAYLOAD_OFFSET`, `NFTA_PAYLOAD_LEN`.
const PAYLOAD: [u16; 4] = [1, 2, 3, 4];
/// `NFTA_LOOKUP_SET`, `NFTA_LOOKUP_SREG`.
const LOOKUP: [u16; 2] = [1, 2];
/// There are so many at most; what finds no room is not remembered, and its rule ends.
const MOST: u32 = 1 << 16;

/// Packets of one IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuples {
    /// Name of the set in the table.
    pub name: &'static str,
    /// The IP version.
    pub is_v4: bool,
    /// Time that they stay there, in milliseconds.
    pub stay: u64,
}

impl Tuples {
    const fn address_len(self) -> usize {
        if self.is_v4 { 4 } else { 16 }
    }

    /// Makes the set; `id` is a number that no other one of the transaction has.
    #[must_use]
    pub fn make(self, table: &str, id: u32) -> Order {
        let kind = if self.is_v4 { IPV4_ADDRESS } else { IPV6_ADDRESS };
        let parts = [kind, kind, PROTOCOL, PORT, PORT];
        let key = parts.into_iter().fold(0, |all, part| all << COMBINED_BY | part);
        let len = 2 * self.address_len() + 3 * WORD;
        Order::make(NfTablesMessage::NewSet(SetMessage {
            attributes: vec![
                SetAttribute::Table(table.into()),
                SetAttribute::Name(self.name.into()),
                SetAttribute::Flags(SetFlags::Timeout | SetFlags::Eval),
                SetAttribute::KeyType(key),
                SetAttribute::KeyLen(len as u32),
                SetAttribute::Description(vec![SetDescription::Size(MOST)]),
                SetAttribute::Id(id),
                SetAttribute::Timeout(self.stay),
            ],
        }))
    }

    /// Goes on if the packet is of the IP version and of a protocol with ports, and loads what it is known by.
    fn of(self, protocol: u8) -> Vec<Expression> {
        let len = self.address_len();
        let [source, destination] = if self.is_v4 { [12, 16] } else { [8, 24] };
        let words = (len / WORD) as u32;
        let behind = FIRST + 2 * words;
        let at = |register, base, offset, len: usize| {
            let values = [register, base, offset, len as u32];
            let fields = PAYLOAD.into_iter().zip(values);
            other("payload", fields.map(|(kind, value)| number(kind, value)).collect())
        };
        vec![
            meta(MetaKey::Nfproto),
            equal(vec![if self.is_v4 { V4 } else { V6 }]),
            meta(MetaKey::L4Proto),
            equal(vec![protocol]),
            at(FIRST, NETWORK, source, len),
            at(FIRST + words, NETWORK, destination, len),
            load(MetaKey::L4Proto, behind),
            at(behind + 1, TRANSPORT, 0, 2),
            at(behind + 2, TRANSPORT, 2, 2),
        ]
    }

    /// Goes on if the packet is among them.
    #[must_use]
    pub fn have(self, protocol: u8) -> Vec<Expression> {
        let [set, register] = LOOKUP;
        let found = other("lookup", vec![self.named(set), number(register, FIRST)]);
        [self.of(protocol), vec![found]].concat()
    }

    /// Puts the packet among them.
    #[must_use]
    pub fn remember(self, protocol: u8) -> Vec<Expression> {
        let fields = vec![self.named(SET_NAME), number(OPERATION, ADD), number(KEY_FROM, FIRST)];
        [self.of(protocol), vec![other("dynset", fields)]].concat()
    }

    fn named(self, kind: u16) -> DefaultNla {
        DefaultNla::new(kind, [self.name.as_bytes(), &[0]].concat())
    }
}
