//! Packets that the packet filter asks a process about (NFQUEUE).
//!
//! A rule hands a packet to a [`Queue`] by number; the kernel keeps it until the process has said what becomes of it. A
//! full queue, and one that nobody listens at, drops.

use std::{
    collections::{BTreeMap, VecDeque},
    io, mem,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd, RawFd},
};

use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use nix::sys::socket::{setsockopt, sockopt::RcvBufForce};

use crate::{Refusal, nft::elements::all as attributes};

/// `NFNL_SUBSYS_QUEUE`, in the type of messages.
const SUBSYSTEM: u16 = 3 << 8;
/// `NFQNL_MSG_PACKET`, `NFQNL_MSG_VERDICT`, `NFQNL_MSG_CONFIG`.
const PACKET: u16 = SUBSYSTEM;
const VERDICT: u16 = SUBSYSTEM | 1;
const CONFIG: u16 = SUBSYSTEM | 2;
/// `NLMSG_ERROR`.
const ERROR: u16 = 2;
/// `NFQA_CFG_CMD`, `NFQA_CFG_PARAMS`, `NFQA_CFG_QUEUE_MAXLEN`, `NFQA_CFG_MASK`, `NFQA_CFG_FLAGS`.
const COMMAND: u16 = 1;
const PARAMETERS: u16 = 2;
const MOST_WAITING: u16 = 3;
const MASK: u16 = 4;
const FLAGS: u16 = 5;
/// `NFQNL_CFG_CMD_BIND`, `NFQNL_COPY_PACKET`.
const BIND: u8 = 1;
const COPY_PACKET: u8 = 2;
/// `NFQA_CFG_F_FAIL_OPEN`: a full queue lets packets pass.
const FAIL_OPEN: u32 = 1;
/// `NFQA_CFG_F_GSO`: segments stay together, and checksums are filled in later.
const TOGETHER: u32 = 1 << 2;
/// `NFQA_PACKET_HDR`, `NFQA_VERDICT_HDR`, `NFQA_MARK`, `NFQA_IFINDEX_INDEV`, `NFQA_PAYLOAD`.
const PACKET_HEADER: u16 = 1;
const VERDICT_HEADER: u16 = 2;
const PACKET_MARK: u16 = 3;
const FROM_LINK: u16 = 5;
const PAYLOAD: u16 = 10;
/// `NF_DROP`, `NF_ACCEPT`.
const DROP: u32 = 0;
const ACCEPT: u32 = 1;

/// Length of `struct nlmsghdr`, and of `struct nfgenmsg` behind it.
const HEADER_LEN: usize = 16;
const FAMILY_LEN: usize = 4;
/// Length of `struct nlattr`.
const ATTRIBUTE_LEN: usize = 4;
/// Room for a datagram beside what is copied of a packet: attributes.
const ROOM: usize = 8 << 10;
/// Of a whole packet.
const WHOLE: u32 = 0xffff;
/// Answers in one datagram.
const MOST_AT_ONCE: usize = 64;
/// Beyond the numbers of other files of a process: when it dies, the kernel closes the highest numbers first.
const LAST: RawFd = 512;
/// Bytes of questions that the kernel keeps until they are read.
const BUFFER: usize = 8 << 20;

/// Place in the kernel at which a packet was stopped (`enum nf_inet_hooks`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hook {
    /// It came in, and is not routed yet.
    PreRouting,
    /// This host sends it.
    Output,
    /// It leaves.
    PostRouting,
    /// Another one, by the kernel's number.
    Other(u8),
}

/// A packet that waits for an answer.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The kernel's number for it.
    id: u32,
    /// Place at which it was stopped.
    pub hook: Hook,
    /// Index of the interface that it came by; none if this host sends it.
    pub from_link: Option<u32>,
    /// The packet's mark.
    pub mark: u32,
    /// The packet from its IP header on, as much of it as was asked for.
    pub packet: &'a [u8],
}

/// Decision about a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It is dropped.
    Drop,
    /// It goes on with this mark.
    Accept(u32),
}

/// Counts of a queue's answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answered {
    /// Packets that were accepted.
    pub accepted: u64,
    /// Packets that were dropped by an answer.
    pub dropped: u64,
}

/// Packets handed to a queue since somebody listens there, as the kernel counts them: from 0 again behind `u32::MAX`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Handed {
    /// Packets that were given a number.
    pub numbered: u32,
    /// Packets that were dropped as too many waited; they have no number.
    pub full: u32,
    /// Packets with a number that were dropped as the process did not read them soon enough.
    pub unread: u32,
}

/// Packets handed to the queues of the calling thread's network namespace, by number. The kernel tells it of those at
/// which somebody listens.
///
/// # Errors
/// Errors of `/proc`; `NotFound` where the kernel has no queues.
pub fn handed() -> io::Result<BTreeMap<u16, Handed>> {
    let text = std::fs::read_to_string("/proc/thread-self/net/netfilter/nfnetlink_queue")?;
    Ok(text.lines().filter_map(handed_to).collect())
}

