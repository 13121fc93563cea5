use std::time::Duration;

use convoy_crypto::{Cpu, Tier};
use convoy_engine::registry::{DaemonSas, DriverRule, DriverRules, Drivers};
use convoy_ipsec::clock::Now;
use convoy_ipsec::event::{Event, SaId};
use convoy_ipsec::lifetime::{Lifetime, Limit as Reached};
use convoy_ipsec::sa::{InboundSpec, OutboundSpec};
use convoy_ipsec::sequence::{SequenceCounter, SequenceLimits};
use convoy_ipsec::snapshot::Snapshot;
use convoy_ipsec::spd::{PolicyAction, Spd, SpdId};
use convoy_wire::{FlowKey, Ports, Protocol, SeqNum, Spi};
use convoy_xfrm::{
    Action, Addresses, Aead, Algorithm, AlgorithmName, AllocSpi, AsyncEvent, Encap, FlushPolicy,
    FlushSa, Group, Integrity, Key, Limit, Limits, Mark, Messages, Mode, Network, Policy,
    PolicyDirection, PolicyInfo, PolicyKey, PolicyName, PortMask, ProtocolFilter, ReplayEsn, Reply,
    Sa, SaDump, SaFlags, SaInfo, SaProtocol, SaQuery, Selector, Share, Template, Transform, Usage,
};

use super::*;
use crate::xfrm::{Cursor, Setting};

pub(super) const HERE: [u8; 4] = [192, 0, 2, 1];
pub(super) const THERE: [u8; 4] = [192, 0, 2, 2];
/// The first moment, in seconds since 1970 and of the workers' clock.
const START: u64 = 1_700_000_000;

#[derive(Debug, Default)]
struct FixedHost;

impl Host for FixedHost {
    fn is_local(&self, address: IpAddr) -> bool {
        address == IpAddr::from(HERE)
    }

    fn source_for(&self, _: IpAddr) -> Option<IpAddr> {
        Some(HERE.into())
    }
}

pub(super) fn moment(seconds: u64) -> Moment {
    let ns = |seconds: u64| seconds * 1_000_000_000;
    Moment { unix_ns: ns(START + seconds), worker: Now(ns(1000 + seconds)) }
}

/// A kernel and the right to change the picture that its workers would see.
#[derive(Debug)]
pub(super) struct Gateway {
    pub(super) kernel: Kernel,
    pub(super) writer: Writer,
}

impl std::ops::Deref for Gateway {
    type Target = Kernel;

    fn deref(&self) -> &Kernel {
        &self.kernel
    }
}

impl std::ops::DerefMut for Gateway {
    fn deref_mut(&mut self) -> &mut Kernel {
        &mut self.kernel
    }
}

impl Gateway {
    pub(super) fn heard(&mut self, event: &Event, at: Moment) -> Told {
        self.kernel.heard(&mut self.writer, event, at)
    }

    pub(super) fn keep(&mut self, keep: Keep, at: Moment) -> Restored {
        self.kernel.keep(&mut self.writer, keep, at)
    }

    pub(super) fn end_all(&mut self, at: Moment) -> Vec<(Group, convoy_xfrm::Datagram)> {
        self.kernel.end_all(&mut self.writer, at)
    }

    pub(super) fn review_directions(
        &mut self,
        changed: bool,
        at: Moment,
    ) -> Vec<(Group, convoy_xfrm::Datagram)> {
        self.kernel.review_directions(&mut self.writer, changed, at)
    }

    pub(super) fn set_drivers(&mut self, drivers: Drivers) -> Result<usize, Refusal> {
        self.kernel.set_drivers(&mut self.writer, drivers)
    }

    pub(super) fn follow_paths(&mut self, wire_mtu: u16) -> Vec<PathChange> {
        self.kernel.follow_paths(&mut self.writer, wire_mtu)
    }
}

pub(super) fn kernel() -> (Gateway, Arc<Published>) {
    kernel_at(4500)
}

/// One that serves this UDP port.
pub(super) fn kernel_at(udp_port: u16) -> (Gateway, Arc<Published>) {
    kernel_with(udp_port, &[42])
}

/// The same with interfaces of these identifiers; their databases have the numbers from 1 on.
pub(super) fn kernel_with(udp_port: u16, if_ids: &[u32]) -> (Gateway, Arc<Published>) {
    let mut snapshot = Snapshot::default();
    let mut database = |if_id: &u32| (*if_id, snapshot.add_spd(Spd::default()).unwrap());
    let interfaces = if_ids.iter().map(&mut database).collect();
    let writer = Writer::new(snapshot);
    let published = writer.published().clone();
    let setting = Setting {
        interfaces,
        drivers: Drivers::new(&Cpu::detect().unwrap()),
        spd: SpdId::default(),
        workers: 2,
        worker_rules: Vec::new(),
        udp_port,
        wire_mtu: 1500,
        legacy: false,
    };
    let host = Box::new(FixedHost);
    let kernel = Kernel::new(setting, &published, host).unwrap();
    (Gateway { kernel, writer }, published)
}

pub(super) fn client() -> Client {
    Client { pid: 1, uid: 0, command: "charon".into() }
}

pub(super) fn ask(
    kernel: &mut Gateway,
    request: Request,
    seconds: u64,
) -> Result<Carried, Refusal> {
    let to = Address { seq: 7, port: 9, multi: false };
    kernel.kernel.execute(&mut kernel.writer, &client(), request, to, moment(seconds))
}

/// Messages to the client that asked.
pub(super) fn replies(carried: &Carried) -> Vec<Reply> {
    let messages = carried.answer.replies.iter();
    messages.map(|m| Reply::parse(&Messages::new(m.as_bytes()).next().unwrap()).unwrap()).collect()
}

fn heard(told: Told) -> Option<(Group, Reply)> {
    let Told::Daemons(group, message) = told else { return None };
    let reply = Reply::parse(&Messages::new(message.as_bytes()).next().unwrap()).unwrap();
    Some((group, reply))
}

