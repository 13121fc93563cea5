//! The rule beside one that searches all policies.

use std::net::IpAddr;

use convoy_wire::{Ports, Protocol};
use proptest::prelude::*;

use super::super::linear::LinearSpd;
use super::super::{FlowCache, Spd};
use super::*;
use crate::sa::ReqId;
use crate::selector::AddressRange;

/// Sixteen addresses, and the networks that they make up.
fn address(n: u8) -> IpAddr {
    [10, 0, 0, n % 16].into()
}

fn network() -> impl Strategy<Value = Prefix> {
    let lengths = prop_oneof![Just(0_u8), 28_u8..=32];
    (lengths, 0_u8..16).prop_map(|(len, n)| Prefix::containing(address(n), len).unwrap())
}

fn side() -> impl Strategy<Value = AddressSelector> {
    let range = (0_u8..16, 0_u8..16).prop_map(|(a, b)| {
        let range = AddressRange::new(address(a.min(b)), address(a.max(b)));
        AddressSelector::Range(range.unwrap())
    });
    prop_oneof![6 => network().prop_map(AddressSelector::from), 1 => range, 1 => Just(AddressSelector::Any)]
}

fn policies() -> impl Strategy<Value = Vec<Policy>> {
    let action = prop_oneof![
        4 => Just(PolicyAction::Protect { reqid: ReqId(1) }),
        1 => Just(PolicyAction::Bypass),
        1 => Just(PolicyAction::Discard),
    ];
    let direction = prop_oneof![Just(Direction::Outbound), Just(Direction::Inbound)];
    let one = (side(), side(), action, direction, 0_u32..4);
    let one = one.prop_map(|(local, remote, action, direction, priority)| Policy {
        name: "p".into(),
        priority,
        direction,
        selector: Selector { local, remote, ..Selector::default() },
        action,
    });
    prop::collection::vec(one, 0..12)
}

fn range(side: &AddressSelector) -> (IpAddr, IpAddr) {
    match side {
        AddressSelector::Any => ([0; 4].into(), [255; 4].into()),
        AddressSelector::Range(range) => (range.first(), range.last()),
    }
}

fn has((first, last): (IpAddr, IpAddr), address: IpAddr) -> bool {
    first <= address && address <= last
}

fn size((first, last): (IpAddr, IpAddr)) -> u32 {
    let [IpAddr::V4(first), IpAddr::V4(last)] = [first, last] else {
        panic!("of the other version")
    };
    u32::from(last) - u32::from(first)
}

fn is_less(one: (IpAddr, IpAddr), other: (IpAddr, IpAddr)) -> bool {
    size(one) < size(other)
}

fn overlap(one: (IpAddr, IpAddr), other: (IpAddr, IpAddr)) -> bool {
    one.0 <= other.1 && other.0 <= one.1
}

fn net(prefix: &Prefix) -> (IpAddr, IpAddr) {
    (prefix.addr(), prefix.last())
}

/// Answer that the words at the top of the module give.
fn model(spd: &LinearSpd, networks: &KnownNetworks, flow: &FlowKey) -> bool {
    let Some(found) = spd.lookup(Direction::Outbound, flow) else { return false };
    let protects = |policy: &Policy| matches!(policy.action, PolicyAction::Protect { .. });
    let (to, local, remote) =
        (flow.dst_addr(), range(&found.selector.local), range(&found.selector.remote));
    let is_own = networks
        .own
        .iter()
        .any(|own| net(own) == (to, to) || has(net(own), to) && is_less(net(own), remote));
    let is_martian = networks.own.iter().any(|own| net(own) == (flow.src_addr(), flow.src_addr()));
    let outward = |p: &&Policy| p.direction == Direction::Outbound && protects(p);
    let protecting = || spd.policies().iter().map(|p| &**p).filter(outward);
    let is_aimed_at = |local| {
        let remotes = protecting().map(|policy| range(&policy.selector.remote));
        remotes.filter(|remote| has(*remote, to)).any(|remote| !is_less(local, remote))
    };
    let is_beside = protecting().any(|policy| {
        let [its, other] = [&policy.selector.local, &policy.selector.remote].map(range);
        let counts = match protects(found) {
            true => overlap(its, other) && is_less(its, other),
            false => !is_aimed_at(its),
        };
        counts && has(its, to) && is_less(its, remote)
    });
    let overlap = overlap(local, remote);
    let is_far = match (overlap, networks.far.is_empty()) {
        (false, _) => true,
        (true, true) => !has(local, to) || is_less(remote, local),
        (true, false) => networks.far.iter().any(|far| has(net(far), to)),
    };
    found.action != PolicyAction::Bypass && !is_own && !is_martian && !is_beside && is_far
}

fn flows() -> impl Iterator<Item = FlowKey> {
    let pairs = (0..16).flat_map(|from| (0..16).map(move |to| (from, to)));
    let flow = |(from, to)| {
        FlowKey::new(address(from), address(to), Protocol::UDP, Ports::Known { src: 1, dst: 2 })
    };
    pairs.filter_map(flow)
}

fn check(spd: &Spd, model_spd: &LinearSpd, networks: &KnownNetworks, cache: &mut FlowCache) {
    let flows: Vec<_> = flows().collect();
    let expected: Vec<_> = flows.iter().map(|flow| model(model_spd, networks, flow)).collect();
    for (flow, expected) in flows.iter().zip(&expected) {
        assert_eq!(spd.goes_on(flow), *expected, "{flow:?}");
    }
    // Of a burst, only what is let in; the second time from the cache.
    for _ in 0..2 {
        let mut found = vec![None; flows.len()];
        let mut onward = vec![false; flows.len()];
        spd.lookup_inbound(&flows, cache, &mut found, |at| onward[at] = true);
        for (at, flow) in flows.iter().enumerate() {
            let decision = spd.lookup(Direction::Inbound, flow);
            let is_let_in =
                decision.is_some_and(|d| matches!(d.action, PolicyAction::Protect { .. }));
            assert_eq!(found[at], decision);
            assert_eq!(onward[at], is_let_in && expected[at], "{flow:?}");
        }
    }
}

proptest! {
    #[test]
    fn what_goes_on_is_what_the_words_say_while_policies_come_and_go(
        policies in policies(),
        own in prop::collection::vec(network(), 0..3),
        far in prop::collection::vec(network(), 0..2),
    ) {
        let networks = KnownNetworks { own, far, ..KnownNetworks::default() };
        let (mut spd, mut model) = (Spd::default(), LinearSpd::default());
        let mut cache = FlowCache::new(64, 4);
        let mut ids = Vec::new();
        for policy in policies {
            if let Ok(id) = spd.insert(policy.clone()) {
                model.insert(usize::MAX, policy).unwrap();
                ids.push(id);
            }
        }
        prop_assert!(flows().all(|flow| !spd.goes_on(&flow)), "nothing is known yet");
        spd.send_on(Some(&networks));
        check(&spd, &model, &networks, &mut cache);
        while let Some(id) = ids.pop() {
            spd.remove(id).unwrap();
            model.remove(ids.len()).unwrap();
            if ids.len() % 3 == 0 {
                check(&spd, &model, &networks, &mut cache);
            }
        }
        prop_assert!(spd.transit.locals.is_empty() && spd.transit.remotes.is_empty(), "what went is forgotten");
    }
}
