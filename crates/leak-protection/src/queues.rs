//! Questions that the packet filter asks, and their answers.

use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

use convoy_netlink::nft::QueueBy;
use convoy_netlink::queue::{Answer, Hook, Question, Queue};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::{
    Config, LeakProtectionError, Marks, Verdict,
    hidden::Hidden,
    marks::{Epoch, Noted},
};

/// Bytes of a packet that are shown: IPv6 extension headers beyond leave it without ports.
const SHOWN: u32 = 256;
/// Packets that wait for an answer in one queue. More are dropped.
const MOST_WAITING: u32 = 4096;

/// TCP, UDP, ICMP and ICMPv6: what every kernel tells flows apart of.
const TRACKED: [u8; 4] = [6, 17, 1, 58];

/// Settings of questions about packets between mixed prefixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Questions {
    /// Bits in which answers are kept.
    pub marks: Marks,
    /// The first of five queues (NFQUEUE) that nobody else uses.
    pub queue: u16,
    /// The first of two routing tables, 1 to 252 or from 256 on, that nobody else uses: one has the routes to far
    /// networks, the next one leads what was answered so into the TUN interface.
    pub table: u32,
    /// Priority of the first `ip rule`; the six from there on are taken.
    pub priority: u32,
}

impl Default for Questions {
    fn default() -> Self {
        Self::new()
    }
}

impl Questions {
    /// Marks as [`Marks::new`], queues 4510 to 4514, tables 4510 and 4511, priorities 210 to 215.
    #[must_use]
    pub const fn new() -> Self {
        Self { marks: Marks::new(), queue: 4510, table: 4510, priority: 210 }
    }

    /// The tables of far networks, and of what was answered.
    pub(crate) const fn tables(&self) -> [u32; 2] {
        [self.table, self.table.saturating_add(1)]
    }
}

/// Policies that questions are put to (RFC 4301 section 4.4.1).
pub trait Policies {
    /// Verdict on a packet that leaves, from its IP header on. The end of a long one may be missing.
    fn outbound(&mut self, packet: &[u8]) -> Verdict;

    /// Verdict on a packet for this host that came in in clear: [`Verdict::Bypass`] if it was to, else it is dropped.
    fn inbound(&mut self, packet: &[u8]) -> Verdict;

    /// The same of a packet for others.
    fn forwarded(&mut self, packet: &[u8]) -> Verdict;

    /// Takes a whole packet as if it had come by the TUN interface. It is protected, and the kernel drops it.
    fn take(&mut self, packet: &[u8]);
}

/// Numbers of answers, by verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answered {
    /// Packets, and with them flows, that pass in clear.
    pub bypassed: u64,
    /// Packets, and with them flows, that go into the TUN interface.
    pub protected: u64,
    /// Packets that were dropped.
    pub discarded: u64,
}

impl Answered {
    /// All questions.
    #[must_use]
    pub const fn questions(&self) -> u64 {
        self.bypassed.saturating_add(self.protected).saturating_add(self.discarded)
    }

    const fn count(&mut self, verdict: Verdict) {
        let count = match verdict {
            Verdict::Bypass => &mut self.bypassed,
            Verdict::Protect => &mut self.protected,
            Verdict::Discard => &mut self.discarded,
        };
        *count = count.saturating_add(1);
    }

    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        self.bypassed = self.bypassed.saturating_add(other.bypassed);
        self.protected = self.protected.saturating_add(other.protected);
        self.discarded = self.discarded.saturating_add(other.discarded);
    }
}

/// Numbers of answers, by direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answers {
    /// About packets from near to far.
    pub outbound: Answered,
    /// About packets from far to near, also of those that go from near to far as well.
    pub inbound: Answered,
}

impl Answers {
    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        self.outbound.add(&other.outbound);
        self.inbound.add(&other.inbound);
    }

    /// Total of both directions.
    #[must_use]
    pub fn sum(&self) -> Answered {
        let mut sum = self.outbound;
        sum.add(&self.inbound);
        sum
    }
}

/// Listens to questions. While nobody does, packets that nothing is known about are dropped.
#[derive(Debug)]
pub struct Listener {
    marks: Marks,
    queues: Vec<(Kind, Queue)>,
    hidden: Hidden,
}

impl Listener {
    /// Listens in the calling thread's network namespace, to a table of this configuration.
    ///
    /// # Errors
    /// [`LeakProtectionError::Queue`] when the kernel has no queues, or another process listens.
    pub fn open(config: &Config) -> Result<Self, LeakProtectionError> {
        let questions = &config.questions;
        let open = |kind: Kind| {
            let number = questions.queue.saturating_add(kind.place());
            let queue = match kind {
                Kind::Rewritten => Queue::open_whole(number, MOST_WAITING),
                _ => Queue::open(number, SHOWN, MOST_WAITING),
            };
            queue
                .map(|queue| (kind, queue))
                .map_err(|refusal| LeakProtectionError::Queue { number, refusal })
        };
        let queues = Kind::ALL.into_iter().map(open).collect::<Result<_, _>>()?;
        Ok(Self { marks: questions.marks, queues, hidden: Hidden::open(config)? })
    }

