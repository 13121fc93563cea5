//! Reports on the SAs and policies that IKE daemons made, beside those of the site file.

mod metrics;

use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use convoy_control::site::Site;
use convoy_control::state::State;
use convoy_control::status::{
    self, Attached, Inputs, Level, LifetimeState, Origin, PolicyStatus, Sampler, Status, Text, Use,
    observe, policy_report, sa_report,
};
use convoy_control::trace::{Question, Verdict, trace};
use convoy_control::xfrm::{Client, Host, Kernel, Moment, Setting};
use convoy_crypto::Cpu;
use convoy_ipsec::clock::Now;
use convoy_wire::Spi;
use convoy_xfrm::{
    Action, Address, Addresses, Aead, AlgorithmName, Key, Limit, Limits, Mark, Mode, Network,
    Policy, PolicyDirection, PolicyInfo, PortMask, Refusal, Request, Sa, SaFlags, SaInfo,
    SaProtocol, Selector, Share, Template, Transform, Usage,
};

const HERE: [u8; 4] = [192, 0, 2, 1];
const THERE: [u8; 4] = [192, 0, 2, 2];
/// Byte that every key is made of, as text would show it.
const SECRET: u8 = 0x5e;

const SITE: &str = r#"
name = "left"
state_dir = "."
[plain]
interface = "tun"
[[policy]]
name = "local"
action = "bypass"
local = "10.1.0.0/24"
remote = "10.1.0.0/24"
"#;

/// Two interfaces for SAs with an identifier.
const INTERFACES: &str = r#"
[xfrm]
[[xfrm.interface]]
name = "ipsec0"
if_id = 42
[[xfrm.interface]]
name = "ipsec1"
if_id = 43
"#;

#[derive(Debug)]
struct FixedHost;

impl Host for FixedHost {
    fn is_local(&self, address: IpAddr) -> bool {
        address == IpAddr::from(HERE)
    }

    fn source_for(&self, _: IpAddr) -> Option<IpAddr> {
        Some(HERE.into())
    }
}

struct Gateway {
    _dir: tempfile::TempDir,
    state: State,
    kernel: Kernel,
    seconds: u64,
}

impl Gateway {
    fn new() -> Self {
        Self::with("")
    }

    /// With more in the site file.
    fn with(more: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o700)).unwrap();
        let path = dir.path().join("left.toml");
        std::fs::write(&path, format!("{SITE}{more}")).unwrap();
        let (site, _) = Site::load(&path).unwrap_or_else(|errors| panic!("{errors}"));
        let cpu = Cpu::detect().unwrap();
        let state = State::start(site, cpu, 1500, |_| {}).unwrap();
        let setting = Setting {
            drivers: state.drivers().clone(),
            spd: state.plain_spd(),
            interfaces: state.interface_spds().collect(),
            workers: 1,
            worker_rules: Vec::new(),
            udp_port: 4500,
            wire_mtu: 1500,
            legacy: false,
        };
        let kernel = Kernel::new(setting, state.published(), Box::new(FixedHost)).unwrap();
        Self { _dir: dir, state, kernel, seconds: 100 }
    }

    fn now_ns(&self) -> u64 {
        self.seconds * 1_000_000_000
    }

    fn ask(&mut self, request: Request) {
        self.try_ask(request).unwrap();
    }

    fn try_ask(&mut self, request: Request) -> Result<(), Refusal> {
        let client = Client { pid: 1, uid: 0, command: "charon".into() };
        let at = Moment {
            unix_ns: 1_700_000_000_000_000_000 + self.now_ns(),
            worker: Now(self.now_ns()),
        };
        let to = Address { seq: 7, port: 9, multi: false };
        let writer = self.state.writer();
        self.kernel.execute(writer, &client, request, to, at).map(drop)
    }

    fn add(&mut self, sa: Sa) {
        self.ask(Request::NewSa(Box::new(sa)));
    }

    fn put(&mut self, policy: Policy) {
        self.ask(Request::NewPolicy(Box::new(policy)));
    }

    /// The status beside these daemons, without workers.
    fn status(&self, attached: &Attached, sampler: &mut Sampler) -> Status {
        let inputs = Inputs {
            now_ns: self.now_ns(),
            uptime: Duration::from_secs(1),
            workers: &[],
            counts: &[],
            broken: &[],
            lacking: &[],
            daemons: Some(&self.kernel),
            attached,
            leak_protection: None,
            confinement: None,
            wire: None,
        };
        observe(&self.state, &Cpu::detect().unwrap(), &inputs, sampler)
    }

    fn policies(&self) -> Vec<PolicyStatus> {
        policy_report(&self.state, Some(&self.kernel), self.now_ns()).policies
    }

    /// Lets packets pass through the SA of an SPI.
    fn pass(&self, spi: u32, packets: u64) {
        let snapshot = self.state.published().current();
        let outbound = snapshot.outbound_sas().map(|(_, sa)| (sa.spi, &sa.counters));
        let inbound = snapshot.inbound_sas().map(|(_, sa)| (sa.spi, &sa.counters));
        let (_, counters) = outbound.chain(inbound).find(|(of, _)| of.get() == spi).unwrap();
        counters.packets.add(packets);
        counters.bytes.add(packets * 100);
        counters.last_packet_ns.set(self.now_ns() - 2_000_000_000);
    }
}

