//! SAs and policies of interfaces: what has an identifier meets only what has the same one.

use std::sync::Mutex;

use convoy_ipsec::event::Event;
use convoy_ipsec::sa::{InterfaceId, ReqId};
use convoy_ipsec::spd::{PolicyAction, SpdId};
use convoy_wire::{FlowKey, Ports, Protocol};
use convoy_xfrm::{Action, DefaultAction, Defaults, Messages, Policy, PolicyDirection, Reply, Sa};

use super::tests::{
    Gateway, ask, client, inbound, kernel_at, kernel_with, moment, name_of, outbound, policy,
};
use super::*;
use crate::xfrm::keep::memory::Memory;

/// The identifier that these kernels have an interface for.
const IF_ID: u32 = 42;
/// Its database.
const OWN: SpdId = SpdId(1);

fn on_interface(policy: Policy) -> Policy {
    Policy { if_id: IF_ID, ..policy }
}

fn protecting(direction: PolicyDirection) -> Policy {
    policy(direction, Action::Allow, true)
}

fn sa_on_interface(sa: Sa) -> Sa {
    Sa { if_id: IF_ID, ..sa }
}

/// The group of SAs that the one policy of a database wants.
fn wanted(published: &Published, spd: SpdId, direction: Direction) -> Option<ReqId> {
    let snapshot = published.current();
    let mut policies = snapshot.spd_of(spd).unwrap().policies();
    let (_, found) = policies.find(|(_, policy)| policy.direction == direction)?;
    match found.action {
        PolicyAction::Protect { reqid } => Some(reqid),
        _ => None,
    }
}

#[test]
fn policies_of_an_interface_are_apart_from_all_others() {
    let (mut kernel, published) = kernel_at(4500);
    let add = |kernel: &mut Gateway, policy| ask(kernel, Request::NewPolicy(Box::new(policy)), 0);
    let common = add(&mut kernel, protecting(PolicyDirection::Out)).unwrap();
    let own = add(&mut kernel, on_interface(protecting(PolicyDirection::Out))).unwrap();
    // Routes follow the one only: what comes to an interface others decide.
    assert_eq!((common.covered.len(), own.covered.len()), (1, 0));
    let groups = [SpdId(0), OWN].map(|spd| wanted(&published, spd, Direction::Outbound).unwrap());
    assert_ne!(groups[0], groups[1]);
    let names = [protecting(PolicyDirection::Out), on_interface(protecting(PolicyDirection::Out))]
        .map(|policy| name_of(&policy));
    let gone = ask(&mut kernel, Request::DelPolicy(Box::new(names[1].clone())), 1).unwrap();
    assert_eq!(gone.uncovered.len(), 0);
    assert_eq!(wanted(&published, OWN, Direction::Outbound), None);
    assert_eq!(wanted(&published, SpdId(0), Direction::Outbound), Some(groups[0]));
}

#[test]
fn policies_use_sas_of_their_interface_only() {
    let (mut kernel, published) = kernel_at(4500);
    for policy in [protecting(PolicyDirection::Out), on_interface(protecting(PolicyDirection::Out))]
    {
        ask(&mut kernel, Request::NewPolicy(Box::new(policy)), 0).unwrap();
    }
    let [common, own] =
        [SpdId(0), OWN].map(|spd| wanted(&published, spd, Direction::Outbound).unwrap());
    ask(&mut kernel, Request::NewSa(Box::new(sa_on_interface(outbound(0x100, 1)))), 0).unwrap();
    let snapshot = published.current();
    assert!(snapshot.outbound_for(common).is_none());
    let slot = snapshot.outbound_for(own).unwrap().slot;
    assert_eq!(snapshot.outbound(slot).unwrap().spi.get(), 0x100);
}

