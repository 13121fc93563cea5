//! Recorded messages of iproute2 and a real kernel (`recorded/ip.txt`, made by `recorded/record.py`),
//! and requests of strongSwan and Libreswan (`recorded/charon.txt`, `recorded/pluto.txt`, and with Convoy's answers
//! `recorded/charon-on-convoy.txt`, `recorded/pluto-on-convoy.txt`): every datagram is understood, requests mean what
//! command lines and configurations say, and answers and events are built byte for byte as the kernel
//! built them.

use std::net::IpAddr;

use convoy_wire::Spi;
use convoy_xfrm::{
    AckOptions, Acknowledgement, Action, Address, Addresses, Encap, Errno, Flags, HashThreshold,
    Limit, Limits, Mark, Messages, Mode, Network, PolicyDirection, PolicyName, PolicyType,
    PortMask, Refusal, Reply, Request, Sa, SaDirection, SaFlags, SaProtocol, Transform,
};

/// A command and the datagrams that went to the kernel and came from it.
#[derive(Debug, Default)]
struct Record {
    command: String,
    requests: Vec<Vec<u8>>,
    replies: Vec<Vec<u8>>,
    errors: Vec<String>,
}

fn bytes(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn records() -> Vec<Record> {
    let records = read(include_str!("../recorded/ip.txt"));
    assert!(records.len() > 70, "{}", records.len());
    records
}

fn read(text: &str) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    for line in text.lines() {
        match line.split_once(' ').unwrap() {
            ("#", _) => {}
            ("$", command) => {
                records.push(Record { command: command.to_owned(), ..Record::default() });
            }
            (">", hex) => records.last_mut().unwrap().requests.push(bytes(hex)),
            ("<", hex) => records.last_mut().unwrap().replies.push(bytes(hex)),
            ("!", text) => records.last_mut().unwrap().errors.push(text.to_owned()),
            other => panic!("{other:?}"),
        }
    }
    records
}

/// Request that the one recorded command with this in it makes of the kernel.
fn asked(part: &str) -> Request {
    let all = records();
    let mut found = all.iter().filter(|record| record.command.contains(part));
    let record = found.next().unwrap_or_else(|| panic!("no command with {part:?}"));
    assert!(found.next().is_none(), "several commands with {part:?}");
    let message = Messages::new(&record.requests[0]).next().unwrap();
    Request::parse(&message).unwrap().unwrap()
}

