//! What is claimed for policies, and that nothing that one protects gets out.

use std::net::{IpAddr, Ipv4Addr};

use super::*;

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn policy(local: &str, remote: &str, priority: u32, cover: Cover) -> Covered {
    let (local, remote) = (prefix(local), prefix(remote));
    Covered { is_inward: false, local, remote, priority, is_whole: true, cover }
}

fn claim(covered: &Covered) -> Vec<Claim> {
    let claim = |network, treatment| Claim { network: net(network).unwrap(), treatment };
    match covered.cover {
        Cover::Bypass => vec![claim(covered.remote, Treatment::Bypassed)],
        _ => [
            Some(claim(covered.local, Treatment::Local)),
            covered.is_whole.then(|| claim(covered.local, Treatment::Guarded)),
            Some(claim(covered.remote, Treatment::Protected { source: None })),
        ]
        .into_iter()
        .flatten()
        .collect(),
    }
}

/// With the policies `in` that daemons make beside those `out`.
fn mutual(policies: &[Covered]) -> Vec<Covered> {
    let passing = policies.iter().filter(|policy| policy.cover == Cover::Bypass);
    let inward = passing.map(|policy| Covered { is_inward: true, ..*policy });
    policies.iter().copied().chain(inward).collect()
}

/// A fence that follows claims.
struct FenceAfter {
    claims: Claims,
    all: Vec<Claim>,
}

/// Whose packets are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Out,
    FromTun,
    In,
}

impl FenceAfter {
    fn new(takes_exceptions: bool) -> Self {
        Self { claims: Claims::new(takes_exceptions), all: Vec::new() }
    }

    fn follow(&mut self, came: &[Covered], went: &[Covered]) {
        let change = self.claims.follow(came, went, claim);
        self.change(change);
    }

    fn change(&mut self, Change { add, remove }: Change) {
        self.all.extend(add);
        for gone in remove {
            let at = self.all.iter().position(|claim| *claim == gone).unwrap();
            self.all.swap_remove(at);
        }
    }

    /// Whether an address is closed, by the longest prefix that says something.
    fn is_closed(&self, address: IpAddr, way: Way) -> bool {
        let says = |claim: &&Claim| match claim.treatment {
            Treatment::Guarded => way == Way::In,
            Treatment::Local => way == Way::FromTun,
            _ => way != Way::In,
        };
        let all = self.all.iter().filter(says).filter(|claim| claim.network.contains(&address));
        let is_closed = |claim: &Claim| {
            matches!(claim.treatment, Treatment::Protected { .. } | Treatment::Guarded)
        };
        all.map(|claim| (claim.network.prefix_len(), is_closed(claim))).max().is_some_and(|m| m.1)
    }

    /// Whether packets get through in clear.
    fn passes(&self, from: IpAddr, to: IpAddr, way: Way) -> bool {
        let Exceptions { open, admitted, withheld } = self.claims.exceptions();
        let has = |pairs: &BTreeSet<Pair>| {
            pairs.iter().any(|pair| pair.from.contains(&from) && pair.to.contains(&to))
        };
        match way {
            Way::Out => has(&open) || !self.is_closed(to, way),
            Way::FromTun => !has(&withheld) && !self.is_closed(to, way),
            Way::In => {
                has(&admitted) || !self.is_closed(from, Way::Out) || !self.is_closed(to, way)
            }
        }
    }
}

/// What is open and reachable out of tunnels, and what is closed, after these came and those went.
fn state(came: &[Covered], went: &[Covered]) -> (Vec<String>, Vec<String>) {
    let mut fence = FenceAfter::new(false);
    fence.follow(&mutual(came), &[]);
    fence.follow(&[], &mutual(went));
    let named = |wanted: fn(&Treatment) -> bool| {
        let found = fence.all.iter().filter(|claim| wanted(&claim.treatment));
        let mut names: Vec<_> = found.map(|claim| claim.network.to_string()).collect();
        names.sort();
        names.dedup();
        names
    };
    let open = named(|treatment| *treatment == Treatment::Bypassed);
    let local = named(|treatment| *treatment == Treatment::Local);
    (open, local)
}

