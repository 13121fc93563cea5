//! Packet sizes: single ones, and the mixes of the field's papers.

use std::fmt;
use std::str::FromStr;

use convoy_crypto::Suite;
use serde::Serialize;

use crate::results::fields::Value;
use crate::suite::Layout as _;

/// A mix of sizes: ESP texts with the weights at which they occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Tunnel packets of 90, 92, 594 and 1418 bytes, weighted 58.67, 2, 23.66 and 15.67.
    Imix,
    /// Ethernet frames of 64, 540 and 1364 bytes (CRC included), weighted 60, 23 and 15.
    ImixPaper,
}

impl Mix {
    /// Every mix.
    pub const ALL: [Self; 2] = [Self::Imix, Self::ImixPaper];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Imix => "imix",
            Self::ImixPaper => "imix-paper",
        }
    }

    /// Sizes of IP packets in bytes, and their weights.
    const fn packets(self) -> &'static [(usize, f64)] {
        match self {
            Self::Imix => &[(90, 58.67), (92, 2.0), (594, 23.66), (1418, 15.67)],
            // A frame less 14 bytes of header and 4 of CRC.
            Self::ImixPaper => &[(46, 60.0), (522, 23.0), (1346, 15.0)],
        }
    }

    /// Lengths of `count` packets, in a mixed but fixed order. The counts come as near to the weights
    /// as whole packets allow.
    pub(crate) fn lengths(self, count: usize) -> Vec<usize> {
        let packets = self.packets();
        let total: f64 = packets.iter().map(|(_, weight)| weight).sum();
        let mut given = vec![0.0; packets.len()];
        // Whoever is furthest behind its share goes next, which also spreads the sizes evenly.
        let next = |n: usize| {
            let behind = |i: usize| packets[i].1 / total * (n + 1) as f64 - given[i];
            let best = (0..packets.len()).max_by(|&a, &b| behind(a).total_cmp(&behind(b)));
            let best = best.unwrap_or(0);
            given[best] += 1.0;
            packets[best].0
        };
        let mut lengths: Vec<_> = (0..count).map(next).collect();
        shuffle(&mut lengths);
        lengths
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|mix| mix.name() == name).ok_or_else(|| {
            format!("no mix is called {name:?}; valid names are imix and imix-paper")
        })
    }
}

/// Lengths of the packets of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All texts of this many bytes.
    Fixed(usize),
    /// A mix.
    Mix(Mix),
}

impl Sizes {
    /// Lengths of the texts in bytes for `suite`: rounded up to its block.
    #[must_use]
    pub fn texts(self, suite: Suite, count: usize) -> Vec<usize> {
        let block = suite.block_bytes();
        match self {
            Self::Fixed(size) => vec![size.next_multiple_of(block); count],
            Self::Mix(mix) => {
                mix.lengths(count).into_iter().map(|packet| suite.esp_text_bytes(packet)).collect()
            }
        }
    }

    /// Lengths of IP packets in bytes; a single size is that of the packets.
    #[must_use]
    pub fn packets(self, count: usize) -> Vec<usize> {
        match self {
            Self::Fixed(size) => vec![size; count],
            Self::Mix(mix) => mix.lengths(count),
        }
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(size) => f.pad(&size.to_string()),
            Self::Mix(mix) => mix.fmt(f),
        }
    }
}

impl Serialize for Sizes {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl From<Sizes> for Value {
    fn from(sizes: Sizes) -> Self {
        match sizes {
            Sizes::Fixed(bytes) => bytes.into(),
            Sizes::Mix(mix) => mix.name().into(),
        }
    }
}

/// Numbers that look random and are the same in every run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// SplitMix64.
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub(crate) const fn below(&mut self, bound: usize) -> usize {
        // The bias of a remainder is far below anything a benchmark sees.
        (self.next() % bound as u64) as usize
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}

fn shuffle(items: &mut [usize]) {
    let mut numbers = Numbers::new(1);
    for i in (1..items.len()).rev() {
        items.swap(i, numbers.below(i + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoy_crypto::{Cipher, GcmParams, IcvLen, Integrity, KeyBits};

    const GCM: Suite = Suite::Gcm(GcmParams::new(KeyBits::Aes128, IcvLen::Icv16));
    const CBC: Suite =
        Suite::Pair { cipher: Cipher::AesCbc(KeyBits::Aes128), integrity: Integrity::HMAC_SHA1_96 };

    fn counts(texts: &[usize]) -> Vec<(usize, usize)> {
        let mut sizes = texts.to_vec();
        sizes.sort_unstable();
        sizes.dedup();
        sizes.iter().map(|s| (*s, texts.iter().filter(|t| *t == s).count())).collect()
    }

    #[test]
    fn paper_mix_has_the_payloads_of_the_papers() {
        let texts = Sizes::Mix(Mix::ImixPaper).texts(GCM, 98);
        assert_eq!(counts(&texts), [(48, 60), (524, 23), (1348, 15)]);
        let texts = Sizes::Mix(Mix::ImixPaper).texts(CBC, 98);
        assert_eq!(counts(&texts), [(48, 60), (528, 23), (1360, 15)]);
    }

    #[test]
    fn tunnel_mix_keeps_its_weights() {
        let texts = Sizes::Mix(Mix::Imix).texts(GCM, 10_000);
        assert_eq!(counts(&texts), [(92, 5867), (96, 200), (596, 2366), (1420, 1567)]);
        let texts = Sizes::Mix(Mix::Imix).texts(CBC, 10_000);
        assert_eq!(counts(&texts), [(96, 6067), (608, 2366), (1424, 1567)]);
    }

    #[test]
    fn mixed_sizes_stand_in_no_simple_order() {
        let texts = Sizes::Mix(Mix::ImixPaper).texts(GCM, 256);
        let runs = texts.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!(runs > 80, "{runs}");
        assert_eq!(texts, Sizes::Mix(Mix::ImixPaper).texts(GCM, 256), "the same every time");
    }

    #[test]
    fn fixed_sizes_are_rounded_up_to_the_block() {
        assert_eq!(Sizes::Fixed(68).texts(GCM, 2), [68, 68]);
        assert_eq!(Sizes::Fixed(68).texts(CBC, 2), [80, 80]);
    }

    #[test]
    fn names_are_read_back() {
        for mix in Mix::ALL {
            assert_eq!(mix.name().parse(), Ok(mix));
        }
        assert!("imax".parse::<Mix>().unwrap_err().contains("imix-paper"));
    }
}
