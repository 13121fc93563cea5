use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use convoy_crypto::Tier;
use convoy_engine::registry::Setting;
use convoy_ipsec::sequence::{SequenceCounter, SequenceLimits};
use convoy_ipsec::spd::{PolicyAction, SpdId};
use convoy_wire::{Protocol, SeqNum};

use super::*;

/// A gateway whose site file is written anew for each step.
struct Gateway {
    dir: tempfile::TempDir,
    state: Option<State>,
}

const HEAD: &str = "name = \"left\"\nstate_dir = \".\"\n[plain]\ninterface = \"tun\"\n";

fn sa(name: &str, direction: &str, spi: u32, key: u8, more: &str) -> String {
    let key = format!("{key:02x}").repeat(20);
    format!(
        "[[sa]]\nname = \"{name}\"\ndirection = \"{direction}\"\nspi = {spi}\nlocal = \"192.0.2.1\"\n\
         remote = \"192.0.2.2\"\nalgorithm = \"aes-128-gcm\"\nkey = \"{key}\"\n{more}\n"
    )
}

fn policy(name: &str, remote: &str, sa_out: &str, sa_in: &str) -> String {
    format!(
        "[[policy]]\nname = \"{name}\"\naction = \"protect\"\nlocal = \"10.1.0.0/24\"\nremote = \"{remote}\"\n\
         sa_out = \"{sa_out}\"\nsa_in = {sa_in}\n"
    )
}

fn plain_tunnel() -> String {
    sa("out", "outbound", 0x1001, 1, "")
        + &sa("in", "inbound", 0x1002, 2, "")
        + &policy("lans", "10.2.0.0/24", "out", "\"in\"")
}

fn site(dir: &Path, text: &str) -> Site {
    let path = dir.join("left.toml");
    std::fs::write(&path, format!("{HEAD}{text}")).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    Site::load(&path).unwrap_or_else(|errors| panic!("{errors}")).0
}

fn start(dir: &Path, text: &str) -> Result<State, StateError> {
    State::start(site(dir, text), Cpu::detect().unwrap(), 1500, |event| panic!("{event:?}"))
}

impl Gateway {
    fn start(text: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o700)).unwrap();
        let state = Some(start(dir.path(), text).unwrap());
        Self { dir, state }
    }

    fn state(&self) -> &State {
        self.state.as_ref().unwrap()
    }

    fn reload(&mut self, text: &str) -> Result<ReloadReport, StateError> {
        let site = site(self.dir.path(), text);
        self.state.as_mut().unwrap().reload(site)
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        self.state().published().current()
    }

    fn out(&self, name: &str) -> (SaSlot, Arc<OutboundSpec>) {
        self.state().tables.outbound[name].clone()
    }
}

fn take(lease: &Arc<convoy_ipsec::sequence::Lease>, count: usize) -> Vec<u64> {
    let mut counter =
        SequenceCounter::claim(lease.clone(), SeqNum::new(0), SequenceLimits::new(true)).unwrap();
    counter.reserve(count).unwrap().map(|seq| seq.into_number().get()).collect()
}

#[test]
fn a_site_becomes_policies_for_both_directions_and_sas_with_one_reqid() {
    let gateway = Gateway::start(&plain_tunnel());
    let snapshot = gateway.snapshot();
    let policies: Vec<_> = snapshot.spd().policies().map(|(_, policy)| policy).collect();
    assert_eq!(policies.len(), 2);
    let PolicyAction::Protect { reqid } = policies[0].action else { panic!("{policies:?}") };
    assert_eq!(policies[1].action, PolicyAction::Protect { reqid });
    let slot = snapshot.outbound_for(reqid).unwrap().slot;
    let out = snapshot.outbound(slot).unwrap();
    assert_eq!((&*out.name, out.path_mtu, *out.salt.expose()), ("out", 1500, [1; 4]));
    assert!(out.lease.granted() > 1 << 20);
    let spi = out.spi;
    assert_eq!(snapshot.inbound_for(spi, out.endpoints.local, Protocol::ESP), None);
    let (_, inbound) = snapshot.inbound_sas().next().unwrap();
    assert_eq!(
        (inbound.reqid, inbound.replay_window, inbound.counters.floor.get()),
        (reqid, 1024, SeqNum::new(0))
    );
}

