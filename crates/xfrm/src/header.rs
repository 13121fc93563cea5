//! The header of every netlink message, and the messages of a datagram.

use crate::bytes::{Fields, Writer};

/// Bytes of `struct nlmsghdr`.
pub const HEADER_LEN: usize = 16;
/// Longest datagram that is built or worth receiving: 64 KiB.
pub const DATAGRAM_MAX: usize = 1 << 16;

/// Bits of `nlmsg_flags` (`linux/netlink.h`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u16);

impl Flags {
    /// A request to the kernel; it ignores anything else.
    pub const REQUEST: Self = Self(1);
    /// Part of a dump that ends with a `DONE` message.
    pub const MULTI: Self = Self(2);
    /// The sender wants an acknowledgement also of what succeeds.
    pub const ACK: Self = Self(4);
    /// All entries are wanted. To a request, one of the two bits is as good as both.
    pub const DUMP: Self = Self(0x300);
    /// In a request: what is there may be replaced. `NEWAE` insists on it.
    pub const REPLACE: Self = Self(0x100);
    /// In an acknowledgement: only the request's header is quoted.
    pub const CAPPED: Self = Self(0x100);
    /// In an acknowledgement: attributes of the extended acknowledgement follow.
    pub const ACK_TLVS: Self = Self(0x200);

    /// True if any bit of `other` is set.
    #[must_use]
    pub const fn any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Both together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $name:ident = $value:literal, $word:literal;)*) => {
        /// Type of a message: the XFRM values of `nlmsg_type` (`linux/xfrm.h`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Kind {
            $($(#[doc = $doc])* $name = $value,)*
        }

        impl Kind {
            /// All of them, by number.
            pub const ALL: [Self; 25] = [$(Self::$name,)*];

            /// Linux's word for it, without `XFRM_MSG_`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }

            /// The kind with this number.
            #[must_use]
            pub const fn from_number(number: u16) -> Option<Self> {
                match number {
                    $($value => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// An SA: a request to add it, an answer, or an event.
    NewSa = 0x10, "NEWSA";
    /// An SA goes.
    DelSa = 0x11, "DELSA";
    /// A question about one SA, or all.
    GetSa = 0x12, "GETSA";
    /// A policy: a request to add it, an answer, or an event.
    NewPolicy = 0x13, "NEWPOLICY";
    /// A policy goes.
    DelPolicy = 0x14, "DELPOLICY";
    /// A question about one policy, or all.
    GetPolicy = 0x15, "GETPOLICY";
    /// A request for an SPI nobody has.
    AllocSpi = 0x16, "ALLOCSPI";
    /// An event: a packet wants an SA.
    Acquire = 0x17, "ACQUIRE";
    /// An event: an SA reached a limit.
    Expire = 0x18, "EXPIRE";
    /// A policy, whether there is one already or not.
    UpdPolicy = 0x19, "UPDPOLICY";
    /// An SA that is there already gets its keys or new limits.
    UpdSa = 0x1a, "UPDSA";
    /// An event: a policy reached a limit.
    PolExpire = 0x1b, "POLEXPIRE";
    /// All SAs of a protocol go.
    FlushSa = 0x1c, "FLUSHSA";
    /// All policies of a type go.
    FlushPolicy = 0x1d, "FLUSHPOLICY";
    /// Sequence numbers and counters of an SA, given or answered.
    NewAe = 0x1e, "NEWAE";
    /// A question about sequence numbers and counters.
    GetAe = 0x1f, "GETAE";
    /// An event that nothing here raises.
    Report = 0x20, "REPORT";
    /// SAs and policies move to other addresses.
    Migrate = 0x21, "MIGRATE";
    /// The answer to `GetSadInfo`.
    NewSadInfo = 0x22, "NEWSADINFO";
    /// Asks for the number of SAs.
    GetSadInfo = 0x23, "GETSADINFO";
    /// Thresholds of the policies' hash tables, and the answer to `GetSpdInfo`.
    NewSpdInfo = 0x24, "NEWSPDINFO";
    /// Asks for the number of policies.
    GetSpdInfo = 0x25, "GETSPDINFO";
    /// An event: the peer's address or port changed.
    Mapping = 0x26, "MAPPING";
    /// Sets the decision about packets without a policy.
    SetDefault = 0x27, "SETDEFAULT";
    /// The question about it, and the answer.
    GetDefault = 0x28, "GETDEFAULT";
}

impl Kind {
    /// The value of `nlmsg_type`.
    #[must_use]
    #[allow(clippy::as_conversions)] // the representation is u16
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// Bytes of the fixed structure behind the header, that a request must have (`xfrm_msg_min`).
    pub(crate) const fn fixed_len(self) -> usize {
        match self {
            Self::NewSa | Self::UpdSa => 224,
            Self::DelSa | Self::GetSa => 24,
            Self::NewPolicy | Self::UpdPolicy => 168,
            Self::DelPolicy | Self::GetPolicy | Self::Migrate | Self::Mapping => 64,
            Self::AllocSpi | Self::Expire => 232,
            Self::Acquire => 280,
            Self::PolExpire => 176,
            Self::FlushSa => 1,
            Self::FlushPolicy => 0,
            Self::NewAe | Self::GetAe => 48,
            Self::Report => 60,
            Self::NewSadInfo | Self::GetSadInfo | Self::NewSpdInfo | Self::GetSpdInfo => 4,
            Self::SetDefault | Self::GetDefault => 3,
        }
    }
}

/// `struct nlmsghdr`: 16 bytes in host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Bytes of the message with this header, without the padding behind it.
    pub len: u32,
    /// Type of the message: below 0x10 netlink's own, else a [`Kind`].
    pub number: u16,
    /// The flags.
    pub flags: Flags,
    /// Number that pairs an answer with its request; 0 in events.
    pub seq: u32,
    /// The netlink port of the socket that an answer is for.
    pub port: u32,
}

impl Header {
    pub(crate) fn read(bytes: &[u8; HEADER_LEN]) -> Self {
        let mut fields = Fields::new(bytes);
        Self {
            len: fields.u32(),
            number: fields.u16(),
            flags: Flags(fields.u16()),
            seq: fields.u32(),
            port: fields.u32(),
        }
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        to.u32(self.len);
        to.u16(self.number);
        to.u16(self.flags.0);
        to.u32(self.seq);
        to.u32(self.port);
    }
}

/// One message of a datagram: the bytes its header counts, header included.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    header: Header,
    bytes: &'a [u8],
}

impl<'a> Message<'a> {
    /// The header.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// The whole message, header included.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Bytes behind the header.
    pub(crate) fn body(&self) -> &'a [u8] {
        self.bytes.get(HEADER_LEN..).unwrap_or_default()
    }
}

/// Prints the header only: the rest may be keys.
impl std::fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Message").field("header", &self.header).finish_non_exhaustive()
    }
}