/// Number, port, waiting, mode, range, dropped when full, dropped unread, number of the last packet.
fn handed_to(line: &str) -> Option<(u16, Handed)> {
    let mut words = line.split_ascii_whitespace();
    let number = words.next()?.parse().ok()?;
    let [full, unread, last] = {
        let mut counts = words.skip(4).map(|word| word.parse().ok());
        [counts.next()??, counts.next()??, counts.next()??]
    };
    Some((number, Handed { numbered: last, full, unread }))
}

/// A queue that this process listens at, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Queue {
    number: u16,
    socket: Socket,
    /// The socket once more. A packet that waits holds the interface that it came or goes by, and a process that is
    /// killed closes a TUN interface only when nobody holds it: so its queues have to end before.
    _ends_first: OwnedFd,
    /// Of a datagram, in bytes.
    room: usize,
    datagram: Vec<u8>,
    /// Questions that came while it was being opened.
    early: VecDeque<Vec<u8>>,
    answers: Vec<u8>,
}

/// A file under a number from [`LAST`] on, or the highest that the process may have.
fn ending_first(file: &impl AsFd) -> io::Result<OwnedFd> {
    let mut copy = file.as_fd().try_clone_to_owned()?;
    let mut lower = Vec::new();
    while copy.as_raw_fd() < LAST {
        let Ok(next) = file.as_fd().try_clone_to_owned() else { break };
        lower.push(mem::replace(&mut copy, next));
    }
    Ok(copy)
}

impl Queue {
    /// Listens at a queue in the calling thread's network namespace. Of packets, up to `copied` bytes are shown, and
    /// up to `most_waiting` wait; more are dropped.
    ///
    /// # Errors
    /// The kernel's refusal: without `CAP_NET_ADMIN` and where there are no queues; `EBUSY` when another process
    /// listens.
    pub fn open(number: u16, copied: u32, most_waiting: u32) -> Result<Self, Refusal> {
        Self::open_for(number, copied, most_waiting, true)
    }

    /// The same where whole packets are shown, as they would leave by a wire: segments are apart, with their checksums.
    ///
    /// # Errors
    /// As [`Queue::open`].
    pub fn open_whole(number: u16, most_waiting: u32) -> Result<Self, Refusal> {
        Self::open_for(number, WHOLE, most_waiting, false)
    }

    fn open_for(
        number: u16,
        copied: u32,
        most_waiting: u32,
        are_together: bool,
    ) -> Result<Self, Refusal> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // What does not fit is dropped, and counted by the kernel.
        socket.set_no_enobufs(true)?;
        // Without the right to go beyond the system's limit there is room for fewer questions.
        let _ = setsockopt(&socket, RcvBufForce, &BUFFER);
        let mut queue = Self {
            number,
            _ends_first: ending_first(&socket)?,
            socket,
            room: ROOM.saturating_add(copied as usize),
            datagram: Vec::new(),
            early: VecDeque::new(),
            answers: Vec::new(),
        };
        let parameters = [&copied.to_be_bytes()[..], &[COPY_PACKET]].concat();
        queue.configure(&[(COMMAND, &[BIND, 0, 0, 0])])?;
        queue.configure(&[
            (PARAMETERS, &parameters),
            (MOST_WAITING, &most_waiting.to_be_bytes()),
            (MASK, &(FAIL_OPEN | TOGETHER).to_be_bytes()),
            (FLAGS, &(if are_together { TOGETHER } else { 0 }).to_be_bytes()),
        ])?;
        queue.socket.set_non_blocking(true)?;
        Ok(queue)
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Answers the questions that wait, without waiting for more: at most 64 of them.
    ///
    /// # Errors
    /// Errors of the socket. The packets that were asked about stay, and are dropped when the queue ends.
    pub fn answer(
        &mut self,
        mut decide: impl FnMut(&Question<'_>) -> Answer,
    ) -> io::Result<Answered> {
        let mut answered = Answered::default();
        self.answers.clear();
        for _ in 0..MOST_AT_ONCE {
            if !self.receive()? {
                break;
            }
            for question in questions(&self.datagram) {
                let answer = decide(&question);
                match answer {
                    Answer::Accept(_) => answered.accepted += 1,
                    Answer::Drop => answered.dropped += 1,
                }
                put_answer(&mut self.answers, self.number, question.id, answer);
            }
        }
        if !self.answers.is_empty() {
            send(&self.socket, &self.answers)?;
        }
        Ok(answered)
    }

    /// Reads a datagram; whether there was one.
    fn receive(&mut self) -> io::Result<bool> {
        if let Some(early) = self.early.pop_front() {
            self.datagram = early;
            return Ok(true);
        }
        self.datagram.clear();
        self.datagram.reserve(self.room);
        match self.socket.recv(&mut self.datagram, 0) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn configure(&mut self, attributes: &[(u16, &[u8])]) -> Result<(), Refusal> {
        let mut order = Vec::new();
        put_message(&mut order, CONFIG, NLM_F_REQUEST | NLM_F_ACK, self.number, attributes);
        send(&self.socket, &order)?;
        loop {
            let mut datagram = Vec::with_capacity(self.room);
            match self.socket.recv(&mut datagram, 0) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            let outcome = messages(&datagram).find_map(Message::acknowledgement);
            match outcome {
                Some(0) => return Ok(()),
                Some(errno) => return Err(Refusal { errno, said: None }),
                None => self.early.push_back(datagram),
            }
        }
    }
}

impl AsFd for Queue {
    /// Readable when a question waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn send(socket: &Socket, bytes: &[u8]) -> io::Result<()> {
    loop {
        match socket.send(bytes, 0) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other.map(|_| ()),
        }
    }
}

fn put_answer(answers: &mut Vec<u8>, queue: u16, id: u32, answer: Answer) {
    let header = |verdict: u32| {
        let [v, id] = [verdict, id].map(u32::to_be_bytes);
        [v, id].concat()
    };
    match answer {
        Answer::Drop => {
            put_message(answers, VERDICT, NLM_F_REQUEST, queue, &[(VERDICT_HEADER, &header(DROP))]);
        }
        Answer::Accept(mark) => {
            let attributes: [(u16, &[u8]); 2] =
                [(VERDICT_HEADER, &header(ACCEPT)), (PACKET_MARK, &mark.to_be_bytes())];
            put_message(answers, VERDICT, NLM_F_REQUEST, queue, &attributes);
        }
    }
}

/// Puts a message behind others: header, `struct nfgenmsg` with the queue's number, attributes.
fn put_message(to: &mut Vec<u8>, kind: u16, flags: u16, queue: u16, attributes: &[(u16, &[u8])]) {
    let begin = to.len();
    to.extend([0; HEADER_LEN]);
    to.extend([0, 0]);
    to.extend(queue.to_be_bytes());
    for (kind, value) in attributes {
        let len = u16::try_from(ATTRIBUTE_LEN + value.len()).unwrap_or(u16::MAX);
        to.extend(len.to_ne_bytes());
        to.extend(kind.to_ne_bytes());
        to.extend(*value);
        to.resize(to.len().next_multiple_of(4), 0);
    }
    let len = u32::try_from(to.len() - begin).unwrap_or(u32::MAX);
    let head =
        [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), &flags.to_ne_bytes(), &[0; 8]].concat();
    if let Some(place) = to.get_mut(begin..begin + HEADER_LEN) {
        place.copy_from_slice(&head);
    }
}

