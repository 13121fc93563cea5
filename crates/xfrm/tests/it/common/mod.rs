//! Messages of every kind, as properties need them.
#![allow(dead_code)] // each test program uses a part

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use convoy_wire::{IpVersion, Spi};
use convoy_xfrm::*;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// The messages of what was built: always one.
pub(crate) fn only(bytes: &[u8]) -> Message<'_> {
    let mut messages = Messages::new(bytes);
    let message = messages.next().expect("a message");
    assert!(messages.next().is_none(), "more than one message");
    message
}

pub(crate) fn version() -> impl Strategy<Value = IpVersion> {
    prop_oneof![Just(IpVersion::V4), Just(IpVersion::V6)]
}

pub(crate) fn address(version: IpVersion) -> BoxedStrategy<IpAddr> {
    match version {
        IpVersion::V4 => any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from(bits))).boxed(),
        IpVersion::V6 => any::<u128>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from(bits))).boxed(),
    }
}

fn network(version: IpVersion) -> impl Strategy<Value = Network> {
    (address(version), 0..=version.address_bits())
        .prop_map(|(address, prefix_len)| Network { address, prefix_len })
}

fn port() -> impl Strategy<Value = PortMask> {
    any::<(u16, u16)>().prop_map(|(value, mask)| PortMask { value, mask })
}

pub(crate) fn selector(version: IpVersion) -> impl Strategy<Value = Selector> {
    let networks = (network(version), network(version));
    (networks, port(), port(), any::<u8>(), any::<i32>(), any::<u32>()).prop_map(
        |((source, destination), source_port, destination_port, protocol, interface, user)| {
            Selector {
                addresses: Addresses::Networks { source, destination },
                source_port,
                destination_port,
                protocol,
                interface,
                user,
            }
        },
    )
}

fn limit() -> impl Strategy<Value = Limit> {
    any::<(u64, u64)>().prop_map(|(soft, hard)| Limit { soft, hard })
}

pub(crate) fn limits() -> impl Strategy<Value = Limits> {
    (limit(), limit(), limit(), limit()).prop_map(|(bytes, packets, add_seconds, use_seconds)| {
        Limits { bytes, packets, add_seconds, use_seconds }
    })
}

pub(crate) fn usage() -> impl Strategy<Value = Usage> {
    any::<[u64; 4]>().prop_map(|[bytes, packets, add_time, use_time]| Usage {
        bytes,
        packets,
        add_time,
        use_time,
    })
}

pub(crate) fn mark() -> impl Strategy<Value = Mark> {
    prop_oneof![
        Just(Mark::default()),
        any::<(u32, u32)>().prop_map(|(value, mask)| Mark { value, mask })
    ]
}

fn security() -> impl Strategy<Value = Option<SecurityContext>> {
    let context = (any::<(u8, u8, u16)>(), vec(any::<u8>(), 0..40)).prop_map(
        |((doi, algorithm, extension), label)| SecurityContext { doi, algorithm, extension, label },
    );
    option::weighted(0.2, context)
}

fn offload() -> impl Strategy<Value = Option<Offload>> {
    let offload = any::<(i32, u8)>().prop_map(|(interface, flags)| Offload { interface, flags });
    option::weighted(0.1, offload)
}

fn name(names: &'static [&'static str]) -> impl Strategy<Value = AlgorithmName> {
    prop_oneof![
        9 => prop::sample::select(names).prop_map(str::to_owned),
        1 => "[a-z()0-9,]{0,63}",
    ]
    .prop_map(|name| AlgorithmName::new(&name).expect("short enough"))
}

fn key() -> impl Strategy<Value = Key> {
    vec(any::<u8>(), 0..70).prop_map(|bytes| Key::new(&bytes).expect("short enough"))
}

fn aead() -> impl Strategy<Value = Transform> {
    let names = &["rfc4106(gcm(aes))", "rfc7539esp(chacha20,poly1305)", "rfc4309(ccm(aes))"];
    (name(names), key(), prop::sample::select(vec![64, 96, 128]))
        .prop_map(|(name, key, icv_bits)| Transform::Aead(Aead { name, key, icv_bits }))
}

