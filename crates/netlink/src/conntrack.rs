//! Marks of flows that the kernel tracks (conntrack), and how many it tracks.

mod hidden;

use std::io;

use netlink_packet_core::{DefaultNla, NLM_F_ACK};
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily,
    NetfilterSubsystem,
};
use netlink_sys::protocols::NETLINK_NETFILTER;

use crate::{
    Refusal,
    channel::Channel,
    nft::{Answer, Message},
};

pub use hidden::Hidden;

/// `NFNL_SUBSYS_CTNETLINK`.
const SUBSYSTEM: u8 = 1;
/// `IPCTNL_MSG_CT_NEW`, `IPCTNL_MSG_CT_GET`, `IPCTNL_MSG_CT_GET_STATS`.
const NEW: u8 = 0;
const GET: u8 = 1;
const STATISTICS: u8 = 5;
/// `CTA_TUPLE_ORIG`, `CTA_MARK`, `CTA_ZONE`, `CTA_MARK_MASK`.
const TUPLE: u16 = 1;
const MARK: u16 = 8;
const ZONE: u16 = 18;
const MARK_MASK: u16 = 21;
/// `NLA_F_NESTED`.
const NESTED: u16 = 1 << 15;
/// Changes in one datagram: their answers must fit the socket's buffer.
const CHANGES_AT_ONCE: usize = 100;

/// A socket to the flows of one network namespace.
#[derive(Debug)]
pub struct Conntrack {
    channel: Channel<Message>,
    /// Takes changes while the other one lists.
    changes: Channel<Message>,
}

impl Conntrack {
    /// Opens one in the calling thread's network namespace.
    ///
    /// # Errors
    /// The kernel has none, or refuses.
    pub fn open() -> Result<Self, Refusal> {
        let open = || Channel::open(NETLINK_NETFILTER);
        Ok(Self { channel: open()?, changes: open()? })
    }

    /// Asks for no more than whether the kernel tells of flows.
    ///
    /// # Errors
    /// Its refusal: without `CAP_NET_ADMIN`, or without `nf_conntrack_netlink`.
    pub fn probe(&mut self) -> Result<(), Refusal> {
        let question = message(NetfilterProtoFamily::Unspec, STATISTICS, Vec::new());
        self.channel.ask(question, 0).map(drop)
    }

    /// Clears bits of the marks of all flows. How many flows had some of them. Of as many flows as a kernel may track that
    /// takes seconds.
    ///
    /// # Errors
    /// The kernel's refusal: without `CAP_NET_ADMIN`, or without `nf_conntrack_netlink`. Some are cleared then.
    pub fn clear_marks(&mut self, bits: u32) -> Result<usize, Refusal> {
        let question = message(NetfilterProtoFamily::Unspec, GET, Vec::new());
        let Self { channel, changes } = self;
        let (mut orders, mut count) = (Vec::new(), 0);
        channel.dump_each(&question, |answer| {
            let Message::Heard(flow) = answer else { return Ok(()) };
            orders.extend(clearing(&flow, bits));
            if orders.len() < CHANGES_AT_ONCE {
                return Ok(());
            }
            count += orders.len();
            carry_out(changes, core::mem::take(&mut orders))
        })?;
        count += orders.len();
        carry_out(changes, orders).map(|()| count)
    }
}

fn carry_out(channel: &mut Channel<Message>, orders: Vec<Message>) -> Result<(), Refusal> {
    if orders.is_empty() {
        return Ok(());
    }
    let orders = orders.into_iter().map(|order| (order, NLM_F_ACK)).collect();
    for outcome in channel.send_many(orders)?.into_iter().flatten() {
        match outcome {
            // It has ended.
            Err(Refusal { errno: nix::libc::ENOENT, .. }) => {}
            outcome => outcome?,
        }
    }
    Ok(())
}

/// Load of the table of connections of a network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fill {
    /// Flows that the kernel tracks.
    pub entries: u64,
    /// As many as it tracks at most; packets of further ones are dropped. 0 for no limit.
    pub limit: u64,
}

impl Fill {
    /// Reads that of the calling thread's network namespace; none where the kernel tracks nothing.
    ///
    /// # Errors
    /// Errors of `/proc`, and a number that is none.
    pub fn read() -> io::Result<Option<Self>> {
        let number = |name: &str| -> io::Result<u64> {
            let text =
                std::fs::read_to_string(format!("/proc/sys/net/netfilter/nf_conntrack_{name}"))?;
            text.trim().parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
        };
        match number("count") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            entries => Ok(Some(Self { entries: entries?, limit: number("max")? })),
        }
    }

    /// True if at least so much of it is taken, in percent.
    #[must_use]
    pub const fn has_reached(self, percent: u64) -> bool {
        self.limit > 0 && self.entries.saturating_mul(100) >= self.limit.saturating_mul(percent)
    }
}

/// The order that clears the bits of a flow's mark; nothing where none is set.
pub(crate) fn clearing(flow: &Answer, bits: u32) -> Option<Message> {
    let family = NetfilterProtoFamily::from(*flow.bytes.first()?);
    let attribute = |kind| flow.attributes(kind).next();
    let mark = u32::from_be_bytes(*attribute(MARK)?.first_chunk()?);
    if mark & bits == 0 {
        return None;
    }
    let mut attributes = vec![DefaultNla::new(TUPLE | NESTED, attribute(TUPLE)?.to_vec())];
    attributes.extend(attribute(ZONE).map(|zone| DefaultNla::new(ZONE, zone.to_vec())));
    attributes.push(DefaultNla::new(MARK, vec![0; 4]));
    attributes.push(DefaultNla::new(MARK_MASK, bits.to_be_bytes().to_vec()));
    Some(message(family, NEW, attributes))
}

fn message(family: NetfilterProtoFamily, message_type: u8, attributes: Vec<DefaultNla>) -> Message {
    let subsys = NetfilterSubsystem::from(SUBSYSTEM);
    let inner = NetfilterMessageInner::Other { subsys, message_type, attributes };
    Message::Said(NetfilterMessage::new(NetfilterHeader::new(family, 0, 0), inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_full_by_its_limit() {
        let fill = |entries, limit| Fill { entries, limit };
        assert!(fill(90, 100).has_reached(90) && !fill(89, 100).has_reached(90));
        assert!(!fill(u64::MAX, 0).has_reached(1), "no limit");
        assert!(fill(u64::MAX, 5).has_reached(100));
    }
}
