use super::*;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

/// A header that is widely used to explain the checksum, which is 0xb861.
const KNOWN: [u8; 20] = [
    0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00, 0x01,
    0xc0, 0xa8, 0x00, 0xc7,
];

fn repr(payload_len: usize) -> Ipv4Repr {
    Ipv4Repr {
        tos: Tos(0x2e),
        ident: 0x1234,
        dont_fragment: false,
        ttl: 64,
        protocol: Protocol::UDP,
        src: Ipv4Addr::new(192, 0, 2, 1),
        dst: Ipv4Addr::new(198, 51, 100, 2),
        payload_len,
    }
}

fn packet(repr: Ipv4Repr, options: &[u8]) -> Vec<u8> {
    let len = repr.payload_len;
    let mut bytes =
        Ipv4Repr { payload_len: len + options.len(), ..repr }.to_bytes().unwrap().to_vec();
    bytes[0] = 0x45 + (options.len() / 4) as u8;
    bytes.extend(options);
    bytes.extend((0..len).map(|i| i as u8));
    fill_checksum(&mut bytes).unwrap();
    bytes
}

#[test]
fn checksum_of_a_known_header_is_right() {
    let mut header = KNOWN;
    header[10..12].fill(0xee);
    fill_checksum(&mut header).unwrap();
    assert_eq!(header, KNOWN);
    assert!(Ipv4View::parse_quoted(&header).unwrap().checksum_ok());
    header[10] ^= 1;
    assert!(!Ipv4View::parse_quoted(&header).unwrap().checksum_ok());
}

#[test]
fn each_length_defect_has_its_own_error() {
    let good = packet(repr(8), &[]);
    let err = |bytes: &[u8]| Ipv4View::parse(bytes).unwrap_err();
    for cut in 0..20 {
        assert_eq!(err(&good[..cut]), ParseError::Truncated);
    }
    for cut in 20..28 {
        assert_eq!(err(&good[..cut]), ParseError::LengthBeyondData);
    }
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    assert_eq!(err(&with(0, 0x44)), ParseError::BadHeaderLength);
    assert_eq!(err(&with(0, 0x48)), ParseError::BadHeaderLength); // 32 bytes in a packet of 28
    assert_eq!(err(&with(0, 0x65)), ParseError::BadVersion);
    assert_eq!(err(&with(3, 19)), ParseError::BadTotalLength);
    assert_eq!(err(&with(3, 29)), ParseError::LengthBeyondData);
}

#[test]
fn trailing_bytes_are_reported_and_not_part_of_the_payload() {
    let mut bytes = packet(repr(5), &[]);
    bytes.extend([0; 21]);
    let view = Ipv4View::parse(&bytes).unwrap();
    assert_eq!((view.trailing(), view.payload().len()), (21, 5));
}

