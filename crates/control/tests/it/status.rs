//! The status of a gateway from its state and counters: types, JSON, text, health.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use convoy_control::site::Site;
use convoy_control::state::{ReloadReport, State};
use convoy_control::status::{
    Attached, DirectionStatus, Inputs, Level, LifetimeState, NamedCount, PolicyReport, Sampler,
    Status, Text, Use, observe, policy_report, sa_report,
};
use convoy_crypto::Cpu;
use convoy_ipsec::drop_reason::DropReason;
use convoy_ipsec::event::{Event, SaId};
use convoy_ipsec::lifetime::Limit;
use convoy_ipsec::pipeline::WorkerCounters;
use convoy_ipsec::sa::{ReqId, SaSlot};
use convoy_ipsec::selector;
use convoy_ipsec::sequence::{SequenceCounter, SequenceLimits};
use convoy_ipsec::spd::{Decision, PolicyAction};
use convoy_wire::{FlowKey, Ports, Protocol, SeqNum, Spi};

const SITE: &str = r#"
name = "left"
state_dir = "."
[plain]
interface = "tun"
[[sa]]
name = "out"
direction = "outbound"
spi = 0x1001
local = "192.0.2.1"
remote = "192.0.2.2"
algorithm = "aes-128-gcm"
key = "0101010101010101010101010101010101010101"
esn = false
encap = "udp"
[[sa]]
name = "in"
direction = "inbound"
spi = 0x1002
local = "192.0.2.1"
remote = "192.0.2.2"
algorithm = "aes-256-gcm"
icv = 12
key = "020202020202020202020202020202020202020202020202020202020202020202020202"
[[policy]]
name = "web"
action = "protect"
local = "10.1.0.0/24"
remote = ["10.2.0.0/24", "10.2.1.5-10.2.1.9"]
protocol = "tcp"
remote_port = 443
sa_out = "out"
sa_in = "in"
"#;

struct Bench {
    dir: tempfile::TempDir,
    state: State,
    worker: Arc<WorkerCounters>,
    sampler: Sampler,
    now_ns: u64,
    lacking: Vec<String>,
}

impl Bench {
    fn new() -> Self {
        Self::of(SITE)
    }

    fn of(text: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o700)).unwrap();
        Self::in_folder(dir, text)
    }

    fn in_folder(dir: tempfile::TempDir, text: &str) -> Self {
        let path = dir.path().join("left.toml");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        let (site, _) = Site::load(&path).unwrap_or_else(|errors| panic!("{errors}"));
        let state = State::start(site, Cpu::detect().unwrap(), 1500, |_| {}).unwrap();
        Self {
            dir,
            state,
            worker: Arc::default(),
            sampler: Sampler::default(),
            now_ns: 0,
            lacking: Vec::new(),
        }
    }

    /// The status one second later.
    fn look(&mut self, kernel_drops: u64) -> Status {
        let name = "wire.kernel-drops";
        self.see(&[NamedCount { name, value: kernel_drops, is_kernel_drop: true }], &[])
    }

    fn see(&mut self, counts: &[NamedCount<'_>], broken: &[String]) -> Status {
        self.now_ns += 1_000_000_000;
        let inputs = Inputs {
            now_ns: self.now_ns,
            uptime: Duration::from_secs(3700),
            workers: std::slice::from_ref(&self.worker),
            counts,
            broken,
            lacking: &self.lacking,
            daemons: None,
            attached: &Attached::default(),
            leak_protection: None,
            confinement: None,
            wire: None,
        };
        observe(&self.state, &Cpu::detect().unwrap(), &inputs, &mut self.sampler)
    }

    fn policies(&self) -> PolicyReport {
        policy_report(&self.state, None, self.now_ns)
    }

    fn pass(&self, packets: u64) {
        let snapshot = self.state.published().current();
        let (_, sa) = snapshot.outbound_sas().next().unwrap();
        sa.counters.packets.add(packets);
        sa.counters.bytes.add(packets * 1000);
        sa.counters.last_packet_ns.set(self.now_ns + 500_000_000);
        self.worker.outbound_packets.add(packets);
        self.worker.outbound_bytes.add(packets * 1000);
    }
}

