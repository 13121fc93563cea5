use super::*;
use crate::checksum::verify;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

fn v4(src: [u8; 4], dst: [u8; 4], protocol: Protocol, payload: &[u8]) -> Vec<u8> {
    let repr = Ipv4Repr {
        tos: Tos(0),
        ident: 1,
        dont_fragment: true,
        ttl: 60,
        protocol,
        src: src.into(),
        dst: dst.into(),
        payload_len: payload.len(),
    };
    [&repr.to_bytes().unwrap()[..], payload].concat()
}

fn v6(src: &str, dst: &str, next_header: Protocol, payload: &[u8]) -> Vec<u8> {
    let repr = Ipv6Repr {
        tos: Tos(0),
        flow_label: 0,
        next_header,
        hop_limit: 60,
        src: src.parse().unwrap(),
        dst: dst.parse().unwrap(),
        payload_len: payload.len(),
    };
    [&repr.to_bytes().unwrap()[..], payload].concat()
}

const GATEWAY_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 254));
const GATEWAY_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xfe));

#[test]
fn too_big_v4_is_read_back_with_mtu_and_quotation() {
    let original = v4([10, 0, 0, 1], [10, 0, 0, 2], Protocol::ESP, &[0x5a; 1480]);
    let mut out = vec![0; 2000];
    let len = emit_too_big(&mut out, &original, 1438, GATEWAY_V4).unwrap();
    assert_eq!(len, 576);
    let ip = Ipv4View::parse(&out[..len]).unwrap();
    assert!(ip.checksum_ok());
    assert_eq!((IpAddr::from(ip.src()), ip.dst()), (GATEWAY_V4, [10, 0, 0, 1].into()));
    assert!(verify(Sum::ZERO, ip.payload()));
    let report = IcmpErrorView::parse(IpVersion::V4, ip.payload()).unwrap();
    assert_eq!(report.error, IcmpError::TooBig { mtu: 1438 });
    assert_eq!(report.quoted.protocol, Protocol::ESP);
    assert_eq!(report.quoted.upper, &original[20..576 - 28]);
    assert_eq!(report.quoted.dst, IpAddr::from([10, 0, 0, 2]));
}

#[test]
fn too_big_v6_fills_exactly_the_minimum_mtu() {
    let original = v6("2001:db8::1", "2001:db8:1::1", Protocol::UDP, &[1; 1400]);
    let mut out = vec![0; 2000];
    let len = emit_too_big(&mut out, &original, 1300, GATEWAY_V6).unwrap();
    assert_eq!(len, 1280);
    let ip = Ipv6View::parse(&out[..len]).unwrap();
    let pseudo = ip.pseudo_sum(Protocol::ICMPV6, ip.payload().len() as u32);
    assert!(verify(pseudo, ip.payload()));
    let report = IcmpErrorView::parse(IpVersion::V6, ip.payload()).unwrap();
    assert_eq!(report.error, IcmpError::TooBig { mtu: 1300 });
    assert_eq!(report.quoted.src.to_string(), "2001:db8::1");
    assert_eq!(report.quoted.upper.len(), 1280 - 40 - 8 - 40);
}

use std::string::ToString;

#[test]
fn etherparse_reads_our_reports_as_what_they_are() {
    use etherparse::{Icmpv4Type, Icmpv6Type, icmpv4, icmpv6};
    let original = v4([10, 0, 0, 1], [10, 0, 0, 2], Protocol::UDP, &[0; 30]);
    let mut out = vec![0; 2000];
    let report_v4 = |out: &mut [u8], error| {
        let len = emit_error(out, &original, error, GATEWAY_V4).unwrap();
        etherparse::Icmpv4Slice::from_slice(&out[20..len]).unwrap().icmp_type()
    };
    use icmpv4::DestUnreachableHeader as Unreachable;
    assert_eq!(
        report_v4(&mut out, IcmpError::TooBig { mtu: 1400 }),
        Icmpv4Type::DestinationUnreachable(Unreachable::FragmentationNeeded { next_hop_mtu: 1400 })
    );
    assert_eq!(
        report_v4(&mut out, IcmpError::TimeExceeded),
        Icmpv4Type::TimeExceeded(icmpv4::TimeExceededCode::TtlExceededInTransit)
    );
    assert_eq!(
        report_v4(&mut out, IcmpError::AdminProhibited),
        Icmpv4Type::DestinationUnreachable(Unreachable::FilterProhibited)
    );

    let original = v6("2001:db8::1", "2001:db8::2", Protocol::UDP, &[0; 30]);
    let report_v6 = |out: &mut [u8], error| {
        let len = emit_error(out, &original, error, GATEWAY_V6).unwrap();
        etherparse::Icmpv6Slice::from_slice(&out[40..len]).unwrap().icmp_type()
    };
    assert_eq!(
        report_v6(&mut out, IcmpError::TooBig { mtu: 1400 }),
        Icmpv6Type::PacketTooBig { mtu: 1400 }
    );
    assert_eq!(
        report_v6(&mut out, IcmpError::TimeExceeded),
        Icmpv6Type::TimeExceeded(icmpv6::TimeExceededCode::HopLimitExceeded)
    );
    assert_eq!(
        report_v6(&mut out, IcmpError::AdminProhibited),
        Icmpv6Type::DestinationUnreachable(icmpv6::DestUnreachableCode::Prohibited)
    );
}

#[test]
fn short_packets_are_quoted_whole_and_without_link_padding() {
    let mut original = v4([10, 0, 0, 1], [10, 0, 0, 2], Protocol::UDP, &[3; 5]);
    let whole = original.len();
    original.extend([0xee; 21]);
    let mut out = vec![0; 600];
    let len = emit_error(&mut out, &original, IcmpError::TimeExceeded, GATEWAY_V4).unwrap();
    assert_eq!(out[28..len], original[..whole]);
}