#[test]
fn quoted_packets_may_end_early() {
    let bytes = packet(repr(100), &[1, 1, 1, 1]);
    let view = Ipv4View::parse_quoted(&bytes[..32]).unwrap();
    assert_eq!(view.payload(), &[0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(Ipv4View::parse_quoted(&bytes[..23]).unwrap_err(), ParseError::BadHeaderLength);
}

#[test]
fn payload_longer_than_the_length_field_is_refused() {
    assert!(repr(65_515).to_bytes().is_ok());
    assert_eq!(repr(65_516).to_bytes(), Err(EmitError::TooLong(65_536)));
    assert_eq!(repr(0).emit(&mut [0; 19]), Err(EmitError::BufferTooSmall { needed: 20 }));
}

#[test]
fn setters_write_the_field_and_keep_the_checksum() {
    let mut bytes = packet(repr(8), &[]);
    let mut header = Ipv4Mut::new(&mut bytes).unwrap();
    assert_eq!(header.decrement_ttl(), 63);
    header.set_tos(Tos(0xb8));
    header.set_ecn(Ecn::Ce);
    header.set_total_len(27);
    header.set_ident(0xffff);
    header.set_dont_fragment(true);
    header.set_protocol(Protocol::ESP);
    header.set_addrs(Ipv4Addr::new(1, 2, 3, 4), Ipv4Addr::BROADCAST);
    let view = Ipv4View::parse(&bytes).unwrap();
    assert!(view.checksum_ok());
    assert_eq!((view.ttl(), view.tos(), view.total_len()), (63, Tos(0xbb), 27));
    assert_eq!((view.ident(), view.dont_fragment()), (0xffff, true));
    assert_eq!(view.protocol(), Protocol::ESP);
    assert_eq!((view.src(), view.dst()), (Ipv4Addr::new(1, 2, 3, 4), Ipv4Addr::BROADCAST));
}

#[test]
fn a_fragment_s_header_becomes_that_of_a_whole_packet() {
    let mut bytes = packet(repr(8), &[]);
    let dont_fragment = Ipv4View::parse(&bytes).unwrap().dont_fragment();
    let [high, low] =
        (bytes[6..8].try_into().map(u16::from_be_bytes).unwrap() | 0x2123).to_be_bytes();
    [bytes[6], bytes[7]] = [high, low];
    fill_checksum(&mut bytes).unwrap();
    assert!(Ipv4View::parse(&bytes).unwrap().is_fragment());
    Ipv4Mut::new(&mut bytes).unwrap().set_whole();
    let view = Ipv4View::parse(&bytes).unwrap();
    assert!(view.checksum_ok() && !view.is_fragment());
    assert_eq!(view.dont_fragment(), dont_fragment);
}

#[test]
fn a_ttl_counted_down_changes_the_checksum_as_any_word_would() {
    for check in (0..=u16::MAX).step_by(7).chain([0xfefe, 0xfeff, 0xff00, 0xffff]) {
        for ttl in [1, 2, 64, 255] {
            let mut bytes = packet(Ipv4Repr { ttl, ..repr(0) }, &[]);
            [bytes[10], bytes[11]] = check.to_be_bytes();
            let word = |ttl| u16::from_be_bytes([ttl, bytes[9]]);
            let expected = update16(check, word(ttl), word(ttl - 1));
            let mut changed = bytes.clone();
            assert_eq!(Ipv4Mut::new(&mut changed).unwrap().decrement_ttl(), ttl - 1);
            assert_eq!([changed[10], changed[11]], expected.to_be_bytes());
            assert_eq!((changed[8], changed[9]), (ttl - 1, bytes[9]));
        }
    }
}

#[test]
fn ttl_stops_at_zero() {
    let mut bytes = packet(Ipv4Repr { ttl: 1, ..repr(0) }, &[]);
    let mut header = Ipv4Mut::new(&mut bytes).unwrap();
    assert_eq!(header.decrement_ttl(), 0);
    assert_eq!(header.decrement_ttl(), 0);
    assert!(Ipv4View::parse(&bytes).unwrap().checksum_ok());
}

/// The example of RFC 791 appendix A, example 2: 452 data bytes over a network of 280 bytes.
#[test]
fn fragments_the_example_of_rfc_791() {
    let bytes = packet(repr(452), &[]);
    let fragments: Vec<_> =
        Fragments::new(&Ipv4View::parse(&bytes).unwrap(), 280).unwrap().collect();
    let expected = [
        Fragment { start: 0, len: 256, offset: 0, more: true, header_len: 20 },
        Fragment { start: 256, len: 196, offset: 256, more: false, header_len: 20 },
    ];
    assert_eq!(fragments, expected);
}

#[test]
fn only_options_marked_copied_reach_later_fragments() {
    // Record route (7, not copied), no-operation, loose source route (131, copied), end.
    let options = [7, 3, 4, 1, 131, 7, 4, 9, 9, 9, 9, 0];
    let bytes = packet(repr(100), &options);
    let view = Ipv4View::parse(&bytes).unwrap();
    let fragments: Vec<_> = Fragments::new(&view, 84).unwrap().collect();
    let mut out = [0; 60];
    let len = fragments[0].emit_header(&view, &mut out).unwrap();
    assert_eq!(out[20..len], options);
    let len = fragments[1].emit_header(&view, &mut out).unwrap();
    assert_eq!(len, fragments[1].header_len);
    assert_eq!(out[20..len], [131, 7, 4, 9, 9, 9, 9, 0]);
}

#[test]
fn packets_that_may_not_or_cannot_be_cut_are_refused() {
    let df = packet(Ipv4Repr { dont_fragment: true, ..repr(100) }, &[]);
    let df = Ipv4View::parse(&df).unwrap();
    assert_eq!(Fragments::new(&df, 119).unwrap_err(), EmitError::DontFragment);
    assert_eq!(Fragments::new(&df, 120).unwrap().count(), 1);
    let bytes = packet(repr(100), &[]);
    let view = Ipv4View::parse(&bytes).unwrap();
    assert_eq!(Fragments::new(&view, 27).unwrap_err(), EmitError::MtuTooSmall(27));
    assert_eq!(Fragments::new(&view, 28).unwrap().count(), 13);
}

fn any_repr() -> impl Strategy<Value = Ipv4Repr> {
    let fields = (any::<u8>(), any::<u16>(), any::<bool>(), any::<u8>(), any::<u8>());
    (fields, any::<u32>(), any::<u32>(), 0usize..300).prop_map(
        |((tos, ident, dont_fragment, ttl, protocol), src, dst, payload_len)| Ipv4Repr {
            tos: Tos(tos),
            ident,
            dont_fragment,
            ttl,
            protocol: Protocol(protocol),
            src: src.into(),
            dst: dst.into(),
            payload_len,
        },
    )
}

proptest! {
    #[test]
    fn what_is_emitted_parses_to_the_same_values(repr in any_repr()) {
        let bytes = packet(repr, &[]);
        let view = Ipv4View::parse(&bytes).unwrap();
        let back = Ipv4Repr {
            tos: view.tos(),
            ident: view.ident(),
            dont_fragment: view.dont_fragment(),
            ttl: view.ttl(),
            protocol: view.protocol(),
            src: view.src(),
            dst: view.dst(),
            payload_len: view.payload().len(),
        };
        prop_assert_eq!(back, repr);
        prop_assert!(view.checksum_ok() && !view.is_fragment());
    }

    #[test]
    fn agrees_with_etherparse_on_headers_it_accepts(
        repr in any_repr(), words in 0usize..=10, noise in any::<[u8; 40]>(), flags in any::<u16>(),
    ) {
        let mut bytes = packet(repr, &noise[..words * 4]);
        // Their header drops the reserved bit.
        bytes[6..8].copy_from_slice(&(flags & 0x7fff).to_be_bytes());
        fill_checksum(&mut bytes).unwrap();
        let (theirs, rest) = etherparse::Ipv4Header::from_slice(&bytes).unwrap();
        let ours = Ipv4View::parse(&bytes).unwrap();
        prop_assert_eq!(theirs.source, ours.src().octets());
        prop_assert_eq!(theirs.destination, ours.dst().octets());
        prop_assert_eq!(theirs.header_len(), ours.header_len());
        prop_assert_eq!(theirs.total_len, ours.total_len());
        prop_assert_eq!(theirs.fragment_offset.byte_offset(), ours.fragment_offset());
        prop_assert_eq!(theirs.dont_fragment, ours.dont_fragment());
        prop_assert_eq!(theirs.more_fragments, ours.more_fragments());
        prop_assert_eq!(theirs.is_fragmenting_payload(), ours.is_fragment());
        prop_assert_eq!(theirs.time_to_live, ours.ttl());
        prop_assert_eq!(theirs.calc_header_checksum(), ours.checksum());
        prop_assert_eq!(&theirs.options[..], ours.options());
        prop_assert_eq!(rest, ours.payload());
    }

    #[test]
    fn one_flipped_bit_of_the_header_breaks_the_checksum(repr in any_repr(), bit in 0usize..160) {
        let mut bytes = packet(repr, &[]);
        bytes[bit / 8] ^= 1 << (bit % 8);
        // Defects of version and lengths are refused earlier; the rest must fail the sum.
        let intact = Ipv4View::parse(&bytes).is_ok_and(|view| view.checksum_ok());
        prop_assert!(!intact);
    }

    #[test]
    fn fragments_put_together_are_the_packet(
        repr in any_repr(), mtu in 68usize..200, options in prop::collection::vec(any::<u8>(), 0..=10),
        base in 0u16..1000, more in any::<bool>(),
    ) {
        let options = options.iter().flat_map(|o| [*o; 4]).collect::<Vec<_>>();
        let mut bytes = packet(Ipv4Repr { dont_fragment: false, ..repr }, &options);
        bytes[6..8].copy_from_slice(&(base | u16::from(more) << 13).to_be_bytes());
        fill_checksum(&mut bytes).unwrap();
        let view = Ipv4View::parse(&bytes).unwrap();
        let mut whole: Vec<u8> = Vec::new();
        let mut ended = false;
        for fragment in Fragments::new(&view, mtu).unwrap() {
            let mut out = vec![0; 60];
            let header_len = fragment.emit_header(&view, &mut out).unwrap();
            prop_assert_eq!(header_len, fragment.header_len);
            out.truncate(header_len);
            out.extend(&view.payload()[fragment.start..][..fragment.len]);
            prop_assert!(out.len() <= mtu);
            let part = Ipv4View::parse(&out).unwrap();
            prop_assert!(part.checksum_ok());
            prop_assert_eq!(usize::from(part.fragment_offset()), usize::from(base) * 8 + whole.len());
            prop_assert_eq!(part.ident(), view.ident());
            whole.extend(part.payload());
            ended = !part.more_fragments();
            prop_assert!(ended || part.payload().len().is_multiple_of(8) || whole.len() == view.payload().len());
        }
        prop_assert_eq!(&whole[..], view.payload());
        prop_assert_eq!(ended, !more);
    }

    #[test]
    fn no_bytes_make_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..100), mtu in 0usize..200) {
        if let Ok(view) = Ipv4View::parse(&bytes) {
            let _ = view.checksum_ok();
            if let Ok(fragments) = Fragments::new(&view, mtu) {
                for fragment in fragments {
                    let _ = fragment.emit_header(&view, &mut [0; 60]);
                }
            }
        }
        let _ = Ipv4View::parse_quoted(&bytes);
        let _ = fill_checksum(&mut bytes);
    }
}
