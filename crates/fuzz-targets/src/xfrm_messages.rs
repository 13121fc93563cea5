//! XFRM messages: no bytes make the parser panic, and what it takes, built and parsed again, says the
//! same as before.

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use convoy_xfrm::{Address, Flags, Messages, Received, Reply, Request};

/// A datagram of netlink messages, whole or in parts.
#[derive(Arbitrary, Debug)]
pub struct Input<'a>(Kind<'a>);

#[derive(Arbitrary, Debug)]
enum Kind<'a> {
    /// Whatever comes.
    Datagram(&'a [u8]),
    /// A message with a header that is right.
    Message { kind: u8, flags: u16, body: &'a [u8] },
    /// Message that iproute2 or a kernel sent, with bytes changed, cut, and more behind it.
    Recorded { which: u16, changes: Vec<(u16, u8)>, cut: Option<u16>, more: &'a [u8] },
}

/// The datagrams of the tests.
static RECORDED: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let lines = include_str!("../../xfrm/tests/recorded/ip.txt").lines();
    lines
        .filter_map(|line| line.strip_prefix("> ").or_else(|| line.strip_prefix("< ")))
        .map(bytes)
        .collect()
});

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex
        .bytes()
        .filter_map(|digit| char::from(digit).to_digit(16))
        .map(|digit| digit as u8)
        .collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

impl Kind<'_> {
    fn datagram(self) -> Vec<u8> {
        let mut datagram = match self {
            Self::Datagram(datagram) => return datagram.to_vec(),
            Self::Message { kind, flags, body } => {
                let mut message = vec![0; 4];
                message.extend(u16::from(kind % 0x30).to_ne_bytes());
                message.extend(flags.to_ne_bytes());
                message.extend([0; 8]);
                message.extend(body);
                message
            }
            Self::Recorded { which, changes, cut, more } => {
                let mut message = RECORDED[usize::from(which) % RECORDED.len()].clone();
                for (at, byte) in changes {
                    let at = usize::from(at) % message.len();
                    message[at] = byte;
                }
                message.truncate(cut.map_or(usize::MAX, |cut| 16.max(usize::from(cut))));
                message.extend(more);
                message
            }
        };
        let len = u32::try_from(datagram.len()).unwrap_or(u32::MAX);
        datagram[..4].copy_from_slice(&len.to_ne_bytes());
        datagram
    }
}

/// Panics where what was parsed does not build to the same again, or leaves keys behind.
pub fn check(input: Input<'_>) {
    let mut datagram = input.0.datagram();
    let received = Received::new(&mut datagram);
    for message in Messages::new(received.as_bytes()) {
        match Request::parse(&message) {
            Ok(Some(request)) => {
                let built = request.build(7, Flags::ACK);
                let again = parse_only(built.as_bytes());
                assert_eq!(again.build(7, Flags::ACK).as_bytes(), built.as_bytes());
                assert_eq!(format!("{again:?}"), format!("{request:?}"));
            }
            Ok(None) => {}
            Err(refusal) => assert!(refusal.errno.0 > 0, "{refusal:?}"),
        }
        if let Ok(reply) = Reply::parse(&message)
            && let Some(built) = reply.build(Address::default())
        {
            let message = Messages::new(built.as_bytes()).next().expect("a message");
            let again = Reply::parse(&message).expect("what was built");
            let rebuilt = again.build(Address::default()).expect("what was built before");
            assert_eq!(rebuilt.as_bytes(), built.as_bytes());
        }
    }
    drop(received);
    assert!(datagram.iter().all(|byte| *byte == 0), "keys stay behind");
}

fn parse_only(bytes: &[u8]) -> Request {
    let message = Messages::new(bytes).next().expect("a message");
    Request::parse(&message).expect("what was built").expect("a request")
}
