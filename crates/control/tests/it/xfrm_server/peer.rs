//! The other end of the socket, in the library's place.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use convoy_xfrm::{Datagram, Errno, Flags, Messages, Reply, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recv, send, sendmsg, socket_with,
};

pub(crate) const BIND: u16 = 5;
pub(crate) const MEMBERSHIP: u16 = 6;
pub(crate) const OPTION: u16 = 7;
pub(crate) const STEER: u16 = 8;
pub(crate) const MARK: u16 = 9;

/// A message with numbers behind its header, as `docs/xfrm-socket.md` has it.
pub(crate) fn message(kind: u16, flags: u16, seq: u32, numbers: &[u32]) -> Vec<u8> {
    let len = 16 + 4 * numbers.len() as u32;
    let mut bytes = len.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(seq.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
    bytes
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < Duration::from_secs(30), "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) struct Peer(pub(crate) OwnedFd);

impl Peer {
    pub(crate) fn new(path: &Path) -> Self {
        Self::try_new(path).unwrap()
    }

    pub(crate) fn try_new(path: &Path) -> rustix::io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        // A full backlog is no refusal.
        while let Err(error) = connect(&socket, &SocketAddrUnix::new(path)?) {
            if error != rustix::io::Errno::AGAIN {
                return Err(error);
            }
        }
        Ok(Self(socket))
    }

    /// One with an address.
    pub(crate) fn bound(path: &Path, port: u32, groups: u32) -> Self {
        let peer = Self::new(path);
        peer.tell(BIND, &[1, port, groups, 0]);
        peer
    }

    pub(crate) fn tell(&self, kind: u16, numbers: &[u32]) {
        self.send(&message(kind, 1, 0, numbers));
    }

    pub(crate) fn send(&self, bytes: &[u8]) {
        assert_eq!(send(&self.0, bytes, SendFlags::NOSIGNAL), Ok(bytes.len()));
    }

    /// Sends if there is room.
    pub(crate) fn try_send(&self, bytes: &[u8]) -> bool {
        send(&self.0, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).is_ok()
    }

    pub(crate) fn hand_over(&self, bytes: &[u8], passed: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(passed)));
        let parts = [IoSlice::new(bytes)];
        assert_eq!(sendmsg(&self.0, &parts, &mut ancillary, SendFlags::NOSIGNAL), Ok(bytes.len()));
    }

    /// True if something is there within so many milliseconds.
    pub(crate) fn is_readable(&self, ms: i64) -> bool {
        let mut entries = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
        let patience = Timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 };
        poll(&mut entries, Some(&patience)).unwrap() > 0
    }

    /// The next datagram; empty at the end.
    pub(crate) fn receive(&self) -> Vec<u8> {
        assert!(self.is_readable(30_000), "no answer");
        let mut bytes = vec![0; 1 << 17];
        let (len, _) = recv(&self.0, &mut bytes, RecvFlags::empty()).unwrap_or_default();
        bytes.truncate(len);
        bytes
    }

    /// The next datagram, which holds one message; its number and what it says.
    pub(crate) fn next(&self) -> (u32, Reply) {
        let bytes = self.receive();
        let mut messages = Messages::new(&bytes);
        let message = messages.next().expect("the connection goes on");
        assert!(messages.next().is_none(), "one message in each datagram");
        (message.header().seq, Reply::parse(&message).unwrap())
    }

    /// All that is answered to a request that wants an acknowledgement, or begins a dump.
    pub(crate) fn ask(&self, seq: u32, request: &Request) -> Result<Vec<Reply>, Errno> {
        self.send(request.build(seq, Flags::ACK).as_bytes());
        let mut replies = Vec::new();
        loop {
            match self.next() {
                (at, Reply::Acknowledgement(ack)) => {
                    assert_eq!(at, seq);
                    return ack.refusal.map_or(Ok(replies), |refusal| Err(refusal.errno));
                }
                (at, Reply::Done(None)) => {
                    assert_eq!(at, seq);
                    return Ok(replies);
                }
                (_, reply) => replies.push(reply),
            }
        }
    }

    /// Number of SAs that the server answers.
    pub(crate) fn counts(&self, seq: u32) -> u32 {
        match self.ask(seq, &count()).unwrap().remove(0) {
            Reply::NewSadInfo(info) => info.count,
            other => panic!("{other:?}"),
        }
    }

    /// True if the server ended the connection.
    pub(crate) fn is_over(&self) -> bool {
        self.receive().is_empty()
    }
}

/// Request for the number of SAs.
pub(crate) fn count() -> Request {
    Request::GetSadInfo(Default::default())
}

/// A request with an attribute that it does not take, and so on: whatever has these bytes.
pub(crate) fn as_bytes(request: &Request, seq: u32, flags: Flags) -> Vec<u8> {
    let built: Datagram = request.build(seq, flags);
    built.as_bytes().to_vec()
}
