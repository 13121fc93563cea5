//! Properties that every suite must have: IVs, lengths, integrity, secrecy.

use std::collections::HashSet;
use std::sync::Arc;

use crate::common::{Pair, Setup, inner, sealed, suite, text_in_blocks};
use convoy_crypto::{Cipher, Suite};
use convoy_ipsec::drop_reason::DropReason;
use convoy_ipsec::sa::{InboundSpec, Mode, OutboundSpec, ReqId, SaSlot, SaSpec};
use convoy_ipsec::selector::{AddressSelector, Selector};
use convoy_ipsec::snapshot::{Snapshot, SnapshotError};
use convoy_ipsec::spd::{Direction, Policy, PolicyAction, Spd};
use convoy_ipsec::suite::EspSuite;
use convoy_wire::{Prefix, Spi};

/// Offset of ESP behind an IPv4 header, in bytes.
const ESP: usize = 20;

fn setups() -> impl Iterator<Item = (EspSuite, Setup)> {
    EspSuite::all().map(|suite| (suite, Setup { suite: suite.suite(), ..Setup::default() }))
}

fn is_encrypted(suite: Suite) -> bool {
    !matches!(suite, Suite::Gmac(_) | Suite::Pair { cipher: Cipher::Null, .. })
}

fn iv(suite: EspSuite, packet: &[u8]) -> Vec<u8> {
    packet[ESP + 8..ESP + suite.layout().prefix_len()].to_vec()
}

/// One key, two runs: what was used before a restart is not used again (RFC 4106 section 3.1,
/// RFC 3602 section 3).
#[test]
fn no_iv_comes_twice_under_one_key_restarts_included() {
    const PACKETS: usize = 3000;
    let packets = vec![inner(false, 10); PACKETS];
    for (suite, setup) in setups() {
        let expected = suite.layout().iv_len();
        let mut ivs = Vec::new();
        let mut start = setup.start;
        for _ in 0..3 {
            let mut pair = Pair::new(&Setup { start, ..setup.clone() });
            let (wire, _) = pair.protect(&packets);
            ivs.extend(wire.iter().map(|packet| iv(suite, packet)));
            // The next run begins behind what the lease says was used.
            start = pair.out.lease.used().get() + 1;
            pair.assert_no_leak();
        }
        assert_eq!(ivs.len(), 3 * PACKETS);
        assert!(ivs.iter().all(|iv| iv.len() == expected));
        if expected == 0 {
            continue;
        }
        let different: HashSet<_> = ivs.iter().collect();
        assert_eq!(different.len(), ivs.len(), "{}", suite.suite());
    }
}

/// A peer shipped a CBC IV of which one byte varied.
#[test]
fn every_byte_of_an_iv_of_cbc_varies_and_none_follows_from_the_last() {
    let cbc = setups().filter(|(suite, _)| suite.suite().block_bytes() > 1);
    let mut seen = 0;
    for (suite, setup) in cbc {
        let mut pair = Pair::new(&setup);
        let (wire, _) = pair.protect(&vec![inner(false, 10); 2000]);
        let ivs: Vec<_> = wire.iter().map(|packet| iv(suite, packet)).collect();
        for at in 0..suite.layout().iv_len() {
            let values: HashSet<_> = ivs.iter().map(|iv| iv[at]).collect();
            // 2000 draws of 256 leave out a tenth of a value on average.
            assert!(values.len() > 240, "byte {at} takes {} values", values.len());
            let differences: HashSet<_> =
                ivs.windows(2).map(|two| two[1][at].wrapping_sub(two[0][at])).collect();
            assert!(differences.len() > 240, "byte {at} moves by {} steps", differences.len());
        }
        seen += 1;
        pair.assert_no_leak();
    }
    assert_eq!(seen, 7 * 8, "AES and Camellia of three key sizes and 3DES, each with every MAC");
}

#[test]
fn a_cipher_without_integrity_never_reaches_a_worker() {
    for name in ["aes-128-cbc+null", "aes-256-ctr+null", "null+null", "null+hmac-sha1-32"] {
        let setup = Setup { suite: suite(name), ..Setup::default() };
        let mut snapshot = Snapshot::new(Spd::default());
        let refused = [
            snapshot.add_outbound(SaSlot(0), Arc::new(setup.outbound())),
            snapshot.add_inbound(SaSlot(0), Arc::new(setup.inbound())),
        ];
        for refused in refused {
            assert!(matches!(refused, Err(SnapshotError::Suite { .. })), "{name}: {refused:?}");
        }
        assert!(snapshot.is_empty());
    }
}

#[test]
fn what_is_inside_shows_only_where_nothing_is_encrypted() {
    for (suite, setup) in setups() {
        let mut pair = Pair::new(&setup);
        let packet = crate::common::inner_with(false, "10.1.0.1", "10.2.0.2", &[0xab; 64], 0);
        let (wire, _) = pair.protect(std::slice::from_ref(&packet));
        let shown = wire[0].windows(32).any(|window| window == [0xab; 32]);
        assert_eq!(shown, !is_encrypted(suite.suite()), "{}", suite.suite());
        pair.assert_no_leak();
    }
}

