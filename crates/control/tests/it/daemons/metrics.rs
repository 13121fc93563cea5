//! The page for Prometheus, and who serves it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use convoy_control::metrics::{self, Load, Server, Told, Tunnels};
use convoy_control::status::{
    Attached, Connections, Inputs, LeakProtection, QuestionCounts, Questions, Sampler, Text as _,
    observe, policy_report,
};
use convoy_control::xfrm::Moment;
use convoy_crypto::Cpu;
use convoy_ipsec::clock::Now;
use convoy_ipsec::drop_reason::DropReason;
use convoy_ipsec::event::{Event, SaId};
use convoy_ipsec::lifetime::Limit;
use convoy_ipsec::pipeline::WorkerCounters;
use convoy_ipsec::sa::SaSlot;
use convoy_ipsec::selector::Direction;
use convoy_wire::Spi;
use convoy_xfrm::{Action, Key, PolicyDirection, Request, SaQuery, Transform};

use super::{Gateway, INTERFACES, THERE, policy, sa};

/// Samples by name and labels, after a strict look at the format: every family has one HELP and one TYPE in
/// front of all its samples, counters end in `_total`, names and labels are of the allowed characters, and no
/// sample comes twice.
fn parse(page: &str) -> BTreeMap<String, f64> {
    assert!(page.ends_with('\n'));
    let is_name = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    let (mut samples, mut families) = (BTreeMap::new(), BTreeSet::new());
    let (mut family, mut helped) = (String::new(), String::new());
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').unwrap();
            assert!(text.ends_with('.') && families.insert(name.to_owned()), "{line}");
            helped = name.to_owned();
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(name == helped && is_name(name) && name.starts_with("convoy_"), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(matches!(kind, "counter" | "gauge"), "{line}");
            assert!(!name.contains("age") || kind == "counter", "times, not ages: {line}");
            family = name.to_owned();
        } else {
            let (key, value) = line.rsplit_once(' ').unwrap();
            let name = key.split('{').next().unwrap();
            assert_eq!(name, family, "{line}");
            let labels = key.strip_prefix(name).unwrap();
            if !labels.is_empty() {
                let inside = labels.strip_prefix('{').unwrap().strip_suffix("\"}").unwrap();
                for label in inside.split("\",") {
                    let (label, text) = label.split_once("=\"").unwrap();
                    assert!(is_name(label) && !text.contains('"'), "{line}");
                }
            }
            let value: f64 = value.parse().unwrap();
            assert!(value >= 0.0 && samples.insert(key.to_owned(), value).is_none(), "{line}");
        }
    }
    samples
}

struct Watched {
    gateway: Gateway,
    tunnels: Tunnels,
    told: Told,
    worker: Arc<WorkerCounters>,
    leak_protection: Option<LeakProtection>,
}

impl Watched {
    fn new() -> Self {
        let (tunnels, told) = (Tunnels::default(), Told::default());
        let leak_protection = None;
        Self { gateway: Gateway::new(), tunnels, told, worker: Arc::default(), leak_protection }
    }

    /// Lets the gateway look around.
    fn look(&mut self) {
        let snapshot = self.gateway.state.published().current();
        let now = Now(self.gateway.now_ns());
        self.tunnels.look(&snapshot, Some(&self.gateway.kernel), now);
    }

    fn text(&mut self) -> String {
        self.look();
        let Self { gateway, tunnels, told, worker, leak_protection } = self;
        let inputs = Inputs {
            now_ns: gateway.now_ns(),
            uptime: Duration::from_secs(60),
            workers: std::slice::from_ref(worker),
            counts: &[],
            broken: &[],
            lacking: &[],
            daemons: Some(&gateway.kernel),
            attached: &Attached::default(),
            leak_protection: leak_protection.clone(),
            confinement: None,
            wire: None,
        };
        let cpu = Cpu::detect().unwrap();
        let status = observe(&gateway.state, &cpu, &inputs, &mut Sampler::default());
        let pipeline = worker.clone();
        let load = Load { worker: 0, pipeline, sleeps: 12, busy_ns: 1_500_000_000, handed: (3, 4) };
        let now = gateway.now_ns();
        metrics::page(&metrics::Inputs {
            state: &gateway.state,
            daemons: Some(&gateway.kernel),
            status: &Arc::new(status),
            tunnels,
            told: *told,
            workers: &[load],
            at: Moment { unix_ns: 1_700_000_000_000_000_000 + now, worker: Now(now) },
        })
    }

    fn page(&mut self) -> BTreeMap<String, f64> {
        parse(&self.text())
    }

