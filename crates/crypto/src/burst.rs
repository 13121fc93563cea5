//! The scheduler: sorts a burst once and hands runs of like packets to the kernels.

use std::ptr;

use crate::{
    OpenOp, SealOp,
    class::{Class, LENGTH_CLASSES, NO_CLASS, length_class},
    family,
    isa::packet::{CHUNK, SHORT_BLOCKS, Slot, are_few},
    key::Schedule,
    memory::Room,
    op::Op,
    secret::wipe_message,
    widest::Widest,
};

/// Operations whose places are looked for at once, a bit each.
const WORD: usize = u64::BITS as usize;

/// Seals every operation of the burst that has not been sealed yet: payloads become ciphertext,
/// ICVs are written.
///
/// Operations may mix keys, key sizes, tiers and lengths in any order; the outcome does not depend
/// on it. Nothing is allocated.
pub fn seal_burst(ops: &mut [SealOp<'_>]) {
    run(ops);
}

/// Opens every operation of the burst that is still pending: ICVs are verified, payloads become
/// plaintext, and each operation gets its own [`Verdict`](crate::Verdict). The payload of what is
/// not authentic is wiped.
///
/// Operations may mix keys, key sizes, tiers and lengths in any order; the outcome does not depend
/// on it. Nothing is allocated.
pub fn open_burst(ops: &mut [OpenOp<'_>]) {
    run(ops);
}

pub(crate) fn run<'a, O: Op<'a>>(ops: &mut [O]) {
    if let [op] = ops
        && run_alone(op)
    {
        return;
    }
    let mut widest = Widest::default();
    let mut others = false;
    let cut = Cut::of(ops);
    for chunk in ops.chunks_mut(cut.size) {
        others |= run_chunk(chunk, cut.classes, &mut widest);
    }
    if others {
        family::run(ops, &mut widest);
    }
    // Looking at all is cheaper than a branch in every kernel. What passes of other suites give away is in their jobs.
    let leaves = |op: &O| op.is_forged() | (!others & op.is_unjudged());
    widest.wipe(others, ops.iter().fold(false, |any, op| any | leaves(op)));
}

/// Division of a burst into chunks and classes.
struct Cut {
    /// Operations of a chunk.
    size: usize,
    /// The longest packets' class that is told from others.
    classes: usize,
}

impl Cut {
    /// Of a burst of one or a few keys, the more packets are sorted together and the finer, the more of them are alike.
    /// The tables of many keys must still be near when the chunk that they were fetched for is worked on.
    fn of<'a, O: Op<'a>>(ops: &[O]) -> Self {
        let near = ops.get(..16).unwrap_or(ops);
        if are_few(near.iter().map(O::key_address)) {
            Self { size: CHUNK, classes: LENGTH_CLASSES - 1 }
        } else {
            Self { size: WORD, classes: SHORT_BLOCKS + 1 }
        }
    }
}

/// Runs a burst of one at once, if it is of AES-GCM: there is nothing to sort.
#[inline]
fn run_alone<'a, O: Op<'a>>(op: &mut O) -> bool {
    match op.key().schedule() {
        Schedule::Gcm { .. } | Schedule::SoftGcm(_) if !op.is_due() => {}
        Schedule::Gcm { kernel, .. } => {
            kernel.run_one(op);
            kernel.wipe_registers();
            if op.is_forged() {
                wipe_message(false);
            }
        }
        Schedule::SoftGcm(key) => {
            key.run(op);
            wipe_message(true);
        }
        _ => return false,
    }
    true
}

/// Runs the AES-GCM operations among at most [`CHUNK`]; returns whether there are any of other suites.
/// What it leaves on the stack is below the caller's frame.
#[inline(never)]
fn run_chunk<'a, O: Op<'a>>(ops: &mut [O], classes: usize, widest: &mut Widest) -> bool {
    let mut slots = Room::<Slot<'_, O>, CHUNK>::new();
    let mut places: Places = [0; CHUNK];
    let mut others = false;
    // Bits that any class has, and that all have.
    let (mut any, mut all) = (0, Class::MAX);
    let (mut last, mut longest) = (ptr::null(), NO_CLASS);
    for op in ops {
        if !op.is_due() {
            continue;
        }
        let key = op.key();
        if !ptr::eq(last, key) {
            // Packets of many keys come at random, and few of the keys are near.
            key.schedule().prefetch(op.data_len());
            (last, longest) = (key, key.class());
        }
        if longest == NO_CLASS {
            match key.schedule() {
                Schedule::SoftGcm(key) => {
                    key.run(op);
                    widest.note(None);
                }
                _ => others = true,
            }
            continue;
        }
        let class = length_class(longest, classes, op.data_len());
        (any, all) = (any | class, all & class);
        places[slots.len()] = class as u8;
        slots.push(Some(op));
    }
    if any == all {
        run_class(&mut slots, widest);
    } else {
        let one_tier = (any ^ all) >> 8 == 0;
        run_sorted(&mut slots, &places, one_tier, widest);
    }
    others
}

/// The place of each operation's class among those of its tier.
type Places = [u8; CHUNK];

/// Runs operations of one class.
fn run_class<'a, O: Op<'a>>(slots: &mut [Slot<'_, O>], widest: &mut Widest) {
    let Some(Some(first)) = slots.first() else { return };
    let kernel = first.key().schedule().kernel();
    widest.note(kernel);
    if let Some(kernel) = kernel {
        kernel.run(slots);
    }
}

/// Runs the operations class after class, in the order they have within it. Where keys of several tiers
/// meet, which is rare, each change of tier ends a run.
fn run_sorted<'a, O: Op<'a>>(
    slots: &mut [Slot<'_, O>],
    places: &Places,
    one_tier: bool,
    widest: &mut Widest,
) {
    // Counting and sorting by counts would pass every count through memory, twice per operation.
    let places_used = &places[..slots.len()];
    let mut classes = places_used.iter().fold(0u64, |classes, place| classes | 1 << place);
    while classes != 0 {
        let class = classes.trailing_zeros() as u8;
        classes &= classes - 1;
        let mut run = Room::<Slot<'_, O>, CHUNK>::new();
        for (slots, places) in slots.chunks_mut(WORD).zip(places.as_chunks().0) {
            let mut members = positions(places, class);
            while members != 0 {
                let position = members.trailing_zeros() as usize;
                members &= members - 1;
                // Behind the last operation there is nothing of any class.
                if let Some(slot) = slots.get_mut(position) {
                    run.push(slot.take());
                }
            }
        }
        if one_tier {
            run_class(&mut run, widest);
        } else {
            let class = |slot: &Slot<'_, O>| slot.as_deref().map(|op| op.key().class());
            for run in run.chunk_by_mut(|a, b| class(a) == class(b)) {
                run_class(run, widest);
            }
        }
    }
}

/// Positions of `place` among `places`, one bit each.
#[inline(always)]
fn positions(places: &[u8; WORD], place: u8) -> u64 {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    let wanted = ONES * u64::from(place);
    let mut positions = 0;
    for (i, &eight) in places.as_chunks::<8>().0.iter().enumerate() {
        let difference = u64::from_le_bytes(eight) ^ wanted;
        // The high bit of each byte that does not differ: none is above 0x7f.
        let same = !(difference + 0x7f * ONES) & (0x80 * ONES);
        // The product brings all of them together in the highest byte.
        positions |= (same >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56 << (8 * i);
    }
    positions
}

// Both are bits of a word, and places leave the highest bit of their byte alone.
const _: () = assert!(LENGTH_CLASSES <= WORD && CHUNK.is_multiple_of(WORD));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_wherever_they_stand() {
        // A linear congruential generator's high bits.
        let mut state = 7u64;
        for most in [1, 2, 3, 18, 54, 128] {
            let places: [u8; WORD] = std::array::from_fn(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                ((state >> 40) % most) as u8
            });
            for wanted in 0..128 {
                let bits = places.iter().rev().map(|&place| u64::from(place == wanted));
                let expected = bits.fold(0, |positions, bit| positions << 1 | bit);
                assert_eq!(positions(&places, wanted), expected, "{wanted} in {places:?}");
            }
        }
    }
}
