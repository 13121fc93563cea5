//! Elements of sets: put into messages of a size that the kernel takes, and read from its answers.

use netlink_packet_core::{NLA_HEADER_SIZE, NlasIterator};
use netlink_packet_netfilter::nftables::{
    DataAttribute, ListAttribute, NfTablesMessage, SetElementAttribute, SetElementFlags,
    SetElementList, SetElementMessage,
};

use super::transaction::{Answer, Order};

/// Bytes of elements with which a message gets no more: the kernel counts them, and the header before them, in 16 bits.
const MOST_BYTES: usize = 65_000;
/// `NFT_MSG_NEWSETELEM`, `NFT_MSG_DELSETELEM`.
const NEW_ELEMENTS: u8 = 12;
const DELETE_ELEMENTS: u8 = 14;
/// Length of `struct nfgenmsg`.
const NETFILTER_HEADER_LEN: usize = 4;
/// `NFTA_SET_ELEM_LIST_TABLE`, `NFTA_SET_ELEM_LIST_SET`, `NFTA_SET_ELEM_LIST_ELEMENTS`, `NFTA_LIST_ELEM`, `NFTA_SET_ELEM_KEY`, `NFTA_SET_ELEM_DATA`, `NFTA_SET_ELEM_FLAGS`,
/// `NFTA_SET_ELEM_KEY_END`.
const LIST_TABLE: u16 = 1;
const LIST_SET: u16 = 2;
const LIST_ELEMENTS: u16 = 3;
pub(super) const ELEMENT: u16 = 1;
const KEY: u16 = 1;
const DATA: u16 = 2;
const FLAGS: u16 = 3;
const KEY_END: u16 = 10;
/// `NFTA_DATA_VALUE`.
pub const DATA_VALUE: u16 = 1;

/// `NLA_F_NESTED`.
const NESTED: u16 = 1 << 15;
/// `NFPROTO_INET`, and the version of netfilter's messages.
const HEADER: [u8; NETFILTER_HEADER_LEN] = [1, 0, 0, 0];

/// Most bytes of a key: an address, or the name of an interface.
pub const KEY_MAX: usize = 16;

/// An element of a set: of a set of ranges, what begins one, or is the first behind one.
#[derive(Debug, Clone, Copy)]
pub struct Element {
    /// Its key, from the first byte on.
    pub key: [u8; KEY_MAX],
    /// True if it is behind a range.
    pub is_end: bool,
}

/// Change of a set's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Puts them into the set.
    Add,
    /// Takes them out of it.
    Remove,
}

/// Puts elements of `key_len` bytes into a set or takes them out of it, in as many messages as that needs. They are written
/// down here: there is one such message for each policy that comes, and a whole tree of attributes would have to be made of it.
pub fn orders(
    table: &str,
    set: &str,
    key_len: usize,
    elements: impl Iterator<Item = Element>,
    change: Change,
) -> Vec<Order> {
    let mut orders = Vec::new();
    let mut elements = elements.peekable();
    while elements.peek().is_some() {
        let mut bytes = HEADER.to_vec();
        put(&mut bytes, LIST_TABLE, |bytes| put_name(bytes, table));
        put(&mut bytes, LIST_SET, |bytes| put_name(bytes, set));
        put(&mut bytes, LIST_ELEMENTS | NESTED, |bytes| {
            let most = bytes.len().saturating_add(MOST_BYTES);
            while let Some(element) = elements.next_if(|_| bytes.len() < most) {
                put(bytes, ELEMENT | NESTED, |bytes| put_element(bytes, key_len, element));
            }
        });
        orders.push(match change {
            Change::Add => Order::written(NEW_ELEMENTS, bytes, true),
            Change::Remove => Order::written(DELETE_ELEMENTS, bytes, false),
        });
    }
    orders
}

fn put_element(bytes: &mut Vec<u8>, key_len: usize, element: Element) {
    let key = element.key.get(..key_len).unwrap_or(&element.key);
    put(bytes, KEY | NESTED, |bytes| {
        put(bytes, DATA_VALUE, |bytes| bytes.extend_from_slice(key));
    });
    if element.is_end {
        let flags = SetElementFlags::IntervalEnd.bits();
        put(bytes, FLAGS, |bytes| bytes.extend_from_slice(&flags.to_be_bytes()));
    }
}

