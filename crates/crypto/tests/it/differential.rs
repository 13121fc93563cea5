//! Random bursts of every suite in every set-up against OpenSSL, and packets whose neighbours in
//! memory cannot be touched.
//!
//! The environment variable `CONVOY_TEST_ROUNDS` asks for more rounds than the one of everyday.

use std::env;

use crate::common::{
    Packet, Random, Setup,
    guarded::Guarded,
    open,
    openssl::{OpenSsl, Parts},
    packet::{open_op, seal_op},
    seal, setups, setups_for,
};
use convoy_crypto::{
    Cipher, HashAlg, IcvLen, Integrity, KeyBits, MacAlg, OpenOp, SealOp, Suite, Verdict,
    open_burst, seal_burst,
};

fn rounds() -> u64 {
    match env::var("CONVOY_TEST_ROUNDS") {
        Ok(text) => text.parse().expect("CONVOY_TEST_ROUNDS is a number"),
        Err(_) => 1,
    }
}

/// Seals a packet with OpenSSL.
fn sealed_by(openssl: &OpenSsl, packet: &Packet) -> Packet {
    let mut sealed = packet.clone();
    let mut parts = Parts {
        suite: packet.suite,
        keys: (&packet.keys.0, &packet.keys.1),
        nonce: &packet.nonce,
        header: &packet.header,
        text: &mut sealed.text,
        trailer: &packet.trailer,
    };
    sealed.icv = openssl.seal(&mut parts);
    sealed
}

/// A MAC that IPsec may not have, with an ICV of any length it can have.
fn any_integrity(random: &mut Random) -> Integrity {
    let alg = match random.below(10) {
        0 => MacAlg::AesXcbc,
        1..4 => MacAlg::AesCmac(random.pick(&KeyBits::ALL)),
        _ => MacAlg::Hmac(random.pick(&HashAlg::ALL)),
    };
    Integrity::new(alg, 4 + random.below(alg.mac_bytes() - 3)).expect("fits the MAC")
}

/// Every suite of IPsec, and some that are not among them.
fn suites(random: &mut Random) -> Vec<Suite> {
    let cipher = |random: &mut Random| random.pick(&Cipher::ALL);
    let odd =
        (0..8).map(|_| Suite::Pair { cipher: cipher(random), integrity: any_integrity(random) });
    let odd: Vec<_> = odd.collect();
    let alone = Cipher::ALL.map(|cipher| Suite::Pair { cipher, integrity: Integrity::NULL });
    Suite::all().chain(odd).chain(alone).collect()
}

/// A burst of one suite: 1 to 256 packets of equal or different lengths, with one key or several.
fn burst(suite: Suite, random: &mut Random) -> Vec<Packet> {
    let count = random.pick(&[1, 2, 3, 5, 8, 9, 16, 17, 31, 33, 64, 65, 100, 128, 129, 200, 256]);
    let most = if count > 33 { 1600 } else { 16_384 };
    let (same, step) = (random.length(most), random.below(4));
    let style = random.below(4);
    let mut key_count = random.pick(&[1, 1, 2, count, 7]);
    let mut packets: Vec<Packet> = Vec::new();
    // Bounds what a round costs.
    let mut budget = 100_000;
    for i in 0..count {
        let length = match style {
            0 => same,
            1 => (same + i % 8 * step).min(most),
            _ => random.length(most),
        };
        let length = length.min(budget);
        budget -= length;
        let mut packet = Packet::random(suite, random, length);
        if let Suite::Ccm { .. } = suite {
            let nonce = 7 + random.below(7);
            packet.nonce = random.bytes(nonce);
        }
        if matches!(suite, Suite::Pair { integrity, .. }
            if matches!(integrity.alg(), MacAlg::Hmac(_)))
        {
            let length = random.pick(&[0, 1, 20, 32, 63, 64, 65, 127, 128, 129, 200]);
            if random.below(4) == 0 {
                packet.keys.1 = random.bytes(length);
            }
        }
        if key_count > 0 {
            key_count -= 1;
        } else {
            packet.keys = packets[random.below(packets.len())].keys.clone();
        }
        packets.push(packet);
    }
    packets
}

fn assert_same(found: &[Packet], expected: &[Packet], what: &str) {
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(
            found == expected,
            "{what}: packet {i} of {}: header {}, text {}, trailer {}, keys of {} and {}: text {}, \
             ICV {}",
            expected.suite,
            expected.header.len(),
            expected.text.len(),
            expected.trailer.len(),
            expected.keys.0.len(),
            expected.keys.1.len(),
            if found.text == expected.text { "agrees" } else { "differs" },
            if found.icv == expected.icv { "agrees" } else { "differs" },
        );
    }
}

/// Flips a bit of some packets; returns which.
fn tamper(packets: &mut [Packet], random: &mut Random) -> Vec<bool> {
    let each = packets.iter_mut().map(|packet| {
        if random.below(3) > 0 || packet.icv.is_empty() {
            return false;
        }
        let parts = [&mut packet.text, &mut packet.icv, &mut packet.header, &mut packet.trailer];
        let mut parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let chosen = random.below(parts.len());
        let part = &mut parts[chosen];
        let bit = random.below(part.len() * 8);
        part[bit / 8] ^= 1 << (bit % 8);
        true
    });
    each.collect()
}

