//! Requests that fail at each of their steps: nothing is left behind.

use convoy_ipsec::sa::{InboundSpec, SaSlot, SaSpec};
use convoy_ipsec::spd;
use convoy_xfrm::{Action, FlushPolicy, Policy, PolicyInfo, Sa};

use super::keep_tests::{dump, life};
use super::tests::*;
use super::transaction::{ChangedSa, NewPolicy, NewSa};
use super::*;
use crate::xfrm::keep::memory::Memory;
use crate::xfrm::plane::Checked;

/// All that anybody can see of a gateway: what daemons do, what workers do, and what the next life finds.
#[derive(Debug, PartialEq)]
struct Seen {
    databases: Vec<Vec<u8>>,
    generation: u64,
    sas: (usize, usize),
    policies: usize,
    journal: Vec<Vec<u8>>,
}

fn seen(kernel: &mut Gateway, memory: &Memory) -> Seen {
    let picture = kernel.writer.current();
    let mut journal: Vec<_> = memory.records().0.into_iter().map(|(_, bytes)| bytes).collect();
    journal.sort_unstable();
    Seen {
        databases: dump(kernel),
        generation: kernel.writer.published().generation(),
        sas: picture.len(),
        policies: picture.spd().len(),
        journal,
    }
}

/// A gateway that keeps what it has, with SAs, larval ones among them, and policies.
fn busy(memory: &Memory) -> Gateway {
    let (mut kernel, ..) = life(memory);
    add(&mut kernel, outbound(1, 1)).unwrap();
    add(&mut kernel, inbound(2, 2)).unwrap();
    ask(&mut kernel, Request::AllocSpi(Box::new(allocation(256))), 0).unwrap();
    ask(&mut kernel, Request::AllocSpi(Box::new(allocation(257))), 0).unwrap();
    put(&mut kernel, policy(PolicyDirection::Out, Action::Allow, true)).unwrap();
    put(&mut kernel, policy(PolicyDirection::In, Action::Allow, true)).unwrap();
    kernel
}

fn checked(kernel: &Gateway, sa: &Sa) -> Checked {
    kernel.check(sa, kernel.course(sa, false)).unwrap()
}

/// Does so many steps of an SA that comes, and drops it.
fn drop_sa(kernel: &mut Gateway, sa: Sa, steps: usize) {
    let checked = checked(kernel, &sa);
    let is_larval = kernel.associations.twin(&sa).is_ok();
    let Gateway { kernel, writer } = kernel;
    let new = NewSa::new(kernel, writer);
    if steps == 0 {
        return;
    }
    let placed = new.place(&sa, &checked, None, moment(0)).unwrap();
    if steps == 1 {
        return;
    }
    let at = moment(0).unix();
    let recorded = placed.record(|sas| match is_larval {
        true => sas.update(sa, at),
        false => sas.add(sa, at),
    });
    drop(recorded.unwrap());
}

#[test]
fn an_sa_that_is_dropped_after_any_step_leaves_nothing() {
    // A new one each way, and a larval one that gets its keys.
    let all: [fn() -> Sa; 3] = [|| outbound(3, 3), || inbound(4, 4), || inbound(256, 5)];
    for sa in all {
        for steps in 0..3 {
            let memory = Memory::default();
            let mut kernel = busy(&memory);
            let before = seen(&mut kernel, &memory);
            drop_sa(&mut kernel, sa(), steps);
            assert_eq!(seen(&mut kernel, &memory), before, "{:?} after {steps} steps", sa());
            let request = match kernel.associations.twin(&sa()) {
                Ok(_) => Request::UpdSa(Box::new(sa())),
                Err(_) => Request::NewSa(Box::new(sa())),
            };
            ask(&mut kernel, request, 0).unwrap();
            assert_eq!(dump(&mut life(&memory.killed()).0).len(), 5);
        }
    }
}

#[test]
fn a_change_that_is_dropped_after_any_step_leaves_nothing() {
    for steps in 0..2 {
        let memory = Memory::default();
        let mut kernel = busy(&memory);
        let before = seen(&mut kernel, &memory);
        let mut sa = outbound(1, 1);
        sa.info.limits.packets.hard = 9000;
        let Gateway { kernel: inner, writer } = &mut kernel;
        let changed = ChangedSa::record(inner, sa, moment(0)).unwrap();
        match steps {
            0 => drop(changed),
            _ => drop(changed.redraw(writer, moment(0)).unwrap()),
        }
        assert_eq!(seen(&mut kernel, &memory), before, "after {steps} steps");
    }
}

