//! The databases of XFRM against those of the kernel under this machine: the same requests, in any
//! order, have the same answers.

use convoy_control::xfrm::{Associations, Insertion, Policies};
use convoy_wire::Spi;
use convoy_xfrm::{
    Action, Address, Addresses, AllocSpi, Errno, Flags, FlushPolicy, FlushSa, Limits, Mark,
    Messages, Mode, Network, Policy, PolicyDirection, PolicyInfo, PolicyKey, PolicyName,
    PolicyType, PortMask, ProtocolFilter, Refusal, Reply, Request, Sa, SaDirection, SaKey,
    SaProtocol, SaQuery, Selector, Share, Template, Usage,
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
    /// For the calling thread, which must not be used for anything else; none without privileges.
    fn new() -> Option<Self> {
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
            println!("SKIPPED: databases against the kernel: no network namespace: {error}");
            return None;
        }
        let mut socket = Socket::new(NETLINK_XFRM).expect("this kernel has XFRM");
        socket.bind_auto().unwrap();
        socket.connect(&SocketAddr::new(0, 0)).unwrap();
        socket.set_rx_buf_sz(1 << 22).unwrap();
        Some(Self { socket, seq: 0 })
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
                    Reply::Done(outcome) => {
                        return outcome.map_or(Ok(replies), |refusal| Err(refusal.errno));
                    }
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

/// Properties that name a policy beside its selector.
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
            let (request, insertion) = match exclusive {
                true => (Request::NewPolicy(boxed), Insertion::New),
                false => (Request::UpdPolicy(boxed), Insertion::Replace),
            };
            let theirs = kernel.ask(&request).map(drop);
            assert_eq!(errno(ours.insert(policy, insertion, 1)).map(drop), theirs, "{step:?}");
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

/// Request about SAs.
#[derive(Clone, Debug)]
enum SaStep {
    Allocate(AllocSpi),
    Get(SaKey),
    Remove(SaKey),
    Dump,
    Count,
    Flush(ProtocolFilter),
}

/// Of which none goes with the other: of several SAs that wait, a kernel takes the first of a hash
/// chain, and the order changes when its table grows in the background.
fn own_mark() -> impl Strategy<Value = Mark> {
    prop::sample::select(vec![Mark { value: 1, mask: 3 }, Mark { value: 2, mask: 3 }])
}

fn mark() -> impl Strategy<Value = Mark> {
    prop_oneof![
        4 => Just(Mark::default()),
        1 => Just(Mark { value: 1, mask: 1 }),
        1 => Just(Mark { value: 1, mask: 3 }),
        1 => Just(Mark { value: 3, mask: 3 }),
    ]
}

fn protocol() -> impl Strategy<Value = SaProtocol> {
    prop::sample::select(vec![SaProtocol::Esp, SaProtocol::Esp, SaProtocol::Ah, SaProtocol::Comp])
}

fn local(last: u8) -> std::net::IpAddr {
    [192, 0, 2, last].into()
}

prop_compose! {
    fn allocation()(
        (last, seq, reqid, if_id) in (1..3_u8, 0..4_u32, 0..2_u32, prop::sample::select(vec![0, 7])),
        (protocol, mark) in (protocol(), own_mark()),
        mode in prop::sample::select(vec![Mode::Tunnel, Mode::Transport]),
        spi in 256..270_u32,
        is_wide in prop::bool::weighted(0.2),
        direction in prop::sample::select(vec![None, None, Some(SaDirection::In), Some(SaDirection::Out)]),
    ) -> AllocSpi {
        // Exhausted ranges are a matter of chance in a kernel.
        let (min, max) = if is_wide { (1000, 60_000) } else { (spi, spi) };
        let (destination, source) = (local(last), local(9));
        let (cpu, others) = (None, Default::default());
        AllocSpi {
            destination, source, protocol, mode, seq, reqid, min, max, mark, if_id, direction, cpu, others,
        }
    }
}

fn sa_key() -> impl Strategy<Value = SaKey> {
    (1..3_u8, 256..270_u32, protocol(), mark()).prop_map(|(last, spi, protocol, mark)| SaKey {
        destination: local(last),
        spi: Spi::new(spi),
        protocol,
        source: None,
        mark,
        if_id: 0,
    })
}

fn sa_step() -> impl Strategy<Value = SaStep> {
    let filters = vec![ProtocolFilter(50), ProtocolFilter(51), ProtocolFilter::IPSEC];
    prop_oneof![
        10 => allocation().prop_map(SaStep::Allocate),
        4 => sa_key().prop_map(SaStep::Get),
        6 => sa_key().prop_map(SaStep::Remove),
        2 => Just(SaStep::Dump),
        1 => Just(SaStep::Count),
        1 => prop::sample::select(filters).prop_map(SaStep::Flush),
    ]
}

/// The message that shows an SA, without the time at which it came.
fn shown(sa: &Sa) -> Vec<u8> {
    const ADD_TIME: usize = 16 + 56 + 24 + 16 + 64 + 16;
    let mut bytes = sa.answer(false, Address::default()).as_bytes().to_vec();
    bytes[ADD_TIME..ADD_TIME + 8].fill(0);
    bytes
}

fn shown_by(kernel: &mut Kernel, request: &Request) -> Result<Vec<Vec<u8>>, Errno> {
    let show = |reply: &Reply| match reply {
        Reply::NewSa(sa) => shown(sa),
        other => panic!("{other:?}"),
    };
    kernel.ask(request).map(|replies| replies.iter().map(show).collect())
}

/// Does the same on both sides.
fn compare_sas(kernel: &mut Kernel, ours: &mut Associations, step: &SaStep) {
    let query = |key| SaQuery { key, others: Default::default() };
    match step.clone() {
        SaStep::Allocate(allocation) => {
            let boxed = Box::new(allocation.clone());
            let theirs = kernel.ask(&Request::AllocSpi(boxed));
            // What it drew.
            let drawn = match theirs.as_deref() {
                Ok([Reply::NewSa(sa)]) => sa.info.spi.map_or(0, Spi::get),
                Ok(other) => panic!("{other:?}"),
                Err(_) => 0,
            };
            let given = errno(ours.allocate(&allocation, 1, None, |_, _| drawn)).map(|sa| {
                assert_eq!(sa.info.usage.add_time, 1);
                shown(sa)
            });
            let theirs = theirs.map(|replies| match &replies[0] {
                Reply::NewSa(sa) => shown(sa),
                other => panic!("{other:?}"),
            });
            assert_eq!(given, theirs, "{step:?}");
        }
        SaStep::Get(key) => {
            let theirs = shown_by(kernel, &Request::GetSa(query(key)));
            let found = errno(ours.get(&key)).map(|found| vec![shown(&found.sa)]);
            assert_eq!(found, theirs, "{step:?}");
        }
        SaStep::Remove(key) => {
            let theirs = kernel.ask(&Request::DelSa(query(key))).map(drop);
            assert_eq!(errno(ours.remove(&key)).map(drop), theirs, "{step:?}");
        }
        SaStep::Dump => {
            let theirs = shown_by(kernel, &Request::DumpSa(Default::default())).unwrap();
            let all: Vec<_> = ours.dump(None).map(|(_, found)| shown(&found.sa)).collect();
            assert_eq!(all.len(), theirs.len());
            for (one, other) in all.iter().zip(&theirs) {
                assert_eq!(one, other);
            }
        }
        SaStep::Count => {
            let replies = kernel.ask(&Request::GetSadInfo(Default::default())).unwrap();
            let [Reply::NewSadInfo(info)] = &replies[..] else { panic!("{replies:?}") };
            assert_eq!(ours.len(), info.count as usize);
        }
        SaStep::Flush(protocol) => {
            let flush = FlushSa { protocol, ..FlushSa::default() };
            assert_eq!(kernel.ask(&Request::FlushSa(flush)).map(drop), Ok(()));
            ours.flush(protocol);
        }
    }
}

/// Kernels before this one give other numbers.
const COMPARED: (u32, u32) = (6, 18);

/// Version and subversion of the kernel.
fn kernel_version() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse().ok());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

/// Compares random steps with the kernel's answers, in a thread and a namespace of their own.
fn walk<S: Strategy + Send + 'static>(
    step: S,
    mut compare: impl FnMut(&mut Kernel, &S::Value) + Send + 'static,
) {
    let version = kernel_version();
    if version < COMPARED {
        println!("SKIPPED: databases against the kernel: {version:?} is older than {COMPARED:?}");
        return;
    }
    let work = move || {
        let Some(mut kernel) = Kernel::new() else { return };
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[1; 32]);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        for _ in 0..20_000 {
            compare(&mut kernel, &step.new_tree(&mut runner).unwrap().current());
        }
    };
    if let Err(panic) = std::thread::spawn(work).join() {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn policies_are_those_of_a_kernel() {
    let mut ours = Policies::default();
    walk(step(), move |kernel, step| compare(kernel, &mut ours, step));
}

/// SAs without keys: kernels have others only of algorithms that they know.
#[test]
fn larval_sas_are_those_of_a_kernel() {
    let mut ours = Associations::default();
    walk(sa_step(), move |kernel, step| compare_sas(kernel, &mut ours, step));
}
