//! Packets that come out of one tunnel and fall under a policy of another go on into that.

use std::net::IpAddr;
use std::sync::Arc;

use crate::common::{Setup, inner_with, pipeline_parts, sealed, spd, text};
use convoy_ipsec::clock::Now;
use convoy_ipsec::drop_reason::DropReason;
use convoy_ipsec::event::Event;
use convoy_ipsec::pipeline::{HandOff, Inbound, Outbound, WorkerCounters};
use convoy_ipsec::sa::{
    Endpoints, InboundSpec, InterfaceId, IpsecProtocol, Mode, OutboundSpec, ReqId, SaSlot, SaSpec,
    WorkerId,
};
use convoy_ipsec::selector::{
    AddressRange, AddressSelector, PortSelector, Selector, UpperSelector,
};
use convoy_ipsec::sequence::Lease;
use convoy_ipsec::snapshot::{Snapshot, Writer};
use convoy_ipsec::spd::{Direction, KnownNetworks, Policy, PolicyAction, SpdId};
use convoy_ipsec::trace::{self, Outcome};
use convoy_packet::{Arena, Burst, FrameSize, Pool};
use convoy_wire::{PortRange, Prefix, Protocol, SeqNum, Spi, parse_packet};

const NET_A: [&str; 2] = ["10.1.0.0/16", "2001:db8:1::/48"];
const NET_B: [&str; 2] = ["10.2.0.0/16", "2001:db8:2::/48"];
const HOST_A: [&str; 2] = ["10.1.0.5", "2001:db8:1::5"];
const HOST_B: [&str; 2] = ["10.2.0.5", "2001:db8:2::5"];
const ALL: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// The ends of tunnels.
const HUB: u8 = 9;
const A: u8 = 1;
const B: u8 = 2;

/// A gateway with one worker: both pipelines over one picture.
struct Gate {
    outbound: Outbound,
    inbound: Inbound,
    writer: Writer,
    counters: Arc<WorkerCounters>,
    pool: Pool,
    handoff: HandOff,
    now: Now,
}

impl Gate {
    fn end(mut self) {
        let Self { outbound, inbound, pool, now, .. } = &mut self;
        assert_eq!(outbound.release(*now, pool) + inbound.release(*now, pool), 0);
    }
}

/// Packets that leave a gateway.
#[derive(Debug, Default, PartialEq, Eq)]
struct Out {
    wire: Vec<Vec<u8>>,
    plain: Vec<Vec<u8>>,
}

fn wire(end: u8) -> IpAddr {
    [192, 0, 2, end].into()
}

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn policy(direction: Direction, local: &str, remote: &str, action: PolicyAction) -> Policy {
    let [local, remote] = [local, remote].map(|net| AddressSelector::from(prefix(net)));
    let selector = Selector { local, remote, ..Selector::default() };
    let name = format!("{direction:?} {local:?} {remote:?}").into();
    Policy { name, priority: 100, direction, selector, action }
}

/// Policies both ways that protect what is between two networks, of both versions.
fn between(local: [&str; 2], remote: [&str; 2], reqid: u32) -> Vec<Policy> {
    let action = PolicyAction::Protect { reqid: ReqId(reqid) };
    let both = [Direction::Outbound, Direction::Inbound];
    let of = |(local, remote)| both.map(|direction| policy(direction, local, remote, action));
    local.into_iter().zip(remote).flat_map(of).collect()
}

/// The SA that sends from one end to the other.
fn sending(setup: &Setup, from: u8, to: u8, reqid: u32) -> OutboundSpec {
    OutboundSpec {
        sa: SaSpec {
            spi: spi(from, to),
            reqid: ReqId(reqid),
            endpoints: Endpoints { local: wire(from), remote: wire(to) },
            ..setup.outbound().sa
        },
        lease: Arc::new(Lease::new(SeqNum::new(0), 1 << 40)).into(),
        ..setup.outbound()
    }
}

fn receiving(setup: &Setup, from: u8, to: u8, reqid: u32) -> InboundSpec {
    InboundSpec {
        sa: SaSpec {
            spi: spi(from, to),
            reqid: ReqId(reqid),
            endpoints: Endpoints { local: wire(to), remote: wire(from) },
            ..setup.inbound().sa
        },
        ..setup.inbound()
    }
}

fn spi(from: u8, to: u8) -> Spi {
    Spi::new(0x1000 + u32::from(from) * 16 + u32::from(to)).unwrap()
}

/// Networks as the gateway's host has them.
fn own(nets: &[&str]) -> KnownNetworks {
    KnownNetworks { own: nets.iter().map(|net| prefix(net)).collect(), ..KnownNetworks::default() }
}

/// The picture of an end of tunnels to `peers`, in the order of their reqids from 1 on.
fn picture(setup: &Setup, end: u8, peers: &[u8], policies: Vec<Policy>) -> Snapshot {
    let mut snapshot = Snapshot::new(spd(policies));
    for ((peer, reqid), slot) in peers.iter().zip(1..).zip((0..).map(SaSlot)) {
        snapshot.add_outbound(slot, Arc::new(sending(setup, end, *peer, reqid))).unwrap();
        snapshot.add_inbound(slot, Arc::new(receiving(setup, *peer, end, reqid))).unwrap();
    }
    snapshot
}

