//! A connection: one netlink socket of an application.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use convoy_host::Mark;
use convoy_xfrm::{AckOptions, Address, Datagram, Message, Messages, Received, Reply};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, recvmsg, send,
};
use zeroize::Zeroizing;

use super::control;
use crate::xfrm::{Client, Cursor, Service};

/// Bytes of datagrams that may lie in a connection, unread; the kernel doubles it for its own books.
const SEND_BUFFER: usize = 1 << 20;
/// Messages of a dump that are asked for at once.
const DUMP_STEP: usize = 64;

/// A datagram that is being looked at.
#[derive(Debug)]
pub(super) struct Incoming {
    /// It may hold keys.
    bytes: Zeroizing<Vec<u8>>,
    /// Position of the next message.
    at: usize,
    /// A descriptor that came along.
    pub(super) passed: Option<OwnedFd>,
}

impl Incoming {
    /// The next message. As in a kernel, one that does not fit into what is left ends the datagram.
    pub(super) fn message(&self) -> Option<Message<'_>> {
        Messages::new(self.bytes.get(self.at..)?).next()
    }

    /// True if this message is all there is.
    pub(super) fn is_whole(&self, message: &Message<'_>) -> bool {
        message.as_bytes().len() == self.bytes.len()
    }

    /// The datagram behind the next message, if there is more.
    pub(super) fn behind(mut self) -> Option<Self> {
        let len = self.message()?.as_bytes().len();
        self.at = self.at.saturating_add(len.next_multiple_of(4));
        self.message().is_some().then_some(self)
    }
}

/// Result of reading from a connection.
#[derive(Debug)]
pub(super) enum Read {
    /// A datagram.
    Datagram(Incoming),
    /// A datagram that is longer than any request.
    TooLong,
    /// None at the moment.
    Nothing,
    /// None any more.
    End,
}

/// A dump under way.
#[derive(Debug)]
struct Dump {
    cursor: Cursor,
    to: Address,
}

/// Outcome of sending a datagram.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    Yes,
    /// There is no room for it.
    Full,
    /// Nobody will read it.
    Unread,
}

