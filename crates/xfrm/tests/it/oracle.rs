//! `netlink-packet-xfrm` and this crate mean the same by the same bytes, in both directions.

use std::net::IpAddr;

use crate::common::{only, reply, request};
use convoy_wire::{IpVersion, Spi};
use convoy_xfrm as ours;
use convoy_xfrm::{Address, Datagram, Flags, HEADER_LEN, Reply, Request};
use netlink_packet_core::{Emitable as _, ParseableParametrized as _};
use netlink_packet_xfrm as theirs;
use proptest::prelude::*;
use theirs::{XfrmAttrs, XfrmMessage};

/// Parses a message with the other crate.
fn read(built: &Datagram) -> XfrmMessage {
    let message = only(built.as_bytes());
    let body = &message.as_bytes()[HEADER_LEN..];
    XfrmMessage::parse_with_param(body, message.header().number).unwrap()
}

/// The message that the other crate builds, under the same header.
fn rebuild(built: &Datagram, message: &XfrmMessage) -> Vec<u8> {
    let mut body = vec![0; message.buffer_len()];
    message.emit(&mut body);
    let header = only(built.as_bytes()).header().len.to_ne_bytes();
    let mut bytes = built.as_bytes()[..HEADER_LEN].to_vec();
    assert_eq!(bytes[..4], header);
    bytes.extend(body);
    // It does not pad the last structure, which is shorter then.
    let len = u32::try_from(bytes.len()).unwrap().to_ne_bytes();
    bytes[..4].copy_from_slice(&len);
    bytes
}

fn address(ip: IpAddr) -> theirs::Address {
    theirs::Address::from_ip(&ip)
}

fn family(ip: IpAddr) -> u16 {
    if ip.is_ipv4() { 2 } else { 10 }
}

fn spi(spi: Option<Spi>) -> u32 {
    spi.map_or(0, Spi::get)
}

fn agree_on_selector(one: &ours::Selector, other: &theirs::Selector) {
    match one.addresses {
        ours::Addresses::Networks { source, destination } => {
            assert_eq!(other.family, family(source.address));
            assert_eq!(other.saddr, address(source.address));
            assert_eq!(other.daddr, address(destination.address));
            assert_eq!(other.prefixlen_s, source.prefix_len);
            assert_eq!(other.prefixlen_d, destination.prefix_len);
        }
        ours::Addresses::Unspecified { source, destination, prefix_lens } => {
            assert_eq!(other.family, 0);
            assert_eq!((other.saddr.addr, other.daddr.addr), (source, destination));
            assert_eq!((other.prefixlen_s, other.prefixlen_d), prefix_lens);
        }
    }
    assert_eq!((other.sport, other.sport_mask), (one.source_port.value, one.source_port.mask));
    let port = one.destination_port;
    assert_eq!((other.dport, other.dport_mask), (port.value, port.mask));
    assert_eq!((other.proto, other.ifindex, other.user), (one.protocol, one.interface, one.user));
}

fn agree_on_limits(one: &ours::Limits, other: &theirs::LifetimeConfig) {
    let limit = |soft, hard| ours::Limit { soft, hard };
    assert_eq!(one.bytes, limit(other.soft_byte_limit, other.hard_byte_limit));
    assert_eq!(one.packets, limit(other.soft_packet_limit, other.hard_packet_limit));
    let (soft, hard) = (other.soft_add_expires_seconds, other.hard_add_expires_seconds);
    assert_eq!(one.add_seconds, limit(soft, hard));
    let (soft, hard) = (other.soft_use_expires_seconds, other.hard_use_expires_seconds);
    assert_eq!(one.use_seconds, limit(soft, hard));
}

fn usage(other: &theirs::Lifetime) -> ours::Usage {
    let theirs::Lifetime { bytes, packets, add_time, use_time } = *other;
    ours::Usage { bytes, packets, add_time, use_time }
}