pub(super) fn sa(source: [u8; 4], destination: [u8; 4], spi: u32, key: u8) -> Sa {
    let mut sa = Sa::new(SaInfo {
        selector: Selector::ANY,
        destination: destination.into(),
        source: source.into(),
        spi: Spi::new(spi),
        protocol: SaProtocol::Esp,
        limits: Limits::NONE,
        usage: Usage::default(),
        failures: convoy_xfrm::Failures::default(),
        seq: 0,
        reqid: 1,
        mode: Mode::Tunnel,
        replay_window: 32,
        flags: SaFlags::AF_UNSPEC,
    });
    sa.transform = Transform::Aead(Aead {
        name: AlgorithmName::new("rfc4106(gcm(aes))").unwrap(),
        key: Key::new(&[key; 20]).unwrap(),
        icv_bits: 128,
    });
    sa
}

pub(super) fn outbound(spi: u32, key: u8) -> Sa {
    sa(HERE, THERE, spi, key)
}

pub(super) fn inbound(spi: u32, key: u8) -> Sa {
    sa(THERE, HERE, spi, key)
}

pub(super) fn query(sa: &Sa) -> SaQuery {
    SaQuery { key: sa.key(), others: convoy_xfrm::Others::default() }
}

pub(super) fn policy(direction: PolicyDirection, action: Action, with_template: bool) -> Policy {
    let network = |n: u8| Network { address: [10, n, 0, 0].into(), prefix_len: 16 };
    let out = direction == PolicyDirection::Out;
    let (source, destination) = if out { (1, 2) } else { (2, 1) };
    let ends = if out { (HERE, THERE) } else { (THERE, HERE) };
    let template = Template {
        protocol: SaProtocol::Esp,
        spi: None,
        source: ends.0.into(),
        destination: ends.1.into(),
        reqid: 1,
        mode: Mode::Tunnel,
        share: Share::Any,
        optional: false,
        algorithms: [u32::MAX; 3],
    };
    Policy {
        info: PolicyInfo {
            selector: Selector {
                addresses: Addresses::Networks {
                    source: network(source),
                    destination: network(destination),
                },
                ..Selector::ANY
            },
            limits: Limits::NONE,
            usage: Usage::default(),
            priority: 1000,
            index: 0,
            direction,
            action,
            flags: 0,
            share: Share::Any,
        },
        templates: if with_template { vec![template] } else { Vec::new() },
        security: None,
        policy_type: None,
        mark: Mark::default(),
        if_id: 0,
        offload: None,
        others: convoy_xfrm::Others::default(),
    }
}

pub(super) fn name_of(policy: &Policy) -> PolicyKey {
    PolicyKey {
        name: PolicyName::Selector(policy.info.selector),
        direction: policy.info.direction,
        policy_type: policy.policy_type,
        mark: policy.mark,
        if_id: policy.if_id,
        security: None,
        others: convoy_xfrm::Others::default(),
    }
}

pub(super) fn add(kernel: &mut Gateway, sa: Sa) -> Result<Carried, Refusal> {
    ask(kernel, Request::NewSa(Box::new(sa)), 0)
}

pub(super) fn put(kernel: &mut Gateway, policy: Policy) -> Result<Carried, Refusal> {
    ask(kernel, Request::UpdPolicy(Box::new(policy)), 0)
}

pub(super) fn outbounds(published: &Published) -> Vec<Arc<OutboundSpec>> {
    published.current().outbound_sas().map(|(_, sa)| sa.clone()).collect()
}

pub(super) fn inbounds(published: &Published) -> Vec<Arc<InboundSpec>> {
    published.current().inbound_sas().map(|(_, sa)| sa.clone()).collect()
}

pub(super) fn flow(outbound: bool) -> FlowKey {
    let (a, b) = ([10, 1, 0, 5].into(), [10, 2, 0, 5].into());
    let (from, to) = if outbound { (a, b) } else { (b, a) };
    FlowKey::new(from, to, Protocol::UDP, Ports::Known { src: 1000, dst: 2000 }).unwrap()
}

/// Workers take the destination of a packet for this host's address.
pub(super) fn know_host(kernel: &mut Gateway, flow: &FlowKey) {
    know_hosts(kernel, &[Prefix::host(flow.dst_addr())]);
}

fn know_hosts(kernel: &mut Gateway, hosts: &[Prefix]) {
    let mut draft = kernel.writer.draft();
    draft.spd_mut().know_hosts(hosts);
    draft.commit();
}

pub(super) fn decides(published: &Published, direction: Direction) -> Option<PolicyAction> {
    let flow = flow(direction == Direction::Outbound);
    published.current().spd().lookup(direction, &flow).map(|decision| decision.action)
}

/// Asks for this SPI.
pub(super) fn allocation(spi: u32) -> AllocSpi {
    AllocSpi {
        destination: HERE.into(),
        source: THERE.into(),
        protocol: SaProtocol::Esp,
        mode: Mode::Tunnel,
        seq: 0,
        reqid: 1,
        min: spi,
        max: spi,
        mark: Mark::default(),
        if_id: 0,
        direction: None,
        cpu: None,
        others: convoy_xfrm::Others::default(),
    }
}

