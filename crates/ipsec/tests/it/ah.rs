//! AH (RFC 4302) through both pipelines: every suite, mode and version, and what must not pass.

use std::sync::Arc;

use crate::common::{Pair, SPI, Setup, cpu, inner, secrets, suite};
use convoy_crypto::{Nonce, SealKey, SealOp, Suite, seal_burst};
use convoy_ipsec::drop_reason::DropReason;
use convoy_ipsec::sa::{AhAlignment, IpsecProtocol, Mode, SaSlot};
use convoy_ipsec::snapshot::{Snapshot, SnapshotError};
use convoy_ipsec::spd::Spd;
use convoy_ipsec::suite::AhSuite;
use convoy_wire::IpVersion;

const V4: (&str, &str) = ("192.0.2.1", "192.0.2.2");
const V6: (&str, &str) = ("2001:db8::1", "2001:db8::2");

fn ah(suite: Suite) -> Setup {
    Setup { protocol: IpsecProtocol::Ah, suite, ..Setup::default() }
}

/// Every suite, over both versions, with both sizes of sequence numbers.
fn setups() -> Vec<(AhSuite, Setup)> {
    let mut all = Vec::new();
    for suite in AhSuite::all() {
        for (local, remote) in [V4, V6] {
            for esn in [false, true] {
                let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
                all.push((suite, Setup { local, remote, esn, ..ah(suite.suite()) }));
            }
        }
    }
    all
}

fn ip_len(setup: &Setup) -> usize {
    if setup.local.is_ipv4() { 20 } else { 40 }
}

fn between_hosts(setup: &Setup, data: &[u8], tos: u8) -> Vec<u8> {
    let (local, remote) = (setup.local.to_string(), setup.remote.to_string());
    crate::common::inner_with(setup.local.is_ipv6(), &local, &remote, data, tos)
}

fn fix_checksum(packet: &mut [u8]) {
    if let Ok((mut header, _)) = etherparse::Ipv4Header::from_slice(packet) {
        header.header_checksum = 0;
        packet[10..12].copy_from_slice(&header.calc_header_checksum().to_be_bytes());
    }
}

#[test]
fn tunnels_carry_both_versions() {
    for (suite, setup) in setups() {
        let mut pair = Pair::new(&setup);
        let packets: Vec<_> = (0..20)
            .chain([500, 1357, 8000])
            .flat_map(|len| [inner(false, len), inner(true, len)])
            .collect();
        let (wire, answers) = pair.protect(&packets);
        assert_eq!((wire.len(), answers.len()), (packets.len(), 0));
        assert!(pair.open(&wire) == packets, "{}", suite.suite());
        pair.assert_no_leak();
    }
}

#[test]
fn transport_mode_gives_packets_back_as_they_were() {
    for (suite, setup) in setups() {
        let mut pair = Pair::new(&Setup { mode: Mode::Transport, ..setup.clone() });
        let packets: Vec<_> =
            (0..40_u8).map(|len| between_hosts(&setup, &vec![len; len.into()], 0x28)).collect();
        let (wire, _) = pair.protect(&packets);
        assert_eq!(wire.len(), packets.len());
        for (packet, original) in wire.iter().zip(&packets) {
            let (at, next) = (ip_len(&setup), if setup.local.is_ipv4() { 9 } else { 6 });
            assert_eq!((packet[next], packet[at]), (51, 17), "AH announces UDP");
            assert_eq!(packet.len(), original.len() + header_len(suite, &setup));
        }
        assert!(pair.open(&wire) == packets, "{}", suite.suite());
        pair.assert_no_leak();
    }
}

#[test]
fn headers_of_linux_without_align4_have_whole_eight_bytes_over_ipv4() {
    for (suite, setup) in setups().into_iter().filter(|(_, setup)| setup.local.is_ipv4()) {
        let usual = Setup { ..setup.clone() };
        let mut pair = Pair::new(&Setup { ah_alignment: AhAlignment::Eight, ..setup });
        let packets = [inner(false, 101), inner(true, 102)];
        let (wire, _) = pair.protect(&packets);
        for packet in &wire {
            // `ah_init_state` of net/ipv4/ah4.c: XFRM_ALIGN8(sizeof(struct ip_auth_hdr) + icv_trunc_len).
            let len = (12 + suite.iv_bytes() + suite.icv_bytes()).next_multiple_of(8);
            assert_eq!(usize::from(packet[21]), len / 4 - 2, "{}", suite.suite());
        }
        assert!(pair.open(&wire) == packets, "{}", suite.suite());
        // Who pads as RFC 4302 says takes them, too.
        let mut receiver = Pair::new(&usual);
        assert!(receiver.open(&wire) == packets, "{}", suite.suite());
        pair.assert_no_leak();
    }
}