fn agree_on_sa_info(one: &ours::SaInfo, other: &theirs::UserSaInfo) {
    agree_on_selector(&one.selector, &other.selector);
    agree_on_limits(&one.limits, &other.lifetime_cfg);
    assert_eq!(one.usage, usage(&other.lifetime_cur));
    assert_eq!(other.id.daddr, address(one.destination));
    assert_eq!(other.saddr, address(one.source));
    assert_eq!(other.family, family(one.destination));
    assert_eq!((other.id.spi, other.id.proto), (spi(one.spi), one.protocol.number()));
    assert_eq!((other.seq, other.reqid), (one.seq, one.reqid));
    let terms = (one.mode.number(), one.replay_window, one.flags.0);
    assert_eq!((other.mode, other.replay_window, other.flags), terms);
    let failures = one.failures;
    assert_eq!(other.stats.replay_window, failures.replay_window);
    assert_eq!(other.stats.replay, failures.replay);
    assert_eq!(other.stats.integrity_failed, failures.integrity_failed);
}

fn name(other: &[u8; 64]) -> ours::AlgorithmName {
    let len = other.iter().position(|byte| *byte == 0).unwrap();
    ours::AlgorithmName::new(std::str::from_utf8(&other[..len]).unwrap()).unwrap()
}

fn agree_on_key(one: &ours::Key, bits: u32, bytes: &[u8]) {
    assert_eq!((one.bits(), one.expose()), (bits, bytes));
}

/// Compares an SA's attributes. Those that the other crate does not know are left out.
fn agree_on_attributes(sa: &ours::Sa, attributes: &[XfrmAttrs]) {
    for attribute in attributes {
        match attribute {
            XfrmAttrs::EncryptionAlgAead(other) => {
                let ours::Transform::Aead(aead) = &sa.transform else { panic!("{sa:?}") };
                assert_eq!((name(&other.alg_name), other.alg_icv_len), (aead.name, aead.icv_bits));
                agree_on_key(&aead.key, other.alg_key_len, &other.alg_key);
            }
            XfrmAttrs::EncryptionAlg(other) => {
                let ours::Transform::Separate { cipher: Some(cipher), .. } = &sa.transform else {
                    panic!("{sa:?}")
                };
                assert_eq!(name(&other.alg_name), cipher.name);
                agree_on_key(&cipher.key, other.alg_key_len, &other.alg_key);
            }
            XfrmAttrs::AuthenticationAlg(other) => {
                let integrity = integrity(sa);
                assert_eq!(name(&other.alg_name), integrity.name);
                agree_on_key(&integrity.key, other.alg_key_len, &other.alg_key);
            }
            XfrmAttrs::AuthenticationAlgTrunc(other) => {
                let integrity = integrity(sa);
                assert_eq!(name(&other.alg_name), integrity.name);
                assert_eq!(Some(other.alg_trunc_len), integrity.icv_bits);
                agree_on_key(&integrity.key, other.alg_key_len, &other.alg_key);
            }
            XfrmAttrs::EncapsulationTemplate(other) => {
                let encap = sa.encap.unwrap();
                let ports = (encap.source_port, encap.destination_port);
                assert_eq!((other.encap_sport, other.encap_dport), ports);
                assert_eq!(other.encap_type, encap.kind);
                assert_eq!(other.encap_oa, address(encap.original));
            }
            XfrmAttrs::ReplayState(other) => {
                let (sent, received, bitmap) = (other.oseq, other.seq, other.bitmap);
                assert_eq!(sa.state.replay, Some(ours::Replay { sent, received, bitmap }));
            }
            XfrmAttrs::ReplayStateEsn(other) => {
                let replay = sa.state.replay_esn.as_ref().unwrap();
                let join = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
                assert_eq!(replay.sent, join(other.oseq_hi, other.oseq));
                assert_eq!(replay.received, join(other.seq_hi, other.seq));
                assert_eq!((replay.window, &replay.bitmap), (other.replay_window, &other.bmp));
            }
            XfrmAttrs::LifetimeBytes(other) => assert_eq!(sa.state.usage, Some(usage(other))),
            XfrmAttrs::ReplayThreshold(other) => {
                assert_eq!(sa.state.replay_threshold, Some(*other));
            }
            XfrmAttrs::EventTimeThreshold(other) => {
                assert_eq!(sa.state.timer_threshold, Some(*other));
            }
            XfrmAttrs::ExtraFlags(other) => assert_eq!(sa.extra_flags, *other),
            XfrmAttrs::Mark(other) => assert_eq!(sa.mark, mark(other)),
            XfrmAttrs::MarkVal(other) => assert_eq!(sa.output_mark.value, *other),
            XfrmAttrs::MarkMask(other) => assert_eq!(sa.output_mark.mask, *other),
            XfrmAttrs::IfId(other) => assert_eq!(sa.if_id, *other),
            XfrmAttrs::TfcPadding(other) => assert_eq!(sa.tfc_padding, Some(*other)),
            XfrmAttrs::MappingTimeThreshold(other) => {
                assert_eq!(sa.mapping_threshold, Some(*other));
            }
            XfrmAttrs::LastUsed(other) => assert_eq!(sa.last_used, Some(*other)),
            XfrmAttrs::CareOfAddr(other) => assert_eq!(address(sa.care_of.unwrap()), *other),
            _ => agree_on_shared(sa.security.as_ref(), sa.offload, attribute),
        }
    }
}