/// The way of charon: an SPI, the inbound keys, the outbound SA, three policies.
#[test]
fn a_tunnel_of_a_daemon_is_what_workers_need_for_it() {
    let (mut kernel, published) = kernel();
    let carried =
        ask(&mut kernel, Request::AllocSpi(Box::new(allocation(0xc000_0001))), 0).unwrap();
    assert!(
        matches!(&replies(&carried)[..], [Reply::NewSa(sa)] if sa.info.spi == Spi::new(0xc000_0001))
    );
    assert_eq!(kernel.generation(), 0, "workers have nothing of it");
    let mut udp = inbound(0xc000_0001, 1);
    udp.encap =
        Some(Encap { kind: 2, source_port: 4501, destination_port: 4500, original: [0; 4].into() });
    udp.state.replay_esn =
        Some(ReplayEsn { window: 128, bitmap: vec![0; 4], ..ReplayEsn::default() });
    udp.info.flags = SaFlags(SaFlags::ESN.0 | SaFlags::AF_UNSPEC.0);
    ask(&mut kernel, Request::UpdSa(Box::new(udp)), 0).unwrap();
    add(&mut kernel, outbound(0xabc, 2)).unwrap();
    for direction in [PolicyDirection::Out, PolicyDirection::In, PolicyDirection::Forward] {
        put(&mut kernel, policy(direction, Action::Allow, true)).unwrap();
    }

    let [comes] = &inbounds(&published)[..] else { panic!() };
    assert_eq!((comes.spi.get(), comes.replay_window, comes.esn), (0xc000_0001, 128, true));
    assert_eq!(comes.endpoints.local, IpAddr::from(HERE));
    let encap = comes.encap.unwrap();
    assert_eq!((encap.local_port, encap.remote_port), (4500, 4501));
    assert_eq!(comes.worker.0, 1, "the sockets spread by SPI");
    let [goes] = &outbounds(&published)[..] else { panic!() };
    assert_eq!((goes.spi.get(), goes.endpoints.remote), (0xabc, THERE.into()));
    assert_eq!(
        decides(&published, Direction::Outbound),
        Some(PolicyAction::Protect { reqid: goes.reqid })
    );
    assert_eq!(
        decides(&published, Direction::Inbound),
        Some(PolicyAction::Protect { reqid: comes.reqid })
    );
    assert_eq!(published.current().spd().len(), 3, "in and fwd are apart");
    let user = published.current().outbound_for(goes.reqid).unwrap();
    assert_eq!(published.current().outbound(user.slot).unwrap().spi, goes.spi);
    assert_eq!(kernel.generation(), 6);
}

#[test]
fn what_a_daemon_removes_workers_have_no_more() {
    let (mut kernel, published) = kernel();
    add(&mut kernel, outbound(1, 1)).unwrap();
    add(&mut kernel, inbound(2, 2)).unwrap();
    let out = policy(PolicyDirection::Out, Action::Allow, true);
    put(&mut kernel, out.clone()).unwrap();
    ask(&mut kernel, Request::DelSa(query(&outbound(1, 1))), 1).unwrap();
    assert_eq!((outbounds(&published).len(), inbounds(&published).len()), (0, 1));
    let twice = ask(&mut kernel, Request::DelSa(query(&outbound(1, 1))), 1).unwrap_err();
    assert_eq!(twice.errno, Errno::ESRCH);
    ask(&mut kernel, Request::DelPolicy(Box::new(name_of(&out))), 1).unwrap();
    assert_eq!(decides(&published, Direction::Outbound), None);
    put(&mut kernel, out).unwrap();
    let flush = FlushSa { protocol: ProtocolFilter::default(), ..FlushSa::default() };
    ask(&mut kernel, Request::FlushSa(flush), 1).unwrap();
    ask(&mut kernel, Request::FlushPolicy(FlushPolicy::default()), 1).unwrap();
    assert!(published.current().is_empty() && published.current().spd().is_empty());
    assert_eq!(kernel.counts(), (0, crate::xfrm::Counts::default()));
}

/// Makes something out of what would be accepted.
type Change<'a, T> = &'a dyn Fn(&mut T);

