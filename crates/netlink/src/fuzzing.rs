//! Parsers of a kernel's answers, without the sockets that these come by. Fuzz targets call them.

use netlink_packet_core::{NetlinkMessage, NetlinkSerializable as _};
use netlink_packet_route::RouteNetlinkMessage;

use crate::{
    channel, conntrack,
    nft::Answer,
    queue::{self, Question},
};

/// The questions in a datagram of a queue.
pub fn questions(datagram: &[u8]) -> impl Iterator<Item = Question<'_>> {
    queue::questions(datagram)
}

/// Header of netfilter and attributes of the order that clears bits of a flow's mark.
#[must_use]
pub fn clearing(flow: &Answer, bits: u32) -> Option<Vec<u8>> {
    let order = conntrack::clearing(flow, bits)?;
    let mut bytes = vec![0; order.buffer_len()];
    order.serialize(&mut bytes);
    Some(bytes)
}

/// The messages about routes in a datagram up to the first that cannot be read, and the errors that they tell.
#[must_use]
pub fn routes(datagram: &[u8]) -> (Vec<NetlinkMessage<RouteNetlinkMessage>>, Vec<i32>) {
    let messages = channel::messages(datagram).map_while(Result::ok);
    let messages: Vec<NetlinkMessage<RouteNetlinkMessage>> = messages.collect();
    let verdicts = messages.iter().filter_map(channel::verdict);
    let errors = verdicts.filter_map(Result::err).map(|refusal| refusal.errno);
    let errors = errors.collect();
    (messages, errors)
}
