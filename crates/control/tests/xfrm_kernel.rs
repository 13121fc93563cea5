//! The databases of XFRM against those of the kernel under this machine: the same requests, in any
//! order, have the same answers.
#![allow(clippy::unwrap_used)] // tests may, but clippy sees test functions only

use convoy_control::xfrm::Policies;
use convoy_xfrm::{
    Action, Addresses, Errno, Flags, FlushPolicy, Limits, Mark, Messages, Mode, Network, Policy,
    PolicyDirection, PolicyInfo, PolicyKey, PolicyName, PolicyType, PortMask, Refusal, Reply,
    Request, SaProtocol, Selector, Share, Template, Usage,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_XFRM};
use nix::sched::{CloneFlags, unshare};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// A kernel's XFRM in a network namespace of its own.
struct Kernel {
    socket: Socket,
    seq: u32,
}

impl Kernel {
    /// For the calling thread, which must not be used for anything else.
    fn new() -> Self {
        unshare(CloneFlags::CLONE_NEWNET).expect("root may make namespaces");
        let mut socket = Socket::new(NETLINK_XFRM).expect("this kernel has XFRM");
        socket.bind_auto().unwrap();
        socket.connect(&SocketAddr::new(0, 0)).unwrap();
        socket.set_rx_buf_sz(1 << 22).unwrap();
        Self { socket, seq: 0 }
    }

    /// All that it answers, and whether it refused.
    fn ask(&mut self, request: &Request) -> Result<Vec<Reply>, Errno> {
        self.seq += 1;
        let bytes = request.build(self.seq, Flags::ACK);
        self.socket.send(bytes.as_bytes(), 0).unwrap();
        let mut replies = Vec::new();
        loop {
            let (datagram, _) = self.socket.recv_from_full().unwrap();
            for message in Messages::new(&datagram) {
                assert_eq!(message.header().seq, self.seq);
                match Reply::parse(&message).unwrap() {
                    Reply::Acknowledgement(ack) => {
                        return ack.refusal.map_or(Ok(replies), |refusal| Err(refusal.errno));
                    }
                    Reply::Done(outcome) => return outcome.map_or(Ok(replies), Err),
                    reply => replies.push(reply),
                }
            }
        }
    }

    /// The policies that it shows.
    fn policies(&mut self, request: &Request) -> Result<Vec<Policy>, Errno> {
        let shown = |reply| match reply {
            Reply::NewPolicy(policy) => timeless(*policy),
            other => panic!("{other:?}"),
        };
        self.ask(request).map(|replies| replies.into_iter().map(shown).collect())
    }
}

/// Without the time at which it came.
fn timeless(mut policy: Policy) -> Policy {
    assert_eq!((policy.info.usage.packets, policy.info.usage.use_time), (0, 0));
    policy.info.usage = Usage::default();
    policy
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Policy, bool),
    Get(PolicyKey),
    Remove(PolicyKey),
    Dump,
    Count,
    Flush(Option<PolicyType>),
}

/// Few different ones, so that requests meet.
fn selector() -> impl Strategy<Value = Selector> {
    let network = |last: u8, prefix_len| Network { address: [10, 0, 0, last].into(), prefix_len };
    (0..4_u8, prop::sample::select(vec![0, 6, 17]), 0..2_u16).prop_map(
        move |(last, protocol, port)| Selector {
            addresses: Addresses::Networks {
                source: network(last, 32),
                destination: network(0, 24),
            },
            destination_port: PortMask { value: port, mask: 0xffff * port },
            protocol,
            ..Selector::ANY
        },
    )
}

fn direction() -> impl Strategy<Value = PolicyDirection> {
    prop::sample::select(vec![PolicyDirection::In, PolicyDirection::Out, PolicyDirection::Forward])
}

/// What names a policy beside its selector.
fn narrowed() -> impl Strategy<Value = (Mark, u32, Option<PolicyType>)> {
    let mark = prop_oneof![
        3 => Just(Mark::default()),
        1 => Just(Mark { value: 1, mask: 1 }),
        1 => Just(Mark { value: 1, mask: 3 }),
    ];
    let types = vec![None, Some(PolicyType::Main), Some(PolicyType::Main), Some(PolicyType::Sub)];
    (mark, prop::sample::select(vec![0, 0, 7]), prop::sample::select(types))
}

fn index() -> impl Strategy<Value = u32> {
    prop_oneof![4 => Just(0), 2 => 1..12_u32, 1 => 0..80_u32]
}

fn template() -> impl Strategy<Value = Template> {
    (1..4_u32, any::<bool>()).prop_map(|(reqid, optional)| Template {
        destination: [192, 0, 2, 2].into(),
        source: [192, 0, 2, 1].into(),
        spi: None,
        protocol: SaProtocol::Esp,
        reqid,
        mode: Mode::Tunnel,
        optional,
        share: Share::Any,
        algorithms: [u32::MAX; 3],
    })
}

