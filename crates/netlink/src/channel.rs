//! One netlink socket of any protocol: requests one at a time, or many in one datagram.

use std::{io, marker::PhantomData, ops::Range};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkDeserializable,
    NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable, NlasIterator,
};
use netlink_sys::{Socket, SocketAddr};

use crate::Refusal;

/// Length of `struct nlmsghdr`; an error reply quotes the one it answers.
const HEADER_LEN: usize = 16;
/// `NLMSGERR_ATTR_MSG`: the kernel's own sentence about a refusal.
const ATTR_MESSAGE: u16 = 1;
/// Room for a datagram; the kernel makes none of more than half of this.
const ROOM: usize = 64 << 10;
/// A dump that others keep disturbing is repeated this often.
const DUMP_TRIES: usize = 8;

/// A socket on which messages `M` are spoken. It belongs to the network namespace of the thread that
/// opened it, and stays there whichever thread uses it later.
#[derive(Debug)]
pub(crate) struct Channel<M> {
    socket: Socket,
    port: u32,
    sequence: u32,
    datagram: Vec<u8>,
    messages: PhantomData<fn(M) -> M>,
}

impl<M> Channel<M>
where
    M: NetlinkSerializable + NetlinkDeserializable + Clone,
    NetlinkPayload<M>: From<M>,
{
    /// Opens a socket in the calling thread's network namespace.
    pub(crate) fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        let port = socket.bind_auto()?.port_number();
        socket.connect(&SocketAddr::new(0, 0))?;
        // Both only shape error replies; kernels before 4.12 do without.
        let _ = socket.set_cap_ack(true);
        let _ = socket.set_ext_ack(true);
        Ok(Self { socket, port, sequence: 0, datagram: Vec::new(), messages: PhantomData })
    }

    /// The number by which the kernel knows the socket.
    pub(crate) const fn port(&self) -> u32 {
        self.port
    }

    /// Makes one request and waits for the answer; `flags` are added to those of every request.
    pub(crate) fn ask(&mut self, question: M, flags: u16) -> Result<Option<M>, Refusal> {
        self.send(vec![(question, NLM_F_ACK | flags)])?;
        Ok(self.collect(false)?.0.pop())
    }

    /// Asks for all objects of a kind, as one consistent list.
    pub(crate) fn dump(&mut self, question: &M) -> Result<Vec<M>, Refusal> {
        for _ in 0..DUMP_TRIES {
            self.send(vec![(question.clone(), NLM_F_DUMP)])?;
            if let (list, false) = self.collect(true)? {
                return Ok(list);
            }
        }
        Err(unsteady())
    }

    /// The same for lists that are too long to be kept: some objects may be handed over more than once.
    pub(crate) fn dump_each(
        &mut self,
        question: &M,
        mut each: impl FnMut(M) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        for _ in 0..DUMP_TRIES {
            self.send(vec![(question.clone(), NLM_F_DUMP)])?;
            // The rest of the list is read all the same.
            let mut outcome = Ok(());
            let disturbed = self.collect_each(true, |object| {
                if outcome.is_ok() {
                    outcome = each(object);
                }
            })?;
            outcome?;
            if !disturbed {
                return Ok(());
            }
        }
        Err(unsteady())
    }

    /// Sends messages with their flags in one datagram, and tells what became of each: `None` for
    /// those that were not answered. The kernel carries all of them out before this returns.
    ///
    /// Refusals come unasked, and answers in the order of the messages. So an acknowledgement of the last message that
    /// asks for one says that the others before it were carried out, too, unless they were refused.
    pub(crate) fn send_many(
        &mut self,
        messages: Vec<(M, u16)>,
    ) -> Result<Vec<Option<Result<(), Refusal>>>, Refusal> {
        let last = messages.iter().rposition(|(_, flags)| flags & NLM_F_ACK != 0);
        let numbers = self.send(messages)?;
        let mut outcomes = vec![None; numbers.len()];
        self.read_answers(numbers.start, last, &mut outcomes)?;
        Ok(outcomes)
    }

    /// The answers lie in the socket when the call that sent the requests is over: those up to that of the `last` one,
    /// or all that are there.
    fn read_answers(
        &mut self,
        first: u32,
        last: Option<usize>,
        outcomes: &mut [Option<Result<(), Refusal>>],
    ) -> Result<(), Refusal> {
        let is_over = |outcomes: &[Option<_>]| {
            last.and_then(|last| outcomes.get(last)).is_some_and(Option::is_some)
        };
        while !is_over(outcomes) {
            match self.receive(nix::libc::MSG_DONTWAIT) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e.into()),
            };
            for message in messages::<M>(&self.datagram) {
                let message = message?;
                let place = message.header.sequence_number.wrapping_sub(first) as usize;
                let (Some(outcome), Some(answer)) = (outcomes.get_mut(place), verdict(&message))
                else {
                    continue;
                };
                // Of several answers to one request the first refusal is the one that tells.
                if !matches!(outcome, Some(Err(_))) {
                    *outcome = Some(answer);
                }
            }
        }
        Ok(())
    }

    /// Lets datagrams of so many bytes be sent, as far as this process may.
    pub(crate) fn allow_datagrams_of(&self, bytes: usize) {
        // The kernel doubles the value and takes some of it for itself. Without the right to go
        // beyond the limit of the system, sending says what is wrong.
        let _ = nix::sys::socket::setsockopt(&self.socket, SndBufForce, &bytes);
    }

    fn send(&mut self, messages: Vec<(M, u16)>) -> Result<Range<u32>, Refusal> {
        let first = self.sequence.wrapping_add(1);
        let mut bytes = Vec::new();
        for (message, flags) in messages {
            self.sequence = self.sequence.wrapping_add(1);
            let mut header = NetlinkHeader::default();
            header.flags = NLM_F_REQUEST | flags;
            header.sequence_number = self.sequence;
            let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
            message.finalize();
            let begin = bytes.len();
            bytes.resize(begin + message.buffer_len().next_multiple_of(4), 0);
            message.serialize(&mut bytes[begin..]);
        }
        loop {
            match self.socket.send(&bytes, 0) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
                Ok(_) => return Ok(first..self.sequence.wrapping_add(1)),
            }
        }
    }

    /// Reads a datagram. The kernel fills those of a dump as far as the reader has room, and begins
    /// every one with a walk to where the last one ended.
    fn receive(&mut self, flags: i32) -> io::Result<()> {
        self.datagram.clear();
        self.datagram.reserve(ROOM);
        self.socket.recv(&mut self.datagram, flags).map(|_| ())
    }

    /// Reads replies up to the acknowledgement, or up to the end of a dump. The second value says
    /// whether the list changed while it was read.
    fn collect(&mut self, dump: bool) -> Result<(Vec<M>, bool), Refusal> {
        let mut list = Vec::new();
        let disturbed = self.collect_each(dump, |object| list.push(object))?;
        Ok((list, disturbed))
    }

    /// Hands the replies over one by one, and says whether the list changed meanwhile.
    fn collect_each(&mut self, dump: bool, mut each: impl FnMut(M)) -> Result<bool, Refusal> {
        let mut disturbed = false;
        loop {
            match self.receive(0) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            for message in messages::<M>(&self.datagram) {
                let message = message?;
                if message.header.sequence_number != self.sequence {
                    continue;
                }
                disturbed |= message.header.flags & NLM_F_DUMP_INTR != 0;
                match verdict(&message) {
                    Some(Err(refusal)) => return Err(refusal),
                    Some(Ok(())) if !dump => return Ok(disturbed),
                    _ => {}
                }
                match message.payload {
                    NetlinkPayload::Done(_) => return Ok(disturbed),
                    NetlinkPayload::InnerMessage(inner) => each(inner),
                    _ => {}
                }
            }
        }
    }
}