    /// Waits until there is a question, at most so long; whether there is one.
    ///
    /// # Errors
    /// Fails if `poll(2)` does.
    pub fn wait(&self, at_most: Duration) -> io::Result<bool> {
        let mut polled: Vec<_> = self
            .queues
            .iter()
            .map(|(_, queue)| PollFd::new(queue.as_fd(), PollFlags::POLLIN))
            .collect();
        let timeout = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::MAX);
        match poll(&mut polled, timeout) {
            Ok(count) => Ok(count > 0),
            Err(nix::Error::EINTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Answers what waits, some of each queue in turn, so that a flood of one kind does not keep back the others.
    ///
    /// # Errors
    /// Fails if a socket does.
    pub fn answer(&mut self, policies: &mut impl Policies) -> io::Result<Answers> {
        let mut answers = Answers::default();
        let Self { marks, queues, hidden } = self;
        for (kind, queue) in queues {
            let Answers { outbound, inbound } = &mut answers;
            let answered = if kind.is_inbound() { inbound } else { outbound };
            queue.answer(|question| {
                if *kind == Kind::Rewritten {
                    let (verdict, answer) = hidden.answer(*marks, question, policies);
                    answered.count(verdict);
                    return answer;
                }
                let noted = kind.noted(question, policies);
                answered.count(match noted {
                    Some(Noted::Bypass | Noted::Here) => Verdict::Bypass,
                    Some(Noted::Protect) => Verdict::Protect,
                    None => Verdict::Discard,
                });
                let is_kept = kind.is_kept(question);
                match noted {
                    Some(noted) => Answer::Accept(marks.answered(question.mark, noted, is_kept)),
                    // It is dropped a little later, by the chain that remembers that.
                    None if is_kept && question.hook == Hook::PreRouting => {
                        let bits = marks.discarded();
                        Answer::Accept(question.mark & !marks.of_packets() | bits.value)
                    }
                    None => Answer::Drop,
                }
            })?;
        }
        Ok(answers)
    }
}

/// Groups of packets that are asked about, one queue each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Packets that this host sends, that came out of a tunnel, or that source NAT changed.
    Sent,
    /// Packets that others send from near to far.
    Leaving,
    /// Packets for this host.
    Arriving,
    /// Packets that others send from far to near, also if they go from near to far as well.
    Forwarded,
    /// Packets that NAT gave the addresses of a protected one.
    Rewritten,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] =
        [Self::Sent, Self::Leaving, Self::Arriving, Self::Forwarded, Self::Rewritten];

    /// Its place among the queues.
    pub(crate) const fn place(self) -> u16 {
        match self {
            Self::Sent => 0,
            Self::Leaving => 1,
            Self::Arriving => 2,
            Self::Forwarded => 3,
            Self::Rewritten => 4,
        }
    }

    /// True if it is about packets that come in in clear.
    pub(crate) const fn is_inbound(self) -> bool {
        matches!(self, Self::Arriving | Self::Forwarded)
    }

    /// The answer; nothing if the packet is dropped.
    fn noted(self, question: &Question<'_>, policies: &mut impl Policies) -> Option<Noted> {
        let came_in = match self {
            Self::Arriving => policies.inbound(question.packet),
            Self::Forwarded => policies.forwarded(question.packet),
            Self::Sent | Self::Leaving | Self::Rewritten => Verdict::Bypass,
        };
        if came_in != Verdict::Bypass {
            return None;
        }
        if self == Self::Arriving {
            return Some(Noted::Here);
        }
        match policies.outbound(question.packet) {
            Verdict::Bypass => Some(Noted::Bypass),
            // Behind routing it is too late, and it goes elsewhere.
            Verdict::Protect => Some(Noted::Protect).filter(|_| question.hook != Hook::PostRouting),
            Verdict::Discard => None,
        }
    }

    /// True if the flow may remember the answer. What came out of a tunnel would let the same packets in in
    /// clear; and of protocols whose ports the kernel may not track, one flow is all packets between two hosts.
    fn is_kept(self, question: &Question<'_>) -> bool {
        let packet = question.packet;
        let is_v4 = packet.first().is_some_and(|first| first >> 4 == 4);
        let protocol = packet.get(if is_v4 { 9 } else { 6 });
        let is_tracked = protocol.is_some_and(|protocol| TRACKED.contains(protocol));
        is_tracked && (self != Self::Sent || question.hook == Hook::Output)
    }
}

/// Marks and queues that chains need to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asking {
    pub(crate) marks: Marks,
    pub(crate) queue: u16,
    pub(crate) by: QueueBy,
    /// That of the policies that answer; none while flows may remember answers of another one with its number, and
    /// nothing is remembered.
    pub(crate) epoch: Option<Epoch>,
}

impl Asking {
    pub(crate) const fn new(questions: &Questions) -> Self {
        let Questions { marks, queue, .. } = *questions;
        Self { marks, queue, by: QueueBy::Expression, epoch: None }
    }

    pub(crate) fn number(&self, kind: Kind) -> u16 {
        self.queue.saturating_add(kind.place())
    }
}
