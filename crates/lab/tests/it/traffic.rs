//! Traffic through two gateways that forward in the clear.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, SystemTime},
};

use crate::common::{FAMILIES, NEVER, alone, build, nameless, seconds};
use convoy_lab::{
    Capture, CaptureConfig, Family, LabError, Topology, TopologyConfig, WIRE_LINK,
    traffic::{Direction, Ping, PingProblem, Rate, TcpBulk, UdpPaced, Watch},
    wire_report,
};
use pcap_parser::{Linktype, parse_pcap_frame_be, parse_pcap_header};

/// A packet of a capture: when it was seen, how long it was, and what is kept of it.
type Record = (Duration, u32, Vec<u8>);

/// All of a capture with nanoseconds, as pcap-parser sees it.
fn records(file: &Path) -> Vec<Record> {
    let bytes = fs::read(file).unwrap();
    let (mut rest, header) = parse_pcap_header(&bytes).unwrap();
    assert_eq!((header.network, header.is_nanosecond_precision()), (Linktype::ETHERNET, true));
    let mut all = Vec::new();
    while !rest.is_empty() {
        let (behind, record) = parse_pcap_frame_be(rest).unwrap();
        let at = Duration::new(record.ts_sec.into(), record.ts_usec);
        all.push((at, record.origlen, record.data.to_vec()));
        rest = behind;
    }
    all
}

#[test]
fn every_ping_is_answered_in_both_families() {
    let Some(_alone) = alone() else { return };
    let lab = build(&nameless());
    let _routes = lab.direct_routes().unwrap();
    for family in FAMILIES {
        let ping = Ping { interval: seconds(0.01), ..Ping::new(lab.b.host_address(family)) };
        let report = ping.run(&lab.a.host, &mut Watch::new(&NEVER)).unwrap();
        assert_eq!((report.sent, report.received, report.lost()), (5, 5, 0), "{report:?}");
        assert_eq!((report.duplicates, report.damaged), (0, 0));
        assert_eq!(report.problems, []);
        let (min, mean, max) = report.min_mean_max().unwrap();
        assert!(min <= mean && mean <= max);
    }
}

#[test]
fn without_routes_between_the_gateways_nothing_arrives() {
    let Some(_alone) = alone() else { return };
    let lab = build(&nameless());
    for family in FAMILIES {
        let to = lab.b.host_address(family);
        let ping = Ping { count: 2, timeout: seconds(0.3), ..Ping::new(to) };
        let report = ping.run(&lab.a.host, &mut Watch::new(&NEVER)).unwrap();
        assert_eq!((report.received, report.lost()), (0, 2));
        assert!(
            report.problems.iter().any(|t| matches!(t, PingProblem::Unreachable { .. })),
            "{report:?}"
        );
        let bulk = TcpBulk { connect: seconds(0.3), ..TcpBulk::new(to, seconds(0.2)) };
        let error = bulk.run(&lab.a.host, &lab.b.host, &mut Watch::new(&NEVER)).unwrap_err();
        assert!(matches!(error, LabError::Connect { .. }), "{error}");
        let udp = UdpPaced::new(to, Rate::PacketsPerSecond(200), seconds(0.2));
        let report = udp.run(&lab.a.host, &lab.b.host, &mut Watch::new(&NEVER)).unwrap();
        assert_eq!(report.forward.received, 0);
        assert_eq!(report.forward.lost(), report.forward.sent);
        assert!(report.forward.sent + report.forward.refused > 0);
    }
}

#[test]
fn direct_routes_go_when_they_are_dropped() {
    let Some(_alone) = alone() else { return };
    let lab = build(&nameless());
    let ping =
        Ping { count: 1, timeout: seconds(0.3), ..Ping::new(lab.b.host_address(Family::V4)) };
    drop(lab.direct_routes().unwrap());
    let report = ping.run(&lab.a.host, &mut Watch::new(&NEVER)).unwrap();
    assert_eq!(report.received, 0);
    let _again = lab.direct_routes().unwrap();
    let report = ping.run(&lab.a.host, &mut Watch::new(&NEVER)).unwrap();
    assert_eq!(report.received, 1);
}

