//! Messages on Convoy's XFRM socket, beside the XFRM messages themselves.
//!
//! The socket is `AF_UNIX`, `SOCK_SEQPACKET`. A connection stands for one netlink socket, a datagram
//! for one of netlink, unchanged. Messages of the types here are the library's own: netlink reserves
//! all below 0x10 and uses 1 to 4. Each fills a datagram of its own. Integers are in host byte order.

/// Path of the socket if [`SOCKET_VARIABLE`] does not name one.
pub const DEFAULT_SOCKET: &str = "/run/convoy/xfrm.sock";
/// The environment variable that names the socket.
pub const SOCKET_VARIABLE: &str = "CONVOY_XFRM_SOCKET";
/// The version of this protocol, in [`BIND`].
pub const VERSION: u32 = 1;

/// `NLMSG_ERROR`: the answer to [`STEER`], and to requests.
pub const ERROR: u16 = 2;
/// `NLMSG_DONE`: the end of a dump.
pub const DONE: u16 = 3;
/// `NLMSG_OVERRUN`, from the server: events were lost. The library makes `ENOBUFS` of it.
pub const OVERRUN: u16 = 4;

/// The address of the socket: version, port, groups as a bit mask, and [`RESUMED`] or 0.
pub const BIND: u16 = 5;
/// A multicast group is joined or left: its number, and 1 or 0.
pub const MEMBERSHIP: u16 = 6;
/// An option of `SOL_NETLINK`: its number and value.
pub const OPTION: u16 = 7;
/// A UDP socket, in `SCM_RIGHTS`, whose ESP is Convoy's: the value of `UDP_ENCAP`. The server answers
/// with [`ERROR`], and the library closes the connection.
pub const STEER: u16 = 8;

/// Asks for the mark that exempts sockets from policies, without numbers, and with `NLM_F_ACK`. The server answers with the
/// same type, and the mark and its mask as numbers; one that does not know this acknowledges it.
pub const MARK: u16 = 9;

/// In [`BIND`]: the socket was connected before, to a server that went. If it is in any group, the
/// server answers with [`OVERRUN`].
pub const RESUMED: u32 = 1;

/// The first type of XFRM; those below are netlink's and the library's.
pub const FIRST_XFRM_TYPE: u16 = 0x10;

/// Bytes of `struct nlmsghdr`.
pub const HEADER_LEN: usize = 16;
/// Bytes of the longest message made here.
pub const CONTROL_MAX: usize = HEADER_LEN + 16;
/// Bytes of an [`ERROR`] that quotes a header.
pub const ERROR_LEN: usize = HEADER_LEN + 4 + HEADER_LEN;

const FLAG_REQUEST: u16 = 1;
const FLAG_MULTI: u16 = 2;
const FLAG_ACK: u16 = 4;

/// A message made here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    bytes: [u8; CONTROL_MAX],
    len: usize,
}

impl Control {
    /// A message of up to four numbers.
    #[must_use]
    pub fn new(kind: u16, port: u32, numbers: &[u32]) -> Self {
        Self::flagged(FLAG_REQUEST, kind, port, numbers)
    }

    /// A message without numbers that also a server answers which does not know its type.
    #[must_use]
    pub fn question(kind: u16) -> Self {
        Self::flagged(FLAG_REQUEST | FLAG_ACK, kind, 0, &[])
    }

    fn flagged(flags: u16, kind: u16, port: u32, numbers: &[u32]) -> Self {
        let len = CONTROL_MAX.min(HEADER_LEN + 4 * numbers.len());
        let mut bytes = [0; CONTROL_MAX];
        write_header(&mut bytes, Header { len, kind, flags, seq: 0, port });
        for (room, number) in bytes[HEADER_LEN..].chunks_exact_mut(4).zip(numbers) {
            room.copy_from_slice(&number.to_ne_bytes());
        }
        Self { bytes, len }
    }

    /// The datagram.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// `struct nlmsghdr`, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the message.
    pub len: usize,
    /// Its type.
    pub kind: u16,
    /// Its flags.
    pub flags: u16,
    /// Sequence number, which pairs answers with requests.
    pub seq: u32,
    /// The port of the sender, or of the socket it is for.
    pub port: u32,
}

impl Header {
    /// True if a kernel that carries it out answers it.
    #[must_use]
    pub fn wants_answer(&self) -> bool {
        // ALLOCSPI and the questions are answered also without the flag.
        let question = matches!(self.kind, 0x12 | 0x15 | 0x16 | 0x1f | 0x23 | 0x25 | 0x28);
        self.flags & FLAG_REQUEST != 0 && (self.flags & FLAG_ACK != 0 || question)
    }

    /// True if nothing more follows for the request it answers.
    #[must_use]
    pub fn ends_answer(&self) -> bool {
        matches!(self.kind, ERROR | DONE) || self.flags & FLAG_MULTI == 0
    }
}

