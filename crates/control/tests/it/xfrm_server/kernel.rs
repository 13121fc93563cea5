//! Datagrams of several messages, as the kernel under this machine answers them.

use convoy_xfrm::{Flags, PolicyKey, PolicyName, Request};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_XFRM};
use nix::sched::{CloneFlags, unshare};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::peer::{OPTION, Peer, as_bytes, count, message};
use super::{Running, policy};

const PORT: u32 = 4711;
/// The number of the question that is asked last.
const LAST: u32 = 1 << 30;

/// A kernel's socket in a network namespace of its own; none without privileges.
fn kernel() -> Option<Socket> {
    if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
        println!("SKIPPED: datagrams against the kernel: no network namespace: {error}");
        return None;
    }
    let mut socket = Socket::new(NETLINK_XFRM).expect("this kernel has XFRM");
    socket.bind(&SocketAddr::new(PORT, 0)).unwrap();
    socket.connect(&SocketAddr::new(0, 0)).unwrap();
    Some(socket)
}

fn add_policy(number: u32) -> Request {
    Request::NewPolicy(Box::new(policy(number)))
}

fn delete_policy(number: u32) -> Request {
    let policy = policy(number);
    Request::DelPolicy(Box::new(PolicyKey {
        name: PolicyName::Selector(policy.info.selector),
        direction: policy.info.direction,
        policy_type: None,
        mark: policy.mark,
        if_id: policy.if_id,
        security: None,
        others: Default::default(),
    }))
}

/// A message whose length, type or flags may be wrong.
fn part() -> impl Strategy<Value = Vec<u8>> {
    let kinds =
        vec![0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 0x10, 0x11, 0x14, 0x15, 0x1c, 0x23, 0x29, 0xffff];
    let plain = (prop::sample::select(kinds), 0..8_u16, 0..100_u32, 0..4_usize).prop_map(
        |(kind, flags, seq, numbers)| message(kind, flags & !2, seq, &[0; 3][..numbers.min(3)]),
    );
    let known = (any::<bool>(), 0..4_u32, 0..100_u32, any::<bool>()).prop_map(
        |(adds, number, seq, acks)| {
            let request = if adds { add_policy(number) } else { delete_policy(number) };
            as_bytes(&request, seq, if acks { Flags::ACK } else { Flags::default() })
        },
    );
    let whole = prop_oneof![plain, known];
    // Some are cut, some say another length, some are followed by padding.
    (whole, prop_oneof![6 => Just(None), 1 => (0..40_u32).prop_map(Some)], 0..6_usize).prop_map(
        |(mut bytes, len, padding)| {
            if let Some(len) = len {
                bytes[..4].copy_from_slice(&len.to_ne_bytes());
            }
            if padding == 5 {
                bytes.pop();
            }
            bytes
        },
    )
}

/// Without the size of a hash table, which is in the count of SAs.
fn comparable(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes[4] == 0x22 {
        bytes.truncate(28);
    }
    bytes
}

fn until_last(mut receive: impl FnMut() -> Vec<u8>) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let bytes = receive();
        if bytes[8..12] == LAST.to_ne_bytes() {
            return all;
        }
        all.push(comparable(bytes));
    }
}

#[test]
fn datagrams_are_taken_apart_as_a_kernel_does() {
    std::thread::spawn(|| {
        let Some(kernel) = kernel() else { return };
        let running = Running::new();
        let peer = Peer::bound(running.path(), PORT, 0);
        let config = Config { cases: 0, ..Config::default() };
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
        let mut runner = TestRunner::new_with_rng(config, rng);
        // With company, the library's messages are netlink's own, which kernels pass over.
        let first = message(1, 1, 0, &[]);
        let datagram = prop::collection::vec(part(), 1..6)
            .prop_map(move |parts| [first.clone(), parts.concat()].concat());
        let last = as_bytes(&count(), LAST, Flags::default());
        for case in 0..3000 {
            if case == 1500 {
                peer.tell(OPTION, &[10, 1]);
                kernel.set_cap_ack(true).unwrap();
            }
            let bytes = datagram.new_tree(&mut runner).unwrap().current();
            kernel.send(&bytes, 0).unwrap();
            kernel.send(&last, 0).unwrap();
            peer.send(&bytes);
            peer.send(&last);
            let theirs = until_last(|| kernel.recv_from_full().unwrap().0);
            let ours = until_last(|| peer.receive());
            assert_eq!(ours, theirs, "case {case}: {bytes:?}");
        }
    })
    .join()
    .unwrap();
}