fn integrity() -> impl Strategy<Value = Integrity> {
    let names = &["sha1", "hmac(sha256)", "sha256", "xcbc(aes)", "hmac(sha512)", "cmac(aes)"];
    (name(names), key(), option::of(prop::sample::select(vec![0, 96, 128, 256, 999])))
        .prop_map(|(name, key, icv_bits)| Integrity { name, key, icv_bits })
}

fn algorithm(names: &'static [&'static str]) -> impl Strategy<Value = Algorithm> {
    (name(names), key()).prop_map(|(name, key)| Algorithm { name, key })
}

fn cipher() -> impl Strategy<Value = Algorithm> {
    algorithm(&["aes", "cbc(aes)", "ecb(cipher_null)", "rfc3686(ctr(aes))", "des3_ede"])
}

fn esp() -> impl Strategy<Value = Transform> {
    let both = |(cipher, integrity)| Transform::Separate { cipher, integrity };
    prop_oneof![
        aead(),
        (cipher().prop_map(Some), option::of(integrity())).prop_map(both),
        (option::of(cipher()), integrity().prop_map(Some)).prop_map(both),
    ]
}

fn transform(protocol: SaProtocol) -> BoxedStrategy<Transform> {
    match protocol {
        SaProtocol::Esp => esp().boxed(),
        SaProtocol::Ah => integrity()
            .prop_map(|integrity| Transform::Separate { cipher: None, integrity: Some(integrity) })
            .boxed(),
        SaProtocol::Comp => algorithm(&["deflate", "lzs"]).prop_map(Transform::Compression).boxed(),
        _ => (0..1).prop_map(|_| Transform::None).boxed(),
    }
}

fn encap(version: IpVersion) -> impl Strategy<Value = Option<Encap>> {
    let encap = (any::<(u16, u16, u16)>(), address(version)).prop_map(
        |((kind, source_port, destination_port), original)| {
            let kind = if kind % 2 == 0 { 2 } else { kind };
            Encap { kind, source_port, destination_port, original }
        },
    );
    option::of(encap)
}

fn replay_esn() -> impl Strategy<Value = ReplayEsn> {
    (any::<(u64, u64)>(), vec(any::<u32>(), 0..=128), any::<prop::sample::Index>()).prop_map(
        |((sent, received), bitmap, window)| {
            let bits = bitmap.len() * 32;
            let window = u32::try_from(window.index(bits + 1)).unwrap();
            ReplayEsn { sent, received, window, bitmap }
        },
    )
}

fn replay() -> impl Strategy<Value = Replay> {
    any::<(u32, u32, u32)>().prop_map(|(sent, received, bitmap)| Replay { sent, received, bitmap })
}

pub(crate) fn state() -> impl Strategy<Value = SaState> {
    let u32s = (option::of(any::<u32>()), option::of(any::<u32>()));
    (option::of(replay()), option::of(replay_esn()), option::of(usage()), u32s).prop_map(
        |(replay, replay_esn, usage, (replay_threshold, timer_threshold))| SaState {
            replay,
            replay_esn,
            usage,
            replay_threshold,
            timer_threshold,
        },
    )
}

pub(crate) fn spi() -> impl Strategy<Value = Option<Spi>> {
    prop_oneof![Just(None), any::<u32>().prop_map(Spi::new)]
}

fn ipsec() -> impl Strategy<Value = SaProtocol> {
    prop_oneof![
        6 => Just(SaProtocol::Esp),
        2 => Just(SaProtocol::Ah),
        1 => Just(SaProtocol::Comp)
    ]
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Transport), Just(Mode::Tunnel), Just(Mode::Beet)]
}

fn failures() -> impl Strategy<Value = Failures> {
    any::<(u32, u32, u32)>().prop_map(|(replay_window, replay, integrity_failed)| Failures {
        replay_window,
        replay,
        integrity_failed,
    })
}

