use convoy_engine::registry::DaemonSas;
use convoy_xfrm::{AllocSpi, Request, SaProtocol};

use super::tests::*;
use super::*;
use convoy_ipsec::sa::WorkerId;
use convoy_wire::Spi;

/// As charon asks for it.
fn any_spi() -> AllocSpi {
    AllocSpi { min: 0xc000_0000, max: 0xcfff_ffff, reqid: 0, ..allocation(0) }
}

fn allocate(kernel: &mut Gateway, request: AllocSpi) -> u32 {
    let carried = ask(kernel, Request::AllocSpi(Box::new(request)), 0).unwrap();
    let [convoy_xfrm::Reply::NewSa(sa)] = &replies(&carried)[..] else { panic!() };
    sa.info.spi.map_or(0, Spi::get)
}

/// The way of charon: an SPI, the inbound keys, the outbound SA. Returns the inbound SPI.
fn make(kernel: &mut Gateway, reqid: u32, key: u8) -> u32 {
    let spi = allocate(kernel, any_spi());
    let (mut comes, mut goes) =
        (inbound(spi, key), outbound(0xa000 + u32::from(key) * 2, key + 100));
    (comes.info.reqid, goes.info.reqid) = (reqid, reqid);
    ask(kernel, Request::UpdSa(Box::new(comes)), 0).unwrap();
    ask(kernel, Request::NewSa(Box::new(goes)), 0).unwrap();
    spi
}

fn remove(kernel: &mut Gateway, spi: u32, key: u8) {
    for gone in [outbound(0xa000 + u32::from(key) * 2, 0), inbound(spi, 0)] {
        ask(kernel, Request::DelSa(query(&gone)), 0).unwrap();
    }
}

/// Workers of the inbound and the outbound SAs, by reqid of the daemon.
fn owners(kernel: &Gateway, published: &Published) -> Vec<(u32, u16, u16)> {
    let picture = published.current();
    let reqid = |direction, slot| kernel.numbers(direction, slot).unwrap().0;
    let inbound = picture.inbound_sas();
    let mut all: Vec<_> = inbound
        .map(|(slot, comes)| {
            assert_eq!(comes.endpoints.local, IpAddr::from(HERE));
            let of = reqid(Direction::Inbound, slot);
            let mut back = picture.outbound_sas();
            let back = back.find(|(slot, _)| reqid(Direction::Outbound, *slot) == of);
            (of, comes.worker.0, back.map_or(u16::MAX, |(_, goes)| goes.worker.0))
        })
        .collect();
    all.sort_unstable();
    all
}

fn share(owners: &[(u32, u16, u16)], worker: u16) -> (usize, usize) {
    let count = |of: fn(&(u32, u16, u16)) -> u16| owners.iter().filter(|o| of(o) == worker).count();
    (count(|o| o.1), count(|o| o.2))
}

fn rule(workers: &[u16], peer: Option<&str>, if_id: Option<u32>) -> WorkerRule {
    let peer = peer.map(|peer| peer.parse().unwrap());
    let workers = workers.iter().copied().map(WorkerId).collect();
    WorkerRule { workers, sas: DaemonSas { peer, if_id } }
}

#[test]
fn tunnels_are_spread_evenly_and_stay_where_they_are_when_they_are_rekeyed() {
    let (mut kernel, published) = kernel();
    let mut spis: Vec<_> = (1..=12).map(|n| make(&mut kernel, n.into(), n)).collect();
    let first = owners(&kernel, &published);
    assert_eq!([0, 1].map(|worker| share(&first, worker)), [(6, 6); 2]);
    assert!(first.iter().all(|(_, comes, goes)| comes == goes), "{first:?}");
    for (spi, (_, comes, _)) in spis.iter().zip(&first) {
        assert_eq!(spi % 2, u32::from(*comes), "its sockets bring it to its owner");
    }
    // One after the other in the order of their ages, as their lifetimes end.
    for (n, spi) in (1..=12).zip(&mut spis) {
        let new = make(&mut kernel, n.into(), n + 12);
        remove(&mut kernel, *spi, n);
        *spi = new;
    }
    assert_eq!(owners(&kernel, &published), first);
    // All at once.
    let again: Vec<_> = (1..=12).map(|n| make(&mut kernel, n.into(), n + 24)).collect();
    for (n, spi) in (1..=12).zip(spis) {
        remove(&mut kernel, spi, n + 12);
    }
    let last = owners(&kernel, &published);
    assert_eq!([0, 1].map(|worker| share(&last, worker)), [(6, 6); 2]);
    assert_eq!(again.len(), last.len());
}