#[test]
fn rates_ages_and_numbers_left_are_told() {
    let mut bench = Bench::new();
    let quiet = bench.look(0);
    assert_eq!(
        (quiet.health.level, quiet.outbound.last_packet_s, quiet.outbound.packets_per_second),
        (Level::Ok, None, None)
    );
    let snapshot = bench.state.published().current();
    let lease = snapshot.outbound_sas().next().unwrap().1.lease.clone();
    let mut counter =
        SequenceCounter::claim(lease.as_arc().clone(), SeqNum::new(0), SequenceLimits::new(false))
            .unwrap();
    counter.reserve(100).unwrap().for_each(drop);
    bench.pass(100);
    snapshot.outbound_sas().next().unwrap().1.counters.sequence.set(100);
    let status = bench.look(0);
    assert_eq!(status.outbound.packets_per_second, Some(100.0));
    assert_eq!(status.outbound.bits_per_second, Some(800_000.0));
    assert_eq!(status.outbound.last_packet_s, Some(0.5));
    let DirectionStatus::Outbound { sequence, left, exhausted_in_s, leased_until, path_mtu } =
        status.sas[0].direction
    else {
        panic!()
    };
    assert_eq!((sequence, left, path_mtu), (100, u64::from(u32::MAX) - 100, 1500));
    assert_eq!(exhausted_in_s, Some(left as f64 / 100.0));
    assert!(leased_until > 1 << 20);
    assert_eq!(status.sas[0].udp_ports, Some((4500, 4500)));
    assert_eq!((status.sas[1].algorithm.as_str(), status.kernel_drops), ("aes-256-gcm-12", 0));
}

/// Numbers are announced many at a time, before the first of them is sent.
#[test]
fn the_last_number_is_one_that_was_sent() {
    let mut bench = Bench::new();
    let snapshot = bench.state.published().current();
    let sa = snapshot.outbound_sas().next().unwrap().1;
    let last = SequenceLimits::new(false).hard;
    sa.lease.grant(last.get() + 1);
    let shown = |bench: &mut Bench| match bench.look(0).sas[0].direction {
        DirectionStatus::Outbound { sequence, left, .. } => (sequence, left),
        DirectionStatus::Inbound { .. } => panic!(),
    };
    assert_eq!(shown(&mut bench), (0, last.get()));

    // A key that was in use before goes on where the stored numbers end.
    let start = SeqNum::new(last.get() - 3);
    let limits = SequenceLimits::new(false);
    let mut counter = SequenceCounter::claim(sa.lease.as_arc().clone(), start, limits).unwrap();
    for number in start.get()..=last.get() {
        assert_eq!(counter.next().unwrap().into_number().get(), number);
        sa.counters.sequence.set(number);
        assert_eq!(sa.lease.used(), last, "all that are left were announced");
        assert_eq!(shown(&mut bench), (number, last.get() - number));
        let health = bench.look(0).health;
        let is_over = health.reasons.iter().any(|reason| reason.contains("no sequence numbers"));
        assert_eq!(is_over, number == last.get(), "{health:?}");
    }
}

/// Before the first packet of a run, what earlier runs used is shown.
#[test]
fn numbers_of_earlier_runs_are_shown_before_the_first_packet() {
    let first = Bench::new();
    let snapshot = first.state.published().current();
    let lease = snapshot.outbound_sas().next().unwrap().1.lease.clone();
    let limits = SequenceLimits::new(false);
    let mut counter =
        SequenceCounter::claim(lease.as_arc().clone(), SeqNum::new(0), limits).unwrap();
    counter.reserve(100).unwrap().for_each(drop);
    drop((counter, snapshot));
    let Bench { dir, state, .. } = first;
    drop(state);

    let mut second = Bench::in_folder(dir, SITE);
    let DirectionStatus::Outbound { sequence, left, .. } = second.look(0).sas[0].direction else {
        panic!()
    };
    assert!(sequence >= 100, "{sequence}");
    assert_eq!(left, limits.hard.get() - sequence);
}

