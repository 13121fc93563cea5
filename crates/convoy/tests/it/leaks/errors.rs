//! ICMP errors of a gateway about packets that passed in clear.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use convoy_lab::Family;
use nix::sys::socket::{setsockopt, sockopt};

use super::{World, with_a_free_port};

/// A sender by a port that a policy passes is told that its packets end at the gateway; the error quotes them.
#[test]
fn errors_about_what_passes_in_clear_are_told() {
    let Some(world) = World::new(with_a_free_port) else { return };
    let [a, _b] = world.start();
    let to = SocketAddr::new(world.lab.a.host_address(Family::V4), 4321);
    let told = || {
        let socket = UdpSocket::bind("0.0.0.0:9").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        setsockopt(&socket, sockopt::Ipv4RecvErr, &true).unwrap();
        // Its gateway, and the other one.
        socket.set_ttl(2).unwrap();
        socket.connect(to).unwrap();
        (0..5).find_map(|_| {
            let _ = socket.send(b"how far does it get");
            socket.recv(&mut [0; 8]).err()?.raw_os_error().filter(|it| *it != libc::EAGAIN)
        })
    };
    let told = world.lab.b.host.run(told).unwrap();
    assert_eq!(told, Some(libc::EHOSTUNREACH), "{}", a.log());
}