#[test]
fn a_policy_that_is_dropped_after_any_step_leaves_nothing() {
    let block = |policy: Policy| Policy {
        info: PolicyInfo { action: Action::Block, priority: 7, ..policy.info },
        ..policy
    };
    // One that replaces the oldest, and one that is new.
    let replaces = block(policy(PolicyDirection::Out, Action::Allow, true));
    let new = policy(PolicyDirection::Forward, Action::Allow, true);
    for policy in [replaces, new] {
        for steps in 0..3 {
            let memory = Memory::default();
            let mut kernel = busy(&memory);
            let before = seen(&mut kernel, &memory);
            let Gateway { kernel: inner, writer } = &mut kernel;
            let checked = NewPolicy::check(inner, &policy).unwrap();
            let insertion = Insertion::Replace;
            match steps {
                0 => drop(checked),
                1 => drop(checked.record(policy.clone(), insertion, 1).unwrap()),
                _ => {
                    let recorded = checked.record(policy.clone(), insertion, 1).unwrap();
                    drop(recorded.place(writer).unwrap());
                }
            }
            assert_eq!(seen(&mut kernel, &memory), before, "{policy:?} after {steps} steps");
            put(&mut kernel, policy.clone()).unwrap();
            ask(&mut kernel, Request::FlushPolicy(FlushPolicy::default()), 0).unwrap();
            let after = seen(&mut kernel, &memory);
            assert_eq!(
                (after.policies, after.databases.len()),
                (0, 4),
                "nothing stays with workers"
            );
        }
    }
}

/// Numbers can be written and the message cannot: the SA had its place, and its entry in the database.
#[test]
fn what_the_journal_refuses_is_where_it_was() {
    let memory = Memory::default();
    let mut kernel = busy(&memory);
    let before = seen(&mut kernel, &memory);
    let requests = || {
        let mut limited = outbound(1, 1);
        limited.info.limits.packets.hard = 9000;
        let out = policy(PolicyDirection::Out, Action::Allow, true);
        let blocking = Policy { info: PolicyInfo { action: Action::Block, ..out.info }, ..out };
        let forward = policy(PolicyDirection::Forward, Action::Allow, true);
        [
            Request::NewSa(Box::new(outbound(3, 3))),
            Request::NewSa(Box::new(inbound(4, 4))),
            Request::UpdSa(Box::new(limited)),
            Request::UpdSa(Box::new(inbound(256, 5))),
            Request::UpdPolicy(Box::new(blocking)),
            Request::NewPolicy(Box::new(forward)),
        ]
    };
    memory.fill_up_journal();
    for request in requests() {
        let what = format!("{request:?}");
        let refusal = ask(&mut kernel, request, 0).unwrap_err();
        assert_eq!(refusal.errno, Errno::ENOMEM, "{what}");
        assert_eq!(seen(&mut kernel, &memory), before, "{what}");
    }
    memory.fill_up(false);
    for request in requests() {
        ask(&mut kernel, request, 0).unwrap();
    }
    assert_eq!((kernel.writer.current().len(), kernel.counts().0), ((2, 3), 6));
}

/// Of an SA of the site file that has the packets: it is found only when the SA has its place.
#[test]
fn an_sa_whose_packets_another_has_leaves_its_place() {
    let memory = Memory::default();
    let mut kernel = busy(&memory);
    let spec = inbounds(kernel.writer.published()).remove(0);
    let spi = convoy_wire::Spi::new(9).unwrap();
    let common = SaSpec { spi, ..spec.sa.clone() };
    let of_site = InboundSpec { sa: common, ..InboundSpec::clone(&spec) };
    let slot = SaSlot(500);
    let mut draft = kernel.writer.draft();
    draft.add_inbound(slot, Arc::new(of_site)).unwrap();
    draft.commit();
    let before = seen(&mut kernel, &memory);
    let refusal = add(&mut kernel, inbound(9, 9)).unwrap_err();
    assert_eq!(refusal.errno, Errno::EEXIST);
    assert_eq!(seen(&mut kernel, &memory), before);
    let mut draft = kernel.writer.draft();
    draft.remove_inbound(slot).unwrap();
    draft.commit();
    add(&mut kernel, inbound(9, 9)).unwrap();
    let taken = kernel.writer.current().inbound_for(spi, HERE.into(), convoy_wire::Protocol::ESP);
    assert_eq!(taken.map(|owner| owner.slot), Some(SaSlot(1)), "the slot is free again");
}

/// Of a policy of the site file that has the place: the database of daemons had the policy by then.
#[test]
fn a_policy_whose_place_another_has_is_refused_and_the_one_before_stays() {
    let memory = Memory::default();
    let mut kernel = busy(&memory);
    let out = policy(PolicyDirection::Out, Action::Allow, true);
    // As the daemon's policy with priority 7 would be.
    let picture = kernel.writer.current();
    let is_outbound = |policy: &&Arc<spd::Policy>| policy.direction == Direction::Outbound;
    let of_daemon = picture.spd().policies().map(|(_, policy)| policy).find(is_outbound).unwrap();
    let of_daemon = spd::Policy::clone(of_daemon);
    let of_site = spd::Policy { name: "site".into(), priority: 7, ..of_daemon };
    kernel.writer.change(|draft| draft.spd_mut().insert(of_site)).unwrap();
    let before = seen(&mut kernel, &memory);
    let moved = Policy { info: PolicyInfo { priority: 7, ..out.info }, ..out.clone() };
    let refusal = put(&mut kernel, moved).unwrap_err();
    assert_eq!(refusal.errno, Errno::EEXIST, "{refusal:?}");
    assert_eq!(seen(&mut kernel, &memory), before);
    ask(&mut kernel, Request::DelPolicy(Box::new(name_of(&out))), 0).unwrap();
    assert_eq!(kernel.writer.current().spd().len(), before.policies - 1);
}
