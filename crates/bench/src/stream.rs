//! AES-GCM in parts, beside a burst of one.

mod results;

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use convoy_crypto::manager::{GcmStream, StreamError};
use convoy_crypto::{
    AeadKey, Cpu, GcmParams, IcvLen, KeyBits, KeyError, Nonce, OpenOp, SealOp, SecretBytes, Tier,
    Verdict, open_burst, seal_burst, time_stamp,
};

use crate::run::interruptions;
use crate::stats::Summary;
use crate::workload::Direction;

/// The sizes of texts: short ones, and records of TLS.
pub const SIZES: [usize; 4] = [64, 256, 1424, 16_384];

/// Bytes of additional data: what a record of TLS 1.2 has (RFC 5246 section 6.2.3.3).
const AAD: [u8; 13] = [3; 13];

/// Bytes of texts in a sample, and most texts.
const SAMPLE: (usize, usize) = (16_384, 64);

/// Fewest and most rounds of a point.
const ROUNDS: (u32, u32) = (16, 4000);

/// Times that a sample is taken again that other programs came into.
const TRIES: usize = 4;

/// One point to measure.
#[derive(Clone, Copy, Debug)]
pub struct StreamTask {
    /// Bits of the key.
    pub bits: KeyBits,
    /// Seal or open.
    pub direction: Direction,
    /// Bytes of text.
    pub size: usize,
    /// Convoy's tier.
    pub tier: Tier,
    /// About how long to measure.
    pub time: Duration,
}

/// One point that was measured.
#[derive(Clone, Debug)]
pub struct StreamPoint {
    /// Bits of the key.
    pub key_bits: usize,
    /// Seal or open.
    pub direction: Direction,
    /// Bytes of text.
    pub size: usize,
    /// Convoy's tier.
    pub tier: &'static str,
    /// Number of samples of each.
    pub rounds: usize,
    /// Cycles per message in the order in which they were taken: in a burst of one, as a stream of one part, and of
    /// two.
    pub samples: [Vec<f64>; 3],
    /// Cycles of the time-stamp counter per message, in a burst of one.
    pub one_shot: Summary,
    /// Time of a stream of one part, IV and tag included, divided by the time of the burst.
    pub one_part: Summary,
    /// The same with the text in two halves.
    pub two_parts: Summary,
}

/// A point could not be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamBenchError {
    /// Convoy has no such key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A stream refused what was given to it.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// Wrong results are not measured.
    #[error("the message in {0} parts is not the same as in one piece")]
    Disagreement(usize),
}

/// A text with its tag.
#[derive(Clone)]
struct Text {
    data: Vec<u8>,
    tag: [u8; 16],
}

/// Measures one point: checks that all ways give the same, then takes them in turn.
///
/// # Errors
///
/// [`StreamBenchError`] if the tier is not there, or results differ.
pub fn measure(cpu: &Cpu, task: &StreamTask) -> Result<StreamPoint, StreamBenchError> {
    let StreamTask { bits, direction, size, tier, time } = *task;
    let params = GcmParams::new(bits, IcvLen::Icv16);
    let secret = SecretBytes::copy_from(&[7; 32][..bits.bytes()]);
    let key = Arc::new(AeadKey::with_tier(cpu, tier, params, secret)?);
    let count = (SAMPLE.0 / size.max(1)).clamp(1, SAMPLE.1);
    let plain = Text { data: (0..size).map(|i| i as u8).collect(), tag: [0; 16] };
    let plain = vec![plain; count];
    let mut sealed = plain.clone();
    let disagreement = StreamBenchError::Disagreement;
    one_shot(&key, Direction::Seal, &mut sealed).ok_or_else(|| disagreement(1))?;
    let (source, expected) = match direction {
        Direction::Seal => (&plain, &sealed),
        Direction::Open => (&sealed, &plain),
    };
    // As a context of OpenSSL that has its key: each message begins with its IV.
    let mut stream = match direction {
        Direction::Seal => GcmStream::seal(Arc::clone(&key), &nonce(0))?,
        Direction::Open => GcmStream::open(Arc::clone(&key), &nonce(0))?,
    };
    let mut texts = source.clone();
    for parts in 1..=2 {
        texts.clone_from(source);
        let fine = in_parts(&mut stream, direction, parts, &mut texts)?;
        let same = texts.iter().zip(expected).all(|(a, b)| a.data == b.data);
        let tags =
            direction == Direction::Open || texts.iter().zip(expected).all(|(a, b)| a.tag == b.tag);
        if !(fine && same && tags) {
            return Err(disagreement(parts));
        }
    }
    let mut samples = [const { Vec::new() }; 3];
    let begin = Instant::now();
    let mut rounds = ROUNDS.0;
    let mut round = 0;
    while round < rounds {
        for turn in 0..3 {
            let who = (round as usize + turn) % 3;
            let mut cycles = 0.0;
            for _ in 0..TRIES {
                for (text, source) in texts.iter_mut().zip(source) {
                    text.data.copy_from_slice(&source.data);
                    text.tag = source.tag;
                }
                let before = interruptions();
                let start = time_stamp();
                match who {
                    0 => one_shot(&key, direction, &mut texts).ok_or_else(|| disagreement(1))?,
                    parts => {
                        in_parts(&mut stream, direction, parts, &mut texts)?;
                    }
                }
                cycles = (time_stamp() - start) as f64 / count as f64;
                black_box(&mut texts);
                if interruptions() == before {
                    break;
                }
            }
            samples[who].push(cycles);
        }
        round += 1;
        if round == 3 {
            let all = time.as_secs_f64() / (begin.elapsed().as_secs_f64() / 3.0).max(1e-9);
            rounds = (all as u32).clamp(ROUNDS.0, ROUNDS.1);
        }
    }
    let [whole, one, two] = &samples;
    let ratio = |of: &[f64]| {
        let ratios: Vec<f64> = of.iter().zip(whole).map(|(of, whole)| of / whole).collect();
        Summary::of(&ratios).unwrap_or_default()
    };
    Ok(StreamPoint {
        key_bits: bits.bits(),
        direction,
        size,
        tier: tier.name(),
        rounds: whole.len(),
        one_shot: Summary::of(whole).unwrap_or_default(),
        one_part: ratio(one),
        two_parts: ratio(two),
        samples,
    })
}

