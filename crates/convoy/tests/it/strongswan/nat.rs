//! A real NAT between the gateways: nftables' masquerade, which forgets what it knew.

use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use convoy_lab::strongswan::{IkeSa, StrongSwan};
use convoy_lab::{Capture, CaptureConfig, End, Family, IpNet, Namespace, cable, wire_report};

use super::world::{FAMILIES, LIMIT, Plane, World, say};
use crate::common::read_pcap;

/// Ports that the NAT gives at first, and after it has forgotten.
const PORTS: [std::ops::RangeInclusive<u16>; 2] = [30000..=30999, 31000..=31999];
const PINGS: u16 = 5;

/// A router between the gateways that hides the left one.
struct Nat {
    router: Namespace,
    /// Of the left gateway, of the right one.
    ends: [IpAddr; 2],
}

impl Nat {
    /// None, said loudly, where there is no `nft`.
    fn start(world: &World) -> Option<Self> {
        let router = Namespace::anonymous().unwrap();
        let nat =
            Self { router, ends: ["192.0.2.1", "203.0.113.2"].map(|end| end.parse().unwrap()) };
        if let Err(why) = nat.give_ports(0) {
            say(&format!("SKIPPED: no NAT: {why}"));
            return None;
        }
        let networks =
            ["192.0.2.254/24", "203.0.113.254/24"].map(|net| net.parse::<IpNet>().unwrap());
        for side in 0..2 {
            let near = IpNet::new(nat.ends[side], 24).unwrap();
            let end = End { namespace: world.gateway(side), link: "uplink", addresses: vec![near] };
            let link = ["inside", "outside"][side];
            let far = End { namespace: &nat.router, link, addresses: vec![networks[side]] };
            cable(&end, &far, 1500).unwrap();
        }
        nat.router.forward().unwrap();
        // The right gateway has no way to the left one but the NAT's own address.
        world.gateway(0).add_route(networks[1].trunc(), networks[0].addr()).unwrap();
        Some(nat)
    }

    /// New connections get other ports.
    fn give_ports(&self, which: usize) -> Result<(), String> {
        let (first, last) = (PORTS[which].start(), PORTS[which].end());
        let rules = format!(
            "table ip nat\ndelete table ip nat\ntable ip nat {{\nchain out {{\n\
             type nat hook postrouting priority 100\n\
             oifname \"outside\" meta l4proto udp masquerade to :{first}-{last}\n}}\n}}\n"
        );
        let mut nft = Command::new("nft");
        nft.arg(rules).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let nft = self.router.spawn(&mut nft).map_err(|error| error.to_string())?;
        let output = nft.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(said) }
    }

    /// As when its line drops for a moment: what it masqueraded is forgotten.
    fn forget(&self) {
        self.give_ports(1).unwrap();
        self.router.set_down("outside").unwrap();
        self.router.set_up("outside").unwrap();
    }
}

/// Ports and data of the UDP datagrams of a capture, from an address.
fn datagrams(capture: &Path, from: [u8; 4]) -> Vec<(u16, u16, Vec<u8>)> {
    let mut found = Vec::new();
    for packet in read_pcap(capture) {
        let ip = &packet[14..];
        if packet[12..14] != [8, 0] || ip[9] != 17 || ip[12..16] != from {
            continue;
        }
        let udp = &ip[usize::from(ip[0] & 15) * 4..];
        let half = |at: usize| u16::from_be_bytes(udp[at..at + 2].try_into().unwrap());
        let data = udp[8..usize::from(half(4))].to_vec();
        found.push((half(0), half(2), data));
    }
    found
}

/// The one IKE SA of a daemon.
fn ike(daemon: &StrongSwan) -> IkeSa {
    let mut sas = daemon.sas().unwrap();
    assert_eq!(sas.len(), 1, "{sas:?}");
    sas.remove(0)
}