#[test]
fn tcp_moves_every_byte_undamaged_in_both_directions() {
    let Some(_alone) = alone() else { return };
    let lab = build(&nameless());
    let _routes = lab.direct_routes().unwrap();
    for family in FAMILIES {
        let bulk = TcpBulk {
            streams: 2,
            direction: Direction::Both,
            ..TcpBulk::new(lab.b.host_address(family), seconds(0.5))
        };
        let mut told = 0;
        let mut tell = |progress: convoy_lab::traffic::Progress| {
            assert!(progress.bytes >= told);
            told = progress.bytes;
        };
        let mut watch = Watch::new(&NEVER).on_progress(&mut tell);
        let report = bulk.run(&lab.a.host, &lab.b.host, &mut watch).unwrap();
        for flow in [&report.forward, &report.backward] {
            assert!(flow.received > 1_000_000, "{report:?}");
            assert_eq!(flow.sent, flow.received);
            assert_eq!((flow.damaged, flow.broken), (0, 0));
            assert!(flow.bits_per_second() > 0.0);
        }
        assert_eq!(told, report.forward.received + report.backward.received);
    }
}

#[test]
fn one_direction_of_tcp_leaves_the_other_empty() {
    let Some(_alone) = alone() else { return };
    let lab = build(&nameless());
    let _routes = lab.direct_routes().unwrap();
    let to = lab.b.host_address(Family::V4);
    let bulk = TcpBulk { direction: Direction::Backward, ..TcpBulk::new(to, seconds(0.1)) };
    let report = bulk.run(&lab.a.host, &lab.b.host, &mut Watch::new(&NEVER)).unwrap();
    assert_eq!((report.forward.sent, report.forward.received), (0, 0));
    assert!(report.backward.received > 0);
    assert_eq!(report.backward.sent, report.backward.received);
}

/// Does something again, up to twice and in quiet moments if there are any, where the kernel dropped
/// packets meanwhile: on a busy machine queues are full while their readers wait for a processor.
fn undisturbed<T>(lab: &Topology, work: impl Fn() -> T) -> T {
    for _ in 0..2 {
        if let (done, 0) = lab.counting_drops(&work).unwrap() {
            return done;
        }
        let _ = convoy_lab::wait_for_quiet(4);
    }
    work()
}

#[test]
fn paced_datagrams_at_a_low_rate_all_arrive_once_and_in_order() {
    let Some(_alone) = alone() else { return };
    let lab = build(&nameless());
    let _routes = lab.direct_routes().unwrap();
    for family in FAMILIES {
        let udp = UdpPaced {
            from: Some(lab.a.host_address(family)),
            direction: Direction::Both,
            ..UdpPaced::new(lab.b.host_address(family), Rate::PacketsPerSecond(2000), seconds(0.5))
        };
        let run = || udp.run(&lab.a.host, &lab.b.host, &mut Watch::new(&NEVER)).unwrap();
        let report = undisturbed(&lab, run);
        for flow in [&report.forward, &report.backward] {
            assert!(flow.sent > 100, "{report:?}");
            // The rate is kept from above: one at the start, and 2000 a second.
            assert!(flow.sent as f64 <= 1.0 + 2000.0 * flow.elapsed.as_secs_f64() + 1.0);
            assert_eq!(flow.received, flow.sent, "{report:?}");
            assert_eq!((flow.lost(), flow.lost_on_the_way(), flow.kernel_drops), (0, 0, 0));
            assert_eq!((flow.duplicates, flow.reordered), (0, 0));
            assert_eq!((flow.damaged, flow.foreign, flow.refused), (0, 0, 0));
            assert_eq!(flow.bytes, flow.received * 1400);
        }
    }
}