#[test]
fn an_unchanged_site_keeps_every_record() {
    let mut gateway = Gateway::start(&plain_tunnel());
    let before = gateway.out("out");
    let report = gateway.reload(&plain_tunnel()).unwrap();
    assert!(report.is_empty(), "{report:?}");
    assert_eq!(report.sas_unchanged, 2);
    assert!(Arc::ptr_eq(&before.1, &gateway.out("out").1));
}

#[test]
fn a_changed_sa_keeps_slot_lease_and_counters() {
    let mut gateway = Gateway::start(&plain_tunnel());
    let (slot, before) = gateway.out("out");
    let report =
        gateway.reload(&plain_tunnel().replace("spi = 4097", "spi = 4097\nhop_limit = 9")).unwrap();
    assert_eq!((report.sas_changed, report.sas_unchanged), (vec!["out".to_owned()], 1));
    let (new_slot, after) = gateway.out("out");
    assert_eq!((new_slot, after.outer.hop_limit), (slot, 9));
    assert!(before.lease == after.lease && before.counters == after.counters);
    assert!(!Arc::ptr_eq(&before, &after));
}

/// Daemons' SAs go by what this says.
#[test]
fn a_new_wire_mtu_is_kept_in_mind_while_no_key_may_be_used() {
    let mut gateway = Gateway::start(&plain_tunnel());
    let state = gateway.state.as_mut().unwrap();
    state.end_sas("this machine is a copy");
    assert!(state.set_wire_mtu(1400).unwrap());
    assert_eq!(state.wire_mtu(), 1400);
    assert!(!state.set_wire_mtu(1400).unwrap());
    let (out, inb) = (sa("out", "outbound", 0x1001, 7, ""), sa("in", "inbound", 0x1002, 8, ""));
    gateway.reload(&(out + &inb)).unwrap();
    assert_eq!(gateway.out("out").1.path_mtu, 1400);
}

#[test]
fn a_new_wire_mtu_concerns_the_sas_that_say_nothing_of_their_path() {
    let own = sa("own", "outbound", 0x1003, 3, "path_mtu = 1300");
    let mut gateway = Gateway::start(&(plain_tunnel() + &own));
    let before = [gateway.out("out"), gateway.out("own")];
    let generation = gateway.state().generation();
    assert!(gateway.state.as_mut().unwrap().set_wire_mtu(1400).unwrap());
    let after = [gateway.out("out"), gateway.out("own")];
    assert_eq!((after[0].1.path_mtu, gateway.state().wire_mtu()), (1400, 1400));
    assert_eq!(before[0].0, after[0].0);
    assert!(before[0].1.lease == after[0].1.lease);
    assert!(Arc::ptr_eq(&before[1].1, &after[1].1));
    let seen = gateway.snapshot().outbound(after[0].0).unwrap().path_mtu;
    assert_eq!((seen, gateway.state().generation()), (1400, generation + 1));
    // The same once more is no news, and a reload keeps it.
    assert!(!gateway.state.as_mut().unwrap().set_wire_mtu(1400).unwrap());
    assert!(gateway.reload(&(plain_tunnel() + &own)).unwrap().is_empty());
    // No path is believed to be narrower than a host may rely on.
    assert!(gateway.state.as_mut().unwrap().set_wire_mtu(68).unwrap());
    assert_eq!(gateway.out("out").1.path_mtu, 576);

    let mut fixed = Gateway::start(&format!("[wire]\nmtu = 1350\n{}", plain_tunnel()));
    assert!(!fixed.state.as_mut().unwrap().set_wire_mtu(1400).unwrap());
    assert_eq!(fixed.out("out").1.path_mtu, 1350);
}

