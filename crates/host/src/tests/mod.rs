//! Plans on a real network stack: each test has a namespace of its own, made on its own thread.

mod neighbours;

use std::{io::Write as _, net::IpAddr, thread};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    RouteNetlinkMessage as Message,
    link::{InfoData, InfoKind, InfoVeth, LinkAttribute, LinkInfo, LinkMessage},
};
use nix::sched::{CloneFlags, unshare};

use crate::*;

/// Runs a test on a thread in a fresh network namespace with a veth pair `va`–`vb`, both down.
pub(crate) fn in_namespace(test: impl FnOnce() + Send + 'static) {
    let run = move || match unshare(CloneFlags::CLONE_NEWNET) {
        Ok(()) => {
            let mut peer = LinkMessage::default();
            peer.attributes.push(LinkAttribute::IfName("vb".into()));
            let mut message = LinkMessage::default();
            message.attributes.push(LinkAttribute::IfName("va".into()));
            message.attributes.push(LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Veth),
                LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
            ]));
            let mut network = Network::open().unwrap();
            let order = Message::NewLink(message);
            network.rtnl.change(order, NLM_F_CREATE | NLM_F_EXCL).unwrap();
            // Some images switch IPv6 off by default.
            for link in ["va", "vb", "lo"] {
                if let Ok(applied) =
                    set(&Sysctl::disable_ipv6(&Scope::Link(name(link))), "0").apply()
                {
                    std::mem::forget(applied);
                }
            }
            test();
        }
        Err(errno) => {
            // Past the harness, which would keep it from being seen.
            let mut out = std::io::stderr();
            let _ = writeln!(out, "SKIPPED: cannot make a network namespace here: {errno}");
        }
    };
    if let Err(panic) = thread::spawn(run).join() {
        std::panic::resume_unwind(panic);
    }
}