fn ping_both_ways(world: &World) {
    for from in [0, 1] {
        for family in FAMILIES {
            let to = world.site(1 - from).host_address(family);
            let answered = World::ping(&world.site(from).host, to, PINGS);
            assert_eq!(
                answered,
                u64::from(PINGS),
                "{from} {family:?}{}{}",
                world.logs(0),
                world.logs(1)
            );
        }
    }
}

#[test]
fn a_tunnel_goes_on_when_a_nat_gives_another_port() {
    let Some(mut world) = World::start([Plane::Convoy; 2]) else { return };
    let Some(nat) = Nat::start(&world) else { return };
    // Keepalives are sent soon.
    let mut config = world.daemons[0].take().unwrap().stop().unwrap();
    config.more.push(("keep_alive".into(), "1s".into()));
    world.daemons[0] = Some(StrongSwan::start(&world.lab.a.gateway, config).unwrap());
    world.load(|world, side| {
        let mut connection = world.connection(side, Family::V4);
        connection.local = vec![nat.ends[side]];
        // Who waits does not know from where its peer comes.
        connection.remote = if side == 0 { vec![nat.ends[1]] } else { vec![] };
        connection
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("outside.pcap");
    let capture =
        Capture::start(world.gateway(1), "uplink", &file, CaptureConfig::default()).unwrap();
    world.daemon(0).initiate("net", LIMIT).unwrap();
    let child = world.daemon(1).wait_installed("net", LIMIT).unwrap();
    assert!(child.encap, "{child:?}");
    let before = ike(world.daemon(1));
    let port = |sa: &IkeSa| sa.remote.unwrap().1;
    assert!(PORTS[0].contains(&port(&before)), "{before:?}");
    ping_both_ways(&world);
    // One that is due when nothing was sent for a second.
    std::thread::sleep(Duration::from_millis(2500));

    nat.forget();
    // The first packet from elsewhere is taken; the answer to it may still go where nobody is. On a busy machine it may be
    // lost on the way.
    let moved = world.daemon(1).wait(LIMIT, "the other port", |_| {
        World::ping(&world.lab.a.host, world.lab.b.host_address(Family::V4), 1);
        let sas = ike(world.daemon(1));
        Ok(PORTS[1].contains(&port(&sas)).then_some(sas))
    });
    let after = moved.unwrap_or_else(|error| panic!("{error}{}", world.logs(1)));
    ping_both_ways(&world);
    // The same SAs: nothing was negotiated again.
    let now = world.daemon(1).installed("net").unwrap();
    let spis = |sa: &convoy_lab::strongswan::ChildSa| (sa.id, sa.spi_in, sa.spi_out);
    assert_eq!(now.iter().map(spis).collect::<Vec<_>>(), [spis(&child)]);
    assert_eq!((after.id, after.local), (before.id, before.local));
    let log = world.gateways[1].as_ref().unwrap().log();
    assert!(log.contains("come from"), "{log}");

    let dropped = capture.stop().unwrap().dropped;
    assert_eq!(dropped, 0);
    let inner = FAMILIES.map(|family| [0, 1].map(|side| world.site(side).network(family)));
    let report = wire_report(&file, inner.as_flattened()).unwrap();
    assert_eq!((report.clear, report.esp), (0, 0), "{}", report.clear_in_words());
    assert!(report.esp_in_udp > 0);
    let from_nat = datagrams(&file, [203, 0, 113, 254]);
    let keepalives = from_nat.iter().filter(|(_, to, data)| *to == 4500 && *data == [0xff]).count();
    assert!(keepalives > 0, "{} datagrams", from_nat.len());
    let is_esp = |data: &[u8]| data.len() > 4 && data[..4] != [0; 4];
    for ports in PORTS {
        let esp = from_nat.iter().filter(|(from, _, data)| ports.contains(from) && is_esp(data));
        assert!(esp.count() >= 2 * usize::from(PINGS), "{ports:?}");
    }
}