use nix::sys::socket::sockopt::SndBufForce;

fn unsteady() -> Refusal {
    Refusal { errno: nix::libc::EBUSY, said: Some("the list keeps changing".into()) }
}

/// The messages of a datagram.
pub(crate) fn messages<M: NetlinkDeserializable>(
    datagram: &[u8],
) -> impl Iterator<Item = Result<NetlinkMessage<M>, Refusal>> {
    let mut rest = datagram;
    core::iter::from_fn(move || {
        if rest.len() < HEADER_LEN {
            return None;
        }
        match NetlinkMessage::<M>::deserialize(rest) {
            Ok(message) => {
                let length = (message.header.length as usize).next_multiple_of(4);
                rest = rest.get(length.max(HEADER_LEN)..).unwrap_or_default();
                Some(Ok(message))
            }
            Err(error) => {
                rest = &[];
                let error = io::Error::new(io::ErrorKind::InvalidData, error.to_string());
                Some(Err(error.into()))
            }
        }
    })
}

/// Outcome in an acknowledgement or refusal; nothing if the message is neither.
pub(crate) fn verdict<M: NetlinkDeserializable>(
    message: &NetlinkMessage<M>,
) -> Option<Result<(), Refusal>> {
    let NetlinkPayload::Error(reply) = &message.payload else { return None };
    Some(match reply.code {
        None => Ok(()),
        Some(code) => {
            let told = message.header.flags & NLM_F_ACK_TLVS != 0;
            let said = told.then(|| sentence(&reply.header)).flatten();
            Err(Refusal { errno: code.get().saturating_abs(), said })
        }
    })
}

/// The kernel's sentence in an error reply that quotes only the request's header.
fn sentence(quoted: &[u8]) -> Option<String> {
    let attributes = quoted.get(HEADER_LEN..)?;
    NlasIterator::new(attributes).flatten().find(|nla| nla.kind() == ATTR_MESSAGE).map(|nla| {
        let text = nla.value();
        let text = text.strip_suffix(&[0]).unwrap_or(text);
        String::from_utf8_lossy(text).into_owned()
    })
}
