//! The thread that serves: who comes and goes, what they ask, and what they are told.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use convoy_xfrm::{
    AckOptions, Acknowledgement, Address, DATAGRAM_MAX, Datagram, Errno as XfrmErrno, Flags, Group,
    Kind, Message, Refusal, Request,
};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use zeroize::Zeroizing;

use super::connection::{Connection, Incoming, Read};
use super::control::{self, Control};
use super::multicast::Multicast;
use super::notice::{self, DAEMON_GROUPS};
use crate::throttle::Throttle;
use crate::xfrm::{Answer, Client, Service};

/// Connections at once.
const CONNECTIONS_MAX: usize = 1024;
/// Messages of one connection that are looked at before others have their turn.
const MESSAGES_PER_TURN: usize = 16;
/// New connections before others have their turn.
const ACCEPTS_PER_TURN: usize = 16;
/// Pause in which nobody is accepted after the system refused to.
const PAUSE: Duration = Duration::from_millis(200);

/// Time after a request in which the next one is looked for without sleep: less than two wake-ups take.
const AWAKE: Duration = Duration::from_micros(50);

const LISTENER: u64 = 0;
const WAKE: u64 = 1;
const FIRST_CONNECTION: u64 = 2;

pub(super) struct Serving {
    listener: OwnedFd,
    epoll: OwnedFd,
    service: Arc<dyn Service>,
    multicast: Multicast,
    stop: Arc<AtomicBool>,
    /// By numbers that are never used again.
    connections: BTreeMap<u64, Connection>,
    next: u64,
    /// Connections of which messages are left that nothing will wake for.
    unfinished: BTreeSet<u64>,
    /// Datagrams are received here.
    buffer: Zeroizing<Vec<u8>>,
    /// Time at which connections are accepted again.
    paused: Option<Instant>,
    /// Until then it does not sleep: daemons ask one request right after the answer to another.
    awake: Option<Instant>,
    complaints: Throttle,
    /// IKE daemons, as the service was last told.
    daemons: Vec<Client>,
}

impl Serving {
    pub(super) fn new(
        listener: OwnedFd,
        service: Arc<dyn Service>,
        multicast: Multicast,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        epoll::add(&epoll, &multicast, EventData::new_u64(WAKE), EventFlags::IN)?;
        Ok(Self {
            listener,
            epoll,
            service,
            multicast,
            stop,
            connections: BTreeMap::new(),
            next: FIRST_CONNECTION,
            unfinished: BTreeSet::new(),
            buffer: Zeroizing::new(vec![0; DATAGRAM_MAX]),
            paused: None,
            awake: None,
            complaints: Throttle::default(),
            daemons: Vec::new(),
        })
    }

    /// Serves until it is to stop.
    pub(super) fn run(&mut self) {
        self.serve_all();
        self.service.settle();
    }