impl Gate {
    fn new(arena: &'static Arena, setup: &Setup, picture: Snapshot) -> Self {
        let writer = Writer::new(picture);
        let out = pipeline_parts(writer.published(), setup.decrement_ttl, 0);
        let mut inn = pipeline_parts(writer.published(), setup.decrement_ttl, 0);
        inn.counters = out.counters.clone();
        Self {
            counters: out.counters.clone(),
            outbound: Outbound::new(out),
            inbound: Inbound::new(inn),
            writer,
            pool: arena.pool(),
            handoff: HandOff::new(2),
            now: Now(1_000_000_000),
        }
    }

    fn drain(&mut self, out: &mut Out) {
        let (mut to_wire, mut to_plain) = (Burst::new(), Burst::new());
        self.outbound.collect(self.now, &mut self.pool, &mut to_wire, &mut to_plain);
        for (burst, list) in [(&mut to_wire, &mut out.wire), (&mut to_plain, &mut out.plain)] {
            for frame in burst.drain() {
                list.push(frame.data().to_vec());
                self.pool.free(frame);
            }
        }
    }

    /// Packets from the plain side.
    fn send(&mut self, packets: &[Vec<u8>]) -> Out {
        let mut out = Out::default();
        for packets in packets.chunks(256) {
            let mut input = self.burst(packets);
            while !input.is_empty() || self.outbound.in_flight() > 0 {
                self.outbound.submit(self.now, &mut self.pool, &mut input, &mut self.handoff);
                self.drain(&mut out);
            }
        }
        out
    }

    /// Packets from the wire.
    fn receive(&mut self, packets: &[Vec<u8>]) -> Out {
        let mut out = Out::default();
        for packets in packets.chunks(256) {
            let mut input = self.burst(packets);
            loop {
                self.inbound.submit(self.now, &mut self.pool, &mut input, &mut self.handoff);
                let mut plain = Burst::new();
                self.inbound.collect(self.now, &mut self.pool, &mut plain);
                for frame in plain.drain() {
                    out.plain.push(frame.data().to_vec());
                    self.pool.free(frame);
                }
                let Self { outbound, inbound, now, pool, handoff, .. } = self;
                outbound.forward(*now, pool, inbound.transit(), handoff);
                self.drain(&mut out);
                let under_way = self.inbound.in_flight() + self.outbound.in_flight();
                if input.is_empty() && under_way == 0 {
                    break;
                }
            }
        }
        out
    }

    fn burst(&mut self, packets: &[Vec<u8>]) -> Burst {
        let mut burst = Burst::new();
        for bytes in packets {
            let mut frame = self.pool.alloc().unwrap();
            frame.fill_from(bytes).unwrap();
            burst.push(frame).unwrap();
        }
        burst
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.counters.drops.get(reason)
    }

    fn change(&mut self, change: impl FnOnce(&mut Snapshot)) {
        let mut next = self.writer.draft();
        change(&mut next);
        next.commit();
    }

    fn know(&mut self, networks: &KnownNetworks) {
        self.change(|next| next.spd_mut().set_transit(Some(networks)));
    }
}

/// Two spokes that send everything to their hub.
struct Net {
    a: Gate,
    b: Gate,
    hub: Gate,
    arena: &'static Arena,
}

impl Net {
    fn new(setup: &Setup) -> Self {
        Self::with(setup, [between(ALL, NET_A, 1), between(ALL, NET_B, 2)].concat())
    }

    /// With other policies of the hub, whose tunnel to A has the reqid 1 and that to B 2.
    fn with(setup: &Setup, policies: Vec<Policy>) -> Self {
        let arena = Arena::map(2048, FrameSize::for_packet(9300)).unwrap();
        let spoke =
            |end, net| Gate::new(arena, setup, picture(setup, end, &[HUB], between(net, ALL, 1)));
        let mut hub = picture(setup, HUB, &[A, B], policies);
        hub.spd_mut().set_transit(Some(&own(&["10.0.0.0/24", "10.0.0.1/32", "192.0.2.0/24"])));
        Self { a: spoke(A, NET_A), b: spoke(B, NET_B), hub: Gate::new(arena, setup, hub), arena }
    }

    /// Packets that leave the hub when A sends these.
    fn at_hub(&mut self, packets: &[Vec<u8>]) -> Out {
        let sent = self.a.send(packets);
        assert_eq!(sent.wire.len(), packets.len());
        self.hub.receive(&sent.wire)
    }

    fn assert_no_leak(self) {
        let Self { a, b, hub, arena } = self;
        [a, b, hub].into_iter().for_each(Gate::end);
        assert_eq!(arena.leaked(), 0, "frames dropped instead of given back");
        assert_eq!(arena.in_depot(), arena.frames() as usize, "frames not given back");
    }
}

/// A packet of A to B.
fn a_to_b(version: usize, size: usize) -> Vec<u8> {
    inner_with(version == 1, HOST_A[version], HOST_B[version], &vec![7; size], 0)
}

/// The same with another time to live.
fn with_ttl(mut packet: Vec<u8>, ttl: u8) -> Vec<u8> {
    if packet[0] >> 4 == 6 {
        packet[7] = ttl;
    } else {
        packet[8] = ttl;
        sum_up(&mut packet);
    }
    packet
}

fn with_df(mut packet: Vec<u8>) -> Vec<u8> {
    packet[6] |= 0x40;
    sum_up(&mut packet);
    packet
}