#[test]
fn a_bypass_opens_only_what_nobody_else_protects() {
    let protects = |local, priority| policy(local, "10.0.0.0/8", priority, Cover::Protect);
    let bypass = |local, priority| policy(local, "10.1.0.0/16", priority, Cover::Bypass);
    let open = |others: &[Covered], bypass| !state(&[others, &[bypass]].concat(), &[]).0.is_empty();
    assert!(open(&[], bypass("192.168.7.0/24", 1)));
    assert!(open(&[protects("192.168.7.0/24", 9)], bypass("192.168.7.0/24", 1)));
    assert!(open(&[protects("192.168.7.0/24", 9)], bypass("0.0.0.0/0", 1)));
    // Of sources that the bypass does not name.
    assert!(!open(&[protects("192.168.0.0/16", 9)], bypass("192.168.7.0/24", 1)));
    assert!(!open(&[protects("172.16.0.0/24", 9)], bypass("192.168.7.0/24", 1)));
    // Of a higher rank.
    assert!(!open(&[protects("192.168.7.0/24", 1)], bypass("192.168.7.0/24", 9)));
    assert!(!open(&[protects("192.168.7.0/24", 1)], bypass("192.168.7.0/24", 1)));
    let partial = Covered { is_whole: false, ..bypass("192.168.7.0/24", 1) };
    assert!(!open(&[], partial));
}

#[test]
fn what_is_open_follows_policies_that_come_and_go() {
    let protects = policy("192.168.0.0/16", "10.0.0.0/8", 9, Cover::Protect);
    let bypass = policy("192.168.7.0/24", "10.1.0.0/16", 1, Cover::Bypass);
    assert_eq!(state(&[bypass, protects], &[protects]).0, ["10.1.0.0/16"]);
    assert!(state(&[bypass, protects, protects], &[protects]).0.is_empty());
    assert_eq!(state(&[bypass, protects], &[protects, bypass]), (vec![], vec![]));
    assert!(state(&[bypass], &[bypass, bypass]).0.is_empty());
}

/// A hub: what comes out of one tunnel for a host behind another goes into that.
#[test]
fn a_network_that_others_protect_is_not_reached_out_of_tunnels() {
    let to_a = policy("10.0.0.0/8", "10.2.0.0/16", 9, Cover::Protect);
    let to_b = policy("10.2.5.0/24", "10.3.0.0/16", 9, Cover::Protect);
    assert_eq!(state(&[to_a, to_b], &[]).1, ["10.0.0.0/8"]);
    assert_eq!(state(&[to_b, to_a], &[]).1, ["10.0.0.0/8"]);
    assert_eq!(state(&[to_b, to_a], &[to_a]).1, ["10.2.5.0/24"]);
    // A road warrior's gateway: everything is protected, and the network behind it is reached.
    let all = policy("10.2.5.0/24", "0.0.0.0/0", 9, Cover::Protect);
    assert_eq!(state(&[all], &[]).1, ["10.2.5.0/24"]);
    let two = policy("10.9.0.0/16", "0.0.0.0/0", 9, Cover::Protect);
    assert_eq!(state(&[all, two], &[]).1, ["10.2.5.0/24", "10.9.0.0/16"]);
}

/// The exceptions of these policies: what is open, and what is withheld.
fn exceptions(came: &[Covered], went: &[Covered]) -> [Vec<String>; 2] {
    let mut claims = Claims::new(true);
    claims.follow(&mutual(came), &[], claim);
    claims.follow(&[], &mutual(went), claim);
    let Exceptions { open, withheld, .. } = claims.exceptions();
    [open, withheld]
        .map(|pairs| pairs.iter().map(|pair| format!("{} to {}", pair.from, pair.to)).collect())
}

