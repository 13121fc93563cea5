use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

use super::*;
use crate::{Cpu, SecretBytes, Suite, Tier, pass::tests::Random};

fn key(cpu: &Cpu, tier: Tier, secret: &[u8]) -> Arc<AeadKey> {
    let secret = SecretBytes::copy_from(secret);
    Arc::new(AeadKey::with_tier(cpu, tier, Suite::ChaCha20Poly1305, secret).unwrap())
}

/// A message, and what aws-lc makes of it.
struct Case {
    key: Arc<AeadKey>,
    nonce: [u8; 12],
    aad: Vec<u8>,
    plain: Vec<u8>,
    sealed: Vec<u8>,
    tag: [u8; 16],
}

impl Case {
    fn random(random: &mut Random, tier: Tier, aad: usize, len: usize) -> Self {
        let (secret, nonce): ([u8; 32], [u8; 12]) = (random.array(), random.array());
        let (aad, plain) = (random.bytes(aad), random.bytes(len));
        let oracle = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &secret).unwrap());
        let (once, mut sealed) = (Nonce::assume_unique_for_key(nonce), plain.clone());
        let tag = oracle.seal_in_place_separate_tag(once, Aad::from(&aad), &mut sealed).unwrap();
        let tag = tag.as_ref().try_into().unwrap();
        let key = key(&Cpu::detect().unwrap(), tier, &secret);
        Self { key, nonce, aad, plain, sealed, tag }
    }

    /// Both ways, with additional data and text cut at these places.
    fn check(&self, aad_cuts: &[usize], cuts: &[usize]) {
        for seal in [true, false] {
            let Self { key, nonce, aad, plain, sealed, .. } = self;
            let (from, to) = if seal { (plain, sealed) } else { (sealed, plain) };
            let mut stream = ChaChaStream::new(Arc::clone(key), seal, nonce).unwrap();
            for piece in pieces(aad.len(), aad_cuts) {
                stream.aad(&aad[piece]).unwrap();
            }
            let mut data = from.clone();
            for piece in pieces(data.len(), cuts) {
                stream.update(&mut data[piece]).unwrap();
            }
            let what = format!(
                "{stream:?}, {aad_cuts:?} of {}, {cuts:?} of {}, {key:?}",
                aad.len(),
                data.len()
            );
            assert!(data == *to, "{what}");
            match seal {
                true => assert_eq!(stream.tag(), Ok(self.tag), "{what}"),
                false => assert_eq!(stream.verify(&self.tag), Ok(true), "{what}"),
            }
        }
    }
}

fn pieces(len: usize, cuts: &[usize]) -> impl Iterator<Item = std::ops::Range<usize>> {
    let ends = cuts.iter().copied().chain([len]);
    ends.scan(0, |from, end| Some(std::mem::replace(from, end)..end))
}

fn each_tier(mut check: impl FnMut(Tier, &mut Random)) {
    let mut random = Random(1);
    for tier in Cpu::detect().unwrap().tiers() {
        check(tier, &mut random);
    }
}

#[test]
fn every_cut_of_short_messages_gives_what_aws_lc_gives() {
    each_tier(|tier, random| {
        for len in (0..=130).step_by(if tier == Tier::Portable { 13 } else { 1 }) {
            let case = Case::random(random, tier, len % 40, len);
            case.check(&[], &[]);
            for cut in 0..=len {
                case.check(&[(cut * 7) % (case.aad.len() + 1)], &[cut]);
            }
        }
    });
}

/// The places next to borders of blocks, windows and groups.
fn borders(len: usize) -> impl Iterator<Item = usize> {
    let near = |at: usize| [at.saturating_sub(1), at, at + 1];
    let borders = [0, 16, 64, 128, 192, 448, 512, 960, 1024, 1088, 2048];
    borders.into_iter().flat_map(near).filter(move |&at| at <= len)
}