/// Writes the checksum of the IPv4 header.
fn sum_up(packet: &mut [u8]) {
    let (mut header, _) = etherparse::Ipv4Header::from_slice(packet).unwrap();
    header.header_checksum = header.calc_header_checksum();
    packet[10..12].copy_from_slice(&header.header_checksum.to_be_bytes());
}

fn ends(packet: &[u8]) -> (String, String) {
    let flow = parse_packet(packet).unwrap().flow;
    (flow.src_addr().to_string(), flow.dst_addr().to_string())
}

fn setups() -> Vec<Setup> {
    let usual = Setup { path_mtu: 1500, ..Setup::default() };
    let ah = crate::common::suite("null+hmac-sha256-128");
    let cbc = crate::common::suite("aes-256-cbc+hmac-sha256-128");
    vec![
        usual.clone(),
        Setup { decrement_ttl: true, ..usual.clone() },
        Setup { encap: true, ..usual.clone() },
        Setup { suite: cbc, pad_to: 1000, ..usual.clone() },
        Setup { protocol: IpsecProtocol::Ah, suite: ah, ..usual },
    ]
}

#[test]
fn spokes_reach_each_other_through_the_hub_alone() {
    for setup in setups() {
        let mut net = Net::new(&setup);
        let packets: Vec<_> = (0..500).map(|n| a_to_b(n % 2, n)).collect();
        let passed = net.at_hub(&packets);
        assert_eq!(passed.plain.len(), 0, "the host sees nothing");
        let got = net.b.receive(&passed.wire);
        // One hop each for the gateways that forward, and one for the hub.
        let hops = if setup.decrement_ttl { 3 } else { 1 };
        let expected: Vec<_> =
            packets.iter().map(|packet| with_ttl(packet.clone(), 64 - hops)).collect();
        assert_eq!(got.plain, expected);
        let counters = &net.hub.counters;
        let bytes: usize = packets.iter().map(Vec::len).sum();
        let counted = (counters.transit_packets.get(), counters.transit_bytes.get());
        assert_eq!(counted, (500, bytes as u64));
        assert_eq!(counters.inbound_packets.get(), 500);
        assert_eq!(counters.outbound_packets.get(), 500);
        net.assert_no_leak();
    }
}

#[test]
fn what_is_near_goes_to_the_plain_side() {
    let mut net = Net::new(&Setup::default());
    let local = [
        "10.0.0.1",
        "10.0.0.77",
        "192.0.2.9",
        "192.0.2.1",
        "198.51.100.7",
        "224.0.0.5",
        "10.3.0.1",
        "127.0.0.1",
        "169.254.0.1",
        "255.255.255.255",
    ];
    let local: Vec<_> = local.iter().map(|to| inner_with(false, HOST_A[0], to, b"?", 0)).collect();
    let out = net.at_hub(&local);
    assert_eq!((out.plain, out.wire.len()), (local, 0));
    let local = ["fe80::1", "ff02::5", "2001:db8:3::1", "::1"];
    let local: Vec<_> = local.iter().map(|to| inner_with(true, HOST_A[1], to, b"?", 0)).collect();
    let out = net.at_hub(&local);
    assert_eq!((out.plain, out.wire.len()), (local, 0));
    // It may go back to where it came from, as a router sends it.
    let back = inner_with(false, HOST_A[0], "10.1.9.9", b"?", 0);
    let out = net.at_hub(&[back]);
    assert_eq!((out.plain.len(), out.wire.len()), (0, 1));
    assert_eq!(net.hub.counters.transit_packets.get(), 1);
    net.assert_no_leak();
}

#[test]
fn own_networks_come_and_go_while_packets_flow() {
    let mut net = Net::new(&Setup::default());
    let packets = vec![a_to_b(0, 9), a_to_b(1, 9)];
    assert_eq!(net.at_hub(&packets).wire.len(), 2);
    // The host is connected to a part of B's network; then one of its addresses is there.
    for nets in [["10.2.0.0/24", "2001:db8:2::/64"], ["10.2.0.5/32", "2001:db8:2::5/128"]] {
        net.hub.know(&own(&nets));
        assert_eq!(net.at_hub(&packets).plain, packets);
    }
    // To all of it: then the policy is meant.
    net.hub.know(&own(&NET_B));
    assert_eq!(net.at_hub(&packets).wire.len(), 2);
    net.hub.change(|next| next.spd_mut().set_transit(None));
    assert_eq!(net.at_hub(&packets).plain, packets);
    // A source that only the host may have is for the host to judge.
    net.hub.know(&own(&["10.1.0.5/32", "2001:db8:1::5/128"]));
    assert_eq!(net.at_hub(&packets).plain, packets);
    net.assert_no_leak();
}

