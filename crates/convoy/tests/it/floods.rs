//! Floods of packets that no SA takes, at sockets of native ESP.

use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use convoy_lab::traffic::{Ping, Watch};
use convoy_lab::{Family, Namespace, Topology, TopologyConfig};
use socket2::{Domain, Protocol, Socket, Type};

use crate::common::{Gateway, PATIENCE, Plan, can_make_namespaces, dropped, status};

const A: [u8; 4] = [198, 51, 100, 1];

/// Sends ESP of unknown SPIs until told to stop; the number sent.
fn flood(from: &Namespace, stop: &AtomicBool) -> u64 {
    from.run(|| {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(50))).unwrap();
        let to = SocketAddr::from((A, 0)).into();
        let mut sent = 0;
        while !stop.load(Ordering::Relaxed) {
            for _ in 0..100 {
                let spi = 0x10_0000 + (sent as u32).wrapping_mul(0x9e37) % 0x1000_0000;
                let packet = [&spi.to_be_bytes()[..], &[7; 60]].concat();
                sent += u64::from(socket.send_to(&packet, &to).is_ok());
            }
            thread::sleep(Duration::from_millis(10));
        }
        // It hears what comes to its protocol, and nobody reads that.
        let _ = socket.recv(&mut [MaybeUninit::new(0); 1]);
        sent
    })
    .unwrap()
}

#[test]
fn a_flood_of_unknown_spis_ends_in_the_kernel_and_each_packet_is_counted() {
    if !can_make_namespaces() {
        return;
    }
    let lab =
        Topology::build(&TopologyConfig { named: false, ..TopologyConfig::default() }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let plan = Plan::simple();
    let sites = ['a', 'b'].map(|side| plan.write(side, folder.path()));
    let a = Gateway::start(&lab.a.gateway, &sites[0]);
    let b = Gateway::start(&lab.b.gateway, &sites[1]);
    let unknown = || dropped(&status(&sites[0]), "unknown-spi");
    let stop = AtomicBool::new(false);
    let far: IpAddr = lab.b.host_address(Family::V4);
    thread::scope(|scope| {
        let flooder = scope.spawn(|| flood(&lab.b.gateway, &stop));
        let begun = Instant::now();
        while !a.log().contains("a flood: ") {
            assert!(begun.elapsed() < PATIENCE, "{}\n{}", status(&sites[0]), a.log());
            thread::sleep(Duration::from_millis(50));
        }
        let (cancel, interval) = (AtomicBool::new(false), Duration::from_millis(20));
        let ping = Ping { count: 50, interval, timeout: PATIENCE, ..Ping::new(far) };
        let answered = ping.run(&lab.a.host, &mut Watch::new(&cancel)).unwrap().received;
        stop.store(true, Ordering::Relaxed);
        let sent = flooder.join().unwrap();
        assert_eq!(answered, 50, "{}\n{}", a.log(), b.log());
        let begun = Instant::now();
        while unknown() != sent {
            assert!(begun.elapsed() < PATIENCE, "{} of {sent}", unknown());
            thread::sleep(Duration::from_millis(50));
        }
        let told = status(&sites[0]);
        let counter = told["counters"]
            .as_array()
            .unwrap()
            .iter()
            .find(|c| c["name"] == "wire.rx-unknown-spi");
        let in_kernel = counter.and_then(|c| c["value"].as_u64()).unwrap_or_default();
        assert!(in_kernel > 0 && in_kernel < sent, "{in_kernel} of {sent}");
    });
    let begun = Instant::now();
    while !a.log().contains("the flood is over") {
        assert!(begun.elapsed() < 2 * PATIENCE, "{}", a.log());
        thread::sleep(Duration::from_millis(100));
    }
}
