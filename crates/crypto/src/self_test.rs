//! The self-test of a tier: [known answers](crate::known_answers), and forged packets that must be refused.

use crate::{
    Cpu, KeyError, Lengths, Nonce, OpenKey, OpenNonce, OpenOp, SealKey, SealOp, Suite, Tier,
    Verdict,
    known_answers::{self, Case},
    open_burst, seal_burst,
};

/// A self-test failed. Such a tier must not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelfTestError {
    /// A key cannot be set up.
    #[error("{0}: {1}")]
    Key(Suite, KeyError),
    /// A packet was sealed to other bytes than its source says.
    #[error("{0}: sealed to other bytes than {1}")]
    Sealed(Suite, &'static str),
    /// A packet was opened to other bytes than its source says, or refused.
    #[error("{0}: opened to other bytes than {1}")]
    Opened(Suite, &'static str),
    /// A forged packet was taken for authentic, or its text left.
    #[error("{0}: took a forged packet")]
    TookForgery(Suite),
}

/// Packets in the bursts that are tested: alone, and as many as go side by side.
const BURSTS: [usize; 2] = [1, 17];

/// Tests every suite on a tier: published examples and packets of several lengths, sealed and opened, alone and in
/// bursts, and forged ones. It takes some tens of milliseconds; the portable tier more.
///
/// # Errors
///
/// [`SelfTestError`] of the first suite that fails; [`KeyError::TierUnavailable`] in it where this machine lacks the
/// tier.
///
/// ```
/// use convoy_crypto::{Cpu, self_test};
///
/// let cpu = Cpu::detect()?;
/// self_test(&cpu, cpu.best())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn self_test(cpu: &Cpu, tier: Tier) -> Result<(), SelfTestError> {
    for suite in Suite::all() {
        let wrong = |error| SelfTestError::Key(suite, error);
        for case in known_answers::cases(suite, cpu).map_err(wrong)? {
            let seals = SealKey::with_tier(cpu, tier, suite, case.material()).map_err(wrong)?;
            let opens = OpenKey::with_tier(cpu, tier, suite, case.material()).map_err(wrong)?;
            for copies in BURSTS {
                seal(&case, &seals, copies)?;
                open(&case, &opens, copies)?;
            }
        }
    }
    Ok(())
}

/// A packet in one piece, with a text and an ICV.
fn packet(case: &Case, body: &[u8]) -> Vec<u8> {
    [&*case.header, body].concat()
}

fn seal(case: &Case, key: &SealKey, copies: usize) -> Result<(), SelfTestError> {
    let (suite, (nonce, len)) = (case.suite, case.nonce_block());
    let wrong = SelfTestError::Sealed(suite, case.source);
    let plain = packet(case, &[&*case.plain, &vec![0; suite.icv_bytes()]].concat());
    let lengths = Lengths { header: case.header.len(), text: case.plain.len() };
    let mut packets = vec![plain; copies];
    let ops = packets.iter_mut().map(|packet| {
        // The same packet each time, so the same bytes come out.
        SealOp::in_place(key, Nonce::front(nonce, len), packet, lengths, &case.beside)
    });
    let mut ops = ops.collect::<Result<Vec<_>, _>>().map_err(|_| wrong)?;
    seal_burst(&mut ops);
    let sealed = packet(case, &case.sealed);
    if packets.iter().all(|packet| *packet == sealed) { Ok(()) } else { Err(wrong) }
}

/// Of more than one, every other is forged.
fn open(case: &Case, key: &OpenKey, copies: usize) -> Result<(), SelfTestError> {
    let (suite, (nonce, len)) = (case.suite, case.nonce_block());
    let wrong = SelfTestError::Opened(suite, case.source);
    let (header, text) = (case.header.len(), case.plain.len());
    let mut packets = vec![packet(case, &case.sealed); copies];
    let forged = |number: usize| number % 2 == 1 && suite.icv_bytes() > 0;
    for (number, packet) in packets.iter_mut().enumerate().filter(|(number, _)| forged(*number)) {
        // Each in another bit of text or ICV.
        let (at, bit) = (header + number * 7 % (packet.len() - header), number % 8);
        packet.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << bit);
    }
    let ops = packets.iter_mut().map(|packet| {
        let nonce = OpenNonce::front(nonce, len);
        OpenOp::in_place(key, nonce, packet, Lengths { header, text }, &case.beside)
    });
    let mut ops = ops.collect::<Result<Vec<_>, _>>().map_err(|_| wrong)?;
    open_burst(&mut ops);
    let verdicts: Vec<_> = ops.iter().map(OpenOp::verdict).collect();
    drop(ops);
    for (number, (packet, verdict)) in packets.iter().zip(verdicts).enumerate() {
        let opened = packet.get(header..header + text).unwrap_or_default();
        match verdict {
            Verdict::Authentic if !forged(number) && *opened == *case.plain => {}
            Verdict::Forged if forged(number) && opened.iter().all(|byte| *byte == 0) => {}
            _ if forged(number) => return Err(SelfTestError::TookForgery(suite)),
            _ => return Err(wrong),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tier_passes_its_self_test() {
        let cpu = Cpu::detect().unwrap();
        for tier in cpu.tiers() {
            assert_eq!(self_test(&cpu, tier), Ok(()), "{tier}");
        }
    }

    #[test]
    fn a_tier_that_is_denied_is_named() {
        let cpu = Cpu::without("aesni").unwrap();
        let text = self_test(&cpu, Tier::AesNi).unwrap_err().to_string();
        assert!(text.contains("aesni"), "{text}");
    }

    #[test]
    fn what_is_wrong_is_found() {
        let cpu = Cpu::detect().unwrap();
        for suite in Suite::all().filter(|suite| suite.icv_bytes() > 0) {
            for mut case in known_answers::cases(suite, &cpu).unwrap() {
                let seals = SealKey::new(&cpu, suite, case.material()).unwrap();
                let opens = OpenKey::new(&cpu, suite, case.material()).unwrap();
                *case.sealed.last_mut().unwrap() ^= 1;
                let (sealed, opened) = (seal(&case, &seals, 17), open(&case, &opens, 17));
                assert_eq!(sealed, Err(SelfTestError::Sealed(suite, case.source)));
                assert_eq!(opened, Err(SelfTestError::Opened(suite, case.source)));
            }
        }
    }
}