#[test]
fn random_bursts_agree_with_openssl() {
    let Some(openssl) = OpenSsl::find() else { return };
    let setups = setups();
    let (mut count, mut bytes) = (0, 0);
    for round in 0..rounds() {
        let mut random = Random(round);
        for suite in suites(&mut random) {
            let plain = burst(suite, &mut random);
            let expected: Vec<_> = plain.iter().map(|packet| sealed_by(openssl, packet)).collect();
            count += plain.len();
            bytes += plain.iter().map(|packet| packet.text.len()).sum::<usize>();
            let ways = setups_for(suite, &setups);
            for &setup in &ways {
                let what = format!("round {round}, {setup}, burst of {}", plain.len());
                let mut packets = plain.clone();
                seal(&mut packets, |_| setup);
                assert_same(&packets, &expected, &format!("sealing, {what}"));
                let verdicts = open(&mut packets, |_| setup);
                assert!(verdicts.iter().all(|v| *v == Verdict::Authentic), "{suite}, {what}");
                for (packet, plain) in packets.iter().zip(&plain) {
                    assert!(packet.text == plain.text, "opening, {suite}, {what}");
                }
            }
            let setup = random.pick(&ways);
            assert_forgeries_are_found(&plain, &expected, setup, &mut random);
        }
    }
    println!("{count} packets with {bytes} bytes of text, in {} set-ups", setups.len());
}

fn assert_forgeries_are_found(
    plain: &[Packet],
    sealed: &[Packet],
    setup: Setup,
    random: &mut Random,
) {
    let mut packets = sealed.to_vec();
    let forged = tamper(&mut packets, random);
    let verdicts = open(&mut packets, |_| setup);
    for (i, (packet, plain)) in packets.iter().zip(plain).enumerate() {
        let (suite, count) = (packet.suite, packets.len());
        if forged[i] {
            assert_eq!(verdicts[i], Verdict::Forged, "{suite}, {setup}, {i} of {count}");
            assert!(packet.text.iter().all(|&byte| byte == 0), "{suite}, {setup}: wiped");
        } else {
            assert_eq!(verdicts[i], Verdict::Authentic, "{suite}, {setup}, {i} of {count}");
            assert!(packet.text == plain.text, "{suite}, {setup}, {i} of {count}");
        }
    }
}

/// Suites, set-ups and keys in any order within one burst.
#[test]
fn mixed_bursts_agree_with_openssl() {
    let Some(openssl) = OpenSsl::find() else { return };
    let setups = setups();
    for round in 0..4 * rounds() {
        let mut random = Random(1_000_000 + round);
        let suites = suites(&mut random);
        let few: Vec<_> = (0..3).map(|_| random.pick(&suites)).collect();
        let pool = if round % 2 == 0 { &suites } else { &few };
        let plain: Vec<_> = (0..256)
            .map(|_| {
                let (suite, length) = (random.pick(pool), random.length(2000));
                Packet::random(suite, &mut random, length)
            })
            .collect();
        let expected: Vec<_> = plain.iter().map(|packet| sealed_by(openssl, packet)).collect();
        let ways: Vec<_> = plain.iter().map(|_| random.pick(&setups)).collect();
        let mut packets = plain.clone();
        seal(&mut packets, |i| ways[i]);
        assert_same(&packets, &expected, &format!("round {round}"));
        let forged = tamper(&mut packets, &mut random);
        let verdicts = open(&mut packets, |i| ways[i]);
        for (i, (packet, plain)) in packets.iter().zip(&plain).enumerate() {
            let (suite, setup) = (packet.suite, ways[i]);
            let expected = if forged[i] { Verdict::Forged } else { Verdict::Authentic };
            assert_eq!(verdicts[i], expected, "round {round}, {suite}, {setup}");
            let text = packet.text.iter().zip(&plain.text);
            let right = if forged[i] {
                text.clone().all(|(&a, _)| a == 0)
            } else {
                packet.text == plain.text
            };
            assert!(right, "round {round}, {suite}, {setup}");
        }
    }
}

