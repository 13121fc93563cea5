//! ICVs: the fronts of tags that are sent.

use std::hint::black_box;

use crate::{isa::made_public, pairs::PairedWith};

/// Writes the front of `tag`, as much as there is room for.
#[inline(always)]
pub(crate) fn write_icv(tag: &[u8], icv: &mut [u8]) {
    // The usual lengths apart, so that each is one or two plain stores.
    let fixed = match icv.len() {
        16 => copy_front::<16>(tag, icv),
        12 => copy_front::<12>(tag, icv),
        8 => copy_front::<8>(tag, icv),
        _ => false,
    };
    if !fixed {
        for (icv, tag) in icv.iter_mut().paired_with(tag) {
            *icv = *tag;
        }
    }
}

#[inline(always)]
fn copy_front<const N: usize>(from: &[u8], to: &mut [u8]) -> bool {
    match (from.first_chunk::<N>(), to.first_chunk_mut::<N>()) {
        (Some(from), Some(to)) => {
            *to = *from;
            true
        }
        _ => false,
    }
}

/// Compares the front of `tag` with `icv`, which is not longer. The time taken depends on the
/// lengths alone: every byte is gathered into one difference, and only that is tested.
#[inline(always)]
pub(crate) fn icv_matches(tag: &[u8], icv: &[u8]) -> bool {
    let (mut tag, mut icv) = (tag, icv);
    if icv.len() > tag.len() {
        return false;
    }
    let mut difference = 0;
    while let (Some((&a, tag_rest)), Some((&b, icv_rest))) =
        (tag.split_first_chunk::<8>(), icv.split_first_chunk::<8>())
    {
        difference |= u64::from_le_bytes(a) ^ u64::from_le_bytes(b);
        (tag, icv) = (tag_rest, icv_rest);
    }
    if let (Some((&a, tag_rest)), Some((&b, icv_rest))) =
        (tag.split_first_chunk::<4>(), icv.split_first_chunk::<4>())
    {
        difference |= u64::from(u32::from_le_bytes(a) ^ u32::from_le_bytes(b));
        (tag, icv) = (tag_rest, icv_rest);
    }
    for (a, b) in tag.iter().paired_with(icv) {
        difference |= u64::from(a ^ b);
    }
    // The black box keeps the compiler from testing the words one after the other.
    made_public(black_box(difference) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_flipped_bit_anywhere_in_the_icv_is_noticed() {
        let tag: [u8; 64] = std::array::from_fn(|i| (i as u8).wrapping_mul(13));
        for len in 1..=64 {
            assert!(icv_matches(&tag, &tag[..len]));
            for bit in 0..len * 8 {
                let mut icv = tag;
                icv[bit / 8] ^= 1 << (bit % 8);
                assert!(!icv_matches(&tag, &icv[..len]), "bit {bit} of {len} bytes");
            }
        }
        assert!(!icv_matches(&tag[..16], &tag[..17]));
    }

    #[test]
    fn icvs_of_every_length_are_the_front_of_the_tag() {
        let tag: [u8; 64] = std::array::from_fn(|i| i as u8 + 1);
        for len in 0..=64 {
            let mut icv = vec![0; len];
            write_icv(&tag, &mut icv);
            assert_eq!(icv, tag[..len]);
        }
    }
}
