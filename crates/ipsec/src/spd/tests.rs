use std::net::{IpAddr, Ipv6Addr};

use convoy_wire::{PortRange, Ports, Prefix, Protocol};
use proptest::prelude::*;

use super::linear::LinearSpd;
use super::*;
use crate::selector::{AddressRange, AddressSelector, PortSelector, UpperSelector};

fn policy(name: &str, priority: u32, direction: Direction, selector: Selector) -> Policy {
    Policy { name: name.into(), priority, direction, selector, action: PolicyAction::Discard }
}

fn to(network: &str) -> Selector {
    Selector { remote: network.parse::<Prefix>().unwrap().into(), ..Selector::default() }
}

fn key(src: &str, dst: &str) -> FlowKey {
    let ports = Ports::Known { src: 1, dst: 2 };
    FlowKey::new(src.parse().unwrap(), dst.parse().unwrap(), Protocol::UDP, ports).unwrap()
}

#[test]
fn the_lowest_priority_number_decides_and_then_the_first_added() {
    let spd = Spd::new([
        policy("all", 10, Direction::Outbound, Selector::default()),
        policy("net", 5, Direction::Outbound, to("10.2.0.0/16")),
        policy("host", 5, Direction::Outbound, to("10.2.0.1")),
    ])
    .unwrap();
    let found = |dst| spd.lookup(Direction::Outbound, &key("10.1.0.1", dst)).unwrap().id;
    assert_eq!(found("10.2.0.1"), PolicyId(1));
    assert_eq!(found("10.3.0.1"), PolicyId(0));
    assert_eq!(&*spd.policy(PolicyId(1)).unwrap().name, "net");
}

#[test]
fn directions_are_apart_and_inbound_policies_look_from_the_far_side() {
    let spd = Spd::new([policy("in", 1, Direction::Inbound, to("10.2.0.0/16"))]).unwrap();
    assert_eq!(spd.lookup(Direction::Outbound, &key("10.1.0.1", "10.2.0.1")), None);
    assert_eq!(spd.lookup(Direction::Inbound, &key("10.1.0.1", "10.2.0.1")), None);
    let from_there = key("10.2.0.1", "10.1.0.1");
    let decision = Decision { id: PolicyId(0), action: PolicyAction::Discard };
    assert_eq!(spd.lookup(Direction::Inbound, &from_there), Some(decision));
    assert_eq!(Spd::default().lookup(Direction::Inbound, &from_there), None);
}

#[test]
fn inbound_policies_may_be_for_this_host_or_for_others() {
    let mut spd = Spd::default();
    let inbound = |name| policy(name, 1, Direction::Inbound, to("10.2.0.0/16"));
    let host = spd.insert_for(MeantFor::Host, inbound("in")).unwrap();
    let action = PolicyAction::Bypass;
    let forwarded = Policy { action, ..inbound("fwd") };
    let others = spd.insert_for(MeantFor::Others, forwarded).unwrap();
    let all = policy("all", 9, Direction::Inbound, Selector::default());
    let all = spd.insert(all).unwrap();
    let [ours, theirs, beyond] =
        [("10.2.0.1", "10.1.0.1"), ("10.2.0.1", "10.1.0.2"), ("10.3.0.1", "10.1.0.1")]
            .map(|(src, dst)| key(src, dst));
    let found = |spd: &Spd, key: &FlowKey| spd.lookup(Direction::Inbound, key).map(|it| it.id);
    // The stricter one counts until it is known.
    assert_eq!([ours, theirs].map(|key| found(&spd, &key)), [Some(host); 2]);
    spd.know_hosts(&["10.1.0.1".parse().unwrap()]);
    let mut cache = FlowCache::default();
    let mut compare = |spd: &Spd, keys: &[FlowKey], ids: &[Option<PolicyId>]| {
        let mut burst = vec![None; keys.len()];
        spd.lookup_burst(Direction::Inbound, keys, &mut cache, &mut burst);
        let looked_up: Vec<_> = keys.iter().map(|key| found(spd, key)).collect();
        assert_eq!(burst.iter().map(|it| it.map(|it| it.id)).collect::<Vec<_>>(), looked_up);
        assert_eq!(looked_up, ids);
    };
    let groups = [key("10.2.0.1", "239.1.1.1"), key("10.2.0.1", "255.255.255.255")];
    compare(&spd, &[ours, theirs, beyond], &[Some(host), Some(others), Some(all)]);
    compare(&spd, &groups, &[Some(host); 2]);
    // Both are at one place, and do not meet.
    let twin = spd.insert_for(MeantFor::Host, inbound("twin"));
    assert!(matches!(twin, Err(SpdError::Duplicate { .. })), "{twin:?}");
    spd.remove(host).unwrap();
    compare(&spd, &[ours, theirs], &[Some(all), Some(others)]);
    spd.remove(others).unwrap();
    compare(&spd, &[ours, theirs], &[Some(all); 2]);
}

