//! All SAs of two gateways are rekeyed at once under full load, as a cluster does that rotates its keys.

use std::fmt::Write as _;
use std::io::{IoSlice, IoSliceMut, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use convoy_lab::Family;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, sendmsg, setsockopt,
    sockopt,
};

use crate::common::{exec, ip, status, text};
use crate::keep::World;

const PORT: u16 = 4243;
/// Datagrams under way at once: enough to keep both gateways busy, and no queue full.
const WINDOW: u64 = 64;
/// Payload in bytes; the first eight are the datagram's number.
const PAYLOAD: usize = 1000;
/// Longest way of a datagram there and back, on a busy machine.
const LATEST: Duration = Duration::from_secs(10);
/// Time in which old SAs still receive: what was sent by them is under way.
const UNDER_WAY: Duration = Duration::from_millis(500);

/// Number of tunnels, of two SAs each: few in a gate, and a large cluster's where `CONVOY_LONG` is set.
fn tunnels() -> u32 {
    if std::env::var_os("CONVOY_LONG").is_some() { 1620 } else { 40 }
}

/// The host behind the second gateway that a tunnel leads to.
fn far(tunnel: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 200, 0, 0)) + tunnel)
}

/// The world's tunnels, as `ip xfrm` makes them.
struct Rotation {
    world: World,
    tunnels: u32,
}