/// Every length around the sizes of blocks, and of groups of them, that kernels know.
#[test]
fn every_short_length_agrees_with_openssl() {
    let Some(openssl) = OpenSsl::find() else { return };
    let one = |cipher, integrity| Suite::Pair { cipher, integrity };
    let cbc = Cipher::AesCbc(KeyBits::Aes256);
    let ctr = Cipher::AesCtr(KeyBits::Aes128);
    let mut suites = vec![
        Suite::ChaCha20Poly1305,
        Suite::Gmac(KeyBits::Aes128),
        Suite::Ccm { key_bits: KeyBits::Aes128, icv_len: IcvLen::Icv16 },
        Suite::Ccm { key_bits: KeyBits::Aes256, icv_len: IcvLen::Icv8 },
        one(cbc, Integrity::NULL),
        one(ctr, Integrity::NULL),
        one(Cipher::AesCtr(KeyBits::Aes256), Integrity::NULL),
        one(Cipher::TripleDesCbc, Integrity::NULL),
        one(Cipher::CamelliaCbc(KeyBits::Aes192), Integrity::NULL),
    ];
    let macs = HashAlg::ALL.map(MacAlg::Hmac).into_iter().chain([MacAlg::AesXcbc]);
    let macs = macs.chain(KeyBits::ALL.map(MacAlg::AesCmac));
    suites.extend(macs.map(|alg| one(Cipher::Null, Integrity::full(alg))));
    let setups = setups();
    for suite in suites {
        let mut random = Random(9);
        let step = suite.block_bytes();
        // A lone message of ChaCha20-Poly1305 fills lanes by itself, 960 bytes and more at a time.
        let most = if suite == Suite::ChaCha20Poly1305 { 2000 } else { 530 };
        let lengths = (0..most * step).step_by(step);
        let plain: Vec<_> = lengths
            .map(|text| {
                let header = if text % 3 == 0 { 0 } else { 16 };
                Packet::of_lengths(suite, &mut random, header, text, text % 2 * 4)
            })
            .collect();
        let expected: Vec<_> = plain.iter().map(|packet| sealed_by(openssl, packet)).collect();
        for setup in setups_for(suite, &setups) {
            // Lengths go through kernels together, and each alone.
            for size in [256, 1] {
                let mut packets = plain.clone();
                for burst in packets.chunks_mut(size) {
                    seal(burst, |_| setup);
                }
                assert_same(&packets, &expected, &format!("{setup}, bursts of {size}"));
                for burst in packets.chunks_mut(size) {
                    let verdicts = open(burst, |_| setup);
                    assert!(verdicts.iter().all(|v| *v == Verdict::Authentic), "{suite}, {setup}");
                }
                for (packet, plain) in packets.iter().zip(&plain) {
                    assert!(packet.text == plain.text, "{suite}, {setup}, bursts of {size}");
                }
            }
        }
    }
}

/// More than any kernel has lanes.
const FRAMES: usize = 17;

#[test]
fn nothing_outside_the_buffers_is_touched() {
    let setups = setups();
    let mut frames: Vec<_> = (0..FRAMES).map(|_| Guarded::new(2048)).collect();
    let mut icvs: Vec<_> = (0..FRAMES).map(|_| Guarded::new(64)).collect();
    let mut random = Random(4);
    for suite in Suite::all() {
        for base in [0, 16, 48, 62, 126, 254, 511, 1420] {
            let spread = random.below(3);
            let key = Packet::random(suite, &mut random, 0).keys;
            let plain: Vec<_> = (0..FRAMES)
                .map(|i| {
                    let (header, text, trailer) = (i % 3 * 12, base + i * spread, i % 2 * 4);
                    let packet = Packet::of_lengths(suite, &mut random, header, text, trailer);
                    Packet { keys: key.clone(), ..packet }
                })
                .collect();
            let mut expected = plain.clone();
            seal(&mut expected, |_| setups[0]);
            for setup in setups_for(suite, &setups) {
                for at_end in [false, true] {
                    let frames = frames.iter_mut().zip(icvs.iter_mut());
                    guarded_burst(&plain, &expected, setup, frames, at_end);
                }
            }
        }
    }
}

fn guarded_burst<'g>(
    plain: &[Packet],
    expected: &[Packet],
    setup: Setup,
    memory: impl Iterator<Item = (&'g mut Guarded, &'g mut Guarded)>,
    at_end: bool,
) {
    let (seal_key, open_key) = (plain[0].seal_key(setup), plain[0].open_key(setup));
    let mut places: Vec<_> = plain
        .iter()
        .zip(memory)
        .map(|(packet, (frame, icv))| {
            let bytes = [&*packet.header, &*packet.text].concat();
            (frame.copy(&bytes, at_end), icv.copy(&packet.icv, at_end))
        })
        .collect();
    let ops = plain.iter().zip(&mut places);
    let mut ops: Vec<SealOp<'_>> =
        ops.map(|(packet, (frame, icv))| seal_op(packet, &seal_key, frame, icv)).collect();
    seal_burst(&mut ops);
    drop(ops);
    for (expected, (frame, icv)) in expected.iter().zip(&places) {
        let text = &frame[expected.header.len()..];
        assert!(
            *text == *expected.text && **icv == *expected.icv,
            "{} on {setup}, {} bytes",
            expected.suite,
            text.len()
        );
    }
    let ops = plain.iter().zip(&mut places);
    let mut ops: Vec<OpenOp<'_>> =
        ops.map(|(packet, (frame, icv))| open_op(packet, &open_key, frame, icv)).collect();
    open_burst(&mut ops);
    assert!(ops.iter().all(|op| op.verdict() == Verdict::Authentic));
    drop(ops);
    for (plain, (frame, _)) in plain.iter().zip(&places) {
        assert!(frame[plain.header.len()..] == *plain.text, "{} on {setup}", plain.suite);
    }
}
