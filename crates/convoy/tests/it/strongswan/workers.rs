//! Twelve tunnels that unmodified strongSwan makes, and two workers on each gateway.

use std::thread;
use std::time::Duration;

use convoy_host::IpNet;
use convoy_lab::strongswan::{Child, Connection};
use convoy_lab::traffic::{Direction, Rate, UdpPaced, UdpReport, Watch};
use convoy_lab::{Family, HOST_LINK, LAN_LINK};
use serde_json::Value;

use super::world::{LIMIT, NAMES, NEVER, Plane, World};
use crate::common::{ip, status};

const TUNNELS: u8 = 12;
/// Every SA with the left gateway is worker 1's; the left one has no rule for its peer.
const WORKERS: &str =
    "[workers]\ncount = 2\n[[workers.rule]]\nworker = 1\npeer = \"198.51.100.1\"\n";

/// The network behind the right gateway that a tunnel leads to, or a host in it.
fn right(tunnel: u8, host: u8) -> IpNet {
    IpNet::new([10, 100 + tunnel, 0, host].into(), 24).unwrap()
}

/// Of identities of its own: to children of one connection a responder could not tell which is meant.
fn connection(world: &World, side: usize, tunnel: u8) -> Connection {
    let (near, far) = (world.site(side), world.site(1 - side));
    let id = |side: usize| format!("{}.{tunnel}", NAMES[side]);
    let left = world.lab.a.network(Family::V4);
    let (local, remote) =
        if side == 0 { (left, right(tunnel, 0)) } else { (right(tunnel, 0), left) };
    let child = Child::new(&format!("net{tunnel}"), local, remote);
    assert!(child.proposals.starts_with("aes128gcm16-"));
    Connection::psk(&format!("peers{tunnel}"), &id(side), &id(1 - side), "of this test only")
        .between(near.wire_address(Family::V4), far.wire_address(Family::V4))
        .child(child)
}

/// Numbered datagrams both ways through every tunnel at once.
fn traffic(world: &World) -> Vec<UdpReport> {
    let hosts = (&world.lab.a.host, &world.lab.b.host);
    thread::scope(|scope| {
        let streams = (1..=TUNNELS).map(|tunnel| {
            let rate = Rate::PacketsPerSecond(50);
            let stream = UdpPaced {
                direction: Direction::Both,
                payload: 1200,
                quiet: Duration::from_secs(3),
                ..UdpPaced::new(right(tunnel, 2).addr(), rate, Duration::from_secs(3))
            };
            scope.spawn(move || stream.run(hosts.0, hosts.1, &mut Watch::new(&NEVER)).unwrap())
        });
        let streams: Vec<_> = streams.collect();
        streams.into_iter().map(|stream| stream.join().unwrap()).collect()
    })
}

/// An SA of a gateway.
#[derive(Debug)]
struct Seen {
    is_outbound: bool,
    spi: u32,
    worker: usize,
    packets: u64,
}

fn seen(status: &Value) -> Vec<Seen> {
    let of = |sa: &Value| {
        assert_eq!(sa["algorithm"], "aes-128-gcm-16");
        let spi = sa["spi"].as_str().unwrap().trim_start_matches("0x");
        Seen {
            is_outbound: sa["direction"] == "outbound",
            spi: u32::from_str_radix(spi, 16).unwrap(),
            worker: sa["worker"].as_u64().unwrap() as usize,
            packets: sa["flow"]["packets"].as_u64().unwrap(),
        }
    };
    status["sas"].as_array().unwrap().iter().map(of).collect()
}

/// SAs and packets of a worker in one direction, as its SAs say.
fn share(sas: &[Seen], worker: usize, is_outbound: bool) -> (u64, u64) {
    let own = sas.iter().filter(|sa| (sa.worker, sa.is_outbound) == (worker, is_outbound));
    own.fold((0, 0), |(count, packets), sa| (count + 1, packets + sa.packets))
}