#[test]
fn a_policy_that_could_never_decide_is_refused() {
    let mut spd = Spd::default();
    spd.insert(policy("a", 1, Direction::Outbound, to("10.2.0.0/16"))).unwrap();
    let twin = policy("b", 1, Direction::Outbound, to("10.2.0.0/16"));
    assert_eq!(
        spd.insert(twin.clone()).unwrap_err().to_string(),
        "policies 'a' and 'b' have the same direction, selector and priority"
    );
    assert!(spd.insert(Policy { priority: 2, ..twin.clone() }).is_ok());
    assert!(spd.insert(Policy { direction: Direction::Inbound, ..twin }).is_ok());
    assert_eq!(spd.len(), 3);
    let between_versions =
        Selector { local: "::/0".parse::<Prefix>().unwrap().into(), ..to("10.0.0.0/8") };
    let ports =
        UpperSelector::Ports { local: PortRange::single(1).into(), remote: PortSelector::Opaque };
    for selector in [between_versions, Selector { upper: ports, ..Selector::default() }] {
        let error = spd.insert(policy("c", 1, Direction::Outbound, selector)).unwrap_err();
        assert_eq!(error.to_string(), "policy 'c' means no packet");
    }
    assert_eq!(spd.len(), 3);
}

#[test]
fn numbers_are_used_again_and_stay_while_a_policy_does() {
    let mut spd = Spd::default();
    let networks = ["10.0.0.0/8", "10.1.0.0/16", "10.1.1.0/24"];
    for (n, network) in networks.iter().enumerate() {
        let id = spd.insert(policy(network, 1, Direction::Outbound, to(network))).unwrap();
        assert_eq!(id, PolicyId(n as u32));
    }
    let kept = spd.clone();
    assert_eq!(&*spd.remove(PolicyId(1)).unwrap().name, "10.1.0.0/16");
    assert!(spd.remove(PolicyId(1)).is_none());
    assert_eq!(spd.insert(policy("x", 0, Direction::Outbound, to("10.1.1.1"))), Ok(PolicyId(1)));
    let found =
        |spd: &Spd| spd.lookup(Direction::Outbound, &key("10.9.9.9", "10.1.1.1")).unwrap().id.0;
    assert_eq!((found(&spd), found(&kept)), (1, 0));
    spd.remove(PolicyId(0)).unwrap();
    assert_eq!(spd.policies().map(|(id, _)| id.0).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_policy_can_come_between_two_others() {
    let mut spd = Spd::default();
    let add = |spd: &mut Spd, name: &str, len, after, before| {
        let network = to(&format!("10.0.0.0/{len}"));
        spd.insert_between(policy(name, 7, Direction::Outbound, network), after, before, 0)
    };
    let last = add(&mut spd, "last", 8, None, None).unwrap();
    let first = add(&mut spd, "first", 9, None, Some(last)).unwrap();
    let middle = add(&mut spd, "middle", 10, Some(first), Some(last)).unwrap();
    let decides =
        |spd: &Spd| spd.lookup(Direction::Outbound, &key("10.9.9.9", "10.0.0.1")).unwrap().id;
    assert_eq!(decides(&spd), first);
    spd.remove(first);
    assert_eq!(decides(&spd), middle);
    // Ever closer to one place: at some time nothing fits between any more.
    let mut before = last;
    let refused =
        (11..31).find_map(|len| match add(&mut spd, "more", len, Some(middle), Some(before)) {
            Ok(id) => {
                before = id;
                None
            }
            Err(error) => Some(error),
        });
    assert_eq!(refused, Some(SpdError::NoPlace));
    assert_eq!(add(&mut spd, "x", 31, Some(last), Some(middle)), Err(SpdError::NoPlace));
    assert_eq!(add(&mut spd, "x", 31, Some(PolicyId(99)), None), Err(SpdError::NoPlace));
}

#[test]
fn orders_are_given_anew_when_they_run_out() {
    let mut spd = Spd::default();
    for network in ["10.0.0.0/8", "10.1.0.0/16", "10.1.1.0/24"] {
        spd.insert(policy(network, 1, Direction::Outbound, to(network))).unwrap();
    }
    spd.remove(PolicyId(0));
    spd.last = u32::MAX - 1;
    let id = spd.insert(policy("x", 1, Direction::Outbound, to("10.1.1.1"))).unwrap();
    assert_eq!((id, spd.last), (PolicyId(0), 3 * GAP));
    let packet = key("10.9.9.9", "10.1.1.1");
    let mut found = Vec::new();
    while let Some(Decision { id, .. }) = spd.lookup(Direction::Outbound, &packet) {
        found.push(spd.remove(id).unwrap().name.to_string());
    }
    assert_eq!(found, ["10.1.0.0/16", "10.1.1.0/24", "x"]);
    assert_eq!((spd.is_empty(), spd.shapes(Direction::Outbound)), (true, (0, 0)));
}

#[test]
fn what_would_make_packets_too_dear_is_refused() {
    let mut spd = Spd::default();
    let ports = |n| Selector {
        upper: UpperSelector::Ports {
            local: PortSelector::Any,
            remote: PortRange::new(n, u16::MAX - n).unwrap().into(),
        },
        ..Selector::default()
    };
    let refused = (0..2000).find_map(|n| {
        spd.insert(policy("p", 1, Direction::Outbound, ports(n + 1))).err().map(|e| (n, e))
    });
    assert_eq!(refused, Some((tuples::MAX_ALIKE as u16, SpdError::Alike)));
    assert_eq!(spd.len(), tuples::MAX_ALIKE);
    let mut spd = Spd::default();
    let net = |len| Prefix::containing("10.1.2.3".parse().unwrap(), len).unwrap().into();
    let pairs = (0..=32).flat_map(|a| (0..=32).map(move |b| (a, b)));
    let refused = pairs.enumerate().find_map(|(n, (a, b))| {
        let selector = Selector { local: net(a), remote: net(b), ..Selector::default() };
        spd.insert(policy("p", 1, Direction::Outbound, selector)).err().map(|error| (n, error))
    });
    assert_eq!(refused, Some((tuples::MAX_SHAPES, SpdError::Shapes)));
    assert_eq!(spd.shapes(Direction::Outbound), (tuples::MAX_SHAPES, 0));
    let packet = key("10.1.2.3", "10.1.2.3");
    assert_eq!(spd.lookup(Direction::Outbound, &packet).unwrap().id, PolicyId(0));
}

/// Addresses of which many lie in the same prefixes and ranges.
fn any_addr(v6: bool) -> impl Strategy<Value = IpAddr> {
    (0u8..3, prop_oneof![0u8..6, 250u8..=255]).prop_map(move |(net, host)| {
        if v6 {
            let base = 0x2001_0db8_u128 << 96 | u128::from(net) << 64;
            IpAddr::V6(Ipv6Addr::from_bits(base | u128::from(host)))
        } else {
            IpAddr::from([10, 0, net, host])
        }
    })
}

fn any_address(v6: bool) -> impl Strategy<Value = AddressSelector> {
    let lens: &[u8] = if v6 { &[0, 32, 64, 125, 128] } else { &[0, 8, 24, 30, 32] };
    prop_oneof![
        1 => Just(AddressSelector::Any),
        4 => (any_addr(v6), prop::sample::select(lens))
            .prop_map(|(addr, len)| Prefix::containing(addr, len).unwrap().into()),
        2 => (any_addr(v6), any_addr(v6))
            .prop_map(|(a, b)| AddressSelector::Range(AddressRange::new(a.min(b), a.max(b)).unwrap())),
    ]
}

fn any_port() -> impl Strategy<Value = u16> {
    prop_oneof![0u16..4, 0x1000u16..0x1002, 0xfffeu16..=0xffff]
}

fn any_upper() -> impl Strategy<Value = UpperSelector> {
    let port = || {
        prop_oneof![
            2 => Just(PortSelector::Any),
            1 => Just(PortSelector::Opaque),
            4 => (any_port(), any_port(), any::<bool>()).prop_map(|(a, b, one)| {
                let b = if one { a } else { b };
                PortRange::new(a.min(b), a.max(b)).unwrap().into()
            }),
        ]
    };
    let bytes = || {
        let byte = || prop_oneof![0u8..3, 254u8..=255];
        prop_oneof![Just((0, u8::MAX)), (byte(), byte()).prop_map(|(a, b)| (a.min(b), a.max(b))),]
    };
    prop_oneof![
        Just(UpperSelector::Any),
        (port(), port()).prop_map(|(local, remote)| UpperSelector::Ports { local, remote }),
        (bytes(), bytes()).prop_map(|(types, codes)| UpperSelector::Icmp { types, codes }),
    ]
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let addresses = any::<bool>().prop_flat_map(|v6| (any_address(v6), any_address(v6)));
    let priority = prop_oneof![3 => 0u32..3, 1 => 100u32..104, 1 => Just(u32::MAX)];
    let outbound = prop::bool::weighted(0.7);
    (addresses, priority, outbound, prop::option::of(0u8..2), any_upper()).prop_map(
        |((local, remote), priority, outbound, protocol, upper)| {
            let selector = Selector { local, remote, protocol: protocol.map(Protocol), upper };
            let direction = if outbound { Direction::Outbound } else { Direction::Inbound };
            policy("", priority, direction, selector)
        },
    )
}

fn any_key() -> impl Strategy<Value = FlowKey> {
    let byte = || prop_oneof![0u8..3, 254u8..=255];
    let ports = prop_oneof![
        1 => Just(Ports::Opaque),
        3 => (any_port(), any_port()).prop_map(|(src, dst)| Ports::Known { src, dst }),
        1 => (byte(), byte()).prop_map(|(ty, code)| Ports::Icmp { ty, code }),
    ];
    let addresses = any::<bool>().prop_flat_map(|v6| (any_addr(v6), any_addr(v6)));
    (addresses, 0u8..3, ports).prop_map(|((src, dst), protocol, ports)| {
        FlowKey::new(src, dst, Protocol(protocol), ports).unwrap()
    })
}

#[derive(Clone, Debug)]
enum Step {
    Insert(usize, Policy),
    Remove(usize),
    /// Keeps a clone of the policies of now.
    Keep,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any::<usize>(), any_policy()).prop_map(|(at, policy)| Step::Insert(at, policy)),
        2 => any::<usize>().prop_map(Step::Remove),
        1 => Just(Step::Keep),
    ]
}

