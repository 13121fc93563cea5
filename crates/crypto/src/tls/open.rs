//! Opening a record in a time that depends on its length alone.
//!
//! Where the text ends is told by the padding, which is secret until the MAC was found right. So the hash
//! takes in as many blocks as the longest text would have; of the last few, what lies behind the text is
//! masked out, and the chaining value behind the block that is really the last is kept. The place of the
//! MAC is secret as well: the end of the record is moved by that many bytes in eight steps of fixed
//! distance, each of which moves everything or nothing.

use std::hint::black_box;

use super::{
    CbcHmacKey, HEADER, RecordError, RecordHeader,
    mac::{FIRST, HASH_BLOCK, Inner, MAC_MAX},
};
use crate::{
    isa::{job::CipherJob, made_public, record_job::bits},
    manager::Direction,
    pass,
    secret::{Scratch, wipe},
};

/// Most bytes of padding without the one that says how many there are.
const PADDING_MAX: usize = 255;

/// Most bytes among which MAC and padding are: as many as both have at most.
const WINDOW: usize = MAC_MAX + PADDING_MAX + 1;

impl CbcHmacKey {
    /// Opens a record in place and gives the length of its text, which is then in front; behind it, MAC
    /// and padding are decrypted, too. `record` is what was encrypted: from TLS 1.1 on `iv` is the explicit
    /// IV in front of it, in TLS 1.0 the last block of the record before.
    ///
    /// Time, memory accesses and the number of blocks hashed depend on the record's length alone, and on
    /// whether it is authentic.
    ///
    /// # Errors
    ///
    /// [`RecordError::NoKey`]; [`RecordError::Forged`] for whatever is wrong with the record, which is
    /// then wiped.
    pub fn open(
        &self,
        header: RecordHeader,
        iv: &[u8; 16],
        record: &mut [u8],
    ) -> Result<usize, RecordError> {
        let bits = self.both(Direction::Decrypt)?;
        // What the length alone tells is public.
        let fits = record.len().is_multiple_of(16)
            && (self.mac.bytes() + 1..=usize::from(u16::MAX)).contains(&record.len());
        if !fits {
            record.fill(0);
            return Err(RecordError::Forged);
        }
        let job = CipherJob { keys: &self.round_keys, iv, data: &mut *record };
        pass::cbc_decrypt(self.one.kernel, bits, &mut [job]);
        let text = self.verify(header, record);
        if text.is_none() {
            wipe(record, 0);
        }
        self.wipe_behind(text.is_none());
        text.ok_or(RecordError::Forged)
    }

    /// The length of the text, if padding and MAC are right. The record is not shorter than a MAC and a
    /// byte of padding.
    #[inline(never)]
    fn verify(&self, header: RecordHeader, record: &[u8]) -> Option<usize> {
        let mac_len = self.mac.bytes();
        let most = record.len().checked_sub(mac_len + 1)?;
        let padding_most = most.min(PADDING_MAX);
        let least = most - padding_most;
        let said = usize::from(*record.last()?);
        let is_possible = less(said, padding_most + 1);
        let padding = select(is_possible, said, padding_most);
        let text = most - padding;

        let mac = self.mac_of_secret_length(header, record, SecretLength { least, text, most });
        let window = record.get(least..)?;
        let difference = compare(window, padding_most - padding, &mac.0[..mac_len], padding);
        let is_authentic = made_public(black_box(difference | !is_possible) == 0);
        is_authentic.then(|| length_made_public(text))
    }