/// The messages of a datagram. As in the kernel, a message that does not fit into what is left ends
/// the datagram without an error.
#[derive(Clone)]
pub struct Messages<'a>(&'a [u8]);

impl<'a> Messages<'a> {
    /// The messages within `datagram`.
    #[must_use]
    pub const fn new(datagram: &'a [u8]) -> Self {
        Self(datagram)
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let header = Header::read(self.0.first_chunk()?);
        let len = usize::try_from(header.len).ok()?;
        if len < HEADER_LEN {
            self.0 = &[];
            return None;
        }
        let bytes = self.0.get(..len)?;
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(Message { header, bytes })
    }
}

impl std::fmt::Debug for Messages<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Messages({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(len: u32, total: usize) -> Vec<u8> {
        let mut writer = Writer::new();
        let header = Header { len, number: 0x12, flags: Flags::REQUEST, seq: 7, port: 9 };
        header.write(&mut writer);
        let mut bytes = writer.finish().as_bytes().to_vec();
        bytes.resize(total, 0xab);
        bytes
    }

    #[test]
    fn messages_follow_each_other_at_multiples_of_four() {
        let datagram = [message(18, 20), message(16, 16)].concat();
        let lens: Vec<_> = Messages::new(&datagram).map(|m| m.as_bytes().len()).collect();
        assert_eq!(lens, [18, 16]);
        let first = Messages::new(&datagram).next().unwrap();
        assert_eq!((first.header().seq, first.body()), (7, &[0xab, 0xab][..]));
    }

    #[test]
    fn a_message_without_padding_may_be_the_last() {
        assert_eq!(Messages::new(&message(18, 18)).count(), 1);
    }

    #[test]
    fn lengths_below_the_header_and_beyond_the_datagram_end_it() {
        for len in [0, 15, 17, u32::MAX, u32::MAX - 2] {
            assert_eq!(Messages::new(&message(len, 16)).count(), 0, "{len}");
        }
        assert_eq!(Messages::new(&message(16, 16)[..15]).count(), 0);
    }

    #[test]
    fn kinds_are_their_numbers() {
        for (at, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(kind.number()), at + 0x10);
            assert_eq!(Kind::from_number(kind.number()), Some(kind));
        }
        assert_eq!(Kind::from_number(0x29), None);
    }

    #[test]
    fn a_message_prints_without_its_contents() {
        let bytes = message(20, 20);
        let text = format!("{:?}", Messages::new(&bytes).next().unwrap());
        assert!(!text.contains("171") && text.contains("len: 20"), "{text}");
    }
}