#[test]
fn mtus_are_held_within_what_the_version_allows() {
    let original = v4([10, 0, 0, 1], [10, 0, 0, 2], Protocol::UDP, &[0; 30]);
    let mut out = vec![0; 600];
    for (asked, told) in [(0, 68), (68, 68), (65_535, 65_535), (70_000, 65_535)] {
        let len = emit_too_big(&mut out, &original, asked, GATEWAY_V4).unwrap();
        let report = IcmpErrorView::parse(IpVersion::V4, &out[20..len]).unwrap();
        assert_eq!(report.error, IcmpError::TooBig { mtu: told });
    }
    let original = v6("2001:db8::1", "2001:db8::2", Protocol::UDP, &[0; 30]);
    let len = emit_too_big(&mut out, &original, 1000, GATEWAY_V6).unwrap();
    let report = IcmpErrorView::parse(IpVersion::V6, &out[40..len]).unwrap();
    assert_eq!(report.error, IcmpError::TooBig { mtu: 1280 });
}

#[test]
fn packets_that_must_not_be_answered_are_not() {
    let not_answered = |original: &[u8], source| {
        let got = emit_error(&mut [0; 2000], original, IcmpError::TimeExceeded, source);
        assert_eq!(got, Err(EmitError::NotAnswerable));
    };
    let host = [10, 0, 0, 1];
    for ty in [3, 4, 5, 11, 12] {
        not_answered(&v4(host, [10, 0, 0, 2], Protocol::ICMP, &[ty; 8]), GATEWAY_V4);
    }
    for dst in [[224, 0, 0, 1], [255; 4]] {
        not_answered(&v4(host, dst, Protocol::UDP, &[0; 8]), GATEWAY_V4);
    }
    for src in [[0; 4], [224, 0, 0, 1], [255; 4], [127, 0, 0, 1], [240, 0, 0, 1]] {
        not_answered(&v4(src, host, Protocol::UDP, &[0; 8]), GATEWAY_V4);
    }
    let mut later_fragment = v4(host, [10, 0, 0, 2], Protocol::UDP, &[0; 8]);
    later_fragment[7] = 1;
    not_answered(&later_fragment, GATEWAY_V4);
    not_answered(&[], GATEWAY_V4);

    for ty in [1, 2, 3, 4, 100, 127, 137] {
        let error = v6("2001:db8::1", "2001:db8::2", Protocol::ICMPV6, &[ty; 8]);
        not_answered(&error, GATEWAY_V6);
    }
    for src in ["::", "ff02::1", "::1"] {
        not_answered(&v6(src, "2001:db8::2", Protocol::UDP, &[0; 8]), GATEWAY_V6);
    }
    let to_group = v6("2001:db8::1", "ff02::1", Protocol::UDP, &[0; 8]);
    not_answered(&to_group, GATEWAY_V6);
    assert!(emit_too_big(&mut [0; 200], &to_group, 1300, GATEWAY_V6).is_ok());
}

#[test]
fn pings_are_answered() {
    let ping = v4([10, 0, 0, 1], [10, 0, 0, 2], Protocol::ICMP, &[8, 0, 0, 0, 0, 0, 0, 0]);
    assert!(emit_too_big(&mut [0; 600], &ping, 1400, GATEWAY_V4).is_ok());
    let ping = v6("2001:db8::1", "2001:db8::2", Protocol::ICMPV6, &[128, 0, 0, 0, 0, 0, 0, 0]);
    assert!(emit_too_big(&mut [0; 600], &ping, 1400, GATEWAY_V6).is_ok());
}

#[test]
fn small_buffers_and_foreign_sources_are_refused() {
    let original = v4([10, 0, 0, 1], [10, 0, 0, 2], Protocol::UDP, &[0; 100]);
    let got = emit_too_big(&mut [0; 55], &original, 1400, GATEWAY_V4);
    assert_eq!(got, Err(EmitError::BufferTooSmall { needed: 56 }));
    assert_eq!(emit_too_big(&mut [0; 56], &original, 1400, GATEWAY_V4), Ok(56));
    let got = emit_too_big(&mut [0; 600], &original, 1400, GATEWAY_V6);
    assert_eq!(got, Err(EmitError::VersionMismatch));
}

#[test]
fn messages_that_report_no_error_quote_nothing() {
    let echo = [8, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(IcmpErrorView::parse(IpVersion::V4, &echo).unwrap_err(), ParseError::NotAnIcmpError);
    assert_eq!(
        IcmpErrorView::parse(IpVersion::V6, &[128, 0, 0, 0, 0, 0, 0, 0]).unwrap_err(),
        ParseError::NotAnIcmpError
    );
    assert_eq!(IcmpErrorView::parse(IpVersion::V4, &[3; 7]).unwrap_err(), ParseError::Truncated);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        mut original in prop::collection::vec(any::<u8>(), 0..200), room in 0usize..700,
        mtu in any::<u32>(), v6 in any::<bool>(),
    ) {
        if let Some(first) = original.first_mut() {
            *first = if v6 { 0x60 } else { 0x45 };
        }
        let mut out = vec![0; room];
        for source in [GATEWAY_V4, GATEWAY_V6] {
            if let Ok(len) = emit_too_big(&mut out, &original, mtu, source) {
                prop_assert!(len <= room);
            }
        }
        for version in [IpVersion::V4, IpVersion::V6] {
            let _ = IcmpErrorView::parse(version, &original);
            let _ = Quoted::parse(version, &original);
        }
    }
}
