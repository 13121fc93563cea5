//! Two unmodified charons with ESP of their own: what the laboratory must do before Convoy takes
//! the place of one of them.

use std::{io::Write as _, path::Path, sync::atomic::AtomicBool, thread, time::Duration};

use crate::common::{NEVER, alone, build, nameless, seconds};
use convoy_lab::{
    Capture, CaptureConfig, Family, HostState, Topology, WIRE_LINK,
    strongswan::{
        Child, Connection, DataPlane, StartAction, StrongSwan, StrongSwanConfig, identities,
        missing,
    },
    traffic::{Direction, Ping, Rate, UdpPaced, UdpReport, Watch},
    wire_report,
};
use tempfile::TempDir;

/// A guard against hanging: daemons take long on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
const NAMES: [&str; 2] = ["left.test", "right.test"];
const SECRET: &str = "neither of us tells";

/// Says loudly why no daemon can run here.
fn can_run() -> bool {
    let absent = missing(&DataPlane::Libipsec);
    let why = if !nix::unistd::geteuid().is_root() {
        "charon wants to be root".to_owned()
    } else if !absent.is_empty() {
        format!("not installed: {}", absent.join(", "))
    } else {
        return true;
    };
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
    false
}

/// The connection of one side, 0 or 1, between the gateways of a topology.
fn connection(lab: &Topology, side: usize, family: Family, certificates: bool) -> Connection {
    let sites = if side == 0 { [&lab.a, &lab.b] } else { [&lab.b, &lab.a] };
    let (own, peer) = (NAMES[side], NAMES[1 - side]);
    let connection = if certificates {
        Connection::certificates("peers", own, peer)
    } else {
        Connection::psk("peers", own, peer, SECRET)
    };
    let [near, far] = sites;
    connection.between(near.wire_address(family), far.wire_address(family)).child(Child::new(
        "net",
        near.network(family),
        far.network(family),
    ))
}

fn start(lab: &Topology, folder: &Path, connections: [Connection; 2]) -> [StrongSwan; 2] {
    let mut made = identities(folder, &NAMES).unwrap().into_iter();
    let sides = [("left", &lab.a), ("right", &lab.b)];
    let mut connections = connections.into_iter();
    sides.map(|(name, site)| {
        let mut config = StrongSwanConfig::new(&folder.join(name), DataPlane::Libipsec);
        config.connections.extend(connections.next());
        config.identity = made.next();
        StrongSwan::start(&site.gateway, config).unwrap()
    })
}

fn ping(lab: &Topology, family: Family) -> (u64, u64) {
    let ping = Ping { interval: seconds(0.05), ..Ping::new(lab.b.host_address(family)) };
    let report = ping.run(&lab.a.host, &mut Watch::new(&NEVER)).unwrap();
    (report.sent, report.received)
}