#[test]
fn packets_of_an_sa_come_to_light_on_its_interface() {
    let (mut kernel, published) = kernel_at(4500);
    for (if_id, interface) in [(0, 0), (IF_ID, 1)] {
        let sa = || Sa { if_id, ..inbound(0x200 + if_id, interface) };
        ask(&mut kernel, Request::NewSa(Box::new(sa())), 0).unwrap();
        // Also after it was changed.
        ask(&mut kernel, Request::UpdSa(Box::new(sa())), 1).unwrap();
        let snapshot = published.current();
        let (_, found) =
            snapshot.inbound_sas().find(|(_, found)| sa().info.spi == Some(found.spi)).unwrap();
        assert_eq!(found.interface, InterfaceId(interface));
    }
}

#[test]
fn a_packet_of_an_interface_asks_for_an_sa_of_it() {
    let (mut kernel, published) = kernel_at(4500);
    for policy in [protecting(PolicyDirection::Out), on_interface(protecting(PolicyDirection::Out))]
    {
        ask(&mut kernel, Request::NewPolicy(Box::new(policy)), 0).unwrap();
    }
    let (from, to) = ([10, 1, 0, 5].into(), [10, 2, 0, 5].into());
    let flow = FlowKey::new(from, to, Protocol::UDP, Ports::Known { src: 1, dst: 2 }).unwrap();
    for (spd, if_id) in [(OWN, IF_ID), (SpdId(0), 0)] {
        let reqid = wanted(&published, spd, Direction::Outbound).unwrap();
        let told = kernel.heard(&Event::Acquire { reqid, flow }, moment(0));
        let Told::Daemons(_, message) = told else { panic!("{told:?}") };
        let reply = Reply::parse(&Messages::new(message.as_bytes()).next().unwrap()).unwrap();
        let Reply::Acquire(acquire) = reply else { panic!("{reply:?}") };
        assert_eq!(acquire.if_id, if_id);
    }
}

#[test]
fn a_live_sa_stays_on_its_interface() {
    let (mut kernel, published) = kernel_at(4500);
    ask(&mut kernel, Request::NewSa(Box::new(inbound(0x200, 1))), 0).unwrap();
    let moved = Request::UpdSa(Box::new(sa_on_interface(inbound(0x200, 1))));
    assert_eq!(ask(&mut kernel, moved, 1).unwrap_err().errno, Errno::EOPNOTSUPP);
    let snapshot = published.current();
    let (_, found) = snapshot.inbound_sas().next().unwrap();
    assert_eq!(found.interface, InterfaceId(0));
}

#[test]
fn an_identifier_without_an_interface_is_refused() {
    let (mut kernel, published) = kernel_at(4500);
    let stranger = Sa { if_id: 43, ..outbound(0x100, 1) };
    let refusal = ask(&mut kernel, Request::NewSa(Box::new(stranger)), 0).unwrap_err();
    assert_eq!(refusal.errno, Errno::EOPNOTSUPP);
    assert!(refusal.to_string().contains("if_id"), "{refusal}");
    let stranger = Policy { if_id: 43, ..protecting(PolicyDirection::Out) };
    ask(&mut kernel, Request::NewPolicy(Box::new(stranger)), 0).unwrap_err();
    assert!(published.current().outbound_sas().next().is_none());
    assert!(published.current().spd_of(OWN).unwrap().is_empty());
}