    fn remove(&mut self, spi: u32) {
        let key = sa(true, spi, 7).key();
        let others = convoy_xfrm::Others::default();
        self.gateway.ask(Request::DelSa(SaQuery { key, others }));
    }
}

const TUNNEL: &str = r#"origin="daemon",reqid="7",local="192.0.2.1",remote="192.0.2.2""#;

fn of(page: &BTreeMap<String, f64>, name: &str, way: Option<&str>) -> f64 {
    let way = way.map_or_else(String::new, |way| format!(",direction=\"{way}\""));
    let key = format!("convoy_tunnel_{name}{{{TUNNEL}{way}}}");
    *page.get(&key).unwrap_or_else(|| panic!("{key} is missing in {page:#?}"))
}

#[test]
fn totals_of_a_tunnel_survive_its_sas_and_a_tunnel_without_them_is_down() {
    let mut watched = Watched::new();
    watched.gateway.put(policy(PolicyDirection::Out, Action::Allow, Some(7), 0));
    let page = watched.page();
    assert_eq!(of(&page, "up", None), 0.0, "a policy without an SA");
    assert_eq!(page["convoy_policy_up{policy=\"xfrm-1\"}"], 0.0);

    watched.gateway.add(sa(true, 0xabc, 7));
    watched.gateway.add(sa(false, 0xdef, 7));
    watched.gateway.pass(0xabc, 5);
    watched.gateway.pass(0xdef, 2);
    let page = watched.page();
    assert_eq!((of(&page, "up", None), page["convoy_policy_up{policy=\"xfrm-1\"}"]), (1.0, 1.0));
    assert_eq!(of(&page, "packets_total", Some("outbound")), 5.0);
    assert_eq!(of(&page, "bytes_total", Some("inbound")), 200.0);
    assert_eq!(of(&page, "last_packet_timestamp_seconds", Some("outbound")), 1_700_000_098.0);
    assert_eq!(of(&page, "rekeys_total", None), 0.0);

    // Rekeyed: the old one goes, and its worker still counts a packet that was under way.
    watched.gateway.add(sa(true, 0xabd, 7));
    let snapshot = watched.gateway.state.published().current();
    let old = snapshot.outbound_sas().find(|(_, sa)| sa.spi.get() == 0xabc).unwrap().1.clone();
    drop(snapshot);
    watched.look();
    watched.remove(0xabc);
    watched.look();
    old.counters.packets.add(1);
    watched.gateway.pass(0xabd, 10);
    for _ in 0..4 {
        let page = watched.page();
        assert_eq!(of(&page, "packets_total", Some("outbound")), 16.0);
        assert_eq!((of(&page, "rekeys_total", None), of(&page, "up", None)), (1.0, 1.0));
    }
    watched.remove(0xabd);
    for _ in 0..4 {
        let page = watched.page();
        assert_eq!(
            (of(&page, "up", None), of(&page, "packets_total", Some("outbound"))),
            (0.0, 16.0)
        );
        assert_eq!(of(&page, "packets_total", Some("inbound")), 2.0);
    }
    // An SA that has reached its end passes nothing.
    watched.gateway.add(sa(true, 0xabe, 7));
    assert_eq!(of(&watched.page(), "up", None), 1.0);
    watched.gateway.seconds += 3601;
    assert_eq!(of(&watched.page(), "up", None), 0.0);
}

