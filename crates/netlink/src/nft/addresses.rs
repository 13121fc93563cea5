//! Sets of address ranges.

use netlink_packet_netfilter::nftables::{
    MetaKey, NfTablesMessage, SetAttribute, SetElementFlags, SetFlags, SetMessage,
};

use super::{
    cover::{Cover, Difference, Range},
    elements::{self, Change, Element, KEY_MAX, Shown},
    expression::{
        Expression, NETWORK, TRANSPORT, V4, V6, equal, found_in, meta, not_found_in, payload,
    },
    flow::{self, End, FlowDirection},
    transaction::{Answer, Nft, Order},
};
use crate::Refusal;

/// nft(8)'s number for IPv4 addresses, so that it can print them.
pub const IPV4_ADDRESS: u32 = 7;
/// The same for IPv6.
pub const IPV6_ADDRESS: u32 = 8;

/// Length of what precedes the quoted packet in an ICMP error, in bytes (RFC 792, RFC 4443 section 3).
const ICMP_ERROR_HEADER: u32 = 8;

/// A set of address ranges of one IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressSet {
    /// Its name in the table.
    pub name: &'static str,
    /// The IP version.
    pub is_v4: bool,
}

impl AddressSet {
    /// Length of an address in bytes.
    #[must_use]
    pub const fn key_len(self) -> usize {
        if self.is_v4 { 4 } else { 16 }
    }

    /// Makes the set, empty; `id` is a number that no other set of the transaction has.
    #[must_use]
    pub fn make(self, table: &str, id: u32) -> Order {
        Order::make(NfTablesMessage::NewSet(SetMessage {
            attributes: vec![
                SetAttribute::Table(table.into()),
                SetAttribute::Name(self.name.into()),
                SetAttribute::Flags(SetFlags::Interval),
                SetAttribute::KeyType(if self.is_v4 { IPV4_ADDRESS } else { IPV6_ADDRESS }),
                SetAttribute::KeyLen(if self.is_v4 { 4 } else { 16 }),
                SetAttribute::Id(id),
            ],
        }))
    }

    /// Fills the set, which is empty.
    #[must_use]
    pub fn fill(self, table: &str, cover: &Cover) -> Vec<Order> {
        self.orders(table, cover.ranges(), Change::Add)
    }

    /// Changes what the set holds.
    #[must_use]
    pub fn change(self, table: &str, difference: &Difference) -> Vec<Order> {
        let mut orders = self.orders(table, difference.removed(), Change::Remove);
        orders.extend(self.orders(table, difference.added(), Change::Add));
        orders
    }

    fn orders(
        self,
        table: &str,
        ranges: impl Iterator<Item = Range>,
        change: Change,
    ) -> Vec<Order> {
        let elements = ranges.flat_map(|(from, to)| {
            let begin = Element { key: self.key(from), is_end: false };
            // The end is the first address behind; there is none behind the last.
            let end = Element { key: self.key(to.saturating_add(1)), is_end: true };
            [begin].into_iter().chain((to < self.highest()).then_some(end))
        });
        elements::orders(table, self.name, self.key_len(), elements, change)
    }

    /// Addresses that the set holds now; none when there is no such set.
    ///
    /// # Errors
    /// The kernel's refusal to say it.
    pub fn read(self, nft: &mut Nft, table: &str) -> Result<Option<Cover>, Refusal> {
        match nft.dump(elements::question(table, self.name)) {
            Err(Refusal { errno: nix::libc::ENOENT, .. }) => Ok(None),
            answers => Ok(Some(self.ranges(&answers?).into_iter().collect())),
        }
    }

