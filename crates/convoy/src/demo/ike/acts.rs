//! Acts of the demonstration.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use convoy_lab::traffic::{Direction, Ping, PingReport, Rate, TcpBulk, UdpPaced, UdpReport, Watch};
use convoy_lab::{Family, IpNet, WIRE_LINK};

use super::play::{Act, Done, Play};
use super::shares::{Datagrams, Shares};
use super::world::{LIMIT, SIDES};
use crate::demo::gateways::Gateway;
use crate::demo::lab::{LATEST, without_room};
use crate::demo::report::Dropped;
use crate::output::si;

/// With one tunnel: everything that happens to one.
pub(super) const TOUR: &[Act] = &[
    Act { name: "IKEv2 with a pre-shared key", play: psk },
    Act { name: "IKEv2 with certificates", play: certificates },
    Act { name: "bulk traffic", play: bulk },
    Act { name: "rekeys under load", play: rekeys },
    Act { name: "the address moves (MOBIKE)", play: mobike },
    Act { name: "kill -9 of Convoy", play: kill_convoy },
    Act { name: "kill -9 of charon", play: kill_charon },
    Act { name: "nothing in the clear", play: wire },
];

/// With many tunnels: all at once.
pub(super) const LOAD: &[Act] = &[
    Act { name: "IKEv2 with pre-shared keys", play: psk },
    Act { name: "bulk traffic through all at once", play: bulk },
    Act { name: "rekeys of all under load", play: rekeys },
    Act { name: "packets per worker", play: workers },
    Act { name: "nothing in the clear", play: wire },
];

/// Echo requests through each tunnel.
const PINGS: u16 = 10;
/// Length of the wire's IPv6 prefix.
const WIRE_V6_LEN: u8 = 64;
/// Payload bytes of a datagram: with every header of the tunnel it fits the wire.
const PAYLOAD: usize = 1200;
/// Datagrams per second during rekeys, all tunnels and both ways together; less where a probe shows
/// that this machine does not carry so many now.
const DATAGRAMS: u64 = 4000;
/// Rekeys of a single tunnel.
const REKEYS: usize = 20;
/// Rekeys of each of many.
const REKEYS_OF_MANY: usize = 3;
/// Traffic between two rekeys, after the new SAs are there.
const BETWEEN: Duration = Duration::from_millis(100);
/// Longest time until a tunnel carries packets again after a gateway was killed.
const RECOVERY: Duration = Duration::from_secs(60);
/// Address to which the left gateway moves on the wire.
const MOVED: [u8; 4] = [198, 51, 100, 77];

fn psk(play: &mut Play<'_>) -> anyhow::Result<Done> {
    let begun = Instant::now();
    play.world.ensure_tunnels()?;
    let took = begun.elapsed();
    let pings = play.all_pings()?;
    Ok(Done::Passed(format!("{} in {:.1} s; {pings}", tunnels(play), took.as_secs_f64())))
}

fn certificates(play: &mut Play<'_>) -> anyhow::Result<Done> {
    let before = play.world.daemon(0)?.log().matches("with ECDSA").count();
    for tunnel in &play.world.tunnels {
        play.world.daemon(0)?.terminate_ike(&tunnel.name)?;
    }
    play.world.use_certificates()?;
    play.world.ensure_tunnels()?;
    let log = play.world.daemon(0)?.log();
    ensure!(log.matches("with ECDSA").count() > before, "charon logs no ECDSA signature");
    Ok(Done::Passed(format!("ECDSA on P-256; {}", play.all_pings()?)))
}

fn bulk(play: &mut Play<'_>) -> anyhow::Result<Done> {
    play.world.ensure_tunnels()?;
    play.world.end_sample()?;
    let mut said = Vec::new();
    for (direction, words) in [(Direction::Forward, "A to B"), (Direction::Backward, "B to A")] {
        let (total, slowest) = play.all_bulk(direction)?;
        let share = if play.world.tunnels.len() == 1 {
            String::new()
        } else {
            format!(", the slowest tunnel {}b/s", si(slowest))
        };
        said.push(format!("TCP {words} {}b/s{share}", si(total)));
    }
    Ok(Done::Passed(said.join("; ")))
}

