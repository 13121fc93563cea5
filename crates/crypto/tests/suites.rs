//! Every suite on every tier: what is sealed opens, and what was touched does not.

mod common;

use common::{Random, cpu, tiers};
use convoy_crypto::{
    Cipher, KeyMaterial, Nonce, OpenKey, OpenOp, SealKey, SealOp, SecretBytes, Suite, Tier,
    Verdict, open_burst, seal_burst,
};

/// A packet of any suite, with its header or additional data.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Packet {
    suite: Suite,
    keys: (Vec<u8>, Vec<u8>),
    nonce: [u8; 16],
    /// Header of a pair, additional data of an AEAD.
    header: Vec<u8>,
    trailer: Vec<u8>,
    text: Vec<u8>,
    icv: Vec<u8>,
}

impl Packet {
    fn random(suite: Suite, random: &mut Random, text: usize) -> Self {
        let blocks = matches!(suite, Suite::Pair { cipher: Cipher::AesCbc(_), .. });
        let text = if blocks { text / 16 * 16 } else { text };
        let trailer = if suite.is_aead() { 0 } else { random.pick(&[0, 4, 4, 16]) };
        let header = random.pick(&[0, 8, 12, 16, 20, 24, 77]);
        Self {
            suite,
            keys: (random.bytes(suite.key_bytes()), random.bytes(suite.integrity_key_bytes())),
            nonce: random.bytes(16).try_into().unwrap(),
            header: random.bytes(header),
            trailer: random.bytes(trailer),
            text: random.bytes(text),
            icv: vec![0; suite.icv_bytes()],
        }
    }

    fn material(&self) -> KeyMaterial {
        let (cipher, integrity) = &self.keys;
        KeyMaterial {
            cipher: SecretBytes::copy_from(cipher),
            integrity: SecretBytes::copy_from(integrity),
        }
    }

    /// Header and text in one buffer, as pairs have it.
    fn frame(&self) -> Vec<u8> {
        [&*self.header, &*self.text].concat()
    }
}

/// The front of the nonce as an array of the length that the suite has.
macro_rules! with_nonce {
    ($packet:expr, |$nonce:ident| $body:expr) => {
        match $packet.suite.nonce_bytes() {
            0 => {
                let $nonce = *$packet.nonce.first_chunk::<0>().unwrap();
                $body
            }
            11 => {
                let $nonce = *$packet.nonce.first_chunk::<11>().unwrap();
                $body
            }
            12 => {
                let $nonce = *$packet.nonce.first_chunk::<12>().unwrap();
                $body
            }
            _ => {
                let $nonce = $packet.nonce;
                $body
            }
        }
    };
}

fn seal(packets: &mut [Packet], tier_of: impl Fn(usize) -> Tier) {
    let key = |(i, p): (usize, &Packet)| {
        SealKey::with_tier(&cpu(), tier_of(i), p.suite, p.material()).unwrap()
    };
    let keys: Vec<_> = packets.iter().enumerate().map(key).collect();
    let mut frames: Vec<_> = packets.iter().map(Packet::frame).collect();
    let mut ops = Vec::new();
    for ((packet, key), frame) in packets.iter_mut().zip(&keys).zip(&mut frames) {
        let nonce = with_nonce!(packet, |nonce| Nonce::new(nonce));
        let icv = &mut packet.icv;
        ops.push(if packet.suite.is_aead() {
            SealOp::new(key, nonce, &packet.header, &mut packet.text, icv).unwrap()
        } else {
            let header = packet.header.len();
            SealOp::framed(key, nonce, frame, header, &packet.trailer, icv).unwrap()
        });
    }
    seal_burst(&mut ops);
    assert!(ops.iter().all(SealOp::is_sealed));
    drop(ops);
    for (packet, frame) in packets.iter_mut().zip(frames) {
        if !packet.suite.is_aead() {
            let (header, text) = frame.split_at(packet.header.len());
            assert_eq!(header, packet.header, "{}: the header stays", packet.suite);
            packet.text = text.to_vec();
        }
    }
}

fn open(packets: &mut [Packet], tier_of: impl Fn(usize) -> Tier) -> Vec<Verdict> {
    let key = |(i, p): (usize, &Packet)| {
        OpenKey::with_tier(&cpu(), tier_of(i), p.suite, p.material()).unwrap()
    };
    let keys: Vec<_> = packets.iter().enumerate().map(key).collect();
    let mut frames: Vec<_> = packets.iter().map(Packet::frame).collect();
    let mut ops = Vec::new();
    for ((packet, key), frame) in packets.iter_mut().zip(&keys).zip(&mut frames) {
        let (header, icv) = (&packet.header, &packet.icv);
        ops.push(if packet.suite.is_aead() {
            let text = &mut packet.text;
            with_nonce!(packet, |nonce| OpenOp::new(key, nonce, header, text, icv)).unwrap()
        } else {
            let trailer = &packet.trailer;
            with_nonce!(packet, |nonce| OpenOp::framed(
                key,
                nonce,
                frame,
                header.len(),
                trailer,
                icv
            ))
            .unwrap()
        });
    }
    open_burst(&mut ops);
    let verdicts = ops.iter().map(OpenOp::verdict).collect();
    drop(ops);
    for (packet, frame) in packets.iter_mut().zip(frames) {
        if !packet.suite.is_aead() {
            let (header, text) = frame.split_at(packet.header.len());
            assert_eq!(header, packet.header, "{}: the header stays", packet.suite);
            packet.text = text.to_vec();
        }
    }
    verdicts
}

