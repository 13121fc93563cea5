//! Cost of the SPD and the SAD at scale: look-ups with a warm and a cold cache, the curve over the
//! number of policies and of their shapes, and single changes with 100,000 of everything.
//!
//! Cycles are those of the time-stamp counter. Run it on an idle machine:
//! `cargo run --release -p convoy-ipsec --example spd_scale`
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Instant;

use convoy_crypto::{Cpu, GcmParams, IcvLen, KeyBits, OpenKey, SealKey, SecretBytes, time_stamp};
use convoy_engine::registry;
use convoy_ipsec::clock::Now;
use convoy_ipsec::lifetime::Lifetime;
use convoy_ipsec::pipeline::{
    HandOff, Inbound, Outbound, PipelineConfig, PipelineParts, WorkerCounters,
};
use convoy_ipsec::sa::{
    AhAlignment, DfPolicy, DscpPolicy, Endpoints, InboundSpec, IpsecProtocol, Mode, OutboundSpec,
    OuterHeader, ReqId, SaSlot, SaSpec, Salt, Shared, WorkerId,
};
use convoy_ipsec::selector::{Direction, Selector};
use convoy_ipsec::sequence::Lease;
use convoy_ipsec::snapshot::{Published, Snapshot, Writer};
use convoy_ipsec::spd::{Decision, FlowCache, Policy, PolicyAction, PolicyId, Spd};
use convoy_packet::{Arena, Burst, FrameSize, InterfaceId};
use convoy_wire::{FlowKey, Ports, Prefix, Protocol, SeqNum, Spi};

/// Policies, and SAs of each direction.
const MANY: u32 = 100_000;
const BURST: usize = 256;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Fallible<()> {
    let per_us = cycles_per_us();
    println!("time-stamp counter: {per_us:.0} cycles per microsecond");
    let miss = pointer_chase();
    println!("one dependent cache miss: {miss:.0} cycles; two: {:.0}", 2.0 * miss);
    let spd = gateway(MANY)?;
    warm(&spd);
    cold(&spd, miss);
    curve_of_policies()?;
    curve_of_shapes()?;
    changes(spd, per_us)
}

/// A stream of numbers without a pattern (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, end: u32) -> u32 {
        (((self.next() >> 32) * u64::from(end)) >> 32) as u32
    }
}

fn cycles_per_us() -> f64 {
    let (start, at) = (time_stamp(), Instant::now());
    while at.elapsed().as_millis() < 50 {}
    (time_stamp() - start) as f64 / at.elapsed().as_micros() as f64
}

/// Follows a random ring of cache lines through memory that no cache holds.
fn pointer_chase() -> f64 {
    #[derive(Clone, Copy)]
    #[repr(align(64))]
    struct Line(u32);
    const LINES: u32 = 1 << 22;
    let mut order: Vec<u32> = (0..LINES).collect();
    let mut numbers = Numbers(1);
    for at in (1..LINES).rev() {
        order.swap(at as usize, numbers.below(at + 1) as usize);
    }
    let mut ring = vec![Line(0); LINES as usize];
    for pair in order.windows(2) {
        ring[pair[0] as usize] = Line(pair[1]);
    }
    ring[order[LINES as usize - 1] as usize] = Line(order[0]);
    let mut at = 0;
    let samples = (0..200).map(|_| {
        let start = time_stamp();
        for _ in 0..1000 {
            at = ring[at as usize].0;
        }
        (time_stamp() - start) as f64 / 1000.0
    });
    let result = median(samples.collect());
    black_box(at);
    result
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN)
}

fn address(net: u8, n: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(u32::from(net) << 24 | n))
}

fn prefix(net: u8, n: u32, len: u8) -> Fallible<Prefix> {
    Ok(Prefix::containing(address(net, n), len)?)
}

fn protect(n: u32, priority: u32, local: Prefix, remote: Prefix) -> Policy {
    Policy {
        name: "policy".into(),
        priority,
        direction: Direction::Outbound,
        selector: Selector { local: local.into(), remote: remote.into(), ..Selector::default() },
        action: PolicyAction::Protect { reqid: ReqId(n) },
    }
}