#[test]
fn dummies_come_change_and_go_by_reload() {
    let mut gateway = Gateway::start(&plain_tunnel());
    let (slot, before) = gateway.out("out");
    assert_eq!(before.dummy_every, None);
    for (line, seconds, changed) in
        [("dummy_s = 9", Some(9), 1), ("dummy_s = 9", Some(9), 0), ("dummy_s = 0", None, 1)]
    {
        let site = plain_tunnel().replace("spi = 4097", &format!("spi = 4097\n{line}"));
        let report = gateway.reload(&site).unwrap();
        assert_eq!((report.sas_changed.len(), report.sas_unchanged), (changed, 2 - changed));
        let (new_slot, after) = gateway.out("out");
        assert_eq!((new_slot, after.dummy_every), (slot, seconds.map(Duration::from_secs)));
        assert!(before.lease == after.lease);
    }
}

#[test]
fn a_replaced_key_comes_into_a_new_slot_and_the_old_one_may_still_be_open() {
    let mut gateway = Gateway::start(&plain_tunnel());
    let old = gateway.out("out");
    let text = sa("out", "outbound", 0x2001, 11, "")
        + &sa("in", "inbound", 0x1002, 2, "")
        + &sa("in2", "inbound", 0x2002, 12, "")
        + &policy("lans", "10.2.0.0/24", "out", "[\"in\", \"in2\"]");
    let report = gateway.reload(&text).unwrap();
    assert_eq!((report.sas_replaced, report.sas_added), (vec!["out".into()], vec!["in2".into()]));
    let new = gateway.out("out");
    assert_ne!(new.0, old.0);
    assert_eq!(new.1.reqid, old.1.reqid);
    let snapshot = gateway.snapshot();
    assert_eq!(snapshot.outbound_for(new.1.reqid).map(|owner| owner.slot), Some(new.0));
    assert!(snapshot.outbound(old.0).is_none());
    let reqids: Vec<_> = snapshot.inbound_sas().map(|(_, sa)| sa.reqid).collect();
    assert_eq!(reqids, [new.1.reqid; 2]);
}

#[test]
fn a_key_that_comes_back_goes_on_beyond_what_was_leased() {
    let mut gateway = Gateway::start(&plain_tunnel());
    let old = gateway.out("out").1;
    take(old.lease.as_arc(), 100);
    gateway.reload(&sa("in", "inbound", 0x1002, 2, "")).unwrap();
    gateway.reload(&plain_tunnel()).unwrap();
    let new = gateway.out("out").1;
    assert!(take(new.lease.as_arc(), 1)[0] >= old.lease.granted());
}

/// The peer goes on where it was: none of its packets is refused.
#[test]
fn an_inbound_key_that_comes_back_is_heard_from_its_last_packet_on() {
    let mut gateway = Gateway::start(&plain_tunnel());
    let raise = |gateway: &mut Gateway, number| {
        gateway.state().tables.inbound["in"].1.counters.floor.raise(SeqNum::new(number));
    };
    raise(&mut gateway, 77);
    let changed = plain_tunnel().replace(&"02".repeat(20), &"09".repeat(20));
    gateway.reload(&changed).unwrap();
    raise(&mut gateway, 5);
    gateway.reload(&plain_tunnel()).unwrap();
    let floor = gateway.state().tables.inbound["in"].1.counters.floor.get();
    assert_eq!(floor, SeqNum::new(77));
    gateway.reload(&changed).unwrap();
    let floor = gateway.state().tables.inbound["in"].1.counters.floor.get();
    assert_eq!(floor, SeqNum::new(5));
}

#[test]
fn an_orderly_restart_goes_on_with_the_next_number() {
    let mut gateway = Gateway::start(&plain_tunnel());
    assert_eq!(take(gateway.out("out").1.lease.as_arc(), 3), [1, 2, 3]);
    gateway.state().tables.inbound["in"].1.counters.floor.raise(SeqNum::new(77));
    gateway.state.take().unwrap().finish().unwrap();
    let mut state = start(gateway.dir.path(), &plain_tunnel()).unwrap();
    assert_eq!(take(state.tables.outbound["out"].1.lease.as_arc(), 1), [4]);
    assert_eq!(state.tables.inbound["in"].1.counters.floor.get(), SeqNum::new(77));
    // Without an orderly end the lease is skipped.
    let granted = state.tables.outbound["out"].1.lease.granted();
    drop(state);
    state = start(gateway.dir.path(), &plain_tunnel()).unwrap();
    assert!(take(state.tables.outbound["out"].1.lease.as_arc(), 1)[0] >= granted);
}