    /// The MAC of a record's text.
    #[inline(always)]
    fn mac_of_secret_length(
        &self,
        header: RecordHeader,
        record: &[u8],
        length: SecretLength,
    ) -> Scratch<u8, MAC_MAX> {
        let SecretLength { least, text, most } = length;
        let header = header.of(text as u16);
        let bytes = HEADER + text;
        // Blocks of text alone, whatever its length; then those that may hold its end.
        let sure = (HEADER + least) / HASH_BLOCK;
        let blocks = (HEADER + most + 8) / HASH_BLOCK + 1;
        let last = (bytes + 8) / HASH_BLOCK;
        let mut inner = Inner::new(self);
        if let (1.., Some((first, behind))) = (sure, record.split_first_chunk::<FIRST>()) {
            inner.take_first(&header, first);
            inner.take(behind.as_chunks().0.get(..sure - 1).unwrap_or_default());
        }
        let mut kept = Scratch([0; 64]);
        for at in sure..blocks {
            let mut block = Scratch([0; HASH_BLOCK]);
            fill(&mut block.0, at, &header, record);
            let is_last = equal(at, last);
            cut(&mut block.0, bytes.wrapping_sub(HASH_BLOCK * at) as i16);
            let length = (bits(bytes) & is_last as u64).to_be_bytes();
            block.0[HASH_BLOCK - 8..].iter_mut().zip(length).for_each(|(to, byte)| *to |= byte);
            inner.take(std::slice::from_ref(&block.0));
            keep(&mut kept.0, &inner.state.0, is_last as u8);
        }
        inner.state.0 = kept.0;
        inner.outer()
    }
}

/// Length of a record's text, which is secret, and the public bounds that it is within.
#[derive(Clone, Copy)]
struct SecretLength {
    least: usize,
    text: usize,
    most: usize,
}

/// Fills a block with what stands there of header and record, at a place that is public.
#[inline(always)]
fn fill(block: &mut [u8; HASH_BLOCK], at: usize, header: &[u8; HEADER], record: &[u8]) {
    let (to, from) = match (HASH_BLOCK * at).checked_sub(HEADER) {
        Some(from) => (&mut block[..], record.get(from..)),
        None => {
            block[..HEADER].copy_from_slice(header);
            (&mut block[HEADER..], Some(record))
        }
    };
    to.iter_mut().zip(from.unwrap_or_default()).for_each(|(to, byte)| *to = *byte);
}

/// Leaves the first `end` bytes of a block, sets the bit that follows them, and clears the rest. The end
/// may be in front of the block or behind it.
#[inline(always)]
fn cut(block: &mut [u8; HASH_BLOCK], end: i16) {
    let end = black_box(end);
    for (i, byte) in (0i16..).zip(block) {
        let in_front = (i.wrapping_sub(end) >> 15) as u8;
        let not_behind = (i.wrapping_sub(end).wrapping_sub(1) >> 15) as u8;
        *byte = (*byte & in_front) | (0x80 & not_behind & !in_front);
    }
}

/// Keeps a chaining value if the mask says so.
#[inline(always)]
fn keep(kept: &mut [u8; 64], state: &[u8; 64], mask: u8) {
    kept.iter_mut().zip(state).for_each(|(kept, byte)| *kept |= byte & mask);
}

/// Compares the MAC that stands at a secret place of the window, and the padding behind it; 0 if all is
/// as it should be. The padding is so many bytes of that value, and one more.
#[inline(always)]
fn compare(window: &[u8], offset: usize, mac: &[u8], padding: usize) -> usize {
    let mut moved = Scratch([0; WINDOW]);
    moved.0.iter_mut().zip(window).for_each(|(to, byte)| *to = *byte);
    move_down::<128>(&mut moved.0, offset);
    move_down::<64>(&mut moved.0, offset);
    move_down::<32>(&mut moved.0, offset);
    move_down::<16>(&mut moved.0, offset);
    move_down::<8>(&mut moved.0, offset);
    move_down::<4>(&mut moved.0, offset);
    move_down::<2>(&mut moved.0, offset);
    move_down::<1>(&mut moved.0, offset);
    let Some((found, behind)) = moved.0.split_at_checked(mac.len()) else { return !0 };
    let mut difference = found.iter().zip(mac).fold(0, |sum, (a, b)| sum | (a ^ b));
    let (value, end) = (padding as u8, black_box(padding as i16));
    for (i, byte) in (0i16..).zip(behind) {
        let counts = (i.wrapping_sub(end).wrapping_sub(1) >> 15) as u8;
        difference |= (byte ^ value) & counts;
    }
    usize::from(difference)
}