fn rekeys(play: &mut Play<'_>) -> anyhow::Result<Done> {
    play.world.ensure_tunnels()?;
    let rounds = if play.world.tunnels.len() == 1 { REKEYS } else { REKEYS_OF_MANY };
    let before = play.dropped()?;
    let (reports, rekeyed) = play.under_load(|play| {
        for round in 0..rounds {
            play.rekey_all(round % 2)?;
            thread::sleep(BETWEEN);
        }
        Ok(rounds * play.world.tunnels.len())
    })?;
    let total = Total::of(&reports);
    ensure!(total.sent > 0, "no datagram was sent");
    let mut said = format!("{rekeyed} rekeys, {}", total.in_words());
    // What a machine cannot carry is told. What nobody counted as dropped for want of room was lost by a
    // rekey.
    let dropped = play.dropped()?.since(before);
    let uncounted = dropped.leaves(total.lost);
    ensure!(total.is_whole(), "{said}{}", total.missing);
    ensure!(uncounted == 0, "{said}, of which {uncounted} are in no counter{}", total.missing);
    if total.lost > 0 {
        said += &format!("; {}", dropped.in_words(convoy_lab::share_of_processors()));
    }
    Ok(Done::Passed(said))
}

/// Datagrams flow through all tunnels, and each worker tells what it did of it.
fn workers(play: &mut Play<'_>) -> anyhow::Result<Done> {
    if play.world.sides.iter().all(|side| side.gateway.is_none()) {
        return Ok(Done::Skipped("strongSwan's own ESP has no workers"));
    }
    play.world.ensure_tunnels()?;
    let lost_before = play.dropped()?;
    let before = Shares::settled(&play.world)?;
    let time = Duration::from_secs(play.world.seconds.into());
    let (reports, ()) = play.under_load(|_| {
        thread::sleep(time);
        Ok(())
    })?;
    let shares = Shares::of(&play.world)?.since(&before);
    let total = Total::of(&reports);
    let dropped = play.dropped()?.since(lost_before);
    let uncounted = dropped.leaves(total.lost);
    let mut said = format!("{}; {}", shares.in_words(), total.in_words());
    if total.lost > 0 {
        said += &format!("; {}", dropped.in_words(convoy_lab::share_of_processors()));
    }
    play.shares = shares;
    play.datagrams = Datagrams { sent: total.sent, lost: total.lost };
    ensure!(total.sent > 0 && total.is_whole(), "{said}{}", total.missing);
    ensure!(uncounted == 0, "{said}, of which {uncounted} are in no counter{}", total.missing);
    play.shares.check(play.world.tunnels.len())?;
    Ok(Done::Passed(said))
}

fn mobike(play: &mut Play<'_>) -> anyhow::Result<Done> {
    play.world.ensure_tunnels()?;
    let old = play.world.left_address;
    let new = IpNet::new(IpAddr::from(MOVED), old.prefix_len())?;
    let (reports, took) = play.under_load(|play| {
        let gateway = &play.world.topology.a.gateway;
        // Without it the second address would go with the first.
        gateway.set_sysctl(&format!("net/ipv4/conf/{WIRE_LINK}/promote_secondaries"), "1")?;
        gateway.add_address(WIRE_LINK, new)?;
        // Else the daemons may go on over IPv6.
        let other = IpNet::new(play.world.topology.a.wire_address(Family::V6), WIRE_V6_LEN)?;
        gateway.remove_address(WIRE_LINK, other)?;
        let begun = Instant::now();
        gateway.remove_address(WIRE_LINK, old)?;
        play.world.daemon(1)?.wait(LIMIT, "tunnel to the new address", |right| {
            let sas = right.sas()?;
            let moved = |(address, _): (IpAddr, u16)| address == new.addr();
            Ok(sas.iter().any(|sa| sa.remote.is_some_and(moved)).then_some(()))
        })?;
        let took = begun.elapsed();
        thread::sleep(Duration::from_millis(500));
        Ok(took)
    })?;
    play.world.left_address = new;
    let pings = play.all_pings()?;
    let total = Total::of(&reports);
    ensure!(total.lost < total.sent, "nothing arrived");
    Ok(Done::Passed(format!(
        "{} to {} in {:.1} s, {} meanwhile; {pings}",
        old.addr(),
        new.addr(),
        took.as_secs_f64(),
        total.in_words()
    )))
}

