//! Attributes: their numbers, what a kernel asks of each, and the table a message's end up in.

use crate::bytes::Writer;
use crate::header::{Flags, HEADER_LEN, Kind, Message};
use crate::refusal::{Errno, Refusal};

/// Bits of `nla_type` that are the number; the others are `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
const NUMBER_MASK: u16 = 0x3fff;
const NESTED: u16 = 0x8000;

/// Check of an attribute that a kernel makes before it looks into it (`struct nla_policy`).
#[derive(Clone, Copy)]
enum Rule {
    /// At least so many bytes.
    Bytes(usize),
    U8,
    U16,
    U32,
    U64,
    /// No bytes: being there says it all.
    Flag,
    /// One byte, 1 or 2.
    SaDirection,
}

impl Rule {
    const fn min(self) -> usize {
        match self {
            Self::Bytes(len) => len,
            Self::U8 | Self::SaDirection => 1,
            Self::U16 => 2,
            Self::U32 => 4,
            Self::U64 => 8,
            Self::Flag => 0,
        }
    }
}

/// The numbers with their rules, and what `number_name` says.
macro_rules! attributes {
    ($($name:ident = $number:literal, $rule:expr;)*) => {
        $(#[doc = concat!("`XFRMA_", stringify!($name), "`")]
        #[allow(dead_code)] // some are only known by name
        pub(crate) const $name: u16 = $number;)*

        fn rule(number: u16) -> Option<Rule> {
            match number {
                $($number => Some($rule),)*
                _ => None,
            }
        }

        /// Linux's word for an attribute with this number, without `XFRMA_`: the text for one that
        /// a message should not have.
        #[must_use]
        pub const fn attribute_name(number: u16) -> Option<&'static str> {
            match number {
                $($number => Some(stringify!($name)),)*
                _ => None,
            }
        }
    };
}

attributes! {
    ALG_AUTH = 1, Rule::Bytes(68);
    ALG_CRYPT = 2, Rule::Bytes(68);
    ALG_COMP = 3, Rule::Bytes(68);
    ENCAP = 4, Rule::Bytes(24);
    TMPL = 5, Rule::Bytes(64);
    SA = 6, Rule::Bytes(224);
    POLICY = 7, Rule::Bytes(168);
    SEC_CTX = 8, Rule::Bytes(8);
    LTIME_VAL = 9, Rule::Bytes(32);
    REPLAY_VAL = 10, Rule::Bytes(12);
    REPLAY_THRESH = 11, Rule::U32;
    ETIMER_THRESH = 12, Rule::U32;
    SRCADDR = 13, Rule::Bytes(16);
    COADDR = 14, Rule::Bytes(16);
    LASTUSED = 15, Rule::U64;
    POLICY_TYPE = 16, Rule::Bytes(6);
    MIGRATE = 17, Rule::Bytes(76);
    ALG_AEAD = 18, Rule::Bytes(72);
    KMADDRESS = 19, Rule::Bytes(40);
    ALG_AUTH_TRUNC = 20, Rule::Bytes(72);
    MARK = 21, Rule::Bytes(8);
    TFCPAD = 22, Rule::U32;
    REPLAY_ESN_VAL = 23, Rule::Bytes(24);
    SA_EXTRA_FLAGS = 24, Rule::U32;
    PROTO = 25, Rule::U8;
    ADDRESS_FILTER = 26, Rule::Bytes(36);
    PAD = 27, Rule::Bytes(0);
    OFFLOAD_DEV = 28, Rule::Bytes(8);
    SET_MARK = 29, Rule::U32;
    SET_MARK_MASK = 30, Rule::U32;
    IF_ID = 31, Rule::U32;
    MTIMER_THRESH = 32, Rule::U32;
    SA_DIR = 33, Rule::SaDirection;
    NAT_KEEPALIVE_INTERVAL = 34, Rule::U32;
    SA_PCPU = 35, Rule::U32;
    IPTFS_DROP_TIME = 36, Rule::U32;
    IPTFS_REORDER_WINDOW = 37, Rule::U16;
    IPTFS_DONT_FRAG = 38, Rule::Flag;
    IPTFS_INIT_DELAY = 39, Rule::U32;
    IPTFS_MAX_QSIZE = 40, Rule::U32;
    IPTFS_PKT_SIZE = 41, Rule::U32;
}

