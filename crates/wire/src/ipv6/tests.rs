use super::*;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

fn repr(next_header: Protocol, payload_len: usize) -> Ipv6Repr {
    Ipv6Repr {
        tos: Tos(0xb8),
        flow_label: 0xabcde,
        next_header,
        hop_limit: 64,
        src: "2001:db8::1".parse().unwrap(),
        dst: "2001:db8::2".parse().unwrap(),
        payload_len,
    }
}

/// An options header of `8 × (units + 1)` bytes.
fn options(next: Protocol, units: u8) -> Vec<u8> {
    let mut bytes = vec![0; 8 * (usize::from(units) + 1)];
    bytes[0] = next.0;
    bytes[1] = units;
    bytes
}

fn walk(first: Protocol, payload: &[u8]) -> Result<UpperLayer, ParseError> {
    walk_extensions(first, payload, ExtensionLimits::default())
}

#[test]
fn each_length_defect_has_its_own_error() {
    let mut bytes = repr(Protocol::UDP, 8).to_bytes().unwrap().to_vec();
    bytes.extend([0; 8]);
    for cut in 0..40 {
        assert_eq!(Ipv6View::parse(&bytes[..cut]).unwrap_err(), ParseError::Truncated);
    }
    for cut in 40..48 {
        assert_eq!(Ipv6View::parse(&bytes[..cut]).unwrap_err(), ParseError::LengthBeyondData);
        assert_eq!(Ipv6View::parse_quoted(&bytes[..cut]).unwrap().payload().len(), cut - 40);
    }
    bytes[0] = 0x45;
    assert_eq!(Ipv6View::parse(&bytes).unwrap_err(), ParseError::BadVersion);
}

#[test]
fn walks_a_full_chain_in_the_order_of_rfc_8200() {
    let chain = [
        options(Protocol::DEST_OPTIONS, 0),
        options(Protocol::ROUTING, 1),
        options(Protocol::FRAGMENT, 2),
        FragmentHeader { next_header: Protocol::DEST_OPTIONS, offset: 0, more: true, ident: 7 }
            .to_bytes()
            .to_vec(),
        options(Protocol::TCP, 0),
        vec![0; 20],
    ]
    .concat();
    let upper = walk(Protocol::HOP_BY_HOP, &chain).unwrap();
    assert_eq!((upper.protocol, upper.offset), (Protocol::TCP, 8 + 16 + 24 + 8 + 8));
    assert!(upper.fragment.is_some_and(|f| f.more && f.ident == 7));
    for cut in 0..upper.offset {
        let err = walk(Protocol::HOP_BY_HOP, &chain[..cut]).unwrap_err();
        assert_eq!(err, ParseError::ExtensionTruncated, "cut at {cut}");
    }
}

#[test]
fn data_of_a_later_fragment_is_not_taken_for_headers() {
    let header =
        FragmentHeader { next_header: Protocol::DEST_OPTIONS, offset: 8, more: false, ident: 1 };
    let upper = walk(Protocol::FRAGMENT, &header.to_bytes()).unwrap();
    assert_eq!((upper.protocol, upper.offset), (Protocol::DEST_OPTIONS, 8));
    assert_eq!(upper.fragment, Some(header));
}

#[test]
fn hostile_chains_are_refused_for_what_they_are() {
    let many = |n: usize| options(Protocol::DEST_OPTIONS, 0).repeat(n);
    let eight = [many(7), options(Protocol::TCP, 0)].concat();
    assert_eq!(walk(Protocol::DEST_OPTIONS, &eight).unwrap().protocol, Protocol::TCP);
    assert_eq!(walk(Protocol::DEST_OPTIONS, &many(9)), Err(ParseError::TooManyExtensions));

    let fits = options(Protocol::TCP, 127);
    assert_eq!(walk(Protocol::DEST_OPTIONS, &fits).unwrap().offset, 1024);
    let long = options(Protocol::TCP, 128);
    assert_eq!(walk(Protocol::DEST_OPTIONS, &long), Err(ParseError::ExtensionsTooLong));

    let late = [options(Protocol::HOP_BY_HOP, 0), options(Protocol::TCP, 0)].concat();
    assert_eq!(walk(Protocol::DEST_OPTIONS, &late), Err(ParseError::ExtensionOrder));

    let fragment =
        FragmentHeader { next_header: Protocol::FRAGMENT, offset: 0, more: false, ident: 1 };
    let twice = fragment.to_bytes().repeat(2);
    assert_eq!(walk(Protocol::FRAGMENT, &twice), Err(ParseError::ExtensionOrder));
}

#[test]
fn esp_and_ah_are_upper_layers() {
    for protocol in [Protocol::ESP, Protocol::AH, Protocol::NONE, Protocol(200)] {
        let upper = walk(protocol, &[]).unwrap();
        assert_eq!(upper, UpperLayer { protocol, offset: 0, fragment: None, fragment_data: 0 });
    }
}

