//! Service behind the XFRM socket, as the socket sees it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use convoy_host::Mark;
use convoy_xfrm::{Address, Datagram, Group, Refusal, Request, SaDump};

use crate::site::Marks;

/// Process that asks: a connection, which stands for one netlink socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// The process that connected (`SO_PEERCRED`).
    pub pid: i32,
    /// Its effective user.
    pub uid: u32,
    /// Its name (`/proc/PID/comm`), for people.
    pub command: Arc<str>,
}

/// Consequences of a request.
#[derive(Debug, Default)]
pub struct Answer {
    /// Messages for who asked, before the acknowledgement; each in a datagram of its own.
    pub replies: Vec<Datagram>,
    /// Messages for the sockets in a group, sent before the answer.
    pub events: Vec<(Group, Datagram)>,
    /// A dump that begins; it ends with a message of its own, and there is no acknowledgement.
    pub dump: Option<Cursor>,
}

/// Progress of a dump.
#[derive(Debug)]
pub enum Cursor {
    /// Of SAs: those that are asked for, and behind which it goes on.
    Sas(Box<SaDump>, Option<u64>),
    /// Of policies.
    Policies(Option<u64>),
}

/// Databases of a kernel behind the socket, and what they bring about.
pub trait Service: Send + Sync {
    /// Carries out a request. When this returns, every worker sees what has changed, or does before its next packet.
    ///
    /// # Errors
    /// As a kernel refuses it; then nothing has changed.
    fn answer(&self, client: &Client, request: Request, to: Address) -> Result<Answer, Refusal>;

    /// Time until which [`Self::settle`] is to be called, if requests left something to do that nobody waits for.
    fn unsettled(&self) -> Option<Instant> {
        None
    }

    /// Does what requests have left.
    fn settle(&self) {}

    /// The next messages of a dump, at most `room` of them; none when it is over.
    fn dump(&self, cursor: &mut Cursor, to: Address, room: usize) -> Vec<Datagram>;

    /// Messages for all who listen, now that a client begins to listen to groups of IKE daemons
    /// ([`Group::bit`]).
    fn listens(&self, _groups: u32) -> Vec<(Group, Datagram)> {
        Vec::new()
    }

    /// Takes note of all processes that listen as IKE daemons do (for acquires or expiries), by pid; called when these
    /// are others than before.
    fn daemons(&self, _daemons: &[Client]) {}

    /// Takes over the ESP that arrives at a daemon's UDP socket, if `encap` is its kind
    /// (`UDP_ENCAP_ESPINUDP` is 2), or gives it back, if `encap` is 0.
    ///
    /// # Errors
    /// Refuses what is not possible, as `setsockopt` would say it.
    fn steer(&self, client: &Client, socket: OwnedFd, encap: u32) -> Result<(), Refusal>;

    /// The mark of sockets that a daemon exempts from policies.
    fn exempt_mark(&self) -> Mark {
        Marks::default().exempt
    }
}
