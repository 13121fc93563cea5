use super::*;
use crate::{
    Cpu, IcvLen, KeyBits, Nonce, SealOp, SecretBytes, Tier, pass::tests::Random, seal_burst,
};

fn key(cpu: &Cpu, tier: Tier, secret: &[u8]) -> Arc<AeadKey> {
    let bits = KeyBits::from_bits(8 * secret.len()).unwrap();
    let params = GcmParams::new(bits, IcvLen::Icv16);
    Arc::new(AeadKey::with_tier(cpu, tier, params, SecretBytes::copy_from(secret)).unwrap())
}

/// Ciphertext and tag, in one piece.
fn one_shot(key: &AeadKey, nonce: [u8; 12], aad: &[u8], plain: &[u8]) -> (Vec<u8>, [u8; 16]) {
    let (mut data, mut tag) = (plain.to_vec(), [0; 16]);
    let op = SealOp::with_aead_key(key, Nonce::new(nonce), aad, &mut data, &mut tag).unwrap();
    seal_burst(&mut [op]);
    (data, tag)
}

/// A message, and what it becomes.
struct Case {
    key: Arc<AeadKey>,
    iv: Vec<u8>,
    aad: Vec<u8>,
    plain: Vec<u8>,
    sealed: Vec<u8>,
    tag: [u8; 16],
}

impl Case {
    fn random(random: &mut Random, key: &Arc<AeadKey>, aad: usize, len: usize) -> Self {
        let (key, nonce) = (Arc::clone(key), random.array());
        let (aad, plain) = (random.bytes(aad), random.bytes(len));
        let (sealed, tag) = one_shot(&key, nonce, &aad, &plain);
        Self { key, iv: nonce.to_vec(), aad, plain, sealed, tag }
    }

    /// Both ways, with additional data and text cut at these places.
    fn check(&self, aad_cuts: &[usize], cuts: &[usize]) {
        for seal in [true, false] {
            let Self { key, iv, aad, plain, sealed, .. } = self;
            let (from, to) = if seal { (plain, sealed) } else { (sealed, plain) };
            let mut stream = GcmStream::new(Arc::clone(key), seal, iv).unwrap();
            for piece in pieces(aad.len(), aad_cuts) {
                stream.aad(&aad[piece]).unwrap();
            }
            let mut data = from.clone();
            for piece in pieces(data.len(), cuts) {
                stream.update(&mut data[piece]).unwrap();
            }
            let what =
                || format!("{stream:?}, {aad_cuts:?} of {}, {cuts:?} of {}", aad.len(), data.len());
            assert!(data == *to, "{}, {key:?}", what());
            let what = what();
            match seal {
                true => assert_eq!(stream.tag(), Ok(self.tag), "{what}, {key:?}"),
                false => assert_eq!(stream.verify(&self.tag), Ok(true), "{what}, {key:?}"),
            }
        }
    }
}

fn pieces(len: usize, cuts: &[usize]) -> impl Iterator<Item = std::ops::Range<usize>> {
    let ends = cuts.iter().copied().chain([len]);
    ends.scan(0, |from, end| Some(std::mem::replace(from, end)..end))
}

fn each_key(mut check: impl FnMut(&Arc<AeadKey>, &mut Random)) {
    let cpu = Cpu::detect().unwrap();
    let mut random = Random(1);
    for tier in cpu.tiers() {
        for bits in KeyBits::ALL {
            let secret = random.bytes(bits.bytes());
            check(&key(&cpu, tier, &secret), &mut random);
        }
    }
}

/// The places next to borders of blocks, registers and groups.
fn borders(len: usize) -> impl Iterator<Item = usize> {
    let near = |at: usize| [at.saturating_sub(1), at, at + 1];
    let borders = [0, 16, 32, 48, 64, 128, 256, 272, 512, 528, 768, 1024];
    borders.into_iter().flat_map(near).filter(move |&at| at <= len)
}

