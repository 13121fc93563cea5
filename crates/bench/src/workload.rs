//! A burst of packets with their keys, the same for Convoy and every peer.

use std::ops::Range;

use convoy_crypto::{Cipher, GcmParams, IcvLen, KeyBits, Suite};

use crate::mix::{Numbers, Sizes};
use crate::suite::{ESP_HEADER, Layout as _};

/// Seal or open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Encrypt and make ICVs.
    Seal,
    /// Verify ICVs and decrypt.
    Open,
}

impl Direction {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Seal => "seal",
            Self::Open => "open",
        }
    }
}

/// The keys of one SA. Nothing they protect is secret, so nothing hides them.
#[derive(Clone, Debug)]
pub struct Keys {
    /// Of the cipher, or of the AEAD.
    pub cipher: Vec<u8>,
    /// Of the MAC; empty for an AEAD.
    pub mac: Vec<u8>,
}

/// Position of a packet in the arena, with its key, length and nonce.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// Number of its key.
    pub key: usize,
    /// Position of its ESP header.
    pub start: usize,
    /// Bytes of its text.
    pub text: usize,
    /// The nonce as the suite wants it in its first [`Suite::nonce_bytes`] bytes; for CTR the first
    /// counter block.
    pub nonce: [u8; 16],
}

/// One point of the measurement: a suite, a burst of packets, and keys.
///
/// A packet lies in the arena as ESP has it: header, explicit IV, text, ICV. Each begins at a cache
/// line, an odd number of lines behind the one before it, so that packets do not compete for the
/// same sets of the caches.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The suite.
    pub suite: Suite,
    /// The keys; packets name them by index.
    pub keys: Vec<Keys>,
    /// The packets of the burst.
    pub packets: Vec<Packet>,
    /// Bytes that all packets need.
    pub arena_bytes: usize,
}

/// A cache line, and what peers may ask of alignment.
const LINE: usize = 64;

impl Workload {
    /// A burst of `burst` packets under `keys` keys at random.
    #[must_use]
    pub fn new(suite: Suite, sizes: Sizes, keys: usize, burst: usize) -> Self {
        Self::of_texts(suite, sizes.texts(suite, burst).into_iter(), keys)
    }

    /// A burst of packets with texts of these lengths.
    fn of_texts(suite: Suite, texts: impl ExactSizeIterator<Item = usize>, keys: usize) -> Self {
        let mut numbers = Numbers::new(7);
        let mut random = |len: usize| {
            let mut bytes = vec![0; len];
            numbers.fill(&mut bytes);
            bytes
        };
        let keys: Vec<_> = (0..keys)
            .map(|_| Keys {
                cipher: random(suite.key_bytes()),
                mac: random(suite.integrity_key_bytes()),
            })
            .collect();
        let mut numbers = Numbers::new(8);
        let mut start = 0;
        let mut packets = Vec::with_capacity(texts.len());
        for text in texts {
            let mut nonce = [0; 16];
            let used = suite.nonce_bytes();
            numbers.fill(&mut nonce[..used]);
            if matches!(suite, Suite::Pair { cipher: Cipher::AesCtr(_), .. }) {
                nonce[12..].copy_from_slice(&1u32.to_be_bytes());
            }
            packets.push(Packet { key: numbers.below(keys.len().max(1)), start, text, nonce });
            let bytes = suite.header_bytes() + text + suite.icv_bytes();
            // Kernels may touch a whole vector at a packet's end, so one line stays free.
            start += ((bytes.div_ceil(LINE) + 1) | 1) * LINE;
        }
        Self { suite, keys, packets, arena_bytes: start }
    }

    /// Packets of the same lengths for the same number of keys, under AES-128-GCM.
    pub(crate) fn under_gcm(&self) -> Self {
        let suite = Suite::Gcm(GcmParams::new(KeyBits::Aes128, IcvLen::Icv16));
        let texts = self.packets.iter().map(|packet| packet.text);
        Self::of_texts(suite, texts, self.keys.len())
    }

    /// An arena with headers and texts and without ICVs.
    #[must_use]
    pub fn plain(&self) -> Arena {
        let mut arena = Arena::new(self.arena_bytes);
        let mut numbers = Numbers::new(9);
        for packet in &self.packets {
            let header = self.suite.header_bytes();
            let frame = &mut arena.bytes_mut()[packet.start..];
            numbers.fill(&mut frame[..header + packet.text]);
            // The part of the nonce that packets carry.
            let iv = self.suite.iv_bytes();
            let used = self.suite.nonce_bytes();
            frame[ESP_HEADER..header].copy_from_slice(&packet.nonce[used - iv..used]);
        }
        arena
    }

    /// Range of the frame of packet `index`, from ESP header to ICV.
    #[must_use]
    pub fn frame_range(&self, index: usize) -> Range<usize> {
        let packet = self.packets[index];
        let bytes = self.suite.header_bytes() + packet.text + self.suite.icv_bytes();
        packet.start..packet.start + bytes
    }

    /// Range of the text of packet `index`.
    #[must_use]
    pub fn text_range(&self, index: usize) -> Range<usize> {
        let packet = self.packets[index];
        let start = packet.start + self.suite.header_bytes();
        start..start + packet.text
    }

    /// Bytes of all texts.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        self.packets.iter().map(|packet| packet.text).sum()
    }
}

/// The bytes of a burst, the first of them at the beginning of a cache line.
#[derive(Debug)]
pub struct Arena {
    bytes: Vec<u8>,
    /// Position of the aligned part.
    first: usize,
    len: usize,
}

impl Arena {
    /// Zeros.
    #[must_use]
    pub fn new(len: usize) -> Self {
        let bytes = vec![0; len + LINE];
        let first = bytes.as_ptr().align_offset(LINE).min(LINE);
        Self { bytes, first, len }
    }

    /// All of it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.first..self.first + self.len]
    }

    /// All of it.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.first..self.first + self.len]
    }

    /// Takes over what another of the same length holds.
    pub fn copy_from(&mut self, other: &Self) {
        self.bytes_mut().copy_from_slice(other.bytes());
    }
}

impl Clone for Arena {
    fn clone(&self) -> Self {
        let mut copy = Self::new(self.len);
        copy.copy_from(self);
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix::Mix;

    #[test]
    fn packets_begin_at_cache_lines_and_do_not_overlap() {
        for suite in crate::suite::all() {
            for sizes in [Sizes::Fixed(64), Sizes::Mix(Mix::Imix)] {
                let work = Workload::new(suite, sizes, 64, 256);
                let arena = work.plain();
                assert_eq!(arena.bytes().as_ptr() as usize % LINE, 0);
                let mut end = 0;
                for packet in &work.packets {
                    assert!(packet.start.is_multiple_of(LINE) && packet.start >= end);
                    end = packet.start + suite.header_bytes() + packet.text + suite.icv_bytes();
                }
                assert!(end <= arena.bytes().len());
                let used = |key| work.packets.iter().any(|packet| packet.key == key);
                assert!((0..64).filter(|&key| used(key)).count() > 50, "most keys are used");
            }
        }
    }

    #[test]
    fn packets_carry_their_part_of_the_nonce() {
        for suite in crate::suite::all() {
            let work = Workload::new(suite, Sizes::Fixed(64), 1, 2);
            let packet = work.packets[1];
            let (iv, used) = (suite.iv_bytes(), suite.nonce_bytes());
            let at = packet.start + ESP_HEADER;
            assert_eq!(work.plain().bytes()[at..at + iv], packet.nonce[used - iv..used], "{suite}");
        }
    }
}