/// A request that makes kernels' and Convoy's promises differ is refused, and nothing of it stays.
#[test]
fn what_workers_cannot_do_is_refused_with_the_reason() {
    let (mut kernel, published) = kernel();
    let refused = |kernel: &mut Gateway, change: &dyn Fn(&mut Sa)| {
        let mut sa = outbound(5, 5);
        change(&mut sa);
        let refusal = add(kernel, sa).unwrap_err();
        (refusal.errno, refusal.text.into_owned())
    };
    let mark = Mark { value: 1, mask: 1 };
    let cases: [(Change<'_, Sa>, Errno, &str); 14] = [
        (&|sa| sa.mark = mark, Errno::EOPNOTSUPP, "no marks"),
        (&|sa| sa.output_mark = mark, Errno::EOPNOTSUPP, "sets no marks"),
        (&|sa| sa.if_id = 3, Errno::EOPNOTSUPP, "if_id"),
        (&|sa| sa.cpu = Some(1), Errno::EOPNOTSUPP, "per processor"),
        (
            &|sa| sa.info.destination = "224.0.0.5".parse().unwrap(),
            Errno::EOPNOTSUPP,
            "multicast groups",
        ),
        (
            &|sa| {
                sa.info.source = "fe80::1".parse().unwrap();
                sa.info.destination = "fe80::2".parse().unwrap();
            },
            Errno::EOPNOTSUPP,
            "link-local",
        ),
        (&|sa| sa.info.mode = Mode::Beet, Errno::EPROTONOSUPPORT, "mode"),
        (&|sa| sa.extra_flags = 2, Errno::EOPNOTSUPP, "wrap"),
        (&|sa| sa.info.flags = SaFlags::DECAP_DSCP, Errno::EOPNOTSUPP, "DSCP"),
        (&|sa| sa.info.flags = SaFlags::ICMP, Errno::EOPNOTSUPP, "ICMP"),
        (&|sa| sa.info.protocol = SaProtocol::Comp, Errno::EPROTONOSUPPORT, "type"),
        (
            &|sa| {
                let original = [0; 4].into();
                sa.encap =
                    Some(Encap { kind: 7, source_port: 4500, destination_port: 1, original });
            },
            Errno::EOPNOTSUPP,
            "UDP_ENCAP_ESPINUDP",
        ),
        (
            &|sa| {
                let original = [0; 4].into();
                sa.encap =
                    Some(Encap { kind: 2, source_port: 5000, destination_port: 1, original });
            },
            Errno::EINVAL,
            "UDP port 4500",
        ),
        (
            &|sa| {
                sa.info.selector = policy(PolicyDirection::Out, Action::Allow, true).info.selector
            },
            Errno::EOPNOTSUPP,
            "selectors of SAs",
        ),
    ];
    for (change, errno, words) in cases {
        let (number, text) = refused(&mut kernel, change);
        assert!(number == errno && text.contains(words), "{number}: {text}");
    }
    let policies: [(Change<'_, Policy>, &str); 8] = [
        (&|policy| policy.mark = mark, "no marks"),
        (&|policy| policy.if_id = 3, "if_id"),
        (&|policy| policy.info.flags = PolicyInfo::CPU_ACQUIRE, "per_cpu_sas"),
        (&|policy| policy.info.selector.interface = 3, "one interface"),
        (&|policy| policy.templates[0].optional = true, "in clear"),
        (&|policy| policy.templates.push(policy.templates[0]), "bundles"),
        (&|policy| policy.info.limits.packets.hard = 9, "that end"),
        (
            &|policy| {
                policy.info.selector.protocol = 17;
                policy.info.selector.source_port = PortMask { value: 5, mask: 0x00ff };
            },
            "begin with ones",
        ),
    ];
    for (change, words) in policies {
        let mut policy = policy(PolicyDirection::Out, Action::Allow, true);
        change(&mut policy);
        let refusal = put(&mut kernel, policy).unwrap_err();
        assert_eq!(refusal.errno, Errno::EOPNOTSUPP, "{words}");
        assert!(refusal.text.contains(words), "{}", refusal.text);
    }
    assert!(published.current().is_empty() && published.current().spd().is_empty());
    assert_eq!(kernel.counts(), (0, crate::xfrm::Counts::default()));
    assert_eq!(kernel.generation(), 0);
}

/// RFC 4106 section 3: no nonce twice, also when a daemon moves an SA with numbers that are too old.
/// An SA with a cipher of old peers.
fn old(sa: Sa, cipher: &str) -> Sa {
    let key = |len: usize| Key::new(&(0..len).map(|i| i as u8).collect::<Vec<_>>()).unwrap();
    let name = |name| AlgorithmName::new(name).unwrap();
    let transform = Transform::Separate {
        cipher: Some(Algorithm { name: name(cipher), key: key(24) }),
        integrity: Some(Integrity { name: name("hmac(sha1)"), key: key(20), icv_bits: None }),
    };
    Sa { transform, ..sa }
}

#[test]
fn ciphers_of_old_peers_need_the_sites_leave_and_3des_has_a_limit() {
    let (mut kernel, published) = kernel();
    let triple_des = || old(outbound(5, 5), "cbc(des3_ede)");
    let camellia = || old(inbound(6, 6), "cbc(camellia)");
    for (sa, name) in [(triple_des(), "3des-cbc+"), (camellia(), "camellia-192-cbc+")] {
        let refusal = add(&mut kernel, sa).unwrap_err();
        let text = refusal.text.into_owned();
        assert_eq!(refusal.errno, Errno::ENOSYS);
        assert!(text.contains(name) && text.contains("`legacy = true`"), "{text}");
    }
    assert!(published.current().is_empty());
    kernel.set_legacy(true);
    add(&mut kernel, triple_des()).unwrap();
    add(&mut kernel, camellia()).unwrap();
    let [sa] = &outbounds(&published)[..] else { panic!("one SA") };
    let limits = |sa: &OutboundSpec| (sa.lifetime.soft.bytes, sa.lifetime.hard.bytes);
    assert_eq!(limits(sa), (Some(6_242_304), Some(8_323_072)));
    assert_eq!(inbounds(&published)[0].lifetime, Lifetime::default());
    // Limits of a daemon count where they are lower, also when it changes them.
    for (hard, most) in [(8_000_000, 8_000_000), (1 << 40, 8_323_072)] {
        let mut changed = triple_des();
        changed.info.limits.bytes = Limit { soft: 7_000_000, hard };
        ask(&mut kernel, Request::UpdSa(Box::new(changed)), 0).unwrap();
        assert_eq!(limits(&outbounds(&published)[0]), (Some(6_242_304), Some(most)));
    }
    // A key that makes single DES of 3DES.
    let mut weak = old(outbound(7, 7), "cbc(des3_ede)");
    if let Transform::Separate { cipher: Some(cipher), .. } = &mut weak.transform {
        cipher.key = Key::new(&[1; 24]).unwrap();
    }
    let refusal = add(&mut kernel, weak).unwrap_err();
    assert!(refusal.errno == Errno::EINVAL && refusal.text.contains("RFC 2451"), "{refusal}");
    // What is there stays when the site allows no more.
    kernel.set_legacy(false);
    assert_eq!(outbounds(&published).len(), 1);
}

#[test]
fn an_sa_that_is_moved_goes_on_behind_its_last_packet() {
    let (mut kernel, published) = kernel();
    add(&mut kernel, outbound(1, 1)).unwrap();
    let claim = |spec: &OutboundSpec| {
        SequenceCounter::claim(
            spec.lease.as_arc().clone(),
            SeqNum::new(1),
            SequenceLimits::new(false),
        )
        .unwrap()
    };
    let mut counter = claim(&outbounds(&published)[0]);
    for _ in 0..100 {
        counter.next().unwrap();
    }
    let twice = add(&mut kernel, outbound(2, 1)).unwrap_err();
    assert_eq!(twice.errno, Errno::EEXIST, "the same key under another SPI");
    drop(counter);
    ask(&mut kernel, Request::DelSa(query(&outbound(1, 1))), 1).unwrap();
    // The daemon asked when 40 were sent; 60 went out since.
    let mut moved = sa([192, 0, 2, 7], THERE, 1, 1);
    moved.state.replay = Some(convoy_xfrm::Replay { sent: 40, ..convoy_xfrm::Replay::default() });
    moved.state.usage =
        Some(Usage { bytes: 5000, packets: 40, add_time: START - 60, use_time: START - 50 });
    add(&mut kernel, moved).unwrap();
    let [spec] = &outbounds(&published)[..] else { panic!() };
    assert_eq!(claim(spec).next().unwrap().number(), SeqNum::new(101));
    let asked = ask(&mut kernel, Request::GetSa(query(&outbound(1, 1))), 1).unwrap();
    let [Reply::NewSa(shown)] = &replies(&asked)[..] else { panic!() };
    let usage = shown.info.usage;
    assert_eq!((usage.packets, usage.add_time, usage.use_time), (40, START - 60, START - 50));
    assert_eq!(spec.counters.usage.added_ns.get(), 940_000_000_000);
}

/// RFC 4106 section 3: both ends would begin with the same nonces.
#[test]
fn a_key_of_a_counter_mode_has_one_direction() {
    let (mut kernel, published) = kernel();
    add(&mut kernel, inbound(1, 1)).unwrap();
    let both_ways = add(&mut kernel, outbound(2, 1)).unwrap_err();
    assert!(both_ways.text.contains("other direction"), "{}", both_ways.text);
    ask(&mut kernel, Request::DelSa(query(&inbound(1, 1))), 1).unwrap();
    assert_eq!(add(&mut kernel, outbound(2, 1)).unwrap_err().errno, Errno::EINVAL, "nor later");
    // With random IVs it is what tutorials do.
    let cbc = |mut sa: Sa| {
        let name = |text: &str| AlgorithmName::new(text).unwrap();
        sa.transform = Transform::Separate {
            cipher: Some(Algorithm { name: name("cbc(aes)"), key: Key::new(&[1; 16]).unwrap() }),
            integrity: Some(Integrity {
                name: name("hmac(sha256)"),
                key: Key::new(&[2; 32]).unwrap(),
                icv_bits: Some(128),
            }),
        };
        sa
    };
    add(&mut kernel, cbc(inbound(3, 0))).unwrap();
    add(&mut kernel, cbc(outbound(4, 0))).unwrap();
    assert_eq!((inbounds(&published).len(), outbounds(&published).len()), (1, 1));
}

/// MOBIKE moves SAs to addresses that the host may not have got yet.
#[test]
fn an_sa_that_is_moved_keeps_its_direction() {
    let (mut kernel, published) = kernel();
    add(&mut kernel, inbound(1, 1)).unwrap();
    ask(&mut kernel, Request::DelSa(query(&inbound(1, 1))), 1).unwrap();
    add(&mut kernel, sa(THERE, [192, 0, 2, 99], 1, 1)).unwrap();
    assert_eq!((inbounds(&published).len(), outbounds(&published).len()), (1, 0));
}

#[test]
fn an_inbound_key_that_comes_again_accepts_nothing_it_accepted_before() {
    let (mut kernel, published) = kernel();
    add(&mut kernel, inbound(1, 1)).unwrap();
    inbounds(&published)[0].counters.floor.raise(SeqNum::new(77));
    ask(&mut kernel, Request::DelSa(query(&inbound(1, 1))), 1).unwrap();
    add(&mut kernel, inbound(1, 1)).unwrap();
    assert_eq!(inbounds(&published)[0].counters.floor.get(), SeqNum::new(77));
}

/// MOBIKE blocks the policy while its SAs move.
#[test]
fn a_blocking_policy_counts_and_those_in_and_forward_are_apart() {
    let (mut kernel, published) = kernel();
    let add = |kernel: &mut Gateway, direction, action, template| {
        put(kernel, policy(direction, action, template)).unwrap()
    };
    let carried = add(&mut kernel, PolicyDirection::Out, Action::Allow, true);
    assert!(matches!(carried.covered[..], [Covered { cover: Cover::Protect, is_whole: true, .. }]));
    let carried = add(&mut kernel, PolicyDirection::Out, Action::Block, true);
    assert_eq!(decides(&published, Direction::Outbound), Some(PolicyAction::Discard));
    assert!(matches!(carried.covered[..], [Covered { cover: Cover::Discard, .. }]));
    assert!(matches!(carried.uncovered[..], [Covered { cover: Cover::Protect, .. }]));
    let carried = add(&mut kernel, PolicyDirection::In, Action::Allow, true);
    let covered = carried.covered[..].iter().map(|it| (it.cover, it.direction)).collect::<Vec<_>>();
    assert_eq!(covered, [(Cover::Protect, PolicyDirection::In)]);
    let carried = add(&mut kernel, PolicyDirection::Forward, Action::Block, false);
    let covered = carried.covered[..].iter().map(|it| (it.cover, it.direction)).collect::<Vec<_>>();
    assert_eq!(covered, [(Cover::Discard, PolicyDirection::Forward)]);
    let know = |kernel: &mut Gateway, hosts: &[Prefix]| {
        know_hosts(kernel, hosts);
        decides(&published, Direction::Inbound)
    };
    // As long as nobody knows for whom a packet is, the stricter one counts.
    assert_eq!(decides(&published, Direction::Inbound), Some(PolicyAction::Discard));
    let host = Prefix::host(flow(false).dst_addr());
    assert!(matches!(know(&mut kernel, &[host]), Some(PolicyAction::Protect { .. })));
    assert_eq!(know(&mut kernel, &[]), Some(PolicyAction::Discard));
    add(&mut kernel, PolicyDirection::Forward, Action::Allow, false);
    assert_eq!(know(&mut kernel, &[]), Some(PolicyAction::Bypass));
    assert!(matches!(know(&mut kernel, &[host]), Some(PolicyAction::Protect { .. })));
    let forward = name_of(&policy(PolicyDirection::Forward, Action::Allow, true));
    ask(&mut kernel, Request::DelPolicy(Box::new(forward)), 1).unwrap();
    assert_eq!(know(&mut kernel, &[]), None, "policies in are for this host alone");
    assert!(matches!(know(&mut kernel, &[host]), Some(PolicyAction::Protect { .. })));
}

/// RFC 3602 wants IVs of AES-CBC that nobody can predict, and those of all SAs come from one generator.
#[test]
fn one_key_of_aes_cbc_may_have_several_sas() {
    let (mut kernel, published) = kernel();
    let cbc = |spi| {
        let name = |text| AlgorithmName::new(text).unwrap();
        let cipher = Algorithm { name: name("cbc(aes)"), key: Key::new(&[7; 16]).unwrap() };
        let key = Key::new(&[8; 20]).unwrap();
        let integrity = Some(Integrity { name: name("hmac(sha1)"), key, icv_bits: None });
        let transform = Transform::Separate { cipher: Some(cipher), integrity };
        Sa { transform, ..outbound(spi, 1) }
    };
    for spi in 1..=3 {
        add(&mut kernel, cbc(spi)).unwrap();
    }
    let leases = || -> Vec<_> {
        let picture = published.current();
        picture.outbound_sas().map(|(_, sa)| Arc::as_ptr(sa.lease.as_arc())).collect()
    };
    let all: std::collections::HashSet<_> = leases().into_iter().collect();
    assert_eq!(all.len(), 3, "each has sequence numbers of its own");
    ask(&mut kernel, Request::DelSa(query(&cbc(2))), 0).unwrap();
    add(&mut kernel, cbc(2)).unwrap();
    assert_eq!(leases().len(), 3);
}

#[test]
fn what_a_device_is_to_encrypt_software_does() {
    let (mut kernel, _) = kernel();
    let offload = |flags| Some(convoy_xfrm::Offload { interface: 1, flags });
    add(&mut kernel, Sa { offload: offload(0), ..outbound(1, 1) }).unwrap();
    add(&mut kernel, Sa { offload: offload(2), ..inbound(2, 2) }).unwrap();
    let shown = ask(&mut kernel, Request::GetSa(query(&outbound(1, 1))), 0).unwrap();
    let [Reply::NewSa(shown)] = &replies(&shown)[..] else { panic!() };
    assert_eq!(shown.offload, None, "no device does it");
    for (flags, errno) in [(4, Errno::EOPNOTSUPP), (8, Errno::EINVAL)] {
        let refused = add(&mut kernel, Sa { offload: offload(flags), ..outbound(3, 3) });
        assert_eq!(refused.unwrap_err().errno, errno);
    }
    let padded = Sa { offload: offload(0), tfc_padding: Some(100), ..outbound(3, 3) };
    assert_eq!(add(&mut kernel, padded).unwrap_err().errno, Errno::EINVAL);
}

#[test]
fn a_packet_without_an_sa_asks_daemons_once() {
    let (mut kernel, published) = kernel();
    put(&mut kernel, policy(PolicyDirection::Out, Action::Allow, true)).unwrap();
    let Some(PolicyAction::Protect { reqid }) = decides(&published, Direction::Outbound) else {
        panic!()
    };
    assert!(published.current().is_on_demand(reqid));
    let event = Event::Acquire { reqid, flow: flow(true) };
    let (group, reply) = heard(kernel.heard(&event, moment(1))).unwrap();
    assert_eq!(group, Group::Acquire);
    let Reply::Acquire(acquire) = reply else { panic!("{reply:?}") };
    assert_eq!((acquire.source, acquire.destination), (HERE.into(), THERE.into()));
    assert_eq!((acquire.templates.len(), acquire.templates[0].reqid), (1, 1));
    assert_eq!(acquire.selector.source_port, PortMask { value: 1000, mask: 0xffff });
    assert!(acquire.seq > 0);
    assert!(matches!(kernel.heard(&event, moment(2)), Told::Nothing), "it was asked for");
    // The SA that answers takes the larval one's place.
    let mut answer = outbound(9, 9);
    answer.info.seq = acquire.seq;
    add(&mut kernel, answer).unwrap();
    assert_eq!(kernel.counts().0, 1);
    assert!(published.current().outbound_for(reqid).is_some());
}

#[test]
fn nobody_answers_and_a_packet_may_ask_again() {
    let (mut kernel, published) = kernel();
    put(&mut kernel, policy(PolicyDirection::Out, Action::Allow, true)).unwrap();
    let Some(PolicyAction::Protect { reqid }) = decides(&published, Direction::Outbound) else {
        panic!()
    };
    let event = Event::Acquire { reqid, flow: flow(true) };
    heard(kernel.heard(&event, moment(1))).unwrap();
    assert!(kernel.tick(moment(20)).is_empty());
    let [(Group::Expire, _)] = &kernel.tick(moment(31))[..] else { panic!() };
    heard(kernel.heard(&event, moment(32))).unwrap();
}

#[test]
fn limits_that_workers_reach_are_told_and_the_hard_one_ends_the_sa() {
    let (mut kernel, published) = kernel();
    let mut limited = outbound(1, 1);
    limited.info.limits.packets = Limit { soft: 10, hard: 20 };
    // As charon sends it: a soft limit that is never reached.
    limited.info.limits.bytes.soft = u64::MAX - 32;
    limited.info.limits.add_seconds = Limit { soft: 0, hard: 3600 };
    add(&mut kernel, limited).unwrap();
    let (slot, spec) =
        published.current().outbound_sas().map(|(slot, sa)| (slot, sa.clone())).next().unwrap();
    assert_eq!(spec.lifetime.soft.packets, Some(10));
    assert_eq!(spec.lifetime.hard.since_add, Some(Duration::from_secs(3600)));
    assert_eq!((spec.lifetime.soft.since_add, spec.lifetime.hard.bytes), (None, None));
    let (direction, spi, serial) = (Direction::Outbound, spec.spi, spec.serial);
    let id = SaId { direction, spi, destination: THERE.into(), slot, serial };
    spec.counters.packets.set(10);
    let soft = Event::Soft { sa: id, limit: Reached::Packets };
    let (group, Reply::Expire(told)) = heard(kernel.heard(&soft, moment(5))).unwrap() else {
        panic!()
    };
    assert_eq!((group, told.hard, told.sa.usage.packets), (Group::Expire, false, 10));
    let hard = Event::Hard { sa: id, limit: Reached::Packets };
    let (_, Reply::Expire(told)) = heard(kernel.heard(&hard, moment(6))).unwrap() else { panic!() };
    assert!(told.hard && outbounds(&published).is_empty());
    assert!(matches!(kernel.heard(&hard, moment(6)), Told::NotOurs));
    // A site's own SA is not a daemon's.
    let sites = SaId { slot: SaSlot(1), ..id };
    let of_site = Event::Soft { sa: sites, limit: Reached::Packets };
    assert!(matches!(kernel.heard(&of_site, moment(6)), Told::NotOurs));
}

/// A daemon that moves an SA adds it again under its SPI, at once or after another had its place, while a worker
/// still tells of the one before.
#[test]
fn what_is_told_of_an_sa_that_went_does_not_concern_the_next_of_its_spi() {
    let (mut kernel, published) = kernel();
    for direction in [Direction::Outbound, Direction::Inbound] {
        let out = direction == Direction::Outbound;
        let sa = || if out { outbound(1, 1) } else { inbound(2, 2) };
        let other = || if out { outbound(3, 3) } else { inbound(4, 4) };
        let of_now = || {
            let picture = published.current();
            let outbound = picture.outbound_sas().map(|(slot, sa)| (slot, sa.serial));
            let inbound = picture.inbound_sas().map(|(slot, sa)| (slot, sa.serial));
            let mut all: Vec<_> = if out { outbound.collect() } else { inbound.collect() };
            let (slot, serial) = all.pop().unwrap();
            let SaInfo { spi, destination, .. } = sa().info;
            SaId { direction, spi: spi.unwrap(), destination, slot, serial }
        };
        add(&mut kernel, sa()).unwrap();
        let old = of_now();
        for has_other in [false, true] {
            delete(&mut kernel, &sa());
            if has_other {
                add(&mut kernel, other()).unwrap();
                delete(&mut kernel, &other());
            }
            add(&mut kernel, sa()).unwrap();
            let from = "[::1]:1".parse().unwrap();
            let limit = Reached::Packets;
            for event in [
                Event::Hard { sa: old, limit },
                Event::Soft { sa: old, limit },
                Event::Mapping { sa: old, from },
            ] {
                assert!(matches!(kernel.heard(&event, moment(2)), Told::NotOurs), "{event:?}");
            }
            ask(&mut kernel, Request::GetSa(query(&sa())), 2).unwrap();
        }
        assert_eq!(of_now().slot, old.slot, "it may have the same slot");
        let of_it = Event::Hard { sa: of_now(), limit: Reached::Packets };
        assert!(matches!(kernel.heard(&of_it, moment(3)), Told::Daemons(..)));
    }
}

fn delete(kernel: &mut Gateway, sa: &Sa) {
    ask(kernel, Request::DelSa(query(sa)), 1).unwrap();
}

/// A NAT has given the peer another port: who drives the SA hears of it, and says when it is so.
#[test]
fn a_peer_that_comes_from_elsewhere_is_told_as_often_as_the_sa_wishes() {
    let (mut kernel, published) = kernel();
    let udp = |spi: u32, pause: Option<u32>| {
        let mut sa = inbound(spi, spi as u8);
        let original = [0; 4].into();
        sa.encap = Some(Encap { kind: 2, source_port: 4500, destination_port: 4500, original });
        sa.mapping_threshold = pause;
        sa
    };
    add(&mut kernel, udp(1, None)).unwrap();
    add(&mut kernel, udp(2, Some(60))).unwrap();
    let told_of = |spi: u32| {
        let picture = published.current();
        let (slot, sa) = picture.inbound_sas().find(|(_, sa)| sa.spi.get() == spi).unwrap();
        let direction = Direction::Inbound;
        SaId { direction, spi: sa.spi, destination: HERE.into(), slot, serial: sa.serial }
    };
    let at = |text: &str| text.parse::<std::net::SocketAddr>().unwrap();
    let mut say = |spi: u32, from: &str, seconds: u64| {
        let event = Event::Mapping { sa: told_of(spi), from: at(from) };
        heard(kernel.heard(&event, moment(seconds)))
    };
    let (group, Reply::Mapping(mapping)) = say(1, "203.0.113.5:61000", 1).unwrap() else {
        panic!()
    };
    assert_eq!(group, Group::Mapping);
    assert_eq!((mapping.sa, mapping.reqid), (udp(1, None).key(), 1));
    assert_eq!((mapping.old, mapping.new), (at("192.0.2.2:4500"), at("203.0.113.5:61000")));
    assert!(say(1, "203.0.113.5:61000", 2).is_some(), "the daemon may have missed it");
    assert!(say(2, "203.0.113.5:61000", 1).is_some());
    assert!(say(2, "203.0.113.5:61000", 60).is_none(), "it asked for a pause");
    assert!(say(2, "203.0.113.5:61001", 60).is_some(), "of one port, not of another");
    assert!(say(2, "203.0.113.5:61001", 120).is_some());
    assert!(say(1, "192.0.2.2:4500", 3).is_none(), "where the SA has it");
    let stranger =
        Event::Mapping { sa: SaId { slot: SaSlot(9), ..told_of(1) }, from: at("[::1]:1") };
    assert!(matches!(kernel.heard(&stranger, moment(9)), Told::NotOurs));
}

#[test]
fn an_update_of_a_live_sa_changes_its_limits_and_keeps_its_numbers() {
    let (mut kernel, published) = kernel();
    add(&mut kernel, outbound(1, 1)).unwrap();
    let before = outbounds(&published)[0].clone();
    let mut change = outbound(1, 1);
    change.info.limits.packets.hard = 99;
    ask(&mut kernel, Request::UpdSa(Box::new(change)), 1).unwrap();
    let [after] = &outbounds(&published)[..] else { panic!() };
    assert_eq!(after.lifetime.hard.packets, Some(99));
    assert!(after.lease == before.lease && after.key == before.key);
    let unknown = ask(&mut kernel, Request::UpdSa(Box::new(outbound(3, 3))), 1).unwrap_err();
    assert_eq!(unknown.errno, Errno::ESRCH);
}

#[test]
fn what_is_shown_is_what_workers_counted() {
    let (mut kernel, published) = kernel();
    add(&mut kernel, outbound(1, 1)).unwrap();
    put(&mut kernel, policy(PolicyDirection::Out, Action::Allow, true)).unwrap();
    let counters = outbounds(&published)[0].counters.clone();
    counters.packets.set(3);
    counters.bytes.set(300);
    counters.sequence.set(3);
    counters.usage.first_use_ns.set(moment(2).worker.0);
    counters.last_packet_ns.set(moment(4).worker.0);
    let shown = ask(&mut kernel, Request::GetSa(query(&outbound(1, 1))), 9).unwrap();
    let [Reply::NewSa(shown)] = &replies(&shown)[..] else { panic!() };
    let usage = shown.info.usage;
    assert_eq!((usage.packets, usage.bytes, usage.add_time), (3, 300, START));
    assert_eq!((usage.use_time, shown.last_used), (START + 2, Some(START + 4)));
    assert_eq!(shown.state.replay.unwrap().sent, 3);
    let policy = name_of(&policy(PolicyDirection::Out, Action::Allow, true));
    let asked = ask(&mut kernel, Request::GetPolicy(Box::new(policy)), 9).unwrap();
    let [Reply::NewPolicy(policy)] = &replies(&asked)[..] else { panic!() };
    assert_eq!(policy.info.usage.use_time, START + 4);
    let event = AsyncEvent {
        sa: outbound(1, 1).key(),
        source: HERE.into(),
        reqid: 1,
        flags: AsyncEvent::REPLAY_VALUE,
        state: convoy_xfrm::SaState::default(),
        direction: None,
        cpu: None,
        others: convoy_xfrm::Others::default(),
    };
    let asked = ask(&mut kernel, Request::GetAe(Box::new(event)), 9).unwrap();
    let [Reply::NewAe(state)] = &replies(&asked)[..] else { panic!() };
    assert_eq!((state.state.replay.unwrap().sent, state.state.usage.unwrap().packets), (3, 3));
}

#[test]
fn a_dump_shows_all_a_few_at_a_time_also_while_sas_go() {
    let (mut kernel, _published) = kernel();
    for n in 1..=50 {
        add(&mut kernel, outbound(n, n as u8)).unwrap();
    }
    let carried = ask(&mut kernel, Request::DumpSa(SaDump::default()), 0).unwrap();
    let mut cursor = carried.answer.dump.unwrap();
    let to = Address { seq: 7, port: 9, multi: true };
    let mut seen = Vec::new();
    loop {
        let messages = kernel.dump(&mut cursor, to, 7, moment(0));
        if messages.is_empty() {
            break;
        }
        for message in &messages {
            let reply = Reply::parse(&Messages::new(message.as_bytes()).next().unwrap()).unwrap();
            let Reply::NewSa(sa) = reply else { panic!() };
            seen.push(sa.info.spi.unwrap().get());
        }
        if seen.len() == 7 {
            ask(&mut kernel, Request::DelSa(query(&outbound(20, 20))), 0).unwrap();
        }
    }
    let expected: Vec<_> = (1..=50).rev().filter(|n| *n != 20).collect();
    assert_eq!(seen, expected);
    assert!(matches!(cursor, Cursor::Sas(..)));
}

#[test]
fn sas_of_daemons_get_drivers_by_rules_and_change_with_them() {
    let (mut kernel, published) = kernel();
    for request in [outbound(0x1001, 1), inbound(0x2002, 2)] {
        ask(&mut kernel, Request::NewSa(Box::new(request)), 0).unwrap();
    }
    let tiers = || {
        let picture = published.current();
        let out = picture.outbound_sas().map(|(_, sa)| (sa.key.tier(), sa.serial)).next();
        (out.unwrap(), picture.inbound_sas().map(|(_, sa)| sa.key.tier()).next().unwrap())
    };
    let cpu = Cpu::detect().unwrap();
    let best = cpu.best();
    let ((out, serial), inb) = tiers();
    assert_eq!((out, inb), (best, best));

    let rule = |peer: &str, if_id| DriverRule {
        driver: "rfc4106-gcm-aes-convoy-portable".into(),
        sas: DaemonSas { peer: Some(peer.parse().unwrap()), if_id },
    };
    let rules = |rule| DriverRules { of_daemons: vec![rule], ..DriverRules::default() };
    let drivers = Drivers::new(&cpu);
    for other in [rule("198.51.100.0/24", None), rule("192.0.2.2/32", Some(42))] {
        assert_eq!(kernel.set_drivers(drivers.with_rules(&rules(other))).unwrap(), 0);
    }
    let both = if best == Tier::Portable { 0 } else { 2 };
    let matching = rules(rule("192.0.2.0/24", Some(0)));
    assert_eq!(kernel.set_drivers(drivers.with_rules(&matching)).unwrap(), both);
    assert_eq!(tiers(), ((Tier::Portable, serial), Tier::Portable));
    // New ones too.
    ask(&mut kernel, Request::NewSa(Box::new(outbound(0x1003, 3))), 0).unwrap();
    let picture = published.current();
    assert!(picture.outbound_sas().all(|(_, sa)| sa.key.tier() == Tier::Portable));
}