#[test]
fn cuts_at_borders_give_what_aws_lc_gives() {
    each_tier(|tier, random| {
        let step = if tier == Tier::Portable { 17 } else { 1 };
        for len in borders(5000).chain([2304, 5000]) {
            let case = Case::random(random, tier, 13, len);
            for first in borders(len).step_by(step) {
                case.check(&[], &[first]);
                case.check(&[5], &[first, first + (len - first) / 2]);
                let long = first.next_multiple_of(64);
                case.check(&[], &[first, long.min(len), (long + 1200).min(len)]);
            }
        }
    });
}

#[test]
fn any_cuts_of_long_messages_give_what_aws_lc_gives() {
    each_tier(|tier, random| {
        let rounds = if tier == Tier::Portable { 6 } else { 200 };
        for round in 0..rounds {
            let (aad, len) = (random.below([20, 600][round % 2]), random.below(40_000));
            let case = Case::random(random, tier, aad, len);
            let mut cuts = |len: usize, most: [usize; 4]| {
                let (mut cuts, mut at) = (vec![], 0);
                while at < len {
                    cuts.push(at);
                    let most = most[random.below(4)];
                    at += random.below(most) + 1;
                }
                cuts
            };
            let aad_cuts = cuts(aad, [3, 16, 40, 300]);
            let most = [[20, 300, 3000, 20_000], [40, 40, 70, 1100]][round / 2 % 2];
            case.check(&aad_cuts, &cuts(len, most));
        }
    });
}

#[test]
fn additional_data_alone_and_nothing_at_all_have_tags() {
    each_tier(|tier, random| {
        for aad in [0, 1, 15, 16, 17, 32, 100] {
            let case = Case::random(random, tier, aad, 0);
            for cut in 0..=aad {
                case.check(&[cut], &[]);
            }
        }
    });
}

/// The accumulator is largest where every bit of the text that is sealed is set.
#[test]
fn long_messages_of_ones_agree_with_the_one_shot_call() {
    use crate::{Nonce, SealOp, seal_burst};
    each_tier(|tier, random| {
        let case = Case::random(random, tier, 16, 9000);
        let mut data: Vec<_> =
            case.plain.iter().zip(&case.sealed).map(|(plain, sealed)| !(plain ^ sealed)).collect();
        let mut whole = data.clone();
        let mut stream = ChaChaStream::seal(Arc::clone(&case.key), &case.nonce).unwrap();
        stream.aad(&[0xff; 16]).unwrap();
        for piece in data.chunks_mut(1500) {
            stream.update(piece).unwrap();
        }
        assert!(data.iter().all(|byte| *byte == 0xff));
        let (mut tag, nonce) = ([0; 16], Nonce::new(case.nonce));
        let op = SealOp::with_aead_key(&case.key, nonce, &[0xff; 16], &mut whole, &mut tag);
        seal_burst(&mut [op.unwrap()]);
        assert_eq!(stream.tag(), Ok(tag), "{tier}");
    });
}

#[test]
fn clones_go_on_where_the_original_stands() {
    each_tier(|tier, random| {
        for (aad, cut) in [(21, 0), (21, 1), (5, 16), (16, 40), (40, 1300), (13, 2000)] {
            let case = Case::random(random, tier, aad, 3000);
            let mut data = case.plain.clone();
            let mut stream = ChaChaStream::seal(Arc::clone(&case.key), &case.nonce).unwrap();
            stream.aad(&case.aad[..5]).unwrap();
            let mut early = stream.clone();
            stream.aad(&case.aad[5..]).unwrap();
            early.aad(&case.aad[5..]).unwrap();
            stream.update(&mut data[..cut]).unwrap();
            let mut rest = data[cut..].to_vec();
            let mut late = stream.clone();
            stream.update(&mut data[cut..]).unwrap();
            late.update(&mut rest[..700]).unwrap();
            late.update(&mut rest[700..]).unwrap();
            assert!(data == case.sealed && rest == case.sealed[cut..]);
            assert_eq!((stream.tag(), late.tag()), (Ok(case.tag), Ok(case.tag)));
            let mut data = case.plain.clone();
            early.update(&mut data).unwrap();
            assert_eq!(early.clone().tag(), Ok(case.tag), "a clone that only ends");
        }
    });
}