/// Header, IV, text, ICV: no bit of them may change, for any suite.
#[test]
fn every_byte_of_an_esp_packet_is_authenticated() {
    for (suite, setup) in setups() {
        for esn in [false, true] {
            let mut pair = Pair::new(&Setup { esn, ..setup.clone() });
            let (wire, _) = pair.protect(&[inner(false, 3)]);
            let forgeries: Vec<_> = (ESP + 4..wire[0].len())
                .map(|at| {
                    let mut forged = wire[0].clone();
                    forged[at] ^= 1 << (at % 8);
                    forged
                })
                .collect();
            assert!(pair.open(&forgeries).is_empty(), "{}", suite.suite());
            let bad = pair.dropped(DropReason::BadIcv);
            assert_eq!(bad, forgeries.len() as u64, "{}", suite.suite());
            assert_eq!(pair.open(&wire).len(), 1);
            pair.assert_no_leak();
        }
    }
}

/// The high half is not sent; who has another one computes another ICV (RFC 4303 section 2.2.1).
#[test]
fn the_high_half_of_a_sequence_number_is_authenticated() {
    for (suite, setup) in setups() {
        let block = suite.layout().align();
        let text = text_in_blocks(&inner(false, 9), 4, block);
        let low = 77;
        for (high, opens) in [(0, true), (1, false)] {
            let mut pair = Pair::new(&setup);
            let opened = pair.open(&[sealed(&setup, high << 32 | low, &text, 0)]);
            assert_eq!(!opened.is_empty(), opens, "{}", suite.suite());
            assert_eq!(pair.dropped(DropReason::BadIcv), u64::from(!opens));
            pair.assert_no_leak();
        }
    }
}