fn kill_convoy(play: &mut Play<'_>) -> anyhow::Result<Done> {
    if !play.world.left_is_convoy() {
        return Ok(Done::Skipped("strongSwan's own ESP is no process of its own"));
    }
    play.world.ensure_tunnels()?;
    let before = play.world.daemon(0)?.wait_installed("net", LIMIT)?;
    let gateway = play.world.sides[0].gateway.take().context("no gateway runs")?;
    gateway.kill()?;
    let while_dead = play.ping(play.world.topology.b.host_address(Family::V4), 3)?;
    ensure!(
        while_dead.received == 0,
        "{} pings were answered without a gateway",
        while_dead.received
    );
    let begun = Instant::now();
    play.world.start_gateway(0, play.interrupt)?;
    let took = play.wait_for_traffic(begun)?;
    let pings = play.all_pings()?;
    let after = play.world.daemon(0)?.wait_installed("net", LIMIT)?;
    let sas = if after.spi_in == before.spi_in { "the same SAs" } else { "new SAs" };
    Ok(Done::Passed(format!(
        "traffic again {:.1} s after the start, {sas}, whose sequence numbers continue; {pings}",
        took.as_secs_f64()
    )))
}

fn kill_charon(play: &mut Play<'_>) -> anyhow::Result<Done> {
    // Whatever the act before has left.
    play.world.renew_tunnels()?;
    let daemon = play.world.sides[0].daemon.take().context("no daemon runs")?;
    let config = daemon.kill()?;
    let without = if play.world.left_is_convoy() {
        format!("without a daemon {}; ", play.all_pings()?)
    } else {
        String::new()
    };
    play.world.restart_daemon(0, config)?;
    play.world.ensure_tunnels()?;
    Ok(Done::Passed(format!("{without}after its return {}", play.all_pings()?)))
}

fn wire(play: &mut Play<'_>) -> anyhow::Result<Done> {
    let [sample, report] = play.world.wire()?;
    let protected = sample.protected();
    let clear = sample.clear;
    ensure!(
        protected > 0 && clear == 0,
        "at the beginning the wire carried {protected} packets of ESP and {clear} in clear"
    );
    ensure!(report.ike > 0, "the capture has no IKE message");
    ensure!(
        report.clear == 0,
        "{} packets crossed the wire in the clear: {}",
        report.clear,
        report.clear_in_words()
    );
    Ok(Done::Passed(format!(
        "after {protected} packets of ESP were seen, all else was captured: {} IKE messages and keepalives, {} of ARP and Neighbour \
         Discovery, {} of ICMP",
        report.ike, report.neighbours, report.icmp
    )))
}

/// Counts of numbered datagrams, all tunnels and both ways together.
struct Total {
    sent: u64,
    lost: u64,
    refused: u64,
    odd: u64,
    /// Of those lost: dropped by this machine's kernel between the namespaces or at the receiver.
    kernel: u64,
    missing: String,
}

impl Total {
    fn of(reports: &[UdpReport]) -> Self {
        let flows = reports.iter().flat_map(|report| [&report.forward, &report.backward]);
        let mut total =
            Self { sent: 0, lost: 0, refused: 0, odd: 0, kernel: 0, missing: String::new() };
        for flow in flows {
            total.sent += flow.sent;
            total.lost += flow.lost();
            total.refused += flow.refused;
            total.odd += flow.duplicates + flow.damaged;
            total.kernel += flow.kernel_drops;
            if !flow.missing.is_empty() {
                total.missing += &format!("; of {} missing {:?}", flow.sent, flow.missing);
            }
        }
        total.kernel += reports.iter().map(|report| report.backlog_drops).max().unwrap_or(0);
        total
    }

