//! Questions and orders to the kernel's routing socket, one at a time.
//!
//! Messages are `netlink-packet-route`'s; what is here sends them and makes sense of the answers.

use std::io;

use netlink_packet_core::NLM_F_ACK;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;

use crate::{Refusal, channel::Channel};

/// Orders in one datagram: their answers must fit the socket's buffer.
const ORDERS_AT_ONCE: usize = 100;

/// A routing socket. It belongs to the network namespace of the thread that opened it, and stays
/// there whichever thread uses it later.
#[derive(Debug)]
pub struct Rtnl {
    channel: Channel<RouteNetlinkMessage>,
}

impl Rtnl {
    /// Opens a socket in the calling thread's network namespace.
    pub fn open() -> io::Result<Self> {
        Ok(Self { channel: Channel::open(NETLINK_ROUTE)? })
    }

    /// Orders a change and waits until the kernel has made or refused it. `flags` are added to
    /// those of every request.
    pub fn change(&mut self, order: RouteNetlinkMessage, flags: u16) -> Result<(), Refusal> {
        self.channel.ask(order, flags).map(|_| ())
    }

    /// Orders changes, each with its flags, and tells what became of each. They are made in this
    /// order; one that is refused does not keep back the others.
    pub fn change_many(
        &mut self,
        orders: Vec<(RouteNetlinkMessage, u16)>,
    ) -> Result<Vec<Result<(), Refusal>>, Refusal> {
        let mut outcomes = Vec::with_capacity(orders.len());
        let mut orders = orders.into_iter().peekable();
        while orders.peek().is_some() {
            let mut some: Vec<_> = orders.by_ref().take(ORDERS_AT_ONCE).collect();
            // Refusals come unasked, and before this.
            if let Some((_, flags)) = some.last_mut() {
                *flags |= NLM_F_ACK;
            }
            let answers = self.channel.send_many(some)?;
            let is_answered = answers.last().is_some_and(Option::is_some);
            let silent = || Refusal { errno: nix::libc::EIO, said: Some("no answer".into()) };
            let unasked = || if is_answered { Ok(()) } else { Err(silent()) };
            outcomes.extend(answers.into_iter().map(|answer| answer.unwrap_or_else(unasked)));
        }
        Ok(outcomes)
    }

    /// Asks for one object.
    pub fn query(
        &mut self,
        question: RouteNetlinkMessage,
    ) -> Result<Option<RouteNetlinkMessage>, Refusal> {
        self.channel.ask(question, 0)
    }

    /// Asks for all objects of a kind, as one consistent list.
    pub fn dump(
        &mut self,
        question: &RouteNetlinkMessage,
    ) -> Result<Vec<RouteNetlinkMessage>, Refusal> {
        self.channel.dump(question)
    }
}
