//! Effects on traffic of what daemons do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use convoy_lab::Family;
use convoy_lab::strongswan::StartAction;
use convoy_lab::traffic::{Direction, Rate, UdpPaced, UdpReport, Watch};

use super::world::{LIMIT, Plane, World};

/// Rekeys under traffic, alternately asked for by either side.
const REKEYS: usize = 100;

#[test]
fn a_hundred_rekeys_lose_nothing() {
    let Some(mut world) = World::start([Plane::Convoy; 2]) else { return };
    world.load(|world, side| world.connection(side, Family::V4));
    world.daemon(0).initiate("net", LIMIT).unwrap();
    world.daemon(1).wait_installed("net", LIMIT).unwrap();
    let (report, dropped) = counted_under_load(&world, |world| {
        for round in 0..REKEYS {
            let daemon = world.daemon(round % 2);
            let before = daemon.wait_installed("net", LIMIT).unwrap().id;
            daemon.rekey("net").unwrap();
            daemon.wait_rekeyed("net", before, LIMIT).unwrap();
        }
    });
    assert!(report.forward.received.min(report.backward.received) > 1000, "{report:?}");
    assert_whole(&world, &report, dropped);
    world.assert_nothing_in_the_clear();
}

#[test]
fn the_first_packets_make_the_tunnel_and_go_through_it() {
    let Some(mut world) = World::start([Plane::Convoy; 2]) else { return };
    world.load(|world, side| {
        let mut connection = world.connection(side, Family::V4);
        connection.children[0].start = StartAction::Trap;
        connection
    });
    let to = world.lab.b.host_address(Family::V4);
    assert!(World::ping_makes_tunnel(&world.lab.a.host, to, 5), "{}", world.logs(0));
    assert_eq!(world.daemon(1).installed("net").unwrap().len(), 1);
    world.assert_nothing_in_the_clear();
}

#[test]
fn soft_limits_in_packets_bring_new_sas_without_loss() {
    let Some(mut world) = World::start([Plane::Convoy; 2]) else { return };
    world.load(|world, side| {
        let mut connection = world.connection(side, Family::V4);
        connection.children[0].rekey_packets = (side == 0).then_some(400);
        connection
    });
    world.daemon(0).initiate("net", LIMIT).unwrap();
    let (report, dropped) = counted_under_load(&world, |world| {
        let mut id = world.daemon(0).wait_installed("net", LIMIT).unwrap().id;
        for _ in 0..5 {
            id = world.daemon(0).wait_rekeyed("net", id, LIMIT).unwrap().id;
        }
    });
    assert_whole(&world, &report, dropped);
    world.assert_nothing_in_the_clear();
}

#[test]
fn a_killed_gateway_lets_nothing_out_in_the_clear() {
    let Some(mut world) = World::start([Plane::Convoy; 2]) else { return };
    world.load(|world, side| world.connection(side, Family::V4));
    // Where packets would go that nobody protects.
    let everywhere = "0.0.0.0/0".parse().unwrap();
    let beyond = world.lab.b.wire_address(Family::V4);
    world.lab.a.gateway.add_route(everywhere, beyond).unwrap();
    world.daemon(0).initiate("net", LIMIT).unwrap();
    world.daemon(1).wait_installed("net", LIMIT).unwrap();
    let gateway = world.gateways[0].take().unwrap();
    let report = under_load(&world, |_| {
        gateway.kill();
        thread::sleep(Duration::from_millis(500));
    });
    assert!(report.forward.lost() > 0);
    world.start_gateway(0);
    let to = world.lab.b.host_address(Family::V4);
    World::ping(&world.lab.a.host, to, 3);
    world.assert_nothing_in_the_clear();
}

/// The same, and how many packets the kernel dropped for want of room meanwhile.
pub(crate) fn counted_under_load(world: &World, work: impl FnOnce(&World)) -> (UdpReport, u64) {
    world.lab.counting_drops(|| under_load(world, work)).unwrap()
}

/// Nothing is lost, twice or damaged. What the kernel has counted as dropped for want of room is a busy
/// machine's, and not lost by gateways.
#[track_caller]
pub(crate) fn assert_whole(world: &World, report: &UdpReport, dropped: u64) {
    for flow in [&report.forward, &report.backward] {
        assert_eq!((flow.duplicates, flow.damaged), (0, 0), "{flow:?}{}", world.logs(0));
    }
    assert_eq!(report.lost_beyond(dropped), 0, "{dropped} {report:?}{}", world.logs(0));
}

/// Does something while numbered datagrams flow both ways.
pub(crate) fn under_load(world: &World, work: impl FnOnce(&World)) -> UdpReport {
    // Longer than anything is held up.
    loaded(world, Duration::from_secs(3), work)
}

/// The same where what has not come after so much silence counts as lost.
pub(crate) fn loaded(world: &World, quiet: Duration, work: impl FnOnce(&World)) -> UdpReport {
    let stop = AtomicBool::new(false);
    let to = world.lab.b.host_address(Family::V4);
    let stream = UdpPaced {
        direction: Direction::Both,
        payload: 1200,
        quiet,
        ..UdpPaced::new(to, Rate::PacketsPerSecond(1000), Duration::from_secs(300))
    };
    thread::scope(|scope| {
        let hosts = (&world.lab.a.host, &world.lab.b.host);
        let streaming =
            scope.spawn(|| stream.run(hosts.0, hosts.1, &mut Watch::new(&stop)).unwrap());
        // Also when the work panics.
        let ending = StopOnDrop(&stop);
        thread::sleep(Duration::from_millis(200));
        work(world);
        thread::sleep(Duration::from_millis(200));
        drop(ending);
        streaming.join().unwrap()
    })
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