    fn serve_all(&mut self) {
        let mut events = Vec::with_capacity(64);
        while !self.stop.load(Ordering::Acquire) {
            let patience = self.patience();
            let room = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, room, patience.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "the XFRM socket is not served any more, and IKE daemons cannot \
                                             reach the gateway: restart it");
                    return;
                }
            }
            self.listen_again();
            if self.service.unsettled().is_some_and(|until| until <= Instant::now()) {
                self.service.settle();
            }
            let unfinished = std::mem::take(&mut self.unfinished);
            for event in events.drain(..) {
                match event.data.u64() {
                    LISTENER => self.accept(),
                    WAKE => {
                        self.multicast.woken();
                        self.relay();
                    }
                    token => {
                        self.serve(token, event.flags);
                        self.awake = Some(Instant::now() + AWAKE);
                    }
                }
            }
            for token in unfinished {
                self.turn(token);
            }
        }
    }

    /// Time to wait for something to happen; `None` for ever.
    fn patience(&self) -> Option<Timespec> {
        let is_awake = self.awake.is_some_and(|until| Instant::now() < until);
        if is_awake || !self.unfinished.is_empty() {
            return Some(Timespec::default());
        }
        let until = [self.paused, self.service.unsettled()].into_iter().flatten().min()?;
        let left = until.saturating_duration_since(Instant::now());
        // Rounded up, so as not to wake just before.
        Timespec::try_from(left.saturating_add(Duration::from_millis(1))).ok()
    }

    /// Accepts connections again after a pause.
    fn listen_again(&mut self) {
        if self.paused.is_some_and(|until| until <= Instant::now()) {
            self.paused = None;
            self.watch_listener(EventFlags::IN);
        }
    }

    fn watch_listener(&self, flags: EventFlags) {
        let _ = epoll::modify(&self.epoll, &self.listener, EventData::new_u64(LISTENER), flags);
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match accept_with(&self.listener, flags) {
                Ok(socket) => self.welcome(socket),
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return,
                Err(error) => {
                    // Such as too many open files.
                    self.complain(|| format!("XFRM socket cannot accept: {error}"));
                    self.watch_listener(EventFlags::empty());
                    self.paused = Some(Instant::now() + PAUSE);
                    return;
                }
            }
        }
    }

    /// Takes up a connection of somebody who may use the socket.
    fn welcome(&mut self, socket: OwnedFd) {
        let Ok(peer) = getsockopt(&socket, PeerCredentials) else { return };
        let (pid, uid) = (peer.pid(), peer.uid());
        let client = Client { pid, uid, command: crate::peer::command(pid) };
        if uid != 0 && uid != rustix::process::geteuid().as_raw() {
            return self.complain(|| {
                let who = notice::named(&client);
                format!("XFRM socket refused to {who} of user {uid}: only the gateway's user and root may use it")
            });
        }
        if self.connections.len() >= CONNECTIONS_MAX {
            return self.complain(|| {
                let who = notice::named(&client);
                format!("XFRM socket refused to {who}: there are {CONNECTIONS_MAX} connections")
            });
        }
        let token = self.next;
        self.next = self.next.saturating_add(1);
        let connection = Connection::new(socket, client);
        match connection.register(&self.epoll, token) {
            Ok(()) => drop(self.connections.insert(token, connection)),
            Err(error) => self.complain(|| format!("XFRM socket cannot serve: {error}")),
        }
    }

    /// Warns, unless it did so just now.
    fn complain(&mut self, what: impl FnOnce() -> String) {
        self.complaints.warn(what);
    }

    /// Something happened on a connection.
    fn serve(&mut self, token: u64, flags: EventFlags) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        // Also when the other end is closed, which sending then shows.
        if flags.intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR) {
            connection.send_on(self.service.as_ref());
        }
        self.turn(token);
    }

    /// Looks at the next messages of a connection.
    fn turn(&mut self, token: u64) {
        let may_go_on = (0..MESSAGES_PER_TURN).all(|_| self.step(token));
        let Some(connection) = self.connections.get_mut(&token) else { return };
        if may_go_on && connection.incoming.is_some() {
            self.unfinished.insert(token);
        }
        connection.watch(&self.epoll, token);
    }

    /// Looks at the next message of a connection; whether there may be more.
    fn step(&mut self, token: u64) -> bool {
        let Some(connection) = self.connections.get_mut(&token) else { return false };
        if !connection.takes_requests() {
            return false;
        }
        let incoming = match connection.incoming.take() {
            Some(incoming) => incoming,
            None => match connection.receive(&mut self.buffer) {
                Read::Datagram(incoming) => incoming,
                Read::Nothing => return false,
                Read::End => return self.leave(token),
                Read::TooLong => {
                    let who = notice::named(&connection.client);
                    self.complain(|| {
                        format!("XFRM socket closed to {who}: a request is longer than {DATAGRAM_MAX} bytes")
                    });
                    return self.leave(token);
                }
            },
        };
        let Some(message) = incoming.message() else { return true };
        if incoming.is_whole(&message)
            && let Some(control) = Control::read(&message)
        {
            return self.obey(token, control, incoming);
        }
        self.tell_leftover(token, &message);
        self.answer_request(token, &message);
        let Some(connection) = self.connections.get_mut(&token) else { return false };
        connection.incoming = incoming.behind();
        // Who asks waits for the answer first: mostly there is no other datagram yet, and epoll tells of one.
        connection.incoming.is_some()
    }

    /// Ends a connection.
    fn leave(&mut self, token: u64) -> bool {
        self.connections.remove(&token);
        self.tell_daemons();
        false
    }

    /// Tells the service which processes listen as IKE daemons do, when these are others than before.
    fn tell_daemons(&mut self) {
        let listening =
            self.connections.values().filter(|it| notice::is_daemon(&it.client, it.groups));
        let mut daemons: Vec<Client> = listening.map(|it| it.client.clone()).collect();
        daemons.sort_by_key(|client| client.pid);
        daemons.dedup_by_key(|client| client.pid);
        if daemons != self.daemons {
            self.service.daemons(&daemons);
            self.daemons = daemons;
        }
    }

    /// Does what the library says; whether the connection goes on.
    fn obey(&mut self, token: u64, control: Control, mut incoming: Incoming) -> bool {
        let Some(connection) = self.connections.get_mut(&token) else { return false };
        match control {
            Control::Bind { port, groups, resumed } => {
                (connection.port, connection.groups) = (Some(port), groups);
                if resumed && groups != 0 {
                    connection.lose();
                }
                self.note_groups(token);
            }
            Control::Membership { group, joins } => {
                let groups = connection.groups & !group;
                connection.groups = if joins { groups | group } else { groups };
                self.note_groups(token);
            }
            Control::Switch { number, on } => {
                control::switch(&mut connection.options, number, on);
            }
            Control::Steer(encap) => {
                let passed = incoming.passed.take();
                let outcome = passed
                    .ok_or_else(|| Refusal::new(XfrmErrno(9), "No socket came along"))
                    .and_then(|socket| self.service.steer(&connection.client, socket, encap));
                let options = AckOptions { capped: true, extended: false };
                let port = connection.port.unwrap_or_default();
                if let Some(message) = incoming.message() {
                    let outcome = outcome.as_ref().copied();
                    connection.answer(Acknowledgement::build(&message, outcome, port, options));
                }
            }
            Control::Mark => connection.tell_mark(self.service.exempt_mark()),
            Control::Unknown => {
                let who = notice::named(&connection.client);
                self.complain(|| {
                    format!(
                        "XFRM socket closed to {who}: its preloaded library is of another version; restart it"
                    )
                });
                return self.leave(token);
            }
        }
        true
    }

    /// Tells people who listens for what only daemons need.
    fn note_groups(&mut self, token: u64) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let fresh = connection.groups & DAEMON_GROUPS & !connection.noted;
        connection.noted |= fresh;
        self.tell_daemons();
        let Some(connection) = self.connections.get(&token) else { return };
        if fresh == 0 {
            return;
        }
        let client = connection.client.clone();
        let other = self
            .connections
            .values()
            .find(|it| notice::is_daemon(&it.client, it.groups) && it.client.pid != client.pid);
        notice::listens(&client, fresh, other.map(|other| &other.client));
        let news = self.service.listens(fresh);
        news.iter().for_each(|(group, event)| self.broadcast(*group, event));
    }

    /// Warns of bytes behind the attributes of a request, once for each connection.
    fn tell_leftover(&mut self, token: u64, message: &Message<'_>) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let left = if connection.told_leftover { 0 } else { convoy_xfrm::leftover(message) };
        let Some(kind) = Kind::from_number(message.header().number).filter(|_| left > 0) else {
            return;
        };
        let who = notice::named(&connection.client);
        connection.told_leftover = self.complaints.warn(|| {
            format!(
                "{who}: {left} bytes behind the last attribute of a {} request are ignored, as by a kernel: it may be \
                 incomplete, so compare `convoy sa` and `convoy policy` with what the program wanted",
                kind.name()
            )
        });
    }

    /// Has a request carried out and answers it.
    fn answer_request(&mut self, token: u64, message: &Message<'_>) {
        let Some(connection) = self.connections.get(&token) else { return };
        let header = *message.header();
        let port = connection.port.unwrap_or(header.port);
        let to = Address { seq: header.seq, port, multi: false };
        let outcome = match Request::parse(message) {
            Ok(None) => Ok(Answer::default()),
            Ok(Some(request)) => self.service.answer(&connection.client, request, to),
            Err(refusal) => Err(refusal),
        };
        // What the service itself sent meanwhile came first.
        self.relay();
        let outcome = outcome.map(|answer| {
            answer.events.iter().for_each(|(group, event)| self.broadcast(*group, event));
            (answer.replies, answer.dump)
        });
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let ended = match outcome {
            Ok((replies, dump)) => {
                replies.into_iter().for_each(|reply| connection.answer(reply));
                if let Some(cursor) = dump {
                    let to = Address { multi: true, ..to };
                    return connection.begin_dump(cursor, to, self.service.as_ref());
                }
                Ok(())
            }
            Err(refusal) => Err(refusal),
        };
        if ended.is_err() || header.flags.any(Flags::ACK) {
            let outcome = ended.as_ref().copied();
            let answer = Acknowledgement::build(message, outcome, port, connection.options);
            connection.answer(answer);
        }
    }

    /// Sends what was handed to [`Multicast`].
    fn relay(&mut self) {
        let pending = self.multicast.take();
        pending.events.iter().for_each(|(group, event)| self.broadcast(*group, event));
        if pending.lost != 0 {
            for (token, connection) in &mut self.connections {
                if connection.groups & pending.lost != 0 {
                    connection.lose();
                    connection.watch(&self.epoll, *token);
                }
            }
        }
    }

    /// Sends an event to those in its group.
    fn broadcast(&mut self, group: Group, event: &Datagram) {
        for (token, connection) in &mut self.connections {
            if connection.groups & group.bit() != 0 {
                connection.tell(event.as_bytes());
                connection.watch(&self.epoll, *token);
            }
        }
    }
}