/// The pipeline opens what the library seals under every suite, written down in the tests a second
/// time; and a text of a wrong length is named before any key is touched.
#[test]
fn hostile_lengths_of_every_layout_are_named() {
    for (suite, setup) in setups() {
        let lengths = suite.layout();
        let mut pair = Pair::new(&setup);
        let good = sealed(&setup, 1, &text_in_blocks(&inner(false, 40), 4, lengths.align()), 0);
        let mut named = 0;
        for len in ESP..good.len() {
            let mut cut = good[..len].to_vec();
            cut[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            fix_checksum(&mut cut);
            assert!(pair.open(&[cut]).is_empty(), "{} of {len} bytes", suite.suite());
            let text = (len - ESP).checked_sub(lengths.prefix_len() + lengths.icv_len());
            let whole = text.is_some_and(|text| text > 0 && text.is_multiple_of(lengths.align()));
            named += u64::from(!whole);
            assert_eq!(pair.dropped(DropReason::EspLength), named, "{} of {len}", suite.suite());
        }
        let forged = (good.len() - ESP) as u64 - named;
        assert_eq!(pair.dropped(DropReason::BadIcv), forged);
        assert_eq!(pair.dropped(DropReason::EngineRejected), 0);
        assert_eq!(pair.open(&[good]).len(), 1);
        pair.assert_no_leak();
    }
}

fn fix_checksum(packet: &mut [u8]) {
    let header = etherparse::Ipv4Header::from_slice(packet).unwrap().0;
    packet[10..12].copy_from_slice(&header.calc_header_checksum().to_be_bytes());
}

/// The largest packet that fits leaves none of the path unused that the cipher could use, and the
/// next larger is refused or cut.
#[test]
fn the_path_mtu_is_kept_to_the_byte() {
    for (suite, setup) in setups() {
        for mode in [Mode::Tunnel, Mode::Transport] {
            let setup = Setup { mode, path_mtu: 1400, ..setup.clone() };
            let mut pair = Pair::new(&setup);
            let packets: Vec<_> = (1250..1400)
                .map(|len| {
                    let data = vec![7; len - 28];
                    let mut packet =
                        crate::common::inner_with(false, "192.0.2.1", "192.0.2.2", &data, 0);
                    packet[6] |= 0x40;
                    fix_checksum(&mut packet);
                    packet
                })
                .collect();
            let (wire, answers) = pair.protect(&packets);
            let align = suite.layout().align();
            let longest = wire.iter().map(Vec::len).max().unwrap();
            assert!(longest <= 1400 && longest > 1400 - align, "{}: {longest}", suite.suite());
            assert_eq!(wire.len() as u64 + pair.refused(DropReason::TooBig), 150);
            let told = answers.iter().map(|icmp| u16::from_be_bytes([icmp[26], icmp[27]]));
            let fits = packets[wire.len() - 1].len() as u16;
            assert!(told.into_iter().all(|mtu| mtu == fits), "{}: {fits}", suite.suite());
            assert!(pair.open(&wire) == packets[..wire.len()]);
            pair.assert_no_leak();
        }
    }
}

/// RFC 4303 section 2.7: short packets look like long ones, as far as the path takes them.
#[test]
fn inner_packets_are_filled_up_to_one_length() {
    for (suite, setup) in setups() {
        for (pad_to, path_mtu) in [(512, 9200), (65_000, 1400)] {
            let setup = Setup { pad_to, path_mtu, ..setup.clone() };
            let mut pair = Pair::new(&setup);
            // A longer packet first, so that frames hold old bytes where the padding goes.
            let secret = crate::common::inner_with(false, "10.1.0.1", "10.2.0.2", &[0xab; 1200], 0);
            pair.protect(&vec![secret; 300]);
            let packets: Vec<_> =
                (0..200).step_by(7).flat_map(|len| [inner(false, len), inner(true, len)]).collect();
            let (wire, _) = pair.protect(&packets);
            let lengths: HashSet<_> = wire.iter().map(Vec::len).collect();
            assert_eq!(lengths.len(), 1, "{}: {lengths:?}", suite.suite());
            let length = wire[0].len();
            assert!(length <= path_mtu.into() && length >= usize::from(pad_to.min(1380)));
            if !is_encrypted(suite.suite()) {
                let shown = wire.iter().any(|p| p.windows(8).any(|bytes| bytes == [0xab; 8]));
                assert!(!shown, "what an earlier packet left in the frame is sent");
            }
            assert!(pair.open(&wire) == packets);
            // What is longer already goes as it is.
            let long = vec![inner(false, 1000), inner(true, 1000)];
            let (wire, _) = pair.protect(&long);
            assert!(pair.open(&wire) == long);
            pair.assert_no_leak();
        }
    }
}

#[test]
fn transport_mode_fills_nothing_up() {
    let setup = Setup { mode: Mode::Transport, pad_to: 512, ..Setup::default() };
    let mut pair = Pair::new(&setup);
    let packet = crate::common::inner_with(false, "192.0.2.1", "192.0.2.2", b"short", 0);
    let (wire, _) = pair.protect(std::slice::from_ref(&packet));
    assert!(
        wire[0].len() < 100,
        "RFC 4303 section 2.7: no length tells the receiver where it ends"
    );
    assert_eq!(pair.open(&wire), [packet]);
}

/// Bursts of SAs of one suite go another way than bursts of many.
#[test]
fn suites_may_be_mixed_within_a_burst_in_any_order() {
    let setups: Vec<_> = setups().map(|(_, setup)| setup).collect();
    let mut policies: [Vec<Policy>; 2] = Default::default();
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for (n, setup) in (0..).zip(&setups) {
        let (spi, reqid) = (Spi::new(0x1000 + n).unwrap(), ReqId(n));
        let host = AddressSelector::from(format!("10.1.0.{n}/32").parse::<Prefix>().unwrap());
        left.push(Arc::new(OutboundSpec {
            sa: SaSpec { spi, reqid, ..setup.outbound().sa },
            ..setup.outbound()
        }));
        right.push(Arc::new(InboundSpec {
            sa: SaSpec { spi, reqid, ..setup.inbound().sa },
            ..setup.inbound()
        }));
        let any = AddressSelector::default();
        let ways = [(Direction::Outbound, host, any), (Direction::Inbound, any, host)];
        for (policies, (direction, local, remote)) in policies.iter_mut().zip(ways) {
            policies.push(Policy {
                name: format!("{n}").into(),
                priority: 0,
                direction,
                selector: Selector { local, remote, ..Selector::default() },
                action: PolicyAction::Protect { reqid },
            });
        }
    }
    let [outbound, inbound] = policies.map(crate::common::spd);
    let mut pair = Pair::new(&Setup::default());
    let (mut left_picture, mut right_picture) = (Snapshot::new(outbound), Snapshot::new(inbound));
    for (slot, (out, inn)) in (0..).map(SaSlot).zip(left.iter().zip(&right)) {
        left_picture.add_outbound(slot, out.clone()).unwrap();
        right_picture.add_inbound(slot, inn.clone()).unwrap();
    }
    pair.left_writer.publish(left_picture);
    pair.right_writer.publish(right_picture);
    let mut seed = 1_u32;
    let packets: Vec<_> = (0..4000)
        .map(|n| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Some bursts are of a few suites, or of one.
            let (of, first) = ([setups.len(), 3, 1][n / 256 % 3], n / 768 * 7);
            let from = (first + (seed >> 16) as usize % of) % setups.len();
            crate::common::inner_with(
                false,
                &format!("10.1.0.{from}"),
                "10.2.0.2",
                &vec![7; n % 90],
                0,
            )
        })
        .collect();
    let (wire, _) = pair.protect(&packets);
    let opened = pair.open(&wire);
    // Order is owed within an SA, and each has a host of its own.
    for of in 0..setups.len() as u8 {
        let theirs = |all: &[Vec<u8>]| -> Vec<Vec<u8>> {
            all.iter().filter(|packet| packet[15] == of).cloned().collect()
        };
        assert!(theirs(&opened) == theirs(&packets), "10.1.0.{of}");
    }
    assert_eq!(opened.len(), packets.len());
    pair.assert_no_leak();
}