/// The highest number known.
const MAX: u16 = IPTFS_PKT_SIZE;
/// From this number on, lengths must be exact and flags of `nla_type` right.
const STRICT_FROM: u16 = SA_DIR;

/// Attributes of `NEWSPDINFO`, which count for themselves.
pub(crate) mod spd {
    pub(crate) const INFO: u16 = 1;
    pub(crate) const HINFO: u16 = 2;
    pub(crate) const IPV4_HTHRESH: u16 = 3;
    pub(crate) const IPV6_HTHRESH: u16 = 4;
}

/// Attributes of `NEWSADINFO`, which count for themselves.
pub(crate) mod sad {
    pub(crate) const CNT: u16 = 1;
    pub(crate) const HINFO: u16 = 2;
}

/// Whose numbers a message's attributes are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    Xfrm,
    Spd,
    Sad,
}

impl Space {
    const fn max(self) -> u16 {
        match self {
            Self::Xfrm => MAX,
            Self::Spd => spd::IPV6_HTHRESH,
            Self::Sad => sad::HINFO,
        }
    }

    fn rule(self, number: u16) -> Option<Rule> {
        match (self, number) {
            (Self::Xfrm, _) => rule(number),
            (Self::Spd, spd::IPV4_HTHRESH | spd::IPV6_HTHRESH) => Some(Rule::Bytes(2)),
            // Only kernels send the others.
            _ => None,
        }
    }
}

/// Attributes one behind the other, as types and payloads. What is too short for one ends them without an error, and is left.
struct Sequence<'a>(&'a [u8]);

impl<'a> Iterator for Sequence<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (&[l0, l1, n0, n1], _) = self.0.split_first_chunk::<4>()?;
        let len = usize::from(u16::from_ne_bytes([l0, l1]));
        let payload = self.0.get(4..len)?;
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([n0, n1]), payload))
    }
}

/// Number of bytes behind the last attribute of a request, which are none themselves. A kernel remarks on them, and ignores
/// them; so does [`Request::parse`](crate::Request::parse).
#[must_use]
pub fn leftover(request: &Message<'_>) -> usize {
    let header = request.header();
    let Some(kind) = Kind::from_number(header.number) else { return 0 };
    if !header.flags.any(Flags::REQUEST) {
        return 0;
    }
    let fixed = match kind {
        // Of this one a kernel reads no attributes.
        Kind::GetPolicy if header.flags.any(Flags::DUMP) => return 0,
        Kind::GetSa if header.flags.any(Flags::DUMP) => 0,
        Kind::NewSadInfo => 0,
        kind => kind.fixed_len(),
    };
    let attributes = request.body().get(fixed.next_multiple_of(4)..).unwrap_or_default();
    let mut sequence = Sequence(attributes);
    sequence.by_ref().for_each(drop);
    sequence.0.len()
}

/// The attributes of one message, by number; of several with one number the last.
pub(crate) struct Attributes<'a> {
    space: Space,
    known: [Option<&'a [u8]>; 42],
    /// Numbers above the highest one known.
    foreign: Vec<u16>,
    /// Number of bytes behind the last attribute.
    leftover: usize,
}

const _: () = assert!(MAX == 41);

impl<'a> Attributes<'a> {
    /// Splits what follows the header into its fixed structure and its attributes, and checks the
    /// attributes as `nla_parse` does.
    ///
    /// # Errors
    /// The kernel's: `EINVAL` or `ERANGE`, with its words and the offset of the attribute.
    pub(crate) fn split(
        message: &Message<'a>,
        kind: Kind,
        space: Space,
    ) -> Result<(&'a [u8], Self), Refusal> {
        Self::split_at(message, kind.fixed_len(), space)
    }

    /// The same with a fixed structure of `fixed` bytes.
    pub(crate) fn split_at(
        message: &Message<'a>,
        fixed: usize,
        space: Space,
    ) -> Result<(&'a [u8], Self), Refusal> {
        let body = message.body();
        let head = body.get(..fixed).ok_or_else(|| Refusal::invalid("Invalid header length"))?;
        let start = fixed.next_multiple_of(4);
        let rest = body.get(start..).unwrap_or_default();
        Ok((head, Self::parse(rest, HEADER_LEN.saturating_add(start), space)?))
    }