#[test]
fn questions_and_their_answers_are_on_the_page_where_there_are_some() {
    let mut watched = Watched::new();
    assert!(!watched.text().contains("convoy_questions_total"));
    let outbound = QuestionCounts {
        asked: Some(10),
        bypassed: 3,
        protected: 2,
        discarded: 1,
        unanswered: 7,
        queue_full: Some(4),
        unread: Some(5),
    };
    let inbound = QuestionCounts { discarded: 9, ..QuestionCounts::default() };
    let questions = Some(Questions { outbound, inbound });
    let detail = String::new();
    let connections = Some(Connections { entries: 236_000, limit: 262_144 });
    watched.leak_protection = Some(LeakProtection { is_on: true, detail, questions, connections });
    watched.gateway.put(policy(PolicyDirection::Out, Action::Allow, None, 0));
    let state = &watched.gateway.state;
    let snapshot = state.published().current();
    let spd = snapshot.spd_of(state.plain_spd()).unwrap();
    let (id, _) = spd.policies().find(|(_, policy)| &*policy.name == "xfrm-1").unwrap();
    (0..3).for_each(|_| spd.count_question(id));
    let page = watched.page();
    for (key, value) in [
        ("questions_total{direction=\"outbound\"}", 10.0),
        ("answers_total{direction=\"outbound\",verdict=\"bypass\"}", 3.0),
        ("answers_total{direction=\"outbound\",verdict=\"protect\"}", 2.0),
        ("answers_total{direction=\"inbound\",verdict=\"discard\"}", 9.0),
        ("unanswered_packets_total{direction=\"outbound\"}", 7.0),
        ("question_overflows_total{direction=\"outbound\",place=\"queue\"}", 4.0),
        ("question_overflows_total{direction=\"outbound\",place=\"socket\"}", 5.0),
        ("conntrack_entries", 236_000.0),
        ("conntrack_entries_limit", 262_144.0),
        ("policy_questions_total{policy=\"xfrm-1\",direction=\"outbound\"}", 3.0),
    ] {
        assert_eq!(page.get(&format!("convoy_{key}")), Some(&value), "{key} in {page:#?}");
    }
    // What the kernel does not tell of the other way is left out.
    for name in ["questions_total{", "question_overflows_total{"] {
        let some = page.keys().filter(|key| key.contains(name));
        assert!(some.into_iter().all(|key| key.contains("outbound")), "{page:#?}");
    }
    let Gateway { state, kernel, .. } = &watched.gateway;
    let report = policy_report(state, Some(kernel), 0);
    let asked = report.policies.iter().find(|policy| policy.name == "xfrm-1").unwrap();
    assert_eq!((asked.asked_out, asked.asked_in), (3, 0));
    let text = report.text();
    assert!(text.contains("verdicts out") && text.contains("verdicts in"), "{text}");
}