pub(crate) fn sa_info(version: IpVersion) -> impl Strategy<Value = SaInfo> {
    let who = (selector(version), address(version), address(version), spi(), ipsec());
    let what = (limits(), usage(), failures());
    let rest = (any::<u32>(), any::<u32>(), mode(), 0..33_u8, any::<u8>());
    (who, what, rest).prop_map(|(who, (limits, usage, failures), rest)| {
        let (selector, destination, source, spi, protocol) = who;
        let (seq, reqid, mode, replay_window, flags) = rest;
        // A tunnel for both versions has no selector.
        let addresses = if flags & SaFlags::AF_UNSPEC.0 == 0 {
            selector.addresses
        } else {
            Selector::any_but_showing(source, destination).addresses
        };
        let selector = Selector { addresses, ..selector };
        let flags = SaFlags(flags);
        SaInfo {
            selector,
            destination,
            source,
            spi,
            protocol,
            limits,
            usage,
            failures,
            seq,
            reqid,
            mode,
            replay_window,
            flags,
        }
    })
}

pub(crate) fn direction() -> impl Strategy<Value = Option<SaDirection>> {
    option::of(prop_oneof![Just(SaDirection::In), Just(SaDirection::Out)])
}

/// An SA as an answer shows it, with any combination of terms.
pub(crate) fn any_sa() -> impl Strategy<Value = Box<Sa>> {
    version().prop_flat_map(|version| {
        let core =
            sa_info(version).prop_flat_map(|info| (transform(info.protocol), Just(info)).boxed());
        let number = || prop_oneof![Just(0), any::<u32>()];
        let seldom = || option::weighted(0.15, any::<u32>());
        let first = (state(), encap(version), option::weighted(0.1, address(version)), security());
        let second = (seldom(), number(), mark(), mark(), number());
        let third =
            (offload(), direction(), number(), seldom(), seldom(), option::of(any::<u64>()));
        (core, first, second, third).prop_map(|((transform, info), first, second, third)| {
            let (state, encap, care_of, security) = first;
            let (tfc_padding, extra_flags, mark, output_mark, if_id) = second;
            let (offload, direction, nat_keepalive, cpu, mapping_threshold, last_used) = third;
            Box::new(Sa {
                transform,
                state,
                encap,
                care_of,
                security,
                tfc_padding,
                extra_flags,
                mark,
                output_mark,
                if_id,
                offload,
                direction,
                nat_keepalive,
                cpu,
                mapping_threshold,
                last_used,
                ..Sa::new(info)
            })
        })
    })
}

/// An SA whose terms go together, as a request has to have them.
pub(crate) fn sa() -> impl Strategy<Value = Box<Sa>> {
    any_sa().prop_map(|mut sa| {
        agree_with_protocol(&mut sa);
        let Sa { info, state, direction, .. } = &mut *sa;
        match &state.replay_esn {
            None => info.flags.0 &= !SaFlags::ESN.0,
            Some(replay) => {
                info.replay_window = 0;
                if replay.window == 0 && *direction != Some(SaDirection::Out) {
                    info.flags.0 &= !SaFlags::ESN.0;
                }
            }
        }
        agree_with_direction(&mut sa);
        if sa.encap.is_none() {
            sa.mapping_threshold = None;
        }
        sa
    })
}

fn agree_with_protocol(sa: &mut Sa) {
    let info = &mut sa.info;
    if info.protocol != SaProtocol::Esp || info.mode != Mode::Tunnel {
        sa.tfc_padding = None;
    }
    if info.protocol == SaProtocol::Comp {
        info.spi = info.spi.and_then(|spi| Spi::new(spi.get() & 0xffff));
        sa.state.replay_esn = None;
    }
}

