//! Elements of sets: put into messages of a size that the kernel takes, and read from its answers.

use netlink_packet_core::{Emitable as _, NLA_HEADER_SIZE, NlasIterator};
use netlink_packet_netfilter::nftables::{
    DataAttribute, ListAttribute, NfTablesMessage, SetElementAttribute, SetElementFlags,
    SetElementList, SetElementMessage,
};

use super::transaction::{Answer, Order};

/// Most bytes of elements in one message: the kernel counts them, and the header before them, in 16 bits.
const MOST_BYTES: usize = 65_000;
/// Length of `struct nfgenmsg`.
const NETFILTER_HEADER_LEN: usize = 4;
/// `NFTA_SET_ELEM_LIST_ELEMENTS`, `NFTA_LIST_ELEM`, `NFTA_SET_ELEM_KEY`, `NFTA_SET_ELEM_DATA`, `NFTA_SET_ELEM_FLAGS`,
/// `NFTA_SET_ELEM_KEY_END`.
const LIST_ELEMENTS: u16 = 3;
pub(super) const ELEMENT: u16 = 1;
const KEY: u16 = 1;
const DATA: u16 = 2;
const FLAGS: u16 = 3;
const KEY_END: u16 = 10;
/// `NFTA_DATA_VALUE`.
pub const DATA_VALUE: u16 = 1;

/// An element of a set, as it is said to the kernel.
pub type Element = ListAttribute<SetElementAttribute>;

/// Puts elements into a set or takes them out of it, in as many messages as that needs.
pub fn orders(table: &str, set: &str, elements: Vec<Element>, add: bool) -> Vec<Order> {
    let mut orders = Vec::new();
    let mut elements = elements.into_iter().peekable();
    while elements.peek().is_some() {
        let mut room = MOST_BYTES;
        let mut some = Vec::new();
        while let Some(element) = elements.next_if(|element| element.buffer_len() <= room) {
            room = room.saturating_sub(element.buffer_len());
            some.push(element);
        }
        let mut attributes = named(table, set);
        attributes.push(SetElementList::Elements(some));
        let message = SetElementMessage { attributes };
        orders.push(if add {
            Order::make(NfTablesMessage::NewSetElement(message))
        } else {
            Order::plain(NfTablesMessage::DeleteSetElement(message))
        });
    }
    orders
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
