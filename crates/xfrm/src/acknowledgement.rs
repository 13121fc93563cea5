//! Netlink's own answers: errors, which are also acknowledgements, and the end of a dump.

use std::borrow::Cow;

use crate::bytes::{Datagram, Writer};
use crate::header::{Flags, HEADER_LEN, Header, Message};
use crate::refusal::{Errno, Refusal};

/// `NLMSG_ERROR`.
pub(crate) const ERROR: u16 = 2;
/// `NLMSG_DONE`.
pub(crate) const DONE: u16 = 3;
const ATTR_MSG: u16 = 1;
const ATTR_OFFS: u16 = 2;
/// The longest sentence that is sent, in bytes.
const TEXT_MAX: usize = 1024;

/// Options that a socket set by `setsockopt(SOL_NETLINK)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckOptions {
    /// `NETLINK_CAP_ACK`: refusals quote only the request's header. Otherwise they quote all of it,
    /// keys included.
    pub capped: bool,
    /// `NETLINK_EXT_ACK`: words and offset come along.
    pub extended: bool,
}

/// The answer to a request that has no other: `NLMSG_ERROR`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// Error that the kernel answers with; `None` when the request was done.
    pub refusal: Option<Refusal>,
    /// The header of the request.
    pub request: Header,
}

impl Acknowledgement {
    /// The message that says whether a request was carried out, for the socket at `port`.
    #[must_use]
    pub fn build(
        request: &Message<'_>,
        outcome: Result<(), &Refusal>,
        port: u32,
        options: AckOptions,
    ) -> Datagram {
        let quote_all = outcome.is_err() && !options.capped;
        let mut flags = if quote_all { Flags(0) } else { Flags::CAPPED };
        let refusal = outcome.err().filter(|_| options.extended);
        let text = refusal.map_or("", |refusal| shortened(&refusal.text));
        let offset = refusal.and_then(|refusal| refusal.offset);
        if !text.is_empty() || offset.is_some() {
            flags = flags.with(Flags::ACK_TLVS);
        }
        let quoted = request.as_bytes();
        let quoted = if quote_all { quoted } else { quoted.get(..HEADER_LEN).unwrap_or(quoted) };
        message(ERROR, flags, request.header().seq, port, |to| {
            to.i32(outcome.err().map_or(0, |refusal| refusal.errno.0).saturating_neg());
            to.bytes(quoted);
            to.align();
            write_words(to, text, offset);
        })
    }

    pub(crate) fn read(message: &Message<'_>) -> Result<Self, Refusal> {
        let torn = || Refusal::invalid("Invalid header length");
        let (number, rest) = message.body().split_first_chunk::<4>().ok_or_else(torn)?;
        let errno = Errno(i32::from_ne_bytes(*number).saturating_neg());
        let request = Header::read(rest.first_chunk().ok_or_else(torn)?);
        let flags = message.header().flags;
        let quoted = if flags.any(Flags::CAPPED) {
            HEADER_LEN
        } else {
            usize::try_from(request.len).map_err(|_| torn())?.max(HEADER_LEN)
        };
        let (mut text, mut offset) = (Cow::Borrowed(""), None);
        if flags.any(Flags::ACK_TLVS) {
            let start = quoted.checked_next_multiple_of(4).ok_or_else(torn)?;
            (text, offset) = read_words(rest.get(start..).unwrap_or_default());
        }
        let refusal = (errno.0 != 0).then_some(Refusal { errno, text, offset });
        Ok(Self { refusal, request })
    }
}

/// Writes text and offset of the extended acknowledgement, where it has them.
fn write_words(to: &mut Writer, text: &str, offset: Option<u32>) {
    if !text.is_empty() {
        to.attribute(ATTR_MSG, |to| {
            to.bytes(text.as_bytes());
            to.u8(0);
        });
    }
    to.attribute_if(ATTR_OFFS, offset);
}

fn read_words(bytes: &[u8]) -> (Cow<'static, str>, Option<u32>) {
    let (mut text, mut offset) = (Cow::Borrowed(""), None);
    for (number, payload) in attributes(bytes) {
        match number {
            ATTR_MSG => {
                let end = payload.iter().position(|byte| *byte == 0);
                let words = payload.get(..end.unwrap_or(payload.len())).unwrap_or_default();
                text = Cow::Owned(String::from_utf8_lossy(words).into_owned());
            }
            ATTR_OFFS => offset = payload.first_chunk().copied().map(u32::from_ne_bytes),
            _ => {}
        }
    }
    (text, offset)
}