/// For some of those behind one tunnel a network is behind another.
#[test]
fn what_others_protect_on_the_way_to_a_network_is_withheld() {
    let to_b = policy("10.2.5.0/24", "10.3.0.0/16", 9, Cover::Protect);
    let some = policy("10.3.7.0/24", "10.2.0.0/16", 9, Cover::Protect);
    let both = ["10.2.5.0/24 to 10.3.0.0/16", "10.3.7.0/24 to 10.2.0.0/16"];
    let nothing = [vec![], Vec::<String>::new()];
    for policies in [[to_b, some], [some, to_b]] {
        assert_eq!(exceptions(&policies, &[]), [vec![], both.map(str::to_owned).to_vec()]);
        assert_eq!(exceptions(&policies, &[some]), nothing);
    }
    // A network that one has opened is reached by all: who opened it does not matter.
    let lan = policy("10.2.5.0/24", "10.4.0.0/16", 9, Cover::Protect);
    let relayed = policy("10.2.0.0/16", "10.3.0.0/16", 9, Cover::Protect);
    let on_the_way = policy("10.3.0.0/16", "10.2.0.0/16", 9, Cover::Protect);
    let found = exceptions(&[lan, relayed, on_the_way], &[]);
    assert_eq!(found[1], ["10.3.0.0/16 to 10.2.0.0/16"]);
    assert_eq!(exceptions(&[lan, relayed, on_the_way], &[lan]), nothing);
    let everything = |local| policy(local, "0.0.0.0/0", 9, Cover::Protect);
    let two = [everything("10.1.0.0/16"), everything("10.9.0.0/16")];
    assert_eq!(exceptions(&two, &[])[1], ["10.1.0.0/16 to 0.0.0.0/0", "10.9.0.0/16 to 0.0.0.0/0"]);
}

#[test]
fn what_cannot_be_withheld_is_not_reached() {
    let to_b = policy("10.2.5.0/24", "10.3.0.0/16", 9, Cover::Protect);
    let some = policy("10.3.7.0/24", "10.2.0.0/16", 9, Cover::Protect);
    let nothing = Vec::<String>::new();
    assert_eq!(state(&[to_b, some], &[]).1, nothing);
    // Two tunnels for everything, and a third one to what is behind the first.
    let all = policy("10.1.0.0/16", "0.0.0.0/0", 9, Cover::Protect);
    let two = policy("10.9.0.0/16", "0.0.0.0/0", 9, Cover::Protect);
    let third = policy("10.1.0.0/16", "10.9.4.0/24", 9, Cover::Protect);
    assert_eq!(state(&[all, two], &[]).1, ["10.1.0.0/16", "10.9.0.0/16"]);
    assert_eq!(state(&[all, two, third], &[]).1, nothing);
    assert_eq!(state(&[all, two, third], &[third]).1, ["10.1.0.0/16", "10.9.0.0/16"]);
    // As many as there are, and one more; then there is room again.
    let many = |of: usize| -> Vec<Covered> {
        let far = |n| format!("10.{}.{}.0/24", 3 + n / 250, n % 250);
        (0..of).map(|n| policy(&far(n), "10.2.0.0/16", 9, Cover::Protect)).collect()
    };
    let local = policy("10.2.5.0/24", "10.99.0.0/16", 9, Cover::Protect);
    let mut fence = FenceAfter::new(true);
    let is_reached = |fence: &FenceAfter| fence.claims.all[&local].claims.len() == 3;
    fence.follow(&many(MOST_WITHHELD), &[]);
    fence.follow(&[local], &[]);
    assert!(is_reached(&fence));
    let more = many(MOST_WITHHELD + 1);
    fence.follow(&more[MOST_WITHHELD..], &[]);
    assert!(!is_reached(&fence));
    assert_eq!(fence.claims.exceptions().withheld.len(), 0);
    assert_eq!(fence.claims.unreached().collect::<Vec<_>>(), [prefix("10.2.0.0/16")]);
    fence.follow(&[], &more[..1]);
    assert!(is_reached(&fence));
    assert_eq!(fence.claims.exceptions().withheld.len(), MOST_WITHHELD);
    // The fence takes no exceptions any more, and takes them again.
    let none = fence.claims.take_exceptions(false, claim);
    fence.change(none);
    assert_eq!(fence.claims.exceptions(), Exceptions::default());
    assert!(!is_reached(&fence));
    let again = fence.claims.take_exceptions(true, claim);
    fence.change(again);
    assert!(is_reached(&fence));
}