fn sa(outbound: bool, spi: u32, reqid: u32) -> Sa {
    let (source, destination) = if outbound { (HERE, THERE) } else { (THERE, HERE) };
    let mut sa = Sa::new(SaInfo {
        selector: Selector::ANY,
        destination: destination.into(),
        source: source.into(),
        spi: Spi::new(spi),
        protocol: SaProtocol::Esp,
        limits: Limits { add_seconds: Limit { soft: 3000, hard: 3600 }, ..Limits::NONE },
        usage: Usage::default(),
        failures: convoy_xfrm::Failures::default(),
        seq: 0,
        reqid,
        mode: Mode::Tunnel,
        replay_window: 32,
        flags: SaFlags::AF_UNSPEC,
    });
    let mut key = [SECRET; 20];
    key[..4].copy_from_slice(&spi.to_be_bytes());
    sa.transform = Transform::Aead(Aead {
        name: AlgorithmName::new("rfc4106(gcm(aes))").unwrap(),
        key: Key::new(&key).unwrap(),
        icv_bits: 128,
    });
    sa
}

fn policy(direction: PolicyDirection, action: Action, reqid: Option<u32>, to: u8) -> Policy {
    let network = |a: u8, b: u8| Network { address: [10, a, b, 0].into(), prefix_len: 24 };
    let out = direction == PolicyDirection::Out;
    let (near, far) = (network(1, 0), network(2, to));
    let (source, destination) = if out { (near, far) } else { (far, near) };
    let ends = if out { (HERE, THERE) } else { (THERE, HERE) };
    let template = reqid.map(|reqid| Template {
        protocol: SaProtocol::Esp,
        spi: None,
        source: ends.0.into(),
        destination: ends.1.into(),
        reqid,
        mode: Mode::Tunnel,
        share: Share::Any,
        optional: false,
        algorithms: [u32::MAX; 3],
    });
    Policy {
        info: PolicyInfo {
            selector: Selector {
                addresses: Addresses::Networks { source, destination },
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
        templates: template.into_iter().collect(),
        security: None,
        policy_type: None,
        mark: Mark::default(),
        if_id: 0,
        offload: None,
        others: convoy_xfrm::Others::default(),
    }
}

#[test]
fn policies_of_daemons_are_shown_with_the_sas_that_they_use() {
    let mut gateway = Gateway::new();
    assert_eq!(gateway.policies().len(), 1);
    for way in [PolicyDirection::Out, PolicyDirection::In, PolicyDirection::Forward] {
        gateway.put(policy(way, Action::Allow, Some(7), 0));
    }
    let mut mail = policy(PolicyDirection::Out, Action::Block, None, 9);
    mail.info.priority = 10;
    mail.info.selector.protocol = 6;
    mail.info.selector.destination_port = PortMask { value: 25, mask: 0xffff };
    gateway.put(mail);
    let [local, block, out, inn, forward] = &gateway.policies()[..] else { panic!() };
    assert_eq!((local.origin, local.index, local.direction), (Origin::Site, None, None));
    assert_eq!((&*block.action, block.direction), ("discard", Some(status::PolicyDirection::Out)));
    assert_eq!(
        (block.protocol.as_deref(), block.upper.as_deref()),
        (Some("tcp"), Some("port any to 25"))
    );
    assert_eq!((&*out.name, out.index, out.origin), ("xfrm-1", Some(1), Origin::Daemon));
    assert_eq!(
        (&out.local[..], &out.remote[..]),
        (&["10.1.0.0/24".to_owned()][..], &["10.2.0.0/24".to_owned()][..])
    );
    assert_eq!((out.priority, &*out.action, out.acquire), (1000, "protect", true));
    assert_eq!((&out.sa_out, &out.spi_out), (&None, &None), "no SA yet");
    assert_eq!((inn.direction, inn.sa_in.len()), (Some(status::PolicyDirection::In), 0));
    assert_eq!(
        (forward.direction, forward.sa_in.len()),
        (Some(status::PolicyDirection::Forward), 0)
    );

    gateway.add(sa(true, 0xabc, 7));
    gateway.add(sa(false, 0xdef, 7));
    gateway.pass(0xabc, 5);
    gateway.pass(0xdef, 3);
    let [_, _, out, inn, _] = &gateway.policies()[..] else { panic!() };
    assert_eq!(out.sa_out.as_deref(), Some("00000abc@192.0.2.2"));
    assert_eq!((out.spi_out.as_deref(), out.spi_in.len()), (Some("0x00000abc"), 0));
    let used = |packets| Use { packets, bytes: packets * 100, last_packet_s: Some(2.0) };
    assert_eq!((out.sent, out.received), (used(5), Use::default()));
    assert_eq!((inn.sent, inn.received), (Use::default(), used(3)));
    assert_eq!(
        (&inn.spi_in[..], inn.shared),
        (&["0x00000def".to_owned()][..], true),
        "fwd has it, too"
    );
    // Rekeyed: both count while both are there, and the new one is used.
    gateway.add(sa(true, 0xabd, 7));
    gateway.pass(0xabd, 1);
    let [_, _, out, _, _] = &gateway.policies()[..] else { panic!() };
    assert_eq!((out.spi_out.as_deref(), out.sent), (Some("0x00000abd"), used(6)));

    let text = policy_report(&gateway.state, Some(&gateway.kernel), gateway.now_ns()).text();
    for part in ["xfrm-1", "way", "00000abd@192.0.2.2", "tcp port any to 25", "2 s ago"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}

#[test]
fn sas_of_daemons_are_shown_with_the_numbers_of_their_daemon_and_no_keys() {
    let mut gateway = Gateway::new();
    gateway.put(policy(PolicyDirection::Out, Action::Allow, Some(7), 0));
    gateway.add(sa(true, 0xabc, 7));
    gateway.add(sa(false, 0xdef, 4_000_000_000));
    gateway.seconds += 3100;
    gateway
        .state
        .published()
        .current()
        .inbound_sas()
        .for_each(|(_, sa)| sa.counters.dropped.add(4));
    let mut sampler = Sampler::default();
    let report = sa_report(&gateway.state, Some(&gateway.kernel), gateway.now_ns(), &mut sampler);
    let [out, inn] = &report.sas[..] else { panic!() };
    assert_eq!((out.origin, out.reqid, out.remote), (Origin::Daemon, 7, THERE.into()));
    assert_eq!((inn.origin, inn.reqid, inn.dropped), (Origin::Daemon, 4_000_000_000, 4));
    let life = out.lifetime.unwrap();
    assert_eq!((life.state, life.hard.age_s), (LifetimeState::Ending, Some(500.0)));
    let text = report.text();
    for part in ["reqid", "4000000000", "dropped", "8 min 20 s (replace it)"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let status = gateway.status(&Attached::default(), &mut sampler);
    assert_eq!(status.sas.iter().map(|sa| sa.reqid).collect::<Vec<_>>(), [7, 4_000_000_000]);
    let policies = policy_report(&gateway.state, Some(&gateway.kernel), gateway.now_ns());
    let json = [
        serde_json::to_string(&report).unwrap(),
        serde_json::to_string(&status).unwrap(),
        serde_json::to_string(&policies).unwrap(),
    ];
    for shown in json.iter().chain([&text, &status.text(), &policies.text()]) {
        assert!(!shown.contains("5e5e5e") && !shown.contains("94,94,94"), "{shown}");
    }
}

/// Which daemons are attached, and what they were refused, is part of the status and of its level.
#[test]
fn daemons_that_are_absent_and_requests_that_were_refused_are_told() {
    let mut gateway = Gateway::new();
    let (mut attached, mut sampler) = (Attached::default(), Sampler::default());
    let mut look = |gateway: &Gateway, attached: &Attached| gateway.status(attached, &mut sampler);
    let none = look(&gateway, &attached);
    assert_eq!(none.health.level, Level::Warning);
    assert!(none.health.reasons[0].contains("no IKE daemon is attached"), "{none:?}");
    assert!(none.text().contains("IKE daemons   none\n"), "{}", none.text());

    let charon = Client { pid: 7, uid: 0, command: "charon".into() };
    attached.follow(std::slice::from_ref(&charon), Now(gateway.now_ns()));
    gateway.seconds += 70;
    let one = look(&gateway, &attached);
    assert_eq!(one.health.level, Level::Ok, "{:?}", one.health);
    assert!(one.text().contains("charon (pid 7) for 1 min 10 s\n"), "{}", one.text());

    for spi in [0xabc, 0xabd] {
        gateway
            .try_ask(Request::NewSa(Box::new(Sa { if_id: 43, ..sa(true, spi, 7) })))
            .unwrap_err();
    }
    let refused = look(&gateway, &attached);
    assert_eq!(refused.health.level, Level::Warning);
    let reason = &refused.health.reasons[0];
    assert!(reason.starts_with("2 requests of an IKE daemon were refused"), "{reason}");
    assert!(reason.contains("SA 00000abd") && reason.contains("has this if_id"), "{reason}");
    let daemons = refused.daemons.as_ref().unwrap();
    assert_eq!((daemons.refused_requests, daemons.attached[0].pid), (2, 7));
    gateway.seconds += 700;
    assert_eq!(look(&gateway, &attached).health.level, Level::Ok, "it was long ago");

    attached.follow(&[], Now(gateway.now_ns()));
    let gone = look(&gateway, &attached);
    assert!(gone.health.reasons[0].contains("charon (pid 7) has ended"), "{:?}", gone.health);
}

/// A packet of UDP from one network to the other.
fn packet(from: [u8; 4], to: [u8; 4]) -> Question {
    Question {
        from: from.into(),
        to: to.into(),
        protocol: 17,
        ports: Some((1000, 2000)),
        bytes: 100,
        dont_fragment: true,
        spi: None,
        if_id: 0,
    }
}

#[test]
fn a_trace_says_what_becomes_of_a_packet_and_what_would_help() {
    let mut gateway = Gateway::new();
    let out = packet([10, 1, 0, 5], [10, 2, 0, 7]);
    let back = packet([10, 2, 0, 7], [10, 1, 0, 5]);
    let ask = |gateway: &Gateway, question: Question| {
        trace(&gateway.state, Some(&gateway.kernel), question, Now(gateway.now_ns())).unwrap()
    };
    let dropped = |gateway: &Gateway, question: Question, reason: &str, advice: &str| {
        let trace = ask(gateway, question);
        assert_eq!(trace.verdict, Verdict::Dropped);
        assert_eq!(trace.reason.as_ref().unwrap().name, reason);
        let said = trace.advice.as_deref().unwrap();
        assert!(said.contains(advice), "{said}");
        let text = trace.text();
        assert!(text.contains(reason) && text.contains(said), "{text}");
    };
    dropped(&gateway, out, "no-policy", "add a policy");
    // The site's own policy lets these pass, which sockets cannot.
    dropped(
        &gateway,
        packet([10, 1, 0, 5], [10, 1, 0, 6]),
        "bypass-impossible",
        "backend in [wire]",
    );
    dropped(&gateway, Question { spi: Some(9), ..back }, "unknown-spi", "compare `convoy sa`");
    for way in [PolicyDirection::Out, PolicyDirection::In, PolicyDirection::Forward] {
        gateway.put(policy(way, Action::Allow, Some(7), 0));
    }
    let waits = ask(&gateway, out);
    assert_eq!((waits.verdict, waits.policy.unwrap().index), (Verdict::Waits, Some(1)));
    assert!(waits.advice.unwrap().contains("IKE daemon"));

    let mut udp = sa(true, 0xabc, 7);
    let original = [0; 4].into();
    udp.encap =
        Some(convoy_xfrm::Encap { kind: 2, source_port: 4500, destination_port: 4501, original });
    gateway.add(udp);
    gateway.add(sa(false, 0xdef, 7));
    let sent = ask(&gateway, out);
    // 100 bytes, 2 of trailer and 2 of padding; IV and ICV, SPI and number, UDP and IPv4.
    assert_eq!(sent.verdict, Verdict::Protected { bytes: 104 + 8 + 16 + 8 + 8 + 20 });
    let used = sent.sa.as_ref().unwrap();
    assert_eq!((&*used.spi, used.reqid, used.origin), ("0x00000abc", 7, Origin::Daemon));
    assert_eq!((used.udp_ports, used.remote), (Some((4500, 4501)), THERE.into()));
    assert_eq!((used.sequence_left, used.path_mtu), (Some(u64::from(u32::MAX)), Some(1500)));
    let text = sent.text();
    for part in [
        "udp 10.1.0.5:1000 -> 10.2.0.7:2000, 100 bytes, don't fragment",
        "xfrm-1: protect (priority 1000, index 1)",
        "192.0.2.1:4500 -> 192.0.2.2:4501 in UDP",
        "path MTU 1500 bytes",
        "sent as a packet of 164 bytes",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let long = Question { bytes: 1500, ..out };
    let Verdict::TooBig { mtu_bytes } = ask(&gateway, long).verdict else { panic!() };
    let fits = u16::try_from(mtu_bytes).unwrap();
    let fitting = ask(&gateway, Question { bytes: fits, ..out }).verdict;
    assert!(matches!(fitting, Verdict::Protected { bytes: 1497..=1500 }), "{fitting:?}");
    let cut = ask(&gateway, Question { dont_fragment: false, ..long }).verdict;
    assert_eq!(cut, Verdict::Fragmented { room_bytes: mtu_bytes, pieces: 2 });

    let came = ask(&gateway, Question { spi: Some(0xdef), ..back });
    assert_eq!((came.verdict, came.sa.unwrap().reqid), (Verdict::Accepted, 7));
    let stray = Question { from: [10, 9, 0, 1].into(), spi: Some(0xdef), ..back };
    dropped(&gateway, stray, "inner-policy-mismatch", "selectors");
    gateway.seconds += 3601;
    dropped(&gateway, out, "lifetime-expired", "IKE daemon should have made another");
    let block = policy(PolicyDirection::Out, Action::Block, None, 0);
    gateway.ask(Request::UpdPolicy(Box::new(block)));
    dropped(&gateway, out, "policy-discard", "the IKE daemon blocks");

    let json = serde_json::to_string(&sent).unwrap();
    assert!(json.contains(r#""verdict":{"what":"protected","bytes":164}"#), "{json}");
    assert!(!json.contains("5e5e5e") && !json.contains("94,94"), "{json}");
    for (question, words) in [
        (Question { to: "fd00::1".parse().unwrap(), ..out }, "two IP versions"),
        (Question { bytes: 19, ..out }, "at least 20 bytes"),
        (Question { protocol: 1, ports: Some((256, 0)), ..out }, "up to 255"),
    ] {
        let error = trace(&gateway.state, None, question, Now(0)).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
}

/// A default route into an interface, and none to the peer.
#[test]
fn a_trace_knows_what_an_sa_sent_when_a_route_leads_it_into_its_interface() {
    let mut gateway = Gateway::with(INTERFACES);
    let everything = Network { address: [0, 0, 0, 0].into(), prefix_len: 0 };
    for if_id in [0, 42] {
        let mut policy = policy(PolicyDirection::Out, Action::Allow, Some(7), 0);
        policy.if_id = if_id;
        policy.info.selector.addresses =
            Addresses::Networks { source: everything, destination: everything };
        gateway.put(policy);
        let mut sa = sa(true, 0xabc + if_id, 7);
        sa.if_id = if_id;
        let Transform::Aead(aead) = &mut sa.transform else { panic!() };
        aead.key = Key::new(&[if_id as u8; 20]).unwrap();
        gateway.add(sa);
    }
    let ask = |protocol, if_id| {
        let esp = Question { protocol, ports: None, if_id, ..packet(HERE, THERE) };
        trace(&gateway.state, Some(&gateway.kernel), esp, Now(gateway.now_ns())).unwrap()
    };
    let looped = ask(50, 42);
    assert_eq!(looped.verdict, Verdict::Dropped);
    assert_eq!(looped.reason.unwrap().name, "routing-loop");
    assert!(looped.advice.unwrap().contains("add a route to the peer"));
    assert_eq!(looped.sa.unwrap().spi, "0x00000ae6");
    // Routes into the first interface are the gateway's own.
    assert!(matches!(ask(50, 0).verdict, Verdict::Protected { .. }));
    assert!(matches!(ask(41, 42).verdict, Verdict::Protected { .. }), "something else");
}