#[test]
fn a_lan_beside_a_tunnel_for_everything_is_near() {
    // A is where everything goes; B lies within the hub's own networks, of which the host knows none.
    let nets = ["10.0.0.0/8", "2001:db8::/32"];
    let policies = [between(ALL, NET_B, 2), between(nets, ALL, 1)].concat();
    let mut net = Net::with(&Setup::default(), policies);
    let from = "198.51.100.7";
    // The spoke of this test takes any source.
    let any = picture(&Setup::default(), A, &[HUB], between(ALL, ALL, 1));
    net.a = Gate::new(net.arena, &Setup::default(), any);
    let to = |to: &str| inner_with(false, from, to, b"?", 0);
    let out = net.at_hub(&[to("10.7.0.1"), to(HOST_B[0])]);
    assert_eq!((out.plain, out.wire.len()), (vec![to("10.7.0.1")], 1));
    assert_eq!(net.b.receive(&out.wire).plain.len(), 1);
    // From B to the LAN and to the world.
    let lan = inner_with(false, HOST_B[0], "10.7.0.1", b"?", 0);
    let world = inner_with(false, HOST_B[0], from, b"?", 0);
    let sent = net.b.send(&[lan.clone(), world]);
    let out = net.hub.receive(&sent.wire);
    assert_eq!((out.plain, out.wire.len()), (vec![lan], 1));
    assert_eq!(ends(&out.wire[0]).1, wire(A).to_string());
    net.assert_no_leak();
}

#[test]
fn listed_networks_say_what_is_far_where_the_sides_of_a_policy_overlap() {
    let everything = || [between(ALL, ALL, 1), between(["10.0.0.0/8", "::/0"], NET_B, 2)].concat();
    let mut net = Net::with(&Setup::default(), everything());
    let to = |to: &str| inner_with(false, HOST_A[0], to, b"?", 0);
    // Without a list: it cannot be said on which side it is. B's is the smaller side.
    let out = net.at_hub(&[to("198.51.100.7")]);
    assert_eq!((out.plain.len(), out.wire.len()), (1, 0));
    net.hub.know(&KnownNetworks {
        remote: vec![prefix("198.51.100.0/24")],
        ..KnownNetworks::default()
    });
    let out = net.at_hub(&[to("198.51.100.7"), to("198.51.101.7")]);
    assert_eq!((out.plain, out.wire.len()), (vec![to("198.51.101.7")], 1));
    net.assert_no_leak();
}

/// Policies of the hub, and one ahead of them from A to B.
fn with_first(action: PolicyAction, change: impl FnOnce(&mut Policy)) -> Vec<Policy> {
    let mut first = policy(Direction::Outbound, NET_A[0], NET_B[0], action);
    first.priority = 1;
    change(&mut first);
    [between(ALL, NET_A, 1), between(ALL, NET_B, 2), vec![first]].concat()
}

#[test]
fn policies_decide_in_their_order_by_all_that_they_say() {
    let packets = [a_to_b(0, 9)];
    let mut net = Net::with(&Setup::default(), with_first(PolicyAction::Bypass, |_| {}));
    assert_eq!(net.at_hub(&packets).plain, packets, "the host is to pass it on in clear");
    net.assert_no_leak();

    let mut net = Net::with(&Setup::default(), with_first(PolicyAction::Discard, |_| {}));
    assert_eq!(net.at_hub(&packets), Out::default());
    assert_eq!(net.hub.dropped(DropReason::PolicyDiscard), 1);
    let picture = net.hub.writer.current();
    let (id, _) = picture.spd().policies().find(|(_, policy)| policy.priority == 1).unwrap();
    assert_eq!(picture.spd().uses(id).unwrap().packets(), 1);
    drop(picture);
    net.assert_no_leak();

    // Only one port is dropped.
    let port = |port: u16| PortSelector::from(PortRange::single(port));
    let policies = with_first(PolicyAction::Discard, |first| {
        first.selector.protocol = Some(Protocol::UDP);
        let remote = port(5000);
        first.selector.upper = UpperSelector::Ports { local: PortSelector::Any, remote };
    });
    let mut net = Net::with(&Setup::default(), policies);
    let mut other = a_to_b(0, 9);
    other[22..24].copy_from_slice(&5001_u16.to_be_bytes());
    let out = net.at_hub(&[packets[0].clone(), other]);
    assert_eq!((out.plain.len(), out.wire.len()), (0, 1));
    assert_eq!(net.hub.dropped(DropReason::PolicyDiscard), 1);
    // A later fragment is as its first.
    for (port, passes) in [(5000_u16, 0), (5001, 2)] {
        let mut whole = a_to_b(0, 200);
        whole[22..24].copy_from_slice(&port.to_be_bytes());
        whole[5] = port as u8;
        let [first, later] = halves(&whole);
        let out = net.at_hub(&[later, first]);
        assert_eq!((out.plain.len(), out.wire.len()), (0, passes), "{port}");
    }
    net.assert_no_leak();

    // Without an SA, and with one that is still to be made.
    let mut net = Net::new(&Setup::default());
    net.hub.change(|next| drop(next.remove_outbound(SaSlot(1))));
    assert_eq!(net.at_hub(&packets), Out::default());
    assert_eq!(net.hub.dropped(DropReason::NoSa), 1);
    net.assert_no_leak();
}