/// The header at the beginning of `bytes`.
#[must_use]
pub fn header(bytes: &[u8]) -> Option<Header> {
    let word = |at: usize| bytes.get(at..at + 4)?.first_chunk().copied().map(u32::from_ne_bytes);
    let half = |at: usize| bytes.get(at..at + 2)?.first_chunk().copied().map(u16::from_ne_bytes);
    Some(Header {
        len: usize::try_from(word(0)?).ok()?,
        kind: half(4)?,
        flags: half(6)?,
        seq: word(8)?,
        port: word(12)?,
    })
}

/// The headers of the messages in a datagram, as far as they are sound.
pub fn headers(mut bytes: &[u8]) -> impl Iterator<Item = Header> + '_ {
    std::iter::from_fn(move || {
        let header = header(bytes).filter(|header| header.len >= HEADER_LEN)?;
        bytes = bytes.get(header.len.next_multiple_of(4)..).unwrap_or_default();
        Some(header)
    })
}

/// The answer to a request whose server went: `NLMSG_ERROR` for the socket at `port`.
#[must_use]
pub fn refusal(seq: u32, port: u32, errno: i32) -> [u8; ERROR_LEN] {
    let mut bytes = [0; ERROR_LEN];
    write_header(&mut bytes, Header { len: ERROR_LEN, kind: ERROR, flags: 0, seq, port });
    bytes[HEADER_LEN..HEADER_LEN + 4].copy_from_slice(&(-errno).to_ne_bytes());
    let quoted = Header { len: HEADER_LEN, kind: 0, flags: FLAG_REQUEST, seq, port };
    write_header(&mut bytes[HEADER_LEN + 4..], quoted);
    bytes
}

/// The error number in an [`ERROR`], 0 for success.
#[must_use]
pub fn errno_of(message: &[u8]) -> Option<i32> {
    header(message).filter(|header| header.kind == ERROR)?;
    let number = message.get(HEADER_LEN..)?.first_chunk().copied()?;
    Some(i32::from_ne_bytes(number).saturating_neg())
}

/// The mark and its mask in an answer to [`MARK`].
#[must_use]
pub fn mark_of(message: &[u8]) -> Option<[u32; 2]> {
    header(message).filter(|header| header.kind == MARK)?;
    let (value, rest) = message.get(HEADER_LEN..)?.split_first_chunk()?;
    let [value, mask] = [*value, *rest.first_chunk()?].map(u32::from_ne_bytes);
    // One without bits would be that of every packet.
    (value != 0 && value & !mask == 0).then_some([value, mask])
}

fn write_header(to: &mut [u8], header: Header) {
    let len = u32::try_from(header.len).unwrap_or_default();
    to[..4].copy_from_slice(&len.to_ne_bytes());
    to[4..6].copy_from_slice(&header.kind.to_ne_bytes());
    to[6..8].copy_from_slice(&header.flags.to_ne_bytes());
    to[8..12].copy_from_slice(&header.seq.to_ne_bytes());
    to[12..16].copy_from_slice(&header.port.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoy_xfrm::{Flags, Messages, Reply, Request, SaDump};

    #[test]
    fn a_refusal_is_read_by_the_codec() {
        let bytes = refusal(7, 99, libc::ECONNREFUSED);
        let message = Messages::new(&bytes).next().unwrap();
        assert_eq!((message.header().seq, message.header().port), (7, 99));
        let Ok(Reply::Acknowledgement(read)) = Reply::parse(&message) else { panic!() };
        assert_eq!(read.refusal.map(|refusal| refusal.errno.0), Some(libc::ECONNREFUSED));
    }

    #[test]
    fn a_mark_has_bits_within_its_mask() {
        let said = |kind, numbers: &[u32]| mark_of(Control::new(kind, 7, numbers).as_bytes());
        assert_eq!(said(MARK, &[0x0500, 0x0f00]), Some([0x0500, 0x0f00]));
        for numbers in [&[][..], &[1], &[0, 0], &[0, 0xff], &[0x100, 0xff]] {
            assert_eq!(said(MARK, numbers), None, "{numbers:?}");
        }
        assert_eq!(said(ERROR, &[1, 1]), None);
    }

    #[test]
    fn headers_of_requests_are_found_and_torn_ones_end_the_walk() {
        let one = Request::DumpSa(SaDump::default()).build(1, Flags::default());
        let two = Request::DumpSa(SaDump::default()).build(2, Flags::default());
        let mut both = [one.as_bytes(), two.as_bytes()].concat();
        let seqs: Vec<_> = headers(&both).map(|header| header.seq).collect();
        assert_eq!(seqs, [1, 2]);
        assert!(headers(&both).all(|header| header.wants_answer()));
        both.truncate(one.as_bytes().len() + 15);
        assert_eq!(headers(&both).count(), 1);
        both[0] = 3;
        assert_eq!(headers(&both).count(), 0);
    }

    #[test]
    fn controls_are_netlink_messages_that_xfrm_passes_over() {
        let control = Control::new(BIND, 12, &[VERSION, 12, 3, RESUMED]);
        let message = Messages::new(control.as_bytes()).next().unwrap();
        assert_eq!(message.as_bytes().len(), 32);
        assert!(matches!(Request::parse(&message), Ok(None)));
    }
}