/// The policy of branch `n`: of four, three are hosts and one is a network.
fn branch(n: u32) -> Fallible<Policy> {
    let len = [32, 32, 32, 25][n as usize % 4];
    Ok(protect(n, 100, prefix(10, 0, 8)?, prefix(11, n << 7, len)?))
}

/// Policies of a gateway with many branches: an exception in front, the branches, and a net behind.
fn gateway(n: u32) -> Fallible<Spd> {
    let mut spd = Spd::default();
    let exception = protect(0, 1, prefix(10, 0, 8)?, prefix(10, 0, 8)?);
    spd.insert(Policy { action: PolicyAction::Bypass, ..exception })?;
    for n in 0..n {
        spd.insert(branch(n)?)?;
    }
    let rest = protect(0, 1000, prefix(0, 0, 0)?, prefix(0, 0, 0)?);
    spd.insert(Policy { action: PolicyAction::Discard, ..rest })?;
    Ok(spd)
}

/// A packet to branch `n`.
fn flow(n: u32, port: u16) -> FlowKey {
    let ports = Ports::Known { src: port, dst: 443 };
    FlowKey::new(address(10, n), address(11, n << 7), Protocol::TCP, ports)
        .expect("both addresses are IPv4")
}

/// Cycles per packet of bursts that `make` makes, `before` running before each.
fn look_up(
    spd: &Spd,
    cache: &mut FlowCache,
    burst: usize,
    mut before: impl FnMut(),
    mut make: impl FnMut() -> FlowKey,
) -> f64 {
    let mut out: Vec<Option<Decision>> = vec![None; burst];
    let samples = (0..300).map(|_| {
        let keys: Vec<FlowKey> = (0..burst).map(|_| make()).collect();
        before();
        // Keys come from packets that were parsed just before.
        keys.iter().for_each(|key| {
            black_box(*key);
        });
        let start = time_stamp();
        spd.lookup_burst(Direction::Outbound, &keys, cache, &mut out);
        let cycles = time_stamp() - start;
        assert!(black_box(&out).iter().all(Option::is_some), "a packet without a policy");
        cycles as f64 / burst as f64
    });
    median(samples.collect())
}

fn warm(spd: &Spd) {
    println!("\nflow cache warm, {MANY} policies, bursts of {BURST}, cycles per packet");
    for flows in [1, 16, 256, 4096, 16_384] {
        let mut cache = FlowCache::default();
        let mut numbers = Numbers(2);
        // The first rounds fill the cache.
        for _ in 0..2 {
            let mut next = 0;
            look_up(
                spd,
                &mut cache,
                BURST,
                || (),
                || {
                    next = (next + 1) % flows;
                    flow(next % MANY, (next / MANY) as u16)
                },
            );
        }
        let cycles = look_up(spd, &mut cache, BURST, || (), || flow(numbers.below(flows), 0));
        println!("{flows:>8} flows {cycles:>8.1}");
    }
}

fn cold(spd: &Spd, miss: f64) {
    println!("\nevery packet a new flow, {MANY} policies, all caches of the processor emptied");
    println!("before each burst, cycles per packet (two dependent misses: {:.0})", 2.0 * miss);
    let mut rubbish = vec![0_u64; 16 << 20];
    for burst in [1, 32, 64, 256] {
        let mut cache = FlowCache::default();
        let mut numbers = Numbers(3);
        let mut round = 0;
        let empty = || {
            round += 1;
            rubbish.iter_mut().step_by(8).for_each(|word| *word += round);
        };
        let make = || flow(numbers.below(MANY), numbers.next() as u16);
        let cycles = look_up(spd, &mut cache, burst, empty, make);
        let ratio = cycles / (2.0 * miss);
        println!("{burst:>8} packets {cycles:>8.0} = {ratio:.2} of two misses");
    }
}