#[test]
fn two_gateways_cannot_share_a_state_folder() {
    let gateway = Gateway::start(&plain_tunnel());
    let error = start(gateway.dir.path(), &plain_tunnel()).unwrap_err().to_string();
    assert!(error.contains(&format!("in use by process {}", std::process::id())), "{error}");
}

#[test]
fn what_needs_a_restart_is_refused_and_changes_nothing() {
    let mut gateway = Gateway::start(&plain_tunnel());
    let before = gateway.snapshot();
    for (text, needle) in [
        (plain_tunnel() + "[workers]\ncount = 2\n", "workers cannot change"),
        (plain_tunnel() + "[crypto]\nengine = \"pool\"\n", "crypto.engine cannot change"),
        (plain_tunnel() + "[wire]\nudp_port = 4501\n", "wire.udp_port"),
        (
            plain_tunnel().replace("spi = 4097", "spi = 4097\nencap = \"udp\""),
            "the first SA with UDP encapsulation",
        ),
        (
            plain_tunnel().replace("spi = 4097", "spi = 4097\nesn = false"),
            "cannot be switched under one key",
        ),
        (sa("x", "inbound", 0x1001, 1, ""), "in the other direction"),
    ] {
        let error = gateway.reload(&text).unwrap_err().to_string();
        assert!(error.contains(needle), "{error}");
        assert!(Arc::ptr_eq(&before, &gateway.snapshot()));
    }
}

#[test]
fn moving_an_sa_to_another_worker_needs_a_restart() {
    let workers = "[workers]\ncount = 2\n";
    let mut gateway = Gateway::start(&(plain_tunnel() + workers));
    let moved = plain_tunnel().replace("spi = 4097", "spi = 4097\nworker = 1") + workers;
    let error = gateway.reload(&moved).unwrap_err().to_string();
    assert!(error.contains("sa[out].worker cannot change"), "{error}");
}

#[test]
fn routes_follow_policies() {
    let mut gateway = Gateway::start(&plain_tunnel());
    let text = plain_tunnel().replace("10.2.0.0/24", "10.9.0.0/24")
        + &policy("more", "10.8.0.0/24", "out", "\"in\"");
    let report = gateway.reload(&text).unwrap();
    let shown = |networks: &[Prefix]| networks.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(shown(&report.routes_added), ["10.8.0.0/24", "10.9.0.0/24"]);
    assert_eq!(shown(&report.routes_removed), ["10.2.0.0/24"]);
    assert_eq!(
        (report.policies_added, report.policies_changed),
        (vec!["more".into()], vec!["lans".into()])
    );
    assert_eq!(gateway.out("out").1.reqid, gateway.state().tables.inbound["in"].1.reqid);
}

#[test]
fn one_way_policies_discard_the_other_way() {
    let text = sa("out", "outbound", 0x1001, 1, "") + &policy("up", "10.2.0.0/24", "out", "[]");
    let gateway = Gateway::start(&text);
    let actions: Vec<_> = gateway.snapshot().spd().policies().map(|(_, p)| p.action).collect();
    assert!(
        matches!(actions[..], [PolicyAction::Protect { .. }, PolicyAction::Discard]),
        "{actions:?}"
    );
}