#[test]
fn json_is_read_back_and_names_directions() {
    let mut bench = Bench::new();
    bench.worker.drops.count(DropReason::NoPolicy);
    let status = bench.look(3);
    let json = serde_json::to_string(&status).unwrap();
    assert_eq!(serde_json::from_str::<Status>(&json).unwrap(), status);
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["schema"], 1);
    assert_eq!(value["sas"][0]["direction"], "outbound");
    assert_eq!(value["sas"][1]["direction"], "inbound");
    assert_eq!(value["drops"][0]["reason"], "no-policy");
    assert_eq!(value["kernel_drops"], 3);
    assert!(!json.contains("0101010101"), "keys are not part of the status");
}

#[test]
fn what_wants_attention_is_told_with_an_exit_code() {
    let mut bench = Bench::new();
    bench.look(0);
    assert_eq!(bench.look(0).health.level.exit_code(), 0);
    bench.worker.drops.count(DropReason::BadIcv);
    let forged = bench.look(0).health;
    assert_eq!(forged.level.exit_code(), 1);
    assert!(forged.reasons[0].contains("packets arrive with a wrong ICV"), "{forged:?}");
    let kernel = bench.look(9).health;
    assert!(
        kernel.reasons.iter().any(|reason| reason.contains("kernel drops packets")),
        "{kernel:?}"
    );
    bench.worker.drops.count(DropReason::LeaseExhausted);
    assert_eq!(bench.look(9).health.level.exit_code(), 2);
    // A billion packets a second end 32-bit numbers within seconds.
    let mut fast = Bench::new();
    fast.look(0);
    fast.pass(1_000_000_000);
    let soon = fast.look(0).health;
    assert_eq!(soon.level, Level::Warning);
    assert!(soon.reasons[0].contains("SA out runs out of sequence numbers"), "{soon:?}");
}

/// A tunnel whose peer was killed sends and hears nothing.
#[test]
fn a_peer_that_answers_nothing_for_a_while_is_told() {
    let mut bench = Bench::new();
    let level = |bench: &mut Bench| bench.look(0).health.level;
    bench.look(0);
    let sends = |bench: &mut Bench, seconds: u32| {
        (0..seconds).for_each(|_| {
            bench.pass(1);
            bench.look(0);
        });
    };
    sends(&mut bench, 29);
    assert_eq!(level(&mut bench), Level::Ok, "an answer may take its time");
    sends(&mut bench, 4);
    let health = bench.look(0).health;
    assert_eq!(health.level, Level::Warning);
    assert!(health.reasons[0].starts_with("no packet has come from 192.0.2.2 for 3"), "{health:?}");
    let hear = |bench: &Bench| {
        let snapshot = bench.state.published().current();
        let (_, sa) = snapshot.inbound_sas().next().unwrap();
        sa.counters.last_packet_ns.set(bench.now_ns + 700_000_000);
    };
    hear(&bench);
    assert_eq!(level(&mut bench), Level::Ok, "it answers again");
    // A packet now and then is no question without an answer.
    for _ in 0..3 {
        bench.pass(1);
        (0..40).for_each(|_| assert_eq!(level(&mut bench), Level::Ok));
    }
}