/// Cut where a character ends.
fn shortened(text: &str) -> &str {
    text.get(..text.floor_char_boundary(TEXT_MAX)).unwrap_or_default()
}

/// Numbers and payloads of attributes that nobody checks.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let &[l0, l1, n0, n1] = rest.first_chunk::<4>()?;
        let len = usize::from(u16::from_ne_bytes([l0, l1]));
        let payload = rest.get(4..len)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([n0, n1]) & 0x3fff, payload))
    })
}

/// A message whose body `fill` writes.
pub(crate) fn message(
    number: u16,
    flags: Flags,
    seq: u32,
    port: u32,
    fill: impl FnOnce(&mut Writer),
) -> Datagram {
    let mut to = Writer::new();
    Header { len: 0, number, flags, seq, port }.write(&mut to);
    fill(&mut to);
    let len = u32::try_from(to.len()).unwrap_or(u32::MAX);
    to.patch(0, &len.to_ne_bytes());
    to.align();
    to.finish()
}

/// The end of a dump; `outcome` says whether it is all there is.
#[must_use]
pub(crate) fn done(outcome: Option<&Refusal>, seq: u32, port: u32) -> Datagram {
    let text = outcome.map_or("", |refusal| shortened(&refusal.text));
    let offset = outcome.and_then(|refusal| refusal.offset);
    let silent = text.is_empty() && offset.is_none();
    let flags = if silent { Flags::MULTI } else { Flags::MULTI.with(Flags::ACK_TLVS) };
    message(DONE, flags, seq, port, |to| {
        to.i32(outcome.map_or(0, |refusal| refusal.errno.0).saturating_neg());
        write_words(to, text, offset);
    })
}

pub(crate) fn read_done(message: &Message<'_>) -> Result<Option<Refusal>, Refusal> {
    let torn = || Refusal::invalid("Invalid header length");
    let (number, rest) = message.body().split_first_chunk::<4>().ok_or_else(torn)?;
    let errno = Errno(i32::from_ne_bytes(*number).saturating_neg());
    let tlvs = message.header().flags.any(Flags::ACK_TLVS);
    let (text, offset) = if tlvs { read_words(rest) } else { (Cow::Borrowed(""), None) };
    Ok((errno.0 != 0).then_some(Refusal { errno, text, offset }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::Messages;

    fn request() -> Vec<u8> {
        let sent = message(0x12, Flags::REQUEST, 5, 0, |to| to.bytes(b"secret"));
        sent.as_bytes().to_vec()
    }

    fn answer(outcome: Result<(), &Refusal>, options: AckOptions) -> (Vec<u8>, Acknowledgement) {
        let request = request();
        let request = Messages::new(&request).next().unwrap();
        let built = Acknowledgement::build(&request, outcome, 77, options);
        let message = Messages::new(built.as_bytes()).next().unwrap();
        assert_eq!((message.header().number, message.header().port), (ERROR, 77));
        let read = Acknowledgement::read(&message).unwrap();
        assert_eq!(read.request, *request.header());
        (message.as_bytes().to_vec(), read)
    }

    #[test]
    fn success_quotes_the_header_only() {
        let (bytes, read) = answer(Ok(()), AckOptions::default());
        assert_eq!((bytes.len(), read.refusal), (36, None));
        assert_eq!(bytes[6], 0, "flags: {bytes:?}");
        assert_eq!(bytes[7], 1, "capped: {bytes:?}");
    }

    #[test]
    fn refusals_quote_the_request_unless_capped_and_speak_if_asked() {
        let refusal = Refusal { offset: Some(20), ..Refusal::invalid("Invalid policy share") };
        for capped in [false, true] {
            for extended in [false, true] {
                let (bytes, read) = answer(Err(&refusal), AckOptions { capped, extended });
                let quoted = bytes.windows(6).any(|window| window == b"secret");
                assert_eq!(quoted, !capped);
                let expected =
                    if extended { refusal.clone() } else { Refusal::bare(Errno::EINVAL) };
                assert_eq!(read.refusal, Some(expected));
            }
        }
    }

    #[test]
    fn torn_acknowledgements_are_refused_or_without_words() {
        let refusal = Refusal::invalid("Invalid policy share");
        let (bytes, _) = answer(Err(&refusal), AckOptions { capped: false, extended: true });
        for len in HEADER_LEN..bytes.len() {
            let mut torn = bytes[..len].to_vec();
            torn[..4].copy_from_slice(&u32::try_from(len).unwrap().to_ne_bytes());
            let read = Acknowledgement::read(&Messages::new(&torn).next().unwrap());
            assert_eq!(read.is_err(), len < 36, "{len}");
        }
    }
}