    /// True if all that was to be sent was sent, and came at most once and unchanged.
    fn is_whole(&self) -> bool {
        self.odd == 0 && self.refused == 0
    }

    fn in_words(&self) -> String {
        let Self { sent, lost, refused, odd, kernel, .. } = self;
        let mut text = format!("{lost} of {sent} datagrams lost");
        for (count, what) in
            [(refused, "refused"), (odd, "twice or damaged"), (kernel, "dropped by the kernel")]
        {
            if *count > 0 {
                text += &format!(", {count} {what}");
            }
        }
        text
    }
}

fn tunnels(play: &Play<'_>) -> String {
    match play.world.tunnels.len() {
        1 => "a tunnel".to_owned(),
        count => format!("{count} tunnels"),
    }
}

impl Play<'_> {
    fn ping(&self, to: IpAddr, count: u16) -> anyhow::Result<PingReport> {
        let interval = Duration::from_millis(50);
        let timeout = if count == PINGS { LATEST } else { Duration::from_secs(1) };
        let ping = Ping { count, interval, timeout, ..Ping::new(to) };
        let mut watch = Watch::new(self.interrupt.flag());
        Ok(ping.run(&self.world.topology.a.host, &mut watch)?)
    }

    /// Pings through every tunnel; each must be answered.
    fn all_pings(&self) -> anyhow::Result<String> {
        let (mut sent, mut sum) = (0, Duration::ZERO);
        for tunnel in &self.world.tunnels {
            let report = self.ping(tunnel.to, PINGS)?;
            let (name, received) = (&tunnel.name, report.received);
            ensure!(
                received == u64::from(PINGS) && report.duplicates + report.damaged == 0,
                "{received} of {PINGS} pings answered through {name} {:?}",
                report.problems
            );
            sent += report.sent;
            sum += report.round_trips.iter().sum::<Duration>();
        }
        let mean = sum.as_secs_f64() * 1000.0 / sent.max(1) as f64;
        Ok(format!("{sent} of {sent} pings answered, {mean:.2} ms"))
    }

    /// A TCP stream through every tunnel at once: bits per second of all, and of the slowest.
    fn all_bulk(&mut self, direction: Direction) -> anyhow::Result<(f64, f64)> {
        let (world, flag) = (&self.world, self.interrupt.flag());
        let time = Duration::from_secs(world.seconds.into());
        let reports = thread::scope(|scope| {
            let one = |to| {
                // Comparing every byte would cost what is measured; ESP has authenticated them all.
                let bulk = TcpBulk { direction, verify: false, ..TcpBulk::new(to, time) };
                scope.spawn(move || {
                    let hosts = (&world.topology.a.host, &world.topology.b.host);
                    bulk.run(hosts.0, hosts.1, &mut Watch::new(flag))
                })
            };
            let threads: Vec<_> = world.tunnels.iter().map(|tunnel| one(tunnel.to)).collect();
            threads.into_iter().map(join).collect::<Vec<_>>()
        });
        let (mut total, mut slowest) = (0.0, f64::INFINITY);
        for report in reports {
            let report = report?;
            let flow =
                if direction == Direction::Forward { report.forward } else { report.backward };
            ensure!(
                flow.broken == 0 && flow.received > 0,
                "a TCP stream broke, or nothing arrived"
            );
            total += flow.bits_per_second();
            slowest = flow.bits_per_second().min(slowest);
        }
        Ok((total, slowest))
    }

    /// Packets that kernels and gateways have dropped for want of room until now.
    fn dropped(&self) -> anyhow::Result<Dropped> {
        let gateways = self.world.sides.iter().filter_map(|side| side.gateway.as_ref());
        let all = gateways.map(Gateway::status).collect::<Result<Vec<_>, _>>()?;
        let kernels = self.world.topology.kernel_drops()?;
        Ok(Dropped { kernels, gateways: without_room(&all) })
    }

    /// Datagrams per second, both ways together, that this machine carries now through a tunnel.
    fn probe(&self) -> anyhow::Result<u64> {
        let Some(tunnel) = self.world.tunnels.first() else { return Ok(DATAGRAMS) };
        let stream = UdpPaced {
            direction: Direction::Both,
            payload: PAYLOAD,
            ..UdpPaced::new(tunnel.to, Rate::PacketsPerSecond(DATAGRAMS / 2), Duration::ZERO)
        };
        let hosts = (&self.world.topology.a.host, &self.world.topology.b.host);
        let rate = stream.probe(hosts.0, hosts.1, &Watch::new(self.interrupt.flag()))?;
        Ok(2 * rate.packets_per_second(PAYLOAD))
    }

    /// Does something while numbered datagrams flow through every tunnel.
    fn under_load<T>(
        &self,
        work: impl FnOnce(&Self) -> anyhow::Result<T>,
    ) -> anyhow::Result<(Vec<UdpReport>, T)> {
        /// Nothing here takes longer.
        const LONGEST: Duration = Duration::from_secs(600);
        let stop = AtomicBool::new(false);
        let datagrams = self.probe()?;
        let (world, stop) = (&self.world, &stop);
        let count = world.tunnels.len();
        let (reports, done) = thread::scope(|scope| {
            let streams = world.tunnels.iter().enumerate().map(|(number, tunnel)| {
                // Workers take turns as tunnels come, and each is to have both directions.
                let direction = match (count, (number + number / 2) % 2) {
                    (1, _) => Direction::Both,
                    (_, 0) => Direction::Forward,
                    _ => Direction::Backward,
                };
                let ways = if count == 1 { 2 } else { count as u64 };
                let rate = Rate::PacketsPerSecond(datagrams / ways);
                let stream = UdpPaced {
                    direction,
                    payload: PAYLOAD,
                    quiet: LATEST,
                    ..UdpPaced::new(tunnel.to, rate, LONGEST)
                };
                scope.spawn(move || {
                    let hosts = (&world.topology.a.host, &world.topology.b.host);
                    stream.run(hosts.0, hosts.1, &mut Watch::new(stop))
                })
            });
            let streams: Vec<_> = streams.collect();
            thread::sleep(BETWEEN);
            let done = work(self);
            // Traffic after the last of it, too.
            thread::sleep(BETWEEN);
            stop.store(true, Ordering::Relaxed);
            (streams.into_iter().map(join).collect::<Result<Vec<_>, _>>(), done)
        });
        Ok((reports?, done?))
    }

    /// Has every tunnel rekeyed by one side, and waits until all are.
    fn rekey_all(&self, side: usize) -> anyhow::Result<()> {
        self.interrupt.check()?;
        let daemon = self.world.daemon(side)?;
        let mut before = Vec::new();
        for tunnel in &self.world.tunnels {
            before.push(daemon.wait_installed(&tunnel.name, LIMIT)?.id);
            daemon.rekey(&tunnel.name)?;
        }
        for (tunnel, before) in self.world.tunnels.iter().zip(before) {
            daemon
                .wait_rekeyed(&tunnel.name, before, LIMIT)
                .with_context(|| format!("rekey by the {} side", SIDES[side]))?;
        }
        Ok(())
    }

    /// Time after `begun` of the first ping that is answered.
    fn wait_for_traffic(&self, begun: Instant) -> anyhow::Result<Duration> {
        let to = self.world.topology.b.host_address(Family::V4);
        loop {
            self.interrupt.check()?;
            let asked = begun.elapsed();
            if self.ping(to, 1)?.received == 1 {
                return Ok(asked);
            }
            ensure!(asked < RECOVERY, "no ping was answered within {RECOVERY:?}");
        }
    }
}

/// The result of a thread; its panic goes on here.
fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