fn agree_with_direction(sa: &mut Sa) {
    let (info, state) = (&mut sa.info, &mut sa.state);
    match sa.direction {
        Some(SaDirection::Out) => {
            let never = SaFlags::DECAP_DSCP.0 | SaFlags::ICMP.0 | SaFlags::WILD_RECEIVE.0;
            info.flags.0 &= !never;
            info.replay_window = 0;
            if let Some(replay) = &mut state.replay {
                (replay.received, replay.bitmap) = (0, 0);
            }
            if let Some(replay) = &mut state.replay_esn {
                (replay.received, replay.window) = (0, 0);
                replay.bitmap.clear();
                agree_with_esn(&mut replay.sent, info.flags);
            }
            sa.mapping_threshold = None;
        }
        Some(SaDirection::In) => {
            info.flags.0 &= !SaFlags::NO_PMTU_DISCOVERY.0;
            sa.extra_flags &= !(EXTRA_DONT_ENCAP_DSCP | EXTRA_OSEQ_MAY_WRAP);
            if let Some(replay) = &mut state.replay_esn {
                replay.sent = 0;
                agree_with_esn(&mut replay.received, info.flags);
            }
        }
        None => sa.cpu = None,
    }
    if sa.direction != Some(SaDirection::Out) || sa.encap.is_none_or(|encap| encap.kind != 2) {
        sa.nat_keepalive = 0;
    }
}

/// Numbers without ESN are of 32 bits, and none is the last.
fn agree_with_esn(number: &mut u64, flags: SaFlags) {
    *number >>= if flags.any(SaFlags::ESN) { 1 } else { 33 };
}

fn policy_direction() -> impl Strategy<Value = PolicyDirection> {
    prop_oneof![
        Just(PolicyDirection::In),
        Just(PolicyDirection::Out),
        Just(PolicyDirection::Forward)
    ]
}

fn share() -> impl Strategy<Value = Share> {
    prop_oneof![Just(Share::Any), Just(Share::Session), Just(Share::User), Just(Share::Unique)]
}

fn policy_type() -> impl Strategy<Value = Option<PolicyType>> {
    option::of(prop_oneof![Just(PolicyType::Main), Just(PolicyType::Sub)])
}

fn direction_number(direction: PolicyDirection) -> u32 {
    match direction {
        PolicyDirection::In => 0,
        PolicyDirection::Out => 1,
        PolicyDirection::Forward => 2,
    }
}

pub(crate) fn policy_info(version: IpVersion) -> impl Strategy<Value = PolicyInfo> {
    let who =
        (selector(version), limits(), usage(), any::<u32>(), prop_oneof![Just(0), 1..1000_u32]);
    let action = prop_oneof![Just(Action::Allow), Just(Action::Block)];
    (who, policy_direction(), action, 0..4_u8, share()).prop_map(
        |((selector, limits, usage, priority, index), direction, action, flags, share)| {
            let index = if index == 0 { 0 } else { index * 8 + direction_number(direction) };
            PolicyInfo { selector, limits, usage, priority, index, direction, action, flags, share }
        },
    )
}

fn template(version: IpVersion, direction: PolicyDirection) -> impl Strategy<Value = Template> {
    // Only tunnels change the version.
    let outer = (mode(), self::version()).prop_map(move |(mode, other)| {
        (mode, if mode == Mode::Transport { version } else { other })
    });
    let addresses =
        outer.prop_flat_map(|(mode, version)| (Just(mode), address(version), address(version)));
    (addresses, ipsec(), spi(), any::<u32>(), share(), any::<bool>(), any::<[u32; 3]>()).prop_map(
        move |((mode, source, destination), protocol, spi, reqid, share, optional, algorithms)| {
            let optional =
                optional && (mode == Mode::Transport || direction != PolicyDirection::Out);
            Template {
                protocol,
                spi,
                source,
                destination,
                reqid,
                mode,
                share,
                optional,
                algorithms,
            }
        },
    )
}