#[test]
fn every_cut_of_short_messages_gives_what_one_piece_gives() {
    each_key(|key, random| {
        let portable = key.tier() == Tier::Portable;
        for len in (0..=50).step_by(if portable { 5 } else { 1 }) {
            let case = Case::random(random, key, len % 40, len);
            case.check(&[], &[]);
            for cut in 0..=len {
                case.check(&[(cut * 7) % (case.aad.len() + 1)], &[cut]);
            }
        }
    });
}

/// Key stream is computed ahead of short parts; long ones among them, and the end, come anywhere in it.
#[test]
fn many_short_parts_give_what_one_piece_gives() {
    each_key(|key, random| {
        for size in [1, 7, 16, 48, 64, 100, 319, 320] {
            for len in [700, 2048, 3500] {
                let case = Case::random(random, key, 13, len);
                case.check(&[], &(0..len).step_by(size).collect::<Vec<_>>());
            }
        }
        for _ in 0..if key.tier() == Tier::Portable { 10 } else { 100 } {
            let (mut cuts, mut at) = (Vec::new(), 0);
            while at < 8000 {
                at += match random.below(8) {
                    0 => random.below(600),
                    1 | 2 => random.below(320),
                    3 => 16 * random.below(8),
                    _ => random.below(40),
                };
                cuts.push(at);
            }
            let len = at + random.below(300);
            let case = Case::random(random, key, 13, len);
            case.check(&[], &cuts);
        }
    });
}

#[test]
fn cuts_at_borders_of_groups_give_what_one_piece_gives() {
    each_key(|key, random| {
        let step = if key.tier() == Tier::Portable { 17 } else { 1 };
        for len in borders(2000).chain([2000]) {
            let case = Case::random(random, key, 13, len);
            for first in borders(len).step_by(step) {
                case.check(&[], &[first]);
                let second = first + (len - first) / 2;
                case.check(&[5], &[first, second]);
            }
        }
    });
}

#[test]
fn any_cuts_of_long_messages_give_what_one_piece_gives() {
    each_key(|key, random| {
        let rounds = if key.tier() == Tier::Portable { 3 } else { 60 };
        for round in 0..rounds {
            let (aad, len) = (random.below([20, 600][round % 2]), random.below(40_000));
            let case = Case::random(random, key, aad, len);
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
            case.check(&aad_cuts, &cuts(len, [20, 300, 3000, 20_000]));
        }
    });
}

/// AES in counter mode from a block on whose last word is about to wrap, and GHASH by software: for IVs that
/// are hashed, of which every length is tried on the portable tier and compared.
#[test]
fn tiers_agree_on_hashed_ivs() {
    let cpu = Cpu::detect().unwrap();
    let mut random = Random(3);
    for (round, bits) in (0..40).flat_map(|round| KeyBits::ALL.map(|bits| (round, bits))) {
        let secret = random.bytes(bits.bytes());
        let iv = random.bytes(1 + round * 3);
        let (aad, plain) = (random.bytes(round), random.bytes(round * 20));
        let mut portable = GcmStream::seal(key(&cpu, Tier::Portable, &secret), &iv).unwrap();
        let mut sealed = plain.clone();
        portable.aad(&aad).unwrap();
        portable.update(&mut sealed).unwrap();
        let tag = portable.tag().unwrap();
        for tier in cpu.tiers() {
            let key = key(&cpu, tier, &secret);
            let (iv, aad, plain, sealed) = (iv.clone(), aad.clone(), plain.clone(), sealed.clone());
            let case = Case { key, iv, aad, plain, sealed, tag };
            case.check(&[round / 2], &[random.below(case.plain.len() + 1)]);
        }
    }
}

