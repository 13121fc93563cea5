//! A full table of connections, as whoever may open connections through a gateway can have it, costs tunnels nothing.

use std::os::fd::AsRawFd as _;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use convoy_lab::traffic::{Ping, Watch};
use convoy_lab::{Family, Namespace};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, sendto, socket,
};

use super::{Caller, Echo, World, doctor, with_a_free_port};
use crate::common::{PATIENCE, status, text};

/// More flows than this are not made for a test.
const MOST: u64 = 1 << 20;

fn number(space: &Namespace, name: &str) -> u64 {
    let path = format!("/proc/sys/net/netfilter/nf_conntrack_{name}");
    space.run(|| std::fs::read_to_string(path).unwrap()).unwrap().trim().parse().unwrap()
}

/// An attribute of netlink.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = u16::try_from(4 + value.len()).unwrap();
    let mut bytes = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn nested(kind: u16, parts: &[Vec<u8>]) -> Vec<u8> {
    attribute(kind | 1 << 15, &parts.concat())
}

/// The order that enters a flow of UDP between strangers that went both ways and is to live for an hour (`CTA_TUPLE_ORIG`,
/// `CTA_TUPLE_REPLY`, `CTA_STATUS`, `CTA_TIMEOUT`).
fn entry(flow: u32) -> Vec<u8> {
    let (from, to) = ((0xc612_0000 | flow >> 14).to_be_bytes(), 0xc613_0001_u32.to_be_bytes());
    let ports = [(1024 + (flow & 0x3fff)) as u16, 7].map(u16::to_be_bytes);
    let tuple = |kind, ends: [[u8; 4]; 2], ports: [[u8; 2]; 2]| {
        let addresses = nested(1, &[attribute(1, &ends[0]), attribute(2, &ends[1])]);
        let udp = [attribute(1, &[17]), attribute(2, &ports[0]), attribute(3, &ports[1])];
        nested(kind, &[addresses, nested(2, &udp)])
    };
    // Seen in both directions, assured, confirmed.
    let status = (1_u32 << 1 | 1 << 2 | 1 << 3).to_be_bytes();
    let body = [
        vec![2, 0, 0, 0],
        tuple(1, [from, to], ports),
        tuple(2, [to, from], [ports[1], ports[0]]),
        attribute(3, &status),
        attribute(7, &3600_u32.to_be_bytes()),
    ]
    .concat();
    let len = u32::try_from(16 + body.len()).unwrap();
    // `IPCTNL_MSG_CT_NEW` with `NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL`.
    let (kind, flags) = (1_u16 << 8, 1_u16 | 0x400 | 0x200);
    [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), &flags.to_ne_bytes(), &[0; 8], &body].concat()
}

/// Enters flows until there are so many.
fn fill(space: &Namespace, first: u32, upto: u64) {
    let missing = u32::try_from(upto.saturating_sub(number(space, "count"))).unwrap();
    space
        .run(|| {
            let protocol = SockProtocol::NetlinkNetFilter;
            let socket =
                socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol);
            let socket = socket.unwrap();
            let flows: Vec<u32> = (first..first + missing).collect();
            for some in flows.chunks(500) {
                let orders: Vec<u8> = some.iter().flat_map(|flow| entry(*flow)).collect();
                sendto(socket.as_raw_fd(), &orders, &NetlinkAddr::new(0, 0), MsgFlags::empty())
                    .unwrap();
            }
        })
        .unwrap();
    let count = number(space, "count");
    assert!(count >= upto.saturating_sub(100), "{count} of {upto}");
}

fn waits_for(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn reasons(world: &World) -> String {
    status(&world.sites[0])["health"]["reasons"].to_string()
}

#[test]
fn a_full_table_of_connections_costs_tunnels_nothing() {
    let Some(world) = World::new(with_a_free_port) else { return };
    let _echo = Echo::start(&world);
    let [a, b] = world.start();
    let gateway = &world.lab.a.gateway;
    let limit = number(gateway, "max");
    if limit == 0 || limit > MOST {
        return println!("SKIPPED: a table of {limit} connections is not filled");
    }
    let caller = Caller::new(&world);
    assert!(caller.is_answered(&world), "{}\n{}", a.log(), b.log());
    let tracks_esp = || {
        let list = gateway.run(|| std::fs::read_to_string("/proc/thread-self/net/nf_conntrack"));
        let list = list.unwrap().unwrap_or_default();
        list.lines().any(|line| line.split_whitespace().nth(3) == Some("50"))
    };
    let command = |program: &str, words: &str| {
        let mut command = Command::new(program);
        command.args(words.split(' ')).stdout(Stdio::null()).stderr(Stdio::null());
        gateway.spawn(&mut command).unwrap().wait().unwrap().success()
    };
    // Of what was tracked before it was known who needs that, something may be left.
    waits_for("ESP is tracked", || {
        let _ = command("conntrack", "-D -p esp");
        world.answers() > 0 && !tracks_esp()
    });
    // By now flows remember what was answered, which they may not as long as answers of before are cleared.
    assert!(caller.is_answered(&world), "{}", a.log());
    fill(gateway, 0, limit * 91 / 100);
    waits_for("nobody says so", || reasons(&world).contains("table of connections"));
    assert!(doctor(&world).contains("table of connections"), "{}", doctor(&world));
    let report = status(&world.sites[0]);
    let shown = &report["leak_protection"]["connections"];
    assert_eq!(shown["limit"], limit, "{report}");
    assert!(shown["entries"].as_u64() >= Some(limit * 9 / 10), "{report}");
    // What is left is for what is protected, and what was decided goes on.
    assert!(!Caller::new(&world).is_answered(&world), "a new flow in clear takes the last room");
    assert!(caller.is_answered(&world), "{}", a.log());
    assert!(world.is_reached(), "a new protected flow: {}", a.log());
    // Somebody needs flows to be tracked: then tunnels alone are spared.
    if !command("nft", "add table inet others") {
        return println!("SKIPPED in part: nft does not run here");
    }
    assert!(command("nft", "add chain inet others c { type filter hook forward priority 0 ; }"));
    assert!(command("nft", "add rule inet others c ct state established accept"));
    let table = || {
        let mut command = Command::new("nft");
        command.args(["list", "table", "inet", "convoy-tun0"]);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let output = gateway.spawn(&mut command).unwrap().wait_with_output().unwrap();
        text(&output.stdout)
    };
    waits_for("who tracks is not seen", || {
        let table = table();
        // Strangers are spared by a rule for all that is left.
        table.contains("notrack") && table.lines().all(|line| line.trim() != "notrack")
    });
    fill(gateway, 1 << 19, limit);
    let inbound = || status(&world.sites[0])["inbound"]["packets"].as_u64().unwrap();
    let before = inbound();
    waits_for("ESP does not come in", || {
        let cancel = AtomicBool::new(false);
        let to = world.lab.a.host_address(Family::V4);
        let ping = Ping { count: 5, timeout: Duration::from_millis(50), ..Ping::new(to) };
        let _ = ping.run(&world.lab.b.host, &mut Watch::new(&cancel)).unwrap();
        inbound() >= before + 5
    });
    // It ends, and leaves tracking to others.
    assert!(a.terminate().success());
    assert!(!table().contains("notrack"), "{}", table());
    drop(b);
}