/// A road warrior whose tunnel is for one address, and its own network.
#[test]
fn a_bypass_beside_others_opens_what_is_its_own() {
    let all = policy("10.9.0.5/32", "0.0.0.0/0", 9, Cover::Protect);
    let lan = |priority| policy("10.1.0.0/24", "10.1.0.0/24", priority, Cover::Bypass);
    let opens = |policies: &[Covered], went: &[Covered]| -> Vec<String> {
        let opens = exceptions(policies, went);
        assert_eq!(state(policies, went).0, [""; 0]);
        opens[0].clone()
    };
    let own = ["10.1.0.0/24 to 10.1.0.0/24"];
    assert_eq!(opens(&[all, lan(1)], &[]), own);
    assert_eq!(opens(&[lan(1), all], &[]), own);
    // Of no higher rank, but nobody else's.
    assert_eq!(opens(&[all, lan(9)], &[]), own);
    // Some of its own is protected, by one of a lower rank, and a higher one.
    let wide = |priority| policy("10.0.0.0/8", "0.0.0.0/0", priority, Cover::Protect);
    assert_eq!(opens(&[wide(9), lan(1)], &[]), own);
    assert_eq!(opens(&[wide(1), lan(1)], &[]), [""; 0]);
    assert_eq!(opens(&[wide(9), lan(1), wide(1)], &[]), [""; 0]);
    assert_eq!(opens(&[wide(9), lan(1), wide(1)], &[wide(1)]), own);
    assert_eq!(opens(&[wide(9), lan(1)], &[lan(1)]), [""; 0]);
    let partial = Covered { is_whole: false, ..lan(1) };
    assert_eq!(opens(&[all, partial], &[]), [""; 0]);
    // Answers come back into the network, unless they are protected.
    let beyond = policy("10.1.0.0/24", "192.0.2.0/24", 1, Cover::Bypass);
    let both = ["10.1.0.0/24 to 192.0.2.0/24", "192.0.2.0/24 to 10.1.0.0/24"];
    assert_eq!(opens(&[all, beyond], &[]), both);
    assert_eq!(exceptions(&[beyond, all], &[all])[0], [""; 0]);
    let back = policy("192.0.2.9/32", "10.1.0.0/16", 9, Cover::Protect);
    assert_eq!(opens(&[all, beyond, back], &[]), both[..1]);
    assert_eq!(opens(&[all, back, beyond], &[back]), both);
    let from_lan = policy("10.1.0.0/24", "0.0.0.0/0", 9, Cover::Protect);
    assert_eq!(exceptions(&[from_lan, beyond], &[])[0], both[1..]);
    assert_eq!(exceptions(&[beyond], &[])[0], [""; 0]);
    let bypasses =
        (0..40).map(|n| policy("10.1.0.0/24", &format!("10.7.{n}.0/24"), 1, Cover::Bypass));
    let many: Vec<_> = bypasses.chain([all]).collect();
    assert_eq!(opens(&many, &[]).len(), MOST_OPEN);
    // Who found no room gets what others leave.
    assert_eq!(opens(&many, &many[..5]).len(), MOST_OPEN);
    assert_eq!(opens(&many, &many[..25]).len(), 30);
}

#[test]
fn what_passes_outwards_comes_in_only_by_a_policy_of_its_own() {
    let all = policy("10.1.0.0/24", "0.0.0.0/0", 9, Cover::Protect);
    let out = policy("10.1.0.0/24", "192.0.2.0/24", 1, Cover::Bypass);
    let inward = Covered { is_inward: true, ..out };
    let ends: [IpAddr; 2] = ["10.1.0.5".parse().unwrap(), "192.0.2.7".parse().unwrap()];
    let passes = |policies: &[Covered]| {
        let mut fence = FenceAfter::new(true);
        fence.follow(policies, &[]);
        [fence.passes(ends[0], ends[1], Way::Out), fence.passes(ends[1], ends[0], Way::In)]
    };
    assert_eq!(passes(&[all]), [false, false]);
    assert_eq!(passes(&[all, out]), [true, false]);
    assert_eq!(passes(&[all, inward]), [false, true]);
    for policies in [[all, out, inward], [inward, out, all], [out, all, inward]] {
        assert_eq!(passes(&policies), [true, true]);
    }
    let of_lower_rank = Covered { priority: 12, ..inward };
    assert_eq!(passes(&[all, out, of_lower_rank]), [true, false]);
}