/// Packets of one suite with the lengths that traffic has, and some odd ones.
fn packets(suite: Suite, count: usize, seed: u64) -> Vec<Packet> {
    let mut random = Random(seed);
    let lengths = [0, 1, 15, 16, 17, 48, 64, 65, 68, 100, 128, 256, 255, 524, 1348, 1420, 4000];
    (0..count)
        .map(|_| {
            let length = random.pick(&lengths);
            Packet::random(suite, &mut random, length)
        })
        .collect()
}

#[test]
fn every_tier_seals_like_the_portable_one_and_opens_what_it_sealed() {
    let tiers = tiers();
    for (i, suite) in Suite::all().enumerate() {
        let plain = packets(suite, 40, i as u64);
        let mut expected = plain.clone();
        seal(&mut expected, |_| Tier::Portable);
        for &tier in &tiers {
            let mut sealed = plain.clone();
            seal(&mut sealed, |_| tier);
            for (i, (sealed, expected)) in sealed.iter().zip(&expected).enumerate() {
                assert_eq!(sealed, expected, "{suite} on {tier}, packet {i}");
            }
            let verdicts = open(&mut sealed, |_| tier);
            assert!(verdicts.iter().all(|v| *v == Verdict::Authentic), "{suite} on {tier}");
            for (opened, plain) in sealed.iter().zip(&plain) {
                assert_eq!(opened.text, plain.text, "{suite} on {tier}");
            }
        }
    }
}

#[test]
fn encryption_changes_the_text_and_authentication_alone_does_not() {
    for suite in Suite::all() {
        let plain = Packet::random(suite, &mut Random(7), 64);
        let mut sealed = [plain.clone()];
        seal(&mut sealed, |_| Tier::Portable);
        let keeps = matches!(suite, Suite::Gmac(_) | Suite::Pair { cipher: Cipher::Null, .. });
        assert_eq!(sealed[0].text == plain.text, keeps, "{suite}");
        assert_ne!(sealed[0].icv, plain.icv, "{suite}");
    }
}

#[test]
fn a_touched_packet_is_forged_and_wiped_and_its_neighbours_are_not() {
    for tier in tiers() {
        for (i, suite) in Suite::all().enumerate() {
            let plain = packets(suite, 20, 1000 + i as u64);
            let mut sealed = plain.clone();
            seal(&mut sealed, |_| tier);
            let mut random = Random(i as u64);
            for (j, packet) in sealed.iter_mut().enumerate().filter(|(j, _)| j % 3 == 0) {
                let parts =
                    [&mut packet.text, &mut packet.icv, &mut packet.header, &mut packet.trailer];
                let mut parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
                let chosen = j % parts.len();
                let part = &mut parts[chosen];
                let bit = random.below(part.len() * 8);
                part[bit / 8] ^= 1 << (bit % 8);
            }
            let verdicts = open(&mut sealed, |_| tier);
            for (j, (opened, plain)) in sealed.iter().zip(&plain).enumerate() {
                if j % 3 == 0 {
                    assert_eq!(verdicts[j], Verdict::Forged, "{suite} on {tier}, packet {j}");
                    assert!(opened.text.iter().all(|&byte| byte == 0), "{suite} on {tier}");
                } else {
                    assert_eq!(verdicts[j], Verdict::Authentic, "{suite} on {tier}, packet {j}");
                    assert_eq!(opened.text, plain.text, "{suite} on {tier}, packet {j}");
                }
            }
        }
    }
}

#[test]
fn a_burst_may_mix_every_suite_and_every_tier() {
    let tiers = tiers();
    let suites: Vec<_> = Suite::all().collect();
    let mut random = Random(3);
    let plain: Vec<_> = (0..700)
        .map(|_| {
            let (suite, length) = (random.pick(&suites), random.below(600));
            Packet::random(suite, &mut random, length)
        })
        .collect();
    let mut expected = plain.clone();
    for packet in &mut expected {
        seal(std::slice::from_mut(packet), |_| Tier::Portable);
    }
    let mut mixed = plain.clone();
    seal(&mut mixed, |i| tiers[i % tiers.len()]);
    assert!(mixed == expected);
    let verdicts = open(&mut mixed, |i| tiers[(i / 3) % tiers.len()]);
    assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Authentic));
    assert!(mixed.iter().zip(&plain).all(|(opened, plain)| opened.text == plain.text));
}