fn asked_sa(part: &str) -> Sa {
    match asked(part) {
        Request::NewSa(sa) | Request::UpdSa(sa) => *sa,
        other => panic!("{other:?}"),
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn networks(source: (&str, u8), destination: (&str, u8)) -> Addresses {
    let network = |(text, prefix_len)| Network { address: ip(text), prefix_len };
    Addresses::Networks { source: network(source), destination: network(destination) }
}

/// iproute2 sends the number of an acquire event in network byte order; nobody else does.
fn seq_of_iproute2(seq: u32) -> u32 {
    seq.to_be()
}

#[test]
fn every_request_is_understood_or_refused_as_the_kernel_did() {
    let mut refused = 0;
    for record in records() {
        let acknowledged =
            record.replies.iter().flat_map(|reply| Messages::new(reply)).find_map(|message| {
                match Reply::parse(&message) {
                    Ok(Reply::Acknowledgement(acknowledged)) => Some(acknowledged),
                    _ => None,
                }
            });
        for datagram in &record.requests {
            for message in Messages::new(datagram) {
                match Request::parse(&message) {
                    Ok(Some(request)) => {
                        let built = request.build(message.header().seq, message.header().flags);
                        let again = Messages::new(built.as_bytes()).next().unwrap();
                        let again = Request::parse(&again).unwrap().unwrap();
                        assert_eq!(format!("{request:?}"), format!("{again:?}"));
                    }
                    Ok(None) => panic!("{}", record.command),
                    Err(refusal) => {
                        let kernel = acknowledged.as_ref().unwrap().refusal.as_ref();
                        assert_eq!(Some(&refusal), kernel, "{}", record.command);
                        let printed = format!("Error: {}.", refusal.text);
                        assert_eq!(record.errors[0], printed, "{}", record.command);
                        refused += 1;
                    }
                }
            }
        }
    }
    assert!(refused >= 5, "{refused}");
}

#[test]
fn answers_and_events_are_built_as_the_kernel_builds_them() {
    let mut counts = [0; 0x29];
    for record in records() {
        for datagram in &record.replies {
            for message in Messages::new(datagram) {
                let header = message.header();
                let to = Address {
                    seq: header.seq,
                    port: header.port,
                    multi: header.flags.any(Flags::MULTI),
                };
                let reply = Reply::parse(&message).unwrap();
                counts[usize::from(header.number)] += 1;
                let built = match &reply {
                    Reply::Acknowledgement(acknowledged) => {
                        let request = Messages::new(&record.requests[0]).next().unwrap();
                        if *request.header() != acknowledged.request {
                            continue;
                        }
                        let outcome = acknowledged.refusal.as_ref().map_or(Ok(()), Err);
                        // What iproute2 asks for.
                        let options = AckOptions { capped: false, extended: true };
                        Acknowledgement::build(&request, outcome, header.port, options)
                    }
                    reply => reply.build(to).unwrap(),
                };
                let built = Messages::new(built.as_bytes()).next().unwrap();
                assert_eq!(built.as_bytes(), message.as_bytes(), "{}\n{reply:#?}", record.command);
            }
        }
    }
    // Of each kind at least one.
    let kinds =
        [0x02, 0x03, 0x10, 0x11, 0x13, 0x14, 0x17, 0x19, 0x1b, 0x1c, 0x1d, 0x22, 0x24, 0x28];
    for kind in kinds {
        assert!(counts[kind] > 0, "{kind:#x}");
    }
}

#[test]
fn algorithms_are_those_of_the_command() {
    let key: Vec<u8> = (0..36).collect();
    let sa = asked_sa("spi 0x1000 ");
    let Transform::Aead(aead) = &sa.transform else { panic!("{sa:?}") };
    assert_eq!((aead.name.as_str(), aead.icv_bits), (Some("rfc4106(gcm(aes))"), 128));
    assert_eq!((aead.key.bits(), aead.key.expose()), (160, &key[..20]));

    let sa = asked_sa("spi 0x1002 ");
    let Transform::Separate { cipher: Some(cipher), integrity: Some(integrity) } = &sa.transform
    else {
        panic!("{sa:?}")
    };
    assert_eq!((cipher.name.as_str(), cipher.key.bits()), (Some("cbc(aes)"), 128));
    assert_eq!((integrity.name.as_str(), integrity.icv_bits), (Some("hmac(sha256)"), Some(128)));
    assert_eq!(integrity.key.expose(), &key[..32]);

    let sa = asked_sa("spi 0x1003 ");
    let Transform::Separate { integrity: Some(integrity), .. } = &sa.transform else {
        panic!("{sa:?}")
    };
    assert_eq!((integrity.name.as_str(), integrity.icv_bits), (Some("sha1"), None));
    assert!(matches!(asked_sa("spi 0x300 ").transform, Transform::Compression(_)));
    let sa = asked_sa("spi 0x1005 ");
    let Transform::Separate { cipher: Some(cipher), .. } = &sa.transform else { panic!("{sa:?}") };
    assert_eq!((cipher.name.as_str(), cipher.key.bits()), (Some("cipher_null"), 0));
}

#[test]
fn terms_of_sas_are_those_of_the_command() {
    let sa = asked_sa("spi 0x1001 ").info;
    assert_eq!((sa.source, sa.destination), (ip("2001:db8::1"), ip("2001:db8::2")));
    assert_eq!((sa.reqid, sa.mode, sa.flags), (7, Mode::Tunnel, SaFlags::AF_UNSPEC));
    assert_eq!((sa.spi, sa.protocol), (Spi::new(0x1001), SaProtocol::Esp));

    let sa = asked_sa("spi 0x1002 ").info;
    assert_eq!(sa.selector.addresses, networks(("192.0.2.1", 32), ("192.0.2.2", 32)));
    assert_eq!(sa.selector.protocol, 6);
    assert_eq!(sa.selector.source_port, PortMask { value: 1000, mask: 0xffff });
    assert_eq!(sa.selector.destination_port, PortMask { value: 80, mask: 0xffff });
    assert_eq!(sa.mode, Mode::Transport);

    let sa = asked_sa("spi 0x1003 ").info;
    assert_eq!((sa.mode, sa.reqid, sa.seq), (Mode::Beet, 16389, seq_of_iproute2(0x2a)));
    let encap =
        Encap { kind: 2, source_port: 4500, destination_port: 4501, original: ip("198.51.100.7") };
    assert_eq!(asked_sa("spi 0x1004 ").encap, Some(encap));
    assert_eq!(asked_sa("spi 0x100d ").encap.unwrap().kind, 1);
    assert_eq!(asked_sa("spi 0x100e ").encap.unwrap().kind, 7);

    let sa = asked_sa("spi 0x1009 ");
    assert_eq!(sa.mark, Mark { value: 0x10, mask: 0xff });
    assert_eq!((sa.output_mark, sa.if_id), (Mark { value: 0x20, mask: 0xf0 }, 0x7b));
    assert_eq!(asked_sa("spi 0x100a ").output_mark, Mark { value: 0x21, mask: u32::MAX });
    let sa = asked_sa("spi 0x100b ");
    assert_eq!((sa.tfc_padding, sa.extra_flags), (Some(1200), 3));
    let limit = |soft, hard| Limit { soft, hard };
    let limits = Limits {
        bytes: limit(500, 600),
        packets: limit(700, 800),
        add_seconds: limit(100, 200),
        use_seconds: limit(300, 400),
    };
    assert_eq!(asked_sa("spi 0x100c ").info.limits, limits);
    assert_eq!(asked_sa("spi 0x1000 ").info.limits, Limits::NONE);
    assert_eq!(asked_sa("spi 0x100f ").offload.unwrap().interface, 1);
    let label = asked_sa("spi 0x1010 ").security.unwrap().label;
    assert!(label.starts_with(b"system_u:object_r:ipsec_spd_t:s0"), "{label:?}");
    let care_of = asked_sa("proto route2").care_of;
    assert_eq!(care_of, Some(ip("2001:db8::3")));
    assert_eq!(asked_sa("spi 0x1000 ").direction, None::<SaDirection>);
}

#[test]
fn replay_windows_come_in_both_forms() {
    let sa = asked_sa("spi 0x1006 ");
    let replay = sa.state.replay_esn.unwrap();
    assert_eq!((replay.window, replay.bitmap.len()), (32, 1));
    let flags =
        SaFlags::ESN.0 | SaFlags::NO_ECN.0 | SaFlags::DECAP_DSCP.0 | SaFlags::NO_PMTU_DISCOVERY.0;
    assert_eq!((sa.info.flags, sa.info.replay_window), (SaFlags(flags), 0));
    let replay = asked_sa("spi 0x1007 ").state.replay_esn.unwrap();
    assert_eq!((replay.received, replay.sent), (0x1_0000_0005, 0x2_0000_0006));
    assert_eq!((replay.window, replay.bitmap.len()), (4096, 128));
    let sa = asked_sa("spi 0x1008 ");
    let replay = sa.state.replay.unwrap();
    assert_eq!((replay.received, replay.sent, sa.info.replay_window), (5, 6, 16));
}

#[test]
fn spis_and_names_are_those_of_the_command() {
    let Request::AllocSpi(alloc) = asked("reqid 9 seq 3") else { panic!() };
    assert_eq!((alloc.min, alloc.max, alloc.reqid), (0x1000, 0x10ff, 9));
    assert_eq!(alloc.seq, seq_of_iproute2(3));
    assert_eq!((alloc.mode, alloc.protocol), (Mode::Tunnel, SaProtocol::Esp));
    let Request::GetSa(query) = asked("get src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x4001")
    else {
        panic!()
    };
    assert_eq!((query.key.spi, query.key.mark), (Spi::new(0x4001), Mark { value: 1, mask: 3 }));
    let Request::DelSa(query) = asked("delete src 2001:db8::1") else { panic!() };
    let named = (query.key.protocol, query.key.source);
    assert_eq!(named, (SaProtocol::DestinationOptions, Some(ip("2001:db8::1"))));
    let Request::DumpSa(dump) = asked("list src 192.0.2.0/24") else { panic!() };
    let filter = dump.addresses.unwrap();
    assert_eq!((filter.source_len, filter.destination_len, dump.protocol.0), (24, 24, 50));
    assert!(filter.matches(ip("192.0.2.77"), ip("192.0.2.1")));
    assert!(!filter.matches(ip("192.0.3.77"), ip("192.0.2.1")));
    let Request::FlushSa(flush) = asked("flush proto ah") else { panic!() };
    assert_eq!(flush.protocol.0, 51);
}

#[test]
fn larval_sas_are_those_of_the_kernel() {
    let mut answered = 0;
    for record in records().iter().filter(|record| record.command.contains("state allocspi")) {
        let (Some(request), Some(reply)) = (record.requests.first(), record.replies.first()) else {
            continue;
        };
        let request = Request::parse(&Messages::new(request).next().unwrap());
        let message = Messages::new(reply).next().unwrap();
        let (Ok(Some(Request::AllocSpi(alloc))), Ok(Reply::NewSa(sa))) =
            (request, Reply::parse(&message))
        else {
            continue;
        };
        let to = Address { seq: message.header().seq, port: message.header().port, multi: false };
        // The kernel's usual 30 seconds.
        let larval = alloc.larval(sa.info.spi, 30, sa.info.usage.add_time);
        assert_eq!(larval.answer(false, to).as_bytes(), message.as_bytes(), "{}", record.command);
        assert!((alloc.min..=alloc.max).contains(&sa.info.spi.unwrap().get()));
        answered += 1;
    }
    assert!(answered >= 2, "{answered}");
}

#[test]
fn policies_are_those_of_the_command() {
    let Request::UpdPolicy(policy) = asked("dir out priority 3 tmpl") else { panic!() };
    assert_eq!((policy.info.priority, policy.info.direction), (3, PolicyDirection::Out));
    let [template] = policy.templates[..] else { panic!("{policy:?}") };
    assert_eq!((template.source, template.destination), (ip("2001:db8::1"), ip("2001:db8::2")));
    assert_eq!((template.spi, template.mode), (Spi::new(0x1234), Mode::Tunnel));
    assert_eq!((template.algorithms, template.optional), ([u32::MAX; 3], false));

    let Request::NewPolicy(policy) = asked("level use tmpl proto esp") else { panic!() };
    let protocols = [SaProtocol::Comp, SaProtocol::Esp];
    assert!(policy.templates.iter().map(|template| template.protocol).eq(protocols));
    assert_eq!((policy.templates[0].optional, policy.templates[1].optional), (true, false));
    assert_eq!(policy.templates[1].mode, Mode::Transport);

    let Request::NewPolicy(policy) = asked("dir fwd action block") else { panic!() };
    assert_eq!((policy.info.action, policy.info.flags), (Action::Block, 3));
    assert_eq!(policy.info.direction, PolicyDirection::Forward);

    let Request::NewPolicy(policy) = asked("if_id 42 tmpl") else { panic!() };
    assert_eq!((policy.mark, policy.if_id), (Mark { value: 0x10, mask: 0xff }, 42));
    let addresses = networks(("2001:db8:1::", 48), ("2001:db8:2::", 48));
    assert_eq!(policy.info.selector.addresses, addresses);
    let Request::NewPolicy(policy) = asked("proto icmp type 8") else { panic!() };
    let selector = policy.info.selector;
    assert_eq!(selector.source_port, PortMask { value: 8, mask: 0xffff });
    assert_eq!(selector.destination_port, PortMask { value: 0, mask: 0xffff });
    assert_eq!((selector.protocol, selector.interface), (1, 1));
    let Request::NewPolicy(policy) = asked("gre key 5") else { panic!() };
    assert_eq!(policy.policy_type, Some(PolicyType::Sub));

    let Request::GetPolicy(key) = asked("get index 0x1001") else { panic!() };
    assert_eq!((key.name, key.direction), (PolicyName::Index(0x1001), PolicyDirection::Out));
    let Request::NewSpdInfo(set) = asked("set hthresh4 24") else { panic!() };
    assert_eq!(set.v6, Some(HashThreshold { local: 64, remote: 64 }));
    let Request::FlushPolicy(flush) = asked("flush ptype sub") else { panic!() };
    assert_eq!(flush.policy_type, Some(PolicyType::Sub));
}

#[test]
fn events_say_what_happened() {
    let all = records();
    let monitor = all.iter().find(|record| record.command == "ip xfrm monitor").unwrap();
    let events: Vec<Reply> = monitor
        .replies
        .iter()
        .flat_map(|reply| Messages::new(reply))
        .map(|message| Reply::parse(&message).unwrap())
        .collect();
    let acquire = events.iter().find_map(|event| match event {
        Reply::Acquire(acquire) => Some(acquire),
        _ => None,
    });
    let acquire = acquire.unwrap();
    assert_eq!((acquire.source, acquire.destination), (ip("192.0.2.1"), ip("192.0.2.2")));
    let addresses = networks(("10.1.0.1", 32), ("10.2.0.1", 32));
    assert_eq!(acquire.selector.addresses, addresses);
    assert_eq!((acquire.templates.len(), acquire.templates[0].reqid), (1, 16));
    let hard = |event: &&Reply| matches!(event, Reply::PolExpire(expire) if expire.hard);
    assert_eq!(events.iter().filter(hard).count(), 1);
    let soft = |event: &&Reply| matches!(event, Reply::PolExpire(expire) if !expire.hard);
    assert_eq!(events.iter().filter(soft).count(), 1);
    let gone = events.iter().find_map(|event| match event {
        Reply::DelSa(deleted) => Some(&deleted.sa),
        _ => None,
    });
    assert_eq!(gone.unwrap().info.spi, Spi::new(0x5000));
}

#[test]
fn the_kernels_refusals_are_read_with_their_words() {
    let all = records();
    let record = all.iter().find(|record| record.command.contains("spi 0x1000 ")).unwrap();
    let message = Messages::new(&record.replies[0]).next().unwrap();
    let Reply::Acknowledgement(acknowledged) = Reply::parse(&message).unwrap() else { panic!() };
    let refusal = Refusal::new(Errno::ENOSYS, "Requested AEAD algorithm not found");
    assert_eq!(acknowledged.refusal, Some(refusal));
}

const CHARON: &str = include_str!("../recorded/charon.txt");
const CHARON_ON_CONVOY: &str = include_str!("../recorded/charon-on-convoy.txt");
const PLUTO: &str = include_str!("../recorded/pluto.txt");
const PLUTO_ON_CONVOY: &str = include_str!("../recorded/pluto-on-convoy.txt");

/// Requests of a daemon under the configuration that has this in it.
fn daemon(text: &str, part: &str) -> Vec<Request> {
    let all = read(text);
    let record = all.iter().find(|record| record.command.contains(part)).unwrap();
    let messages = record.requests.iter().flat_map(|request| Messages::new(request));
    messages.map(|message| Request::parse(&message).unwrap().unwrap()).collect()
}

fn daemon_sas(text: &str, part: &str) -> Vec<Sa> {
    let sas = daemon(text, part).into_iter().filter_map(|request| match request {
        Request::NewSa(sa) | Request::UpdSa(sa) => Some(*sa),
        _ => None,
    });
    sas.collect()
}

#[test]
fn nothing_that_daemons_ask_is_left_over() {
    let mut asked = 0;
    let all = [CHARON, CHARON_ON_CONVOY, PLUTO, PLUTO_ON_CONVOY];
    for record in all.into_iter().flat_map(read) {
        for message in record.requests.iter().flat_map(|request| Messages::new(request)) {
            let request = Request::parse(&message).unwrap().unwrap();
            let others = match &request {
                Request::NewSa(sa) | Request::UpdSa(sa) => &sa.others,
                Request::DelSa(query) | Request::GetSa(query) => &query.others,
                Request::AllocSpi(alloc) => &alloc.others,
                Request::NewPolicy(policy) | Request::UpdPolicy(policy) => &policy.others,
                Request::DelPolicy(key) | Request::GetPolicy(key) => &key.others,
                Request::GetSpdInfo(query) => &query.others,
                other => panic!("{other:?}"),
            };
            assert!(others.is_empty(), "{request:?}");
            let built = request.build(message.header().seq, message.header().flags);
            let again = Messages::new(built.as_bytes()).next().unwrap();
            let again = Request::parse(&again).unwrap().unwrap();
            assert_eq!(format!("{request:?}"), format!("{again:?}"));
            asked += 1;
        }
    }
    assert!(asked > 200, "{asked}");
}

#[test]
fn charon_names_combined_algorithms_in_full() {
    let sas = daemon_sas(CHARON, "aes128gcm16");
    // First and two rekeyings, in and out.
    assert_eq!(sas.len(), 6);
    for sa in &sas {
        let Transform::Aead(aead) = &sa.transform else { panic!("{sa:?}") };
        let name = aead.name.as_str().unwrap();
        let known = convoy_xfrm::names::aead(name).unwrap();
        assert_eq!((name, aead.key.bits(), aead.icv_bits), ("rfc4106(gcm(aes))", 160, 128));
        assert!(known.key_bits.allow(160) && known.icv_bits(Some(128)) == Some(128));
        assert_eq!((sa.info.mode, sa.info.flags), (Mode::Tunnel, SaFlags::AF_UNSPEC));
        assert_eq!(sa.info.limits.add_seconds.hard, 3960);
        assert_eq!(sa.info.limits.bytes, Limits::NONE.bytes);
    }
    let Transform::Aead(aead) = &daemon_sas(CHARON, "chacha20poly1305")[0].transform else {
        panic!()
    };
    assert_eq!(aead.name.as_str(), Some("rfc7539esp(chacha20,poly1305)"));
}

#[test]
fn charon_says_esn_marks_and_encapsulation() {
    let sas = daemon_sas(CHARON, "aes256-sha256-esn");
    for sa in &sas {
        let Transform::Separate { cipher: Some(cipher), integrity: Some(integrity) } =
            &sa.transform
        else {
            panic!("{sa:?}")
        };
        assert_eq!((cipher.name.as_str(), cipher.key.bits()), (Some("aes"), 256));
        assert_eq!(convoy_xfrm::names::cipher("aes").unwrap().name, "cbc(aes)");
        let named = (integrity.name.as_str(), integrity.icv_bits);
        assert_eq!(named, (Some("hmac(sha256)"), Some(128)));
        assert!(sa.info.flags.any(SaFlags::ESN), "{sa:?}");
        assert_eq!((sa.if_id, sa.encap.unwrap().kind), (7, 2));
    }
    let inbound = |sa: &&Sa| sa.info.destination == ip("192.0.2.1");
    let window = |sa: &Sa| sa.state.replay_esn.as_ref().map(|replay| replay.window);
    assert!(sas.iter().filter(inbound).all(|sa| window(sa) == Some(128)));
    let outbound = |sa: &&Sa| sa.info.destination == ip("192.0.2.2");
    // Kernels insist on a window where no direction is said.
    assert!(sas.iter().filter(outbound).all(|sa| window(sa) == Some(1)));
    let mark = Mark { value: 42, mask: u32::MAX };
    assert!(sas.iter().filter(outbound).all(|sa| sa.mark == mark && sa.tfc_padding == Some(1400)));
}

#[test]
fn charon_compresses_first_and_encrypts_then() {
    let asked = daemon(CHARON, "ipcomp=yes");
    let policies = asked.iter().filter_map(|request| match request {
        Request::NewPolicy(policy) | Request::UpdPolicy(policy) => Some(policy),
        _ => None,
    });
    for policy in policies {
        let protocols = [SaProtocol::Comp, SaProtocol::Esp];
        assert!(policy.templates.iter().map(|template| template.protocol).eq(protocols));
        let optional = policy.info.direction != PolicyDirection::Out;
        assert_eq!(policy.templates[0].optional, optional, "{policy:?}");
        assert_eq!(policy.templates[0].mode, Mode::Transport);
    }
    let compressed = |sa: &&Sa| matches!(sa.transform, Transform::Compression(_));
    assert_eq!(daemon_sas(CHARON, "ipcomp=yes").iter().filter(compressed).count(), 6);
}

#[test]
fn charon_puts_the_spi_into_policies_out_and_blocks_nothing() {
    let mut trapped = 0;
    for request in daemon(CHARON, "start_action=trap") {
        let (Request::NewPolicy(policy) | Request::UpdPolicy(policy)) = request else { continue };
        assert_eq!(policy.info.action, Action::Allow);
        let [template] = policy.templates[..] else { panic!("{policy:?}") };
        if policy.info.direction != PolicyDirection::Out {
            assert_eq!(template.spi, None);
        } else if template.spi.is_none() {
            trapped += 1;
        }
    }
    assert!(trapped > 0, "a trap has no SPI yet");
}

#[test]
fn pluto_sends_truncations_and_windows_both_ways() {
    let found = daemon_sas(PLUTO, "esp=aes_gcm128");
    assert!(found.len() >= 4, "{}", found.len());
    for sa in &found {
        let Transform::Aead(aead) = &sa.transform else { panic!("{sa:?}") };
        assert_eq!((aead.key.bits(), aead.icv_bits), (160, 128));
        assert_eq!((sa.info.mode, sa.info.replay_window), (Mode::Tunnel, 0));
        // Also outbound; and it asks for ESN unless told not to.
        assert_eq!(sa.state.replay_esn.as_ref().unwrap().window, 128);
        assert!(sa.info.flags.any(SaFlags::ESN));
        assert_eq!(sa.info.limits.bytes.hard, 1 << 63);
        assert!(sa.info.limits.bytes.soft > 1 << 60, "{sa:?}");
    }
    let esp = |sa: &&Sa| sa.info.protocol == SaProtocol::Esp;
    let found = daemon_sas(PLUTO, "esn=yes");
    assert!(found.iter().filter(esp).count() >= 2);
    for sa in found.iter().filter(esp) {
        let Transform::Separate { cipher: Some(cipher), integrity: Some(integrity) } =
            &sa.transform
        else {
            panic!("{sa:?}")
        };
        assert_eq!((cipher.name.as_str(), cipher.key.bits()), (Some("aes"), 256));
        let named = (integrity.name.as_str(), integrity.icv_bits);
        assert_eq!(named, (Some("hmac(sha512)"), Some(256)));
        assert!(sa.info.flags.any(SaFlags::ESN));
        assert_eq!(sa.state.replay_esn.as_ref().unwrap().window, 256);
        assert_eq!(sa.encap.unwrap().kind, 2);
    }
}

#[test]
fn pluto_lets_neighbour_discovery_pass_and_traps_without_a_request_number() {
    let asked = daemon(PLUTO, "esp=aes_gcm128");
    let policies: Vec<_> = asked
        .iter()
        .filter_map(|request| match request {
            Request::UpdPolicy(policy) => Some(policy),
            _ => None,
        })
        .collect();
    let neighbours = policies.iter().filter(|policy| {
        let info = &policy.info;
        info.selector.protocol == 58 && info.priority == 1 && policy.templates.is_empty()
    });
    assert_eq!(neighbours.count(), 6);
    let trap = policies.iter().find(|policy| !policy.templates.is_empty()).unwrap();
    let [template] = trap.templates[..] else { panic!("{trap:?}") };
    assert_eq!((template.reqid, template.spi, template.mode), (0, None, Mode::Transport));
    assert!(template.source.is_unspecified() && template.destination.is_unspecified());
}