fn name(text: &str) -> LinkName {
    LinkName::new(text).unwrap()
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn up(link: &str) -> Change {
    Change::LinkUp { link: name(link) }
}

fn mtu(link: &str, mtu: u32) -> Change {
    Change::Mtu { link: name(link), mtu }
}

fn alias(link: &str, alias: &str) -> Change {
    Change::Alias { link: name(link), alias: alias.into() }
}

fn address(link: &str, address: &str) -> Change {
    Change::Address { link: name(link), address: net(address) }
}

fn route(to: &str, link: &str) -> Change {
    Change::route(net(to), name(link))
}

fn set(key: &Sysctl, value: &str) -> Plan {
    Plan::from_iter([Change::Sysctl { key: key.clone(), value: value.into() }])
}

/// Interfaces (name, MTU, up), addresses and routes.
type State = (Vec<(String, u32, bool)>, Vec<IpNet>, Vec<RouteEntry>);

fn state() -> State {
    let mut network = Network::open().unwrap();
    let links = network.links().unwrap().into_iter().map(|l| (l.name, l.mtu, l.up)).collect();
    (links, network.addresses(None).unwrap(), network.routes().unwrap())
}

fn cause(result: Result<Applied, HostError>) -> Cause {
    match result {
        Err(HostError::Change { cause, left, .. }) => {
            assert_eq!(left, []);
            cause
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_plan_is_described_in_plain_words_and_survives_serialisation() {
    let mut full = Route {
        to: net("192.0.2.7/24"),
        link: name("tun0"),
        via: Some("198.51.100.1".parse().unwrap()),
        source: Some("198.51.100.2".parse().unwrap()),
        metric: Some(50),
        table: Some(220),
        mtu: Some(1400),
    };
    let forwarding = Sysctl::forwarding(Family::V4, &Scope::All);
    let plan = Plan::from_iter([
        up("tun0"),
        mtu("tun0", 1438),
        address("tun0", "2001:db8::1/64"),
        Change::Route(full.clone()),
        Change::Sysctl { key: forwarding, value: "1".into() },
    ]);
    assert_eq!(
        plan.describe(),
        [
            "set interface tun0 up",
            "set the MTU of interface tun0 to 1438 bytes",
            "add address 2001:db8::1/64 to tun0",
            "add route to 192.0.2.0/24 through tun0, next hop 198.51.100.1, source 198.51.100.2, \
             metric 50, table 220, MTU 1400",
            "set net/ipv4/conf/all/forwarding to 1",
        ]
    );
    let json = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);
    full.table = None;
    assert_eq!(full.table_or_main(), 254);
}

#[test]
fn everything_is_applied_and_taken_back() {
    in_namespace(|| {
        let before = state();
        let rp_filter = Sysctl::rp_filter(&Scope::Link(name("va")));
        let old = rp_filter.read().unwrap();
        let new = if old == "2" { "1" } else { "2" };
        let mut with_source = Route {
            to: net("192.0.2.0/24"),
            link: name("va"),
            via: None,
            source: Some("198.51.100.1".parse().unwrap()),
            metric: Some(50),
            table: Some(1000),
            mtu: Some(1300),
        };
        let table_1000 = Change::Route(with_source.clone());
        with_source.table = None;
        let mut plan = Plan::from_iter([
            mtu("va", 1400),
            up("vb"),
            up("va"),
            address("va", "198.51.100.1/24"),
            address("va", "2001:db8:1::1/64"),
            Change::Route(with_source),
            table_1000,
            route("2001:db8:2::/48", "va"),
        ]);
        plan.extend(set(&rp_filter, new).changes().to_vec());
        let applied = plan.apply().unwrap();
        assert_eq!(applied.made().count(), plan.changes().len());

        let mut network = Network::open().unwrap();
        let link = network.link(&name("va")).unwrap();
        assert_eq!((link.mtu, link.up), (1400, true));
        let to: IpAddr = "192.0.2.9".parse().unwrap();
        let found = network.route_to(to, None).unwrap();
        assert_eq!((found.link.as_str(), found.local), ("va", false));
        assert_eq!(network.mtu_to(to, RouteBy::default()).unwrap(), 1300);
        assert_eq!(found.source, Some("198.51.100.1".parse().unwrap()));
        let to: IpAddr = "2001:db8:2::9".parse().unwrap();
        assert_eq!(network.route_to(to, None).unwrap().link_index, link.index);
        assert_eq!(network.mtu_to(to, RouteBy::default()).unwrap(), 1400);
        assert!(network.route_to("198.51.100.1".parse().unwrap(), None).unwrap().local);
        let tables = |r: &&RouteEntry| r.to == net("192.0.2.0/24") && r.metric == 50;
        assert_eq!(network.routes().unwrap().iter().filter(tables).count(), 2);
        assert_eq!(rp_filter.read().unwrap(), new);

        applied.take_back().unwrap();
        assert_eq!(state(), before);
        assert_eq!(rp_filter.read().unwrap(), old);
    });
}

#[test]
fn of_several_next_hops_the_narrowest_counts() {
    in_namespace(|| {
        let plan = Plan::from_iter([
            mtu("vb", 1400),
            up("va"),
            up("vb"),
            address("va", "198.51.100.1/24"),
            address("vb", "203.0.113.1/24"),
            address("va", "2001:db8:1::1/64"),
            address("vb", "2001:db8:3::1/64"),
        ]);
        std::mem::forget(plan.apply().unwrap());
        for (to, hops) in [
            ("192.0.2.9", "nexthop via 198.51.100.2 nexthop via 203.0.113.2"),
            ("2001:db8:2::9", "nexthop via 2001:db8:1::2 nexthop via 2001:db8:3::2"),
        ] {
            let words = format!("route add {to} {hops}");
            let done = std::process::Command::new("ip").args(words.split(' ')).status().unwrap();
            assert!(done.success(), "ip {words}");
            let mut network = Network::open().unwrap();
            assert_eq!(
                network.mtu_to(to.parse().unwrap(), RouteBy::default()).unwrap(),
                1400,
                "{to}"
            );
            network.mtu_to("192.0.2.8".parse().unwrap(), RouteBy::default()).unwrap_err();
        }
    });
}

#[test]
fn bound_sockets_take_no_route_through_another_interface() {
    in_namespace(|| {
        let plan = Plan::from_iter([
            mtu("vb", 1400),
            up("va"),
            up("vb"),
            address("va", "198.51.100.1/24"),
            address("va", "2001:db8:1::1/64"),
            route("198.51.100.2/32", "vb"),
            route("2001:db8:1::2/128", "vb"),
        ]);
        std::mem::forget(plan.apply().unwrap());
        let mut network = Network::open().unwrap();
        let ends = [("198.51.100.1", "198.51.100.2"), ("2001:db8:1::1", "2001:db8:1::2")];
        for (interface, mtu) in [("no-such", 1400), ("va", 1500), ("vb", 1400)] {
            network.bind(interface);
            for (from, to) in ends.map(|(from, to)| (from.parse().unwrap(), to.parse().unwrap())) {
                let by = RouteBy { from: Some(from), mark: Some(7), ..RouteBy::default() };
                assert_eq!(network.mtu_to(to, by).unwrap(), mtu, "{interface} {to}");
                let link = network.route_by(to, by).unwrap().link;
                assert_eq!(link == "vb", mtu == 1400, "{interface} {to}");
            }
        }
    });
}

#[test]
fn what_was_there_before_stays() {
    in_namespace(|| {
        let plan = Plan::from_iter([
            up("vb"),
            up("va"),
            address("va", "198.51.100.1/24"),
            address("va", "2001:db8:1::1/64"),
            route("192.0.2.0/24", "va"),
            route("2001:db8:2::/48", "va"),
        ]);
        let first = plan.apply().unwrap();
        let before = state();
        let second = plan.apply().unwrap();
        assert_eq!(second.made().count(), 0);
        second.take_back().unwrap();
        let after = state();
        assert_eq!(after.0, before.0);
        assert!(before.1.iter().all(|address| after.1.contains(address)));
        assert!(before.2.iter().all(|route| after.2.contains(route)));
        first.take_back().unwrap();
    });
}

#[test]
fn a_failure_in_the_middle_undoes_what_was_done() {
    in_namespace(|| {
        let before = state();
        let plan = Plan::from_iter([
            mtu("va", 1400),
            up("va"),
            address("va", "198.51.100.1/24"),
            up("nowhere0"),
        ]);
        let error = plan.apply().unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot set interface nowhere0 up: interface nowhere0 does not exist in this network \
             namespace"
        );
        assert_eq!(state(), before);
    });
}

#[test]
fn refusals_are_told_in_network_words() {
    in_namespace(|| {
        let one = |change: Change| cause(Plan::from_iter([change]).apply());
        assert_eq!(one(route("192.0.2.0/24", "va")), Cause::LinkDown);
        assert!(matches!(one(mtu("va", 40)), Cause::MtuRange { min: 68, .. }));
        let keep = Plan::from_iter([
            up("vb"),
            up("va"),
            address("va", "198.51.100.1/24"),
            route("192.0.2.0/24", "vb"),
        ]);
        let keep = keep.apply().unwrap();
        let via = |via: &str, source: Option<&str>| {
            Change::Route(Route {
                to: net("203.0.113.0/24"),
                link: name("va"),
                via: Some(via.parse().unwrap()),
                source: source.map(|s| s.parse().unwrap()),
                metric: None,
                table: None,
                mtu: None,
            })
        };
        assert_eq!(one(via("10.9.9.9", None)), Cause::GatewayUnreachable);
        let stranger = "10.8.8.8";
        assert_eq!(
            one(via("198.51.100.2", Some(stranger))),
            Cause::SourceNotLocal(stranger.parse().unwrap())
        );
        assert_eq!(
            one(route("192.0.2.0/24", "va")).to_string(),
            "another route to 192.0.2.0/24 through vb is already there"
        );
        let nothing = Sysctl::try_from("net/ipv4/no_such_setting".to_owned()).unwrap();
        assert_eq!(cause(set(&nothing, "1").apply()), Cause::NoSuchSetting);
        let mut network = Network::open().unwrap();
        let error = network.route_to("203.0.113.1".parse().unwrap(), None).unwrap_err();
        assert!(error.to_string().starts_with("no route to 203.0.113.1: "), "{error}");
        keep.take_back().unwrap();
    });
}

#[test]
fn a_vanished_interface_counts_as_taken_back() {
    in_namespace(|| {
        let rp_filter = Sysctl::rp_filter(&Scope::Link(name("va")));
        let new = if rp_filter.read().unwrap() == "2" { "1" } else { "2" };
        let mut plan = Plan::from_iter([
            mtu("va", 1400),
            up("va"),
            address("va", "198.51.100.1/24"),
            address("va", "2001:db8:1::1/64"),
            route("192.0.2.0/24", "va"),
        ]);
        plan.extend(set(&rp_filter, new).changes().to_vec());
        let applied = plan.apply().unwrap();
        let mut network = Network::open().unwrap();
        let mut message = LinkMessage::default();
        message.header.index = network.link(&name("va")).unwrap().index;
        network.rtnl.change(Message::DelLink(message), 0).unwrap();
        applied.take_back().unwrap();
    });
}

#[test]
fn what_someone_else_changed_since_is_left_alone_and_reported() {
    in_namespace(|| {
        let applied = Plan::from_iter([mtu("va", 1400)]).apply().unwrap();
        let other = Plan::from_iter([mtu("va", 1300)]).apply().unwrap();
        let error = applied.take_back().unwrap_err();
        assert_eq!(
            error.to_string(),
            "not all changes were undone; could not undo \"set the MTU of interface va to 1400 \
             bytes\": changed by another process since, to 1300"
        );
        drop(other);
    });
}

#[test]
fn a_plan_is_taken_back_where_it_was_applied_even_from_another_thread() {
    in_namespace(|| {
        let forwarding = Sysctl::forwarding(Family::V4, &Scope::Link(name("va")));
        let old = forwarding.read().unwrap();
        let new = if old == "1" { "0" } else { "1" };
        let mut plan = set(&forwarding, new);
        plan.push(mtu("va", 1400));
        let applied = plan.apply().unwrap();
        assert_eq!(forwarding.read().unwrap(), new);
        let elsewhere = thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            applied.take_back().unwrap();
        });
        elsewhere.join().unwrap();
        assert_eq!(forwarding.read().unwrap(), old);
        assert_eq!(Network::open().unwrap().link(&name("va")).unwrap().mtu, 1500);
    });
}