#[test]
fn packets_lost_for_want_of_something_are_critical_and_few_of_many_a_warning() {
    for (reason, told) in [
        (DropReason::NoSa, "no SA"),
        (DropReason::AcquireTimeout, "packets that waited for an SA are dropped"),
        (DropReason::AcquireFull, "too many wait for an SA"),
        (DropReason::BypassImpossible, "unprotected"),
        (DropReason::RingFull, "does not keep up"),
        (DropReason::NoFrame, "all frames are in use"),
        (DropReason::EngineRejected, "engine"),
        (DropReason::IoTxFailed, "cannot be sent"),
        (DropReason::IoTxTooBig, "path_mtu"),
    ] {
        let mut bench = Bench::new();
        assert_eq!(bench.look(0).health.level, Level::Ok);
        bench.worker.drops.add(reason, 1);
        let all = bench.look(0).health;
        assert_eq!(all.level, Level::Critical, "{reason:?}");
        assert!(all.reasons[0].contains(told), "{all:?}");
        bench.pass(99);
        assert_eq!(bench.look(0).health.level, Level::Critical, "one in a hundred");
        bench.pass(1);
        assert_eq!(bench.look(0).health.level, Level::Warning, "less");
        // What was seconds ago is over.
        for _ in 0..6 {
            bench.look(0);
        }
        assert_eq!(bench.look(0).health.level, Level::Ok, "{reason:?}");
    }
    // Anybody can cause these.
    for (reason, told) in [
        (DropReason::BadIcv, "packets arrive with a wrong ICV"),
        (DropReason::TooOld, "too old"),
        (DropReason::EncapMismatch, "`encap`"),
    ] {
        let mut bench = Bench::new();
        bench.look(0);
        bench.worker.drops.add(reason, 1000);
        let health = bench.look(0).health;
        assert_eq!(health.level, Level::Warning, "{reason:?}");
        assert!(health.reasons[0].contains(told), "{health:?}");
    }
}

#[test]
fn what_cannot_be_sent_is_told_with_the_cause_that_ports_know() {
    for (cause, said) in [
        ("wire.tx-no-route", "no route leads to their destination through the interface"),
        (
            "wire.tx-denied",
            "a rule of this host's packet filter drops them (`nft list ruleset`, chains of output)",
        ),
    ] {
        let mut bench = Bench::new();
        let counts = |of_cause| {
            [cause, "wire.tx-error"].map(|name| NamedCount {
                name,
                value: if name == cause { of_cause } else { 7 },
                is_kernel_drop: false,
            })
        };
        bench.see(&counts(0), &[]);
        bench.worker.drops.add(DropReason::IoTxFailed, 5);
        let health = bench.see(&counts(5), &[]).health;
        assert_eq!(health.reasons, [format!("packets cannot be sent: {said} ({cause})")]);
    }
}

#[test]
fn what_leak_protection_drops_for_want_of_a_way_is_told_while_it_goes_on() {
    for (name, said) in [
        (
            "leak-protection.past-interface",
            "they would leave past the TUN interface: a route or an ip rule leads them there, or",
        ),
        ("leak-protection.question-overflows", "more verdicts than the gateway can give"),
    ] {
        let mut bench = Bench::new();
        let mut look =
            |value| bench.see(&[NamedCount { name, value, is_kernel_drop: false }], &[]).health;
        assert_eq!(look(7).reasons, [""; 0]);
        let health = look(8);
        assert_eq!(health.level, Level::Warning);
        assert!(health.reasons[0].contains(said), "{health:?}");
        let last = (0..60).map(|_| look(8)).last().unwrap();
        assert_eq!(last.reasons, [""; 0]);
    }
}

#[test]
fn what_the_gateway_can_do_without_is_worth_a_warning() {
    let mut bench = Bench::new();
    bench.lacking.push("metrics are not served".to_owned());
    let health = bench.see(&[], &[]).health;
    assert_eq!(health.level, Level::Warning);
    assert_eq!(health.reasons, ["metrics are not served"]);
}

#[test]
fn an_interface_that_is_gone_is_critical() {
    let mut bench = Bench::new();
    let health = bench.see(&[], &["interface w0: is gone".to_owned()]).health;
    assert_eq!((health.level, health.reasons.len()), (Level::Critical, 1));
    assert!(health.reasons[0].contains("w0"), "{health:?}");
}

