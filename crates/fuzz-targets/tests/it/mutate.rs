//! Changes to bytes that look random and depend on a number alone.

/// A source of changes (SplitMix64).
pub(crate) struct Mutator(u64);

/// Values at which lengths and counters go wrong.
const EDGES: [u8; 8] = [0, 1, 4, 0x7f, 0x80, 0xfe, 0xff, 0x20];

impl Mutator {
    pub(crate) fn new(number: u64) -> Self {
        Self(number)
    }

    pub(crate) fn pick<'f, T>(&mut self, from: &'f [T]) -> &'f T {
        &from[self.below(from.len())]
    }

    /// Makes some changes, most often few.
    pub(crate) fn mutate(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        for _ in 0..1 << self.below(4) {
            self.change(bytes, other);
        }
    }

    fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        if bytes.is_empty() {
            bytes.push(self.next() as u8);
            return;
        }
        let at = self.below(bytes.len());
        match self.below(10) {
            0..=2 => bytes[at] ^= 1 << self.below(8),
            3 => bytes[at] = self.next() as u8,
            4 => bytes[at] = *self.pick(&EDGES),
            // Of a length in two bytes or four, neighbours.
            5 => bytes[at] = bytes[at].wrapping_add(*self.pick(&[1, 4, 0xfc, 0xff])),
            6 => bytes.truncate(at),
            7 => {
                let (from, to) = self.range(bytes.len());
                bytes.drain(from..to);
            }
            8 => {
                let (from, to) = self.range(bytes.len());
                let again = bytes[from..to].to_vec();
                bytes.splice(at..at, again);
            }
            _ => {
                let (from, to) = self.range(other.len());
                let end = self.below(bytes.len() - at + 1);
                bytes.splice(at..at + end, other[from..to].iter().copied());
            }
        }
    }

    /// A part of something of `len` bytes, short more often than long.
    fn range(&mut self, len: usize) -> (usize, usize) {
        let from = self.below(len + 1);
        let most = (len - from).min(1 << self.below(11));
        (from, from + self.below(most + 1))
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
