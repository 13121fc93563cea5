//! CBC encryption.

use std::mem;

use super::{
    super::{lanes::Lanes, token::Task},
    chain::{Feed, Piece, Run, Start, Writing},
    order::{MOST, Order},
    width::{Widest, Width},
};
use crate::{KeyBits, block::Block, isa::job::CipherJob};

/// Encrypts with AES-CBC.
pub(super) struct CbcEncrypt<'p, 'j> {
    pub(super) bits: KeyBits,
    pub(super) jobs: &'p mut [CipherJob<'j>],
}

impl<L: Widest> Task<L> for CbcEncrypt<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(self, l: L) {
        for jobs in self.jobs.chunks_mut(MOST) {
            let order = Order::longest_first(jobs, |job| (job.data.len() / 16, job.keys));
            let Some(first) = jobs.first().map(|job| job.keys) else { break };
            let feed = &mut Packets { l, jobs, order: order.packets().iter() };
            let (rounds, order) = (self.bits.rounds(), &order);
            l.widest().chains(Run { l, rounds, first, order, feed });
        }
    }
}

/// Packets to be encrypted, in their order.
struct Packets<'p, 'j, L> {
    l: L,
    jobs: &'p mut [CipherJob<'j>],
    order: std::slice::Iter<'p, u8>,
}

impl<'j, L: Lanes> Feed<'j> for Packets<'_, 'j, L> {
    type Access = Writing;

    #[inline(always)]
    fn start(&mut self, _: usize) -> Option<Start<'j, Writing>> {
        let job = self.jobs.get_mut(usize::from(*self.order.next()?))?;
        let piece = Piece::writing(mem::take(&mut job.data).as_chunks_mut().0);
        // Behind an empty packet, all are.
        (!piece.is_empty()).then(|| Start { piece, keys: job.keys, state: self.l.load(job.iv) })
    }

    #[inline(always)]
    fn more(&mut self, _: usize) -> Option<Piece<'j, Writing>> {
        None
    }

    #[inline(always)]
    fn done(&mut self, _: usize, _: &Block) {}
}