#[test]
fn a_payload_without_room_for_its_number_is_refused() {
    let Some(_alone) = alone() else { return };
    let lab = build(&nameless());
    let to = lab.b.host_address(Family::V4);
    let udp =
        UdpPaced { payload: 15, ..UdpPaced::new(to, Rate::PacketsPerSecond(1), seconds(0.1)) };
    let error = udp.run(&lab.a.host, &lab.b.host, &mut Watch::new(&NEVER)).unwrap_err();
    assert_eq!(error.to_string(), "a payload of 15 bytes is outside 16 to 65507");
}

#[test]
fn a_too_big_ping_is_answered_with_the_mtu_of_the_wire() {
    let Some(_alone) = alone() else { return };
    let lab = build(&TopologyConfig { wire_mtu: 1300, ..nameless() });
    let _routes = lab.direct_routes().unwrap();
    for family in FAMILIES {
        let to = lab.b.host_address(family);
        let ping = Ping { count: 1, payload: 1400, ..Ping::new(to) };
        // A kernel limits how many such answers it gives, those of other tests counted in (icmp_msgs_per_sec).
        let problems = || ping.run(&lab.a.host, &mut Watch::new(&NEVER)).unwrap().problems;
        let told = (0..5).map(|_| problems()).find(|problems| !problems.is_empty());
        assert_eq!(told.unwrap_or_default(), [PingProblem::TooBig { mtu: 1300 }]);
        // The host has learned the path MTU and sends fragments from now on.
        // (Over IPv6 the far host has to learn it too, at the price of its first answer.)
        let ping = Ping { count: 2, ..ping };
        let report = ping.run(&lab.a.host, &mut Watch::new(&NEVER)).unwrap();
        let expected = if family == Family::V4 { 2 } else { 1 };
        assert_eq!((report.received, report.damaged), (expected, 0), "{report:?}");
        assert_eq!(report.problems, []);
    }
}

#[test]
fn a_set_flag_ends_every_kind_of_traffic_early() {
    let Some(_alone) = alone() else { return };
    let lab = build(&nameless());
    let _routes = lab.direct_routes().unwrap();
    let to = lab.b.host_address(Family::V4);
    let hour = seconds(3600.0);
    let cancelled = |run: &dyn Fn(&mut Watch<'_>)| {
        let cancel = AtomicBool::new(false);
        let mut tell = |progress: convoy_lab::traffic::Progress| {
            cancel.store(progress.packets + progress.bytes > 0, Ordering::Relaxed);
        };
        run(&mut Watch::new(&cancel).on_progress(&mut tell));
    };
    cancelled(&|watch| {
        let report = TcpBulk::new(to, hour).run(&lab.a.host, &lab.b.host, watch).unwrap();
        assert!(report.forward.received > 0);
    });
    cancelled(&|watch| {
        let udp = UdpPaced::new(to, Rate::PacketsPerSecond(1000), hour);
        let report = udp.run(&lab.a.host, &lab.b.host, watch).unwrap();
        assert_eq!(report.forward.lost(), 0);
    });
    cancelled(&|watch| {
        let ping = Ping { count: 30_000, ..Ping::new(to) };
        let report = ping.run(&lab.a.host, watch).unwrap();
        assert!(report.sent < 30_000);
    });
}

#[test]
fn a_panic_in_the_callers_progress_function_ends_the_run() {
    let Some(_alone) = alone() else { return };
    let lab = build(&nameless());
    let _routes = lab.direct_routes().unwrap();
    let to = lab.b.host_address(Family::V4);
    let hour = seconds(3600.0);
    let panics = |run: &dyn Fn(&mut Watch<'_>)| {
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut tell = |_: convoy_lab::traffic::Progress| panic!("in the progress function");
            run(&mut Watch::new(&NEVER).on_progress(&mut tell));
        }));
        assert!(panicked.is_err());
    };
    panics(&|watch| {
        let _ = TcpBulk::new(to, hour).run(&lab.a.host, &lab.b.host, watch);
    });
    panics(&|watch| {
        let udp = UdpPaced::new(to, Rate::PacketsPerSecond(1000), hour);
        let _ = udp.run(&lab.a.host, &lab.b.host, watch);
    });
}

