//! Neighbours, the way out of an interface, and what keeps the kernel from forwarding.

use std::process::Command;
use std::time::{Duration, Instant};

use super::*;

/// Runs `ip` in the calling thread's namespace.
fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Waits for news of the kinds that `wanted` names.
fn hear(watch: &mut Watch, wanted: News) {
    let begun = Instant::now();
    let mut heard = News::default();
    while begun.elapsed() < Duration::from_secs(20) {
        watch.wait(&[], Duration::from_millis(100)).unwrap();
        let news = watch.news().unwrap();
        heard.links |= news.links;
        heard.routes |= news.routes;
        heard.neighbours |= news.neighbours;
        let still = |wanted: bool, heard: bool| wanted && !heard;
        if !still(wanted.links, heard.links)
            && !still(wanted.routes, heard.routes)
            && !still(wanted.neighbours, heard.neighbours)
        {
            return;
        }
    }
    panic!("heard only {heard:?}");
}

#[test]
fn routes_lead_from_an_interface_as_the_kernel_prefers_them() {
    in_namespace(|| {
        for command in [
            "link set va up",
            "link set vb up",
            "addr add 192.0.2.1/24 dev va",
            "addr add 2001:db8::1/64 dev va nodad",
            "route add 198.51.100.0/24 via 192.0.2.9 metric 20",
            "route add 198.51.100.0/24 dev vb metric 10",
            "route add 203.0.113.0/24 via 192.0.2.7",
            "route add 10.0.0.0/8 via inet6 fe80::9 dev va",
            "route add blackhole 10.9.0.0/16",
            "route add 10.8.0.0/16 nexthop dev vb nexthop via 192.0.2.8 dev va",
            "route add 10.7.0.0/16 via 192.0.2.9 table 77",
            "-6 route add default via 2001:db8::9 dev va",
        ] {
            ip(command);
        }
        let mut network = Network::open().unwrap();
        let index = network.link(&name("va")).unwrap().index;
        let ways = network.ways(index).unwrap();
        let way = |to: &str| ways.iter().find(|(net, _)| *net == super::net(to)).map(|w| w.1);
        assert_eq!(way("192.0.2.0/24"), Some(NextHop::Direct));
        assert_eq!(way("2001:db8::/64"), Some(NextHop::Direct));
        assert_eq!(way("198.51.100.0/24"), Some(NextHop::Elsewhere));
        assert_eq!(way("203.0.113.0/24"), Some(NextHop::Via(addr("192.0.2.7"))));
        assert_eq!(way("10.0.0.0/8"), Some(NextHop::Via(addr("fe80::9"))));
        assert_eq!(way("10.9.0.0/16"), Some(NextHop::Elsewhere));
        assert_eq!(way("10.8.0.0/16"), Some(NextHop::Via(addr("192.0.2.8"))));
        assert_eq!(way("10.7.0.0/16"), None);
        assert_eq!(way("::/0"), Some(NextHop::Via(addr("2001:db8::9"))));
        assert_eq!(way("192.0.2.1/32"), None);
    });
}

#[test]
fn neighbours_are_known_sought_and_heard_of() {
    in_namespace(|| {
        for command in ["link set va up", "link set vb up", "addr add 192.0.2.1/24 dev va"] {
            ip(command);
        }
        let mut watch = Watch::open().unwrap();
        let mut network = Network::open().unwrap();
        let link = network.link(&name("va")).unwrap();
        let shown = ip("-o link show va");
        let mac = link.mac.unwrap().map(|byte| format!("{byte:02x}")).join(":");
        assert!(shown.contains(&format!("link/ether {mac} ")), "{shown}");
        assert_eq!(network.link(&name("lo")).unwrap().mac, None);
        // The links may still be coming up.
        assert!(!watch.news().unwrap().neighbours);

        ip("neigh add 192.0.2.7 lladdr 02:00:00:00:00:07 dev va nud permanent");
        ip("neigh add 192.0.2.8 lladdr 02:00:00:00:00:08 dev va nud stale");
        ip("neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 dev vb nud stale");
        ip("neigh add 2001:db8::7 lladdr 02:00:00:00:00:17 dev va nud reachable");
        hear(&mut watch, News { neighbours: true, ..News::default() });
        let mut known = network.neighbours(link.index).unwrap();
        known.sort_by_key(|neighbour| neighbour.address);
        let entry = |address: &str, last: u8, stale| Neighbour {
            address: addr(address),
            mac: [2, 0, 0, 0, 0, last],
            stale,
        };
        let expected = [
            entry("192.0.2.7", 7, false),
            entry("192.0.2.8", 8, true),
            entry("2001:db8::7", 0x17, false),
        ];
        assert_eq!(known, expected);

        // One that was stale is asked, and a new one sought.
        network.seek_neighbour(link.index, addr("192.0.2.8")).unwrap();
        network.seek_neighbour(link.index, addr("192.0.2.5")).unwrap();
        let shown = ip("neigh show dev va");
        let state = |address: &str| {
            let line = shown.lines().find(|line| line.starts_with(&format!("{address} "))).unwrap();
            line.split_whitespace().last().unwrap().to_owned()
        };
        assert!(["DELAY", "PROBE"].contains(&&*state("192.0.2.8")), "{shown}");
        assert_eq!(state("192.0.2.5"), "INCOMPLETE");

        hear(&mut watch, News { neighbours: true, ..News::default() });
        ip("route add 198.51.100.0/24 dev va");
        ip("addr add 192.0.2.77/32 dev va");
        hear(&mut watch, News { routes: true, links: true, ..News::default() });
    });
}

#[test]
fn a_guard_is_a_rule_of_both_families_and_goes_again() {
    in_namespace(|| {
        let plan = Plan::from_iter([Change::Guard { link: name("va") }]);
        assert_eq!(plan.describe(), ["keep the kernel from forwarding packets that arrive on va"]);
        let count = || ["rule", "-6 rule"].map(|what| ip(what).matches("iif va").count());
        let applied = plan.apply().unwrap();
        assert_eq!(count(), [1, 1], "{}", ip("rule"));
        assert!(ip("rule").contains("1:\tfrom all iif va blackhole"), "{}", ip("rule"));
        // One that a killed run left behind is taken over.
        std::mem::forget(applied);
        let again = plan.apply().unwrap();
        assert_eq!(count(), [1, 1]);
        let mut network = Network::open().unwrap();
        assert_eq!(network.guarded().unwrap(), ["va"]);
        again.take_back().unwrap();
        assert_eq!(count(), [0, 0]);
        // One that nobody takes over is removed by hand, and no rule beside it.
        std::mem::forget(plan.apply().unwrap());
        ip("rule add priority 2 iif va blackhole");
        assert!(!network.remove_guard(&name("vb")).unwrap());
        assert!(network.remove_guard(&name("va")).unwrap());
        assert_eq!((count(), network.guarded().unwrap()), ([1, 0], vec![]));
        assert!(!network.remove_guard(&name("va")).unwrap());
        let missing = Plan::from_iter([Change::Guard { link: name("vx") }]);
        assert_eq!(cause(missing.apply()), Cause::NoSuchLink(name("vx")));
    });
}
