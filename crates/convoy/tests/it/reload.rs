//! Gateways whose site files change while packets flow: none is lost, and each change holds.
//!
//! Both gateways run in this process, with worker threads of their own, joined by memory.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, Plan};
use convoy::gateway::{Core, Medium, Prepared, load};
use convoy_crypto::{Cpu, Tier};
use convoy_engine::registry::{Driver, Setting};
use convoy_io::Port;
use convoy_io::mem::{Config, CopyPort, copying_pair};
use convoy_ipsec::drop_reason::DropReason;
use convoy_packet::{Arena, Burst, FrameSize, Pool};
use convoy_runtime::{WireMatch, WirePort, WorkerPorts};

const SIZE: usize = 1400;
/// Packets under way at most, fewer than any piece of memory holds: none is lost for want of room.
const WINDOW: usize = 256;
const POLICIES: u32 = 10_000;

fn memory() -> Config {
    Config { depth: 4 * WINDOW, send_timeout: Duration::from_secs(5) }
}

/// Two gateways and the hosts behind them.
struct Rig {
    folder: tempfile::TempDir,
    gateways: [Core; 2],
    hosts: Hosts,
}

impl Rig {
    /// `site` gives the text of a side's file, from that of [`Plan::simple`].
    fn start(site: impl Fn(char, String) -> String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (wire_a, wire_b) = copying_pair(&memory(), 1500);
        let (a, host_a) = gateway(&write('a', folder.path(), &site), wire_a);
        let (b, host_b) = gateway(&write('b', folder.path(), &site), wire_b);
        Self { folder, gateways: [a, b], hosts: Hosts::new(host_a, host_b) }
    }

    /// Brings other files into force, and returns how many policies came, changed and went at A.
    fn reload(&mut self, site: impl Fn(char, String) -> String) -> [usize; 3] {
        reload(&mut self.gateways, self.folder.path(), site)
    }

    /// Packets dropped for a reason, by both.
    fn dropped(&self, reason: DropReason) -> u64 {
        let stats = self.gateways.iter().flat_map(Core::stats);
        stats.map(|worker| worker.pipeline.drops.get(reason)).sum()
    }
}

fn reload(
    gateways: &mut [Core; 2],
    folder: &Path,
    site: impl Fn(char, String) -> String,
) -> [usize; 3] {
    let reports = ['a', 'b'].map(|side| {
        let path = write(side, folder, &site);
        gateways[usize::from(side == 'b')].reload(load(&path).unwrap().0).unwrap()
    });
    let [report, _] = reports;
    [report.policies_added, report.policies_changed, report.policies_removed].map(|list| list.len())
}

fn write(side: char, folder: &Path, site: impl Fn(char, String) -> String) -> PathBuf {
    let path = Plan::simple().write(side, folder);
    let text = site(side, std::fs::read_to_string(&path).unwrap());
    std::fs::write(&path, text).unwrap();
    path
}

fn gateway(site: &Path, wire: CopyPort) -> (Core, CopyPort) {
    let (plain, host) = copying_pair(&memory(), SIZE);
    let wire = vec![WirePort { carries: WireMatch::default(), port: Box::new(wire) }];
    let ports = WorkerPorts { plain: Box::new(plain), interfaces: Vec::new(), wire };
    let prepared = Prepared::new(load(site).unwrap().0, 1500, Medium::Bare).unwrap();
    (prepared.start(vec![ports], |worker| panic!("{worker:?} failed")).unwrap(), host)
}

/// A policy between the two inner networks, as side A or B says it.
fn policy(side: char, name: &str, a: &str, b: &str, more: &str) -> String {
    let (local, remote) = if side == 'a' { (a, b) } else { (b, a) };
    format!(
        "[[policy]]\nname = \"{name}\"\naction = \"protect\"\nlocal = \"{local}\"\n\
         remote = \"{remote}\"\nsa_out = \"one-out\"\nsa_in = [\"one-in\"]\n{more}\n"
    )
}

