//! Transactions of the packet filter (`nf_tables`): all of it, or nothing.

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NetlinkSerializable as _};
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterProtoFamily, nftables::NfTablesMessage,
    none::ControlMessage,
};
use netlink_sys::protocols::NETLINK_NETFILTER;

use crate::{channel::Channel, netlink::Refusal};

/// `NFNL_SUBSYS_NFTABLES`: whose transaction it is.
const SUBSYSTEM: u16 = 10;
/// What the kernel takes at once without being asked for more.
const SMALL: usize = 100_000;

/// One message of a transaction.
#[derive(Debug)]
pub(super) struct Order {
    message: NfTablesMessage,
    flags: u16,
}

impl Order {
    /// Makes something; it may be there already.
    pub(super) fn make(message: NfTablesMessage) -> Self {
        Self { message, flags: NLM_F_CREATE }
    }

    /// Puts something behind all others.
    pub(super) fn append(message: NfTablesMessage) -> Self {
        Self { message, flags: NLM_F_CREATE | netlink_packet_core::NLM_F_APPEND }
    }

    /// Anything else.
    pub(super) fn plain(message: NfTablesMessage) -> Self {
        Self { message, flags: 0 }
    }
}

/// A socket to the packet filter of one network namespace.
#[derive(Debug)]
pub(super) struct Nft {
    channel: Channel<NetfilterMessage>,
}

impl Nft {
    pub(super) fn open() -> Result<Self, Refusal> {
        Ok(Self { channel: Channel::open(NETLINK_NETFILTER)? })
    }

    /// Brings all into force in one step, or nothing.
    pub(super) fn commit(&mut self, orders: Vec<Order>) -> Result<(), Refusal> {
        let frame = |control| {
            let header = NetfilterHeader::new(NetfilterProtoFamily::Unspec, 0, SUBSYSTEM);
            (NetfilterMessage::new::<ControlMessage>(header, control), 0)
        };
        let count = orders.len();
        let mut messages = vec![frame(ControlMessage::BatchBegin)];
        messages.extend(orders.into_iter().map(|o| (message(o.message), NLM_F_ACK | o.flags)));
        messages.push(frame(ControlMessage::BatchEnd));
        let bytes: usize = messages.iter().map(|(m, _)| m.buffer_len().saturating_add(32)).sum();
        if bytes > SMALL {
            self.channel.allow_datagrams_of(bytes);
        }
        let outcomes = self.channel.send_many(messages)?;
        let mut done = 0;
        for outcome in outcomes.into_iter().flatten() {
            outcome?;
            done += 1;
        }
        let silence = Refusal { errno: nix::libc::EIO, said: Some("no answer".into()) };
        if done < count { Err(silence) } else { Ok(()) }
    }

    /// Asks for all objects of a kind.
    pub(super) fn dump(
        &mut self,
        question: NetfilterMessage,
    ) -> Result<Vec<NetfilterMessage>, Refusal> {
        self.channel.dump(&question)
    }
}

/// A message about a table of both IP versions.
pub(super) fn message(inner: NfTablesMessage) -> NetfilterMessage {
    NetfilterMessage::new(NetfilterHeader::new(NetfilterProtoFamily::Inet, 0, 0), inner)
}