/// Each text in a burst of its own; none if one is forged.
fn one_shot(key: &AeadKey, direction: Direction, texts: &mut [Text]) -> Option<()> {
    for (i, Text { data, tag }) in texts.iter_mut().enumerate() {
        let nonce = nonce(i);
        match direction {
            Direction::Seal => {
                let nonce = Nonce::new(nonce);
                seal_burst(&mut [SealOp::with_aead_key(key, nonce, &AAD, data, tag).ok()?]);
            }
            Direction::Open => {
                let mut ops = [OpenOp::with_aead_key(key, nonce, &AAD, data, tag).ok()?];
                open_burst(&mut ops);
                if ops[0].verdict() != Verdict::Authentic {
                    return None;
                }
            }
        }
    }
    Some(())
}

/// Each text as a message of so many parts. Whether all are authentic.
fn in_parts(
    stream: &mut GcmStream,
    direction: Direction,
    parts: usize,
    texts: &mut [Text],
) -> Result<bool, StreamError> {
    let mut fine = true;
    for (i, Text { data, tag }) in texts.iter_mut().enumerate() {
        stream.restart(&nonce(i))?;
        stream.aad(&AAD)?;
        let middle = data.len() / parts;
        let (front, back) = data.split_at_mut(middle);
        stream.update(front)?;
        if parts > 1 {
            stream.update(back)?;
        }
        match direction {
            Direction::Seal => *tag = stream.tag()?,
            Direction::Open => fine &= stream.verify(tag)?,
        }
    }
    Ok(fine)
}

/// A nonce that no other text of a sample has.
fn nonce(number: usize) -> [u8; 12] {
    let mut nonce = [9; 12];
    nonce[4..].copy_from_slice(&(number as u64).to_be_bytes());
    nonce
}

/// Points as rows of text.
#[must_use]
pub fn rows(points: &[StreamPoint]) -> Vec<Vec<String>> {
    let head = ["KEY", "DIRECTION", "BYTES", "TIER", "ONE-SHOT", "ONE PART", "TWO PARTS"];
    let ratio =
        |ratio: &Summary| format!("{:.2} ({:.2}-{:.2})", ratio.median, ratio.low, ratio.high);
    let row = |point: &StreamPoint| {
        vec![
            format!("aes-{}-gcm", point.key_bits),
            point.direction.name().to_owned(),
            point.size.to_string(),
            point.tier.to_owned(),
            format!("{:.0}", point.one_shot.median),
            ratio(&point.one_part),
            ratio(&point.two_parts),
        ]
    };
    std::iter::once(head.map(str::to_owned).to_vec()).chain(points.iter().map(row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_measured_where_the_tier_is() {
        let cpu = Cpu::detect().unwrap();
        let time = Duration::from_millis(1);
        for (tier, direction) in
            cpu.tiers().flat_map(|tier| [(tier, Direction::Seal), (tier, Direction::Open)])
        {
            let task = StreamTask { bits: KeyBits::Aes128, direction, size: 100, tier, time };
            let point = measure(&cpu, &task).unwrap();
            assert!(point.one_shot.median > 0.0 && point.one_part.median > 0.0);
            let rows = rows(&[point]);
            assert_eq!((rows.len(), rows[0].len()), (2, rows[1].len()));
        }
        let none = Cpu::without("aesni").unwrap();
        let (bits, direction) = (KeyBits::Aes256, Direction::Seal);
        let task = StreamTask { bits, direction, size: 100, tier: Tier::Avx512, time };
        let error = measure(&none, &task).unwrap_err();
        assert_eq!(error, KeyError::TierUnavailable(Tier::Avx512).into());
    }
}