/// The ends of the plain sides, and what was sent between them.
struct Hosts {
    ports: [CopyPort; 2],
    pool: Pool,
    burst: Burst,
    /// Numbers sent and not received yet.
    under_way: HashSet<u64>,
    sent: u64,
}

impl Hosts {
    fn new(a: CopyPort, b: CopyPort) -> Self {
        let arena = Arena::map(2048, FrameSize::for_packet(SIZE)).unwrap();
        let pool = arena.pool();
        Self { ports: [a, b], pool, burst: Burst::new(), under_way: HashSet::new(), sent: 0 }
    }

    /// Sends a packet between host `n` of A's network and host `n` of B's, which must arrive.
    fn send(&mut self, n: u32, back: bool) {
        self.under_way.insert(self.sent);
        self.send_in_vain(n, back);
    }

    /// Sends one of which nothing is expected.
    fn send_in_vain(&mut self, n: u32, back: bool) {
        let mut frame = self.pool.alloc().unwrap();
        frame.fill_from(&datagram(n, back, self.sent)).unwrap();
        self.sent += 1;
        self.burst.push(frame).unwrap();
        self.ports[usize::from(back)].tx(&mut self.pool, &mut self.burst).unwrap();
    }

    /// Takes what has arrived; each packet must be whole and expected, and comes once.
    fn receive(&mut self) -> usize {
        let mut got = 0;
        for (port, back) in self.ports.iter_mut().zip([true, false]) {
            got += port.rx(&mut self.pool, &mut self.burst).unwrap();
            for frame in self.burst.drain() {
                let packet = frame.data();
                let number = u64::from_be_bytes(packet[28..36].try_into().unwrap());
                let n = u32::from_be_bytes(packet[36..40].try_into().unwrap());
                assert!(self.under_way.remove(&number), "{number} was not expected");
                let (mut got, mut sent) = (packet.to_vec(), datagram(n, back, number));
                // Two routers counted the TTL down.
                assert_eq!(sent[8] - got[8], 2);
                for packet in [&mut got, &mut sent] {
                    packet[8..12].fill(0);
                }
                assert_eq!(got, sent);
                self.pool.free(frame);
            }
        }
        got
    }

    /// Sends packets of these hosts in turn, both ways, as fast as they arrive, until `stop` is set; each
    /// must arrive.
    fn talk(
        &mut self,
        numbers: impl Iterator<Item = u32> + Clone,
        stop: &AtomicBool,
        sent: &AtomicU64,
    ) {
        let mut numbers = numbers.cycle();
        let mut heard = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            if self.under_way.len() < WINDOW {
                let n = numbers.next().unwrap();
                self.send(n, n % 8 < 4);
                sent.store(self.sent, Ordering::Relaxed);
            }
            if self.under_way.is_empty() || self.receive() > 0 {
                heard = Instant::now();
            }
            assert!(heard.elapsed() < PATIENCE, "{} packets are lost", self.under_way.len());
        }
        self.settle();
    }

    /// Waits until everything has arrived that must.
    fn settle(&mut self) {
        let mut heard = Instant::now();
        while !self.under_way.is_empty() {
            if self.receive() > 0 {
                heard = Instant::now();
            }
            assert!(heard.elapsed() < PATIENCE, "{} packets are lost", self.under_way.len());
            std::thread::yield_now();
        }
    }
}

/// Host `n` of side `net`.
fn host(net: u8, n: u32) -> [u8; 4] {
    let [_, _, high, low] = n.to_be_bytes();
    [10, net, high, low]
}

fn datagram(n: u32, back: bool, number: u64) -> Vec<u8> {
    let (src, dst) = if back { (host(2, n), host(1, n)) } else { (host(1, n), host(2, n)) };
    let ip = [0x45, 0, 0, 48, 0, 0, 0x40, 0, 64, 17, 0, 0];
    let udp = [0x10, 0, 0x20, 0, 0, 28, 0, 0];
    let body = [&number.to_be_bytes()[..], &n.to_be_bytes(), &[0xa5; 8]].concat();
    let mut packet = [&ip[..], &src, &dst, &udp, &body].concat();
    let sum: u32 = packet[..20].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    let check = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[10..12].copy_from_slice(&check.to_be_bytes());
    packet
}