#[test]
fn ten_thousand_policies_come_by_reload_and_one_of_them_changes() {
    let many = |changed: u32| -> String {
        let remote = |n: u32| format!("172.16.{}.{}", n >> 8, n & 255);
        (0..10_000)
            .map(|n| match n == changed {
                true => policy(&format!("p{n}"), "10.77.0.0/16", "out", "\"in\""),
                false => policy(&format!("p{n}"), &remote(n), "out", "\"in\""),
            })
            .collect()
    };
    let mut gateway = Gateway::start(&plain_tunnel());
    let report = gateway.reload(&(plain_tunnel() + &many(u32::MAX))).unwrap();
    assert_eq!((report.policies_added.len(), report.routes_added.len()), (10_000, 10_000));
    let before = gateway.snapshot();
    let report = gateway.reload(&(plain_tunnel() + &many(7000))).unwrap();
    assert_eq!(report.policies_changed, ["p7000"]);
    assert_eq!(report.sas_unchanged, 2);
    let after = gateway.snapshot();
    assert_eq!((before.spd().len(), after.spd().len()), (20_002, 20_002));
    // All others are the very ones that were there.
    let kept = after.spd().policies().filter(|(id, policy)| {
        before.spd().policy(*id).is_some_and(|old| Arc::ptr_eq(old, policy))
    });
    assert_eq!(kept.count(), 20_000);
    let report = gateway.reload(&plain_tunnel()).unwrap();
    assert_eq!((report.policies_removed.len(), gateway.snapshot().spd().len()), (10_000, 2));
}

#[test]
fn ten_thousand_sas_come_change_and_go_by_reload() {
    let many = |numbers: std::ops::Range<u32>, key_of_7000: u32, more: &str| -> String {
        numbers
            .map(|n| {
                let number = if n == 7000 { key_of_7000 } else { n };
                let key = format!("{number:08x}{}", "5a".repeat(16));
                let more = if n == 5000 { more } else { "" };
                format!(
                    "[[sa]]\nname = \"s{n}\"\ndirection = \"outbound\"\nspi = {}\n\
                     local = \"192.0.2.1\"\nremote = \"192.0.2.2\"\nalgorithm = \"aes-128-gcm\"\n\
                     key = \"{key}\"\nlease_block = 64\n{more}\n",
                    0x1000 + n
                )
            })
            .collect()
    };
    let mut gateway = Gateway::start(&many(0..1, 7000, ""));
    let report = gateway.reload(&many(0..10_000, 7000, "")).unwrap();
    assert_eq!((report.sas_added.len(), report.sas_unchanged), (9999, 1));
    let before = gateway.out("s6999");
    let report = gateway.reload(&many(0..10_000, 70_000, "hop_limit = 9")).unwrap();
    assert_eq!(
        (report.sas_changed, report.sas_replaced),
        (vec!["s5000".into()], vec!["s7000".into()])
    );
    assert_eq!(report.sas_unchanged, 9998);
    assert!(Arc::ptr_eq(&before.1, &gateway.out("s6999").1));
    let report = gateway.reload(&many(2_000..10_001, 70_000, "")).unwrap();
    assert_eq!((report.sas_added, report.sas_removed.len()), (vec!["s10000".into()], 2000));
    assert_eq!(gateway.snapshot().len(), (8001, 0));
    // A key that has gone may come back, and goes on beyond all that it was leased.
    gateway.reload(&many(0..10_001, 70_000, "")).unwrap();
    assert!(take(gateway.out("s0").1.lease.as_arc(), 1)[0] > 64);
    assert_eq!(take(gateway.out("s9000").1.lease.as_arc(), 1), [1]);
}