/// Two interfaces may have tunnels between the same ends under one reqid.
#[test]
fn tunnels_of_interfaces_are_told_apart() {
    let mut watched = Watched::new();
    watched.gateway = Gateway::with(INTERFACES);
    for (n, if_id) in (0..).zip([0, 42, 43]) {
        let mut asks = policy(PolicyDirection::Out, Action::Allow, Some(7), n);
        asks.if_id = if_id;
        watched.gateway.put(asks);
    }
    for (if_id, packets) in [(0, 3), (42, 5)] {
        let mut sa = sa(true, 0xabc + if_id, 7);
        sa.if_id = if_id;
        let Transform::Aead(aead) = &mut sa.transform else { panic!() };
        aead.key = Key::new(&[if_id as u8; 20]).unwrap();
        watched.gateway.add(sa);
        watched.gateway.pass(0xabc + if_id, packets);
    }
    let page = watched.page();
    assert_eq!(of(&page, "packets_total", Some("outbound")), 3.0, "none has no label");
    let of = |name: &str, if_id: u32, way: &str| {
        let ends = r#"local="192.0.2.1",remote="192.0.2.2""#;
        let labels = format!(r#"origin="daemon",reqid="7",if_id="{if_id}",{ends}{way}"#);
        page.get(&format!("convoy_tunnel_{name}{{{labels}}}")).copied()
    };
    let outbound = r#",direction="outbound""#;
    assert_eq!(of("packets_total", 42, outbound), Some(5.0));
    assert_eq!(of("packets_total", 43, outbound), None, "it never had an SA");
    assert_eq!([42, 43].map(|if_id| of("up", if_id, "")), [Some(1.0), Some(0.0)]);
}

#[test]
fn drops_events_and_workers_are_counted_and_no_key_is_shown() {
    let mut watched = Watched::new();
    watched.gateway.add(sa(true, 0xabc, 7));
    watched.worker.drops.add(DropReason::NoPolicy, 9);
    watched.worker.outbound_packets.add(11);
    let (direction, spi) = (Direction::Outbound, Spi::new(0xabc).unwrap());
    let id = SaId { direction, spi, destination: THERE.into(), slot: SaSlot(0), serial: 0 };
    watched.told.count(&Event::Soft { sa: id, limit: Limit::Bytes });
    watched.told.count(&Event::Hard { sa: id, limit: Limit::Bytes });
    watched.told.count(&Event::Mapping { sa: id, from: "[::1]:1".parse().unwrap() });
    watched.told.count(&Event::Mapping { sa: id, from: "[::1]:1".parse().unwrap() });
    let page = watched.page();
    for (key, value) in [
        (r#"convoy_dropped_packets_total{reason="no-policy"}"#, 9.0),
        (r#"convoy_dropped_packets_total{reason="too-big"}"#, 0.0),
        (r#"convoy_sa_expirations_total{limit="soft"}"#, 1.0),
        (r#"convoy_sa_expirations_total{limit="hard"}"#, 1.0),
        ("convoy_mappings_total", 2.0),
        ("convoy_acquires_total", 0.0),
        (r#"convoy_worker_packets_total{worker="0",direction="outbound"}"#, 11.0),
        (r#"convoy_worker_sleeps_total{worker="0"}"#, 12.0),
        (r#"convoy_worker_busy_seconds_total{worker="0"}"#, 1.5),
        (r#"convoy_worker_handed_packets_total{worker="0",way="taken"}"#, 4.0),
        (r#"convoy_sas{direction="outbound"}"#, 1.0),
        ("convoy_start_time_seconds", 1_700_000_040.0),
    ] {
        assert_eq!(page.get(key), Some(&value), "{key}");
    }
    let reasons = page.keys().filter(|key| key.starts_with("convoy_dropped_packets_total")).count();
    assert_eq!(reasons, DropReason::ALL.len());
    let text = watched.text();
    assert!(!text.contains("5e5e5e") && !text.contains("94,94"), "{text}");
}

/// Sends bytes and reads all of the answer.
fn say(server: &Server, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.local()).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn server() -> Server {
    Server::start("127.0.0.1:0".parse().unwrap(), || "page 1\n".to_owned()).unwrap()
}

#[test]
fn the_page_is_served_and_nothing_else() {
    let server = server();
    let good = say(&server, b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n");
    let (head, body) = good.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4"), "{head}");
    assert!(head.contains("Content-Length: 7") && body == "page 1\n", "{good}");
    for (request, status) in [
        (&b"GET /metrics?x=1 HTTP/1.0\n\n"[..], "200 OK"),
        (b"GET / HTTP/1.1\r\n\r\n", "404 "),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "405 "),
        (b"GET /metrics HTTP/2.0\r\n\r\n", "400 "),
        (b"GET /metrics\r\n\r\n", "400 "),
        (b"\xff\xfe\x00 \x80 HTTP/1.1\r\n\r\n", "400 "),
        (b"\r\n\r\n", "400 "),
        (&[b'a'; 9000], "431 "),
    ] {
        let answer = say(&server, request);
        let shown = String::from_utf8_lossy(request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{shown:.40}: {answer}");
        assert!(status.starts_with("200") || !answer.contains("page 1"), "{answer}");
    }
    let head = say(&server, b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
}

/// A server of a page of so many bytes, and how often it was made.
fn counting(bytes: usize) -> (Server, Arc<AtomicUsize>) {
    let made = Arc::new(AtomicUsize::new(0));
    let counted = made.clone();
    let page = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        "x".repeat(bytes)
    };
    (Server::start("127.0.0.1:0".parse().unwrap(), page).unwrap(), made)
}

#[test]
fn one_page_serves_all_who_ask_within_a_second_and_head_makes_none() {
    let (server, made) = counting(10_000);
    let head = say(&server, b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert_eq!(made.load(Ordering::Relaxed), 0);
    let begin = std::time::Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let page = say(&server, b"GET /metrics HTTP/1.1\r\n\r\n");
                    assert!(page.ends_with(&"x".repeat(10_000)), "{page:.200}");
                }
            });
        }
    });
    // However long the 300 answers took.
    let most = begin.elapsed().as_secs() as usize + 1;
    assert!((1..=most).contains(&made.load(Ordering::Relaxed)), "{made:?} pages, {most} at most");
}

/// A client that says nothing, or does not read its answer, gives way to the next one.
#[test]
fn idle_and_slow_clients_keep_nobody_out() {
    let (server, _) = counting(64 << 20);
    let silent: Vec<_> = (0..30).map(|_| TcpStream::connect(server.local()).unwrap()).collect();
    let answer = say(&server, b"GET / HTTP/1.1\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    let ended = silent.iter().take(20).filter(|stream| {
        let mut stream = *stream;
        matches!(stream.read(&mut [0]), Ok(0) | Err(_))
    });
    assert_eq!(ended.count(), 20, "the oldest gave way");
    let slow: Vec<_> = (0..16)
        .map(|_| {
            let mut stream = TcpStream::connect(server.local()).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
            // It is being answered.
            stream.read_exact(&mut [0; 100]).unwrap();
            stream
        })
        .collect();
    let answer = say(&server, b"GET / HTTP/1.1\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    drop(slow);
}

/// Clients that connect and say nothing occupy a few places, and nothing more.
#[test]
fn silent_clients_are_bounded_and_the_server_ends_all_the_same() {
    let server = server();
    let _silent: Vec<_> = (0..30).map(|_| TcpStream::connect(server.local()).unwrap()).collect();
    let taken = server.local();
    assert!(Server::start(taken, String::new).is_err());
    drop(server);
    assert!(TcpStream::connect(taken).is_err());
}
