//! Policies that are changed, and changes that are refused.

use convoy_ipsec::selector::Direction;
use convoy_ipsec::spd::{self, PolicyAction};
use convoy_xfrm::{Action, Errno, PolicyDirection, PortMask};

use super::tests::{add, decides, flow, kernel, outbound, policy, put};

/// A site has a policy of the same packets and this priority.
const TAKEN: u32 = 2000;

#[test]
fn a_change_that_is_refused_leaves_workers_what_they_have() {
    let (mut kernel, published) = kernel();
    add(&mut kernel, outbound(1, 1)).unwrap();
    put(&mut kernel, policy(PolicyDirection::Out, Action::Allow, true)).unwrap();
    let decided = || {
        let snapshot = published.current();
        snapshot.spd().lookup(Direction::Outbound, &flow(true)).unwrap()
    };
    let selector = published.current().spd().policy(decided().id).unwrap().selector;
    let site = spd::Policy {
        name: "site".into(),
        priority: TAKEN,
        direction: Direction::Outbound,
        selector,
        action: PolicyAction::Discard,
    };
    kernel.writer.change(|draft| draft.spd_mut().insert(site)).unwrap();
    let (before, generation) = (decided(), published.generation());
    let mut other = policy(PolicyDirection::Out, Action::Block, false);
    other.info.priority = TAKEN;
    let refusal = put(&mut kernel, other.clone()).unwrap_err();
    assert_eq!(refusal.errno, Errno::EEXIST, "{refusal:?}");
    assert_eq!(published.generation(), generation, "nothing was published");
    assert_eq!(decided().id, before.id, "counts and hints of the policy stay");
    // The SAs of the policy that stays are still its own, and the next change finds it.
    assert!(matches!(decides(&published, Direction::Outbound), Some(PolicyAction::Protect { .. })));
    let PolicyAction::Protect { reqid } = before.action else { panic!("{before:?}") };
    assert!(published.current().outbound_for(reqid).is_some());
    other.info.priority = TAKEN + 1;
    put(&mut kernel, other).unwrap();
    let snapshot = published.current();
    assert_eq!(snapshot.spd().policies().count(), 2, "the site's, and one of the daemon");
}

/// Libreswan has such policies for Neighbour Discovery.
#[test]
fn the_log_names_protocol_and_action_of_a_policy() {
    let mut narrow = policy(PolicyDirection::In, Action::Allow, false);
    let told = |policy: &convoy_xfrm::Policy| super::policies::describe(policy).to_string();
    let all = told(&narrow);
    assert!(all.starts_with("policy in ") && all.contains(", bypass (index "), "{all}");
    let exactly = |value| PortMask { value, mask: u16::MAX };
    (narrow.info.selector.protocol, narrow.info.selector.source_port) = (58, exactly(135));
    assert!(told(&narrow).contains(" icmpv6 type 135, bypass ("), "{}", told(&narrow));
    let mut tcp = policy(PolicyDirection::Out, Action::Allow, true);
    (tcp.info.selector.protocol, tcp.info.selector.destination_port) = (6, exactly(443));
    assert!(told(&tcp).contains(" tcp to port 443, protect ("), "{}", told(&tcp));
    tcp.info.action = Action::Block;
    assert!(told(&tcp).contains(", discard ("), "{}", told(&tcp));
}