fn curve_of_policies() -> Fallible<()> {
    println!("\nevery packet a new flow, realistic shapes, bursts of {BURST}, cycles per packet");
    for n in [10, 100, 1000, 10_000, MANY] {
        let spd = gateway(n)?;
        let mut cache = FlowCache::default();
        let mut numbers = Numbers(4);
        let make = || flow(numbers.below(n), numbers.next() as u16);
        let cycles = look_up(&spd, &mut cache, BURST, || (), make);
        println!(
            "{n:>8} policies of {:>2} shapes {cycles:>8.0}",
            spd.shapes(Direction::Outbound).0
        );
    }
    Ok(())
}

/// Policies made to be dear: each of another shape, all of one priority, and packets that only the
/// last means.
fn curve_of_shapes() -> Fallible<()> {
    println!("\nevery packet a new flow that matches the last of many shapes, cycles per packet");
    for n in [1, 4, 16, 64, 256, 1024] {
        let mut spd = Spd::default();
        let pairs = (1..=32).flat_map(|a| (1..=32).map(move |b| (a, b)));
        for (at, (a, b)) in pairs.take(n - 1).enumerate() {
            spd.insert(protect(at as u32, 100, prefix(20, 0, a)?, prefix(30, 0, b)?))?;
        }
        spd.insert(protect(0, 100, prefix(0, 0, 0)?, prefix(0, 0, 0)?))?;
        let mut cache = FlowCache::default();
        let mut numbers = Numbers(5);
        let make = || {
            let ports = Ports::Known { src: numbers.next() as u16, dst: 1 };
            let (src, dst) = (address(200, numbers.below(1 << 20)), address(201, 1));
            FlowKey::new(src, dst, Protocol::UDP, ports).expect("both addresses are IPv4")
        };
        let cycles = look_up(&spd, &mut cache, BURST, || (), make);
        println!("{:>8} shapes {cycles:>8.0}", spd.shapes(Direction::Outbound).0);
    }
    Ok(())
}

/// The SAs of branch `n`.
fn pair(cpu: &Cpu, n: u32) -> Fallible<(OutboundSpec, InboundSpec)> {
    let params = GcmParams::new(KeyBits::Aes128, IcvLen::Icv16);
    let secret = || SecretBytes::copy_from(&u128::from(n).to_be_bytes());
    let endpoints = Endpoints { local: address(192, 1), remote: address(193, n) };
    let spi = Spi::new(n + 256).ok_or("an SPI of 0")?;
    let out = OutboundSpec {
        sa: SaSpec {
            name: "out".into(),
            spi,
            reqid: ReqId(n),
            named: None,
            serial: 0,
            protocol: IpsecProtocol::Esp,
            ah_alignment: AhAlignment::Rfc4302,
            mode: Mode::Tunnel,
            endpoints,
            encap: None,
            esn: true,
            salt: Salt::default(),
            lifetime: Lifetime::default(),
            worker: WorkerId(0),
            counters: Shared::default(),
        },
        outer: OuterHeader { df: DfPolicy::Copy, dscp: DscpPolicy::Copy, ecn: true, hop_limit: 64 },
        source_is_here: true,
        path_mtu: 1500,
        pad_to: 0,
        dummy_every: None,
        key: Arc::new(SealKey::new(cpu, params, secret())?).into(),
        lease: Arc::new(Lease::new(SeqNum::new(0), 1 << 40)).into(),
    };
    let inn = InboundSpec {
        sa: SaSpec {
            name: "in".into(),
            spi,
            reqid: ReqId(n),
            named: None,
            serial: 0,
            protocol: IpsecProtocol::Esp,
            ah_alignment: AhAlignment::Rfc4302,
            mode: Mode::Tunnel,
            endpoints,
            encap: None,
            esn: true,
            salt: Salt::default(),
            lifetime: Lifetime::default(),
            worker: WorkerId(0),
            counters: Shared::default(),
        },
        from_peer_only: false,
        ecn: true,
        replay_window: 64,
        interface: InterfaceId(0),
        key: Arc::new(OpenKey::new(cpu, params, secret())?).into(),
    };
    Ok((out, inn))
}