fn integrity(sa: &ours::Sa) -> &ours::Integrity {
    match &sa.transform {
        ours::Transform::Separate { integrity: Some(integrity), .. } => integrity,
        _ => panic!("{sa:?}"),
    }
}

fn mark(other: &theirs::Mark) -> ours::Mark {
    ours::Mark { value: other.value, mask: other.mask }
}

/// Attributes of SAs and policies alike.
fn agree_on_shared(
    security: Option<&ours::SecurityContext>,
    offload: Option<ours::Offload>,
    attribute: &XfrmAttrs,
) {
    match attribute {
        XfrmAttrs::SecurityContext(other) => {
            let security = security.unwrap();
            assert_eq!((other.ctx_doi, other.ctx_alg), (security.doi, security.algorithm));
            assert_eq!(other.ctx_str, security.label);
        }
        XfrmAttrs::OffloadDevice(other) => {
            let offload = offload.unwrap();
            assert_eq!((other.ifindex, other.flags), (offload.interface, offload.flags));
        }
        // Numbers from 33 on, and plain compressions.
        XfrmAttrs::Other(_) | XfrmAttrs::CompressionAlg(_) => {}
        other => panic!("{other:?}"),
    }
}

fn agree_on_policy_info(one: &ours::PolicyInfo, other: &theirs::UserPolicyInfo) {
    agree_on_selector(&one.selector, &other.selector);
    agree_on_limits(&one.limits, &other.lifetime_cfg);
    assert_eq!(one.usage, usage(&other.lifetime_cur));
    assert_eq!((other.priority, other.index, other.flags), (one.priority, one.index, one.flags));
    assert_eq!(other.direction, direction(one.direction));
    assert_eq!(other.action, u8::from(one.action == ours::Action::Block));
    assert_eq!(other.share, share(one.share));
}

fn direction(direction: ours::PolicyDirection) -> u8 {
    match direction {
        ours::PolicyDirection::In => 0,
        ours::PolicyDirection::Out => 1,
        ours::PolicyDirection::Forward => 2,
    }
}

fn share(share: ours::Share) -> u8 {
    match share {
        ours::Share::Any => 0,
        ours::Share::Session => 1,
        ours::Share::User => 2,
        ours::Share::Unique => 3,
    }
}

fn agree_on_templates(ones: &[ours::Template], others: &[theirs::UserTemplate]) {
    assert_eq!(ones.len(), others.len());
    for (one, other) in ones.iter().zip(others) {
        assert_eq!(other.id.daddr, address(one.destination));
        assert_eq!(other.saddr, address(one.source));
        assert_eq!(other.family, family(one.source));
        assert_eq!((other.id.spi, other.id.proto), (spi(one.spi), one.protocol.number()));
        assert_eq!((other.reqid, other.mode), (one.reqid, one.mode.number()));
        assert_eq!((other.share, other.optional), (share(one.share), u8::from(one.optional)));
        assert_eq!([other.aalgos, other.ealgos, other.calgos], one.algorithms);
    }
}