#[test]
fn spis_that_are_held_for_sas_to_come_count() {
    let (mut kernel, _) = kernel();
    let held: Vec<_> = (0..8).map(|_| allocate(&mut kernel, any_spi()) % 2).collect();
    assert_eq!(held, [0, 1, 0, 1, 0, 1, 0, 1]);
    kernel.tick(moment(100));
    let mut sa = inbound(0x2002, 1);
    sa.info.reqid = 5;
    ask(&mut kernel, Request::NewSa(Box::new(sa)), 0).unwrap();
    assert_eq!(allocate(&mut kernel, any_spi()) % 2, 1, "those held before are gone");
}

#[test]
fn a_rule_decides_whose_an_sa_is_and_which_spi_it_gets() {
    let (mut kernel, published) = kernel();
    kernel.set_worker_rules(vec![
        rule(&[0], Some("198.51.100.0/24"), None),
        rule(&[1], Some("192.0.2.2/32"), Some(0)),
        rule(&[0, 1], None, None),
    ]);
    for n in 1..=4 {
        assert_eq!(make(&mut kernel, n.into(), n) % 2, 1);
    }
    assert!(owners(&kernel, &published).iter().all(|o| (o.1, o.2) == (1, 1)));
    // A range without an SPI of that worker, one that the daemon names itself, and an interface that is not told
    // with the SPI.
    let only = allocate(&mut kernel, AllocSpi { min: 0xc000, max: 0xc000, ..any_spi() });
    let mut named = inbound(0xd000, 11);
    (named.info.reqid, named.if_id) = (11, 0);
    let mut on_interface = inbound(only, 10);
    (on_interface.info.reqid, on_interface.if_id) = (10, 42);
    ask(&mut kernel, Request::UpdSa(Box::new(on_interface)), 0).unwrap();
    ask(&mut kernel, Request::NewSa(Box::new(named)), 0).unwrap();
    let now = owners(&kernel, &published);
    let of = |reqid| now.iter().find(|o| o.0 == reqid).unwrap().1;
    assert_eq!((of(10), of(11)), (0, 1), "the rule is what counts, also against the SPI");
}

#[test]
fn the_worker_of_a_live_sa_stays_whatever_rules_come() {
    let (mut kernel, published) = kernel();
    let spi = make(&mut kernel, 1, 1);
    assert_eq!(owners(&kernel, &published), [(1, 0, 0)]);
    kernel.set_worker_rules(vec![rule(&[1], None, None)]);
    // A change, and a driver that is set otherwise.
    let mut changed = inbound(spi, 1);
    (changed.info.reqid, changed.info.limits.packets.hard) = (1, 1000);
    ask(&mut kernel, Request::UpdSa(Box::new(changed)), 0).unwrap();
    assert_eq!(kernel.follow_paths(1400).len(), 1);
    assert_eq!(owners(&kernel, &published), [(1, 0, 0)]);
    // One that is added again, as MOBIKE has it, is a new one: rules count.
    remove(&mut kernel, spi, 1);
    let mut comes = inbound(spi, 1);
    comes.info.reqid = 1;
    ask(&mut kernel, Request::NewSa(Box::new(comes)), 0).unwrap();
    ask(&mut kernel, Request::NewSa(Box::new(outbound(0xa002, 101))), 0).unwrap();
    assert_eq!(owners(&kernel, &published), [(1, 1, 1)]);
}

#[test]
fn a_range_whose_wanted_spis_are_taken_still_gives_one() {
    let (mut kernel, _) = kernel();
    kernel.set_worker_rules(vec![rule(&[1], None, None)]);
    let narrow = AllocSpi { min: 0x1000, max: 0x1001, ..any_spi() };
    assert_eq!(allocate(&mut kernel, narrow.clone()), 0x1001);
    // It draws, so it may find none at once; a daemon asks again.
    let other = (0..64).find_map(|_| {
        let request = Request::AllocSpi(Box::new(narrow.clone()));
        let carried = ask(&mut kernel, request, 0).ok()?;
        let [convoy_xfrm::Reply::NewSa(sa)] = &replies(&carried)[..] else { panic!() };
        sa.info.spi
    });
    assert_eq!(other, Spi::new(0x1000));
}

#[test]
fn transport_mode_pairs_by_addresses() {
    let (mut kernel, published) = kernel();
    let transport = |mut sa: Sa| {
        sa.info.mode = convoy_xfrm::Mode::Transport;
        Request::NewSa(Box::new(sa))
    };
    assert_eq!(any_spi().protocol, SaProtocol::Esp);
    ask(&mut kernel, transport(inbound(0x2003, 1)), 0).unwrap();
    let mut other = inbound(0x2004, 2);
    other.info.source = [192, 0, 2, 9].into();
    ask(&mut kernel, transport(other), 0).unwrap();
    ask(&mut kernel, transport(outbound(0xabc, 3)), 0).unwrap();
    let picture = published.current();
    let goes: Vec<_> = picture.outbound_sas().map(|(_, sa)| sa.worker.0).collect();
    assert_eq!(goes, [1], "of the SA from the same peer");
}