#[test]
fn a_policy_that_discards_the_rest_leaves_near_networks_alone() {
    let rest = |remote: &str| {
        let mut rest = policy(Direction::Outbound, ALL[0], remote, PolicyAction::Discard);
        rest.priority = 900;
        rest
    };
    // Hub's networks are 10.8.0.0/16, to which its host is not connected.
    let hub = ["10.8.0.0/16", "2001:db8:8::/48"];
    let of = |remote: &str| {
        let inbound =
            policy(Direction::Inbound, ALL[0], NET_A[0], PolicyAction::Protect { reqid: ReqId(1) });
        [between(hub, NET_A, 1), between(hub, NET_B, 2), vec![rest(remote), inbound]].concat()
    };
    let to = |to: &str| inner_with(false, HOST_A[0], to, b"?", 0);
    for (remote, drops) in [(ALL[0], false), ("10.0.0.0/8", true)] {
        let mut net = Net::with(&Setup::default(), of(remote));
        assert_eq!(net.at_hub(&[to("10.8.0.9")]).plain, [to("10.8.0.9")]);
        let out = net.at_hub(&[to("10.3.0.9")]);
        assert_eq!((out.plain.len(), out.wire.len()), (usize::from(!drops), 0), "{remote}");
        assert_eq!(net.hub.dropped(DropReason::PolicyDiscard), u64::from(drops));
        net.assert_no_leak();
    }
}

#[test]
fn what_is_forbidden_between_spokes_is_dropped_where_policies_name_them_on_both_sides() {
    let pairs = [between(NET_B, NET_A, 1), between(NET_A, NET_B, 2)].concat();
    let mut first = policy(Direction::Outbound, NET_A[0], "10.2.0.0/15", PolicyAction::Discard);
    first.priority = 1;
    let mut net = Net::with(&Setup::default(), [pairs, vec![first]].concat());
    assert_eq!(net.at_hub(&[a_to_b(0, 9)]), Out::default());
    assert_eq!(net.hub.dropped(DropReason::PolicyDiscard), 1);
    assert_eq!(net.at_hub(&[a_to_b(1, 9)]).wire.len(), 1);
    net.assert_no_leak();
}

#[test]
fn nothing_goes_on_that_its_own_tunnel_may_not_carry() {
    let setup = Setup::default();
    let mut net = Net::new(&setup);
    // A spoke that sends whatever it likes.
    net.a = Gate::new(net.arena, &setup, picture(&setup, A, &[HUB], between(ALL, ALL, 1)));
    for version in [0, 1] {
        let [a, b] = [HOST_A[version], HOST_B[version]];
        let is_v6 = version == 1;
        let honest = inner_with(is_v6, a, b, b"?", 0);
        let spoofed = inner_with(is_v6, b, b, b"?", 0);
        let back = inner_with(is_v6, b, a, b"?", 0);
        // The second time answers come from the cache.
        for round in 1..=2 {
            let out = net.at_hub(&[spoofed.clone(), honest.clone(), back.clone()]);
            assert_eq!((out.plain.len(), out.wire.len()), (0, 1));
            assert_eq!(net.b.receive(&out.wire).plain, [with_ttl(honest.clone(), 63)]);
            let refused = net.hub.dropped(DropReason::InnerPolicyMismatch);
            assert_eq!(refused, 4 * version as u64 + 2 * round);
        }
    }
    net.assert_no_leak();
}

#[test]
fn a_fragment_goes_on_with_its_packet_though_its_sa_is_gone() {
    let setup = Setup::default();
    let policies = with_first(PolicyAction::Discard, |first| {
        first.selector.protocol = Some(Protocol::UDP);
        let remote = PortSelector::from(PortRange::single(5001));
        first.selector.upper = UpperSelector::Ports { local: PortSelector::Any, remote };
    });
    let mut net = Net::with(&setup, policies);
    let [first, later] = halves(&a_to_b(0, 200));
    let sent = net.a.send(&[later, first.clone()]).wire;
    let [_, later] = &sent[..] else { panic!("{} packets", sent.len()) };
    let out = net.hub.receive(std::slice::from_ref(later));
    assert_eq!(out, Out::default(), "it waits for the first one");
    // The SA is replaced.
    net.hub.change(|next| {
        next.remove_inbound(SaSlot(0));
        let sa = InboundSpec {
            sa: SaSpec { spi: spi(A, A), ..receiving(&setup, A, HUB, 1).sa },
            ..receiving(&setup, A, HUB, 1)
        };
        next.add_inbound(SaSlot(7), Arc::new(sa)).unwrap();
    });
    net.a.change(|next| {
        next.remove_outbound(SaSlot(0));
        let sa = OutboundSpec {
            sa: SaSpec { spi: spi(A, A), ..sending(&setup, A, HUB, 1).sa },
            ..sending(&setup, A, HUB, 1)
        };
        next.add_outbound(SaSlot(7), Arc::new(sa)).unwrap();
    });
    let out = net.at_hub(&[first]);
    assert_eq!((out.plain.len(), out.wire.len()), (0, 2));
    net.assert_no_leak();
}