fn header_len(suite: AhSuite, setup: &Setup) -> usize {
    suite.header_len(if setup.local.is_ipv4() { IpVersion::V4 } else { IpVersion::V6 })
}

#[test]
fn the_wire_shows_what_rfc_4302_says() {
    for (suite, setup) in setups() {
        let mut pair = Pair::new(&setup);
        let packets = [inner(false, 101), inner(true, 102)];
        let (wire, _) = pair.protect(&packets);
        for (n, packet) in wire.iter().enumerate() {
            let at = ip_len(&setup);
            assert_eq!(packet[if at == 20 { 9 } else { 6 }], 51);
            let header = &packet[at..];
            let len = header_len(suite, &setup);
            let unit = if at == 20 { 4 } else { 8 };
            assert_eq!(len % unit, 0, "RFC 4302 section 2.6");
            assert_eq!(header[0], [4, 41][n]);
            assert_eq!(usize::from(header[1]), len / 4 - 2);
            assert_eq!(header[2..4], [0, 0]);
            assert_eq!(header[4..8], SPI.to_be_bytes());
            assert_eq!(header[8..12], (n as u32 + 1).to_be_bytes());
            if suite.iv_bytes() == 8 {
                assert_eq!(header[12..20], (n as u64 + 1).to_be_bytes(), "RFC 4543 section 4");
            }
            let field = 12 + suite.iv_bytes() + suite.icv_bytes();
            assert_ne!(header[field - suite.icv_bytes()..field], vec![0; suite.icv_bytes()]);
            assert!(header[field..len].iter().all(|&byte| byte == 0), "padding");
            assert_eq!(header[len..], packets[n], "nothing is encrypted");
            assert!(etherparse::IpSlice::from_slice(packet).is_ok());
        }
        pair.assert_no_leak();
    }
}

/// The ICV written down a second time: over the packet with its mutable fields and ICV zero, then
/// the high half of the sequence number.
fn icv(setup: &Setup, packet: &[u8], field: std::ops::Range<usize>, seq: u64) -> Vec<u8> {
    let mut covered = packet.to_vec();
    if covered[0] >> 4 == 4 {
        [1, 6, 7, 8, 10, 11].into_iter().for_each(|at| covered[at] = 0);
    } else {
        [1, 2, 3, 7].into_iter().for_each(|at| covered[at] = 0);
        covered[0] = 0x60;
    }
    covered[field].fill(0);
    if setup.esn {
        covered.extend(((seq >> 32) as u32).to_be_bytes());
    }
    let key = SealKey::new(&cpu(), setup.suite, secrets(setup.suite)).unwrap();
    let mut icv = vec![0; setup.suite.icv_bytes()];
    let op = if setup.suite.is_aead() {
        let nonce = [&crate::common::SALT[..], &seq.to_be_bytes()].concat();
        let nonce = Nonce::new(*nonce.first_chunk::<12>().unwrap());
        SealOp::new(&key, nonce, &[], &mut covered, &mut icv)
    } else {
        let len = covered.len();
        SealOp::framed(&key, Nonce::new([]), &mut covered, len, &[], &mut icv)
    };
    seal_burst(&mut [op.unwrap()]);
    icv
}

#[test]
fn the_icv_covers_all_but_mutable_fields() {
    for (suite, setup) in setups() {
        let start = if setup.esn { (7 << 32) - 1 } else { 77 };
        let setup = Setup { start, ..setup };
        let mut pair = Pair::new(&setup);
        let (wire, _) = pair.protect(&[inner(false, 10), inner(true, 33)]);
        for (n, packet) in wire.iter().enumerate() {
            let first = ip_len(&setup) + 12;
            let field = first..first + suite.iv_bytes() + suite.icv_bytes();
            let sent = packet[field.start + suite.iv_bytes()..field.end].to_vec();
            assert_eq!(icv(&setup, packet, field, start + n as u64), sent, "{}", suite.suite());
        }
        pair.assert_no_leak();
    }
}