/// A message that came: its type, and what follows the header.
#[derive(Debug, Clone, Copy)]
struct Message<'a> {
    kind: u16,
    body: &'a [u8],
}

/// The questions in a datagram.
pub(crate) fn questions(datagram: &[u8]) -> impl Iterator<Item = Question<'_>> {
    messages(datagram).filter_map(Message::question)
}

fn messages(datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    let mut rest = datagram;
    core::iter::from_fn(move || {
        let (head, _) = rest.split_at_checked(HEADER_LEN)?;
        let len = u32::from_ne_bytes(*head.first_chunk()?) as usize;
        let kind = u16::from_ne_bytes(*head.get(4..)?.first_chunk()?);
        let body = rest.get(HEADER_LEN..len)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(Message { kind, body })
    })
}

impl<'a> Message<'a> {
    /// The error number of an acknowledgement, 0 if the order was carried out.
    fn acknowledgement(self) -> Option<i32> {
        let errno = i32::from_ne_bytes(*self.body.first_chunk()?);
        (self.kind == ERROR).then(|| errno.saturating_abs())
    }

    fn question(self) -> Option<Question<'a>> {
        if self.kind != PACKET {
            return None;
        }
        let (mut header, mut mark, mut from_link, mut packet) = (None, 0, None, &[][..]);
        for (kind, value) in attributes(self.body.get(FAMILY_LEN..)?) {
            match kind {
                PACKET_HEADER => header = value.first_chunk::<7>(),
                PACKET_MARK => mark = number(value)?,
                FROM_LINK => from_link = number(value),
                PAYLOAD => packet = value,
                _ => {}
            }
        }
        let [id @ .., _, _, hook] = header?;
        let hook = match hook {
            0 => Hook::PreRouting,
            3 => Hook::Output,
            4 => Hook::PostRouting,
            other => Hook::Other(*other),
        };
        Some(Question { id: number(id)?, hook, from_link, mark, packet })
    }
}

fn number(value: &[u8]) -> Option<u32> {
    value.first_chunk().copied().map(u32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_end_first_has_a_number_beyond_others() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let first = ending_first(&file).unwrap();
        let second = ending_first(&file).unwrap();
        assert!(first.as_raw_fd() >= LAST && second.as_raw_fd() >= LAST);
        assert!(file.try_clone().unwrap().as_raw_fd() < LAST, "the others are closed");
    }

    #[test]
    fn counts_of_queues_are_read_as_the_kernel_writes_them() {
        let line = " 4510 3735928559     3 2   256     7     2      900  1";
        let handed = Handed { numbered: 900, full: 7, unread: 2 };
        assert_eq!(handed_to(line), Some((4510, handed)));
        for torn in ["", "4510", "4510 1 2 3 4 5", "4510 1 2 3 4 x 6 7", "99999 1 2 3 4 5 6 7 8"] {
            assert_eq!(handed_to(torn), None, "{torn}");
        }
    }
}