/// Counters count in 32 bits and wrap, which those of an IV of 12 bytes never do.
#[test]
fn counters_wrap_in_their_last_word() {
    each_key(|key, random| {
        let portable = key.tier() == Tier::Portable;
        for before in [0, 1, 5, 15, 16, 31].into_iter().step_by(if portable { 3 } else { 1 }) {
            let plain = random.bytes(700);
            let mut origin: [u8; 16] = random.array();
            origin[12..].copy_from_slice(&(u32::MAX - 1 - before).to_be_bytes());
            let text = |sizes: &[usize]| {
                let mut stream = GcmStream::seal(Arc::clone(key), &[1]).unwrap();
                stream.origin = origin;
                let (mut data, mut at) = (plain.clone(), 0);
                for &size in sizes.iter().cycle() {
                    let end = plain.len().min(at + size);
                    stream.update(&mut data[at..end]).unwrap();
                    at = end;
                    if at == plain.len() {
                        break;
                    }
                }
                (data, stream.tag().unwrap())
            };
            // Block by block there is nothing to carry within a register.
            let expected = text(&[16]);
            assert!(expected.0 != plain);
            assert!(text(&[700]) == expected, "{key:?}, {before} blocks before");
            assert!(text(&[100, 41, 300]) == expected, "{key:?}, {before} blocks before");
        }
    });
}

#[test]
fn clones_go_on_where_the_original_stands() {
    each_key(|key, random| {
        for cut in [0, 1, 16, 40, 300] {
            let case = Case::random(random, key, 21, 700);
            let mut data = case.plain.clone();
            let mut stream = GcmStream::seal(Arc::clone(key), &case.iv).unwrap();
            stream.aad(&case.aad[..17]).unwrap();
            let mut early = stream.clone();
            stream.aad(&case.aad[17..]).unwrap();
            early.aad(&case.aad[17..]).unwrap();
            stream.update(&mut data[..cut]).unwrap();
            let mut rest = data[cut..].to_vec();
            let mut late = stream.clone();
            stream.update(&mut data[cut..]).unwrap();
            late.update(&mut rest).unwrap();
            assert!(data == case.sealed && rest == case.sealed[cut..]);
            assert_eq!((stream.tag(), late.tag()), (Ok(case.tag), Ok(case.tag)));
            let mut data = case.plain.clone();
            early.update(&mut data).unwrap();
            assert_eq!(early.clone().tag(), Ok(case.tag), "a clone that only ends");
        }
    });
}

#[test]
fn clones_have_key_stream_ahead_of_their_own() {
    each_key(|key, random| {
        let case = Case::random(random, key, 21, 5000);
        // Once and twice behind the first key stream ahead, and within one.
        for before in [300, 1500, 2300, 3000] {
            let mut data = case.plain.clone();
            let mut stream = GcmStream::seal(Arc::clone(key), &case.iv).unwrap();
            stream.aad(&case.aad).unwrap();
            let (front, back) = data.split_at_mut(before);
            front.chunks_mut(20).for_each(|part| stream.update(part).unwrap());
            let mut rest = back.to_vec();
            let mut clone = stream.clone();
            back.chunks_mut(50).for_each(|part| stream.update(part).unwrap());
            rest.chunks_mut(30).for_each(|part| clone.update(part).unwrap());
            assert!(data == case.sealed && rest == case.sealed[before..], "{before}");
            assert_eq!((stream.tag(), clone.tag()), (Ok(case.tag), Ok(case.tag)));
        }
    });
}