    fn parse(attributes: &'a [u8], mut offset: usize, space: Space) -> Result<Self, Refusal> {
        let mut table = Self { space, known: [None; 42], foreign: Vec::new(), leftover: 0 };
        let mut sequence = Sequence(attributes);
        for (raw, payload) in &mut sequence {
            let number = raw & NUMBER_MASK;
            if number == 0 || number > space.max() {
                table.foreign.push(number);
            } else {
                check(space, raw, payload)
                    .map_err(|(errno, text)| Refusal::at(errno, text, offset))?;
                if let Some(slot) = table.known.get_mut(usize::from(number)) {
                    *slot = Some(payload);
                }
            }
            offset = offset.saturating_add(payload.len().saturating_add(4).next_multiple_of(4));
        }
        table.leftover = sequence.0.len();
        Ok(table)
    }

    /// Kernel's text for a refusal that has no words of its own: it remarks on bytes that are left
    /// over, and does not refuse them.
    pub(crate) fn remark(&self) -> &'static str {
        if self.leftover > 0 { "bytes leftover after parsing attributes" } else { "" }
    }

    pub(crate) fn get(&self, number: u16) -> Option<&'a [u8]> {
        self.known.get(usize::from(number)).copied()?
    }

    pub(crate) fn has(&self, number: u16) -> bool {
        self.get(number).is_some()
    }

    pub(crate) fn any(&self, numbers: &[u16]) -> bool {
        numbers.iter().any(|number| self.has(*number))
    }

    /// Looks into an attribute and counts it as one that this message may have.
    pub(crate) fn take(&mut self, number: u16) -> Option<&'a [u8]> {
        self.known.get_mut(usize::from(number))?.take()
    }

    pub(crate) fn take_u32(&mut self, number: u16) -> Option<u32> {
        self.take(number)?.first_chunk().copied().map(u32::from_ne_bytes)
    }

    /// Numbers of the attributes that nobody took.
    pub(crate) fn others(mut self) -> Others {
        let mut numbers = self.foreign;
        if self.space == Space::Xfrm {
            // Padding says nothing.
            if let Some(pad) = self.known.get_mut(usize::from(PAD)) {
                *pad = None;
            }
        }
        for (number, slot) in (0_u16..).zip(&self.known) {
            if slot.is_some() {
                numbers.push(number);
            }
        }
        numbers.sort_unstable();
        numbers.dedup();
        Others(numbers)
    }
}

/// Checks one attribute as `validate_nla` does.
fn check(space: Space, raw: u16, payload: &[u8]) -> Result<(), (Errno, &'static str)> {
    let number = raw & NUMBER_MASK;
    let Some(rule) = space.rule(number) else { return Ok(()) };
    let strict = space == Space::Xfrm && number >= STRICT_FROM;
    if strict && !matches!(rule, Rule::Bytes(_) | Rule::Flag) && payload.len() != rule.min() {
        return Err((Errno::EINVAL, "invalid attribute length"));
    }
    if strict && raw & NESTED != 0 {
        return Err((Errno::EINVAL, "NLA_F_NESTED not expected"));
    }
    let too_long = matches!(rule, Rule::Flag) && !payload.is_empty();
    if payload.len() < rule.min() || too_long {
        return Err((Errno::ERANGE, "Attribute failed policy validation"));
    }
    if matches!(rule, Rule::SaDirection) && !matches!(payload, [1 | 2]) {
        return Err((Errno::ERANGE, "integer out of range"));
    }
    Ok(())
}

/// Numbers of attributes that a message had and that its type has no place for: those this crate does
/// not know, and those that a kernel does not look at in such a message. Ascending, each once.
///
/// A kernel ignores them. Who must not ignore what narrows or widens protection refuses a message
/// with any; [`attribute_name`] says what Linux calls them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Others(Vec<u16>);