fn agree_on_policy(policy: &ours::Policy, attributes: &[XfrmAttrs]) {
    let mut templates = false;
    for attribute in attributes {
        match attribute {
            XfrmAttrs::Template(others) => {
                agree_on_templates(&policy.templates, others);
                templates = true;
            }
            XfrmAttrs::PolicyType(other) => {
                let sub = policy.policy_type == Some(ours::PolicyType::Sub);
                assert_eq!(other.ptype, u8::from(sub));
            }
            XfrmAttrs::Mark(other) => assert_eq!(policy.mark, mark(other)),
            XfrmAttrs::IfId(other) => assert_eq!(policy.if_id, *other),
            _ => agree_on_shared(policy.security.as_ref(), policy.offload, attribute),
        }
    }
    assert_eq!(templates, !policy.templates.is_empty());
}

fn agree_on_request(request: &Request, other: &XfrmMessage) {
    match (request, other) {
        (Request::NewSa(sa), XfrmMessage::AddSa(other))
        | (Request::UpdSa(sa), XfrmMessage::UpdateSa(other)) => {
            agree_on_sa_info(&sa.info, &other.user_sa_info);
            agree_on_attributes(sa, &other.nlas);
        }
        (Request::NewPolicy(policy), XfrmMessage::AddPolicy(other))
        | (Request::UpdPolicy(policy), XfrmMessage::UpdatePolicy(other)) => {
            agree_on_policy_info(&policy.info, &other.user_policy_info);
            agree_on_policy(policy, &other.nlas);
        }
        (Request::AllocSpi(alloc), XfrmMessage::AllocSpi(other)) => {
            let info = &other.spi_info.info;
            assert_eq!((other.spi_info.min, other.spi_info.max), (alloc.min, alloc.max));
            assert_eq!(info.id.daddr, address(alloc.destination));
            assert_eq!(info.saddr, address(alloc.source));
            assert_eq!((info.seq, info.reqid), (alloc.seq, alloc.reqid));
            assert_eq!((info.id.proto, info.mode), (alloc.protocol.number(), alloc.mode.number()));
        }
        (
            Request::GetSa(query) | Request::DelSa(query),
            XfrmMessage::GetSa(other) | XfrmMessage::DeleteSa(other),
        ) => {
            let id = &other.user_sa_id;
            assert_eq!(id.daddr, address(query.key.destination));
            assert_eq!(id.family, family(query.key.destination));
            assert_eq!((id.spi, id.proto), (spi(query.key.spi), query.key.protocol.number()));
        }
        (
            Request::GetPolicy(key) | Request::DelPolicy(key),
            XfrmMessage::GetPolicy(other) | XfrmMessage::DeletePolicy(other),
        ) => {
            let id = &other.user_policy_id;
            assert_eq!(id.direction, direction(key.direction));
            match &key.name {
                ours::PolicyName::Index(index) => assert_eq!(id.index, *index),
                ours::PolicyName::Selector(selector) => agree_on_selector(selector, &id.selector),
            }
        }
        (Request::FlushSa(flush), XfrmMessage::FlushSa(other)) => {
            assert_eq!(flush.protocol.0, other.protocol);
        }
        (Request::SetDefault(defaults), XfrmMessage::SetPolicyDefault(other)) => {
            let action = |action| match action {
                None => 0,
                Some(ours::DefaultAction::Block) => 1,
                Some(ours::DefaultAction::Accept) => 2,
            };
            let given = (defaults.input, defaults.forward, defaults.output);
            let theirs::UserPolicyDefault { input, forward, output, .. } = other.user_policy;
            assert_eq!(
                (action(given.0), action(given.1), action(given.2)),
                (input, forward, output)
            );
        }
        (Request::NewAe(event), XfrmMessage::NewAsyncEvent(other)) => {
            let id = &other.id;
            assert_eq!(id.sa_id.daddr, address(event.sa.destination));
            assert_eq!((id.saddr, id.sa_id.spi), (address(event.source), spi(event.sa.spi)));
            assert_eq!((id.flags, id.reqid), (event.flags, event.reqid));
        }
        // The rest is told apart by its bytes alone.
        _ => {}
    }
}

