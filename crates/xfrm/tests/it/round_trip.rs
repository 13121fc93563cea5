//! Built messages parse back to what they were built from, and no bytes make the parser panic.

use crate::common::{only, reply, request};
use convoy_xfrm::{Address, Datagram, Flags, Messages, Received, Reply, Request};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;

/// Equal when they say the same. Keys cannot be compared; the bytes they are built to can.
fn same(one: &Datagram, other: &Datagram) {
    assert_eq!(one.as_bytes(), other.as_bytes());
}

fn parse_request(bytes: &[u8]) -> Request {
    match Request::parse(&only(bytes)) {
        Ok(Some(request)) => request,
        other => panic!("{other:?}"),
    }
}

/// Parses as both, and what parses is built and parsed again.
fn parse_all(bytes: &[u8]) {
    for message in Messages::new(bytes) {
        if let Ok(Some(request)) = Request::parse(&message) {
            let built = request.build(1, Flags::ACK);
            same(&built, &parse_request(built.as_bytes()).build(1, Flags::ACK));
        }
        if let Ok(reply) = Reply::parse(&message)
            && let Some(built) = reply.build(Address::default())
        {
            let again = Reply::parse(&only(built.as_bytes())).unwrap();
            same(&built, &again.build(Address::default()).unwrap());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn requests_come_back(request in request(), seq: u32) {
        let built = request.build(seq, Flags::ACK);
        prop_assert_eq!(only(built.as_bytes()).header().seq, seq);
        let again = parse_request(built.as_bytes());
        prop_assert_eq!(format!("{request:?}"), format!("{again:?}"));
        same(&built, &again.build(seq, Flags::ACK));
    }

    #[test]
    fn replies_come_back(reply in reply(), seq: u32, port: u32, multi: bool) {
        let to = Address { seq, port, multi };
        let built = reply.build(to).expect("all of them can be built");
        let again = Reply::parse(&only(built.as_bytes())).unwrap();
        prop_assert_eq!(format!("{reply:?}"), format!("{again:?}"));
        same(&built, &again.build(to).unwrap());
    }

    #[test]
    fn torn_and_scratched_messages_do_not_panic(
        request in request(),
        reply in reply(),
        scratches in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 0..8),
        cut: prop::sample::Index,
    ) {
        for built in [request.build(1, Flags::ACK), reply.build(Address::default()).unwrap()] {
            let mut bytes = built.as_bytes().to_vec();
            for (at, value) in &scratches {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            parse_all(&bytes);
            bytes.truncate(cut.index(bytes.len()));
            let len = u32::try_from(bytes.len()).unwrap().to_ne_bytes();
            for (byte, value) in bytes.iter_mut().zip(len) {
                *byte = value;
            }
            parse_all(&bytes);
        }
    }

    #[test]
    fn any_bytes_do_not_panic(kind in 0..0x30_u16, body: Vec<u8>, flags: u16) {
        let len = u32::try_from(body.len() + 16).unwrap();
        let mut bytes = len.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((flags | 1).to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend(body);
        parse_all(&bytes);
    }
}

#[test]
fn a_parsed_request_outlives_the_bytes_it_came_in() {
    use convoy_xfrm::{Key, Transform};

    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (name, icv_bits) = (convoy_xfrm::AlgorithmName::new("rfc4106(gcm(aes))").unwrap(), 128);
    let mut sa = crate::common::sa().new_tree(&mut runner).unwrap().current();
    sa.info.protocol = convoy_xfrm::SaProtocol::Esp;
    let key = Key::new(b"sixteen bytes kysalt").unwrap();
    sa.transform = Transform::Aead(convoy_xfrm::Aead { name, key, icv_bits });
    let built = Request::NewSa(sa).build(1, Flags::default());

    let mut buffer = built.as_bytes().to_vec();
    let received = Received::new(&mut buffer);
    let request = parse_request(received.as_bytes());
    drop(received);
    assert!(buffer.iter().all(|byte| *byte == 0), "the receive buffer is wiped");
    let Request::NewSa(sa) = &request else { panic!("{request:?}") };
    let Transform::Aead(aead) = &sa.transform else { panic!("{sa:?}") };
    assert_eq!(aead.key.expose(), b"sixteen bytes kysalt");
    assert!(!format!("{request:?}").contains("115, 105, 120"), "keys are not printed");
}
