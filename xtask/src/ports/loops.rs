//! Inner loops: of kernels as they are written down, and of a way that was taken.

use std::collections::HashMap;

use super::listing::{Function, Instruction, Listing};

/// Fewer instructions on vectors make no loop that is told of.
const VECTORS_MIN: usize = 16;

/// A loop in a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Loop<'a> {
    /// From where the jump backwards goes to, to the jump.
    pub(crate) body: &'a [Instruction],
    /// Number of those that work on vectors.
    pub(crate) vectors: usize,
}

/// The innermost of the loops on vectors; among several the one with the most instructions on them.
pub(crate) fn inner(function: &Function) -> Option<Loop<'_>> {
    let all = &function.instructions;
    let place = |address: u64| all.binary_search_by_key(&address, |one| one.address).ok();
    let loops: Vec<(usize, usize, Loop<'_>)> = all
        .iter()
        .enumerate()
        .filter_map(|(end, one)| Some((place(one.jump()?)?, end)))
        .filter_map(|(begin, end)| {
            let body = all.get(begin..=end)?;
            let vectors = body.iter().filter(|one| one.is_vector()).count();
            (vectors >= VECTORS_MIN).then_some((begin, end, Loop { body, vectors }))
        })
        .collect();
    // Several jumps to one place are ways to go on with one loop: the last of them has all of it.
    let is_inner = |&&(begin, end, _): &&(usize, usize, Loop<'_>)| {
        !loops.iter().any(|&(other, jump, _)| {
            (other > begin && jump <= end) || (other == begin && jump > end)
        })
    };
    loops.iter().filter(is_inner).map(|(_, _, found)| *found).max_by_key(|found| found.vectors)
}

/// The turn of a loop without a loop in it that a way spends most instructions in.
pub(crate) fn most_taken(listing: &Listing, way: &[u64]) -> Option<Vec<u64>> {
    let mut turns = HashMap::<&[u64], usize>::new();
    // Where the way has been since it last went backwards, so that no turn has a loop in it.
    let mut since = 0;
    for (at, address) in way.iter().enumerate() {
        let Some((function, instruction)) = listing.at(*address) else { continue };
        let (Some(target), Some(next)) = (instruction.jump(), way.get(at + 1)) else { continue };
        if target > *address || target != *next {
            continue;
        }
        let stretch = way.get(since..=at).unwrap_or_default();
        let from = stretch.iter().rposition(|one| *one == target);
        let body = from.and_then(|from| stretch.get(from..));
        // A call within would be a part of another function.
        let is_here = |one: &u64| listing.at(*one).is_some_and(|(f, _)| f.name == function.name);
        if let Some(body) = body.filter(|body| body.iter().all(is_here)) {
            *turns.entry(body).or_default() += body.len();
        }
        since = at + 1;
    }
    // The way itself decides between equals, so that every run finds the same.
    let most = turns.values().copied().max()?;
    let found = turns.into_iter().filter(|(_, weight)| *weight == most);
    found.map(|(body, _)| body).min().map(<[u64]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function with a line for each instruction, two bytes each.
    fn listing(lines: &[&str]) -> Listing {
        let mut text = "0000000000000000 <f>:\n".to_owned();
        for (at, line) in lines.iter().enumerate() {
            text += &format!("  {:x}: \t{line}\n", at * 2);
        }
        Listing::read(&text)
    }

    #[test]
    fn the_innermost_loop_with_most_vectors_is_found() {
        let mut lines = vec!["xorl %eax, %eax"];
        lines.extend(["vpaddd %xmm1, %xmm2, %xmm2"; 4]);
        // To the first addition: too few vectors.
        lines.push("jne 0x2");
        lines.extend(["vaesenc %zmm1, %zmm2, %zmm2"; 16]);
        // Two ways to go on with one loop.
        lines.push("je 0xc");
        lines.extend(["vaesenclast %zmm1, %zmm2, %zmm2"; 2]);
        lines.push("jne 0xc");
        // Around all.
        lines.push("jmp 0x0");
        let listing = listing(&lines);
        let found = inner(&listing.functions[0]).unwrap();
        assert_eq!((found.vectors, found.body.len()), (18, 20));
        assert_eq!(found.body[0].address, 0xc);
    }

    #[test]
    fn a_function_without_a_loop_has_none() {
        let mut lines = vec!["vaesenc %zmm1, %zmm2, %zmm2"; 20];
        lines.push("jne 0x40");
        assert_eq!(inner(&listing(&lines).functions[0]), None);
    }

    #[test]
    fn the_turn_that_is_taken_most_is_found() {
        let lines = ["nop", "nop", "je 0x8", "nop", "jne 0x2", "jne 0x0", "retq"];
        let listing = listing(&lines);
        let long = [0x2, 0x4, 0x6, 0x8];
        let short = [0x2, 0x4, 0x8];
        let mut way = vec![0x0];
        way.extend([long, long, long].concat());
        way.extend(short);
        way.push(0xa);
        way.push(0x0);
        way.extend(short);
        way.extend([0xa, 0xc]);
        // The outer loop's turn has the inner one's in it and is none; the last turn of each does not go back.
        assert_eq!(most_taken(&listing, &way), Some(long.to_vec()));
        assert_eq!(most_taken(&listing, &[0x0, 0x2, 0x4]), None);
    }
}