/// A side's file with a policy for each host: in the second version a quarter of them has changed,
/// another has gone, and as many are new.
fn many(side: char, plan: String, second: bool) -> String {
    let (mut text, _) = plan.split_once("[[policy]]").map(|(a, b)| (a.to_owned(), b)).unwrap();
    let numbers = if second { 0..POLICIES + POLICIES / 4 } else { 0..POLICIES };
    for n in numbers.filter(|n| !second || n % 4 != 3 || *n >= POLICIES) {
        let [a, b] = [1, 2].map(|net| std::net::Ipv4Addr::from(host(net, n)).to_string());
        let more = if second && n % 4 == 1 && n < POLICIES { "priority = 7" } else { "" };
        text.write_str(&policy(side, &format!("p{n}"), &a, &b, more)).unwrap();
    }
    text
}

/// Says so when it is dropped, also by a panic: nobody waits for traffic without end.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn ten_thousand_policies_are_reloaded_under_traffic_and_nothing_is_lost() {
    let mut rig = Rig::start(|side, plan| many(side, plan, false));
    let Rig { gateways, folder, hosts } = &mut rig;
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let during = std::thread::scope(|scope| {
        // Hosts whose policies stay or change.
        let numbers = (0..POLICIES).filter(|n| n % 4 < 2);
        let traffic = scope.spawn(|| hosts.talk(numbers, &stop, &sent));
        let end = End(&stop);
        let mut during = 0;
        for round in 0..20 {
            let before = sent.load(Ordering::Relaxed);
            let came =
                reload(gateways, folder.path(), |side, plan| many(side, plan, round % 2 == 0));
            assert_eq!(came, [2500; 3], "round {round}");
            during += sent.load(Ordering::Relaxed) - before;
            // An odd number of rounds, so that the second version is in force.
            if round >= 4 && round % 2 == 0 && during > 10_000 {
                break;
            }
        }
        drop(end);
        traffic.join().unwrap();
        during
    });
    assert!(during > 10_000, "only {during} packets were sent while policies were reloaded");
    for reason in DropReason::ALL {
        assert_eq!(rig.dropped(*reason), 0, "{reason:?}");
    }
    let sent = rig.hosts.sent;
    let passed = |rig: &Rig| -> (u64, u64) {
        let stats = || rig.gateways.iter().flat_map(Core::stats);
        let sum = |f: fn(&convoy_ipsec::pipeline::WorkerCounters) -> u64| -> u64 {
            stats().map(|worker| f(&worker.pipeline)).sum()
        };
        (sum(|c| c.outbound_packets.get()), sum(|c| c.inbound_packets.get()))
    };
    assert_eq!(passed(&rig), (sent, sent));

    // New policies let pass, and those that went do not.
    let hosts = &mut rig.hosts;
    for n in POLICIES..POLICIES + 100 {
        hosts.send(n, false);
    }
    hosts.settle();
    for n in (3..400).step_by(4) {
        hosts.send_in_vain(n, true);
    }
    // A worker takes packets in their order.
    hosts.send(0, true);
    hosts.settle();
    assert_eq!(rig.dropped(DropReason::NoPolicy), 100);
    assert_eq!(passed(&rig), (sent + 101, sent + 101));
    for gateway in rig.gateways {
        gateway.stop().unwrap();
    }
}