impl Others {
    /// The numbers.
    #[must_use]
    pub fn numbers(&self) -> &[u16] {
        &self.0
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes them as attributes of the fewest bytes they may have, mostly zero.
    pub(crate) fn write(&self, to: &mut Writer) {
        for number in &self.0 {
            let rule = rule(*number);
            to.attribute(*number, |to| match rule {
                Some(Rule::SaDirection) => to.u8(1),
                rule => (0..rule.map_or(0, Rule::min)).for_each(|_| to.u8(0)),
            });
        }
    }

    /// Writes them as attributes without bytes, for numbers that are not of `XFRMA_*`.
    pub(crate) fn write_bare(&self, to: &mut Writer) {
        self.0.iter().for_each(|number| to.attribute(*number, |_| {}));
    }
}

impl Writer {
    /// An attribute whose payload `fill` writes.
    pub(crate) fn attribute(&mut self, number: u16, fill: impl FnOnce(&mut Self)) {
        let at = self.len();
        self.u16(0);
        self.u16(number);
        fill(self);
        // What is written here is far shorter than an attribute may be.
        let len = u16::try_from(self.len().saturating_sub(at)).unwrap_or(u16::MAX);
        self.patch(at, &len.to_ne_bytes());
        self.align();
    }

    pub(crate) fn attribute_u32(&mut self, number: u16, value: u32) {
        self.attribute(number, |to| to.u32(value));
    }

    /// An attribute for a value that is there.
    pub(crate) fn attribute_if(&mut self, number: u16, value: Option<u32>) {
        if let Some(value) = value {
            self.attribute_u32(number, value);
        }
    }

    /// An attribute for a number where 0 means that there is none.
    pub(crate) fn attribute_unless_zero(&mut self, number: u16, value: u32) {
        self.attribute_if(number, (value != 0).then_some(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(number: u16, payload: &[u8]) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.attribute(number, |to| to.bytes(payload));
        writer.finish().as_bytes().to_vec()
    }

    fn refused(bytes: &[u8]) -> (Errno, String, Option<u32>) {
        let refusal = Attributes::parse(bytes, 40, Space::Xfrm).err().unwrap();
        (refusal.errno, refusal.text.into_owned(), refusal.offset)
    }

    #[test]
    fn the_last_of_several_counts_and_unknown_ones_keep_their_numbers() {
        let bytes = [
            attribute(IF_ID, &[1, 0, 0, 0]),
            attribute(300, b"abc"),
            attribute(IF_ID, &[2, 0, 0, 0, 9]),
            attribute(PAD, &[]),
            attribute(42, &[]),
            attribute(300, &[]),
            attribute(TMPL, &[0; 64]),
        ]
        .concat();
        let mut table = Attributes::parse(&bytes, 16, Space::Xfrm).unwrap();
        assert_eq!(table.take_u32(IF_ID), Some(2));
        assert_eq!(table.others().numbers(), [TMPL, 42, 300]);
    }

    #[test]
    fn short_attributes_are_out_of_range_where_they_begin() {
        let bytes = [attribute(PAD, &[]), attribute(MARK, &[0; 7])].concat();
        let text = "Attribute failed policy validation".to_owned();
        assert_eq!(refused(&bytes), (Errno::ERANGE, text, Some(44)));
    }

    #[test]
    fn newer_attributes_have_exact_lengths() {
        let (errno, text, _) = refused(&attribute(SA_DIR, &[1, 0]));
        assert_eq!((errno, text.as_str()), (Errno::EINVAL, "invalid attribute length"));
        let (errno, text, _) = refused(&attribute(SA_DIR, &[3]));
        assert_eq!((errno, text.as_str()), (Errno::ERANGE, "integer out of range"));
        let (errno, text, _) = refused(&attribute(SA_PCPU | NESTED, &[0; 4]));
        assert_eq!((errno, text.as_str()), (Errno::EINVAL, "NLA_F_NESTED not expected"));
        let (errno, _, _) = refused(&attribute(IPTFS_DONT_FRAG, &[0]));
        assert_eq!(errno, Errno::ERANGE);
    }

    #[test]
    fn a_torn_end_is_left_over() {
        for end in [&[3, 0, 1, 0][..], &[5, 0, 1, 0], &[4, 0, 1], &[0; 40], &[0xff; 9]] {
            let bytes = [&attribute(IF_ID, &[1, 0, 0, 0]), end].concat();
            let table = Attributes::parse(&bytes, 0, Space::Xfrm).unwrap();
            assert!(table.has(IF_ID) && table.foreign.is_empty(), "{end:?}");
            assert_eq!(table.leftover, end.len(), "{end:?}");
        }
    }

    #[test]
    fn names_are_those_of_linux() {
        assert_eq!(attribute_name(33), Some("SA_DIR"));
        assert_eq!(attribute_name(42), None);
    }
}
