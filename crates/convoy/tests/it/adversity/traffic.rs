//! Traffic that never stops: protected and in clear, of hosts and of the gateway itself.

use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use convoy_lab::{Namespace, WIRE_LINK};
use nix::sys::socket::{setsockopt, sockopt};

use super::world::{FAMILIES, FREE, World};
use crate::common::PATIENCE;

/// Of both sites, protected.
const HELD: u16 = 4242;
const PAUSE: Duration = Duration::from_millis(3);
/// Packets of one flow before another one begins.
const FLOW: u64 = 16;

/// Threads that send until this is dropped.
pub(crate) struct Traffic {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// Packets that came to the second host through the tunnel, of each IP version, and answers in clear.
    arrived: [Arc<AtomicU64>; 2],
    answered: [Arc<AtomicU64>; 2],
}

impl Traffic {
    pub(crate) fn start(world: &World) -> Self {
        let mut traffic = Self {
            is_over: Arc::default(),
            threads: Vec::new(),
            arrived: Default::default(),
            answered: Default::default(),
        };
        let (a, b) = (&world.lab.a, &world.lab.b);
        for (number, family) in FAMILIES.into_iter().enumerate() {
            let host = b.host_address(family);
            traffic.receive(&b.host, SocketAddr::new(host, HELD), number, false);
            traffic.receive(&b.host, SocketAddr::new(host, FREE), number, true);
            traffic.receive(&a.host, SocketAddr::new(a.host_address(family), HELD), number, false);
            traffic.send(&a.host, a.host_address(family), host, None, number);
            traffic.send(&b.host, host, a.host_address(family), None, number);
            let own = a.gateway_address(family);
            traffic.send(&a.gateway, own, host, None, number);
            traffic.send(&a.gateway, own, host, Some(WIRE_LINK), number);
            traffic.connect(&a.host, SocketAddr::new(host, HELD));
        }
        traffic
    }

    fn run(&mut self, space: &Namespace, mut once: impl FnMut() + Send + 'static) {
        let is_over = Arc::clone(&self.is_over);
        let work = move || {
            while !is_over.load(Ordering::Relaxed) {
                once();
            }
        };
        self.threads.push(space.start("traffic", work).unwrap());
    }

    /// Takes what comes, and sends it back.
    fn receive(&mut self, space: &Namespace, at: SocketAddr, number: usize, answers: bool) {
        let socket = space.run(|| UdpSocket::bind(at).unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let arrived = Arc::clone(&self.arrived[number]);
        let mut buffer = vec![0; 4000];
        self.run(space, move || {
            let Ok((length, from)) = socket.recv_from(&mut buffer) else { return };
            if answers {
                let _ = socket.send_to(&buffer[..length], from);
            } else if at.ip().to_string().contains(if number == 0 { "10.2." } else { ":2::" }) {
                arrived.fetch_add(1, Ordering::Relaxed);
            }
        });
    }

    /// Flow after flow to a port that is protected and to one that is not.
    fn send(
        &mut self,
        space: &Namespace,
        from: IpAddr,
        to: IpAddr,
        link: Option<&'static str>,
        number: usize,
    ) {
        let answered = Arc::clone(&self.answered[number]);
        let open = move || {
            let socket = UdpSocket::bind((from, 0)).unwrap();
            if let Some(link) = link {
                setsockopt(&socket, sockopt::BindToDevice, &link.into()).unwrap();
            }
            socket.set_nonblocking(true).unwrap();
            socket
        };
        let mut sockets = None::<[UdpSocket; 2]>;
        let mut sent = 0_u64;
        self.run(space, move || {
            let [held, free] = sockets.get_or_insert_with(|| [open(), open()]);
            // Some do not fit the link. Whatever a send is told, what counts is on the wire.
            let length = if sent % 5 == 4 { 3000 } else { 100 };
            let _ = held.send_to(&[7; 3000][..length], (to, HELD));
            let _ = free.send_to(&[8; 100], (to, FREE));
            if free.recv(&mut [0; 100]).is_ok() {
                answered.fetch_add(1, Ordering::Relaxed);
            }
            sent += 1;
            if sent.is_multiple_of(FLOW) {
                sockets = None;
            }
            thread::sleep(PAUSE);
        });
    }

    fn connect(&mut self, space: &Namespace, to: SocketAddr) {
        self.run(space, move || {
            let _ = TcpStream::connect_timeout(&to, Duration::from_millis(50));
            thread::sleep(PAUSE);
        });
    }

    /// Waits until all ways are open.
    pub(crate) fn passes(&self, world: &World, what: &str) {
        let until = Instant::now() + PATIENCE;
        let counts = || {
            let all = self.arrived.iter().chain(&self.answered);
            all.map(|count| count.load(Ordering::Relaxed)).collect::<Vec<_>>()
        };
        let before = counts();
        while counts().iter().zip(&before).any(|(now, before)| *now < before + 20) {
            assert!(
                Instant::now() < until,
                "no way, protected or in clear: {before:?} to {:?}, {what}\n{}",
                counts(),
                world.log()
            );
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