#[test]
fn esp_goes_after_routing_and_before_final_destination_options() {
    let point = |first, payload: &[u8]| transport_point(first, payload, ExtensionLimits::default());
    let chain = [
        options(Protocol::DEST_OPTIONS, 0),
        options(Protocol::ROUTING, 0),
        options(Protocol::DEST_OPTIONS, 1),
        options(Protocol::UDP, 0),
        vec![0; 8],
    ]
    .concat();
    assert_eq!(
        point(Protocol::HOP_BY_HOP, &chain),
        Ok(TransportPoint {
            offset: 32,
            protocol: Protocol::DEST_OPTIONS,
            next_header_at: 40 + 16
        })
    );
    assert_eq!(
        point(Protocol::TCP, &[0; 20]),
        Ok(TransportPoint { offset: 0, protocol: Protocol::TCP, next_header_at: 6 })
    );
    let only_options = options(Protocol::TCP, 0);
    assert_eq!(
        point(Protocol::DEST_OPTIONS, &only_options).unwrap(),
        TransportPoint { offset: 0, protocol: Protocol::DEST_OPTIONS, next_header_at: 6 }
    );
    let fragment = FragmentHeader { next_header: Protocol::TCP, offset: 0, more: true, ident: 1 };
    assert_eq!(point(Protocol::FRAGMENT, &fragment.to_bytes()), Err(ParseError::BadFragment));
}

#[test]
fn the_fragment_header_is_found_behind_others_with_what_names_it() {
    let point = |first, payload: &[u8]| fragment_point(first, payload, ExtensionLimits::default());
    let header = FragmentHeader { next_header: Protocol::UDP, offset: 64, more: true, ident: 7 };
    let bytes = header.to_bytes();
    let alone = FragmentPoint { header, offset: 0, next_header_at: 6 };
    assert_eq!(point(Protocol::FRAGMENT, &bytes), Ok(Some(alone)));
    let behind =
        [options(Protocol::ROUTING, 0), options(Protocol::FRAGMENT, 1), bytes.to_vec()].concat();
    let found = FragmentPoint { header, offset: 8 + 16, next_header_at: 40 + 8 };
    assert_eq!(point(Protocol::HOP_BY_HOP, &behind), Ok(Some(found)));
    assert_eq!(point(Protocol::UDP, &bytes), Ok(None));
    assert_eq!(point(Protocol::FRAGMENT, &bytes[..7]), Err(ParseError::ExtensionTruncated));
}

#[test]
fn setters_write_only_their_field() {
    let mut bytes = repr(Protocol::UDP, 0).to_bytes().unwrap();
    let mut header = Ipv6Mut::new(&mut bytes).unwrap();
    assert_eq!(header.decrement_hop_limit(), 63);
    header.set_ecn(Ecn::Ce);
    header.set_payload_len(9);
    header.set_next_header(Protocol::ESP);
    let expected = Ipv6Repr { tos: Tos(0xbb), hop_limit: 63, ..repr(Protocol::ESP, 9) };
    assert_eq!(bytes, expected.to_bytes().unwrap());
}

proptest! {
    #[test]
    fn what_is_emitted_parses_to_the_same_values_and_to_those_of_etherparse(
        tos in any::<u8>(), flow_label in 0u32..1 << 20, next in any::<u8>(), hop_limit in any::<u8>(),
        src in any::<u128>(), dst in any::<u128>(), payload in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let repr = Ipv6Repr {
            tos: Tos(tos), flow_label, next_header: Protocol(next), hop_limit,
            src: src.into(), dst: dst.into(), payload_len: payload.len(),
        };
        let mut bytes = repr.to_bytes().unwrap().to_vec();
        bytes.extend(&payload);
        let view = Ipv6View::parse(&bytes).unwrap();
        let back = Ipv6Repr {
            tos: view.tos(), flow_label: view.flow_label(), next_header: view.next_header(),
            hop_limit: view.hop_limit(), src: view.src(), dst: view.dst(),
            payload_len: view.payload().len(),
        };
        prop_assert_eq!(back, repr);

        let (theirs, rest) = etherparse::Ipv6Header::from_slice(&bytes).unwrap();
        prop_assert_eq!(theirs.traffic_class, tos);
        prop_assert_eq!(theirs.flow_label.value(), flow_label);
        prop_assert_eq!(theirs.source, view.src().octets());
        prop_assert_eq!(theirs.destination, view.dst().octets());
        prop_assert_eq!(theirs.hop_limit, hop_limit);
        prop_assert_eq!(rest, view.payload());
    }

    #[test]
    fn fragment_headers_agree_with_etherparse(bytes in any::<[u8; 8]>()) {
        let ours = FragmentHeader::parse(&bytes);
        let (theirs, _) = etherparse::Ipv6FragmentHeader::from_slice(&bytes).unwrap();
        prop_assert_eq!(theirs.fragment_offset.byte_offset(), ours.offset);
        prop_assert_eq!(theirs.more_fragments, ours.more);
        prop_assert_eq!(theirs.identification, ours.ident);
        prop_assert_eq!(FragmentHeader::parse(&ours.to_bytes()), ours);
    }

    #[test]
    fn no_bytes_make_it_panic_and_the_upper_layer_lies_inside(
        first in prop::sample::select(vec![0u8, 43, 44, 60, 6]),
        mut payload in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        // Make chains likely: bytes that name headers again, and short lengths.
        for (i, byte) in payload.iter_mut().enumerate() {
            *byte = if i % 8 == 0 { [0, 43, 44, 60][usize::from(*byte % 4)] } else { *byte % 3 };
        }
        if let Ok(upper) = walk(Protocol(first), &payload) {
            prop_assert!(upper.offset <= payload.len());
        }
        if let Ok(point) = transport_point(Protocol(first), &payload, ExtensionLimits::default()) {
            prop_assert!(point.offset <= payload.len());
            prop_assert!(point.next_header_at < 40 + payload.len());
        }
    }
}