/// Bits that routers may change pass, and no others do.
#[test]
fn mutable_fields_may_change_and_nothing_else() {
    for (suite, setup) in setups() {
        let (wire, _) = Pair::new(&setup).protect(&[inner(false, 3)]);
        let at = ip_len(&setup);
        // Flags and offset make a fragment of it, which waits for the others.
        for byte in (0..wire[0].len()).filter(|byte| at == 40 || !(6..8).contains(byte)) {
            let mut changed = wire[0].clone();
            changed[byte] ^= 4;
            fix_checksum(&mut changed);
            let mut pair = Pair::new(&setup);
            let opened = pair.open(&[changed]);
            // The checksum is put right again above.
            let mutable: &[usize] = if at == 20 { &[1, 8, 10, 11] } else { &[0, 1, 2, 3, 7] };
            assert_eq!(!opened.is_empty(), mutable.contains(&byte), "{} {byte}", suite.suite());
            pair.assert_no_leak();
        }
    }
}

#[test]
fn replays_and_forgeries_are_told_apart() {
    for (suite, setup) in setups() {
        let mut pair = Pair::new(&setup);
        let packets = vec![inner(false, 10); 50];
        let (wire, _) = pair.protect(&packets);
        let mut forged = wire[0].clone();
        *forged.last_mut().unwrap() ^= 1;
        assert!(pair.open(&[forged]).is_empty());
        assert_eq!(pair.dropped(DropReason::BadIcv), 1, "{}", suite.suite());
        let twice: Vec<_> = wire.iter().chain(&wire).cloned().collect();
        assert_eq!(pair.open(&twice).len(), 50);
        assert_eq!(pair.dropped(DropReason::Replayed), 50);
        pair.assert_no_leak();
    }
}

/// The high half is not sent, and authenticated all the same (RFC 4302 section 2.5.1).
#[test]
fn another_high_half_makes_another_icv() {
    for (_, setup) in setups().into_iter().filter(|(_, setup)| setup.esn) {
        let (wire, _) =
            Pair::new(&Setup { start: 1 << 32 | 9, ..setup.clone() }).protect(&[inner(false, 3)]);
        let mut pair = Pair::new(&setup);
        assert!(pair.open(&wire).is_empty());
        assert_eq!(pair.dropped(DropReason::BadIcv), 1);
        pair.assert_no_leak();
    }
}

/// An SA is found by its protocol too (RFC 4301 section 4.1).
#[test]
fn esp_is_not_taken_for_ah_nor_ah_for_esp() {
    let esp = Setup { suite: suite("null+hmac-sha1-96"), ..Setup::default() };
    let ah = Setup { protocol: IpsecProtocol::Ah, ..esp.clone() };
    for (sends, receives) in [(&esp, &ah), (&ah, &esp)] {
        let (wire, _) = Pair::new(sends).protect(&[inner(false, 3)]);
        let mut pair = Pair::new(receives);
        assert!(pair.open(&wire).is_empty());
        assert_eq!(pair.dropped(DropReason::UnknownSpi), 1);
        pair.assert_no_leak();
    }
}

#[test]
fn hostile_lengths_are_named() {
    for (suite, setup) in setups() {
        let mut pair = Pair::new(&setup);
        let (wire, _) = pair.protect(&[inner(false, 40)]);
        let at = ip_len(&setup);
        let set_len = |packet: &mut Vec<u8>| {
            let len = packet.len() as u16;
            if at == 20 {
                packet[2..4].copy_from_slice(&len.to_be_bytes());
            } else {
                packet[4..6].copy_from_slice(&(len - 40).to_be_bytes());
            }
            fix_checksum(packet);
        };
        let len = header_len(suite, &setup);
        for cut in at..at + len {
            let mut packet = wire[0][..cut].to_vec();
            set_len(&mut packet);
            assert!(pair.open(&[packet]).is_empty());
        }
        assert_eq!(pair.dropped(DropReason::AhLength), len as u64, "{}", suite.suite());
        // A length field that says anything else than the ICV's own length and its padding.
        let mut named = len as u64;
        for words in (0..=255_u8).filter(|words| *words != wire[0][at + 1]) {
            let mut packet = wire[0].clone();
            packet[at + 1] = words;
            assert_eq!(pair.open(&[packet]).len(), 0);
            let claims = (usize::from(words) + 2) * 4;
            let field = 12 + suite.iv_bytes() + suite.icv_bytes();
            let unit = if at == 20 { 4 } else { 8 };
            let possible = (field..field + 8).contains(&claims) && claims % unit == 0;
            named += u64::from(!possible);
            assert_eq!(pair.dropped(DropReason::AhLength), named, "{words} words");
        }
        pair.assert_no_leak();
    }
}

