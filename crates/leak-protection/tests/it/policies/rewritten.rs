//! NAT that makes protected packets of others: a kernel looks policies up again behind it, and so do tunnels here get
//! them.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use convoy_leak_protection::{LeakProtection, Policies, Policy, Verdict, others};

use super::{Counts as _, config, policy, raise};
use crate::world::{SIGN, Space, Tun, World, flows::packet};

/// A local network that no policy names is hidden behind near addresses, and one of its hosts serves behind another.
const RULES: &str = "
table inet others {
    chain pre {
        type nat hook prerouting priority dstnat;
        ip daddr 10.1.0.78 udp dport 10 dnat ip to 192.168.7.2:7
        ip6 daddr 2001:db8:0:1::78 udp dport 10 dnat ip6 to [fd07::2]:7
    }
    chain post {
        type nat hook postrouting priority srcnat;
        oifname wire0 ip saddr 192.168.7.0/24 ip daddr 10.2.0.0/16 snat ip to 10.1.0.77
        oifname wire0 ip6 saddr fd07::/64 ip6 daddr 2001:db8:2::/48 snat ip6 to 2001:db8:0:1::77
        oifname wire0 ip saddr 192.168.8.0/24 ip daddr 10.2.8.0/24 masquerade
        oifname wire0 ip saddr 192.168.9.0/24 ip daddr 10.2.0.0/16 snat ip prefix to 10.1.9.0/24
        oifname wire0 ip saddr 192.0.2.1 ip daddr 10.2.0.7 snat ip to 10.1.0.77
    }
}
";

/// Takes what is protected, until this is dropped.
struct Taker {
    taken: Arc<Mutex<Vec<Vec<u8>>>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// UDP to port 9 passes in clear, all else is protected.
struct Answers(Arc<Mutex<Vec<Vec<u8>>>>);

fn is_v4(packet: &[u8]) -> bool {
    packet[0] >> 4 == 4
}

/// Source and destination of a datagram.
fn ends(packet: &[u8]) -> [SocketAddr; 2] {
    let (at, length, udp) = if is_v4(packet) { (12, 4, 20) } else { (8, 16, 40) };
    [0, 1].map(|end| {
        let bytes = &packet[at + end * length..][..length];
        let address = match <[u8; 4]>::try_from(bytes) {
            Ok(v4) => IpAddr::from(v4),
            Err(_) => IpAddr::from(<[u8; 16]>::try_from(bytes).unwrap()),
        };
        let port = u16::from_be_bytes([packet[udp + 2 * end], packet[udp + 2 * end + 1]]);
        SocketAddr::new(address, port)
    })
}

impl Policies for Answers {
    fn outbound(&mut self, packet: &[u8]) -> Verdict {
        if ends(packet)[1].port() == 9 { Verdict::Bypass } else { Verdict::Protect }
    }

    fn inbound(&mut self, _: &[u8]) -> Verdict {
        Verdict::Bypass
    }

    fn forwarded(&mut self, _: &[u8]) -> Verdict {
        Verdict::Bypass
    }

    fn take(&mut self, packet: &[u8]) {
        self.0.lock().unwrap().push(packet.to_vec());
    }
}

impl Taker {
    fn start(world: &World) -> Self {
        let mut listener = world.gateway.run(|| crate::world::listen(&config(world).questions));
        let (taken, ended) = (Arc::<Mutex<_>>::default(), Arc::<AtomicBool>::default());
        let thread = thread::spawn({
            let (taken, ended) = (Arc::clone(&taken), Arc::clone(&ended));
            move || {
                while !ended.load(Ordering::Relaxed) {
                    if listener.wait(Duration::from_millis(20)).unwrap() {
                        let _ = listener.answer(&mut Answers(Arc::clone(&taken))).unwrap();
                    }
                }
            }
        });
        Self { taken, ended, thread: Some(thread) }
    }