impl Rotation {
    /// Runs lines of `ip` at the gateway of a side.
    fn batch(&self, side: usize, lines: &str) {
        let mut command = exec(self.world.folder(side).join("xfrm.sock"));
        command.args(["ip", "-batch", "-"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.world.site(side).gateway.spawn(&mut command).unwrap();
        child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }

    /// Runs lines at both gateways at once.
    fn batches(&self, lines: impl Fn(usize) -> String + Sync) {
        let lines = &lines;
        thread::scope(|scope| {
            for side in 0..2 {
                scope.spawn(move || self.batch(side, &lines(side)));
            }
        });
    }

    fn wire(&self, side: usize) -> String {
        self.world.site(side).wire_address(Family::V4).to_string()
    }

    /// The SPI of a tunnel's SA that this side sends by.
    const fn spi(generation: u32, tunnel: u32, sender: usize) -> u32 {
        generation << 24 | tunnel << 1 | sender as u32
    }

    /// Lines for the SAs that one side sends by.
    fn sas(&self, verb: &str, generation: u32, sender: usize) -> String {
        let (from, to) = (self.wire(sender), self.wire(1 - sender));
        let mut lines = String::new();
        for tunnel in 0..self.tunnels {
            let spi = Self::spi(generation, tunnel, sender);
            let _ = write!(lines, "xfrm state {verb} src {from} dst {to} proto esp spi {spi}");
            if verb == "add" {
                let reqid = tunnel + 1;
                let _ = write!(
                    lines,
                    " reqid {reqid} mode tunnel replay-window 2048 flag esn \
                     aead rfc4106(gcm(aes)) 0x{spi:040x} 128"
                );
            }
            lines.push('\n');
        }
        lines
    }

    fn policies(&self, side: usize) -> String {
        let near = self.world.lab.a.network(Family::V4).to_string();
        let mut lines = String::new();
        for tunnel in 0..self.tunnels {
            let far = far(tunnel).to_string();
            let ends = if side == 0 { [&near, &far] } else { [&far, &near] };
            for (direction, sender) in [("out", side), ("in", 1 - side), ("fwd", 1 - side)] {
                let [from, to] = if direction == "out" { ends } else { [ends[1], ends[0]] };
                let (source, target) = (self.wire(sender), self.wire(1 - sender));
                let _ = writeln!(
                    lines,
                    "xfrm policy add src {from} dst {to} dir {direction} tmpl src {source} \
                     dst {target} proto esp reqid {} mode tunnel",
                    tunnel + 1
                );
            }
        }
        lines
    }

    fn start() -> Option<Self> {
        let it = Self { world: World::start_by("")?, tunnels: tunnels() };
        // As a daemon does it: first the SAs that receive.
        it.batches(|side| it.sas("add", 1, 1 - side));
        it.batches(|side| it.sas("add", 1, side));
        it.batches(|side| it.policies(side));
        let lab = &it.world.lab;
        ip(&lab.b.host, "route add local 10.200.0.0/16 dev lo");
        let host = lab.b.host_address(Family::V4);
        ip(&lab.b.gateway, &format!("route add 10.200.0.0/16 via {host}"));
        Some(it)
    }

    /// Has new SAs in the place of all.
    fn rekey(&self, generation: u32) {
        self.batches(|side| self.sas("add", generation, 1 - side));
        self.batches(|side| self.sas("add", generation, side));
        self.batches(|side| self.sas("delete", generation - 1, side));
        thread::sleep(UNDER_WAY);
        self.batches(|side| self.sas("delete", generation - 1, 1 - side));
    }

    fn logs(&self) -> String {
        self.world.gateways.iter().flatten().map(|gateway| gateway.log()).collect()
    }
}

/// Sends each datagram back from the address that it came to.
fn echo(socket: &UdpSocket, stop: &AtomicBool) {
    setsockopt(socket, sockopt::Ipv4PacketInfo, &true).unwrap();
    let mut bytes = [0; 2048];
    let mut room = nix::cmsg_space!(libc::in_pktinfo);
    while !stop.load(Ordering::Relaxed) {
        let fd = socket.as_raw_fd();
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let came = recvmsg::<SockaddrIn>(fd, &mut parts, Some(&mut room), MsgFlags::empty());
        let Ok(came) = came else { continue };
        let (len, from) = (came.bytes, came.address.unwrap());
        let to = came.cmsgs().unwrap().find_map(|message| match message {
            ControlMessageOwned::Ipv4PacketInfo(info) => Some(info),
            _ => None,
        });
        let info = to.unwrap();
        let info = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: info.ipi_addr, ..info };
        let source = [ControlMessage::Ipv4PacketInfo(&info)];
        sendmsg(fd, &[IoSlice::new(&bytes[..len])], &source, MsgFlags::empty(), Some(&from))
            .unwrap();
    }
}

/// Sends datagrams by all tunnels in turn until told to stop, [`WINDOW`] at once; counts those that came back.
/// Gives the number of those that did not.
fn load(socket: &UdpSocket, tunnels: u32, stop: &AtomicBool, back: &AtomicU64) -> Vec<u64> {
    let mut missing = std::collections::BTreeSet::new();
    let (mut next, mut bytes) = (0_u64, [0; PAYLOAD]);
    let mut last = Instant::now();
    loop {
        let is_over = stop.load(Ordering::Relaxed);
        while !is_over && (missing.len() as u64) < WINDOW {
            bytes[..8].copy_from_slice(&next.to_be_bytes());
            let to = far((next % u64::from(tunnels)) as u32);
            socket.send_to(&bytes, SocketAddrV4::new(to, PORT)).unwrap();
            missing.insert(next);
            next += 1;
        }
        if missing.is_empty() || last.elapsed() > LATEST {
            return missing.into_iter().collect();
        }
        let Ok(len) = socket.recv(&mut bytes) else { continue };
        assert_eq!(len, PAYLOAD);
        let number = u64::from_be_bytes(bytes[..8].try_into().unwrap());
        assert!(missing.remove(&number), "{number} came twice");
        last = Instant::now();
        back.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn all_sas_rekeyed_at_once_under_full_load_lose_nothing() {
    let Some(rotation) = Rotation::start() else { return };
    let (tunnels, lab) = (rotation.tunnels, &rotation.world.lab);
    let [near, far] = [(&lab.a, 0), (&lab.b, PORT)].map(|(site, port)| {
        let socket = site.host.run(move || UdpSocket::bind(("0.0.0.0", port)).unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        socket
    });
    let (stop, over, back) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
    let (missing, dropped) = lab
        .counting_drops(|| {
            thread::scope(|scope| {
                scope.spawn(|| echo(&far, &over));
                let load = scope.spawn(|| load(&near, tunnels, &stop, &back));
                let came = || back.load(Ordering::Relaxed);
                let wait = |more: u64| {
                    let until = came() + more;
                    while came() < until && !load.is_finished() {
                        thread::sleep(Duration::from_millis(5));
                    }
                };
                // Each tunnel has carried some before, between, and behind.
                wait(3 * u64::from(tunnels));
                let (begun, before) = (Instant::now(), came());
                rotation.rekey(2);
                let (took, during) = (begun.elapsed(), came() - before);
                wait(3 * u64::from(tunnels));
                println!(
                    "{} SAs rekeyed in {took:.2?}; {:.0} datagrams a second there and back meanwhile",
                    2 * tunnels,
                    during as f64 / took.as_secs_f64()
                );
                stop.store(true, Ordering::Relaxed);
                let missing = load.join().unwrap();
                over.store(true, Ordering::Relaxed);
                missing
            })
        })
        .unwrap();
    // What the kernel dropped for want of room is a busy machine's.
    assert!(missing.len() as u64 <= dropped, "{missing:?}, {dropped}\n{}", rotation.logs());
    for side in 0..2 {
        let told = status(&rotation.world.folder(side).join("site.toml"));
        let spis: Vec<&str> =
            told["sas"].as_array().unwrap().iter().map(|sa| sa["spi"].as_str().unwrap()).collect();
        assert_eq!(spis.len(), 2 * tunnels as usize);
        assert!(spis.iter().all(|spi| spi.starts_with("0x02")), "{spis:?}");
    }
}