#[test]
fn a_capture_holds_exactly_what_passed_the_wire() {
    let Some(_alone) = alone() else { return };
    let lab = build(&nameless());
    let _routes = lab.direct_routes().unwrap();
    let file = std::env::temp_dir().join(format!("convoy-capture-{}.pcap", std::process::id()));
    let config = CaptureConfig::default();
    let begun = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let capture = Capture::start(&lab.b.gateway, WIRE_LINK, &file, config).unwrap();
    let ping = Ping { interval: seconds(0.01), ..Ping::new(lab.b.host_address(Family::V4)) };
    let pings = ping.run(&lab.a.host, &mut Watch::new(&NEVER)).unwrap();
    assert_eq!(pings.received, 5);
    let report = capture.stop().unwrap();
    assert_eq!((report.dropped, report.beyond_limit), (0, 0));
    let packets = records(&file);
    let mut echoes = (0, 0);
    for (at, len, data) in &packets {
        assert!(*at >= begun, "{at:?} is before {begun:?}");
        assert_eq!(data.len(), *len as usize);
        // Ethernet, IPv4 without options, ICMP.
        if data[12..14] == [8, 0] && data[23] == 1 {
            assert_eq!(data.len(), 14 + 20 + 8 + 56);
            match data[34] {
                8 => echoes.0 += 1,
                0 => echoes.1 += 1,
                other => panic!("ICMP type {other}"),
            }
        }
    }
    assert_eq!(packets.len() as u64, report.written);
    assert_eq!(echoes, (5, 5));
    fs::remove_file(&file).unwrap();
}

#[test]
fn with_one_segment_at_a_time_a_capture_shows_packets_no_longer_than_the_mtu() {
    let Some(_alone) = alone() else { return };
    let lab = build(&nameless());
    let _routes = lab.direct_routes().unwrap();
    for site in [&lab.a, &lab.b] {
        site.gateway.set_segments(WIRE_LINK, 1).unwrap();
    }
    let file = std::env::temp_dir().join(format!("convoy-segments-{}.pcap", std::process::id()));
    let config = CaptureConfig { snaplen: 96, limit: 100, ..CaptureConfig::default() };
    let capture = Capture::start(&lab.a.gateway, WIRE_LINK, &file, config).unwrap();
    let bulk = TcpBulk::new(lab.b.host_address(Family::V4), seconds(0.2));
    bulk.run(&lab.a.host, &lab.b.host, &mut Watch::new(&NEVER)).unwrap();
    let report = capture.stop().unwrap();
    assert_eq!(report.written, 100, "{report:?}");
    let packets = records(&file);
    assert!(packets.iter().all(|(_, _, data)| data.len() <= 96));
    assert_eq!(packets.iter().map(|(_, len, _)| *len).max(), Some(14 + 1500));
    fs::remove_file(&file).unwrap();
}

#[test]
fn what_crosses_the_wire_without_a_tunnel_is_found_in_the_clear() {
    let Some(_alone) = alone() else { return };
    let lab = build(&nameless());
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("wire.pcap");
    let capture =
        Capture::start(&lab.a.gateway, WIRE_LINK, &file, CaptureConfig::default()).unwrap();
    let routes = lab.direct_routes().unwrap();
    for family in FAMILIES {
        let ping = Ping { interval: seconds(0.01), ..Ping::new(lab.b.host_address(family)) };
        assert_eq!(ping.run(&lab.a.host, &mut Watch::new(&NEVER)).unwrap().received, 5);
    }
    drop(routes);
    capture.stop().unwrap();
    let inner = FAMILIES.map(|family| lab.a.network(family));
    let report = wire_report(&file, &inner).unwrap();
    assert_eq!((report.clear, report.protected()), (20, 0), "{report:?}");
    assert!(report.clear_in_words().contains("10.1.0.2 to 10.2.0.2, protocol 1"));
}