#[test]
fn networks_are_compared_by_size_where_policies_have_ranges() {
    let range = |first: &str, last: &str| {
        let [first, last] = [first, last].map(|text| text.parse().unwrap());
        AddressSelector::Range(AddressRange::new(first, last).unwrap())
    };
    let nearly_ten = range("10.0.0.1", "10.255.255.254");
    // B has nearly all of 10.0.0.0/8: the hub's LAN 10.0.0.0/24 is local all the same.
    let action = PolicyAction::Protect { reqid: ReqId(2) };
    let mut to_b = policy(Direction::Outbound, ALL[0], NET_B[0], action);
    to_b.selector.remote = nearly_ten;
    let mut net = Net::with(&Setup::default(), [between(ALL, NET_A, 1), vec![to_b]].concat());
    let to = |to: &str| inner_with(false, HOST_A[0], to, b"?", 0);
    let out = net.at_hub(&[to("10.0.0.77"), to("10.9.9.9")]);
    assert_eq!((out.plain, out.wire.len()), (vec![to("10.0.0.77")], 1));
    net.assert_no_leak();
    // The hub's own side is nearly all of it, beside a tunnel for everything: B's network is remote.
    let mut beside = between(ALL, ALL, 1);
    beside.iter_mut().for_each(|policy| policy.selector.local = nearly_ten);
    let beside = beside.into_iter().take(1);
    let to_b = between(ALL, ["10.0.0.0/24", NET_B[1]], 2);
    let policies = [between(ALL, NET_A, 1), to_b].concat().into_iter().chain(beside).collect();
    let mut net = Net::with(&Setup::default(), policies);
    net.hub.know(&own(&[]));
    let out = net.at_hub(&[to("10.0.0.5")]);
    assert_eq!((out.plain.len(), out.wire.len()), (0, 1));
    net.assert_no_leak();
}

#[test]
fn a_packet_waits_for_its_sa_and_takes_one_hop() {
    let mut net = Net::new(&Setup::default());
    let sa = net.hub.writer.current().outbound(SaSlot(1)).unwrap().clone();
    net.hub.change(|next| {
        next.remove_outbound(SaSlot(1));
        next.make_on_demand(ReqId(2));
    });
    assert_eq!(net.at_hub(&[a_to_b(0, 9)]), Out::default());
    let mut asked = Vec::new();
    net.hub.outbound.tell(|event| {
        asked.push(event);
        true
    });
    assert!(matches!(asked[..], [Event::Acquire { reqid: ReqId(2), .. }]), "{asked:?}");
    net.hub.change(|next| next.add_outbound(SaSlot(1), sa).unwrap());
    let out = net.hub.send(&[]);
    let out = if out.wire.is_empty() { net.hub.send(&[a_to_b(1, 1)]) } else { out };
    let got = net.b.receive(&out.wire);
    assert_eq!(got.plain[0], with_ttl(a_to_b(0, 9), 63));
    net.assert_no_leak();
}

#[test]
fn a_packet_for_another_worker_is_handed_to_it_one_hop_older() {
    let mut net = Net::new(&Setup::default());
    let sa = sending(&Setup::default(), HUB, B, 2);
    net.hub.change(|next| {
        next.remove_outbound(SaSlot(1));
        let sa = OutboundSpec { sa: SaSpec { worker: WorkerId(1), ..sa.sa }, ..sa };
        next.add_outbound(SaSlot(1), Arc::new(sa)).unwrap();
    });
    assert_eq!(net.at_hub(&[a_to_b(0, 9)]), Out::default());
    let burst = net.hub.handoff.for_worker(WorkerId(1)).unwrap();
    let given: Vec<_> = burst.as_slice().iter().map(|frame| frame.data().to_vec()).collect();
    assert_eq!(given, [with_ttl(a_to_b(0, 9), 63)]);
    burst.release(&mut net.hub.pool);
    net.assert_no_leak();
}

/// Packets that A hears in the tunnel.
fn heard_by_a(net: &mut Net, out: &Out) -> Vec<Vec<u8>> {
    assert_eq!(out.plain.len(), 0, "the host sees nothing");
    net.a.receive(&out.wire).plain
}

#[test]
fn senders_behind_tunnels_hear_that_a_packet_expired() {
    for version in [0, 1] {
        for ttl in [0, 1] {
            let mut net = Net::new(&Setup::default());
            let out = net.at_hub(&[with_ttl(a_to_b(version, 30), ttl)]);
            assert_eq!(net.hub.dropped(DropReason::TtlExpired), 1);
            let heard = heard_by_a(&mut net, &out);
            let [message] = &heard[..] else { panic!("{heard:?}") };
            assert_eq!(ends(message), (HOST_B[version].into(), HOST_A[version].into()));
            let at = if version == 0 { 20 } else { 40 };
            assert_eq!(message[at], if version == 0 { 11 } else { 3 }, "time exceeded");
            net.assert_no_leak();
        }
        let mut net = Net::new(&Setup::default());
        let out = net.at_hub(&[with_ttl(a_to_b(version, 30), 2)]);
        assert_eq!(net.b.receive(&out.wire).plain, [with_ttl(a_to_b(version, 30), 1)]);
        net.assert_no_leak();
    }
}

#[test]
fn senders_behind_tunnels_hear_what_fits_the_next_one_or_are_cut() {
    let mut net = Net::new(&Setup::default());
    let narrow = OutboundSpec { path_mtu: 1400, ..sending(&Setup::default(), HUB, B, 2) };
    net.hub.change(|next| {
        next.remove_outbound(SaSlot(1));
        next.add_outbound(SaSlot(1), Arc::new(narrow)).unwrap();
    });
    for version in [0, 1] {
        let packet = a_to_b(version, 2000);
        let packet = if version == 0 { with_df(packet) } else { packet };
        let out = net.at_hub(&[packet]);
        let heard = heard_by_a(&mut net, &out);
        let [message] = &heard[..] else { panic!("{heard:?}") };
        let mtu = match version {
            0 => u32::from(u16::from_be_bytes(message[26..28].try_into().unwrap())),
            _ => u32::from_be_bytes(message[44..48].try_into().unwrap()),
        };
        assert!((1280..1400).contains(&mtu), "{mtu}");
    }
    assert_eq!(net.hub.dropped(DropReason::TooBig), 2);
    let out = net.at_hub(&[a_to_b(0, 2000)]);
    assert_eq!((out.wire.len(), out.plain.len()), (2, 0));
    let got = net.b.receive(&out.wire).plain;
    assert!(got.iter().all(|part| part[8] == 63), "every part is one hop older");
    net.assert_no_leak();
}