#[test]
fn databases_of_interfaces_change_apart_and_keep_their_numbers() {
    let site = |own: &str, remotes: &[&str], common: &str| -> String {
        let policies = remotes.iter().map(|to| {
            let name = format!("own-{}", to.replace(['.', '/'], "-"));
            policy(&name, to, "out", "\"in\"") + &format!("spd = \"{own}\"\n")
        });
        let sas = sa("out", "outbound", 0x1001, 1, "") + &sa("in", "inbound", 0x1002, 2, "");
        let common = policy("common", common, "out", "\"in\"");
        format!("spd = \"lan\"\n{sas}{}{common}", policies.collect::<String>())
    };
    let mut gateway = Gateway::start(&site("lan", &["10.2.0.0/24"], "10.3.0.0/24"));
    let lan = gateway.state().plain_spd();
    let sizes = |gateway: &Gateway| {
        let snapshot = gateway.snapshot();
        (snapshot.spd().len(), snapshot.spd_of(lan).unwrap().len())
    };
    assert_eq!((lan, sizes(&gateway)), (SpdId(1), (2, 2)));
    let before = gateway.snapshot();
    // The same selectors in another database are no conflict, and what is common brings no routes.
    let report = gateway.reload(&site("lan", &["10.2.0.0/24", "10.3.0.0/24"], "10.3.0.0/24"));
    let report = report.unwrap();
    assert_eq!(report.policies_added, ["own-10-3-0-0-24"]);
    assert_eq!(report.routes_added.len(), 1);
    assert_eq!((gateway.state().plain_spd(), sizes(&gateway)), (lan, (2, 4)));
    let after = gateway.snapshot();
    for id in [SpdId::default(), lan] {
        let old = before.spd_of(id).unwrap().policies();
        let kept = old.filter(|(at, policy)| {
            after.spd_of(id).unwrap().policy(*at).is_some_and(|new| Arc::ptr_eq(new, policy))
        });
        assert_eq!(kept.count(), 2);
    }
    let report = gateway.reload(&site("lan", &["10.2.0.0/24"], "10.4.0.0/24")).unwrap();
    assert_eq!((report.policies_changed, report.routes_added), (vec!["common".into()], vec![]));
    assert_eq!(report.routes_removed.len(), 1);
    // Which database an interface asks is fixed when it is opened.
    let other = site("dmz", &["10.2.0.0/24"], "10.3.0.0/24").replace("\"lan\"", "\"dmz\"");
    let refused = gateway.reload(&other).unwrap_err();
    assert!(refused.to_string().starts_with("plain.spd cannot change"), "{refused}");
}

#[test]
fn sas_are_made_on_demand_where_the_site_says_so_and_no_longer() {
    let wanted = sa("in", "inbound", 0x1002, 2, "")
        + "[[policy]]\nname = \"lans\"\naction = \"protect\"\nlocal = \"10.1.0.0/24\"\n\
           remote = \"10.2.0.0/24\"\nsa_in = \"in\"\nacquire = true\n";
    let mut gateway = Gateway::start(&wanted);
    let reqid = |gateway: &Gateway| {
        let snapshot = gateway.snapshot();
        let protects = snapshot.spd().policies().find_map(|(_, policy)| match policy.action {
            PolicyAction::Protect { reqid } => Some(reqid),
            _ => None,
        });
        (protects.unwrap(), snapshot)
    };
    let (before, snapshot) = reqid(&gateway);
    assert!(snapshot.is_on_demand(before) && snapshot.outbound_for(before).is_none());
    gateway.reload(&plain_tunnel()).unwrap();
    let (after, snapshot) = reqid(&gateway);
    assert!(!snapshot.is_on_demand(before) && !snapshot.is_on_demand(after));
    assert!(snapshot.outbound_for(after).is_some());
}

/// Nonces come from the cipher's key and salt, which stay; the MAC's key is another.
#[test]
fn a_new_integrity_key_under_the_same_cipher_key_comes_into_force() {
    let ctr = |name: &str, direction: &str, key: u8, integrity: u8| {
        let integrity = format!("{integrity:02x}").repeat(20);
        sa(name, direction, 0x1000 + u32::from(key), key, "").replace(
            "algorithm = \"aes-128-gcm\"",
            &format!(
                "encryption = \"aes-128-ctr\"\nintegrity = \"hmac-sha1-96\"\nintegrity_key = \"{integrity}\""
            ),
        )
    };
    let text = |out: u8, inbound: u8| {
        ctr("out", "outbound", 1, out)
            + &ctr("in", "inbound", 2, inbound)
            + &policy("lans", "10.2.0.0/24", "out", "\"in\"")
    };
    let mut gateway = Gateway::start(&text(7, 8));
    let inbound = |gateway: &Gateway| gateway.state().tables.inbound["in"].1.clone();
    let (before_out, before_in) = (gateway.out("out").1, inbound(&gateway));

    let report = gateway.reload(&text(9, 8)).unwrap();
    assert_eq!((report.sas_changed, report.sas_unchanged), (vec!["out".to_owned()], 1));
    let after = gateway.out("out").1;
    assert!(before_out.lease == after.lease, "no number comes twice");
    assert!(before_out.key != after.key, "the old integrity key stays in use");

    let report = gateway.reload(&text(9, 10)).unwrap();
    assert_eq!((report.sas_changed, report.sas_unchanged), (vec!["in".to_owned()], 1));
    let after = inbound(&gateway);
    assert!(before_in.counters == after.counters, "nothing is accepted twice");
    assert!(before_in.key != after.key, "the old integrity key stays in use");
    assert!(gateway.reload(&text(9, 10)).unwrap().is_empty());
}

