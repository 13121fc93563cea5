//! Bursts of any suites: sealing gives what OpenSSL gives, opening gives it back, what was touched is
//! found forged and wiped, lengths that do not fit are refused, and nothing else changes or panics.

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use convoy_crypto::{
    Cipher, HashAlg, IcvLen, Integrity, KeyBits, MacAlg, Nonce, OpenOp, SealOp, Suite, Tier,
    Verdict,
};

use crate::common::{self, Packet, Random, Setup, open, seal, setups};
use crate::oracle::{Oracle, Parts};

/// Longest text.
const TEXT_MAX: usize = 16_384;
/// Most packets and most bytes of text in a burst, so that an input stays cheap.
const PACKETS_MAX: usize = 256;
const BYTES_MAX: usize = 60_000;

/// Packets of one burst.
#[derive(Arbitrary, Debug)]
pub struct Input(Vec<Spec>);

/// One packet as the fuzzer wants it; whatever is out of range is brought into it.
#[derive(Arbitrary, Debug)]
struct Spec {
    suite: u8,
    mac: u8,
    icv: u8,
    key: u8,
    key_len: u8,
    setup: u8,
    header: u8,
    trailer: u8,
    text: u16,
    nonce: u8,
    /// Pattern of its bytes: zeros, ones, or like random ones.
    fill: u8,
    /// Part that is touched before opening, and the bit of it; half of all are left alone.
    touch: (u8, u16),
    /// Lengths that may not fit.
    misfit: Option<(u16, u16, u8, u8)>,
}

static SETUPS: LazyLock<Vec<Setup>> = LazyLock::new(setups);

fn suite(spec: &Spec) -> Suite {
    let pick = |n: u8| usize::from(n);
    let key_bits = KeyBits::ALL[pick(spec.icv) % 3];
    let icv_len = IcvLen::ALL[pick(spec.icv) / 3 % 3];
    let cipher = Cipher::ALL[pick(spec.suite) / 12 % Cipher::ALL.len()];
    match spec.suite % 12 {
        0 => common::gcm(key_bits, icv_len),
        1 => Suite::Gmac(key_bits),
        2 => Suite::Ccm { key_bits, icv_len },
        3 => Suite::ChaCha20Poly1305,
        4 => Suite::Pair { cipher, integrity: Integrity::NULL },
        _ => {
            let alg = match spec.mac % 10 {
                0 => MacAlg::AesXcbc,
                n @ 1..=3 => MacAlg::AesCmac(KeyBits::ALL[pick(n) - 1]),
                n => MacAlg::Hmac(HashAlg::ALL[pick(n) - 4]),
            };
            let icv = 4 + pick(spec.icv) % (alg.mac_bytes() - 3);
            Suite::Pair { cipher, integrity: Integrity::new(alg, icv).unwrap() }
        }
    }
}

fn packet(spec: &Spec, budget: &mut usize) -> Packet {
    let suite = suite(spec);
    let text = (usize::from(spec.text) % (TEXT_MAX + 1)).min(*budget);
    *budget -= text;
    let (header, trailer) = (usize::from(spec.header), usize::from(spec.trailer) % 17);
    let mut random = Random(u64::from(spec.text));
    let mut packet = Packet::of_lengths(suite, &mut random, header, text, trailer);
    match spec.fill % 4 {
        0 => packet.text.fill(0),
        1 => packet.text.fill(0xff),
        _ => {}
    }
    let mut random = Random(u64::from(spec.key));
    packet.keys = (random.bytes(suite.key_bytes()), random.bytes(suite.integrity_key_bytes()));
    match suite {
        Suite::Ccm { .. } => packet.nonce.resize(7 + usize::from(spec.nonce) % 7, spec.nonce),
        Suite::Pair { integrity, .. } if matches!(integrity.alg(), MacAlg::Hmac(_)) => {
            packet.keys.1 = random.bytes(usize::from(spec.key_len));
        }
        _ => {}
    }
    packet
}

/// Flips the bit that the fuzzer wants; whether there was one.
fn touch(spec: &Spec, packet: &mut Packet) -> bool {
    let (part, bit) = spec.touch;
    let part = match part % 8 {
        _ if packet.icv.is_empty() => return false,
        0 => &mut packet.text,
        1 => &mut packet.icv,
        2 => &mut packet.header,
        3 => &mut packet.trailer,
        _ => return false,
    };
    if part.is_empty() {
        return false;
    }
    let bit = usize::from(bit) % (part.len() * 8);
    part[bit / 8] ^= 1 << (bit % 8);
    true
}