#[test]
fn streams_go_through_their_states_and_no_others() {
    each_key(|key, random| {
        let case = Case::random(random, key, 5, 40);
        let mut seal = GcmStream::seal(Arc::clone(key), &case.iv).unwrap();
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
        assert_eq!(seal.restart(&[]), Err(StreamError::IvLength { given: 0 }));
        seal.restart(&case.iv).unwrap();
        seal.aad(&case.aad).unwrap();
        let mut out = [0; 40];
        let refused = StreamError::OutputLength { input: 40, output: 39 };
        assert_eq!(seal.update_into(&case.plain, &mut out[1..]), Err(refused));
        seal.update_into(&case.plain, &mut out).unwrap();
        assert_eq!((&out[..], seal.tag()), (&case.sealed[..], Ok(case.tag)));

        let mut open = GcmStream::open(Arc::clone(key), &case.iv).unwrap();
        for (len, flip) in
            [(16, None), (4, None), (12, None), (3, None), (0, None), (16, Some(15)), (4, Some(3))]
        {
            open.restart(&case.iv).unwrap();
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
fn messages_longer_than_gcm_allows_are_refused() {
    let cpu = Cpu::detect().unwrap();
    let mut stream = GcmStream::seal(key(&cpu, cpu.best(), &[1; 16]), &[0; 12]).unwrap();
    stream.aad_len = MOST - 1;
    assert_eq!(stream.aad(b"ab"), Err(StreamError::AadTooLong));
    stream.aad_len = 0;
    let mut data = [7; 4];
    stream.update(&mut data[..1]).unwrap();
    stream.data_len = GcmParams::MAX_DATA - 3;
    let mut fits = |more| stream.prepare(more).is_ok();
    assert!(!fits(4) && fits(3) && !fits(usize::MAX));
    let before = data;
    assert_eq!(
        stream.update(&mut data),
        Err(StreamError::DataTooLong { limit: GcmParams::MAX_DATA })
    );
    assert_eq!(
        stream.update_into(&[1; 4], &mut data),
        Err(StreamError::DataTooLong { limit: GcmParams::MAX_DATA })
    );
    assert_eq!(data, before);
    stream.update(&mut data[..3]).unwrap();
}

#[test]
fn keys_of_other_suites_are_refused() {
    let cpu = Cpu::detect().unwrap();
    for suite in Suite::all().filter(|suite| suite.is_aead()) {
        let secret = SecretBytes::copy_from(&vec![1; suite.key_bytes()]);
        let key = Arc::new(AeadKey::new(&cpu, suite, secret).unwrap());
        let outcome = GcmStream::open(key, &[0; 12]).map(|stream| format!("{stream:?}"));
        match suite {
            Suite::Gcm(_) | Suite::Gmac(_) => {
                assert_eq!(outcome.unwrap(), "GcmStream(open, 0 bytes of text)");
            }
            _ => assert_eq!(outcome, Err(StreamError::NotGcm(suite))),
        }
    }
}

#[test]
fn gmac_in_parts_makes_the_tag_of_the_whole() {
    let (cpu, mut random) = (Cpu::detect().unwrap(), Random(5));
    for (tier, bits) in cpu.tiers().flat_map(|tier| KeyBits::ALL.map(|bits| (tier, bits))) {
        let secret = random.bytes(bits.bytes());
        let new = |suite: Suite| {
            let secret = SecretBytes::copy_from(&secret);
            Arc::new(AeadKey::with_tier(&cpu, tier, suite, secret).unwrap())
        };
        let (key, gcm) = (new(Suite::Gmac(bits)), new(GcmParams::new(bits, IcvLen::Icv16).into()));
        for len in [0, 1, 15, 16, 17, 64, 100, 700, 3000] {
            let (message, iv) = (random.bytes(len), random.array());
            let (aad, text) = message.split_at(len / 3);
            let (_, tag) = one_shot(&key, iv, aad, text);
            let size = 1 + random.below(1 + len);
            let mut open = GcmStream::open(Arc::clone(&key), &iv).unwrap();
            let mut seal = GcmStream::seal(Arc::clone(&key), &iv).unwrap();
            for part in message.chunks(size) {
                seal.aad(part).unwrap();
                open.aad(part).unwrap();
            }
            assert_eq!(seal.update(&mut [1]), Err(StreamError::TextOfGmac));
            assert_eq!(seal.update(&mut []), Ok(()));
            assert_eq!(seal.tag(), Ok(tag), "{len} bytes on {tier}, {size} at a time");
            assert_eq!(open.verify(&tag), Ok(true), "{len} bytes on {tier}, {size} at a time");

            // An IV of another length, beside AES-GCM without text.
            let iv = random.bytes(1 + len % 40);
            let mut one = GcmStream::seal(Arc::clone(&key), &iv).unwrap();
            let mut other = GcmStream::seal(Arc::clone(&gcm), &iv).unwrap();
            one.aad(&message).unwrap();
            other.aad(&message).unwrap();
            assert_eq!(one.tag(), other.tag(), "{len} bytes on {tier}");
        }
    }
}