/// The tier of a driver's keys tells which one made them.
#[test]
fn an_sa_gets_the_driver_it_names_then_the_site_s_then_the_best() {
    let name = |tier: Tier| format!("rfc4106-gcm-aes-convoy-{tier}");
    let cpu = Cpu::detect().unwrap();
    let second = cpu.tiers().nth(1).unwrap_or(Tier::Portable);
    let tiers = |gateway: &Gateway| {
        let inbound = gateway.state().tables.inbound["in"].1.key.tier();
        (gateway.out("out").1.key.tier(), inbound)
    };
    let mut gateway = Gateway::start(&plain_tunnel());
    assert_eq!(tiers(&gateway), (cpu.best(), cpu.best()));

    let head = format!("[crypto]\ndrivers = [\"{}\"]\n", name(second));
    gateway.reload(&(head.clone() + &plain_tunnel())).unwrap();
    assert_eq!(tiers(&gateway), (second, second));

    let (_, before) = gateway.out("out");
    let driver = format!("driver = \"{}\"", name(Tier::Portable));
    let named = sa("out", "outbound", 0x1001, 1, &driver)
        + &sa("in", "inbound", 0x1002, 2, "")
        + &policy("lans", "10.2.0.0/24", "out", "\"in\"");
    gateway.reload(&(head + &named)).unwrap();
    assert_eq!(tiers(&gateway), (Tier::Portable, second));
    let (_, after) = gateway.out("out");
    assert!(before.lease == after.lease, "no number comes twice");
    assert!(before.counters == after.counters);

    gateway.reload(&plain_tunnel()).unwrap();
    assert_eq!(tiers(&gateway), (cpu.best(), cpu.best()));
}

#[test]
fn drivers_are_set_and_an_sa_never_is_without_one() {
    let cpu = Cpu::detect().unwrap();
    let mut gateway = Gateway::start(&plain_tunnel());
    let state = gateway.state.as_mut().unwrap();
    let off = |state: &State, tier: Tier| {
        let name = format!("rfc4106-gcm-aes-convoy-{tier}");
        state.drivers().with_setting(&name, Setting::On(false)).unwrap()
    };
    let better: Vec<_> = cpu.tiers().filter(|tier| *tier != Tier::Portable).collect();
    for tier in better.iter().rev() {
        assert_eq!(state.set_drivers(off(state, *tier)).unwrap(), 2, "{tier} was the best");
    }
    let generation = state.generation();
    let error = state.set_drivers(off(state, Tier::Portable)).unwrap_err().to_string();
    assert!(error.contains("SA 'out': no driver that passed"), "{error}");
    assert_eq!(state.generation(), generation);
    assert_eq!(gateway.out("out").1.key.tier(), Tier::Portable);

    let state = gateway.state.as_mut().unwrap();
    let ccm = state.drivers().with_setting("rfc4309-ccm-aes-convoy-portable", Setting::On(false));
    assert_eq!(state.set_drivers(ccm.unwrap()).unwrap(), 0, "no SA has it");
    assert_eq!(state.generation(), generation);
    for (name, why) in [
        ("rfc4106-gcm-aes-null", "is for benches only; for rfc4106(gcm(aes)) there are"),
        ("rfc4106-gcm-aes-convoy-mmx", "no driver is called"),
    ] {
        let error = state.drivers().with_setting(name, Setting::Priority(1)).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
}