/// Linux aligns AH to eight bytes over IPv4 too, unless it is told otherwise.
#[test]
fn more_padding_than_ipv4_needs_is_accepted() {
    for suite in AhSuite::all() {
        let setup = ah(suite.suite());
        let field = suite.iv_bytes() + suite.icv_bytes();
        let len = (12 + field).next_multiple_of(8);
        let payload = inner(false, 9);
        let mut packet = etherparse::Ipv4Header::new(
            (len + payload.len()) as u16,
            64,
            etherparse::IpNumber::AUTHENTICATION_HEADER,
            [192, 0, 2, 1],
            [192, 0, 2, 2],
        )
        .unwrap()
        .to_bytes()
        .to_vec();
        packet.extend([4, (len / 4 - 2) as u8, 0, 0]);
        packet.extend(SPI.to_be_bytes());
        packet.extend(5_u32.to_be_bytes());
        packet.resize(20 + len, 0);
        packet.extend(&payload);
        if suite.iv_bytes() == 8 {
            packet[32..40].copy_from_slice(&5_u64.to_be_bytes());
        }
        let range = 32..32 + field;
        let icv = icv(&setup, &packet, range.clone(), 5);
        packet[range.end - icv.len()..range.end].copy_from_slice(&icv);
        fix_checksum(&mut packet);
        let mut pair = Pair::new(&setup);
        assert_eq!(pair.open(&[packet]), [payload], "{}", suite.suite());
        pair.assert_no_leak();
    }
}

#[test]
fn options_and_extension_headers_are_refused_both_ways() {
    let setup = Setup { mode: Mode::Transport, ..ah(suite("null+hmac-sha256-128")) };
    let mut pair = Pair::new(&setup);
    let plain = between_hosts(&setup, b"options", 0);
    // Four bytes of no-operation options.
    let mut with_options = [&plain[..20], &[1, 1, 1, 1], &plain[20..]].concat();
    with_options[0] = 0x46;
    let len = with_options.len() as u16;
    with_options[2..4].copy_from_slice(&len.to_be_bytes());
    fix_checksum(&mut with_options);
    let (wire, _) = pair.protect(&[with_options, plain]);
    assert_eq!((wire.len(), pair.refused(DropReason::AhOptions)), (1, 1));
    let mut with_options = [&wire[0][..20], &[1, 1, 1, 1], &wire[0][20..]].concat();
    with_options[0] = 0x46;
    let len = with_options.len() as u16;
    with_options[2..4].copy_from_slice(&len.to_be_bytes());
    fix_checksum(&mut with_options);
    assert!(pair.open(&[with_options]).is_empty());
    assert_eq!(pair.dropped(DropReason::AhOptions), 1);
    pair.assert_no_leak();

    let (local, remote) = (V6.0.parse().unwrap(), V6.1.parse().unwrap());
    let setup = Setup { local, remote, ..setup };
    let mut pair = Pair::new(&setup);
    let plain = between_hosts(&setup, b"extension", 0);
    let extended = |packet: &[u8]| {
        let options = [packet[6], 0, 1, 4, 0, 0, 0, 0];
        let mut extended = [&packet[..40], &options, &packet[40..]].concat();
        extended[6] = 60;
        let payload = (extended.len() - 40) as u16;
        extended[4..6].copy_from_slice(&payload.to_be_bytes());
        extended
    };
    let (wire, _) = pair.protect(&[extended(&plain), plain]);
    assert_eq!((wire.len(), pair.refused(DropReason::AhOptions)), (1, 1));
    assert!(pair.open(&[extended(&wire[0])]).is_empty());
    assert_eq!(pair.dropped(DropReason::AhOptions), 1);
    pair.assert_no_leak();
}