#[derive(Debug)]
pub(super) struct Connection {
    socket: OwnedFd,
    pub(super) client: Client,
    /// The netlink port, once the library said it.
    pub(super) port: Option<u32>,
    /// The multicast groups, group 1 in bit 0.
    pub(super) groups: u32,
    /// Groups of daemons that the log knows of.
    pub(super) noted: u32,
    /// True if the log knows that there were bytes behind the attributes of a request.
    pub(super) told_leftover: bool,
    pub(super) options: AckOptions,
    /// Rest of a datagram whose messages are more than a turn's, or more than there is room to
    /// answer.
    pub(super) incoming: Option<Incoming>,
    /// Answers for which there is no room yet: those to one request, or one step of a dump.
    waiting: VecDeque<Datagram>,
    dump: Option<Dump>,
    /// True if events were lost that it has not been told of.
    lost: bool,
    /// True if nobody reads any more. What was asked before is still carried out.
    unread: bool,
    /// Events that epoll watches for.
    watched: EventFlags,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd, client: Client) -> Self {
        use rustix::net::sockopt;
        // Only the privileged may go beyond the system's limit.
        if sockopt::set_socket_send_buffer_size_force(&socket, SEND_BUFFER).is_err() {
            let _ = sockopt::set_socket_send_buffer_size(&socket, SEND_BUFFER);
        }
        Self {
            socket,
            client,
            port: None,
            groups: 0,
            noted: 0,
            told_leftover: false,
            options: AckOptions::default(),
            incoming: None,
            waiting: VecDeque::new(),
            dump: None,
            lost: false,
            unread: false,
            watched: EventFlags::IN,
        }
    }

    /// Has epoll watch for what is to be done next.
    pub(super) fn register(&self, epoll: &OwnedFd, token: u64) -> Result<(), Errno> {
        epoll::add(epoll, &self.socket, EventData::new_u64(token), self.watched)
    }

    /// Has epoll watch for what is to be done next, when that changed.
    pub(super) fn watch(&mut self, epoll: &OwnedFd, token: u64) {
        let mut wanted = EventFlags::empty();
        if self.incoming.is_none() && self.takes_requests() {
            wanted |= EventFlags::IN;
        }
        if self.lost || !self.takes_requests() {
            wanted |= EventFlags::OUT;
        }
        if wanted != self.watched
            && epoll::modify(epoll, &self.socket, EventData::new_u64(token), wanted).is_ok()
        {
            self.watched = wanted;
        }
    }

    /// True if the next request may be carried out: all answers before are on their way.
    pub(super) fn takes_requests(&self) -> bool {
        self.waiting.is_empty() && self.dump.is_none()
    }

    /// Receives a datagram by way of `buffer`, which is wiped.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> Read {
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let parts = &mut [IoSliceMut::new(buffer)];
            let got = match recvmsg(&self.socket, parts, &mut ancillary, flags) {
                Ok(got) => got,
                // The other end closed with answers unread; what it sent may still be here.
                Err(Errno::CONNRESET) if !self.unread => {
                    self.give_up_answers();
                    continue;
                }
                Err(Errno::AGAIN | Errno::INTR) => return Read::Nothing,
                Err(_) => return Read::End,
            };
            let passed = ancillary.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut all) => all.next(),
                _ => None,
            });
            let received = Received::new(buffer.get_mut(..got.bytes).unwrap_or_default());
            return if received.as_bytes().is_empty() {
                Read::End
            } else if got.flags.contains(ReturnFlags::TRUNC) {
                Read::TooLong
            } else {
                let bytes = Zeroizing::new(received.as_bytes().to_vec());
                Read::Datagram(Incoming { bytes, at: 0, passed })
            };
        }
    }

    /// Sends an answer, or keeps it until there is room.
    pub(super) fn answer(&mut self, answer: Datagram) {
        if self.unread {
            return;
        }
        let sent = if self.waiting.is_empty() { self.send(answer.as_bytes()) } else { Sent::Full };
        match sent {
            Sent::Yes => {}
            Sent::Full => self.waiting.push_back(answer),
            Sent::Unread => self.give_up_answers(),
        }
    }

    /// Tells the mark of sockets that are exempt from policies. Who does not read it asks again.
    pub(super) fn tell_mark(&self, mark: Mark) {
        self.send(&control::mark(self.port.unwrap_or_default(), mark));
    }

    /// Sends an event, or notes that it was lost.
    pub(super) fn tell(&mut self, event: &[u8]) {
        // After a loss, nothing is told before the loss.
        if self.unread || self.lost {
            return;
        }
        let sent = if self.waiting.is_empty() { self.send(event) } else { Sent::Full };
        match sent {
            Sent::Yes => {}
            Sent::Full => self.lost = true,
            Sent::Unread => self.give_up_answers(),
        }
    }

    /// Notes that events were lost; it is told when there is room.
    pub(super) fn lose(&mut self) {
        self.lost = !self.unread;
    }

    /// Begins a dump, which goes on as the socket is read.
    pub(super) fn begin_dump(&mut self, cursor: Cursor, to: Address, service: &dyn Service) {
        if !self.unread {
            self.dump = Some(Dump { cursor, to });
            self.dump_on(service);
        }
    }

    /// Sends what waits for room, of which there is some: epoll says so when at most a quarter of the
    /// buffer is taken. The rest is room for events while a dump goes on.
    pub(super) fn send_on(&mut self, service: &dyn Service) {
        while let Some(next) = self.waiting.front() {
            match self.send(next.as_bytes()) {
                Sent::Yes => drop(self.waiting.pop_front()),
                Sent::Full => return,
                Sent::Unread => return self.give_up_answers(),
            }
        }
        if self.lost {
            match self.send(&control::overrun(self.port.unwrap_or_default())) {
                Sent::Yes => self.lost = false,
                Sent::Full => return,
                Sent::Unread => return self.give_up_answers(),
            }
        }
        self.dump_on(service);
    }

    /// One step of a dump.
    fn dump_on(&mut self, service: &dyn Service) {
        let mut room = DUMP_STEP;
        while room > 0 && self.waiting.is_empty() {
            let Some(dump) = &mut self.dump else { return };
            let to = dump.to;
            let step = service.dump(&mut dump.cursor, to, room);
            if step.is_empty() {
                self.dump = None;
                if let Some(done) = Reply::Done(None).build(to) {
                    self.answer(done);
                }
                return;
            }
            room = room.saturating_sub(step.len());
            step.into_iter().for_each(|message| self.answer(message));
        }
    }

    fn send(&self, bytes: &[u8]) -> Sent {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match send(self.socket.as_fd(), bytes, flags) {
            Ok(_) => Sent::Yes,
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM) => Sent::Full,
            Err(_) => Sent::Unread,
        }
    }

    /// Nobody reads any more.
    fn give_up_answers(&mut self) {
        self.unread = true;
        self.waiting.clear();
        self.dump = None;
        self.lost = false;
    }
}
