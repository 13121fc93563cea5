//! Listens to what the packet filter asks.

use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

use convoy_netlink::queue::{Answer, Hook, Question, Queue};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::{
    answers::{Answers, Policies},
    config::Config,
    error::LeakProtectionError,
    hidden::Hidden,
    marks::{Marks, Noted, Verdict},
    questions::Kind,
};

/// Bytes of a packet that are shown: IPv6 extension headers beyond leave it without ports.
const SHOWN: u32 = 256;
/// Packets that wait for an answer in one queue. More are dropped.
const MOST_WAITING: u32 = 4096;

/// TCP, UDP, ICMP and ICMPv6: what every kernel tells flows apart of.
const TRACKED: [u8; 4] = [6, 17, 1, 58];

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
                let noted = noted(*kind, question, policies);
                answered.count(match noted {
                    Some(Noted::Bypass | Noted::Here) => Verdict::Bypass,
                    Some(Noted::Protect) => Verdict::Protect,
                    None => Verdict::Discard,
                });
                let is_kept = is_kept(*kind, question);
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

/// The answer; nothing if the packet is dropped.
fn noted(kind: Kind, question: &Question<'_>, policies: &mut impl Policies) -> Option<Noted> {
    let came_in = match kind {
        Kind::Arriving => policies.inbound(question.packet),
        Kind::Forwarded => policies.forwarded(question.packet),
        Kind::Sent | Kind::Leaving | Kind::Rewritten => Verdict::Bypass,
    };
    if came_in != Verdict::Bypass {
        return None;
    }
    if kind == Kind::Arriving {
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
fn is_kept(kind: Kind, question: &Question<'_>) -> bool {
    let packet = question.packet;
    let is_v4 = packet.first().is_some_and(|first| first >> 4 == 4);
    let protocol = packet.get(if is_v4 { 9 } else { 6 });
    let is_tracked = protocol.is_some_and(|protocol| TRACKED.contains(protocol));
    is_tracked && (kind != Kind::Sent || question.hook == Hook::Output)
}