/// A first step that may change the version, and more that do not.
fn templates(version: IpVersion, direction: PolicyDirection) -> BoxedStrategy<Vec<Template>> {
    let first = vec(template(version, direction), 0..=1);
    first
        .prop_flat_map(move |first| {
            let version = first.first().map(|template| IpVersion::of_addr(template.source));
            let (min, max) = if version.is_some() { (0, TEMPLATES_MAX - 1) } else { (0, 0) };
            let rest = template(version.unwrap_or(IpVersion::V4), direction)
                .prop_map(move |template| same_version(template, version));
            (Just(first), vec(rest, min..=max))
        })
        .prop_map(|(first, rest)| [first, rest].concat())
        .boxed()
}

fn same_version(template: Template, version: Option<IpVersion>) -> Template {
    if Some(IpVersion::of_addr(template.source)) == version {
        return template;
    }
    let any = match version {
        Some(IpVersion::V6) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        _ => IpAddr::V4(Ipv4Addr::LOCALHOST),
    };
    Template { source: any, destination: any, ..template }
}

pub(crate) fn policy() -> impl Strategy<Value = Box<Policy>> {
    version()
        .prop_flat_map(|version| (Just(version), policy_info(version)))
        .prop_flat_map(|(version, info)| (Just(info), templates(version, info.direction)))
        .prop_flat_map(|(info, templates)| {
            let rest = (security(), policy_type(), mark(), any::<u32>(), offload());
            (Just(info), Just(templates), rest)
        })
        .prop_map(|(info, templates, (security, policy_type, mark, if_id, offload))| {
            Box::new(Policy {
                info,
                templates,
                security,
                policy_type,
                mark,
                if_id,
                offload,
                others: Others::default(),
            })
        })
}

pub(crate) fn policy_key() -> impl Strategy<Value = Box<PolicyKey>> {
    let name = prop_oneof![
        (1..u32::MAX).prop_map(PolicyName::Index),
        version().prop_flat_map(selector).prop_map(PolicyName::Selector)
    ];
    (name, policy_direction(), policy_type(), mark(), any::<u32>(), security()).prop_map(
        |(name, direction, policy_type, mark, if_id, security)| {
            // A label counts only beside a selector.
            let security = security.filter(|_| matches!(name, PolicyName::Selector(_)));
            let others = Others::default();
            Box::new(PolicyKey { name, direction, policy_type, mark, if_id, security, others })
        },
    )
}

pub(crate) fn sa_key() -> impl Strategy<Value = SaKey> {
    version().prop_flat_map(|version| {
        (address(version), spi(), ipsec(), mark(), any::<u32>()).prop_map(
            |(destination, spi, protocol, mark, if_id)| SaKey {
                destination,
                spi,
                protocol,
                source: None,
                mark,
                if_id,
            },
        )
    })
}

fn sa_query() -> impl Strategy<Value = SaQuery> {
    (sa_key(), any::<bool>()).prop_map(|(mut key, with_source)| {
        key.source = with_source.then_some(key.destination);
        SaQuery { key, others: Others::default() }
    })
}

fn async_event(known: bool) -> impl Strategy<Value = Box<AsyncEvent>> {
    (sa_key(), any::<u32>(), any::<u32>(), state(), direction(), option::of(any::<u32>())).prop_map(
        move |(sa, reqid, flags, state, direction, cpu)| {
            Box::new(AsyncEvent {
                sa,
                source: sa.destination,
                reqid,
                flags,
                state,
                direction: direction.filter(|_| known),
                cpu: cpu.filter(|_| known),
                others: Others::default(),
            })
        },
    )
}

fn alloc_spi() -> impl Strategy<Value = Request> {
    let addresses = version().prop_flat_map(|version| (address(version), address(version)));
    let numbers = any::<(u32, u32, u32, u32, u32)>();
    let rest = (mark(), direction(), option::of(any::<u32>()));
    (addresses, ipsec(), mode(), numbers, rest).prop_map(
        |((destination, source), protocol, mode, numbers, (mark, direction, cpu))| {
            let (seq, reqid, one, other, if_id) = numbers;
            let most = if protocol == SaProtocol::Comp { 0xffff } else { u32::MAX };
            let (min, max) = (one.min(other) & most, one.max(other) & most);
            Request::AllocSpi(Box::new(AllocSpi {
                destination,
                source,
                protocol,
                mode,
                seq,
                reqid,
                min: min.min(max),
                max: max.max(min),
                mark,
                if_id,
                direction,
                cpu,
                others: Others::default(),
            }))
        },
    )
}