/// Operations of lengths that may not fit are refused exactly if they do not.
fn misfit(spec: &Spec, packet: &Packet, setup: Setup) {
    let Some((frame, header, trailer, icv)) = spec.misfit else { return };
    let (frame, header) = (usize::from(frame) % 5000, usize::from(header) % 5000);
    let (trailer, icv) = (usize::from(trailer), usize::from(icv));
    let suite = packet.suite;
    let (seal_key, open_key) = (packet.seal_key(setup), packet.open_key(setup));
    let (mut text, mut tag, beside) = (vec![1; frame], vec![2; icv], vec![3; trailer]);
    let right = suite.icv_bytes() == icv;
    let aead = right && suite.nonce_bytes() == 12 && suite.is_aead();
    let op = SealOp::new(&seal_key, Nonce::new([0; 12]), &beside, &mut text, &mut tag);
    assert_eq!(op.is_ok(), aead || right && matches!(suite, Suite::Ccm { .. }), "{suite}");
    let op = OpenOp::new(&open_key, [0; 16], &beside, &mut text, &tag);
    assert!(op.is_err(), "{suite}");
    let blocks =
        frame.checked_sub(header).is_none_or(|text| text.is_multiple_of(suite.block_bytes()));
    let fits = right && !suite.is_aead() && header <= frame && trailer <= 16 && blocks;
    let op = SealOp::framed(&seal_key, Nonce::new([0; 16]), &mut text, header, &beside, &mut tag);
    assert_eq!(op.is_ok(), fits && suite.nonce_bytes() == 16, "{suite}");
    let op = OpenOp::framed(&open_key, [0; 12], &mut text, header, &beside, &tag);
    assert_eq!(op.is_ok(), fits && suite.nonce_bytes() == 12, "{suite}");
    let op = OpenOp::framed(&open_key, [], &mut text, header, &beside, &tag);
    assert_eq!(op.is_ok(), fits && suite.nonce_bytes() == 0, "{suite}");
    let op = OpenOp::framed(&open_key, [0; 12], &mut text, usize::MAX - header, &beside, &tag);
    assert!(op.is_err(), "{suite}");
}

fn expected(plain: &[Packet], oracle: Option<&dyn Oracle>) -> Vec<Packet> {
    let mut sealed = plain.to_vec();
    let Some(oracle) = oracle else {
        // Only tiers are compared then.
        seal(&mut sealed, |_| Tier::Portable);
        return sealed;
    };
    for packet in &mut sealed {
        let icv_len = packet.suite.icv_bytes();
        let mut parts = Parts {
            suite: packet.suite,
            keys: (&packet.keys.0, &packet.keys.1),
            nonce: &packet.nonce,
            header: &packet.header,
            text: &mut packet.text,
            trailer: &packet.trailer,
        };
        packet.icv = oracle.seal(&mut parts, icv_len);
    }
    sealed
}

/// Panics where tiers differ from each other or from the oracle.
pub fn check(input: &Input, oracle: Option<&dyn Oracle>) {
    let specs = &input.0[..input.0.len().min(PACKETS_MAX)];
    let mut budget = BYTES_MAX;
    let plain: Vec<_> = specs.iter().map(|spec| packet(spec, &mut budget)).collect();
    let setup_of = |i: usize| SETUPS[usize::from(specs[i].setup) % SETUPS.len()];
    for (i, (spec, packet)) in specs.iter().zip(&plain).enumerate().take(4) {
        misfit(spec, packet, setup_of(i));
    }
    let expected = expected(&plain, oracle);
    let mut packets = plain.clone();
    seal(&mut packets, setup_of);
    for (i, (sealed, expected)) in packets.iter().zip(&expected).enumerate() {
        assert!(sealed == expected, "{} on {}", sealed.suite, setup_of(i));
    }
    let touched: Vec<_> =
        specs.iter().zip(&mut packets).map(|(spec, packet)| touch(spec, packet)).collect();
    let verdicts = open(&mut packets, setup_of);
    for (i, (opened, plain)) in packets.iter().zip(&plain).enumerate() {
        let (suite, setup) = (plain.suite, setup_of(i));
        if touched[i] {
            assert_eq!(verdicts[i], Verdict::Forged, "{suite} on {setup}");
            assert!(opened.text.iter().all(|&byte| byte == 0), "{suite} on {setup} is not wiped");
        } else {
            assert_eq!(verdicts[i], Verdict::Authentic, "{suite} on {setup}");
            assert!(opened.text == plain.text, "{suite} on {setup}");
        }
    }
}
