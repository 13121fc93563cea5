use super::*;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

const GCM: EspLayout = EspLayout::AES_GCM_16;

#[test]
fn header_bytes_are_spi_then_low_sequence_number() {
    let header = EspHeader::new(Spi::new(0x1122_3344).unwrap(), SeqNum::from_parts(9, 0x5566_7788));
    assert_eq!(header.to_bytes(), [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]);
    assert_eq!(EspHeader::parse(&header.to_bytes()), Ok(header));
    assert_eq!(EspHeader::parse(&[0, 0, 0, 0, 0, 0, 0, 1]), Err(ParseError::ZeroSpi));
    assert_eq!(EspHeader::parse(&[1; 7]), Err(ParseError::Truncated));
}

#[test]
fn packets_cut_at_every_byte_are_refused_or_unaligned() {
    let whole = vec![7; GCM.sealed_len(50)];
    let view = EspView::parse(&whole, GCM).unwrap();
    assert_eq!((view.iv().len(), view.ciphertext().len(), view.icv().len()), (8, 52, 16));
    for cut in 0..whole.len() {
        let parsed = EspView::parse(&whole[..cut], GCM);
        match cut {
            0..34 => assert_eq!(parsed.unwrap_err(), ParseError::Truncated, "cut at {cut}"),
            _ if cut % 4 != 0 => assert_eq!(parsed.unwrap_err(), ParseError::BadTotalLength),
            _ => assert!(parsed.is_ok()),
        }
    }
}

#[test]
fn padding_of_every_length_is_right_in_no_other_way() {
    for pad in 0..=255_u8 {
        // With nothing in front, and with some.
        for front in [0, 3, 40] {
            let mut bytes = vec![0xee; front];
            bytes.extend(1..=pad);
            bytes.extend([pad, 4]);
            assert_eq!(parse_trailer(&bytes).unwrap().payload_len, front);
            for at in 0..usize::from(pad) {
                let mut damaged = bytes.clone();
                damaged[front + at] ^= 1 << (at % 8);
                assert_eq!(parse_trailer(&damaged), Err(ParseError::BadPadding), "{pad}, {at}");
            }
        }
    }
}

#[test]
fn every_wrong_padding_byte_is_found() {
    let mut bytes = [0u8; 40];
    emit_trailer(&mut bytes[10..], 28, Protocol::IPV4).unwrap();
    assert_eq!(bytes[10..14], [1, 2, 3, 4]);
    let trailer = parse_trailer(&bytes).unwrap();
    let expected = EspTrailer { payload_len: 10, pad_len: 28, next_header: Protocol::IPV4 };
    assert_eq!(trailer, expected);
    for at in 10..38 {
        let mut damaged = bytes;
        damaged[at] ^= 0x80;
        assert_eq!(parse_trailer(&damaged), Err(ParseError::BadPadding), "byte {at}");
    }
    assert_eq!(parse_trailer(&[1, 2, 3, 4, 4]), Err(ParseError::BadPadding));
    assert_eq!(parse_trailer(&[0]), Err(ParseError::Truncated));
    assert_eq!(parse_trailer(&[0, 59]).unwrap().payload_len, 0);
}

#[test]
fn udp_payloads_are_told_apart_as_in_rfc_3948() {
    assert_eq!(UdpPayload::parse(&[0xff]), UdpPayload::Keepalive);
    assert_eq!(UdpPayload::parse(&[0, 0, 0, 0, 5]), UdpPayload::Ike(&[5]));
    assert_eq!(UdpPayload::parse(&[0, 0, 0, 1]), UdpPayload::Esp(&[0, 0, 0, 1]));
    for malformed in [&[][..], &[0], &[0xff, 0xff], &[0, 0, 0]] {
        assert_eq!(UdpPayload::parse(malformed), UdpPayload::Malformed);
    }
}

#[test]
fn alignment_is_at_least_four_and_a_power_of_two() {
    assert_eq!(EspLayout::new(0, 12, 1).unwrap().align(), 4);
    assert_eq!(EspLayout::new(16, 12, 16).unwrap().align(), 16);
    assert_eq!(EspLayout::new(16, 12, 12), None);
    assert_eq!(EspLayout::new(16, 12, 0), None);
}

fn any_layout() -> impl Strategy<Value = EspLayout> {
    (0u8..=16, 0u8..=64, 0u32..=7)
        .prop_map(|(iv, icv, log)| EspLayout::new(iv, icv, 1 << log).unwrap())
}

#[test]
fn a_trailer_written_over_is_the_same_trailer() {
    for pad_len in 0..=255 {
        for room in (0..40).chain(250..280) {
            let (mut over, mut beside) = (vec![0xee; room], vec![0xee; room]);
            let written = emit_trailer_over(&mut over, pad_len, Protocol::IPV6);
            assert_eq!(written, emit_trailer(&mut beside, pad_len, Protocol::IPV6));
            let written = written.unwrap_or(0);
            assert_eq!(over[..written], beside[..written], "{pad_len} in {room}");
            let touched = over.iter().rposition(|&byte| byte != 0xee).map_or(0, |at| at + 1);
            assert!(touched <= written + 14);
        }
    }
}

proptest! {
    #[test]
    fn sealed_packets_are_aligned_and_minimal(layout in any_layout(), len in 0usize..10_000) {
        let pad = usize::from(layout.pad_len(len));
        prop_assert!(pad < layout.align());
        prop_assert_eq!((len + pad + TRAILER_LEN) % layout.align(), 0);
        let sealed = layout.sealed_len(len);
        prop_assert_eq!(sealed, 8 + layout.iv_len() + len + pad + 2 + layout.icv_len());
    }

    #[test]
    fn the_longest_payload_fits_and_one_more_byte_does_not(
        layout in any_layout(), room in 0usize..2000,
    ) {
        match layout.max_payload_len(room) {
            Some(len) => {
                prop_assert!(layout.sealed_len(len) <= room);
                prop_assert!(layout.sealed_len(len + 1) > room);
            }
            None => prop_assert!(layout.sealed_len(0) > room),
        }
    }

    #[test]
    fn trailers_round_trip(layout in any_layout(), payload in prop::collection::vec(any::<u8>(), 0..100)) {
        let pad_len = layout.pad_len(payload.len());
        let mut bytes = payload.clone();
        bytes.resize(payload.len() + usize::from(pad_len) + 2, 0);
        let written = emit_trailer(&mut bytes[payload.len()..], pad_len, Protocol::IPV6).unwrap();
        prop_assert_eq!(payload.len() + written, bytes.len());
        let back = parse_trailer(&bytes).unwrap();
        prop_assert_eq!(back.payload_len, payload.len());
        prop_assert_eq!(back.next_header, Protocol::IPV6);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), layout in any_layout()) {
        if let Ok(view) = EspView::parse(&bytes, layout) {
            let parts: Vec<u8> = [&bytes[..8], view.iv(), view.ciphertext(), view.icv()].concat();
            prop_assert_eq!(&parts, &bytes);
        }
        if let Ok(trailer) = parse_trailer(&bytes) {
            prop_assert!(trailer.payload_len + usize::from(trailer.pad_len) + 2 == bytes.len());
        }
    }
}