#[test]
fn dropping_takes_back_too() {
    in_namespace(|| {
        let before = state();
        let panicked = std::panic::catch_unwind(|| {
            let _applied = Plan::from_iter([mtu("va", 1400), up("va")]).apply().unwrap();
            panic!("in between");
        });
        assert!(panicked.is_err());
        assert_eq!(state(), before);
    });
}

#[test]
fn a_namespace_is_entered_and_left() {
    in_namespace(|| {
        let here = Netns::current().unwrap();
        let pid_form = format!("/proc/{}/ns/net", std::process::id());
        let outside = Netns::open(&pid_form).unwrap();
        outside.enter().unwrap();
        assert!(Network::open().unwrap().link(&name("va")).is_err());
        here.enter().unwrap();
        assert!(Network::open().unwrap().link(&name("va")).is_ok());
        assert!(matches!(here.enter_process(), Err(HostError::Threads { .. })));
    });
}

#[test]
fn a_missing_namespace_and_a_wrong_file_are_told_apart() {
    let error = Netns::open("no-such-namespace").unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot open network namespace /run/netns/no-such-namespace: there is no namespace of that name"
    );
    let error = Netns::open("/proc/self/status").unwrap().enter().unwrap_err();
    assert!(error.to_string().ends_with("the file is no network namespace"), "{error}");
}

