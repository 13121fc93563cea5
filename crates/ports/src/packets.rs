//! The packets of a burst, laid out as ESP has them in frames.

use std::error::Error;

use arrayvec::ArrayVec;
use convoy_crypto::{
    Cpu, KeyMaterial, Lengths, Nonce, OpenKey, OpenNonce, OpenOp, SealKey, SealOp, SecretBytes,
    Suite, Verdict, open_burst, seal_burst,
};

/// Most packets in a burst.
const COUNT_MAX: usize = 64;
/// From the start of a frame to that of the next: as in the pool of a gateway.
const FRAME: usize = 2048;
/// Start of a packet in its frame, bytes.
const FRONT: usize = 128;
/// SPI and sequence number.
const HEADER: usize = 8;
/// The longest ICV.
const ICV_MAX: usize = 32;

/// Operation on the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Seal,
    Open,
}

impl Direction {
    pub(crate) fn of(word: &str) -> Result<Self, Box<dyn Error>> {
        match word {
            "seal" => Ok(Self::Seal),
            "open" => Ok(Self::Open),
            _ => Err(format!("direction {word:?}: write seal or open").into()),
        }
    }
}

/// A burst's packets, all with one key.
pub(crate) struct Packets {
    suite: Suite,
    seal: SealKey,
    open: OpenKey,
    /// Bytes in front of the text: the header of ESP, and the IV where it is authenticated with the text.
    header: usize,
    text: usize,
    count: usize,
    nonce: u64,
    memory: Vec<u8>,
}

impl Packets {
    /// `text` is rounded up to whole blocks where a suite has them.
    pub(crate) fn new(
        cpu: &Cpu,
        suite: Suite,
        text: usize,
        count: usize,
    ) -> Result<Self, Box<dyn Error>> {
        let text = text.next_multiple_of(suite.block_bytes().max(1));
        let room = FRAME - FRONT - HEADER - suite.nonce_bytes() - ICV_MAX;
        if text == 0 || text > room {
            return Err(format!("{text} bytes of text: from 1 to {room} fit").into());
        }
        if !(1..=COUNT_MAX).contains(&count) {
            return Err(format!("{count} packets: from 1 to {COUNT_MAX} are a burst").into());
        }
        let secret = |bytes: usize, byte: u8| SecretBytes::from(vec![byte; bytes]);
        let material = || KeyMaterial {
            cipher: secret(suite.key_bytes(), 7),
            integrity: secret(suite.integrity_key_bytes(), 9),
        };
        Ok(Self {
            suite,
            seal: SealKey::new(cpu, suite, material())?,
            open: OpenKey::new(cpu, suite, material())?,
            header: if suite.is_aead() { 0 } else { HEADER + suite.nonce_bytes() },
            text,
            count,
            nonce: 0,
            memory: vec![0x5a; FRAME * COUNT_MAX],
        })
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Readies a burst, hands the call that works on it to `around`, and looks at what came out.
    pub(crate) fn round(
        &mut self,
        direction: Direction,
        around: impl FnOnce(&mut dyn FnMut()),
    ) -> Result<(), Box<dyn Error>> {
        match direction {
            Direction::Seal => self.seal(around),
            Direction::Open => {
                self.seal(|burst| burst())?;
                self.open(around)
            }
        }
    }

    fn seal(&mut self, around: impl FnOnce(&mut dyn FnMut())) -> Result<(), Box<dyn Error>> {
        let lengths = Lengths { header: self.header, text: self.text };
        let mut ops = ArrayVec::<_, COUNT_MAX>::new();
        for frame in self.memory.chunks_exact_mut(FRAME).take(self.count) {
            self.nonce += 1;
            let (bytes, len) = nonce(self.suite, self.nonce);
            let (packet, aad) = parts(self.suite, frame);
            let nonce = Nonce::front(bytes, len);
            ops.push(SealOp::in_place(&self.seal, nonce, packet, lengths, aad)?);
        }
        around(&mut || seal_burst(&mut ops));
        if ops.iter().all(SealOp::is_sealed) {
            Ok(())
        } else {
            Err("a packet is not sealed".into())
        }
    }

    fn open(&mut self, around: impl FnOnce(&mut dyn FnMut())) -> Result<(), Box<dyn Error>> {
        let lengths = Lengths { header: self.header, text: self.text };
        let first = self.nonce - self.count as u64;
        let mut ops = ArrayVec::<_, COUNT_MAX>::new();
        for (frame, number) in self.memory.chunks_exact_mut(FRAME).take(self.count).zip(first + 1..)
        {
            let (bytes, len) = nonce(self.suite, number);
            let (packet, aad) = parts(self.suite, frame);
            let nonce = OpenNonce::front(bytes, len);
            ops.push(OpenOp::in_place(&self.open, nonce, packet, lengths, aad)?);
        }
        around(&mut || open_burst(&mut ops));
        let is_good = ops.iter().all(|op| op.verdict() == Verdict::Authentic);
        if is_good { Ok(()) } else { Err("a packet is not authentic".into()) }
    }
}

/// A frame's packet, and what is authenticated beside it.
fn parts(suite: Suite, frame: &mut [u8]) -> (&mut [u8], &[u8]) {
    let packet = &mut frame[FRONT..];
    if !suite.is_aead() {
        return (packet, &[]);
    }
    // The IV of an AEAD has eight bytes behind the header.
    let (aad, rest) = packet.split_at_mut(HEADER);
    (&mut rest[8..], aad)
}

/// A nonce, and how much of it the suite takes: a number behind what stays the same.
fn nonce(suite: Suite, number: u64) -> ([u8; 16], u8) {
    let mut bytes = [3; 16];
    let len = suite.nonce_bytes();
    let at = len.saturating_sub(8);
    bytes[at..at + 8].copy_from_slice(&number.to_be_bytes());
    (bytes, len as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packets(suite: &str, text: usize, count: usize) -> Result<Packets, Box<dyn Error>> {
        Packets::new(&Cpu::detect()?, suite.parse()?, text, count)
    }

    #[test]
    fn bursts_of_every_kind_of_suite_are_sealed_and_opened() {
        for suite in
            ["aes-128-gcm-16", "aes-128-cbc+hmac-sha1-96", "chacha20-poly1305", "aes-128-ccm-16"]
        {
            for direction in [Direction::Seal, Direction::Open] {
                let mut packets = packets(suite, 1420, 5).unwrap();
                let mut calls = 0;
                packets
                    .round(direction, |burst| {
                        burst();
                        calls += 1;
                    })
                    .unwrap();
                assert_eq!(calls, 1, "{suite}");
                // What is not worked on is told.
                assert!(packets.round(direction, |_| ()).is_err(), "{suite}");
            }
        }
    }

    #[test]
    fn text_and_bursts_that_do_not_fit_are_refused() {
        let refused =
            |text, count| packets("aes-128-gcm-16", text, count).err().unwrap().to_string();
        assert!(refused(4000, 1).starts_with("4000 bytes of text: from 1 to 18"));
        assert!(refused(0, 1).starts_with("0 bytes of text"));
        assert_eq!(refused(64, 65), "65 packets: from 1 to 64 are a burst");
        assert_eq!(packets("aes-128-cbc+null", 1420, 1).unwrap().text, 1424);
    }
}