#[test]
fn streams_go_through_their_states_and_no_others() {
    each_tier(|tier, random| {
        let case = Case::random(random, tier, 5, 40);
        let mut seal = ChaChaStream::seal(Arc::clone(&case.key), &case.nonce).unwrap();
        let mut data = case.plain.clone();
        assert_eq!(seal.verify(&case.tag), Err(StreamError::Ended));
        seal.update(&mut []).unwrap();
        seal.aad(&case.aad).unwrap();
        seal.update(&mut data).unwrap();
        assert_eq!(seal.aad(b"x"), Err(StreamError::AadBehindText));
        assert_eq!((seal.tag(), seal.tag()), (Ok(case.tag), Ok(case.tag)));
        assert_eq!(seal.update(&mut data), Err(StreamError::Ended));
        assert_eq!(seal.aad(b"x"), Err(StreamError::Ended));
        assert!(data == case.sealed);
        seal.restart(&case.nonce);
        seal.aad(&case.aad).unwrap();
        let mut out = [0; 40];
        let refused = StreamError::OutputLength { input: 40, output: 39 };
        assert_eq!(seal.update_into(&case.plain, &mut out[1..]), Err(refused));
        seal.update_into(&case.plain, &mut out).unwrap();
        assert_eq!((&out[..], seal.tag()), (&case.sealed[..], Ok(case.tag)));

        let mut open = ChaChaStream::open(Arc::clone(&case.key), &case.nonce).unwrap();
        for (len, flip) in
            [(16, None), (4, None), (3, None), (0, None), (16, Some(15)), (4, Some(0))]
        {
            open.restart(&case.nonce);
            open.aad(&case.aad).unwrap();
            open.update(&mut data).unwrap();
            assert_eq!(open.tag(), Err(StreamError::TagOfOpened));
            let mut tag = case.tag[..len].to_vec();
            if let Some(at) = flip {
                tag[at] ^= 1;
            }
            assert_eq!(open.verify(&tag), Ok(len >= 4 && flip.is_none()), "{len} bytes, {flip:?}");
            assert_eq!(open.verify(&case.tag), Err(StreamError::Ended));
            assert_eq!(open.update(&mut data), Err(StreamError::Ended));
            data.copy_from_slice(&case.sealed);
        }
    });
}

#[test]
fn what_is_too_long_or_of_another_suite_is_refused() {
    let cpu = Cpu::detect().unwrap();
    let mut stream = ChaChaStream::seal(key(&cpu, cpu.best(), &[1; 32]), &[0; 12]).unwrap();
    stream.aad_len = MAX_AAD - 1;
    assert_eq!(stream.aad(b"ab"), Err(StreamError::AadTooLong));
    stream.aad_len = 0;
    let mut data = [7; 4];
    stream.update(&mut data[..1]).unwrap();
    stream.window = None;
    stream.data_len = ChaChaStream::MAX_DATA - 3;
    let (before, limit) = (data, ChaChaStream::MAX_DATA);
    assert_eq!(stream.update(&mut data), Err(StreamError::DataTooLong { limit }));
    let refused = stream.update_into(&[1; 4], &mut data);
    assert_eq!((refused, data), (Err(StreamError::DataTooLong { limit }), before));
    stream.update(&mut data[..3]).unwrap();
    for suite in Suite::all().filter(|suite| suite.is_aead()) {
        let secret = SecretBytes::copy_from(&vec![1; suite.key_bytes()]);
        let key = Arc::new(AeadKey::new(&cpu, suite, secret).unwrap());
        let outcome = ChaChaStream::open(key, &[0; 12]).map(|stream| format!("{stream:?}"));
        match suite {
            Suite::ChaCha20Poly1305 => {
                assert_eq!(outcome.unwrap(), "ChaChaStream(open, 0 bytes of text)");
            }
            _ => assert_eq!(outcome, Err(StreamError::NotChaCha20Poly1305(suite))),
        }
    }
}
