//! Transactions of the packet filter (`nf_tables`): all of it, or nothing.

use core::convert::Infallible;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NetlinkDeserializable, NetlinkHeader, NetlinkPayload,
    NetlinkSerializable,
};
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterProtoFamily,
    nftables::{ChainAttribute, ChainMessage, NfTablesMessage, RuleAttribute, TableMessage},
    none::ControlMessage,
};
use netlink_sys::protocols::NETLINK_NETFILTER;

use crate::{Refusal, channel::Channel};

/// `NFNL_SUBSYS_NFTABLES`: whose transaction it is.
const SUBSYSTEM: u16 = 10;
/// `NFTA_TABLE_NAME`.
const TABLE_NAME: u16 = 1;
/// `NFTA_CHAIN_TABLE` and `NFTA_CHAIN_NAME`.
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
/// Bytes that the kernel takes at once without being asked for more.
const SMALL: usize = 100_000;

/// One message of a transaction.
#[derive(Debug)]
pub struct Order {
    message: Ordered,
    flags: u16,
}

#[derive(Debug)]
enum Ordered {
    Said(NfTablesMessage),
    /// Written down, with its type.
    Written(u8, Vec<u8>),
}

impl Order {
    /// Makes something; it may be there already.
    pub fn make(message: NfTablesMessage) -> Self {
        Self { message: Ordered::Said(message), flags: NLM_F_CREATE }
    }

    /// Puts something behind all others.
    pub fn append(message: NfTablesMessage) -> Self {
        Self { message: Ordered::Said(message), flags: NLM_F_CREATE | NLM_F_APPEND }
    }

    /// The chain that a rule is put into, if this does so.
    pub fn chain_of_rule(&self) -> Option<&str> {
        let Ordered::Said(NfTablesMessage::NewRule(rule)) = &self.message else { return None };
        rule.attributes.iter().find_map(|attribute| match attribute {
            RuleAttribute::Chain(chain) => Some(chain.as_str()),
            _ => None,
        })
    }

    /// Anything else.
    pub fn plain(message: NfTablesMessage) -> Self {
        Self { message: Ordered::Said(message), flags: 0 }
    }

    /// A message of this type that is written down from netfilter's header on.
    pub(super) fn written(kind: u8, bytes: Vec<u8>, makes: bool) -> Self {
        let flags = if makes { NLM_F_CREATE } else { 0 };
        Self { message: Ordered::Written(kind, bytes), flags }
    }

    fn into_message(self) -> Message {
        match self.message {
            Ordered::Said(said) => Message::Said(message(said)),
            Ordered::Written(kind, bytes) => {
                Message::Received(Answer { kind: SUBSYSTEM << 8 | u16::from(kind), bytes })
            }
        }
    }
}

/// Request in words, or answer in bytes: a list of elements is long, and reading all
/// of an answer into attributes takes a time that grows with its square.
#[derive(Debug, Clone)]
pub(crate) enum Message {
    Said(NetfilterMessage),
    Received(Answer),
}

/// An answer: its type, and what follows the header of netlink.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The message's type.
    pub kind: u16,
    /// Header of netfilter, and attributes.
    pub bytes: Vec<u8>,
}

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        match self {
            Self::Said(message) => message.message_type(),
            Self::Received(answer) => answer.kind,
        }
    }

    fn buffer_len(&self) -> usize {
        match self {
            Self::Said(message) => NetlinkSerializable::buffer_len(message),
            Self::Received(answer) => answer.bytes.len(),
        }
    }

    fn serialize(&self, buffer: &mut [u8]) {
        match self {
            Self::Said(message) => message.serialize(buffer),
            Self::Received(answer) => buffer.copy_from_slice(&answer.bytes),
        }
    }
}

impl NetlinkDeserializable for Message {
    type Error = Infallible;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, Infallible> {
        Ok(Self::Received(Answer { kind: header.message_type, bytes: payload.to_vec() }))
    }
}

impl From<Message> for NetlinkPayload<Message> {
    fn from(message: Message) -> Self {
        Self::InnerMessage(message)
    }
}

/// A socket to the packet filter of one network namespace.
#[derive(Debug)]
pub struct Nft {
    channel: Channel<Message>,
}

impl Nft {
    /// Opens one in the calling thread's network namespace.
    ///
    /// # Errors
    /// The kernel has none, or refuses.
    pub fn open() -> Result<Self, Refusal> {
        Ok(Self { channel: Channel::open(NETLINK_NETFILTER)? })
    }