fn agree_on_reply(reply: &Reply, other: &XfrmMessage) {
    match (reply, other) {
        (Reply::NewSa(sa), XfrmMessage::AddSa(other))
        | (Reply::UpdSa(sa), XfrmMessage::UpdateSa(other)) => {
            agree_on_sa_info(&sa.info, &other.user_sa_info);
            agree_on_attributes(sa, &other.nlas);
        }
        (Reply::NewPolicy(policy), XfrmMessage::AddPolicy(other)) => {
            agree_on_policy_info(&policy.info, &other.user_policy_info);
            agree_on_policy(policy, &other.nlas);
        }
        (Reply::PolExpire(event), XfrmMessage::PolicyExpire(other)) => {
            agree_on_policy_info(&event.policy.info, &other.expire.pol);
            assert_eq!(other.expire.hard, u8::from(event.hard));
        }
        (Reply::Acquire(event), XfrmMessage::Acquire(other)) => {
            let acquire = &other.acquire;
            agree_on_selector(&event.selector, &acquire.selector);
            agree_on_policy_info(&event.policy, &acquire.policy);
            assert_eq!(acquire.saddr, address(event.source));
            assert_eq!(acquire.id.daddr, address(event.destination));
            assert_eq!(acquire.id.spi, spi(event.spi));
            assert_eq!(acquire.seq, event.seq);
            assert_eq!([acquire.aalgos, acquire.ealgos, acquire.calgos], event.algorithms);
        }
        (Reply::Expire(event), XfrmMessage::Expire(other)) => {
            agree_on_sa_info(&event.sa, &other.expire.state);
            assert_eq!(other.expire.hard, u8::from(event.hard));
        }
        (Reply::Mapping(event), XfrmMessage::Mapping(other)) => {
            let map = &other.map;
            assert_eq!((map.old_saddr, map.old_sport), (address(event.old.ip()), event.old.port()));
            assert_eq!((map.new_saddr, map.new_sport), (address(event.new.ip()), event.new.port()));
            assert_eq!((map.id.spi, map.reqid), (spi(event.sa.spi), event.reqid));
            let version = IpVersion::of_addr(event.sa.destination);
            assert_eq!(map.id.family, if version == IpVersion::V4 { 2 } else { 10 });
        }
        (Reply::NewSadInfo(info), XfrmMessage::NewSadInfo(other)) => {
            assert_eq!(other.flags, info.flags);
            let count = theirs::state::SadInfoAttrs::SadCount(info.count);
            assert!(other.nlas.contains(&count), "{other:?}");
        }
        (Reply::NewSpdInfo(info), XfrmMessage::NewSpdInfo(other)) => {
            let [incnt, outcnt, fwdcnt, inscnt, outscnt, fwdscnt] = info.counts;
            let counts =
                theirs::policy::SpdInfo { incnt, outcnt, fwdcnt, inscnt, outscnt, fwdscnt };
            let counts = theirs::policy::SpdInfoAttrs::SpdInfo(counts);
            assert!(other.nlas.contains(&counts), "{other:?}");
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn requests_mean_the_same(request in request()) {
        // The other crate knows dumps only when it sends them.
        prop_assume!(!matches!(request, Request::DumpSa(_) | Request::DumpPolicy));
        let built = request.build(1, Flags::ACK);
        let other = read(&built);
        agree_on_request(&request, &other);
        // It takes attributes for granted not to be there.
        prop_assume!(!matches!(request, Request::GetAe(_)));
        let back = Request::parse(&only(&rebuild(&built, &other))).unwrap().unwrap();
        let again = back.build(1, Flags::ACK);
        prop_assert_eq!(again.as_bytes(), built.as_bytes());
    }

    #[test]
    fn replies_mean_the_same(reply in reply()) {
        // It leaves netlink's own messages to another crate.
        prop_assume!(!matches!(reply, Reply::Done(_)));
        let to = Address { seq: 1, port: 2, multi: false };
        let built = reply.build(to).unwrap();
        let other = read(&built);
        agree_on_reply(&reply, &other);
        prop_assume!(!matches!(reply, Reply::Expire(_)));
        let back = Reply::parse(&only(&rebuild(&built, &other))).unwrap();
        let again = back.build(to).unwrap();
        prop_assert_eq!(again.as_bytes(), built.as_bytes());
    }
}