/// Does what `convoy crypto set` does, with each engine that works on packets elsewhere too.
#[test]
fn drivers_change_under_traffic_and_nothing_is_lost() {
    for engine in ["inline", "pool", "model"] {
        let site = |_: char, plan: String| format!("{plan}\n[crypto]\nengine = \"{engine}\"\n");
        let mut rig = Rig::start(site);
        let Rig { gateways, hosts, .. } = &mut rig;
        let snapshot = gateways[0].state().published().current();
        let (_, sa) = snapshot.outbound_sas().next().unwrap();
        let best = sa.key.tier();
        let drivers = gateways[0].state().drivers().clone();
        let of = |tier| {
            let is_of =
                |driver: &&Driver| driver.takes(sa.key.suite()) && driver.tier() == Some(tier);
            drivers.registry().drivers().find(is_of).unwrap().name()
        };
        let tiers = |gateways: &[Core; 2]| {
            let snapshot = gateways[0].state().published().current();
            let outbound = snapshot.outbound_sas().map(|(_, sa)| sa.key.tier());
            outbound.chain(snapshot.inbound_sas().map(|(_, sa)| sa.key.tier())).collect::<Vec<_>>()
        };
        let set = |gateways: &mut [Core; 2], tier, setting| {
            for gateway in gateways {
                let drivers = gateway.state().drivers().with_setting(of(tier), setting).unwrap();
                gateway.set_drivers(drivers).unwrap();
            }
        };
        let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let traffic = scope.spawn(|| hosts.talk(0..1, &stop, &sent));
            let _end = End(&stop);
            for round in 0..20 {
                // Portable software first, by its priority, and then by the others' being off.
                let by_priority = round % 4 < 2;
                let is_portable = round % 2 == 0;
                let own = Cpu::detect().unwrap();
                match (by_priority, is_portable) {
                    (true, true) => set(gateways, Tier::Portable, Setting::Priority(10_000)),
                    (true, false) => set(gateways, Tier::Portable, Setting::Priority(100)),
                    (false, is_off) => {
                        for tier in own.tiers().filter(|tier| *tier != Tier::Portable) {
                            set(gateways, tier, Setting::On(!is_off));
                        }
                    }
                }
                let wanted = if is_portable { Tier::Portable } else { best };
                assert!(tiers(gateways).into_iter().all(|tier| tier == wanted), "round {round}");
                let (begin, before) = (Instant::now(), sent.load(Ordering::Relaxed));
                while sent.load(Ordering::Relaxed) < before + 500 && !traffic.is_finished() {
                    assert!(begin.elapsed() < PATIENCE, "{engine}: no packet passes");
                    std::thread::yield_now();
                }
            }
            stop.store(true, Ordering::Relaxed);
            traffic.join().unwrap();
        });
        for reason in DropReason::ALL {
            assert_eq!(rig.dropped(*reason), 0, "{engine}: {reason:?}");
        }
        for gateway in rig.gateways {
            gateway.stop().unwrap();
        }
    }
}

/// A side's file whose plain interface has policies of its own: these hosts pass. The common
/// database discards everything.
fn own(side: char, plan: String, hosts: &[u32]) -> String {
    let (head, _) = plan.split_once("[[policy]]").unwrap();
    let mut text = head.replacen("[plain]\n", "[plain]\nspd = \"lan\"\n", 1);
    for n in hosts {
        let [a, b] = [1, 2].map(|net| std::net::Ipv4Addr::from(host(net, *n)).to_string());
        text += &policy(side, &format!("p{n}"), &a, &b, "spd = \"lan\"");
    }
    text + "[[policy]]\nname = \"none\"\naction = \"discard\"\nlocal = \"0.0.0.0/0\"\n\
            remote = \"0.0.0.0/0\"\npriority = 0\n"
}

#[test]
fn an_interface_asks_its_own_database_and_reloads_change_it() {
    let mut rig = Rig::start(|side, plan| own(side, plan, &[1, 2]));
    for back in [false, true] {
        // A worker takes packets in their order, so this one is gone when the others are there.
        rig.hosts.send_in_vain(3, back);
        (1..3).for_each(|n| rig.hosts.send(n, back));
    }
    rig.hosts.settle();
    assert_eq!(rig.reload(|side, plan| own(side, plan, &[2, 3])), [1, 0, 1]);
    for back in [false, true] {
        rig.hosts.send_in_vain(1, back);
        (2..4).for_each(|n| rig.hosts.send(n, back));
    }
    rig.hosts.settle();
    assert_eq!((rig.dropped(DropReason::NoPolicy), rig.dropped(DropReason::PolicyDiscard)), (4, 0));
    for gateway in rig.gateways {
        gateway.stop().unwrap();
    }
}