/// SAs and policies of an interface come back after a restart, whatever its place in the site file; those of one that
/// is gone are lost, and daemons are told.
#[test]
fn what_outlives_the_gateway_finds_its_interface_again() {
    let memory = Memory::default();
    let (mut first, _) = kernel_with(4500, &[42]);
    first.keep(memory.open(), moment(0));
    let policies = [PolicyDirection::Out, PolicyDirection::In].map(protecting).map(on_interface);
    for policy in policies {
        ask(&mut first, Request::NewPolicy(Box::new(policy)), 0).unwrap();
    }
    for sa in [outbound(0x100, 1), inbound(0x200, 2)].map(sa_on_interface) {
        ask(&mut first, Request::NewSa(Box::new(sa)), 0).unwrap();
    }
    let (mut second, published) = kernel_with(4500, &[7, 42]);
    let restored = second.keep(memory.killed().open(), moment(1));
    assert_eq!((restored.sas, restored.policies, restored.covered.len()), (2, 2, 0));
    let snapshot = published.current();
    assert_eq!(snapshot.inbound_sas().next().unwrap().1.interface, InterfaceId(2));
    assert!(snapshot.spd_of(SpdId(1)).unwrap().is_empty());
    let reqid = wanted(&published, SpdId(2), Direction::Outbound).unwrap();
    assert!(snapshot.outbound_for(reqid).is_some());
    let (mut third, published) = kernel_with(4500, &[7]);
    let restored = third.keep(memory.killed().open(), moment(1));
    assert_eq!((restored.sas, restored.policies, restored.lost.len()), (0, 0, 2));
    assert!(!restored.is_closed, "an interface's policies close no networks");
    assert_eq!(published.current().len(), (0, 0));
}

#[test]
fn peers_of_tunnels_are_told_once() {
    let (mut kernel, _) = kernel_at(4500);
    for policy in [protecting(PolicyDirection::Out), on_interface(protecting(PolicyDirection::Out))]
    {
        let peer = policy.templates[0].destination;
        ask(&mut kernel, Request::NewPolicy(Box::new(policy)), 0).unwrap();
        assert_eq!(kernel.peers(8), [peer]);
    }
    assert!(kernel.peers(0).is_empty());
}

/// Text that was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Daemons show the error number, and not all of them the words.
#[test]
fn the_log_says_what_was_refused_and_why() {
    let (mut kernel, _published) = kernel_at(4500);
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false);
    let subscriber = subscriber.with_writer(move || writer.clone()).finish();
    tracing::subscriber::with_default(subscriber, || {
        let stranger = Sa { if_id: 43, ..outbound(0x100, 1) };
        ask(&mut kernel, Request::NewSa(Box::new(stranger)), 0).unwrap_err();
        let stranger = Policy { if_id: 43, ..protecting(PolicyDirection::Out) };
        ask(&mut kernel, Request::NewPolicy(Box::new(stranger)), 0).unwrap_err();
        // The gateway asks what is to be closed before it has a policy executed.
        let mut limited = protecting(PolicyDirection::In);
        limited.info.limits.add_seconds.hard = 5;
        let limited = Request::NewPolicy(Box::new(limited));
        kernel.kernel.cover_change(&client(), &limited, moment(0)).unwrap_err();
        let block = Defaults { output: Some(DefaultAction::Block), ..Defaults::default() };
        ask(&mut kernel, Request::SetDefault(block), 0).unwrap_err();
        ask(&mut kernel, Request::NewSa(Box::new(inbound(0x200, 1))), 0).unwrap();
        // What a kernel refuses every day needs no words.
        ask(&mut kernel, Request::NewSa(Box::new(inbound(0x200, 1))), 0).unwrap_err();
    });
    let bytes = log.0.lock().unwrap().clone();
    let text = String::from_utf8(bytes).unwrap();
    let lines: Vec<_> = text.lines().filter(|line| line.contains("refused")).collect();
    let [sa, policy, limited, defaults] = lines.as_slice() else { panic!("{text}") };
    let why = ", if_id 43) refused: No [[xfrm.interface]] of the site file has this if_id";
    assert!(sa.contains("WARN") && sa.contains("SA 00000100") && sa.contains(why), "{sa}");
    assert!(policy.contains("policy out") && policy.contains(why), "{policy}");
    assert!(limited.contains("policy in") && limited.contains("(by charon, pid 1)"), "{limited}");
    assert!(defaults.contains("default policies refused: Convoy never sees"), "{defaults}");
    assert_eq!(kernel.refusals().0, 4);
}