/// A raw socket rewrites an identification of 0, which the ICV covers.
#[test]
fn no_packet_has_an_identification_of_zero() {
    let setup = Setup { start: 65_500, ..ah(suite("null+aes-cmac-96")) };
    let mut pair = Pair::new(&setup);
    let (wire, _) = pair.protect(&vec![inner(false, 3); 100]);
    let idents: Vec<_> = wire.iter().map(|p| u16::from_be_bytes([p[4], p[5]])).collect();
    assert!(idents.iter().all(|&ident| ident != 0));
    let different: std::collections::HashSet<_> = idents.iter().collect();
    assert_eq!(different.len(), 100);

    let setup = Setup { mode: Mode::Transport, ..setup };
    let mut pair = Pair::new(&setup);
    let mut packet = between_hosts(&setup, b"atomic", 0);
    packet[4..8].copy_from_slice(&[0, 0, 0x40, 0]);
    fix_checksum(&mut packet);
    let (wire, _) = pair.protect(&[packet.clone()]);
    assert_ne!(wire[0][4..6], [0, 0]);
    let mut opened = pair.open(&wire).remove(0);
    opened[4..6].fill(0);
    fix_checksum(&mut opened);
    assert_eq!(opened, packet);
}

#[test]
fn what_routers_changed_reaches_the_receiver() {
    for (_, setup) in setups() {
        let v6 = setup.local.is_ipv6();
        let mut pair = Pair::new(&setup);
        let marked = |v6| {
            let ends =
                if v6 { ("2001:db8:1::1", "2001:db8:2::2") } else { ("10.1.0.1", "10.2.0.2") };
            crate::common::inner_with(v6, ends.0, ends.1, b"capable", 0b10)
        };
        let (mut wire, _) = pair.protect(&[marked(false), marked(true)]);
        for packet in &mut wire {
            // Congestion experienced, and one hop less.
            if v6 {
                packet[1] |= 0b11 << 4;
                packet[7] -= 1;
            } else {
                packet[1] |= 0b11;
                packet[8] -= 1;
            }
            fix_checksum(packet);
        }
        let opened = pair.open(&wire);
        assert_eq!((opened[0][1] & 3, opened[1][1] >> 4 & 3), (0b11, 0b11), "RFC 6040");
        pair.assert_no_leak();

        let setup = Setup { mode: Mode::Transport, ..setup };
        let mut pair = Pair::new(&setup);
        let (mut wire, _) = pair.protect(&[between_hosts(&setup, b"hop", 0)]);
        let ttl = if v6 { 7 } else { 8 };
        wire[0][ttl] = 33;
        fix_checksum(&mut wire[0]);
        assert_eq!(pair.open(&wire)[0][ttl], 33);
        pair.assert_no_leak();
    }
}

#[test]
fn the_path_mtu_is_kept_to_the_byte() {
    for (suite, setup) in setups() {
        for mode in [Mode::Tunnel, Mode::Transport] {
            let setup = Setup { mode, path_mtu: 1400, ..setup.clone() };
            let mut pair = Pair::new(&setup);
            let headers = ip_len(&setup) + 8;
            let packets: Vec<_> = (1200..1400)
                .map(|len| {
                    let mut packet = between_hosts(&setup, &vec![7; len - headers], 0);
                    if setup.local.is_ipv4() {
                        packet[6] |= 0x40;
                        fix_checksum(&mut packet);
                    }
                    packet
                })
                .collect();
            let (wire, _) = pair.protect(&packets);
            let longest = wire.iter().map(Vec::len).max().unwrap();
            assert_eq!(longest, 1400, "{} {mode:?}", suite.suite());
            assert_eq!(wire.len() as u64 + pair.refused(DropReason::TooBig), 200);
            assert!(pair.open(&wire) == packets[..wire.len()]);
            pair.assert_no_leak();
        }
    }
}

#[test]
fn ah_takes_no_cipher() {
    for name in ["aes-128-gcm-16", "aes-128-cbc+hmac-sha1-96", "null+null"] {
        let setup = ah(suite(name));
        let mut snapshot = Snapshot::new(Spd::default());
        for refused in [
            snapshot.add_outbound(SaSlot(0), Arc::new(setup.outbound())),
            snapshot.add_inbound(SaSlot(0), Arc::new(setup.inbound())),
        ] {
            assert!(matches!(refused, Err(SnapshotError::Suite { .. })), "{name}: {refused:?}");
        }
    }
}