fn dump() -> impl Strategy<Value = SaDump> {
    let filter = (option::of(version()), any::<([u8; 16], [u8; 16])>(), 0..=128_u8, 0..=128_u8)
        .prop_map(|(version, (source, destination), source_len, destination_len)| AddressFilter {
            version,
            source,
            source_len,
            destination,
            destination_len,
        });
    (any::<u8>(), option::of(filter)).prop_map(|(protocol, addresses)| SaDump {
        protocol: ProtocolFilter(protocol),
        addresses,
        others: Others::default(),
    })
}

fn defaults() -> impl Strategy<Value = Defaults> {
    let action =
        || option::of(prop_oneof![Just(DefaultAction::Block), Just(DefaultAction::Accept)]);
    (action(), action(), action()).prop_map(|(input, forward, output)| Defaults {
        input,
        forward,
        output,
        others: Others::default(),
    })
}

fn threshold(max: u8) -> impl Strategy<Value = Option<HashThreshold>> {
    let threshold = (0..=max, 0..=max).prop_map(|(local, remote)| HashThreshold { local, remote });
    option::of(threshold)
}

fn info_query() -> impl Strategy<Value = InfoQuery> {
    any::<u32>().prop_map(|flags| InfoQuery { flags, others: Others::default() })
}

/// A request that makes sense.
pub(crate) fn request() -> impl Strategy<Value = Request> {
    let others = Others::default;
    let databases = prop_oneof![
        any::<u8>().prop_map(move |protocol| Request::FlushSa(FlushSa {
            protocol: ProtocolFilter(protocol),
            others: others()
        })),
        policy_type().prop_map(move |policy_type| Request::FlushPolicy(FlushPolicy {
            policy_type,
            others: others()
        })),
        info_query().prop_map(Request::GetSadInfo),
        info_query().prop_map(Request::GetSpdInfo),
        (any::<u32>(), threshold(32), threshold(128)).prop_map(move |(flags, v4, v6)| {
            Request::NewSpdInfo(SetSpdInfo { flags, v4, v6, others: others() })
        }),
        defaults().prop_map(Request::GetDefault),
        defaults().prop_map(Request::SetDefault),
    ];
    let new_ae = async_event(false).prop_map(|mut event| {
        event.state.replay_threshold.get_or_insert(3);
        Request::NewAe(event)
    });
    let get_ae = async_event(false).prop_map(|mut event| {
        event.state = SaState::default();
        Request::GetAe(event)
    });
    prop_oneof![
        8 => sa().prop_map(Request::NewSa),
        2 => sa().prop_map(Request::UpdSa),
        1 => sa_query().prop_map(Request::DelSa),
        1 => sa_query().prop_map(Request::GetSa),
        1 => dump().prop_map(Request::DumpSa),
        2 => alloc_spi(),
        5 => policy().prop_map(Request::NewPolicy),
        2 => policy().prop_map(Request::UpdPolicy),
        1 => policy_key().prop_map(Request::DelPolicy),
        1 => policy_key().prop_map(Request::GetPolicy),
        1 => (0..1).prop_map(|_| Request::DumpPolicy),
        3 => databases,
        1 => get_ae,
        1 => new_ae,
        1 => (0..1).prop_map(|_| Request::Migrate),
    ]
}