prop_compose! {
    fn policy()(
        selector in selector(),
        direction in direction(),
        (mark, if_id, policy_type) in narrowed(),
        given in index(),
        priority in 0..3_u32,
        blocks in any::<bool>(),
        templates in prop::collection::vec(template(), 0..3),
    ) -> Policy {
        let bits = match direction {
            PolicyDirection::In => 0,
            PolicyDirection::Out => 1,
            PolicyDirection::Forward => 2,
        };
        let index = if given == 0 { 0 } else { given & !7 | bits };
        let info = PolicyInfo {
            selector,
            limits: Limits::NONE,
            usage: Usage::default(),
            priority,
            index,
            direction,
            action: if blocks { Action::Block } else { Action::Allow },
            flags: 0,
            share: Share::Any,
        };
        // Packets that leave must not do without protection.
        let optional = direction != PolicyDirection::Out;
        let templates = templates.into_iter();
        let templates = templates.map(|t| Template { optional: t.optional && optional, ..t }).collect();
        let others = Default::default();
        Policy { info, templates, security: None, policy_type, mark, if_id, offload: None, others }
    }
}

prop_compose! {
    fn key()(
        selector in selector(),
        direction in direction(),
        (mark, if_id, policy_type) in narrowed(),
        index in index(),
    ) -> PolicyKey {
        let name =
            if index == 0 { PolicyName::Selector(selector) } else { PolicyName::Index(index) };
        let others = Default::default();
        PolicyKey { name, direction, policy_type, mark, if_id, security: None, others }
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => (policy(), any::<bool>()).prop_map(|(policy, new)| Step::Insert(policy, new)),
        4 => key().prop_map(Step::Get),
        4 => key().prop_map(Step::Remove),
        2 => Just(Step::Dump),
        1 => Just(Step::Count),
        1 => prop::sample::select(vec![None, Some(PolicyType::Main), Some(PolicyType::Sub)])
            .prop_map(Step::Flush),
    ]
}

fn errno<T>(outcome: Result<T, Refusal>) -> Result<T, Errno> {
    outcome.map_err(|refusal| refusal.errno)
}

/// Does the same on both sides.
fn compare(kernel: &mut Kernel, ours: &mut Policies, step: &Step) {
    match step.clone() {
        Step::Insert(policy, exclusive) => {
            let boxed = Box::new(policy.clone());
            let request =
                if exclusive { Request::NewPolicy(boxed) } else { Request::UpdPolicy(boxed) };
            let theirs = kernel.ask(&request).map(drop);
            assert_eq!(errno(ours.insert(policy, exclusive, 1)).map(drop), theirs, "{step:?}");
        }
        Step::Get(key) => {
            let theirs = kernel.policies(&Request::GetPolicy(Box::new(key.clone())));
            let found = errno(ours.get(&key)).map(|policy| vec![show(policy)]);
            assert_eq!(found, theirs, "{step:?}");
        }
        Step::Remove(key) => {
            let theirs = kernel.ask(&Request::DelPolicy(Box::new(key.clone()))).map(drop);
            assert_eq!(errno(ours.remove(&key)).map(drop), theirs, "{step:?}");
        }
        Step::Dump => {
            let theirs = kernel.policies(&Request::DumpPolicy).unwrap();
            let all: Vec<_> = ours.dump(None).map(|(_, policy)| show(policy)).collect();
            let index = |all: &[Policy]| all.iter().map(|p| p.info.index).collect::<Vec<_>>();
            assert_eq!(index(&all), index(&theirs));
            assert_eq!(all, theirs);
        }
        Step::Count => {
            let Reply::NewSpdInfo(info) =
                kernel.ask(&Request::GetSpdInfo(Default::default())).unwrap().remove(0)
            else {
                panic!("another answer")
            };
            let counts = ours.counts();
            assert_eq!(
                (counts.inbound, counts.outbound, counts.forward),
                (info.counts[0], info.counts[1], info.counts[2])
            );
        }
        Step::Flush(policy_type) => {
            let flush = FlushPolicy { policy_type, ..FlushPolicy::default() };
            assert_eq!(kernel.ask(&Request::FlushPolicy(flush)).map(drop), Ok(()));
            ours.flush(policy_type.unwrap_or_default());
        }
    }
}

fn show(policy: &Policy) -> Policy {
    assert_eq!(policy.info.usage.add_time, 1);
    timeless(policy.clone())
}

/// Kernels before this one give other numbers.
const COMPARED: (u32, u32) = (6, 18);

/// Version and subversion of the kernel.
fn kernel_version() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse().ok());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

#[test]
#[ignore = "needs root for a network namespace"]
fn policies_are_those_of_a_kernel() {
    let version = kernel_version();
    if version < COMPARED {
        println!("SKIPPED: policies against the kernel: {version:?} is older than {COMPARED:?}");
        return;
    }
    let work = || {
        let mut kernel = Kernel::new();
        let mut ours = Policies::default();
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[1; 32]);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        for _ in 0..20_000 {
            compare(&mut kernel, &mut ours, &step().new_tree(&mut runner).unwrap().current());
        }
    };
    if let Err(panic) = std::thread::spawn(work).join() {
        std::panic::resume_unwind(panic);
    }
}
