//! Questions and orders to the kernel's routing socket, one at a time.
//!
//! Messages are `netlink-packet-route`'s; what is here sends them and makes sense of the answers.

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkHeader,
    NetlinkMessage, NetlinkPayload, NlasIterator,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// Length of `struct nlmsghdr`; an error reply quotes the one it answers.
const HEADER_LEN: usize = 16;
/// `NLMSGERR_ATTR_MSG`: the kernel's own sentence about a refusal.
const ATTR_MESSAGE: u16 = 1;
/// A dump that others keep disturbing is repeated this often.
const DUMP_TRIES: usize = 8;

/// Why a request was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}", io::Error::from_raw_os_error(*.errno), .said.as_deref().map_or(String::new(), |s| format!(" ({s})")))]
pub struct Refusal {
    /// The error number.
    pub errno: i32,
    /// What the kernel added in words, if anything.
    pub said: Option<String>,
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(errno) => Self { errno, said: None },
            None => Self { errno: nix::libc::EIO, said: Some(error.to_string()) },
        }
    }
}

/// A routing socket. It belongs to the network namespace of the thread that opened it, and stays
/// there whichever thread uses it later.
#[derive(Debug)]
pub struct Rtnl {
    socket: Socket,
    sequence: u32,
}

impl Rtnl {
    /// Opens a socket in the calling thread's network namespace.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Both only shape error replies; kernels before 4.12 do without.
        let _ = socket.set_cap_ack(true);
        let _ = socket.set_ext_ack(true);
        Ok(Self { socket, sequence: 0 })
    }

    /// Orders a change and waits until the kernel has made or refused it. `flags` are added to
    /// those of every request.
    pub fn change(&mut self, order: RouteNetlinkMessage, flags: u16) -> Result<(), Refusal> {
        self.send(order, NLM_F_REQUEST | NLM_F_ACK | flags)?;
        self.collect(false).map(|_| ())
    }

    /// Asks for one object.
    pub fn query(
        &mut self,
        question: RouteNetlinkMessage,
    ) -> Result<Option<RouteNetlinkMessage>, Refusal> {
        self.send(question, NLM_F_REQUEST | NLM_F_ACK)?;
        Ok(self.collect(false)?.0.pop())
    }

    /// Asks for all objects of a kind, as one consistent list.
    pub fn dump(
        &mut self,
        question: &RouteNetlinkMessage,
    ) -> Result<Vec<RouteNetlinkMessage>, Refusal> {
        for _ in 0..DUMP_TRIES {
            self.send(question.clone(), NLM_F_REQUEST | NLM_F_DUMP)?;
            if let (list, false) = self.collect(true)? {
                return Ok(list);
            }
        }
        Err(Refusal { errno: nix::libc::EBUSY, said: Some("the list keeps changing".into()) })
    }

    fn send(&mut self, message: RouteNetlinkMessage, flags: u16) -> Result<(), Refusal> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        loop {
            match self.socket.send(&bytes, 0) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => return other.map(|_| ()).map_err(Refusal::from),
            }
        }
    }

    /// Reads replies up to the acknowledgement, or up to the end of a dump. The second value says
    /// whether the list changed while it was read.
    fn collect(&mut self, dump: bool) -> Result<(Vec<RouteNetlinkMessage>, bool), Refusal> {
        let mut list = Vec::new();
        let mut disturbed = false;
        loop {
            let datagram = match self.socket.recv_from_full() {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => other?.0,
            };
            let mut rest = datagram.as_slice();
            while rest.len() >= HEADER_LEN {
                let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                    .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))?;
                let length = (message.header.length as usize).next_multiple_of(4);
                rest = rest.get(length.max(HEADER_LEN)..).unwrap_or_default();
                if message.header.sequence_number != self.sequence {
                    continue;
                }
                disturbed |= message.header.flags & NLM_F_DUMP_INTR != 0;
                match message.payload {
                    NetlinkPayload::Error(reply) => match reply.code {
                        None if dump => {}
                        None => return Ok((list, disturbed)),
                        Some(code) => {
                            let told = message.header.flags & NLM_F_ACK_TLVS != 0;
                            let said = told.then(|| sentence(&reply.header)).flatten();
                            return Err(Refusal { errno: code.get().saturating_abs(), said });
                        }
                    },
                    NetlinkPayload::Done(_) => return Ok((list, disturbed)),
                    NetlinkPayload::InnerMessage(inner) => list.push(inner),
                    _ => {}
                }
            }
        }
    }
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