/// What becomes of packets between two addresses by the policies themselves, one by one: whether some of
/// them are protected.
fn is_protected(policies: &[Covered], from: IpAddr, to: IpAddr, is_inward: bool) -> bool {
    // What others `in` protect is what those `out` do, the other way round.
    let (near, far) = if is_inward { (to, from) } else { (from, to) };
    let decides = |is_part: bool| {
        let found = policies.iter().filter(|policy| {
            policy.local.contains(near)
                && policy.remote.contains(far)
                && (policy.is_whole || is_part && !is_inward)
                && (policy.cover != Cover::Bypass || policy.is_inward == is_inward)
        });
        // Of the same rank the older one decides, and either may be.
        found.min_by_key(|policy| (policy.priority, policy.cover == Cover::Bypass))
    };
    [true, false].into_iter().filter_map(decides).any(|policy| policy.cover != Cover::Bypass)
}

/// The promise itself, over some thousand sets of policies that come and go in a small world.
#[test]
fn nothing_that_a_policy_protects_gets_through_in_clear() {
    let mut state = 1_u64;
    let mut random = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let place = |n: u64| IpAddr::from(Ipv4Addr::from_bits(0x0a00_0000 + u32::try_from(n).unwrap()));
    let places: Vec<_> = (0..9).map(place).collect();
    let mut passed = 0_u64;
    for run in 0..3000 {
        let mut takes_exceptions = run % 4 > 0;
        let mut fence = FenceAfter::new(takes_exceptions);
        let mut there: Vec<Covered> = Vec::new();
        for _ in 0..12 {
            let mut came = Vec::new();
            let mut went = Vec::new();
            if there.is_empty() || random(3) > 0 {
                let mut network = || {
                    let len = [0, 29, 30, 31, 32][random(5) as usize];
                    Prefix::containing(place(random(8)), len).unwrap()
                };
                let (local, remote) = (network(), network());
                let cover = [Cover::Protect, Cover::Protect, Cover::Discard, Cover::Bypass];
                let cover = cover[random(4) as usize];
                let is_inward = cover == Cover::Bypass && random(2) > 0;
                let (priority, is_whole) = (random(3) as u32, random(4) > 0);
                let new = Covered { is_inward, local, remote, priority, is_whole, cover };
                came.push(new);
                if cover == Cover::Bypass && random(2) > 0 {
                    came.push(Covered { is_inward: !is_inward, ..new });
                }
            } else {
                went.push(there.swap_remove(random(there.len() as u64) as usize));
            }
            if random(20) == 0 {
                takes_exceptions = !takes_exceptions;
                let change = fence.claims.take_exceptions(takes_exceptions, claim);
                fence.change(change);
            }
            fence.follow(&came, &went);
            there.extend(came);
            for (from, to) in
                places.iter().flat_map(|from| places.iter().map(move |to| (*from, *to)))
            {
                for way in [Way::Out, Way::FromTun, Way::In] {
                    // Without exceptions those count who are said to be behind a tunnel by name.
                    let named = |p: &Covered| p.remote.len() > 0 && p.remote.contains(from);
                    let is_exempt = !takes_exceptions
                        && way == Way::FromTun
                        && !there.iter().any(|p| p.cover != Cover::Bypass && named(p));
                    let passes = fence.passes(from, to, way);
                    let protected = is_protected(&there, from, to, way == Way::In);
                    passed += u64::from(passes && !there.is_empty());
                    assert!(
                        !passes || !protected || is_exempt,
                        "{from} to {to} {way:?}: {there:#?} {:?} {:?}",
                        fence.all,
                        fence.claims.exceptions()
                    );
                }
            }
        }
    }
    assert!(passed > 100_000, "{passed}");
}