fn means_nothing(policy: &Policy) -> bool {
    matches!(Spd::new([policy.clone()]), Err(SpdError::Nothing(_)))
}

/// The database and its model, and the numbers of the model's policies in its order.
#[derive(Clone, Default)]
struct Both {
    fast: Spd,
    model: LinearSpd,
    ids: Vec<PolicyId>,
    named: usize,
}

impl Both {
    fn insert(&mut self, at: usize, policy: Policy) {
        self.named += 1;
        let policy = Policy { name: self.named.to_string().into(), ..policy };
        let at = at % (self.ids.len() + 1);
        let after = at.checked_sub(1).map(|at| self.ids[at]);
        let before = self.ids.get(at).copied();
        let inserted = match before {
            None => self.fast.insert(policy.clone()),
            before => self.fast.insert_between(policy.clone(), after, before, 0),
        };
        match inserted {
            Ok(id) => {
                assert_eq!(self.model.insert(at, policy), Ok(()));
                self.ids.insert(at, id);
            }
            // That it really means nothing shows when keys are looked up.
            Err(SpdError::Nothing(_)) => {}
            // It is not found to mean nothing before there is a place for it.
            Err(SpdError::NoPlace) if means_nothing(&policy) => {}
            Err(SpdError::NoPlace) => {
                // Nor is it found to be there already.
                if self.model.insert(at, policy).is_err() {
                    return;
                }
                let all = self.model.policies().iter().map(|policy| Policy::clone(policy));
                self.fast = Spd::new(all).unwrap();
                self.ids = (0..self.model.policies().len() as u32).map(PolicyId).collect();
            }
            Err(error) => assert_eq!(self.model.insert(at, policy), Err(error)),
        }
    }