fn acquire() -> impl Strategy<Value = Box<Acquire>> {
    policy().prop_flat_map(|policy| {
        let outer = policy.templates.first().map_or_else(
            || policy.info.selector.version().unwrap(),
            |first| IpVersion::of_addr(first.source),
        );
        let addresses = (address(outer), address(outer));
        let numbers = any::<([u32; 3], u32, Option<u32>)>();
        (
            Just(policy),
            addresses,
            ipsec(),
            spi(),
            version().prop_flat_map(selector),
            numbers,
            direction(),
        )
            .prop_map(
                |(policy, (source, destination), protocol, spi, selector, numbers, direction)| {
                    let (algorithms, seq, cpu) = numbers;
                    Box::new(Acquire {
                        protocol,
                        spi,
                        source,
                        destination,
                        selector,
                        policy: policy.info,
                        algorithms,
                        seq,
                        templates: policy.templates,
                        security: policy.security,
                        policy_type: policy.policy_type,
                        mark: policy.mark,
                        if_id: policy.if_id,
                        cpu,
                        direction,
                        others: Others::default(),
                    })
                },
            )
    })
}

fn expire() -> impl Strategy<Value = Box<Expire>> {
    let sa = version().prop_flat_map(sa_info);
    (sa, any::<bool>(), mark(), any::<u32>(), option::of(any::<u32>()), direction()).prop_map(
        |(sa, hard, mark, if_id, cpu, direction)| {
            let others = Others::default();
            Box::new(Expire { sa, hard, mark, if_id, cpu, direction, others })
        },
    )
}

fn mapping() -> impl Strategy<Value = Box<Mapping>> {
    version().prop_flat_map(|version| {
        let socket =
            || (address(version), any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port));
        (address(version), spi(), any::<u32>(), socket(), socket()).prop_map(
            |(destination, spi, reqid, old, new)| {
                let sa = SaKey {
                    destination,
                    spi,
                    protocol: SaProtocol::Esp,
                    source: None,
                    mark: Mark::default(),
                    if_id: 0,
                };
                Box::new(Mapping { sa, reqid, old, new, others: Others::default() })
            },
        )
    })
}

/// An answer or event.
pub(crate) fn reply() -> impl Strategy<Value = Reply> {
    let infos = prop_oneof![
        any::<(u32, u32, (u32, u32))>().prop_map(|(flags, count, buckets)| {
            Reply::NewSadInfo(SadInfo { flags, count, buckets })
        }),
        (any::<(u32, [u32; 6], (u32, u32))>(), threshold(32), threshold(128)).prop_map(
            |((flags, counts, buckets), v4, v6)| {
                Reply::NewSpdInfo(SpdInfo { flags, counts, buckets, v4, v6 })
            }
        ),
        defaults().prop_map(Reply::GetDefault),
        any::<u8>().prop_map(|protocol| Reply::FlushSa(FlushSa {
            protocol: ProtocolFilter(protocol),
            others: Others::default()
        })),
        option::of((1..200_i32, "[a-z ]{0,20}", any::<Option<u32>>())).prop_map(|refusal| {
            Reply::Done(refusal.map(|(errno, text, offset)| Refusal {
                offset,
                ..Refusal::new(Errno(errno), text)
            }))
        }),
    ];
    let deleted = (policy(), any::<bool>()).prop_map(|(policy, by_index)| {
        let index = policy.info.index;
        let name = if by_index && index != 0 {
            PolicyName::Index(index)
        } else {
            PolicyName::Selector(policy.info.selector)
        };
        Reply::DelPolicy(Box::new(PolicyDeleted { name, policy: *policy }))
    });
    prop_oneof![
        4 => any_sa().prop_map(Reply::NewSa),
        1 => any_sa().prop_map(Reply::UpdSa),
        1 => any_sa().prop_map(|sa| Reply::DelSa(SaDeleted { sa })),
        2 => policy().prop_map(Reply::NewPolicy),
        1 => policy().prop_map(Reply::UpdPolicy),
        1 => deleted,
        1 => async_event(true).prop_map(Reply::NewAe),
        2 => acquire().prop_map(Reply::Acquire),
        1 => expire().prop_map(Reply::Expire),
        1 => (policy(), any::<bool>()).prop_map(|(policy, hard)| {
            Reply::PolExpire(Box::new(PolicyExpire { policy: *policy, hard }))
        }),
        1 => mapping().prop_map(Reply::Mapping),
        2 => infos,
    ]
}
