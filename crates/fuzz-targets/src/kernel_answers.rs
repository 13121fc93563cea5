//! Answers of a kernel by its sockets of routes, of the packet filter, of queues and of flows: no bytes make a parser panic
//! or promise bytes that are not there, and what is not understood is said to be so.

use arbitrary::Arbitrary;
use convoy_netlink::nft::{self, Answer, elements, ruleset::Ruleset};

/// Datagrams and answers, as one socket or another has them.
#[derive(Arbitrary, Debug)]
pub struct Input<'a>(Vec<Said<'a>>);

#[derive(Arbitrary, Debug)]
enum Said<'a> {
    /// A datagram of any socket.
    Datagram(&'a [u8]),
    /// A message with a header that is right, of a kind from errors to routes.
    Message { kind: u8, flags: u16, body: &'a [u8] },
    /// A packet in a queue.
    Question { body: &'a [u8] },
    /// An answer of the packet filter.
    Filter { kind: u8, family: u8, attributes: &'a [u8] },
    /// A flow, and bits that its mark is to lose.
    Flow { family: u8, bits: u32, attributes: &'a [u8] },
}

/// `NFNL_SUBSYS_NFTABLES`, `NFNL_SUBSYS_CTNETLINK`, `NFNL_SUBSYS_QUEUE` with `NFQNL_MSG_PACKET`.
const FILTER: u16 = 10 << 8;
const FLOWS: u16 = 1 << 8;
const PACKET: u16 = 3 << 8;
/// `CTA_TUPLE_ORIG` with `NLA_F_NESTED`, `CTA_MARK_MASK`.
const TUPLE: u16 = 1;
const TUPLE_NESTED: u16 = 1 | 1 << 15;
const MARK_MASK: u16 = 21;

/// Panics where a parser breaks its promise.
pub fn check(input: &Input<'_>) {
    let mut answers = Vec::new();
    for said in &input.0 {
        match *said {
            Said::Datagram(bytes) => datagram(bytes),
            Said::Message { kind, flags, body } => {
                datagram(&message(u16::from(kind % 0x80), flags, body));
            }
            Said::Question { body } => datagram(&message(PACKET, 0, body)),
            Said::Filter { kind, family, attributes } => {
                answers.push(answer(FILTER | u16::from(kind % 0x20), family, attributes));
            }
            Said::Flow { family, bits, attributes } => {
                flow(&answer(FLOWS, family, attributes), bits);
            }
        }
    }
    filter(&answers);
}

fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(16 + body.len()).unwrap_or(u32::MAX);
    [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), &flags.to_ne_bytes(), &[0; 8], body].concat()
}

fn answer(kind: u16, family: u8, attributes: &[u8]) -> Answer {
    Answer { kind, bytes: [&[family, 0, 0, 0], attributes].concat() }
}

fn datagram(bytes: &[u8]) {
    for question in convoy_netlink::fuzzing::questions(bytes) {
        let packet = question.packet.as_ptr_range();
        let is_within =
            bytes.as_ptr_range().start <= packet.start && packet.end <= bytes.as_ptr_range().end;
        assert!(question.packet.is_empty() || is_within);
    }
    let (messages, errors) = convoy_netlink::fuzzing::routes(bytes);
    assert!(messages.len() * 16 <= bytes.len() && errors.len() <= messages.len());
    assert!(errors.iter().all(|errno| *errno >= 0));
    let news = convoy_host::fuzzing::news(bytes);
    assert!(
        news.any() || bytes.len() < 16 || !messages.is_empty(),
        "what is not understood is news"
    );
    let _ = convoy_host::fuzzing::is_copy(bytes);
}

fn filter(answers: &[Answer]) {
    let rules = Ruleset::of(answers, answers, answers);
    assert!(rules.not_understood <= answers.len() && rules.places.len() <= answers.len());
    let ways = rules.ways();
    assert!(rules.places.keys().all(|base| ways.contains_key(base)));
    for rule in answers {
        let _ = nft::packets_counted(rule);
        let _ = nft::compared(rule);
    }
    let bytes: usize = answers.iter().map(|answer| answer.bytes.len()).sum();
    let shown = elements::shown(answers).map(|it| it.key.len() + it.key_end.map_or(0, <[u8]>::len));
    assert!(shown.sum::<usize>() <= bytes, "elements lie apart from each other");
}

/// The order that clears marks is about the same flow, and of no other bits.
fn flow(shown: &Answer, bits: u32) {
    let Some(bytes) = convoy_netlink::fuzzing::clearing(shown, bits) else { return };
    let order = Answer { kind: FLOWS, bytes };
    let of = |answer: &Answer, kind| answer.attributes(kind).next().map(<[u8]>::to_vec);
    // The parser of attributes leaves the flag out.
    let tuple = of(&order, TUPLE).or_else(|| of(&order, TUPLE_NESTED));
    assert_eq!(tuple, of(shown, TUPLE).or_else(|| of(shown, TUPLE_NESTED)));
    assert_eq!(of(&order, MARK_MASK), Some(bits.to_be_bytes().to_vec()));
    assert_eq!(order.bytes[0], shown.bytes[0]);
}