#[test]
fn two_daemons_exchange_traffic_and_nothing_is_in_the_clear() {
    let Some(_alone) = alone() else { return };
    if !can_run() {
        return;
    }
    let before = HostState::snapshot().unwrap();
    let lab = build(&nameless());
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("wire.pcap");
    let config = CaptureConfig::default();
    let capture = Capture::start(&lab.a.gateway, WIRE_LINK, &file, config).unwrap();
    let rest = folder.path().join("rest.pcap");
    let config = CaptureConfig { except_esp: true, ..config };
    let capture_of_rest = Capture::start(&lab.a.gateway, WIRE_LINK, &rest, config).unwrap();
    let psk = [0, 1].map(|side| connection(&lab, side, Family::V4, false));
    let [left, right] = start(&lab, folder.path(), psk);

    left.initiate("net", LIMIT).unwrap();
    assert_eq!(ping(&lab, Family::V4), (5, 5), "{}", left.log());
    let sas = left.sas().unwrap();
    assert_eq!((sas.len(), sas[0].state.as_str()), (1, "ESTABLISHED"));
    let first = left.wait_installed("net", LIMIT).unwrap();
    assert_eq!((first.packets_in, first.packets_out), (5, 5), "{first:?}");
    assert_eq!((first.encryption.as_str(), first.key_bits, first.encap), ("AES_GCM_16", 128, true));
    let stream = || stream_while_rekeyed(&lab, &left, first.id);
    let (report, dropped) = lab.counting_drops(stream).unwrap();
    for flow in [&report.forward, &report.backward] {
        assert!(flow.sent > 500, "{flow:?}");
        assert_eq!(flow.duplicates, 0, "{flow:?}");
    }
    // What the kernel drops for want of room is a busy machine's.
    assert_eq!(report.lost_beyond(dropped), 0, "{dropped} {report:?}");

    left.terminate_ike("peers").unwrap();
    assert_eq!(left.sas().unwrap(), []);
    assert_eq!(ping(&lab, Family::V4).1, 0);
    // The other family, and certificates instead of a key.
    let mut daemons = [left, right];
    for (side, daemon) in daemons.iter_mut().enumerate() {
        daemon.reload(vec![connection(&lab, side, Family::V6, true)]).unwrap();
    }
    let [left, right] = daemons;
    right.initiate("net", LIMIT).unwrap();
    assert_eq!(ping(&lab, Family::V6), (5, 5), "{}", left.log());
    assert!(left.log().contains("with ECDSA"), "{}", left.log());

    let config = left.kill().unwrap();
    right.stop().unwrap();
    assert!(config.folder.join("charon.log").exists());
    capture.stop().unwrap();
    capture_of_rest.stop().unwrap();
    let inner = [Family::V4, Family::V6].map(|family| [&lab.a, &lab.b].map(|s| s.network(family)));
    let wire = wire_report(&file, inner.as_flattened()).unwrap();
    assert_eq!(wire.clear, 0, "{}", wire.clear_in_words());
    let sent = report.forward.sent + report.backward.sent;
    assert!(wire.esp_in_udp >= sent + 20 && wire.ike >= 8, "{wire:?}");
    let rest = wire_report(&rest, inner.as_flattened()).unwrap();
    assert_eq!((rest.protected(), rest.clear), (0, 0), "{rest:?}");
    // Of neighbours one may have seen more than the other, which began later.
    assert_eq!((rest.ike, rest.icmp), (wire.ike, wire.icmp));
    drop(lab);
    assert_eq!(left_behind(&before), Vec::<String>::new());
}

/// A numbered stream both ways, and three rekeys under it.
fn stream_while_rekeyed(lab: &Topology, left: &StrongSwan, mut id: u64) -> UdpReport {
    let stop = AtomicBool::new(false);
    let to = lab.b.host_address(Family::V4);
    let stream = UdpPaced {
        direction: Direction::Both,
        // Fits the tunnel: the first that does not is lost to tell so.
        payload: 1200,
        ..UdpPaced::new(to, Rate::PacketsPerSecond(500), seconds(30.0))
    };
    thread::scope(|scope| {
        let streaming =
            scope.spawn(|| stream.run(&lab.a.host, &lab.b.host, &mut Watch::new(&stop)).unwrap());
        thread::sleep(seconds(0.3));
        let rekeyed = (0..3).try_for_each(|_| {
            left.rekey("net")?;
            id = left.wait_rekeyed("net", id, LIMIT)?.id;
            thread::sleep(seconds(0.3));
            Ok::<(), convoy_lab::LabError>(())
        });
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        rekeyed.unwrap();
        streaming.join().unwrap()
    })
}

#[test]
fn a_killed_daemon_comes_back_and_makes_its_tunnel_again() {
    let Some(_alone) = alone() else { return };
    if !can_run() {
        return;
    }
    let lab = build(&nameless());
    let folder = TempDir::new().unwrap();
    let mut connections = [0, 1].map(|side| connection(&lab, side, Family::V4, false));
    connections[0].children[0].start = StartAction::Start;
    let [left, right] = start(&lab, folder.path(), connections);
    left.wait_installed("net", LIMIT).unwrap();
    assert_eq!(ping(&lab, Family::V4), (5, 5));
    let config = left.kill().unwrap();
    let mut left = StrongSwan::start(&lab.a.gateway, config).unwrap();
    left.wait_installed("net", LIMIT).unwrap();
    assert_eq!(ping(&lab, Family::V4), (5, 5), "{}", left.log());
    assert!(!left.has_ended().unwrap());
    drop(right);
}

/// Remains of this process, other runs on the machine apart.
fn left_behind(before: &HostState) -> Vec<String> {
    let mut lines = before.differences(&HostState::snapshot().unwrap());
    lines.retain(|line| line.contains("process"));
    lines
}