#[test]
fn messages_that_no_policy_means_are_not_sent_in_clear_to_senders_behind_tunnels() {
    let is_udp = |mut policy: Policy| {
        policy.selector.protocol = Some(Protocol::UDP);
        policy
    };
    let policies = [between(ALL, NET_A, 1), between(ALL, NET_B, 2)].concat();
    let setup = Setup { path_mtu: 1400, ..Setup::default() };
    let mut net = Net::with(&setup, policies.into_iter().map(is_udp).collect());
    let wide = Setup { path_mtu: 9000, ..setup };
    net.a = Gate::new(net.arena, &wide, picture(&wide, A, &[HUB], between(NET_A, ALL, 1)));
    let out = net.at_hub(&[with_df(a_to_b(0, 1500)), a_to_b(1, 1500), with_ttl(a_to_b(0, 9), 1)]);
    assert_eq!(out, Out::default());
    assert_eq!(net.hub.counters.icmp_sent.get(), 3);
    assert_eq!(net.hub.dropped(DropReason::NoPolicy), 3);
    // Local senders are told, though no policy means that either.
    let out = net.hub.send(&[with_df(inner_with(false, "10.0.0.77", HOST_B[0], &[7; 1500], 0))]);
    assert_eq!((out.wire.len(), out.plain.len()), (0, 1));
    net.assert_no_leak();
}

#[test]
fn messages_to_near_senders_stay_on_the_plain_side() {
    let setup = Setup { path_mtu: 1400, ..Setup::default() };
    let mut net = Net::new(&setup);
    let from_lan = with_df(inner_with(false, "10.0.0.77", HOST_B[0], &[7; 2000], 0));
    let out = net.hub.send(&[from_lan]);
    assert_eq!((out.wire.len(), out.plain.len()), (0, 1));
    assert_eq!(ends(&out.plain[0]).1, "10.0.0.77");
    net.assert_no_leak();
}

#[test]
fn a_loop_between_two_hubs_ends_with_the_hop_limit() {
    for (version, decrement_ttl) in [(0, false), (1, false), (0, true), (1, true)] {
        let setup = Setup { decrement_ttl, ..Setup::default() };
        let mut net = Net::new(&setup);
        // Each believes that the other one has B's network.
        let policies = || {
            let inward = between(NET_B, ALL, 1).into_iter();
            let inward = inward.filter(|policy| policy.direction == Direction::Inbound);
            between(ALL, NET_B, 1).into_iter().chain(inward).collect()
        };
        let hub = |end, peer: u8| {
            let mut picture = picture(&setup, end, &[peer], policies());
            picture.spd_mut().set_transit(Some(&own(&["203.0.113.0/24"])));
            picture
        };
        let mut left = Gate::new(net.arena, &setup, hub(A, HUB));
        let mut right = Gate::new(net.arena, &setup, hub(HUB, A));
        let mut under_way = left.send(&[a_to_b(version, 9)]).wire;
        let mut sent = 0;
        while !under_way.is_empty() {
            sent += under_way.len();
            assert!(sent <= 64, "it never ends");
            let out =
                if sent % 2 == 1 { right.receive(&under_way) } else { left.receive(&under_way) };
            let is_answer = |packet: &Vec<u8>| ends(packet).1 == HOST_A[version];
            assert!(out.plain.iter().all(is_answer), "{out:?}");
            under_way = out.wire;
        }
        assert!(sent > 60, "{sent}");
        let expired = left.dropped(DropReason::TtlExpired) + right.dropped(DropReason::TtlExpired);
        assert_eq!(expired, 1);
        [left, right].into_iter().for_each(Gate::end);
        net.a.pool = net.arena.pool();
        net.assert_no_leak();
    }
}

#[test]
fn what_was_between_two_hosts_has_arrived() {
    // In transport mode its destination is the hub itself, but the hub's networks are not known.
    let setup = Setup { mode: Mode::Transport, ..Setup::default() };
    let mut net = Net::new(&setup);
    let both = |end: u8, peer: u8| {
        let mut picture = picture(&setup, end, &[peer], between(ALL, ALL, 1));
        let remote = vec![prefix("192.0.2.0/24")];
        picture.spd_mut().set_transit(Some(&KnownNetworks { remote, ..KnownNetworks::default() }));
        picture
    };
    net.a = Gate::new(net.arena, &setup, both(A, HUB));
    net.hub = Gate::new(net.arena, &setup, both(HUB, A));
    let packet = inner_with(false, "192.0.2.1", "192.0.2.9", b"hello", 0);
    let out = net.at_hub(std::slice::from_ref(&packet));
    assert_eq!((out.plain, out.wire.len()), (vec![packet], 0));
    net.assert_no_leak();
}