#[test]
fn counters_count() {
    in_namespace(|| {
        let applied = Plan::from_iter([up("lo")]).apply().unwrap();
        let mut network = Network::open().unwrap();
        let before = network.counters(&name("lo")).unwrap();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"one", socket.local_addr().unwrap()).unwrap();
        let after = network.counters(&name("lo")).unwrap();
        assert_eq!(after.tx_packets - before.tx_packets, 1);
        assert_eq!(after.rx_packets - before.rx_packets, 1);
        assert_eq!(after.drops(), before.drops());
        applied.take_back().unwrap();
    });
}

#[test]
fn an_alias_is_taken_back_unless_somebody_gave_another() {
    in_namespace(|| {
        let now = || Network::open().unwrap().link(&name("va")).unwrap().alias;
        let note = || Plan::from_iter([alias("va", "convoy a")]).apply().unwrap();
        assert_eq!(now(), "");
        let first = note();
        assert_eq!(now(), "convoy a");
        note().take_back().unwrap();
        assert_eq!(now(), "convoy a", "it was there before");
        first.take_back().unwrap();
        assert_eq!(now(), "");
        let ours = note();
        Plan::from_iter([alias("va", "theirs")]).apply().unwrap().leave();
        ours.take_back().unwrap_err();
        assert_eq!(now(), "theirs");
    });
}