    /// The port of the socket, as [`super::Changed`] has it.
    #[must_use]
    pub const fn port(&self) -> u32 {
        self.channel.port()
    }

    /// Brings all into force in one step, or nothing.
    pub fn commit(&mut self, orders: Vec<Order>) -> Result<(), Refusal> {
        let frame = |control| {
            let header = NetfilterHeader::new(NetfilterProtoFamily::Unspec, 0, SUBSYSTEM);
            (Message::Said(NetfilterMessage::new::<ControlMessage>(header, control)), 0)
        };
        let last = orders.len();
        let mut messages = vec![frame(ControlMessage::BatchBegin)];
        messages.extend(orders.into_iter().map(|order| {
            let flags = order.flags;
            (order.into_message(), flags)
        }));
        // Refusals come unasked. An acknowledgement of each order would overflow the socket's buffer at some 280.
        if let Some((_, flags)) = messages.last_mut().filter(|_| last > 0) {
            *flags |= NLM_F_ACK;
        }
        messages.push(frame(ControlMessage::BatchEnd));
        let bytes: usize = messages.iter().map(|(m, _)| m.buffer_len().saturating_add(32)).sum();
        if bytes > SMALL {
            self.channel.allow_datagrams_of(bytes);
        }
        let outcomes = self.channel.send_many(messages)?;
        let is_done = last == 0 || matches!(outcomes.get(last), Some(Some(Ok(()))));
        outcomes.into_iter().flatten().collect::<Result<(), _>>()?;
        let silence = Refusal { errno: nix::libc::EIO, said: Some("no answer".into()) };
        if is_done { Ok(()) } else { Err(silence) }
    }

    /// The names of all tables for both IP versions.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn tables(&mut self) -> Result<Vec<String>, Refusal> {
        let question = NfTablesMessage::GetTable(TableMessage { attributes: Vec::new() });
        let answers = self.dump(question)?;
        let name = |answer: &Answer| {
            let name = answer.attributes(TABLE_NAME).next()?;
            core::str::from_utf8(name.strip_suffix(&[0])?).ok().map(str::to_owned)
        };
        Ok(answers.iter().filter_map(name).collect())
    }

    /// Names of all chains of a table of both IP versions, if it is there.
    pub fn chains(&mut self, table: &str) -> Result<Vec<String>, Refusal> {
        let attributes = vec![ChainAttribute::Table(table.into())];
        let answers = self.dump(NfTablesMessage::GetChain(ChainMessage { attributes }))?;
        let text = |answer: &Answer, kind| {
            let text = answer.attributes(kind).next()?;
            core::str::from_utf8(text.strip_suffix(&[0])?).ok().map(str::to_owned)
        };
        // The kernel shows those of all tables.
        let of_table = answers.iter().filter(|a| text(a, CHAIN_TABLE).as_deref() == Some(table));
        Ok(of_table.filter_map(|answer| text(answer, CHAIN_NAME)).collect())
    }

    /// Asks for one object.
    pub fn get(&mut self, question: NfTablesMessage) -> Result<Option<Answer>, Refusal> {
        let answer = self.channel.ask(Message::Said(message(question)), 0)?;
        Ok(answer.and_then(|m| if let Message::Received(answer) = m { Some(answer) } else { None }))
    }

    /// Asks for all objects of a kind.
    pub fn dump(&mut self, question: NfTablesMessage) -> Result<Vec<Answer>, Refusal> {
        self.dump_of(NetfilterProtoFamily::Inet, question)
    }

    /// Asks for all objects of a kind and a family.
    pub(super) fn dump_of(
        &mut self,
        family: NetfilterProtoFamily,
        question: NfTablesMessage,
    ) -> Result<Vec<Answer>, Refusal> {
        let question = NetfilterMessage::new(NetfilterHeader::new(family, 0, 0), question);
        let answers = self.channel.dump(&Message::Said(question))?;
        let received = |m| if let Message::Received(answer) = m { Some(answer) } else { None };
        Ok(answers.into_iter().filter_map(received).collect())
    }
}

/// A message about a table of both IP versions.
fn message(inner: NfTablesMessage) -> NetfilterMessage {
    NetfilterMessage::new(NetfilterHeader::new(NetfilterProtoFamily::Inet, 0, 0), inner)
}
