//! Payload whose every byte is known, so that damage and misplaced pieces are seen.

/// Period of the pattern in bytes: a prime, so that no segment size divides it and a piece in the
/// wrong place does not look right.
const PERIOD: usize = 65_521;

/// A repeating pseudo-random pattern. Any piece of up to `longest` bytes of the endless repetition
/// can be had as one slice.
#[derive(Debug)]
pub(super) struct Pattern {
    bytes: Vec<u8>,
}

impl Pattern {
    pub(super) fn new(longest: usize) -> Self {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut bytes: Vec<u8> = (0..PERIOD)
            .map(|_| {
                // Xorshift (Marsaglia 2003).
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state.to_le_bytes()[7]
            })
            .collect();
        bytes.reserve_exact(longest);
        for at in 0..longest {
            bytes.push(bytes[at]);
        }
        Self { bytes }
    }

    /// `len` bytes of the repetition from its byte `position`.
    pub(super) fn at(&self, position: u64, len: usize) -> &[u8] {
        let start = (position % PERIOD as u64) as usize;
        &self.bytes[start..start + len]
    }

    /// Number of bytes that differ from the repetition at `position`.
    pub(super) fn damage(&self, position: u64, seen: &[u8]) -> u64 {
        let expected = self.at(position, seen.len());
        if expected == seen {
            return 0;
        }
        expected.iter().zip(seen).filter(|(a, b)| a != b).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_with_its_period() {
        let pattern = Pattern::new(1000);
        let period = PERIOD as u64;
        assert_eq!(pattern.at(5, 1000), pattern.at(5 + 7 * period, 1000));
        let over_the_edge = pattern.at(period - 3, 10);
        assert_eq!(&over_the_edge[3..], pattern.at(0, 7));
    }

    #[test]
    fn a_changed_byte_and_a_misplaced_piece_are_seen() {
        let pattern = Pattern::new(4000);
        let mut piece = pattern.at(100, 1448).to_vec();
        assert_eq!(pattern.damage(100, &piece), 0);
        piece[7] ^= 1;
        assert_eq!(pattern.damage(100, &piece), 1);
        assert!(pattern.damage(100 + 1448, pattern.at(100, 1448)) > 1000);
    }
}