fn parts(published: &Arc<Published>) -> Fallible<PipelineParts> {
    Ok(PipelineParts {
        config: PipelineConfig {
            worker: WorkerId(0),
            decrement_ttl: false,
            udp6_checksum: false,
            icmp_source_v4: None,
            icmp_source_v6: None,
        },
        reader: published.reader(),
        engine: registry::find(None).ok_or("no engine")?.make(),
        counters: Arc::new(WorkerCounters::default()),
    })
}

/// Adds and removes one at a time: what control needs to publish and a worker to take it over.
fn changes(spd: Spd, per_us: f64) -> Fallible<()> {
    let cpu = Cpu::detect()?;
    let mut snapshot = Snapshot::new(spd);
    for n in 0..MANY {
        let (out, inn) = pair(&cpu, n)?;
        snapshot.add_outbound(SaSlot(n), Arc::new(out))?;
        snapshot.add_inbound(SaSlot(n), Arc::new(inn))?;
    }
    let mut writer = Writer::new(snapshot);
    let (mut outbound, mut inbound) =
        (Outbound::new(parts(writer.published())?), Inbound::new(parts(writer.published())?));
    let arena = Arena::map(64, FrameSize::for_packet(1500))?;
    let (mut pool, mut handoff) = (arena.pool(), HandOff::new(1));
    let mut adopt = || {
        let mut none = Burst::new();
        let start = time_stamp();
        outbound.submit(Now(1), &mut pool, &mut none, &mut handoff);
        inbound.submit(Now(1), &mut pool, &mut none, &mut handoff);
        time_stamp() - start
    };
    println!("\n{MANY} policies, {MANY} outbound and {MANY} inbound SAs; microseconds");
    println!("first picture, a worker takes over all: {:.0}", adopt() as f64 / per_us);
    println!("{:<24} {:>20} {:>20}", "one change", "publish, median, max", "adopt, median, max");
    let mut measure = |what: &str, change: &mut dyn FnMut(&mut Snapshot, u32) -> Fallible<()>| {
        let (mut publish, mut taken) = (Vec::new(), Vec::new());
        for round in 0..1000 {
            let start = time_stamp();
            writer.change(|snapshot| change(snapshot, round))?;
            publish.push((time_stamp() - start) as f64 / per_us);
            taken.push(adopt() as f64 / per_us);
        }
        let most = |samples: &[f64]| samples.iter().copied().fold(0.0, f64::max);
        let (a, b) = (most(&publish), most(&taken));
        let (publish, taken) = (median(publish), median(taken));
        println!("{what:<24} {publish:>10.1} {a:>9.1} {taken:>10.1} {b:>9.1}");
        Fallible::Ok(())
    };
    let place = |round: u32| round.wrapping_mul(7919) % MANY;
    measure("remove a policy", &mut |snapshot, round| {
        snapshot.spd_mut().remove(PolicyId(place(round) + 1)).ok_or("no such policy")?;
        Ok(())
    })?;
    measure("add a policy", &mut |snapshot, round| {
        snapshot.spd_mut().insert(branch(place(round))?)?;
        Ok(())
    })?;
    measure("remove two SAs", &mut |snapshot, round| {
        snapshot.remove_outbound(SaSlot(place(round))).ok_or("no such SA")?;
        snapshot.remove_inbound(SaSlot(place(round))).ok_or("no such SA")?;
        Ok(())
    })?;
    // Keys are set up before, as a key exchange would.
    let mut fresh = (0..1000).map(|round| pair(&cpu, place(round)));
    let fresh: Vec<_> = fresh.by_ref().collect::<Result<_, _>>()?;
    let mut fresh = fresh.into_iter().map(|(out, inn)| (Arc::new(out), Arc::new(inn)));
    measure("add two SAs", &mut |snapshot, round| {
        let (out, inn) = fresh.next().ok_or("no more SAs")?;
        snapshot.add_outbound(SaSlot(place(round)), out)?;
        snapshot.add_inbound(SaSlot(place(round)), inn)?;
        Ok(())
    })?;
    drop(pool);
    Ok(())
}
