//! Two hosts, and ports of a gateway between them that forward.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use convoy_io::Port;
use convoy_io::link::Table;
use convoy_packet::{Arena, Burst};

use super::wire::{FAR, NEAR, all_at, is_right, plug};
use super::{Namespace, pattern};

const BYTES: usize = 20 << 20;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Hosts `a` and `b` and the gateway, whose interfaces to them are `left` and `right`.
pub fn hosts() -> Result<[Namespace; 3], String> {
    let [a, gateway, b] = [Namespace::new()?, Namespace::new()?, Namespace::new()?];
    plug(&a, "eth0", &gateway, "left", 1500);
    plug(&b, "eth0", &gateway, "right", 1500);
    for (host, n, other, side) in [(&a, 1, 2, "left"), (&b, 2, 1, "right")] {
        host.ip(&format!("addr add 10.0.{n}.2/24 dev eth0"));
        host.ip(&format!("addr add fd00:{n}::2/64 dev eth0 nodad"));
        host.ip("link set eth0 up");
        gateway.ip(&format!("link set {side} up"));
        // The gateway answers no ARP here: its neighbours know it.
        host.ip(&format!("route add 10.0.{other}.0/24 via 10.0.{n}.1"));
        host.ip(&format!("neigh replace 10.0.{n}.1 lladdr 02:00:00:00:00:02 dev eth0"));
        host.ip(&format!("route add fd00:{other}::/64 via fd00:{n}::1"));
        host.ip(&format!("neigh replace fd00:{n}::1 lladdr 02:00:00:00:00:02 dev eth0"));
        host.settle();
    }
    Ok([a, gateway, b])
}

/// The gateway's knowledge of host 1 or 2.
pub fn table(n: u8) -> Table {
    all_at(FAR, NEAR, &[ip(&format!("10.0.{n}.2")), ip(&format!("fd00:{n}::2"))])
}

/// Lets the hosts talk in both IP versions while the ports forward; returns the ports.
pub fn talk<P: Port + 'static>(
    [a, b]: [&Namespace; 2],
    [left, right]: [P; 2],
    arena: &'static Arena,
) -> [P; 2] {
    let stop = Arc::new(AtomicBool::new(false));
    let gate = {
        let stop = stop.clone();
        std::thread::spawn(move || forward(left, right, arena, &stop))
    };
    for (from, to) in [("10.0.1.2", "10.0.2.2"), ("fd00:1::2", "fd00:2::2")] {
        let listener = b.run(move || TcpListener::bind((ip(to), 7000))).unwrap();
        let reader = std::thread::spawn(move || {
            let (mut stream, peer) = listener.accept().unwrap();
            assert_eq!(peer.ip(), ip(from));
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            all
        });
        let mut sent = vec![0; BYTES];
        pattern(1, 0, &mut sent);
        let mut stream = a.run(move || TcpStream::connect((ip(to), 7000))).unwrap();
        stream.write_all(&sent).unwrap();
        drop(stream);
        assert!(reader.join().unwrap() == sent);

        let server = b.run(move || UdpSocket::bind((ip(to), 7001))).unwrap();
        let client = a.run(move || UdpSocket::bind((ip(from), 0))).unwrap();
        server.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        client.send_to(&[7; 1000], (ip(to), 7001)).unwrap();
        let received = loop {
            match server.recv(&mut [0; 2000]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                outcome => break outcome,
            }
        };
        assert_eq!(received.unwrap(), 1000);
    }
    stop.store(true, Ordering::Relaxed);
    gate.join().unwrap()
}

/// Forwards between two ports until told to stop; every packet must be finished.
fn forward<P: Port>(mut left: P, mut right: P, arena: &'static Arena, stop: &AtomicBool) -> [P; 2] {
    let (mut pool, mut burst) = (arena.pool(), Burst::new());
    while !stop.load(Ordering::Relaxed) {
        let mut moved = 0;
        for right_to_left in [false, true] {
            let (from, to) =
                if right_to_left { (&mut right, &mut left) } else { (&mut left, &mut right) };
            moved += from.rx(&mut pool, &mut burst).unwrap();
            for packet in burst.as_slice() {
                assert!(packet.len() <= 1500 && is_right(packet.data()), "{:?}", packet.data());
            }
            to.tx(&mut pool, &mut burst).unwrap();
        }
        if moved == 0 {
            std::thread::yield_now();
        }
    }
    [left, right]
}