/// Moves everything down by `N` bytes, a power of two, if that bit is set in `offset`.
#[inline(always)]
fn move_down<const N: usize>(bytes: &mut [u8; WINDOW], offset: usize) {
    let mask = black_box(0usize.wrapping_sub((offset / N) & 1)) as u8;
    for i in 0..WINDOW - N {
        bytes[i] = (bytes[i] & !mask) | (bytes[i + N] & mask);
    }
    // What comes in at the end is not looked at: the padding does not reach so far.
}

/// All bits set if `a` is less than `b`, else none; both are lengths.
#[inline(always)]
fn less(a: usize, b: usize) -> usize {
    black_box(0usize.wrapping_sub(a.wrapping_sub(b) >> (usize::BITS - 1)))
}

/// All bits set if both are equal, else none; both are lengths.
#[inline(always)]
fn equal(a: usize, b: usize) -> usize {
    !(less(a, b) | less(b, a))
}

/// `a` where the mask is set, else `b`.
#[inline(always)]
fn select(mask: usize, a: usize, b: usize) -> usize {
    (a & mask) | (b & !mask)
}

/// The length of an authentic text is known to everybody. With the feature `secret-marks`, Valgrind is
/// told.
#[inline(always)]
fn length_made_public(text: usize) -> usize {
    #[cfg(all(feature = "secret-marks", target_arch = "x86_64"))]
    let text = {
        let mut text = text;
        crate::marks::mark_public(&mut text);
        black_box(text)
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_those_of_comparisons() {
        for a in [0, 1, 2, 63, 64, 255, 16_384, 65_535] {
            for b in [0, 1, 2, 63, 64, 255, 16_384, 65_535] {
                assert_eq!(less(a, b), if a < b { !0 } else { 0 }, "{a} < {b}");
                assert_eq!(equal(a, b), if a == b { !0 } else { 0 }, "{a} = {b}");
            }
        }
        assert_eq!((select(!0, 3, 4), select(0, 3, 4)), (3, 4));
    }

    #[test]
    fn blocks_are_cut_at_every_place() {
        for end in -300i16..400 {
            let mut block = [7; HASH_BLOCK];
            cut(&mut block, end);
            for (i, byte) in (0i16..).zip(block) {
                let right = if i < end {
                    7
                } else if i == end {
                    0x80
                } else {
                    0
                };
                assert_eq!(byte, right, "byte {i}, cut at {end}");
            }
        }
    }

    /// Every place of the MAC, and every byte that should make a difference, or should not.
    #[test]
    fn one_wrong_byte_of_mac_and_padding_is_noticed_at_every_place() {
        for mac_len in [20, 32] {
            let mac: Vec<u8> = (0..mac_len as u8).map(|i| i.wrapping_mul(37) ^ 0x5a).collect();
            for most in [255usize, 254, 100, 16, 0] {
                for padding in 0..=most {
                    let offset = most - padding;
                    let mut window = vec![0xee; offset];
                    window.extend(&mac);
                    window.resize(offset + mac_len + padding + 1, padding as u8);
                    assert_eq!(compare(&window, offset, &mac, padding), 0);
                    let end = window.len();
                    for at in [0, offset / 2, offset.saturating_sub(1)] {
                        let mut other = window.clone();
                        other[at] ^= 0x10;
                        let matters = at >= offset;
                        let difference = compare(&other, offset, &mac, padding);
                        assert_eq!(difference != 0, matters, "{at} of {offset}, {padding}");
                    }
                    for at in [offset, offset + mac_len - 1, offset + mac_len, end - 1] {
                        let mut other = window.clone();
                        other[at] ^= 1;
                        assert_ne!(compare(&other, offset, &mac, padding), 0, "{at} of {offset}");
                    }
                }
            }
        }
    }
}
