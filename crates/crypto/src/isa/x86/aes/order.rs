//! The order in which lanes take packets: the longest first, so that they end together.

/// Most packets ordered at once.
pub(super) const MOST: usize = 256;

/// Classes of length. Lengths below 64 blocks have a class each, longer ones sixteen per power of
/// two, and the last class holds everything of a megabyte and more.
const CLASSES: usize = 64 + 16 * 10;

/// Numbers of packets in the order in which they come.
static AS_THEY_COME: [u8; MOST] = {
    let mut order = [0; MOST];
    let mut i = 0;
    while i < MOST {
        order[i] = i as u8;
        i += 1;
    }
    order
};

/// An order of up to [`MOST`] packets.
pub(super) struct Order {
    sorted: [u8; MOST],
    len: usize,
    as_they_come: bool,
}

impl Order {
    /// Orders packets by their number of blocks. More than [`MOST`] are not looked at.
    #[inline(always)]
    pub(super) fn longest_first(blocks: impl ExactSizeIterator<Item = usize>) -> Self {
        let mut classes = [0u8; MOST];
        let len = blocks.len().min(MOST);
        let (mut last, mut rising) = (0, false);
        for (class, blocks) in classes.iter_mut().zip(blocks) {
            // Classes count down, so that the longest come first.
            *class = (CLASSES - 1 - class_of(blocks)) as u8;
            rising |= *class < last;
            last = *class;
        }
        let mut order = Self { sorted: [0; MOST], len, as_they_come: !rising };
        if rising {
            order.sort(&classes);
        }
        order
    }

    #[inline(never)]
    fn sort(&mut self, classes: &[u8; MOST]) {
        let classes = &classes[..self.len];
        let mut places = [0u16; 256];
        for &class in classes {
            places[usize::from(class)] += 1;
        }
        let mut next = 0;
        for place in &mut places[..CLASSES] {
            next += std::mem::replace(place, next);
        }
        for (i, &class) in classes.iter().enumerate() {
            let place = &mut places[usize::from(class)];
            self.sorted[usize::from(*place) % MOST] = i as u8;
            *place += 1;
        }
    }

    /// The packets' numbers.
    #[inline(always)]
    pub(super) fn packets(&self) -> &[u8] {
        let all = if self.as_they_come { &AS_THEY_COME } else { &self.sorted };
        all.get(..self.len).unwrap_or(all)
    }
}

#[inline(always)]
fn class_of(blocks: usize) -> usize {
    if blocks < 64 {
        return blocks;
    }
    let power = blocks.ilog2() as usize;
    // The four bits below the highest.
    let part = (blocks >> (power - 4)) & 15;
    (64 + 16 * (power - 6) + part).min(CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_has_its_place_and_lengths_fall() {
        for step in [0, 1, 7, 64, 1001, 123_457] {
            for len in [0, 1, 2, 100, 255, 256, 300] {
                let blocks: Vec<usize> = (0..len).map(|i| i * step % 70_001).collect();
                let order = Order::longest_first(blocks.iter().copied());
                let packets = order.packets();
                let mut seen = packets.to_vec();
                seen.sort_unstable();
                let all: Vec<u8> = (0..len.min(MOST)).map(|i| i as u8).collect();
                assert_eq!(seen, all);
                let sorted: Vec<_> = packets.iter().map(|&i| blocks[usize::from(i)]).collect();
                for pair in sorted.windows(2) {
                    assert!(class_of(pair[0]) >= class_of(pair[1]), "{pair:?}");
                }
            }
        }
    }

    #[test]
    fn classes_rise_with_length() {
        let classes: Vec<_> = (0..100_000).map(class_of).collect();
        assert!(classes.is_sorted());
        assert!((0..64).all(|i| classes[i] == i));
        assert_eq!(class_of(usize::MAX), CLASSES - 1);
    }
}