#[test]
fn what_comes_out_on_another_interface_is_for_routes_to_lead() {
    let mut net = Net::new(&Setup::default());
    let mut spd_of_other = SpdId::default();
    net.hub.change(|next| {
        spd_of_other = next.add_spd(next.spd().clone()).unwrap();
        next.remove_inbound(SaSlot(0));
        let sa = receiving(&Setup::default(), A, HUB, 1);
        let sa = InboundSpec { interface: InterfaceId(1), ..sa };
        next.add_inbound(SaSlot(0), Arc::new(sa)).unwrap();
    });
    let spds = [SpdId::default(), spd_of_other];
    let mut parts = pipeline_parts(net.hub.writer.published(), false, 0);
    parts.counters = net.hub.counters.clone();
    net.hub.inbound = Inbound::new(parts).with_spds(&spds);
    let packet = a_to_b(0, 9);
    let out = net.at_hub(std::slice::from_ref(&packet));
    assert_eq!((out.plain, out.wire.len()), (vec![packet.clone()], 0));
    // Those of the first one do, in one burst with them.
    net.hub.change(|next| {
        let sa = receiving(&Setup::default(), B, HUB, 2);
        next.remove_inbound(SaSlot(1));
        next.add_inbound(SaSlot(1), Arc::new(sa)).unwrap();
    });
    let back = inner_with(false, HOST_B[0], HOST_A[0], b"?", 0);
    let mut mixed = net.a.send(&[packet.clone(), packet.clone()]).wire;
    mixed.insert(1, net.b.send(&[back]).wire.remove(0));
    let out = net.hub.receive(&mixed);
    assert_eq!((out.plain, out.wire.len()), (vec![packet.clone(), packet], 1));
    net.assert_no_leak();
}

#[test]
fn what_is_said_to_become_of_a_packet_becomes_of_it() {
    let mut net = Net::new(&Setup::default());
    for (to, expected) in [
        (HOST_B[0], Outcome::Transit),
        ("10.0.0.7", Outcome::Accepted),
        (HOST_A[0], Outcome::Transit),
    ] {
        let packet = inner_with(false, HOST_A[0], to, b"?", 0);
        let flow = parse_packet(&packet).unwrap().flow;
        let picture = net.hub.writer.current();
        let said = trace::inbound(&picture, SpdId::default(), SaSlot(0), &flow, net.hub.now);
        assert_eq!(said.outcome, expected);
        let out = net.at_hub(&[packet]);
        assert_eq!(out.wire.len(), usize::from(expected == Outcome::Transit));
    }
    net.assert_no_leak();
}

#[test]
fn hostile_packets_out_of_a_tunnel_are_judged_and_never_looped() {
    let setup = Setup { esn: true, ..Setup::default() };
    let mut net = Net::new(&setup);
    // The test's key seals what no gateway would.
    let mut hub = Snapshot::clone(&net.hub.writer.current());
    hub.remove_inbound(SaSlot(0));
    hub.add_inbound(
        SaSlot(0),
        Arc::new(InboundSpec {
            sa: SaSpec {
                endpoints: Endpoints { local: wire(2), remote: wire(1) },
                ..setup.inbound().sa
            },
            ..setup.inbound()
        }),
    )
    .unwrap();
    net.hub.writer.publish(hub);
    let good = a_to_b(0, 40);
    let mut hostile = vec![good.clone()];
    // Every byte of the header, and every length.
    for at in 0..28 {
        for byte in [0, 1, 0x45, 0x46, 0x4f, 0x60, 0x7f, 0xff] {
            let mut packet = good.clone();
            packet[at] = byte;
            hostile.push(packet);
        }
    }
    hostile.extend((0..good.len()).map(|len| good[..len].to_vec()));
    // A source that B's policies do not let in, and the errors about an error.
    hostile.push(inner_with(false, HOST_B[0], HOST_B[0], b"?", 0));
    let numbered = hostile.iter().zip(1..);
    let wire: Vec<_> = numbered.map(|(packet, n)| sealed(&setup, n, &text(packet, 4), 0)).collect();
    let out = net.hub.receive(&wire);
    let refused: u64 = net.hub.counters.drops.iter().map(|(_, n)| n).sum();
    let accepted = net.hub.counters.inbound_packets.get();
    let in_transit = net.hub.counters.transit_packets.get();
    let late = net.hub.dropped(DropReason::TtlExpired);
    assert_eq!(accepted - in_transit, out.plain.len() as u64);
    assert!(in_transit > 100 && late > 0, "{in_transit} {late}");
    let answers = net.hub.counters.icmp_sent.get();
    assert_eq!(out.wire.len() as u64, in_transit - late + answers);
    assert!(accepted + refused >= hostile.len() as u64);
    net.assert_no_leak();
}

/// An IPv4 packet in two fragments.
fn halves(packet: &[u8]) -> [Vec<u8>; 2] {
    let middle = 20 + 64;
    let mut first = packet[..middle].to_vec();
    let mut second = [&packet[..20], &packet[middle..]].concat();
    for (part, flags) in [(&mut first, 0x2000_u16), (&mut second, 8)] {
        let len = part.len() as u16;
        part[2..4].copy_from_slice(&len.to_be_bytes());
        part[6..8].copy_from_slice(&flags.to_be_bytes());
        sum_up(part);
    }
    [first, second]
}