    /// The packet with this tag, if it is taken soon.
    fn takes(&self, tag: &[u8]) -> Option<Vec<u8>> {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(20) {
            let mut taken = self.taken.lock().unwrap();
            if let Some(at) = taken.iter().position(|packet| has(packet, tag)) {
                return Some(taken.swap_remove(at));
            }
            drop(taken);
            thread::sleep(Duration::from_millis(1));
        }
        None
    }
}

impl Drop for Taker {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

fn has(packet: &[u8], tag: &[u8]) -> bool {
    packet.windows(SIGN.len() + tag.len()).any(|it| it == [SIGN, tag].concat())
}

/// Packet with a tag that comes out of the TUN interface.
fn led(tun: &mut Tun, tag: &[u8]) -> Option<Vec<u8>> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(20) {
        if let Some(packet) = tun.read().filter(|packet| has(packet, tag)) {
            return Some(packet);
        }
    }
    None
}

/// A gateway with these rules, whose LAN has more networks; none where nothing changes addresses.
fn world() -> Option<World> {
    let world = World::new()?;
    for (space, link, last) in [(&world.gateway, "lan0", 1), (&world.lan, "eth0", 2)] {
        for network in ["192.168.7", "192.168.8", "192.168.9"] {
            space.ip(&format!("address add {network}.{last}/24 dev {link}"));
        }
        space.ip(&format!("address add fd07::{last}/64 dev {link} nodad"));
    }
    // One file for each test.
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let (process, number) = (std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let file = std::env::temp_dir().join(format!("convoy-rewritten-{process}-{number}.nft"));
    std::fs::write(&file, RULES).unwrap();
    let loaded = world.gateway.command("nft", &format!("-f {}", file.display()));
    std::fs::remove_file(&file).unwrap();
    if let Err(error) = loaded {
        crate::world::skipped(&format!("nothing changes addresses here: {error}"));
        return None;
    }
    Some(world)
}

fn near_and_far() -> [Policy; 2] {
    [("10.1.0.0/16", "10.2.0.0/16"), ("2001:db8:0:1::/64", "2001:db8:2::/48")]
        .map(|(near, far)| policy(near, far, Verdict::Protect))
}

/// Has NAT followed, as a gateway does that sees its rules; whether this kernel can.
fn follow(world: &World, fence: &mut LeakProtection) -> bool {
    assert!(world.gateway.run(|| others(&config(world)).unwrap().rewrite));
    match fence.follow_nat(true) {
        Ok(()) => true,
        Err(error) => {
            crate::world::skipped(&format!("this kernel cannot follow NAT: {error}"));
            false
        }
    }
}

/// Somebody whom NAT hides.
struct Hidden {
    socket: UdpSocket,
    from: SocketAddr,
    /// Whom it sends to, and as whom it is seen there.
    to: &'static str,
    shown: IpAddr,
}

impl Hidden {
    fn send(&self, port: u16, tag: &[u8]) {
        let to = SocketAddr::new(self.to.parse().unwrap(), port);
        // What a packet filter drops its sender is told.
        let _ = self.socket.send_to(&[SIGN, tag].concat(), to);
    }

    fn receives(&self, tag: &[u8]) -> bool {
        let mut answer = [0; 100];
        let length = uninterrupted(|| self.socket.recv(&mut answer)).unwrap_or(0);
        has(&answer[..length], tag)
    }
}

/// A stop of the machine interrupts calls that wait with a limit.
fn uninterrupted<T>(mut call: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

fn hidden_one(space: &Space, from: &str, to: &'static str, shown: &str) -> Hidden {
    let address = SocketAddr::new(from.parse().unwrap(), 0);
    let socket = space.run(|| UdpSocket::bind(address).unwrap());
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let from = socket.local_addr().unwrap();
    Hidden { socket, from, to, shown: shown.parse().unwrap() }
}

/// Hosts that SNAT and a map of one to one hide, of both IP versions, and the host itself.
fn hidden(world: &World) -> [Hidden; 4] {
    [
        (&world.lan, "192.168.7.2", "10.2.0.9", "10.1.0.77"),
        (&world.lan, "192.168.9.2", "10.2.0.9", "10.1.9.2"),
        (&world.lan, "fd07::2", "2001:db8:2::9", "2001:db8:0:1::77"),
        (&world.gateway, "192.0.2.1", "10.2.0.7", "10.1.0.77"),
    ]
    .map(|(space, from, to, shown)| hidden_one(space, from, to, shown))
}

/// The first packet is taken, others are led into the TUN interface, and answers come back.
#[track_caller]
fn is_led_as_hidden(world: &World, tun: &mut Tun, taker: &Taker, it: &Hidden) {
    let mut seen = None;
    for number in 0..3 {
        let tag = world.listener.tag();
        it.send(7, &tag);
        // The kernel knows the flow from its first packet on.
        let taken = if number == 0 { taker.takes(&tag) } else { led(tun, &tag) };
        let [source, to] = ends(&taken.unwrap_or_else(|| panic!("{number} of {}", it.from)));
        assert_eq!((source.ip(), to.port()), (it.shown, 7), "{}", it.from);
        assert_eq!(*seen.get_or_insert(source), source, "{}", it.from);
        let tag = world.listener.tag();
        let shown = it.shown.to_string();
        tun.write(&packet(it.to, &shown, [to.port(), source.port()], &tag));
        assert!(it.receives(&tag), "no answer to {}", it.from);
    }
}

#[test]
fn what_source_nat_makes_a_protected_packet_goes_into_the_tunnel_and_answers_come_back() {
    let Some(world) = world() else { return };
    let mut tun = world.tun();
    let mut fence = raise(&world);
    fence.come(&near_and_far());
    let hidden = hidden(&world);
    if !follow(&world, &mut fence) {
        return;
    }
    let taker = Taker::start(&world);
    hidden.iter().for_each(|it| is_led_as_hidden(&world, &mut tun, &taker, it));
    nothing_leaves(&world, &hidden, 7);
    assert_eq!(fence.stopped(), 0);
}

#[test]
fn who_is_masqueraded_by_an_address_of_the_wire_reaches_the_tunnel() {
    let Some(world) = world() else { return };
    let mut tun = world.tun();
    let mut fence = raise(&world);
    fence.come(&[policy("192.0.2.1/32", "10.2.0.0/16", Verdict::Protect)]);
    let masqueraded = hidden_one(&world.lan, "192.168.8.2", "10.2.8.9", "192.0.2.1");
    if !follow(&world, &mut fence) {
        return;
    }
    let taker = Taker::start(&world);
    is_led_as_hidden(&world, &mut tun, &taker, &masqueraded);
    assert_eq!(fence.stopped(), 0);
}

/// Nothing of new or known flows leaves in clear.
#[track_caller]
fn nothing_leaves(world: &World, hidden: &[Hidden], port: u16) {
    let tags: Vec<_> = hidden.iter().map(|it| (it, world.listener.tag())).collect();
    tags.iter().for_each(|(it, tag)| it.send(port, tag));
    world.senders().iter().for_each(|sender| world.listener.flush(sender));
    for (it, tag) in tags {
        assert_eq!(world.listener.count(&tag), 0, "{} left in clear", it.from);
    }
}

#[test]
fn who_serves_behind_a_near_address_answers_by_the_tunnel() {
    let Some(world) = world() else { return };
    let mut tun = world.tun();
    let mut fence = raise(&world);
    fence.come(&near_and_far());
    if !follow(&world, &mut fence) {
        return;
    }
    for (served, near, far) in [
        ("192.168.7.2:7", "10.1.0.78", "10.2.0.9"),
        ("[fd07::2]:7", "2001:db8:0:1::78", "2001:db8:2::9"),
    ] {
        let service = world.lan.run(|| UdpSocket::bind(served).unwrap());
        service.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let tag = world.listener.tag();
        tun.write(&packet(far, near, [999, 10], &tag));
        let mut question = [0; 100];
        let (length, who) = uninterrupted(|| service.recv_from(&mut question)).unwrap();
        assert!(has(&question[..length], &tag), "{served}");
        let tag = world.listener.tag();
        service.send_to(&[SIGN, &tag].concat(), who).unwrap();
        let answer = led(&mut tun, &tag).unwrap();
        let expected = [(near, 10), (far, 999)];
        let expected = expected.map(|(it, port)| SocketAddr::new(it.parse().unwrap(), port));
        assert_eq!(ends(&answer), expected);
    }
    assert_eq!(fence.stopped(), 0);
}

#[test]
fn what_nat_makes_a_protected_packet_is_dropped_while_nobody_takes_it() {
    let Some(world) = world() else { return };
    let mut tun = world.tun();
    let mut fence = raise(&world);
    let hidden = hidden(&world);
    // The oracle hears what nothing holds.
    let free = world.listener.tag();
    hidden[0].send(7, &free);
    world.listener.await_tag(&free, "what nothing holds");
    fence.come(&near_and_far());
    // As long as nobody said that NAT is followed, and a flow in clear of before is held, too.
    nothing_leaves(&world, &hidden, 8);
    assert_eq!(fence.stopped(), 4);
    nothing_leaves(&world, &hidden, 7);
    if !follow(&world, &mut fence) {
        return;
    }
    nothing_leaves(&world, &hidden, 8);
    let taker = Taker::start(&world);
    for it in &hidden {
        let tag = world.listener.tag();
        it.send(10, &tag);
        assert!(taker.takes(&tag).is_some(), "{}", it.from);
        let tag = world.listener.tag();
        it.send(10, &tag);
        assert!(led(&mut tun, &tag).is_some(), "{}", it.from);
    }
    // The gateway is killed: its sockets close, and the table and the rules stay.
    drop((taker, fence));
    nothing_leaves(&world, &hidden, 10);
    nothing_leaves(&world, &hidden, 11);
    drop(tun);
    nothing_leaves(&world, &hidden, 10);
    nothing_leaves(&world, &hidden, 11);
    // Marks that lead elsewhere open nothing.
    for family in ["-4", "-6"] {
        world.gateway.ip(&format!("{family} rule add priority 100 table main"));
    }
    nothing_leaves(&world, &hidden, 10);
    nothing_leaves(&world, &hidden, 11);
}

#[test]
fn policies_decide_about_packets_as_nat_made_them() {
    let Some(world) = world() else { return };
    let _tun = world.tun();
    let mut fence = raise(&world);
    fence.come(&near_and_far());
    if !follow(&world, &mut fence) {
        return;
    }
    // UDP to port 9 passes in clear.
    let free = [("10.1.0.0/16", "10.2.0.0/16"), ("2001:db8:0:1::/64", "2001:db8:2::/48")];
    let free =
        free.map(|(near, far)| Policy { is_whole: false, ..policy(near, far, Verdict::Bypass) });
    fence.come(&free);
    let taker = Taker::start(&world);
    for it in &hidden(&world) {
        for _ in 0..2 {
            let tag = world.listener.tag();
            it.send(9, &tag);
            world.listener.await_tag(&tag, "what passes in clear");
            let tag = world.listener.tag();
            it.send(7, &tag);
            let packet = taker.takes(&tag).unwrap_or_else(|| panic!("{} is lost", it.from));
            assert_eq!(ends(&packet)[0].ip(), it.shown);
            assert_eq!(world.listener.count(&tag), 0, "{} left in clear", it.from);
        }
    }
}