#[test]
fn twelve_tunnels_are_shared_by_two_workers_and_lose_nothing() {
    let Some(mut world) = World::start_with([Plane::Convoy; 2], WORKERS) else { return };
    for tunnel in 1..=TUNNELS {
        ip(&world.lab.b.gateway, &format!("address add {} dev {LAN_LINK}", right(tunnel, 1)));
        ip(&world.lab.b.host, &format!("address add {} dev {HOST_LINK}", right(tunnel, 2)));
    }
    assert_eq!(world.lab.a.wire_address(Family::V4).to_string(), "198.51.100.1");
    for side in 0..2 {
        let all = (1..=TUNNELS).map(|tunnel| connection(&world, side, tunnel)).collect();
        world.daemons[side].as_mut().unwrap().reload(all).unwrap();
    }
    let mut spis = Vec::new();
    for tunnel in 1..=TUNNELS {
        let child = format!("net{tunnel}");
        world.daemon(0).initiate(&child, LIMIT).unwrap();
        world.daemon(1).wait_installed(&child, LIMIT).unwrap();
        let sa = world.daemon(0).wait_installed(&child, LIMIT).unwrap();
        spis.push((sa.spi_out, sa.spi_in));
    }
    let (reports, dropped) = world.lab.counting_drops(|| traffic(&world)).unwrap();
    let lost: u64 = reports.iter().map(|r| r.forward.lost() + r.backward.lost()).sum();
    assert!(
        lost <= dropped,
        "{lost} lost, {dropped} dropped for want of room: {reports:?}{}",
        world.logs(0)
    );

    let states = [0, 1].map(|side| status(&world.sites[side]));
    let sas = states.each_ref().map(seen);
    // Each tunnel's datagrams went through its own two SAs, at both ends.
    for ((to_right, to_left), report) in spis.iter().zip(&reports) {
        let flows = [(to_right, 0, &report.forward), (to_left, 1, &report.backward)];
        for (spi, sender, flow) in flows {
            assert!(
                flow.sent >= 100 && flow.refused + flow.duplicates + flow.damaged == 0,
                "{flow:?}"
            );
            let of = |side: usize, is_outbound| {
                let mut all = sas[side].iter();
                all.find(|sa| sa.spi == *spi && sa.is_outbound == is_outbound).unwrap()
            };
            let (out, into) = (of(sender, true).packets, of(1 - sender, false).packets);
            assert!(
                out >= flow.sent && into >= flow.received && out - into <= dropped,
                "{out} {into} {flow:?}"
            );
        }
    }
    // Left half each, right all of worker 1, which the SPIs were chosen for.
    let wanted = [[6, 6], [0, 12]];
    for ((sas, state), wanted) in sas.iter().zip(&states).zip(wanted) {
        for (worker, count) in wanted.into_iter().enumerate() {
            let said = &state["by_worker"][worker];
            for (is_outbound, way) in [(true, "outbound"), (false, "inbound")] {
                let (own, packets) = share(sas, worker, is_outbound);
                assert_eq!(own, count, "{way} SAs of worker {worker}: {sas:?}");
                assert_eq!(said[format!("{way}_sas")], count, "{said}");
                assert_eq!(said[format!("{way}_packets")], packets, "{said}");
                assert!(packets >= 100 * count);
            }
        }
        let inbound = sas.iter().filter(|sa| !sa.is_outbound);
        assert!(inbound.clone().all(|sa| sa.spi % 2 == sa.worker as u32), "{sas:?}");
    }
    world.assert_not_in_the_clear(&[world.lab.a.network(Family::V4)]);
}

/// A daemon says the interface of an SA behind its SPI: where a rule goes by that, packets may have to be handed over.
#[test]
fn what_comes_to_another_worker_than_the_owner_is_handed_over() {
    const RULES: &str = "[[xfrm.interface]]\nname = \"ipsec0\"\nif_id = 42\n\
        [workers]\ncount = 2\n[[workers.rule]]\nworker = 1\nif_id = 42\n";
    for encap in [false, true] {
        let Some(mut world) = World::start_with([Plane::Convoy; 2], RULES) else { return };
        world.load(|world, side| {
            let mut connection = world.connection(side, Family::V4);
            connection.encap = encap;
            connection.children[0].more =
                ["if_id_in", "if_id_out"].map(|key| (key.into(), "42".into())).to_vec();
            connection
        });
        for side in 0..2 {
            let network = world.site(1 - side).network(Family::V4);
            ip(world.gateway(side), &format!("route replace {network} dev ipsec0"));
        }
        world.daemon(0).initiate("net", LIMIT).unwrap();
        world.daemon(1).wait_installed("net", LIMIT).unwrap();
        let to = world.lab.b.host_address(Family::V4);
        assert_eq!(World::ping(&world.lab.a.host, to, 50), 50, "{}", world.logs(0));
        for side in 0..2 {
            let state = status(&world.sites[side]);
            let sas = seen(&state);
            assert!(sas.iter().all(|sa| sa.worker == 1 && sa.packets >= 50), "{sas:?}");
            // The first SPI is the first worker's, as none has any SA.
            assert!(sas.iter().any(|sa| !sa.is_outbound && sa.spi % 2 == 0), "{sas:?}");
            let counts = state["counters"].as_array().unwrap().iter();
            let mut handed = counts.filter(|count| count["name"] == "worker.handed-off");
            assert!(handed.next().unwrap()["value"].as_u64().unwrap() >= 50, "{state}");
        }
        world.assert_nothing_in_the_clear();
    }
}