    fn remove(&mut self, at: usize) {
        if !self.ids.is_empty() {
            let at = at % self.ids.len();
            assert_eq!(
                self.fast.remove(self.ids.remove(at)).unwrap().name,
                self.model.remove(at).unwrap().name
            );
        }
    }

    /// Looks all keys up in all ways.
    fn compare(&self, keys: &[FlowKey], caches: &mut [FlowCache; 2]) {
        assert_eq!(self.fast.len(), self.ids.len());
        for (direction, cache) in [Direction::Outbound, Direction::Inbound].into_iter().zip(caches)
        {
            let nothing = Decision { id: PolicyId(u32::MAX), action: PolicyAction::Bypass };
            let mut burst = vec![Some(nothing); keys.len()];
            self.fast.lookup_burst(direction, keys, cache, &mut burst);
            for (key, found) in keys.iter().zip(burst) {
                assert_eq!(found, self.fast.lookup(direction, key));
                let name = found.and_then(|found| self.fast.policy(found.id)).map(|p| &p.name);
                let model = self.model.lookup(direction, key).map(|policy| &policy.name);
                assert_eq!(name, model, "{key:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn the_index_the_cache_and_the_list_agree(
        steps in prop::collection::vec(any_step(), 0..60),
        keys in prop::collection::vec(any_key(), 1..40),
    ) {
        // So small that flows push each other out.
        let mut caches = [FlowCache::new(16, 16), FlowCache::new(16, 16)];
        let (mut both, mut kept) = (Both::default(), Vec::new());
        for step in steps {
            match step {
                Step::Insert(at, policy) => both.insert(at, policy),
                Step::Remove(at) => both.remove(at),
                Step::Keep => {
                    both.compare(&keys, &mut caches);
                    kept.push(both.clone());
                }
            }
        }
        both.compare(&keys, &mut caches);
        // Whatever came later, clones are as they were.
        for both in &kept {
            both.compare(&keys, &mut caches);
        }
    }

    #[test]
    fn long_bursts_of_few_flows_are_answered_too(
        policies in prop::collection::vec(any_policy(), 1..10),
        flows in prop::collection::vec(any_key(), 1..6),
        picks in prop::collection::vec(any::<usize>(), 0..700),
    ) {
        let mut both = Both::default();
        policies.into_iter().for_each(|policy| both.insert(usize::MAX, policy));
        let keys: Vec<_> = picks.iter().map(|pick| flows[pick % flows.len()]).collect();
        let mut caches = [FlowCache::new(0, 0), FlowCache::default()];
        both.compare(&keys, &mut caches);
        both.compare(&keys, &mut caches);
    }

    #[test]
    fn policies_without_a_place_mean_no_packet(policy in any_policy(), keys in prop::collection::vec(any_key(), 50)) {
        if let Err(SpdError::Nothing(_)) = Spd::default().insert(policy.clone()) {
            for key in keys {
                prop_assert!(!policy.selector.matches(policy.direction, &key));
            }
        }
    }
}