    fn ranges(self, answers: &[Answer]) -> Vec<Range> {
        // Addresses that begin a range or end one.
        let end = |e: Shown<'_>| {
            Some((self.address(e.key)?, e.flags.contains(SetElementFlags::IntervalEnd)))
        };
        let mut ends: Vec<(u128, bool)> = elements::shown(answers).filter_map(end).collect();
        ends.sort_unstable();
        let mut ranges = Vec::new();
        let mut begun = None;
        for (address, is_end) in ends {
            if !is_end {
                begun = Some(address);
            } else if let Some(from) = begun.take() {
                ranges.push((from, address.saturating_sub(1)));
            }
        }
        ranges.extend(begun.map(|from| (from, self.highest())));
        ranges
    }

    /// The packet is of the set's IP version.
    #[must_use]
    pub fn of_version(self) -> Vec<Expression> {
        vec![meta(MetaKey::Nfproto), equal(vec![if self.is_v4 { V4 } else { V6 }])]
    }

    /// The packet's source address is in the set. To be asked of packets [`Self::of_version`].
    #[must_use]
    pub fn has_source(self) -> Vec<Expression> {
        self.has_address(if self.is_v4 { 12 } else { 8 })
    }

    /// The packet's destination address is in the set. To be asked of packets [`Self::of_version`].
    #[must_use]
    pub fn has_destination(self) -> Vec<Expression> {
        self.has_address(if self.is_v4 { 16 } else { 24 })
    }

    /// The source of the packet that an ICMP error quotes is in the set. To be asked of such errors of the same version.
    #[must_use]
    pub fn quotes_source(self) -> Vec<Expression> {
        self.quotes_address(if self.is_v4 { 12 } else { 8 })
    }

    /// The destination of the packet that an ICMP error quotes is in the set. To be asked of such errors of the same
    /// version.
    #[must_use]
    pub fn quotes_destination(self) -> Vec<Expression> {
        self.quotes_address(if self.is_v4 { 16 } else { 24 })
    }

    fn quotes_address(self, offset: u32) -> Vec<Expression> {
        vec![payload(TRANSPORT, ICMP_ERROR_HEADER + offset, self.key_len()), found_in(self.name)]
    }

    /// The packet's source address is not in the set. To be asked of packets [`Self::of_version`].
    #[must_use]
    pub fn lacks_source(self) -> Vec<Expression> {
        vec![self.address_at(if self.is_v4 { 12 } else { 8 }), not_found_in(self.name)]
    }

    /// The packet's destination address is not in the set. To be asked of packets [`Self::of_version`].
    #[must_use]
    pub fn lacks_destination(self) -> Vec<Expression> {
        vec![self.address_at(if self.is_v4 { 16 } else { 24 }), not_found_in(self.name)]
    }

    /// The set has an address of the packet's flow: what packets of a direction have at one end, before addresses are
    /// changed.
    #[must_use]
    pub fn has_of_flow(self, direction: FlowDirection, end: End) -> Vec<Expression> {
        vec![flow::address(direction, end, self.is_v4, flow::REGISTER), found_in(self.name)]
    }

    /// The set has it not.
    #[must_use]
    pub fn lacks_of_flow(self, direction: FlowDirection, end: End) -> Vec<Expression> {
        vec![flow::address(direction, end, self.is_v4, flow::REGISTER), not_found_in(self.name)]
    }

    fn has_address(self, offset: u32) -> Vec<Expression> {
        vec![self.address_at(offset), found_in(self.name)]
    }

    fn address_at(self, offset: u32) -> Expression {
        payload(NETWORK, offset, self.key_len())
    }

    const fn highest(self) -> u128 {
        if self.is_v4 { u32::MAX as u128 } else { u128::MAX }
    }

    const fn key(self, address: u128) -> [u8; KEY_MAX] {
        let behind = u128::BITS - 8 * self.key_len() as u32;
        (address << behind).to_be_bytes()
    }

    fn address(self, key: &[u8]) -> Option<u128> {
        let number = key.iter().fold(0, |number: u128, byte| number << 8 | u128::from(*byte));
        (key.len() == self.key_len()).then_some(number)
    }
}