fn put_name(bytes: &mut Vec<u8>, name: &str) {
    bytes.extend_from_slice(name.as_bytes());
    bytes.push(0);
}

/// Puts an attribute behind others, filled up to four bytes.
fn put(bytes: &mut Vec<u8>, kind: u16, value: impl FnOnce(&mut Vec<u8>)) {
    let at = bytes.len();
    bytes.extend_from_slice(&[0, 0]);
    bytes.extend_from_slice(&kind.to_ne_bytes());
    value(bytes);
    let len = u16::try_from(bytes.len().saturating_sub(at)).unwrap_or(u16::MAX);
    if let Some(place) = bytes.get_mut(at..at.saturating_add(2)) {
        place.copy_from_slice(&len.to_ne_bytes());
    }
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// Empties a set.
pub fn none(table: &str, set: &str) -> Order {
    // Without elements all are meant.
    let all = SetElementMessage { attributes: named(table, set) };
    Order::plain(NfTablesMessage::DeleteSetElement(all))
}

/// Asks for the elements of a set.
pub fn question(table: &str, set: &str) -> NfTablesMessage {
    NfTablesMessage::GetSetElement(SetElementMessage { attributes: named(table, set) })
}

/// Asks for the element of a set that has this key.
pub fn question_of(table: &str, set: &str, key: Vec<u8>) -> NfTablesMessage {
    let key = SetElementAttribute::Key(DataAttribute::Value(key));
    let mut attributes = named(table, set);
    attributes.push(SetElementList::Elements(vec![ListAttribute::Element(vec![key])]));
    NfTablesMessage::GetSetElement(SetElementMessage { attributes })
}

fn named(table: &str, set: &str) -> Vec<SetElementList> {
    vec![SetElementList::Table(table.into()), SetElementList::Set(set.into())]
}

/// An element as the kernel shows it.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a> {
    /// The first address, or name.
    pub key: &'a [u8],
    /// The last one, of sets of pairs, which do without [`SetElementFlags::IntervalEnd`].
    pub key_end: Option<&'a [u8]>,
    /// Marks of the begin and the end of an interval.
    pub flags: SetElementFlags,
}

/// The elements in answers.
pub fn shown(answers: &[Answer]) -> impl Iterator<Item = Shown<'_>> {
    let lists = answers.iter().flat_map(|answer| answer.attributes(LIST_ELEMENTS));
    lists.flat_map(|list| within(list, ELEMENT)).filter_map(|element| {
        let value = |kind| within(element, kind).flat_map(|key| within(key, DATA_VALUE)).next();
        let flags = within(element, FLAGS).next().and_then(|flags| flags.try_into().ok());
        let flags = SetElementFlags::from_bits_retain(flags.map_or(0, u32::from_be_bytes));
        Some(Shown { key: value(KEY)?, key_end: value(KEY_END), flags })
    })
}

/// Value that the first element in an answer maps its key to.
pub fn data(answer: &Answer) -> Option<&[u8]> {
    let elements = answer.attributes(LIST_ELEMENTS).flat_map(|list| within(list, ELEMENT));
    elements.flat_map(|it| within(it, DATA)).flat_map(|data| within(data, DATA_VALUE)).next()
}

impl Answer {
    /// The values of the attributes of one kind, behind the answer's header.
    pub fn attributes(&self, kind: u16) -> impl Iterator<Item = &[u8]> {
        within(self.bytes.get(NETFILTER_HEADER_LEN..).unwrap_or_default(), kind)
    }
}

/// The values of the attributes of one kind.
pub(super) fn within(attributes: &[u8], kind: u16) -> impl Iterator<Item = &[u8]> {
    all(attributes).filter(move |(it, _)| *it == kind).map(|(_, value)| value)
}

/// The kinds and values of attributes, up to the first that is not whole.
pub(crate) fn all(attributes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let valid = NlasIterator::new(attributes).map_while(Result::ok);
    valid.filter_map(|nla| {
        let (kind, length) = (nla.kind(), nla.value_length());
        Some((kind, nla.into_inner().get(NLA_HEADER_SIZE..)?.get(..length)?))
    })
}