#[test]
fn texts_show_what_a_person_looks_for() {
    let mut bench = Bench::new();
    bench.look(0);
    bench.pass(12_345);
    bench.worker.drops.add(DropReason::Replayed, 2);
    let text = bench.look(1).text();
    for part in [
        "left: warning, up 1 h 1 min, 1 worker",
        "12 345",
        "98.8 Mbit/s",
        "192.0.2.2:4500",
        "replayed",
        "(kernel)",
        "4 294 967 295",
        "never",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let sas = sa_report(&bench.state, None, bench.now_ns, &mut bench.sampler).text();
    assert!(
        sas.contains("outbound SA") && sas.contains("inbound SA") && sas.contains("0x00001002"),
        "{sas}"
    );
    let policies = bench.policies().text();
    assert!(policies.contains("10.2.0.0/24, 10.2.1.5-10.2.1.9"), "{policies}");
    assert!(policies.contains("tcp port any to 443"), "{policies}");
    for text in [text, sas, policies] {
        assert!(text.ends_with('\n') && text.lines().all(|line| line == line.trim_end()), "{text}");
        assert!(!text.contains('\u{1b}'));
    }
}

#[test]
fn what_policies_decided_is_told_and_whose_packets_that_are() {
    let more = "[[policy]]\nname = \"mail\"\naction = \"protect\"\nlocal = \"10.1.0.0/24\"\n\
                remote = \"10.3.0.0/24\"\nsa_out = \"out\"\nsa_in = \"in\"\n[[policy]]\nname = \"none\"\n\
                action = \"discard\"\nlocal = \"10.1.0.0/24\"\nremote = \"10.4.0.0/24\"\n";
    let mut bench = Bench::of(&format!("{SITE}{more}"));
    bench.look(0);
    bench.pass(100);
    let snapshot = bench.state.published().current();
    let (_, sa) = snapshot.inbound_sas().next().unwrap();
    sa.counters.packets.add(7);
    bench.look(0);
    let report = bench.policies();
    let [web, mail, none] = &report.policies[..] else { panic!("{report:?}") };
    let sent = Use { packets: 100, bytes: 100_000, last_packet_s: Some(0.5) };
    let received = Use { packets: 7, ..Use::default() };
    assert_eq!((web.sent, web.received, web.shared), (sent, received, true));
    assert_eq!((mail.sent, mail.received, mail.shared), (sent, received, true));
    assert_eq!((none.sent, none.received, none.shared), (Use::default(), Use::default(), false));
    let text = report.text();
    assert!(text.contains("100*") && text.contains("* with packets of other policies"), "{text}");
}

#[test]
fn a_large_reload_is_told_in_a_few_words() {
    let names = |count: usize| (0..count).map(|n| format!("sa-{n}")).collect::<Vec<_>>();
    let report = |count| ReloadReport { sas_added: names(count), ..ReloadReport::default() };
    let text = report(10_000).text();
    let few = "SAs added: 10000 (sa-0, sa-1, sa-2, sa-3, sa-4 and 9995 more)\n";
    assert_eq!(text, format!("{few}SAs unchanged: 0\n"));
    assert!(report(2).text().contains("SAs added: sa-0, sa-1\n"));
}

#[test]
fn lifetimes_are_shown_with_what_is_left_of_them() {
    let mut bench = Bench::new();
    let quiet = bench.look(0);
    assert_eq!(quiet.sas[0].lifetime, None);
    assert!(!quiet.text().contains("lifetime left"), "{}", quiet.text());
    let mut bench = Bench::of(&SITE.replacen(
        "encap = \"udp\"",
        "encap = \"udp\"\nlifetime = { soft = { packets = 10 }, hard = { packets = 20, bytes = 5000, age_s = 7200 } }",
        1,
    ));
    let sa = bench.state.published().current().outbound(SaSlot(0)).unwrap().clone();
    let usage = &sa.counters.usage;
    usage.added_ns.set(1);
    let use_up = |packets| {
        usage.packets.add(packets);
        usage.bytes.add(packets * 100);
    };
    use_up(9);
    let status = bench.look(0);
    let lifetime = status.sas[0].lifetime.unwrap();
    assert_eq!((lifetime.state, lifetime.packets, lifetime.bytes), (LifetimeState::Live, 9, 900));
    assert_eq!((lifetime.soft.packets, lifetime.hard.packets), (Some(1), Some(11)));
    assert_eq!((lifetime.soft.bytes, lifetime.hard.bytes), (None, Some(4100)));
    assert!(lifetime.hard.age_s.is_some_and(|left| (7198.0..7200.0).contains(&left)));
    assert_eq!((status.sas[1].lifetime, status.health.level), (None, Level::Ok));
    assert!(status.text().contains("1 h 59 min, 4.10 kB, 11 packets"), "{}", status.text());
    use_up(1);
    let status = bench.look(0);
    assert_eq!(
        status.health.reasons,
        ["SA out nears the end of its lifetime: give it a new key soon"]
    );
    assert!(status.text().contains("10 packets (replace it)"), "{}", status.text());
    use_up(10);
    let status = bench.look(0);
    assert_eq!(status.health.level, Level::Critical);
    assert!(status.text().contains("EXPIRED") && status.text().contains("no limit"));
}

#[test]
fn events_are_told_by_the_names_of_their_sas() {
    let bench = Bench::new();
    let snapshot = bench.state.published().current();
    let sa = SaId {
        direction: selector::Direction::Inbound,
        spi: Spi::new(0x1002).unwrap(),
        destination: "192.0.2.1".parse().unwrap(),
        slot: SaSlot(0),
        serial: 0,
    };
    let told = |event| convoy_control::event::describe(&snapshot, bench.state.plain_spd(), &event);
    assert_eq!(
        told(Event::Soft { sa, limit: Limit::Bytes }),
        (
            Level::Warning,
            "inbound SA in (SPI 0x00001002 to 192.0.2.1) reached a soft limit (bytes): give it a new key"
                .to_owned()
        )
    );
    let (level, text) = told(Event::Hard { sa, limit: Limit::Sequence });
    assert!(level == Level::Critical && text.contains("and its packets are dropped"), "{text}");
    let (level, text) = told(Event::Mapping { sa, from: "203.0.113.5:61000".parse().unwrap() });
    assert!(
        level == Level::Warning
            && text.starts_with(
                "packets of inbound SA in (SPI 0x00001002 to 192.0.2.1) now come from 203.0.113.5:61000, "
            ),
        "{text}"
    );
    let gone = SaId { spi: Spi::new(0x1003).unwrap(), ..sa };
    let (_, text) = told(Event::Hard { sa: gone, limit: Limit::Packets });
    assert!(
        text.starts_with("inbound SA with SPI 0x00001003 to 192.0.2.1 (already removed)"),
        "{text}"
    );
}

#[test]
fn a_policy_that_needs_an_sa_is_told_by_name() {
    let bench = Bench::of(&SITE.replacen("sa_out = \"out\"", "acquire = true", 1));
    let (snapshot, spd) = (bench.state.published().current(), bench.state.plain_spd());
    let ports = Ports::Known { src: 40000, dst: 443 };
    let to = |destination: &str| {
        let ends = ("10.1.0.5".parse().unwrap(), destination.parse().unwrap());
        let flow = FlowKey::new(ends.0, ends.1, Protocol::TCP, ports).unwrap();
        let reqid = match snapshot.spd_of(spd).unwrap().lookup(selector::Direction::Outbound, &flow)
        {
            Some(Decision { action: PolicyAction::Protect { reqid }, .. }) => reqid,
            _ => ReqId(0),
        };
        (reqid, convoy_control::event::describe(&snapshot, spd, &Event::Acquire { reqid, flow }).1)
    };
    let (reqid, line) = to("10.2.0.7");
    assert!(snapshot.is_on_demand(reqid) && snapshot.outbound_for(reqid).is_none());
    assert_eq!(
        line,
        "policy web has no SA for a packet from 10.1.0.5 to 10.2.0.7: add one to the site file and reload"
    );
    let (_, line) = to("10.99.0.1");
    assert!(line.starts_with("policy has no SA"), "gone since: {line}");
    let policies = bench.policies();
    assert!(policies.policies[0].acquire && policies.text().contains("(on demand)"));
}
